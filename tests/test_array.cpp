// Array: creation, wrapping, reading, views, copies, and every error message.
#include "onepass/array.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/error.h"
#include "runtime/memory.h"

using namespace onepass;
using Catch::Matchers::Contains;

namespace {

std::vector<std::int64_t> list(std::span<const std::int64_t> span) { return {span.begin(), span.end()}; }
using List = std::vector<std::int64_t>;

/// Returns 0, 1, 2, … in row-major order.
Array counting(Extents shape) {
  Array result = Array::empty(shape, f32);
  float next = 0;
  for (float& value : result.span<float>()) value = next++;
  return result;
}

template <class T>
concept Wrappable = requires(T&& value) { Array::wrap(std::forward<T>(value), {2}); };

}  // namespace

// Wrapping a temporary would leave the Array with dangling memory.
static_assert(Wrappable<std::vector<float>&> && Wrappable<const std::vector<float>&> && Wrappable<std::span<const float>>);
static_assert(!Wrappable<std::vector<float>> && !Wrappable<const std::vector<float>> && !Wrappable<std::array<float, 2>>);
static_assert(sizeof(Array) <= 128);

TEST_CASE("array: shapes take any integers", "[array]") {
  const std::vector<float> values(6);
  const int n = 2;
  const std::size_t m = values.size() / 2;
  const Array array = Array::zeros({n, m}, f32);
  CHECK(array.rank() == 2);
  CHECK(list(array.shape()) == List{2, 3});
  CHECK(list(array.strides()) == List{3, 1});
  CHECK(array.size() == 6);
  CHECK(array.bytes() == 24);
  CHECK(array.is_contiguous());
  CHECK(array.dim(-1) == 3);
  CHECK(array.to_vector<float>() == std::vector<float>(6, 0.0f));
  CHECK(list(Array::zeros(List{4, 5}, u8).shape()) == List{4, 5});
  CHECK(list(Array::zeros(array.shape(), i64).shape()) == List{2, 3});
  CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
}

