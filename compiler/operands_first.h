// operands_first: the walk from a value to what it is made of, without recursion. Programs are as long as their users write them, and a
// chain of 200,000 operators would not fit on a thread's stack. For emitters and passes that make values when these are first needed.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace onepass::compiler {

/// Calls `make(id)` for each value that `id` needs and that is not made yet, operands before what reads them, `id` last. The order is that
/// of the recursion make(id) { for each operand: if not made, make(operand); … }.
///   is_made(id)                is it there? It is asked again before each `make`, which may have made others too
///   each_operand(id, visit)    calls visit(operand) for each operand that has to be made first, in order
/// Takes time in the number of values and operands that it meets.
template <class Id, class IsMade, class EachOperand, class Make>
void operands_first(Id id, IsMade&& is_made, EachOperand&& each_operand, Make&& make) {
  if (is_made(id)) return;
  std::vector<std::pair<Id, bool>> open = {{id, false}};  // and whether its operands have been seen to
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
