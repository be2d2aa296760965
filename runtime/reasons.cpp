// Reasons as data and as sentences: why a value is materialized, why a call was planned again, why a kernel differs.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/record.h"
#include "runtime/signature_text.h"

namespace onepass {

namespace {

struct ReasonText {
  std::string_view name, sentence, remedy;
};
// In the order of BoundaryReason.
constexpr ReasonText kReasons[kBoundaryReasons] = {
    {"output", "It is a result of the call.", ""},
    {"full_reduction",
     "It follows a reduction over all elements, and its reader uses a different order than the order in which it is computed.",
     "Transpose, slice or reshape the array before the reduction, not after it: u = transpose(x); u / sum(u)."},
    {"other_loops", "It is the result of a reduction, and the loops that read it do not share the rows of the reduction.",
     "The cost is small, because the result is usually far smaller than the reduced array. A reader is fused if it loops over the reduced "
     "array, as in x - sum(x, axis=1, keepdims=true), or only over its rows, as in sum(x, axis=1) * w."},
    {"other_axes", "It is combined with a reduction over different axes, and no loop order has both results ready when they are needed.",
     "Reduce over the same axes, or reduce the per-row results, which are smaller, instead of all elements."},
    {"reduction_of_reduction", "A reduction reads the result of a reduction over other axes.",
     "Use one reduction over both axes, `sum(x, axis=[0, 1])`, where the operators allow it; it is one kernel."},
    {"recompute", "It is needed several times, and recomputing it would cost more than storing it once.",
     "Nothing to do: storing is cheaper. If only a part is needed, slice before the expensive operators."},
    {"pieces",
     "It joins subdomains (concat, pad, roll) of a value that itself consists of subdomains; fusing both would create too many loops.",
     "Concatenate once with concat([a, b, c]) instead of concat([concat([a, b]), c])."},
    {"few_columns",
     "It is the result or the operand of a reduction outside of fewer than 16 columns. The loop of the reduction runs along the columns "
     "and "
     "leaves most vector lanes unused, so other operators have loops of their own.",
     "If the layout is yours to choose, put the long axis last: sum(x, axis=1) of x[3, n] instead of sum(x, axis=0) of x[n, 3]."},
    {"short_axis",
     "A reduction over several axes reads it, and its last axis repeats values and is short. The loop of the reduction would run along "
     "that "
     "axis and leave most vector lanes unused.",
     "Reduce over the short axis first: sum(x[:, :, none]*w, axis=2), then over the others."},
    {"gathered", "Data-dependent indices read it, so any element of the result may need any of its elements.",
     "Index first, then compute on the selected elements: f(take(x, i)) instead of take(f(x), i)."},
    {"scattered",
     "Updates are added to it or written into it at data-dependent positions, in order, so all of them must be complete before it is read.",
     "Nothing to do, unless the positions are known in advance: slices and pads do not need a scatter."},
    {"sorted", "It is an operand or a result of a precompiled sort or search routine, which needs whole arrays in memory.",
     "Nothing to do: one kernel before the routine computes the array, and one kernel after it uses the result."},
    {"stepped", "It is an operand or a result of a recurrence that runs step by step, which needs whole arrays in memory.",
     "Nothing to do: the states of all steps are stored because another operator reads them."},
    {"checked", "These data-dependent indices select elements. The kernel checks all of them, including indices that no result needs.",
     "Slice the indices before they are used, so that unneeded indices are not computed."},
    {"kernel_limit", "The kernel would exceed the maximum number of operators, inputs or results, so it is cut here.",
     "Nothing to do: memory bandwidth does not limit a kernel of that size. Replace copies of one expression with one expression over a "
     "stacked array."},
    {"assembled", "It is one subdomain of an array that several kernels assemble; each kernel stores its own part.",
     "Nothing to do: no part is copied."},
    {"unfused", "Mode unfused runs one kernel for each operator.", "Use mode adaptive; mode unfused exists to verify it."},
};

constexpr std::string_view kOutcomes[] = {"none", "memory", "joined", "disk", "compiled", "tiles"};
constexpr std::string_view kPlanReasonNames[kPlanReasons] = {"none",      "first_call", "lengths", "extents",   "rank",
                                                             "type",      "strides",    "number",  "arguments", "targets",
                                                             "alignment", "threads",    "device",  "forgotten", "repeated"};

}  // namespace

std::string_view name_of(BoundaryReason reason) noexcept { return kReasons[static_cast<std::size_t>(reason)].name; }
std::string_view sentence_of(BoundaryReason reason) noexcept { return kReasons[static_cast<std::size_t>(reason)].sentence; }
std::string_view remedy_of(BoundaryReason reason) noexcept { return kReasons[static_cast<std::size_t>(reason)].remedy; }
std::string_view name_of(CacheOutcome outcome) noexcept { return kOutcomes[static_cast<std::size_t>(outcome)]; }
std::string_view name_of(PlanReason reason) noexcept { return kPlanReasonNames[static_cast<std::size_t>(reason)]; }

namespace runtime {

using compiler::Boundary;

BoundaryReason reason_of(Boundary boundary) {
  static_assert(
      static_cast<int>(Boundary::Unfused) == kBoundaryReasons && static_cast<int>(BoundaryReason::unfused) + 1 == kBoundaryReasons,
      "BoundaryReason has the reasons of compiler/fuse.h in their order, without Inlined");
  if (boundary == Boundary::Inlined) throw InternalError("record: a value that is stored has no reason");
  return static_cast<BoundaryReason>(static_cast<int>(boundary) - 1);
}

namespace {

using Item = CallSignature::Item;

CallSignature parsed(const std::vector<std::int64_t>& key) {
  LaunchPlan call;
  call.key = key;
  return CallSignature::of(call);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "]";
}

// Returns the kind of an extent that passes and kernels distinguish: 0, 1 or many.
int class_of(std::int64_t extent) { return extent > 1 ? 2 : static_cast<int>(extent); }

// Returns the strides; row-major if the type has none.
std::vector<std::int64_t> strides_of(const ArgumentType& type) {
  if (!type.strides.empty() || type.shape.empty()) return type.strides;
  std::vector<std::int64_t> strides(type.shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(type.shape[i], 1);
  return strides;
}
bool is_row_major(const ArgumentType& type) {
  return type.strides.empty() || type.strides == strides_of({type.dtype, type.shape, {}, type.device});
}

struct Difference {
  PlanReason reason = PlanReason::none;
  std::string text;
};

// Returns the most important difference of one array. `what`: its name, such as `x` or `destination 0`.
Difference difference_of(const std::string& what, const ArgumentType& was, const ArgumentType& is) {
  if (was.device != is.device) return {PlanReason::device, fmt::format("{} is on another device", what)};
  if (was.dtype != is.dtype)
    return {PlanReason::type, fmt::format("the type of {} changed from {} to {}", what, name_of(was.dtype), name_of(is.dtype))};
  if (was.shape.size() != is.shape.size())
    return {PlanReason::rank, fmt::format("the rank of {} changed from {} to {}", what, was.shape.size(), is.shape.size())};
  for (std::size_t i = 0; i < is.shape.size(); ++i)
    if (class_of(was.shape[i]) != class_of(is.shape[i]))
      return {PlanReason::extents, fmt::format("axis {} of {} has {} element{}, but it had {}", i, what, is.shape[i],
                                               is.shape[i] == 1 ? "" : "s", was.shape[i])};
  if (is_row_major(was) != is_row_major(is) || (was.shape == is.shape && strides_of(was) != strides_of(is)))
    return {PlanReason::strides,
            fmt::format("the strides of {} changed from {} to {}", what, shape_text(strides_of(was)), shape_text(strides_of(is)))};
  if (was.shape != is.shape)
    return {PlanReason::lengths, fmt::format("the lengths of {} changed from {} to {}", what, shape_text(was.shape), shape_text(is.shape))};
  if (strides_of(was) != strides_of(is)) return {PlanReason::strides, fmt::format("the strides of {} changed", what)};
  return {};
}

bool same_number(const compiler::Literal& a, const compiler::Literal& b) {
  if (a.kind != b.kind) return false;
  return a.kind == compiler::Literal::Kind::Float ? a.real == b.real : a.integer == b.integer;
}

std::string_view remedy_of_plan(PlanReason reason, bool compiled) {
  switch (reason) {
    case PlanReason::none:
    case PlanReason::repeated: return "";
    case PlanReason::first_call:
      return "Call warm_up() with this signature, or with a file of signatures, before the first call; the cache folder keeps compiled "
             "kernels.";
    case PlanReason::lengths:
      return compiled ? "Nothing to do: lengths select among a few variants of a kernel (short rows, threads, cache sizes), and each "
                        "variant is compiled once."
                      : "Nothing to do: kernels do not depend on lengths, and such a plan takes microseconds.";
    case PlanReason::extents:
      return "An axis of one element is broadcast, and its loop is removed. If the length is 1 only by chance, call warm_up() with such a "
             "shape too.";
    case PlanReason::rank: return "Reshape to one rank before the call, or call warm_up() with each rank; each rank is compiled once.";
    case PlanReason::type: return "Cast before the call, or call warm_up() with each type; each type is compiled once.";
    case PlanReason::strides: return "Pass arrays of one layout; contiguous() makes a copy. Each layout is compiled at most once.";
    case PlanReason::number:
      return "A number that names an axis, a length or an index is part of the program, so each of its values needs a plan.";
    case PlanReason::arguments:
      return "Each combination of arrays and numbers needs a plan. Pass a number as an Array of rank 0 to use a single plan.";
    case PlanReason::targets: return "Use only one of fresh results, into() and bind(); they have separate plans, but share kernels.";
    case PlanReason::alignment: return "Allocate destinations at multiples of 64 bytes, as Array does.";
    case PlanReason::threads: return "Set the number of threads once, before the first call.";
    case PlanReason::device: return "Keep the arrays of one function on one device.";
    case PlanReason::forgotten: return "A function remembers 1,024 signatures. Kernels stay in their cache, so only planning is repeated.";
  }
  return "";
}

std::string kernels_text(std::int64_t count) {
  return count == 1 ? "1 kernel was compiled" : fmt::format("{} kernels were compiled", count);
}

// Returns the priority of a reason; the first difference in this order is reported.
int strength(PlanReason reason) {
  static constexpr PlanReason kOrder[] = {PlanReason::device,  PlanReason::arguments, PlanReason::type,    PlanReason::rank,
                                          PlanReason::extents, PlanReason::number,    PlanReason::strides, PlanReason::lengths,
                                          PlanReason::targets, PlanReason::alignment, PlanReason::threads};
  return static_cast<int>(std::ranges::find(kOrder, reason) - std::begin(kOrder));
}

// Returns all differences between two signatures.
std::vector<Difference> differences(const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& key,
                                    std::span<const std::string> names, const std::vector<bool>& pinned) {
  std::vector<Difference> all;
  const auto note = [&](Difference d) {
    if (d.reason != PlanReason::none) all.push_back(std::move(d));
  };
  const CallSignature was = parsed(before), is = parsed(key);
  const auto argument = [&](std::size_t i) { return i < names.size() ? names[i] : fmt::format("x{}", i); };
  if (was.arguments.size() != is.arguments.size())
    note({PlanReason::arguments, fmt::format("the call has {} arguments, but it had {}", is.arguments.size(), was.arguments.size())});
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < std::min(was.arguments.size(), is.arguments.size()); ++i) {
    const Item &a = was.arguments[i], &b = is.arguments[i];
    const bool chooses = b.is_number && (numbers >= pinned.size() || pinned[numbers]);
    numbers += b.is_number;
    if (a.is_number != b.is_number)
      note({PlanReason::arguments, fmt::format("{} is {} now", argument(i), b.is_number ? "a number" : "an array")});
    else if (a.is_number && a.number.kind != b.number.kind)
      note({PlanReason::arguments, fmt::format("the number {} has a different kind", argument(i))});
    else if (a.is_number && chooses && !same_number(a.number, b.number))
      note({PlanReason::number, fmt::format("{} changed from {} to {}", argument(i), text_of(a.number), text_of(b.number))});
    else if (!a.is_number) note(difference_of(argument(i), a.type, b.type));
  }
  const bool same_arguments = all.empty();
  if (was.into != is.into) note({PlanReason::targets, is.into ? "results go into existing arrays" : "results go into fresh arrays"});
  for (std::size_t i = 0; i < std::min(was.targets.size(), is.targets.size()); ++i) {
    const Item &a = was.targets[i], &b = is.targets[i];
    if (a.is_discarded != b.is_discarded)
      note({PlanReason::targets, fmt::format("result {} is {}", i, b.is_discarded ? "discarded" : "wanted")});
    else if (!a.is_discarded && same_arguments)
      note(difference_of(fmt::format("destination {}", i), a.type, b.type));  // otherwise it follows from the arguments
  }
  if (was.aligned != is.aligned && was.into == is.into)
    note({PlanReason::alignment,
          is.aligned ? "all destinations begin at multiples of 64 bytes" : "a destination does not begin at a multiple of 64 bytes"});
  const auto threads = [](const std::vector<std::int64_t>& k) { return k[0] >> 1 & 0x7fff; };
  if (threads(before) != threads(key))
    note({PlanReason::threads, fmt::format("the call may use {} threads, but it could use {}", threads(key), threads(before))});
  std::ranges::stable_sort(all, {}, [](const Difference& d) { return strength(d.reason); });
  return all;
}

}  // namespace

PlanWhy why_planned(const std::vector<std::int64_t>& key, const std::vector<std::int64_t>& before, std::span<const std::string> names,
                    const std::vector<bool>& pinned, bool forgotten, std::int64_t compiled) {
  constexpr std::size_t kMostNamed = 4;
  PlanWhy why;
  std::string text;
  if (before.empty()) {
    why.reason = PlanReason::first_call;
    text = "the function was not called before";
  } else if (forgotten) {
    why.reason = PlanReason::forgotten;
    text = "the same call was made before, but other plans replaced its plan";
  } else {
    const std::vector<Difference> all = differences(before, key, names, pinned);
    why.reason = all.empty() ? PlanReason::repeated : all[0].reason;
    if (all.empty()) text = "the same call was made before";
    for (std::size_t i = 0; i < std::min(all.size(), kMostNamed); ++i) text += (i ? "; " : "") + all[i].text;
    if (all.size() > kMostNamed) text += fmt::format("; and {} more", all.size() - kMostNamed);
  }
  why.sentence = fmt::format("{}{}: {}{}", compiled ? "compiled" : "planned", before.empty() ? "" : " again", text,
                             compiled ? fmt::format(" ({})", kernels_text(compiled)) : " (nothing was compiled)");
  why.remedy = remedy_of_plan(why.reason, compiled > 0);
  return why;
}

std::string schedule_differences(const compiler::Schedule& a, const compiler::Schedule& b) {
  std::string text;
  const auto add = [&](std::string_view what, const std::string& was, const std::string& is) {
    if (was != is) text += fmt::format("{}{}: {} -> {}", text.empty() ? "" : ", ", what, was, is);
  };
  const auto truth = [](bool t) { return std::string(t ? "yes" : "no"); };
  const auto number = [](std::int64_t n) { return fmt::format("{}", n); };
  add("bytes of a vector register", number(a.vector_bytes), number(b.vector_bytes));
  add("elements of a vector", number(a.width), number(b.width));
  add("single summation block", truth(a.one_block), truth(b.one_block));
  add("rows cached in a row buffer", truth(a.row_scratch), truth(b.row_scratch));
  add("split reduction", truth(a.split), truth(b.split));
  add("destination-partitioned scatter", truth(a.by_place), truth(b.by_place));
  add("unroll-and-jam factor", number(a.abreast), number(b.abreast));
  add("rows in the lanes of a vector", number(a.row_lanes), number(b.row_lanes));
  add("non-temporal stores", truth(!a.streamed.empty()), truth(!b.streamed.empty()));
  add("packed operand tiles", number(static_cast<std::int64_t>(a.packed.size())), number(static_cast<std::int64_t>(b.packed.size())));
  add("fissioned loops", number(static_cast<std::int64_t>(a.parts.size()) + 1), number(static_cast<std::int64_t>(b.parts.size()) + 1));
  add("register tile", fmt::format("{} x {}", a.tile.rows, a.tile.width), fmt::format("{} x {}", b.tile.rows, b.tile.width));
  add("rerolled loop iterations", number(a.rolled.count), number(b.rolled.count));
  return text;
}

}  // namespace runtime
}  // namespace onepass
