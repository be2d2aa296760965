// See os_mapped.h.
#include "runtime/os_mapped.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdint>

#include "runtime/os.h"

namespace onepass::os {
namespace {

// An array of atomics, because a signal handler reads it. An entry is in use while `end` is nonzero.
struct Mapping {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<int> descriptor{-1};  // duplicate, to compare the file size
  std::atomic<bool> shortened{false}, taken{false};
};
constinit Mapping mappings[256];
constinit std::atomic<bool> guarded{false};
struct sigaction before;  // set before the handler can run

Mapping* mapping_of(std::uintptr_t address) noexcept {
  for (Mapping& m : mappings)
    if (address < m.end.load(std::memory_order_acquire) && address >= m.begin.load(std::memory_order_relaxed)) return &m;
  return nullptr;
}

// Maps zero pages in place of the lost page and all pages after it.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (info->si_code == BUS_ADRERR)
    if (Mapping* const m = mapping_of(address)) {
      const std::uintptr_t page = address & ~(page_size() - 1);
      m->shortened.store(true);
      if (::mmap(reinterpret_cast<void*>(page), m->end - page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        return;
    }
  ::sigaction(signal, &before, nullptr);  // the instruction runs again and reaches the previous handler
}

}  // namespace

void guard_mapped_files() noexcept {
  if (guarded.load()) return;
  static_cast<void>(page_size());  // computed here, not in the handler
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  guarded.store(::sigaction(SIGBUS, &action, &before) == 0);
}

void* map_guarded(int descriptor, std::size_t bytes) noexcept {
  if (!guarded.load()) return nullptr;
  for (Mapping& m : mappings) {
    if (m.taken.exchange(true)) continue;
    const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    void* const memory = copy < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, copy, 0);
    if (memory == MAP_FAILED) {
      if (copy >= 0) ::close(copy);
      m.taken.store(false);
      return nullptr;
    }
    m.descriptor.store(copy);
    m.shortened.store(false);
    m.begin.store(reinterpret_cast<std::uintptr_t>(memory));
    m.end.store(reinterpret_cast<std::uintptr_t>(memory) + bytes, std::memory_order_release);
    return memory;
  }
  return nullptr;
}

void unmap_guarded(void* memory, std::size_t bytes) noexcept {
  Mapping* const m = mapping_of(reinterpret_cast<std::uintptr_t>(memory));
  unmap_memory(memory, bytes);
  if (!m) return;
  m->end.store(0);
  ::close(m->descriptor.exchange(-1));
  m->taken.store(false);
}

// True if the file is shorter than its mapping. Compares sizes, because a file that ends within the last page gives zeros without a
// signal.
bool was_shortened(const void* address) noexcept {
  const Mapping* const m = mapping_of(reinterpret_cast<std::uintptr_t>(address));
  if (!m) return false;
  struct stat status;
  return m->shortened.load() || ::fstat(m->descriptor.load(), &status) != 0 ||
         static_cast<std::uintptr_t>(status.st_size) < m->end.load() - m->begin.load();
}

}  // namespace onepass::os
