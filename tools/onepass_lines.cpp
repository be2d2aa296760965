#include "tools/onepass_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "ir/message.h"

namespace onepass {

namespace {

using Lines = std::vector<std::string_view>;

constexpr std::size_t kMostLineBytes = 2000;  // limit for printing a line, unless all lines are printed in full

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations", 1986. reach[k] is the farthest position in `a` that a path
// with d edits reaches on diagonal k = x - y. The reaches for each d are stored for walking back. Returns an empty list if more than `most`
// edits are needed.
std::vector<LineEdit> shortest(std::span<const std::string_view> a, std::span<const std::string_view> b, std::size_t most) {
  const auto n = static_cast<std::ptrdiff_t>(a.size()), m = static_cast<std::ptrdiff_t>(b.size());
  const auto limit = std::min(n + m, static_cast<std::ptrdiff_t>(most));
  const auto at = [&](std::vector<std::ptrdiff_t>& reach, std::ptrdiff_t k) -> std::ptrdiff_t& {
    return reach[static_cast<std::size_t>(k + limit + 1)];
  };
  std::vector<std::ptrdiff_t> reach(static_cast<std::size_t>(2 * limit + 3), 0);
  const auto came_down = [&](std::vector<std::ptrdiff_t>& r, std::ptrdiff_t k, std::ptrdiff_t d) {
    return k == -d || (k != d && at(r, k - 1) < at(r, k + 1));
  };
  std::vector<std::vector<std::ptrdiff_t>> before;  // reaches by d
  std::ptrdiff_t edits = -1;
  for (std::ptrdiff_t d = 0; d <= limit && edits < 0; ++d) {
    before.push_back(reach);
    for (std::ptrdiff_t k = -d; k <= d; k += 2) {
      std::ptrdiff_t x = came_down(reach, k, d) ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < n && x - k < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(x - k)]) ++x;
      at(reach, k) = x;
      if (x >= n && x - k >= m) edits = d;
      if (edits >= 0) break;
    }
  }
  std::vector<LineEdit> result;
  if (edits < 0) return result;
  std::ptrdiff_t x = n, y = m;
  for (std::ptrdiff_t d = edits; d >= 0; --d) {
    std::vector<std::ptrdiff_t>& r = before[static_cast<std::size_t>(d)];
    const std::ptrdiff_t k = x - y;
    const bool down = d > 0 && came_down(r, k, d);
    const std::ptrdiff_t from = d == 0 ? 0 : down ? at(r, k + 1) : at(r, k - 1) + 1;
    for (; x > from; --x, --y) result.push_back({' ', a[static_cast<std::size_t>(x - 1)]});
    if (d == 0) break;
    if (down) result.push_back({'+', b[static_cast<std::size_t>(--y)]});
    else result.push_back({'-', a[static_cast<std::size_t>(--x)]});
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace

std::vector<LineEdit> line_edits(std::string_view a_text, std::string_view b_text, std::size_t most) {
  const Lines a = lines_of(a_text), b = lines_of(b_text);
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t head = 0, tail = 0;
  while (head < shorter && a[head] == b[head]) ++head;
  while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const auto a_middle = std::span(a).subspan(head, a.size() - head - tail), b_middle = std::span(b).subspan(head, b.size() - head - tail);

  std::vector<LineEdit> result;
  for (std::size_t i = 0; i < head; ++i) result.push_back({' ', a[i]});
  std::vector<LineEdit> middle = shortest(a_middle, b_middle, most);
  if (middle.empty()) {
    for (const std::string_view line : a_middle) middle.push_back({'-', line});
    for (const std::string_view line : b_middle) middle.push_back({'+', line});
  }
  result.insert(result.end(), middle.begin(), middle.end());
  for (std::size_t i = a.size() - tail; i < a.size(); ++i) result.push_back({' ', a[i]});
  return result;
}

std::string edits_text(const std::vector<LineEdit>& edits, std::string_view indent, std::size_t context, std::size_t lines) {
  std::vector<bool> shown(edits.size());
  for (std::size_t i = 0; i < edits.size(); ++i)
    if (edits[i].kind != ' ')
      for (std::size_t j = i - std::min(i, context); j < std::min(edits.size(), i + context + 1); ++j) shown[j] = true;
  std::string text;
  std::size_t printed = 0, left_out = 0;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    if (!shown[i]) continue;
    if (printed >= lines) {
      left_out += edits[i].kind != ' ';
      continue;
    }
    if (i > 0 && !shown[i - 1] && printed > 0) text += fmt::format("{}…\n", indent);
    text += fmt::format("{}{} {}\n", indent, edits[i].kind,
                        shortened(edits[i].line, lines == static_cast<std::size_t>(-1) ? lines : kMostLineBytes));
    ++printed;
  }
  if (left_out > 0) text += fmt::format("{}… and {} more changed line{}\n", indent, left_out, left_out == 1 ? "" : "s");
  return text;
}

}  // namespace onepass
