// Numbers, addresses and values of a kernel. Each of them is computed once, in the outermost region where its operands are known.
#include "compiler/llvm/emitter.h"
#include "compiler/operands_first.h"

namespace onepass::compiler {

std::uint64_t Emitter::serial_bits() const { return ((std::uint64_t{1} << nest_.serial) - 1) << nest_.outer; }

Region* Emitter::region(Region* parent) {
  regions_.push_back(std::make_unique<Region>());
  Region* r = regions_.back().get();
  r->parent = parent;
  r->hoist = block();
  b_.CreateBr(r->hoist);
  BasicBlock* next = block();
  b_.SetInsertPoint(r->hoist);
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
  return r;
}

Value* Emitter::base_pointer(std::uint32_t access) {
  if (const auto it = entry_.pointers.find(access); it != entry_.pointers.end()) return it->second;
  return entry_.pointers[access] = in(entry_, [&] {
           return b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.pointers + access)),
                                       llvm::Align(8));
         });
}

Value* Emitter::variable(llvm::Type* type, Value* initial) {
  Value* v = in(entry_, [&] { return b_.CreateAlloca(type); });
  if (initial) b_.CreateStore(initial, v);
  return v;
}

Region& Emitter::place(std::uint64_t loops, std::uint8_t stage) {
  if (loops & serial_bits()) return *serial_;
  if (loops & outer_bits() || stage > 0) return *stages_[stage];
  return entry_;
}

std::uint64_t Emitter::loops_of_derived(std::uint32_t q) const {
  const Derived& d = nest_.derived[q];
  return d.place == Derived::kNone ? loops_of_linear(d.linear) : nest_.body[d.place].loops;
}

bool Emitter::holds_data(std::uint32_t linear) const {
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t q = 0; q < nest_.derived.size(); ++q)
    if (l.of[nest_.loops() + q] != Coefficient::Zero && (nest_.derived[q].place != Derived::kNone || holds_data(nest_.derived[q].linear)))
      return true;
  return false;
}

void Emitter::make_places(std::uint32_t linear) {
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t q = 0; q < nest_.derived.size(); ++q) {
    if (l.of[nest_.loops() + q] == Coefficient::Zero) continue;
    const Derived& d = nest_.derived[q];
    if (d.place == Derived::kNone) make_places(d.linear);
    else if (!is_vector(d.place)) scalar(d.place);
  }
}

std::uint64_t Emitter::loops_of_linear(std::uint32_t linear) const {
  std::uint64_t mask = 0;
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t v = 0; v < l.of.size(); ++v) {
    if (l.of[v] == Coefficient::Zero) continue;
    mask |= v < nest_.loops() ? bit(v) : loops_of_derived(v - nest_.loops());
  }
  return mask;
}

Value* Emitter::times(std::uint32_t linear, std::uint32_t variable, Value* v) {
  if (nest_.linears[linear].of[variable] == Coefficient::One) return v;
  Value* c = word(words_.coefficient_of(linear, variable));
  return b_.CreateMul(width_of(v) ? splat(c, width_of(v)) : c, v);
}

Value* Emitter::scalar_part(std::uint32_t linear, std::uint64_t known, std::optional<std::uint64_t> added) {
  Value* sum = nullptr;
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t v = 0; v < l.of.size(); ++v) {
    if (l.of[v] == Coefficient::Zero) continue;
    const bool is_loop = v < nest_.loops();
    const std::uint64_t loops = is_loop ? bit(v) : loops_of_derived(v - nest_.loops());
    if ((loops & ~known) != 0 || (added && (loops & ~*added) == 0)) continue;
    Value* term = times(linear, v, is_loop ? index_[v] : derived(v - nest_.loops(), loops));
    sum = sum ? b_.CreateAdd(sum, term) : term;
  }
  return sum;
}

Value* Emitter::linear_at(std::uint32_t linear) {
  Value* sum = word(words_.offset_of(linear));
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t v = 0; v < l.of.size(); ++v) {
    if (l.of[v] == Coefficient::Zero) continue;
    Value* x = v < nest_.loops() ? index_[v] : derived(v - nest_.loops(), loops_of_derived(v - nest_.loops()));
    sum = b_.CreateAdd(sum, times(linear, v, x));
  }
  return sum;
}

