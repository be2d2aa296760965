// Types that operators accept and return, according to docs/language.md, "Types": every operator by name, every pair of types, and
// literals. Also tests every error. The expectations come from that page and are independent of ops.def.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <onepass/onepass.h>

#include "compiler/record.h"
#include "runtime/formula_program.h"
#include "runtime/program.h"

using namespace onepass;
using compiler::Argument;
using compiler::Recorder;
using compiler::Value;

namespace {

constexpr DType kTypes[] = {boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64};
using Type = std::optional<DType>;  // none: rejected

// Common type of two types; rows and columns are in the order of kTypes. `-`: there is none.
constexpr const char* kPromotion[] = {
    "bool i8   i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64",  // bool
    "i8   i8   i16  i32  i64  i16  i32  i64  -    f16  bf16 f32  f64",  // i8
    "i16  i16  i16  i32  i64  i16  i32  i64  -    f16  bf16 f32  f64",  // i16
    "i32  i32  i32  i32  i64  i32  i32  i64  -    f16  bf16 f32  f64",  // i32
    "i64  i64  i64  i64  i64  i64  i64  i64  -    f16  bf16 f32  f64",  // i64
    "u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64",  // u8
    "u16  i32  i32  i32  i64  u16  u16  u32  u64  f16  bf16 f32  f64",  // u16
    "u32  i64  i64  i64  i64  u32  u32  u32  u64  f16  bf16 f32  f64",  // u32
    "u64  -    -    -    -    u64  u64  u64  u64  f16  bf16 f32  f64",  // u64
    "f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64",  // f16
    "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64",  // bf16
    "f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64",  // f32
    "f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64",  // f64
};

Type common(DType a, DType b) {
  static const auto& table = *[] {
    auto* t = new std::vector<std::vector<std::string>>;
    for (const char* row : kPromotion) {
      std::istringstream words(row);
      t->emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
    }
    return t;
  }();
  const std::string& name = table[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
  DType out{};
  return dtype_of(name, out) ? Type(out) : std::nullopt;
}

bool is_whole(DType t) { return t != boolean && !is_float(t); }
Type real(Type t) { return !t || is_float(*t) ? t : size_of(*t) == 8 ? f64 : f32; }

// Result type of a kind of operators, given the operands' common type.
using Rule = Type (*)(Type common);
const Rule kAny = [](Type t) { return t; };
const Rule kArithmetic = [](Type t) { return t == boolean ? std::nullopt : t; };
const Rule kDivision = [](Type t) { return t == boolean ? std::nullopt : real(t); };
const Rule kElementary = [](Type t) { return real(t); };
const Rule kComparison = [](Type t) { return t ? Type(boolean) : std::nullopt; };
const Rule kBits = [](Type t) { return t && is_float(*t) ? std::nullopt : t; };
const Rule kIntegers = [](Type t) { return t && is_whole(*t) ? t : std::nullopt; };

struct Kind {
  const char* names;
  int arity;
  Rule rule;
};
const Kind kKinds[] = {
    {"add sub mul floor_div remainder fmod pow", 2, kArithmetic},
    {"neg abs sign square", 1, kArithmetic},
    {"div", 2, kDivision},
    {"fma", 3, kDivision},
    {"maximum minimum", 2, kAny},
    {"clamp", 3, kAny},
    {"hypot copysign atan2 logaddexp", 2, kElementary},
    {"reciprocal exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
     "sigmoid "
     "gelu gelu_tanh silu mish softplus softsign hardsigmoid hardswish leaky_relu elu celu selu softmax log_softmax mean var std norm "
     "logsumexp nanmean nanvar nanstd average cov corrcoef trapezoid gradient",
     1, kElementary},
    {"floor ceil trunc round", 1, kAny},
    {"equal not_equal less less_equal greater greater_equal", 2, kComparison},
    {"isnan isinf isfinite signbit logical_not any all", 1, kComparison},
    {"bitwise_and bitwise_or bitwise_xor", 2, kBits},
    {"bitwise_not", 1, kBits},
    {"shift_left shift_right", 2, kIntegers},
    {"popcount", 1, kIntegers},
    {"max min nanmax nanmin", 1, kAny},
    {"diag", 1, kAny},
    {"diff", 1, [](Type t) -> Type { return t; }},
    {"sum prod nansum nanprod", 1, [](Type t) -> Type { return is_float(*t)              ? *t
                                                               : is_unsigned_integer(*t) ? u64
                                                                                         : i64; }},
    {"argmax argmin", 1, [](Type) -> Type { return i64; }},
    {"count_nonzero", 1, [](Type) -> Type { return i64; }},
};

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

Argument argument(const Value& v) {
  Argument a;
  a.kind = Argument::Kind::Value;
  a.value = v;
  return a;
}

Value tensor(Recorder& r, DType t) {
  const std::int64_t shape[] = {2};
  return r.input(fmt::format("x{}", r.graph.inputs.size()), t, shape);
}

// Returns the type of the result, or none if a DTypeError is thrown.
Type type_of(Recorder& r, const std::string& name, const std::vector<Value>& operands) {
  std::vector<Argument> arguments;
  for (const Value& v : operands) arguments.push_back(argument(v));
  try {
    return r.dtype(r.call(name, arguments, {})[0]);
  } catch (const DTypeError&) { return std::nullopt; }
}

std::string text(Type t) { return t ? std::string(name_of(*t)) : "refused"; }

// Returns the formula's error without its position.
std::string error_of(const std::string& formula, const std::vector<std::pair<std::string, DType>>& inputs) {
  try {
    const runtime::FormulaProgram parsed = runtime::parse_formula(formula);
    std::vector<Array> arrays;
    for (const std::string& name : parsed.inputs)
      for (const auto& [given, type] : inputs)
        if (given == name) arrays.push_back(Array::ones({2}, type));
    std::vector<runtime::Argument> arguments;
    for (const Array& a : arrays) arguments.push_back({&a, {}});
    Options options;
    options.mode = Mode::reference;
    runtime::Program(parsed.record, parsed.inputs, options).call(arguments);
  } catch (const Error& error) {
    std::string message = error.what();
    message = message.substr(0, message.find('\n'));
    for (int colons = 0; colons < 3; ++colons) message = message.substr(message.find(':') + 1);
    return message.substr(1);
  }
  return "no error";
}

}  // namespace

TEST_CASE("types: every operator on every type and pair of types", "[types]") {
  for (const Kind& kind : kKinds)
    for (const std::string& name : words(kind.names))
      for (const DType a : kTypes)
        for (const DType b : kTypes) {
          if (kind.arity == 1 && a != b) continue;
          Recorder r;
          const Type expected = kind.rule(common(a, b));
          Type got;
          if (kind.arity == 1) got = type_of(r, name, {tensor(r, a)});
          if (kind.arity == 2) got = type_of(r, name, {tensor(r, a), tensor(r, b)});
          if (kind.arity == 3) got = type_of(r, name, {tensor(r, a), tensor(r, b), tensor(r, b)});
          if (got != expected)
            FAIL_CHECK(name << " of " << name_of(a) << " and " << name_of(b) << ": " << text(got) << ", not " << text(expected));
        }
}

TEST_CASE("types: where, logical operators, casts and bitcasts", "[types]") {
  for (const DType a : kTypes)
    for (const DType b : kTypes) {
      INFO(name_of(a) << " and " << name_of(b));
      Recorder r;
      const Value condition = tensor(r, boolean), x = tensor(r, a), y = tensor(r, b);
      CHECK(type_of(r, "where", {condition, x, y}) == common(a, b));
      CHECK(type_of(r, "where", {x, y, y}) == (a == boolean ? Type(b) : std::nullopt));
      for (const char* name : {"logical_and", "logical_or", "logical_xor"}) CHECK(type_of(r, name, {x, y}) == boolean);  // u64 with i8 too
      CHECK(r.dtype(r.cast(x, b)) == b);
      if (size_of(a) == size_of(b)) CHECK(r.dtype(r.bitcast(x, b)) == b);
      else CHECK_THROWS_AS(r.bitcast(x, b), DTypeError);
    }
}

TEST_CASE("types: a literal takes the tensor's type", "[types]") {
  for (const DType t : kTypes) {
    INFO(name_of(t));
    Recorder r;
    const Value x = tensor(r, t), one = r.literal(std::int64_t{1}), half = r.literal(0.5), yes = r.literal(true);
    const DType with_integer = t == boolean ? i64 : t, with_float = is_float(t) ? t : f32;
    CHECK(type_of(r, "add", {x, one}) == with_integer);
    CHECK(type_of(r, "mul", {half, x}) == with_float);
    CHECK(type_of(r, "sub", {x, yes}) == (t == boolean ? std::nullopt : Type(t)));
    CHECK(type_of(r, "div", {x, one}) == real(with_integer));
    CHECK(type_of(r, "div", {x, half}) == with_float);
    CHECK(type_of(r, "pow", {x, one}) == with_integer);
    CHECK(type_of(r, "less", {x, half}) == boolean);
    CHECK(type_of(r, "maximum", {x, one}) == with_integer);
    CHECK(type_of(r, "shift_left", {x, one}) == (is_float(t) ? std::nullopt : Type(with_integer)));
    CHECK(type_of(r, "bitwise_and", {x, one}) == (is_float(t) ? std::nullopt : Type(with_integer)));
    CHECK(type_of(r, "where", {r.cast(x, boolean), x, half}) == with_float);
    for (const DType to : kTypes) CHECK(r.dtype(r.full({2}, half, to)) == to);
  }
}

TEST_CASE("types: integer literals fit or are rejected", "[types]") {
  for (const DType t : kTypes) {
    if (!is_whole(t)) continue;
    const int bits = static_cast<int>(8 * size_of(t));
    Recorder r;
    const Value x = tensor(r, t);
    const auto fits = [&](std::int64_t v) {
      try {
        r.add(x, r.literal(v));
        return true;
      } catch (const ValueError&) { return false; }
    };
    INFO(name_of(t));
    const bool is_signed = is_signed_integer(t);
    const std::int64_t most = bits == 64 ? INT64_MAX : (std::int64_t{1} << (bits - is_signed)) - 1;
    CHECK(fits(most));
    CHECK(fits(0));
    CHECK(fits(is_signed ? -most - 1 : 0));
    if (bits < 64) CHECK(!fits(most + 1));
    if (!is_signed) CHECK(!fits(-1));
    else if (bits < 64) CHECK(!fits(-most - 2));
  }
}

TEST_CASE("types: literals above the largest i64 are u64 in every mode, also with cached kernels", "[types]") {
  const std::vector<std::uint64_t> values{0, 1, std::uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX};
  const Array u = Array::from(values);
  for (const Mode mode : {Mode::reference, Mode::unfused, Mode::generic, Mode::specialized}) {
    INFO("mode " << static_cast<int>(mode));
    Options options;
    options.mode = mode;
    const Formula f =
        formula("a = u & 18446744073709551615; b = u ^ k; c = u > 9223372036854775808; d = full([2], 18446744073709551615)", options);
    const auto results = f({{"u", u}, {"k", UINT64_MAX}});
    CHECK(results["a"].to_vector<std::uint64_t>() == values);
    const auto b = results["b"].to_vector<std::uint64_t>();
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(b[i] == ~values[i]);
    CHECK(results["c"].to_vector<bool>() == std::vector<bool>{false, false, false, true, true});
    CHECK(results["d"].to_vector<std::uint64_t>() == std::vector<std::uint64_t>{UINT64_MAX, UINT64_MAX});
    CHECK(f({{"u", u}, {"k", 1}})["b"].to_vector<std::uint64_t>()[4] == UINT64_MAX - 1);
    const std::vector<std::string> signatures = f.signatures();
    CHECK(std::ranges::count_if(signatures, [](const std::string& s) { return s.find("18446744073709551615") != s.npos; }) >= 1);
    const Formula again = formula("u ^ k", options);
    again.warm_up(std::vector<std::string>{"u64[5] 18446744073709551615"});
    CHECK(Array(again({u, UINT64_MAX})).to_vector<std::uint64_t>() == b);
    CHECK(again.stats().recordings == 1);
  }
}

TEST_CASE("types: softmax over an empty axis is empty, and so is its derivative", "[types]") {
  for (const Mode mode : {Mode::reference, Mode::unfused, Mode::generic, Mode::specialized})
    for (const char* name : {"softmax", "log_softmax"}) {
      INFO(name << " in mode " << static_cast<int>(mode));
      Options options;
      options.mode = mode;
      const std::string call = name;
      const Formula f = formula("y = " + call + "(x); z = " + call + "(x, 1) + 1; d = grad(sum(" + call + "(x*2)), [x])", options);
      for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{2, 0}, {0, 0}}) {
        const auto results = f({{"x", Array::empty(shape, f32)}});
        for (const char* result : {"y", "z", "d"}) {
          CHECK(std::ranges::equal(results[result].shape(), shape));
          CHECK(results[result].dtype() == f32);
        }
      }
      const Array integers = formula(call + "(x, 0)", options)({Array::empty({0, 3}, DType::I64)});
      CHECK(integers.dtype() == DType::F64);
      CHECK(std::ranges::equal(integers.shape(), std::vector<std::int64_t>{0, 3}));
    }
}

