// See schedule.h.
#include "compiler/plan/schedule.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "compiler/loops/contract.h"
#include "compiler/loops/policy.h"
#include "compiler/plan/costs.h"
#include "compiler/plan/scratch.h"
#include "ir/build.h"
#include "ir/order.h"

namespace onepass::compiler {
namespace {

constexpr std::int64_t kRowTile = 2048;                       // columns whose accumulators stay in the first-level cache
constexpr std::int64_t kLeastTile = 64;                       // columns of a task, unless there are fewer
constexpr std::int64_t kPackedTile = 32;                      // side of a packed operand tile: a few cache lines of each row
constexpr std::int64_t kPackedBytes = 128, kMostPacked = 64;  // larger tiles for narrow elements: bytes of a row, most elements
constexpr std::int64_t kChunk = 4096;                         // elements of a chunk if there are too few rows for the threads

constexpr std::int64_t kWideRows = 1024;  // columns per thread from which columns are shared instead of rows
constexpr std::int64_t kChunksPerThread = 16;
constexpr std::int64_t kLongUpdate = 256;  // elements from which threads share one update instead of the destinations
constexpr double kMostWork = 0x1p56;       // limit of the estimate; a broadcast may have any number of elements
constexpr int kQuickRow = 16;              // most instructions per element for which eight rows are summed in registers
constexpr int kWorthKeeping = 6;           // instructions per element from which a row is cached in a row buffer

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Returns the approximate instructions per element of a value that varies along a row.
int cost_in_row(const Nest& nest, std::uint32_t value) {
  std::vector<bool> wanted(value + 1, false);
  wanted[value] = true;
  int cost = 0;
  for (std::uint32_t i = value + 1; i-- > 0;) {
    const Statement& s = nest.body[i];
    if (!wanted[i] || s.kind != Statement::Kind::Op || !(s.loops & nest.reduced_mask())) continue;
    const bool slow = s.op == ir::Op::Div || s.op == ir::Op::Sqrt || s.op == ir::Op::Reciprocal;
    cost += ir::info(s.op).kind == ir::OpKind::Expanded ? 16
            : slow                                      ? kWorthKeeping
            : s.op == ir::Op::Mul0                      ? 2
            : s.op == ir::Op::Share                     ? 4
                                                        : 1;
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != Statement::kNone) wanted[o] = true;
  }
  return cost;
}

// Returns the bytes of the widest type in the vector loop. It determines how many lanes fit into a register.
int element_bytes(const Nest& nest) {
  std::size_t widest = 0, of_all = 1;  // loop-invariant values are computed outside
  for (const Statement& s : nest.body) {
    if (s.kind == Statement::Kind::Guard || s.kind == Statement::Kind::Constant) continue;
    of_all = std::max(of_all, size_of(s.dtype));
    if (s.kind == Statement::Kind::Reduce || (s.loops >> nest.vector_loop() & 1)) widest = std::max(widest, size_of(s.dtype));
  }
  const bool outside = nest.kind == NestKind::Map || nest.has(Statement::Kind::Place);  // row indices are not in the vector body
  return static_cast<int>(outside && widest > 0 ? widest : of_all);
}

// The same if loops also find the indices of extremes: these indices are narrower than their types.
int element_bytes_with_indices(const Nest& nest) {
  std::size_t widest = sizeof(std::int32_t);
  for (const std::vector<bool>& needed : needed_by_sweep(nest, {}, true))
    for (std::uint32_t i = 0; i < nest.body.size(); ++i)
      if (needed[i] && nest.body[i].kind != Statement::Kind::Index) widest = std::max(widest, size_of(nest.body[i].dtype));
  return static_cast<int>(widest);
}

// True if later fissioned loops read the value from scratch. Loop-invariant values and indices are recomputed instead.
bool passes_on(const Nest& nest, std::uint32_t id) {
  const Statement& s = nest.body[id];
  return (s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Op) && (s.loops >> nest.vector_loop() & 1);
}

// Most instructions of a loop that are fetched as fast as they run. Longer loops exceed the cache of decoded instructions.
constexpr std::uint32_t kQuicklyFetched = 4096;

// Returns the number of registers that the vector body processes together. It is large enough to hide latencies, but small enough for the
// live values to fit.
int interleave(const Nest& nest, const Target& target) {
  std::vector<std::uint32_t> last(nest.body.size(), 0), depth(nest.body.size(), 0);
  std::uint32_t work = 0, path = 1;
  bool expanded = false, doubles = false;
  // Loop-invariant values are computed outside the loop. They are memory operands if registers are short.
  const auto varies = [&](const Statement& s) { return s.kind == Statement::Kind::Reduce || (s.loops >> nest.vector_loop() & 1); };
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != Statement::kNone) last[o] = i, depth[i] = std::max(depth[i], depth[o]);
    if (s.kind != Statement::Kind::Op && s.kind != Statement::Kind::Reduce) continue;
    if (!varies(s)) continue;
    const bool is_expanded = ir::info(s.op).kind == ir::OpKind::Expanded;
    expanded |= is_expanded;
    doubles |= is_expanded && s.dtype == DType::F64;
    work += is_expanded ? 30 : 1;
    depth[i] += is_expanded ? 15 : 1;
    path = std::max(path, depth[i]);
  }
  std::uint32_t live = 0, most = 1;
  std::vector<std::uint32_t> ends(nest.body.size() + 1, 0);
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement::Kind kind = nest.body[i].kind;
    live -= ends[i];
    if (kind == Statement::Kind::Store || kind == Statement::Kind::Constant || kind == Statement::Kind::Slot ||
        kind == Statement::Kind::Guard || !varies(nest.body[i]))
      continue;
    if (last[i] > i) ++live, ++ends[last[i]];
    most = std::max(most, live);
  }
  const bool many = target.vector_registers() >= 32;
  if (expanded) return many && !doubles && most <= 12 ? 4 : 2;  // f64 expansions have more constants than registers
  if (path < 32) return 2;
  unsigned registers = 2;
  while (registers < 8 && 2 * registers * most <= (many && registers == 2 ? 48 : 24) && registers * work / path < 8) registers *= 2;
  // A single chain stalls even with eight registers: a product and a sum take six cycles, and each unit starts two per cycle.
  if (many && registers == 8 && most == 1) registers = 16;
  return static_cast<int>(registers);
}

// Returns the fission points of a long body: near the ends of equal parts that are fetched fast, where the fewest values cross.
std::vector<std::uint32_t> parts_of(const Nest& nest, std::uint32_t registers) {
  constexpr std::uint32_t most_values = 4;
  std::vector<std::uint32_t> last(nest.body.size(), 0), work(nest.body.size() + 1, 0), across(nest.body.size() + 1, 0);
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const bool plain = s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Op || s.kind == Statement::Kind::Slot ||
                       s.kind == Statement::Kind::Constant || s.kind == Statement::Kind::Store || s.kind == Statement::Kind::Index;
    if (!plain || s.guard != Statement::kNone || s.count > 1) return {};
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != Statement::kNone) last[o] = i;
    work[i + 1] = work[i] + instructions_of(nest, i);
  }
  const std::uint32_t all = work.back(), count = (registers * all + kQuicklyFetched / 2 - 1) / (kQuicklyFetched / 2);
  if (registers * all <= kQuicklyFetched) return {};
  for (std::uint32_t i = 0; i < nest.body.size(); ++i)
    if (passes_on(nest, i))
      for (std::uint32_t at = i + 1; at <= last[i]; ++at) ++across[at];
  std::vector<std::uint32_t> parts;
  for (std::uint32_t k = 1; k < count; ++k) {
    std::uint32_t best = 0;
    for (std::uint32_t at = 1; at < nest.body.size(); ++at) {
      const bool near = 4 * count * work[at] >= (4 * k - 1) * all && 4 * count * work[at] <= (4 * k + 1) * all;
      if (near && (best == 0 || across[at] < across[best])) best = at;
    }
    if (best == 0 || across[best] > most_values) return {};
    parts.push_back(best);
  }
  return parts;
}

