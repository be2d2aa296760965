// Orders and merges the loops, and writes the canonical Nest with its numbers.
#include <algorithm>
#include <tuple>

#include "compiler/plan/planner.h"

namespace onepass::compiler {

void Planner::find_families(std::vector<Access>& accesses, std::uint32_t vector) const {
  const auto step = [&](const Expression& e) -> std::int64_t {
    for (const Term& t : e.terms)
      if (t.variable == vector) return t.coefficient;
    return 0;
  };
  // The whole vectors of a group reach the elements of all its loads: a load with a guard may lie behind the array.
  std::vector<bool> is_guarded(accesses.size());
  for (const Statement& s : body_)
    if (s.kind == Statement::Kind::Load && s.guard != kNone) is_guarded[s.at] = true;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> alike;  // by buffer and terms
  for (std::uint32_t a = 0; a < accesses.size(); ++a) {
    Expression e = expressions_[access_expressions_[a]];
    if (is_guarded[a] || buffers_[accesses[a].buffer].written || access_tables_[a] != kNone) continue;
    if (step(e) < 2 || step(e) > kFarthestApart) continue;
    e.offset = 0;
    alike[mix(HashExpression()(e), accesses[a].buffer)].push_back(a);
  }
  for (auto& [hash, members] : alike) {
    const auto& of = [&](std::uint32_t a) -> const Expression& { return expressions_[access_expressions_[a]]; };
    std::sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) { return of(a).offset < of(b).offset; });
    const auto c = static_cast<std::size_t>(step(of(members[0])));
    for (std::size_t i = 0; i + c <= members.size(); ++i) {
      const auto joins = [&](std::size_t k) {
        return of(members[i + k]).terms == of(members[i]).terms && accesses[members[i + k]].buffer == accesses[members[i]].buffer &&
               of(members[i + k]).offset == of(members[i]).offset + static_cast<std::int64_t>(k);
      };
      bool whole = true;
      for (std::size_t k = 1; whole && k < c; ++k) whole = joins(k);
      if (!whole) continue;
      for (std::size_t k = 0; k < c; ++k)
        accesses[members[i + k]].first = members[i], accesses[members[i + k]].place = static_cast<std::uint8_t>(k);
      i += c - 1;
    }
    if (static_cast<std::int64_t>(c) > kFarthestPart) continue;
    std::uint32_t first = Access::kNone;
    for (const std::uint32_t a : members) {  // the others, as groups that read a part of the elements
      if (accesses[a].first != Access::kNone) continue;
      const bool joins = first != Access::kNone && of(a).terms == of(first).terms && accesses[a].buffer == accesses[first].buffer &&
                         of(a).offset < of(first).offset + static_cast<std::int64_t>(c);
      if (!joins) first = a;
      accesses[a].first = first, accesses[a].place = static_cast<std::uint8_t>(of(a).offset - of(first).offset);
    }
  }
}

bool Planner::has_short_rows(const std::vector<std::uint32_t>& quotients) const {
  const auto is_loop = [&](const Expression& e) { return e.offset == 0 && e.terms.size() == 1 && e.terms[0] == Term{0, 1}; };
  if (quotients.empty() || quotients_[quotients[0]].by > kShortRow) return false;
  for (const std::uint32_t q : quotients)
    if (!is_loop(expressions_[quotients_[q].expression]) || quotients_[q].by != quotients_[quotients[0]].by) return false;
  if (loops_[0].extent < kFewestShortRows * quotients_[quotients[0]].by) return false;
  for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
    const Expression& e = expressions_[access_expressions_[a]];
    if (access_tables_[a] != kNone) return false;
    if (e.terms.size() > 1 || (buffers_[access_buffers_[a]].written && (e.terms.empty() || !(e.terms[0] == Term{0, 1})))) return false;
  }
  return true;
}

std::int64_t Planner::coefficient(std::uint32_t expression, std::uint32_t variable) const {
  for (const Term& t : expressions_[expression].terms)
    if (t.variable == variable) return is_reversed(variable) ? -t.coefficient : t.coefficient;
  return 0;
}

std::int64_t Planner::offset(std::uint32_t expression) const {
  std::int64_t offset = expressions_[expression].offset;
  for (const Term& t : expressions_[expression].terms)
    if (is_reversed(t.variable)) offset += t.coefficient * (loops_[t.variable].extent - 1);
  return offset;
}

