// Execution records: every reason as data and as a sentence, origins of kernels, times, recorded graphs that run again, the profile.
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/record.h"
#include "tests/golden.h"

namespace op = onepass;
using Catch::Contains;
using op::Array, op::BoundaryReason, op::CacheOutcome, op::ExecutionRecord, op::PlanReason, op::Tensor;

namespace {

std::string repeated(int count, const std::function<std::string(int)>& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line(i);
  return text;
}

// Returns nested subdomains: each statement pads a concat of the previous value.
std::string nested_pads(int count) {
  return "y0 = x\n" +
         repeated(count, [](int i) { return fmt::format("y{} = pad(concat([y{}, y{}*2], 0)[1:-1], [1], [1])\n", i + 1, i, i); });
}

// Returns an array of single values, each of which depends on the previous value.
std::string assembled_of_a_recurrence(int count) {
  return "h0 = w\n" + repeated(count, [](int i) { return fmt::format("h{} = h{}*0.9 + exp(x[{}]*h{})\n", i + 1, i, i, i); }) +
         "y = stack([" + repeated(count, [](int i) { return fmt::format("{}h{}", i ? ", " : "", i + 1); }) + "], 0)*2";
}

struct Example {
  BoundaryReason reason;
  std::string formula, signature;
  op::Mode mode = op::Mode::adaptive;
};

std::vector<Example> examples() {
  using enum BoundaryReason;
  return {
      {output, "x*w + 1", "f32[64,256] f32[256]"},
      {full_reduction, "p = x / sum(x); y = transpose(p) + z", "f32[64,256] f32[256,64]"},
      {other_loops, "sum(x, axis=1) + y", "f32[64,32] f32[8,64]"},
      {other_axes, "p = softmax(x); m = max(p); q = p / m", "f32[64,256]"},
      {reduction_of_reduction, "max(sum(x, axis=1))", "f32[64,256]"},
      {recompute, "t = exp(x); y = t @ z", "f32[64,64] f32[64,64]"},
      {pieces, nested_pads(12), "f32[64]"},
      {few_columns, "softmax(x, 0)", "f32[4096,3]"},
      {short_axis, "sum(x[:, :, none]*arange(3))", "f32[40,50]"},
      {gathered, "take(exp(x), i, 0)", "f32[64] i64[1000]"},
      {scattered, "scatter_add(zeros([10], f32), i, x, 0) * 2", "i64[100] f32[100]"},
      {sorted, "mean(sort(exp(x)))", "f32[64]"},
      {stepped, "fn step(h, x) { n = 0.9*h + x*h; return n, n }\nlast, all = scan(step, y[0], x)\nz = exp(all)", "f64[1] f64[3000]"},
      {checked, "take(x, i*2, 0)[0:3]", "f32[64] i64[1000]"},
      {kernel_limit, "a0 = x\n" + repeated(3000, [](int i) { return fmt::format("a{} = sin(a{})*x + {}\n", i + 1, i, i); }), "f32[64]"},
      {assembled, assembled_of_a_recurrence(12), "f64[] f64[12]"},
      {unfused, "x*2 + 1", "f32[64]", op::Mode::unfused},
  };
}

}  // namespace

TEST_CASE("record: every boundary reason occurs, and has a sentence and a remedy", "[record]") {
  std::set<BoundaryReason> all;
  for (const Example& example : examples()) {
    INFO(op::name_of(example.reason));
    op::Options options;
    options.mode = example.mode;
    const op::Formula f = op::formula(example.formula, options);
    const std::string text = f.explain(example.signature);
    INFO(text.substr(0, 3000));
    CHECK_THAT(text, Contains(std::string(op::name_of(example.reason)) + ": " + std::string(op::sentence_of(example.reason))));
    if (!op::remedy_of(example.reason).empty()) CHECK_THAT(text, Contains("remedy: " + std::string(op::remedy_of(example.reason))));
    all.insert(example.reason);
    CHECK(f.stats().recordings == 0);  // explain calls nothing
  }
  CHECK(all.size() == op::kBoundaryReasons);
}

