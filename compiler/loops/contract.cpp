// See contract.h. For x[i, k] and y[k, j], in tiles of 14 by 32:
//
//   for i/tile_outer, j/tile parallel
//     for k/256                                    a block of the summation order
//       m0{j/32, k, j%32} = y                      once for all rows of the task; a strip stays in the first-level cache
//       m1{i/14, i%14, k} = x                      once for all columns; in the second-level cache
//       for j%tile/32, i%tile_outer/14
//         for k%256
//           for i%14 unrolled, j%32 vector         sums in registers
//         for i%14, j%32 vector                    added to the tree of blocks
//     for j%tile/32, i%tile_outer/14
//       for i%14, j%32 vector                      values computed from the sums, and stores
//
// With a single block, the values computed from a tile's sums follow the sums directly. If many tasks would pack the same columns, separate
// parallel loops pack them in an earlier phase.
#include "compiler/loops/contract.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "compiler/loops/transform.h"
#include "compiler/target.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler::loops {

namespace {

std::uint64_t bit(Id loop) { return std::uint64_t{1} << loop; }

// A program under construction. Each step applies one transformation; all steps are legal for contractions.
class Steps {
 public:
  explicit Steps(Program program) : p_(std::move(program)) {}
  Program& program() { return p_; }
  void operator()(const Transformed& next) {
    if (!next) throw InternalError("loops: a contraction cannot be scheduled: " + next.why_not());
    p_ = *next;
  }
  /// Returns the first loop over a digit, from line `from` on.
  Id loop(Id digit, Id from = 0) const {
    for (Id i = from; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError(fmt::format("loops: there is no loop over digit {}", digit));
  }
  Id line(Code code, Id from = 0) const {
    while (from < p_.lines.size() && p_.lines[from].code != code) ++from;
    if (from == p_.lines.size()) throw InternalError("loops: a line is missing");
    return from;
  }
  /// Splits the first loop over a digit and returns the outer digit.
  Id split(Id digit, std::int64_t by) {
    (*this)(loops::split(p_, loop(digit), by));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  Id split(Id digit, Digit::Size size) {
    (*this)(loops::split(p_, loop(digit), size));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  /// Moves the loop over `digit` inside the loop in its body.
  void inside(Id digit, Id from = 0) {
    (*this)(sink(p_, loop(digit, from)));
    (*this)(interchange(p_, loop(digit, from)));
  }
  /// Returns the loop over a digit that contains the sum of the products.
  Id around(Id digit) const {
    Id sum = 0;
    while (p_.lines[sum].code != Code::Accumulate || p_.lines[sum].b == kNone) ++sum;
    Id line = loop(digit);
    while (p_.lines[line].end <= sum) line = loop(digit, line + 1);
    return line;
  }
  /// Prefetches for the loads after line `at`, up to the values stored in memories, a few iterations of the loop ahead. They read the next
  /// rows, which the hardware does not prefetch.
  void ask_ahead(Id digit, Id at) {
    constexpr std::uint8_t kAhead = 2;
    const Id around = loop(digit, at);
    for (Id i = around; i < p_.lines[around].end; ++i)
      if (p_.lines[i].code == Code::Load) (*this)(prefetch(p_, i++, around, kAhead));
  }
  /// Does the same for loads along the loop over digit `vector`, inside the loop over `summed` that adds the products.
  void ask_ahead_along(Id vector, Id summed) {
    constexpr std::uint8_t kAhead = 8;  // fewer than the ways of a cache, because rows may be a power of two apart
    const Id around_sum = around(summed), root = p_.digits[vector].root;
    for (Id i = around_sum; i < p_.lines[around_sum].end; ++i) {
      const Line& l = p_.lines[i];
      if (l.code == Code::Load && p_.nest.linears[p_.nest.accesses[l.at].linear].of[root] == Coefficient::One)
        (*this)(prefetch(p_, i++, around_sum, kAhead));
    }
  }
  /// Returns the Hold line of the newest memory.
  Id last_memory() const {
    Id line = 0;
    while (p_.lines[line].code != Code::Hold || p_.lines[line].at + 1 != p_.memories.size()) ++line;
    return line;
  }
  void bind_all(Id digit, Bind how, std::uint16_t lanes = 0) {
    for (Id i = 0; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) (*this)(bind(p_, i, how, lanes));
  }

 private:
  Program p_;
};

// Visits the loads that the statement needs and that vary along the loop.
template <class F> void each_load(const Nest& nest, Id statement, Id loop, F&& visit) {
  std::vector<bool> needed(nest.body.size(), false);
  needed[statement] = true;
  for (Id i = statement + 1; i-- > 0;) {
    const Statement& s = nest.body[i];
    if (!needed[i]) continue;
    for (const Id o : {s.a, s.b, s.c})
      if (o != Statement::kNone) needed[o] = true;
    if (s.kind == Statement::Kind::Load && (s.loops & bit(loop))) visit(nest.accesses[s.at]);
  }
}

// True if the inputs of the statement are contiguous along the loop, in all arrays that vary along it.
bool is_contiguous(const Nest& nest, Id statement, Id loop) {
  bool all = true;
  each_load(nest, statement, loop, [&](const Access& a) { all &= nest.linears[a.linear].of[loop] == Coefficient::One; });
  return all;
}

// Returns the side of the squares of the columns that are transposed at the multiplication: rows of 128 bits in memory, which
// KernelBuilder::transpose joins. Two elements are too few for an iteration.
std::int64_t side_of_squares(const Nest& nest, const Contraction& c, std::int64_t lanes) {
  constexpr std::size_t kBytes = 16;
  std::size_t widest = 1;
  each_load(nest, c.columns, c.column_loop, [&](const Access& a) { widest = std::max(widest, size_of(nest.buffers[a.buffer].dtype)); });
  const auto side = static_cast<std::int64_t>(kBytes / widest);
  return side > 2 && side < lanes ? side : lanes;
}

// True if the elements of the packed rows are contiguous from row to row: vectors run across the rows.
bool reads_across_rows(const Nest& nest, const Contraction& c) {
  return is_contiguous(nest, c.rows, c.row_loop) && !is_contiguous(nest, c.rows, c.reduced_loop);
}

// True if the addresses of the statement's operands depend on quotients of the reduced loop's index.
bool is_in_parts(const Nest& nest, Id statement, Id loop) {
  std::vector<bool> needed(nest.body.size(), false);
  needed[statement] = true;
  for (Id i = statement + 1; i-- > 0;) {
    const Statement& s = nest.body[i];
    if (!needed[i]) continue;
    for (const Id o : {s.a, s.b, s.c, s.guard})
      if (o != Statement::kNone) needed[o] = true;
    for (Id q = 0; s.kind == Statement::Kind::Load && q < nest.derived.size(); ++q)
      if (nest.linears[nest.accesses[s.at].linear].of[nest.loops() + q] != Coefficient::Zero &&
          nest.linears[nest.derived[q].linear].of[loop] != Coefficient::Zero)
        return true;
  }
  return false;
}

// True if the summation blocks are outside the tiles. Sums without an order stay in registers throughout.
bool blocks_outside(const Nest& nest, const Contraction& c, const RegisterTile& tile) {
  return is_float(nest.body[c.sum].dtype) && !tile.one_block;
}

// True if the values computed from the sum are so cheap that their code can be unrolled over the rows of a tile.
bool is_short_behind(const Nest& nest, Id sum) {
  constexpr int most = 4;
  int statements = 0;
  std::vector<bool> behind(nest.body.size(), false);
  behind[sum] = true;
  for (Id i = sum + 1; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    for (const Id o : {s.a, s.b, s.c}) behind[i] = behind[i] || (o != Statement::kNone && behind[o]);
    if (s.kind == Statement::Kind::Guard || (s.kind == Statement::Kind::Place && behind[i])) return false;
    if (behind[i]) statements += s.kind == Statement::Kind::Op && ir::info(s.op).kind == ir::OpKind::Expanded ? most : 1;
  }
  return statements <= most;
}

// True if the statement needs only a few operators and no sum.
bool is_short(const Nest& nest, Id statement) {
  constexpr int most = 4;
  int operators = 0;
  std::vector<bool> needed(nest.body.size(), false);
  needed[statement] = true;
  for (Id i = statement + 1; i-- > 0;) {
    if (!needed[i]) continue;
    const Statement& s = nest.body[i];
    if (s.kind == Statement::Kind::Reduce || s.kind == Statement::Kind::Place) return false;
    if (s.kind == Statement::Kind::Op) operators += ir::info(s.op).kind == ir::OpKind::Expanded ? most + 1 : 1;
    for (const Id o : {s.a, s.b, s.c, s.guard})
      if (o != Statement::kNone) needed[o] = true;
  }
  return operators <= most;
}

Id operand_line(const Program& p, bool second) {
  for (const Line& l : p.lines)
    if (l.code == Code::Accumulate && l.b != kNone) return second ? l.b : l.a;
  throw InternalError("loops: there is no sum of products");
}

}  // namespace

Contraction contraction_of(const Nest& nest, bool swapped) {
  Contraction none{0, 0, 0, kNone, 0, 0};
  if (nest.kind != NestKind::Rows || nest.serial != 1 || nest.outer == 0 || nest.sweeps != 1 || nest.phases != 1 || nest.runs != 0)
    return none;
  Contraction c{nest.outer - 1u, nest.vector_loop(), nest.outer, kNone, 0, 0};
  for (Id i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const bool is_plain = s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Store || s.kind == Statement::Kind::Op ||
                          s.kind == Statement::Kind::Slot || s.kind == Statement::Kind::Constant || s.kind == Statement::Kind::Index ||
                          s.kind == Statement::Kind::Guard || s.kind == Statement::Kind::Reduce ||
                          (s.kind == Statement::Kind::Place && !(s.loops & bit(c.reduced_loop)));
    if (!is_plain || s.op == ir::Op::ScanSum) return none;
    if (s.kind == Statement::Kind::Store && (s.op == ir::Op::Add || s.count > 1 || (s.loops & bit(c.reduced_loop)))) return none;
    if (s.kind != Statement::Kind::Reduce) continue;
    if (c.sum != kNone || !ir::is_contraction(s.op) || s.count != 0) return none;
    c.sum = i;
  }
  for (const Access& a : nest.accesses)
    if (a.table != Access::kNone) return none;
  for (const Derived& d : nest.derived)
    if (d.place != Derived::kNone) return none;
  if (c.sum == kNone) return none;
  const Statement& sum = nest.body[c.sum];
  const auto varies = [&](Id statement, Id loop) { return (nest.body[statement].loops & bit(loop)) != 0; };
  c.rows = sum.a, c.columns = sum.b;
  if (varies(c.rows, c.column_loop)) std::swap(c.rows, c.columns);
  for (const Id operand : {c.rows, c.columns})
    if (!varies(operand, c.reduced_loop)) return {0, 0, 0, kNone, 0, 0};
  std::vector<bool> needed(nest.body.size(), false);  // statements that the operands need
  needed[c.rows] = needed[c.columns] = true;
  for (Id i = static_cast<Id>(nest.body.size()); i-- > 0;) {
    if (!needed[i]) continue;
    if (nest.body[i].kind == Statement::Kind::Place) return none;
    for (const Id o : {nest.body[i].a, nest.body[i].b, nest.body[i].c, nest.body[i].guard})
      if (o != Statement::kNone) needed[o] = true;
  }
  if (!varies(c.rows, c.row_loop) || varies(c.rows, c.column_loop) || varies(c.columns, c.row_loop) || !varies(c.columns, c.column_loop))
    return none;
  if (swapped) std::swap(c.row_loop, c.column_loop), std::swap(c.rows, c.columns);
  return c;
}

namespace {

std::int64_t up(std::int64_t a, std::int64_t by) { return (a + by - 1) / by; }

// Rows and vectors of a tile, and the costs of a step of the reduced loop of a tile and of the result, in vector multiplications.
struct TileChoice {
  std::int64_t rows = 0, vectors = 0;
  double step = 0, cost = 0;
};

constexpr double kPacked = 3, kTurned = 7, kGathered = 20;  // per vector, in vector multiplications
constexpr std::int64_t kPackedFor = 4;                      // tiles of rows that justify packing the columns

// Parameters of the cost model: lanes of a vector, vector registers, elements in the first-level cache, and most vectors of a tile.
// `packing` is the cost of packing per vector; `packing_few` applies if fewer than kPackedFor tiles of rows share the packed columns.
struct TileCosts {
  std::int64_t lanes = 1, registers = 16, cached = 0, widest = 8;
  double packing = 0, packing_few = 0;
};

// Returns the tile with the lowest cost for m by n elements that are sums of `k` products. A step of the reduced loop reads the vectors of
// the columns and one element per row. The latency of the additions bounds its speed. Columns that do not fit into the first-level cache
// with a tile's rows are read from the second-level cache.
TileChoice best_tile(std::int64_t m, std::int64_t n, std::int64_t k, const TileCosts& costs) {
  constexpr std::int64_t in_flight = 8;      // multiplications in flight: two per cycle, each four cycles
  constexpr double from_second = 0.25;       // per vector, in vector multiplications; the vectors are prefetched
  constexpr double per_step = 1;             // loop and addresses, in vector multiplications
  constexpr std::int64_t read_in_place = 8;  // most unpacked rows, because each needs an address register
  constexpr std::int64_t heights[] = {2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14};
  TileChoice best;
  for (std::int64_t vectors = 1; vectors <= costs.widest && (vectors == 1 || (vectors - 1) * costs.lanes < n); ++vectors) {
    const std::int64_t column_tiles = up(n, vectors * costs.lanes),
                       most = std::min((costs.registers - 1 - vectors) / vectors, column_tiles == 1 ? read_in_place : 14);
    for (const std::int64_t r : heights) {
      // wide tiles: one tile for all rows or only the tallest tile, because each tile is a separate kernel
      if (r > most || (vectors > 2 && r < m && 3 * r < 2 * most)) continue;
      const std::int64_t row_tiles = up(m, r);
      const bool is_cached = std::min(k, ir::kRowBlock) * (vectors * costs.lanes + r) <= costs.cached;
      const double step = static_cast<double>(std::max({r * vectors, r + vectors, in_flight})) + per_step +
                          (is_cached ? 0 : from_second * static_cast<double>(vectors));
      const double cost = step * static_cast<double>(row_tiles * column_tiles) +
                          (row_tiles >= kPackedFor ? costs.packing : costs.packing_few) * static_cast<double>(up(n, costs.lanes));
      if (best.rows == 0 || cost < best.cost) best = {r, vectors, step, cost};
    }
  }
  return best;
}

// Tiles of a contraction, and the costs of its tasks in vector multiplications: of a tile, of packing the rows or the columns of a tile, of
// reading columns that are packed already, of a task, and of a phase that packs all columns.
struct TaskCosts {
  std::int64_t threads = 1, others = 1, row_tiles = 1, column_tiles = 1;  // others: iterations of the loops around rows and columns
  double tile = 0, rows = 0, columns = 0, read = 0, task = 3'000, phase = 200'000;
  double all_columns = 0;  // packing them once; 0 if no phase can do that
};

// True if the columns are packed once, because packing them for each task along the rows would take longer than the additional phase.
bool packs_once(const TaskCosts& c, std::int64_t row_tasks) { return static_cast<double>(row_tasks - 1) * c.all_columns > c.phase; }

// Time until all threads have completed tasks of `rows` by `columns` tiles. Tasks may be partial, and threads take them in turn.
double time_of(const TaskCosts& c, std::int64_t rows, std::int64_t columns) {
  const auto number = [](std::int64_t x) { return static_cast<double>(x); };
  const std::int64_t row_tasks = up(c.row_tiles, rows), column_tasks = up(c.column_tiles, columns),
                     tasks = c.others * row_tasks * column_tasks;
  const bool once = packs_once(c, row_tasks);
  const double of_columns = once ? c.read : c.columns;
  const double longest = number(rows * columns) * c.tile + number(rows) * c.rows + number(columns) * of_columns + c.task;
  const double all = number(c.others) * (number(c.row_tiles * c.column_tiles) * c.tile + number(c.row_tiles * column_tasks) * c.rows +
                                         number(c.column_tiles * row_tasks) * of_columns) +
                     number(tasks) * c.task;
  const double even = all / number(c.threads);
  const double time = c.threads == 1 ? all : std::min(number(up(tasks, c.threads)) * longest, even + longest);
  return time + (once ? c.phase + c.all_columns / number(c.threads) : 0);
}

// Limits of a task in tiles, and of the number of tasks.
struct TaskLimits {
  std::int64_t fewest_rows = 1, most_rows = 1, most_columns = 1, most_tiles = 1, fewest_tasks = 1;
};

// Returns the rows and columns, in tiles, of the tasks that take the least time; the smallest tasks if no task is within the limits.
std::pair<std::int64_t, std::int64_t> best_tasks(const TaskCosts& c, const TaskLimits& limits) {
  std::pair best{limits.fewest_rows, std::int64_t{1}};
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t rows = limits.most_rows; rows >= limits.fewest_rows; --rows) {
    const std::int64_t row_tasks = up(c.row_tiles, rows);
    if (rows > limits.fewest_rows && up(c.row_tiles, row_tasks) < rows) continue;  // as many tasks as with fewer rows
    for (std::int64_t columns = limits.most_columns; columns >= 1; --columns) {
      const std::int64_t column_tasks = up(c.column_tiles, columns);
      if (up(c.column_tiles, column_tasks) < columns || rows * columns > limits.most_tiles) continue;
      if (c.others * row_tasks * column_tasks < limits.fewest_tasks) continue;
      if (const double time = time_of(c, rows, columns); time < least) best = {rows, columns}, least = time;
    }
  }
  return best;
}

// Form of a contraction of m by n elements, and its approximate cost.
struct Arrangement {
  TileChoice tile;
  bool across = false, is_turned = false;  // columns: not contiguous along the vectors; contiguous along the reduced loop
  std::int64_t direct = 0;                 // side of squares that are transposed at the multiplication, for all rows at once
  double cost = 0;
};

Arrangement arranged(const Nest& nest, const Contraction& c, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lanes,
                     const Target& target) {
  Arrangement a;
  a.across = !is_contiguous(nest, c.columns, c.column_loop);
  a.is_turned = a.across && is_contiguous(nest, c.columns, c.reduced_loop);
  const std::int64_t registers = target.vector_registers();
  const double packing = a.is_turned ? kTurned : a.across ? kGathered : kPacked;
  a.tile = best_tile(
      m, n, k, {lanes, registers, target.l1_bytes / target.vector_bytes * lanes, a.is_turned ? 2 : 8, packing, a.across ? packing : 0});
  a.cost = static_cast<double>(k) * a.tile.cost;
  if (a.is_turned && lanes <= 16) {
    constexpr double transposed = 5, loaded = 0.2;  // per vector; per element of a row, which two vectors share
    const std::int64_t side = side_of_squares(nest, c, lanes);
    for (const std::int64_t rows : {2, 3, 4, 5, 6, 8, 10}) {
      if (rows < m) continue;
      for (std::int64_t vectors = n > lanes ? 2 : 1; vectors >= 1; --vectors) {
        if (vectors * (rows + side) + 2 > registers) continue;
        const double step = static_cast<double>(rows) * (1 + loaded / static_cast<double>(vectors)) + transposed;
        const double cost = step * static_cast<double>(k * up(n, vectors * lanes) * vectors);
        if (cost < a.cost) a.tile = {rows, vectors, step * static_cast<double>(vectors), 0}, a.cost = cost, a.direct = side;
      }
      break;
    }
  }
  return a;
}

// True if vectors may run along the last outer loop. Stores then scatter, and loads other than the operands gather.
bool can_be_swapped(const Nest& nest, const Contraction& c) {
  if (!is_short_behind(nest, c.sum)) return false;
  for (const Access& a : nest.accesses)
    if (nest.buffers[a.buffer].written && size_of(nest.buffers[a.buffer].dtype) < 4) return false;
  std::vector<bool> of_operands(nest.body.size(), false);
  of_operands[c.rows] = of_operands[c.columns] = true;
  for (Id i = static_cast<Id>(nest.body.size()); i-- > 0;) {
    const Statement& s = nest.body[i];
    if (of_operands[i])
      for (const Id o : {s.a, s.b, s.c, s.guard})
        if (o != Statement::kNone) of_operands[o] = true;
    if (s.kind == Statement::Kind::Load && !of_operands[i] && size_of(nest.buffers[nest.accesses[s.at].buffer].dtype) < 4) return false;
  }
  return true;
}

}  // namespace

bool choose_tile(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options, RegisterTile& tile,
                 ScheduleNumbers& schedule) {
  constexpr std::int64_t few_tiles = 64;  // per thread; with fewer tiles there is one task per thread
  constexpr std::int64_t items_per_thread = 4;
  constexpr std::int64_t most_columns = 512;     // per task, because the trees of a task are as large as its part of the result
  constexpr std::int64_t products_at_once = 64;  // products that take as long as one unit of item_work
  Contraction c = contraction_of(nest);
  if (c.sum == kNone) return false;
  const DType dtype = nest.body[c.sum].dtype;
  std::int64_t m = numbers.extents[c.row_loop], n = numbers.extents[c.column_loop];
  const std::int64_t k = numbers.extents[c.reduced_loop];
  if (m < 2 || n < 1 || k < 1 || size_of(dtype) < 4) return false;
  const std::int64_t lanes = target.vector_bytes / static_cast<std::int64_t>(size_of(dtype));
  Arrangement chosen = arranged(nest, c, m, n, k, lanes, target);
  tile = {};
  if (options.strip == 0 && n < m && n <= 2 * lanes && can_be_swapped(nest, c)) {  // vectors along the few columns would be short
    const Contraction other = contraction_of(nest, true);
    const Arrangement swapped = arranged(nest, other, n, m, k, lanes, target);
    constexpr double scattered = 20;  // per vector, in vector multiplications
    const double stores = scattered * static_cast<double>(n * up(m, lanes));
    if ((swapped.cost + stores) * 1.1 < chosen.cost) chosen = swapped, c = other, tile.swapped = true, std::swap(m, n);
  }
  const bool across = chosen.across, is_turned = chosen.is_turned;
  const bool in_parts = is_in_parts(nest, c.rows, c.reduced_loop) || is_in_parts(nest, c.columns, c.reduced_loop);
  // Sums that stay in the first-level cache are as fast without packing if their rows are long and contiguous.
  if (in_parts && !across && n >= 2 * lanes && m * n * static_cast<std::int64_t>(size_of(dtype)) <= target.l1_bytes / 2) return false;
  tile.rows = static_cast<std::uint8_t>(chosen.tile.rows);
  tile.width = static_cast<std::uint8_t>(chosen.tile.vectors * lanes);
  tile.vector = static_cast<std::uint8_t>(chosen.tile.vectors % 2 == 0 ? 2 * lanes : lanes);
  tile.one_block = k <= ir::kRowBlock;
  const bool once = n <= tile.width;  // each row is read for one tile only, unpacked, with an address register
  const std::int64_t row_tiles = up(m, tile.rows), column_tiles = up(n, tile.width);
  // Quotients in addresses are computed once per packed element.
  tile.packs_rows = (!once || is_in_parts(nest, c.rows, c.reduced_loop)) && chosen.direct == 0;
  tile.packs_columns = (row_tiles >= kPackedFor || across || is_in_parts(nest, c.columns, c.reduced_loop)) && chosen.direct == 0;
  if (tile.packs_rows && tile.one_block && !reads_across_rows(nest, c))  // short rows are close together and occupy fewer cache lines
    if (const std::uint64_t pitch = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(k, 32))); pitch < ir::kRowBlock)
      tile.pitch = static_cast<std::uint8_t>(pitch);
  const auto size_of_column = static_cast<std::int64_t>(size_of(nest.body[c.columns].dtype));
  if (tile.packs_columns)  // the strip of a tile does not stay in the first-level cache beside the rows
    tile.asks_ahead = std::min(k, ir::kRowBlock) * (tile.rows + tile.width) * size_of_column * 4 > target.l1_bytes * 3;
  else tile.asks_ahead = !across && n * k * size_of_column > target.l2_bytes;
  if (is_turned) tile.turned = static_cast<std::uint8_t>(chosen.direct > 0 ? chosen.direct : std::min<std::int64_t>(lanes, 16));

