// formula_lexer: see formula_lexer.h.
#include "ir/formula_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace onepass::language {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

struct Float {
  double number;
  float single;
};

// from_chars leaves the value unchanged if it is out of range. As in Python, an overflow becomes inf and an underflow becomes 0.
Float parse_float(std::string_view text) {
  Float result{0, 0};
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, result.number).ec == std::errc::result_out_of_range) {
    const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
    const std::string_view digits = text.substr(0, exponent_at);
    const std::size_t point = std::min(digits.find('.'), digits.size()), first = digits.find_first_not_of("0.");
    std::int64_t magnitude = first < point ? static_cast<std::int64_t>(point - first) : -static_cast<std::int64_t>(first - point);
    if (exponent_at < text.size()) {
      const bool minus = text[exponent_at + 1] == '-';
      const std::string_view exponent_digits = text.substr(exponent_at + 1 + (is_digit(text[exponent_at + 1]) ? 0 : 1));
      std::int64_t exponent = 0;
      if (std::from_chars(exponent_digits.data(), end, exponent).ec != std::errc()) exponent = std::int64_t{1} << 60;
      magnitude += minus ? -exponent : exponent;
    }
    result.number = magnitude > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  }
  if (std::from_chars(text.data(), end, result.single).ec == std::errc::result_out_of_range)
    result.single = result.number > 1 ? std::numeric_limits<float>::infinity() : 0.0f;
  return result;
}

}  // namespace

std::size_t code_point_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool range = first == 0xe0 ? second >= 0xa0 : first == 0xed ? second < 0xa0 : true;
    return follows(1) && follows(2) && range ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool range = first == 0xf0 ? second >= 0x90 : first == 0xf4 ? second < 0x90 : true;
    return follows(1) && follows(2) && follows(3) && range ? 4 : 0;
  }
  return 0;
}

Lexer::Lexer(Program& program) : program_(program), interner_(program.names, program.steps), text_(program.source) {
  for (const ReservedWord& word : kReservedWords) interner_.intern(word.text);
  check_encoding();
  if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
}

void Lexer::check_encoding() const {
  for (std::size_t i = 0; i < text_.size();) {
    const unsigned char byte = static_cast<unsigned char>(text_[i]);
    if (byte - 1u < 0x7fu) {
      ++i;
      continue;
    }
    if (byte == 0) fail(static_cast<std::uint32_t>(i), "the source contains a byte 0; a program must be UTF-8 text");
    const std::size_t bytes = code_point_bytes(text_, i);
    if (bytes == 0)
      fail(static_cast<std::uint32_t>(i), fmt::format("the byte 0x{:02x} is not valid UTF-8; a program must be UTF-8 text", byte));
    i += bytes;
  }
}

void Lexer::fail_character() const {
  const std::uint32_t offset = static_cast<std::uint32_t>(at_);
  const std::string_view character = text_.substr(at_, code_point_bytes(text_, at_));
  struct Hint {
    std::string_view character, hint;
  };
  static constexpr Hint kHints[] = {
      {"\xc3\x97", "*"},      {"\xc2\xb7", "*"},       {"\xe2\x88\x92", "-"},  {"\xe2\x80\x93", "-"}, {"\xc3\xb7", "/"},
      {"\xe2\x89\xa4", "<="}, {"\xe2\x89\xa5", ">="},  {"\xe2\x89\xa0", "!="}, {"\xc2\xb2", "**2"},   {"\xc2\xb3", "**3"},
      {"\xcf\x80", "pi"},     {"\xe2\x88\x9e", "inf"}, {"!", "not"},           {"'", "\""},           {"\xe2\x80\x9c", "\""},
      {"\xe2\x80\x9d", "\""}};
  for (const Hint& hint : kHints)
    if (hint.character == character) fail(offset, fmt::format("`{}` is not part of the language. Write `{}`", character, hint.hint));
  if (character.size() > 1) {
    std::uint32_t code = static_cast<unsigned char>(character[0]) & (character.size() == 2 ? 0x1fu : character.size() == 3 ? 0x0fu : 0x07u);
    for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3fu);
    fail(offset, fmt::format("`{}` (U+{:04X}) is not part of the language; names consist of the letters a to z and A to Z, digits and `_`",
                             character, code));
  }
  const unsigned char byte = static_cast<unsigned char>(character[0]);
  if (byte < 0x20 || byte == 0x7f) fail(offset, fmt::format("the control character 0x{:02x} is not part of the language", byte));
  fail(offset, fmt::format("`{}` is not part of the language", character));
}