// Sets the chunks of a split reduction of `rows` rows (or tiles) with `counted` reduced elements each.
void share_rows(const Nest& nest, std::int64_t rows, std::int64_t counted, const ScheduleOptions& options, ScheduleNumbers& n) {
  constexpr std::int64_t most_partial = std::int64_t{64} << 20;  // limit of the bytes of partial results that short tasks justify
  const std::int64_t block = nest.kind == NestKind::Lanes ? ir::kLaneBlock : ir::kRowBlock, blocks = (counted + block - 1) / block;
  std::int64_t reductions = 0;
  bool reduces_last = false;
  for (const Statement& s : nest.body) {
    reductions += s.kind == Statement::Kind::Reduce;
    reduces_last |= s.kind == Statement::Kind::Reduce && s.stage == nest.sweeps;
  }
  const std::int64_t partial = reductions * (nest.kind == NestKind::Rows ? round_up(n.tile, 64) + 64 : 1) * kPartialBytes;
  std::int64_t wanted = (kChunksPerThread * std::max(1, options.threads) + rows - 1) / rows;
  if (options.item_work > 0) wanted = std::max(wanted, std::min(n.work / rows / options.item_work, most_partial / partial / rows));
  n.chunk = block * static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(blocks / wanted, 1))));
  n.chunks = (counted + n.chunk - 1) / n.chunk;
  n.items = rows * n.chunks;
  n.phases = nest.sweeps + reduces_last;
  n.combines_last = reduces_last;
  n.shared_bytes = round_up(n.items * partial, 64) + 64 * reductions;  // the partial results of each reduction are aligned to 64 bytes
}

// True if the vector loop loads values that are invariant in the last outer loop. Unroll-and-jammed iterations of that loop share these
// loads.
bool shares_loads(const Nest& nest) {
  const std::uint64_t vector = std::uint64_t{1} << nest.vector_loop(), outer = std::uint64_t{1} << (nest.outer - 1u);
  bool shared = false, varies = false;
  for (const Statement& s : nest.body) {
    if (s.kind != Statement::Kind::Load) continue;
    varies |= (s.loops & outer) != 0;
    shared |= (s.loops & vector) && !(s.loops & outer);
  }
  return shared && varies;
}
// Returns the unroll-and-jam factor of the last outer loop: as many iterations as the registers allow for accumulators.
int count_abreast(const Nest& nest, const NestNumbers& numbers, const Target& target, std::int64_t outer, std::int64_t threads) {
  constexpr int kStatements = 16;  // limit for a body dominated by its sums
  const auto count = [&](Statement::Kind kind) {
    return std::count_if(nest.body.begin(), nest.body.end(), [&](const Statement& s) { return s.kind == kind; });
  };
  if (nest.kind == NestKind::Map || nest.outer == 0 || nest.sweeps != 1 || nest.has_columns() || count(Statement::Kind::Reduce) != 1 ||
      nest.body.size() > kStatements || !shares_loads(nest))
    return 1;
  bool sums = true, contracts = false;
  for (const Statement& s : nest.body) {
    if (s.kind == Statement::Kind::Store && nest.kind == NestKind::Lanes && (s.loops & nest.reduced_mask()))
      return 1;  // these stores dominate
    if (s.kind == Statement::Kind::Place || (s.kind == Statement::Kind::Op && ir::info(s.op).kind == ir::OpKind::Expanded)) return 1;
    if (s.kind != Statement::Kind::Reduce) continue;
    contracts = ir::is_contraction(s.op);
    sums = contracts || s.op == ir::Op::ReduceSum;
  }
  const bool many_registers = target.vector_bytes >= 64;
  if (nest.kind == NestKind::Lanes && !(many_registers && sums)) return 1;
  const int n = nest.kind == NestKind::Rows && contracts && many_registers ? 8 : 4;
  return numbers.extents[nest.outer - 1u] >= n && outer / n >= 2 * threads ? n : 1;
}

// Returns how many iterations of the second-last outer loop form a task. Each iteration reads the operand of the unroll-and-jammed loop
// again. The operand's own elements must stay in the second-level cache. The shared operand then comes from the first-level cache instead
// of from farther away.
std::int64_t count_rows(const Nest& nest, const NestNumbers& numbers, const Target& target, std::int64_t items, std::int64_t threads) {
  constexpr std::int64_t kItemsPerThread = 8;
  if (nest.kind != NestKind::Lanes || nest.outer < 2) return 1;
  const std::uint64_t vector = std::uint64_t{1} << nest.vector_loop(), outer = std::uint64_t{1} << (nest.outer - 1u), before = outer >> 1;
  bool again = false;
  std::int64_t bytes = 1;  // per iteration of the second-last outer loop
  for (const Statement& s : nest.body) {
    if (s.kind != Statement::Kind::Load || !(s.loops & vector)) continue;
    again |= (s.loops & outer) && !(s.loops & before);
    if (s.loops & before)
      bytes += numbers.extents[nest.vector_loop()] * static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[s.at].buffer].dtype));
  }
  if (!again) return 1;
  const std::int64_t most = std::min(numbers.extents[nest.outer - 2u], items / (kItemsPerThread * threads));
  return std::max<std::int64_t>(1, std::min(target.l2_bytes / 4 / bytes, most));
}

// True if the access depends on a checked index.
bool at_a_place(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  for (std::size_t q = 0; q < nest.derived.size(); ++q)
    if (nest.derived[q].place != Derived::kNone && numbers.coefficients[nest.accesses[access].linear][nest.loops() + q] != 0) return true;
  return false;
}
// Returns the iterations of the loops that the access depends on.
std::int64_t count_iterations(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  std::uint64_t loops = 0;
  for (const Statement& s : nest.body)
    if ((s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Store) && s.at == access) loops |= s.loops;
  std::int64_t n = 1;
  for (std::uint32_t l = 0; l < nest.loops(); ++l)
    if (loops >> l & 1) n *= numbers.extents[l];
  return n;
}
// True if a data-dependent load reads one element of a row that another access reads anyway. It then hits the caches.
bool reads_within_row(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  if (nest.kind != NestKind::Lanes || nest.serial > 0 || nest.buffers[nest.accesses[access].buffer].written ||
      !at_a_place(nest, numbers, access))
    return false;
  const std::vector<std::int64_t>& mine = numbers.coefficients[nest.accesses[access].linear];
  const std::size_t v = nest.vector_loop();
  const auto along = [&](const std::vector<std::int64_t>& c) {  // stride within the row, by the loop or by the checked index
    std::int64_t sum = 0;
    for (std::size_t k = v; k < c.size(); ++k) sum += c[k];
    return sum;
  };
  for (std::uint32_t other = 0; other < nest.accesses.size(); ++other) {
    const std::vector<std::int64_t>& theirs = numbers.coefficients[nest.accesses[other].linear];
    if (nest.accesses[other].buffer == nest.accesses[access].buffer && theirs[v] != 0 && along(theirs) == theirs[v] && mine[v] == 0 &&
        along(mine) == theirs[v] && std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(v), theirs.begin()))
      return true;
  }
  return false;
}

