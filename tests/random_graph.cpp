// Random graphs and their shrinker. See random_graph.h.
#include "random_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "ir/verify.h"

namespace onepass::test {
namespace {

using namespace onepass::ir;
using Shape = std::vector<std::int64_t>;

// Uniform integers that are equal on every platform; std::uniform_int_distribution differs between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15 + 1) { engine_.discard(4); }
  std::uint64_t bits() { return engine_(); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class C> const auto& of(const C& c) { return c[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(c))))]; }

 private:
  std::mt19937_64 engine_;
};

std::uint64_t random_bits(Random& random, DType dtype) {
  if (dtype == DType::Bool) return random.bits() & 1;
  if (is_float(dtype)) {
    const bool wide = dtype == DType::F64;
    const int fraction = wide ? 52 : 23;
    const std::uint64_t sign = (random.bits() & 1) << (wide ? 63 : 31);
    const std::uint64_t infinity = wide ? 0x7ffull << 52 : 0x7f800000;
    switch (random.below(24)) {
      case 0: return sign;
      case 1: return sign | infinity;
      case 2: return infinity | std::uint64_t{1} << (fraction - 1);
      case 3: return sign | (random.bits() & ((std::uint64_t{1} << fraction) - 1));  // subnormal
      case 4: return sign | (infinity - 1);                                          // largest finite value
      case 5: return bits_of(dtype, static_cast<double>(random.below(7) - 3));
      case 6: return random.bits() & (wide ? ~std::uint64_t{0} : 0xffffffff);
      default:
        return bits_of(dtype, std::ldexp(static_cast<double>(random.below(1 << 24)) - (1 << 23), static_cast<int>(random.below(6)) - 24));
    }
  }
  const int width = 8 * static_cast<int>(size_of(dtype));
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - width);
  switch (random.below(8)) {
    case 0: return 0;
    case 1: return mask;                             // -1 or the largest
    case 2: return std::uint64_t{1} << (width - 1);  // the smallest signed value
    case 3: return random.bits() & mask;
    default: return static_cast<std::uint64_t>(random.below(41) - (is_signed_integer(dtype) ? 20 : 0)) & mask;
  }
}

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomGraphOptions& options) : random_(seed), options_(options) {
    for (int op = 0; op < kOpCount; ++op) {
      const auto o = static_cast<Op>(op);
      if (is_routine(o)) continue;  // not computed by a kernel; random programs have them
      if (is_source(o) || (is_reduction(o) && !options.reductions) || (o == Op::ReduceProd && !options.products)) continue;
      if (!is_source(o) && info(o).traits & kPartial) continue;  // the operands would have to be in range
      if (!options.reductions && (is_scan(o) || o == Op::ScatterAdd)) continue;
      if (o == Op::ScanProd && !options.products) continue;
      if (!options.allow || options.allow(o)) ops_.push_back(o);
    }
  }

  Graph make() {
    for (int i = 0; i < options_.inputs; ++i) {
      const Shape shape = random_shape();
      live_.push_back(graph_.add_input(std::string(1, static_cast<char>('a' + i % 26)), random_.of(options_.dtypes), shape));
    }
    if (live_.empty()) live_.push_back(source());
    for (int i = 0; i < options_.nodes; ++i) live_.push_back(random_.one_in(8) ? source() : node());
    // The last nodes, which depend on most of the other nodes, and some random nodes.
    for (int i = 0; i < options_.outputs; ++i) {
      const auto last = static_cast<std::int64_t>(live_.size());
      graph_.outputs.push_back(
          live_[static_cast<std::size_t>(random_.one_in(3) ? random_.below(last) : last - 1 - std::min(last - 1, random_.below(6)))]);
      graph_.output_names.push_back("y" + std::to_string(i));
    }
    verify(graph_, "random_graph");
    return prune(graph_);
  }

 private:
  Shape random_shape() {
    static constexpr std::int64_t extents[] = {1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 257};
    const std::int64_t rank =
        random_.one_in(3) ? random_.below(options_.max_rank + 1) : std::min<std::int64_t>(options_.max_rank, random_.below(4));
    Shape shape(static_cast<std::size_t>(rank));
    for (std::int64_t& e : shape) e = options_.zero_sizes && random_.one_in(40) ? 0 : random_.of(extents);
    while (room(shape) > options_.max_elements) shape[static_cast<std::size_t>(random_.below(rank))] = 1 + random_.below(3);
    return shape;
  }

  // Returns the number of elements with zero extents counted as 1, so that arrays combined with an empty array stay small too.
  static std::int64_t room(const Shape& shape) {
    std::int64_t n = 1;
    for (std::int64_t e : shape) n *= std::max<std::int64_t>(e, 1);
    return n;
  }

  List shape(NodeId id) const { return graph_.shape(id); }
  NodeId any() {  // prefers late nodes, so that graphs are deep
    const auto n = static_cast<std::int64_t>(live_.size());
    return live_[static_cast<std::size_t>(random_.one_in(2) ? n - 1 - std::min(n - 1, random_.below(5)) : random_.below(n))];
  }

  NodeId source() {
    const DType dtype = random_.of(options_.dtypes);
    return source_of(dtype, random_.one_in(4) || live_.empty() ? random_shape() : copy(shape(any())));
  }
  static Shape copy(List list) { return Shape(list.begin(), list.end()); }

  NodeId source_of(DType dtype, const Shape& s) {
    const ListId id = graph_.intern(s);
    if (!s.empty() && dtype != DType::Bool && random_.one_in(3)) {
      const std::int64_t axis = random_.below(static_cast<std::int64_t>(s.size()));
      return graph_.add(Op::Iota, dtype, id, {}, Shape{axis});
    }
    if (random_.one_in(2)) return graph_.constant(dtype, id, random_bits(random_, dtype));
    if (!graph_.slots.empty() && random_.one_in(4))
      return graph_.slot_node(static_cast<std::uint32_t>(random_.below(static_cast<std::int64_t>(graph_.slots.size()))), id);
    return graph_.add_slot(dtype, random_bits(random_, dtype), id);
  }

  NodeId node() {
    if (options_.reductions && options_.meetings > 0 && random_.one_in(options_.meetings))
      if (const NodeId made = meeting(any()); made != kNoNode) return made;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const Op op = random_.one_in(3) ? random_structural() : random_.of(ops_);
      NodeId made = kNoNode;
      if (is_view(op)) made = view(op, any());
      else if (op == Op::Piecewise) made = piecewise(any());
      else if (is_reduction(op)) made = reduction(op, any());
      else if (is_scan(op)) made = scan(op, any());
      else if (op == Op::Place) made = place(copy(shape(any())), 1 + random_.below(9), 0);
      else if (op == Op::Gather || op == Op::ScatterAdd) made = by_data(op, any());
      else made = elementwise(op);
      if (made != kNoNode) return made;
    }
    return source();
  }
  Op random_structural() {
    std::vector<Op> some;
    for (Op op : ops_)
      if (!is_elementwise(op)) some.push_back(op);
    return some.empty() ? random_.of(ops_) : random_.of(some);
  }

  // ---- elementwise: all operands are converted to the type and shape of the first operand

  NodeId elementwise(Op op) {
    const OpInfo& i = info(op);
    std::vector<DType> fitting;
    for (DType t : options_.dtypes) {
      const std::vector<DType> types = i.types == TypeRule::Choose ? std::vector{DType::Bool, t, t} : std::vector<DType>(i.arity, t);
      DType out{};
      if (i.types == TypeRule::Convert || i.types == TypeRule::Reinterpret || result_dtype(op, types, out)) fitting.push_back(t);
    }
    if (fitting.empty()) return kNoNode;
    const NodeId first = any();
    const DType own = graph_[first].dtype;
    const DType dtype = std::ranges::find(fitting, own) != fitting.end() ? own : random_.of(fitting);
    const Shape s = copy(shape(first));
    std::vector<std::int64_t> ids;
    std::vector<DType> types;
    for (int k = 0; k < i.arity; ++k) {
      const DType wanted = i.types == TypeRule::Choose && k == 0 ? DType::Bool : dtype;
      const NodeId id = as(k == 0 ? first : random_.one_in(6) ? source_of(wanted, s) : fit(any(), s), wanted);
      ids.push_back(id);
      types.push_back(wanted);
    }
    DType result = dtype;
    if (i.types == TypeRule::Convert) {
      result = random_.of(options_.dtypes);
    } else if (i.types == TypeRule::Reinterpret) {
      std::vector<DType> same;
      for (DType t : options_.dtypes)
        if (size_of(t) == size_of(dtype)) same.push_back(t);
      if (same.empty()) return kNoNode;
      result = random_.of(same);
    } else if (!result_dtype(op, types, result)) {
      return kNoNode;
    }
    // The sign of a NaN is not part of the bitwise guarantee, so these operators get no NaN.
    if (op == Op::Signbit || (op == Op::Bitcast && is_float(dtype))) ids[0] = no_nan(static_cast<NodeId>(ids[0]));
    if (op == Op::Copysign) ids[1] = no_nan(static_cast<NodeId>(ids[1]));
    return graph_.add(Node{op, result, graph_.intern(s), graph_.intern(ids), 0, 0});
  }

  NodeId no_nan(NodeId id) {
    const Node node = graph_[id];
    const NodeId is_nan = graph_.add(Op::Isnan, DType::Bool, node.shape, {id});
    return graph_.add(Op::Where, node.dtype, node.shape, {is_nan, graph_.constant(node.dtype, node.shape, 0), id});
  }

  NodeId as(NodeId id, DType dtype) {
    if (graph_[id].dtype == dtype) return id;
    return graph_.add(Op::Cast, dtype, graph_[id].shape, {id});
  }

  // Returns `id` cut, stretched or reshaped to shape s.
  NodeId fit(NodeId id, const Shape& s) {
    if (std::ranges::equal(shape(id), s)) return id;
    const DType dtype = graph_[id].dtype;
    if (graph_.elements(id) == element_count(s)) return graph_.add(Op::Reshape, dtype, graph_.intern(s), {id});
    // to the rank of s: leading axes are cut to their first element and dropped, or added
    while (shape(id).size() > s.size()) {
      Shape sum_shape = copy(shape(id).subspan(1));
      if (shape(id)[0] == 0) return source_of(dtype, s);
      if (shape(id)[0] != 1) {
        Shape start_and_step(2 * shape(id).size(), 0), cut = copy(shape(id));
        std::fill(start_and_step.begin() + static_cast<std::ptrdiff_t>(cut.size()), start_and_step.end(), 1);
        start_and_step[0] = random_.below(cut[0]);
        cut[0] = 1;
        id = graph_.add(Op::Slice, dtype, graph_.intern(cut), {id}, start_and_step);
      }
      id = graph_.add(Op::Reshape, dtype, graph_.intern(sum_shape), {id});
    }
    if (shape(id).size() < s.size()) {
      Shape longer = copy(shape(id));
      longer.insert(longer.begin(), s.size() - longer.size(), 1);
      id = graph_.add(Op::Reshape, dtype, graph_.intern(longer), {id});
    }
    Shape cut = copy(shape(id)), start(s.size(), 0), step(s.size(), 1);
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (cut[i] == 0 && s[i] != 0) return source_of(dtype, s);
      if (cut[i] != s[i] && cut[i] != 1) {
        cut[i] = s[i] < cut[i] && !random_.one_in(3) ? s[i] : 1;
        const std::int64_t spare = shape(id)[i] - cut[i];
        start[i] = random_.below(std::max<std::int64_t>(spare, 0) + 1);
        if (cut[i] > 0 && random_.one_in(3)) start[i] += cut[i] - 1, step[i] = -1;
      }
    }
    start.insert(start.end(), step.begin(), step.end());
    if (!std::ranges::equal(cut, shape(id))) id = graph_.add(Op::Slice, dtype, graph_.intern(cut), {id}, start);
    if (!std::ranges::equal(s, shape(id))) id = graph_.add(Op::Broadcast, dtype, graph_.intern(s), {id});
    return id;
  }

  // ---- views and reductions

  NodeId view(Op op, NodeId x) {
    const Shape from = copy(shape(x));
    const std::size_t rank = from.size();
    Shape to = from, attributes;
    switch (op) {
      case Op::Reshape: {
        to.clear();
        std::int64_t rest = element_count(from);
        if (rest == 0) {
          to = from;
          std::reverse(to.begin(), to.end());
          break;
        }
        while (rest > 1 && static_cast<int>(to.size()) + 1 < options_.max_rank && !random_.one_in(5)) {
          const std::int64_t divisors[] = {2, 3, 5, 7, 4, 16, rest};
          const std::int64_t d = random_.of(divisors);
          if (rest % d == 0) to.push_back(d), rest /= d;
          else if (random_.one_in(4)) to.push_back(1);
        }
        if (rest > 1) to.push_back(rest);
        break;
      }
      case Op::Permute:
        for (std::size_t i = 0; i < rank; ++i) attributes.push_back(static_cast<std::int64_t>(i));
        for (std::size_t i = rank; i > 1; --i)
          std::swap(attributes[i - 1], attributes[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(i)))]);
        for (std::size_t i = 0; i < rank; ++i) to[i] = from[static_cast<std::size_t>(attributes[i])];
        break;
      case Op::Broadcast: {
        bool stretched = false;
        for (std::int64_t& e : to)
          if (e == 1 && random_.one_in(2)) e = options_.zero_sizes && random_.one_in(20) ? 0 : 2 + random_.below(7), stretched = true;
        if (!stretched || room(to) > options_.max_elements) return kNoNode;
        break;
      }
      case Op::Slice: {
        Shape step;
        for (std::int64_t& e : to) {
          static constexpr std::int64_t steps[] = {1, 1, 1, 2, 3, -1, -1, -2};
          const std::int64_t s = random_.of(steps);
          const std::int64_t n = e == 0 || (options_.zero_sizes && random_.one_in(30)) ? 0 : 1 + random_.below((e - 1) / std::abs(s) + 1);
          const std::int64_t first = n == 0 ? 0 : random_.below(e - (n - 1) * std::abs(s));
          attributes.push_back(s > 0 || n == 0 ? first : first + (n - 1) * -s);
          step.push_back(s);
          e = n;
        }
        attributes.insert(attributes.end(), step.begin(), step.end());
        break;
      }
      case Op::Pad: {
        Shape step;
        for (std::int64_t& e : to) {
          static constexpr std::int64_t steps[] = {1, 1, 1, 2, 3, -1, -2};
          const std::int64_t s = random_.of(steps), low = random_.below(3), high = random_.below(3);
          const std::int64_t span = e == 0 ? 0 : (e - 1) * std::abs(s) + 1;
          attributes.push_back(s > 0 || e == 0 ? low : low + span - 1);
          step.push_back(s);
          e = low + span + high;
        }
        if (room(to) > options_.max_elements) return kNoNode;
        attributes.insert(attributes.end(), step.begin(), step.end());
        break;
      }
      case Op::Window: {
        if (rank == 0 || static_cast<int>(rank) >= options_.max_rank) return kNoNode;
        const auto axis = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(rank)));
        const std::int64_t n = from[axis], step = 1 + random_.below(3), spacing = 1 + random_.below(2);
        if (n == 0) return kNoNode;
        const std::int64_t width = 1 + random_.below(std::min<std::int64_t>((n - 1) / spacing + 1, 5));
        to[axis] = (n - 1 - (width - 1) * spacing) / step + 1;
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), width);
        if (room(to) > options_.max_elements) return kNoNode;
        attributes = {static_cast<std::int64_t>(axis), step, spacing};
        break;
      }
      case Op::Diagonal: {
        if (rank < 2) return kNoNode;
        const auto r = static_cast<std::int64_t>(rank);
        const std::int64_t a = random_.below(r), b = (a + 1 + random_.below(r - 1)) % r;
        const std::int64_t rows = from[static_cast<std::size_t>(a)], columns = from[static_cast<std::size_t>(b)];
        const std::int64_t offset =
            random_.below(std::min<std::int64_t>(rows, 4) + std::min<std::int64_t>(columns, 4) + 1) - std::min<std::int64_t>(rows, 4);
        attributes = {offset, a, b};
        to.clear();
        for (std::int64_t i = 0; i < r; ++i)
          if (i != a && i != b) to.push_back(from[static_cast<std::size_t>(i)]);
        to.push_back(
            std::max<std::int64_t>(0, std::min(rows + std::min<std::int64_t>(offset, 0), columns - std::max<std::int64_t>(offset, 0))));
        if (!options_.zero_sizes && to.back() == 0) return kNoNode;
        break;
      }
      default: return kNoNode;
    }
    return graph_.add(op, graph_[x].dtype, graph_.intern(to), {x}, attributes);
  }

  // Returns x joined with other values along one axis, or padded.
  NodeId piecewise(NodeId x) {
    const Shape from = copy(shape(x));
    if (from.empty()) return kNoNode;
    const std::size_t rank = from.size(), axis = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(rank)));
    const DType dtype = graph_[x].dtype;
    Shape to = from, boxes, operands;
    if (random_.one_in(3)) {
      Shape step;
      for (std::int64_t& e : to) {
        const std::int64_t s = random_.one_in(4) ? random_.one_in(2) ? 2 : -1 : 1, low = random_.below(3), high = random_.below(3);
        const std::int64_t span = e == 0 ? 0 : (e - 1) * std::abs(s) + 1;
        boxes.push_back(s > 0 || e == 0 ? low : low + span - 1);
        step.push_back(s);
        e = low + span + high;
      }
      boxes.insert(boxes.end(), step.begin(), step.end());
      operands = {x, as(source_of(dtype, {}), dtype)};
    } else {
      const std::int64_t count = random_.one_in(6) ? 5 + random_.below(8) : 2 + random_.below(3);
      const bool alike = random_.one_in(2);
      to[axis] = 0;
      for (std::int64_t k = 0; k < count; ++k) {
        Shape mine = from;
        if (k > 0 && !alike) mine[axis] = options_.zero_sizes && random_.one_in(12) ? 0 : 1 + random_.below(9);
        Shape box(rank, 0);
        box[axis] = to[axis];
        box.insert(box.end(), rank, 1);
        boxes.insert(boxes.end(), box.begin(), box.end());
        operands.push_back(k == 0 ? x : as(random_.one_in(8) ? source_of(dtype, mine) : fit(any(), mine), dtype));
        to[axis] += mine[axis];
      }
    }
    if (room(to) > options_.max_elements) return kNoNode;
    return graph_.add(Node{Op::Piecewise, dtype, graph_.intern(to), graph_.intern(operands), graph_.intern(boxes), 0});
  }

  NodeId reduction(Op op, NodeId x) {
    const Shape from = copy(shape(x));
    const bool adds = is_sum(op) || op == Op::ReduceProd;
    if (adds && graph_[x].dtype == DType::Bool) { x = as(x, DType::I64); }
    Shape axes, to;
    const int how = static_cast<int>(random_.below(4));  // 0: all axes; otherwise each with probability 1/2
    bool empty = false;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (how == 0 || random_.one_in(2)) {
        axes.push_back(static_cast<std::int64_t>(i));
        empty |= from[i] == 0;
      } else {
        to.push_back(from[i]);
      }
    }
    if (!adds && empty && element_count(to) != 0) return kNoNode;
    if (is_contraction(op)) {  // usually each array lacks axes that the other array has
      const DType dtype = graph_[x].dtype;
      NodeId other = as(fit(any(), from), dtype);
      if (random_.one_in(2)) x = stretched(x);
      if (random_.one_in(2)) other = stretched(other);
      return graph_.add(op, dtype, graph_.intern(to), {x, other}, axes);
    }
    return graph_.add(op, graph_[x].dtype, graph_.intern(to), {x}, axes);
  }
  // Returns the first index along some axes, broadcast along them.
  NodeId stretched(NodeId x) {
    const Shape to = copy(shape(x));
    Shape first = to, box(to.size(), 0);
    box.insert(box.end(), to.size(), 1);
    for (std::int64_t& e : first)
      if (e > 1 && random_.one_in(2)) e = 1;
    const NodeId slice = graph_.add(Op::Slice, graph_[x].dtype, graph_.intern(first), {x}, box);
    return graph_.add(Op::Broadcast, graph_[x].dtype, graph_.intern(to), {slice});
  }

  NodeId scan(Op op, NodeId x) {
    const Shape from = copy(shape(x));
    if (from.empty()) return kNoNode;
    if ((op == Op::ScanSum || op == Op::ScanProd) && graph_[x].dtype == DType::Bool) x = as(x, DType::I64);
    return graph_.add(op, graph_[x].dtype, graph_.intern(from), {x}, Shape{random_.below(static_cast<std::int64_t>(from.size()))});
  }

  // ---- common combinations that single random operators rarely produce: values that meet along other axes than they came from

  bool has(Op op) const { return std::ranges::find(ops_, op) != ops_.end(); }
  NodeId keep(NodeId id) {  // keeps the value as an operand for later nodes, and as an output
    if (id != kNoNode) live_.push_back(id);
    return id;
  }
  NodeId reshaped(NodeId id, const Shape& to) {
    return std::ranges::equal(shape(id), to) ? id : graph_.add(Op::Reshape, graph_[id].dtype, graph_.intern(to), {id});
  }
  NodeId broadcast(NodeId id, const Shape& to) {
    return std::ranges::equal(shape(id), to) ? id : graph_.add(Op::Broadcast, graph_[id].dtype, graph_.intern(to), {id});
  }
  NodeId any_reduction(NodeId x) {
    std::vector<Op> some;
    for (const Op op : ops_)
      if (is_reduction(op) && !is_contraction(op)) some.push_back(op);
    return some.empty() ? kNoNode : reduction(random_.of(some), x);
  }
  NodeId any_scan(NodeId x) {
    std::vector<Op> some;
    for (const Op op : ops_)
      if (is_scan(op)) some.push_back(op);
    return some.empty() ? kNoNode : scan(random_.of(some), x);
  }

  NodeId meeting(NodeId x) {
    if (!has(Op::Reshape) || !has(Op::Broadcast)) return kNoNode;
    switch (random_.below(4)) {
      case 0: return meets_itself(x);
      case 1: return of_one_place(x);
      case 2: return along_a_merged_axis(x);
      default: return scattered_and_seen(x);
    }
  }

  // Returns a reduction, a scan or another value, combined with itself along another axis: r[:, none] - r.
  NodeId meets_itself(NodeId x) {
    const NodeId r = random_.one_in(4) ? x : keep(random_.one_in(3) ? any_scan(x) : any_reduction(x));
    if (r == kNoNode) return kNoNode;
    const Shape from = copy(shape(r));
    if (from.empty() || from.size() > 3 || static_cast<int>(from.size()) >= options_.max_rank) return kNoNode;
    const auto n = static_cast<std::int64_t>(from.size());
    Shape first = from, second = from, to;
    first.insert(first.begin() + random_.below(n + 1), 1);
    second.insert(second.begin() + random_.below(n + 1), 1);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] != second[i] && first[i] != 1 && second[i] != 1) return kNoNode;
      to.push_back(first[i] == 1 ? second[i] : first[i]);
    }
    static constexpr Op ops[] = {Op::Sub, Op::Mul, Op::Maximum, Op::Less, Op::Add};
    const Op op = random_.of(ops);
    DType dtype = graph_[r].dtype;
    if (!has(op) || room(to) > options_.max_elements || !result_dtype(op, std::vector{dtype, dtype}, dtype)) return kNoNode;
    if (std::ranges::find(options_.dtypes, dtype) == options_.dtypes.end()) return kNoNode;
    const NodeId made = graph_.add(op, dtype, graph_.intern(to), {broadcast(reshaped(r, first), to), broadcast(reshaped(r, second), to)});
    if (!random_.one_in(3)) return made;
    const NodeId again = any_reduction(keep(made));
    return again == kNoNode ? made : again;
  }

  // Returns a gather with one index along an axis, or a reduction of it: sum(take(x, k, 1), 0).
  NodeId of_one_place(NodeId x) {
    const Shape from = copy(shape(x));
    if (!has(Op::Gather) || from.empty()) return kNoNode;
    const std::int64_t axis = random_.below(static_cast<std::int64_t>(from.size())), extent = from[static_cast<std::size_t>(axis)];
    if (extent == 0) return kNoNode;
    Shape many = from, rest = from;
    many[static_cast<std::size_t>(axis)] = 1;
    rest.erase(rest.begin() + axis);
    const NodeId index = place(random_.one_in(2) ? Shape{} : Shape{1}, extent, axis);
    const NodeId places = broadcast(reshaped(index, Shape(from.size(), 1)), many);
    const NodeId one = graph_.add(Op::Gather, graph_[x].dtype, graph_.intern(many), {x, places}, Shape{axis});
    const NodeId chosen = keep(reshaped(one, random_.one_in(2) ? rest : many));
    const NodeId made = any_reduction(chosen);
    return made == kNoNode ? chosen : made;
  }

  // Returns a scan along an axis that merges two axes: cumsum(repeat(x, 2, 0), 0), or a scan of two interleaved arrays.
  NodeId along_a_merged_axis(NodeId x) {
    const std::int64_t n = graph_.elements(x);
    if (n == 0 || 2 * n > options_.max_elements || options_.max_rank < 2) return kNoNode;
    x = reshaped(x, {n, 1});
    NodeId wide;
    std::int64_t times = 2;
    if (has(Op::Piecewise) && random_.one_in(2)) {
      const NodeId other = reshaped(as(fit(any(), {n}), graph_[x].dtype), {n, 1});
      const Shape boxes{0, 0, 1, 1, 0, 1, 1, 1};
      wide = graph_.add(
          Node{Op::Piecewise, graph_[x].dtype, graph_.intern(Shape{n, 2}), graph_.intern(Shape{x, other}), graph_.intern(boxes), 0});
    } else {
      times = std::min(2 + random_.below(3), options_.max_elements / n);
      wide = broadcast(x, {n, times});
    }
    return any_scan(reshaped(wide, {n * times}));
  }

  // Returns a value computed from the result of a scatter_add or scan, and keeps views of that result.
  NodeId scattered_and_seen(NodeId x) {
    const NodeId v = keep(has(Op::ScatterAdd) && has(Op::Gather) && !random_.one_in(4) ? by_data(Op::ScatterAdd, x) : any_scan(x));
    if (v == kNoNode) return kNoNode;
    keep(random_.one_in(2) && has(Op::Permute) ? view(Op::Permute, v) : reshaped(v, {graph_.elements(v)}));
    const DType dtype = graph_[v].dtype;
    DType out{};
    if (!has(Op::Add) || !result_dtype(Op::Add, std::vector{dtype, dtype}, out)) return v;
    return graph_.add(Op::Add, out, graph_[v].shape, {v, v});
  }

  // Returns valid indices of that shape, some of them negative.
  NodeId place(const Shape& shape, std::int64_t extent, std::int64_t axis) {
    const ListId id = graph_.intern(shape);
    const DType dtype = random_.one_in(2) ? DType::I32 : DType::I64;
    const auto number = [&](std::int64_t v) { return graph_.constant(dtype, id, bits_of(dtype, v)); };
    NodeId index = as(random_.one_in(6) ? source_of(dtype, shape) : fit(any(), shape), dtype);
    index = graph_.add(Op::Remainder, dtype, id, {index, number(extent)});
    if (random_.one_in(2)) index = graph_.add(Op::Sub, dtype, id, {index, number(extent)});
    return graph_.add(Op::Place, DType::I64, id, {index}, Shape{extent, axis, random_.below(4)});
  }

  NodeId by_data(Op op, NodeId x) {
    const Shape from = copy(shape(x));
    if (from.empty()) return kNoNode;
    const auto axis = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(from.size())));
    Shape many = from;
    many[axis] = 1 + random_.below(9);
    if (from[axis] == 0 || room(many) > options_.max_elements) return kNoNode;
    const auto along = static_cast<std::int64_t>(axis);
    const NodeId places = place(many, from[axis], along);
    if (op == Op::Gather) return graph_.add(op, graph_[x].dtype, graph_.intern(many), {x, places}, Shape{along});
    if (graph_[x].dtype == DType::Bool) x = as(x, DType::I64);
    const DType dtype = graph_[x].dtype;
    const NodeId updates = as(random_.one_in(6) ? source_of(dtype, many) : fit(any(), many), dtype);
    return graph_.add(op, dtype, graph_.intern(from), {x, places, updates}, Shape{along});
  }

  Random random_;
  const RandomGraphOptions& options_;
  std::vector<Op> ops_;
  Graph graph_;
  std::vector<NodeId> live_;
};

}  // namespace

Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options) { return Generator(seed, options).make(); }