TEST_CASE("record: reasons for a new plan", "[record]") {
  op::Options options;
  options.check_recording = false;
  options.specialization.depth = 0;
  const auto ones = [](std::vector<std::int64_t> shape, op::DType type = op::f32) { return Array::ones(op::Extents(shape), type); };
  auto f = op::compile([](Tensor x, Tensor y) { return x * 2 + y; }, options);
  const auto is = [&](PlanReason reason, const std::string& sentence) {
    const ExecutionRecord record = f.last_execution();
    INFO(record.plan_sentence);
    CHECK(record.plan_reason == reason);
    CHECK_THAT(record.plan_sentence, Contains(sentence));
    CHECK(record.plan_remedy.empty() == (reason == PlanReason::repeated));
    CHECK_THAT(record.json(), Contains(fmt::format("\"reason\":\"{}\"", op::name_of(reason))));
  };
  CHECK(f.last_execution().plan_reason == PlanReason::none);
  CHECK(f.last_execution().kernels.empty());
  f(ones({8, 4}), ones({4}));
  is(PlanReason::first_call, "the function was not called before");
  f(ones({9, 4}), ones({4}));
  is(PlanReason::lengths, "planned again: the lengths of x0 changed from [8, 4] to [9, 4] (nothing was compiled)");
  f(ones({1, 4}), ones({4}));
  is(PlanReason::extents, "axis 0 of x0 has 1 element, but it had 9");
  f(ones({8, 9, 4}), ones({4}));
  is(PlanReason::rank, "the rank of x0 changed from 2 to 3");
  f(ones({8, 9, 4}, op::f64), ones({4}));
  is(PlanReason::type, "the type of x0 changed from f32 to f64");
  f(ones({8, 9, 4}), ones({4}));  // a known plan: the record has its original reason, a new rank
  is(PlanReason::rank, "rank");
  f(ones({9, 8, 4}).transpose({1, 0, 2}), ones({4}));
  is(PlanReason::strides, "the strides of x0 changed from [36, 4, 1] to [4, 32, 1]");
  f(2.0, ones({4}));
  is(PlanReason::arguments, "x0 is a number now");
  Array y = Array::zeros({4}, op::f32);
  f.into(y)(2.0, ones({4}));
  is(PlanReason::targets, "results go into existing arrays");
  alignas(64) static float memory[8];
  Array off = Array::wrap(std::span<float>(memory + 1, 4), {4});
  f.into(off)(2.0, ones({4}));
  is(PlanReason::alignment, "a destination does not begin at a multiple of 64 bytes");
  f(ones({8, 4}), ones({4}));
  {
    const op::ThreadScope other(op::thread_count() + 1);
    f(ones({8, 4}), ones({4}));
    is(PlanReason::threads, fmt::format("the call may use {} threads", op::thread_count()));
  }
  f.reset();
  f(ones({8, 4}), ones({4}));
  is(PlanReason::first_call, "not called before");
  for (int n = 2; n < 1200; ++n) f(ones({n}), ones({1}));
  f(ones({8, 4}), ones({4}));
  is(PlanReason::forgotten, "other plans replaced its plan");

  const op::Formula sums = op::formula("sum(x, axis=a)", options);
  static_cast<void>(sums({{"x", ones({8, 4})}, {"a", 0}}));
  static_cast<void>(sums({{"x", ones({8, 4})}, {"a", 1}}));
  const ExecutionRecord record = sums.last_execution();
  CHECK(record.plan_reason == PlanReason::number);
  CHECK_THAT(record.plan_sentence, Contains("a changed from 0 to 1"));
}

