// Bytes that kernels load and store, counted by the kernels (compiler/llvm/count.h) and compared with the schedules. `--stats` and
// `moved_bytes` report these sums.
#include <catch2/catch.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "golden.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

using Inputs = std::vector<std::pair<std::string, Shape>>;

// Runs the program in every form and checks its bits. Returns the counts in the requested form.
Counts counted(const ir::Graph& graph, RunOptions options = {}, bool strided = false) {
  const Arguments arguments = random_arguments(graph, 1, strided);
  Counts counts;
  options.counts = &counts;
  std::string what;
  CHECK(equals_bitwise(run(graph, arguments.views, options), ir::evaluate(graph, arguments.views), &what));
  INFO(what);
  CHECK(what.empty());
  return counts;
}

std::vector<RunOptions> every_form() {
  std::vector<RunOptions> out;
  for (const int vector_bytes : {64, 32, 16}) {
    if (vector_bytes > Target::host().vector_bytes) continue;
    RunOptions options;
    options.target = Target::host().with_vector_bytes(vector_bytes);
    options.masked = vector_bytes == 32;
    options.threads = vector_bytes == 16 ? 3 : 1;
    out.push_back(options);
  }
  return out;
}

bool each(const std::vector<std::uint8_t>& counters, int n) {
  return std::all_of(counters.begin(), counters.end(), [&](int c) { return c == n; });
}
bool each_between(const std::vector<std::uint8_t>& counters, int low, int high) {
  return std::all_of(counters.begin(), counters.end(), [&](int c) { return c >= low && c <= high; });
}
const Counts::Array& input(const Counts& counts, std::size_t i) { return counts.arrays.at(i); }
// Returns the counts of materialized values, in order.
std::vector<const Counts::Array*> stored(const ir::Graph& graph, const Counts& counts) {
  std::vector<const Counts::Array*> out;
  for (std::size_t i = graph.inputs.size(); i < counts.arrays.size(); ++i) out.push_back(&counts.arrays[i]);
  return out;
}

// Checks that every element of large inputs and results is accessed once, and every element of small broadcast arrays at least once. The
// schedules' sums count distinct elements.
void once(const char* formula, const Inputs& inputs, bool strided = false, int kernels = 1) {
  const ir::Graph graph = optimised(formula, inputs);
  std::int64_t largest = 0;
  for (const ir::Input& i : graph.inputs) largest = std::max(largest, ir::element_count(graph.list(i.shape)));
  for (const RunOptions& options : every_form()) {
    INFO(formula << "\n"
                 << ir::print(graph) << "vectors of " << options.target.vector_bytes << ", masked " << options.masked << ", threads "
                 << options.threads);
    const Counts counts = counted(graph, options, strided);
    CHECK(counts.kernels == kernels);
    std::int64_t read = 0, written = 0;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const Counts::Array& a = input(counts, i);
      INFO("input " << graph.inputs[i].name);
      const std::int64_t elements =
          strided ? static_cast<std::int64_t>(a.loads.size()) - static_cast<std::int64_t>(std::count(a.loads.begin(), a.loads.end(), 0))
                  : ir::element_count(graph.list(graph.inputs[i].shape));
      read += elements * static_cast<std::int64_t>(a.element_bytes);  // gaps of strided inputs are not read
      CHECK(each(a.stores, 0));
      if (strided) {
        CHECK(elements > 0);
      } else if (elements == largest) {
        CHECK(each(a.loads, 1));
      } else {
        CHECK(each_between(a.loads, 1, 255));
      }
    }
    for (const Counts::Array* a : stored(graph, counts)) {
      written += static_cast<std::int64_t>(a->stores.size() * a->element_bytes);
      CHECK(each(a->stores, 1));
      CHECK(each(a->loads, 0));
    }
    CHECK(counts.bytes_read == read);
    CHECK(counts.bytes_written == written);
  }
}

}  // namespace

