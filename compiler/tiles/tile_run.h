// TileRun: runs a TileProgram over some tasks. The code is in tile_run.cpp, and for reductions in tile_reduce.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "compiler/tiles/tile_form.h"
#include "compiler/tiles/tiles.h"

namespace onepass::compiler {

class TileRun {
 public:
  /// `state` is the number of its row state in the scratch.
  TileRun(const TileProgram& program, const std::int64_t* words, void* scratch, std::int64_t state = 0);
  void items(std::int64_t begin, std::int64_t end);
  /// Runs tasks of a nest with fused columns.
  static void columns(const TileProgram& program, const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);

 private:
  using Step = TileStep;
  static constexpr std::uint32_t kNone = Step::kNone;

  const TileProgram& p_;
  const TileForm& f_;
  const WordLayout& layout_;
  const std::int64_t* const words_;
  std::byte* const memory_;
  std::byte* const state_;
  std::int64_t* const index_;    // by loop
  std::int64_t* const linears_;  // by affine map: value at the start of the vector loop
  std::byte** const at_;         // by value
  std::int64_t r_ = 0;           // r of the first element of the current tile
  std::int64_t eighth_ = 0;      // rows and columns: position within eight rows
  // Sweeps along rows: the block of r that the lanes belong to, and the number of blocks in the trees.
  std::int64_t block_ = 0, blocks_ = 0;
  // State of split schedules.
  const bool split_;
  std::int64_t item_ = 0, chunk_ = 0;
  std::int64_t width_;      // elements of the current tile, limited by the room in trees
  std::int64_t rows_ = 1;   // rows that run together
  bool whole_row_ = false;  // the current tile has all elements that its folds reduce

  std::int64_t extent(std::uint32_t loop) const { return words_[layout_.extents + loop]; }
  std::uint32_t vector_loop() const { return p_.loops_ - 1; }
  std::byte* tile(std::uint32_t number) const { return memory_ + f_.tiles_at + std::int64_t{number} * f_.tile_bytes; }
  std::byte* place(std::uint32_t value) const {
    const std::uint32_t at = f_.place[value];
    return at < f_.cells ? state_ + f_.cells_at + std::int64_t{at} * f_.cell_bytes() : tile(at - f_.cells);
  }

  // ---- tile_run.cpp
  void to_row();  // updates the affine maps after a change of loop indices
  std::int64_t step_of(std::uint32_t linear) const { return words_[layout_.coefficient_of(linear, vector_loop())]; }
  std::byte* address(std::uint32_t access, std::int64_t begin, std::uint8_t size) const;
  void steps(const TileSteps& steps, std::int64_t begin, std::int64_t n);
  // Runs a task's iterations of the last outer loop and of the vector loop.
  void rows(std::int64_t row_begin, std::int64_t row_end, std::int64_t first, std::int64_t last);
  void map(std::int64_t first, std::int64_t last);
  void recurrence(std::int64_t first, std::int64_t last);  // all steps of some elements

  // ---- tile_abreast.cpp: several iterations of the last outer loop together
  void abreast(std::int64_t row_begin, std::int64_t row_end, std::int64_t first, std::int64_t last);
  // Does the same as steps(), for n elements of each of the rows.
  void steps_abreast(const TileSteps& steps, std::int64_t begin, std::int64_t n);
  void load_abreast(const TileStep& s, std::int64_t begin, std::int64_t n);
  void store_abreast(const TileStep& s, std::int64_t begin, std::int64_t n);
  std::int64_t row_step_of(std::uint32_t linear) const { return words_[layout_.coefficient_of(linear, p_.outer_ - 1)]; }
  // True if n elements of each of the rows are consecutive.
  bool is_dense(std::uint32_t linear, std::int64_t n) const {
    return (n == 1 || step_of(linear) == 1) && (rows_ == 1 || row_step_of(linear) == n);
  }

