// unroll: a reduction over a few elements, of what nothing else needs, becomes these elements' operators written one by one, so that it is
// no loop of its own: it runs inside the vector loop of whatever its result is used in. After reroll, before fuse; bits unchanged.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace onepass::compiler {

/// None where there is no such reduction. Near-linear in nodes. Each extent up to kMostUnrolled is a class of the generic plan, and each up to
/// kMostReread where all that is read is read again and again.
std::optional<ir::Graph> unroll(const ir::Graph& graph);

inline constexpr std::int64_t kMostUnrolled = 8, kMostReread = 32;

/// The attribute of an Identity that fuse stores whatever groups there are.
inline constexpr std::int64_t kStored = -1;

}  // namespace onepass::compiler