TEST_CASE("record: texts of all plan reasons", "[record]") {
  std::set<std::string> names;
  for (int r = 0; r < op::kPlanReasons; ++r) names.emplace(op::name_of(static_cast<PlanReason>(r)));
  CHECK(names.size() == op::kPlanReasons);
  // test_cuda_calls.cpp (another device) and test_cancel.cpp (fused kernels became ready) test calls with the last two reasons.
  auto f = op::compile([](Tensor x) { return x + 1; });
  f(Array::ones({4}, op::f32));
  f(Array::ones({5}, op::f32));
  // The first elements of these keys, for a call with one array: header, array, extents, strides, alignment (runtime/signature.h).
  const std::vector<std::int64_t> key = {1 << 16 | 2, std::int64_t{1} | 8 << 8 | 1 << 16 | std::int64_t{1} << 32, 5, 1, 1};
  std::vector<std::int64_t> on_device = key;
  on_device[1] |= std::int64_t{1} << 34;
  const std::vector<std::string> x = {"x"};
  CHECK(op::runtime::why_planned(on_device, key, x, {}, false, 0).reason == PlanReason::device);
  CHECK(op::runtime::why_planned(key, key, x, {}, false, 0).reason == PlanReason::repeated);
  CHECK(op::runtime::why_planned(key, key, x, {}, false, 1).sentence ==
        "compiled again: the same call was made before (1 kernel was compiled)");
}

TEST_CASE("record: origins of kernels", "[record]") {
  const auto outcome = [](const op::Formula& f) { return f.last_execution().kernels.at(0).cache; };
  op::runtime::set_first_tier(op::runtime::TierChoice::Optimised);
  const Array x = Array::ones({100}, op::f32);
  const op::Formula first = op::formula("x*x*x - 0.375*x + 5"), second = op::formula("a*a*a - 0.375*a + 5");
  static_cast<void>(first({x}));
  CHECK(outcome(first) == CacheOutcome::compiled);
  CHECK_THAT(first.last_execution().kernels[0].cache_sentence,
             Contains("compiled in") && Contains("no other call of this function has the same loops"));
  static_cast<void>(second({x}));
  CHECK(outcome(second) == CacheOutcome::memory);
  op::runtime::set_first_tier(op::runtime::TierChoice::Tiles);
  const op::Formula tiled = op::formula("x*x*x*x - 0.375*x + 5");
  static_cast<void>(tiled({x}));
  CHECK(outcome(tiled) == CacheOutcome::tiles);
  CHECK_THAT(tiled.last_execution().kernels[0].tier, Contains("tiled interpreter"));
  op::runtime::set_first_tier(std::nullopt);
  op::Options reference;
  reference.mode = op::Mode::reference;
  const op::Formula interpreted = op::formula("x*2", reference);
  static_cast<void>(interpreted({x}));
  CHECK(interpreted.last_execution().kernels.empty());
  CHECK_THAT(interpreted.last_execution().text(), Contains("interpreted one at a time"));
}

