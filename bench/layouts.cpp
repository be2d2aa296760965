// Times layouts, sweeps and nested reductions against hand-written loops (layouts_by_hand.cpp), alternately, on one thread:
//   permute    permutations of two to four axes with a contiguous result, of f32, f16 and u8
//   norms      sums and batch norm in training, forward and backward, channels first and channels last
//   columns    programs of several sweeps along axis 0
//   scans      cumsum and cummax along rows
//   quantize   round, clamp and i8, one way and both
//   nested     reductions of reductions: kernel density, nearest point, all-pairs potential
//   layouts [--relax] [--threads N] [NAME...: all]
// Each row: microseconds of onepass and of the hand-written loop, and their ratio. `--relax` allows contract, reassociate and approximate.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <onepass/onepass.h>

#include "in_turn.h"
#include "layouts_by_hand.h"

namespace op = onepass;
using op::Array, op::Tensor, op::bench::random_floats;

namespace {

using Shape = std::vector<std::int64_t>;

op::Options options;
double product_of_ratios = 1;
int rows = 0;
bool good = true;

double worst_difference(const Array& a, const Array& b) {
  double worst = 0, most = 0;
  const std::span<const float> x = a.span<const float>(), y = b.span<const float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(x[i]) - y[i]));
    most = std::max(most, std::abs(static_cast<double>(y[i])));
  }
  return most > 0 ? worst / most : worst;
}

void check(const std::string& name, const Array& a, const Array& b, double tolerance) {
  const bool equal = tolerance == 0 || a.dtype() != op::f32 ? std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0
                                                            : worst_difference(a, b) <= tolerance;
  if (equal) return;
  fmt::print("{}: the results differ{}\n", name, a.dtype() == op::f32 ? fmt::format(" by {:.2e}", worst_difference(a, b)) : "");
  good = false;
}

// A named input of row(), which measures `formula` of the inputs against `hand`. `hand` writes to `by_hand`.
struct Input {
  const char* name;
  Array array;
};
void row(const std::string& name, const char* formula, const std::vector<Input>& inputs, std::vector<Array>& by_hand, double tolerance,
         const std::function<void()>& hand) {
  const op::Formula ours = op::formula(formula, options);
  std::vector<op::NamedArgument> arguments;
  for (const Input& input : inputs) arguments.push_back({input.name, input.array});
  const op::FormulaResults first = ours(std::span<const op::NamedArgument>(arguments));
  std::vector<Array> results;
  for (std::size_t i = 0; i < by_hand.size(); ++i) results.push_back(first[i]);
  std::vector<op::NamedTarget> targets;
  for (std::size_t i = 0; i < results.size(); ++i) targets.push_back({ours.outputs()[i], results[i]});
  const auto run = [&] { ours.into(targets, std::span<const op::NamedArgument>(arguments)); };
  const double once = std::min(op::bench::seconds(run, 1), op::bench::seconds(hand, 1));
  const std::vector<double> m = op::bench::medians({run, hand}, std::max(1, static_cast<int>(1e-3 / once)), once > 3e-3 ? 9 : 21);
  fmt::print("{:<52} {:9.1f} us, by hand {:9.1f}: {:.2f}\n", name, m[0] * 1e6, m[1] * 1e6, m[1] / m[0]);
  std::fflush(stdout);
  product_of_ratios *= m[1] / m[0];
  ++rows;
  for (std::size_t i = 0; i < results.size(); ++i) check(name, results[i], by_hand[i], tolerance);
}

Array random_of(op::DType type, const Shape& shape) {
  if (type == op::f32) return random_floats(shape);
  std::int64_t n = static_cast<std::int64_t>(op::size_of(type));
  for (const std::int64_t extent : shape) n *= extent;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n));
  std::mt19937 random(7);
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random() >> 8 & 0x3b);  // finite as halves
  Array x = Array::empty(shape, type);
  std::memcpy(x.mutable_data(), bytes.data(), bytes.size());
  return x;
}

// Returns values that differ from random_floats and are not a multiple of it.
Array other_floats(const Shape& shape) {
  const Array x = random_floats(shape);
  Array y = Array::empty(shape, op::f32);
  const std::span<const float> from = x.span<const float>();
  const std::span<float> to = y.span<float>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[(i * 7919 + 13) % to.size()];
  return y;
}

