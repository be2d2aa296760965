// See schedule.h.
#include "compiler/cuda/schedule.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "compiler/plan/scratch.h"
#include "ir/order.h"

namespace onepass::compiler::cuda {
namespace {

constexpr std::int64_t kVectorBytes = 16;   // bytes of one load or store
constexpr std::int64_t kTeam = 16;          // threads of a half-warp
constexpr std::int64_t kBlocksForEach = 4;  // thread blocks per processor if threads share columns
constexpr std::int64_t kWavesOfBlocks = 4;  // resident sets of thread blocks in a grid; the grid strides over more work

std::int64_t size_of_access(const Nest& nest, std::uint32_t access) {
  return static_cast<std::int64_t>(size_of(nest.buffers[nest.accesses[access].buffer].dtype));
}

// True if the only data-dependent variables of the map are checked indices that are invariant in the vector loop.
bool only_places(const Nest& nest, const Linear& linear) {
  for (std::uint32_t v = nest.loops(); v < linear.of.size(); ++v) {
    if (linear.of[v] == Coefficient::Zero) continue;
    const std::uint32_t place = nest.derived[v - nest.loops()].place;
    if (place == Derived::kNone || (nest.body[place].loops >> nest.vector_loop() & 1)) return false;
  }
  return true;
}

bool is_list(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  return !numbers.members[nest.accesses[access].buffer].empty();
}

// True if the access is contiguous along the vector loop; for an array list, within one array.
bool contiguous(const Nest& nest, std::uint32_t access) {
  const Access& a = nest.accesses[access];
  const Linear& linear = nest.linears[a.linear];
  if (a.table != Access::kNone &&
      (nest.linears[a.table].of[nest.vector_loop()] != Coefficient::Zero || !only_places(nest, nest.linears[a.table])))
    return false;
  return linear.of[nest.vector_loop()] == Coefficient::One && only_places(nest, linear);
}

bool guarded(const Nest& nest, std::uint32_t access) {
  return std::any_of(nest.body.begin(), nest.body.end(), [&](const Statement& s) {
    return (s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Store) && s.at == access && s.guard != Statement::kNone;
  });
}

// True if `width` elements, starting at a multiple of `width` along the loop `along`, are aligned to their total size.
bool aligned(const Nest& nest, const NestNumbers& numbers, std::uint32_t access, std::int64_t width, const std::vector<bool>& bases,
             std::uint32_t along) {
  const Access& a = nest.accesses[access];
  if ((!bases.empty() && !bases[a.buffer]) || (is_list(nest, numbers, access) && a.table == Access::kNone)) return false;
  const std::int64_t size = size_of_access(nest, access), bytes = std::min(kVectorBytes, size * width);
  if (numbers.offsets[a.linear] * size % bytes != 0) return false;
  const std::vector<std::int64_t>& coefficients = numbers.coefficients[a.linear];
  for (std::uint32_t l = 0; l < coefficients.size(); ++l) {
    const bool varies = l >= nest.loops() || (l != along && numbers.extents[l] > 1);
    if (varies && coefficients[l] * size % bytes != 0) return false;
  }
  return true;
}

// True if all indices, and the grid's steps beyond them, fit into 32 bits. 64-bit division is several times slower.
bool fits_32_bits(const Nest& nest, const NestNumbers& numbers, std::int64_t counted) {
  constexpr std::int64_t kMost = 1 << 30;
  const auto product_fits = [](std::int64_t& product, std::int64_t by) {
    return !__builtin_mul_overflow(product, by, &product) && std::abs(product) < kMost;
  };
  std::int64_t all = 1;
  for (const std::int64_t extent : numbers.extents)
    if (!product_fits(all, std::max<std::int64_t>(extent, 1))) return false;
  if (counted >= kMost) return false;
  for (const auto* list : {&numbers.by, &numbers.bounds})
    for (const std::int64_t n : *list)
      if (std::abs(n) >= kMost) return false;
  std::vector<std::int64_t> most(numbers.extents);  // by variable, in magnitude
  for (std::size_t l = 0; l < nest.linears.size(); ++l) {
    std::int64_t sum = std::abs(numbers.offsets[l]);
    if (sum >= kMost) return false;
    for (std::size_t v = 0; v < numbers.coefficients[l].size(); ++v) {
      std::int64_t part = numbers.coefficients[l][v];
      if (part == 0) continue;
      // A mod variable is below its divisor. A floordiv variable is below its dividend, which is below the limit itself.
      std::int64_t bound = v < most.size() ? most[v] + 16 : kMost - 1;
      if (v >= most.size()) {
        const Derived& d = nest.derived[v - most.size()];
        // otherwise it is a stored index
        const bool checked = d.place != Derived::kNone && nest.body[d.place].kind == Statement::Kind::Place;
        if (checked) bound = numbers.bounds[nest.body[d.place].at];
        else if (d.place == Derived::kNone && d.modulo) bound = numbers.by[v - most.size()];
      }
      if (!product_fits(part, bound)) return false;
      if ((sum += std::abs(part)) >= kMost) return false;
    }
  }
  return true;
}

bool holds_doubles(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [](const Statement& s) { return s.kind == Statement::Kind::Reduce && size_of(s.dtype) == 8; });
}

bool is_expensive(const Statement& s) {
  return s.kind == Statement::Kind::Op && (ir::info(s.op).kind == ir::OpKind::Expanded || s.op == ir::Op::Div || s.op == ir::Op::Sqrt ||
                                           s.op == ir::Op::Reciprocal || s.op == ir::Op::Remainder || s.op == ir::Op::Fmod);
}

}  // namespace

