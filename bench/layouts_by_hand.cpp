// See layouts_by_hand.h.
#include "layouts_by_hand.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace by_hand {
namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
using Index = std::int64_t;
template <class T, int n> struct Of {
  typedef T type __attribute__((vector_size(n * sizeof(T)), may_alias));
  typedef T anywhere __attribute__((vector_size(n * sizeof(T)), may_alias, aligned(alignof(T))));
};
template <class T, int n> using Vector = typename Of<T, n>::type;
using F = Vector<float, W>;
using I = Vector<std::int32_t, W>;

template <int n, class T> inline Vector<T, n> load(const T* p) { return *reinterpret_cast<const typename Of<T, n>::anywhere*>(p); }
template <int n, class T> inline void store(T* p, Vector<T, n> v) { *reinterpret_cast<typename Of<T, n>::anywhere*>(p) = v; }
inline F loadf(const float* p) { return load<W>(p); }
inline void storef(float* p, F v) { store<W>(p, v); }
inline F splat(float x) { return F{} + x; }
inline F greater(F a, F b) { return a > b ? a : b; }
inline F less(F a, F b) { return a < b ? a : b; }
inline float total(F v) {
  float s = 0;
  for (int i = 0; i < W; ++i) s += v[i];
  return s;
}
inline F nearest_integer(F x) {
#if defined(__AVX512F__)
  return (F)_mm512_roundscale_ps((__m512)x, 0);
#elif defined(__AVX2__)
  return (F)_mm256_round_ps((__m256)x, 8);
#else
  for (int i = 0; i < W; ++i) x[i] = std::nearbyint(x[i]);
  return x;
#endif
}
inline F exponential(F x) {
  x = less(greater(x, splat(-87.0f)), splat(88.0f));
  const F n = nearest_integer(x * 1.44269504f);
  const F r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  F p = r * (1.0f / 720) + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if defined(__AVX512F__)
  return (F)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  return p * (F)((__builtin_convertvector(n, I) + 127) << 23);
#endif
}
inline F root_inverse(F x) {
#if defined(__AVX512F__)
  const F r = (F)_mm512_rsqrt14_ps((__m512)x);
#elif defined(__AVX2__)
  const F r = (F)_mm256_rsqrt_ps((__m256)x);
#else
  F r = x;
  for (int i = 0; i < W; ++i) r[i] = 1.0f / std::sqrt(x[i]);
  return r;
#endif
  return r * (1.5f - 0.5f * x * r * r);
}

// Transposes a square of n by n elements: interleaves the rows of the first and second half log2 n times.
template <class T, int n> inline void turn(const T* from, Index step_from, T* to, Index step_to) {
  using V = Vector<T, n>;
  typedef typename std::conditional<sizeof(T) == 1, std::int8_t,
                                    typename std::conditional<sizeof(T) == 2, std::int16_t, std::int32_t>::type>::type M;
  using Mask = Vector<M, n>;
  Mask low, high;
  for (int i = 0; i < n; ++i) low[i] = static_cast<M>(i / 2 + (i % 2) * n), high[i] = static_cast<M>(n / 2 + i / 2 + (i % 2) * n);
  V a[n], b[n];
#pragma GCC unroll 32
  for (int i = 0; i < n; ++i) a[i] = load<n>(from + i * step_from);
#pragma GCC unroll 8
  for (int step = 1; step < n; step *= 2) {
#pragma GCC unroll 32
    for (int i = 0; i < n / 2; ++i) {
      b[2 * i] = __builtin_shuffle(a[i], a[i + n / 2], low);
      b[2 * i + 1] = __builtin_shuffle(a[i], a[i + n / 2], high);
    }
#pragma GCC unroll 32
    for (int i = 0; i < n; ++i) a[i] = b[i];
  }
#pragma GCC unroll 32
  for (int i = 0; i < n; ++i) store<n>(to + i * step_to, a[i]);
}

