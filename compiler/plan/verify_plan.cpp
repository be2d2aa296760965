// See verify_plan.h. PlanVerifier checks the subdomains of one group; GraphPoints traces values through the graph.
#include "compiler/plan/verify_plan.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include <fmt/format.h>

#include "compiler/loops/contract.h"
#include "compiler/plan/expression.h"
#include "compiler/plan/routine.h"
#include "compiler/plan/scratch.h"
#include "ir/of_thread.h"
#include "ir/order.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::NodeId;
using ir::Op;
using Kind = Statement::Kind;

namespace {

constexpr std::uint32_t kNone = Statement::kNone;
constinit std::atomic<std::int64_t> points_to_compare{0};

// ------------------------------------------------------------------------------------------------ sets of elements

// Arithmetic in the field of integers modulo the prime 2^61 - 1.
constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
__extension__ using Wide = unsigned __int128;
constexpr std::uint64_t field_times(std::uint64_t a, std::uint64_t b) {
  const Wide product = Wide{a} * b;
  const std::uint64_t sum = static_cast<std::uint64_t>(product & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}
constexpr std::uint64_t field_plus(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}
constexpr std::uint64_t field_power(std::uint64_t z, std::uint64_t n) {
  std::uint64_t out = 1;
  for (; n; n >>= 1, z = field_times(z, z))
    if (n & 1) out = field_times(out, z);
  return out;
}

// A variable of the polynomials: one for elements, one for members of an array list.
struct Point {
  std::uint64_t z, inverse;
  constexpr explicit Point(std::uint64_t z) : z(z), inverse(field_power(z, kPrime - 2)) {}
  constexpr std::uint64_t power(std::int64_t n) const {
    return n < 0 ? field_power(inverse, std::uint64_t{0} - static_cast<std::uint64_t>(n)) : field_power(z, static_cast<std::uint64_t>(n));
  }
};
constexpr Point kElement(0x0123456789abcdefull), kMember(0x0fedcba987654321ull);

// Returns 1 + ratio + … + ratio^(n-1).
std::uint64_t geometric_sum(std::uint64_t ratio, std::int64_t n) {
  std::uint64_t sum = 0, power = 1;
  for (int bit = 63 - __builtin_clzll(static_cast<std::uint64_t>(n) | 1); n > 0 && bit >= 0; --bit) {
    sum = field_times(sum, field_plus(1, power));
    power = field_times(power, power);
    if (n >> bit & 1) {
      sum = field_plus(field_times(sum, ratio), 1);
      power = field_times(power, ratio);
    }
  }
  return sum;
}

// ------------------------------------------------------------------------------------------------ values as hashes

constexpr std::uint64_t kZeroValue = 0x5a5a;  // a constant with bits 0; also the padding of a Pad
enum class Leaf : std::uint64_t { Memory = 1, Slot, Index, Constant, Operator };
std::uint64_t leaf(Leaf kind, std::uint64_t a, std::uint64_t b) { return mix(mix(static_cast<std::uint64_t>(kind) * 0x9E37, a), b); }
std::uint64_t constant_value(std::uint64_t bits) { return bits == 0 ? kZeroValue : leaf(Leaf::Constant, bits, 0); }
std::uint64_t operator_value(Op op, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return mix(mix(leaf(Leaf::Operator, static_cast<std::uint64_t>(op), a), b), c);
}
// Value of a checked index at a point: the last index, or a random index derived from the index's operands.
enum class Places : std::uint8_t { Last, Drawn };
std::int64_t place_of(Places places, std::uint64_t index_value, std::int64_t bound) {
  if (bound <= 0) return 0;
  return places == Places::Last ? bound - 1 : static_cast<std::int64_t>(mix(index_value, 0x71) % static_cast<std::uint64_t>(bound));
}
// Returns the element offset of an index, by strides or row-major.
std::int64_t element_of(List shape, const Layout& layout, const std::int64_t* index) {
  std::int64_t at = 0, stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) at += index[i] * (layout ? (*layout)[i] : stride);
  return at;
}

// Sets the lowest and highest element offset of an array, relative to its first element.
void reach_of(List shape, const Layout& layout, std::int64_t& low, std::int64_t& high) {
  low = high = 0;
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i])
    (layout && (*layout)[i] < 0 ? low : high) += (shape[i] - 1) * (layout ? (*layout)[i] : stride);
}

// Computes the index of an element offset. Returns false if the offset is in a gap between the elements.
bool index_of(List shape, const Layout& layout, std::int64_t element, std::vector<std::int64_t>& index) {
  index.assign(shape.size(), 0);
  if (!layout) {
    for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) {
      if (element < 0 || shape[i] == 0) return false;
      index[i] = element % shape[i];
    }
    return element == 0;
  }
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] == 1) continue;
    if ((*layout)[i] < 0) element -= (shape[i] - 1) * (*layout)[i];
    axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) { return std::abs((*layout)[a]) > std::abs((*layout)[b]); });
  for (const std::size_t i : axes) {
    const std::int64_t stride = std::abs((*layout)[i]);
    if (stride == 0 || element < 0) return false;
    const std::int64_t at = std::min(element / stride, shape[i] - 1);
    element -= at * stride;
    index[i] = (*layout)[i] < 0 ? shape[i] - 1 - at : at;
  }
  return element == 0;
}

// ------------------------------------------------------------------------------------------------ the graph, at one point

// Values of the graph at given indices, within one group. Uses explicit stacks, because graphs are deep.
class GraphPoints {
 public:
  GraphPoints(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts)
      : graph_(graph),
        partition_(partition),
        group_(group),
        layouts_(layouts),
        has_lists_(!partition.lists.read.empty()),
        first_(scratch().first),
        known_(scratch().known),
        tables_(scratch().tables),
        indices_(scratch().indices),
        begins_(scratch().begins),
        stack_(scratch().stack) {
    if (first_.size() < graph.size()) first_.resize(graph.size());
  }
  ~GraphPoints() {  // frees the memory of a large plan after its last group
    constexpr std::size_t most = 1 << 14;
    if (group_ + 1 < partition_.groups.size()) return;
    if (first_.size() > most || known_.size() > most || tables_.size() > most || indices_.capacity() > most || stack_.capacity() > most)
      scratch() = {};
  }
  GraphPoints(const GraphPoints&) = delete;

  // Discards all values for a new point. `domain` is by domain axis; only reduced axes are used.
  void begin(std::span<const std::int64_t> domain, Places places) {
    domain_ = domain;
    places_ = places;
    epoch_ = ++scratch().epoch;
    used_ = 0;
    indices_.clear();
    begins_.clear();
  }

  std::uint64_t value(NodeId id, std::span<const std::int64_t> index) {
    std::uint32_t at = intern(index);
    resolve(id, at);
    stack_.assign(1, {id, at});
    while (!stack_.empty()) {
      const auto [node, where] = stack_.back();
      if (lookup(node, where) || step(node, where)) stack_.pop_back();
    }
    return *lookup(id, at);
  }

 private:
  struct Entry {
    NodeId id = ir::kNoNode;
    std::uint32_t at = 0;
    std::uint64_t epoch = 0, value = 0;
  };
  struct TableEntry {
    std::uint64_t epoch = 0;
    std::uint32_t index = 0;
  };
  static constexpr std::uint32_t kOutside = kNone;  // as an index: in the padding of a Pad

  struct Range {
    std::uint32_t begin, rank;
  };
  // Memory that a thread reuses between plans, so that small plans allocate nothing. Entries of earlier epochs are free.
  struct Scratch {
    std::uint64_t epoch = 0;
    std::vector<Entry> first;                            // by node: the first index met, usually the only index
    std::vector<Entry> known = std::vector<Entry>(256);  // at other indices
    std::vector<TableEntry> tables = std::vector<TableEntry>(64);
    std::vector<std::int64_t> indices;
    std::vector<Range> begins;
    std::vector<std::pair<NodeId, std::uint32_t>> stack;
  };
  static Scratch& scratch() { return ir::OfThread<Scratch>::get(); }

  const Graph& graph_;
  const Partition& partition_;
  std::uint32_t group_;
  std::span<const Layout> layouts_;
  bool has_lists_;
  std::span<const std::int64_t> domain_;
  Places places_ = Places::Drawn;
  std::uint64_t epoch_ = 0;
  std::vector<Entry>& first_;
  std::vector<Entry>& known_;  // open addressing
  std::size_t used_ = 0;
  std::vector<TableEntry>& tables_;     // interned indices
  std::vector<std::int64_t>& indices_;  // concatenated
  std::vector<Range>& begins_;
  std::vector<std::pair<NodeId, std::uint32_t>>& stack_;
  std::vector<std::int64_t> new_index_;

  // Does the same as Partition::loads.
  bool loads(NodeId id, Op op) const {
    return is_given(id, op) || (partition_.group_of[id] < group_ && !ir::is_view(op) && !ir::is_source(op));
  }
  bool is_given(NodeId id, Op op) const { return op == Op::Input || (has_lists_ && partition_.lists.reads(id)); }

