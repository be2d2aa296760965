// Tests runtime/sort_network.h for every instruction set of the processor, against std::stable_sort.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "compiler/target.h"
#include "runtime/sort_network.h"

using namespace onepass;
using namespace onepass::runtime;

namespace {

struct Layout {
  std::vector<std::int64_t> rows;
  std::int64_t step, elements;
};
// Rows one after another, side by side, or apart from each other in reverse order.
Layout layout_of(std::int64_t count, std::int64_t length, int kind) {
  Layout out{.rows = {}, .step = kind == 0 ? 1 : kind == 1 ? count : 3, .elements = 0};
  for (std::int64_t r = 0; r < count; ++r)
    out.rows.push_back(kind == 0 ? r * length : kind == 1 ? r : (count - 1 - r) * (3 * length + 2) + 1);
  out.elements = kind == 2 ? count * (3 * length + 2) + 1 : count * length;
  return out;
}

template <class T> T value(std::uint64_t bits) {
  if constexpr (std::floating_point<T>) {
    constexpr T few[] = {T(0), -T(0), std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN(),
                         T(1), -T(1), std::numeric_limits<T>::infinity(),  -std::numeric_limits<T>::infinity()};
    if (bits % 3 == 0) return few[bits >> 32 & 7];
    return static_cast<T>(static_cast<double>(bits >> 32 & 0xffff) / 256 - 128);
  }
  return static_cast<T>(bits % 3 == 0 ? bits >> 32 & 7 : bits >> 16);
}

template <class T> bool is_before(T a, T b, bool backwards) {
  if (a != a || b != b) return backwards ? a != a && b == b : a == a && b != b;
  return backwards ? b < a : a < b;
}
template <class T> bool is_same(T a, T b) {
  if (b != b) {  // every NaN becomes the same one
    const T nan = std::numeric_limits<T>::quiet_NaN();
    return std::memcmp(&a, &nan, sizeof a) == 0;
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

struct alignas(64) Line {
  std::byte bytes[64];
};
constexpr std::int64_t kUntouched = 0x55;

// Sorts `count` rows with every network; returns the name of one with a wrong result.
template <class T> std::string wrong_network(DType type, bool places, std::int64_t length, std::int64_t results, std::int64_t count,
                                             bool backwards, int from_kind, int to_kind, std::mt19937_64& engine) {
  const Layout from = layout_of(count, length, from_kind), to = layout_of(count, results, to_kind);
  std::vector<T> x(static_cast<std::size_t>(from.elements));
  for (T& v : x) v = value<T>(engine());
  std::vector<std::vector<std::int64_t>> orders;
  for (const std::int64_t row : from.rows) {
    const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(row + i * from.step)]; };
    std::vector<std::int64_t>& order = orders.emplace_back(static_cast<std::size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return is_before(at(a), at(b), backwards); });
  }
  const auto is_right = [&](SortNetwork network) {
    std::vector<Line> memory(static_cast<std::size_t>(sort_network_bytes(type, places, length) / 64));
    std::vector<T> values(static_cast<std::size_t>(to.elements + 64), static_cast<T>(kUntouched));
    std::vector<std::int64_t> positions(static_cast<std::size_t>(to.elements + 64), kUntouched);
    network({.x = x.data(),
             .result = places ? static_cast<void*>(positions.data()) : values.data(),
             .from = from.rows.data(),
             .to = to.rows.data(),
             .count = count,
             .length = length,
             .results = results,
             .x_step = from.step,
             .result_step = to.step,
             .backwards = backwards,
             .memory = memory.data()});
    std::size_t written = 0;
    for (std::size_t r = 0; r < orders.size(); ++r)
      for (std::int64_t i = 0; i < results; ++i, ++written) {
        const std::int64_t place = orders[r][static_cast<std::size_t>(i)];
        const auto result = static_cast<std::size_t>(to.rows[r] + i * to.step);
        if (places ? positions[result] != place : !is_same(values[result], x[static_cast<std::size_t>(from.rows[r] + place * from.step)]))
          return false;
        values[result] = static_cast<T>(kUntouched), positions[result] = kUntouched;
      }
    return std::ranges::all_of(values, [](T v) { return v == static_cast<T>(kUntouched); }) &&
           std::ranges::all_of(positions, [](std::int64_t p) { return p == kUntouched; });
  };
  if (!is_right(sort_network_baseline(type, places))) return "baseline";
#ifdef __x86_64__
  if (compiler::Target::host().has_avx2() && !is_right(sort_network_avx2(type, places))) return "avx2";
  if (compiler::Target::host().has_avx512() && !is_right(sort_network_avx512(type, places))) return "avx512";
#endif
  return "";
}

