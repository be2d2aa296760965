// A graph run on a device as a plan of its own, from arrays of the host to arrays of the host: for tests, and for gpu_check.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "onepass/array.h"
#include "random_graph.h"
#include "runtime/cuda/device.h"

namespace onepass::test {

std::vector<Array> call_on_device(runtime::cuda::Gpu& gpu, const ir::Graph& graph, const std::vector<Array>& inputs, bool unfused = false);

/// Arrays around arguments, which must stay.
std::vector<Array> arrays_of(const Arguments& arguments);

/// What differs from the reference; empty: nothing does, to the bit.
std::string difference_from_reference(const ir::Graph& graph, const Arguments& arguments, const std::vector<Array>& results);

}  // namespace onepass::test
