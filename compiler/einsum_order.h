// The order in which einsum contracts more than two operands: pairs from the left, or the cheapest pairs if sums may be regrouped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace onepass::compiler {

/// Pairs of values to contract, in sequence. Values 0 to n - 1 are the operands; pair k makes value n + k.
using PairOrder = std::vector<std::pair<std::size_t, std::size_t>>;

/// Returns the order of strict arithmetic: ((0, 1), 2), ….
PairOrder pairs_from_the_left(std::size_t operands);

/// Returns the order with the fewest multiplications, computed from the extents. Ties go to the order that joins operands further left
/// first. The result is optimal for up to ten operands (dynamic programming over their subsets). Beyond that it is greedy, and never costs
/// more than pairs from the left.
///
/// operands   the indices of each operand, without indices along which it is broadcast
/// result     the indices of the result
PairOrder cheapest_pairs(std::span<const std::vector<int>> operands, const std::vector<int>& result,
                         const std::map<int, std::int64_t>& extents);

}  // namespace onepass::compiler
