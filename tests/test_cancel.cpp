// Calls that stop early: Options::should_stop, and the limits `work` and `compile_ms`. The tests count calls of should_stop and measure no
// time.
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/stop.h"
#include "with_mode.h"

namespace op = onepass;
using Catch::Matchers::Contains;
using onepass::test::with;
using op::Array, op::Mode, op::Tensor;

namespace {

std::vector<Mode> modes() {
  if (!onepass::test::has_codegen()) return {Mode::reference};
  return {Mode::reference, Mode::unfused, Mode::generic, Mode::specialized, Mode::adaptive};
}
const char* name_of(Mode mode) {
  static constexpr const char* kNames[] = {"adaptive", "generic", "specialized", "unfused", "reference"};
  return kNames[static_cast<int>(mode)];
}

// Stop function that returns true at call number `at`, counted from 1; 0 never stops.
struct Question {
  std::shared_ptr<std::atomic<int>> asked = std::make_shared<std::atomic<int>>(0), at = std::make_shared<std::atomic<int>>(0);
  std::thread::id thread = std::this_thread::get_id();
  bool operator()() const {
    if (std::this_thread::get_id() != thread) std::abort();
    return ++*asked == *at;
  }
};

template <class F> std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const op::Error& error) { return error.what(); }
}

std::vector<char> bytes_of(const Array& a) {
  const Array c = a.contiguous();
  const auto* data = static_cast<const char*>(c.data());
  return {data, data + c.size() * op::size_of(c.dtype())};
}

}  // namespace

TEST_CASE("a call over 69 billion elements stops on request in every mode, and leaves no effects") {
  for (const Mode mode : modes())
    for (const int threads : {1, 2}) {
      CAPTURE(name_of(mode), threads);
      const Array x = Array::full({4, 8}, 2.0, op::f32), small = Array::full({2, 4, 8}, 2.0, op::f32);
      Question question;
      op::Options options = with(mode, threads);
      options.should_stop = question;
      options.limits.array_bytes = std::int64_t{1} << 30;
      options.specialization.in_background = false;
      auto f = op::compile([](Tensor a) { return argmax(broadcast_to(a, {2147483647, 4, 8})); }, options);
      *question.at = 12;
      const std::int64_t before = op::memory_stats().in_use;
      for (int call = 0; call < 2; ++call) {
        *question.asked = 0;
        if (mode == Mode::reference || mode == Mode::unfused) {  // these modes may materialize the operand
          const std::string error = error_of([&] { static_cast<void>(f(x)); });
          CHECK_THAT(error, Contains("canceled") || Contains("`array_bytes`"));
        } else {
          CHECK_THROWS_AS(f(x), op::CancelledError);
          CHECK(*question.asked == 12);
        }
      }
      CHECK(op::memory_stats().in_use == before);
      *question.at = 0;
      auto g = op::compile([](Tensor a) { return argmax(a); }, options);
      CHECK(g(small).item<std::int64_t>() == 0);
    }
}

TEST_CASE("no part of a long call takes long, and splitting it changes no bit") {
  // These are one row, few columns, rows with two sweeps, a narrow sum, elementwise nests, a scan, a contraction, and subdomains.
  const char* const cases[] = {
      "sum(sin(broadcast_to(x, [8192, 512])))",
      "sum(exp(broadcast_to(x[:, none, none], [512, 4, 2000])), [0, 2])",
      "var(broadcast_to(x, [20000, 512]))",
      "sum(broadcast_to(x[:4], [6000000, 4]), 0)",
      "cast(sin(broadcast_to(x, [8192, 512]))*100, i8)",
      "cumsum(reshape(broadcast_to(x, [40000, 512]), [-1]), 0)[-3:]",
      "matmul(broadcast_to(x[:1], [32, 200000]), broadcast_to(x[:1], [200000, 3]))",
      "exp(concat([broadcast_to(x, [4000, 512]), broadcast_to(x*2, [4000, 512])], 0))[:, ::4]",
  };
  std::vector<float> values(512);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const Array x = Array::wrap(values);
  for (const char* const text : cases) {
    CAPTURE(text);
    std::vector<char> expected;
    for (const auto& [mode, threads] :
         {std::pair{Mode::reference, 1}, {Mode::unfused, 1}, {Mode::specialized, 1}, {Mode::adaptive, 1}, {Mode::adaptive, 2}}) {
      const bool is_slow =
          std::string_view(text).find("sin") != std::string_view::npos || std::string_view(text).find("exp") != std::string_view::npos;
      if (mode == Mode::reference ? is_slow || onepass::test::has_sanitizer() : !onepass::test::has_codegen()) continue;
      CAPTURE(name_of(mode), threads);
      const std::vector<char> plain = bytes_of(op::formula(text, with(mode, threads))({x}).operator Array());
      if (expected.empty()) expected = plain;
      CHECK(plain == expected);
      Question question;
      op::Options options = with(mode, threads);
      options.should_stop = question;
      const auto f = op::formula(text, options);
      CHECK(bytes_of(f({x}).operator Array()) == expected);
      *question.asked = 0;
      CHECK(bytes_of(f({x}).operator Array()) == expected);
      const int all = *question.asked;  // checks of the call, without recording and compilation
      CHECK(all >= 2);
      for (const int at : {2, all}) {  // stops at the second or last check; later calls are unaffected
        *question.asked = 0, *question.at = at;
        CHECK_THAT(error_of([&] { static_cast<void>(f({x})); }), Contains("canceled: "));
        CHECK(*question.asked == at);
      }
      *question.at = 0;
      CHECK(bytes_of(f({x}).operator Array()) == expected);
    }
  }
}

