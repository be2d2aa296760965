// See builder.h. The code matches ir/meaning.h bit for bit.
#include "compiler/llvm/builder.h"

#include <cmath>
#include <functional>

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "compiler/expansion_order.h"
#include "compiler/rare.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;
using llvm::Value;

namespace {

// Returns the constant C of all lanes of c, or null if it is unknown.
template <class C> const C* constant_of(Value* c) {
  const auto* known = llvm::dyn_cast<llvm::Constant>(c);
  return known ? llvm::dyn_cast_or_null<C>(known->getSplatValue()) : nullptr;
}

// Returns the constant value of all lanes of c, or null if it is unknown or a NaN.
const llvm::ConstantFP* number_of(Value* c) {
  const auto* one = constant_of<llvm::ConstantFP>(c);
  return one && !one->isNaN() ? one : nullptr;
}

}  // namespace

llvm::Type* KernelBuilder::type(DType dtype, unsigned width) {
  llvm::Type* t = nullptr;
  switch (dtype) {
    case DType::Bool: t = b.getInt1Ty(); break;
    case DType::I8:
    case DType::U8: t = b.getInt8Ty(); break;
    case DType::I16:
    case DType::U16: t = b.getInt16Ty(); break;
    case DType::I32:
    case DType::U32: t = b.getInt32Ty(); break;
    case DType::I64:
    case DType::U64: t = b.getInt64Ty(); break;
    case DType::F16:
    case DType::BF16:
    case DType::F32: t = b.getFloatTy(); break;  // a program holds halves as f32
    case DType::F64: t = b.getDoubleTy(); break;
  }
  return width ? llvm::FixedVectorType::get(t, width) : t;
}

unsigned KernelBuilder::width_of(Value* v) const {
  if (auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType())) return t->getNumElements();
  return 0;
}

// Rows of one, two or four parts of 128 bits have instructions that compile and run fast: elements are interleaved inside the parts, then
// the parts are exchanged.
void KernelBuilder::transpose(std::vector<Value*>& rows) {
  constexpr unsigned part_bits = 128;  // instructions interleave elements within parts of a register
  const auto side = static_cast<unsigned>(rows.size()), lanes = width_of(rows[0]);
  const unsigned each = part_bits / rows[0]->getType()->getScalarSizeInBits(), parts = side / each;  // elements of a part; parts of a row
  const auto shuffled = [&](Value* x, Value* y, auto&& place) {
    std::vector<int> from;
    for (unsigned c = 0; c < lanes; ++c) from.push_back(static_cast<int>(place(c)));
    return b.CreateShuffleVector(x, y, from);
  };
  std::vector<Value*> next(side);
  if (side % each != 0 || (parts != 1 && parts != 2 && parts != 4)) {  // exchanges blocks of d by d
    for (unsigned d = side / 2; d >= 1; d /= 2) {
      for (unsigned r = 0; r < side; ++r) {
        if (r & d) continue;
        next[r] = shuffled(rows[r], rows[r + d], [&](unsigned c) { return c & d ? lanes + (c - d) : c; });
        next[r + d] = shuffled(rows[r], rows[r + d], [&](unsigned c) { return c & d ? lanes + c : c + d; });
      }
      rows = next;
    }
    return;
  }
  for (unsigned d = 1; d < each; d *= 2) {  // groups of d adjacent elements
    for (unsigned r = 0; r < side; ++r) {
      if (r & d) continue;
      for (unsigned high = 0; high < 2; ++high)
        next[r + high * d] = shuffled(rows[r], rows[r + d], [&](unsigned c) {
          const unsigned within = c % each;
          return c - within + within / (2 * d) * d + within % d + (high ? each / 2 : 0) + (within & d ? lanes : 0);
        });
    }
    rows = next;
  }
  // Row r has elements of `each` rows in every part. Which column they are follows from the interleaving.
  for (unsigned j = 0; j < each; ++j) {
    const auto pair = [&](Value* x, Value* y, unsigned first) {  // every second part of both, from `first` on
      return shuffled(x, y, [&](unsigned c) {
        const unsigned part = c / each;
        return (first + part % (parts / 2) * 2) * each + c % each + (part / (parts / 2) ? lanes : 0);
      });
    };
    unsigned column = 0;  // of the interleaved elements
    for (unsigned d = 1; d < each; d *= 2)
      if (j & d) column += each / 2 / d;
    const auto row = [&](unsigned group) { return rows[group * each + j]; };
    if (parts == 1) next[column] = row(0);
    for (unsigned odd = 0; odd < 2 && parts > 1; ++odd) {
      Value* const low = pair(row(0), row(1), odd);
      if (parts == 2) {
        next[odd * each + column] = low;
        continue;
      }
      Value* const up = pair(row(2), row(3), odd);
      next[odd * each + column] = pair(low, up, 0);
      next[(odd + 2) * each + column] = pair(low, up, 1);
    }
  }
  rows = next;
}

llvm::Type* KernelBuilder::memory_type(DType dtype, unsigned width) {
  if (dtype == DType::Bool) return width ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b.getInt8Ty(), width)) : b.getInt8Ty();
  return type(is_half(dtype) ? DType::U16 : dtype, width);
}

llvm::Value* KernelBuilder::from_memory(DType dtype, llvm::Value* v) {
  if (is_half(dtype)) return of_half_bits(v, dtype);
  return dtype == DType::Bool ? b.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}

llvm::Value* KernelBuilder::to_memory(DType dtype, llvm::Value* v) {
  if (is_half(dtype)) return half_bits(v, dtype);
  return dtype == DType::Bool ? b.CreateZExt(v, memory_type(dtype, width_of(v))) : v;
}

Value* KernelBuilder::constant(DType dtype, std::uint64_t bits, unsigned width) {
  llvm::Constant* c = nullptr;
  if (dtype == DType::F64) c = llvm::ConstantFP::get(b.getDoubleTy(), llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  else if (is_float(dtype)) c = llvm::ConstantFP::get(b.getFloatTy(), llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits)));
  else c = llvm::ConstantInt::get(b.getContext(), llvm::APInt(dtype == DType::Bool ? 1 : static_cast<unsigned>(8 * size_of(dtype)), bits));
  return width ? llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(width), c) : c;
}

Value* KernelBuilder::number(Typed like, double value) {
  return constant(like.dtype, ir::bits_of(like.dtype, value), width_of(like.value));
}
Value* KernelBuilder::integer(Typed like, std::uint64_t bits) {
  const std::uint64_t mask = size_of(like.dtype) == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size_of(like.dtype))) - 1;
  return constant(like.dtype, bits & mask, width_of(like.value));
}

Value* KernelBuilder::bits_of(Typed a) {
  const DType as = a.dtype == DType::F64 ? DType::U64 : DType::U32;
  return b.CreateBitCast(a.value, type(as, width_of(a.value)));
}

Value* KernelBuilder::intrinsic(llvm::Intrinsic::ID id, std::initializer_list<Value*> operands) {
  return b.CreateIntrinsic(id, {(*operands.begin())->getType()}, llvm::ArrayRef<Value*>(operands.begin(), operands.size()));
}

Value* KernelBuilder::neg(Typed a) { return is_float(a.dtype) ? b.CreateFNeg(a.value) : b.CreateNeg(a.value); }
Value* KernelBuilder::abs(Typed a) {
  if (is_float(a.dtype)) return intrinsic(llvm::Intrinsic::fabs, {a.value});
  if (!is_signed_integer(a.dtype)) return a.value;
  return b.CreateSelect(b.CreateICmpSLT(a.value, integer(a, 0)), b.CreateNeg(a.value), a.value);
}
Value* KernelBuilder::sign(Typed a) {
  if (is_float(a.dtype)) {
    Value* down = b.CreateSelect(b.CreateFCmpOLT(a.value, number(a, 0)), number(a, -1), a.value);
    return b.CreateSelect(b.CreateFCmpOGT(a.value, number(a, 0)), number(a, 1), down);
  }
  Value* up = b.CreateSelect(b.CreateICmpNE(a.value, integer(a, 0)), integer(a, 1), integer(a, 0));
  if (!is_signed_integer(a.dtype)) return up;
  return b.CreateSelect(b.CreateICmpSLT(a.value, integer(a, 0)), integer(a, ~std::uint64_t{0}), up);
}
Value* KernelBuilder::add(Typed a, Typed c) { return is_float(a.dtype) ? b.CreateFAdd(a.value, c.value) : b.CreateAdd(a.value, c.value); }
Value* KernelBuilder::sub(Typed a, Typed c) { return is_float(a.dtype) ? b.CreateFSub(a.value, c.value) : b.CreateSub(a.value, c.value); }
Value* KernelBuilder::mul(Typed a, Typed c) { return is_float(a.dtype) ? b.CreateFMul(a.value, c.value) : b.CreateMul(a.value, c.value); }
Value* KernelBuilder::div(Typed a, Typed c) { return b.CreateFDiv(a.value, c.value); }
Value* KernelBuilder::reciprocal(Typed a) { return b.CreateFDiv(number(a, 1), a.value); }
Value* KernelBuilder::fma(Typed x, Typed y, Typed z) { return intrinsic(llvm::Intrinsic::fma, {x.value, y.value, z.value}); }
Value* KernelBuilder::sqrt(Typed a) { return intrinsic(llvm::Intrinsic::sqrt, {a.value}); }
Value* KernelBuilder::floor(Typed a) { return intrinsic(llvm::Intrinsic::floor, {a.value}); }
Value* KernelBuilder::ceil(Typed a) { return intrinsic(llvm::Intrinsic::ceil, {a.value}); }
Value* KernelBuilder::trunc(Typed a) { return intrinsic(llvm::Intrinsic::trunc, {a.value}); }
Value* KernelBuilder::round(Typed a) { return intrinsic(llvm::Intrinsic::roundeven, {a.value}); }
Value* KernelBuilder::copysign(Typed a, Typed c) { return intrinsic(llvm::Intrinsic::copysign, {a.value, c.value}); }
Value* KernelBuilder::mul0(Typed a, Typed c) {
  // An fma suffices for a finite number other than zero: a zero operand gives +0, and adding +0 changes no nonzero product.
  if (const llvm::ConstantFP* by = number_of(c.value); by && by->getValueAPF().isFiniteNonZero())
    return intrinsic(llvm::Intrinsic::fma, {a.value, c.value, number(a, 0)});
  return b.CreateSelect(b.CreateFCmpOEQ(a.value, number(a, 0)), number(a, 0), b.CreateFMul(a.value, c.value));
}

