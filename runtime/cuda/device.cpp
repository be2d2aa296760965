// See device.h.
#include "runtime/cuda/device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "ir/of_thread.h"
#include "onepass/error.h"
#include "runtime/cuda/capture.h"
#include "runtime/disk_cache.h"
#include "runtime/os.h"

namespace onepass::runtime::cuda {
namespace {

constexpr std::size_t kPart = 4u << 20;  // bytes of a copy in one pinned buffer
constexpr std::size_t kMostParts = 16;   // maximum pinned buffers of a device

// Scope that makes the device's context current on the calling thread.
class Current {
 public:
  Current(const Driver& driver, void* context) : driver_(driver), relaxed_(driver) {
    driver.check(driver.cuCtxPushCurrent_v2(context), "entering the device context");
  }
  ~Current() {
    void* context = nullptr;
    driver_.cuCtxPopCurrent_v2(&context);
  }
  Current(const Current&) = delete;

 private:
  const Driver& driver_;
  Relaxed relaxed_;
};

// Like Current, for cleanup code, which cannot handle failures.
class Entered {
 public:
  Entered(const Driver& driver, void* context) noexcept
      : driver_(driver), relaxed_(driver), entered_(driver.cuCtxPushCurrent_v2(context) == 0) {}
  ~Entered() {
    void* context = nullptr;
    if (entered_) driver_.cuCtxPopCurrent_v2(&context);
  }
  Entered(const Entered&) = delete;

