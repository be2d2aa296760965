#include "cuda_emulation.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "compiler/cuda/fuse.h"
#include "cuda_compile.h"
#include "cuda_races.h"
#include "footprint.h"

namespace onepass::test {

using namespace compiler;
using ir::NodeId;

namespace {
std::size_t bytes_of(const ir::Graph& graph, NodeId id, DType dtype) {
  return static_cast<std::size_t>(graph.elements(id)) * size_of(dtype);
}
}  // namespace

CudaEmulation::Memory::Memory(std::size_t bytes, std::size_t zero_at) : size(bytes), zero(zero_at) {
  if (posix_memalign(reinterpret_cast<void**>(&base), 256, std::max<std::size_t>(bytes, 1)) != 0) throw std::bad_alloc();
  std::memset(base, 0xA5, bytes);
}
CudaEmulation::Memory::~Memory() { std::free(base); }

std::size_t CudaEmulation::add(const ir::Graph& of, std::span<const ir::ArrayView> inputs, const Options& options) {
  Job job;
  job.graph = copy_results(of);
  for (const ir::ArrayView& input : inputs) {
    const auto [size, zero] = footprint(input);
    job.inputs.emplace_back(size, zero);
    if (size) std::memcpy(job.inputs.back().base, static_cast<const std::byte*>(input.data) - zero, size);
  }
  return plan(std::move(job), inputs, options);
}

std::size_t CudaEmulation::plan(const ir::Graph& of, std::span<const ir::ArrayView> inputs, const Options& options) {
  Job job;
  job.graph = copy_results(of);
  for (const ir::ArrayView& input : inputs) job.inputs.emplace_back(0, footprint(input).second);
  return plan(std::move(job), inputs, options);
}

std::size_t CudaEmulation::plan(Job&& job, std::span<const ir::ArrayView> inputs, const Options& options) {
  const ir::Graph& graph = job.graph;
  std::vector<Layout> layouts(graph.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].strides.empty()) layouts[graph.inputs[i].node] = inputs[i].strides;
  FuseOptions fusing{.unfused = options.unfused};
  if (!options.unfused) fusing.lists = find_lists(graph, layouts);
  const Partition partition = cuda::fuse(graph, fusing, layouts, options.target);
  const auto is_aligned = [&](NodeId node) { return graph[node].op != ir::Op::Input || job.inputs[graph[node].bits].zero % 16 == 0; };
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
    for (Planned& planned : compiler::plan(graph, partition, g, layouts)) {
      std::vector<bool> aligned;
      for (std::size_t b = 0; b < planned.nest.buffers.size(); ++b) {
        const std::vector<NodeId>& members = planned.numbers.members[b];
        aligned.push_back(planned.nest.buffers[b].written ||
                          (members.empty() ? is_aligned(planned.numbers.buffers[b]) : std::ranges::all_of(members, is_aligned)));
      }
      Launch launch{std::move(planned), {}, {}};
      const Nest& nest = launch.planned.nest;
      launch.scheduled = cuda::schedule(nest, launch.planned.numbers, options.target, aligned);
      job.log += print(nest, launch.planned.numbers) + print(launch.scheduled);
      std::string key = nest.key() + launch.scheduled.schedule.key();
      KnownWords known;
      if (options.specialised) {
        std::vector<std::int64_t> words = cuda::make_words(nest, launch.planned.numbers, launch.scheduled.numbers);
        const WordLayout layout(nest);
        for (std::size_t s = 0; s < nest.slots.size(); ++s) words[layout.slots + s] = launch.planned.numbers.word_of_slot(s, graph.slots);
        known = known_words(nest, words, std::vector<bool>(nest.slots.size(), true));
        key += known.key();
      }
      auto it = kernels_.find(key);
      if (it == kernels_.end())
        it = kernels_
                 .emplace(key, program_.add("k" + std::to_string(kernels_.size()), nest, launch.scheduled.schedule,
                                            options.specialised ? &known : nullptr))
                 .first;
      launch.kernel = it->second;
      job.launches.push_back(std::move(launch));
    }
  jobs_.push_back(std::move(job));
  return jobs_.size() - 1;
}

EmulatedText::EmulatedText(const std::string& text) {
  const CompiledText compiled(text, true);
  if (compiled.is_compiled()) library_ = dlopen(compiled.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_)
    throw std::runtime_error("the text does not compile: " + compiled.log().substr(0, 4000) + (compiled.is_compiled() ? dlerror() : ""));
}
void EmulatedText::launch(const std::string& kernel, std::span<const std::int64_t> words, unsigned blocks, unsigned threads, unsigned seed,
                          bool cooperates) const {
  using Kernel = void (*)(const std::int64_t*);
  const auto start =
      reinterpret_cast<void (*)(Kernel, const std::int64_t*, unsigned, unsigned, bool, unsigned)>(dlsym(library_, "onepass_launch"));
  start(reinterpret_cast<Kernel>(dlsym(library_, kernel.c_str())), words.data(), blocks, threads, cooperates, seed);
}

