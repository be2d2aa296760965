// The memory of arrays in the runtime: reference-counted, of any kind. Created by array.cpp and cuda/array.cpp.
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
