// The pool allocator for all arrays, temporaries and scratch buffers. Faulting in new pages costs several times the kernel that fills
// them, so freed blocks are kept for reuse. Used by Array and the runtime; kernels get plain pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace onepass::memory {

inline constexpr std::size_t kAlignment = 64;

/// Allocates `bytes` of uninitialized memory, aligned to 64 bytes. Blocks of 2 MiB and more are aligned to 2 MiB and request huge pages.
/// For zero bytes, returns a pointer that must not be read.
///
/// Any thread may free the memory. If the allocation fails even after the cache is released, throws MemoryError with the number of bytes.
[[nodiscard]] void* allocate(std::size_t bytes);

/// Allocates memory filled with zeros. New pages need no filling.
[[nodiscard]] void* allocate_zeroed(std::size_t bytes);

/// Treats reused memory, such as a workspace, like newly allocated memory: fills it if tests request that (os::TestSettings::poison),
/// like `allocate`.
namespace detail {
extern std::atomic<bool> poisons;  // set before the first allocation
void poison(void* memory, std::size_t bytes) noexcept;
}  // namespace detail
inline bool poisons_for_tests() noexcept { return detail::poisons.load(std::memory_order_relaxed); }
inline void poison_for_tests(void* memory, std::size_t bytes) noexcept {
  if (poisons_for_tests()) [[unlikely]]
    detail::poison(memory, bytes);
}

/// Frees memory that `allocate` returned for the same number of bytes. Null is allowed.
void free(void* memory, std::size_t bytes) noexcept;

struct Statistics {
  std::int64_t in_use = 0;          ///< bytes allocated and not freed
  std::int64_t cached = 0;          ///< bytes of free blocks of 32 KiB and more, kept for reuse; `trim` can release them
  std::int64_t small_blocks = 0;    ///< bytes reserved for blocks below 32 KiB, used or not; never shrinks
  std::int64_t allocated_ever = 0;  ///< bytes of all allocations since the start
  std::int64_t allocations = 0;     ///< number of allocations since the start
};
/// Returns the counters of all threads; exact only while no other thread allocates or frees.
Statistics statistics();

/// Sets the maximum of `cached`, in bytes; the oldest blocks are released first. The default is a quarter of the memory available to the
/// process.
void set_cache_limit(std::size_t bytes);
std::size_t cache_limit();

/// Releases cached blocks to the system, oldest first, until at most `keep` bytes are cached.
void trim(std::size_t keep = 0) noexcept;

/// Makes the `after`-th allocation from now, counted over all threads from 0, and all later allocations fail. Negative: none. For tests.
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
  /// Releases ownership of the block to the caller.
  [[nodiscard]] void* release() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace onepass::memory