namespace {
// Returns the places if loads of halves are cached as halves or not.
KeptPlaces places_of(const Nest& nest, const std::vector<std::uint32_t>& kept, bool halves) {
  KeptPlaces out;
  for (const std::uint32_t id : kept) {
    const Statement& s = nest.body[id];
    const DType stored = s.kind == Statement::Kind::Load ? nest.buffers[nest.accesses[s.at].buffer].dtype : s.dtype;
    out.types.push_back(halves && is_half(stored) ? stored : s.dtype);
  }
  const auto needed = needed_by_sweep(nest, kept);
  struct Life {
    std::uint32_t statement;
    std::size_t first, last;  // sweeps
    std::int64_t size;
  };
  std::vector<Life> lives;
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const std::uint32_t id = kept[k];
    Life life{id, needed.size(), 0, static_cast<std::int64_t>(size_of(out.types[k]))};
    for (std::size_t s = 0; s < needed.size(); ++s)
      if (needed[s][id]) life.first = std::min(life.first, s), life.last = s;
    lives.push_back(life);
  }
  // True if the thread reads its element of `earlier` before it writes `later`, because `later` is computed from `earlier` in that sweep.
  const auto reads_before = [&](const Life& later, const Life& earlier) {
    std::vector<bool> seen(nest.body.size(), false);
    std::vector<std::uint32_t> open{later.statement};
    while (!open.empty()) {
      const std::uint32_t id = open.back();
      open.pop_back();
      if (id == earlier.statement) return true;
      const Statement& s = nest.body[id];
      if (seen[id] || s.kind == Statement::Kind::Reduce) continue;
      seen[id] = true;
      const auto other = std::find_if(lives.begin(), lives.end(), [&](const Life& l) { return l.statement == id; });
      if (other != lives.end() && other->first < later.first) continue;  // the value is read back instead
      for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
        if (o != Statement::kNone) open.push_back(o);
    }
    return false;
  };
  struct Place {
    std::int64_t before, size;
    Life holder;
  };
  std::vector<Place> places;
  out.before.resize(kept.size());
  std::vector<std::size_t> order(kept.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lives[a].first < lives[b].first; });
  for (const std::size_t k : order) {
    const Life& life = lives[k];
    const auto lender = std::find_if(places.begin(), places.end(), [&](const Place& p) {
      return p.size == life.size && (p.holder.last < life.first || (p.holder.last == life.first && reads_before(life, p.holder)));
    });
    if (lender != places.end()) {
      lender->holder = life;
      out.before[k] = lender->before;
      continue;
    }
    out.before[k] = out.bytes;
    places.push_back({out.bytes, life.size, life});
    out.bytes += life.size;
  }
  return out;
}
}  // namespace

KeptPlaces kept_places(const Nest& nest, const std::vector<std::uint32_t>& kept) {
  KeptPlaces halves = places_of(nest, kept, true), floats = places_of(nest, kept, false);
  return halves.bytes < floats.bytes ? halves : floats;
}