TEST_CASE("array: rank 0, zero sizes, rank 32", "[array]") {
  CHECK(Array::scalar(2.5).item<double>() == 2.5);
  CHECK(Array::scalar(2.5).dtype() == f64);
  CHECK(Array::scalar(true).item<bool>());
  CHECK(Array::scalar(std::uint64_t{1} << 63).item<std::uint64_t>() == std::uint64_t{1} << 63);
  CHECK(Array::zeros({}, i32).rank() == 0);
  CHECK(Array::zeros({}, i32).at<std::int32_t>({}) == 0);

  const Array nothing = Array::zeros({3, 0, 2}, f32);
  CHECK(nothing.size() == 0);
  CHECK(nothing.is_contiguous());
  CHECK(nothing.to_vector<float>().empty());
  CHECK(nothing.transpose().copy().size() == 0);
  CHECK(list(nothing.reshape({0, 7}).shape()) == List{0, 7});
  CHECK(nothing.byte_range().first == nothing.byte_range().second);

  List ones(32, 1);
  ones[5] = 3;
  const Array deep = counting(ones);
  Array copy = deep;
  copy = copy.transpose();
  CHECK(copy.dim(26) == 3);
  const Array moved = std::move(copy);
  CHECK(moved.to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(list(deep.reshape({3}).shape()) == List{3});
  ones.push_back(1);
  CHECK_THROWS_AS(Array::zeros(ones, f32), ShapeError);
}

TEST_CASE("array: a default-constructed array has no data", "[array]") {
  const Array none;
  CHECK_FALSE(none.has_memory());
  CHECK(none.data() == nullptr);
  CHECK_THROWS_AS(none.item<float>(), ValueError);
  CHECK_THROWS_AS(none.copy(), ValueError);
  CHECK_THROWS_AS(none.span<const float>(), ValueError);
  CHECK_THROWS_AS(none.transpose().to_vector<float>(), ValueError);
  CHECK_THROWS_AS(none.broadcast_to({2}).to_vector<float>(), ValueError);
  CHECK_THROWS_AS(none.reshape({1}), ValueError);
}

TEST_CASE("array: copies share memory, and the last one frees it", "[array]") {
  const std::int64_t before = memory::statistics().in_use;
  {
    Array a = Array::full({1000, 100}, 1.5, f32);  // header and elements are allocated separately
    CHECK(memory::statistics().in_use >= before + 400'000);
    Array b = a, c;
    c = b;
    b.span<float>()[0] = 7;
    CHECK(c.at<float>({0, 0}) == 7);
    a = Array();
    b = std::move(c);
    CHECK(b.at<float>({999, 99}) == 1.5f);
    Array& same = b;
    b = same;
    b = std::move(same);
    CHECK(b.at<float>({0, 0}) == 7);
    const Array small = Array::zeros({3}, f32).slice(0, 1);  // the view keeps the memory alive
    CHECK(small.to_vector<float>() == std::vector<float>{0, 0});
  }
  CHECK(memory::statistics().in_use == before);
}

TEST_CASE("array: full rounds once and rejects values that do not fit", "[array]") {
  CHECK(Array::full({2}, 0.1, f32).to_vector<float>() == std::vector<float>{0.1f, 0.1f});
  CHECK(Array::full({2}, 3, u8).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{3, 3});
  CHECK(Array::full({1}, -128, i8).item<std::int8_t>() == -128);
  CHECK(Array::full({1}, 2.0, i64).item<std::int64_t>() == 2);
  CHECK(Array::full({1}, INT64_MIN, i64).item<std::int64_t>() == INT64_MIN);
  CHECK(Array::full({1}, UINT64_MAX, u64).item<std::uint64_t>() == UINT64_MAX);
  CHECK(Array::full({1}, true, boolean).item<bool>());
  CHECK(Array::full({1}, 16777217, f32).item<float>() == 16777216.0f);
  CHECK(Array::ones({2}, f64).to_vector<double>() == std::vector<double>{1, 1});
  CHECK_THROWS_WITH(Array::full({1}, 256, u8), Contains("256 is not a value of type u8"));
  CHECK_THROWS_AS(Array::full({1}, -129, i8), ValueError);
  CHECK_THROWS_AS(Array::full({1}, -1, u64), ValueError);
  CHECK_THROWS_AS(Array::full({1}, 1.5, i32), ValueError);
  CHECK_THROWS_AS(Array::full({1}, std::nan(""), i32), ValueError);
  CHECK_THROWS_AS(Array::full({1}, 0x1p64, u64), ValueError);
  CHECK_THROWS_AS(Array::full({1}, 0x1p63, i64), ValueError);
  CHECK_THROWS_AS(Array::full({1}, -INFINITY, i64), ValueError);
  CHECK_THROWS_WITH(Array::full({1}, 2, boolean), Contains("which has only the values 0 and 1"));

  const auto half = [](auto value, DType dtype) { return Array::full({1}, value, dtype).bitcast(u16).template item<std::uint16_t>(); };
  CHECK(half(1.0, f16) == 0x3c00);
  CHECK(half(-2.0, bf16) == 0xc000);
  CHECK(half(65504.0, f16) == 0x7bff);
  CHECK(half(65519.99, f16) == 0x7bff);
  CHECK(half(65520.0, f16) == 0x7c00);
  CHECK(half(0x1p-24, f16) == 1);
  CHECK(half(0x1p-25, f16) == 0);    // a tie, to even
  CHECK(half(0x1.8p-24, f16) == 2);  // a tie, to even
  CHECK(half(0x1.000001p-25, f16) == 1);
  CHECK(half(0x1.ffbp-15, f16) == 0x03ff);  // the largest subnormal
  CHECK(half(0x1.ffcp-15, f16) == 0x0400);  // rounds up to the smallest normal number
  CHECK(half(-0.0, f16) == 0x8000);
  CHECK(half(INFINITY, bf16) == 0x7f80);
  CHECK((half(std::nan(""), bf16) & 0x7fff) > 0x7f80);
  CHECK(half(1.0 + 0x1p-8, bf16) == 0x3f80);
  CHECK(half(1.0 + 0x1p-8 + 0x1p-40, bf16) == 0x3f81);                                 // rounding via f32 first would make a tie
  CHECK(half((std::int64_t{1} << 60) + (std::int64_t{1} << 52) + 1, bf16) == 0x5d81);  // rounding via f64 first would make a tie
  CHECK(half(-(std::int64_t{1} << 60) - (std::int64_t{1} << 52), bf16) == 0xdd80);
}

TEST_CASE("array: f16 rounding agrees with a search for the nearest value", "[array]") {
  const auto value_of = [](int bits) {
    const int exponent = bits >> 10, fraction = bits & 1023;
    return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  };
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const int low = static_cast<int>(random() % 0x7bff);
    const double a = value_of(low), b = value_of(low + 1);
    const double value = a + (b - a) * (static_cast<double>(random() >> 11) * 0x1p-53);
    const int expected = value - a < b - value || (value - a == b - value && low % 2 == 0) ? low : low + 1;
    CHECK(Array::full({1}, value, f16).bitcast(u16).item<std::uint16_t>() == expected);
    CHECK(Array::full({1}, -(a + b) / 2, f16).bitcast(u16).item<std::uint16_t>() == (0x8000 | (low % 2 ? low + 1 : low)));
  }
}

TEST_CASE("array: from takes over a vector or copies it", "[array]") {
  std::vector<double> values{1, 2, 3, 4, 5, 6};
  const double* const address = values.data();
  const Array copied = Array::from(values, {3, 2});
  CHECK(copied.data() != address);
  CHECK(values.size() == 6);
  const Array taken = Array::from(std::move(values), {2, 3});
  CHECK(taken.data() == address);
  CHECK(taken.at<double>({1, 0}) == 4);
  CHECK(Array::from({1.0f, 2.0f}).to_vector<float>() == std::vector<float>{1, 2});
  CHECK(Array::from({1, 2, 3, 4}, {2, 2}).at<std::int32_t>({1, 1}) == 4);
  CHECK(list(Array::from(std::vector<float>(5)).shape()) == List{5});
  const Array bits = Array::from(std::vector<bool>{true, false, true});
  CHECK(bits.dtype() == boolean);
  CHECK(bits.bytes() == 3);
  CHECK(bits.to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(bits.flip(0).slice(0, 0, 2).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK_THROWS_WITH(Array::from(std::vector<float>(5), {2, 3}), Contains("[2, 3]") && Contains("6 elements") && Contains("5"));
  CHECK_THROWS_AS(Array::from({1.0f}, {2}), ShapeError);
}

TEST_CASE("array: wrap reads and writes the caller's memory", "[array]") {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  const Array array = Array::wrap(std::span<float>(values), {2, 3});
  array.span<float>()[4] = 40;
  CHECK(values[4] == 40);
  CHECK(Array::wrap(values).rank() == 1);
  CHECK(Array::wrap(values, {3, values.size() / 3}).dim(1) == 2);
  const std::vector<float>& constant = values;
  const Array read_only = Array::wrap(constant, {6});
  CHECK(read_only.is_read_only());
  CHECK(read_only.slice(0, 1).is_read_only());
  CHECK_FALSE(read_only.copy().is_read_only());
  CHECK(read_only.span<const float>()[4] == 40);
  CHECK_THROWS_WITH(read_only.span<float>(), Contains("read-only") && Contains("copy()"));
  CHECK_THROWS_AS(read_only.mutable_data(), ValueError);
  CHECK_THROWS_WITH(Array::wrap(values, {7}), Contains("[7]") && Contains("6"));

  auto owner = std::make_shared<std::vector<float>>(4, 2.0f);
  std::weak_ptr<std::vector<float>> alive = owner;
  {
    const Array owned = Array::wrap(std::span<float>(*owner), {2, 2}, owner);
    owner.reset();
    const Array view = owned.transpose();
    CHECK(view.at<float>({1, 1}) == 2);
    CHECK_FALSE(alive.expired());
  }
  CHECK(alive.expired());

  // any object can keep memory alive, even a move-only object; it is destroyed once, with the last view
  struct Lease {
    std::unique_ptr<float[]> memory;
    int* ended;
    Lease(std::size_t n, int* counter) : memory(new float[n]{}), ended(counter) {}
    Lease(Lease&& other) noexcept : memory(std::move(other.memory)), ended(std::exchange(other.ended, nullptr)) {}
    ~Lease() {
      if (ended) ++*ended;
    }
  };
  int ended = 0;
  {
    Array view;
    {
      Lease lease(6, &ended);
      const std::span<float> memory(lease.memory.get(), 6);
      memory[2] = 7;
      view = Array::wrap(memory, {3}, {-2}, 4, std::move(lease)).slice(0, 1);
    }
    CHECK(ended == 0);
    CHECK(view.at<float>({0}) == 7);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([view] {
        for (int k = 0; k < 1000; ++k) Array copy = view;
      });
    for (std::thread& t : threads) t.join();
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
}

TEST_CASE("array: wrap with strides stays inside the memory", "[array]") {
  std::vector<int> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Array column = Array::wrap(values, {3}, {4}, 1);
  CHECK(column.to_vector<int>() == std::vector<int>{1, 5, 9});
  CHECK_FALSE(column.is_contiguous());
  CHECK(Array::wrap(values, {3}, {-4}, 11).to_vector<int>() == std::vector<int>{11, 7, 3});
  CHECK(Array::wrap(values, {2, 3}, {1, 4}).to_vector<int>() == std::vector<int>{0, 4, 8, 1, 5, 9});
  CHECK(Array::wrap(values, {0}, {INT64_MAX}).size() == 0);
  CHECK_FALSE(Array::wrap(values, {2, 3}, {1, 4}).is_read_only());
  CHECK(Array::wrap(values, {2, 3}, {0, 4}).is_read_only());  // elements share memory
  CHECK(Array::wrap(values, {3, 3}, {1, 1}).is_read_only());
  CHECK_THROWS_WITH(Array::wrap(values, {3}, {4}, 4), Contains("outside the memory, which has 12"));
  CHECK_THROWS_AS(Array::wrap(values, {3}, {-4}, 7), ShapeError);
  CHECK_THROWS_AS(Array::wrap(values, {3}, {INT64_MAX}), ShapeError);
  CHECK_THROWS_AS(Array::wrap(values, {3, 3}, {INT64_MIN, 1}), ShapeError);
  CHECK_THROWS_AS(Array::wrap(values, {3}, {1, 1}), ShapeError);
  CHECK_THROWS_AS(Array::wrap_pointer(nullptr, f32, {2}, {1}, false), ValueError);
  CHECK_THROWS_AS(Array::wrap_pointer(values.data(), f32, {3, 3}, {INT64_MAX / 4, INT64_MAX / 4}, false), ShapeError);
  CHECK_THROWS_WITH(Array::wrap_pointer(reinterpret_cast<std::byte*>(values.data()) + 2, f32, {2}, {1}, false),
                    Contains("is not 4-byte aligned, as f32 requires"));
  CHECK_THROWS_WITH(Array::wrap(std::span<float>(static_cast<float*>(nullptr), 5)),
                    Contains("the pointer is null, but shape [5] needs memory"));
  CHECK(Array::wrap(std::span<float>(static_cast<float*>(nullptr), 0)).size() == 0);
  CHECK_THROWS_WITH(Array::zeros({4}, f32).reshape({-1, -1}), Contains("only one may be left out"));
  CHECK_NOTHROW(Array::wrap_pointer(reinterpret_cast<std::byte*>(values.data()) + 2, u16, {2}, {1}, false));
  const auto [first, last] = Array::wrap(values, {3}, {-4}, 11).byte_range();
  CHECK(first == reinterpret_cast<const std::byte*>(values.data() + 3));
  CHECK(last == reinterpret_cast<const std::byte*>(values.data() + 12));
}

TEST_CASE("array: elements are read with their own type", "[array]") {
  const Array array = counting({2, 3});
  CHECK(array.at<float>({1, 2}) == 5);
  CHECK(array.at<float>({-1, -3}) == 3);
  CHECK_THROWS_WITH(array.at<float>({2, 0}), Contains("[2, 0]") && Contains("[2, 3]"));
  CHECK_THROWS_AS(array.at<float>({0, -4}), IndexError);
  CHECK_THROWS_AS(array.at<float>({1}), IndexError);
  CHECK_THROWS_WITH(array.to_vector<double>(), Contains("f32, not f64"));
  CHECK_THROWS_AS(array.at<int>({0, 0}), DTypeError);
  CHECK_THROWS_AS(array.span<double>(), DTypeError);
  CHECK_THROWS_WITH(array.item<float>(), Contains("[2, 3] has 6 elements"));
  CHECK_THROWS_WITH(array.transpose().span<float>(), Contains("contiguous()"));
  CHECK_THROWS_AS(array.dim(2), IndexError);
  CHECK(array.slice(0, 1, 2).slice(1, 0, 1).item<float>() == 3);
  CHECK(array.bitcast(u32).at<std::uint32_t>({0, 1}) == 0x3f800000);
  CHECK_THROWS_AS(array.bitcast(f64), DTypeError);
}

TEST_CASE("array: transpose, flip, slice, broadcast are views", "[array]") {
  const Array array = counting({2, 3, 4});
  const Array turned = array.transpose({2, 0, -2});
  CHECK(list(turned.shape()) == List{4, 2, 3});
  CHECK(list(turned.strides()) == List{1, 12, 4});
  CHECK(turned.data() == array.data());
  CHECK(turned.at<float>({3, 1, 2}) == array.at<float>({1, 2, 3}));
  CHECK(list(array.transpose().shape()) == List{4, 3, 2});
  CHECK_THROWS_WITH(array.transpose({0, 1, 1}), Contains("axis 1 twice"));
  CHECK_THROWS_AS(array.transpose({0, 1}), ShapeError);
  CHECK_THROWS_AS(array.transpose({0, 1, 3}), IndexError);

  CHECK(counting({3}).flip(0).to_vector<float>() == std::vector<float>{2, 1, 0});
  CHECK(counting({0}).flip(-1).size() == 0);
  CHECK_THROWS_AS(counting({3}).flip(1), IndexError);

  const Array wide = counting({3}).broadcast_to({2, 3});
  CHECK(wide.to_vector<float>() == std::vector<float>{0, 1, 2, 0, 1, 2});
  CHECK(wide.is_read_only());
  CHECK(list(wide.strides()) == List{0, 1});
  CHECK(counting({2, 1}).broadcast_to({2, 3}).to_vector<float>() == std::vector<float>{0, 0, 0, 1, 1, 1});
  CHECK(Array::scalar(3.0f).broadcast_to({0, 2}).size() == 0);
  CHECK_FALSE(counting({2}).broadcast_to({1, 2}).is_read_only());
  CHECK_THROWS_WITH(counting({3}).broadcast_to({3, 2}), Contains("[3] does not broadcast to [3, 2]"));
  CHECK_THROWS_AS(counting({1, 3}).broadcast_to({3}), ShapeError);
}

TEST_CASE("array: slices clamp as in Python", "[array]") {
  const Array array = counting({7});
  for (std::int64_t start = -9; start <= 9; ++start)
    for (std::int64_t stop = -9; stop <= 9; ++stop)
      for (const std::int64_t step : {-8, -3, -2, -1, 1, 2, 3, 8}) {
        // Python's rule, from the documentation of slice.indices.
        const auto clamp = [&](std::int64_t i) {
          if (i < 0) i += 7;
          return step > 0 ? std::min<std::int64_t>(std::max<std::int64_t>(i, 0), 7)
                          : std::min<std::int64_t>(std::max<std::int64_t>(i, -1), 6);
        };
        std::vector<float> expected;
        for (std::int64_t i = clamp(start); step > 0 ? i < clamp(stop) : i > clamp(stop); i += step)
          expected.push_back(static_cast<float>(i));
        CHECK(array.slice(0, start, stop, step).to_vector<float>() == expected);
      }
  CHECK(array.slice(0, 5).to_vector<float>() == std::vector<float>{5, 6});
  CHECK(array.slice(0, 2, Array::kToEnd, -1).to_vector<float>() == std::vector<float>{2, 1, 0});
  CHECK(array.slice(0, 1, INT64_MAX, INT64_MAX).to_vector<float>() == std::vector<float>{1});
  CHECK(array.slice(0, 5, INT64_MIN, INT64_MIN).to_vector<float>() == std::vector<float>{5});
  CHECK(array.slice(0, INT64_MIN, INT64_MAX - 1).size() == 7);
  CHECK_THROWS_WITH(array.slice(0, 0, 1, 0), Contains("the step is 0"));
  CHECK_THROWS_AS(array.slice(1, 0), IndexError);
}

TEST_CASE("array: reshape is a view if the strides allow it", "[array]") {
  const Array array = counting({4, 6});
  const Array cut = array.reshape({2, 2, -1});
  CHECK(cut.data() == array.data());
  CHECK(list(cut.shape()) == List{2, 2, 6});
  CHECK(list(cut.strides()) == List{12, 6, 1});
  // Columns 1 to 3: rows can be split, but not joined with columns.
  const Array part = array.slice(1, 1, 4);
  CHECK(part.reshape({2, 2, 3}).data() == part.data());
  CHECK(list(part.reshape({2, 2, 1, 3}).strides()) == List{12, 6, 3, 1});
  const Array joined = part.reshape({12});
  CHECK(joined.data() != part.data());
  CHECK(joined.to_vector<float>() == part.to_vector<float>());
  CHECK(array.transpose().reshape({6, 2, 2}).data() == array.data());
  CHECK(array.transpose().reshape({24}).to_vector<float>() == array.transpose().to_vector<float>());
  CHECK(array.flip(0).flip(1).reshape({24}).data() == array.flip(0).flip(1).data());  // one run, backwards
  CHECK(Array::scalar(1.0f).reshape({1, 1}).rank() == 2);
  CHECK(counting({1, 1}).reshape({}).rank() == 0);
  CHECK_FALSE(counting({3}).broadcast_to({2, 3}).reshape({6}).is_read_only());  // the reshape made a copy
  CHECK_THROWS_WITH(array.reshape({5, 5}), Contains("[5, 5] has 25 elements") && Contains("[4, 6] has 24"));
  CHECK_THROWS_WITH(array.reshape({5, -1}), Contains("-1 has no solution"));
  CHECK_THROWS_AS(array.reshape({-1, -1}), ShapeError);
  CHECK_THROWS_AS(array.reshape({-2, -12}), ShapeError);
  CHECK_THROWS_AS(counting({0}).reshape({0, -1}), ShapeError);
}

TEST_CASE("array: random chains of views read the right elements", "[array]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Array array = counting({2 + pick(4), 1 + pick(40), 2 + pick(3), 1 + pick(40)});
    // The model: a shape and the element numbers in row-major order.
    List shape = list(array.shape());
    std::vector<float> model = array.to_vector<float>();
    for (int step = 0; step < 5; ++step) {
      const int rank = static_cast<int>(shape.size());
      std::vector<std::size_t> strides(shape.size() + 1, 1);
      for (std::size_t i = shape.size(); i-- > 0;) strides[i] = strides[i + 1] * static_cast<std::size_t>(shape[i]);
      const auto element = [&](const List& index) {
        std::size_t at = 0;
        for (std::size_t i = 0; i < index.size(); ++i) at += static_cast<std::size_t>(index[i]) * strides[i + 1];
        return model[at];
      };
      List new_shape = shape;
      std::function<List(const List&)> source = [](const List& index) { return index; };
      const int axis = pick(rank);
      const auto a = static_cast<std::size_t>(axis);
      switch (pick(4)) {
        case 0: {
          const int other = pick(rank);
          List axes(shape.size());
          for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
          std::swap(axes[a], axes[static_cast<std::size_t>(other)]);
          array = array.transpose(axes);
          std::swap(new_shape[a], new_shape[static_cast<std::size_t>(other)]);
          source = [a, other](List index) {
            std::swap(index[a], index[static_cast<std::size_t>(other)]);
            return index;
          };
          break;
        }
        case 1: {
          const std::int64_t start = pick(static_cast<int>(shape[a])), by = 1 + pick(2);
          array = array.slice(axis, start, Array::kToEnd, by);
          new_shape[a] = (shape[a] - start + by - 1) / by;
          source = [a, start, by](List index) {
            index[a] = start + index[a] * by;
            return index;
          };
          break;
        }
        case 2:
          array = array.flip(axis);
          source = [a, n = shape[a]](List index) {
            index[a] = n - 1 - index[a];
            return index;
          };
          break;
        default:
          array = array.reshape({array.dim(0), -1});
          new_shape = list(array.shape());
          shape = new_shape;
          continue;
      }
      std::vector<float> next;
      List index(new_shape.size(), 0);
      std::int64_t total = 1;
      for (const std::int64_t n : new_shape) total *= n;
      for (std::int64_t k = 0; k < total; ++k) {
        next.push_back(element(source(index)));
        for (std::size_t i = index.size(); i-- > 0 && ++index[i] == new_shape[i];) index[i] = 0;
      }
      shape = new_shape;
      model = next;
    }
    REQUIRE(list(array.shape()) == shape);
    REQUIRE(array.to_vector<float>() == model);
    const Array copy = array.contiguous();
    REQUIRE(copy.is_contiguous());
    REQUIRE(std::memcmp(copy.data(), model.data(), model.size() * 4) == 0);
  }
}

TEST_CASE("array: impossible lengths throw an error", "[array]") {
  CHECK_THROWS_WITH(Array::zeros({2, -1}, f32), Contains("zeros: shape [2, -1] has a negative length"));
  CHECK_THROWS_WITH(Array::empty({INT64_MAX, 2}, u8), Contains("more bytes than a 64-bit address can count"));
  CHECK_THROWS_AS(Array::empty({INT64_MAX / 4}, f64), ShapeError);
  CHECK_THROWS_AS(Array::empty({0, INT64_MAX, INT64_MAX}, f64), ShapeError);
  CHECK_THROWS_WITH(Array::empty({std::int64_t{1} << 60}, u8), Contains("cannot allocate 1152921504606846976 bytes"));
}

TEST_CASE("array: an allocation that fails leaks nothing", "[array]") {
  const std::int64_t before = memory::statistics().in_use;
  for (int after = 0; after < 2; ++after) {
    memory::inject_failure(after);
    CHECK_THROWS_AS(Array::zeros({100'000}, f32), Error);
    memory::inject_failure(-1);
  }
  CHECK(memory::statistics().in_use == before);
  CHECK(Array::zeros({100'000}, f32).size() == 100'000);
}

TEST_CASE("array: threads may copy and destroy one array concurrently", "[array]") {
  const Array shared = counting({64});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&shared] {
      for (int i = 0; i < 2000; ++i) {
        const Array mine = shared.slice(0, i % 64).flip(0);
        const Array other = mine;
        if (other.at<float>({0}) != 63) std::abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(shared.at<float>({63}) == 63);
}
