// find_steps: see find_steps.h.
//
//   h[t] = w + a*r[t] + b*h[t-1], t < 10000      nodes slice, mul, add, mul, add, repeated: becomes one node steps, with the last add as
//                                                the next state; other readers of an h[t] read slices of its results
//
// Nodes are in recording order, so equal steps are a run of repeating nodes. Node i + period equals node i except for its operands, which
// advance by a constant from each step to the next. An operand that advances by the period is a value of the same step, or of an earlier
// step: a state. An operand that stays fixed is a capture. All other operands are one node for each step, or slices of an array.
//
// Nodes that the recurrence does not need stay written out. Each step has one copy of them, and reroll turns these copies into one
// expression. Left out on purpose: steps with reductions or matrix products, pure sums (reroll adds them), halves.
#include "compiler/find_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/rewrite.h"
#include "compiler/step_body.h"
#include "ir/steps.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr NodeId kLongestStep = 1 << 12;
constexpr NodeId kWindow = 8;            // nodes compared at once
constexpr std::int64_t kLongestLag = 4;  // the furthest earlier step that a step may read
constexpr std::size_t kNoRun = ~std::size_t{0};

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

using Ref = StepRef;

// An array that step t reads at index t. It holds value first + t*apart of a run, one node for each step, or one slice for each step.
struct StepArray {
  enum class Kind : std::uint8_t { Run, Nodes, Slices } kind;
  NodeId first;
  std::int64_t apart;
};

// A run of equal steps: step t begins at node begin + t*period.
struct Run {
  NodeId begin, period;
  std::int64_t count;
  std::vector<std::array<std::int64_t, 3>> apart;  // by node of a step and operand: its advance from step to step
  std::vector<bool> needed;                        // by node of a step: needed by the recurrence
  std::int64_t elements = 1;
  Steps steps;
  std::vector<Ref> lines_at;                                      // by node of a step; unset for unneeded nodes, and then never read
  std::map<std::pair<NodeId, std::int64_t>, std::size_t> states;  // by node of a step and number of steps back
  std::vector<NodeId> inits, captures;
  std::vector<StepArray> arrays;
  std::vector<std::vector<Ref>> operands;  // operands of each line
  std::vector<Ref> next;
  // Result number by node of a step, for nodes that are read outside the run.
  std::map<NodeId, std::size_t> results;
  std::vector<NodeId> made;  // by result: the node in the new graph

  NodeId end() const { return begin + period * static_cast<NodeId>(count); }
  std::int64_t lines() const { return static_cast<std::int64_t>(steps.lines.size()) * count; }
  bool holds(NodeId id) const { return id >= begin && id < end(); }
  NodeId place(NodeId id) const { return (id - begin) % period; }
  std::int64_t step(NodeId id) const { return (id - begin) / period; }
  bool computes(NodeId id) const { return holds(id) && needed[place(id)]; }
};

class Finder {
 public:
  explicit Finder(Graph graph) : graph_(std::move(graph)) {}

  std::optional<Graph> run() {
    describe();
    find_runs();
    if (runs_.empty()) return {};
    find_readers();
    return rebuilt();
  }

 private:
  const Graph graph_;
  Graph out_;
  // Equal for nodes that may be copies. Ignores operand ids and the starts of slices.
  std::vector<std::uint64_t> form_;
  std::vector<std::uint64_t> window_;  // hash of kWindow forms from this node on
  std::vector<NodeId> next_same_;      // the next node with the same window
  std::vector<NodeId> last_reader_;    // by node: the last node that reads it; kNoNode: an output
  std::vector<Run> runs_;
  std::vector<bool> is_read_;  // read by a node outside its own run
  std::vector<NodeId> now_;