Value* KernelBuilder::share(Typed g, Typed x, Typed y) {
  const auto returned = [&](Value* mine, Value* other) { return b.CreateOr(b.CreateFCmpOGE(mine, other), b.CreateFCmpUNO(mine, mine)); };
  Value* const part = b.CreateSelect(returned(y.value, x.value), b.CreateFMul(g.value, number(g, 0.5)), g.value);
  return b.CreateSelect(returned(x.value, y.value), part, number(g, 0));
}

// Returns quotient and remainder of an integer division, rounded down or toward zero. A zero divisor gives zeros; a quotient that the type
// does not have wraps. Processors have no division of integer vectors; their elements are divided as floats.
KernelBuilder::Division KernelBuilder::divided(Typed a, Typed c, bool down) {
  Value* const is_zero = b.CreateICmpEQ(c.value, integer(c, 0));
  const Typed divisor{b.CreateSelect(is_zero, integer(c, 1), c.value), c.dtype};
  const bool wide = size_of(a.dtype) == 8;
  const auto* known = constant_of<llvm::ConstantInt>(c.value);
  const bool multiplies = known && (!wide || known->getValue().isPowerOf2());  // LLVM divides by constants without a division
  const Division d = width_of(a.value) == 0 || multiplies || (wide && !has_.avx512) ? divided_as_integers(a, divisor, down)
                     : wide                                                         ? divided_in_steps(a, divisor, down)
                                                                                    : divided_as_floats(a, divisor, down);
  return {b.CreateSelect(is_zero, integer(a, 0), d.quotient), b.CreateSelect(is_zero, integer(a, 0), d.remainder)};
}

KernelBuilder::Division KernelBuilder::divided_as_integers(Typed a, Typed c, bool down) {
  if (!is_signed_integer(a.dtype)) return {b.CreateUDiv(a.value, c.value), b.CreateURem(a.value, c.value)};
  Value* const wraps = b.CreateICmpEQ(c.value, integer(c, ~std::uint64_t{0}));  // dividing the least integer by -1 would trap
  Value* const divisor = b.CreateSelect(wraps, integer(c, 1), c.value);
  Value* const q = b.CreateSDiv(a.value, divisor);
  Value* const r = b.CreateSub(a.value, b.CreateMul(q, divisor));
  const Division d = down ? rounded_down({q, r}, {divisor, c.dtype}) : Division{q, r};
  return {b.CreateSelect(wraps, b.CreateNeg(a.value), d.quotient), d.remainder};
}

// Rounds a signed quotient down that was rounded toward zero.
KernelBuilder::Division KernelBuilder::rounded_down(Division d, Typed c) {
  Value* const rounds =
      b.CreateAnd(b.CreateICmpNE(d.remainder, integer(c, 0)), b.CreateICmpSLT(b.CreateXor(d.remainder, c.value), integer(c, 0)));
  return {b.CreateSelect(rounds, b.CreateSub(d.quotient, integer(c, 1)), d.quotient),
          b.CreateSelect(rounds, b.CreateAdd(d.remainder, c.value), d.remainder)};
}

// Divides integers of at most 32 bits. Half a unit is added to the dividend: no quotient is then closer to an integer than 1 / (2c), which is
// more than the errors of the reciprocal and the product.
KernelBuilder::Division KernelBuilder::divided_as_floats(Typed a, Typed c, bool down) {
  const bool is_signed = is_signed_integer(a.dtype), wide = size_of(a.dtype) == 4;
  const DType as = wide ? DType::F64 : DType::F32;
  const unsigned width = width_of(a.value);
  const auto converted = [&](Value* v) {
    return Typed{is_signed ? b.CreateSIToFP(v, type(as, width)) : b.CreateUIToFP(v, type(as, width)), as};
  };
  const auto to_integers = [&](Value* v) {
    if (!wide) return b.CreateTrunc(b.CreateFPToSI(v, type(DType::I32, width)), a.value->getType());
    // the low bits of a float of 1.5 * 2^52 and more are an integer, which wraps
    Value* const sum = b.CreateFAdd(v, number({v, as}, 0x1.8p52));
    return b.CreateTrunc(b.CreateBitCast(sum, type(DType::U64, width)), a.value->getType());
  };
  const Typed x = converted(a.value), y = converted(c.value);
  Value* half = number(x, 0.5);
  if (is_signed) half = intrinsic(llvm::Intrinsic::copysign, {half, down ? y.value : x.value});
  Value* const quotient = b.CreateFMul(b.CreateFAdd(x.value, half), b.CreateFDiv(number(x, 1), y.value));
  Value* const q = intrinsic(down ? llvm::Intrinsic::floor : llvm::Intrinsic::trunc, {quotient});
  return {to_integers(q), to_integers(intrinsic(llvm::Intrinsic::fma, {b.CreateFNeg(q), y.value, x.value}))};
}

// Divides integers of 64 bits by two quotients of f64, which are never too great, because the reciprocal is rounded down by more than all
// errors. The first one leaves at most 2^15 divisors and a remainder; after the second one, at most one divisor is left.
KernelBuilder::Division KernelBuilder::divided_in_steps(Typed a, Typed c, bool down) {
  const bool is_signed = is_signed_integer(a.dtype);
  const unsigned width = width_of(a.value);
  const auto magnitude = [&](Typed v) { return is_signed ? abs(v) : v.value; };
  const auto as_float = [&](Value* v) { return b.CreateUIToFP(v, type(DType::F64, width)); };
  Value* const x = magnitude(a);
  Value* const y = magnitude(c);
  const Typed by{as_float(y), DType::F64};
  Value* const reciprocal = b.CreateFMul(b.CreateFDiv(number(by, 1), by.value), number(by, 1 - 0x1p-50));
  const auto part = [&](Value* v) { return b.CreateFPToUI(b.CreateFMul(as_float(v), reciprocal), type(DType::U64, width)); };
  Value* const first = part(x);
  Value* const left = b.CreateSub(x, b.CreateMul(first, y));
  Value* const second = part(left);
  Value* r = b.CreateSub(left, b.CreateMul(second, y));
  Value* q = b.CreateAdd(first, second);
  Value* const more = b.CreateICmpUGE(r, y);
  q = b.CreateSelect(more, b.CreateAdd(q, integer(a, 1)), q);
  r = b.CreateSelect(more, b.CreateSub(r, y), r);
  if (!is_signed) return {q, r};
  const auto negated_if_negative = [&](Value* v, Value* sign) {
    return b.CreateSelect(b.CreateICmpSLT(sign, integer(a, 0)), b.CreateNeg(v), v);
  };
  const Division d{negated_if_negative(q, b.CreateXor(a.value, c.value)), negated_if_negative(r, a.value)};
  return down ? rounded_down(d, c) : d;
}

Value* KernelBuilder::floor_div(Typed a, Typed c) {
  if (!is_float(a.dtype)) return divided(a, c, true).quotient;
  // ir/meaning.h explains why this is the floor of the exact quotient.
  Value* q = b.CreateFDiv(a.value, c.value);
  const Typed f{intrinsic(llvm::Intrinsic::floor, {q}), a.dtype};
  const Typed fb{bits_of(f), a.dtype == DType::F64 ? DType::U64 : DType::U32};
  Value* step = b.CreateSelect(b.CreateFCmpOGT(f.value, number(f, 0)), integer(fb, ~std::uint64_t{0}), integer(fb, 1));
  Value* below = b.CreateBitCast(b.CreateAdd(fb.value, step), f.value->getType());
  Value* half_gap = b.CreateFMul(b.CreateFSub(f.value, below), number(f, 0.5));
  Value* h = b.CreateSelect(b.CreateFCmpOGT(half_gap, number(f, 1)), half_gap, number(f, 1));
  Value* r = intrinsic(llvm::Intrinsic::fma, {b.CreateFNeg(f.value), c.value, a.value});
  Value* s = intrinsic(llvm::Intrinsic::fma, {c.value, b.CreateFSub(h, number(f, 1)), r});
  Value* above = b.CreateSelect(b.CreateFCmpOLT(c.value, number(c, 0)), b.CreateFCmpOGT(s, number(a, 0)), b.CreateFCmpOLT(s, number(a, 0)));
  return b.CreateSelect(b.CreateAnd(b.CreateFCmpOEQ(q, f.value), above), b.CreateFSub(f.value, h), f.value);
}