// Computes to[i][j] = from[j][i], in blocks that stay in the first-level cache and squares in registers.
template <class T> void turn_plane(const T* from, Index step_from, T* to, Index step_to, Index rows, Index columns) {
  constexpr int n = sizeof(T) == 4 ? (W >= 16 ? 16 : 8) : sizeof(T) == 2 ? 16 : 16;
  constexpr Index block = 64;
  for (Index i0 = 0; i0 < rows; i0 += block)
    for (Index j0 = 0; j0 < columns; j0 += block) {
      const Index i1 = std::min(rows, i0 + block), j1 = std::min(columns, j0 + block);
      Index i = i0;
      for (; i + n <= i1; i += n) {
        Index j = j0;
        for (; j + n <= j1; j += n) turn<T, n>(from + j * step_from + i, step_from, to + i * step_to + j, step_to);
        for (; j < j1; ++j)
          for (Index k = 0; k < n; ++k) to[(i + k) * step_to + j] = from[j * step_from + i + k];
      }
      for (; i < i1; ++i)
        for (Index j = j0; j < j1; ++j) to[i * step_to + j] = from[j * step_from + i];
    }
}

template <class T> void permute_of(const T* x, T* y, std::span<const Index> shape, std::span<const int> permutation) {
  const std::size_t rank = shape.size();
  std::vector<Index> steps_x(rank), extents(rank), from(rank), to(rank);
  Index all = 1;
  for (std::size_t k = rank; k-- > 0; all *= shape[k]) steps_x[k] = all;
  Index step = 1;
  for (std::size_t k = rank; k-- > 0;) {
    extents[k] = shape[static_cast<std::size_t>(permutation[k])];
    from[k] = steps_x[static_cast<std::size_t>(permutation[k])];
    to[k] = step;
    step *= extents[k];
  }
  const std::size_t last = rank - 1,
                    along = static_cast<std::size_t>(std::find(permutation.begin(), permutation.end(), last) - permutation.begin());
  std::vector<std::size_t> others;
  for (std::size_t k = 0; k < rank; ++k)
    if (k != last && k != along) others.push_back(k);
  std::vector<Index> at(others.size(), 0);
  for (;;) {
    Index of_x = 0, of_y = 0;
    for (std::size_t k = 0; k < others.size(); ++k) of_x += at[k] * from[others[k]], of_y += at[k] * to[others[k]];
    if (along == last) std::memcpy(y + of_y, x + of_x, static_cast<std::size_t>(extents[last]) * sizeof(T));
    else turn_plane(x + of_x, from[last], y + of_y, to[along], extents[along], extents[last]);
    std::size_t k = others.size();
    while (k > 0 && ++at[k - 1] == extents[others[k - 1]]) at[--k] = 0;
    if (k == 0) return;
  }
}

}  // namespace

void permute(const void* x, void* y, std::span<const Index> shape, std::span<const int> permutation, int element_bytes) {
  if (element_bytes == 4) permute_of(static_cast<const std::uint32_t*>(x), static_cast<std::uint32_t*>(y), shape, permutation);
  else if (element_bytes == 2) permute_of(static_cast<const std::uint16_t*>(x), static_cast<std::uint16_t*>(y), shape, permutation);
  else permute_of(static_cast<const std::uint8_t*>(x), static_cast<std::uint8_t*>(y), shape, permutation);
}

namespace {

// Calls g for a plane, four registers at a time, for sums and sums of products.
template <class G> inline void over_plane(Index m, G&& g) {
  for (Index i = 0; i < m; i += 4 * W) g(i);
}

}  // namespace

void sums_first(const float* x, float* y, Index n, Index c, Index m) {
  std::fill(y, y + c, 0.0f);
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < c; ++k) {
      const float* p = x + (i * c + k) * m;
      F s[4] = {};
      Index j = 0;
      for (; j + 4 * W <= m; j += 4 * W)
        for (int u = 0; u < 4; ++u) s[u] += loadf(p + j + u * W);
      for (; j + W <= m; j += W) s[0] += loadf(p + j);
      float rest = 0;
      for (; j < m; ++j) rest += p[j];
      y[k] += total((s[0] + s[1]) + (s[2] + s[3])) + rest;
    }
}

void sums_last(const float* x, float* y, Index n, Index c) {
  std::fill(y, y + c, 0.0f);
  Index i = 0;
  for (; i + 8 <= n; i += 8)
    for (Index k = 0; k < c; k += W) {
      F s = loadf(y + k);
      for (int u = 0; u < 8; ++u) s += loadf(x + (i + u) * c + k);
      storef(y + k, s);
    }
  for (; i < n; ++i)
    for (Index k = 0; k < c; ++k) y[k] += x[i * c + k];
}

