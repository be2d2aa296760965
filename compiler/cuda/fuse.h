// fuse for a device: as for the CPU, but that lengths decide whether reductions over rows and over columns share a kernel.
#pragma once

#include <span>

#include "compiler/cuda/target.h"
#include "compiler/fuse.h"

namespace onepass::compiler::cuda {

/// `layouts` as of plan(). Rows and columns are reduced in one pass where such kernels suit the device (schedule.h), else in kernels of their own.
Partition fuse(const ir::Graph& graph, FuseOptions options, std::span<const Layout> layouts, const DeviceTarget& target);

}  // namespace onepass::compiler::cuda
