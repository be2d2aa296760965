// What the command shows on a terminal alone: colours, and what long work is doing. Elsewhere it writes plain text, the same in every run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace onepass::command {

enum class Style { Bold, Good, Warning, Error };

/// The text with the terminal's codes for a style; the text alone where the stream is no terminal, TERM is `dumb`, or NO_COLOR is set and not
/// empty (https://no-color.org).
std::string styled(std::FILE* stream, Style style, std::string_view text);

/// While it is there, and after a second, the last line of standard error says what is being done and for how long; its end erases the line.
/// Nothing at all where standard error is no terminal. One at a time.
class Progress {
 public:
  explicit Progress(std::string doing);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void say(std::string doing);
  /// What stands before that from now on.
  void prefix(std::string text);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace onepass::command
