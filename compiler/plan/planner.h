// Planner: builds the loop nests of one fusion group. plan.h states the task. plan.cpp has the main loop; each plan_*.cpp has one part.
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

struct HashOperator {
  std::size_t operator()(const Statement& s) const {
    std::uint64_t h = static_cast<std::uint64_t>(s.op) | static_cast<std::uint64_t>(s.dtype) << 32;
    for (const std::uint32_t o : {s.a, s.b, s.c}) h = mix(h, o);
    return h;
  }
};

class Planner {
 public:
  Planner(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
          std::span<const Layout> targets)
      : graph_(graph), partition_(partition), group_(group), layouts_(layouts), targets_(targets) {
    const Group& g = partition.groups[group];
    for (std::size_t i = 0; i < g.domain.size(); ++i)
      loops_.push_back({g.domain[i], ((g.reduced | g.ordered) >> i & 1) != 0, static_cast<std::uint8_t>(i)});
    // The axis along which a ScatterAdd adds updates may have one element and is then not in `ordered`.
    in_sequence_ =
        (g.reduced | g.ordered) != 0 || std::ranges::any_of(g.roots, [&](ir::NodeId root) { return graph[root].op == ir::Op::ScatterAdd; });
  }
  std::vector<Planned> run();

 private:
  struct Loop {
    std::int64_t extent;
    bool reduced;                // or sequential
    std::uint8_t axis;           // index of the domain axis
    std::int64_t full = extent;  // full extent of the axis; a loop that was cut starts at `begin`
    std::int64_t begin = 0;
    // Interleave factor: indices that one iteration computes. Iteration i computes the indices i*phases .. (i+1)*phases.
    std::int64_t phases = 1;
  };
  struct Demand {
    std::uint32_t map, operand_map;
    std::uint32_t statement = kNone;
    std::uint32_t like = kNone;             // another demand of the node under a weaker predicate, whose value is used
    std::uint32_t data = kNone;             // Gather and ScatterAdd: the map of x
    std::vector<std::uint32_t> piece_maps;  // Piecewise: the map of each operand; kNone if it is not needed
  };
  using DemandList = std::pmr::vector<Demand>;
  // Result of build(): done, or the reason to restart with other loops.
  enum class Wanted : std::uint8_t { Nothing, Split, Cut };
  struct Quotient {  // or the value of checked index `place` at `map`
    std::uint32_t expression;
    std::int64_t by;
    bool modulo;
    std::int64_t low, high;
    NodeId place = ir::kNoNode;
    std::uint32_t map = 0;
    std::uint64_t loops = 0;     // loops in its expression, without data-dependent variables
    std::uint32_t data = kNone;  // the data-dependent variable in its expression, or kNone
  };
  struct Box {
    NodeId operand;
    List start, step;
  };
  enum class Lies : std::uint8_t { Outside, Partly, Inside };
  // Edges of a few boxes that cut the loops: all edges, the two edges around the longest part, or no edge.
  enum class Cuts : std::uint8_t { All, Longest, None };

  const Graph& graph_;
  const Partition& partition_;
  std::uint32_t group_;
  std::span<const Layout> layouts_, targets_;
  std::vector<Loop> loops_;
  Wanted wanted_ = Wanted::Nothing;
  std::uint32_t wanted_loop_ = 0;
  std::int64_t wanted_at_ = 0;  // Split: extent of the inner loop; Cut: start of the second part
  bool in_sequence_ = false;
  bool wanted_phases_ = false;  // Split: the inner indices are interleaved in one iteration
  std::size_t pieces_ = 1;      // subdomains so far
  std::size_t work_ = 0;        // values that the subdomains so far compute
  Cuts cuts_ = Cuts::All;
  std::vector<Loop> split_loops_;               // the loops of the only piece, with those that maps have split
  std::vector<std::vector<Loop>> piece_loops_;  // the loops of each piece, with those that maps have split
  std::vector<Loop> parts_together_;  // the loops before the first cut, with the equal parts of a loop interleaved; empty if there are none
  bool prefers_long_loops_ = false;   // a long loop becomes the vector loop, even if its accesses are apart
  static constexpr std::int64_t kLongLoop = 64;
  bool keeps_whole_ = false;    // the loop of a scan is not split
  bool scan_is_split_ = false;  // the loop of a scan was split, and the parts did not merge again
  bool flat_ = false;           // one loop runs through the elements of the group outputs
  Interner<Expression, HashExpression> expressions_;
  Interner<std::vector<std::uint32_t>, HashList> maps_;    // axis expressions, then the predicate
  Interner<std::vector<std::uint32_t>, HashList> guards_;  // pairs (expression, index of bound)
  std::vector<Quotient> quotients_;
  std::vector<std::int64_t> bounds_;
  std::pmr::monotonic_buffer_resource demand_memory_;  // arena for many small lists that are freed together
  std::pmr::unordered_map<NodeId, DemandList> demands_{&demand_memory_};
  std::vector<NodeId> visited_;
  std::vector<std::size_t> roots_;                                // indices of the group outputs that have elements
  std::vector<std::uint32_t> root_maps_;                          // by group output, then by interleaved index
  std::unordered_map<std::uint64_t, std::uint32_t> position_of_;  // flat: by shape and map, the row-major position
  std::vector<Statement> body_;
  std::vector<std::uint32_t> access_expressions_, access_buffers_;
  std::vector<std::uint32_t> access_tables_;  // array lists: expression that selects the member; else kNone
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
  std::optional<ir::SumOrder> order_;  // order of the floating-point sums
  NodeId ordered_ = ir::kNoNode;
  bool scans_in_groups_ = false;
  bool has_columns_ = false;  // the group has fused column reductions

