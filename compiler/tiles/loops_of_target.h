// Included by loops_*.cpp, each compiled for one instruction set: ONEPASS_TILE_LOOPS names the function that it defines. What is
// instantiated here must stay here, since a template's copy that was compiled for AVX-512 must not be the one that others call: so
// `meaning` is another namespace in each of them, ONEPASS_TILE_MEANING.
#define meaning ONEPASS_TILE_MEANING
#include "compiler/tiles/loops.h"
#include "ir/meaning.h"

namespace onepass::compiler {
namespace {

using ir::Op;
using ir::TypeRule;
namespace meaning = ir::meaning;
using meaning::BitsOf;
using meaning::Integer;

template <class T> struct StoredAs {
  using type = T;
};
template <class S> struct StoredAs<Integer<S>> {
  using type = S;
};
template <> struct StoredAs<bool> {
  using type = std::uint8_t;
};
template <class T> using Stored = typename StoredAs<T>::type;

template <Op> struct Meaning;
#define PRIMITIVE(id, arity, text, types, traits, expression, ...)                                                          \
  template <> struct Meaning<Op::id> {                                                                                      \
    template <class T, class R, class A> static R apply([[maybe_unused]] A a, [[maybe_unused]] T b, [[maybe_unused]] T c) { \
      return R(expression);                                                                                                 \
    }                                                                                                                       \
  };
#include "ir/ops.def"

// ---- primitives whose meaning calls a library, in words that a compiler makes vectors of. Equal for the operands that the table
// defines them for; compiler/llvm/builder.cpp spells them alike.

template <Op kOp> struct Spelling : Meaning<kOp> {};

template <class T> inline constexpr int kFraction = std::numeric_limits<T>::digits - 1;  // bits of it
template <class T> inline constexpr int kBias = std::numeric_limits<T>::max_exponent - 1;

// Of the low bits of n alone.
template <std::floating_point T> T power_of_two(BitsOf<T> n) {
  return std::bit_cast<T>(static_cast<BitsOf<T>>((n << kFraction<T>)+std::bit_cast<BitsOf<T>>(T(1))));
}
// In two factors: the second product alone may leave the range.
template <std::floating_point T> T scale(T a, T b) {
  const auto n = std::bit_cast<BitsOf<T>>(b + T(1.5) * static_cast<T>(BitsOf<T>{1} << kFraction<T>)), half = n >> 1;
  return a * power_of_two<T>(half) * power_of_two<T>(n - half);
}
template <> struct Spelling<Op::Ldexp> {
  template <class T, class R, class A> static R apply(A a, T b, T) { return scale<T>(a, b); }
};
template <> struct Spelling<Op::LdexpNormal> : Spelling<Op::Ldexp> {};

// a = 2^exponent fraction of a positive finite a; the fraction is at least sqrt(1/2), as rounded to the type, and below its double.
template <std::floating_point T> struct Split {
  T exponent, fraction;
  explicit Split(T a) {
    constexpr int lift = std::numeric_limits<T>::digits;
    const bool is_denormal = a < std::numeric_limits<T>::min();
    const auto bits = std::bit_cast<BitsOf<T>>(is_denormal ? a * static_cast<T>(BitsOf<T>{1} << lift) : a);
    const T m = std::bit_cast<T>((bits & ((BitsOf<T>{1} << kFraction<T>)-1)) | std::bit_cast<BitsOf<T>>(T(0.5)));
    // the exponent's field as a float: it stands in the last digits of 2^fraction bits
    const BitsOf<T> magic = std::bit_cast<BitsOf<T>>(static_cast<T>(BitsOf<T>{1} << kFraction<T>));
    const T k = std::bit_cast<T>((bits >> kFraction<T>) | magic) - static_cast<T>((BitsOf<T>{1} << kFraction<T>)+kBias<T> - 1) -
                (is_denormal ? T(lift) : T(0));
    const bool low = m < meaning::kSqrtHalf<T>;
    exponent = low ? k - T(1) : k;
    fraction = low ? m + m : m;
  }
};
template <> struct Spelling<Op::BinaryExponent> {
  template <class T, class R, class A> static R apply(A a, T, T) { return Split<R>(a).exponent; }
};
template <> struct Spelling<Op::BinaryFraction> {
  template <class T, class R, class A> static R apply(A a, T, T) { return Split<R>(a).fraction; }
};

// NaN propagates, -0 < +0; where both are equal, and so differ in the sign alone, `zeros` puts the signs together.
template <std::floating_point T, class Zeros> T extremum(T a, T b, bool takes_b, Zeros zeros) {
  T y = takes_b ? b : a;  // a where either is NaN
  y = a == b ? std::bit_cast<T>(zeros(std::bit_cast<BitsOf<T>>(a), std::bit_cast<BitsOf<T>>(b))) : y;
  y = b != b ? b : y;
  return a != a ? a : y;
}
template <> struct Spelling<Op::Maximum> {
  template <class T, class R, class A> static R apply(A a, T b, T c) {
    if constexpr (std::floating_point<T>) return extremum(a, b, a < b, [](auto x, auto y) { return x & y; });
    else return Meaning<Op::Maximum>::apply<T, R, A>(a, b, c);
  }
};
template <> struct Spelling<Op::Minimum> {
  template <class T, class R, class A> static R apply(A a, T b, T c) {
    if constexpr (std::floating_point<T>) return extremum(a, b, b < a, [](auto x, auto y) { return x | y; });
    else return Meaning<Op::Minimum>::apply<T, R, A>(a, b, c);
  }
};
template <> struct Spelling<Op::Clamp> {
  template <class T, class R, class A> static R apply(A a, T b, T c) {
    return Spelling<Op::Minimum>::apply<T, R, A>(Spelling<Op::Maximum>::apply<T, R, A>(a, b, T{}), c, T{});
  }
};
// Elementary functions whole: their values stay in registers. Written by compiler/tiles/generate.
template <Op kOp, class T> struct Fused {
  static constexpr bool kKnown = false;
};
#include "tile_expansions.inc"

// By masks: a choice between elements of another size than the condition's is no vector to a compiler.
template <class B> B choice(std::uint8_t c, B x, B y) {
  const auto mask = static_cast<B>(B{0} - static_cast<B>(c));
  return static_cast<B>((x & mask) | (y & static_cast<B>(~mask)));
}

// ---- loops

// Where operands are one element, it is read once, before the loop.
template <class A, bool kUniform> struct Operand {
  const Stored<A>* elements;
  Stored<A> first;
  explicit Operand(const void* p) : elements(static_cast<const Stored<A>*>(p)), first(*elements) {}
  Stored<A> element(std::int64_t i) const { return kUniform ? first : elements[i]; }
  A at(std::int64_t i) const {
    if constexpr (std::same_as<A, bool>) return element(i) != 0;
    else return A(element(i));
  }
};

template <class T> Stored<T> stored(T value) {
  if constexpr (meaning::Wrapping<T>) return value.value;
  else return static_cast<Stored<T>>(value);
}

template <Op kOp, int kArity, unsigned kUniform, class T, class R, class A>
[[gnu::flatten]] void loop(const void* a, const void* b, const void* c, void* result, std::int64_t n) {
  const Operand<A, (kUniform & 1) != 0> x(a);
  const Operand<T, (kUniform & 2) != 0> y(kArity > 1 ? b : a);
  const Operand<T, (kUniform & 4) != 0> z(kArity > 2 ? c : a);
  auto* const to = static_cast<Stored<R>*>(result);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (kOp == Op::Where) to[i] = choice(x.element(i), y.element(i), z.element(i));
    else if constexpr (ir::info(kOp).kind == ir::OpKind::Expanded && kArity == 1) to[i] = Fused<kOp, T>::apply(x.at(i));
    else if constexpr (ir::info(kOp).kind == ir::OpKind::Expanded) to[i] = Fused<kOp, T>::apply(x.at(i), y.at(i));
    else if constexpr (kArity == 1) to[i] = stored<R>(Spelling<kOp>::template apply<T, R, A>(x.at(i), T{}, T{}));
    else if constexpr (kArity == 2) to[i] = stored<R>(Spelling<kOp>::template apply<T, R, A>(x.at(i), y.at(i), T{}));
    else to[i] = stored<R>(Spelling<kOp>::template apply<T, R, A>(x.at(i), y.at(i), z.at(i)));
  }
}

template <class F> TileLoop with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool: return f.template operator()<bool>();
    case DType::I32: return f.template operator()<Integer<std::int32_t>>();
    case DType::I64: return f.template operator()<Integer<std::int64_t>>();
    case DType::U32: return f.template operator()<Integer<std::uint32_t>>();
    case DType::U64: return f.template operator()<Integer<std::uint64_t>>();
    case DType::F32: return f.template operator()<float>();
    case DType::F64: return f.template operator()<double>();
    default: return nullptr;
  }
}

