// Shared parts of the formula language's lexer, parser and printer: operators and their precedences, reserved words, code points.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "ir/formula.h"

namespace onepass::language {

struct OperatorInfo {
  std::string_view text;
  int precedence;
};

// Python's precedences; a larger number binds tighter. The conditional binds looser than all operators, and a primary binds tighter.
inline constexpr int kConditionalPrecedence = 1, kOrPrecedence = 2, kNotPrecedence = 4, kPrefixPrecedence = 12;
inline constexpr int kPowerPrecedence = 13, kPrimaryPrecedence = 14;
inline constexpr std::array<OperatorInfo, static_cast<std::size_t>(Operator::None) + 1> kOperators = {{{"+", kPrefixPrecedence},
                                                                                                       {"-", kPrefixPrecedence},
                                                                                                       {"~", kPrefixPrecedence},
                                                                                                       {"not", kNotPrecedence},
                                                                                                       {"**", kPowerPrecedence},
                                                                                                       {"*", 11},
                                                                                                       {"/", 11},
                                                                                                       {"//", 11},
                                                                                                       {"%", 11},
                                                                                                       {"@", 11},
                                                                                                       {"+", 10},
                                                                                                       {"-", 10},
                                                                                                       {"<<", 9},
                                                                                                       {">>", 9},
                                                                                                       {"&", 8},
                                                                                                       {"^", 7},
                                                                                                       {"|", 6},
                                                                                                       {"==", 5},
                                                                                                       {"!=", 5},
                                                                                                       {"<", 5},
                                                                                                       {"<=", 5},
                                                                                                       {">", 5},
                                                                                                       {">=", 5},
                                                                                                       {"and", 3},
                                                                                                       {"or", kOrPrecedence},
                                                                                                       {"", 0}}};
inline int precedence_of(Operator op) { return kOperators[static_cast<std::size_t>(op)].precedence; }
inline bool is_comparison(Operator op) { return op >= Operator::Equal && op <= Operator::GreaterEqual; }

enum class Token : std::uint8_t {
  End,
  Newline,
  Semicolon,
  Comma,
  Colon,
  Question,
  Assign,
  Dot,
  Ellipsis,
  OpenParen,
  CloseParen,
  OpenBracket,
  CloseBracket,
  OpenBrace,
  CloseBrace,
  Operator,
  Name,
  Integer,
  Float,
  String,
  Fn,
  Return,
  Boolean,
  None,
  Constant,
  Type  // the reserved words; `not`, `and` and `or` are among the operators
};

struct Lexeme {
  Token token = Token::End;
  Operator op = Operator::None;
  std::uint32_t offset = 0, length = 0;
  NameId name = kAbsent;     // Name and reserved words
  std::uint64_t value = 0;   // Integer, or a Float's bits
  std::uint32_t single = 0;  // a Float's bits, rounded to float
};

struct ReservedWord {
  std::string_view text;
  Token token;
  Operator op = Operator::None;
  std::uint32_t value = 0;
  double number = 0;
};

// Reserved words have the first NameIds of every program, so the id identifies them.
inline constexpr auto kReservedWords = [] {
  std::array<ReservedWord, 12 + kDTypeCount> words = {
      {{"fn", Token::Fn},
       {"return", Token::Return},
       {"and", Token::Operator, Operator::And},
       {"or", Token::Operator, Operator::Or},
       {"not", Token::Operator, Operator::Not},
       {"false", Token::Boolean, Operator::None, 0},
       {"true", Token::Boolean, Operator::None, 1},
       {"none", Token::None},
       {"inf", Token::Constant, Operator::None, 0, std::numeric_limits<double>::infinity()},
       {"nan", Token::Constant, Operator::None, 0, std::numeric_limits<double>::quiet_NaN()},
       {"pi", Token::Constant, Operator::None, 0, 3.141592653589793238462643383279502884},
       {"e", Token::Constant, Operator::None, 0, 2.718281828459045235360287471352662498}}};
  for (int i = 0; i < kDTypeCount; ++i)
    words[static_cast<std::size_t>(12 + i)] = {name_of(static_cast<DType>(i)), Token::Type, Operator::None, static_cast<std::uint32_t>(i)};
  return words;
}();

/// Returns "a type", "a constant" or "a keyword".
std::string_view kind_of(const ReservedWord& word);

inline bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }
/// Returns the length in bytes of the code point at `at`; 0 for invalid UTF-8 (including overlong forms, surrogates and values above
/// U+10FFFF).
std::size_t code_point_bytes(std::string_view text, std::size_t at);

}  // namespace onepass::language
