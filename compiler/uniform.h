// uniform: arithmetic on values that are equal for all elements, as nodes of a graph under construction (compiler/reassociate).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "compiler/fold.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// Builder of uniform arithmetic. f32 operations are done in f64 and rounded at their first use with a value that varies by element.
class Uniform {
 public:
  explicit Uniform(ir::Graph& out) : out_(out) {}

  bool is(ir::NodeId id) const { return id < uniform_.size() && uniform_[id]; }
  void mark(ir::NodeId id) {
    if (id >= uniform_.size()) uniform_.resize(id + 1, false);
    uniform_[id] = true;
  }
  bool is_constant(ir::NodeId id, double value) const {
    if (id == ir::kNoNode) return false;
    if (const ir::NodeId wide = unrounded(id); wide != ir::kNoNode) id = wide;
    return out_[id].op == ir::Op::Constant && ir::double_of(out_[id].dtype, out_[id].bits) == value;
  }
  ir::NodeId constant(DType dtype, ir::ListId shape, double value) {
    const ir::NodeId id = out_.constant(dtype, shape, ir::bits_of(dtype, value));
    mark(id);
    return id;
  }
  ir::NodeId add(ir::NodeId a, ir::NodeId b) { return a == ir::kNoNode ? b : b == ir::kNoNode ? a : made(ir::Op::Add, {a, b}); }
  ir::NodeId mul(ir::NodeId a, ir::NodeId b) {
    if (is_constant(a, 1)) return b;
    if (is_constant(b, 1)) return a;
    return made(ir::Op::Mul, {a, b});
  }
  ir::NodeId reciprocal(ir::NodeId a) { return made(ir::Op::Reciprocal, {a}); }

 private:
  ir::Graph& out_;
  std::vector<bool> uniform_;

  ir::NodeId made(ir::Op op, std::initializer_list<ir::NodeId> operands) {
    const ir::Node first = out_[*operands.begin()];
    if (first.dtype != DType::F32)
      return plain(op, std::vector<ir::NodeId>(operands));  // f64 has no wider type; a cast of a half would round it
    std::vector<ir::NodeId> wide;
    for (ir::NodeId id : operands) wide.push_back(widened(id));
    const ir::NodeId id = out_.add(ir::Op::Cast, DType::F32, first.shape, {plain(op, wide)});
    mark(id);
    return id;
  }
  ir::NodeId plain(ir::Op op, std::span<const ir::NodeId> operands) {
    const ir::Node first = out_[operands[0]];
    const std::vector<std::int64_t> ids(operands.begin(), operands.end());
    const ir::Node node{op, first.dtype, first.shape, out_.intern(ids), 0, 0};
    const bool constant = std::all_of(operands.begin(), operands.end(), [&](ir::NodeId id) { return out_[id].op == ir::Op::Constant; });
    const ir::NodeId id = constant ? fold(out_, node) : out_.add(node);
    mark(id);
    return id;
  }
  // Returns the f64 value that made() rounded; kNoNode if made() did not create the node.
  ir::NodeId unrounded(ir::NodeId id) const {
    if (out_[id].op != ir::Op::Cast || out_[id].dtype != DType::F32) return ir::kNoNode;
    const ir::NodeId wide = out_.operand(id, 0);
    return out_[wide].dtype == DType::F64 && is(wide) ? wide : ir::kNoNode;
  }
  ir::NodeId widened(ir::NodeId id) {
    if (const ir::NodeId wide = unrounded(id); wide != ir::kNoNode) return wide;
    const ir::Node node = out_[id];
    const ir::NodeId wide = node.op == ir::Op::Constant
                                ? out_.constant(DType::F64, node.shape, ir::bits_of(DType::F64, ir::double_of(node.dtype, node.bits)))
                                : out_.add(ir::Op::Cast, DType::F64, node.shape, {id});
    mark(wide);
    return wide;
  }
};

}  // namespace onepass::compiler
