// What `vjp` of a compiled function adds to its recording and keeps of its call. Used by runtime/function.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "onepass/gradient.h"
#include "runtime/program.h"

namespace onepass::runtime {

/// To a recording whose results are marked: the derivatives, in a graph of their own that the plan keeps as its attachment, and the values that
/// are saved for them as further outputs.
void add_pullback(ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options& options);

/// After a call of such a recording. `forward` made it; `arrays` are its outputs; afterwards the results alone. `resets` counts those of the function.
detail::PullbackCore make_pullback(std::shared_ptr<const Program> forward, Program::Aftermath after, std::span<const Argument> arguments,
                                   std::vector<Array>& arrays, std::shared_ptr<const std::atomic<int>> resets);

/// To a recording whose results are marked: as its results instead, u·Jv and, for each argument with a derivative, v and Jᵀu, u and v random.
void add_both_products(ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options& options);

/// `values` computes the function, `derivatives` what add_both_products makes of it.
GradientCheck check_gradients(Program& values, Program& derivatives, std::span<const Argument> arguments);

}  // namespace onepass::runtime