Lexeme Lexer::lex() {
  const std::size_t begin = at_;
  const Lexeme lexeme = lex_word_or_sign();
  program_.steps += at_ - begin + 1;
  return lexeme;
}

Lexeme Lexer::lex_word_or_sign() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && open_brackets_ > 0)) {
      ++at_;
    } else {
      break;
    }
  }
  Lexeme lexeme;
  lexeme.offset = static_cast<std::uint32_t>(at_);
  if (at_ == text_.size()) return lexeme;
  const char c = text_[at_];
  if (is_name_start(c)) {
    lex_word(lexeme);
  } else if (is_digit(c) || (c == '.' && is_digit(peek_char(1)))) {
    lex_number(lexeme);
  } else if (c == '"') {
    lex_string(lexeme);
  } else {
    lex_sign(lexeme);
  }
  lexeme.length = static_cast<std::uint32_t>(at_) - lexeme.offset;
  return lexeme;
}

void Lexer::lex_word(Lexeme& lexeme) {
  std::size_t end = at_ + 1;
  while (end < text_.size() && is_name_part(text_[end])) ++end;
  const std::string_view word = text_.substr(at_, end - at_);
  if (word.size() > program_.limits.name_bytes)
    fail(lexeme.offset, fmt::format("the name `{}…` has {} bytes; the limit `name_bytes` is {}", word.substr(0, 32), word.size(),
                                    program_.limits.name_bytes));
  lexeme.token = Token::Name;
  lexeme.name = interner_.intern(word);
  if (lexeme.name < kReservedWords.size()) {
    lexeme.token = kReservedWords[lexeme.name].token;
    lexeme.op = kReservedWords[lexeme.name].op;
  }
  at_ = end;
}

void Lexer::lex_number(Lexeme& lexeme) {
  const std::size_t begin = at_;
  std::size_t end = at_;
  const auto digits = [&] {
    const std::size_t first = end;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    return end - first;
  };
  const std::size_t whole_digits = digits();
  bool whole = true;
  if (end < text_.size() && text_[end] == '.' && text_.substr(end, 3) != "...") {
    whole = false;
    ++end;
    digits();
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    const std::size_t before = end++;
    if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
    if (digits() == 0) end = before;
    else whole = false;
  }
  const std::string_view number = text_.substr(begin, end - begin);
  if (end < text_.size() && (is_name_part(text_[end]) || (text_[end] == '.' && text_.substr(end, 3) != "..."))) {
    std::size_t word_end = end;
    while (word_end < text_.size() && word_end < end + 32 && (is_name_part(text_[word_end]) || text_[word_end] == '.')) ++word_end;
    const std::string_view rest = text_.substr(end, word_end - end), shown = number.substr(0, 32);
    std::string hint = fmt::format("write `{}*{}` for a product", shown, rest);
    if (!is_name_start(rest[0]) || rest[0] == '_' || number == "0" || rest == "e" || rest == "E" ||
        rest.find('.') != std::string_view::npos)
      hint = "numbers are decimal, as in `12`, `0.5` or `1.5e-3`";
    fail(static_cast<std::uint32_t>(end), fmt::format("`{}` cannot follow the number `{}`; {}", rest, shown, hint));
  }
  if (whole) {
    lexeme.token = Token::Integer;
    if (whole_digits > 1 && number[0] == '0' && number.find_first_not_of('0') != std::string_view::npos)
      fail(lexeme.offset, fmt::format("the integer `{}` has leading zeros. Write `{}`", number.substr(0, 32),
                                      number.substr(number.find_first_not_of('0')).substr(0, 32)));
    if (std::from_chars(number.data(), number.data() + number.size(), lexeme.value).ec != std::errc())
      fail_integer(lexeme.offset, number, "u64, whose maximum is 18446744073709551615. Write it with a decimal point for a float");
  } else {
    lexeme.token = Token::Float;
    const Float value = parse_float(number);
    lexeme.value = std::bit_cast<std::uint64_t>(value.number);
    lexeme.single = std::bit_cast<std::uint32_t>(value.single);
  }
  at_ = end;
}

