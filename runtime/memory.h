// The pooled allocator behind every array, temporary and scratch buffer. Fresh pages cost several times the kernel that fills them,
// so freed blocks are kept and handed out again. Called by Array and by the runtime; kernels get plain pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace onepass::memory {

inline constexpr std::size_t kAlignment = 64;

/// `bytes` of uninitialised memory at a multiple of 64, or of 2 MiB for blocks of 2 MiB and more, which also ask for huge pages.
/// Zero bytes give a pointer that must not be read. Any thread may allocate, and free what another allocated.
/// Throws MemoryError with the number of bytes when they cannot be had, after the cache has been given back.
[[nodiscard]] void* allocate(std::size_t bytes);

/// The same, filled with zeros; fresh pages need no filling.
[[nodiscard]] void* allocate_zeroed(std::size_t bytes);

/// Memory that is used again without having been freed, such as a workspace, as if it were fresh: filled where tests ask for it
/// (os::TestSettings::poison), as `allocate` does.
namespace detail {
extern std::atomic<bool> poisons;  // set before the first block is lent
void poison(void* memory, std::size_t bytes) noexcept;
}  // namespace detail
inline bool poisons_for_tests() noexcept { return detail::poisons.load(std::memory_order_relaxed); }
inline void poison_for_tests(void* memory, std::size_t bytes) noexcept {
  if (poisons_for_tests()) [[unlikely]]
    detail::poison(memory, bytes);
}

/// Takes back what `allocate` gave for the same number of bytes. Null is fine.
void free(void* memory, std::size_t bytes) noexcept;

struct Statistics {
  std::int64_t in_use = 0;          ///< bytes asked for and not freed
  std::int64_t cached = 0;          ///< bytes of blocks of 32 KiB and more that wait for reuse; what `trim` can give back
  std::int64_t small_blocks = 0;    ///< bytes reserved for blocks below 32 KiB, used or not; grows to their peak and stays
  std::int64_t allocated_ever = 0;  ///< bytes of all allocations since the start
  std::int64_t allocations = 0;     ///< number of them
};
/// Summed over all threads; exact once other threads rest.
Statistics statistics();

/// The most bytes that `cached` may reach; the oldest blocks go first. A quarter of the memory that the process may use unless set.
void set_cache_limit(std::size_t bytes);
std::size_t cache_limit();

/// Gives cached blocks back to the system, oldest first, until at most `keep` bytes are cached.
void trim(std::size_t keep = 0) noexcept;

/// For tests: the `after`-th allocation from now on, counted over all threads from 0, and all later ones fail. Negative: none.
void inject_failure(std::int64_t after) noexcept;

/// A block with its size, freed by the destructor.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) : data_(allocate(bytes)), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { memory::free(data_, bytes_); }

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  /// The block is the caller's from now on.
  [[nodiscard]] void* release() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace onepass::memory
