// What reductions combine: accumulators, lanes that are halved, trees of blocks, the maximum that knows NaN.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

std::vector<std::uint32_t> Emitter::reductions(std::uint8_t sweep) const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].stage == sweep + 1 && !nest_.body[i].count) out.push_back(i);
  return out;
}

Op Emitter::combiner(Op reduction) {
  switch (reduction) {
    case Op::ReduceSum:
    case Op::ScanSum:
    case Op::ContractLanes:
    case Op::ContractRows: return Op::Add;
    case Op::ReduceProd:
    case Op::ScanProd: return Op::Mul;
    case Op::ReduceMax:
    case Op::ScanMax: return Op::Maximum;
    default: return Op::Minimum;
  }
}

Value* Emitter::combine(std::uint32_t id, Value* a, Value* c) {
  const Statement& s = nest_.body[id];
  const Typed both[2] = {{a, s.dtype}, {c, s.dtype}};
  const Op op = combiner(s.op);
  if (s.dtype == DType::Bool) return op == Op::Maximum ? b_.CreateOr(a, c) : b_.CreateAnd(a, c);
  return k_.apply(op, s.dtype, both);
}

Value* Emitter::added(std::uint32_t id, Body& body) {
  Value* a = vector(body, nest_.body[id].a);
  return body.mask ? b_.CreateSelect(body.mask, a, identity(id, width_)) : a;
}

Value* Emitter::accumulated(std::uint32_t id, Value* accumulator, Body& body) {
  const Statement& s = nest_.body[id];
  if (!ir::is_contraction(s.op)) return combine(id, accumulator, added(id, body));
  Value *a = vector(body, s.a), *c = vector(body, s.b), *sum = nullptr;
  if (is_float(s.dtype)) {
    const Typed all[3] = {{a, s.dtype}, {c, s.dtype}, {accumulator, s.dtype}};
    sum = k_.apply(Op::Fma, s.dtype, all);
  } else {
    sum = b_.CreateAdd(b_.CreateMul(a, c), accumulator);
  }
  return body.mask ? b_.CreateSelect(body.mask, sum, accumulator) : sum;
}

Value* Emitter::identity(std::uint32_t id, unsigned width) {
  const Statement& s = nest_.body[id];
  std::uint64_t bits = 0;
  const bool real = is_float(s.dtype), is_signed = is_signed_integer(s.dtype);
  const std::uint64_t top = size_of(s.dtype) == 8 ? std::uint64_t{1} << 63 : std::uint64_t{1} << (8 * size_of(s.dtype) - 1);
  const std::uint64_t all = size_of(s.dtype) == 8 ? ~std::uint64_t{0} : (top << 1) - 1;
  switch (combiner(s.op)) {
    case Op::Add: bits = real ? ir::bits_of(s.dtype, -0.0) : 0; break;
    case Op::Mul: bits = ir::bits_of(s.dtype, 1.0); break;
    case Op::Maximum: bits = real ? ir::bits_of(s.dtype, -std::numeric_limits<double>::infinity()) : is_signed ? top : 0; break;
    default:
      bits = real ? ir::bits_of(s.dtype, std::numeric_limits<double>::infinity()) : s.dtype == DType::Bool ? 1 : is_signed ? top - 1 : all;
      break;
  }
  return k_.constant(s.dtype, bits, width);
}

bool Emitter::is_extreme(std::uint32_t id) const {
  const Statement& s = nest_.body[id];
  return is_float(s.dtype) && (s.op == Op::ReduceMax || s.op == Op::ReduceMin);
}

Value* Emitter::bits_of(Value* v) {
  return b_.CreateBitCast(v, v->getType()->getWithNewType(b_.getIntNTy(v->getType()->getScalarSizeInBits())));
}

Value* Emitter::joined_bits(std::uint32_t id, Value* a, Value* c) {
  return nest_.body[id].op == Op::ReduceMax ? b_.CreateAnd(a, c) : b_.CreateOr(a, c);
}

Value* Emitter::unordered(Value* a, Value* c) {
  Value* is = b_.CreateFCmpUNO(a, c);
  const bool masks = schedule_.vector_bytes == 64 || !a->getType()->isVectorTy();
  return masks ? is : b_.CreateSExt(is, bits_of(a)->getType());
}

Value* Emitter::further(std::uint32_t id, Value* a, Value* c) {
  return b_.CreateSelect(nest_.body[id].op == Op::ReduceMax ? b_.CreateFCmpOGT(c, a) : b_.CreateFCmpOLT(c, a), c, a);
}

Emitter::Extreme Emitter::extreme(Value* v) { return {v, bits_of(v), unordered(v, v)}; }

