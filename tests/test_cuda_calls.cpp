// Host work of a call on a device, with the fake driver (fake_cuda): the number of driver calls and allocations of a warm call, and whether
// it waits.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "arrays.h"
#include "fake_cuda.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "replaced_new.h"
#include "runtime/background.h"

// Allocations of this thread; the fake driver has its own allocator.
namespace {
thread_local constinit std::int64_t allocations = 0;
}  // namespace

void* onepass::test::memory_of_new(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::StartsWith;

namespace {

const Device gpu = Device::cuda(0);

Options settled() {
  Options options;
  options.check_recording = false;   // debug builds record at each call by default
  options.specialization.depth = 0;  // trials create events
  return options;
}

struct Did {
  std::int64_t driver_calls, allocations;
};
// Returns the counts of the tenth call.
template <class F> Did warm(F&& call) {
  for (int i = 0; i < 9; ++i) call();
  const std::int64_t calls = fake_cuda().calls(), before = allocations;
  call();
  return {fake_cuda().calls() - calls, allocations - before};
}

constexpr std::int64_t kEnterLaunchLeave = 5;  // entering and leaving are two driver calls each

}  // namespace

TEST_CASE("a warm call on a device enters, launches and leaves, and allocates nothing", "[cuda]") {
  fake_cuda();
  const Array x = ramp({64}, 0.25).to(gpu), w = ramp({64}, 0.5).to(gpu);
  Array y = Array::empty({64}, f32, gpu);
  const auto affine = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; }, settled());
  const auto check = [](const Did& did) {
    CHECK(did.driver_calls == kEnterLaunchLeave);
    if (!has_sanitizer()) CHECK(did.allocations == 0);
  };
  check(warm([&] { affine.into(y)(x, w, x); }));
  check(warm([&] { affine.into(y)(x, w, 1.5); }));  // a number
  const auto bound = affine.bind(y, x, w, 1.5);
  check(warm([&] { bound(); }));
  CHECK(same_bits(y.to(Device::cpu()), affine(ramp({64}, 0.25), ramp({64}, 0.5), 1.5)));

  // Several kernels with an intermediate between them are one graph.
  const auto several = compile([](Tensor x) { return std::tuple{softmax(x, -1), sum(softmax(x, 0), 0)}; }, settled());
  const Array rows = ramp({70, 96}, 0.001), there = rows.to(gpu);
  Array p = Array::empty({70, 96}, f32, gpu), s = Array::empty({96}, f32, gpu);
  check(warm([&] { several.into(p, s)(there); }));
  const auto again = several.bind(p, s, there);
  check(warm([&] { again(); }));
  CHECK(device_stats(gpu).graph_launches > 0);
  const auto [q, r] = several(rows);
  CHECK((same_bits(p.to(Device::cpu()), q) && same_bits(s.to(Device::cpu()), r)));

  // One kernel in several launches: few long rows are split over the device.
  const auto total = compile([](Tensor x) { return sum(x * x); }, settled());
  const Array many = ramp({200'000}, 0.001), many_there = many.to(gpu);
  Array t = Array::empty({}, f32, gpu);
  check(warm([&] { total.into(t)(many_there); }));
  CHECK(same_bits(t.to(Device::cpu()), total(many)));
}

TEST_CASE("a fresh result on a device uses pool memory", "[cuda]") {
  fake_cuda();
  const Array x = ramp({64}, 0.25).to(gpu);
  const auto f = compile([](Tensor x) { return x * 2.0; }, settled());
  const Did did = warm([&] { f(x); });
  CHECK(did.driver_calls == 2 * kEnterLaunchLeave - 1);  // the call; entering and leaving for the memory
  if (!has_sanitizer()) CHECK(did.allocations <= 4);     // the array and the list of results
}

TEST_CASE("a call on another device has another plan, and its record has the reason", "[cuda]") {
  fake_cuda();
  const Array x = ramp({64}, 0.25);
  const auto f = compile([](Tensor x) { return x * 2; }, settled());
  f(x);
  f(x.to(gpu));
  const ExecutionRecord record = f.last_execution();
  CHECK(record.plan_reason == PlanReason::device);
  CHECK(record.plan_sentence.find("x0 is on another device") != std::string::npos);
  CHECK(record.device == "cuda:0");
}

TEST_CASE("kernel times of a device are recorded while profiling is on", "[cuda]") {
  fake_cuda();
  const auto several = compile([](Tensor x) { return sum(softmax(x, 0), 0) * sum(x); }, settled());
  const Array x = ramp({70, 96}, 0.001), there = x.to(gpu), expected = several(x);
  Array y = Array::empty({96}, f32, gpu);
  for (int i = 0; i < 3; ++i) several.into(y)(there);  // the third call is a graph launch
  const std::int64_t live = fake_cuda().live(), graphs = device_stats(gpu).graph_launches;
  CHECK(graphs > 0);
  ExecutionRecord record = several.last_execution();
  const std::size_t kernels = record.kernels.size();
  REQUIRE(kernels == 2);
  CHECK(record.kernels[0].times.runs == 0);
  CHECK(record.times_note.find("set_profiling(true)") != std::string::npos);
  CHECK(record.least_bytes >= x.bytes());
  CHECK((record.kernels[0].cache == CacheOutcome::compiled && record.kernels[0].compiles.size() == 1));
  CHECK((record.kernels[0].tier == "CUDA" && record.kernels[0].cache_sentence.starts_with("compiled in ")));

  set_profiling(true);
  clear_profile();
  fake_cuda().elapsed(0.5F, 2.0F);  // milliseconds between the events of each kernel
  for (int i = 0; i < 3; ++i) several.into(y)(there);
  CHECK(device_stats(gpu).graph_launches == graphs);
  set_profiling(false);
  several.into(y)(there);
  CHECK(device_stats(gpu).graph_launches == graphs + 1);
  record = several.last_execution();
  for (std::size_t k = 0; k < kernels; ++k) {
    CHECK(record.kernels[k].times.runs == 3);
    CHECK(record.kernels[k].times.mean_ns == (k == 0 ? 5e5 : 2e6));
    CHECK(record.kernels[k].gigabytes_per_second() > 0);
  }
  CHECK(record.copy_gigabytes_per_second == 0);  // this speed is a measure of the CPU
  CHECK(fake_cuda().live() == live);             // the events are destroyed
  CHECK(same_bits(y.to(Device::cpu()), expected));
  const std::vector<CallRecord> calls = recent_calls(10);
  CHECK((calls.size() == 3 && calls[0].kernel_ms.empty()));

  // Profiled calls do not wait: pending calls are timed while there is room for their events.
  set_profiling(true);
  for (int i = 0; i < 100; ++i) several.into(y)(there);
  set_profiling(false);
  record = several.last_execution();
  CHECK(record.kernels[0].times.runs > 3);
  CHECK(record.kernels[0].times.runs <= 103);
  CHECK(fake_cuda().live() == live);
  clear_profile();
}

TEST_CASE("calls with CPU arguments do not wait for earlier calls", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor w) { return x * w; }, settled());
  const Array x = ramp({64}, 0.25), w = ramp({64}, 0.5), there = x.to(gpu), expected = f(x, w);
  f(there, w);
  synchronize(gpu);
  const std::int64_t ran = fake_cuda().launched();
  std::vector<Array> results;
  for (int i = 0; i < 6; ++i) results.push_back(f(there, w));
  CHECK(fake_cuda().launched() == ran);
  for (const Array& y : results) CHECK(same_bits(y.to(Device::cpu()), expected));
}

