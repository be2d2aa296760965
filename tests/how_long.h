// How long tests go on, by the environment: ONEPASS_TEST_FULL=1 (tools/test --full) the whole of each, ONEPASS_TEST_ROUNDS=n so many rounds
// of random tests.
#pragma once

#include <cstdlib>

namespace onepass::test {

inline bool is_full_run() {
  const char* const full = std::getenv("ONEPASS_TEST_FULL");
  return full && *full && *full != '0';
}
inline int rounds(int quick, int full) {
  const char* const given = std::getenv("ONEPASS_TEST_ROUNDS");
  return given ? std::atoi(given) : is_full_run() ? full : quick;
}

}  // namespace onepass::test
