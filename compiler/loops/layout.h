// Where the memories and sums of a LoopProgram lie in a kernel's scratch.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// `number`, or of a word of the call the so manieth part, rounded up, `times` that; or the levels that a tree of so many has.
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

/// A row-major array in scratch, which begins at a multiple of 64 bytes behind the one before.
struct Area {
  std::int64_t element;  // bytes
  std::vector<Length> lengths;
};

/// Of the memory that begins at line `hold`.
Area area_of_memory(const Program& program, const WordLayout& words, Id hold);
/// Of an accumulator: an element for each index of its axes, outer parts of splits first, those of vectors last; of a tree so many levels of these.
Area area_of_sums(const Program& program, const WordLayout& words, Id accumulator);
std::vector<Id> axes_in_order(const Program& program, Id accumulator);
std::int64_t bytes_of(const Area& area, std::span<const std::int64_t> words);

/// Whether the memory that begins at line `hold` is shared by the items of several phases: it begins before the first of these.
bool is_shared(const Program& program, Id hold);
/// Of the sums of chunks, that begin at line `start`.
bool is_shared_sum(const Program& program, Id start);
/// Loops that are the items of a phase, one after the other: parallel ones that stand in no other loop. What stands in no loop behind the last of
/// them is a phase too, of one item.
std::vector<Id> phases_of(const Program& program);
std::size_t count_phases(const Program& program);

/// Of all memories that are not shared, then all accumulators.
std::int64_t scratch_bytes(const Program& program, std::span<const std::int64_t> words);
/// Of the memories that are shared.
std::int64_t shared_bytes(const Program& program, std::span<const std::int64_t> words);

}  // namespace onepass::compiler::loops