void Planner::choose_reversed() {
  constexpr std::int64_t kNear = 16;  // elements: about a cache line
  reversed_ = 0;
  if (in_sequence() || phases() > 1) return;
  for (std::uint32_t l = 0; l < loops_.size(); ++l) {
    bool falls = false, rises = false;
    for (std::size_t i = 0; i < access_expressions_.size(); ++i) {
      const std::int64_t c = stride(i, l);
      falls |= c < 0 && c > -kNear;
      rises |= c > 0 && c < kNear;
    }
    if (falls && !rises) reversed_ |= std::uint64_t{1} << l;
  }
}

std::int64_t Planner::stride(std::size_t access, std::uint32_t loop) const {
  const std::uint32_t table = access_tables_[access];
  return table != kNone && coefficient(table, loop) != 0 ? kFarApart : coefficient(access_expressions_[access], loop);
}

void Planner::arrange(Planned& out) {
  choose_reversed();
  Arrangement a = expressions_in_use();
  order_and_merge(a);
  choose_kind(a);
  choose_vector_loop(a, out.nest);
  out.nest.kind = a.kind;
  out.nest.runs = static_cast<std::uint8_t>(a.runs);
  if (order_ && order_->last_kept_between >= 0) out.numbers.padded_run = order_->padded_run;
  for (std::uint32_t l : a.order) out.numbers.extents.push_back(l == kNone ? 1 : a.extent[l]);
  write_linears(a, out);
  join_phases(a);
  write_body(a, out.nest);
  set_stages(out.nest);
}

Planner::Arrangement Planner::expressions_in_use() const {
  Arrangement a;
  a.used = access_expressions_;
  a.used.insert(a.used.end(), index_expressions_.begin(), index_expressions_.end());
  a.used.insert(a.used.end(), check_expressions_.begin(), check_expressions_.end());
  for (const std::uint32_t table : access_tables_) {
    a.tables.push_back(table == kNone ? kNone : static_cast<std::uint32_t>(a.used.size()));
    if (table != kNone) a.used.push_back(table);
  }
  std::vector<bool> met(quotients_.size(), false);
  const auto visit = [&](auto&& self, std::uint32_t e) -> void {
    for (const Term& t : expressions_[e].terms) {
      if (t.variable < kFirstDerived || met[t.variable - kFirstDerived]) continue;
      const std::uint32_t q = t.variable - kFirstDerived;
      self(self, quotients_[q].expression);  // empty for data-dependent variables
      met[q] = true;
      a.quotients.push_back(q);
    }
  };
  for (const std::uint32_t e : a.used) visit(visit, e);
  for (const std::uint32_t q : a.quotients) a.used.push_back(quotients_[q].expression);
  for (const Loop& l : loops_) a.merged.push_back(static_cast<std::uint32_t>(a.extent.size())), a.extent.push_back(l.extent);
  a.checks.resize(check_expressions_.size());
  return a;
}

const Planner::Arrangement::InRows* Planner::in_rows(const Arrangement& a, std::size_t used) const {
  const std::size_t check = used - first_check();
  return used >= first_check() && check < a.checks.size() ? &a.checks[check] : nullptr;
}

std::int64_t Planner::coefficient_in(const Arrangement& a, std::size_t used, std::uint32_t variable) const {
  const std::int64_t c = coefficient(a.used[used], variable);
  const Arrangement::InRows* const rows = in_rows(a, used);
  return !rows ? c : variable == rows->loop ? 1 : c * rows->by;
}