namespace {

// Chooses values that several sweeps need and caches them in shared memory: first expensive values, then loads. `room` is the limit in
// bytes per element of the row. Returns the bytes used. Nests with rows and columns do not cache values that vary only along the row,
// because all rows share them.
std::int64_t keep(const Nest& nest, std::int64_t room, std::vector<std::uint32_t>& kept) {
  const std::uint64_t outer = (std::uint64_t{1} << nest.outer) - 1;
  for (const bool loads : {false, true}) {
    const auto needed = needed_by_sweep(nest, kept);
    std::vector<std::uint32_t> more;
    for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
      const Statement& s = nest.body[i];
      if (((s.kind == Statement::Kind::Load) != loads) || (!loads && !is_expensive(s))) continue;
      if (!(s.loops >> nest.vector_loop() & 1) || (nest.has_columns() && !(s.loops & outer))) continue;
      if (std::count_if(needed.begin(), needed.end(), [&](const auto& need) { return need[i]; }) < 2) continue;
      if (std::find(kept.begin(), kept.end(), i) != kept.end()) continue;
      std::vector<std::uint32_t> with = kept;
      with.insert(with.end(), more.begin(), more.end());
      with.push_back(i);
      std::sort(with.begin(), with.end());
      if (kept_places(nest, with).bytes > room) continue;
      more.push_back(i);
    }
    kept.insert(kept.end(), more.begin(), more.end());
    std::sort(kept.begin(), kept.end());
  }
  return kept_places(nest, kept).bytes;
}

// Caches rows of half-warps. As many half-warps as fit share a thread block.
void keep_rows_of_teams(const Nest& nest, std::int64_t row, const DeviceTarget& target, DeviceScheduled& out) {
  const std::int64_t least_teams = 2;
  const std::int64_t bytes = keep(nest, row == 0 ? 0 : target.shared_bytes / (row * least_teams), out.schedule.kept);
  if (bytes == 0) return;
  while (out.schedule.threads / kTeam * bytes * row > target.shared_bytes)
    out.schedule.threads = static_cast<std::uint16_t>(out.schedule.threads / 2);
  out.numbers.row = row;
  out.numbers.shared_bytes = out.schedule.threads / kTeam * bytes * row;
}

void set_blocks(const DeviceTarget& target, std::int64_t wanted, DeviceScheduled& out) {
  const std::int64_t places = std::int64_t{target.processors} * target.threads_per_processor / out.schedule.threads;
  out.numbers.blocks = std::clamp<std::int64_t>(wanted, 1, kWavesOfBlocks * places);
}

// Splits the reduced elements into chunks of 2^m summation blocks if the rows (or columns) are too few to fill the device. `items` is the
// number of threads (for Block, thread blocks) without splitting.
void share(const Nest& nest, const DeviceTarget& target, std::int64_t items, std::int64_t counted, DeviceScheduled& out) {
  DeviceSchedule& s = out.schedule;
  const bool blocks = s.form == Form::Block;
  if (s.one_block || items == 0 || (s.form != Form::Columns && !blocks) || !nest.has(Statement::Kind::Reduce)) return;
  const std::int64_t places = std::int64_t{target.processors} * target.threads_per_processor / (blocks ? s.threads : 1);
  // 32 threads share a summation block of columns. Contractions add their elements one by one.
  const bool contracts = std::any_of(nest.body.begin(), nest.body.end(), [](const Statement& b) { return ir::is_contraction(b.op); });
  if (!blocks && !contracts && items <= places / 8) {
    std::int64_t together = 8;
    while (together > 1 && together > items) together /= 2;
    s.together = static_cast<std::uint8_t>(together);
    s.threads = static_cast<std::uint16_t>(32 * together);
  }
  const std::int64_t shares = s.together ? (items + s.together - 1) / s.together : items;  // each share has all r
  const std::int64_t room = s.together ? kBlocksForEach * target.processors : places;
  if (!s.together && 2 * items > places) return;
  constexpr std::int64_t kMostParts = 512;  // each part combines the sums of all earlier parts
  std::int64_t chunk = ir::kRowBlock;
  if (blocks) {
    // Split reductions use smaller thread blocks: 128 threads for very long rows, else 64.
    s.threads = counted >= kMostParts * ir::kLaneBlock * 8 ? 128 : 64;
    chunk = ir::kLaneBlock * (s.threads / kTeam);
  }
  const std::int64_t wanted = std::min(kMostParts, (room + shares - 1) / shares);
  while ((counted + chunk - 1) / chunk > wanted) chunk *= 2;
  const std::int64_t parts = (counted + chunk - 1) / chunk;
  if (parts < 2) {
    s.together = 0, s.threads = 256;
    return;
  }
  const std::int64_t sums =
      std::count_if(nest.body.begin(), nest.body.end(), [](const Statement& b) { return b.kind == Statement::Kind::Reduce; });
  s.split = true;
  out.numbers.chunk = chunk, out.numbers.chunks = parts;
  const bool last_reduces = std::any_of(nest.body.begin(), nest.body.end(),
                                        [&](const Statement& b) { return b.kind == Statement::Kind::Reduce && b.stage == nest.sweeps; });
  out.numbers.phases = nest.sweeps + last_reduces;
  out.numbers.partial_bytes = parts * items * sums * 8 * (blocks ? 1 : s.width);
  if (s.together) set_blocks(target, shares * parts, out);
}

