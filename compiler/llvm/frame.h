// Frame: common parts of all kernels, for every emitter: the function `kernel` of emit.h, kernel parameters, loops and branches, vectors of
// numbers, and checked indices.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "compiler/codegen.h"
#include "compiler/llvm/builder.h"
#include "compiler/llvm/reducer.h"
#include "compiler/plan/scratch.h"

namespace onepass::compiler {

class Frame {
 protected:
  using Value = llvm::Value;
  using BasicBlock = llvm::BasicBlock;

  Frame(const CodegenRequest& request, const Nest& nest, llvm::Module& module);

  const Nest& nest_;
  const KnownWords* known_;
  const Target& target_;
  WordLayout words_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  KernelBuilder k_;
  llvm::Function* function_ = nullptr;
  BasicBlock* entry_block_ = nullptr;           // code goes before its terminator
  static constexpr std::uint64_t kZeros = 512;  // bytes
  llvm::GlobalVariable* zeros_ = nullptr;       // address for loads that must not read
  llvm::AllocaInst* flag_ = nullptr;            // above 0 after a bad index; null: the nest has no checked indices

  /// begin() creates the function and its entry, and sets the insertion point after the entry. finish() stores the flag and adds a fence
  /// after non-temporal stores.
  void begin();
  void finish(bool streams);
  /// Writes a vector of each scalar parameter to scratch. Broadcasting each use takes most of a baseline compile.
  void spread_slots(const SpreadSlots& spread);
  static llvm::Align alignment_of(const SpreadSlots& spread) {
    return llvm::Align(std::min<std::uint64_t>(64, spread.each & -spread.each));
  }

