// .npy files whose bytes are there already, and the part of one that comes before its elements: for containers of them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "onepass/array.h"

namespace onepass::runtime {

/// As load_npy of a file with these bytes, which `owner` keeps; `name` stands in messages. Elements that are not aligned are copied.
Array array_of_npy(const std::string& name, std::span<std::byte> bytes, std::shared_ptr<void> owner);

/// The start of a file of format 1.0 whose elements begin at a multiple of 64; they follow in C order, bf16 as u16.
std::string npy_header(const Array& array);

}  // namespace onepass::runtime
