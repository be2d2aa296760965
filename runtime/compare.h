// Runs a call's graph in two modes and finds the first operator whose value differs. Called by Program::compare.
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
  const ir::Graph& graph;  // recorded, with the call's slots and the results that are wanted
  std::span<const ArrayPlan> inputs;
  std::span<const std::byte* const> bases;  // of the inputs
  const compiler::Target& target;
  LaunchOptions options;  // but for `unfused`
  Mode mode, judge;
  Device device{};  // where `mode` runs; the judge is of the cpu. `bases` are the cpu's memory all the same
};

/// The results first. Where they differ, the values of all operators, a few at a time and in order: stored by the very kernels that
/// compute the results, as additional outputs, so that what is wrong in them stays wrong.
Comparison compare(const CompareRequest& request);

/// The first operator, in the order of the recording, whose value has a NaN or an infinity: which, where, and whose derivative it is a part of.
/// Empty where none has, which then was made by rounding to a half.
std::string first_not_finite(const CompareRequest& request);

/// Where an Array has its first NaN or infinity: `nan at [2, 0]`, else nothing.
std::optional<std::string> not_finite(const Array& array);

}  // namespace onepass::runtime
