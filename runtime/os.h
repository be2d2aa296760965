// All operating system calls: pages, processors, caches, sleeping and waking, files, dynamic libraries, clocks, floating-point control.
// Supports Linux on x86-64 and AArch64; another system needs another os.cpp. Used only by runtime/ and tools/.
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

/// Returns the number of processors available to this process: its affinity mask, or its container's quota if that is smaller. At least 1.
int usable_cores() noexcept;

/// Returns the bytes of memory available to this process: the machine's memory, or its container's limit if that is smaller.
std::size_t memory_bytes() noexcept;

/// Data cache sizes of one core in bytes (the third level is shared). The defaults are common sizes, for systems that do not report them.
struct CacheSizes {
  std::size_t l1 = 32 << 10;
  std::size_t l2 = 512 << 10;
  std::size_t l3 = 8 << 20;
};
const CacheSizes& cache_sizes();

// ---- memory ----

/// Maps `bytes` of zeroed, private memory, aligned to `alignment` (a power of two). Returns null on failure. Mappings aligned to huge
/// pages request them.
void* map_memory(std::size_t bytes, std::size_t alignment) noexcept;
void unmap_memory(void* memory, std::size_t bytes) noexcept;
/// True if the system would provide this much memory now. This is not a guarantee, because systems overcommit.
bool has_room(std::size_t bytes) noexcept;

/// True if the system lets this process run generated code; some hardened systems forbid it, initially or later. Checked before a kernel
/// is built; after it is false, it stays false.
bool may_run_made_code() noexcept;

/// Memory for machine code. Writable until `finalize`, then executable and read-only; never both.
class ExecutableMemory {
 public:
  ExecutableMemory() = default;
  /// Allocates memory. Throws Error if the system has no memory.
  static ExecutableMemory allocate(std::size_t bytes);
  ExecutableMemory(ExecutableMemory&& other) noexcept { swap(other); }
  ExecutableMemory& operator=(ExecutableMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ExecutableMemory();

  /// Makes the code executable. Throws Error if the system forbids that (some hardened systems do).
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

/// Sleeps until `wake` is called on `word`, unless `word` differs from `expected`. May return early.
void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;
/// Sleeps like wait(), but at most `nanoseconds`.
void wait_for(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t nanoseconds) noexcept;
void wake(std::atomic<std::uint32_t>& word, int sleepers) noexcept;

/// Tells the processor that the caller is in a spin loop.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on common cores, so the loop would use full power
#endif
}

/// Returns the number of the processor that runs the calling thread.
int current_processor() noexcept;

/// Yields the processor to another waiting thread.
void yield_processor() noexcept;

/// Starts a detached thread with default floating-point control. It blocks all signals except its own faults, so that the host's signal
/// handlers do not run on it. False if the system refuses.
bool start_thread(const char* name, void (*body)(void*), void* argument) noexcept;

/// Returns the approximate bytes of stack left to the calling thread; 0 on a foreign stack, such as a fiber's.
std::size_t stack_left() noexcept;
namespace detail {
void on_large_stack(void (*body)(void*), void* argument);
}
/// Calls `body`. If the caller's stack is small, runs it on a thread with a large stack, with separate thread-local variables, and waits
/// for it.
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

/// Returns the number of the calling thread, for the functions below.
int thread_number() noexcept;
/// Sets a thread to idle priority (compile threads) or to the priority of the process's first thread. Ignores failures.
void set_idle_priority(int thread, bool idle) noexcept;

/// Registers fork handlers: in the parent before and after the fork, and in the child after it. Each handler may be null.
void at_fork(void (*prepare)(), void (*parent)(), void (*child)());

/// Returns the nanoseconds of a monotonic clock.
std::int64_t nanoseconds() noexcept;
/// Returns the processor time of the calling thread, in nanoseconds.
std::int64_t thread_nanoseconds() noexcept;
/// Moves a thread that waits for the calling thread's processor to another processor, if it may use one.
void move_to_another_processor(int thread) noexcept;
/// Returns the processor time of another thread of this process, by its thread_number(); 0 if the thread does not exist.
std::int64_t thread_nanoseconds(int thread) noexcept;

// ---- floating-point control ----

/// Returns the calling thread's control register: MXCSR without its sticky flags on x86-64, FPCR on AArch64.
std::uint64_t floating_point_control() noexcept;
/// Returns the sticky flags in the MXCSR control register on x86-64; 0 elsewhere.
std::uint64_t floating_point_flags() noexcept;
void set_floating_point_control(std::uint64_t control) noexcept;
/// Returns the default control: round to nearest, all exceptions masked, subnormals kept.
std::uint64_t default_floating_point_control() noexcept;

// These functions are inline, because every call uses them.
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

/// Scope with default floating-point control; the destructor restores the host's control and flags. Operations in the scope do not raise
/// the host's unmasked exceptions.
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

/// A file's bytes in memory: read, or mapped copy-on-write, so that writes do not reach the file.
class FileBytes {
 public:
  /// Opens a file. Throws IoError, whose message starts with `what` and the path, if it is not a readable regular file. With `may_map`,
  /// maps a large file if the program guards mapped files (os_mapped.h).
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

/// True if a file of this name exists and this process may see it.
bool file_exists(const std::string& path) noexcept;

/// Returns the text of an errno value.
std::string error_text(int error);

/// Writes all bytes. Returns zero, or the errno of the failure.
int write_fully(int descriptor, const std::byte* bytes, std::size_t size);

// ---- the process ----

/// True if the program has rights that its caller lacks (setuid, setgid, file capabilities). The environment of such a program is not
/// trusted.
bool runs_with_more_rights() noexcept;

std::int64_t process_id() noexcept;
/// Returns the calling thread's name, from its start or set later by the program.
std::string thread_name();

/// Returns the environment variable's value; empty if it is unset or empty, or if the program has more rights than its caller. All reads
/// of environment variables use this function.
std::optional<std::string> environment(const char* name);

/// Test settings from ONEPASS_TESTING: comma-separated names that the tests set for every process they start.
struct TestSettings {
  bool strict = false;               // `strict`: a refused plan is an error
  bool poison = false;               // `poison`: fills new memory of arrays, workspaces and scratch buffers with 0xA5
  bool strips = false;               // `strips`: kernels run in short strips wherever possible: compiler/plan/strips.h
  std::int64_t verified_points = 0;  // `points=256`: points of each nest to compare: compiler/plan/verify_plan.h
};
const TestSettings& for_tests() noexcept;

/// Returns the folder of the library or program that contains onepass, with symbolic links resolved, without a trailing slash. Empty if
/// the system cannot tell.
std::string library_folder();

/// Opens a dynamic library. It is never closed, because kernels and threads may still run in it.
void* open_library(const std::string& path, std::string* error = nullptr);
void* find_symbol(void* library, const char* name);
/// Returns the path of the library that contains this address; empty if the system cannot tell.
std::string library_of(const void* address);
/// Returns the address ranges of global and static variables of the program and its libraries: first address, end.
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> writable_images();
/// Opens a private copy of the library, with separate variables, even if the library is already open.
void* open_copy(const std::string& path, std::string* error = nullptr);

}  // namespace onepass::os