TEST_CASE("calls with more arrays than launch parameters do not wait for earlier calls", "[cuda]") {
  fake_cuda();
  const auto f = compile([](const std::vector<Tensor>& xs) { return stack(xs, 0) * 2.0; }, settled());
  std::vector<Array> xs, there;
  for (int i = 0; i < 600; ++i) xs.push_back(ramp({16}, 0.25 + i)), there.push_back(xs.back().to(gpu));
  f(there);
  synchronize(gpu);
  const std::int64_t ran = fake_cuda().launched();
  std::vector<Array> results;
  for (int i = 0; i < 6; ++i) results.push_back(f(there));
  CHECK(fake_cuda().launched() == ran);
  const Array expected = f(xs);
  for (const Array& y : results) CHECK(same_bits(y.to(Device::cpu()), expected));
}

TEST_CASE("a call that indexes by data does not wait, and a bad index is an error of a later wait or call", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor i) { return take(x, i, 0); }, settled());
  const Array x = ramp({9, 6}, 0.25), good = Array::from({3, -1, 0, 8}, {4}), bad = Array::from({3, 9, 0, 8}, {4});
  const Array there = x.to(gpu), good_there = good.to(gpu), bad_there = bad.to(gpu), expected = f(x, good);
  Array y = Array::empty({4, 6}, f32, gpu);
  const Did did = warm([&] { f.into(y)(there, good_there); });
  CHECK(did.driver_calls == kEnterLaunchLeave);
  if (!has_sanitizer()) CHECK(did.allocations == 0);
  synchronize(gpu);

  const std::string error = "take: an earlier call on cuda:0 had the index 9, which is out of range: axis 0 has extent 9. The results of";
  const std::int64_t ran = fake_cuda().launched();
  const Array a = f(there, bad_there), b = f(there, good_there);
  CHECK(fake_cuda().launched() == ran);
  CHECK_THROWS_WITH(a.to(Device::cpu()), StartsWith(error));
  CHECK_NOTHROW(a.to(Device::cpu()));  // once
  CHECK(same_bits(b.to(Device::cpu()), expected));
  CHECK(same_bits(f(there, good_there).to(Device::cpu()), expected));

  f(there, bad_there), f(there, bad_there);  // one error for both
  CHECK_THROWS_WITH(synchronize(gpu), StartsWith(error));
  CHECK_NOTHROW(synchronize(gpu));

  // The next call reports it if the device has met it by then, and begins nothing.
  const auto g = compile([](Tensor x) { return x * 2.0; }, settled());
  g(there);
  f(there, bad_there);
  CHECK_NOTHROW(g(there));
  fake_cuda().function<int()>("fake_cuda_finish")();
  const std::int64_t waiting = fake_cuda().waiting();
  CHECK_THROWS_WITH(g(there), StartsWith(error));
  CHECK(fake_cuda().waiting() == waiting);
  CHECK_NOTHROW(g(there));

  // The error outlives the function.
  {
    const auto h = compile([](Tensor x, Tensor i) { return index_add(x, i, take(x, i, 0), 0); }, settled());
    h(there, bad_there);
  }
  CHECK_THROWS_WITH(synchronize(gpu), StartsWith("take or index_add: an earlier call on cuda:0 had the index 9,"));

  // Each error has its own memory until the device has finished all calls that know it.
  for (int i = 0; i < 300; ++i) {
    CHECK_NOTHROW(f(there, good_there));
    CHECK_NOTHROW(f(there, bad_there));
    CHECK_THROWS_WITH(y.to(Device::cpu()), StartsWith(error));
  }
  CHECK(same_bits(f(there, good_there).to(Device::cpu()), expected));
}

