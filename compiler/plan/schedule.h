// schedule: how one target runs a Nest. Schedule holds all choices that change the code; they are part of the kernel's key, and a nest has
// few variants. Lengths, tile sizes and counts are numbers that the kernel gets as arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/plan/nest.h"
#include "compiler/plan/rolled.h"
#include "compiler/target.h"

namespace onepass::compiler {

/// Register tile of a contraction (compiler/loops/contract.h). The kernel computes `rows` by `width` elements of the result at a time, with
/// their sums in registers. A packed operand is first copied into a buffer, in the order in which it is read.
struct RegisterTile {
  std::uint8_t rows = 0, width = 0;  // rows 0: no register tile
  bool one_block = false;            // kernel-variant flag: all reduced elements are in one summation block
  bool packs_rows = false, packs_columns = false;
  // For columns that are contiguous along the reduced loop: the elements of that loop that are read at once and transposed in squares. Else
  // 0.
  std::uint8_t turned = 0;
  std::uint8_t vector = 0;  // columns per vector if a row has several vectors; 0: one vector per row
  bool shared = false;      // columns are packed once for all tasks, in an earlier phase
  bool swapped = false;     // rows and columns are exchanged: vectors run along the last outer loop
  // Packed rows: elements between two rows, at least the number of reduced elements. 0: a summation block.
  std::uint8_t pitch = 0;
  bool asks_ahead = false;  // prefetches columns that exceed the first-level cache, if they are packed, or the second
  bool operator==(const RegisterTile&) const = default;

