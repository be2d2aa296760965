// lists: see lists.h.
//
//   %s = piecewise of 256 boxes [1, 32, 128], each a reshape of an argument [32, 128]      read: axis 0, the arguments
//   %d = ... [256, 32, 128]; the results are reshapes of %d[0:1], %d[1:2], ...             stored: axis 0, the results
//
// Members have one type, one shape (except for axes of extent 1) and one layout. Left out on purpose: computed members, because their
// lifetimes in memory would have to overlap, and values indexed by data. Also left out: half-precision results that other kernels read,
// because such kernels read them unrounded.
#include "compiler/lists.h"

#include <algorithm>
#include <utility>

namespace onepass::compiler {

using namespace ir;

namespace {

class Finder {
 public:
  Finder(const Graph& graph, std::span<const Layout> layouts) : graph_(graph), layouts_(layouts) {}

  Lists run() {
    mark_indexed();
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (graph_[id].op == Op::Piecewise && !indexed_[id]) find_read(id);
    find_stored();
    return std::move(lists_);
  }

 private:
  const Graph& graph_;
  std::span<const Layout> layouts_;
  Lists lists_;
  std::vector<bool> indexed_;  // indexed by data

  void mark_indexed() {
    indexed_.assign(graph_.size(), false);
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (graph_[id].op == Op::Gather) indexed_[graph_.operand(id, 0)] = true;
      if (is_routine(graph_[id].op))
        for (const std::int64_t o : graph_.operands(id)) indexed_[static_cast<std::size_t>(o)] = true;
      if (indexed_[id] && is_view(graph_[id].op)) indexed_[graph_.operand(id, 0)] = true;
    }
  }

  // Returns the only axis along which a box or a slice selects one index of several; nullopt if it selects anything else.
  static std::optional<std::size_t> place_axis(List whole, List part, List start_and_step) {
    std::optional<std::size_t> axis;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (part[i] == whole[i] && start_and_step[i] == 0 && (start_and_step[whole.size() + i] == 1 || whole[i] == 1)) continue;
      if (part[i] != 1 || axis) return {};
      axis = i;
    }
    return axis;
  }

  // Returns a member's strides by the axes of the array list; nullopt if they differ in more than axes of extent 1.
  std::optional<std::vector<std::int64_t>> strides_of(NodeId member, List list, std::size_t axis) const {
    const List shape = graph_.shape(member);
    const Layout& layout = layouts_[member];
    std::vector<std::int64_t> out(list.size(), 0);
    std::size_t k = shape.size();
    std::int64_t stride = 1;
    for (std::size_t i = list.size(); i-- > 0;) {
      if (i == axis || list[i] == 1) continue;
      while (k > 0 && shape[k - 1] == 1) --k;
      if (k == 0 || shape[k - 1] != list[i]) return {};
      --k;
      out[i] = layout ? (*layout)[k] : stride;
      stride *= shape[k];
    }
    while (k > 0 && shape[k - 1] == 1) --k;
    if (k != 0) return {};
    return out;
  }

  // Adds a member at its index. Returns false if it does not match the first member.
  bool put(ArrayList& list, NodeId id, NodeId member, std::size_t axis, std::int64_t place) {
    if (place < 0 || place >= static_cast<std::int64_t>(list.members.size()) || list.members[static_cast<std::size_t>(place)] != kNoNode)
      return false;
    const bool is_number = graph_[member].op == Op::Slot;
    std::vector<std::int64_t> strides(graph_.shape(id).size(), 0);
    if (!is_number) {
      std::optional<std::vector<std::int64_t>> of_array = strides_of(member, graph_.shape(id), axis);
      if (!of_array) return false;
      strides = std::move(*of_array);
    }
    if (std::ranges::all_of(list.members, [](NodeId m) { return m == kNoNode; })) {
      list.axis = axis;
      list.numbers = is_number;
      list.strides = std::move(strides);
    } else if (list.axis != axis || list.numbers != is_number || list.strides != strides) {
      return false;
    }
    list.members[static_cast<std::size_t>(place)] = member;
    return true;
  }

  void find_read(NodeId id) {
    const List shape = graph_.shape(id), operands = graph_.operands(id), attributes = graph_.attributes(id);
    const std::size_t rank = shape.size();
    if (operands.size() < kFewestMembers || attributes.size() != 2 * rank * operands.size()) return;
    ArrayList list;
    list.members.assign(operands.size(), kNoNode);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      NodeId member = static_cast<NodeId>(operands[k]);
      const List box = attributes.subspan(2 * rank * k, 2 * rank);
      const std::optional<std::size_t> axis = place_axis(shape, graph_.shape(member), box);
      if (!axis || shape[*axis] != static_cast<std::int64_t>(operands.size())) return;
      while (graph_[member].op == Op::Reshape) member = graph_.operand(member, 0);
      const Op op = graph_[member].op;
      if (op != Op::Slot && (op != Op::Input || graph_.elements(member) < kSmallestMember)) return;
      if (!put(list, id, member, *axis, box[*axis])) return;
    }
    lists_.read.emplace(id, std::move(list));
  }

  void find_stored() {
    std::unordered_map<NodeId, ArrayList> found;
    std::unordered_map<NodeId, int> times;
    for (const NodeId output : graph_.outputs) ++times[output];
    for (const NodeId output : graph_.outputs) {
      NodeId slice = output;
      while (graph_[slice].op == Op::Reshape) slice = graph_.operand(slice, 0);
      if (graph_[slice].op != Op::Slice || graph_.elements(output) < kSmallestMember) continue;
      const NodeId id = graph_.operand(slice, 0);
      if (graph_[id].op == Op::ScatterAdd || is_routine(graph_[id].op) || graph_[id].op == Op::Input || is_half(graph_[id].dtype) ||
          times.contains(id) || lists_.read.contains(id))
        continue;
      const std::optional<std::size_t> axis = place_axis(graph_.shape(id), graph_.shape(slice), graph_.attributes(slice));
      ArrayList& list = found[id];
      // An axis longer than the number of results cannot consist only of results. This check also bounds the allocation.
      const bool fits = axis && graph_.shape(id)[*axis] <= static_cast<std::int64_t>(graph_.outputs.size());
      if (list.members.empty() && fits) list.members.assign(static_cast<std::size_t>(graph_.shape(id)[*axis]), kNoNode);
      if (!fits || times[output] != 1 || !put(list, id, output, *axis, graph_.attributes(slice)[*axis])) list.members.assign(1, kNoNode);
    }
    for (auto& [id, list] : found)
      if (list.members.size() >= kFewestMembers && std::ranges::find(list.members, kNoNode) == list.members.end())
        lists_.stored.emplace(id, std::move(list));
  }
};

}  // namespace

