// The pooled allocator: alignment, reuse, bounds, counters, threads, fork, and leaks.
#include "runtime/memory.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/error.h"
#include "runtime/os.h"

namespace memory = onepass::memory;
using Catch::Matchers::Contains;

namespace {
bool aligned(const void* pointer, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0; }

// Slots through which threads exchange blocks. Each block has its size at both ends.
template <std::size_t kSlots> class Exchange {
 public:
  // Allocates a block and puts it in a slot. Frees the slot's previous block, whichever thread put it there. The size is a multiple of 8.
  void put(std::size_t slot, std::size_t bytes) {
    auto* const block = static_cast<std::size_t*>(memory::allocate(bytes));
    block[0] = block[bytes / 8 - 1] = bytes;
    drop(slots_[slot].exchange(block));
  }
  // Frees all blocks. Returns false if a block was modified.
  bool clear() {
    for (auto& slot : slots_) drop(slot.exchange(nullptr));
    return good_;
  }

 private:
  std::atomic<std::size_t*> slots_[kSlots] = {};
  std::atomic<bool> good_{true};

  void drop(std::size_t* block) {
    if (!block) return;
    const std::size_t bytes = block[0];
    if (block[bytes / 8 - 1] != bytes) good_ = false;
    memory::free(block, bytes);
  }
};
}  // namespace

TEST_CASE("memory: blocks are aligned, writable and disjoint", "[memory]") {
  struct Block {
    unsigned char* data;
    std::size_t bytes;
  };
  std::vector<Block> blocks;
  for (std::size_t base : {0, 64, 512, 1024, 1152, 4096, 32 << 10, 64 << 10, 1 << 20, 2 << 20, 5 << 20})
    for (const std::size_t bytes : {base ? base - 1 : 1, base, base + 1}) {
      auto* const data = static_cast<unsigned char*>(memory::allocate(bytes));
      CHECK(aligned(data, bytes >= (2 << 20) ? 2 << 20 : 64));
      std::memset(data, static_cast<int>(blocks.size()), bytes);
      blocks.push_back({data, bytes});
    }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    bool whole = true;
    for (std::size_t k = 0; k < blocks[i].bytes; ++k) whole = whole && blocks[i].data[k] == i;
    CHECK(whole);
    memory::free(blocks[i].data, blocks[i].bytes);
  }
  memory::free(nullptr, 100);
}