TEST_CASE("record: time of each compile, by stage", "[record]") {
  const Array x = Array::ones({100}, op::f32);
  const auto is = [](const ExecutionRecord& record, const std::vector<std::string>& tiers) {
    const ExecutionRecord::Kernel& kernel = record.kernels.at(0);
    std::vector<std::string> found;
    for (const ExecutionRecord::Compile& compile : kernel.compiles) {
      found.push_back(compile.tier);
      std::vector<std::string> stages;
      double sum = 0;
      for (const ExecutionRecord::Compile::Stage& stage : compile.stages) {
        CHECK(stage.ms > 0);
        sum += stage.ms;
        if (stage.name != "open the code generator") stages.push_back(stage.name);  // this stage occurs only once in a process
      }
      CHECK(stages == std::vector<std::string>{"build LLVM IR", "LLVM passes", "machine code", "load"});
      CHECK(sum == Approx(compile.ms));
      CHECK_THAT(record.text(), Contains(fmt::format("compiled ({}) in {:.2f} ms:", compile.tier, compile.ms)));
      CHECK_THAT(record.json(), Contains(fmt::format("{{\"tier\":\"{}\",\"ms\":", compile.tier)));
    }
    CHECK(found == tiers);
  };
  op::Options options;
  options.specialization.depth = 0;
  op::set_profiling(true);
  op::clear_profile();
  op::runtime::set_first_tier(op::runtime::TierChoice::Tiles);
  const op::Formula tiled = op::formula("tanh(x)*x*x - 0.125*x + 5", options);
  static_cast<void>(tiled({x}));
  is(tiled.last_execution(), {});
  op::runtime::set_first_tier(op::runtime::TierChoice::Quick);
  const op::Formula quick = op::formula("sin(x)*x*x - 0.125*x + 5", options);
  static_cast<void>(quick({x}));
  quick.wait_until_optimized();
  is(quick.last_execution(), {"quick", "optimized"});
  CHECK_THAT(quick.explain(), Contains("compiled (optimized) in") && Contains("machine code"));
  op::runtime::set_first_tier(op::runtime::TierChoice::Optimised);
  const op::Formula optimized = op::formula("cos(x)*x*x - 0.125*x + 5", options);
  static_cast<void>(optimized({x}));
  const ExecutionRecord record = optimized.last_execution();
  is(record, {"optimized"});
  CHECK(record.kernels[0].compiles[0].ms <= record.kernels[0].compile_ms);
  options.mode = op::Mode::specialized;
  const op::Formula specialized = op::formula("cos(x)*x*x - 0.125*x + 5", options);
  static_cast<void>(specialized({x}));
  is(specialized.last_execution(), {"specialized"});
  op::runtime::set_first_tier(std::nullopt);
  op::set_profiling(false);
  const std::string trace = op::profile_json();
  CHECK_THAT(trace, Contains("{\"name\":\"machine code\",\"cat\":\"compile stage\"") && Contains("\"tier\":\"specialized\""));
  op::clear_profile();
}

TEST_CASE("record: a described call has no outcome, and has the code of its kernels on request", "[record]") {
  const auto f = op::compile([](Tensor x, Tensor w) { return softmax(x) * w; });
  const ExecutionRecord record = f.describe("f32[64,256] f32[256]", op::Detail::code);
  CHECK_FALSE(record.called);
  CHECK(f.stats().recordings == 0);
  REQUIRE(record.kernels.size() == 1);
  CHECK(record.kernels[0].cache == CacheOutcome::none);
  CHECK(record.kernels[0].cache_sentence == "the call was not made");
  CHECK_THAT(record.kernels[0].llvm, Contains("define"));
  CHECK_THAT(record.kernels[0].assembly, Contains("ret"));
  CHECK_THAT(record.cuda, Contains("KERNEL("));
  CHECK(f.describe("f32[64,256] f32[256]").kernels[0].llvm.empty());
  CHECK(f.explain("f32[64,256] f32[256]") == f.describe("f32[64,256] f32[256]").text());
  CHECK_THROWS_AS(f.describe("f32[64,"), op::ValueError);
  const op::Formula formula = op::formula("x*2");
  CHECK(formula.describe("f32[8]").program == "x*2");
}

