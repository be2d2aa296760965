// Emulates a GPU for CUDA text in tests. Blocks run one after another. The threads of a block are fibers that switch at barriers and
// shuffles, in an order drawn for each block. This header is compiled with the text (cuda_emulation.cpp), not with the tests. It is
// compiled once for each program, so it includes few headers.
//
// With ONEPASS_RACES, the text's accesses call the library of cuda_races.h. MACHINE marks functions whose own accesses are not checked.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(ONEPASS_RACES)
#include "cuda_races.h"
#if defined(__clang__)
#define MACHINE __attribute__((disable_sanitizer_instrumentation))
#else
#define MACHINE __attribute__((no_sanitize("thread")))
#endif
#define RACES(call) onepass::test::onepass_races_##call
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];
#else
#define MACHINE
#define RACES(call) (void)0
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
#define __shared__ static __attribute__((used))  // the fake driver counts these variables
#define __align__(n) __attribute__((aligned(n)))
#define KEPT_MEMORY char* const kept_memory = machine::shared_memory;

namespace machine {

constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStack = 512 << 10;
constexpr std::size_t kShared = 163 << 10;

struct Index3 {
  unsigned x, y, z;
};
inline struct {
  Index3 thread, block, of_block, of_grid;
} indices;

// Switches between the stacks of fibers. swapcontext would also work, but it makes a system call for each switch, and the address
// sanitizer's version clears the shadow of the whole stack.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;
};
extern "C" __attribute__((visibility("hidden"))) void onepass_switch(void** left, void* to);
asm(R"(
.pushsection .text
.p2align 4
onepass_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.popsection
)");
MACHINE inline void change(Context& from, Context& to) { onepass_switch(&from.stack, to.stack); }
MACHINE inline void start(Context& context, char* stack, std::size_t bytes, void (*function)()) {
  void** top = reinterpret_cast<void**>(stack + bytes) - 1;  // unused slot for a return address
  *--top = reinterpret_cast<void*>(function);
  top -= 6;
  std::memset(top, 0, 6 * sizeof *top);
  context.stack = top;
}
#else
struct Context {
  ucontext_t of;
};
inline void change(Context& from, Context& to) { swapcontext(&from.of, &to.of); }
inline void start(Context& context, char* stack, std::size_t bytes, void (*function)()) {
  getcontext(&context.of);
  context.of.uc_stack.ss_sp = stack;
  context.of.uc_stack.ss_size = bytes;
  context.of.uc_link = nullptr;
  makecontext(&context.of, function, 0);
}
#endif

enum class Waits { Nothing, Barrier, Team, Gone };
struct Thread {
  Context context;
  Waits waits = Waits::Gone;
  unsigned mask = 0, turn = 0;
  std::uint64_t given[2] = {};
  void* fake_stack = nullptr;
};
constexpr unsigned kScheduler = kMostThreads;  // index of the scheduler, used like a thread index

alignas(64) inline char shared_memory[kShared];
inline Thread threads[kMostThreads + 1];
inline unsigned order[kMostThreads];  // order of the threads of a block
inline char* stacks = nullptr;
inline const void* scheduler_bottom = nullptr;
inline std::size_t scheduler_size = 0;
inline unsigned now = kScheduler, before = kScheduler, live = 0, place = 0;  // place: index of `now` in `order`
struct Touch {
  long long address;
  std::uint32_t bytes, written;
};
inline bool recording = false;
inline Touch* touches = nullptr;  // accesses to device memory, one entry for each load or store of a thread
inline std::size_t touch_count = 0, touch_room = 0;
using Kernel = void (*)(const std::int64_t*);
inline Kernel kernel = nullptr;
inline const std::int64_t* words = nullptr;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "cuda machine: %s\n", what);
  std::abort();
}

MACHINE inline void touched(long long address, std::size_t bytes, bool written) {
  if (!recording) return;
  if (touch_count == touch_room) {
    touch_room = touch_room ? 2 * touch_room : 4096;
    touches = static_cast<Touch*>(std::realloc(touches, touch_room * sizeof *touches));
    if (!touches) fail("no memory for what is recorded");
  }
  touches[touch_count++] = {address, static_cast<std::uint32_t>(bytes), written};
}

