// Where a kernel's scratch memory goes, and what each sweep computes: shared by the schedule, which asks for the bytes, and the emitters.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

inline constexpr std::uint32_t kTreeLevels = 48;  // of the tree of blocks: 2^48 blocks

/// For each sweep, the statements it computes (or reads back, where an earlier sweep kept them).
std::vector<std::vector<bool>> needed_by_sweep(const Nest& nest, const std::vector<std::uint32_t>& kept);

/// Slots in units: a slot at k begins k * unit bytes into the scratch. Tiles of packed accesses follow, tile_outer units each.
struct ScratchLayout {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> kept;         // of Schedule::kept
  std::vector<std::uint32_t> packed;       // of Schedule::packed, in units of tile_outer times the element, from `total` on
  std::vector<std::uint32_t> values;       // rows: of each statement that is a row in scratch (reductions and what sweeps read of them)
  std::vector<std::uint32_t> temporaries;  // rows: eight rows before their tree
  std::vector<std::uint32_t> stacks;       // rows: the tree of blocks
  std::uint32_t total = 0;

  ScratchLayout(const Nest& nest, const Schedule& schedule);
  /// Elements of one row: bytes of a slot are unit * its elements' size.
  static std::int64_t unit(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule);
};

}  // namespace onepass::compiler
