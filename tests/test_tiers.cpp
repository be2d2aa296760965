// Kernels in tiers: baseline code runs first, optimized code replaces it in the background, and no bit changes.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"

using namespace onepass;

namespace {

// A graph of one fusion group, with its kernel from the process's cache.
struct OneKernel {
  ir::Graph graph;
  compiler::Planned planned;
  compiler::Scheduled scheduled;
  std::shared_ptr<const runtime::Kernel> kernel;
  bool compiled = false;

  explicit OneKernel(const char* text) : graph(ir::parse_graph(text)) {
    const compiler::Partition partition = compiler::fuse(graph);
    REQUIRE(partition.groups.size() == 1);
    const std::vector<compiler::Layout> layouts(graph.size());
    planned = compiler::plan(graph, partition, 0, layouts).at(0);
    const compiler::Target& target = compiler::Target::host();
    scheduled = compiler::schedule(planned.nest, planned.numbers, target);
    const runtime::KernelRequest request{runtime::kernel_key(planned.nest, scheduled.schedule, target),
                                         {.nest = &planned.nest, .schedule = &scheduled.schedule, .target = &target}};
    const auto found = runtime::find_or_compile(std::span(&request, 1), 1);
    kernel = found[0].kernel;
    compiled = found[0].compiled;
  }

  // Runs the kernel function; buffers are in the order of the nest.
  void run(compiler::KernelFunction function, const std::vector<std::byte*>& buffers) const {
    std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, scheduled.numbers);
    const compiler::WordLayout layout(planned.nest);
    for (std::uint32_t a = 0; a < planned.nest.accesses.size(); ++a)
      words[layout.pointers + a] = reinterpret_cast<std::int64_t>(buffers[planned.nest.accesses[a].buffer]) +
                                   compiler::byte_offset(planned.nest, planned.numbers, a);
    std::vector<std::byte> scratch(static_cast<std::size_t>(scheduled.numbers.scratch_bytes) + 64);
    const auto at = (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64;
    function(words.data(), 0, scheduled.numbers.items, reinterpret_cast<void*>(at));
  }
};

}  // namespace

TEST_CASE("tiers: optimized code takes over after two runs and gives the same bits", "[tiers]") {
  const OneKernel one(R"(
    %0 = input x : f32[40, 777]
    %1 = reduce_max %0 {1} : f32[40]
    %2 = reshape %1 : f32[40, 1]
    %3 = broadcast %2 : f32[40, 777]
    %4 = sub %0, %3 : f32[40, 777]
    %5 = exp %4 : f32[40, 777]
    %6 = reduce_sum %5 {1} : f32[40]
    return e = %5, s = %6)");
  CHECK(one.compiled);
  const test::Arguments arguments = test::random_arguments(one.graph, 3);
  const std::vector<ir::Buffer> expected = ir::evaluate(one.graph, arguments.views);
  std::vector<compiler::KernelFunction> functions;
  for (int run = 0; run < 4; ++run) {
    if (run == 3) runtime::wait_for_optimised();
    functions.push_back(one.kernel->code_to_run().compiled());
    one.kernel->before_run(true, 1);
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> buffers;
    std::vector<ir::Buffer> got;
    for (std::size_t b = 0; b < one.planned.nest.buffers.size(); ++b) {
      const ir::NodeId node = one.planned.numbers.buffers[b];
      if (!one.planned.nest.buffers[b].written) {
        buffers.push_back(static_cast<std::byte*>(const_cast<void*>(arguments.views[one.graph[node].bits].data)));
      } else {
        memory.emplace_back(static_cast<std::size_t>(one.graph.elements(node)) * size_of(one.graph[node].dtype));
        buffers.push_back(memory.back().data());
      }
    }
    one.run(functions.back(), buffers);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ir::Buffer b{expected[k].dtype, expected[k].shape, memory[k]};
      std::string what;
      CHECK(test::equals_bitwise(b, expected[k], &what));
      INFO(what);
    }
  }
  CHECK(functions[3] != functions[0]);
  CHECK(one.kernel->is_settled());
}

