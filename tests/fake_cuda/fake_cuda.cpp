// A driver and a compiler that are none, under the names of NVIDIA's: device memory is the host's, NVRTC is the C++ compiler, and kernels run on
// the machine of cuda_machine.h. Calls can be made to fail: the n-th from now, with any of the driver's numbers, once or for good.
// Tests open it in place of libcuda and of libnvrtc; FAKE_CUDA_DEVICES says how many devices it has (1).
#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace fs = std::filesystem;
std::recursive_mutex mutex;
std::int64_t fail_in = -1, calls = 0, limit = std::int64_t{1} << 40, held = 0;
int fail_code = 0;
bool for_good = false;
std::map<std::uintptr_t, std::size_t> memory;  // what cuMemAlloc gave
int entered = 0;                               // contexts that are current

// What every function of the driver begins with.
#define CALL()                                            \
  const std::lock_guard lock(mutex);                      \
  ++calls;                                                \
  if (fail_in >= 0 && (fail_in == 0 || fail_in-- == 0)) { \
    if (!for_good) fail_in = -1;                          \
    return fail_code;                                     \
  }

struct Function {
  void (*kernel)(const std::int64_t*);
  bool far;
};
struct Module {
  void* library;
  void (*launch)(void (*)(const std::int64_t*), const std::int64_t*, unsigned, unsigned, bool, unsigned);
  std::map<std::string, Function> functions;
};
std::map<Function*, Module*> modules;

bool inside(std::uintptr_t at, std::size_t bytes) {
  auto it = memory.upper_bound(at);
  if (it == memory.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

std::string temporary_folder() {
  std::string folder = (fs::temp_directory_path() / "onepass-fake-XXXXXX").string();
  return mkdtemp(folder.data()) ? folder : std::string();
}

}  // namespace

// ---- what tests say
EXPORT void fake_cuda_fail(std::int64_t in, int code, bool always) { fail_in = in, fail_code = code, for_good = always; }
EXPORT bool fake_cuda_failed() { return fail_in == -1; }
EXPORT std::int64_t fake_cuda_calls() { return calls; }
EXPORT std::int64_t fake_cuda_held() { return held; }
EXPORT int fake_cuda_entered() { return entered; }
EXPORT void fake_cuda_limit(std::int64_t bytes) { limit = bytes; }

// ---- the driver
EXPORT int cuInit(unsigned) {
  const char* devices = std::getenv("FAKE_CUDA_DEVICES");
  return devices && std::atoi(devices) == 0 ? 100 : 0;
}
EXPORT int cuDriverGetVersion(int* version) {
  const char* given = std::getenv("FAKE_CUDA_VERSION");
  *version = given ? std::atoi(given) : 12080;
  return 0;
}
EXPORT int cuGetErrorName(int code, const char** name) {
  switch (code) {
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 1: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case 209: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default: *name = nullptr; return 1;
  }
  return 0;
}
EXPORT int cuGetErrorString(int code, const char** words) {
  *words = code == 2 ? "out of memory" : "as the driver says it";
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  CALL();
  *count = 1;
  return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  CALL();
  *device = ordinal;
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int size, int) {
  CALL();
  std::strncpy(name, "a device that is none", static_cast<std::size_t>(size));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int which, int) {
  CALL();
  *value = which == 75 ? 8 : which == 76 ? 0 : which == 16 ? 2 : which == 39 ? 512 : 0;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  CALL();
  *context = &memory;
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  CALL();
  if (context != &memory) return 1;
  ++entered;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {  // never fails: there would be nothing to do about it
  --entered;
  *context = &memory;
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  CALL();
  *stream = &calls;
  return 0;
}
EXPORT int cuStreamSynchronize(void* stream) {
  CALL();
  return stream == &calls ? 0 : 1;
}
EXPORT int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  CALL();
  if (entered == 0) return 1;
  if (held + static_cast<std::int64_t>(bytes) > limit) return 2;
  void* block = nullptr;
  if (posix_memalign(&block, 256, bytes) != 0) return 2;
  std::memset(block, 0xA5, bytes);
  memory[reinterpret_cast<std::uintptr_t>(block)] = bytes;
  held += static_cast<std::int64_t>(bytes);
  *address = reinterpret_cast<std::uintptr_t>(block);
  return 0;
}
EXPORT int cuMemFree_v2(unsigned long long address) {
  CALL();
  const auto it = memory.find(address);
  if (it == memory.end()) return 1;
  held -= static_cast<std::int64_t>(it->second);
  std::free(reinterpret_cast<void*>(it->first));
  memory.erase(it);
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void*) {
  CALL();
  if (entered == 0 || !inside(to, bytes)) return 1;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void*) {
  CALL();
  if (entered == 0 || !inside(from, bytes)) return 1;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
EXPORT int cuModuleLoadData(void** out, const void* image) {
  CALL();
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 209;
  const std::size_t bytes = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;  // sections' headers stand last
  const std::string folder = temporary_folder(), file = folder + "/module.so";
  std::ofstream(file, std::ios::binary).write(static_cast<const char*>(image), static_cast<std::streamsize>(bytes));
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  fs::remove_all(folder);
  if (!library) return 209;
  auto* module = new Module{library, nullptr, {}};
  module->launch = reinterpret_cast<decltype(module->launch)>(dlsym(library, "onepass_launch"));
  *out = module;
  return 0;
}
EXPORT int cuModuleUnload(void* module) {
  CALL();
  delete static_cast<Module*>(module);
  return 0;
}
EXPORT int cuModuleGetFunction(void** function, void* handle, const char* name) {
  CALL();
  auto* module = static_cast<Module*>(handle);
  const auto kernel = reinterpret_cast<void (*)(const std::int64_t*)>(dlsym(module->library, name));
  if (!kernel) return 500;
  Function& f = module->functions[name];
  f = {kernel, dlsym(module->library, (std::string(name) + "_is_far").c_str()) != nullptr};
  modules[&f] = module;
  *function = &f;
  return 0;
}
EXPORT int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared, void*,
                          void** arguments, void**) {
  CALL();
  if (entered == 0 || blocks == 0 || threads == 0 || threads > 1024 || shared > 48 << 10) return 1;
  auto* f = static_cast<Function*>(function);
  const auto* words = static_cast<const std::int64_t*>(arguments[0]);
  if (f->far) words = reinterpret_cast<const std::int64_t*>(*static_cast<const unsigned long long*>(arguments[0]));
  modules.at(f)->launch(f->kernel, words, blocks, threads, true, static_cast<unsigned>(calls));
  return 0;
}

// ---- the compiler
namespace {
struct Program {
  std::string text, object, log;
};
}  // namespace

EXPORT const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 12, *minor = 8;
  return 0;
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
EXPORT int nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 80;
  return 0;
}
EXPORT int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
  *program = new Program{text, {}, {}};
  return 0;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
