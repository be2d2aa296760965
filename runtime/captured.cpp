// See captured.h.
#include "runtime/captured.h"

#include <algorithm>

#include "runtime/os.h"

namespace onepass::runtime {

void CapturedNumbers::add(const void* variable, std::uint32_t bytes) {
  for (const Number& n : numbers_)
    if (n.variable == variable && n.bytes == bytes) return;  // the first value counts: a later change drops the variable at the end
  numbers_.push_back({variable, bits_at(variable, bytes), bytes});
}

void CapturedNumbers::keep_unchanged() {
  std::erase_if(numbers_, [](const Number& n) { return bits_at(n.variable, n.bytes) != n.bits; });
  numbers_.shrink_to_fit();
}

void CaptureWatch::enter(const void* object, std::size_t bytes) { objects_.emplace_back(static_cast<const std::byte*>(object), bytes); }

void CaptureWatch::read(const void* variable, std::uint32_t bytes) {
  constexpr std::size_t kMost = 64;  // a call checks all variables
  const auto at = reinterpret_cast<std::uintptr_t>(variable), here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)),
             base = reinterpret_cast<std::uintptr_t>(this);
  if (at >= std::min(here, base) && at < std::max(here, base)) return;  // on the stack above the recording: a local of the function
  if (numbers_.size() < kMost && is_captured(at)) numbers_.add(variable, bytes);
}

bool CaptureWatch::is_captured(std::uintptr_t at) {
  constexpr std::size_t kLooked = 4096;  // limit for a large function object
  for (const std::span<const std::byte> object : objects_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(object.data());
    if (at >= begin && at < begin + object.size()) return true;
    for (std::size_t i = 0; i + sizeof at <= std::min(object.size(), kLooked); i += alignof(void*)) {
      std::uintptr_t word = 0;
      std::memcpy(&word, object.data() + i, sizeof word);
      if (word == at) return true;
    }
  }
  if (!knows_globals_) {
    globals_ = os::writable_images();
    knows_globals_ = true;
  }
  return std::ranges::any_of(globals_, [&](const Range& r) { return at >= r.first && at < r.second; });
}

}  // namespace onepass::runtime
