// Recording of contractions: matmul, dot, outer, einsum. Each operator assigns indices to its operands' axes; compiler/contract.h makes the
// nodes.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "compiler/contract.h"
#include "compiler/einsum_order.h"
#include "compiler/record.h"

namespace onepass::compiler {
namespace {

// Broadcast axes have the indices kFirstBroadcast + position from the end.
constexpr int kFirstBroadcast = 1 << 10;

std::vector<Indexed> with_batches(const std::string_view name, Recorder& r, const Value& a, const Value& b, std::size_t a_own,
                                  std::size_t b_own) {
  std::vector<Indexed> out = {{a.node, {}}, {b.node, {}}};
  const auto a_shape = r.shape(a), b_shape = r.shape(b);
  const std::size_t a_count = a_shape.size() - a_own, b_count = b_shape.size() - b_own;
  const auto extent = [](std::span<const std::int64_t> shape, std::size_t count, std::size_t from_end) {
    return from_end <= count ? shape[count - from_end] : 1;
  };
  for (std::size_t k = 1; k <= std::max(a_count, b_count); ++k) {
    const std::int64_t x = extent(a_shape, a_count, k), y = extent(b_shape, b_count, k);
    if (x != y && x != 1 && y != 1)
      throw ShapeError(
          fmt::format("{}: the leading dimensions of {} and {} do not broadcast: {} and {}. Make these sizes equal or one of them 1", name,
                      r.describe(a), r.describe(b), x, y));
  }
  const auto index_batches = [&](Indexed& mine, std::span<const std::int64_t> shape, std::size_t count, std::span<const std::int64_t> other,
                                 std::size_t other_count) {
    for (std::size_t k = count; k > 0; --k)  // an extent of 1 that is broadcast has no index
      mine.indices.push_back(shape[count - k] == 1 && extent(other, other_count, k) != 1 ? kNoIndex
                                                                                         : kFirstBroadcast + static_cast<int>(k));
  };
  index_batches(out[0], a_shape, a_count, b_shape, b_count);
  index_batches(out[1], b_shape, b_count, a_shape, a_count);
  return out;
}

// Returns the indices of leading dimensions, in order.
std::vector<int> batches_of(const std::vector<Indexed>& operands) {
  std::vector<int> out;
  for (const Indexed& x : operands)
    for (const int index : x.indices)
      if (index > kFirstBroadcast) out.push_back(index);
  std::sort(out.rbegin(), out.rend());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

// Returns the operands as nodes of their common type. Literals take the type of the tensors.
std::vector<Value> Recorder::contractable(std::string_view name, std::span<const Value> xs) {
  std::vector<Value> out = of_one_type(name, xs);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (dtype(out[i]) == DType::Bool)
      throw DTypeError(fmt::format("{}: arithmetic on bool ({}) is not defined. Cast it to a number", name, describe(xs[i])));
  return out;
}

Value Recorder::contracted(std::string_view name, const Indexed& a, const Indexed& b, std::span<const int> result) {
  check_shape(name, index_space(graph, a, b, result), limits);
  return make(contract(graph, a, b, result));
}

Value Recorder::matmul(Value a, Value b) {
  const Value both[2] = {a, b};
  for (const Value& x : both)
    if (shape(x).empty()) throw ShapeError(fmt::format("matmul: {} is a scalar. Multiply with *", describe(x)));
  const std::vector<Value> x = contractable("matmul", both);
  const auto a_shape = shape(x[0]), b_shape = shape(x[1]);
  const std::size_t a_own = std::min<std::size_t>(a_shape.size(), 2), b_own = std::min<std::size_t>(b_shape.size(), 2);
  const std::int64_t inner = a_shape.back(), rows = b_shape[b_shape.size() - b_own];
  if (inner != rows)
    throw ShapeError(
        fmt::format("matmul: {} and {} do not match: the last dimension of the left operand is {}, but the {} of the right operand is {}. "
                    "Make them equal",
                    describe(a), describe(b), inner, b_own == 2 ? "second to last" : "only one", rows));
  enum : int { kI, kK, kJ };
  std::vector<Indexed> operands = with_batches("matmul", *this, x[0], x[1], a_own, b_own);
  std::vector<int> result = batches_of(operands);
  if (a_own == 2) operands[0].indices.push_back(kI), result.push_back(kI);
  operands[0].indices.push_back(kK);
  operands[1].indices.push_back(kK);
  if (b_own == 2) operands[1].indices.push_back(kJ), result.push_back(kJ);
  return contracted("matmul", operands[0], operands[1], result);
}

Value Recorder::dot(Value a, Value b) {
  const Value both[2] = {a, b};
  const std::vector<Value> x = contractable("dot", both);
  const auto a_rank = static_cast<int>(shape(x[0]).size()), b_rank = static_cast<int>(shape(x[1]).size());
  Indexed left{x[0].node, {}}, right{x[1].node, {}};
  for (int i = 0; i < a_rank; ++i) left.indices.push_back(i);
  for (int i = 0; i < b_rank; ++i) right.indices.push_back(a_rank + i);
  std::vector<int> result;
  if (a_rank == 0 || b_rank == 0) {
    for (const Indexed* operand : {&left, &right}) result.insert(result.end(), operand->indices.begin(), operand->indices.end());
    return contracted("dot", left, right, result);
  }
  const int at = std::max(b_rank - 2, 0);
  const std::int64_t inner = shape(x[0]).back(), rows = shape(x[1])[static_cast<std::size_t>(at)];
  if (inner != rows)
    throw ShapeError(fmt::format(
        "dot: {} and {} do not match: the last dimension of the left operand is {}, but the {} of the right operand is {}. Make them equal",
        describe(a), describe(b), inner, b_rank > 1 ? "second to last" : "only one", rows));
  const int contracted_index = left.indices.back();
  right.indices[static_cast<std::size_t>(at)] = contracted_index;
  result.assign(left.indices.begin(), left.indices.end() - 1);
  for (const int index : right.indices)
    if (index != contracted_index) result.push_back(index);
  return contracted("dot", left, right, result);
}

Value Recorder::outer(Value a, Value b) {
  const Value both[2] = {a, b};
  const std::vector<Value> x = contractable("outer", both);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (shape(x[i]).size() != 1)
      throw ShapeError(fmt::format("outer: {} has rank {}; both operands must be vectors of rank 1. Write reshape(…, [-1])",
                                   describe(both[i]), shape(x[i]).size()));
  const int result[2] = {0, 1};
  return contracted("outer", {x[0].node, {0}}, {x[1].node, {1}}, result);
}

namespace {

// "ij,jk->ik": the indices of each operand and of the result. Letters are their character codes; `...` is kEllipsis.
struct Equation {
  static constexpr int kEllipsis = 0;
  std::vector<std::vector<int>> operands;
  std::vector<int> result;
  bool implicit = false;
};

std::vector<int> parse_indices(std::string_view equation, std::string_view text) {
  std::vector<int> out;
  bool ellipsis = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      out.push_back(c);
    } else if (text.substr(i, 3) == "...") {
      if (ellipsis) throw ValueError(fmt::format("einsum: `...` occurs twice in one term of \"{}\"", equation));
      ellipsis = true;
      out.push_back(Equation::kEllipsis);
      i += 2;
    } else {
      throw ValueError(fmt::format("einsum: `{}` in \"{}\" is not an index; an index must be one letter, or `...` for any number of axes",
                                   static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f ? std::string(1, c) : "?",
                                   equation));
    }
  }
  return out;
}

Equation parse_equation(std::string_view text) {
  Equation out;
  const std::size_t arrow = text.find("->");
  out.implicit = arrow == std::string_view::npos;
  std::string_view rest = text.substr(0, arrow);
  while (true) {
    const std::size_t comma = rest.find(',');
    out.operands.push_back(parse_indices(text, rest.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (!out.implicit) out.result = parse_indices(text, text.substr(arrow + 2));
  for (std::size_t i = 0; i < out.result.size(); ++i) {
    const int index = out.result[i];
    if (std::find(out.result.begin(), out.result.begin() + static_cast<std::ptrdiff_t>(i), index) !=
        out.result.begin() + static_cast<std::ptrdiff_t>(i))
      throw ValueError(fmt::format("einsum: index {} occurs twice in the result of \"{}\"", static_cast<char>(index), text));
    const bool known = std::ranges::any_of(out.operands, [&](const auto& o) { return std::ranges::find(o, index) != o.end(); });
    if (!known && index != Equation::kEllipsis)
      throw ValueError(
          fmt::format("einsum: index {} of the result of \"{}\" does not occur in any operand", static_cast<char>(index), text));
  }
  return out;
}

}  // namespace

Value Recorder::einsum(std::string_view text, std::span<const Value> xs) {
  const Equation equation = parse_equation(text);
  if (equation.operands.size() != xs.size())
    throw ValueError(fmt::format("einsum: \"{}\" names {} operand{}, but {} given", text, equation.operands.size(),
                                 equation.operands.size() == 1 ? "" : "s", xs.size() == 1 ? "1 is" : fmt::format("{} are", xs.size())));
  const std::vector<Value> values = xs.size() == 1 ? of_one_type("einsum", xs) : contractable("einsum", xs);

  // ---- the extent of each index: an operand of extent 1 is broadcast if another operand has a larger extent
  std::map<int, std::pair<std::int64_t, std::size_t>> extents;  // extent, and the operand that has it
  std::vector<std::vector<int>> indices(xs.size());
  int broadcast_axes = 0;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const std::vector<int>& names = equation.operands[k];
    const auto from = shape(values[k]);
    const bool ellipsis = std::ranges::find(names, Equation::kEllipsis) != names.end();
    const std::size_t letters = names.size() - ellipsis;
    if (from.size() < letters || (from.size() > letters && !ellipsis))
      throw ShapeError(fmt::format("einsum: operand {} of \"{}\" has {} {}{}, but the rank of {} is {}", k + 1, text, letters,
                                   letters == 1 ? "index" : "indices", ellipsis ? " or more" : "", describe(xs[k]), from.size()));
    const auto rest = static_cast<int>(from.size() - letters);
    broadcast_axes = std::max(broadcast_axes, rest);
    for (const int name : names) {
      if (name != Equation::kEllipsis) indices[k].push_back(name);
      for (int i = rest; name == Equation::kEllipsis && i > 0; --i) indices[k].push_back(kFirstBroadcast + i);
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      const int index = indices[k][i];
      const auto [it, fresh] = extents.try_emplace(index, from[i], k);
      auto& [extent, owner] = it->second;
      const bool diagonal = std::ranges::find(indices[k], index) - indices[k].begin() < static_cast<std::ptrdiff_t>(i);
      const std::string what = index > kFirstBroadcast ? "an axis of `...`" : fmt::format("index {}", static_cast<char>(index));
      if (diagonal) {  // a diagonal's axes must be equal, whatever the extents of the other operands are
        const std::int64_t first = from[static_cast<std::size_t>(std::ranges::find(indices[k], index) - indices[k].begin())];
        if (first != from[i])
          throw ShapeError(fmt::format("einsum: {} of \"{}\" is {} and {} in {}; the axes of a diagonal must have equal lengths", what,
                                       text, first, from[i], describe(xs[k])));
        continue;
      }
      if (extent == 1) extent = from[i], owner = k;
      if (extent != from[i] && from[i] != 1)
        throw ShapeError(fmt::format("einsum: {} of \"{}\" is {} in {} and {} in {}. Make them equal, or one of them 1", what, text, extent,
                                     describe(xs[owner]), from[i], describe(xs[k])));
    }
  }

  // ---- operands: the diagonal if an index occurs twice, and no index along a broadcast axis
  std::vector<Indexed> operands;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    Value x = values[k];
    std::vector<int>& mine = indices[k];
    for (std::size_t i = 0; i < mine.size();) {
      const auto again = std::find(mine.begin() + static_cast<std::ptrdiff_t>(i) + 1, mine.end(), mine[i]);
      if (again == mine.end()) {
        ++i;
        continue;
      }
      const int index = mine[i];
      x = diagonal(x, 0, static_cast<std::int64_t>(i), again - mine.begin());
      mine.erase(again);
      mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(i));
      mine.push_back(index);
    }
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (shape(x)[i] != extents.at(mine[i]).first) mine[i] = kNoIndex;
    operands.push_back({x.node, mine});
  }

