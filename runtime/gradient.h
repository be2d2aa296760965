// Extends the recording of a compiled function for `vjp`, and keeps the residuals of its call. Used by runtime/function.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "onepass/gradient.h"
#include "runtime/program.h"

namespace onepass::runtime {

/// Adds derivatives to a recording with marked results. The derivatives are a separate graph, which the plan keeps as its attachment.
/// Residuals become additional outputs.
void add_pullback(ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options& options);

/// Makes the pullback after a call by `forward` of a recording that add_pullback extended. Removes the residuals from `arrays`, the call's
/// outputs. `resets` counts resets.
detail::PullbackCore make_pullback(std::shared_ptr<const Program> forward, Program::Aftermath after, std::span<const Argument> arguments,
                                   std::vector<Array>& arrays, std::shared_ptr<const std::atomic<int>> resets);

/// Replaces the results of a recording by u·Jv and, for each argument with a derivative, v and Jᵀu, with random u and v.
void add_both_products(ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options& options);

/// Checks gradients. `values` computes the function; `derivatives` computes the outputs of add_both_products.
GradientCheck check_gradients(Program& values, Program& derivatives, std::span<const Argument> arguments);

}  // namespace onepass::runtime
