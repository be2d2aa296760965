// Elementary functions against independent oracles. f32: bit patterns of every sign and exponent against double libm, whose error is below
// 1e-8 ULP of f32. f64: random points against MPFR. Prints the largest error of each function.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <onepass/formula.h>
#include <catch2/catch.hpp>

#ifdef ONEPASS_HAVE_MPFR
#include <mpfr.h>
#endif

#include "how_long.h"
#include "ir/expand.h"
#include "ir/reference.h"
#include "special_oracle.h"

using namespace onepass;
using namespace onepass::ir;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846, kSqrt2 = 1.41421356237309504880;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Sanitizers test for other faults than wrong coefficients. The strides are primes; 1021 gives 4.2 million f32 patterns, with every low bit
// in every exponent.
const std::uint32_t kStride = test::has_sanitizer() ? 32749 : 1021;
const int kBlocks = test::has_sanitizer() ? 4 : 60;  // blocks of kBlock f64 points
constexpr std::int64_t kBlock = 4096;

// docs/accuracy.md lists the largest error of all points. An ordinary run checks a part of them and must find no larger error.
bool writes_docs() {
  const char* write = std::getenv("ONEPASS_WRITE_DOCS");
  return write && *write == '1';
}
const int kShare = kStride == 1021 && !test::is_full_run() && !writes_docs() ? 12 : 1;

using Unary = Expr (*)(Expr);
using Binary = Expr (*)(Expr, Expr);

// The expansion over arrays of `n`, run by the reference interpreter.
class Evaluator {
 public:
  Evaluator(Unary one, Binary two, DType dtype, std::int64_t n) : n_(n), dtype_(dtype), operands_(two ? 2 : 1) {
    const std::int64_t shape[1] = {n};
    Expr x[2];
    for (int i = 0; i < operands_; ++i) x[i] = Expr(graph_, graph_.add_input(i ? "b" : "a", dtype, shape));
    graph_.outputs = {(two ? two(x[0], x[1]) : one(x[0])).id()};
    graph_ = prune(graph_);
  }
  template <class T> std::vector<T> operator()(const std::vector<T>& a, const std::vector<T>& b) const {
    std::vector<ArrayView> views{{dtype_, a.data(), {n_}}};
    if (operands_ == 2) views.push_back({dtype_, b.data(), {n_}});
    const std::vector<Buffer> results = evaluate(graph_, views);
    const std::span<const T> y = results[0].as<T>();
    return {y.begin(), y.end()};
  }

 private:
  Graph graph_;
  std::int64_t n_;
  DType dtype_;
  int operands_;
};

#ifdef ONEPASS_HAVE_MPFR
using Oracle = void (*)(mpfr_ptr y, mpfr_srcptr a, mpfr_srcptr b);
#define ONEPASS_MPFR(...) [](mpfr_ptr y, [[maybe_unused]] mpfr_srcptr a, [[maybe_unused]] mpfr_srcptr b) { __VA_ARGS__; }
#else
using Oracle = std::nullptr_t;
#define ONEPASS_MPFR(...) nullptr
#endif

struct Row {
  const char* name;
  Unary one;
  Binary two;
  double (*narrow_oracle)(double, double);
  Oracle wide_oracle;
  double bound_f32, bound_f64;  // ULP
  double low, high;             // range of a quarter of the f64 points; the other points are spread over all exponents
  const char* all_f32 = "";     // largest error in the sweep of all f32 values, as listed on the page
  bool one_counts = false;      // the unit of the error is at least ulp(1)
};

