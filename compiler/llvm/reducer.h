// Reducer: the combination step of one reduction in LLVM IR: identity, operator, halving of lanes, and NaN-aware maxima. The emitters
// decide where its values are stored.
#pragma once

#include <span>
#include <vector>

#include "compiler/llvm/builder.h"

namespace onepass::compiler {

class Reducer {
 public:
  /// `op` must be Add, Mul, Maximum or Minimum.
  /// `by_lane`: each lane of a vector has its own total.
  Reducer(KernelBuilder& k, ir::Op op, DType dtype, int vector_bytes, bool by_lane = false)
      : k_(k), b_(k.b), op_(op), dtype_(dtype), bytes_(vector_bytes), by_lane_(by_lane) {}

  /// Returns the initial value of an accumulator, which is also the value of padding.
  llvm::Value* identity(unsigned width) const;
  llvm::Value* combine(llvm::Value* a, llvm::Value* c) const;
  /// Loads or stores a value in its memory type.
  llvm::Value* load(llvm::Type* type, llvm::Value* p) const;
  void store(llvm::Value* v, llvm::Value* p) const;
  /// Returns sum + x*y; floats are rounded once.
  llvm::Value* product_added(llvm::Value* sum, llvm::Value* x, llvm::Value* y) const;

  /// Values carried for the elements so far: usually their combination. Maxima and minima of floats carry three values, because the
  /// processor has no maximum that handles NaN and signed zeros. NaNs and zero signs are carried separately and applied at the end.
  using Carried = std::vector<llvm::Value*>;
  bool is_extreme() const { return is_float(dtype_) && (op_ == ir::Op::Maximum || op_ == ir::Op::Minimum); }
  Carried start(unsigned width) const { return carried(identity(width)); }
  Carried carried(llvm::Value* v) const;
  Carried with(const Carried& all, llvm::Value* v) const;
  /// Returns the total. Vectors are concatenated and their lanes halved (lane i and lane i + half, until one is left); scalars work the
  /// same way.
  llvm::Value* total(const std::vector<Carried>& vectors) const;
  llvm::Value* total(std::span<llvm::Value* const> vectors) const;
  /// Returns the total of each lane.
  llvm::Value* total_by_lane(const std::vector<Carried>& vectors) const;
  /// Returns the maximum (or minimum) of floats, lane by lane.
  llvm::Value* most_of(std::span<llvm::Value* const> values) const;
  llvm::Value* bits_of(llvm::Value* v) const;  // as integers

 private:
  KernelBuilder& k_;
  llvm::IRBuilder<>& b_;
  ir::Op op_;
  DType dtype_;
  int bytes_;
  bool by_lane_;

  struct Extreme {
    llvm::Value* most;  // extreme of the non-NaN values after the first
    llvm::Value* bits;  // bits set in all values (minimum: in any); decides the sign of a zero result
    llvm::Value* nan;   // nonzero if there was a NaN
  };
  static unsigned width_of(llvm::Value* v);
  llvm::Value* half_of(llvm::Value* v, unsigned width, unsigned first) const;
  llvm::Value* joined_bits(llvm::Value* a, llvm::Value* c) const;
  // Detects a NaN in a or c with a single comparison. Returns a mask if the target has mask registers, else all bits of an integer.
  llvm::Value* unordered(llvm::Value* a, llvm::Value* c) const;
  llvm::Value* further(llvm::Value* a, llvm::Value* c) const;  // neither operand may be a NaN
  Extreme extreme(llvm::Value* v) const { return {v, bits_of(v), unordered(v, v)}; }
  // Combines the bits and NaNs of a vector's registers in the lanes of a single register. Used for a vector that is reduced to one value at
  // the end.
  Extreme extreme_of_lanes(llvm::Value* v) const;
  Extreme join(const Extreme& a, const Extreme& c) const;
  llvm::Value* settled(const Extreme& e) const;
  llvm::Value* halved(const Extreme& e) const;
};

}  // namespace onepass::compiler
