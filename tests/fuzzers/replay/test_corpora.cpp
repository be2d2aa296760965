// Runs each fuzzer on its corpus, tests/fuzzers/corpus/NAME, with any compiler, so that fixed failures stay fixed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <catch2/catch.hpp>

namespace fs = std::filesystem;

// The build generates FUZZER(name) for each source of the parent folder.
#define FUZZER(name) extern "C" int onepass_fuzz_##name(const std::uint8_t* data, std::size_t size);
#include "fuzzers.def"
#undef FUZZER

TEST_CASE("corpora: each fuzzer runs on its inputs", "[corpora]") {
  const struct {
    const char* name;
    int (*run)(const std::uint8_t*, std::size_t);
  } fuzzers[] = {
#define FUZZER(name) {#name, onepass_fuzz_##name},
#include "fuzzers.def"
#undef FUZZER
  };
  for (const auto& fuzzer : fuzzers) {
    const fs::path folder = fs::path(ONEPASS_SOURCE_DIR) / "tests/fuzzers/corpus" / fuzzer.name;
    INFO(folder);
    REQUIRE(fs::is_directory(folder));
    int inputs = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      const auto exact = std::make_unique<std::uint8_t[]>(bytes.size());  // exact size, so that the sanitizer finds reads past the end
      std::memcpy(exact.get(), bytes.data(), bytes.size());
      INFO(entry.path());
      CHECK(fuzzer.run(exact.get(), bytes.size()) == 0);
      ++inputs;
    }
    CHECK(inputs > 0);
    fmt::print("{}: {} inputs\n", fuzzer.name, inputs);
  }
}
