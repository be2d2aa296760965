// The machine that a schedule is made for: a plain value, an option of the caller. Any target's schedule can be made and tested on any
// machine; code for it runs where the processor has the features.
#pragma once

#include <cstdint>
#include <string>

namespace onepass::compiler {

struct Target {
  std::string triple;     // LLVM's
  std::string cpu;        // LLVM's name of the processor; "" is the triple's baseline
  std::string features;   // "+avx2,+fma"
  int vector_bytes = 32;  // of one register
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, llc_bytes = 16 << 20;
  /// Eighths of the last-level cache that a kernel's traffic may fill before its stores bypass the caches.
  int llc_eighths = 7;
  int cores = 1;
  bool operator==(const Target&) const = default;

  /// This machine's, measured once.
  static const Target& host();
  /// A processor that every test can plan for: x86-64-v3, 2 cores, 32 KiB, 512 KiB, 16 MiB.
  static Target generic_cpu();
  /// Whether it has instructions between f32 and f16: F16C, AVX-512; AArch64 always. Integer arithmetic with equal bits elsewhere.
  bool converts_f16() const;
  bool has_avx2() const { return triple.starts_with("x86_64") && vector_bytes >= 32; }
  /// Whether it has AVX-512 with the instructions for narrower registers, and may use them.
  bool has_avx512() const { return triple.starts_with("x86_64") && vector_bytes == 64; }
  /// Registers of `vector_bytes`: 32 of AVX-512 and of AArch64, 16 of narrower ones on x86-64.
  int vector_registers() const { return vector_bytes == 64 || !triple.starts_with("x86_64") ? 32 : 16; }
  /// The same target with another register width (16, 32 or 64 bytes): features beyond it are left out.
  Target with_vector_bytes(int bytes) const;
};

}  // namespace onepass::compiler
