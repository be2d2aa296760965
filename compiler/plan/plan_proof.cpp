// plan_proof: see plan_proof.h.
//
// Example: x f32[n, m] - max(x, -1). For any n and m, the affine map of the load is m*i + j. Its coefficients are the strides of x along
// the domain axes of its index. Each loop runs through its axes, and the body has the operators of the graph.
//
// PlanProver traverses the body and the graph in parallel, from the stores on. Each index is an axis of the domain instead of a number. It
// supports no quotients (short rows, reshapes), predicates, interleaved access groups, interleaved indices, array lists, scans or
// data-dependent indices. verify_plan checks each plan that has one of these features.
#include "compiler/plan/plan_proof.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "compiler/plan/verify_plan.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::NodeId;
using ir::Op;
using Kind = Statement::Kind;

namespace {

constexpr std::uint32_t kNone = Statement::kNone;
constexpr std::size_t kMostAxes = 32;
using Symbols = std::vector<std::int8_t>;

bool is_of_class(Coefficient c, std::int64_t number) {
  switch (c) {
    case Coefficient::General: return true;
    case Coefficient::Zero: return number == 0;
    case Coefficient::One: return number == 1;
    case Coefficient::MinusOne: return number == -1;
    default: return number == number_of(c);
  }
}

}  // namespace

class PlanProver {
 public:
  PlanProver(const Graph& graph, const Partition& partition, std::uint32_t group, const Planned& piece)
      : graph_(graph),
        partition_(partition),
        index_of_group_(group),
        group_(partition.groups[group]),
        nest_(piece.nest),
        numbers_(piece.numbers),
        has_form_(nest_.linears.size(), false) {}

