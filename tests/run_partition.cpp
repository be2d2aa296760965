#include "run_partition.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "compiler/codegen.h"
#include "compiler/kernel_object.h"
#include "compiler/lists.h"
#include "compiler/loops/interpret.h"
#include "compiler/loops/policy.h"
#include "compiler/plan/joined.h"
#include "compiler/tiles/tiles.h"
#include "footprint.h"

namespace onepass::test {

using namespace compiler;
using ir::NodeId;

namespace {
constexpr std::size_t kGuard = 256;
constexpr std::byte kMark{0xA5};
struct Memory {  // aligned to 64, with marked bytes on either side; in the arena if accesses are counted
  std::vector<std::byte> own;
  std::span<std::byte> bytes;
  std::byte* data = nullptr;
  std::size_t size = 0;
  static std::size_t room(std::size_t n) { return n + 2 * kGuard + 64; }
  explicit Memory(std::size_t n) : Memory(n, {}) {}
  Memory(std::size_t n, std::span<std::byte> place) : size(n) {
    if (place.empty()) own.resize(room(n));
    bytes = place.empty() ? std::span(own) : place;
    std::memset(bytes.data(), static_cast<int>(kMark), bytes.size());
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data()) + kGuard;
    data = bytes.data() + kGuard + ((at + 63) / 64 * 64 - at);
  }
  Memory(const Memory&) = delete;
  void check(const std::string& what) const {
    for (const std::byte* b = bytes.data(); b != bytes.data() + bytes.size(); ++b)
      if ((b < data || b >= data + size) && *b != kMark)
        throw std::runtime_error(what + " was written " +
                                 (b < data ? std::to_string(data - b) + " bytes before its start"
                                           : std::to_string(b - data - static_cast<std::ptrdiff_t>(size)) + " bytes past its end"));
  }
};

// One block for all arrays of a run. The counter of loads of a byte is one length after it, the counter of stores is two lengths after it.
class Arena {
 public:
  explicit Arena(std::size_t n) : length_(n), bytes_(3 * n) {}
  std::span<std::byte> take(std::size_t n) {
    if (at_ + n > length_) throw std::logic_error("the arena is too small");
    at_ += n;
    return std::span(bytes_).subspan(at_ - n, n);
  }
  std::int64_t loads() const { return static_cast<std::int64_t>(length_); }
  std::int64_t stores() const { return 2 * loads(); }
  std::vector<std::uint8_t> counters(const std::byte* data, std::size_t size, std::size_t element, std::int64_t delta) const {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < size; ++i) {
      const auto c = static_cast<std::uint8_t>(data[static_cast<std::int64_t>(i) + delta]);
      if (i % element == 0) out.push_back(c);
      else if (c) throw std::runtime_error("an access that is not of a whole element");
    }
    return out;
  }
  void check() const {  // every nonzero counter belongs to an array
    std::size_t counted = 0;
    for (std::size_t i = length_; i < bytes_.size(); ++i) counted += bytes_[i] != std::byte{0};
    for (const auto& [data, size] : arrays_)
      for (const std::int64_t delta : {loads(), stores()})
        for (std::size_t i = 0; i < size; ++i) counted -= data[static_cast<std::int64_t>(i) + delta] != std::byte{0};
    if (counted) throw std::runtime_error("an access outside the arrays");
  }
  void note(const std::byte* data, std::size_t size) { arrays_.emplace_back(data, size); }

 private:
  std::size_t length_, at_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<const std::byte*, std::size_t>> arrays_;
};

}  // namespace

