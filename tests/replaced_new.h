// Replaces `new` and `delete` of the program, whose test says what memory comes from. For one source of a program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace onepass::test {
/// Defined by the test. Null: there is no memory. What it gives is freed by std::free.
void* memory_of_new(std::size_t bytes) noexcept;
}  // namespace onepass::test

void* operator new(std::size_t bytes) {
  if (void* const memory = onepass::test::memory_of_new(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return onepass::test::memory_of_new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
