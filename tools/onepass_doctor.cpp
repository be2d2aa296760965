// onepass doctor: the state of everything that onepass uses on this machine, one line each: `name: state, what to do`.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "compiler/codegen.h"
#include "compiler/target.h"
#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/disk_cache.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"
#include "tools/onepass_command.h"
#include "tools/onepass_options.h"
#include "tools/onepass_terminal.h"
#include "tools/timing.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

Json* as_json = nullptr;  // collects the lines for --json; null without it

void line(std::string_view name, std::string_view state, std::string_view advice) {
  if (as_json) {
    (*as_json)[std::string(name)] = {{"state", state}, {"advice", advice}};
    return;
  }
  const Style style = advice.starts_with("nothing to do") ? Style::Good : Style::Warning;
  fmt::print("{}: {}, {}\n", styled(stdout, Style::Bold, name), state, styled(stdout, style, advice));
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

// Returns the processor features that affect generated kernels.
std::string processor_features() {
#if defined(__x86_64__)
  const std::pair<const char*, bool> features[] = {{"AVX2", __builtin_cpu_supports("avx2") != 0},
                                                   {"FMA", __builtin_cpu_supports("fma") != 0},
                                                   {"F16C", __builtin_cpu_supports("f16c") != 0},
                                                   {"AVX-512", __builtin_cpu_supports("avx512f") != 0}};
  std::string text;
  for (const auto& [name, has] : features)
    if (has) text += fmt::format(" {}", name);
  return text.empty() ? " without AVX2" : " with" + text;
#else
  return "";
#endif
}

void processor() {
  const compiler::Target& target = compiler::Target::host();
  const std::string state =
      fmt::format("{}{}, vectors of {} bits, {} core{}, caches {} KiB, {} KiB and {} MiB", target.cpu.empty() ? target.triple : target.cpu,
                  processor_features(), target.vector_bytes * 8, target.cores, target.cores == 1 ? "" : "s", target.l1_bytes >> 10,
                  target.l2_bytes >> 10, target.llc_bytes >> 20);
#if defined(__x86_64__)
  const bool enough = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool may_run = os::may_run_made_code();
  line("processor", state + (may_run ? "" : "; the system does not let a program run code that it generated"),
       !enough    ? "this processor lacks AVX2 or FMA. Use --mode reference"
       : !may_run ? "programs run in the tiled interpreter or in the reference interpreter. Allow them to make memory executable"
                  : "nothing to do");
#else
  line("processor", state, "this version generates code only for x86-64. Use --mode reference");
#endif
}

void llvm() {
  try {
    line("LLVM", compiler::llvm_version(), "nothing to do");
  } catch (const std::exception& error) {
    line("LLVM", fmt::format("not available ({})", first_line(error.what())),
         "put libonepass_llvm.so next to the program, or build with -DONEPASS_LLVM=ON; until then use --mode reference");
  }
}

// Returns the resident size in MB, from /proc/self/status.
double resident_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:" && status >> word) return std::stod(word) * 1024 / 1e6;
  return 0;
}

// Prints the memory that onepass uses, apart from kernels.
void footprint() {
  const double before = resident_mb();
  std::string state = fmt::format("{:.1f} MB resident", before);
  try {
    double begin = seconds_now();
    compiler::llvm_version();
    const double opened = (seconds_now() - begin) * 1e3;
    begin = seconds_now();
    Options options;
    options.compile = Compile::allowed;
    runtime::set_first_tier(runtime::TierChoice::Optimised);
    const Array x = Array::ones({1000}, f32);
    const runtime::Argument argument{.array = &x, .number = {}};
    static_cast<void>(ProgramText("x*3 + 1", "doctor").compile(options)->call({&argument, 1}));
    runtime::set_first_tier(std::nullopt);
    state += fmt::format(" at first, {:.1f} MB after the first compilation; the compiler opens in {:.1f} ms", resident_mb(), opened);
  } catch (const std::exception&) {}  // reported by the compiler's line
  std::ifstream maps("/proc/self/maps");
  std::string last;
  for (std::string text; std::getline(maps, text);) {
    const std::size_t at = text.find('/');
    if (at == std::string::npos || text.find("libonepass", at) == std::string::npos || text.substr(at) == last) continue;
    last = text.substr(at);
    std::error_code failed;
    const auto bytes = std::filesystem::file_size(last, failed);
    if (!failed) state += fmt::format("; {} has {}", last.substr(last.rfind('/') + 1), bytes_text(static_cast<std::int64_t>(bytes)));
  }
  line("memory", state, "nothing to do");
}

