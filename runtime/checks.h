// The checks of Options::check_recording and Options::check_nan, before and after a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/program_state.h"

namespace onepass::runtime {

/// Runs the function again and throws Error with the difference if its recording differs from the plan's. `slot_bits`: the values of the
/// plan's scalar parameters in this call.
void check_recording(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits);

/// Does the same for a plan whose captured numbers have changed. Such a change need not change the recording.
void check_captures(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits);

/// Throws Error with the responsible operator if a result has a NaN or an infinity. `bases`: addresses of the arguments. For a call on a
/// device, `there` has the argument arrays themselves.
void check_nan(const Program::State& state, const LaunchOptions& options, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
               std::span<std::byte* const> bases, std::span<const Array> results, std::span<const Array* const> there = {});

/// True if both arrays have the same memory, layout and type.
bool same_view(const Array& a, const Array& b);

}  // namespace onepass::runtime
