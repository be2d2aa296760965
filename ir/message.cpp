// See message.h.
#include "ir/message.h"

#include <algorithm>
#include <vector>

#include "onepass/error.h"

namespace onepass {

namespace {

constexpr std::string_view kCut = "…";
constexpr std::size_t kLeastWord = 64;  // words are not shortened below this length, so that both ends still identify them

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Appends both ends of the text, in at most `most` bytes.
void append_ends(std::string& out, std::string_view text, std::size_t most) {
  if (text.size() <= most) {
    out += text;
    return;
  }
  std::size_t head = (most - kCut.size()) / 2, tail = text.size() - (most - kCut.size() - head);
  while (head > 0 && is_continuation(text[head])) --head;
  while (tail < text.size() && is_continuation(text[tail])) ++tail;
  out += text.substr(0, head);
  out += kCut;
  out += text.substr(tail);
}

// Calls `body` with each word and each whitespace character.
template <class F> void each_word(std::string_view text, F&& body) {
  while (!text.empty()) {
    std::size_t end = is_space(text[0]) ? 1 : 0;
    if (end == 0)
      while (end < text.size() && !is_space(text[end])) ++end;
    body(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

std::string shortened(std::string_view text, std::size_t most) {
  std::string result;
  if (text.size() <= most) {
    result = text;
  } else {
    // The longest words are cut to one length, the largest length that fits.
    std::vector<std::size_t> lengths;
    each_word(text, [&](std::string_view word) { lengths.push_back(word.size()); });
    std::sort(lengths.begin(), lengths.end());
    std::size_t before = 0, length = 0;
    for (std::size_t i = 0; i < lengths.size() && before < most; ++i) {
      length = (most - before) / (lengths.size() - i);
      if (length < lengths[i]) break;
      before += lengths[i];
    }
    length = std::max(length, kLeastWord);
    each_word(text, [&](std::string_view word) { append_ends(result, word, length); });
    if (result.size() > most) {
      std::string ends;
      append_ends(ends, result, most);
      result = std::move(ends);
    }
  }
  for (char& c : result)
    if ((static_cast<unsigned char>(c) < 0x20 && !is_space(c)) || c == 0x7f) c = '?';
  return result;
}

Error::Error(const std::string& text) : std::runtime_error(shortened(text, kMostErrorBytes)) {}
Error::Error(const char* text) : std::runtime_error(shortened(text, kMostErrorBytes)) {}

}  // namespace onepass
