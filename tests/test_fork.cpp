// Forks at any moment: while other threads record, plan, compile and run, and while the background thread is inside LLVM. The tests also
// exit at such moments.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "compiler/codegen.h"
#include "has_codegen.h"
#include "how_long.h"
#include "onepass/error.h"
#include "runtime/background.h"
#include "runtime/fork.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"
#include "runtime/program.h"

using namespace onepass;
using namespace onepass::runtime;
using compiler::Recorder;
using compiler::Value;
using Values = std::span<const Value>;

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer does not support threads started after a fork

namespace {

const bool compiles_first = (runtime::set_tiles(false), true);  // tests the compiler, not the tiled interpreter

// Returns a chain of operators that encodes `number`, so each number has a separate kernel.
Program::Record chain(std::uint64_t number, int length = 5) {
  return [number, length](Recorder& r, Values v) {
    static constexpr ir::Op kUnary[] = {ir::Op::Neg, ir::Op::Abs, ir::Op::Tanh, ir::Op::Sin};
    Value y = v[0];
    for (int i = 0; i < length; ++i) {
      const std::uint64_t digit = number >> (2 * (i % 32)) & 3;
      y = r.add(r.elementwise(kUnary[digit], {y}), v[0]);
    }
    r.output("out", y);
  };
}

Options generic() {
  Options o;
  o.mode = Mode::generic;
  return o;
}

float run(Program& program, const Array& x) {
  const Argument in[] = {{&x, {}}};
  return program.call(in)[0].at<float>({3});
}

// Forks and runs `body` in the child, which ends by _exit, with 42 for success. `body` must not use Catch2.
template <class F> pid_t in_child(F&& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(60);
  try {
    _exit(body() ? 42 : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    _exit(2);
  }
}
bool succeeded(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) UNSCOPED_INFO("status " << status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

}  // namespace

// This test must be the first, so that its child is the first process to open the kernel cache folder.
TEST_CASE("fork: pending background jobs are not done twice under the child's calls", "[fork]") {
  if (!test::has_codegen()) return;
  if (test::has_address_sanitizer()) {
    WARN("skipped: a fork may leave locks of the sanitizer's allocator held in the child");
    return;
  }
  const std::string folder = fmt::format("{}/onepass-fork-{}", std::filesystem::temp_directory_path().string(), getpid());
  const pid_t parent = in_child([&] {
    setenv("ONEPASS_CACHE_DIR", folder.c_str(), 1);  // storing the kernel keeps the background thread in its job
    const Array x = Array::full({64}, 0.25, f32);
    for (int round = 0; round < 12; ++round) {
      Program program(chain(0x5EED00 + static_cast<std::uint64_t>(round), 12), {}, generic());
      const float expected = run(program, x);
      run(program, x);
      background::hurry();
      while (program.stats().optimised == 0) std::this_thread::yield();
      const pid_t child = in_child([&] {
        std::atomic<bool> stop{false};
        std::atomic<int> wrong{0};
        std::thread caller([&] {
          while (!stop) wrong += run(program, x) != expected;
        });
        wait_for_optimised();
        stop = true;
        caller.join();
        return program.stats().optimised == 1 && wrong == 0;
      });
      if (!succeeded(child)) return false;
    }
    return true;
  });
  CHECK(succeeded(parent));
  std::filesystem::remove_all(folder);
}

// This test is here because its child inherits no pending jobs.
TEST_CASE("fork: late jobs that have not started are done at exit", "[fork]") {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    static std::atomic<bool> begun{false}, leaving{false};
    background::run_late([] {
      begun = true;
      while (compiler::outlives_exit() || !leaving) usleep(1000);  // otherwise the exit waits for this job
    });
    background::run_late([] { _exit(42); });
    background::run([] {});  // starts the thread, which takes both jobs
    while (!begun) std::this_thread::yield();
    leaving = true;
    std::exit(1);
  }
  CHECK(succeeded(child));
}

TEST_CASE("fork: a child calls compiled functions and compiles more, whatever other threads do", "[fork]") {
  if (!test::has_codegen()) return;
  if (test::has_sanitizer()) {
    WARN("skipped: a fork may leave locks of the sanitizer's allocator held in the child");
    return;
  }
  const Array x = Array::full({64}, 0.25, f32);
  Program known(chain(0), {}, generic());
  const float expected = run(known, x);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> number{1};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {  // records, plans, compiles; after two runs the background thread uses LLVM as well
    while (!stop) {
      Program fresh(chain(number++), {}, generic());
      for (int i = 0; i < 3; ++i) run(fresh, x);
    }
  });
  busy.emplace_back([&] {  // warm calls, and new signatures of one program
    for (std::int64_t n = 0; !stop; ++n) {
      run(known, x);
      const Array other = Array::zeros({10 + n % 3000}, f32);
      run(known, other);
    }
  });
  const int rounds = onepass::test::is_full_run() ? 300 : 3;
  for (int round = 0; round < rounds; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(round * 37 % 1000));
    const pid_t child = in_child([&] {
      if (run(known, x) != expected) return false;
      Program fresh(chain(0xABCDEF012345 + static_cast<std::uint64_t>(round)), {}, generic()), again(chain(number), {}, generic());
      Options judge;
      judge.mode = Mode::reference;
      Program reference(chain(0xABCDEF012345 + static_cast<std::uint64_t>(round)), {}, judge);
      for (int i = 0; i < 3; ++i)
        if (run(fresh, x) != run(reference, x)) return false;
      run(again, x);
      return fork_generation() == 1;
    });
    CHECK(succeeded(child));
  }
  stop = true;
  for (std::thread& t : busy) t.join();
  CHECK(run(known, x) == expected);
  CHECK(fork_generation() == 0);
}

TEST_CASE("fork: a recording thread blocks no fork, and the child may call the function", "[fork]") {
  const Array x = Array::full({64}, 0.25, f32);
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  Options options;
  options.mode = Mode::reference;
  Program program(
      [&](Recorder& r, Values v) {
        if (inside++ == 0)
          while (!stop) std::this_thread::yield();
        r.output("out", r.add(v[0], v[0]));
      },
      {}, options);
  std::thread recording([&] { run(program, x); });
  while (inside == 0) std::this_thread::yield();
  const pid_t child = in_child([&] { return run(program, x) == 0.5f; });
  CHECK(succeeded(child));
  CHECK(run(program, x) == 0.5f);  // also in the parent: no thread waits for another thread's recording
  stop = true;
  recording.join();
}

TEST_CASE("fork: forks and protected sections wait for each other, and sections nest", "[fork]") {
  std::atomic<bool> in{false}, forked{false};
  std::atomic<bool> too_early{false};
  std::thread holder([&] {
    const ForkWaits outer;
    in = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const ForkWaits inner;  // even if a fork is pending
    too_early = forked.load();
  });
  while (!in) std::this_thread::yield();
  const pid_t child = in_child([] {
    const ForkWaits free;
    return true;
  });
  forked = true;
  CHECK(succeeded(child));
  holder.join();
  CHECK_FALSE(too_early);
}

TEST_CASE("fork: a process exits while a kernel is being compiled in the background", "[fork]") {
  if (!test::has_codegen()) return;
  for (int round = 0; round < 4; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const Array x = Array::full({64}, 0.25, f32);
      auto* const program = new Program(chain(77 + static_cast<std::uint64_t>(round), 10), {}, generic());
      run(*program, x);
      run(*program, x);
      usleep(static_cast<useconds_t>(round) * 1000);
      std::quick_exit(42);
    }
    CHECK(succeeded(child));
  }
}

#endif