void Planner::order_and_merge(Arrangement& a) const {
  for (std::uint32_t l = 0; l < loops_.size(); ++l)
    if (loops_[l].extent != 1) (loops_[l].reduced ? a.reduced : a.kept).push_back(l);
  const auto weight = [&](std::uint32_t l) {
    std::int64_t stores = 0, loads = 0;
    for (std::size_t i = 0; i < access_expressions_.size(); ++i) {
      const std::int64_t c = std::abs(stride(i, l));
      if (buffers_[access_buffers_[i]].written) stores = std::max(stores, c);
      else loads += c;
    }
    return std::pair(stores, loads);
  };
  if (!has_columns_)  // fused columns are summed in the order of the rows
    std::stable_sort(a.kept.begin(), a.kept.end(), [&](std::uint32_t x, std::uint32_t y) { return weight(x) > weight(y); });
  if (order_ && order_->last_kept_between >= 0) {
    std::int64_t n = 1;
    while (n < order_->runs) n *= loops_[a.reduced[a.runs++]].extent;
  }
  const bool is_map = a.reduced.empty() && !in_sequence() && phases() == 1 && !has_columns_;
  // Merges an outer loop into the next loop where every expression allows it. Checks of short rows become checks of their elements.
  const auto merge = [&](std::vector<std::uint32_t>& list, std::size_t from, std::size_t to) {
    std::size_t removed = 0;
    for (std::size_t i = from; i + 1 < to - removed;) {
      const std::uint32_t outer = list[i], inner = list[i + 1];
      const bool is_short = is_map && a.extent[inner] <= kShortRow;
      bool fits = true;
      std::vector<std::size_t> of_rows;
      for (std::size_t u = 0; fits && u < a.used.size(); ++u) {
        const std::int64_t of_outer = coefficient_in(a, u, outer), of_inner = coefficient_in(a, u, inner);
        if (of_outer == of_inner * a.extent[inner]) continue;
        fits = is_short && in_rows(a, u) && of_outer == 1 && of_inner == 0;
        of_rows.push_back(u - first_check());
      }
      if (!fits) {
        ++i;
        continue;
      }
      for (const std::size_t c : of_rows) a.checks[c].by *= a.extent[inner], a.checks[c].loop = inner;
      for (std::uint32_t& l : a.merged)
        if (l == outer) l = inner;
      a.extent[inner] *= a.extent[outer];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      ++removed;
      if (i > from) --i;
    }
    return removed;
  };
  merge(a.kept, 0, a.kept.size());
  a.runs -= merge(a.reduced, 0, a.runs);
  merge(a.reduced, a.runs, a.reduced.size());
}

int Planner::worth_as_vector_loop(std::uint32_t loop, const std::vector<std::size_t>& accesses) const {
  int sum = 0;
  for (const std::size_t i : accesses) {
    const std::int64_t c = stride(i, loop);
    const int worth = buffers_[access_buffers_[i]].written ? 2 : 1;
    sum += c == 1 || (c > 1 && c == phases()) ? worth : c == 0 ? 0 : -worth;
  }
  return sum;
}

// Returns the accesses that decide about the vector loop. Results of a reduction are stored once for a whole row: they count only if no array
// is read along both kinds of loops.
std::vector<std::size_t> Planner::accesses_of_elements(const Arrangement& a) const {
  const auto varies = [&](std::size_t access, const std::vector<std::uint32_t>& loops) {
    return std::ranges::any_of(loops, [&](std::uint32_t l) { return stride(access, l) != 0; });
  };
  std::vector<std::size_t> all, of_elements;
  for (std::size_t i = 0; i < access_expressions_.size(); ++i) {
    all.push_back(i);
    if (varies(i, a.kept) && varies(i, a.reduced)) of_elements.push_back(i);
  }
  return of_elements.empty() ? all : of_elements;
}

void Planner::choose_kind(Arrangement& a) {
  const bool scans = std::any_of(body_.begin(), body_.end(), [](const Statement& s) { return s.kind == Statement::Kind::Scan; });
  scan_is_split_ = scans && a.reduced.size() > 1;
  if (a.reduced.empty()) {
    a.kind = NestKind::Map;
  } else if (partition_.groups[group_].ordered != 0) {
    a.kind = scans && scans_in_groups_ ? NestKind::Map : NestKind::Rows;
  } else if (order_) {
    a.kind = order_->lanes ? NestKind::Lanes : NestKind::Rows;
  } else if (a.kept.empty() || has_columns_) {
    a.kind = NestKind::Lanes;
  } else {
    const std::vector<std::size_t> accesses = accesses_of_elements(a);
    const auto worth = [&](std::uint32_t l) { return worth_as_vector_loop(l, accesses); };
    int best = worth(a.kept.back());
    for (const std::uint32_t l : a.kept) best = std::max(best, worth(l));
    a.kind = worth(a.reduced.back()) >= best ? NestKind::Lanes : NestKind::Rows;
  }
}

