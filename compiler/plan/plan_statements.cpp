// Makes the statements of a nest's body: one for each demanded value and one for each store.
#include <fmt/format.h>

#include "compiler/plan/planner.h"

namespace onepass::compiler {

std::uint32_t Planner::ensure(NodeId id, std::uint32_t map) {
  std::vector<std::pair<NodeId, Demand*>> needed;
  std::vector<std::pair<NodeId, std::uint32_t>> open = {{id, map}};
  std::map<Demand*, bool> seen;
  while (!open.empty()) {
    const auto [at, where] = open.back();
    open.pop_back();
    Demand& d = demand_of(at, where);
    if (d.statement != kNone || seen[&d]) continue;
    seen[&d] = true;
    needed.emplace_back(at, &d);
    each_operand(at, d, [&](NodeId o, std::uint32_t m) { open.emplace_back(o, m); });
  }
  std::sort(needed.begin(), needed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, d] : needed)
    if (d->statement == kNone) make(at, *d);
  return demand_of(id, map).statement;
}

std::uint32_t Planner::data_statement(std::uint32_t map) {
  const std::uint32_t q = data_of(map);
  return q == kNone ? kNone : ensure(quotients_[q].place, quotients_[q].map);
}

std::uint32_t Planner::data_value(const Quotient& q) const {
  const auto it = demands_.find(q.place);
  for (const Demand& d : it->second)
    if (d.map == q.map) return d.like == kNone ? d.statement : it->second[d.like].statement;
  throw InternalError("plan: a required checked index is missing");
}

std::uint64_t Planner::ordered_loops() const {
  std::uint64_t mask = 0;
  for (std::size_t l = 0; l < loops_.size(); ++l) mask |= loops_[l].reduced ? std::uint64_t{1} << l : 0;
  return mask;
}

std::uint64_t Planner::loops_of(const Expression& e) const {
  std::uint64_t mask = 0;
  for (const Term& t : e.terms) {
    if (t.variable < kFirstDerived) {
      mask |= std::uint64_t{1} << t.variable;
      continue;
    }
    const Quotient& q = quotients_[t.variable - kFirstDerived];
    const std::uint32_t data = q.place != ir::kNoNode ? t.variable - kFirstDerived : q.data;
    mask |= q.loops;
    if (data != kNone) mask |= body_[data_value(quotients_[data])].loops;
  }
  return mask;
}

std::uint32_t Planner::emit(Statement s) {
  body_.push_back(s);
  return static_cast<std::uint32_t>(body_.size() - 1);
}

std::uint32_t Planner::guard_statement(std::uint32_t guard) {
  if (guard == 0) return kNone;
  if (const auto it = guard_statements_.find(guard); it != guard_statements_.end()) return it->second;
  Statement s{};
  s.kind = Statement::Kind::Guard;
  s.at = static_cast<std::uint32_t>(check_expressions_.size());
  const std::vector<std::uint32_t>& checks = guards_[guard];
  if (checks.size() / 2 > 255)
    throw InternalError(fmt::format("plan: too many bounds checks in one predicate: {}\n{}", checks.size() / 2, ir::print(graph_)));
  s.count = static_cast<std::uint8_t>(checks.size() / 2);
  for (std::size_t i = 0; i < checks.size(); i += 2) {
    check_expressions_.push_back(checks[i]);
    check_bounds_.push_back(bounds_[checks[i + 1]]);
    s.loops |= loops_of(expressions_[checks[i]]);
    if (const std::uint32_t q = data_in(expressions_[checks[i]]); q != kNone) s.a = data_value(quotients_[q]);
  }
  return guard_statements_[guard] = emit(s);
}

DType Planner::memory_type(NodeId id, std::int32_t output) const {
  const DType dtype = graph_[id].dtype;
  const ArrayList* const list = partition_.lists.reads(id);
  return output == NestNumbers::kUnrounded || (list && list->numbers) ? computed_type(dtype) : dtype;
}

std::uint32_t Planner::buffer_for(NodeId id, bool written, std::int32_t output) {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffer_nodes_[i] == id && buffers_[i].written == written && buffer_outputs_[i] == output) return static_cast<std::uint32_t>(i);
  buffers_.push_back({memory_type(id, output), written});
  const ArrayList* const list = list_of(id, written);
  buffer_members_.push_back(list ? list->members : std::vector<NodeId>());
  buffer_nodes_.push_back(id);
  buffer_outputs_.push_back(output);
  return static_cast<std::uint32_t>(buffers_.size() - 1);
}

