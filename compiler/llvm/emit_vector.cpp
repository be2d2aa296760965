// The vector loop and its body: values of whole vectors, loads, stores, and masks of the last vector.
#include <bit>
#include <numeric>
#include <utility>

#include "compiler/llvm/emitter.h"
#include "compiler/operands_first.h"

namespace onepass::compiler {

bool Emitter::is_made_of_operands(const Body& body, std::uint32_t id) const {
  const Statement& s = nest_.body[id];
  if (s.kind == Statement::Kind::Slot || (body.beside && shared_abreast(id)) || (schedule_.rolled.holds(id) && !iteration_)) return false;
  if (layout_.patterns.at[id] != RowPatterns::kNone && !making_patterns_) return false;
  if (!is_vector(id)) return false;
  if (kept_slot(id) != kNone && first_sweep(id) < body.sweep) return false;
  return nest_.kind != NestKind::Rows || layout_.values[id] == ScratchLayout::kNone || computing_row_;
}

Value* Emitter::vector(Body& body, std::uint32_t id) {
  if (const auto it = body.values.find(id); it != body.values.end()) return it->second;
  const auto is_made = [&](std::uint32_t i) { return body.values.contains(i); };
  const auto each_operand = [&](std::uint32_t i, auto&& visit) {
    const Statement& s = nest_.body[i];
    if (!is_made_of_operands(body, i)) return;
    if (s.guard != kNone) visit(s.guard);
    const bool is_op = s.kind == Statement::Kind::Op || s.kind == Statement::Kind::Place || s.kind == Statement::Kind::Scan;
    for (const std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone && (is_op || (is_vector(o) && !(nest_.body[o].loops & closed_)))) visit(o);  // other operands are made where they vary
  };
  operands_first(id, is_made, each_operand, [&](std::uint32_t i) { make_vector(body, i); });
  return body.values.at(id);
}

Value* Emitter::make_vector(Body& body, std::uint32_t id) {
  if (body.beside && shared_abreast(id)) return body.values[id] = vector(*body.beside, id);
  const Statement& s = nest_.body[id];
  Value* made = nullptr;
  if (schedule_.rolled.holds(id) && !iteration_) {
    rolled(body);
    return body.values.at(id);
  }
  if (iteration_ && s.kind == Statement::Kind::Slot) {
    made = slot_of_iteration(s);
  } else if (s.kind == Statement::Kind::Slot && is_known(words_.slots + s.at)) {
    made = splat(of_slot(s.dtype, s.at), width_);
  } else if (s.kind == Statement::Kind::Slot && spreads() && layout_.spread.holds(s.dtype, schedule_.width)) {
    Value* p = bytes(argument(3), static_cast<std::int64_t>(s.at) * layout_.spread.each);
    made = from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), p, alignment_of(layout_.spread)));
  } else if (s.kind == Statement::Kind::Slot && layout_.spread.any) {
    made = b_.CreateVectorSplat(width_, of_slot(s.dtype, s.at));
  } else if (layout_.patterns.at[id] != RowPatterns::kNone && !making_patterns_) {
    Value* p = pattern(id, place_);
    made = from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), p, llvm::Align(1)));
  } else if (!is_vector(id) && !(nest_.kind == NestKind::Rows && s.kind == Statement::Kind::Reduce)) {
    made = splat(scalar(id), width_);
  } else if (const std::uint32_t kept = kept_slot(id); kept != kNone && first_sweep(id) < body.sweep) {
    made = from_memory(
        s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), scratch_row(layout_.kept[kept], body.j, s.dtype), llvm::Align(1)));
  } else if (nest_.kind == NestKind::Rows && layout_.values[id] != ScratchLayout::kNone && !computing_row_) {
    made = from_memory(
        s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), scratch_row(layout_.values[id], body.j, s.dtype), llvm::Align(1)));
  } else {
    made = compute(body, id, s);
    if (kept != kNone && first_sweep(id) == body.sweep)
      b_.CreateAlignedStore(to_memory(s.dtype, made), scratch_row(layout_.kept[kept], body.j, s.dtype), llvm::Align(1));
  }
  return body.values[id] = made;
}

std::uint32_t Emitter::kept_slot(std::uint32_t id) const {
  if (!schedule_.row_scratch) return kNone;
  for (std::uint32_t i = 0; i < schedule_.kept.size(); ++i)
    if (schedule_.kept[i] == id) return i;
  return kNone;
}

std::uint8_t Emitter::first_sweep(std::uint32_t id) const {
  std::uint8_t s = 0;
  while (s < nest_.sweeps && !needed_[s][id]) ++s;
  return s;
}

