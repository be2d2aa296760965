// Each allocation of a call fails in turn. The error is one sentence, no result is half-written, nothing leaks (checked by the sanitizer
// build), and the function is still usable. Also tests limits of memory.
//
// Allocations inside LLVM are excluded: LLVM may end the process when an allocation fails. Before each compile, onepass checks that the
// system has enough room.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "replaced_new.h"
#include "runtime/kernel_cache.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/program.h"

using namespace onepass;
using Catch::Matchers::Contains;

// `new` of this thread: `countdown` allocations succeed and the next allocation fails. With `for_good`, all later allocations fail too.
namespace {
thread_local constinit std::int64_t countdown = -1;
thread_local constinit bool for_good = false, failed = false;
thread_local constinit std::int64_t asked_for = 0;  // bytes
}  // namespace

void* onepass::test::memory_of_new(std::size_t bytes) noexcept {
  if (countdown >= 0 && countdown-- == 0) {
    failed = true;
    if (for_good) countdown = 0;
    return nullptr;
  }
  asked_for += static_cast<std::int64_t>(bytes);
  return std::malloc(bytes ? bytes : 1);
}

namespace {

struct Injected {
  Injected(std::int64_t after, bool all) { countdown = after, for_good = all, failed = false; }
  ~Injected() { countdown = -1; }
};

// Calls `call` with the k-th allocation failing, for k = 0, 1, … until no allocation fails. Returns the number of failures.
template <class F> int fail_each(bool all, F&& call) {
  int count = 0;
  for (std::int64_t k = 0;; ++k) {
    bool caught = false;
    std::string text;
    {
      const Injected scope(k, all);
      try {
        call();
      } catch (const MemoryError& error) {
        countdown = -1;
        caught = true;
        text = error.what();
      }
    }
    if (!failed) return count;
    // Some failures do not end a call, because optional work is skipped.
    if (caught && !Catch::contains(text, "out of memory")) FAIL("the sentence is: " << text);
    count += caught;
    REQUIRE(k < 100'000);
  }
}

std::vector<Mode> modes() {
  return test::has_codegen() ? std::vector{Mode::generic, Mode::unfused, Mode::reference} : std::vector{Mode::reference};
}

Tensor chain(Tensor x, Tensor w) {
  const Tensor centred = x - mean(x, 1, true);
  return exp(centred) * w + sum(x, 0, true);
}

}  // namespace

TEST_CASE("faults: every allocation of a first call fails in turn", "[faults]") {
  for (const Mode mode : modes())
    for (const bool all : {false, true}) {
      INFO("mode " << static_cast<int>(mode) << (all ? ", all from there on" : ", one"));
      Options options;
      options.mode = mode;
      const Array x = Array::full({5, 7}, 0.5, f32), w = Array::full({7}, 2.0, f32);
      const Array expected = compile(chain, options)(x, w);  // caches the kernels, so LLVM does not run below
      for (const bool into : {false, true}) {
        if (into != all && test::has_sanitizer() && !test::is_full_run()) continue;
        const std::int64_t in_use = memory_stats().in_use;
        {
          Array y = Array::full({5, 7}, -1.0, f32);
          int failures = 0;
          bool untouched = true;
          failures = fail_each(all, [&] {
            const std::int64_t before = std::exchange(countdown, -1);
            auto fresh = compile(chain, options);
            countdown = before;
            try {
              if (into) fresh.into(y)(x, w);
              else y = fresh(x, w);
            } catch (...) {
              countdown = -1;
              for (const float v : y.span<float>()) untouched = untouched && v == -1.0f;
              // The function is still usable.
              if (fresh(x, w).to_vector<float>() != expected.to_vector<float>()) FAIL("the function is broken");
              throw;
            }
            countdown = -1;
            y = Array::full({5, 7}, -1.0, f32);
          });
          CHECK(untouched);
          CHECK(failures > 20);
        }
        CHECK(memory_stats().in_use <= in_use + 4096);
      }
    }
}

TEST_CASE("faults: every allocation of the pool fails in turn", "[faults]") {
  for (const Mode mode : modes()) {
    INFO("mode " << static_cast<int>(mode));
    Options options;
    options.mode = mode;
    auto f = compile(
        [](Tensor x) {
          const Tensor y = x - mean(x);
          return std::tuple{y / sqrt(mean(y * y)), x + flip(x)};
        },
        options);
    const Array x = Array::full({50'000}, 0.5, f32);
    for (int i = 0; i < 50; ++i) x.span<float>()[static_cast<std::size_t>(1000 * i)] = static_cast<float>(i);
    Array y = Array::full({50'000}, -1.0, f32), z = Array::full({50'000}, -1.0, f32), shifted = x.copy();
    const auto expected = f(x);
    const std::int64_t in_use = memory_stats().in_use;
    int failures = 0;
    for (int after = 0; after < 20; ++after) {
      const auto with_failure = [&](auto&& call) {
        memory::inject_failure(after);
        try {
          call();
          memory::inject_failure(-1);
          return false;
        } catch (const MemoryError& error) {
          memory::inject_failure(-1);
          ++failures;
          CHECK_THAT(error.what(), Contains("cannot allocate"));
          return true;
        }
      };
      if (with_failure([&] { f.into(y, z)(x); })) CHECK((y.at<float>({7}) == -1.0f && z.at<float>({7}) == -1.0f));
      else y = Array::full({50'000}, -1.0, f32), z = Array::full({50'000}, -1.0, f32);
      with_failure([&] { f(x); });
      // A destination that overlaps its argument, through a temporary.
      if (with_failure([&] { f.into(y, shifted)(shifted); })) CHECK(shifted.at<float>({7}) == 0.5f);
      else shifted = x.copy(), y = Array::full({50'000}, -1.0, f32);
      with_failure([&] { static_cast<void>(f.bind(y, z, x)); });
      const bool usable = std::get<0>(f(x)).to_vector<float>() == std::get<0>(expected).to_vector<float>();
      CHECK(usable);
    }
    CHECK(failures > 3);
    CHECK(memory_stats().in_use <= in_use + (1 << 20));
  }
}

TEST_CASE("faults: exceeded memory limits are errors with their numbers, and can be set", "[faults]") {
  Options options;
  options.limits.array_bytes = 1000;
  auto outer_sum = compile([](Tensor x) { return x.reshape({x.dim(0), 1}) + x; }, options);
  const Array small = Array::full({10}, 1.0, f32), large = Array::full({20}, 1.0, f32);
  CHECK(outer_sum(small).at<float>({3, 4}) == 2.0f);
  if (test::has_codegen()) CHECK_THROWS_WITH(outer_sum(large), Contains("f32[20, 20]; the limit `array_bytes` is 1000 bytes"));
  CHECK(outer_sum(small).at<float>({3, 4}) == 2.0f);
  options.limits.array_bytes = -1;
  CHECK_THROWS_AS(compile([](Tensor x) { return x; }, options), ValueError);

  const std::size_t limit = memory_limit();
  CHECK(limit > 0);
  trim_memory();
  set_memory_limit(64 << 20);
  CHECK(memory_limit() == 64 << 20);
  CHECK_THROWS_WITH(Array::zeros({20'000'000}, f32), Contains("cannot allocate 80000000 bytes") && Contains("the limit is 67108864"));
  auto twice = compile([](Tensor x) { return x + x; });
  set_memory_limit(80 << 20);
  const Array x = Array::full({8'000'000}, 1.0, f32), other = x.copy();
  CHECK_THROWS_AS(twice(x), MemoryError);  // the result does not fit in addition to the arguments
  set_memory_limit(0);
  CHECK(memory_limit() == limit);
  CHECK(twice(x).at<float>({77}) == 2.0f);
}

TEST_CASE("faults: without memory for the compiler a first call is an error, and a later one works", "[faults]") {
  if (!test::has_codegen() || test::has_sanitizer()) return;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const Array x = Array::full({16}, 1.0, f32);
    runtime::set_tiles(false);
    compile([](Tensor x) { return sum(x + x); })(x);  // loads the code generator's module
    // Leaves room for everything except the compiler: the address space ends 16 MB from here.
    long pages = 0;
    if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    rlimit before;
    getrlimit(RLIMIT_AS, &before);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(pages) * 4096 + (16 << 20);
    setrlimit(RLIMIT_AS, &tight);
    if (os::has_room(32 << 20)) _exit(43);  // some containers ignore the limit
    auto f = compile([](Tensor x) { return sum(tanh(x) * x); });
    int result = 1;
    try {
      f(x);
    } catch (const MemoryError& error) { result = Catch::contains(error.what(), "which the compiler may need") ? 42 : 2; }
    setrlimit(RLIMIT_AS, &before);
    f(x);
    _exit(result);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == 43) fmt::print("this system does not keep RLIMIT_AS: the compiler's room is not tested\n");
  else CHECK(WEXITSTATUS(status) == 42);
}

// Each fusion group of a plan is compiled separately, so its memory must not grow with the length of the whole program.
TEST_CASE("faults: a gradient through twice as many steps allocates twice as much memory", "[faults]") {
  const auto bytes = [](int steps) {
    const auto f = compile(
        [steps](Tensor x) {
          Tensor h = x[0] * 0.5 + 1.0, likelihood = h * 0.0;
          for (int t = 0; t < steps; ++t) {
            h = 0.1 + 0.8 * h + 0.1 * x[t] * x[t];
            likelihood = likelihood + log(h) + x[t] * x[t] / h;
          }
          return grad(likelihood, x);
        },
        {.mode = Mode::generic, .check_recording = false});
    const std::int64_t before = asked_for;
    static_cast<void>(f(Array::full({steps}, 0.25f, f32)));
    return static_cast<double>(asked_for - before);
  };
  const double half = bytes(1500), whole = bytes(3000);
  CAPTURE(half, whole);
  CHECK(whole < 2.4 * half);
}