// What a choice between elements of a type moves.
template <class T> using Bits =
    std::conditional_t<sizeof(T) == 1, bool, Integer<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// Operators of one meaning share their loops.
constexpr Op same_loop(Op op) { return op == Op::Rare ? Op::Where : op == Op::CastUnchecked ? Op::Cast : op; }

template <Op kOp, class T> constexpr bool has_loop() {
  constexpr bool is_bool = std::same_as<T, bool>, is_real = std::floating_point<T>;
  if (kOp == Op::FloorDiv || kOp == Op::Remainder || kOp == Op::Fmod || kOp == Op::IntegerPow) return false;
  if constexpr (ir::info(kOp).kind == ir::OpKind::Expanded) return Fused<kOp, T>::kKnown;
  switch (ir::info(kOp).types) {
    case TypeRule::Number: return !is_bool;
    case TypeRule::Float:
    case TypeRule::Predicate: return is_real;
    case TypeRule::Bits: return !is_real;
    case TypeRule::Integer: return !is_real && !is_bool;
    default: return true;
  }
}

// Operands that are all one element are computed as a tile of one.
template <Op kOp, int kArity, class T, class R, class A> TileLoop of_operands(unsigned uniform) {
  if (uniform == (1u << kArity) - 1) uniform = 0;
  if constexpr (kArity >= 2) {
    switch (uniform) {
      case 1: return &loop<kOp, kArity, 1, T, R, A>;
      case 2: return &loop<kOp, kArity, 2, T, R, A>;
      default: break;
    }
  }
  if constexpr (kArity == 3) {
    switch (uniform) {
      case 3: return &loop<kOp, kArity, 3, T, R, A>;
      case 4: return &loop<kOp, kArity, 4, T, R, A>;
      case 5: return &loop<kOp, kArity, 5, T, R, A>;
      case 6: return &loop<kOp, kArity, 6, T, R, A>;
      default: break;
    }
  }
  return &loop<kOp, kArity, 0, T, R, A>;
}

