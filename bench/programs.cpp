// Times the programs of docs/programs.md against plain C++ loops (programs_by_hand.cpp), alternately, on one thread.
//   programs [--relax] [NAME...: all]
// Each row: milliseconds of onepass and of the loop, and their ratio. `--relax` allows contract, reassociate and approximate.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "in_turn.h"
#include "programs_by_hand.h"
#include "programs_of_page.h"  // the C++ of docs/programs.md

namespace {

using op::bench::random_floats;

op::Options options;
std::vector<std::string> wanted;
double product_of_ratios = 1;
int rows = 0;
bool good = true;

float* floats(Array& x) { return x.span<float>().data(); }
const float* floats(const Array& x) { return x.span<const float>().data(); }

// Returns the largest difference, relative to the largest value. Elements of other types are counted that differ by more than 1.
double difference(const Array& a, const Array& b) {
  double worst = 0, most = 0;
  const auto compare = [&]<class T>(T) {
    const std::span<const T> x = a.span<const T>(), y = b.span<const T>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double apart = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      worst = std::max(worst, apart > 0 || std::isnan(apart) ? apart : 0.0);
      most = std::max(most, std::abs(static_cast<double>(y[i])));
    }
  };
  if (a.dtype() == op::f32) compare(0.0f);
  else if (a.dtype() == op::f64) compare(0.0);
  else if (a.dtype() == op::i32) compare(std::int32_t{});
  else compare(std::uint8_t{});
  return most > 0 ? worst / most : worst;
}

// Measures `run`, which writes to `ours`, against `hand`, which writes to `by_hand`.
void row(const std::string& name, Array& ours, const std::function<void()>& run, Array& by_hand, const std::function<void()>& hand,
         double tolerance) {
  if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) return;
  run();
  hand();
  if (const double apart = difference(ours, by_hand); !(apart <= tolerance)) {
    fmt::print("{}: the results differ by {:.2e}\n", name, apart);
    good = false;
  }
  const std::vector<double> m = op::bench::medians({run, hand}, 1, 9);
  fmt::print("{:<16} {:9.3f} ms, by hand {:9.3f}: {:.2f}\n", name, m[0] * 1e3, m[1] * 1e3, m[1] / m[0]);
  std::fflush(stdout);
  product_of_ratios *= m[1] / m[0];
  ++rows;
}

template <class F> auto compiled(F f) { return op::compile(f, options); }
Array scalar(float x) { return Array::full({}, x, op::f32); }

void time_k_means() {
  const std::int64_t n = 50'000, k = 32, d = 8;
  const Array points = random_floats({n, d});
  const Array start = points.slice(0, 0, k).copy();
  auto f = compiled(k_means);
  Array ours = Array::zeros({k, d}, op::f32), hand = Array::zeros({k, d}, op::f32);
  row(
      "k_means", ours, [&] { f.into(ours)(points, start); }, hand,
      [&] {
        std::copy_n(floats(start), k * d, floats(hand));
        by_hand::k_means(floats(points), floats(hand), n, k, d, 5);
      },
      1e-2);
}

void time_z_scores() {
  const std::int64_t time = 2'000, series = 500;
  const Array x = random_floats({time, series});
  auto f = compiled(z_scores);
  Array ours = Array::zeros({time - 19, series}, op::f32), hand = ours.copy();
  row(
      "z_scores", ours, [&] { f.into(ours)(x); }, hand, [&] { by_hand::z_scores(floats(x), floats(hand), time, series); }, 1e-4);
}

void time_asian_option() {
  const std::int64_t steps = 50, paths = 50'000;
  const Array normals = random_floats({steps, paths}, 1.7f), s0 = scalar(100), sigma = scalar(0.2f);
  auto f = compiled(asian_option);
  std::array<Array, 3> results{scalar(0), scalar(0), scalar(0)};
  Array ours = Array::zeros({3}, op::f32), hand = Array::zeros({3}, op::f32);
  row(
      "asian_option", ours,
      [&] {
        f.into(results)(normals, s0, sigma);
        for (std::size_t i = 0; i < 3; ++i) floats(ours)[i] = results[i].item<float>();
      },
      hand, [&] { by_hand::asian_option(floats(normals), 100, 0.2f, floats(hand), steps, paths); }, 1e-3);
}

void time_kalman_filter() {
  const std::int64_t time = 500, tracks = 2'000;
  const Array measured = random_floats({time, tracks});
  auto f = compiled(kalman_filter);
  Array ours = Array::zeros({time, tracks}, op::f32), hand = ours.copy();
  row(
      "kalman_filter", ours, [&] { f.into(ours)(measured); }, hand,
      [&] { by_hand::kalman_filter(floats(measured), floats(hand), time, tracks); }, 1e-4);
}

