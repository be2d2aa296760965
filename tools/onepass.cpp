// The `onepass` command: chooses the command, and turns exceptions into messages and exit codes. 0: done; 2: a mistake of the user, one
// message on stderr; 1: a mistake of ours.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/os_mapped.h"
#include "tools/onepass_command.h"

namespace {

using onepass::command::Words;

constexpr std::string_view kHelp = R"(onepass: compiles array formulas into single passes over memory

Commands, each with an example; PROGRAM is a formula, a .fuse file, or - for standard input:

  run      runs a program on .npy files
             onepass run 'x*w + b' x=x.npy w=w.npy b=b.npy -o out=y.npy
             onepass run --batch jobs.jsonl
  dump     shows what the compiler makes of a program: graph, kernels, loops, LLVM IR, assembly
             onepass dump 'x*w + b' --shapes x=f32[64,256] w=f32[256] b=f32[256] --groups
  bench    times a program on random inputs
             onepass bench examples/programs/softmax.fuse --shapes x=f32[4096,1024] --json
  doctor   says what this machine has and what to do about what it lacks
             onepass doctor
  diff     compares two dumps, or two folders of generated kernels
             onepass diff before.json after.json
  cache    looks after kernels on disk
             onepass cache stats

onepass COMMAND --help lists a command's options. Exit code 0, or 2 with the error on stderr (1 for a fault of onepass).
)";

struct Command {
  std::string_view name;
  int (*run)(Words words);
};
constexpr Command kCommands[] = {{"run", onepass::command::run},     {"dump", onepass::command::dump},
                                 {"bench", onepass::command::bench}, {"diff", onepass::command::diff},
                                 {"cache", onepass::command::cache}, {"doctor", onepass::command::doctor}};

int dispatch(const std::string& name, Words words) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(std::move(words));
    names.emplace_back(command.name);
  }
  throw onepass::NameError(fmt::format("there is no command `{}`{}; the commands are {}", name, onepass::command::suggestion(name, names),
                                       onepass::command::list_of(names)));
}

// One message on stderr, whatever happened to stdout before.
int fail(int code, std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", message);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the user's limit is then an error of the write, with its message
  onepass::os::guard_mapped_files();
  Words words(argv + 1, argv + argc);
  if (words.empty()) {
    fmt::print(stderr, "{}", kHelp);
    return 2;
  }
  const std::string command = words.front();
  words.erase(words.begin());
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (command == "--version") {
    fmt::print("onepass {}\n", ONEPASS_VERSION);
    return 0;
  }
  try {
    const int code = dispatch(command, std::move(words));
    // A full disk or a closed pipe behind stdout shows here at the latest.
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) return fail(2, "onepass: standard output cannot be written");
    return code;
  } catch (const onepass::FormulaError& error) {
    return fail(2, error.what());  // begins with file:line:column, which editors know
  } catch (const onepass::Error& error) { return fail(2, fmt::format("onepass: {}", error.what())); } catch (const CLI::ParseError& error) {
    return fail(2, fmt::format("onepass {}: {}; `onepass {} --help` lists its options", command, error.what(), command));
  } catch (const std::bad_alloc&) { return fail(2, "onepass: out of memory"); } catch (const onepass::InternalError& error) {
    return fail(1, fmt::format("onepass: a fault of onepass, please report it: {}", error.what()));
  } catch (const std::exception& error) { return fail(1, fmt::format("onepass: a fault of onepass, please report it: {}", error.what())); }
}
