// Planner: the making of a group's nests. plan.h says what for; plan.cpp holds the frame and each plan_*.cpp one part, as its first line says.
#pragma once

#include <algorithm>
#include <map>
#include <memory_resource>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "compiler/plan/expression.h"
#include "compiler/plan/plan.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::Node;
using ir::NodeId;
using ir::Op;
inline constexpr std::uint32_t kNone = Statement::kNone;

class Planner {
 public:
  Planner(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
          std::span<const Layout> targets)
      : graph_(graph), partition_(partition), group_(group), layouts_(layouts), targets_(targets) {
    const Group& g = partition.groups[group];
    for (std::size_t i = 0; i < g.domain.size(); ++i)
      loops_.push_back({g.domain[i], ((g.reduced | g.ordered) >> i & 1) != 0, static_cast<std::uint8_t>(i)});
    // The axis along which updates are added may have one element, and is not in `ordered` then.
    in_sequence_ =
        (g.reduced | g.ordered) != 0 || std::ranges::any_of(g.roots, [&](ir::NodeId root) { return graph[root].op == ir::Op::ScatterAdd; });
  }
  std::vector<Planned> run();

 private:
  struct Loop {
    std::int64_t extent;
    bool reduced;                // or run in sequence
    std::uint8_t axis;           // of the group's domain
    std::int64_t full = extent;  // of the axis: the loop runs from `begin` on where it was cut
    std::int64_t begin = 0;
    std::int64_t phases = 1;  // indices that one iteration computes: iteration i has i*phases and those behind it
  };
  struct Demand {
    std::uint32_t map, operand_map;
    std::uint32_t statement = kNone;
    std::uint32_t like = kNone;             // another demand of the node, which differs by a weaker guard alone: its value will do
    std::uint32_t data = kNone;             // of a Gather and a ScatterAdd: the map of x
    std::vector<std::uint32_t> piece_maps;  // of a Piecewise, of each operand; kNone where it is not needed
  };
  using DemandList = std::pmr::vector<Demand>;
  // What a build met: nothing, or a reason to begin again in other loops.
  enum class Wanted : std::uint8_t { Nothing, Split, Cut };
  struct Quotient {  // or the value of `place` at `map`
    std::uint32_t expression;
    std::int64_t by;
    bool modulo;
    std::int64_t low, high;
    NodeId place = ir::kNoNode;
    std::uint32_t map = 0;
    std::uint64_t loops = 0;     // that its expression has, those of data left out
    std::uint32_t data = kNone;  // of the quotients in its expression the one that data bring
  };
  struct Box {
    NodeId operand;
    List start, step;
  };
  enum class Lies : std::uint8_t { Outside, Partly, Inside };
  // Which edges of few boxes cut the loops: all, those around the longest part between two of them, none.
  enum class Cuts : std::uint8_t { All, Longest, None };

  const Graph& graph_;
  const Partition& partition_;
  std::uint32_t group_;
  std::span<const Layout> layouts_, targets_;
  std::vector<Loop> loops_;
  Wanted wanted_ = Wanted::Nothing;
  std::uint32_t wanted_loop_ = 0;
  std::int64_t wanted_at_ = 0;  // Split: the inner loop's extent; Cut: where the second part begins
  bool in_sequence_ = false;
  bool wanted_phases_ = false;  // Split: the inner indices are phases of one iteration
  std::size_t pieces_ = 1;      // that the loops are cut into so far
  std::size_t work_ = 0;        // values that the pieces so far compute
  Cuts cuts_ = Cuts::All;
  bool keeps_whole_ = false;    // the loop of a scan is not split
  bool scan_is_split_ = false;  // it was, and the parts could not be merged again
  bool flat_ = false;           // one loop runs through the roots' elements
  Interner<Expression, HashExpression> expressions_;
  Interner<std::vector<std::uint32_t>, HashList> maps_;    // axes' expressions, then the guard
  Interner<std::vector<std::uint32_t>, HashList> guards_;  // pairs (expression, bound index)
  std::vector<Quotient> quotients_;
  std::vector<std::int64_t> bounds_;
  std::pmr::monotonic_buffer_resource demand_memory_;  // of many small ones, which go together
  std::pmr::unordered_map<NodeId, DemandList> demands_{&demand_memory_};
  std::vector<NodeId> visited_;
  std::vector<std::size_t> roots_;                                // which of the group's have elements
  std::vector<std::uint32_t> root_maps_;                          // of each of these, of each phase
  std::unordered_map<std::uint64_t, std::uint32_t> position_of_;  // flat: of a map of a shape, the position in row-major order
  std::vector<Statement> body_;
  std::vector<std::uint32_t> access_expressions_, access_buffers_;
  std::vector<std::uint32_t> access_tables_;  // of a list, which member; else kNone
  std::vector<std::uint32_t> check_expressions_;
  std::vector<std::int64_t> check_bounds_;
  std::vector<std::uint32_t> index_expressions_;
  std::vector<BufferInfo> buffers_;
  std::vector<NodeId> buffer_nodes_;
  std::vector<std::vector<NodeId>> buffer_members_;
  std::vector<std::int32_t> buffer_outputs_;
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint64_t> slot_signs_;  // NestNumbers::signs
  std::vector<DType> slot_types_;
  std::optional<ir::SumOrder> order_;  // of the float sums
  NodeId ordered_ = ir::kNoNode;
  bool scans_in_groups_ = false;
  bool has_columns_ = false;  // reductions over the axes that the group's others keep