  // ---- plan.cpp: the loops, and restarts with other loops
  static constexpr std::uint32_t kFirstDerived = 1u << 16;  // variables: loops, then quotients
  static constexpr std::size_t kMostPieces = 1 << 14;
  // The values of all subdomains together may exceed kMostWork by at most kMostTimes times the number of values of the group.
  static constexpr std::size_t kMostWork = 1 << 13, kMostTimes = 4;
  static constexpr std::int64_t kMostPhases = 8, kMostPhasesOfTwo = 16;  // of one loop; of two loops together
  static constexpr std::size_t kMostOfPhases = 64;                       // limit of the statements of all interleaved indices together
  static constexpr std::size_t kMostOfShortRow = 512;  // the same limit for the elements of a short row, which share most statements
  static constexpr std::size_t kFewBoxes = 4;
  // Rows of at most kShortRow elements get special code only in nests of at least kPhaseElements, or kShortRowElements if the code needs
  // buffers of replicated rows.
  static constexpr std::int64_t kPhaseElements = 256, kShortRowElements = 4096;
  // Fewest rows of a short-row nest. Operands with one element per row are loaded in whole registers, which must end within the array.
  static constexpr std::int64_t kFewestShortRows = 16;
  // Below these sizes, boxes are selected element by element. kPieceElements is for values of at most kPieceWork instructions.
  static constexpr std::int64_t kPieceElements = 4096, kPieceRow = 64;
  static constexpr double kPieceWork = 8;
  // True if the group reduces, scans or adds. Its loops are then neither cut nor interleaved.
  bool in_sequence() const { return in_sequence_; }
  std::int64_t phases() const {  // of all loops together; the phases of the last loop vary fastest
    std::int64_t n = 1;
    for (const Loop& l : loops_) n *= l.phases;
    return n;
  }
  std::int64_t phase_of(std::uint32_t loop, std::int64_t phase) const {
    for (std::size_t k = loops_.size(); k-- > loop + 1u;) phase /= loops_[k].phases;
    return phase % loops_[loop].phases;
  }
  // Returns the nests of the subdomains of an iteration space.
  std::vector<Planned> in_loops(const std::vector<Loop>& loops);
  std::vector<Planned> in_pieces(const std::vector<Loop>& loops);
  // True if the subdomains compute far more values than the group has. Each value is code.
  bool is_too_much_work();
  std::size_t nodes_in_group();
  std::size_t nodes_in_group_ = 0;  // 0: not counted yet
  // Returns the instructions for an element of each operand of a Piecewise.
  double work_of_boxes(NodeId id) const;
  // Returns how many quotients and predicates of single elements the subdomains evaluate, for all elements together.
  static double selections_in(const std::vector<Planned>& pieces);
  // True if `pieces` is one elementwise nest with a last loop too short for vectors, within enough iterations of other loops.
  static double work_of(const Planned& p);
  static double work_of_all(const std::vector<Planned>& pieces);
  static std::int64_t elements_of(const Planned& p);
  static bool ends_in_short_rows(const std::vector<Planned>& pieces);
  std::vector<Planned> in_best_loops(const std::vector<Loop>& loops);
  // True if a vector loop has few elements, many times, and accesses that are apart: each run of the loop takes longer than a whole vector.
  bool runs_short_loops(const std::vector<Planned>& pieces) const;
  // Returns the same elementwise nest with the elements of the last `rows` loops interleaved in one iteration of the loop over the other
  // axes. Returns an empty vector if the nest has another form.
  std::vector<Planned> in_phases(std::vector<Loop> loops, std::size_t statements, std::size_t rows = 1);
  // Returns the same elementwise nest with the iterations of a short outer loop interleaved. The values that they read are adjacent in
  // memory; the values that they store go to separate planes. Returns an empty vector if there is no such loop.
  std::vector<Planned> in_planes(std::vector<Loop> loops, const std::vector<Planned>& pieces);
  // Returns the same elementwise nests, in which one iteration stores several copies or equal parts, so that these share costly values.
  // Returns an empty vector if that saves little. Reads parts_together_ and piece_loops_ of `pieces`.
  std::vector<Planned> in_copies(std::vector<Planned> pieces);
  // Replaces the nests by nests with these loops, if they are no more and save instructions. Returns false otherwise.
  bool try_loops(const std::vector<Loop>& loops, std::vector<Planned>& pieces);
  // Sets parts_together_ if the boxes are the equal parts of an axis of the Piecewise, along one whole loop.
  void note_equal_parts(NodeId id, const std::vector<std::uint32_t>& axes);
  // Returns one loop over all elements if every group output is an elementwise value stored in that order; else an empty vector.
  std::vector<Loop> flattened() const;
  static std::uint64_t map_in(ir::ListId shape, std::uint32_t map) { return std::uint64_t{shape} << 32 | map; }