// Returns the rows that are the lanes of a vector if that takes fewer instructions than the elements of a row as lanes; else 0. Only rows of
// a known small number of elements profit: a vector is then mostly empty, and its lanes are added up again and again.
int rows_in_lanes(const Nest& nest, const NestNumbers& numbers, const Target& target, const Schedule& s, int element) {
  constexpr std::int64_t kFewestVectors = 4;
  const std::uint32_t v = nest.vector_loop(), last = nest.outer - 1u;
  const std::int64_t n = numbers.extents[v], lanes = target.vector_bytes / element;
  if (!loops::is_along_rows(nest) || nest.outer == 0 || !s.one_block || n < 2 || n > kMostInLanes || lanes < 4 ||
      numbers.extents[last] < kFewestVectors * lanes)
    return 0;
  // Checked indices must be the same for a whole row.
  for (const Derived& d : nest.derived)
    if (d.place == Derived::kNone || (nest.body[d.place].loops >> v & 1) != 0) return 0;
  // instructions for `lanes` rows: by element of a row, and by row
  const std::int64_t side = std::min<std::int64_t>(lanes, 16), squares = (n + side - 1) / side;
  const std::int64_t vectors = (n * element + target.vector_bytes - 1) / target.vector_bytes;
  const std::int64_t across = std::bit_width(static_cast<std::uint64_t>(s.width));
  std::int64_t by_element = 0, by_row = 0;
  for (const Statement& b : nest.body) {
    const bool along = (b.loops >> v & 1) != 0;
    switch (b.kind) {
      case Statement::Kind::Load:
      case Statement::Kind::Store: {
        const Access& access = nest.accesses[b.at];
        const std::vector<Coefficient>& of = nest.linears[access.linear].of;
        if (access.table != Access::kNone || b.guard != Statement::kNone || b.op == ir::Op::Add || b.count > 1) return 0;
        const bool is_gathered = std::any_of(of.begin() + nest.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
        if (is_gathered && along) return 0;
        const bool is_direct = !is_gathered && (of[last] == Coefficient::One || of[last] == Coefficient::Zero);
        if (!along) by_element += is_direct ? 1 : 2 * lanes, by_row += lanes;
        else if (is_direct) by_element += n, by_row += lanes * (of[v] == Coefficient::One ? vectors : 2 * n);
        else if (of[v] == Coefficient::One)  // loads, shuffles, of which one runs at a time, and a buffer
          by_element += squares * lanes * (4 + 3 * std::bit_width(static_cast<std::uint64_t>(side))) / 2 + 2 * n,
              by_row += lanes * 2 * vectors;
        else by_element += 2 * lanes * n, by_row += lanes * 2 * n;
        break;
      }
      case Statement::Kind::Op: {
        const std::int64_t cost = instructions_of(b.op);
        by_element += along ? n * cost : cost, by_row += lanes * (along ? vectors * cost : cost);
        break;
      }
      case Statement::Kind::Reduce:  // halving waits for each step
        by_element += 3 * n, by_row += lanes * (2 * vectors + 4 * across);
        break;
      case Statement::Kind::Place: {
        constexpr std::int64_t kCost = 4;
        if (b.guard != Statement::kNone) return 0;
        by_element += kCost, by_row += lanes * kCost;
        break;
      }
      case Statement::Kind::Constant:
      case Statement::Kind::Slot:
      case Statement::Kind::Index: break;
      default: return 0;
    }
  }
  return by_element < by_row ? static_cast<int>(lanes) : 0;
}

// True if the access stores one element per reduced element.
bool stores_along(const Nest& nest, std::uint32_t access) {
  return std::ranges::any_of(nest.body, [&](const Statement& s) {
    return s.kind == Statement::Kind::Store && s.at == access && (s.loops & nest.reduced_mask()) && (s.loops >> nest.vector_loop() & 1);
  });
}

// Returns the columns per task of an outer-axis reduction. Values that several sweeps read stay in the second-level cache between sweeps if
// the columns can be few enough. The first-level cache holds accumulators, groups of eight rows that are computed before they are added,
// and values that each row reads again.
std::int64_t columns_of_item(const Nest& nest, const NestNumbers& numbers, const Target& target) {
  constexpr std::int64_t fewest = 256;
  std::int64_t rows = 1, read = 0, again = 0;
  for (std::uint32_t l = nest.outer; l < nest.vector_loop(); ++l) rows *= numbers.extents[l];
  for (const Statement& s : nest.body) {
    const auto size = static_cast<std::int64_t>(size_of(s.dtype));
    if (s.kind == Statement::Kind::Load && (s.loops >> nest.vector_loop() & 1)) (s.loops & nest.reduced_mask() ? read : again) += size;
    if (s.kind == Statement::Kind::Reduce)
      again += ScratchLayout::sums(s) && cost_in_row(nest, s.a) > kQuickRow ? size * (1 + ir::kRowGroup) : size;
  }
  std::int64_t columns = std::min(kRowTile, std::max(target.l1_bytes / 2 / std::max<std::int64_t>(again, 1) / 64 * 64, fewest));
  if (nest.sweeps > 1 && read > 0)
    if (const std::int64_t fit = target.l2_bytes / 2 / read / rows / 64 * 64; fit >= fewest) columns = std::min(columns, fit);
  return columns;
}

// True if the access is the first of several adjacent stores of one iteration.
bool starts_phases(const Nest& nest, std::uint32_t access) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [&](const Statement& s) { return s.kind == Statement::Kind::Store && s.at == access && s.count > 1; });
}

}  // namespace

std::vector<std::vector<bool>> needed_by_sweep(const Nest& nest, const std::vector<std::uint32_t>& kept, bool finds) {
  const std::uint64_t inner = nest.reduced_mask();
  std::vector<std::vector<bool>> needed(nest.sweeps, std::vector<bool>(nest.body.size(), false));
  std::vector<bool> done(nest.body.size(), false);  // cached values that an earlier sweep has computed
  for (std::uint8_t sweep = 0; sweep < nest.sweeps; ++sweep) {
    std::vector<bool>& need = needed[sweep];
    for (std::size_t i = 0; i < nest.body.size(); ++i) {
      const Statement& s = nest.body[i];
      if (const std::optional<IndexSearch> search = finds ? index_search(nest, static_cast<std::uint32_t>(i)) : std::nullopt) {
        if (nest.body[search->extreme].stage == sweep + 1) need[search->value] = need[search->index] = true;
      } else if (s.kind == Statement::Kind::Reduce && s.stage == sweep + 1) {
        need[s.a] = true;
        if (s.b != Statement::kNone) need[s.b] = true;
      }
      if (s.kind == Statement::Kind::Store && s.stage == sweep && (inner == 0 || (s.loops & inner))) need[i] = true;
    }
    for (std::size_t i = nest.body.size(); i-- > 0;) {
      const Statement& s = nest.body[i];
      if (!need[i] || s.kind == Statement::Kind::Reduce) continue;
      if (done[i]) continue;  // read back, not computed
      for (std::uint32_t o : {s.a, s.b, s.c, s.guard})
        if (o != Statement::kNone && nest.body[o].kind != Statement::Kind::Reduce) need[o] = true;
    }
    for (std::uint32_t k : kept)
      if (need[k]) done[k] = true;
  }
  return needed;
}

SpreadSlots::SpreadSlots(const Nest& nest, const Schedule& schedule) : any(nest.slots.size() > kFew) {
  if (!any) return;
  element = size_of(nest.slots[0]);
  each = static_cast<std::uint32_t>(static_cast<std::size_t>(quick_form(schedule).width) * element);
  bytes = static_cast<std::uint32_t>(round_up(static_cast<std::int64_t>(nest.slots.size()) * each, 64));
}

