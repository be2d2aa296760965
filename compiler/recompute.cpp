// See recompute.h.
#include "compiler/recompute.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>

#include "compiler/read_map.h"
#include "compiler/unroll.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::Node;
using ir::NodeId;
using ir::Op;

namespace {

constexpr std::uint32_t kFewBoxes = 4;                   // elementwise select, used if loops cannot be split at the box edges
constexpr double kLoad = 2;                              // primitives that cost about as much as a load from the caches
constexpr std::uint32_t kContractedCost = 2;             // primitives for each element that cost little compared with an fma for each use
constexpr double kMostCopied = 8 * kRoundTrip;           // operations of code for other maps, even if they compute nothing again
constexpr std::uint32_t kMostOfCopies = 8 * kRoundTrip;  // operations of a value with few copies, which are usually computed once
constexpr std::uint32_t kMostParts = 32;                 // limit of loop parts from nested subdomains: each part is separate code

class Finder {
 public:
  Finder(const Graph& graph, const FuseOptions& options, const std::vector<NodeId>& wanted)
      : graph_(graph), options_(options), wanted_(wanted), cost_(graph.size(), 0) {}

  StoredAhead run() {
    out_.boundary.assign(graph_.size(), Boundary::Inlined);
    count_costs();
    find_checked();
    for (NodeId id = 0; id < graph_.size() && !options_.unfused; ++id)
      if (out_.needed[id] && is_stored(graph_, id)) out_.boundary[id] = Boundary::Recompute;
    if (!options_.unfused) find_other_steps();
    most_.assign(graph_.size(), 0);
    find_recomputed();
    const bool cheap = inlines_cheap(), selected = inlines_selected();
    if (cheap || selected) find_recomputed();
    return std::move(out_);
  }

 private:
  const Graph& graph_;
  const FuseOptions& options_;
  const std::vector<NodeId>& wanted_;
  StoredAhead out_;
  std::vector<std::uint32_t> cost_;
  std::vector<bool> reduces_;         // the value's expression contains a reduction
  std::vector<bool> only_reduced_;    // only reductions read the value, or other values of this kind
  std::vector<double> most_;          // stored because its expression costs more than this; 0: not for that reason
  std::vector<NodeId> selected_;      // stored because a reduction would select between many boxes
  std::vector<std::uint32_t> boxes_;  // boxes of Piecewise nodes inside each other in the value's expression: their product

  // True if the value is in memory and not computed here.
  bool is_list(NodeId id) const { return options_.lists.reads(id) || options_.lists.assembles(id); }