namespace {

// Returns values of either sign, from 1/4 to 16. Sums of many such values are finite, so every element affects the result.
std::uint64_t ordinary_bits(Random& random, DType dtype) {
  if (!is_float(dtype)) return random_bits(random, dtype);
  const int fraction = dtype == DType::F64 ? 52 : dtype == DType::F32 ? 23 : dtype == DType::F16 ? 10 : 7;
  const int width = 8 * static_cast<int>(size_of(dtype)), bias = (1 << (width - fraction - 2)) - 1;
  const auto exponent = static_cast<std::uint64_t>(bias - 2 + random.below(6));
  return (random.bits() & 1) << (width - 1) | exponent << fraction | (random.bits() & ((std::uint64_t{1} << fraction) - 1));
}

}  // namespace

// One call in three has only ordinary values.
Arguments random_arguments(const Graph& graph, std::uint64_t seed, bool strided) {
  Random random(seed ^ 0x5bd1e995);
  const bool ordinary = Random(seed ^ 0x9e3779b9).one_in(3);
  Arguments out;
  for (const Input& input : graph.inputs) {
    const List list = graph.list(input.shape);
    const Shape shape(list.begin(), list.end());
    const std::size_t size = size_of(input.dtype);
    // Strides of a larger array, with its axes in any order, each with a step or reversed.
    Shape strides(shape.size());
    std::int64_t step = 1, offset = 0;
    Shape order;
    for (std::size_t i = shape.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
    if (strided)
      for (std::size_t i = order.size(); i > 1; --i)
        if (random.one_in(2)) std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
    const bool empty = element_count(shape) == 0;
    for (std::int64_t axis : order) {
      const auto a = static_cast<std::size_t>(axis);
      const std::int64_t extent = empty ? 1 : shape[a];
      const std::int64_t factor = strided && random.one_in(3) ? 1 + random.below(3) : 1;
      if (strided && random.one_in(12)) continue;  // stride 0: one element for the whole axis
      strides[a] = step * factor;
      if (strided && random.one_in(4)) offset += (extent - 1) * strides[a], strides[a] = -strides[a];
      step *= extent * factor + (strided && random.one_in(4) ? random.below(3) : 0);
    }
    std::vector<std::byte>& bytes = out.storage.emplace_back(static_cast<std::size_t>(step) * size);
    for (std::size_t i = 0; i < static_cast<std::size_t>(step); ++i) {
      std::uint64_t bits = ordinary ? ordinary_bits(random, input.dtype) : random_bits(random, input.dtype);
      if (is_half(input.dtype) && !ordinary) bits = random.bits() & 0xffff;
      std::memcpy(bytes.data() + i * size, &bits, size);  // all supported machines are little-endian
    }
    out.views.push_back({input.dtype, bytes.data() + static_cast<std::size_t>(offset) * size, shape, strided ? strides : Shape()});
  }
  return out;
}

bool equals_bitwise(const Buffer& a, const Buffer& b, std::string* what) {
  const auto say = [&](const std::string& text) {
    if (what) *what = text;
    return false;
  };
  if (a.dtype != b.dtype) return say("types " + std::string(name_of(a.dtype)) + " and " + std::string(name_of(b.dtype)));
  if (a.shape != b.shape) return say("shapes");
  const std::size_t size = size_of(a.dtype);
  const std::uint64_t exponent = a.dtype == f64 ? 0x7ffull << 52 : a.dtype == f32 ? 0x7f800000 : a.dtype == f16 ? 0x7c00 : 0x7f80;
  const std::uint64_t magnitude = ~std::uint64_t{0} >> (65 - 8 * size);
  for (std::size_t i = 0; i * size < a.bytes.size(); ++i) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, a.bytes.data() + i * size, size);
    std::memcpy(&y, b.bytes.data() + i * size, size);
    if (x == y || (is_float(a.dtype) && (x & magnitude) > exponent && (y & magnitude) > exponent)) continue;
    char text[200];
    const bool half = is_half(a.dtype);
    std::snprintf(text, sizeof text, "element %zu: %.17g (0x%llx) and %.17g (0x%llx)", i, half ? 0 : double_of(a.dtype, x),
                  static_cast<unsigned long long>(x), half ? 0 : double_of(a.dtype, y), static_cast<unsigned long long>(y));
    return say(text);
  }
  return true;
}

