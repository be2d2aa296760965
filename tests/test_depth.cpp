// Long chains: no pass recurses over the graph. Each pass runs on a chain of 200,000 nodes in a thread with 256 KiB of stack. A recursion
// would need a far larger stack.
#include <catch2/catch.hpp>

#include <pthread.h>

#include <exception>
#include <functional>

#include "compiler/batch.h"
#include "compiler/codegen.h"
#include "compiler/differentiate.h"
#include "compiler/fuse.h"
#include "compiler/halves.h"
#include "compiler/lists.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "compiler/record.h"
#include "compiler/relax.h"
#include "compiler/reroll.h"
#include "compiler/save.h"
#include "compiler/simplify.h"
#include "compiler/split_steps.h"
#include "compiler/state_loop.h"
#include "compiler/step_body.h"
#include "compiler/structure.h"
#include "compiler/tiles/tiles.h"
#include "compiler/unroll.h"
#include "has_codegen.h"
#include "ir/reference.h"
#include "ir/verify.h"
#include "onepass/onepass.h"
#include "this_build.h"

using namespace onepass;
using namespace onepass::compiler;

namespace {

const std::size_t kStack = (test::has_address_sanitizer() ? 2048 : 256) << 10;  // sanitized frames are several times as large
constexpr int kLong = 200'000;

// Runs f in a thread with a small stack and rethrows its exception.
void with_little_stack(const std::function<void()>& f) {
  struct Run {
    const std::function<void()>& f;
    std::exception_ptr error;
  } run{f, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  const auto entry = [](void* p) -> void* {
    Run& mine = *static_cast<Run*>(p);
    try {
      mine.f();
    } catch (...) { mine.error = std::current_exception(); }
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, entry, &run) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (run.error) std::rethrow_exception(run.error);
}

// Returns step t of a chain. Operators alternate, so that none undoes the previous operator.
Value step(Recorder& r, Value x, Value w, int t) {
  switch (t % 4) {
    case 0: return r.mul(x, w);
    case 1: return r.add(x, w);
    case 2: return r.elementwise(Op::Maximum, {x, w});
    default: return r.sub(x, r.mul(w, w));
  }
}

ir::Graph chain(const Shape& shape, int length, bool with_gradient) {
  Recorder r;
  r.limits.max_nodes = 1 << 24;
  const Value start = r.input("x", f32, shape), w = r.input("w", f32, Shape{});
  Value x = start;
  for (int t = 0; t < length; ++t) x = step(r, x, w, t);
  r.output("y", x);
  if (with_gradient) r.output("dx", r.grad(r.reduce(Op::ReduceSum, "sum", x, {}, false), std::array{start, w})[0]);
  return ir::prune(r.graph);
}

// Returns a chain of views that no rule joins: each view transposes a reshaped result of the previous view.
ir::Graph chain_of_views(int length) {
  Recorder r;
  r.limits.max_nodes = 1 << 24;
  Value x = r.input("x", f32, Shape{2, 3});
  for (int t = 0; t < length; ++t) x = t % 2 ? r.flip(x, std::vector<std::int64_t>{1}) : r.transpose(x, {});
  r.output("y", r.reduce(Op::ReduceSum, "sum", x, std::vector<std::int64_t>{1}, false));
  return ir::prune(r.graph);
}

ir::Graph optimised(const ir::Graph& recorded) {
  ir::Graph graph = ir::prune(simplify(shorten_halves(recorded)));
  if (const auto rerolled = reroll(graph)) graph = ir::prune(simplify(*rerolled));
  if (auto unrolled = unroll(graph)) graph = ir::prune(*std::move(unrolled));
  return copy_results(std::move(graph));
}

}  // namespace

TEST_CASE("depth: the passes over graphs", "[depth]") {
  const bool scalar = GENERATE(true, false), with_gradient = !scalar;
  with_little_stack([&] {
    const ir::Graph graph = chain(scalar ? Shape{} : Shape{5}, kLong, with_gradient);
    CHECK(graph.size() > kLong);
    CHECK(!ir::find_violation(graph));
    const std::string text = ir::print(graph);
    CHECK(ir::print(ir::parse_graph(text)) == text);
    Relax all;
    all.contract = all.reassociate = all.approximate = true;
    CHECK(relax(graph, all).size() > 0);
    const ir::Graph made = optimised(graph);
    const std::vector<Layout> layouts(made.size());
    Lists lists = find_lists(made, layouts);
    find_assembled(made, layouts, lists);
    const Partition partition = fuse(made, {.lists = lists});
    CHECK(print(made, partition).size() > 0);
    CHECK(fuse(made, {.unfused = true}).groups.size() > kLong);
    static_cast<void>(Structure::of(graph, made, partition, {}));
    std::size_t statements = 0;
    for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
      for (const Planned& planned : plan(made, partition, g, layouts)) {
        const Target target = Target::generic_cpu();
        const Scheduled scheduled = schedule(planned.nest, planned.numbers, target, {});
        statements += planned.nest.body.size() + (planned.nest.key() + scheduled.schedule.key()).empty();
        static_cast<void>(TileProgram::of(planned.nest, target));
      }
    CHECK(statements > kLong);
    std::vector<float> x(scalar ? 1 : 5, 0.5f), w{0.25f};
    const ir::ArrayView inputs[] = {{f32, x.data(), scalar ? Shape{} : Shape{5}}, {f32, w.data(), {}}};
    CHECK(ir::evaluate(graph, inputs).size() == graph.outputs.size());
  });
}

TEST_CASE("depth: a loop with a long step", "[depth]") {
  with_little_stack([] {
    Recorder r;
    const Value x = r.input("x", f32, std::array{std::int64_t{3}}), w = r.input("w", f32, std::array{std::int64_t{3}});
    StateLoop loop(r, StateLoop::Kind::Iterate, {x});
    loop.over(std::int64_t{64}, false);
    while (loop.next()) {
      Value state = loop.state()[0];
      for (int t = 0; t < kLong / 10; ++t) state = step(r, state, w, t);
      loop.step(std::array{state});
    }
    const Value sum = r.reduce(Op::ReduceSum, "sum", loop.state()[0], std::nullopt, false);
    const std::vector<Value> gradients = r.grad(sum, std::array{x, w});
    r.output("sum", sum);
    r.output("by", gradients[1]);
    const ir::Graph graph = ir::prune(r.graph);
    CHECK(graph.size() < 100);
    const ir::Graph simple = rewrite_steps(graph, [](ir::Graph body) { return ir::prune(simplify(body)); });
    const ir::Graph split = ir::prune(split_steps(simple));
    ir::verify(split, "split steps");
    CHECK(write_out_steps(split, 100'000'000).size() > kLong);
  });
}

TEST_CASE("depth: views, batches and residuals", "[depth]") {
  with_little_stack([] {
    const ir::Graph views = optimised(chain_of_views(kLong));
    CHECK(fuse(views).groups.size() >= 1);
    ir::Graph graph = chain({}, kLong, false);
    const ir::NodeId x = graph.inputs[0].node, y = graph.outputs[0];
    const Shape three{3};
    const ir::NodeId xs = graph.add_input("xs", f32, three);
    CHECK(batch(graph, std::array{y}, std::array{Batched{x, xs}}, Limits{}, "depth").size() == 1);
    ir::Graph joint = chain({5}, kLong, true);
    CHECK(choose_saved(joint, {}, std::array{joint.outputs[0]}, std::array{joint.outputs[1]}, -1).bytes >= 0);
  });
}

TEST_CASE("depth: one kernel of a long chain is emitted", "[depth]") {
  if (!test::has_codegen()) return;
  const Shape shape = GENERATE(Shape{}, Shape{100}, Shape{100, 40});
  with_little_stack([&] {
    Recorder r;
    const Value w = r.input("w", f32, Shape{});
    Value x = r.input("x", f32, shape);
    for (int t = 0; t < 20'000; ++t) x = step(r, x, w, t);
    if (shape.size() == 2) x = r.reduce(Op::ReduceSum, "sum", x, std::vector<std::int64_t>{1}, false);
    r.output("y", x);
    const ir::Graph graph = optimised(ir::prune(r.graph));
    const Partition partition = fuse(graph, {.limits = {.primitives = 1u << 30, .live = 1u << 30}});
    REQUIRE(partition.groups.size() == 1);
    const std::vector<Layout> layouts(graph.size());
    for (const Planned& planned : plan(graph, partition, 0, layouts)) {
      const Target target = Target::host();
      const Scheduled scheduled = schedule(planned.nest, planned.numbers, target, {});
      CHECK(generate({.nest = &planned.nest, .schedule = &scheduled.schedule, .target = &target, .tier = compiler::Tier::Quick})
                .object.size() > 0);
    }
  });
}

TEST_CASE("depth: calls of compiled functions", "[depth]") {
  const Mode mode = GENERATE(Mode::reference, Mode::adaptive);
  with_little_stack([&] {
    Options options;
    options.mode = mode;
    options.limits.max_nodes = 1 << 24;
    std::string text;
    {
      auto f = compile(
          [](Tensor x) {
            for (int t = 0; t < kLong; ++t) x = t % 2 ? x * 0.999f : x + 0.001f;
            return x;
          },
          options);
      Array x = Array::full({7}, 0.5, onepass::f32);
      CHECK(double(f(x).at<float>({3})) == double(f(x).at<float>({6})));
      text = f.explain() + last_optimized_graph();
    }
    CHECK(text.size() > 0);
  });
}
