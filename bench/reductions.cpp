// Times reductions, scans and indexing against reference operations, alternately:
//   stacked   256 expressions sum(ys[0]*ys[t], 0), stacked: recorded, fused and compiled, with ONEPASS_CACHE_DIR=none
//   threads   sums of 64M and 32M elements of four shapes: speedup by a second thread, compared with the speedup of a copy of the array
//   generic   generic kernels against shape-specialized kernels
//   scans     cumsum along rows and along columns against a copy of as many bytes
//   gathers   take of a million rows of 64 floats against a hand-written loop without checks, and against the same kernel without
//             its check
//   scatters  index_add of a million updates on two threads and on one, and against a hand-written loop
//   reductions [divisor of all sizes: 1] [NAME...: all]
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include <onepass/onepass.h>

#include "in_turn.h"
#include "runtime/launch.h"

namespace op = onepass;
using op::Array, op::Tensor, op::bench::compare, op::bench::in_mode, op::bench::medians, op::bench::random_floats;

namespace {

using Shape = std::vector<std::int64_t>;

op::Options on(int threads) {
  op::Options options;
  options.threads = threads;
  return options;
}

bool say_whether_equal(const Array& a, const Array& b) {
  const bool equal = std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
  if (!equal) std::puts("the results differ");
  return equal;
}

Array random_places(std::int64_t n, std::int64_t below) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> places(static_cast<std::size_t>(n));
  for (std::int64_t& p : places) p = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  return Array::from(std::move(places));
}

bool stacked(std::int64_t by) {
  const auto f = op::compile([](Tensor y) {
    std::vector<Tensor> all;
    for (std::int64_t t = 0; t < y.dim(0); ++t) all.push_back(op::sum(y[0] * y[t], {0}));
    return op::stack(all);
  });
  const std::string signature = "f32[256,100," + std::to_string(std::max<std::int64_t>(128 / by, 8)) + "]";
  const double begin = op::bench::thread_seconds();
  const double ready = op::bench::seconds([&] { f.warm_up({signature}); }, 1);
  const double used = op::bench::thread_seconds() - begin;
  std::printf("%-44s %.2f ms, %.2f of the calling thread's processor time (10 wanted, in a process that did nothing before)\n",
              "256 sums stacked, made ready", ready * 1e3, used * 1e3);
  return true;
}

bool threads(std::int64_t by) {
  struct Row {
    const char* name;
    Shape shape;
    int axis;
  };
  for (const Row& row : {Row{"sum of [64M]", {64'000'000 / by}, 0},
                         {"sum of [1, 64M]", {1, 64'000'000 / by}, 1},
                         {"sum of [8, 4M] over 0", {8, 4'000'000 / by}, 0},
                         {"sum of [8, 4M] over 1", {8, 4'000'000 / by}, 1},
                         {"sum of [4M, 8] over 0", {4'000'000 / by, 8}, 0},
                         {"sum of [4M, 8] over 1", {4'000'000 / by, 8}, 1}}) {
    const Array x = random_floats(row.shape);
    Array y = Array::empty(row.shape, op::f32);
    const auto sum = [&](Tensor v) { return op::sum(v, row.axis); };
    const auto twice = [](Tensor v) { return v * 2.0f; };
    const auto one = op::compile<Tensor(Tensor)>(sum, on(1)), two = op::compile<Tensor(Tensor)>(sum, on(2));
    const auto copy_one = op::compile<Tensor(Tensor)>(twice, on(1)), copy_two = op::compile<Tensor(Tensor)>(twice, on(2));
    Array a = one(x), b = two(x);
    const std::vector<double> m =
        medians({[&] { one.into(a)(x); }, [&] { two.into(b)(x); }, [&] { copy_one.into(y)(x); }, [&] { copy_two.into(y)(x); }}, 1, 9);
    const double gain = m[0] / m[1], copy_gain = m[2] / m[3];
    std::printf("%-44s one thread %6.2f ms, two %6.2f: %.2f times; x*2: %.2f times (%.2f wanted)\n", row.name, m[0] * 1e3, m[1] * 1e3, gain,
                copy_gain, std::min(1.7, copy_gain));
    if (!say_whether_equal(a, b)) return false;
  }
  return true;
}

