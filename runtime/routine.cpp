// See routine.h. Computes kernel parameters and divides rows among tasks; the code is in routine_sort.cpp, routine_search.cpp and
// routine_assign.cpp.
#include "runtime/routine.h"

#include <algorithm>

#include "ir/graph.h"
#include "onepass/error.h"
#include "runtime/kernel_cache.h"
#include "runtime/routine_code.h"
#include "runtime/sort_network.h"

namespace onepass::runtime {

using compiler::Nest;
using compiler::NestNumbers;
using ir::Op;

namespace {

constexpr std::int64_t kSharedLength = 1 << 16;  // shorter rows are not divided among threads
constexpr std::int64_t kSearched = 4096;         // values of a search task

std::int64_t up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }
std::int64_t aligned(std::int64_t bytes) { return up(bytes, 64) * 64; }

std::int64_t rows_of(const Nest& nest, const NestNumbers& numbers) {
  std::int64_t rows = 1;
  for (std::uint32_t l = 0; l < nest.outer; ++l) rows *= numbers.extents[l];
  return rows;
}

// Returns the number of rows to read together, by cache lines, at most `most`, if rows are adjacent in memory and not contiguous along their
// axis.
std::int64_t block_of(const Nest& nest, const NestNumbers& numbers, std::int64_t rows, std::int64_t element, std::int64_t most) {
  constexpr std::int64_t room = 1 << 20;
  if (nest.outer == 0 || numbers.coefficients[0].back() == 1) return 1;
  if (numbers.coefficients[0][nest.outer - 1u] != 1 && numbers.coefficients.back()[nest.outer - 1u] != 1) return 1;
  return std::clamp<std::int64_t>(room / std::max<std::int64_t>(numbers.extents.back() * element, 1), 1, std::min(most, rows));
}

// is_dense: rows are read one by one, not several that are adjacent in memory together.
SortBy sort_by(const SortSizes& sizes, bool is_dense, std::int64_t chunks, const compiler::Target& target) {
  if (network_pays(sizes, target)) return SortBy::Network;
  if (sizes.few()) return SortBy::Select;
  if (is_dense && sorts_by_counts(sizes.type, sizes.length)) return SortBy::Counts;
  return chunks > 1 ? SortBy::Shared : SortBy::Rows;
}

}  // namespace

