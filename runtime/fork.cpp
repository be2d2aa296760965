// See fork.h. One atomic counts the threads inside sections, in its low bits, and the threads that want to fork, in its high bits. A
// thread inside a section may always enter again; otherwise a waiting fork could deadlock with it.
#include "runtime/fork.h"

#include <atomic>
#include <climits>

#include "runtime/memory.h"
#include "runtime/os.h"

namespace onepass::runtime {
namespace {

constexpr std::uint32_t kForker = 1u << 24, kInside = kForker - 1;

constinit std::atomic<std::uint32_t> state{0};
constinit std::atomic<std::uint32_t> generation{0};
constinit std::atomic<void (*)()> hooks[8] = {};
thread_local constinit int depth = 0;

void before_fork() {
  std::uint32_t now = state.fetch_add(kForker, std::memory_order_acq_rel) + kForker;
  const std::uint32_t own = depth > 0 ? 1 : 0;
  while ((now & kInside) > own) {
    os::wait(state, now);
    now = state.load(std::memory_order_acquire);
  }
}

void after_fork_in_parent() {
  state.fetch_sub(kForker, std::memory_order_acq_rel);
  os::wake(state, INT_MAX);
}

void after_fork_in_child() {
  state.store(depth > 0 ? 1 : 0, std::memory_order_relaxed);
  generation.fetch_add(1, std::memory_order_relaxed);
  for (const auto& hook : hooks)
    if (auto* const f = hook.load(std::memory_order_acquire)) f();
}

// Registers the fork handlers. The memory pool registers first, because handlers before a fork run in reverse order. Its lock must be
// taken after the sections are empty, since they allocate.
void watch_forks() {
  static const bool once = [] {
    static_cast<void>(memory::statistics());
    os::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

namespace {

void enter() noexcept {
  if (depth++ > 0) return;
  watch_forks();
  std::uint32_t now = state.load(std::memory_order_relaxed);
  for (;;) {
    if (now >= kForker) {
      os::wait(state, now);
      now = state.load(std::memory_order_relaxed);
    } else if (state.compare_exchange_weak(now, now + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
      return;
    }
  }
}

void leave() noexcept {
  if (--depth > 0) return;
  if (state.fetch_sub(1, std::memory_order_acq_rel) > kForker) os::wake(state, INT_MAX);
}

}  // namespace

ForkWaits::ForkWaits() noexcept { enter(); }
ForkWaits::~ForkWaits() { leave(); }

void TableMutex::lock() {
  enter();
  mutex_.lock();
}
void TableMutex::unlock() noexcept {
  mutex_.unlock();
  leave();
}

std::uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void in_forked_child(void (*hook)()) {
  watch_forks();
  for (auto& slot : hooks) {
    void (*empty)() = nullptr;
    if (slot.compare_exchange_strong(empty, hook, std::memory_order_release)) return;
  }
}

}  // namespace onepass::runtime
