// Random chains of views around elementwise operators, and their gradients: views should cost no launch and no stored value.
#include <onepass/onepass.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "compiler/fuse.h"
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "every_mode.h"
#include "formula_inputs.h"
#include "golden.h"

namespace op = onepass;
namespace ir = onepass::ir;
using namespace onepass::test;
using namespace onepass::compiler;

namespace {

std::string list(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (std::size_t k = 0; k < numbers.size(); ++k) text += (k ? ", " : "") + std::to_string(numbers[k]);
  return text + "]";
}

// Writes a chain: each line computes t from the previous t.
class Chain {
 public:
  explicit Chain(unsigned seed) : random_(seed) {
    shape_ = {of({24, 36, 60}), of({40, 64, 100})};
    x_ = shape_;
    const std::int64_t steps = at_most(5) + 3;
    for (std::int64_t k = 0; k < steps; ++k) line(at_most(1) ? elementwise() : view());
  }
  const std::vector<std::int64_t>& x() const { return x_; }
  std::string value() const { return text_ + "out = t" + std::to_string(lines_) + "*1.5"; }
  std::string gradient() const { return value() + "\ng = grad(sum(out*out), [x])"; }

 private:
  std::mt19937 random_;
  std::vector<std::int64_t> shape_, x_;
  std::string text_ = "t0 = x*1\n";
  int lines_ = 0;

  std::int64_t at_most(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n + 1)); }
  std::int64_t of(const std::vector<std::int64_t>& choices) { return choices[random_() % choices.size()]; }
  void line(std::string text) {
    const std::string before = "t" + std::to_string(lines_);
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string::npos;) text.replace(at, 1, before);
    text_ += "t" + std::to_string(++lines_) + " = " + text + "\n";
  }
  std::string elementwise() {
    static const char* const kAll[] = {"$*2 + 1",       "$*$",     "maximum($, 0.1)", "where($ > 0.5, $, $*3)", "abs($)", "$/($*$ + 1)",
                                       "sqrt($*$ + 1)", "exp(-$)", "tanh($)"};
    return kAll[random_() % std::size(kAll)];
  }
  std::string slices(std::size_t axis, const std::string& slice) const {
    std::string text = "$[";
    for (std::size_t i = 0; i < shape_.size(); ++i) text += (i ? ", " : "") + (i == axis ? slice : ":");
    return text + "]";
  }
  std::string view() {
    const auto axis = static_cast<std::size_t>(at_most(std::ssize(shape_) - 1));
    const std::string along = ", " + std::to_string(axis) + ")";
    std::int64_t& extent = shape_[axis];
    const std::int64_t elements = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
    std::int64_t kind = at_most(10);
    if (elements > 40000 && kind < 4) kind = 4;
    switch (kind) {
      case 0: {
        const std::string other = at_most(1) ? "$*0.5" : "flip($" + along;
        extent *= 2;
        return "concat([$, " + other + "]" + along;
      }
      case 1: {
        std::vector<std::int64_t> times(shape_.size(), 1);
        times[axis] = 2, extent *= 2;
        return "tile($, " + list(times) + ")";
      }
      case 2: extent *= 2; return "repeat($, 2" + along;
      case 3: shape_.insert(shape_.begin() + static_cast<std::ptrdiff_t>(axis), 2); return "stack([$, $ + 1]" + along;
      case 4: {
        const std::int64_t begin = at_most(extent / 3), end = extent - at_most(extent / 3);
        extent = end - begin;
        return slices(axis, std::to_string(begin) + ":" + std::to_string(end));
      }
      case 5: {
        const std::int64_t step = of({2, 3, -1, -2});
        extent = (extent - 1) / std::abs(step) + 1;
        return slices(axis, "::" + std::to_string(step));
      }
      case 6: return "roll($, " + std::to_string(at_most(extent)) + along;
      case 7: {
        std::vector<std::int64_t> low(shape_.size(), 0), high(shape_.size(), 0);
        low[axis] = at_most(3), high[axis] = at_most(3);
        extent += low[axis] + high[axis];
        return "pad($, " + list(low) + ", " + list(high) + ")";
      }
      case 8: return "flip($" + along;
      case 9: {
        std::vector<std::int64_t> order(shape_.size()), turned;
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, random_);
        for (const std::int64_t i : order) turned.push_back(shape_[static_cast<std::size_t>(i)]);
        shape_ = turned;
        return "transpose($, " + list(order) + ")";
      }
      default: {
        const std::int64_t factor = of({2, 4, 5, 6, 8});
        if (shape_.size() < 4 && extent % factor == 0 && at_most(1)) {
          extent /= factor;
          shape_.insert(shape_.begin() + static_cast<std::ptrdiff_t>(axis), factor);
        } else if (axis + 1 < shape_.size()) {
          extent *= shape_[axis + 1];
          shape_.erase(shape_.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
        }
        return "reshape($, " + list(shape_) + ")";
      }
    }
  }
};

