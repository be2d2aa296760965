// See steps.h.
#include "compiler/plan/steps.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ir/steps.h"

namespace onepass::compiler {

namespace {

// Returns the largest number of values that one step needs at once: states, and lines until their last use. Other operands count as loads.
std::size_t most_live(const ir::Steps& steps) {
  const auto states = static_cast<std::size_t>(steps.states), operands = static_cast<std::size_t>(steps.operands());
  std::vector<std::size_t> last(static_cast<std::size_t>(steps.values()), 0), ends(steps.lines.size() + 1, 0);
  for (std::size_t i = 0; i < steps.lines.size(); ++i)
    for (const std::int64_t o : steps.lines[i].operands)
      if (o != ir::StepLine::kNone) last[static_cast<std::size_t>(o)] = i;
  for (const std::int64_t next : steps.next) last[static_cast<std::size_t>(next)] = steps.lines.size();
  const auto is_held = [&](std::size_t v) { return v < states || (v >= operands && steps.lines[v - operands].op != ir::Op::Constant); };
  for (std::size_t v = 0; v < last.size(); ++v)
    if (is_held(v)) ++ends[last[v]];
  std::size_t live = states, most = live;
  for (std::size_t i = 0; i < steps.lines.size(); ++i) {
    live += steps.lines[i].op != ir::Op::Constant;
    most = std::max(most, live);
    live -= std::min(live, ends[i]);
  }
  return most;
}

}  // namespace

Scheduled schedule_steps(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options) {
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
  // Each step waits for the previous step. Several registers per value hide that latency, if all values fit into registers. A single element
  // has no parallel work.
  const std::size_t registers = static_cast<std::size_t>(target.vector_registers()), live = most_live(steps);
  const int at_once = 4 * live <= registers ? 4 : 2;
  s.width = elements == 1 ? 1 : at_once * target.vector_bytes / static_cast<int>(widest);
  s.masked = true;  // both tiers use this width
  ScheduleNumbers& n = out.numbers;
  const std::int64_t each = (elements + 4 * options.threads - 1) / (4 * options.threads);
  n.tile = elements == 1 ? 1 : options.strip > 0 ? options.strip : std::clamp<std::int64_t>((each + 63) / 64 * 64, 64, kMostInItem);
  n.items = (elements + n.tile - 1) / n.tile;
  n.work = count * elements * static_cast<std::int64_t>(steps.lines.size() + 1);
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
    if (!options.held.empty() && options.held[b]) continue;
    const bool of_each_step = numbers.coefficients[b][0] != 0, of_each_element = numbers.coefficients[b][1] != 0;
    const std::int64_t bytes =
        (of_each_step ? count : 1) * (of_each_element ? elements : 1) * static_cast<std::int64_t>(size_of(nest.buffers[b].dtype));
    (nest.buffers[b].written ? n.bytes_written : n.bytes_read) += bytes;
  }
  return out;
}

}  // namespace onepass::compiler
