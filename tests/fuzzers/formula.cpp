// libFuzzer: bytes as a formula. The parser throws a FormulaError, or the program prints and parses back to itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/formula.h"

using namespace onepass;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const language::Program program = language::parse({reinterpret_cast<const char*>(data), size});
    if (!(language::parse(language::to_string(program)) == program)) __builtin_trap();
  } catch (const FormulaError&) {}
  return 0;
}
