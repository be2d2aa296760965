// Fusion groups above the limits of a kernel: where they are cut, that every part is within the limits, and that no bit changes. Ten
// thousand operators take at most ten times as long as a thousand operators.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "golden.h"
#include "how_long.h"
#include "ir/build.h"
#include "random_graph.h"
#include "run_partition.h"
#include "runtime/formula_program.h"
#include "runtime/program.h"
#include "this_build.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;
using ir::Graph;
using ir::NodeId;

namespace {

const int kLarge = has_sanitizer() ? 1500 : 10'000;

// Size of a fusion group, counted independently of the pass: its nodes, its primitives, and its largest number of live values.
struct Load {
  std::size_t nodes = 0, primitives = 0, live = 0;
};
Load load_of(const Graph& graph, const Partition& partition, std::uint32_t group) {
  const auto memory = [&](NodeId id) { return partition.loads(graph, id, group); };
  const auto base = [&](NodeId id) {
    while (ir::is_view(graph[id].op)) id = graph.operand(id, 0);
    return id;
  };
  std::set<NodeId> computed;
  std::vector<NodeId> open(partition.groups[group].roots);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!computed.insert(id).second) continue;
    for (const std::int64_t o : graph.operands(id))
      if (const NodeId b = base(static_cast<NodeId>(o)); !memory(b) && !ir::is_source(graph[b].op)) open.push_back(b);
  }
  Load load{.nodes = computed.size()};
  std::map<NodeId, std::pair<std::size_t, std::size_t>> alive;
  std::size_t at = 0;
  for (const NodeId id : computed) {
    const ir::Op op = graph[id].op;
    if (ir::info(op).kind == ir::OpKind::Expanded) {
      const DType dtype = graph[graph.operand(id, 0)].dtype;
      const Graph& expansion = ir::expansion(op, is_half(dtype) ? f32 : dtype);
      for (NodeId e = 0; e < expansion.size(); ++e) load.primitives += ir::is_elementwise(expansion[e].op);
    } else {
      load.primitives += ir::is_reduction(op) ? 16 : !ir::is_view(op);
    }
    const auto touch = [&](NodeId value) {
      const auto shape = graph.shape(value);
      if (std::all_of(shape.begin(), shape.end(), [](std::int64_t e) { return e == 1; })) return;
      alive.try_emplace(value, at, at).first->second.second = at;
    };
    for (const std::int64_t o : graph.operands(id))
      if (const NodeId b = base(static_cast<NodeId>(o)); memory(b) || !ir::is_source(graph[b].op)) touch(b);
    touch(id);
    ++at;
  }
  for (std::size_t p = 0; p < at; ++p)
    load.live = std::max<std::size_t>(load.live, static_cast<std::size_t>(std::count_if(alive.begin(), alive.end(), [&](const auto& a) {
                                        return a.second.first <= p && p < a.second.second;
                                      })));
  return load;
}
void check_limits(const Graph& graph, const Partition& partition, const KernelLimits& limits) {
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    const Load load = load_of(graph, partition, g);
    if (load.nodes == 1) continue;  // nothing to cut
    INFO("group " << g << " of " << partition.groups.size());
    CHECK(load.primitives <= limits.primitives);
    CHECK(load.live <= limits.live);
  }
}

// Returns a graph of binary operators whose operands are among the last `alive` values.
Graph wide_graph(int operators, std::size_t alive, std::int64_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Graph g;
  const std::int64_t shape[] = {length};
  std::vector<NodeId> values;
  for (std::size_t i = 0; i < alive; ++i) {
    const NodeId x = g.add_input(fmt::format("x{}", i), f32, shape);
    values.push_back(x);
  }
  constexpr ir::Op kOps[] = {ir::Op::Add, ir::Op::Sub, ir::Op::Maximum, ir::Op::Minimum};
  for (int i = 0; i < operators; ++i) {
    const NodeId a = values[values.size() - 1 - random() % alive], b = values[values.size() - 1 - random() % alive];
    values.push_back(g.add(kOps[random() % 4], f32, g[a].shape, {a, b}));
  }
  for (std::size_t i = 0; i < alive; ++i) {
    g.outputs.push_back(values[values.size() - 1 - i]);
    g.output_names.push_back(fmt::format("y{}", i));
  }
  return ir::prune(g);
}

