// The order in which einsum contracts more than two operands: pairs from the left, or, where sums may be regrouped, the cheapest pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace onepass::compiler {

/// Pairs of values to contract, one after the other. Values 0 to n - 1 are the operands; pair k makes value n + k.
using PairOrder = std::vector<std::pair<std::size_t, std::size_t>>;

/// The order of strict arithmetic: ((0, 1), 2), ….
PairOrder pairs_from_the_left(std::size_t operands);

/// The order with the fewest multiplications, by the extents alone; among equals the one that joins operands further left first. Exact up to ten
/// operands (dynamic programming over their subsets), beyond that greedy, and never worse than from the left.
///
/// operands   the indices of each; an index that an operand is broadcast along is not among them
/// result     the indices of the result
PairOrder cheapest_pairs(std::span<const std::vector<int>> operands, const std::vector<int>& result,
                         const std::map<int, std::int64_t>& extents);

}  // namespace onepass::compiler