namespace {
// Throws if a pragma that unrolls a loop precedes another statement, where the compiler would ignore it.
void check_pragmas(const std::string& text) {
  const std::string_view pragma = "#pragma unroll";
  for (std::size_t at = text.find(pragma); at != std::string::npos; at = text.find(pragma, at + 1)) {
    const std::size_t next = text.find_first_not_of(" \n", text.find('\n', at));
    if (!text.substr(next, 5).starts_with("for (")) throw std::runtime_error("a pragma precedes no loop: " + text.substr(next, 100));
  }
}
}  // namespace

void CudaEmulation::compile(const std::function<std::string(std::string)>& edit) {
  check_pragmas(text());
  compiled_.emplace(edit ? edit(text()) : text());
}

template <class F> F* RaceWatch::function(const char* name) const {
  return reinterpret_cast<F*>(dlsym(library_, ("onepass_races_" + std::string(name)).c_str()));
}
RaceWatch::RaceWatch(void* library) : library_(library) {
  if (is_on()) function<void()>("begin")();
}
bool RaceWatch::is_on() const { return dlsym(library_, "onepass_races_begin") != nullptr; }
void RaceWatch::add(const std::string& name, const void* at, std::size_t bytes, bool fresh) {
  if (!is_on()) return;
  function<void(const void*, std::size_t, bool)>("array")(at, bytes, fresh);
  arrays_.push_back({reinterpret_cast<std::uint64_t>(at), bytes, name});
}
void RaceWatch::words(std::span<const std::int64_t> words) {
  if (is_on()) function<void(const void*, std::size_t)>("words")(words.data(), words.size_bytes());
}
void RaceWatch::check(const std::string& kernel) const {
  if (!is_on()) return;
  const Race& race = *function<const Race*()>("found")();
  if (race.kind == Race::Kind::None) return;
  std::string where = "memory outside of the arrays";
  for (const auto& [address, bytes, name] : arrays_)
    if (race.address - address < bytes) where = "byte " + std::to_string(race.address - address) + " of " + name;
  if (race.is_shared)
    where = race.offset == ~std::uint64_t{0} ? "a variable in shared memory"
                                             : "byte " + std::to_string(race.offset) + " of the rows in shared memory";
  const auto text_of = [](const RacingAccess& a) {
    return "thread " + std::to_string(a.thread) + " of block " + std::to_string(a.block) + (a.is_write ? " writes" : " reads");
  };
  const std::string later = kernel + ": " + text_of(race.later);
  if (race.kind == Race::Kind::NobodyWrote) throw RaceError(later + " " + where + ", which nobody has written");
  if (race.kind == Race::Kind::OutsideOfArrays) throw RaceError(later + " " + where);
  throw RaceError(later + " " + where + ", which " + text_of(race.earlier) + ", and nothing orders them");
}

std::vector<CudaEmulation::KernelView> CudaEmulation::kernels(std::size_t number) const {
  std::vector<KernelView> out;
  for (const Launch& launch : jobs_[number].launches)
    out.push_back({launch.kernel.name, &launch.planned.nest, &launch.scheduled.schedule, launch.scheduled.numbers.shared_bytes,
                   launch.scheduled.numbers.blocks});
  return out;
}

