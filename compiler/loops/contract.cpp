// See contract.h. For x[i, k] and y[k, j], in tiles of 14 by 32:
//
//   for i/tile_outer, j/tile parallel
//     for k/256                                    a block of the order of summation
//       m0{j/32, k, j%32} = y                      once for all rows of the item; a strip stays in the first-level cache
//       m1{i/14, i%14, k} = x                      once for all columns; in the second-level cache
//       for j%tile/32, i%tile_outer/14
//         for k%256
//           for i%14 unrolled, j%32 vector         sums in registers
//         for i%14, j%32 vector                    into the tree of blocks
//     for j%tile/32, i%tile_outer/14
//       for i%14, j%32 vector                      what is computed from the sums, and stored
//
// Where there is one block, what is computed from a tile's sums follows them at once.
#include "compiler/loops/contract.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "compiler/loops/transform.h"
#include "compiler/target.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler::loops {

namespace {

std::uint64_t bit(Id loop) { return std::uint64_t{1} << loop; }

// A program under construction: each step asks one transformation, all of which are legal here.
class Steps {
 public:
  explicit Steps(Program program) : p_(std::move(program)) {}
  Program& program() { return p_; }
  void operator()(const Transformed& next) {
    if (!next) throw InternalError("loops: a contraction cannot be arranged: " + next.why_not());
    p_ = *next;
  }
  /// The first loop over a digit, from a line on.
  Id loop(Id digit, Id from = 0) const {
    for (Id i = from; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError(fmt::format("loops: no loop over digit {}", digit));
  }
  Id line(Code code, Id from = 0) const {
    while (from < p_.lines.size() && p_.lines[from].code != code) ++from;
    if (from == p_.lines.size()) throw InternalError("loops: a line is missing");
    return from;
  }
  /// Splits the first loop over a digit; its outer part.
  Id split(Id digit, std::int64_t by) {
    (*this)(loops::split(p_, loop(digit), by));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  Id split(Id digit, Digit::Size size) {
    (*this)(loops::split(p_, loop(digit), size));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  /// The loop over `digit` goes inside the one in its body.
  void inside(Id digit, Id from = 0) {
    (*this)(sink(p_, loop(digit, from)));
    (*this)(interchange(p_, loop(digit, from)));
  }
  /// The loop over a digit that the products are added up in.
  Id around(Id digit) const {
    Id sum = 0;
    while (p_.lines[sum].code != Code::Accumulate || p_.lines[sum].b == kNone) ++sum;
    Id line = loop(digit);
    while (p_.lines[line].end <= sum) line = loop(digit, line + 1);
    return line;
  }
  /// The loads behind line `at`, up to what they are kept for, are asked for some iterations of a loop ahead: the next rows, which the
  /// processor does not see coming.
  void ask_ahead(Id digit, Id at) {
    constexpr std::uint8_t kAhead = 2;
    const Id around = loop(digit, at);
    for (Id i = around; i < p_.lines[around].end; ++i)
      if (p_.lines[i].code == Code::Load) (*this)(prefetch(p_, i++, around, kAhead));
  }
  /// Where the memory that was made last begins.
  Id last_memory() const {
    Id line = 0;
    while (p_.lines[line].code != Code::Hold || p_.lines[line].at + 1 != p_.memories.size()) ++line;
    return line;
  }
  void bind_all(Id digit, Bind how, std::uint16_t lanes) {
    for (Id i = 0; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) (*this)(bind(p_, i, how, lanes));
  }

 private:
  Program p_;
};

// Does what the statement is computed from lie side by side along the loop, in the arrays that vary along it?
bool is_contiguous(const Nest& nest, Id statement, Id loop) {
  std::vector<bool> needed(nest.body.size(), false);
  needed[statement] = true;
  bool all = true;
  for (Id i = statement + 1; i-- > 0;) {
    const Statement& s = nest.body[i];
    if (!needed[i]) continue;
    for (const Id o : {s.a, s.b, s.c})
      if (o != Statement::kNone) needed[o] = true;
    if (s.kind == Statement::Kind::Load && (s.loops & bit(loop)))
      all &= nest.linears[nest.accesses[s.at].linear].of[loop] == Coefficient::One;
  }
  return all;
}

// Do the blocks of the order of summation run outside the tiles? Sums without an order stay in registers all the way.
bool blocks_outside(const Nest& nest, const Contraction& c, const RegisterTile& tile) {
  return is_float(nest.body[c.sum].dtype) && !tile.one_block;
}

Id operand_line(const Program& p, bool second) {
  for (const Line& l : p.lines)
    if (l.code == Code::Accumulate && l.b != kNone) return second ? l.b : l.a;
  throw InternalError("loops: no sum of products");
}

}  // namespace

Contraction contraction_of(const Nest& nest) {
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
  std::vector<bool> needed(nest.body.size(), false);  // by the operands
  needed[c.rows] = needed[c.columns] = true;
  for (Id i = static_cast<Id>(nest.body.size()); i-- > 0;) {
    if (!needed[i]) continue;
    if (nest.body[i].kind == Statement::Kind::Place) return none;
    for (const Id o : {nest.body[i].a, nest.body[i].b, nest.body[i].c, nest.body[i].guard})
      if (o != Statement::kNone) needed[o] = true;
  }
  if (!varies(c.rows, c.row_loop) || varies(c.rows, c.column_loop) || varies(c.columns, c.row_loop) || !varies(c.columns, c.column_loop))
    return none;
  return c;
}

bool choose_tile(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options, RegisterTile& tile,
                 ScheduleNumbers& schedule) {
  constexpr std::int64_t fewest_rows = 4;  // fewer read the other operand about as often as memory gives it
  constexpr std::int64_t few_tiles = 64;   // for each thread: below that, items are as few as threads
  constexpr std::int64_t items_per_thread = 4;
  constexpr std::int64_t fewest_tiles = 8;       // of an item along each loop, if possible: each operand is packed for those of the other
  constexpr std::int64_t most_columns = 16;      // tiles: the trees of an item are as large as its part of the result
  constexpr std::int64_t products_at_once = 64;  // in the time of other work
  const Contraction c = contraction_of(nest);
  if (c.sum == kNone) return false;
  const DType dtype = nest.body[c.sum].dtype;
  const std::int64_t m = numbers.extents[c.row_loop], n = numbers.extents[c.column_loop], k = numbers.extents[c.reduced_loop];
  const bool across = !is_contiguous(nest, c.columns, c.column_loop);
  if (m < (across ? 2 : fewest_rows) || n < 1 || k < 1 || size_of(dtype) < 4) return false;
  const auto up = [](std::int64_t a, std::int64_t by) { return (a + by - 1) / by; };
  const std::int64_t lanes = target.vector_bytes / static_cast<std::int64_t>(size_of(dtype)), vectors = n > lanes ? 2 : 1;
  const bool many = target.vector_registers() >= 32;
  tile = {};
  tile.width = static_cast<std::uint8_t>(vectors * lanes);
  tile.one_block = k <= ir::kRowBlock;
  // registers: the sums, a row of one operand and an element of the other
  const bool once = n <= tile.width;  // each row is read for one tile alone, and from where it stands: it has an address of its own
  const std::int64_t most = many ? (once ? 8 : 14) : vectors == 2 ? 6 : 8;
  const std::int64_t wanted = up(m, up(m, most));
  for (const std::int64_t rows : {2, 4, 6, 8, 10, 12, 13, 14})
    if (rows >= wanted) {
      tile.rows = static_cast<std::uint8_t>(rows);
      break;
    }
  const std::int64_t row_tiles = up(m, tile.rows), column_tiles = up(n, tile.width);
  tile.packs_rows = !once;
  tile.packs_columns = row_tiles >= 4 || across;
  if (across && is_contiguous(nest, c.columns, c.reduced_loop)) tile.turned = static_cast<std::uint8_t>(std::min<std::int64_t>(lanes, 16));

  // ---- items: the packed rows of a block in an eighth of the second-level cache
  const std::int64_t threads = std::max(1, options.threads);
  const std::int64_t strip = std::min(k, ir::kRowBlock) * tile.rows * static_cast<std::int64_t>(size_of(nest.body[c.rows].dtype));
  std::int64_t others = 1;
  for (Id l = 0; l < c.row_loop; ++l) others *= numbers.extents[l];
  std::int64_t columns = std::min(column_tiles, most_columns), rows = std::clamp<std::int64_t>(target.l2_bytes / 8 / strip, 1, row_tiles);
  if (options.strip > 0) rows = std::min(up(options.strip, tile.rows), row_tiles);
  const auto items = [&] { return others * up(column_tiles, columns) * up(row_tiles, rows); };
  std::int64_t least = 1;
  if (options.strip == 0 && threads > 1 && schedule.work >= options.split_work)
    least = threads * std::clamp<std::int64_t>(others * row_tiles * column_tiles / (few_tiles * threads), 1, items_per_thread);
  if (options.item_work > 0) least = std::max(least, schedule.work / (products_at_once * options.item_work));
  for (const std::int64_t fewest : {fewest_tiles, std::int64_t{1}})
    while (items() < least && std::max(rows, columns) > fewest)
      if ((rows * tile.rows > columns * tile.width && rows > fewest) || columns <= fewest) rows = up(rows, 2);
      else columns = up(columns, 2);
  columns = up(column_tiles, up(column_tiles, columns));  // items of about one size
  if (options.strip == 0) rows = up(row_tiles, up(row_tiles, rows));
  schedule.tile = columns * tile.width;
  schedule.tile_outer = rows * tile.rows;
  schedule.tile_rows = 1;
  schedule.items = items();
  return true;
}

std::int64_t scratch_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile, const ScheduleNumbers& schedule) {
  const Contraction c = contraction_of(nest);
  const auto up = [](std::int64_t a, std::int64_t by) { return (a + by - 1) / by; };
  const auto size = [&](Id statement) { return static_cast<std::int64_t>(size_of(nest.body[statement].dtype)); };
  const auto area = [&](std::int64_t bytes) { return up(bytes, 64) * 64; };
  const std::int64_t k = numbers.extents[c.reduced_loop], sums = tile.rows * tile.width * size(c.sum);
  const bool is_ordered = is_float(nest.body[c.sum].dtype), outside = blocks_outside(nest, c, tile);
  const std::int64_t at_once = outside ? ir::kRowBlock : k, blocks = up(k, ir::kRowBlock);
  const bool across = is_contiguous(nest, c.rows, c.row_loop) && !is_contiguous(nest, c.rows, c.reduced_loop);
  std::int64_t bytes = area(sums);
  if (outside) bytes += area(schedule.tile * schedule.tile_outer * size(c.sum) * std::bit_width(static_cast<std::uint64_t>(blocks)));
  else if (is_ordered) bytes += area(sums);
  if (tile.packs_rows) bytes += area(schedule.tile_outer * (across ? at_once : up(at_once, ir::kRowBlock) * ir::kRowBlock) * size(c.rows));
  if (tile.packs_columns) bytes += area(schedule.tile * (tile.turned ? up(at_once, tile.turned) * tile.turned : at_once) * size(c.columns));
  return bytes;
}

Program contract(const Nest& nest, const RegisterTile& tile) {
  const Contraction c = contraction_of(nest);
  if (c.sum == kNone) throw InternalError("loops: the nest is no contraction of rows");
  const bool is_second = nest.body[c.sum].b == c.rows;  // the operand of the rows
  Steps s(lower(nest));
  for (Id l = 0; l < c.row_loop; ++l) s(sink(s.program(), s.loop(l)));

  // ---- loops: items, then tiles in an item, then the reduced loop, then a tile's elements
  const Id row_items = s.split(c.row_loop, Digit::Size::TileOuter), row_tiles = s.split(row_items + 1, tile.rows), row = row_tiles + 1;
  const Id column_items = s.split(c.column_loop, Digit::Size::Tile), column_tiles = s.split(column_items + 1, tile.width),
           column = column_tiles + 1;
  s.inside(row);        // of the items of columns
  s.inside(row_tiles);  // of these
  s.inside(row);        // of the tiles of columns
  s.inside(row_tiles);  // of these
  for (const Id element : {column, row}) {
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
    for (int loops = 0; loops < 2; ++loops)  // rows of the result are stored as they lie
      s.inside(column_tiles, s.program().lines[s.loop(blocks)].end);
  }
  s.bind_all(column, Bind::Vector, tile.width);
  s(bind(s.program(), s.loop(row), Bind::Unrolled));

  // ---- what is read many times is laid out beforehand in the order in which it is read
  const Id k = blocks + 1;
  const auto part = [](Id root, Digit::Kind kind, std::int64_t by) { return Memory::Part{root, kind, by}; };
  using enum Digit::Kind;
  if (tile.packs_columns) {
    s(stage(s.program(), operand_line(s.program(), !is_second), s.around(column_tiles)));
    const Id at = s.last_memory();
    s(pad(s.program(), s.loop(column, at)));
    if (tile.turned > 0) {
      s(split(s.program(), s.loop(k, at), tile.turned));
      const Id at_once = static_cast<Id>(s.program().digits.size() - 1);
      s.inside(at_once, at);
      s(pad(s.program(), s.loop(at_once, at)));
      s(bind(s.program(), s.loop(at_once, at), Bind::Unrolled));
    } else {  // rows of several strips at once: they are long
      for (int loops = outside ? 1 : 2; loops > 0; --loops) s.inside(column_tiles, at);
      s.ask_ahead(k, at);
    }
    s(bind(s.program(), s.loop(column, at), Bind::Vector, tile.width));
    s(lay_out(s.program(), s.program().lines[at].at,
              {part(c.column_loop, Outer, tile.width), part(c.reduced_loop, Whole, tile.turned), part(c.column_loop, Inner, tile.width)}));
  }
  if (tile.packs_rows) {
    s(stage(s.program(), operand_line(s.program(), is_second), s.around(column_tiles)));
    const Id at = s.last_memory();
    std::vector<Memory::Part> layout = {part(c.row_loop, Outer, tile.rows), part(c.row_loop, Inner, tile.rows)};
    s(pad(s.program(), s.loop(row, at)));
    s.ask_ahead(row, at);
    if (is_contiguous(nest, c.rows, c.row_loop) && !is_contiguous(nest, c.rows, c.reduced_loop)) {
      s(bind(s.program(), s.loop(row, at), Bind::Vector));
      layout.insert(layout.begin() + 1, part(c.reduced_loop, Whole, 0));
    } else {
      s(interchange(s.program(), s.loop(k, at)));
      s(bind(s.program(), s.loop(k, at), Bind::Vector));
      layout.insert(layout.begin() + 1, part(c.reduced_loop, Outer, ir::kRowBlock));
      layout.push_back(part(c.reduced_loop, Inner, ir::kRowBlock));
    }
    s(lay_out(s.program(), s.program().lines[at].at, std::move(layout)));
  }
  for (Id l = 0; l < c.row_loop; ++l) s(bind(s.program(), s.loop(l), Bind::Parallel));
  s(bind(s.program(), s.loop(row_items), Bind::Parallel));
  s(bind(s.program(), s.loop(column_items), Bind::Parallel));
  return std::move(s.program());
}

}  // namespace onepass::compiler::loops
