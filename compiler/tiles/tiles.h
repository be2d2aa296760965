// TileProgram: a Nest run without a compiler. The vector loop is taken in tiles of some hundred elements, as many as let all values that
// wait stay in half of the first-level cache; each statement is one loop over a tile (loops.h), so that values go from loop to loop through
// that cache and memory is passed once, as in the compiled kernel, whose arguments, items and bits it has. What the first calls of a function run while the compiler works (runtime/kernel_cache).
//
// Left to the compiler, so that of() gives null: reductions, scans, indexing by data, lists, derived variables, short rows, phases, halves
// and integers below 32 bits in arithmetic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compiler/plan/schedule.h"
#include "compiler/tiles/loops.h"

namespace onepass::compiler {

class TileProgram {
 public:
  static constexpr std::int64_t kFewest = 512, kMost = 2048;  // elements of a tile

  static std::shared_ptr<const TileProgram> of(const Nest& nest, const Target& target);

  /// As a KernelFunction. `scratch` has scratch_bytes(), aligned to 64.
  void run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const;
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// What all items of these words take on one thread, about.
  double nanoseconds(std::span<const std::int64_t> words) const;
  /// What compiling the nest in the quick tier would take, about.
  double compile_nanoseconds() const;
  /// The same of the optimised tier.
  double optimise_nanoseconds() const;
  std::size_t bytes() const { return (steps_[0].size() + steps_[1].size() + steps_[2].size()) * sizeof(Step); }

 private:
  friend class TileProgramBuilder;
  TileProgram(const Nest& nest) : layout_(nest) {}

  enum class Level : std::uint8_t { Call, Row, Element };  // how often a value is computed; below Element it is one element
  struct Step {
    enum class Kind : std::uint8_t {
      Loop,   // y = loop(a, b, c)
      Load,   // y: elements of access `at`, where the guard a holds
      Place,  // y: the address of what access `at` reads
      Index,  // y = linear `at`
      Guard,  // y: checks at .. at + count hold
      Store,  // a, where the guard b holds
      Skip,   // the next `count` steps, unless some element of a is true
    };
    Kind kind;
    std::uint8_t size = 0;  // of an element that is loaded or stored
    bool one = false;       // Store, Skip: a is one element; b, where one_guard
    bool one_guard = false;
    ir::Op op = ir::Op::Input;  // Loop: of one operator
    DType dtype = DType::Bool;  // of its operands
    std::uint8_t uniform = 0;
    TileLoop loop = nullptr;
    std::uint32_t y = 0, a = kNone, b = kNone, c = kNone;
    std::uint32_t at = 0, count = 0;
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  };
  struct Row {  // where a row of the nest begins
    const std::int64_t* words;
    std::int64_t* linears;  // values of all linears
    std::byte** at;         // of all values
  };
  void run_steps(const std::vector<Step>& steps, const Row& row, std::int64_t begin, std::int64_t n) const;
  void run_row(const Row& row, std::int64_t begin, std::int64_t end) const;
  std::int64_t step_of(const Row& row, std::uint32_t linear) const;
  std::byte* address(const Row& row, std::uint32_t access, std::int64_t begin, std::uint8_t size) const;

  WordLayout layout_;
  std::uint32_t loops_ = 0, outer_ = 0;
  std::vector<std::uint32_t> linear_of_;  // of accesses
  std::vector<std::uint32_t> check_of_;   // the linear of each check
  std::uint32_t linears_ = 0;
  std::vector<Step> steps_[3];  // by level
  std::vector<Step> stores_;
  std::uint32_t written_through_ = Step::kNone;  // the value that is computed where it is stored, by the last step; and that store
  struct Cell {
    std::uint32_t value;
    std::uint64_t bits;
  };
  std::vector<Cell> constants_;
  std::vector<Cell> slots_;           // bits: the word
  std::vector<std::uint32_t> place_;  // of each value: its cell, or its tile behind these
  std::uint32_t cells_ = 0, tiles_ = 0;
  std::int64_t tile_ = kMost, tile_bytes_ = 0, scratch_bytes_ = 0;
  double element_ns_ = 0, tile_ns_ = 0;
  std::size_t primitives_ = 0;  // of what is computed for each element, those of expansions too
};

}  // namespace onepass::compiler
