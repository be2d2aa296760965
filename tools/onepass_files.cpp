// See onepass_files.h.
#include "tools/onepass_files.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numbers>
#include <system_error>

#include "onepass/error.h"
#include "runtime/npy.h"
#include "runtime/os_mapped.h"
#include "tools/onepass_command.h"

namespace onepass::command {

using compiler::Literal;

std::optional<Literal> literal_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto real = [&](double value) {
    Literal literal;
    literal.kind = Literal::Kind::Float;
    literal.real = negative ? -value : value;
    return literal;
  };
  if (text == "true" || text == "false") {
    if (negative) return std::nullopt;
    Literal literal;
    literal.kind = Literal::Kind::Bool;
    literal.integer = text == "true";
    return literal;
  }
  if (text == "inf") return real(std::numeric_limits<double>::infinity());
  if (text == "nan") return real(std::numeric_limits<double>::quiet_NaN());
  if (text == "pi") return real(std::numbers::pi);
  if (text == "e") return real(std::numbers::e);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  if (std::ranges::all_of(text, is_digit)) {
    if (text[0] == '0' && text.find_first_not_of('0') != std::string_view::npos) return std::nullopt;  // not a number of the language
    std::uint64_t magnitude = 0;
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (std::from_chars(text.data(), text.data() + text.size(), magnitude).ec != std::errc() || (negative && magnitude > kMost + 1))
      throw ValueError(fmt::format("run: the integer {}{} does not fit in 64 bits. Write it with a decimal point for a float",
                                   negative ? "-" : "", text));
    Literal literal;
    literal.kind = !negative && magnitude > kMost ? Literal::Kind::UInt : Literal::Kind::Int;
    literal.integer = static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
    return literal;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(text).c_str(), nullptr);  // 0 or infinity, as in the language
  return real(value);
}

std::pair<std::string, std::string> split_member(const std::string& file) {
  const std::size_t at = file.rfind(".npz:");
  if (at == std::string::npos) return {file, ""};
  return {file.substr(0, at + 4), file.substr(at + 5)};
}

// ---- reading

struct InputFiles::Archive {
  std::vector<ZipMember> members;
};

