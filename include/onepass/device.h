// Device: where an Array's elements are, and what calls with arrays of a GPU may be told. docs/cuda.md is the guide. A light header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

/// The memory of this machine's processors, or that of a GPU. A plain value: naming a device that is missing is not an error, using it is.
class Device {
 public:
  constexpr Device() noexcept = default;  // the cpu
  static constexpr Device cpu() noexcept { return {}; }
  /// GPU number `index` of those that the driver shows. ValueError unless 0 <= index < 255.
  static constexpr Device cuda(int index = 0) {
    if (index < 0 || index >= 255) fail_index(index);
    return Device(static_cast<std::uint8_t>(index + 1));
  }
  constexpr bool is_cpu() const noexcept { return number_ == 0; }
  constexpr bool is_cuda() const noexcept { return number_ != 0; }
  /// Of its kind: 0 for the cpu.
  constexpr int index() const noexcept { return number_ == 0 ? 0 : number_ - 1; }
  friend constexpr bool operator==(Device, Device) noexcept = default;

 private:
  constexpr explicit Device(std::uint8_t number) noexcept : number_(number) {}
  [[noreturn]] ONEPASS_API
  static void fail_index(int index);
  std::uint8_t number_ = 0;
};

/// How many GPUs `Device::cuda` can name; 0 where there is no driver. Throws nothing: `onepass doctor` says why there is none.
ONEPASS_API
int cuda_device_count() noexcept;

/// Waits until the device has done everything that was begun on it. Error where one of its kernels failed; the cpu is never waited for.
ONEPASS_API
void synchronize(Device device);

namespace detail {
struct StreamHolder;
}

/// A stream of the caller's own, a `CUstream` or `cudaStream_t` (null: CUDA's default stream), for the calls and copies of this thread on
/// that device, as long as the scope lasts. A call only puts its work on the stream: what the stream does later runs after it. Arrays
/// may go from scope to scope and from thread to thread: their next use waits, on the device, for the last. The handle must be valid in
/// the scope; scopes of one thread end in the reverse order in which they began.
class ONEPASS_API StreamScope {
 public:
  StreamScope(Device device, void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  detail::StreamHolder* holder_;
};

/// What this process did on one GPU so far. Zeros where it was never used.
struct DeviceStats {
  std::int64_t uploaded = 0, downloaded = 0;  ///< bytes, from and to the cpu
  std::int64_t launches = 0;                  ///< kernels, those of graphs included
  std::int64_t graph_launches = 0;            ///< calls whose kernels went as one CUDA graph
  std::int64_t compiles = 0;                  ///< programs compiled by NVRTC
  std::int64_t programs_from_disk = 0;
  std::int64_t held = 0, in_use = 0;  ///< bytes of device memory: taken from the driver; of these, in arrays and calls, not in the pool
};
ONEPASS_API
DeviceStats device_stats(Device device);

/// Returns unused memory of the device's pool to the driver.
ONEPASS_API
void trim_memory(Device device);

}  // namespace onepass
