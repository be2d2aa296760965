// What the commands of `onepass` share: words of the command line as programs, types, modes; arrays as text. Each command is one function
// in its own file; main() in onepass.cpp turns exceptions into messages and exit codes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/options.h"
#include "runtime/program.h"
#include "tools/program_text.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace onepass::command {

using Words = std::vector<std::string>;

int run(Words words);
int dump(Words words);
int bench(Words words);
int cache(Words words);
int diff(Words words);
int doctor(Words words);

// ---- the process
/// A signal that ends the command (SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT) deletes its temporary files first; SIGINT ends it with exit code
/// 130. A file beyond the user's limit is an error of the write, no signal.
void install_signal_handlers();

/// While one is there, the first SIGINT makes `asked_to_stop` true, which Options::should_stop asks for; the second ends the command.
struct InterruptibleCall {
  InterruptibleCall();
  ~InterruptibleCall();
  InterruptibleCall(const InterruptibleCall&) = delete;
  InterruptibleCall& operator=(const InterruptibleCall&) = delete;
  static bool asked_to_stop();
};

// ---- the command line
/// Thrown where `--help` was among the words: it is printed, and there is nothing else to do.
struct HelpShown {};
/// Parses the words after the command's name. A word such as `-x*2`, which no command has as an option, is left to be the program.
void parse_words(CLI::App& app, Words words);
/// Which words a value of the option, or a positional, may be: the completions of the shells offer them. Without, they offer files.
void offers(const CLI::Option* option, Words words);
/// From now on parse_words() prints, in place of parsing, what the last of its words may become, and throws HelpShown: a line for each word, with a
/// tab and what it means; a word that ends with `=` goes on; `:files` stands for files.
void complete_next();
/// The program among the positional words, marked or not by parse_words: taken out. Error `COMMAND: …` when there is none.
std::string take_program(std::string_view command, Words& positional);
/// Positional words that are all programs, without the marks of parse_words.
Words unmarked(Words positional);

/// Options that several commands have, as text.
struct CommonOptions {
  std::string mode = "adaptive";
  Relax relax;
  int threads = 0;
  std::vector<std::string> limits;
};
void add_mode(CLI::App& app, CommonOptions& options);
void add_relax(CLI::App& app, CommonOptions& options);
void add_threads(CLI::App& app, CommonOptions& options);
void add_limits(CLI::App& app, CommonOptions& options);
Options options_of(const CommonOptions& options);

Mode mode_of(std::string_view text);
std::string_view text_of(Mode mode);
Words mode_names();
Relax relax_of(std::string_view list);                    // error for an empty name, or one given twice
int thread_count(std::string_view text);                  // decimal, at least 1
Limits limits_of(const std::vector<std::string>& words);  // `nesting=5000`, …

/// `name=value`, split at the first `=`. Error `COMMAND: WORD: expected FORM` where there is no name.
std::pair<std::string, std::string> name_and_value(std::string_view command, const std::string& word, std::string_view form);

// ---- programs
struct Source {
  std::string text;
  std::string name;  // in messages
  bool is_graph = false;
};
/// A formula, the text of a `.fuse` file, or of standard input for `-`; the recorded graph of a dump, which is a file `NAME.json`.
Source program_source(std::string_view command, const std::string& program, const Limits& limits);
ProgramText program_of(const Source& source, const Limits& limits);

/// `x=f32[64,256]`
struct NamedType {
  std::string name;
  runtime::ArgumentType type;
};
bool is_named_type(const std::string& word);
NamedType named_type(std::string_view command, const std::string& word);
/// One type for each input of the program, in its order; errors for names that it does not have, or twice, or not at all. A graph has its own.
std::vector<runtime::ArgumentType> types_of(std::string_view command, const ProgramText& program, const Words& shapes);

std::string type_text(const runtime::ArgumentType& type);  // "f32[64,256]", as --shapes takes it
/// The processor that kernels are compiled for, and how many of its cores are used: "znver4, 2 cores".
std::string processor_text();

/// ", perhaps you mean `nearest`", or nothing where no candidate is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& candidates);
/// The same for a name of the program's: of a word that the language keeps for itself, what to write in its place.
std::string suggestion_of_name(const std::string& name, const std::vector<std::string>& candidates);
std::string list_of(const std::vector<std::string>& names);  // "x, w, b", or "none"
std::string bytes_text(std::int64_t bytes);                  // "4096 B", "16.8 MB"

// ---- arrays
/// The first element, in row-major order, whose bits differ, all NaNs being equal; -1 where there is none. Shapes and types are equal.
std::int64_t first_difference(const Array& a, const Array& b);
std::string element_text(const Array& array, std::int64_t element);
std::string coordinates_text(std::span<const std::int64_t> shape, std::int64_t element);

}  // namespace onepass::command