// True if no scan needs the results of another scan.
bool scans_apart(const Nest& nest) {
  std::vector<bool> behind(nest.body.size(), false);  // depends on a scan
  for (std::uint32_t i = 0; i < nest.body.size(); ++i) {
    const Statement& b = nest.body[i];
    for (const std::uint32_t o : {b.a, b.b, b.c, b.guard})
      if (o != Statement::kNone) behind[i] = behind[i] || behind[o];
    if (b.kind != Statement::Kind::Scan) continue;
    if (behind[i]) return false;
    behind[i] = true;
  }
  return true;
}

std::int64_t count_scans(const Nest& nest) {
  return std::count_if(nest.body.begin(), nest.body.end(), [](const Statement& b) { return b.kind == Statement::Kind::Scan; });
}

// Splits scans along columns into three launches if the columns are too few to fill the device. `items` is the number of threads without
// splitting, for `width` columns each. Returns it for the chosen width.
std::int64_t share_scans(const Nest& nest, const DeviceTarget& target, std::int64_t items, std::int64_t columns, std::int64_t counted,
                         DeviceScheduled& out) {
  DeviceSchedule& s = out.schedule;
  const std::int64_t places = std::int64_t{target.processors} * target.threads_per_processor;
  if (items == 0 || 2 * items > places || nest.runs || nest.addition() || !scans_apart(nest)) return items;
  const auto parts_of = [&](std::int64_t chunk) { return (counted + chunk - 1) / chunk; };
  std::int64_t chunk = ir::kScanBlock;
  // Integers, maxima and minima may be combined in any order, so their chunks may be shorter than the blocks of the order.
  constexpr std::int64_t kLeastChunk = 64;
  const bool any_order = std::ranges::all_of(nest.body, [](const Statement& b) {
    return b.kind != Statement::Kind::Scan || !is_float(b.dtype) || b.op == ir::Op::ScanMax || b.op == ir::Op::ScanMin;
  });
  while (any_order && chunk > kLeastChunk && items * parts_of(chunk) < places) chunk /= 2;
  const std::int64_t parts = parts_of(chunk);
  if (4 * items * parts <= places) {  // more threads, on more processors
    s.width = 1, s.whole = true;
    s.vectors.clear();
    s.threads = 64;
    items = columns;
  }
  if (parts < 2) return items;
  s.split = true;
  out.numbers.chunk = chunk, out.numbers.chunks = parts;
  out.numbers.phases = 3;
  out.numbers.partial_bytes = parts * items * s.width * count_scans(nest) * 8;
  return items;
}

// True if the updates of a nest with additions can be sorted by element: the element depends only on the kept loops and the checked index,
// and the additions round like values in registers.
bool sorts_additions(const Nest& nest) {
  const Statement* const add = nest.addition();
  if (!add || nest.kind != NestKind::Rows || nest.runs || add->guard != Statement::kNone) return false;
  const Statement& place = nest.body[add->b];
  if (place.kind != Statement::Kind::Place || place.guard != Statement::kNone) return false;
  const Access& access = nest.accesses[add->at];
  if (access.table != Access::kNone || is_half(nest.buffers[access.buffer].dtype)) return false;
  const Linear& linear = nest.linears[access.linear];
  for (std::uint32_t v = 0; v < linear.of.size(); ++v) {
    if (linear.of[v] == Coefficient::Zero) continue;
    if (v >= nest.loops() ? nest.derived[v - nest.loops()].place != add->b : (nest.reduced_mask() >> v & 1) != 0) return false;
  }
  return true;
}

