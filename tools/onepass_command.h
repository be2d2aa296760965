// Shared parts of the `onepass` commands: conversion of command-line words to programs, types and modes; arrays as text. Each command is
// one function in its own file; main() in onepass.cpp turns exceptions into messages and exit codes.
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

namespace onepass::command {

using Words = std::vector<std::string>;

int run(Words words);
int dump(Words words);
int bench(Words words);
int cache(Words words);
int diff(Words words);
int doctor(Words words);

// ---- the process
/// Installs handlers that delete temporary files before a signal ends the command (SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT). SIGINT ends
/// it with exit code 130. A file above the user's size limit becomes a write error, not a signal.
void install_signal_handlers();

/// While an instance exists, the first SIGINT makes `asked_to_stop` true, for Options::should_stop; the second SIGINT ends the command.
struct InterruptibleCall {
  InterruptibleCall();
  ~InterruptibleCall();
  InterruptibleCall(const InterruptibleCall&) = delete;
  InterruptibleCall& operator=(const InterruptibleCall&) = delete;
  static bool asked_to_stop();
};

// ---- options (onepass_options.h)
/// Options that several commands share, as text.
struct CommonOptions {
  std::string mode = "adaptive";
  Relax relax;
  int threads = 0;
  std::vector<std::string> limits;
};
Options options_of(const CommonOptions& options);

Mode mode_of(std::string_view text);
std::string_view text_of(Mode mode);
Words mode_names();
Relax relax_of(std::string_view list);                    // throws for an empty name or a duplicate
int thread_count(std::string_view text);                  // decimal, at least 1
Limits limits_of(const std::vector<std::string>& words);  // `nesting=5000`, …
Words limit_names();

/// Splits `name=value` at the first `=`. Throws `COMMAND: WORD: expected FORM` if the name is missing.
std::pair<std::string, std::string> name_and_value(std::string_view command, const std::string& word, std::string_view form);

// ---- programs
struct Source {
  std::string text;
  std::string name;  // for messages
  bool is_graph = false;
};
/// Returns the source of a program. It is a formula, the text of a `.fuse` file, standard input for `-`, or the recorded graph of a dump
/// `NAME.json`.
Source program_source(std::string_view command, const std::string& program, const Limits& limits);
ProgramText program_of(const Source& source, const Limits& limits);

/// Named type, such as `x=f32[64,256]`.
struct NamedType {
  std::string name;
  runtime::ArgumentType type;
};
bool is_named_type(const std::string& word);
NamedType named_type(std::string_view command, const std::string& word);
/// Returns one type for each input of the program, in its order. Throws for unknown, duplicate and missing names. A graph has its own
/// types.
std::vector<runtime::ArgumentType> types_of(std::string_view command, const ProgramText& program, const Words& shapes);

std::string type_text(const runtime::ArgumentType& type);  // such as "f32[64,256]", as --shapes accepts it
/// Returns the target processor and the number of cores in use, such as "znver4, 2 cores".
std::string processor_text();

/// Returns " (did you mean `nearest`?)", or an empty text if no candidate is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& candidates);
/// Like suggestion() for a name of the program. For a reserved word of the language, suggests a replacement.
std::string suggestion_of_name(const std::string& name, const std::vector<std::string>& candidates);
std::string list_of(const std::vector<std::string>& names);  // "x, w, b", or "none"
std::string bytes_text(std::int64_t bytes);                  // "4096 B", "16.8 MB"

// ---- arrays
/// Returns the first element, in row-major order, with different bits (all NaNs being equal); -1 if all are equal. Shapes and types must
/// match.
std::int64_t first_difference(const Array& a, const Array& b);
std::string element_text(const Array& array, std::int64_t element);
std::string coordinates_text(std::span<const std::int64_t> shape, std::int64_t element);

}  // namespace onepass::command
