// What `compare` finds: whether a mode agrees with mode unfused on a call, and the first operator where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onepass {

struct Comparison {
  bool equal = true;  ///< to the bit, any NaN being like any other
  std::string text;   ///< one sentence: what was compared, or what differs where
  std::string op;     ///< the first operator, in the order of recording, whose value differs; empty: none does when it is stored too
  std::vector<std::int64_t> index;  ///< the first element of its value that differs
  std::string value, expected;      ///< that element in the function's mode, and in mode unfused

  explicit operator bool() const noexcept { return equal; }
};

}  // namespace onepass
