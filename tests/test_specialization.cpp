// Shape-specialized kernels: when and how many are compiled, equal bits, and no compiles otherwise.
#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arrays.h"
#include "has_codegen.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"

namespace op = onepass;
using op::Array, op::Mode, op::Options, op::Stats, op::Tensor;
using op::test::ramp, op::test::same_bits;

namespace {

Options with(op::Specialization policy, Mode mode = Mode::adaptive) {
  Options o;
  o.specialization = policy;
  o.mode = mode;
  o.check_recording = false;
  return o;
}

const auto kAffine = [](Tensor x, Tensor w, Tensor b) { return x * w + 1.5f * b; };
const auto kNormalise = [](Tensor x) {
  const Tensor e = exp(x - max(x, -1, true));
  return e / sum(e, -1, true);
};

}  // namespace

TEST_CASE("specialization: a hot shape gets specialized kernels, and no bit changes") {
  if (!op::test::has_codegen()) return;
  const Array x = ramp({37, 3}, 0.37), w = ramp({3}, 0.11), b = ramp({37, 1}, 0.7);
  const auto affine = op::compile(kAffine, with({.after_calls = 3}));
  const auto expected = op::compile(kAffine, with({}, Mode::reference))(x, w, b);
  for (int call = 1; call <= 2; ++call) CHECK(same_bits(affine(x, w, b), expected));
  op::runtime::wait_for_optimised();
  CHECK(affine.stats().specialized == 0);
  CHECK(same_bits(affine(x, w, b), expected));
  op::runtime::wait_for_optimised();
  CHECK(affine.stats().specialized == 1);
  for (int call = 0; call < 40; ++call) CHECK(same_bits(affine(x, w, b), expected));  // on trial, then decided
  const std::string explained = affine.explain();
  INFO(explained);
  CHECK(explained.find("special") != std::string::npos);
  CHECK(explained.find("on trial") == std::string::npos);
  CHECK(affine.stats().specialized == 1);
  CHECK(affine.stats().compiles == 1);
}

TEST_CASE("specialization: without background compiles, and by bound calls") {
  if (!op::test::has_codegen()) return;
  const Array x = ramp({5, 100}, 0.37);
  const auto normalise = op::compile(kNormalise, with({.after_calls = 2, .in_background = false}));
  const auto expected = op::compile(kNormalise, with({}, Mode::reference))(x);
  Array y = Array::zeros({5, 100}, op::f32);
  auto call = normalise.bind(y, x);
  call();
  CHECK(normalise.stats().specialized == 0);
  call();
  CHECK(normalise.stats().specialized == 1);
  for (int i = 0; i < 40; ++i) {
    std::memset(y.mutable_data(), 0, static_cast<std::size_t>(y.bytes()));
    call();
    CHECK(same_bits(y, expected));
  }
}

TEST_CASE("specialization: at most `depth` shapes for each function, logged once") {
  if (!op::test::has_codegen()) return;
  int said = 0;
  op::set_log([&](op::LogLevel, std::string_view text) { said += text.find("Specialization::depth") != text.npos; });
  const auto f = op::compile([](Tensor x) { return tanh(x) * 3; }, with({.depth = 4, .after_calls = 2, .in_background = false}));
  for (int n = 1; n <= 9; ++n) {
    const Array x = ramp({n, 7}, 0.3);
    for (int call = 0; call < 5; ++call) f(x);
  }
  op::set_log(nullptr);
  CHECK(f.stats().specialized == 4);
  CHECK(f.stats().compiles == 1);
  CHECK(said == 1);
}

TEST_CASE("specialization: depth 0 and the other modes have generic kernels only") {
  if (!op::test::has_codegen()) return;
  const Array x = ramp({11}, 0.3);
  for (const Options& options : {with({.depth = 0, .in_background = false}), with({.in_background = false}, Mode::generic),
                                 with({.in_background = false}, Mode::unfused), with({.in_background = false}, Mode::reference)}) {
    const auto f = op::compile([](Tensor x) { return x * x + 2; }, options);
    for (int call = 0; call < 10; ++call) f(x);
    CHECK(f.stats().specialized == 0);
  }
}