Value* Emitter::scratch_base(std::uint32_t slot) {
  return bytes(bytes(argument(3), layout_.spread.bytes + layout_.patterns.bytes),
               b_.CreateMul(unit_, i64(std::int64_t{current_} * layout_.total + slot)));
}

Value* Emitter::scratch_row(std::uint32_t slot, Value* j, DType t) {
  return bytes(scratch_base(slot), b_.CreateMul(j, i64(static_cast<std::int64_t>(size_of(t)))));
}

Value* Emitter::compute(Body& body, std::uint32_t id, const Statement& s) {
  switch (s.kind) {
    case Statement::Kind::Index: return from_index(vector_linear(body, s.at), s);
    case Statement::Kind::Guard: {
      Value* all = nullptr;
      for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
        Value* inside = b_.CreateICmpULT(vector_linear(body, nest_.checks[c].linear), splat(word(words_.bounds + c), width_));
        all = all ? b_.CreateAnd(all, inside) : inside;
      }
      return all;
    }
    case Statement::Kind::Load: return load(body, s);
    case Statement::Kind::Place: {
      Value* mask = body.mask;
      if (s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
      return checked_place(nest_.body[s.a].dtype, vector(body, s.a), s.at, mask);
    }
    case Statement::Kind::Scan: return nest_.kind == NestKind::Map ? scan_group(body, id) : scan_row(body, id);
    case Statement::Kind::Op: {
      Typed operands[3];
      std::size_t n = 0;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) operands[n++] = {vector(body, o), nest_.body[o].dtype};
      return apply(s, std::span(operands, n));
    }
    default: throw InternalError("emit: statement " + std::to_string(id) + " has no vector value");
  }
}

bool Emitter::contiguous(std::uint32_t access) const {
  const Linear& l = nest_.linears[nest_.accesses[access].linear];
  return l.of[nest_.vector_loop()] == Coefficient::One && !varies_derived(access);
}

bool Emitter::varies_derived(std::uint32_t access) const {
  if (loops_of_table(access) & vector_bit()) return true;
  const Linear& l = nest_.linears[nest_.accesses[access].linear];
  for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
    if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & vector_bit())) return true;
  return false;
}

Value* Emitter::vector_pointer(Body& body, std::uint32_t access) {
  const std::uint32_t linear = nest_.accesses[access].linear;
  if (body.rows && linear_along_serial(linear) && (loops_of_linear(linear) & serial_bits()) && !is_list(access))
    return pointer_in_rows(body, access);
  return bytes(pointer(access, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(access))));
}

// Row k is at (p, k*step). x86 addressing covers k of 1, 2, 4 and 8, and 3, 5, 7 and twice these numbers with one more register each.
// LLVM's strength reduction would instead make a pointer per row and spill it to the stack. The intrinsic hides the address from it and
// emits no instruction.
Value* Emitter::pointer_in_rows(Body& body, std::uint32_t access) {
  const std::int64_t size = size_of_access(access);
  Value*& begin = body.rows->begins[{current_, access}];
  if (!begin) {
    Region* const region = std::exchange(serial_, body.rows->first[current_]);
    Value* const index = std::exchange(index_[nest_.outer], body.rows->index);
    Value* p = bytes(pointer(access, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size)));
    serial_ = region;
    index_[nest_.outer] = index;
    begin = b_.CreateStripInvariantGroup(p);
  }
  const auto row = static_cast<std::uint64_t>(body.rows->row);
  if (row == 0) return begin;
  const int doubled = std::countr_zero(row);
  const std::int64_t odd = body.rows->row >> doubled;
  Value* step = in(entry_, [&] { return b_.CreateMul(times(nest_.accesses[access].linear, nest_.outer, i64(1)), i64(odd * size)); });
  return bytes(begin, doubled ? b_.CreateShl(step, i64(doubled)) : step);
}

Value* Emitter::reversed_pointer(Body& body, std::uint32_t access) {
  Value* last = b_.CreateMul(b_.CreateAdd(body.j, i64(width_ - 1)), i64(-size_of_access(access)));
  return bytes(pointer(access, ~std::uint64_t{0}), last);
}

Value* Emitter::reversed(Body& body, std::uint32_t access, llvm::Type* type) {
  Value* p = reversed_pointer(body, access);
  if (!body.mask) return reversed(b_.CreateAlignedLoad(type, p, llvm::Align(1)));
  return reversed(b_.CreateMaskedLoad(type, p, llvm::Align(1), reversed(body.mask), llvm::Constant::getNullValue(type)));
}