RowPatterns::RowPatterns(const Nest& nest, const Schedule& schedule) : at(nest.body.size(), kNone) {
  if (!nest.short_rows) return;
  const std::int64_t length = kShortRow + 2 * schedule.width;  // written in whole vectors

  const auto take = [&](std::int64_t n) {
    const std::uint32_t place = bytes;
    bytes += static_cast<std::uint32_t>(round_up(n, 64));
    return place;
  };
  places = take(4 * length);
  rows = take(4 * length);
  // True if an affine map varies only with the column.
  const auto follows_place = [&](std::uint32_t linear) {
    const std::vector<Coefficient>& of = nest.linears[linear].of;
    bool follows = of[0] == Coefficient::Zero;
    for (std::size_t q = 0; q < nest.derived.size(); ++q) follows = follows && (nest.derived[q].modulo || of[1 + q] == Coefficient::Zero);
    return follows;
  };
  std::vector<bool> repeats(nest.body.size(), true);  // by statement: it is the same in every row
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    bool same = true;
    if (s.kind == Statement::Kind::Load) same = follows_place(nest.accesses[s.at].linear);
    if (s.kind == Statement::Kind::Index) same = follows_place(s.at);
    if (s.kind == Statement::Kind::Guard)
      for (std::uint32_t c = s.at; c < s.at + s.count; ++c) same = same && follows_place(nest.checks[c].linear);
    if (s.kind == Statement::Kind::Store) same = false;
    for (std::uint32_t o : {s.a, s.b, s.c, s.guard}) same = same && (o == Statement::kNone || repeats[o]);
    repeats[i] = same;
    if (same) continue;
    for (std::uint32_t o : {s.a, s.b, s.c, s.guard})
      if (o != Statement::kNone && repeats[o] && nest.body[o].loops != 0 && at[o] == kNone)
        at[o] = take(length * static_cast<std::int64_t>(size_of(nest.body[o].dtype)));
  }
}

PassedOn::PassedOn(const Nest& nest, const Schedule& schedule) : at(nest.body.size(), kNone) {
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const auto part = [&](std::uint32_t id) { return std::upper_bound(schedule.parts.begin(), schedule.parts.end(), id); };
    for (const std::uint32_t o : {s.a, s.b, s.c}) {
      if (o == Statement::kNone || at[o] != kNone || part(o) == part(i) || !passes_on(nest, o)) continue;
      at[o] = bytes;
      bytes +=
          static_cast<std::uint32_t>(round_up((kPartBlock + schedule.width) * static_cast<std::int64_t>(size_of(nest.body[o].dtype)), 64));
    }
  }
}

ScratchLayout::ScratchLayout(const Nest& nest, const Schedule& schedule)
    : spread(nest, schedule), patterns(nest, schedule), passed_on(nest, schedule) {
  const auto slot = [&](DType dtype, std::uint32_t rows) {
    const std::uint32_t at = total;
    total += static_cast<std::uint32_t>(size_of(dtype)) * rows;
    return at;
  };
  for (std::uint32_t k : schedule.kept) kept.push_back(slot(nest.body[k].dtype, 1));
  values.assign(nest.body.size(), kNone);
  temporaries.assign(nest.body.size(), kNone);
  stacks.assign(nest.body.size(), kNone);
  const auto add_rows = [&](std::uint32_t i) {
    values[i] = slot(nest.body[i].dtype, 1);
    if (sums(nest.body[i])) temporaries[i] = slot(nest.body[i].dtype, nest.kind == NestKind::Rows ? ir::kRowGroup : kColumnLevels);
  };
  for (std::uint32_t i = 0; nest.kind == NestKind::Lanes && i < nest.body.size(); ++i)
    if (nest.body[i].kind == Statement::Kind::Reduce && nest.body[i].count) add_rows(i);
  if (nest.kind != NestKind::Rows) return;
  const std::uint64_t inner = nest.reduced_mask();
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    if (s.kind == Statement::Kind::Scan) temporaries[i] = slot(s.dtype, schedule.one_block ? 1 : 2);  // carry, base
    if (s.kind == Statement::Kind::Reduce) {
      add_rows(i);
      if ((sums(s) || ir::is_contraction(s.op)) && !schedule.one_block) stacks[i] = slot(s.dtype, kTreeLevels);
    }
    if (s.loops & inner)  // row values that the sweeps read
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != Statement::kNone && nest.body[o].kind == Statement::Kind::Op && nest.body[o].stage > 0 && !(nest.body[o].loops & inner) &&
            values[o] == kNone)
          values[o] = slot(nest.body[o].dtype, 1);
  }
}

std::int64_t ScratchLayout::unit(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule) {
  std::int64_t n = nest.kind == NestKind::Lanes ? numbers.extents[nest.vector_loop()] : schedule.tile;
  for (std::uint32_t l = nest.outer; nest.has_columns() && l < nest.vector_loop(); ++l) n *= numbers.extents[l];
  return round_up(n, 64) + 64;
}

std::int64_t ScratchLayout::bytes(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, const ScheduleNumbers& n) {
  if (schedule.tile.rows > 0) return loops::scratch_bytes(nest, numbers, schedule.tile, n);
  if (schedule.reduced_inside) return SpreadSlots(nest, schedule).bytes + loops::scratch_bytes_inside(nest, schedule, numbers);
  if (loops::is_along_rows(nest))
    return SpreadSlots(nest, schedule).bytes + loops::scratch_bytes_along_rows(nest, schedule, numbers, n.chunk);
  const ScratchLayout layout(nest, schedule);
  return layout.spread.bytes + layout.patterns.bytes + layout.passed_on.bytes + unit(nest, numbers, n) * layout.total * schedule.abreast +
         packed_bytes(nest, schedule, n);
}

std::int64_t ScratchLayout::packed_bytes(const Nest& nest, const Schedule& schedule, const ScheduleNumbers& numbers) {
  std::int64_t bytes = 0;
  for (const Statement& s : nest.body)
    if (s.kind == Statement::Kind::Load && std::ranges::find(schedule.packed, s.at) != schedule.packed.end())
      bytes += round_up(
          round_up(numbers.tile, packed_row(nest, schedule, s.at)) * numbers.tile_outer * static_cast<std::int64_t>(size_of(s.dtype)), 64);
  return bytes;
}

std::int64_t ScratchLayout::packed_side(const Nest& nest, const Schedule& schedule, std::uint32_t access) {
  const auto size = static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[access].buffer].dtype));
  return std::clamp<std::int64_t>(schedule.vector_bytes / size, 2, 16);
}

std::int64_t ScratchLayout::packed_row(const Nest& nest, const Schedule& schedule, std::uint32_t access) {
  return std::max<std::int64_t>(packed_side(nest, schedule, access), schedule.width);
}

std::int64_t scan_slot_bytes(const Nest& nest) {
  const auto scans = std::count_if(nest.body.begin(), nest.body.end(), [](const Statement& s) { return s.kind == Statement::Kind::Scan; });
  return round_up(8 + 8 * scans * (1 + kScanChunk / ir::kScanBlock), 64);  // the block sums follow the bases
}

namespace {
// True if no scan depends on another scan. Block sums are computed before the bases are known.
bool scans_apart(const Nest& nest) {
  std::vector<bool> needs(nest.body.size(), false);
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
      if (o != Statement::kNone && (needs[o] || nest.body[o].kind == Statement::Kind::Scan)) needs[i] = true;
    if (s.kind == Statement::Kind::Scan && needs[i]) return false;
  }
  return true;
}