Value* KernelBuilder::remainder(Typed a, Typed c) {
  return is_float(a.dtype) ? float_remainder(a, c, false) : divided(a, c, true).remainder;
}

Value* KernelBuilder::fmod(Typed a, Typed c) { return is_float(a.dtype) ? float_remainder(a, c, true) : divided(a, c, false).remainder; }

// Computes powers by squaring, until no lane's exponent has bits left.
Value* KernelBuilder::integer_pow(Typed a, Typed c) {
  Value* exponent = c.value;
  Value* negative = nullptr;
  if (is_signed_integer(a.dtype)) {
    negative = b.CreateICmpSLT(c.value, integer(c, 0));
    exponent = b.CreateSelect(negative, integer(c, 0), c.value);
  }
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b.getContext(), "pow", function);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "pow.step", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "pow.end", function);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* y = b.CreatePHI(a.value->getType(), 2);
  llvm::PHINode* x = b.CreatePHI(a.value->getType(), 2);
  llvm::PHINode* n = b.CreatePHI(a.value->getType(), 2);
  y->addIncoming(integer(a, 1), before);
  x->addIncoming(a.value, before);
  n->addIncoming(exponent, before);
  Value* more = b.CreateICmpNE(n, integer(a, 0));
  b.CreateCondBr(width_of(a.value) ? b.CreateOrReduce(more) : more, body, after);
  b.SetInsertPoint(body);
  Value* odd = b.CreateICmpNE(b.CreateAnd(n, integer(a, 1)), integer(a, 0));
  y->addIncoming(b.CreateSelect(odd, b.CreateMul(y, x), y), body);
  x->addIncoming(b.CreateMul(x, x), body);
  n->addIncoming(b.CreateLShr(n, integer(a, 1)), body);
  b.CreateBr(loop);
  b.SetInsertPoint(after);
  if (!negative) return y;
  Value* even = b.CreateICmpEQ(b.CreateAnd(c.value, integer(c, 1)), integer(c, 0));
  Value* one = b.CreateICmpEQ(a.value, integer(a, 1));
  Value* minus_one = b.CreateICmpEQ(a.value, integer(a, ~std::uint64_t{0}));
  Value* unit =
      b.CreateSelect(b.CreateOr(one, b.CreateAnd(minus_one, even)), integer(a, 1), b.CreateSelect(minus_one, a.value, integer(a, 0)));
  return b.CreateSelect(negative, unit, y);
}

// Computes the exact remainder by long division of the significands, one bit per step, until no lane has steps left. Then applies the sign.
Value* KernelBuilder::float_remainder(Typed a, Typed c, bool dividend_sign) {
  const bool wide = a.dtype == DType::F64;
  const DType unsigned_type = wide ? DType::U64 : DType::U32, signed_type = wide ? DType::I64 : DType::I32;
  const unsigned digits = wide ? 52 : 23, width = width_of(a.value);
  const std::int64_t bias = wide ? 1023 : 127;
  llvm::Type* integers = type(unsigned_type, width);
  const Typed like{llvm::Constant::getNullValue(integers), unsigned_type};
  const auto k = [&](std::int64_t v) { return integer(like, static_cast<std::uint64_t>(v)); };
  const std::uint64_t magnitude_mask = wide ? 0x7fffffffffffffffull : 0x7fffffffull,
                      infinity = wide ? 0x7ff0000000000000ull : 0x7f800000ull;
  Value* x = b.CreateAnd(bits_of(a), integer(like, magnitude_mask));
  Value* y = b.CreateAnd(bits_of(c), integer(like, magnitude_mask));
  // Valid: a is finite, and b is neither zero nor NaN. Other lanes give NaN; the loop gets 0 and 1 for them.
  Value* valid = b.CreateAnd(b.CreateICmpULT(x, integer(like, infinity)),
                             b.CreateAnd(b.CreateICmpNE(y, k(0)), b.CreateICmpULE(y, integer(like, infinity))));
  Value* finite = b.CreateICmpULT(y, integer(like, infinity));
  Value* divides = b.CreateAnd(valid, finite);
  x = b.CreateSelect(divides, x, k(0));
  y = b.CreateSelect(divides, y, k(1));
  // Splits a value into significand and exponent. Subnormals are normalized, so that the leading bit is always at `digits`.
  const auto split = [&](Value* v, Value*& significand, Value*& exponent) {
    Value* e = b.CreateLShr(v, k(digits));
    Value* m = b.CreateAnd(v, k((std::int64_t{1} << digits) - 1));
    Value* subnormal = b.CreateICmpEQ(e, k(0));
    m = b.CreateSelect(subnormal, m, b.CreateOr(m, k(std::int64_t{1} << digits)));
    Value* zeros = b.CreateIntrinsic(llvm::Intrinsic::ctlz, {integers}, {m, b.getInt1(false)});
    Value* shift = b.CreateSub(zeros, k(wide ? 11 : 8));
    shift = b.CreateSelect(b.CreateICmpEQ(m, k(0)), k(0), shift);
    significand = b.CreateShl(m, shift);
    exponent = b.CreateSub(b.CreateSelect(subnormal, k(1), e), shift);
  };
  Value *mx, *ex, *my, *ey;
  split(x, mx, ex);
  split(y, my, ey);
  Value* steps = b.CreateSub(ex, ey);  // below 0: already smaller
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b.getContext(), "remainder", function);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "remainder.step", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "remainder.end", function);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* m = b.CreatePHI(integers, 2);
  llvm::PHINode* n = b.CreatePHI(integers, 2);
  m->addIncoming(mx, before);
  n->addIncoming(steps, before);
  Value* more = b.CreateICmpSGT(n, k(0));
  b.CreateCondBr(width ? b.CreateOrReduce(more) : more, body, after);
  b.SetInsertPoint(body);
  Value* less = b.CreateSub(m, my);
  Value* next = b.CreateShl(b.CreateSelect(b.CreateICmpUGE(m, my), less, m), k(1));
  m->addIncoming(b.CreateSelect(more, next, m), body);
  n->addIncoming(b.CreateSelect(more, b.CreateSub(n, k(1)), n), body);
  b.CreateBr(loop);
  b.SetInsertPoint(after);
  Value* smaller = b.CreateICmpSLT(steps, k(0));
  Value* last = b.CreateSelect(b.CreateICmpUGE(m, my), b.CreateSub(m, my), m);
  // significand * 2^(exponent of y), in two exact factors
  Value* value = b.CreateUIToFP(last, a.value->getType());
  Value* power = b.CreateSub(ey, k(bias + digits));
  const Typed power_typed{power, signed_type};
  Value* low = constant(signed_type, static_cast<std::uint64_t>(1 - bias) & (wide ? ~std::uint64_t{0} : 0xffffffffull), width);
  Value* first = b.CreateSelect(b.CreateICmpSLT(power, low), low, power);
  Value* second = b.CreateSub(power_typed.value, first);
  const auto two_to = [&](Value* e) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(e, k(bias)), k(digits)), a.value->getType()); };
  value = b.CreateFMul(b.CreateFMul(value, two_to(first)), two_to(second));
  Value* magnitude =
      b.CreateSelect(b.CreateOr(smaller, b.CreateAnd(valid, b.CreateNot(finite))), intrinsic(llvm::Intrinsic::fabs, {a.value}), value);
  Value* r = intrinsic(llvm::Intrinsic::copysign, {magnitude, a.value});
  if (dividend_sign) return b.CreateSelect(valid, r, number(a, std::numeric_limits<double>::quiet_NaN()));
  Value* is_zero = b.CreateFCmpOEQ(r, number(a, 0));
  Value* negative_r = b.CreateFCmpOLT(r, number(a, 0));
  Value* negative_c = b.CreateFCmpOLT(c.value, number(a, 0));
  Value* moved = b.CreateSelect(b.CreateXor(negative_r, negative_c), b.CreateFAdd(r, c.value), r);
  Value* out = b.CreateSelect(is_zero, intrinsic(llvm::Intrinsic::copysign, {r, c.value}), moved);
  return b.CreateSelect(valid, out, number(a, std::numeric_limits<double>::quiet_NaN()));
}

Value* KernelBuilder::maximum(Typed a, Typed c) {
  if (is_float(a.dtype)) return extreme(a, c, true);
  if (a.dtype == DType::Bool) return b.CreateOr(a.value, c.value);
  return intrinsic(is_signed_integer(a.dtype) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, {a.value, c.value});
}
Value* KernelBuilder::minimum(Typed a, Typed c) {
  if (is_float(a.dtype)) return extreme(a, c, false);
  if (a.dtype == DType::Bool) return b.CreateAnd(a.value, c.value);
  return intrinsic(is_signed_integer(a.dtype) ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, {a.value, c.value});
}

