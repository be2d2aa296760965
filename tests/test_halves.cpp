// f16 and bf16: values are f32 inside a program; only casts and outputs round, once each. This holds in the reference and in kernels of
// every width, by instructions of the processor and by integer arithmetic. The oracle is a table of every half as a double.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/codegen.h"
#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "run_partition.h"
#include "runtime/formula_program.h"
#include "runtime/os.h"
#include "runtime/program.h"
#include "with_mode.h"

using namespace onepass;
using namespace onepass::test;
namespace op = onepass;

namespace {

// ---- the oracle

struct Format {
  DType dtype;
  int mantissa, least;  // fraction bits; exponent of the last place of subnormals
};
constexpr Format kFormats[] = {{f16, 10, -24}, {bf16, 7, -133}};

double value_of(const Format& f, std::uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> f.mantissa, fraction = bits & ((1 << f.mantissa) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0x7fff >> f.mantissa) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return exponent == 0 ? sign * std::ldexp(fraction, f.least) : sign * std::ldexp(fraction | 1 << f.mantissa, f.least + exponent - 1);
}

// Returns the non-negative halves in order. The last entry, for infinity, is the next power of two.
std::vector<double> halves(const Format& f) {
  std::vector<double> out;
  for (std::uint16_t bits = 0; std::isfinite(value_of(f, bits)); ++bits) out.push_back(value_of(f, bits));
  out.push_back(2 * out.back() - out[out.size() - 2]);
  out.back() = std::exp2(std::ceil(std::log2(out.back())));
  return out;
}

// Returns the bits of the nearest half by search. The comparison does not go through double, since integers may have more digits.
template <class T> std::uint16_t nearest(const Format& f, const std::vector<double>& table, T x) {
  const std::uint16_t infinity = static_cast<std::uint16_t>(table.size() - 1);
  const long double value = static_cast<long double>(x), magnitude = std::fabs(value);  // 64 digits: exact
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1 << (f.mantissa - 1));
  const auto above = std::upper_bound(table.begin(), table.end(), magnitude, [](long double a, double b) { return a < b; });
  if (above == table.end()) return static_cast<std::uint16_t>(sign | infinity);
  const auto low = static_cast<std::uint16_t>(above - table.begin() - 1);
  const long double to_low = magnitude - static_cast<long double>(above[-1]), to_high = static_cast<long double>(above[0]) - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (low + up));
}

// ---- all forms of execution of a graph

compiler::Target without_f16c(compiler::Target target) {
  if (!target.triple.starts_with("x86_64")) return target;
  target.cpu = "x86-64-v3";  // AVX-512 would imply the conversions
  target.features = "-f16c";
  return target;
}

struct Form {
  std::string name;
  compiler::Target target;
};
std::vector<Form> forms() {
  std::vector<Form> out;
  const compiler::Target& host = compiler::Target::host();
  for (const int bytes : {16, 32, 64})
    if (bytes <= host.vector_bytes) out.push_back({fmt::format("vectors of {} bytes", bytes), host.with_vector_bytes(bytes)});
  if (host.vector_bytes >= 32) out.push_back({"integer arithmetic", without_f16c(host.with_vector_bytes(32))});
  return out;
}

// Compares the bits of out = convert(x) in every form with the expected bits. `op` is the operator of the printed form, from %0 to %1.
template <class T, class R>
void check_conversion(DType from, DType to, const std::vector<T>& x, const std::vector<R>& expected, const char* op = "cast") {
  const auto n = static_cast<std::int64_t>(x.size());
  const ir::Graph graph =
      ir::parse_graph(fmt::format("%0 = input x : {0}[{2}]\n%1 = {3} %0 : {1}[{2}]\nreturn y = %1", name_of(from), name_of(to), n, op));
  const std::vector<ir::ArrayView> views{{from, x.data(), {n}, {}}};
  const auto check = [&](const std::string& form, const ir::Buffer& got) {
    INFO(op << " of " << name_of(from) << " to " << name_of(to) << ", " << form);
    const ir::Buffer right{
        to, {n}, {reinterpret_cast<const std::byte*>(expected.data()), reinterpret_cast<const std::byte*>(expected.data() + n)}};
    std::string what;
    const bool same = equals_bitwise(got, right, &what);
    CHECK(same);
    if (!same) WARN(what);
  };
  check("reference", ir::evaluate(graph, views)[0]);
  for (const Form& form : forms())
    for (const bool unfused : {false, true}) check(form.name, run(graph, views, {.unfused = unfused, .target = form.target})[0]);
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> out;
  for (int i = 0; i < 65536; ++i) out.push_back(static_cast<std::uint16_t>(i));
  return out;
}