void permute() {
  struct Row {
    Shape shape;
    std::vector<int> permutation;
  };
  for (const op::DType type : {op::f32, op::f16, op::u8})
    for (const Row& r : {Row{{1536, 2048}, {1, 0}},
                         {{128, 192, 128}, {0, 2, 1}},
                         {{128, 192, 128}, {1, 2, 0}},
                         {{128, 192, 128}, {2, 0, 1}},
                         {{128, 192, 128}, {2, 1, 0}},
                         {{128, 192, 128}, {1, 0, 2}},
                         {{16, 64, 56, 56}, {0, 2, 3, 1}},
                         {{16, 56, 56, 64}, {0, 3, 1, 2}},
                         {{32, 48, 32, 64}, {3, 2, 1, 0}},
                         {{32, 48, 64, 32}, {0, 2, 1, 3}},
                         {{64, 224, 224, 3}, {0, 3, 1, 2}},
                         {{32, 3, 224, 224}, {0, 2, 3, 1}}}) {
      Shape shape;
      for (const int axis : r.permutation) shape.push_back(r.shape[static_cast<std::size_t>(axis)]);
      const Array x = random_of(type, r.shape);
      std::vector<Array> y = {Array::zeros(shape, type)};
      row(fmt::format("permute {} [{}] by ({})", op::name_of(type), fmt::join(r.shape, ", "), fmt::join(r.permutation, ", ")),
          fmt::format("transpose(x, [{}])", fmt::join(r.permutation, ", ")).c_str(), {{"x", x}}, y, 0,
          [&] { by_hand::permute(x.data(), y[0].mutable_data(), r.shape, r.permutation, static_cast<int>(op::size_of(type))); });
    }
}

void norms() {
  constexpr std::int64_t n = 32, c = 128, side = 32, m = side * side;
  const Array first = random_floats({n, c, side, side}), last = random_floats({n, side, side, c}), dy = other_floats({n, c, side, side}),
              dy_last = other_floats({n, side, side, c}), g = random_floats({c}), b = random_floats({c}, 0.5f);
  const auto in = [](const Array& a) { return a.span<const float>().data(); };
  std::vector<Array> s = {Array::zeros({c}, op::f32)}, y = {Array::zeros(first.shape(), op::f32)},
                     y_last = {Array::zeros(last.shape(), op::f32)};
  std::vector<Array> d = {y[0].copy(), s[0].copy(), s[0].copy()}, d_last = {y_last[0].copy(), s[0].copy(), s[0].copy()};
  const auto out = [](std::vector<Array>& a, std::size_t i = 0) { return a[i].span<float>().data(); };
  row("sum NCHW over 0, 2, 3", "sum(x, [0, 2, 3])", {{"x", first}}, s, 1e-3, [&] { by_hand::sums_first(in(first), out(s), n, c, m); });
  row("sum NHWC over 0, 1, 2", "sum(x, [0, 1, 2])", {{"x", last}}, s, 1e-3, [&] { by_hand::sums_last(in(last), out(s), n * m, c); });
  const std::string forward =
                        "fn f(x, g, b) {{ mu = mean(x, {0}, keepdims=true); v = mean((x - mu)*(x - mu), {0}, keepdims=true)\n"
                        "return (x - mu)*(1/sqrt(v + 1e-5))*reshape(g, {1}) + reshape(b, {1}) }}",
                    backward =
                        "fn f(x, g, b, dy) {{ mu = mean(x, {0}, keepdims=true); v = mean((x - mu)*(x - mu), {0}, keepdims=true)\n"
                        "y = (x - mu)*(1/sqrt(v + 1e-5))*reshape(g, {1}) + reshape(b, {1})\n"
                        "dx, dg, db = vjp(y, [x, g, b], dy)\nreturn dx, dg, db }}";
  const char *axes_first = "[0, 2, 3]", *axes_last = "[0, 1, 2]", *of_first = "[1, 128, 1, 1]", *of_last = "[128]";
  row("batch norm NCHW", fmt::format(fmt::runtime(forward), axes_first, of_first).c_str(), {{"x", first}, {"g", g}, {"b", b}}, y, 1e-4,
      [&] { by_hand::batch_norm_first(in(first), in(g), in(b), out(y), n, c, m); });
  row("batch norm NHWC", fmt::format(fmt::runtime(forward), axes_last, of_last).c_str(), {{"x", last}, {"g", g}, {"b", b}}, y_last, 1e-4,
      [&] { by_hand::batch_norm_last(in(last), in(g), in(b), out(y_last), n * m, c); });
  row("batch norm NCHW, backward", fmt::format(fmt::runtime(backward), axes_first, of_first).c_str(),
      {{"x", first}, {"g", g}, {"b", b}, {"dy", dy}}, d, 1e-3,
      [&] { by_hand::batch_norm_first_gradient(in(first), in(g), in(dy), out(d), out(d, 1), out(d, 2), n, c, m); });
  row("batch norm NHWC, backward", fmt::format(fmt::runtime(backward), axes_last, of_last).c_str(),
      {{"x", last}, {"g", g}, {"b", b}, {"dy", dy_last}}, d_last, 1e-3,
      [&] { by_hand::batch_norm_last_gradient(in(last), in(g), in(dy_last), out(d_last), out(d_last, 1), out(d_last, 2), n * m, c); });
}

