// The `onepass` command: selects the command, and turns exceptions into messages and exit codes. 0: success; 2: a user error, with one
// message on stderr; 1: an internal error.
#include <fmt/format.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/message.h"
#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/os_mapped.h"
#include "tools/onepass_command.h"
#include "tools/onepass_options.h"
#include "tools/onepass_terminal.h"

namespace {

using onepass::command::Words;

// The commands, with their texts for --help, the manual page and the shell completions.
struct Command {
  std::string_view name;
  int (*run)(Words words);
  std::string_view summary;
  std::string_view examples;  // one for each line
};
constexpr Command kCommands[] = {
    {"run", onepass::command::run, "runs a program on files of arrays and on numbers",
     "onepass run 'sin(x) * k' x=x.npy k=0.5\n"
     "onepass run 'x*w + b' x=x.npy w=w.npy b=b.npy -o out=y.npy\n"
     "onepass run --batch jobs.jsonl"},
    {"dump", onepass::command::dump, "shows how the compiler translates a program: graph, kernels, loops, LLVM IR, assembly",
     "onepass dump 'x*w + b' --shapes x=f32[64,256] w=f32[256] b=f32[256] --groups"},
    {"bench", onepass::command::bench, "times a program on random inputs",
     "onepass bench examples/programs/softmax.fuse --shapes x=f32[4096,1024] --json"},
    {"doctor", onepass::command::doctor, "shows the features of this machine and how to fix missing ones", "onepass doctor"},
    {"diff", onepass::command::diff,
     "compares two programs, one program for two sets of shapes, two dumps, or two folders of generated kernels",
     "onepass diff 'softmax(x)' 'softmax(x)*2' --shapes x=f32[64,256]"},
    {"cache", onepass::command::cache, "manages the kernels on disk", "onepass cache stats"}};

std::string help() {
  std::string text =
      "onepass: compiles array formulas into single passes over memory\n\n"
      "Commands, each with an example; PROGRAM is a formula, a .fuse file, or - for standard input:\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:8} {}\n", command.name, command.summary);
    for (std::string_view rest = command.examples; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      text += fmt::format("             {}\n", rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return text +
         "\nonepass COMMAND --help lists the options of a command, onepass -V prints the version. The exit code is 0, or 2 with the error "
         "on stderr (1 for an internal error of onepass).\n";
}

int dispatch(const std::string& name, Words words) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(std::move(words));
    names.emplace_back(command.name);
  }
  throw onepass::NameError(fmt::format("there is no command `{}`{}; the commands are {}", name, onepass::command::suggestion(name, names),
                                       onepass::command::list_of(names)));
}

// Prints the completions of the last word, one on each line, for the scripts in tools/completions.
int complete(Words words) {
  if (words.size() <= 1) {
    for (const Command& command : kCommands) fmt::print("{}\t{}\n", command.name, command.summary);
    fmt::print("--help\tthe commands\n--version\tthe version\n");
    return 0;
  }
  const std::string command = words.front();
  words.erase(words.begin());
  onepass::command::complete_next();
  try {
    return dispatch(command, std::move(words));
  } catch (...) { return 0; }  // already printed, or no completions
}

// Prints one message on stderr, whatever happened to stdout before. If stderr cannot be written either, only the exit code reports the
// error.
int fail(int code, std::string_view message) {
  std::fflush(stdout);
  std::string text =
      code == 2 ? onepass::shortened(message, onepass::kMostErrorBytes + 90) : std::string(message);  // internal errors contain the graph
  const std::size_t name = text.starts_with("onepass") ? text.find(':') + 1 : 0;                      // highlighted on a terminal
  if (name > 0) text.replace(0, name, onepass::command::styled(stderr, onepass::command::Style::Error, text.substr(0, name)));
  text += '\n';
  std::fputs(text.c_str(), stderr);
  return code;
}

// Detects a full disk or a closed pipe at stdout, at the latest when the command ends.
int after_printing(int code) {
  return std::fflush(stdout) != 0 || std::ferror(stdout) ? fail(2, "onepass: standard output cannot be written") : code;
}

// Opens closed standard descriptors so that they fail on use. Otherwise an output file could become the standard output.
void open_standard_descriptors() {
  for (int descriptor = 0; descriptor < 3; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace

int main(int argc, char** argv) {
  onepass::os::guard_mapped_files();
  open_standard_descriptors();
  onepass::command::install_signal_handlers();
  Words words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fputs(help().c_str(), stderr);
    return 2;
  }
  const std::string command = words.front();
  words.erase(words.begin());
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(help().c_str(), stdout);
    return after_printing(0);
  }
  if (command == "--version" || command == "-V") {
    std::fputs("onepass " ONEPASS_VERSION "\n", stdout);
    return after_printing(0);
  }
  if (command == "--complete") return after_printing(complete(std::move(words)));
  try {
    return after_printing(dispatch(command, std::move(words)));
  } catch (const onepass::command::HelpShown&) { return after_printing(0); } catch (const onepass::FormulaError& error) {
    return fail(2, error.what());  // begins with file:line:column, which editors parse
  } catch (const onepass::CancelledError& error) {
    return fail(130, fmt::format("onepass: {}", error.what()));
  } catch (const onepass::Error& error) {
    return fail(2, fmt::format("onepass: {}", error.what()));
  } catch (const onepass::command::UsageError& error) {
    return fail(2, fmt::format("onepass {}: {}; `onepass {} --help` lists its options", command, error.what, command));
  } catch (const std::bad_alloc&) { return fail(2, "onepass: out of memory"); } catch (const onepass::InternalError& error) {
    return fail(1, fmt::format("onepass: internal error, please report it: {}", error.what()));
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return after_printing(2);  // the print function's exception
    return fail(1, fmt::format("onepass: internal error, please report it: {}", error.what()));
  }
}