// Returns every half, every midpoint of two halves, and the floats next to them, with both signs.
template <class T> std::vector<T> edges(const Format& f) {
  const std::vector<double> table = halves(f);
  std::vector<T> out;
  const T infinity = std::numeric_limits<T>::infinity();
  for (std::size_t i = 0; i < table.size(); ++i)
    for (const double exact : {table[i], i ? (table[i - 1] + table[i]) / 2 : 0.0}) {
      const T x = static_cast<T>(exact);
      for (const T near : {std::nextafter(x, -infinity), x, std::nextafter(x, infinity)}) out.push_back(near), out.push_back(-near);
    }
  for (const T x : {infinity, std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), std::numeric_limits<T>::denorm_min(),
                    std::numeric_limits<T>::quiet_NaN()})
    out.push_back(x), out.push_back(-x);
  return out;
}

template <class T> void check_edges(const Format& f) {
  const std::vector<double> table = halves(f);
  std::vector<T> x = edges<T>(f);
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    x.push_back(std::bit_cast<T>(static_cast<Bits>(random())));
    x.push_back(static_cast<T>(std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 48) - 80)));
  }
  std::vector<std::uint16_t> expected;
  for (const T v : x) expected.push_back(nearest(f, table, v));
  check_conversion(dtype<T>, f.dtype, x, expected);
}

template <class T> void check_integers(const Format& f) {
  const std::vector<double> table = halves(f);
  std::vector<T> x{std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 1};
  std::mt19937_64 random(11);
  for (int i = 0; i < 3000; ++i) x.push_back(static_cast<T>(random() >> (random() % 64)));
  if constexpr (sizeof(T) <= 2) {
    for (int i = 0; i < 65536; ++i) x.push_back(static_cast<T>(i));
  } else {
    for (std::size_t i = 1; i < table.size(); ++i)  // midpoints, and the integers next to them
      if (const double middle = (table[i - 1] + table[i]) / 2; middle >= 1 && middle < std::ldexp(1.0, std::numeric_limits<T>::digits) / 2)
        for (int d = -1; d <= 1; ++d) {
          x.push_back(static_cast<T>(static_cast<T>(middle) + static_cast<T>(d)));
          if (std::is_signed_v<T>) x.push_back(static_cast<T>(T{0} - x.back()));
        }
  }
  std::vector<std::uint16_t> expected;
  for (const T v : x) expected.push_back(nearest(f, table, v));
  check_conversion(dtype<T>, f.dtype, x, expected);
}

// ---- programs

std::vector<Array> run_formula(const char* formula, const std::vector<Array>& inputs, const Options& options) {
  const runtime::FormulaProgram parsed = runtime::parse_formula(formula);
  std::vector<runtime::Argument> arguments;
  for (const Array& a : inputs) arguments.push_back({&a, {}});
  runtime::Program program(parsed.record, parsed.inputs, options);
  return program.call(arguments);
}

// Returns the results of generic mode, after a check that all modes give the same bits.
std::vector<Array> everywhere(const char* formula, const std::vector<Array>& inputs) {
  INFO(formula);
  const std::vector<Array> expected = run_formula(formula, inputs, with(Mode::reference));
  std::vector<Array> out;
  for (const Mode mode : {Mode::unfused, Mode::generic}) {
    out = run_formula(formula, inputs, with(mode));
    REQUIRE(out.size() == expected.size());
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto buffer = [](const Array& a) {
        const Array c = a.contiguous();
        const auto* bytes = static_cast<const std::byte*>(c.data());
        return ir::Buffer{c.dtype(), {c.shape().begin(), c.shape().end()}, {bytes, bytes + c.bytes()}};
      };
      std::string what;
      const bool same = equals_bitwise(buffer(out[k]), buffer(expected[k]), &what);
      INFO(what);
      CHECK(same);
    }
  }
  return out;
}

template <class H> std::vector<float> floats(const Array& a) {
  std::vector<float> out;
  for (const H h : a.to_vector<H>()) out.push_back(static_cast<float>(h));
  return out;
}
using Floats = std::vector<float>;