std::vector<ir::Buffer> CudaEmulation::run(std::size_t number, unsigned seed, Counts* counts) {
  void* const library = compiled_->library();
  reinterpret_cast<void (*)(bool)>(dlsym(library, "onepass_record"))(counts != nullptr);
  const Job& job = jobs_[number];
  const ir::Graph& graph = job.graph;
  std::map<std::pair<NodeId, int>, Memory> stored;
  std::int64_t any_report = 0, report[4] = {0, 0, 0, reinterpret_cast<std::int64_t>(&any_report)};
  std::vector<std::unique_ptr<Memory>> partials;
  RaceWatch races(library);
  for (std::size_t i = 0; i < job.inputs.size(); ++i) races.add(graph.inputs[i].name, job.inputs[i].base, job.inputs[i].size, false);
  races.add("the report of a bad index", report, sizeof report, false), races.add("the CPU's flag", &any_report, sizeof any_report, false);
  for (const Launch& launch : job.launches) {
    const Nest& nest = launch.planned.nest;
    const NestNumbers& numbers = launch.planned.numbers;
    std::vector<std::int64_t> words = cuda::make_words(nest, numbers, launch.scheduled.numbers);
    const WordLayout layout(nest);
    const std::vector<std::uint32_t> tables = append_tables(nest, numbers, words);
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
      const std::uint32_t buffer = nest.accesses[a].buffer;
      const std::int64_t offset = byte_offset(nest, numbers, a);
      const auto base_of = [&](NodeId node) {
        const std::byte* base = nullptr;
        if (!nest.buffers[buffer].written && graph[node].op == ir::Op::Input) {
          base = job.inputs[graph[node].bits].base + job.inputs[graph[node].bits].zero;
        } else {
          const std::pair<NodeId, int> key{node, numbers.outputs[buffer]};
          const auto [it, is_new] = stored.try_emplace(key, bytes_of(graph, node, nest.buffers[buffer].dtype));
          if (is_new) races.add("%" + std::to_string(node), it->second.base, it->second.size, true);
          base = it->second.base;
        }
        return reinterpret_cast<std::int64_t>(base) + offset;
      };
      words[layout.pointers + a] = tables[a] == kNoTable ? base_of(numbers.buffers[buffer]) : tables[a];
      std::uint32_t word = tables[a];
      for (const NodeId member : numbers.members[buffer])
        words[word++] =
            graph[member].op == ir::Op::Slot ? static_cast<std::int64_t>(graph.slots[graph[member].bits].bits) : base_of(member);
    }
    for (std::size_t s = 0; s < nest.slots.size(); ++s) words[layout.slots + s] = numbers.word_of_slot(s, graph.slots);
    words.resize(launch.kernel.words);
    if (nest.has(Statement::Kind::Place)) words[layout.flag] = reinterpret_cast<std::int64_t>(report);
    if (launch.scheduled.numbers.partial_bytes > 0) {
      partials.push_back(std::make_unique<Memory>(static_cast<std::size_t>(launch.scheduled.numbers.partial_bytes)));
      words[layout.shared] = reinterpret_cast<std::int64_t>(partials.back()->base);
      races.add("the partial results", partials.back()->base, partials.back()->size, true);
    }
    races.words(words);
    for (std::int64_t phase = 0; phase < launch.scheduled.numbers.phases; ++phase) {
      if (phase > 0) words[layout.phase] = phase;
      compiled_->launch(launch.kernel.name, words, static_cast<unsigned>(launch.scheduled.numbers.blocks), launch.kernel.threads, seed,
                        launch.kernel.cooperates);
      races.check(launch.kernel.name);
    }
  }
  if ((any_report != 0) != (report[0] == 2)) throw std::runtime_error("an incomplete report of a bad index");
  bad_index_.reset();
  if (any_report) bad_index_ = {report[1], report[2]};
  if (counts) {
    struct Touch {
      long long address;
      std::uint32_t bytes, written;
    };
    std::size_t n = 0;
    const Touch* touches = reinterpret_cast<const Touch* (*)(std::size_t*)>(dlsym(library, "onepass_touches"))(&n);
    counts->kernels = static_cast<std::int64_t>(job.launches.size());
    std::map<long long, std::size_t> arrays;  // index in counts->arrays by address
    const auto note = [&](const std::string& name, const Memory& memory) {
      arrays[reinterpret_cast<long long>(memory.base)] = counts->arrays.size();
      counts->arrays.push_back({name, static_cast<std::int64_t>(memory.size)});
    };
    for (std::size_t i = 0; i < job.inputs.size(); ++i) note(graph.inputs[i].name, job.inputs[i]);
    for (const auto& [key, memory] : stored) note("%" + std::to_string(key.first), memory);
    for (const auto& memory : partials) note("partial results", *memory);
    for (const Touch* t = touches; t != touches + n; ++t) {
      const auto it = arrays.upper_bound(t->address);
      if (it == arrays.begin()) throw std::runtime_error("an access outside of the arrays");
      Array& array = counts->arrays[std::prev(it)->second];
      if (t->address + t->bytes > std::prev(it)->first + array.size) throw std::runtime_error("an access past the end of " + array.name);
      (t->written ? array.stored : array.loaded) += t->bytes;
      ++array.accesses;
      array.vectors += t->bytes == 16;
    }
  }
  std::vector<ir::Buffer> out;
  std::map<NodeId, int> copies;
  for (const NodeId id : graph.outputs) {
    ir::Buffer b{graph[id].dtype, {graph.shape(id).begin(), graph.shape(id).end()}, {}};
    b.bytes.resize(bytes_of(graph, id, graph[id].dtype));
    const auto it = stored.find({id, copies[id]++});
    if (it != stored.end() && !b.bytes.empty()) std::memcpy(b.bytes.data(), it->second.base, b.bytes.size());
    out.push_back(std::move(b));
  }
  return out;
}

}  // namespace onepass::test
