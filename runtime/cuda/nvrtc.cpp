// See nvrtc.h.
#include "runtime/cuda/nvrtc.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/os.h"

namespace onepass::runtime::cuda {

// The functions, with the library's names and its header's types.
struct Nvrtc::Functions {
  using Result = int;
  using Handle = void*;
  const char* (*nvrtcGetErrorString)(Result) = nullptr;
  Result (*nvrtcVersion)(int*, int*) = nullptr;
  Result (*nvrtcGetNumSupportedArchs)(int*) = nullptr;
  Result (*nvrtcGetSupportedArchs)(int*) = nullptr;
  Result (*nvrtcCreateProgram)(Handle*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*nvrtcDestroyProgram)(Handle*) = nullptr;
  Result (*nvrtcCompileProgram)(Handle, int, const char* const*) = nullptr;
  Result (*nvrtcGetPTXSize)(Handle, std::size_t*) = nullptr;
  Result (*nvrtcGetPTX)(Handle, char*) = nullptr;
  Result (*nvrtcGetCUBINSize)(Handle, std::size_t*) = nullptr;
  Result (*nvrtcGetCUBIN)(Handle, char*) = nullptr;
  Result (*nvrtcGetProgramLogSize)(Handle, std::size_t*) = nullptr;
  Result (*nvrtcGetProgramLog)(Handle, char*) = nullptr;

  // Loads the functions. Returns the name of the first absent function, or null.
  const char* open(void* library) {
    const char* missing = nullptr;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(os::find_symbol(library, name));
      if (!function && !missing) missing = name;
    };
#define ONEPASS_TAKE(name) take(name, #name)
    ONEPASS_TAKE(nvrtcGetErrorString), ONEPASS_TAKE(nvrtcVersion), ONEPASS_TAKE(nvrtcGetNumSupportedArchs);
    ONEPASS_TAKE(nvrtcGetSupportedArchs), ONEPASS_TAKE(nvrtcCreateProgram), ONEPASS_TAKE(nvrtcDestroyProgram);
    ONEPASS_TAKE(nvrtcCompileProgram), ONEPASS_TAKE(nvrtcGetPTXSize), ONEPASS_TAKE(nvrtcGetPTX), ONEPASS_TAKE(nvrtcGetCUBINSize);
    ONEPASS_TAKE(nvrtcGetCUBIN), ONEPASS_TAKE(nvrtcGetProgramLogSize), ONEPASS_TAKE(nvrtcGetProgramLog);
#undef ONEPASS_TAKE
    return missing;
  }
};

struct Nvrtc::Found {
  std::optional<Nvrtc> nvrtc;
  std::string why;
};

const Nvrtc::Found& Nvrtc::found() {
  static const Found* const it = [] {  // never destroyed: a compile may continue while the process exits
    auto* out = new Found;
    std::vector<std::string> paths;
    if (const std::optional<std::string> given = os::environment("ONEPASS_NVRTC")) paths = {*given};
    else paths = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so", "/opt/cuda/lib64/libnvrtc.so"};
    // A driver cannot load code from a compiler of a later major version.
    if (const Driver* const driver = Driver::find(); driver && paths.size() > 1 && driver->major() < 13) std::swap(paths[0], paths[1]);
    void* library = nullptr;
    std::string path;
    for (const std::string& p : paths)
      if (!library && (library = os::open_library(p))) path = p;
    if (!library) {
      out->why = paths.size() == 1
                     ? fmt::format("ONEPASS_NVRTC names {}, which cannot be opened. Set it to the file libnvrtc.so of a CUDA toolkit",
                                   path = paths[0])
                     : "libnvrtc.so was not found. Install a CUDA toolkit of version 12 or newer, or set ONEPASS_NVRTC to that file";
      return out;
    }
    auto* functions = new Functions;
    Nvrtc n;
    n.path_ = path;
    n.functions_ = functions;
    int count = 0;
    if (const char* missing = functions->open(library)) {
      out->why = fmt::format("{} has no {}: it is not NVRTC, or it is older than 12.0. Install a newer CUDA toolkit", path, missing);
    } else if (functions->nvrtcVersion(&n.major_, &n.minor_) != 0 || n.major_ < 12) {
      out->why = fmt::format("{} is NVRTC {}.{}; 12.0 or newer is required. Install a newer CUDA toolkit", path, n.major_, n.minor_);
    } else if (functions->nvrtcGetNumSupportedArchs(&count) != 0) {
      out->why = fmt::format("{} does not list the devices that it supports. Reinstall the CUDA toolkit", path);
    } else {
      n.architectures_.resize(static_cast<std::size_t>(count));
      functions->nvrtcGetSupportedArchs(n.architectures_.data());
      out->nvrtc = n;
    }
    return out;
  }();
  return *it;
}

