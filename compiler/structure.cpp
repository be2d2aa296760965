// structure: see structure.h.
//
//   x f32[1000, 70] - max(x, -1)      with 1000 -> 250, 70 -> 4096: the same nodes and fusion groups; another structure if equal lengths
//                                     become unequal, or if a length becomes 0 or 1
//
// Passes copy extents and compare them with each other, with 0 and with 1. So a one-to-one renaming of lengths that fixes 0 and 1
// preserves their result.
//
// Left out on purpose are graphs for which passes compute with lengths. These contain reshapes that merge or split axes, slices, pads,
// boxes or checked indices. Other cases are reductions and rows small enough for unroll, many results too small for an array list, and
// sums whose element count `contract` compares with the element count of another value.
#include "compiler/structure.h"

#include <algorithm>
#include <functional>

#include "compiler/fuse.h"
#include "compiler/lists.h"
#include "compiler/recompute.h"
#include "compiler/unroll.h"
#include "ir/order.h"

namespace onepass::compiler {

using namespace ir;

bool Lengths::add(std::int64_t from, std::int64_t to) {
  if (from <= 1 || to <= 1) return from == to;
  for (const auto& [known, length] : pairs_)
    if (known == from || length == to) return known == from && length == to;
  pairs_.emplace_back(from, to);
  return pairs_.size() <= kMost;
}
bool Lengths::knows(std::int64_t from) const {
  return from <= 1 || std::ranges::any_of(pairs_, [&](const auto& pair) { return pair.first == from; });
}
std::int64_t Lengths::operator()(std::int64_t from) const {
  if (from > 1)
    for (const auto& [known, length] : pairs_)
      if (known == from) return length;
  return from;
}

namespace {

constexpr int kMostLooked = 256;  // node limit; beyond it, lengths are assumed to matter

bool rename(Lengths& lengths, List from, List to) {
  if (from.size() != to.size()) return false;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!lengths.add(from[i], to[i])) return false;
  return true;
}

// Finds the lengths that turn `known` into `graph`. Returns false if no lengths do.
bool compare(const Graph& known, const Graph& graph, Lengths& lengths) {
  if (known.size() != graph.size() || known.outputs != graph.outputs || known.output_names != graph.output_names ||
      known.slots.size() != graph.slots.size() || known.source_of != graph.source_of || known.sources != graph.sources ||
      known.origin_of != graph.origin_of || known.inputs.size() != graph.inputs.size())
    return false;
  for (std::size_t i = 0; i < known.inputs.size(); ++i)
    if (known.inputs[i].name != graph.inputs[i].name || known.inputs[i].node != graph.inputs[i].node) return false;
  for (std::size_t i = 0; i < known.slots.size(); ++i)
    if (known.slots[i].dtype != graph.slots[i].dtype) return false;
  std::vector<ListId> renamed;  // compared shapes, with their renamed lists
  for (NodeId id = 0; id < known.size(); ++id) {
    const Node a = known[id], b = graph[id];
    if (a.op != b.op || a.dtype != b.dtype || a.bits != b.bits || !std::ranges::equal(known.operands(id), graph.operands(id)) ||
        !std::ranges::equal(known.attributes(id), graph.attributes(id)))
      return false;
    if (a.shape >= renamed.size()) renamed.resize(a.shape + 1, kNoNode);
    if (renamed[a.shape] == b.shape) continue;
    if (!rename(lengths, known.shape(id), graph.shape(id))) return false;
    renamed[a.shape] = b.shape;
  }
  return true;
}

// True for exactly two rows whose order of summation differs from the order of one row. If two such rows are equal, simplify keeps both; if
// there are more equal rows, it keeps two.
bool has_two_rows(const Graph& graph, NodeId sum) {
  const List axes = graph.attributes(sum), shape = graph.shape(graph.operand(sum, 0));
  std::vector<std::int64_t> one(shape.begin(), shape.end());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 2 && std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end()) one[i] = 1;
  const DType type = computed_type(graph[sum].dtype);
  return is_float(type) && sum_order(one, axes, type) != sum_order(shape, axes, type);
}

// True if all arrays under the operand have fewer elements than the operand. An operand with other sources never makes unroll apply,
// whatever the lengths.
bool is_read_again(const Graph& graph, NodeId reduction) {
  const std::int64_t elements = graph.elements(graph.operand(reduction, 0));
  std::vector<NodeId> open = {graph.operand(reduction, 0)};
  for (int steps = 0; !open.empty() && steps < kMostLooked; ++steps) {
    const NodeId id = open.back();
    open.pop_back();
    const Op op = graph[id].op;
    if (graph.elements(id) < elements) continue;
    if (!is_elementwise(op) && !is_view(op) && (!is_source(op) || op == Op::Input)) return false;
    for (const std::int64_t o : graph.operands(id)) open.push_back(static_cast<NodeId>(o));
  }
  return true;
}