  bool prove(std::span<const Layout> layouts, PlanProof& out) {
    out_ = &out;
    if (!is_plain()) return false;
    if (nest_.has_columns() ? !factor(0, nest_.outer, kept_axes()) : !factor_by_strides(layouts)) return false;
    if (!factor(nest_.outer, inner_end(), reduced_axes())) return false;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Kind::Store && !store(i)) return false;
    const std::size_t most = 8 * (nest_.body.size() + graph_.size());
    for (std::size_t done = 0; !open_.empty(); ++done) {
      const Pair pair = open_.back();
      open_.pop_back();
      if (done > most || !match(pair)) return false;
    }
    if (std::ranges::find(has_form_, false) != has_form_.end()) return false;
    out.nest_ = nest_;
    out.axes_ = group_.domain.size();
    out.loop_begin_.push_back(0);
    for (const std::vector<std::uint8_t>& axes : axes_of_loop_) {
      out.loop_axes_.insert(out.loop_axes_.end(), axes.begin(), axes.end());
      out.loop_begin_.push_back(static_cast<std::uint32_t>(out.loop_axes_.size()));
    }
    out.same_.buffers = numbers_.buffers;
    out.same_.outputs = numbers_.outputs;
    out.same_.slots = numbers_.slots;
    out.same_.signs = numbers_.signs;
    return true;
  }

 private:
  struct Pair {  // a statement and the node that it must compute
    std::uint32_t statement;
    NodeId node;
    Symbols symbols;  // index of the node
  };
  const Graph& graph_;
  const Partition& partition_;
  const std::uint32_t index_of_group_;
  const Group& group_;
  const Nest& nest_;
  const NestNumbers& numbers_;
  PlanProof* out_ = nullptr;
  std::vector<bool> has_form_;
  std::vector<std::vector<std::uint8_t>> axes_of_loop_;
  std::vector<Pair> open_;
  std::set<std::tuple<std::uint32_t, NodeId, Symbols>> met_;

  // True if the nest has only loads, stores and reductions that access memory by strides.
  bool is_plain() {
    axes_of_loop_.assign(nest_.loops(), {});
    const auto is_other = [](const Statement& s) {
      return s.kind == Kind::Guard || s.kind == Kind::Scan || s.kind == Kind::Place || s.guard != kNone ||
             (s.kind == Kind::Store && (s.op == Op::Add || s.count > 1));
    };
    const auto is_plain_access = [](const Access& a) { return a.table == Access::kNone && a.first == Access::kNone; };
    const Lists& lists = partition_.lists;
    return nest_.derived.empty() && nest_.checks.empty() && nest_.phases == 1 && !nest_.short_rows && group_.ordered == 0 &&
           group_.domain.size() <= kMostAxes && lists.read.empty() && lists.stored.empty() && lists.assembled.empty() &&
           std::ranges::none_of(nest_.body, is_other) && std::ranges::all_of(nest_.accesses, is_plain_access) &&
           std::ranges::all_of(group_.domain, [](std::int64_t extent) { return extent > 1; });
  }

  // ---- the axes of the loops

  std::vector<std::uint8_t> axes_where(bool reduced) const {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < group_.domain.size(); ++i)
      if ((group_.reduced >> i & 1) == static_cast<std::uint64_t>(reduced)) out.push_back(static_cast<std::uint8_t>(i));
    return out;
  }
  std::vector<std::uint8_t> kept_axes() const { return axes_where(false); }
  std::vector<std::uint8_t> reduced_axes() const { return axes_where(true); }
  std::uint32_t inner_end() const { return nest_.kind == NestKind::Lanes ? nest_.loops() : nest_.vector_loop(); }
  bool is_inner(std::uint32_t loop) const { return nest_.reduced_mask() >> loop & 1; }

  // True if the loops first .. end run through these axes in their order.
  bool factor(std::uint32_t first, std::uint32_t end, const std::vector<std::uint8_t>& axes) {
    std::size_t next = 0;
    for (std::uint32_t l = first; l < end; ++l) {
      std::int64_t product = 1;
      while (product < numbers_.extents[l] && next < axes.size()) {
        product *= group_.domain[axes[next]];
        axes_of_loop_[l].push_back(axes[next++]);
      }
      if (product != numbers_.extents[l]) return false;
    }
    return next == axes.size();
  }

  // Assigns axes to the non-reduced loops by the strides of the first store, because the planner may have reordered these loops.
  bool factor_by_strides(std::span<const Layout> layouts) {
    for (const Statement& s : nest_.body) {
      if (s.kind != Kind::Store) continue;
      const std::uint32_t buffer = nest_.accesses[s.at].buffer;
      const std::size_t root = root_of(numbers_.buffers[buffer]);
      if (root == group_.roots.size()) return false;
      const NodeId node = group_.roots[root];
      const List shape = graph_.shape(node);
      const Symbols symbols = symbols_of(root);
      if (symbols.size() != shape.size()) return false;
      std::array<std::int64_t, kMostAxes> strides{};
      std::int64_t running = 1;
      const Layout& layout = layouts[node];
      const bool is_contiguous = contiguous_store(node, numbers_.outputs[buffer]) || !layout;
      for (std::size_t i = shape.size(); i-- > 0; running *= shape[i])
        if (symbols[i] >= 0) strides[static_cast<std::size_t>(symbols[i])] = is_contiguous ? running : (*layout)[i];
      std::uint64_t left = 0;
      for (const std::uint8_t axis : kept_axes()) left |= std::uint64_t{1} << axis;
      const auto take = [&](std::int64_t stride) -> int {
        for (std::size_t a = 0; a < group_.domain.size(); ++a)
          if (left >> a & 1 && strides[a] == stride) return left &= ~(std::uint64_t{1} << a), static_cast<int>(a);
        return -1;
      };
      for (std::uint32_t l = 0; l < nest_.loops(); ++l) {
        if (is_inner(l) || numbers_.extents[l] == 1) continue;
        std::int64_t stride = numbers_.coefficients[nest_.accesses[s.at].linear][l];
        for (std::int64_t product = 1; product < numbers_.extents[l];) {
          const int axis = take(stride);
          if (axis < 0) return false;
          axes_of_loop_[l].insert(axes_of_loop_[l].begin(), static_cast<std::uint8_t>(axis));
          const std::int64_t extent = group_.domain[static_cast<std::size_t>(axis)];
          product *= extent, stride *= extent;
        }
      }
      return left == 0;
    }
    return false;
  }

  // ---- stores

  std::size_t root_of(NodeId node) const { return static_cast<std::size_t>(std::ranges::find(group_.roots, node) - group_.roots.begin()); }
  Symbols symbols_of(std::size_t root) const {
    Symbols out;
    for (const DomainAxes& axis : group_.axes[root]) {
      if (axis.count > 1 || axis.flipped) return {};
      out.push_back(axis.count ? static_cast<std::int8_t>(axis.first) : PlanProof::kUnit);
    }
    return out;
  }
  bool contiguous_store(NodeId node, std::int32_t output) const {
    return output == NestNumbers::kUnrounded || graph_[node].op == Op::Input;
  }

  std::vector<std::uint8_t> axes_of(std::uint32_t first, std::uint32_t end) const {
    std::vector<std::uint8_t> out;
    for (std::uint32_t l = first; l < end; ++l) out.insert(out.end(), axes_of_loop_[l].begin(), axes_of_loop_[l].end());
    return out;
  }

  // True if each iteration of the store's loops stores a different element: the index of the array has each of their axes once.
  bool store(std::uint32_t i) {
    const Statement& s = nest_.body[i];
    const std::uint32_t buffer = nest_.accesses[s.at].buffer;
    const NodeId node = numbers_.buffers[buffer];
    const std::size_t root = root_of(node);
    if (root == group_.roots.size() || s.a == kNone) return false;
    const Symbols symbols = symbols_of(root);
    if (symbols.size() != graph_.shape(node).size()) return false;
    const std::uint64_t inner = nest_.reduced_mask();
    std::uint64_t runs = 0, stored = 0;
    const bool is_behind = nest_.has_columns() && nest_.behind_columns()[i];
    for (std::uint32_t l = 0; l < nest_.loops(); ++l)
      if (is_behind ? is_inner(l) : !is_inner(l) || s.loops & inner)
        for (const std::uint8_t axis : axes_of_loop_[l]) runs |= std::uint64_t{1} << axis;
    for (const std::int8_t axis : symbols) {
      if (axis < 0) continue;
      if (stored >> axis & 1) return false;
      stored |= std::uint64_t{1} << axis;
    }
    if (runs != stored) return false;
    add_form(nest_.accesses[s.at].linear, node, contiguous_store(node, numbers_.outputs[buffer]), symbols);
    open(s.a, node, symbols);
    return true;
  }

  // ---- values, from stores back to loads

  void open(std::uint32_t statement, NodeId node, Symbols symbols) {
    if (met_.emplace(statement, node, symbols).second) open_.push_back({statement, node, std::move(symbols)});
  }
  void add_form(std::uint32_t linear, NodeId node, bool is_contiguous, const Symbols& symbols) {
    has_form_[linear] = true;
    for (const PlanProof::Form& form : out_->forms_)
      if (form.linear == linear && form.node == node && form.is_contiguous == is_contiguous && form.symbols == symbols) return;
    out_->forms_.push_back({linear, node, is_contiguous, symbols});
  }
  bool loads(NodeId id) const { return partition_.loads(graph_, id, index_of_group_); }

  // Returns the index of a reduction's operand: the reduction's own index along non-reduced axes, domain axes along reduced axes.
  bool operand_symbols(NodeId id, const Symbols& symbols, Symbols& out, std::vector<std::uint8_t>& reduced) const {
    const List shape = graph_.shape(graph_.operand(id, 0)), attributes = graph_.attributes(id);
    out.clear();
    reduced.clear();
    std::size_t axis = 0, kept = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const bool is_reduced = std::binary_search(attributes.begin(), attributes.end(), static_cast<std::int64_t>(i));
      const bool is_unit = shape[i] == 1;
      if (!is_unit && (axis == group_.domain.size() || group_.domain[axis] != shape[i])) return false;
      if (!is_reduced) {
        if (kept == symbols.size()) return false;
        out.push_back(symbols[kept++]);
      } else {
        out.push_back(is_unit ? PlanProof::kUnit : static_cast<std::int8_t>(axis));
        if (!is_unit) reduced.push_back(static_cast<std::uint8_t>(axis));
      }
      axis += !is_unit;
    }
    return kept == symbols.size() && axis == group_.domain.size();
  }

  // Follows views and pass-through operators to the node that computes or holds the value.
  bool resolve(NodeId& id, Symbols& symbols) const {
    while (!loads(id)) {
      const Op op = graph_[id].op;
      const NodeId from = graph_.operands(id).empty() ? id : graph_.operand(id, 0);
      const List was = graph_.shape(from), shape = graph_.shape(id);
      if (op == Op::Permute) {
        Symbols out(was.size(), PlanProof::kUnit);
        for (std::size_t k = 0; k < shape.size(); ++k) out[static_cast<std::size_t>(graph_.attributes(id)[k])] = symbols[k];
        symbols = std::move(out);
      } else if (op == Op::Broadcast) {
        for (std::size_t k = 0; k < shape.size(); ++k)
          if (was[k] == 1) symbols[k] = PlanProof::kUnit;
      } else if (op == Op::Reshape) {  // moves only axes of one element
        Symbols out(was.size(), PlanProof::kUnit);
        std::size_t k = 0;
        for (std::size_t i = 0; i < was.size(); ++i) {
          if (was[i] == 1) continue;
          while (k < shape.size() && shape[k] == 1) ++k;
          if (k == shape.size() || shape[k] != was[i]) return false;
          out[i] = symbols[k++];
        }
        while (k < shape.size() && shape[k] == 1) ++k;
        if (k != shape.size()) return false;
        symbols = std::move(out);
      } else if (ir::is_view(op)) {
        return false;
      } else if (is_passed_through(op)) {
      } else if (ir::is_reduction(op) && !ir::is_contraction(op) && graph_.elements(from) == graph_.elements(id)) {
        const List reduced = graph_.attributes(id);
        for (const std::int64_t axis : reduced) symbols.insert(symbols.begin() + axis, PlanProof::kUnit);
      } else {
        return true;
      }
      id = from;
    }
    return true;
  }

  bool match(Pair pair) {
    while (nest_.body[pair.statement].kind == Kind::Op && is_passed_through(nest_.body[pair.statement].op))
      pair.statement = nest_.body[pair.statement].a;
    if (!resolve(pair.node, pair.symbols)) return false;
    const Statement& s = nest_.body[pair.statement];
    const ir::Node node = graph_[pair.node];
    if (loads(pair.node)) {
      if (s.kind != Kind::Load || s.a != kNone) return false;
      const Access& access = nest_.accesses[s.at];
      if (numbers_.buffers[access.buffer] != pair.node || nest_.buffers[access.buffer].written || graph_.elements(pair.node) == 0)
        return false;
      add_form(access.linear, pair.node, numbers_.outputs[access.buffer] == NestNumbers::kUnrounded, pair.symbols);
      return true;
    }
    switch (ir::info(node.op).kind) {
      case ir::OpKind::Source: return source(s, node, pair);
      case ir::OpKind::Primitive:
      case ir::OpKind::Expanded: return operands(s, pair.node, s.kind == Kind::Op ? operator_of(s) : Op::Input, pair.symbols);
      case ir::OpKind::Reduction: return reduction(s, pair);
      default: return false;
    }
  }

  bool source(const Statement& s, const ir::Node& node, const Pair& pair) {
    if (node.op == Op::Constant) return s.kind == Kind::Constant && s.bits == node.bits;
    if (node.op == Op::Slot) return s.kind == Kind::Slot && numbers_.slots[s.at] == node.bits;
    if (s.kind != Kind::Index || s.a != kNone) return false;
    const std::int8_t axis = pair.symbols[static_cast<std::size_t>(graph_.attributes(pair.node)[0])];
    if (axis < 0) return false;
    add_form(s.at, ir::kNoNode, true, {axis});
    return true;
  }

  // Returns Op::Sub for an addition whose scalar parameter is negated, else the operator of the statement.
  Op operator_of(const Statement& s) const {
    if (s.op != Op::Add || s.b == kNone) return s.op;
    const Statement& b = nest_.body[s.b];
    return b.kind == Kind::Slot && numbers_.signs[b.at] ? Op::Sub : s.op;
  }

  bool operands(const Statement& s, NodeId id, Op op, const Symbols& symbols) {
    const List operands = graph_.operands(id);
    const std::uint32_t statements[] = {s.a, s.b, s.c};
    if (op != graph_[id].op || operands.size() > std::size(statements)) return false;
    for (std::size_t k = 0; k < std::size(statements); ++k) {
      if ((statements[k] == kNone) != (k >= operands.size())) return false;
      if (k < operands.size()) open(statements[k], static_cast<NodeId>(operands[k]), symbols);
    }
    return true;
  }

  // True if the statement reduces the axes of the node in order and its result varies along none of them.
  bool reduction(const Statement& s, const Pair& pair) {
    Symbols symbols;
    std::vector<std::uint8_t> reduced;
    if (s.kind != Kind::Reduce || graph_.elements(graph_.operand(pair.node, 0)) == graph_.elements(pair.node) ||
        !operand_symbols(pair.node, pair.symbols, symbols, reduced))
      return false;
    if (reduced != (s.count ? axes_of(0, nest_.outer) : axes_of(nest_.outer, inner_end()))) return false;
    for (const std::uint8_t axis : reduced)
      if (std::ranges::find(pair.symbols, static_cast<std::int8_t>(axis)) != pair.symbols.end()) return false;
    return operands(s, pair.node, s.op, symbols);
  }
};