  // ---- tile_scan.cpp
  void scan(const TileStep& s, std::int64_t n);
  // Scans along the vector loop, starting with the base in the scans' states. Calls `end` after each block.
  template <class F> void scan_blocks(const TileForm::Sweep& sweep, std::int64_t first, std::int64_t last, F&& end);
  void scan_along(std::int64_t first, std::int64_t last);
  // Runs a task of a split scan (compiler/plan/schedule.h): block sums, the base, then the results.
  void check(const TileStep& s, std::int64_t n);
  // Clears y[k] unless 0 <= first + step k + far[k] < bound. `far` may be null; with `one` it has one element.
  static void guard(std::uint8_t* y, std::int64_t first, std::int64_t step, std::int64_t bound, std::int64_t n, const std::int64_t* far,
                    bool one);
  // Writes n quotients or remainders of first, first + step, …
  void quotients(const TileStep& s, std::int64_t* y, std::int64_t first, std::int64_t step, std::int64_t n) const;
  void far(const TileStep& s, std::int64_t n) const;
  // Loads n elements: `from` plus the distance along the loops and that of derived variables.
  template <class E, class Along> void gather(E* to, const E* from, const TileStep& s, std::int64_t n, Along along) const {
    const auto* const place = reinterpret_cast<const std::int64_t*>(at_[s.c]);
    const auto* const guard = s.a == kNone ? nullptr : reinterpret_cast<const std::uint8_t*>(at_[s.a]);
    for (std::int64_t i = 0; i < n; ++i) to[i] = !guard || guard[s.one_guard ? 0 : i] != 0 ? from[along(i) + place[s.one ? 0 : i]] : E{0};
  }
  void scan_chunk(std::int64_t first, std::int64_t last);
  // Starts the scans across rows, or their next block, for n elements.
  void begin_scan_rows(const TileForm::Sweep& sweep, std::int64_t n, bool first);

  // ---- tile_reduce.cpp
  // Runs all stages and sweeps, or the stages and sweeps of a phase, over elements begin .. begin + n of the vector loop (Lanes nests: all
  // of it). The task's elements start at `item_begin`. A contraction of rows runs over several iterations of the last outer loop.
  void sweeps(std::int64_t item_begin, std::int64_t begin, std::int64_t n, std::int64_t rows);
  void stage(std::size_t stage, std::int64_t begin, std::int64_t n, bool values, bool stores);
  void sweep(std::size_t sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r, std::int64_t rows);
  void phase(std::int64_t item_begin, std::int64_t begin, std::int64_t n);
  std::int64_t reduced_count() const;  // elements of r, including padding
  // set_serial() sets the indices of the serial loops for iteration i. carry_serial() propagates the carry after the last index is
  // increased.
  void set_serial(std::int64_t i);
  void carry_serial();
  // Calls f(r) for each iteration of the serial loops that has elements in first_r .. last_r. r is the position of its first element.
  template <class F> void each_serial(std::int64_t first_r, std::int64_t last_r, F&& f);
  void lanes_sweep(const TileForm::Sweep& sweep, std::int64_t first_r, std::int64_t last_r);
  void begin_lanes(const TileForm::Sweep& sweep, std::int64_t first_r);
  // Returns how many elements run together, from j on and below `to`. The row starts at r0.
  std::int64_t tile_length(const TileForm::Sweep& sweep, std::int64_t r0, std::int64_t j, std::int64_t to) const;
  void lanes_tile(const TileForm::Sweep& sweep, std::int64_t r0, std::int64_t j, std::int64_t n);
  void end_lanes(const TileForm::Sweep& sweep);
  void reset_lanes(const TileForm::Sweep& sweep);
  void halve_lanes(const TileForm::Sweep& sweep);
  void rows_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r);
  // Does the same for arrays in memory, with one call per fold for all whole groups.
  void direct_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r);
  void chain_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r,
                   std::int64_t rows);
  // Computes operands of a contraction, for the iterations of the serial loop from k on.
  void fill_panels(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t k, std::int64_t length,
                   std::int64_t rows);

  std::byte* lanes_of_fold(std::uint32_t fold) const { return state_ + f_.lanes_at + fold * TileForm::kLanesBytes; }
  const void** rows_of_fold(std::uint32_t fold) const { return reinterpret_cast<const void**>(lanes_of_fold(fold)); }
  // Selects the row within eight rows: the operand `a` of a fold by rows is in the tile of that row.
  void enter_eighth(const TileForm::Sweep& sweep, std::int64_t eighth);

  // ---- tile_columns.cpp: fused columns in two phases: blocks of rows, then parts of the vector loop
  void enter_column_row(std::int64_t row);
  void column_block(std::span<TileRun* const> runs, std::int64_t block);
  void column_results(std::int64_t part);

  std::byte* stack_of(const TileFold& fold) const { return (fold.column || p_.kind_ == NestKind::Rows ? memory_ : state_) + fold.stack_at; }
  std::int64_t level_rows(const TileFold& fold) const { return fold.loops.chain && p_.kind_ == NestKind::Rows ? TileChain::kMostRows : 1; }
  // one element per lane, or one per element of the current tile
  std::int64_t tree_row_bytes(const TileFold& fold) const {
    return fold.column || p_.kind_ == NestKind::Rows ? width_ * (f_.tile_bytes / f_.tile) : 8;
  }
  std::int64_t choose_width() const;
  // Pairwise tree of blocks as a binary counter: level l holds the sum of 2^l blocks. A sum has `rows` rows of n elements, one tile apart.
  void push(const TileFold& fold, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows);
  void top(const TileFold& fold, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows);
  void fill(const TileFold& fold, std::byte* to, std::int64_t n) const;
  std::byte* partial(const TileFold& fold, std::int64_t chunk, std::int64_t j) const;
  // Combines the partial results of `chunks` chunks in a tree, for elements from j on.
  void combine_partials(const TileFold& fold, std::int64_t chunks, std::int64_t j, std::int64_t n);
  void combine_chunks(const TileForm::Sweep& sweep, std::int64_t item_begin, std::int64_t begin, std::int64_t n);
};

