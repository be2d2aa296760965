// Places that data name: what an index means, and what happens to a bad one.
#include <algorithm>

#include <llvm/IR/MDBuilder.h>

#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

Value* Emitter::checked_place(const Statement& s, Value* index, Value* mask, bool branches) {
  const DType from = nest_.body[s.a].dtype;
  const unsigned width = width_of(index);
  Value* extent = word(words_.bounds + s.at);
  if (width) extent = splat(extent, width);
  Value* at = k_.cast({index, from}, DType::I64);
  Value* zero = llvm::Constant::getNullValue(at->getType());
  const auto any = [&](Value* lanes) { return width ? b_.CreateOrReduce(lanes) : lanes; };
  const auto settled = [&] {
    Value* place = is_signed_integer(from) ? b_.CreateSelect(b_.CreateICmpSLT(at, zero), b_.CreateAdd(at, extent), at) : at;
    Value* bad = b_.CreateICmpUGE(place, extent);
    b_.CreateStore(b_.CreateOr(read(flag_), b_.CreateZExt(any(mask ? b_.CreateAnd(bad, mask) : bad), b_.getInt64Ty())), flag_);
    return b_.CreateSelect(bad, zero, place);
  };
  if (!branches) return settled();
  // most are places as they stand
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* other = block("");
  BasicBlock* after = block("");
  b_.CreateCondBr(any(b_.CreateICmpUGE(at, extent)), other, after, llvm::MDBuilder(context_).createBranchWeights(1, 1000));
  b_.SetInsertPoint(other);
  Value* place = settled();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* either = b_.CreatePHI(at->getType(), 2);
  either->addIncoming(at, before);
  either->addIncoming(place, other);
  return either;
}

}  // namespace onepass::compiler