template <Op kOp, int kArity> TileLoop of_types(DType from, DType to, unsigned uniform) {
  constexpr TypeRule rule = ir::info(kOp).types;
  return with_type(from, [&]<class T>() -> TileLoop {
    if constexpr (!has_loop<kOp, T>()) return nullptr;
    else if constexpr (rule == TypeRule::Convert || rule == TypeRule::Reinterpret)
      return with_type(to, [&]<class R>() -> TileLoop {
        if constexpr (rule == TypeRule::Reinterpret && sizeof(T) != sizeof(R)) return nullptr;
        else return of_operands<kOp, kArity, T, R, T>(uniform);
      });
    else if constexpr (rule == TypeRule::Choose) return of_operands<kOp, kArity, Bits<T>, Bits<T>, bool>(uniform);
    else if constexpr (rule == TypeRule::Compare || rule == TypeRule::Predicate) return of_operands<kOp, kArity, T, bool, T>(uniform);
    else return of_operands<kOp, kArity, T, T, T>(uniform);
  });
}

}  // namespace

TileLoop ONEPASS_TILE_LOOPS(Op op, DType from, DType to, unsigned uniform) {
  switch (op) {
#define PRIMITIVE(id, arity, ...) \
  case Op::id: return of_types<same_loop(Op::id), arity>(from, to, uniform);
#define EXPANDED(id, arity, ...) \
  case Op::id: return of_types<Op::id, arity>(from, to, uniform);
#include "ir/ops.def"
    default: return nullptr;
  }
}

}  // namespace onepass::compiler
#undef meaning