Value* KernelBuilder::equal(Typed a, Typed c) {
  return is_float(a.dtype) ? b.CreateFCmpOEQ(a.value, c.value) : b.CreateICmpEQ(a.value, c.value);
}
Value* KernelBuilder::not_equal(Typed a, Typed c) {
  return is_float(a.dtype) ? b.CreateFCmpUNE(a.value, c.value) : b.CreateICmpNE(a.value, c.value);
}
Value* KernelBuilder::less(Typed a, Typed c) {
  if (is_float(a.dtype)) return b.CreateFCmpOLT(a.value, c.value);
  return is_signed_integer(a.dtype) ? b.CreateICmpSLT(a.value, c.value) : b.CreateICmpULT(a.value, c.value);
}
Value* KernelBuilder::less_equal(Typed a, Typed c) {
  if (is_float(a.dtype)) return b.CreateFCmpOLE(a.value, c.value);
  return is_signed_integer(a.dtype) ? b.CreateICmpSLE(a.value, c.value) : b.CreateICmpULE(a.value, c.value);
}
Value* KernelBuilder::isnan(Typed a) { return b.CreateFCmpUNO(a.value, a.value); }
Value* KernelBuilder::isinf(Typed a) {
  return b.CreateFCmpOEQ(intrinsic(llvm::Intrinsic::fabs, {a.value}), number(a, std::numeric_limits<double>::infinity()));
}
Value* KernelBuilder::isfinite(Typed a) {
  return b.CreateFCmpOLT(intrinsic(llvm::Intrinsic::fabs, {a.value}), number(a, std::numeric_limits<double>::infinity()));
}
Value* KernelBuilder::signbit(Typed a) {
  const Typed bits{bits_of(a), a.dtype == DType::F64 ? DType::I64 : DType::I32};
  return b.CreateICmpSLT(bits.value, integer(bits, 0));
}

Value* KernelBuilder::shift_left(Typed a, Typed c) {
  Value* inside = b.CreateICmpULT(c.value, integer(c, 8 * size_of(a.dtype)));
  return b.CreateSelect(inside, b.CreateShl(a.value, b.CreateSelect(inside, c.value, integer(c, 0))), integer(a, 0));
}
Value* KernelBuilder::shift_right(Typed a, Typed c) {
  const auto width = static_cast<std::uint64_t>(8 * size_of(a.dtype));
  Value* inside = b.CreateICmpULT(c.value, integer(c, width));
  if (is_signed_integer(a.dtype)) return b.CreateAShr(a.value, b.CreateSelect(inside, c.value, integer(c, width - 1)));
  return b.CreateSelect(inside, b.CreateLShr(a.value, b.CreateSelect(inside, c.value, integer(c, 0))), integer(a, 0));
}
Value* KernelBuilder::popcount(Typed a) { return intrinsic(llvm::Intrinsic::ctpop, {a.value}); }

// ---- decomposition and composition of floats

// True if the value fills registers for which AVX-512 has instructions.
bool KernelBuilder::has_registers(Typed a) const {
  return has_.avx512 && width_of(a.value) * size_of(a.dtype == DType::F64 ? DType::F64 : DType::F32) >= 16;
}

// Returns the parts of v that fill a register of AVX-512 each, or v alone if it fills less.
std::vector<Value*> KernelBuilder::registers_of(Value* v, DType dtype) {
  const unsigned width = width_of(v), part = std::min(width, dtype == DType::F64 ? 8U : 16U);
  if (part == width) return {v};
  std::vector<Value*> parts;
  for (unsigned first = 0; first < width; first += part) {
    std::vector<int> lanes;
    for (unsigned i = 0; i < part; ++i) lanes.push_back(static_cast<int>(first + i));
    parts.push_back(b.CreateShuffleVector(v, lanes));
  }
  return parts;
}

// Applies f to each register's part of the operands and concatenates the results.
Value* KernelBuilder::by_registers(Typed a, const OfRegister& f, std::initializer_list<Value*> operands) {
  std::vector<std::vector<Value*>> parts;
  for (Value* v : operands) parts.push_back(registers_of(v, a.dtype));
  std::vector<Value*> results;
  for (std::size_t i = 0; i < parts[0].size(); ++i) {
    std::vector<Value*> of_one;
    for (const std::vector<Value*>& of_operand : parts) of_one.push_back(of_operand[i]);
    const unsigned width = width_of(of_one[0]);
    results.push_back(f(type(a.dtype, width), width * (a.dtype == DType::F64 ? 64 : 32), of_one));
  }
  return joined(std::move(results));
}

Value* KernelBuilder::joined(std::vector<Value*> vectors) {
  while (vectors.size() > 1) {
    std::vector<Value*> pairs;
    for (std::size_t i = 0; i < vectors.size(); i += 2) {
      std::vector<int> lanes;
      for (unsigned k = 0; k < 2 * width_of(vectors[i]); ++k) lanes.push_back(static_cast<int>(k));
      pairs.push_back(b.CreateShuffleVector(vectors[i], vectors[i + 1], lanes));
    }
    vectors = std::move(pairs);
  }
  return vectors[0];
}

bool KernelBuilder::permutes(unsigned bits, unsigned width) const {
  return (has_.avx512 && bits * width == 512) || (has_.avx2 && bits == 32 && width == 8);
}
Value* KernelBuilder::permute(Value* v, Value* lanes) {
  llvm::Type* type = v->getType();
  const unsigned width = width_of(v), bits = type->getScalarSizeInBits();
  if (bits < 32) return b.CreateTrunc(permute(b.CreateZExt(v, llvm::FixedVectorType::get(b.getInt32Ty(), width)), lanes), type);
  const bool real = type->isFPOrFPVectorTy();
  if (bits == 64) lanes = b.CreateZExt(lanes, llvm::FixedVectorType::get(b.getInt64Ty(), width));
  using namespace llvm::Intrinsic;
  const ID id = width == 8 && bits == 32 ? (real ? x86_avx2_permps : x86_avx2_permd)
                : bits == 64             ? (real ? x86_avx512_permvar_df_512 : x86_avx512_permvar_di_512)
                                         : (real ? x86_avx512_permvar_sf_512 : x86_avx512_permvar_si_512);
  return b.CreateIntrinsic(id, {}, {v, lanes});
}

