// Description of the machine for which a schedule is made: a plain value, chosen by the caller. A schedule for any target can be made and
// tested on any machine. Its code runs on processors with the required features.
#pragma once

#include <cstdint>
#include <string>

namespace onepass::compiler {

struct Target {
  std::string triple;     // LLVM target triple
  std::string cpu;        // LLVM's processor name; "": the triple's baseline
  std::string features;   // "+avx2,+fma"
  int vector_bytes = 32;  // size of one register
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, llc_bytes = 16 << 20;
  /// Eighths of the last-level cache that a kernel's traffic may fill before its stores bypass the caches.
  int llc_eighths = 7;
  int cores = 1;
  bool operator==(const Target&) const = default;

  /// Returns this machine's target, detected once.
  static const Target& host();
  /// Returns a target that every test can plan for: x86-64-v3, 2 cores, 32 KiB L1, 512 KiB L2, 16 MiB last-level cache.
  static Target generic_cpu();
  /// True if it has conversion instructions between f32 and f16: F16C, AVX-512; AArch64 always. Other targets use integer arithmetic with
  /// equal bits.
  bool converts_f16() const;
  bool has_avx2() const { return triple.starts_with("x86_64") && vector_bytes >= 32; }
  /// True if the target has AVX-512 with the instructions for narrower registers, and may use them.
  bool has_avx512() const { return triple.starts_with("x86_64") && vector_bytes == 64; }
  /// Returns the number of registers of `vector_bytes`: 32 for AVX-512 and AArch64, 16 for narrower registers on x86-64.
  int vector_registers() const { return vector_bytes == 64 || !triple.starts_with("x86_64") ? 32 : 16; }
  /// Returns the same target with another register width (16, 32 or 64 bytes), without the features that need wider registers.
  Target with_vector_bytes(int bytes) const;
};

}  // namespace onepass::compiler
