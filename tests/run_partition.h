// Runs a graph through fuse, plan, schedule, code generation and the loader, without caches or tiering. Tests of the compiler compare its
// results with the reference. Tests of the runtime use Program.
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

/// Number of loads and stores of each element, counted by the kernels (compiler/llvm/count.h), and totals according to the schedules.
struct Counts {
  struct Array {
    ir::NodeId node;
    int copy;  // number of the copy, for a result that is several outputs
    std::size_t element_bytes;
    std::vector<std::uint8_t> loads, stores;  // for each element of the memory, with gaps of strided inputs; saturates at 255
    std::int64_t bytes_loaded() const { return sum(loads); }
    std::int64_t bytes_stored() const { return sum(stores); }

   private:
    std::int64_t sum(const std::vector<std::uint8_t>& counters) const {
      std::int64_t n = 0;
      for (const std::uint8_t c : counters) n += c;
      return n * static_cast<std::int64_t>(element_bytes);
    }
  };
  std::vector<Array> arrays;                                    // inputs, then materialized values
  std::int64_t kernels = 0, bytes_read = 0, bytes_written = 0;  // bytes according to the schedules
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
  int threads = 1;  // number of ranges into which tasks are split; ranges run one after another
  std::int64_t split_work = compiler::ScheduleOptions::kThreadedWork;
  bool masked = false;       // baseline tier: one masked loop, expansions called out of line
  bool specialised = false;  // kernels with the kernel parameters as constants, except scalar parameters
  bool aligned_stores = true;
  compiler::KernelLimits limits = {};
  std::string* log = nullptr;           // receives nests and schedules as text
  std::int64_t* tiled = nullptr;        // if set: nests run in the tiled interpreter (compiler/tiles) if possible; receives their number
  std::int64_t* interpreted = nullptr;  // if set: LoopPrograms are verified and interpreted instead of kernels; receives their number
  bool as_run = false;  // LoopPrograms have the schedule's tiles and vectors, like kernels; otherwise the loops of the plain nests
  compiler::loops::TaskOrder order = compiler::loops::TaskOrder::Forward;
  std::function<void(compiler::loops::Program&)> change = {};  // applied to each LoopProgram before it runs
  Counts* counts = nullptr;                                    // must be null if inputs share memory
};

std::vector<ir::Buffer> run(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const RunOptions& options = {});

}  // namespace onepass::test
