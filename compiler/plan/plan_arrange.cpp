// The order of the loops, their merging, and the canonical Nest with its numbers.
#include "compiler/plan/planner.h"

namespace onepass::compiler {

void Planner::find_families(std::vector<Access>& accesses, std::uint32_t vector) const {
  const auto step = [&](const Expression& e) -> std::int64_t {
    for (const Term& t : e.terms)
      if (t.variable == vector) return t.coefficient;
    return 0;
  };
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> alike;  // by buffer and terms
  for (std::uint32_t a = 0; a < accesses.size(); ++a) {
    Expression e = expressions_[access_expressions_[a]];
    if (buffers_[accesses[a].buffer].written || step(e) < 2 || step(e) > 4) continue;
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
  }
}

bool Planner::has_short_rows(const std::vector<std::uint32_t>& quotients) const {
  const auto is_loop = [&](const Expression& e) { return e.offset == 0 && e.terms.size() == 1 && e.terms[0] == Term{0, 1}; };
  if (quotients.empty() || quotients_[quotients[0]].by > kShortRow) return false;
  for (const std::uint32_t q : quotients)
    if (!is_loop(expressions_[quotients_[q].expression]) || quotients_[q].by != quotients_[quotients[0]].by) return false;
  for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
    const Expression& e = expressions_[access_expressions_[a]];
    if (e.terms.size() > 1 || (buffers_[access_buffers_[a]].written && (e.terms.empty() || !(e.terms[0] == Term{0, 1})))) return false;
  }
  return true;
}