TEST_CASE("a call with results on the CPU reports its own bad index with the CPU's words", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor i) { return take(x, i, 0); }, settled());
  const Array x = ramp({9, 6}, 0.25), there = x.to(gpu), good = Array::from({3, -1, 0, 8}, {4}), bad = Array::from({3, 9, 0, 8}, {4});
  Array y = Array::empty({4, 6}, f32);
  std::string cpu;
  try {
    f(x, bad);
  } catch (const IndexError& error) { cpu = error.what(); }
  REQUIRE(!cpu.empty());
  CHECK_THROWS_WITH(f.into(y)(there, bad), cpu);
  CHECK_NOTHROW(synchronize(gpu));
  f.into(y)(there, good);
  CHECK(same_bits(y, f(x, good)));
  f(there, bad);  // the next call has good indices, and waits
  CHECK_THROWS_WITH(f.into(y)(there, good), StartsWith("take: an earlier call on cuda:0 had the index 9,"));
  f.into(y)(there, good);
  CHECK(same_bits(y, f(x, good)));
  Options checks = settled();
  checks.check_nan = true;
  const auto h = compile([](Tensor x, Tensor i) { return take(x, i, 0); }, checks);
  CHECK_THROWS_WITH(h(there, bad), StartsWith("take: the index 9 at [1] is out of range"));
  CHECK_NOTHROW(synchronize(gpu));
}

TEST_CASE("bad indices on several streams and threads are each reported once", "[cuda]") {
  fake_cuda();
  constexpr int kThreads = 4, kCalls = 20;
  const Array x = ramp({9, 6}, 0.25).to(gpu), good = Array::from({3, -1, 0, 8}, {4}).to(gpu);
  std::atomic<int> errors = 0, wrong = 0;
  const Array expected = compile([](Tensor x, Tensor i) { return take(x, i, 0); })(x, good).to(Device::cpu());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::optional<StreamScope> scope;
      if (t % 2) scope.emplace(gpu, nullptr);                                               // CUDA's default stream
      const auto f = compile([](Tensor x, Tensor i) { return take(x, i, 0); }, settled());  // each thread has a report
      const auto attempt = [&](auto&& call) {
        while (true) {
          try {
            return call();
          } catch (const IndexError&) {  // its own, or another thread's
            if (++errors > 10 * kThreads * kCalls) throw;
          }
        }
      };
      for (int i = 0; i < kCalls; ++i) {
        const Array bad = attempt([&] { return Array::from({3, 100 + t, 0, 8}, {4}).to(gpu); });
        attempt([&] { return f(x, bad); });
        attempt([&] { synchronize(gpu); });
        wrong += !same_bits(attempt([&] { return f(x, good).to(Device::cpu()); }), expected);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_NOTHROW(synchronize(gpu));
  CHECK(errors == kThreads * kCalls);
  CHECK(wrong == 0);
}

TEST_CASE("pending copies use pinned memory up to a limit, then wait for the first copy", "[cuda]") {
  fake_cuda();
  const auto f = compile([](Tensor x, Tensor w) { return x * w; }, settled());
  const Array x = ramp({700'000}, 0.25), there = x.to(gpu), narrow = ramp({64}, 0.5), narrow_there = narrow.to(gpu);
  std::vector<Array> results, narrow_results;
  for (int i = 0; i < 40; ++i) {  // each array fills most of a part
    Array w = ramp({700'000}, i);
    results.push_back(f(there, w));
    narrow_results.push_back(f(narrow_there, ramp({64}, i)));  // after it, in the same part
    w.span<float>()[0] = -1;
  }
  CHECK(fake_cuda().pinned() <= (std::int64_t{64} << 20) + (64 << 10));  // and the reports of bad indices
  CHECK(fake_cuda().waiting() > 0);
  for (int i = 0; i < 40; ++i) {
    const auto k = static_cast<std::size_t>(i);
    CHECK(same_bits(results[k].to(Device::cpu()), f(x, ramp({700'000}, i))));
    CHECK(same_bits(narrow_results[k].to(Device::cpu()), f(narrow, ramp({64}, i))));
  }
}
