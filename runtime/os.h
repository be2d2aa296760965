// Everything that asks the operating system: pages, processors, caches, sleeping and waking, files, dynamic libraries, clocks,
// floating-point control. Linux on x86-64 and AArch64; another system is another os.cpp. Called by runtime/ and tools/ alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace onepass::os {

// ---- the machine ----

std::size_t page_size() noexcept;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Processors that this process may use: its affinity mask, and a container's processor quota if that is smaller. At least 1.
int usable_cores() noexcept;

/// Bytes of memory that this process may use: the machine's, or its container's limit if that is smaller.
std::size_t memory_bytes() noexcept;

/// Data cache sizes of one core in bytes (the third level is shared); what the system does not tell is a common size.
struct CacheSizes {
  std::size_t l1 = 32 << 10;
  std::size_t l2 = 512 << 10;
  std::size_t l3 = 8 << 20;
};
const CacheSizes& cache_sizes();

// ---- memory ----

/// `bytes` of zeroed, private memory whose address is a multiple of `alignment` (a power of two), or null. Mappings aligned to huge
/// pages ask for them.
void* map_memory(std::size_t bytes, std::size_t alignment) noexcept;
void unmap_memory(void* memory, std::size_t bytes) noexcept;
/// Would the system give so much more now? It may change its mind, and promises more than it has.
bool has_room(std::size_t bytes) noexcept;

/// Whether the system lets this process run code that it made: some hardened ones forbid that, from the start or later. Asked before a kernel is
/// made; once it is false it stays so.
bool may_run_made_code() noexcept;