void Lexer::fail_integer(std::uint32_t offset, std::string_view number, std::string_view what) const {
  fail(offset, fmt::format("the integer {}{} does not fit {}", number.substr(0, 40), number.size() > 40 ? "…" : "", what));
}

void Lexer::lex_string(Lexeme& lexeme) {
  const std::size_t end = text_.find_first_of("\"\n", at_ + 1);
  if (end == std::string_view::npos || text_[end] != '"')
    fail(lexeme.offset, "the string is not closed. Add `\"` at its end, on the same line");
  lexeme.token = Token::String;
  at_ = end + 1;
}

void Lexer::lex_sign(Lexeme& lexeme) {
  const char c = text_[at_], next = peek_char(1);
  const auto take = [&](Token token, std::size_t bytes) {
    lexeme.token = token;
    at_ += bytes;
  };
  const auto take_operator = [&](Operator op, std::size_t bytes) {
    lexeme.op = op;
    take(Token::Operator, bytes);
  };
  switch (c) {
    case '\n': return take(Token::Newline, 1);
    case ';': return take(Token::Semicolon, 1);
    case ',': return take(Token::Comma, 1);
    case ':': return take(Token::Colon, 1);
    case '?': return take(Token::Question, 1);
    case '(': ++open_brackets_; return take(Token::OpenParen, 1);
    case '[': ++open_brackets_; return take(Token::OpenBracket, 1);
    case ')': open_brackets_ -= open_brackets_ > 0; return take(Token::CloseParen, 1);
    case ']': open_brackets_ -= open_brackets_ > 0; return take(Token::CloseBracket, 1);
    case '{': return take(Token::OpenBrace, 1);
    case '}': return take(Token::CloseBrace, 1);
    case '.': return next == '.' && peek_char(2) == '.' ? take(Token::Ellipsis, 3) : take(Token::Dot, 1);
    case '=': return next == '=' ? take_operator(Operator::Equal, 2) : take(Token::Assign, 1);
    case '!':
      if (next == '=') return take_operator(Operator::NotEqual, 2);
      break;
    case '<':
      return next == '='   ? take_operator(Operator::LessEqual, 2)
             : next == '<' ? take_operator(Operator::ShiftLeft, 2)
                           : take_operator(Operator::Less, 1);
    case '>':
      return next == '='   ? take_operator(Operator::GreaterEqual, 2)
             : next == '>' ? take_operator(Operator::ShiftRight, 2)
                           : take_operator(Operator::Greater, 1);
    case '*': return next == '*' ? take_operator(Operator::Power, 2) : take_operator(Operator::Multiply, 1);
    case '/': return next == '/' ? take_operator(Operator::FloorDivide, 2) : take_operator(Operator::Divide, 1);
    case '%': return take_operator(Operator::Remainder, 1);
    case '@': return take_operator(Operator::MatMul, 1);
    case '+': return take_operator(Operator::Add, 1);
    case '-': return take_operator(Operator::Subtract, 1);
    case '~': return take_operator(Operator::BitNot, 1);
    case '^': return take_operator(Operator::BitXor, 1);
    case '&':
      if (next == '&') fail(lexeme.offset, "`&&` is not part of the language. Write `and`, or `&` for bits");
      return take_operator(Operator::BitAnd, 1);
    case '|':
      if (next == '|') fail(lexeme.offset, "`||` is not part of the language. Write `or`, or `|` for bits");
      return take_operator(Operator::BitOr, 1);
    default: break;
  }
  fail_character();
}

}  // namespace onepass::language
