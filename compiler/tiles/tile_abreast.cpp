// Several rows per tile: iterations of the last outer loop share each list of steps. Short rows then do not pay for separate lists and
// calls, and arrays that are read across the vector loop are read in squares.
#include "compiler/tiles/tile_copy.h"
#include "compiler/tiles/tile_run.h"

namespace onepass::compiler {

void TileRun::abreast(std::int64_t row_begin, std::int64_t row_end, std::int64_t first, std::int64_t last) {
  const bool lanes = p_.kind_ == NestKind::Lanes;
  const std::int64_t width = p_.across_ ? std::min(last - first, f_.tile / TileProgram::kSquareRows) : last - first;
  const std::int64_t at_once = std::min(f_.tile / std::max<std::int64_t>(width, 1), TileForm::kMostAbreast);
  for (std::int64_t r = row_begin; r < row_end; r += at_once) {
    index_[p_.outer_ - 1] = r;
    rows_ = std::min(at_once, row_end - r);
    to_row();
    steps_abreast(f_.stages[0].row, 0, 1);
    if (!lanes) {
      for (std::int64_t j = first; j < last; j += width) steps_abreast(f_.sweeps[0].each, j, std::min(width, last - j));
      continue;
    }
    steps_abreast(f_.stages[0].stores, 0, 1);
    for (std::size_t s = 0; s < p_.sweeps_; ++s) {
      steps_abreast(f_.sweeps[s].each, 0, width);
      steps_abreast(f_.stages[s + 1].row, 0, 1);
      steps_abreast(f_.stages[s + 1].stores, 0, 1);
    }
  }
}

void TileRun::steps_abreast(const TileSteps& steps, std::int64_t begin, std::int64_t n) {
  std::byte** const at = at_;
  const auto pointer = [&](std::uint32_t v) { return v == kNone ? nullptr : at[v]; };
  const std::int64_t all = rows_ * n;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    switch (s.kind) {
      case Step::Kind::Loop: s.loop(at[s.a], pointer(s.b), pointer(s.c), at[s.y], all); break;
      case Step::Kind::Load: load_abreast(s, begin, n); break;
      case Step::Kind::Store: store_abreast(s, begin, n); break;
      case Step::Kind::Place: at[s.y] = is_dense(p_.linear_of_[s.at], n) ? address(s.at, begin, s.size) : place(s.y); break;
      case Step::Kind::Index: {
        const std::int64_t step = step_of(s.at), row_step = row_step_of(s.at), first = linears_[s.at] + step * begin;
        auto* const y = reinterpret_cast<std::int64_t*>(at[s.y]);
        if (n == 1) p_.moves_.count(y, first, row_step, rows_);
        else
          for (std::int64_t r = 0; r < rows_; ++r) p_.moves_.count(y + r * n, first + row_step * r, step, n);
        break;
      }
      case Step::Kind::Guard: {
        auto* const y = reinterpret_cast<std::uint8_t*>(at[s.y]);
        const auto* const far = reinterpret_cast<const std::int64_t*>(pointer(s.c));
        std::fill_n(y, all, std::uint8_t{1});
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
          const std::uint32_t linear = p_.check_of_[c];
          for (std::int64_t r = 0; r < rows_; ++r)
            guard(y + r * n, linears_[linear] + step_of(linear) * begin + row_step_of(linear) * r, step_of(linear),
                  words_[layout_.bounds + c], n, !far || s.one ? far : far + r * n, s.one);
        }
        break;
      }
      case Step::Kind::Check: check(s, all); break;
      case Step::Kind::Quotient: {
        const std::int64_t step = step_of(s.at), row_step = row_step_of(s.at), first = linears_[s.at] + step * begin;
        auto* const y = reinterpret_cast<std::int64_t*>(at[s.y]);
        if (n == 1) quotients(s, y, first, row_step, rows_);
        else
          for (std::int64_t r = 0; r < rows_; ++r) quotients(s, y + r * n, first + row_step * r, step, n);
        break;
      }
      case Step::Kind::Far: far(s, all); break;
      case Step::Kind::Gather:
        of_size(s.size, [&]<class E>(E) {
          const std::uint32_t linear = p_.linear_of_[s.at];
          const std::int64_t step = n == 1 ? 0 : step_of(linear), row_step = row_step_of(linear);
          gather(reinterpret_cast<E*>(at[s.y]), reinterpret_cast<const E*>(address(s.at, begin, s.size)), s, all,
                 [&](std::int64_t i) { return i / n * row_step + i % n * step; });
        });
        break;
      case Step::Kind::Fill:
        of_size(s.size, [&]<class E>(E) {
          auto* const y = reinterpret_cast<E*>(at[s.y]);
          const auto* const a = reinterpret_cast<const E*>(at[s.a]);
          if (s.one) std::fill_n(y, all, *a);
          else
            for (std::int64_t r = 0; r < rows_; ++r) std::fill_n(y + r * n, n, a[r]);
        });
        break;
      case Step::Kind::Skip:
        if (!std::memchr(at[s.a], 1, static_cast<std::size_t>(s.one ? 1 : all))) i += s.count;
        break;
      case Step::Kind::Fold: f_.folds[s.at].loops.whole(at[f_.folds[s.at].y], at[s.a], pointer(s.b), n, rows_); break;
      case Step::Kind::Row:
      case Step::Kind::Scan:
      case Step::Kind::Copy: break;  // not in forms with several rows per tile
    }
  }
}

