// Captured: what a CUDA graph uses that a caller captures on the stream of a StreamScope. The graph's launches come later and are unknown, so
// arrays, memory, programs and reports are kept until the driver has destroyed the graph and all its executable copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "onepass/array.h"
#include "runtime/cuda/device.h"

namespace onepass::runtime::cuda {

struct Gpu::Captured {
  struct Freed {
    MemoryPool::Block* place;
    StreamPointer last;
  };

  std::uint64_t id = 0;  // the driver's number of the capture
  std::vector<Array> arrays = {};
  std::vector<ModulePointer> modules = {};
  std::vector<Report*> reports = {};
  std::vector<Block> parameters = {};  // kernel parameters that exceed a launch's limit
  // Memory of the capture's calls that no array uses any more. Later calls of the capture reuse it. Guarded by the pool's lock, like the
  // next two.
  std::vector<Freed> freed = {};
  std::size_t blocks = 0;  // all memory of the capture's calls; `freed` has room for it
  bool is_over = false;    // the driver has destroyed the graph
};

}  // namespace onepass::runtime::cuda
