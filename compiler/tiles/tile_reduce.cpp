// Reductions in the tiled interpreter: the order of summation (docs/language.md), as in compiler/llvm/emit_lanes.cpp and emit_rows.cpp.
#include <bit>

#include "compiler/plan/scratch.h"
#include "compiler/tiles/tile_run.h"
#include "ir/order.h"

namespace onepass::compiler {

// ---- trees

void TileRun::fill(const TileFold& fold, std::byte* to, std::int64_t n) const {
  switch (size_of(fold.dtype)) {
    case 1: std::memset(to, static_cast<int>(fold.identity), static_cast<std::size_t>(n)); break;
    case 4: std::fill_n(reinterpret_cast<std::uint32_t*>(to), n, static_cast<std::uint32_t>(fold.identity)); break;
    default: std::fill_n(reinterpret_cast<std::uint64_t*>(to), n, fold.identity); break;
  }
}

std::int64_t TileRun::choose_width() const {
  if (p_.kind_ != NestKind::Rows && !p_.has_columns_) return f_.tile;
  const auto blocks = static_cast<std::uint64_t>(std::max(words_[layout_.chunks], reduced_count() / ir::kRowBlock + 1));
  const auto levels = std::min<std::int64_t>(std::bit_width(blocks), TileForm::kTreeLevels);
  std::int64_t room = TileForm::kWholeLevels;
  for (const TileFold& fold : f_.folds)
    if (fold.loops.chain) room = TileForm::kWholeLevelsOfChain;
  return std::min(f_.tile, f_.tile * room / levels & ~std::int64_t{15});
}

// Carries a new leaf through the occupied levels, like a carry through the ones of a binary number.
void TileRun::push(const TileFold& fold, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows) {
  const std::int64_t row_bytes = tree_row_bytes(fold), level_bytes = row_bytes * level_rows(fold);
  std::byte* level = stack_of(fold);
  for (; blocks & 1; blocks >>= 1, level += level_bytes)
    for (std::int64_t i = 0; i < rows; ++i) fold.loops.combine(level + i * row_bytes, sum + i * f_.tile_bytes, n);
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(level + i * row_bytes, sum + i * f_.tile_bytes, static_cast<std::size_t>(n) * size_of(fold.dtype));
}

// Adds the levels of the tree to the sum of the last block, from the left.
void TileRun::top(const TileFold& fold, std::int64_t blocks, std::byte* sum, std::int64_t n, std::int64_t rows) {
  const std::int64_t row_bytes = tree_row_bytes(fold), level_bytes = row_bytes * level_rows(fold);
  std::byte* level = stack_of(fold);
  for (; blocks; blocks >>= 1, level += level_bytes)
    if (blocks & 1)
      for (std::int64_t i = 0; i < rows; ++i) fold.loops.combine(level + i * row_bytes, sum + i * f_.tile_bytes, n);
}

// ---- the serial loops

std::int64_t TileRun::reduced_count() const {
  std::int64_t count = p_.runs_ ? words_[layout_.padded_run] : p_.kind_ == NestKind::Lanes ? extent(vector_loop()) : 1;
  const std::uint32_t counting = p_.runs_ ? p_.runs_ : p_.serial_;
  for (std::uint32_t l = 0; l < counting; ++l) count *= extent(p_.outer_ + l);
  return count;
}

// ---- sweeps along rows

void TileRun::reset_lanes(const TileForm::Sweep& sweep) {
  for (const std::uint32_t f : sweep.folds)
    if (!f_.folds[f].column) fill(f_.folds[f], lanes_of_fold(f), lanes_of(f_.folds[f].dtype));
}
void TileRun::halve_lanes(const TileForm::Sweep& sweep) {
  for (const std::uint32_t f : sweep.folds)
    if (!f_.folds[f].column) f_.folds[f].loops.halve(lanes_of_fold(f));
}

void TileRun::begin_lanes(const TileForm::Sweep& sweep, std::int64_t first_r) {
  reset_lanes(sweep);
  block_ = first_r / ir::kLaneBlock;
  blocks_ = 0;
}

std::int64_t TileRun::tile_length(const TileForm::Sweep& sweep, std::int64_t r0, std::int64_t j, std::int64_t to) const {
  const std::int64_t n = std::min(f_.tile, to - j);
  return sweep.folds.empty() ? n : std::min(n, ir::kLaneBlock - (r0 + j) % ir::kLaneBlock);
}

void TileRun::lanes_tile(const TileForm::Sweep& sweep, std::int64_t r0, std::int64_t j, std::int64_t n) {
  r_ = r0 + j;
  if (!sweep.folds.empty() && r_ / ir::kLaneBlock != block_) {
    halve_lanes(sweep);
    for (const std::uint32_t f : sweep.folds)
      if (!f_.folds[f].column) push(f_.folds[f], blocks_, lanes_of_fold(f), 1, 1);
    ++blocks_;
    reset_lanes(sweep);
    block_ = r_ / ir::kLaneBlock;
  }
  steps(sweep.each, j, n);
}

void TileRun::end_lanes(const TileForm::Sweep& sweep) {
  halve_lanes(sweep);
  for (const std::uint32_t f : sweep.folds) {
    const TileFold& fold = f_.folds[f];
    if (fold.column) continue;
    top(fold, blocks_, lanes_of_fold(f), 1, 1);
    std::memcpy(at_[fold.y], lanes_of_fold(f), size_of(fold.dtype));
  }
}

void TileRun::lanes_sweep(const TileForm::Sweep& sweep, std::int64_t first_r, std::int64_t last_r) {
  if (p_.serial_ == 0 && !p_.has_columns_ && !split_ && last_r > 0 && last_r <= std::min(f_.tile, ir::kLaneBlock)) {
    whole_row_ = true;
    steps(sweep.each, 0, last_r);
    whole_row_ = false;
    return;
  }
  begin_lanes(sweep, first_r);
  each_serial(first_r, last_r, [&](std::int64_t r0) {
    steps(sweep.serial, 0, 1);
    const std::int64_t to = std::min(last_r - r0, extent(vector_loop()));
    for (std::int64_t j = std::max<std::int64_t>(first_r - r0, 0); j < to;) {
      const std::int64_t n = tile_length(sweep, r0, j, to);
      lanes_tile(sweep, r0, j, n);
      j += n;
    }
  });
  end_lanes(sweep);
}

// ---- sweeps across rows

void TileRun::enter_eighth(const TileForm::Sweep& sweep, std::int64_t eighth) {
  eighth_ = eighth;
  for (const std::uint32_t f : sweep.folds)
    if (const TileFold& fold = f_.folds[f]; fold.rows != kNone) at_[fold.a] = tile(fold.rows + static_cast<std::uint32_t>(eighth));
}

void TileRun::rows_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r) {
  constexpr std::int64_t kGroups = ir::kRowBlock / ir::kRowGroup;
  std::int64_t group = first_r / ir::kRowGroup, blocks = 0;
  std::uint32_t met = 0;  // bit mask of the group's rows
  for (const std::uint32_t f : sweep.folds) fill(f_.folds[f], at_[f_.folds[f].y], n);
  const auto end_group = [&] {
    if (met == 0) return;
    for (const std::uint32_t f : sweep.folds) {
      const TileFold& fold = f_.folds[f];
      const void** const rows = rows_of_fold(f);
      for (std::int64_t k = 0; k < ir::kRowGroup; ++k)
        if (!(met >> k & 1)) rows[k] = tile(fold.fills);
      fold.loops.eight(at_[fold.y], rows, n);
    }
    met = 0;
  };
  if (!sweep.scans.empty()) begin_scan_rows(sweep, n, true);
  each_serial(first_r, last_r, [&](std::int64_t r) {
    if (!sweep.scans.empty() && r != 0 && r % ir::kScanBlock == 0) begin_scan_rows(sweep, n, false);
    r_ = r;
    const std::int64_t k = r % ir::kRowGroup;
    if (r / ir::kRowGroup != group) {
      end_group();
      if (r / ir::kRowBlock != group / kGroups) {
        for (const std::uint32_t f : sweep.folds) {
          const TileFold& fold = f_.folds[f];
          push(fold, blocks, at_[fold.y], n, 1);
          fill(fold, at_[fold.y], n);
        }
        ++blocks;
      }
      group = r / ir::kRowGroup;
    }
    enter_eighth(sweep, k);
    steps(sweep.serial, 0, 1);
    steps(sweep.each, begin, n);
    met |= 1u << k;
  });
  end_group();
  for (const std::uint32_t f : sweep.folds) top(f_.folds[f], blocks, at_[f_.folds[f].y], n, 1);
}

