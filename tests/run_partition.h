// Runs a graph through fuse, plan, schedule, code generation and the loader, with no cache and no policy: what the tests of the compiler
// compare with the reference. Runtime users have Program.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/loops/interpret.h"
#include "compiler/plan/schedule.h"
#include "compiler/target.h"
#include "ir/reference.h"

namespace onepass::test {

/// How often each element was loaded and stored, counted by the kernels themselves (compiler/llvm/count.h); and what the schedules say.
struct Counts {
  struct Array {
    ir::NodeId node;
    int copy;  // of a result that is an output twice
    std::size_t element_bytes;
    std::vector<std::uint8_t> loads, stores;  // of each element of the memory, gaps of strided inputs included; 255 is 255 or more
    std::int64_t bytes_loaded() const { return sum(loads); }
    std::int64_t bytes_stored() const { return sum(stores); }

   private:
    std::int64_t sum(const std::vector<std::uint8_t>& counters) const {
      std::int64_t n = 0;
      for (const std::uint8_t c : counters) n += c;
      return n * static_cast<std::int64_t>(element_bytes);
    }
  };
  std::vector<Array> arrays;                                    // inputs, then stored values
  std::int64_t kernels = 0, bytes_read = 0, bytes_written = 0;  // the last two by the schedules
  std::int64_t bytes_loaded() const {
    std::int64_t n = 0;
    for (const Array& a : arrays) n += a.bytes_loaded();
    return n;
  }
  std::int64_t bytes_stored() const {
    std::int64_t n = 0;
    for (const Array& a : arrays) n += a.bytes_stored();
    return n;
  }
};

struct RunOptions {
  bool unfused = false;
  compiler::Target target = compiler::Target::host();
  int threads = 1;  // items are run in as many shares, one after the other
  std::int64_t split_work = compiler::ScheduleOptions::kThreadedWork;
  bool masked = false;  // the quick tier: one masked loop, expansions called out of line
  bool aligned_stores = true;
  compiler::KernelLimits limits = {};
  std::string* log = nullptr;           // nests and schedules
  std::int64_t* tiled = nullptr;        // nests run in tiles where they can (compiler/tiles), and are counted here
  std::int64_t* interpreted = nullptr;  // LoopPrograms are verified and interpreted in place of kernels, and are counted here
  bool as_run = false;                  // these are what kernels run, with the schedule's tiles and vectors; else nests as they stand
  compiler::loops::TaskOrder order = compiler::loops::TaskOrder::Forward;
  std::function<void(compiler::loops::Program&)> change = {};  // what is done to these first
  Counts* counts = nullptr;                                    // not with inputs that share memory
};

std::vector<ir::Buffer> run(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const RunOptions& options = {});

}  // namespace onepass::test
