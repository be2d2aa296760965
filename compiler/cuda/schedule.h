// schedule: how a CUDA device runs a Nest. As on the CPU, what changes the text is in DeviceSchedule, a handful of classes named in the key;
// lengths and counts are numbers that the kernel is given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cuda/target.h"
#include "compiler/plan/nest.h"

namespace onepass::compiler::cuda {

/// How threads share the work.
///   Map      a thread takes `width` neighbours along the vector loop at a time, the grid strides through all
///   Columns  of rows: a thread takes `width` columns and runs through the reduced loops
///   Team     of lanes, where the reduced elements are one block of the order of summation: half a warp takes a row
///   Block    of lanes: a block of teams takes a row, each team a block of the order at a time
///   Scan     of a map with scans: half a warp takes a row, a group of 16 at a time
///   Tile     of a map: a block takes `side` by `side` elements; what lies across goes through shared memory
///   RowsAndColumns  of lanes with columns: a block takes eight rows at a time, half a warp each; when the reductions along them are done, a
///            thread takes `width` columns through the eight rows, stores what rows store and leaves the columns' sums for the next launch
/// From Team on, threads exchange values.
enum class Form : std::uint8_t { Map, Columns, Team, Block, Scan, Tile, RowsAndColumns };

struct DeviceSchedule {
  Form form = Form::Map;
  std::uint8_t width = 1;       // neighbours that a thread takes at once; of lanes: 1, 2 or 4
  std::uint16_t threads = 256;  // of a block
  bool whole = false;           // class: all threads take `width` elements each time
  bool narrow = false;          // class: indices fit 32 bits
  bool one_block = false;       // class: the reduced elements lie within one block of the order of summation
  bool split = false;           // class: the reduced elements of a row are shared; the kernel is launched several times
  std::uint8_t together = 0;  // class, of split columns: so many neighbours of `width` columns for a block of threads, 32 threads for each
  bool by_eight = false;      // class, of rows and columns: what is left is sums of eight rows, else of blocks of the order of summation
  std::uint8_t side = 0;      // of a tile
  std::vector<std::uint32_t> packed;   // of a tile: accesses that lie across
  std::vector<std::uint32_t> across;   // class, of these: those that move as vectors of 16 bytes
  std::vector<std::uint32_t> vectors;  // class: accesses that move as vectors of `width`: aligned wherever the nest meets them
  std::vector<std::uint32_t> kept;     // statements that a team holds in shared memory between sweeps
  std::vector<std::uint32_t> numbers;  // accesses to lists of numbers, which stand among the words
  std::uint32_t table_words = 0;       // class, a power of two: for the tables of lists, behind the other words
  bool operator==(const DeviceSchedule&) const = default;
  std::string key() const;
};

struct DeviceNumbers {
  std::int64_t blocks = 0;          // of the grid
  std::int64_t shared_bytes = 0;    // of a block, for what is kept: dynamic shared memory
  std::int64_t declared_bytes = 0;  // beside it, by the text at most: static shared memory
  std::int64_t row = 0;             // elements of a kept row, a multiple of 64: the word `tile`
  // split: elements of r that one thread (or block) takes, and how many do; rows and columns: rows
  std::int64_t chunk = 0, chunks = 1;
  std::int64_t phases = 1;         // times that the kernel is launched, each time with another word `phase`
  std::int64_t partial_bytes = 0;  // of device memory, at the word `shared`: what phases leave for each other
};

struct DeviceScheduled {
  DeviceSchedule schedule;
  DeviceNumbers numbers;
};

/// Where kept values lie in a row's shared memory. What is read for the last time before another value is written lends that one its place.
struct KeptPlaces {
  std::vector<std::int64_t> before;  // of each kept value: bytes that stand before it, for an element of the row
  std::int64_t bytes = 0;            // of all, for an element
};
KeptPlaces kept_places(const Nest& nest, const std::vector<std::uint32_t>& kept);

/// A nest with columns as a device runs it: nothing but the columns is reduced in the last sweep, in which all is stored that varies along a row.
Nest with_columns_apart(const Nest& nest);
/// Does it fill the device, eight rows for a block, and does what its sweeps read again fit the memory that a block shares?
bool suits_device(const Nest& nest_with_columns, const NestNumbers& numbers, const DeviceTarget& target);

/// `aligned`, by buffer: element (0, …, 0) of the argument lies at a multiple of 16 bytes; none given: all do.
DeviceScheduled schedule(const Nest& nest, const NestNumbers& numbers, const DeviceTarget& target, const std::vector<bool>& aligned = {});

std::string print(const DeviceScheduled& scheduled);

/// The kernel's words: those of compiler/plan/schedule.h, `tile` being DeviceNumbers::row. Pointers, slots and the tables of lists are the caller's
/// to add; an access to a list has in its pointer's place the number of the word in which its table begins.
std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const DeviceNumbers& device);

}  // namespace onepass::compiler::cuda
