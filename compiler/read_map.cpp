// See read_map.h.
#include "compiler/read_map.h"

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include "compiler/plan/expression.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::NodeId;
using ir::Op;

namespace {

using Axis = ReadMap::Axis;
using Axes = std::vector<Axis>;

std::uint64_t mix_axis(std::uint64_t hash, const Axis& axis) {
  hash = mix(mix(hash, axis.source), static_cast<std::uint64_t>(axis.start));
  return mix(hash, static_cast<std::uint64_t>(axis.step));
}
std::uint64_t hash_of(std::span<const Axis> axes) {
  std::uint64_t hash = axes.size();
  for (const Axis& axis : axes) hash = mix_axis(hash, axis);
  return hash | 1;  // not the hash of the loops themselves
}

Axis index_of(std::int64_t index, std::int64_t extent) { return {0, index, 0, index, index + 1, extent, {}, 0}; }
Axis of_source(std::uint64_t source, std::int64_t extent) { return {source, 0, 1, 0, extent, extent, {}, 0}; }

double volume(const Axes& axes) {
  double n = 1;
  for (const Axis& axis : axes) n *= static_cast<double>(axis.high - axis.low);
  return n;
}

// Returns the axes of the loops themselves. Axes of one element have no loop.
Axes own_axes(List shape) {
  Axes axes;
  std::uint64_t loop = 0;
  for (const std::int64_t extent : shape) axes.push_back(extent == 1 ? index_of(0, 1) : of_source(++loop, extent));
  return axes;
}
Axes axes_of(const Graph& graph, NodeId id, const ReadMap& map) { return map.axes ? *map.axes : own_axes(graph.shape(id)); }

void set_axes(ReadMap& map, Axes axes) {
  std::uint64_t loop = 0;
  bool is_own = true;
  for (Axis& axis : axes) {
    if (axis.extent == 1) {
      axis = index_of(0, 1);
      continue;
    }
    is_own = is_own && axis.source == ++loop && axis.start == 0 && axis.step == 1 && axis.low == 0 && axis.high == axis.extent;
  }
  map.hash = is_own ? 0 : hash_of(axes);
  map.axes = is_own ? nullptr : std::make_shared<const Axes>(std::move(axes));
}

List box_of(const Graph& graph, NodeId id, std::size_t k) {
  const std::size_t rank = graph.shape(id).size();
  return graph.attributes(id).subspan(2 * rank * k, 2 * rank);
}
bool has_box(const Graph& graph, NodeId id, std::size_t k) { return 2 * graph.shape(id).size() * (k + 1) <= graph.attributes(id).size(); }

// Sets the axis of a box's operand: its index j with start + step * j equal to the index along `axis`. Returns false if there is none.
bool enter_box(Axis& axis, std::int64_t start, std::int64_t step, std::int64_t extent) {
  const std::int64_t by = step > 0 ? step : -step;
  const std::int64_t below = step > 0 ? axis.low - start : start - axis.high + 1,
                     above = step > 0 ? axis.high - 1 - start : start - axis.low;
  const std::int64_t low = std::max<std::int64_t>(below > 0 ? (below + by - 1) / by : 0, 0),
                     high = std::min<std::int64_t>(above < 0 ? 0 : above / by + 1, extent);
  if (low >= high) return false;
  if (axis.step % step == 0 && (axis.start - start) % step == 0) {
    axis.start = (axis.start - start) / step;
    axis.step /= step;
  } else {
    axis = of_source(mix(mix(mix_axis(1, axis), static_cast<std::uint64_t>(start)), static_cast<std::uint64_t>(step)), extent);
  }
  if (start != 0 || step != 1 || extent != axis.extent) axis.parts = nullptr;
  axis.low = low, axis.high = high, axis.extent = extent;
  return true;
}

// Returns the axes that a Reshape makes of `from`, whose elements it takes in the same order.
Axes reshaped(std::span<const Axis> from, std::span<const std::int64_t> to) {
  if (from.size() == 1 && to.size() == 1) return {from[0]};
  const std::shared_ptr<const Axes> parts = from[0].parts;
  bool undoes = parts && parts->size() == to.size();
  for (std::size_t i = 0; undoes && i < from.size(); ++i)
    undoes = from[i].parts == parts && from[i].at == i && from[i].start == 0 && from[i].step == 1;
  for (std::size_t i = 0; undoes && i < to.size(); ++i) undoes = (*parts)[i].extent == to[i];
  if (undoes) return *parts;
  const auto all = std::make_shared<const Axes>(from.begin(), from.end());
  const std::uint64_t hash = hash_of(from);
  std::int64_t low = 0, last = 0;  // positions
  for (const Axis& axis : from) low = low * axis.extent + axis.low, last = last * axis.extent + axis.high - 1;
  Axes out;
  std::int64_t inner = 1;
  for (const std::int64_t extent : to.subspan(1)) inner *= extent;
  for (std::size_t i = 0; i < to.size(); ++i) {
    Axis axis = of_source(mix(mix(hash, static_cast<std::uint64_t>(to[i])), i), to[i]);
    if (i == 0) axis.low = low / inner, axis.high = last / inner + 1;
    axis.parts = all;
    axis.at = i;
    out.push_back(axis);
  }
  return out;
}

// Returns the axes of a Reshape's operand. Groups of axes with equal products correspond; axes of one element come and go.
Axes below_reshape(const Axes& axes, List shape, List was) {
  Axes out(was.size(), index_of(0, 1));
  for (std::size_t i = 0, j = 0;;) {
    std::vector<Axis> from;
    std::vector<std::int64_t> to;
    std::vector<std::size_t> places;
    std::int64_t a = 1, b = 1;
    do {
      if (a <= b && i < shape.size()) {
        if (shape[i] != 1) from.push_back(axes[i]);
        a *= shape[i++];
      } else if (j < was.size()) {
        if (was[j] != 1) to.push_back(was[j]), places.push_back(j);
        b *= was[j++];
      } else if (i < shape.size()) {
        a *= shape[i++];  // of one element
      } else {
        return out;
      }
    } while (a != b || from.empty() || to.empty());
    const Axes made = reshaped(from, to);
    for (std::size_t k = 0; k < places.size(); ++k) out[places[k]] = made[k];
  }
}

// Sets the axes of a view's operand.
void enter_view(const Graph& graph, NodeId id, const ReaderFacts& facts, ReadMap& map) {
  const List attributes = graph.attributes(id), shape = graph.shape(id), was = graph.shape(graph.operand(id, 0));
  const Axes axes = axes_of(graph, id, map);
  Axes out(was.size());
  switch (graph[id].op) {
    case Op::Slice:
      for (std::size_t i = 0; i < was.size(); ++i) {
        const std::int64_t start = attributes[i], by = attributes[was.size() + i];
        const std::int64_t a = start + by * axes[i].low, b = start + by * (axes[i].high - 1);
        out[i] = axes[i];
        out[i].start = start + by * axes[i].start, out[i].step *= by;
        out[i].low = std::min(a, b), out[i].high = std::max(a, b) + 1;
        out[i].extent = was[i];
        if (start != 0 || by != 1 || was[i] != shape[i]) out[i].parts = nullptr;
      }
      break;
    case Op::Permute:
      for (std::size_t i = 0; i < was.size(); ++i) out[static_cast<std::size_t>(attributes[i])] = axes[i];
      break;
    case Op::Broadcast:
      for (std::size_t i = 0; i < was.size(); ++i) out[i] = was[i] == shape[i] ? axes[i] : index_of(0, 1);
      if (!facts.is_hoisted) break;
      map.axes = nullptr;  // and the same hash: the value is computed once for all its copies
      return;
    case Op::Reshape:
      if (graph.elements(id) != 0) out = below_reshape(axes, shape, was);
      else out = own_axes(was);
      break;
    default:
      for (std::size_t i = 0; i < was.size(); ++i) out[i] = of_source(mix(mix(hash_of(axes), id), i), was[i]);
  }
  set_axes(map, std::move(out));
}

// Sets the axes of the k-th operand of a Piecewise or Pad. Returns false if the loops read nothing of it.
bool enter_piece(const Graph& graph, NodeId id, std::size_t k, const ReaderFacts& facts, ReadMap& map) {
  const NodeId operand = graph.operand(id, static_cast<int>(k));
  const List was = graph.shape(operand);
  const auto part_of_all = static_cast<double>(graph.elements(operand)) / std::max(1.0, static_cast<double>(graph.elements(id)));
  if (!has_box(graph, id, k) || graph.elements(operand) == 0) {  // the value outside of the boxes
    map.elements *= part_of_all;
    map.axes = nullptr;
    map.hash = mix(map.hash, id);
    return true;
  }
  Axes axes = axes_of(graph, id, map);
  const double before = volume(axes);
  const auto boxes = static_cast<double>(graph.operands(id).size());
  const List box = box_of(graph, id, k);
  for (std::size_t i = 0; i < was.size(); ++i) {
    const std::int64_t part = facts.many_boxes || graph[id].op == Op::Pad ? 0 : parts_of_axis(graph, id, i);
    const bool spans = part != 0 && axes[i].low / part != (axes[i].high - 1) / part;  // reads several of the equal parts
    const Axis whole = axes[i];
    if (!enter_box(axes[i], box[i], box[was.size() + i], was[i])) return false;
    const bool is_together = spans && !facts.reduces && map.copies * boxes <= kFewCopies;  // Planner::in_copies
    if (is_together && part != 1)
      axes[i].source = mix(mix_axis(id, whole), 1), axes[i].start = 0, axes[i].step = 1, axes[i].parts = nullptr;
    if (is_together || (spans && part == 1)) map.copies *= boxes;
  }
  map.elements *= volume(axes) / std::max(1.0, before);
  set_axes(map, std::move(axes));
  if (facts.many_boxes) map.hash = mix(mix(map.hash, id), k);
  return true;
}

}  // namespace