template <class H> Array array_of(std::initializer_list<double> values) {
  std::vector<H> v;
  for (const double x : values) v.push_back(H(x));
  return Array::from(std::move(v));
}

}  // namespace

TEST_CASE("halves: every bit pattern is read exactly and written back", "[halves]") {
  for (const Format& f : kFormats) {
    const std::vector<std::uint16_t> bits = all_patterns();
    std::vector<float> singles;
    std::vector<double> doubles;
    std::vector<std::int32_t> integers;
    for (const std::uint16_t b : bits) {
      doubles.push_back(value_of(f, b));
      singles.push_back(static_cast<float>(doubles.back()));
      const double t = std::trunc(std::isnan(doubles.back()) ? 0 : doubles.back());
      integers.push_back(t >= 0x1p31 ? INT32_MAX : t < -0x1p31 ? INT32_MIN : static_cast<std::int32_t>(t));
    }
    check_conversion(f.dtype, f32, bits, singles);
    check_conversion(f.dtype, f64, bits, doubles);
    check_conversion(f.dtype, i32, bits, integers);
    check_conversion(f.dtype, f.dtype, bits, bits);
    check_conversion(u16, f.dtype, bits, bits, "bitcast");
    std::vector<std::uint16_t> plain;  // a NaN's bits are unspecified
    for (const std::uint16_t b : bits)
      if (!std::isnan(value_of(f, b))) plain.push_back(b);
    check_conversion(f.dtype, u16, plain, plain, "bitcast");
    check_conversion(f.dtype, i16, plain, plain, "bitcast");
    check_conversion(f.dtype, f.dtype == f16 ? bf16 : f16, plain, plain, "bitcast");
  }
}

TEST_CASE("halves: f32 and f64 are rounded once, to nearest even", "[halves]") {
  for (const Format& f : kFormats) {
    check_edges<float>(f);
    check_edges<double>(f);
  }
  // Doubles for which rounding to f32 first would make a tie.
  const std::vector<double> x{1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 0x1p-25 + 0x1p-77, 65520 - 0x1p-30};
  const std::vector<std::uint16_t> as_f16{0x3c01, 0x3c04, 0x0001, 0x7bff}, as_bf16{0x3f80, 0x3f81, 0x3300, 0x4780};
  check_conversion(f64, f16, x, as_f16);
  check_conversion(f64, bf16, x, as_bf16);
}

TEST_CASE("halves: integers of every width are rounded once", "[halves]") {
  for (const Format& f : kFormats) {
    check_integers<std::int8_t>(f);
    check_integers<std::uint8_t>(f);
    check_integers<std::int16_t>(f);
    check_integers<std::uint16_t>(f);
    check_integers<std::int32_t>(f);
    check_integers<std::uint32_t>(f);
    check_integers<std::int64_t>(f);
    check_integers<std::uint64_t>(f);
  }
  // Rounding to f64 first would make a tie of bf16.
  check_conversion(i64, bf16, std::vector{(std::int64_t{1} << 60) + (std::int64_t{1} << 52) + 1}, std::vector<std::uint16_t>{0x5d81});
}

TEST_CASE("halves: nothing is rounded between operators, only at casts and outputs", "[halves]") {
  const Array x = array_of<op::Half>({60000, 1, 0x1p-24}), y = array_of<op::Half>({60000, 1 / 1024.0, 0.5});
  CHECK(floats<op::Half>(everywhere("(x + y)*0.5", {x, y})[0]) == Floats{60000, 0.50048828125f, 0.25});
  CHECK(floats<op::Half>(everywhere("cast(x + y, f16)*0.5", {x, y})[0])[0] == INFINITY);
  CHECK(everywhere("cast(x*y, f32)", {x, y})[0].to_vector<float>() == Floats{INFINITY, 1 / 1024.0f, 0});  // the cast rounds to f16 first
  CHECK(everywhere("cast(x, f32)*cast(y, f32)", {x, y})[0].to_vector<float>() == Floats{3.6e9f, 1 / 1024.0f, 0x1p-25f});
  CHECK(everywhere("cast(x*y, i32)", {x, y})[0].to_vector<std::int32_t>()[0] == INT32_MAX);
  CHECK(everywhere("bitcast(x*0.3, u16)", {x})[0].to_vector<std::uint16_t>() ==
        std::vector<std::uint16_t>{op::Half(60000 * 0.3f).bits(), op::Half(0.3).bits(), 0});
  // Combined with a half, 0.1 is the nearest f32. A cast or full makes it the nearest half.
  CHECK(everywhere("cast(x[1]*0.1, f16) == cast(0.1, f16)", {x})[0].item<bool>());
  CHECK(everywhere("cast(x[1:2]*0.1 - 0.1, f32)", {x})[0].to_vector<float>() == Floats{0});
  CHECK(everywhere("cast(x[1:2]*0.1, f16) - full([1], 0.1, f16)", {x})[0].to_vector<op::Half>()[0] == 0.0f);
  CHECK(everywhere("cast(full([1], 0.1, f16), f64)", {})[0].to_vector<double>()[0] == 0.0999755859375);
  CHECK(everywhere("full([1], 9007199254740993, bf16)", {})[0].to_vector<op::BFloat16>()[0] == 0x1p53f);
  CHECK(everywhere("iota([3], dtype=f16) + ones([3], bf16)", {})[0].to_vector<float>() == Floats{1, 2, 3});
}