namespace {

// Masked intrinsics by register size, used with full masks. The 512-bit intrinsics also take a rounding mode, always the
// current mode.
struct Sizes {
  llvm::Intrinsic::ID narrow[3], wide[3];  // f32 and f64: 128, 256, 512 bits
};
#define ONEPASS_SIZES(name)                                                                     \
  Sizes {                                                                                       \
    {llvm::Intrinsic::x86_avx512_##name##_ps_128, llvm::Intrinsic::x86_avx512_##name##_ps_256,  \
     llvm::Intrinsic::x86_avx512_##name##_ps_512},                                              \
    {                                                                                           \
      llvm::Intrinsic::x86_avx512_##name##_pd_128, llvm::Intrinsic::x86_avx512_##name##_pd_256, \
          llvm::Intrinsic::x86_avx512_##name##_pd_512                                           \
    }                                                                                           \
  }
constexpr Sizes kScalef = ONEPASS_SIZES(mask_scalef), kGetexp = ONEPASS_SIZES(mask_getexp), kGetmant = ONEPASS_SIZES(mask_getmant),
                kFixup = ONEPASS_SIZES(mask_fixupimm), kRange = ONEPASS_SIZES(mask_range);
#undef ONEPASS_SIZES
constexpr Sizes kToInteger = {{llvm::Intrinsic::x86_avx512_mask_cvtps2dq_128, llvm::Intrinsic::x86_avx512_mask_cvtps2dq_256,
                               llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512},
                              {llvm::Intrinsic::x86_avx512_mask_cvtpd2qq_128, llvm::Intrinsic::x86_avx512_mask_cvtpd2qq_256,
                               llvm::Intrinsic::x86_avx512_mask_cvtpd2qq_512}};

// `mask` selects the computed lanes; null: all. Other lanes get the last operand.
Value* masked_intrinsic(llvm::IRBuilder<>& b, const Sizes& sizes, llvm::Type* type, unsigned bits, std::vector<Value*> operands,
                        Value* mask = nullptr) {
  const unsigned width = llvm::cast<llvm::FixedVectorType>(type)->getNumElements(), size = bits == 512 ? 2 : bits == 256 ? 1 : 0;
  if (!mask) {
    operands.push_back(llvm::Constant::getAllOnesValue(b.getIntNTy(std::max(8u, width))));
  } else {
    std::vector<int> lanes(std::max(8u, width), static_cast<int>(width));  // below 8 lanes: the existing lanes, then false
    for (unsigned k = 0; k < width; ++k) lanes[k] = static_cast<int>(k);
    if (width < 8) mask = b.CreateShuffleVector(mask, llvm::Constant::getNullValue(mask->getType()), lanes);
    operands.push_back(b.CreateBitCast(mask, b.getIntNTy(static_cast<unsigned>(lanes.size()))));
  }
  if (size == 2) operands.push_back(b.getInt32(4));
  return b.CreateIntrinsic((type->getScalarSizeInBits() == 64 ? sizes.wide : sizes.narrow)[size], {}, operands);
}

}  // namespace

// Tables of vfixupimm: one digit per kind of operand, starting with NaN. 0 keeps the result, 3 gives the quiet NaN.
constexpr std::uint64_t kNaNOfNaN = 0x33, kNaNOfAll = 0x33333333;

// Returns `result`, or NaN where the table selects it for the class of a.
Value* KernelBuilder::not_a_number_or(Value* result, Typed a, Value* table) {
  const auto fix = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {
    return masked_intrinsic(b, kFixup, type, bits, {v[0], v[1], v[2], b.getInt32(0)});
  };
  return by_registers(a, fix, {result, a.value, table});
}

// Returns the table for an operand paired with c. NaN gives NaN; if c is NaN, every class gives NaN. Returns null unless c is the same in
// all lanes and is defined outside the current block; the table is then defined there too.
Value* KernelBuilder::table_outside(Typed c) {
  auto* const splat = llvm::dyn_cast<llvm::ShuffleVectorInst>(c.value);
  if (!splat || splat->getParent() == b.GetInsertBlock()) return nullptr;
  Value* const one = const_cast<Value*>(llvm::getSplatValue(splat));
  if (!one) return nullptr;
  Value*& made = tables_[splat];
  if (made) return made;
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  b.SetInsertPoint(splat->getParent(), std::next(splat->getIterator()));
  const DType as = c.dtype == DType::F64 ? DType::U64 : DType::U32;
  Value* const table = b.CreateSelect(b.CreateFCmpUNO(one, one), constant(as, kNaNOfAll, 0), constant(as, kNaNOfNaN, 0));
  return made = b.CreateVectorSplat(width_of(splat), table);
}

// Returns IEEE 754's maximum or minimum. x86 has no instruction for them, and LLVM uses six instructions. vrange is a single instruction
// that orders zeros but does not handle NaN; one vfixupimm per operand inserts NaN.
Value* KernelBuilder::extreme(Typed a, Typed c, bool greatest) {
  if (!has_registers(a)) return intrinsic(greatest ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, {a.value, c.value});
  if (number_of(a.value)) std::swap(a, c);
  const llvm::ConstantFP* const known = number_of(c.value);
  if (known && !known->isZero()) {
    Value* const beyond = greatest ? b.CreateFCmpOLT(a.value, c.value) : b.CreateFCmpOGT(a.value, c.value);
    return b.CreateSelect(beyond, c.value, a.value);  // one instruction; passes NaN through
  }
  const auto range = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {  // control value: the extreme, with its own sign
    return masked_intrinsic(b, kRange, type, bits, {v[0], v[1], b.getInt32(greatest ? 5 : 4), llvm::Constant::getNullValue(type)});
  };
  Value* const result = by_registers(a, range, {a.value, c.value});
  Value* const plain = constant(a.dtype == DType::F64 ? DType::U64 : DType::U32, kNaNOfNaN, width_of(a.value));
  if (known) return not_a_number_or(result, a, plain);
  if (Value* const table = table_outside(c)) return not_a_number_or(result, a, table);
  if (Value* const table = table_outside(a)) return not_a_number_or(result, c, table);
  return not_a_number_or(not_a_number_or(result, a, plain), c, plain);
}

// Converts to i32, toward zero. Gives 0 where `mask` is false and -2^31 for values out of range.
Value* KernelBuilder::converted(Value* x, Value* mask) {
  const auto convert = [&](llvm::Type* type, unsigned, std::span<Value* const> v) -> Value* {
    const unsigned width = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
    Value* const zeros = llvm::Constant::getNullValue(this->type(DType::I32, width));
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512, {},
                             {v[0], zeros, b.CreateBitCast(v[1], b.getInt16Ty()), b.getInt32(4)});
  };
  return by_registers({x, DType::F32}, convert, {x, mask});
}

// Returns n as an integer in the low bits. Expansions compute n = (x + 1.5 2^mantissa) - 1.5 2^mantissa; the inner sum already has this
// integer in its low bits.
Value* KernelBuilder::integer_in_low_bits(Typed n) {
  const double magic = n.dtype == DType::F64 ? 0x1.8p52 : 0x1.8p23;
  Value* sum = nullptr;
  if (auto* minus = llvm::dyn_cast<llvm::BinaryOperator>(n.value);
      minus && minus->getOpcode() == llvm::Instruction::FSub && minus->getOperand(1) == number(n, magic))
    sum = minus->getOperand(0);
  return bits_of({sum ? sum : b.CreateFAdd(n.value, number(n, magic)), n.dtype});
}

// Returns 2^n; only the low bits of n count.
Value* KernelBuilder::power_of_two(Value* n, DType dtype) {
  const bool wide = dtype == DType::F64;
  const Typed field{n, wide ? DType::U64 : DType::U32};
  Value* exponent = b.CreateShl(n, integer(field, wide ? 52 : 23));
  return b.CreateBitCast(b.CreateAdd(exponent, integer(field, wide ? 0x3ff0000000000000 : 0x3f800000)), type(dtype, width_of(n)));
}

// Returns what `rare` emits if any lane of `condition` is true, otherwise what `usual` emits; each has a block of its own.
std::vector<Value*> KernelBuilder::either(Value* condition, const Values& rare, const Values& usual) {
  llvm::Function* const function = b.GetInsertBlock()->getParent();
  const auto block = [&](const char* name) { return llvm::BasicBlock::Create(b.getContext(), name, function); };
  llvm::BasicBlock *const in_rare = block("rare"), *const in_usual = block("usual"), *const after = block("rare.end");
  b.CreateCondBr(width_of(condition) ? b.CreateOrReduce(condition) : condition, in_rare, in_usual,
                 llvm::MDBuilder(b.getContext()).createBranchWeights(1, 1000));
  std::vector<llvm::PHINode*> results;
  for (const auto& [begin, values] : {std::pair(in_usual, &usual), std::pair(in_rare, &rare)}) {
    b.SetInsertPoint(begin);
    const std::vector<Value*> of_block = (*values)();
    llvm::BasicBlock* const end = b.GetInsertBlock();
    b.CreateBr(after);
    b.SetInsertPoint(after);
    for (std::size_t i = 0; i < of_block.size(); ++i) {
      if (begin == in_usual) results.push_back(b.CreatePHI(of_block[i]->getType(), 2));
      results[i]->addIncoming(of_block[i], end);
    }
  }
  return {results.begin(), results.end()};
}

// For 0 <= a <= 2. An operation that underflows takes up to 100 times as long as others on some processors. None does here: the bits of a
// denormal result are an integer, a * 2^(n + 149) (f64: 1074) rounded. They are computed if any lane has one.
Value* KernelBuilder::ldexp(Typed a, Typed n) {
  const bool wide = a.dtype == DType::F64;
  const double least = wide ? -1022 : -126, units = wide ? 1074 : 149;
  if (has_registers(a)) {
    const std::vector<Value*> as = registers_of(a.value, a.dtype), ns = registers_of(n.value, n.dtype);
    const unsigned width = width_of(as[0]), bits = width * (wide ? 64 : 32);
    const auto each = [&](const auto& of_register) {
      std::vector<Value*> results;
      for (std::size_t i = 0; i < as.size(); ++i) results.push_back(of_register(as[i], ns[i]));
      return results;
    };
    llvm::Type* const vector = as[0]->getType();
    llvm::Type* const integers = llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(vector));
    const auto scaled = [&](Value* x, Value* power, Value* otherwise, Value* mask) {
      return masked_intrinsic(b, kScalef, vector, bits, {x, power, otherwise}, mask);
    };
    const auto fast = [&](Value* x, Value* power) { return scaled(x, power, llvm::Constant::getNullValue(vector), nullptr); };
    const auto slow = [&](Value* x, Value* power) {
      Value* const in_units = fast(x, b.CreateFAdd(power, number({power, n.dtype}, units)));
      Value* const digits = masked_intrinsic(b, kToInteger, vector, bits, {in_units, llvm::Constant::getNullValue(integers)});
      return scaled(x, power, b.CreateBitCast(digits, vector), b.CreateFCmpUGT(power, number({power, n.dtype}, least)));
    };
    Value* lowest = ns[0];  // a NaN may hide another lane, whose result is right but may underflow
    for (std::size_t i = 1; i < ns.size(); ++i) lowest = b.CreateSelect(b.CreateFCmpOLT(lowest, ns[i]), lowest, ns[i]);
    return joined(either(
        b.CreateFCmpOLE(lowest, number({lowest, n.dtype}, least)), [&] { return each(slow); }, [&] { return each(fast); }));
  }
  Value* const whole = integer_in_low_bits(n);
  const auto times_power = [&](Value* x, Value* power) { return b.CreateFMul(x, power_of_two(power, a.dtype)); };
  const auto slow = [&]() -> std::vector<Value*> {
    // Other results have two factors for 2^n, so that only the second product can leave the range. The first product of a denormal result
    // is in units of the smallest number; a sum with 2^52 (f32: 2^23) rounds it to an integer in its low bits, 0 from n = -1076 (-151) down.
    Value* const denormal = b.CreateFCmpOLT(n.value, number(n, least));
    Value* const up = b.CreateFAdd(n.value, number(n, units));
    const Typed clamped{b.CreateSelect(b.CreateFCmpOLT(up, number(n, -2)), number(n, -2), up), n.dtype};
    Value* const half = b.CreateLShr(whole, integer({whole, wide ? DType::U64 : DType::U32}, 1));
    Value* const first = times_power(a.value, b.CreateSelect(denormal, integer_in_low_bits(clamped), half));
    Value* const one = number(a, wide ? 0x1p52 : 0x1p23);
    Value* const digits = b.CreateSub(bits_of({b.CreateFAdd(first, one), a.dtype}), bits_of({one, a.dtype}));
    return {b.CreateSelect(denormal, b.CreateBitCast(digits, a.value->getType()), times_power(first, b.CreateSub(whole, half)))};
  };
  Value* beyond = b.CreateFCmpUGT(intrinsic(llvm::Intrinsic::fabs, {n.value}), number(n, -least));  // 2^n is not an ordinary number
  for (unsigned width = width_of(beyond); width * size_of(a.dtype) > static_cast<unsigned>(has_.vector_bytes); width /= 2) {
    std::vector<int> lanes(width);
    for (unsigned i = 0; i < width; ++i) lanes[i] = static_cast<int>(i);
    const llvm::ArrayRef all(lanes);
    beyond = b.CreateOr(b.CreateShuffleVector(beyond, all.take_front(width / 2)), b.CreateShuffleVector(beyond, all.drop_front(width / 2)));
  }
  return either(beyond, slow, [&] { return std::vector{times_power(a.value, whole)}; })[0];
}

