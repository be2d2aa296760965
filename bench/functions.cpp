// Measures the elementary functions on one thread, with data in the second-level cache: ns per element and the largest observed error,
// compared with glibc's libmvec and SLEEF's u10 functions. Both libraries are opened at run time if installed.
//   functions [--width 32|64] [NAME...]
// Prints the table of docs/accuracy.md, "Speed".
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <onepass/onepass.h>

#include "runtime/kernel_cache.h"
#include "tools/timing.h"

using namespace onepass;

namespace {

struct Row {
  const char* name;
  int operands;
  double bound;  // ULP, docs/language.md
  double low, high;
  long double (*exact)(long double, long double);
  bool approximated = false;  // relaxation `approximate` has another expansion
};

#define ONEPASS_EXACT(expression) [](long double a, [[maybe_unused]] long double b) -> long double { return expression; }
const Row kRows[] = {
    {"exp", 1, 1, -20, 20, ONEPASS_EXACT(std::exp(a)), true},
    {"exp2", 1, 1, -20, 20, ONEPASS_EXACT(std::exp2(a))},
    {"expm1", 1, 1, -2, 2, ONEPASS_EXACT(std::expm1(a))},
    {"log", 1, 1, 0.001, 100, ONEPASS_EXACT(std::log(a)), true},
    {"log2", 1, 1, 0.001, 100, ONEPASS_EXACT(std::log2(a))},
    {"log10", 1, 1, 0.001, 100, ONEPASS_EXACT(std::log10(a))},
    {"log1p", 1, 1, -0.9, 9, ONEPASS_EXACT(std::log1p(a))},
    {"sin", 1, 2, -10, 10, ONEPASS_EXACT(std::sin(a))},
    {"cos", 1, 2, -10, 10, ONEPASS_EXACT(std::cos(a))},
    {"tan", 1, 2, -10, 10, ONEPASS_EXACT(std::tan(a))},
    {"asin", 1, 2, -1, 1, ONEPASS_EXACT(std::asin(a))},
    {"acos", 1, 2, -1, 1, ONEPASS_EXACT(std::acos(a))},
    {"atan", 1, 2, -5, 5, ONEPASS_EXACT(std::atan(a))},
    {"atan2", 2, 2, -5, 5, ONEPASS_EXACT(std::atan2(a, b))},
    {"sinh", 1, 2, -5, 5, ONEPASS_EXACT(std::sinh(a))},
    {"cosh", 1, 2, -5, 5, ONEPASS_EXACT(std::cosh(a))},
    {"tanh", 1, 1, -4, 4, ONEPASS_EXACT(std::tanh(a)), true},
    {"asinh", 1, 2, -5, 5, ONEPASS_EXACT(std::asinh(a))},
    {"acosh", 1, 2, 1, 10, ONEPASS_EXACT(std::acosh(a))},
    {"atanh", 1, 2, -1, 1, ONEPASS_EXACT(std::atanh(a))},
    {"erf", 1, 1, -3, 3, ONEPASS_EXACT(std::erf(a)), true},
    {"erfc", 1, 2, -2, 8, ONEPASS_EXACT(std::erfc(a))},
    {"lgamma", 1, 4, 0.1, 20, ONEPASS_EXACT(std::lgamma(a))},
    {"cbrt", 1, 1, -10, 10, ONEPASS_EXACT(std::cbrt(a))},
    {"pow", 2, 2, 0.1, 10, ONEPASS_EXACT(std::pow(a, b))},
    {"hypot", 2, 2, -5, 5, ONEPASS_EXACT(std::hypot(a, b))},
    {"sigmoid", 1, 1, -10, 10, ONEPASS_EXACT(1 / (1 + std::exp(-a))), true},
    {"rsqrt", 1, 1, 0.001, 100, ONEPASS_EXACT(1 / std::sqrt(a)), true},
    {"erfinv", 1, 2, -0.99, 0.99, nullptr},
    {"digamma", 1, 4, 0.1, 20, nullptr},
};

constexpr std::size_t kBytes = std::size_t{128} << 10;  // bytes of one operand

// ---- the libraries' functions, by their vector ABI names
enum class Library { Libmvec, Sleef };

void* find(Library library, const Row& row, bool narrow, int width) {
  static void* const handles[] = {dlopen("libmvec.so.1", RTLD_NOW), dlopen("libsleef.so.3", RTLD_NOW)};
  void* const handle = handles[static_cast<int>(library)];
  if (!handle) return nullptr;
  const int lanes = width / (narrow ? 4 : 8);
  const std::string name =
      library == Library::Libmvec
          ? fmt::format("_ZGV{}N{}{}_{}{}", width == 64 ? 'e' : 'd', lanes, row.operands == 2 ? "vv" : "v", row.name, narrow ? "f" : "")
          : fmt::format("Sleef_{}{}{}_u{}{}", row.name, narrow ? "f" : "d", lanes, std::string_view(row.name) == "hypot" ? "05" : "10",
                        width == 64 ? "avx512f" : "avx2");
  if (void* found = dlsym(handle, name.c_str())) return found;
  const std::string other = fmt::format("Sleef_{}{}{}_u15{}", row.name, narrow ? "f" : "d", lanes, width == 64 ? "avx512f" : "avx2");
  return library == Library::Sleef ? dlsym(handle, other.c_str()) : nullptr;
}

template <class T, int kWidth> struct VectorOf {
  typedef T type __attribute__((vector_size(kWidth), aligned(sizeof(T)), may_alias));
};

#define ONEPASS_LOOP(name, features, width)                                                                                \
  template <class T>                                                                                                       \
  __attribute__((target(features))) void name(void* function, int operands, const T* a, const T* b, T* y, std::size_t n) { \
    using V = typename VectorOf<T, width>::type;                                                                           \
    constexpr std::size_t lanes = width / sizeof(T);                                                                       \
    if (operands == 1) {                                                                                                   \
      auto* const f = reinterpret_cast<V (*)(V)>(function);                                                                \
      for (std::size_t i = 0; i < n; i += lanes) *reinterpret_cast<V*>(y + i) = f(*reinterpret_cast<const V*>(a + i));     \
    } else {                                                                                                               \
      auto* const f = reinterpret_cast<V (*)(V, V)>(function);                                                             \
      for (std::size_t i = 0; i < n; i += lanes)                                                                           \
        *reinterpret_cast<V*>(y + i) = f(*reinterpret_cast<const V*>(a + i), *reinterpret_cast<const V*>(b + i));          \
    }                                                                                                                      \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wattributes"
#pragma GCC diagnostic ignored "-Wignored-attributes"
ONEPASS_LOOP(run_wide, "avx512f", 64)
ONEPASS_LOOP(run_narrow, "avx2,fma", 32)
#pragma GCC diagnostic pop

// ---- measuring
double nanoseconds(const std::function<void()>& call, std::size_t n) {
  std::vector<double> samples;
  const std::int64_t batch = batch_size(call);
  return time_calls(call, 0.02, batch, samples).minimum / static_cast<double>(n) * 1e9;
}

template <class T> double worst_ulps(const Row& row, std::span<const T> a, std::span<const T> b, const T* y) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double exact = row.exact(a[i], b[i]);
    if (!(std::abs(exact) > std::numeric_limits<T>::min())) continue;
    int exponent = std::ilogb(exact);
    if (row.bound == 4) exponent = std::max(exponent, 0);
    worst = std::max(worst, static_cast<double>(std::abs(y[i] - exact) / std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits + 1)));
  }
  return worst;
}

