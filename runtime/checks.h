// What Options::check_recording and Options::check_nan look at, before and after a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/program_state.h"

namespace onepass::runtime {

/// Does the function, run again, record what it recorded for the plan? Error: what differs. `slot_bits`: the values that the plan's slots
/// have in this call.
void check_recording(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits);

/// The same for a plan whose captured numbers have changed, which need not show in what is recorded.
void check_captures(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits);

/// Have the results a NaN or an infinity? Error: which operator made it. `bases`: of the arguments; of a call on a device `there` are they
/// themselves.
void check_nan(const Program::State& state, const LaunchOptions& options, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
               std::span<std::byte* const> bases, std::span<const Array> results, std::span<const Array* const> there = {});

/// The same memory, seen the same way.
bool same_view(const Array& a, const Array& b);

}  // namespace onepass::runtime
