// The options of the `onepass` commands. Only onepass_options.cpp includes CLI11, whose templates take seconds to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tools/onepass_command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace onepass::command {

/// Exception for `--help` among the words: the help is already printed, and the command must end.
struct HelpShown {};
/// Exception for words that do not fit the options.
struct UsageError {
  std::string what;
};

/// One option, flag or positional of a command.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  /// Sets the words that a value may have, for shell completions. Without it, completions offer files.
  Option& offers(Words words);
  /// Each occurrence takes one value; several occurrences are allowed.
  Option& repeats();
  /// Requires another option, such as `--shapes`.
  Option& needs(const std::string& other);
  bool is_given() const;

 private:
  CLI::Option* option_;
};

/// The command line of one command. The variables of its options must outlive it.
class CommandLine {
 public:
  CommandLine(std::string name, std::string description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Adds an option, or a positional if the name has no dash. A function is called when its option occurs.
  Option add(const std::string& name, std::string& value, std::string meaning);
  Option add(const std::string& name, Words& values, std::string meaning);
  Option add(const std::string& name, std::function<void(const std::string&)> take, std::string meaning);
  Option add_flag(const std::string& name, bool& value, std::string meaning);
  /// Sets the text after the options in `--help`.
  void footer(std::string text);
  /// Parses the words after the command's name. A word such as `-x*2`, which is not an option of any command, is a program.
  void parse(Words words);

 private:
  std::string name_;
  std::unique_ptr<CLI::App> app_;
};

// Options that several commands share.
void add_mode(CommandLine& line, CommonOptions& options);
void add_relax(CommandLine& line, CommonOptions& options);
void add_threads(CommandLine& line, CommonOptions& options);
void add_limits(CommandLine& line, CommonOptions& options);

/// Switches CommandLine::parse() to completion: instead of parsing, it prints the completions of the last word and throws HelpShown. Each
/// line has a word, a tab and its meaning. A word that ends with `=` continues; `:files` means that files complete the word.
void complete_next();
/// Removes and returns the program among the positional words, with or without a mark of parse(). Throws `COMMAND: …` if it is missing.
std::string take_program(std::string_view command, Words& positional);
/// Returns positional words, all of which are programs, without the marks of parse().
Words unmarked(Words positional);

}  // namespace onepass::command
