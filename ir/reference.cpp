// The interpreter of mode `reference`. See reference.h. Elementwise operators run their `meaning` from ops.def over whole arrays. Expanded
// operators run their expansion over parts of an array. Views are index maps. Sums follow ir/order.h literally.
#include "ir/reference.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ir/build.h"
#include "ir/meaning.h"
#include "ir/order.h"
#include "ir/steps.h"
#include "onepass/error.h"

namespace onepass::ir {
namespace {

using meaning::BFloat16;
using meaning::Float16;
using meaning::Integer;
using Strides = std::vector<std::int64_t>;

// ---- types: `Stored<T>` is the array element type of the computation type T

template <class T> struct StoredAs {
  using type = T;
};
template <class S> struct StoredAs<Integer<S>> {
  using type = S;
};
template <> struct StoredAs<Float16> {
  using type = float;
};
template <> struct StoredAs<BFloat16> {
  using type = float;
};
template <class T> using Stored = typename StoredAs<T>::type;

template <class T> T load(Stored<T> value) { return T{value}; }
template <class T> Stored<T> store(T value) {
  if constexpr (std::same_as<T, Stored<T>>) return value;
  else return value.value;
}

std::size_t stored_size(DType dtype) { return size_of(computed_type(dtype)); }

// Calls f.template operator()<T>() for the computation type. Only conversions (kHalves) distinguish halves from f32.
template <bool kHalves = false, class F> auto visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Bool: return f.template operator()<bool>();
    case DType::I8: return f.template operator()<Integer<std::int8_t>>();
    case DType::I16: return f.template operator()<Integer<std::int16_t>>();
    case DType::I32: return f.template operator()<Integer<std::int32_t>>();
    case DType::I64: return f.template operator()<Integer<std::int64_t>>();
    case DType::U8: return f.template operator()<Integer<std::uint8_t>>();
    case DType::U16: return f.template operator()<Integer<std::uint16_t>>();
    case DType::U32: return f.template operator()<Integer<std::uint32_t>>();
    case DType::U64: return f.template operator()<Integer<std::uint64_t>>();
    case DType::F16: return f.template operator()<std::conditional_t<kHalves, Float16, float>>();
    case DType::BF16: return f.template operator()<std::conditional_t<kHalves, BFloat16, float>>();
    case DType::F32: return f.template operator()<float>();
    case DType::F64: break;
  }
  return f.template operator()<double>();
}

// Counts elements and reports to the caller of `evaluate` from time to time.
class Worked {
 public:
  static constexpr std::int64_t kPart = 1 << 18;  // elements that a loop computes at once
  explicit Worked(const std::function<void(std::int64_t)>& tell) : tell_(tell) {}
  void operator()(std::int64_t elements) {
    if ((untold_ += elements) >= kPart) [[unlikely]]
      tell();
  }
  /// Calls body(begin, end) over [0, n), one part at a time.
  template <class F> void in_parts(std::int64_t n, F&& body) {
    for (std::int64_t begin = 0; begin < n; begin += kPart) {
      const std::int64_t end = std::min(n, begin + kPart);
      body(begin, end);
      (*this)(end - begin);
    }
  }

 private:
  const std::function<void(std::int64_t)>& tell_;
  std::int64_t untold_ = 0;
  void tell() {
    if (tell_) tell_(untold_);
    untold_ = 0;
  }
};

// ---- elementwise: one loop for each operator and type

template <Op> struct Meaning;
#define PRIMITIVE(id, arity, text, types, traits, expression, ...)                                                          \
  template <> struct Meaning<Op::id> {                                                                                      \
    template <class T, class R, class A> static R apply([[maybe_unused]] A a, [[maybe_unused]] T b, [[maybe_unused]] T c) { \
      return R(expression);                                                                                                 \
    }                                                                                                                       \
  };
#include "ir/ops.def"

using Loop = void (*)(const void* const* operands, void* result, std::int64_t n);

template <Op kOp, int kArity, class T, class R> void loop(const void* const* operands, void* result, std::int64_t n) {
  using A = std::conditional_t<info(kOp).types == TypeRule::Choose, bool, T>;
  const auto* a = static_cast<const Stored<A>*>(operands[0]);
  [[maybe_unused]] const auto* b = static_cast<const Stored<T>*>(operands[kArity > 1 ? 1 : 0]);
  [[maybe_unused]] const auto* c = static_cast<const Stored<T>*>(operands[kArity > 2 ? 2 : 0]);
  auto* y = static_cast<Stored<R>*>(result);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (kArity == 1) y[i] = store(Meaning<kOp>::template apply<T, R, A>(load<A>(a[i]), T{}, T{}));
    else if constexpr (kArity == 2) y[i] = store(Meaning<kOp>::template apply<T, R, A>(load<A>(a[i]), load<T>(b[i]), T{}));
    else y[i] = store(Meaning<kOp>::template apply<T, R, A>(load<A>(a[i]), load<T>(b[i]), load<T>(c[i])));
  }
}

template <class T> constexpr bool takes(TypeRule rule) {
  constexpr bool is_bool = std::same_as<T, bool>, is_real = std::floating_point<T>;
  switch (rule) {
    case TypeRule::Number: return !is_bool;
    case TypeRule::Float:
    case TypeRule::Predicate: return is_real;
    case TypeRule::Bits: return !is_real;
    case TypeRule::Integer: return !is_real && !is_bool;
    default: return true;
  }
}

// Returns the loop of an operator. `from` is the type of all operands, except for where's condition.
template <Op kOp, int kArity> Loop loop_of(DType from, DType to) {
  constexpr TypeRule rule = info(kOp).types;
  constexpr bool converts = rule == TypeRule::Convert || rule == TypeRule::Reinterpret;
  return visit<converts>(from, [&]<class T>() -> Loop {
    if constexpr (!takes<T>(rule)) return nullptr;
    else if constexpr (!converts)
      return &loop<kOp, kArity, T, std::conditional_t<rule == TypeRule::Compare || rule == TypeRule::Predicate, bool, T>>;
    else
      return visit<true>(to, [&]<class R>() -> Loop {
        constexpr bool same_bytes = sizeof(T) == sizeof(R) || (meaning::Half<T> && sizeof(R) == 2) || (meaning::Half<R> && sizeof(T) == 2);
        if constexpr (rule == TypeRule::Reinterpret && (!same_bytes || (meaning::Half<T> && sizeof(R) == 4 && !meaning::Half<R>) ||
                                                        (meaning::Half<R> && sizeof(T) == 4 && !meaning::Half<T>)))
          return nullptr;
        else return &loop<kOp, kArity, T, R>;
      });
  });
}

Loop loop_of(Op op, DType from, DType to) {
  Loop found = nullptr;
  switch (op) {
#define PRIMITIVE(id, arity, ...) \
  case Op::id: found = loop_of<same_meaning(Op::id), arity>(from, to); break;
#include "ir/ops.def"
    default: break;
  }
  if (!found) throw InternalError("reference: " + std::string(info(op).text) + " is not defined for " + std::string(name_of(from)));
  return found;
}

