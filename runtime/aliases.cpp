// See aliases.h.
#include "runtime/aliases.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/row.h"

namespace onepass::runtime {

namespace {

// Calls f(k, other) for each destination and each argument or later destination that overlap; `other` is an index in `bases`. Compares
// all pairs if they are few, else only arrays that are close in memory.
template <class F> void each_overlap(const LaunchPlan& plan, std::byte* const* bases, F&& f) {
  constexpr std::size_t kFew = 1024;  // pairs
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size(), all = inputs + outputs;
  const auto array = [&](std::size_t i) -> const ArrayPlan& { return i < inputs ? plan.inputs[i] : plan.targets[i - inputs]; };
  if (outputs * all <= kFew) [[likely]] {
    for (std::size_t k = 0; k < outputs; ++k)
      for (std::size_t other = 0; other < all; ++other)
        if ((other < inputs || other > inputs + k) && overlap(bases[inputs + k], plan.targets[k], bases[other], array(other))) f(k, other);
    return;
  }
  std::vector<std::pair<const std::byte*, std::size_t>> order;  // sorted by first byte
  for (std::size_t i = 0; i < all; ++i)
    if (array(i).low != array(i).high) order.emplace_back(bases[i] + array(i).low, i);
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> open[2];  // arguments and destinations that have not ended
  for (const auto& [begin, i] : order) {
    const bool is_target = i >= inputs;
    for (const bool targets : {false, true}) {
      if (!is_target && !targets) continue;
      std::erase_if(open[targets], [&, begin = begin](std::size_t o) { return bases[o] + array(o).high <= begin; });
      for (const std::size_t o : open[targets]) {
        const std::size_t k = is_target && targets ? std::min(i, o) : std::max(i, o);
        f(k - inputs, k == i ? o : i);
      }
    }
    open[is_target].push_back(i);
  }
}

[[noreturn]] void fail_overlap(const LaunchPlan& plan, std::size_t k, std::size_t other) {
  throw ValueError(fmt::format("destinations {} and {} overlap; each result needs separate memory. Pass destinations that do not overlap.",
                               plan.output_names[plan.target_of[k]], plan.output_names[plan.target_of[other]]));
}

}  // namespace

void check_targets(const LaunchPlan& plan, std::byte* const* bases) {
  const std::size_t inputs = plan.inputs.size();
  each_overlap(plan, bases, [&](std::size_t k, std::size_t other) {
    if (other >= inputs) [[unlikely]]
      fail_overlap(plan, k, other - inputs);
  });
}

void resolve_aliases(const LaunchPlan& plan, std::byte** bases, std::vector<Temporary>& temporaries) {
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Row<std::uint8_t, 32> elsewhere(outputs);
  for (std::size_t k = 0; k < outputs; ++k) elsewhere[k] = plan.redirected[k];
  each_overlap(plan, bases, [&](std::size_t k, std::size_t other) {
    if (other >= inputs) [[unlikely]]
      fail_overlap(plan, k, other - inputs);
    // mode reference copies its results at the end
    if (!plan.interpret && !(plan.in_place[k * inputs + other] && bases[other] == bases[inputs + k])) elsewhere[k] = 1;
  });
  if (plan.interpret) return;
  for (std::size_t k = 0; k < outputs; ++k) {
    if (!elsewhere[k]) [[likely]]
      continue;
    const ArrayPlan& output = plan.outputs[k];
    const std::int64_t before = (-output.low + 63) & ~std::int64_t{63};  // aligns element (0, …, 0)
    temporaries.push_back({k, memory::Buffer(static_cast<std::size_t>(before + output.high)), bases[inputs + k]});
    bases[inputs + k] = static_cast<std::byte*>(temporaries.back().buffer.data()) + before;
  }
}

void copy_out(const LaunchPlan& plan, std::byte* const* bases, std::span<const Temporary> temporaries) {
  for (const Temporary& t : temporaries)
    copy_array(plan.targets[t.output], t.target, plan.outputs[t.output], bases[plan.inputs.size() + t.output]);
}

std::int64_t bytes_of(std::span<const Temporary> temporaries) {
  std::int64_t bytes = 0;
  for (const Temporary& t : temporaries) bytes += static_cast<std::int64_t>(t.buffer.size());
  return bytes;
}

}  // namespace onepass::runtime
