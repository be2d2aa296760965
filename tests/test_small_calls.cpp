// Warm calls on small arrays: `into` and `bind` make no allocation, lock or system call. The tests count by replacing these functions.
// bench/calls measures the time of calls.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ONEPASS_COUNTS 0  // sanitizers have their own allocators and locks
#else
#define ONEPASS_COUNTS 1
#endif

namespace {
thread_local constinit std::int64_t allocations = 0, locks = 0, system_calls = 0;
}

#if ONEPASS_COUNTS
extern "C" {
void* __libc_malloc(std::size_t);               // NOLINT
void* __libc_calloc(std::size_t, std::size_t);  // NOLINT
void* __libc_realloc(void*, std::size_t);       // NOLINT
void __libc_free(void*);                        // NOLINT
void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
void free(void* memory) {
  if (memory) ++allocations;
  __libc_free(memory);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return real(mutex);
}
long syscall(long number, ...) noexcept {
  static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  ++system_calls;
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& x : a) x = va_arg(list, long);
  va_end(list);
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}
#endif

using namespace onepass;

namespace {

struct Counts {
  std::int64_t allocations = ::allocations, locks = ::locks, system_calls = ::system_calls;
  std::int64_t pool = memory_stats().allocations;
};

// Checks that 100 warm calls make none of the counted calls.
template <class F> void check_nothing(F&& call) {
  for (int i = 0; i < 10; ++i) call();
  const Counts before;
  for (int i = 0; i < 100; ++i) call();
  const std::int64_t pool = memory_stats().allocations;
  CHECK(::allocations - before.allocations == 0);
  CHECK(::locks - before.locks == 0);
  CHECK(::system_calls - before.system_calls == 0);
  CHECK(pool - before.pool == 0);
}

}  // namespace

TEST_CASE("small calls: the counters count", "[small_calls]") {
#if ONEPASS_COUNTS
  static_cast<void>(memory_stats());  // the first call initializes its counters
  const Counts before;
  void* volatile const memory = std::malloc(10);
  std::free(memory);
  const std::int64_t two = ::allocations - before.allocations;
  CHECK(two == 2);
  auto f = compile([](Tensor x) { return x + x; });
  const Array x = Array::full({16}, 1.0, f32);
  f(x);  // recorded, planned, compiled
  CHECK(::allocations - before.allocations > 10);
  CHECK(::locks - before.locks > 0);
#endif
}

TEST_CASE("small calls: warm calls into existing arrays and bound calls do nothing except run kernels", "[small_calls]") {
  if (!test::has_codegen()) return;
  Options options;
  options.check_recording = false;  // debug builds record at each call by default
  auto affine = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; }, options);
  const Array x = Array::full({16}, 2.0, f32), w = Array::full({16}, 3.0, f32), b = Array::full({16}, 1.0, f32);
  Array y = Array::zeros({16}, f32);
  auto bound = affine.bind(y, x, w, b);
  check_nothing([&] { affine.into(y)(x, w, b); });
  check_nothing([&] { affine.into(y)(x, 3.0, b); });  // a number
  check_nothing([&] { bound(); });
  CHECK(y.at<float>({5}) == 7.0f);

  // A reduction and its consumer, in several kernels with intermediates, and several results, one of them discarded.
  auto several = compile(
      [](Tensor x) {
        Tensor centred = x - mean(x);
        return std::tuple{centred / sqrt(mean(centred * centred)), sum(x), max(x)};
      },
      options);
  Array total = Array::zeros({}, f32);
  auto bound_several = several.bind(y, total, discard, x);
  check_nothing([&] { several.into(y, total, discard)(x); });
  check_nothing([&] { bound_several(); });
  CHECK(total.item<float>() == 32.0f);

  // In place, and through a temporary that a bound call keeps.
  auto twice = compile([](Tensor x) { return x + x; }, options);
  check_nothing([&] { twice.into(y)(y); });
  auto turned = compile([](Tensor x) { return x + flip(x); }, options);
  auto bound_turned = turned.bind(y, y);
  check_nothing([&] { bound_turned(); });
}

