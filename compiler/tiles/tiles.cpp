// See tiles.h.
#include "compiler/tiles/tiles.h"

#include <algorithm>
#include <cmath>

#include "compiler/tiles/tile_form.h"
#include "compiler/tiles/tile_run.h"

namespace onepass::compiler {

TileLoop tile_loop(ir::Op op, DType from, DType to, unsigned uniform, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return tile_loop_avx512(op, from, to, uniform);
  if (target.has_avx2()) return tile_loop_avx2(op, from, to, uniform);
#endif
  static_cast<void>(target);
  return tile_loop_baseline(op, from, to, uniform);
}

TileLoop tile_pair(TilePair pair, DType dtype, unsigned uniform, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return tile_pair_avx512(pair, dtype, uniform);
  if (target.has_avx2()) return tile_pair_avx2(pair, dtype, uniform);
#endif
  static_cast<void>(target);
  return tile_pair_baseline(pair, dtype, uniform);
}

TileLoop tile_half(DType half, bool to_half, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return tile_half_avx512(half, to_half);
  if (target.has_avx2()) return tile_half_avx2(half, to_half);
#endif
  static_cast<void>(target);
  return tile_half_baseline(half, to_half);
}

FoldLoops fold_loops(FoldKind kind, DType dtype, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return fold_loops_avx512(kind, dtype);
  if (target.has_avx2()) return fold_loops_avx2(kind, dtype);
#endif
  static_cast<void>(target);
  return fold_loops_baseline(kind, dtype);
}

const MoveLoops& move_loops(const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return move_loops_avx512();
  if (target.has_avx2()) return move_loops_avx2();
#endif
  static_cast<void>(target);
  return move_loops_baseline();
}

TileProgram::TileProgram(const Nest& nest, const Target& target)
    : moves_(move_loops(target)),
      kind_(nest.kind),
      has_columns_(nest.has_columns()),
      layout_(nest),
      loops_(nest.loops()),
      outer_(nest.outer),
      serial_(nest.serial),
      runs_(nest.runs),
      sweeps_(nest.sweeps),
      linears_(static_cast<std::uint32_t>(nest.linears.size())) {}
TileProgram::~TileProgram() = default;

bool TileProgram::runs_abreast(const std::int64_t* words) const {
  const std::int64_t length = words[layout_.extents + loops_ - 1], rows = words[layout_.extents + outer_ - 1];
  if (across_) return std::min(rows, words[layout_.tile_outer]) >= kSquareRows / 2 && length > 1;
  return !is_split(words) && rows > 1 && length > 0 && kFewestAbreast * length <= abreast_->tile;
}

const TileForm& TileProgram::form_of(const std::int64_t* words) const {
  if (abreast_ && runs_abreast(words)) return *abreast_;
  const bool whole = whole_ && !is_split(words) && words[layout_.extents + loops_ - 1] <= whole_->tile;
  return whole ? *whole_ : *form_;
}

double TileProgram::nanoseconds(std::span<const std::int64_t> words) const {
  const TileForm& form = form_of(words.data());
  const auto extent = [&](std::uint32_t l) { return static_cast<double>(words[layout_.extents + l]); };
  double rows = 1, serial = 1;
  for (std::uint32_t l = 0; l < outer_; ++l) rows *= extent(l);
  for (std::uint32_t l = outer_; l < outer_ + serial_; ++l) serial *= extent(l);
  const double length = extent(loops_ - 1);
  if (form.abreast) {
    const double groups = std::ceil(rows / std::clamp(static_cast<double>(form.tile) / length, 1.0, double{TileForm::kMostAbreast}));
    return groups * (form.row_ns + form.tile_ns) + rows * (form.abreast_ns + length * form.element_ns);
  }
  const std::int64_t most = kind_ == NestKind::Lanes ? form.tile : std::min(form.tile, std::max<std::int64_t>(words[layout_.tile], 1));
  const double tiles = std::ceil(length / static_cast<double>(most));
  const double of_row = kind_ == NestKind::Rows ? tiles : 1;  // lists of the row and of the serial loops run once per tile
  return rows * (of_row * (form.row_ns + serial * form.serial_ns) + serial * (length * form.element_ns + tiles * form.tile_ns));
}

// The ratio to the baseline tier and the compile times were measured on an Intel Sapphire Rapids.
double TileProgram::quick_nanoseconds(std::span<const std::int64_t> words) const { return (contracts_ ? 12 : 0.6) * nanoseconds(words); }

double TileProgram::compile_nanoseconds() const { return 2.0e6 + 4e3 * static_cast<double>(steps_); }
double TileProgram::optimise_nanoseconds() const {
  const auto primitives = static_cast<double>(primitives_);
  switch (kind_) {
    case NestKind::Map: return 5.0e6 + 1.2e5 * primitives;
    case NestKind::Lanes: return 6.0e6 + 3e4 * primitives;
    case NestKind::Rows: break;  // eight rows are unrolled
  }
  return 1.8e7 + 1.2e5 * primitives;
}

void TileProgram::run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
  if (has_columns_) return TileRun::columns(*this, words, begin, end, scratch);
  TileRun(*this, words, scratch).items(begin, end);
}

}  // namespace onepass::compiler