  Value* i64(std::int64_t v) { return b_.getInt64(static_cast<std::uint64_t>(v)); }
  Value* argument(unsigned i) { return function_->getArg(i); }
  BasicBlock* block() { return BasicBlock::Create(context_, "", function_); }
  static std::optional<std::int64_t> number(const Value* v);  // constant value, if the kernel is specialized on it
  static unsigned width_of(const Value* v);
  Value* bytes(Value* pointer, Value* offset) { return number(offset) == 0 ? pointer : b_.CreateGEP(b_.getInt8Ty(), pointer, offset); }
  Value* bytes(Value* pointer, std::int64_t offset) { return bytes(pointer, i64(offset)); }
  Value* smaller(Value* a, Value* c) { return b_.CreateSelect(b_.CreateICmpSLT(a, c), a, c); }
  Value* up(Value* a, Value* by);  // a / by, rounded up
  // inserted at the definition of the value, so that loops do not repeat it; vectors stay unchanged
  Value* splat(Value* v, unsigned lanes);
  Value* iota(unsigned width);  // 0, 1, 2, …
  bool is_known(std::uint32_t word) const { return known_ && known_->known[word]; }
  std::optional<std::int64_t> known(std::uint32_t word) const { return is_known(word) ? std::optional(known_->words[word]) : std::nullopt; }
  Value* word(std::uint32_t at);
  // Returns the same number in a form that LLVM's analysis of loops does not follow. Addresses that contain it are known to be invariant in
  // loops inside, not to be a sequence; analyzing nested sequences would take a fifth of the compile time. It emits no instruction.
  Value* opaque(Value* i) {
    if (number(i)) return i;
    return b_.CreatePtrToInt(b_.CreateStripInvariantGroup(b_.CreateIntToPtr(i, b_.getPtrTy())), b_.getInt64Ty());
  }
  template <class F> auto in_entry(F&& f) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_block_->getTerminator());
    return f();
  }
  /// Emits for (i = begin; i < end; i += step) f(i). If f returns a condition that is not null, the loop also ends once it is false.
  template <class F> void loop(Value* begin, Value* end, Value* step, F&& f, llvm::MDNode* weights = nullptr) {
    if (const std::optional<std::int64_t> first = number(begin), last = number(end), by = number(step); first && last && by) {
      if (*first >= *last) return;
      if (*first + *by >= *last) return static_cast<void>(f(begin));  // a single iteration needs no loop
    }
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *head = block(), *inside = block(), *after = block();
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, before);
    b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after, weights);
    b_.SetInsertPoint(inside);
    if constexpr (std::is_void_v<decltype(f(i))>) {
      f(i);
    } else if (Value* const goes_on = f(i)) {
      BasicBlock* const next = block();
      b_.CreateCondBr(goes_on, next, after);
      b_.SetInsertPoint(next);
    }
    i->addIncoming(b_.CreateAdd(i, step), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }
  template <class F> void when(Value* condition, F&& f) {
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
      if (known->isOne()) f();
      return;
    }
    BasicBlock *inside = block(), *after = block();
    b_.CreateCondBr(condition, inside, after);
    b_.SetInsertPoint(inside);
    f();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  // ---- vectors
  /// Returns a mask of the lanes below `left`. It compares in 32 bits, the width of most elements. `is_part` means that `left` is at most
  /// `lanes`.
  Value* lanes_below(Value* left, unsigned lanes, bool is_part = false);
  Value* all_lanes(unsigned lanes) { return llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes)); }
  Value* reversed(Value* v);
  /// Returns elements `place`, `place` + c, `place` + 2c, … of whole_vectors().
  Value* every(const std::vector<Value*>& vectors, unsigned c, unsigned place);
  /// Loads the elements of an interleaved access group with stride c, for lanes of `type`, as vectors of at most one register. `p`: its
  /// first element. `places`: the places that it reads, as bits. Reads nothing behind its last element.
  std::vector<Value*> whole_vectors(llvm::Type* type, Value* p, unsigned c, std::uint32_t places);
  /// Returns the mask of a gather of all lanes.
  Value* lanes_of_gather(llvm::Type* type);
  /// Loads adjacent lanes, zero where `mask` or `there` is false; `there` may be a scalar, and either may be null. If `there` is false for all
  /// lanes, it selects another address: a load under a mask that is false everywhere takes hundreds of cycles if its page does not exist.
  Value* guarded(llvm::Type* type, Value* p, Value* there, Value* mask);
  /// Loads from one address per lane. Lanes whose `mask` is false are not read and give zero; `mask` may be null.
  Value* gathered(llvm::Type* type, Value* at, Value* mask);
  /// Stores each register of a vector of halves right after its conversion, without joining two registers.
  void store_by_registers(Value* v, DType t, Value* p);
  /// Returns floor(x / by) or x mod by of a floordiv/mod variable.
  Value* quotient(std::uint32_t derived, Value* x);
  /// Returns the value of a scalar parameter.
  Value* of_slot(DType t, std::uint32_t slot);
  /// Applies the operator of a statement or a line. An f32 that holds a half carries the half's type separately.
  template <class S> Value* apply(const S& s, std::span<Typed> operands) {
    const bool makes_half = is_half(s.half) && s.dtype == DType::F32;
    if (is_half(s.half) && !makes_half) operands[0].dtype = s.half;
    return k_.apply(s.op, makes_half ? s.half : s.dtype, operands);
  }
  template <class S> Value* from_index(Value* x, const S& s) { return k_.cast({x, DType::I64}, is_half(s.half) ? s.half : s.dtype); }
  /// Returns the checked index for an index of type `from`, below the bound of a check. A negative index counts from the end. A bad index
  /// becomes 0 and raises the flag where `mask` is true (null: everywhere). `branches` puts the unlikely cases in a separate block.
  Value* checked_place(DType from, Value* index, std::uint32_t check, Value* mask, bool branches = true);

 private:
  std::map<std::pair<Value*, unsigned>, Value*> splats_;
  std::map<std::uint32_t, Value*> word_values_;
  Value* items_ = nullptr;  // a mask that is true in each lane
};

}  // namespace onepass::compiler
