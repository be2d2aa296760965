// See program.h.
#include "compiler/loops/program.h"

#include <algorithm>

namespace onepass::compiler::loops {

namespace {

// Appends the parts of a digit; false where one of them is not open.
bool add_parts(const Program& program, Id digit, const std::vector<Id>& open, std::vector<Id>& parts) {
  if (std::ranges::find(open, digit) != open.end()) {
    parts.push_back(digit);
    return true;
  }
  for (Id outer = 0; outer < program.digits.size(); ++outer) {
    const Digit& d = program.digits[outer];
    if (d.parent != digit || d.kind != Digit::Kind::Outer) continue;
    const std::size_t before = parts.size();
    if (add_parts(program, outer, open, parts) && add_parts(program, d.pair, open, parts)) return true;
    parts.resize(before);
  }
  return false;
}

}  // namespace

std::vector<Id> parts_of(const Program& program, Id digit, const std::vector<Id>& open) {
  std::vector<Id> parts;
  if (!add_parts(program, digit, open, parts)) parts.clear();
  return parts;
}

bool is_within(const Program& program, Id digit, Id around) {
  while (digit != around && program.digits[digit].parent != kNone) digit = program.digits[digit].parent;
  return digit == around;
}

std::uint64_t covered(const Program& program, const std::vector<Id>& open) {
  std::uint64_t mask = 0;
  for (Id root = 0; root < program.nest.loops(); ++root)
    if (!parts_of(program, root, open).empty()) mask |= std::uint64_t{1} << root;
  return mask;
}

}  // namespace onepass::compiler::loops