Value* KernelBuilder::ldexp_normal(Typed a, Typed n) {
  if (has_registers(a)) {
    const auto scale = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {
      return masked_intrinsic(b, kScalef, type, bits, {v[0], v[1], llvm::Constant::getNullValue(type)});
    };
    return by_registers(a, scale, {a.value, n.value});
  }
  Value* whole = integer_in_low_bits(n);
  const Typed field{whole, a.dtype == DType::F64 ? DType::U64 : DType::U32};
  Value* moved = b.CreateAdd(bits_of(a), b.CreateShl(whole, integer(field, a.dtype == DType::F64 ? 52 : 23)));
  return b.CreateBitCast(moved, a.value->getType());
}

KernelBuilder::Split KernelBuilder::split(Typed a) {
  const bool wide = a.dtype == DType::F64;
  if (has_registers(a)) {
    const auto exponent = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {
      return masked_intrinsic(b, kGetexp, type, bits, {v[0], llvm::Constant::getNullValue(type)});
    };
    const auto fraction = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {  // from 1 to 2
      return masked_intrinsic(b, kGetmant, type, bits, {v[0], b.getInt32(0), llvm::Constant::getNullValue(type)});
    };
    const Typed k{by_registers(a, exponent, {a.value}), a.dtype}, m{by_registers(a, fraction, {a.value}), a.dtype};
    Value* above = b.CreateFCmpOGE(m.value, number(m, wide ? 0x1.6a09e667f3bcdp+0 : 0x1.6a09e6p+0));
    return {b.CreateSelect(above, b.CreateFAdd(k.value, number(k, 1)), k.value),
            b.CreateSelect(above, b.CreateFMul(m.value, number(m, 0.5)), m.value)};
  }
  // Subtracts sqrt(1/2) from the bits, so that the exponent field changes where the fraction wraps. Scales denormal numbers first.
  const std::uint64_t one = wide ? 0x3ff0000000000000 : 0x3f800000, sqrt_half = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  const std::uint64_t mantissa = wide ? 52 : 23;
  const double lift = wide ? 54 : 24, bias = (wide ? 0x1p52 : 0x1p23) + (wide ? 1023 : 127);
  Value* denormal = b.CreateFCmpOLT(a.value, number(a, wide ? 0x1p-1022 : 0x1p-126));
  Value* x = b.CreateSelect(denormal, b.CreateFMul(a.value, number(a, std::ldexp(1.0, static_cast<int>(lift)))), a.value);
  const Typed bits{bits_of({x, a.dtype}), wide ? DType::U64 : DType::U32};
  const auto k = [&](std::uint64_t n) { return integer(bits, n); };
  Value* shifted = b.CreateAdd(bits.value, k(one - sqrt_half));
  Value* fraction = b.CreateAdd(b.CreateAnd(shifted, k((std::uint64_t{1} << mantissa) - 1)), k(sqrt_half));
  // 2^mantissa + the exponent field
  Value* field = b.CreateOr(b.CreateLShr(shifted, k(mantissa)), k(wide ? 0x4330000000000000 : 0x4b000000));
  Value* exponent =
      b.CreateFSub(b.CreateBitCast(field, a.value->getType()), b.CreateSelect(denormal, number(a, bias + lift), number(a, bias)));
  return {exponent, b.CreateBitCast(fraction, a.value->getType())};
}
Value* KernelBuilder::binary_exponent(Typed a) { return split(a).exponent; }
Value* KernelBuilder::binary_fraction(Typed a) { return split(a).fraction; }

Value* KernelBuilder::log_domain(Typed a, Typed c) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (has_registers(a)) {
    // By class of a, from the low digit: NaN, signaling NaN, 0, 1, -inf, +inf, negative, positive. Digits: 0 is c, 2 a as a quiet NaN, 3
    // NaN, 4 -inf, 5 +inf.
    constexpr std::uint64_t table = 0x03530422;
    const auto fix = [&](llvm::Type* type, unsigned bits, std::span<Value* const> v) {
      const unsigned width = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
      return masked_intrinsic(b, kFixup, type, bits,
                              {v[0], v[1], constant(a.dtype == DType::F64 ? DType::U64 : DType::U32, table, width), b.getInt32(0)});
    };
    return by_registers(a, fix, {c.value, a.value});
  }
  Value* finite = b.CreateSelect(b.CreateFCmpOLT(a.value, number(a, infinity)), c.value, a.value);
  Value* other =
      b.CreateSelect(b.CreateFCmpOEQ(a.value, number(a, 0)), number(a, -infinity), number(a, std::numeric_limits<double>::quiet_NaN()));
  return b.CreateSelect(b.CreateFCmpOGT(a.value, number(a, 0)), finite, other);
}

// Converts toward zero with saturation; NaN gives 0. Uses compares and selects, because LLVM scalarizes its saturating conversions.
Value* KernelBuilder::saturate(Typed a, DType to) {
  const unsigned width = width_of(a.value);
  const int digits = static_cast<int>(8 * size_of(to)) - (is_signed_integer(to) ? 1 : 0);
  const double above = std::ldexp(1.0, digits), least = is_signed_integer(to) ? -above : 0.0;
  Value* x = a.value;
  // a value below the i32 range gives -2^31; a value above it is clamped
  if (least != 0 && size_of(to) < 4 && a.dtype == DType::F32 && has_registers(a) && width >= 16) {
    Value* const is_number = b.CreateFCmpORD(x, x);
    x = b.CreateSelect(b.CreateFCmpOLT(x, number(a, above - 1)), x, number(a, above - 1));
    const Typed whole{converted(x, is_number), DType::I32};
    Value* const inside =
        intrinsic(llvm::Intrinsic::smax, {whole.value, integer(whole, static_cast<std::uint64_t>(static_cast<std::int64_t>(least)))});
    Value* const both = intrinsic(llvm::Intrinsic::smin, {inside, integer(whole, static_cast<std::uint64_t>(above - 1))});
    return b.CreateTrunc(both, type(to, width));
  }
  if (least != 0) x = b.CreateSelect(b.CreateFCmpUNO(x, x), number(a, 0), x);
  x = b.CreateSelect(b.CreateFCmpOGT(x, number(a, least)), x, number(a, least));  // one instruction; gives `least` for NaN
  // the bounds are exact floats; clamps them and converts through i32
  if (size_of(to) < 4) {
    x = b.CreateSelect(b.CreateFCmpOLT(x, number(a, above - 1)), x, number(a, above - 1));
    return b.CreateTrunc(b.CreateFPToSI(x, type(DType::I32, width)), type(to, width));
  }
  Value* over = b.CreateFCmpOGE(x, number(a, above));
  x = b.CreateSelect(over, number(a, 0), x);
  llvm::Type* result = type(to, width);
  Value* converted = is_signed_integer(to) ? b.CreateFPToSI(x, result) : b.CreateFPToUI(x, result);
  const std::uint64_t most = digits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << digits) - 1;
  return b.CreateSelect(over, constant(to, most, width), converted);
}

// ---- halves

// Returns the upper 16 bits of 32-bit integers. A shuffle takes fewer instructions than a shift and a truncation.
Value* KernelBuilder::upper_halves(Value* words) {
  const unsigned width = width_of(words);
  if (width == 0) return b.CreateTrunc(b.CreateLShr(words, b.getInt32(16)), b.getInt16Ty());
  std::vector<int> odd;
  for (unsigned i = 0; i < width; ++i) odd.push_back(static_cast<int>(2 * i + 1));
  return b.CreateShuffleVector(b.CreateBitCast(words, llvm::FixedVectorType::get(b.getInt16Ty(), 2 * width)), odd);
}