 private:
  const Driver& driver_;
  Relaxed relaxed_;
  bool entered_;
};

struct Devices {
  std::mutex mutex;
  std::map<int, Gpu*> known;
};
Devices& devices() {
  static Devices* const it = new Devices;  // never destroyed, like the devices
  return *it;
}

// Returns the scopes of a thread, innermost last.
std::vector<Gpu::StreamPointer>& scopes() {
  struct Scopes {
    std::vector<Gpu::StreamPointer> list;
  };
  return ir::OfThread<Scopes>::get().list;
}

}  // namespace

Gpu& Gpu::get(int ordinal) {
  const Driver* const driver = Driver::find();
  if (!driver) throw Error("cuda: " + Driver::why());
  const std::lock_guard lock(devices().mutex);
  Gpu*& gpu = devices().known[ordinal];
  if (!gpu) {
    int count = 0;
    driver->check(driver->cuDeviceGetCount(&count), "counting the devices");
    if (ordinal < 0 || ordinal >= count)
      throw Error(fmt::format("cuda: device {} does not exist; the driver shows {}. Check CUDA_VISIBLE_DEVICES, or run on the CPU.",
                              ordinal, count));
    gpu = new Gpu(*driver, ordinal);
  }
  return *gpu;
}

Gpu* Gpu::known(int ordinal) {
  const std::lock_guard lock(devices().mutex);
  const auto it = devices().known.find(ordinal);
  return it == devices().known.end() ? nullptr : it->second;
}

int Gpu::count() noexcept {
  try {
    const Driver* const driver = Driver::find();
    int count = 0;
    return driver && driver->cuDeviceGetCount(&count) == 0 ? count : 0;
  } catch (...) { return 0; }
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  int handle = 0, major = 0, minor = 0;
  driver.check(driver.cuDeviceGet(&handle, ordinal), fmt::format("opening device {}", ordinal));
  char name[256] = {};
  driver.check(driver.cuDeviceGetName(name, sizeof name - 1, handle), "querying the device name");
  name_ = name;
  const auto attribute = [&](int& value, int which) {
    driver.check(driver.cuDeviceGetAttribute(&value, which, handle), "querying a device attribute");
  };
  attribute(major, kMajor), attribute(minor, kMinor);
  attribute(target_.processors, kMultiprocessors), attribute(target_.threads_per_processor, kThreadsPerMultiprocessor);
  attribute(target_.most_shared_bytes, kMostSharedBytes);
  target_.sm = 10 * major + minor;
  if (target_.sm < 75)
    throw Error(fmt::format("cuda: {} has compute capability {}.{}; 7.5 or newer is required. Use another device, or run on the CPU.",
                            name_, major, minor));
  driver.check(driver.cuDevicePrimaryCtxRetain(&context_, handle), "creating the device context");
  void* stream = nullptr;
  try {
    const Current current(driver, context_);
    driver.check(driver.cuStreamCreate(&stream, kNonBlocking), "creating a stream");
    driver.check(driver.cuStreamCreate(&capturing_, kNonBlocking), "creating a stream");
    own_ = std::make_shared<Stream>(*this, stream);
    legacy_ = std::make_shared<Stream>(*this, reinterpret_cast<void*>(kLegacyStream));  // NOLINT: the handle is a number
  } catch (...) {
    for (void* const made : {stream, capturing_})
      if (made) driver.cuStreamDestroy_v2(made);
    driver.cuDevicePrimaryCtxRelease_v2(handle);
    throw;
  }
}

// ---------------------------------------------------------------------------------------------- streams

Gpu::Stream::~Stream() {
  if (!event) return;
  const Entered entered(gpu.driver_, gpu.context_);
  gpu.driver_.cuEventDestroy_v2(event);
}

Gpu::StreamPointer Gpu::stream_of_scope() const {
  const std::vector<StreamPointer>& list = scopes();
  for (std::size_t i = list.size(); i-- > 0;)
    if (&list[i]->gpu == this) return list[i];
  return nullptr;
}

Gpu::StreamPointer Gpu::stream() const {
  StreamPointer given = stream_of_scope();
  return given ? given : own_;
}

Gpu::StreamPointer Gpu::stream_of(void* handle) { return handle ? std::make_shared<Stream>(*this, handle) : legacy_; }

bool Gpu::is_capturing(void* stream) const noexcept {
  int status = 0;
  return driver_.cuStreamIsCapturing(stream, &status) == 0 && status != 0;
}

Gpu::StreamPointer Gpu::enter(void* handle) { return scopes().emplace_back(std::make_shared<Stream>(*this, handle)); }

void Gpu::leave(const StreamPointer& stream) noexcept {
  std::vector<StreamPointer>& list = scopes();
  std::erase(list, stream);
  if (stream.use_count() == 1) return;  // only the scope itself refers to `stream`
  const std::lock_guard lock(mutex_);
  const Entered entered(driver_, context_);
  // An event recorded during capture would belong to the graph. A later waiter records the work that precedes the capture.
  if (is_capturing(stream->handle)) {
    stream->abandoned = true;
    return;
  }
  const bool noted = (stream->event || driver_.cuEventCreate(&stream->event, kWithoutTiming) == 0) &&
                     driver_.cuEventRecord(stream->event, stream->handle) == 0;
  if (!noted) driver_.cuStreamSynchronize(stream->handle);  // then all work is finished
  stream->open = false;
}

void Gpu::wait_for(const StreamPointer& last) noexcept {
  if (!last) return;
  bool open = true;
  void* event = nullptr;
  {
    const std::lock_guard lock(mutex_);  // the stream's scope may end on another thread
    open = last->open, event = last->event;
  }
  if (last != own_ && open) return;
  const Entered entered(driver_, context_);
  if (open) driver_.cuStreamSynchronize(last->handle);
  else if (event) driver_.cuEventSynchronize(event);
}

// ---------------------------------------------------------------------------------------------- memory

Gpu::Block::~Block() {
  if (gpu_) gpu_->put_back(*this);
}

void Gpu::put_back(Block& block) noexcept {
  const std::lock_guard lock(pool_mutex_);
  if (block.captured_ && !block.captured_->is_over) block.captured_->freed.push_back({block.place_, std::move(block.last)});  // has room
  else put_back(block.place_, std::move(block.last));
}

// The caller must hold the pool's lock.
void Gpu::put_back(MemoryPool::Block* place, StreamPointer last) noexcept {
  stats_.in_use -= static_cast<std::int64_t>(place->bytes);
  place->users.clear();  // has capacity for one user
  if (last) place->users.push_back(std::move(last));
  pool_.put_back(place);
}

void Gpu::trim_pool() noexcept {
  pool_.trim([&](DevicePointer address, std::size_t bytes) {
    driver_.cuMemFree_v2(address);  // waits for pending uses
    stats_.held -= static_cast<std::int64_t>(bytes);
  });
}

void Gpu::trim() {
  release_graphs();
  const std::lock_guard lock(mutex_);
  const Current current(driver_, context_);
  const std::lock_guard pool_lock(pool_mutex_);
  trim_pool();
}

void Gpu::synchronize() {
  const Current current(driver_, context_);
  driver_.check(driver_.cuCtxSynchronize(), "waiting for the device");
  const std::lock_guard lock(mutex_);
  throw_bad_index();
}

void Gpu::reach(Gpu& other) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::find(reached_.begin(), reached_.end(), other.ordinal_) != reached_.end()) return;
  int can = 0;
  if (driver_.cuDeviceCanAccessPeer(&can, ordinal_, other.ordinal_) != 0) return;
  if (can) {
    const Entered entered(driver_, context_);
    const Result result = driver_.cuCtxEnablePeerAccess(other.context_, 0);
    if (result != 0 && result != kPeerAccessIsEnabled) return;
  }
  reached_.push_back(other.ordinal_);
}

