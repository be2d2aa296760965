// Hand-written loop bodies for tools/cycles: compiled for a processor, never run. They use vectors of the processor's width.
//
// With -DRELAXED (and fast arithmetic), functions are accurate to a few units in the last place, and sums may be regrouped. Otherwise,
// they have the accuracy of docs/accuracy.md and round every operation of the program.
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#else
constexpr int W = 8;
#endif
typedef float F __attribute__((vector_size(4 * W), may_alias));
typedef float G __attribute__((vector_size(4 * W), may_alias, aligned(4)));
typedef std::int32_t I __attribute__((vector_size(4 * W), may_alias));

inline F load(const float* p) { return *reinterpret_cast<const G*>(p); }
inline void store(float* p, F v) { *reinterpret_cast<G*>(p) = v; }
inline F all(float v) { return F{} + v; }
inline F fma(F a, F b, F c) { return __builtin_elementwise_fma(a, b, c); }
inline F fma(F a, float b, float c) { return fma(a, all(b), all(c)); }
inline F fma(F a, F b, float c) { return fma(a, b, all(c)); }
inline F abs(F a) { return __builtin_elementwise_abs(a); }
inline F copysign(F a, F s) { return __builtin_elementwise_copysign(a, s); }
inline F at_most(F a, float most) { return a > most ? all(most) : a; }
inline F at_least(F a, float least) { return a < least ? all(least) : a; }
inline F least_of(F a, F b) { return a < b ? a : b; }
inline F greatest_of(F a, F b) { return a > b ? a : b; }
inline F nearest(F a) { return __builtin_elementwise_roundeven(a); }
inline F scaled(F a, F n) {  // a 2^n, normal
#if defined(__AVX512F__)
  return (F)_mm512_scalef_ps((__m512)a, (__m512)n);
#else
  return (F)((I)a + (__builtin_convertvector(n, I) << 23));
#endif
}
inline F reciprocal(F a) {
#if defined(RELAXED) && defined(__AVX512F__)
  const F r = (F)_mm512_rcp14_ps((__m512)a);
  return r * (2.0f - a * r);
#else
  return 1.0f / a;
#endif
}
inline F root_inverse(F a) {
#if defined(RELAXED) && defined(__AVX512F__)
  const F r = (F)_mm512_rsqrt14_ps((__m512)a);
  return r * (1.5f - 0.5f * a * r * r);
#else
  return 1.0f / __builtin_elementwise_sqrt(a);
#endif
}

