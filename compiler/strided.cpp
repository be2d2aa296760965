// See strided.h.
#include "compiler/strided.h"

#include <algorithm>

namespace onepass::compiler {

using namespace ir;

namespace {

// Reshapes without moving elements. Each group of axes has as many elements before as after. Returns false if axes of a group are apart in
// memory.
bool reshape(List from, List to, std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> extents, old, made(to.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 0) {
      strides = std::move(made);
      return true;
    }
    if (from[i] != 1) extents.push_back(from[i]), old.push_back(strides[i]);
  }
  std::size_t o = 0, n = 0;
  while (o < extents.size()) {
    while (to[n] == 1) ++n;
    std::size_t old_end = o + 1, new_end = n + 1;
    for (std::int64_t before = extents[o], after = to[n]; before != after;) {
      if (after < before) after *= to[new_end++];
      else before *= extents[old_end++];
    }
    for (std::size_t i = o; i + 1 < old_end; ++i)
      if (old[i] != old[i + 1] * extents[i + 1]) return false;
    std::int64_t stride = old[old_end - 1];
    for (std::size_t i = new_end; i-- > n; stride *= to[i]) made[i] = stride;
    o = old_end, n = new_end;
  }
  strides = std::move(made);
  return true;
}

}  // namespace

NodeId base_of_views(const Graph& graph, NodeId id) {
  while (is_view(graph[id].op)) id = graph.operand(id, 0);
  return id;
}

std::vector<std::int64_t> contiguous_strides(List shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Steps of a slice stay below an axis's extent. So no slice makes an outer stride equal to an inner stride times its extent.
std::optional<std::vector<std::int64_t>> any_strides(List shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    if (__builtin_mul_overflow(strides[i], 2 * shape[i] + 1, &strides[i - 1]) || strides[i - 1] > std::int64_t{1} << 40) return {};
  return strides;
}

std::optional<Strided> as_strided(const Graph& graph, NodeId id, std::vector<std::int64_t> strides) {
  std::vector<NodeId> views;
  for (; is_view(graph[id].op); id = graph.operand(id, 0)) views.push_back(id);
  Strided out{id, 0, std::move(strides)};
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    const List from = graph.shape(graph.operand(*view, 0)), to = graph.shape(*view), attributes = graph.attributes(*view);
    std::vector<std::int64_t>& s = out.strides;
    switch (graph[*view].op) {
      case Op::Reshape:
        if (!reshape(from, to, s)) return {};
        break;
      case Op::Permute: {
        std::vector<std::int64_t> permuted;
        for (const std::int64_t axis : attributes) permuted.push_back(s[static_cast<std::size_t>(axis)]);
        s = std::move(permuted);
        break;
      }
      case Op::Broadcast:
        for (std::size_t i = 0; i < to.size(); ++i)
          if (from[i] != to[i]) s[i] = 0;
        break;
      case Op::Slice:
        for (std::size_t i = 0; i < to.size(); ++i) {
          out.offset += attributes[i] * s[i];
          s[i] = to[i] == 1 ? 0 : s[i] * attributes[to.size() + i];
        }
        break;
      default: return {};
    }
  }
  return out;
}

}  // namespace onepass::compiler