// Sorts the updates by element if the columns are too few to fill the device. `items` is the number of threads without sorting. Returns it
// for the chosen width.
std::int64_t share_additions(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, std::int64_t items,
                             DeviceScheduled& out) {
  DeviceSchedule& s = out.schedule;
  constexpr std::int64_t kLeastUpdates = 256;               // fewer updates are added sooner than they are sorted
  constexpr std::int64_t kDigitBits = 4, kSortTile = 2048;  // of sort_updates in the text
  const std::uint32_t v = nest.vector_loop();
  if (items == 0 || 2 * items > std::int64_t{target.processors} * target.threads_per_processor || !sorts_additions(nest)) return items;
  const AdditionGroups by = addition_groups(nest);
  std::int64_t serial = 1, outer = 1;
  for (std::uint32_t l = 0; l < v; ++l) (l < nest.outer ? outer : serial) *= numbers.extents[l];
  const std::int64_t columns = numbers.extents[v];
  const std::int64_t groups = (by.outer ? outer : 1) * (by.vector ? columns : 1), updates = serial * groups;
  std::int64_t keys = 0;
  if (serial < kLeastUpdates || __builtin_mul_overflow(groups, numbers.bounds[nest.body[nest.addition()->b].at], &keys)) return items;
  if (keys == 0 || keys >= (s.narrow ? std::int64_t{1} << 30 : std::int64_t{1} << 60)) return items;
  const auto bits = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(keys - 1)));
  if (by.vector) {
    s.width = 1, s.whole = true;
    s.vectors.clear();
  }
  s.split = true;
  out.numbers.phases = 2 + 3 * std::max<std::int64_t>(1, (bits + kDigitBits - 1) / kDigitBits);
  out.numbers.chunk = out.numbers.phases - 1;
  out.numbers.partial_bytes = (4 * updates + (updates + kSortTile - 1) / kSortTile * (1 << kDigitBits)) * (s.narrow ? 4 : 8);
  return updates * ((by.outer ? 1 : outer) * (by.vector ? 1 : (columns + s.width - 1) / s.width));
}

// Schedules an elementwise nest with scans: half-warps process rows. Few long rows use three launches, unless a scan needs the results of
// another scan.
DeviceScheduled scan(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, DeviceScheduled& out, std::int64_t rows) {
  DeviceSchedule& s = out.schedule;
  s.form = Form::Scan;
  const std::int64_t extent = numbers.extents[nest.vector_loop()], parts = (extent + ir::kScanBlock - 1) / ir::kScanBlock;
  const std::int64_t teams = std::int64_t{target.processors} * target.threads_per_processor / kTeam;
  s.split = parts > 1 && 2 * rows <= teams && scans_apart(nest);
  if (s.split) {
    out.numbers.chunk = ir::kScanBlock, out.numbers.chunks = parts;
    out.numbers.phases = 3;
    out.numbers.partial_bytes = rows * parts * count_scans(nest) * 8;
  }
  set_blocks(target, (rows * (s.split ? parts : 1) * kTeam + s.threads - 1) / s.threads, out);
  return out;
}

std::int64_t row_of(std::int64_t counted) { return (counted + 63) / 64 * 64; }

// Returns the bytes per column of the column accumulators.
std::int64_t bytes_of_columns(const Nest& nest) {
  std::int64_t bytes = 0;
  for (const Statement& s : nest.body)
    if (s.kind == Statement::Kind::Reduce && s.count) bytes += static_cast<std::int64_t>(size_of(s.dtype));
  return bytes;
}

// Returns the most bytes of row values in shared memory for the threads of columns, eight rows at a time.
std::int64_t bytes_of_row_values(const Nest& nest) {
  std::int64_t bytes = 0;
  for (const Statement& s : nest.body)
    if (!(s.loops & nest.reduced_mask()) && (s.loops || s.stage > 0) && s.kind != Statement::Kind::Slot &&
        s.kind != Statement::Kind::Constant && s.kind != Statement::Kind::Store)
      bytes += ir::kRowGroup * static_cast<std::int64_t>(size_of(s.dtype));
  return bytes;
}

