// The thread pool: every range runs once, nested and concurrent calls, late workers, fork, executors, idle workers.
#include "runtime/threads.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/os.h"

namespace threads = onepass::threads;
using threads::parallel_for;

namespace {
void sleep_milliseconds(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }
}  // namespace

// This test must be the first, while no workers exist, because it tests their start.
TEST_CASE("threads: workers start under default floating-point control and call the host's hook", "[threads]") {
  namespace os = onepass::os;
  static std::atomic<int> started{0};
  onepass::set_worker_start([](int worker) { started += worker; });
  const auto host = os::floating_point_control();
#if defined(__x86_64__)
  os::set_floating_point_control(host | 0x8040);  // flush subnormals: a new thread would inherit the setting
#else
  os::set_floating_point_control(host | 1u << 24);
#endif
  std::atomic<int> arrived{0}, different{0};
  parallel_for(3, 3, [&](std::int64_t, std::int64_t, int) {
    if (os::floating_point_control() != os::default_floating_point_control()) ++different;
    ++arrived;
    while (arrived < 3) std::this_thread::yield();  // so that three threads take part
  });
  os::set_floating_point_control(host);
  onepass::set_worker_start(nullptr);
  CHECK(different == 1);    // the caller; its control word is not changed
  CHECK(started == 1 + 2);  // the workers' numbers
}

TEST_CASE("threads: every task runs once, in the same contiguous ranges each time", "[threads]") {
  for (const int count : {1, 2, 3, 7, 16})
    for (const std::int64_t items : {0, 1, 2, 3, 6, 7, 100, 101}) {
      CAPTURE(count, items);
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(items));
      std::vector<std::atomic<std::int64_t>> begins(16);
      for (auto& begin : begins) begin = -1;
      std::atomic<int> shares{0};
      parallel_for(items, count, [&](std::int64_t begin, std::int64_t end, int share) {
        ++shares;
        begins[static_cast<std::size_t>(share)] = begin;
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      CHECK(shares == std::min<std::int64_t>(count, items));
      for (const auto& visit : visits) CHECK(visit == 1);
      for (int share = 0; share < shares; ++share)
        CHECK(begins[static_cast<std::size_t>(share)] == threads::share_begin(items, shares, share));
    }
  CHECK(threads::share_begin(INT64_MAX, 7, 7) == INT64_MAX);
  CHECK(threads::share_begin(10, 3, 1) == 4);
  CHECK(threads::share_begin(10, 3, 2) == 7);
}

TEST_CASE("threads: results of workers are visible, for many short loops", "[threads]") {
  std::vector<int> values(64);
  for (int round = 1; round <= 5000; ++round) {
    parallel_for(64, 1 + round % 4, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = round;
    });
    for (const int value : values)
      if (value != round) FAIL("a share was not done, or not seen: round " << round);
  }
}

TEST_CASE("threads: loops run on several threads at once", "[threads]") {
  // Two ranges that wait for each other finish only if two threads run them.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (attempt == 1) sleep_milliseconds(5);  // the worker sleeps by now
    std::atomic<int> arrived{0};
    std::atomic<bool> met{true};
    parallel_for(2, 2, [&](std::int64_t, std::int64_t, int) {
      ++arrived;
      const auto until = onepass::os::nanoseconds() + 5'000'000'000;
      while (arrived < 2)
        if (onepass::os::nanoseconds() > until) {
          met = false;
          break;
        }
    });
    CHECK(met);
  }
}

TEST_CASE("threads: a caller waits for a running range", "[threads]") {
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  parallel_for(2, 2, [&](std::int64_t, std::int64_t, int share) {
    if (share == 1) {
      begun = true;
      sleep_milliseconds(30);  // long enough that the caller sleeps too
      done = true;
    } else {
      while (!begun) std::this_thread::yield();
    }
  });
  CHECK(done);
}

