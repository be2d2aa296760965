// Blocks are in size classes, eight to a doubling (four would waste twice as much, sixteen would reuse less).
//
//   small   below 32 KiB: carved from 1 MiB slabs and never returned to the system. Each thread keeps a few free blocks, so that the
//           warm path only takes the head of a list. Excess blocks go to a shared list.
//
//   large   32 KiB and more: mapped one by one; in a shared list per class and in one list by age, bounded in bytes. If a class is
//           empty, a free block of up to eight times the size is used. Its pages exist already, so varying shapes fault in few new
//           pages. New pages are expensive, especially in virtual machines.
//
// Only the owning thread writes its counters; readers sum them, so that counting does not share cache lines.
#include "runtime/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/os.h"

#if defined(__SANITIZE_ADDRESS__)
#define ONEPASS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONEPASS_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef ONEPASS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace onepass::memory {

namespace {

// ---- size classes ----

constexpr std::size_t kSmallLimit = 32 << 10;  // limit of small blocks, in bytes
constexpr std::size_t kSlab = 1 << 20;

// Returns the size class. Class 0 is 64 bytes. Below 512 bytes there is one class for every 64 bytes, above it there are eight classes for
// each doubling.
constexpr int class_of(std::size_t bytes) {
  const std::size_t lines = bytes == 0 ? 1 : (bytes + 63) / 64;
  if (lines <= 8) return static_cast<int>(lines) - 1;
  const int shift = static_cast<int>(std::bit_width(lines - 1)) - 4;  // so that (lines - 1) >> shift is 8 to 15
  return 8 * shift + static_cast<int>((lines - 1) >> shift);
}

constexpr std::size_t bytes_of(int index) {
  if (index < 8) return 64 * (static_cast<std::size_t>(index) + 1);
  const int shift = index / 8 - 1;
  return ((static_cast<std::size_t>(index % 8) + 9) << shift) * 64;
}

static_assert(bytes_of(class_of(1)) == 64 && bytes_of(class_of(64)) == 64 && bytes_of(class_of(65)) == 128);
static_assert(bytes_of(class_of(512)) == 512 && bytes_of(class_of(513)) == 576 && bytes_of(class_of(1024)) == 1024);
static_assert(bytes_of(class_of(1025)) == 1152 && class_of(1025) == class_of(1152) && class_of(1153) == class_of(1152) + 1);

constexpr int kSmallClasses = class_of(kSmallLimit - 64) + 1;
constexpr std::size_t kLargest = std::size_t{1} << 46;
constexpr int kClasses = class_of(kLargest) + 1;

/// Returns the mapped bytes of a large block in this class: whole pages, or whole huge pages if it is aligned to them.
constexpr std::size_t mapped_bytes(int index) {
  const std::size_t bytes = bytes_of(index), unit = bytes > os::kHugePage - os::kHugePage / 8 ? os::kHugePage : 4096;
  return (bytes + unit - 1) / unit * unit;
}

/// Returns the class for a request: the largest class with the same number of pages, so that such blocks are interchangeable.
constexpr int serving_class(std::size_t bytes) {
  const int index = class_of(bytes);
  return index < kSmallClasses ? index : class_of(mapped_bytes(index));
}

constexpr bool occupy_what_they_serve() {
  for (int index = kSmallClasses; index < kClasses - 8; ++index) {
    const int serves = serving_class(bytes_of(index));
    if (serves < index || mapped_bytes(serves) != mapped_bytes(index)) return false;
  }
  return true;
}
static_assert(occupy_what_they_serve());

// ---- free blocks ----

// The header of a free block, stored in the block itself, because its pages exist already.
struct FreeBlock {
  FreeBlock* next = nullptr;      // in its class
  FreeBlock* previous = nullptr;  // this and the following members are only for large blocks
  FreeBlock* newer = nullptr;
  FreeBlock* older = nullptr;
  int index = 0;
};
static_assert(sizeof(FreeBlock) <= 64);

void poison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef ONEPASS_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(memory, bytes);
#endif
}
void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef ONEPASS_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
#endif
}