// Normalizes one channel at a time. The first pass over its planes computes the mean, the second pass computes the squared differences
// from the mean, and the third pass writes the result.
void batch_norm_first(const float* x, const float* g, const float* b, float* y, Index n, Index c, Index m) {
  const float all = static_cast<float>(n * m);
  for (Index k = 0; k < c; ++k) {
    F s[4] = {};
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += 4 * W)
        for (int u = 0; u < 4; ++u) s[u] += loadf(x + (i * c + k) * m + j + u * W);
    const float mean = total((s[0] + s[1]) + (s[2] + s[3])) / all;
    F q[4] = {};
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += 4 * W)
        for (int u = 0; u < 4; ++u) {
          const F d = loadf(x + (i * c + k) * m + j + u * W) - mean;
          q[u] += d * d;
        }
    const float scale = g[k] / std::sqrt(total((q[0] + q[1]) + (q[2] + q[3])) / all + 1e-5f), shift = b[k] - mean * scale;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += W) storef(y + (i * c + k) * m + j, loadf(x + (i * c + k) * m + j) * scale + shift);
  }
}

void batch_norm_last(const float* x, const float* g, const float* b, float* y, Index n, Index c) {
  std::vector<float> mean(static_cast<std::size_t>(c)), scale(mean.size()), shift(mean.size());
  sums_last(x, mean.data(), n, c);
  for (float& v : mean) v /= static_cast<float>(n);
  std::fill(scale.begin(), scale.end(), 0.0f);
  for (Index i = 0; i < n; i += 8)
    for (Index k = 0; k < c; k += W) {
      F s = loadf(scale.data() + k);
      const F mu = loadf(mean.data() + k);
      for (int u = 0; u < 8; ++u) {
        const F d = loadf(x + (i + u) * c + k) - mu;
        s += d * d;
      }
      storef(scale.data() + k, s);
    }
  for (Index k = 0; k < c; ++k) {
    const auto at = static_cast<std::size_t>(k);
    scale[at] = g[k] / std::sqrt(scale[at] / static_cast<float>(n) + 1e-5f);
    shift[at] = b[k] - mean[at] * scale[at];
  }
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < c; k += W) storef(y + i * c + k, loadf(x + i * c + k) * loadf(scale.data() + k) + loadf(shift.data() + k));
}

// Computes dx = g/σ (dy - db/N - x̂ dg/N): mean and variance, then db and dg, then dx.
void batch_norm_first_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, Index n, Index c,
                               Index m) {
  const float all = static_cast<float>(n * m);
  for (Index k = 0; k < c; ++k) {
    F s[4] = {};
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += 4 * W)
        for (int u = 0; u < 4; ++u) s[u] += loadf(x + (i * c + k) * m + j + u * W);
    const float mean = total((s[0] + s[1]) + (s[2] + s[3])) / all;
    F q[4] = {}, p[4] = {}, t[4] = {};
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += 4 * W)
        for (int u = 0; u < 4; ++u) {
          const F d = loadf(x + (i * c + k) * m + j + u * W) - mean, e = loadf(dy + (i * c + k) * m + j + u * W);
          q[u] += d * d;
          p[u] += d * e;
          t[u] += e;
        }
    const float inverse = 1.0f / std::sqrt(total((q[0] + q[1]) + (q[2] + q[3])) / all + 1e-5f);
    dg[k] = total((p[0] + p[1]) + (p[2] + p[3])) * inverse;
    db[k] = total((t[0] + t[1]) + (t[2] + t[3]));
    const float scale = g[k] * inverse, of_x = -scale * inverse * dg[k] / all, shift = -scale * db[k] / all - mean * of_x;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < m; j += W)
        storef(dx + (i * c + k) * m + j, loadf(dy + (i * c + k) * m + j) * scale + loadf(x + (i * c + k) * m + j) * of_x + shift);
  }
}

