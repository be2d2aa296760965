// See machine.h.
#include "runtime/machine.h"

#include <charconv>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/threads.h"

namespace onepass::runtime {
namespace {

[[noreturn]] void fail(std::string_view text, std::string_view what) {
  throw ValueError(fmt::format("ONEPASS_MACHINE: {} in `{:.200}`. Write, for example, l1=32K,l2=2M,l3=260M,cores=64,isa=avx2", what, text));
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

std::optional<std::int64_t> bytes_in(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    const char unit = text.back();
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
  }
  if (shift) text.remove_suffix(1);
  const auto value = whole_number(text);
  if (!value || *value > kMostBytes >> shift) return std::nullopt;
  return *value << shift;
}

}  // namespace

Machine parse_machine(std::string_view text) {
  Machine machine;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == part.npos) fail(text, fmt::format("`{:.80}` is not NAME=VALUE", part));
    const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
    const auto once = [&](bool given) {
      if (given) fail(text, fmt::format("{} is given twice", name));
    };
    const auto size = [&](std::optional<std::int64_t>& bytes) {
      once(bytes.has_value());
      bytes = bytes_in(value);
      if (!bytes || *bytes < 1024) fail(text, fmt::format("{}=`{:.80}` is not a size between 1K and 1024G", name, value));
    };
    if (name == "l1") size(machine.l1_bytes);
    else if (name == "l2") size(machine.l2_bytes);
    else if (name == "l3") size(machine.llc_bytes);
    else if (name == "cores") {
      once(machine.cores.has_value());
      const auto count = whole_number(value);
      if (!count || *count > threads::kMaxThreads)
        fail(text, fmt::format("cores=`{:.80}` is not between 1 and {}", value, threads::kMaxThreads));
      machine.cores = static_cast<int>(*count);
    } else if (name == "isa") {
      once(machine.isa.has_value());
      if (value == "avx2") machine.isa = Machine::Isa::Avx2;
      else if (value == "avx512") machine.isa = Machine::Isa::Avx512;
      else fail(text, fmt::format("isa=`{:.80}` is not avx2 or avx512", value));
    } else fail(text, fmt::format("`{:.80}` is not l1, l2, l3, cores or isa", name));
    if (comma == rest.npos) return machine;
    rest.remove_prefix(comma + 1);
  }
}

compiler::Target described(compiler::Target target, const Machine& machine) {
  if (machine.isa == Machine::Isa::Avx2 && target.has_avx512()) target = target.with_vector_bytes(32);
  target.l1_bytes = machine.l1_bytes.value_or(target.l1_bytes);
  target.l2_bytes = machine.l2_bytes.value_or(target.l2_bytes);
  target.llc_bytes = machine.llc_bytes.value_or(target.llc_bytes);
  target.cores = machine.cores.value_or(target.cores);
  return target;
}

}  // namespace onepass::runtime
