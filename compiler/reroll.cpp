// reroll: see reroll.h.
//
//   stack([sum(ys[0]*ys[t], 0) for t in 0 .. 256])      %p = piecewise of 256 boxes [1, 128], each a reduce_sum of a mul
//   becomes sum(ys[0][none]*ys, 1)                      one mul [256, 32, 128], one reduce_sum over axis 1
//   f(x[0]) + f(x[1]) + … + f(x[n])                     the terms in one array, added in that sequence: a contract_rows with 1
//
//   d[t] = g[t]*y for t in 1 .. 256, each a result      slices of one value [255, …], which is stored into the results (lists.h)
//
// The search for copies starts at the nodes that join them and goes down to the leaves. It visits tuples of nodes, one node from each copy.
// A tuple that can become one node is one of the following.
//   - one node for all copies, which is broadcast over the new axis
//   - one operator on tuples
//   - slices of one array that begin evenly apart: a view of the array with the new axis in front
//   - arrays of an array list, or literals, side by side: a kernel finds these through a pointer table
//
// Copies that differ in other ways stay as they are. Copies are first compared in pairs of neighbors, so that one different copy does not
// exclude the other copies. Sums keep their order: the new axis is in front and is kept, or it is the only reduced axis, reduced in
// sequence.
//
// Left out on purpose: overlapping windows; fewer than kFewestCopies copies; sums of terms that differ only in literals; sums of few
// arrays, which one pass adds in registers.
#include "compiler/reroll.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "compiler/batch.h"
#include "compiler/lists.h"
#include "compiler/simplify.h"

namespace onepass::compiler {

using namespace ir;

namespace {

using Tuple = std::vector<NodeId>;

struct HashTuple {
  std::size_t operator()(const Tuple& t) const {
    std::uint64_t h = t.size();
    for (const NodeId id : t) h = (h ^ id) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
    return h;
  }
};

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

// Indices start + t*apart + i*step for t < copies, i < count, as one range. The copies are the outer or the inner loop.
struct Range {
  std::int64_t start, step;
  bool inside;
  bool backwards;  // outer copies, last copy first
};
std::optional<Range> as_one(std::int64_t start, std::int64_t apart, std::int64_t copies, std::int64_t step, std::int64_t count) {
  if (apart == 0) return {};
  if (count == 1) return Range{start, apart, false, false};
  std::int64_t length = 0;
  if (__builtin_mul_overflow(count, step, &length)) return {};
  if (apart == length) return Range{start, step, false, false};
  if (apart == -length) return Range{start + (copies - 1) * apart, step, false, true};
  if (!__builtin_mul_overflow(copies, apart, &length) && step == length) return Range{start, apart, true, false};
  return {};
}

class Reroller {
 public:
  // `again`: the graph is a result of an earlier round. Results are joined only once, because each stays a slice of the joined value.
  Reroller(const Graph& graph, bool again) : graph_(graph), again_(again), budget_(16 * graph.size()) {}

  std::optional<Graph> run() {
    describe();
    if (!again_) find_results();
    if (!has_copies()) return {};  // true for few graphs; the other graphs are not copied
    out_ = graph_.empty_copy();
    now_.assign(graph_.size(), kNoNode);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      out_.current_source = graph_.source_of[id];
      out_.current_origin = graph_.origin_of[id] == kNoNode ? kNoNode : now_[graph_.origin_of[id]];
      NodeId made = kNoNode;
      if (graph_[id].op == Op::Piecewise) made = joined(id);
      else if (ends_chain(id)) made = summed(id);
      any_ = any_ || made != kNoNode;
      now_[id] = made == kNoNode ? copied(id) : made;
      if (const auto it = results_.find(id); it != results_.end())
        for (const Tuple& tuple : it->second) join_results(tuple);
    }
    out_.current_source = 0;
    out_.current_origin = kNoNode;
    if (!any_) return {};
    for (const NodeId id : graph_.outputs) out_.outputs.push_back(now_[id]);
    return std::move(out_);
  }