// splitmix64 generator.
struct Random {
  std::uint64_t state;
  MACHINE std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
};
MACHINE inline void shuffle(unsigned* list, unsigned n, Random& random) {
  for (unsigned i = 0; i < n; ++i) list[i] = i;
  for (unsigned i = n; i > 1; --i) {
    const unsigned j = static_cast<unsigned>(random() % i), other = list[j];
    list[j] = list[i - 1];
    list[i - 1] = other;
  }
}

}  // namespace machine

#define threadIdx machine::indices.thread
#define blockIdx machine::indices.block
#define blockDim machine::indices.of_block
#define gridDim machine::indices.of_grid

namespace machine {

// Finishes a switch, on the stack of the fiber that resumes.
MACHINE inline void arrive(void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (before == kScheduler) scheduler_bottom = bottom, scheduler_size = size;
#endif
  (void)fake_stack;
}
MACHINE inline void go_on(unsigned next, bool for_good) {
  Thread &me = threads[now], &other = threads[next];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &me.fake_stack, next == kScheduler ? scheduler_bottom : stacks + next * kStack,
                                 next == kScheduler ? scheduler_size : kStack);
#endif
  (void)for_good;
  before = now;
  now = next;
  threadIdx = {next, 0, 0};
  RACES(thread(next, stacks + (next + 1) * kStack));
  change(me.context, other.context);
  arrive(me.fake_stack);
}
// Switches to the next ready thread in the order, or to the scheduler after the last thread.
MACHINE inline void to_next(bool for_good) {
  while (++place < blockDim.x)
    if (threads[order[place]].waits == Waits::Nothing) return go_on(order[place], for_good);
  go_on(kScheduler, for_good);
}
MACHINE inline void body() {
  arrive(nullptr);
  kernel(words);
  threads[now].waits = Waits::Gone;
  --live;
  to_next(true);
}
// True if all threads of the mask have arrived and may continue.
MACHINE inline bool complete(unsigned t) {
  const unsigned warp = t / 32 * 32;
  for (unsigned i = 0; i < 32; ++i)
    if (threads[t].mask >> i & 1 && (threads[warp + i].waits != Waits::Team || threads[warp + i].mask != threads[t].mask)) return false;
  return true;
}
MACHINE inline std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned from, bool orders_memory = false) {
  Thread& me = threads[now];
  const unsigned my = now, turn = me.turn++ & 1;
  if (!(mask >> (my % 32) & 1)) fail("a thread shuffles outside of its own mask");
  me.given[turn] = value;
  me.mask = mask;
  me.waits = Waits::Team;
  if (complete(my)) {
    if (orders_memory) RACES(warp(my / 32 * 32, mask));
    for (unsigned i = 0; i < 32; ++i)
      if (mask >> i & 1) threads[my / 32 * 32 + i].waits = Waits::Nothing;
  } else {
    to_next(false);
  }
  if (!(mask >> (from % 32) & 1)) fail("a thread reads what no thread of its mask gave");
  return threads[from].given[turn];
}
template <class T> MACHINE T exchanged(unsigned mask, T value, unsigned from) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

MACHINE inline void run_block(Random& random, bool cooperates) {
  const unsigned n = blockDim.x;
  shuffle(order, n, random);
  if (!cooperates) {
    for (unsigned i = 0; i < n; ++i) {
      threadIdx = {order[i], 0, 0};
      RACES(thread(order[i], __builtin_frame_address(0)));
      kernel(words);
    }
    return;
  }
  if (!stacks) {
    void* const memory = mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for stacks");
    stacks = static_cast<char*>(memory);
  }
  for (unsigned t = 0; t < n; ++t) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stacks + (t + 1) * kStack - 4096, 4096);  // the frames of body(), which never returns
