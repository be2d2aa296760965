// Reducer: what one reduction combines, as LLVM IR: its identity, its operator, lanes that are halved, the maximum that knows NaN. The spellers
// say where its values lie.
#pragma once

#include <span>
#include <vector>

#include "compiler/llvm/builder.h"

namespace onepass::compiler {

class Reducer {
 public:
  /// `op`: Add, Mul, Maximum or Minimum.
  Reducer(KernelBuilder& k, ir::Op op, DType dtype, int vector_bytes) : k_(k), b_(k.b), op_(op), dtype_(dtype), bytes_(vector_bytes) {}

  /// What a missing element and the start of an accumulator are.
  llvm::Value* identity(unsigned width) const;
  llvm::Value* combine(llvm::Value* a, llvm::Value* c) const;
  /// As it lies in memory.
  llvm::Value* load(llvm::Type* type, llvm::Value* p) const;
  void store(llvm::Value* v, llvm::Value* p) const;
  /// sum + x*y, of floats in one rounding.
  llvm::Value* product_added(llvm::Value* sum, llvm::Value* x, llvm::Value* y) const;

  /// What is carried of the elements met so far: their combination; or of the largest (smallest) of floats three values, since the processor
  /// has no instruction for a maximum that knows NaN and the signs of zeros: these are remembered beside it and looked at in the end.
  using Carried = std::vector<llvm::Value*>;
  bool is_extreme() const { return is_float(dtype_) && (op_ == ir::Op::Maximum || op_ == ir::Op::Minimum); }
  Carried start(unsigned width) const { return carried(identity(width)); }
  Carried carried(llvm::Value* v) const;
  Carried with(const Carried& all, llvm::Value* v) const;
  /// Of vectors: their lanes by halving (lane i and lane i + half, until one is left), the vectors one behind the other; of numbers the same.
  llvm::Value* total(const std::vector<Carried>& vectors) const;
  llvm::Value* total(std::span<llvm::Value* const> vectors) const;
  /// The largest (smallest) of floats, lane by lane.
  llvm::Value* most_of(std::span<llvm::Value* const> values) const;
  llvm::Value* bits_of(llvm::Value* v) const;  // as integers

 private:
  KernelBuilder& k_;
  llvm::IRBuilder<>& b_;
  ir::Op op_;
  DType dtype_;
  int bytes_;

  struct Extreme {
    llvm::Value* most;  // of those that are no NaN, but for the first
    llvm::Value* bits;  // all bits that each of them has (of a minimum: that any has): of zeros alone, the sign of the result
    llvm::Value* nan;   // not 0: there was a NaN
  };
  static unsigned width_of(llvm::Value* v);
  llvm::Value* half_of(llvm::Value* v, unsigned width, unsigned first) const;
  llvm::Value* joined_bits(llvm::Value* a, llvm::Value* c) const;
  // Where a or c is a NaN, by one comparison for both: a mask where the target has registers for masks, else all bits of an integer.
  llvm::Value* unordered(llvm::Value* a, llvm::Value* c) const;
  llvm::Value* further(llvm::Value* a, llvm::Value* c) const;  // of two that are no NaN
  Extreme extreme(llvm::Value* v) const { return {v, bits_of(v), unordered(v, v)}; }
  // Of a vector whose lanes are all met in the end: bits and NaN of its registers together, in as many lanes as one has.
  Extreme extreme_of_lanes(llvm::Value* v) const;
  Extreme join(const Extreme& a, const Extreme& c) const;
  llvm::Value* settled(const Extreme& e) const;
  llvm::Value* halved(const Extreme& e) const;
};

}  // namespace onepass::compiler