  std::uint32_t intern(std::span<const std::int64_t> index) {
    std::uint64_t h = index.size();
    for (const std::int64_t i : index) h = mix(h, static_cast<std::uint64_t>(i));
    if (2 * begins_.size() >= tables_.size()) {
      tables_.assign(4 * tables_.size(), {});
      for (std::uint32_t k = 0; k < begins_.size(); ++k) {
        std::uint64_t hash = begins_[k].rank;
        for (std::uint32_t i = 0; i < begins_[k].rank; ++i) hash = mix(hash, static_cast<std::uint64_t>(indices_[begins_[k].begin + i]));
        std::size_t slot = hash & (tables_.size() - 1);
        while (tables_[slot].epoch == epoch_) slot = (slot + 1) & (tables_.size() - 1);
        tables_[slot] = {epoch_, k};
      }
    }
    std::size_t slot = h & (tables_.size() - 1);
    for (; tables_[slot].epoch == epoch_; slot = (slot + 1) & (tables_.size() - 1)) {
      const Range& r = begins_[tables_[slot].index];
      if (r.rank == index.size() && std::equal(index.begin(), index.end(), indices_.begin() + r.begin)) return tables_[slot].index;
    }
    const auto k = static_cast<std::uint32_t>(begins_.size());
    tables_[slot] = {epoch_, k};
    begins_.push_back({static_cast<std::uint32_t>(indices_.size()), static_cast<std::uint32_t>(index.size())});
    indices_.insert(indices_.end(), index.begin(), index.end());
    return k;
  }
  const std::int64_t* index(std::uint32_t at) const { return indices_.data() + begins_[at].begin; }

  static std::size_t hash_of(NodeId id, std::uint32_t at) { return mix(id, at); }
  const std::uint64_t* lookup(NodeId id, std::uint32_t at) const {
    const Entry& first = first_[id];
    if (first.epoch != epoch_) return nullptr;
    if (first.at == at) return &first.value;
    for (std::size_t slot = hash_of(id, at) & (known_.size() - 1); known_[slot].epoch == epoch_; slot = (slot + 1) & (known_.size() - 1))
      if (known_[slot].id == id && known_[slot].at == at) return &known_[slot].value;
    return nullptr;
  }
  void put(const Entry& entry) {
    std::size_t slot = hash_of(entry.id, entry.at) & (known_.size() - 1);
    while (known_[slot].epoch == epoch_) slot = (slot + 1) & (known_.size() - 1);
    known_[slot] = entry;
  }
  bool settle(NodeId id, std::uint32_t at, std::uint64_t value) {
    if (first_[id].epoch != epoch_) {
      first_[id] = {id, at, epoch_, value};
      return true;
    }
    if (2 * ++used_ > known_.size()) {
      const std::vector<Entry> old = std::exchange(known_, std::vector<Entry>(4 * known_.size()));
      for (const Entry& e : old)
        if (e.epoch == epoch_) put(e);
    }
    put({id, at, epoch_, value});
    return true;
  }

  // Follows views and pass-through operators to the node that computes or holds the value.
  void resolve(NodeId& id, std::uint32_t& at) {
    while (at != kOutside) {
      const Op op = graph_[id].op;
      const bool is_list = has_lists_ && partition_.lists.reads(id);
      if (!is_list && loads(id, op)) return;
      if (ir::is_view(op)) {
        if (op == Op::Pad) into_box(id, at);
        else at = composed(id, at), id = graph_.operand(id, 0);
      } else if (op == Op::Piecewise) {
        into_box(id, at);
      } else if (is_passed_through(op)) {
        id = graph_.operand(id, 0);
      } else if (ir::is_reduction(op) && !ir::is_contraction(op) && !is_empty(id) && is_of_units(id)) {
        at = operand_index(id, at), id = graph_.operand(id, 0);
      } else if (ir::is_scan(op) && graph_.shape(id)[static_cast<std::size_t>(graph_.attributes(id)[0])] == 1) {
        id = graph_.operand(id, 0);
      } else {
        return;
      }
    }
  }
  bool is_empty(NodeId id) const {
    const Op op = graph_[id].op;
    return (ir::is_sum(op) || op == Op::ReduceProd) && graph_.elements(graph_.operand(id, 0)) == 0;
  }
  bool is_of_units(NodeId id) const { return graph_.elements(graph_.operand(id, 0)) == graph_.elements(id); }

  // Moves to the operand of a Pad or Piecewise that has the element.
  void into_box(NodeId& id, std::uint32_t& at) {
    const List attributes = graph_.attributes(id), operands = graph_.operands(id);
    const std::size_t rank = graph_.shape(id).size();
    if (rank == 0) {
      id = static_cast<NodeId>(operands[0]);
      return;
    }
    const std::size_t boxes = attributes.size() / (2 * rank);
    for (std::size_t k = 0; k < boxes; ++k) {
      const List start = attributes.subspan(2 * rank * k, rank), step = attributes.subspan(2 * rank * k + rank, rank),
                 was = graph_.shape(static_cast<NodeId>(operands[k]));
      new_index_.assign(rank, 0);
      bool inside = true;
      for (std::size_t i = 0; inside && i < rank; ++i) {
        const std::int64_t away = index(at)[i] - start[i];
        inside = was[i] == 1 ? away == 0 : away % step[i] == 0;
        new_index_[i] = was[i] == 1 ? 0 : away / step[i];
        inside = inside && new_index_[i] >= 0 && new_index_[i] < was[i];
      }
      if (!inside) continue;
      id = static_cast<NodeId>(operands[k]);
      at = intern(new_index_);
      return;
    }
    if (operands.size() > boxes) {
      id = static_cast<NodeId>(operands[boxes]);
      at = intern({});
    } else {
      at = kOutside;
    }
  }

  std::uint32_t composed(NodeId id, std::uint32_t at) {
    const NodeId from = graph_.operand(id, 0);
    const List shape = graph_.shape(id), was = graph_.shape(from), attributes = graph_.attributes(id);
    const std::int64_t* const i = index(at);
    std::vector<std::int64_t>& out = new_index_;
    out.assign(was.size(), 0);
    switch (graph_[id].op) {
      case Op::Permute:
        for (std::size_t k = 0; k < shape.size(); ++k) out[static_cast<std::size_t>(attributes[k])] = i[k];
        break;
      case Op::Broadcast:
        for (std::size_t k = 0; k < shape.size(); ++k) out[k] = was[k] == 1 ? 0 : i[k];
        break;
      case Op::Slice:
        for (std::size_t k = 0; k < shape.size(); ++k) out[k] = attributes[k] + attributes[shape.size() + k] * i[k];
        break;
      case Op::Diagonal: {
        const auto one = static_cast<std::size_t>(attributes[1]), two = static_cast<std::size_t>(attributes[2]);
        std::size_t next = 0;
        for (std::size_t k = 0; k < was.size(); ++k)
          if (k != one && k != two) out[k] = i[next++];
        out[one] = i[next] + std::max<std::int64_t>(0, -attributes[0]);
        out[two] = i[next] + std::max<std::int64_t>(0, attributes[0]);
        break;
      }
      case Op::Window: {
        const auto axis = static_cast<std::size_t>(attributes[0]);
        for (std::size_t k = 0; k < was.size(); ++k)
          out[k] = k == axis ? i[axis] * attributes[2] + i[axis + 1] * attributes[1] : i[k + (k > axis)];
        break;
      }
      default: {  // Reshape
        std::int64_t position = 0;
        for (std::size_t k = 0; k < shape.size(); ++k) position = position * shape[k] + i[k];
        for (std::size_t k = was.size(); k-- > 0; position /= std::max<std::int64_t>(was[k], 1))
          out[k] = position % std::max<std::int64_t>(was[k], 1);
      }
    }
    return intern(out);
  }