TEST_CASE("should_stop is called before a call does any work") {
  for (const Mode mode : modes()) {
    CAPTURE(name_of(mode));
    bool stop = true;
    int recorded = 0;
    op::Options options = with(mode);
    options.should_stop = [&] { return stop; };
    auto f = op::compile(
        [&](Tensor a) {
          ++recorded;
          return a * 3.0f + 1.0f;
        },
        options);
    const Array x = Array::full({100}, 2.0, op::f32);
    Array y = Array::full({100}, 9.0, op::f32);
    CHECK_THROWS_AS(f(x), op::CancelledError);
    CHECK(recorded == 0);
    stop = false;
    auto call = f.bind(y, x);
    call();
    CHECK(y.at<float>({99}) == 7.0f);
    Array z = Array::full({100}, 9.0, op::f32);
    stop = true;
    CHECK_THROWS_AS(f.into(z)(x), op::CancelledError);
    CHECK(z.at<float>({99}) == 9.0f);
    CHECK_THROWS_AS(call(), op::CancelledError);
    CHECK_THAT(f.try_call(x).error(), Contains("canceled: "));
    CHECK_THAT(f.try_into(z, x).error(), Contains("canceled: "));
    stop = false;
    call();
    CHECK(f(x).at<float>({0}) == 7.0f);
    CHECK(recorded == 2);  // fresh results and destinations
  }
}

TEST_CASE("an exception of should_stop ends the call") {
  struct Mine {};
  for (const Mode mode : modes()) {
    bool stop = false;
    op::Options options = with(mode);
    options.should_stop = [&]() -> bool {
      if (stop) throw Mine();
      return false;
    };
    auto f = op::compile([](Tensor a) { return a + 1.0f; }, options);
    const Array x = Array::full({10}, 2.0, op::f32);
    CHECK(f(x).at<float>({0}) == 3.0f);
    stop = true;
    CHECK_THROWS_AS(f(x), Mine);
    stop = false;
    CHECK(f(x).at<float>({9}) == 3.0f);
  }
}

namespace {
// Returns a formula with one kernel for each step, since a matrix product is complete before the next step begins.
std::string chain(int kernels) {
  std::string text = "t0 = x*1.5";
  static constexpr const char* kFunctions[] = {"sin", "exp", "tanh", "cos", "sqrt", "atan"};
  for (int k = 1; k <= kernels; ++k) text += fmt::format("; t{} = {}(matmul(t{}, x)*0.01) + x*{}", k, kFunctions[k % 6], k - 1, k);
  return text + fmt::format("; out = t{}", kernels);
}
}  // namespace

TEST_CASE("a call that is canceled while its kernels are compiled blocks no other call") {
  if (!onepass::test::has_codegen()) return;
  const Array x = Array::full({40, 40}, 0.25, op::f32);
  const std::string text = chain(6);
  Question question;
  op::Options options = with(Mode::generic, 1);
  options.should_stop = question;
  // Stops at each check in turn.
  std::thread other;
  std::vector<char> theirs;
  bool started = false;
  options.should_stop = [&] {
    if (!question()) return false;
    if (!started) {  // a second call needs the same kernels, some of which this call has claimed
      started = true;
      other = std::thread([&] { theirs = bytes_of(op::formula(text, with(Mode::generic, 1))({x})["out"]); });
    }
    return true;
  };
  const auto f = op::formula(text, options);
  int cancelled = 0;  // compiled kernels stay, so each attempt makes fewer checks
  for (int at = 2; at < 8; ++at) {
    *question.asked = 0, *question.at = at;
    const std::string error = error_of([&] { static_cast<void>(f({x})); });
    if (error == "no error") break;
    CHECK_THAT(error, Contains("canceled: "));
    ++cancelled;
  }
  CHECK(cancelled >= 2);
  if (other.joinable()) other.join();
  *question.at = 0;
  CHECK(bytes_of(f({x})["out"]) == theirs);
}

namespace {
std::atomic<std::int64_t> now{0};
std::atomic<int> said{0};
std::string last_said;
}  // namespace

