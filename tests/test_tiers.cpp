// Kernels in tiers: the quick code answers first, the optimised code takes over in the background, and no bit changes.
#include <catch2/catch.hpp>

#include <cstring>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "random_graph.h"
#include "runtime/kernel_cache.h"

using namespace onepass;

namespace {

// A graph of one group, with its kernel from the process's cache.
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

  // Runs that function; buffers in the order of the nest.
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

TEST_CASE("tiers: the optimised code takes over after two runs and gives the same bits", "[tiers]") {
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
    functions.push_back(one.kernel->code_to_run(0).compiled());
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
}

TEST_CASE("tiers: a kernel that is known is found, not compiled again", "[tiers]") {
  const OneKernel one("%0 = input x : f64[9]\n%1 = tanh %0 : f64[9]\n%2 = sub %1, %0 : f64[9]\nreturn y = %2");
  CHECK(one.compiled);
  const OneKernel again("%0 = input x : f64[9]\n%1 = tanh %0 : f64[9]\n%2 = sub %1, %0 : f64[9]\nreturn y = %2");
  CHECK_FALSE(again.compiled);
  CHECK(again.kernel == one.kernel);
}