  // ---- tasks: the packed rows of a block take an eighth of the second-level cache
  const std::int64_t threads = std::max(1, options.threads);
  const std::int64_t strip = std::min(k, ir::kRowBlock) * tile.rows * static_cast<std::int64_t>(size_of(nest.body[c.rows].dtype));
  std::int64_t others = 1;
  for (Id l = 0; l + 1 < nest.outer; ++l) others *= numbers.extents[l];
  TaskLimits limits{.fewest_rows = 1,
                    .most_rows = std::clamp<std::int64_t>(target.l2_bytes / 8 / strip, 1, row_tiles),
                    .most_columns = std::clamp<std::int64_t>(most_columns / tile.width, 1, column_tiles),
                    .most_tiles = row_tiles * column_tiles,
                    .fewest_tasks = 1};
  if (const int levels = std::bit_width(static_cast<std::uint64_t>(up(k, ir::kRowBlock))); levels > 1)  // trees of sums: half of that cache
    limits.most_tiles = target.l2_bytes / 2 / (levels * static_cast<std::int64_t>(size_of(dtype)) * tile.rows * tile.width);
  if (options.strip > 0) limits.fewest_rows = limits.most_rows = std::min(up(options.strip, tile.rows), row_tiles);
  TaskCosts costs{.threads = 1, .others = others, .row_tiles = row_tiles, .column_tiles = column_tiles};
  if (options.strip == 0 && threads > 1 && schedule.work >= options.split_work) {
    limits.fewest_tasks =
        threads * std::clamp<std::int64_t>(others * row_tiles * column_tiles / (few_tiles * threads), 1, items_per_thread);
    costs.threads = threads;
  }
  if (options.item_work > 0) limits.fewest_tasks = std::max(limits.fewest_tasks, schedule.work / (products_at_once * options.item_work));
  constexpr double a_read = 2;  // of a packed vector beyond the second-level cache
  const auto steps = static_cast<double>(k), vectors = static_cast<double>(chosen.tile.vectors);
  costs.tile = steps * chosen.tile.step;
  costs.rows = tile.packs_rows ? steps * kPacked * static_cast<double>(tile.rows) / static_cast<double>(lanes) : 0;
  costs.columns = steps * vectors * (tile.packs_columns ? kPacked : a_read);
  costs.read = steps * vectors * a_read;
  if (tile.packs_columns && options.strip == 0 && options.bytes_beside == 0) {
    tile.shared = true;
    costs.all_columns = kPacked * static_cast<double>(shared_bytes(nest, numbers, tile) / target.vector_bytes);
  }
  const auto [rows, columns] = best_tasks(costs, limits);
  schedule.phases = 1, schedule.shared_bytes = 0;
  tile.shared = tile.shared && packs_once(costs, up(row_tiles, rows));
  if (tile.shared) schedule.phases = 2, schedule.shared_bytes = shared_bytes(nest, numbers, tile);
  schedule.tile = columns * tile.width;
  schedule.tile_outer = rows * tile.rows;
  if (tile.swapped) std::swap(schedule.tile, schedule.tile_outer);
  schedule.tile_rows = 1;
  schedule.items = others * up(column_tiles, columns) * up(row_tiles, rows);
  return true;
}

