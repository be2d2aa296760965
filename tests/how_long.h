// Length of tests, as set by the environment. ONEPASS_TEST_FULL=1 (tools/test --full) runs each test in full; ONEPASS_TEST_ROUNDS=n sets
// the number of rounds of random tests. Under a sanitizer, tests run a quarter of the usual rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "this_build.h"

namespace onepass::test {

inline bool is_full_run() {
  const char* const full = std::getenv("ONEPASS_TEST_FULL");
  return full && *full && *full != '0';
}

inline int times(int quick, int full) { return is_full_run() ? full : has_sanitizer() ? (quick + 3) / 4 : quick; }
inline int rounds(int quick, int full) {
  const char* const given = std::getenv("ONEPASS_TEST_ROUNDS");
  return given ? std::atoi(given) : times(quick, full);
}

/// False for every second case in short runs under a sanitizer.
inline bool runs_case(std::int64_t number) { return number % 2 == 0 || !has_sanitizer() || is_full_run(); }

/// True in full runs. Short runs check one of several forms: form number `check` modulo `forms`, so the next check has the next form.
inline bool is_checked(std::size_t form, std::size_t check, std::size_t forms) { return is_full_run() || form == check % forms; }

}  // namespace onepass::test
