// relax: rewrites that strict arithmetic forbids and the caller allows. The pipeline runs it before simplify.
#pragma once

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// Returns `graph` rewritten as the relaxations allow; an equal graph without relaxations. See relax.cpp.
ir::Graph relax(const ir::Graph& graph, const Relax& relaxations);

}  // namespace onepass::compiler
