// strips: kernels that run one after the other over the same rows run together, some rows at a time: a strip. What they hand to each other is
// then as large as a strip and stays in a core's cache; no array of it is made. Each element is computed by the same code from the same
// operands, so no bit changes.
//
// A row is an iteration of a kernel's first outer loops. A kernel is row-local in a value if its row r touches row r of the value alone, as
// the numbers of its accesses say: that is all that strips need, so every kernel that is not cut in other ways may take part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// A kernel, for find_strips: one after the other as they run.
struct StripKernel {
  const Nest* nest;
  const NestNumbers* numbers;
  const Scheduled* scheduled;
  bool alone = true;         // the only piece of its group, and no buffer is part of an array that several values share
  std::vector<bool> passed;  // by buffer: it lies between kernels alone
};

/// An access to a value that strips hold: where it is, counted from the beginning of the value's rows of this strip.
struct StripAccess {
  std::uint32_t access, value;
};
struct StripMember {
  std::int64_t items_of_outer = 0, items_of_strip = 0;
  std::vector<StripAccess> accesses;
  bool operator==(const StripMember&) const = default;
};
struct StripValue {
  ir::NodeId node;
  std::int64_t row_bytes;
  std::int64_t offset;  // in the memory of a thread
};

/// Kernels first .. first + members.size() in the order that find_strips chose, in strips of `rows` of each of `outer` times `inner` rows; the last strip of an outer iteration
/// has what is left. Outer iteration o and strip q of it are the items o * items_of_outer + q * items_of_strip on of each.
struct Strips {
  std::uint32_t first = 0;
  std::int64_t outer = 1, inner = 1, rows = 1;
  std::vector<StripMember> members;
  std::vector<StripValue> values;
  std::int64_t bytes = 0;  // of a thread
  std::int64_t held = 0;   // of the values, had they been arrays
  bool holds(ir::NodeId node) const {
    for (const StripValue& v : values)
      if (v.node == node) return true;
    return false;
  }
  std::int64_t strips() const { return outer * per_outer(); }
  std::int64_t per_outer() const { return (inner + rows - 1) / rows; }
};

/// The kernels that run in strips: where what lies between them would not stay in the caches of the cores. In order, none twice. Their members
/// are empty until lay_out: the kernels are scheduled once more, with ScheduleOptions::strip and ScheduleOptions::held.
/// `order`: in which kernels are to run, as indices into `kernels`. One that needs all rows of a value waits until the strips are done.
/// `always`: wherever they may, in strips as short as the kernels allow; for tests.
std::vector<Strips> find_strips(std::span<const StripKernel> kernels, const Target& target, int threads, std::vector<std::uint32_t>& order,
                                bool always = false);

/// Fills in the members of strips whose kernels are scheduled for them; false where one has items across the edge of a strip.
bool lay_out(Strips& strips, std::span<const StripKernel> kernels);

}  // namespace onepass::compiler
