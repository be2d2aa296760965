// See interpret.h.
#include "compiler/loops/interpret.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/plan/schedule.h"
#include "ir/build.h"
#include "ir/order.h"
#include "ir/reference.h"
#include "onepass/error.h"
#include "onepass/half.h"

namespace onepass::compiler::loops {

namespace {

using ir::Op;
using Bits = std::uint64_t;  // value of the computation type, in the low bytes

Bits combine(Op op, DType t, Bits a, Bits b) {
  if (t == DType::Bool) return op == Op::Maximum ? a | b : a & b;
  const Bits operands[2] = {a, b};
  return ir::apply(op, t, t, operands);
}

Bits product_added(DType t, Bits a, Bits b, Bits sum) {
  if (is_float(t)) {
    const Bits operands[3] = {a, b, sum};
    return ir::apply(Op::Fma, t, t, operands);
  }
  const Bits factors[2] = {a, b};
  return combine(Op::Add, t, ir::apply(Op::Mul, t, t, factors), sum);
}

Bits identity(Op op, DType t) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const bool real = is_float(t), is_signed = is_signed_integer(t);
  const Bits top = Bits{1} << (8 * size_of(t) - 1), all = top | (top - 1);
  switch (op) {
    case Op::Add: return real ? ir::bits_of(t, -0.0) : 0;
    case Op::Mul: return ir::bits_of(t, 1.0);
    case Op::Maximum: return real ? ir::bits_of(t, -infinity) : is_signed ? top : 0;
    default: return real ? ir::bits_of(t, infinity) : t == DType::Bool ? 1 : is_signed ? top - 1 : all;
  }
}

// One element of an accumulator, by the definition of its order (ir/order.h).
class Sum {
 public:
  Sum(const Accumulator& of, bool joins_chunks) : of_(&of), joins_chunks_(joins_chunks), identity_(identity(of.op, of.dtype)) { reset(); }

  void add(std::int64_t r, Bits a, Bits b) {
    if (of_->finds) return find(a, b);
    if (joins_chunks_) {  // in any order
      const auto at = static_cast<std::size_t>(r);
      if (blocks_.size() <= at) blocks_.resize(at + 1, identity_);
      blocks_[at] = a;
      return;
    }
    if (r <= last_ && of_->order != Accumulator::Order::Any)
      throw InternalError(fmt::format("loops: element {} is added after element {}", r, last_));
    last_ = r;
    if (of_->part == Accumulator::Part::Tree || of_->part == Accumulator::Part::Eight) {
      Bits alone = of_->is_product ? product_added(of_->dtype, a, b, identity_) : a;
      return blocks_.push_back(alone);
    }
    if (of_->part == Accumulator::Part::Block) return into(parts_[0], a, b);
    switch (of_->order) {
      case Accumulator::Order::Any: return into(parts_[0], a, b);
      case Accumulator::Order::Lanes:
        enter_block(r, ir::kLaneBlock);
        return into(parts_[static_cast<std::size_t>(r) % parts_.size()], a, b);
      case Accumulator::Order::Sequence: enter_block(r, ir::kRowBlock); return into(parts_[0], a, b);
      case Accumulator::Order::Rows:
        enter_block(r, ir::kRowBlock);
        if (r / ir::kRowGroup != group_) close_group(), group_ = r / ir::kRowGroup;
        return into(parts_[static_cast<std::size_t>(r % ir::kRowGroup)], a, b);
      case Accumulator::Order::Scan: throw InternalError("loops: a scan is not a sum");
    }
  }
  Bits total() {
    if (of_->finds) return found_;
    if (joins_chunks_) return tree(0, blocks_.size());
    if (of_->order == Accumulator::Order::Any || of_->part == Accumulator::Part::Block) return parts_[0];
    if (of_->part != Accumulator::Part::All) return tree(0, blocks_.size());
    close_block();
    return tree(0, blocks_.size());
  }
  Bits scanned(std::int64_t r, Bits a) {
    if (r != last_ + 1) throw InternalError(fmt::format("loops: a scan goes from element {} to element {}", last_, r));
    last_ = r;
    if (r > 0 && r % ir::kScanBlock == 0) {
      base_ = combine(of_->op, of_->dtype, base_, carry_with_group());
      carry_ = identity_, parts_.clear();
    } else if (r % of_->group == 0) {
      carry_ = carry_with_group(), parts_.clear();
    }
    parts_.push_back(a);
    return combine(of_->op, of_->dtype, base_, carry_with_group());
  }