DeviceStats Gpu::stats() const {
  const std::lock_guard lock(pool_mutex_);
  return stats_;
}

// ---------------------------------------------------------------------------------------------- programs

namespace {
constexpr std::string_view kLoading = "loading a program on the device";
// True if another image of the same program may load.
bool is_of_image(Result result) {
  return result == kInvalidImage || result == kNoBinaryForDevice || result == kInvalidPtx || result == kUnsupportedPtxVersion;
}
}  // namespace

Gpu::Module::~Module() {
  const std::lock_guard lock(gpu_.mutex_);
  gpu_.retire({handle_, nullptr, {}, {}}, used_on_);
}

// Unloads a module, or ends a report, after the events that follow its last kernels. If an event cannot be created, the module stays
// loaded, which is rare and harmless.
void Gpu::retire(Retired retired, std::span<const StreamPointer> used_on) noexcept {
  const Entered entered(driver_, context_);
  unload_retired();
  bool noted = true;
  for (const StreamPointer& stream : used_on) {
    if (!stream->open) {
      if (stream->event) retired.ended.push_back(stream);
      continue;
    }
    void* event = nullptr;
    noted = noted && !is_capturing(stream->handle) && driver_.cuEventCreate(&event, kWithoutTiming) == 0;
    if (event) retired.events.push_back(event);
    noted = noted && driver_.cuEventRecord(event, stream->handle) == 0;
  }
  if (noted) {
    retired_.push_back(std::move(retired));
    unload_retired();
  } else {
    for (void* const event : retired.events) driver_.cuEventDestroy_v2(event);
  }
}

void Gpu::unload_retired() noexcept {
  std::erase_if(retired_, [&](const Retired& r) {
    for (void* const event : r.events)
      if (driver_.cuEventQuery(event) == kNotReady) return false;
    for (const StreamPointer& stream : r.ended)
      if (driver_.cuEventQuery(stream->event) == kNotReady) return false;
    for (void* const event : r.events) driver_.cuEventDestroy_v2(event);
    if (r.module) driver_.cuModuleUnload(r.module);
    else end(*r.report);
    return true;
  });
}

void* Gpu::Module::function(const compiler::cuda::DeviceKernel& kernel) const {
  const Current current(gpu_.driver_, gpu_.context_);
  const Driver& d = gpu_.driver_;
  void* out = nullptr;
  d.check(d.cuModuleGetFunction(&out, handle_, kernel.name.c_str()), "finding the kernel " + kernel.name);
  int declared = 0;
  d.check(d.cuFuncGetAttribute(&declared, kFunctionStaticBytes, out), "querying the shared memory of the kernel " + kernel.name);
  // Allows all shared memory of a block; otherwise a launch is limited to 48 KiB, including static memory.
  if (const int bytes = gpu_.target_.most_shared_bytes - declared; kernel.asks && bytes > 0)
    d.check(d.cuFuncSetAttribute(out, kFunctionSharedBytes, bytes), "requesting shared memory for the kernel " + kernel.name);
  return out;
}

std::string Gpu::objection(const Nvrtc& nvrtc) const {
  if (nvrtc.newest_up_to(target_.sm) == 0)
    return fmt::format("NVRTC {}.{} does not support {} (compute capability {}.{}). Install a newer CUDA toolkit, or run on the CPU",
                       nvrtc.major(), nvrtc.minor(), name_, target_.sm / 10, target_.sm % 10);
  if (nvrtc.major() > driver_.major())
    return fmt::format(
        "NVRTC {}.{} ({}) is newer than the driver, which supports CUDA {}.{}. Install a newer driver, or set ONEPASS_NVRTC to the "
        "libnvrtc.so of a CUDA toolkit of version {}",
        nvrtc.major(), nvrtc.minor(), nvrtc.path(), driver_.major(), driver_.minor(), driver_.major());
  return {};
}