// Returns the bytes read to compute the indices of the additions. `elements` is by access.
std::int64_t bytes_of_places(const Nest& nest, const std::vector<std::int64_t>& elements) {
  std::vector<bool> needed(nest.body.size(), false);
  needed[nest.addition()->b] = true;
  std::int64_t bytes = 0;
  for (std::size_t i = nest.body.size(); i-- > 0;) {
    const Statement& s = nest.body[i];
    if (!needed[i]) continue;
    for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
      if (o != Statement::kNone) needed[o] = true;
    if (s.kind == Statement::Kind::Load)
      bytes += elements[s.at] * static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[s.at].buffer].dtype));
  }
  return bytes;
}

// Partitions the destinations among threads that cannot share the other axes. Each thread reads all indices and adds only within its range.
// Reading an index takes about as long as an addition in the second-level cache. Threads with ranges in one cache line would wait for each
// other.
bool share_places(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options, Scheduled& out) {
  constexpr std::int64_t least_bytes = 4096;
  ScheduleNumbers& n = out.numbers;
  const Statement& addition = *nest.addition();
  const Statement& place = nest.body[addition.b];
  const std::uint32_t v = nest.vector_loop();
  if (options.threads <= 1 || n.work < options.split_work || nest.serial != 1 || place.kind != Statement::Kind::Place ||
      (place.loops >> v & 1))
    return false;
  const Access& access = nest.accesses[addition.at];
  std::int64_t step = 1;  // elements from one index to the next
  for (std::size_t q = 0; q < nest.derived.size(); ++q)
    if (nest.derived[q].place == addition.b) step = std::max(step, std::abs(numbers.coefficients[access.linear][nest.loops() + q]));
  const auto size = static_cast<std::int64_t>(size_of(nest.buffers[access.buffer].dtype));
  const std::int64_t places = numbers.bounds[place.at], wanted = (options.threads + n.items - 1) / n.items;  // 2 or more
  const std::int64_t each = round_up(std::max((places - 1) / wanted + 1, least_bytes / size / step), 64);
  if (each >= places || (numbers.extents[v] == 1 && places <= target.l2_bytes / size / step)) return false;
  out.schedule.by_place = true;
  n.chunk = each;
  n.chunks = (places - 1) / each + 1;
  n.items *= n.chunks;
  return true;
}

// Returns the long operators that the body has several times. A function compiles once; vectors pass through registers in a call, so that
// code in place is only a few percent faster with 32 registers.
std::vector<std::pair<ir::Op, DType>> called_operators(const Nest& nest, const Rolled& rolled) {
  constexpr std::size_t kLeastSaved = 100;  // instructions
  std::map<std::pair<ir::Op, DType>, std::size_t> counts;
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const bool is_again = rolled.count > 0 && rolled.holds(i) && i >= rolled.begin + rolled.period;  // a later iteration of the loop
    if (s.kind == Statement::Kind::Op && !is_again && ir::info(s.op).kind == ir::OpKind::Expanded) ++counts[{s.op, s.dtype}];
  }
  std::vector<std::pair<ir::Op, DType>> called;
  for (const auto& [op, count] : counts) {
    const std::size_t copies = nest.kind == NestKind::Map ? 2 * count : count;  // the last vector has code of its own
    if (count > 1 && (copies - 1) * ir::expansion(op.first, computed_type(op.second)).size() >= kLeastSaved) called.push_back(op);
  }
  return called;
}

// Returns the number of loads that read elements singly, at least in masked iterations, because no instruction gathers them.
int loads_by_element(const Nest& nest, const Target& target) {
  const auto is_one = [&](const Statement& s) {
    if (s.kind != Statement::Kind::Load) return false;
    const Access& access = nest.accesses[s.at];
    const std::vector<Coefficient>& of = nest.linears[access.linear].of;
    const Coefficient along = of[nest.vector_loop()];
    const bool strided = along == Coefficient::General || along >= Coefficient::Two ||
                         std::any_of(of.begin() + nest.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
    return strided && !(target.has_avx2() && size_of(nest.buffers[access.buffer].dtype) >= 4);
  };
  return static_cast<int>(std::ranges::count_if(nest.body, is_one));
}

}  // namespace

