// A job of `onepass run`: a program and the files of its inputs and outputs; one line of JSON in a batch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onepass/options.h"
#include "tools/onepass_command.h"

namespace onepass::command {

using Files = std::vector<std::pair<std::string, std::string>>;  // name, file; of a .npz file's arrays together, no name

struct Job {
  Source source;
  Files inputs, outputs;
  Mode mode = Mode::adaptive;
};

// `-` as the file of an output or of --stats.
constexpr std::string_view kStandardOutput = "/dev/stdout";
inline std::string output_path(const std::string& file) { return std::string(file == "-" ? kStandardOutput : file); }

/// The job of a line of a batch; `mode` where it names none. ValueError for a line that is no job.
Job job_of(const std::string& line, Mode mode);

}  // namespace onepass::command
