// The structs of DLPack: the old structs, from before version 1.0, which every library supports, and the versioned structs, which have a
// read-only flag.
// Source: https://dmlc.github.io/dlpack/latest/c_api.html.
//
// Included by runtime/dlpack.cpp and by bindings, but not by users, because their dlpack.h has the same names.
#pragma once

#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): the names are DLPack's
struct DLDevice {
  std::int32_t device_type, device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  std::uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
// NOLINTEND(readability-identifier-naming)
