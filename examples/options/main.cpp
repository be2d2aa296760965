// Options by Black and Scholes: a ladder of strikes on a real share, and a book of four million contracts with their Greeks. The program
// only has the price; onepass derives delta, gamma, vega, theta and rho from it and fuses them.
//
//   options [CONTRACTS]          4,000,000 unless named
#include <onepass/onepass.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "examples/common/common.h"

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

constexpr double kRate = 0.02;     // yearly interest
constexpr int kTradingDays = 252;  // trading days per year
constexpr double kRootHalf = 0.70710678118654752440;

// Returns the standard normal distribution function.
Tensor cdf(Tensor x) { return 0.5 * (1 + erf(x * kRootHalf)); }

// Returns the value of a European call: spot price, strike, years to expiry, and yearly rate of interest and volatility.
Tensor call_price(Tensor spot, Tensor strike, Tensor years, Tensor rate, Tensor volatility) {
  const Tensor deviation = volatility * sqrt(years);
  const Tensor d1 = log(spot / strike) / deviation + (rate / volatility + 0.5 * volatility) * sqrt(years);
  return spot * cdf(d1) - strike * exp(-rate * years) * cdf(d1 - deviation);
}
// Returns the value of a put, by parity with the call.
Tensor put_price(Tensor call, Tensor spot, Tensor strike, Tensor years, Tensor rate) { return call - spot + strike * exp(-rate * years); }

// The results of a plain function with textbook formulas for the Greeks: the oracle.
struct Plain {
  double price, delta, gamma, vega, theta, rho;
};
Plain plain_call(double spot, double strike, double years, double rate, double volatility) {
  const double root = std::sqrt(years), deviation = volatility * root;
  const double d1 = std::log(spot / strike) / deviation + (rate / volatility + 0.5 * volatility) * root, d2 = d1 - deviation;
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x * kRootHalf); };
  const double density = std::exp(-0.5 * d1 * d1) * 0.39894228040143267794, discounted = strike * std::exp(-rate * years);
  return {.price = spot * cdf(d1) - discounted * cdf(d2),
          .delta = cdf(d1),
          .gamma = density / (spot * deviation),
          .vega = spot * density * root,
          .theta = -spot * density * volatility / (2 * root) - rate * discounted * cdf(d2),
          .rho = discounted * years * cdf(d2)};
}

// Prints prices of calls on GOOG at its last close: strikes down, times to expiry across.
void ladder() {
  const Array closes = op::load_npy(ONEPASS_EXAMPLE_DATA "/goog_adj_close.npy");

  // One function computes volatility from the daily changes of the whole series, the last close, and the prices.
  const auto price_ladder = op::compile([](Tensor close, Tensor moneyness, Tensor years, Tensor rate) {
    const Tensor change = log(close[op::Range{1, {}}] / close[op::Range{{}, -1}]);
    const Tensor volatility = op::std(change, op::none, false, 1) * std::sqrt(double{kTradingDays});
    const Tensor last = close[-1];
    const Tensor strike = round(last * moneyness);
    const Tensor prices = call_price(last, strike.reshape({-1, 1}), years, rate, volatility);
    return std::tuple{last, volatility, strike, prices};
  });
  const std::vector<double> moneyness = {0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4}, years = {1.0 / 12, 0.25, 0.5, 1.0, 2.0};
  const auto [last, volatility, strikes, prices] = price_ladder(closes, Array::wrap(moneyness), Array::wrap(years), kRate);

  std::printf("GOOG, %lld closes, the last at %.2f dollars, volatility %.1f %% a year; calls, in dollars:\n\n  strike",
              static_cast<long long>(closes.size()), last.item<double>(), 100 * volatility.item<double>());
  for (const double y : years) std::printf("%7.0f mo", 12 * y);
  std::printf("\n");
  for (std::int64_t i = 0; i < strikes.size(); ++i) {
    std::printf("%8.0f", strikes.at<double>({i}));
    for (std::int64_t j = 0; j < prices.dim(1); ++j) {
      std::printf("%10.2f", prices.at<double>({i, j}));
      const double expected =
          plain_call(last.item<double>(), strikes.at<double>({i}), years[static_cast<std::size_t>(j)], kRate, volatility.item<double>())
              .price;
      if (std::abs(prices.at<double>({i, j}) - expected) > 1e-9 * last.item<double>()) throw std::runtime_error("a price is wrong");
    }
    std::printf("\n");
  }
  std::printf("\n");
}

