// The memory of arrays as the runtime knows it: counted, whatever it is made of. Made by array.cpp and cuda/array.cpp.
#pragma once

#include <atomic>
#include <cstdint>

#include "onepass/array.h"

namespace onepass::detail {

struct Storage {
  std::atomic<std::uint32_t> references{1};
  void (*destroy)(Storage*) noexcept = nullptr;
};

struct ArrayAccess {
  static Storage* storage(const Array& array) { return array.storage_; }
};

}  // namespace onepass::detail
