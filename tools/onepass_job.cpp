// See onepass_job.h.
#include "tools/onepass_job.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

#include "onepass/error.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

std::string string_member(const Json& value, std::string_view what) {
  if (!value.is_string()) throw ValueError(fmt::format("run: {} must be a string, not {}", what, value.type_name()));
  return value.get<std::string>();
}

Files files_member(const Json& value, const std::string& member) {
  if (!value.is_object())
    throw ValueError(fmt::format("run: \"{}\" must be an object of names and files, not {}", member, value.type_name()));
  Files files;
  for (const auto& [name, file] : value.items()) {
    if (name.empty()) throw ValueError(fmt::format("run: \"{}\" has a file without a name. Each file needs the name of its array", member));
    files.emplace_back(name, string_member(file, fmt::format("\"{}\" of \"{}\"", name, member)));
    if (member == "inputs" && files.back().second == "-")
      throw ValueError(fmt::format("run: the input `{}` of a job cannot be standard input. Give it a file", name));
  }
  return files;
}

}  // namespace

Job job_of(const std::string& line, Mode mode) {
  Json json;
  std::vector<std::set<std::string>> members;  // member names of the open objects
  const auto once = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) members.emplace_back();
    else if (event == Json::parse_event_t::object_end) members.pop_back();
    else if (event == Json::parse_event_t::key && !members.back().insert(parsed.get<std::string>()).second)
      throw ValueError(fmt::format("run: the job has the member {} twice", parsed.dump(-1, ' ', false, Json::error_handler_t::replace)));
    return true;
  };
  try {
    json = Json::parse(line, once);
  } catch (const Json::parse_error& error) { throw ValueError(fmt::format("run: the line is not valid JSON at byte {}", error.byte)); }
  if (!json.is_object()) throw ValueError(fmt::format("run: a job must be a JSON object, not {}", json.type_name()));
  Job job{.source = {.text = {}, .name = "formula"}, .inputs = {}, .outputs = {}, .mode = mode};
  if (!json.contains("formula")) throw ValueError("run: the job has no \"formula\". Add \"formula\": \"PROGRAM\"");
  for (const auto& [member, value] : json.items()) {
    if (member == "formula") job.source.text = string_member(value, "\"formula\"");
    else if (member == "inputs") job.inputs = files_member(value, member);
    else if (member == "outputs") {
      job.outputs = files_member(value, member);
      for (auto& [name, file] : job.outputs) file = output_path(file);
    } else if (member == "mode") job.mode = mode_of(string_member(value, "\"mode\""));
    else
      throw ValueError(fmt::format("run: a job cannot have the member \"{}\"{}; its members are formula, inputs, outputs, mode", member,
                                   suggestion(member, {"formula", "inputs", "outputs", "mode"})));
  }
  return job;
}

}  // namespace onepass::command
