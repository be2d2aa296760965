#include "tools/onepass_command.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include "compiler/record.h"
#include "compiler/target.h"
#include "ir/formula.h"
#include "onepass/error.h"
#include "runtime/os.h"
#include "runtime/threads.h"

namespace onepass::command {

namespace {

struct ModeName {
  std::string_view text;
  Mode mode;
};
constexpr ModeName kModes[] = {{"adaptive", Mode::adaptive},
                               {"generic", Mode::generic},
                               {"specialized", Mode::specialized},
                               {"unfused", Mode::unfused},
                               {"reference", Mode::reference}};

struct Limit {
  std::string_view name;
  std::int64_t most;
  void (*set)(Limits&, std::int64_t);
};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr Limit kLimits[] = {
    {"nesting", kMost, [](Limits& limits, std::int64_t n) { limits.nesting = static_cast<std::size_t>(n); }},
    {"name_bytes", kMost, [](Limits& limits, std::int64_t n) { limits.name_bytes = static_cast<std::size_t>(n); }},
    {"source_bytes", kMost, [](Limits& limits, std::int64_t n) { limits.source_bytes = static_cast<std::size_t>(n); }},
    {"max_nodes", 1 << 30, [](Limits& limits, std::int64_t n) { limits.max_nodes = static_cast<std::uint32_t>(n); }},
    {"rank", kMaxRank, [](Limits& limits, std::int64_t n) { limits.rank = static_cast<std::int32_t>(n); }},
    {"array_bytes", kMost, [](Limits& limits, std::int64_t n) { limits.array_bytes = n; }},
    {"work", kMost, [](Limits& limits, std::int64_t n) { limits.work = n; }},
    {"compile_ms", kMost, [](Limits& limits, std::int64_t n) { limits.compile_ms = n; }},
};

}  // namespace

// ---- options

Options options_of(const CommonOptions& options) {
  Options result;
  result.mode = mode_of(options.mode);
  result.relax = options.relax;
  result.limits = limits_of(options.limits);
  result.should_stop = [] { return InterruptibleCall::asked_to_stop(); };
  result.threads = options.threads;
  return result;
}

Mode mode_of(std::string_view text) {
  std::vector<std::string> names;
  for (const ModeName& mode : kModes) {
    if (mode.text == text) return mode.mode;
    names.emplace_back(mode.text);
  }
  throw ValueError(fmt::format("there is no mode `{}`{}; the modes are {}", text, suggestion(std::string(text), names), list_of(names)));
}

std::string_view text_of(Mode mode) {
  for (const ModeName& candidate : kModes)
    if (candidate.mode == mode) return candidate.text;
  return "?";
}

Words mode_names() {
  Words names;
  for (const ModeName& mode : kModes) names.emplace_back(mode.text);
  return names;
}

int thread_count(std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > threads::kMaxThreads)
    throw ValueError(fmt::format("--threads: `{1}` is not a decimal number from 1 to {0}", threads::kMaxThreads, text));
  return count;
}

Relax relax_of(std::string_view list) {
  Relax result;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    const std::string_view word = list.substr(begin, comma - begin);
    begin = comma + 1;
    bool* const relaxation = word == "contract"      ? &result.contract
                             : word == "reassociate" ? &result.reassociate
                             : word == "approximate" ? &result.approximate
                                                     : nullptr;
    if (word.empty())
      throw ValueError(
          fmt::format("--relax: a relaxation is missing in `{}`; the relaxations are contract, reassociate, approximate", list));
    if (!relaxation)
      throw ValueError(fmt::format("--relax: there is no relaxation `{}`{}; the relaxations are contract, reassociate, approximate", word,
                                   suggestion(std::string(word), {"contract", "reassociate", "approximate"})));
    if (*relaxation) throw ValueError(fmt::format("--relax: `{}` is given twice in `{}`", word, list));
    *relaxation = true;
  }
  return result;
}

Limits limits_of(const std::vector<std::string>& words) {
  Limits result;
  for (const std::string& word : words) {
    const auto [name, value] = name_and_value("--limit", word, "NAME=NUMBER");
    const auto limit = std::find_if(std::begin(kLimits), std::end(kLimits), [&, &n = name](const Limit& l) { return l.name == n; });
    if (limit == std::end(kLimits)) {
      const Words names = limit_names();
      throw NameError(fmt::format("--limit: there is no limit `{}`{}; the limits are {}", name, suggestion(name, names), list_of(names)));
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > limit->most)
      throw ValueError(fmt::format("--limit: {} must be an integer from 1 to {}, not `{}`", name, limit->most, value));
    limit->set(result, number);
  }
  return result;
}

Words limit_names() {
  Words names;
  for (const Limit& limit : kLimits) names.emplace_back(limit.name);
  return names;
}