std::vector<NodeId> Lists::wanted(const Graph& graph) const {
  std::vector<bool> is_member(graph.size(), false);
  std::vector<NodeId> out;
  for (const auto& [id, list] : stored) {
    out.push_back(id);
    for (const NodeId member : list.members) is_member[member] = true;
  }
  for (const NodeId id : graph.outputs)
    if (!is_member[id] && !assembles(id)) out.push_back(id);
  for (const auto& [id, places] : placed_in)
    if (!is_member[id]) is_member[id] = true, out.push_back(id);
  std::ranges::sort(out);
  return out;
}

namespace {

/// Returns the node at each element of an array, by offset; empty if the array is not assembled.
///
/// One kernel for each box would repeat the work that all boxes share. For the gradient of a series that a
/// loop of the host reads number by number, the shared work is the whole recurrence.
std::vector<std::pair<std::int64_t, NodeId>> elements_of(const Graph& graph, NodeId id, const Layout& layout) {
  const List shape = graph.shape(id), operands = graph.operands(id), attributes = graph.attributes(id);
  const std::size_t rank = shape.size();
  std::vector<std::pair<std::int64_t, NodeId>> out;
  if (rank == 0 || is_half(graph[id].dtype)) return out;
  const std::size_t boxes = attributes.size() / (2 * rank);
  const std::int64_t elements = graph.elements(id);
  if (boxes < kFewestMembers || elements > 2 * static_cast<std::int64_t>(boxes)) return out;
  std::vector<std::int64_t> strides(rank, 1);
  for (std::size_t i = rank - 1; i-- > 0;) strides[i] = strides[i + 1] * shape[i + 1];
  std::vector<NodeId> at(static_cast<std::size_t>(elements), kNoNode);
  bool computes = false;
  for (std::size_t k = 0; k < boxes; ++k) {
    const auto operand = static_cast<NodeId>(operands[k]);
    NodeId base = operand;
    while (is_view(graph[base].op)) base = graph.operand(base, 0);
    if (graph.elements(operand) != 1 || graph[operand].op == Op::Input || graph[base].op == Op::ScatterAdd || is_routine(graph[base].op))
      return out;
    computes = computes || !is_source(graph[base].op);
    std::int64_t place = 0;
    for (std::size_t i = 0; i < rank; ++i) place += attributes[2 * rank * k + i] * strides[i];
    at[static_cast<std::size_t>(place)] = operand;
  }
  if (!computes) return out;
  const NodeId elsewhere = operands.size() > boxes ? static_cast<NodeId>(operands[boxes]) : kNoNode;
  if (elsewhere != kNoNode && graph[elsewhere].op == Op::Input) return out;
  for (std::int64_t e = 0; e < elements; ++e) {
    const NodeId here = at[static_cast<std::size_t>(e)] == kNoNode ? elsewhere : at[static_cast<std::size_t>(e)];
    if (here == kNoNode) return {};
    std::int64_t offset = e;
    if (layout) {
      offset = 0;
      for (std::size_t i = 0; i < rank; ++i) offset += e / strides[i] % shape[i] * (*layout)[i];
    }
    out.emplace_back(offset, here);
  }
  return out;
}

}  // namespace

void find_assembled(const Graph& graph, std::span<const Layout> layouts, Lists& lists) {
  std::unordered_map<NodeId, int> times;
  for (const NodeId output : graph.outputs) ++times[output];
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op != Op::Piecewise || lists.reads(id) || lists.stores(id)) continue;
    if (const auto it = times.find(id); it != times.end() && it->second > 1) continue;
    const std::vector<std::pair<std::int64_t, NodeId>> elements = elements_of(graph, id, layouts[id]);
    if (elements.empty()) continue;
    std::vector<NodeId>& parts = lists.assembled[id];
    for (const auto& [offset, part] : elements) {
      parts.push_back(part);
      lists.placed_in[part].push_back({id, offset});
    }
    std::ranges::sort(parts);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  }
}

Lists find_lists(const Graph& graph, std::span<const Layout> layouts) { return Finder(graph, layouts).run(); }

}  // namespace onepass::compiler