// Processes segments of the last serial loop within one block. A group that starts or ends inside a segment is collected row by row.
void TileRun::direct_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r) {
  const std::uint32_t inner = p_.outer_ + p_.serial_ - 1;
  std::int64_t blocks = 0;
  for (const std::uint32_t f : sweep.folds) fill(f_.folds[f], at_[f_.folds[f].y], n);
  if (first_r >= last_r) return;
  set_serial(first_r);
  for (std::int64_t r = first_r; r < last_r;) {
    if (r != first_r && r % ir::kRowBlock == 0) {
      for (const std::uint32_t f : sweep.folds) {
        push(f_.folds[f], blocks, at_[f_.folds[f].y], n, 1);
        fill(f_.folds[f], at_[f_.folds[f].y], n);
      }
      ++blocks;
    }
    const std::int64_t k = r % ir::kRowGroup;
    const std::int64_t left = std::min({extent(inner) - index_[inner], last_r - r, ir::kRowBlock - r % ir::kRowBlock});
    const std::int64_t groups = k == 0 ? left / ir::kRowGroup : 0, length = groups > 0 ? groups * ir::kRowGroup : 1;
    to_row();
    for (std::size_t i = 0; i < sweep.folds.size(); ++i) {
      const TileFold& fold = f_.folds[sweep.folds[i]];
      std::byte* const row = address(sweep.direct[i], begin, static_cast<std::uint8_t>(size_of(fold.dtype)));
      if (groups > 0) {
        const std::int64_t step = words_[layout_.coefficient_of(p_.linear_of_[sweep.direct[i]], inner)];
        fold.loops.eights(at_[fold.y], row, step, groups, n);
        continue;
      }
      const void** const rows = rows_of_fold(sweep.folds[i]);
      if (k == 0) std::fill_n(rows, ir::kRowGroup, tile(fold.fills));
      rows[k] = row;
      if (k + 1 == ir::kRowGroup || r + 1 == last_r) fold.loops.eight(at_[fold.y], rows, n);
    }
    r += length;
    index_[inner] += length;
    carry_serial();
  }
  for (const std::uint32_t f : sweep.folds) top(f_.folds[f], blocks, at_[f_.folds[f].y], n, 1);
}

