// This machine as a Target: properties from the processor, without LLVM.
#include "compiler/target.h"

#include <algorithm>
#include <atomic>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/os.h"

namespace onepass {
namespace compiler {
namespace {

#if defined(__x86_64__)
struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  explicit Leaf(unsigned leaf, unsigned sub = 0) { __get_cpuid_count(leaf, sub, &eax, &ebx, &ecx, &edx); }
};

std::uint64_t enabled_state() {  // register state that the system saves
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

void describe(Target& t) {
  t.triple = "x86_64-unknown-linux-gnu";
  const Leaf one(1), seven(7), extended(0x80000001u);
  const bool saves = one.ecx >> 27 & 1;
  const std::uint64_t state = saves ? enabled_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  // features of x86-64-v3, of x86-64-v4, and beyond both
  std::string of_v3, of_v4, beyond;
  std::string* features = &of_v3;
  const auto add = [&](bool has, const char* name) {
    if (has) *features += (features->empty() ? "+" : ",+") + std::string(name);
    return has;
  };
  add(one.ecx >> 0 & 1, "sse3");
  add(one.ecx >> 9 & 1, "ssse3");
  add(one.ecx >> 13 & 1, "cx16");
  add(one.ecx >> 19 & 1, "sse4.1");
  add(one.ecx >> 20 & 1, "sse4.2");
  add(one.ecx >> 22 & 1, "movbe");
  add(one.ecx >> 23 & 1, "popcnt");
  add(ymm && (one.ecx >> 28 & 1), "avx");
  const bool fma = add(ymm && (one.ecx >> 12 & 1), "fma");
  const bool f16c = add(ymm && (one.ecx >> 29 & 1), "f16c");
  const bool avx2 = add(ymm && (seven.ebx >> 5 & 1), "avx2");
  const bool bmi = add(seven.ebx >> 3 & 1, "bmi");
  const bool bmi2 = add(seven.ebx >> 8 & 1, "bmi2");
  const bool lzcnt = add(extended.ecx >> 5 & 1, "lzcnt");
  features = &of_v4;
  const bool f = add(zmm && (seven.ebx >> 16 & 1), "avx512f");
  const bool dq = add(zmm && (seven.ebx >> 17 & 1), "avx512dq");
  const bool cd = add(zmm && (seven.ebx >> 28 & 1), "avx512cd");
  const bool bw = add(zmm && (seven.ebx >> 30 & 1), "avx512bw");
  const bool vl = add(zmm && (seven.ebx >> 31 & 1), "avx512vl");
  features = &beyond;
  add(zmm && (seven.ecx >> 1 & 1), "avx512vbmi");
  add(zmm && (seven.ecx >> 14 & 1), "avx512vpopcntdq");
  const bool v3 = avx2 && fma && f16c && bmi && bmi2 && lzcnt;
  const bool v4 = v3 && f && dq && cd && bw && vl;
  // Eighths of the last-level cache that keep data for the next kernel. Measured with two alternating kernels, each of which reads the
  // other's output; factors are the speed of non-temporal stores relative to normal stores.
  //
  // Zen 5, 32 MiB: 1 at 24 MiB of traffic, 1.15 at 28, 1.2 to 1.4 at 32. Emerald Rapids, 260 MiB, a victim cache shared by many cores:
  // 0.73 at 64 MiB, 0.87 at 96, 1.5 from 128 on. glibc uses half of the cache for a copy's traffic on Intel's processors
  // (sysdeps/x86/dl-cacheinfo.h).
  t.llc_eighths = Leaf(0).ebx == signature_INTEL_ebx ? 3 : 7;
  t.vector_bytes = v4 ? 64 : v3 ? 32 : 16;
  t.cpu = v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : "x86-64";
  // Features of the level itself are omitted: each name costs the compiler a search for its implications, 0.1 million instructions.
  if (v3) of_v3.clear();
  if (v4) of_v4.clear();
  for (const std::string* some : {&of_v3, &of_v4, &beyond})
    if (!some->empty()) t.features += (t.features.empty() ? "" : ",") + *some;
}
#else
void describe(Target& t) {
  t.triple = "aarch64-unknown-linux-gnu";
  t.cpu = "generic";
  t.vector_bytes = 16;
}
#endif

constinit std::atomic<const Target*> in_the_place_of_host{nullptr};  // for DescribedMachine

Target measured() {
  Target t;
  describe(t);
  const os::CacheSizes& caches = os::cache_sizes();
  t.l1_bytes = static_cast<std::int64_t>(caches.l1);
  t.l2_bytes = static_cast<std::int64_t>(caches.l2);
  t.llc_bytes = static_cast<std::int64_t>(std::max(caches.l3, caches.l2));
  t.cores = os::usable_cores();
  return t;
}

}  // namespace

const Target& Target::host() {
  if (const Target* const described = in_the_place_of_host.load(std::memory_order_acquire)) return *described;
  static const Target* const host = [] {
    Target t = measured();
    if (const auto text = os::environment("ONEPASS_MACHINE")) {
      const runtime::Machine machine = runtime::parse_machine(*text);
      t = runtime::described(t, machine);
      if (machine.isa == runtime::Machine::Isa::Avx512 && !t.has_avx512())
        runtime::log(LogLevel::info, "ONEPASS_MACHINE: this processor has no AVX-512; vectors of {} bytes are used instead",
                     t.vector_bytes);
    }
    return new Target(std::move(t));
  }();
  return *host;
}

}  // namespace compiler

namespace runtime {

namespace {

// Keeps a target permanently, because a program made in the scope may outlive it.
const compiler::Target* keep(compiler::Target target) {
  struct Kept {
    compiler::Target target;
    Kept* before;
  };
  static constinit std::atomic<Kept*> newest{nullptr};
  auto* const kept = new Kept{std::move(target), newest.load(std::memory_order_relaxed)};
  while (!newest.compare_exchange_weak(kept->before, kept, std::memory_order_acq_rel)) {}
  return &kept->target;
}

}  // namespace

DescribedMachine::DescribedMachine(std::string_view text)
    : before_(compiler::in_the_place_of_host.exchange(keep(described(compiler::Target::host(), parse_machine(text))))) {}

DescribedMachine::~DescribedMachine() { compiler::in_the_place_of_host.store(before_, std::memory_order_release); }

}  // namespace runtime
}  // namespace onepass
