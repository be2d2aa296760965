// Typing rules of the elementwise operators. See ops.h.
#include "ir/ops.h"

namespace onepass::ir {

bool result_dtype(Op op, std::span<const DType> t, DType& out) {
  const OpInfo& i = info(op);
  if (t.size() != i.arity || t.empty()) return false;
  const std::size_t first = i.types == TypeRule::Choose ? 1 : 0;
  for (std::size_t k = first + 1; k < t.size(); ++k)
    if (t[k] != t[first]) return false;
  out = t[first];
  switch (i.types) {
    case TypeRule::None:
    case TypeRule::Convert:
    case TypeRule::Reinterpret: return false;
    case TypeRule::Number: return t[0] != DType::Bool;
    case TypeRule::Float: return is_float(t[0]);
    case TypeRule::Any: return true;
    case TypeRule::Compare: out = DType::Bool; return true;
    case TypeRule::Predicate: out = DType::Bool; return is_float(t[0]);
    case TypeRule::Bits: return !is_float(t[0]);
    case TypeRule::Integer: return is_integer(t[0]);
    case TypeRule::Choose: return t[0] == DType::Bool;
  }
  return false;
}

}  // namespace onepass::ir