void Planner::arrange(Planned& out) {
  // every expression that becomes a Linear, in a fixed order: accesses, indices, checks, quotients that these need
  std::vector<std::uint32_t> used;
  const auto use = [&](std::uint32_t e) { used.push_back(e); };
  for (std::uint32_t e : access_expressions_) use(e);
  for (std::uint32_t e : index_expressions_) use(e);
  for (std::uint32_t e : check_expressions_) use(e);
  std::vector<std::uint32_t> quotient_order;  // dense numbers of the quotients in use, inner ones first
  std::vector<std::uint32_t> quotient_number(quotients_.size(), kNone);
  const auto visit = [&](auto&& self, std::uint32_t e) -> void {
    for (const Term& t : expressions_[e].terms) {
      if (t.variable < kFirstDerived) continue;
      const std::uint32_t q = t.variable - kFirstDerived;
      if (quotient_number[q] != kNone) continue;
      self(self, quotients_[q].expression);  // of data: none
      quotient_number[q] = static_cast<std::uint32_t>(quotient_order.size());
      quotient_order.push_back(q);
    }
  };
  for (std::size_t i = 0, n = used.size(); i < n; ++i) visit(visit, used[i]);
  for (std::uint32_t q : quotient_order) use(quotients_[q].expression);

  const auto coefficient = [&](std::uint32_t e, std::uint32_t variable) -> std::int64_t {
    for (const Term& t : expressions_[e].terms)
      if (t.variable == variable) return t.coefficient;
    return 0;
  };

  // ---- order
  std::vector<std::uint32_t> kept, reduced;
  for (std::uint32_t l = 0; l < loops_.size(); ++l) {
    if (loops_[l].extent == 1) continue;
    (loops_[l].reduced ? reduced : kept).push_back(l);
  }
  const auto weight = [&](std::uint32_t l) {
    std::int64_t stores = 0, loads = 0;
    for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
      const std::int64_t c = std::abs(coefficient(access_expressions_[a], l));
      if (buffers_[access_buffers_[a]].written) stores = std::max(stores, c);
      else loads += c;
    }
    return std::pair(stores, loads);
  };
  if (!has_columns_)  // the order of summation of columns is that of the rows
    std::stable_sort(kept.begin(), kept.end(), [&](std::uint32_t a, std::uint32_t b) { return weight(a) > weight(b); });

  // ---- merge: an outer loop goes into the next where every expression allows it
  const bool filled = order_ && order_->last_kept_between >= 0;
  std::size_t runs = 0;  // reduced loops that count runs
  if (filled) {
    std::int64_t n = 1;
    while (n < order_->runs) n *= loops_[reduced[runs++]].extent;
  }
  std::vector<std::int64_t> extent;
  for (const Loop& l : loops_) extent.push_back(l.extent);
  const auto merge = [&](std::vector<std::uint32_t>& list, std::size_t from, std::size_t to) {
    std::size_t removed = 0;
    for (std::size_t i = from; i + 1 < to - removed;) {
      const std::uint32_t a = list[i], b = list[i + 1];
      bool fits = true;
      for (std::uint32_t e : used) fits = fits && coefficient(e, a) == coefficient(e, b) * extent[b];
      if (!fits) {
        ++i;
        continue;
      }
      extent[b] *= extent[a];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      ++removed;
      if (i > from) --i;
    }
    return removed;
  };
  merge(kept, 0, kept.size());
  runs -= merge(reduced, 0, runs);
  merge(reduced, runs, reduced.size());

  // ---- which loop is the vector's
  const auto score = [&](std::uint32_t l) {
    int s = 0;
    for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
      const std::int64_t c = coefficient(access_expressions_[a], l);
      const int worth = buffers_[access_buffers_[a]].written ? 2 : 1;
      s += c == 1 || (c > 1 && c == phases()) ? worth : c == 0 ? 0 : -worth;
    }
    return s;
  };
  const bool scans = std::any_of(body_.begin(), body_.end(), [](const Statement& s) { return s.kind == Statement::Kind::Scan; });
  scan_is_split_ = scans && reduced.size() > 1;
  NestKind kind = NestKind::Map;
  if (!reduced.empty()) {
    if (partition_.groups[group_].ordered != 0) kind = scans && scans_in_groups_ ? NestKind::Map : NestKind::Rows;
    else if (order_) kind = order_->lanes ? NestKind::Lanes : NestKind::Rows;
    else if (kept.empty() || has_columns_) kind = NestKind::Lanes;
    else {
      int best = score(kept.back());
      for (std::uint32_t l : kept) best = std::max(best, score(l));
      kind = score(reduced.back()) >= best ? NestKind::Lanes : NestKind::Rows;
    }
  }
  Nest& nest = out.nest;
  NestNumbers& numbers = out.numbers;
  nest.kind = kind;
  std::vector<std::uint32_t> final_order;
  if (kind == NestKind::Lanes) {
    final_order = kept;
    final_order.insert(final_order.end(), reduced.begin(), reduced.end());
    nest.outer = static_cast<std::uint8_t>(kept.size());
    nest.serial = static_cast<std::uint8_t>(reduced.size() - 1);
  } else if (kind == NestKind::Map && !reduced.empty()) {
    final_order = kept;
    final_order.push_back(reduced.back());
    nest.outer = static_cast<std::uint8_t>(kept.size());
  } else {
    std::size_t best = kept.size();
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (best == kept.size() || score(kept[i]) >= score(kept[best])) best = i;
    std::uint32_t vector = kNone;
    if (best < kept.size()) {
      vector = kept[best];
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(best));
    }
    // a loop along which loads are contiguous, but not along the vector loop, comes last: their tiles are transposed on the way
    if (kind == NestKind::Map && vector != kNone) {
      const auto along = std::find_if(kept.begin(), kept.end(), [&](std::uint32_t l) {
        for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
          const std::int64_t c = coefficient(access_expressions_[a], vector);
          if (!buffers_[access_buffers_[a]].written && coefficient(access_expressions_[a], l) == 1 && c != 0 && c != 1) return true;
        }
        return false;
      });
      if (along != kept.end()) std::rotate(along, along + 1, kept.end());
    }
    final_order = kept;
    final_order.insert(final_order.end(), reduced.begin(), reduced.end());
    final_order.push_back(vector);  // a scalar's loop of one where nothing is left
    nest.outer = static_cast<std::uint8_t>(kept.size());
    nest.serial = static_cast<std::uint8_t>(reduced.size());
  }
  nest.runs = static_cast<std::uint8_t>(runs);
  if (filled) numbers.padded_run = order_->padded_run;
  for (std::uint32_t l : final_order) numbers.extents.push_back(l == kNone ? 1 : extent[l]);

  // ---- linears
  std::unordered_map<std::uint32_t, std::uint32_t> linear_of;  // by place in `used`: not shared, so that the key sees no equal numbers
  const std::size_t vector_loop = final_order.empty() ? 0 : final_order.size() - 1;
  std::vector<Access> family;
  for (std::uint32_t a = 0; a < access_expressions_.size(); ++a) family.push_back({access_buffers_[a], a});
  if (!final_order.empty()) find_families(family, final_order.back());
  const auto class_of = [&](std::size_t linear, std::size_t variable, std::int64_t c) {
    if (c == 0 || c == 1) return c == 0 ? Coefficient::Zero : Coefficient::One;
    const bool is_access = linear < family.size();
    if (!is_access || variable != vector_loop) return Coefficient::General;
    if (c == -1) return Coefficient::MinusOne;
    if (family[linear].first == Access::kNone) return Coefficient::General;
    return c == 2 ? Coefficient::Two : c == 3 ? Coefficient::Three : Coefficient::Four;
  };
  for (std::size_t i = 0; i < used.size(); ++i) {
    Linear linear;
    std::vector<std::int64_t> c;
    for (std::uint32_t l : final_order) c.push_back(l == kNone ? 0 : coefficient(used[i], l));
    for (std::uint32_t q : quotient_order) c.push_back(coefficient(used[i], kFirstDerived + q));
    for (std::size_t v = 0; v < c.size(); ++v) linear.of.push_back(class_of(i, v, c[v]));
    nest.linears.push_back(std::move(linear));
    numbers.coefficients.push_back(std::move(c));
    numbers.offsets.push_back(expressions_[used[i]].offset);
  }
  const auto accesses = static_cast<std::uint32_t>(access_expressions_.size());
  const auto indices = static_cast<std::uint32_t>(index_expressions_.size());
  const auto checks = static_cast<std::uint32_t>(check_expressions_.size());
  nest.accesses = std::move(family);
  for (std::uint32_t c = 0; c < checks; ++c) nest.checks.push_back({accesses + indices + c});
  numbers.bounds = check_bounds_;
  for (std::uint32_t q = 0; q < quotient_order.size(); ++q) {
    const Quotient& quotient = quotients_[quotient_order[q]];
    nest.derived.push_back(
        {accesses + indices + checks + q, quotient.modulo, quotient.place == ir::kNoNode ? kNone : data_value(quotient)});
    numbers.by.push_back(quotients_[quotient_order[q]].by);
  }
  nest.short_rows = kind == NestKind::Map && final_order.size() == 1 && phases() == 1 && has_short_rows(quotient_order);
  nest.buffers = buffers_;
  numbers.buffers = buffer_nodes_;
  numbers.outputs = buffer_outputs_;
  nest.slots = slot_types_;
  numbers.slots = slots_;

  // ---- body: loops renumbered
  std::vector<std::uint64_t> bit(loops_.size(), 0);
  for (std::uint32_t l = 0; l < loops_.size(); ++l)
    for (std::size_t k = 0; k < final_order.size(); ++k)
      if (final_order[k] == l) bit[l] = std::uint64_t{1} << k;
  nest.sweeps = 1;
  nest.phases = static_cast<std::uint8_t>(phases());
  for (std::size_t i = 0; nest.phases > 1 && i < body_.size(); ++i) {  // stores whose phases lie beside each other
    if (body_[i].kind != Statement::Kind::Store) continue;
    bool beside = coefficient(access_expressions_[body_[i].at], final_order.back()) == nest.phases;
    for (std::uint8_t phase = 1; phase < nest.phases; ++phase)
      beside = beside && expressions_[access_expressions_[body_[i + phase].at]].offset ==
                             expressions_[access_expressions_[body_[i].at]].offset + phase;
    if (beside) body_[i].count = nest.phases;
    i += nest.phases - 1u;
  }
  for (Statement s : body_) {
    std::uint64_t mask = 0;
    for (std::uint32_t l = 0; l < loops_.size(); ++l)
      if (s.loops >> l & 1) mask |= bit[l];  // a merged loop has no bit: its partner, which every expression has too, stands for it
    s.loops = mask;
    if (s.kind == Statement::Kind::Index) s.at += accesses;
    nest.body.push_back(s);
  }
  const std::uint64_t inner = nest.reduced_mask();
  if (kind == NestKind::Rows)  // a row of accumulators varies along the vector loop, whatever it sums
    for (Statement& s : nest.body) {
      const bool accumulates = s.kind == Statement::Kind::Reduce || s.kind == Statement::Kind::Scan;
      if (accumulates) s.loops |= std::uint64_t{1} << nest.vector_loop();
      if (s.kind != Statement::Kind::Op && s.kind != Statement::Kind::Place && !accumulates) continue;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) s.loops |= nest.body[o].loops & (s.kind == Statement::Kind::Reduce ? ~inner : ~std::uint64_t{0});
    }
  const std::vector<bool> behind = nest.behind_columns();
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    Statement& s = nest.body[i];
    if (!behind[i]) continue;
    s.loops &= ~((std::uint64_t{1} << nest.outer) - 1);
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (s.kind == Statement::Kind::Reduce || (o != kNone && behind[o])) s.loops |= inner;  // a column has an element for each of the row
  }
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
