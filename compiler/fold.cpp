// fold: runs the reference interpreter on a graph of one element.
//   mul(constant 2, constant 3) : f32[32, 64] -> constant 6 : f32[32, 64]
// Inside a program a half is an f32 that only a cast rounds. The interpreter rounds its outputs, so every operator but a cast runs in f32
// here. Left out on purpose: views and reductions. A constant has equal elements.
#include "compiler/fold.h"

#include <cstring>

#include "ir/reference.h"

namespace onepass::compiler {

using namespace ir;

namespace {

/// Returns one canonical NaN, because the sign and payload of a NaN are unspecified. Otherwise equal constants could be unequal nodes.
std::uint64_t one_nan(DType dtype, std::uint64_t bits) {
  if (!is_float(dtype)) return bits;
  const double value = double_of(dtype, bits);
  if (value == value) return bits;
  return dtype == DType::F64 ? 0x7ff8000000000000 : 0x7fc00000;
}

}  // namespace

NodeId fold(Graph& out, const Node& node) {
  const bool converts = node.op == Op::Cast || node.op == Op::CastUnchecked || node.op == Op::Bitcast;
  const auto computed = [&](DType t) { return converts ? t : computed_type(t); };
  Graph one;
  std::vector<std::int64_t> operands;
  for (std::int64_t o : out.operands(node)) {
    const Node operand = out[static_cast<NodeId>(o)];
    operands.push_back(one.constant(computed(operand.dtype), 0, operand.bits));
  }
  NodeId result = one.add(Node{node.op, computed(node.dtype), 0, one.intern(operands), one.intern(out.list(node.attributes)), 0});
  if (is_half(one[result].dtype)) result = one.add(Op::Cast, DType::F32, 0, {result});
  one.outputs = {result};
  const std::vector<Buffer> values = evaluate(one, {});
  std::uint64_t bits = 0;  // little-endian, as on all supported machines
  std::memcpy(&bits, values[0].bytes.data(), values[0].bytes.size());
  return out.constant(node.dtype, node.shape, one_nan(node.dtype, bits));
}

}  // namespace onepass::compiler
