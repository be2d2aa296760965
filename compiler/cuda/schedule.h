// schedule: how a CUDA device runs a Nest. As on the CPU, DeviceSchedule holds all choices that change the text, with few variants per
// nest; they are part of the key. The kernel gets lengths and counts as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cuda/target.h"
#include "compiler/plan/nest.h"

namespace onepass::compiler::cuda {

/// Division of the work among threads. From Team on, threads exchange values.
///   Map      A thread processes `width` neighbors along the vector loop at a time; the grid strides over all of them.
///   Columns  For Rows nests: a thread processes `width` columns and runs through the reduced loops.
///   Team     For Lanes nests whose reduced elements are one summation block: a half-warp processes a row.
///   Block    For Lanes nests: a thread block of half-warps processes a row; each half-warp handles one summation block at a time.
///   Scan     For elementwise nests with scans: a half-warp processes a row, one group of 16 at a time.
///   Tile     For elementwise nests: a thread block processes `side` by `side` elements. Transposed operands go through shared memory.
///   RowsAndColumns  For Lanes nests with fused columns: a thread block processes eight rows at a time, one half-warp each, until their row
///                   reductions are complete. Then each thread processes `width` columns through the eight rows, does the stores of the
///                   rows and leaves the column sums for the next launch.
enum class Form : std::uint8_t { Map, Columns, Team, Block, Scan, Tile, RowsAndColumns };

struct DeviceSchedule {
  Form form = Form::Map;
  std::uint8_t width = 1;       // neighbors per thread and step; for Lanes nests: 1, 2 or 4
  std::uint16_t threads = 256;  // threads per block
  bool whole = false;           // kernel-variant flag: every thread processes `width` elements each time
  bool narrow = false;          // kernel-variant flag: indices fit into 32 bits
  bool one_block = false;       // kernel-variant flag: all reduced elements are in one summation block
  bool split = false;           // kernel-variant flag: split reduction, scan or sorted additions; the kernel is launched several times
  // Kernel-variant flag of split columns: groups of `width` neighboring columns per thread block, with 32 threads for each.
  std::uint8_t together = 0;
  bool by_eight = false;               // kernel-variant flag of rows and columns: partial sums are of eight rows, else of summation blocks
  std::uint8_t side = 0;               // side of a tile
  std::vector<std::uint32_t> packed;   // accesses that go through a tile
  std::vector<std::uint32_t> across;   // kernel-variant flag: accesses of `packed` that move as vectors of 16 bytes
  std::vector<std::uint32_t> vectors;  // kernel-variant flag: accesses that move as vectors of `width`, because they are always aligned
  std::vector<std::uint32_t> kept;     // statements that a half-warp caches in shared memory between sweeps
  std::vector<std::uint32_t> numbers;  // accesses to lists of scalar parameters, which are in the kernel parameters
  // Kernel-variant flag: 64-bit words for the pointer tables of array lists after the other kernel parameters; a power of two.
  std::uint32_t table_words = 0;
  bool operator==(const DeviceSchedule&) const = default;
  std::string key() const;
};

struct DeviceNumbers {
  std::int64_t blocks = 0;          // thread blocks of the grid
  std::int64_t shared_bytes = 0;    // dynamic shared memory per block, for cached values
  std::int64_t declared_bytes = 0;  // most static shared memory per block, which the text declares
  std::int64_t row = 0;             // elements of a cached row, a multiple of 64: kernel parameter `tile`
  // split: elements of r per thread (or block), and the number of chunks. Rows and columns: rows. Sorted additions: the last phase.
  std::int64_t chunk = 0, chunks = 1;
  std::int64_t phases = 1;         // launches of the kernel, each with a different kernel parameter `phase`
  std::int64_t partial_bytes = 0;  // device memory at kernel parameter `shared`: results that phases pass on
};

struct DeviceScheduled {
  DeviceSchedule schedule;
  DeviceNumbers numbers;
};

/// Offsets of cached values in a row's shared memory. A value can reuse the memory of a value whose last read precedes it. Elements of half
/// types are cached as they are stored, unless the row needs less memory if f32 values can reuse their memory.
struct KeptPlaces {
  std::vector<DType> types;          // by cached value: its type in shared memory
  std::vector<std::int64_t> before;  // by cached value: bytes before it, per element of the row
  std::int64_t bytes = 0;            // total, per element
};
KeptPlaces kept_places(const Nest& nest, const std::vector<std::uint32_t>& kept);

/// The kept loops that the index of an addition depends on: outer loops, the vector loop.
struct AdditionGroups {
  bool outer, vector;
};
AdditionGroups addition_groups(const Nest& nest);

/// Returns a nest with fused columns in the form that a device runs. Its last sweep reduces only the columns and does all stores that vary
/// along a row.
Nest with_columns_apart(const Nest& nest);
/// True if the nest fills the device with eight rows per block. The values that its sweeps read again must also fit into a block's shared
/// memory.
bool suits_device(const Nest& nest_with_columns, const NestNumbers& numbers, const DeviceTarget& target);

/// Returns the schedule of a nest. `aligned` says, by buffer, whether element (0, …, 0) of the argument is at a multiple of 16 bytes. If it
/// is empty, all arguments are aligned.
DeviceScheduled schedule(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, const std::vector<bool>& aligned = {});

std::string print(const DeviceScheduled& scheduled);

/// Returns the kernel parameters of compiler/plan/schedule.h, with DeviceNumbers::row as `tile`. The caller adds pointers, scalar
/// parameters and pointer tables. For an access to an array list, the pointer must be the index of the kernel parameter where its table
/// starts.
std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const DeviceNumbers& device);

}  // namespace onepass::compiler::cuda
