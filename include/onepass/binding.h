// Functions for bindings to other languages: source lines of that language, index lists, options by name. C++ programs do not need them,
// so onepass.h does not include this header. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/device.h"
#include "onepass/export.h"
#include "onepass/options.h"
#include "onepass/tensor.h"

namespace onepass::detail {

/// True if this thread is recording a function.
ONEPASS_API
bool is_recording() noexcept;

/// Sets the source line of later operators that this thread records without a C++ line. Does nothing if the thread is not recording.
ONEPASS_API
void recorded_at(std::string_view file, std::uint32_t line);

/// Names an argument of the function that this thread records, for messages and dumps, instead of `x0`, `x1`, …. Does nothing if the
/// thread is not recording or if the Tensor is not an array argument.
ONEPASS_API
void name_argument(Tensor x, std::string_view name);

/// Records `x[{…}]` for an index list of any length. Errors: as Tensor::operator[].
ONEPASS_API
Tensor index(Tensor x, std::span<const Index> indices);

/// Sets one option by its name. "mode", "compile" and "device" have the values of the C++ API ("cuda" means "cuda:0"). "relax" is "none",
/// "all" or a comma-separated list of contract, reassociate and approximate. Flags are "true" or "false".
///
/// Whole numbers: "threads", "vector_bytes", "depth" and "after_calls" (of Specialization), "memory_budget", "array_bytes", "work" and
/// "compile_ms" (of Limits). Errors: NameError for an unknown option, ValueError for an invalid value.
ONEPASS_API
void set_option(Options& options, std::string_view name, std::string_view value);
/// Returns the device with this name: "cpu", "cuda", "cuda:1". Errors: ValueError for any other name.
ONEPASS_API
Device device_of(std::string_view name);

}  // namespace onepass::detail