// Returns one line for each fusion group: the names or operators of its outputs, and the reasons.
std::string groups(const Graph& graph, const KernelLimits& limits) {
  const Partition partition = fuse(graph, {.limits = limits});
  std::string out;
  for (const Group& group : partition.groups) {
    std::string line;
    for (const NodeId id : group.roots) {
      std::string name(ir::info(graph[id].op).text);
      for (std::size_t k = 0; k < graph.outputs.size(); ++k)
        if (graph.outputs[k] == id) name = graph.output_names[k];
      line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", name, text_of(partition.boundary[id]));
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("limits: cuts of golden functions", "[limits]") {
  struct Row {
    const char* formula;
    KernelLimits limits;
    const char* expected;
  };
  const std::vector<std::pair<std::string, Shape>> inputs = {{"x", {7, 9}}, {"y", {7, 9}}, {"z", {7, 1}}};
  const Row rows[] = {
      {"y + x*2 - 1", {.primitives = 3}, "out: output\n"},
      // at the narrowest point, although a later cut is possible
      {"a = x + y; b = a*2 - a/y; c = sqrt(b); d = abs(c); h = d*2; f = h + d*x; g = f - h*y",
       {.primitives = 8},
       "abs: kernel limit\n"
       "g: output\n"},
      // cutting at a value of one column is cheaper than at a full value
      {"m = abs(z) + 1; n = sqrt(m); p = abs(n); q = x*p; r = q + y; s = r*q", {.primitives = 5}, "abs: kernel limit\ns: output\n"},
      // an output is materialized anyway, so a cut there adds only a load
      {"fn f(x) {\n a = x + 1; b = abs(a); c = sqrt(b); d = abs(c); g = sqrt(d)\n return b, g\n}",
       {.primitives = 3},
       "b: output\ng: output\n"},
      // softmax: the row sum and its consumer are in one kernel after the cut
      {"u = abs(x*y) - max(x, axis=1, keepdims=true); v = u*u; p = v/sum(v, axis=1, keepdims=true)",
       {.primitives = 20},
       "mul: kernel limit\np: output\n"},
      // three of the four products may be live together with x; the first product is materialized
      {"a = x*1; b = x*2; c = x*3; d = x*4; (a + b) + (c + d)", {.live = 3}, "mul: kernel limit\nout: output\n"},
  };
  for (const Row& row : rows) {
    const Graph graph = optimised(row.formula, inputs);
    INFO(row.formula << "\n" << ir::print(graph));
    CHECK(groups(graph, row.limits) == row.expected);
  }
}

TEST_CASE("limits: every part is within the limits, and has the reference's bits", "[limits][random]") {
  const KernelLimits tiny[] = {{1, 64}, {3, 4}, {100, 4}, {8, 8}};
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(rounds(80, 80)); ++seed) {
    const Graph graph = random_graph(seed, {.nodes = 40, .max_elements = 600});
    const Arguments arguments = random_arguments(graph, seed, seed % 2 == 1);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    for (std::size_t k = 0; k < std::size(tiny); ++k) {
      if (k != seed % std::size(tiny) && !is_full_run()) continue;
      const KernelLimits& limits = tiny[k];
      RunOptions options;
      options.limits = limits;
      options.masked = seed % 3 == 0;
      options.threads = 1 + static_cast<int>(seed % 3);
      std::string what;
      INFO("seed " << seed << ", limits " << limits.primitives << ", " << limits.live << "\n"
                   << ir::print(graph) << print(graph, fuse(graph, {.limits = limits})));
      const bool equal = equals_bitwise(run(graph, arguments.views, options), expected, &what);
      INFO(what);
      REQUIRE(equal);
    }
  }
}

TEST_CASE("limits: a thousand shapes are cut equally", "[limits][random]") {
  std::mt19937_64 random(5);
  for (const Golden& golden : kGolden) {
    std::string first;
    for (int i = 0; i < rounds(200, 200); ++i) {
      test::Extents extents;
      for (const char c : letters_of(golden))
        extents[c] = std::max<std::int64_t>(golden.many, 16) + static_cast<std::int64_t>(random() % 60);  // not few columns (fuse.h)
      const Graph graph = graph_of(golden, extents);
      const std::string form = form_of(graph, fuse(graph, {.limits = {.primitives = 5, .live = 6}}));
      if (first.empty()) first = form;
      INFO(golden.name);
      REQUIRE(form == first);
    }
  }
}

// Results of one element, too: the code of a reduction is in the loop.
TEST_CASE("limits: a kernel has few reductions", "[limits]") {
  std::string formula = "y = sum(x)";
  for (int k = 0; k < 200; ++k) formula += fmt::format("; y{0} = sum(x*{0} + {0})", k);
  const Graph graph = optimised(formula, {{"x", {7, 9}}});
  const Partition partition = fuse(graph);
  CHECK(partition.groups.size() >= 4);
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    const Load load = load_of(graph, partition, g);
    CHECK(load.primitives <= KernelLimits{}.primitives);
  }
}

TEST_CASE("limits: ten thousand operators with five hundred live values", "[limits]") {
  const Graph graph = wide_graph(kLarge, 500, 64, 1);
  const Partition partition = fuse(graph);
  check_limits(graph, partition, {});
  CHECK(partition.groups.size() >= static_cast<std::size_t>(kLarge) / 64 / 4);
  CHECK(partition.groups.size() <= static_cast<std::size_t>(kLarge) / 16);
}

TEST_CASE("limits: a chain is cut into the fewest possible parts", "[limits]") {
  const Graph graph = wide_graph(kLarge, 1, 64, 2);
  const Partition partition = fuse(graph);
  check_limits(graph, partition, {});
  CHECK(partition.groups.size() == static_cast<std::size_t>(graph.size() - 1 + 999) / 1000);
  for (const Group& group : partition.groups) CHECK(group.roots.size() == 1);
}

TEST_CASE("limits: a program of ten thousand operators, with threads, misaligned, and into its own arguments", "[limits]") {
  constexpr std::size_t kInputs = 100;
  constexpr std::int64_t kLength = 501;
  std::mt19937_64 random(3);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kInputs; ++i) names.push_back(fmt::format("x{}", i));
  std::string text = fmt::format("fn f({}) {{\n", fmt::join(names, ", "));
  const char* const forms[] = {"{} + {}", "{} - {}*0.25", "maximum({}, {})", "minimum({}, {} + 1.5)"};
  for (int k = 0; k < kLarge; ++k) {
    const std::string &a = names[names.size() - 1 - random() % kInputs], &b = names[names.size() - 1 - random() % kInputs];
    text += fmt::format("  t{} = {}\n", k, fmt::format(fmt::runtime(forms[random() % 4]), a, b));
    names.push_back(fmt::format("t{}", k));
  }
  text += fmt::format("  return {}, {}\n}}\n", names.back(), names[kInputs + static_cast<std::size_t>(kLarge) / 2]);
  const runtime::FormulaProgram parsed = runtime::parse_formula(text);

  std::vector<std::vector<float>> storage(kInputs, std::vector<float>(kLength + 1));
  for (auto& v : storage)
    for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 4096) - 2048) / 512;
  const auto arrays = [&](std::vector<std::vector<float>>& memory) {  // starts at the second element, so it is not 64-byte aligned
    std::vector<Array> out;
    for (auto& v : memory) out.push_back(Array::wrap(std::span(v).subspan(1), {kLength}));
    return out;
  };
  const auto arguments = [](const std::vector<Array>& in) {
    std::vector<runtime::Argument> out;
    for (const Array& a : in) out.push_back({&a, {}});
    return out;
  };
  std::vector<Array> inputs = arrays(storage);
  Options reference;
  reference.mode = Mode::reference;
  const std::vector<Array> expected = runtime::Program(parsed.record, parsed.inputs, reference).call(arguments(inputs));
  for (const int threads : {1, 2, 3, 7}) {
    INFO(threads << " threads");
    Options options;
    options.threads = threads;
    runtime::Program program(parsed.record, parsed.inputs, options);
    const std::vector<Array> got = program.call(arguments(inputs));
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k].to_vector<float>() == expected[k].to_vector<float>());
    CHECK(program.stats().launches >= kLarge / 1000);  // at most 1,000 primitives in a kernel
    std::vector<std::vector<float>> changed = storage;
    std::vector<Array> own = arrays(changed);
    Array* const targets[] = {&own[0], &own[1]};
    program.call_into(arguments(own), targets);
    for (std::size_t k = 0; k < 2; ++k) CHECK(own[k].to_vector<float>() == expected[k].to_vector<float>());
  }
}