#define ONEPASS_DOUBLE(expression) [](double a, [[maybe_unused]] double b) -> double { return expression; }
const Row kRows[] = {
    {"exp", expand_exp, nullptr, ONEPASS_DOUBLE(std::exp(a)), ONEPASS_MPFR(mpfr_exp(y, a, MPFR_RNDN)), 1, 1, -746, 710, "0.98"},
    {"exp2", expand_exp2, nullptr, ONEPASS_DOUBLE(std::exp2(a)), ONEPASS_MPFR(mpfr_exp2(y, a, MPFR_RNDN)), 1, 1, -1076, 1025, "0.85"},
    {"expm1", expand_expm1, nullptr, ONEPASS_DOUBLE(std::expm1(a)), ONEPASS_MPFR(mpfr_expm1(y, a, MPFR_RNDN)), 1, 1, -3, 3, "0.78"},
    {"sigmoid", expand_sigmoid, nullptr, ONEPASS_DOUBLE(1 / (1 + std::exp(-a))),
     ONEPASS_MPFR(mpfr_neg(y, a, MPFR_RNDN); mpfr_exp(y, y, MPFR_RNDN); mpfr_add_ui(y, y, 1, MPFR_RNDN); mpfr_ui_div(y, 1, y, MPFR_RNDN)),
     1, 1, -10, 10, "0.98"},
    {"log", expand_log, nullptr, ONEPASS_DOUBLE(std::log(a)), ONEPASS_MPFR(mpfr_log(y, a, MPFR_RNDN)), 1, 1, 0.3, 3, "0.89"},
    {"log1p", expand_log1p, nullptr, ONEPASS_DOUBLE(std::log1p(a)), ONEPASS_MPFR(mpfr_log1p(y, a, MPFR_RNDN)), 1, 1, -0.9, 3, "0.96"},
    {"log2", expand_log2, nullptr, ONEPASS_DOUBLE(std::log2(a)), ONEPASS_MPFR(mpfr_log2(y, a, MPFR_RNDN)), 1, 1, 0.3, 3, "1.00"},
    {"log10", expand_log10, nullptr, ONEPASS_DOUBLE(std::log10(a)), ONEPASS_MPFR(mpfr_log10(y, a, MPFR_RNDN)), 1, 1, 0.3, 3, "1.00"},
    {"tanh", expand_tanh, nullptr, ONEPASS_DOUBLE(std::tanh(a)), ONEPASS_MPFR(mpfr_tanh(y, a, MPFR_RNDN)), 1, 1, -3, 3, "0.99"},
    {"sinh", expand_sinh, nullptr, ONEPASS_DOUBLE(std::sinh(a)), ONEPASS_MPFR(mpfr_sinh(y, a, MPFR_RNDN)), 2, 2, -3, 3, "1.62"},
    {"cosh", expand_cosh, nullptr, ONEPASS_DOUBLE(std::cosh(a)), ONEPASS_MPFR(mpfr_cosh(y, a, MPFR_RNDN)), 2, 2, -3, 3, "1.45"},
    {"asinh", expand_asinh, nullptr, ONEPASS_DOUBLE(std::asinh(a)), ONEPASS_MPFR(mpfr_asinh(y, a, MPFR_RNDN)), 2, 2, -3, 3, "1.77"},
    {"acosh", expand_acosh, nullptr, ONEPASS_DOUBLE(std::acosh(a)), ONEPASS_MPFR(mpfr_acosh(y, a, MPFR_RNDN)), 2, 2, 1, 3, "1.82"},
    {"atanh", expand_atanh, nullptr, ONEPASS_DOUBLE(std::atanh(a)), ONEPASS_MPFR(mpfr_atanh(y, a, MPFR_RNDN)), 2, 2, -1, 1, "1.32"},
    {"erf", expand_erf, nullptr, ONEPASS_DOUBLE(std::erf(a)), ONEPASS_MPFR(mpfr_erf(y, a, MPFR_RNDN)), 1, 1, -3, 3, "0.90"},
    {"erfc", expand_erfc, nullptr, ONEPASS_DOUBLE(std::erfc(a)), ONEPASS_MPFR(mpfr_erfc(y, a, MPFR_RNDN)), 2, 2, -6, 28, "1.91"},
    {"erfinv", expand_erfinv, nullptr, ONEPASS_DOUBLE(test::erfinv(a)), ONEPASS_MPFR(test::mpfr_erfinv(y, a, MPFR_RNDN)), 2, 2, -1, 1,
     "1.79"},
    {"ndtr", expand_ndtr, nullptr, ONEPASS_DOUBLE(test::ndtr(a)), ONEPASS_MPFR(test::mpfr_ndtr(y, a, MPFR_RNDN)), 3, 3, -38, 9, "2.24"},
    {"ndtri", expand_ndtri, nullptr, ONEPASS_DOUBLE(test::ndtri(a)), ONEPASS_MPFR(test::mpfr_ndtri(y, a, MPFR_RNDN)), 6, 6, 0, 1, "5.55"},
    {"lgamma", expand_lgamma, nullptr, ONEPASS_DOUBLE(std::lgamma(a)), ONEPASS_MPFR(test::mpfr_log_gamma(y, a, MPFR_RNDN)), 4, 4, -40, 10,
     "1.75", true},
    {"digamma", expand_digamma, nullptr, ONEPASS_DOUBLE(test::digamma(a)), ONEPASS_MPFR(mpfr_digamma(y, a, MPFR_RNDN)), 4, 4, -40, 10,
     "3.96", true},
    {"sin", expand_sin, nullptr, ONEPASS_DOUBLE(std::sin(a)), ONEPASS_MPFR(mpfr_sin(y, a, MPFR_RNDN)), 2, 2, -10, 10, "1.77"},
    {"cos", expand_cos, nullptr, ONEPASS_DOUBLE(std::cos(a)), ONEPASS_MPFR(mpfr_cos(y, a, MPFR_RNDN)), 2, 2, -10, 10, "1.98"},
    {"tan", expand_tan, nullptr, ONEPASS_DOUBLE(std::tan(a)), ONEPASS_MPFR(mpfr_tan(y, a, MPFR_RNDN)), 2, 2, -10, 10, "1.27"},
    {"asin", expand_asin, nullptr, ONEPASS_DOUBLE(std::asin(a)), ONEPASS_MPFR(mpfr_asin(y, a, MPFR_RNDN)), 2, 2, -1, 1, "1.11"},
    {"acos", expand_acos, nullptr, ONEPASS_DOUBLE(std::acos(a)), ONEPASS_MPFR(mpfr_acos(y, a, MPFR_RNDN)), 2, 2, -1, 1, "1.09"},
    {"atan", expand_atan, nullptr, ONEPASS_DOUBLE(std::atan(a)), ONEPASS_MPFR(mpfr_atan(y, a, MPFR_RNDN)), 2, 2, -3, 3, "1.57"},
    {"rsqrt", expand_rsqrt, nullptr, ONEPASS_DOUBLE(1 / std::sqrt(a)),
     ONEPASS_MPFR(mpfr_zero_p(a) ? (mpfr_ui_div(y, 1, a, MPFR_RNDN)) : mpfr_rec_sqrt(y, a, MPFR_RNDN)), 1, 1, 0.1, 10, "0.85"},
    {"cbrt", expand_cbrt, nullptr, ONEPASS_DOUBLE(std::cbrt(a)), ONEPASS_MPFR(mpfr_cbrt(y, a, MPFR_RNDN)), 1, 1, -10, 10, "0.51"},
    {"atan2", nullptr, expand_atan2, ONEPASS_DOUBLE(std::atan2(a, b)), ONEPASS_MPFR(mpfr_atan2(y, a, b, MPFR_RNDN)), 2, 2, -3, 3},
    {"pow", nullptr, expand_pow, ONEPASS_DOUBLE(std::pow(a, b)), ONEPASS_MPFR(mpfr_pow(y, a, b, MPFR_RNDN)), 2, 2, 0.1, 8},
    {"hypot", nullptr, expand_hypot, ONEPASS_DOUBLE(std::hypot(a, b)), ONEPASS_MPFR(mpfr_hypot(y, a, b, MPFR_RNDN)), 2, 2, -3, 3},
};

// True if the function is selected: ONEPASS_TEST_FUNCTION=erfc sweeps only erfc.
bool is_wanted(const Row& row) {
  const char* name = std::getenv("ONEPASS_TEST_FUNCTION");
  return !name || std::string_view(name) == row.name;
}

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

bool same(double got, double expected) {
  return std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected);
}

// Returns the error in units of the last place of the exact result. Zeros with their sign, infinities and NaN must be exact. Overflow
// counts as the next power of two.
double ulps_f32(float got, double exact, bool one_counts = false) {
  if (std::isnan(exact) || std::isinf(exact) || (exact == 0 && !one_counts) || std::isnan(got)) return same(got, exact) ? 0 : kInfinity;
  if (std::signbit(got) != std::signbit(exact) && !one_counts) return kInfinity;
  if (std::isinf(got) && std::isinf(static_cast<float>(exact))) return 0;
  const double value = std::isinf(got) ? std::copysign(0x1p128, exact) : static_cast<double>(got);
  const int own = static_cast<int>(std::bit_cast<std::uint64_t>(exact) >> 52 & 0x7ff) - 1023;
  const int exponent = std::min(std::max(own, one_counts ? 0 : -126), 127);
  return std::abs(value - exact) * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + 23 - exponent) << 52);
}

struct Worst {
  double error = 0, a = 0, b = 0, got = 0;
  void take(double e, double x, double y, double value) {
    if (e > error) *this = {e, x, y, value};
  }
  std::string text(const Row& row, const char* type) const {
    char line[200], operand[40];
    std::snprintf(operand, sizeof operand, ", %a", b);
    const std::string second = row.two ? operand : "";
    std::snprintf(line, sizeof line, "%-8s %s  worst %.3f ULP at %a%s, got %a", row.name, type, error, a, second.c_str(), got);
    return line;
  }
};

