// KernelBuilder: the `k` of the table's llvm column. Each operator's exact meaning in LLVM IR, on scalars and vectors alike; and the
// expansions of the elementary functions, written out in primitives.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <llvm/IR/IRBuilder.h>

#include "ir/build.h"

namespace onepass::compiler {

/// A value and its type: LLVM's integers have no sign.
struct Typed {
  llvm::Value* value = nullptr;
  DType dtype = DType::F32;
};

class KernelBuilder {
 public:
  /// What the target has instructions for; the bits are equal without them.
  struct Instructions {
    bool f16, avx2, avx512;              // Target::converts_f16(), has_avx2(), has_avx512()
    int vector_bytes, vector_registers;  // as Target's
  };
  /// `out_of_line`: each expansion and each long primitive becomes a function of the module, made at its first use and called from then on.
  /// Same bits, less code.
  KernelBuilder(llvm::IRBuilder<>& builder, Instructions has, bool out_of_line) : b(builder), has_(has), out_of_line_(out_of_line) {}
  llvm::IRBuilder<>& b;

  llvm::Type* type(DType dtype, unsigned width);  // width 0: a scalar
  /// As an array holds it: a bool in a byte, any byte but 0 is true; a half in its 16 bits.
  llvm::Type* memory_type(DType dtype, unsigned width);
  llvm::Value* from_memory(DType dtype, llvm::Value* v);
  llvm::Value* to_memory(DType dtype, llvm::Value* v);
  llvm::Value* constant(DType dtype, std::uint64_t bits, unsigned width);
  /// The operator by the table's llvm column, or its expansion. All operands scalars, or all vectors of one width. Halves are f32 to every
  /// operator but conversions: a cast or bitcast to a half gives the f32 that it is, a bitcast from one takes such an f32.
  llvm::Value* apply(ir::Op op, DType result, std::span<const Typed> operands);

  /// The bits of the nearest half (`half`: which type) of an f32, as an array holds them, and the f32 of such bits.
  llvm::Value* half_bits(llvm::Value* f32, DType half);
  llvm::Value* of_half_bits(llvm::Value* bits, DType half);

  /// Whether that conversion is an instruction that leaves half a register empty.
  bool converts_by_registers(DType half) const { return half == DType::F16 && has_.f16 && has_.avx2; }

  /// Lane i of v becomes lane lanes[i], a number that the program computes, for vectors of one register; narrow elements are widened to `bits`.
  bool permutes(unsigned bits, unsigned width) const;
  llvm::Value* permute(llvm::Value* v, llvm::Value* lanes);
  /// Vectors of one length, a power of two of them, one behind the other.
  llvm::Value* joined(std::vector<llvm::Value*> vectors);
  /// As many vectors as each has lanes: lane j of vector i and lane i of vector j change places.
  void transpose(std::vector<llvm::Value*>& rows);

  /// Whether apply() makes blocks: the builder then stands in another one.
  static bool branches(ir::Op op, DType dtype);

  // ---- the column's words
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
  llvm::Value* bits_of(Typed a);  // of a float, as integers of its size
  llvm::Value* intrinsic(llvm::Intrinsic::ID id, std::initializer_list<llvm::Value*> operands);
  const bool out_of_line_;
  bool loads_constants_ = false;
  llvm::Value* expansion_constant(DType dtype, std::uint64_t bits, unsigned width);
  std::map<std::pair<const ir::Graph*, int>, std::vector<ir::NodeId>> orders_;  // of expansions, by the registers at once
  const std::vector<ir::NodeId>& order_of(const ir::Graph& expansion, Typed operand);
  llvm::Value* expand(const ir::Graph& expansion, std::span<const Typed> operands);
  llvm::Value* call(ir::Op op, DType result, std::span<const Typed> operands);
  llvm::Value* extreme(Typed a, Typed c, bool greatest);
  llvm::Value* not_a_number_or(llvm::Value* result, Typed a, llvm::Value* table);
  std::map<llvm::Value*, llvm::Value*> tables_;  // of extreme(), by what is the same for all lanes
  llvm::Value* table_outside(Typed c);
  llvm::Value* saturate(Typed a, DType to);
  llvm::Value* converted(llvm::Value* x, llvm::Value* mask);
  bool has_registers(Typed a) const;
  using OfRegister = std::function<llvm::Value*(llvm::Type* type, unsigned bits, std::span<llvm::Value* const> operands)>;
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
  void safe_divisor(Typed a, Typed c, llvm::Value*& divisor, llvm::Value*& zero, llvm::Value*& wraps);
};

}  // namespace onepass::compiler