  // Computes the primitives for each element when a value's whole expression is recomputed (saturating; shared parts counted each time).
  void count_costs() {
    out_.needed.assign(graph_.size(), false);
    for (NodeId id : wanted_) out_.needed[id] = true;
    for (NodeId id : options_.places) out_.needed[id] = true;
    for (NodeId id = graph_.size(); id-- > 0;)
      if (out_.needed[id] && !is_list(id))
        for (std::int64_t o : graph_.operands(id)) out_.needed[static_cast<std::size_t>(o)] = true;
    find_reduced();
    reduces_.assign(graph_.size(), false);
    out_.reads.assign(graph_.size(), 0);
    boxes_.assign(graph_.size(), 1);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (is_list(id)) continue;
      const Op op = graph_[id].op;
      count_boxes(id);
      count_cost(id);
      reduces_[id] = in_sequence(op);
      if (op == Op::Input) out_.reads[id] = graph_.elements(id);
      for (std::int64_t o : graph_.operands(id)) {
        const bool is_array =
            in_sequence(graph_[static_cast<NodeId>(o)].op) || is_stored(graph_, static_cast<NodeId>(o)) || is_list(static_cast<NodeId>(o));
        out_.reads[id] =
            std::max(out_.reads[id], is_array ? graph_.elements(static_cast<NodeId>(o)) : out_.reads[static_cast<std::size_t>(o)]);
        if (reduces_[static_cast<std::size_t>(o)]) reduces_[id] = true;
      }
    }
  }
  // Calls f(operand) for each operand whose expression belongs to the value's expression: it is not known to be stored.
  template <class F> void each_inlined(NodeId id, F&& f) const {
    if (in_sequence(graph_[id].op) || is_stored(graph_, id)) return;
    for (const std::int64_t o : graph_.operands(id))
      if (out_.boundary[static_cast<std::size_t>(o)] == Boundary::Inlined) f(static_cast<NodeId>(o));
  }
  void count_boxes(NodeId id) {
    boxes_[id] = 1;
    each_inlined(id, [&](NodeId o) { boxes_[id] = std::max(boxes_[id], boxes_[o]); });
    if (graph_[id].op == Op::Piecewise) boxes_[id] = std::min<std::uint32_t>(1u << 16, boxes_[id] * boxes_of(id));
  }
  void count_cost(NodeId id) {
    cost_[id] = in_sequence(graph_[id].op) || is_stored(graph_, id) ? 0 : own_cost(id);
    each_inlined(id, [&](NodeId o) { cost_[id] = std::min<std::uint32_t>(1u << 20, cost_[id] + cost_[o]); });
  }
  // Looks at the stored values again, from the inputs on. Their costs were those of everything before them; now it is known which of these
  // values are in memory. Inlines values that cost little from there. Returns true if there are some.
  bool inlines_cheap() {
    bool any = false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (is_list(id)) continue;
      count_cost(id);
      if (most_[id] == 0 || reduces_[id] || costs_more(id, most_[id])) continue;
      out_.boundary[id] = Boundary::Inlined;
      any = true;
    }
    return any;
  }
  std::uint32_t own_cost(NodeId id) const {
    const Op op = graph_[id].op;
    return ir::is_elementwise(op)                ? ir::info(op).kind == ir::OpKind::Expanded                 ? 16
                                                   : op == Op::Div || op == Op::Sqrt || op == Op::Reciprocal ? 10
                                                                                                             : 1
           : op == Op::Piecewise                 ? 2 * static_cast<std::uint32_t>(graph_.operands(id).size())
           : op == Op::Place || op == Op::Gather ? 4
                                                 : 0;
  }
  // Inlines Piecewise nodes that were stored for their boxes, if few boxes are left without those behind values that are now stored. Returns
  // true if there are some.
  bool inlines_selected() {
    if (selected_.empty()) return false;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!is_list(id)) count_boxes(id);
    bool any = false;
    for (const NodeId id : selected_)
      if (boxes_[id] <= kFewBoxes) out_.boundary[id] = Boundary::Inlined, any = true;
    return any;
  }
  // Returns the primitives for each element when a value's whole expression is recomputed, with shared parts counted once. Stops above
  // `most`.
  double cost_of_all(NodeId id, double most, double load) const {
    std::vector<NodeId> open = {id};
    std::unordered_set<NodeId> seen;
    double cost = 0;
    while (!open.empty() && cost <= most) {
      const NodeId at = open.back();
      open.pop_back();
      if (!seen.insert(at).second) continue;
      if (const NodeId base = base_of(at); at != id && is_in_memory(base)) {
        if (2 * graph_.elements(base) > graph_.elements(id)) cost += load;
        continue;
      }
      cost += own_cost(at);
      for (const std::int64_t o : graph_.operands(at)) open.push_back(static_cast<NodeId>(o));
    }
    return cost;
  }
  NodeId base_of(NodeId id) const {
    while (ir::is_view(graph_[id].op) && graph_[id].op != Op::Pad) id = graph_.operand(id, 0);
    return id;
  }
  // True for an array, and for a value of which it is known that it is stored.
  bool is_in_memory(NodeId id) const {
    const Op op = graph_[id].op;
    return op == Op::Input || is_list(id) || in_sequence(op) || is_stored(graph_, id) || out_.boundary[id] != Boundary::Inlined;
  }
  // True if recomputing a value's whole expression takes more primitives for each element. cost_ counts shared parts several times, which
  // suits results of reductions: other loops that compute from them need them in memory.
  bool costs_more(NodeId id, double most, double load = kLoad) const {
    if (reduces_[id]) return cost_[id] > most;
    return cost_[id] > most / (1 + load) && cost_of_all(id, most, load) > most;
  }
  void find_reduced() {
    only_reduced_.assign(graph_.size(), true);
    for (const NodeId id : wanted_) only_reduced_[id] = false;
    for (const NodeId id : options_.places) only_reduced_[id] = false;
    for (NodeId id = graph_.size(); id-- > 0;) {
      const Op op = graph_[id].op;
      const bool passes = ir::is_elementwise(op) || ir::is_view(op);
      const bool fits = passes ? only_reduced_[id] && !is_stored(graph_, id) : ir::is_reduction(op) && !ir::is_contraction(op);
      for (const std::int64_t o : graph_.operands(id))
        if (!fits && out_.needed[id]) only_reduced_[static_cast<std::size_t>(o)] = false;
    }
  }
  std::uint32_t boxes_of(NodeId id) const {
    const std::size_t rank = graph_.shape(id).size();
    return rank == 0 ? 1 : static_cast<std::uint32_t>(graph_.attributes(id).size() / (2 * rank));
  }
  // True for a Piecewise that has an edge of a box along one of these axes.
  bool has_edges_along(NodeId id, std::uint64_t axes) const {
    const List shape = graph_.shape(id), operands = graph_.operands(id);
    for (std::uint32_t k = 0; k < boxes_of(id); ++k)
      for (std::size_t i = 0; i < shape.size(); ++i)
        if ((axes >> i & 1) && graph_.shape(static_cast<NodeId>(operands[k]))[i] != shape[i]) return true;
    return false;
  }
  // Returns the axes of an operand that a reduction of these axes of the node reduces: all of them for a view that moves axes.
  std::uint64_t reduced_axes_of_operand(NodeId id, NodeId operand, std::uint64_t axes) const {
    const Op op = graph_[id].op;
    if (in_sequence(op)) {
      axes = 0;
      if (ir::is_reduction(op))
        for (const std::int64_t axis : graph_.attributes(id)) axes |= std::uint64_t{1} << axis;
      return axes;
    }
    const bool keeps = !ir::is_view(op) || op == Op::Slice || op == Op::Pad || op == Op::Broadcast;
    return keeps || axes == 0 ? axes : (std::uint64_t{1} << graph_.shape(operand).size()) - 1;
  }
  static bool in_sequence(Op op) { return ir::is_reduction(op) || ir::is_scan(op) || op == Op::ScatterAdd || ir::is_routine(op); }

  // True if the value at an index of a gather depends on that index. Along an axis of one element, a broadcast axis and in numbers it does
  // not: kernels then read no index.
  bool varies_along(NodeId id, std::size_t axis) const {
    if (graph_.shape(id)[axis] == 1) return false;
    while (graph_[id].op != Op::Input && (ir::is_view(graph_[id].op) || ir::is_source(graph_[id].op))) {
      const List attributes = graph_.attributes(id), shape = graph_.shape(id);
      if (ir::is_source(graph_[id].op)) return graph_[id].op == Op::Iota && attributes[0] == static_cast<std::int64_t>(axis);
      const NodeId from = graph_.operand(id, 0);
      const List was = graph_.shape(from);
      switch (graph_[id].op) {
        case Op::Broadcast:
          if (was[axis] != shape[axis]) return false;
          break;
        case Op::Permute: axis = static_cast<std::size_t>(attributes[axis]); break;
        case Op::Slice:
        case Op::Pad: break;
        case Op::Reshape: {
          const std::int64_t before = ir::element_count(shape.first(axis));
          std::size_t same = 0;
          while (same < was.size() && (was[same] != shape[axis] || ir::element_count(was.first(same)) != before)) ++same;
          if (same == was.size()) return !is_broadcast(from);
          axis = same;
          break;
        }
        default: return !is_broadcast(from);
      }
      id = from;
    }
    return true;
  }
  bool is_broadcast(NodeId id) const {
    for (; ir::is_view(graph_[id].op); id = graph_.operand(id, 0))
      if (graph_[id].op == Op::Broadcast) return true;
    return ir::is_source(graph_[id].op) && graph_[id].op != Op::Input;
  }

  // True if the kernel of a gather or scatter reads its indices.
  bool reads_index(NodeId id) const {
    const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
    const NodeId x = graph_.operand(id, 0);
    if (graph_[id].op == Op::ScatterAdd) return graph_.shape(id)[axis] != 1;
    return graph_.elements(x) != 0 && varies_along(x, axis);
  }

  // Finds indices that need a separate kernel for their check. If materialized values read every element of the indices, the kernels of
  // these values check them.
  void find_checked() {
    std::vector<bool> whole(graph_.size(), false);
    for (NodeId id : wanted_) whole[id] = true;
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!whole[id] || graph_.elements(id) == 0) continue;
      const Op op = graph_[id].op;
      const List operands = graph_.operands(id);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const auto o = static_cast<NodeId>(operands[i]);
        if (op == Op::Gather && (i == 0 || !reads_index(id))) continue;
        if (op == Op::ScatterAdd && i == 1 && !reads_index(id)) continue;
        if ((op == Op::Slice || op == Op::Diagonal || op == Op::Window) && graph_.elements(id) != graph_.elements(o)) continue;
        whole[o] = true;
      }
    }
    for (NodeId id : options_.places)
      if (!whole[id] && graph_.elements(id) != 0) out_.boundary[id] = Boundary::Checked;
  }

  // Returns the largest step of a box along the last axis, or 1.
  std::int64_t step_of(NodeId id) const {
    const std::size_t rank = graph_.shape(id).size();
    std::int64_t most = 1;
    if ((graph_[id].op != Op::Piecewise && graph_[id].op != Op::Pad) || rank == 0 || is_list(id)) return most;
    const List attributes = graph_.attributes(id), operands = graph_.operands(id);
    for (std::size_t k = 0; k < attributes.size() / (2 * rank); ++k)
      if (graph_.shape(static_cast<NodeId>(operands[k])).back() > 1)
        most = std::max(most, std::abs(attributes[2 * rank * k + 2 * rank - 1]));
    return most;
  }

  // Materializes values that consist of boxes with one step and are combined with boxes of another step. A loop can interleave only one
  // step of indices. Indices with another step need a quotient for each element.
  void find_other_steps() {
    std::vector<std::int64_t> steps(graph_.size(), 1);  // of the boxes in a value's expression
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!out_.needed[id] || is_list(id) || out_.boundary[id] != Boundary::Inlined) continue;
      const Op op = graph_[id].op;
      if (op == Op::Piecewise || op == Op::Pad) steps[id] = step_of(id);
      if (steps[id] > 1 || in_sequence(op)) continue;
      NodeId with = id;  // the operand whose step the loop can interleave: a box itself, if possible
      for (const std::int64_t o : graph_.operands(id)) {
        const auto operand = static_cast<NodeId>(o);
        if (steps[operand] > 1 && (with == id || step_of(operand) > 1)) with = operand;
      }
      if (with == id) continue;
      steps[id] = steps[with];
      for (const std::int64_t o : graph_.operands(id)) {
        const auto operand = static_cast<NodeId>(o);
        if (steps[operand] == 1 || steps[operand] == steps[with] || !ir::is_elementwise(graph_[operand].op)) continue;
        out_.boundary[operand] = Boundary::Recompute;
        steps[operand] = 1;
      }
    }
  }

  // True if neighbors along the last axis come from different operands: a stack along that axis, or a box with a step. A kernel stores such
  // elements side by side. A kernel that only reads them must select each element by a quotient.
  bool interleaves(NodeId id) const {
    const Op op = graph_[id].op;
    const std::size_t rank = graph_.shape(id).size();
    if ((op != Op::Piecewise && op != Op::Pad) || rank == 0 || is_list(id)) return false;
    if (step_of(id) > 1) return true;
    const List operands = graph_.operands(id);
    const std::size_t boxes = graph_.attributes(id).size() / (2 * rank);
    if (boxes < 2 || boxes != operands.size() || graph_.elements(id) == graph_.shape(id).back()) return false;
    return std::ranges::all_of(operands, [&](std::int64_t o) { return graph_.shape(static_cast<NodeId>(o)).back() == 1; });
  }

  // True for an elementwise value of elements with gaps between them, such as put(x, [::3], v). A view cannot be materialized, but its reader
  // can.
  bool reads_with_gaps(NodeId id) const {
    if (!ir::is_elementwise(graph_[id].op)) return false;
    return std::ranges::any_of(graph_.operands(id), [&](std::int64_t o) {
      return graph_[static_cast<NodeId>(o)].op == Op::Pad && interleaves(static_cast<NodeId>(o));
    });
  }

  // Returns the number of edges of boxes at which loops that read the node are cut. If there are many boxes, they add to the parts of other
  // nodes instead.
  std::uint32_t cuts_of(NodeId id, const std::vector<ReadMap>& maps) const {
    const Op op = graph_[id].op;
    if ((op != Op::Pad && op != Op::Piecewise) || has_many_boxes(graph_, options_.lists, id)) return 0;
    double cuts = 0;
    for (const ReadMap& map : maps) cuts += edges_inside(graph_, id, map) * map.copies;
    return static_cast<std::uint32_t>(std::min(65536.0, cuts));
  }

  // True if computing a value again for each map costs more than a round trip. Maps that read different parts of the value compute nothing
  // again. A value that contains a reduction is materialized where windows read it.
  bool is_costly(NodeId id, const std::vector<ReadMap>& maps) {
    double all = 0, most = 0;
    for (const ReadMap& m : maps) all += m.elements, most += reduces_[id] ? 1 : m.most;
    const double times = std::min(most, all / static_cast<double>(std::max<std::int64_t>(graph_.elements(id), 1)));
    constexpr double kSmall = 1e-9;  // instead of 0
    const double again = std::max(times - 1, kSmall), other_maps = std::max(static_cast<double>(maps.size()) - 1, kSmall);
    if (only_reduced_[id] && graph_.elements(id) / kPairs >= out_.reads[id] && !costs_more(id, kMostOfPair / again)) return false;
    const double limit = std::min(kRoundTrip / again, kMostCopied / other_maps);
    if (!costs_more(id, limit)) return false;
    most_[id] = limit;
    return true;
  }

  // Materializes two kinds of values, from the outputs back. The first kind is values read through several maps, or broadcast, that cost
  // more to recompute than a round trip. The second kind is nested subdomains that would become too many.
  void find_recomputed() {
    if (options_.unfused) return;
    constexpr std::size_t kMost = 64;
    std::vector<std::vector<ReadMap>> maps(graph_.size());      // through which consumers read a value
    std::vector<bool> reduced(graph_.size(), false);            // a reduction in the same loops reads it
    std::vector<std::uint64_t> reduced_axes(graph_.size(), 0);  // axes that such reductions reduce
    std::vector<bool> contracted(graph_.size(), false);         // a contraction reads it
    std::vector<std::uint32_t> parts(graph_.size(), 1);   // number of parts into which the nodes up to a materialized value split the loops
    std::vector<bool> in_pieces(graph_.size(), false);    // the value is computed in each of many subdomains
    std::vector<bool> interleaved(graph_.size(), false);  // an interleaving value in the same loops reads it
    const auto own = [&](NodeId id) { return own_map(graph_, id); };
    const auto parts_with = [&](NodeId id) { return std::min<std::uint32_t>(1u << 16, parts[id] + cuts_of(id, maps[id])); };
    for (NodeId id : wanted_) maps[id].push_back(own(id));
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!out_.needed[id] || is_list(id)) continue;
      if (ir::is_contraction(graph_[id].op))
        for (std::int64_t o : graph_.operands(id)) contracted[static_cast<std::size_t>(o)] = true;
      auto& mine = maps[id];
      unite(mine);
      const Node node = graph_[id];
      const bool computed = ir::is_elementwise(node.op) || node.op == Op::Piecewise || node.op == Op::Place || node.op == Op::Gather;
      const bool selects = node.op == Op::Piecewise && boxes_[id] > kFewBoxes && has_edges_along(id, reduced_axes[id]);
      const auto store = [&](Boundary why) {  // the value gets loops of its own
        out_.boundary[id] = why;
        reduced_axes[id] = 0;
        reduced[id] = interleaved[id] = false;
        mine.assign(1, own(id));
      };
      const bool is_interleaving = !ir::is_view(node.op) && interleaves(id);
      if (out_.boundary[id] != Boundary::Inlined) store(out_.boundary[id]);
      else if (selects) selected_.push_back(id), store(Boundary::Recompute);
      else if (has_many_boxes(graph_, options_.lists, id) && (mine.size() > 1 || reduced[id])) store(Boundary::Recompute);
      else if ((is_interleaving && (reduced[id] || interleaved[id])) || (reduced[id] && reads_with_gaps(id))) store(Boundary::Recompute);
      // a single element is the same through every map: each kernel computes it once
      const bool again = (mine.size() > 1 || (!mine.empty() && mine[0].most > 1)) && (graph_.elements(id) != 1 || in_pieces[id]);
      if (has_many_boxes(graph_, options_.lists, id) && out_.boundary[id] == Boundary::Inlined) in_pieces[id] = true;
      if (computed && out_.boundary[id] == Boundary::Inlined && again && is_costly(id, mine)) store(Boundary::Recompute);
      if (computed && out_.boundary[id] == Boundary::Inlined && parts[id] > 1 && parts_with(id) > kMostParts) store(Boundary::Pieces);
      if (in_sequence(node.op)) mine.assign(1, own(id));
      const bool reduces = reduced[id] || in_sequence(node.op);
      const bool begins = out_.boundary[id] != Boundary::Inlined || in_sequence(node.op);  // the value has separate loops
      const std::uint32_t cut = begins ? 1 + cuts_of(id, mine) : parts_with(id);
      const List operands = graph_.operands(id);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const auto o = static_cast<std::size_t>(operands[k]);
        if (reduces) reduced[o] = true;
        if (reduces) reduced_axes[o] |= reduced_axes_of_operand(id, static_cast<NodeId>(o), reduced_axes[id]);
        if (is_interleaving || (interleaved[id] && out_.boundary[id] == Boundary::Inlined && !in_sequence(node.op))) interleaved[o] = true;
        if (in_pieces[id] && out_.boundary[id] == Boundary::Inlined) in_pieces[o] = true;
        parts[o] = std::max(parts[o], cut);
        auto& theirs = maps[o];
        // A result of reductions that a broadcast stretches only along inner axes is computed outside the loops over these axes.
        const bool is_hoisted = node.op == Op::Broadcast && reduces_[o] && !repeats_outside(id);
        const ReaderFacts facts{reduces, is_hoisted || repeats_in_short_rows(graph_, id), has_many_boxes(graph_, options_.lists, id)};
        for (const ReadMap& m : mine) {
          if (theirs.size() > kMost) break;
          if (in_sequence(node.op))
            theirs.push_back(m), theirs.back().elements = static_cast<double>(graph_.elements(static_cast<NodeId>(o)));
          else if (std::optional<ReadMap> below = map_of_operand(graph_, id, k, m, facts)) theirs.push_back(std::move(*below));
        }
      }
      mine.clear();
      mine.shrink_to_fit();
      if (node.op == Op::Broadcast &&
          (contracted[id] || repeats_outside(id))) {  // an expensive value: computed once, not once for every row
        NodeId u = graph_.operand(id, 0);
        while (ir::is_view(graph_[u].op)) u = graph_.operand(u, 0);
        const Op op = graph_[u].op;
        const bool computed_once = ir::is_elementwise(op) || op == Op::Piecewise || op == Op::Gather;
        // A contraction reads an operand once for each index of the other operand. Few copies share the value (Planner::in_copies).
        const double times = static_cast<double>(graph_.elements(id)) / static_cast<double>(std::max<std::int64_t>(graph_.elements(u), 1));
        const std::uint32_t most = contracted[id]        ? kContractedCost
                                   : times <= kFewCopies ? kMostOfCopies
                                   : out_.reads[u] == 0  ? kRoundTrip  // made of numbers
                                                         : kRoundTrip / 2;
        if (computed_once && !reduces_[u] && costs_more(u, most, 0)) out_.boundary[u] = Boundary::Recompute;
      }
    }
  }
  // True if the broadcast stretches an axis outside an axis of its operand. Stretched inner axes are free, because the value is hoisted.
  bool repeats_outside(NodeId id) const {
    const List shape = graph_.shape(id), was = graph_.shape(graph_.operand(id, 0));
    bool stretched = false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != was[i]) stretched = true;
      else if (stretched && was[i] != 1) return true;
    }
    return false;
  }
};

}  // namespace

StoredAhead find_stored_ahead(const Graph& graph, const FuseOptions& options, const std::vector<NodeId>& wanted) {
  return Finder(graph, options, wanted).run();
}

bool repeats_in_short_rows(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::Broadcast) return false;
  const List shape = graph.shape(id), was = graph.shape(graph.operand(id, 0));
  if (shape.empty() || shape.back() > kMostUnrolled || was.back() != 1 || graph.elements(id) == shape.back()) return false;
  return std::ranges::equal(shape.first(shape.size() - 1), was.first(was.size() - 1));
}

bool has_many_boxes(const Graph& graph, const Lists& lists, NodeId id) {
  return graph[id].op == Op::Piecewise && graph.operands(id).size() > kFewBoxes && !lists.reads(id) && !lists.assembles(id);
}

}  // namespace onepass::compiler