std::pair<std::string, std::string> name_and_value(std::string_view command, const std::string& word, std::string_view form) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
    throw ValueError(fmt::format("{}: expected {} instead of `{}`", command, form, word));
  return {word.substr(0, equals), word.substr(equals + 1)};
}

// ---- programs

Source program_source(std::string_view command, const std::string& program, const Limits& limits) {
  if (program == "-") {
    Source source{.text = {}, .name = "stdin"};
    char buffer[1 << 16];
    while (source.text.size() <= limits.source_bytes) {  // the parser reports longer texts
      const std::size_t count = std::fread(buffer, 1, sizeof buffer, stdin);
      source.text.append(buffer, count);
      if (count < sizeof buffer) break;
    }
    if (std::ferror(stdin)) throw IoError(fmt::format("{}: standard input cannot be read", command));
    return source;
  }
  if (program.ends_with(".json")) {
    const os::FileBytes file = os::FileBytes::open(std::string(command).c_str(), program);
    const auto json = nlohmann::json::parse(file.bytes().begin(), file.bytes().end(), nullptr, false);
    if (!json.is_object() || !json.contains("recorded") || !json["recorded"].is_string())
      throw ValueError(
          fmt::format("{}: {}: the file is not a dump of `onepass dump --json` or an execution record: it has no \"recorded\" graph",
                      command, program));
    return {json["recorded"].get<std::string>(), program, true};
  }
  if (program.ends_with(".fuse")) {
    const os::FileBytes file = os::FileBytes::open(std::string(command).c_str(), program);
    return {std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), program};
  }
  return {program, "formula"};
}

ProgramText program_of(const Source& source, const Limits& limits) {
  if (!source.is_graph) return ProgramText(source.text, source.name, limits);
  try {
    return ProgramText::of_graph(source.text, limits);
  } catch (const ValueError& error) { throw ValueError(fmt::format("{}: {}", source.name, error.what())); }
}

bool is_named_type(const std::string& word) {
  const std::size_t equals = word.find('='), bracket = word.find('[');
  if (equals == std::string::npos || bracket == std::string::npos || bracket < equals || word.back() != ']') return false;
  DType dtype;
  return dtype_of(std::string_view(word).substr(equals + 1, bracket - equals - 1), dtype);
}

NamedType named_type(std::string_view command, const std::string& word) {
  constexpr std::string_view form = "NAME=TYPE[EXTENTS] such as x=f32[64,256], or k=i64[] for rank 0,";
  auto [name, text] = name_and_value(command, word, form);
  const auto fail = [&](const std::string& why) { throw ValueError(fmt::format("{}: {}: {}", command, word, why)); };
  const std::size_t bracket = text.find('[');
  if (bracket == std::string::npos || text.back() != ']') fail("a type must have the form f32[64,256], or f32[] for rank 0");
  NamedType result{.name = std::move(name), .type = {}};
  const std::string type = text.substr(0, bracket);
  if (!dtype_of(type, result.type.dtype)) {
    std::vector<std::string> types;
    for (int i = 0; i < kDTypeCount; ++i) types.emplace_back(name_of(static_cast<DType>(i)));
    fail(fmt::format("there is no type `{}`{}; the types are {}", type, suggestion(type, types), list_of(types)));
  }
  std::string_view extents = std::string_view(text).substr(bracket + 1, text.size() - bracket - 2);
  const auto skip = [&] {
    while (!extents.empty() && extents.front() == ' ') extents.remove_prefix(1);
  };
  for (skip(); !extents.empty();) {
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(extents.data(), extents.data() + extents.size(), extent);
    if (error != std::errc() || extent < 0) fail("an extent must be an integer of at least 0");
    extents.remove_prefix(static_cast<std::size_t>(end - extents.data()));
    result.type.shape.push_back(extent);
    skip();
    if (extents.empty()) break;
    if (extents.front() != ',') fail("extents must be separated by commas");
    extents.remove_prefix(1);
    skip();
    if (extents.empty()) fail("an extent is missing after the comma");
  }
  if (result.type.shape.size() > kMaxRank) fail(fmt::format("rank {} is above the maximum of {}", result.type.shape.size(), kMaxRank));
  // All later code counts elements in 64 bits.
  std::int64_t bytes = static_cast<std::int64_t>(size_of(result.type.dtype));
  for (const std::int64_t extent : result.type.shape)
    if (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)) fail("the number of bytes does not fit in an address");
  return result;
}

