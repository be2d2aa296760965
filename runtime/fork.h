// Makes a process usable on both sides of a fork. A fork waits while another thread changes a shared table. Otherwise the child would get
// an inconsistent table and a permanently held lock. A fork does not wait for user code or for a compile.
#pragma once

#include <cstdint>
#include <mutex>

namespace onepass::runtime {

/// Scope in which no other thread forks. Must be short and must not run user code. Scopes of one thread may be nested.
class ForkWaits {
 public:
  ForkWaits() noexcept;
  ~ForkWaits();
  ForkWaits(const ForkWaits&) = delete;
  ForkWaits& operator=(const ForkWaits&) = delete;
};

/// A mutex of a table. In a forked child it is free and the table is consistent.
class TableMutex {
 public:
  constexpr TableMutex() noexcept = default;
  void lock();
  void unlock() noexcept;

 private:
  std::mutex mutex_;
};

/// Returns the number of forks between the first process and this process.
std::uint32_t fork_generation() noexcept;

/// Registers a hook, called in each forked child while it has one thread and all tables are consistent. Hooks are permanent; at most
/// eight.
void in_forked_child(void (*hook)());

}  // namespace onepass::runtime