Value* KernelBuilder::half_bits(Value* value, DType half) {
  const unsigned width = width_of(value);
  const Typed bits{b.CreateBitCast(value, type(DType::U32, width)), DType::U32};
  const auto k = [&](std::uint64_t n) { return integer(bits, n); };
  if (half == DType::BF16 && has_registers({value, DType::F32})) {  // as below, in fewer instructions
    constexpr std::uint64_t table = 0x33;                           // by operand class: 0 keeps it, 3 gives the NaN with trailing zeros
    const auto fix = [&](llvm::Type* type, unsigned size, std::span<Value* const> v) {
      const unsigned lanes = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
      return masked_intrinsic(b, kFixup, type, size, {v[0], v[0], constant(DType::U32, table, lanes), b.getInt32(0)});
    };
    Value* fixed = b.CreateBitCast(by_registers({value, DType::F32}, fix, {value}), type(DType::U32, width));
    Value* odd = b.CreateICmpNE(b.CreateAnd(fixed, k(0x10000)), k(0));
    return upper_halves(b.CreateSelect(odd, b.CreateAdd(fixed, k(0x8000)), b.CreateAdd(fixed, k(0x7fff))));
  }
  if (half == DType::BF16) {  // rounds half to even: adds half of the last place, minus one bit if that place is even
    Value* odd = b.CreateAnd(b.CreateLShr(bits.value, k(16)), k(1));
    Value* rounded = b.CreateAdd(b.CreateAdd(bits.value, k(0x7fff)), odd);
    rounded = b.CreateSelect(b.CreateFCmpUNO(value, value), k(0x7fc00000), rounded);
    return upper_halves(rounded);
  }
  if (has_.f16) {
    llvm::Type* f16 = width ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b.getHalfTy(), width)) : b.getHalfTy();
    return b.CreateBitCast(b.CreateFPTrunc(value, f16), type(DType::U16, width));
  }
  Value* magnitude = b.CreateAnd(bits.value, k(0x7fffffff));
  // Subnormals: adding 0.5, with a last place of 2^-24, rounds them. From 2^-14 on: changes the exponent bias, then rounds as above.
  const Typed absolute{b.CreateBitCast(magnitude, value->getType()), DType::F32};
  Value* subnormal = b.CreateSub(b.CreateBitCast(b.CreateFAdd(absolute.value, number(absolute, 0.5)), magnitude->getType()), k(0x3f000000));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, k(13)), k(1));
  Value* normal = b.CreateLShr(b.CreateAdd(b.CreateAdd(b.CreateSub(magnitude, k(112u << 23)), k(0xfff)), odd), k(13));
  Value* rounded = b.CreateSelect(b.CreateICmpULT(magnitude, k(113u << 23)), subnormal, normal);
  rounded = b.CreateSelect(b.CreateICmpUGE(magnitude, k(143u << 23)), k(0x7c00), rounded);  // 2^16 and infinity
  rounded = b.CreateSelect(b.CreateICmpUGT(magnitude, k(0x7f800000)), k(0x7e00), rounded);
  rounded = b.CreateOr(rounded, b.CreateAnd(b.CreateLShr(bits.value, k(16)), k(0x8000)));
  return b.CreateTrunc(rounded, type(DType::U16, width));
}

Value* KernelBuilder::of_half_bits(Value* value, DType half) {
  const unsigned width = width_of(value);
  llvm::Type* f32 = type(DType::F32, width);
  if (half == DType::F16 && has_.f16) {
    llvm::Type* f16 = width ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b.getHalfTy(), width)) : b.getHalfTy();
    return b.CreateFPExt(b.CreateBitCast(value, f16), f32);
  }
  const Typed bits{b.CreateZExt(value, type(DType::U32, width)), DType::U32};
  const auto k = [&](std::uint64_t n) { return integer(bits, n); };
  if (half == DType::BF16) return b.CreateBitCast(b.CreateShl(bits.value, k(16)), f32);
  // The shifted magnitude bits are 2^-112 times the value, also for subnormals; the product is exact. From 2^16 on: infinity, NaN.
  Value* magnitude = b.CreateShl(b.CreateAnd(bits.value, k(0x7fff)), k(13));
  const Typed small{b.CreateBitCast(magnitude, f32), DType::F32};
  Value* scaled = b.CreateBitCast(b.CreateFMul(small.value, number(small, 0x1p112)), magnitude->getType());
  Value* special = b.CreateICmpUGE(magnitude, k(0x7c00u << 13));
  scaled = b.CreateOr(scaled, b.CreateSelect(special, k(0x7f800000), k(0)));
  return b.CreateBitCast(b.CreateOr(scaled, b.CreateShl(b.CreateAnd(bits.value, k(0x8000)), k(16))), f32);
}

// Converts an integer to a double that rounds to at most 51 digits exactly as the integer does (ir/meaning.h, sticky_double).
Value* KernelBuilder::exact_or_odd_double(Typed a) {
  const unsigned width = width_of(a.value);
  llvm::Type* f64 = type(DType::F64, width);
  if (size_of(a.dtype) < 8) return is_signed_integer(a.dtype) ? b.CreateSIToFP(a.value, f64) : b.CreateUIToFP(a.value, f64);
  const auto k = [&](std::uint64_t n) { return integer(a, n); };
  Value* negative = is_signed_integer(a.dtype) ? b.CreateICmpSLT(a.value, k(0)) : nullptr;
  Value* m = negative ? b.CreateSelect(negative, b.CreateNeg(a.value), a.value) : a.value;
  Value* low = b.CreateAnd(m, k(0x7ff));
  Value* odd = b.CreateOr(b.CreateSub(m, low), b.CreateSelect(b.CreateICmpNE(low, k(0)), k(0x800), k(0)));
  Value* value = b.CreateUIToFP(b.CreateSelect(b.CreateICmpUGE(m, k(std::uint64_t{1} << 53)), odd, m), f64);
  return negative ? b.CreateSelect(negative, b.CreateFNeg(value), value) : value;
}

// Returns the f32 with the value of the nearest half of a value of another type, with a single rounding.
Value* KernelBuilder::to_half(Typed a, DType half) {
  const unsigned width = width_of(a.value);
  if (a.dtype == DType::Bool || (is_integer(a.dtype) && size_of(a.dtype) <= 2)) a = {cast(a, DType::F32), DType::F32};  // exact
  if (a.dtype == DType::F32) return of_half_bits(half_bits(a.value, half), half);
  Typed x = a.dtype == DType::F64 ? a : Typed{exact_or_odd_double(a), DType::F64};
  // Adding and subtracting 1.5 * 2^52 last places of the half rounds to such a place.
  const int digits = half == DType::F16 ? 11 : 8, least = half == DType::F16 ? -14 : -126, above = half == DType::F16 ? 16 : 128;
  const Typed bits{bits_of(x), DType::I64};
  Value* exponent = b.CreateAnd(b.CreateLShr(bits.value, integer(bits, 52)), integer(bits, 0x7ff));
  exponent = intrinsic(llvm::Intrinsic::smax, {exponent, integer(bits, static_cast<std::uint64_t>(1023 + least))});
  exponent = intrinsic(llvm::Intrinsic::smin, {exponent, integer(bits, static_cast<std::uint64_t>(1023 + above))});
  Value* place = b.CreateShl(b.CreateAdd(exponent, integer(bits, static_cast<std::uint64_t>(52 - (digits - 1)))), integer(bits, 52));
  Value* shift = b.CreateBitCast(b.CreateOr(place, integer(bits, std::uint64_t{1} << 51)), x.value->getType());
  Value* y = b.CreateFSub(b.CreateFAdd(x.value, shift), shift);
  Value* over = b.CreateFCmpOGE(intrinsic(llvm::Intrinsic::fabs, {y}), number(x, std::ldexp(1.0, above)));
  y = b.CreateSelect(over, number(x, std::numeric_limits<double>::infinity()), y);
  return b.CreateFPTrunc(intrinsic(llvm::Intrinsic::copysign, {y, x.value}), type(DType::F32, width));
}

