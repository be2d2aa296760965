// What a binding to another language needs besides the C++ interface: lines of that language, indices as a list,
// options by name. A program in C++ needs
// nothing of it, so onepass.h leaves it out. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/device.h"
#include "onepass/export.h"
#include "onepass/options.h"
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

/// Sets one option by its name. "mode", "compile" and "device" are named as in C++ ("cuda" is "cuda:0"); "relax" is "none", "all" or some of contract,
/// reassociate and approximate, with commas between; flags are "true" or "false"; the others are whole numbers: "threads", "vector_bytes", "depth"
/// and "after_calls" (of Specialization), "memory_budget", "array_bytes", "work" and "compile_ms" (of Limits).
/// Errors: NameError for a name that is no option, ValueError for a value that it does not have.
ONEPASS_API
void set_option(Options& options, std::string_view name, std::string_view value);
/// The device of that name: "cpu", "cuda", "cuda:1".
ONEPASS_API
Device device_of(std::string_view name);

}  // namespace onepass::detail
