// Runs graphs through fuse, plan and the CUDA back end on the CPU. The text of all kernels is compiled once as C++ on top of
// cuda_machine.h, and runs with emulated blocks, threads, barriers and shuffles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/plan/plan.h"
#include "ir/reference.h"

namespace onepass::test {

/// An access of emulated threads that nothing orders, or of memory that nobody wrote (cuda_races.h).
struct RaceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The shadow memory of a sequence of launches. Does nothing if the text was compiled without it, as in builds with sanitizers.
class RaceWatch {
 public:
  explicit RaceWatch(void* library);
  bool is_on() const;
  void add(const std::string& name, const void* at, std::size_t bytes, bool fresh);
  void words(std::span<const std::int64_t> words);
  /// Throws RaceError, one sentence, if the launches did something wrong.
  void check(const std::string& kernel) const;

 private:
  template <class F> F* function(const char* name) const;
  struct Array {
    std::uint64_t address;
    std::size_t bytes;
    std::string name;
  };
  void* library_;
  std::vector<Array> arrays_;
};

/// Compiled CUDA text, with its shadow memory.
class EmulatedText {
 public:
  /// Throws std::runtime_error with the compiler's message.
  explicit EmulatedText(const std::string& text);
  void* library() const { return library_; }
  /// Runs a kernel whose threads may wait for each other.
  void launch(const std::string& kernel, std::span<const std::int64_t> words, unsigned blocks, unsigned threads, unsigned seed,
              bool cooperates = true) const;

 private:
  void* library_ = nullptr;
};

class CudaEmulation {
 public:
  struct Options {
    bool unfused = false;
    bool specialised = false;  // lengths, strides and scalar parameters are constants in the text
    compiler::cuda::DeviceTarget target = {80, 2, 48 << 10, 512};
  };
  /// Accesses of one run to one device array.
  struct Array {
    std::string name;                               // input name, or `%node`
    std::int64_t size = 0, loaded = 0, stored = 0;  // bytes
    std::int64_t accesses = 0, vectors = 0;         // number of loads and stores; number of 16-byte accesses
  };
  struct Counts {
    std::int64_t kernels = 0;
    std::vector<Array> arrays;
  };

  /// Plans the graph for these arguments. Returns the job number that run() takes. Copies the arguments' memory.
  std::size_t add(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const Options& options);
  /// Plans like add(), but without memory, so the job cannot be run.
  std::size_t plan(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const Options& options);
  std::size_t add(const ir::Graph& graph, std::span<const ir::ArrayView> inputs) { return add(graph, inputs, Options()); }
  std::string text() const { return program_.text(); }
  /// A kernel of a graph, with its name in the text.
  struct KernelView {
    std::string name;
    const compiler::Nest* nest;
    const compiler::cuda::DeviceSchedule* schedule;
    std::int64_t shared_bytes, blocks;
  };
  std::vector<KernelView> kernels(std::size_t number) const;
  /// Compiles all added jobs; must be called before run(). Throws std::runtime_error with the compiler's message.
  /// `edit` may change the text.
  void compile(const std::function<std::string(std::string)>& edit = {});
  /// Throws RaceError if threads race.
  std::vector<ir::Buffer> run(std::size_t number, unsigned seed, Counts* counts = nullptr);
  /// An index out of range that the last run reported, and the extent of its axis.
  struct BadIndex {
    std::int64_t index, extent;
    bool operator==(const BadIndex&) const = default;
  };
  /// The compiled text.
  void* library() const { return compiled_->library(); }
  const std::optional<BadIndex>& bad_index() const { return bad_index_; }
  /// Returns the nests and schedules of a graph as text.
  const std::string& log(std::size_t number) const { return jobs_[number].log; }

 private:
  struct Launch {
    compiler::Planned planned;
    compiler::cuda::DeviceScheduled scheduled;
    compiler::cuda::DeviceKernel kernel;
  };
  struct Memory {  // starts at a multiple of 256, as on a device; ends with the last element, so that a sanitizer sees overruns
    std::byte* base = nullptr;
    std::size_t size = 0, zero = 0;  // zero: byte offset of element (0, …, 0)
    explicit Memory(std::size_t bytes, std::size_t zero_at = 0);
    Memory(Memory&& other) noexcept : base(std::exchange(other.base, nullptr)), size(other.size), zero(other.zero) {}
    ~Memory();
  };
  struct Job {
    ir::Graph graph;
    std::vector<Memory> inputs;
    std::vector<Launch> launches;
    std::string log;
  };
  std::size_t plan(Job&& job, std::span<const ir::ArrayView> inputs, const Options& options);
  std::vector<Job> jobs_;
  compiler::cuda::DeviceProgram program_;
  std::map<std::string, compiler::cuda::DeviceKernel> kernels_;
  std::optional<EmulatedText> compiled_;
  std::optional<BadIndex> bad_index_;
};

}  // namespace onepass::test