TEST_CASE("tiers: a known kernel is found, not compiled again", "[tiers]") {
  const OneKernel one("%0 = input x : f64[9]\n%1 = tanh %0 : f64[9]\n%2 = sub %1, %0 : f64[9]\nreturn y = %2");
  CHECK(one.compiled);
  const OneKernel again("%0 = input x : f64[9]\n%1 = tanh %0 : f64[9]\n%2 = sub %1, %0 : f64[9]\nreturn y = %2");
  CHECK_FALSE(again.compiled);
  CHECK(again.kernel == one.kernel);
}

// ----------------------------------------------------------------------------------------- the tier policy, on a simulated machine

namespace {

using runtime::TierAccount, runtime::TierChoice, runtime::TierCosts;

// Simulated machine with one kernel. The policy's estimates differ from the true durations.
struct Simulation {
  double tiles = 0, quick = 0, optimised = 0, compile_quick = 0, compile_optimised = 0;  // true durations
  double wrong[5] = {1, 1, 1, 1, 1};  // estimate divided by truth, for each of these durations
  bool has_thread = true;             // true if a thread compiles in the background
  int threads = 1;                    // threads of a run
  double fewer = 1;                   // duration of a slow run with one thread fewer, as a multiple; 1 to threads / (threads - 1)
  double idle_share = 1;              // processor share of a thread at idle priority; 0 on a busy machine
  double hurry_share = 1;             // share of the thread at normal priority, in competition with all threads of the calls
  double yield_share = 1;             // share of the thread if calls leave one processor to it
  double busy_share = 1;              // share of the thread while the call waits for the compile; the largest share
  std::mt19937* random = nullptr;     // if set, each call draws its shares between 0 and the shares above

  struct Outcome {
    // Durations of all calls, of the optimized compile if it is waited for from its start, and of the first run.
    double total = 0, compile = 0, first = 0;
    bool waited = false, yielded = false;
  };

  Outcome run(int calls) const {
    const TierCosts costs{tiles > 0 ? tiles * wrong[0] : TierCosts::kNever, quick * wrong[1], optimised * wrong[2],
                          compile_quick * wrong[3], compile_optimised * wrong[4]};
    TierAccount account(costs.compile_optimised);
    Outcome out;
    out.compile = compile_optimised / busy_share;
    double done = 0;                     // finished part of the compile, in processor time
    double share = 0;                    // current processor share of the compile thread
    bool queued = false, hurry = false;  // the compile thread has the compile; it runs at normal priority
    const auto pass = [&](double time) {
      out.total += time;
      done += share * time;
    };
    const TierChoice first = TierAccount::first(costs, 0);
    double slow = 0;
    switch (first) {
      case TierChoice::Tiles: slow = tiles; break;
      case TierChoice::Quick: pass(compile_quick / busy_share), account.add(static_cast<std::int64_t>(compile_quick)), slow = quick; break;
      case TierChoice::Optimised: pass(out.compile), done = compile_optimised; break;
    }
    const double longer = has_thread && threads > 1 ? 1.0 / (threads - 1) : std::numeric_limits<double>::infinity();
    for (int call = 0; call < calls; ++call) {
      double time = optimised;
      if (done < compile_optimised) {
        time = slow;
        const TierAccount::Due due = account.before_run(longer, [&] { return static_cast<std::int64_t>(done); });
        queued |= due != TierAccount::Due::Nothing && has_thread;
        hurry |= due != TierAccount::Due::Nothing && due != TierAccount::Due::InBackground;
        share = !queued ? 0 : due == TierAccount::Due::Yield ? yield_share : hurry ? hurry_share : idle_share;
        if (random) share *= static_cast<double>((*random)()) * 0x1p-32;
        if (due == TierAccount::Due::Yield) time *= fewer, out.yielded = true;
        if (due == TierAccount::Due::Wait) {
          share = busy_share;
          pass((compile_optimised - done) / busy_share);
          done = compile_optimised;
          time = optimised;
          out.waited = true;
        } else {
          account.ran(static_cast<std::int64_t>(time));
        }
      }
      if (call == 0) out.first = time;
      pass(time);
    }
    return out;
  }
};

Simulation random_simulation(std::mt19937& random) {
  const auto log_uniform = [&](double low, double high) { return low * std::pow(high / low, static_cast<double>(random()) * 0x1p-32); };
  Simulation s;
  s.optimised = log_uniform(50, 1e9);
  s.quick = s.optimised * log_uniform(1, 50);
  s.tiles = random() % 3 ? s.optimised * log_uniform(1, 8) : 0;
  s.compile_optimised = log_uniform(3e6, 3e8);
  s.compile_quick = s.compile_optimised * log_uniform(0.05, 0.6);
  for (double& w : s.wrong) w = random() % 2 ? log_uniform(0.25, 4) : 1;
  s.has_thread = random() % 4 != 0;
  s.threads = static_cast<int>(1 + random() % 4);
  if (s.threads > 1) s.fewer = log_uniform(1, s.threads / (s.threads - 1.0));
  s.busy_share = random() % 2 ? 1 : log_uniform(0.2, 1);
  s.idle_share = random() % 2 ? 0 : s.busy_share;
  s.yield_share = random() % 2 ? s.busy_share : s.busy_share * log_uniform(0.01, 1);
  s.hurry_share = random() % 2 ? s.yield_share : s.yield_share * log_uniform(0.01, 1);
  if (random() % 2) s.random = &random;
  return s;
}

}  // namespace