// Calls f with an integer of an element's size. Copies do not depend on the element type.
template <class F> void of_size(std::uint8_t size, F&& f) {
  switch (size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

inline void TileRun::set_serial(std::int64_t i) {
  for (std::uint32_t l = p_.serial_; l-- > 0;) {
    const std::uint32_t loop = p_.outer_ + l;
    index_[loop] = l == 0 ? i : i % extent(loop);
    i /= extent(loop);
  }
}

inline void TileRun::carry_serial() {
  for (std::uint32_t l = p_.serial_; l-- > 1 && index_[p_.outer_ + l] == extent(p_.outer_ + l);)
    index_[p_.outer_ + l] = 0, ++index_[p_.outer_ + l - 1];
}

template <class F> void TileRun::each_serial(std::int64_t first_r, std::int64_t last_r, F&& f) {
  const std::uint32_t serial = p_.serial_, begin = p_.outer_;
  if (first_r >= last_r) return;
  if (serial == 0) return f(std::int64_t{0});
  const std::int64_t elements = p_.kind_ == NestKind::Lanes ? extent(vector_loop()) : 1;  // elements of r per iteration
  std::int64_t within = 1;                                                                // iterations per run
  for (std::uint32_t l = p_.runs_; l < serial; ++l) within *= extent(begin + l);
  const std::int64_t run_length = p_.runs_ ? words_[layout_.padded_run] : elements * within;
  if (elements == 0 || within == 0) return;
  const auto iteration_of = [&](std::int64_t r) {
    return p_.runs_ ? r / run_length * within + std::min(r % run_length / elements, within - 1) : r / elements;
  };
  std::int64_t i = iteration_of(first_r);
  const std::int64_t end = iteration_of(last_r - 1) + 1;
  set_serial(i);
  to_row();
  const std::uint32_t inner = begin + serial - 1;
  for (std::int64_t run = i / within, row = i % within; i < end; ++i) {
    f(run * run_length + row * elements);
    if (++row == within) row = 0, ++run;
    if (i + 1 == end) break;
    if (++index_[inner] < extent(inner)) {
      for (std::uint32_t l = 0; l < p_.linears_; ++l) linears_[l] += words_[layout_.coefficient_of(l, inner)];
      continue;
    }
    carry_serial();
    to_row();
  }
}

}  // namespace onepass::compiler