void TileRun::load_abreast(const TileStep& s, std::int64_t begin, std::int64_t n) {
  const std::uint32_t linear = p_.linear_of_[s.at];
  const std::int64_t step = n == 1 ? 1 : step_of(linear), row_step = row_step_of(linear);
  const std::byte* const from = address(s.at, begin, s.size);
  if (s.in_place) {
    if (is_dense(linear, n)) return void(at_[s.y] = const_cast<std::byte*>(from));
    at_[s.y] = place(s.y);
  }
  const auto* const guard = s.a == kNone ? nullptr : reinterpret_cast<const std::uint8_t*>(at_[s.a]);
  of_size(s.size, [&]<class E>(E) {
    auto* const y = reinterpret_cast<E*>(at_[s.y]);
    const auto* const x = reinterpret_cast<const E*>(from);
    if (guard && s.one_guard && guard[0] == 0) return void(std::fill_n(y, rows_ * n, E{0}));
    if (guard && !s.one_guard) {
      for (std::int64_t r = 0; r < rows_; ++r) copy_in(y + r * n, x + r * row_step, step, n, guard + r * n);
    } else if (n == 1) {
      for (std::int64_t r = 0; r < rows_; ++r) y[r] = x[r * row_step];
    } else if (step == 1) {
      for (std::int64_t r = 0; r < rows_; ++r) std::memcpy(y + r * n, x + r * row_step, static_cast<std::size_t>(n) * sizeof(E));
    } else if (row_step == 1 && sizeof(E) >= 4) {
      (sizeof(E) == 4 ? p_.moves_.transpose4 : p_.moves_.transpose8)(y, x, step, rows_, n);
    } else {
      for (std::int64_t r = 0; r < rows_; ++r)
        for (std::int64_t j = 0; j < n; ++j) y[r * n + j] = x[r * row_step + j * step];
    }
  });
}

void TileRun::store_abreast(const TileStep& s, std::int64_t begin, std::int64_t n) {
  const std::uint32_t linear = p_.linear_of_[s.at];
  const std::int64_t step = n == 1 ? 1 : step_of(linear), row_step = row_step_of(linear);
  std::byte* const to = address(s.at, begin, s.size);
  if (to == at_[s.a]) return;  // already computed in the array
  const auto* const guard = s.b == kNone ? nullptr : reinterpret_cast<const std::uint8_t*>(at_[s.b]);
  if (guard && s.one_guard && guard[0] == 0) return;
  of_size(s.size, [&]<class E>(E) {
    auto* const y = reinterpret_cast<E*>(to);
    const auto* const x = reinterpret_cast<const E*>(at_[s.a]);
    for (std::int64_t r = 0; r < rows_; ++r) {
      copy_out(y + r * row_step, step, s.one ? x : x + r * n, s.one, n, !guard || s.one_guard ? nullptr : guard + r * n);
    }
  });
}

}  // namespace onepass::compiler
