// A job of `onepass run`: a program and the files of its inputs and outputs. In a batch, one line of JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onepass/options.h"
#include "tools/onepass_command.h"

namespace onepass::command {

using Files = std::vector<std::pair<std::string, std::string>>;  // name, file; without a name: all arrays of a .npz file

struct Job {
  Source source;
  Files inputs, outputs;
  Mode mode = Mode::adaptive;
};

// The file `-`, for an output or for --stats, means standard output.
constexpr std::string_view kStandardOutput = "/dev/stdout";
inline std::string output_path(const std::string& file) { return std::string(file == "-" ? kStandardOutput : file); }

/// Parses the job of a batch line; `mode` is the default mode. Throws ValueError if the line is not a valid job.
Job job_of(const std::string& line, Mode mode);

}  // namespace onepass::command
