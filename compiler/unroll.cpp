// unroll: see unroll.h.
//   min(sum((a[:, none, :] - b[none, :, :])**2, -1), 1) of points in three dimensions
//     -> min((d0*d0 + d2*d2) + d1*d1, 1) with dk = a[:, k, none] - b[none, :, k]: one kernel, no array of differences or distances
//   norm(x, axis=-1) of [n, 3], sum(x, axis=0) of [3, n], max(reshape(x, [n, 2, m, 2]), [1, 3]) -> elementwise operators
//
// The operators follow the order of summation (docs/language.md). With one element for each lane, the existing lanes are halved repeatedly.
// With rows, one tree adds them. Padding changes no result.
//
// Up to 32 elements are allowed if the operand depends only on smaller arrays whose elements are each read 16 times or more. An example is
// the array of distances between all points of two sets. Their elements are adjacent along the reduced axis while the vectors run across it.
// So the arrays that vary along the vectors are first stored transposed.
//
// Short rows: a reduction along the last axis over at most eight elements is also unrolled if its operand is used as a whole, such as
// the exponentials of a softmax. The kernel then runs over all rows with one vector for each element of a row (Planner::in_phases). This
// applies to all such reductions of one shape that may be in one loop, or to none. If the values of these rows are summed along other axes
// or contracted, they are stored first, because those loops use few lanes. Rows that a contraction, a scan or a scatter computes are stored
// before the unrolled operators.
//
// Sums along another axis of such rows, computed from smaller arrays, become one sum for each element of a row: the forces between all
// points of a set are three sums of pairs, without an array of them.
//
// Products of many short rows with one small matrix, such as a color matrix or a rotation of points, are written out, too: one vector for
// each column of the result.
//
// A result from which values as large as the operand are computed is stored, so that they do not compute it again.
//
// Left out on purpose: another operand that is also used as a whole, since it then takes one pass over the array. For example, its
// maximum is subtracted from it, or it is summed along other axes. Sliding windows of up to 32 elements are not left out: they are not an
// array, and a loop over the elements of one window would be too short for vectors. Also left out: operands with so many operators that
// computing them in place costs more than a round trip.
#include "compiler/unroll.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "compiler/recompute.h"
#include "compiler/rewrite.h"
#include "ir/order.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr int kMostOperators = 96;            // for all elements together; an expanded function counts as sixteen
constexpr int kFewToRepeat = kRoundTrip / 2;  // for a result that is computed again where it is read
constexpr int kMostOfRow = 384;               // the same limit for all sums of short rows of one shape in one loop
constexpr std::size_t kMostForests = 16;      // shapes of short rows whose loops are told apart
constexpr std::int64_t kFewestRows = 64;      // of a product with a small matrix
constexpr std::int64_t kMostProducts = 40;    // for each of these rows

Op combiner(Op reduction) {
  switch (reduction) {
    case Op::ReduceSum: return Op::Add;
    case Op::ReduceProd: return Op::Mul;
    case Op::ReduceMax: return Op::Maximum;
    default: return Op::Minimum;
  }
}

class Unroller {
 public:
  explicit Unroller(const Graph& graph)
      : graph_(graph),
        uses_(graph.size(), 0),
        largest_(graph.size(), 0),
        largest_in_place_(graph.size(), 0),
        vector_axis_(graph.size(), kUnknown),
        follows_(graph.size()),
        operators_(graph.size(), 0),
        is_stored_(graph.size(), false),
        by_element_(graph.size(), false),
        reads_windows_(graph.size(), false) {
    for (const NodeId id : graph.outputs) ++uses_[id], largest_[id] = largest_in_place_[id] = count(id);
    for (NodeId id = static_cast<NodeId>(graph.size()); id-- > 0;) {
      find_vector_axis(id);
      const Op op = graph[id].op;
      const std::int64_t mine = is_view(op) ? 0 : count(is_reduction(op) ? graph.operand(id, 0) : id);
      const std::int64_t elements = std::max(largest_[id], mine);
      const std::int64_t in_place = is_view(op) && !keeps_loops(id) ? 0 : std::max(largest_in_place_[id], mine);
      for (const std::int64_t o : graph.operands(id)) {
        const auto operand = static_cast<std::size_t>(o);
        ++uses_[operand];
        largest_[operand] = std::max(largest_[operand], elements);
        largest_in_place_[operand] = std::max(largest_in_place_[operand], in_place);
      }
    }
  }

