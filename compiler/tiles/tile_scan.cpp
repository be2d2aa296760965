// Scans in the tiled interpreter (compiler/llvm/emit_scan.cpp).
#include <atomic>
#include <iterator>

#include "compiler/tiles/tile_run.h"
#include "ir/order.h"

namespace onepass::compiler {

void TileRun::scan(const TileStep& s, std::int64_t n) {
  const TileFold& fold = f_.folds[s.at];
  if (p_.kind_ == NestKind::Map) return fold.loops.scan(at_[s.a], at_[s.y], lanes_of_fold(s.at), n);
  const std::size_t bytes = static_cast<std::size_t>(n) * s.size;
  std::byte *const carry = tile(fold.carry), *const base = tile(fold.carry + 1);
  if (at_[s.y] != at_[s.a]) std::memcpy(at_[s.y], at_[s.a], bytes);
  fold.loops.combine(carry, at_[s.y], n);
  std::memcpy(carry, at_[s.y], bytes);
  if (r_ >= ir::kScanBlock) fold.loops.combine(base, at_[s.y], n);
}

void TileRun::begin_scan_rows(const TileForm::Sweep& sweep, std::int64_t n, bool first) {
  for (const std::uint32_t f : sweep.scans) {
    const TileFold& fold = f_.folds[f];
    std::byte *const carry = tile(fold.carry), *const base = tile(fold.carry + 1);
    if (!first) fold.loops.combine(base, carry, n);
    if (first) fill(fold, base, n);
    else std::memcpy(base, carry, static_cast<std::size_t>(n) * size_of(fold.dtype));
    fill(fold, carry, n);
  }
}

template <class F> void TileRun::scan_blocks(const TileForm::Sweep& sweep, std::int64_t first, std::int64_t last, F&& end) {
  for (std::int64_t from = first; from < last; from += ir::kScanBlock) {
    const std::int64_t to = std::min(from + ir::kScanBlock, last);
    for (const std::uint32_t f : sweep.scans) fill(f_.folds[f], lanes_of_fold(f), 1);
    for (std::int64_t j = from; j < to; j += f_.tile) steps(sweep.each, j, std::min(f_.tile, to - j));
    for (const std::uint32_t f : sweep.scans) end(from, f_.folds[f], lanes_of_fold(f));
  }
}

void TileRun::scan_along(std::int64_t first, std::int64_t last) {
  const TileForm::Sweep& sweep = f_.sweeps[0];
  for (const std::uint32_t f : sweep.scans) fill(f_.folds[f], lanes_of_fold(f) + 8, 1);
  scan_blocks(sweep, first, last, [](std::int64_t, const TileFold& fold, std::byte* state) {
    fold.loops.combine(state + 8, state, 1);
    std::memcpy(state + 8, state, 8);
  });
}

void TileRun::scan_chunk(std::int64_t first, std::int64_t last) {
  constexpr std::int64_t blocks = kScanChunk / ir::kScanBlock;
  const TileForm::Sweep &results = f_.sweeps[0], &sums = f_.sweeps[1];
  const std::int64_t scans = p_.scans_, slot_bytes = (8 + 8 * scans * (1 + blocks) + 63) & ~std::int64_t{63};
  std::byte* const mine = reinterpret_cast<std::byte*>(words_[layout_.shared]) + item_ * slot_bytes;
  std::byte* const next = mine + slot_bytes;
  const auto sum_of = [&](const TileFold& fold, std::int64_t block) { return mine + 8 * (1 + scans + fold.number * blocks + block); };
  if (words_[layout_.phase] == 0) {
    steps(f_.stages[1].row, first, 1);
    for (const std::uint32_t f : sums.scans) fill(f_.folds[f], lanes_of_fold(f) + 8, 1);
    scan_blocks(sums, first, last, [&](std::int64_t from, const TileFold& fold, const std::byte* state) {
      std::memcpy(sum_of(fold, (from - first) / ir::kScanBlock), state, 8);
    });
    return;
  }
  for (const std::uint32_t f : results.scans) {
    const TileFold& fold = f_.folds[f];
    std::byte* const state = lanes_of_fold(f);
    const std::byte* const base = mine + 8 + 8 * fold.number;
    const auto take_base = [&] {
      if (first == 0) fill(fold, state + 8, 1);
      else std::memcpy(state + 8, base, 8);
    };
    take_base();
    for (std::int64_t block = 0; block < (last - first + ir::kScanBlock - 1) / ir::kScanBlock; ++block) {
      std::memcpy(state, sum_of(fold, block), 8);
      fold.loops.combine(state + 8, state, 1);
      std::memcpy(state + 8, state, 8);
    }
    std::memcpy(next + 8 + 8 * fold.number, state + 8, 8);
    take_base();
  }
  std::atomic_ref<std::int64_t>(*reinterpret_cast<std::int64_t*>(next)).store(1, std::memory_order_release);
  scan_blocks(results, first, last, [](std::int64_t, const TileFold& fold, std::byte* state) {
    fold.loops.combine(state + 8, state, 1);
    std::memcpy(state + 8, state, 8);
  });
}

}  // namespace onepass::compiler