// Returns a second operand: any bits, a value near the first operand, a small integer, or an exponent that keeps a power in range.
float second_f32(std::size_t i, float first, std::uint64_t& state) {
  const auto bits = static_cast<std::uint32_t>(next_random(state));
  const float unit = static_cast<float>(bits >> 8) * 0x1p-23f - 1;  // -1 to 1
  switch (i % 4) {
    case 0: return std::bit_cast<float>(bits);
    case 1: return first * (1 + unit);
    case 2: return static_cast<float>(static_cast<int>(bits >> 26) - 32);
    default: return unit * 105 / std::log(std::abs(first));
  }
}

// True if operand and result are both normal. Otherwise an approximation may return any value that is not denormal.
template <class T> bool is_ordinary(T x, double exact, T got) {
  constexpr double least = std::numeric_limits<T>::min();
  if (got != 0 && std::abs(got) < std::numeric_limits<T>::min()) return true;  // a denormal result is always an error, so it is checked
  if (exact == 0 && got == 0)
    return false;  // the oracle's zero may be a denormal number that double arithmetic lost; other tests check the edges
  const bool result = exact == 0 || std::abs(exact) >= 2 * least, operand = x == 0 || std::abs(x) >= std::numeric_limits<T>::min();
  return result && operand && std::abs(exact) < static_cast<double>(std::numeric_limits<T>::max()) / 2;
}

Worst sweep_f32(const Row& row, bool ordinary = false) {
  const Evaluator evaluator(row.one, row.two, DType::F32, kBlock);
  Worst worst;
  std::vector<float> a(kBlock), b(kBlock);
  std::uint64_t state = 7;
  std::uint64_t pattern = 0;
  std::size_t chosen = 0;
  for (int block = 0; pattern < (std::uint64_t{1} << 32); ++block) {
    for (std::size_t i = 0; i < a.size(); ++i, pattern += kStride) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
      const float y = row.two ? second_f32(i, x, state) : 0;
      if (i % static_cast<std::size_t>(kShare) == static_cast<std::size_t>(block % kShare)) a[chosen] = x, b[chosen] = y, ++chosen;
    }
    // The last evaluation may repeat earlier points.
    if (chosen + a.size() / static_cast<std::size_t>(kShare) < a.size() && pattern < (std::uint64_t{1} << 32)) continue;
    chosen = 0;
    const std::vector<float> y = evaluator(a, b);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!ordinary || is_ordinary<float>(a[i], row.narrow_oracle(a[i], b[i]), y[i]))
        worst.take(ulps_f32(y[i], row.narrow_oracle(a[i], b[i]), row.one_counts), a[i], b[i], y[i]);
  }
  return worst;
}

// True in full runs (ONEPASS_TEST_FULL=1) for unary functions. They sweep all 2^32 patterns with compiled kernels, whose bits equal the
// interpreter's.
bool sweeps_all_f32(const Row& row) { return test::is_full_run() && !test::has_sanitizer() && !row.two; }
Worst sweep_all_f32(const Row& row, bool ordinary) {
  constexpr std::uint64_t n = 1 << 16, all = std::uint64_t{1} << 32;
  Options options;
  options.relax.approximate = ordinary;
  options.threads = 1;
  const Formula f = onepass::formula(std::string(row.name) + "(a)", options);
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Worst> found(threads);
  const auto sweep = [&](unsigned thread) {
    Array x = Array::empty({n}, DType::F32);
    const std::span<float> a = x.span<float>();
    const std::vector<Array> targets{Array::empty({n}, DType::F32)};
    const std::vector<FormulaArgument> arguments{x};
    Worst worst;
    for (std::uint64_t pattern = thread * n; pattern < all; pattern += threads * n) {
      for (std::size_t i = 0; i < n; ++i) a[i] = std::bit_cast<float>(static_cast<std::uint32_t>(pattern + i));
      f.into(targets, arguments);
      const std::span<const float> got = targets[0].span<const float>();
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = row.narrow_oracle(a[i], 0);
        if (!ordinary || is_ordinary<float>(a[i], exact, got[i])) worst.take(ulps_f32(got[i], exact, row.one_counts), a[i], 0, got[i]);
      }
    }
    found[thread] = worst;
  };
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(sweep, t);
  sweep(0);
  for (std::thread& t : others) t.join();
  return *std::max_element(found.begin(), found.end(), [](const Worst& x, const Worst& y) { return x.error < y.error; });
}

// Returns the error as docs/accuracy.md lists it.
std::string rounded_up(double error) {
  if (error == 0) return "";
  char text[40];
  std::snprintf(text, sizeof text, "%.2f", std::ceil(error * 100) / 100);
  return text;
}

struct Errors {
  double f32 = 0, f64 = 0, approximate_f32 = 0, approximate_f64 = 0;
};
std::map<std::string, Errors>& errors() {
  static std::map<std::string, Errors> all;
  return all;
}

