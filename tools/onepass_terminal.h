// Terminal output of the command: colors, and progress of long work. If the output is not a terminal, it is plain text, the same in every
// run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace onepass::command {

enum class Style { Bold, Good, Warning, Error };

/// Returns the text with the terminal's codes for a style. Returns it unchanged if the stream is not a terminal, TERM is `dumb`, or
/// NO_COLOR is set and not empty (https://no-color.org).
std::string styled(std::FILE* stream, Style style, std::string_view text);

/// Progress line. One second after construction, the last line of standard error shows the current work and its duration; the destructor
/// erases it. It shows no text if standard error is not a terminal. At most one instance may exist.
class Progress {
 public:
  explicit Progress(std::string doing);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void say(std::string doing);
  /// Sets a prefix for the text.
  void prefix(std::string text);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace onepass::command
