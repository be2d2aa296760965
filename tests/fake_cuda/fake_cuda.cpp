// Fake CUDA driver and compiler with NVIDIA's function names. Device memory is host memory, NVRTC is the C++ compiler, and kernels run on
// the machine of cuda_machine.h. Tests open this library instead of libcuda and libnvrtc.
//
// Work on a stream runs as late as possible: only when a caller waits for it, and only the work that the wait requires. So work without the
// necessary waits reads old memory. Tests can make calls fail: the n-th from now, with any driver error, once or for good.
//
// Environment variables, with their defaults:
// FAKE_CUDA_DEVICES: number of devices (1)
// FAKE_CUDA_CAPABILITY: their compute capability (80)
// FAKE_CUDA_VERSION: the driver's CUDA version (12080)
// FAKE_CUDA_START: result of cuInit (0: success)
// FAKE_CUDA_SHARED: most shared memory that a block may request (163 KiB)
// FAKE_NVRTC_VERSION: version of NVRTC (12080)
// FAKE_NVRTC_KNOWS: the only compute capability that NVRTC compiles for (80)
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../cuda_compile.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// Separate allocator, so that tests count only the library's allocations. Sanitizers need to see the allocations, so it is disabled there.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t bytes) {
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace {

namespace fs = std::filesystem;
using onepass::test::CompiledText;
std::recursive_mutex mutex;
std::int64_t fail_in = -1, calls = 0, limit = std::int64_t{1} << 40, held = 0;
int fail_code = 0;
bool for_good = false;
struct Block {
  std::size_t bytes;
  int device;
};
std::map<std::uintptr_t, Block> memory;  // blocks of cuMemAlloc
// Never destroyed: memory that a failed call has not freed still belongs to the driver, and is not a leak of the library.
std::map<std::uintptr_t, std::size_t>& pinned = *new std::map<std::uintptr_t, std::size_t>;
std::set<void*>& live = *new std::set<void*>;  // events, graphs
constexpr int kMostDevices = 4;
int contexts[kMostDevices];  // the elements' addresses are the contexts
// The devices whose contexts a thread has entered. It has no destructor, because plans may end after the variables of their thread.
struct Entries {
  int devices[8], count;
  bool empty() const { return count == 0; }
  int back() const { return devices[count - 1]; }
  void push_back(int device) { devices[count++] = device; }
  void pop_back() { --count; }
};
thread_local constinit Entries current{};
int entered = 0;   // entered contexts of all threads
int retained = 0;  // contexts
std::int64_t launched = 0, graphs = 0, compiled = 0, loaded = 0, early = 0, synchronized = 0, allocated = 0, peers = 0;
float elapsed[2] = {1, 0.5f};
int elapsed_asked = 0;

using Work = std::function<void()>;
struct Stream {
  int device = -1;  // -1: CUDA's default stream, shared by all devices here
  std::int64_t begun = 0, done = 0;
  std::deque<Work> waiting;
  unsigned long long capture = 0;  // 0: none
};
std::map<void*, Stream> streams;  // by handle
struct UserObject {
  void* pointer;
  void (*destroy)(void*);
  unsigned references;
  void release() {
    if (--references > 0) return;
    destroy(pointer);
    delete this;
  }
};
struct Module;
struct Graph {
  std::vector<Work> work;  // of all its streams, in the order of the calls
  std::vector<UserObject*> objects;
  std::set<Module*> modules;
};
std::set<Graph*> graphs_alive;
struct Capture {
  Graph* graph;
  void* stream;  // on which it began
  bool is_global, is_invalid;
};
std::map<unsigned long long, Capture> captures;  // by number
unsigned long long last_capture = 0;
thread_local constinit int capture_mode = 0;  // of this thread: 0 global, 1 of its own captures, 2 relaxed
// Returns an error if the thread does something that CUDA refuses during captures, which also makes them invalid.
int refused() {
  int result = 0;
  if (capture_mode == 2) return result;
  for (auto& [number, c] : captures)
    if (c.is_global) c.is_invalid = true, result = 900;
  return result;
}
// Maps the two handles of CUDA's default stream to one handle.
void* named(void* handle) { return handle == reinterpret_cast<void*>(1) ? nullptr : handle; }
void until(Stream& s, std::int64_t n) {
  while (s.done < n && !s.waiting.empty()) {
    Work work = std::move(s.waiting.front());
    s.waiting.pop_front();
    ++s.done;
    work();
  }
}
void all() {
  for (auto& [handle, s] : streams) until(s, s.begun);
}
void put(void* handle, Work work) {
  handle = named(handle);
  Stream& s = streams[handle];
  if (s.capture) return captures.at(s.capture).graph->work.push_back(std::move(work));
  ++s.begun;
  s.waiting.push_back(std::move(work));
}
struct Event {
  void* stream = nullptr;
  std::int64_t at = 0;
  int device = 0;
  unsigned long long capture = 0;  // in which it was recorded
};
int said(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}
int device_count() { return std::min(said("FAKE_CUDA_DEVICES", 1), kMostDevices); }
int capability() { return said("FAKE_CUDA_CAPABILITY", 80); }
int driver_version() { return said("FAKE_CUDA_VERSION", 12080); }
int nvrtc_version() { return said("FAKE_NVRTC_VERSION", 12080); }
int known_capability() { return said("FAKE_NVRTC_KNOWS", 80); }
const std::string kPtx = "// text that the driver compiles\n";  // followed by the placeholder for code

// Prologue of every driver function.
#define CALL()                                            \
  const std::lock_guard lock(mutex);                      \
  ++calls;                                                \
  if (fail_in >= 0 && (fail_in == 0 || fail_in-- == 0)) { \
    if (!for_good) fail_in = -1;                          \
    return fail_code;                                     \
  }

constexpr unsigned kShared = 48 << 10;  // limit of a block without a request, including its text's declarations
unsigned most_shared_of_block() { return static_cast<unsigned>(said("FAKE_CUDA_SHARED", 163 << 10)); }
struct Function {
  void (*kernel)(const std::int64_t*);
  bool far;
  std::size_t words;
  unsigned declared = 0;     // bytes of shared memory in the text
  unsigned most_shared = 0;  // additional bytes that a launch may request
};
unsigned most_asked_for = 0;  // declared and requested shared memory of a launch
struct Module {
  std::string image;
  void* library;
  void (*launch)(void (*)(const std::int64_t*), const std::int64_t*, unsigned, unsigned, bool, unsigned);
  std::map<std::string, Function> functions;
  std::int64_t pending = 0;  // launches that have not run; a launch of a graph is one
};
std::map<Function*, Module*> modules;

bool inside(std::uintptr_t at, std::size_t bytes) {
  auto it = memory.upper_bound(at);
  if (it == memory.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second.bytes;
}
// True if the memory belongs to the thread's device.
bool mine(std::uintptr_t at, std::size_t bytes) {
  return !current.empty() && inside(at, bytes) && std::prev(memory.upper_bound(at))->second.device == current.back();
}
bool is_pinned(std::uintptr_t at) {
  auto it = pinned.upper_bound(at);
  return it != pinned.begin() && at < std::prev(it)->first + std::prev(it)->second;
}

// Returns the size of a kernel's `__shared__` variables, as the compiler reports it. Here they are static variables in the symbol table.
unsigned declared_bytes(const std::string& image, const std::string& kernel) {
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), image.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const std::string prefix = "_ZZ" + std::to_string(kernel.size()) + kernel + "E";
  unsigned bytes = 0;
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB) continue;
    const char* const names = image.data() + sections[table.sh_link].sh_offset;
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, image.data() + table.sh_offset + at, sizeof symbol);
      if (std::strncmp(names + symbol.st_name, prefix.c_str(), prefix.size()) == 0)
        bytes = (bytes + 15) / 16 * 16 + static_cast<unsigned>(symbol.st_size);
    }
  }
  return bytes;
}