Value* KernelBuilder::cast(Typed a, DType to) {
  if (is_half(to)) return to_half(a, to);
  llvm::Type* result = type(to, width_of(a.value));
  if (a.dtype == to) return a.value;
  if (to == DType::Bool) return is_float(a.dtype) ? b.CreateFCmpUNE(a.value, number(a, 0)) : b.CreateICmpNE(a.value, integer(a, 0));
  if (a.dtype == DType::Bool) return is_float(to) ? b.CreateUIToFP(a.value, result) : b.CreateZExt(a.value, result);
  if (is_float(a.dtype) && is_float(to))
    return size_of(to) > size_of(a.dtype) ? b.CreateFPExt(a.value, result) : b.CreateFPTrunc(a.value, result);
  if (is_float(to)) return is_signed_integer(a.dtype) ? b.CreateSIToFP(a.value, result) : b.CreateUIToFP(a.value, result);
  if (is_float(a.dtype)) return saturate(a, to);
  if (size_of(to) <= size_of(a.dtype)) return b.CreateTrunc(a.value, result);
  return is_signed_integer(a.dtype) ? b.CreateSExt(a.value, result) : b.CreateZExt(a.value, result);
}
Value* KernelBuilder::cast_unchecked(Typed a, DType to) {
  if (is_float(a.dtype) && is_integer(to)) {  // freeze: out-of-range results are unspecified, not undefined
    llvm::Type* result = type(to, width_of(a.value));
    return b.CreateFreeze(is_signed_integer(to) ? b.CreateFPToSI(a.value, result) : b.CreateFPToUI(a.value, result));
  }
  return cast(a, to);
}
Value* KernelBuilder::bitcast(Typed a, DType to) {
  const unsigned width = width_of(a.value);
  if (to == DType::Bool) return b.CreateICmpNE(a.value, integer(a, 0));
  if (a.dtype == DType::Bool) return b.CreateZExt(a.value, type(to, width));
  if (is_half(a.dtype)) return half_bits(a.value, a.dtype);
  if (is_half(to)) return of_half_bits(a.value, to);
  return b.CreateBitCast(a.value, type(to, width));
}

Value* KernelBuilder::apply(Op op, DType R, std::span<const Typed> operands) {
  KernelBuilder& k = *this;
  [[maybe_unused]] const Typed a = operands.empty() ? Typed{} : operands[0];
  [[maybe_unused]] const Typed b2 = operands.size() > 1 ? operands[1] : Typed{};
  [[maybe_unused]] const Typed c = operands.size() > 2 ? operands[2] : Typed{};
  // The column names its operands a, b, c. The builder member b would hide one of them, so the column is compiled in a local struct.
  struct Column {
    static Value* value(Value* v) { return v; }
    static Value* value(Typed v) { return v.value; }
    static Value* apply(Op op, [[maybe_unused]] DType R, KernelBuilder& k, [[maybe_unused]] Typed a, [[maybe_unused]] Typed b,
                        [[maybe_unused]] Typed c) {
      switch (op) {
#define PRIMITIVE(id, arity, text, types, traits, meaning, llvm_column, ...) \
  case Op::id: return value(llvm_column);
#include "ir/ops.def"
        default: return nullptr;
      }
    }
  };
  const bool is_long = is_float(R) && ir::info(op).traits & ir::kLong;
  if (out_of_line_ ? is_long || ir::info(op).kind == ir::OpKind::Expanded : calls(op, R)) return call(op, R, operands);
  if (Value* v = Column::apply(op, R, k, a, b2, c)) return v;
  return expand(ir::expansion(op, a.dtype), operands);
}

// Calls the function for this operator, operand type and lane count, which make up its name. The result and all operands have one width.
// Nested expansions are inlined into the function.
Value* KernelBuilder::call(Op op, DType result, std::span<const Typed> operands) {
  llvm::Function* caller = b.GetInsertBlock()->getParent();
  const unsigned width = width_of(operands[0].value);
  const std::string name = std::string(ir::info(op).text) + "." + std::string(name_of(operands[0].dtype)) + "." + std::to_string(width);
  llvm::Module& module = *caller->getParent();
  llvm::Function* function = module.getFunction(name);
  std::vector<Value*> values;
  for (const Typed& operand : operands) values.push_back(operand.value);
  if (!function) {
    std::vector<llvm::Type*> types;
    for (Value* value : values) types.push_back(value->getType());
    function =
        llvm::Function::Create(llvm::FunctionType::get(type(result, width), types, false), llvm::Function::InternalLinkage, name, module);
    function->copyAttributesFrom(caller);
    function->setDoesNotAccessMemory();
    function->setDSOLocal(true);  // as for every internal function; copyAttributesFrom copied the caller's setting
    llvm::IRBuilderBase::InsertPointGuard guard(b);
    b.SetInsertPoint(llvm::BasicBlock::Create(b.getContext(), "entry", function));
    std::vector<Typed> arguments;
    for (std::size_t i = 0; i < operands.size(); ++i) arguments.push_back({function->getArg(static_cast<unsigned>(i)), operands[i].dtype});
    KernelBuilder inside(b, has_, false);
    inside.loads_constants_ = out_of_line_;
    b.CreateRet(inside.apply(op, result, arguments));
  }
  return b.CreateCall(function, values);
}

bool KernelBuilder::branches(Op op, DType dtype) {
  if (ir::info(op).kind != ir::OpKind::Expanded) return ir::info(op).traits & ir::kBranches;
  const ir::Graph& g = ir::expansion(op, dtype);
  for (ir::NodeId id = 0; id < g.size(); ++id)
    if (ir::is_elementwise(g[id].op) && branches(g[id].op, g[id].dtype)) return true;
  return false;
}

// Loads a vector constant from memory in code that must compile fast. As a constant, instruction selection treats it as a node with an
// operand per lane. For each fma with that node, it makes a negated copy in every round to compare costs. `externally initialized` prevents
// LLVM from folding the load.
Value* KernelBuilder::expansion_constant(DType dtype, std::uint64_t bits, unsigned width) {
  Value* const value = constant(dtype, bits, width);
  if (!loads_constants_ || width == 0 || !is_float(dtype)) return value;
  llvm::Module& module = *b.GetInsertBlock()->getModule();
  const std::string name = std::string(name_of(dtype)) + "." + std::to_string(width) + "." + std::to_string(bits);
  llvm::GlobalVariable* global = module.getNamedGlobal(name);
  if (!global) {
    global = new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::PrivateLinkage, llvm::cast<llvm::Constant>(value),
                                      name, nullptr, llvm::GlobalValue::NotThreadLocal, std::nullopt, true);
    global->setAlignment(llvm::Align(size_of(computed_type(dtype)) * width));
  }
  llvm::LoadInst* const load = b.CreateAlignedLoad(value->getType(), global, global->getAlign());
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.getContext(), {}));
  return load;
}

// Scalars and code that must compile fast keep the written order.
const std::vector<ir::NodeId>& KernelBuilder::order_of(const ir::Graph& expansion, Typed operand) {
  const auto bytes = static_cast<int>(width_of(operand.value) * size_of(computed_type(operand.dtype)));
  const RegisterUse use{bytes / has_.vector_bytes, has_.vector_registers};
  const bool ordered = use.at_once > 0 && !loads_constants_;
  std::vector<ir::NodeId>& order = orders_[{&expansion, ordered ? use.at_once : 0}];
  if (order.empty()) {
    if (ordered) order = expansion_order(expansion, use);
    else
      for (ir::NodeId id = 0; id < expansion.size(); ++id) order.push_back(id);
  }
  return order;
}

// Emits an expansion: its primitives in order. Values that only a `Rare` needs are in a block that runs if any lane has the condition.
Value* KernelBuilder::expand(const ir::Graph& g, std::span<const Typed> operands) {
  const BehindRare behind(g);
  const unsigned width = width_of(operands[0].value);
  std::vector<Typed> values(g.size());
  const std::function<void(ir::NodeId)> emit = [&](ir::NodeId id) {
    const ir::Node n = g[id];
    values[id].dtype = n.dtype;
    if (n.op == Op::Input) {
      values[id] = operands[n.bits];
    } else if (n.op == Op::Constant) {
      values[id].value = expansion_constant(n.dtype, n.bits, width);
    } else if (n.op == Op::Rare) {
      if (behind.first.at(g.operand(id, 0)) != id) return;  // emitted with the first Rare of this condition
      Value* condition = values[g.operand(id, 0)].value;
      llvm::Function* function = b.GetInsertBlock()->getParent();
      llvm::BasicBlock* before = b.GetInsertBlock();
      llvm::BasicBlock* slow = llvm::BasicBlock::Create(b.getContext(), "rare", function);
      llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "rare.end", function);
      b.CreateCondBr(width ? b.CreateOrReduce(condition) : condition, slow, after,
                     llvm::MDBuilder(b.getContext()).createBranchWeights(1, 1000));
      b.SetInsertPoint(slow);
      for (ir::NodeId inner = 0; inner < id; ++inner)
        if (behind.rare[inner] == id) emit(inner);
      std::vector<std::pair<ir::NodeId, Value*>> chosen;
      for (const ir::NodeId other : behind.together(g, id))
        chosen.emplace_back(other, b.CreateSelect(condition, values[g.operand(other, 1)].value, values[g.operand(other, 2)].value));
      llvm::BasicBlock* end = b.GetInsertBlock();
      b.CreateBr(after);
      b.SetInsertPoint(after);
      for (const auto& [other, value] : chosen) {
        llvm::PHINode* phi = b.CreatePHI(value->getType(), 2);
        phi->addIncoming(value, end);
        phi->addIncoming(values[g.operand(other, 2)].value, before);
        values[other] = {phi, g[other].dtype};
      }
    } else {
      Typed in[3];
      std::size_t count = 0;
      for (std::int64_t o : g.operands(id)) in[count++] = values[static_cast<std::size_t>(o)];
      values[id].value = apply(n.op, n.dtype, std::span(in, count));
    }
  };
  for (const ir::NodeId id : order_of(g, operands[0]))
    if (behind.rare[id] == ir::kNoNode) emit(id);
  return values[g.outputs[0]].value;
}

}  // namespace onepass::compiler
