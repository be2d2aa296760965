// Runs graphs through fuse, plan and the CUDA back end on the CPU: the text of all their kernels is compiled as C++ in one go, behind
// cuda_machine.h, and run over blocks, threads, barriers and shuffles.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/plan/plan.h"
#include "ir/reference.h"

namespace onepass::test {

class CudaEmulation {
 public:
  struct Options {
    bool unfused = false;
    bool specialised = false;  // lengths, strides and slots are constants of the text
    compiler::cuda::DeviceTarget target = {80, 2, 48 << 10, 512};
  };
  /// What a run did to one array of the device.
  struct Array {
    std::string name;                               // of an input; else `%node`
    std::int64_t size = 0, loaded = 0, stored = 0;  // bytes
    std::int64_t accesses = 0, vectors = 0;         // loads and stores, those of 16 bytes among them
  };
  struct Counts {
    std::int64_t kernels = 0;
    std::vector<Array> arrays;
  };

  /// Plans the graph for these arguments; gives the number by which run() knows it. The arguments' memory is copied.
  std::size_t add(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const Options& options);
  /// The same without memory: what is planned is not run.
  std::size_t plan(const ir::Graph& graph, std::span<const ir::ArrayView> inputs, const Options& options);
  std::size_t add(const ir::Graph& graph, std::span<const ir::ArrayView> inputs) { return add(graph, inputs, Options()); }
  std::string text() const { return program_.text(); }
  /// The kernels of a graph, with their names in the text.
  struct KernelView {
    std::string name;
    const compiler::Nest* nest;
    const compiler::cuda::DeviceSchedule* schedule;
    std::int64_t shared_bytes, blocks;
  };
  std::vector<KernelView> kernels(std::size_t number) const;
  /// Compiles what was added; then run() works. Throws std::runtime_error with the compiler's words.
  void compile();
  std::vector<ir::Buffer> run(std::size_t number, unsigned seed, Counts* counts = nullptr);
  /// Whether the last run met an index outside of its array.
  bool bad_index() const { return bad_index_; }
  /// Nests and schedules of a graph.
  const std::string& log(std::size_t number) const { return jobs_[number].log; }

 private:
  struct Launch {
    compiler::Planned planned;
    compiler::cuda::DeviceScheduled scheduled;
    compiler::cuda::DeviceKernel kernel;
  };
  struct Memory {  // starts at a multiple of 256, as on a device; ends where the elements do, which a sanitizer sees
    std::byte* base = nullptr;
    std::size_t size = 0, zero = 0;  // zero: where element (0, …, 0) is
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
  void* library_ = nullptr;
  bool bad_index_ = false;
};

}  // namespace onepass::test