TEST_CASE("traffic: affine_big, in both forms, reads and writes each byte once", "[traffic]") {
  const char* const broadcast = "x*w + b";
  const char* const inside = "x*reshape(w, [x.shape[0], x.shape[1], 1, 1]) + reshape(b, [x.shape[0], x.shape[1], 1, 1])";
  for (const Shape& s : {Shape{8, 16, 32, 32}, Shape{3, 5, 7, 9}, Shape{2, 3, 1, 67}, Shape{1, 4, 33, 2}}) {
    once(broadcast, {{"x", s}, {"w", {s[0], s[1], 1, 1}}, {"b", {s[0], s[1], 1, 1}}});
    once(inside, {{"x", s}, {"w", {s[0], s[1]}}, {"b", {s[0], s[1]}}});
  }
  // the scalars of `broadcast` are also loaded once: one row of the loop nest is one task
  const ir::Graph graph = optimised(broadcast, {{"x", {8, 16, 32, 32}}, {"w", {8, 16, 1, 1}}, {"b", {8, 16, 1, 1}}});
  const Counts counts = counted(graph);
  CHECK(counts.bytes_loaded() == counts.bytes_read);
  CHECK(counts.bytes_stored() == counts.bytes_written);
  CHECK(counts.bytes_read == (8 * 16 * 32 * 32 + 2 * 8 * 16) * 4);
}

TEST_CASE("traffic: affine above the last-level cache, through non-temporal stores", "[traffic]") {
  RunOptions options;
  options.target.llc_bytes = 1 << 10;
  const ir::Graph graph = optimised("x*w + b", {{"x", {4, 6, 16, 16}}, {"w", {4, 6, 1, 1}}, {"b", {4, 6, 1, 1}}});
  std::string log;
  options.log = &log;
  const Counts counts = counted(graph, options);
  CHECK_THAT(log, Catch::Contains("non-temporal"));
  CHECK(each(input(counts, 0).loads, 1));
  CHECK(each(stored(graph, counts)[0]->stores, 1));
}

TEST_CASE("traffic: gathered rows are loaded once, and later indices are checked within their array", "[traffic]") {
  const ir::Graph graph = ir::parse_graph(R"(
    %0 = input x : f32[128, 48]
    %1 = input i : i8[30]
    %2 = place %1 {128, 0, 0} : i64[30]
    %3 = reshape %2 : i64[30, 1]
    %4 = broadcast %3 : i64[30, 48]
    %5 = gather %0, %4 {0} : f32[30, 48]
    return y = %5)");
  const auto all = [](const std::vector<std::uint8_t>& counters) { return std::accumulate(counters.begin(), counters.end(), 0); };
  int ahead = 0;
  for (RunOptions options : every_form()) {
    for (const bool from_memory : {false, true}) {
      std::string log;
      options.log = &log;
      if (from_memory) options.target.l2_bytes = 1 << 10;
      const Counts counts = counted(graph, options);
      const bool asks = log.find("prefetches") != std::string::npos;
      CHECK(all(input(counts, 0).loads) == 30 * 48);
      CHECK(all(input(counts, 1).loads) == (asks ? 2 : 1) * 30);
      CHECK(each(stored(graph, counts)[0]->stores, 1));
      ahead += asks;
    }
  }
  CHECK(ahead > 0);
}

TEST_CASE("traffic: elementwise nests, transposed operands and sums read each element once", "[traffic]") {
  once("x*s + t", {{"x", {37, 65}}, {"s", {65}}, {"t", {37, 1}}});
  once("transpose(x) + y", {{"x", {67, 130}}, {"y", {130, 67}}});
  once("transpose(x, [0, 2, 1])*2", {{"x", {3, 41, 23}}});
  once("sum(x)", {{"x", {70, 133}}});
  once("sum(x, axis=1)", {{"x", {9, 5000}}});
  once("sum(x, axis=0)", {{"x", {523, 70}}});
  once("sum(x, axis=0)", {{"x", {4100, 3}}});
  once("sum(x, axis=[0, 2])", {{"x", {6, 5, 33}}});
  once("max(x*y, axis=1)", {{"x", {20, 90}}, {"y", {20, 90}}});
  std::string as_loop = "x", in_parts = "x";
  for (int i = 0; i < 300; ++i)
    as_loop = "(" + as_loop + "*0.5 + y)", in_parts = "(" + in_parts + (i * i % 7 < 3 ? "*0.5 + y)" : " + y*0.5)");
  once(as_loop.c_str(), {{"x", {3001}}, {"y", {3001}}});
  once(in_parts.c_str(), {{"x", {3001}}, {"y", {3001}}});
  once("x*y + z", {{"x", {11, 13}}, {"y", {11, 13}}, {"z", {11, 13}}}, true);
  once("sum(x*y, axis=0)", {{"x", {19, 33}}, {"y", {19, 33}}}, true);
}

