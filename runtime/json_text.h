// JSON output for records and profiles. Callers give names and values; commas and quotes are added automatically.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace onepass::runtime {

/// Writer that appends JSON to one string. Calls to open and close must be balanced; `key` precedes each value of an object.
class JsonText {
 public:
  JsonText& open(char bracket) {
    separate();
    text_ += bracket;
    fresh_ = true;
    return *this;
  }
  JsonText& close(char bracket) {
    text_ += bracket;
    fresh_ = false;
    return *this;
  }
  JsonText& key(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  JsonText& value(std::string_view text) {
    separate();
    quote(text);
    return *this;
  }
  JsonText& value(const char* text) { return value(std::string_view(text)); }
  JsonText& value(bool truth) { return raw(truth ? "true" : "false"); }
  template <std::integral I> JsonText& value(I number) {
    separate();
    fmt::format_to(std::back_inserter(text_), "{}", number);
    return *this;
  }
  JsonText& value(double number) {
    if (!std::isfinite(number)) return raw("null");
    separate();
    fmt::format_to(std::back_inserter(text_), "{:.6g}", number);
    return *this;
  }
  template <class List> JsonText& list(const List& values) {
    open('[');
    for (const auto& v : values) value(v);
    return close(']');
  }
  template <class T> JsonText& member(std::string_view name, const T& v) { return key(name).value(v); }
  JsonText& raw(std::string_view text) {
    separate();
    text_ += text;
    return *this;
  }
  /// Starts a new line before the next member, for readability.
  JsonText& line() {
    newline_ = true;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!fresh_) text_ += ',';
    if (newline_) text_ += '\n';
    fresh_ = newline_ = false;
  }
  void quote(std::string_view text) {
    text_ += '"';
    for (const char c : text) {
      switch (c) {
        case '"': text_ += "\\\""; break;
        case '\\': text_ += "\\\\"; break;
        case '\n': text_ += "\\n"; break;
        case '\t': text_ += "\\t"; break;
        default:
          if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
          else text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool fresh_ = true, newline_ = false;
};

}  // namespace onepass::runtime