TEST_CASE("types: errors have a reason and a fix", "[types]") {
  const std::vector<std::pair<std::string, DType>> inputs{{"a", boolean}, {"b", boolean}, {"k", i32}, {"u", u64},
                                                          {"c", u8},      {"x", f32},     {"h", f16}};
  const std::pair<const char*, const char*> rows[] = {
      {"a + b", "add: arithmetic on two bools (a bool[2] and b bool[2]) is not defined. Use & or |, or cast one"},
      {"a / b", "div: arithmetic on two bools (a bool[2] and b bool[2]) is not defined. Use & or |, or cast one"},
      {"a ** b", "pow: arithmetic on two bools (a bool[2] and b bool[2]) is not defined. Use & or |, or cast one"},
      {"fma(a, b, true)", "fma: arithmetic on two bools (a bool[2], b bool[2] and true) is not defined. Use & or |, or cast one"},
      {"a - true", "sub: arithmetic on two bools (a bool[2] and true) is not defined. Use & or |, or cast one"},
      {"true + false", "add: arithmetic on two bools (true and false) is not defined. Use & or |, or cast one"},
      {"-a", "neg: the operator does not accept bool (a bool[2]). Cast it to a number"},
      {"abs(a)", "abs: the operator does not accept bool (a bool[2]). Cast it to a number"},
      {"u + k", "add: u64 and i32 have no common type. Cast one of them"},
      {"u < k", "less: u64 and i32 have no common type. Cast one of them"},
      {"c + 300", "add: the literal 300 does not fit u8. Cast the tensor to a wider type"},
      {"c - (-1)", "sub: the literal -1 does not fit u8. Cast the tensor to a wider type"},
      {"u*-1", "mul: the literal -1 does not fit u64. Cast the tensor to a wider type"},
      {"x << 1", "shift_left: the operands must be integers, not f32 (x f32[2] and 1). Cast them first"},
      {"h >> k", "shift_right: the operands must be integers, not f16 (h f16[2] and k i32[2]). Cast them first"},
      {"a << b", "shift_left: the operands must be integers, not bool (a bool[2] and b bool[2]). Cast them first"},
      {"1.5 << 2", "shift_left: the operands must be integers, not f32 (1.5 and 2). Cast them first"},
      {"x & 1", "bitwise_and: the operands must be integers or bool, not f32 (x f32[2] and 1). Cast them first"},
      {"~h", "bitwise_not: the operands must be integers or bool, not f16 (h f16[2]). Cast it first"},
      {"popcount(a)", "popcount: the operands must be integers, not bool (a bool[2]). Cast it first"},
      {"where(k, x, 0)", "where: the condition must be bool, not k i32[2]. Write c != 0"},
      {"k ? x : 0", "where: the condition must be bool, not k i32[2]. Write c != 0"},
      {"bitcast(x, i16)", "bitcast: f32 has 4 bytes, but i16 has 2; the sizes must be equal"},
      {"bitcast(1, f32)", "bitcast: i64 has 8 bytes, but f32 has 4; the sizes must be equal"},
      {"full([2, -3], 1)", "full: the shape [2, -3] has a negative extent"},
      {"zeros([4294967296, 4294967296])", "zeros: the shape [4294967296, 4294967296] needs more bytes than 64 bits can count"},
      {"iota([3], dtype=bool)", "iota: the type must be a number, not bool"},
      {"cast(x, 3)", "cast: `dtype` must be a type such as f32"},
      {"9223372036854775807 + 1", "add: the integer literals overflow i64. Write one of them as a float"},
      {"grad(sum(k), [k])", "grad: the loss is i64[]; integers and bool have no derivative. Cast it to a float type first"},
  };
  for (const auto& [formula, expected] : rows) {
    INFO(formula);
    CHECK(error_of(formula, inputs) == expected);
  }
}

