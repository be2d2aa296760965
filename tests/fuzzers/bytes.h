// Source of a fuzzer's choices: the input's bytes, then zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace onepass::test {

class InputBytes {
 public:
  InputBytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool is_empty() const { return at_ == end_; }
  std::uint8_t byte() { return at_ == end_ ? std::uint8_t{0} : *at_++; }
  /// Returns a number below `n`, or 0 if n is 0.
  std::uint32_t below(std::size_t n) {
    const std::uint32_t low = byte(), number = n > 256 ? low | std::uint32_t{byte()} << 8 : low;
    return n == 0 ? 0 : number % static_cast<std::uint32_t>(n);
  }
  template <class T> T number() {
    std::uint8_t bytes[sizeof(T)];
    for (std::uint8_t& b : bytes) b = byte();
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  /// Returns at most `most` bytes.
  std::string text(std::size_t most) {
    const std::size_t wanted = below(most + 1), size = std::min(wanted, static_cast<std::size_t>(end_ - at_));
    std::string out(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return out;
  }
  std::string rest() {
    std::string out(reinterpret_cast<const char*>(at_), static_cast<std::size_t>(end_ - at_));
    at_ = end_;
    return out;
  }

 private:
  const std::uint8_t *at_, *end_;
};

}  // namespace onepass::test