void fill(DType dtype, void* to, std::int64_t n, std::uint64_t bits) {
  switch (stored_size(dtype)) {
    case 1: std::fill_n(static_cast<std::uint8_t*>(to), n, static_cast<std::uint8_t>(bits)); break;
    case 2: std::fill_n(static_cast<std::uint16_t*>(to), n, static_cast<std::uint16_t>(bits)); break;
    case 4: std::fill_n(static_cast<std::uint32_t*>(to), n, static_cast<std::uint32_t>(bits)); break;
    default: std::fill_n(static_cast<std::uint64_t*>(to), n, bits);
  }
}

// An expansion, run over parts of the operands that stay in the cache. Its constants are filled in once.
class Expansion {
 public:
  static constexpr std::int64_t kPiece = 512;

  // Halves are computed in f32 and use the expansion of f32.
  Expansion(Op op, DType dtype, std::map<std::pair<Op, DType>, std::unique_ptr<Expansion>>& all)
      : graph_(expansion(op, computed_type(dtype))), arrays_(graph_.size()), steps_(graph_.size()) {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node node = graph_[id];
      arrays_[id] = std::make_unique_for_overwrite<std::byte[]>(kPiece * 8);
      if (node.op == Op::Constant) fill(node.dtype, arrays_[id].get(), kPiece, node.bits);
      if (!is_elementwise(node.op)) continue;
      const DType from = graph_[graph_.operand(id, info(node.op).arity - 1)].dtype;
      if (info(node.op).kind == OpKind::Expanded) steps_[id].nested = &of(node.op, from, all);
      else steps_[id].loop = loop_of(node.op, from, node.dtype);
    }
  }

  static Expansion& of(Op op, DType dtype, std::map<std::pair<Op, DType>, std::unique_ptr<Expansion>>& all) {
    auto& place = all[{op, dtype}];
    if (!place) place = std::make_unique<Expansion>(op, dtype, all);
    return *place;
  }

  void run(const void* const* operands, void* result, std::int64_t n) {
    const NodeId last = graph_.outputs[0];
    const auto size = static_cast<std::int64_t>(stored_size(graph_[last].dtype));
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, n - begin);
      for (NodeId id = 0; id <= last; ++id) {
        const Node node = graph_[id];
        if (node.op == Op::Input) {
          const auto bytes = static_cast<std::int64_t>(stored_size(node.dtype));
          std::memcpy(arrays_[id].get(), static_cast<const std::byte*>(operands[node.bits]) + begin * bytes,
                      static_cast<std::size_t>(count * bytes));
          continue;
        }
        const void* in[3] = {};
        const List ids = graph_.operands(id);
        for (std::size_t i = 0; i < ids.size(); ++i) in[i] = arrays_[static_cast<std::size_t>(ids[i])].get();
        if (steps_[id].loop) steps_[id].loop(in, arrays_[id].get(), count);
        else if (steps_[id].nested) steps_[id].nested->run(in, arrays_[id].get(), count);
      }
      std::memcpy(static_cast<std::byte*>(result) + begin * size, arrays_[last].get(), static_cast<std::size_t>(count * size));
    }
  }

 private:
  struct Step {
    Loop loop = nullptr;
    Expansion* nested = nullptr;
  };
  const Graph& graph_;
  std::vector<std::unique_ptr<std::byte[]>> arrays_;
  std::vector<Step> steps_;
};
using Expansions = std::map<std::pair<Op, DType>, std::unique_ptr<Expansion>>;

// ---- views

Strides contiguous(List shape) {
  Strides out(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= std::max<std::int64_t>(shape[i], 1)) out[i] = step;
  return out;
}

// Copies shape's elements between two strided arrays. The pointers point to element 0.
template <class E> void copy_elements(List shape, const E* from, List from_strides, E* to, List to_strides) {
  if (element_count(shape) == 0) return;
  const std::size_t outer = shape.empty() ? 0 : shape.size() - 1;
  const std::int64_t n = shape.empty() ? 1 : shape[outer];
  const std::int64_t from_step = shape.empty() ? 0 : from_strides[outer], to_step = shape.empty() ? 0 : to_strides[outer];
  std::vector<std::int64_t> index(outer, 0);
  std::int64_t from_at = 0, to_at = 0;
  while (true) {
    const E* source = from + from_at;
    E* target = to + to_at;
    if (to_step == 1 && from_step == 1) std::copy_n(source, n, target);
    else if (to_step == 1 && from_step == 0) std::fill_n(target, n, *source);
    else
      for (std::int64_t i = 0; i < n; ++i) target[i * to_step] = source[i * from_step];
    std::size_t axis = outer;
    while (axis-- > 0) {
      from_at += from_strides[axis], to_at += to_strides[axis];
      if (++index[axis] < shape[axis]) break;
      from_at -= shape[axis] * from_strides[axis], to_at -= shape[axis] * to_strides[axis];
      index[axis] = 0;
    }
    if (axis == ~std::size_t{0}) return;
  }
}

void copy_strided(std::size_t size, List shape, const std::byte* from, List from_strides, std::byte* to, List to_strides) {
  const auto copy = [&]<class E>() {
    copy_elements<E>(shape, reinterpret_cast<const E*>(from), from_strides, reinterpret_cast<E*>(to), to_strides);
  };
  switch (size) {
    case 1: return copy.template operator()<std::uint8_t>();
    case 2: return copy.template operator()<std::uint16_t>();
    case 4: return copy.template operator()<std::uint32_t>();
    default: return copy.template operator()<std::uint64_t>();
  }
}

// Copies the elements of a shape in parts.
void copy_in_parts(std::size_t size, List shape, const std::byte* from, List from_strides, std::byte* to, List to_strides, Worked& worked) {
  const std::int64_t n = element_count(shape);
  if (n > Worked::kPart) {
    const auto step = [size](List strides) { return strides[0] * static_cast<std::int64_t>(size); };
    const std::int64_t rows = std::max<std::int64_t>(Worked::kPart / (n / shape[0]), 1);  // rows of the first axis at once
    std::vector<std::int64_t> part(shape.begin(), shape.end());
    for (std::int64_t begin = 0; begin < shape[0]; begin += rows) {
      part[0] = std::min(rows, shape[0] - begin);
      const std::byte* const source = from + begin * step(from_strides);
      std::byte* const target = to + begin * step(to_strides);
      if (part[0] == 1) copy_in_parts(size, shape.subspan(1), source, from_strides.subspan(1), target, to_strides.subspan(1), worked);
      else copy_in_parts(size, part, source, from_strides, target, to_strides, worked);
    }
    return;
  }
  copy_strided(size, shape, from, from_strides, to, to_strides);
  worked(n);
}

// ---- reductions

template <class T> struct Sum {
  static T start() {
    if constexpr (std::floating_point<T>) return T(-0.0);
    else return T(0);
  }
  static T nothing() { return T(0); }
  static T combine(T a, T b) { return a + b; }
};
template <class T> struct Product {
  static T start() { return T(1); }
  static T nothing() { return T(1); }
  static T combine(T a, T b) { return a * b; }
};