void TileRun::fill_panels(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t k, std::int64_t length,
                          std::int64_t rows) {
  const TileChain& c = sweep.chain;
  const TileFold& fold = f_.folds[c.fold];
  const auto size = static_cast<std::int64_t>(size_of(fold.dtype));
  std::byte* const panel = memory_ + f_.panels_at;
  std::byte* const values = panel + TileChain::kMostSteps * f_.tile_bytes;
  const std::uint32_t row = p_.outer_ > 0 ? p_.outer_ - 1 : 0, inner = p_.outer_ + p_.serial_ - 1;
  const std::int64_t first_row = index_[row];
  for (std::int64_t i = 0; i < (c.x_access == kNone ? rows : 1); ++i) {
    if (p_.outer_ > 0) index_[row] = first_row + i;
    for (std::int64_t l = 0; l < length; ++l) {
      index_[inner] = k + l;
      to_row();
      if (l == 0) steps(f_.stages[0].row, 0, 1);
      steps(sweep.serial, 0, 1);
      if (c.x_access == kNone) std::memcpy(values + (i * TileChain::kMostSteps + l) * size, at_[fold.a], static_cast<std::size_t>(size));
      if (c.y_access != kNone || i > 0) continue;
      at_[fold.b] = panel + l * f_.tile_bytes;
      steps(sweep.each, begin, n);
    }
  }
  if (p_.outer_ > 0) index_[row] = first_row;
  index_[inner] = k;
  to_row();
  if (rows > 1) steps(f_.stages[0].row, 0, 1);  // restores the values of the first row for later steps
}

