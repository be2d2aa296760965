// choose_relax: which of the relaxations that a program may use it does use. A relaxation may hide from the passes what they do with the strict
// form: a sum of squares that became a contraction is not written out into the loop that reduces it, and the array of all sums is stored.
#pragma once

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// All of `allowed` if kernels then move no more between each other than those of the strict form, else all but one, else none. It follows
/// the recorded graph alone, and no length but 0, 1 and many: every mode and every call of one structure computes the same operators.
Relax choose_relax(const ir::Graph& recorded, const Relax& allowed);

}  // namespace onepass::compiler
