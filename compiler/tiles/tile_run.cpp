// Runs a TileProgram: tasks, steps, elementwise nests.
#include "compiler/tiles/tile_run.h"
#include "compiler/tiles/tile_copy.h"

namespace onepass::compiler {

TileRun::TileRun(const TileProgram& program, const std::int64_t* words, void* scratch, std::int64_t state)
    : p_(program),
      f_(program.form_of(words)),
      layout_(program.layout_),
      words_(words),
      memory_(static_cast<std::byte*>(scratch)),
      state_(memory_ + state * f_.state_bytes),
      index_(reinterpret_cast<std::int64_t*>(state_)),
      linears_(index_ + program.loops_),
      at_(reinterpret_cast<std::byte**>(linears_ + program.linears_)),
      split_(program.is_split(words)),
      width_(choose_width()) {
  for (std::size_t v = 0; v < f_.place.size(); ++v) at_[v] = f_.place[v] == kNone ? nullptr : place(static_cast<std::uint32_t>(v));
  for (const TileForm::Cell& c : f_.constants) std::memcpy(at_[c.value], &c.bits, 8);
  for (const TileForm::Cell& c : f_.slots) std::memcpy(at_[c.value], &words[c.bits], 8);
  for (const TileFold& fold : f_.folds)
    if (fold.fills != kNone) fill(fold, tile(fold.fills), f_.tile);
  std::fill_n(index_, p_.loops_, 0);
  to_row();
  steps(f_.call, 0, 1);
}

void TileRun::to_row() {
  const std::uint32_t known = p_.loops_ - 1;
  for (std::uint32_t l = 0; l < p_.linears_; ++l) {
    linears_[l] = words_[layout_.offset_of(l)];
    for (std::uint32_t k = 0; k < known; ++k) linears_[l] += words_[layout_.coefficient_of(l, k)] * index_[k];
  }
}

// Returns the address of an element. The access pointers include the offsets of their affine maps.
std::byte* TileRun::address(std::uint32_t access, std::int64_t begin, std::uint8_t size) const {
  const std::uint32_t linear = p_.linear_of_[access];
  const std::int64_t elements = linears_[linear] - words_[layout_.offset_of(linear)] + step_of(linear) * begin;
  return reinterpret_cast<std::byte*>(words_[layout_.pointers + access] + elements * size);
}

void TileRun::steps(const TileSteps& steps, std::int64_t begin, std::int64_t n) {
  std::byte** const at = at_;
  const auto pointer = [&](std::uint32_t v) { return v == kNone ? nullptr : at[v]; };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    switch (s.kind) {
      case Step::Kind::Loop: s.loop(at[s.a], pointer(s.b), pointer(s.c), at[s.y], n); break;
      case Step::Kind::Place: at[s.y] = address(s.at, begin, s.size); break;
      case Step::Kind::Load:
        of_size(s.size, [&]<class E>(E) {
          auto* const y = reinterpret_cast<E*>(at[s.y]);
          const auto* const guard = reinterpret_cast<const std::uint8_t*>(pointer(s.a));
          if (guard && s.one_guard && *guard == 0) return void(std::fill_n(y, n, E{0}));
          copy_in(y, reinterpret_cast<const E*>(address(s.at, begin, s.size)), step_of(p_.linear_of_[s.at]), n,
                  s.one_guard ? nullptr : guard);
        });
        break;
      case Step::Kind::Index: {
        const std::int64_t step = step_of(s.at);
        p_.moves_.count(reinterpret_cast<std::int64_t*>(at[s.y]), linears_[s.at] + step * begin, step, n);
        break;
      }
      case Step::Kind::Guard: {
        auto* const y = reinterpret_cast<std::uint8_t*>(at[s.y]);
        const auto* const far = reinterpret_cast<const std::int64_t*>(pointer(s.c));
        std::fill_n(y, n, std::uint8_t{1});
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
          const std::uint32_t linear = p_.check_of_[c];
          guard(y, linears_[linear] + step_of(linear) * begin, step_of(linear), words_[layout_.bounds + c], n, far, s.one);
        }
        break;
      }
      case Step::Kind::Check: check(s, n); break;
      case Step::Kind::Quotient: {
        const std::int64_t step = step_of(s.at);
        quotients(s, reinterpret_cast<std::int64_t*>(at[s.y]), linears_[s.at] + step * begin, step, n);
        break;
      }
      case Step::Kind::Far: far(s, n); break;
      case Step::Kind::Gather:
        of_size(s.size, [&]<class E>(E) {
          const std::int64_t step = step_of(p_.linear_of_[s.at]);
          gather(reinterpret_cast<E*>(at[s.y]), reinterpret_cast<const E*>(address(s.at, begin, s.size)), s, n,
                 [&](std::int64_t i) { return i * step; });
        });
        break;
      case Step::Kind::Fill:
        of_size(s.size, [&]<class E>(E) { std::fill_n(reinterpret_cast<E*>(at[s.y]), n, *reinterpret_cast<const E*>(at[s.a])); });
        break;
      case Step::Kind::Store:
        of_size(s.size, [&]<class E>(E) {
          const auto* const guard = reinterpret_cast<const std::uint8_t*>(pointer(s.b));
          if (guard && s.one_guard && *guard == 0) return;
          copy_out(reinterpret_cast<E*>(address(s.at, begin, s.size)), step_of(p_.linear_of_[s.at]), reinterpret_cast<const E*>(at[s.a]),
                   s.one, n, s.one_guard ? nullptr : guard);
        });
        break;
      case Step::Kind::Skip: {
        const std::int64_t elements = s.one ? 1 : n;
        if (!std::memchr(at[s.a], 1, static_cast<std::size_t>(elements))) i += s.count;
        break;
      }
      case Step::Kind::Fold:
        if (whole_row_) f_.folds[s.at].loops.whole(at[f_.folds[s.at].y], at[s.a], pointer(s.b), n, 1);
        else f_.folds[s.at].loops.take(lanes_of_fold(s.at), at[s.a], pointer(s.b), r_, n);
        break;
      case Step::Kind::Row: rows_of_fold(s.at)[eighth_] = at[s.a]; break;
      case Step::Kind::Scan: scan(s, n); break;
      case Step::Kind::Copy: std::memcpy(at[s.y], at[s.a], static_cast<std::size_t>(n) * s.size); break;
    }
  }
}