 private:
  const Accumulator* of_;
  bool joins_chunks_, any_ = false;
  Bits best_ = 0, found_ = std::numeric_limits<std::int64_t>::max();  // of a search
  Bits identity_, carry_ = 0, base_ = 0, sum_ = 0;
  std::vector<Bits> parts_, blocks_;  // lanes, or a group of rows or of a scan; sums of the completed blocks
  std::int64_t last_ = -1, block_ = 0, group_ = 0;

  void reset() {
    carry_ = base_ = sum_ = identity_;
    const bool is_scan = of_->order == Accumulator::Order::Scan;
    const std::size_t lanes = of_->dtype == DType::F64 ? 32 : 64;
    parts_.assign(of_->part != Accumulator::Part::All       ? 1
                  : is_scan                                 ? 0
                  : of_->order == Accumulator::Order::Lanes ? lanes
                  : of_->order == Accumulator::Order::Rows  ? static_cast<std::size_t>(ir::kRowGroup)
                                                            : 1,
                  identity_);
  }
  void find(Bits element, Bits index) {
    const auto is = [&](Op op, Bits a, Bits b) {
      const Bits operands[2] = {a, b};
      return ir::apply(op, *of_->finds, DType::Bool, std::span(operands).first(op == Op::Isnan ? 1 : 2)) != 0;
    };
    const bool real = is_float(*of_->finds), has_nan = any_ && real && is(Op::Isnan, best_, 0);
    const bool further = any_ && is(of_->op == Op::Maximum ? Op::Greater : Op::Less, element, best_);
    if (any_ && (has_nan || !(further || (real && is(Op::Isnan, element, 0))))) return;
    any_ = true, best_ = element, found_ = index;
  }
  void into(Bits& part, Bits a, Bits b) const {
    part = of_->is_product ? product_added(of_->dtype, a, b, part) : combine(of_->op, of_->dtype, part, a);
  }
  // Adds neighbors, then the sums of neighbors, and so on.
  void close_group() {
    for (std::size_t step = 1; step < parts_.size(); step *= 2)
      for (std::size_t i = 0; i + step < parts_.size(); i += 2 * step)
        parts_[i] = combine(of_->op, of_->dtype, parts_[i], parts_[i + step]);
    sum_ = combine(of_->op, of_->dtype, sum_, parts_[0]);
    std::ranges::fill(parts_, identity_);
  }
  void close_block() {
    Bits block = parts_[0];
    if (of_->order == Accumulator::Order::Rows) {
      close_group();
      block = sum_;
    } else {
      for (std::size_t half = parts_.size() / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) parts_[i] = combine(of_->op, of_->dtype, parts_[i], parts_[i + half]);
      block = parts_[0];
    }
    blocks_.push_back(block);
    reset();
  }
  void enter_block(std::int64_t r, std::int64_t length) {
    for (; block_ < r / length; ++block_) close_block();
    if (of_->order == Accumulator::Order::Rows && r % length == 0) group_ = r / ir::kRowGroup;
  }
  Bits tree(std::size_t first, std::size_t count) const {
    if (count == 1) return blocks_[first];
    const auto k = static_cast<std::size_t>(ir::tree_split(static_cast<std::int64_t>(count)));
    return combine(of_->op, of_->dtype, tree(first, k), tree(first + k, count - k));
  }
  // Returns the carry plus the elements of the incomplete group, as sums over 1, 2, 4, 8 elements to the left.
  Bits carry_with_group() const {
    std::vector<Bits> v = parts_;
    for (std::size_t d = 1; d < of_->group; d *= 2)
      for (std::size_t i = v.size(); i-- > 0;) v[i] = combine(of_->op, of_->dtype, i >= d ? v[i - d] : identity_, v[i]);
    return v.empty() ? carry_ : combine(of_->op, of_->dtype, carry_, v.back());
  }
};

class Interpreter {
 public:
  Interpreter(const Program& program, std::span<const std::int64_t> words, TaskOrder order)
      : p_(program),
        nest_(program.nest),
        words_(words),
        layout_(program.nest),
        order_(order),
        index_(program.digits.size(), 0),
        is_open_(program.digits.size(), false),
        value_of_loop_(nest_.loops(), 0),
        split_(program.digits.size()),
        values_(program.lines.size(), 0),
        place_of_(nest_.body.size(), 0),
        sums_(program.accumulators.size()),
        memories_(program.memories.size()) {
    for (Id d = 0; d < p_.digits.size(); ++d)
      if (p_.digits[d].kind == Digit::Kind::Outer) split_[p_.digits[d].parent].push_back(d);
  }