template <class T> void check_lengths(DType type, std::int64_t last) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(type));
  for (const bool places : {false, true})
    for (std::int64_t length = 1; length <= last; ++length) {
      const std::int64_t most = sort_network_rows(type, places);
      if (places && sizeof(T) == 1 && length > 256) break;
      const auto random = [&](std::int64_t n) { return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n)); };
      const std::int64_t count = random(8) == 0 ? most : 1 + random(std::min<std::int64_t>(most, random(2) == 0 ? 4 : 20)),
                         results = random(2) == 0 ? length : 1 + random(length);
      const bool backwards = random(2) != 0;
      const int from = static_cast<int>(random(3)), to = static_cast<int>(random(3));
      INFO("type " << name_of(type) << ", places " << places << ", length " << length << ", results " << results << ", rows " << count
                   << ", backwards " << backwards << ", layouts " << from << " " << to);
      CHECK(wrong_network<T>(type, places, length, results, count, backwards, from, to, engine) == "");
    }
}

}  // namespace

TEST_CASE("sort network: rows of every length, type and layout are sorted", "[sort_network]") {
  check_lengths<float>(DType::F32, 300);
  check_lengths<double>(DType::F64, 300);
  check_lengths<std::int8_t>(DType::I8, 300);
  check_lengths<std::uint8_t>(DType::U8, 300);
  check_lengths<std::int16_t>(DType::I16, 300);
  check_lengths<std::uint16_t>(DType::U16, 300);
  check_lengths<std::int32_t>(DType::I32, 300);
  check_lengths<std::uint32_t>(DType::U32, 300);
  check_lengths<std::int64_t>(DType::I64, 300);
  check_lengths<std::uint64_t>(DType::U64, 300);
}

TEST_CASE("sort network: longer rows and bools are sorted", "[sort_network]") {
  std::mt19937_64 engine(1);
  for (const std::int64_t length : {512, 700, 1023, 1024})
    for (const std::int64_t count : {1, 5, 8})
      for (const bool places : {false, true}) {
        INFO("length " << length << ", rows " << count << ", places " << places);
        CHECK(wrong_network<float>(DType::F32, places, length, length, count, false, 0, 0, engine) == "");
        CHECK(wrong_network<double>(DType::F64, places, length, length / 3, count, true, 0, 1, engine) == "");
        CHECK(wrong_network<std::int16_t>(DType::I16, places, length, 5, count, true, 1, 0, engine) == "");
      }
  for (const std::int64_t length : {1, 7, 64, 200})
    for (const bool backwards : {false, true}) {
      const std::int64_t count = 9;
      std::vector<std::uint8_t> x(static_cast<std::size_t>(count * length)), y = x;
      for (std::uint8_t& v : x) v = engine() % 2 == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(engine() % 255 + 1);
      const Layout rows = layout_of(count, length, 0);
      std::vector<Line> memory(static_cast<std::size_t>(sort_network_bytes(DType::Bool, false, length) / 64));
      sort_network(DType::Bool, false, compiler::Target::host())({.x = x.data(),
                                                                  .result = y.data(),
                                                                  .from = rows.rows.data(),
                                                                  .to = rows.rows.data(),
                                                                  .count = count,
                                                                  .length = length,
                                                                  .results = length,
                                                                  .x_step = 1,
                                                                  .result_step = 1,
                                                                  .backwards = backwards,
                                                                  .memory = memory.data()});
      for (std::int64_t r = 0; r < count; ++r) {
        const auto row = x.begin() + r * length;
        std::vector<std::uint8_t> expected(row, row + length);
        for (std::uint8_t& v : expected) v = v != 0;
        std::ranges::sort(expected);
        if (backwards) std::ranges::reverse(expected);
        CHECK(std::equal(expected.begin(), expected.end(), y.begin() + r * length));
      }
    }
}

TEST_CASE("sort network: other methods sort long rows, and few results of few rows", "[sort_network]") {
  const compiler::Target& host = compiler::Target::host();
  CHECK(network_pays({DType::F32, false, 64, 64, 64}, host));
  CHECK(network_pays({DType::F32, false, 1, 256, 256}, host));
  CHECK_FALSE(network_pays({DType::F32, false, 64, 2000, 2000}, host));
  CHECK_FALSE(network_pays({DType::U8, true, 64, 257, 257}, host));  // a position has 8 bits
  CHECK_FALSE(network_pays({DType::F32, true, 1, 200, 5}, host));
}