  void describe() {
    const NodeId n = graph_.size();
    last_reader_.assign(n, 0);
    for (NodeId id = 0; id < n; ++id)
      for (const std::int64_t o : graph_.operands(id)) last_reader_[static_cast<std::size_t>(o)] = id;
    for (const NodeId id : graph_.outputs) last_reader_[id] = kNoNode;
    form_.resize(n);
    for (NodeId id = 0; id < n; ++id) {
      const Node node = graph_[id];
      std::uint64_t h = mix(static_cast<std::uint64_t>(node.op) | static_cast<std::uint64_t>(node.dtype) << 8, node.shape);
      const List attributes = graph_.attributes(id);
      if (node.op == Op::Slice)
        for (const std::int64_t step : attributes.subspan(attributes.size() / 2)) h = mix(h, static_cast<std::uint64_t>(step));
      else h = mix(h, node.attributes);
      h = mix(h, node.bits);
      for (const std::int64_t o : graph_.operands(id)) {
        const Node of = graph_[static_cast<NodeId>(o)];
        h = mix(mix(h, static_cast<std::uint64_t>(of.dtype)), of.shape);
      }
      form_[id] = h;
    }
    window_.assign(n, 0);
    next_same_.assign(n, kNoNode);
    std::unordered_map<std::uint64_t, NodeId> seen;
    for (NodeId id = n - std::min(n, kWindow); id-- > 0;) {
      std::uint64_t h = 0;
      for (NodeId k = 0; k < kWindow; ++k) h = mix(h, form_[id + k]);
      window_[id] = h;
      const auto [it, fresh] = seen.try_emplace(h, id);
      if (!fresh) next_same_[id] = std::exchange(it->second, id);
    }
  }

  std::int64_t operand(NodeId id, std::size_t k) const { return graph_.operands(id)[k]; }