// Processes segments of the last serial loop within one block.
void TileRun::chain_sweep(const TileForm::Sweep& sweep, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r,
                          std::int64_t rows) {
  const TileChain& c = sweep.chain;
  const TileFold& fold = f_.folds[c.fold];
  std::byte* const sums = at_[fold.y];
  const auto size = static_cast<std::int64_t>(size_of(fold.dtype));
  const auto size8 = static_cast<std::uint8_t>(size);
  const std::uint32_t inner = p_.outer_ + p_.serial_ - 1;
  const bool computes = c.x_access == kNone || c.y_access == kNone;
  const auto reset = [&] {
    for (std::int64_t i = 0; i < rows; ++i) fill(fold, sums + i * f_.tile_bytes, n);
  };
  reset();
  if (first_r >= last_r) return;
  set_serial(first_r);
  const auto coefficient = [&](std::uint32_t access, std::uint32_t loop) {
    return words_[layout_.coefficient_of(p_.linear_of_[access], loop)];
  };
  std::int64_t blocks = 0;
  for (std::int64_t r = first_r; r < last_r;) {
    if (r != first_r && r % ir::kRowBlock == 0) {
      push(fold, blocks++, sums, n, rows);
      reset();
    }
    const std::int64_t k = index_[inner];
    std::int64_t length = std::min({extent(inner) - k, last_r - r, ir::kRowBlock - r % ir::kRowBlock});
    to_row();
    Chain chain{.sums = sums, .sums_row = f_.tile_bytes / size, .rows = rows, .n = n};
    if (computes) {
      length = std::min(length, TileChain::kMostSteps);
      fill_panels(sweep, begin, n, k, length, rows);
      chain.y = memory_ + f_.panels_at;
      chain.y_step = f_.tile_bytes / size;
      chain.x = memory_ + f_.panels_at + TileChain::kMostSteps * f_.tile_bytes;
      chain.x_row = TileChain::kMostSteps;
      chain.x_step = 1;
    }
    if (c.x_access != kNone) {
      chain.x = address(c.x_access, 0, size8);
      chain.x_row = p_.outer_ > 0 ? coefficient(c.x_access, p_.outer_ - 1) : 0;
      chain.x_step = coefficient(c.x_access, inner);
    }
    if (c.y_access != kNone) {
      chain.y = address(c.y_access, begin, size8);
      chain.y_step = coefficient(c.y_access, inner);
    }
    chain.length = length;
    fold.loops.chain(chain);
    r += length;
    index_[inner] += length;
    carry_serial();
  }
  top(fold, blocks, sums, n, rows);
}

void TileRun::sweep(std::size_t s, std::int64_t begin, std::int64_t n, std::int64_t first_r, std::int64_t last_r, std::int64_t rows) {
  const TileForm::Sweep& sweep = f_.sweeps[s];
  if (p_.kind_ == NestKind::Lanes) lanes_sweep(sweep, first_r, last_r);
  else if (sweep.chain.fold != kNone) chain_sweep(sweep, begin, n, first_r, last_r, rows);
  else if (!sweep.direct.empty() && p_.runs_ == 0) direct_sweep(sweep, begin, n, first_r, last_r);
  else rows_sweep(sweep, begin, n, first_r, last_r);
  std::fill_n(index_ + p_.outer_, p_.serial_, 0);
  if (p_.serial_ > 0) to_row();
}

// ---- stages

void TileRun::stage(std::size_t s, std::int64_t begin, std::int64_t n, bool values, bool stores) {
  const TileForm::Stage& stage = f_.stages[s];
  const bool rows = p_.kind_ == NestKind::Rows;
  if (values) {
    steps(stage.row, 0, 1);
    steps(stage.tile, begin, n);
  }
  if (stores) steps(stage.stores, begin, rows ? n : 1);
}

