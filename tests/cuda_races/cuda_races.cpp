// See cuda_races.h.
//
// A cell of shadow memory has the last write and two reads that are not ordered with each other. A cell stands for a granule of 16 bytes
// at first; a page gets smaller granules when a smaller access needs them. So all accesses of a granule access all of it.
#include "../cuda_races.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace onepass::test {
namespace {

using Address = std::uint64_t;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "cuda races: %s\n", what);
  std::abort();
}

// ---- accesses, packed into 64 bits
// run: number of the block among all blocks since begin(), from 1 on. interval: number of the block's barriers before the access. clock:
// number of the thread's fences and warp barriers before it. strong: atomic or volatile.
using Access = std::uint64_t;
constexpr int kRunBits = 24, kIntervalBits = 16, kThreadBits = 10, kClockBits = 13;
constexpr Access kNobody = 1;  // as the last write of a granule: nobody has written it
constexpr std::uint32_t run_of(Access a) { return static_cast<std::uint32_t>(a >> 40); }
constexpr std::uint32_t interval_of(Access a) { return static_cast<std::uint32_t>(a >> 24 & 0xffff); }
constexpr std::uint32_t thread_of(Access a) { return static_cast<std::uint32_t>(a >> 14 & 0x3ff); }
constexpr std::uint32_t clock_of(Access a) { return static_cast<std::uint32_t>(a >> 1 & 0x1fff); }
constexpr bool is_strong(Access a) { return a & 1; }
static_assert(kRunBits + kIntervalBits + kThreadBits + kClockBits + 1 == 64);

// ---- what is known of other threads through flags: the accesses of a block before an interval, and those of one thread up to a clock
struct Known {
  std::uint32_t run, interval, thread, clock;
};
using KnownList = std::vector<Known>;
bool knows(const KnownList& list, Access a) {
  return std::any_of(list.begin(), list.end(), [&](const Known& k) {
    return k.run == run_of(a) && (interval_of(a) < k.interval || (thread_of(a) == k.thread && clock_of(a) <= k.clock));
  });
}
void append(KnownList& list, const KnownList& more) { list.insert(list.end(), more.begin(), more.end()); }

struct Thread {
  std::uint32_t clock = 0;
  std::uint32_t lanes[32] = {};  // the accesses of a lane with a smaller clock precede this thread's next accesses
  KnownList released;            // what a flag passes on: known at the last fence
  KnownList seen, acquired;      // passed by flags; `acquired` after the next fence
};

// ---- shadow memory
struct Cell {
  Access write, reads[2];
};
constexpr int kPageBits = 12;
struct Page {
  int granule_bits = 4;
  std::vector<Cell> cells = std::vector<Cell>(std::size_t{1} << (kPageBits - 4));
  void split(int bits) {
    std::vector<Cell> out(std::size_t{1} << (kPageBits - bits));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = cells[i >> (granule_bits - bits)];
    cells = std::move(out);
    granule_bits = bits;
  }
};

struct Machine {
  std::unordered_map<Address, Page> pages;
  struct {
    Address number = ~Address{0};
    Page* page = nullptr;
  } recent[256];
  std::unordered_map<Address, KnownList> flags;
  std::vector<std::uint32_t> blocks = {0};  // by run
  std::vector<std::pair<Address, Address>> arrays;
  std::vector<Thread> threads;
  KnownList acquired;      // by all threads of the block
  bool has_flags = false;  // some thread of the block has used a fence or a flag
  std::uint32_t run = 0, interval = 0, first_run = 1, thread = 0;
  Access now = 0;   // an access of the running thread
  Address top = 0;  // of its stack
  Address words = 0, words_bytes = 0, indices = 0, indices_bytes = 0;
  Address shared = 0, shared_bytes = 0, rows = 0, rows_bytes = 0;
  Race found = {};
  int exit_status = -1;  // -1: the process goes on

