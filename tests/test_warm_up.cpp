// Compilation before the first call, and calls of functions that must not compile.
#include <catch2/catch.hpp>

#include <unistd.h>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arrays.h"
#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/signature_text.h"

namespace op = onepass;
using op::Array, op::Mode, op::Options, op::Static, op::Tensor;
using op::runtime::CallSignature;
using op::test::ramp, op::test::same_bits;

namespace {

Options plain(op::Specialization policy = {}) {
  Options o;
  o.specialization = policy;
  o.check_recording = false;
  return o;
}

struct TemporaryFile {
  std::string path = fmt::format("{}/onepass-signatures-{}", std::filesystem::temp_directory_path().string(), getpid());
  ~TemporaryFile() { std::filesystem::remove(path); }
};

template <class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const op::Error& error) { return error.what(); }
  return {};
}

bool has(const std::string& text, std::string_view part) {
  INFO(text);
  const bool found = text.find(part) != text.npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("warm_up: a signature's text is read back unchanged") {
  for (const std::string text :
       {"f32[64,256] f32[256]", "f32[]", "{2,-1} f32[2] f32[3] 1 2.5 -3 1e+30 true nan",
        "f32[4,4]:[1,4] bf16[0,3] -> f32[4,4] _ f64[4]:[2]", "i64[7] -> i64[7] unaligned hot", "f32[3] hot", "", "-> f32[3]", "0.1 2.0"})
    CHECK(CallSignature::parse(text).text() == text);
  CHECK(CallSignature::parse("  f32[ 3 , 4 ]\tf64[2]:[1]\r").text() == "f32[3,4] f64[2]");
}

TEST_CASE("warm_up: an invalid signature is an error with its position") {
  for (const char* text : {"f32[3", "f32", "f33[2]", "f32[-1]", "f32[3]f32[3]", "f32[2,]", "f32[2]:[1,2]", "f32[3] ->-> f32[3]", "-> 3",
                           "hot hot", "unaligned", "-> f32[2] unaligned f32[2]", "{1 2} f32[2]", "f32[99999999999999999999]", "f32[2]x"}) {
    const std::string error = error_of([&] { CallSignature::parse(text); });
    INFO(text);
    has(error, "signature `");
    has(error, "Write it as");
  }
  // No other text causes harm either, whatever sizes it contains.
  const auto f =
      op::compile([](std::vector<Tensor> list, Static<int> n, Tensor x) { return list.empty() ? x : x * list[0] + (int)n; }, plain());
  const std::string good = "{2,3} f32[4,5] f32[4,5]:[1,4] 2.5 -> f32[4,5] unaligned hot";
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = "0192[]{},:-> .ehotfx"[random() % 20]; break;
        case 1: text.erase(at, 1 + random() % 3); break;
        case 2: text.insert(at, std::to_string(static_cast<std::int64_t>(random()) << (random() % 32))); break;
        default: text.insert(at, text.substr(random() % text.size(), 5)); break;
      }
      if (text.empty()) text = " ";
    }
    error_of([&] { f.warm_up({text}); });
  }
}

TEST_CASE("warm_up: warmed-up calls record and compile nothing") {
  if (!op::test::has_codegen()) return;
  const auto f = op::compile([](Tensor x, Tensor w) { return tanh(x) * w + 0.25f; }, plain());
  f.warm_up({"f32[6,50] f32[50]", "f32[6,50] 2.5", "f32[50,6]:[1,50] f32[6] -> f32[50,6]"});
  const op::Stats before = f.stats();
  CHECK(before.calls == 0);
  CHECK(before.recordings == 3);
  const Array x = ramp({6, 50}, 0.3), w = ramp({50}, 0.1);
  const auto reference = op::compile([](Tensor a, Tensor b) { return tanh(a) * b + 0.25f; },
                                     [] {
                                       Options o = plain();
                                       o.mode = Mode::reference;
                                       return o;
                                     }());
  CHECK(same_bits(f(x, w), reference(x, w)));
  CHECK(same_bits(f(x, 7.5), reference(x, 7.5)));  // another number is not another signature
  Array y = Array::zeros({50, 6}, op::f32);
  const Array short_row = ramp({6}, 0.2);
  f.into(y)(x.transpose(), short_row);
  CHECK(same_bits(y, reference(x.transpose(), short_row)));
  CHECK(f.stats().recordings == 3);
  CHECK(f.stats().compiles == before.compiles);
}