TEST_CASE("tiers: n calls take at most the time of n settled calls and three compiles, for any estimates and load", "[tiers]") {
  std::mt19937 random(20);
  int begins[3] = {}, tight = 0, yielded = 0, waited = 0;
  for (int round = 0; round < 40'000; ++round) {
    Simulation s = random_simulation(random);
    const int calls = static_cast<int>(std::pow(1e4, static_cast<double>(random()) * 0x1p-32));
    const Simulation::Outcome out = s.run(calls);
    // One run uses the tier that the estimates chose, before any duration is known.
    const double first = std::max(out.first - s.optimised, 0.0);
    const double limit = calls * s.optimised + 3 * out.compile + first;
    INFO("round " << round << ", " << calls << " calls of " << s.optimised << ", " << s.quick << ", " << s.tiles << "; compile "
                  << out.compile << "; " << s.threads << " threads, " << s.fewer);
    REQUIRE(out.total <= limit * 1.0001);
    tight += out.total > calls * s.optimised + out.compile;
    yielded += out.yielded;
    waited += out.waited;
    const TierCosts exact{s.tiles > 0 ? s.tiles : TierCosts::kNever, s.quick, s.optimised, s.compile_quick, s.compile_optimised};
    ++begins[static_cast<int>(TierAccount::first(exact, 0))];
    // With correct estimates the first call is the cheapest possible, and the sum stays within two compiles.
    std::fill(std::begin(s.wrong), std::end(s.wrong), 1.0);
    s.busy_share = 1;
    const Simulation::Outcome known = s.run(calls);
    REQUIRE(known.total <= (calls * s.optimised + 2 * known.compile + known.first) * 1.0001);
  }
  for (const int n : begins) CHECK(n > 500);  // each tier is often the first
  CHECK(tight > 500);
  CHECK(yielded > 500);
  CHECK(waited > 500);
}

