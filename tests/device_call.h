// Runs a graph on a device as one plan, with host arrays as inputs and results. Used by tests and by gpu_check.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "onepass/array.h"
#include "random_graph.h"
#include "runtime/cuda/device.h"

namespace onepass::test {

std::vector<Array> call_on_device(runtime::cuda::Gpu& gpu, const ir::Graph& graph, const std::vector<Array>& inputs, bool unfused = false);

/// Returns arrays that share the memory of `arguments`, which must outlive them.
std::vector<Array> arrays_of(const Arguments& arguments);

/// Returns a description of the first difference from the reference; empty if all bits are equal.
std::string difference_from_reference(const ir::Graph& graph, const Arguments& arguments, const std::vector<Array>& results);

}  // namespace onepass::test