 private:
  const Graph& graph_;
  bool again_;
  Graph out_;
  std::vector<NodeId> now_;
  bool any_ = false;                 // copies were joined
  std::int64_t budget_;              // remaining budget of tuple nodes to visit
  std::vector<std::uint64_t> form_;  // equal for possible copies: hashes operators, types and shapes, but no starts or scalar parameters
  // Use count; for one use by an add whose first operand this is, that add.
  std::vector<std::uint32_t> uses_, adder_;
  bool members_ = false;                                    // separate arrays may be joined
  std::unordered_map<NodeId, std::vector<Tuple>> results_;  // copies that are separate results, by the last copy
  struct Beside {
    std::uint32_t tuple, copy;
  };
  // By operand of joined results: the first result that uses it, as a tuple and a copy number.
  std::unordered_map<NodeId, Beside> beside_;
  std::unordered_map<std::uint64_t, std::uint64_t> differences_;  // by pairs of nodes
  std::unordered_map<Tuple, NodeId, HashTuple> merged_[2];        // without and with members; kNoNode: not mergeable
  static constexpr int kDeepest = 1000;
  static constexpr std::size_t kMostAxes = 32;   // rank
  static constexpr std::size_t kManyTerms = 64;  // minimum number of summed arrays that justifies a dedicated loop

