// What keeps a process usable on both sides of a fork. A fork waits for the short sections in which another thread changes a table that
// all threads share, since the child would get the table half changed and its lock held for ever. It waits for nothing else: not for
// the caller's code, not for a compile.
#pragma once

#include <cstdint>
#include <mutex>

namespace onepass::runtime {

/// In its scope no other thread forks. Short, without the caller's code, nested at will on one thread.
class ForkWaits {
 public:
  ForkWaits() noexcept;
  ~ForkWaits();
  ForkWaits(const ForkWaits&) = delete;
  ForkWaits& operator=(const ForkWaits&) = delete;
};

/// A mutex of a table: free in a fork's child, the table whole.
class TableMutex {
 public:
  constexpr TableMutex() noexcept = default;
  void lock();
  void unlock() noexcept;

 private:
  std::mutex mutex_;
};

/// How many forks lie between the first process and this one.
std::uint32_t fork_generation() noexcept;

/// Called in each child of a fork, when it has one thread and all tables are whole. Registered once, never taken back; at most eight.
void in_forked_child(void (*hook)());

}  // namespace onepass::runtime
