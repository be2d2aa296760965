// The differences of two texts, line by line, as a reader wants them: few changed lines, some equal ones around them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

struct LineEdit {
  char kind;  // ' ' in both, '-' in the first alone, '+' in the second alone
  std::string_view line;
};

/// The edits that turn `a` into `b`, views of both; as few as can be, or, where that are more than `most`, the differing middle of `a` out
/// and that of `b` in. Time grows with lines times edits.
std::vector<LineEdit> line_edits(std::string_view a, std::string_view b, std::size_t most = 1000);

/// The edits with `context` equal lines around each, `indent` before every line; what is left out shows as `…`. At most `lines` lines, then
/// how many more there are. Empty where nothing differs.
std::string edits_text(const std::vector<LineEdit>& edits, std::string_view indent, std::size_t context, std::size_t lines);

}  // namespace onepass