Emitter::Extreme Emitter::extreme_of_lanes(std::uint32_t id, Value* v) {
  const unsigned width = width_of(v),
                 lanes = static_cast<unsigned>(schedule_.vector_bytes / static_cast<int>(size_of(nest_.body[id].dtype)));
  Extreme e{v, bits_of(v), nullptr};
  if (width <= lanes) return extreme(v);
  e.nan = unordered(half_of(v, width, 0), half_of(v, width, width / 2));
  for (unsigned w = width; w > lanes; w /= 2) {
    e.bits = joined_bits(id, half_of(e.bits, w, 0), half_of(e.bits, w, w / 2));
    if (w < width) e.nan = b_.CreateOr(half_of(e.nan, w, 0), half_of(e.nan, w, w / 2));
  }
  return e;
}

Emitter::Extreme Emitter::join(std::uint32_t id, const Extreme& a, const Extreme& c) {
  return {further(id, a.most, c.most), joined_bits(id, a.bits, c.bits), b_.CreateOr(a.nan, c.nan)};
}

Value* Emitter::settled(const Extreme& e) {
  llvm::Type* type = e.most->getType();
  Value* sign = llvm::ConstantInt::get(e.bits->getType(), llvm::APInt::getSignMask(type->getScalarSizeInBits()));
  Value* zero = b_.CreateBitCast(b_.CreateAnd(e.bits, sign), type);
  Value* v = b_.CreateSelect(b_.CreateFCmpOEQ(e.most, llvm::Constant::getNullValue(type)), zero, e.most);
  return b_.CreateSelect(b_.CreateIsNotNull(e.nan), llvm::ConstantFP::getNaN(type), v);
}

Value* Emitter::combine_all(std::uint32_t id, const std::vector<Value*>& values) {
  if (!is_extreme(id)) throw InternalError("emit: this reduction has an order");
  std::optional<Extreme> all;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    Value *a = values[i], *c = values[std::min(i + 1, values.size() - 1)];
    // the first of all may be a NaN: compared with it, no other is further
    const Extreme two{further(id, a, c), joined_bits(id, bits_of(a), bits_of(c)), unordered(a, c)};
    all = all ? join(id, *all, two) : two;
  }
  return settled(*all);
}

Emitter::Lanes Emitter::new_lanes(std::uint32_t id) {
  Lanes l{id, {}};
  for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) {
    std::vector<Value*>& mine = l.vectors.emplace_back();
    mine.push_back(variable(k_.type(nest_.body[id].dtype, width_), nullptr));
    if (!is_extreme(id)) continue;
    const Extreme start = extreme_of_lanes(id, identity(id, width_));  // constants
    for (Value* v : {start.bits, start.nan}) mine.push_back(variable(v->getType(), nullptr));
  }
  return l;
}

void Emitter::put(const std::vector<Value*>& variables, const Extreme& e) {
  b_.CreateStore(e.most, variables[0]), b_.CreateStore(e.bits, variables[1]), b_.CreateStore(e.nan, variables[2]);
}

void Emitter::reset(const Lanes& lanes) {
  for (const std::vector<Value*>& v : lanes.vectors) {
    Value* start = identity(lanes.id, width_);
    if (is_extreme(lanes.id)) put(v, extreme_of_lanes(lanes.id, start));
    else b_.CreateStore(start, v[0]);
  }
}

void Emitter::take(const Lanes& lanes, std::size_t part, Body& body) {
  const std::vector<Value*>& v = lanes.vectors[part % lanes.vectors.size()];
  if (is_extreme(lanes.id)) put(v, join(lanes.id, get(v), extreme_of_lanes(lanes.id, added(lanes.id, body))));
  else b_.CreateStore(accumulated(lanes.id, read(v[0]), body), v[0]);
}

Value* Emitter::total(const Lanes& lanes) {
  if (is_extreme(lanes.id)) {
    Extreme e = get(lanes.vectors[0]);
    for (std::size_t i = 1; i < lanes.vectors.size(); ++i) e = join(lanes.id, e, get(lanes.vectors[i]));
    return halve_extreme(lanes.id, e);
  }
  std::vector<Value*> vectors;
  for (const std::vector<Value*>& v : lanes.vectors) vectors.push_back(read(v[0]));
  return halve(lanes.id, vectors);
}

Value* Emitter::half_of(Value* v, unsigned width, unsigned first) {
  std::vector<int> lanes;
  for (unsigned i = 0; i < width / 2; ++i) lanes.push_back(static_cast<int>(i + first));
  return b_.CreateShuffleVector(v, lanes);
}