  void run() { block(0, static_cast<Id>(p_.lines.size())); }

 private:
  const Program& p_;
  const Nest& nest_;
  std::span<const std::int64_t> words_;
  WordLayout layout_;
  TaskOrder order_;
  std::uint64_t drawn_ = 1;
  std::vector<std::int64_t> index_;  // by digit
  std::vector<bool> is_open_;        // by digit
  std::vector<std::int64_t> value_of_loop_;
  std::vector<std::vector<Id>> split_;  // by digit: outer digits of its splits
  std::vector<Bits> values_;            // by line
  std::vector<std::int64_t> place_of_;  // by statement: latest value of a checked index that floordiv/mod variables use
  std::vector<std::map<std::vector<std::int64_t>, Sum>> sums_;
  std::vector<std::map<std::vector<std::int64_t>, Bits>> memories_;

  std::int64_t extent(Id loop) const { return words_[layout_.extents + loop]; }
  std::int64_t by(const Digit& d) const {
    switch (d.size) {
      case Digit::Size::Number: break;
      case Digit::Size::Tile: return words_[layout_.tile];
      case Digit::Size::TileOuter: return words_[layout_.tile_outer];
      case Digit::Size::TileRows: return words_[layout_.tile_rows];
      case Digit::Size::Chunk: return words_[layout_.chunk];
    }
    return d.by;
  }