#ifdef ONEPASS_HAVE_MPFR
class Exact {
 public:
  Exact() { mpfr_inits2(160, a_, b_, y_, static_cast<mpfr_ptr>(nullptr)); }
  ~Exact() { mpfr_clears(a_, b_, y_, static_cast<mpfr_ptr>(nullptr)); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  double ulps(Oracle oracle, double a, double b, double got, bool one_counts = false) {
    mpfr_set_d(a_, a, MPFR_RNDN);
    mpfr_set_d(b_, b, MPFR_RNDN);
    oracle(y_, a_, b_);
    const double rounded = mpfr_get_d(y_, MPFR_RNDN);
    const bool zero = mpfr_zero_p(y_) != 0;
    if (!(mpfr_regular_p(y_) || (zero && one_counts)) || std::isnan(got)) return same(got, rounded) ? 0 : kInfinity;
    if (std::signbit(got) != (mpfr_sgn(y_) < 0) && !one_counts) return kInfinity;
    if (std::isinf(got) && std::isinf(rounded)) return 0;
    const auto exponent = std::min<long>(std::max<long>(zero ? 0 : mpfr_get_exp(y_) - 1, one_counts ? 0 : -1022), 1023);
    if (std::isinf(got)) mpfr_set_si_2exp(a_, got < 0 ? -1 : 1, 1024, MPFR_RNDN);
    else mpfr_set_d(a_, got, MPFR_RNDN);
    mpfr_sub(y_, y_, a_, MPFR_RNDN);
    mpfr_mul_2si(y_, y_, 52 - exponent, MPFR_RNDN);
    return std::abs(mpfr_get_d(y_, MPFR_RNDN));
  }

 private:
  mpfr_t a_, b_, y_;
};

Worst sweep_f64(const Row& row, bool ordinary = false) {
  const Evaluator evaluator(row.one, row.two, DType::F64, kBlock);
  Exact exact;
  Worst worst;
  std::vector<double> a(kBlock), b(kBlock);
  std::uint64_t state = 11;
  const auto draw = [&](std::size_t i) {
    const std::uint64_t bits = next_random(state);
    const double in_range = row.low + (row.high - row.low) * static_cast<double>(next_random(state) >> 11) * 0x1p-53;
    switch (i % 4) {
      case 0: return in_range;
      case 1: return std::bit_cast<double>(bits);                                                                  // every exponent
      case 2: return std::bit_cast<double>((bits & 0x800fffffffffffff) | (1003 + next_random(state) % 40) << 52);  // 2^-20 to 2^20
      default: return std::bit_cast<double>((bits & 0x800fffffffffffff) | (1019 + next_random(state) % 6) << 52);  // 1/16 to 4
    }
  };
  const auto second = [&](std::size_t i, double first) {
    const double unit = static_cast<double>(next_random(state) >> 11) * 0x1p-52 - 1;
    switch (i % 4) {
      case 0: return draw(i / 4);
      case 1: return first * (1 + unit);
      case 2: return static_cast<double>(next_random(state) % 64) - 32;
      default: return unit * 750 / std::log(std::abs(first));
    }
  };
  for (int block = 0; block < kBlocks / kShare; ++block) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = draw(i), b[i] = second(i / 4, a[i]);
    const std::vector<double> y = evaluator(a, b);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!ordinary || is_ordinary<double>(a[i], row.narrow_oracle(a[i], b[i]), y[i]))
        worst.take(exact.ulps(row.wide_oracle, a[i], b[i], y[i], row.one_counts), a[i], b[i], y[i]);
  }
  return worst;
}
#endif

// Points with an exact expected result: the points of C's Annex F, and points where a result overflows or underflows.
struct Edge {
  double x, y;
};

template <class T> void check_edges(const Row& row, DType dtype, const std::vector<Edge>& edges) {
  const Evaluator evaluator(row.one, row.two, dtype, static_cast<std::int64_t>(edges.size()));
  std::vector<T> x;
  for (const Edge& edge : edges) x.push_back(static_cast<T>(edge.x));
  const std::vector<T> y = evaluator(x, x);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    INFO(row.name << "(" << edges[i].x << ") of " << name_of(dtype) << " gives " << y[i] << ", not " << edges[i].y);
    CHECK(same(y[i], static_cast<T>(edges[i].y)));
  }
}

constexpr ir::Op kApproximated[] = {ir::Op::Exp, ir::Op::Log, ir::Op::Sigmoid, ir::Op::Tanh, ir::Op::Erf, ir::Op::Rsqrt};

const Row& row_of(std::string_view name) {
  for (const Row& row : kRows)
    if (name == row.name) return row;
  throw std::out_of_range(std::string(name));
}

// Returns the row of the operator's strict expansion, with the approximation as its function.
Row approximate_row(ir::Op op) {
  static constexpr Unary kExpansions[] = {
      [](Expr x) { return approximation(ir::Op::Exp, x); },     [](Expr x) { return approximation(ir::Op::Log, x); },
      [](Expr x) { return approximation(ir::Op::Sigmoid, x); }, [](Expr x) { return approximation(ir::Op::Tanh, x); },
      [](Expr x) { return approximation(ir::Op::Erf, x); },     [](Expr x) { return approximation(ir::Op::Rsqrt, x); }};
  Row row = row_of(ir::info(op).text);
  row.one = kExpansions[std::find(std::begin(kApproximated), std::end(kApproximated), op) - std::begin(kApproximated)];
  return row;
}

void check_edges(const char* name, const std::vector<Edge>& both, const std::vector<Edge>& narrow = {},
                 const std::vector<Edge>& wide = {}) {
  const Row& row = row_of(name);
  const auto joined = [&](const std::vector<Edge>& more) {
    std::vector<Edge> all = both;
    all.insert(all.end(), more.begin(), more.end());
    all.push_back({kNaN, kNaN});
    all.push_back({-kNaN, kNaN});
    return all;
  };
  check_edges<float>(row, DType::F32, joined(narrow));
  check_edges<double>(row, DType::F64, joined(wide));
}

// Edges of an odd function that near zero is x or rounds to x.
const std::vector<Edge> kIdentityNearZero = {{0.0, 0.0}, {-0.0, -0.0}};

}  // namespace

TEST_CASE("expand: every function is within its bound for the f32 patterns", "[expand]") {
  for (const Row& row : kRows) {
    if (!is_wanted(row)) continue;
    const Worst worst = sweep_f32(row);
    errors()[row.name].f32 = worst.error;
    std::puts(worst.text(row, "f32").c_str());
    std::fflush(stdout);  // all patterns take minutes
    INFO(worst.text(row, "f32"));
    CHECK(worst.error <= row.bound_f32);
    if (!sweeps_all_f32(row)) continue;
    const Worst of_all = sweep_all_f32(row, false);
    INFO(of_all.text(row, "f32, all"));
    CHECK(of_all.error <= row.bound_f32);
    CHECK(rounded_up(of_all.error) == row.all_f32);  // if the value is wrong, update the row
  }
}

// Relaxation `approximate`: the bound holds where operand and result are normal. No result is denormal. Expected NaN and infinities stay
// exact.
TEST_CASE("expand: every approximation is within its bound for ordinary f32 patterns", "[expand]") {
  for (const ir::Op op : kApproximated) {
    const Row row = approximate_row(op);
    if (!is_wanted(row)) continue;
    const Worst worst = sweep_f32(row, true);
    errors()[row.name].approximate_f32 = worst.error;
    std::puts(worst.text(row, "f32, approximate").c_str());
    INFO(worst.text(row, "f32, approximate"));
    CHECK(worst.error <= 4);
    if (sweeps_all_f32(row)) CHECK(sweep_all_f32(row, true).error <= 4);
  }
}

TEST_CASE("expand: every approximation is within its bound at ordinary f64 points", "[expand]") {
#ifdef ONEPASS_HAVE_MPFR
  for (const ir::Op op : kApproximated) {
    const Row row = approximate_row(op);
    if (!is_wanted(row)) continue;
    const Worst worst = sweep_f64(row, true);
    errors()[row.name].approximate_f64 = worst.error;
    std::puts(worst.text(row, "f64, approximate").c_str());
    INFO(worst.text(row, "f64, approximate"));
    CHECK(worst.error <= 4);
  }
#else
  WARN("skipped: the tests were built without MPFR");
#endif
}

