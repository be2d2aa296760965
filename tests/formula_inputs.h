// Helpers that give a formula its inputs: names and shapes, and buffers as arguments of a run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/record.h"
#include "ir/reference.h"

namespace onepass::test {

using Inputs = std::vector<std::pair<std::string, compiler::Shape>>;

inline std::vector<ir::ArrayView> views_of(const std::vector<ir::Buffer>& buffers) {
  std::vector<ir::ArrayView> out;
  for (const ir::Buffer& b : buffers) out.push_back(b.view());
  return out;
}

}  // namespace onepass::test
