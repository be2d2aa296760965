// How a compiled function behaves: ordinary values, given when it is compiled.
#pragma once

#include <cstdint>
#include <string>

namespace onepass {

/// adaptive     the best kernels there are for a call (in this version: generic)
/// generic      fused kernels that any lengths, literals and scalar arguments can use
/// specialized  kernels for exact shapes (not in this version: an error says so)
/// unfused      one kernel for each operator: the judge in tests, the switch to flip when in doubt
/// reference    an interpreter with no compiler behind it
enum class Mode : std::uint8_t { adaptive, generic, specialized, unfused, reference };

/// Relaxations of strict arithmetic, each by itself (docs/language.md, "Accuracy"). Accepted everywhere; in this version they free nothing yet.
struct Relax {
  bool contract = false, reassociate = false, approximate = false;
  bool operator==(const Relax&) const = default;
};

namespace detail {
#ifdef NDEBUG  // of the program that calls
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif
}  // namespace detail

struct Options {
  Mode mode = Mode::adaptive;
  Relax relax{};
  int threads = 0;       ///< 0: the pool's count
  int vector_bytes = 0;  ///< of the registers to compile for: 16, 32 or 64; 0: the machine's. Results have the same bits.
  /// Records again at each call and compares: an Error where the function depends on something that changed, such as a captured number.
  bool check_recording = detail::kDebugBuild;
};

/// What a function did so far. Bytes are of array elements that kernels load and store (docs/language.md, `moved_bytes`).
struct Stats {
  std::int64_t calls = 0, recordings = 0, kernels = 0, launches = 0;
  std::int64_t compiles = 0, cache_hits = 0;
  std::int64_t bytes_read = 0, bytes_written = 0, bytes_allocated = 0;
};

}  // namespace onepass
