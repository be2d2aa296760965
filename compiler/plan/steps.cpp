// See steps.h.
#include "compiler/plan/steps.h"

#include <algorithm>

#include "ir/steps.h"

namespace onepass::compiler {

Scheduled schedule_steps(const Nest& nest, const NestNumbers& numbers, const Target& target, int threads) {
  constexpr std::int64_t kMostInItem = 4096;
  Scheduled out;
  const std::int64_t count = numbers.extents[0], elements = numbers.extents[1];
  std::string broken;
  const ir::Steps steps = ir::steps_of(nest.steps, nest.buffers.size() - nest.results.size(), broken);
  std::size_t widest = 1;
  for (const BufferInfo& b : nest.buffers) widest = std::max(widest, size_of(computed_type(b.dtype)));
  for (const ir::StepLine& line : steps.lines) widest = std::max(widest, size_of(computed_type(line.dtype)));
  Schedule& s = out.schedule;
  s.vector_bytes = target.vector_bytes;
  // Each step waits for the previous step. Four registers per value hide that latency; a single element has no parallel work.
  s.width = elements == 1 ? 1 : 4 * target.vector_bytes / static_cast<int>(widest);
  s.masked = true;  // both tiers use this width
  ScheduleNumbers& n = out.numbers;
  const std::int64_t each = (elements + 4 * threads - 1) / (4 * threads);
  n.tile = elements == 1 ? 1 : std::clamp<std::int64_t>((each + 63) / 64 * 64, 64, kMostInItem);
  n.items = (elements + n.tile - 1) / n.tile;
  n.work = count * elements * static_cast<std::int64_t>(steps.lines.size() + 1);
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
    const bool of_each_step = numbers.coefficients[b][0] != 0, of_each_element = numbers.coefficients[b][1] != 0;
    const std::int64_t bytes =
        (of_each_step ? count : 1) * (of_each_element ? elements : 1) * static_cast<std::int64_t>(size_of(nest.buffers[b].dtype));
    (nest.buffers[b].written ? n.bytes_written : n.bytes_read) += bytes;
  }
  return out;
}

}  // namespace onepass::compiler
