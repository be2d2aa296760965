// Sorts rows with a radix sort on eight-bit digits of their keys, the lowest first. Each pass counts the values of a digit and moves the
// elements to their positions; it is stable. A pass is skipped if all elements have the same digit. Short rows are sorted together
// (sort_network.h); where that is slow, they use insertion sort. Rows of bytes are stored from their counts alone. If only the first few
// elements are needed, they are selected while the row is read.
//
// An element is a key, or a rank and a position: 64 bits if both fit, else 128 bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "runtime/routine_code.h"
#include "runtime/routine_keys.h"
#include "runtime/sort_network.h"

namespace onepass::runtime {

namespace {

constexpr std::int64_t kDigits = 256, kInsertion = 48;
constexpr std::int64_t kBlock = 64;  // elements of a row that a selection compares together
constexpr std::int64_t kSlack = 16;  // at twice the results plus this many candidates, drops all but the results
constexpr std::int64_t kMore = kSlack + kBlock;

struct Pair {
  std::uint64_t rank, place;
  bool operator<(const Pair& o) const { return rank != o.rank ? rank < o.rank : place < o.place; }
};
using Counts = std::array<std::uint64_t, kDigits>;

// Keys and ranks in sorting order, ascending or descending.
template <class T, bool kBackwards> struct Order {
  using K = KeyOf<T>;
  using Key = typename K::Key;
  static constexpr bool kDescends = kBackwards;
  static Key key(T value) { return kBackwards ? static_cast<Key>(~K::of(value)) : K::of(value); }
  static T value(Key key) { return K::value(kBackwards ? static_cast<Key>(~key) : key); }
  static Key rank(Key key) { return kBackwards ? static_cast<Key>(~K::rank(static_cast<Key>(~key))) : K::rank(key); }
};

// The sorted elements, made from a value and its position.
template <class T, bool kBackwards> struct Values {
  using O = Order<T, kBackwards>;
  using Element = typename O::Key;
  using Result = T;
  static Element make(T value, std::uint64_t) { return O::key(value); }
  static auto rank(Element e) { return O::rank(e); }
  static Result result(Element e) { return O::value(e); }
};
template <class T, bool kBackwards> struct Narrow {
  using O = Order<T, kBackwards>;
  using Element = std::uint64_t;
  using Result = std::int64_t;
  static Element make(T value, std::uint64_t place) { return static_cast<Element>(O::rank(O::key(value))) << 32 | place; }
  static auto rank(Element e) { return static_cast<std::uint32_t>(e >> 32); }
  static std::uint64_t place(Element e) { return e & 0xffffffff; }
  static Result result(Element e) { return static_cast<Result>(place(e)); }
};
template <class T, bool kBackwards> struct Wide {
  using O = Order<T, kBackwards>;
  using Element = Pair;
  using Result = std::int64_t;
  static Element make(T value, std::uint64_t place) { return {O::rank(O::key(value)), place}; }
  static auto rank(const Element& e) { return static_cast<typename O::Key>(e.rank); }
  static std::uint64_t place(const Element& e) { return e.place; }
  static Result result(const Element& e) { return static_cast<Result>(e.place); }
};
template <class T> constexpr std::size_t kPasses = sizeof(typename KeyOf<T>::Key);

bool is_wide(std::size_t key_bytes, std::int64_t length) { return key_bytes > 4 || length > std::int64_t{0xffffffff}; }

template <class R> std::size_t digit(R rank, std::size_t pass) { return static_cast<std::size_t>(rank >> (8 * pass)) & (kDigits - 1); }

// Computes the start of each digit's elements; false if all elements have the same digit.
bool begins_of(const Counts& counts, std::uint64_t n, Counts& begins) {
  std::uint64_t sum = 0;
  bool moves = true;
  for (std::size_t d = 0; d < kDigits; ++d) {
    begins[d] = sum;
    sum += counts[d];
    if (counts[d] == n) moves = false;
  }
  return moves;
}

template <class S> void insert(typename S::Element* a, std::int64_t n) {
  for (std::int64_t i = 1; i < n; ++i) {
    const auto e = a[i];
    std::int64_t k = i;
    for (; k > 0 && S::rank(e) < S::rank(a[k - 1]); --k) a[k] = a[k - 1];
    a[k] = e;
  }
}

// Sorts n elements of a, with b as buffer; returns the array with the result.
template <class T, class S> typename S::Element* sort_row(typename S::Element* a, typename S::Element* b, std::int64_t n) {
  if (n <= kInsertion) {
    insert<S>(a, n);
    return a;
  }
  Counts counts[kPasses<T>] = {}, begins;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto r = S::rank(a[i]);
    for (std::size_t p = 0; p < kPasses<T>; ++p) ++counts[p][digit(r, p)];
  }
  for (std::size_t p = 0; p < kPasses<T>; ++p) {
    if (!begins_of(counts[p], static_cast<std::uint64_t>(n), begins)) continue;
    for (std::int64_t i = 0; i < n; ++i) b[begins[digit(S::rank(a[i]), p)]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

// ---- each task sorts rows
template <class T, class S> void sort_rows(const RoutineRows& rows, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  using Element = typename S::Element;
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], all = rows[RoutineWords::kRows],
                     block = rows[RoutineWords::kBlock];
  const RoutineRows::Row step = rows.along();
  auto* const keys = reinterpret_cast<Element*>(scratch);
  Element* const other = keys + block * n;
  const T* const x = rows.x<T>();
  auto* const result = rows.result<typename S::Result>();
  std::int64_t from[16], to[16];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t count = std::min(block, all - item * block);
    for (std::int64_t b = 0; b < count; ++b) {
      const RoutineRows::Row row = rows.at(item * block + b);
      from[b] = row.x, to[b] = row.result;
    }
    if (count == 1 && step.x == 1)
      for (std::int64_t i = 0; i < n; ++i) keys[i] = S::make(x[from[0] + i], static_cast<std::uint64_t>(i));
    else
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t b = 0; b < count; ++b) keys[b * n + i] = S::make(x[from[b] + i * step.x], static_cast<std::uint64_t>(i));
    if (count == 1) {
      const Element* const sorted = sort_row<T, S>(keys, other, n);
      for (std::int64_t i = 0; i < m; ++i) result[to[0] + i * step.result] = S::result(sorted[i]);
      continue;
    }
    for (std::int64_t b = 0; b < count; ++b)
      if (const Element* const sorted = sort_row<T, S>(keys + b * n, other, n); sorted == other) std::copy_n(sorted, m, keys + b * n);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t b = 0; b < count; ++b) result[to[b] + i * step.result] = S::result(keys[b * n + i]);
  }
}

