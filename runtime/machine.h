// A machine described by text that replaces the real machine in tests. It makes every decision that depends on caches, cores or vector
// width testable on any machine. Results have the same bits on all machines. Used by Target::host() and the thread pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "compiler/target.h"

namespace onepass::runtime {

/// The properties in a description. All other properties come from the real machine.
struct Machine {
  enum class Isa : std::uint8_t { Avx2, Avx512 };
  std::optional<std::int64_t> l1_bytes, l2_bytes, llc_bytes;
  std::optional<int> cores;
  std::optional<Isa> isa;
};

/// Parses `l1=32K,l2=2M,l3=260M,cores=64,isa=avx2`: any of these, in any order. Sizes are whole numbers of bytes, K, M or G. Throws
/// ValueError otherwise.
Machine parse_machine(std::string_view text);

/// Applies a description to a target. It only removes features: without AVX-512 in the processor, `isa=avx512` changes nothing.
compiler::Target described(compiler::Target target, const Machine& machine);

/// Scope in which Target::host() is the described machine, for tests of machine-dependent decisions. Only one such scope may exist at a
/// time. Existing programs keep their target; the number of threads does not change.
class DescribedMachine {
 public:
  explicit DescribedMachine(std::string_view text);
  ~DescribedMachine();
  DescribedMachine(const DescribedMachine&) = delete;
  DescribedMachine& operator=(const DescribedMachine&) = delete;

 private:
  const compiler::Target* before_;
};

}  // namespace onepass::runtime
