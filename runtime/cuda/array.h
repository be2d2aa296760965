// Arrays with elements on a GPU: their memory, and copies from and to them. Used by runtime/array.cpp.
#pragma once

#include <cstddef>
#include <span>

#include "onepass/array.h"
#include "runtime/cuda/device.h"
#include "runtime/storage.h"

namespace onepass::runtime::cuda {

/// Device memory of an array, owned by onepass or by the user.
struct DeviceStorage : detail::Storage {
  Gpu* gpu = nullptr;
  Gpu::Block block;         // empty for the user's memory
  Gpu::StreamPointer last;  // stream of the last use; null: the memory is ready. Guarded by the device's lock
  detail::Shared<void> owner;
};
/// Returns the array's storage; null for an array without memory.
inline DeviceStorage* storage_of(const Array& array) { return static_cast<DeviceStorage*>(detail::ArrayAccess::storage(array)); }

/// Allocates or shares device memory. Throws MemoryError or Error, with one sentence, if the device or its memory is unavailable.
detail::Storage* allocate_elements(Device device, std::size_t bytes, bool zeroed, void*& data);
detail::Storage* share_memory(Device device, detail::Shared<void> owner);

/// Copies elements between two arrays of the same shape and dtype, at least one of them on a device. If they are on different devices, both
/// arrays must be contiguous; on one device they may have any strides.
void copy_elements(const Array& from, const Array& to);

}  // namespace onepass::runtime::cuda