// Schedules a nest with rows and columns. If blocks of 256 rows fill the device, a thread block sums each of them with accumulators in
// shared memory. Otherwise, a thread block sums eight rows, a tree of the summation order, and the next launches add these trees.
DeviceScheduled rows_and_columns(const Nest& nest, std::int64_t rows, std::int64_t counted, const DeviceTarget& target,
                                 DeviceScheduled& out) {
  DeviceSchedule& s = out.schedule;
  DeviceNumbers& n = out.numbers;
  const Nest apart = with_columns_apart(nest);
  const std::int64_t blocks = (rows + ir::kRowBlock - 1) / ir::kRowBlock, sums = bytes_of_columns(nest);
  s.form = Form::RowsAndColumns;
  s.threads = kTeam * ir::kRowGroup;
  s.by_eight = blocks < 2 * target.processors;
  s.whole = s.whole && rows % ir::kRowGroup == 0;
  n.row = row_of(counted);
  n.declared_bytes = bytes_of_row_values(apart);
  const std::int64_t accumulated = s.by_eight ? 0 : sums * n.row, room = target.asked_shared_bytes() - n.declared_bytes - accumulated;
  const std::int64_t bytes = keep(apart, n.row == 0 ? 0 : room / (ir::kRowGroup * n.row), s.kept);
  n.shared_bytes = accumulated + ir::kRowGroup * bytes * n.row;
  n.chunk = s.by_eight ? ir::kRowGroup : ir::kRowBlock;
  n.chunks = (rows + n.chunk - 1) / n.chunk;
  n.phases = s.by_eight ? 3 : 2;
  n.partial_bytes = (n.chunks + (s.by_eight ? blocks : 0)) * n.row * sums;
  set_blocks(target, n.chunks, out);
  return out;
}

// True if the access is transposed: contiguous along the last outer loop, but not along the vector loop.
bool lies_across(const Nest& nest, const NestNumbers& numbers, std::uint32_t access) {
  if (nest.outer == 0 || nest.buffers[nest.accesses[access].buffer].written || guarded(nest, access) || is_list(nest, numbers, access))
    return false;
  const Linear& linear = nest.linears[nest.accesses[access].linear];
  const std::uint32_t v = nest.vector_loop(), o = v - 1;
  constexpr std::int64_t kLeast = 16;  // fewest iterations of both loops for which a tile pays off
  return linear.of[v] != Coefficient::One && numbers.coefficients[nest.accesses[access].linear][o] == 1 &&
         std::abs(numbers.coefficients[nest.accesses[access].linear][v]) >= 8 && numbers.extents[v] >= kLeast &&
         numbers.extents[o] >= kLeast &&
         std::all_of(linear.of.begin() + nest.loops(), linear.of.end(), [](Coefficient c) { return c == Coefficient::Zero; });
}
// Finds the pointer tables of array lists in the order of append_tables().
void find_tables(const Nest& nest, const NestNumbers& numbers, DeviceSchedule& s) {
  std::uint32_t words = 0;
  for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
    if (!is_list(nest, numbers, a)) continue;
    words += 1 + static_cast<std::uint32_t>(numbers.members[nest.accesses[a].buffer].size());
    if (nest.accesses[a].table == Access::kNone) s.numbers.push_back(a);
  }
  s.table_words = words == 0 ? 0 : std::bit_ceil(words);
}

// Returns the neighbors along the vector loop that a thread processes together, so that the widest contiguous elements fill a vector. Sets
// `vectors` to the accesses that move as vectors.
std::int64_t width_of(const Nest& nest, const NestNumbers& numbers, std::int64_t most, const std::vector<bool>& bases,
                      const std::function<bool(std::int64_t)>& may_be, std::vector<std::uint32_t>& vectors) {
  const auto moves = [&](std::uint32_t a, std::int64_t w) {
    return contiguous(nest, a) && !guarded(nest, a) && aligned(nest, numbers, a, w, bases, nest.vector_loop());
  };
  for (std::int64_t w = most; w > 1; w /= 2) {
    std::int64_t widest = 0;
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a)
      if (moves(a, w)) widest = std::max(widest, size_of_access(nest, a));
    if (widest == 0 || (w * widest > kVectorBytes && w > 2) || !may_be(w)) continue;
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a)
      if (moves(a, w)) vectors.push_back(a);
    return w;
  }
  return 1;
}

DeviceScheduled tile(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, const std::vector<bool>& bases,
                     DeviceScheduled& out, std::int64_t outer) {
  DeviceSchedule& s = out.schedule;
  s.form = Form::Tile;
  const std::uint32_t v = nest.vector_loop(), o = v - 1;
  std::int64_t widest = 0;
  for (const std::uint32_t access : s.packed) widest = std::max(widest, size_of_access(nest, access));
  s.side = widest <= 4 && numbers.extents[v] >= 64 && numbers.extents[o] >= 64 ? 64 : 32;
  std::int64_t bytes = 0;  // operands that do not fit are read without a tile
  std::erase_if(s.packed, [&](std::uint32_t access) {
    const std::int64_t mine = s.side * (s.side + 1) * std::max<std::int64_t>(size_of_access(nest, access), 4);
    if (bytes + mine > target.shared_bytes) return true;
    bytes += mine;
    return false;
  });
  for (const std::uint32_t access : s.packed)
    if (aligned(nest, numbers, access, kVectorBytes / size_of_access(nest, access), bases, o)) s.across.push_back(access);
  s.width = static_cast<std::uint8_t>(width_of(
      nest, numbers, 8, bases, [](std::int64_t) { return true; }, s.vectors));
  const std::int64_t across = numbers.extents[v], down = numbers.extents[o];
  set_blocks(target, outer / std::max<std::int64_t>(down, 1) * ((across + s.side - 1) / s.side) * ((down + s.side - 1) / s.side), out);
  return out;
}

}  // namespace