void batch_norm_last_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, Index n, Index c) {
  const auto length = static_cast<std::size_t>(c);
  std::vector<float> mean(length), squares(length, 0.0f), products(length, 0.0f), scale(length), of_x(length), shift(length);
  sums_last(x, mean.data(), n, c);
  for (float& v : mean) v /= static_cast<float>(n);
  std::fill(db, db + c, 0.0f);
  for (Index i = 0; i < n; i += 8)
    for (Index k = 0; k < c; k += W) {
      F q = loadf(squares.data() + k), p = loadf(products.data() + k), t = loadf(db + k);
      const F mu = loadf(mean.data() + k);
      for (int u = 0; u < 8; ++u) {
        const F d = loadf(x + (i + u) * c + k) - mu, e = loadf(dy + (i + u) * c + k);
        q += d * d;
        p += d * e;
        t += e;
      }
      storef(squares.data() + k, q);
      storef(products.data() + k, p);
      storef(db + k, t);
    }
  const float all = static_cast<float>(n);
  for (std::size_t k = 0; k < length; ++k) {
    const float inverse = 1.0f / std::sqrt(squares[k] / all + 1e-5f);
    dg[k] = products[k] * inverse;
    scale[k] = g[k] * inverse;
    of_x[k] = -scale[k] * inverse * dg[k] / all;
    shift[k] = -scale[k] * db[k] / all - mean[k] * of_x[k];
  }
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < c; k += W)
      storef(dx + i * c + k,
             loadf(dy + i * c + k) * loadf(scale.data() + k) + loadf(x + i * c + k) * loadf(of_x.data() + k) + loadf(shift.data() + k));
}

// Computes blocks of columns that stay in the second-level cache for all sweeps.
void softmax_columns(const float* x, float* y, Index n, Index m) {
  const Index block = std::max<Index>(W, std::min<Index>(m, (256 << 10) / 4 / n / W * W));
  std::vector<float> most(static_cast<std::size_t>(block)), sum(most.size());
  for (Index j0 = 0; j0 < m; j0 += block) {
    const Index wide = std::min(block, m - j0);
    std::fill(most.begin(), most.end(), -std::numeric_limits<float>::max());
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (Index i = 0; i < n; i += 4)
      for (Index j = 0; j < wide; j += W) {
        const float* p = x + i * m + j0 + j;
        storef(most.data() + j,
               greater(loadf(most.data() + j), greater(greater(loadf(p), loadf(p + m)), greater(loadf(p + 2 * m), loadf(p + 3 * m)))));
      }
    for (Index i = 0; i < n; i += 2)
      for (Index j = 0; j < wide; j += W) {
        const F mx = loadf(most.data() + j), a = exponential(loadf(x + i * m + j0 + j) - mx),
                b = exponential(loadf(x + (i + 1) * m + j0 + j) - mx);
        storef(y + i * m + j0 + j, a);
        storef(y + (i + 1) * m + j0 + j, b);
        storef(sum.data() + j, loadf(sum.data() + j) + (a + b));
      }
    for (Index j = 0; j < wide; j += W) storef(sum.data() + j, 1.0f / loadf(sum.data() + j));
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < wide; j += W) storef(y + i * m + j0 + j, loadf(y + i * m + j0 + j) * loadf(sum.data() + j));
  }
}

void standardize_columns(const float* x, float* y, Index n, Index m) {
  const Index block = std::max<Index>(W, std::min<Index>(m, (256 << 10) / 4 / n / W * W));
  std::vector<float> mean(static_cast<std::size_t>(block)), scale(mean.size());
  for (Index j0 = 0; j0 < m; j0 += block) {
    const Index wide = std::min(block, m - j0);
    std::fill(mean.begin(), mean.end(), 0.0f);
    std::fill(scale.begin(), scale.end(), 0.0f);
    for (Index i = 0; i < n; i += 4)
      for (Index j = 0; j < wide; j += W) {
        const float* p = x + i * m + j0 + j;
        storef(mean.data() + j, loadf(mean.data() + j) + ((loadf(p) + loadf(p + m)) + (loadf(p + 2 * m) + loadf(p + 3 * m))));
      }
    for (Index j = 0; j < wide; ++j) mean[static_cast<std::size_t>(j)] /= static_cast<float>(n);
    for (Index i = 0; i < n; i += 4)
      for (Index j = 0; j < wide; j += W) {
        const float* p = x + i * m + j0 + j;
        const F mu = loadf(mean.data() + j), a = loadf(p) - mu, b = loadf(p + m) - mu, c = loadf(p + 2 * m) - mu, d = loadf(p + 3 * m) - mu;
        storef(scale.data() + j, loadf(scale.data() + j) + ((a * a + b * b) + (c * c + d * d)));
      }
    for (Index j = 0; j < wide; ++j) {
      float& s = scale[static_cast<std::size_t>(j)];
      s = 1.0f / std::sqrt(s / static_cast<float>(n));
    }
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < wide; j += W)
        storef(y + i * m + j0 + j, (loadf(x + i * m + j0 + j) - loadf(mean.data() + j)) * loadf(scale.data() + j));
  }
}