TEST_CASE("traffic: each array of an array list is read once through the pointer table", "[traffic]") {
  std::string names;
  Inputs inputs;
  for (int t = 0; t < 12; ++t) {
    names += fmt::format("{}x{}", t ? ", " : "", t);
    inputs.push_back({fmt::format("x{}", t), {9, 37}});
  }
  for (const char* const axis : {"0", "1", "2"}) {
    once(fmt::format("tanh(stack([{}], {}))", names, axis).c_str(), inputs);
    once(fmt::format("sum(stack([{}], {}), {})", names, axis, axis).c_str(), inputs);
    once(fmt::format("sum(stack([{}], {}), 1)", names, axis).c_str(), inputs);
  }
}

TEST_CASE("traffic: the gradient of affine reads x and dy once", "[traffic]") {
  const char* const formula = "y = x*w + b; dx, dw, db = vjp(y, [x, w, b], d)";
  const auto check = [&](const Inputs& inputs) {
    const ir::Graph graph = optimised(formula, inputs);
    for (const RunOptions& options : every_form()) {
      const Counts counts = counted(graph, options);
      INFO(ir::print(graph) << "vectors of " << options.target.vector_bytes << ", masked " << options.masked << ", threads "
                            << options.threads);
      CHECK(counts.kernels == 1);
      for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
        const std::string& name = graph.inputs[i].name;
        if (name == "x" || name == "d") CHECK(each(input(counts, i).loads, 1));
        if (name == "b") CHECK(each(input(counts, i).loads, 0));
      }
      for (const Counts::Array* a : stored(graph, counts)) CHECK(each(a->stores, 1));
      std::int64_t read = 0;
      for (std::size_t i = 0; i < graph.inputs.size(); ++i)
        if (graph.inputs[i].name != "b") read += static_cast<std::int64_t>(input(counts, i).loads.size() * 4);
      CHECK(counts.bytes_read == read);
    }
  };
  check({{"x", {6, 7, 5, 9}}, {"w", {6, 7, 1, 1}}, {"b", {6, 7, 1, 1}}, {"d", {6, 7, 5, 9}}});
  check({{"x", {300, 70}}, {"w", {70}}, {"b", {70}}, {"d", {300, 70}}});
}

TEST_CASE("traffic: slices and strided arguments read only their elements", "[traffic]") {
  const ir::Graph graph = optimised("2*x[3:-1] + y", {{"x", {104}}, {"y", {100}}});
  for (const RunOptions& options : every_form()) {
    const Counts counts = counted(graph, options);
    const std::vector<std::uint8_t>& x = input(counts, 0).loads;
    REQUIRE(x.size() == 104);
    CHECK(each({x.begin(), x.begin() + 3}, 0));
    CHECK(each({x.begin() + 3, x.begin() + 103}, 1));
    CHECK(x[103] == 0);
    CHECK(counts.bytes_read == 800);
    CHECK(counts.bytes_loaded() == 800);
    CHECK(counts.bytes_written == 400);
  }
  once("x[::2] + x[1::2]", {{"x", {130}}});
  once("x[:50] + x[50:]", {{"x", {100}}});
  once("x[::-1]*2", {{"x", {77}}});
}

TEST_CASE("traffic: an element read through overlapping slices counts once", "[traffic]") {
  for (const auto& [formula, shape] : std::vector<std::pair<const char*, Shape>>{
           {"x[2:] - 2*x[1:-1] + x[:-2]", {1000}},
           {"x[2:, :] - 2*x[1:-1, :] + x[:-2, :]", {50, 33}},
       }) {
    const ir::Graph graph = optimised(formula, {{"x", shape}});
    const Counts counts = counted(graph);
    INFO(formula);
    CHECK(counts.bytes_read == ir::element_count(shape) * 4);
    CHECK(counts.bytes_loaded() == 3 * counts.bytes_written);
  }
}

