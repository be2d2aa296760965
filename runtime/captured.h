// Numbers that a recorded function read from captured variables. A call detects a change cheaply, without running the function.
//
// The recording has only the addresses of variables. Later calls read a variable again only if that is always valid: the function object
// refers or points to it or contains it, or it is a global or static variable. Locals and heap objects are excluded, because they may no
// longer exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace onepass::runtime {

/// The captured variables, with their recorded values.
class CapturedNumbers {
 public:
  /// Adds a variable of at most 8 `bytes`.
  void add(const void* variable, std::uint32_t bytes);
  /// True if a variable has another value than at the recording.
  bool changed() const noexcept {
    for (const Number& n : numbers_)
      if (bits_at(n.variable, n.bytes) != n.bits) return true;
    return false;
  }
  /// Removes the variables that the function itself has changed since.
  void keep_unchanged();
  std::size_t size() const noexcept { return numbers_.size(); }

 private:
  struct Number {
    const void* variable;
    std::uint64_t bits;
    std::uint32_t bytes;
  };
  // Uses one load, so that a concurrent write by another thread is seen completely or not at all.
  static std::uint64_t bits_at(const void* variable, std::uint32_t bytes) noexcept {
    switch (bytes) {
      case 1: return load<std::uint8_t>(variable);
      case 2: return load<std::uint16_t>(variable);
      case 4: return load<std::uint32_t>(variable);
      default: return load<std::uint64_t>(variable);
    }
  }
  template <class T> static T load(const void* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::vector<Number> numbers_;
};

/// Detector of captured variables among the variables that a function reads during recording.
class CaptureWatch {
 public:
  explicit CaptureWatch(CapturedNumbers& numbers) : numbers_(numbers) {}
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;
  /// Marks the start of a function object's run, possibly nested, until leave().
  void enter(const void* object, std::size_t bytes);
  void leave() { objects_.pop_back(); }
  void read(const void* variable, std::uint32_t bytes);

 private:
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;
  bool is_captured(std::uintptr_t at);

  CapturedNumbers& numbers_;
  std::vector<std::span<const std::byte>> objects_;
  std::vector<Range> globals_;  // found at first use
  bool knows_globals_ = false;
};

}  // namespace onepass::runtime