std::string temporary_folder() {
  std::string folder = (fs::temp_directory_path() / "onepass-fake-XXXXXX").string();
  return mkdtemp(folder.data()) ? folder : std::string();
}

}  // namespace

// ---- functions for tests
EXPORT void fake_cuda_fail(std::int64_t in, int code, bool always) { fail_in = in, fail_code = code, for_good = always; }
EXPORT bool fake_cuda_failed() { return fail_in == -1; }
EXPORT std::int64_t fake_cuda_calls() { return calls; }  // driver calls by all threads
EXPORT std::int64_t fake_cuda_held() { return held; }
EXPORT int fake_cuda_retained() { return retained; }
EXPORT std::int64_t fake_cuda_streams() { return static_cast<std::int64_t>(streams.size()); }
EXPORT std::int64_t fake_cuda_pinned() {
  const std::lock_guard lock(mutex);
  std::int64_t bytes = 0;
  for (const auto& [at, size] : pinned) bytes += static_cast<std::int64_t>(size);
  return bytes;
}
EXPORT int fake_cuda_entered() { return entered; }
EXPORT std::int64_t fake_cuda_launched() { return launched; }                            // kernels that ran
EXPORT std::int64_t fake_cuda_graphs() { return graphs; }                                // launches of graphs
EXPORT std::int64_t fake_cuda_compiled() { return compiled; }                            // programs, by the fake NVRTC
EXPORT std::int64_t fake_cuda_live() { return static_cast<std::int64_t>(live.size()); }  // events and graphs that were not destroyed
// Sets the times between two events; the results alternate.
EXPORT void fake_cuda_elapsed(float first, float second) { elapsed[0] = first, elapsed[1] = second, elapsed_asked = 0; }
EXPORT std::int64_t fake_cuda_waiting() {  // work on streams that has not run
  const std::lock_guard lock(mutex);
  std::int64_t n = 0;
  for (const auto& [handle, s] : streams) n += s.begun - s.done;
  return n;
}
EXPORT int fake_cuda_finish() {  // runs all work; the library does not know
  const std::lock_guard lock(mutex);
  all();
  return 0;
}
EXPORT std::int64_t fake_cuda_loaded() { return loaded; }              // modules
EXPORT std::int64_t fake_cuda_unloaded_early() { return early; }       // modules with kernels that had not run
EXPORT std::int64_t fake_cuda_synchronized() { return synchronized; }  // waits for a whole context
EXPORT std::int64_t fake_cuda_allocated() { return allocated; }        // calls of cuMemAlloc and cuMemFree
EXPORT std::int64_t fake_cuda_peers() { return peers; }                // devices that may access another device's memory
EXPORT std::int64_t fake_cuda_most_shared() { return most_asked_for; }
EXPORT void fake_cuda_limit(std::int64_t bytes) { limit = bytes; }