TEST_CASE("record: a pullback's record has its backward call next to the forward one", "[record]") {
  const auto f = op::compile([](Tensor x, Tensor w) { return exp(sin(x) * w); });
  const Array x = Array::full({64, 256}, 0.5, op::f32), w = Array::ones({256}, op::f32);
  auto [y, pullback] = op::vjp(f, x, w);
  const auto is = [&, &pullback = pullback](bool called) {
    const ExecutionRecord record = pullback.last_execution();
    CHECK(record.called);
    REQUIRE(record.kernels.size() == 1);
    REQUIRE(record.outputs.size() == 3);
    CHECK(record.outputs[1].name == "saved0");
    for (const ExecutionRecord::Stored& stored : record.kernels[0].stores)
      CHECK((stored.outputs[0] == "out") == (stored.sentence == "It is a result of the call."));
    REQUIRE(record.backward.size() == 1);
    const ExecutionRecord& backward = record.backward[0];
    CHECK(backward.called == called);
    REQUIRE(backward.kernels.size() == 1);
    CHECK(backward.kernels[0].stores.size() == 2);
    std::vector<std::string> inputs, outputs;
    for (const ExecutionRecord::Node& node : backward.nodes)
      if (node.kind == "input") inputs.push_back(node.name);
    for (const ExecutionRecord::Output& output : backward.outputs) outputs.push_back(output.name);
    CHECK(inputs == std::vector<std::string>{"dout", "x1", "saved0", "out", "saved1"});
    CHECK(outputs == std::vector<std::string>{"dx0", "dx1"});
    CHECK_THAT(record.json(), Contains("\"backward\":{"));
    CHECK_THAT(record.text(), Contains("the backward call"));
  };
  is(false);
  static_cast<void>(pullback(y));
  is(true);
  // The record belongs to its call and does not change with later calls.
  static_cast<void>(op::vjp(f, Array::ones({3, 5}, op::f32), Array::ones({5}, op::f32)));
  is(true);
  CHECK(pullback.last_execution().signature == "f32[64,256] f32[256]");
  pullback.reset();
  CHECK(pullback.last_execution().kernels.empty());

  // A number argument has no gradient; the other arguments keep their names.
  const auto scaled = op::compile([](Tensor k, Tensor x, Tensor w) { return tanh(x * k) * w; });
  auto [s, of_scaled] = op::vjp(scaled, 0.5, x, w);
  std::vector<std::string> gradients;
  const ExecutionRecord both = of_scaled.last_execution();
  for (const ExecutionRecord::Output& output : both.backward.at(0).outputs) gradients.push_back(output.name);
  CHECK(gradients == std::vector<std::string>{"dx1", "dx2"});

  // The described backward call equals the executed backward call, even with captured arrays and numbers.
  const auto g = op::compile([w](Tensor x, Tensor k) { return tanh(x * k) * w; });
  auto [z, back] = op::vjp(g, x, 0.75);
  const std::string described = back.last_execution().backward.at(0).optimized;
  static_cast<void>(back(z));
  CHECK(back.last_execution().backward.at(0).called);
  CHECK(back.last_execution().backward.at(0).optimized == described);
}

namespace {

// Runs two functions with one formula on two threads. The log callback holds the first thread after its compile until the second thread has
// requested the kernel.
std::pair<op::ExecutionRecord, op::ExecutionRecord> compiled_and_met(const std::string& text) {
  const op::Formula a = op::formula(text), b = op::formula(text);
  const Array x = Array::ones({64}, op::f32);
  static std::atomic<bool> compiling;
  static std::int64_t hits;
  op::wait_until_optimized();  // pending compiles would be mistaken for this compile
  compiling = false, hits = op::kernel_cache_stats().hits;
  op::set_log(
      [](op::LogLevel, std::string_view line) {
        if (line.find("optimized in") == line.npos || compiling.exchange(true)) return;
        while (op::kernel_cache_stats().hits == hits) std::this_thread::yield();
      },
      op::LogLevel::debug);
  std::atomic<bool> done{false};  // in case the cache folder has the kernel, and nothing compiles
  std::thread first([&] {
    static_cast<void>(a({x}));
    done = true;
  });
  while (!compiling && !done) std::this_thread::yield();
  static_cast<void>(b({x}));
  first.join();
  op::set_log(nullptr);
  return {a.last_execution(), b.last_execution()};
}

}  // namespace