Value* Emitter::halve_extreme(std::uint32_t id, const Extreme& e) {
  Value *most = e.most, *bits = e.bits;
  for (unsigned w = width_of(most); w > 1; w /= 2) most = further(id, half_of(most, w, 0), half_of(most, w, w / 2));
  for (unsigned w = width_of(bits); w > 1; w /= 2) bits = joined_bits(id, half_of(bits, w, 0), half_of(bits, w, w / 2));
  const auto lane = [&](Value* v) { return b_.CreateExtractElement(v, std::uint64_t{0}); };
  return settled({lane(most), lane(bits), b_.CreateOrReduce(b_.CreateIsNotNull(e.nan))});
}

Value* Emitter::halve(std::uint32_t id, std::vector<Value*> vectors) {
  if (is_extreme(id)) {
    Extreme e = extreme(vectors[0]);
    for (std::size_t i = 1; i < vectors.size(); ++i) e = join(id, e, extreme(vectors[i]));
    return halve_extreme(id, e);
  }
  while (vectors.size() > 1) {
    const std::size_t half = vectors.size() / 2;
    for (std::size_t i = 0; i < half; ++i) vectors[i] = combine(id, vectors[i], vectors[i + half]);
    vectors.resize(half);
  }
  Value* v = vectors[0];
  for (unsigned w = width_; w > 1; w /= 2) v = combine(id, half_of(v, w, 0), half_of(v, w, w / 2));
  return b_.CreateExtractElement(v, std::uint64_t{0});
}

Emitter::Tree Emitter::start_tree(const std::vector<std::uint32_t>& reductions, unsigned width) {
  Tree t;
  t.width = width;
  t.count = variable(b_.getInt64Ty(), i64(0));
  for (std::uint32_t r : reductions)
    t.stacks.push_back(in(entry_, [&] { return b_.CreateAlloca(memory_type(nest_.body[r].dtype, width), i64(kTreeLevels)); }));
  return t;
}

Value* Emitter::level(const Tree& tree, std::size_t reduction, Value* l, DType t) {
  return bytes(tree.stacks[reduction], b_.CreateMul(l, i64(static_cast<std::int64_t>(size_of(t)) * std::max<std::int64_t>(tree.width, 1))));
}

// A new leaf carries through the levels that are taken, as one carries through the ones of a binary count: `merge` adds what stands at
// such a level. Gives the first free one.
Value* Emitter::carry(Value* count, const std::function<void(Value* level)>& merge) {
  Value* l = variable(b_.getInt64Ty(), i64(0));
  Value* c = variable(b_.getInt64Ty(), read(count));
  BasicBlock* head = block("tree");
  BasicBlock* inside = block("");
  BasicBlock* after = block("");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  b_.CreateCondBr(b_.CreateTrunc(read(c), b_.getInt1Ty()), inside, after);
  b_.SetInsertPoint(inside);
  merge(read(l));
  b_.CreateStore(b_.CreateLShr(read(c), i64(1)), c);
  b_.CreateStore(b_.CreateAdd(read(l), i64(1)), l);
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
  return read(l);
}

void Emitter::push(Tree& tree, const std::vector<std::uint32_t>& reductions, const std::vector<Value*>& values) {
  std::vector<Value*> carried;
  for (std::size_t i = 0; i < reductions.size(); ++i) carried.push_back(variable(values[i]->getType(), values[i]));
  Value* free = carry(tree.count, [&](Value* l) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const DType t = nest_.body[reductions[i]].dtype;
      Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
      b_.CreateStore(combine(reductions[i], below, read(carried[i])), carried[i]);
    }
  });
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const DType t = nest_.body[reductions[i]].dtype;
    b_.CreateAlignedStore(to_memory(t, read(carried[i])), level(tree, i, free, t), llvm::Align(1));
  }
  b_.CreateStore(b_.CreateAdd(read(tree.count), i64(1)), tree.count);
}

std::vector<Value*> Emitter::top(Tree& tree, const std::vector<std::uint32_t>& reductions) {
  std::vector<Value*> sums;
  for (std::uint32_t r : reductions) sums.push_back(variable(k_.type(nest_.body[r].dtype, tree.width), identity(r, tree.width)));
  Value* first = variable(b_.getInt1Ty(), b_.getTrue());
  loop("fold", i64(0), i64(kTreeLevels), i64(1), [&](Value* l) {
    Value* here = b_.CreateTrunc(b_.CreateLShr(read(tree.count), l), b_.getInt1Ty());
    when(here, [&] {
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        const DType t = nest_.body[reductions[i]].dtype;
        Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
        b_.CreateStore(b_.CreateSelect(read(first), below, combine(reductions[i], below, read(sums[i]))), sums[i]);
      }
      b_.CreateStore(b_.getFalse(), first);
    });
  });
  std::vector<Value*> out;
  for (Value* s : sums) out.push_back(read(s));
  return out;
}

}  // namespace onepass::compiler
