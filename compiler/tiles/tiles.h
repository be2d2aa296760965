// TileProgram: the tiled interpreter, which runs a Nest without a compiler. It processes the vector loop in tiles. A tile has a few hundred
// elements, so that all live values fit into half of the first-level cache. Each statement is one loop over a tile (loops.h).
//
// Values pass from loop to loop through that cache, and memory is read once, as in the compiled kernel. Arguments, tasks and result bits
// are those of the compiled kernel. The first calls of a function run the interpreter while the compiler works (runtime/kernel_cache).
//
// TileProgram::of() returns null for unsupported nests: scatters, array lists, and reductions, shifts and bit counts of integers
// below 32 bits.
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
  static constexpr std::int64_t kFewestAbreast = 4;           // fewest rows for which joint reduction pays off
  static constexpr std::int64_t kSquareRows = 16;             // rows of a transposed read: a cache line of f32

  static std::shared_ptr<const TileProgram> of(const Nest& nest, const Target& target);
  ~TileProgram();

  /// Runs tasks, as a KernelFunction does. `scratch` must have scratch_bytes() bytes, aligned to 64.
  void run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const;
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// Estimates the nanoseconds of all tasks with these kernel parameters on one thread.
  double nanoseconds(std::span<const std::int64_t> words) const;
  /// Estimates the nanoseconds of all tasks for compiled code of the baseline tier. A contraction in the tiled interpreter is an order of
  /// magnitude faster, because its loops keep sums in registers.
  double quick_nanoseconds(std::span<const std::int64_t> words) const;
  /// Estimates the nanoseconds of compiling the nest in the baseline tier.
  double compile_nanoseconds() const;
  /// Estimates the nanoseconds of compiling the nest in the optimized tier.
  double optimise_nanoseconds() const;
  std::size_t bytes() const { return bytes_; }

 private:
  friend class TileBuilder;
  friend class TileRun;
  TileProgram(const Nest& nest, const Target& target);
  /// Returns the form that runs with these kernel parameters.
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
  std::vector<std::uint32_t> linear_of_;  // by access
  std::vector<std::uint32_t> check_of_;   // by check: its affine map
  std::unique_ptr<const TileForm> form_;
  // Form for several sweeps along rows that fit into one tile. Each value is computed once and stays in memory for later sweeps.
  std::unique_ptr<const TileForm> whole_;
  // Form for short rows and for arrays that are read across the vector loop. Several rows run together.
  std::unique_ptr<const TileForm> abreast_;
  bool across_ = false;  // abreast_ reads arrays across the vector loop, in squares
  bool runs_abreast(const std::int64_t* words) const;
  std::int64_t scratch_bytes_ = 0;
  bool contracts_ = false;      // contracts rows by TileChain
  std::size_t primitives_ = 0;  // primitives per element, including the primitives of expansions
  std::size_t steps_ = 0, bytes_ = 0;
};

}  // namespace onepass::compiler