// ---- each task sorts rows together in a network
void sort_in_network(const RoutineRows& rows, bool places, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  const auto type = static_cast<DType>(rows[RoutineWords::kType]);
  const std::int64_t block = rows[RoutineWords::kBlock], all = rows[RoutineWords::kRows];
  const SortNetwork network = sort_network(type, places, compiler::Target::host());
  const RoutineRows::Row step = rows.along();
  std::int64_t from[64], to[64];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t count = std::min(block, all - item * block);
    for (std::int64_t b = 0; b < count;) {
      const std::int64_t first = item * block + b, last = std::min(count, b + rows.in_line(first));
      const RoutineRows::Row row = rows.at(first), next = rows.across();
      for (std::int64_t i = 0; b < last; ++b, ++i) from[b] = row.x + i * next.x, to[b] = row.result + i * next.result;
    }
    network({.x = rows.x<void>(),
             .result = rows.result<void>(),
             .from = from,
             .to = to,
             .count = count,
             .length = rows[RoutineWords::kLength],
             .results = rows[RoutineWords::kResults],
             .x_step = step.x,
             .result_step = step.result,
             .backwards = rows.backwards(),
             .memory = scratch});
  }
}

// ---- tasks share a row: phase 0 reads and counts, phase 2p + 1 moves by digit p, phase 2p + 2 counts the next digit or stores
struct Head {
  std::uint8_t moved[8];  // one flag for each pass
  std::uint8_t rest[56];
};
std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