struct Book {
  Array spot, strike, years, volatility;
};
Book random_book(std::int64_t contracts) {
  Book book{Array::empty({contracts}, op::f32), Array::empty({contracts}, op::f32), Array::empty({contracts}, op::f32),
            Array::empty({contracts}, op::f32)};
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> spot(20, 400), moneyness(0.6f, 1.6f), years(0.05f, 3), volatility(0.1f, 0.7f);
  const auto s = book.spot.span<float>(), k = book.strike.span<float>(), t = book.years.span<float>(), v = book.volatility.span<float>();
  for (std::size_t i = 0; i < s.size(); ++i)
    s[i] = spot(random), k[i] = s[i] * moneyness(random), t[i] = years(random), v[i] = volatility(random);
  return book;
}

void check(const char* what, double got, double expected, double scale) {
  if (!(std::abs(got - expected) <= 2e-5 * scale))
    throw std::runtime_error(std::string(what) + ": " + std::to_string(got) + " instead of " + std::to_string(expected));
}

void book(std::int64_t contracts) {
  const Book book = random_book(contracts);
  const auto prices = op::compile([](Tensor spot, Tensor strike, Tensor years, Tensor rate, Tensor volatility) {
    const Tensor call = call_price(spot, strike, years, rate, volatility);
    return std::tuple{call, put_price(call, spot, strike, years, rate)};
  });
  const auto greeks = op::compile([](Tensor spot, Tensor strike, Tensor years, Tensor rate, Tensor volatility) {
    const Tensor rates = broadcast_to(rate, spot.shape());  // one for each contract, so that each has its own derivative
    const Tensor call = call_price(spot, strike, years, rates, volatility);
    const auto [delta, vega, decay, rho] = grad(sum(call), spot, volatility, years, rates);
    const Tensor gamma = grad(sum(delta), spot);  // the derivative of a derivative
    return std::tuple{call, delta, gamma, vega, -decay, rho};
  });

  auto [call, put] = prices(book.spot, book.strike, book.years, kRate, book.volatility);
  const double price_time = example::time_of([&] { prices.into(call, put)(book.spot, book.strike, book.years, kRate, book.volatility); });
  auto [call2, delta, gamma, vega, theta, rho] = greeks(book.spot, book.strike, book.years, kRate, book.volatility);
  const double greeks_time = example::time_of(
      [&] { greeks.into(call2, delta, gamma, vega, theta, rho)(book.spot, book.strike, book.years, kRate, book.volatility); });

  const auto s = book.spot.span<const float>(), k = book.strike.span<const float>(), t = book.years.span<const float>(),
             v = book.volatility.span<const float>();
  const double start = example::seconds();
  for (std::size_t i = 0; i < s.size(); ++i) {
    const Plain plain = plain_call(s[i], k[i], t[i], kRate, v[i]);
    const auto at = [&](const Array& a) { return double{a.span<const float>()[i]}; };
    check("a call", at(call), plain.price, s[i]);
    check("a put", at(put), plain.price - s[i] + k[i] * std::exp(-kRate * t[i]), s[i]);
    check("a delta", at(delta), plain.delta, 1);
    check("a gamma", at(gamma), plain.gamma, 10 * std::max(plain.gamma, 1 / double{s[i]}));  // two nested differences in f32
    check("a vega", at(vega), plain.vega, s[i]);
    check("a theta", at(theta), plain.theta, s[i]);
    check("a rho", at(rho), plain.rho, 3 * s[i]);
  }
  const double loop_time = example::seconds() - start;
  const auto each = [&](double seconds) { return 1e9 * seconds / static_cast<double>(contracts); };
  std::printf("a book of %lld contracts, every number checked against a plain loop in double precision:\n",
              static_cast<long long>(contracts));
  std::printf("  call and put prices                      %7.1f ms  %5.2f ns a contract\n", 1e3 * price_time, each(price_time));
  std::printf("  call, delta, gamma, vega, theta and rho  %7.1f ms  %5.2f ns a contract, %lld kernel(s)\n", 1e3 * greeks_time,
              each(greeks_time), static_cast<long long>(greeks.stats().kernels));
  std::printf("  the plain loop, one thread               %7.1f ms  %5.2f ns a contract\n", 1e3 * loop_time, each(loop_time));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const long long contracts = argc > 1 ? std::atoll(argv[1]) : 4'000'000;
    if (contracts < 1) throw std::runtime_error("the number of contracts must be at least 1");
    ladder();
    book(contracts);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "options: %s\n", error.what());
    return 1;
  }
}
