// Result of `compare`: whether a mode agrees with mode unfused for a call, and the first operator where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onepass {

struct Comparison {
  bool equal = true;                ///< bitwise equality, with all NaNs equal
  std::string text;                 ///< one sentence: the compared values, or the difference and its location
  std::string op;                   ///< first differing operator in recording order; empty if none differs when materialized
  std::vector<std::int64_t> index;  ///< the first differing element
  std::string value, expected;      ///< that element in the function's mode, and in mode unfused

  explicit operator bool() const noexcept { return equal; }
};

}  // namespace onepass