TEST_CASE("traffic: a softmax rereads its row from the caches, or counts it once for each sweep", "[traffic]") {
  const char* const formula = "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)";
  const ir::Graph graph = optimised(formula, {{"x", {5, 700}}});
  for (RunOptions options : every_form()) {
    INFO("vectors of " << options.target.vector_bytes << ", masked " << options.masked);
    Counts counts = counted(graph, options);
    CHECK(counts.kernels == 1);
    CHECK(each(input(counts, 0).loads, 2));  // the maximum; then the sum, which caches the exponentials
    CHECK(each(stored(graph, counts)[0]->stores, 1));
    CHECK(counts.bytes_read == 5 * 700 * 4);
    CHECK(counts.bytes_written == 5 * 700 * 4);
    options.target.l2_bytes = 1 << 10;  // smaller than a row
    counts = counted(graph, options);
    CHECK(each(input(counts, 0).loads, 3));
    CHECK(counts.bytes_read == 3 * 5 * 700 * 4);
    CHECK(counts.bytes_read == counts.bytes_loaded());
    CHECK(counts.bytes_written == 5 * 700 * 4);
  }
}

TEST_CASE("traffic: reductions over the other axes read the same elements", "[traffic]") {
  for (const Shape& s : {Shape{37, 65}, {300, 7}, {8, 3}, {1, 70}, {600, 1}}) {
    once("r = sum(x, axis=0); c = sum(x*x, axis=1); m = max(x, axis=0)", {{"x", s}});
    // a reduction outside of few columns has a kernel of its own
    if (s[1] >= 16 || s[0] * s[1] < 256) once("r = sum(x, axis=0) + b; c = x*2; a = min(x, axis=1)", {{"x", s}, {"b", {s[1]}}});
  }
  once("r = mean(x, axis=[0, 1]); c = sum(x*x, axis=2)", {{"x", {5, 70, 33}}});
  once("r = prod(x, axis=0); c = sum(x*x, axis=[1, 2])", {{"x", {5, 70, 33}}}, true);
}

TEST_CASE("traffic: threads that split a row read it once in each sweep, and store its results once", "[traffic]") {
  const ir::Graph graph =
      optimised("m = max(x, axis=-1, keepdims=true); u = exp(x - m); s = sum(u, axis=-1, keepdims=true); p = u/s", {{"x", {1, 30'011}}});
  const ir::Graph columns = optimised("s = sum(x*x, axis=0); m = max(x, axis=0)", {{"x", {5003, 3}}});
  for (RunOptions options : every_form()) {
    INFO("vectors of " << options.target.vector_bytes << ", masked " << options.masked);
    options.threads = 3;
    options.split_work = 1;
    options.target.l2_bytes = 1 << 10;
    std::string log;
    options.log = &log;
    Counts counts = counted(graph, options);
    CHECK_THAT(log, Catch::Contains("3 phases"));
    CHECK(counts.kernels == 1);
    CHECK(each(input(counts, 0).loads, 3));
    for (const Counts::Array* a : stored(graph, counts)) CHECK(each(a->stores, 1));
    CHECK(counts.bytes_read == 3 * 30'011 * 4);
    log.clear();
    counts = counted(columns, options);
    CHECK_THAT(log, Catch::Contains("2 phases"));
    CHECK(each(input(counts, 0).loads, 1));
    for (const Counts::Array* a : stored(columns, counts)) CHECK(each(a->stores, 1));
  }
}

TEST_CASE("traffic: golden functions store each element once, and load it at most once in each sweep", "[traffic]") {
  for (const Golden& golden : kGolden) {
    Extents extents;
    std::int64_t next = 9;
    for (const char c : letters_of(golden)) extents[c] = next, next += 8;
    const ir::Graph graph = graph_of(golden, extents);
    INFO(golden.name << "\n" << ir::print(graph));
    const Counts counts = counted(graph);
    std::int64_t written = 0;
    for (const Counts::Array* a : stored(graph, counts)) {
      CHECK(each(a->stores, 1));
      written += static_cast<std::int64_t>(a->stores.size() * a->element_bytes);
    }
    CHECK(counts.bytes_written == written);
    CHECK(counts.bytes_read <= counts.bytes_loaded());
    CHECK(counts.kernels == golden.kernels);
  }
}