Value* Emitter::derived(std::uint32_t q, std::uint64_t loops) {
  Region& r = place(loops, 0);
  if (const auto it = r.derived.find(q); it != r.derived.end()) return it->second;
  if (const std::uint32_t place = nest_.derived[q].place; place != Derived::kNone) return r.derived[q] = scalar(place);
  return r.derived[q] = in(r, [&] { return quotient(q, linear_at(nest_.derived[q].linear)); });
}

Value* Emitter::vector_linear(Body& body, std::uint32_t linear) {
  const std::uint64_t known = ~vector_bit();
  Value* base = word(words_.offset_of(linear));
  if (Value* s = scalar_part(linear, known)) base = b_.CreateAdd(base, s);
  const Linear& l = nest_.linears[linear];
  Value* sum = nullptr;
  for (std::uint32_t v = 0; v < l.of.size(); ++v) {
    if (l.of[v] == Coefficient::Zero) continue;
    Value* x = nullptr;
    if (v == nest_.vector_loop()) x = b_.CreateAdd(b_.CreateVectorSplat(width_, b_.CreateAdd(index_[v], body.j)), iota(width_));
    else if (v >= nest_.loops() && (loops_of_derived(v - nest_.loops()) & vector_bit())) x = vector_derived(body, v - nest_.loops());
    if (x) {
      x = times(linear, v, x);
      sum = sum ? b_.CreateAdd(sum, x) : x;
    }
  }
  Value* all = b_.CreateVectorSplat(width_, base);
  return sum ? b_.CreateAdd(all, sum) : all;
}

Value* Emitter::vector_derived(Body& body, std::uint32_t q) {
  if (const auto it = body.derived.find(q); it != body.derived.end()) return it->second;
  if (const std::uint32_t place = nest_.derived[q].place; place != Derived::kNone) return body.derived[q] = vector(body, place);
  if (nest_.short_rows) {
    Value* index = b_.CreateZExt(row_indices(nest_.derived[q].modulo, place_), llvm::FixedVectorType::get(b_.getInt64Ty(), width_));
    return body.derived[q] = nest_.derived[q].modulo ? index : b_.CreateAdd(index, b_.CreateVectorSplat(width_, vector_row_));
  }
  return body.derived[q] = quotient(q, vector_linear(body, nest_.derived[q].linear));
}

bool Emitter::linear_along_serial(std::uint32_t linear) const {
  const Linear& l = nest_.linears[linear];
  for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
    if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & serial_bits())) return false;
  return nest_.serial == 1;
}

Value* Emitter::pointer(std::uint32_t access, std::uint64_t loops) {
  if (is_list(access)) return pointer_in_list(access, loops);
  const std::uint32_t linear = nest_.accesses[access].linear;
  const std::uint64_t varies = loops_of_linear(linear);
  const bool by_data = holds_data(linear);
  if (by_data) make_places(linear);
  Region* r = &entry_;
  if (loops & serial_bits() && varies & serial_bits()) r = serial_;
  else if (varies & (outer_bits() | vector_bit())) r = stages_[0];
  if (const auto it = r->pointers.find(access); it != r->pointers.end()) return it->second;
  Value* p = nullptr;
  const std::uint64_t item_loops = outer_bits();
  if (r == &entry_) {
    p = base_pointer(access);
    if (by_data)  // one checked index for all
      p = in(entry_, [&] {
        Value* at = scalar_part(linear, 0);
        return at ? bytes(p, b_.CreateMul(at, i64(size_of_access(access)))) : p;
      });
  } else if (r == stages_[0]) {
    p = in(*r, [&] {
      Value* at = base_pointer(access);
      Value* sum = scalar_part(linear, item_loops);
      if (nest_.linears[linear].of[nest_.vector_loop()] != Coefficient::Zero && nest_.kind != NestKind::Lanes) {
        Value* start = times(linear, nest_.vector_loop(), index_[nest_.vector_loop()]);
        sum = sum ? b_.CreateAdd(sum, start) : start;
      }
      return sum ? bytes(at, b_.CreateMul(sum, i64(size_of_access(access)))) : at;
    });
  } else if (r->before && linear_along_serial(linear)) {
    Region* const mine = serial_;
    serial_ = r->before;
    Value* at = pointer(access, loops);
    serial_ = mine;
    Value* step = in(entry_, [&] { return b_.CreateMul(times(linear, nest_.outer, i64(1)), i64(size_of_access(access))); });
    p = in(*r, [&] { return bytes(at, step); });
  } else {
    Value* at = pointer(access, loops & ~serial_bits());
    p = in(*r, [&] {
      Value* sum = scalar_part(linear, serial_bits() | item_loops, item_loops);
      return sum ? bytes(at, b_.CreateMul(sum, i64(size_of_access(access)))) : at;
    });
  }
  return r->pointers[access] = p;
}

