// Functions for bindings to other languages: source lines of that language, index lists, options by name. Programs in C++ do not need them, so
// onepass.h does not include this header. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/device.h"
#include "onepass/export.h"
#include "onepass/options.h"
#include "onepass/tensor.h"

namespace onepass::detail {

/// Returns whether this thread records a function now.
ONEPASS_API
bool is_recording() noexcept;

/// Sets the source line of the operators that this thread records from now on without a line of C++. Does nothing if it does not record.
ONEPASS_API
void recorded_at(std::string_view file, std::uint32_t line);

/// Names an argument of the function that this thread records, for messages and dumps, in place of `x0`, `x1`, …. Does nothing if it does not
/// record, and for a Tensor that is not an array argument.
ONEPASS_API
void name_argument(Tensor x, std::string_view name);

/// Records `x[{…}]` for a list of any length. Errors: those of Tensor::operator[].
ONEPASS_API
Tensor index(Tensor x, std::span<const Index> indices);

/// Sets one option by its name. "mode", "compile" and "device" are named as in C++ ("cuda" is "cuda:0"); "relax" is "none", "all" or some of contract,
/// reassociate and approximate, with commas between; flags are "true" or "false"; the others are whole numbers: "threads", "vector_bytes", "depth"
/// and "after_calls" (of Specialization), "memory_budget", "array_bytes", "work" and "compile_ms" (of Limits).
/// Errors: NameError for a name that is no option, ValueError for a value that it does not have.
ONEPASS_API
void set_option(Options& options, std::string_view name, std::string_view value);
/// Returns the device of that name: "cpu", "cuda", "cuda:1". Errors: ValueError for any other name.
ONEPASS_API
Device device_of(std::string_view name);

}  // namespace onepass::detail