void Planner::choose_vector_loop(Arrangement& a, Nest& nest) const {
  std::vector<std::uint32_t> outer = a.kept;
  if (a.kind == NestKind::Lanes) {
    a.order = outer;
    a.order.insert(a.order.end(), a.reduced.begin(), a.reduced.end());
    nest.serial = static_cast<std::uint8_t>(a.reduced.size() - 1);
  } else if (a.kind == NestKind::Map && !a.reduced.empty()) {
    a.order = outer;
    a.order.push_back(a.reduced.back());
  } else {
    std::uint32_t vector = kNone;
    const std::vector<std::size_t> accesses = accesses_of_elements(a);
    const auto worth = [&](std::uint32_t l) { return worth_as_vector_loop(l, accesses); };
    for (const std::uint32_t l : outer)
      if (vector == kNone || worth(l) >= worth(vector)) vector = l;
    if (prefers_long_loops_ && vector != kNone)
      for (const std::uint32_t l : outer) {
        const auto rank = [&](std::uint32_t loop) { return std::tuple(std::min(a.extent[loop], kLongLoop), worth(loop), a.extent[loop]); };
        if (rank(l) > rank(vector)) vector = l;
      }
    std::erase(outer, vector);
    // A loop along which loads are contiguous, while the vector loop is not, comes last. These loads go through a transposed tile.
    const auto lies_across = [&](std::uint32_t l) {
      for (std::size_t i = 0; i < access_expressions_.size(); ++i) {
        const std::int64_t c = coefficient(access_expressions_[i], vector);
        if (!buffers_[access_buffers_[i]].written && coefficient(access_expressions_[i], l) == 1 && c != 0 && c != 1) return true;
      }
      return false;
    };
    if (a.kind == NestKind::Map && vector != kNone)
      if (const auto across = std::find_if(outer.begin(), outer.end(), lies_across); across != outer.end())
        std::rotate(across, across + 1, outer.end());
    // In a contraction, the loop along which only one operand varies comes last. The other operand is read again in each iteration.
    const auto is_free = [&](std::uint32_t l) {
      bool varies = false;
      for (std::size_t i = 0; i < access_expressions_.size(); ++i) {
        const bool contracted = std::any_of(a.reduced.begin(), a.reduced.end(), [&](std::uint32_t r) { return stride(i, r) != 0; });
        if (!contracted || stride(i, l) == 0) continue;
        if (stride(i, vector) != 0) return false;
        varies = true;
      }
      return varies;
    };
    if (a.kind == NestKind::Rows && vector != kNone && contracts())
      if (const auto free = std::find_if(outer.rbegin(), outer.rend(), is_free); free != outer.rend())
        std::rotate(free.base() - 1, free.base(), outer.end());
    a.order = outer;
    a.order.insert(a.order.end(), a.reduced.begin(), a.reduced.end());
    a.order.push_back(vector);  // kNone: the one-iteration loop of a scalar
    nest.serial = static_cast<std::uint8_t>(a.reduced.size());
  }
  nest.outer = static_cast<std::uint8_t>(outer.size());
}

void Planner::write_linears(const Arrangement& a, Planned& out) const {
  Nest& nest = out.nest;
  NestNumbers& numbers = out.numbers;
  const std::size_t vector_loop = a.order.empty() ? 0 : a.order.size() - 1;
  for (std::uint32_t i = 0; i < access_expressions_.size(); ++i) nest.accesses.push_back({access_buffers_[i], i, a.tables[i]});
  if (!a.order.empty()) find_families(nest.accesses, a.order.back());
  const auto class_of = [&](std::size_t linear, std::size_t variable, std::int64_t c) {
    if (c == 0 || c == 1) return c == 0 ? Coefficient::Zero : Coefficient::One;
    const bool is_access = linear < nest.accesses.size();
    if (!is_access || variable != vector_loop) return Coefficient::General;
    if (c == -1) return Coefficient::MinusOne;
    if (nest.accesses[linear].first == Access::kNone) return Coefficient::General;
    return coefficient_of(c);
  };
  for (std::size_t i = 0; i < a.used.size(); ++i) {  // equal maps are not merged, so that the key does not depend on equal numbers
    Linear linear;
    std::vector<std::int64_t> c;
    for (const std::uint32_t l : a.order) c.push_back(l == kNone ? 0 : coefficient_in(a, i, l));
    for (const std::uint32_t q : a.quotients) c.push_back(coefficient_in(a, i, kFirstDerived + q));
    for (std::size_t v = 0; v < c.size(); ++v) linear.of.push_back(class_of(i, v, c[v]));
    nest.linears.push_back(std::move(linear));
    numbers.coefficients.push_back(std::move(c));
    const Arrangement::InRows* const rows = in_rows(a, i);
    numbers.offsets.push_back(offset(a.used[i]) * (rows ? rows->by : 1));
  }
  const auto first_quotient = static_cast<std::uint32_t>(a.used.size() - a.quotients.size());
  for (std::uint32_t c = 0; c < check_expressions_.size(); ++c) nest.checks.push_back({static_cast<std::uint32_t>(first_check()) + c});
  numbers.bounds = check_bounds_;
  for (std::size_t c = 0; c < a.checks.size(); ++c) numbers.bounds[c] *= a.checks[c].by;
  for (std::uint32_t q = 0; q < a.quotients.size(); ++q) {
    const Quotient& quotient = quotients_[a.quotients[q]];
    nest.derived.push_back({first_quotient + q, quotient.modulo, quotient.place == ir::kNoNode ? kNone : data_value(quotient)});
    numbers.by.push_back(quotient.by);
  }
  nest.short_rows = a.kind == NestKind::Map && a.order.size() == 1 && phases() == 1 && !in_sequence() && has_short_rows(a.quotients);
  nest.buffers = buffers_;
  numbers.buffers = buffer_nodes_;
  numbers.members = buffer_members_;
  numbers.outputs = buffer_outputs_;
  nest.slots = slot_types_;
  numbers.slots = slots_;
  numbers.signs = slot_signs_;
}

