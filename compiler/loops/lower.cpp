// lower: see program.h. Visits the statements in the order of the nest's body, in which operands come first.
#include <algorithm>

#include "compiler/loops/program.h"
#include "compiler/operands_first.h"

namespace onepass::compiler::loops {

namespace {

using ir::Op;
using Kind = Statement::Kind;

class Lowering {
 public:
  Lowering(const Nest& nest, bool finds)
      : nest_(nest), searches_(nest.body.size()), line_of_(nest.body.size(), kNone), accumulator_of_(nest.body.size(), kNone) {
    program_.nest = nest;
    for (Id i = 0; finds && i < nest.body.size(); ++i) searches_[i] = index_search(nest, i);
    is_needed_.assign(nest.body.size(), !finds);
    is_wanted_root_.assign(nest.body.size(), true);
    for (Id i = static_cast<Id>(nest.body.size()); finds && i-- > 0;) {
      if (nest.body[i].kind == Kind::Store) is_needed_[i] = true;
      if (is_needed_[i]) each_operand(i, [&](Id o) { is_needed_[o] = true; });
    }
    for (Id l = 0; l < nest.loops(); ++l) program_.digits.push_back({.root = l});
    after_rows_ = nest.has_columns() ? nest.behind_columns() : std::vector<bool>(nest.body.size(), false);
    for (Id l = 0; l < nest.loops(); ++l) (nest.reduced_mask() >> l & 1 ? reduced_ : kept_).push_back(l);
  }

  Program run() {
    std::vector<Id> rows, columns;  // stores and reductions in the loop over rows, and after it
    for (Id i = 0; i < nest_.body.size(); ++i)
      if (is_root(i) && is_needed_[i]) (after_rows_[i] && !is_column(i) ? columns : rows).push_back(i);
    want(rows, true);
    for (const Id i : rows)
      if (is_column(i)) start(i, reduced_);
    for (const Id l : kept_) {
      compute(0);
      if (l == nest_.vector_loop() && nest_.kind == NestKind::Map) start_scans();
      open(l);
    }
    for (std::uint8_t stage = 0; stage <= nest_.sweeps; ++stage) sweep(stage, rows);
    close(kept_.size());
    if (!columns.empty()) sweep_columns(columns);
    return std::move(program_);
  }

 private:
  const Nest& nest_;
  Program program_;
  std::vector<std::optional<IndexSearch>> searches_;  // by statement
  std::vector<bool> is_needed_;                       // by statement
  std::vector<Id> kept_, reduced_;                    // loops
  std::vector<bool> after_rows_;                      // by statement: it is a column or needs a column
  std::vector<bool> wanted_;                          // by statement: this block needs it
  std::vector<bool> is_wanted_root_;
  std::vector<Id> line_of_;         // by statement: the visible line with its value, or kNone
  std::vector<Id> accumulator_of_;  // by statement
  std::vector<std::size_t> depth_;  // by line: enclosing loops
  std::vector<Id> open_;            // Loop lines around the next line
  std::uint64_t open_loops_ = 0;    // mask of their loops

  const Statement& statement(Id i) const { return nest_.body[i]; }
  bool is_root(Id i) const { return statement(i).kind == Kind::Store || statement(i).kind == Kind::Reduce; }
  bool is_column(Id i) const { return statement(i).kind == Kind::Reduce && statement(i).count != 0; }
  std::uint64_t reduced_mask() const { return nest_.reduced_mask(); }
  /// False for a checked index along an axis of one element: the access varies along fewer loops than the index.
  bool reads(const Statement& s, Id operand) const { return operand != kNone && (statement(operand).loops & ~s.loops) == 0; }
  bool is_inside(Id root) const {  // in the reduced loops
    const Statement& s = statement(root);
    return s.kind == Kind::Reduce || (nest_.kind != NestKind::Map && (s.op == Op::Add || (s.loops & reduced_mask())));
  }

  // ---- lines and loops

