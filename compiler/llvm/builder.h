// KernelBuilder: the `k` of the operator table's llvm column. It builds the exact meaning of each operator in LLVM IR, for scalars and
// vectors, and the expansions of elementary functions as primitives.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <llvm/IR/IRBuilder.h>

#include "ir/build.h"

namespace onepass::compiler {

/// A value with its type, because LLVM integers have no signedness.
struct Typed {
  llvm::Value* value = nullptr;
  DType dtype = DType::F32;
};

class KernelBuilder {
 public:
  /// Instructions that the target has. Results have the same bits without them.
  struct Instructions {
    bool f16, avx2, avx512;              // Target::converts_f16(), has_avx2(), has_avx512()
    int vector_bytes, vector_registers;  // as in Target
  };
  /// With `out_of_line`, each expansion and each long primitive becomes a function of the module, created at its first use and called
  /// afterwards. The bits are the same and the code is smaller.
  KernelBuilder(llvm::IRBuilder<>& builder, Instructions has, bool out_of_line) : b(builder), has_(has), out_of_line_(out_of_line) {}
  llvm::IRBuilder<>& b;
  /// Makes this operator a function, too.
  void call_function(ir::Op op, DType result) { called_.emplace(op, result); }
  bool calls(ir::Op op, DType result) const { return called_.contains({op, result}); }

  llvm::Type* type(DType dtype, unsigned width);  // width 0: a scalar
  /// Returns the type in an array: a bool is a byte (any nonzero byte is true), a half is its 16 bits.
  llvm::Type* memory_type(DType dtype, unsigned width);
  llvm::Value* from_memory(DType dtype, llvm::Value* v);
  llvm::Value* to_memory(DType dtype, llvm::Value* v);
  llvm::Value* constant(DType dtype, std::uint64_t bits, unsigned width);
  /// Applies an operator by the table's llvm column or by its expansion. The operands are all scalars or all vectors of one width.
  /// Operators get halves as f32, except conversions. A cast or bitcast to a half returns the f32 with the half's value; a bitcast from a
  /// half takes such an f32.
  llvm::Value* apply(ir::Op op, DType result, std::span<const Typed> operands);

  /// half_bits() returns the bits of the nearest half of type `half` to an f32; of_half_bits() returns the f32 with such bits.
  llvm::Value* half_bits(llvm::Value* f32, DType half);
  llvm::Value* of_half_bits(llvm::Value* bits, DType half);

  /// True if the conversion to `half` is an instruction that leaves half of a register empty.
  bool converts_by_registers(DType half) const { return half == DType::F16 && has_.f16 && has_.avx2; }

  /// permutes() is true if permute() supports the type. permute() moves lane lanes[i] of v to lane i, for vectors of one register with
  /// computed lane numbers. Narrow elements are widened to `bits`.
  bool permutes(unsigned bits, unsigned width) const;
  llvm::Value* permute(llvm::Value* v, llvm::Value* lanes);
  /// Concatenates vectors of equal length; their number is a power of two.
  llvm::Value* joined(std::vector<llvm::Value*> vectors);
  using Values = std::function<std::vector<llvm::Value*>()>;
  std::vector<llvm::Value*> either(llvm::Value* condition, const Values& rare, const Values& usual);
  /// Transposes a square of vectors: exchanges lane j of vector i and lane i of vector j. Vectors of 128 bits may be joined with those of
  /// other squares, which are then transposed at once.
  void transpose(std::vector<llvm::Value*>& rows);

  /// True if apply() creates basic blocks; the insertion point then moves to another block.
  static bool branches(ir::Op op, DType dtype);