template <class T, class S> void sort_shared(const RoutineRows& rows, std::int64_t begin, std::int64_t end) {
  using Element = typename S::Element;
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], chunks = rows[RoutineWords::kChunks];
  const std::int64_t phase = rows[RoutineWords::kPhase];
  const auto passes = static_cast<std::int64_t>(kPasses<T>), pass = (phase - 1) / 2;
  const RoutineRows::Row step = rows.along();
  const std::int64_t counts_bytes = 2 * chunks * static_cast<std::int64_t>(sizeof(Counts)),
                     array_bytes = aligned(n * static_cast<std::int64_t>(sizeof(Element)));
  for (std::int64_t item = begin; item < end; ++item) {
    std::byte* const shared = reinterpret_cast<std::byte*>(rows[RoutineWords::kShared]) +
                              item / chunks * (static_cast<std::int64_t>(sizeof(Head)) + counts_bytes + 2 * array_bytes);
    auto* const head = reinterpret_cast<Head*>(shared);
    auto* const counts = reinterpret_cast<Counts*>(shared + sizeof(Head));
    const std::int64_t chunk = item % chunks, first = n * chunk / chunks, last = n * (chunk + 1) / chunks;
    int moves = 0;
    for (std::int64_t p = 0; p < pass; ++p) moves += head->moved[p];
    if (phase > 0 && phase % 2 == 0) moves += head->moved[pass];
    auto* const a = reinterpret_cast<Element*>(shared + sizeof(Head) + counts_bytes + moves % 2 * array_bytes);
    auto* const b = reinterpret_cast<Element*>(shared + sizeof(Head) + counts_bytes + (moves + 1) % 2 * array_bytes);
    const auto count = [&](std::int64_t p) {
      Counts& mine = counts[p % 2 * chunks + chunk];
      mine = {};
      for (std::int64_t i = first; i < last; ++i) ++mine[digit(S::rank(a[i]), static_cast<std::size_t>(p))];
    };
    if (phase == 0) {
      const RoutineRows::Row row = rows.at(item / chunks);
      const T* const x = rows.x<T>() + row.x;
      for (std::int64_t i = first; i < last; ++i) a[i] = S::make(x[i * step.x], static_cast<std::uint64_t>(i));
      count(0);
    } else if (phase % 2 == 1) {
      Counts sum = {}, begins;
      for (std::int64_t c = 0; c < chunks; ++c)
        for (std::size_t d = 0; d < kDigits; ++d) sum[d] += counts[pass % 2 * chunks + c][d];
      const bool moved = begins_of(sum, static_cast<std::uint64_t>(n), begins);
      if (chunk == 0) head->moved[pass] = moved;
      if (!moved) continue;
      for (std::int64_t c = 0; c < chunk; ++c)
        for (std::size_t d = 0; d < kDigits; ++d) begins[d] += counts[pass % 2 * chunks + c][d];
      for (std::int64_t i = first; i < last; ++i) b[begins[digit(S::rank(a[i]), static_cast<std::size_t>(pass))]++] = a[i];
    } else if (pass + 1 < passes) {
      count(pass + 1);
    } else {
      const RoutineRows::Row row = rows.at(item / chunks);
      auto* const result = rows.result<typename S::Result>() + row.result;
      for (std::int64_t i = first; i < std::min(last, m); ++i) result[i * step.result] = S::result(a[i]);
    }
  }
}