Value* Emitter::sorted_out(Body& body, std::uint32_t access, llvm::Type* type) {
  const Access& a = nest_.accesses[access];
  const auto c = static_cast<unsigned>(number_of(nest_.linears[a.linear].of[nest_.vector_loop()]));
  std::vector<Value*>& whole = body.families[a.first];
  if (whole.empty()) {
    Value* p = bytes(pointer(a.first, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(access) * c)));
    whole = whole_vectors(type, p, c, nest_.places_of_group(a.first));
  }
  return every(whole, c, a.place);
}

Value* Emitter::addresses(Body& body, std::uint32_t access) {
  if (loops_of_table(access) & vector_bit()) return addresses_in_list(body, access);
  const std::uint32_t linear = nest_.accesses[access].linear;
  const Linear& l = nest_.linears[linear];
  Value* base = pointer(access, ~std::uint64_t{0});
  Value* offset = nullptr;
  const auto plus = [&](Value* v) { offset = offset ? b_.CreateAdd(offset, v) : v; };
  if (l.of[nest_.vector_loop()] != Coefficient::Zero)
    plus(times(linear, nest_.vector_loop(), b_.CreateAdd(b_.CreateVectorSplat(width_, body.j), iota(width_))));
  for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
    if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & vector_bit()))
      plus(times(linear, v, vector_derived(body, v - nest_.loops())));
  if (!offset) offset = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), width_));
  return b_.CreateGEP(
      b_.getInt8Ty(), base,
      b_.CreateMul(offset, llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(width_),
                                                          b_.getInt64(static_cast<std::uint64_t>(size_of_access(access))))));
}

void Emitter::prefetch(Value* p) {
  constexpr std::uint32_t kNearest = 3;  // numbering of locality in LLVM
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()}, {p, b_.getInt32(0), b_.getInt32(kNearest), b_.getInt32(1)});
}

Value* Emitter::load(Body& body, const Statement& s) {
  const std::uint32_t access = s.at;
  const DType t = type_of_access(access);
  llvm::Type* type = memory_type(t, width_);
  if (contiguous(access)) {
    Value* const guard = s.guard == kNone ? nullptr : is_vector(s.guard) ? vector(body, s.guard) : scalar(s.guard);
    return from_memory(t, guarded(type, vector_pointer(body, access), guard, body.mask));
  }
  Value* mask = body.mask;
  if (s.guard != kNone) {
    Value* guard = vector(body, s.guard);
    mask = mask ? b_.CreateAnd(mask, guard) : guard;
  }
  if (nest_.short_rows && s.guard == kNone)
    if (Value* v = one_of_each_row(access)) return from_memory(t, v);
  const Coefficient along = nest_.linears[nest_.accesses[access].linear].of[nest_.vector_loop()];
  if (along == Coefficient::MinusOne && !varies_derived(access) && mask == body.mask) return from_memory(t, reversed(body, access, type));
  if (!mask && !varies_derived(access)) {
    if (nest_.accesses[access].first != kNone) return from_memory(t, sorted_out(body, access, type));
  }
  return from_memory(t, gathered(type, addresses(body, access), mask));
}

void Emitter::store(Body& body, const Statement& s) {
  if (s.op == Op::Add) return add_to(body, s);
  const bool streams = std::find(schedule_.streamed.begin(), schedule_.streamed.end(), s.at) != schedule_.streamed.end();
  const bool whole = s.guard == kNone && !body.mask && contiguous(s.at);
  if (whole && !streams && k_.converts_by_registers(type_of_access(s.at)))
    return store_by_registers(vector(body, s.a), type_of_access(s.at),
                              bytes(pointer(s.at, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(s.at)))));
  Value* value = to_memory(type_of_access(s.at), vector(body, s.a));
  Value* mask = body.mask;
  if (s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
  if (contiguous(s.at)) {
    Value* p = bytes(pointer(s.at, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(s.at))));
    if (mask) {
      b_.CreateMaskedStore(value, p, llvm::Align(1), mask);
    } else if (streams) {
      const auto bytes_each = static_cast<std::uint64_t>(size_of_access(s.at)) * width_;
      llvm::StoreInst* st = b_.CreateAlignedStore(value, p, llvm::Align(std::min<std::uint64_t>(64, bytes_each)));
      st->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
    } else {
      b_.CreateAlignedStore(value, p, llvm::Align(1));
    }
    return;
  }
  if (nest_.linears[nest_.accesses[s.at].linear].of[nest_.vector_loop()] == Coefficient::MinusOne && !varies_derived(s.at)) {
    Value* p = reversed_pointer(body, s.at);
    if (mask) b_.CreateMaskedStore(reversed(value), p, llvm::Align(1), reversed(mask));
    else b_.CreateAlignedStore(reversed(value), p, llvm::Align(1));
    return;
  }
  b_.CreateMaskedScatter(value, addresses(body, s.at), llvm::Align(1), mask ? mask : all_lanes(width_));
}

