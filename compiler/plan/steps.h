// How steps (ir/steps.h) run as a kernel: what its words are, and how many elements a vector has. compiler/plan/routine.h plans it,
// compiler/llvm/emit_steps.cpp writes its code.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

Scheduled schedule_steps(const Nest& nest, const NestNumbers& numbers, const Target& target, int threads);

/// All words but pointers.
std::vector<std::int64_t> steps_words(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& scheduled);

/// Where each number stands among the words.
struct StepsWords {
  enum : std::uint32_t {
    kPhase,
    kShared,
    kCount,     // steps
    kElements,  // of a state
    kTile,      // elements of an item
    kFirst,     // of each buffer a pointer, then bytes from one step to the next, and from one element to the next
  };
  static std::uint32_t pointer(std::uint32_t buffer) { return kFirst + 3 * buffer; }
};

}  // namespace onepass::compiler