compiler::Scheduled schedule_routine(const Nest& nest, const NestNumbers& numbers, const compiler::Target& target, int threads) {
  compiler::Scheduled out;
  compiler::ScheduleNumbers& n = out.numbers;
  const std::int64_t rows = rows_of(nest, numbers), length = numbers.extents.back(), results = numbers.results;
  const auto size = static_cast<std::int64_t>(size_of(nest.buffers[0].dtype));
  n.bytes_read = rows * length * size;
  n.bytes_written = rows * results * static_cast<std::int64_t>(size_of(nest.buffers.back().dtype));
  n.tile = 1;
  if (nest.routine == Op::Search) {
    n.bytes_read += rows * results * size;
    n.tile = std::clamp<std::int64_t>(results, 1, kSearched);
    n.chunks = up(results, n.tile);
    n.items = rows * n.chunks;
    n.work = rows * results * 32;
    return out;
  }
  if (nest.routine == Op::Assign) {
    n.bytes_read += rows * results * (size + 8);
    n.bytes_written = rows * length * size;
    n.tile = block_of(nest, numbers, rows, 0, std::clamp<std::int64_t>(rows / threads, 16, kAssignedTogether));
    n.items = up(rows, n.tile);
    n.work = rows * (length + results * 4);
    return out;
  }
  n.work = rows * length * 24;
  const DType type = nest.buffers[0].dtype;
  const bool places = nest.routine == Op::Argsort;
  const std::int64_t element = sort_element_bytes(type, places, length);
  const bool share = threads > 1 && rows < 2 * threads && length >= kSharedLength;
  n.chunks = share ? threads : 1;
  const std::int64_t together = block_of(nest, numbers, rows, element, 16);
  const SortBy by = sort_by({type, places, rows, length, results}, together == 1, n.chunks, target);
  n.chunk = static_cast<std::int64_t>(by);  // for routine_words
  switch (by) {
    case SortBy::Network:
      n.work = rows * length * sort_network_work(type, places);
      n.tile = sort_network_rows(type, places);
      n.items = up(rows, n.tile);
      n.scratch_bytes = sort_network_bytes(type, places, length);
      break;
    case SortBy::Rows:
      n.tile = together;
      n.items = up(rows, n.tile);
      n.scratch_bytes = sort_scratch_bytes(type, places, length, n.tile);
      break;
    case SortBy::Shared:
      n.items = rows * n.chunks;
      n.phases = shared_sort_phases(type);
      n.shared_bytes = rows * shared_sort_bytes(type, places, length, n.chunks);
      break;
    case SortBy::Counts:
      n.work = rows * length * 4;
      n.items = rows * n.chunks;
      n.phases = n.chunks > 1 ? 2 : 1;
      n.shared_bytes = n.chunks > 1 ? counts_bytes(n.items) : 0;
      break;
    case SortBy::Select:
      n.items = rows * n.chunks;
      n.phases = n.chunks > 1 ? 2 : 1;
      n.scratch_bytes = select_scratch_bytes(type, length, results, n.chunks);
      n.shared_bytes = n.chunks > 1 ? n.items * select_shared_bytes(type, length, results) : 0;
      break;
  }
  n.scratch_bytes = aligned(n.scratch_bytes);
  return out;
}

std::vector<std::int64_t> routine_words(const Nest& nest, const NestNumbers& numbers, const compiler::ScheduleNumbers& scheduled) {
  std::vector<std::int64_t> words(RoutineWords::kFirst, 0);
  words[RoutineWords::kType] = static_cast<std::int64_t>(nest.buffers[0].dtype);
  words[RoutineWords::kVariant] = nest.variant;
  words[RoutineWords::kLength] = numbers.extents.back();
  words[RoutineWords::kResults] = numbers.results;
  words[RoutineWords::kRows] = rows_of(nest, numbers);
  words[RoutineWords::kBlock] = scheduled.tile;
  words[RoutineWords::kChunks] = scheduled.chunks;
  words[RoutineWords::kBy] = scheduled.chunk;
  words[RoutineWords::kLoops] = nest.outer;
  const std::size_t last = nest.buffers.size() - 1;
  const auto strides = [&](std::size_t loop) {
    for (std::size_t b = 0; b < 3; ++b) words.push_back(b < last ? numbers.coefficients[b][loop] : 0);
    words.push_back(numbers.coefficients[last][loop]);
  };
  for (std::uint32_t l = 0; l < nest.outer; ++l) {
    words.push_back(numbers.extents[l]);
    strides(l);
  }
  strides(nest.outer);
  return words;
}

std::shared_ptr<const Kernel> routine_kernel(const Nest& nest) {
  static const auto& sorts = *new std::shared_ptr<const Kernel>(std::make_shared<Kernel>(&run_sort));
  static const auto& argsorts = *new std::shared_ptr<const Kernel>(std::make_shared<Kernel>(&run_argsort));
  static const auto& searches = *new std::shared_ptr<const Kernel>(std::make_shared<Kernel>(&run_search));
  static const auto& assigns = *new std::shared_ptr<const Kernel>(std::make_shared<Kernel>(&run_assign));
  switch (nest.routine) {
    case Op::Assign: return assigns;
    case Op::Sort: return sorts;
    case Op::Argsort: return argsorts;
    case Op::Search: return searches;
    default: throw InternalError("routine: none for " + std::string(ir::info(nest.routine).text));
  }
}

}  // namespace onepass::runtime