  // ---- plan_maps.cpp: indices as expressions of loops, quotients, maps composed through views
  // Returns the domain axes that a reduction reduces. Its operand has all domain axes in their order.
  std::uint64_t reduced_by(NodeId id) const;
  void range_of(const Expression& e, std::int64_t& low, std::int64_t& high) const;
  std::uint32_t quotient(const Expression& e, std::int64_t by, bool modulo);
  // Returns the data-dependent variable: the value of node `place` at `map`, below `extent`.
  std::uint32_t data_variable(NodeId place, std::uint32_t map, std::int64_t extent);
  // Returns the affine map of the indexed array, given the affine map of its indices.
  std::uint32_t at_places(NodeId id, std::uint32_t map);
  // Returns the data-dependent variable of a map, or kNone. There is at most one, because gathered arrays are in memory.
  std::uint32_t data_in(const Expression& e) const;
  std::uint32_t data_of(std::uint32_t map) const;
  void want(Wanted what, std::uint32_t loop, std::int64_t at, bool phases = false);
  // True if the iterations of this loop may each compute several indices.
  bool is_last_whole(std::uint32_t loop) const;
  // Sets q and r so that e = by * q + r. The coefficients and the offset of r are below `by`; the value of r may be larger.
  static void divide_terms(const Expression& e, std::int64_t by, Expression& q, Expression& r);
  // Sets q and r so that e = by * q + r and 0 <= r < by. If `interleaved` is not 0, that many boxes alternate along the axis of r.
  void divide(const Expression& e, std::int64_t by, Expression& q, Expression& r, std::int64_t interleaved = 0);
  // Returns the index along consecutive loops; the last loop varies fastest.
  std::uint32_t along(const std::vector<std::uint32_t>& loops, std::int64_t phase = 0);
  // Returns the map of a group output at one interleaved index.
  std::uint32_t map_of_root(std::size_t root, std::int64_t phase);
  std::vector<std::uint32_t> axes_of_root(std::size_t root, std::int64_t phase);
  // Returns the axes of a reduction's operand, which has the whole domain in its order.
  std::vector<std::uint32_t> axes_of_operand(NodeId node);
  // Returns the predicate narrowed to 0 <= e < bound, or nullopt if the narrowed predicate is never true. Bounds on expressions that
  // differ only in offset become one check.
  std::optional<std::uint32_t> with_guard(std::uint32_t guard, const Expression& e, std::int64_t bound);
  // Sets axes first .. end of `out` from their row-major position `linear`. Returns false if it asks for other loops first.
  bool spread(Expression linear, List shape, std::size_t first, std::size_t end, std::vector<std::uint32_t>& out,
              std::int64_t interleaved = 0);
  // Returns how many boxes of a Piecewise alternate along its last axis, one index each, or 0. Looks through views of the Piecewise.
  std::int64_t alternating_boxes(NodeId id) const;
  // Returns the map of a view's operand.
  std::uint32_t compose(NodeId id, std::uint32_t map);

