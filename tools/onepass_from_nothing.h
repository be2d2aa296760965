// onepass bench --from-nothing: what the first calls of a program cost, in fresh processes that wait for nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "onepass/array.h"
#include "onepass/options.h"
#include "tools/onepass_command.h"

namespace onepass::command {

/// The calls, in this process, into the same arrays; one line of JSON on standard output. `inputs` have these `types`.
void first_calls(const ProgramText& program, std::span<const runtime::ArgumentType> types, const Options& options,
                 const std::vector<Array>& inputs);

/// The same in processes of their own, in each of `modes` with an empty cache folder and with the one that the first left. `words`: of this
/// command, for them, without a mode. `about`: an object of JSON that each row begins with; empty: a table is printed.
void first_calls_from_nothing(const Words& words, std::span<const Mode> modes, const std::string& about);

}  // namespace onepass::command