TEST_CASE("tiers: calls do not wait for a compile that has a processor", "[tiers]") {
  std::mt19937 random(21);
  int yielded = 0;
  for (int round = 0; round < 10'000; ++round) {
    Simulation s = random_simulation(random);
    std::fill(std::begin(s.wrong), std::end(s.wrong), 1.0);
    s.random = nullptr;
    s.has_thread = true;
    s.threads = static_cast<int>(2 + random() % 3);
    s.fewer = s.threads / (s.threads - 1.0);
    s.idle_share = s.hurry_share = 0;
    s.yield_share = s.busy_share = 1;
    const double slow = s.tiles > 0 ? std::max(s.tiles, s.quick) : s.quick;
    if (slow > s.compile_optimised / 20) continue;
    const Simulation::Outcome out = s.run(10'000);
    INFO("round " << round << ": " << s.optimised << ", " << s.quick << ", " << s.tiles << "; compile " << out.compile);
    // Only the baseline compile may cost as much as the wait.
    if (TierAccount::first({s.tiles > 0 ? s.tiles : TierCosts::kNever, s.quick, s.optimised, s.compile_quick, s.compile_optimised}, 0) ==
        TierChoice::Tiles)
      CHECK_FALSE(out.waited);
    yielded += out.yielded;
    REQUIRE(out.total <=
            10'000 * s.optimised + (1 + std::max(TierAccount::kHurry, s.compile_quick / s.compile_optimised)) * out.compile + 4 * slow);
  }
  CHECK(yielded > 1000);
}

TEST_CASE("tiers: runs leave one processor to the compile if they would use all of them", "[tiers]") {
  const auto due = [](double longer, std::int64_t spent, std::int64_t got) {
    TierAccount account(1000);
    account.before_run(longer, [] { return std::int64_t{0}; });
    account.ran(spent);
    return account.before_run(longer, [&] { return got; });
  };
  using Due = TierAccount::Due;
  const double alone = std::numeric_limits<double>::infinity();
  CHECK(due(0.1, 240, 0) == Due::InBackground);
  CHECK(due(0.1, 260, 0) == Due::Yield);
  CHECK(due(alone, 260, 0) == Due::Hurry);  // no thread to spare
  CHECK(due(1.0, 260, 0) == Due::Hurry);    // with two threads, one thread fewer would cost too much
  CHECK(due(0.1, 490, 100) == Due::Yield);
  CHECK(due(0.1, 510, 0) == Due::Wait);
  CHECK(due(alone, 510, 0) == Due::Wait);
  CHECK(due(0.1, 800, 400) == Due::Yield);  // the compile got half of a processor
  CHECK(due(0.1, 910, 400) == Due::Wait);
  CHECK(due(alone, 890, 400) == Due::Hurry);
}

TEST_CASE("tiers: the first tier minimizes the time of the first call", "[tiers]") {
  CHECK(TierAccount::first({100, 50, 20, 3e6, 9e6}, 0) == TierChoice::Tiles);
  CHECK(TierAccount::first({1e9, 5e7, 2e7, 3e6, 9e6}, 0) == TierChoice::Optimised);
  CHECK(TierAccount::first({1e9, 6e6, 1e6, 1e6, 8e6}, 0) == TierChoice::Optimised);  // there may be more runs
  CHECK(TierAccount::first({TierCosts::kNever, 50, 20, 3e6, 9e6}, 0) == TierChoice::Quick);
  CHECK(TierAccount::first({TierCosts::kNever, 5e7, 2e7, 3e6, 9e6}, 0, true) == TierChoice::Optimised);
  CHECK(TierAccount::first({TierCosts::kNever, 50, 20, 3e6, 9e6}, 0, true) == TierChoice::Quick);
  CHECK(TierAccount::first({100, 50, 20, 3e6, 9e6}, 5'000'000) == TierChoice::Optimised);  // earlier processes have lost as much
}

TEST_CASE("tiers: time lost by a call makes the next one wait for optimized code, without any compile thread", "[tiers]") {
  set_compile_threads(0);
  const OneKernel one("%0 = input x : f32[3, 1000]\n%1 = reduce_sum %0 {1} : f32[3]\n%2 = exp %1 : f32[3]\nreturn y = %2");
  CHECK_FALSE(one.kernel->is_settled());
  REQUIRE(one.kernel->code_to_run().slow() == one.kernel.get());
  one.kernel->ran_slowly(one.kernel->account().compile(), 0);
  one.kernel->before_run(false, 1);  // for a call that must not wait
  CHECK_FALSE(one.kernel->is_settled());
  one.kernel->before_run(true, 1);
  CHECK(one.kernel->is_settled());
  CHECK(one.kernel->code_to_run().slow() == nullptr);
  set_compile_threads(1);
}

TEST_CASE("tiers: the log reports recordings, compiles, optimizations and trials with their times", "[tiers]") {
  static std::string said;
  static std::mutex lock;
  said.clear();
  set_log(
      [](LogLevel, std::string_view text) {
        const std::lock_guard guard(lock);
        said += std::string(text) + "\n";
      },
      LogLevel::debug);
  {
    Options options;
    options.specialization = {.after_calls = 2, .in_background = false};
    const Formula f = formula("(x << 1) + 3*x", options);  // shifts of narrow integers do not run in the tiled interpreter
    const Array x = Array::full({1000}, 3.0, i16);
    for (int call = 0; call < 60; ++call) {
      f({{"x", x}});
      f.wait_until_optimized();
    }
  }
  set_log(nullptr);
  INFO(said);
  for (const char* part : {"recorded ", "planned 1 kernels", "compiled as baseline code in ", "optimized in ", "compiled for one shape in ",
                           "took ", " in its trial"})
    CHECK(said.find(part) != said.npos);
}

TEST_CASE("tiers: runs wait longer for the first compile of a process", "[tiers]") {
  TierAccount account(10e6);
  const auto due = [&](double also) {
    return account.before_run(
        std::numeric_limits<double>::infinity(), [] { return std::int64_t{0}; }, also);
  };
  CHECK(due(0) == TierAccount::Due::Nothing);
  account.ran(6'000'000);
  CHECK(due(0) == TierAccount::Due::Wait);  // more than half of the estimate
  CHECK(due(8e6) == TierAccount::Due::Hurry);
  CHECK(due(20e6) == TierAccount::Due::InBackground);
}

TEST_CASE("tiers: a specialized kernel pays off sooner if the vector loop is short", "[tiers]") {
  const OneKernel one(R"(
    %0 = input x : f32[40, 777]
    %1 = exp %0 : f32[40, 777]
    return %1
  )");
  compiler::Schedule schedule;
  const compiler::Target target = compiler::Target::host();
  const auto runs = [&](std::int64_t extent, std::int64_t nanoseconds) {
    runtime::PlanData plan;
    runtime::Launch& launch = plan.launches.emplace_back();
    launch.kernel = one.kernel;
    launch.items = 1;
    launch.expected = nanoseconds;
    launch.saved_if_specialised = compiler::saved_by_specializing(extent, schedule, target);
    launch.specialised_compile = schedule.called.empty() ? 1 : 3;
    return runtime::runs_until_hot(plan);
  };
  const double compile = static_cast<double>(one.kernel->account().compile());
  for (const auto& [extent, saved] : {std::pair{1, 1 / 2.0}, {32, 1 / 2.0}, {128, 1 / 8.0}, {1024, 1 / 64.0}, {1 << 20, 1 / 64.0}})
    CHECK(static_cast<double>(runs(extent, 1000)) == Approx(compile / (1000 * saved)).margin(1));
  CHECK(runs(32, 1 << 30) == 3);  // never sooner

  // Code in place of functions saves time in long loops, too, and takes longer to compile.
  schedule.called.emplace_back(ir::Op::Exp, DType::F32);
  const double saved = 1 / 64.0 + (target.vector_registers() >= 32 ? 1 / 16.0 : 1 / 4.0);
  CHECK(static_cast<double>(runs(1 << 20, 1000)) == Approx(3 * compile / (1000 * saved)).margin(1));
}