TEST_CASE("small calls: values computed from numbers allocate no memory either", "[small_calls]") {
  if (!test::has_codegen()) return;
  Options options;
  options.check_recording = false;
  auto step = compile(
      [](Tensor g, Tensor t, Tensor n) {
        Tensor m = 0.1 * g, v = 0.001 * g * g;
        return 0.001 * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.999, t))) + exp(-t)) + where(n < 3, n * n, n % 7) + sin(t * 1e9) +
               lgamma(-t);
      },
      options);
  const Array g = Array::full({64}, 0.5, f32);
  Array y = Array::zeros({64}, f32);
  double t = 1;
  int n = -2;
  check_nothing([&] { step.into(y)(g, t += 0.25, ++n); });

  const Formula f = formula("g*exp(-r*t) + a**2", options);
  const std::vector<Array> targets = {y};
  check_nothing([&] {
    const FormulaArgument in[] = {g, t += 0.25, 0.03, n};
    f.into(targets, in);
  });
  check_nothing([&] { f.into({{"out", y}}, {{"a", t += 0.25}, {"g", g}, {"t", 2.0}, {"r", 0.03}}); });
  CHECK(f.stats().recordings == 2);  // `a` as an integer, and as a float
}

TEST_CASE("small calls: a bound call equals the ordinary call", "[small_calls]") {
  auto affine = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; });
  Array x = Array::full({16}, 2.0, f32), w = Array::full({16}, 3.0, f32), y = Array::zeros({16}, f32);
  auto make = [&] {
    Array gone = Array::full({16}, 10.0, f32);
    return affine.bind(y, x, w, gone);  // the bound call keeps `gone` alive
  };
  auto call = make();
  CHECK(y.at<float>({0}) == 0);  // bind itself runs nothing
  call();
  CHECK(y.at<float>({0}) == 16);
  x.span<float>()[0] = 5;  // elements are read at each call
  for (int i = 0; i < 5; ++i) call();
  CHECK(y.at<float>({0}) == 25);
  CHECK(affine.stats().calls == 6);
  CHECK(last_optimized_graph() == affine.last_graph());
  Array wrong = Array::zeros({15}, f32);
  CHECK_THROWS_AS(affine.bind(wrong, x, w, w), ShapeError);
  // The optimized tier takes over in a bound call too. A bound call may outlive the function's other handles.
  if (test::has_codegen()) {
    runtime::wait_for_optimised();
    x.span<float>()[0] = 6;
    call();
    CHECK(y.at<float>({0}) == 28);
  }
  BoundCall kept = [&] {
    auto scaled = compile([](Tensor x, Static<int> n) { return x * static_cast<double>(n); });
    return scaled.bind(y, x, 3);
  }();
  kept();
  CHECK(y.at<float>({0}) == 18);
  // A destination that overlaps an argument in another order: each call uses its temporary.
  auto turned = compile([](Tensor x) { return x + flip(x); });
  Array z = Array::from({1.0f, 2.0f, 3.0f, 4.0f});
  auto in_place = turned.bind(z, z);
  in_place();
  CHECK(z.to_vector<float>() == std::vector<float>{5, 5, 5, 5});
  in_place();
  CHECK(z.to_vector<float>() == std::vector<float>{10, 10, 10, 10});
  CHECK(turned.stats().bytes_allocated >= 16);
}

TEST_CASE("small calls: threads with separate bound calls", "[small_calls]") {
  auto affine = compile([](Tensor x, Tensor w) { return x * w; });
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Array x = Array::full({16}, t, f32), w = Array::full({16}, 3.0, f32);
      Array y = Array::zeros({16}, f32);
      auto call = affine.bind(y, x, w);
      for (int i = 0; i < 500; ++i) {
        call();
        if (y.at<float>({3}) != 3.0f * static_cast<float>(t)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(affine.stats().calls == 2000);
}