std::vector<ir::Buffer> run(const ir::Graph& of, std::span<const ir::ArrayView> inputs, const RunOptions& options) {
  const ir::Graph graph = copy_results(of);
  std::int64_t bad_index = 0;
  std::vector<Layout> layouts(graph.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].strides.empty()) layouts[graph.inputs[i].node] = inputs[i].strides;
  FuseOptions fuse_options{.unfused = options.unfused, .limits = options.limits, .places = ir::places_of(graph)};
  if (!options.unfused) fuse_options.lists = find_lists(graph, layouts);
  const Partition partition = fuse(graph, fuse_options);
  constexpr std::size_t kMostTables = 1 << 16;  // bytes of numbers in tables
  std::optional<Arena> arena;
  std::vector<const std::byte*> bases;  // addresses of the inputs' elements (0, …, 0)
  std::vector<std::pair<const std::byte*, std::size_t>> memories;
  for (const ir::ArrayView& view : inputs) bases.push_back(static_cast<const std::byte*>(view.data));
  if (options.counts) {
    std::size_t room = 0;
    for (const ir::ArrayView& view : inputs) room += Memory::room(footprint(view).first);
    for (NodeId id = 0; id < graph.size(); ++id)
      if (partition.group_of[id] != Partition::kNoGroup)
        room += Memory::room(static_cast<std::size_t>(graph.elements(id)) * size_of(computed_type(graph[id].dtype))) *
                (1 + static_cast<std::size_t>(std::count(graph.outputs.begin(), graph.outputs.end(), id)));
    for (const auto& [id, list] : partition.lists.stored)
      for (const NodeId member : list.members)
        room += Memory::room(static_cast<std::size_t>(graph.elements(member)) * size_of(graph[member].dtype));
    if (!partition.lists.read.empty()) room += kMostTables;
    arena.emplace(room);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto [size, zero] = footprint(inputs[i]);
      const Memory copy(size, arena->take(Memory::room(size)));
      if (size) std::memcpy(copy.data, bases[i] - zero, size);
      bases[i] = copy.data + zero;
      memories.emplace_back(copy.data, size);
    }
  }
  std::map<std::pair<NodeId, int>, Memory> stored;
  std::deque<Memory> tables_of_numbers;
  const auto memory_of = [&](NodeId node, int copy, DType dtype) -> std::int64_t {
    if (graph[node].op == ir::Op::Input) return reinterpret_cast<std::int64_t>(bases[graph[node].bits]);
    const auto size = static_cast<std::size_t>(graph.elements(node)) * size_of(dtype);
    auto it = stored.find({node, copy});
    if (it == stored.end())
      it = stored.try_emplace({node, copy}, size, arena ? arena->take(Memory::room(size)) : std::span<std::byte>()).first;
    return reinterpret_cast<std::int64_t>(it->second.data);
  };
  // Computes an operator that has precompiled code, by the reference.
  const auto run_routine = [&](const NestNumbers& numbers) {
    const NodeId id = numbers.buffers.back();
    ir::Graph one;
    std::vector<std::int64_t> operands;
    std::vector<ir::ArrayView> views;
    const auto copied = [&](NodeId from) {
      ir::Node node = graph[from];
      node.shape = one.intern(graph.shape(from)), node.attributes = one.intern(graph.attributes(from));
      return node;
    };
    for (const std::int64_t o : graph.operands(id)) {
      auto from = static_cast<NodeId>(o);
      std::vector<NodeId> views_of_it;  // views that are not materialized
      for (; ir::is_view(graph[from].op) && partition.group_of[from] == Partition::kNoGroup; from = graph.operand(from, 0))
        views_of_it.push_back(from);
      const ir::List shape = graph.shape(from);
      NodeId node = one.add_input("x" + std::to_string(views.size()), graph[from].dtype, shape);
      views.push_back({graph[from].dtype,
                       reinterpret_cast<const void*>(memory_of(from, 0, graph[from].dtype)),
                       {shape.begin(), shape.end()},
                       layouts[from].value_or(std::vector<std::int64_t>())});
      for (; !views_of_it.empty(); views_of_it.pop_back()) {
        ir::Node view = copied(views_of_it.back());
        view.operands = one.intern(std::vector<std::int64_t>{node});
        node = one.add(view);
      }
      operands.push_back(node);
    }
    ir::Node node = copied(id);
    node.operands = one.intern(operands);
    one.outputs = {one.add(node)};
    const ir::Buffer result = ir::evaluate(one, views).at(0);
    std::memcpy(reinterpret_cast<void*>(memory_of(id, numbers.outputs.back(), node.dtype)), result.bytes.data(), result.bytes.size());
  };
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    std::set<std::string> bodies;
    const ScheduleOptions how = {.threads = options.threads, .aligned_stores = options.aligned_stores, .split_work = options.split_work};
    std::vector<Planned> pieces = plan(graph, partition, g, layouts);
    join_reduced_loops(pieces, options.target, how);
    for (const Planned& planned : pieces) {
      if (planned.nest.is_routine()) {
        run_routine(planned.numbers);
        continue;
      }
      Scheduled scheduled = schedule(planned.nest, planned.numbers, options.target, how);
      if (options.masked) scheduled.schedule = quick_form(scheduled.schedule);
      if (options.log) *options.log += print(planned.nest, planned.numbers) + print(scheduled);
      CodegenRequest request{&planned.nest, &scheduled.schedule, &options.target};
      if (options.masked) request.tier = Tier::Quick;
      request.count = options.counts != nullptr;
      const auto tiles = options.tiled ? TileProgram::of(planned.nest, options.target) : nullptr;
      std::vector<std::int64_t> words = make_words(planned.nest, planned.numbers, scheduled.numbers);
      KnownWords known;
      if (options.specialised) {
        known = known_words(planned.nest, words, std::vector<bool>(planned.nest.slots.size(), false));
        request.known = &known;
      }
      const auto object = tiles || options.interpreted ? nullptr : KernelObject::load(generate(request).object);
      const std::int64_t scratch_bytes = tiles ? tiles->scratch_bytes() : scheduled.numbers.scratch_bytes;
      if (tiles) ++*options.tiled;
      const WordLayout layout(planned.nest);
      if (options.counts) words.resize(words.size() + 2);  // for the offsets of the counters
      const std::vector<std::uint32_t> tables = append_tables(planned.nest, planned.numbers, words);
      for (std::uint32_t a = 0; a < planned.nest.accesses.size(); ++a) {
        const Access& access = planned.nest.accesses[a];
        const NodeId node = planned.numbers.buffers[access.buffer];
        const DType dtype = planned.nest.buffers[access.buffer].dtype;
        const std::int64_t offset = byte_offset(planned.nest, planned.numbers, a);
        if (tables[a] == kNoTable) {
          words[layout.pointers + a] = memory_of(node, planned.numbers.outputs[access.buffer], dtype) + offset;
          continue;
        }
        const std::vector<NodeId>& members = planned.numbers.members[access.buffer];
        std::int64_t* table = words.data() + tables[a];
        const bool numbers = graph[members[0]].op == ir::Op::Slot;
        if (numbers && arena) {  // in the arena, where loads are counted
          const std::size_t bytes = members.size() * sizeof(std::int64_t);
          const Memory& memory = tables_of_numbers.emplace_back(bytes, arena->take(Memory::room(bytes)));
          arena->note(memory.data, bytes);
          table = reinterpret_cast<std::int64_t*>(memory.data);
        }
        for (std::size_t m = 0; m < members.size(); ++m)
          table[m] =
              numbers ? static_cast<std::int64_t>(graph.slots[graph[members[m]].bits].bits) : memory_of(members[m], 0, dtype) + offset;
        words[layout.pointers + a] = reinterpret_cast<std::int64_t>(table) + (numbers ? offset : 0);
      }
      if (planned.nest.has(Statement::Kind::Place)) words[layout.flag] = reinterpret_cast<std::int64_t>(&bad_index);
      for (std::size_t s = 0; s < planned.nest.slots.size(); ++s) words[layout.slots + s] = planned.numbers.word_of_slot(s, graph.slots);
      if (options.counts) {
        words[layout.total] = arena->loads(), words[layout.total + 1] = arena->stores();
        options.counts->kernels += bodies.insert(planned.nest.key() + scheduled.schedule.key()).second;
        options.counts->bytes_read += scheduled.numbers.bytes_read;
        options.counts->bytes_written += scheduled.numbers.bytes_written;
      }
      if (options.interpreted) {
        ++*options.interpreted;
        loops::Program program = options.as_run ? loops::program_of(planned.nest, scheduled.schedule) : loops::lower(planned.nest);
        if (options.change) options.change(program);
        if (const std::string wrong = loops::verify(program); !wrong.empty())
          throw std::runtime_error(wrong + "\n" + print(planned.nest, planned.numbers) + loops::print(program, planned.numbers));
        loops::interpret(program, words, options.order);
        for (const auto& [key, memory] : stored) memory.check("result %" + std::to_string(key.first));
        continue;
      }
      Memory partials(static_cast<std::size_t>(scheduled.numbers.shared_bytes));
      std::memset(partials.data, scheduled.numbers.claimed ? 0 : 0xff, static_cast<std::size_t>(scheduled.numbers.shared_bytes));
      words[layout.shared] = reinterpret_cast<std::int64_t>(partials.data);
      for (int step = 0; step < scheduled.numbers.phases * options.threads; ++step) {
        const int share = step % options.threads;
        words[layout.phase] = step / options.threads;
        Memory scratch(static_cast<std::size_t>(scratch_bytes));  // exactly the requested size, so that sanitizers see overruns
        std::memset(scratch.data, 0xff, static_cast<std::size_t>(scratch_bytes));
        const std::int64_t begin = scheduled.numbers.items * share / options.threads;
        const std::int64_t end = scheduled.numbers.items * (share + 1) / options.threads;
        if (tiles) tiles->run(words.data(), begin, end, scratch.data);
        else object->function()(words.data(), begin, end, scratch.data);
        const auto text = [&] { return "\n" + print(planned.nest, planned.numbers) + print(scheduled); };
        scratch.check("scratch of" + text());
        partials.check("the partial results of" + text());
        for (const auto& [key, memory] : stored) memory.check("result %" + std::to_string(key.first) + " by" + text());
      }
    }
  }
  if (bad_index) throw std::runtime_error("an index lies outside");
  if (options.counts) {
    const auto count = [&](NodeId node, int copy, const std::byte* data, std::size_t size) {
      const std::size_t element = size_of(copy == NestNumbers::kUnrounded ? computed_type(graph[node].dtype) : graph[node].dtype);
      arena->note(data, size);
      options.counts->arrays.push_back({node, copy, element, arena->counters(data, size, element, arena->loads()),
                                        arena->counters(data, size, element, arena->stores())});
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) count(graph.inputs[i].node, 0, memories[i].first, memories[i].second);
    for (const auto& [key, memory] : stored) count(key.first, key.second, memory.data, memory.size);
    arena->check();
  }
  std::vector<ir::Buffer> out;
  std::map<NodeId, int> copies;
  for (const NodeId id : graph.outputs) {
    ir::Buffer b{graph[id].dtype, {graph.shape(id).begin(), graph.shape(id).end()}, {}};
    b.bytes.resize(static_cast<std::size_t>(graph.elements(id)) * size_of(graph[id].dtype));
    const auto it = stored.find({id, copies[id]++});
    if (it != stored.end() && !b.bytes.empty()) std::memcpy(b.bytes.data(), it->second.data, b.bytes.size());
    out.push_back(std::move(b));
  }
  return out;
}

}  // namespace onepass::test