const Nvrtc* Nvrtc::find() { return found().nvrtc ? &*found().nvrtc : nullptr; }
const std::string& Nvrtc::why() { return found().why; }

bool Nvrtc::knows(int sm) const { return std::find(architectures_.begin(), architectures_.end(), sm) != architectures_.end(); }

int Nvrtc::newest_up_to(int sm) const {
  int newest = 0;
  for (const int known : architectures_)
    if (known <= sm) newest = std::max(newest, known);
  return newest;
}

Nvrtc::Program Nvrtc::compile(const std::string& text, int sm, bool report) const { return compile_for(text, sm, false, report); }
std::string Nvrtc::compile_ptx(const std::string& text, int sm) const { return compile_for(text, sm, true, false).ptx; }

Nvrtc::Program Nvrtc::compile_for(const std::string& text, int sm, bool ptx_alone, bool report) const {
  const Functions& f = *functions_;
  Functions::Handle handle = nullptr;
  const auto check = [&](Functions::Result result, const char* what) {
    if (result != 0) throw Error(fmt::format("cuda: {} failed: {}", what, f.nvrtcGetErrorString(result)));
  };
  check(f.nvrtcCreateProgram(&handle, text.c_str(), "onepass.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  struct Destroy {
    const Functions& f;
    Functions::Handle handle;
    ~Destroy() { f.nvrtcDestroyProgram(&handle); }
  } const destroy{f, handle};
  // Contraction of a*b + c would change results. The other options are defaults, given explicitly because results depend on them.
  const std::string architecture = fmt::format("--gpu-architecture={}_{}", ptx_alone ? "compute" : "sm", sm);
  std::vector<const char*> options = {architecture.c_str(), "--std=c++17",      "--fmad=false",      "--ftz=false",
                                      "--prec-div=true",    "--prec-sqrt=true", "--disable-warnings"};
  if (report) options.push_back("--ptxas-options=-v");
  const Functions::Result result = f.nvrtcCompileProgram(handle, static_cast<int>(options.size()), options.data());
  Program out;
  std::size_t size = 0;
  check(f.nvrtcGetProgramLogSize(handle, &size), "nvrtcGetProgramLogSize");
  out.log.resize(size);
  if (size) check(f.nvrtcGetProgramLog(handle, out.log.data()), "nvrtcGetProgramLog");
  while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  if (result != 0)
    throw Error(fmt::format("cuda: NVRTC {}.{} cannot compile for compute capability {}.{}: {}\n{}", major_, minor_, sm / 10, sm % 10,
                            f.nvrtcGetErrorString(result), out.log));
  if (!ptx_alone) {
    check(f.nvrtcGetCUBINSize(handle, &size), "nvrtcGetCUBINSize");
    out.cubin.resize(size);
    check(f.nvrtcGetCUBIN(handle, out.cubin.data()), "nvrtcGetCUBIN");
  }
  check(f.nvrtcGetPTXSize(handle, &size), "nvrtcGetPTXSize");
  out.ptx.resize(size);
  if (size) check(f.nvrtcGetPTX(handle, out.ptx.data()), "nvrtcGetPTX");
  while (!out.ptx.empty() && out.ptx.back() == '\0') out.ptx.pop_back();
  return out;
}

}  // namespace onepass::runtime::cuda