TEST_CASE("halves: a result that another kernel reads is read unrounded", "[halves]") {
  Array x = Array::empty({40, 300}, f16), b = Array::empty({40, 300}, bf16);
  std::mt19937 random(3);
  for (op::Half& v : x.span<op::Half>()) v = op::Half(std::ldexp(static_cast<double>(random() % 4096), -12));
  for (op::BFloat16& v : b.span<op::BFloat16>()) v = op::BFloat16(std::ldexp(static_cast<double>(random() % 4096), -12));
  for (const char* formula : {
           "m = sum(x); y = x*m; keep = m*1; return_m = m",
           "m = mean(x, axis=1, keepdims=true); c = x - m; a = m; v = sum(c*c, axis=0)",
           "t = exp(x)*1.1; s = sum(t); r = t/s; u = t",
           "t = x*1.001; u = t; v = t; s = sum(sum(t, axis=1)); w = cast(t, f32) + s",
           "softmax(x, axis=0)",
           "layer_norm(x)",
           "s = sum(x, axis=0); p = prod(x[:3], axis=0); q = max(x, axis=1) + s[:40]",
           "dx = grad(sum(tanh(x)*x), [x])",
           "y = cast(x, f32)*x; dx = vjp(y, [x], ones([40, 300]))",
       }) {
    everywhere(formula, {x});
    everywhere(formula, {b});
  }
  // The destination's strides do not matter to the kernel that reads the value.
  const Formula both = formula("t = cast(cumsum(cast(x, f32), axis=0), f16); h = t; v = t - max(t)");
  const FormulaResults plain = both({{"x", x}});
  const Array v = Array::empty({40, 300}, f16), h = Array::empty({40, 310}, f16).slice(1, 3, 303);
  both.into({{"h", h}, {"v", v}}, {{"x", x}});
  CHECK(both.stats().fallbacks == 0);
  int differing = 0;
  for (std::int64_t i = 0; i < 40; ++i)
    for (std::int64_t j = 0; j < 300; ++j)
      for (const auto& [got, expected] : {std::pair{h, plain[0]}, {v, plain[1]}})
        differing += float(got.at<op::Half>({i, j})) != float(expected.at<op::Half>({i, j}));
  CHECK(differing == 0);
  // The mean of 2^k + 1 equal values is that value, in f16 and in f32; a rounded sum would overflow.
  const Array large = Array::full({4097}, 1000.0, f16);
  CHECK(everywhere("m = mean(large); y = large - m; z = m", {large})[1].item<op::Half>() == 1000.0f);
}

// The shorter expansions are within 4 ULP of f32. The result is the half nearest to a value within that error.
TEST_CASE("halves: erf and tanh use shorter expansions in every mode", "[halves]") {
  const std::vector<std::uint16_t> bits = all_patterns();
  for (const Format& f : kFormats) {
    const std::vector<double> table = halves(f);
    for (const char* function : {"erf", "tanh"}) {
      const std::string formula = fmt::format("{}(bitcast(u, {}))", function, name_of(f.dtype));
      const Array y = everywhere(formula.c_str(), {Array::from(std::vector(bits))})[0];
      CHECK_THAT(last_optimized_graph(), Catch::Contains(fmt::format("{}_short", function)));
      const auto* got = static_cast<const std::uint16_t*>(y.data());
      std::size_t wrong = 0;
      for (const std::uint16_t b : bits) {
        const double x = value_of(f, b), exact = *function == 'e' ? std::erf(x) : std::tanh(x);
        const double most = std::min(std::abs(exact) * (1 + 0x1p-21), 1.0), least = std::abs(exact) * (1 - 0x1p-21);
        const auto nearest_to = [&](double magnitude) { return nearest(f, table, std::copysign(magnitude, exact)); };
        wrong += std::isnan(x) ? !std::isnan(value_of(f, got[b])) : got[b] != nearest_to(most) && got[b] != nearest_to(least);
      }
      INFO(formula);
      CHECK(wrong == 0);
    }
    const Array x = Array::full({8}, 0.5, f.dtype);
    everywhere("erf(cast(x, f32))", {x});  // f32 uses the full expansion
    CHECK_THAT(last_optimized_graph(), !Catch::Contains("_short"));
  }
}