void columns() {
  for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{256, 4096}, {1024, 2048}, {4096, 512}}) {
    const Array x = random_floats({n, m});
    std::vector<Array> y = {Array::zeros({n, m}, op::f32)};
    row(fmt::format("softmax [{}, {}] over 0", n, m), "softmax(x, 0)", {{"x", x}}, y, 1e-5,
        [&] { by_hand::softmax_columns(x.span<const float>().data(), y[0].span<float>().data(), n, m); });
    row(fmt::format("standardize [{}, {}] over 0", n, m), "(x - mean(x, 0))*(1/std(x, 0))", {{"x", x}}, y, 1e-4,
        [&] { by_hand::standardize_columns(x.span<const float>().data(), y[0].span<float>().data(), n, m); });
  }
}

void scans() {
  for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{65536, 64}, {4096, 1024}, {64, 65536}}) {
    const Array x = random_floats({n, m});
    std::vector<Array> y = {Array::zeros({n, m}, op::f32)};
    row(fmt::format("cumsum [{}, {}] along rows", n, m), "cumsum(x, 1)", {{"x", x}}, y, 1e-4,
        [&] { by_hand::cumsum_rows(x.span<const float>().data(), y[0].span<float>().data(), n, m); });
    row(fmt::format("cummax [{}, {}] along rows", n, m), "cummax(x, 1)", {{"x", x}}, y, 0,
        [&] { by_hand::cummax_rows(x.span<const float>().data(), y[0].span<float>().data(), n, m); });
  }
}

void quantize() {
  constexpr std::int64_t n = 1 << 18, r = 1024, m = 1024;
  const Array x = random_floats({n}, 2.0f), rows_of = random_floats({r, m}, 2.0f);
  std::vector<Array> q = {Array::zeros({n}, op::i8)}, y = {Array::zeros({n}, op::f32)}, z = {Array::zeros({r, m}, op::f32)};
  const auto to = [](std::vector<Array>& a) { return a[0].span<float>().data(); };
  const float* const from = x.span<const float>().data();
  row("quantize: round, clamp, i8", "cast(clamp(round(x*64.0), -127, 127), i8)", {{"x", x}}, q, 0,
      [&] { by_hand::quantize(from, q[0].span<std::int8_t>().data(), n, 64.0f); });
  row("dequantize: i8 to f32, scaled", "cast(q, f32)*0.015625", {{"q", q[0]}}, y, 0,
      [&] { by_hand::dequantize(q[0].span<const std::int8_t>().data(), to(y), n, 0.015625f); });
  row("round trip by i8", "cast(cast(clamp(round(x*64.0), -127, 127), i8), f32)*0.015625", {{"x", x}}, y, 1e-7,
      [&] { by_hand::round_trip(from, to(y), n, 64.0f); });
  row("round trip by i8, a scale for each row",
      "s = 127/max(abs(x), 1, keepdims=true); out = cast(cast(clamp(round(x*s), -127, 127), i8), f32)*(1/s)", {{"x", rows_of}}, z, 2e-2,
      [&] { by_hand::round_trip_rows(rows_of.span<const float>().data(), to(z), r, m); });
}

void nested() {
  for (const std::int64_t d : {2, 3, 16}) {
    constexpr std::int64_t n = 4096, m = 2048;
    const Array a = random_floats({n, d}), b = random_floats({m, d}, 0.9f);
    std::vector<Array> y = {Array::zeros({n}, op::f32)}, at = {Array::zeros({n}, op::i64)};
    const float *const p = a.span<const float>().data(), *const q = b.span<const float>().data();
    const std::string pairs = fmt::format("({} pairs, {} dimensions)", "4096 x 2048", d);
    row("kernel density " + pairs, "sum(exp(-sum((a[:, none, :] - b[none, :, :])**2, -1)), 1)", {{"a", a}, {"b", b}}, y, 1e-5,
        [&] { by_hand::kernel_density(p, q, y[0].span<float>().data(), n, m, d); });
    row("nearest point " + pairs, "argmin(sum((a[:, none, :] - b[none, :, :])**2, -1), 1)", {{"a", a}, {"b", b}}, at, 0,
        [&] { by_hand::nearest(p, q, at[0].span<std::int64_t>().data(), n, m, d); });
    row("potential (4096 x 4096 pairs, " + std::to_string(d) + " dimensions)",
        "sum(1/sqrt(sum((a[:, none, :] - a[none, :, :])**2, -1) + 1e-3), 1)", {{"a", a}}, y, 1e-4,
        [&] { by_hand::potential(p, y[0].span<float>().data(), n, d); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  options.threads = 1;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--relax") options.relax = {.contract = true, .reassociate = true, .approximate = true};
    else if (word == "--threads" && i + 1 < argc) options.threads = std::atoi(argv[++i]);
    else wanted.push_back(word);
  }
  struct Part {
    const char* name;
    void (*run)();
  };
  for (const Part& part :
       {Part{"permute", permute}, {"norms", norms}, {"columns", columns}, {"scans", scans}, {"quantize", quantize}, {"nested", nested}})
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), part.name) != wanted.end()) part.run();
  if (rows > 0) fmt::print("geometric mean of {} rows: {:.2f}\n", rows, std::pow(product_of_ratios, 1.0 / rows));
  return good ? 0 : 1;
}
