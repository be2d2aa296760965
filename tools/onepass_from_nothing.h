// onepass bench --from-nothing: the cost of a program's first calls, in fresh processes without warm-up.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "onepass/array.h"
#include "onepass/options.h"
#include "tools/onepass_command.h"

namespace onepass::command {

/// Times the calls in this process, into the same arrays. Prints one line of JSON on standard output. `inputs` must have these `types`.
void first_calls(const ProgramText& program, std::span<const runtime::ArgumentType> types, const Options& options,
                 const std::vector<Array>& inputs);

/// Runs first_calls() in separate processes: for each of `modes`, with an empty cache folder and then with the folder that the first run
/// filled. `words` are this command's words without a mode. `about` is a JSON object that begins each row; if it is empty, prints a table.
void first_calls_from_nothing(const Words& words, std::span<const Mode> modes, const std::string& about);

}  // namespace onepass::command