// Loads the image as a module, or returns null and the reason. For a toolkit older than the device, the image is PTX, which the driver
// compiles.
Gpu::ModulePointer Gpu::open(const std::string& image, Result& result) {
  const Current current(driver_, context_);
  void* handle = nullptr;
  result = driver_.cuModuleLoadData(&handle, image.c_str());
  return result == 0 ? std::make_shared<const Module>(*this, handle) : nullptr;
}

Gpu::Loaded Gpu::load(const std::string& text, bool may_compile) {
  {
    const std::lock_guard lock(modules_mutex_);
    if (const auto it = modules_.find(text); it != modules_.end()) return {it->second, false};
  }
  // The image depends on the text, the device's compute capability and the compiler. Without NVRTC, an image of any compiler is accepted.
  const std::string key = fmt::format("cuda sm_{}\n{}", target_.sm, text);
  ModulePointer module;
  bool from_disk = false;
  Loaded loaded;
  const auto timed = [](double& ms, auto&& work) {
    const std::int64_t start = os::nanoseconds();
    auto made = work();
    ms = static_cast<double>(os::nanoseconds() - start) / 1e6;
    return made;
  };
  if (const auto entry = disk_cache().find(key)) {
    Result result = 0;
    module = timed(loaded.load_ms, [&] { return open(entry->object, result); });
    from_disk = module != nullptr;
    if (is_of_image(result)) disk_cache().discard(key);  // compiled for another driver version
    else driver_.check(result, kLoading);
  }
  if (!module) {
    if (!may_compile) return {};
    const Nvrtc* const nvrtc = Nvrtc::find();
    if (!nvrtc) throw Error("cuda: " + Nvrtc::why() + "; alternatively, run on the CPU");
    const int newest = nvrtc->newest_up_to(target_.sm);
    if (newest == 0) throw Error("cuda: " + objection(*nvrtc));
    const std::string image = timed(
        loaded.compile_ms, [&] { return newest == target_.sm ? nvrtc->compile(text, newest).cubin : nvrtc->compile_ptx(text, newest); });
    Result result = 0;
    module = timed(loaded.load_ms, [&] { return open(image, result); });
    driver_.check(result, kLoading, is_of_image(result) ? objection(*nvrtc) : std::string());
    disk_cache().store(key, compiler::Tier::Optimised, image);
  }
  {
    const std::lock_guard lock(pool_mutex_);
    ++(from_disk ? stats_.programs_from_disk : stats_.compiles);
  }
  std::vector<ModulePointer> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(modules_mutex_);
  if (modules_.size() >= kModules) dropped = unused_programs();
  loaded.module = modules_.try_emplace(text, std::move(module)).first->second;
  loaded.compiled = !from_disk;
  loaded.outcome = from_disk ? CacheOutcome::disk : CacheOutcome::compiled;
  return loaded;
}

// Removes and returns unused programs. The caller must hold the lock; they are retired after it is released.
std::vector<Gpu::ModulePointer> Gpu::unused_programs() {
  std::vector<ModulePointer> out;
  for (auto it = modules_.begin(); it != modules_.end();) {
    if (it->second.use_count() > 1) {
      ++it;
      continue;
    }
    out.push_back(std::move(it->second));
    it = modules_.erase(it);
  }
  return out;
}

void Gpu::forget_programs() {
  release_graphs();
  std::vector<ModulePointer> dropped;
  const std::lock_guard lock(modules_mutex_);
  dropped = unused_programs();
}

Gpu::Graph::~Graph() {
  const Entered entered(gpu_.driver_, gpu_.context_);
  gpu_.driver_.cuGraphExecDestroy(handle_);
}

Gpu::Interval::~Interval() {
  const Entered entered(gpu_.driver_, gpu_.context_);
  for (void* const event : {begin_, end_})
    if (event) gpu_.driver_.cuEventDestroy_v2(event);
}

std::optional<std::int64_t> Gpu::Interval::nanoseconds() const noexcept {
  float milliseconds = 0;
  if (gpu_.driver_.cuEventElapsedTime(&milliseconds, begin_, end_) != 0) return {};
  return static_cast<std::int64_t>(1e6 * static_cast<double>(milliseconds));
}

void Gpu::Interval::wait() const noexcept {
  const Entered entered(gpu_.driver_, gpu_.context_);
  gpu_.driver_.cuEventSynchronize(end_);
}

// ---------------------------------------------------------------------------------------------- turns