  std::optional<Graph> run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (reduces_short_row(id) && loops_over_rows_.size() < kMostForests)
        if (const ListId shape = graph_[graph_.operand(id, 0)].shape; !loops_over_rows_.contains(shape)) find_loops_over_rows(shape);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (reduces_short_row(id)) find_short_rows(id);
    std::vector<bool> chosen(graph_.size(), false);
    bool any = false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      by_element_[id] = sums_rows_by_element(id, chosen);
      if (by_element_[id] || worth_it(id, chosen)) chosen[id] = any = true;
    }
    if (!any) return {};
    const std::vector<bool> stored = rows_to_store(chosen);
    return rewrite(graph_, [&, next = NodeId{0}](Graph& out, const Node& node) mutable -> NodeId {
      while (graph_[next].op == Op::Input) ++next;  // rewrite() skips the rule for inputs
      const NodeId id = next++;
      const NodeId made = chosen[id] ? written_out(out, node, id) : out.add(node);
      return stored[id] ? out.add(Op::Identity, node.dtype, out[made].shape, {made}, std::vector{kStored}) : made;
    });
  }

 private:
  const Graph& graph_;
  std::vector<std::uint32_t> uses_;
  std::vector<std::int64_t> largest_;           // iterations of the largest loop that computes values from the node
  std::vector<std::int64_t> largest_in_place_;  // the same for loops over the node's axes and others
  // By shape of short rows: union-find forest of the nodes that may be in one loop over these rows.
  std::map<ListId, std::vector<NodeId>> loops_over_rows_;
  // By tree of the forest and shape of the operand: operators of all sums of its rows, written out.
  std::map<std::pair<NodeId, ListId>, std::int64_t> short_rows_;
  std::map<std::pair<NodeId, std::int64_t>, NodeId> made_;  // for the current reduction: each node's elements
  // By node: the axis along which the vectors of its readers run, kUnknown without readers, or kSeveral.
  static constexpr int kUnknown = -1, kSeveral = -2;
  std::vector<int> vector_axis_;
  std::vector<std::vector<NodeId>> follows_;  // by sum of short rows: Cone::follows
  std::vector<int> operators_;                // by reduction that is written out: its operators
  List axes_;                                 // reduced axes of the current reduction
  std::vector<std::int64_t> last_axis_;
  std::vector<std::int64_t> extents_;  // extents of the operand along axes_
  std::vector<bool> is_stored_;        // by reduction: its result is stored, since values as large as its operand are computed from it
  std::vector<bool> by_element_;       // by reduction: it becomes one reduction for each element of the operand's short rows
  std::vector<bool> reads_windows_;    // by reduction: Cone::windows
  bool turns_ = false;                 // arrays are first stored with the reduced axis first
  int along_ = kSeveral;               // axis of the operand along which the vectors of the reduction's readers run
  std::size_t rank_ = 0;               // of the operand

  // Tells the operands of a node along which of their axes its loop runs in vectors: the reduced axis if its elements are added in lanes,
  // else the last kept axis.
  void find_vector_axis(NodeId id) {
    const Node node = graph_[id];
    const auto tell = [&](NodeId operand, int axis) {
      int& known = vector_axis_[operand];
      known = known == kUnknown || known == axis ? axis : kSeveral;
    };
    for (const std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<NodeId>(o);
      const List shape = graph_.shape(operand);
      if (is_elementwise(node.op) && graph_.shape(id).size() == shape.size() && vector_axis_[id] != kUnknown) {
        tell(operand, vector_axis_[id]);
      } else if (is_reduction(node.op) && !is_contraction(node.op)) {
        const List axes = graph_.attributes(id);
        const bool adds = node.op == Op::ReduceSum || node.op == Op::ReduceProd;
        int axis = static_cast<int>(shape.size());
        const auto is_reduced = [&] { return std::ranges::find(axes, axis) != axes.end(); };
        const bool lanes = adds && sum_order(shape, axes, computed_type(node.dtype)).lanes;
        while (axis-- > 0 && (shape[static_cast<std::size_t>(axis)] == 1 || is_reduced() != lanes)) {}
        tell(operand, axis < 0 ? kSeveral : axis);
      } else {
        tell(operand, is_elementwise(node.op) ? static_cast<int>(shape.size()) - 1 : kSeveral);
      }
    }
  }
  // True for a view whose readers loop over the axes of its operand.
  bool keeps_loops(NodeId id) const {
    const Op op = graph_[id].op;
    if (op == Op::Broadcast || op == Op::Permute) return true;
    if (op != Op::Reshape) return false;
    const auto long_axes = [&](NodeId of) {
      std::vector<std::int64_t> extents;
      std::ranges::copy_if(graph_.shape(of), std::back_inserter(extents), [](std::int64_t extent) { return extent != 1; });
      return extents;
    };
    return long_axes(id) == long_axes(graph_.operand(id, 0));
  }
  std::int64_t count(NodeId id) const { return element_count(graph_.shape(id)); }

  // The nodes that compute the operand, element by element. take() returns false if another node needs as many elements of one of these
  // nodes.
  struct Cone {
    std::map<NodeId, std::uint32_t> uses;  // uses within the cone, by node as large as the operand
    int operators = 0;
    std::int64_t largest_read = 0;  // elements of the largest array that the operand reads
    bool windows = false;           // the operand reads sliding windows, whose elements are cheap to read again
    std::vector<NodeId> follows;    // reductions, contractions, scans, scatters and routines of its size whose results the operand reads
  };
  bool take(Cone& cone, NodeId operand, std::int64_t elements, int most) const {
    std::vector<NodeId> open = {operand};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (++cone.uses[id] > 1) continue;
      const Node node = graph_[id];
      if (is_elementwise(node.op)) {
        cone.operators += info(node.op).kind == OpKind::Expanded ? 16 : 1;
        if (cone.operators * 2 > most) return false;
        for (const std::int64_t o : graph_.operands(id)) open.push_back(static_cast<NodeId>(o));
      } else if (is_view(node.op)) {
        cone.windows |= node.op == Op::Window;
        const NodeId source = graph_.operand(id, 0);
        if (count(source) >= elements) open.push_back(source);
        else cone.largest_read = std::max(cone.largest_read, count(source));
      } else if (node.op == Op::Piecewise) {
        for (const std::int64_t o : graph_.operands(id)) open.push_back(static_cast<NodeId>(o));
      } else if (!is_source(node.op)) {
        cone.follows.push_back(id);
      } else if (node.op == Op::Input) {
        cone.largest_read = elements;
      }
    }
    return true;
  }
  // True if the node reduces rows of a few adjacent elements. Whatever else is computed from the rows can run in the same loop, over all
  // rows with one vector for each element of a row (Planner::in_phases), so that these operands may also be used as a whole.
  bool reduces_short_row(NodeId id) const {
    if (!is_reduction(graph_[id].op) || is_contraction(graph_[id].op)) return false;
    const List axes = graph_.attributes(id), shape = graph_.shape(graph_.operand(id, 0));
    return axes.size() == 1 && axes[0] + 1 == std::ssize(shape) && shape.back() > 1 && shape.back() <= kMostUnrolled;
  }
  // Joins elementwise operators, views and reductions of short rows that read each other, with as many elements as the rows or one for each
  // row. A larger value is computed in another loop.
  void find_loops_over_rows(ListId of) {
    std::vector<NodeId>& forest = loops_over_rows_[of];
    forest.resize(graph_.size());
    std::iota(forest.begin(), forest.end(), NodeId{0});
    const List shape = graph_.list(of);
    const std::int64_t all = element_count(shape), rows = all / shape.back();
    const auto is_in = [&](NodeId id) {
      const std::int64_t n = count(id);
      return (n == all || n == rows) && (is_elementwise(graph_[id].op) || is_view(graph_[id].op) || reduces_short_row(id));
    };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!is_in(id)) continue;
      for (const std::int64_t o : graph_.operands(id))
        if (const auto operand = static_cast<NodeId>(o); is_in(operand)) forest[root(forest, id)] = root(forest, operand);
    }
  }
  static NodeId root(std::vector<NodeId>& forest, NodeId id) {
    while (forest[id] != id) id = forest[id] = forest[forest[id]];
    return id;
  }
  // Returns the key of short_rows_ for a reduction of short rows.
  std::pair<NodeId, ListId> loop_over_rows(NodeId id) {
    const ListId shape = graph_[graph_.operand(id, 0)].shape;
    const auto forest = loops_over_rows_.find(shape);
    return {forest == loops_over_rows_.end() ? 0 : root(forest->second, id), shape};
  }
  void find_short_rows(NodeId id) {
    const NodeId operand = graph_.operand(id, 0);
    const List shape = graph_.shape(operand);
    Cone cone;
    const bool fits = sum_order(shape, graph_.attributes(id), computed_type(graph_[id].dtype)).count <= kMostUnrolled &&
                      take(cone, operand, count(operand), kMostOfRow);
    follows_[id] = std::move(cone.follows);
    short_rows_[loop_over_rows(id)] += fits ? (cone.operators + 1) * shape.back() : kMostOfRow + 1;
  }
  // True if every array that the node's expression reads has few of the `elements` that are computed from them. Reductions that are written
  // out belong to the expression.
  bool reads_small_arrays(NodeId id, std::int64_t elements, const std::vector<bool>& chosen, int& operators) const {
    std::vector<NodeId> open = {id};
    std::vector<bool> seen(id + 1, false);
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      const Op op = graph_[at].op;
      if (is_elementwise(op)) operators += info(op).kind == OpKind::Expanded ? 16 : 1;
      if (op == Op::Window || op == Op::Gather || operators > kMostOfRow) return false;
      if (is_elementwise(op) || is_view(op) || (chosen[at] && !by_element_[at]))
        for (const std::int64_t o : graph_.operands(at)) open.push_back(static_cast<NodeId>(o));
      else if (op != Op::Constant && op != Op::Slot && op != Op::Iota && count(at) * kPairs > elements) return false;
    }
    return true;
  }
  // True for a reduction along one axis, not the last, of short rows that are computed from small arrays.
  bool sums_rows_by_element(NodeId id, const std::vector<bool>& chosen) const {
    const Node node = graph_[id];
    if (!is_reduction(node.op) || is_contraction(node.op)) return false;
    const NodeId operand = graph_.operand(id, 0);
    const List axes = graph_.attributes(id), shape = graph_.shape(operand);
    if (axes.size() != 1 || shape.size() < 3 || axes[0] + 1 == std::ssize(shape)) return false;
    if (shape.back() < 2 || shape.back() > kMostUnrolled || !is_elementwise(graph_[operand].op)) return false;
    const std::vector<std::int64_t> turned = reduced_first(shape, axes[0]), first = {0};
    const DType type = computed_type(node.dtype);
    if (sum_order(shape, axes, type) != sum_order(turned, first, type)) return false;
    int operators = 0;
    return reads_small_arrays(operand, count(operand), chosen, operators) && operators * shape.back() <= kMostOfRow;
  }
  // Returns the extents without the last, with the reduced axis first.
  static std::vector<std::int64_t> reduced_first(List shape, std::int64_t axis) {
    std::vector<std::int64_t> turned = {shape[static_cast<std::size_t>(axis)]};
    for (std::size_t i = 0; i + 1 < shape.size(); ++i)
      if (static_cast<std::int64_t>(i) != axis) turned.push_back(shape[i]);
    return turned;
  }

  // Returns the values to store. Besides results (is_stored_), these are values of short rows. Another reduction, a contraction, a scan or a
  // routine reads some of them; its loops use few lanes and would compute the values repeatedly. The others are computed from the result of
  // such loops: a separate loop over all rows continues from there.
  std::vector<bool> rows_to_store(const std::vector<bool>& chosen) const {
    std::vector<bool> depends(graph_.size(), false), stored(graph_.size(), false);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Op op = graph_[id].op;
      const bool passes = chosen[id] || is_elementwise(op) || is_view(op);
      if (by_element_[id]) continue;
      depends[id] = chosen[id] && (reduces_short_row(id) || is_contraction(op));
      if (chosen[id] && is_stored_[id]) stored[id] = true;
      if (depends[id] && !is_contraction(op) && follows_loops(follows_[id], chosen) && !depends[graph_.operand(id, 0)])
        stored[graph_.operand(id, 0)] = true;
      for (const std::int64_t o : graph_.operands(id)) {
        auto operand = static_cast<NodeId>(o);
        if (!depends[operand]) continue;
        if (passes) {
          depends[id] = true;
          continue;
        }
        while (is_view(graph_[operand].op)) operand = graph_.operand(operand, 0);
        const List shape = graph_.shape(operand);
        if (!shape.empty() && shape.back() > 1 && shape.back() <= kMostUnrolled && is_elementwise(graph_[operand].op))
          stored[needed_again(operand, depends)] = true;
      }
    }
    return stored;
  }
  // Returns the value to store for a reduction of `id`: the value from which `id` and others are computed, if only that value depends on
  // short rows.
  NodeId needed_again(NodeId id, const std::vector<bool>& depends) const {
    NodeId found = id;
    for (NodeId at = id; is_elementwise(graph_[at].op);) {
      NodeId next = kNoNode;
      for (const std::int64_t o : graph_.operands(at))
        if (const auto operand = static_cast<NodeId>(o); depends[operand]) {
          if (next != kNoNode && next != operand) return found;
          next = operand;
        }
      if (next == kNoNode || graph_[next].shape != graph_[at].shape) return found;
      at = next;
      if (uses_[at] > 1 && is_elementwise(graph_[at].op)) found = at;
    }
    return found;
  }
  // True for a product of many short rows with one small matrix.
  bool is_small_product(NodeId id) const {
    const List to = graph_.shape(id);
    if (graph_[id].op != Op::ContractRows || is_half(graph_[id].dtype) || !has_small_product_lengths(graph_, id)) return false;
    if (count(id) / to.back() < kFewestRows) return false;
    int matrices = 0, operators = 0;
    for (const std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<NodeId>(o);
      if (graph_[operand].op != Op::Broadcast) return false;
      Cone cone;
      if (!take(cone, graph_.operand(operand, 0), count(operand), kMostOfRow) || !cone.follows.empty()) return false;
      operators += cone.operators;
      const List was = graph_.shape(graph_.operand(operand, 0));  // the rows [.., 1, k], or the matrix [1, .., n, k]
      const std::size_t rank = was.size();
      const bool is_matrix = was[rank - 2] == to.back() && std::ranges::all_of(was.first(rank - 2), [](std::int64_t e) { return e == 1; });
      if (!is_matrix && was[rank - 2] != 1) return false;
      matrices += is_matrix;
    }
    const std::int64_t products = to.back() * graph_.shape(graph_.operand(id, 0)).back();
    return matrices == 1 && products <= kMostProducts && (operators + 1) * products <= kMostOfRow;
  }
  // True if some of these nodes have loops of their own. Reductions that are written out have none.
  bool follows_loops(const std::vector<NodeId>& follows, const std::vector<bool>& chosen) const {
    return std::ranges::any_of(follows, [&](NodeId at) { return !chosen[at] || by_element_[at] || is_stored_[at] || operators_[at] == 0; });
  }
  bool worth_it(NodeId id, const std::vector<bool>& chosen) {
    const Node node = graph_[id];
    if (!is_reduction(node.op)) return false;
    if (is_contraction(node.op)) return is_small_product(id);
    if (reduces_short_row(id) && short_rows_.at(loop_over_rows(id)) <= kMostOfRow) return true;
    const NodeId operand = graph_.operand(id, 0);
    const List axes = graph_.attributes(id), shape = graph_.shape(operand);
    std::int64_t extent = 1;
    for (const std::int64_t axis : axes) extent *= shape[static_cast<std::size_t>(axis)];
    const std::int64_t elements = count(operand);
    if (extent < 2 || extent > kMostReread) return false;
    const SumOrder order = sum_order(shape, axes, computed_type(node.dtype));
    const bool many = order.count > kMostUnrolled;  // the lanes must be halved, or the order is free
    if (many && (extent <= kMostUnrolled || order.count > kMostReread || !order.lanes)) return false;
    Cone cone;
    if (!take(cone, operand, elements, kMostOfRow) || follows_loops(cone.follows, chosen)) return false;
    for (const NodeId at : cone.follows) cone.operators += operators_[at];
    const std::int64_t operators = (cone.operators + 1) * extent;
    operators_[id] = static_cast<int>(std::min<std::int64_t>(operators, kMostOfRow + 1));
    is_stored_[id] = largest_[id] >= elements && operators > kFewToRepeat;
    reads_windows_[id] = cone.windows;
    if (cone.windows && operators <= kMostOfRow) return true;
    if (operators > kMostOperators || (many && (axes.size() != 1 || cone.largest_read * kPairs > elements))) return false;
    if (axes.size() > 1 && axes.back() + 1 == std::ssize(shape) && shape.back() > 1) return true;  // too short for vectors
    if (largest_in_place_[id] >= elements) return false;
    for (const auto& [inside, times] : cone.uses)
      if (const Op op = graph_[inside].op; op != Op::Constant && op != Op::Slot && op != Op::Iota && uses_[inside] != times) return false;
    return true;
  }

  // Returns element k along the reduced axes, row-major, in the remaining shape.
  NodeId element(Graph& out, NodeId id, std::int64_t k, ListId shape) {
    if (const auto it = made_.find({id, k}); it != made_.end()) return it->second;
    Node node = out[id];
    NodeId result = kNoNode;
    if (node.op == Op::Constant) {
      result = out.constant(node.dtype, shape, node.bits);
    } else if (node.op == Op::Slot) {
      result = out.slot_node(static_cast<std::uint32_t>(node.bits), shape);
    } else if (is_elementwise(node.op) && !is_stored(out, id)) {
      const List from = out.operands(id);
      std::vector<std::int64_t> operands(from.begin(), from.end());
      for (std::int64_t& o : operands) o = element(out, static_cast<NodeId>(o), k, shape);
      node.operands = out.intern(operands);
      node.shape = shape;
      result = out.add(node);
    } else {
      result = out.add(Op::Reshape, node.dtype, shape, {slice(out, id, k)});
    }
    return made_[{id, k}] = result;
  }
  NodeId slice(Graph& out, NodeId id, std::int64_t k) {
    const List from = out.shape(id);
    std::vector<std::int64_t> shape(from.begin(), from.end()), places(2 * shape.size(), 0);
    for (std::size_t a = axes_.size(); a-- > 0; k /= extents_[a]) {
      const auto at = static_cast<std::size_t>(axes_[a]);
      if (shape[at] == 1) continue;
      shape[at] = 1;
      places[at] = k % extents_[a];
    }
    if (std::ranges::equal(shape, from)) return id;
    const Node node = out[id];
    if (turns_ && node.op != Op::Broadcast && varies_along_vectors(from) &&
        std::ranges::count_if(from, [](std::int64_t extent) { return extent > 1; }) > 1)
      return slice_of_turned(out, id, out.intern(shape), row_major(places));
    if (node.op == Op::Broadcast && std::ranges::equal(shape, out.shape(out.operand(id, 0)))) return out.operand(id, 0);
    if (node.op == Op::Broadcast)  // equal values along an axis need only one node
      return out.add(Op::Broadcast, node.dtype, out.intern(shape), {slice(out, out.operand(id, 0), row_major(places))});
    std::fill(places.begin() + static_cast<std::ptrdiff_t>(shape.size()), places.end(), 1);
    return out.add(Op::Slice, node.dtype, out.intern(shape), {id}, places);
  }
  // False for an array that has one element along the vectors that read the sum.
  bool varies_along_vectors(List extents) const {
    return along_ < 0 || static_cast<std::size_t>(along_) >= extents.size() || extents.size() != rank_ ||
           extents[static_cast<std::size_t>(along_)] > 1;
  }
  // Returns element k along the one reduced axis, from an array that is stored with this axis first.
  NodeId slice_of_turned(Graph& out, NodeId id, ListId shape, std::int64_t k) {
    const List from = out.shape(id);
    const DType dtype = out[id].dtype;
    std::vector<std::int64_t> order = {axes_[0]}, turned = {from[static_cast<std::size_t>(axes_[0])]};
    for (std::size_t i = 0; i < from.size(); ++i)
      if (static_cast<std::int64_t>(i) != axes_[0]) order.push_back(static_cast<std::int64_t>(i)), turned.push_back(from[i]);
    std::vector<std::int64_t> one = turned, places(2 * turned.size(), 0);
    one[0] = 1;
    places[0] = k;
    std::fill(places.begin() + static_cast<std::ptrdiff_t>(turned.size()), places.end(), 1);
    const ListId whole = out.intern(turned);
    const NodeId stored = out.add(Op::Identity, dtype, whole, {out.add(Op::Permute, dtype, whole, {id}, order)}, std::vector{kStored});
    return out.add(Op::Reshape, dtype, shape, {out.add(Op::Slice, dtype, out.intern(one), {stored}, places)});
  }
  std::int64_t row_major(const std::vector<std::int64_t>& places) const {
    std::int64_t k = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a) k = k * extents_[a] + places[static_cast<std::size_t>(axes_[a])];
    return k;
  }

  // Returns the rows of the sums of each element of the operand's rows.
  NodeId sums_by_element(Graph& out, const Node& node, NodeId id) {
    const auto operand = static_cast<NodeId>(out.operands(node)[0]);
    const List all = graph_.shape(graph_.operand(id, 0));
    const std::int64_t axis = graph_.attributes(id)[0], last = std::ssize(all) - 1;
    std::vector<std::int64_t> one(all.begin(), all.end() - 1), order = {axis}, boxes, sums;
    for (std::int64_t i = 0; i < last; ++i)
      if (i != axis) order.push_back(i);
    const std::vector<std::int64_t> turned = reduced_first(all, axis);
    std::vector<std::int64_t> result(turned.begin() + 1, turned.end()), row = result;
    const DType type = graph_[graph_.operand(id, 0)].dtype;
    row.push_back(1);
    last_axis_ = {last};
    axes_ = last_axis_;
    extents_ = {all.back()};
    made_.clear();
    turns_ = false;
    for (std::int64_t k = 0; k < all.back(); ++k) {
      NodeId v = element(out, operand, k, out.intern(one));
      if (axis != 0) v = out.add(Op::Permute, type, out.intern(turned), {v}, order);
      const NodeId sum = out.add(node.op, node.dtype, out.intern(result), {v}, std::vector<std::int64_t>{0});
      sums.push_back(out.add(Op::Reshape, node.dtype, out.intern(row), {sum}));
      boxes.resize(boxes.size() + result.size(), 0);
      boxes.push_back(k);
      boxes.resize(boxes.size() + row.size(), 1);
    }
    return out.add(Node{Op::Piecewise, node.dtype, node.shape, out.intern(sums), out.intern(boxes), 0});
  }

  NodeId written_out(Graph& out, const Node& node, NodeId id) {
    if (by_element_[id]) return sums_by_element(out, node, id);
    const NodeId operand = static_cast<NodeId>(out.operands(node)[0]);
    const List shape = graph_.shape(graph_.operand(id, 0));
    axes_ = graph_.attributes(id);
    extents_.clear();
    std::int64_t elements = 1;
    for (const std::int64_t axis : axes_) elements *= extents_.emplace_back(shape[static_cast<std::size_t>(axis)]);
    made_.clear();
    rank_ = shape.size();
    along_ = vector_axis_[id];
    for (const std::int64_t axis : axes_)  // axes of the result are axes of the operand without the reduced ones
      if (along_ >= axis && graph_.shape(id).size() < rank_) ++along_;
    if (is_contraction(node.op)) {  // one block: products are added in sequence
      turns_ = false;
      const auto factor = static_cast<NodeId>(out.operands(node)[1]);
      NodeId sum = kNoNode;
      for (std::int64_t k = 0; k < elements; ++k) {
        const NodeId a = element(out, operand, k, node.shape), b = element(out, factor, k, node.shape);
        if (sum != kNoNode && is_float(node.dtype)) sum = out.add(Op::Fma, node.dtype, node.shape, {a, b, sum});
        else {
          const NodeId product = out.add(Op::Mul, node.dtype, node.shape, {a, b});
          sum = sum == kNoNode ? product : out.add(Op::Add, node.dtype, node.shape, {product, sum});
        }
      }
      return sum;
    }
    const SumOrder order = sum_order(shape, axes_, computed_type(node.dtype));
    turns_ = order.count > kMostUnrolled && !reads_windows_[id];
    std::vector<NodeId> v(kMostReread, kNoNode);  // by position in that order; padding is kNoNode
    for (std::int64_t k = 0; k < elements; ++k) v[static_cast<std::size_t>(order.r_of(k))] = element(out, operand, k, node.shape);
    const auto combined = [&](NodeId a, NodeId b) {
      return a == kNoNode ? b : b == kNoNode ? a : out.add(combiner(node.op), node.dtype, node.shape, {a, b});
    };
    for (std::size_t half = kMostReread / 2; half > 0; half /= 2)  // lanes are halved; rows form a tree
      for (std::size_t i = 0; i < half; ++i) v[i] = order.lanes ? combined(v[i], v[i + half]) : combined(v[2 * i], v[2 * i + 1]);
    return v[0];
  }
};

}  // namespace

std::optional<Graph> unroll(const Graph& graph) { return Unroller(graph).run(); }

bool has_small_product_lengths(const Graph& graph, NodeId id) {
  const List axes = graph.attributes(id), from = graph.shape(graph.operand(id, 0)), to = graph.shape(id);
  if (graph[id].op != Op::ContractRows || axes.size() != 1 || axes[0] + 1 != std::ssize(from) || to.empty()) return false;
  return from.back() >= 2 && from.back() <= kMostUnrolled && to.back() >= 2 && to.back() <= kMostUnrolled;
}

}  // namespace onepass::compiler