TEST_CASE("warm_up: afterwards every kernel is optimized, or with Tier::quick as after a first call") {
  if (!op::test::has_codegen()) return;
  const auto body = [](Tensor a, Tensor b) {
    const Tensor p = matmul(a, b);
    return std::tuple{p * 1.5f, sum(tanh(p) * 0.375f, 0)};
  };
  const auto f = op::compile(body, plain());
  f.warm_up({"f32[30,40] f32[40,50]"});
  const op::Stats ready = f.stats();
  CHECK(ready.optimised == ready.compiles);
  CHECK(ready.optimised >= 1);
  CHECK(ready.ms_compiling > 0);
  const Array a = ramp({30, 40}, 0.125), b = ramp({40, 50}, 0.25);
  const auto [y, s] = f(a, b);
  CHECK(f.stats().ms_lost == 0);
  CHECK(f.stats().optimised == ready.optimised);
  CHECK(f.explain().find("until optimized code is ready") == std::string::npos);

  const auto other = [](Tensor x) { return cosh(x) - sinh(x * 0.625f); };
  const auto g = op::compile(other, plain());
  g.warm_up({"f32[100]"}, op::Tier::quick);
  CHECK(g.stats().compiles == 1);
  CHECK(g.stats().optimised == 0);
  g(ramp({100}, 0.125));
  CHECK(g.explain().find("until optimized code is ready") != std::string::npos);
  CHECK_FALSE(g.wait_until_optimized(std::chrono::nanoseconds(0)));  // the compile has only begun
  CHECK(g.wait_until_optimized(std::chrono::minutes(5)));
  CHECK(g.stats().optimised == 1);
  CHECK(g.wait_until_optimized(std::chrono::nanoseconds(0)));
  CHECK(op::wait_until_optimized(std::chrono::minutes(5)));
  // Without compile threads, the waiting thread compiles.
  op::set_compile_threads(0);
  const auto h = op::formula("cosh(x)*sinh(x) - x");
  h({{"x", ramp({100}, 0.125)}});
  CHECK(h.stats().optimised == 0);
  h.wait_until_optimized();
  op::set_compile_threads(1);
  CHECK(h.stats().optimised == 1);
}

TEST_CASE("warm_up: from a file that another process wrote") {
  if (!op::test::has_codegen()) return;
  const auto body = [](std::vector<Tensor> list, Tensor x, Static<int> times) {
    for (const Tensor& t : list) x = x * t + 0.375f;
    for (int i = 0; i < times; ++i) x = sqrt(abs(x));
    return std::tuple{x, sum(x, -1)};
  };
  const TemporaryFile file;
  const Array a = ramp({5, 9}, 0.3), b = ramp({9}, 0.7);
  Array sums = Array::zeros({5}, op::f32);
  std::vector<std::string> written;
  {
    const auto f = op::compile(body, plain({.after_calls = 3, .in_background = false}));
    for (int call = 0; call < 40; ++call) f(std::vector<Array>{b, b}, a, 1);
    f(std::vector<Array>{}, a, 2);
    f.into(op::discard, sums)(std::vector<Array>{b}, a, 0);
    written = f.signatures();
    CHECK(written.size() == 3);
    f.write_signatures(file.path);
  }
  const auto g = op::compile(body, plain());
  CHECK(g.warm_up_file(file.path) == 3);
  CHECK(g.signatures().size() == 3);
  const op::Stats ready = g.stats();
  CHECK(ready.calls == 0);
  CHECK(ready.hot_shapes <= 1);  // 0 if the shape's kernels were slower than the generic kernels
  const auto [x, s] = g(std::vector<Array>{b, b}, a, 1);
  g.into(op::discard, sums)(std::vector<Array>{b}, a, 0);
  CHECK(g.stats().recordings == ready.recordings);
  // A line that the function no longer accepts is skipped with a warning.
  std::ofstream(file.path, std::ios::app) << "\n# a comment\n{1} f32[5]\nf32[5,9] f32[4]\n";
  int said = 0;
  op::set_log([&](op::LogLevel, std::string_view text) { said += text.find(": skipped `") != text.npos; });
  CHECK(g.warm_up_file(file.path) == 3);
  op::set_log(nullptr);
  CHECK(said == 2);
  std::ofstream(file.path, std::ios::app) << "f32[5,9\n";
  has(error_of([&] { g.warm_up_file(file.path); }), ":9: signature `");
  has(error_of([&] { g.warm_up_file("/nowhere/signatures"); }), "/nowhere/signatures");
}

TEST_CASE("warm_up: formulas") {
  if (!op::test::has_codegen()) return;
  const op::Formula f = op::formula("y = x*w + 1; s = sum(y, axis=-1)", plain());
  f.warm_up({"f32[7,31] f32[31]"});
  const op::Stats ready = f.stats();
  f({ramp({7, 31}, 0.1), ramp({31}, 0.2)});
  CHECK(f.stats().recordings == ready.recordings);
  CHECK(f.stats().compiles == ready.compiles);
  CHECK(f.signatures() == std::vector<std::string>{"f32[7,31] f32[31]"});
  has(error_of([&] { f.warm_up({"f32[3]"}); }), "takes 2 arguments (x, w), but the call has 1");
  has(error_of([&] { f.warm_up({"f32[3] f32[4]"}); }), "do not broadcast");
  has(error_of([&] { f.warm_up({"{1} f32[3] f32[3]"}); }), "no lists");
  has(error_of([&] { f.warm_up({"f32[9000000000000000000] f32[3]"}); }), "address can count");
}