// Pinned memory for asynchronous copies.
struct Gpu::Turn::Staging {
  Gpu& gpu;
  void* memory = nullptr;
  std::size_t used = 0;        // bytes used by copies of one stream
  std::weak_ptr<Stream> last;  // that stream
  void* event = nullptr;       // recorded after the last copy
  bool pending = false;        // completion was not observed yet
  explicit Staging(Gpu& of) : gpu(of) { ++gpu.stagings_; }
  ~Staging() {
    --gpu.stagings_;
    const Entered entered(gpu.driver_, gpu.context_);
    if (event) gpu.driver_.cuEventDestroy_v2(event);
    if (memory) gpu.driver_.cuMemFreeHost(memory);
  }
  bool is_of(const StreamPointer& stream) const { return !last.owner_before(stream) && !stream.owner_before(last); }
  bool is_over() const { return !pending || gpu.driver_.cuEventQuery(event) == 0; }
};

Gpu::Turn::Turn(Gpu& gpu) : g_((gpu.release_graphs(), gpu)), relaxed_(gpu.driver_), lock_(gpu.mutex_), stream_(gpu.stream()) {
  g_.driver_.check(g_.driver_.cuCtxPushCurrent_v2(g_.context_), "entering the device context");
  try {
    if (stream_ != g_.own_) captured_ = g_.captured_on(stream_->handle);
  } catch (...) {
    void* context = nullptr;
    g_.driver_.cuCtxPopCurrent_v2(&context);
    throw;
  }
}
Gpu::Turn::~Turn() {
  void* context = nullptr;
  g_.driver_.cuCtxPopCurrent_v2(&context);
}

template <class F> void Gpu::Turn::without_lock(F&& wait) {
  lock_.unlock();
  const Result result = wait();
  lock_.lock();
  g_.driver_.check(result, "waiting for the device");
}

void Gpu::Turn::follow(StreamPointer& last, bool only_reads) {
  if (last == stream_) return;
  if (last && (last->open || last->event)) {
    const bool is_captured = last->open && last != g_.own_ && g_.is_capturing(last->handle);
    if (is_captured && (!captured_ || g_.captured_on(last->handle) != captured_))
      fail_captured("It used an array or memory of this operation. End the capture first.");
    if (captured_ && !is_captured) {
      wait_for(*last);
      if (!only_reads) last = stream_;
      return;
    }
    if (!last->event) g_.driver_.check(g_.driver_.cuEventCreate(&last->event, kWithoutTiming), "creating an event");
    if (last->open) {
      const Result result = g_.driver_.cuEventRecord(last->event, last->handle);
      g_.driver_.check(or_wait_for_all(result, *last), "recording an event on a stream");
    }
    g_.driver_.check(g_.driver_.cuStreamWaitEvent(stream_->handle, last->event, 0), "waiting for another stream");
  }
  last = stream_;
}

// Waits on the CPU, because a graph cannot wait for work outside of its capture.
void Gpu::Turn::wait_for(Stream& last) {
  const Result result = last.open ? g_.driver_.cuStreamSynchronize(last.handle) : g_.driver_.cuEventSynchronize(last.event);
  g_.driver_.check(or_wait_for_all(result, last), "waiting for the device");
}

// Returns the result of an operation on the stream. If another thread has ended the stream, waits for all work of the context instead.
Result Gpu::Turn::or_wait_for_all(Result result, Stream& last) {
  if (result != kInvalidHandle || !last.abandoned) return result;
  result = g_.driver_.cuCtxSynchronize();
  last.open = result != 0;
  return result;
}

void Gpu::Turn::precede(const Stream& other) {
  if (other.handle == stream_->handle) return;
  const bool other_is_captured = other.gpu.is_capturing(other.handle);
  if ((captured_ || other_is_captured) && !(captured_ && other_is_captured && g_.captured_on(other.handle) == captured_))
    fail_captured("Another stream would have to wait for it, or the opposite. End the capture first.");
  if (!stream_->event) g_.driver_.check(g_.driver_.cuEventCreate(&stream_->event, kWithoutTiming), "creating an event");
  g_.driver_.check(g_.driver_.cuEventRecord(stream_->event, stream_->handle), "recording an event on a stream");
  g_.driver_.check(g_.driver_.cuStreamWaitEvent(other.handle, stream_->event, 0), "making another stream wait for an event");
}

void Gpu::Turn::uses(const ModulePointer& module) {
  if (!captured_) uses(module->used_on_);
  else if (std::ranges::find(captured_->modules, module) == captured_->modules.end()) captured_->modules.push_back(module);
}
void Gpu::Turn::uses(std::vector<StreamPointer>& list) {
  if (std::find(list.begin(), list.end(), stream_) != list.end()) return;
  std::erase_if(list, [&](const StreamPointer& s) { return !s->open && (!s->event || g_.driver_.cuEventQuery(s->event) != kNotReady); });
  list.push_back(stream_);
}