  void describe() {
    form_.resize(graph_.size());
    uses_.assign(graph_.size(), 0);
    adder_.assign(graph_.size(), kNoNode);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node node = graph_[id];
      std::uint64_t h = mix(static_cast<std::uint64_t>(node.op) | static_cast<std::uint64_t>(node.dtype) << 8, node.shape);
      if (node.op == Op::Slice)
        for (const std::int64_t step : graph_.attributes(id).subspan(graph_.shape(id).size())) h = mix(h, static_cast<std::uint64_t>(step));
      else h = mix(h, node.attributes);
      if (node.op == Op::Constant) h = mix(h, node.bits);
      const List operands = graph_.operands(id);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const auto o = static_cast<std::size_t>(operands[k]);
        h = mix(h, form_[o]);
        adder_[o] = ++uses_[o] == 1 && k == 0 && node.op == Op::Add ? id : kNoNode;
      }
      form_[id] = h;
    }
    for (const NodeId id : graph_.outputs) adder_[id] = kNoNode, ++uses_[id];
  }

  // Returns a hash of the difference between a copy and the next copy, including slice starts and shared nodes. Mergeable copies have equal
  // hashes from each copy to the next copy. Returns 0 if the two are not copies.
  std::uint64_t difference(NodeId a, NodeId b, int depth = 0) {
    if (a == b) return 1;
    if (form_[a] != form_[b] || depth >= kDeepest) return 0;
    const auto [it, fresh] = differences_.try_emplace(std::uint64_t{a} << 32 | b, 0);
    if (!fresh || --budget_ < 0) return it->second;
    const List x = graph_.operands(a), y = graph_.operands(b);
    if (x.size() != y.size()) return 0;
    std::uint64_t h = 2;
    if (graph_[a].op == Op::Slice && graph_[b].op == Op::Slice) {
      const List p = graph_.attributes(a), q = graph_.attributes(b);
      for (std::size_t i = 0; i < std::min(p.size(), q.size()) / 2; ++i)
        h = mix(h, static_cast<std::uint64_t>(q[i]) - static_cast<std::uint64_t>(p[i]));
    }
    for (std::size_t k = 0; k < x.size(); ++k) {
      const std::uint64_t d = difference(static_cast<NodeId>(x[k]), static_cast<NodeId>(y[k]), depth + 1);
      if (d == 0) return 0;
      h = mix(h, d);
    }
    h = h == 0 ? 1 : h;
    return differences_[std::uint64_t{a} << 32 | b] = h;
  }
  // True if the copies read different arrays or slices.
  bool differ_in_arrays(NodeId a, NodeId b, int depth = 0) {
    if (a == b || depth >= kDeepest || --budget_ < 0) return false;
    const Op op = graph_[a].op;
    const List x = graph_.operands(a), y = graph_.operands(b);
    if (op == Op::Input || (op == Op::Slice && !std::ranges::equal(graph_.attributes(a), graph_.attributes(b)))) return true;
    for (std::size_t k = 0; k < std::min(x.size(), y.size()); ++k)
      if (differ_in_arrays(static_cast<NodeId>(x[k]), static_cast<NodeId>(y[k]), depth + 1)) return true;
    return false;
  }
  // True if each copy contains a separate reduction.
  bool each_reduces(NodeId a, NodeId b, int depth = 0) {
    if (a == b || depth >= kDeepest || --budget_ < 0) return false;
    if (is_reduction(graph_[a].op)) return true;
    const List x = graph_.operands(a), y = graph_.operands(b);
    for (std::size_t k = 0; k < std::min(x.size(), y.size()); ++k)
      if (each_reduces(static_cast<NodeId>(x[k]), static_cast<NodeId>(y[k]), depth + 1)) return true;
    return false;
  }
  // Returns the end of the run from `begin`, at least begin + 1. In a run, each item differs from the previous item by the same difference.
  template <class F> static std::size_t run_end(std::size_t begin, std::size_t size, F&& differ) {
    if (begin + 1 >= size) return size;
    const auto first = differ(begin);
    if (!first) return begin + 1;
    std::size_t end = begin + 2;
    while (end < size && differ(end - 1) == first) ++end;
    return end;
  }

  NodeId copied(NodeId id) {
    Node node = graph_[id];
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : graph_.operands(id)) operands.push_back(now_[static_cast<std::size_t>(o)]);
    node.operands = out_.intern(operands);
    return out_.add(node);
  }

  // ---------------------------------------------------------------------------------------------- node helpers
  NodeId view(Op op, NodeId x, List shape, List attributes = {}) {
    if (op != Op::Permute && op != Op::Slice && std::ranges::equal(out_.shape(x), shape)) return x;
    return out_.add(op, out_[x].dtype, out_.intern(shape), {x}, attributes);
  }
  // Axis `from` moves to `to`; the other axes keep their order.
  NodeId moved(NodeId x, std::size_t from, std::size_t to) {
    if (from == to) return x;
    const List shape = out_.shape(x);
    std::vector<std::int64_t> axes, moved_shape;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (i != from) axes.push_back(static_cast<std::int64_t>(i));
    axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(to), static_cast<std::int64_t>(from));
    for (const std::int64_t a : axes) moved_shape.push_back(shape[static_cast<std::size_t>(a)]);
    return view(Op::Permute, x, moved_shape, axes);
  }
  static std::vector<std::int64_t> with_axis(std::int64_t copies, List shape) {
    std::vector<std::int64_t> out = {copies};
    out.insert(out.end(), shape.begin(), shape.end());
    return out;
  }

  // ---------------------------------------------------------------------------------------------- tuples
  // Returns the nodes of all copies as one node, with the copies along a new first axis; kNoNode if they cannot be merged.
  NodeId together(const Tuple& tuple, bool members = true) {
    members_ = false;
    const NodeId made = merged(tuple, 0);
    if (made != kNoNode || !members) return made;
    members_ = true;
    return merged(tuple, 0);
  }
  NodeId merged(const Tuple& tuple, int depth) {
    const auto n = static_cast<std::int64_t>(tuple.size());
    const NodeId first = tuple[0];
    std::int64_t bytes = 8 * n;
    if (graph_.elements(first) == 0 || graph_.shape(first).size() >= kMostAxes ||
        __builtin_mul_overflow(bytes, graph_.elements(first), &bytes))
      return kNoNode;
    if (std::ranges::all_of(tuple, [&](NodeId id) { return id == first; })) {
      const List shape = graph_.shape(first);
      return view(Op::Broadcast, view(Op::Reshape, now_[first], with_axis(1, shape)), with_axis(n, shape));
    }
    auto& known = merged_[members_];
    if (const auto it = known.find(tuple); it != known.end()) return it->second;
    budget_ -= n;
    NodeId made = kNoNode;
    const bool alike =
        std::ranges::all_of(tuple, [&](NodeId id) { return form_[id] == form_[first] && graph_[id].op == graph_[first].op; });
    if (alike && budget_ > 0 && depth < kDeepest) made = made_of(tuple, depth);
    known.emplace(tuple, made);
    return made;
  }

  NodeId made_of(const Tuple& tuple, int depth) {
    const NodeId first = tuple[0];
    const Node node = graph_[first];
    const List shape = graph_.shape(first), operands = graph_.operands(first);
    const auto n = static_cast<std::int64_t>(tuple.size());
    if (node.op == Op::Slice) {
      const NodeId from = graph_.operand(first, 0);
      if (std::ranges::all_of(tuple, [&](NodeId id) { return graph_.operand(id, 0) == from; })) return slices(tuple);
    }
    if (node.op == Op::Input && members_) return side_by_side(tuple);
    if (node.op == Op::Slot) return numbers(tuple);
    if (is_source(node.op)) return kNoNode;
    if (std::ranges::any_of(tuple, [&](NodeId id) {
          return graph_[id].dtype != node.dtype || graph_[id].shape != node.shape || graph_[id].attributes != node.attributes ||
                 graph_.operands(id).size() != operands.size();
        }))
      return kNoNode;
    const std::optional<std::vector<std::int64_t>> lifted = attributes_with_axis_in_front(graph_, first);
    if (!lifted) return kNoNode;
    std::vector<std::int64_t> ids;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      Tuple theirs;
      for (const NodeId id : tuple) theirs.push_back(static_cast<NodeId>(graph_.operands(id)[k]));
      const bool elsewhere = node.op == Op::Piecewise && k >= graph_.attributes(first).size() / (2 * shape.size());
      if (elsewhere && std::ranges::any_of(theirs, [&](NodeId id) { return id != theirs[0]; })) return kNoNode;
      const NodeId operand = elsewhere ? now_[theirs[0]] : merged(theirs, depth + 1);
      if (operand == kNoNode) return kNoNode;
      ids.push_back(operand);
    }
    return out_.add(Node{node.op, node.dtype, out_.intern(with_axis(n, shape)), out_.intern(ids), out_.intern(*lifted), 0});
  }

  // Stacks values of [1, shape] to [n, shape].
  NodeId stacked(const std::vector<std::int64_t>& ids, DType dtype, List shape) {
    std::vector<std::int64_t> boxes;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      boxes.push_back(static_cast<std::int64_t>(k));
      boxes.resize(boxes.size() + shape.size(), 0);
      boxes.resize(boxes.size() + shape.size() + 1, 1);
    }
    const ListId to = out_.intern(with_axis(static_cast<std::int64_t>(ids.size()), shape));
    return out_.add(Node{Op::Piecewise, dtype, to, out_.intern(ids), out_.intern(boxes), 0});
  }
  NodeId side_by_side(const Tuple& arrays) {
    const List shape = graph_.shape(arrays[0]);
    std::vector<std::int64_t> ids;
    for (const NodeId id : arrays) {
      if (graph_[id].dtype != graph_[arrays[0]].dtype || graph_[id].shape != graph_[arrays[0]].shape) return kNoNode;
      ids.push_back(view(Op::Reshape, now_[id], with_axis(1, shape)));
    }
    return stacked(ids, graph_[arrays[0]].dtype, shape);
  }
  // Broadcasts each scalar parameter over its copy and stacks them.
  NodeId numbers(const Tuple& slots) {
    const Node first = graph_[slots[0]];
    const std::vector<std::int64_t> unit(graph_.shape(slots[0]).size(), 1);
    const ListId one = out_.intern(with_axis(1, unit));
    std::vector<std::int64_t> ids;
    for (const NodeId id : slots) {
      if (graph_[id].dtype != first.dtype || graph_[id].shape != first.shape) return kNoNode;
      ids.push_back(out_.slot_node(static_cast<std::uint32_t>(graph_[id].bits), one));
    }
    const auto n = static_cast<std::int64_t>(slots.size());
    return view(Op::Broadcast, stacked(ids, first.dtype, unit), with_axis(n, graph_.shape(slots[0])));
  }

  // Returns slices of one array that begin evenly apart along one axis as a view of the array; kNoNode if the slices differ otherwise.
  NodeId slices(const Tuple& tuple) {
    const NodeId first = tuple[0], from = graph_.operand(first, 0);
    const List shape = graph_.shape(first), a = graph_.attributes(first), b = graph_.attributes(tuple[1]);
    const std::size_t rank = shape.size();
    const auto n = static_cast<std::int64_t>(tuple.size());
    std::size_t along = rank;
    for (std::size_t i = 0; i < rank; ++i) {
      if (a[i] == b[i]) continue;
      if (along != rank) return kNoNode;
      along = i;
    }
    if (along == rank) return kNoNode;
    const std::int64_t apart = b[along] - a[along];
    for (std::size_t k = 0; k < tuple.size(); ++k) {
      const List mine = graph_.attributes(tuple[k]);
      for (std::size_t i = 0; i < 2 * rank; ++i)
        if (mine[i] != a[i] + (i == along ? static_cast<std::int64_t>(k) * apart : 0)) return kNoNode;
      if (graph_[tuple[k]].shape != graph_[first].shape) return kNoNode;
    }
    const std::int64_t count = shape[along];
    const std::optional<Range> range = as_one(a[along], apart, n, a[rank + along], count);
    if (!range) return kNoNode;
    std::vector<std::int64_t> sliced(shape.begin(), shape.end()), box(a.begin(), a.end()), split;
    sliced[along] = n * count;
    box[along] = range->start;
    box[rank + along] = range->step;
    bool whole = std::ranges::equal(sliced, graph_.shape(from));
    for (std::size_t i = 0; i < rank; ++i) whole = whole && box[i] == 0 && box[rank + i] == 1;
    NodeId x = whole ? now_[from] : view(Op::Slice, now_[from], sliced, box);
    for (std::size_t i = 0; i < rank; ++i) {
      if (i == along && !range->inside) split.push_back(n);
      split.push_back(shape[i]);
      if (i == along && range->inside) split.push_back(n);
    }
    x = moved(view(Op::Reshape, x, split), along + range->inside, 0);
    if (!range->backwards) return x;
    const List now = out_.shape(x);
    std::vector<std::int64_t> flip(2 * now.size(), 0);
    std::fill(flip.begin() + static_cast<std::ptrdiff_t>(now.size()), flip.end(), 1);
    flip[0] = n - 1;
    flip[now.size()] = -1;
    return view(Op::Slice, x, now, flip);
  }

  // ---------------------------------------------------------------------------------------------- copies joined by a Piecewise
  struct Box {
    NodeId operand;
    std::vector<std::int64_t> start, step;  // start and step in the result
  };

  NodeId joined(NodeId id) {
    const List shape = graph_.shape(id), operands = graph_.operands(id), attributes = graph_.attributes(id);
    const std::size_t rank = shape.size(), boxes = attributes.size() / (2 * rank);
    if (boxes < kFewestCopies) return kNoNode;
    std::vector<Box> all;
    std::vector<std::size_t> order(boxes);
    for (std::size_t k = 0; k < boxes; ++k) {
      const auto start = attributes.begin() + static_cast<std::ptrdiff_t>(2 * rank * k), step = start + static_cast<std::ptrdiff_t>(rank);
      all.push_back({static_cast<NodeId>(operands[k]), {start, step}, {step, step + static_cast<std::ptrdiff_t>(rank)}});
      order[k] = k;
    }
    // sorts copies of one form together, by their start
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const std::uint64_t f = form_[all[a].operand], g = form_[all[b].operand];
      return f != g ? f < g : all[a].step != all[b].step ? all[a].step < all[b].step : all[a].start < all[b].start;
    });
    std::vector<Box> result;
    bool any = false;
    for (std::size_t i = 0; i < order.size();) {
      const std::size_t end = run_end(i, order.size(), [&](std::size_t k) { return apart(all[order[k]], all[order[k + 1]]); });
      std::optional<Box> one;
      if (end - i >= kFewestCopies) one = box_of(all, std::span(order).subspan(i, end - i));
      if (one) {
        result.push_back(std::move(*one));
        any = true;
        i = end;
        continue;
      }
      for (const std::size_t last = std::max(i + 1, end - 1); i < last; ++i)  // the last copy may begin another run
        result.push_back({now_[all[order[i]].operand], all[order[i]].start, all[order[i]].step});
    }
    if (!any) return kNoNode;
    if (result.size() == 1 && std::ranges::equal(out_.shape(result[0].operand), shape) &&
        std::ranges::all_of(result[0].start, [](std::int64_t v) { return v == 0; }) &&
        std::ranges::all_of(result[0].step, [](std::int64_t v) { return v == 1; }))
      return result[0].operand;
    std::vector<std::int64_t> ids, places;
    for (const Box& b : result) {
      ids.push_back(b.operand);
      places.insert(places.end(), b.start.begin(), b.start.end());
      places.insert(places.end(), b.step.begin(), b.step.end());
    }
    if (operands.size() > boxes) ids.push_back(now_[static_cast<std::size_t>(operands[boxes])]);
    return out_.add(Node{Op::Piecewise, graph_[id].dtype, graph_[id].shape, out_.intern(ids), out_.intern(places), 0});
  }

  // Returns a hash of the difference of two boxes: their operands, and the axis and distance between their starts. Returns 0 if the starts
  // differ along several axes.
  std::uint64_t apart(const Box& a, const Box& b) {
    std::uint64_t h = 0;
    if (a.step != b.step) return 0;
    for (std::size_t axis = 0; axis < a.start.size(); ++axis) {
      if (a.start[axis] == b.start[axis]) continue;
      if (h) return 0;
      h = mix(axis + 1, static_cast<std::uint64_t>(b.start[axis]) - static_cast<std::uint64_t>(a.start[axis])) | 1;
    }
    const std::uint64_t d = difference(a.operand, b.operand);
    return h && d ? mix(h, d) | 1 : 0;
  }

  std::optional<Box> box_of(const std::vector<Box>& all, std::span<const std::size_t> copies) {
    const Box &first = all[copies[0]], &second = all[copies[1]];
    const List shape = graph_.shape(first.operand);
    const auto n = static_cast<std::int64_t>(copies.size());
    std::size_t along = 0;
    while (first.start[along] == second.start[along]) ++along;
    if (graph_.elements(first.operand) == 0) return {};
    const std::optional<Range> range =
        as_one(first.start[along], second.start[along] - first.start[along], n, first.step[along], shape[along]);
    if (!range || range->backwards) return {};
    Tuple tuple;
    for (const std::size_t k : copies) tuple.push_back(all[k].operand);
    NodeId x = together(tuple);
    if (x == kNoNode) return {};
    x = moved(x, 0, along + range->inside);
    std::vector<std::int64_t> together(shape.begin(), shape.end());
    together[along] *= n;
    Box one{view(Op::Reshape, x, together), first.start, first.step};
    one.start[along] = range->start;
    one.step[along] = range->step;
    return one;
  }
  // ---------------------------------------------------------------------------------------------- copies that are results
  void find_results() {
    std::unordered_map<NodeId, int> times;
    for (const NodeId id : graph_.outputs) ++times[id];
    std::vector<NodeId> all;
    for (const NodeId id : graph_.outputs)
      if (times[id] == 1 && !is_half(graph_[id].dtype) && graph_.elements(id) >= kSmallestMember && graph_[id].op != Op::Input)
        all.push_back(id);
    if (all.size() < kFewestCopies) return;
    std::vector<Tuple> tuples;
    std::stable_sort(all.begin(), all.end(), [&](NodeId a, NodeId b) { return form_[a] < form_[b]; });
    for (std::size_t i = 0; i < all.size();) {
      const std::size_t end = run_end(i, all.size(), [&](std::size_t k) { return difference(all[k], all[k + 1]); });
      if (end - i < kFewestCopies) {
        i = std::max(i + 1, end - 1);
        continue;
      }
      tuples.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i), all.begin() + static_cast<std::ptrdiff_t>(end));
      i = end;
    }
    find_beside(tuples);
    for (Tuple& tuple : tuples) results_[std::ranges::max(tuple)].push_back(std::move(tuple));
  }
  // Finds sums over the same copies as joined results, such as the derivatives with respect to an array list's members and to their common
  // factor. One loop computes both if it runs over the same copies, in the order of the sum; the results allow any order.
  void find_beside(std::vector<Tuple>& tuples) {
    for (std::uint32_t t = 0; t < tuples.size(); ++t) {
      const List first = graph_.operands(tuples[t][0]), second = graph_.operands(tuples[t][1]);
      for (std::uint32_t k = 0; k < tuples[t].size(); ++k) {
        const List mine = graph_.operands(tuples[t][k]);
        for (std::size_t i = 0; i < mine.size(); ++i)
          if (const auto o = static_cast<NodeId>(mine[i]); first[i] != second[i] && uses_[o] > 1) beside_.try_emplace(o, Beside{t, k});
      }
    }
    std::vector<std::optional<std::uint32_t>> last(tuples.size());
    std::vector<std::int64_t> forwards(tuples.size(), 0);
    for (NodeId id = 0; id < graph_.size() && !beside_.empty(); ++id) {
      if (graph_[id].op != Op::Add) continue;
      const std::optional<Beside> at = beside(graph_.operand(id, 1));
      if (!at) continue;
      if (last[at->tuple]) forwards[at->tuple] += at->copy > *last[at->tuple] ? 1 : -1;
      last[at->tuple] = at->copy;
    }
    for (std::size_t t = 0; t < tuples.size(); ++t)
      if (forwards[t] < 0) std::ranges::reverse(tuples[t]);
  }
  // Returns the joined result that shares an operand with this node.
  std::optional<Beside> beside(NodeId id) const {
    if (!beside_.empty())
      for (const std::int64_t o : graph_.operands(id))
        if (const auto it = beside_.find(static_cast<NodeId>(o)); it != beside_.end()) return it->second;
    return {};
  }
  // Makes each result a slice of the joined value. An Identity keeps view rules from taking the slices apart.
  void join_results(const Tuple& tuple) {
    const NodeId all = together(tuple);
    if (all == kNoNode) return;
    any_ = true;
    const Node node = graph_[tuple[0]];
    const List shape = graph_.shape(tuple[0]);
    const NodeId whole = out_.add(Op::Identity, node.dtype, out_[all].shape, {all});
    const std::vector<std::int64_t> one = with_axis(1, shape);
    std::vector<std::int64_t> box(2 * one.size(), 0);
    std::fill(box.begin() + static_cast<std::ptrdiff_t>(one.size()), box.end(), 1);
    for (std::size_t t = 0; t < tuple.size(); ++t) {
      box[0] = static_cast<std::int64_t>(t);
      now_[tuple[t]] = view(Op::Reshape, view(Op::Slice, whole, one, box), graph_.shape(tuple[t]));
    }
  }

  // ---------------------------------------------------------------------------------------------- copies joined by a sum
  bool ends_chain(NodeId id) const { return graph_[id].op == Op::Add && adder_[id] == kNoNode; }

  // Returns the terms of the chain of adds that ends at `id`, the last term first.
  std::vector<NodeId> terms_of(NodeId id) const {
    std::vector<NodeId> terms;
    NodeId at = id;
    while (graph_[at].op == Op::Add && (at == id || adder_[at] != kNoNode)) {
      terms.push_back(graph_.operand(at, 1));
      at = graph_.operand(at, 0);
    }
    terms.push_back(at);
    return terms;
  }
  bool has_copies() const {
    if (!results_.empty()) return true;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (graph_[id].op == Op::Piecewise || (ends_chain(id) && terms_of(id).size() >= kFewestCopies)) return true;
    return false;
  }

  NodeId summed(NodeId id) {
    std::vector<NodeId> terms = terms_of(id);
    if (terms.size() < kFewestCopies || graph_.elements(id) == 0) return kNoNode;
    std::reverse(terms.begin(), terms.end());
    NodeId sum = kNoNode;
    bool any = false;
    for (std::size_t i = 0; i < terms.size();) {
      const std::size_t end =
          end_beside(terms, i, run_end(i, terms.size(), [&](std::size_t k) { return difference(terms[k], terms[k + 1]); }));
      const NodeId all = end - i >= kFewestCopies && differ_in_arrays(terms[i], terms[i + 1])
                             ? summed_in_sequence(sum, std::span(terms).subspan(i, end - i))
                             : kNoNode;
      if (all != kNoNode) {
        sum = all;
        any = true;
        i = end;
        continue;
      }
      for (const std::size_t last = std::max(i + 1, end - 1); i < last; ++i) {
        const NodeId term = now_[terms[i]];
        sum = sum == kNoNode ? term : out_.add(Op::Add, graph_[id].dtype, graph_[id].shape, {sum, term});
      }
    }
    return any ? sum : kNoNode;
  }

  // Returns the end of the terms from `begin` that share operands with the same joined results; `end` if they are too few for a loop.
  std::size_t end_beside(const std::vector<NodeId>& terms, std::size_t begin, std::size_t end) const {
    const std::optional<Beside> first = beside(terms[begin]);
    std::size_t i = begin + 1;
    for (; first && i < end; ++i)
      if (const std::optional<Beside> at = beside(terms[i]); !at || at->tuple != first->tuple) break;
    return first && i - begin >= kFewestCopies ? i : end;
  }

  // Returns sum + terms[0] + terms[1] + …, in groups that contract_rows adds in sequence; kNoNode if the terms are not copies. Terms with a
  // reduction are computed all together, because they are materialized in any case.
  NodeId summed_in_sequence(NodeId sum, std::span<const NodeId> terms) {
    const bool reduce = each_reduces(terms[0], terms[1]), members = reduce || terms.size() >= kManyTerms || beside(terms[0]);
    const NodeId whole = reduce ? together(Tuple(terms.begin(), terms.end())) : kNoNode;
    if (reduce && whole == kNoNode) return kNoNode;
    for (std::size_t begin = 0; begin < terms.size();) {
      const std::size_t count = std::min<std::size_t>(terms.size() - begin, kSequence - (sum != kNoNode));
      const auto first = terms.begin() + static_cast<std::ptrdiff_t>(begin), end = first + static_cast<std::ptrdiff_t>(count);
      const NodeId x = reduce ? copies_of(whole, begin, count) : together(Tuple(first, end), members);
      if (x == kNoNode) return kNoNode;
      sum = in_sequence(sum, x);
      begin += count;
    }
    return sum;
  }
  // Returns `count` copies from `begin` on.
  NodeId copies_of(NodeId all, std::size_t begin, std::size_t count) {
    std::vector<std::int64_t> part(out_.shape(all).begin(), out_.shape(all).end()), box(2 * part.size(), 0);
    if (part[0] == static_cast<std::int64_t>(count)) return all;
    std::fill(box.begin() + static_cast<std::ptrdiff_t>(part.size()), box.end(), 1);
    box[0] = static_cast<std::int64_t>(begin);
    part[0] = static_cast<std::int64_t>(count);
    return view(Op::Slice, all, part, box);
  }
  // Returns sum + x[0] + x[1] + …, at most kSequence terms.
  NodeId in_sequence(NodeId sum, NodeId x) {
    const DType dtype = out_[x].dtype;
    std::vector<std::int64_t> shape(out_.shape(x).begin(), out_.shape(x).end());
    const std::vector<std::int64_t> inner(shape.begin() + 1, shape.end());
    if (sum != kNoNode) {
      std::vector<std::int64_t> boxes;
      for (const std::int64_t start : {0, 1}) {
        boxes.push_back(start);
        boxes.resize(boxes.size() + shape.size() - 1, 0);
        boxes.resize(boxes.size() + shape.size(), 1);
      }
      ++shape[0];
      x = out_.add(Op::Piecewise, dtype, out_.intern(shape), {view(Op::Reshape, sum, with_axis(1, inner)), x}, boxes);
    }
    const NodeId one = out_.constant(dtype, out_.intern(shape), bits_of(dtype, 1.0));
    const std::int64_t axis = 0;
    return out_.add(Op::ContractRows, dtype, out_.intern(inner), {x, one}, List(&axis, 1));
  }
  static constexpr std::size_t kSequence = 256;
};

// True if some node joins enough operands to be copies. Most graphs end here.
bool worth_looking(const Graph& graph) {
  std::size_t adds = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op == Op::Piecewise && graph.operands(id).size() >= kFewestCopies) return true;
    adds += graph[id].op == Op::Add;
  }
  return adds + 1 >= kFewestCopies || graph.outputs.size() >= kFewestCopies;
}

}  // namespace

std::optional<Graph> reroll(const Graph& graph) {
  std::optional<Graph> joined;
  while (worth_looking(joined ? *joined : graph)) {
    std::optional<Graph> more = Reroller(joined ? *joined : graph, joined.has_value()).run();
    if (!more) break;
    Graph simple = prune(simplify(*more));
    if (joined && simple.size() >= joined->size()) break;  // arrays of an array list stay side by side
    joined = std::move(simple);
  }
  return joined;
}

}  // namespace onepass::compiler
