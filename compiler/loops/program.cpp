// See program.h.
#include "compiler/loops/program.h"

#include <algorithm>
#include <utility>

#include "ir/order.h"

namespace onepass::compiler::loops {

ir::Op combiner(ir::Op reduction) {
  using ir::Op;
  switch (reduction) {
    case Op::ReduceSum:
    case Op::ScanSum:
    case Op::ContractLanes:
    case Op::ContractRows: return Op::Add;
    case Op::ReduceProd:
    case Op::ScanProd: return Op::Mul;
    case Op::ReduceMax:
    case Op::ScanMax: return Op::Maximum;
    default: return Op::Minimum;
  }
}

Accumulator accumulator_of(const Nest& nest, Id statement) {
  using enum Accumulator::Order;
  const Statement& s = nest.body[statement];
  const bool is_column = s.kind == Statement::Kind::Reduce && s.count != 0, is_scan = s.kind == Statement::Kind::Scan;
  Accumulator a{.op = combiner(s.op), .dtype = s.dtype, .is_product = ir::is_contraction(s.op)};
  for (Id l = 0; l < nest.loops(); ++l)
    if (is_scan && nest.kind == NestKind::Map ? l == nest.vector_loop() : (nest.reduced_mask() >> l & 1) != is_column)
      a.reduced.push_back(l);
  if (is_scan) {
    a.order = Scan;
    a.group = nest.kind == NestKind::Map ? static_cast<std::uint8_t>(ir::kScanGroup) : 1;
  } else if (is_float(s.dtype) && (a.op == ir::Op::Add || a.op == ir::Op::Mul)) {
    const bool in_rows = is_column || nest.kind == NestKind::Rows;
    a.order = !in_rows ? Lanes : a.is_product ? Sequence : Rows;
    a.runs = is_column ? 0 : nest.runs;
  }
  return a;
}

Accumulator finder_of(const Nest& nest, Id statement, const IndexSearch& search) {
  Accumulator a = accumulator_of(nest, statement);
  a.op = combiner(nest.body[search.extreme].op);
  a.finds = nest.body[search.value].dtype;
  return a;
}

bool joins_chunks(const Program& program, const Accumulator& a) {
  if (a.part != Accumulator::Part::Tree || a.reduced.size() != 1 || a.reduced[0] >= program.digits.size()) return false;
  const Digit& d = program.digits[a.reduced[0]];
  return d.kind == Digit::Kind::Outer && d.size == Digit::Size::Chunk;
}

// A digit has parts if it is open, or if both digits of a split of it have parts. The first such split counts. Digits follow their parents,
// so one pass from the last digit finds them: a loop that is written out has hundreds of splits.
std::vector<Id> parts_of(const Program& program, Id digit, const std::vector<Id>& open) {
  const auto is_open = [&](Id d) { return std::ranges::find(open, d) != open.end(); };
  if (is_open(digit)) return {digit};
  const auto n = static_cast<Id>(program.digits.size());
  std::vector<Id> splits(n, kNone), next(n, kNone), split(n, kNone);  // the outer digits of each digit's splits; the split that counts
  std::vector<bool> has_parts(n, false);
  for (Id d = n; d-- > digit;) {
    const Digit& of = program.digits[d];
    has_parts[d] = is_open(d);
    for (Id outer = splits[d]; outer != kNone && !has_parts[d]; outer = next[outer])
      if (has_parts[outer] && has_parts[program.digits[outer].pair]) has_parts[d] = true, split[d] = outer;
    if (of.kind == Digit::Kind::Outer && of.parent < d) next[d] = std::exchange(splits[of.parent], d);
  }
  std::vector<Id> parts, left = {digit};
  while (has_parts[digit] && !left.empty()) {
    const Id d = left.back();
    left.pop_back();
    if (split[d] == kNone) parts.push_back(d);
    else left.insert(left.end(), {program.digits[split[d]].pair, split[d]});
  }
  return parts;
}

std::optional<std::int64_t> iterations_known(const Program& program, Id digit) {
  const Digit& d = program.digits[digit];
  if (d.once) return 1;
  if (d.kind == Digit::Kind::Inner && d.size == Digit::Size::Number) return d.by;
  if (d.kind != Digit::Kind::Outer || d.size != Digit::Size::Number) return std::nullopt;
  const std::optional<std::int64_t> all = iterations_known(program, d.parent);
  return all ? std::optional((*all + d.by - 1) / d.by) : std::nullopt;
}

bool is_within(const Program& program, Id digit, Id around) {
  while (digit != around && program.digits[digit].parent != kNone) digit = program.digits[digit].parent;
  return digit == around;
}

std::uint64_t covered(const Program& program, const std::vector<Id>& open) {
  std::uint64_t mask = 0;
  for (Id root = 0; root < program.nest.loops(); ++root)
    if (!parts_of(program, root, open).empty()) mask |= std::uint64_t{1} << root;
  return mask;
}

Id needed_where(const Nest& nest, Id statement) {
  using Kind = Statement::Kind;
  Id condition = kNone;
  std::vector<bool> computed(nest.body.size(), false);  // depends on the statement, without a selection in between
  computed[statement] = true;
  for (Id i = statement + 1; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const auto is_from = [&](Id o) { return o != Statement::kNone && computed[o]; };
    if (!is_from(s.a) && !is_from(s.b) && !is_from(s.c) && !is_from(s.guard)) continue;
    if (s.kind != Kind::Op || is_from(s.guard)) return kNone;
    if (s.op != ir::Op::Where || is_from(s.a) || is_from(s.c) || (condition != kNone && condition != s.a)) {
      computed[i] = true;
      continue;
    }
    condition = s.a;
  }
  for (Id i = 0; i < nest.derived.size(); ++i)
    if (nest.derived[i].place != Derived::kNone && computed[nest.derived[i].place]) return kNone;
  return condition;
}

}  // namespace onepass::compiler::loops
