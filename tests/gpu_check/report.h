// The page of what gpu_check found: one file of HTML that holds the lines of JSON too.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace onepass::test {

std::string gpu_report(const std::vector<nlohmann::ordered_json>& lines);

}  // namespace onepass::test