// ---- the driver
constexpr int kStub = 34;  // result of every function of the toolkit's stub library
EXPORT int cuInit(unsigned) { return device_count() == 0 ? 100 : said("FAKE_CUDA_START", 0); }
EXPORT int cuDriverGetVersion(int* version) {
  if (said("FAKE_CUDA_START", 0) == kStub) return kStub;
  *version = driver_version();
  return 0;
}
EXPORT int cuGetErrorName(int code, const char** name) {
  switch (code) {
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 1: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case 3: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case 200: *name = "CUDA_ERROR_INVALID_IMAGE"; break;
    case 209: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case 804: *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; break;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; break;
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
  *count = device_count();
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
  *value = which == 75   ? capability() / 10
           : which == 76 ? capability() % 10
           : which == 16 ? 2
           : which == 39 ? 512
           : which == 97 ? static_cast<int>(most_shared_of_block())
                         : 0;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  CALL();
  *context = &contexts[device];
  ++retained;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) {  // never fails, since it is part of error handling
  const std::lock_guard lock(mutex);
  --retained;
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  CALL();
  const std::ptrdiff_t device = static_cast<int*>(context) - contexts;
  if (device < 0 || device >= kMostDevices || current.count == 8) return 1;
  current.push_back(static_cast<int>(device));
  ++entered;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {  // never fails, since callers could not handle it
  const std::lock_guard lock(mutex);
  ++calls;
  if (current.empty()) return 201;
  *context = &contexts[current.back()];
  current.pop_back();
  --entered;
  return 0;
}
EXPORT int cuDeviceCanAccessPeer(int* can, int device, int other) {
  CALL();
  *can = device != other;
  return 0;
}
EXPORT int cuCtxEnablePeerAccess(void* context, unsigned) {
  CALL();
  if (current.empty() || context == &contexts[current.back()]) return 201;
  ++peers;
  return 0;
}
EXPORT int cuCtxSynchronize() {
  CALL();
  if (current.empty()) return 201;
  if (const int result = refused()) return result;
  ++synchronized;
  all();
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  CALL();
  if (current.empty()) return 201;
  *stream = new int;
  streams[*stream].device = current.back();
  return 0;
}
EXPORT int cuStreamDestroy_v2(void* stream) {  // never fails, since it is part of error handling
  const std::lock_guard lock(mutex);
  all();
  streams.erase(stream);
  delete static_cast<int*>(stream);
  return 0;
}
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  CALL();
  const auto it = streams.find(named(stream));
  if (it == streams.end() && named(stream)) return 400;
  *status = it != streams.end() && it->second.capture;
  return 0;
}
EXPORT int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph, const void**, std::size_t*) {
  CALL();
  const auto it = streams.find(named(stream));
  if (it == streams.end() && named(stream)) return 400;
  *status = 0;
  if (it == streams.end() || !it->second.capture) return 0;
  const Capture& c = captures.at(it->second.capture);
  *status = c.is_invalid ? 2 : 1, *id = it->second.capture, *graph = c.graph;
  return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {  // never fails, since callers could not handle it
  const std::lock_guard lock(mutex);
  ++calls;
  std::swap(capture_mode, *mode);
  return 0;
}
EXPORT int cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*), unsigned references, unsigned) {
  CALL();
  *object = new UserObject{pointer, destroy, references};
  return 0;
}
EXPORT int cuUserObjectRelease(void* object, unsigned) {  // never fails, since it is part of error handling
  const std::lock_guard lock(mutex);
  static_cast<UserObject*>(object)->release();
  return 0;
}
EXPORT int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned flags) {
  CALL();
  if (flags != 1) return 1;  // the only use: the graph takes over the reference
  static_cast<Graph*>(graph)->objects.push_back(static_cast<UserObject*>(object));
  return 0;
}
EXPORT int cuStreamSynchronize(void* stream) {
  CALL();
  stream = named(stream);
  const auto it = streams.find(stream);
  if (it == streams.end() && stream) return 400;
  if (it != streams.end() && it->second.capture) return captures.at(it->second.capture).is_invalid = true, 900;
  if (it != streams.end()) until(it->second, it->second.begun);
  return 0;
}
EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  CALL();
  stream = named(stream);
  if (stream && !streams.contains(stream)) return 400;
  const Event e = *static_cast<Event*>(event);
  Stream& waiting = streams[stream];
  if (e.capture) {  // the stream joins the capture
    if (waiting.capture && waiting.capture != e.capture) return 902;
    if (!captures.contains(e.capture)) return 907;
    waiting.capture = e.capture;
    return 0;
  }
  if (waiting.capture) return captures.at(waiting.capture).is_invalid = true, 905;
  put(stream, [e] {
    if (const auto it = streams.find(e.stream); it != streams.end()) until(it->second, e.at);
  });
  return 0;
}
EXPORT int cuEventCreate(void** event, unsigned) {
  CALL();
  if (current.empty()) return 201;
  *event = new Event{.device = current.back()};
  live.insert(*event);
  return 0;
}
EXPORT int cuEventDestroy_v2(void* event) {
  CALL();
  if (current.empty()) return 201;
  delete static_cast<Event*>(event);
  live.erase(event);
  return 0;
}
EXPORT int cuEventRecord(void* event, void* stream) {
  CALL();
  stream = named(stream);
  if (stream && !streams.contains(stream)) return 400;
  Event& e = *static_cast<Event*>(event);
  if (stream && streams[stream].device != e.device) return 400;  // an event must be recorded on a stream of its device
  e.stream = stream, e.at = streams[stream].begun, e.capture = streams[stream].capture;
  return 0;
}
EXPORT int cuEventSynchronize(void* event) {
  CALL();
  const Event e = *static_cast<Event*>(event);
  if (const auto it = streams.find(e.stream); it != streams.end()) until(it->second, e.at);
  return 0;
}
EXPORT int cuEventQuery(void* event) {
  CALL();
  if (const int result = refused()) return result;
  const Event e = *static_cast<Event*>(event);
  const auto it = streams.find(e.stream);
  return it == streams.end() || it->second.done >= e.at ? 0 : 600;
}
EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  CALL();
  for (void* const event : {begin, end}) {
    const Event e = *static_cast<Event*>(event);
    if (const auto it = streams.find(e.stream); it != streams.end() && it->second.done < e.at) return 600;
  }
  *milliseconds = elapsed[elapsed_asked++ % 2];
  return 0;
}
EXPORT int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  CALL();
  ++allocated;
  if (const int result = refused()) return result;
  if (current.empty()) return 201;
  if (held + static_cast<std::int64_t>(bytes) > limit) return 2;
  void* block = nullptr;
  if (posix_memalign(&block, 256, bytes) != 0) return 2;
  std::memset(block, 0xA5, bytes);
  memory[reinterpret_cast<std::uintptr_t>(block)] = {bytes, current.back()};
  held += static_cast<std::int64_t>(bytes);
  *address = reinterpret_cast<std::uintptr_t>(block);
  return 0;
}
EXPORT int cuMemFree_v2(unsigned long long address) {
  all();  // runs all work, like the driver, even if the call fails, since callers that free memory cannot handle errors
  CALL();
  ++allocated;
  if (const int result = refused()) return result;
  const auto it = memory.find(address);
  if (it == memory.end() || current.empty()) return 1;
  held -= static_cast<std::int64_t>(it->second.bytes);
  std::free(reinterpret_cast<void*>(it->first));
  memory.erase(it);
  return 0;
}
EXPORT int cuMemHostAlloc(void** block, std::size_t bytes, unsigned) {
  CALL();
  if (const int result = refused()) return result;
  if (current.empty()) return 201;
  *block = std::malloc(bytes);
  std::memset(*block, 0x5A, bytes);
  pinned[reinterpret_cast<std::uintptr_t>(*block)] = bytes;
  return 0;
}
EXPORT int cuMemFreeHost(void* block) {
  all();
  CALL();
  pinned.erase(reinterpret_cast<std::uintptr_t>(block));
  std::free(block);
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  CALL();
  if (!mine(to, bytes)) return 1;
  if (!is_pinned(reinterpret_cast<std::uintptr_t>(from))) {  // read before the call returns
    std::vector<char> copy(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    put(stream, [to, copy = std::move(copy)] { std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size()); });
  } else {
    put(stream, [to, from, bytes] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  }
  return 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  CALL();
  if (!mine(from, bytes)) return 1;
  put(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return 0;
}
EXPORT int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
  CALL();
  if (!mine(to, bytes) || !mine(from, bytes)) return 1;
  put(stream, [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return 0;
}
EXPORT int cuMemcpyPeerAsync(unsigned long long to, void* there, unsigned long long from, void* here, std::size_t bytes, void* stream) {
  CALL();
  if (!inside(to, bytes) || !inside(from, bytes) || there == here) return 1;
  put(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return 0;
}
EXPORT int cuMemsetD8Async(unsigned long long at, unsigned char value, std::size_t bytes, void* stream) {
  CALL();
  if (!mine(at, bytes)) return 1;
  put(stream, [=] { std::memset(reinterpret_cast<void*>(at), value, bytes); });
  return 0;
}
namespace {
void destroy(void* graph) {
  auto* const it = static_cast<Graph*>(graph);
  for (UserObject* const object : it->objects) object->release();
  live.erase(it);
  graphs_alive.erase(it);
  delete it;
}
}  // namespace
EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  CALL();
  Stream& s = streams[stream];
  if (s.capture) return 1;
  s.capture = ++last_capture;
  captures[s.capture] = {new Graph, stream, mode == 0, false};
  live.insert(captures[s.capture].graph);
  graphs_alive.insert(captures[s.capture].graph);
  return 0;
}
EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard early(mutex);
  const unsigned long long number = streams[stream].capture;
  const auto it = captures.find(number);
  if (it == captures.end()) return 1;
  const Capture capture = it->second;
  captures.erase(it);
  for (auto& [handle, s] : streams)
    if (s.capture == number) s.capture = 0;
  const int result = [&] {
    CALL();
    return capture.is_invalid ? 901 : 0;
  }();
  if (result == 0) *graph = capture.graph;
  else destroy(capture.graph);
  return result;
}
EXPORT int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  CALL();
  auto* const made = new Graph(*static_cast<Graph*>(graph));
  for (UserObject* const object : made->objects) ++object->references;
  live.insert(*exec = made);
  graphs_alive.insert(made);
  return 0;
}
EXPORT int cuGraphLaunch(void* exec, void* stream) {
  CALL();
  if (stream && !streams.contains(stream)) return 400;
  ++graphs;
  const auto* const graph = static_cast<const Graph*>(exec);
  for (Module* const module : graph->modules) ++module->pending;
  for (UserObject* const object : graph->objects) ++object->references;
  for (const Work& work : graph->work) put(stream, work);
  put(stream, [objects = graph->objects, modules = graph->modules] {
    for (Module* const module : modules) --module->pending;
    for (UserObject* const object : objects) object->release();
  });
  return 0;
}
EXPORT int cuGraphExecDestroy(void* exec) {
  CALL();
  if (current.empty()) return 201;
  destroy(exec);
  return 0;
}
EXPORT int cuGraphDestroy(void* graph) {
  CALL();
  destroy(graph);
  return 0;
}
EXPORT int cuModuleLoadData(void** out, const void* image) {
  CALL();
  if (const int result = refused()) return result;
  const bool is_text = std::strncmp(static_cast<const char*>(image), kPtx.c_str(), kPtx.size()) == 0;
  if (is_text) image = static_cast<const char*>(image) + kPtx.size();
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 209;
  const int version = static_cast<int>(header.e_flags / 1000), made_for = static_cast<int>(header.e_flags % 1000);
  if (version / 1000 > driver_version() / 1000) return is_text ? 222 : 200;  // a driver rejects later versions
  if (is_text ? made_for > capability() : made_for != capability()) return 209;
  const std::size_t bytes = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;  // the section headers are last
  const std::string folder = temporary_folder(), file = folder + "/module.so";
  std::ofstream(file, std::ios::binary).write(static_cast<const char*>(image), static_cast<std::streamsize>(bytes));
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  fs::remove_all(folder);
  if (!library) return 209;
  auto* module = new Module{std::string(static_cast<const char*>(image), bytes), library, nullptr, {}, 0};
  ++loaded;
  module->launch = reinterpret_cast<decltype(module->launch)>(dlsym(library, "onepass_launch"));
  *out = module;
  return 0;
}
EXPORT int cuModuleUnload(void* module) {
  CALL();
  if (const int result = refused()) return result;
  --loaded;
  early += static_cast<Module*>(module)->pending > 0;
  for (const Graph* const graph : graphs_alive) early += graph->modules.contains(static_cast<Module*>(module));
  delete static_cast<Module*>(module);
  return 0;
}
EXPORT int cuModuleGetFunction(void** function, void* handle, const char* name) {
  CALL();
  auto* module = static_cast<Module*>(handle);
  const auto kernel = reinterpret_cast<void (*)(const std::int64_t*)>(dlsym(module->library, name));
  if (!kernel) return 500;
  Function& f = module->functions[name];
  const auto* words = static_cast<const int*>(dlsym(module->library, (std::string(name) + "_words").c_str()));
  f = {kernel, dlsym(module->library, (std::string(name) + "_is_far").c_str()) != nullptr, words ? static_cast<std::size_t>(*words) : 0,
       declared_bytes(module->image, name), f.most_shared};
  f.most_shared = std::max(f.most_shared, kShared - std::min(kShared, f.declared));
  modules[&f] = module;
  *function = &f;
  return 0;
}
EXPORT int cuFuncGetAttribute(int* value, int which, void* function) {
  CALL();
  if (which != 1) return 1;
  *value = static_cast<int>(static_cast<Function*>(function)->declared);
  return 0;
}
EXPORT int cuFuncSetAttribute(void* function, int which, int value) {
  CALL();
  auto* f = static_cast<Function*>(function);
  if (which != 8 || value < 0 || static_cast<unsigned>(value) + f->declared > most_shared_of_block()) return 1;
  f->most_shared = static_cast<unsigned>(value);
  return 0;
}
EXPORT int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared,
                          void* stream, void** arguments, void**) {
  CALL();
  if (current.empty() || blocks == 0 || threads == 0 || threads > 1024) return 1;
  if (named(stream) && !streams.contains(stream)) return 400;
  auto* f = static_cast<Function*>(function);
  if (shared > f->most_shared || shared + f->declared > most_shared_of_block()) return 1;
  most_asked_for = std::max(most_asked_for, shared + f->declared);
  Module* const module = modules.at(f);
  const auto seed = static_cast<unsigned>(calls);
  const unsigned long long capture = streams[named(stream)].capture;
  const bool counts = !capture;
  if (capture) captures.at(capture).graph->modules.insert(module);
  module->pending += counts;
  if (f->far) {
    put(stream, [=, far = *static_cast<const unsigned long long*>(arguments[0])] {
      ++launched;
      module->pending -= counts;
      module->launch(f->kernel, reinterpret_cast<const std::int64_t*>(far), blocks, threads, true, seed);
    });
  } else {
    std::vector<std::int64_t> words(static_cast<const std::int64_t*>(arguments[0]),
                                    static_cast<const std::int64_t*>(arguments[0]) + f->words);
    put(stream, [=, words = std::move(words)] {
      ++launched;
      module->pending -= counts;
      module->launch(f->kernel, words.data(), blocks, threads, true, seed);
    });
  }
  return 0;
}

