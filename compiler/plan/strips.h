// strips: runs consecutive kernels over the same rows together, a few rows (a strip) at a time. The values that they exchange are only as
// large as a strip and stay in a core's cache. No array is allocated for them. Each element is computed by the same code from the same
// operands, so that no bit changes.
//
// A row is an iteration of a kernel's first outer loops, an element of a loop with steps, or an iteration of an only loop. A kernel is row-local in a value if its row r accesses only row r of the value;
// the coefficients of its accesses show this. Every row-local kernel that is not cut in other ways can take part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// A kernel that find_strips() considers, in execution order.
struct StripKernel {
  const Nest* nest;
  const NestNumbers* numbers;
  const Scheduled* scheduled;
  // True if it is the only subdomain of its fusion group and none of its buffers is part of an array that several values share.
  bool alone = true;
  std::vector<bool> passed;                         // by buffer: only kernels access it
  std::vector<ir::NodeId> also_read, also_written;  // by further subdomains with the same code, and by array lists
};

/// Access to a value that strips hold. Its position counts from the start of the value's rows of the strip.
struct StripAccess {
  std::uint32_t access, value;
};
struct StripMember {
  std::int64_t items_of_outer = 0, items_of_strip = 0;
  std::vector<StripAccess> accesses;
  bool operator==(const StripMember&) const = default;
};
/// A value that strips hold: so many elements per row. If `apart` is 1, rows follow each other. Otherwise they are columns of a matrix, as
/// steps store them, and two elements of a row are `apart` elements apart in the whole matrix, but as many as the strip has rows in memory.
struct StripValue {
  ir::NodeId node;
  std::int64_t length, apart, element_bytes;
  std::int64_t offset;  // in the memory of a thread
  std::int64_t row_bytes() const { return length * element_bytes; }
  bool has_columns() const { return apart != 1; }
};

/// Kernels first .. first + members.size(), in the order that find_strips() chose, run in strips. Each of `outer` iterations has `inner`
/// rows, cut into strips of `rows` rows; the last strip has the remaining rows. In each kernel, strip q of iteration o starts at task o *
/// items_of_outer + q * items_of_strip.
struct Strips {
  std::uint32_t first = 0;
  std::int64_t outer = 1, inner = 1, rows = 1;
  std::vector<StripMember> members;
  std::vector<StripValue> values;
  std::int64_t bytes = 0;  // per thread
  std::int64_t held = 0;   // bytes of the values if they were arrays
  bool holds(ir::NodeId node) const {
    for (const StripValue& v : values)
      if (v.node == node) return true;
    return false;
  }
  std::int64_t strips() const { return outer * per_outer(); }
  std::int64_t per_outer() const { return (inner + rows - 1) / rows; }
};

/// Returns the kernels that run in strips because the values between them would not stay in the caches. The results are in order; no kernel
/// occurs twice. Their members are empty until lay_out(): the caller must schedule the kernels again with ScheduleOptions::strip and
/// ScheduleOptions::held.
/// `order` receives the execution order as indices into `kernels`. A kernel that needs all rows of a value runs after the strips. `always`
/// uses strips wherever possible, as short as the kernels allow; it is for tests.
std::vector<Strips> find_strips(std::span<const StripKernel> kernels, const Target& target, int threads, std::vector<std::uint32_t>& order,
                                bool always = false);

/// Fills in the members of strips whose kernels are scheduled for them. Returns false if a task crosses the edge of a strip.
bool lay_out(Strips& strips, std::span<const StripKernel> kernels);

}  // namespace onepass::compiler
