// Readable line-by-line differences of two texts: changed lines with some unchanged lines around them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onepass {

struct LineEdit {
  char kind;  // ' ' in both texts, '-' only in the first, '+' only in the second
  std::string_view line;
};

/// Returns the fewest edits that turn `a` into `b`, as views of both. Above `most` edits, removes the differing middle of `a` and inserts
/// the middle of `b`. The time is proportional to lines times edits.
std::vector<LineEdit> line_edits(std::string_view a, std::string_view b, std::size_t most = 1000);

/// Returns the edits with `context` equal lines around each edit and `indent` before every line. `…` marks omitted lines. Prints at most
/// `lines` lines, then the number of omitted lines. Returns an empty text if there is no difference.
std::string edits_text(const std::vector<LineEdit>& edits, std::string_view indent, std::size_t context, std::size_t lines);

}  // namespace onepass
