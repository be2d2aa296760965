#include "tools/onepass_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "onepass/error.h"
#include "runtime/threads.h"

namespace onepass::command {

namespace {

constexpr char kProgramMark = '\x01';  // marks a program that begins with `-` while CLI11 parses the words

bool completing = false;
std::map<const CLI::Option*, Words> offered;

void print_completions(const CLI::App& app, const Words& words) {
  const std::string word = words.empty() || words.back() == "=" ? "" : words.back();
  std::size_t before = words.size() < 2 ? 0 : words.size() - 1;  // bash splits `--mode=generic` at the `=`
  while (before > 0 && words[before - 1] == "=") --before;
  const auto values = [](const CLI::Option* option) {
    const auto found = offered.find(option);
    if (found == offered.end()) return fmt::print(":files\n");
    for (const std::string& value : found->second) fmt::print("{}\t\n", value);
  };
  if (word.starts_with('-') && word != "-") {
    for (const CLI::Option* const option : app.get_options())
      for (const std::string& name : option->get_lnames()) fmt::print("--{}\t{}\n", name, option->get_description());
    return;
  }
  if (before > 0 && words[before - 1].starts_with('-')) {
    const CLI::Option* const option = app.get_option_no_throw(words[before - 1]);
    if (option && option->get_items_expected_max() > 0) return values(option);
  }
  for (const CLI::Option* const option : app.get_options())
    if (option->get_positional() && offered.contains(option) && words.size() == 1) return values(option);
  fmt::print(":files\n");
}

}  // namespace

void complete_next() { completing = true; }

Option& Option::offers(Words words) {
  offered[option_] = std::move(words);
  return *this;
}
Option& Option::repeats() {
  option_->allow_extra_args(false)->take_all();
  return *this;
}
Option& Option::needs(const std::string& other) {
  option_->needs(other);
  return *this;
}
bool Option::is_given() const { return option_->count() > 0; }

CommandLine::CommandLine(std::string name, std::string description)
    : name_(std::move(name)), app_(std::make_unique<CLI::App>(std::move(description), "onepass " + name_)) {}
CommandLine::~CommandLine() = default;

Option CommandLine::add(const std::string& name, std::string& value, std::string meaning) {
  return Option(app_->add_option(name, value, std::move(meaning)));
}
Option CommandLine::add(const std::string& name, Words& values, std::string meaning) {
  return Option(app_->add_option(name, values, std::move(meaning)));
}
Option CommandLine::add(const std::string& name, std::function<void(const std::string&)> take, std::string meaning) {
  return Option(app_->add_option_function<std::string>(name, take, std::move(meaning)));
}
Option CommandLine::add_flag(const std::string& name, bool& value, std::string meaning) {
  return Option(app_->add_flag(name, value, std::move(meaning)));
}
void CommandLine::footer(std::string text) { app_->footer(std::move(text)); }

void CommandLine::parse(Words words) {
  if (completing) {
    print_completions(*app_, words);
    throw HelpShown();
  }
  for (std::string& word : words) {
    if (word == "--") break;
    // `-`, `-h`, `-o` and `-oNAME=…` are options; any other word with one dash is a formula.
    if (word.size() >= 2 && word[0] == '-' && word[1] != '-' && word != "-h" && word[1] != 'o') word.insert(word.begin(), kProgramMark);
  }
  for (CLI::Option* const option : app_->get_options())  // removes the mark from option values
    if (!option->get_positional() && option->get_items_expected_max() > 0)
      option->transform([](std::string value) { return value.starts_with(kProgramMark) ? value.substr(1) : value; });
  // A flag takes no value, but CLI11 would accept `--compare=no`.
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) continue;
    const CLI::Option* const option = app_->get_option_no_throw(word.substr(0, equals));
    if (option && option->get_items_expected_max() == 0)
      throw ValueError(fmt::format("{}: {} takes no value, but `{}` gives one", name_, word.substr(0, equals), word));
  }
  std::reverse(words.begin(), words.end());  // CLI11 expects this order
  try {
    app_->parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app_->help());
    throw HelpShown();
  } catch (const CLI::ParseError& error) { throw UsageError{error.what()}; }
}

std::string take_program(std::string_view command, Words& positional) {
  for (std::string& word : positional)
    if (!word.empty() && word[0] == kProgramMark) {
      std::string program = word.substr(1);
      positional.erase(positional.begin() + (&word - positional.data()));
      return program;
    }
  if (positional.empty())
    throw ValueError(fmt::format("{}: the program is missing. Pass a formula, a .fuse file, or - for standard input", command));
  std::string program = std::move(positional.front());
  positional.erase(positional.begin());
  return program;
}

Words unmarked(Words positional) {
  for (std::string& word : positional)
    if (!word.empty() && word[0] == kProgramMark) word.erase(0, 1);
  return positional;
}

void add_mode(CommandLine& line, CommonOptions& options) {
  line.add("--mode", options.mode, "adaptive (default), generic, specialized, unfused or reference").offers(mode_names());
}
// Parsed on occurrence, so that an empty text is an error and differs from an omitted option.
void add_relax(CommandLine& line, CommonOptions& options) {
  line.add(
          "--relax", [&options](const std::string& list) { options.relax = relax_of(list); },
          "relaxations to allow, from contract,reassociate,approximate (default: none)")
      .offers({"contract", "reassociate", "approximate"});
}
void add_threads(CommandLine& line, CommonOptions& options) {
  line.add(
          "--threads", [&options](const std::string& text) { options.threads = thread_count(text); },
          fmt::format("number of threads, 1 to {} (default: all cores)", threads::kMaxThreads))
      .offers({});
}
void add_limits(CommandLine& line, CommonOptions& options) {
  Words names = limit_names();
  for (std::string& name : names) name += '=';
  line.add("--limit", options.limits,
           "NAME=NUMBER, where NAME is nesting, name_bytes, source_bytes, max_nodes, rank, array_bytes, work or compile_ms; "
           "repeat for several")
      .repeats()
      .offers(std::move(names));
}

}  // namespace onepass::command
