// fuse for a device: as for the CPU, except that lengths decide whether reductions over rows and over columns share a kernel.
#pragma once

#include <span>

#include "compiler/cuda/target.h"
#include "compiler/fuse.h"

namespace onepass::compiler::cuda {

/// Returns the partition of a graph. `layouts` is as in plan(). Rows and columns are reduced in one pass if such kernels suit the device
/// (schedule.h), else in separate kernels.
Partition fuse(const ir::Graph& graph, FuseOptions options, std::span<const Layout> layouts, const DeviceTarget& target);

}  // namespace onepass::compiler::cuda
