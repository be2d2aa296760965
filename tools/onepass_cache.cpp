// onepass cache: manages the kernels that are stored on disk.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/disk_cache.h"
#include "tools/onepass_command.h"
#include "tools/onepass_options.h"

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

using Json = nlohmann::ordered_json;

// Totals that `stats` prints, for files with code.
struct Sum {
  std::int64_t files = 0, bytes = 0;
};
struct Kind {
  State state;
  std::string_view name, member;
};
constexpr Kind kKinds[] = {{State::Usable, "usable here", "usable"},
                           {State::OtherProcessor, "for other processors", "other_processor"},
                           {State::OtherBuild, "from other builds of onepass", "other_build"},
                           {State::Damaged, "damaged", "damaged"},
                           {State::Untrusted, "not trusted", "untrusted"}};

void print(const Json& answer) {
  Json line = {{"version", ONEPASS_VERSION}};
  line.update(answer);
  fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json stats(const DiskCache& cache, bool json) {
  std::array<Sum, 5> sums;
  std::int64_t optimized = 0;
  for (const DiskCache::File& f : cache.list()) {
    if (f.state == State::Usable && !f.has_code) continue;
    Sum& sum = sums[static_cast<std::size_t>(f.state)];
    ++sum.files, sum.bytes += f.bytes;
    if (f.state == State::Usable && f.tier == compiler::Tier::Optimised) ++optimized;
  }
  Json answer = {{"folder", cache.folder()}};
  if (!json) fmt::print("folder: {}\n", cache.folder());
  for (const Kind& kind : kKinds) {
    const Sum& sum = sums[static_cast<std::size_t>(kind.state)];
    answer[std::string(kind.member)] = {{"kernels", sum.files}, {"bytes", sum.bytes}};
    if (kind.state == State::Usable) answer["usable"]["optimized"] = optimized;
    if (json) continue;
    fmt::print("{}: {}, {}\n", kind.name, counted(sum.files, "kernel"), size_text(sum.bytes));
    if (kind.state == State::Usable) fmt::print("of which optimized: {}\n", optimized);
  }
  return answer;
}

// Prints the name of each untrusted file, because another user may have put it there.
int verify(DiskCache& cache, bool json) {
  std::int64_t damaged = 0, untrusted = 0;
  Json named = Json::array();
  for (const DiskCache::File& f : cache.list()) {
    damaged += f.state == State::Damaged;
    if (f.state != State::Untrusted) continue;
    ++untrusted;
    named.push_back({{"file", f.name}, {"why", f.objection}});
    if (!json) fmt::print("{}/{} {}\n", cache.folder(), f.name, f.objection);
  }
  const std::int64_t removed = cache.remove_damaged();
  if (json) {
    print(Json{{"folder", cache.folder()}, {"damaged", damaged}, {"untrusted", std::move(named)}, {"removed", removed}});
  } else {
    if (untrusted > 0) fmt::print("{} not trusted\n", counted(untrusted, "kernel"));
    fmt::print("{} removed\n", counted(removed, untrusted > 0 ? "damaged or untrusted kernel" : "damaged kernel"));
  }
  if (const std::string why = cache.refusal(); !why.empty())
    throw IoError(fmt::format("cache: the folder {} {}; no kernel is stored there until this is fixed", cache.folder(), why));
  return removed == damaged + untrusted ? 0 : 2;
}

}  // namespace

int cache(Words words) {
  CommandLine app(
      "cache",
      "Manages the kernels on disk. stats counts them. verify removes damaged kernels and kernels that other users could have written. "
      "clear removes all kernels. export and import copy them to an equal machine in one file.");
  app.footer(
      "An archive contains machine code that your programs will run. import requires --trust unless the archive is identical to one "
      "exported from this folder.\n\nThe folder is ONEPASS_CACHE_DIR if set, otherwise onepass in the user's cache folder; "
      "ONEPASS_CACHE_DIR=none disables it.\n\nExample:\n  onepass cache stats\n  onepass cache export kernels.onepass");
  std::string action = "stats", file;
  bool trust = false, json = false;
  app.add("ACTION", action, "stats, verify, clear, export FILE or import FILE").offers({"stats", "verify", "clear", "export", "import"});
  app.add("FILE", file, "the archive for export and import");
  app.add_flag("--trust", trust, "with import: trust the archive, which contains machine code, as you trust your own programs");
  app.add_flag("--json", json, "print one line of JSON");
  app.parse(std::move(words));
  const bool takes_file = action == "export" || action == "import";
  if (action != "stats" && action != "verify" && action != "clear" && !takes_file)
    throw ValueError(
        fmt::format("cache: there is no action `{}`; the actions are stats, verify, clear, export FILE and import FILE", action));
  if (takes_file && file.empty())
    throw ValueError(fmt::format("cache: {} needs a file. Write, for example, `onepass cache {} kernels.onepass`", action, action));
  if (!takes_file && !file.empty()) throw ValueError(fmt::format("cache: {} takes no file, but `{}` was given", action, file));

  if (trust && action != "import") throw ValueError(fmt::format("cache: --trust is allowed only with import, not with {}", action));

  DiskCache& cache = runtime::disk_cache();
  if (!cache.enabled()) {
    if (action != "stats") throw ValueError("cache: the kernel cache is disabled. Set ONEPASS_CACHE_DIR to a folder");
    if (json) print({{"folder", nullptr}});
    else fmt::print("folder: none\n");
    return 0;
  }
  if (action == "stats") {
    const Json answer = stats(cache, json);
    if (json) print(answer);
  } else if (action == "verify") {
    return verify(cache, json);
  } else if (action == "clear") {
    const std::int64_t removed = cache.clear();
    if (json) print({{"removed", removed}});
    else fmt::print("{} removed\n", counted(removed, "kernel"));
  } else if (action == "export") {
    const std::int64_t written = cache.export_to(file);
    if (json) print({{"written", written}, {"file", file}});
    else fmt::print("{} written to {}\n", counted(written, "kernel"), file);
  } else {
    const DiskCache::Imported imported = cache.import_from(file, trust);
    if (json)
      print({{"added", imported.added},
             {"other_processor", imported.other_processor},
             {"other_build", imported.other_build},
             {"damaged", imported.damaged}});
    else
      fmt::print("{} added; skipped: {} for other processors, {} from other builds, {} damaged\n", counted(imported.added, "kernel"),
                 imported.other_processor, imported.other_build, imported.damaged);
  }
  return 0;
}

}  // namespace onepass::command