// ---- bytes are not moved: their counts say where each place or run of equal values goes
// Phase 0 counts a chunk; with several chunks in a row, phase 1 stores.
template <class T, bool kBackwards, bool kPlaces> void sort_by_counts(const RoutineRows& rows, std::int64_t begin, std::int64_t end) {
  using O = Order<T, kBackwards>;
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], chunks = rows[RoutineWords::kChunks];
  const RoutineRows::Row step = rows.along();
  Counts mine;
  auto* const counts = chunks > 1 ? reinterpret_cast<Counts*>(rows[RoutineWords::kShared]) : &mine;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t chunk = item % chunks, first = n * chunk / chunks, last = n * (chunk + 1) / chunks;
    const RoutineRows::Row row = rows.at(item / chunks);
    const T* const x = rows.x<T>() + row.x;
    Counts* const of_row = counts + (chunks > 1 ? item - chunk : 0);
    if (rows[RoutineWords::kPhase] == 0) {
      Counts& of_chunk = of_row[chunk];
      of_chunk = {};
      if constexpr (std::is_same_v<T, Truth>) {
        std::uint64_t trues = 0;
        for (std::int64_t i = first; i < last; ++i) trues += x[i * step.x] != T{};
        of_chunk[O::key(T{1})] = trues, of_chunk[O::key(T{0})] = static_cast<std::uint64_t>(last - first) - trues;
      } else {
        for (std::int64_t i = first; i < last; ++i) ++of_chunk[O::key(x[i * step.x])];
      }
      if (chunks > 1) continue;
    }
    Counts sum = {}, begins;
    for (std::int64_t c = 0; c < chunks; ++c)
      for (std::size_t d = 0; d < kDigits; ++d) sum[d] += of_row[c][d];
    begins_of(sum, static_cast<std::uint64_t>(n), begins);
    if constexpr (kPlaces) {
      auto* const result = rows.result<std::int64_t>() + row.result;
      for (std::int64_t c = 0; c < chunk; ++c)
        for (std::size_t d = 0; d < kDigits; ++d) begins[d] += of_row[c][d];
      if constexpr (std::is_same_v<T, Truth>) {  // the two positions are in registers
        auto here = static_cast<std::int64_t>(begins[O::key(T{1})]), there = static_cast<std::int64_t>(begins[O::key(T{0})]);
        for (std::int64_t i = first; i < last; ++i) {
          const bool is_true = x[i * step.x] != T{};
          const std::int64_t to = is_true ? here : there;
          here += is_true, there += !is_true;
          if (to < m) result[to * step.result] = i;
        }
        continue;
      }
      for (std::int64_t i = first; i < last; ++i)
        if (const auto to = static_cast<std::int64_t>(begins[O::key(x[i * step.x])]++); to < m) result[to * step.result] = i;
    } else {
      T* const result = rows.result<T>() + row.result;
      const std::int64_t from = m * chunk / chunks, to = m * (chunk + 1) / chunks;
      for (std::size_t d = 0; d < kDigits; ++d) {
        const auto low = static_cast<std::int64_t>(begins[d]), high = low + static_cast<std::int64_t>(sum[d]);
        for (std::int64_t i = std::max(low, from); i < std::min(high, to); ++i)
          result[i * step.result] = O::value(static_cast<typename O::Key>(d));
      }
    }
  }
}