  // ---- plan_pieces.cpp: boxes of a Pad or a Piecewise
  std::size_t count_boxes(NodeId id) const;
  Box box_of(NodeId id, std::size_t k) const;
  // Returns how the loop indices relate to a box. Sets the map of the box's operand, with its predicate narrowed to the box.
  Lies compose_box(const Box& box, std::uint32_t map, std::uint32_t& operand_map);
  // Returns the last loop if its iterations should compute `by` indices each, for a box of steps of `by` along `e`; else kNone.
  std::uint32_t loop_to_interleave(const Expression& e, std::int64_t by);
  // Returns the maps of the operands that the loop indices can reach. May request other loops first.
  std::vector<std::uint32_t> pieces_of(NodeId id, std::uint32_t map);
  // Requests loops cut at an edge of these boxes, or an interleaved last loop, if only one loop moves through them.
  void cut_between(NodeId id, std::uint32_t map, const std::vector<std::size_t>& met);
  static void keep_longest(std::vector<std::int64_t>& cuts, std::int64_t extent);
  // Returns the value that selects between the boxes that the loop indices can reach.
  std::uint32_t joined(NodeId id, const Demand& d);

  // ---- plan_demand.cpp: needed values and their maps
  bool in_memory(NodeId id) const { return partition_.loads(graph_, id, group_); }
  // True for a sum (+0) or product (1) of no elements. Its operands are not computed.
  bool reduces_nothing(NodeId id) const;
  void demand(std::priority_queue<NodeId>& queue, NodeId id, std::uint32_t map);
  void build();
  // Demands x of a Gather at the checked indices. For a ScatterAdd, demands its initial value or the updates that it adds.
  void index_by_data(std::priority_queue<NodeId>& queue, NodeId id, std::size_t i);
  // Calls f(operand, map) for each operand that a value is computed from.
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
  // If a value is read with one index under several predicates, computes it only once, under the weakest predicate that the other
  // predicates imply.
  void share(NodeId id);
  // True if the checks of `more` imply the checks of `fewer`.
  bool includes(const std::vector<std::uint32_t>& more, const std::vector<std::uint32_t>& fewer) const;
  Demand& demand_of(NodeId id, std::uint32_t map);
  std::uint32_t value_of(NodeId id, std::uint32_t map) { return demand_of(id, map).statement; }

  // ---- plan_statements.cpp: values as statements
  // Emits the statements of a value and of all values that it needs. The checked indices of a load come before it.
  std::uint32_t ensure(NodeId id, std::uint32_t map);
  // Returns the statement of the data-dependent variable in a map, or kNone.
  std::uint32_t data_statement(std::uint32_t map);
  std::uint32_t data_value(const Quotient& q) const;
  std::uint64_t ordered_loops() const;
  std::uint64_t loops_of(const Expression& e) const;
  std::uint32_t emit(Statement s);
  std::uint32_t guard_statement(std::uint32_t guard);
  std::unordered_map<std::uint32_t, std::uint32_t> guard_statements_;
  // Returns the element type in memory. Other kernels read a half as F32, unrounded; the arrays of the caller hold halves.
  DType memory_type(NodeId id, std::int32_t output) const;
  std::uint32_t buffer_for(NodeId id, bool written, std::int32_t output);
  std::uint32_t access_for(NodeId id, std::uint32_t map, bool written, std::int32_t output);
  // Replaces by * (x div by) + (x mod by) by x. Views that split an axis and join it again have such addresses.
  void recombine(Expression& e) const;
  std::uint32_t access_of(const Expression& e, std::uint32_t table, std::uint32_t buffer);
  std::uint64_t loops_of_access(std::uint32_t access) const;
  // Returns the array list of a node, or null. A result that is read as an array list is stored as one array.
  const ArrayList* list_of(NodeId id, bool written) const;
  // Returns the access to an array list. Lists of scalar parameters have their values in the pointer table, one per entry.
  std::uint32_t access_in_list(NodeId id, std::uint32_t map, bool written, std::int32_t output, const ArrayList& list);
  // Returns the layout of the memory that the copy-th output of a node is written to.
  const Layout& target_of(NodeId id, std::int32_t copy) const;
  std::uint32_t conversion(Op op, std::uint32_t value, DType dtype, DType half);
  // Returns the operand of a conversion of a half: `value` rounded to that type. Values loaded as, or converted to, that type are already
  // rounded.
  std::uint32_t rounded(std::uint32_t value, DType half);
  std::map<std::pair<std::uint32_t, DType>, std::uint32_t> rounded_;
  // Operators of the body. Equal operators on equal operands are one statement: different views of the graph may read the same elements.
  std::unordered_map<Statement, std::uint32_t, HashOperator> operators_;
  std::uint32_t zero(DType dtype);
  void make(NodeId id, Demand& d);
  void add_what_is_subtracted();
  void finish(Planned& out);

