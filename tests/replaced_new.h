// Replaces `new` and `delete` of a test program, which provides the memory. At most one source of a program may include this header.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace onepass::test {
/// Allocates memory, or returns null to simulate failure. The test defines this function. The memory is freed by std::free.
void* memory_of_new(std::size_t bytes) noexcept;
}  // namespace onepass::test

void* operator new(std::size_t bytes) {
  if (void* const memory = onepass::test::memory_of_new(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return onepass::test::memory_of_new(bytes); }
// Fails like the other operators. Aligned memory comes from the system.
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  void* const asked = onepass::test::memory_of_new(1);
  std::free(asked);
  const auto unit = static_cast<std::size_t>(alignment);
  return asked ? std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit) : nullptr;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* const memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
