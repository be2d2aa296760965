// Options by name, for languages other than C++ and for configuration files.
#include "onepass/options.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "onepass/binding.h"
#include "onepass/error.h"

namespace onepass {
namespace {

template <class T> T number_of(std::string_view name, std::string_view value) {
  T out{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size()) throw ValueError(fmt::format("{}: `{}` is not a number", name, value));
  return out;
}

template <class T, std::size_t N> T one_of(std::string_view name, std::string_view value, const std::pair<const char*, T> (&choices)[N]) {
  std::string all;
  for (const auto& [choice, meaning] : choices) {
    if (value == choice) return meaning;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", choice);
  }
  throw ValueError(fmt::format("{}: `{}` is not one of {}", name, value, all));
}

Relax relax_of(std::string_view value) {
  Relax relax;
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::string_view name = value.substr(0, comma);
    value.remove_prefix(std::min(comma + 1, value.size()));
    if (name == "none") continue;
    if (name == "all") relax = {true, true, true};
    else
      *one_of<bool*>("relax", name,
                     {{"contract", &relax.contract}, {"reassociate", &relax.reassociate}, {"approximate", &relax.approximate}}) = true;
  }
  return relax;
}

bool flag_of(std::string_view name, std::string_view value) { return one_of<bool>(name, value, {{"true", true}, {"false", false}}); }

}  // namespace

Device detail::device_of(std::string_view value) {
  if (value == "cpu") return Device::cpu();
  if (value == "cuda") return Device::cuda();
  if (value.starts_with("cuda:")) return Device::cuda(number_of<int>("device", value.substr(5)));
  throw ValueError(fmt::format("device: `{}` is not cpu, cuda or cuda:N", value));
}

void detail::set_option(Options& o, std::string_view name, std::string_view value) {
  if (name == "mode")
    o.mode = one_of<Mode>(name, value,
                          {{"adaptive", Mode::adaptive},
                           {"generic", Mode::generic},
                           {"specialized", Mode::specialized},
                           {"unfused", Mode::unfused},
                           {"reference", Mode::reference}});
  else if (name == "relax") o.relax = relax_of(value);
  else if (name == "device") o.device = device_of(value);
  else if (name == "threads") o.threads = number_of<int>(name, value);
  else if (name == "vector_bytes") o.vector_bytes = number_of<int>(name, value);
  else if (name == "depth") o.specialization.depth = number_of<int>(name, value);
  else if (name == "after_calls") o.specialization.after_calls = number_of<int>(name, value);
  else if (name == "memory_budget") o.memory_budget = number_of<std::int64_t>(name, value);
  else if (name == "array_bytes") o.limits.array_bytes = number_of<std::int64_t>(name, value);
  else if (name == "work") o.limits.work = number_of<std::int64_t>(name, value);
  else if (name == "compile_ms") o.limits.compile_ms = number_of<std::int64_t>(name, value);
  else if (name == "check_nan") o.check_nan = flag_of(name, value);
  else if (name == "check_recording") o.check_recording = flag_of(name, value);
  else if (name == "compile") o.compile = one_of<Compile>(name, value, {{"allowed", Compile::allowed}, {"never", Compile::never}});
  else
    throw NameError(
        fmt::format("there is no option `{}`; the options are mode, relax, device, threads, vector_bytes, depth, after_calls, "
                    "memory_budget, array_bytes, "
                    "work, compile_ms, check_nan, check_recording and compile",
                    name));
}

}  // namespace onepass
