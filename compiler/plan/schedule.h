// schedule: how one target runs a Nest. What changes the code is in Schedule (named in the kernel's key, at most a handful of classes for
// each nest); lengths, tiles and counts are numbers that the code is given as arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/plan/nest.h"
#include "compiler/plan/rolled.h"
#include "compiler/target.h"

namespace onepass::compiler {

/// Contractions that run in tiles of their result (compiler/loops/contract.h): so many rows by so many columns at a time, whose sums stay
/// in registers. An operand that is packed is copied before it is read, in the order in which it is read.
struct RegisterTile {
  std::uint8_t rows = 0, width = 0;  // no rows: none of this
  bool one_block = false;            // class: the reduced elements lie within one block of the order of summation
  bool packs_rows = false, packs_columns = false;
  std::uint8_t turned =
      0;  // of columns that lie along the reduced loop: elements of that which are read at once, squares being turned; or 0
  std::uint8_t vector = 0;  // columns of a vector, of which a row has several; 0: one for all
  bool shared = false;      // columns are packed once for all items, in a phase before theirs
  bool swapped = false;     // rows and columns have changed places: vectors lie along the last outer loop
  std::uint8_t pitch = 0;  // of packed rows: elements from one to the next, no fewer than are reduced; 0: a block of the order of summation
  bool asks_ahead = false;  // for columns that are read where they stand, of more than the second-level cache holds
  bool operator==(const RegisterTile&) const = default;
};

struct Schedule {
  int vector_bytes = 32;                // of the target's registers
  int width = 8;                        // elements of the vector body: one or more registers
  bool masked = false;                  // one masked loop, no separate main loop, no unrolling: quicker to compile
  bool grouped = false;                 // a vector is a group of a scan, whatever the machine
  bool one_block = false;               // class: the reduced elements lie within one block of the order of summation
  bool row_scratch = false;             // class: a row of the values in `kept` fits the scratch
  bool split = false;                   // class: threads share the reduced elements of a row: an item is a chunk of them
  bool by_place = false;                // class: threads share the places that data choose: an item adds at a range of them
  RegisterTile tile;                    // class: a contraction in tiles, by the way of a LoopProgram
  int abreast = 1;                      // class: iterations of the last outer loop that run at once: what they share is loaded once
  std::vector<std::uint32_t> streamed;  // class: accesses whose stores bypass the caches; they start at multiples of 64 bytes
  std::vector<std::uint32_t> kept;      // statements held in row scratch between sweeps (where row_scratch)
  std::vector<std::uint32_t> packed;  // accesses read through a transposed tile: unit stride in the last outer loop, not in the vector loop
  std::vector<std::uint32_t> parts;   // statements that begin a further part of a long body: the parts run one after the other over a block
  Rolled rolled;                      // statements of the body that run as a loop
  bool operator==(const Schedule&) const = default;
  std::string key() const;
};

/// Elements that each part of a long body runs over before the next one: what they pass on stays in the first-level cache.
inline constexpr std::int64_t kPartBlock = 2048;

struct ScheduleNumbers {
  std::int64_t tile = 0;           // elements of the vector loop in one item (map and rows)
  std::int64_t tile_outer = 1;     // iterations of the last outer loop in one item: above 1 where packed or abreast
  std::int64_t tile_rows = 1;      // iterations of the outer loop before that in one item: above 1 where abreast, in a nest of lanes
  std::int64_t items = 0;          // what threads share
  std::int64_t scratch_bytes = 0;  // for each thread
  // split: elements of r in one item, items of one row (or tile); columns: rows, items; by place: places of an item, ranges
  std::int64_t chunk = 0, chunks = 1;
  std::int64_t phases = 1;                         // split, columns: times that all items run, each time when the one before is done
  bool claimed = false;                            // a split scan: items are begun in increasing order
  bool combines_last = false;                      // the last phase only combines and stores what rows have: little work
  std::int64_t shared_bytes = 0;                   // split, columns: of all items, at the word `shared`
  std::int64_t work = 0;                           // elements times statements, about: whether threads are worth waking
  std::int64_t bytes_read = 0, bytes_written = 0;  // moved by one run: docs/language.md, `moved_bytes`
};

struct Scheduled {
  Schedule schedule;
  ScheduleNumbers numbers;
};

struct ScheduleOptions {
  int threads = 1;
  bool aligned_stores = true;                             // the written arrays start at multiples of 64 bytes
  std::vector<bool> in_place;                             // by buffer: it is written over an array that the kernel reads; empty: none is
  std::vector<bool> held;                                 // by buffer: it lies in a thread's scratch (compiler/plan/strips.h); empty: none
  std::int64_t strip = 0;                                 // rows after which an item of a contraction ends; 0: no matter
  std::int64_t bytes_beside = 0;                          // moved by the other pieces of the group
  std::int64_t split_work = kThreadedWork;                // below this, threads do not share the elements of a row
  std::int64_t item_work = 0;                             // the most work of one item, about, as far as the nest can be cut; 0: no matter
  static constexpr std::int64_t kThreadedWork = 200'000;  // above which waking threads pays: 64K elements of a multiply and an add
};

/// The same schedule in the form that compiles quickest: single masked loops over one register. Same arguments, same scratch, same bits.
Schedule quick_form(Schedule schedule);

Scheduled schedule(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options = {});

std::string print(const Scheduled& scheduled);

// ---- the kernel's arguments
/// void kernel(const int64_t* words, int64_t begin, int64_t end, std::byte* scratch): runs items begin .. end. `scratch` is aligned to 64.
using KernelFunction = void (*)(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);

///
/// A split schedule shares the reduced elements of a row among items, in chunks of 2^m blocks of the order of summation, so that the tree
/// of the chunks' sums is the tree of the blocks. Sweep s is phase s: all items run it and leave their sums at the word `shared`, and after
/// that each item combines those of its row for itself. What the row itself stores is stored by its first item.
///
/// A nest with columns (nest.h) has two phases: items are blocks of rows, which leave their part of the columns there, then parts of the
/// vector loop (`tile` elements each), which combine them.
///
/// Of a map with scans a split schedule has chunks of kScanChunk elements as items, to be begun in increasing order, by any thread. An item
/// first sums its blocks, then waits for the base that the one before it leaves, leaves its own, and goes through its elements again while
/// they are in the caches. At the word `shared` stands a slot for each item and one more, whose first word says that the base is there:
/// zeros before a run.

inline constexpr std::int64_t kScanChunk = 1 << 16;
/// Bytes of an item's slot: a word, then a base of 8 bytes for each scan.
std::int64_t scan_slot_bytes(const Nest& nest);

/// Where each number stands in `words`.
struct WordLayout {
  std::uint32_t extents, tile, tile_outer, tile_rows, padded_run, chunk, chunks, linears, variables, by, bounds, slots, total;
  std::uint32_t phase, shared, pointers, flag;  // set by whoever runs the kernel
  explicit WordLayout(const Nest& nest);
  std::uint32_t offset_of(std::uint32_t linear) const { return linears + linear * (variables + 1); }
  std::uint32_t coefficient_of(std::uint32_t linear, std::uint32_t variable) const { return offset_of(linear) + 1 + variable; }
};

/// What a specialised kernel knows of its words beforehand: they become constants of its code. Pointers never are.
struct KnownWords {
  std::vector<std::int64_t> words;
  std::vector<bool> known;
  bool operator==(const KnownWords&) const = default;
  std::string key() const;
};
/// `words` with their slots filled in; `slot_known`, by position in Nest::slots: the others belong to each call.
KnownWords known_words(const Nest& nest, std::span<const std::int64_t> words, const std::vector<bool>& slot_known);

/// All words but pointers, slots and, where the body has a Place, the address of the flag: an i64 that a bad index sets to 1. The pointer of access a, at word pointers + a, is its buffer's data + byte_offset(a).
std::vector<std::int64_t> make_words(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule);
std::int64_t byte_offset(const Nest& nest, const NestNumbers& numbers, std::uint32_t access);

/// Adds the tables of accesses to lists: of each the number of its members, then a word for each, where it begins as returned, kNoTable for
/// other accesses. The caller fills in members' addresses, each + byte_offset, and at the access's pointer the address of the first. Of
/// numbers, the members are their bits, and the pointer is the address of the first + byte_offset.
std::vector<std::uint32_t> append_tables(const Nest& nest, const NestNumbers& numbers, std::vector<std::int64_t>& words);
inline constexpr std::uint32_t kNoTable = ~std::uint32_t{0};

}  // namespace onepass::compiler