// True if the graph has reduced extents that unroll may take apart, values repeated in short rows, reductions outside of few columns,
// results that may be too small for an array list, or two rows. These properties depend on exact lengths.
bool has_small_lengths(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Op op = graph[id].op;
    if (is_contraction(op) && has_small_product_lengths(graph, id)) return true;
    if (repeats_in_short_rows(graph, id)) return true;
    if (!is_reduction(op) || is_contraction(op)) continue;
    if ((op == Op::ReduceSum || op == Op::ReduceProd) && has_two_rows(graph, id)) return true;
    if (few_columns(graph, id) > 0) return true;
    std::int64_t elements = 1;
    for (const std::int64_t axis : graph.attributes(id)) elements *= graph.shape(graph.operand(id, 0))[static_cast<std::size_t>(axis)];
    if (elements > 1 && elements <= kMostUnrolled) return true;
    if (elements > 1 && elements <= kMostReread && is_read_again(graph, id)) return true;
  }
  return graph.outputs.size() >= kFewestMembers &&
         std::ranges::any_of(graph.outputs, [&](NodeId id) { return graph.elements(id) < kSmallestMember; });
}

// True if the shapes differ only in axes of extent 1.
bool moves_units_alone(List from, List to) {
  const auto is_more = [](std::int64_t extent) { return extent != 1; };
  auto a = from.begin(), b = to.begin();
  for (;; ++a, ++b) {
    a = std::find_if(a, from.end(), is_more);
    b = std::find_if(b, to.end(), is_more);
    if (a == from.end() || b == to.end()) return a == from.end() && b == to.end();
    if (*a != *b) return false;
  }
}

// True if passes may use more of this node's lengths than a renaming preserves.
bool computes_with_lengths(const Graph& graph, NodeId id, const Relax& relax) {
  const Op op = graph[id].op;
  switch (info(op).kind) {
    case OpKind::Source:
    case OpKind::Primitive:
    case OpKind::Expanded:
    case OpKind::Scan: return false;
    case OpKind::View:
      if (op == Op::Reshape) return !moves_units_alone(graph.shape(graph.operand(id, 0)), graph.shape(id));
      return op != Op::Permute && op != Op::Broadcast;
    case OpKind::Reduction: return relax.contract && op == Op::ReduceSum;
    default: return true;
  }
}

bool any_computes_with_lengths(const Graph& graph, const Relax& relax) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (computes_with_lengths(graph, id, relax)) return true;
  return false;
}

}  // namespace

std::shared_ptr<const Structure> Structure::of(const Graph& recorded, const Graph& optimised, const Partition& partition,
                                               const Relax& relax, const IsBrought& is_brought) {
  const auto same_type = [](const Slot& a, const Slot& b) { return a.dtype == b.dtype; };
  if (has_small_lengths(recorded) || any_computes_with_lengths(recorded, relax) || any_computes_with_lengths(optimised, relax) ||
      !partition.lists.read.empty() || !partition.lists.assembled.empty() || !partition.lists.stored.empty() ||
      !std::ranges::equal(recorded.slots, optimised.slots, same_type))
    return nullptr;
  Lengths own;
  if (!compare(recorded, recorded, own)) return nullptr;
  for (NodeId id = 0; id < optimised.size(); ++id)  // each length must come from the recording, not from a pass
    if (!std::ranges::all_of(optimised.shape(id), [&](std::int64_t extent) { return own.knows(extent); })) return nullptr;
  return std::shared_ptr<const Structure>(new Structure(recorded, optimised, partition, equal_slots(recorded, is_brought)));
}

std::optional<Lengths> Structure::lengths_of(const Graph& recorded, const IsBrought& is_brought) const {
  Lengths lengths;
  if (!compare(recorded_, recorded, lengths) || has_small_lengths(recorded) || equal_slots(recorded, is_brought) != equal_slots_)
    return std::nullopt;
  return lengths;
}

Graph Structure::recorded(const Lengths& lengths) const { return recorded_.with_extents(std::ref(lengths)); }
Graph Structure::optimised(const Lengths& lengths) const { return optimised_.with_extents(std::ref(lengths)); }
Partition Structure::partition(const Lengths& lengths) const {
  Partition partition = partition_;
  for (Group& group : partition.groups)
    for (std::int64_t& extent : group.domain) extent = lengths(extent);
  return partition;
}

}  // namespace onepass::compiler
