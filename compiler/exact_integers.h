// Exact integer arithmetic on numbers without a strong type. A result outside i64 or u64 is an overflow. Used by literal.cpp and
// scalars.cpp.
#pragma once

#include <cstdint>
#include <limits>

#include "ir/ops.h"

namespace onepass::compiler {

__extension__ using Wide = __int128;  // holds every i64 and u64

struct ExactInteger {
  enum class Status : std::uint8_t {
    Value,
    Overflow,
    None,  // the operator's regular meaning applies
  };
  Status status = Status::None;
  Wide value = 0;
};

constexpr Wide least_integer(bool is_unsigned) { return is_unsigned ? 0 : std::numeric_limits<std::int64_t>::min(); }
constexpr Wide greatest_integer(bool is_unsigned) {
  return is_unsigned ? Wide{std::numeric_limits<std::uint64_t>::max()} : Wide{std::numeric_limits<std::int64_t>::max()};
}

constexpr ExactInteger exact_value(Wide value, bool is_unsigned) {
  if (value < least_integer(is_unsigned) || value > greatest_integer(is_unsigned)) return {ExactInteger::Status::Overflow};
  return {ExactInteger::Status::Value, value};
}

constexpr ExactInteger exact_product(Wide a, Wide b, bool is_unsigned) {
  Wide r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return {ExactInteger::Status::Overflow};
  return exact_value(r, is_unsigned);
}

constexpr ExactInteger exact_power(Wide base, Wide exponent, bool is_unsigned) {
  if (base == 1 || exponent == 0) return exact_value(1, is_unsigned);
  if (base == -1) return exact_value(exponent % 2 ? -1 : 1, is_unsigned);
  if (exponent < 0 || base == 0) return exact_value(0, is_unsigned);
  ExactInteger r{ExactInteger::Status::Value, 1};
  for (; exponent > 0 && r.status == ExactInteger::Status::Value; --exponent)  // at most 64 iterations: the base is 2 or more
    r = exact_product(r.value, base, is_unsigned);
  return r;
}

/// Computes the operators for which wrapping is an error. The result type is u64 if `is_unsigned`, else i64.
constexpr ExactInteger exact(ir::Op op, Wide a, Wide b, bool is_unsigned) {
  using ir::Op;
  switch (op) {
    case Op::Add: return exact_value(a + b, is_unsigned);
    case Op::Sub: return exact_value(a - b, is_unsigned);
    case Op::Mul: return exact_product(a, b, is_unsigned);
    case Op::Square: return exact_product(a, a, is_unsigned);
    case Op::Neg: return exact_value(-a, is_unsigned);
    case Op::IntegerPow: return exact_power(a, b, is_unsigned);
    case Op::Abs: return exact_value(a < 0 ? -a : a, is_unsigned);
    case Op::FloorDiv:
      if (a == least_integer(false) && b == -1) return {ExactInteger::Status::Overflow};
      return {};
    case Op::ShiftLeft:
      if (b < 0 || a == 0) return {};
      if (b > 63) return {ExactInteger::Status::Overflow};
      return exact_product(a, Wide{1} << static_cast<int>(b), is_unsigned);
    default: return {};
  }
}

}  // namespace onepass::compiler