TEST_CASE("a call that would wait too long for the compiler runs unfused, logs it once, and is fused later") {
  if (!onepass::test::has_codegen()) return;
  const Array x = Array::full({40, 40}, 0.25, op::f32), z = Array::full({30, 30}, 0.25, op::f32);
  for (const Mode mode : {Mode::generic, Mode::adaptive, Mode::specialized}) {
    CAPTURE(name_of(mode));
    const std::string text = chain(5);
    const std::vector<char> expected = bytes_of(op::formula(text, with(Mode::unfused))({x})["out"]);
    onepass::set_kernel_cache_limits(0, 0);  // every kernel is missing
    onepass::set_kernel_cache_limits(4096, std::int64_t{256} << 20);
    said = 0;
    op::set_log([](op::LogLevel, std::string_view message) { ++said, last_said = message; }, op::LogLevel::warning);
    onepass::runtime::set_compile_clock([] { return now += 1'000'000; });
    op::Options options = with(mode, 1);
    options.limits.compile_ms = 3;
    const auto f = op::formula(text, options);
    CHECK(bytes_of(f({x})["out"]) == expected);
    CHECK(said == 1);
    CHECK_THAT(last_said, Contains("longer than 3 ms, the limit `compile_ms`"));
    const std::int64_t launches = f.stats().launches;
    CHECK(launches > 10);  // one for each operator
    CHECK(f.stats().recordings == 1);
    if (mode != Mode::specialized) CHECK(f({z})["out"].shape()[0] == 30);  // another plan, with the same cause
    CHECK(said == 1);
    // The kernels are compiled in the meantime; the next calls use them.
    for (int call = 0; call < 12; ++call) {
      onepass::runtime::wait_for_optimised();
      CHECK(bytes_of(f({x})["out"]) == expected);
    }
    if (mode != Mode::specialized) {
      CHECK(f.stats().recordings == 3);
      CHECK(f.last_execution().plan_reason == op::PlanReason::repeated);
      CHECK_THAT(f.last_execution().plan_sentence, Contains("the same call was made before"));
    }
    const std::int64_t before = f.stats().launches;
    CHECK(bytes_of(f({x})["out"]) == expected);
    CHECK(f.stats().launches - before < launches);
    // warm_up always waits, without a limit.
    onepass::set_kernel_cache_limits(0, 0);
    onepass::set_kernel_cache_limits(4096, std::int64_t{256} << 20);
    const auto g = op::formula(text, options);
    g.warm_up({"f32[40,40]"});
    CHECK(bytes_of(g({x})["out"]) == expected);
    CHECK(g.stats().launches < launches);
    CHECK(said == 1);
    onepass::runtime::set_compile_clock(nullptr);
    op::set_log(nullptr);
  }
}

TEST_CASE("the limit `work` counts computed elements, equally in every mode") {
  const Array x = Array::full({10, 100}, 0.25, op::f32);
  struct Case {
    const char* text;
    std::int64_t work;
  };
  // Each operator counts the elements that it computes or reads; views and unused values are free.
  const Case cases[] = {
      {"x + 1", 1000},          {"sum(x, 1)", 1000},
      {"sum(x*x, 1)", 2000},    {"cumsum(x, 0)", 1000},
      {"exp(x)[3, 4]", 1},      {"matmul(x, transpose(x))", 10 * 10 * 100},
      {"transpose(x)[::2]", 0}, {"(broadcast_to(x, [1000, 10, 100]) * 2)[3]", 1000},
  };
  for (const Mode mode : modes())
    for (const Case& c : cases) {
      if ((mode == Mode::reference || mode == Mode::unfused) && c.text[0] == '(') continue;  // these modes materialize unused elements
      CAPTURE(name_of(mode), c.text);
      op::Options options = with(mode);
      options.limits.work = std::max<std::int64_t>(c.work, 1);
      CHECK(error_of([&] { op::formula(c.text, options)({x}); }) == "no error");
      if (c.work < 2) continue;
      options.limits.work = c.work - 1;
      CHECK_THAT(error_of([&] { op::formula(c.text, options)({x}); }), Contains(fmt::format("the limit `work` is {}", c.work - 1)));
    }
  op::Options options = with(modes().back());
  options.limits.work = 1'000'000'000;
  CHECK_THAT(error_of([&] {
               op::formula("argmax(broadcast_to(x, [2147483647, 4, 8]))", options)({Array::zeros({4, 8}, op::f32)});
             }),
             Contains("the limit `work`") && Contains("6.872e+10"));
  options.limits.work = -1;
  CHECK_THAT(error_of([&] { op::formula("x", options); }), Contains("work: -1 is negative"));
  options.limits.work = 0, options.limits.compile_ms = -1;
  CHECK_THAT(error_of([&] { op::formula("x", options); }), Contains("compile_ms: -1 is negative"));
  options.limits.compile_ms = 0, options.specialization.depth = -1;
  CHECK_THAT(error_of([&] { op::formula("x", options); }), Contains("depth: -1 is negative"));
  options.specialization.depth = 0, options.specialization.after_calls = -2;
  CHECK_THAT(error_of([&] { op::formula("x", options); }), Contains("after_calls: -2 is negative"));
  CHECK_THAT(error_of([&] { op::set_kernel_cache_limits(10, -1); }), Contains("10 kernels and -1 bytes must be 0 or more"));
}