std::uint32_t Planner::access_for(NodeId id, std::uint32_t map, bool written, std::int32_t output) {
  const List shape = graph_.shape(id);
  if (maps_[map].size() != shape.size() + 1)
    throw InternalError(fmt::format("plan: an affine map of %{} has {} axes\n{}", id, maps_[map].size() - 1, ir::print(graph_)));
  if (const ArrayList* const list = list_of(id, written)) return access_in_list(id, map, written, output, *list);
  static const Layout kContiguous;
  const Layout& layout = output == NestNumbers::kUnrounded ? kContiguous : written ? target_of(id, output) : layouts_[id];
  Expression e;
  std::int64_t stride = 1;
  bool in_order = true;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    if (shape[i] == 1) continue;
    const std::int64_t mine = layout ? (*layout)[i] : stride;
    in_order &= mine == stride;
    add(e, expressions_[maps_[map][i]], mine);
  }
  if (const auto position = position_of_.find(map_in(graph_[id].shape, map)); in_order && position != position_of_.end())
    e = expressions_[position->second];
  recombine(e);
  return access_of(e, kNone, buffer_for(id, written, output));
}

void Planner::recombine(Expression& e) const {
  for (std::size_t i = 0; i < e.terms.size(); ++i) {
    const Term term = e.terms[i];
    if (term.variable < kFirstDerived) continue;
    const Quotient& q = quotients_[term.variable - kFirstDerived];
    if (q.modulo || q.place != ir::kNoNode || term.coefficient % q.by != 0) continue;
    const auto rest = std::ranges::find_if(e.terms, [&](const Term& t) {
      if (t.variable < kFirstDerived || t.coefficient != term.coefficient / q.by) return false;
      const Quotient& r = quotients_[t.variable - kFirstDerived];
      return r.modulo && r.place == ir::kNoNode && r.expression == q.expression && r.by == q.by;
    });
    if (rest == e.terms.end()) continue;
    const std::uint32_t whole = q.expression, remainder = rest->variable;
    std::erase_if(e.terms, [&](const Term& t) { return t.variable == term.variable || t.variable == remainder; });
    add(e, expressions_[whole], term.coefficient / q.by);
    i = static_cast<std::size_t>(-1);  // that expression may have quotients, too
  }
}

std::uint32_t Planner::access_of(const Expression& e, std::uint32_t table, std::uint32_t buffer) {
  const std::uint32_t expression = expressions_(e);
  for (std::size_t i = 0; i < access_expressions_.size(); ++i)
    if (access_expressions_[i] == expression && access_buffers_[i] == buffer && access_tables_[i] == table)
      return static_cast<std::uint32_t>(i);
  access_expressions_.push_back(expression);
  access_buffers_.push_back(buffer);
  access_tables_.push_back(table);
  return static_cast<std::uint32_t>(access_expressions_.size() - 1);
}

std::uint64_t Planner::loops_of_access(std::uint32_t access) const {
  const std::uint32_t table = access_tables_[access];
  return loops_of(expressions_[access_expressions_[access]]) | (table == kNone ? 0 : loops_of(expressions_[table]));
}

const ArrayList* Planner::list_of(NodeId id, bool written) const {
  const ArrayList* const read = written ? nullptr : partition_.lists.reads(id);
  return read ? read : partition_.lists.stores(id);
}

std::uint32_t Planner::access_in_list(NodeId id, std::uint32_t map, bool written, std::int32_t output, const ArrayList& list) {
  const std::uint32_t buffer = buffer_for(id, written, output), member = maps_[map][list.axis];
  Expression e;
  if (list.numbers) {
    add(e, expressions_[member], static_cast<std::int64_t>(sizeof(std::int64_t) / size_of(buffers_[buffer].dtype)));
    return access_of(e, kNone, buffer);
  }
  for (std::size_t i = 0; i < list.strides.size(); ++i)
    if (list.strides[i] != 0) add(e, expressions_[maps_[map][i]], list.strides[i]);
  return access_of(e, member, buffer);
}