  // Recursion depth is the loop depth of the program.
  void block(Id begin, Id end) {
    for (Id i = begin; i < end; ++i) {
      const Line& line = p_.lines[i];
      if (line.code != Code::Loop) {
        step(i, line);
        continue;
      }
      is_open_[line.at] = true;
      for (const std::int64_t index : iterations(line)) {
        index_[line.at] = index;
        if (enter(line.at)) block(i + 1, line.end);
      }
      is_open_[line.at] = false;
      i = line.end - 1;
    }
  }
  std::vector<std::int64_t> iterations(const Line& line) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(iterations_of(line.at)));
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<std::int64_t>(k);
    if (line.bind != Bind::Parallel || order_ == TaskOrder::Forward) return all;
    std::ranges::reverse(all);
    if (order_ == TaskOrder::Shuffled)
      for (std::size_t k = all.size(); k > 1; --k) {
        drawn_ = drawn_ * 6364136223846793005u + 1442695040888963407u;
        std::swap(all[k - 1], all[static_cast<std::size_t>(drawn_ >> 33) % k]);
      }
    return all;
  }
  std::int64_t iterations_of(Id digit) const {
    const Digit& d = p_.digits[digit];
    switch (d.kind) {
      case Digit::Kind::Whole: return extent(d.root);
      case Digit::Kind::Outer: {
        const std::int64_t n = (iterations_of(d.parent) + by(d) - 1) / by(d);
        if (d.once && n > 1) throw InternalError(fmt::format("loops: a loop of {} iterations is marked as having one", n));
        return n;
      }
      case Digit::Kind::Inner: break;
    }
    return p_.digits[d.pair].once ? std::min(by(d), iterations_of(d.parent)) : by(d);
  }
  // Sets `value` to the index of a digit if the digit or all its parts are open.
  bool value_of(Id digit, std::int64_t& value) const {
    if (is_open_[digit]) return value = index_[digit], true;
    for (const Id outer : split_[digit]) {
      std::int64_t high = 0, low = 0;
      if (value_of(outer, high) && value_of(p_.digits[outer].pair, low)) return value = high * by(p_.digits[outer]) + low, true;
    }
    return false;
  }
  // Returns the lowest index of a digit in this iteration of its open parts.
  std::int64_t lowest(Id digit) const {
    if (is_open_[digit]) return index_[digit];
    for (const Id outer : split_[digit])
      if (has_open_part(outer) || has_open_part(p_.digits[outer].pair))
        return lowest(outer) * by(p_.digits[outer]) + lowest(p_.digits[outer].pair);
    return 0;
  }
  bool has_open_part(Id digit) const {
    return is_open_[digit] ||
           std::ranges::any_of(split_[digit], [&](Id outer) { return has_open_part(outer) || has_open_part(p_.digits[outer].pair); });
  }
  // Returns false if the whole iteration is beyond the end of a split loop.
  bool enter(Id digit) {
    for (Id d = p_.digits[digit].parent; d != kNone; d = p_.digits[d].parent)
      if (lowest(d) >= iterations_of(d)) return false;
    value_of(p_.digits[digit].root, value_of_loop_[p_.digits[digit].root]);
    return true;
  }

  // ---- affine maps

  std::int64_t variable(std::size_t v) const {
    if (v < nest_.loops()) return value_of_loop_[v];
    const std::size_t q = v - nest_.loops();
    const Derived& d = nest_.derived[q];
    if (d.place != Derived::kNone) return place_of_[d.place];
    const std::int64_t x = map(d.linear) + words_[layout_.offset_of(d.linear)], by = words_[layout_.by + q];
    const std::int64_t rest = (x % by + by) % by;
    return d.modulo ? rest : (x - rest) / by;
  }
  // Returns the affine map without its offset.
  std::int64_t map(Id linear) const {
    std::int64_t x = 0;
    for (Id v = 0; v < layout_.variables; ++v)
      if (nest_.linears[linear].of[v] != Coefficient::Zero) x += words_[layout_.coefficient_of(linear, v)] * variable(v);
    return x;
  }
  std::int64_t value_of_map(Id linear) const { return map(linear) + words_[layout_.offset_of(linear)]; }

  std::byte* address(Id access) const {
    const Access& a = nest_.accesses[access];
    std::int64_t base = words_[layout_.pointers + access];
    if (a.table != Access::kNone) {  // pointer table; its size precedes it
      std::int64_t table[1];
      std::memcpy(table, reinterpret_cast<const std::byte*>(base) - 8, 8);
      const std::int64_t member = std::clamp<std::int64_t>(value_of_map(a.table), 0, table[0] - 1);
      std::memcpy(&base, reinterpret_cast<const std::byte*>(base) + 8 * member, 8);
    }
    return reinterpret_cast<std::byte*>(base) + map(a.linear) * static_cast<std::int64_t>(size_of(nest_.buffers[a.buffer].dtype));
  }

  // ---- memory: halves are computed in f32; any nonzero byte is true

  Bits read(Id access) const {
    const DType t = nest_.buffers[nest_.accesses[access].buffer].dtype;
    Bits bits = 0;
    std::memcpy(&bits, address(access), size_of(t));
    if (t == DType::Bool) return bits != 0;
    if (!is_half(t)) return bits;
    const auto half = static_cast<std::uint16_t>(bits);
    return std::bit_cast<std::uint32_t>(t == DType::F16 ? detail::float_of_f16(half) : detail::float_of_bf16(half));
  }
  void write(Id access, Bits bits) const {
    const DType t = nest_.buffers[nest_.accesses[access].buffer].dtype;
    if (is_half(t)) {
      const double value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      bits = t == DType::F16 ? detail::bits_of_half<10, 5>(value) : detail::bits_of_half<7, 8>(value);
    }
    std::memcpy(address(access), &bits, size_of(t));
  }

  // ---- lines

  bool holds(const Line& line) const { return line.guard == kNone || values_[line.guard] != 0; }
  Bits value(Id line) const { return line == kNone ? 0 : values_[line]; }

  void step(Id i, const Line& line) {
    switch (line.code) {
      case Code::Loop:
      case Code::Prefetch:
      case Code::PrefetchMemory: break;
      case Code::Start: sums_[line.at].clear(); break;
      case Code::Load: values_[i] = holds(line) ? read(line.at) : 0; break;
      case Code::Store:
        if (holds(line)) write(line.at, value(line.a));
        break;
      case Code::AddTo:
        if (holds(line)) write(line.at, combine(Op::Add, line.dtype, read(line.at), value(line.a)));
        break;
      case Code::Index: {
        const Bits operand[1] = {static_cast<Bits>(value_of_map(line.at))};
        values_[i] = ir::apply(Op::Cast, DType::I64, is_half(line.half) ? line.half : line.dtype, operand);
        break;
      }
      case Code::Slot: std::memcpy(&values_[i], &words_[layout_.slots + line.at], size_of(line.dtype)); break;
      case Code::Constant: values_[i] = line.bits; break;
      case Code::Op: values_[i] = applied(line); break;
      case Code::Guard:
        values_[i] = 1;
        for (Id c = line.at; c < line.at + line.count && values_[i]; ++c) {
          const std::int64_t x = value_of_map(nest_.checks[c].linear);
          values_[i] = x >= 0 && x < words_[layout_.bounds + c];
        }
        break;
      case Code::Place: values_[i] = static_cast<Bits>(place(line)); break;
      case Code::Accumulate: sum_of(line.at).add(position(p_.accumulators[line.at]), value(line.a), value(line.b)); break;
      case Code::Result: values_[i] = sum_of(line.at).total(); break;
      case Code::Halve: values_[i] = halved(line.at); break;
      case Code::Hold: memories_[line.at].clear(); break;
      case Code::Keep:
        if (!memories_[line.at].try_emplace(index_in(line.at), value(line.a)).second)
          throw InternalError(fmt::format("loops: m{} stores one element twice", line.at));
        break;
      case Code::Recall: {
        const auto kept = memories_[line.at].find(index_in(line.at));
        if (kept == memories_[line.at].end()) throw InternalError(fmt::format("loops: m{} recalls a value that was not stored", line.at));
        values_[i] = kept->second;
        break;
      }
      case Code::Scan: values_[i] = sum_of(line.at).scanned(position(p_.accumulators[line.at]), value(line.a)); break;
    }
    if (line.of != kNone && line.dtype == DType::I64) place_of_[line.of] = static_cast<std::int64_t>(values_[i]);
  }

  Bits applied(const Line& line) const {
    Bits operands[3];
    std::size_t n = 0;
    DType from = line.dtype;
    for (const Id o : {line.a, line.b, line.c})
      if (o != kNone) operands[n++] = values_[o], from = p_.lines[o].dtype;
    const bool makes_half = is_half(line.half) && line.dtype == DType::F32;
    if (is_half(line.half) && !makes_half) from = line.half;
    return ir::apply(line.op, from, makes_half ? line.half : line.dtype, std::span(operands, n));
  }

  std::int64_t place(const Line& line) const {
    const DType from = p_.lines[line.a].dtype;
    const Bits operand[1] = {value(line.a)};
    const std::int64_t bound = words_[layout_.bounds + line.at];
    std::int64_t at = from == DType::I64 ? static_cast<std::int64_t>(operand[0])
                                         : static_cast<std::int64_t>(ir::apply(Op::Cast, from, DType::I64, operand));
    if (at < 0 && is_signed_integer(from)) at += bound;
    if (at >= 0 && at < bound) return at;
    if (holds(line)) *reinterpret_cast<std::int64_t*>(words_[layout_.flag]) = 1;
    return 0;
  }

  Sum& sum_of(Id accumulator) {
    const Accumulator& a = p_.accumulators[accumulator];
    std::vector<std::int64_t> at;
    for (const Id axis : a.axes) at.push_back(index_[axis]);
    return sums_[accumulator].try_emplace(std::move(at), a, joins_chunks(p_, a)).first->second;
  }
  std::vector<std::int64_t> index_in(Id memory) const {
    std::vector<std::int64_t> at;
    for (const Id axis : p_.memories[memory].axes) at.push_back(value_of_loop_[axis]);
    return at;
  }
  Bits halved(Id accumulator) {
    const Accumulator& a = p_.accumulators[accumulator];
    std::vector<Bits> lanes;
    const auto each = [&](auto&& self, std::size_t axis) -> void {  // digits of the summed loop are the lanes, outer digits first
      while (axis < a.axes.size() && p_.digits[a.axes[axis]].root != p_.digits[a.reduced[0]].root) ++axis;
      if (axis == a.axes.size()) return lanes.push_back(sum_of(accumulator).total());
      const Id lane = a.axes[axis];
      for (index_[lane] = 0; index_[lane] < iterations_of(lane); ++index_[lane]) self(self, axis + 1);
    };
    each(each, 0);
    lanes.resize(a.dtype == DType::F64 ? 32 : 64, identity(a.op, a.dtype));
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) lanes[i] = combine(a.op, a.dtype, lanes[i], lanes[i + half]);
    return lanes[0];
  }
  std::int64_t position(const Accumulator& a) const {
    std::int64_t r = 0, within = 0, run = 0;
    for (std::size_t k = 0; k < a.reduced.size(); ++k) {
      std::int64_t& part = k < a.runs ? run : within;
      std::int64_t at = 0;
      value_of(a.reduced[k], at);
      part = part * iterations_of(a.reduced[k]) + at;
      r = r * iterations_of(a.reduced[k]) + at;
    }
    return a.runs == 0 ? r : run * words_[layout_.padded_run] + within;
  }
};

}  // namespace

void interpret(const Program& program, std::span<const std::int64_t> words, TaskOrder order) { Interpreter(program, words, order).run(); }

}  // namespace onepass::compiler::loops