  bool turns_when_read() const { return turned > 0 && !packs_columns; }  // else squares are transposed when columns are packed
};

struct Schedule {
  int vector_bytes = 32;     // register size of the target
  int width = 8;             // elements of the vector body, in one or more registers
  bool masked = false;       // one masked loop without a main loop and without unrolling; compiles faster
  bool grouped = false;      // a vector is one group of a scan on every target
  bool one_block = false;    // kernel-variant flag: all reduced elements are in one summation block
  bool row_scratch = false;  // kernel-variant flag: one row of the values in `kept` fits into scratch
  bool split = false;        // kernel-variant flag: split reduction; a task is a chunk of a row's reduced elements
  bool by_place = false;     // kernel-variant flag: destination-partitioned scatter; a task updates one range of indices
  RegisterTile tile;         // kernel-variant flag: a contraction in register tiles, by way of a LoopProgram
  // kernel-variant flag: the reduced loop of an outer-axis reduction runs inside the vector loop, with the sums in registers
  bool reduced_inside = false;
  bool finds = false;  // kernel-variant flag: the loop that computes an extreme also finds its index (IndexSearch), in 32 bits
  int abreast = 1;     // kernel-variant flag: unroll-and-jam factor of the last outer loop; its iterations share loads
  // kernel-variant flag: short rows of a reduction along the last loop are lanes of a vector, and each of their elements is a vector of that
  // many rows. 0: the elements of a row are the lanes.
  int row_lanes = 0;
  bool asks_ahead = false;  // kernel-variant flag: what the loop reads later is prefetched, because it is not in the second-level cache
  std::vector<std::uint32_t> streamed;  // kernel-variant flag: accesses with non-temporal stores, which start at multiples of 64 bytes
  std::vector<std::uint32_t> kept;      // statements cached in a row buffer between sweeps (with row_scratch)
  // Accesses read through a packed operand tile: they have unit stride along the last outer loop, not along the vector loop.
  std::vector<std::uint32_t> packed;
  // First statements of the second and later fissioned loops of a long body. The loops run one after the other over each block of elements.
  std::vector<std::uint32_t> parts;
  Rolled rolled;  // rerolled statements of the body
  // Operators that are functions, which generic kernels call. Specialized kernels, whose compilation waited until it pays, have their code in
  // place.
  std::vector<std::pair<ir::Op, DType>> called;
  bool operator==(const Schedule&) const = default;
  std::string key() const;
};

/// Most elements of rows that are the lanes of vectors.
inline constexpr std::int64_t kMostInLanes = 32;

/// Elements that each fissioned loop of a long body covers before the next loop runs. The values passed between them stay in the
/// first-level cache.
inline constexpr std::int64_t kPartBlock = 2048;

struct ScheduleNumbers {
  std::int64_t tile = 0;           // elements of the vector loop per task (Map and Rows)
  std::int64_t tile_outer = 1;     // iterations of the last outer loop per task; above 1 if packed or unroll-and-jammed
  std::int64_t tile_rows = 1;      // iterations of the next outer loop per task; above 1 in unroll-and-jammed Lanes nests
  std::int64_t items = 0;          // number of tasks
  std::int64_t scratch_bytes = 0;  // per thread
  // chunk: split: reduced elements per task; fused columns: rows per task; destination-partitioned scatter: indices per task.
  // chunks: split: tasks per row (or tile); fused columns: tasks; destination-partitioned scatter: ranges.
  std::int64_t chunk = 0, chunks = 1;
  std::int64_t phases = 1;                         // passes over all tasks; each pass waits for the previous pass
  bool claimed = false;                            // split scan: tasks must start in increasing order
  bool combines_last = false;                      // the last phase only combines and stores results: little work
  std::int64_t shared_bytes = 0;                   // memory shared by all tasks, at kernel parameter `shared`
  std::int64_t work = 0;                           // approximate elements times statements; decides whether to wake threads
  std::int64_t bytes_read = 0, bytes_written = 0;  // memory traffic of one run: `moved_bytes` in docs/language.md
};

struct Scheduled {
  Schedule schedule;
  ScheduleNumbers numbers;
};

struct ScheduleOptions {
  int threads = 1;
  bool aligned_stores = true;     // the written arrays start at multiples of 64 bytes
  std::vector<bool> in_place;     // by buffer: it overwrites an array that the kernel reads; empty: false for all
  std::vector<bool> held;         // by buffer: it is in a thread's scratch (compiler/plan/strips.h); empty: false for all
  std::int64_t strip = 0;         // row count that tasks must not cross, of contractions, steps and loops over elements; 0: no limit
  std::int64_t bytes_beside = 0;  // memory traffic of the other subdomains of the fusion group
  std::int64_t split_work = kThreadedWork;  // less work than this is not shared by splitting rows
  // approximate limit of the work per task, as far as the nest can be cut; 0: no limit
  std::int64_t item_work = 0;
  static constexpr std::int64_t kThreadedWork = 200'000;  // work from which threads pay off: 64K elements of a multiply and an add
};

/// Returns the form of `schedule` that compiles fastest: single masked loops over one register. Arguments, scratch and result bits stay the
/// same.
Schedule quick_form(Schedule schedule);

Scheduled schedule(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options = {});

std::string print(const Scheduled& scheduled);

// ---- the kernel's arguments
/// Kernel entry point: runs tasks begin .. end. `words` points to the kernel parameters; `scratch` is aligned to 64 bytes.
using KernelFunction = void (*)(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);

/// Split reductions: a split schedule shares the reduced elements of a row among tasks. A chunk has 2^m summation blocks, so that the tree
/// of the chunk sums is the tree of the blocks. Sweep s is phase s: all tasks run it and write their sums to memory at kernel parameter
/// `shared`. In the next phase, each task combines the sums of its row. The first task of a row stores the values that the row has only
/// once.
///
/// Fused columns (nest.h): such a nest has two phases. In the first phase, tasks are blocks of rows, which write partial column results to
/// `shared`. In the second phase, tasks are parts of the vector loop (`tile` elements each), which combine the partial results.
///
/// Split scans: for an elementwise nest with scans, tasks are chunks of kScanChunk elements. They must start in increasing order, on any
/// thread. A task sums its blocks, waits for the base of the preceding task and publishes its own base. It then reads its elements again
/// while they are in the caches. `shared` has a slot per task and one more; the first word of a slot says that its base is ready. The
/// caller must clear the memory to zero before each run.

inline constexpr std::int64_t kScanChunk = 1 << 16;
/// Returns the bytes of a task's slot in a split scan: a word, then an 8-byte base and 8-byte block sums for each scan.
std::int64_t scan_slot_bytes(const Nest& nest);

/// Positions of the kernel parameters in `words`.
struct WordLayout {
  std::uint32_t extents, tile, tile_outer, tile_rows, padded_run, chunk, chunks, linears, variables, by, bounds, slots, total;
  std::uint32_t phase, shared, pointers, flag;  // filled in by the caller of the kernel
  explicit WordLayout(const Nest& nest);
  std::uint32_t offset_of(std::uint32_t linear) const { return linears + linear * (variables + 1); }
  std::uint32_t coefficient_of(std::uint32_t linear, std::uint32_t variable) const { return offset_of(linear) + 1 + variable; }
};

/// Specialization constants: kernel parameters whose values are constants in the code of a specialized kernel. Pointers are never
/// constants.
struct KnownWords {
  std::vector<std::int64_t> words;
  std::vector<bool> known;
  bool operator==(const KnownWords&) const = default;
  std::string key() const;
};
/// Returns `words` as specialization constants. `slot_known` tells, by position in Nest::slots, which scalar parameters are constants; each
/// call passes the other kernel parameters.
KnownWords known_words(const Nest& nest, std::span<const std::int64_t> words, const std::vector<bool>& slot_known);

/// Returns the kernel parameters except pointers, scalar parameters and the flag address. A body with a Place has a flag address: an i64
/// that an index out of bounds sets to 1. The pointer of access a, parameter pointers + a, is its buffer's data + byte_offset(a).
std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule);
std::int64_t byte_offset(const Nest& nest, const NestNumbers& numbers, std::uint32_t access);

/// Appends the pointer tables of accesses to array lists: for each, the number of members, then one word per member. Returns the first
/// member's position for each access, or kNoTable for other accesses.
/// The caller fills in the address of each member plus byte_offset; the pointer of the access is the address of the first entry. For a list
/// of scalar parameters, the entries are their bits and the pointer is the address of the first entry plus byte_offset.
std::vector<std::uint32_t> append_tables(const Nest& nest, const NestNumbers& numbers, std::vector<std::int64_t>& words);
inline constexpr std::uint32_t kNoTable = ~std::uint32_t{0};

}  // namespace onepass::compiler