TEST_CASE("record: a call that waits for another thread's compile records it", "[record]") {
  op::runtime::set_first_tier(op::runtime::TierChoice::Optimised);
  std::string text = "sin(x)*x + tanh(x)*2.5 - x*x*x";
  bool joined = false;
  for (int attempt = 0; attempt < 20 && !joined;
       ++attempt) {  // the second thread may miss the compile, if it ends between the request and the check
    text += "*x";
    const auto [a, b] = compiled_and_met(text);
    CHECK(a.kernels.at(0).cache == CacheOutcome::compiled);
    joined = b.kernels.at(0).cache == CacheOutcome::joined;
    if (joined) CHECK_THAT(b.kernels.at(0).cache_sentence, Contains("another thread was already compiling it"));
    else CHECK(b.kernels.at(0).cache == CacheOutcome::memory);
  }
  op::runtime::set_first_tier(std::nullopt);
  CHECK(joined);
}

TEST_CASE("record: a different schedule is described by its fields", "[record]") {
  op::compiler::Schedule a, b;
  CHECK(op::runtime::schedule_differences(a, b).empty());
  b.streamed = {1};
  b.width = 16;
  CHECK(op::runtime::schedule_differences(a, b) == "elements of a vector: 8 -> 16, non-temporal stores: no -> yes");
}

TEST_CASE("record: a recorded graph gives the bits of its program, for all golden functions", "[record]") {
  const op::test::Extents extents = {{'a', 3}, {'b', 5}, {'h', 4}, {'w', 6}, {'n', 17}, {'m', 21}, {'k', 9}, {'l', 13}};
  for (const op::test::Golden& golden : op::test::kGolden) {
    INFO(golden.name);
    const op::Formula f = op::formula(golden.formula);
    std::map<std::string, op::compiler::Shape> shapes;
    for (auto& [name, shape] : op::test::inputs_of(golden, extents)) shapes[name] = shape;
    std::vector<op::FormulaArgument> arguments;
    std::uint32_t seed = 1;
    for (const std::string& name : f.inputs()) {
      Array a = Array::empty(op::Extents(shapes.at(name)), op::f32);
      for (std::int64_t i = 0; i < a.size(); ++i)
        static_cast<float*>(a.mutable_data())[i] = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
      arguments.emplace_back(a);
    }
    const op::FormulaResults expected = f(arguments);
    const ExecutionRecord record = f.last_execution();
    CHECK(record.called);
    CHECK(record.recorded == f.recorded_graph().text());
    CHECK(record.kernels.size() == static_cast<std::size_t>(golden.kernels));
    const op::GraphView graph = op::GraphView::parse(record.recorded);
    CHECK(graph == f.recorded_graph());
    for (const op::Mode mode : {op::Mode::adaptive, op::Mode::unfused, op::Mode::reference}) {
      op::Options options;
      options.mode = mode;
      const op::Formula again = op::formula(graph, options);
      CHECK(again.inputs().size() == f.inputs().size());
      const op::FormulaResults got = again(arguments);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const Array a = got[i].contiguous(), b = expected[i].contiguous();
        CHECK(std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0);
      }
    }
  }
}

TEST_CASE("record: graphs are saved, loaded, and rejected if they do not fit", "[record]") {
  const op::Formula f = op::formula("exp(x)*2.5 + k");
  static_cast<void>(f({{"x", Array::ones({3, 4}, op::f32)}, {"k", 0.25}}));
  const op::GraphView graph = f.recorded_graph();
  const std::string path = fmt::format("record_graph_{}.txt", getpid());
  graph.save(path);
  const op::GraphView loaded = op::GraphView::load(path);
  std::remove(path.c_str());
  CHECK(loaded == graph);
  CHECK(loaded.text() == graph.text());
  const op::Formula again = op::formula(loaded);
  CHECK(again.inputs() == std::vector<std::string>{"x"});
  CHECK(again({Array::ones({3, 4}, op::f32)})[0].at<float>({0, 0}) ==
        f({{"x", Array::ones({3, 4}, op::f32)}, {"k", 0.25}})[0].at<float>({0, 0}));
  CHECK_THROWS_WITH(again({Array::ones({4, 4}, op::f32)}), Contains("input x is f32[4, 4], but it was recorded as f32[3, 4]"));
  CHECK_THROWS_WITH(again({Array::ones({3, 4}, op::f64)}), Contains("input x is f64, but it was recorded as f32"));
  CHECK_THROWS_AS(op::GraphView::parse("%0 = nonsense"), op::ValueError);
  CHECK_THROWS_AS(op::GraphView::load("nowhere/graph.txt"), op::IoError);
  CHECK_THROWS_AS(op::formula(op::GraphView()), op::ValueError);
}

