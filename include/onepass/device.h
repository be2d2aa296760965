// Device: the location of an Array's elements, and settings for calls on a GPU. docs/cuda.md is the guide. Includes only small headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

/// The memory of this machine's processors, or of a GPU. A plain value: it may name an absent device, but using one is an error.
class Device {
 public:
  constexpr Device() noexcept = default;  // the CPU
  static constexpr Device cpu() noexcept { return {}; }
  /// Returns the GPU with this index in the driver's order. Throws ValueError unless 0 <= index < 255.
  static constexpr Device cuda(int index = 0) {
    if (index < 0 || index >= 255) fail_index(index);
    return Device(static_cast<std::uint8_t>(index + 1));
  }
  constexpr bool is_cpu() const noexcept { return number_ == 0; }
  constexpr bool is_cuda() const noexcept { return number_ != 0; }
  /// Returns the index among devices of the same kind; 0 for the CPU.
  constexpr int index() const noexcept { return number_ == 0 ? 0 : number_ - 1; }
  friend constexpr bool operator==(Device, Device) noexcept = default;

 private:
  constexpr explicit Device(std::uint8_t number) noexcept : number_(number) {}
  [[noreturn]] ONEPASS_API
  static void fail_index(int index);
  std::uint8_t number_ = 0;
};

/// Returns the number of GPUs that `Device::cuda` can name; 0 without a driver. Throws nothing; `onepass doctor` reports why a driver is
/// absent.
ONEPASS_API
int cuda_device_count() noexcept;

/// Waits until the device has finished all started work; returns immediately for the CPU. Throws Error if one of its kernels failed, and
/// IndexError if an earlier call met a bad index and this was not thrown yet.
ONEPASS_API
void synchronize(Device device);

namespace detail {
struct StreamHolder;
}

/// Scope in which this thread's calls and copies on that device use the caller's stream. `stream` is a `CUstream` or `cudaStream_t`; null
/// is CUDA's default stream. A call only enqueues its work: later work on the stream runs after it.
///
/// Arrays may move between scopes and threads: each use waits, on the device, for the previous use. The handle must be valid throughout
/// the scope. Scopes of one thread must end in reverse order. If the stream is being captured into a CUDA graph, calls become part of the
/// graph, which keeps their memory (docs/cuda.md, "CUDA graphs"); what a graph cannot contain throws Error.
class ONEPASS_API StreamScope {
 public:
  StreamScope(Device device, void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  detail::StreamHolder* holder_;
};

/// Counters of this process for one GPU. All are zero for an unused device.
struct DeviceStats {
  std::int64_t uploaded = 0, downloaded = 0;  ///< bytes, from and to the CPU
  std::int64_t launches = 0;                  ///< kernels, including kernels in CUDA graphs
  std::int64_t graph_launches = 0;            ///< calls that ran as one CUDA graph
  std::int64_t compiles = 0;                  ///< programs compiled by NVRTC
  std::int64_t programs_from_disk = 0;
  std::int64_t held = 0, in_use = 0;  ///< bytes of device memory: allocated from the driver; used by arrays and calls
};
ONEPASS_API
DeviceStats device_stats(Device device);

/// Returns unused memory of the device's pool to the driver.
ONEPASS_API
void trim_memory(Device device);

}  // namespace onepass
