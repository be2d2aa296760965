// See reducer.h.
#include "compiler/llvm/reducer.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;
using llvm::Value;

unsigned Reducer::width_of(Value* v) {
  const auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return t ? t->getNumElements() : 0;
}

Value* Reducer::identity(unsigned width) const {
  std::uint64_t bits = 0;
  const bool real = is_float(dtype_), is_signed = is_signed_integer(dtype_);
  const std::uint64_t top = std::uint64_t{1} << (8 * size_of(dtype_) - 1), all = top | (top - 1);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (op_) {
    case Op::Add: bits = real ? ir::bits_of(dtype_, -0.0) : 0; break;
    case Op::Mul: bits = ir::bits_of(dtype_, 1.0); break;
    case Op::Maximum: bits = real ? ir::bits_of(dtype_, -infinity) : is_signed ? top : 0; break;
    default: bits = real ? ir::bits_of(dtype_, infinity) : dtype_ == DType::Bool ? 1 : is_signed ? top - 1 : all; break;
  }
  return k_.constant(dtype_, bits, width);
}

Value* Reducer::combine(Value* a, Value* c) const {
  if (dtype_ == DType::Bool) return op_ == Op::Maximum ? b_.CreateOr(a, c) : b_.CreateAnd(a, c);
  const Typed both[2] = {{a, dtype_}, {c, dtype_}};
  return k_.apply(op_, dtype_, both);
}

Value* Reducer::load(llvm::Type* type, Value* p) const {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return k_.from_memory(dtype_, b_.CreateAlignedLoad(k_.memory_type(dtype_, vector ? vector->getNumElements() : 0), p, llvm::Align(1)));
}

void Reducer::store(Value* v, Value* p) const { b_.CreateAlignedStore(k_.to_memory(dtype_, v), p, llvm::Align(1)); }

Value* Reducer::product_added(Value* sum, Value* x, Value* y) const {
  if (!is_float(dtype_)) return b_.CreateAdd(b_.CreateMul(x, y), sum);
  const Typed all[3] = {{x, dtype_}, {y, dtype_}, {sum, dtype_}};
  return k_.apply(Op::Fma, dtype_, all);
}

Reducer::Carried Reducer::carried(Value* v) const {
  if (!is_extreme()) return {v};
  const Extreme e = extreme_of_lanes(v);
  return {e.most, e.bits, e.nan};
}

Reducer::Carried Reducer::with(const Carried& all, Value* v) const {
  if (!is_extreme()) return {combine(all[0], v)};
  const Extreme e = join({all[0], all[1], all[2]}, extreme_of_lanes(v));
  return {e.most, e.bits, e.nan};
}

Value* Reducer::total(const std::vector<Carried>& vectors) const {
  if (is_extreme()) {
    Extreme e{vectors[0][0], vectors[0][1], vectors[0][2]};
    for (std::size_t i = 1; i < vectors.size(); ++i) e = join(e, {vectors[i][0], vectors[i][1], vectors[i][2]});
    return halved(e);
  }
  std::vector<Value*> v;
  for (const Carried& c : vectors) v.push_back(c[0]);
  while (v.size() > 1) {
    const std::size_t half = v.size() / 2;
    for (std::size_t i = 0; i < half; ++i) v[i] = combine(v[i], v[i + half]);
    v.resize(half);
  }
  if (!width_of(v[0])) return v[0];
  for (unsigned w = width_of(v[0]); w > 1; w /= 2) v[0] = combine(half_of(v[0], w, 0), half_of(v[0], w, w / 2));
  return b_.CreateExtractElement(v[0], std::uint64_t{0});
}

Value* Reducer::total_by_lane(const std::vector<Carried>& vectors) const {
  if (is_extreme()) {
    Extreme e{vectors[0][0], vectors[0][1], vectors[0][2]};
    for (std::size_t i = 1; i < vectors.size(); ++i) e = join(e, {vectors[i][0], vectors[i][1], vectors[i][2]});
    return settled(e);
  }
  Value* all = vectors[0][0];
  for (std::size_t i = 1; i < vectors.size(); ++i) all = combine(all, vectors[i][0]);
  return all;
}

