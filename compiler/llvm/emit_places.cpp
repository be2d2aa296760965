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

// The hardware does not see coming the rows that data choose. So while one row is copied, one that a later index means is asked for, where
// traffic is above the last-level cache: its first four lines, after which it is a stream. An index that lies in the array is a hint alone: it
// is neither checked nor, where it is negative, followed.
void Emitter::ask_for_rows_ahead(std::uint32_t access, Value* row) {
  constexpr std::int64_t kAhead = 8, kLine = 64, kLines = 4;
  if (schedule_.streamed.empty() || nest_.kind != NestKind::Map || nest_.serial > 0 || nest_.outer == 0 || !contiguous(access)) return;
  const std::uint32_t linear = nest_.accesses[access].linear, u = nest_.vector_loop() - 1u;
  const std::int64_t size = size_of_access(access);
  for (std::uint32_t q = 0; q < nest_.derived.size(); ++q) {
    if (nest_.linears[linear].of[nest_.loops() + q] == Coefficient::Zero || nest_.derived[q].place == Derived::kNone) continue;
    const Statement& place = nest_.body[nest_.derived[q].place];
    const Statement& index = nest_.body[place.a];
    if (index.kind != Statement::Kind::Load || index.guard != kNone || is_list(index.at)) continue;
    const std::uint32_t along = nest_.accesses[index.at].linear;
    const std::vector<Coefficient>& of = nest_.linears[along].of;
    const bool derived = std::any_of(of.begin() + nest_.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
    if (derived || of[u] == Coefficient::Zero || of[nest_.vector_loop()] != Coefficient::Zero) continue;
    Value* here = scalar(nest_.derived[q].place);
    Value* indices = pointer(index.at, ~std::uint64_t{0});
    Value* last = in(entry_, [&] { return b_.CreateSub(b_.CreateMul(extent(nest_.vector_loop()), i64(size)), i64(1)); });
    in(*stages_[0], [&] {
      Value* ahead = b_.CreateSelect(b_.CreateICmpSLT(b_.CreateAdd(index_[u], i64(kAhead)), extent(u)), i64(kAhead), i64(0));
      Value* later = bytes(indices, b_.CreateMul(times(along, u, ahead), i64(size_of_access(index.at))));
      const DType type = type_of_access(index.at);
      Value* at = k_.cast({from_memory(type, b_.CreateAlignedLoad(memory_type(type, 0), later, llvm::Align(1))), index.dtype}, DType::I64);
      Value* known = b_.CreateSelect(b_.CreateICmpULT(at, word(words_.bounds + place.at)), at, here);
      Value* away = times(linear, nest_.loops() + q, b_.CreateSub(known, here));
      if (nest_.linears[linear].of[u] != Coefficient::Zero) away = b_.CreateAdd(away, times(linear, u, ahead));
      Value* to = bytes(row, b_.CreateMul(away, i64(size)));
      for (std::int64_t line = 0; line < kLines; ++line) prefetch(bytes(to, smaller(i64(line * kLine), last)), Cache::First);
      return to;
    });
    return;
  }
}

}  // namespace onepass::compiler