Scheduled schedule(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options) {
  Scheduled out;
  Schedule& s = out.schedule;
  ScheduleNumbers& n = out.numbers;
  const std::uint32_t v = nest.vector_loop();
  const int element = element_bytes(nest);
  s.vector_bytes = target.vector_bytes;
  const int registers = nest.kind == NestKind::Map ? interleave(nest, target) : 2;
  s.width = registers * target.vector_bytes / element;
  bool doubles = false;
  for (const Statement& b : nest.body) doubles |= b.kind == Statement::Kind::Reduce && b.dtype == DType::F64;
  if (nest.kind == NestKind::Lanes) s.width = std::min(s.width, doubles ? 32 : 64);
  const bool contracts = std::any_of(nest.body.begin(), nest.body.end(), [](const Statement& b) { return ir::is_contraction(b.op); });
  std::int64_t outer = 1, reduced = 1, all = 1;
  for (std::uint32_t l = 0; l < nest.loops(); ++l) {
    all *= numbers.extents[l];
    if (l < nest.outer) outer *= numbers.extents[l];
    if (nest.reduced_mask() >> l & 1) reduced *= numbers.extents[l];
  }
  const bool inside = loops::can_reduce_inside(nest, numbers);
  s.abreast = inside ? 1 : count_abreast(nest, numbers, target, outer, std::max(1, options.threads));
  // Eight registers of accumulators hide the latency of fma chains, if the row is long enough.
  const bool across =
      std::ranges::any_of(nest.accesses, [&](const Access& a) {  // each element is in another cache line, which is reused at once
        return !nest.buffers[a.buffer].written && nest.linears[a.linear].of[v] == Coefficient::General;
      });
  if (nest.kind == NestKind::Rows && contracts && s.abreast == 1 && !across && numbers.extents[v] >= 4 * s.width) s.width *= 4;
  s.width = std::min(s.width, nest.kind == NestKind::Map && element >= 4 ? 256 : 128);
  // Loads without a gather instruction need code for each element. Such code compiles slowly, and wider vectors do not make it faster.
  constexpr int kElementLoads = 256, kLeastWidth = 16;
  if (nest.kind == NestKind::Map)
    for (const int loads = loads_by_element(nest, target); s.width > kLeastWidth && loads * s.width > kElementLoads;) s.width /= 2;
  // kernel-variant flag: rows of up to 32 bytes are one vector
  if (nest.kind == NestKind::Rows && numbers.extents[v] * element <= 32) s.width = 32 / element;
  const bool scans = nest.has(Statement::Kind::Scan);
  if (scans && nest.kind == NestKind::Map) {
    s.grouped = true;
    s.width = ir::kScanGroup;
  }

  std::int64_t counted = reduced;  // including padding
  if (nest.runs) {
    std::int64_t runs = 1;
    for (std::uint32_t l = nest.outer; l < nest.outer + nest.runs; ++l) runs *= numbers.extents[l];
    counted = runs * numbers.padded_run;
  }
  if (nest.kind == NestKind::Lanes) s.one_block = counted <= ir::kLaneBlock;
  if (nest.kind == NestKind::Rows) s.one_block = counted <= (scans ? ir::kScanBlock : ir::kRowBlock);

  // ---- packed operand tiles: loads along an outer loop become loads along the vector loop, through a tile in the first-level cache
  if (nest.kind == NestKind::Map && nest.outer > 0 && nest.derived.empty() && !scans)
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
      const Linear& linear = nest.linears[nest.accesses[a].linear];
      if (linear.of[v] != Coefficient::General || linear.of[nest.outer - 1] != Coefficient::One || nest.accesses[a].table != Access::kNone)
        continue;
      bool plain = !nest.buffers[nest.accesses[a].buffer].written;
      for (const Statement& b : nest.body)  // not for loads that depend on other loads, which may themselves be packed
        plain = plain && !(b.kind == Statement::Kind::Load && b.at == a && (b.guard != Statement::kNone || b.a != Statement::kNone));
      if (plain) s.packed.push_back(a);
    }

  if (nest.kind == NestKind::Map && !scans && nest.serial == 0 && !nest.short_rows && s.packed.empty() && nest.phases == 1) {
    const auto at_once = static_cast<std::uint32_t>(s.width * element / target.vector_bytes);
    s.rolled = rolled(nest, at_once);
    if (s.rolled.count == 0) s.parts = parts_of(nest, at_once);
  }
  s.called = called_operators(nest, s.rolled);

  // ---- memory traffic: each element counts once. An access that is invariant in a loop is read once for the loop. Elements that several
  // accesses of an array share (overlapping slices) are in the caches after the first access.
  std::vector<std::int64_t> elements(nest.accesses.size());
  std::vector<bool> done(nest.accesses.size(), false);
  const auto is_held = [&](std::uint32_t access) { return !options.held.empty() && options.held[nest.accesses[access].buffer]; };
  for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
    const auto varies = [&](std::size_t variable) {
      const Access& access = nest.accesses[a];
      return numbers.coefficients[access.linear][variable] != 0 ||
             (access.table != Access::kNone && numbers.coefficients[access.table][variable] != 0);
    };
    elements[a] = 1;
    for (std::uint32_t l = 0; l < nest.loops(); ++l)
      if (varies(l)) elements[a] *= numbers.extents[l];
    for (std::size_t q = 0; q < nest.derived.size(); ++q)
      if (varies(nest.loops() + q))
        elements[a] = !nest.short_rows         ? count_iterations(nest, numbers, a)
                      : nest.derived[q].modulo ? numbers.by[0]
                                               : (all + numbers.by[0] - 1) / numbers.by[0];
    if (at_a_place(nest, numbers, a)) elements[a] = count_iterations(nest, numbers, a);
    done[a] = reads_within_row(nest, numbers, a) || is_held(a);
  }
  for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
    if (done[a]) continue;
    const Access& access = nest.accesses[a];
    const std::vector<std::int64_t>& coefficients = numbers.coefficients[access.linear];
    std::int64_t sum = 0, low = numbers.offsets[access.linear], high = low, span = 1;
    bool derived = false;
    for (std::size_t l = 0; l < coefficients.size(); ++l) {
      if (l < nest.loops()) span += std::abs(coefficients[l]) * (numbers.extents[l] - 1);
      else derived |= coefficients[l] != 0;
    }
    for (std::uint32_t other = a; other < nest.accesses.size(); ++other) {
      if (nest.accesses[other].buffer != access.buffer || numbers.coefficients[nest.accesses[other].linear] != coefficients ||
          nest.accesses[other].table != access.table)
        continue;
      done[other] = true;
      sum += elements[other];
      low = std::min(low, numbers.offsets[nest.accesses[other].linear]);
      high = std::max(high, numbers.offsets[nest.accesses[other].linear]);
    }
    if (!derived && access.table == Access::kNone) sum = std::min(sum, span + high - low);
    (nest.buffers[access.buffer].written ? n.bytes_written : n.bytes_read) +=
        sum * static_cast<std::int64_t>(size_of(nest.buffers[access.buffer].dtype));
  }

  for (const Statement& b : nest.body)  // additions also read their destination
    if (b.kind == Statement::Kind::Store && b.op == ir::Op::Add)
      n.bytes_read += elements[b.at] * static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[b.at].buffer].dtype));

  // ---- non-temporal stores: used if the traffic exceeds the available part of the last-level cache and no load has fetched the line
  // before. runtime/target.cpp has the measurements that justify the fraction.
  if (options.aligned_stores && n.bytes_read + n.bytes_written + options.bytes_beside > target.llc_bytes / 8 * target.llc_eighths &&
      nest.addition() == nullptr) {
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
      const Access& access = nest.accesses[a];
      if (nest.kind == NestKind::Rows && !scans && !stores_along(nest, a)) continue;
      if (!nest.buffers[access.buffer].written || (!options.in_place.empty() && options.in_place[access.buffer]) || is_held(a)) continue;
      const auto size = static_cast<std::int64_t>(size_of(nest.buffers[access.buffer].dtype));
      if (nest.linears[access.linear].of[v] == Coefficient::Zero) continue;  // one value per row
      bool fits = (nest.linears[access.linear].of[v] == Coefficient::One || starts_phases(nest, a)) &&
                  numbers.offsets[access.linear] * size % 64 == 0;
      for (std::size_t k = 0; k < numbers.coefficients[access.linear].size(); ++k)
        if (k != v) fits = fits && numbers.coefficients[access.linear][k] * size % 64 == 0;
      if (fits) s.streamed.push_back(a);
    }
  }

  // ---- prefetches: used if the operands do not stay in the second-level cache. Servers have slow last-level caches. Reductions that read
  // their operands once have no prefetches.
  constexpr std::int64_t kCaches = 2;
  const bool has_prefetches = nest.kind == NestKind::Map || nest.sweeps > 1 || scans;
  s.asks_ahead = has_prefetches && n.bytes_read + n.bytes_written + options.bytes_beside > kCaches * target.l2_bytes;

  // ---- cost: elements times statements
  std::int64_t cost = 1;
  for (const Statement& b : nest.body)
    if (b.kind != Statement::Kind::Constant && b.kind != Statement::Kind::Slot)
      cost += b.kind == Statement::Kind::Op && ir::info(b.op).kind == ir::OpKind::Expanded ? 16 : 1;
  double work = static_cast<double>(cost);
  for (std::uint32_t l = 0; l < nest.loops(); ++l) work *= static_cast<double>(numbers.extents[l]);
  n.work = static_cast<std::int64_t>(std::min(work, kMostWork));

  // ---- split reductions: the rows are too few for the threads and have several blocks
  const std::int64_t extent = numbers.extents[v], threads = std::max(1, options.threads);
  const bool columns = nest.has_columns();
  const std::int64_t widest = inside ? kLeastTile : kRowTile, fewest = inside ? 2 * kLeastTile : kWideRows;
  const bool wide = nest.kind == NestKind::Rows && extent >= fewest * threads;  // threads share its columns
  // or a task would take too long
  const std::int64_t tiles = nest.kind == NestKind::Rows ? (extent + widest - 1) / widest : 1;
  const bool long_rows = options.item_work > 0 && n.work / std::max<std::int64_t>(outer * tiles, 1) > options.item_work;
  const bool few_rows = threads > 1 && outer < 4 * threads && !wide && n.work >= options.split_work;
  if (RegisterTile tile; contracts && loops::choose_tile(nest, numbers, target, options, tile, n)) {
    if (s.one_block || !few_rows || n.items >= threads) {
      s.tile = tile;
      s.abreast = 1;
      n.scratch_bytes = ScratchLayout::bytes(nest, s, numbers, n);
      return out;
    }
    n.tile_outer = 1, n.phases = 1, n.shared_bytes = 0;
  }
  if (nest.has(Statement::Kind::Reduce) && !columns && !s.one_block && (few_rows || long_rows)) {
    s.split = true;
    s.abreast = 1;
    n.tile = nest.kind == NestKind::Rows ? std::min(round_up(extent, 64), columns_of_item(nest, numbers, target)) : extent;
    share_rows(nest, nest.kind == NestKind::Rows ? outer * ((extent + n.tile - 1) / n.tile) : outer, counted, options, n);
  }

  // ---- fused columns: a task is a block of rows, later a part of the columns
  if (columns) {
    n.chunk = ir::kRowBlock;
    n.chunks = n.items = (outer + n.chunk - 1) / n.chunk;
    n.tile = round_up((extent + n.items - 1) / n.items, 64);
    const auto count =
        std::count_if(nest.body.begin(), nest.body.end(), [](const Statement& b) { return b.kind == Statement::Kind::Reduce; });
    n.phases = 2;
    n.combines_last = reduced * n.chunks * count < ScheduleOptions::kThreadedWork;
    n.shared_bytes = round_up(n.items * count * ScratchLayout::unit(nest, numbers, n) * kPartialBytes, 64);
  }
  // ---- chunks of a scan
  const bool few_scans = threads > 1 && outer < 4 * threads && n.work >= options.split_work;
  if (s.grouped && extent >= 4 * kScanChunk && (few_scans || long_rows) && scans_apart(nest)) {
    s.split = n.claimed = true;
    n.tile = kScanChunk;
    n.phases = 2;
    n.items = outer * ((extent + n.tile - 1) / n.tile);
    n.shared_bytes = (n.items + 1) * scan_slot_bytes(nest);
  }

  // ---- indices of extremes
  if (!s.split && nest.sweeps > 1 && (inside || loops::is_along_rows(nest)) && reduced <= std::numeric_limits<std::int32_t>::max())
    for (std::uint32_t i = 0; i < nest.body.size(); ++i) s.finds |= index_search(nest, i).has_value();

  // ---- row buffers between sweeps
  if (!s.split && nest.kind == NestKind::Lanes && nest.sweeps > 1 && nest.serial == 0) {
    std::vector<std::uint32_t> kept;
    std::int64_t bytes = 0;
    // later statements come first: caching them may make their operands unnecessary
    for (std::uint32_t i = static_cast<std::uint32_t>(nest.body.size()); i-- > 0;) {
      if (nest.body[i].kind != Statement::Kind::Op || nest.body[i].stage >= nest.sweeps || !(nest.body[i].loops & nest.reduced_mask()))
        continue;
      const auto needed = needed_by_sweep(nest, kept, s.finds);
      const auto times = std::count_if(needed.begin(), needed.end(), [&](const auto& need) { return need[i]; });
      if (times < 2 || cost_in_row(nest, i) < kWorthKeeping) continue;
      kept.push_back(i);
      bytes += static_cast<std::int64_t>(size_of(nest.body[i].dtype));
    }
    std::sort(kept.begin(), kept.end());
    if (!kept.empty() && (numbers.extents[v] + 128) * bytes <= target.l2_bytes / 2) {
      s.row_scratch = true;
      s.kept = kept;
    }
  }

  // ---- tile sizes and tasks
  const bool adds = nest.addition() != nullptr;
  if (inside && !s.split) {
    s.reduced_inside = true;
    s.width = loops::width_inside(nest, target, extent);
  }
  if (!s.split && s.abreast == 1)
    s.row_lanes = rows_in_lanes(nest, numbers, target, s, s.finds ? element_bytes_with_indices(nest) : element);
  const int at_once = std::max(s.abreast, s.row_lanes);
  n.tile_outer = at_once;
  const std::int64_t last = nest.outer ? numbers.extents[nest.outer - 1u] : 1;
  const std::int64_t together = at_once == 1 ? outer : outer / last * ((last + at_once - 1) / at_once);
  if (!s.split && !columns) switch (nest.kind) {
      case NestKind::Lanes:
        n.tile = extent;
        n.items = together;
        if (s.abreast > 1) n.tile_rows = count_rows(nest, numbers, target, together, threads);
        if (n.tile_rows > 1) {
          const std::int64_t rows = numbers.extents[nest.outer - 2u];
          n.items = together / rows * ((rows + n.tile_rows - 1) / n.tile_rows);
        }
        break;
      case NestKind::Rows: {
        const bool once = scans || adds;  // reads memory once: longer tiles are better
        const std::int64_t shares = once ? threads : 2 * threads;
        std::int64_t wanted = together >= shares ? 1 : (shares + together - 1) / together;
        if (options.item_work > 0 && together > 0) wanted = std::max(wanted, n.work / together / options.item_work);
        const std::int64_t most = once ? kRowTile : columns_of_item(nest, numbers, target);
        const auto in_tiles = [&](std::int64_t least) {
          const std::int64_t parts = std::max(wanted, (extent + most - 1) / most);  // equal parts
          n.tile = std::clamp<std::int64_t>(round_up((extent + parts - 1) / parts, least), least, std::max(most, least));
          n.items = together * ((extent + n.tile - 1) / n.tile);
        };
        in_tiles(adds ? kLongUpdate : kLeastTile);
        if (!adds || n.items >= threads || share_places(nest, numbers, target, options, out)) break;
        in_tiles(s.width);
        break;
      }
      case NestKind::Map:
        if (!s.packed.empty()) {
          std::int64_t narrowest = 8;
          for (const std::uint32_t a : s.packed)
            narrowest = std::min(narrowest, static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[a].buffer].dtype)));
          n.tile = n.tile_outer = std::clamp(kPackedBytes / narrowest, kPackedTile, kMostPacked);
          const std::int64_t u = numbers.extents[nest.outer - 1u];
          n.items = outer / u * ((u + n.tile_outer - 1) / n.tile_outer) * ((extent + n.tile - 1) / n.tile);
        } else {
          n.tile = scans || threads == 1 || outer >= 8 * threads ? std::max<std::int64_t>(extent, 1)
                                                                 : std::max<std::int64_t>(kChunk, round_up(extent / (64 * threads), 64));
          if (options.item_work > 0 && !scans) n.tile = std::min(n.tile, std::max(kChunk, options.item_work / cost / 64 * 64));
          if (options.strip > 0 && nest.outer == 0 && !scans) n.tile = options.strip;
          n.items = outer * ((extent + n.tile - 1) / n.tile);
        }
        break;
    }
  // ---- traffic of later sweeps: if the reduced elements of a task exceed its core's cache
  if (nest.sweeps > 1) {
    const auto needed = needed_by_sweep(nest, s.kept, s.finds);
    const std::int64_t rows = nest.kind == NestKind::Rows ? std::max<std::int64_t>(extent, 1) : 1;  // columns that tiles share
    std::int64_t of_item = 0, again = 0;
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
      const auto size = static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[a].buffer].dtype));
      std::int64_t sweeps = 0;
      for (std::uint32_t i = 0; i < nest.body.size(); ++i)
        if (const Statement& b = nest.body[i]; b.kind == Statement::Kind::Load && b.at == a && b.loops & nest.reduced_mask())
          sweeps = std::max<std::int64_t>(sweeps, std::count_if(needed.begin(), needed.end(), [&](const auto& need) { return need[i]; }));
      if (sweeps == 0 || is_held(a)) continue;
      of_item += elements[a] / std::max<std::int64_t>(outer * rows, 1) * (nest.kind == NestKind::Rows ? n.tile : 1) * size;
      again += (sweeps - 1) * elements[a] * size;
    }
    if (s.split) of_item = of_item * outer / threads;  // one thread reads the same elements in each phase
    if (of_item > target.l2_bytes) n.bytes_read += again;
  }
  if (s.by_place)  // each range reads all indices
    if (const std::int64_t bytes = bytes_of_places(nest, elements); bytes > target.l2_bytes) n.bytes_read += (n.chunks - 1) * bytes;
  n.scratch_bytes = ScratchLayout::bytes(nest, s, numbers, n);
  return out;
}

