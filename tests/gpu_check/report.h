// The page of gpu_check's results: one HTML file that also contains the lines of JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace onepass::test {

std::string gpu_report(const std::vector<nlohmann::ordered_json>& lines);

}  // namespace onepass::test
