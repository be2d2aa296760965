// See device_text.h.
#include "compiler/cuda/device_text.h"

#include <fmt/format.h>

namespace onepass::compiler::cuda {
namespace {

constexpr std::string_view kPrelude = R"cuda(
typedef long long Index;  // kernels with small numbers define a narrower type
#ifndef ONEPASS_EMULATED
#define DEVICE __device__ __forceinline__
// Launch bounds of one block. Without them, the assembler spills registers to fit more blocks.
#define KERNEL(name, words, most) extern "C" __global__ void __launch_bounds__(most, 1) name(const __grid_constant__ Words<words> w)
#define KERNEL_FAR(name, words, most) extern "C" __global__ void __launch_bounds__(most, 1) name(const Words<words>* words_)
#define KEPT_MEMORY extern __shared__ __align__(16) char kept_memory[];
#define TOUCHED(pointer, bytes, written)
#endif
#define LANES _Pragma("unroll") for (int e = 0; e < W; ++e)

// The kernel parameters, with the pointers among them as a union. The compiler treats a kernel's own pointers as global memory. (Pointers
// made from numbers by __cvta_global_to_generic make the optimizer of NVRTC 13.0 hang at some branches in loops.)
template <int N> struct Words {
  union {
    Index at[N];
    char* memory[N];
  };
};

// ---- types
template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <bool C, class A, class B> struct Choice {
  typedef A type;
};
template <class A, class B> struct Choice<false, A, B> {
  typedef B type;
};
template <class S> struct UnsignedOf;
template <> struct UnsignedOf<signed char> { typedef unsigned char type; };
template <> struct UnsignedOf<short> { typedef unsigned short type; };
template <> struct UnsignedOf<int> { typedef unsigned type; };
template <> struct UnsignedOf<long long> { typedef unsigned long long type; };
template <> struct UnsignedOf<unsigned char> { typedef unsigned char type; };
template <> struct UnsignedOf<unsigned short> { typedef unsigned short type; };
template <> struct UnsignedOf<unsigned> { typedef unsigned type; };
template <> struct UnsignedOf<unsigned long long> { typedef unsigned long long type; };

// Integer with wrapping arithmetic.
template <class S> struct Integer {
  typedef S Value;
  typedef typename UnsignedOf<S>::type Unsigned;
  typedef typename Choice<(sizeof(S) < 4), unsigned, Unsigned>::type Wide;
  static constexpr int kWidth = 8 * sizeof(S);
  static constexpr bool kSigned = S(-1) < S(0);
  static constexpr S kLeast = kSigned ? S(Unsigned(1) << (kWidth - 1)) : S(0);
  static constexpr S kMost = kSigned ? S(Unsigned(kLeast) - Unsigned(1)) : S(-1);
  S value;
  Integer() = default;
  DEVICE constexpr explicit Integer(S v) : value(v) {}
  DEVICE constexpr Wide wide() const { return Wide(value); }
  DEVICE static constexpr Integer wrap(Wide v) { return Integer(S(Unsigned(v))); }
  DEVICE friend constexpr Integer operator+(Integer a, Integer b) { return wrap(a.wide() + b.wide()); }
  DEVICE friend constexpr Integer operator-(Integer a, Integer b) { return wrap(a.wide() - b.wide()); }
  DEVICE friend constexpr Integer operator*(Integer a, Integer b) { return wrap(a.wide() * b.wide()); }
  DEVICE friend constexpr Integer operator-(Integer a) { return wrap(Wide(0) - a.wide()); }
  DEVICE friend constexpr Integer operator&(Integer a, Integer b) { return wrap(a.wide() & b.wide()); }
  DEVICE friend constexpr Integer operator|(Integer a, Integer b) { return wrap(a.wide() | b.wide()); }
  DEVICE friend constexpr Integer operator^(Integer a, Integer b) { return wrap(a.wide() ^ b.wide()); }
  DEVICE friend constexpr bool operator==(Integer a, Integer b) { return a.value == b.value; }
  DEVICE friend constexpr bool operator!=(Integer a, Integer b) { return a.value != b.value; }
  DEVICE friend constexpr bool operator<(Integer a, Integer b) { return a.value < b.value; }
  DEVICE friend constexpr bool operator<=(Integer a, Integer b) { return a.value <= b.value; }
  DEVICE friend constexpr bool operator>(Integer a, Integer b) { return a.value > b.value; }
  DEVICE friend constexpr bool operator>=(Integer a, Integer b) { return a.value >= b.value; }
};
// Halves are computed in f32. Only conversions and memory accesses use these types.
struct Float16 {
  float value;
};
struct BFloat16 {
  float value;
};
template <class T> constexpr bool wrapping = false;
template <class S> constexpr bool wrapping<Integer<S>> = true;
template <class T> constexpr bool half = same<T, Float16> || same<T, BFloat16>;
template <class S> struct Computed { typedef Integer<S> type; };
template <> struct Computed<bool> { typedef bool type; };
template <> struct Computed<float> { typedef float type; };
template <> struct Computed<double> { typedef double type; };
template <> struct Computed<Float16> { typedef Float16 type; };
template <> struct Computed<BFloat16> { typedef BFloat16 type; };
DEVICE bool plain(bool a) { return a; }
DEVICE float plain(float a) { return a; }
DEVICE double plain(double a) { return a; }
DEVICE float plain(Float16 a) { return a.value; }
DEVICE float plain(BFloat16 a) { return a.value; }
template <class S> DEVICE S plain(Integer<S> a) { return a.value; }

// ---- bits
DEVICE unsigned bits_of(float a) { return __float_as_uint(a); }
DEVICE unsigned long long bits_of(double a) { return (unsigned long long)__double_as_longlong(a); }
DEVICE float of_bits(unsigned a) { return __uint_as_float(a); }
DEVICE double of_bits(unsigned long long a) { return __longlong_as_double((long long)a); }
template <class T> DEVICE T constant(unsigned long long bits) { return T(bits); }
template <> DEVICE float constant<float>(unsigned long long bits) { return of_bits(unsigned(bits)); }
template <> DEVICE double constant<double>(unsigned long long bits) { return of_bits(bits); }
template <> DEVICE bool constant<bool>(unsigned long long bits) { return (bits & 0xff) != 0; }
template <class T> DEVICE T infinity();
template <> DEVICE float infinity<float>() { return of_bits(0x7f800000u); }
template <> DEVICE double infinity<double>() { return of_bits(0x7ff0000000000000ull); }

// ---- halves in memory
DEVICE unsigned short bits_of_f16(float a) {
#ifndef ONEPASS_EMULATED
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a));
  return h;
#else
  const unsigned bits = bits_of(a), magnitude = bits & 0x7fffffffu;
  unsigned rounded;
  if (magnitude > 0x7f800000u) rounded = 0x7e00u;
  else if (magnitude >= 143u << 23) rounded = 0x7c00u;  // 2^16 and infinity
  else if (magnitude < 113u << 23) rounded = bits_of(of_bits(magnitude) + 0.5f) - 0x3f000000u;  // subnormal: the last digit of 0.5 is 2^-24
  else rounded = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  return (unsigned short)(rounded | (bits >> 16 & 0x8000u));
#endif
}
DEVICE float of_f16_bits(unsigned short h) {
#ifndef ONEPASS_EMULATED
  float a;
  asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(h));
  return a;