TEST_CASE("record: bytes, passes, stages", "[record]") {
  auto f = op::compile([](Tensor x, Tensor w, Tensor b) { return x * w.reshape({x.dim(0), x.dim(1), 1, 1}) + b; });
  f(Array::ones({4, 6, 8, 8}, op::f32), Array::ones({4, 6}, op::f32), Array::ones({8, 8}, op::f32));
  const ExecutionRecord record = f.last_execution(op::Detail::code);
  CHECK(record.kernels.size() == 1);
  CHECK(record.least_bytes == 4 * (2 * 4 * 6 * 64 + 4 * 6 + 64));
  CHECK(record.bytes() == record.least_bytes);
  CHECK(record.ratio() == 1);
  CHECK(record.unfused_kernels == 2);
  CHECK(record.unfused_bytes > record.bytes());
  CHECK(record.passes.size() >= 6);
  CHECK(record.passes[0].name == "prune");
  CHECK_THAT(record.kernels[0].llvm, Contains("define"));
  CHECK_THAT(record.kernels[0].assembly, Contains("ret"));
  CHECK_THAT(record.cuda, Contains("KERNEL("));
  CHECK(record.stages.record_ms > 0);
  CHECK(record.stages.plan_ms > 0);
  CHECK_THAT(record.times_note, Contains("set_profiling(true)"));
  CHECK(record.kernels[0].times.runs == 0);
  bool has_line = false;
  for (const ExecutionRecord::Node& node : record.nodes) has_line |= node.source.find("test_record.cpp:") != std::string::npos;
  CHECK(has_line);
  CHECK_THAT(record.html(), Contains("\"least_bytes\":") && !Contains("/*RECORD*/"));
  const std::string path = fmt::format("record_{}.html", getpid());
  record.save(path);
  std::ifstream saved(path);
  std::stringstream text;
  text << saved.rdbuf();
  std::remove(path.c_str());
  CHECK(text.str() == record.html());
  CHECK_THROWS_AS(record.save("nowhere/record.json"), op::IoError);
}

TEST_CASE("record: a derivative's nodes are marked", "[record]") {
  const op::Formula f = op::formula("y = x*s + t; dx, ds = vjp(y, [x, s], d)");
  static_cast<void>(
      f({{"x", Array::ones({8, 4}, op::f32)}, {"s", Array::ones({4}, op::f32)}, {"t", 1.0}, {"d", Array::ones({8, 4}, op::f32)}}));
  const ExecutionRecord record = f.last_execution();
  int backward = 0;
  for (const ExecutionRecord::Node& node : record.nodes) backward += node.backward;
  CHECK(backward >= 2);
}

