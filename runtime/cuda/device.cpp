// device: see device.h.
#include "runtime/cuda/device.h"

#include <algorithm>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/disk_cache.h"

namespace onepass::runtime::cuda {
namespace {

// The device's context is the calling thread's for a while.
class Current {
 public:
  Current(const Driver& driver, void* context) : driver_(driver) {
    driver.check(driver.cuCtxPushCurrent_v2(context), "entering the device's context");
  }
  ~Current() {
    void* context = nullptr;
    driver_.cuCtxPopCurrent_v2(&context);
  }
  Current(const Current&) = delete;

 private:
  const Driver& driver_;
};

// Sizes that the pool tells apart: at most an eighth is left over.
std::size_t rounded(std::size_t bytes) {
  std::size_t step = 512;
  while (bytes / step >= 16) step *= 2;
  return (std::max<std::size_t>(bytes, 1) + step - 1) / step * step;
}

}  // namespace

Device& Device::get(int ordinal) {
  const Driver* const driver = Driver::find();
  if (!driver) throw Error("cuda: " + Driver::why());
  static std::mutex* const mutex = new std::mutex;  // never destroyed, as the devices
  static auto* const devices = new std::map<int, Device*>;
  const std::lock_guard lock(*mutex);
  Device*& device = (*devices)[ordinal];
  if (!device) {
    int count = 0;
    driver->check(driver->cuDeviceGetCount(&count), "counting the devices");
    if (ordinal < 0 || ordinal >= count)
      throw Error(
          fmt::format("cuda: there is no device {}: the driver shows {}; see CUDA_VISIBLE_DEVICES, or run on the cpu", ordinal, count));
    device = new Device(*driver, ordinal);
  }
  return *device;
}

Device::Device(const Driver& driver, int ordinal) : driver_(driver) {
  int handle = 0, major = 0, minor = 0;
  driver.check(driver.cuDeviceGet(&handle, ordinal), fmt::format("opening device {}", ordinal));
  char name[256] = {};
  driver.check(driver.cuDeviceGetName(name, sizeof name - 1, handle), "asking for the device's name");
  name_ = name;
  const auto attribute = [&](int& value, int which) {
    driver.check(driver.cuDeviceGetAttribute(&value, which, handle), "asking for an attribute of the device");
  };
  attribute(major, kMajor), attribute(minor, kMinor);
  attribute(target_.processors, kMultiprocessors), attribute(target_.threads_per_processor, kThreadsPerMultiprocessor);
  target_.sm = 10 * major + minor;
  if (target_.sm < 75)
    throw Error(fmt::format("cuda: {} has compute capability {}.{}, and 7.5 or newer is needed: run on the cpu", name_, major, minor));
  driver.check(driver.cuDevicePrimaryCtxRetain(&context_, handle), "making the device's context");
  const Current current(driver, context_);
  constexpr unsigned kNonBlocking = 1;
  driver.check(driver.cuStreamCreate(&stream_, kNonBlocking), "making a stream");
}

Device::Memory::~Memory() {
  if (device_) device_->put_back(address_, bytes_);
}

void Device::put_back(DevicePointer address, std::size_t bytes) noexcept {
  const std::lock_guard lock(pool_mutex_);
  stats_.in_use -= static_cast<std::int64_t>(bytes);
  try {
    pool_.emplace(bytes, address);
  } catch (...) {
    driver_.cuMemFree_v2(address);
    stats_.held -= static_cast<std::int64_t>(bytes);
  }
}

void Device::trim_pool() noexcept {
  for (const auto& [bytes, address] : pool_) {
    driver_.cuMemFree_v2(address);
    stats_.held -= static_cast<std::int64_t>(bytes);
  }
  pool_.clear();
}

void Device::trim() {
  const std::lock_guard lock(mutex_);
  const Current current(driver_, context_);
  const std::lock_guard pool_lock(pool_mutex_);
  trim_pool();
}

DeviceStats Device::stats() const {
  const std::lock_guard lock(pool_mutex_);
  return stats_;
}

// ---------------------------------------------------------------------------------------------- session

Device::Session::Session(Device& device) : d_(device), lock_(device.mutex_) {
  d_.driver_.check(d_.driver_.cuCtxPushCurrent_v2(d_.context_), "entering the device's context");
}
Device::Session::~Session() {
  if (begun_) d_.driver_.cuStreamSynchronize(d_.stream_);  // memory goes back to the pool behind this
  far_words_.clear();
  void* context = nullptr;
  d_.driver_.cuCtxPopCurrent_v2(&context);
}

Device::Memory Device::Session::allocate(std::size_t bytes) {
  Memory out;
  out.bytes_ = rounded(bytes);
  const std::lock_guard lock(d_.pool_mutex_);
  if (const auto it = d_.pool_.find(out.bytes_); it != d_.pool_.end()) {
    out.address_ = it->second;
    d_.pool_.erase(it);
  } else {
    Result result = d_.driver_.cuMemAlloc_v2(&out.address_, out.bytes_);
    if (result == kOutOfMemory && !d_.pool_.empty()) {  // what the pool holds is of other sizes
      d_.trim_pool();
      result = d_.driver_.cuMemAlloc_v2(&out.address_, out.bytes_);
    }
    d_.driver_.check(result, fmt::format("allocating {} bytes on {}", out.bytes_, d_.name_));
    d_.stats_.held += static_cast<std::int64_t>(out.bytes_);
  }
  d_.stats_.in_use += static_cast<std::int64_t>(out.bytes_);
  out.device_ = &d_;
  return out;
}

void Device::Session::upload(const Memory& to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  begun_ = true;
  d_.driver_.check(d_.driver_.cuMemcpyHtoDAsync_v2(to.address_, from, bytes, d_.stream_),
                   fmt::format("copying {} bytes to {}", bytes, d_.name_));
  const std::lock_guard lock(d_.pool_mutex_);
  d_.stats_.uploaded += static_cast<std::int64_t>(bytes);
}
void Device::Session::download(void* to, const Memory& from, std::size_t bytes) {
  if (bytes == 0) return;
  begun_ = true;
  d_.driver_.check(d_.driver_.cuMemcpyDtoHAsync_v2(to, from.address_, bytes, d_.stream_),
                   fmt::format("copying {} bytes from {}", bytes, d_.name_));
  const std::lock_guard lock(d_.pool_mutex_);
  d_.stats_.downloaded += static_cast<std::int64_t>(bytes);
}

void* Device::Session::module(const std::string& text) {
  if (const auto it = d_.modules_.find(text); it != d_.modules_.end()) return it->second;
  // The cubin depends on the text, the device's generation and the compiler; without NVRTC, one of any compiler will do.
  const std::string key = fmt::format("cuda sm_{}\n{}", d_.target_.sm, text);
  std::string cubin;
  bool from_disk = false;
  if (auto entry = disk_cache().find(key)) {
    cubin = std::move(entry->object);
    from_disk = true;
  } else {
    const Nvrtc* const nvrtc = Nvrtc::find();
    if (!nvrtc) throw Error("cuda: " + Nvrtc::why() + "; or run on the cpu");
    if (!nvrtc->knows(d_.target_.sm))
      throw Error(
          fmt::format("cuda: NVRTC {}.{} does not know {} (compute capability {}.{}): install a newer CUDA toolkit, or run on the cpu",
                      nvrtc->major(), nvrtc->minor(), d_.name_, d_.target_.sm / 10, d_.target_.sm % 10));
    cubin = nvrtc->compile(text, d_.target_.sm).cubin;
  }
  if (d_.modules_.size() >= kModules) {
    for (const auto& [old, handle] : d_.modules_) d_.driver_.cuModuleUnload(handle);
    d_.modules_.clear();
  }
  void* handle = nullptr;
  const Result result = d_.driver_.cuModuleLoadData(&handle, cubin.data());
  if (result != 0 && from_disk) disk_cache().discard(key);
  d_.driver_.check(result, "loading a program on the device");
  if (!from_disk) disk_cache().store(key, compiler::Tier::Optimised, cubin);
  d_.modules_.emplace(text, handle);
  const std::lock_guard lock(d_.pool_mutex_);
  ++(from_disk ? d_.stats_.modules_from_disk : d_.stats_.compiles);
  return handle;
}

void* Device::Session::function(void* module, const std::string& name) {
  void* out = nullptr;
  d_.driver_.check(d_.driver_.cuModuleGetFunction(&out, module, name.c_str()), "finding the kernel " + name);
  return out;
}

void Device::Session::launch(void* function, const compiler::cuda::DeviceKernel& kernel, const compiler::cuda::DeviceNumbers& numbers,
                             std::span<const std::int64_t> words) {
  DevicePointer far = 0;
  void* arguments[] = {const_cast<std::int64_t*>(words.data())};
  if (kernel.far) {
    far_words_.push_back(allocate(words.size_bytes()));
    upload(far_words_.back(), words.data(), words.size_bytes());
    far = static_cast<DevicePointer>(far_words_.back().address());
    arguments[0] = &far;
  }
  begun_ = true;
  d_.driver_.check(d_.driver_.cuLaunchKernel(function, static_cast<unsigned>(numbers.blocks), 1, 1, kernel.threads, 1, 1,
                                             static_cast<unsigned>(numbers.shared_bytes), d_.stream_, arguments, nullptr),
                   "launching the kernel " + kernel.name);
  const std::lock_guard lock(d_.pool_mutex_);
  ++d_.stats_.launches;
}

void Device::Session::finish() {
  const Result result = d_.driver_.cuStreamSynchronize(d_.stream_);
  begun_ = false;
  d_.driver_.check(result, "waiting for the device");
}

}  // namespace onepass::runtime::cuda