void TileRun::sweeps(std::int64_t item_begin, std::int64_t begin, std::int64_t n, std::int64_t rows) {
  to_row();
  if (split_) return phase(item_begin, begin, n);
  stage(0, begin, n, true, true);
  for (std::size_t s = 0; s < p_.sweeps_; ++s) {
    sweep(s, begin, n, 0, reduced_count(), rows);
    const std::uint32_t fold = f_.sweeps[s].chain.fold;
    if (fold == kNone || rows == 1) {
      stage(s + 1, begin, n, true, true);
      continue;
    }
    std::byte* const sums = at_[f_.folds[fold].y];  // rows are consecutive
    const std::int64_t first = index_[p_.outer_ - 1];
    for (std::int64_t i = 0; i < rows; ++i) {
      index_[p_.outer_ - 1] = first + i;
      to_row();
      at_[f_.folds[fold].y] = sums + i * f_.tile_bytes;
      if (i > 0) stage(0, begin, n, true, true);
      stage(s + 1, begin, n, true, true);
    }
    at_[f_.folds[fold].y] = sums;
    index_[p_.outer_ - 1] = first;
  }
}

// ---- rows that threads share

std::byte* TileRun::partial(const TileFold& fold, std::int64_t chunk, std::int64_t j) const {
  const std::int64_t item = item_ / words_[layout_.chunks] * words_[layout_.chunks] + chunk;
  std::int64_t at = item * p_.reductions_ + fold.number;
  const auto unit = [](std::int64_t n) { return ((n + 63) & ~std::int64_t{63}) + 64; };
  if (p_.kind_ == NestKind::Rows) at *= unit(words_[layout_.tile]);
  else if (p_.has_columns_) at *= unit(reduced_count());
  auto* const shared = reinterpret_cast<std::byte*>(words_[layout_.shared]);
  return shared + at * kPartialBytes + j * static_cast<std::int64_t>(size_of(fold.dtype));
}

void TileRun::combine_partials(const TileFold& fold, std::int64_t chunks, std::int64_t j, std::int64_t n) {
  std::byte* const sum = at_[fold.y];
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::memcpy(sum, partial(fold, chunk, j), static_cast<std::size_t>(n) * size_of(fold.dtype));
    if (chunk + 1 < chunks) push(fold, chunk, sum, n, 1);
  }
  top(fold, chunks - 1, sum, n, 1);
}

void TileRun::combine_chunks(const TileForm::Sweep& sweep, std::int64_t item_begin, std::int64_t begin, std::int64_t n) {
  const bool rows = p_.kind_ == NestKind::Rows;
  for (const std::uint32_t f : sweep.folds)
    combine_partials(f_.folds[f], words_[layout_.chunks], rows ? begin - item_begin : 0, rows ? n : 1);
}

void TileRun::phase(std::int64_t item_begin, std::int64_t begin, std::int64_t n) {
  const std::int64_t phase = words_[layout_.phase];
  const bool is_first = chunk_ == 0;
  if (phase == p_.sweeps_ && !is_first) return;
  stage(0, begin, n, true, phase == 0 && is_first);
  for (std::int64_t s = 0; s < phase; ++s) {
    combine_chunks(f_.sweeps[static_cast<std::size_t>(s)], item_begin, begin, n);
    stage(static_cast<std::size_t>(s) + 1, begin, n, true, s + 1 == phase && is_first);
  }
  if (phase == p_.sweeps_) return;
  const std::int64_t first = chunk_ * words_[layout_.chunk];
  const auto at = static_cast<std::size_t>(phase);
  sweep(at, begin, n, first, std::min(first + words_[layout_.chunk], reduced_count()), 1);
  for (const std::uint32_t f : f_.sweeps[at].folds) {
    const TileFold& fold = f_.folds[f];
    const bool rows = p_.kind_ == NestKind::Rows;
    std::memcpy(partial(fold, chunk_, rows ? begin - item_begin : 0), at_[fold.y],
                static_cast<std::size_t>(rows ? n : 1) * size_of(fold.dtype));
  }
}

}  // namespace onepass::compiler