Schedule quick_form(Schedule s) {
  if (!s.masked && !s.grouped) s.width = std::max(2, std::min(s.width / 2, s.vector_bytes / 4));
  s.masked = true;
  s.streamed.clear();
  s.asks_ahead = false;
  s.parts.clear();
  return s;
}

std::string Schedule::key() const {
  std::string k;
  const auto put = [&k](auto... v) { append_bytes(k, v...); };
  put(vector_bytes, width, masked, grouped, one_block, row_scratch, split, by_place, reduced_inside, finds, asks_ahead, abreast, row_lanes,
      static_cast<std::uint32_t>(streamed.size()));
  put(tile.rows, tile.width, tile.one_block, tile.packs_rows, tile.packs_columns, tile.turned, tile.vector, tile.shared, tile.swapped,
      tile.pitch, tile.asks_ahead);
  for (std::uint32_t a : streamed) put(a);
  put(static_cast<std::uint32_t>(kept.size()));
  for (std::uint32_t v : kept) put(v);
  put(static_cast<std::uint32_t>(packed.size()));
  for (std::uint32_t v : packed) put(v);
  put(static_cast<std::uint32_t>(parts.size()));
  for (std::uint32_t v : parts) put(v);
  put(rolled.begin, rolled.period, rolled.count);
  for (const auto& [op, dtype] : called) put(op, dtype);
  return k;
}