#else
  const unsigned magnitude = (h & 0x7fffu) << 13, sign = (h & 0x8000u) << 16;
  const unsigned scaled = bits_of(of_bits(magnitude) * 0x1p112f) | (magnitude >= 0x7c00u << 13 ? 0x7f800000u : 0u);
  return of_bits(scaled | sign);
#endif
}
DEVICE unsigned short bits_of_bf16(float a) {
  const unsigned bits = bits_of(a);
  return a != a ? (unsigned short)(0x7fc0u | (bits >> 16 & 0x8000u)) : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
DEVICE float of_bf16_bits(unsigned short h) { return of_bits(unsigned(h) << 16); }
// Returns the bits of the nearest value, half to even, of a format with these fields.
template <int kMantissa, int kExponent> DEVICE unsigned short bits_of_half(double value) {
  const unsigned long long bits = bits_of(value);
  const unsigned sign = unsigned(bits >> 63) << 15;
  constexpr long long top = ((1 << kExponent) - 1) << kMantissa;
  if (value != value) return (unsigned short)(sign | unsigned(top) | 1u << (kMantissa - 1));
  const int exponent = int(bits >> 52 & 0x7ff) - 1023 + (1 << (kExponent - 1)) - 1;
  const unsigned long long significand = (bits & ((1ull << 52) - 1)) | 1ull << 52;
  const int shift = 52 - kMantissa + (exponent <= 0 ? 1 - exponent : 0);
  if (shift > 60) return (unsigned short)sign;
  const unsigned long long middle = 1ull << (shift - 1), rest = significand & (2 * middle - 1);
  unsigned long long rounded = significand >> shift;
  if (rest > middle || (rest == middle && (rounded & 1))) ++rounded;
  const long long result = (exponent > 0 ? (long long)(exponent - 1) * (1ll << kMantissa) : 0) + (long long)rounded;
  return (unsigned short)(sign | unsigned(result < top ? result : top));
}

// ---- memory: `M` is the element type
template <class M> struct Memory {
  typedef M Raw;
  typedef M Value;
  DEVICE static Value get(Raw a) { return a; }
  DEVICE static Raw put(Value a) { return a; }
};
template <> struct Memory<bool> {
  typedef unsigned char Raw;
  typedef bool Value;
  DEVICE static Value get(Raw a) { return a != 0; }
  DEVICE static Raw put(Value a) { return a; }
};
template <> struct Memory<Float16> {
  typedef unsigned short Raw;
  typedef float Value;
  DEVICE static Value get(Raw a) { return of_f16_bits(a); }
  DEVICE static Raw put(Value a) { return bits_of_f16(a); }
};
template <> struct Memory<BFloat16> {
  typedef unsigned short Raw;
  typedef float Value;
  DEVICE static Value get(Raw a) { return of_bf16_bits(a); }
  DEVICE static Raw put(Value a) { return bits_of_bf16(a); }
};
template <class Raw, int W> struct alignas(sizeof(Raw) * W < 16 ? sizeof(Raw) * W : 16) Pack {
  Raw at[W];
};
template <class M> DEVICE typename Memory<M>::Value load(const char* address) {
  typedef typename Memory<M>::Raw Raw;
  TOUCHED(Index(address), sizeof(Raw), false);
  return Memory<M>::get(*reinterpret_cast<const Raw*>(address));
}
template <class M> DEVICE void store(char* address, typename Memory<M>::Value value) {
  typedef typename Memory<M>::Raw Raw;
  TOUCHED(Index(address), sizeof(Raw), true);
  *reinterpret_cast<Raw*>(address) = Memory<M>::put(value);
}
// Returns the index of the kernel parameter for a list member. The table starts at kernel parameter `table`; its size precedes it. Lanes
// past the end may pass any index; it is clamped.
template <class Given, class I> DEVICE Index place_of_member(const Given& w, Index table, I member) {
  const Index last = w.at[table - 1] - 1;
  return table + (member < 0 ? 0 : member > last ? last : Index(member));
}
// Loads W neighbors as one vector if n is W. Otherwise, loads the first n one by one and sets the rest to 0.
template <class M, int W> DEVICE void load_vector(const char* address, int n, typename Memory<M>::Value (&x)[W]) {
  typedef typename Memory<M>::Raw Raw;
  if (n == W) {
    TOUCHED(Index(address), W * sizeof(Raw), false);
    const Pack<Raw, W> pack = *reinterpret_cast<const Pack<Raw, W>*>(address);
    LANES x[e] = Memory<M>::get(pack.at[e]);
  } else {
    LANES x[e] = e < n ? load<M>(address + e * Index(sizeof(Raw))) : typename Memory<M>::Value(0);
  }
}
template <class M, int W> DEVICE void store_vector(char* address, int n, const typename Memory<M>::Value (&x)[W]) {
  typedef typename Memory<M>::Raw Raw;
  if (n == W) {
    TOUCHED(Index(address), W * sizeof(Raw), true);
    Pack<Raw, W> pack;
    LANES pack.at[e] = Memory<M>::put(x[e]);
    *reinterpret_cast<Pack<Raw, W>*>(address) = pack;
  } else {
    LANES if (e < n) store<M>(address + e * Index(sizeof(Raw)), x[e]);
  }
}

// Stores values in shared memory that only the same thread reads back.
template <class T, int W> DEVICE void keep(T* place, const T (&x)[W]) {
  Pack<T, W> pack;
  LANES pack.at[e] = x[e];
  *reinterpret_cast<Pack<T, W>*>(place) = pack;
}
template <class T, int W> DEVICE void kept_back(const T* place, T (&x)[W]) {
  const Pack<T, W> pack = *reinterpret_cast<const Pack<T, W>*>(place);
  LANES x[e] = pack.at[e];
}
// Elements of halves are kept as halves. Their values are exact, and a NaN keeps its sign.
DEVICE unsigned short kept_bits(BFloat16, float a) { return (unsigned short)(bits_of(a) >> 16); }
DEVICE unsigned short kept_bits(Float16, float a) {
  return a != a ? (unsigned short)(0x7e00u | (bits_of(a) >> 16 & 0x8000u)) : bits_of_f16(a);
}
template <class M, int W> DEVICE void keep(unsigned short* place, const float (&x)[W]) {
  unsigned short bits[W];
  LANES bits[e] = kept_bits(M(), x[e]);
  keep(place, bits);
}
template <class M, int W> DEVICE void kept_back(const unsigned short* place, float (&x)[W]) {
  unsigned short bits[W];
  kept_back(place, bits);
  LANES x[e] = Memory<M>::get(bits[e]);
}

// ---- indices
template <class I> DEVICE I floor_quotient(I a, I by) {
  const I q = a / by;
  return a - q * by < 0 ? q - 1 : q;
}
template <class I> DEVICE I floor_modulo(I a, I by) {
  const I r = a % by;
  return r < 0 ? r + by : r;
}
template <class I> DEVICE I pieces(I n, int of) { return (n + (of - 1)) / of; }
DEVICE bool inside(long long a, long long bound) { return (unsigned long long)a < (unsigned long long)bound; }
DEVICE bool inside(int a, int bound) { return (unsigned)a < (unsigned)bound; }
// Returns how many elements exist among the elements that a thread processes, from `at` on.
template <class I> DEVICE int lanes_left(I extent, I at, int most) { return extent - at >= most ? most : extent > at ? int(extent - at) : 0; }

// Writes a bad index into the report, which is in memory of the CPU (runtime/cuda/bad_index.h). The first thread that claims the report
// fills it; the second report of a call is not needed.
DEVICE void report_index(char* report, long long index, long long bound) {
  unsigned long long* const words = reinterpret_cast<unsigned long long*>(report);
  if (*(volatile unsigned long long*)words != 0 || atomicCAS(words, 0ull, 1ull) != 0) return;
  words[1] = (unsigned long long)index;
  words[2] = (unsigned long long)bound;
  __threadfence_system();
  *(volatile unsigned long long*)words = 2;  // complete
  __threadfence_system();
  *reinterpret_cast<volatile unsigned long long*>(words[3]) = 1;  // tells the CPU that some report is complete
}
// Returns the checked index, below `bound`. A negative index counts from the end. Reports a bad index if `counts` is true.
template <class S, class I> DEVICE I placed(S index, I bound, bool counts, char* report) {
  long long at = (long long)index;
  if (S(-1) < S(0) && at < 0) at += bound;
  if ((unsigned long long)at < (unsigned long long)bound) return I(at);
  if (counts) report_index(report, (long long)index, (long long)bound);
  return I(0);
}

// ---- meanings: see ir/meaning.h for the reasons
namespace meaning {
DEVICE float abs(float a) { return fabsf(a); }
DEVICE double abs(double a) { return fabs(a); }
DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }
DEVICE float sqrt(float a) { return sqrtf(a); }
DEVICE double sqrt(double a) { return ::sqrt(a); }
DEVICE float copysign(float a, float b) { return copysignf(a, b); }
DEVICE double copysign(double a, double b) { return ::copysign(a, b); }
DEVICE float floor(float a) { return floorf(a); }
DEVICE double floor(double a) { return ::floor(a); }
DEVICE float ceil(float a) { return ceilf(a); }
DEVICE double ceil(double a) { return ::ceil(a); }
DEVICE float trunc(float a) { return truncf(a); }
DEVICE double trunc(double a) { return ::trunc(a); }
DEVICE float round(float a) { return rintf(a); }
DEVICE double round(double a) { return ::rint(a); }
DEVICE float fmod(float a, float b) { return fmodf(a, b); }
DEVICE double fmod(double a, double b) { return ::fmod(a, b); }
DEVICE bool signbit(float a) { return bits_of(a) >> 31 != 0; }
DEVICE bool signbit(double a) { return bits_of(a) >> 63 != 0; }
template <class T> DEVICE bool isinf(T a) { return abs(a) == infinity<T>(); }
template <class T> DEVICE bool isfinite(T a) { return abs(a) < infinity<T>(); }
template <class T> DEVICE T sign(T a) { return a > 0 ? T(1) : a < 0 ? T(-1) : a; }
template <class T> DEVICE T maximum(T a, T b) {
  if (a != a) return a;
  if (a == b) return signbit(a) ? b : a;
  return a < b || b != b ? b : a;
}
template <class T> DEVICE T minimum(T a, T b) {
  if (a != a) return a;
  if (a == b) return signbit(a) ? a : b;
  return b < a || b != b ? b : a;
}
#ifndef ONEPASS_EMULATED
// maximum() and minimum() have no branches. The device's own maximum orders -0 below +0, but returns NaN only on some devices.
DEVICE float maximum(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return (a != a) | (b != b) ? a + b : fmaxf(a, b);
#endif
}
DEVICE float minimum(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return (a != a) | (b != b) ? a + b : fminf(a, b);
#endif
}
#endif
template <class T> DEVICE T share(T g, T a, T b) { return a >= b || a != a ? b >= a || b != b ? g * T(0.5) : g : T(0); }
// two_to() returns 2^n; ldexp() returns a * 2^b, in two exact factors.
DEVICE float two_to(int n, float) { return of_bits((unsigned)(n + 127) << 23); }
DEVICE double two_to(int n, double) { return of_bits((unsigned long long)(n + 1023) << 52); }
template <class T> DEVICE T ldexp(T a, T b) {
  if (!(abs(b) <= T(sizeof(T) == 4 ? 252 : 2044))) return infinity<T>() - infinity<T>();
  const int n = (int)b, half = n >> 1;
  return a * two_to(half, a) * two_to(n - half, a);
}
// For a = 2^k m with rounded bounds sqrt(1/2) <= m < sqrt(2): binary_exponent() returns k, binary_fraction() returns m.
DEVICE float binary_exponent(float a) {
  const bool denormal = a < of_bits(0x800000u);
  return (float)(int)((bits_of(denormal ? a * 16777216.0f : a) + (0x3f800000u - 0x3f3504f3u)) >> 23) - (denormal ? 151.0f : 127.0f);
}
DEVICE float binary_fraction(float a) {
  const float x = a < of_bits(0x800000u) ? a * 16777216.0f : a;
  return of_bits(((bits_of(x) + (0x3f800000u - 0x3f3504f3u)) & 0x7fffffu) + 0x3f3504f3u);
}
DEVICE double binary_exponent(double a) {
  const bool denormal = a < of_bits(0x10000000000000ull);
  const unsigned long long bits = bits_of(denormal ? a * 18014398509481984.0 : a) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  return (double)(int)(bits >> 52) - (denormal ? 1077.0 : 1023.0);
}
DEVICE double binary_fraction(double a) {
  const double x = a < of_bits(0x10000000000000ull) ? a * 18014398509481984.0 : a;
  return of_bits(((bits_of(x) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull)) & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
}
template <class T> DEVICE T log_domain(T a, T b) {
  if (a > 0) return a < infinity<T>() ? b : infinity<T>();
  return a == 0 ? -infinity<T>() : infinity<T>() - infinity<T>();
}
template <class T> DEVICE T floor_div(T a, T b) {
  const T q = a / b;
  const T f = floor(q);
  const auto bits = bits_of(f);
  const T below = of_bits(f > 0 ? bits - 1 : bits + 1);
  const T half_gap = (f - below) * T(0.5);
  const T h = half_gap > T(1) ? half_gap : T(1);
  const T r = fma(-f, b, a);
  const T s = fma(b, h - T(1), r);
  const bool above = b < 0 ? s > 0 : s < 0;
  return q == f && above ? f - h : f;
}
template <class T> DEVICE T remainder(T a, T b) {
  const T r = fmod(a, b);
  if (r == 0) return copysign(r, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
template <class S> DEVICE Integer<S> abs(Integer<S> a) { return a.value < 0 ? -a : a; }
template <class S> DEVICE Integer<S> sign(Integer<S> a) { return Integer<S>(S((a.value > 0) - (a.value < 0))); }
template <class S> DEVICE Integer<S> maximum(Integer<S> a, Integer<S> b) { return a.value < b.value ? b : a; }
template <class S> DEVICE Integer<S> minimum(Integer<S> a, Integer<S> b) { return b.value < a.value ? b : a; }
template <class S> DEVICE Integer<S> bitwise_not(Integer<S> a) { return Integer<S>::wrap(~a.wide()); }
template <class S> DEVICE bool minus_one(S a) { return Integer<S>::kSigned && a == S(-1); }
template <class S> DEVICE Integer<S> floor_div(Integer<S> a, Integer<S> b) {
  if (b.value == 0) return Integer<S>(S(0));
  if (minus_one(b.value)) return -a;
  const S q = S(a.value / b.value), r = S(a.value % b.value);
  return Integer<S>(r != 0 && (r < 0) != (b.value < 0) ? S(q - 1) : q);
}
template <class S> DEVICE Integer<S> remainder(Integer<S> a, Integer<S> b) {
  if (b.value == 0 || minus_one(b.value)) return Integer<S>(S(0));
  const S r = S(a.value % b.value);
  return Integer<S>(r != 0 && (r < 0) != (b.value < 0) ? S(r + b.value) : r);
}
template <class S> DEVICE Integer<S> fmod(Integer<S> a, Integer<S> b) {
  if (b.value == 0 || minus_one(b.value)) return Integer<S>(S(0));
  return Integer<S>(S(a.value % b.value));
}
template <class S> DEVICE Integer<S> integer_pow(Integer<S> a, Integer<S> b) {
  if (Integer<S>::kSigned && b.value < 0)
    return a.value == 1 || (minus_one(a.value) && (b.value & 1) == 0) ? Integer<S>(S(1)) : minus_one(a.value) ? a : Integer<S>(S(0));
  Integer<S> y(S(1));
  for (typename Integer<S>::Unsigned n = b.value; n != 0; n >>= 1) {
    if (n & 1) y = y * a;
    a = a * a;
  }
  return y;
}
template <class S> DEVICE Integer<S> shift_left(Integer<S> a, Integer<S> b) {
  const bool fits = b.value >= 0 && b.wide() < typename Integer<S>::Wide(Integer<S>::kWidth);
  return fits ? Integer<S>::wrap(a.wide() << b.value) : Integer<S>(S(0));
}
template <class S> DEVICE Integer<S> shift_right(Integer<S> a, Integer<S> b) {
  const bool fits = b.value >= 0 && b.wide() < typename Integer<S>::Wide(Integer<S>::kWidth);
  return Integer<S>(fits ? S(a.value >> b.value) : S(a.value < 0 ? -1 : 0));
}
template <class S> DEVICE Integer<S> popcount(Integer<S> a) { return Integer<S>(S(__popcll((unsigned long long)typename Integer<S>::Unsigned(a.value)))); }
DEVICE bool maximum(bool a, bool b) { return a || b; }
DEVICE bool minimum(bool a, bool b) { return a && b; }
DEVICE bool bitwise_not(bool a) { return !a; }

DEVICE float round_to(Float16, double x) { return of_f16_bits(bits_of_half<10, 5>(x)); }
DEVICE float round_to(BFloat16, double x) { return of_bf16_bits(bits_of_half<7, 8>(x)); }
DEVICE float round_to(Float16, float x) { return of_f16_bits(bits_of_f16(x)); }
DEVICE float round_to(BFloat16, float x) { return of_bf16_bits(bits_of_bf16(x)); }
template <class S> DEVICE double sticky_double(S a) {
  const bool negative = a < 0;
  unsigned long long m = negative ? 0ull - (unsigned long long)a : (unsigned long long)a;
  if (m >> 53) m = (m >> 11 | ((m & 0x7ff) != 0)) << 11;
  return negative ? -double(m) : double(m);
}
template <class S, class T> DEVICE S saturate(T a) {
  constexpr int digits = Integer<S>::kWidth - (Integer<S>::kSigned ? 1 : 0);
  const T above = T(1ull << (digits - 1)) * T(2);
  if (a != a) return S(0);
  if (a >= above) return Integer<S>::kMost;
  if (Integer<S>::kSigned ? a < -above : a <= T(-1)) return Integer<S>::kLeast;
  return S(a);
}
template <class R, class T> DEVICE R cast(T a) {
  if constexpr (half<T>) return cast<R>(round_to(T(), a.value));
  else if constexpr (same<T, bool>) return cast<R>(Integer<unsigned char>(a));
  else if constexpr (same<R, bool>) {
    if constexpr (wrapping<T>) return a.value != 0;
    else return a != T(0);
  } else if constexpr (wrapping<T>) {
    if constexpr (wrapping<R>) return R(typename R::Value(a.value));
    else if constexpr (half<R>) return R{round_to(R(), sticky_double(a.value))};
    else return R(a.value);
  } else {
    if constexpr (wrapping<R>) return R(saturate<typename R::Value>(a));
    else if constexpr (half<R>) return R{round_to(R(), a)};
    else return R(a);
  }
}
DEVICE unsigned bits_of_any(float a) { return bits_of(a); }
DEVICE unsigned long long bits_of_any(double a) { return bits_of(a); }
template <class R, class T> DEVICE R bitcast(T a) {
  if constexpr (same<T, Float16>) return bitcast<R>(Integer<unsigned short>(bits_of_f16(a.value)));
  else if constexpr (same<T, BFloat16>) return bitcast<R>(Integer<unsigned short>(bits_of_bf16(a.value)));
  else if constexpr (same<T, bool>) return bitcast<R>(Integer<unsigned char>(a));
  else if constexpr (same<R, bool>) return a.value != 0;
  else if constexpr (same<R, Float16>) return R{of_f16_bits((unsigned short)a.value)};
  else if constexpr (same<R, BFloat16>) return R{of_bf16_bits((unsigned short)a.value)};
  else if constexpr (wrapping<T> && wrapping<R>) return R(typename R::Value(a.value));
  else if constexpr (wrapping<T>) return of_bits(typename T::Unsigned(a.value));
  else if constexpr (wrapping<R>) return R(typename R::Value(bits_of(a)));
  else return a;
}
}  // namespace meaning

// ---- reductions in the order of docs/language.md
struct ReduceSum {
  template <class T> DEVICE static T identity() { return same<T, float> || same<T, double> ? T(-0.0) : T(0); }
  template <class T> DEVICE static T combine(T a, T b) {
    typedef typename Computed<T>::type C;
    return plain(C(C(a) + C(b)));
  }
};
struct ReduceProd {
  template <class T> DEVICE static T identity() { return T(1); }
  template <class T> DEVICE static T combine(T a, T b) {
    typedef typename Computed<T>::type C;
    return plain(C(C(a) * C(b)));
  }
};
template <class T> struct Limits {
  DEVICE static T least() { return Integer<T>::kLeast; }
  DEVICE static T most() { return Integer<T>::kMost; }
};
template <> struct Limits<bool> {
  DEVICE static bool least() { return false; }
  DEVICE static bool most() { return true; }
};
template <> struct Limits<float> {
  DEVICE static float least() { return -infinity<float>(); }
  DEVICE static float most() { return infinity<float>(); }
};
template <> struct Limits<double> {
  DEVICE static double least() { return -infinity<double>(); }
  DEVICE static double most() { return infinity<double>(); }
};
struct ReduceMax {
  template <class T> DEVICE static T identity() { return Limits<T>::least(); }
  template <class T> DEVICE static T combine(T a, T b) {
    typedef typename Computed<T>::type C;
    return plain(meaning::maximum(C(a), C(b)));
  }
};
struct ReduceMin {
  template <class T> DEVICE static T identity() { return Limits<T>::most(); }
  template <class T> DEVICE static T combine(T a, T b) {
    typedef typename Computed<T>::type C;
    return plain(meaning::minimum(C(a), C(b)));
  }
};
// Adds a product, for contractions.
DEVICE float fused(float a, float b, float sum) { return fmaf(a, b, sum); }
DEVICE double fused(double a, double b, double sum) { return fma(a, b, sum); }
template <class S> DEVICE S fused(S a, S b, S sum) { return plain(Integer<S>(a) * Integer<S>(b) + Integer<S>(sum)); }
// Pairwise trees of blocks of W neighbors, as one binary counter: level l holds the sums of 2^l blocks.
template <class F, class T, int W> struct Tree {
  T level[48][W];
  int count;
  DEVICE void clear() { count = 0; }
  DEVICE void push(const T (&sums)[W]) {
    T v[W];
    LANES v[e] = sums[e];
    int l = 0;
#pragma unroll 1
    for (int c = count; c & 1; c >>= 1, ++l) LANES v[e] = F::template combine<T>(level[l][e], v[e]);
    LANES level[l][e] = v[e];
    ++count;
  }
  DEVICE void top(T (&sums)[W]) const {
    bool first = true;
    LANES sums[e] = F::template identity<T>();
#pragma unroll 1
    for (int l = 0; l < 31; ++l)
      if (count >> l & 1) {
        LANES sums[e] = first ? level[l][e] : F::template combine<T>(level[l][e], sums[e]);
        first = false;
      }
  }
};
// A half-warp is 16 threads that hold the lanes of one block. Both half-warps of a warp run this code together, so that the mask is a
// constant. With another mask, the compiler cannot prove that it names the running threads.
constexpr unsigned kWarp = 0xffffffffu;
DEVICE float shuffled_down(float v, int by) { return __shfl_down_sync(kWarp, v, by, 16); }
DEVICE double shuffled_down(double v, int by) { return __shfl_down_sync(kWarp, v, by, 16); }
template <class T> DEVICE T shuffled_down(T v, int by) {
  if constexpr (sizeof(T) == 8) return T(__shfl_down_sync(kWarp, (long long)v, by, 16));
  else return T(__shfl_down_sync(kWarp, int(v), by, 16));
}
DEVICE float of_first(float v) { return __shfl_sync(kWarp, v, 0, 16); }
DEVICE double of_first(double v) { return __shfl_sync(kWarp, v, 0, 16); }
template <class T> DEVICE T of_first(T v) {
  if constexpr (sizeof(T) == 8) return T(__shfl_sync(kWarp, (long long)v, 0, 16));
  else return T(__shfl_sync(kWarp, int(v), 0, 16));
}
// Returns the mask of a half-warp's threads. Scans use it, because their half-warps may be at different points of the code.
DEVICE unsigned team_mask() { return 0xffffu << (threadIdx.x & 16); }
// Halves the 16*A lanes: adds lane i + half to lane i, until one lane is left, which all threads of the half-warp get. Lane 16*W*u + W*t +
// e is in a[u*W + e] of thread t.
template <class F, int W, class T, int A> DEVICE T halved(T (&a)[A]) {
  int distance = 8 * A;
#pragma unroll
  for (; distance >= 16 * W; distance /= 2)
#pragma unroll
    for (int i = 0; i < distance / 16; ++i) a[i] = F::template combine<T>(a[i], a[i + distance / 16]);
#pragma unroll
  for (; distance >= W; distance /= 2)
#pragma unroll
    for (int i = 0; i < W; ++i) a[i] = F::template combine<T>(a[i], shuffled_down(a[i], distance / W));
#pragma unroll
  for (; distance >= 1; distance /= 2)
#pragma unroll
    for (int i = 0; i < distance; ++i) a[i] = F::template combine<T>(a[i], a[i + distance]);
  return of_first(a[0]);
}
DEVICE float shuffled_up(float v, int by) { return __shfl_up_sync(team_mask(), v, by, 16); }
DEVICE double shuffled_up(double v, int by) { return __shfl_up_sync(team_mask(), v, by, 16); }
template <class T> DEVICE T shuffled_up(T v, int by) {
  if constexpr (sizeof(T) == 8) return T(__shfl_up_sync(team_mask(), (long long)v, by, 16));
  else return T(__shfl_up_sync(team_mask(), int(v), by, 16));
}
template <class T> DEVICE T of_last(T v) {
  if constexpr (same<T, float> || same<T, double>) return __shfl_sync(team_mask(), v, 15, 16);
  else if constexpr (sizeof(T) == 8) return T(__shfl_sync(team_mask(), (long long)v, 15, 16));
  else return T(__shfl_sync(team_mask(), int(v), 15, 16));
}
// Scans one group, with an element per thread of the half-warp, and adds its sum to the carry.
template <class F, class T> DEVICE T scanned(T v, T& carry, T base) {
#pragma unroll
  for (int d = 1; d < 16; d *= 2) {
    const T below = shuffled_up(v, d);
    v = F::template combine<T>(int(threadIdx.x % 16) >= d ? below : F::template identity<T>(), v);
  }
  const T out = F::template combine<T>(base, F::template combine<T>(carry, v));
  carry = F::template combine<T>(carry, of_last(v));
  return out;
}
// Stores partial results, 8 bytes each, for the next launches.
template <int N, class T> DEVICE void leave(char* at, const T (&sums)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) store<T>(at + 8 * e, sums[e]);
}
// Combines partial results in a tree. kTogether threads `mine` = 0, 1, … share the same `place` among kPlaces. Each thread combines a
// subtree; the subtrees are combined in `shared`, which has kTogether * kPlaces * N values. With more than one thread, all threads of the
// block must call this.
template <class F, int N, int kTogether, int kPlaces, class T>
DEVICE void joined(const char* first, int parts, long long step, int mine, int place, T (&sums)[N], void* shared) {
  int own = 1;  // partial results per thread, a power of two
  while (own * kTogether < parts) own *= 2;
  const int begin = mine * own, count = parts - begin < own ? parts - begin : own;
  if (count > 0 && own <= 8) {  // all loads in flight together
    T leaf[8][N];
#pragma unroll
    for (int p = 0; p < 8; ++p)
      if (p < count)
#pragma unroll
        for (int e = 0; e < N; ++e) leaf[p][e] = load<T>(first + (begin + p) * step + 8 * e);
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2)
#pragma unroll
      for (int p = 0; p + apart < 8; p += 2 * apart)
        if (p + apart < count)
#pragma unroll
          for (int e = 0; e < N; ++e) leaf[p][e] = F::template combine<T>(leaf[p][e], leaf[p + apart][e]);
#pragma unroll
    for (int e = 0; e < N; ++e) sums[e] = leaf[0][e];
  } else if (count > 0) {
    Tree<F, T, N> tree;
    tree.clear();
#pragma unroll 1
    for (int p = 0; p < count; ++p) {
      T leaf[N];
#pragma unroll
      for (int e = 0; e < N; ++e) leaf[e] = load<T>(first + (begin + p) * step + 8 * e);
      tree.push(leaf);
    }
    tree.top(sums);
  }
  if constexpr (kTogether > 1) {
    T* const trees = static_cast<T*>(shared) + place * N;
    constexpr int kPitch = kPlaces * N;
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (count > 0) trees[mine * kPitch + e] = sums[e];
    __syncthreads();
#pragma unroll 1
    for (int apart = 1; apart < kTogether && apart * own < parts; apart *= 2) {
      if (mine % (2 * apart) == 0 && begin + apart * own < parts)
#pragma unroll
        for (int e = 0; e < N; ++e)
          trees[mine * kPitch + e] = F::template combine<T>(trees[mine * kPitch + e], trees[(mine + apart) * kPitch + e]);
      __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < N; ++e) sums[e] = trees[e];
    __syncthreads();
  }
}
// Adds trees of eight rows in sequence, from the threads `mine` = 0 .. 31 with the same `place`. Thread 0 gets the sum of the summation
// block.
template <class F, int N, int kPlaces, class T> DEVICE void in_sequence(int mine, int place, T (&sums)[N], void* shared) {
  T* const eights = static_cast<T*>(shared) + place * N;
  constexpr int kPitch = kPlaces * N;
#pragma unroll
  for (int e = 0; e < N; ++e) eights[mine * kPitch + e] = sums[e];
  __syncthreads();
  if (mine == 0)
#pragma unroll 8
    for (int k = 1; k < 32; ++k)
#pragma unroll
      for (int e = 0; e < N; ++e) sums[e] = F::template combine<T>(sums[e], eights[k * kPitch + e]);
  __syncthreads();
}
// Replaces the sums of a scan's blocks, 8 bytes each, by the bases of the blocks: the sums before them, in sequence. One thread does it,
// with eight loads in flight.
template <class F, class T, class I> DEVICE void bases_by_thread(char* first, I count) {
  T base = F::template identity<T>();
#pragma unroll 1
  for (I at = 0; at < count; at += 8) {
    T sum[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = at + k < count ? load<T>(first + 8ll * (at + k)) : F::template identity<T>();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (at + k < count) store<T>(first + 8ll * (at + k), base);
      base = F::template combine<T>(base, sum[k]);
    }
  }
}
// Does the same by all threads of the block, which load and store kBasesEach sums each at a time in `shared`. One thread adds them.
constexpr int kBasesEach = 4;
template <class F, class T, class I> DEVICE void bases_by_block(char* first, I count, void* shared) {
  T* const sums = static_cast<T*>(shared);
  const int together = kBasesEach * int(blockDim.x);
  const auto sum_at = [&](I at) { return at < count ? load<T>(first + 8ll * at) : F::template identity<T>(); };
  T base = F::template identity<T>(), next[kBasesEach];
#pragma unroll
  for (int k = 0; k < kBasesEach; ++k) next[k] = sum_at(I(k * int(blockDim.x) + int(threadIdx.x)));
#pragma unroll 1
  for (I begin = 0; begin < count; begin += together) {
    const I mine = begin + I(threadIdx.x);
#pragma unroll
    for (int k = 0; k < kBasesEach; ++k) sums[k * int(blockDim.x) + int(threadIdx.x)] = next[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kBasesEach; ++k) next[k] = sum_at(mine + together + k * int(blockDim.x));  // in flight while the thread adds
    if (threadIdx.x == 0)
#pragma unroll 1
      for (int s = 0; s < together && begin + s < count; s += 8) {
        T eight[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) eight[k] = sums[s + k];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          sums[s + k] = base;
          base = F::template combine<T>(base, eight[k]);
        }
      }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kBasesEach; ++k)
      if (mine + k * int(blockDim.x) < count)
        store<T>(first + 8ll * (mine + k * int(blockDim.x)), sums[k * int(blockDim.x) + int(threadIdx.x)]);
  }
}
// Sorts updates by key, stably: four bits of the keys in three launches, by thread blocks of 256 threads. `memory` has two sets of keys and
// numbers, each of `updates`, which take turns, then the counts of each digit and tile. `counts` has 16 * 256 numbers, `sums` 256.
constexpr int kSortEach = 8, kSortTile = 256 * kSortEach;
template <class I> DEVICE void sums_before(I* numbers, I count, int* sums_) {  // by one thread block
  I* const sums = reinterpret_cast<I*>(sums_);
  const int t = int(threadIdx.x);
  I before = 0;
#pragma unroll 1
  for (I begin = 0; begin < count; begin += 256) {
    const I mine = begin + t < count ? numbers[begin + t] : I(0);
    sums[t] = mine;
    __syncthreads();
#pragma unroll 1
    for (int apart = 1; apart < 256; apart *= 2) {
      const I left = t >= apart ? sums[t - apart] : I(0);
      __syncthreads();
      sums[t] += left;
      __syncthreads();
    }
    if (begin + t < count) numbers[begin + t] = before + sums[t] - mine;
    before += sums[255];
    __syncthreads();
  }
}
template <class I> DEVICE void sort_updates(int phase, I* memory, I updates, int* counts, int* sums) {
  const int pass = (phase - 1) / 3, step = (phase - 1) % 3, shift = 4 * pass, t = int(threadIdx.x);
  const I tiles = pieces(updates, kSortTile);
  const I* const keys = memory + pass % 2 * 2 * updates;
  I* const sorted = memory + (1 - pass % 2) * 2 * updates;
  I* const starts = memory + 4 * updates;  // of a digit in a tile; first its number of updates
  if (step == 1) {
    if (blockIdx.x == 0) sums_before(starts, 16 * tiles, counts);
    return;
  }
#pragma unroll 1
  for (I tile = I(blockIdx.x); tile < tiles; tile += I(gridDim.x)) {
    const I begin = tile * kSortTile + t * kSortEach;
    I key[kSortEach];
#pragma unroll
    for (int digit = 0; digit < 16; ++digit) counts[digit * 256 + t] = 0;
#pragma unroll
    for (int k = 0; k < kSortEach; ++k) key[k] = begin + k < updates ? keys[begin + k] : I(0);
#pragma unroll
    for (int k = 0; k < kSortEach; ++k)
      if (begin + k < updates) ++counts[int(key[k] >> shift & 15) * 256 + t];
    __syncthreads();
    int* const mine = counts + 16 * t;  // the counts of digit t / 16 in 16 threads
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += mine[i];
    sums[t] = sum;
    __syncthreads();
    if (step == 0) {
      if (t < 16) {
        int all = 0;
#pragma unroll
        for (int i = 0; i < 16; ++i) all += sums[16 * t + i];
        starts[t * tiles + tile] = I(all);
      }
      continue;
    }
    int before = 0;  // updates with this digit in earlier threads
#pragma unroll 1
    for (int i = t / 16 * 16; i < t; ++i) before += sums[i];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int count = mine[i];
      mine[i] = before;
      before += count;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSortEach; ++k) {
      if (begin + k >= updates) continue;
      const int digit = int(key[k] >> shift & 15);
      const I to = starts[digit * tiles + tile] + I(counts[digit * 256 + t]++);
      sorted[to] = key[k];
      sorted[updates + to] = keys[updates + begin + k];
    }
  }
}
// Combines `count` partial results, `step` bytes apart, in a tree in memory: each round combines neighbors. It combines several pairs at a
// time, so that their loads are in flight together.
template <class F, class T, int W> DEVICE void tree_in_place(char* first, long long step, long long count, T (&sums)[W]) {
  constexpr int kTogether = 4;
#pragma unroll 1
  for (long long apart = 1; apart < count; apart *= 2)
#pragma unroll 1
    for (long long b = 0; b + apart < count; b += 2 * kTogether * apart) {
      T left[kTogether][W], right[kTogether][W];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const long long at = b + 2 * k * apart;
        if (at + apart >= count) continue;
        load_vector<T, W>(first + at * step, W, left[k]);
        load_vector<T, W>(first + (at + apart) * step, W, right[k]);
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const long long at = b + 2 * k * apart;
        if (at + apart >= count) continue;
        LANES left[k][e] = F::template combine<T>(left[k][e], right[k][e]);
        store_vector<T, W>(first + at * step, W, left[k]);
      }
    }
  load_vector<T, W>(first, W, sums);
}
// Adds row k of eight rows to their tree. After the last row, adds the tree to `sum`.
template <class F, class T> DEVICE void join_eight(int k, T v, T (&pending)[3], T& sum) {
  if (!(k & 1)) {
    pending[0] = v;
    return;
  }
  v = F::template combine<T>(pending[0], v);
  if (!(k & 2)) {
    pending[1] = v;
    return;
  }
  v = F::template combine<T>(pending[1], v);
  if (!(k & 4)) pending[2] = v;
  else sum = F::template combine<T>(sum, F::template combine<T>(pending[2], v));
}
)cuda";

