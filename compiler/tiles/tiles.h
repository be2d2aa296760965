// TileProgram: a Nest run without a compiler. The vector loop is taken in tiles of some hundred elements, as many as let all values that
// wait stay in half of the first-level cache; each statement is one loop over a tile (loops.h), so that values go from loop to loop through
// that cache and memory is passed once, as in the compiled kernel, whose arguments, items and bits it has. What the first calls of a
// function run while the compiler works (runtime/kernel_cache).
//
// Left to the compiler, so that of() gives null: indexing by data, lists, derived variables, short rows, phases and
// integers below 32 bits in arithmetic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "compiler/plan/schedule.h"
#include "compiler/target.h"

namespace onepass::compiler {

struct TileForm;
struct MoveLoops;

class TileProgram {
 public:
  static constexpr std::int64_t kFewest = 512, kMost = 2048;  // elements of a tile
  static constexpr std::int64_t kFewestAbreast = 4;           // rows that are reduced together, so that it pays
  static constexpr std::int64_t kSquareRows = 16;             // of an array that is read across: a cache line of f32

  static std::shared_ptr<const TileProgram> of(const Nest& nest, const Target& target);
  ~TileProgram();

  /// As a KernelFunction. `scratch` has scratch_bytes(), aligned to 64.
  void run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const;
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// What all items of these words take on one thread, about.
  double nanoseconds(std::span<const std::int64_t> words) const;
  /// What the same would take in the quick tier, once it is compiled. Several times as long for a contraction, whose loops in tiles keep
  /// sums in registers.
  double quick_nanoseconds(std::span<const std::int64_t> words) const;
  /// What compiling the nest in the quick tier would take, about.
  double compile_nanoseconds() const;
  /// The same of the optimised tier.
  double optimise_nanoseconds() const;
  std::size_t bytes() const { return bytes_; }

 private:
  friend class TileBuilder;
  friend class TileRun;
  TileProgram(const Nest& nest, const Target& target);
  /// The form that runs the words.
  const TileForm& form_of(const std::int64_t* words) const;
  bool is_split(const std::int64_t* words) const {
    if (kind_ == NestKind::Map) return scans_ > 0 && words[layout_.tile] < words[layout_.extents + loops_ - 1];
    return reductions_ > 0 && words[layout_.chunk] > 0;
  }

  const MoveLoops& moves_;
  NestKind kind_;
  bool has_columns_;
  WordLayout layout_;
  std::uint32_t loops_, outer_, serial_, runs_, sweeps_, linears_, reductions_ = 0, scans_ = 0;
  std::vector<std::uint32_t> linear_of_;  // of accesses
  std::vector<std::uint32_t> check_of_;   // the linear of each check
  std::unique_ptr<const TileForm> form_;
  // Of several sweeps along rows that fit a tile: each value is computed once and waits for the sweeps behind it.
  std::unique_ptr<const TileForm> whole_;
  // Of short rows that are reduced, and of arrays that are read across the vector loop, several rows at once.
  std::unique_ptr<const TileForm> abreast_;
  bool runs_abreast(const std::int64_t* words) const;
  std::int64_t scratch_bytes_ = 0;
  bool contracts_ = false;      // rows, by TileChain
  std::size_t primitives_ = 0;  // of what is computed for each element, those of expansions too
  std::size_t steps_ = 0, bytes_ = 0;
};

}  // namespace onepass::compiler