TEST_CASE("expand: approximations at their edges", "[expand]") {
  const auto check = [](ir::Op op, const std::vector<Edge>& edges) {
    const Row row = approximate_row(op);
    check_edges<float>(row, DType::F32, edges);
    check_edges<double>(row, DType::F64, edges);
  };
  check(ir::Op::Exp, {{0.0, 1.0}, {-0.0, 1.0}, {kInfinity, kInfinity}, {-kInfinity, 0.0}, {1e30, kInfinity}, {-1e30, 0.0}, {kNaN, kNaN}});
  check(ir::Op::Log,
        {{1.0, 0.0}, {0.0, -kInfinity}, {-0.0, -kInfinity}, {kInfinity, kInfinity}, {-1.0, kNaN}, {-kInfinity, kNaN}, {kNaN, kNaN}});
  check(ir::Op::Sigmoid, {{0.0, 0.5}, {kInfinity, 1.0}, {-kInfinity, 0.0}, {1e30, 1.0}, {-1e30, 0.0}, {kNaN, kNaN}});
  check(ir::Op::Tanh, {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, 1.0}, {-kInfinity, -1.0}, {1e30, 1.0}, {-1e30, -1.0}, {kNaN, kNaN}});
  check(ir::Op::Erf, {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, 1.0}, {-kInfinity, -1.0}, {1e30, 1.0}, {-1e30, -1.0}, {kNaN, kNaN}});
  check(ir::Op::Rsqrt, {{0.0, kInfinity}, {-0.0, -kInfinity}, {kInfinity, 0.0}, {-1.0, kNaN}, {4.0, 0.5}, {kNaN, kNaN}});
}

TEST_CASE("expand: every function is within its bound at f64 points of every exponent", "[expand]") {
#ifdef ONEPASS_HAVE_MPFR
  for (const Row& row : kRows) {
    if (!is_wanted(row)) continue;
    const Worst worst = sweep_f64(row);
    errors()[row.name].f64 = worst.error;
    std::puts(worst.text(row, "f64").c_str());
    INFO(worst.text(row, "f64"));
    CHECK(worst.error <= row.bound_f64);
  }
#else
  WARN("skipped: the tests were built without MPFR");
#endif
}

TEST_CASE("expand: NaNs of any sign and payload give NaN", "[expand]") {
  for (const Row& row : kRows) {
    std::vector<float> narrow;
    std::vector<double> wide;
    std::uint64_t state = 3;
    for (int i = 0; i < 64; ++i) {
      narrow.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(next_random(state)) | 0x7fc00000));
      wide.push_back(std::bit_cast<double>(next_random(state) | 0x7ff8000000000000));
    }
    const auto is_nan = [](auto v) { return std::isnan(v); };
    const std::vector<float> y = Evaluator(row.one, row.two, DType::F32, 64)(narrow, narrow);
    const std::vector<double> z = Evaluator(row.one, row.two, DType::F64, 64)(wide, wide);
    INFO(row.name);
    CHECK(std::all_of(y.begin(), y.end(), is_nan));
    CHECK(std::all_of(z.begin(), z.end(), is_nan));
  }
}

TEST_CASE("expand: exp at its edges", "[expand]") {
  check_edges("exp", {{0.0, 1.0}, {-0.0, 1.0}, {kInfinity, kInfinity}, {-kInfinity, 0.0}, {1e30, kInfinity}, {-1e30, 0.0}, {1e-30, 1.0}},
              {{0x1.62e42ep6, 0x1.ffff08p127}, {0x1.62e430p6, kInfinity}, {-0x1.9fe368p6, 0x1p-149}, {-0x1.9fe36ap6, 0.0}, {-104.5, 0.0}},
              {{0x1.62e42fefa39efp9, 0x1.fffffffffff2ap1023},
               {0x1.62e42fefa39f0p9, kInfinity},
               {-0x1.74910d52d3051p9, 0x1p-1074},
               {-0x1.74910d52d3052p9, 0.0}});
}

TEST_CASE("expand: log at its edges", "[expand]") {
  check_edges("log",
              {{1.0, 0.0}, {0.0, -kInfinity}, {-0.0, -kInfinity}, {kInfinity, kInfinity}, {-kInfinity, kNaN}, {-1.0, kNaN}, {-1e-30, kNaN}},
              {{0x1p-149, -0x1.9d1da0p6}, {-0x1p-149, kNaN}}, {{0x1p-1074, -0x1.74385446d71c3p9}, {-0x1p-1074, kNaN}});
}

TEST_CASE("expand: functions related to exp and log at their edges", "[expand]") {
  check_edges(
      "exp2",
      {{0.0, 1.0}, {-0.0, 1.0}, {kInfinity, kInfinity}, {-kInfinity, 0.0}, {3.0, 8.0}, {-2.0, 0.25}, {1e30, kInfinity}, {-1e30, 0.0}},
      {{128.0, kInfinity}, {127.0, 0x1p127}, {-149.0, 0x1p-149}, {-151.0, 0.0}, {-140.0, 0x1p-140}},
      {{1024.0, kInfinity}, {1023.0, 0x1p1023}, {-1074.0, 0x1p-1074}, {-1076.0, 0.0}, {-1050.0, 0x1p-1050}});
  check_edges(
      "expm1", {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, kInfinity}, {-kInfinity, -1.0}, {-1e30, -1.0}, {1e30, kInfinity}, {-50.0, -1.0}},
      {{0x1p-149, 0x1p-149}, {-0x1p-126, -0x1p-126}, {0x1.62e430p6, kInfinity}}, {{0x1p-1074, 0x1p-1074}, {-0x1p-1022, -0x1p-1022}});
  check_edges("sigmoid", {{0.0, 0.5}, {-0.0, 0.5}, {kInfinity, 1.0}, {-kInfinity, 0.0}, {1e30, 1.0}, {-1e30, 0.0}, {50.0, 1.0}});
  check_edges("log2",
              {{1.0, 0.0},
               {0.0, -kInfinity},
               {-0.0, -kInfinity},
               {kInfinity, kInfinity},
               {-kInfinity, kNaN},
               {-1.0, kNaN},
               {8.0, 3.0},
               {0.25, -2.0}},
              {{0x1p-149, -149.0}, {0x1p127, 127.0}}, {{0x1p-1074, -1074.0}, {0x1p1023, 1023.0}});
  check_edges("log10", {{1.0, 0.0},
                        {0.0, -kInfinity},
                        {-0.0, -kInfinity},
                        {kInfinity, kInfinity},
                        {-kInfinity, kNaN},
                        {-1.0, kNaN},
                        {10.0, 1.0},
                        {1000.0, 3.0}});
  check_edges("log1p", {{0.0, 0.0}, {-0.0, -0.0}, {-1.0, -kInfinity}, {-1.5, kNaN}, {-kInfinity, kNaN}, {kInfinity, kInfinity}},
              {{0x1p-149, 0x1p-149}, {-0x1p-149, -0x1p-149}}, {{0x1p-1074, 0x1p-1074}});
}

