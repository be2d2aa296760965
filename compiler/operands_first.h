// operands_first: non-recursive walk from a value to its operands. A chain of 200,000 operators would overflow a thread's stack in a
// recursive walk. Used by emitters and passes that make values on first use.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace onepass::compiler {

/// Calls `make(id)` for each value that `id` needs and that is not yet made: operands before their users, `id` last. The order matches the
/// recursion make(id) { for each operand: if not made, make(operand); … }.
///   is_made(id)                true if the value exists; called again before each `make`, which may have made other values too
///   each_operand(id, visit)    calls visit(operand), in order, for each operand that must be made first
/// Takes time linear in the values and operands that it visits.
template <class Id, class IsMade, class EachOperand, class Make>
void operands_first(Id id, IsMade&& is_made, EachOperand&& each_operand, Make&& make) {
  if (is_made(id)) return;
  std::vector<std::pair<Id, bool>> open = {{id, false}};  // value, and whether its operands were visited
  std::vector<Id> operands;
  while (!open.empty()) {
    const auto [at, ready] = open.back();
    if (is_made(at)) {
      open.pop_back();
      continue;
    }
    if (!ready) {
      open.back().second = true;
      operands.clear();
      each_operand(at, [&](Id o) {
        if (!is_made(o)) operands.push_back(o);
      });
      for (std::size_t k = operands.size(); k-- > 0;) open.emplace_back(operands[k], false);
      if (!operands.empty()) continue;
    }
    open.pop_back();
    make(at);
  }
}

}  // namespace onepass::compiler