void TileRun::guard(std::uint8_t* y, std::int64_t first, std::int64_t step, std::int64_t bound, std::int64_t n, const std::int64_t* far,
                    bool one) {
  if (far && one) first += far[0], far = nullptr;
  if (!far && (step == 0 || step == 1)) {  // a range of elements holds
    const std::int64_t begin = step == 0 ? first < 0 || first >= bound ? n : 0 : std::clamp<std::int64_t>(-first, 0, n);
    const std::int64_t end = step == 0 ? n : std::clamp(bound - first, begin, n);
    std::fill_n(y, begin, std::uint8_t{0});
    std::fill_n(y + end, n - end, std::uint8_t{0});
    return;
  }
  for (std::int64_t k = 0; k < n; ++k) {
    const auto x = static_cast<std::uint64_t>(first + step * k + (far ? far[k] : 0));
    y[k] = static_cast<std::uint8_t>(y[k] & static_cast<std::uint8_t>(x < static_cast<std::uint64_t>(bound)));
  }
}

void TileRun::quotients(const TileStep& s, std::int64_t* y, std::int64_t first, std::int64_t step, std::int64_t n) const {
  const std::int64_t by = words_[layout_.by + s.count];
  const auto divide = [by](std::int64_t x) { return x / by - (x % by < 0); };
  std::int64_t whole = divide(first), rest = first - whole * by;
  if (step < 0 || step > by) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t x = first + step * i;
      y[i] = s.one ? x - divide(x) * by : divide(x);
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = s.one ? rest : whole;
    rest += step;
    if (rest >= by) rest -= by, ++whole;
  }
}

void TileRun::far(const TileStep& s, std::int64_t n) const {
  const std::int64_t by = words_[layout_.coefficient_of(s.at, s.count)];
  const auto* const a = reinterpret_cast<const std::int64_t*>(at_[s.a]);
  const auto* const b = s.b == kNone ? nullptr : reinterpret_cast<const std::int64_t*>(at_[s.b]);
  auto* const y = reinterpret_cast<std::int64_t*>(at_[s.y]);
  for (std::int64_t i = 0; i < n; ++i) y[i] = by * a[s.one ? 0 : i] + (b ? b[s.one_guard ? 0 : i] : 0);
}

void TileRun::check(const TileStep& s, std::int64_t n) {
  const std::int64_t bound = words_[layout_.bounds + s.at];
  auto* const y = reinterpret_cast<std::int64_t*>(at_[s.y]);
  const auto* const guard = s.b == kNone ? nullptr : reinterpret_cast<const std::uint8_t*>(at_[s.b]);
  bool is_bad = false;
  const auto check = [&]<class T>(T) {
    const auto* const a = reinterpret_cast<const T*>(at_[s.a]);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto index = static_cast<std::int64_t>(a[i]);  // an index of u64 above 2^63 is negative, and stays out of bounds
      const std::int64_t place = std::is_signed_v<T> && index < 0 ? index + bound : index;
      const bool inside = static_cast<std::uint64_t>(place) < static_cast<std::uint64_t>(bound);
      is_bad |= !inside && (!guard || guard[s.one_guard ? 0 : i] != 0);
      y[i] = inside ? place : 0;
    }
  };
  switch (s.dtype) {
    case DType::I8: check(std::int8_t{}); break;
    case DType::I16: check(std::int16_t{}); break;
    case DType::I32: check(std::int32_t{}); break;
    case DType::I64: check(std::int64_t{}); break;
    case DType::U8: check(std::uint8_t{}); break;
    case DType::U16: check(std::uint16_t{}); break;
    case DType::U32: check(std::uint32_t{}); break;
    default: check(std::uint64_t{}); break;
  }
  if (is_bad) std::atomic_ref(*reinterpret_cast<std::int64_t*>(words_[layout_.flag])).store(1, std::memory_order_relaxed);
}