std::vector<runtime::ArgumentType> types_of(std::string_view command, const ProgramText& program, const Words& shapes) {
  const std::vector<std::string>& inputs = program.inputs();
  if (shapes.empty() && !program.types().empty()) return program.types();
  std::vector<runtime::ArgumentType> types(inputs.size());
  std::vector<bool> given(inputs.size());
  for (const std::string& word : shapes) {
    NamedType named = named_type(command, word);
    const auto at = std::find(inputs.begin(), inputs.end(), named.name);
    if (at == inputs.end())
      throw NameError(fmt::format("{}: the program has no input `{}`{}; its inputs are {}", command, named.name,
                                  suggestion_of_name(named.name, inputs), list_of(inputs)));
    const auto i = static_cast<std::size_t>(at - inputs.begin());
    if (given[i]) throw ValueError(fmt::format("{}: --shapes has `{}` twice", command, named.name));
    given[i] = true;
    types[i] = std::move(named.type);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!given[i])
      throw ValueError(fmt::format("{}: the type of input `{}` is missing. Add --shapes {}=f32[…]; the inputs are {}", command, inputs[i],
                                   inputs[i], list_of(inputs)));
  return types;
}

std::string type_text(const runtime::ArgumentType& type) {
  std::string text(name_of(type.dtype));
  char before = '[';
  for (const std::int64_t extent : type.shape) {
    text += fmt::format("{}{}", before, extent);
    before = ',';
  }
  return text + (type.shape.empty() ? "[]" : "]");
}

std::string processor_text() {
  const compiler::Target& target = compiler::Target::host();
  return fmt::format("{}, {} core{}", target.cpu.empty() ? target.triple : target.cpu, target.cores, target.cores == 1 ? "" : "s");
}

std::string suggestion(const std::string& name, const std::vector<std::string>& candidates) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  const std::string near = language::nearest(name, views);
  return near.empty() ? "" : fmt::format(" (did you mean `{}`?)", near);
}

std::string suggestion_of_name(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string advice = language::advice_on_reserved(name);
  return advice.empty() ? suggestion(name, candidates) : ": " + advice;
}

std::string list_of(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string result;
  for (const std::string& name : names) {
    if (!result.empty()) result += ", ";
    result += name;
  }
  return result;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// ---- arrays

namespace {

template <class T> T element(const Array& array, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(array.data()) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool is_nan_bits(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::F16: return (bits & 0x7fff) > 0x7c00;
    case DType::BF16: return (bits & 0x7fff) > 0x7f80;
    case DType::F32: return (bits & 0x7fffffff) > 0x7f800000;
    case DType::F64: return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default: return false;
  }
}

std::uint64_t bits_at(const Array& array, std::int64_t i) {
  switch (size_of(array.dtype())) {
    case 1: return element<std::uint8_t>(array, i);
    case 2: return element<std::uint16_t>(array, i);
    case 4: return element<std::uint32_t>(array, i);
    default: return element<std::uint64_t>(array, i);
  }
}

}  // namespace

std::int64_t first_difference(const Array& a, const Array& b) {
  const Array left = a.contiguous(), right = b.contiguous();
  if (left.size() == 0 || std::memcmp(left.data(), right.data(), static_cast<std::size_t>(left.bytes())) == 0) return -1;
  for (std::int64_t i = 0; i < left.size(); ++i) {
    std::uint64_t x = bits_at(left, i), y = bits_at(right, i);
    if (left.dtype() == DType::Bool) x = x != 0, y = y != 0;
    if (x != y && !(is_nan_bits(left.dtype(), x) && is_nan_bits(left.dtype(), y))) return i;
  }
  return -1;
}

std::string element_text(const Array& array, std::int64_t i) {
  const Array flat = array.contiguous();
  switch (flat.dtype()) {
    case DType::Bool: return element<std::uint8_t>(flat, i) ? "true" : "false";
    case DType::I8: return fmt::format("{}", static_cast<int>(element<std::int8_t>(flat, i)));
    case DType::I16: return fmt::format("{}", element<std::int16_t>(flat, i));
    case DType::I32: return fmt::format("{}", element<std::int32_t>(flat, i));
    case DType::I64: return fmt::format("{}", element<std::int64_t>(flat, i));
    case DType::U8: return fmt::format("{}", static_cast<unsigned>(element<std::uint8_t>(flat, i)));
    case DType::U16: return fmt::format("{}", element<std::uint16_t>(flat, i));
    case DType::U32: return fmt::format("{}", element<std::uint32_t>(flat, i));
    case DType::U64: return fmt::format("{}", element<std::uint64_t>(flat, i));
    case DType::F16: return fmt::format("0x{:04x}", element<std::uint16_t>(flat, i));
    case DType::BF16: return fmt::format("{}", std::bit_cast<float>(static_cast<std::uint32_t>(element<std::uint16_t>(flat, i)) << 16));
    case DType::F32: return fmt::format("{}", element<float>(flat, i));
    case DType::F64: return fmt::format("{}", element<double>(flat, i));
  }
  return "?";
}

std::string coordinates_text(std::span<const std::int64_t> shape, std::int64_t i) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = i % shape[axis];
    i /= shape[axis];
  }
  return compiler::shape_text(index);
}

}  // namespace onepass::command