const Layout& Planner::target_of(NodeId id, std::int32_t copy) const {
  static const Layout kContiguous;
  if (targets_.empty()) return graph_[id].op == Op::Input ? kContiguous : layouts_[id];
  for (std::size_t k = 0; k < graph_.outputs.size(); ++k)
    if (graph_.outputs[k] == id && copy-- == 0) return targets_[k];
  return layouts_[id];  // only other groups read it
}

std::uint32_t Planner::conversion(Op op, std::uint32_t value, DType dtype, DType half) {
  Statement s{};
  s.kind = Statement::Kind::Op;
  s.op = op;
  s.dtype = dtype;
  s.half = half;
  s.a = value;
  s.stage = body_[value].stage;
  s.loops = body_[value].loops;
  return emit(s);
}

std::uint32_t Planner::rounded(std::uint32_t value, DType half) {
  const Statement& v = body_[value];
  if (v.kind == Statement::Kind::Load ? buffers_[access_buffers_[v.at]].dtype == half : v.dtype == DType::F32 && v.half == half)
    return value;
  const auto [it, is_new] = rounded_.try_emplace({value, half}, 0);
  if (is_new) it->second = conversion(Op::Cast, value, DType::F32, half);
  return it->second;
}

std::uint32_t Planner::zero(DType dtype) {
  Statement s{};
  s.kind = Statement::Kind::Constant;
  s.dtype = dtype;
  return emit(s);
}