  // ---- plan.cpp: the loops, and beginning again in others
  static constexpr std::uint32_t kFirstDerived = 1u << 16;  // variables: loops, then quotients
  static constexpr std::size_t kMostPieces = 1 << 14;
  // Values of all pieces together: so many, and so many times those of the group.
  static constexpr std::size_t kMostWork = 1 << 13, kMostTimes = 4;
  static constexpr std::int64_t kMostPhases = 8;
  static constexpr std::size_t kFewBoxes = 4;
  // A vector loop of fewer elements is not worth its tail; below so many elements in all, patterns are not worth making.
  static constexpr std::int64_t kShortRowElements = 4096;
  static constexpr std::int64_t kFewestShortRows = 16;  // what has one element a row is loaded in whole registers, which must lie within it
  static constexpr std::int64_t kPieceElements = 4096, kPieceRow = 64;  // below these, boxes are chosen between element by element
  bool in_sequence() const {
    return in_sequence_;
  }  // something is reduced, scanned or added: it has one store, and every index its own iteration
  std::int64_t phases() const { return loops_.empty() ? 1 : loops_.back().phases; }
  // The pieces of an iteration space.
  std::vector<Planned> in_loops(const std::vector<Loop>& loops);
  std::vector<Planned> in_pieces(const std::vector<Loop>& loops);
  // Do the pieces compute far more values than the group has? Each is code.
  bool is_too_much_work();
  std::size_t nodes_in_group() const;
  static std::size_t derived_in(const std::vector<Planned>& pieces);
  // Is it a map whose last loop is too short for vectors, within enough others?
  static bool ends_in_short_rows(const std::vector<Planned>& pieces);
  // The same map with the elements of the last axis side by side in one iteration of a loop over the others; none where it has another form.
  std::vector<Planned> in_phases(std::vector<Loop> loops, std::size_t statements);
  // The same map with the iterations of a short outer loop as phases of one iteration, where what they read lies side by side in memory and what
  // they store in planes of its own; none where there is no such loop.
  std::vector<Planned> in_planes(std::vector<Loop> loops, const std::vector<Planned>& pieces);
  // One loop through all elements, where every root is a map stored in that order; none otherwise.
  std::vector<Loop> flattened() const;
  static std::uint64_t map_in(ir::ListId shape, std::uint32_t map) { return std::uint64_t{shape} << 32 | map; }