TEST_CASE("halves: types promote as the language defines", "[halves]") {
  const Array h = Array::full({2}, 1.5, f16), b = Array::full({2}, 2.5, bf16);
  const auto type = [](const char* formula, const std::vector<Array>& in) { return everywhere(formula, in)[0].dtype(); };
  CHECK(type("h + b", {h, b}) == f32);
  CHECK(type("h + 1", {h}) == f16);
  CHECK(type("b*0.5 + true", {b}) == bf16);
  CHECK(type("h + x", {h, Array::full({2}, 1, f32)}) == f32);
  CHECK(type("b + x", {b, Array::full({2}, 1, f64)}) == f64);
  for (const DType t : {i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
    CHECK(type("h + k", {h, Array::ones({2}, t)}) == f16);
    CHECK(type("b*k", {b, Array::ones({2}, t)}) == bf16);
  }
  // an integer is rounded when combined with a half
  CHECK(everywhere("h*0 + k", {h, Array::full({2}, 2049, i32)})[0].to_vector<op::Half>()[0] == 2048.0f);
  CHECK(everywhere("cast(h*0 + k, f32) - 2048", {h, Array::full({2}, 2049, i32)})[0].to_vector<float>()[0] == 0);
  CHECK(type("h > b", {h, b}) == boolean);
  CHECK(type("mean(h)", {h}) == f16);
  CHECK(type("where(h > 1, h, 0)", {h}) == f16);
  CHECK_THROWS_WITH(run_formula("h << 1", {h}, {}), Catch::Contains("shift_left: the operands must be integers") && Catch::Contains("f16"));
  CHECK_THROWS_WITH(run_formula("h & h", {h}, {}), Catch::Contains("bitwise_and: the operands must be integers or bool, not"));
  CHECK_THROWS_WITH(run_formula("bitcast(h, f32)", {h}, {}),
                    Catch::Contains("bitcast: f16 has 2 bytes, but f32 has 4; the sizes must be equal"));
}

TEST_CASE("halves: C++ element types", "[halves]") {
  STATIC_REQUIRE(op::dtype<op::Half> == f16);
  STATIC_REQUIRE(op::dtype<op::BFloat16> == bf16);
  STATIC_REQUIRE(sizeof(op::Half) == 2);
  STATIC_REQUIRE(op::Half(1.0 / 3).bits() == 0x3555);
  STATIC_REQUIRE(op::BFloat16(1.0 / 3).bits() == 0x3eab);
  STATIC_REQUIRE(static_cast<float>(op::Half::from_bits(0x0001)) == 0x1p-24f);
  std::vector<op::Half> v{op::Half(1), op::Half(-2.5)};
  const Array wrapped = Array::wrap(v);
  CHECK(wrapped.dtype() == f16);
  CHECK(wrapped.span<const op::Half>()[1] == -2.5f);
  CHECK(wrapped.at<op::Half>({0}) == 1.0f);
  CHECK(Array::scalar(op::BFloat16(3)).item<op::BFloat16>() == 3.0f);
  CHECK_THROWS_AS(wrapped.to_vector<op::BFloat16>(), DTypeError);
  CHECK_THROWS_AS(wrapped.to_vector<float>(), DTypeError);
  const auto twice = op::compile([](op::Tensor x) { return x * 2; });
  Array out = Array::empty({2}, f16);
  twice.into(out)(wrapped);
  CHECK(floats<op::Half>(out) == Floats{2, -5});
#ifdef __FLT16_MANT_DIG__
  std::vector<_Float16> own{_Float16(0.5f)};
  CHECK(floats<op::Half>(twice(Array::wrap(own))) == Floats{1});
  CHECK(static_cast<float>(Array::wrap(own).to_vector<_Float16>()[0]) == 0.5f);
#endif
  for (const Format& f : kFormats)
    for (const std::uint16_t bits : all_patterns()) {
      const float expected = static_cast<float>(value_of(f, bits));
      const float got = f.dtype == f16 ? static_cast<float>(op::Half::from_bits(bits)) : static_cast<float>(op::BFloat16::from_bits(bits));
      if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected) && !(std::isnan(got) && std::isnan(expected)))
        FAIL_CHECK(name_of(f.dtype) << " 0x" << std::hex << bits);
    }
}

