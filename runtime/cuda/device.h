// Gpu: one device in this process, with its context, streams, memory pool, pinned staging memory and loaded programs.
//
// Every failure throws an Error of one sentence (driver.h) and leaves the device unchanged: allocated memory returns to the pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/target.h"
#include "onepass/device.h"
#include "onepass/record.h"
#include "runtime/cuda/bad_index.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/pool.h"

namespace onepass {
class Array;
}

namespace onepass::runtime::cuda {

class Gpu {
 public:
  /// Returns device `ordinal` in the driver's order. The first successful call opens it permanently. Throws Error if it does not exist.
  static Gpu& get(int ordinal = 0);
  /// Returns the device if it is open, else null.
  static Gpu* known(int ordinal);
  static int count() noexcept;

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  const compiler::cuda::DeviceTarget& target() const { return target_; }

  /// A stream for work: the device's own stream, or a caller's stream while its scope exists. Resources refer to the stream that used them
  /// last, even after the caller's handle is gone. An event then represents all work that was on it.
  struct Stream {
    Gpu& gpu;
    void* handle;
    bool open = true;
    bool abandoned = false;  // still open after the end of its scope, because it was being captured then
    void* event = nullptr;   // created when another stream must wait for this stream
    Stream(Gpu& of, void* h) : gpu(of), handle(h) {}
    ~Stream();
  };
  using StreamPointer = std::shared_ptr<Stream>;
  /// Returns the stream of this thread's calls.
  StreamPointer stream() const;
  StreamPointer stream_of_scope() const;  // null: there is none
  /// Returns a caller's stream; CUDA's default stream if `handle` is null.
  StreamPointer stream_of(void* handle);
  StreamPointer enter(void* handle);
  void leave(const StreamPointer& stream) noexcept;
  /// Waits for the work on one of the device's own streams, or on a stream with an ended scope.
  void wait_for(const StreamPointer& last) noexcept;

  using MemoryPool = Pool<StreamPointer>;
  struct Captured;  // what a CUDA graph of the caller uses (capture.h)
  using CapturedPointer = std::shared_ptr<Captured>;

  /// Device memory from the pool, aligned to 256 bytes. The destructor returns it at once; on the device, the next user waits for the
  /// work that `last` has started. Memory that was allocated during a capture belongs to the graph as long as the graph exists.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept {
      std::swap(gpu_, other.gpu_), std::swap(place_, other.place_), std::swap(last, other.last), captured_.swap(other.captured_);
      return *this;
    }
    ~Block();
    std::int64_t address() const { return place_ ? static_cast<std::int64_t>(place_->address) : 0; }
    StreamPointer last;

