// joined: sums of products over several loops, as sums over one loop, so that they run in register tiles (compiler/loops/contract.h): one
// reduced loop can be cut into the blocks of the order of summation, and packed.
#pragma once

#include <optional>
#include <vector>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// A contraction with several reduced loops, with one in their place that runs through the same elements in the same order. Where an array
/// does not go through them in equal steps, its map has quotients and remainders of the one loop's index. None where the nest is no such
/// contraction, or could not run in register tiles.
std::optional<Planned> joined(const Planned& piece);

/// Joins the reduced loops of those pieces that run in register tiles then.
void join_reduced_loops(std::vector<Planned>& pieces, const Target& target, const ScheduleOptions& options);

}  // namespace onepass::compiler
