// join_puts: many writes into parts of one array, one after the other, as one array of parts. simplify runs it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Joins chains of writes (`put`), such as a host loop that sets one element in each iteration. Without it, every element of the array is
/// compared with every write. Takes linear time, but for writes of several elements.
ir::Graph join_puts(const ir::Graph& graph);

}  // namespace onepass::compiler
