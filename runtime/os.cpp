// Operating system functions for Linux on x86-64 and AArch64.
#include "runtime/os.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/os_mapped.h"

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "runtime/os.cpp is written for Linux on x86-64 and AArch64"
#endif

namespace onepass::os {

namespace {

// Functions that must not fail use these readers, so they read machine and process data without allocation.

/// The start of a file of /proc or /sys, zero-terminated; empty if it cannot be read.
template <std::size_t kMost> struct SmallText {
  char text[kMost];
  explicit SmallText(const char* path) {
    std::size_t size = 0;
    if (const int file = ::open(path, O_RDONLY | O_CLOEXEC); file >= 0) {
      for (;;) {
        const ssize_t count = ::read(file, text + size, kMost - 1 - size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        size += static_cast<std::size_t>(count);
      }
      ::close(file);
    }
    text[size] = 0;
  }
};

/// Returns the first number in a small file of /sys; empty for "max" or without a file.
std::optional<std::int64_t> number_in(const char* path) {
  const SmallText<64> file(path);
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(file.text, &end, 10);
  if (end == file.text || errno) return std::nullopt;
  return value;
}

/// Calls `visit` with the path of the file `name` in the folder of this process's control group and in each parent folder. A
/// limit may be set at any level.
template <class Visit> void for_each_control_group(const char* name, Visit visit) {
  constexpr int kMost = 2048;  // more than any real list or path
  const SmallText<kMost> groups("/proc/self/cgroup");
  const char* const start = std::strstr(groups.text, "0::");
  if (!start) return;
  std::string_view group(start + 3);
  group = group.substr(0, group.find('\n'));
  for (int depth = 0; depth < 64; ++depth) {
    if (group == "/") group = "";
    char path[kMost];
    const int length = std::snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/%s", static_cast<int>(group.size()), group.data(), name);
    if (length > 0 && length < kMost) visit(path);
    if (group.empty()) break;
    group = group.substr(0, group.rfind('/') == std::string_view::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

// ---- the machine ----

std::size_t page_size() noexcept {
  static const std::size_t size = static_cast<std::size_t>(std::max(4096L, sysconf(_SC_PAGESIZE)));
  return size;
}

int usable_cores() noexcept {
  int cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  // The kernel rejects a mask smaller than its own. The loop serves machines with more than 1,024 processors.
  for (int capacity = 1024; capacity <= 1 << 16; capacity *= 4) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    if (known) cores = std::max(1, CPU_COUNT_S(bytes, set));
    const bool retry = !known && errno == EINVAL;
    CPU_FREE(set);
    if (!retry) break;
  }
  const auto limit_to = [&](std::int64_t quota, std::int64_t period) {
    if (quota > 0 && period > 0) cores = static_cast<int>(std::clamp<std::int64_t>((quota + period - 1) / period, 1, cores));
  };
  for_each_control_group("cpu.max", [&](const char* path) {
    long long quota = 0, period = 0;
    if (std::sscanf(SmallText<64>(path).text, "%lld %lld", &quota, &period) == 2) limit_to(quota, period);
  });
  limit_to(number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").value_or(0), number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us").value_or(0));
  return cores;
}

std::size_t memory_bytes() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  std::int64_t bytes = pages > 0 ? std::int64_t{pages} * static_cast<std::int64_t>(page_size()) : std::int64_t{4} << 30;
  const auto limit_to = [&](std::optional<std::int64_t> limit) {
    if (limit && *limit > 0) bytes = std::min(bytes, *limit);
  };
  for_each_control_group("memory.max", [&](const char* path) { limit_to(number_in(path)); });
  limit_to(number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  return static_cast<std::size_t>(bytes);
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = [] {
    CacheSizes result;
    const auto set = [](std::size_t& size, long value) {
      if (value > 0) size = static_cast<std::size_t>(value);
    };
#ifdef _SC_LEVEL1_DCACHE_SIZE
    set(result.l1, sysconf(_SC_LEVEL1_DCACHE_SIZE));
    set(result.l2, sysconf(_SC_LEVEL2_CACHE_SIZE));
    set(result.l3, sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
    // Prefers sysfs if it exists. sysconf has no values on AArch64. On large AMD processors it gives the sum of all third-level caches
    // (384 MiB with 32 MiB per core). sysfs sizes have the form "64K".
    for (int index = 0; index < 8; ++index) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
      const auto level = number_in((folder + "level").c_str()), size = number_in((folder + "size").c_str());
      const SmallText<64> type((folder + "type").c_str());
      if (!level || !size || !*type.text || std::string_view(type.text).starts_with("Instruction")) continue;
      std::size_t& target = *level == 1 ? result.l1 : *level == 2 ? result.l2 : result.l3;
      set(target, static_cast<long>(*size << 10));
    }
    return result;
  }();
  return sizes;
}

// ---- memory ----

void* map_memory(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t page = page_size();
  if (bytes == 0 || bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) return nullptr;
  bytes = (bytes + page - 1) & ~(page - 1);
  const std::size_t slack = alignment > page ? alignment - page : 0;
  void* const mapping = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(mapping);
  const auto aligned = slack ? (start + alignment - 1) & ~(alignment - 1) : start;
  if (aligned > start) munmap(mapping, aligned - start);
  if (const std::size_t behind = start + slack - aligned) munmap(reinterpret_cast<void*>(aligned + bytes), behind);
  void* const memory = reinterpret_cast<void*>(aligned);
  // Advice only: if huge pages are disabled, the system uses small pages.
  if (alignment >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void unmap_memory(void* memory, std::size_t bytes) noexcept {
  if (memory && bytes) munmap(memory, (bytes + page_size() - 1) & ~(page_size() - 1));
}

bool has_room(std::size_t bytes) noexcept {
  void* const memory = map_memory(bytes, page_size());
  unmap_memory(memory, bytes);
  return memory != nullptr;
}

bool may_run_made_code() noexcept {
  static constinit std::atomic<bool> denied{false};
  if (denied.load(std::memory_order_relaxed)) return false;
  void* const page = map_memory(page_size(), page_size());
  if (!page) return true;  // no memory: the later allocation reports it
  const bool failed = mprotect(page, page_size(), PROT_READ | PROT_EXEC) != 0 && errno != ENOMEM;
  unmap_memory(page, page_size());
  if (failed) denied.store(true, std::memory_order_relaxed);
  return !failed;
}

ExecutableMemory ExecutableMemory::allocate(std::size_t bytes) {
  ExecutableMemory result;
  bytes = std::max<std::size_t>(bytes, 1);
  result.data_ = static_cast<std::byte*>(map_memory(bytes, page_size()));
  if (!result.data_) throw MemoryError(fmt::format("out of memory: cannot allocate {} bytes for a kernel's machine code", bytes));
  result.size_ = (bytes + page_size() - 1) & ~(page_size() - 1);
  return result;
}

ExecutableMemory::~ExecutableMemory() { unmap_memory(data_, size_); }

void ExecutableMemory::finalize() {
  if (!data_) return;
  if (mprotect(data_, size_, PROT_READ | PROT_EXEC) != 0)
    throw Error(fmt::format("this system does not let a program run code that it generated (mprotect: {}). Use mode `reference`.",
                            error_text(errno)));
  __builtin___clear_cache(reinterpret_cast<char*>(data_), reinterpret_cast<char*>(data_ + size_));
}

// ---- threads ----

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);

void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wait_for(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t nanoseconds) noexcept {
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &time, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word, int sleepers) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

std::int64_t process_id() noexcept { return getpid(); }

std::string thread_name() {
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

int current_processor() noexcept { return sched_getcpu(); }

void yield_processor() noexcept { sched_yield(); }

namespace {
constexpr std::size_t kLargeStack = std::size_t{8} << 20;  // LLVM recurses deeply
}

bool start_thread(const char* name, void (*body)(void*), void* argument) noexcept {
  struct Start {
    void (*body)(void*);
    void* argument;
    char name[16];
    Start* next;
  };
  // Kept, like the threads: freeing it on the thread would make malloc map an arena for a thread that may not need one.
  static constinit std::atomic<Start*> started_threads{nullptr};
  auto* const start = new (std::nothrow) Start{body, argument, {}, nullptr};
  if (!start) return false;
  std::snprintf(start->name, sizeof start->name, "%s", name);

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kLargeStack);  // musl's default is 128 KiB
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, fault);  // blocked faults end the process unseen
  pthread_sigmask(SIG_SETMASK, &all, &before);                                       // a thread inherits its creator's mask
  pthread_t thread;
  const auto entry = [](void* raw) -> void* {
    const Start& mine = *static_cast<Start*>(raw);
    std::fesetenv(FE_DFL_ENV);  // also inherited: the host's unmasked exceptions would be raised here
    pthread_setname_np(pthread_self(), mine.name);
    mine.body(mine.argument);
    return nullptr;
  };
  const bool started = pthread_create(&thread, &attributes, entry, start) == 0;
  if (started) {
    start->next = started_threads.load(std::memory_order_relaxed);
    while (!started_threads.compare_exchange_weak(start->next, start, std::memory_order_release, std::memory_order_relaxed)) {}
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (!started) delete start;
  return started;
}

std::size_t stack_left() noexcept {
  thread_local constinit std::uintptr_t low = 0, high = 0;  // bounds of the thread's own stack
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here <= low || here >= high) {
    // For a main thread, pthread_getattr_np would read a file. The system's auxiliary data marks the start of the main stack.
    const std::uintptr_t top = getauxval(AT_RANDOM);
    rlimit limit{};
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) limit.rlim_cur = std::size_t{8} << 20;
    if (here < top && top - here < limit.rlim_cur) {
      low = top - limit.rlim_cur, high = top;
    } else {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
      void* begin = nullptr;
      std::size_t size = 0;
      if (pthread_attr_getstack(&attributes, &begin, &size) == 0) low = reinterpret_cast<std::uintptr_t>(begin), high = low + size;
      pthread_attr_destroy(&attributes);
    }
  }
  return here > low && here < high ? here - low : 0;
}

void detail::on_large_stack(void (*body)(void*), void* argument) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // with sanitizers, callers have large stacks
  constexpr std::size_t enough = std::size_t{1} << 20;
  if (stack_left() < enough) {
    struct Start {
      void (*body)(void*);
      void* argument;
    } start{body, argument};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kLargeStack);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits its creator's mask
    pthread_t thread;
    const auto entry = [](void* raw) -> void* {
      const Start& mine = *static_cast<Start*>(raw);
      mine.body(mine.argument);
      return nullptr;
    };
    const bool started = pthread_create(&thread, &attributes, entry, &start) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (started) {
      pthread_join(thread, nullptr);
      return;
    }
  }
#endif
  body(argument);
}

int thread_number() noexcept { return static_cast<int>(::syscall(SYS_gettid)); }

void set_idle_priority(int thread, bool idle) noexcept {
  sched_param parameters{};
  int policy = SCHED_IDLE;
  if (!idle && ((policy = sched_getscheduler(getpid())) < 0 || sched_getparam(getpid(), &parameters) != 0)) return;
  sched_setscheduler(thread, policy, &parameters);  // affects one thread, although the manual page says "process"
}

void at_fork(void (*prepare)(), void (*parent)(), void (*child)()) { pthread_atfork(prepare, parent, child); }

std::int64_t nanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t thread_nanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t thread_nanoseconds(int thread) noexcept {
  // Computes the clock id directly, because pthread_getcpuclockid needs a valid pthread_t. Bits 0 to 2: CPUCLOCK_SCHED and
  // CPUCLOCK_PERTHREAD_MASK.
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6);
  timespec now;
  if (clock_gettime(clock, &now) != 0) return 0;
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void move_to_another_processor(int thread) noexcept {
  cpu_set_t may_use, others;
  const int here = sched_getcpu();
  if (here < 0 || sched_getaffinity(thread, sizeof may_use, &may_use) != 0 || !CPU_ISSET(static_cast<std::size_t>(here), &may_use)) return;
  others = may_use;
  CPU_CLR(static_cast<std::size_t>(here), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(thread, sizeof others, &others) != 0) return;
  sched_setaffinity(thread, sizeof may_use, &may_use);
}

// ---- files ----

namespace {

/// Reads until `size` bytes have been read or the file ends. Returns the number of bytes, or -1.
ssize_t read_fully(int descriptor, std::byte* out, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(descriptor, out + done, std::min<std::size_t>(size - done, 1 << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

// Returns the text of strerror_r, because strerror is not thread-safe. libcs differ in its type.
std::string error_text(int error) {
  char buffer[256];
  buffer[0] = 0;
#if defined(_GNU_SOURCE) && defined(__GLIBC__)
  return strerror_r(error, buffer, sizeof buffer);
#else
  strerror_r(error, buffer, sizeof buffer);
  return buffer;
#endif
}

int write_fully(int descriptor, const std::byte* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(descriptor, bytes, std::min<std::size_t>(size, 1 << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return 0;
}

FileBytes FileBytes::open(const char* what, const std::string& path, bool may_map) {
  const auto fail = [&](const std::string& why) { throw IoError(fmt::format("{}: {}: {}", what, path, why)); };
  if (path.find('\0') != std::string::npos) fail("a path cannot contain a zero byte");
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // does not hang on a pipe without a writer
  if (file.value < 0) fail("cannot be opened: " + error_text(errno));
  struct stat status;
  if (fstat(file.value, &status) != 0) fail("cannot be read: " + error_text(errno));
  if (!S_ISREG(status.st_mode)) fail(S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not a regular file");

  FileBytes result;
  result.size_ = static_cast<std::size_t>(status.st_size);
  // For smaller files, reading is cheaper than the page faults of a mapping.
  constexpr std::size_t kMapFrom = 256 << 10;
  if (may_map && result.size_ >= kMapFrom)
    if (void* const mapping = map_guarded(file.value, result.size_)) {
      result.data_ = static_cast<std::byte*>(mapping);
      result.owner_ = std::shared_ptr<void>(mapping, [size = result.size_](void* memory) { unmap_guarded(memory, size); });
      result.mapped_ = true;
      return result;
    }
  constexpr std::align_val_t kAlignment{64};
  void* const memory = ::operator new(std::max<std::size_t>(result.size_, 1), kAlignment, std::nothrow);
  if (!memory) throw MemoryError(fmt::format("out of memory: {} needs {} bytes to read {}", what, result.size_, path));
  result.owner_ = std::shared_ptr<void>(memory, [](void* owned) { ::operator delete(owned, kAlignment); });
  result.data_ = static_cast<std::byte*>(memory);
  const ssize_t count = read_fully(file.value, result.data_, result.size_);
  if (count < 0) fail("cannot be read: " + error_text(errno));
  result.size_ = static_cast<std::size_t>(count);  // shorter if the file was truncated in the meantime: the parser's checks detect it
  return result;
}

bool file_exists(const std::string& path) noexcept { return access(path.c_str(), F_OK) == 0; }

// ---- the process ----

bool runs_with_more_rights() noexcept { return getauxval(AT_SECURE) != 0; }

std::optional<std::string> environment(const char* name) {
  if (runs_with_more_rights()) return std::nullopt;
  const char* const value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

const TestSettings& for_tests() noexcept {
  static const TestSettings settings = [] {
    TestSettings s;
    const char* const value = runs_with_more_rights() ? nullptr : std::getenv("ONEPASS_TESTING");
    for (std::string_view rest = value ? value : ""; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      s.strict |= word == "strict";
      s.poison |= word == "poison";
      s.strips |= word == "strips";
      if (word.starts_with("points=")) s.verified_points = std::atoll(word.data() + 7);
    }
    return s;
  }();
  return settings;
}

std::string library_folder() {
  Dl_info info, program;
  if (dladdr(reinterpret_cast<const void*>(&library_folder), &info) == 0 || !info.dli_fname) return {};
  // For the program itself, the name is the path of its start; /proc/self/exe is reliable.
  const bool in_program = dladdr(reinterpret_cast<const void*>(getauxval(AT_PHDR)), &program) != 0 && program.dli_fbase == info.dli_fbase;
  char buffer[PATH_MAX];
  if (!realpath(in_program ? "/proc/self/exe" : info.dli_fname, buffer)) return {};
  return folder_of(buffer);
}

void* open_library(const std::string& path, std::string* error) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library && error) {
    const char* const text = dlerror();
    *error = text ? text : "unknown error";
  }
  return library;
}

void* find_symbol(void* library, const char* name) { return library ? dlsym(library, name) : nullptr; }

std::string library_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname ? info.dli_fname : "";
}

std::vector<std::pair<std::uintptr_t, std::uintptr_t>> writable_images() {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  dl_iterate_phdr(
      [](dl_phdr_info* image, std::size_t, void* out) {
        for (int i = 0; i < image->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = image->dlpi_phdr[i];
          const std::uintptr_t begin = image->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W))
            static_cast<decltype(ranges)*>(out)->emplace_back(begin, begin + segment.p_memsz);
        }
        return 0;
      },
      &ranges);
  return ranges;
}

// Copies the file to memory, because the dynamic linker identifies files by inode.
void* open_copy(const std::string& path, std::string* error) {
  const auto failed = [&](const char* doing) -> void* {
    if (error) *error = fmt::format("{}: {}: {}", path, doing, std::strerror(errno));
    return nullptr;
  };
  const Descriptor from{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (from.value < 0) return failed("cannot be opened");
  const Descriptor to{memfd_create("onepass", MFD_CLOEXEC)};
  if (to.value < 0) return failed("cannot be copied");
  std::vector<std::byte> buffer(1 << 20);
  for (;;) {
    const ssize_t count = read_fully(from.value, buffer.data(), buffer.size());
    if (count < 0) return failed("cannot be read");
    if (count == 0) break;
    if ((errno = write_fully(to.value, buffer.data(), static_cast<std::size_t>(count))) != 0) return failed("cannot be copied");
  }
  return open_library(fmt::format("/proc/self/fd/{}", to.value), error);
}

}  // namespace onepass::os