TEST_CASE("expand: circular functions at their edges", "[expand]") {
  for (const char* name : {"sin", "tan", "atan", "asin"})
    check_edges(name, {{0.0, 0.0}, {-0.0, -0.0}}, {{0x1p-149, 0x1p-149}, {-0x1p-126, -0x1p-126}},
                {{0x1p-1074, 0x1p-1074}, {-0x1p-1022, -0x1p-1022}});
  for (const char* name : {"sin", "cos", "tan"}) check_edges(name, {{kInfinity, kNaN}, {-kInfinity, kNaN}});
  check_edges("cos", {{0.0, 1.0}, {-0.0, 1.0}, {1e-30, 1.0}});
  for (const char* name : {"asin", "acos"}) check_edges(name, {{kInfinity, kNaN}, {-kInfinity, kNaN}, {1.5, kNaN}, {-1.0000001, kNaN}});
  check_edges("asin", {{1.0, kPi / 2}, {-1.0, -kPi / 2}});
  check_edges("acos", {{1.0, 0.0}, {-1.0, kPi}, {0.0, kPi / 2}, {-0.0, kPi / 2}});
  check_edges("atan", {{kInfinity, kPi / 2}, {-kInfinity, -kPi / 2}, {1.0, kPi / 4}, {-1.0, -kPi / 4}});
}

TEST_CASE("expand: sin, cos and tan where the reduction cancels the most", "[expand]") {
  // multiples of pi/2 that are nearest to floats (J.-M. Muller, Elementary Functions, 2006, table 11.1, and by search), and their neighbors
  const float narrow[] = {0x1.f37be4p+95f, 0x1.f37be6p+95f, 0x1.921fb6p+17f,  0x1.2d97c8p+23f,
                          0x1.47d0fep+34f, 0x1p127f,        0x1.fffffep+127f, 0x1.000002p17f};
  const double wide[] = {0x1.6ac5b262ca1ffp+849,  0x1.6ac5b262ca200p+849, 0x1.6ac5b262ca1fep+849, 0x1.921fb54442d18p+30, 0x1p1023,
                         0x1.fffffffffffffp+1023, 0x1.0000000000001p+30};
  for (const char* name : {"sin", "cos", "tan"}) {
    const Row& row = row_of(name);
    std::vector<float> x;
    for (float v : narrow) x.push_back(v), x.push_back(-v);
    const std::vector<float> y = Evaluator(row.one, nullptr, DType::F32, static_cast<std::int64_t>(x.size()))(x, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(name << "(" << x[i] << ") gives " << y[i]);
      CHECK(ulps_f32(y[i], row.narrow_oracle(x[i], 0)) <= row.bound_f32);
    }
#ifdef ONEPASS_HAVE_MPFR
    Exact exact;
    std::vector<double> u;
    for (double v : wide) u.push_back(v), u.push_back(-v);
    const std::vector<double> z = Evaluator(row.one, nullptr, DType::F64, static_cast<std::int64_t>(u.size()))(u, u);
    for (std::size_t i = 0; i < u.size(); ++i) {
      INFO(name << "(" << u[i] << ") gives " << z[i]);
      CHECK(exact.ulps(row.wide_oracle, u[i], 0, z[i]) <= row.bound_f64);
    }
#endif
  }
}

TEST_CASE("expand: logaddexp is within 2 ULP, measured in at least ulp(1)", "[expand]") {
  const auto check = [](auto zero, DType dtype, double ulp_one) {
    using T = decltype(zero);
    std::vector<T> a(kBlock), b(kBlock);
    std::uint64_t state = 5;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto unit = [&] { return static_cast<double>(next_random(state) >> 11) * 0x1p-52 - 1; };
      a[i] = static_cast<T>(unit() * (i % 2 ? 2 : 100));
      b[i] = i % 3 ? static_cast<T>(a[i] + unit() * 10)
                   : static_cast<T>(std::log(std::abs(1 - std::exp(static_cast<double>(a[i])))));  // cancels
    }
    const std::vector<T> y = Evaluator(nullptr, expand_logaddexp, dtype, kBlock)(a, b);
    long double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const long double p = std::max(a[i], b[i]), q = std::min(a[i], b[i]);
      const long double exact = p + std::log1p(std::exp(q - p));
      const long double unit =
          std::abs(exact) < 1 ? ulp_one : static_cast<long double>(std::ldexp(ulp_one, std::ilogb(static_cast<double>(exact))));
      worst = std::max(worst, std::abs(y[i] - exact) / unit);
    }
    INFO(name_of(dtype) << " " << static_cast<double>(worst));
    std::printf("logaddexp %s  worst %.3f ULP\n", std::string(name_of(dtype)).c_str(), static_cast<double>(worst));
    CHECK(worst <= 2);
  };
  check(float{}, DType::F32, 0x1p-23);
  check(double{}, DType::F64, 0x1p-52);
}

TEST_CASE("expand: atan2 and hypot at their edges", "[expand]") {
  struct Case {
    double a, b, angle, length;
  };
  const std::vector<Case> cases = {{0.0, 0.0, 0.0, 0.0},
                                   {-0.0, 0.0, -0.0, 0.0},
                                   {0.0, -0.0, kPi, 0.0},
                                   {-0.0, -0.0, -kPi, 0.0},
                                   {0.0, 1.0, 0.0, 1.0},
                                   {-0.0, 1.0, -0.0, 1.0},
                                   {0.0, -1.0, kPi, 1.0},
                                   {-0.0, -1.0, -kPi, 1.0},
                                   {1.0, 0.0, kPi / 2, 1.0},
                                   {-1.0, -0.0, -kPi / 2, 1.0},
                                   {1.0, 1.0, kPi / 4, kSqrt2},
                                   {1.0, -1.0, 3 * kPi / 4, kSqrt2},
                                   {kInfinity, kInfinity, kPi / 4, kInfinity},
                                   {-kInfinity, -kInfinity, -3 * kPi / 4, kInfinity},
                                   {kInfinity, 5.0, kPi / 2, kInfinity},
                                   {5.0, kInfinity, 0.0, kInfinity},
                                   {-5.0, kInfinity, -0.0, kInfinity},
                                   {5.0, -kInfinity, kPi, kInfinity},
                                   {-5.0, -kInfinity, -kPi, kInfinity},
                                   {kNaN, 1.0, kNaN, kNaN},
                                   {1.0, kNaN, kNaN, kNaN},
                                   {kNaN, kInfinity, kNaN, kInfinity},
                                   {-kInfinity, kNaN, kNaN, kInfinity},
                                   {3.0, -4.0, 2.4980915447965089, 5.0},
                                   {3e-40, 4e-40, 0.64350110879328437, 5e-40}};
  const auto n = static_cast<std::int64_t>(cases.size());
  const auto check = [&]<class T>(T, DType dtype) {
    std::vector<T> a, b;
    for (const Case& c : cases) a.push_back(static_cast<T>(c.a)), b.push_back(static_cast<T>(c.b));
    const std::vector<T> angle = Evaluator(nullptr, expand_atan2, dtype, n)(a, b),
                         length = Evaluator(nullptr, expand_hypot, dtype, n)(a, b);
    for (std::size_t i = 0; i + 1 < cases.size(); ++i) {
      INFO("(" << a[i] << ", " << b[i] << ") of " << name_of(dtype) << " gives " << angle[i] << " and " << length[i]);
      CHECK(same(angle[i], static_cast<T>(cases[i].angle)));
      CHECK(same(length[i], static_cast<T>(cases[i].length)));
    }
  };
  check(float{}, DType::F32);
  check(double{}, DType::F64);
}