TEST_CASE("specialization: a thousand shapes, literals and numbers compile one generic kernel and `depth` specialized ones") {
  if (!op::test::has_codegen()) return;
  const auto f =
      op::compile([](Tensor x, Tensor a) { return x * a + 0.25f; }, with({.depth = 20, .after_calls = 2, .in_background = false}));
  for (int n = 2; n < 1002; ++n) {
    const Array x = ramp({n}, 0.3);
    for (int call = 0; call < 3; ++call) {
      const Array y = f(x, 0.5 + n + call);  // a new value of a number is not a new shape
      CHECK(y.at<float>({1}) == x.at<float>({1}) * (0.5f + static_cast<float>(n + call)) + 0.25f);
    }
  }
  CHECK(f.stats().compiles <= 2);  // one element, many
  CHECK(f.stats().specialized == 20);
}

TEST_CASE("specialization: mode specialized compiles for the shape at once, even for empty arrays") {
  if (!op::test::has_codegen()) return;
  const auto f = op::compile(kNormalise, with({}, Mode::specialized));
  const auto reference = op::compile(kNormalise, with({}, Mode::reference));
  using Shape = std::vector<std::int64_t>;
  for (const Shape& shape : {Shape{4, 65}, Shape{0, 65}, Shape{1, 1}, Shape{3, 5000}}) {
    const Array x = ramp(shape, 0.21);
    for (int call = 0; call < 3; ++call) CHECK(same_bits(f(x), reference(x)));
  }
  CHECK(f.stats().specialized >= 3);
  CHECK(f.stats().compiles == 0);
  const auto join = [](Tensor x) { return op::concat({x * 2, x + 1, x}, 0); };
  const Array long_row = ramp({20'000}, 0.3);
  CHECK(same_bits(op::compile(join, with({}, Mode::specialized))(long_row), op::compile(join, with({}, Mode::reference))(long_row)));
  const auto total = op::compile([](Tensor x) { return sum(x * x, -1); }, with({}, Mode::specialized));
  CHECK(same_bits(total(Array::zeros({4, 0}, op::f32)), Array::zeros({4}, op::f32)));
}

TEST_CASE("specialization: the subdomains of a fusion group are all specialized, or all generic") {
  if (!op::test::has_codegen()) return;
  const auto join = [](Tensor x, Tensor y) { return op::concat({exp(x) * 2, y + 1, x - y}, 0); };
  const Array x = ramp({9000}, 0.3), y = ramp({9000}, 0.7);
  const Array expected = op::compile(join, with({}, Mode::reference))(x, y);
  const auto f = op::compile(join, with({.after_calls = 2, .in_background = false}));
  for (int call = 0; call < 2; ++call) CHECK(same_bits(f(x, y), expected));
  CHECK(f.stats().specialized == 3);
  op::runtime::wait_for_optimised();
  CHECK(f.explain().find("specialized kernel on trial") != std::string::npos);
  for (int call = 0; call < 30; ++call) CHECK(same_bits(f(x, y), expected));
  CHECK(f.explain().find("on trial") == std::string::npos);
  // Many subdomains over a table of kernel parameters keep one generic kernel.
  const auto many = [](Tensor a) { return op::concat(std::vector<Tensor>(12, a), 0) * 3; };
  const auto g = op::compile(many, with({.after_calls = 2, .in_background = false}));
  const Array all = op::compile(many, with({}, Mode::reference))(x);
  for (int call = 0; call < 30; ++call) CHECK(same_bits(g(x), all));
}

TEST_CASE("specialization: a specialized kernel that is slower in its trial is dropped") {
  using State = op::runtime::Specialised::State;
  const auto decide = [](std::int64_t generic, std::int64_t special) {
    op::runtime::Specialised s;
    s.publish(nullptr, true);
    for (std::uint32_t run = 0; run < op::runtime::Specialised::kTrials; ++run) {
      CHECK(s.state() == State::Trial);
      const bool kernel = s.tries_kernel();
      CHECK(kernel == (run % 2 != 0));
      s.tried(kernel, run == 3 || run == 4 ? 1'000'000 : kernel ? special : generic);  // one disturbed run of each kernel does not count
    }
    return s.state();
  };
  CHECK(decide(1000, 900) == State::Used);
  CHECK(decide(1000, 1000) == State::Used);
  CHECK(decide(1000, 1001) == State::Dropped);
}