bool equals_bitwise(const std::vector<Buffer>& a, const std::vector<Buffer>& b, std::string* what) {
  if (a.size() != b.size()) {
    if (what) *what = "numbers of outputs";
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equals_bitwise(a[i], b[i], what)) {
      if (what) *what = "output " + std::to_string(i) + ", " + *what;
      return false;
    }
  return true;
}

// ---- shrinking

namespace {

// Rebuilds the graph with some nodes replaced. Returns nothing if the result would be invalid.
using Replace = std::function<NodeId(Graph& out, NodeId id, const Node& node)>;  // node has its new operands; kNoNode keeps it
std::optional<Graph> rebuilt(const Graph& graph, const Replace& replace) {
  Graph out;
  out.slots = graph.slots;
  std::vector<NodeId> now(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node node = graph[id];
    node.shape = out.intern(graph.shape(id));
    node.attributes = out.intern(graph.attributes(id));
    Shape operands;
    for (std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.operands = out.intern(operands);
    now[id] = replace(out, id, node);
    if (now[id] != kNoNode) continue;
    if (node.op == Op::Input) {
      const Shape shape(graph.shape(id).begin(), graph.shape(id).end());
      now[id] = out.add_input(graph.inputs[node.bits].name, node.dtype, shape);
    } else {
      now[id] = out.add(node);
    }
  }
  for (NodeId id : graph.outputs) out.outputs.push_back(now[id]);
  out.output_names = graph.output_names;
  if (find_violation(out)) return std::nullopt;
  return out;
}

// Removes unneeded nodes, and unread inputs, which prune keeps.
Graph tidy(const Graph& graph) {
  const Graph pruned = prune(graph);
  std::vector<bool> read(pruned.size(), false);
  for (NodeId id = 0; id < pruned.size(); ++id)
    for (std::int64_t o : pruned.operands(id)) read[static_cast<std::size_t>(o)] = true;
  for (NodeId id : pruned.outputs) read[id] = true;
  Graph out;
  out.slots = pruned.slots;
  std::vector<NodeId> now(pruned.size(), kNoNode);
  for (NodeId id = 0; id < pruned.size(); ++id) {
    Node node = pruned[id];
    if (node.op == Op::Input) {
      const Shape shape(pruned.shape(id).begin(), pruned.shape(id).end());
      if (read[id]) now[id] = out.add_input(pruned.inputs[node.bits].name, node.dtype, shape);
      continue;
    }
    Shape operands;
    for (std::int64_t o : pruned.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.shape = out.intern(pruned.shape(id));
    node.operands = out.intern(operands);
    node.attributes = out.intern(pruned.attributes(id));
    now[id] = out.add(node);
  }
  for (NodeId id : pruned.outputs) out.outputs.push_back(now[id]);
  out.output_names = pruned.output_names;
  return out;
}

// Returns the graph with other extents of its inputs and sources. Recomputes shapes; returns nothing if a view no longer fits.
std::optional<Graph> with_extents(const Graph& graph, const std::function<std::int64_t(std::int64_t)>& extent) {
  Graph out;
  out.slots = graph.slots;
  std::vector<NodeId> now(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node node = graph[id];
    Shape shape(graph.shape(id).begin(), graph.shape(id).end()), attributes(graph.attributes(id).begin(), graph.attributes(id).end()),
        operands;
    for (std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    const List from = operands.empty() ? List{} : out.shape(static_cast<NodeId>(operands[0]));
    const Shape old(operands.empty() ? List{}.begin() : graph.shape(graph.operand(id, 0)).begin(),
                    operands.empty() ? List{}.begin() : graph.shape(graph.operand(id, 0)).end());
    const std::size_t rank = from.size();
    if (node.op == Op::Place) return std::nullopt;  // an attribute of Place is the axis length
    if (is_elementwise(node.op) || is_scan(node.op)) {
      shape.assign(from.begin(), from.end());
    } else if (node.op == Op::Permute) {
      for (std::size_t i = 0; i < rank; ++i) shape[i] = from[static_cast<std::size_t>(attributes[i])];
    } else if (is_reduction(node.op)) {
      shape.clear();
      for (std::size_t i = 0; i < rank; ++i)
        if (std::ranges::find(attributes, static_cast<std::int64_t>(i)) == attributes.end()) shape.push_back(from[i]);
    } else if (node.op == Op::Diagonal) {
      shape.clear();
      for (std::size_t i = 0; i < rank; ++i)
        if (static_cast<std::int64_t>(i) != attributes[1] && static_cast<std::int64_t>(i) != attributes[2]) shape.push_back(from[i]);
      const std::int64_t rows = from[static_cast<std::size_t>(attributes[1])], columns = from[static_cast<std::size_t>(attributes[2])];
      shape.push_back(std::max<std::int64_t>(
          0, std::min(rows + std::min<std::int64_t>(attributes[0], 0), columns - std::max<std::int64_t>(attributes[0], 0))));
    } else if (node.op == Op::Window) {  // windows keep their width where it fits
      const auto axis = static_cast<std::size_t>(attributes[0]);
      const std::int64_t n = from[axis], width = n == 0 ? 0 : std::min(shape[axis], (n - 1) / attributes[2] + 1);
      shape.assign(from.begin(), from.end());
      shape[axis] = width == 0 ? 0 : (n - 1 - (width - 1) * attributes[2]) / attributes[1] + 1;
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), width);
    } else if (node.op == Op::Slice) {
      for (std::size_t i = 0; i < rank; ++i) {  // the same bounds and steps as far as possible
        shape[i] = old[i] == from[i] ? shape[i] : std::min(shape[i], extent(shape[i]));
        std::int64_t& start = attributes[i];
        const std::int64_t step = attributes[rank + i];
        if (from[i] == 0) {
          shape[i] = 0;
        } else if (shape[i] > 0) {
          const std::int64_t reach = (shape[i] - 1) * std::abs(step);
          if (reach >= from[i]) shape[i] = (from[i] - 1) / std::abs(step) + 1;
          const std::int64_t now_reach = (shape[i] - 1) * std::abs(step);
          start = step > 0 ? std::min(start, from[i] - 1 - now_reach) : std::max(std::min(start, from[i] - 1), now_reach);
        }
      }
    } else if (node.op == Op::Pad) {
      for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t lost = (old[i] - from[i]) * std::abs(attributes[rank + i]);
        shape[i] -= lost;
        if (attributes[rank + i] < 0) attributes[i] -= lost;
      }
    } else if (node.op == Op::Broadcast) {
      for (std::size_t i = 0; i < rank; ++i) shape[i] = old[i] == shape[i] ? from[i] : extent(shape[i]);
    } else {
      for (std::int64_t& e : shape) e = extent(e);  // sources, and reshapes if they fit
      if (node.op == Op::Reshape && element_count(shape) != element_count(from)) return std::nullopt;
    }
    if (node.op == Op::Input) {
      now[id] = out.add_input(graph.inputs[node.bits].name, node.dtype, shape);
      continue;
    }
    for (std::int64_t e : shape)
      if (e < 0) return std::nullopt;
    node.shape = out.intern(shape);
    node.operands = out.intern(operands);
    node.attributes = out.intern(attributes);
    now[id] = out.add(node);
  }
  for (NodeId id : graph.outputs) out.outputs.push_back(now[id]);
  out.output_names = graph.output_names;
  if (find_violation(out)) return std::nullopt;
  return out;
}

std::int64_t weight(const Graph& graph) {  // measure that shrinking reduces: nodes first, then elements
  std::int64_t elements = 0, ranks = 0, sources = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    elements += graph.elements(id), ranks += static_cast<std::int64_t>(graph.shape(id).size());
    sources += is_source(graph[id].op) ? 0 : 1;
  }
  return (static_cast<std::int64_t>(graph.size()) * 4 + sources + static_cast<std::int64_t>(graph.outputs.size())) * 10'000'000 +
         elements * 10 + ranks;
}

}  // namespace

