// Unroll-and-jams the last outer loop if the vector loop reads values that are invariant in it. These values are loaded once for all jammed
// iterations. Each iteration has separate regions, accumulators and scratch-buffer rows. The loops around the vector body run once for all
// of them.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

// A remainder with too few iterations runs without jamming.
void Emitter::abreast(Value* outer_tile) {
  const std::uint32_t u = nest_.outer - 1u;
  Value* first = b_.CreateMul(outer_tile, word(words_.tile_outer));
  Value* last = smaller(b_.CreateAdd(first, word(words_.tile_outer)), extent(u));
  const auto one_by_one = [&] {
    for_each_row([&] {
      loop(first, last, i64(1), [&](Value* i) {
        index_[u] = i;
        stages_ = {region(&entry_)};
        sweeps();
      });
    });
  };
  if (schedule_.masked) return one_by_one();
  Value* all = b_.CreateICmpEQ(b_.CreateSub(last, first), i64(schedule_.abreast));
  when(all, [&] {
    for_each_row([&] {
      for (int k = 0; k < schedule_.abreast; ++k)
        abreast_.push_back({k ? b_.CreateAdd(first, i64(k)) : first, {region(&entry_)}, nullptr, {}});
      sweeps();
      abreast_.clear();
    });
  });
  when(b_.CreateNot(all), one_by_one);
}

void Emitter::for_each_row(const std::function<void()>& f) {
  if (!tiles_rows()) return f();
  const std::uint32_t rows = nest_.outer - 2u;
  Value* const tile = index_[rows];
  Value* begin = b_.CreateMul(tile, word(words_.tile_rows));
  loop(begin, smaller(b_.CreateAdd(begin, word(words_.tile_rows)), extent(rows)), i64(1), [&](Value* i) {
    index_[rows] = i;
    f();
  });
  index_[rows] = tile;
}

void Emitter::for_each_abreast(const std::function<void()>& f) {
  if (abreast_.empty()) return f();
  const auto change_places = [&] {
    Abreast& mine = abreast_[current_];
    stages_.swap(mine.stages);
    std::swap(serial_, mine.serial);
    reduced_.swap(mine.reduced);
  };
  for (current_ = 0; current_ < abreast_.size(); ++current_) {
    index_[nest_.outer - 1u] = abreast_[current_].index;
    change_places();
    f();
    change_places();
  }
  current_ = 0;
}

void Emitter::for_each_body(Body& first, const std::function<void(Body&)>& f) {
  for_each_abreast([&] {
    if (current_ == 0) return f(first);
    Body other{first.around, first.j, first.mask, first.remaining, first.sweep};
    other.beside = &first;
    other.rows = first.rows;
    f(other);
  });
}

}  // namespace onepass::compiler
