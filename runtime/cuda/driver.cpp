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
// After these errors, all later calls of the process on that device fail with the same one.
constexpr std::string_view kLost =
    "the device is lost to this process: restart it to use the device again, the cpu keeps working; please report what it ran";
constexpr Remedy kRemedies[] = {
    {kOutOfMemory, kOutOfMemory, "free arrays of this or another process on the device, or run on the cpu"},
    {kNotInitialised, kNotInitialised,
     "a process that was forked cannot use the device of the one that it comes from: use it in one of them alone, or run on the cpu"},
    {46, 46, "another process has the device for itself: wait for it, or run on the cpu"},
    {kNoDevice, 101, "see that `nvidia-smi` lists the device, or run on the cpu"},
    {kNoBinaryForDevice, kNoBinaryForDevice, "the CUDA toolkit does not know this device: install a newer one"},
    {221, 221, "the driver's own compiler is missing: install the whole driver, or a CUDA toolkit that knows this device"},
    {kUnsupportedPtxVersion, kUnsupportedPtxVersion, "the driver is older than the CUDA toolkit: install a newer driver"},
    {214, 214,
     "the device found a memory error that it cannot correct: see `nvidia-smi -q -d ECC`, restart the process, or run on the cpu"},
    {700, 700,
     "a kernel accessed memory outside its arrays, and the device is lost to this process: restart it to use the device again, the cpu "
     "keeps "
     "working; if no other library runs kernels in the process, please report what it ran"},
    {701, 701, "the device has too little for this kernel: please report it, and run on the cpu"},
    {702, 719, kLost},
    {802, 802,
     "the machine's NVSwitch is not ready: start the service nvidia-fabricmanager, whose version must be the driver's, or run on the cpu"},
    {kDriverMismatch, kDriverMismatch, "the driver was changed while it ran: start the machine again, or run on the cpu"},
    {804, 804,
     "the library of a CUDA compatibility package is loaded on a device that does not support it: take its folder out of LD_LIBRARY_PATH, "
     "install a newer driver, or run on the cpu"},
    {900, 908, "a stream is being captured into a CUDA graph: end the capture before onepass uses the stream"},
    {999, 999,
     "the driver does not say why: see that `nvidia-smi` works and what `dmesg` says, load the kernel module nvidia_uvm, or run on the "
     "cpu"},
};

std::string_view remedy_of(Result result) {
  for (const Remedy& r : kRemedies)
    if (result >= r.first && result <= r.last) return r.text;
  return "see what `nvidia-smi` says, or run on the cpu";
}

Found open_driver() {
  Found out;
  const std::optional<std::string> given = os::environment("ONEPASS_CUDA_DRIVER");
  Driver d;
  d.path = given.value_or("libcuda.so.1");
  void* const library = os::open_library(d.path);
  if (!library) {
    out.why = given ? fmt::format("ONEPASS_CUDA_DRIVER names {}, which cannot be opened: set it to the driver's libcuda.so.1", d.path)
                    : "no libcuda.so.1: install NVIDIA's driver, or run on the cpu";
    return out;
  }
  const char* missing = nullptr;
#define ONEPASS_CUDA_TAKE(name, parameters)                                         \
  d.name = reinterpret_cast<Result(*) parameters>(os::find_symbol(library, #name)); \
  if (!d.name && !missing) missing = #name;
  ONEPASS_CUDA_FUNCTIONS(ONEPASS_CUDA_TAKE)
#undef ONEPASS_CUDA_TAKE
  if (missing) {
    out.why =
        fmt::format("{} has no {}: it is no driver, or too old a one; install NVIDIA's driver for CUDA 12.0 or newer", d.path, missing);
    return out;
  }
  const Result asked = d.cuDriverGetVersion(&d.version);
  if (asked == kStubLibrary) {
    out.why = fmt::format(
        "{} is the stub that programs are linked with, not the driver: take its folder out of LD_LIBRARY_PATH, or install NVIDIA's driver",
        d.path);
    return out;
  }
  if (asked != 0 || d.version < kLeastVersion) {
    out.why =
        fmt::format("the driver is for CUDA {}.{}, and 12.0 or newer is needed: install a newer driver from NVIDIA", d.major(), d.minor());
    return out;
  }
  if (const Result result = d.cuInit(0)) {
    const char* name = nullptr;
    d.cuGetErrorName(result, &name);
    out.why =
        result == kNoDevice
            ? "the driver finds no device: see that `nvidia-smi` lists one and CUDA_VISIBLE_DEVICES does not hide it, or run on the cpu"
            : fmt::format("the driver does not start ({}): {}", name ? name : "unknown error", remedy_of(result));
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
  if (cuGetErrorString(result, &words) != 0 || !words) words = "the driver says no more";
  const std::string text = fmt::format("cuda: {} failed: {} ({}); {}", what, name, words, remedy.empty() ? remedy_of(result) : remedy);
  if (result == kOutOfMemory) throw MemoryError(text);
  throw Error(text);
}

}  // namespace onepass::runtime::cuda
