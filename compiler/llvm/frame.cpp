// See frame.h.
#include "compiler/llvm/frame.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

namespace onepass::compiler {

using llvm::Value;

Frame::Frame(const CodegenRequest& request, const Nest& nest, llvm::Module& module)
    : nest_(nest),
      known_(request.known),
      target_(*request.target),
      words_(nest),
      module_(module),
      context_(module.getContext()),
      b_(context_),
      k_(b_,
         {request.target->converts_f16(), request.target->has_avx2(), request.target->has_avx512(), request.target->vector_bytes,
          request.target->vector_registers()},
         request.tier == Tier::Quick) {
  if (!known_)
    for (const auto& [op, dtype] : request.schedule->called) k_.call_function(op, computed_type(dtype));
}

void Frame::begin() {
  llvm::Type* pointer = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, b_.getInt64Ty(), b_.getInt64Ty(), pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "kernel", module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr("target-cpu", target_.cpu);
  function_->addFnAttr("target-features", target_.features);
  function_->addFnAttr("prefer-vector-width", std::to_string(8 * target_.vector_bytes));
  function_->addFnAttr("no-builtins");
  entry_block_ = block();
  b_.SetInsertPoint(entry_block_);
  auto* const nothing = llvm::ConstantAggregateZero::get(llvm::ArrayType::get(b_.getInt8Ty(), kZeros));
  zeros_ = new llvm::GlobalVariable(module_, nothing->getType(), true, llvm::GlobalValue::PrivateLinkage, nothing, "zeros");
  if (nest_.has(Statement::Kind::Place)) {  // before any checked index in the entry
    flag_ = b_.CreateAlloca(b_.getInt64Ty());
    b_.CreateStore(i64(0), flag_);
  }
  BasicBlock* start = block();
  b_.CreateBr(start);
  b_.SetInsertPoint(start);
}

void Frame::finish(bool streams) {
  if (flag_)
    when(b_.CreateICmpNE(b_.CreateLoad(b_.getInt64Ty(), flag_), i64(0)), [&] {
      Value* at = bytes(argument(0), i64(8 * static_cast<std::int64_t>(words_.flag)));
      b_.CreateAlignedStore(i64(1), b_.CreateAlignedLoad(b_.getPtrTy(), at, llvm::Align(8)), llvm::Align(8));
    });
  if (streams && target_.triple.starts_with("x86_64")) b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  b_.CreateRetVoid();
}

void Frame::spread_slots(const SpreadSlots& spread) {
  llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(8 * spread.element));
  loop(i64(0), i64(static_cast<std::int64_t>(nest_.slots.size())), i64(1), [&](Value* i) {
    Value* from = bytes(argument(0), b_.CreateMul(b_.CreateAdd(i, i64(words_.slots)), i64(8)));
    Value* vector =
        b_.CreateVectorSplat(static_cast<unsigned>(spread.each / spread.element), b_.CreateAlignedLoad(type, from, llvm::Align(8)));
    b_.CreateAlignedStore(vector, bytes(argument(3), b_.CreateMul(i, i64(spread.each))), alignment_of(spread));
  });
}

std::optional<std::int64_t> Frame::number(const Value* v) {
  const auto* c = llvm::dyn_cast<llvm::ConstantInt>(v);
  return c ? std::optional(c->getSExtValue()) : std::nullopt;
}

unsigned Frame::width_of(const Value* v) {
  const auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return t ? t->getNumElements() : 0;
}

Value* Frame::up(Value* a, Value* by) { return number(by) == 1 ? a : b_.CreateUDiv(b_.CreateAdd(a, b_.CreateSub(by, i64(1))), by); }

Value* Frame::splat(Value* v, unsigned lanes) {
  if (width_of(v) || lanes == 0) return v;
  if (auto* c = llvm::dyn_cast<llvm::Constant>(v)) return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), c);
  Value*& made = splats_[{v, lanes}];
  if (made) return made;
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (auto* phi = llvm::dyn_cast<llvm::PHINode>(v)) b_.SetInsertPoint(phi->getParent(), phi->getParent()->getFirstNonPHIIt());
  else if (auto* instruction = llvm::dyn_cast<llvm::Instruction>(v))
    b_.SetInsertPoint(instruction->getParent(), std::next(instruction->getIterator()));
  else b_.SetInsertPoint(entry_block_->getTerminator());
  return made = b_.CreateVectorSplat(lanes, v);
}