namespace {

template <int d> inline F shifted(F v, float fill) {  // shifts by d lanes; inserts `fill`
  I from;
  for (int i = 0; i < W; ++i) from[i] = i >= d ? i - d : W;
  return __builtin_shuffle(v, splat(fill), from);
}

}  // namespace

void cumsum_rows(const float* x, float* y, Index n, Index m) {
  for (Index i = 0; i < n; ++i) {
    F carry{};
    for (Index j = 0; j < m; j += W) {
      F v = loadf(x + i * m + j);
      v += shifted<1>(v, 0);
      v += shifted<2>(v, 0);
      if constexpr (W > 4) v += shifted<4>(v, 0);
      if constexpr (W > 8) v += shifted<8>(v, 0);
      v += carry;
      storef(y + i * m + j, v);
      carry = __builtin_shuffle(v, I{} + (W - 1));
    }
  }
}

void cummax_rows(const float* x, float* y, Index n, Index m) {
  constexpr float least = -std::numeric_limits<float>::max();
  for (Index i = 0; i < n; ++i) {
    F carry = splat(least);
    for (Index j = 0; j < m; j += W) {
      F v = loadf(x + i * m + j);
      v = greater(v, shifted<1>(v, least));
      v = greater(v, shifted<2>(v, least));
      if constexpr (W > 4) v = greater(v, shifted<4>(v, least));
      if constexpr (W > 8) v = greater(v, shifted<8>(v, least));
      v = greater(v, carry);
      storef(y + i * m + j, v);
      carry = __builtin_shuffle(v, I{} + (W - 1));
    }
  }
}

void quantize(const float* x, std::int8_t* q, Index n, float scale) {
  for (Index i = 0; i < n; i += W) {
    const F v = less(greater(nearest_integer(loadf(x + i) * scale), splat(-127.0f)), splat(127.0f));
    store<W>(q + i, __builtin_convertvector(__builtin_convertvector(v, I), Vector<std::int8_t, W>));
  }
}

void dequantize(const std::int8_t* q, float* y, Index n, float scale) {
  for (Index i = 0; i < n; i += W) storef(y + i, __builtin_convertvector(__builtin_convertvector(load<W>(q + i), I), F) * scale);
}

void round_trip(const float* x, float* y, Index n, float scale) {
  const float back = 1.0f / scale;
  for (Index i = 0; i < n; i += W)
    storef(y + i, less(greater(nearest_integer(loadf(x + i) * scale), splat(-127.0f)), splat(127.0f)) * back);
}

void round_trip_rows(const float* x, float* y, Index n, Index m) {
  for (Index i = 0; i < n; ++i) {
    F most[4] = {};
    for (Index j = 0; j < m; j += 4 * W)
      for (int u = 0; u < 4; ++u) {
        const F v = loadf(x + i * m + j + u * W);
        most[u] = greater(most[u], greater(v, -v));
      }
    const F all = greater(greater(most[0], most[1]), greater(most[2], most[3]));
    float top = 0;
    for (int k = 0; k < W; ++k) top = std::max(top, all[k]);
    round_trip(x + i * m, y + i * m, m, 127.0f / top);
  }
}