TEST_CASE("halves: intermediates between kernels are f32, arguments and results two bytes", "[halves]") {
  const ir::Graph graph = ir::parse_graph(R"(
    %0 = input x : f16[64, 100]
    %1 = reduce_sum %0 {0, 1} : f16[]
    %2 = reshape %1 : f16[1, 1]
    %3 = broadcast %2 : f16[64, 100]
    %4 = slice %0 {0, 10, 1, 1} : f16[64, 90]
    %5 = slice %3 {0, 0, 1, 1} : f16[64, 90]
    %6 = div %4, %5 : f16[64, 90]
    return y = %6, s = %1)");
  const Arguments arguments = random_arguments(graph, 5);
  Counts counts;
  run(graph, arguments.views, {.counts = &counts});
  CHECK(counts.kernels == 2);
  CHECK(counts.bytes_loaded() == 64 * (100 + 90) * 2 + 4);
  CHECK(counts.bytes_stored() == 64 * 90 * 2 + 2 + 4);
  CHECK(counts.bytes_read == counts.bytes_loaded());
  CHECK(counts.bytes_written == counts.bytes_stored());
}

#ifdef ONEPASS_EVERY_TARGET
TEST_CASE("halves: objects for AArch64 are emitted", "[halves]") {
  std::string why;
  void* const library = os::open_library(ONEPASS_EVERY_TARGET, &why);
  INFO(why);
  REQUIRE(library);
  reinterpret_cast<void (*)()>(os::find_symbol(library, "onepass_add_targets"))();
  const auto generate = reinterpret_cast<compiler::CodegenEntry>(os::find_symbol(library, compiler::kCodegenEntry));
  const ir::Graph graph = ir::parse_graph(R"(
    %0 = input x : f16[999]
    %1 = input y : bf16[999]
    %2 = input z : f64[999]
    %3 = input k : i64[999]
    %4 = cast %0 : f32[999]
    %5 = cast %1 : f32[999]
    %6 = cast %2 : f16[999]
    %7 = cast %3 : bf16[999]
    %8 = mul %4, %5 : f32[999]
    %9 = cast %8 : f16[999]
    %10 = bitcast %7 : u16[999]
    return a = %6, b = %9, c = %10)");
  compiler::Target target;
  target.triple = "aarch64-unknown-linux-gnu";
  target.cpu = "generic";
  target.vector_bytes = 16;
  CHECK(target.converts_f16());
  const compiler::Partition partition = compiler::fuse(graph);
  std::string assembly;
  for (std::uint32_t group = 0; group < partition.groups.size(); ++group) {
    for (const compiler::Planned& planned : compiler::plan(graph, partition, group, std::vector<compiler::Layout>(graph.size()))) {
      const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target);
      compiler::CodegenRequest request{&planned.nest, &scheduled.schedule, &target};
      request.want_assembly = true;
      compiler::CodegenResult result;
      const char* const error = generate(&request, &result);
      INFO((error ? error : ""));
      REQUIRE(!error);
      CHECK(!result.object.empty());
      assembly += result.assembly;
    }
  }
  CHECK_THAT(assembly, Catch::Contains("fcvtl") && Catch::Contains("fcvtn"));
  CHECK_THAT(assembly, !Catch::Contains("\tbl\t"));  // no calls of library conversions
}
#endif

TEST_CASE("halves: targets that convert f16 with instructions", "[halves]") {
  compiler::Target t = compiler::Target::generic_cpu();
  CHECK(t.converts_f16());
  CHECK(t.with_vector_bytes(16).converts_f16());
  t.features = "+avx2,-f16c";
  CHECK(!t.converts_f16());
  t.cpu = "x86-64";
  t.features = "+avx2";
  CHECK(!t.converts_f16());
  t.features = "+avx2,+f16c";
  CHECK(t.converts_f16());
}