  void renew() {
    Thread& t = threads[thread];
    if (run >> kRunBits || interval >> kIntervalBits || t.clock >> kClockBits) fail("too many blocks, barriers or fences");
    now = static_cast<Access>(run) << 40 | static_cast<Access>(interval) << 24 | static_cast<Access>(thread) << 14 |
          static_cast<Access>(t.clock) << 1;
  }
  Page& page_of(Address address) {
    const Address number = address >> kPageBits;
    auto& entry = recent[number % 256];
    if (entry.number != number) entry = {number, &pages[number]};
    return *entry.page;
  }
  // Calls f(cell, address) for each granule of these bytes. Pages get granules small enough for them first.
  template <class F> void for_each_cell(Address address, Address bytes, const F& f) {
    while (bytes > 0) {
      Page& page = page_of(address);
      const Address end = std::min(address + bytes, ((address >> kPageBits) + 1) << kPageBits);
      const int fits = std::min({page.granule_bits, std::countr_zero(address), std::countr_zero(end)});
      if (fits < page.granule_bits) page.split(fits);
      for (Address at = address; at < end; at += Address{1} << page.granule_bits)
        f(page.cells[(at & ((Address{1} << kPageBits) - 1)) >> page.granule_bits], at);
      bytes -= end - address;
      address = end;
    }
  }
  bool is_in_array(Address address, Address bytes) const {
    auto it = std::upper_bound(arrays.begin(), arrays.end(), std::pair{address, ~Address{0}});
    return it != arrays.begin() && address + bytes <= std::prev(it)->second;
  }
  RacingAccess told(Access a, bool is_write) const { return {blocks[run_of(a)], thread_of(a), is_write}; }
  void report(Race::Kind kind, Address address, bool in_shared, Access earlier, bool earlier_writes, bool later_writes) {
    if (exit_status >= 0) _exit(exit_status);
    if (found.kind != Race::Kind::None) return;
    const std::uint64_t offset = address - rows < rows_bytes ? address - rows : ~std::uint64_t{0};
    found = {kind, in_shared, address, offset, told(earlier, earlier_writes), told(now, later_writes)};
  }

  // True if the access precedes the running thread's next access.
  bool precedes(Access a) const {
    if (run_of(a) < first_run) return true;
    const Thread& t = threads[thread];
    if (run_of(a) == run) {
      if (thread_of(a) == thread || interval_of(a) < interval) return true;
      if (thread_of(a) / 32 == thread / 32 && clock_of(a) < t.lanes[thread_of(a) % 32]) return true;
    }
    return has_flags && (knows(t.acquired, a) || knows(acquired, a));
  }
  void touch(Cell& cell, Address address, bool in_shared, bool writes, bool strong) {
    const Access me = now | static_cast<Access>(strong);
    if (in_shared) {  // each block has its own
      if (run_of(cell.write) != run) cell.write = 0;
      for (Access& read : cell.reads)
        if (run_of(read) != run) read = 0;
    }
    if (!writes && cell.write == kNobody) report(Race::Kind::NobodyWrote, address, in_shared, 0, false, false);
    if (cell.write > kNobody && cell.write != me && !precedes(cell.write) && !(strong && is_strong(cell.write)))
      report(Race::Kind::Unordered, address, in_shared, cell.write, true, writes);
    if (writes) {
      for (const Access read : cell.reads)
        if (read && read != me && !precedes(read) && !(strong && is_strong(read)))
          report(Race::Kind::Unordered, address, in_shared, read, false, true);
      cell = {me, {}};
      return;
    }
    if (cell.reads[0] == me || cell.reads[1] == me) return;
    for (Access& read : cell.reads)
      if (!read || precedes(read)) {
        read = me;
        return;
      }
  }
  void touch(Address address, Address bytes, bool writes, bool strong) {
    const bool in_shared = address - shared < shared_bytes || address - rows < rows_bytes;
    if (!in_shared && !is_in_array(address, bytes)) {
      if (writes) report(Race::Kind::OutsideOfArrays, address, false, 0, false, true);  // others read constants of the text
      return;
    }
    for_each_cell(address, bytes, [&](Cell& cell, Address at) { touch(cell, at, in_shared, writes, strong); });
  }
};
Machine& m = *new Machine;  // never destroyed

inline void accessed(const void* at, std::size_t bytes, bool writes, bool strong = false) {
  const auto address = reinterpret_cast<Address>(at), frame = reinterpret_cast<Address>(__builtin_frame_address(0));
  if (address - frame < m.top - frame || address - m.words < m.words_bytes || address - m.indices < m.indices_bytes) return;
  if (m.run == 0) return;
  m.touch(address, bytes, writes, strong);
}
// A volatile or atomic access, which also is a flag.
void flagged(const void* at, std::size_t bytes, bool reads, bool writes) {
  const auto address = reinterpret_cast<Address>(at), frame = reinterpret_cast<Address>(__builtin_frame_address(0));
  if (address - frame < m.top - frame || m.run == 0) return;
  m.touch(address, bytes, writes, true);
  m.has_flags = true;
  Thread& t = m.threads[m.thread];
  KnownList& flag = m.flags[address];
  if (reads) append(t.seen, flag);
  if (writes) {
    if (!reads) flag.clear();
    append(flag, t.released);
  }
}

}  // namespace