void time_unsharp_mask() {
  const std::int64_t height = 1'000, width = 1'500;
  const Array image = random_floats({height, width}), weights = Array::from({1.0f / 16, 4.0f / 16, 6.0f / 16, 4.0f / 16, 1.0f / 16});
  auto f = compiled(unsharp_mask);
  Array ours = Array::zeros({height, width}, op::f32), hand = ours.copy();
  row(
      "unsharp_mask", ours, [&] { f.into(ours)(image, weights); }, hand,
      [&] { by_hand::unsharp_mask(floats(image), floats(weights), floats(hand), height, width); }, 1e-2);
}

void time_mandelbrot() {
  const std::int64_t side = 500;
  Array re = Array::zeros({side * side}, op::f32), im = re.copy();
  for (std::int64_t i = 0; i < side * side; ++i) {
    floats(re)[i] = -2.0f + 2.5f * static_cast<float>(i % side) / static_cast<float>(side);
    floats(im)[i] = -1.25f + 2.5f * static_cast<float>(i / side) / static_cast<float>(side);
  }
  auto f = compiled(mandelbrot);
  Array ours = Array::zeros({side * side}, op::i32), hand = ours.copy();
  // The loop by hand contracts, which moves some points at the border.
  row(
      "mandelbrot", ours, [&] { f.into(ours)(re, im); }, hand,
      [&] { by_hand::mandelbrot(floats(re), floats(im), hand.span<std::int32_t>().data(), side * side, 200); }, 1);
}

void time_garch() {
  const std::int64_t n = 20'000;
  const Array floats_of = random_floats({n}), p = Array::from({0.02, 0.1, 0.8});
  Array returns = Array::zeros({n}, op::f64);
  for (std::int64_t i = 0; i < n; ++i) returns.span<double>()[static_cast<std::size_t>(i)] = floats(floats_of)[i];
  auto f = compiled(garch);
  std::pair<Array, Array> results{Array::full({}, 0.0, op::f64), Array::zeros({3}, op::f64)};
  Array ours = Array::zeros({4}, op::f64), hand = ours.copy();
  row(
      "garch", ours,
      [&] {
        f.into(results)(returns, p);
        ours.span<double>()[0] = results.first.item<double>();
        for (std::size_t i = 0; i < 3; ++i) ours.span<double>()[i + 1] = results.second.span<const double>()[i];
      },
      hand, [&] { by_hand::garch(returns.span<const double>().data(), p.span<const double>().data(), hand.span<double>().data(), n); },
      1e-9);
}

void time_logistic_step() {
  const std::int64_t n = 20'000, d = 64;
  const Array x = random_floats({n, d}), w = random_floats({d});
  Array y = Array::zeros({n}, op::f32);
  for (std::int64_t i = 0; i < n; ++i) floats(y)[i] = static_cast<float>(i % 3 == 0);
  auto f = compiled(logistic_step);
  std::pair<Array, Array> results{scalar(0), Array::zeros({d}, op::f32)};
  Array hand = Array::zeros({d}, op::f32);
  row(
      "logistic_step", results.second, [&] { f.into(results)(x, y, w); }, hand,
      [&] { by_hand::logistic_step(floats(x), floats(y), floats(w), floats(hand), n, d); }, 1e-4);
}

void time_kernel_density() {
  const std::int64_t m = 2'000, n = 4'000;
  const Array queries = random_floats({m, 2}), points = random_floats({n, 2}, 0.9f);
  auto f = compiled(kernel_density);
  Array ours = Array::zeros({m}, op::f32), hand = ours.copy();
  row(
      "kernel_density", ours, [&] { f.into(ours)(queries, points); }, hand,
      [&] { by_hand::kernel_density(floats(queries), floats(points), floats(hand), m, n); }, 1e-3);
}

void time_life() {
  const std::int64_t height = 500, width = 1'000;
  Array cells = Array::zeros({height, width}, op::u8);
  std::mt19937 random(7);
  for (std::uint8_t& c : cells.span<std::uint8_t>()) c = random() % 3 == 0;
  auto f = compiled(life);
  Array ours = cells.copy(), hand = cells.copy();
  row(
      "life", ours, [&] { f.into(ours)(cells); }, hand,
      [&] { by_hand::life(cells.span<const std::uint8_t>().data(), hand.span<std::uint8_t>().data(), height, width, 10); }, 0);
}

}  // namespace

int main(int argc, char** argv) {
  options.threads = 1;
  options.check_recording = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--relax") options.relax = {.contract = true, .reassociate = true, .approximate = true};
    else wanted.push_back(word);
  }
  for (void (*const time)() : {time_k_means, time_z_scores, time_asian_option, time_kalman_filter, time_unsharp_mask, time_mandelbrot,
                               time_garch, time_logistic_step, time_kernel_density, time_life})
    time();
  if (rows > 0) fmt::print("geometric mean of {} rows: {:.2f}\n", rows, std::pow(product_of_ratios, 1.0 / rows));
  return good ? 0 : 1;
}