  // Returns the index of a reduction's operand: `at` along non-reduced axes, the domain point along reduced axes.
  std::uint32_t operand_index(NodeId id, std::uint32_t at) {
    const List shape = graph_.shape(graph_.operand(id, 0)), reduced = graph_.attributes(id);
    const std::vector<std::int64_t>& domain = partition_.groups[group_].domain;
    new_index_.assign(shape.size(), 0);
    std::size_t kept = 0, axis = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t position = 0;
      for (std::int64_t product = 1; product < shape[i] && axis < domain.size(); product *= domain[axis++])
        position = position * domain[axis] + domain_[axis];
      const bool is_reduced = std::binary_search(reduced.begin(), reduced.end(), static_cast<std::int64_t>(i));
      new_index_[i] = is_reduced ? (shape[i] == 1 ? 0 : position) : index(at)[kept++];
    }
    return intern(new_index_);
  }

  // Returns the value if it is known. Otherwise, pushes its first unknown operand on the stack and returns null.
  const std::uint64_t* operand(NodeId id, std::uint32_t at) {
    static constexpr std::uint64_t zero = kZeroValue;
    resolve(id, at);
    if (at == kOutside) return &zero;
    if (const std::uint64_t* const value = lookup(id, at)) return value;
    stack_.emplace_back(id, at);
    return nullptr;
  }

  bool step(NodeId id, std::uint32_t at) {
    if (at == kOutside) return settle(id, at, kZeroValue);
    const ir::Node node = graph_[id];
    if (loads(id, node.op)) {
      static const Layout contiguous;  // kernels read the unrounded F32 copy of a half
      const Layout& layout = is_half(node.dtype) && !is_given(id, node.op) ? contiguous : layouts_[id];
      return settle(id, at, leaf(Leaf::Memory, id, static_cast<std::uint64_t>(element_of(graph_.shape(id), layout, index(at)))));
    }
    switch (ir::info(node.op).kind) {
      case ir::OpKind::Source:
        if (node.op == Op::Constant) return settle(id, at, constant_value(node.bits));
        if (node.op == Op::Slot) return settle(id, at, leaf(Leaf::Slot, node.bits, 0));
        return settle(id, at, leaf(Leaf::Index, static_cast<std::uint64_t>(index(at)[graph_.attributes(id)[0]]), 0));
      case ir::OpKind::Gather: {
        const NodeId x = graph_.operand(id, 0);
        if (graph_.elements(x) == 0) return settle(id, at, kZeroValue);
        const std::uint64_t* const place = operand(graph_.operand(id, 1), at);
        if (!place) return false;
        const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
        new_index_.assign(index(at), index(at) + graph_.shape(id).size());
        new_index_[axis] = place_of(places_, *place, graph_.shape(x)[axis]);
        const std::uint64_t* const value = operand(x, intern(new_index_));
        return value && settle(id, at, *value);
      }
      case ir::OpKind::Scatter: {  // the initial value; updates have other indices
        const std::uint64_t* const value = operand(graph_.operand(id, 0), at);
        return value && settle(id, at, *value);
      }
      case ir::OpKind::Reduction:
        if (is_empty(id)) return settle(id, at, constant_value(ir::bits_of(node.dtype, std::int64_t{node.op == Op::ReduceProd})));
        return apply(id, at, is_of_units(id) ? Op::Mul : node.op, operand_index(id, at));
      case ir::OpKind::Place: {
        const std::uint64_t* const value = operand(graph_.operand(id, 0), at);
        return value && settle(id, at, operator_value(Op::Place, *value, static_cast<std::uint64_t>(graph_.attributes(id)[0]), 0));
      }
      default: return apply(id, at, node.op, at);
    }
  }

  bool apply(NodeId id, std::uint32_t at, Op op, std::uint32_t operand_at) {
    const List operands = graph_.operands(id);
    std::uint64_t values[3] = {};
    bool all = true;
    for (std::size_t k = 0; k < operands.size() && k < 3; ++k) {
      const std::uint64_t* const value = operand(static_cast<NodeId>(operands[k]), operand_at);
      if (value) values[k] = *value;
      else all = false;
    }
    return all && settle(id, at, operator_value(op, values[0], values[1], values[2]));
  }
};

// ------------------------------------------------------------------------------------------------ the nests of a group

struct Interval {
  std::int64_t low, high;
  void add(std::int64_t factor, const Interval& by) {
    low += factor * (factor < 0 ? by.high : by.low);
    high += factor * (factor < 0 ? by.low : by.high);
  }
};