std::unique_ptr<const PlanProof> PlanProof::of(const Graph& graph, const Partition& partition, std::uint32_t group,
                                               std::span<const Layout> layouts, const Planned& piece) {
  auto proof = std::make_unique<PlanProof>();
  if (!PlanProver(graph, partition, group, piece).prove(layouts, *proof)) return nullptr;
  return proof->holds(graph, partition.groups[group], layouts, piece) ? std::move(proof) : nullptr;
}

bool PlanProof::holds(const Graph& graph, const Group& group, std::span<const Layout> layouts, const Planned& piece) const {
  const NestNumbers& m = piece.numbers;
  const std::size_t loops = nest_.loops();
  if (m.extents.size() != loops || m.offsets.size() != nest_.linears.size() || m.coefficients.size() != nest_.linears.size() ||
      !m.by.empty() || !m.bounds.empty() || m.members.size() != nest_.buffers.size() || group.domain.size() != axes_ ||
      m.buffers != same_.buffers || m.outputs != same_.outputs || m.slots != same_.slots || m.signs != same_.signs)
    return false;
  for (const std::vector<NodeId>& members : m.members)
    if (!members.empty()) return false;
  if (!(piece.nest == nest_)) return false;
  for (std::size_t l = 0; l < loops; ++l) {
    std::int64_t extent = 1;
    for (std::uint32_t k = loop_begin_[l]; k < loop_begin_[l + 1]; ++k) {
      const std::int64_t axis = group.domain[loop_axes_[k]];
      if (axis < 2) return false;
      extent *= axis;
    }
    if (m.extents[l] != extent) return false;
  }
  std::array<std::int64_t, kMostAxes> strides;  // by axis of the domain: elements between two of its indices
  for (const Form& form : forms_) {
    std::fill_n(strides.begin(), axes_, 0);
    if (form.node == ir::kNoNode) {
      strides[static_cast<std::size_t>(form.symbols[0])] = 1;
    } else {
      const List shape = graph.shape(form.node);
      if (shape.size() != form.symbols.size()) return false;
      const Layout& layout = layouts[form.node];
      const std::int64_t* const given = layout && !form.is_contiguous ? layout->data() : nullptr;
      std::int64_t running = 1;
      for (std::size_t i = shape.size(); i-- > 0; running *= shape[i]) {
        const std::int8_t axis = form.symbols[i];
        if (shape[i] != (axis < 0 ? 1 : group.domain[static_cast<std::size_t>(axis)])) return false;
        if (axis >= 0) strides[static_cast<std::size_t>(axis)] += given ? given[i] : running;
      }
    }
    if (m.offsets[form.linear] != 0) return false;
    const std::vector<std::int64_t>& coefficients = m.coefficients[form.linear];
    const std::vector<Coefficient>& classes = nest_.linears[form.linear].of;
    if (coefficients.size() != loops || classes.size() != loops) return false;
    for (std::size_t l = 0; l < loops; ++l) {
      std::int64_t wanted = 0;
      if (std::uint32_t k = loop_begin_[l + 1]; k > loop_begin_[l]) {
        wanted = strides[loop_axes_[--k]];
        for (; k > loop_begin_[l]; --k)  // the axes of one loop have the strides of a single axis
          if (strides[loop_axes_[k - 1]] != strides[loop_axes_[k]] * group.domain[loop_axes_[k]]) return false;
      }
      if (coefficients[l] != wanted || !is_of_class(classes[l], wanted)) return false;
    }
  }
  return true;
}

