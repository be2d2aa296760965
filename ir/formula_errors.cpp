// Positions in a formula's text, and errors that quote them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/formula_parts.h"
#include "ir/message.h"

namespace onepass::language {

namespace {

// Returns the source line around a position, as one line of printable text of at most about 160 columns, and a caret under the position.
std::string quote(std::string_view source, std::size_t offset) {
  constexpr std::size_t kBefore = 100, kAfter = 60;
  offset = std::min(offset, source.size());
  std::size_t begin = offset, end = std::min(source.find('\n', offset), source.size());
  while (begin > 0 && source[begin - 1] != '\n') --begin;
  if (begin == 0 && source.starts_with("\xef\xbb\xbf")) begin = std::min<std::size_t>(3, end);
  if (end > begin && source[end - 1] == '\r') --end;
  offset = std::clamp(offset, begin, end);
  bool cut_before = false, cut_after = false;
  if (end - begin > kBefore + kAfter) {
    if (offset - begin > kBefore) {
      begin = offset - kBefore;
      cut_before = true;
      while (begin < offset && is_continuation(source[begin])) ++begin;
    }
    if (end - offset > kAfter) {
      end = offset + kAfter;
      cut_after = true;
      while (end > offset && is_continuation(source[end])) --end;
    }
  }
  std::string line = cut_before ? "…" : "", caret = cut_before ? " " : "";
  for (std::size_t i = begin; i < end;) {
    const std::size_t bytes = code_point_bytes(source, i);
    const unsigned char byte = static_cast<unsigned char>(source[i]);
    const bool plain = bytes != 0 && i + bytes <= end && (byte >= 0x20 || byte == '\t') && byte != 0x7f;
    if (plain) line += source.substr(i, bytes);
    else line += '?';
    if (i < offset) caret += byte == '\t' ? '\t' : ' ';
    i += plain ? bytes : 1;
  }
  return line + (cut_after ? "…" : "") + "\n" + caret + "^";
}

}  // namespace

Location locate(std::string_view source, std::uint32_t offset) {
  Location location;
  const std::size_t end = std::min<std::size_t>(offset, source.size());
  std::size_t i = source.starts_with("\xef\xbb\xbf") ? 3 : 0;
  for (; i < end; ++i) {
    if (source[i] == '\n') {
      ++location.line;
      location.column = 1;
    } else if (!is_continuation(source[i])) {
      ++location.column;
    }
  }
  return location;
}

std::string position(const Program& program, std::uint32_t offset) {
  const Location location = locate(program.source, offset);
  return fmt::format("{}:{}", location.line, location.column);
}

FormulaError error_at(const Program& program, std::uint32_t offset, std::string_view message) {
  // The source line is shortened separately, so that the caret stays under its position.
  const std::size_t first_line = std::min(message.find('\n'), message.size());
  const std::string quoted = quote(program.source, offset);
  const std::size_t room = kMostErrorBytes - std::min(kMostErrorBytes / 2, quoted.size() + 1);
  const std::string others = shortened(message.substr(first_line), room / 3);
  const std::string head = shortened(fmt::format("{}:{}: {}", program.file_name, position(program, offset), message.substr(0, first_line)),
                                     room - others.size());
  return FormulaError(fmt::format("{}\n{}{}", head, quoted, others));
}

std::string nearest(std::string_view name, std::span<const std::string_view> candidates) {
  // Optimal string alignment distance: insertions, deletions, changes and swaps of neighbors cost one step each; a change of case is free.
  constexpr std::size_t kLongest = 64;
  if (name.empty() || name.size() > kLongest) return {};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;  // a smaller distance counts as near
  std::string_view result;
  // Among equally near candidates, the one with more of the same first letters wins, then the shorter one: `sinn` is sin, not sign or sinh.
  const auto first_letters = [&](std::string_view candidate) {
    const auto same = [&](char a, char b) { return lower(a) == lower(b); };
    return std::ranges::mismatch(name, candidate, same).in1 - name.begin();
  };
  const auto precedes = [&](std::string_view candidate) {
    const auto letters = first_letters(candidate), others = first_letters(result);
    return letters > others || (letters == others && candidate.size() < result.size());
  };
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > name.size() + best || name.size() > candidate.size() + best || candidate == name) continue;
    std::array<std::size_t, 2 * kLongest + 2> before_last{}, last{}, row{};
    for (std::size_t j = 0; j <= candidate.size(); ++j) last[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const char a = lower(name[i - 1]), b = lower(candidate[j - 1]);
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a == b ? 0 : 1)});
        if (i > 1 && j > 1 && a == lower(candidate[j - 2]) && lower(name[i - 2]) == b) row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
      before_last = last;
      last = row;
    }
    const std::size_t distance = last[candidate.size()];
    if (distance >= std::max(name.size(), candidate.size())) continue;  // no common characters
    if (distance < best || (distance == best && !result.empty() && precedes(candidate))) {
      best = distance;
      result = candidate;
    }
  }
  return std::string(result);
}

bool is_reserved(std::string_view word) {
  return std::any_of(kReservedWords.begin(), kReservedWords.end(), [&](const ReservedWord& reserved) { return reserved.text == word; });
}

std::string_view kind_of(const ReservedWord& word) {
  return word.token == Token::Type                                                                    ? "a type"
         : word.token == Token::Constant || word.token == Token::Boolean || word.token == Token::None ? "a constant"
                                                                                                      : "a keyword";
}

std::string advice_on_reserved(std::string_view word) {
  for (const ReservedWord& reserved : kReservedWords)
    if (reserved.text == word)
      return fmt::format("`{0}` is {1} of the language. Call it `{0}_` in the program and here", word, kind_of(reserved));
  return {};
}

}  // namespace onepass::language