// Sums rows of `width` elements as a tree, in place; the result is in the first row.
template <class T, class How> void tree(T* rows, std::int64_t n, std::int64_t width) {
  if (n <= 1) return;
  const std::int64_t k = tree_split(n);
  tree<T, How>(rows, k, width);
  tree<T, How>(rows + k * width, n - k, width);
  for (std::int64_t i = 0; i < width; ++i) rows[i] = How::combine(rows[i], rows[k * width + i]);
}

// Sums one result in `lanes` from its contiguous elements.
template <class T, class How> T sum_lanes(const SumOrder& order, const Stored<T>* elements, std::vector<T>& blocks, Worked& worked) {
  blocks.assign(static_cast<std::size_t>(order.blocks), How::start());
  std::array<T, 64> lanes;
  for (std::int64_t block = 0; block < order.blocks; ++block) {
    lanes.fill(How::start());
    const std::int64_t begin = block * order.block, end = std::min(order.count, begin + order.block);
    if (order.padded_run == order.run) {
      std::int64_t r = begin;
      for (; r + order.lane_count <= end; r += order.lane_count)
        for (std::int64_t i = 0; i < order.lane_count; ++i)
          lanes[static_cast<std::size_t>(i)] = How::combine(lanes[static_cast<std::size_t>(i)], load<T>(elements[r + i]));
      for (std::int64_t i = 0; r + i < end; ++i)
        lanes[static_cast<std::size_t>(i)] = How::combine(lanes[static_cast<std::size_t>(i)], load<T>(elements[r + i]));
    } else {
      std::int64_t run = begin / order.padded_run, at = begin % order.padded_run;
      for (std::int64_t r = begin; r < end; ++r) {
        T& lane = lanes[static_cast<std::size_t>(r % order.lane_count)];
        if (at < order.run) lane = How::combine(lane, load<T>(elements[run * order.run + at]));  // padding has no effect
        if (++at == order.padded_run) at = 0, ++run;
      }
    }
    for (std::int64_t half = order.lane_count / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half; ++i)
        lanes[static_cast<std::size_t>(i)] = How::combine(lanes[static_cast<std::size_t>(i)], lanes[static_cast<std::size_t>(i + half)]);
    blocks[static_cast<std::size_t>(block)] = lanes[0];
    worked(end - begin);
  }
  tree<T, How>(blocks.data(), order.blocks, 1);
  return blocks[0];
}

// Sums all results at once in `rows` order, from rows of `kept` elements.
template <class T, class How>
void sum_rows(const SumOrder& order, const Stored<T>* elements, std::int64_t kept, Stored<T>* result, Worked& worked) {
  std::vector<T> blocks(static_cast<std::size_t>(order.blocks * kept), How::start());
  const std::vector<Stored<T>> missing(static_cast<std::size_t>(kept), store(How::start()));
  for (std::int64_t block = 0; block < order.blocks; ++block) {
    T* sum = blocks.data() + block * kept;
    const std::int64_t begin = block * order.block, end = std::min(order.count, begin + order.block);
    for (std::int64_t group = begin; group < end; group += kRowGroup) {
      const Stored<T>* row[kRowGroup];  // rows beyond the end are padding: the same tree, bit for bit
      for (std::int64_t i = 0; i < kRowGroup; ++i) {
        const std::int64_t r = group + i, run = r / order.padded_run, at = r % order.padded_run;
        row[i] = r < end && at < order.run ? elements + (run * order.run + at) * kept : missing.data();
      }
      const auto element = [&](int i, std::int64_t k) { return load<T>(row[i][k]); };
      for (std::int64_t k = 0; k < kept; ++k) {
        const T low = How::combine(How::combine(element(0, k), element(1, k)), How::combine(element(2, k), element(3, k)));
        const T high = How::combine(How::combine(element(4, k), element(5, k)), How::combine(element(6, k), element(7, k)));
        sum[k] = How::combine(sum[k], How::combine(low, high));
      }
      worked(kRowGroup * kept);
    }
  }
  tree<T, How>(blocks.data(), order.blocks, kept);
  for (std::int64_t k = 0; k < kept; ++k) result[k] = store(blocks[static_cast<std::size_t>(k)]);
}

template <class T, class How> void sum(const SumOrder& order, const std::byte* elements, std::int64_t kept, std::byte* to, Worked& worked) {
  auto* result = reinterpret_cast<Stored<T>*>(to);
  const auto* from = reinterpret_cast<const Stored<T>*>(elements);
  if (order.count == 0) {
    std::fill_n(result, kept, store(How::nothing()));
  } else if (order.lanes) {
    std::vector<T> blocks;
    for (std::int64_t k = 0; k < kept; ++k) result[k] = store(sum_lanes<T, How>(order, from + k * order.runs * order.run, blocks, worked));
  } else {
    sum_rows<T, How>(order, from, kept, result, worked);
  }
}

// Returns a*b + c with one rounding; integers wrap.
template <class T> T accumulate(T a, T b, T c) {
  if constexpr (std::floating_point<T>) return meaning::fma(a, b, c);
  else return T(a * b + c);
}

// Returns one result of a contraction. a_at and b_at are the offsets of the operands' elements, by r.
template <class T> Stored<T> contracted(const SumOrder& order, const Stored<T>* a, const Stored<T>* b,
                                        const std::vector<std::int64_t>& a_at, const std::vector<std::int64_t>& b_at,
                                        std::vector<T>& blocks, Worked& worked) {
  if (order.count == 0) return store(Sum<T>::nothing());
  blocks.assign(static_cast<std::size_t>(order.blocks), Sum<T>::start());
  const std::int64_t accumulators = order.lanes ? order.lane_count : 1;
  std::array<T, 64> lanes;
  for (std::int64_t block = 0; block < order.blocks; ++block) {
    lanes.fill(Sum<T>::start());
    const std::int64_t begin = block * order.block, end = std::min(order.count, begin + order.block);
    for (std::int64_t r = begin; r < end; ++r) {
      T& lane = lanes[static_cast<std::size_t>(r % accumulators)];
      const auto at = static_cast<std::size_t>(r);
      lane = accumulate<T>(load<T>(a[a_at[at]]), load<T>(b[b_at[at]]), lane);
    }
    for (std::int64_t half = accumulators / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half; ++i)
        lanes[static_cast<std::size_t>(i)] = Sum<T>::combine(lanes[static_cast<std::size_t>(i)], lanes[static_cast<std::size_t>(i + half)]);
    blocks[static_cast<std::size_t>(block)] = lanes[0];
    worked(end - begin);
  }
  tree<T, Sum<T>>(blocks.data(), order.blocks, 1);
  return store(blocks[0]);
}

// Returns the offsets of all elements of a shape, in row-major order.
std::vector<std::int64_t> places(List shape, List strides) {
  std::vector<std::int64_t> out = {0};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::vector<std::int64_t> next;
    next.reserve(out.size() * static_cast<std::size_t>(shape[i]));
    for (std::int64_t at : out)
      for (std::int64_t k = 0; k < shape[i]; ++k) next.push_back(at + k * strides[i]);
    out = std::move(next);
  }
  return out;
}

