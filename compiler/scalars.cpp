// See scalars.h.
#include "compiler/scalars.h"

#include <concepts>
#include <type_traits>

#include "compiler/exact_integers.h"
#include "compiler/target.h"
#include "ir/meaning.h"

namespace onepass::compiler {

using ir::Op;
using ir::TypeRule;

namespace {

namespace meaning = ir::meaning;
using meaning::Integer;

template <Op> struct Meaning;
#define PRIMITIVE(id, arity, text, types, traits, expression, ...)                                                                         \
  template <> struct Meaning<Op::id> {                                                                                                     \
    template <class T, class R> static R apply([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) { return R(expression); } \
  };
#include "ir/ops.def"

template <class T> T load(Scalar s) {
  if constexpr (std::same_as<T, double>) return s.real;
  else if constexpr (std::same_as<T, bool>) return s.integer != 0;
  else return T(static_cast<typename T::Value>(s.integer));
}
template <class T> Scalar store(T value) {
  if constexpr (std::same_as<T, double>) return {.real = value};
  else if constexpr (std::same_as<T, bool>) return {.integer = value};
  else return {.integer = static_cast<std::int64_t>(value.value)};
}

template <Op kOp, class T, class R> bool primitive(const ScalarStep& s, Scalar* v) {
  constexpr int arity = ir::info(kOp).arity;
  const T a = load<T>(v[s.a]), b = arity > 1 ? load<T>(v[s.b]) : T{}, c = arity > 2 ? load<T>(v[s.c]) : T{};
  v[s.y] = store(Meaning<kOp>::template apply<T, R>(a, b, c));
  return true;
}

template <Op kOp, class T> ScalarStep::Run primitive_on() {
  constexpr bool is_bool = std::same_as<T, bool>, is_real = std::floating_point<T>;
  constexpr TypeRule rule = ir::info(kOp).types;
  if constexpr (rule == TypeRule::Compare || (rule == TypeRule::Predicate && is_real)) return &primitive<kOp, T, bool>;
  else if constexpr (rule == TypeRule::Any || (rule == TypeRule::Number && !is_bool) || (rule == TypeRule::Float && is_real) ||
                     (rule == TypeRule::Bits && !is_real) || (rule == TypeRule::Integer && !is_real && !is_bool))
    return &primitive<kOp, T, T>;
  else return nullptr;
}

template <Op kOp> ScalarStep::Run primitive_of(DType type) {
  switch (type) {
    case DType::Bool: return primitive_on<kOp, bool>();
    case DType::I64: return primitive_on<kOp, Integer<std::int64_t>>();
    case DType::U64: return primitive_on<kOp, Integer<std::uint64_t>>();
    case DType::F64: return primitive_on<kOp, double>();
    default: return nullptr;
  }
}

Wide wide(Scalar s, bool is_unsigned) { return is_unsigned ? Wide{static_cast<std::uint64_t>(s.integer)} : Wide{s.integer}; }

template <Op kOp> bool exact_step(const ScalarStep& s, Scalar* v) {
  const Wide a = wide(v[s.a], s.a_is_unsigned), b = ir::info(kOp).arity > 1 ? wide(v[s.b], s.b_is_unsigned) : Wide{0};
  const ExactInteger r = exact(kOp, a, b, s.is_unsigned);
  if (r.status == ExactInteger::Status::Value) return v[s.y].integer = static_cast<std::int64_t>(r.value), true;
  if constexpr (kOp == Op::FloorDiv || kOp == Op::ShiftLeft) {
    if (r.status == ExactInteger::Status::None) {
      if (!s.is_unsigned) return primitive<kOp, Integer<std::int64_t>, Integer<std::int64_t>>(s, v);
      return a >= 0 && b >= 0 && primitive<kOp, Integer<std::uint64_t>, Integer<std::uint64_t>>(s, v);
    }
  }
  return false;
}

bool elementary(const ScalarStep& s, Scalar* v) {
  v[s.y].real = s.function(v[s.a].real, v[s.b].real);  // with one operand, b is arbitrary
  return true;
}

bool elementary_rest(const ScalarStep& s, Scalar* v) {
  v[s.y].real = s.rest(v + s.a, v[s.b].real);
  return true;
}

}  // namespace

ScalarStep::Run scalar_primitive(Op op, DType type) {
  switch (op) {
#define PRIMITIVE(id, arity, text, types, ...)                                                                                             \
  case Op::id:                                                                                                                             \
    if constexpr (TypeRule::types == TypeRule::Choose || TypeRule::types == TypeRule::Convert || TypeRule::types == TypeRule::Reinterpret) \
      return nullptr;                                                                                                                      \
    else return primitive_of<Op::id>(type);
#include "ir/ops.def"
    default: return nullptr;
  }
}

ScalarStep::Run scalar_exact(Op op) {
  switch (op) {
    case Op::Add: return &exact_step<Op::Add>;
    case Op::Sub: return &exact_step<Op::Sub>;
    case Op::Mul: return &exact_step<Op::Mul>;
    case Op::Square: return &exact_step<Op::Square>;
    case Op::Neg: return &exact_step<Op::Neg>;
    case Op::IntegerPow: return &exact_step<Op::IntegerPow>;
    case Op::Abs: return &exact_step<Op::Abs>;
    case Op::FloorDiv: return &exact_step<Op::FloorDiv>;
    case Op::ShiftLeft: return &exact_step<Op::ShiftLeft>;
    default: return nullptr;
  }
}

const ElementaryForms& elementary_forms(Op op) {
#ifdef __x86_64__
  if (Target::host().has_avx2()) return elementary_forms_avx2(op);
#endif
  return elementary_forms_baseline(op);
}

ScalarStep scalar_elementary(Op op) {
  const ElementaryFunction function = elementary_forms(op).function;
  return {.run = function ? &elementary : nullptr, .function = function};
}
ScalarStep scalar_elementary_rest(Op op) {
  const ElementaryForms& forms = elementary_forms(op);
  return {.run = forms.rest ? &elementary_rest : nullptr, .rest = forms.rest};
}

// The product is within n 2^-53 of the power, and pow is within a few such units. If all values this close round to one f32, it is pow's
// result. Otherwise (once in tens of thousands of calls, or for NaN), pow itself decides.
bool scalar_rounded_power(const ScalarStep& s, Scalar* v) {
  constexpr double kNear = 0x1p-40;
  const double a = v[s.a].real, b = v[s.b].real;
  double power = a;
  for (double n = b; n > 1; --n) power *= a;
  const auto one_side = static_cast<float>(power * (1 - kNear)), other = static_cast<float>(power * (1 + kNear));
  v[s.y].real = one_side == other ? one_side : s.function(a, b);
  return true;
}

bool scalar_where(const ScalarStep& s, Scalar* v) {
  v[s.y] = v[s.a].integer ? v[s.b] : v[s.c];
  return true;
}

bool scalar_to_real(const ScalarStep& s, Scalar* v) {
  v[s.y].real = s.a_is_unsigned ? static_cast<double>(static_cast<std::uint64_t>(v[s.a].integer)) : static_cast<double>(v[s.a].integer);
  return true;
}

bool scalar_is_natural(const ScalarStep& s, Scalar* v) { return v[s.a].integer >= 0; }

}  // namespace onepass::compiler