Value* Reducer::total(std::span<Value* const> vectors) const {
  std::vector<Carried> all;
  for (Value* v : vectors) {
    if (!is_extreme()) {
      all.push_back({v});
      continue;
    }
    const Extreme e = extreme(v);
    all.push_back({e.most, e.bits, e.nan});
  }
  return total(all);
}

Value* Reducer::most_of(std::span<Value* const> values) const {
  if (!is_extreme()) throw InternalError("emit: this reduction must run in order");
  std::optional<Extreme> all;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    Value *a = values[i], *c = values[std::min(i + 1, values.size() - 1)];
    // The first value may be a NaN; no other value compares as further.
    const Extreme two{further(a, c), joined_bits(bits_of(a), bits_of(c)), unordered(a, c)};
    all = all ? join(*all, two) : two;
  }
  return settled(*all);
}

Value* Reducer::half_of(Value* v, unsigned width, unsigned first) const {
  std::vector<int> lanes;
  for (unsigned i = 0; i < width / 2; ++i) lanes.push_back(static_cast<int>(i + first));
  return b_.CreateShuffleVector(v, lanes);
}

Value* Reducer::bits_of(Value* v) const {
  return b_.CreateBitCast(v, v->getType()->getWithNewType(b_.getIntNTy(v->getType()->getScalarSizeInBits())));
}

Value* Reducer::joined_bits(Value* a, Value* c) const { return op_ == Op::Maximum ? b_.CreateAnd(a, c) : b_.CreateOr(a, c); }

Value* Reducer::unordered(Value* a, Value* c) const {
  Value* is = b_.CreateFCmpUNO(a, c);
  const bool masks = bytes_ == 64 || !a->getType()->isVectorTy();
  return masks ? is : b_.CreateSExt(is, bits_of(a)->getType());
}

Value* Reducer::further(Value* a, Value* c) const {
  return b_.CreateSelect(op_ == Op::Maximum ? b_.CreateFCmpOGT(c, a) : b_.CreateFCmpOLT(c, a), c, a);
}

Reducer::Extreme Reducer::extreme_of_lanes(Value* v) const {
  const unsigned width = width_of(v), lanes = static_cast<unsigned>(bytes_ / static_cast<int>(size_of(dtype_)));
  Extreme e{v, bits_of(v), nullptr};
  if (width <= lanes || by_lane_) return extreme(v);
  e.nan = unordered(half_of(v, width, 0), half_of(v, width, width / 2));
  for (unsigned w = width; w > lanes; w /= 2) {
    e.bits = joined_bits(half_of(e.bits, w, 0), half_of(e.bits, w, w / 2));
    if (w < width) e.nan = b_.CreateOr(half_of(e.nan, w, 0), half_of(e.nan, w, w / 2));
  }
  return e;
}

Reducer::Extreme Reducer::join(const Extreme& a, const Extreme& c) const {
  return {further(a.most, c.most), joined_bits(a.bits, c.bits), b_.CreateOr(a.nan, c.nan)};
}

Value* Reducer::settled(const Extreme& e) const {
  llvm::Type* type = e.most->getType();
  Value* sign = llvm::ConstantInt::get(e.bits->getType(), llvm::APInt::getSignMask(type->getScalarSizeInBits()));
  Value* zero = b_.CreateBitCast(b_.CreateAnd(e.bits, sign), type);
  Value* v = b_.CreateSelect(b_.CreateFCmpOEQ(e.most, llvm::Constant::getNullValue(type)), zero, e.most);
  return b_.CreateSelect(b_.CreateIsNotNull(e.nan), llvm::ConstantFP::getNaN(type), v);
}

Value* Reducer::halved(const Extreme& e) const {
  Value *most = e.most, *bits = e.bits;
  if (!width_of(most)) return settled(e);
  for (unsigned w = width_of(most); w > 1; w /= 2) most = further(half_of(most, w, 0), half_of(most, w, w / 2));
  for (unsigned w = width_of(bits); w > 1; w /= 2) bits = joined_bits(half_of(bits, w, 0), half_of(bits, w, w / 2));
  const auto lane = [&](Value* v) { return b_.CreateExtractElement(v, std::uint64_t{0}); };
  return settled({lane(most), lane(bits), b_.CreateOrReduce(b_.CreateIsNotNull(e.nan))});
}

}  // namespace onepass::compiler
