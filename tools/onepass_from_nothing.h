// onepass bench --from-nothing: what the first calls of a program cost, in fresh processes that wait for nothing.
#pragma once

#include <vector>

#include "onepass/array.h"
#include "onepass/options.h"
#include "tools/onepass_command.h"

namespace onepass::command {

/// The calls, in this process; one line of JSON on standard output.
void first_calls(const ProgramText& program, const Options& options, const std::vector<Array>& inputs);

/// The same in processes of their own: modes adaptive and specialized, with an empty cache folder and with the one that the first left.
/// `words`: of this command, for them.
void first_calls_from_nothing(const Words& words, const Options& options, bool json);

}  // namespace onepass::command