// e^x = 2^n (1 + tail)
struct Exponential {
  F tail, n;
};
inline Exponential exponential_parts(F x) {
  const F n = nearest(x * 1.44269504f), r = fma(n, all(1.90465421e-9f), fma(n, all(-0.693147182f), x));
  F q = fma(r, 0.000195774614f, 0.00139357895f);
  q = fma(q, r, 0.0083338879f);
  q = fma(q, r, 0.0416664556f);
  q = fma(q, r, 0.166666642f);
  q = fma(q, r, 0.5f);
  return {fma(r * r, q, r), n};
}
inline F exponential(F x) {
#if defined(RELAXED)
  const F t = at_most(x * 1.44269504f, 127.0f), n = nearest(t), r = t - n;  // 2^t
  F p = fma(r, 0.00134099938f, 0.00967603642f);
  p = fma(p, r, 0.05550297350f);
  p = fma(p, r, 0.24022106827f);
  p = fma(p, r, 0.69314724207f);
  return scaled(fma(p, r, 1.0f), n);
#else
  const Exponential e = exponential_parts(at_most(at_least(x, -105.0f), 89.0f));
  return scaled(1.0f + e.tail, e.n);
#endif
}
inline F hyperbolic_tangent(F x) {
#if defined(RELAXED)
  return 1.0f - 2.0f * reciprocal(1.0f + exponential(x + x));
#else
  const F a = abs(x), u = a * a, uu = u * u;
  F even = fma(uu, 0.00306808739f, 0.0217799675f), odd = fma(uu, 0.000119999124f, -0.000834991573f);
  even = fma(even, uu, 0.13333182f);
  odd = fma(odd, uu, -0.0085856691f);
  odd = fma(odd, uu, -0.0539517738f);
  const F p = fma(fma(odd, u, even), u, -0.333333284f), small = fma(a * u, p, a);
  const F c = at_most(a, 10.0f);
  const Exponential e = exponential_parts(c + c);
  const F large = 1.0f - 2.0f / (scaled(1.0f + e.tail, e.n) + 1.0f);
  return copysign(a >= 1.0f ? large : small, x);
#endif
}
inline F logarithm(F x) {
#if defined(__AVX512F__)
  const F k = (F)_mm512_getexp_ps((__m512)(x * 1.41421356f)), f = (F)_mm512_scalef_ps((__m512)x, (__m512)(-k)) - 1.0f;
#else
  const I bits = (I)x + (0x3f800000 - 0x3f3504f3);
  const F k = __builtin_convertvector(bits >> 23, F) - 127.0f, f = (F)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
#endif
#if defined(RELAXED)
  F p = fma(f, 0.0515669584f, -0.1190536395f);
  p = fma(p, f, 0.1504313499f);
  p = fma(p, f, -0.1686851978f);
  p = fma(p, f, 0.1997481585f);
  p = fma(p, f, -0.2499012947f);
  p = fma(p, f, 0.3333354294f);
  p = fma(p, f, -0.5000012517f);
  return fma(k, all(0.69314718f), fma(f * f, p, f));
#else
  const F ff = f * f;
  F even = fma(ff, -0.14311552f, -0.16569823f), odd = fma(ff, 0.087411046f, 0.149173737f);
  even = fma(even, ff, -0.250017911f);
  odd = fma(odd, ff, 0.199620664f);
  even = fma(even, ff, -0.499999911f);
  odd = fma(odd, ff, 0.333339512f);
  const F tail = ff * fma(odd, f, even), high = fma(k, all(0.693147182f), f), lost = fma(k, all(0.693147182f), f - high);
  const F y = high + (lost + fma(k, all(-1.90465421e-9f), tail));
  return x > 0.0f ? (x < __builtin_inff() ? y : x) : (x == 0.0f ? all(-__builtin_inff()) : all(__builtin_nanf("")));
#endif
}
inline F error_function(F x) {
#if defined(RELAXED)
  x = greatest_of(least_of(x, all(3.92f)), all(-3.92f));
  const F z = x * x;
  F p = fma(z, 2.034768613e-06f, 0.000287478324f);
  p = fma(p, z, 0.0038682264276f);
  p = fma(p, z, 0.0530601702631f);
  p = fma(p, z, 0.1927615255117f);
  p = fma(p, z, 1.1283789873123f);
  F q = fma(z, 3.807093889918e-05f, 0.0011880930979f);
  q = fma(q, z, 0.0151720913127f);
  q = fma(q, z, 0.1150835901499f);
  q = fma(q, z, 0.5041621327400f);
  q = fma(q, z, 1.0f);
  return x * p * reciprocal(q);
#else
  const F a = abs(x), u = fma(a, a, -0.5f);
  F p = fma(u, 7.4165946e-05f, -0.000565571012f);
  p = fma(p, u, 0.0034820158f);
  p = fma(p, u, -0.0182832927f);
  p = fma(p, u, 0.0794098079f);
  p = fma(p, u, -0.281072199f);
  p = fma(p, u, -0.034531258f);
  const F b = at_most(a, 4.0f);
  F q = fma(b, 0.000206693774f, -0.00315299677f);
  q = fma(q, b, 0.0226844437f);
  q = fma(q, b, -0.10492903f);
  q = fma(q, b, -0.635981619f);
  q = fma(q, b, -1.12843287f);
  const Exponential e = exponential_parts(b * q);
  const F large = 1.0f - scaled(1.0f + e.tail, e.n);
  return copysign(a >= 1.0625f ? large : fma(a, p, a), x);
#endif
}
inline F zero_stays(F g, F d) { return g == 0.0f ? F{} : g * d; }  // a zero cotangent gives zero

constexpr float A = 0.7978845608f, B = 0.044715f;

}  // namespace

extern "C" {

void tanh_body(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += W) store(y + i, hyperbolic_tangent(load(x + i)));
}

void gelu_body(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += W) {
    const F v = load(x + i);
#if defined(RELAXED)
    store(y + i, v * reciprocal(1.0f + exponential(v * (v * v * (-2 * A * B) - 2 * A))));
#else
    store(y + i, 0.5f * v * (1.0f + hyperbolic_tangent(A * (v + B * v * v * v))));
#endif
  }
}

void gelu_grad_body(const float* x, const float* dy, float* dx, std::size_t n) {
  for (std::size_t i = 0; i < n; i += W) {
    const F v = load(x + i), g = load(dy + i);
#if defined(RELAXED)
    const F q = v * v, s = reciprocal(1.0f + exponential(v * (q * (-2 * A * B) - 2 * A)));
    store(dx + i, g * (s + v * s * (1.0f - s) * (q * (6 * A * B) + 2 * A)));
#else
    // like reverse mode, cotangent by cotangent
    const F c = B * v, cc = c * v, inner = v + cc * v, t = hyperbolic_tangent(A * inner), half = 0.5f * v;
    const F of_t = zero_stays(zero_stays(g, half), 1.0f - t * t), of_inner = zero_stays(of_t, all(A));
    const F of_ccv = zero_stays(of_inner, v), of_c = zero_stays(of_ccv, v);
    const F of_half = zero_stays(g, 1.0f + t);
    store(dx + i,
          ((zero_stays(of_half, all(0.5f)) + of_inner) + zero_stays(of_inner, cc)) + (zero_stays(of_ccv, c) + zero_stays(of_c, all(B))));
#endif
  }
}

