// Rows that threads share: writes each chunk's partial results and combines them in later phases (compiler/plan/scratch.h).
#include "compiler/llvm/count.h"
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

Value* Emitter::reduced_count() {
  return in(entry_, [&] {
    Value* count = nest_.runs ? word(words_.padded_run) : nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : i64(1);
    const std::uint32_t counting = nest_.outer + std::uint32_t{nest_.runs ? nest_.runs : nest_.serial};
    for (std::uint32_t l = nest_.outer; l < counting; ++l) count = b_.CreateMul(count, extent(l));
    return count;
  });
}

Value* Emitter::partial(std::uint32_t reduction, Value* chunk, Value* j) {
  std::int64_t all = 0, place = 0;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce) place = i == reduction ? all : place, ++all;
  Value* shared = in(entry_, [&] {
    auto* p = b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.shared)), llvm::Align(8));
    p->setMetadata(kNoArray, llvm::MDNode::get(context_, {}));
    return p;
  });
  Value* item = b_.CreateAdd(b_.CreateMul(row_, word(words_.chunks)), chunk);
  Value* at = b_.CreateAdd(b_.CreateMul(item, i64(all)), i64(place));
  if (nest_.kind == NestKind::Rows || has_columns_) at = b_.CreateMul(at, unit_);
  Value* p = bytes(shared, b_.CreateMul(at, i64(kPartialBytes)));
  return j ? bytes(p, b_.CreateMul(j, i64(static_cast<std::int64_t>(size_of(nest_.body[reduction].dtype))))) : p;
}

void Emitter::leave_partials(std::uint8_t sweep) {
  for (const std::uint32_t r : reductions(sweep)) {
    const DType t = nest_.body[r].dtype;
    if (nest_.kind == NestKind::Lanes) b_.CreateAlignedStore(to_memory(t, reduced_[r]), partial(r, chunk_, nullptr), llvm::Align(1));
    else
      over_row(
          [&](Value* j) { b_.CreateAlignedStore(to_memory(t, load_row(layout_.values[r], j, t)), partial(r, chunk_, j), llvm::Align(1)); });
  }
}

void Emitter::combine_chunks(std::uint8_t sweep) {
  const std::vector<std::uint32_t> reds = reductions(sweep);
  reduced_.clear();
  const auto combined = [&](unsigned width, Value* j) {
    Tree tree = start_tree(reds, width);
    loop(i64(0), word(words_.chunks), i64(1), [&](Value* chunk) {
      std::vector<Value*> values;
      for (const std::uint32_t r : reds) {
        const DType t = nest_.body[r].dtype;
        values.push_back(from_memory(t, b_.CreateAlignedLoad(memory_type(t, width), partial(r, chunk, j), llvm::Align(1))));
      }
      push(tree, reds, values);
    });
    return top(tree, reds);
  };
  if (reds.empty()) return;
  if (nest_.kind == NestKind::Lanes) {
    const std::vector<Value*> values = combined(0, nullptr);
    for (std::size_t i = 0; i < reds.size(); ++i) reduced_[reds[i]] = values[i];
    return;
  }
  over_row([&](Value* j) {
    const std::vector<Value*> values = combined(width_, j);
    for (std::size_t i = 0; i < reds.size(); ++i) store_row(layout_.values[reds[i]], j, nest_.body[reds[i]].dtype, values[i]);
  });
}

}  // namespace onepass::compiler