// ---- the compiler
namespace {
struct Program {
  std::string text, object, log;
  bool as_text = false;  // PTX
};
}  // namespace

EXPORT const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = nvrtc_version() / 1000, *minor = nvrtc_version() % 1000 / 10;
  return 0;
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
EXPORT int nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = known_capability();
  return 0;
}
EXPORT int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
  *program = new Program{text, {}, {}, false};
  return 0;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
EXPORT int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
  {
    const std::lock_guard lock(mutex);
    ++compiled;
  }
  auto* program = static_cast<Program*>(handle);
  const std::string known = std::to_string(known_capability());
  const auto has = [&](const std::string& option) { return std::find(options, options + count, option) != options + count; };
  program->as_text = has("--gpu-architecture=compute_" + known);
  if (!program->as_text && !has("--gpu-architecture=sm_" + known)) return 5;
  if (!has("--fmad=false")) return 5;  // without this option results differ
  const CompiledText text(program->text);
  program->log = text.log();
  if (!text.is_compiled()) return 6;
  program->object = CompiledText::bytes_of(text.path());
  const auto flags = static_cast<Elf64_Word>(nvrtc_version() * 1000 + known_capability());  // ignored by the host's loader
  std::memcpy(program->object.data() + offsetof(Elf64_Ehdr, e_flags), &flags, sizeof flags);
  return 0;
}
EXPORT int nvrtcGetPTXSize(void* handle, std::size_t* size) {
  const auto* program = static_cast<Program*>(handle);
  *size = program->as_text ? kPtx.size() + program->object.size() + 1 : 0;
  return 0;
}
EXPORT int nvrtcGetPTX(void* handle, char* out) {
  const auto* program = static_cast<Program*>(handle);
  if (program->as_text) out = std::copy_n((kPtx + program->object).data(), kPtx.size() + program->object.size(), out), *out = '\n';
  return 0;
}
EXPORT int nvrtcGetCUBINSize(void* handle, std::size_t* size) {
  const auto* program = static_cast<Program*>(handle);
  *size = program->as_text ? 0 : program->object.size();
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