void Emitter::add_to(Body& body, const Statement& s) {
  const DType t = type_of_access(s.at);
  llvm::Type* type = memory_type(t, width_);
  Value* zero = llvm::Constant::getNullValue(type);
  Value* value = vector(body, s.a);
  Value* mask = body.mask;
  if (s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
  const auto sum = [&](Value* old) { return k_.add({old, t}, {value, t}); };
  if (contiguous(s.at)) {
    Value* p = bytes(pointer(s.at, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(s.at))));
    if (mask) b_.CreateMaskedStore(sum(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero)), p, llvm::Align(1), mask);
    else b_.CreateAlignedStore(sum(b_.CreateAlignedLoad(type, p, llvm::Align(1))), p, llvm::Align(1));
    return;
  }
  Value* at = addresses(body, s.at);
  if (!mask) mask = all_lanes(width_);
  b_.CreateMaskedScatter(sum(b_.CreateMaskedGather(type, at, llvm::Align(1), mask, zero)), at, llvm::Align(1), mask);
}

void Emitter::vector_range(Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f) {
  vector_range(i64(0), n, around, sweep, nest_.short_rows ? in_short_rows(f) : f);
}

void Emitter::vector_range(Value* begin, Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f) {
  Value* whole = b_.CreateAdd(begin, b_.CreateAnd(b_.CreateSub(n, begin), i64(-static_cast<std::int64_t>(width_))));
  if (!schedule_.masked) {
    loop(begin, whole, i64(width_), [&](Value* j) {
      Body body{around, j, nullptr, nullptr, sweep};
      f(body);
    });
    when(b_.CreateICmpSLT(whole, n), [&] {
      Value* left = b_.CreateSub(n, whole);
      Body body{around, whole, lanes_below(left, width_), left, sweep};
      f(body);
    });
    return;
  }
  loop(begin, n, i64(width_), [&](Value* j) {
    Value* left = b_.CreateSub(n, j);
    Body body{around, j, lanes_below(left, width_), left, sweep};
    f(body);
  });
}

bool Emitter::stores_in(const Statement& s, std::uint8_t sweep) const {
  const std::uint64_t inner = nest_.reduced_mask();
  return s.kind == Statement::Kind::Store && s.stage == sweep && (nest_.kind == NestKind::Map || (s.loops & inner));
}

// Prefetches the next row during the last sweep. Without this, memory is idle during that sweep, and the next row's first sweep waits for
// memory, because the hardware does not prefetch beyond a page. It is used if the traffic exceeds the second-level cache and both rows fit
// into the first-level cache. Scans over rows read parts of rows, which the hardware does not predict either.
void Emitter::ask_for_next_row(Body& body) {
  constexpr std::int64_t kMostElements = 4096;
  const bool rows = nest_.kind == NestKind::Lanes && nest_.sweeps > 1 && nest_.serial == 0 && nest_.outer > 0;
  const bool scans = nest_.kind == NestKind::Rows && nest_.has(Statement::Kind::Scan);
  if (!schedule_.asks_ahead || !(rows || scans)) return;
  for (std::uint32_t access = 0; access < nest_.accesses.size(); ++access) {
    const std::uint32_t linear = nest_.accesses[access].linear, row = nest_.vector_loop() - 1u;
    if (nest_.buffers[nest_.accesses[access].buffer].written || !contiguous(access)) continue;
    if (nest_.linears[linear].of[row] == Coefficient::Zero || is_list(access)) continue;
    Value* step = in(entry_, [&] {
      Value* bytes_to_next = b_.CreateMul(times(linear, row, i64(1)), i64(size_of_access(access)));
      return b_.CreateSelect(b_.CreateICmpSLE(extent(nest_.vector_loop()), i64(kMostElements)), bytes_to_next, i64(0));
    });
    Value* p = bytes(pointer(access, ~std::uint64_t{0}), b_.CreateAdd(step, b_.CreateMul(body.j, i64(size_of_access(access)))));
    for (std::int64_t line = 0; line < size_of_access(access) * width_; line += 64) prefetch(bytes(p, line));
  }
}

void Emitter::stores(Body& body, std::uint8_t sweep) {
  if (has_columns_ && sweep + 1 == nest_.sweeps) take_columns(body);
  if (sweep + 1 == nest_.sweeps && !body.mask) ask_for_next_row(body);
  for (const Statement& s : nest_.body)
    if (stores_in(s, sweep)) store(body, s);
}

bool Emitter::any_stores(std::uint8_t sweep) const {
  for (const Statement& s : nest_.body)
    if (stores_in(s, sweep)) return true;
  return false;
}

}  // namespace onepass::compiler
