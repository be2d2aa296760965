// Expressions over a graph under construction, used to write expansions, derivatives and composites. The operands of one operator have one
// shape and, except for where's condition, one dtype. A C++ number becomes a constant of the other operand's dtype and shape. Promotion and
// broadcasting are in compiler/record.
#pragma once

#include <concepts>
#include <cstdint>

#include "ir/graph.h"

namespace onepass::ir {

class Expr {
 public:
  Expr() = default;
  Expr(Graph& graph, NodeId id) : graph_(&graph), id_(id) {}
  Graph& graph() const { return *graph_; }
  NodeId id() const { return id_; }
  DType dtype() const { return (*graph_)[id_].dtype; }
  ListId shape() const { return (*graph_)[id_].shape; }
  explicit operator bool() const { return graph_ != nullptr; }

 private:
  Graph* graph_ = nullptr;
  NodeId id_ = kNoNode;
};

/// Marks, in the gradient column, an operand that receives no gradient.
inline const Expr none{};

Expr constant_like(Expr like, double value);  // has the dtype and shape of `like`
Expr constant_bits(Expr like, std::uint64_t bits);
Expr apply(Op op, DType dtype, std::initializer_list<Expr> operands);
Expr apply(Op op, std::initializer_list<Expr> operands);  // the operator's type rule gives the dtype

template <class T>
concept Number = std::is_arithmetic_v<T>;

#define ONEPASS_BINARY(name, op)                                                                                  \
  inline Expr name(Expr a, Expr b) { return apply(op, {a, b}); }                                                  \
  template <Number T> Expr name(Expr a, T b) { return apply(op, {a, constant_like(a, static_cast<double>(b))}); } \
  template <Number T> Expr name(T a, Expr b) { return apply(op, {constant_like(b, static_cast<double>(a)), b}); }
ONEPASS_BINARY(operator+, Op::Add)
ONEPASS_BINARY(operator-, Op::Sub)
ONEPASS_BINARY(operator*, Op::Mul)
ONEPASS_BINARY(operator/, Op::Div)
ONEPASS_BINARY(operator<, Op::Less)
ONEPASS_BINARY(operator<=, Op::LessEqual)
ONEPASS_BINARY(operator>, Op::Greater)
ONEPASS_BINARY(operator>=, Op::GreaterEqual)
ONEPASS_BINARY(operator==, Op::Equal)
ONEPASS_BINARY(operator!=, Op::NotEqual)
ONEPASS_BINARY(maximum, Op::Maximum)
ONEPASS_BINARY(minimum, Op::Minimum)
ONEPASS_BINARY(copysign, Op::Copysign)
ONEPASS_BINARY(floor_div, Op::FloorDiv)
ONEPASS_BINARY(mul0, Op::Mul0)
ONEPASS_BINARY(pow, Op::Pow)
ONEPASS_BINARY(hypot, Op::Hypot)
#undef ONEPASS_BINARY

// Bit operators: the number becomes an integer constant, exactly.
#define ONEPASS_BITS(name, op)                                   \
  inline Expr name(Expr a, Expr b) { return apply(op, {a, b}); } \
  template <std::integral T> Expr name(Expr a, T b) { return apply(op, {a, constant_bits(a, static_cast<std::uint64_t>(b))}); }
ONEPASS_BITS(operator&, Op::BitwiseAnd)
ONEPASS_BITS(operator|, Op::BitwiseOr)
ONEPASS_BITS(operator^, Op::BitwiseXor)
ONEPASS_BITS(operator<<, Op::ShiftLeft)
ONEPASS_BITS(operator>>, Op::ShiftRight)
#undef ONEPASS_BITS

inline Expr operator-(Expr a) { return apply(Op::Neg, {a}); }
inline Expr operator~(Expr a) { return apply(Op::BitwiseNot, {a}); }
inline Expr abs(Expr a) { return apply(Op::Abs, {a}); }
inline Expr sqrt(Expr a) { return apply(Op::Sqrt, {a}); }
inline Expr floor(Expr a) { return apply(Op::Floor, {a}); }
inline Expr trunc(Expr a) { return apply(Op::Trunc, {a}); }
inline Expr round(Expr a) { return apply(Op::Round, {a}); }
inline Expr isnan(Expr a) { return apply(Op::Isnan, {a}); }
inline Expr signbit(Expr a) { return apply(Op::Signbit, {a}); }
inline Expr exp(Expr a) { return apply(Op::Exp, {a}); }
inline Expr log(Expr a) { return apply(Op::Log, {a}); }
inline Expr sigmoid(Expr a) { return apply(Op::Sigmoid, {a}); }
inline Expr digamma(Expr a) { return apply(Op::Digamma, {a}); }
inline Expr rsqrt(Expr a) { return apply(Op::Rsqrt, {a}); }
inline Expr sin(Expr a) { return apply(Op::Sin, {a}); }
inline Expr cos(Expr a) { return apply(Op::Cos, {a}); }
inline Expr sinh(Expr a) { return apply(Op::Sinh, {a}); }
inline Expr cosh(Expr a) { return apply(Op::Cosh, {a}); }
inline Expr ldexp(Expr a, Expr b) { return apply(Op::Ldexp, {a, b}); }
template <Number T> Expr ldexp(T a, Expr b) { return ldexp(constant_like(b, static_cast<double>(a)), b); }
inline Expr ldexp_normal(Expr a, Expr b) { return apply(Op::LdexpNormal, {a, b}); }
template <Number T> Expr ldexp_normal(T a, Expr b) { return ldexp_normal(constant_like(b, static_cast<double>(a)), b); }
inline Expr binary_exponent(Expr a) { return apply(Op::BinaryExponent, {a}); }
inline Expr binary_fraction(Expr a) { return apply(Op::BinaryFraction, {a}); }
inline Expr log_domain(Expr a, Expr b) { return apply(Op::LogDomain, {a, b}); }
inline Expr cast(Expr a, DType dtype) { return apply(Op::Cast, dtype, {a}); }
inline Expr cast_unchecked(Expr a, DType dtype) { return apply(Op::CastUnchecked, dtype, {a}); }
inline Expr bitcast(Expr a, DType dtype) { return apply(Op::Bitcast, dtype, {a}); }
inline Expr fma(Expr a, Expr b, Expr c) { return apply(Op::Fma, {a, b, c}); }
template <Number T> Expr fma(Expr a, Expr b, T c) { return fma(a, b, constant_like(a, static_cast<double>(c))); }
template <Number T> Expr fma(Expr a, T b, Expr c) { return fma(a, constant_like(a, static_cast<double>(b)), c); }
template <Number T, Number U> Expr fma(Expr a, T b, U c) { return fma(a, constant_like(a, static_cast<double>(b)), c); }
inline Expr where(Expr c, Expr a, Expr b) { return apply(Op::Where, {c, a, b}); }
/// Returns where(c, slow, fast). A kernel computes the nodes that only `slow` needs if some lane has c. All `rare` of one condition must
/// come after all their operands, so the caller must build the operands first.
inline Expr rare(Expr c, Expr slow, Expr fast) { return apply(Op::Rare, {c, slow, fast}); }
template <Number T> Expr where(Expr c, Expr a, T b) { return where(c, a, constant_like(a, static_cast<double>(b))); }
template <Number T> Expr where(Expr c, T a, Expr b) { return where(c, constant_like(b, static_cast<double>(a)), b); }

/// Returns the cheaper expansion of `op` for the relaxation `approximate`, for an f32 or f64 x. Returns an empty Expr if `op` has no such
/// expansion (ir/expand_approximate.cpp).
Expr approximation(Op op, Expr x);

/// Returns the derivative of digamma. It is not an operator of the language, so its operators must have derivatives (ir/expand_gamma.cpp).
Expr trigamma(Expr x);

/// Returns the expansion of an elementary function: a graph of primitives over rank-0 inputs of that type. Each graph is made once and
/// never freed. Thread-safe.
const Graph& expansion(Op op, DType dtype);

}  // namespace onepass::ir