// ---- selection of the first few
template <class T, class S> class Selection {
 public:
  using Element = typename S::Element;
  Selection(Element* room, std::int64_t most) : room_(room), most_(most) {}

  // Reads elements `first` to `last` of a row in order of position. An element that equals the last selected element therefore follows it.
  void read(const T* x, std::int64_t step, std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; at += kBlock) {
      const std::int64_t count = std::min(kBlock, last - at);
      if (!is_full_) {
        for (std::int64_t i = at; i < at + count; ++i) room_[count_++] = S::make(x[i * step], static_cast<std::uint64_t>(i));
      } else {
        alignas(64) std::uint8_t before[kBlock] = {};  // flags of the selected elements: few, or none
        if (step == 1 && count == kBlock) flag<kBlock>(x + at, 1, count, before);
        else flag<0>(x + at * step, step, count, before);
        for (std::int64_t part = 0; part < kBlock; part += 8) {
          std::uint64_t flags;
          std::memcpy(&flags, before + part, sizeof flags);
          for (; flags != 0; flags &= flags - 1) {
            const std::int64_t i = at + part + std::countr_zero(flags) / 8;
            room_[count_++] = S::make(x[i * step], static_cast<std::uint64_t>(i));
          }
        }
      }
      if (count_ >= 2 * most_ + kSlack) drop();
    }
  }
  void add(const Element& e) {
    room_[count_++] = e;
    if (count_ >= 2 * most_ + kSlack) drop();
  }
  // Returns the number of selected elements; sorts them if `sorts`.
  std::int64_t finish(bool sorts) {
    if (count_ > most_) drop();
    if (sorts) std::sort(room_, room_ + count_);
    return count_;
  }

 private:
  Element* room_;
  std::int64_t most_, count_ = 0;
  bool is_full_ = false;
  typename S::O::Key least_{};  // rank of the last selected element
  T last_{};                    // its value

  // Flags the elements that come before the last selected one. Numbers are compared as such, which vectors do at once; NaN comes last, or
  // first in a descending selection. kCount: the number of elements, if it is constant.
  template <std::int64_t kCount> void flag(const T* x, std::int64_t step, std::int64_t count, std::uint8_t* before) const {
    const std::int64_t n = kCount > 0 ? kCount : count, by = kCount > 0 ? 1 : step;
    if constexpr (std::is_arithmetic_v<T>) {
      if (last_ == last_) {
        for (std::int64_t i = 0; i < n; ++i) before[i] = S::O::kDescends ? !(x[i * by] <= last_) : x[i * by] < last_;
        return;
      }
    }
    for (std::int64_t i = 0; i < n; ++i) before[i] = S::O::rank(S::O::key(x[i * by])) < least_;
  }
  void drop() {
    std::nth_element(room_, room_ + (most_ - 1), room_ + count_);
    count_ = most_;
    is_full_ = true;
    least_ = static_cast<typename S::O::Key>(S::rank(room_[most_ - 1]));
    last_ = S::O::value(least_);
  }
};

template <class Element> std::int64_t slot_bytes(std::int64_t results) {
  return aligned(64 + results * static_cast<std::int64_t>(sizeof(Element)));
}

// kPlaces: stores positions instead of elements.
template <class T, class S, bool kPlaces>
void select_first(const RoutineRows& rows, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  using Element = typename S::Element;
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], chunks = rows[RoutineWords::kChunks];
  const RoutineRows::Row step = rows.along();
  auto* const room = reinterpret_cast<Element*>(scratch);
  auto* const shared = reinterpret_cast<std::byte*>(rows[RoutineWords::kShared]);
  const std::int64_t slot = slot_bytes<Element>(m);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t chunk = item % chunks;
    const RoutineRows::Row row = rows.at(item / chunks);
    const T* const x = rows.x<T>() + row.x;
    Selection<T, S> selection(room, m);
    if (rows[RoutineWords::kPhase] == 0) {
      selection.read(x, step.x, n * chunk / chunks, n * (chunk + 1) / chunks);
      if (chunks > 1) {
        const std::int64_t count = selection.finish(false);
        *reinterpret_cast<std::int64_t*>(shared + item * slot) = count;
        std::copy_n(room, count, reinterpret_cast<Element*>(shared + item * slot + 64));
        continue;
      }
    } else if (chunk != 0) {
      continue;
    } else {
      for (std::int64_t c = 0; c < chunks; ++c) {
        const std::byte* const from = shared + (item + c) * slot;
        const std::int64_t count = *reinterpret_cast<const std::int64_t*>(from);
        for (std::int64_t i = 0; i < count; ++i) selection.add(reinterpret_cast<const Element*>(from + 64)[i]);
      }
    }
    selection.finish(true);
    if constexpr (kPlaces) {
      auto* const result = rows.result<std::int64_t>() + row.result;
      for (std::int64_t i = 0; i < m; ++i) result[i * step.result] = S::result(room[i]);
    } else {
      T* const result = rows.result<T>() + row.result;
      for (std::int64_t i = 0; i < m; ++i)
        result[i * step.result] = KeyOf<T>::value(KeyOf<T>::of(x[static_cast<std::int64_t>(S::place(room[i])) * step.x]));
    }
  }
}