TEST_CASE("threads: nested loops run every range on the calling thread", "[threads]") {
  std::atomic<int> inner{0};
  std::atomic<bool> same_thread{true};
  parallel_for(4, 4, [&](std::int64_t, std::int64_t, int) {
    const auto outer_thread = std::this_thread::get_id();
    int next = 0;
    parallel_for(10, 3, [&](std::int64_t begin, std::int64_t end, int share) {
      if (std::this_thread::get_id() != outer_thread || share != next++) same_thread = false;
      inner += static_cast<int>(end - begin);
    });
  });
  CHECK(inner == 40);
  CHECK(same_thread);
}

TEST_CASE("threads: several callers at once", "[threads]") {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) parallel_for(100, 3, [&](std::int64_t begin, std::int64_t end, int) { sum += end - begin; });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(sum == 4 * 500 * 100);
}

TEST_CASE("threads: more threads than cores, and more than the pool's maximum", "[threads]") {
  std::atomic<int> shares{0};
  parallel_for(10'000, 64, [&](std::int64_t, std::int64_t, int) { ++shares; });
  CHECK(shares == 64);
  shares = 0;
  parallel_for(10'000, 100'000, [&](std::int64_t, std::int64_t, int) { ++shares; });
  CHECK(shares == threads::kMaxThreads);
  shares = 0;
  parallel_for(10, -3, [&](std::int64_t, std::int64_t, int) { ++shares; });
  CHECK(shares == 1);
}

TEST_CASE("threads: idle workers use no CPU time", "[threads]") {
  parallel_for(8, 8, [](std::int64_t, std::int64_t, int) {});
  sleep_milliseconds(20);
  const auto used = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000.0 +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000.0;
  };
  const double before = used();
  sleep_milliseconds(200);
  CHECK(used() - before < 20);  // milliseconds
}

TEST_CASE("threads: the thread count comes from the scope, the process or the cores", "[threads]") {
  const int cores = threads::count();
  CHECK(cores >= 1);
  CHECK(cores <= onepass::os::usable_cores());
  onepass::set_threads(5);
  CHECK(threads::count() == 5);
  {
    const onepass::ThreadScope scope(2);
    CHECK(threads::count() == 2);
    const onepass::ThreadScope unchanged(0);
    CHECK(threads::count() == 2);
    std::thread([] { CHECK(threads::count() == 5); }).join();
  }
  CHECK(threads::count() == 5);
  onepass::set_threads(0);
  CHECK(threads::count() == cores);
  CHECK_THROWS_WITH(onepass::set_threads(-1), Catch::Matchers::Contains("1 to 256"));
  CHECK_THROWS_AS(onepass::ThreadScope(1000), onepass::ValueError);
}

TEST_CASE("threads: a host's executor runs the ranges", "[threads]") {
  static std::atomic<int> calls{0};
  onepass::set_executor([](int count, onepass::Shares shares) {
    ++calls;
    std::vector<std::thread> own;
    for (int i = count; i-- > 0;) own.emplace_back(shares, i);
    for (std::thread& thread : own) thread.join();
  });
  std::atomic<int> items{0}, nested{0};
  parallel_for(100, 4, [&](std::int64_t begin, std::int64_t end, int) {
    items += static_cast<int>(end - begin);
    parallel_for(10, 2, [&](std::int64_t b, std::int64_t e, int) { nested += static_cast<int>(e - b); });
  });
  CHECK(calls == 1);
  CHECK(items == 100);
  CHECK(nested == 40);
  onepass::set_executor(nullptr);
  parallel_for(100, 4, [&](std::int64_t begin, std::int64_t end, int) { items += static_cast<int>(end - begin); });
  CHECK(calls == 1);
  CHECK(items == 200);
}

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer does not support threads started after a fork
TEST_CASE("threads: a forked child starts its own workers", "[threads]") {
  parallel_for(4, 4, [](std::int64_t, std::int64_t, int) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::atomic<int> sum{0};
    for (int i = 0; i < 100; ++i)
      parallel_for(10, 4, [&](std::int64_t begin, std::int64_t end, int) { sum += static_cast<int>(end - begin); });
    // Two ranges that wait for each other finish only if the child has its own worker.
    std::atomic<int> arrived{0};
    parallel_for(2, 2, [&](std::int64_t, std::int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    _exit(sum == 1000 ? 42 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}
#endif