TEST_CASE("seal: a call that would compile is an error that names it; all others still work") {
  if (!op::test::has_codegen()) return;
  const auto f = op::compile([](Tensor x, Tensor w) { return sinh(x) * w - 0.125f; }, plain({.after_calls = 2, .in_background = false}));
  const Array x = ramp({12}, 0.2);
  const Array first = f(x, x);
  f.seal();
  for (int call = 0; call < 5; ++call) CHECK(same_bits(f(x, x), first));
  CHECK(f.stats().specialized == 0);
  f(ramp({77}, 0.1), ramp({77}, 0.1));  // a kernel does not depend on lengths
  const std::string error = error_of([&] { f(ramp({3, 12}, 0.2), ramp({3, 1}, 0.2)); });
  has(error, "`f32[3,12] f32[3,1]`");
  has(error, "the function is sealed");
  has(error, "warm_up");
  CHECK(same_bits(f(x, x), first));
  const auto result = f.try_call(ramp({3, 12}, 0.2), ramp({3, 1}, 0.2));
  CHECK_FALSE(result.has_value());
  has(f.explain(), "no further compilation");
  f.reset();  // the function stays sealed, and the kernel exists
  CHECK(same_bits(f(x, x), first));
  CHECK_FALSE(error_of([&] { f(ramp({3, 12}, 0.2), ramp({3, 1}, 0.2)); }).empty());
}

TEST_CASE("seal: Options::compile = never uses kernels that others compiled") {
  if (!op::test::has_codegen()) return;
  const auto body = [](Tensor x) { return cosh(x) * 0.3f - x; };
  Options never = plain();
  never.compile = op::Compile::never;
  const auto strict = op::compile(body, never);
  const Array x = ramp({40}, 0.2);
  const std::string error = error_of([&] { strict(x); });
  has(error, "`f32[40]`");
  has(error, "Options::compile is never");
  const auto usual = op::compile(body, plain());
  const Array expected = usual(x);
  CHECK(same_bits(strict(x), expected));
  CHECK(strict.stats().compiles == 0);
  Options reference = never;
  reference.mode = Mode::reference;
  CHECK(same_bits(op::compile(body, reference)(x), expected));  // compiles nothing anyway
  Options special = never;
  special.mode = Mode::specialized;
  CHECK_FALSE(error_of([&] { op::compile(body, special)(x); }).empty());
}

TEST_CASE("reset: reset frees the depth, eviction does not") {
  if (!op::test::has_codegen()) return;
  const auto f = op::compile([](Tensor x) { return asinh(x) + 2; }, plain({.depth = 3, .after_calls = 2, .in_background = false}));
  const auto use = [&](int from, int to) {
    for (int n = from; n < to; ++n)
      for (int call = 0; call < 3; ++call) f(ramp({n}, 0.3));
  };
  use(2, 7);
  CHECK(f.stats().hot_shapes == 3);
  has(f.explain(), "3 shapes have specialized kernels, the maximum that Specialization::depth allows");
  use(7, 1200);  // more than the capacity of the plan table
  CHECK(f.stats().plans == 1024);
  CHECK(f.stats().forgotten > 100);
  use(2, 7);
  CHECK(f.stats().specialized == 3);
  f.reset();
  CHECK(f.stats().plans == 0);
  CHECK(f.stats().hot_shapes == 0);
  CHECK(f.explain() == "no call yet\n");
  const auto recordings = f.stats().recordings;
  use(2000, 2010);
  CHECK(f.stats().recordings == recordings + 10);
  CHECK(f.stats().specialized == 6);
  CHECK(f.stats().compiles == 1);
}

TEST_CASE("compile threads: the requested number, and none") {
  if (!op::test::has_codegen()) return;
  CHECK(op::compile_threads() == 1);
  has(error_of([] { op::set_compile_threads(-1); }), "-1 is not between 0 and 64");
  has(error_of([] { op::set_compile_threads(65); }), "65 is not between");
  op::set_compile_threads(0);
  const auto f = op::compile([](Tensor x) { return atanh(x * 0.1f) + 5; }, plain());
  const Array x = ramp({21}, 0.2), expected = f(x);
  for (int call = 0; call < 10; ++call) CHECK(same_bits(f(x), expected));
  op::runtime::wait_for_optimised();
  CHECK(f.stats().optimised == 0);
  CHECK(f.stats().specialized == 0);
  op::set_compile_threads(3);
  const auto g = op::compile(
      [](Tensor a) {
        return std::tuple{sum(atan(a)), log1p(abs(a)), prod(a) + expm1(a)};
      },
      plain({.after_calls = 3}));
  for (int call = 0; call < 10; ++call) g(x);
  op::runtime::wait_for_optimised();
  CHECK(g.stats().optimised == g.stats().compiles);
  CHECK(g.stats().specialized > 0);
  op::set_compile_threads(1);
}
