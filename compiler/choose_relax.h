// choose_relax: selects which of the allowed relaxations a program uses. A relaxation can prevent later passes from optimizing the strict
// form. For example, unroll takes apart a small sum of squares but not a contraction, so the array of all sums would be materialized.
#pragma once

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// Returns all of `allowed` if the kernels then exchange no more data than in the strict form. Otherwise returns all relaxations except
/// one, or no relaxation if it does not suffice to drop one relaxation. The choice depends only on the recorded graph, with extents seen as
/// 0, 1 or many. So every mode and every call of one structure computes the same operators.
Relax choose_relax(const ir::Graph& recorded, const Relax& allowed);

}  // namespace onepass::compiler
