// halves: functions of f16 and bf16 by shorter expansions. The pipeline runs it after relax, for the interpreter too.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// `graph` with the functions of halves that have a shorter expansion replaced by it. See halves.cpp.
ir::Graph shorten_halves(ir::Graph graph);

}  // namespace onepass::compiler