struct Meaning {
  ir::Op op;
  int arity;
  ir::TypeRule types;
  const char* text;
};
using ir::TypeRule;
constexpr Meaning kMeanings[] = {
#define PRIMITIVE(id, arity, text, types, traits, meaning, ...) {ir::Op::id, arity, TypeRule::types, #meaning},
#include "ir/ops.def"
};

}  // namespace

std::string_view device_prelude() { return kPrelude; }

std::string device_function(ir::Op op) {
  for (const Meaning& m : kMeanings) {
    if (m.op != op) continue;
    const bool converts = m.types == TypeRule::Convert || m.types == TypeRule::Reinterpret;
    std::string parameters, operands;
    for (int i = 0; i < m.arity; ++i) {
      const char name = static_cast<char>('a' + i);
      const bool condition = m.types == TypeRule::Choose && i == 0;
      parameters += fmt::format("{}{} {}_", i ? ", " : "", condition ? "bool" : "S", name);
      operands += fmt::format("  const {0} {1} = {0}({1}_);\n", condition ? "bool" : "T", name);
    }
    return fmt::format(
        "template <{}class S> DEVICE auto op_{}({}) {{\n  typedef typename Computed<S>::type T;\n{}{}  return plain({});\n}}\n",
        converts ? "class To, " : "", ir::info(op).text, parameters, converts ? "  typedef typename Computed<To>::type R;\n" : "", operands,
        m.text);
  }
  return {};
}

std::string_view value_type(DType dtype) {
  constexpr std::string_view names[kDTypeCount] = {
      "bool",     "signed char",        "short", "int",   "long long", "unsigned char", "unsigned short",
      "unsigned", "unsigned long long", "float", "float", "float",     "double"};
  return names[static_cast<int>(dtype)];
}

std::string_view memory_type(DType dtype) {
  if (dtype == DType::F16) return "Float16";
  if (dtype == DType::BF16) return "BFloat16";
  return value_type(dtype);
}

}  // namespace onepass::compiler::cuda
