// Lexer: splits a formula's text into tokens, one at a time.
#pragma once

#include <string>
#include <vector>

#include "ir/formula_parts.h"

namespace onepass::language {

// Maps names to ids by open addressing over Program::names. Usually costs one hash and one comparison for each word of the text.
class Interner {
 public:
  Interner(std::vector<std::string>& names, std::uint64_t& steps) : names_(names), steps_(steps), slots_(256) {}

  NameId intern(std::string_view text) {
    if (names_.size() * 2 >= slots_.size()) grow();
    const std::uint32_t hash = hash_of(text);
    std::size_t i = hash & (slots_.size() - 1);
    for (; slots_[i].name != kAbsent; i = (i + 1) & (slots_.size() - 1), ++steps_)
      if (slots_[i].hash == hash && names_[slots_[i].name] == text) return slots_[i].name;
    slots_[i] = {hash, static_cast<NameId>(names_.size())};
    names_.emplace_back(text);
    return slots_[i].name;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    NameId name = kAbsent;
  };
  static std::uint32_t hash_of(std::string_view text) {
    std::uint64_t h = 0x9e3779b97f4a7c15u ^ text.size();
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return static_cast<std::uint32_t>(h >> 32);
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    steps_ += slots_.size();
    for (const Slot& slot : old) {
      if (slot.name == kAbsent) continue;
      std::size_t i = slot.hash & (slots_.size() - 1);
      while (slots_[i].name != kAbsent) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }

  std::vector<std::string>& names_;
  std::uint64_t& steps_;
  std::vector<Slot> slots_;
};

/// Lexer of the text in program.source. Stores names, strings and steps in the program, which is also the subject of its errors.
class Lexer {
 public:
  explicit Lexer(Program& program);
  Lexeme lex();
  [[noreturn]] void fail_integer(std::uint32_t offset, std::string_view number, std::string_view what) const;

 private:
  [[noreturn]] void fail(std::uint32_t offset, std::string_view message) const { throw error_at(program_, offset, message); }
  [[noreturn]] void fail_character() const;
  char peek_char(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void check_encoding() const;
  Lexeme lex_word_or_sign();
  void lex_word(Lexeme& lexeme);
  void lex_number(Lexeme& lexeme);
  void lex_string(Lexeme& lexeme);
  void lex_sign(Lexeme& lexeme);

  Program& program_;
  Interner interner_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t open_brackets_ = 0;  // inside brackets a newline is white space
};

}  // namespace onepass::language
