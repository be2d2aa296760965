// A run of a TileProgram over some items: tile_run.cpp, and tile_reduce.cpp for what reductions need.
#pragma once

#include <algorithm>
#include <cstring>

#include "compiler/tiles/tile_form.h"
#include "compiler/tiles/tiles.h"

namespace onepass::compiler {

class TileRun {
 public:
  TileRun(const TileProgram& program, const std::int64_t* words, void* scratch);
  void items(std::int64_t begin, std::int64_t end);

 private:
  using Step = TileStep;
  static constexpr std::uint32_t kNone = Step::kNone;

  const TileProgram& p_;
  const TileForm& f_;
  const WordLayout& layout_;
  const std::int64_t* const words_;
  std::byte* const memory_;
  std::int64_t* const index_;    // of the loops
  std::int64_t* const linears_;  // values of all linears, at the vector loop's start
  std::byte** const at_;         // of all values
  std::int64_t r_ = 0;           // of the first element of the tile that runs
  // of a split schedule:
  const bool split_;
  std::int64_t item_ = 0, chunk_ = 0;

  std::int64_t extent(std::uint32_t loop) const { return words_[layout_.extents + loop]; }
  std::uint32_t vector_loop() const { return p_.loops_ - 1; }
  std::byte* tile(std::uint32_t number) const { return memory_ + f_.tiles_at + std::int64_t{number} * f_.tile_bytes; }

  // ---- tile_run.cpp
  void to_row();  // the linears of the loops' indices
  std::int64_t step_of(std::uint32_t linear) const { return words_[layout_.coefficient_of(linear, vector_loop())]; }
  std::byte* address(std::uint32_t access, std::int64_t begin, std::uint8_t size) const;
  void steps(const TileSteps& steps, std::int64_t begin, std::int64_t n);
  // An item's iterations of the last outer loop, and of the vector loop.
  void rows(std::int64_t row_begin, std::int64_t row_end, std::int64_t first, std::int64_t last);
  void map(std::int64_t first, std::int64_t last);

  // ---- tile_reduce.cpp
  // All stages and sweeps, or those of a phase, over elements begin .. begin + n of the vector loop (of rows; lanes have all of it), which
  // begins the item's at `item_begin`. The contraction of rows runs over several iterations of the last outer loop.
  void sweeps(std::int64_t item_begin, std::int64_t begin, std::int64_t n, std::int64_t rows);
  void stage(std::size_t stage, std::int64_t begin, std::int64_t n, bool values, bool stores);
  void sweep(std::size_t sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r, std::int64_t rows);
  void phase(std::int64_t item_begin, std::int64_t begin, std::int64_t n);
  std::int64_t reduced_count() const;  // elements of r, missing ones included
  // f(r) in each iteration of the serial loops that has elements first_r .. last_r; r of its first element.
  template <class F> void each_serial(std::int64_t first_r, std::int64_t last_r, F&& f);
  void lanes_sweep(const TileForm::Sweep& sweep, std::int64_t first_r, std::int64_t last_r);
  void rows_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r);
  void chain_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r,
                   std::int64_t rows);
  // Operands of a contraction that are computed: of iterations of the serial loop from k on.
  void fill_panels(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t k, std::int64_t length,
                   std::int64_t rows);

  std::byte* lanes_of_fold(std::uint32_t fold) const { return memory_ + f_.lanes_at + std::int64_t{fold} * 256; }
  const void** rows_of_fold(std::uint32_t fold) const {
    return reinterpret_cast<const void**>(memory_ + f_.lanes_at + std::int64_t{fold} * 64);
  }
  std::byte* stack_of_fold(std::uint32_t fold) const { return memory_ + f_.stacks_at + std::int64_t{fold} * f_.stack_bytes; }
  // The tree of blocks, as a binary counter: level l holds the sum of 2^l blocks. A sum has `rows` rows of n elements, a tile apart.
  void push(const TileFold& fold, std::byte* stack, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows);
  void top(const TileFold& fold, std::byte* stack, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows);
  void fill(const TileFold& fold, std::byte* to, std::int64_t n) const;
  std::byte* partial(const TileFold& fold, std::int64_t chunk, std::int64_t j) const;
  void combine_chunks(const TileForm::Sweep& sweep, std::int64_t item_begin, std::int64_t begin, std::int64_t n);
};

}  // namespace onepass::compiler