DeviceScheduled schedule(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, const std::vector<bool>& bases) {
  DeviceScheduled out;
  DeviceSchedule& s = out.schedule;
  const std::uint32_t v = nest.vector_loop();
  std::int64_t outer = 1, serial = 1;
  for (std::uint32_t l = 0; l < nest.outer; ++l) outer *= numbers.extents[l];
  for (std::uint32_t l = nest.outer; l < v; ++l) serial *= numbers.extents[l];
  const std::int64_t extent = numbers.extents[v];
  std::int64_t counted = serial * (nest.kind == NestKind::Lanes ? extent : 1);  // end of r, including padding
  if (nest.runs) {
    counted = numbers.padded_run;
    for (std::uint32_t l = nest.outer; l < nest.outer + nest.runs; ++l) counted *= numbers.extents[l];
  }
  const bool lanes = nest.kind == NestKind::Lanes;
  s.narrow = fits_32_bits(nest, numbers, counted);
  find_tables(nest, numbers, s);
  s.one_block = counted <= (lanes ? ir::kLaneBlock : ir::kRowBlock);
  s.form = nest.kind == NestKind::Map ? Form::Map : nest.kind == NestKind::Rows ? Form::Columns : s.one_block ? Form::Team : Form::Block;
  if (nest.kind == NestKind::Map && nest.has(Statement::Kind::Scan)) return scan(nest, numbers, target, out, outer);
  if (nest.kind == NestKind::Map) {
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a)
      if (lies_across(nest, numbers, a)) s.packed.push_back(a);
    if (!s.packed.empty()) return tile(nest, numbers, target, bases, out, outer);
  }

  // For lanes, at most the neighbors that one step of 64 lanes (f64: 32) has for each of 16 threads. One if rows may start at any r.
  const std::int64_t most = !lanes ? 16 : holds_doubles(nest) ? 2 : 4;
  const auto may_be = [&](std::int64_t w) {
    return !lanes || nest.serial == 0 || (extent % w == 0 && (!nest.runs || numbers.padded_run % w == 0));
  };
  const std::int64_t width = width_of(nest, numbers, most, bases, may_be, s.vectors);
  s.width = static_cast<std::uint8_t>(width);

  std::int64_t run = extent;  // unpadded elements of a run
  for (std::uint32_t l = nest.outer + nest.runs; l < v; ++l) run *= numbers.extents[l];
  const bool filled = nest.runs && numbers.padded_run != (lanes ? run : run / std::max<std::int64_t>(extent, 1));
  s.whole = lanes ? counted % 64 == 0 && !filled && (nest.serial > 0 || extent % width == 0) : extent % width == 0;

  if (nest.has_columns()) return rows_and_columns(nest, outer, counted, target, out);
  if (s.form == Form::Team && nest.sweeps > 1) keep_rows_of_teams(nest, row_of(counted), target, out);

  std::int64_t chunks = outer * ((extent + width - 1) / width);
  if (nest.has(Statement::Kind::Scan)) chunks = share_scans(nest, target, chunks, outer * extent, counted, out);
  else if (nest.addition()) chunks = share_additions(nest, numbers, target, chunks, out);
  else share(nest, target, s.form == Form::Block ? outer : chunks, counted, out);
  if (s.together) return out;
  const std::int64_t parts = out.numbers.chunks;
  const std::int64_t wanted = s.form == Form::Block  ? outer * parts
                              : s.form == Form::Team ? (outer * kTeam + s.threads - 1) / s.threads
                                                     : (chunks * parts + s.threads - 1) / s.threads;
  set_blocks(target, wanted, out);
  return out;
}

AdditionGroups addition_groups(const Nest& nest) {
  const std::uint64_t loops = nest.body[nest.addition()->b].loops, outer = (std::uint64_t{1} << nest.outer) - 1;
  return {(loops & outer) != 0, (loops >> nest.vector_loop() & 1) != 0};
}

