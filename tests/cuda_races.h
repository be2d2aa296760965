// Shadow memory of the CUDA emulation: finds accesses that no barrier orders, and reads of memory that nobody wrote.
//
// The text is compiled with the instrumentation of the thread sanitizer, so each access that may leave a thread's registers calls a
// function __tsan_… The library cuda_races implements these functions. cuda_machine.h tells it about blocks, threads, barriers and fences;
// cuda_emulation.cpp tells it about arrays, and asks for what it found.
//
// The rules are those of CUDA. __syncthreads orders the threads of a block, __syncwarp those of its mask. A shuffle orders no memory.
// Blocks of a launch are ordered only by a fence, a flag (an atomic or a volatile access) and another fence. Launches are in order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onepass::test {

struct RacingAccess {
  std::uint32_t block, thread;
  bool is_write;
};
/// The first thing that was wrong.
struct Race {
  enum class Kind : std::uint32_t { None, Unordered, NobodyWrote, OutsideOfArrays } kind;
  bool is_shared;         // in shared memory, else in device memory
  std::uint64_t address;  // of the first byte
  std::uint64_t offset;   // in the shared memory of cached rows; ~0: in a variable of the text
  RacingAccess earlier, later;
};

extern "C" {
/// Forgets everything.
void onepass_races_begin();
/// Declares an array in device memory. `fresh`: nobody has written it.
void onepass_races_array(const void* at, std::size_t bytes, bool fresh);
/// Declares the kernel parameters of the next launch, which no thread writes.
void onepass_races_words(const void* at, std::size_t bytes);
const Race* onepass_races_found();
/// Ends the process with this status at the next thing that is wrong, before the access. For child processes: threads that race may write
/// anywhere later.
void onepass_races_exit(int status);

// ---- for the machine
void onepass_races_memory(const void* first, const void* end, const void* rows, std::size_t bytes, const void* indices, std::size_t of);
void onepass_races_launch();
void onepass_races_block(unsigned block, unsigned threads);
/// The thread runs from now on. Its stack ends at `top`.
void onepass_races_thread(unsigned thread, const void* top);
void onepass_races_barrier();
void onepass_races_warp(unsigned first_thread, unsigned mask);
void onepass_races_fence();
void onepass_races_atomic(const void* at, std::size_t bytes);
}

}  // namespace onepass::test