/// Memory for machine code. Writable until `finalize`, executable and read-only afterwards, never both.
class ExecutableMemory {
 public:
  ExecutableMemory() = default;
  /// Throws Error when the system has no memory.
  static ExecutableMemory allocate(std::size_t bytes);
  ExecutableMemory(ExecutableMemory&& other) noexcept { swap(other); }
  ExecutableMemory& operator=(ExecutableMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ExecutableMemory();

  /// Makes the code executable. Throws Error where the system forbids that (some hardened ones do).
  void finalize();
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void swap(ExecutableMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// ---- threads ----

/// Sleeps until `wake` is called on `word`, unless `word` is no longer `expected`. May return early.
void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;
/// The same, for at most so long.
void wait_for(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t nanoseconds) noexcept;
void wake(std::atomic<std::uint32_t>& word, int sleepers) noexcept;

/// Tells the processor that this is a spin loop.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on the common cores and would make the loop hot
#endif
}

/// The number of the processor that runs the calling thread now.
int current_processor() noexcept;

/// Gives the processor to another thread that waits for it.
void yield_processor() noexcept;

/// Starts a detached thread with default floating-point control that blocks all signals but those of its own faults, so that the host's handlers
/// never run on it for others. False when the system refuses.
bool start_thread(const char* name, void (*body)(void*), void* argument) noexcept;

/// Bytes of stack that the calling thread has left, about; 0 where it runs on a stack that is not its own (a fiber's).
std::size_t stack_left() noexcept;
namespace detail {
void on_large_stack(void (*body)(void*), void* argument);
}
/// Calls `body`, where the caller's stack is small on a thread that has a large one, and waits for it. That thread's locals are its own.
template <class F> void on_large_stack(F&& body) {
  struct Job {
    F& body;
    std::exception_ptr error;
  } job{body, nullptr};
  detail::on_large_stack(
      [](void* raw) {
        Job& mine = *static_cast<Job*>(raw);
        try {
          mine.body();
        } catch (...) { mine.error = std::current_exception(); }
      },
      &job);
  if (job.error) std::rethrow_exception(job.error);
}

/// The calling thread, as the functions below know it.
int thread_number() noexcept;
/// At idle priority a thread runs where nothing else wants to (compile threads); otherwise as the process's first thread does. Best effort.
void set_idle_priority(int thread, bool idle) noexcept;

/// What to call around fork: in the parent before and after, in the child after. Any may be null.
void at_fork(void (*prepare)(), void (*parent)(), void (*child)());

/// Nanoseconds of a clock that never goes back.
std::int64_t nanoseconds() noexcept;
/// Of a processor, that the calling thread has used.
std::int64_t thread_nanoseconds() noexcept;
/// Has a thread that waits for the calling thread's processor wait for another one, where it may use one.
void move_to_another_processor(int thread) noexcept;
/// The same of another thread of this process, by its thread_number(); 0 where there is none.
std::int64_t thread_nanoseconds(int thread) noexcept;

// ---- floating-point control ----

/// The calling thread's control register: MXCSR without its sticky flags on x86-64, FPCR on AArch64.
std::uint64_t floating_point_control() noexcept;
/// The sticky flags of x86-64's MXCSR, which are in the control register; 0 elsewhere.
std::uint64_t floating_point_flags() noexcept;
void set_floating_point_control(std::uint64_t control) noexcept;
/// Round to nearest, all exceptions masked, subnormals kept.
std::uint64_t default_floating_point_control() noexcept;

// Inline: every call asks.
#if defined(__x86_64__)
inline std::uint64_t floating_point_control() noexcept { return __builtin_ia32_stmxcsr() & ~0x3fu; }
inline std::uint64_t floating_point_flags() noexcept { return __builtin_ia32_stmxcsr() & 0x3fu; }
inline void set_floating_point_control(std::uint64_t control) noexcept { __builtin_ia32_ldmxcsr(static_cast<unsigned>(control)); }
inline std::uint64_t default_floating_point_control() noexcept { return 0x1f80; }
#else
inline std::uint64_t floating_point_control() noexcept {
  std::uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline std::uint64_t floating_point_flags() noexcept { return 0; }
inline void set_floating_point_control(std::uint64_t control) noexcept { asm volatile("msr fpcr, %0" ::"r"(control)); }
inline std::uint64_t default_floating_point_control() noexcept { return 0; }
#endif

/// Runs its scope under default floating-point control and puts the host's back, flags included: exceptions that the host unmasked are not raised by
/// what happens in the scope.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() noexcept : saved_(floating_point_control()), changed_(saved_ != default_floating_point_control()) {
    if (changed_) [[unlikely]] {
      saved_ |= floating_point_flags();
      set_floating_point_control(default_floating_point_control());
    }
  }
  ~DefaultFloatingPoint() {
    if (changed_) set_floating_point_control(saved_);
  }
  bool changed() const noexcept { return changed_; }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::uint64_t saved_;
  bool changed_;
};

// ---- files ----

/// A file's bytes in memory: read, or mapped copy-on-write (writing to them never reaches the file).
class FileBytes {
 public:
  /// Throws IoError, its sentence beginning with `what` and the path, when it is not a regular file that can be read. With `may_map` a large
  /// file is mapped where the program guards mapped files (os_mapped.h).
  static FileBytes open(const char* what, const std::string& path, bool may_map = false);
  std::span<std::byte> bytes() const { return {data_, size_}; }
  bool is_mapped() const { return mapped_; }
  const std::shared_ptr<void>& owner() const { return owner_; }  ///< keeps the bytes alive

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

/// Whether there is something of that name that this process may see.
bool file_exists(const std::string& path) noexcept;

/// The text of an errno value.
std::string error_text(int error);

/// Writes all of it. Zero, or the errno of the failure.
int write_fully(int descriptor, const std::byte* bytes, std::size_t size);

// ---- the process ----

/// Whether the program has rights that its caller lacks (setuid, setgid, file capabilities). What the caller says is not trusted then.
bool runs_with_more_rights() noexcept;

std::int64_t process_id() noexcept;
/// As it was started, or as the program named it.
std::string thread_name();

/// The environment variable's value, or nothing when it is unset or empty, or the program has more rights than its caller. All variables are
/// read here.
std::optional<std::string> environment(const char* name);

/// What the tests of onepass ask of every process that they start: ONEPASS_TESTING, words with commas between them.
struct TestSettings {
  bool strict = false;               // `strict`: a plan that is refused is an error
  bool poison = false;               // `poison`: fresh memory of arrays, workspaces and scratch is filled with 0xA5
  bool strips = false;               // `strips`: kernels run in short strips wherever they may: compiler/plan/strips.h
  std::int64_t verified_points = 0;  // `points=256`: of each nest, compared one by one: compiler/plan/verify_plan.h
};
const TestSettings& for_tests() noexcept;

/// The folder of the library or program that contains onepass, symbolic links followed, without a trailing slash; empty when the system
/// does not know.
std::string library_folder();

/// A dynamic library and its symbols. Never closed: kernels and threads may still run in it.
void* open_library(const std::string& path, std::string* error = nullptr);
void* find_symbol(void* library, const char* name);
/// The path of the library that contains this address; empty when the system does not know.
std::string library_of(const void* address);
/// Where global and static variables of the program and its libraries are: first address, end.
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> writable_images();
/// Opens a private copy of the library: with variables of its own, whether it is open already or not.
void* open_copy(const std::string& path, std::string* error = nullptr);

}  // namespace onepass::os
