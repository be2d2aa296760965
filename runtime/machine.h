// A machine described by text in the place of the one that runs: for tests, so that every decision that follows caches, cores or the vector
// width is made on any machine. Results have the same bits on all of them. Asked by Target::host() and the thread pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "compiler/target.h"

namespace onepass::runtime {

/// What a description names; the rest is as the machine has it.
struct Machine {
  enum class Isa : std::uint8_t { Avx2, Avx512 };
  std::optional<std::int64_t> l1_bytes, l2_bytes, llc_bytes;
  std::optional<int> cores;
  std::optional<Isa> isa;
};

/// `l1=32K,l2=2M,l3=260M,cores=64,isa=avx2`: any of these, in any order. Sizes are whole numbers of bytes, K, M or G. ValueError otherwise.
Machine parse_machine(std::string_view text);

/// The target with what the description names. Features are only taken away: of a processor without AVX-512, `isa=avx512` changes nothing.
compiler::Target described(compiler::Target target, const Machine& machine);

/// Makes Target::host() the described machine in its scope: for tests that depend on a class. Not for two at once; programs that were made
/// before keep their target, and the number of threads is not changed.
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