Gpu::Block Gpu::Turn::allocate(std::size_t bytes) {
  Block out;
  const std::size_t size = MemoryPool::rounded(bytes);
  if (captured_) {
    out = freed_memory(size);
    if (out.place_) return out;
  }
  const auto given = [&](MemoryPool::Block* block) {
    out.gpu_ = &g_, out.place_ = block, out.last = stream_, out.captured_ = captured_;
    g_.stats_.in_use += static_cast<std::int64_t>(block->bytes);
  };
  {
    std::unique_lock lock(g_.pool_mutex_);
    // During a capture this thread waits for the memory's users before it releases the device's lock, so no stream needs to follow it.
    if (MemoryPool::Block* const found = g_.pool_.take(size, captured_ ? nullptr : stream_)) {
      given(found);
      lock.unlock();
      try {
        for (StreamPointer& user : found->users) follow(user);
      } catch (...) {  // the next user waits for the remaining users
        const std::lock_guard again(g_.pool_mutex_);
        g_.stats_.in_use -= static_cast<std::int64_t>(found->bytes);
        out.gpu_ = nullptr, out.captured_ = nullptr;
        g_.pool_.put_back(found);
        throw;
      }
      found->users.clear();
      return out;
    }
  }
  const std::lock_guard lock(g_.pool_mutex_);
  // Allocates a segment. If that fails, allocates only the requested size. If that fails too, first releases the unused segments.
  std::size_t segment = MemoryPool::segment_for(size);
  DevicePointer address = 0;
  Result result = g_.driver_.cuMemAlloc_v2(&address, segment);
  if (result == kOutOfMemory && segment > size) result = g_.driver_.cuMemAlloc_v2(&address, segment = size);
  if (result == kOutOfMemory) {
    g_.trim_pool();
    result = g_.driver_.cuMemAlloc_v2(&address, segment);
  }
  g_.driver_.check(result, [&] { return fmt::format("allocating {} bytes on {}", size, g_.name_); });
  MemoryPool::Block* block = nullptr;
  try {
    block = g_.pool_.add(address, segment, size);
  } catch (...) {
    g_.driver_.cuMemFree_v2(address);
    throw;
  }
  g_.stats_.held += static_cast<std::int64_t>(segment);
  given(block);
  return out;
}

// Returns the oldest buffer if the device has finished with it or the maximum number exists; else a new buffer.
std::unique_ptr<Gpu::Turn::Staging> Gpu::Turn::staging() {
  std::unique_ptr<Staging> out;
  if (!g_.staging_.empty() && (g_.stagings_ >= kMostParts || g_.staging_.front()->is_over())) {
    out = std::move(g_.staging_.front());
    g_.staging_.pop_front();
  } else {
    out = std::make_unique<Staging>(g_);
    g_.driver_.check(g_.driver_.cuMemHostAlloc(&out->memory, kPart, 0),
                     [] { return fmt::format("allocating {} bytes of pinned memory", kPart); });
    g_.driver_.check(g_.driver_.cuEventCreate(&out->event, kWithoutTiming), "creating an event");
  }
  return out;
}

// Returns the buffer of this stream's last copies if it has space, which needs no wait; else null.
std::unique_ptr<Gpu::Turn::Staging> Gpu::Turn::staging_with_room(std::size_t bytes) {
  std::unique_ptr<Staging> out;
  if (!g_.staging_.empty() && g_.staging_.back()->is_of(stream_) && g_.staging_.back()->used + bytes <= kPart) {
    out = std::move(g_.staging_.back());
    g_.staging_.pop_back();
  }
  return out;
}

