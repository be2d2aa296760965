// The machine that CUDA text runs on in tests: blocks one after the other, the threads of a block as fibers that change at barriers and
// shuffles, in an order drawn for each. Compiled together with the text (cuda_emulation.cpp), not with the tests.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define ONEPASS_EMULATED 1
#define DEVICE inline
#define KERNEL(name, words, most)    \
  extern "C" const int name##_words; \
  const int name##_words = words;    \
  extern "C" void name(const Words<words>& w)
#define KERNEL_FAR(name, words, most)  \
  extern "C" const bool name##_is_far; \
  const bool name##_is_far = true;     \
  extern "C" void name(const Words<words>* words_)
#define TOUCHED(pointer, bytes, written) machine::touched(pointer, bytes, written)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define KEPT_MEMORY char* const kept_memory = machine::shared_memory;

namespace machine {

constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStack = 512 << 10;
constexpr std::size_t kShared = 64 << 10;

struct Index3 {
  unsigned x, y, z;
};

enum class Waits { Nothing, Barrier, Team, Gone };
struct Thread {
  ucontext_t context;
  Waits waits = Waits::Gone;
  unsigned mask = 0, turn = 0;
  std::uint64_t given[2] = {};
  void* fake_stack = nullptr;
};

alignas(64) inline char shared_memory[kShared];
inline Thread threads[kMostThreads];
inline char* stacks = nullptr;
inline ucontext_t scheduler;
inline void* scheduler_fake_stack = nullptr;
inline const void* scheduler_bottom = nullptr;
inline std::size_t scheduler_size = 0;
inline unsigned now = 0, live = 0;
struct Touch {
  long long address;
  std::uint32_t bytes, written;
};
inline bool recording = false;
inline std::vector<Touch> touches;  // of the device's memory, one for each load or store of a thread
using Kernel = void (*)(const std::int64_t*);
inline Kernel kernel = nullptr;
inline const std::int64_t* words = nullptr;

inline void touched(long long address, std::size_t bytes, bool written) {
  if (recording) touches.push_back({address, static_cast<std::uint32_t>(bytes), written});
}

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "cuda machine: %s\n", what);
  std::abort();
}

}  // namespace machine

inline machine::Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace machine {

inline void to_scheduler(bool for_good) {
  Thread& me = threads[now];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &me.fake_stack, scheduler_bottom, scheduler_size);
#endif
  (void)for_good;
  swapcontext(&me.context, &scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(me.fake_stack, &scheduler_bottom, &scheduler_size);
#endif
}
inline void body() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  kernel(words);
  threads[now].waits = Waits::Gone;
  --live;
  to_scheduler(true);
}
inline void resume(unsigned t) {
  now = t;
  threadIdx = {t, 0, 0};
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stacks + t * kStack, kStack);
#endif
  swapcontext(&scheduler, &threads[t].context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
}
// The mask's threads have all come: they may go on.
inline bool complete(unsigned t) {
  const unsigned warp = t / 32 * 32;
  for (unsigned i = 0; i < 32; ++i)
    if (threads[t].mask >> i & 1 && (threads[warp + i].waits != Waits::Team || threads[warp + i].mask != threads[t].mask)) return false;
  return true;
}
inline std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned from) {
  Thread& me = threads[now];
  const unsigned my = now, turn = me.turn++ & 1;
  if (!(mask >> (my % 32) & 1)) fail("a thread shuffles outside of its own mask");
  me.given[turn] = value;
  me.mask = mask;
  me.waits = Waits::Team;
  if (complete(my)) {
    for (unsigned i = 0; i < 32; ++i)
      if (mask >> i & 1) threads[my / 32 * 32 + i].waits = Waits::Nothing;
  } else {
    to_scheduler(false);
  }
  if (!(mask >> (from % 32) & 1)) fail("a thread reads what no thread of its mask gave");
  return threads[from].given[turn];
}
template <class T> T shuffle(unsigned mask, T value, unsigned from) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void run_block(std::mt19937& random, bool cooperates) {
  const unsigned n = blockDim.x;
  std::vector<unsigned> order(n);
  for (unsigned i = 0; i < n; ++i) order[i] = i;
  for (unsigned i = n; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  if (!cooperates) {
    for (const unsigned t : order) {
      threadIdx = {t, 0, 0};
      kernel(words);
    }
    return;
  }
  if (!stacks) {
    stacks = static_cast<char*>(
        mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks == MAP_FAILED) fail("no memory for stacks");
  }
  for (unsigned t = 0; t < n; ++t) {
    getcontext(&threads[t].context);
    threads[t].context.uc_stack.ss_sp = stacks + t * kStack;
    threads[t].context.uc_stack.ss_size = kStack;
    threads[t].context.uc_link = nullptr;
    makecontext(&threads[t].context, body, 0);
    threads[t].waits = Waits::Nothing;
  }
  for (unsigned t = n; t < kMostThreads; ++t) threads[t].waits = Waits::Gone;
  live = n;
  while (live > 0) {
    bool went_on = false;
    for (const unsigned t : order)
      if (threads[t].waits == Waits::Nothing) went_on = true, resume(t);
    unsigned at_barrier = 0;
    for (unsigned t = 0; t < n; ++t) at_barrier += threads[t].waits == Waits::Barrier;
    if (live > 0 && at_barrier == live) {
      for (unsigned t = 0; t < n; ++t)
        if (threads[t].waits == Waits::Barrier) threads[t].waits = Waits::Nothing;
    } else if (!went_on) {
      fail("threads wait for others that never come");
    }
  }
}

}  // namespace machine

inline void __syncthreads() {
  machine::threads[machine::now].waits = machine::Waits::Barrier;
  machine::to_scheduler(false);
}
template <class T> T __shfl_sync(unsigned mask, T value, int from, int width) {
  const unsigned t = machine::now;
  return machine::shuffle(mask, value, t / static_cast<unsigned>(width) * static_cast<unsigned>(width) + static_cast<unsigned>(from));
}
template <class T> T __shfl_down_sync(unsigned mask, T value, int by, int width) {
  const unsigned t = machine::now, w = static_cast<unsigned>(width), other = t % w + static_cast<unsigned>(by);
  return machine::shuffle(mask, value, other < w ? t + static_cast<unsigned>(by) : t);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int by, int width) {
  const unsigned t = machine::now, w = static_cast<unsigned>(width);
  return machine::shuffle(mask, value, t % w >= static_cast<unsigned>(by) ? t - static_cast<unsigned>(by) : t);
}
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }

extern "C" void onepass_launch(void (*kernel)(const std::int64_t*), const std::int64_t* words, unsigned blocks, unsigned threads,
                               bool cooperates, unsigned seed) {
  machine::kernel = kernel;
  machine::words = words;
  if (threads > machine::kMostThreads) machine::fail("too many threads");
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  std::mt19937 random(seed);
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; ++i) order[i] = i;
  for (unsigned i = blocks; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  for (const unsigned b : order) {
    blockIdx = {b, 0, 0};
    std::memset(machine::shared_memory, 0xff, sizeof machine::shared_memory);
    machine::run_block(random, cooperates);
  }
}
extern "C" void onepass_record(bool on) {
  machine::recording = on;
  machine::touches.clear();
}
extern "C" const machine::Touch* onepass_touches(std::size_t* count) {
  *count = machine::touches.size();
  return machine::touches.data();
}