std::int64_t shared_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile) {
  if (!tile.shared) return 0;
  const Contraction c = contraction_of(nest, tile.swapped);
  const std::int64_t n = numbers.extents[c.column_loop], k = numbers.extents[c.reduced_loop];
  std::int64_t elements = up(n, tile.width) * tile.width * (tile.turned ? up(k, tile.turned) * tile.turned : k);
  for (Id l = 0; l + 1 < nest.outer; ++l)
    if (nest.body[c.columns].loops & bit(l)) elements *= numbers.extents[l];
  return up(elements * static_cast<std::int64_t>(size_of(nest.body[c.columns].dtype)), 64) * 64;
}

std::int64_t scratch_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile, const ScheduleNumbers& schedule) {
  const Contraction c = contraction_of(nest, tile.swapped);
  const std::int64_t rows = tile.swapped ? schedule.tile : schedule.tile_outer,
                     columns = tile.swapped ? schedule.tile_outer : schedule.tile;
  const auto size = [&](Id statement) { return static_cast<std::int64_t>(size_of(nest.body[statement].dtype)); };
  const auto area = [&](std::int64_t bytes) { return up(bytes, 64) * 64; };
  const std::int64_t k = numbers.extents[c.reduced_loop], sums = tile.rows * tile.width * size(c.sum);
  const bool is_ordered = is_float(nest.body[c.sum].dtype), outside = blocks_outside(nest, c, tile);
  const std::int64_t at_once = outside ? ir::kRowBlock : k, blocks = up(k, ir::kRowBlock);
  const bool across = reads_across_rows(nest, c);
  std::int64_t bytes = area(sums);
  if (outside) bytes += area(schedule.tile * schedule.tile_outer * size(c.sum) * std::bit_width(static_cast<std::uint64_t>(blocks)));
  else if (is_ordered) bytes += area(sums);
  if (tile.packs_rows) {
    const std::int64_t pitch = across ? at_once : tile.pitch > 0 ? tile.pitch : up(at_once, ir::kRowBlock) * ir::kRowBlock;
    bytes += area(rows * pitch * size(c.rows));
  }
  if (tile.packs_columns && !tile.shared)
    bytes += area(columns * (tile.turned ? up(at_once, tile.turned) * tile.turned : at_once) * size(c.columns));
  return bytes;
}