Graph shrink(Graph graph, const std::function<bool(const Graph&)>& fails, int budget) {
  const auto still_fails = [&](const std::optional<Graph>& candidate, Graph& best) {
    if (!candidate || budget <= 0) return false;
    Graph small = tidy(*candidate);
    if (weight(small) >= weight(best)) return false;
    --budget;
    bool failing = true;
    try {
      failing = fails(small);
    } catch (...) {  // an exception counts as a failure too
    }
    if (failing) best = std::move(small);
    return failing;
  };

  still_fails(tidy(graph), graph);
  for (bool progress = true; progress && budget > 0;) {
    progress = false;
    // only one output, then one output fewer
    for (std::size_t i = 0; graph.outputs.size() > 1 && i < graph.outputs.size(); ++i) {
      Graph one = graph;
      one.outputs = {graph.outputs[i]};
      one.output_names = graph.output_names.empty() ? graph.output_names : std::vector{graph.output_names[i]};
      if (still_fails(one, graph)) {
        progress = true;
        break;
      }
    }
    for (std::size_t i = 0; graph.outputs.size() > 1 && i < graph.outputs.size(); ++i) {
      Graph less = graph;
      less.outputs.erase(less.outputs.begin() + static_cast<std::ptrdiff_t>(i));
      if (!less.output_names.empty()) less.output_names.erase(less.output_names.begin() + static_cast<std::ptrdiff_t>(i));
      if (still_fails(less, graph)) progress = true, --i;
    }
    // an output moves to one of its operands
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      for (std::size_t k = 0; k < graph.operands(graph.outputs[i]).size(); ++k) {
        Graph earlier = graph;
        earlier.outputs[i] = graph.operand(graph.outputs[i], static_cast<int>(k));
        if (still_fails(earlier, graph)) {
          progress = true;
          break;
        }
      }
    }
    // a node becomes an operand of its type and shape, or an input
    for (NodeId at = graph.size(); at-- > 0;) {
      if (at >= graph.size()) continue;
      const Node target = graph[at];
      if (target.op == Op::Place) continue;  // a Place node is the only check of its indices
      bool replaced = false;
      for (std::size_t k = 0; !replaced && k < graph.operands(at).size(); ++k) {
        const NodeId o = graph.operand(at, static_cast<int>(k));
        if (graph[o].dtype != target.dtype || !std::ranges::equal(graph.shape(o), graph.shape(at))) continue;
        replaced =
            still_fails(rebuilt(graph, [&](Graph& out, NodeId id,
                                           const Node& node) { return id == at ? static_cast<NodeId>(out.operands(node)[k]) : kNoNode; }),
                        graph);
      }
      if (!replaced && target.op != Op::Input)
        replaced = still_fails(rebuilt(graph,
                                       [&](Graph& out, NodeId id, const Node& node) {
                                         const Shape shape(out.list(node.shape).begin(), out.list(node.shape).end());
                                         return id == at ? out.add_input("x" + std::to_string(id), node.dtype, shape) : kNoNode;
                                       }),
                               graph);
      progress |= replaced;
    }
    // smaller extents: for each extent that occurs, all its occurrences change at once
    std::vector<std::int64_t> extents;
    for (NodeId id = 0; id < graph.size(); ++id)
      for (std::int64_t e : graph.shape(id))
        if (e > 1 && std::ranges::find(extents, e) == extents.end()) extents.push_back(e);
    for (std::int64_t e : extents)
      for (const std::int64_t to : {std::int64_t{1}, std::int64_t{2}, e / 2, e - 1})
        if (to > 0 && to < e && still_fails(with_extents(graph, [&](std::int64_t x) { return x == e ? to : x; }), graph)) {
          progress = true;
          break;
        }
  }
  return graph;
}

std::string failure_report(std::uint64_t seed, const Graph& shrunk) {
  return "random graph of seed " + std::to_string(seed) + " fails; shrunk:\n" + print(shrunk);
}

}  // namespace onepass::test
