// .npy files in memory, and .npy headers without the elements; for containers of .npy files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "onepass/array.h"

namespace onepass::runtime {

/// Does the same as load_npy for a file with these bytes, which `owner` keeps alive; `name` appears in messages. Copies misaligned
/// elements.
Array array_of_npy(const std::string& name, std::span<std::byte> bytes, std::shared_ptr<void> owner);

/// Returns the header of a file of format 1.0, padded so that elements start at a multiple of 64. The elements follow in C order; bf16 is
/// stored as u16.
std::string npy_header(const Array& array);

}  // namespace onepass::runtime