void Planner::make(NodeId id, Demand& d) {
  const Node node = graph_[id];
  Statement s{};
  s.dtype = computed_type(node.dtype);
  const bool is_leaf = in_memory(id) || ir::is_source(node.op);
  const std::uint32_t data = is_leaf ? data_statement(d.map) : kNone;
  if (in_memory(id)) {
    s.kind = Statement::Kind::Load;
    s.a = data;
    const bool is_given = node.op == Op::Input || partition_.lists.reads(id);
    s.at = access_for(id, d.map, false, is_half(node.dtype) && !is_given ? NestNumbers::kUnrounded : 0);
    s.guard = guard_statement(maps_[d.map].back());
    s.loops = loops_of_access(s.at);
    if (s.guard != kNone) s.loops |= body_[s.guard].loops;
    d.statement = emit(s);
    return;
  }
  switch (ir::info(node.op).kind) {
    case ir::OpKind::Source:
      if (node.op == Op::Constant) {
        s.kind = Statement::Kind::Constant;
        s.bits = node.bits;
      } else if (node.op == Op::Slot) {
        s.kind = Statement::Kind::Slot;
        s.at = static_cast<std::uint32_t>(slots_.size());
        slots_.push_back(static_cast<std::uint32_t>(node.bits));
        slot_signs_.push_back(0);
        slot_types_.push_back(s.dtype);
      } else {
        s.kind = Statement::Kind::Index;
        const std::uint32_t e = maps_[d.map][static_cast<std::size_t>(graph_.attributes(id)[0])];
        s.at = static_cast<std::uint32_t>(index_expressions_.size());
        index_expressions_.push_back(e);
        s.loops = loops_of(expressions_[e]);
        if (data_in(expressions_[e]) != kNone) s.a = data;
        if (is_half(node.dtype)) s.half = node.dtype;
      }
      break;
    case ir::OpKind::View: d.statement = node.op == Op::Pad ? joined(id, d) : value_of(graph_.operand(id, 0), d.operand_map); return;
    case ir::OpKind::Piecewise: d.statement = joined(id, d); return;
    case ir::OpKind::Reduction: {
      const NodeId from = graph_.operand(id, 0);
      if (reduces_nothing(id)) {
        s.kind = Statement::Kind::Constant;
        s.bits = ir::bits_of(node.dtype, std::int64_t{node.op == Op::ReduceProd});
        break;
      }
      const std::uint32_t value = value_of(from, d.operand_map);
      const bool contracts = ir::is_contraction(node.op);
      s.a = value;
      s.stage = body_[value].stage;
      s.loops = body_[value].loops;
      if (contracts) {
        s.b = value_of(graph_.operand(id, 1), d.operand_map);
        s.stage = std::max(s.stage, body_[s.b].stage);
        s.loops |= body_[s.b].loops;
      }
      if (graph_.elements(from) == graph_.elements(id)) {
        s.kind = Statement::Kind::Op;
        s.op = Op::Mul;
        d.statement = contracts ? emit(s) : value;
        return;
      }
      s.kind = Statement::Kind::Reduce;
      s.op = node.op;
      ++s.stage;
      const std::uint64_t axes = reduced_by(id);
      s.count = axes != partition_.groups[group_].reduced;
      has_columns_ |= s.count != 0;
      std::uint64_t reduced = 0;
      for (std::size_t l = 0; l < loops_.size(); ++l) reduced |= (axes >> loops_[l].axis & 1) ? std::uint64_t{1} << l : 0;
      s.loops &= ~reduced;
      if (contracts && is_float(node.dtype)) {
        order_ = ir::contract_order(graph_.shape(from), graph_.attributes(id), s.dtype, node.op == Op::ContractLanes);
        ordered_ = id;
      }
      if (s.count == 0 && is_float(node.dtype) && (node.op == Op::ReduceSum || node.op == Op::ReduceProd)) {
        order_ = ir::sum_order(graph_.shape(from), graph_.attributes(id), s.dtype);
        ordered_ = id;
      }
      break;
    }
    case ir::OpKind::Scan: {
      const std::uint32_t value = value_of(graph_.operand(id, 0), d.operand_map);
      const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
      if (graph_.shape(id)[axis] == 1) {
        d.statement = value;
        return;
      }
      if (loops_of(expressions_[maps_[d.map][axis]]) != ordered_loops())
        throw InternalError(fmt::format("plan: %{} is read in a different order than it is computed\n{}", id, ir::print(graph_)));
      s.kind = Statement::Kind::Scan;
      s.op = node.op;
      s.a = value;
      s.loops = body_[value].loops | ordered_loops();
      scans_in_groups_ = ir::scans_in_groups(graph_.shape(id), graph_.attributes(id)[0]);
      break;
    }
    case ir::OpKind::Place:
      s.kind = Statement::Kind::Place;
      s.a = value_of(graph_.operand(id, 0), d.operand_map);
      s.guard = guard_statement(maps_[d.map].back());
      s.stage = body_[s.a].stage;
      s.loops = body_[s.a].loops | (s.guard == kNone ? 0 : body_[s.guard].loops);
      s.at = static_cast<std::uint32_t>(check_expressions_.size());
      check_expressions_.push_back(expressions_(Expression{}));
      check_bounds_.push_back(graph_.attributes(id)[0]);
      break;
    case ir::OpKind::Gather:
      if (d.data != kNone) {
        d.statement = value_of(graph_.operand(id, 0), d.data);
        return;
      }
      s.kind = Statement::Kind::Constant;  // element of an empty array
      break;
    case ir::OpKind::Scatter:  // the initial value or the added updates; the store has the index
      d.statement = value_of(graph_.operand(id, partition_.groups[group_].starts ? 0 : 2), d.map);
      return;
    default: {
      const List operands = graph_.operands(id);
      std::uint32_t in[3] = {kNone, kNone, kNone};
      for (std::size_t i = 0; i < operands.size(); ++i) {
        in[i] = value_of(static_cast<NodeId>(operands[i]), d.map);
        s.stage = std::max(s.stage, body_[in[i]].stage);
        s.loops |= body_[in[i]].loops;
      }
      if (node.op == Op::StopGradient || node.op == Op::Identity) {
        d.statement = in[0];
        return;
      }
      if (ir::info(node.op).types == ir::TypeRule::Convert || ir::info(node.op).types == ir::TypeRule::Reinterpret) {
        const DType from = graph_[static_cast<NodeId>(operands[0])].dtype;
        if (is_half(from)) in[0] = rounded(in[0], from);
        if (is_half(from) && (from == node.dtype || (node.op == Op::Cast && node.dtype == DType::F32))) {
          d.statement = in[0];
          return;
        }
        if (node.op == Op::Bitcast && is_half(from))
          in[0] = conversion(Op::Bitcast, in[0], is_half(node.dtype) ? DType::U16 : node.dtype, from);
        if (node.op == Op::Bitcast && is_half(from) && !is_half(node.dtype)) {
          d.statement = in[0];
          return;
        }
        if (is_half(node.dtype)) s.half = node.dtype;
      }
      s.kind = Statement::Kind::Op;
      s.op = node.op;
      s.a = in[0];
      s.b = in[1];
      s.c = in[2];
      const auto [same, is_new] = operators_.try_emplace(s, static_cast<std::uint32_t>(body_.size()));
      d.statement = is_new ? emit(s) : same->second;
      return;
    }
  }
  d.statement = emit(s);
}