// The parts of a copy, each in a pinned buffer. Two buffers are in use at a time: the CPU fills or empties one buffer while the device
// copies the other buffer.
class Gpu::Turn::Parts {
 public:
  explicit Parts(Turn& turn) : turn_(turn) {}
  // Waits for unfinished copies, so that pinned memory can be released.
  ~Parts() {
    if (done_) {
      for (std::unique_ptr<Staging>& part : parts_)
        if (part) turn_.g_.staging_.push_back(std::move(part));
    } else {
      turn_.g_.driver_.cuStreamSynchronize(turn_.stream_->handle);
    }
  }
  // Returns memory for this many bytes.
  std::byte* take(std::size_t k, std::size_t bytes) {
    std::unique_ptr<Staging>& part = parts_[k];
    const bool has_room = !part && (part = turn_.staging_with_room(bytes));
    if (!has_room) {
      if (!part) part = turn_.staging();
      wait(k);
      part->used = 0;
    }
    std::byte* const memory = static_cast<std::byte*>(part->memory) + part->used;
    part->used += (bytes + 255) & ~std::size_t{255};
    part->last = turn_.stream_;
    return memory;
  }
  void note(std::size_t k) {
    turn_.g_.driver_.check(turn_.g_.driver_.cuEventRecord(parts_[k]->event, turn_.stream_->handle), "recording an event on a stream");
    parts_[k]->pending = true;
  }
  void wait(std::size_t k) {
    if (std::exchange(parts_[k]->pending, false)) turn_.without_lock([&] { return turn_.g_.driver_.cuEventSynchronize(parts_[k]->event); });
  }
  void done() { done_ = true; }

 private:
  Turn& turn_;
  std::unique_ptr<Staging> parts_[2];
  bool done_ = false;
};

void Gpu::Turn::upload(std::int64_t to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (captured_) fail_captured("Each launch of the graph would copy the same elements from the CPU. Move the array to the device before.");
  Parts parts(*this);
  for (std::size_t at = 0, k = 0; at < bytes; at += kPart, k ^= 1) {
    const std::size_t n = std::min(kPart, bytes - at);
    void* const memory = parts.take(k, n);
    std::memcpy(memory, static_cast<const std::byte*>(from) + at, n);
    g_.driver_.check(g_.driver_.cuMemcpyHtoDAsync_v2(static_cast<DevicePointer>(to) + at, memory, n, stream_->handle),
                     [&] { return fmt::format("copying {} bytes to {}", bytes, g_.name_); });
    parts.note(k);
  }
  parts.done();
  const std::lock_guard lock(g_.pool_mutex_);
  g_.stats_.uploaded += static_cast<std::int64_t>(bytes);
}

void Gpu::Turn::download(void* to, std::int64_t from, std::size_t bytes) {
  if (bytes == 0) return;
  if (captured_) fail_waiting();
  Parts parts(*this);
  void* memory[2] = {};
  const auto begin = [&](std::size_t at, std::size_t k) {
    const std::size_t n = std::min(kPart, bytes - at);
    memory[k] = parts.take(k, n);
    g_.driver_.check(g_.driver_.cuMemcpyDtoHAsync_v2(memory[k], static_cast<DevicePointer>(from) + at, n, stream_->handle),
                     [&] { return fmt::format("copying {} bytes from {}", bytes, g_.name_); });
    parts.note(k);
  };
  begin(0, 0);
  for (std::size_t at = 0, k = 0; at < bytes; at += kPart, k ^= 1) {
    if (at + kPart < bytes) begin(at + kPart, k ^ 1);
    parts.wait(k);
    std::memcpy(static_cast<std::byte*>(to) + at, memory[k], std::min(kPart, bytes - at));
  }
  parts.done();
  const std::lock_guard lock(g_.pool_mutex_);
  g_.stats_.downloaded += static_cast<std::int64_t>(bytes);
}

void Gpu::Turn::copy(std::int64_t to, std::int64_t from, std::size_t bytes) {
  if (bytes == 0) return;
  g_.driver_.check(
      g_.driver_.cuMemcpyDtoDAsync_v2(static_cast<DevicePointer>(to), static_cast<DevicePointer>(from), bytes, stream_->handle),
      [&] { return fmt::format("copying {} bytes on {}", bytes, g_.name_); });
}

void Gpu::Turn::copy_from(Gpu& other, std::int64_t to, std::int64_t from, std::size_t bytes) {
  if (bytes == 0) return;
  if (captured_) fail_captured("It cannot exchange arrays with another device. Copy them before the capture.");
  g_.driver_.check(g_.driver_.cuMemcpyPeerAsync(static_cast<DevicePointer>(to), g_.context_, static_cast<DevicePointer>(from),
                                                other.context_, bytes, stream_->handle),
                   [&] { return fmt::format("copying {} bytes from {} to {}", bytes, other.name_, g_.name_); });
}

void Gpu::Turn::clear(std::int64_t at, std::size_t bytes) {
  if (bytes == 0) return;
  g_.driver_.check(g_.driver_.cuMemsetD8Async(static_cast<DevicePointer>(at), 0, bytes, stream_->handle),
                   [&] { return fmt::format("clearing {} bytes on {}", bytes, g_.name_); });
}