std::string print(const Scheduled& scheduled) {
  const Schedule& s = scheduled.schedule;
  const ScheduleNumbers& n = scheduled.numbers;
  std::string out = fmt::format("schedule: vectors of {} elements in {}-bit registers", s.width, 8 * s.vector_bytes);
  if (!s.streamed.empty()) out += ", non-temporal stores";
  if (s.asks_ahead) out += ", prefetches";
  if (!s.parts.empty()) out += fmt::format(", body fissioned into {} loops", s.parts.size() + 1);
  if (s.rolled.count > 0) out += fmt::format(", {} iterations of {} statements rerolled into a loop", s.rolled.count, s.rolled.period);
  for (const auto& [op, dtype] : s.called) out += fmt::format(", {} of {} called in the generic kernel", ir::info(op).text, name_of(dtype));
  if (s.one_block) out += ", one summation block";
  if (s.tile.rows > 0)
    out += fmt::format(
        ", register tiles of {} by {}{}{}, {} by {} per task", s.tile.rows, s.tile.width, s.tile.packs_rows ? ", rows packed" : "",
        s.tile.packs_columns ? s.tile.turned ? ", columns transposed and packed" : ", columns packed" : "", n.tile_outer, n.tile);
  if (s.tile.asks_ahead) out += ", columns prefetched";
  if (s.tile.shared) out += fmt::format(", columns packed once into {} bytes", n.shared_bytes);
  if (s.reduced_inside) out += ", the reduced loop inside the vector loop";
  if (s.finds) out += ", indices found in the loop of the extreme";
  if (s.abreast > 1) out += fmt::format(", unroll-and-jam by {} rows", s.abreast);
  if (s.row_lanes > 0) out += fmt::format(", {} rows in the lanes of a vector", s.row_lanes);
  if (n.tile_rows > 1) out += fmt::format(" in tiles of {} rows", n.tile_rows);
  if (n.phases > 1 && !s.split && !s.tile.shared)
    out += fmt::format(", {} rows of a column per task, {} bytes of partial results", n.chunk, n.shared_bytes);
  if (s.split)
    out += fmt::format(", split reduction: {} chunks of {} elements per row, {} phases, {} bytes of partial results", n.chunks, n.chunk,
                       n.phases, n.shared_bytes);
  if (s.by_place) out += fmt::format(", destination-partitioned scatter: {} ranges of {} elements", n.chunks, n.chunk);
  if (s.row_scratch) out += fmt::format(", {} values of a row cached in a row buffer", s.kept.size());
  if (!s.packed.empty()) out += fmt::format(", {} accesses through transposed tiles of {} by {}", s.packed.size(), n.tile_outer, n.tile);
  return out + fmt::format("; {} tasks, {} bytes of scratch, reads {} bytes, writes {} bytes\n", n.items, n.scratch_bytes, n.bytes_read,
                           n.bytes_written);
}

// ---------------------------------------------------------------------------------------- kernel parameters

WordLayout::WordLayout(const Nest& nest) {
  variables = static_cast<std::uint32_t>(nest.loops() + nest.derived.size());
  std::uint32_t at = 0;
  const auto take = [&](std::size_t count) {
    const std::uint32_t place = at;
    at += static_cast<std::uint32_t>(count);
    return place;
  };
  extents = take(nest.loops());
  tile = take(1);
  tile_outer = take(1);
  tile_rows = take(1);
  padded_run = take(1);
  chunk = take(1);
  chunks = take(1);
  linears = take(nest.linears.size() * (variables + 1));
  by = take(nest.derived.size());
  bounds = take(nest.checks.size());
  phase = take(1);
  shared = take(1);
  pointers = take(nest.accesses.size());
  flag = take(nest.has(Statement::Kind::Place));
  slots = take(nest.slots.size());
  total = at;
}

std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule) {
  const WordLayout layout(nest);
  std::vector<std::int64_t> words(layout.total, 0);
  std::copy(numbers.extents.begin(), numbers.extents.end(), words.begin() + layout.extents);
  words[layout.tile] = schedule.tile;
  words[layout.tile_outer] = schedule.tile_outer;
  words[layout.tile_rows] = schedule.tile_rows;
  words[layout.padded_run] = numbers.padded_run;
  words[layout.chunk] = schedule.chunk;
  words[layout.chunks] = schedule.chunks;
  for (std::uint32_t l = 0; l < nest.linears.size(); ++l) {
    words[layout.offset_of(l)] = numbers.offsets[l];
    std::copy(numbers.coefficients[l].begin(), numbers.coefficients[l].end(), words.begin() + layout.coefficient_of(l, 0));
  }
  std::copy(numbers.by.begin(), numbers.by.end(), words.begin() + layout.by);
  std::copy(numbers.bounds.begin(), numbers.bounds.end(), words.begin() + layout.bounds);
  return words;
}

std::vector<std::uint32_t> append_tables(const Nest& nest, const NestNumbers& numbers, std::vector<std::int64_t>& words) {
  std::vector<std::uint32_t> begins;
  for (const Access& access : nest.accesses) {
    const std::size_t members = numbers.members[access.buffer].size();
    if (members != 0) words.push_back(static_cast<std::int64_t>(members));
    begins.push_back(members != 0 ? static_cast<std::uint32_t>(words.size()) : kNoTable);
    words.resize(words.size() + members);
  }
  return begins;
}

KnownWords known_words(const Nest& nest, std::span<const std::int64_t> words, const std::vector<bool>& slot_known) {
  const WordLayout layout(nest);
  KnownWords k{std::vector<std::int64_t>(words.begin(), words.begin() + layout.total), std::vector<bool>(layout.total, true)};
  for (std::size_t a = 0; a < nest.accesses.size(); ++a) k.known[layout.pointers + a] = false;
  k.known[layout.phase] = k.known[layout.shared] = false;
  if (nest.has(Statement::Kind::Place)) k.known[layout.flag] = false;
  for (std::size_t s = 0; s < nest.slots.size(); ++s) k.known[layout.slots + s] = slot_known[s];
  for (std::size_t w = 0; w < k.words.size(); ++w)
    if (!k.known[w]) k.words[w] = 0;
  return k;
}

std::string KnownWords::key() const {
  std::string text(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::int64_t));
  for (const bool k : known) text += k ? '1' : '0';
  return text;
}

std::int64_t byte_offset(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  const Access& a = nest.accesses[access];
  return numbers.offsets[a.linear] * static_cast<std::int64_t>(size_of(nest.buffers[a.buffer].dtype));
}

}  // namespace onepass::compiler