#endif
    start(threads[t].context, stacks + t * kStack, kStack, body);
    threads[t].waits = Waits::Nothing;
  }
  for (unsigned t = n; t < kMostThreads; ++t) threads[t].waits = Waits::Gone;
  live = n;
  while (live > 0) {
    bool went_on = false;
    for (place = 0; place < n && !went_on; ++place) {
      if (threads[order[place]].waits != Waits::Nothing) continue;
      went_on = true;
      go_on(order[place], false);
    }
    unsigned at_barrier = 0;
    for (unsigned t = 0; t < n; ++t) at_barrier += threads[t].waits == Waits::Barrier;
    if (live > 0 && at_barrier == live) {
      RACES(barrier());
      for (unsigned t = 0; t < n; ++t)
        if (threads[t].waits == Waits::Barrier) threads[t].waits = Waits::Nothing;
    } else if (!went_on) {
      fail("threads wait for others that never come");
    }
  }
}

}  // namespace machine

MACHINE inline void __syncthreads() {
  machine::threads[machine::now].waits = machine::Waits::Barrier;
  machine::to_next(false);
}
template <class T> MACHINE T __shfl_sync(unsigned mask, T value, int from, int width) {
  const unsigned t = machine::now;
  return machine::exchanged(mask, value, t / static_cast<unsigned>(width) * static_cast<unsigned>(width) + static_cast<unsigned>(from));
}
template <class T> MACHINE T __shfl_down_sync(unsigned mask, T value, int by, int width) {
  const unsigned t = machine::now, w = static_cast<unsigned>(width), other = t % w + static_cast<unsigned>(by);
  return machine::exchanged(mask, value, other < w ? t + static_cast<unsigned>(by) : t);
}
template <class T> MACHINE T __shfl_up_sync(unsigned mask, T value, int by, int width) {
  const unsigned t = machine::now, w = static_cast<unsigned>(width);
  return machine::exchanged(mask, value, t % w >= static_cast<unsigned>(by) ? t - static_cast<unsigned>(by) : t);
}
inline unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
inline float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
inline long long __double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }
inline double __longlong_as_double(long long a) { return __builtin_bit_cast(double, a); }
MACHINE inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long value) {
  RACES(atomic(at, sizeof *at));
  return __sync_val_compare_and_swap(at, expected, value);
}
MACHINE inline unsigned atomicAdd(unsigned* at, unsigned value) {
  RACES(atomic(at, sizeof *at));
  return __sync_fetch_and_add(at, value);
}
MACHINE inline void __syncwarp(unsigned mask = 0xffffffffu) { machine::exchange(mask, 0, machine::now, true); }
MACHINE inline void __threadfence() { RACES(fence()); }
MACHINE inline void __threadfence_system() { RACES(fence()); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }

extern "C" MACHINE void onepass_launch(void (*kernel)(const std::int64_t*), const std::int64_t* words, unsigned blocks, unsigned threads,
                                       bool cooperates, unsigned seed) {
  machine::kernel = kernel;
  machine::words = words;
  if (threads > machine::kMostThreads) machine::fail("too many threads");
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
#if defined(ONEPASS_RACES)
  onepass::test::onepass_races_memory(__bss_start, _end, machine::shared_memory, machine::kShared, &machine::indices,
                                      sizeof machine::indices);
#endif
  RACES(launch());
  machine::Random random{seed};
  auto* const order = static_cast<unsigned*>(std::malloc(blocks * sizeof(unsigned)));
  if (!order) machine::fail("no memory for blocks");
  machine::shuffle(order, blocks, random);
  for (unsigned i = 0; i < blocks; ++i) {
    blockIdx = {order[i], 0, 0};
    RACES(block(order[i], threads));
    std::memset(machine::shared_memory, 0xff, sizeof machine::shared_memory);
    machine::run_block(random, cooperates);
  }
  std::free(order);
}
extern "C" MACHINE void onepass_record(bool on) {
  machine::recording = on;
  machine::touch_count = 0;
}
extern "C" MACHINE const machine::Touch* onepass_touches(std::size_t* count) {
  *count = machine::touch_count;
  return machine::touches;
}
