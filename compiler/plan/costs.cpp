// See costs.h.
#include "compiler/plan/costs.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compiler/plan/rolled.h"
#include "ir/build.h"
#include "ir/steps.h"

namespace onepass::compiler {

namespace {

// Returns the instructions of one copy of the body, including expanded operators. A function counts as half a copy, because it is compiled
// once for the loop and the last vector.
double instructions(const Nest& nest, std::span<const std::pair<ir::Op, DType>> called) {
  double all = 0;
  if (nest.routine == ir::Op::Steps) {
    std::string broken;
    for (const ir::StepLine& line : ir::steps_of(nest.steps, nest.buffers.size() - nest.results.size(), broken).lines)
      all += ir::info(line.op).kind == ir::OpKind::Expanded ? static_cast<double>(ir::expansion(line.op, line.dtype).size()) : 1;
    return 2 * all;
  }
  for (const auto& [op, dtype] : called) all += 0.5 * static_cast<double>(ir::expansion(op, computed_type(dtype)).size());
  for (const Statement& s : nest.body) {
    if (s.kind == Statement::Kind::Op && std::ranges::find(called, std::pair(s.op, s.dtype)) != called.end()) {
      all += 4;
      continue;
    }
    switch (s.kind) {
      case Statement::Kind::Op:
        all += ir::info(s.op).kind == ir::OpKind::Expanded ? static_cast<double>(ir::expansion(s.op, s.dtype).size()) : 1;
        break;
      case Statement::Kind::Reduce:
      case Statement::Kind::Scan: all += 12; break;
      case Statement::Kind::Guard: all += 2 * s.count; break;
      case Statement::Kind::Constant:
      case Statement::Kind::Slot: break;
      default: all += 2;
    }
  }
  return all;
}

// True if products are summed in rows of accumulators. The loop is then unrolled into a block of registers.
bool multiplies(const Nest& nest) {
  return nest.kind == NestKind::Rows &&
         std::ranges::any_of(nest.body, [](const Statement& s) { return s.kind == Statement::Kind::Reduce && s.b != Statement::kNone; });
}

}  // namespace

TierTimes compile_times(const Nest& nest, const Schedule& schedule, bool specialised) {
  const double all = instructions(nest, {}), loops = static_cast<double>(nest.loops()), sweeps = static_cast<double>(nest.sweeps);
  TierTimes t;
  t.quick = 1.3e6 + 0.25e6 * loops + 2.5e4 * all * sweeps;
  // Fitted to 50 kernels of all kinds, most within 25%. Long bodies exceed the registers and take more than proportional time.
  const double compiled = specialised ? all : instructions(nest, schedule.called);
  t.optimised = 6.5e6 + compiled * (6e4 + 60 * std::min(compiled, 1200.0)) + 1e6 * (sweeps - 1);
  if (nest.kind == NestKind::Rows) t.optimised += 12e6 * sweeps;
  if (schedule.tile.turned > 0) t.optimised += 26e6;  // transposes squares in registers, as packed operand tiles do
  const auto transposed = static_cast<double>(schedule.packed.size());
  t.quick += 30e6 * transposed;
  t.optimised += 17e6 * transposed;
  // The last elements of elementwise loops have little code, and nothing reduces the strength of their loops (compiler/llvm/emit.h).
  if (nest.kind == NestKind::Map && schedule.rolled.count == 0 && !nest.short_rows)
    t.optimised *= specialised || schedule.called.empty() ? 0.65 : 0.85;
  return t;
}

TierTimes run_times(const Nest& nest, double work, double bytes) {
  const bool is_product = multiplies(nest);
  TierTimes t;
  t.optimised = is_product ? 0.003 * work : std::max(0.02 * work, 0.035 * bytes);
  const double slower = is_product ? 25 : nest.kind == NestKind::Map ? 1.6 : nest.kind == NestKind::Lanes ? 2 : 3.4;
  t.quick = std::max(t.optimised, slower * (is_product ? t.optimised : 0.02 * work));
  return t;
}

double saved_by_specializing(std::int64_t vector_loop_extent, const Schedule& schedule, const Target& target) {
  const double of_starts = std::clamp(16 / static_cast<double>(std::max<std::int64_t>(vector_loop_extent, 1)), 1.0 / 64, 0.5);
  const double of_calls = schedule.called.empty() ? 0 : target.vector_registers() >= 32 ? 1.0 / 16 : 1.0 / 4;
  return std::min(of_starts + of_calls, 0.5);
}

}  // namespace onepass::compiler