// Computes max or min, for which the order does not matter. The stride between reduced elements is 1 for lanes, else `kept`.
template <class T, bool kMax>
void extreme(bool lanes, const std::byte* elements, std::int64_t count, std::int64_t kept, std::byte* to, Worked& worked) {
  auto* result = reinterpret_cast<Stored<T>*>(to);
  const auto* from = reinterpret_cast<const Stored<T>*>(elements);
  using meaning::maximum, meaning::minimum;
  const auto combine = [](T a, T b) {
    if constexpr (kMax) return maximum(a, b);
    else return minimum(a, b);
  };
  if (lanes) {
    for (std::int64_t k = 0; k < kept; ++k) {
      T best = load<T>(from[k * count]);
      worked.in_parts(count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) best = combine(best, load<T>(from[k * count + r]));
      });
      result[k] = store(best);
    }
  } else {
    std::copy_n(from, kept, result);
    for (std::int64_t r = 1; r < count; ++r)
      worked.in_parts(kept, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) result[k] = store(combine(load<T>(result[k]), load<T>(from[r * kept + k])));
      });
  }
}

// ---- scans: `count` elements, each a row of `inner`

template <class T, class How>
void scan(std::int64_t group, std::int64_t count, std::int64_t inner, const Stored<T>* x, Stored<T>* y, Worked& worked) {
  std::vector<T> v(static_cast<std::size_t>(group));
  for (std::int64_t k = 0; k < inner; ++k) {
    T base = How::start();
    for (std::int64_t block = 0; block < count; block += kScanBlock) {
      T carry = How::start();
      for (std::int64_t at = block; at < std::min(count, block + kScanBlock); at += group) {
        const std::int64_t n = std::min(group, count - at);
        for (std::int64_t i = 0; i < group; ++i) v[static_cast<std::size_t>(i)] = i < n ? load<T>(x[(at + i) * inner + k]) : How::start();
        for (std::int64_t d = 1; d < group; d *= 2)
          for (std::int64_t i = group; i-- > d;)
            v[static_cast<std::size_t>(i)] = How::combine(v[static_cast<std::size_t>(i - d)], v[static_cast<std::size_t>(i)]);
        for (std::int64_t i = 0; i < n; ++i)
          y[(at + i) * inner + k] = store(How::combine(base, How::combine(carry, v[static_cast<std::size_t>(i)])));
        carry = How::combine(carry, v.back());
      }
      worked(std::min(count - block, kScanBlock));
      base = How::combine(base, carry);
    }
  }
}

// Scans max or min, for which the order does not matter.
template <class T, bool kMax> void scan_extreme(std::int64_t count, std::int64_t inner, const Stored<T>* x, Stored<T>* y, Worked& worked) {
  using meaning::maximum, meaning::minimum;
  std::copy_n(x, inner, y);
  worked.in_parts((count - 1) * inner, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin + inner; i < end + inner; ++i) {
      const T a = load<T>(y[i - inner]), b = load<T>(x[i]);
      if constexpr (kMax) y[i] = store(T(maximum(a, b)));
      else y[i] = store(T(minimum(a, b)));
    }
  });
}

// Throws `take: the index 7 at [1, 2] is out of range: axis 0 has extent 5`, with the line that recorded the operator.
[[noreturn]] void fail_index(const Graph& graph, NodeId id, std::int64_t element, const std::string& index) {
  const List attributes = graph.attributes(id), shape = graph.shape(id);
  std::vector<std::int64_t> at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) at[i] = element % shape[i];
  std::string place = "[";
  for (std::size_t i = 0; i < at.size(); ++i) place += (i ? ", " : "") + std::to_string(at[i]);
  place += "]";
  const auto indexing = static_cast<Indexing>(attributes[2]);
  const std::string extent = std::to_string(attributes[0]), &source = graph.sources[graph.source_of[id]];
  const std::string where = source.empty() ? "" : "\n  Recorded at " + source + ".";
  if (indexing == Indexing::CrossEntropy)
    throw IndexError("cross_entropy: the label " + index + " of sample " + place + " is out of range: there are " + extent + " classes" +
                     where);
  if (indexing == Indexing::Quantile) throw IndexError("quantile: q must be from 0 to 1, and one is not" + where);
  throw IndexError(std::string(text_of(indexing)) + ": the index " + index + " at " + place + " is out of range: axis " +
                   std::to_string(attributes[1]) + " has extent " + extent + where);
}

// ---- the graph