ReadMap own_map(const Graph& graph, NodeId id) { return {.axes = {}, .elements = static_cast<double>(graph.elements(id))}; }

std::optional<ReadMap> map_of_operand(const Graph& graph, NodeId id, std::size_t k, const ReadMap& map, const ReaderFacts& facts) {
  const Op op = graph[id].op;
  const NodeId operand = graph.operand(id, static_cast<int>(k));
  ReadMap below = map;
  if (op == Op::Piecewise || op == Op::Pad) {
    if (!enter_piece(graph, id, k, facts, below)) return {};
    return below;
  }
  if (op == Op::Window) below.most *= static_cast<double>(graph.shape(id)[static_cast<std::size_t>(graph.attributes(id)[0])]);
  if (op == Op::Broadcast && !facts.reduces) {
    const double times = static_cast<double>(graph.elements(id)) / std::max(1.0, static_cast<double>(graph.elements(operand)));
    if (map.copies * times <= kFewCopies) below.copies *= times, below.elements /= times;
  }
  if (ir::is_view(op)) enter_view(graph, id, facts, below);
  else if (!ir::is_elementwise(op)) below.axes = nullptr;
  return below;
}

std::uint32_t edges_inside(const Graph& graph, NodeId id, const ReadMap& map) {
  const Axes axes = axes_of(graph, id, map);
  std::uint32_t edges = 0;
  std::vector<std::int64_t> at;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    at.clear();
    for (std::size_t k = 0; has_box(graph, id, k); ++k) {
      const List box = box_of(graph, id, k), shape = graph.shape(graph.operand(id, static_cast<int>(k)));
      const std::int64_t last = box[i] + (shape[i] - 1) * box[axes.size() + i];
      for (const std::int64_t edge : {std::min(box[i], last), std::max(box[i], last) + 1})
        if (edge > axes[i].low && edge < axes[i].high) at.push_back(edge);
    }
    std::ranges::sort(at);
    edges += static_cast<std::uint32_t>(std::ranges::unique(at).begin() - at.begin());
  }
  return edges;
}