TEST_CASE("profile: times and calls are recorded only while it is on", "[record]") {
  auto f = op::compile([](Tensor x) { return exp(x) / sum(exp(x)); });
  const Array x = Array::full({40'000}, 0.5, op::f32);
  f(x);
  CHECK(f.last_execution().kernels[0].times.runs == 0);
  op::set_profiling(true);
  op::clear_profile();
  CHECK(op::profiling());
  for (int i = 0; i < 3; ++i) f(x);
  Array y = Array::zeros({40'000}, op::f32);
  const auto bound = f.bind(y, x);
  bound();
  op::set_profiling(false);
  f(x);
  const ExecutionRecord record = f.last_execution();
  CHECK(record.kernels[0].times.runs == 3);
  CHECK(record.kernels[0].times.best_ns > 0);
  CHECK(record.kernels[0].times.best_ns <= record.kernels[0].times.mean_ns);
  CHECK(record.kernels[0].gigabytes_per_second() > 0);
  CHECK_THAT(record.text(), Contains("on average over 3 runs") && Contains("of the copy bandwidth"));
  CHECK(record.copy_gigabytes_per_second > 0.5);
  CHECK(record.of_copy(record.kernels[0]) == record.kernels[0].gigabytes_per_second() / record.copy_gigabytes_per_second);
  const std::vector<op::CallRecord> calls = op::recent_calls(10);
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].signature == "f32[40000] -> f32[40000]");
  CHECK(calls[3].signature == "f32[40000]");
  CHECK(calls[0].start_ms > calls[3].start_ms);
  for (const op::CallRecord& call : calls) {
    CHECK(call.kernel_ms.size() == record.kernels.size());
    double sum = 0;
    for (const double ms : call.kernel_ms) sum += ms;
    CHECK(sum <= call.ms);
  }
  CHECK(op::recent_calls(2).size() == 2);
  const std::string trace = op::profile_json();
  CHECK_THAT(trace, Contains("\"traceEvents\":[") && Contains("\"cat\":\"kernel\"") && Contains("\"shapes\":\"f32[40000]\""));
  op::clear_profile();
  CHECK(op::recent_calls(10).empty());
  CHECK_THROWS_AS(op::write_profile("nowhere/trace.json"), op::IoError);
}

TEST_CASE("profile: a thread keeps its last events, and other threads may read them", "[record]") {
  constexpr std::int64_t kKept = 1 << 18, kCalls = kKept / 2 + 5'000;  // two events of each call: the call and its kernel
  op::Options options;
  options.check_recording = false;
  const auto f = op::compile([](Tensor x) { return x + 1; }, options);
  const Array x = Array::ones({4}, op::f32);
  Array y = Array::zeros({4}, op::f32);
  const auto bound = f.bind(y, x);
  bound();
  op::set_profiling(true);
  op::clear_profile();
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, looks{0};
  std::thread reader([&] {
    do {
      double before = 1e300;
      std::vector<op::CallRecord> calls = op::recent_calls(kKept);
      if (!calls.empty()) calls.pop_back();       // the kernel of the oldest call may be overwritten already
      for (const op::CallRecord& call : calls) {  // each call is complete, and they are in order
        wrong += call.ms < 0 || call.start_ms > before || call.kernel_ms.size() != 1 || call.kernel_ms[0] != call.ms;
        before = call.start_ms;
      }
      ++looks;
    } while (!done);
  });
  for (std::int64_t i = 0; i < kCalls; ++i) bound();
  done = true;
  reader.join();
  op::set_profiling(false);
  CHECK(wrong == 0);
  CHECK(looks > 0);
  const auto kept = static_cast<std::int64_t>(op::recent_calls(2 * kKept).size());
  CHECK(kept <= kKept / 2);
  CHECK(kept > kKept / 2 - 100);  // there are events of other kinds too
  const std::string trace = op::profile_json(), member = "\"dropped_events\":";
  const std::int64_t dropped = std::stoll(trace.substr(trace.find(member) + member.size()));
  CHECK(dropped >= 2 * kCalls - kKept);
  CHECK(dropped < 2 * kCalls - kKept + 100);
  op::clear_profile();
}

TEST_CASE("profile: results have the same bits on several threads at once", "[record]") {
  auto f = op::compile([](Tensor x) { return cumsum(tanh(x) * 3, 0) + sum(x, 1, true); });
  const Array x = Array::full({300, 400}, 0.25, op::f32);
  const Array expected = f(x);
  op::set_profiling(true);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const Array y = f(x);
        wrong += std::memcmp(y.data(), expected.data(), static_cast<std::size_t>(y.bytes())) != 0;
        if (i % 7 == 0) wrong += op::profile_json().empty();
      }
    });
  for (std::thread& thread : threads) thread.join();
  op::set_profiling(false);
  op::clear_profile();
  CHECK(wrong == 0);
}