PlanProofs::~PlanProofs() {
  for (OfGroup& group : groups_)
    for (std::atomic<const PlanProof*>& proof : group.proofs) delete proof.load(std::memory_order_relaxed);
}

std::string PlanProofs::verify(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                               std::span<const Planned> pieces) {
  OfGroup& of = groups_[group];
  const bool may_be_known = pieces.size() == 1 && verified_points() == 0 && !partition.groups[group].routine;
  for (const std::atomic<const PlanProof*>& known : of.proofs) {
    const PlanProof* const proof = may_be_known ? known.load(std::memory_order_acquire) : nullptr;
    if (!proof) break;
    if (proof->holds(graph, partition.groups[group], layouts, pieces[0])) return {};
  }
  std::string wrong = verify_plan(graph, partition, group, layouts, pieces);
  if (!wrong.empty() || !may_be_known || of.tries.load(std::memory_order_relaxed) >= kMost) return wrong;
  if (const int mine = of.tries.fetch_add(1, std::memory_order_relaxed); mine < kMost)
    if (std::unique_ptr<const PlanProof> proof = PlanProof::of(graph, partition, group, layouts, pieces[0])) {
      for (std::atomic<const PlanProof*>& free : of.proofs) {
        const PlanProof* none = nullptr;
        if (free.compare_exchange_strong(none, proof.get(), std::memory_order_release, std::memory_order_relaxed)) {
          static_cast<void>(proof.release());
          break;
        }
      }
    }
  return wrong;
}

}  // namespace onepass::compiler
