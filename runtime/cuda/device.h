// Gpu: one device as this process uses it: its context, streams, memory that is kept for the next call, pinned memory that copies go through,
// programs that are loaded once. Every failure is an Error of one sentence (driver.h) and leaves the device as it was: what was taken goes
// back to the pool.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/target.h"
#include "onepass/device.h"
#include "onepass/record.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/pool.h"

namespace onepass::runtime::cuda {

class Gpu {
 public:
  /// Device number `ordinal` of those that the driver shows, opened at the first call that succeeds; kept for good. Error where there is none.
  static Gpu& get(int ordinal = 0);
  /// Null where it was not opened.
  static Gpu* known(int ordinal);
  static int count() noexcept;

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  const compiler::cuda::DeviceTarget& target() const { return target_; }

  /// A stream that work is put on: the device's own, or a caller's while its scope is open. What was last used on one is known by it, also when
  /// the caller's handle is gone: an event then stands for all that was on it.
  struct Stream {
    Gpu& gpu;
    void* handle;
    bool open = true;
    bool abandoned = false;  // still open, though its scope has ended: it was being captured then
    void* event = nullptr;   // made when another stream has to wait for this one
    Stream(Gpu& of, void* h) : gpu(of), handle(h) {}
    ~Stream();
  };
  using StreamPointer = std::shared_ptr<Stream>;
  /// Of this thread's calls.
  StreamPointer stream() const;
  StreamPointer stream_of_scope() const;  // null: there is none
  /// A stream of somebody, CUDA's default one where `handle` is null.
  StreamPointer stream_of(void* handle);
  StreamPointer enter(void* handle);
  void leave(const StreamPointer& stream) noexcept;
  /// Waits for what was put on a stream of our own, or on one whose scope has ended.
  void wait_for(const StreamPointer& last) noexcept;

  using MemoryPool = Pool<StreamPointer>;

  /// Memory of the device, from the pool; at a multiple of 256. It goes back there at once: whoever gets it next comes, on the device, behind
  /// what `last` has begun.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept {
      std::swap(gpu_, other.gpu_), std::swap(place_, other.place_), std::swap(last, other.last);
      return *this;
    }
    ~Block();
    std::int64_t address() const { return place_ ? static_cast<std::int64_t>(place_->address) : 0; }
    StreamPointer last;