EXPORT void onepass_races_begin() {
  m.pages.clear(), m.flags.clear(), m.arrays.clear();
  for (auto& entry : m.recent) entry = {};
  m.blocks = {0};
  m.run = 0, m.first_run = 1;
  m.found = {};
}
EXPORT void onepass_races_array(const void* at, std::size_t bytes, bool fresh) {
  const auto address = reinterpret_cast<Address>(at);
  const std::pair<Address, Address> array{address, address + bytes};
  m.arrays.insert(std::upper_bound(m.arrays.begin(), m.arrays.end(), array), array);
  if (fresh) m.for_each_cell(address, bytes, [](Cell& cell, Address) { cell = {kNobody, {}}; });
}
EXPORT void onepass_races_words(const void* at, std::size_t bytes) { m.words = reinterpret_cast<Address>(at), m.words_bytes = bytes; }
EXPORT const Race* onepass_races_found() { return &m.found; }
EXPORT void onepass_races_exit(int status) { m.exit_status = status; }

EXPORT void onepass_races_memory(const void* first, const void* end, const void* rows, std::size_t bytes, const void* indices,
                                 std::size_t of) {
  m.shared = reinterpret_cast<Address>(first), m.shared_bytes = reinterpret_cast<Address>(end) - m.shared;
  m.rows = reinterpret_cast<Address>(rows), m.rows_bytes = bytes;
  m.indices = reinterpret_cast<Address>(indices), m.indices_bytes = of;
}
EXPORT void onepass_races_launch() {
  m.first_run = static_cast<std::uint32_t>(m.blocks.size());
  m.flags.clear();
}
EXPORT void onepass_races_block(unsigned block, unsigned threads) {
  m.run = static_cast<std::uint32_t>(m.blocks.size());
  m.blocks.push_back(block);
  m.interval = 0;
  m.has_flags = false;
  m.acquired.clear();
  m.threads.assign(threads, Thread());
}
EXPORT void onepass_races_thread(unsigned thread, const void* top) {
  m.top = reinterpret_cast<Address>(top);
  if (thread >= m.threads.size()) return;  // the scheduler
  m.thread = thread;
  m.renew();
}
EXPORT void onepass_races_barrier() {
  ++m.interval;
  for (Thread& t : m.threads) append(m.acquired, std::exchange(t.acquired, {}));
}
EXPORT void onepass_races_warp(unsigned first, unsigned mask) {
  std::uint32_t lanes[32] = {};
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1) {
      const Thread& t = m.threads[first + i];
      for (unsigned k = 0; k < 32; ++k) lanes[k] = std::max(lanes[k], t.lanes[k]);
      lanes[i] = std::max(lanes[i], t.clock + 1);
    }
  for (unsigned i = 0; i < 32; ++i)
    if (mask >> i & 1) {
      Thread& t = m.threads[first + i];
      std::copy(lanes, lanes + 32, t.lanes);
      ++t.clock;
    }
  m.renew();
}
EXPORT void onepass_races_fence() {
  m.has_flags = true;
  Thread& t = m.threads[m.thread];
  append(t.acquired, std::exchange(t.seen, {}));
  t.released = t.acquired;
  append(t.released, m.acquired);
  t.released.push_back({m.run, m.interval, m.thread, t.clock});
  ++t.clock;
  m.renew();
}
EXPORT void onepass_races_atomic(const void* at, std::size_t bytes) { flagged(at, bytes, true, true); }

}  // namespace onepass::test

using onepass::test::accessed;
using onepass::test::flagged;

// ---- the functions that instrumented code calls
#define SIZES(F) F(1) F(2) F(4) F(8) F(16)
#define FUNCTIONS(n)                                                                            \
  EXPORT void __tsan_read##n(void* at) { accessed(at, n, false); }                              \
  EXPORT void __tsan_write##n(void* at) { accessed(at, n, true); }                              \
  EXPORT void __tsan_unaligned_read##n(void* at) { accessed(at, n, false); }                    \
  EXPORT void __tsan_unaligned_write##n(void* at) { accessed(at, n, true); }                    \
  EXPORT void __tsan_read_write##n(void* at) { accessed(at, n, false), accessed(at, n, true); } \
  EXPORT void __tsan_volatile_read##n(void* at) { flagged(at, n, true, false); }                \
  EXPORT void __tsan_volatile_write##n(void* at) { flagged(at, n, false, true); }               \
  EXPORT void __tsan_unaligned_volatile_read##n(void* at) { flagged(at, n, true, false); }      \
  EXPORT void __tsan_unaligned_volatile_write##n(void* at) { flagged(at, n, false, true); }
SIZES(FUNCTIONS)
EXPORT void __tsan_read_range(void* at, std::size_t bytes) { accessed(at, bytes, false); }
EXPORT void __tsan_write_range(void* at, std::size_t bytes) { accessed(at, bytes, true); }
EXPORT void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  accessed(from, bytes, false), accessed(to, bytes, true);
  return __builtin_memcpy(to, from, bytes);
}
EXPORT void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  accessed(from, bytes, false), accessed(to, bytes, true);
  return __builtin_memmove(to, from, bytes);
}
EXPORT void* __tsan_memset(void* to, int value, std::size_t bytes) {
  accessed(to, bytes, true);
  return __builtin_memset(to, value, bytes);
}
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