  // ---- plan_maps.cpp: indices: expressions of loops, quotients, maps through views
  // The axes of the group's domain that a reduction reduces: its operand has all of them, in their order.
  std::uint64_t reduced_by(NodeId id) const;
  void range_of(const Expression& e, std::int64_t& low, std::int64_t& high) const;
  std::uint32_t quotient(const Expression& e, std::int64_t by, bool modulo);
  // The index that data bring: the value of that node at that map, below the extent of the axis.
  std::uint32_t data_variable(NodeId place, std::uint32_t map, std::int64_t extent);
  // The map of what is indexed by data, from that of the places.
  std::uint32_t at_places(NodeId id, std::uint32_t map);
  // The data variable that a map holds, if any: what is gathered lies in memory, so that there is one at most.
  std::uint32_t data_in(const Expression& e) const;
  std::uint32_t data_of(std::uint32_t map) const;
  void want(Wanted what, std::uint32_t loop, std::int64_t at, bool phases = false);
  // May the iterations of this loop compute several indices each?
  bool is_last_whole(std::uint32_t loop) const;
  // e = by * q + r, 0 <= r < by. `interleaved`: so many boxes alternate along the axis of r.
  void divide(const Expression& e, std::int64_t by, Expression& q, Expression& r, std::int64_t interleaved = 0);
  // The index along consecutive loops, the last running fastest.
  std::uint32_t along(const std::vector<std::uint32_t>& loops, std::int64_t phase = 0);
  // The map of a root in one of the phases.
  std::uint32_t map_of_root(std::size_t root, std::int64_t phase);
  std::vector<std::uint32_t> axes_of_root(std::size_t root, std::int64_t phase);
  // A reduction's operand has the whole domain, in its order.
  std::vector<std::uint32_t> axes_of_operand(NodeId node);
  // The guard and 0 <= e < bound; none where both never hold. What differs in its offset alone is one check.
  std::optional<std::uint32_t> with_guard(std::uint32_t guard, const Expression& e, std::int64_t bound);
  // The axes first .. end of a shape from the position in their row-major order. False where other loops are wanted first.
  bool spread(Expression linear, List shape, std::size_t first, std::size_t end, std::vector<std::uint32_t>& out,
              std::int64_t interleaved = 0);
  // How many boxes of a Piecewise alternate along its last axis, one index each; 0 where it is not so. Views of it are looked through.
  std::int64_t alternating_boxes(NodeId id) const;
  // The map of a view's operand.
  std::uint32_t compose(NodeId id, std::uint32_t map);

  // ---- plan_pieces.cpp: boxes of a Pad or a Piecewise
  std::vector<Box> boxes_of(NodeId id) const;
  // The map of a box's operand, its guard narrowed to the box, and where the indices of the loops lie.
  Lies compose_box(const Box& box, std::uint32_t map, std::uint32_t& operand_map);
  // The maps of the operands that the loops' indices can meet. May want other loops first.
  std::vector<std::uint32_t> pieces_of(NodeId id, std::uint32_t map);
  // Wants the loops cut at an edge of these boxes, or the last loop in phases, where one of its loops alone moves through them.
  void cut_between(NodeId id, std::uint32_t map, const std::vector<Box>& boxes, const std::vector<std::size_t>& met);
  static void keep_longest(std::vector<std::int64_t>& cuts, std::int64_t extent);
  // The boxes that the loops' indices can meet, chosen between.
  std::uint32_t joined(NodeId id, const Demand& d);

  // ---- plan_demand.cpp: which values are needed at which maps
  bool in_memory(NodeId id) const { return partition_.loads(graph_, id, group_); }
  // A sum of no elements is +0, a product 1, whatever they were to be: nothing behind it is computed.
  bool reduces_nothing(NodeId id) const;
  void demand(std::priority_queue<NodeId>& queue, NodeId id, std::uint32_t map);
  void build();
  // Of a Gather x at the places; of a ScatterAdd what it starts from, or what is added at the places.
  void index_by_data(std::priority_queue<NodeId>& queue, NodeId id, std::size_t i);
  // What a value is computed from, and where.
  template <class F> void each_operand(NodeId id, const Demand& d, F&& f) const {
    const Op op = graph_[id].op;
    if (in_memory(id) || ir::is_source(op) || reduces_nothing(id)) return;
    const List operands = graph_.operands(id);
    if (op == Op::Piecewise || op == Op::Pad) {
      for (std::size_t k = 0; k < d.piece_maps.size(); ++k)
        if (d.piece_maps[k] != kNone) f(static_cast<NodeId>(operands[k]), d.piece_maps[k]);
    } else if (op == Op::Gather) {
      if (d.data == kNone) return;
      f(static_cast<NodeId>(operands[1]), d.map);
      f(static_cast<NodeId>(operands[0]), d.data);
    } else {
      for (const std::int64_t o : operands) f(static_cast<NodeId>(o), d.operand_map);
    }
  }
  // A value read at the same place under several guards is computed once, under the weakest that the others include.
  void share(NodeId id);
  // Where all checks of `more` hold, do those of `fewer`?
  bool includes(const std::vector<std::uint32_t>& more, const std::vector<std::uint32_t>& fewer) const;
  Demand& demand_of(NodeId id, std::uint32_t map);
  std::uint32_t value_of(NodeId id, std::uint32_t map) { return demand_of(id, map).statement; }