class Evaluator {
 public:
  Evaluator(const Graph& graph, std::span<const ArrayView> inputs, std::span<const std::uint64_t> slot_bits,
            const std::function<void(std::int64_t)>& worked)
      : graph_(graph), inputs_(inputs), slot_bits_(slot_bits), worked_(worked), arrays_(graph.size()), uses_(graph.size(), 0) {
    if (inputs.size() != graph.inputs.size())
      throw InternalError("reference: " + std::to_string(graph.inputs.size()) + " inputs, not " + std::to_string(inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype != graph.inputs[i].dtype || !std::ranges::equal(inputs[i].shape, graph.list(graph.inputs[i].shape)) ||
          (!inputs[i].strides.empty() && inputs[i].strides.size() != inputs[i].shape.size()))
        throw InternalError("reference: input " + graph.inputs[i].name + " has a different type, shape or number of strides");
    if (!slot_bits.empty() && slot_bits.size() != graph.slots.size())
      throw InternalError("reference: " + std::to_string(graph.slots.size()) + " slots, not " + std::to_string(slot_bits.size()));
  }

  std::vector<Buffer> run() {
    for (NodeId id : graph_.outputs) ++uses_[id];
    for (NodeId id = graph_.size(); id-- > 0;)
      if (uses_[id])
        for (std::int64_t o : graph_.operands(id)) ++uses_[static_cast<std::size_t>(o)];
    unspread_ = unspread(graph_);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!uses_[id]) continue;
      evaluate_node(id);
      for (std::int64_t o : graph_.operands(id))  // frees operands after their last use
        if (--uses_[static_cast<std::size_t>(o)] == 0) arrays_[static_cast<std::size_t>(o)].reset();
    }
    std::vector<Buffer> out;
    for (NodeId id : graph_.outputs) out.push_back(output(id));
    return out;
  }

 private:
  using Array = std::shared_ptr<std::byte[]>;

  std::byte* allocate(NodeId id) {
    const std::size_t bytes = static_cast<std::size_t>(graph_.elements(id)) * stored_size(graph_[id].dtype);
    arrays_[id] = Array(new std::byte[std::max<std::size_t>(bytes, 1)]);
    return arrays_[id].get();
  }

  void evaluate_node(NodeId id) {
    switch (info(graph_[id].op).kind) {
      case OpKind::Source: return source(id);
      case OpKind::View: return view(id);
      case OpKind::Piecewise: return piecewise(id);
      case OpKind::Reduction: return is_contraction(graph_[id].op) ? contraction(id) : reduction(id);
      case OpKind::Scan: return scan_along(id);
      case OpKind::Place: return place(id);
      case OpKind::Gather: return gather(id);
      case OpKind::Scatter: return scatter(id);
      case OpKind::Routine:
        if (graph_[id].op == Op::Steps) return steps(id);
        return graph_[id].op == Op::Search ? search(id) : graph_[id].op == Op::Assign ? assign(id) : sort(id);
      case OpKind::Primitive:
      case OpKind::Expanded: return elementwise(id);
    }
  }

  void source(NodeId id) {
    const Node node = graph_[id];
    const std::int64_t n = graph_.elements(id);
    if (node.op == Op::Input) return input(id, inputs_[node.bits]);
    std::byte* to = allocate(id);
    if (node.op == Op::Constant) return fill(node.dtype, to, n, node.bits);
    if (node.op == Op::Slot) return fill(node.dtype, to, n, slot_bits_.empty() ? graph_.slots[node.bits].bits : slot_bits_[node.bits]);
    // iota: the index, cast from i64
    const List shape = graph_.shape(id);
    const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
    const std::int64_t extent = shape[axis], step = element_count(shape.subspan(axis + 1));
    visit<true>(node.dtype, [&]<class T>() {
      auto* y = reinterpret_cast<Stored<T>*>(to);
      worked_.in_parts(n, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) y[i] = store(meaning::cast<T>(Integer<std::int64_t>(i / step % extent)));
      });
    });
  }

  void input(NodeId id, const ArrayView& x) {
    const List shape = graph_.shape(id);
    const Strides dense = contiguous(shape);
    const std::int64_t n = graph_.elements(id);
    const std::size_t size = size_of(x.dtype);
    if (n == 0) {
      allocate(id);
      return;
    }
    const bool in_order = x.strides.empty() || x.strides == dense;
    if (in_order && !is_half(x.dtype) && x.dtype != DType::Bool) {  // read in place; operands are never written
      arrays_[id] = Array(static_cast<std::byte*>(const_cast<void*>(x.data)), [](std::byte*) {});
      return;
    }
    Array bytes(new std::byte[static_cast<std::size_t>(n) * size]);
    copy_in_parts(size, shape, static_cast<const std::byte*>(x.data), x.strides.empty() ? dense : x.strides, bytes.get(), dense, worked_);
    if (x.dtype == DType::Bool) {
      for (std::int64_t i = 0; i < n; ++i) bytes[i] = std::byte{bytes[i] != std::byte{0}};
    } else if (is_half(x.dtype)) {
      const auto* from = reinterpret_cast<const std::uint16_t*>(bytes.get());
      auto* to = reinterpret_cast<float*>(allocate(id));
      for (std::int64_t i = 0; i < n; ++i) to[i] = x.dtype == DType::F16 ? detail::float_of_f16(from[i]) : detail::float_of_bf16(from[i]);
      return;
    }
    arrays_[id] = std::move(bytes);
  }

  void view(NodeId id) {
    const Node node = graph_[id];
    const NodeId x = graph_.operand(id, 0);
    if (node.op == Op::Reshape || unspread_[id]) {
      arrays_[id] = arrays_[x];
      return;
    }
    const List from_shape = graph_.shape(x), shape = graph_.shape(id), attributes = graph_.attributes(id);
    const std::size_t rank = shape.size(), size = stored_size(node.dtype);
    const Strides from = contiguous(from_shape), to = contiguous(shape);
    std::byte* target = allocate(id);
    if (graph_.elements(x) == 0 || graph_.elements(id) == 0) {
      if (graph_.elements(id) != 0) fill(node.dtype, target, graph_.elements(id), 0);  // a pad of no elements
      return;
    }
    Strides strides(rank);
    std::int64_t offset = 0;
    switch (node.op) {
      case Op::Permute:
        for (std::size_t i = 0; i < rank; ++i) strides[i] = from[static_cast<std::size_t>(attributes[i])];
        break;
      case Op::Broadcast:
        for (std::size_t i = 0; i < rank; ++i) strides[i] = from_shape[i] == shape[i] ? from[i] : 0;
        break;
      case Op::Slice:
        for (std::size_t i = 0; i < rank; ++i) offset += attributes[i] * from[i], strides[i] = attributes[rank + i] * from[i];
        break;
      case Op::Diagonal: {
        std::size_t k = 0;
        const auto a = static_cast<std::size_t>(attributes[1]), b = static_cast<std::size_t>(attributes[2]);
        for (std::size_t i = 0; i < from.size(); ++i)
          if (i != a && i != b) strides[k++] = from[i];
        strides[k] = from[a] + from[b];
        offset = attributes[0] >= 0 ? attributes[0] * from[b] : -attributes[0] * from[a];
        break;
      }
      case Op::Window: {
        const auto axis = static_cast<std::size_t>(attributes[0]);
        for (std::size_t i = 0; i + 1 < rank; ++i) strides[i + (i > axis)] = from[i];
        strides[axis] = attributes[2] * from[axis];
        strides[axis + 1] = attributes[1] * from[axis];
        break;
      }
      case Op::Pad:  // the same map in reverse
        fill(node.dtype, target, graph_.elements(id), 0);
        for (std::size_t i = 0; i < rank; ++i) offset += attributes[i] * to[i], strides[i] = attributes[rank + i] * to[i];
        copy_in_parts(size, from_shape, arrays_[x].get(), from, target + offset * static_cast<std::int64_t>(size), strides, worked_);
        return;
      default: throw InternalError("reference: " + std::string(info(node.op).text) + " is not a supported view");
    }
    copy_in_parts(size, shape, arrays_[x].get() + offset * static_cast<std::int64_t>(size), strides, target, to, worked_);
  }

  void piecewise(NodeId id) {
    const Node node = graph_[id];
    const List shape = graph_.shape(id), attributes = graph_.attributes(id), operands = graph_.operands(id);
    const std::size_t rank = shape.size(), size = stored_size(node.dtype), boxes = attributes.size() / (2 * rank);
    const Strides to = contiguous(shape);
    std::byte* target = allocate(id);
    if (graph_.elements(id) == 0) return;
    if (operands.size() > boxes) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, arrays_[static_cast<std::size_t>(operands[boxes])].get(), size);
      fill(node.dtype, target, graph_.elements(id), bits);
    }
    for (std::size_t k = 0; k < boxes; ++k) {
      const auto x = static_cast<NodeId>(operands[k]);
      if (graph_.elements(x) == 0) continue;
      Strides strides(rank);
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < rank; ++i)
        offset += attributes[2 * rank * k + i] * to[i], strides[i] = attributes[2 * rank * k + rank + i] * to[i];
      copy_in_parts(size, graph_.shape(x), arrays_[x].get(), contiguous(graph_.shape(x)), target + offset * static_cast<std::int64_t>(size),
                    strides, worked_);
    }
  }

  void reduction(NodeId id) {
    const Node node = graph_[id];
    const NodeId x = graph_.operand(id, 0);
    const List shape = graph_.shape(x), axes = graph_.attributes(id);
    const SumOrder order = sum_order(shape, axes, computed_type(node.dtype));
    const std::int64_t kept = graph_.elements(id);
    std::byte* to = allocate(id);
    if (kept == 0) return;

    // Elements in traversal order: reduced axes innermost for lanes, kept axes innermost for rows.
    std::vector<std::int64_t> permutation, reduced(axes.begin(), axes.end());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i)
      if (std::ranges::find(axes, i) == axes.end()) permutation.push_back(i);
    permutation.insert(order.lanes ? permutation.end() : permutation.begin(), reduced.begin(), reduced.end());
    Array elements = arrays_[x];
    if (!std::ranges::is_sorted(permutation) && graph_.elements(x) != 0) {
      const Strides from = contiguous(shape);
      Strides strides, extents;
      for (std::int64_t axis : permutation)
        strides.push_back(from[static_cast<std::size_t>(axis)]), extents.push_back(shape[static_cast<std::size_t>(axis)]);
      const std::size_t size = stored_size(node.dtype);
      elements = Array(new std::byte[static_cast<std::size_t>(graph_.elements(x)) * size]);
      copy_in_parts(size, extents, arrays_[x].get(), strides, elements.get(), contiguous(extents), worked_);
    }

    visit(node.dtype, [&]<class T>() {
      if (node.op == Op::ReduceMax) return extreme<T, true>(order.lanes, elements.get(), order.runs * order.run, kept, to, worked_);
      if (node.op == Op::ReduceMin) return extreme<T, false>(order.lanes, elements.get(), order.runs * order.run, kept, to, worked_);
      if constexpr (!std::same_as<T, bool>) {
        if (node.op == Op::ReduceSum) return sum<T, Sum<T>>(order, elements.get(), kept, to, worked_);
        if (node.op == Op::ReduceProd) return sum<T, Product<T>>(order, elements.get(), kept, to, worked_);
      }
      throw InternalError("reference: " + std::string(info(node.op).text) + " is not defined for " + std::string(name_of(node.dtype)));
    });
  }

  // The numbers of elements before an axis, along it and after it.
  struct Around {
    std::int64_t outer = 1, extent = 1, inner = 1;
  };
  Around around(NodeId id, std::int64_t axis) const {
    const List shape = graph_.shape(id);
    const auto at = static_cast<std::size_t>(axis);
    return {element_count(shape.first(at)), shape[at], element_count(shape.subspan(at + 1))};
  }

  void scan_along(NodeId id) {
    const Node node = graph_[id];
    const std::int64_t axis = graph_.attributes(id)[0];
    const Around a = around(id, axis);
    const std::int64_t group = scans_in_groups(graph_.shape(id), axis) ? kScanGroup : 1;
    std::byte* to = allocate(id);
    if (graph_.elements(id) == 0) return;
    visit(node.dtype, [&]<class T>() {
      for (std::int64_t o = 0; o < a.outer; ++o) {
        const auto* x = reinterpret_cast<const Stored<T>*>(arrays_[graph_.operand(id, 0)].get()) + o * a.extent * a.inner;
        auto* y = reinterpret_cast<Stored<T>*>(to) + o * a.extent * a.inner;
        if (node.op == Op::ScanMax) scan_extreme<T, true>(a.extent, a.inner, x, y, worked_);
        if (node.op == Op::ScanMin) scan_extreme<T, false>(a.extent, a.inner, x, y, worked_);
        if constexpr (!std::same_as<T, bool>) {
          if (node.op == Op::ScanSum) scan<T, Sum<T>>(group, a.extent, a.inner, x, y, worked_);
          if (node.op == Op::ScanProd) scan<T, Product<T>>(group, a.extent, a.inner, x, y, worked_);
        }
      }
    });
  }

  void place(NodeId id) {
    const NodeId x = graph_.operand(id, 0);
    const std::int64_t extent = graph_.attributes(id)[0], n = graph_.elements(id);
    auto* to = reinterpret_cast<std::int64_t*>(allocate(id));
    visit(graph_[x].dtype, [&]<class T>() {
      if constexpr (!std::same_as<T, bool> && !std::floating_point<T>) {
        const auto* index = reinterpret_cast<const Stored<T>*>(arrays_[x].get());
        for (std::int64_t i = 0; i < n; ++i) {
          worked_(1);
          const bool above = std::cmp_greater_equal(index[i], extent);
          if (above || std::cmp_less(index[i], -extent)) {
            // the values of bincount may be negative integers, cast to u64
            const bool is_signed = static_cast<Indexing>(graph_.attributes(id)[2]) == Indexing::Bincount;
            fail_index(graph_, id, i, is_signed ? std::to_string(static_cast<std::int64_t>(index[i])) : std::to_string(index[i]));
          }
          to[i] = static_cast<std::int64_t>(index[i]);
          if (to[i] < 0) to[i] += extent;
        }
      }
    });
  }

  void gather(NodeId id) {
    const NodeId x = graph_.operand(id, 0), places = graph_.operand(id, 1);
    const Around to = around(id, graph_.attributes(id)[0]), from = around(x, graph_.attributes(id)[0]);
    const std::size_t size = stored_size(graph_[id].dtype);
    const auto* place = reinterpret_cast<const std::int64_t*>(arrays_[places].get());
    const std::byte* source = arrays_[x].get();
    std::byte* target = allocate(id);
    for (std::int64_t o = 0; o < to.outer; ++o)
      for (std::int64_t k = 0; k < to.extent; ++k)
        for (std::int64_t i = 0; i < to.inner; ++i, ++place, target += size) {
          worked_(1);
          std::memcpy(target, source + static_cast<std::size_t>((o * from.extent + *place) * from.inner + i) * size, size);
        }
  }

  // Replaces every NaN by one quiet NaN, the only NaN in sorted results.
  template <class T> static T quiet(T value) {
    if constexpr (std::floating_point<T>)
      if (value != value) return std::numeric_limits<T>::quiet_NaN();
    return value;
  }

  // Returns the sort order: NaN is after all numbers, so first in descending order.
  template <class T> static bool is_below(T a, T b) {
    if constexpr (std::floating_point<T>)
      if (a != a || b != b) return a == a;
    return a < b;
  }

  void sort(NodeId id) {
    const Node node = graph_[id];
    const NodeId x = graph_.operand(id, 0);
    const std::int64_t axis = graph_.attributes(id)[0];
    const bool descending = graph_.attributes(id)[1] != 0;
    const Around from = around(x, axis), to = around(id, axis);
    std::byte* target = allocate(id);
    visit(graph_[x].dtype, [&]<class T>() {
      const auto* values = reinterpret_cast<const Stored<T>*>(arrays_[x].get());
      std::vector<std::int64_t> order(static_cast<std::size_t>(from.extent));
      for (std::int64_t o = 0; o < from.outer; ++o)
        for (std::int64_t i = 0; i < from.inner; ++i) {
          worked_(from.extent);
          const auto at = [&](std::int64_t k) { return values[(o * from.extent + k) * from.inner + i]; };
          for (std::int64_t k = 0; k < from.extent; ++k) order[static_cast<std::size_t>(k)] = k;
          std::stable_sort(order.begin(), order.end(),
                           [&](std::int64_t a, std::int64_t b) { return descending ? is_below(at(b), at(a)) : is_below(at(a), at(b)); });
          for (std::int64_t k = 0; k < to.extent; ++k) {
            const std::int64_t place = (o * to.extent + k) * to.inner + i, of = order[static_cast<std::size_t>(k)];
            if (node.op == Op::Sort) reinterpret_cast<Stored<T>*>(target)[place] = quiet(at(of));
            else reinterpret_cast<std::int64_t*>(target)[place] = of;
          }
        }
    });
  }

  // Runs the recurrence for each element separately, one step after the other.
  void steps(NodeId id) {
    const Steps s = steps_of(graph_, id);
    const List operands = graph_.operands(id);
    const std::vector<DType> types = types_of(graph_, operands, s);
    const std::int64_t n = graph_.shape(id).back();
    std::byte* const target = allocate(id);
    std::vector<std::uint64_t> values(types.size());
    std::vector<std::uint64_t> states(static_cast<std::size_t>(s.states));
    const std::size_t size = stored_size(graph_[id].dtype);
    const auto read = [&](std::size_t i, std::int64_t step, std::int64_t element) {
      const auto x = static_cast<NodeId>(operands[i]);
      const std::int64_t row = graph_.shape(x).back(), at = (graph_.shape(x).size() == 2 ? step * row : 0) + (row == 1 ? 0 : element);
      values[i] = 0;
      std::memcpy(&values[i], arrays_[x].get() + static_cast<std::size_t>(at) * stored_size(types[i]), stored_size(types[i]));
    };
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (i < states.size() || i >= static_cast<std::size_t>(s.states + s.arrays)) read(i, 0, j);
      for (std::int64_t t = 0; t < s.count; ++t) {
        for (std::size_t i = states.size(); i < static_cast<std::size_t>(s.states + s.arrays); ++i) read(i, s.place_of(t), j);
        for (std::size_t i = 0; i < s.lines.size(); ++i) {
          const StepLine& line = s.lines[i];
          std::uint64_t& value = values[operands.size() + i];
          if (line.op == Op::Constant) {
            value = line.bits;
            continue;
          }
          std::array<std::uint64_t, 3> in{};
          const std::size_t arity = info(line.op).arity;
          for (std::size_t k = 0; k < arity; ++k) in[k] = values[static_cast<std::size_t>(line.operands[k])];
          value = apply(line.op, types[static_cast<std::size_t>(line.operands[arity - 1])], line.dtype, std::span(in).first(arity));
        }
        if (!s.is_last())
          std::memcpy(target + static_cast<std::size_t>(s.place_of(t) * n + j) * size, &values[static_cast<std::size_t>(s.value())], size);
        for (std::size_t i = 0; i < states.size(); ++i) states[i] = values[static_cast<std::size_t>(s.next[i])];
        std::copy(states.begin(), states.end(), values.begin());
        worked_(static_cast<std::int64_t>(s.lines.size()));
      }
      if (s.is_last()) std::memcpy(target + static_cast<std::size_t>(j) * size, &states[static_cast<std::size_t>(s.which)], size);
    }
  }

  void assign(NodeId id) {
    const NodeId x = graph_.operand(id, 0), indices = graph_.operand(id, 1), updates = graph_.operand(id, 2);
    const Around to = around(id, graph_.attributes(id)[0]), from = around(updates, graph_.attributes(id)[0]);
    const std::int64_t mode = graph_.attributes(id)[1];
    const List shape = graph_.shape(updates), was = graph_.shape(indices);
    Strides strides = contiguous(was);
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (was[i] != shape[i]) strides[i] = 0;  // one index for all elements along this axis
    const std::vector<std::int64_t> at = places(Strides(shape.begin(), shape.end()), strides);
    const auto* index = reinterpret_cast<const std::int64_t*>(arrays_[indices].get());
    std::byte* target = allocate(id);
    visit(graph_[id].dtype, [&]<class T>() {
      auto* y = reinterpret_cast<Stored<T>*>(target);
      std::copy_n(reinterpret_cast<const Stored<T>*>(arrays_[x].get()), graph_.elements(id), y);
      const auto* update = reinterpret_cast<const Stored<T>*>(arrays_[updates].get());
      std::size_t next = 0;
      for (std::int64_t o = 0; o < from.outer; ++o)
        for (std::int64_t k = 0; k < from.extent; ++k)
          for (std::int64_t i = 0; i < from.inner; ++i, ++next, ++update) {
            worked_(1);
            Stored<T>& there = y[(o * to.extent + index[at[next]]) * to.inner + i];
            if (mode == 0 || replaces(*update, there, mode == 2)) there = *update;
          }
    });
  }
  // NaN takes precedence over every number, and -0 is below +0, so the order of updates does not matter.
  template <class T> static bool replaces(T update, T there, bool greatest) {
    if constexpr (std::floating_point<T>) {
      if (there != there || update != update) return there == there;
      if (update == there) return std::signbit(update) != std::signbit(there) && std::signbit(there) == greatest;
    }
    return greatest ? there < update : update < there;
  }

  void search(NodeId id) {
    const NodeId x = graph_.operand(id, 0), wanted = graph_.operand(id, 1);
    const bool right = graph_.attributes(id)[0] != 0;
    const std::int64_t n = graph_.shape(x).back(), m = graph_.shape(wanted).back();
    auto* to = reinterpret_cast<std::int64_t*>(allocate(id));
    visit(graph_[x].dtype, [&]<class T>() {
      const auto* row = reinterpret_cast<const Stored<T>*>(arrays_[x].get());
      const auto* value = reinterpret_cast<const Stored<T>*>(arrays_[wanted].get());
      for (std::int64_t i = 0; i < graph_.elements(id); ++i) {
        worked_(1);
        const Stored<T>* const begin = row + i / m * n;
        const auto place = right ? std::upper_bound(begin, begin + n, value[i], is_below<Stored<T>>)
                                 : std::lower_bound(begin, begin + n, value[i], is_below<Stored<T>>);
        to[i] = place - begin;
      }
    });
  }

  void scatter(NodeId id) {
    const NodeId x = graph_.operand(id, 0), places = graph_.operand(id, 1), updates = graph_.operand(id, 2);
    const Around to = around(id, graph_.attributes(id)[0]), from = around(places, graph_.attributes(id)[0]);
    const auto* place = reinterpret_cast<const std::int64_t*>(arrays_[places].get());
    std::byte* target = allocate(id);
    visit(graph_[id].dtype, [&]<class T>() {
      if constexpr (!std::same_as<T, bool>) {
        auto* y = reinterpret_cast<Stored<T>*>(target);
        std::copy_n(reinterpret_cast<const Stored<T>*>(arrays_[x].get()), graph_.elements(id), y);
        const auto* update = reinterpret_cast<const Stored<T>*>(arrays_[updates].get());
        for (std::int64_t o = 0; o < from.outer; ++o)
          for (std::int64_t k = 0; k < from.extent; ++k)
            for (std::int64_t i = 0; i < from.inner; ++i, ++place, ++update) {
              worked_(1);
              Stored<T>& sum = y[(o * to.extent + *place) * to.inner + i];
              sum = store(T(load<T>(sum) + load<T>(*update)));
            }
      }
    });
  }

  // Returns the strides of an operand's elements in arrays_.
  Strides strides_of(NodeId id) const {
    const List shape = graph_.shape(id), was = unspread_[id] ? graph_.shape(graph_.operand(id, 0)) : shape;
    Strides strides = contiguous(was);
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (was[i] != shape[i]) strides[i] = 0;
    return strides;
  }

  void contraction(NodeId id) {
    const Node node = graph_[id];
    const NodeId x[2] = {graph_.operand(id, 0), graph_.operand(id, 1)};
    const List shape = graph_.shape(x[0]), axes = graph_.attributes(id);
    const SumOrder order = contract_order(shape, axes, computed_type(node.dtype), node.op == Op::ContractLanes);
    std::byte* to = allocate(id);
    if (graph_.elements(id) == 0) return;
    std::vector<std::int64_t> kept_at[2], reduced_at[2];
    for (int k = 0; k < 2; ++k) {
      const Strides strides = strides_of(x[k]);
      Strides kept, reduced, kept_strides, reduced_strides;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        const bool is_reduced = std::ranges::find(axes, static_cast<std::int64_t>(i)) != axes.end();
        (is_reduced ? reduced : kept).push_back(shape[i]);
        (is_reduced ? reduced_strides : kept_strides).push_back(strides[i]);
      }
      kept_at[k] = places(kept, kept_strides);
      reduced_at[k] = places(reduced, reduced_strides);
    }
    visit(node.dtype, [&]<class T>() {
      if constexpr (!std::same_as<T, bool>) {
        auto* result = reinterpret_cast<Stored<T>*>(to);
        const auto *a = reinterpret_cast<const Stored<T>*>(arrays_[x[0]].get()),
                   *b = reinterpret_cast<const Stored<T>*>(arrays_[x[1]].get());
        std::vector<T> blocks;
        for (std::size_t i = 0; i < kept_at[0].size(); ++i)
          result[i] = contracted<T>(order, a + kept_at[0][i], b + kept_at[1][i], reduced_at[0], reduced_at[1], blocks, worked_);
        return;
      }
      throw InternalError("reference: " + std::string(info(node.op).text) + " is not defined for " + std::string(name_of(node.dtype)));
    });
  }

  void elementwise(NodeId id) {
    const Node node = graph_[id];
    const List ids = graph_.operands(id);
    const void* operands[3] = {};
    for (std::size_t i = 0; i < ids.size(); ++i) operands[i] = arrays_[static_cast<std::size_t>(ids[i])].get();
    const DType from = graph_[static_cast<NodeId>(ids.back())].dtype;
    std::byte* to = allocate(id);
    Expansion* const expansion = info(node.op).kind == OpKind::Expanded ? &Expansion::of(node.op, from, expansions_) : nullptr;
    const Loop loop = expansion ? nullptr : loop_of(node.op, from, node.dtype);
    worked_.in_parts(graph_.elements(id), [&](std::int64_t begin, std::int64_t end) {
      const void* part[3] = {};
      for (std::size_t i = 0; i < ids.size(); ++i)
        part[i] = static_cast<const std::byte*>(operands[i]) +
                  begin * static_cast<std::int64_t>(stored_size(graph_[static_cast<NodeId>(ids[i])].dtype));
      std::byte* const result = to + begin * static_cast<std::int64_t>(stored_size(node.dtype));
      if (expansion) expansion->run(part, result, end - begin);
      else loop(part, result, end - begin);
    });
    if (expansion) worked_(15 * graph_.elements(id));
  }

  Buffer output(NodeId id) const {
    const DType dtype = graph_[id].dtype;
    const List shape = graph_.shape(id);
    const std::int64_t n = graph_.elements(id);
    Buffer out{dtype, {shape.begin(), shape.end()}, std::vector<std::byte>(static_cast<std::size_t>(n) * size_of(dtype))};
    if (n == 0) return out;
    if (is_half(dtype)) {
      const auto* from = reinterpret_cast<const float*>(arrays_[id].get());
      auto* to = reinterpret_cast<std::uint16_t*>(out.bytes.data());
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = dtype == DType::F16 ? detail::bits_of_half<10, 5>(from[i]) : detail::bits_of_half<7, 8>(from[i]);
    } else {
      std::memcpy(out.bytes.data(), arrays_[id].get(), out.bytes.size());
    }
    return out;
  }

  const Graph& graph_;
  std::span<const ArrayView> inputs_;
  std::span<const std::uint64_t> slot_bits_;
  Worked worked_;
  std::vector<Array> arrays_;
  std::vector<std::uint32_t> uses_;
  std::vector<bool> unspread_;
  Expansions expansions_;
};

}  // namespace