  // ---- plan_arrange.cpp: the order of the loops, and the canonical nest
  static constexpr std::int64_t kFarApart = std::int64_t{1} << 40;  // as a stride: distance between arrays of an array list
  // Finds interleaved access groups: loads of one array with stride c along the vector loop whose offsets differ by less than c elements.
  void find_families(std::vector<Access>& accesses, std::uint32_t vector) const;
  // True if the quotients of the only loop belong to rows of one length. Each access must then vary with only the loop, the row or the
  // column.
  bool has_short_rows(const std::vector<std::uint32_t>& quotients) const;
  // Orders and merges the loops, then writes the canonical Nest and its numbers. Runs the steps below in this order.
  void arrange(Planned& out);
  struct Arrangement {
    // Expressions that become affine maps: accesses, indices, checks, pointer tables, quotients.
    std::vector<std::uint32_t> used;
    // By access: position in `used` of the expression that selects the array of an array list, or kNone.
    std::vector<std::uint32_t> tables;
    std::vector<std::uint32_t> quotients;      // quotients in use, inner quotients first
    std::vector<std::uint32_t> kept, reduced;  // loops of more than one iteration that were not merged into other loops
    std::vector<std::int64_t> extent;          // by loop, with the loops merged into it
    std::size_t runs = 0;                      // reduced loops that count runs
    std::vector<std::uint32_t> merged;         // by loop: the loop that it was merged into, or itself
    // By check: after merging rows of `by` elements, 0 <= x < bound for an x that is equal in a row is 0 <= by x + i < by bound, where i is the
    // index in the row. The index of the merged loop, `loop`, has the coefficient 1 in it. kNone: the check is as it was.
    struct InRows {
      std::int64_t by = 1;
      std::uint32_t loop = kNone;
    };
    std::vector<InRows> checks;
    NestKind kind = NestKind::Map;
    std::vector<std::uint32_t> order;  // loops of the nest, the vector loop last; kNone: a loop of one iteration
  };
  Arrangement expressions_in_use() const;
  std::size_t first_check() const { return access_expressions_.size() + index_expressions_.size(); }  // position in Arrangement::used
  const Arrangement::InRows* in_rows(const Arrangement& a, std::size_t used) const;                   // null if it is not a check
  std::int64_t coefficient_in(const Arrangement& a, std::size_t used, std::uint32_t variable) const;
  void order_and_merge(Arrangement& a) const;
  void choose_kind(Arrangement& a);
  void choose_vector_loop(Arrangement& a, Nest& nest) const;
  void write_linears(const Arrangement& a, Planned& out) const;
  void join_phases(const Arrangement& a);  // fuses the stores of interleaved indices that are adjacent in memory
  void write_body(const Arrangement& a, Nest& nest) const;
  static void set_stages(Nest& nest);
  // Reversed loops run from their last index to the first, so that arrays with falling addresses are read forward.
  std::uint64_t reversed_ = 0;
  void choose_reversed();
  bool is_reversed(std::uint32_t variable) const { return variable < 64 && (reversed_ >> variable & 1) != 0; }
  std::int64_t coefficient(std::uint32_t expression, std::uint32_t variable) const;
  std::int64_t offset(std::uint32_t expression) const;
  std::int64_t stride(std::size_t access, std::uint32_t loop) const;
  bool contracts() const {
    return std::any_of(body_.begin(), body_.end(), [](const Statement& s) { return ir::is_contraction(s.op); });
  }
  std::vector<std::size_t> accesses_of_elements(const Arrangement& a) const;
  // Returns the number of contiguous accesses minus the number of strided accesses.
  int worth_as_vector_loop(std::uint32_t loop, const std::vector<std::size_t>& accesses) const;
};

}  // namespace onepass::compiler