  // ---- the result's indices
  std::vector<int> result;
  const auto add_broadcast = [&] {
    for (int i = broadcast_axes; i > 0; --i) result.push_back(kFirstBroadcast + i);
  };
  if (equation.implicit) {
    add_broadcast();
    for (const auto& [index, extent] : extents) {  // in alphabetical order of the letters
      std::ptrdiff_t times = 0;
      for (const auto& names : equation.operands) times += std::ranges::count(names, index);
      if (times == 1) result.push_back(index);
    }
  } else {
    for (const int name : equation.result) {  // omitted indices are summed, `...` too
      if (name == Equation::kEllipsis) add_broadcast();
      else result.push_back(name);
    }
  }

  // ---- pairs
  const auto has = [](const std::vector<int>& list, int index) { return std::ranges::find(list, index) != list.end(); };
  if (operands.size() == 1) {
    const Indexed& x = operands[0];
    if (result.size() == x.indices.size()) {
      std::vector<std::int64_t> axes;
      for (const int index : result) axes.push_back(std::ranges::find(x.indices, index) - x.indices.begin());
      return axes.empty() ? make(x.node) : transpose(make(x.node), axes);
    }
    static_cast<void>(contractable("einsum", xs));  // refuses bool
    const DType type = graph[x.node].dtype;
    return contracted("einsum", x, {graph.constant(type, graph.intern({}), ir::bits_of(type, 1.0)), {}}, result);
  }
  const std::size_t n = operands.size();
  PairOrder order = pairs_from_the_left(n);
  if (regroups && n > 2) {
    std::vector<std::vector<int>> names;
    for (const Indexed& x : operands) names.push_back(x.indices);
    std::map<int, std::int64_t> lengths;
    for (const auto& [index, extent] : extents) lengths.emplace(index, extent.first);
    order = cheapest_pairs(names, result, lengths);
  }
  std::vector<bool> used(n);
  for (const auto& [first, second] : order) {
    used[first] = used[second] = true;
    const bool last = operands.size() + 2 == 2 * n;
    std::vector<int> kept;
    if (last) kept = result;
    for (const std::size_t at : {first, second})
      for (const int index : operands[at].indices) {
        if (last || index == kNoIndex || has(kept, index)) continue;
        bool wanted = has(result, index);
        for (std::size_t k = 0; k < operands.size(); ++k) wanted = wanted || (!used[k] && has(operands[k].indices, index));
        if (wanted) kept.push_back(index);
      }
    const Indexed product{contracted("einsum", operands[first], operands[second], kept).node, kept};
    operands.push_back(product);
    used.push_back(false);
  }
  return make(operands.back().node);
}

}  // namespace onepass::compiler