  // ---- vocabulary of the llvm column
  llvm::Value* neg(Typed a);
  llvm::Value* abs(Typed a);
  llvm::Value* sign(Typed a);
  llvm::Value* add(Typed a, Typed c);
  llvm::Value* sub(Typed a, Typed c);
  llvm::Value* mul(Typed a, Typed c);
  llvm::Value* div(Typed a, Typed c);
  llvm::Value* floor_div(Typed a, Typed c);
  llvm::Value* remainder(Typed a, Typed c);
  llvm::Value* fmod(Typed a, Typed c);
  llvm::Value* integer_pow(Typed a, Typed c);
  llvm::Value* fma(Typed x, Typed y, Typed z);
  llvm::Value* maximum(Typed a, Typed c);
  llvm::Value* minimum(Typed a, Typed c);
  llvm::Value* copysign(Typed a, Typed c);
  llvm::Value* sqrt(Typed a);
  llvm::Value* reciprocal(Typed a);
  llvm::Value* floor(Typed a);
  llvm::Value* ceil(Typed a);
  llvm::Value* trunc(Typed a);
  llvm::Value* round(Typed a);
  llvm::Value* mul0(Typed a, Typed c);
  llvm::Value* share(Typed g, Typed x, Typed y);
  llvm::Value* equal(Typed a, Typed c);
  llvm::Value* not_equal(Typed a, Typed c);
  llvm::Value* less(Typed a, Typed c);
  llvm::Value* less_equal(Typed a, Typed c);
  llvm::Value* isnan(Typed a);
  llvm::Value* isinf(Typed a);
  llvm::Value* isfinite(Typed a);
  llvm::Value* signbit(Typed a);
  llvm::Value* bitwise_and(Typed a, Typed c) { return b.CreateAnd(a.value, c.value); }
  llvm::Value* bitwise_or(Typed a, Typed c) { return b.CreateOr(a.value, c.value); }
  llvm::Value* bitwise_xor(Typed a, Typed c) { return b.CreateXor(a.value, c.value); }
  llvm::Value* bitwise_not(Typed a) { return b.CreateNot(a.value); }
  llvm::Value* shift_left(Typed a, Typed c);
  llvm::Value* shift_right(Typed a, Typed c);
  llvm::Value* popcount(Typed a);
  llvm::Value* where(Typed c, Typed x, Typed y) { return b.CreateSelect(c.value, x.value, y.value); }
  llvm::Value* ldexp(Typed a, Typed n);
  llvm::Value* ldexp_normal(Typed a, Typed n);
  llvm::Value* binary_exponent(Typed a);
  llvm::Value* binary_fraction(Typed a);
  llvm::Value* log_domain(Typed a, Typed c);
  llvm::Value* cast(Typed a, DType to);
  llvm::Value* cast_unchecked(Typed a, DType to);
  llvm::Value* bitcast(Typed a, DType to);

 private:
  const Instructions has_;
  unsigned width_of(llvm::Value* v) const;
  llvm::Value* number(Typed like, double value);
  llvm::Value* integer(Typed like, std::uint64_t bits);
  llvm::Value* bits_of(Typed a);  // bits of a float as an integer of its size
  llvm::Value* intrinsic(llvm::Intrinsic::ID id, std::initializer_list<llvm::Value*> operands);
  const bool out_of_line_;
  std::set<std::pair<ir::Op, DType>> called_;
  bool loads_constants_ = false;
  llvm::Value* expansion_constant(DType dtype, std::uint64_t bits, unsigned width);
  // orders of expansions, by the number of registers processed together
  std::map<std::pair<const ir::Graph*, int>, std::vector<ir::NodeId>> orders_;
  const std::vector<ir::NodeId>& order_of(const ir::Graph& expansion, Typed operand);
  llvm::Value* expand(const ir::Graph& expansion, std::span<const Typed> operands);
  llvm::Value* call(ir::Op op, DType result, std::span<const Typed> operands);
  llvm::Value* extreme(Typed a, Typed c, bool greatest);
  llvm::Value* not_a_number_or(llvm::Value* result, Typed a, llvm::Value* table);
  std::map<llvm::Value*, llvm::Value*> tables_;  // lookup tables of extreme(), by the operand that is equal in all lanes
  llvm::Value* table_outside(Typed c);
  llvm::Value* saturate(Typed a, DType to);
  llvm::Value* converted(llvm::Value* x, llvm::Value* mask);
  bool has_registers(Typed a) const;
  using OfRegister = std::function<llvm::Value*(llvm::Type* type, unsigned bits, std::span<llvm::Value* const> operands)>;
  std::vector<llvm::Value*> registers_of(llvm::Value* v, DType dtype);
  llvm::Value* by_registers(Typed a, const OfRegister& f, std::initializer_list<llvm::Value*> operands);
  llvm::Value* integer_in_low_bits(Typed n);
  llvm::Value* power_of_two(llvm::Value* n, DType dtype);
  struct Split {
    llvm::Value *exponent, *fraction;
  };
  Split split(Typed a);
  llvm::Value* upper_halves(llvm::Value* words);
  llvm::Value* to_half(Typed a, DType half);
  llvm::Value* exact_or_odd_double(Typed a);
  llvm::Value* float_remainder(Typed a, Typed c, bool dividend_sign);
  struct Division {
    llvm::Value *quotient, *remainder;  // with the same rounding
  };
  Division divided(Typed a, Typed c, bool down);
  Division divided_as_integers(Typed a, Typed c, bool down);
  Division divided_as_floats(Typed a, Typed c, bool down);
  Division divided_in_steps(Typed a, Typed c, bool down);
  Division rounded_down(Division d, Typed c);
};

}  // namespace onepass::compiler