EXPORT int nvrtcCompileProgram(void* handle, int, const char* const*) {
  auto* program = static_cast<Program*>(handle);
  const std::string folder = temporary_folder(), source = folder + "/text.cpp", object = folder + "/text.so", log = folder + "/log";
  std::ofstream(source) << "#include \"" ONEPASS_SOURCE_DIR "/tests/cuda_machine.h\"\n" << program->text;
  const std::string command = std::string(ONEPASS_CXX_COMPILER) +
                              " -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off " ONEPASS_EMULATION_FLAGS " -o " + object + " " + source +
                              " > " + log + " 2>&1";
  const int status = std::system(command.c_str());
  const auto all_of = [](const std::string& path) {
    std::stringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  };
  program->log = all_of(log);
  if (status == 0) program->object = all_of(object);
  fs::remove_all(folder);
  return status == 0 ? 0 : 6;
}
EXPORT int nvrtcGetPTXSize(void*, std::size_t* size) {
  *size = 0;
  return 0;
}
EXPORT int nvrtcGetPTX(void*, char*) { return 0; }
EXPORT int nvrtcGetCUBINSize(void* program, std::size_t* size) {
  *size = static_cast<Program*>(program)->object.size();
  return 0;
}
EXPORT int nvrtcGetCUBIN(void* program, char* out) {
  const std::string& object = static_cast<Program*>(program)->object;
  std::memcpy(out, object.data(), object.size());
  return 0;
}
EXPORT int nvrtcGetProgramLogSize(void* program, std::size_t* size) {
  *size = static_cast<Program*>(program)->log.size();
  return 0;
}
EXPORT int nvrtcGetProgramLog(void* program, char* out) {
  const std::string& log = static_cast<Program*>(program)->log;
  std::memcpy(out, log.data(), log.size());
  return 0;
}