Value* Emitter::known_scalar(std::uint32_t id) {
  const Statement& s = nest_.body[id];
  const auto& values = place(s.loops, s.stage).values;
  const auto it = values.find(id);
  return it == values.end() ? nullptr : it->second;
}

Value* Emitter::scalar(std::uint32_t id) {
  if (Value* known = known_scalar(id)) return known;
  const auto is_made = [&](std::uint32_t i) { return known_scalar(i) != nullptr; };
  const auto each_operand = [&](std::uint32_t i, auto&& visit) {
    const Statement& s = nest_.body[i];
    const bool guard_first = has_control_flow(s) || s.kind == Statement::Kind::Place;
    if (guard_first && s.guard != kNone) visit(s.guard);
    for (const std::uint32_t o : {s.a, s.b, s.c})  // a load along an axis of one element varies less than its checked index
      if (o != kNone && (nest_.body[o].loops & ~s.loops) == 0) visit(o);
    if (!guard_first && s.guard != kNone) visit(s.guard);
  };
  operands_first(id, is_made, each_operand, [&](std::uint32_t i) { make_scalar(i); });
  return known_scalar(id);
}

Value* Emitter::make_scalar(std::uint32_t id) {
  const Statement& s = nest_.body[id];
  Region& r = place(s.loops, s.stage);
  // The region's block is split, so that the end of the code finds its terminator again.
  if (has_control_flow(s) || (s.kind == Statement::Kind::Place && &r != &entry_)) {
    llvm::IRBuilderBase::InsertPointGuard keep(b_);
    Value* guard = s.guard == kNone ? nullptr : scalar(s.guard);
    Typed operands[3];
    std::size_t n = 0;
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone) operands[n++] = {scalar(o), nest_.body[o].dtype};
    BasicBlock* rest = r.hoist->splitBasicBlock(r.hoist->getTerminator());
    r.hoist->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(r.hoist);
    Value* v = s.kind == Statement::Kind::Place ? checked_place(operands[0].dtype, operands[0].value, s.at, guard)
                                                : apply(s, std::span(operands, n));
    b_.CreateBr(rest);
    r.hoist = rest;
    return r.values[id] = v;
  }
  if (s.kind == Statement::Kind::Index) make_places(s.at);
  if (s.kind == Statement::Kind::Guard)
    for (std::uint32_t c = s.at; c < s.at + s.count; ++c) make_places(nest_.checks[c].linear);
  Value* made = nullptr;
  switch (s.kind) {
    case Statement::Kind::Place: {
      Value* index = scalar(s.a);
      Value* guard = s.guard == kNone ? nullptr : scalar(s.guard);
      made = in(r, [&] { return checked_place(nest_.body[s.a].dtype, index, s.at, guard, false); });  // once per call
      break;
    }
    case Statement::Kind::Constant: made = k_.constant(s.dtype, s.bits, 0); break;
    case Statement::Kind::Slot: made = in(r, [&] { return of_slot(s.dtype, s.at); }); break;
    case Statement::Kind::Index: {
      made = in(r, [&] { return from_index(linear_at(s.at), s); });
      break;
    }
    case Statement::Kind::Guard:
      made = in(r, [&] {
        Value* all = nullptr;
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
          Value* inside = b_.CreateICmpULT(linear_at(nest_.checks[c].linear), word(words_.bounds + c));
          all = all ? b_.CreateAnd(all, inside) : inside;
        }
        return all;
      });
      break;
    case Statement::Kind::Load: {
      Value* p = pointer_with_derived(s);
      Value* guard = s.guard == kNone ? nullptr : scalar(s.guard);
      made = in(r, [&] {
        if (guard) p = b_.CreateSelect(guard, p, zeros_);
        return from_memory(type_of_access(s.at), b_.CreateAlignedLoad(memory_type(type_of_access(s.at), 0), p, llvm::Align(1)));
      });
      break;
    }
    case Statement::Kind::Op: {
      Typed operands[3];
      std::size_t n = 0;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) operands[n++] = {scalar(o), nest_.body[o].dtype};
      made = in(r, [&] { return apply(s, std::span(operands, n)); });
      break;
    }
    default: throw InternalError("emit: a statement has no value here");
  }
  return r.values[id] = made;
}

}  // namespace onepass::compiler