Nest with_columns_apart(const Nest& nest) {
  Nest out = nest;
  const std::vector<bool> behind = nest.behind_columns();
  for (std::size_t i = 0; i < nest.body.size(); ++i)
    if (const Statement& s = nest.body[i]; s.kind == Statement::Kind::Reduce && !behind[i] && s.stage == nest.sweeps) {
      ++out.sweeps;
      break;
    }
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    Statement& s = out.body[i];
    if (behind[i]) s.stage = out.sweeps;
    else if (s.kind == Statement::Kind::Store && (s.loops & nest.reduced_mask())) s.stage = static_cast<std::uint8_t>(out.sweeps - 1);
  }
  return out;
}

bool suits_device(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target) {
  std::int64_t rows = 1, counted = 1;
  for (std::uint32_t l = 0; l < nest.loops(); ++l) (l < nest.outer ? rows : counted) *= numbers.extents[l];
  if (rows < ir::kRowGroup * target.processors || counted == 0 || counted > ir::kLaneBlock) return false;
  const Nest apart = with_columns_apart(nest);
  const DeviceScheduled scheduled = schedule(nest, numbers, target);
  const auto needed = needed_by_sweep(apart, scheduled.schedule.kept);
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const bool of_all = (s.loops >> nest.vector_loop() & 1) && (s.loops & ((std::uint64_t{1} << nest.outer) - 1));
    const bool is_kept = std::ranges::binary_search(scheduled.schedule.kept, static_cast<std::uint32_t>(i));
    if (s.kind != Statement::Kind::Load || !of_all || is_kept) continue;
    if (std::ranges::count_if(needed, [&](const auto& need) { return need[i]; }) > 1) return false;
  }
  return true;
}

std::string DeviceSchedule::key() const {
  std::string k;
  const auto put = [&](auto v) { k.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(form), put(width), put(threads), put(whole), put(narrow), put(one_block), put(split), put(by_eight), put(together), put(side);
  put(table_words);
  for (const auto* list : {&vectors, &kept, &packed, &across, &numbers}) {
    put(static_cast<std::uint32_t>(list->size()));
    for (std::uint32_t i : *list) put(i);
  }
  return k;
}

std::string print(const DeviceScheduled& scheduled) {
  constexpr std::string_view forms[] = {"elementwise",
                                        "outer-axis reduction, a few columns per thread",
                                        "inner-axis reduction, half a warp per row",
                                        "inner-axis reduction, a block per row",
                                        "scan, half a warp per row",
                                        "elementwise, tiles through shared memory",
                                        "inner-axis reduction and fused column reduction in one pass, eight rows per block"};
  const DeviceSchedule& s = scheduled.schedule;
  std::string out = fmt::format("schedule: {}; {} elements per thread at once, {} vector accesses; blocks of {} threads",
                                forms[static_cast<int>(s.form)], s.width, s.vectors.size(), s.threads);
  if (s.form == Form::RowsAndColumns)
    out += fmt::format(", {} launches, columns in {} parts of {} rows", scheduled.numbers.phases, scheduled.numbers.chunks,
                       scheduled.numbers.chunk);
  if (s.together) out += fmt::format(", 32 threads share a summation block of {} columns", s.together * s.width);
  if (s.split && scheduled.numbers.chunks == 1) out += fmt::format(", {} launches, updates sorted by element", scheduled.numbers.phases);
  else if (s.split) out += fmt::format(", {} launches, rows in {} parts", scheduled.numbers.phases, scheduled.numbers.chunks);
  if (!s.packed.empty())
    out +=
        fmt::format(", {0} transposed accesses, {1} of them as vectors, in tiles of {2} by {2}", s.packed.size(), s.across.size(), s.side);
  if (s.table_words) out += fmt::format(", pointer tables of {} words", s.table_words);
  if (s.whole) out += ", no tails";
  if (!s.narrow) out += ", 64-bit indices";
  if (!s.kept.empty())
    out += fmt::format(", {} values of a row cached in {} bytes of shared memory", s.kept.size(), scheduled.numbers.shared_bytes);
  return out + fmt::format("; {} blocks\n", scheduled.numbers.blocks);
}

std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const DeviceNumbers& device) {
  ScheduleNumbers n;
  n.tile = device.row;
  n.chunk = device.chunk, n.chunks = device.chunks;
  return compiler::make_words(nest, numbers, n);
}

}  // namespace onepass::compiler::cuda