void cache_folder(const runtime::DiskCache& cache) {
  if (!cache.enabled()) return line("cache folder", "none", "nothing to do; set ONEPASS_CACHE_DIR to choose a folder");
  const os::PrivateFolder folder = os::private_folder(cache.folder(), false);
  switch (folder.state) {
    case os::PrivateFolder::State::Usable: return line("cache folder", cache.folder(), "nothing to do");
    case os::PrivateFolder::State::Missing:
      return line("cache folder", cache.folder() + " (does not exist yet)", "nothing to do: the first compiled kernel creates it");
    case os::PrivateFolder::State::Unavailable:
    case os::PrivateFolder::State::Refused:
      return line("cache folder", fmt::format("{} {}", cache.folder(), folder.reason),
                  "kernels are kept only in memory. Set ONEPASS_CACHE_DIR to another folder");
  }
}

// Returns advice on NVRTC, whose programs may not fit the installed device.
std::string advice_on(const runtime::cuda::Nvrtc& nvrtc) {
  std::string objection;
  try {
    objection = runtime::cuda::Gpu::get().objection(nvrtc);
  } catch (const std::exception&) {}  // reported by the device's line
  return objection.empty() ? "nothing to do: dump --cuda shows the CUDA program of a formula" : objection;
}

void cuda_toolkit() {
  const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::find();
  if (nvrtc) line("CUDA toolkit", fmt::format("NVRTC {}.{} ({})", nvrtc->major(), nvrtc->minor(), nvrtc->path()), advice_on(*nvrtc));
  else line("CUDA toolkit", "not found", runtime::cuda::Nvrtc::why() + "; the CPU does not need it");
}

void cuda_driver_and_device() {
  const runtime::cuda::Driver* driver = runtime::cuda::Driver::find();
  if (!driver) {
    line("CUDA driver", "not usable", runtime::cuda::Driver::why());
    return line("device", "cpu", "nothing to do");
  }
  line("CUDA driver", fmt::format("for CUDA {}.{} ({})", driver->major(), driver->minor(), driver->path), "nothing to do");
  try {
    const runtime::cuda::Gpu& device = runtime::cuda::Gpu::get();
    line("device", fmt::format("cpu; {}, compute capability {}.{}", device.name(), device.target().sm / 10, device.target().sm % 10),
         "use it with run --device cuda; no device has been tested yet, so add --compare");
  } catch (const std::exception& error) { line("device", "cpu", first_line(error.what())); }
}

}  // namespace

int doctor(Words words) {
  CommandLine app("doctor", "Shows the features of this machine, and how to fix missing ones.");
  bool json = false;
  app.add_flag("--json", json, "print one line of JSON: the version, and for each line its state and advice");
  app.footer("Examples:\n  onepass doctor\n  onepass doctor --json");
  app.parse(std::move(words));
  Json answer = {{"version", ONEPASS_VERSION}};
  if (json) as_json = &answer;
  const runtime::DiskCache cache(runtime::cache_folder_of_environment());
  setenv("ONEPASS_CACHE_DIR", "none", 1);  // so the first compile is a real compile, and the cache folder stays unchanged
  processor();
  footprint();
  llvm();
  cache_folder(cache);
  line("BLAS", "not used", "nothing to do: contractions run in onepass kernels");
  cuda_toolkit();
  cuda_driver_and_device();
  if (json) fmt::print("{}\n", answer.dump(-1, ' ', false, Json::error_handler_t::replace));
  return 0;
}

}  // namespace onepass::command