Value* Frame::iota(unsigned width) {
  std::vector<llvm::Constant*> lanes;
  for (unsigned i = 0; i < width; ++i) lanes.push_back(b_.getInt64(i));
  return llvm::ConstantVector::get(lanes);
}

Value* Frame::word(std::uint32_t at) {
  if (is_known(at)) return i64(known_->words[at]);
  Value*& made = word_values_[at];
  if (made) return made;
  return made = in_entry([&] {
           return b_.CreateAlignedLoad(b_.getInt64Ty(), bytes(argument(0), i64(8 * static_cast<std::int64_t>(at))), llvm::Align(8));
         });
}

Value* Frame::lanes_below(Value* left, unsigned lanes, bool is_part) {
  std::vector<llvm::Constant*> each;
  for (unsigned i = 0; i < lanes; ++i) each.push_back(b_.getInt32(i));
  Value* n = b_.CreateTrunc(is_part ? left : smaller(left, i64(lanes)), b_.getInt32Ty());
  return b_.CreateICmpSLT(llvm::ConstantVector::get(each), b_.CreateVectorSplat(lanes, n));
}

Value* Frame::reversed(Value* v) {
  std::vector<int> lanes;
  for (unsigned i = width_of(v); i-- > 0;) lanes.push_back(static_cast<int>(i));
  return b_.CreateShuffleVector(v, lanes);
}

std::vector<Value*> Frame::whole_vectors(llvm::Type* type, Value* p, unsigned c, std::uint32_t places) {
  const auto all = llvm::cast<llvm::FixedVectorType>(type)->getNumElements(), size = type->getScalarSizeInBits() / 8;
  const unsigned lanes = std::min(all, static_cast<unsigned>(target_.vector_bytes) / size), count = all / lanes * c;
  const unsigned end = (all - 1) * c + static_cast<unsigned>(std::bit_width(places));  // behind the last element
  llvm::Type* const one = llvm::FixedVectorType::get(type->getScalarType(), lanes);
  std::vector<Value*> out;
  for (unsigned k = 0; k < count; ++k) {
    const unsigned back = std::max((k + 1) * lanes, end) - end;
    Value* v = b_.CreateAlignedLoad(one, bytes(p, i64(std::int64_t{k * lanes - back} * size)), llvm::Align(1));
    if (back > 0) {
      std::vector<int> from;
      for (unsigned i = 0; i < lanes; ++i) from.push_back(static_cast<int>(std::min(i + back, lanes - 1)));
      v = b_.CreateShuffleVector(v, from);
    }
    out.push_back(v);
  }
  return out;
}

Value* Frame::every(const std::vector<Value*>& vectors, unsigned c, unsigned place) {
  const unsigned lanes = width_of(vectors[0]);
  std::vector<Value*> parts;
  for (std::size_t first = 0; first < vectors.size(); first += c) {
    Value* sum = vectors[first];
    for (unsigned k = 1; k < c; ++k) {  // for k > 1, lanes of the first k vectors are placed already
      std::vector<int> from;
      for (unsigned i = 0; i < lanes; ++i) {
        const unsigned at = i * c + place;
        from.push_back(static_cast<int>(at / lanes == k ? lanes + at % lanes : at / lanes < k ? (k == 1 ? at : i) : 0));
      }
      sum = b_.CreateShuffleVector(sum, vectors[first + k], from);
    }
    parts.push_back(sum);
  }
  return k_.joined(std::move(parts));
}

// Returns the mask for a gather of all lanes. A gather clears its mask register. LLVM sets it from register k0 each time, so that a gather
// would wait for the last comparison. Copying a mask that is made once avoids this; its condition (the task range is not empty) is unknown
// to LLVM.
Value* Frame::lanes_of_gather(llvm::Type* type) {
  constexpr unsigned kLanes = 8;  // per instruction; their addresses fill a register
  const unsigned count = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
  if (target_.vector_bytes < 64 || type->getScalarSizeInBits() < 32 || count < kLanes) return all_lanes(count);
  if (!items_)
    items_ =
        in_entry([&] { return b_.CreateICmpSLT(b_.CreateVectorSplat(kLanes, argument(1)), b_.CreateVectorSplat(kLanes, argument(2))); });
  std::vector<int> from;
  for (unsigned i = 0; i < count; ++i) from.push_back(static_cast<int>(i % kLanes));
  return b_.CreateShuffleVector(items_, from);
}