   private:
    friend class Gpu;
    Gpu* gpu_ = nullptr;
    MemoryPool::Block* place_ = nullptr;
    CapturedPointer captured_;
  };

  /// A loaded program. It stays loaded until it has no owner and the device has finished its launches. No thread waits for those launches.
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
    mutable std::vector<StreamPointer> used_on_;  // guarded by the device's lock
  };
  using ModulePointer = std::shared_ptr<const Module>;
  struct Loaded {
    ModulePointer module;
    bool compiled = false;
    CacheOutcome outcome = CacheOutcome::memory;
    double compile_ms = 0, load_ms = 0;  // time of NVRTC; time of the driver
  };
  /// Returns the program's module: already loaded, from the disk cache, or compiled by NVRTC. Without `may_compile`, returns null instead
  /// of compiling.
  Loaded load(const std::string& text, bool may_compile = true);
  /// Unloads the programs without an owner, as load() does when there are too many.
  void forget_programs();
  /// Returns why NVRTC's programs cannot run on this device, with a remedy; empty if they can run.
  std::string objection(const Nvrtc& nvrtc) const;

  struct Report;
  /// The reports of bad indices of one plan's calls (bad_index.h). A plan whose report was thrown uses another report afterwards. If its plan
  /// is gone, a report is still thrown.
  class IndexReport {
   public:
    IndexReport(Gpu& gpu, std::vector<CheckedIndex> checks);
    ~IndexReport();
    IndexReport(const IndexReport&) = delete;

   private:
    friend class Gpu;
    Gpu& gpu_;
    std::shared_ptr<const std::vector<CheckedIndex>> checks_;
    Report* report_ = nullptr;  // guarded by the device's lock; null until the next call
  };
  struct Report {
    ReportWords& words;
    std::shared_ptr<const std::vector<CheckedIndex>> checks = {};
    IndexReport* owner = nullptr;             // null: no new call uses it
    std::vector<StreamPointer> used_on = {};  // streams of its owner's calls
    int launching = 0;                        // calls that are between their launches
    int graphs = 0;                           // CUDA graphs of the caller with its owner's calls
    bool is_thrown = false, is_over = false;  // is_over: the device has finished all kernels that know it
    bool is_complete() const;
  };

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
  /// A measurement of device time between two points of a stream.
  class Interval {
   public:
    explicit Interval(Gpu& gpu) : gpu_(gpu) {}
    ~Interval();
    Interval(const Interval&) = delete;
    /// True if the device has reached the end point or is lost.
    bool is_over() const noexcept { return gpu_.driver_.cuEventQuery(end_) != kNotReady; }
    /// Returns the device time; empty if the driver does not report it.
    std::optional<std::int64_t> nanoseconds() const noexcept;
    /// Waits for the end point, on any thread, without a lock.
    void wait() const noexcept;

   private:
    friend class Gpu;
    Gpu& gpu_;
    void *begin_ = nullptr, *end_ = nullptr;  // CUDA events
  };
  struct Launch {
    void* function;
    const compiler::cuda::DeviceKernel* kernel;
    const compiler::cuda::DeviceNumbers* numbers;
    std::span<const std::int64_t> words;
  };

  /// A sequence of operations by one thread. The turn holds the device's lock, except where a function is documented to wait.
  class Turn {
   public:
    explicit Turn(Gpu& gpu);
    ~Turn();
    Turn(const Turn&) = delete;
    const StreamPointer& stream() const { return stream_; }
    /// True if the stream is being captured into a CUDA graph of the caller: operations become part of the graph, and nothing runs.
    bool is_captured() const { return captured_ != nullptr; }
    /// Throws Error: the stream is being captured. `why`: what is impossible, and a remedy.
    [[noreturn]] void fail_captured(std::string_view why) const;
    /// Throws Error: nothing runs before the graph is launched, so no call can wait for results.
    [[noreturn]] void fail_waiting() const;
    /// Keeps the array as long as the graph into which the stream is being captured. `block`: its memory.
    void keep(const Array& array, const Block& block);
    Block allocate(std::size_t bytes);
    /// Orders later work after all work on `last`, and sets `last` to this stream. With `only_reads`, a captured call leaves an outside
    /// stream in `last`: other streams may read the memory during the capture.
    void follow(StreamPointer& last, bool only_reads = false);
    /// Orders later work on `other` after the work on this stream.
    void precede(const Stream& other);
    /// Declares that this turn launches kernels of the module.
    void uses(const ModulePointer& module);
    /// Scope around the launches of a call that checks indices.
    class Indexing {
     public:
      Indexing(Turn& turn, IndexReport& of);
      ~Indexing();
      Indexing(const Indexing&) = delete;
      std::int64_t address() const;  // of the report, for the kernels

     private:
      Report& report_;
    };
    /// Returns the message for a bad index of these calls, whose work must be finished. It is empty if there was none. Each bad index is
    /// returned or thrown once.
    std::string bad_index(IndexReport& of);
    /// Throws IndexError if a call on this device is known to have met a bad index. Does not wait.
    void throw_bad_index() { g_.throw_bad_index(); }
    /// Copies through pinned memory, in parts. The caller may change `from` after the return. Waits only if all pinned memory is in use.
    void upload(std::int64_t to, const void* from, std::size_t bytes);
    /// Copies to the CPU and waits for completion.
    void download(void* to, std::int64_t from, std::size_t bytes);
    void copy(std::int64_t to, std::int64_t from, std::size_t bytes);
    void copy_from(Gpu& other, std::int64_t to, std::int64_t from, std::size_t bytes);
    void clear(std::int64_t at, std::size_t bytes);
    void launch(const Launch& launch);
    void launch(const Graph& graph, std::size_t kernels);
    /// Captures the launches of `launches` as a graph. No launch may have more kernel parameters than a launch accepts.
    std::unique_ptr<const Graph> capture(const std::function<void()>& launches);
    void begin(Interval& interval) { note(interval.begin_); }
    void end(Interval& interval) { note(interval.end_); }
    /// Waits for all work on the stream.
    void finish();

   private:
    struct Staging;
    class Parts;
    friend class Gpu;
    void uses(std::vector<StreamPointer>& list);
    Block freed_memory(std::size_t bytes);
    void wait_for(Stream& last);
    Result or_wait_for_all(Result result, Stream& last);
    DevicePointer parameters_of_graph(std::span<const std::int64_t> words);
    std::unique_ptr<Staging> staging();
    std::unique_ptr<Staging> staging_with_room(std::size_t bytes);
    void note(void*& timed_event);
    template <class F> void without_lock(F&& wait);
    Gpu& g_;
    Relaxed relaxed_;
    std::unique_lock<std::mutex> lock_;
    StreamPointer stream_;
    CapturedPointer captured_;
    bool records_ = false;  // launches are captured in a graph
  };

  /// Releases what CUDA graphs of the caller used, if the driver has destroyed them. Must be called without a turn. Each turn begins with it.
  void release_graphs() noexcept;
  DeviceStats stats() const;
  /// Returns the pool's unused memory to the driver.
  void trim();
  void synchronize();
  /// Enables direct copies between two devices, if they support them.
  void reach(Gpu& other) noexcept;

 private:
  Gpu(const Driver& driver, int ordinal);
  ModulePointer open(const std::string& image, Result& result);
  void put_back(Block& block) noexcept;
  void put_back(MemoryPool::Block* place, StreamPointer last) noexcept;
  void trim_pool() noexcept;
  bool is_capturing(void* stream) const noexcept;
  CapturedPointer captured_on(void* stream);
  Report& take_report(IndexReport& owner);
  void detach(Report& report) noexcept;
  void end(Report& report) noexcept;
  std::string text_of(const Report& report) const;
  std::string message_of(Report& report);
  void throw_bad_index();
  void unload_retired() noexcept;
  std::vector<ModulePointer> unused_programs();
  static constexpr std::size_t kModules = 256;  // maximum of loaded modules without an owner

  const Driver& driver_;
  int ordinal_ = 0;
  std::string name_;
  compiler::cuda::DeviceTarget target_;
  void* context_ = nullptr;
  StreamPointer own_, legacy_;             // legacy_: CUDA's default stream
  void* capturing_ = nullptr;              // the stream used for graph capture
  mutable std::mutex mutex_, pool_mutex_;  // pool_mutex_, locked last, guards pool_ and stats_
  MemoryPool pool_;
  std::deque<std::unique_ptr<Turn::Staging>> staging_;  // most recently used at the end
  std::size_t stagings_ = 0;                            // including buffers in use
  struct Retired {
    void* module;                      // null: a report
    Report* report;                    // null: a module
    std::vector<void*> events;         // recorded after its last kernels
    std::vector<StreamPointer> ended;  // closed streams; their events represent the work that was on them
  };
  void retire(Retired retired, std::span<const StreamPointer> used_on) noexcept;
  std::vector<Retired> retired_;  // guarded by the device's lock, like the next five
  std::vector<std::unique_ptr<Report>> reports_;
  std::vector<ReportWords*> free_reports_;
  std::int64_t* any_report_ = nullptr;     // in pinned memory; nonzero after some report is complete
  std::vector<int> reached_;               // other devices with direct copies to this device
  std::vector<CapturedPointer> captured_;  // of all graphs of the caller that exist
  struct OfDriver;
  std::atomic<OfDriver*> released_{nullptr};  // graphs that the driver has destroyed since the last turn
  std::mutex modules_mutex_;
  std::unordered_map<std::string, ModulePointer> modules_;  // keyed by program text
  DeviceStats stats_;
};

}  // namespace onepass::runtime::cuda