  Id add(const Line& line) {
    program_.lines.push_back(line);
    depth_.push_back(open_.size());
    return static_cast<Id>(program_.lines.size() - 1);
  }
  void open(Id loop) {
    const Id line = add({.code = Code::Loop, .at = loop});
    open_.push_back(line);
    open_loops_ |= std::uint64_t{1} << loop;
  }
  void close(std::size_t loops) {
    for (; loops > 0; --loops, open_.pop_back()) {
      Line& loop = program_.lines[open_.back()];
      loop.end = static_cast<Id>(program_.lines.size());
      open_loops_ &= ~(std::uint64_t{1} << loop.at);
    }
    for (Id& line : line_of_)
      if (line != kNone && depth_[line] > open_.size()) line = kNone;
  }

  void start(Id i, const std::vector<Id>& axes) {
    Accumulator a = searches_[i] ? finder_of(nest_, i, *searches_[i]) : accumulator_of(nest_, i);
    a.axes = axes;
    accumulator_of_[i] = static_cast<Id>(program_.accumulators.size());
    add({.code = Code::Start, .op = a.op, .dtype = a.dtype, .at = accumulator_of_[i], .of = i});
    program_.accumulators.push_back(std::move(a));
  }
  void start_scans() {
    for (Id i = 0; i < nest_.body.size(); ++i)
      if (statement(i).kind == Kind::Scan) start(i, {});
  }
  void result(Id i) { line_of_[i] = add({.code = Code::Result, .dtype = statement(i).dtype, .at = accumulator_of_[i], .of = i}); }

  // ---- the values of a block

  // Marks the statements that `roots` need. The values of other reductions exist already, unless `through` is true.
  void want(const std::vector<Id>& roots, bool through) {
    wanted_.assign(nest_.body.size(), false);
    is_wanted_root_.assign(nest_.body.size(), false);
    for (const Id r : roots) wanted_[r] = is_wanted_root_[r] = true;
    for (Id i = static_cast<Id>(nest_.body.size()); i-- > 0;)
      if (wanted_[i] && (statement(i).kind != Kind::Reduce || is_wanted_root_[i] || through))
        each_operand(i, [&](Id o) { wanted_[o] = true; });
  }
  // Calls f for each operand that the statement reads, in the order of computation.
  template <class F> void each_operand(Id i, F&& f) const {
    const Statement& s = statement(i);
    if (const std::optional<IndexSearch>& search = searches_[i]) return f(search->value), f(search->index);
    if (s.guard != kNone) f(s.guard);
    for (const Id o : {s.a, s.b, s.c})
      if (o != kNone && (is_wanted_root_[i] || reads(s, o))) f(o);
    if (s.kind == Kind::Load || s.kind == Kind::Store) {
      each_place(nest_.accesses[s.at].linear, f);
      if (nest_.accesses[s.at].table != Access::kNone) each_place(nest_.accesses[s.at].table, f);
    } else if (s.kind == Kind::Index) {
      each_place(s.at, f);
    } else if (s.kind == Kind::Guard) {
      for (Id c = s.at; c < s.at + s.count; ++c) each_place(nest_.checks[c].linear, f);
    }
  }
  template <class F> void each_place(Id linear, F& f) const {
    for (Id q = 0; q < nest_.derived.size(); ++q) {
      if (nest_.linears[linear].of[nest_.loops() + q] == Coefficient::Zero) continue;
      if (nest_.derived[q].place != Derived::kNone) f(nest_.derived[q].place);
      else each_place(nest_.derived[q].linear, f);
    }
  }

  // Adds lines for the needed values that vary only along the open loops and are known in this sweep.
  void compute(std::uint8_t stage) {
    for (Id i = 0; i < nest_.body.size(); ++i) {
      const Statement& s = statement(i);
      if (wanted_[i] && !is_root(i) && line_of_[i] == kNone && (s.loops & ~open_loops_) == 0 && s.stage <= stage &&
          (!after_rows_[i] || stage == nest_.sweeps))
        line_of_[i] = add(line_of(s, i));
    }
  }