class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
               std::span<const Planned> pieces, std::span<const Layout> targets)
      : graph_(graph),
        partition_(partition),
        group_(partition.groups[group]),
        layouts_(layouts),
        targets_(targets),
        pieces_(pieces),
        points_(graph, partition, group, layouts) {}

  std::string run() {
    for (const Planned& piece : pieces_)
      if (!enter(piece) || !structure() || !bounds()) return report(&piece);
    if (!cover()) return report(nullptr);
    for (const Planned& piece : pieces_)
      if (!enter(piece) || !compare()) return report(&piece);
    return {};
  }

 private:
  struct StoreOf {  // a store of a subdomain
    NodeId node;
    std::int32_t output;
    std::uint32_t piece, statement;
  };

  const Graph& graph_;
  const Partition& partition_;
  const Group& group_;
  std::span<const Layout> layouts_, targets_;
  std::span<const Planned> pieces_;
  GraphPoints points_;
  std::string problem_;
  // State of the current subdomain.
  const Nest* nest_ = nullptr;
  const NestNumbers* numbers_ = nullptr;
  std::vector<bool> behind_;  // fused columns and their dependents; empty if there are none
  std::vector<std::uint64_t> derived_loops_;
  std::uint8_t needed_sweeps_ = 1;
  std::vector<Interval> ranges_;          // by variable
  std::vector<std::uint32_t> undecided_;  // loads whose bounds are checked at points
  std::vector<std::int64_t> at_;          // loop indices at a point
  std::vector<std::int64_t> derived_at_;  // floordiv/mod variables at the point
  std::vector<std::uint64_t> values_;     // by statement, at the point; for a Guard: whether it holds
  std::vector<std::int64_t> domain_, index_;
  Places places_ = Places::Last;  // values of checked indices at the point

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  std::string report(const Planned* piece) const {
    std::string out = "plan: " + problem_ + "\n";
    constexpr std::size_t most = 4;
    for (std::size_t k = 0; k < pieces_.size() && (piece || k < most); ++k)
      if (!piece || piece == &pieces_[k]) out += print(pieces_[k].nest, pieces_[k].numbers);
    return out;
  }

  bool enter(const Planned& piece) {
    nest_ = &piece.nest;
    numbers_ = &piece.numbers;
    behind_.clear();
    if (nest_->has_columns()) behind_ = nest_->behind_columns();
    return true;
  }
  bool is_behind(std::uint32_t statement) const { return !behind_.empty() && behind_[statement]; }
  bool is_loop(std::size_t variable) const { return variable < nest_->loops(); }
  std::size_t variables() const { return nest_->loops() + nest_->derived.size(); }
  std::int64_t coefficient(std::uint32_t linear, std::size_t variable) const { return numbers_->coefficients[linear][variable]; }

  // ---- structure

  bool structure() {
    const Nest& n = *nest_;
    const NestNumbers& m = *numbers_;
    if (n.loops() > 64 || m.extents.size() != n.loops()) return fail("the number of extents does not match the number of loops");
    if (m.offsets.size() != n.linears.size() || m.coefficients.size() != n.linears.size() || m.by.size() != n.derived.size() ||
        m.bounds.size() != n.checks.size() || m.buffers.size() != n.buffers.size() || m.members.size() != n.buffers.size() ||
        m.outputs.size() != n.buffers.size() || m.slots.size() != n.slots.size() || m.signs.size() != n.slots.size())
      return fail("the nest and the nest parameters do not match");
    const std::uint64_t inner = n.reduced_mask();
    for (std::uint32_t l = 0; l < n.loops(); ++l)
      if (m.extents[l] < 0 || (m.extents[l] == 0 && !(inner >> l & 1))) return fail(fmt::format("loop i{} has extent {}", l, m.extents[l]));
    for (std::uint32_t k = 0; k < n.linears.size(); ++k) {
      if (n.linears[k].of.size() != variables() || m.coefficients[k].size() != variables())
        return fail(fmt::format("affine map {} has the wrong number of variables", k));
      for (std::size_t v = 0; v < variables(); ++v)
        if (!is_of_class(n.linears[k].of[v], m.coefficients[k][v]))
          return fail(fmt::format("the coefficient {} of affine map {} does not match its kind", m.coefficients[k][v], k));
    }
    derived_loops_.clear();
    for (std::uint32_t q = 0; q < n.derived.size(); ++q) {
      const Derived& d = n.derived[q];
      if (d.place != kNone) {
        if (d.place >= n.body.size()) return fail(fmt::format("q{} does not refer to a statement", q));
        derived_loops_.push_back(n.body[d.place].loops);
        continue;
      }
      if (d.linear >= n.linears.size() || m.by[q] < 1) return fail(fmt::format("q{} is divided by {}", q, m.by[q]));
      for (std::size_t later = n.loops() + q; later < variables(); ++later)
        if (coefficient(d.linear, later) != 0) return fail(fmt::format("q{} depends on q{}", q, later - n.loops()));
      derived_loops_.push_back(loops_of(d.linear));
    }
    for (const Access& a : n.accesses)
      if (a.buffer >= n.buffers.size() || a.linear >= n.linears.size() || (a.table != kNone && a.table >= n.linears.size()) ||
          !is_of_family(a))
        return fail("an access has no buffer, or its access group is wrong");
    for (const Check& c : n.checks)
      if (c.linear >= n.linears.size()) return fail("a bounds check has no affine map");
    needed_sweeps_ = 1;
    for (std::uint32_t i = 0; i < n.body.size(); ++i)
      if (!statement(i)) return false;
    if (n.sweeps != needed_sweeps_) return fail(fmt::format("{} sweeps are planned, but the reductions need {}", n.sweeps, needed_sweeps_));
    return modes();
  }

  static bool is_of_class(Coefficient c, std::int64_t number) {
    switch (c) {
      case Coefficient::General: return true;
      case Coefficient::Zero: return number == 0;
      case Coefficient::One: return number == 1;
      case Coefficient::MinusOne: return number == -1;
      default: return number == number_of(c);
    }
  }

  std::uint64_t loops_of(std::uint32_t linear) const {
    std::uint64_t mask = 0;
    for (std::size_t v = 0; v < variables(); ++v)
      if (coefficient(linear, v) != 0) mask |= is_loop(v) ? std::uint64_t{1} << v : derived_loops_[v - nest_->loops()];
    return mask;
  }

  // True if the loads of an interleaved access group read elements with stride c along the vector loop, at offsets below c from the first.
  bool is_of_family(const Access& a) const {
    if (a.first == Access::kNone) return a.place == 0;
    if (a.first >= nest_->accesses.size()) return false;
    const Access& first = nest_->accesses[a.first];
    return first.buffer == a.buffer && first.first == a.first && first.place == 0 && first.linear < nest_->linears.size() &&
           a.place < coefficient(a.linear, nest_->vector_loop()) && nest_->linears[a.linear].of[nest_->vector_loop()] >= Coefficient::Two &&
           numbers_->coefficients[first.linear] == numbers_->coefficients[a.linear] &&
           numbers_->offsets[a.linear] == numbers_->offsets[first.linear] + a.place;
  }

  bool statement(std::uint32_t i) {
    const Nest& n = *nest_;
    const Statement& s = n.body[i];
    const std::uint64_t inner = n.reduced_mask();
    const bool accumulates = s.kind == Kind::Reduce || s.kind == Kind::Scan;
    std::uint64_t varies = 0;
    std::uint8_t stage = 0;
    for (const std::uint32_t o : {s.a, s.b, s.c, s.guard}) {
      if (o == kNone) continue;
      if (o >= i || n.body[o].kind == Kind::Store) return fail(fmt::format("v{} is used before it is computed", o));
      if (o != s.guard && n.body[o].kind != Kind::Guard) stage = std::max(stage, n.body[o].stage);
      // the affine map has its loops
      const bool is_place = o == s.a && (s.kind == Kind::Load || s.kind == Kind::Index || s.kind == Kind::Guard);
      if (!is_behind(i) && !is_place) varies |= n.body[o].loops;
    }
    if (s.kind == Kind::Reduce) needed_sweeps_ = std::max(needed_sweeps_, ++stage);
    if (s.kind == Kind::Store && !is_behind(i) && s.loops & inner) needed_sweeps_ = std::max<std::uint8_t>(needed_sweeps_, stage + 1);
    if (is_behind(i)) stage = n.sweeps;
    if (s.stage != stage) return fail(fmt::format("v{} is computed in sweep {}, but its operands need sweep {}", i, s.stage, stage));
    if (s.guard != kNone && n.body[s.guard].kind != Kind::Guard) return fail(fmt::format("v{} is not a guard", s.guard));
    switch (s.kind) {
      case Kind::Load:
      case Kind::Store: {
        if (s.at >= n.accesses.size()) return fail(fmt::format("v{} has no access", i));
        const Access& access = n.accesses[s.at];
        if (n.buffers[access.buffer].written != (s.kind == Kind::Store))
          return fail(fmt::format("v{} does not match the use of its buffer", i));
        if (s.kind == Kind::Store && s.a == kNone) return fail("nothing is stored");
        if (s.guard != kNone && access.first != Access::kNone)
          return fail(fmt::format("v{} has a guard, but whole vectors of its group are read", i));
        if (!is_behind(i)) varies |= loops_of(access.linear) | (access.table == kNone ? 0 : loops_of(access.table));
        break;
      }
      case Kind::Index:
        if (s.at >= n.linears.size()) return fail(fmt::format("v{} is not an index", i));
        if (!is_behind(i)) varies |= loops_of(s.at);
        break;
      case Kind::Slot:
        if (s.at >= n.slots.size()) return fail(fmt::format("v{} is not a scalar parameter", i));
        break;
      case Kind::Guard:
        if (s.at + s.count > n.checks.size()) return fail(fmt::format("v{} has no checks", i));
        for (std::uint32_t c = s.at; !is_behind(i) && c < s.at + s.count; ++c) varies |= loops_of(n.checks[c].linear);
        break;
      case Kind::Op: {
        const std::uint32_t operands[] = {s.a, s.b, s.c};
        for (int k = 0; k < ir::info(s.op).arity && k < 3; ++k)
          if (operands[k] == kNone) return fail(fmt::format("v{} lacks an operand", i));
        break;
      }
      case Kind::Place:
        if (s.a == kNone || s.at >= n.checks.size()) return fail(fmt::format("v{} is not a checked index", i));
        break;
      case Kind::Reduce: varies &= ~inner; [[fallthrough]];
      case Kind::Scan:
        if (s.a == kNone) return fail(fmt::format("v{} has no operand", i));
        break;
      case Kind::Constant: break;
    }
    if (accumulates && n.kind == NestKind::Rows) varies &= ~(std::uint64_t{1} << n.vector_loop());
    for (std::uint64_t left = varies & ~s.loops; left; left &= left - 1)  // loops of one iteration change nothing
      if (numbers_->extents[static_cast<std::size_t>(__builtin_ctzll(left))] == 1) varies &= ~(left & -left);
    if (varies & ~s.loops) return fail(fmt::format("v{} varies along a loop that is missing from its loops", i));
    return true;
  }

  // True if store i and the following stores, one per interleaved index, write adjacent elements along the vector loop. The predicate of
  // the last store says where the row ends, so the predicates must count along that row.
  bool are_side_by_side(std::uint32_t i) const {
    const Nest& n = *nest_;
    const std::uint32_t count = n.body[i].count, vector = n.vector_loop();
    if (i + count > n.body.size()) return false;
    const Statement &first = n.body[i], &last = n.body[i + count - 1];
    const auto moves_on = [&](std::uint32_t linear, std::uint32_t from, std::int64_t by) {
      return coefficient(linear, vector) == count && numbers_->coefficients[linear] == numbers_->coefficients[from] &&
             numbers_->offsets[linear] == numbers_->offsets[from] + by;
    };
    for (std::uint32_t k = 0; k < count; ++k) {
      const Statement& s = n.body[i + k];
      if (s.kind != Kind::Store || n.accesses[s.at].buffer != n.accesses[first.at].buffer ||
          !moves_on(n.accesses[s.at].linear, n.accesses[first.at].linear, k))
        return false;
      if (s.guard == kNone) continue;
      if (last.guard == kNone || n.body[s.guard].count != 1 || n.body[last.guard].count != 1) return false;
      const std::uint32_t mine = n.body[s.guard].at, of_last = n.body[last.guard].at;
      if (numbers_->bounds[mine] != numbers_->bounds[of_last] ||
          !moves_on(n.checks[mine].linear, n.checks[of_last].linear, std::int64_t{k} - (count - 1)))
        return false;
    }
    return true;
  }

  // Checks the requirements of special forms.
  bool modes() {
    const Nest& n = *nest_;
    if (n.short_rows && (n.kind != NestKind::Map || n.loops() != 1 || n.phases != 1 || n.has(Kind::Scan) || n.derived.empty()))
      return fail("rows in sequence must not be short rows");
    if (n.short_rows)
      for (const Derived& d : n.derived)
        if (d.place != kNone || coefficient(d.linear, 0) != 1 || numbers_->offsets[d.linear] != 0 ||
            numbers_->by[&d - n.derived.data()] != numbers_->by[0])
          return fail("short rows must have one length");
    for (std::uint32_t i = 0; i < n.body.size(); ++i)
      if (n.body[i].kind == Kind::Store && n.body[i].count > 1 && !are_side_by_side(i))
        return fail(fmt::format("v{} and the {} stores after it are not adjacent", i, n.body[i].count - 1));
    if (n.has(Kind::Reduce) || n.addition()) {
      const std::uint64_t inner = n.reduced_mask(), ordered = group_.reduced | group_.ordered;
      std::int64_t loops = 1, elements = 1, kept_loops = 1, kept = 1;
      for (std::uint32_t l = 0; l < n.loops(); ++l) (inner >> l & 1 ? loops : kept_loops) *= numbers_->extents[l];
      for (std::size_t i = 0; i < group_.domain.size(); ++i) (ordered >> i & 1 ? elements : kept) *= group_.domain[i];
      if (loops != elements) return fail(fmt::format("{} elements are reduced in {} iterations", elements, loops));
      if (kept_loops != kept) return fail(fmt::format("{} elements are stored in {} iterations", kept, kept_loops));
    }
    return true;
  }

  // ---- bounds

  NodeId base_of(NodeId id) const {
    while (ir::is_view(graph_[id].op)) id = graph_.operand(id, 0);
    return id;
  }
  std::int64_t bound_of_place(std::uint32_t statement) const {
    const Statement& s = nest_->body[statement];
    if (s.kind == Kind::Place) return numbers_->bounds[s.at];
    if (s.kind != Kind::Load) return -1;
    // An earlier kernel stored the index, maybe without a check. The indexed axis then gives the bound.
    const NodeId stored = base_of(numbers_->buffers[nest_->accesses[s.at].buffer]);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if ((graph_[id].op == Op::Gather || graph_[id].op == Op::ScatterAdd) && base_of(graph_.operand(id, 1)) == stored)
        return graph_.shape(graph_.operand(id, 0))[static_cast<std::size_t>(graph_.attributes(id)[0])];
    return 0;
  }

  void set_ranges(std::vector<Interval>& ranges) const {
    ranges.clear();
    for (const std::int64_t e : numbers_->extents) ranges.push_back({0, std::max<std::int64_t>(e - 1, 0)});
    for (std::uint32_t q = 0; q < nest_->derived.size(); ++q) ranges.push_back(range_of_derived(q, ranges));
  }
  Interval range_of_derived(std::uint32_t q, const std::vector<Interval>& ranges) const {
    const Derived& d = nest_->derived[q];
    if (d.place != kNone) return {0, std::max<std::int64_t>(bound_of_place(d.place) - 1, 0)};
    Interval of{numbers_->offsets[d.linear], numbers_->offsets[d.linear]};
    for (std::size_t v = 0; v < nest_->loops() + q; ++v)
      if (const std::int64_t c = coefficient(d.linear, v)) of.add(c, ranges[v]);
    const std::int64_t by = numbers_->by[q], low = floor_div(of.low, by), high = floor_div(of.high, by);
    if (!d.modulo) return {low, high};
    return low == high ? Interval{of.low - low * by, of.high - low * by} : Interval{0, by - 1};
  }

  // An affine map whose terms can be modified.
  struct Terms {
    std::int64_t offset;
    std::vector<std::int64_t> of;
  };
  Terms terms_of(std::uint32_t linear) const { return {numbers_->offsets[linear], numbers_->coefficients[linear]}; }

  // Replaces by * (x div by) + x mod by with x.
  void rejoin(Terms& t) const {
    for (std::uint32_t r = static_cast<std::uint32_t>(nest_->derived.size()); r-- > 0;) {
      const Derived& rest = nest_->derived[r];
      const std::size_t vr = nest_->loops() + r;
      if (rest.place != kNone || !rest.modulo || t.of[vr] == 0) continue;
      for (std::uint32_t q = 0; q < nest_->derived.size(); ++q) {
        const Derived& whole = nest_->derived[q];
        const std::size_t vq = nest_->loops() + q;
        if (whole.place != kNone || whole.modulo || numbers_->by[q] != numbers_->by[r] || t.of[vq] != t.of[vr] * numbers_->by[r] ||
            numbers_->offsets[whole.linear] != numbers_->offsets[rest.linear] ||
            numbers_->coefficients[whole.linear] != numbers_->coefficients[rest.linear])
          continue;
        const std::int64_t factor = std::exchange(t.of[vr], 0);
        t.of[vq] = 0;
        t.offset += factor * numbers_->offsets[rest.linear];
        for (std::size_t v = 0; v < variables(); ++v) t.of[v] += factor * coefficient(rest.linear, v);
        break;
      }
    }
  }

  Interval interval(const Terms& t, const std::vector<Interval>& ranges) const {
    Interval out{t.offset, t.offset};
    for (std::size_t v = 0; v < t.of.size(); ++v)
      if (t.of[v]) out.add(t.of[v], ranges[v]);
    return out;
  }

  // Same as interval(), but treats quotients of one loop's index together with the index. x is x mod b + b*((x div b) mod c) + …, and each
  // of these digits has a separate range.
  Interval interval_of_digits(Terms t) const {
    Interval all{0, 0};
    for (std::uint32_t l = 0; l < nest_->loops(); ++l) {
      std::vector<std::uint32_t> quotients;
      for (std::uint32_t q = 0; q < nest_->derived.size(); ++q)
        if (t.of[nest_->loops() + q] != 0 && is_quotient_of(q, l)) quotients.push_back(q);
      std::ranges::sort(quotients, {}, [&](std::uint32_t q) { return numbers_->by[q]; });
      std::int64_t inside = 1, factor = t.of[l];
      const bool nested =
          std::ranges::all_of(quotients, [&](std::uint32_t q) { return numbers_->by[q] % std::exchange(inside, numbers_->by[q]) == 0; });
      if (quotients.empty() || !nested) continue;
      const std::int64_t last = ranges_[l].high;
      inside = 1;
      for (const std::uint32_t q : quotients) {
        const std::int64_t by = numbers_->by[q];
        all.add(factor, {0, std::min(by / inside - 1, last / inside)});
        factor = factor * (by / inside) + std::exchange(t.of[nest_->loops() + q], 0);
        inside = by;
      }
      all.add(factor, {0, last / inside});
      t.of[l] = 0;
    }
    const Interval rest = interval(t, ranges_);
    return {all.low + rest.low, all.high + rest.high};
  }
  bool is_quotient_of(std::uint32_t q, std::uint32_t loop) const {
    const Derived& d = nest_->derived[q];
    if (d.place != kNone || d.modulo || numbers_->offsets[d.linear] != 0) return false;
    for (std::size_t v = 0; v < variables(); ++v)
      if (coefficient(d.linear, v) != (v == loop ? 1 : 0)) return false;
    return true;
  }

  // Narrows the ranges of variables by checks on a single variable. Returns false if no value passes.
  bool narrow(std::uint32_t guard, std::vector<Interval>& ranges) const {
    const Statement& g = nest_->body[guard];
    for (std::uint32_t c = g.at; c < g.at + g.count; ++c) {
      const std::uint32_t linear = nest_->checks[c].linear;
      std::size_t variable = 0, count = 0;
      for (std::size_t v = 0; v < variables(); ++v)
        if (coefficient(linear, v)) variable = v, ++count;
      if (count == 0 && (numbers_->offsets[linear] < 0 || numbers_->offsets[linear] >= numbers_->bounds[c])) return false;
      if (count != 1) continue;
      const std::int64_t k = coefficient(linear, variable), offset = numbers_->offsets[linear], last = numbers_->bounds[c] - 1;
      Interval& range = ranges[variable];  // 0 <= k*x + offset <= last
      const std::int64_t low = k > 0 ? -floor_div(offset, k) : -floor_div(last - offset, -k),
                         high = k > 0 ? floor_div(last - offset, k) : floor_div(offset, -k);
      range.low = std::max(range.low, low), range.high = std::min(range.high, high);
      if (range.low > range.high) return false;
    }
    return true;
  }

  // Sets the element range of the array that a load reads, relative to its first element.
  void reach_of_buffer(std::uint32_t buffer, std::int64_t& low, std::int64_t& high) const {
    const NodeId node = numbers_->buffers[buffer];
    const Layout contiguous;
    reach_of(graph_.shape(node), numbers_->outputs[buffer] == NestNumbers::kUnrounded ? contiguous : layouts_[node], low, high);
  }

  bool bounds() {
    undecided_.clear();
    set_ranges(ranges_);
    for (const std::int64_t e : numbers_->extents)
      if (e == 0) return true;  // no load runs
    for (std::uint32_t i = 0; i < nest_->body.size(); ++i) {
      const Statement& s = nest_->body[i];
      if (s.kind != Kind::Load) continue;
      const Access& access = nest_->accesses[s.at];
      if (access.table != kNone || !numbers_->members[access.buffer].empty()) {  // array lists are checked at the points
        undecided_.push_back(i);
        continue;
      }
      if (graph_.elements(numbers_->buffers[access.buffer]) == 0 && s.guard == kNone)
        return fail(fmt::format("v{} reads an empty array", i));
      std::int64_t low, high;
      reach_of_buffer(access.buffer, low, high);
      Terms t = terms_of(access.linear);
      const Interval plain = interval_of_digits(t);
      if (plain.low >= low && plain.high <= high) continue;
      bool affine = true;  // a checked index may have any value below its bound
      for (std::size_t v = nest_->loops(); v < variables(); ++v)
        affine = affine && (t.of[v] == 0 || nest_->derived[v - nest_->loops()].place != kNone);
      if (affine && s.guard == kNone)
        return fail(fmt::format("v{} reads elements {} .. {} of %{}, which has elements {} .. {}", i, plain.low, plain.high,
                                numbers_->buffers[access.buffer], low, high));
      if (!guarded(s, t, low, high)) undecided_.push_back(i);
    }
    return true;
  }

  // True if the load is within the array wherever its predicate holds.
  bool guarded(const Statement& s, Terms& t, std::int64_t low, std::int64_t high) const {
    rejoin(t);
    std::vector<Interval> ranges = ranges_;
    Interval rest{0, 0};
    if (s.guard != kNone) {
      if (!narrow(s.guard, ranges)) return true;
      const Statement& g = nest_->body[s.guard];
      for (std::uint32_t c = g.at; c < g.at + g.count; ++c) {  // a check of several variables, as a part of the affine map
        const std::uint32_t linear = nest_->checks[c].linear;
        std::int64_t factor = 0;
        std::size_t count = 0;
        for (std::size_t v = 0; v < variables(); ++v)
          if (const std::int64_t k = coefficient(linear, v)) {
            if (count++ == 0 && t.of[v] % k == 0) factor = t.of[v] / k;
          }
        bool fits = count > 1 && factor != 0;
        for (std::size_t v = 0; fits && v < variables(); ++v)
          if (const std::int64_t k = coefficient(linear, v)) fits = t.of[v] == factor * k;
        if (!fits) continue;
        for (std::size_t v = 0; v < variables(); ++v) t.of[v] -= factor * coefficient(linear, v);
        t.offset -= factor * numbers_->offsets[linear];
        rest.add(factor, {0, numbers_->bounds[c] - 1});
      }
    }
    const Interval all = interval(t, ranges);
    return all.low + rest.low >= low && all.high + rest.high <= high;
  }

  // ---- cover

  // Returns the loops that a store runs in. Each of their iterations stores once.
  std::uint64_t loops_of_store(std::uint32_t statement) const {
    const std::uint64_t inner = nest_->reduced_mask(), all = (std::uint64_t{2} << nest_->vector_loop()) - 1;
    if (is_behind(statement)) return inner;
    return nest_->body[statement].loops & inner ? all : all & ~inner;
  }

  const Layout& layout_of_store(NodeId id, std::int32_t output) const {
    static const Layout contiguous;
    if (output == NestNumbers::kUnrounded) return contiguous;
    if (targets_.empty()) return graph_[id].op == Op::Input ? contiguous : layouts_[id];
    for (std::size_t k = 0; k < graph_.outputs.size(); ++k)
      if (graph_.outputs[k] == id && output-- == 0) return targets_[k];
    return layouts_[id];
  }

  // True if the planner must store this output of the node, according to the graph's outputs.
  bool expects(NodeId root, std::int32_t output) const {
    const auto copies = static_cast<std::int32_t>(std::count(graph_.outputs.begin(), graph_.outputs.end(), root)) +
                        static_cast<std::int32_t>(partition_.lists.places_of(root).size());
    if (output == NestNumbers::kUnrounded) return is_half(graph_[root].dtype) && (copies == 0 || partition_.read_again[root]);
    return output < (is_half(graph_[root].dtype) ? copies : std::max(copies, 1));
  }

  bool cover() {
    std::vector<StoreOf> stores;
    for (std::uint32_t p = 0; p < pieces_.size(); ++p)
      for (std::uint32_t i = 0; i < pieces_[p].nest.body.size(); ++i)
        if (const Statement& s = pieces_[p].nest.body[i]; s.kind == Kind::Store) {
          const std::uint32_t buffer = pieces_[p].nest.accesses[s.at].buffer;
          stores.push_back({pieces_[p].numbers.buffers[buffer], pieces_[p].numbers.outputs[buffer], p, i});
        }
    std::stable_sort(stores.begin(), stores.end(),
                     [](const StoreOf& a, const StoreOf& b) { return a.node != b.node ? a.node < b.node : a.output < b.output; });
    std::size_t found = 0;
    for (std::size_t k = 0, end = 0; k < stores.size(); k = end) {
      while (end < stores.size() && stores[end].node == stores[k].node && stores[end].output == stores[k].output) ++end;
      if (std::find(group_.roots.begin(), group_.roots.end(), stores[k].node) == group_.roots.end() ||
          !expects(stores[k].node, stores[k].output))
        return fail(fmt::format("%{} is stored, but the group does not need it", stores[k].node));
      if (!covers(std::span(stores).subspan(k, end - k))) return false;
      ++found;
    }
    for (const NodeId root : group_.roots)
      for (std::int32_t output = NestNumbers::kUnrounded; graph_.elements(root) != 0 && (output < 0 || expects(root, output)); ++output)
        found -= expects(root, output);
    if (found != 0 && !(pieces_.empty() && is_nothing_added())) return fail("a value of the group is not stored");
    return true;
  }
  // True if the updates have no elements, so that nothing is added.
  bool is_nothing_added() const { return group_.ordered != 0 && std::ranges::find(group_.domain, 0) != group_.domain.end(); }

  bool covers(std::span<const StoreOf> stores) {
    const NodeId node = stores[0].node;
    enter(pieces_[stores[0].piece]);
    if (nest_->body[stores[0].statement].op == Op::Add) return stores.size() == 1 ? adds_apart(stores[0]) : fail("updates are added twice");
    const ArrayList* const list = partition_.lists.stores(node);
    const List shape = graph_.shape(node);
    const Layout& layout = layout_of_store(node, stores[0].output);
    if (stores.size() == 1 && !list && !layout && covers_plainly(stores[0])) return true;
    // expected set: the elements of the array, or of all members of an array list
    std::uint64_t wanted = 1;
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      if (list && i == list->axis) wanted = field_times(wanted, geometric_sum(kMember.z, shape[i]));
      else wanted = field_times(wanted, geometric_sum(kElement.power(list ? list->strides[i] : layout ? (*layout)[i] : stride), shape[i]));
    }
    std::uint64_t sum = 0;
    for (const StoreOf& store : stores) {
      enter(pieces_[store.piece]);
      std::uint64_t set = 0;
      if (!set_of(store, set)) return covers_by_list(stores, layout);
      sum = field_plus(sum, set);
    }
    return sum == wanted || fail(fmt::format("not every element of %{} is stored once", node));
  }

  // True in the common case: one store into a contiguous array whose coefficients are its row-major strides.
  bool covers_plainly(const StoreOf& store) {
    const Statement& s = nest_->body[store.statement];
    const std::uint32_t linear = nest_->accesses[s.at].linear;
    if (s.guard != kNone || nest_->accesses[s.at].table != kNone) return false;
    for (std::size_t v = nest_->loops(); v < variables(); ++v)
      if (coefficient(linear, v)) return false;
    const std::uint64_t loops = loops_of_store(store.statement);
    std::int64_t low = numbers_->offsets[linear], stride = 1;
    std::uint64_t left = 0;
    for (std::uint32_t l = 0; l < nest_->loops(); ++l) {
      const std::int64_t c = coefficient(linear, l), e = numbers_->extents[l];
      if (!(loops >> l & 1) && c != 0 && e > 1) return false;
      if (!(loops >> l & 1) || e == 1) continue;
      left |= std::uint64_t{1} << l;
      if (c < 0) low += c * (e - 1);
    }
    while (left) {
      std::uint32_t next = 64;
      for (std::uint32_t l = 0; l < nest_->loops(); ++l)
        if (left >> l & 1 && std::abs(coefficient(linear, l)) == stride) next = l;
      if (next == 64) return false;
      stride *= numbers_->extents[next];
      left &= ~(std::uint64_t{1} << next);
    }
    return low == 0 && stride == graph_.elements(store.node);
  }

  // Computes the elements of a store as the value of a polynomial. Returns false if its index is not a sum of loop indices.
  bool set_of(const StoreOf& store, std::uint64_t& set) {
    const Statement& s = nest_->body[store.statement];
    const Access& access = nest_->accesses[s.at];
    for (std::size_t v = nest_->loops(); v < variables(); ++v)
      if (coefficient(access.linear, v) || (access.table != kNone && coefficient(access.table, v))) return false;
    std::vector<Interval> ranges;
    set_ranges(ranges);
    if (s.guard != kNone) {
      const Statement& g = nest_->body[s.guard];
      for (std::uint32_t c = g.at; c < g.at + g.count; ++c) {
        int count = 0;
        for (std::size_t v = 0; v < variables(); ++v) count += coefficient(nest_->checks[c].linear, v) ? is_loop(v) ? 1 : 2 : 0;
        if (count > 1) return false;
      }
      if (!narrow(s.guard, ranges)) return true;
    }
    const std::uint64_t loops = loops_of_store(store.statement);
    std::int64_t element = numbers_->offsets[access.linear], member = access.table == kNone ? 0 : numbers_->offsets[access.table];
    set = 1;
    for (std::uint32_t l = 0; l < nest_->loops(); ++l) {
      const std::int64_t c = coefficient(access.linear, l), t = access.table == kNone ? 0 : coefficient(access.table, l);
      element += c * ranges[l].low, member += t * ranges[l].low;
      if (loops >> l & 1) {
        const std::uint64_t ratio = t ? field_times(kElement.power(c), kMember.power(t)) : kElement.power(c);
        set = field_times(set, geometric_sum(ratio, ranges[l].high - ranges[l].low + 1));
      } else if ((c || t) && numbers_->extents[l] > 1) {
        set = 0;  // the index moves along a loop that the store does not run in
      }
    }
    set = field_times(set, field_times(kElement.power(element), kMember.power(member)));
    return true;
  }

  // True if stores whose index has quotients cover each element once. Marks each element. Returns true without a check for an array list or
  // many elements.
  bool covers_by_list(std::span<const StoreOf> stores, const Layout& layout) {
    constexpr std::int64_t most = 4096;
    const NodeId node = stores[0].node;
    if (graph_.elements(node) > most || partition_.lists.stores(node)) return true;
    std::vector<bool> stored(static_cast<std::size_t>(graph_.elements(node)), false);
    std::int64_t count = 0;
    for (const StoreOf& store : stores) {
      enter(pieces_[store.piece]);
      const Statement& s = nest_->body[store.statement];
      const std::uint64_t loops = loops_of_store(store.statement);
      std::int64_t points = 1;
      for (std::uint32_t l = 0; l < nest_->loops(); ++l) points *= loops >> l & 1 ? numbers_->extents[l] : 1;
      if (points > 2 * most) return fail(fmt::format("more elements are stored than %{} has", node));
      at_.assign(nest_->loops(), 0);
      for (std::int64_t p = 0; p < points; ++p) {
        std::int64_t rest = p;
        for (std::uint32_t l = 0; l < nest_->loops(); ++l)
          if (loops >> l & 1) at_[l] = rest % numbers_->extents[l], rest /= numbers_->extents[l];
        evaluate();
        if (s.guard != kNone && !values_[s.guard]) continue;
        if (!index_of(graph_.shape(node), layout, linear_at(nest_->accesses[s.at].linear), index_))
          return fail(fmt::format("a store is outside %{}", node));
        const auto position = static_cast<std::size_t>(element_of(graph_.shape(node), {}, index_.data()));
        if (stored[position]) return fail(fmt::format("an element of %{} is stored twice", node));
        stored[position] = true;
        ++count;
      }
    }
    return count == graph_.elements(node) || fail(fmt::format("not every element of %{} is stored", node));
  }

  // True if different tasks add to different elements for any data. With the checked index as one more loop, each element must occur once.
  bool adds_apart(const StoreOf& store) {
    const Statement& s = nest_->body[store.statement];
    const Access& access = nest_->accesses[s.at];
    const std::uint64_t inner = nest_->reduced_mask();
    std::uint64_t set = kElement.power(numbers_->offsets[access.linear]), wanted = 1;
    for (std::size_t v = 0; v < variables(); ++v) {
      const std::int64_t c = coefficient(access.linear, v);
      if (is_loop(v)) {
        if (inner >> v & 1) {
          if (c) return fail("updates are added along the loop with data-dependent indices");
          continue;
        }
        set = field_times(set, geometric_sum(kElement.power(c), numbers_->extents[v]));
      } else if (c) {
        if (nest_->derived[v - nest_->loops()].place != s.b) return fail("updates are added without a checked index");
        set = field_times(set, geometric_sum(kElement.power(c), bound_of_place(s.b)));
      }
    }
    const List shape = graph_.shape(store.node), updates = graph_.shape(graph_.operand(store.node, 2));
    const Layout& layout = layout_of_store(store.node, store.output);
    std::int64_t stride = 1;
    const auto axis = static_cast<std::size_t>(graph_.attributes(store.node)[0]);
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i])
      wanted = field_times(wanted, geometric_sum(kElement.power(layout ? (*layout)[i] : stride), i == axis ? shape[i] : updates[i]));
    return set == wanted || fail(fmt::format("updates of different tasks may have the same element of %{}", store.node));
  }

  // ---- points

  std::int64_t linear_at(std::uint32_t linear) const {
    std::int64_t sum = numbers_->offsets[linear];
    const std::vector<std::int64_t>& c = numbers_->coefficients[linear];
    for (std::uint32_t l = 0; l < nest_->loops(); ++l) sum += c[l] * at_[l];
    for (std::size_t q = 0; q < nest_->derived.size(); ++q)
      if (c[nest_->loops() + q]) sum += c[nest_->loops() + q] * derived_at_[q];
    return sum;
  }

  // Evaluates all statements at the point. Operands precede their uses.
  bool evaluate() {
    const Nest& n = *nest_;
    values_.resize(n.body.size());
    derived_at_.resize(n.derived.size());
    for (std::uint32_t q = 0; q < n.derived.size(); ++q) {
      const Derived& d = n.derived[q];
      if (d.place != kNone) continue;  // derived after its statement; earlier variables do not use it
      derive(q);
    }
    bool inside = true;
    for (std::uint32_t i = 0; i < n.body.size(); ++i) {
      const Statement& s = n.body[i];
      const auto value = [&](std::uint32_t o) { return o == kNone ? 0 : values_[o]; };
      switch (s.kind) {
        case Kind::Load: inside &= load(i, s); break;
        case Kind::Store: break;
        case Kind::Index: values_[i] = leaf(Leaf::Index, static_cast<std::uint64_t>(linear_at(s.at)), 0); break;
        case Kind::Slot: values_[i] = leaf(Leaf::Slot, numbers_->slots[s.at], 0); break;
        case Kind::Constant: values_[i] = constant_value(s.bits); break;
        case Kind::Guard: {
          values_[i] = 1;
          for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
            const std::int64_t x = linear_at(n.checks[c].linear);
            if (x < 0 || x >= numbers_->bounds[c]) values_[i] = 0;
          }
          break;
        }
        case Kind::Place:
          values_[i] = operator_value(Op::Place, values_[s.a], static_cast<std::uint64_t>(numbers_->bounds[s.at]), 0);
          break;
        case Kind::Op:
          if (is_passed_through(s.op)) values_[i] = values_[s.a];
          else if (s.op == Op::Where && n.body[s.a].kind == Kind::Guard) values_[i] = values_[values_[s.a] ? s.b : s.c];
          else values_[i] = operator_value(operator_of(s), value(s.a), value(s.b), value(s.c));
          break;
        case Kind::Reduce:
        case Kind::Scan: values_[i] = operator_value(s.op, value(s.a), value(s.b), 0); break;
      }
      for (std::uint32_t q = 0; q < n.derived.size(); ++q)
        if (n.derived[q].place == i) derived_at_[q] = place_of(places_, values_[i], bound_of_place(i)), derive_after(q);
    }
    return inside;
  }
  void derive(std::uint32_t q) {
    const Derived& d = nest_->derived[q];
    const std::int64_t x = linear_at(d.linear), whole = floor_div(x, numbers_->by[q]);
    derived_at_[q] = d.modulo ? x - whole * numbers_->by[q] : whole;
  }
  // Updates the variables after `place`, because their dividend may contain it.
  void derive_after(std::uint32_t place) {
    for (std::uint32_t q = place + 1; q < nest_->derived.size(); ++q)
      if (nest_->derived[q].place == kNone) derive(q);
  }
  // Returns Op::Sub for an addition whose scalar parameter is negated, else the operator of the statement.
  Op operator_of(const Statement& s) const {
    if (s.op != Op::Add || s.b == kNone) return s.op;
    const Statement& b = nest_->body[s.b];
    return b.kind == Kind::Slot && numbers_->signs[b.at] ? Op::Sub : s.op;
  }

  bool load(std::uint32_t i, const Statement& s) {
    const Access& access = nest_->accesses[s.at];
    if (s.guard != kNone && !values_[s.guard]) {
      values_[i] = kZeroValue;
      return true;
    }
    NodeId node = numbers_->buffers[access.buffer];
    std::int64_t element = linear_at(access.linear);
    const std::vector<NodeId>& members = numbers_->members[access.buffer];
    if (!members.empty()) {
      const ArrayList* const list = partition_.lists.reads(node);
      const auto words = static_cast<std::int64_t>(sizeof(std::int64_t) / size_of(nest_->buffers[access.buffer].dtype));
      const bool numbers = list && list->numbers;
      const std::int64_t member = numbers ? floor_div(element, words) : access.table == kNone ? 0 : linear_at(access.table);
      if (member < 0 || member >= static_cast<std::int64_t>(members.size()))
        return fail(fmt::format("v{} reads member {} of a list of {}", i, member, members.size()));
      node = members[static_cast<std::size_t>(member)];
      if (numbers) {
        values_[i] = leaf(Leaf::Slot, graph_[node].bits, 0);
        return element == member * words || fail(fmt::format("v{} reads a part of an element", i));
      }
    }
    std::int64_t low, high;
    const Layout contiguous;
    reach_of(graph_.shape(node), numbers_->outputs[access.buffer] == NestNumbers::kUnrounded ? contiguous : layouts_[node], low, high);
    if (element < low || element > high || graph_.elements(node) == 0)
      return fail(fmt::format("v{} reads element {} of %{}, which has elements {} .. {}", i, element, node, low, high));
    values_[i] = leaf(Leaf::Memory, node, static_cast<std::uint64_t>(element));
    return true;
  }

  // Sets the point of the domain. Reduced axes follow the reduced loops in row-major order, other axes follow the other loops. Only fused
  // columns use the other axes.
  void set_domain() {
    const std::uint64_t inner = nest_->reduced_mask(), ordered = group_.reduced | group_.ordered;
    std::int64_t reduced = 0, kept = 0;
    for (std::uint32_t l = 0; l < nest_->loops(); ++l) {
      std::int64_t& position = inner >> l & 1 ? reduced : kept;
      position = position * std::max<std::int64_t>(numbers_->extents[l], 1) + at_[l];
    }
    domain_.assign(group_.domain.size(), 0);
    for (std::size_t i = group_.domain.size(); i-- > 0;) {
      std::int64_t& position = ordered >> i & 1 ? reduced : kept;
      const std::int64_t extent = std::max<std::int64_t>(group_.domain[i], 1);
      domain_[i] = position % extent;
      position /= extent;
    }
  }

  bool compare_at_point() {
    if (!evaluate()) return false;
    set_domain();
    points_.begin(domain_, places_);
    for (std::uint32_t i = 0; i < nest_->body.size(); ++i) {
      const Statement& s = nest_->body[i];
      if (s.kind != Kind::Store || (s.guard != kNone && !values_[s.guard])) continue;
      const Access& access = nest_->accesses[s.at];
      const NodeId node = numbers_->buffers[access.buffer];
      std::int64_t element = linear_at(access.linear);
      if (s.op == Op::Add) {
        if (!compare_addition(s, node, element)) return false;
        continue;
      }
      if (const ArrayList* const list = partition_.lists.stores(node)) {
        const std::int64_t member = access.table == kNone ? 0 : linear_at(access.table);
        std::vector<std::int64_t> shape(graph_.shape(node).begin(), graph_.shape(node).end());
        shape[list->axis] = 1;
        if (!index_of(shape, list->strides, element, index_) || member < 0 || member >= graph_.shape(node)[list->axis])
          return fail(fmt::format("a store is outside the members of %{}", node));
        index_[list->axis] = member;
      } else if (!index_of(graph_.shape(node), layout_of_store(node, numbers_->outputs[access.buffer]), element, index_)) {
        return fail(fmt::format("element {} is stored, which %{} does not have", element, node));
      }
      if (points_.value(node, index_) != values_[s.a])
        return fail(fmt::format("[{}] of %{} is not computed as the graph defines it", fmt::join(index_, ", "), node));
    }
    return true;
  }

  bool compare_addition(const Statement& s, NodeId node, std::int64_t element) {
    const auto axis = static_cast<std::size_t>(graph_.attributes(node)[0]);
    const List shape = graph_.shape(node);
    const Layout& layout = layout_of_store(node, 0);
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > axis + 1;) stride *= shape[i];
    if (layout) stride = (*layout)[axis];
    const std::int64_t place = place_of(places_, values_[s.b], bound_of_place(s.b));
    if (!index_of(shape, layout, element - place * stride, index_) || (index_[axis] != 0 && shape[axis] > 1))
      return fail(fmt::format("an update is added outside %{}", node));
    std::int64_t along = 0;
    for (std::size_t i = 0; i < group_.domain.size(); ++i)
      if (group_.ordered >> i & 1) along = along * group_.domain[i] + domain_[i];
    index_[axis] = along;
    const NodeId places = graph_.operand(node, 1), updates = graph_.operand(node, 2);
    if (points_.value(updates, index_) != values_[s.a] || points_.value(places, index_) != values_[s.b])
      return fail(fmt::format("an update of %{} is not computed as the graph defines it", node));
    return true;
  }

  bool compare() {
    undecided_.clear();
    std::int64_t all = 1;
    for (const std::int64_t e : numbers_->extents) {
      if (e == 0) return true;
      if (__builtin_mul_overflow(all, e, &all)) all = std::int64_t{1} << 62;
    }
    const std::uint32_t loops = nest_->loops();
    at_.assign(loops, 0);
    if (all <= verified_points()) {
      for (std::int64_t p = 0; p < all; ++p) {
        std::int64_t rest = p;
        for (std::uint32_t l = loops; l-- > 0; rest /= numbers_->extents[l]) at_[l] = rest % numbers_->extents[l];
        places_ = p % 2 == 0 ? Places::Last : Places::Drawn;
        if (!compare_at_point()) return false;
      }
      return true;
    }
    places_ = Places::Last;
    for (std::uint32_t l = 0; l < loops; ++l) at_[l] = numbers_->extents[l] - 1;
    if (!compare_at_point()) return false;
    if (all == 1) return true;
    std::uint64_t seed = mix(static_cast<std::uint64_t>(all), nest_->body.size());
    const auto draw = [&](std::uint32_t l) {
      seed = mix(seed, l + 1);
      at_[l] = static_cast<std::int64_t>((seed >> 16) % static_cast<std::uint64_t>(numbers_->extents[l]));
    };
    places_ = Places::Drawn;
    const bool has_places = std::ranges::any_of(nest_->derived, [](const Derived& d) { return d.place != kNone; });
    for (int point = 0; point < (has_places ? 4 : 1); ++point) {  // on short axes, two random indices may be equal
      for (std::uint32_t l = 0; l < loops; ++l) draw(l);
      if (!compare_at_point()) return false;
    }
    return compare_at_checks(draw);
  }

  // Compares on both sides of both bounds of every check, as far as its innermost loop reaches them, and at the ends of that loop.
  template <class Draw> bool compare_at_checks(const Draw& draw) {
    constexpr std::size_t most = 32;  // limit of the checks; a nest selects between few boxes
    for (std::uint32_t c = 0; c < nest_->checks.size() && c < most; ++c) {
      const std::uint32_t linear = nest_->checks[c].linear;
      std::uint32_t loop = nest_->loops();
      while (loop-- > 0 && coefficient(linear, loop) == 0) {}
      if (loop >= nest_->loops()) continue;
      const std::int64_t last = numbers_->extents[loop] - 1, k = coefficient(linear, loop);
      for (const std::int64_t wanted : {std::int64_t{-1}, std::int64_t{0}, numbers_->bounds[c] - 1, numbers_->bounds[c]}) {
        for (std::uint32_t l = 0; l < nest_->loops(); ++l) draw(l);
        at_[loop] = 0;
        std::int64_t x = numbers_->offsets[linear];
        for (std::uint32_t l = 0; l < nest_->loops(); ++l) x += coefficient(linear, l) * at_[l];
        at_[loop] = std::clamp<std::int64_t>(floor_div(wanted - x, k), 0, last);
        if (!compare_at_point()) return false;
      }
      for (const std::int64_t end : {std::int64_t{0}, last}) {  // other loops at their middle, where other checks most likely hold
        for (std::uint32_t l = 0; l < nest_->loops(); ++l) at_[l] = numbers_->extents[l] / 2;
        at_[loop] = end;
        if (!compare_at_point()) return false;
      }
    }
    return true;
  }
};

}  // namespace

