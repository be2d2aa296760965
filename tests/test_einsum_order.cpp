// The order of einsum's pairs: from the left in strict arithmetic, by least cost for the extents under `reassociate`.
#include "compiler/einsum_order.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/onepass.h"

using namespace onepass;
using compiler::PairOrder;

namespace {

using Lists = std::vector<std::vector<int>>;
using Lengths = std::map<int, std::int64_t>;  // extents by index

// Returns the number of multiplications of this order, counted on sets of operands and indices. Checks that the order is valid.
double cost_of(const PairOrder& order, const Lists& operands, const std::vector<int>& result, const Lengths& extents) {
  const std::size_t n = operands.size();
  REQUIRE(order.size() == n - 1);
  std::vector<std::set<std::size_t>> made;
  for (std::size_t k = 0; k < n; ++k) made.push_back({k});
  std::vector<bool> used(2 * n);
  const auto indices = [&](const std::set<std::size_t>& of) {
    std::set<int> inside, outside(result.begin(), result.end()), both;
    for (std::size_t k = 0; k < n; ++k) (of.contains(k) ? inside : outside).insert(operands[k].begin(), operands[k].end());
    for (const int i : inside)
      if (outside.contains(i)) both.insert(i);
    return both;
  };
  double total = 0;
  for (const auto& [a, b] : order) {
    REQUIRE(a < made.size());
    REQUIRE(b < made.size());
    REQUIRE((a != b && !used[a] && !used[b]));
    used[a] = used[b] = true;
    std::set<int> space = indices(made[a]);
    space.merge(indices(made[b]));
    double product = 1;
    for (const int i : space) product *= static_cast<double>(extents.at(i));
    total += product;
    std::set<std::size_t> joined = made[a];
    joined.insert(made[b].begin(), made[b].end());
    made.push_back(joined);
  }
  return total;
}

// Returns the least cost of all orders, found by trying each order.
double least_cost(const Lists& operands, const std::vector<int>& result, const Lengths& extents) {
  double best = std::numeric_limits<double>::infinity();
  PairOrder order;
  const std::function<void(std::vector<std::size_t>)> go = [&](const std::vector<std::size_t>& left) {
    if (left.size() == 1) {
      best = std::min(best, cost_of(order, operands, result, extents));
      return;
    }
    for (std::size_t i = 0; i < left.size(); ++i)
      for (std::size_t j = i + 1; j < left.size(); ++j) {
        std::vector<std::size_t> rest;
        for (std::size_t k = 0; k < left.size(); ++k)
          if (k != i && k != j) rest.push_back(left[k]);
        order.emplace_back(left[i], left[j]);
        rest.push_back(operands.size() + order.size() - 1);
        go(rest);
        order.pop_back();
      }
  };
  std::vector<std::size_t> all(operands.size());
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = k;
  go(all);
  return best;
}

}  // namespace

TEST_CASE("strict arithmetic contracts from the left", "[einsum]") {
  CHECK(compiler::pairs_from_the_left(2) == PairOrder{{0, 1}});
  CHECK(compiler::pairs_from_the_left(4) == PairOrder{{0, 1}, {4, 2}, {5, 3}});
}

TEST_CASE("a chain of matrices is contracted from its cheaper end", "[einsum]") {
  const Lists chain{{0, 1}, {1, 2}, {2, 3}};
  CHECK(compiler::cheapest_pairs(chain, {0, 3}, {{0, 1000}, {1, 2}, {2, 1000}, {3, 2}}) == PairOrder{{1, 2}, {0, 3}});
  CHECK(compiler::cheapest_pairs(chain, {0, 3}, {{0, 2}, {1, 1000}, {2, 2}, {3, 1000}}) == PairOrder{{0, 1}, {3, 2}});
  CHECK(compiler::cheapest_pairs(chain, {0, 3}, {{0, 7}, {1, 7}, {2, 7}, {3, 7}}) ==
        PairOrder{{0, 1}, {3, 2}});  // equal costs: from the left
}

TEST_CASE("exhaustive search finds no cheaper order", "[einsum]") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t n = 2 + random() % 4;
    const int indices = 3 + static_cast<int>(random() % 4);
    Lists operands(n);
    std::vector<int> result;
    Lengths extents;
    for (int i = 0; i < indices; ++i) {
      extents[i] = 1 + static_cast<std::int64_t>(random() % 20);
      for (auto& operand : operands)
        if (random() % 2) operand.push_back(i);
      if (random() % 3 == 0) result.push_back(i);
    }
    const double got = cost_of(compiler::cheapest_pairs(operands, result, extents), operands, result, extents);
    CHECK(got == least_cost(operands, result, extents));
  }
}

TEST_CASE("many operands are contracted greedily, each once", "[einsum]") {
  Lists chain;
  Lengths extents;
  for (int i = 0; i < 14; ++i) chain.push_back({i, i + 1});
  for (int i = 0; i <= 14; ++i) extents[i] = 2 + i % 5;
  const PairOrder order = compiler::cheapest_pairs(chain, {0, 14}, extents);
  CHECK(cost_of(order, chain, {0, 14}, extents) <= cost_of(compiler::pairs_from_the_left(14), chain, {0, 14}, extents));
}

TEST_CASE("einsum regroups only under `reassociate`", "[einsum]") {
  const auto product = [](Tensor a, Tensor b, Tensor c, Tensor v) { return einsum("ij,jk,kl,l->i", a, b, c, v); };
  Options relaxed;
  relaxed.relax.reassociate = true;
  const auto strict = compile(product), cheap = compile(product, relaxed);
  const auto uniform_array = [](std::initializer_list<Extent> shape, int key) {
    return compile([key, lengths = std::vector<Extent>(shape)]() {
      std::vector<std::int64_t> list;
      for (const Extent e : lengths) list.push_back(e.value);
      return uniform(key, list, f64);
    })();
  };
  const Array a = uniform_array({30, 20}, 1), b = uniform_array({20, 25}, 2), c = uniform_array({25, 40}, 3), v = uniform_array({40}, 4);
  const std::vector<double> want = strict(a, b, c, v).to_vector<double>(), got = cheap(a, b, c, v).to_vector<double>();
  REQUIRE(want.size() == 30);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) <= 1e-12 * std::abs(want[i]));

  const auto largest = [](const GraphView& graph) {  // elements of the largest contraction result
    std::int64_t most = 0;
    for (const auto& node : graph)
      if (node.op().starts_with("contract")) {
        std::int64_t size = 1;
        for (const std::int64_t n : node.shape()) size *= n;
        most = std::max(most, size);
      }
    return most;
  };
  CHECK(largest(strict.recorded_graph()) == 30 * 40);  // matrix by matrix
  CHECK(largest(cheap.recorded_graph()) == 30);        // matrix by vector, from the right

  // The gradient uses the same order and agrees with the strict gradient.
  const auto gradient = [](Tensor a, Tensor b, Tensor c, Tensor v) { return grad(sum(einsum("ij,jk,kl,l->i", a, b, c, v)), b); };
  const std::vector<double> db = compile(gradient)(a, b, c, v).to_vector<double>(),
                            cheap_db = compile(gradient, relaxed)(a, b, c, v).to_vector<double>();
  for (std::size_t i = 0; i < db.size(); ++i) CHECK(std::abs(cheap_db[i] - db[i]) <= 1e-12 * std::abs(db[i]));
}