Program contract(const Nest& nest, const RegisterTile& tile) {
  const Contraction c = contraction_of(nest, tile.swapped);
  if (c.sum == kNone) throw InternalError("loops: the nest is not a contraction of rows");
  const bool is_second = nest.body[c.sum].b == c.rows;  // rows are the second operand
  Steps s(lower(nest));
  const Id others = nest.outer - 1u;  // loops around both
  for (Id l = 0; l < others; ++l) s(sink(s.program(), s.loop(l)));

  // ---- loops: tasks, then the tiles of a task, then the reduced loop, then the elements of a tile
  const Digit::Size of_rows = tile.swapped ? Digit::Size::Tile : Digit::Size::TileOuter,
                    of_columns = tile.swapped ? Digit::Size::TileOuter : Digit::Size::Tile;
  const Id row_items = s.split(c.row_loop, of_rows), row_tiles = s.split(row_items + 1, tile.rows), row = row_tiles + 1;
  const Id column_items = s.split(c.column_loop, of_columns), column_tiles = s.split(column_items + 1, tile.width);
  const bool is_wide = tile.vector > 0 && tile.vector < tile.width;  // several vectors
  const Id vectors = is_wide ? s.split(column_tiles + 1, tile.vector) : kNone, column = is_wide ? vectors + 1 : column_tiles + 1;
  const auto lanes = static_cast<std::uint8_t>(is_wide ? tile.vector : tile.width);
  if (tile.swapped) {
    for (const auto& [loop, times] : {std::pair{column, 1}, {vectors, 1}, {column_tiles, 1}, {column, 2}, {vectors, 2}})
      for (int time = 0; time < times && loop != kNone; ++time) s.inside(loop);  // into the row tasks, their tiles, and the rows of a tile
  } else {
    s.inside(row);        // into the column tasks
    s.inside(row_tiles);  // into the column tasks
    s.inside(row);        // into the column tiles
    s.inside(row_tiles);  // into the column tiles
  }
  for (const Id element : {column, vectors, row}) {
    if (element == kNone) continue;
    const Id around = s.loop(element);
    Id inner = around + 1;
    while (s.program().lines[inner].code != Code::Loop) ++inner;
    s(fission(s.program(), around, s.program().lines[inner].end));
    s.inside(element);
  }
  const Id sum = s.program().lines[s.line(Code::Accumulate)].at;
  Id blocks = kNone;
  if (s.program().accumulators[sum].order == Accumulator::Order::Sequence) {
    s(expand_order(s.program(), sum));
    blocks = static_cast<Id>(s.program().digits.size() - 2);
  } else {
    blocks = s.split(c.reduced_loop, ir::kRowBlock);
  }
  const bool outside = blocks_outside(nest, c, tile);
  if (tile.one_block) s(once(s.program(), s.loop(blocks)));
  if (outside) {
    for (const Id tiles : {row_tiles, column_tiles}) {
      s(fission(s.program(), s.loop(tiles), s.program().lines[s.loop(blocks)].end));
      s.inside(tiles);
    }
    for (int loops = 0; loops < 2; ++loops)  // the rows of the result are stored in their order
      s.inside(column_tiles, s.program().lines[s.loop(blocks)].end);
  }
  const Id k = blocks + 1;
  Id summed = k;
  if (tile.turns_when_read()) {
    summed = s.split(k, tile.turned);
    const Id at_once = summed + 1;
    for (int loops = 0; loops < 2; ++loops) s.inside(at_once);
    for (int loops = 0; loops < 2; ++loops) s.inside(row);
    s(bind(s.program(), s.loop(row), Bind::Unrolled));
    s(bind(s.program(), s.loop(at_once), Bind::Unrolled));
  }
  s.bind_all(column, Bind::Vector, lanes);
  if (!outside && is_short_behind(nest, c.sum)) {  // stores the sums from registers
    s.bind_all(row, Bind::Unrolled);
    if (is_wide) s.bind_all(vectors, Bind::Unrolled);
  }
  s(bind(s.program(), s.loop(row), Bind::Unrolled));
  if (is_wide) s(bind(s.program(), s.loop(vectors), Bind::Unrolled));

  // Skips tiles that a mask makes empty. With several blocks, the mask is too far away from the tiles.
  if (const Id condition = needed_where(nest, c.sum); !outside && condition != kNone && is_short(nest, condition))
    s(leave_out(s.program(), s.around(summed), condition));

  // ---- prefetches of the next iterations' columns; each is in another row, which the hardware does not predict
  if (tile.asks_ahead && !tile.packs_columns) s.ask_ahead_along(column, summed);

  // ---- operands that are read many times are packed in the order in which they are read
  const auto part = [](Id root, Digit::Kind kind, std::int64_t by) { return Memory::Part{root, kind, by}; };
  using enum Digit::Kind;
  if (tile.packs_columns) {
    s(stage(s.program(), operand_line(s.program(), !is_second), tile.shared ? s.line(Code::Loop) : s.around(column_tiles)));
    const Id at = s.last_memory();
    s(pad(s.program(), s.loop(column, at)));
    if (is_wide) s(pad(s.program(), s.loop(vectors, at)));
    if (tile.turned > 0) {
      s(split(s.program(), s.loop(k, at), tile.turned));
      const Id at_once = static_cast<Id>(s.program().digits.size() - 1);
      s.inside(at_once, at);
      s(pad(s.program(), s.loop(at_once, at)));
      s(bind(s.program(), s.loop(at_once, at), Bind::Unrolled));
    } else {  // long rows: several strips at once
      for (int loops = outside ? 1 : tile.shared ? 2 : 0; loops > 0; --loops) s.inside(column_tiles, at);
      s.ask_ahead(k, at);
    }
    s(bind(s.program(), s.loop(column, at), Bind::Vector, lanes));
    if (is_wide) s(bind(s.program(), s.loop(vectors, at), Bind::Serial));
    std::vector<Memory::Part> layout;
    if (tile.shared) {
      for (Id l = 0; l < others; ++l)
        if (nest.body[c.columns].loops & bit(l)) layout.push_back(part(l, Whole, 0));
      if (outside) s(bind(s.program(), s.loop(blocks, at), Bind::Parallel));
    }
    layout.insert(layout.end(), {part(c.column_loop, Outer, tile.width), part(c.reduced_loop, Whole, tile.turned),
                                 part(c.column_loop, Inner, tile.width)});
    s(lay_out(s.program(), s.program().lines[at].at, std::move(layout)));
  }
  const bool across = reads_across_rows(nest, c);
  if (tile.packs_rows) {
    s(stage(s.program(), operand_line(s.program(), is_second), s.around(column_tiles)));
    const Id at = s.last_memory();
    std::vector<Memory::Part> layout = {part(c.row_loop, Outer, tile.rows), part(c.row_loop, Inner, tile.rows)};
    s(pad(s.program(), s.loop(row, at)));
    if (across) {  // long rows of the operand: several strips at once
      s.inside(row_tiles, at);
      s.ask_ahead(k, at);
      s(bind(s.program(), s.loop(row, at), Bind::Vector));
      layout.insert(layout.begin() + 1, part(c.reduced_loop, Whole, 0));
    } else if (s.ask_ahead(row, at); tile.pitch > 0) {
      s(interchange(s.program(), s.loop(k, at)));
      s(bind(s.program(), s.loop(k, at), Bind::Vector));
      layout.push_back({c.reduced_loop, Whole, tile.pitch, true});
    } else {
      s(interchange(s.program(), s.loop(k, at)));
      s(bind(s.program(), s.loop(k, at), Bind::Vector));
      layout.insert(layout.begin() + 1, part(c.reduced_loop, Outer, ir::kRowBlock));
      layout.push_back(part(c.reduced_loop, Inner, ir::kRowBlock));
    }
    s(lay_out(s.program(), s.program().lines[at].at, std::move(layout)));
  }
  if (tile.asks_ahead && tile.packs_columns) {
    constexpr std::uint8_t kSteps = 16;
    s(prefetch(s.program(), operand_line(s.program(), !is_second), s.around(summed), kSteps));
    if (tile.packs_rows && across) s(prefetch(s.program(), operand_line(s.program(), is_second), s.around(summed), kSteps));
  }
  // Blocks of zeros are common in large operands only: causal attention, triangular matrices.
  if (outside && tile.packs_rows && tile.packs_columns) s(skip_zeros(s.program(), s.around(summed)));
  for (Id l = 0; l < others; ++l) s.bind_all(l, Bind::Parallel);
  s.bind_all(row_items, Bind::Parallel);
  s.bind_all(column_items, Bind::Parallel);
  return std::move(s.program());
}

}  // namespace onepass::compiler::loops