template <bool kPlaces> void run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) {
  const RoutineRows rows{words};
  auto* const memory = static_cast<std::byte*>(scratch);
  const auto by = static_cast<SortBy>(rows[RoutineWords::kBy]);
  if (by == SortBy::Network) return sort_in_network(rows, kPlaces, begin, end, memory);
  const auto sort = [&]<class T, bool kBackwards>(T, std::bool_constant<kBackwards>) {
    const bool wide = is_wide(kPasses<T>, rows[RoutineWords::kLength]);
    if constexpr (sizeof(T) == 1)
      if (by == SortBy::Counts) return sort_by_counts<T, kBackwards, kPlaces>(rows, begin, end);
    if (by == SortBy::Select) {
      if (wide) return select_first<T, Wide<T, kBackwards>, kPlaces>(rows, begin, end, memory);
      if constexpr (kPasses<T> <= 4) return select_first<T, Narrow<T, kBackwards>, kPlaces>(rows, begin, end, memory);
    }
    const auto of = [&]<class S>(S) {
      if (by == SortBy::Shared) return sort_shared<T, S>(rows, begin, end);
      return sort_rows<T, S>(rows, begin, end, memory);
    };
    if constexpr (!kPlaces) return of(Values<T, kBackwards>{});
    if (wide) return of(Wide<T, kBackwards>{});
    if constexpr (kPasses<T> <= 4) return of(Narrow<T, kBackwards>{});
  };
  with_type(static_cast<DType>(words[RoutineWords::kType]), [&]<class T>(T type) {
    if (rows.backwards()) sort(type, std::true_type{});
    else sort(type, std::false_type{});
  });
}

std::int64_t key_bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }
std::int64_t place_bytes(DType type, std::int64_t length) { return is_wide(size_of(type), length) ? sizeof(Pair) : sizeof(std::uint64_t); }

}  // namespace

void run_sort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) { run<false>(words, begin, end, scratch); }
void run_argsort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) { run<true>(words, begin, end, scratch); }

std::int64_t sort_element_bytes(DType type, bool places, std::int64_t length) {
  return places ? place_bytes(type, length) : key_bytes(type);
}
std::int64_t sort_scratch_bytes(DType type, bool places, std::int64_t length, std::int64_t rows) {
  return (rows + 1) * length * sort_element_bytes(type, places, length);
}
std::int64_t shared_sort_phases(DType type) { return 1 + 2 * key_bytes(type); }
std::int64_t shared_sort_bytes(DType type, bool places, std::int64_t length, std::int64_t chunks) {
  return static_cast<std::int64_t>(sizeof(Head)) + 2 * chunks * static_cast<std::int64_t>(sizeof(Counts)) +
         2 * aligned(length * sort_element_bytes(type, places, length));
}
bool sorts_by_counts(DType type, std::int64_t length) { return size_of(type) == 1 && length > kInsertion; }
std::int64_t counts_bytes(std::int64_t tasks) { return tasks * static_cast<std::int64_t>(sizeof(Counts)); }
std::int64_t select_scratch_bytes(DType type, std::int64_t length, std::int64_t results, std::int64_t) {
  return (2 * results + kMore) * place_bytes(type, length);
}
std::int64_t select_shared_bytes(DType type, std::int64_t length, std::int64_t results) {
  return aligned(64 + results * place_bytes(type, length));
}

}  // namespace onepass::runtime