   private:
    friend class Gpu;
    Gpu* gpu_ = nullptr;
    MemoryPool::Block* place_ = nullptr;
  };

  /// A loaded program. It stays loaded as long as somebody has it, and on until the device has done what was launched of it: nobody waits for that.
  class Module {
   public:
    Module(Gpu& gpu, void* handle) : gpu_(gpu), handle_(handle) {}
    ~Module();
    Module(const Module&) = delete;
    void* function(const compiler::cuda::DeviceKernel& kernel) const;

   private:
    friend class Gpu;
    Gpu& gpu_;
    void* handle_;
    mutable std::vector<StreamPointer> used_on_;  // under the device's lock
  };
  using ModulePointer = std::shared_ptr<const Module>;
  struct Loaded {
    ModulePointer module;
    bool compiled = false;
    CacheOutcome outcome = CacheOutcome::memory;
    double compile_ms = 0, load_ms = 0;  // by NVRTC; by the driver
  };
  /// The program's module: loaded before, from the disk cache, or compiled by NVRTC. Without `may_compile` null instead of the last.
  Loaded load(const std::string& text, bool may_compile = true);
  /// Drops the programs that nobody has, as load() does where there are too many.
  void forget_programs();
  /// Why this compiler's programs may not run here, with what to do about it; empty: they do.
  std::string objection(const Nvrtc& nvrtc) const;

  /// The kernels of one call as a CUDA graph.
  class Graph {
   public:
    Graph(Gpu& gpu, void* handle) : gpu_(gpu), handle_(handle) {}
    ~Graph();
    Graph(const Graph&) = delete;

   private:
    friend class Gpu;
    Gpu& gpu_;
    void* handle_;
  };
  /// How long the device takes for what a stream has between two places.
  class Interval {
   public:
    explicit Interval(Gpu& gpu) : gpu_(gpu) {}
    ~Interval();
    Interval(const Interval&) = delete;
    /// Has the device come to its end, or been lost?
    bool is_over() const noexcept { return gpu_.driver_.cuEventQuery(end_) != kNotReady; }
    /// None where the driver does not say.
    std::optional<std::int64_t> nanoseconds() const noexcept;
    /// Waits until it is over, on any thread. No lock is taken.
    void wait() const noexcept;

   private:
    friend class Gpu;
    Gpu& gpu_;
    void *begin_ = nullptr, *end_ = nullptr;  // events
  };
  struct Launch {
    void* function;
    const compiler::cuda::DeviceKernel* kernel;
    const compiler::cuda::DeviceNumbers* numbers;
    std::span<const std::int64_t> words;
  };

  /// What one thread does in a row. While it lives, the calling thread has the device, but where it says that it waits.
  class Turn {
   public:
    explicit Turn(Gpu& gpu);
    ~Turn();
    Turn(const Turn&) = delete;
    const StreamPointer& stream() const { return stream_; }
    Block allocate(std::size_t bytes);
    /// What comes next is behind all that was put on `last`, which becomes this stream.
    void follow(StreamPointer& last);
    /// What is put on `other` from now on is behind what is on this stream.
    void precede(const Stream& other);
    /// Kernels of the module are launched in this turn.
    void uses(const Module& module);
    /// Through pinned memory, in parts: `from` may change when it returns. It waits only where all that there may be of it is under way.
    void upload(std::int64_t to, const void* from, std::size_t bytes);
    /// Waits until the bytes are there.
    void download(void* to, std::int64_t from, std::size_t bytes);
    void copy(std::int64_t to, std::int64_t from, std::size_t bytes);
    void copy_from(Gpu& other, std::int64_t to, std::int64_t from, std::size_t bytes);
    void clear(std::int64_t at, std::size_t bytes);
    void launch(const Launch& launch);
    void launch(const Graph& graph, std::size_t kernels);
    /// What `launches` launches, as a graph. None of it may have more words than a launch takes.
    std::unique_ptr<const Graph> capture(const std::function<void()>& launches);
    void begin(Interval& interval) { note(interval.begin_); }
    void end(Interval& interval) { note(interval.end_); }
    /// Waits for all that was begun on the stream.
    void finish();

   private:
    struct Staging;
    class Parts;
    friend class Gpu;
    std::unique_ptr<Staging> staging();
    std::unique_ptr<Staging> staging_with_room(std::size_t bytes);
    void note(void*& timed_event);
    template <class F> void without_lock(F&& wait);
    [[noreturn]] void fail_capturing() const;
    Gpu& g_;
    std::unique_lock<std::mutex> lock_;
    StreamPointer stream_;
    bool records_ = false;  // launches go into a graph
  };

  DeviceStats stats() const;
  /// Gives what the pool holds back to the driver.
  void trim();
  void synchronize();
  /// Copies between devices go from one to the other without the cpu's memory, where the devices can.
  void reach(Gpu& other) noexcept;

 private:
  Gpu(const Driver& driver, int ordinal);
  ModulePointer open(const std::string& image, Result& result);
  void put_back(Block& block) noexcept;
  void trim_pool() noexcept;
  bool is_capturing(void* stream) const noexcept;
  void retire(void* module, std::span<const StreamPointer> used_on) noexcept;
  void unload_retired() noexcept;
  std::vector<ModulePointer> unused_programs();
  static constexpr std::size_t kModules = 256;  // that stay loaded though nobody has them

  const Driver& driver_;
  int ordinal_ = 0;
  std::string name_;
  compiler::cuda::DeviceTarget target_;
  void* context_ = nullptr;
  StreamPointer own_, legacy_;             // legacy_: CUDA's default stream
  void* capturing_ = nullptr;              // the stream that graphs are recorded on
  mutable std::mutex mutex_, pool_mutex_;  // pool_mutex_, which is taken last: of pool_ and stats_
  MemoryPool pool_;
  std::deque<std::unique_ptr<Turn::Staging>> staging_;  // used last at the end
  std::size_t stagings_ = 0;                            // with those that are in use
  struct Retired {
    void* module;
    std::vector<void*> events;         // behind its last kernels
    std::vector<StreamPointer> ended;  // streams whose handles are gone, with the events that stand for what was on them
  };
  std::vector<Retired> retired_;  // under the device's lock
  std::vector<int> reached_;      // under the same: other devices that copies come from
  std::mutex modules_mutex_;
  std::unordered_map<std::string, ModulePointer> modules_;  // by text
  DeviceStats stats_;
};

}  // namespace onepass::runtime::cuda