class SpinLock {
 public:
  void lock() noexcept {
    for (int round = 0; held_.exchange(true, std::memory_order_acquire); ++round)
      while (held_.load(std::memory_order_relaxed)) {
        if (++round % 64 == 0) os::yield_processor();  // the holder may have lost its core
        os::pause();
      }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

struct Guard {
  explicit Guard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~Guard() { lock_.unlock(); }
  SpinLock& lock_;
};

struct Counters {
  std::atomic<std::int64_t> in_use{0}, allocated_ever{0}, allocations{0};
  void add(std::int64_t use, std::int64_t ever, std::int64_t count) noexcept {  // only called by the owning thread: no locked instruction
    in_use.store(in_use.load(std::memory_order_relaxed) + use, std::memory_order_relaxed);
    allocated_ever.store(allocated_ever.load(std::memory_order_relaxed) + ever, std::memory_order_relaxed);
    allocations.store(allocations.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
};

struct ThreadCache {
  struct List {
    FreeBlock* head = nullptr;
    int count = 0;
  };
  std::array<List, kSmallClasses> lists{};
  Counters counters;
  ThreadCache* next = nullptr;  // in the pool's list of all threads
  ThreadCache* previous = nullptr;
};

/// Returns the number of free blocks of a class that a thread keeps: 64 KiB, but at least 4 and at most 256 blocks.
constexpr int kept_by_thread(int index) {
  const std::size_t count = (64 << 10) / bytes_of(index);
  return static_cast<int>(count < 4 ? 4 : count > 256 ? 256 : count);
}

struct Pool {
  SpinLock lock;
  std::array<FreeBlock*, kClasses> free{};
  FreeBlock* newest = nullptr;
  FreeBlock* oldest = nullptr;
  std::byte* slab = nullptr;
  std::size_t slab_left = 0;
  std::size_t cached = 0;  // bytes of free large blocks
  std::size_t mapped = 0;  // bytes of all large blocks
  std::size_t limit = 0;
  struct Lent {
    const void* memory;
    int index;
  };
  std::array<Lent, 64> lent{};  // blocks used for a smaller class, with their real class
  std::size_t lent_count = 0;
  std::int64_t small_blocks = 0;
  ThreadCache* threads = nullptr;
  Counters departed;  // counters of ended threads, and of frees after a thread's end; guarded by the lock
  std::atomic<std::int64_t> failure_countdown{-1};
  std::size_t memory = 0;  // maximum of `mapped`; by default the memory available to the process

  void take_out(FreeBlock* block) {  // removes a large block
    (block->previous ? block->previous->next : free[static_cast<std::size_t>(block->index)]) = block->next;
    if (block->next) block->next->previous = block->previous;
    (block->newer ? block->newer->older : newest) = block->older;
    (block->older ? block->older->newer : oldest) = block->newer;
    cached -= mapped_bytes(block->index);
  }

  /// Takes a free large block of the class, or of a larger class, which it records; null if there is none.
  FreeBlock* take_free(int index) {
    constexpr int kMostLarger = 3 * 8;  // eight classes to a doubling
    const int last = lent_count < lent.size() ? std::min(index + kMostLarger, kClasses - 1) : index;
    for (int k = index; k <= last; ++k) {
      FreeBlock* const block = free[static_cast<std::size_t>(k)];
      if (!block) continue;
      take_out(block);
      if (k != index) lent[lent_count++] = {block, k};
      return block;
    }
    return nullptr;
  }
  /// Returns the real class of a block that is freed as class `index`.
  int own_class(const void* memory, int index) {
    for (std::size_t i = 0; i < lent_count; ++i) {
      if (lent[i].memory != memory) continue;
      index = lent[i].index;
      lent[i] = lent[--lent_count];
      break;
    }
    return index;
  }

  void put_in(FreeBlock* block, int index) {
    block->index = index;
    block->previous = nullptr;
    block->next = free[static_cast<std::size_t>(index)];
    if (block->next) block->next->previous = block;
    free[static_cast<std::size_t>(index)] = block;
    block->newer = nullptr;
    block->older = newest;
    (newest ? newest->newer : oldest) = block;
    newest = block;
    cached += mapped_bytes(index);
  }

  /// Removes the oldest blocks until at most `keep` bytes are cached. Returns them chained by `next`, for unmapping without the lock.
  FreeBlock* take_oldest(std::size_t keep) {
    FreeBlock* chain = nullptr;
    while (cached > keep && oldest) {
      FreeBlock* const block = oldest;
      take_out(block);
      mapped -= mapped_bytes(block->index);
      block->next = chain;
      chain = block;
    }
    return chain;
  }
};

void unmap(FreeBlock* chain) noexcept {
  while (chain) {
    FreeBlock* const next = chain->next;
    const std::size_t bytes = mapped_bytes(chain->index);
    unpoison(chain, bytes);  // the address may be reused for another mapping
    os::unmap_memory(chain, bytes);
    chain = next;
  }
}

Pool& pool() noexcept;

// Returns a pool that is never destroyed, because static arrays are freed after everything else. A fork holds the lock, so that the
// child's pool is consistent.
Pool* make_pool() noexcept {
  alignas(Pool) static std::byte storage[sizeof(Pool)];
  Pool* const result = new (storage) Pool;
  result->memory = os::memory_bytes();
  result->limit = result->memory / 4;
  detail::poisons.store(os::for_tests().poison, std::memory_order_relaxed);
  os::at_fork([] { pool().lock.lock(); }, [] { pool().lock.unlock(); }, [] { pool().lock.unlock(); });
  return result;
}

Pool& pool() noexcept {
  static Pool* const instance = make_pool();
  return *instance;
}

// ---- a thread's cache ----

// Trivially destructible, so that it is readable after the thread's destructors. `cache` is then null and `over` is set.
struct ThreadState {
  ThreadCache* cache;
  bool over;
};
thread_local constinit ThreadState thread_state{nullptr, false};

void close_cache() noexcept {
  ThreadCache* const cache = thread_state.cache;
  thread_state = {nullptr, true};
  if (!cache) return;
  Pool& shared = pool();
  {
    Guard guard(shared.lock);
    for (std::size_t index = 0; index < cache->lists.size(); ++index)
      while (FreeBlock* const block = cache->lists[index].head) {
        unpoison(block, sizeof(FreeBlock));
        cache->lists[index].head = block->next;
        block->next = shared.free[index];
        shared.free[index] = block;
        poison(block, bytes_of(static_cast<int>(index)));
      }
    shared.departed.add(cache->counters.in_use, cache->counters.allocated_ever, cache->counters.allocations);
    (cache->previous ? cache->previous->next : shared.threads) = cache->next;
    if (cache->next) cache->next->previous = cache->previous;
  }
  delete cache;
}

ThreadCache* open_cache() noexcept {
  if (thread_state.over) return nullptr;
  auto* const cache = new (std::nothrow) ThreadCache;
  if (!cache) return nullptr;
  struct AtThreadEnd {
    bool armed = false;
    ~AtThreadEnd() { close_cache(); }
  };
  static thread_local AtThreadEnd at_thread_end;
  at_thread_end.armed = true;  // this use registers the destructor
  Pool& shared = pool();
  Guard guard(shared.lock);
  cache->next = shared.threads;
  if (cache->next) cache->next->previous = cache;
  shared.threads = cache;
  thread_state.cache = cache;
  return cache;
}

void count(ThreadCache* cache, std::int64_t use, std::int64_t ever, std::int64_t number) noexcept {
  if (cache) return cache->counters.add(use, ever, number);
  Pool& shared = pool();
  Guard guard(shared.lock);
  shared.departed.add(use, ever, number);
}

// ---- small blocks ----

/// Returns a block from the shared list or the slab; null if the system has no memory. The caller must hold the lock.
FreeBlock* shared_small_block(Pool& shared, int index) noexcept {
  FreeBlock*& head = shared.free[static_cast<std::size_t>(index)];
  if (FreeBlock* const block = head) {
    unpoison(block, sizeof(FreeBlock));
    head = block->next;
    return block;
  }
  const std::size_t bytes = bytes_of(index);
  if (shared.slab_left < bytes) {
    void* const slab = os::map_memory(kSlab, 4096);
    if (!slab) return nullptr;
    shared.slab = static_cast<std::byte*>(slab);  // the end of the old slab is lost, at most one block
    shared.slab_left = kSlab;
    shared.small_blocks += kSlab;
  }
  auto* const block = reinterpret_cast<FreeBlock*>(shared.slab);
  shared.slab += bytes;
  shared.slab_left -= bytes;
  return block;
}

void* small_block(ThreadCache* cache, int index) noexcept {
  if (cache) {
    ThreadCache::List& list = cache->lists[static_cast<std::size_t>(index)];
    if (FreeBlock* const block = list.head) {
      unpoison(block, sizeof(FreeBlock));
      list.head = block->next;
      --list.count;
      return block;
    }
  }
  Pool& shared = pool();
  Guard guard(shared.lock);
  return shared_small_block(shared, index);
}

void free_small_block(ThreadCache* cache, void* memory, int index) noexcept {
  auto* const block = static_cast<FreeBlock*>(memory);
  if (cache) {
    ThreadCache::List& list = cache->lists[static_cast<std::size_t>(index)];
    block->next = list.head;
    poison(block, bytes_of(index));
    list.head = block;
    if (++list.count <= kept_by_thread(index)) return;
    // One thread allocates and another thread frees: half of the blocks go to the shared list.
    Pool& shared = pool();
    Guard guard(shared.lock);
    for (int keep = kept_by_thread(index) / 2; list.count > keep; --list.count) {
      FreeBlock* const moved = list.head;
      unpoison(moved, sizeof(FreeBlock));
      list.head = moved->next;
      moved->next = shared.free[static_cast<std::size_t>(index)];
      poison(moved, bytes_of(index));
      shared.free[static_cast<std::size_t>(index)] = moved;
    }
    return;
  }
  Pool& shared = pool();
  Guard guard(shared.lock);
  block->next = shared.free[static_cast<std::size_t>(index)];
  poison(block, bytes_of(index));
  shared.free[static_cast<std::size_t>(index)] = block;
}

// ---- large blocks ----

void* large_block(int index, bool& fresh) noexcept {
  Pool& shared = pool();
  const std::size_t bytes = mapped_bytes(index);
  FreeBlock* evicted = nullptr;
  bool affordable = false;
  {
    Guard guard(shared.lock);
    if (FreeBlock* const block = shared.take_free(index)) return block;
    // Systems overcommit and kill the process when the memory is used, so a refusal is better. Cached blocks are released first.
    const std::size_t in_use = shared.mapped - shared.cached;
    affordable = bytes <= shared.memory && in_use <= shared.memory - bytes;
    if (affordable) {
      evicted = shared.take_oldest(shared.memory - bytes - in_use);
      shared.mapped += bytes;
    }
  }
  unmap(evicted);
  if (!affordable) return nullptr;
  fresh = true;
  const std::size_t alignment = bytes % os::kHugePage == 0 ? os::kHugePage : os::page_size();
  void* memory = os::map_memory(bytes, alignment);
  if (!memory) {
    trim(0);
    memory = os::map_memory(bytes, alignment);
  }
  if (!memory) {
    Guard guard(shared.lock);
    shared.mapped -= bytes;
  }
  return memory;
}

void free_large_block(void* memory, int index) noexcept {
  Pool& shared = pool();
  poison(static_cast<std::byte*>(memory) + sizeof(FreeBlock), mapped_bytes(index) - sizeof(FreeBlock));
  FreeBlock* evicted = nullptr;
  {
    Guard guard(shared.lock);
    shared.put_in(static_cast<FreeBlock*>(memory), shared.own_class(memory, index));
    evicted = shared.take_oldest(shared.limit);
  }
  unmap(evicted);
}

[[noreturn]] void fail(std::size_t bytes) {
  const Statistics now = statistics();
  throw MemoryError(
      fmt::format("out of memory: cannot allocate {} bytes ({} bytes are in use by arrays and temporaries; the limit is {} bytes). Free "
                  "arrays or raise set_memory_limit().",
                  bytes, now.in_use, memory_limit()));
}

// Fills memory for tests, so that reads of uninitialized memory give conspicuous numbers. Skips large blocks, which would dominate test
// time.
void fill(void* memory, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{16} << 20;
  if (memory && bytes <= most) std::memset(memory, 0xA5, bytes);
}

void* allocate_block(std::size_t bytes, bool zeroed) {
  Pool& shared = pool();
  if (shared.failure_countdown.load(std::memory_order_relaxed) >= 0) [[unlikely]]
    if (shared.failure_countdown.load() == 0 || shared.failure_countdown.fetch_sub(1) == 0) {
      shared.failure_countdown = 0;
      fail(bytes);
    }
  if (bytes > kLargest) fail(bytes);
  ThreadCache* cache = thread_state.cache;
  if (!cache) [[unlikely]]
    cache = open_cache();
  const int index = serving_class(bytes);
  bool fresh = false;
  void* const memory = index < kSmallClasses ? small_block(cache, index) : large_block(index, fresh);
  if (!memory) fail(bytes);
  count(cache, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(bytes), 1);
  unpoison(memory, bytes);  // bytes after the request stay poisoned
  if (zeroed && !fresh) std::memset(memory, 0, bytes);
  if (!zeroed) poison_for_tests(memory, bytes);
  return memory;
}

}  // namespace

void* allocate(std::size_t bytes) { return allocate_block(bytes, false); }
void* allocate_zeroed(std::size_t bytes) { return allocate_block(bytes, true); }

namespace detail {
constinit std::atomic<bool> poisons{false};
void poison(void* memory, std::size_t bytes) noexcept { fill(memory, bytes); }
}  // namespace detail

void free(void* memory, std::size_t bytes) noexcept {
  if (!memory) return;
  ThreadCache* cache = thread_state.cache;
  if (!cache) [[unlikely]]
    cache = open_cache();
  count(cache, -static_cast<std::int64_t>(bytes), 0, 0);
  const int index = serving_class(bytes);
  unpoison(memory, sizeof(FreeBlock));
  if (index < kSmallClasses) free_small_block(cache, memory, index);
  else free_large_block(memory, index);
}

Statistics statistics() {
  Pool& shared = pool();
  Guard guard(shared.lock);
  Statistics result;
  const auto add = [&](const Counters& counters) {
    result.in_use += counters.in_use.load(std::memory_order_relaxed);
    result.allocated_ever += counters.allocated_ever.load(std::memory_order_relaxed);
    result.allocations += counters.allocations.load(std::memory_order_relaxed);
  };
  add(shared.departed);
  for (const ThreadCache* thread = shared.threads; thread; thread = thread->next) add(thread->counters);
  result.cached = static_cast<std::int64_t>(shared.cached);
  result.small_blocks = shared.small_blocks;
  return result;
}

void set_cache_limit(std::size_t bytes) {
  Pool& shared = pool();
  FreeBlock* evicted = nullptr;
  {
    Guard guard(shared.lock);
    shared.limit = bytes;
    evicted = shared.take_oldest(bytes);
  }
  unmap(evicted);
}

std::size_t cache_limit() {
  Guard guard(pool().lock);
  return pool().limit;
}

void trim(std::size_t keep) noexcept {
  Pool& shared = pool();
  FreeBlock* evicted = nullptr;
  {
    Guard guard(shared.lock);
    evicted = shared.take_oldest(keep);
  }
  unmap(evicted);
}

void inject_failure(std::int64_t after) noexcept { pool().failure_countdown = after < 0 ? -1 : after; }

}  // namespace onepass::memory

// ---- host settings ----

namespace onepass {

MemoryStats memory_stats() {
  const memory::Statistics now = memory::statistics();
  return {now.in_use, now.cached, now.allocations};
}

void set_memory_limit(std::size_t bytes) {
  memory::Pool& shared = memory::pool();
  memory::FreeBlock* evicted = nullptr;
  {
    memory::Guard guard(shared.lock);
    shared.memory = bytes ? bytes : os::memory_bytes();
    const std::size_t in_use = shared.mapped - shared.cached;
    evicted = shared.take_oldest(shared.memory > in_use ? shared.memory - in_use : 0);
  }
  memory::unmap(evicted);
}

std::size_t memory_limit() {
  memory::Guard guard(memory::pool().lock);
  return memory::pool().memory;
}

void set_memory_cache_limit(std::size_t bytes) { memory::set_cache_limit(bytes); }
void trim_memory(std::size_t keep) noexcept { memory::trim(keep); }

}  // namespace onepass