  // Fills the innermost block: the operands of each root, then the root, so that few values are live at a time. Adjacent stores stay
  // together.
  void compute_and_add(const std::vector<Id>& roots) {
    for (std::size_t k = 0; k < roots.size();) {
      const Statement& first = statement(roots[k]);
      const std::size_t end = k + (first.kind == Kind::Store ? std::max<std::size_t>(first.count, 1) : 1);
      for (std::size_t r = k; r < end; ++r)
        each_operand(roots[r], [&](Id operand) {
          operands_first(
              operand, [&](Id i) { return line_of_[i] != kNone; }, [&](Id i, auto&& visit) { each_operand(i, visit); },
              [&](Id i) { line_of_[i] = add(line_of(statement(i), i)); });
        });
      for (; k < end; ++k) add(line_of(statement(roots[k]), roots[k]));
    }
  }

  Line line_of(const Statement& s, Id i) const {
    const auto value = [&](Id o) { return o == kNone ? kNone : line_of_[o]; };
    const auto operand = [&](Id o) { return reads(s, o) ? value(o) : kNone; };
    Line line{.code = Code::Op, .op = s.op, .dtype = s.dtype, .half = s.half, .count = s.count};
    line.a = operand(s.a), line.b = operand(s.b), line.c = operand(s.c), line.guard = value(s.guard);
    line.at = s.at, line.of = i, line.bits = s.bits;
    switch (s.kind) {
      case Kind::Load: line.code = Code::Load; break;
      case Kind::Index: line.code = Code::Index; break;
      case Kind::Slot: line.code = Code::Slot; break;
      case Kind::Constant: line.code = Code::Constant; break;
      case Kind::Guard: line.code = Code::Guard; break;
      case Kind::Place: line.code = Code::Place; break;
      case Kind::Scan: line.code = Code::Scan, line.op = program_.accumulators[accumulator_of_[i]].op, line.at = accumulator_of_[i]; break;
      case Kind::Store:
        line.code = s.op == Op::Add ? Code::AddTo : Code::Store;
        line.a = value(s.a), line.b = value(s.b);
        break;
      case Kind::Reduce:
        line.code = Code::Accumulate, line.op = program_.accumulators[accumulator_of_[i]].op, line.at = accumulator_of_[i];
        line.a = value(searches_[i] ? searches_[i]->value : s.a), line.b = value(searches_[i] ? searches_[i]->index : s.b);
        break;
      case Kind::Op: break;
    }
    return line;
  }

  // ---- sweeps

  // Emits one sweep over the reduced loops: reductions whose operands are known, and stores that are possible now.
  void sweep(std::uint8_t stage, const std::vector<Id>& rows) {
    std::vector<Id> inside, outside;
    for (const Id i : rows) {
      const Statement& s = statement(i);
      const bool is_last = s.kind == Kind::Store && nest_.kind != NestKind::Map && !is_inside(i);  // after all loads of the nest
      const int when = is_column(i)             ? nest_.sweeps - 1
                       : searches_[i]           ? statement(searches_[i]->extreme).stage - 1
                       : s.kind == Kind::Reduce ? s.stage - 1
                       : is_last                ? nest_.sweeps
                                                : s.stage;
      if (when == stage) (is_inside(i) ? inside : outside).push_back(i);
    }
    if (!outside.empty()) {
      want(outside, false);
      compute_and_add(outside);
    }
    if (inside.empty()) return;
    for (const Id i : inside)
      if (statement(i).kind == Kind::Reduce && !is_column(i)) start(i, {});
    if (nest_.kind != NestKind::Map) start_scans();
    want(inside, false);
    for (const Id l : reduced_) compute(stage), open(l);
    compute_and_add(inside);
    close(reduced_.size());
    for (const Id i : inside)
      if (statement(i).kind == Kind::Reduce && !is_column(i)) result(i);
  }

  // Emits the values that depend on the sums over all rows.
  void sweep_columns(const std::vector<Id>& stores) {
    want(stores, false);
    for (const Id l : reduced_) compute(nest_.sweeps), open(l);
    for (Id i = 0; i < nest_.body.size(); ++i)
      if (is_column(i) && wanted_[i]) result(i);
    compute_and_add(stores);
    close(reduced_.size());
  }
};

}  // namespace

Program lower(const Nest& nest, bool finds) { return Lowering(nest, finds).run(); }

}  // namespace onepass::compiler::loops