llvm::Value* Frame::guarded(llvm::Type* type, Value* p, Value* there, Value* mask) {
  Value* const zero = llvm::Constant::getNullValue(type);
  const bool fits = module_.getDataLayout().getTypeAllocSize(type) <= kZeros;
  const bool differs = there && width_of(there) > 0;
  if (there && fits) p = b_.CreateSelect(differs ? b_.CreateOrReduce(there) : there, p, zeros_);
  if (differs || (there && !fits)) {
    Value* const lanes = differs ? there : b_.CreateVectorSplat(width_of(zero), there);
    mask = mask ? b_.CreateAnd(mask, lanes) : lanes;
  }
  return mask ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero))
              : b_.CreateAlignedLoad(type, p, llvm::Align(1));
}

llvm::Value* Frame::gathered(llvm::Type* type, Value* at, Value* mask) {
  if (mask && !(target_.has_avx2() && type->getScalarSizeInBits() >= 32)) {
    // The target has no instruction for this. With a mask, LLVM would emit a branch per lane, which takes seconds to compile for many
    // lanes.
    Value* nowhere = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), width_of(mask)));
    at = b_.CreateSelect(mask, at, b_.CreateGEP(b_.getInt8Ty(), zeros_, nowhere));
    mask = all_lanes(width_of(mask));
  }
  return b_.CreateMaskedGather(type, at, llvm::Align(1), mask ? mask : lanes_of_gather(type), llvm::Constant::getNullValue(type));
}

void Frame::store_by_registers(Value* v, DType t, Value* p) {
  const unsigned lanes = width_of(v), each = std::min(lanes, static_cast<unsigned>(target_.vector_bytes) / 4);
  for (unsigned first = 0; first < lanes; first += each) {
    std::vector<int> from(each);
    std::iota(from.begin(), from.end(), static_cast<int>(first));
    Value* at = bytes(p, i64(static_cast<std::int64_t>(first * size_of(t))));
    b_.CreateAlignedStore(k_.to_memory(t, b_.CreateShuffleVector(v, from)), at, llvm::Align(1));
  }
}

Value* Frame::quotient(std::uint32_t derived, Value* x) {
  Value* by = splat(word(words_.by + derived), width_of(x));
  Value* zero = llvm::Constant::getNullValue(x->getType());
  if (nest_.derived[derived].modulo) {
    Value* r = b_.CreateSRem(x, by);
    return b_.CreateSelect(b_.CreateICmpSLT(r, zero), b_.CreateAdd(r, by), r);
  }
  Value* d = b_.CreateSDiv(x, by);
  Value* r = b_.CreateSub(x, b_.CreateMul(d, by));
  return b_.CreateSelect(b_.CreateICmpSLT(r, zero), b_.CreateSub(d, llvm::ConstantInt::get(x->getType(), 1)), d);
}

Value* Frame::of_slot(DType t, std::uint32_t slot) {
  const std::uint32_t at = words_.slots + slot;
  if (is_known(at)) return k_.constant(t, static_cast<std::uint64_t>(known_->words[at]), 0);
  Value* p = bytes(argument(0), i64(8 * static_cast<std::int64_t>(at)));
  return k_.from_memory(t, b_.CreateAlignedLoad(k_.memory_type(t, 0), p, llvm::Align(8)));
}

Value* Frame::checked_place(DType from, Value* index, std::uint32_t check, Value* mask, bool branches) {
  const unsigned width = width_of(index);
  Value* bound = splat(word(words_.bounds + check), width);
  Value* at = k_.cast({index, from}, DType::I64);
  Value* zero = llvm::Constant::getNullValue(at->getType());
  const auto any = [&](Value* lanes) { return width ? b_.CreateOrReduce(lanes) : lanes; };
  const auto settled = [&] {
    Value* place = is_signed_integer(from) ? b_.CreateSelect(b_.CreateICmpSLT(at, zero), b_.CreateAdd(at, bound), at) : at;
    Value* bad = b_.CreateICmpUGE(place, bound);
    Value* counts = any(mask ? b_.CreateAnd(bad, splat(mask, width)) : bad);
    b_.CreateStore(b_.CreateOr(b_.CreateLoad(b_.getInt64Ty(), flag_), b_.CreateZExt(counts, b_.getInt64Ty())), flag_);
    return b_.CreateSelect(bad, zero, place);
  };
  if (!branches) return settled();
  // most indices are valid unchanged
  BasicBlock *before = b_.GetInsertBlock(), *other = block(), *after = block();
  b_.CreateCondBr(any(b_.CreateICmpUGE(at, bound)), other, after, llvm::MDBuilder(context_).createBranchWeights(1, 1000));
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