TEST_CASE("expand: pow at the edges of C's Annex F", "[expand]") {
  struct Case {
    double a, b, result;
  };
  const std::vector<Case> cases = {
      {0.0, -3.0, kInfinity},
      {-0.0, -3.0, -kInfinity},
      {0.0, -2.0, kInfinity},
      {-0.0, -2.0, kInfinity},
      {-0.0, -2.5, kInfinity},
      {0.0, -kInfinity, kInfinity},
      {-0.0, -kInfinity, kInfinity},
      {0.0, 3.0, 0.0},
      {-0.0, 3.0, -0.0},
      {-0.0, 2.0, 0.0},
      {-0.0, 2.5, 0.0},
      {-1.0, kInfinity, 1.0},
      {-1.0, -kInfinity, 1.0},
      {1.0, kNaN, 1.0},
      {1.0, kInfinity, 1.0},
      {1.0, -7.25, 1.0},
      {kNaN, 0.0, 1.0},
      {kNaN, -0.0, 1.0},
      {0.0, 0.0, 1.0},
      {-kInfinity, 0.0, 1.0},
      {-2.0, -0.0, 1.0},
      {kInfinity, 0.0, 1.0},
      {-2.0, 0.5, kNaN},
      {-1e30, 1.5, kNaN},
      {0.5, -kInfinity, kInfinity},
      {-0.5, -kInfinity, kInfinity},
      {2.0, -kInfinity, 0.0},
      {-2.0, -kInfinity, 0.0},
      {0.5, kInfinity, 0.0},
      {-0.5, kInfinity, 0.0},
      {2.0, kInfinity, kInfinity},
      {-2.0, kInfinity, kInfinity},
      {-kInfinity, -3.0, -0.0},
      {-kInfinity, -2.0, 0.0},
      {-kInfinity, -2.5, 0.0},
      {-kInfinity, 3.0, -kInfinity},
      {-kInfinity, 2.0, kInfinity},
      {-kInfinity, 2.5, kInfinity},
      {-kInfinity, kInfinity, kInfinity},
      {-kInfinity, -kInfinity, 0.0},
      {kInfinity, -1.0, 0.0},
      {kInfinity, 0.5, kInfinity},
      {kNaN, 1.0, kNaN},
      {-1.0, kNaN, kNaN},
      {0.0, kNaN, kNaN},
      {kInfinity, kNaN, kNaN},
      {kNaN, kInfinity, kNaN},
      {-2.0, 3.0, -8.0},
      {-2.0, 4.0, 16.0},
      {2.0, -3.0, 0.125},
      {10.0, 3.0, 1000.0},
      {9.0, 0.5, 3.0},
      {-1.0, 1e30, 1.0},
      {-1.0, 16777215.0, -1.0},
      {2.0, 1e30, kInfinity},
      {-2.0, 1e30, kInfinity},
      {2.0, -1e30, 0.0},
      {-3.0, 1001.0, -kInfinity},
      {-3.0, -1001.0, -0.0},
      {1e-30, 1e30, 0.0},
  };
  const auto n = static_cast<std::int64_t>(cases.size());
  const auto check = [&]<class T>(T, DType dtype) {
    std::vector<T> a, b;
    for (const Case& c : cases) a.push_back(static_cast<T>(c.a)), b.push_back(static_cast<T>(c.b));
    const std::vector<T> y = Evaluator(nullptr, expand_pow, dtype, n)(a, b);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO("pow(" << a[i] << ", " << b[i] << ") of " << name_of(dtype) << " gives " << y[i] << ", not " << cases[i].result);
      CHECK(same(y[i], static_cast<T>(cases[i].result)));
    }
  };
  check(float{}, DType::F32);
  check(double{}, DType::F64);
}

TEST_CASE("expand: roots and hyperbolic functions at their edges", "[expand]") {
  check_edges(
      "rsqrt",
      {{0.0, kInfinity}, {-0.0, -kInfinity}, {kInfinity, 0.0}, {-kInfinity, kNaN}, {-1.0, kNaN}, {-1e30, kNaN}, {-1e-30, kNaN}, {4.0, 0.5}},
      {{0x1p-148, 0x1p74}, {-0x1p-149, kNaN}, {-0x1p127, kNaN}}, {{0x1p-1074, 0x1p537}, {-0x1p1023, kNaN}});
  check_edges(
      "cbrt",
      {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, kInfinity}, {-kInfinity, -kInfinity}, {27.0, 3.0}, {-8.0, -2.0}, {1.0, 1.0}, {0.125, 0.5}},
      {{0x1p-147, 0x1p-49}, {0x1p126, 0x1p42}, {-0x1p-129, -0x1p-43}}, {{0x1p-1074, 0x1p-358}, {0x1p1023, 0x1p341}});
  check_edges("sinh", {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, kInfinity}, {-kInfinity, -kInfinity}, {1e30, kInfinity}, {-1e30, -kInfinity}},
              {{0x1p-149, 0x1p-149}, {-0x1p-126, -0x1p-126}}, {{0x1p-1074, 0x1p-1074}});
  check_edges("asinh", {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, kInfinity}, {-kInfinity, -kInfinity}}, {{0x1p-149, 0x1p-149}},
              {{0x1p-1074, 0x1p-1074}});
  check_edges("acosh", {{1.0, 0.0},
                        {kInfinity, kInfinity},
                        {-kInfinity, kNaN},
                        {0.5, kNaN},
                        {0.0, kNaN},
                        {-1.0, kNaN},
                        {-2.0, kNaN},
                        {-3.0, kNaN},
                        {-1e30, kNaN}});
  check_edges(
      "atanh",
      {{0.0, 0.0}, {-0.0, -0.0}, {1.0, kInfinity}, {-1.0, -kInfinity}, {2.0, kNaN}, {-1.5, kNaN}, {kInfinity, kNaN}, {-kInfinity, kNaN}},
      {{0x1p-149, 0x1p-149}}, {{0x1p-1074, 0x1p-1074}});
  check_edges("cosh", {{0.0, 1.0}, {-0.0, 1.0}, {kInfinity, kInfinity}, {-kInfinity, kInfinity}, {1e30, kInfinity}, {-1e30, kInfinity}});
}

