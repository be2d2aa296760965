// Numbers that a recorded function read from variables that live on: a call sees cheaply whether one has changed, without running the function.
// What a variable is the recording knows from its address alone. It is looked at again only where reading it is allowed at any later call:
// a variable that the function object has a reference or pointer to, a part of that object, a global or static variable. Not the
// function's own local variables, nor what lies on the heap: that may be gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace onepass::runtime {

/// Which variables they are, and what stood there.
class CapturedNumbers {
 public:
  /// `bytes`: at most 8.
  void add(const void* variable, std::uint32_t bytes);
  /// Has one another value than when it was read?
  bool changed() const noexcept {
    for (const Number& n : numbers_)
      if (bits_at(n.variable, n.bytes) != n.bits) return true;
    return false;
  }
  /// Forgets those that the function itself has written since.
  void keep_unchanged();
  std::size_t size() const noexcept { return numbers_.size(); }

 private:
  struct Number {
    const void* variable;
    std::uint64_t bits;
    std::uint32_t bytes;
  };
  // One load, so that a variable that another thread writes is read whole.
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

/// While a function is recorded: which of the variables that it reads are captured.
class CaptureWatch {
 public:
  explicit CaptureWatch(CapturedNumbers& numbers) : numbers_(numbers) {}
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;
  /// A function object is run, perhaps within another one, until leave().
  void enter(const void* object, std::size_t bytes);
  void leave() { objects_.pop_back(); }
  void read(const void* variable, std::uint32_t bytes);

 private:
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;
  bool is_captured(std::uintptr_t at);

  CapturedNumbers& numbers_;
  std::vector<std::span<const std::byte>> objects_;
  std::vector<Range> globals_;  // found when they are first asked for
  bool knows_globals_ = false;
};

}  // namespace onepass::runtime