// Rewrites x - c as x + -c, which has the same bits. The sign of a parameter is flipped before the call at no cost. Both forms then share
// code.
void Planner::add_what_is_subtracted() {
  std::vector<std::uint32_t> uses(body_.size(), 0), subtractions(body_.size(), 0);
  const auto subtracts = [&](const Statement& s) {
    return s.kind == Statement::Kind::Op && s.op == Op::Sub && is_float(s.dtype) && body_[s.b].kind == Statement::Kind::Slot;
  };
  for (const Statement& s : body_) {
    for (const std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone) ++uses[o];
    if (subtracts(s)) ++subtractions[s.b];
  }
  for (Statement& s : body_) {
    if (!subtracts(s) || uses[s.b] != subtractions[s.b]) continue;
    s.op = Op::Add;
    slot_signs_[body_[s.b].at] = std::uint64_t{1} << (8 * size_of(s.dtype) - 1);
  }
}

void Planner::finish(Planned& out) {
  body_.clear();
  access_expressions_.clear(), access_buffers_.clear(), access_tables_.clear();
  check_expressions_.clear(), check_bounds_.clear();
  index_expressions_.clear();
  buffers_.clear(), buffer_nodes_.clear(), buffer_members_.clear(), buffer_outputs_.clear();
  slots_.clear(), slot_signs_.clear(), slot_types_.clear();
  guard_statements_.clear();
  rounded_.clear();
  operators_.clear();
  order_.reset();
  has_columns_ = false;
  std::sort(visited_.begin(), visited_.end());
  body_.reserve(visited_.size() + roots_.size());
  for (const NodeId id : visited_)
    for (Demand& d : demands_[id])
      if (d.like == kNone && d.statement == kNone) make(id, d);
  const auto each = static_cast<std::size_t>(phases());
  for (std::size_t r = 0; r < roots_.size(); ++r) {
    const NodeId root = partition_.groups[group_].roots[roots_[r]];
    // A value has one store per occurrence as an output, or a single store if only other groups read it. It also has a store per position
    // in an assembled array. A half has a store as F32 if other groups read it.
    std::int32_t copies = static_cast<std::int32_t>(std::count(graph_.outputs.begin(), graph_.outputs.end(), root));
    copies += static_cast<std::int32_t>(partition_.lists.places_of(root).size());
    const bool unrounded = is_half(graph_[root].dtype) && (copies == 0 || partition_.read_again[root]);
    if (!is_half(graph_[root].dtype)) copies = std::max(copies, 1);
    for (std::int32_t copy = unrounded ? NestNumbers::kUnrounded : 0; copy < copies; ++copy) {
      std::vector<Statement> stores;  // the stores of interleaved indices are adjacent, after their predicates
      for (std::size_t phase = 0; phase < each; ++phase) {
        const std::uint32_t map = root_maps_[r * each + phase];
        Statement s{};
        s.kind = Statement::Kind::Store;
        s.dtype = computed_type(graph_[root].dtype);
        s.a = value_of(root, map);
        const std::uint32_t data = demand_of(root, map).data;
        const bool adds = data != kNone && graph_[root].op == Op::ScatterAdd;
        s.at = access_for(root, adds ? data : map, true, copy);
        s.guard = guard_statement(maps_[map].back());
        s.loops = loops_of_access(s.at) | body_[s.a].loops;
        if (adds) {
          s.op = Op::Add;
          s.b = data_statement(data);
          s.loops |= ordered_loops();
        }
        s.stage = body_[s.a].stage;
        stores.push_back(s);
      }
      for (const Statement& s : stores) emit(s);
    }
  }
  add_what_is_subtracted();
  arrange(out);
}

}  // namespace onepass::compiler