// Returns the graph after all passes of a call, for inputs of one shape.
ir::Graph after_passes(const std::string& text, const std::vector<std::int64_t>& shape) {
  const onepass::language::Program program = onepass::language::parse(text, "program");
  std::vector<FormulaInput> inputs;
  for (std::size_t i = 0; i < signature_of(program).inputs.size(); ++i) inputs.push_back({op::f32, shape});
  Recorder recorder;
  record_formula(recorder, program, inputs);
  std::vector<ir::NodeId> places;
  return optimize(recorder.graph, {}, places);
}

// True if the program runs as one launch and stores nothing but its results.
bool is_one_launch(const std::string& text, const std::vector<std::int64_t>& x) { return fuse(after_passes(text, x)).groups.size() == 1; }

// Returns the text of a simulation with so many steps.
std::string simulation(const std::string& step, int steps, bool with_gradient) {
  std::string text = "fn lap(u) { return roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4*u }\np0 = p*1\nq0 = q*1\n";
  for (int k = 0; k < steps; ++k) {
    const std::string now = std::to_string(k), next = std::to_string(k + 1);
    for (const char c : step) text += c == '_' ? now : c == '\'' ? next : std::string(1, c);
    text += "\n";
  }
  const std::string last = std::to_string(steps);
  return text + "out = sum(p" + last + "*p" + last + " + q" + last + ")" + (with_gradient ? "\ng = grad(out, [p])" : "");
}

}  // namespace

TEST_CASE("view chains: views cost no launch and no stored value", "[view_chains]") {
  int values = 0, gradients = 0;
  constexpr int kChains = 300;
  for (unsigned seed = 1; seed <= kChains; ++seed) {
    const Chain chain(seed);
    values += is_one_launch(chain.value(), chain.x());
    gradients += is_one_launch(chain.gradient(), chain.x());
  }
  INFO(values << " values and " << gradients << " gradients of " << kChains << " chains are one launch");
  CHECK(values >= kChains - kChains / 50);
  CHECK(gradients >= kChains - kChains / 8);
}

TEST_CASE("view chains: all modes have the reference's bits", "[view_chains]") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Chain chain(seed);
    INFO(chain.gradient());
    same_everywhere(chain.gradient(), {{"x", random_array(chain.x())}});
  }
}

TEST_CASE("view chains: copies share costly values", "[view_chains]") {
  // Each is one kernel that computes its exponential once for each element of x.
  for (const char* const text :
       {"tile(exp(x), [3, 1])*k", "repeat(exp(x), 2, 0)*k", "tile(exp(x), [1, 2])*k", "v = exp(x)\nout = concat([v, v*0.5], 0)*k",
        "v = exp(x)\nout = concat([v + 1, v*0.5, -v], 1)*k", "v = exp(x)\nout = tile(concat([v, v*0.5], 0), [2, 1])*k"}) {
    INFO(text);
    const ir::Graph graph = optimised(text, {{"x", {30, 50}}, {"k", {}}});
    const Partition partition = fuse(graph);
    REQUIRE(partition.groups.size() == 1);
    const std::vector<Planned> nests = plan(graph, partition, 0, std::vector<Layout>(graph.size()));
    REQUIRE(nests.size() == 1);
    std::int64_t elements = 1, exponentials = 0;
    for (const std::int64_t extent : nests[0].numbers.extents) elements *= extent;
    for (const Statement& s : nests[0].nest.body) exponentials += s.kind == Statement::Kind::Op && s.op == ir::Op::Exp;
    CHECK(elements * exponentials == 30 * 50);
  }
}