  // ---- plan_statements.cpp: values as statements
  // Makes the statements of a value and of what it is computed from: of the places that a load needs, before it.
  std::uint32_t ensure(NodeId id, std::uint32_t map);
  // The statement of the data variable in a map, or none.
  std::uint32_t data_statement(std::uint32_t map);
  std::uint32_t data_value(const Quotient& q) const;
  std::uint64_t ordered_loops() const;
  std::uint64_t loops_of(const Expression& e) const;
  std::uint32_t emit(Statement s);
  std::uint32_t guard_statement(std::uint32_t guard);
  std::unordered_map<std::uint32_t, std::uint32_t> guard_statements_;
  // Other kernels read a half as f32, unrounded; the caller's arrays hold halves.
  DType memory_type(NodeId id, std::int32_t output) const;
  std::uint32_t buffer_for(NodeId id, bool written, std::int32_t output);
  std::uint32_t access_for(NodeId id, std::uint32_t map, bool written, std::int32_t output);
  std::uint32_t access_of(const Expression& e, std::uint32_t table, std::uint32_t buffer);
  std::uint64_t loops_of_access(std::uint32_t access) const;
  // A list that is read is stored as one array where it is a result.
  const ArrayList* list_of(NodeId id, bool written) const;
  // Numbers stand in their table themselves, one in each word.
  std::uint32_t access_in_list(NodeId id, std::uint32_t map, bool written, std::int32_t output, const ArrayList& list);
  // Of the memory that the copy-th output of a node is written to.
  const Layout& target_of(NodeId id, std::int32_t copy) const;
  std::uint32_t conversion(Op op, std::uint32_t value, DType dtype, DType half);
  // What a conversion of a half is given: the value rounded to that type, as what was loaded as such a half or converted to it already is.
  std::uint32_t rounded(std::uint32_t value, DType half);
  std::map<std::pair<std::uint32_t, DType>, std::uint32_t> rounded_;
  std::uint32_t zero(DType dtype);
  void make(NodeId id, Demand& d);
  void add_what_is_subtracted();
  void finish(Planned& out);

  // ---- plan_arrange.cpp: the order of the loops, and the canonical nest
  static constexpr std::int64_t kFarApart = std::int64_t{1} << 40;  // as a stride: arrays of a list
  // Loads of one array that are c apart along the vector loop and differ by 0 .. c-1 elements.
  void find_families(std::vector<Access>& accesses, std::uint32_t vector) const;
  // One loop, whose quotients are those of rows of one length: does each access go along with the loop, with the rows or with the places?
  bool has_short_rows(const std::vector<std::uint32_t>& quotients) const;
  // Chooses the order of the loops, merges them, and writes the canonical Nest and its numbers: the steps below, in this order.
  void arrange(Planned& out);
  struct Arrangement {
    std::vector<std::uint32_t> used;           // expressions that become linears: of accesses, indices, checks, tables, quotients
    std::vector<std::uint32_t> tables;         // of each access, the place in `used` of what chooses the array of a list; kNone
    std::vector<std::uint32_t> quotients;      // in use, inner ones first
    std::vector<std::uint32_t> kept, reduced;  // loops of more than one iteration, those that were merged into others left out
    std::vector<std::int64_t> extent;          // of each loop, with those merged into it
    std::size_t runs = 0;                      // reduced loops that count runs
    NestKind kind = NestKind::Map;
    std::vector<std::uint32_t> order;  // of the nest's loops, the vector loop last; kNone: a loop of one
  };
  Arrangement expressions_in_use() const;
  void order_and_merge(Arrangement& a) const;
  void choose_kind(Arrangement& a);
  void choose_vector_loop(Arrangement& a, Nest& nest) const;
  void write_linears(const Arrangement& a, Planned& out) const;
  void join_phases(const Arrangement& a);  // stores whose phases lie beside each other become one
  void write_body(const Arrangement& a, Nest& nest) const;
  static void set_stages(Nest& nest);
  std::int64_t coefficient(std::uint32_t expression, std::uint32_t variable) const;
  std::int64_t stride(std::size_t access, std::uint32_t loop) const;
  bool contracts() const {
    return std::any_of(body_.begin(), body_.end(), [](const Statement& s) { return ir::is_contraction(s.op); });
  }
  int worth_as_vector_loop(std::uint32_t loop) const;  // contiguous accesses, less those that stride
};

}  // namespace onepass::compiler
