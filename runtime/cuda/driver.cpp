// See driver.h.
#include "runtime/cuda/driver.h"

#include <optional>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/os.h"

namespace onepass::runtime::cuda {
namespace {

struct Found {
  std::optional<Driver> driver;
  std::string why;
};

constexpr int kLeastVersion = 12000;

// A remedy for a range of error numbers.
struct Remedy {
  Result first, last;
  std::string_view text;
};
// After these errors, all later calls of the process on that device fail with the same error.
constexpr std::string_view kLost =
    "The process can no longer use the device; the CPU keeps working. Restart the process to use the device again, and please report what "
    "it ran";
constexpr Remedy kRemedies[] = {
    {kOutOfMemory, kOutOfMemory, "Free arrays of this or another process on the device, or run on the CPU"},
    {kNotInitialised, kNotInitialised,
     "A forked process and its parent cannot both use the device. Use it in only one of them, or run on the CPU"},
    {46, 46, "Another process uses the device exclusively. Wait for it, or run on the CPU"},
    {kNoDevice, 101, "Check that `nvidia-smi` lists the device, or run on the CPU"},
    {kNoBinaryForDevice, kNoBinaryForDevice, "The CUDA toolkit does not support this device. Install a newer toolkit"},
    {221, 221, "The driver's PTX compiler is missing. Install the complete driver, or a CUDA toolkit that supports this device"},
    {kUnsupportedPtxVersion, kUnsupportedPtxVersion, "The driver is older than the CUDA toolkit. Install a newer driver"},
    {214, 214, "The device found an uncorrectable memory error. Check `nvidia-smi -q -d ECC`, restart the process, or run on the CPU"},
    {700, 700,
     "A kernel accessed memory outside its arrays, and the process can no longer use the device; the CPU keeps working. Restart the "
     "process to use the device again. If no other library runs kernels in the process, please report what it ran"},
    {701, 701, "The device has too few resources for this kernel. Please report it, and run on the CPU"},
    {702, 719, kLost},
    {802, 802,
     "The NVSwitch of this machine is not ready. Start the service nvidia-fabricmanager, whose version must match the driver, or run on "
     "the CPU"},
    {kDriverMismatch, kDriverMismatch, "The driver was changed while it was running. Restart the machine, or run on the CPU"},
    {804, 804,
     "The library of a CUDA compatibility package is loaded on a device that does not support it. Remove its folder from LD_LIBRARY_PATH, "
     "install a newer driver, or run on the CPU"},
    {900, 908, "A stream is being captured into a CUDA graph. End the capture before onepass uses the stream"},
    {999, 999, "The driver gives no reason. Check `nvidia-smi` and `dmesg`, load the kernel module nvidia_uvm, or run on the CPU"},
};

std::string_view remedy_of(Result result) {
  for (const Remedy& r : kRemedies)
    if (result >= r.first && result <= r.last) return r.text;
  return "Check what `nvidia-smi` prints, or run on the CPU";
}

Found open_driver() {
  Found out;
  const std::optional<std::string> given = os::environment("ONEPASS_CUDA_DRIVER");
  Driver d;
  d.path = given.value_or("libcuda.so.1");
  void* const library = os::open_library(d.path);
  if (!library) {
    out.why = given ? fmt::format("ONEPASS_CUDA_DRIVER names {}, which cannot be opened. Set it to the driver's libcuda.so.1", d.path)
                    : "libcuda.so.1 was not found. Install NVIDIA's driver, or run on the CPU";
    return out;
  }
  const char* missing = nullptr;
#define ONEPASS_CUDA_TAKE(name, parameters)                                         \
  d.name = reinterpret_cast<Result(*) parameters>(os::find_symbol(library, #name)); \
  if (!d.name && !missing) missing = #name;
  ONEPASS_CUDA_FUNCTIONS(ONEPASS_CUDA_TAKE)
#undef ONEPASS_CUDA_TAKE
  if (missing) {
    out.why = fmt::format("{} has no {}: it is not a CUDA driver, or it is too old. Install NVIDIA's driver for CUDA 12.0 or newer", d.path,
                          missing);
    return out;
  }
  const Result asked = d.cuDriverGetVersion(&d.version);
  if (asked == kStubLibrary) {
    out.why = fmt::format(
        "{} is the stub library for linking, not the driver. Remove its folder from LD_LIBRARY_PATH, or install NVIDIA's driver", d.path);
    return out;
  }
  if (asked != 0 || d.version < kLeastVersion) {
    out.why =
        fmt::format("the driver supports CUDA {}.{}; 12.0 or newer is required. Install a newer driver from NVIDIA", d.major(), d.minor());
    return out;
  }
  if (const Result result = d.cuInit(0)) {
    const char* name = nullptr;
    d.cuGetErrorName(result, &name);
    out.why = result == kNoDevice ? "the driver finds no device. Check that `nvidia-smi` lists one and that CUDA_VISIBLE_DEVICES does not "
                                    "hide it, or run on the CPU"
                                  : fmt::format("the driver does not start ({}). {}", name ? name : "unknown error", remedy_of(result));
    return out;
  }
  out.driver = d;
  return out;
}

const Found& found() {
  static const Found* const it = new Found(open_driver());  // never destroyed: its functions may run while the process exits
  return *it;
}

}  // namespace

const Driver* Driver::find() { return found().driver ? &*found().driver : nullptr; }
const std::string& Driver::why() { return found().why; }

void Driver::fail(Result result, std::string_view what, std::string_view remedy) const {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(result, &name) != 0 || !name) name = "unknown error";
  if (cuGetErrorString(result, &words) != 0 || !words) words = "the driver gives no details";
  const std::string text = fmt::format("cuda: {} failed: {} ({}). {}", what, name, words, remedy.empty() ? remedy_of(result) : remedy);
  if (result == kOutOfMemory) throw MemoryError(text);
  throw Error(text);
}

}  // namespace onepass::runtime::cuda
