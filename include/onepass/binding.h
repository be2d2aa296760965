// What a binding to another language needs besides the C++ interface: lines of that language, indices as a list. A program in C++ needs
// nothing of it, so onepass.h leaves it out. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/export.h"
#include "onepass/tensor.h"

namespace onepass::detail {

/// Whether this thread records a function now.
ONEPASS_API
bool is_recording() noexcept;

/// What this thread records from now on, where it has no line of C++, was written there. Nothing where it records nothing.
ONEPASS_API
void recorded_at(std::string_view file, std::uint32_t line);

/// `x[{…}]` with a list whose length the program does not know. Errors: those of Tensor::operator[].
ONEPASS_API
Tensor index(Tensor x, std::span<const Index> indices);

}  // namespace onepass::detail