namespace {

// Transposes b to columns, so that vectors run over its points; pads the last vector with its last point.
std::vector<float> columns_of(const float* b, Index m, Index d) {
  const Index padded = (m + 2 * W - 1) / (2 * W) * (2 * W);
  std::vector<float> out(static_cast<std::size_t>(padded * d));
  for (Index k = 0; k < d; ++k)
    for (Index j = 0; j < padded; ++j) out[static_cast<std::size_t>(k * padded + j)] = b[std::min(j, m - 1) * d + k];
  return out;
}

// Calls f(j, rows) with the squared distances of points i .. i + 4 of a to 2 W points of b from j on, for all j.
template <class G> inline void distances(const float* a, const float* columns, Index padded, Index d, G&& f) {
  for (Index j = 0; j < padded; j += 2 * W) {
    F s[4][2] = {};
    for (Index k = 0; k < d; ++k) {
      const F b0 = loadf(columns + k * padded + j), b1 = loadf(columns + k * padded + j + W);
      for (int r = 0; r < 4; ++r) {
        const F e0 = b0 - a[r * d + k], e1 = b1 - a[r * d + k];
        s[r][0] += e0 * e0;
        s[r][1] += e1 * e1;
      }
    }
    f(j, s);
  }
}

template <class G> void by_dimensions(Index d, G&& g) {  // calls g with a constant for common dimension counts
  if (d == 2) g(std::integral_constant<Index, 2>{});
  else if (d == 3) g(std::integral_constant<Index, 3>{});
  else if (d == 16) g(std::integral_constant<Index, 16>{});
  else g(d);
}

}  // namespace

void kernel_density(const float* a, const float* b, float* y, Index n, Index m, Index dimensions) {
  const std::vector<float> columns = columns_of(b, m, dimensions);
  const Index padded = static_cast<Index>(columns.size()) / dimensions;
  by_dimensions(dimensions, [&](auto d) {
    for (Index i = 0; i < n; i += 4) {
      F sum[4] = {};
      distances(a + i * d, columns.data(), padded, d, [&](Index, const F(&s)[4][2]) {
        for (int r = 0; r < 4; ++r) sum[r] += exponential(-s[r][0]) + exponential(-s[r][1]);
      });
      for (int r = 0; r < 4; ++r) y[i + r] = total(sum[r]);
    }
  });
}

void nearest(const float* a, const float* b, Index* y, Index n, Index m, Index dimensions) {
  const std::vector<float> columns = columns_of(b, m, dimensions);
  const Index padded = static_cast<Index>(columns.size()) / dimensions;
  I lanes;
  for (int i = 0; i < W; ++i) lanes[i] = i;
  by_dimensions(dimensions, [&](auto d) {
    for (Index i = 0; i < n; i += 4) {
      F best[4];
      I at[4] = {};
      for (F& v : best) v = splat(std::numeric_limits<float>::max());
      distances(a + i * d, columns.data(), padded, d, [&](Index j, const F(&s)[4][2]) {
        for (int r = 0; r < 4; ++r)
          for (int u = 0; u < 2; ++u) {
            const auto is_less = s[r][u] < best[r];
            best[r] = is_less ? s[r][u] : best[r];
            at[r] = is_less ? lanes + static_cast<std::int32_t>(j + u * W) : at[r];
          }
      });
      for (int r = 0; r < 4; ++r) {
        int lane = 0;
        for (int k = 1; k < W; ++k)
          if (best[r][k] < best[r][lane] || (best[r][k] == best[r][lane] && at[r][k] < at[r][lane])) lane = k;
        y[i + r] = std::min<Index>(at[r][lane], m - 1);
      }
    }
  });
}

void potential(const float* a, float* y, Index n, Index dimensions) {
  const std::vector<float> columns = columns_of(a, n, dimensions);
  const Index padded = static_cast<Index>(columns.size()) / dimensions;
  by_dimensions(dimensions, [&](auto d) {
    for (Index i = 0; i < n; i += 4) {
      F sum[4] = {};
      distances(a + i * d, columns.data(), padded, d, [&](Index, const F(&s)[4][2]) {
        for (int r = 0; r < 4; ++r) sum[r] += root_inverse(s[r][0] + 1e-3f) + root_inverse(s[r][1] + 1e-3f);
      });
      for (int r = 0; r < 4; ++r) y[i + r] = total(sum[r]);
    }
  });
}

}  // namespace by_hand
