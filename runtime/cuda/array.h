// Arrays whose elements are on a GPU: their memory, and copies from and to them. Called by runtime/array.cpp.
#pragma once

#include <cstddef>
#include <span>

#include "onepass/array.h"
#include "runtime/cuda/device.h"
#include "runtime/storage.h"

namespace onepass::runtime::cuda {

/// Memory of an array on a device, its own or somebody else's.
struct DeviceStorage : detail::Storage {
  Gpu* gpu = nullptr;
  Gpu::Block block;         // empty where somebody else has it
  Gpu::StreamPointer last;  // the stream of what uses it last; null: it is ready. Under the device's lock
  detail::Shared<void> owner;
};
/// Null for an array that was never given memory.
inline DeviceStorage* storage_of(const Array& array) { return static_cast<DeviceStorage*>(detail::ArrayAccess::storage(array)); }

/// MemoryError and Error, one sentence each, where the device or its memory cannot be had.
detail::Storage* allocate_elements(Device device, std::size_t bytes, bool zeroed, void*& data);
detail::Storage* share_memory(Device device, detail::Shared<void> owner);

/// From one array to another of the same shape and dtype, of which at least one is on a device. `to` is contiguous if the other is elsewhere,
/// and `from` as well; on one device both may have any strides.
void copy_elements(const Array& from, const Array& to);

}  // namespace onepass::runtime::cuda