namespace {

constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n", kZip = "PK\x03\x04", kEmptyZip = "PK\x05\x06";

bool begins_with(std::span<const std::byte> bytes, std::string_view start) {
  return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

/// Reads standard input to its end, into memory aligned to 64 bytes.
std::pair<std::span<std::byte>, std::shared_ptr<void>> standard_input() {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::size_t size = 0, room = 1 << 16;
  std::unique_ptr<void, Free> memory(std::aligned_alloc(64, room));
  for (;;) {
    if (!memory) throw Error(fmt::format("out of memory: standard input has more than {} bytes", size));
    const ssize_t count = ::read(STDIN_FILENO, static_cast<std::byte*>(memory.get()) + size, room - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(fmt::format("run: standard input cannot be read: {}", os::error_text(errno)));
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
    if (size < room) continue;
    std::unique_ptr<void, Free> larger(std::aligned_alloc(64, 2 * room));
    if (larger) std::memcpy(larger.get(), memory.get(), size), room *= 2;
    memory = std::move(larger);
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory.get()), size);
  return {bytes, std::shared_ptr<void>(memory.release(), Free{})};
}

std::string array_name(const ZipMember& member) {
  return member.name.ends_with(".npy") ? member.name.substr(0, member.name.size() - 4) : member.name;
}

}  // namespace

const InputFiles::Bytes& InputFiles::open(const std::string& file) {
  const auto found = open_.find(file);
  if (found != open_.end()) return found->second;
  Bytes result;
  if (file == "-") {
    std::tie(result.bytes, result.owner) = standard_input();
  } else {
    const os::FileBytes opened = os::FileBytes::open("load_npy", file, true);
    result.bytes = opened.bytes(), result.owner = opened.owner();
  }
  if (begins_with(result.bytes, kZip) || begins_with(result.bytes, kEmptyZip)) {
    auto archive = std::make_shared<Archive>();
    archive->members = zip_members(file == "-" ? "standard input" : file, result.bytes);
    result.archive = std::move(archive);
  }
  return open_.emplace(file, std::move(result)).first->second;
}

std::vector<std::string> InputFiles::names_in(const std::string& file) {
  const Bytes& from = open(file);
  if (!from.archive) throw IoError(fmt::format("load_npz: {}: the file is not a .npz file", file));
  std::vector<std::string> names;
  for (const ZipMember& member : from.archive->members) names.push_back(array_name(member));
  return names;
}

Array InputFiles::member(const std::string& file, const Bytes& from, const std::string& name) {
  const std::vector<ZipMember>& members = from.archive->members;
  const auto at = std::ranges::find_if(members, [&](const ZipMember& m) { return array_name(m) == name; });
  if (at == members.end())
    throw IoError(fmt::format("load_npz: {}: the file has no array `{}`{}; its arrays are {}", file, name, suggestion(name, names_in(file)),
                              list_of(names_in(file))));
  const auto [bytes, owner] = zip_read(file, from.bytes, from.owner, *at);
  return runtime::array_of_npy(fmt::format("{}, array {}", file, name), bytes, owner);
}

Input InputFiles::load(const std::string& name, const std::string& file) {
  if (const std::optional<Literal> number = literal_of(file)) return {.array = {}, .number = *number};
  const auto [path, wanted] = split_member(file);
  const Bytes& from = open(path);
  const std::string shown = path == "-" ? "standard input" : path;
  if (!wanted.empty() && !from.archive) throw IoError(fmt::format("load_npz: {}: the file is not a .npz file", path));
  Array array;
  if (from.archive) {
    const bool only = wanted.empty() && from.archive->members.size() == 1;
    array = member(path, from, only ? array_name(from.archive->members[0]) : wanted.empty() ? name : wanted);
  } else if (begins_with(from.bytes, kPng)) {
    array = png_read(shown, from.bytes);
  } else {
    array = runtime::array_of_npy(shown, from.bytes, from.owner);
  }
  if (os::was_shortened(from.bytes.data())) throw IoError(fmt::format("load_npy: {}: the file was shortened while it was read", shown));
  return {.array = std::move(array), .number = {}};
}

// ---- writing

void OutputFiles::add(const std::string& name, const std::string& file, const Array& array) {
  const bool archive = file.ends_with(".npz"), picture = file.ends_with(".png");
  if (archive)
    for (Output& output : outputs_)
      if (output.file.path() == file) return void(output.arrays.emplace_back(name, array));
  if (picture) png_check(name, array);
  const char* const what = archive ? "save_npz" : picture ? "save_png" : "save_npy";
  os::AtomicFile opened(what, file, options_.sync);
  if (opened.is_terminal())
    throw IoError(fmt::format("{}: {}: the output is a terminal, which cannot show a .npy file. Write to a file or a pipe.", what, file));
  outputs_.push_back({std::move(opened), {{name, array}}});
  Output& output = outputs_.back();
  if (!archive && !output.file.place().in_place) write(output);
}

void OutputFiles::write(Output& output) {
  if (output.file.path().ends_with(".npz")) {
    npz_write(output.file, output.arrays);
  } else if (output.file.path().ends_with(".png")) {
    png_write(output.file, output.arrays[0].second);
  } else {
    const Array& array = output.arrays[0].second;
    const std::string header = runtime::npy_header(array);
    output.file.write(header.data(), header.size());
    const Array elements = array.contiguous().to(Device::cpu());
    if (elements.bytes() > 0) output.file.write(elements.data(), static_cast<std::size_t>(elements.bytes()));
  }
  output.written = true;
}

void OutputFiles::commit() {
  std::vector<os::AtomicFile> files;
  const auto in_place = [](const Output& output) { return output.file.place().in_place; };
  for (Output& output : outputs_)
    if (!in_place(output)) {
      if (!output.written) write(output);
      output.file.finish();
    }
  for (Output& output : outputs_)
    if (in_place(output)) write(output);
  for (Output& output : outputs_) files.push_back(std::move(output.file));
  outputs_.clear();
  os::AtomicFile::commit_all(files);
}

}  // namespace onepass::command