void Planner::join_phases(const Arrangement& a) {
  const auto each = static_cast<std::uint8_t>(phases());
  if (each == 1) return;
  for (std::size_t i = 0; i < body_.size(); ++i) {
    if (body_[i].kind != Statement::Kind::Store) continue;
    const std::uint32_t first = access_expressions_[body_[i].at];
    bool beside = coefficient(first, a.order.back()) == each;
    for (std::uint8_t phase = 1; phase < each; ++phase) {
      const Statement& s = body_[i + phase];
      beside = beside && expressions_[access_expressions_[s.at]].offset == expressions_[first].offset + phase;
      // The predicates bound the interleaved loop. Stores along another loop would not end there.
      beside = beside && (s.guard == Statement::kNone || a.order.back() + 1 == loops_.size());
    }
    if (beside) body_[i].count = each;
    i += each - 1u;
  }
}

void Planner::write_body(const Arrangement& a, Nest& nest) const {
  std::vector<std::uint64_t> bit(loops_.size(), 0);
  for (std::size_t k = 0; k < a.order.size(); ++k)
    if (a.order[k] != kNone) bit[a.order[k]] = std::uint64_t{1} << k;
  for (std::uint32_t l = 0; l < loops_.size(); ++l) bit[l] = bit[a.merged[l]];
  nest.body.reserve(body_.size());
  for (Statement s : body_) {
    std::uint64_t mask = 0;
    for (std::uint32_t l = 0; l < loops_.size(); ++l)
      if (s.loops >> l & 1) mask |= bit[l];  // of a merged loop: the bit of the loop that it is merged into
    s.loops = mask;
    if (s.kind == Statement::Kind::Index) s.at += static_cast<std::uint32_t>(access_expressions_.size());
    nest.body.push_back(s);
  }
  nest.phases = static_cast<std::uint8_t>(phases());
  const std::uint64_t inner = nest.reduced_mask();
  if (a.kind == NestKind::Rows)  // a row of accumulators varies along the vector loop even if its operand does not
    for (Statement& s : nest.body) {
      const bool accumulates = s.kind == Statement::Kind::Reduce || s.kind == Statement::Kind::Scan;
      if (accumulates) s.loops |= std::uint64_t{1} << nest.vector_loop();
      if (s.kind != Statement::Kind::Op && s.kind != Statement::Kind::Place && !accumulates) continue;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) s.loops |= nest.body[o].loops & (s.kind == Statement::Kind::Reduce ? ~inner : ~std::uint64_t{0});
    }
}

void Planner::set_stages(Nest& nest) {
  const std::uint64_t inner = nest.reduced_mask();
  const std::vector<bool> behind = nest.behind_columns();
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    Statement& s = nest.body[i];
    if (!behind[i]) continue;
    s.loops &= ~((std::uint64_t{1} << nest.outer) - 1);
    for (std::uint32_t o : {s.a, s.b, s.c})
      // a column has one element per element of the row
      if (s.kind == Statement::Kind::Reduce || (o != kNone && behind[o])) s.loops |= inner;
  }
  nest.sweeps = 1;
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    if (s.kind == Statement::Kind::Reduce && (s.count || !behind[i])) nest.sweeps = std::max(nest.sweeps, s.stage);
    if (s.kind == Statement::Kind::Store && !behind[i] && (s.loops & inner))
      nest.sweeps = std::max<std::uint8_t>(nest.sweeps, static_cast<std::uint8_t>(s.stage + 1));
  }
  for (std::size_t i = 0; i < nest.body.size(); ++i)
    if (behind[i]) nest.body[i].stage = nest.sweeps;
}

}  // namespace onepass::compiler
