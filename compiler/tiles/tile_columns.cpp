// Fused columns in the tiled interpreter: reductions over the outer loops in the pass that computes rows (compiler/llvm/emit_columns.cpp).
// Eight rows run their last sweep together, tile by tile. The block's result is then the only row of sums.
#include <array>

#include "compiler/tiles/tile_run.h"
#include "ir/order.h"

namespace onepass::compiler {

void TileRun::columns(const TileProgram& program, const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) {
  TileRun first(program, words, scratch);
  if (words[program.layout_.phase] != 0) {
    for (std::int64_t part = begin; part < end; ++part) first.column_results(part);
    return;
  }
  static_assert(ir::kRowGroup == 8);
  TileRun r1(program, words, scratch, 1), r2(program, words, scratch, 2), r3(program, words, scratch, 3), r4(program, words, scratch, 4),
      r5(program, words, scratch, 5), r6(program, words, scratch, 6), r7(program, words, scratch, 7);
  const std::array<TileRun*, 8> runs = {&first, &r1, &r2, &r3, &r4, &r5, &r6, &r7};
  for (std::int64_t block = begin; block < end; ++block) first.column_block(runs, block);
}

// Runs all sweeps of a row except the last sweep.
void TileRun::enter_column_row(std::int64_t row) {
  for (std::uint32_t l = p_.outer_; l-- > 0;) {
    index_[l] = l == 0 ? row : row % extent(l);
    row /= extent(l);
  }
  std::fill_n(index_ + p_.outer_, p_.serial_, 0);
  to_row();
  stage(0, 0, 1, true, true);
  for (std::size_t s = 0; s + 1 < p_.sweeps_; ++s) {
    sweep(s, 0, 1, 0, reduced_count(), 1);
    stage(s + 1, 0, 1, true, true);
  }
}

void TileRun::column_block(std::span<TileRun* const> runs, std::int64_t block) {
  const TileForm::Sweep& last_sweep = f_.sweeps[p_.sweeps_ - 1];
  std::int64_t rows = 1;
  for (std::uint32_t l = 0; l < p_.outer_; ++l) rows *= extent(l);
  const std::int64_t first = block * words_[layout_.chunk], last = std::min(first + words_[layout_.chunk], rows);
  const std::int64_t length = extent(vector_loop()), all = reduced_count();
  for (const std::uint32_t f : last_sweep.folds)
    if (f_.folds[f].column) fill(f_.folds[f], partial(f_.folds[f], block, 0), all);
  for (std::int64_t row = first; row < last; row += ir::kRowGroup) {
    const std::span<TileRun* const> some = runs.first(static_cast<std::size_t>(std::min(ir::kRowGroup, last - row)));
    for (std::size_t k = 0; k < some.size(); ++k) {
      some[k]->enter_column_row(row + static_cast<std::int64_t>(k));
      some[k]->enter_eighth(last_sweep, static_cast<std::int64_t>(k));
      some[k]->begin_lanes(last_sweep, 0);
    }
    each_serial(0, all, [&](std::int64_t r0) {
      for (TileRun* const run : some) {
        if (run != this && p_.serial_ > 0) {
          std::copy_n(index_ + p_.outer_, p_.serial_, run->index_ + p_.outer_);
          run->to_row();
        }
        run->steps(last_sweep.serial, 0, 1);
      }
      for (std::int64_t j = 0; j < length;) {
        const std::int64_t n = tile_length(last_sweep, r0, j, length);
        for (TileRun* const run : some) run->lanes_tile(last_sweep, r0, j, n);
        for (const std::uint32_t f : last_sweep.folds) {
          const TileFold& fold = f_.folds[f];
          if (!fold.column) continue;
          std::array<const void*, 8> eight;
          eight.fill(tile(fold.fills));
          for (std::size_t k = 0; k < some.size(); ++k) eight[k] = some[k]->rows_of_fold(f)[k];
          fold.loops.eight(partial(fold, block, r0 + j), eight.data(), n);
        }
        j += n;
      }
    });
    for (TileRun* const run : some) {
      run->end_lanes(last_sweep);
      std::fill_n(run->index_ + p_.outer_, p_.serial_, 0);
      run->to_row();
      run->stage(p_.sweeps_, 0, 1, true, true);
    }
  }
}

void TileRun::column_results(std::int64_t part) {
  const TileForm::Sweep& last_sweep = f_.sweeps[p_.sweeps_ - 1];
  const TileForm::Sweep& results = f_.sweeps[p_.sweeps_];
  const std::int64_t length = extent(vector_loop()), blocks = words_[layout_.chunks];
  const std::int64_t begin = std::min(part * words_[layout_.tile], length), end = std::min(begin + words_[layout_.tile], length);
  each_serial(0, reduced_count(), [&](std::int64_t r0) {
    steps(results.serial, 0, 1);
    for (std::int64_t j = begin; j < end; j += width_) {
      const std::int64_t n = std::min(width_, end - j);
      for (const std::uint32_t f : last_sweep.folds)
        if (f_.folds[f].column) combine_partials(f_.folds[f], blocks, r0 + j, n);
      steps(results.each, j, n);
    }
  });
}

}  // namespace onepass::compiler
