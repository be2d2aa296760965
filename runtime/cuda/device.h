// Device: one GPU as this process uses it: its context, a stream, memory that is kept for the next call, modules that are loaded once.
// Every failure is an Error of one sentence (driver.h) and leaves the device as it was: what was taken goes back to the pool.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/target.h"
#include "runtime/cuda/driver.h"

namespace onepass::runtime::cuda {

struct DeviceStats {
  std::int64_t uploaded = 0, downloaded = 0;  // bytes
  std::int64_t launches = 0, compiles = 0, modules_from_disk = 0;
  std::int64_t held = 0, in_use = 0;  // bytes of device memory: taken from the driver; of these, not in the pool
};

class Device {
 public:
  /// Device number `ordinal` of those that the driver shows, opened at the first call that succeeds; kept for good. Error where there is none.
  static Device& get(int ordinal = 0);

  const std::string& name() const { return name_; }
  const compiler::cuda::DeviceTarget& target() const { return target_; }

  /// Memory of the device, from the pool where it has some of that size; at a multiple of 256.
  class Memory {
   public:
    Memory() = default;
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept {
      std::swap(device_, other.device_), std::swap(address_, other.address_), std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Memory();
    std::int64_t address() const { return static_cast<std::int64_t>(address_); }

   private:
    friend class Device;
    Device* device_ = nullptr;
    DevicePointer address_ = 0;
    std::size_t bytes_ = 0;
  };

  /// What calls do in turn. While it lives, the calling thread has the device.
  class Session {
   public:
    explicit Session(Device& device);
    ~Session();
    Session(const Session&) = delete;
    Memory allocate(std::size_t bytes);
    void upload(const Memory& to, const void* from, std::size_t bytes);
    void download(void* to, const Memory& from, std::size_t bytes);
    /// The program's module: loaded before, from the disk cache, or compiled by NVRTC.
    void* module(const std::string& text);
    void* function(void* module, const std::string& name);
    void launch(void* function, const compiler::cuda::DeviceKernel& kernel, const compiler::cuda::DeviceNumbers& numbers,
                std::span<const std::int64_t> words);
    /// Waits for all that was begun.
    void finish();

   private:
    Device& d_;
    std::unique_lock<std::mutex> lock_;
    std::vector<Memory> far_words_;  // read by launches that have not ended
    bool begun_ = false;
  };

  DeviceStats stats() const;
  /// Gives what the pool holds back to the driver.
  void trim();

 private:
  Device(const Driver& driver, int ordinal);
  void put_back(DevicePointer address, std::size_t bytes) noexcept;
  void trim_pool() noexcept;
  static constexpr std::size_t kModules = 256;  // that stay loaded

  const Driver& driver_;
  std::string name_;
  compiler::cuda::DeviceTarget target_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  mutable std::mutex mutex_, pool_mutex_;  // pool_mutex_: of pool_ and stats_
  std::multimap<std::size_t, DevicePointer> pool_;
  std::unordered_map<std::string, void*> modules_;  // by text
  DeviceStats stats_;
};

}  // namespace onepass::runtime::cuda
