// Rerolled iterations: emits a loop inside the vector loop's body. The second written-out iteration is its body.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

Value* Emitter::slot_of_iteration(const Statement& s) {
  const auto before = static_cast<std::int64_t>(s.at) - schedule_.rolled.slots;  // scalar parameter of the first iteration
  if (spreads() && layout_.spread.holds(s.dtype, schedule_.width)) {
    const auto each = static_cast<std::int64_t>(layout_.spread.each);
    Value* p = bytes(argument(3), b_.CreateAdd(i64(before * each), b_.CreateMul(iteration_, i64(schedule_.rolled.slots * each))));
    return from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), p, alignment_of(layout_.spread)));
  }
  Value* further = b_.CreateMul(iteration_, i64(8 * std::int64_t{schedule_.rolled.slots}));
  Value* p = bytes(bytes(argument(0), further), 8 * (static_cast<std::int64_t>(words_.slots) + before));
  return b_.CreateVectorSplat(width_, from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, 0), p, llvm::Align(8))));
}

void Emitter::rolled(Body& body) {
  const Rolled& r = schedule_.rolled;
  const std::uint32_t second = r.begin + r.period, third = second + r.period;
  std::map<std::uint32_t, Value*> first;  // by value of the preceding iteration that is read: the initial value
  for (std::uint32_t id = second; id < third; ++id) {
    const Statement &s = nest_.body[id], &before = nest_.body[id - r.period];
    for (const auto& [mine, theirs] : {std::pair{s.a, before.a}, {s.b, before.b}, {s.c, before.c}}) {
      if (mine == kNone || mine >= second) continue;
      Value* v = vector(body, theirs);
      if (mine >= r.begin) first[mine] = v;
    }
  }
  Body inside = body;
  BasicBlock* entered = b_.GetInsertBlock();
  BasicBlock* head = block();
  BasicBlock* after = block();
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* k = b_.CreatePHI(b_.getInt64Ty(), 2);
  k->addIncoming(i64(0), entered);
  std::map<std::uint32_t, llvm::PHINode*> carried;
  for (const auto& [id, v] : first) {
    inside.values[id] = carried[id] = b_.CreatePHI(v->getType(), 2);
    carried[id]->addIncoming(v, entered);
  }
  iteration_ = k;
  for (std::uint32_t id = second; id < third; ++id)
    if (nest_.body[id].kind == Statement::Kind::Op) vector(inside, id);
  Value* next = b_.CreateAdd(k, i64(1));
  k->addIncoming(next, b_.GetInsertBlock());
  for (const auto& [id, phi] : carried) phi->addIncoming(vector(inside, id + r.period), b_.GetInsertBlock());
  iteration_ = nullptr;
  b_.CreateCondBr(b_.CreateICmpSLT(next, i64(r.count)), head, after);
  b_.SetInsertPoint(after);
  for (std::uint32_t id = second; id < third; ++id)
    if (const auto it = inside.values.find(id); it != inside.values.end()) body.values[r.last() + id - second] = it->second;
}

}  // namespace onepass::compiler