TEST_CASE("memory: a freed block is reused", "[memory]") {
  for (const std::size_t bytes : {40, 4000, 100'000, 3'000'000}) {
    void* const first = memory::allocate(bytes);
    memory::free(first, bytes);
    void* const second = memory::allocate(bytes);
    CHECK(first == second);
    memory::free(second, bytes);
  }
}

TEST_CASE("memory: a free block is lent for sizes down to an eighth, and returns with its own size", "[memory]") {
  memory::trim();
  void* const large = memory::allocate(1 << 20);
  memory::free(large, 1 << 20);
  const std::int64_t cached = memory::statistics().cached;
  CHECK(cached >= 1 << 20);
  void* const lent = memory::allocate(300'000);
  CHECK(lent == large);
  CHECK(memory::statistics().cached == 0);
  void* const other = memory::allocate(300'000);
  CHECK(other != large);
  memory::free(lent, 300'000);
  CHECK(memory::statistics().cached == cached);
  void* const again = memory::allocate(1 << 20);
  CHECK(again == large);
  std::memset(again, 1, 1 << 20);
  memory::free(again, 1 << 20);
  void* const small = memory::allocate(100'000);  // less than an eighth
  CHECK(small != large);
  memory::free(small, 100'000);
  memory::free(other, 300'000);
  memory::trim();
  CHECK(memory::statistics().cached == 0);
}

TEST_CASE("memory: blocks with equal page counts are interchangeable", "[memory]") {
  memory::trim();
  void* const first = memory::allocate(2'900'000);
  memory::free(first, 2'900'000);
  const std::int64_t cached = memory::statistics().cached;
  void* const second = memory::allocate(3'600'000);  // also two huge pages
  CHECK(second == first);
  CHECK(memory::statistics().cached == 0);
  std::memset(second, 1, 3'600'000);
  memory::free(second, 3'600'000);
  CHECK(memory::statistics().cached == cached);
  void* const third = memory::allocate(4'300'000);  // three huge pages
  CHECK(third != first);
  memory::free(third, 4'300'000);
  memory::trim();
}

TEST_CASE("memory: zeroed memory is zero, whether fresh or reused", "[memory]") {
  for (const std::size_t bytes : {100, 100'000, 3'000'000})
    for (int round = 0; round < 2; ++round) {
      auto* const data = static_cast<unsigned char*>(memory::allocate_zeroed(bytes));
      bool zero = true;
      for (std::size_t i = 0; i < bytes; ++i) zero = zero && data[i] == 0;
      CHECK(zero);
      std::memset(data, 0xff, bytes);
      memory::free(data, bytes);
    }
}

TEST_CASE("memory: the cache is bounded, evicts the oldest blocks first, and trim frees it", "[memory]") {
  const std::size_t limit = memory::cache_limit();
  CHECK(limit > 0);
  CHECK(limit <= onepass::os::memory_bytes() / 2);
  memory::trim();
  CHECK(memory::statistics().cached == 0);
  memory::set_cache_limit(10 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(memory::allocate(4 << 20));
  for (void* const block : blocks) memory::free(block, 4 << 20);
  CHECK(memory::statistics().cached == 8 << 20);
  void* const newest = memory::allocate(4 << 20);
  CHECK(newest == blocks[3]);
  void* const second = memory::allocate(4 << 20);
  CHECK(second == blocks[2]);
  CHECK(memory::statistics().cached == 0);
  memory::free(newest, 4 << 20);
  memory::free(second, 4 << 20);
  memory::trim(4 << 20);
  CHECK(memory::statistics().cached == 4 << 20);
  memory::set_cache_limit(0);
  CHECK(memory::statistics().cached == 0);
  memory::set_cache_limit(limit);
}

TEST_CASE("memory: a thousand sizes stay within the bound of the cache", "[memory]") {
  const std::size_t limit = memory::cache_limit();
  memory::set_cache_limit(64 << 20);
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t bytes = 1 + random() % (16 << 20);
    memory::free(memory::allocate(bytes), bytes);
    if (memory::statistics().cached > 64 << 20) FAIL("the cache grew above its bound");
  }
  memory::set_cache_limit(limit);
}

TEST_CASE("memory: counters", "[memory]") {
  const auto before = memory::statistics();
  void* const a = memory::allocate(1000);
  void* const b = memory::allocate(100'000);
  const auto during = memory::statistics();
  CHECK(during.in_use - before.in_use == 101'000);
  CHECK(during.allocated_ever - before.allocated_ever == 101'000);
  CHECK(during.allocations - before.allocations == 2);
  std::thread([&] { memory::free(a, 1000); }).join();  // by another thread, which then ends
  memory::free(b, 100'000);
  const auto after = memory::statistics();
  CHECK(after.in_use == before.in_use);
  CHECK(after.allocations == during.allocations);
}

TEST_CASE("memory: an impossible allocation throws an error with its size", "[memory]") {
  CHECK_THROWS_WITH(memory::allocate(SIZE_MAX), Contains("18446744073709551615 bytes"));
  CHECK_THROWS_WITH(memory::allocate(std::size_t{1} << 45), Contains("35184372088832 bytes"));
  CHECK_THROWS_AS(memory::allocate(onepass::os::memory_bytes() + 1), onepass::Error);
  // Their sum exceeds the memory, although no page is touched.
  const std::size_t half = onepass::os::memory_bytes() / 2 + (64 << 20);
  void* const first = memory::allocate(half);
  CHECK_THROWS_AS(memory::allocate(half), onepass::Error);
  memory::free(first, half);
  void* const again = memory::allocate(half);  // the failed call changed nothing
  memory::free(again, half);
  memory::trim();

  const auto before = memory::statistics();
  memory::inject_failure(2);
  void* const a = memory::allocate(10);
  void* const b = memory::allocate(10);
  CHECK_THROWS_WITH(memory::allocate(123), Contains("123 bytes"));
  CHECK_THROWS_AS(memory::allocate(1), onepass::Error);
  memory::inject_failure(-1);
  memory::free(a, 10);
  memory::free(b, 10);
  CHECK(memory::statistics().in_use == before.in_use);
}

TEST_CASE("memory: threads pass blocks to each other", "[memory]") {
  const std::int64_t before = memory::statistics().in_use;
  constexpr int kThreads = 4, kSlots = 64;
  Exchange<kSlots> exchange;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 5000; ++i) {
        const std::size_t bytes = 16 + random() % (random() % 50 == 0 ? 100'000 : 2000) / 8 * 8;
        exchange.put(random() % kSlots, bytes);
      }
      if (t == 0) memory::trim();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(exchange.clear());
  CHECK(memory::statistics().in_use == before);
}

TEST_CASE("memory: threads exchange large blocks while others trim and count", "[memory]") {
  const std::int64_t before = memory::statistics().in_use;
  const std::size_t limit = memory::cache_limit();
  constexpr int kThreads = 3, kSlots = 24;
  Exchange<kSlots> exchange;
  std::atomic<bool> good{true};
  std::atomic<int> allocating{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 3000; ++i) {
        const std::size_t least = std::size_t{32 << 10} << random() % 8, bytes = least + random() % least / 8 * 8;  // up to 8 MiB
        exchange.put(random() % kSlots, bytes);
      }
      --allocating;
    });
  threads.emplace_back([&] {
    for (std::size_t i = 0; allocating > 0; ++i) {
      if (memory::statistics().cached < 0) good = false;
      if (i % 64 == 0) memory::trim(std::size_t{4} << 20);
      if (i % 64 == 32) memory::set_cache_limit(i % 128 == 32 ? std::size_t{8} << 20 : limit);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(exchange.clear());
  memory::set_cache_limit(limit);
  CHECK(good);
  CHECK(memory::statistics().in_use == before);
  memory::trim();
  CHECK(memory::statistics().cached == 0);
}

TEST_CASE("memory: many short-lived threads do not accumulate small blocks", "[memory]") {
  const auto round = [] {
    std::thread([] {
      std::vector<void*> blocks;
      for (int i = 0; i < 500; ++i) blocks.push_back(memory::allocate(1000));
      for (void* const block : blocks) memory::free(block, 1000);
    }).join();
  };
  round();
  const std::int64_t before = memory::statistics().small_blocks;
  for (int i = 0; i < 50; ++i) round();
  CHECK(memory::statistics().small_blocks == before);
}

TEST_CASE("memory: a forked child allocates", "[memory]") {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) memory::free(memory::allocate(100'000), 100'000);  // often holds the lock
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);  // in case the lock is never released
      void* const block = memory::allocate(100'000);
      memory::free(block, 100'000);
      _exit(42);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
  }
  stop = true;
  other.join();
}

TEST_CASE("memory: a buffer frees itself", "[memory]") {
  const std::int64_t before = memory::statistics().in_use;
  {
    memory::Buffer a(1000), b;
    b = std::move(a);
    memory::Buffer c(std::move(b));
    CHECK(c.size() == 1000);
    CHECK(memory::statistics().in_use == before + 1000);
  }
  CHECK(memory::statistics().in_use == before);
}

TEST_CASE("os: executable memory is first writable, then executable, never both", "[memory]") {
  auto code = onepass::os::ExecutableMemory::allocate(100);
#if defined(__x86_64__)
  const unsigned char machine_code[] = {0xb8, 42, 0, 0, 0, 0xc3};  // mov eax, 42; ret
#else
  const unsigned int machine_code[] = {0x52800540, 0xd65f03c0};  // mov w0, 42; ret
#endif
  std::memcpy(code.data(), machine_code, sizeof machine_code);
  code.finalize();
  int (*function)();
  void* const address = code.data();
  std::memcpy(&function, &address, sizeof function);
  CHECK(function() == 42);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *reinterpret_cast<volatile unsigned char*>(code.data()) = 0;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("os: facts about the machine are plausible", "[memory]") {
  namespace os = onepass::os;
  CHECK(os::usable_cores() >= 1);
  CHECK(os::usable_cores() <= 1 << 16);
  CHECK(os::memory_bytes() > std::size_t{64} << 20);
  const auto& caches = os::cache_sizes();
  CHECK(caches.l1 >= 8 << 10);
  CHECK(caches.l2 >= caches.l1);
  CHECK(caches.l3 >= 1 << 20);
  CHECK(os::page_size() >= 4096);
  const std::int64_t now = os::nanoseconds();
  CHECK(now > 0);
  CHECK(now <= os::nanoseconds());
  CHECK_FALSE(os::library_folder().empty());
  CHECK_FALSE(os::environment("ONEPASS_NO_SUCH_VARIABLE").has_value());
  std::string error;
  CHECK(os::open_library("/nonexistent/lib.so", &error) == nullptr);
  CHECK_THAT(error, Contains("lib.so"));
}

TEST_CASE("os: default floating-point control is set, and the host's is restored", "[memory]") {
  namespace os = onepass::os;
  const auto host = os::floating_point_control();
#if defined(__x86_64__)
  const auto flush_to_zero = host | 0x8040;
#else
  const auto flush_to_zero = host | 1u << 24;
#endif
  os::set_floating_point_control(flush_to_zero);
  volatile float tiny = 1e-40f, half = 0.5f, flushed, kept;
  flushed = tiny * half;
  {
    const os::DefaultFloatingPoint scope;
    CHECK(os::floating_point_control() == os::default_floating_point_control());
    kept = tiny * half;
  }
  CHECK(os::floating_point_control() == flush_to_zero);
  os::set_floating_point_control(host);
  CHECK(kept > 0);
  CHECK(flushed == 0);
}