TEST_CASE("view chains: loops run in the direction in which arrays are read forward", "[view_chains]") {
  for (const char* const text :
       {"flip(transpose(x, [1, 0]), 0)*k", "transpose(flip(x, 1), [1, 0])*k", "flip(transpose(x, [1, 0]), 0)[2:, ::2]*k"}) {
    INFO(text);
    const ir::Graph graph = optimised(text, {{"x", {40, 70}}, {"k", {}}});
    const std::vector<Planned> nests = plan(graph, fuse(graph), 0, std::vector<Layout>(graph.size()));
    REQUIRE(nests.size() == 1);
    const Nest& nest = nests[0].nest;
    bool reads_rows = false;
    for (const Access& a : nest.accesses) {
      const std::vector<std::int64_t>& by = nests[0].numbers.coefficients[a.linear];
      if (nest.buffers[a.buffer].written) continue;
      CHECK(std::ranges::all_of(by, [](std::int64_t c) { return c >= 0; }));
      reads_rows |= std::ranges::any_of(by, [](std::int64_t c) { return c >= 70; });
    }
    CHECK(reads_rows);
    same_everywhere(text, {{"x", random_array({40, 70})}, {"k", random_array({})}});
  }
}

TEST_CASE("view chains: a step of a simulation stores its states and reads the states before it", "[view_chains]") {
  struct Simulation {
    const char* step;
    std::size_t states, with_gradient;  // values that each step stores
    std::size_t reads;                  // arrays that a kernel reads or writes, at most
  };
  const Simulation simulations[] = {
      {"p' = p_ + 0.1*lap(p_)*exp(-p_*p_); q' = q_", 1, 3, 8},
      {"q' = q_ + 0.1*lap(p_); p' = p_ + 0.1*q'", 2, 5, 10},
      {"r' = p_*q_*q_; p' = p_ + 0.16*lap(p_) - r' + 0.035*(1 - p_); q' = q_ + 0.08*lap(q_) + r' - 0.1*q_", 2, 7, 14},
      {"p' = p_ - 0.1*q_*(p_ - roll(p_, 1, 0)) - 0.05*(p_ - roll(p_, 1, 1)); q' = q_", 1, 8, 12},
      {"x' = roll(p_, -1, 1) - roll(p_, 1, 1); y' = roll(p_, -1, 0) - roll(p_, 1, 0); p' = p_ - 0.1*sqrt(x'*x' + y'*y' + 0.01); q' = q_", 1,
       4, 10},
      {"r' = roll(p_, 1, 0) + p_ + roll(p_, -1, 0); n' = roll(r', 1, 1) + r' + roll(r', -1, 1); p' = where(n' > 3, p_, n'*0.1); q' = q_", 2,
       4, 8},
  };
  for (const Simulation& s : simulations)
    for (const bool with_gradient : {false, true}) {
      INFO(s.step << (with_gradient ? ", with its gradient" : ""));
      const auto stored = [&](int steps) {
        const ir::Graph graph = after_passes(simulation(s.step, steps, with_gradient), {40, 70});
        const Partition partition = fuse(graph);
        std::size_t roots = 0;
        for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
          roots += partition.groups[g].roots.size();
          for (const Planned& p : plan(graph, partition, g, std::vector<Layout>(graph.size()))) CHECK(p.nest.buffers.size() <= s.reads);
        }
        return roots;
      };
      CHECK(stored(16) - stored(8) <= 8 * (with_gradient ? s.with_gradient : s.states));
      if (!with_gradient) CHECK(stored(8) <= 8 * s.states + 1);  // the sum computes the last step
    }
}