void black_scholes_body(const float* S, const float* K, const float* T, float* call, float* put, std::size_t n) {
  for (std::size_t i = 0; i < n; i += W) {
    const F s = load(S + i), k = load(K + i), t = load(T + i);
#if defined(RELAXED)
    const F r = root_inverse(t), sq = t * r * (0.3f * 0.70710678f),
            d1 = (logarithm(s * reciprocal(k)) + 0.065f * t) * r * (0.70710678f / 0.3f);
    const F n1 = 0.5f + 0.5f * error_function(d1), n2 = 0.5f + 0.5f * error_function(d1 - sq), disc = k * exponential(t * -0.02f);
#else
    const F sq = 0.3f * __builtin_elementwise_sqrt(t), d1 = (logarithm(s / k) + 0.065f * t) / sq, d2 = d1 - sq;
    const F n1 = 0.5f + 0.5f * error_function(d1 * 0.70710678f), n2 = 0.5f + 0.5f * error_function(d2 * 0.70710678f);
    const F disc = k * exponential(-0.02f * t);
#endif
    const F v = s * n1 - disc * n2;
    store(call + i, v);
    store(put + i, v - s + disc);
  }
}

// Computes one row: the maximum, the exponentials and their sum, the quotients.
void softmax_body(const float* x, float* e, float* y, std::size_t n) {
  F m[4] = {all(-__builtin_inff()), all(-__builtin_inff()), all(-__builtin_inff()), all(-__builtin_inff())};
#pragma clang loop unroll(disable)
  for (std::size_t i = 0; i < n; i += 4 * W)
    for (int u = 0; u < 4; ++u) {
      const F v = load(x + i + u * W);
#if defined(RELAXED)
      m[u] = greatest_of(v, m[u]);
#else
      m[u] = v != v ? v : greatest_of(m[u], v);  // propagates NaN
#endif
    }
  F most = greatest_of(greatest_of(m[0], m[1]), greatest_of(m[2], m[3]));
  float top = most[0];
  for (int i = 1; i < W; ++i) top = top > most[i] ? top : most[i];
  F s[4] = {};
#pragma clang loop unroll(disable)
  for (std::size_t i = 0; i < n; i += 4 * W)
    for (int u = 0; u < 4; ++u) {
      const F v = exponential(load(x + i + u * W) - top);
      store(e + i + u * W, v);
      s[u] += v;
    }
  const F sum = (s[0] + s[1]) + (s[2] + s[3]);
  float total = 0;
  for (int i = 0; i < W; ++i) total += sum[i];
  const float factor = 1.0f / total;
#pragma clang loop unroll(disable)
  for (std::size_t i = 0; i < n; i += 4 * W)
    for (int u = 0; u < 4; ++u) store(y + i + u * W, load(e + i + u * W) * factor);
}

// Computes the chain's 256 steps on several vectors; one iteration has eight steps. `ab` has a and b of each step. With -DRELAXED, it has a
// and b of each group of combined steps.
void chain_body(const float* x, const float* ab, float* y, std::size_t n) {
  constexpr int R = W == 16 ? 16 : 8;
  for (std::size_t i = 0; i < n; i += R * W) {
    F v[R];
    for (int u = 0; u < R; ++u) v[u] = load(x + i + u * W);
#pragma clang loop unroll(disable)
    for (int step = 0; step < 256; step += 8) {
#if defined(RELAXED)
      const F a = all(ab[step / 4]), b = all(ab[step / 4 + 1]);
      for (int u = 0; u < R; ++u) v[u] = abs(fma(v[u], a, b));
#else
#pragma clang loop unroll(full)
      for (int k = 0; k < 7; ++k) {
        const F a = all(ab[2 * (step + k)]), b = all(ab[2 * (step + k) + 1]);
        for (int u = 0; u < R; ++u) v[u] = v[u] * a + b;
      }
      for (int u = 0; u < R; ++u) v[u] = abs(v[u]) * 0.5f;
#endif
    }
    for (int u = 0; u < R; ++u) store(y + i + u * W, v[u]);
  }
}

}  // extern "C"
