// The signature of a call: the properties that a launch plan depends on, as a sequence of integers. A warm call compares it in place; a
// new plan stores it. It includes the values of number arguments. A plan is specialized on values that the recording depends on, such as
// an axis.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "onepass/array.h"
#include "runtime/launch.h"
#include "runtime/program.h"

namespace onepass::runtime {

struct CallSite {
  std::span<const Argument> arguments;
  std::span<Array* const> targets;  // for `call_into`
  bool into = false;
  int threads = 1;
};

/// True if the address is 16-byte aligned. GPU kernels use it to choose 16-byte vectors or single elements.
inline bool is_vector_aligned(const Array& array) { return (reinterpret_cast<std::uintptr_t>(array.data()) & 15) == 0; }
inline bool is_aligned(const Array& array) { return (reinterpret_cast<std::uintptr_t>(array.data()) & 63) == 0; }

inline constexpr int kDeviceShift = 34;  // bit position in an array's first integer: 0 for the CPU, else the device index plus 1
inline constexpr int kUnalignedShift = 42;
inline std::int64_t device_bits(Device device, const Array& array) {
  if (device.is_cpu()) [[likely]]
    return 0;
  return std::int64_t{device.index() + 1} << kDeviceShift | std::int64_t{!is_vector_aligned(array)} << kUnalignedShift;
}

/// Passes each integer of the signature to `word(integer, is_value)` until it returns false. `is_value`: true for a weakly typed number.
/// Two signatures with equal integers so far have the next number at the same position.
template <class F> bool walk_signature(const CallSite& site, F&& word) {
  if (!word(static_cast<std::int64_t>(site.into) | std::int64_t{site.threads} << 1 |
                static_cast<std::int64_t>(site.arguments.size()) << 16 | static_cast<std::int64_t>(site.targets.size()) << 40,
            false))
    return false;
  const auto array = [&](const Array& a, std::int64_t kind) {
    if (!word(kind | std::int64_t{static_cast<int>(a.dtype())} << 8 | std::int64_t{a.rank()} << 16 | std::int64_t{a.has_memory()} << 32 |
                  std::int64_t{kind == 3 && a.is_read_only()} << 33 | device_bits(a.device(), a),
              false))
      return false;
    for (const std::int64_t n : a.shape())
      if (!word(n, false)) return false;
    for (const std::int64_t n : a.strides())
      if (!word(n, false)) return false;
    return true;
  };
  for (const Argument& a : site.arguments) {
    if (a.array) {
      if (!array(*a.array, 1)) return false;
      continue;
    }
    const bool real = a.number.kind == compiler::Literal::Kind::Float;
    if (!word(2 | std::int64_t{static_cast<int>(a.number.kind)} << 8, false) ||
        !word(real ? std::bit_cast<std::int64_t>(a.number.real) : a.number.integer, true))
      return false;
  }
  bool aligned = true;
  for (const Array* const t : site.targets) {
    if (!t) {
      if (!word(0, false)) return false;
      continue;
    }
    aligned &= is_aligned(*t);
    if (!array(*t, 3)) return false;
  }
  return word(aligned, false);
}

/// True if the plan is valid for this call. Compares number values only if the plan is specialized on them.
inline bool matches(const CallSite& site, const LaunchPlan& plan) {
  const std::int64_t* next = plan.key.data();
  std::size_t value = 0;
  return walk_signature(site, [&](std::int64_t n, bool is_value) {
    const std::int64_t known = *next++;
    if (!is_value) return n == known;
    const bool pinned = plan.pinned[value++];
    return !pinned || n == known;
  });
}

struct Signature {
  std::vector<std::int64_t> key;
  std::vector<std::int64_t> values;  // values of the numbers, in order
  std::uint64_t family = 0;          // hash of the key without these values
};
inline std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ h >> 29;
}
inline Signature signature_of(const CallSite& site) {
  Signature s;
  walk_signature(site, [&](std::int64_t n, bool is_value) {
    s.key.push_back(n);
    if (is_value) s.values.push_back(n);
    else s.family = mix(s.family, static_cast<std::uint64_t>(n));
    return true;
  });
  return s;
}
/// Returns the hash of a signature without number values, combined with the values that its plans are specialized on.
inline std::uint64_t hash_of(const Signature& s, const std::vector<bool>& pinned) {
  std::uint64_t h = s.family;
  for (std::size_t i = 0; i < s.values.size() && i < pinned.size(); ++i)
    if (pinned[i]) h = mix(h, static_cast<std::uint64_t>(s.values[i]));
  return h;
}

}  // namespace onepass::runtime