bool generic(std::int64_t by) {
  struct Row {
    const char *name, *formula;
    std::vector<Shape> shapes;  // shapes of the inputs
  };
  const std::int64_t rows = std::max<std::int64_t>(4096 / by, 16), square = std::max<std::int64_t>(8192 / by, 64);
  const std::vector<Row> all = {
      {"softmax of [4096, 1024]", "softmax(x)", {{rows, 1024}}},
      {"layer_norm of [4096, 1024]", "layer_norm(x, g, b)", {{rows, 1024}, {1024}, {1024}}},
      {"sum of [8192, 8192] over 0", "sum(x, 0)", {{square, square}}},
      {"softmax(sum(ys[0]*ys, 1), 0), [256, 100, 128]", "softmax(sum(x[0]*x, 1), 0)", {{256, 100, 128}}},
      {"sum(a*H, 1), H [100, 256, 128]", "sum(a*h, 1)", {{256, 128}, {100, 256, 128}}},
      {"sum(V_i*V_j*V_k) over j, k, 500", "sum(x[:, none, none]*x[none, :, none]*x[none, none, :], [1, 2])", {{500}}},
      {"rms_norm of [4096, 1000]", "rms_norm(x, g)", {{rows, 1000}, {1000}}},
      {"sum of [64M]", "sum(x)", {{64'000'000 / by}}},
  };
  bool equal = true;
  for (const Row& row : all) {
    const op::Formula ours = op::formula(row.formula, in_mode(op::Mode::generic)),
                      special = op::formula(row.formula, in_mode(op::Mode::specialized));
    std::vector<op::NamedArgument> inputs;
    for (std::size_t i = 0; i < row.shapes.size(); ++i) inputs.push_back({ours.inputs()[i], random_floats(row.shapes[i])});
    const std::span<const op::NamedArgument> arguments(inputs);
    Array a = ours(arguments)[0], b = special(arguments)[0];
    const auto into = [&](const op::Formula& f, Array& target) { f.into(std::vector<op::NamedTarget>{{"out", target}}, arguments); };
    const double once = op::bench::seconds([&] { into(special, b); }, 3);
    const std::vector<double> m =
        medians({[&] { into(ours, a); }, [&] { into(special, b); }}, std::max(1, static_cast<int>(2e-3 / once)), 31);
    std::printf("%-44s generic %8.3f ms, specialised %8.3f: %.2f (0.90 wanted)\n", row.name, m[0] * 1e3, m[1] * 1e3, m[1] / m[0]);
    equal = say_whether_equal(a, b) && equal;
  }
  return equal;
}

bool scans(std::int64_t by) {
  for (const int axis : {0, 1}) {
    const std::int64_t n = 4096 / std::min<std::int64_t>(by, 64);
    const Array x = random_floats({n, n});
    Array y = Array::empty({n, n}, op::f32), z = Array::empty({n, n}, op::f32);
    const auto scan = op::compile<Tensor(Tensor)>([axis](Tensor v) { return op::cumsum(v, axis); }, on(2));
    const auto copy = op::compile([](Tensor v) { return v * 2.0f; }, on(2));
    compare(
        axis ? "cumsum of [4096, 4096] along rows, x*2" : "cumsum of [4096, 4096] along columns, x*2", n * n, [&] { scan.into(y)(x); },
        [&] { copy.into(z)(x); }, 0.8);
  }
  return true;
}

