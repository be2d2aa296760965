// Quotients and remainders of integers, in every type and mode, beside arithmetic of 128 bits: all pairs of 8 bits; of the other types,
// edges and random values whose quotients are integers or nearly so. The divisor is an array, one element for all dividends, or a literal.
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <onepass/onepass.h>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array;

namespace {

__extension__ using Wide = __int128;

template <class T> struct Pairs {
  std::vector<T> dividends, divisors;
  void add(T a, T b) { dividends.push_back(a), divisors.push_back(b); }
};

template <class T> Pairs<T> all_pairs() {
  Pairs<T> p;
  constexpr int low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  for (int a = low; a <= high; ++a)
    for (int b = low; b <= high; ++b) p.add(static_cast<T>(a), static_cast<T>(b));
  return p;
}

template <class T> Pairs<T> chosen_pairs(std::mt19937_64& engine) {
  Pairs<T> p;
  constexpr unsigned bits = 8 * sizeof(T);
  using Bits = std::make_unsigned_t<T>;
  const auto any = [&] {  // of any number of bits, near a power of two or not
    const auto shift = static_cast<unsigned>(engine() % bits);
    const Bits value = engine() % 2 ? static_cast<Bits>(static_cast<Bits>(engine()) >> shift) : static_cast<Bits>(Bits{1} << shift);
    return static_cast<T>(static_cast<Bits>(value + static_cast<Bits>(engine() % 5 - 2)));
  };
  const T edges[] = {0, 1, 2, 3, static_cast<T>(-1), static_cast<T>(-2), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  for (const T a : edges)
    for (const T b : edges) p.add(a, b);
  for (int i = 0; i < (is_full_run() ? 400000 : 40000); ++i) {
    const T b = any(), a = any();
    p.add(a, b);
    const auto multiple =
        static_cast<Bits>(static_cast<std::uint64_t>(b) * static_cast<std::uint64_t>(any()));  // an integer as quotient, and its neighbors
    p.add(static_cast<T>(static_cast<Bits>(multiple + static_cast<Bits>(engine() % 3 - 1))), b);
  }
  return p;
}

template <class T> Wide quotient(T a, T b, bool down) {
  if (b == 0) return 0;
  const Wide q = Wide{a} / Wide{b};
  return down && q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
template <class T> T remainder(T a, T b, bool down) { return b == 0 ? T(0) : static_cast<T>(a - quotient(a, b, down) * b); }

struct Expected {
  std::vector<std::byte> floored, remainder, fmod;
};
template <class T> Expected expected(const Pairs<T>& p) {
  std::vector<T> q, r, f;
  for (std::size_t i = 0; i < p.dividends.size(); ++i) {
    q.push_back(static_cast<T>(quotient(p.dividends[i], p.divisors[i], true)));
    r.push_back(remainder(p.dividends[i], p.divisors[i], true));
    f.push_back(remainder(p.dividends[i], p.divisors[i], false));
  }
  return {bytes_of(Array::from(std::move(q))), bytes_of(Array::from(r)), bytes_of(Array::from(f))};
}

void check(const std::string& divisor, const NamedArrays& inputs, const Expected& e) {
  std::vector<op::Options> modes = modes_of_kernels();
  modes.push_back({.mode = op::Mode::reference});
  modes.push_back({});  // the tiled interpreter
  for (const op::Options& options : modes) {
    const std::string text = "q = floor_div(a, " + divisor + "); r = remainder(a, " + divisor + "); f = fmod(a, " + divisor + ")";
    INFO(text << ", " << name_of(inputs[0].second.dtype()) << ", mode " << static_cast<int>(options.mode) << ", bytes "
              << options.vector_bytes);
    const op::FormulaResults results = run_formula(op::formula(text, options), inputs);
    CHECK((bytes_of(results[0]) == e.floored));
    CHECK((bytes_of(results[1]) == e.remainder));
    CHECK((bytes_of(results[2]) == e.fmod));
  }
}

template <class T> void check_type(std::mt19937_64& engine) {
  Pairs<T> p;
  if constexpr (sizeof(T) == 1) p = all_pairs<T>();
  else p = chosen_pairs<T>(engine);
  check("b", {{"a", Array::from(p.dividends)}, {"b", Array::from(p.divisors)}}, expected(p));

  const std::vector<T> same = {
      0, 1, 2, 3, 7, 10, 100, std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), static_cast<T>(-1), static_cast<T>(-7)};
  for (const T by : same) {
    Pairs<T> q;
    for (std::size_t i = 0; i < p.dividends.size(); i += 97) q.add(p.dividends[i], by);
    const Expected e = expected(q);
    const Array a = Array::from(q.dividends);
    check("b", {{"a", a}, {"b", Array::from(std::vector<T>{by})}}, e);
    if (by > std::numeric_limits<T>::min()) check(std::to_string(by), {{"a", a}}, e);  // the parser negates a literal
  }
}

}  // namespace

TEST_CASE("division: quotients and remainders of integers", "[division]") {
  std::mt19937_64 engine(20261129);
  check_type<std::int8_t>(engine);
  check_type<std::uint8_t>(engine);
  check_type<std::int16_t>(engine);
  check_type<std::uint16_t>(engine);
  check_type<std::int32_t>(engine);
  check_type<std::uint32_t>(engine);
  check_type<std::int64_t>(engine);
  check_type<std::uint64_t>(engine);
}