void unite(std::vector<ReadMap>& maps) {
  std::ranges::sort(maps, [](const ReadMap& a, const ReadMap& b) { return a.hash != b.hash ? a.hash < b.hash : a.elements > b.elements; });
  const auto rest = std::ranges::unique(maps, {}, &ReadMap::hash);
  maps.erase(rest.begin(), rest.end());
}

std::int64_t parts_of_axis(const Graph& graph, NodeId id, std::size_t axis) {
  if (graph[id].op != Op::Piecewise) return 0;
  const List shape = graph.shape(id), operands = graph.operands(id);
  const std::size_t rank = shape.size();
  if (operands.empty() || graph.attributes(id).size() != 2 * rank * operands.size()) return 0;
  const std::int64_t part = graph.shape(static_cast<NodeId>(operands[0]))[axis];
  if (part == 0 || part == shape[axis] || part * std::ssize(operands) != shape[axis]) return 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const List box = box_of(graph, id, k), mine = graph.shape(static_cast<NodeId>(operands[k]));
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t extent = i == axis ? part : shape[i], start = i == axis ? part * static_cast<std::int64_t>(k) : 0;
      if (mine[i] != extent || box[i] != start || box[rank + i] != 1) return 0;
    }
  }
  return part;
}

}  // namespace onepass::compiler
