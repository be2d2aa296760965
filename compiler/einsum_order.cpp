#include "compiler/einsum_order.h"

#include <bit>
#include <limits>

namespace onepass::compiler {
namespace {

constexpr std::size_t kMostExact = 10;  // 3^10 splits are 59,049

// The operands' indices as bit sets, so that the indices of a set of operands are a union.
class Space {
 public:
  Space(std::span<const std::vector<int>> operands, const std::vector<int>& result, const std::map<int, std::int64_t>& extents) {
    std::map<int, std::size_t> bit_of;
    for (const auto& [index, extent] : extents) {
      bit_of.emplace(index, extents_.size());
      extents_.push_back(static_cast<double>(extent));
    }
    const auto bits_of = [&](const std::vector<int>& list) {
      std::vector<bool> bits(extents_.size());
      for (const int index : list)
        if (const auto it = bit_of.find(index); it != bit_of.end()) bits[it->second] = true;
      return bits;
    };
    for (const std::vector<int>& operand : operands) operands_.push_back(bits_of(operand));
    result_ = bits_of(result);
  }

  std::size_t operands() const { return operands_.size(); }

  /// Returns the indices that the product of some operands must keep: indices that the result or another operand has.
  std::vector<bool> kept(const std::vector<bool>& among) const {
    std::vector<bool> mine(extents_.size()), others = result_;
    for (std::size_t k = 0; k < operands_.size(); ++k)
      for (std::size_t i = 0; i < extents_.size(); ++i)
        if (operands_[k][i]) (among[k] ? mine : others)[i] = true;
    for (std::size_t i = 0; i < extents_.size(); ++i) mine[i] = mine[i] && others[i];
    return mine;
  }
  /// Returns the number of elements of a value with these indices.
  double size(const std::vector<bool>& indices) const {
    double product = 1;
    for (std::size_t i = 0; i < extents_.size(); ++i)
      if (indices[i]) product *= extents_[i];
    return product;
  }
  /// Returns the number of multiplications of one contraction: one for each point in the space of both values' indices.
  double cost(std::vector<bool> a, const std::vector<bool>& b) const {
    for (std::size_t i = 0; i < extents_.size(); ++i) a[i] = a[i] || b[i];
    return size(a);
  }

 private:
  std::vector<double> extents_;
  std::vector<std::vector<bool>> operands_;
  std::vector<bool> result_;
};

std::vector<bool> members(std::size_t set, std::size_t n) {
  std::vector<bool> out(n);
  for (std::size_t k = 0; k < n; ++k) out[k] = set >> k & 1;
  return out;
}

struct Part {
  std::size_t value;
  std::vector<bool> operands;
};

std::vector<bool> united(std::vector<bool> a, const std::vector<bool>& b) {
  for (std::size_t k = 0; k < a.size(); ++k) a[k] = a[k] || b[k];
  return a;
}

// Emits the pairs that compute `set`; returns the number of the resulting value.
std::size_t emit(std::size_t set, const std::vector<std::size_t>& left_of, std::size_t n, PairOrder& order) {
  if ((set & (set - 1)) == 0) return static_cast<std::size_t>(std::countr_zero(set));
  const std::size_t left = emit(left_of[set], left_of, n, order), right = emit(set ^ left_of[set], left_of, n, order);
  order.emplace_back(left, right);
  return n + order.size() - 1;
}

PairOrder exact(const Space& space) {
  const std::size_t n = space.operands(), all = (std::size_t{1} << n) - 1;
  std::vector<double> best(all + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> left_of(all + 1);
  std::vector<std::vector<bool>> kept(all + 1);
  for (std::size_t set = 1; set <= all; ++set) {
    kept[set] = space.kept(members(set, n));
    if ((set & (set - 1)) == 0) {
      best[set] = 0;
      continue;
    }
    const std::size_t first = set & -set;  // always in the left part, so that each split is visited once
    for (std::size_t left = (set - 1) & set; left != 0; left = (left - 1) & set) {  // largest first: ties go to pairs from the left
      if (!(left & first)) continue;
      const double cost = best[left] + best[set ^ left] + space.cost(kept[left], kept[set ^ left]);
      if (cost < best[set]) best[set] = cost, left_of[set] = left;
    }
  }
  PairOrder order;
  emit(all, left_of, n, order);
  return order;
}

// Joins the parts in the order of `pick`, which selects two of the remaining parts. Returns the pairs and their total cost.
template <class Pick> std::pair<PairOrder, double> join(const Space& space, Pick&& pick) {
  const std::size_t n = space.operands();
  std::vector<Part> parts;
  for (std::size_t k = 0; k < n; ++k) {
    parts.push_back({k, std::vector<bool>(n)});
    parts.back().operands[k] = true;
  }
  PairOrder order;
  double cost = 0;
  while (parts.size() > 1) {
    const auto [a, b] = pick(parts);
    order.emplace_back(parts[a].value, parts[b].value);
    cost += space.cost(space.kept(parts[a].operands), space.kept(parts[b].operands));
    parts[a] = {n + order.size() - 1, united(parts[a].operands, parts[b].operands)};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(b));
  }
  return {order, cost};
}

// Picks at each step the pair with the smallest product relative to its operands (Smith and Gray 2018, doi:10.21105/joss.00753). Returns
// pairs from the left if these cost less in total.
PairOrder greedy(const Space& space) {
  const auto smallest = [&](const std::vector<Part>& parts) {
    std::pair<std::size_t, std::size_t> chosen{0, 1};
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (std::size_t j = i + 1; j < parts.size(); ++j) {
        const double grows = space.size(space.kept(united(parts[i].operands, parts[j].operands))) -
                             space.size(space.kept(parts[i].operands)) - space.size(space.kept(parts[j].operands));
        if (grows < best) best = grows, chosen = {i, j};
      }
    return chosen;
  };
  const auto [order, cost] = join(space, smallest);
  const auto [left, cost_of_left] = join(space, [](const std::vector<Part>&) { return std::pair<std::size_t, std::size_t>{0, 1}; });
  return cost < cost_of_left ? order : left;
}

}  // namespace

PairOrder pairs_from_the_left(std::size_t operands) {
  PairOrder order;
  for (std::size_t k = 1; k < operands; ++k) order.emplace_back(k == 1 ? 0 : operands + k - 2, k);
  return order;
}

PairOrder cheapest_pairs(std::span<const std::vector<int>> operands, const std::vector<int>& result,
                         const std::map<int, std::int64_t>& extents) {
  const Space space(operands, result, extents);
  return operands.size() <= kMostExact ? exact(space) : greedy(space);
}

}  // namespace onepass::compiler
