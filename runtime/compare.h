// Runs a call's graph in two modes and finds the first operator with a different value. Called by Program::compare.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "onepass/array.h"
#include "onepass/compare.h"
#include "onepass/options.h"
#include "runtime/launch.h"

namespace onepass::runtime {

std::string_view text_of(Mode mode);

struct CompareRequest {
  const ir::Graph& graph;  // the recording, with the call's scalar parameters and the requested results
  std::span<const ArrayPlan> inputs;
  std::span<const std::byte* const> bases;  // addresses of the inputs
  const compiler::Target& target;
  LaunchOptions options;  // except `unfused`
  Mode mode, judge;
  Device device{};  // device of `mode`; the oracle runs on the CPU. `bases` are CPU memory in any case
};

/// Compares the results first. If they differ, compares the values of all operators in order, a few at a time. The kernels that compute
/// the results store these values as additional outputs, so that an error in them is reproduced.
Comparison compare(const CompareRequest& request);

/// Returns the first operator, in recording order, with a NaN or infinite value: its name, the element and, for a derivative, its forward
/// operator. Returns an empty text if no operator has one: rounding to a half then made the NaN or infinity.
std::string first_not_finite(const CompareRequest& request);

/// Returns the position of an Array's first NaN or infinity, such as `nan at [2, 0]`; empty if there is none.
std::optional<std::string> not_finite(const Array& array);

}  // namespace onepass::runtime