TEST_CASE("types: values that the language defines although machines differ", "[types]") {
  // a formula without inputs: full turns its literals into tensors, so that kernels compute it instead of constant folding
  const std::pair<const char*, std::vector<double>> rows[] = {
      {"cast(full([1], 300.7), u8)", {255}},
      {"cast(full([1], -1.5), u8)", {0}},
      {"cast(full([1], nan), i32)", {0}},
      {"cast(full([1], inf), i64) == full([1], 9223372036854775807)", {1}},
      {"cast(full([1], -inf, f16), i8)", {-128}},
      {"cast(full([1], 300), u8)", {44}},
      {"cast(full([1], -1), u16)", {65535}},
      {"cast(full([1], nan), bool)", {1}},
      {"cast(full([1], 0.25, bf16), bool)", {1}},
      {"full([1], 127, i8) + full([1], 1, i8)", {-128}},
      {"full([1], 200, u8)*full([1], 2, u8)", {144}},
      {"-full([1], 1, u32)", {4294967295.0}},
      {"abs(full([1], -128, i8))", {-128}},
      {"full([1], 7, i16) // full([1], 0, i16)", {0}},
      {"full([1], -7, i16) // full([1], 2, i16)", {-4}},
      {"full([1], -32768, i16) // full([1], -1, i16)", {-32768}},
      {"full([1], -7, i8) % full([1], 3, i8)", {2}},
      {"full([1], 7, i8) % full([1], 0, i8)", {0}},
      {"fmod(full([1], -7, i8), full([1], 3, i8))", {-1}},
      {"full([1], 3, u8) ** full([1], 5, u8)", {243}},
      {"full([1], 3, i8) ** full([1], 5, i8)", {-13}},
      {"full([1], 2, i32) ** full([1], -1, i32)", {0}},
      {"full([1], -1, i32) ** full([1], -3, i32)", {-1}},
      {"full([1], 0, i64) ** full([1], 0, i64)", {1}},
      {"full([1], 1, u8) << full([1], 8, u8)", {0}},
      {"full([1], -5, i16) >> full([1], 16, i16)", {-1}},
      {"full([1], 5, i16) << full([1], -1, i16)", {0}},
      {"popcount(full([1], -1, i8))", {8}},
      {"~full([1], 0, u16)", {65535}},
      {"full([1], true) ^ full([1], true)", {0}},
      {"sum(full([300], 255, u8))", {76500}},
      {"sum(full([3], true))", {3}},
      {"prod(full([2], -128, i8))", {16384}},
      {"mean(full([3], 2, u8))", {2}},
      {"full([1], 7, u8) / full([1], 2, u8)", {3.5}},
      {"sign(full([1], -3, i8))", {-1}},
      {"floor(full([1], -3, i16))", {-3}},
      {"signbit(full([1], -3, i16))", {1}},
      {"maximum(full([1], true), full([1], false))", {1}},
      {"bitcast(full([1], 1.0), u32) >> 23", {127}},
      {"bitcast(full([1], 1.0, f16), u16)", {15360}},
      {"bitcast(full([1], 2, u8), bool)", {1}},
  };
  for (const auto& [formula, expected] : rows) {
    INFO(formula);
    const runtime::FormulaProgram parsed = runtime::parse_formula(fmt::format("cast({}, f64)", formula));
    for (const Mode mode : {Mode::reference, Mode::generic, Mode::unfused}) {
      Options options;
      options.mode = mode;
      CHECK(runtime::Program(parsed.record, parsed.inputs, options).call({})[0].to_vector<double>() == expected);
    }
  }
}