void TileRun::map(std::int64_t first, std::int64_t last) {
  steps(f_.stages[0].row, first, 1);
  if (p_.scans_ > 0) return split_ ? scan_chunk(first, last) : scan_along(first, last);
  for (std::int64_t j = first; j < last; j += f_.tile) steps(f_.sweeps[0].each, j, std::min(f_.tile, last - j));
}

void TileRun::recurrence(std::int64_t first, std::int64_t last) {
  for (std::int64_t j = first, n = 0; j < last; j += n) {
    n = std::min(f_.tile, last - j);
    std::fill_n(index_, p_.loops_, 0);
    to_row();
    steps(f_.sweeps[0].each, j, n);
    for (std::int64_t t = 0; t < extent(0); ++t) {
      steps(f_.sweeps[1].each, j, n);
      if (f_.going != kNone && std::all_of(at_[f_.going], at_[f_.going] + n, [](std::byte b) { return b == std::byte{0}; })) break;
      for (std::uint32_t l = 0; l < p_.linears_; ++l) linears_[l] += words_[layout_.coefficient_of(l, 0)];
    }
    steps(f_.sweeps[2].each, j, n);
  }
}

void TileRun::rows(std::int64_t row_begin, std::int64_t row_end, std::int64_t first, std::int64_t last) {
  if (f_.abreast) return abreast(row_begin, row_end, first, last);
  const bool rows = p_.kind_ == NestKind::Rows;
  std::int64_t at_once = 1;
  if (rows && f_.sweeps.size() == 1 && f_.sweeps[0].chain.fold != kNone && !f_.sweeps[0].chain.y_varies) at_once = TileChain::kMostRows;
  for (std::int64_t r = row_begin; r < row_end; r += at_once) {
    if (p_.outer_ > 0) index_[p_.outer_ - 1] = r;
    std::fill_n(index_ + p_.outer_, p_.serial_, 0);
    const std::int64_t tile = rows ? width_ : std::max<std::int64_t>(last - first, 1);
    if (p_.kind_ == NestKind::Map) {
      to_row();
      map(first, last);
      continue;
    }
    for (std::int64_t j = first; j < last || j == first; j += tile)
      sweeps(first, j, std::min(tile, last - j), std::min(at_once, row_end - r));
  }
}

// Runs tasks. A task has `tile_outer` iterations of the last outer loop and `tile` of the vector loop, which counts faster. In Lanes nests,
// it has `tile_rows` iterations of the second-last outer loop and the whole vector loop. In a split schedule, it is a chunk of the reduced
// elements, which counts fastest.
void TileRun::items(std::int64_t begin, std::int64_t end) {
  const std::uint32_t outer = p_.outer_;
  const bool lanes = p_.kind_ == NestKind::Lanes;
  const std::int64_t length = extent(vector_loop()), tile = words_[layout_.tile], chunks = words_[layout_.chunks];
  if (f_.recurrent) return recurrence(begin * tile, std::min(end * tile, length));
  const std::int64_t along = lanes ? 1 : (length + tile - 1) / tile;
  const auto per_item = [&](std::uint32_t l) {
    return l + 1 == outer ? words_[layout_.tile_outer] : lanes && l + 2 == outer ? words_[layout_.tile_rows] : 1;
  };
  for (std::int64_t item = begin; item < end; ++item) {
    std::int64_t rest = item;
    item_ = item;
    if (split_ && p_.kind_ != NestKind::Map) {
      chunk_ = rest % chunks;
      rest /= chunks;
    }
    const std::int64_t first = lanes ? 0 : rest % along * tile, last = lanes ? length : std::min(first + tile, length);
    rest /= along;
    std::int64_t row_begin = 0, row_end = 1, before_begin = 0, before_end = 1;
    for (std::uint32_t l = outer; l-- > 0;) {
      const std::int64_t all = extent(l), each = per_item(l), count = (all + each - 1) / each;
      index_[l] = rest % count * each;
      rest /= count;
      if (l + 1 == outer) row_begin = index_[l], row_end = std::min(row_begin + each, all);
      else if (l + 2 == outer) before_begin = index_[l], before_end = std::min(before_begin + each, all);
    }
    if (f_.abreast && along == 1 && before_end - before_begin <= 1) {  // joins the following tasks with the next rows
      const std::int64_t each = per_item(outer - 1), all = extent(outer - 1);
      const std::int64_t more = std::min(end - item - 1, (all - row_begin + each - 1) / each - 1);
      if (more > 0) item += more, row_end = std::min(row_begin + (more + 1) * each, all);
    }
    for (std::int64_t b = before_begin; b < before_end; ++b) {
      if (outer > 1) index_[outer - 2] = b;
      rows(row_begin, row_end, first, last);
    }
  }
}

}  // namespace onepass::compiler