bool is_passed_through(Op op) {
  const ir::TypeRule rule = ir::info(op).types;
  return op == Op::Identity || op == Op::StopGradient || rule == ir::TypeRule::Convert || rule == ir::TypeRule::Reinterpret;
}

void set_verified_points(std::int64_t points) noexcept { points_to_compare = points; }
std::int64_t verified_points() noexcept { return points_to_compare.load(std::memory_order_relaxed); }

std::string verify_plan(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                        std::span<const Planned> pieces, std::span<const Layout> targets) {
  if (partition.groups[group].routine) return verify_routine(graph, partition, group, layouts, pieces, targets);
  return PlanVerifier(graph, partition, group, layouts, pieces, targets).run();
}

std::string verify_schedule(const Nest& nest, const NestNumbers& numbers, const Scheduled& scheduled) {
  const Schedule& s = scheduled.schedule;
  const ScheduleNumbers& n = scheduled.numbers;
  const auto parts = [](std::int64_t all, std::int64_t each) { return (all + each - 1) / each; };
  const auto fail = [&](std::string_view what) {
    return fmt::format("schedule: {}\n{}{}\n", what, print(nest, numbers), print(scheduled));
  };
  if (n.tile < 1 && numbers.extents[nest.vector_loop()] > 0) return fail("tasks have no elements");
  if (n.tile_outer < 1 || n.tile_rows < 1 || n.chunks < 1 || s.abreast < 1 || s.width < 1)
    return fail("a schedule parameter is not positive");
  // The tasks: the shared loops, each in parts.
  std::int64_t tasks = 1, outer = 1;
  for (std::uint32_t l = 0; l < nest.outer; ++l) {
    outer *= numbers.extents[l];
    tasks *= parts(numbers.extents[l], l + 1u == nest.outer ? n.tile_outer : l + 2u == nest.outer ? n.tile_rows : 1);
  }
  const bool columns = nest.has_columns();
  if (nest.kind != NestKind::Lanes) tasks *= parts(numbers.extents[nest.vector_loop()], std::max<std::int64_t>(n.tile, 1));
  if (columns) {
    tasks = parts(outer, std::max<std::int64_t>(n.chunk, 1));
    if (n.chunk % ir::kRowBlock != 0 || n.tile * n.items < numbers.extents[nest.vector_loop()]) return fail("columns are missing");
  } else if (s.split && nest.kind != NestKind::Map) {
    std::int64_t counted = 1;
    for (std::uint32_t l = 0; l < nest.loops(); ++l)
      if (nest.reduced_mask() >> l & 1) counted *= numbers.extents[l];
    if (nest.runs) {
      counted = numbers.padded_run;
      for (std::uint32_t l = nest.outer; l < nest.outer + nest.runs; ++l) counted *= numbers.extents[l];
    }
    const std::int64_t block = nest.kind == NestKind::Lanes ? ir::kLaneBlock : ir::kRowBlock, blocks = n.chunk / block;
    if (n.chunk % block != 0 || (blocks & (blocks - 1)) != 0) return fail("the number of blocks in a chunk is not a power of two");
    if (n.chunk * n.chunks < counted) return fail("chunks do not cover a whole row");
    tasks *= n.chunks;
  } else if (s.by_place) {
    std::int64_t places = 0;
    if (const Statement* const add = nest.addition()) places = numbers.bounds[nest.body[add->b].at];
    if (n.chunk * n.chunks < places) return fail("destination ranges do not cover all elements");
    tasks *= n.chunks;
  }
  if (n.items != tasks) return fail(fmt::format("{} tasks cover the loops, but the schedule has {}", tasks, n.items));
  if (s.tile.rows > 0) {
    const loops::Contraction c = loops::contraction_of(nest);
    if (c.sum == Statement::kNone) return fail("register tiles require a contraction");
    if (s.tile.pitch > 0 && numbers.extents[c.reduced_loop] > s.tile.pitch) return fail("packed rows overlap");
    const std::int64_t rows = s.tile.swapped ? n.tile : n.tile_outer, columns = s.tile.swapped ? n.tile_outer : n.tile;
    if (columns % s.tile.width != 0 || rows % s.tile.rows != 0) return fail("a task ends inside a tile");
    if (s.tile.one_block && numbers.extents[nest.outer] > ir::kRowBlock) return fail("more than one summation block");
    if (n.phases != (s.tile.shared ? 2 : 1) || n.shared_bytes < loops::shared_bytes(nest, numbers, s.tile))
      return fail("the phases do not match");
  }
  if (n.scratch_bytes < ScratchLayout::bytes(nest, s, numbers, n)) return fail("the scratch is too small");
  return {};
}

}  // namespace onepass::compiler