TEST_CASE("expand: lgamma and digamma at their poles and ends", "[expand]") {
  check_edges("lgamma",
              {{0.0, kInfinity},
               {-0.0, kInfinity},
               {1.0, 0.0},
               {2.0, 0.0},
               {-1.0, kInfinity},
               {-15.0, kInfinity},
               {-100.0, kInfinity},
               {-1e30, kInfinity},
               {kInfinity, kInfinity},
               {-kInfinity, kInfinity}},
              {{0x1p-149, 0x1.9d1da0p6}, {1e37, kInfinity}, {-1e38, kInfinity}}, {{1e306, kInfinity}, {-1e307, kInfinity}});
  check_edges("digamma", {{0.0, -kInfinity},
                          {-0.0, kInfinity},
                          {-1.0, kNaN},
                          {-100.0, kNaN},
                          {-1e30, kNaN},
                          {kInfinity, kInfinity},
                          {-kInfinity, kNaN},
                          {1e-310, -kInfinity},
                          {-1e-310, kInfinity}});
}

TEST_CASE("expand: tanh and erf at their edges", "[expand]") {
  for (const char* name : {"tanh", "erf"}) {
    check_edges(name,
                {{0.0, 0.0}, {-0.0, -0.0}, {kInfinity, 1.0}, {-kInfinity, -1.0}, {1e30, 1.0}, {-1e30, -1.0}, {40.0, 1.0}, {-27.0, -1.0}},
                {{10.0, 1.0}});
  }
  check_edges("erfc", {{0.0, 1.0}, {-0.0, 1.0}, {kInfinity, 0.0}, {-kInfinity, 2.0}, {1e30, 0.0}, {-1e30, 2.0}, {1e-30, 1.0}},
              {{10.1, 0.0}, {-10.1, 2.0}}, {{27.3, 0.0}, {-27.3, 2.0}});
  check_edges(
      "erfinv",
      {{0.0, 0.0}, {-0.0, -0.0}, {1.0, kInfinity}, {-1.0, -kInfinity}, {1.5, kNaN}, {-2.0, kNaN}, {kInfinity, kNaN}, {-kInfinity, kNaN}});
  check_edges("tanh", kIdentityNearZero, {{0x1p-149, 0x1p-149}, {-0x1p-126, -0x1p-126}},
              {{0x1p-1074, 0x1p-1074}, {-0x1p-1022, -0x1p-1022}});
}

#ifdef ONEPASS_HAVE_MPFR
namespace {

// Returns the page up to "## Speed". The rest is the output of bench/functions, pasted by hand.
std::string accuracy_page(const std::string& kept) {
  std::string page =
      R"(# Accuracy

Generated by tests/test_expand.cpp (ONEPASS_WRITE_DOCS=1), except for the last section, which bench/functions prints; do not edit.

The table has the largest observed error in ULP of the exact result, rounded up to hundredths. For lgamma and digamma, the unit is
max(ulp(result), ulp(1)). Column f32: 4.2 million bit patterns of every sign and exponent, including denormals, compared with double.
Column "f32, all": all 2^32 patterns for functions of one argument, which `tools/test --full` checks. Column f64: a quarter of a million
points, half of them spread over all exponents, compared with MPFR. Zeros, infinities and NaN must be exact. Functions that are not listed
are exact or correctly rounded. docs/language.md states the bounds. The last two columns are for relaxation `approximate`
(docs/relaxations.md), whose bound is 4 if neither operand nor result is denormal.

| function | bound | f32 | f32, all | f64 | approximate f32 | approximate f64 |
|---|---|---|---|---|---|---|
)";
  for (const Row& row : kRows) {
    const Errors& e = errors()[row.name];
    page += std::string("| ") + row.name + " | " + std::to_string(static_cast<int>(row.bound_f32)) + " | " + rounded_up(e.f32) + " | " +
            row.all_f32 + " | " + rounded_up(e.f64) + " | " + rounded_up(e.approximate_f32) + " | " + rounded_up(e.approximate_f64) +
            " |\n";
  }
  const std::size_t speed = kept.find("\n## Speed");
  return speed == std::string::npos ? page : page + kept.substr(speed);
}

// Checks that both texts have the same lines, that no number exceeds the kept number, and that empty cells agree.
void check_within(const std::string& page, const std::string& kept) {
  std::istringstream found_lines(page), kept_lines(kept);
  std::string found_line, kept_line;
  while (std::getline(kept_lines, kept_line)) {
    INFO(kept_line);
    if (!std::getline(found_lines, found_line)) found_line = "";
    std::istringstream found_cells(found_line), kept_cells(kept_line);
    std::string found_cell, kept_cell;
    while (std::getline(kept_cells, kept_cell, '|')) {
      if (!std::getline(found_cells, found_cell, '|')) found_cell = "";
      char* end = nullptr;
      const double highest = std::strtod(kept_cell.c_str(), &end);
      if (end == kept_cell.c_str() || found_cell.find_first_not_of(' ') == std::string::npos) CHECK(found_cell == kept_cell);
      else CHECK(std::strtod(found_cell.c_str(), nullptr) <= highest);
    }
  }
  CHECK_FALSE(std::getline(found_lines, found_line));
}

}  // namespace

TEST_CASE("expand: docs/accuracy.md is current", "[expand]") {
  const bool every = errors().size() == std::size(kRows) &&
                     std::all_of(errors().begin(), errors().end(), [](const auto& e) { return e.second.f32 > 0 && e.second.f64 > 0; });
  if (kStride != 1021 || !every) {
    WARN("skipped: the page lists what the sweeps of an optimised run find, and not all of them have run");
    return;
  }
  const std::string path = ONEPASS_SOURCE_DIR "/docs/accuracy.md";
  std::ifstream file(path);
  const std::string kept((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string page = accuracy_page(kept);
  if (writes_docs()) std::ofstream(path) << page;
  else if (kShare == 1) CHECK(page == kept);
  else check_within(page, kept);
}
#endif
