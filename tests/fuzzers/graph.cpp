// libFuzzer: bytes as a printed graph. The parser throws a ValueError, or the graph is valid, and prints and parses back to itself.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "onepass/error.h"

using namespace onepass;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ir::Graph graph = ir::parse_graph({reinterpret_cast<const char*>(data), size});
    ir::verify(graph, "parse");
    const std::string text = ir::print(graph);
    if (ir::print(ir::parse_graph(text)) != text) __builtin_trap();
  } catch (const ValueError&) {}
  return 0;
}