void take_by_hand(const float* x, const std::int64_t* rows, float* y, std::int64_t n, std::int64_t width) {
  if (width == 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[rows[i]];
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(y + i * width, x + rows[i] * width, static_cast<std::size_t>(width) * sizeof(float));
}

// Removes the bounds checks of indices from a nest.
void without_checks(op::compiler::Nest& nest) {
  for (op::compiler::Statement& s : nest.body)
    if (s.kind == op::compiler::Statement::Kind::Place) s.kind = op::compiler::Statement::Kind::Op, s.op = op::ir::Op::Cast, s.at = 0;
}

bool gathers(std::int64_t by) {
  struct Row {
    const char *by_hand, *unchecked;
    std::int64_t n, width;
  };
  bool equal = true;
  for (const Row& row : {Row{"take of 1M rows of 64, by hand, one thread", "take of 1M rows of 64, without its check", 1'000'000 / by, 64},
                         {"take of 1M numbers, by hand, one thread", "take of 1M numbers, without its check", 1'000'000 / by, 1},
                         {"take of 10,000 numbers, by hand, one thread", "take of 10,000 numbers, without its check", 10'000, 1}}) {
    const std::int64_t n = row.n, width = row.width;
    const Array x = random_floats({n, width}), at = random_places(n, n);
    Array y = Array::empty({n, width}, op::f32), z = Array::zeros({n, width}, op::f32);
    const auto gather = [](Tensor v, Tensor i) { return op::take(v, i, 0); };
    op::Options options = on(1);
    options.mode = op::Mode::generic;  // the same code in all runs
    const auto take = op::compile<Tensor(Tensor, Tensor)>(gather, options),
               unchecked = op::compile<Tensor(Tensor, Tensor)>(gather, options);
    const auto hand = [&] {
      take_by_hand(x.span<const float>().data(), at.span<const std::int64_t>().data(), z.span<float>().data(), n, width);
    };
    compare(
        row.by_hand, n * width, [&] { take.into(y)(x, at); }, hand, 0.9);
    equal = say_whether_equal(y, z) && equal;
    op::runtime::set_nest_hook(without_checks);
    unchecked.into(z)(x, at);
    op::runtime::set_nest_hook(nullptr);
    compare(
        row.unchecked, n * width, [&] { take.into(y)(x, at); }, [&] { unchecked.into(z)(x, at); }, 0.9);
  }
  return equal;
}

void add_by_hand(float* y, const std::int64_t* rows, const float* u, std::int64_t n, std::int64_t width) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < width; ++j) y[rows[i] * width + j] += u[i * width + j];
}

bool scatters(std::int64_t by) {
  struct Row {
    const char* name;
    std::int64_t updates, places, width;
  };
  bool equal = true;
  for (const Row& row : {Row{"index_add of 1M numbers to 16K", 1'000'000, 16'384, 1},
                         {"index_add of 4M numbers to 4M", 4'000'000, 4'000'000, 1},
                         {"index_add of 1M rows of 8 to 100,000", 1'000'000, 100'000, 8},
                         {"index_add of 250,000 rows of 64 to 100,000", 250'000, 100'000, 64}}) {
    const std::int64_t n = row.updates / by, width = row.width;
    const Array u = random_floats({n, width}), at = random_places(n, row.places), zeros = Array::zeros({row.places, width}, op::f32);
    Array a = Array::zeros(zeros.shape(), op::f32), b = Array::zeros(zeros.shape(), op::f32), c = Array::zeros(zeros.shape(), op::f32);
    const auto add = [](Tensor x, Tensor i, Tensor v) { return op::index_add(x, i, v, 0); };
    const auto one = op::compile<Tensor(Tensor, Tensor, Tensor)>(add, on(1)), two = op::compile<Tensor(Tensor, Tensor, Tensor)>(add, on(2));
    const std::vector<double> m =
        medians({[&] { one.into(a)(zeros, at, u); }, [&] { two.into(b)(zeros, at, u); },
                 [&] {
                   std::memcpy(c.mutable_data(), zeros.data(), static_cast<std::size_t>(c.bytes()));
                   add_by_hand(c.span<float>().data(), at.span<const std::int64_t>().data(), u.span<const float>().data(), n, width);
                 }},
                1, 15);
    std::printf("%-44s one thread %6.2f ms, two %6.2f: %.2f times; by hand, on one: %6.2f\n", row.name, m[0] * 1e3, m[1] * 1e3, m[0] / m[1],
                m[2] * 1e3);
    equal = say_whether_equal(a, b) && say_whether_equal(a, c) && equal;
  }
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t by = argc > 1 ? std::max(1LL, std::atoll(argv[1])) : 1;
  struct Part {
    const char* name;
    bool (*run)(std::int64_t by);
  };
  bool good = true;
  for (const Part& part : {Part{"stacked", stacked},
                           {"threads", threads},
                           {"generic", generic},
                           {"scans", scans},
                           {"gathers", gathers},
                           {"scatters", scatters}}) {
    bool wanted = argc <= 2;
    for (int i = 2; i < argc; ++i) wanted |= std::string(argv[i]) == part.name;
    if (wanted) good = part.run(by) && good;
  }
  return good ? 0 : 1;
}
