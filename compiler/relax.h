// relax: the rewritings that strict arithmetic does not allow and the caller does. The pipeline runs it before simplify.
#pragma once

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// `graph` as the relaxations allow it to be computed; equal to it where there are none. See relax.cpp.
ir::Graph relax(const ir::Graph& graph, const Relax& relaxations);

}  // namespace onepass::compiler
