// onepass diff: compares two programs, one program's kernels for two sets of types, two dumps (JSON or text), or two folders of generated
// kernels. Exits with 0 or 1, like diff.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "ir/formula_parts.h"
#include "ir/message.h"
#include "onepass/error.h"
#include "tools/onepass_command.h"
#include "tools/onepass_lines.h"
#include "tools/onepass_options.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kContext = 2;  // unchanged lines around each change

struct Style {
  std::size_t lines = 40;  // limit for one text's changes
};

// Reads through a stream, because `onepass diff <(…) <(…)` passes pipes, which cannot be mapped.
std::string text_of_file(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // a device may be endless
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  while (file && text.size() <= kMostBytes) {
    const std::size_t before = text.size(), chunk = std::size_t{1} << 18;
    text.resize(before + chunk);
    file.read(text.data() + before, static_cast<std::streamsize>(chunk));
    text.resize(before + static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) throw IoError(fmt::format("diff: {}: {}", path, errno ? std::strerror(errno) : "cannot be read"));
  if (text.size() > kMostBytes)
    throw IoError(fmt::format("diff: {}: the file has more than {} bytes, which is too large to compare", path, kMostBytes));
  return text;
}

// True if the bytes are UTF-8 without zero bytes, and so safe to print. edits_text handles other control characters.
bool is_text(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = bytes[i] == '\0' ? 0 : language::code_point_bytes(bytes, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

// Prints the changed lines under a title. Returns true if there are any.
bool texts_differ(std::string_view title, std::string_view a, std::string_view b, const Style& style) {
  if (a == b) return false;
  if (const bool one = is_text(a); !one || !is_text(b)) {
    fmt::print("{}: {} is not text; the bytes differ\n", title, one ? "the second" : is_text(b) ? "the first" : "either");
    return true;
  }
  const std::string text = edits_text(line_edits(a, b), "  ", kContext, style.lines);
  if (text.empty()) return false;  // the texts differ only in the last newline
  fmt::print("{}:\n{}", title, text);
  return true;
}

// ---- folders

// Returns the regular files of a folder. Pipes and devices are skipped, because they have no fixed content and may be endless.
std::set<std::string> files_of(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::error_code none; at->is_regular_file(none)) names.insert(fs::path(at->path()).lexically_relative(folder).generic_string());
  if (error) throw IoError(fmt::format("diff: {}: {}", folder, error.message()));
  return names;
}

bool folders_differ(const std::string& a, const std::string& b, const Style& style) {
  const std::set<std::string> in_a = files_of(a), in_b = files_of(b);
  bool differ = false;
  std::size_t changed = 0, common = 0;
  const auto only = [&](const std::set<std::string>& mine, const std::set<std::string>& others, const std::string& where) {
    for (const std::string& name : mine)
      if (!others.contains(name)) {
        fmt::print("{} is only in {}\n", name, where);
        differ = true;
      }
  };
  only(in_a, in_b, a);
  only(in_b, in_a, b);
  for (const std::string& name : in_a) {
    if (!in_b.contains(name)) continue;
    ++common;
    changed += texts_differ(name, text_of_file((fs::path(a) / name).string()), text_of_file((fs::path(b) / name).string()), style);
  }
  if (changed > 0) fmt::print("{} of {} files in both folders differ\n", changed, common);
  return differ || changed > 0;
}

// ---- dumps

// Parses the object of `dump --json`. Returns null if the text is not JSON, so that it is compared as text.
Json dump_of(const std::string& path, const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return nullptr;
  if (!json.contains("version") || !json.contains("graph") || !json["graph"].is_string() || !json.contains("kernels") ||
      !json["kernels"].is_array())
    throw ValueError(
        fmt::format("diff: {}: the file is JSON, but not a dump of `onepass dump --json` with version, graph and kernels", path));
  for (const Json& kernel : json["kernels"])
    if (!kernel.is_object()) throw ValueError(fmt::format("diff: {}: one of its kernels is not an object", path));
  return json;
}

// Returns a list as one line for each entry, and any other value as in JSON.
std::string lines_of(const Json& value) {
  if (!value.is_array()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::string text;
  for (const Json& item : value) text += (item.is_string() ? item.get<std::string>() : item.dump()) + "\n";
  return text;
}

std::string stores(const Json& kernel) {
  std::string names;
  if (kernel.contains("outputs"))
    for (const Json& output : kernel["outputs"])
      names += (names.empty() ? "" : ", ") + (output.is_string() ? output.get<std::string>() : output.dump());
  return names;
}

// `nodes`: true if the lists of nodes should be printed. If the graphs differ, their lines were already printed.
bool kernels_differ(std::string_view name, const Json& a, const Json& b, bool nodes, const Style& style) {
  if (a == b) return false;
  std::set<std::string> members;
  std::vector<std::string> order;
  for (const Json* kernel : {&a, &b})
    for (const auto& [member, value] : kernel->items())
      if (members.insert(member).second) order.push_back(member);
  bool differ = false, key = false;
  for (const std::string& member : order) {
    const Json mine = a.value(member, Json()), others = b.value(member, Json());
    if (mine == others) continue;
    if (member == "key") {  // a long hash, not useful to print
      key = true;
    } else if (member == "nodes" && !nodes) {
      fmt::print("{}: its nodes differ, as do the graphs ({} -> {})\n", name, mine.size(), others.size());
      differ = true;
    } else if (mine.is_array() || others.is_array()) {
      differ |= texts_differ(fmt::format("{}: {}", name, member), lines_of(mine), lines_of(others), style);
    } else {
      fmt::print("{}: {}: {} -> {}\n", name, member, lines_of(mine), lines_of(others));
      differ = true;
    }
  }
  if (key && !differ) fmt::print("{}: the key differs, so the loops, schedule or target differ; compare `dump --nests`\n", name);
  return differ || key;
}

bool dumps_differ(const Json& a, const Json& b, const Style& style) {
  bool differ = false;
  for (const char* const member : {"version", "signature"})
    if (a.contains(member) && b.contains(member) && a[member] != b[member]) {
      fmt::print("{}: {} -> {}\n", member, lines_of(a[member]), lines_of(b[member]));
      differ = true;
    }
  const bool graph = texts_differ("graph", a["graph"].get<std::string>(), b["graph"].get<std::string>(), style);
  const Json &mine = a["kernels"], &others = b["kernels"];
  if (mine.size() != others.size()) fmt::print("kernels: {} -> {}\n", mine.size(), others.size());
  differ |= graph || mine.size() != others.size();
  // Kernels that store the same values are partners. Kernels without a partner are printed.
  std::vector<bool> matched(others.size());
  std::vector<std::string> stored_by_others;
  for (const Json& kernel : others) stored_by_others.push_back(stores(kernel));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::string stored = stores(mine[i]), name = fmt::format("kernel {} ({})", i, stored);
    const auto is_partner = [&](std::size_t k) { return k < others.size() && !matched[k] && stored_by_others[k] == stored; };
    std::size_t partner = is_partner(i) ? i : 0;  // usually at the same index
    while (partner < others.size() && !is_partner(partner)) ++partner;
    if (partner < others.size()) {
      matched[partner] = true;
      differ |= kernels_differ(name, mine[i], others[partner], !graph, style);
    } else {
      fmt::print("{} is only in the first program\n", name);
      differ = true;
    }
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    if (!matched[i]) {
      fmt::print("kernel {} ({}) is only in the second program\n", i, stored_by_others[i]);
      differ = true;
    }
  return differ;
}

// ---- programs

// Returns the output of `dump --json` for a program.
Json dump_of_program(const std::string& program, const Words& shapes) {
  const Options options;
  const Source source = program_source("diff", program, options.limits);
  const ProgramText text = program_of(source, options.limits);
  return Json::parse(text.compile(options)->describe(types_of("diff", text, shapes)).json());
}

// Compares one program with two sets of types, or two programs.
bool programs_differ(const Words& programs, const Words& shapes, const Words& other_shapes, const Style& style) {
  if (programs.empty() || programs.size() > 2)
    throw ValueError(fmt::format("diff: {} programs given; --shapes requires one or two", programs.size()));
  if (programs.size() == 1 && other_shapes.empty())
    throw ValueError("diff: only one program is given. Pass a second program, or other types with --other-shapes");
  if (programs.size() == 2 && programs[0] == "-" && programs[1] == "-")
    throw ValueError("diff: both programs are read from standard input. Pass one of them as a file");
  const Json a = dump_of_program(programs.front(), shapes);
  const Json b = dump_of_program(programs.back(), other_shapes.empty() ? shapes : other_shapes);
  return dumps_differ(a, b, style);
}

// Moves words that are not types from `shapes` to `programs`, because `--shapes` takes all words up to the next option.
void move_programs(Words& shapes, Words& programs) {
  for (const std::string& word : shapes)
    if (!is_named_type(word)) programs.push_back(word);
  std::erase_if(shapes, [](const std::string& word) { return !is_named_type(word); });
}

}  // namespace

int diff(Words words) {
  CommandLine app(
      "diff",
      "Compares two programs, the kernels of one program for two sets of types, two dumps (of --json, or of any other form as text), "
      "or two folders of generated kernels.");
  Words paths, shapes, other_shapes;
  bool all = false;
  app.add("A B", paths, "two files or two folders; with --shapes one or two programs");
  app.add("--shapes", shapes, "treat A and B as programs: types of their inputs, such as x=f32[64,256]; at least one").offers({});
  app.add("--other-shapes", other_shapes, "types of the second program's inputs, or other types for the same program")
      .needs("--shapes")
      .offers({});
  app.add_flag("--all", all, "print every changed line, not only the first 40 of a text");
  app.footer(
      "The exit code is 0 if they are equal, 1 if they differ, 2 on an error.\nExamples:\n  onepass diff 'softmax(x)' 'softmax(x)*2' "
      "--shapes x=f32[64,256]\n  onepass diff 'softmax(x)' --shapes x=f32[64,256] --other-shapes x=f32[64,1]\n  onepass dump 'x*w + b' "
      "--shapes x=f32[64,256] w=f32[256] b=f32[256] --json >before.json\n  onepass dump 'x*w - b' --shapes x=f32[64,256] w=f32[256] "
      "b=f32[256] --json >after.json\n  onepass diff before.json after.json");
  app.parse(std::move(words));
  const Style style{.lines = all ? static_cast<std::size_t>(-1) : 40};
  if (!shapes.empty()) {
    move_programs(shapes, paths);
    move_programs(other_shapes, paths);
    return programs_differ(unmarked(std::move(paths)), shapes, other_shapes, style);
  }
  if (paths.size() != 2)
    throw ValueError(fmt::format("diff: {} files or folders given; two are required. With --shapes, pass two programs", paths.size()));
  const std::string &a = paths[0], &b = paths[1];

  std::error_code error;
  const bool a_is_folder = fs::is_directory(a, error), b_is_folder = fs::is_directory(b, error);
  if (a_is_folder && b_is_folder) return folders_differ(a, b, style);
  if (a_is_folder || b_is_folder)
    throw ValueError(fmt::format("diff: {} is a folder, but {} is not. Pass two dumps or two folders of kernels", a_is_folder ? a : b,
                                 a_is_folder ? b : a));
  const std::string a_text = text_of_file(a), b_text = text_of_file(b);
  const Json a_dump = dump_of(a, a_text), b_dump = dump_of(b, b_text);
  if (a_dump.is_null() != b_dump.is_null())
    throw ValueError(fmt::format("diff: {} is a dump of --json, but {} is not. Pass two files of the same form", a_dump.is_null() ? b : a,
                                 a_dump.is_null() ? a : b));
  return a_dump.is_null()
             ? texts_differ(is_text(a_text) && is_text(b_text) ? "text" : fmt::format("{} and {}", a, b), a_text, b_text, style)
             : dumps_differ(a_dump, b_dump, style);
}

}  // namespace onepass::command
