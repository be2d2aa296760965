// onepass cache: looks after the kernels that are kept on disk.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <string>

#include "onepass/error.h"
#include "runtime/disk_cache.h"
#include "tools/onepass_command.h"

namespace onepass::command {
namespace {

using runtime::DiskCache;
using State = DiskCache::File::State;

std::string size_text(std::int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

std::string counted(std::int64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

void stats(const DiskCache& cache) {
  fmt::print("folder: {}\n", cache.folder());
  struct Sum {
    std::int64_t files = 0, bytes = 0;
  };
  std::array<Sum, 5> sums;
  Sum optimised;
  for (const DiskCache::File& f : cache.list()) {
    if (f.state == State::Usable && !f.has_code) continue;
    Sum& sum = sums[static_cast<std::size_t>(f.state)];
    ++sum.files, sum.bytes += f.bytes;
    if (f.state == State::Usable && f.tier == compiler::Tier::Optimised) ++optimised.files;
  }
  const auto line = [&](std::string_view name, State state) {
    const Sum& sum = sums[static_cast<std::size_t>(state)];
    fmt::print("{}: {}, {}\n", name, counted(sum.files, "kernel"), size_text(sum.bytes));
  };
  line("usable here", State::Usable);
  fmt::print("of these optimised: {}\n", optimised.files);
  line("for other processors", State::OtherProcessor);
  line("of other builds of onepass", State::OtherBuild);
  line("damaged", State::Damaged);
  line("not trusted", State::Untrusted);
}

// What may not be yours is named, each file of it: somebody put it there.
int verify(DiskCache& cache) {
  std::int64_t damaged = 0, untrusted = 0;
  for (const DiskCache::File& f : cache.list()) {
    damaged += f.state == State::Damaged;
    if (f.state != State::Untrusted) continue;
    ++untrusted;
    fmt::print("{}/{} {}\n", cache.folder(), f.name, f.objection);
  }
  const std::int64_t removed = cache.remove_damaged();
  if (untrusted > 0) fmt::print("{} not trusted\n", counted(untrusted, "kernel"));
  fmt::print("{} removed\n", counted(removed, untrusted > 0 ? "damaged or untrusted kernel" : "damaged kernel"));
  if (const std::string why = cache.refusal(); !why.empty())
    throw IoError(fmt::format("cache: the folder {} {}; until then no kernel is kept there", cache.folder(), why));
  return removed == damaged + untrusted ? 0 : 2;
}

}  // namespace

int cache(Words words) {
  CLI::App app{
      "Looks after kernels on disk: stats counts them, verify removes damaged ones and those that others could have written, clear removes "
      "all, export and import carry them to an "
      "equal machine in one file.",
      "onepass cache"};
  app.footer(
      "An archive is machine code that your programs will run: import asks for --trust unless it is as you exported it from this "
      "folder.\n\n"
      "The folder is ONEPASS_CACHE_DIR, else onepass in the user's cache folder; ONEPASS_CACHE_DIR=none switches it off.\n\n"
      "Example:\n  onepass cache stats\n  onepass cache export kernels.onepass");
  std::string action = "stats", file;
  bool trust = false;
  app.add_option("ACTION", action, "stats, verify, clear, export FILE or import FILE");
  app.add_option("FILE", file, "of export and import");
  app.add_flag("--trust", trust, "of import: the archive, which is machine code, comes from somebody that you trust as yourself");
  parse_words(app, std::move(words));
  const bool takes_file = action == "export" || action == "import";
  if (action != "stats" && action != "verify" && action != "clear" && !takes_file)
    throw ValueError(
        fmt::format("cache: there is no action `{}`; the actions are stats, verify, clear, export FILE and import FILE", action));
  if (takes_file && file.empty())
    throw ValueError(fmt::format("cache: {} needs a file, as in `onepass cache {} kernels.onepass`", action, action));
  if (!takes_file && !file.empty()) throw ValueError(fmt::format("cache: {} takes no file, and `{}` was given", action, file));

  if (trust && action != "import") throw ValueError(fmt::format("cache: --trust is of import, not of {}", action));

  DiskCache& cache = runtime::disk_cache();
  if (!cache.enabled()) {
    if (action != "stats") throw ValueError("cache: it is switched off; set ONEPASS_CACHE_DIR to a folder");
    fmt::print("folder: none\n");
    return 0;
  }
  if (action == "stats") {
    stats(cache);
  } else if (action == "verify") {
    return verify(cache);
  } else if (action == "clear") {
    fmt::print("{} removed\n", counted(cache.clear(), "kernel"));
  } else if (action == "export") {
    fmt::print("{} written to {}\n", counted(cache.export_to(file), "kernel"), file);
  } else {
    const DiskCache::Imported imported = cache.import_from(file, trust);
    fmt::print("{} added; left out: {} for other processors, {} of other builds, {} damaged\n", counted(imported.added, "kernel"),
               imported.other_processor, imported.other_build, imported.damaged);
  }
  return 0;
}

}  // namespace onepass::command
