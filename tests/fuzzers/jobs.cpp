// libFuzzer: bytes as a line of a batch of jobs, or as a dump that `onepass run` reads. The reader throws an Error or returns a program. A
// job's program is a formula, which is parsed. A dump's program is a graph, which is verified.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzzers/bytes.h"
#include "onepass/error.h"
#include "tools/onepass_command.h"
#include "tools/onepass_job.h"

using namespace onepass;
namespace fs = std::filesystem;

namespace {

struct File {
  std::string path;
  File() : path((fs::temp_directory_path() / ("onepass-fuzz-" + std::to_string(::getpid()) + ".json")).string()) {}
  ~File() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::InputBytes input(data, size);
  const Limits limits{.nesting = 100, .source_bytes = 1 << 16, .max_nodes = 10'000};
  try {
    command::Source source;
    if (input.byte() % 2 == 0) {
      command::Job job = command::job_of(input.rest(), Mode::adaptive);
      for (const auto& [name, file] : job.inputs)
        if (name.empty() || file == "-") std::abort();
      source = std::move(job.source);
    } else {
      static const File file;
      std::ofstream(file.path, std::ios::binary | std::ios::trunc) << input.rest();
      source = command::program_source("run", file.path, limits);
    }
    const ProgramText program = command::program_of(source, limits);
    if (program.outputs().empty()) std::abort();
  } catch (const Error&) {}
  return 0;
}
