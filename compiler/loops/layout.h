// Layout of the memories and sums of a LoopProgram in a kernel's scratch.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// A length: `number`, or a kernel parameter divided by `number`, rounded up, times `times`. With `levels`, it is the number of levels of a
/// tree over that many elements.
struct Length {
  static constexpr std::uint32_t kNumber = ~std::uint32_t{0};
  std::int64_t number = 1;
  std::uint32_t word = kNumber;
  std::int64_t times = 1;
  bool levels = false;
  std::int64_t in(std::span<const std::int64_t> words) const {
    if (word == kNumber) return number;
    const std::int64_t n = (words[word] + number - 1) / number;
    return levels ? std::bit_width(static_cast<std::uint64_t>(n)) : n * times;
  }
};

/// A row-major array in scratch. It starts at the next multiple of 64 bytes after the preceding area.
struct Area {
  std::int64_t element;  // bytes
  std::vector<Length> lengths;
};

/// Returns the lanes of the vector loop around a line. A memory or sum that starts there has elements for each lane, which are adjacent.
/// Returns 1 if the line is in no vector loop.
std::int64_t lanes_around(const Program& program, Id line);

/// Returns the area of the memory that line `hold` starts.
Area area_of_memory(const Program& program, const WordLayout& words, Id hold);
/// Returns the area of an accumulator: one element per index of its axes. Outer parts of splits come first, parts of vectors come last. A
/// tree has that many elements per level.
Area area_of_sums(const Program& program, const WordLayout& words, Id accumulator);
std::vector<Id> axes_in_order(const Program& program, Id accumulator);
std::int64_t bytes_of(const Area& area, std::span<const std::int64_t> words);

/// True if tasks of several phases share the memory that line `hold` starts. Such a memory starts before the first of these phases.
bool is_shared(const Program& program, Id hold);
/// True if line `start` starts the sums of chunks.
bool is_shared_sum(const Program& program, Id start);
/// Returns the loops of the phases, in order: parallel loops inside no other loop, whose iterations are the tasks of a phase. Lines after
/// the last of these loops and outside all loops form one more phase, with a single task; only count_phases() includes it.
std::vector<Id> phases_of(const Program& program);
std::size_t count_phases(const Program& program);

/// Returns the bytes of all unshared memories and all accumulators.
std::int64_t scratch_bytes(const Program& program, std::span<const std::int64_t> words);
/// Returns the bytes of the shared memories.
std::int64_t shared_bytes(const Program& program, std::span<const std::int64_t> words);

}  // namespace onepass::compiler::loops
