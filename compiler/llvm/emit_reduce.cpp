// Combination steps of reductions: accumulators, lanes, trees of blocks.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

std::vector<std::uint32_t> Emitter::reductions(std::uint8_t sweep) const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].stage == sweep + 1 && !nest_.body[i].count) out.push_back(i);
  return out;
}

Reducer Emitter::reducer(std::uint32_t id) {
  const Statement& s = nest_.body[id];
  return {k_, loops::combiner(s.op), s.dtype, schedule_.vector_bytes};
}

Value* Emitter::added(std::uint32_t id, Body& body) {
  Value* a = vector(body, nest_.body[id].a);
  return body.mask ? b_.CreateSelect(body.mask, a, identity(id, width_)) : a;
}

Value* Emitter::accumulated(std::uint32_t id, Value* accumulator, Body& body) {
  const Statement& s = nest_.body[id];
  if (!ir::is_contraction(s.op)) return combine(id, accumulator, added(id, body));
  Value *a = vector(body, s.a), *c = vector(body, s.b);
  Value* sum = reducer(id).product_added(accumulator, a, c);
  return body.mask ? b_.CreateSelect(body.mask, sum, accumulator) : sum;
}

Emitter::Lanes Emitter::new_lanes(std::uint32_t id) {
  Lanes l{id, {}};
  for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) {
    std::vector<Value*>& mine = l.vectors.emplace_back();
    for (Value* v : reducer(id).start(width_)) mine.push_back(variable(v->getType(), nullptr));  // constants
  }
  return l;
}

void Emitter::put(const std::vector<Value*>& variables, const Reducer::Carried& values) {
  for (std::size_t i = 0; i < values.size(); ++i) b_.CreateStore(values[i], variables[i]);
}

Reducer::Carried Emitter::get(const std::vector<Value*>& variables) {
  Reducer::Carried values;
  for (Value* v : variables) values.push_back(read(v));
  return values;
}

void Emitter::reset(const Lanes& lanes) {
  for (const std::vector<Value*>& v : lanes.vectors) put(v, reducer(lanes.id).start(width_));
}

void Emitter::take(const Lanes& lanes, std::size_t part, Body& body) {
  const std::vector<Value*>& v = lanes.vectors[part % lanes.vectors.size()];
  const Reducer r = reducer(lanes.id);
  if (r.is_extreme()) put(v, r.with(get(v), added(lanes.id, body)));
  else b_.CreateStore(accumulated(lanes.id, read(v[0]), body), v[0]);
}

Value* Emitter::total(const Lanes& lanes) {
  std::vector<Reducer::Carried> vectors;
  for (const std::vector<Value*>& v : lanes.vectors) vectors.push_back(get(v));
  return reducer(lanes.id).total(vectors);
}

Emitter::Tree Emitter::start_tree(const std::vector<std::uint32_t>& reductions, unsigned width) {
  Tree t;
  t.width = width;
  t.count = variable(b_.getInt64Ty(), i64(0));
  for (std::uint32_t r : reductions)
    t.stacks.push_back(in(entry_, [&] { return b_.CreateAlloca(memory_type(nest_.body[r].dtype, width), i64(kTreeLevels)); }));
  return t;
}

Value* Emitter::level(const Tree& tree, std::size_t reduction, Value* l, DType t) {
  return bytes(tree.stacks[reduction], b_.CreateMul(l, i64(static_cast<std::int64_t>(size_of(t)) * std::max<std::int64_t>(tree.width, 1))));
}

// Carries a new leaf through the occupied levels, like a carry through the ones of a binary number. `merge` adds the sum at an occupied
// level. Returns the first free level.
Value* Emitter::carry(Value* count, const std::function<void(Value* level)>& merge) {
  Value* l = variable(b_.getInt64Ty(), i64(0));
  Value* c = variable(b_.getInt64Ty(), read(count));
  BasicBlock* head = block();
  BasicBlock* inside = block();
  BasicBlock* after = block();
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  b_.CreateCondBr(b_.CreateTrunc(read(c), b_.getInt1Ty()), inside, after);
  b_.SetInsertPoint(inside);
  merge(read(l));
  b_.CreateStore(b_.CreateLShr(read(c), i64(1)), c);
  b_.CreateStore(b_.CreateAdd(read(l), i64(1)), l);
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
  return read(l);
}

void Emitter::push(Tree& tree, const std::vector<std::uint32_t>& reductions, const std::vector<Value*>& values) {
  std::vector<Value*> carried;
  for (std::size_t i = 0; i < reductions.size(); ++i) carried.push_back(variable(values[i]->getType(), values[i]));
  Value* free = carry(tree.count, [&](Value* l) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const DType t = nest_.body[reductions[i]].dtype;
      Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
      b_.CreateStore(combine(reductions[i], below, read(carried[i])), carried[i]);
    }
  });
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const DType t = nest_.body[reductions[i]].dtype;
    b_.CreateAlignedStore(to_memory(t, read(carried[i])), level(tree, i, free, t), llvm::Align(1));
  }
  b_.CreateStore(b_.CreateAdd(read(tree.count), i64(1)), tree.count);
}

std::vector<Value*> Emitter::top(Tree& tree, const std::vector<std::uint32_t>& reductions) {
  std::vector<Value*> sums;
  for (std::uint32_t r : reductions) sums.push_back(variable(k_.type(nest_.body[r].dtype, tree.width), identity(r, tree.width)));
  Value* first = variable(b_.getInt1Ty(), b_.getTrue());
  loop(i64(0), i64(kTreeLevels), i64(1), [&](Value* l) {
    Value* here = b_.CreateTrunc(b_.CreateLShr(read(tree.count), l), b_.getInt1Ty());
    when(here, [&] {
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        const DType t = nest_.body[reductions[i]].dtype;
        Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
        b_.CreateStore(b_.CreateSelect(read(first), below, combine(reductions[i], below, read(sums[i]))), sums[i]);
      }
      b_.CreateStore(b_.getFalse(), first);
    });
  });
  std::vector<Value*> out;
  for (Value* s : sums) out.push_back(read(s));
  return out;
}

}  // namespace onepass::compiler
