// A planned program on a device, from arrays of the host to arrays of the host: what `onepass run --device cuda` does.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "onepass/array.h"
#include "runtime/cuda/device.h"
#include "runtime/launch.h"

namespace onepass::runtime::cuda {

/// The launches of a partition and the program that they are of; knows no device's memory.
struct DeviceLaunch {
  compiler::Planned planned;
  compiler::cuda::DeviceNumbers numbers;
  compiler::cuda::DeviceKernel kernel;
};
struct DevicePlan {
  std::vector<DeviceLaunch> launches;
  std::string text;
};
/// `zeros`: of each input, the bytes from its memory's start to its element (0, …, 0). Memory starts at multiples of 16.
DevicePlan plan_for_device(const ir::Graph& graph, const compiler::Partition& partition, std::span<const compiler::Layout> layouts,
                           std::span<const std::int64_t> zeros, const compiler::cuda::DeviceTarget& target);

/// Copies the inputs to the device, runs, copies the results back. `graph`: what Program::report optimised for these inputs; the slots have the
/// values of its recording. The results have the bits that the CPU gives.
///
/// Errors    Error and MemoryError, one sentence each; nothing of a result is given then, and the device can be used again unless it is lost.
std::vector<Array> call(Device& device, const ir::Graph& graph, std::span<const Array> inputs, bool unfused = false);

}  // namespace onepass::runtime::cuda