struct Measured {
  double ns = NAN, ulps = NAN;
  std::string text() const {
    if (std::isnan(ns)) return "";
    return std::isnan(ulps) ? fmt::format("{:.3f}", ns) : fmt::format("{:.3f} ({:.2f})", ns, ulps);
  }
};

template <class T> std::string line(const Row& row, int width) {
  constexpr bool narrow = sizeof(T) == 4;
  const std::size_t n = kBytes / sizeof(T);
  const auto array = [&] { return Array::empty({static_cast<std::int64_t>(n)}, narrow ? f32 : f64); };  // aligned, unlike a vector
  Array a_array = array(), b_array = array(), y_array = array();
  const std::span<T> a = a_array.template span<T>(), b = b_array.template span<T>(), y = y_array.template span<T>();
  std::uint64_t state = 1;
  const auto draw = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return row.low + (row.high - row.low) * static_cast<double>(state >> 11) * 0x1p-53;
  };
  const auto fill = [&] {
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<T>(draw()), b[i] = static_cast<T>(draw());
  };
  fill();
  const auto measure = [&](const std::function<void()>& call) {
    Measured m;
    m.ns = nanoseconds(call, n);
    m.ulps = row.exact ? 0 : NAN;
    for (int round = 0; round < 8 && row.exact; ++round) {
      fill();
      call();
      m.ulps = std::fmax(m.ulps, worst_ulps<T>(row, a, b, y.data()));
    }
    return m;
  };
  const auto ours = [&](Relax relax) {
    Options options;
    options.threads = 1, options.vector_bytes = width, options.relax = relax;
    const Formula f = formula(std::string(row.name) + (row.operands == 1 ? "(a)" : "(a, b)"), options);
    const std::vector<Array> target{y_array};
    std::vector<FormulaArgument> arguments{a_array};
    if (row.operands == 2) arguments.emplace_back(b_array);
    const auto call = [&] { f.into(target, arguments); };
    for (int i = 0; i < 3; ++i) call();
    wait_until_optimized();  // measures the code of later calls
    return measure(call);
  };
  const auto theirs = [&](Library library) {
    void* const function = find(library, row, narrow, width);
    if (!function) return Measured{};
    return measure([&] { (width == 64 ? run_wide<T> : run_narrow<T>)(function, row.operands, a.data(), b.data(), y.data(), n); });
  };
  const Measured strict = ours({}), relaxed = ours({.approximate = true});
  const Measured others[] = {theirs(Library::Libmvec), theirs(Library::Sleef)};
  double best = INFINITY;
  for (const Measured& m : others)
    if (!std::isnan(m.ns) && m.ulps <= row.bound) best = std::min(best, m.ns);
  return fmt::format("| {} {} | {} | {} | {} | {} | {} |\n", row.name, narrow ? "f32" : "f64", strict.text(),
                     row.approximated ? relaxed.text() : "", others[0].text(), others[1].text(),
                     std::isinf(best) ? "" : fmt::format("{:.2f}", strict.ns / best));
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);)
    if (text.starts_with("model name")) return text.substr(text.find(':') + 2);
  return "unknown processor";
}

}  // namespace

int main(int argc, char** argv) {
  int width = __builtin_cpu_supports("avx512f") ? 64 : 32;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--width" && i + 1 < argc) width = std::atoi(argv[++i]);
    else wanted.emplace_back(argv[i]);
  }
  if (width != 32 && width != 64) return std::fprintf(stderr, "functions: --width is 32 or 64\n"), 2;
  fmt::print("{}, {}-byte vectors, one thread, {} KiB an operand: ns per element (worst error seen, ULP)\n\n", processor(), width,
             kBytes >> 10);
  fmt::print("| function | onepass | approximate | libmvec | SLEEF u10 | strict / faster within the bound |\n|---|---|---|---|---|---|\n");
  for (const Row& row : kRows) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), row.name) == wanted.end()) continue;
    fmt::print("{}{}", line<float>(row, width), line<double>(row, width));
    std::fflush(stdout);
  }
  return 0;
}
