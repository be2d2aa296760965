// normal() against the inverse of the error function: for every uniform number of f32, and for many of f64.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#ifdef ONEPASS_HAVE_MPFR
#include <mpfr.h>
#endif

#include "how_long.h"
#include "ir/normal_quantile.h"
#include "run_partition.h"
#include "special_oracle.h"

using namespace onepass;
using namespace onepass::test;

namespace {

template <class T> std::vector<T> quantiles(const std::vector<T>& t, DType dtype) {
  const auto n = static_cast<std::int64_t>(t.size());
  ir::Graph graph;
  const ir::Expr x(graph, graph.add_input("t", dtype, ir::List(&n, 1)));
  graph.outputs = {ir::normal_quantile(x).id()};
  const std::vector<ir::ArrayView> views = {{dtype, t.data(), {n}}};
  const std::vector<ir::Buffer> values = run(graph, views);
  std::vector<T> out(t.size());
  std::memcpy(out.data(), values.at(0).bytes.data(), values.at(0).bytes.size());
  return out;
}

// Returns the distance from the exact value, in units of its last place.
double ulps(double value, double exact, int digits) { return std::abs(value - exact) / std::ldexp(1, std::ilogb(exact) + 1 - digits); }

}  // namespace

TEST_CASE("normal: all f32 numbers are within 2 ULP", "[normal]") {
  const int step = times(61, 1);  // the numbers are odd multiples of ±2^-24
  std::vector<float> t;
  for (int k = 0; k < 1 << 23; k += step) t.push_back(std::ldexp(static_cast<float>(2 * k + 1), -24));
  for (int k = (1 << 23) - 2000; k < 1 << 23; ++k) t.push_back(std::ldexp(static_cast<float>(2 * k + 1), -24));  // the tail
  const std::vector<float> got = quantiles(t, f32);
  double worst = 0;
  float at = 0;
  for (std::size_t i = 0; i < t.size(); ++i)
    if (const double e = ulps(got[i], test::erfinv(t[i]) * std::sqrt(2.0), 24); !(e <= worst)) worst = e, at = t[i];
  INFO("at " << at);
  CHECK(worst <= 2);
  CHECK(worst > 0.5);  // shows that errors are measured
  const std::vector<float> minus = quantiles<float>({-0.65314317f, -0.999f}, f32), plus = quantiles<float>({0.65314317f, 0.999f}, f32);
  CHECK(minus[0] == -plus[0]);
  CHECK(minus[1] == -plus[1]);
}

#ifdef ONEPASS_HAVE_MPFR
TEST_CASE("normal: f64 numbers are within 2 ULP", "[normal]") {
  std::mt19937_64 random(11);
  std::vector<double> t;
  for (int i = 0; i < times(2000, 200000); ++i) {
    const std::uint64_t bits = random() >> 12;
    t.push_back((2 * static_cast<double>(i % 4 ? bits : bits >> i % 50) + 1 - 0x1p52) * 0x1p-52);  // includes the largest and the smallest
  }
  const std::vector<double> got = quantiles(t, f64);
  double worst = 0, at = 0;
  mpfr_t x, y, root, distance;
  mpfr_inits2(300, x, y, root, distance, static_cast<mpfr_ptr>(nullptr));
  mpfr_sqrt_ui(root, 2, MPFR_RNDN);
  for (std::size_t i = 0; i < t.size(); ++i) {
    mpfr_set_d(x, t[i], MPFR_RNDN);
    test::mpfr_erfinv(y, x, MPFR_RNDN);
    mpfr_mul(y, y, root, MPFR_RNDN);
    mpfr_sub_d(distance, y, got[i], MPFR_RNDN);
    const double e = std::abs(mpfr_get_d(distance, MPFR_RNDN)) / std::ldexp(1, std::ilogb(mpfr_get_d(y, MPFR_RNDZ)) - 52);
    if (!(e <= worst)) worst = e, at = t[i];
  }
  mpfr_clears(x, y, root, distance, static_cast<mpfr_ptr>(nullptr));
  INFO("at " << at << ": " << worst);
  CHECK(worst <= 2);
  CHECK(worst > 0.5);
}
#endif