std::uint64_t apply(Op op, DType from, DType to, std::span<const std::uint64_t> operands) {
  if (info(op).kind == OpKind::Expanded) {
    const Graph& graph = expansion(op, computed_type(from));
    std::vector<std::uint64_t> values(graph.size(), 0);
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node node = graph[id];
      if (node.op == Op::Input) values[id] = operands[node.bits];
      if (node.op == Op::Constant) values[id] = node.bits;
      if (!is_elementwise(node.op)) continue;
      std::array<std::uint64_t, 3> in{};
      const List ids = graph.operands(id);
      for (std::size_t i = 0; i < ids.size(); ++i) in[i] = values[static_cast<std::size_t>(ids[i])];
      values[id] = apply(node.op, graph[static_cast<NodeId>(ids.back())].dtype, node.dtype, std::span(in).first(ids.size()));
    }
    return values[graph.outputs[0]];
  }
  const void* in[3] = {};
  for (std::size_t i = 0; i < operands.size(); ++i) in[i] = &operands[i];
  std::uint64_t result = 0;
  loop_of(op, from, to)(in, &result, 1);
  return result;
}

std::vector<bool> unspread(const Graph& graph) {
  std::vector<bool> out(graph.size(), false);
  for (NodeId id = 0; id < graph.size(); ++id) out[id] = graph[id].op == Op::Broadcast;
  for (NodeId id : graph.outputs) out[id] = false;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!is_contraction(graph[id].op))
      for (std::int64_t o : graph.operands(id)) out[static_cast<std::size_t>(o)] = false;
  return out;
}

std::vector<Buffer> evaluate(const Graph& graph, std::span<const ArrayView> inputs, std::span<const std::uint64_t> slot_bits,
                             const std::function<void(std::int64_t)>& worked) {
  return Evaluator(graph, inputs, slot_bits, worked).run();
}

}  // namespace onepass::ir