  // True if node id + period differs from node id in the same way as in the steps before. With `first`, stores the difference instead.
  bool goes_on(NodeId id, NodeId period, bool first, std::array<std::int64_t, 3>& apart, std::vector<std::int64_t>& starts) const {
    const NodeId other = id + period;
    if (form_[id] != form_[other]) return false;
    const List x = graph_.operands(id), y = graph_.operands(other);
    if (x.size() != y.size() || x.size() > 3) return false;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const std::int64_t by = y[k] - x[k];
      if (first) apart[k] = by;
      else if (apart[k] != by) return false;
    }
    if (graph_[id].op == Op::Slice) {
      const List p = graph_.attributes(id), q = graph_.attributes(other);
      if (first) starts.resize(p.size() / 2);
      for (std::size_t i = 0; i < p.size() / 2; ++i)
        if (first) starts[i] = q[i] - p[i];
        else if (starts[i] != q[i] - p[i]) return false;
    }
    return true;
  }

  // Returns the number of nodes by which the run from `begin` with this period continues.
  NodeId length_of(NodeId begin, NodeId period, std::vector<std::array<std::int64_t, 3>>& apart) const {
    apart.assign(period, {});
    std::vector<std::vector<std::int64_t>> starts(period);
    NodeId k = 0;
    for (; begin + k + period < graph_.size(); ++k)
      if (!goes_on(begin + k, period, k < period, apart[k % period], starts[k % period])) break;
    return k;
  }

  void find_runs() {
    for (NodeId id = 0; id < graph_.size();) {
      NodeId end = id + 1, other = next_same_[id];
      for (int tries = 0; tries < 4 && other != kNoNode && other - id <= kLongestStep; ++tries, other = next_same_[other]) {
        const NodeId period = other - id;
        std::vector<std::array<std::int64_t, 3>> apart;
        const NodeId length = length_of(id, period, apart);
        if (static_cast<std::int64_t>(length / period) + 1 < kFewestReadSteps) continue;
        end = std::max(id + length, add_run(id, period, length, std::move(apart)));
        break;
      }
      id = end;
    }
  }

  // Returns the step boundary at which the fewest values pass from one step to the next. The choice does not affect results.
  NodeId best_begin(NodeId begin, NodeId period, const std::vector<std::array<std::int64_t, 3>>& apart) const {
    std::vector<std::int64_t> crossing(period + 1, 0);  // by position: number of values that are read across it
    std::vector<NodeId> last(period, 0);                // by node: distance to its last reader
    const NodeId from = begin + 4 * period;             // a step whose operands are in the run
    for (NodeId k = 0; k < period; ++k)
      for (std::size_t i = 0; i < graph_.operands(from + k).size(); ++i) {
        if (apart[k][i] != period) continue;
        const auto o = static_cast<NodeId>(operand(from + k, i));
        if (o < begin) continue;
        NodeId& far = last[(o - begin) % period];
        far = std::max(far, from + k - o);
      }
    for (NodeId k = 0; k < period; ++k)
      for (NodeId far = 1; far <= std::min(last[k], period); ++far) ++crossing[(k + far) % period];
    NodeId best = 0;
    for (NodeId k = 0; k < period; ++k)
      if (crossing[k] < crossing[best]) best = k;
    return best;
  }

  // Adds the run and returns its end; returns 0 if it does not qualify.
  NodeId add_run(NodeId begin, NodeId period, NodeId length, std::vector<std::array<std::int64_t, 3>> apart) {
    const NodeId shift = best_begin(begin, period, apart);
    Run run;
    run.begin = begin + shift;
    run.period = period;
    run.count = (length + period - shift) / period;
    std::rotate(apart.begin(), apart.begin() + shift, apart.end());
    run.apart = std::move(apart);
    if (run.count < kFewestReadSteps || !find_needed(run) || !describe_step(run)) return 0;
    if ((run.count < kFewestSteps || run.lines() < kFewestInSteps) && (run.elements > kFewElements || !is_read_step_by_step(run))) return 0;
    runs_.push_back(std::move(run));
    return runs_.back().end();
  }

  // Location of operand i of node k of a step within the run: the node, and the number of steps back.
  struct Inner {
    NodeId place;
    std::int64_t lag;
  };
  std::optional<Inner> inner(const Run& run, NodeId k, std::size_t i) const {
    const NodeId last = run.begin + run.period * static_cast<NodeId>(run.count - 1);
    const auto o = static_cast<NodeId>(operand(last + k, i));
    if (!run.holds(o) || run.apart[k][i] != run.period) return {};
    return Inner{run.place(o), run.count - 1 - run.step(o)};
  }

  // Marks the nodes that the recurrence needs, by repeatedly removing nodes without a reader in the run. Returns false if no node is left,
  // or if only sums are left.
  bool find_needed(Run& run) const {
    const NodeId n = run.period;
    std::vector<std::uint32_t> readers(n, 0);
    std::vector<std::array<NodeId, 3>> from(n);
    for (NodeId k = 0; k < n; ++k) {
      from[k].fill(kNoNode);
      for (std::size_t i = 0; i < graph_.operands(run.begin + k).size(); ++i)
        if (const std::optional<Inner> o = inner(run, k, i)) from[k][i] = o->place, ++readers[o->place];
    }
    run.needed.assign(n, true);
    std::vector<NodeId> open;
    for (NodeId k = 0; k < n; ++k)
      if (readers[k] == 0) open.push_back(k);
    while (!open.empty()) {
      const NodeId k = open.back();
      open.pop_back();
      run.needed[k] = false;
      for (const NodeId o : from[k])
        if (o != kNoNode && --readers[o] == 0) open.push_back(o);
    }
    // Checks that a recurrence is left after removing sums that only add to themselves.
    std::vector<bool> left = run.needed;
    std::fill(readers.begin(), readers.end(), 0);
    const auto is_sum = [&](NodeId k) {
      if (graph_[run.begin + k].op != Op::Add) return false;
      return std::ranges::count(from[k], k) == 1;
    };
    for (NodeId k = 0; k < n; ++k)
      for (const NodeId o : from[k])
        if (left[k] && o != kNoNode && !(o == k && is_sum(k))) ++readers[o];
    for (NodeId k = 0; k < n; ++k)
      if (left[k] && readers[k] == 0) open.push_back(k);
    while (!open.empty()) {
      const NodeId k = open.back();
      open.pop_back();
      left[k] = false;
      for (const NodeId o : from[k])
        if (o != kNoNode && o != k && left[o] && --readers[o] == 0) open.push_back(o);
    }
    return std::ranges::find(left, true) != left.end();
  }

  // True if nodes outside the run read values of most steps, for example the results of all steps, or their derivatives.
  bool is_read_step_by_step(const Run& run) const {
    std::int64_t read = 0;
    for (std::int64_t step = 0; step < run.count; ++step) {
      const NodeId first = run.begin + run.period * static_cast<NodeId>(step);
      for (NodeId id = first; id < first + run.period; ++id)
        if (last_reader_[id] >= run.end()) {
          ++read;
          break;
        }
    }
    return 2 * read > run.count;
  }

  std::size_t state(Run& run, NodeId place, std::int64_t lag) const {
    const auto it = run.states.find({place, lag});
    if (it != run.states.end()) return it->second;
    if (lag > 1) state(run, place, lag - 1);
    run.inits.push_back(run.begin + place - static_cast<NodeId>(lag) * run.period);
    return run.states[{place, lag}] = run.inits.size() - 1;
  }

  // Returns a reference to the value of operand i of node k; nullopt if it cannot be expressed.
  std::optional<Ref> operand_ref(Run& run, NodeId k, std::size_t i) const {
    const NodeId id = run.begin + k;
    const auto o = static_cast<NodeId>(operand(id, i));
    if (const std::optional<Inner> in = inner(run, k, i)) {
      if (in->lag == 0) return run.lines_at[in->place];
      if (in->lag > kLongestLag || static_cast<NodeId>(in->lag) * run.period > run.begin + in->place) return {};
      return Ref{Ref::Kind::State, state(run, in->place, in->lag)};
    }
    const std::int64_t apart = run.apart[k][i], last = o + apart * (run.count - 1);
    if (o >= run.begin || last >= run.begin || last < 0) return {};
    if (apart == 0) {
      const auto it = std::ranges::find(run.captures, o);
      if (it != run.captures.end()) return Ref{Ref::Kind::Capture, static_cast<std::size_t>(it - run.captures.begin())};
      run.captures.push_back(o);
      return Ref{Ref::Kind::Capture, run.captures.size() - 1};
    }
    StepArray array{StepArray::Kind::Nodes, o, apart};
    for (const Run& other : runs_)
      if (other.computes(o) && other.holds(static_cast<NodeId>(last)) && std::abs(apart) == static_cast<std::int64_t>(other.period))
        array.kind = StepArray::Kind::Run;
    if (array.kind == StepArray::Kind::Nodes)
      for (std::int64_t t = 0; t < run.count; ++t) {
        const auto each = static_cast<NodeId>(o + t * apart);
        if (graph_[each].dtype != graph_[o].dtype || graph_[each].shape != graph_[o].shape) return {};
      }
    const auto same = [&](const StepArray& a) { return a.kind == array.kind && a.first == o && a.apart == apart; };
    const auto it = std::ranges::find_if(run.arrays, same);
    if (it != run.arrays.end()) return Ref{Ref::Kind::Array, static_cast<std::size_t>(it - run.arrays.begin())};
    run.arrays.push_back(array);
    return Ref{Ref::Kind::Array, run.arrays.size() - 1};
  }

  // True for a slice with one index along one axis, which advances from step to step.
  bool moves_along_an_axis(const Run& run, NodeId k, std::size_t& axis) const {
    const NodeId id = run.begin + k;
    if (run.apart[k][0] != 0 || graph_.operand(id, 0) >= run.begin) return false;
    const List p = graph_.attributes(id), q = graph_.attributes(id + run.period), shape = graph_.shape(id);
    axis = shape.size();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (p[i] == q[i]) continue;
      if (axis != shape.size() || shape[i] != 1) return false;
      axis = i;
    }
    return axis != shape.size();
  }

  bool describe_step(Run& run) const {
    for (NodeId k = 0; k < run.period; ++k)
      if (run.needed[k]) run.elements = std::max(run.elements, graph_.elements(run.begin + k));
    run.lines_at.resize(run.period, Ref{Ref::Kind::Line, 0});
    for (NodeId k = 0; k < run.period; ++k) {
      if (!run.needed[k]) continue;
      const NodeId id = run.begin + k;
      const Node node = graph_[id];
      const std::int64_t elements = graph_.elements(id);
      if (elements != 1 && elements != run.elements) return false;
      if (node.op == Op::Slice) {
        std::size_t axis = 0;
        if (!moves_along_an_axis(run, k, axis)) return false;
        run.lines_at[k] = Ref{Ref::Kind::Array, run.arrays.size()};
        run.arrays.push_back({StepArray::Kind::Slices, id, static_cast<std::int64_t>(axis)});
        continue;
      }
      const bool keeps =
          node.op == Op::Reshape ||
          (node.op == Op::Broadcast && (graph_.elements(graph_.operand(id, 0)) == 1 || graph_.elements(graph_.operand(id, 0)) == elements));
      if (keeps) {
        const std::optional<Ref> ref = operand_ref(run, k, 0);
        if (!ref) return false;
        run.lines_at[k] = *ref;
        continue;
      }
      if (!is_elementwise(node.op) || node.attributes != 0) return false;
      StepLine line{node.op, node.dtype, 0, {StepLine::kNone, StepLine::kNone, StepLine::kNone}};
      std::vector<Ref> operands;
      for (std::size_t i = 0; i < graph_.operands(id).size(); ++i) {
        const std::optional<Ref> ref = operand_ref(run, k, i);
        if (!ref) return false;
        operands.push_back(*ref);
      }
      run.lines_at[k] = Ref{Ref::Kind::Line, run.steps.lines.size()};
      run.steps.lines.push_back(line);
      run.operands.push_back(std::move(operands));
    }
    run.next.resize(run.inits.size(), Ref{Ref::Kind::Line, 0});
    for (const auto& [of, index] : run.states)
      run.next[index] = of.second == 1 ? run.lines_at[of.first] : Ref{Ref::Kind::State, run.states.at({of.first, of.second - 1})};
    return !run.inits.empty();
  }

  const Run* computer(NodeId id) const {
    for (const Run& run : runs_)
      if (run.computes(id)) return &run;
    return nullptr;
  }

  // ------------------------------------------------------------------------------------------------ readers of run values
  void find_readers() {
    is_read_.assign(graph_.size(), false);
    std::vector<std::size_t> of(graph_.size(), kNoRun);
    for (std::size_t r = 0; r < runs_.size(); ++r)
      for (NodeId id = runs_[r].begin; id < runs_[r].end(); ++id)
        if (runs_[r].computes(id)) of[id] = r;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (of[id] == kNoRun)
        for (const std::int64_t o : graph_.operands(id)) is_read_[static_cast<std::size_t>(o)] = true;
    for (const NodeId id : graph_.outputs) is_read_[id] = true;
    for (const Run& run : runs_) {
      for (const NodeId id : run.inits) is_read_[id] = true;
      for (const NodeId id : run.captures) is_read_[id] = true;
      for (const StepArray& array : run.arrays) {
        if (array.kind == StepArray::Kind::Slices) is_read_[graph_.operand(array.first, 0)] = true;
        if (array.kind == StepArray::Kind::Nodes)
          for (std::int64_t t = 0; t < run.count; ++t) is_read_[static_cast<std::size_t>(array.first + t * array.apart)] = true;
        if (array.kind == StepArray::Kind::Run) {
          Run& from = runs_[of[array.first]];
          from.results.try_emplace(from.place(array.first), 0);
        }
      }
    }
    for (Run& run : runs_) {
      for (NodeId id = run.begin; id < run.end(); ++id)
        if (is_read_[id] && run.computes(id) && !is_last_state(run, id)) run.results.try_emplace(run.place(id), 0);
      std::size_t next = 0;
      for (auto& [place, index] : run.results) index = next++;
    }
  }

  static bool is_last_state(const Run& run, NodeId id) { return run.step(id) == run.count - 1 && run.states.contains({run.place(id), 1}); }

  // ------------------------------------------------------------------------------------------------ the new graph
  NodeId reshaped(NodeId x, List shape) {
    if (std::ranges::equal(out_.shape(x), shape)) return x;
    return out_.add(Op::Reshape, out_[x].dtype, out_.intern(shape), {x});
  }
  NodeId sliced(NodeId x, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> attributes) {
    return out_.add(Op::Slice, out_[x].dtype, out_.intern(shape), {x}, List(attributes.begin(), attributes.size()));
  }
  NodeId flat(NodeId x) { return reshaped(x, std::array{out_.elements(x)}); }

  // Returns the array that the steps read, of shape [steps, elements].
  NodeId array(const Run& run, const StepArray& a) {
    const std::int64_t n = run.count, elements = graph_.elements(a.first);
    const std::array shape{n, elements};
    switch (a.kind) {
      case StepArray::Kind::Slices: {
        const NodeId base = now_[graph_.operand(a.first, 0)];
        const auto axis = static_cast<std::size_t>(a.apart);
        const List of = graph_.shape(a.first), p = graph_.attributes(a.first), q = graph_.attributes(a.first + run.period);
        std::vector<std::int64_t> extents(of.begin(), of.end()), attributes(p.begin(), p.end()), order = {a.apart};
        extents[axis] = n;
        attributes[of.size() + axis] = q[axis] - p[axis];
        NodeId x = out_.add(Op::Slice, out_[base].dtype, out_.intern(extents), {base}, attributes);
        for (std::size_t i = 0; i < of.size(); ++i)
          if (i != axis) order.push_back(static_cast<std::int64_t>(i));
        std::vector<std::int64_t> permuted;
        for (const std::int64_t i : order) permuted.push_back(extents[static_cast<std::size_t>(i)]);
        if (axis != 0) x = out_.add(Op::Permute, out_[x].dtype, out_.intern(permuted), {x}, order);
        return reshaped(x, shape);
      }
      case StepArray::Kind::Run: {
        const Run& from = *computer(a.first);
        const std::int64_t by = a.apart / static_cast<std::int64_t>(from.period);
        return sliced(from.made[static_cast<std::size_t>(from.steps.states) + from.results.at(from.place(a.first))], {n, elements},
                      {from.step(a.first), 0, by, 1});
      }
      case StepArray::Kind::Nodes: break;
    }
    std::vector<std::int64_t> boxes, operands;
    for (std::int64_t t = 0; t < n; ++t) {
      operands.push_back(reshaped(now_[static_cast<std::size_t>(a.first + t * a.apart)], std::array{std::int64_t{1}, elements}));
      boxes.insert(boxes.end(), {t, 0, 1, 1});
    }
    return out_.add(Node{Op::Piecewise, graph_[a.first].dtype, out_.intern(shape), out_.intern(operands), out_.intern(boxes)});
  }

  void make(Run& run) {
    std::vector<std::int64_t> operands;
    for (const NodeId id : run.inits) operands.push_back(flat(now_[id]));
    for (const StepArray& a : run.arrays) operands.push_back(array(run, a));
    for (const NodeId id : run.captures) operands.push_back(flat(now_[id]));
    Steps& s = run.steps;
    s.count = run.count;
    s.states = static_cast<std::int64_t>(run.inits.size());
    s.arrays = static_cast<std::int64_t>(run.arrays.size());
    s.captures = static_cast<std::int64_t>(run.captures.size());
    const auto value = [&](const Ref& ref) { return number_of(s, ref); };
    for (std::size_t i = 0; i < s.lines.size(); ++i)
      for (std::size_t k = 0; k < run.operands[i].size(); ++k) s.lines[i].operands[k] = value(run.operands[i][k]);
    for (const Ref& ref : run.next) s.next.push_back(value(ref));
    std::vector<NodeId> places;
    for (const auto& [place, index] : run.results) {
      s.results.push_back(value(run.lines_at[place]));
      places.push_back(place);
    }
    std::vector<DType> types;
    for (const NodeId id : run.inits) types.push_back(graph_[id].dtype);
    for (const NodeId place : places) types.push_back(graph_[run.begin + place].dtype);
    const ListId of = out_.intern(operands), last = out_.intern({run.elements}), all = out_.intern({run.count, run.elements});
    for (std::size_t i = 0; i < types.size(); ++i) {
      s.which = static_cast<std::int64_t>(i);
      run.made.push_back(out_.add(Node{Op::Steps, types[i], s.is_last() ? last : all, of, out_.intern(attributes_of(s))}));
    }
  }

  // Returns the value that step t of a run computes, for readers outside the run.
  NodeId read(const Run& run, NodeId id) {
    const NodeId place = run.place(id);
    const std::int64_t elements = graph_.elements(id);
    if (is_last_state(run, id)) {
      NodeId x = run.made[run.states.at({place, 1})];
      if (elements != run.elements) x = sliced(x, {elements}, {0, 1});
      return reshaped(x, graph_.shape(id));
    }
    const NodeId x = run.made[static_cast<std::size_t>(run.steps.states) + run.results.at(place)];
    return reshaped(sliced(x, {1, elements}, {run.step(id), 0, 1, 1}), graph_.shape(id));
  }

  NodeId copied(NodeId id) {
    Node node = graph_[id];
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : graph_.operands(id)) operands.push_back(now_[static_cast<std::size_t>(o)]);
    node.operands = out_.intern(operands);
    return out_.add(node);
  }

  Graph rebuilt() {
    out_ = graph_.empty_copy();
    now_.assign(graph_.size(), kNoNode);
    std::size_t next = 0;
    const Run* in = nullptr;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      out_.current_source = graph_.source_of[id];
      out_.current_origin = graph_.origin_of[id] == kNoNode ? kNoNode : now_[graph_.origin_of[id]];
      if (next < runs_.size() && id == runs_[next].begin) make(runs_[next]), in = &runs_[next++];
      if (!in || !in->computes(id)) now_[id] = copied(id);
      else if (is_read_[id]) now_[id] = read(*in, id);
    }
    out_.current_source = 0;
    out_.current_origin = kNoNode;
    for (const NodeId id : graph_.outputs) out_.outputs.push_back(now_[id]);
    out_.output_names = graph_.output_names;
    return std::move(out_);
  }
};

// Replaces scalar parameters of equal type and value by the first of them.
Graph with_equal_slots_joined(const Graph& graph, const IsBrought& is_brought) {
  const std::vector<std::uint32_t> joined = equal_slots(graph, is_brought);
  return rewrite(graph, [&](Graph& to, Node node) {
    if (node.op == Op::Slot) node.bits = joined[node.bits];
    return to.add(node);
  });
}

}  // namespace

std::optional<Graph> find_steps(const Graph& graph, const IsBrought& is_brought) {
  if (graph.size() < 2 * kFewestReadSteps) return {};
  if (is_brought && graph.slots.size() >= kFewestReadSteps) return Finder(prune(with_equal_slots_joined(graph, is_brought))).run();
  return Finder(graph).run();
}

}  // namespace onepass::compiler