void Gpu::Turn::launch(const Launch& l) {
  DevicePointer far = 0;
  Block far_words;  // returned to the pool at once; later users wait for the launch
  void* arguments[] = {const_cast<std::int64_t*>(l.words.data())};
  if (l.kernel->far) {
    if (captured_) {
      far = parameters_of_graph(l.words);
    } else {
      far_words = allocate(l.words.size_bytes());
      upload(far_words.address(), l.words.data(), l.words.size_bytes());
      far = static_cast<DevicePointer>(far_words.address());
    }
    arguments[0] = &far;
  }
  g_.driver_.check(g_.driver_.cuLaunchKernel(l.function, static_cast<unsigned>(l.numbers->blocks), 1, 1, l.kernel->threads, 1, 1,
                                             static_cast<unsigned>(l.numbers->shared_bytes), records_ ? g_.capturing_ : stream_->handle,
                                             arguments, nullptr),
                   [&] { return "launching the kernel " + l.kernel->name; });
  if (records_ || captured_) return;
  const std::lock_guard lock(g_.pool_mutex_);
  ++g_.stats_.launches;
}

void Gpu::Turn::launch(const Graph& graph, std::size_t kernels) {
  g_.driver_.check(g_.driver_.cuGraphLaunch(graph.handle_, stream_->handle), "launching a graph of kernels");
  const std::lock_guard lock(g_.pool_mutex_);
  g_.stats_.launches += static_cast<std::int64_t>(kernels);
  ++g_.stats_.graph_launches;
}

std::unique_ptr<const Gpu::Graph> Gpu::Turn::capture(const std::function<void()>& launches) {
  const Driver& d = g_.driver_;
  d.check(d.cuStreamBeginCapture_v2(g_.capturing_, kOfThisThread), "starting the capture of a graph");
  void *graph = nullptr, *handle = nullptr;
  records_ = true;
  const auto end = [&] {
    records_ = false;
    return d.cuStreamEndCapture(g_.capturing_, &graph);
  };
  try {
    launches();
  } catch (...) {
    end();
    if (graph) d.cuGraphDestroy(graph);
    throw;
  }
  Result result = end();
  if (result == 0) result = d.cuGraphInstantiateWithFlags(&handle, graph, 0);
  if (graph) d.cuGraphDestroy(graph);
  d.check(result, "capturing a graph of kernels");
  return std::make_unique<const Graph>(g_, handle);
}

void Gpu::Turn::note(void*& timed_event) {
  if (!timed_event) g_.driver_.check(g_.driver_.cuEventCreate(&timed_event, 0), "creating an event");
  g_.driver_.check(g_.driver_.cuEventRecord(timed_event, stream_->handle), "recording an event on a stream");
}

void Gpu::Turn::finish() {
  if (captured_) fail_waiting();
  without_lock([&] { return g_.driver_.cuStreamSynchronize(stream_->handle); });
}

}  // namespace onepass::runtime::cuda

// ---------------------------------------------------------------------------------------------- the public names

namespace onepass {

using runtime::cuda::Gpu;

void Device::fail_index(int index) { throw ValueError(fmt::format("Device::cuda: {} is not between 0 and 254", index)); }

int cuda_device_count() noexcept { return Gpu::count(); }

void synchronize(Device device) {
  if (device.is_cuda()) Gpu::get(device.index()).synchronize();
}

struct detail::StreamHolder {
  Gpu& gpu;
  Gpu::StreamPointer stream;
};
StreamScope::StreamScope(Device device, void* stream) {
  if (device.is_cpu()) throw ValueError("StreamScope: the CPU has no streams. Pass a Device::cuda.");
  Gpu& gpu = Gpu::get(device.index());
  holder_ = new detail::StreamHolder{gpu, gpu.enter(stream)};
}
StreamScope::~StreamScope() {
  holder_->gpu.leave(holder_->stream);
  delete holder_;
}

DeviceStats device_stats(Device device) {
  Gpu* const gpu = device.is_cuda() ? Gpu::known(device.index()) : nullptr;
  if (!gpu) return {};
  gpu->release_graphs();
  return gpu->stats();
}

void trim_memory(Device device) {
  if (Gpu* const gpu = device.is_cuda() ? Gpu::known(device.index()) : nullptr) gpu->trim();
}

}  // namespace onepass
