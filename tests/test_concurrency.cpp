// Several threads use one function. Plans are inspected, warmed up, reset and sealed during calls; programs end while background jobs
// compile for them; released captures run their owner's code. The thread sanitizer checks all of these tests.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "arrays.h"
#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/background.h"
#include "runtime/kernel_cache.h"
#include "runtime/program.h"

namespace op = onepass;
using op::Array, op::Mode, op::Options, op::Tensor;
using op::test::ramp, op::test::same_bits;

namespace {

Options with(Mode mode, op::Specialization policy = {}) {
  Options o;
  o.mode = mode;
  o.specialization = policy;
  o.check_recording = false;
  return o;
}

// Threads that are joined at the end of the scope.
class Threads {
 public:
  template <class F> void add(F&& body) { all_.emplace_back(std::forward<F>(body)); }
  void join() {
    for (std::thread& thread : all_) thread.join();
    all_.clear();
  }
  ~Threads() { join(); }

 private:
  std::vector<std::thread> all_;
};

// Arguments of one structure, their expected result in mode reference, and the call's signature.
struct Case {
  Array x, b, expected;
  std::string signature;
};
const auto kNormalise = [](Tensor x, Tensor b) {
  const Tensor e = exp(x - max(x, -1, true));
  return e / sum(e, -1, true) * b + 0.5f;
};
std::vector<Case> cases(std::int64_t count) {
  const auto reference = op::compile(kNormalise, with(Mode::reference));
  std::vector<Case> all;
  for (std::int64_t n = 2; n < 2 + count; ++n) {
    Case c{ramp({n, 2 * n + 100}, 0.37), ramp({2 * n + 100}, 0.11), {}, fmt::format("f32[{},{}] f32[{}]", n, 2 * n + 100, 2 * n + 100)};
    c.expected = reference(c.x, c.b);
    all.push_back(std::move(c));
  }
  return all;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("concurrency: plans are inspected, warmed up and reset while others call new shapes", "[concurrency]") {
  if (!op::test::has_codegen()) return;
  const std::vector<Case> all = cases(24);
  for (const bool tiles : {true, false}) {
    op::runtime::set_tiles(tiles);
    const auto f = op::compile(kNormalise, with(Mode::adaptive, {.depth = 6, .after_calls = 2}));
    constexpr int kCallers = 2;
    const int calls = op::test::times(400, 10'000);
    std::atomic<int> wrong{0}, calling{kCallers};
    Threads threads;
    for (int t = 0; t < kCallers; ++t)
      threads.add([&, t] {
        for (int i = 0; i < calls; ++i) {
          // New shapes, some of them often enough to get shape-specialized kernels.
          const Case& c = all[static_cast<std::size_t>(i % 3 ? (i * 7 + t * 5) % 24 : i / 60 % 24)];
          Array y;
          if (i % 2) y = f(c.x, c.b);
          else f.into(y = Array::empty(op::Extents(c.x.shape()), op::f32))(c.x, c.b);
          if (!same_bits(y, c.expected)) ++wrong;
          if (i % 16 == 0 && !contains(op::last_optimized_graph(), "return")) ++wrong;
        }
        --calling;
      });
    threads.add([&] {
      while (calling > 0) {
        const std::string explained = f.explain(), graph = f.last_graph();
        if (!contains(explained, "no call yet") && !contains(explained, "stores %")) ++wrong;
        if (!graph.empty() && !contains(graph, "return")) ++wrong;
        if (f.stats().calls < 0) ++wrong;
      }
    });
    threads.add([&] {
      for (std::size_t k = 0; calling > 0; k = (k + 1) % all.size()) {
        const op::GraphView graph = f.graph(), recorded = f.recorded_graph();
        if (graph.outputs().size() > 1 || recorded.outputs().size() > 1) ++wrong;
        if (!f.compare(all[k].x, all[k].b)) ++wrong;
        for (const std::string& signature : f.signatures())
          if (!contains(signature, "f32[")) ++wrong;
      }
    });
    threads.add([&] {
      for (std::size_t k = 0; calling > 0; k = (k + 1) % all.size()) {
        f.warm_up({all[k].signature + (k % 2 ? " hot" : "")});
        if (k % 3 == 0) op::set_kernel_cache_limits(1, 1 << 20);  // evicts kernels while they run
        if (k % 3 == 1) op::set_kernel_cache_limits(4096, 256 << 20);
        if (k % 5 == 0) f.reset();
      }
    });
    threads.join();
    op::set_kernel_cache_limits(4096, 256 << 20);
    CHECK(wrong == 0);
    CHECK(f.stats().calls == kCallers * calls);  // calls of forgotten plans are counted exactly once
    op::runtime::wait_for_optimised();
    f.reset();
    CHECK(f.explain() == "no call yet\n");
    CHECK(f.stats().calls == kCallers * calls);
  }
  op::runtime::set_tiles(true);
}

TEST_CASE("concurrency: a function is sealed while other threads call it, read its options and take derivatives", "[concurrency]") {
  if (!op::test::has_codegen()) return;
  const Array x = ramp({7, 5}, 0.3), w = ramp({5}, 0.2);
  for (int round = 0; round < op::test::times(8, 100); ++round) {
    const auto f = op::compile([round](std::vector<Tensor> list, Tensor v) { return sum(tanh(list[0] * v) + static_cast<float>(round)); },
                               with(Mode::generic));
    const std::vector<Array> one{x};
    const Array expected = f(one, w);
    std::atomic<int> wrong{0}, refused{0};
    Threads threads;
    for (int t = 0; t < 2; ++t)
      threads.add([&, t] {
        for (int i = 0; i < 20; ++i) {
          if (!same_bits(f(one, w), expected)) ++wrong;
          if (f.options().mode != Mode::generic || f.options().compile != op::Compile::allowed) ++wrong;
          try {
            const std::vector<Array> longer(static_cast<std::size_t>(2 + i + 20 * t), x);  // a separate program
            if (!same_bits(f(longer, w), expected)) ++wrong;
            auto [y, pullback] = op::vjp(f, one, w);
            pullback(Array::scalar(1.0f));
            if (i == 3 && !op::check_gradients(f, one, w).ok) ++wrong;
          } catch (const op::Error& error) {
            if (!contains(error.what(), "sealed") && !contains(error.what(), "compile is never")) ++wrong;
            ++refused;
          }
        }
      });
    threads.add([&] {
      for (int i = 0; i < round % 4; ++i) std::this_thread::yield();
      f.seal();
    });
    threads.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("concurrency: more structures than the cache keeps, and pullbacks, on several threads", "[concurrency]") {
  const Array x = ramp({4}, 0.5);
  const auto f = op::compile(
      [](std::vector<Tensor> list, Tensor v) {
        Tensor y = v;
        for (const Tensor& t : list) y = y + t * v;
        return y;
      },
      with(Mode::reference));
  constexpr int kCallers = 2, kCalls = 400;  // the cache keeps 256
  std::atomic<int> wrong{0}, calling{kCallers};
  Threads threads;
  for (int t = 0; t < kCallers; ++t)
    threads.add([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const std::vector<Array> list(static_cast<std::size_t>(1 + (i + 150 * t) % 300 % 12), x);
        const std::vector<Array> other(static_cast<std::size_t>(i % 300), Array::scalar(0.0f));
        const float value = x.at<float>({1});
        float expected = value;
        for (std::size_t k = 0; k < list.size(); ++k) expected += value * value;
        if (f(list, x).at<float>({1}) != expected) ++wrong;
        if (i % 4 == t) f(other, x);
        if (i % 16 == 0) {
          auto [y, pullback] = op::vjp(f, list, x);
          try {
            auto [dlist, dv] = pullback(Array::ones({4}, op::f32));
            if (dlist.size() != list.size() || dlist[0].at<float>({1}) != value) ++wrong;
          } catch (const op::Error& error) {
            if (!contains(error.what(), "was reset")) ++wrong;
          }
        }
      }
      --calling;
    });
  threads.add([&] {
    while (calling > 0) {
      if (f.explain().empty() || f.stats().calls < 0) ++wrong;
      static_cast<void>(f.last_graph());
      static_cast<void>(f.signatures());
    }
  });
  threads.add([&] {
    while (calling > 0) {
      f.reset();
      std::this_thread::yield();
    }
  });
  threads.join();
  CHECK(wrong == 0);
}

TEST_CASE("concurrency: programs end while their kernels are optimized and specialized", "[concurrency]") {
  if (!op::test::has_codegen()) return;
  using op::runtime::Program, op::runtime::ProgramRecorder, op::runtime::Argument;
  using Values = std::span<const op::compiler::Value>;
  const Array x = ramp({50}, 0.4);
  std::atomic<int> wrong{0}, alive{0};
  op::set_compile_threads(2);
  Threads threads;
  for (int t = 0; t < 2; ++t)
    threads.add([&, t] {
      for (int round = 0; round < op::test::times(40, 1000); ++round) {
        ++alive;
        const std::shared_ptr<void> owner(&alive, [](void* count) { --*static_cast<std::atomic<int>*>(count); });
        std::vector<float> kept(50, 2);
        Program program(
            [&, weak = std::weak_ptr<void>(owner), data = kept.data()](ProgramRecorder& r, Values v) {
              op::compiler::Value y = r.mul(v[0], r.capture(Array::wrap(std::span<float>(data, 50), {50}, weak.lock())));
              for (int digit = 2 * round + t; digit > 0; digit /= 4)  // separate kernels
                y = r.elementwise(digit % 4 == 0 ? op::ir::Op::Neg : digit % 4 == 1 ? op::ir::Op::Abs : op::ir::Op::Tanh, {r.add(y, v[0])});
              r.output("out", r.add(y, y));
            },
            {}, with(Mode::adaptive, {.depth = 2, .after_calls = 1}));
        const Argument in[] = {{&x, {}}};
        const Array first = program.call(in)[0];
        for (int i = 0; i < round % 5; ++i)
          if (!same_bits(program.call(in)[0], first)) ++wrong;
        if (round % 3 == 0) program.reset();
        if (round % 7 == 0) program.seal();
      }
    });
  threads.join();
  op::runtime::wait_for_optimised();
  op::set_compile_threads(1);
  CHECK(wrong == 0);
  CHECK(alive == 0);
}

TEST_CASE("concurrency: a plan's captures are released without locks, and their owner's code may make calls", "[concurrency]") {
  using op::runtime::Program, op::runtime::ProgramRecorder, op::runtime::Argument;
  using Values = std::span<const op::compiler::Value>;
  std::vector<float> two(1, 2);
  std::atomic<int> made{0}, gone{0}, wrong{0};
  std::atomic<bool> may_call{true};
  const Array three = Array::full({3}, 3.0, op::f32);
  Program other([](ProgramRecorder& r, Values v) { r.output("out", r.add(v[0], v[0])); }, {}, with(Mode::reference));
  Program* self = nullptr;
  const auto released = [&](int* p) {
    delete p;
    ++gone;
    if (self->stats().calls < 0) ++wrong;
    if (!may_call) return;
    const Argument in[] = {{&three, {}}};
    if (other.call(in)[0].at<float>({0}) != 6) ++wrong;
  };
  {
    Program program(
        [&](ProgramRecorder& r, Values v) {
          ++made;
          const std::shared_ptr<int> owner(new int, released);
          r.output("out", r.mul(v[0], r.capture(Array::wrap(std::span<float>(two), {1}, owner))));
        },
        {}, with(Mode::reference));
    self = &program;
    Threads threads;
    for (int t = 0; t < 2; ++t)
      threads.add([&, t] {
        for (std::int64_t i = 0; i < 1500; ++i) {  // more than the plan cache keeps
          const Array x = Array::full({1 + (i + 700 * t) % 1500}, 3.0, op::f32);
          const Argument in[] = {{&x, {}}};
          if (program.call(in)[0].at<float>({0}) != 6) ++wrong;
        }
      });
    threads.join();
    CHECK(gone > 0);
    program.reset();
    may_call = false;
  }
  CHECK(wrong == 0);
  CHECK(gone == made);
}

TEST_CASE("concurrency: captures of a function's programs are released without locks", "[concurrency]") {
  std::vector<float> two(1, 2);
  std::atomic<int> made{0}, gone{0};
  std::function<void()> look;
  const auto f = op::compile(
      [&](std::vector<Tensor> list, Tensor v) {
        ++made;
        const std::shared_ptr<int> owner(new int, [&](int* p) {
          delete p;
          ++gone;
          if (look) look();
        });
        return list[0] * v * Array::wrap(std::span<float>(two), {1}, owner);
      },
      with(Mode::reference));
  look = [&] { CHECK(f.stats().calls > 0); };
  const Array x = ramp({4}, 0.5);
  for (std::size_t n = 1; n < 600; ++n) f(std::vector<Array>(n, x), x);  // separate programs, more than the cache keeps
  CHECK(gone > 0);
  const int before = gone;
  for (int i = 0; i < 3; ++i) {
    op::vjp(f, std::vector<Array>(2, x), x);
    f.reset();
    const Array shorter = x.slice(0, 0, 3 - i);
    f(std::vector<Array>(1, shorter), shorter);  // the thread's last call is replaced
  }
  CHECK(gone > before);
  look = nullptr;
}

// The library destroys its state of a thread before objects that were made earlier in the thread.
TEST_CASE("concurrency: destructors of a thread's objects may call functions", "[concurrency]") {
  struct Late {
    Late(const Array& x, Array& last) : x(x), last(last) {}
    Late(const Late&) = delete;
    Late& operator=(const Late&) = delete;
    ~Late() { last = f(x); }
    static Tensor program(Tensor x) { return exp(x) * 2 - sum(x); }
    decltype(op::compile(&program)) f = op::compile(&program);
    Array x;
    Array& last;
  };
  for (const std::int64_t n : {6, 1000}) {
    const Array x = Array::full({n}, 0.5, op::f32);
    Array first, last;
    std::thread([&] {
      thread_local Late late(x, last);
      first = late.f(late.x);
    }).join();
    CHECK(same_bits(first, last));
  }
}

TEST_CASE("concurrency: all background jobs are done, whoever adds them and waits for them", "[concurrency]") {
  namespace background = op::runtime::background;
  background::wait();
  std::atomic<int> done{0};
  constexpr int kGivers = 3;
  const int jobs = op::test::times(2000, 20'000);
  Threads threads;
  for (int t = 0; t < kGivers; ++t)
    threads.add([&, t] {
      for (int i = 0; i < jobs; ++i) {
        op::set_compile_threads(1 + (i + t) % 4);
        background::run([&] {
          background::run_late([&] { ++done; });
          ++done;
        });
        if (i % 8 == t) background::hurry();
        if (i % 32 == t) background::wait();
      }
    });
  threads.join();
  background::wait();
  op::set_compile_threads(1);
  CHECK(done == 2 * kGivers * jobs);
}
