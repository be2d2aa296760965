// Scans along the vector loop, over shared chunks and across rows.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

// Maps floats to integers in the same order for maxima and minima. Integers need one instruction, floats need three to six instructions.
// Below 0, all bits except the sign are inverted; all NaNs become the last value of that order.
Value* Emitter::scan_key(std::uint32_t id, Value* v) {
  const Statement& s = nest_.body[id];
  if (!is_float(s.dtype) || (s.op != Op::ScanMax && s.op != Op::ScanMin)) return v;
  Value* key = scan_value(id, reducer(id).bits_of(v));
  const unsigned size = key->getType()->getScalarSizeInBits();
  const llvm::APInt last = s.op == Op::ScanMax ? llvm::APInt::getSignedMaxValue(size) : llvm::APInt::getSignedMinValue(size);
  key = b_.CreateBitCast(key, reducer(id).bits_of(v)->getType());
  return b_.CreateSelect(b_.CreateFCmpUNO(v, v), llvm::ConstantInt::get(key->getType(), last), key);
}

Value* Emitter::scan_value(std::uint32_t id, Value* key) {
  if (!key->getType()->isIntOrIntVectorTy() || !is_float(nest_.body[id].dtype)) return key;
  llvm::Type* type = key->getType();
  const unsigned size = type->getScalarSizeInBits();
  Value* below = b_.CreateAShr(key, llvm::ConstantInt::get(type, size - 1));
  Value* bits = b_.CreateXor(key, b_.CreateAnd(below, llvm::ConstantInt::get(type, llvm::APInt::getSignedMaxValue(size))));
  return b_.CreateBitCast(bits, k_.type(nest_.body[id].dtype, width_of(key)));
}

Value* Emitter::scan_combine(std::uint32_t id, Value* a, Value* c) {
  const Statement& s = nest_.body[id];
  if (!is_float(s.dtype) || !a->getType()->isIntOrIntVectorTy()) return combine(id, a, c);
  return b_.CreateBinaryIntrinsic(s.op == Op::ScanMax ? llvm::Intrinsic::smax : llvm::Intrinsic::smin, a, c);
}

void Emitter::set_scan(std::uint32_t id, Value* base) {
  ScanState& state = scans_[id];
  Value* start = scan_key(id, identity(id, width_));
  if (!state.carry) state = {variable(start->getType(), nullptr), variable(start->getType(), nullptr)};
  b_.CreateStore(start, state.carry);
  b_.CreateStore(scan_key(id, base), state.base);
}

std::vector<std::uint32_t> Emitter::scan_statements() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Scan) out.push_back(i);
  return out;
}

void Emitter::scan_along(Value* n) {
  for (const std::uint32_t id : scan_statements()) set_scan(id, identity(id, width_));
  scan_blocks(
      n, [&](Body& body) { stores(body, 0); },
      [&](Value*, std::uint32_t id, const ScanState& state) {
        b_.CreateStore(scan_combine(id, read(state.base), read(state.carry)), state.base);
      });
}

void Emitter::scan_blocks(Value* n, const std::function<void(Body&)>& each,
                          const std::function<void(Value*, std::uint32_t, const ScanState&)>& end) {
  loop(i64(0), n, i64(ir::kScanBlock), [&](Value* from) {
    Value* to = smaller(b_.CreateAdd(from, i64(ir::kScanBlock)), n);
    Value* whole = schedule_.masked ? from : b_.CreateSub(to, b_.CreateAnd(b_.CreateSub(to, from), i64(ir::kScanGroup - 1)));
    if (!schedule_.masked)
      loop(from, whole, i64(ir::kScanGroup), [&](Value* j) {
        Body body{stages_[0], j, nullptr, nullptr, 0};
        each(body);
      });
    loop(whole, to, i64(ir::kScanGroup), [&](Value* j) {
      Value* left = b_.CreateSub(to, j);
      Body body{stages_[0], j, lanes_below(left, width_), left, 0};
      each(body);
    });
    for (const auto& [id, state] : scans_) {
      end(from, id, state);
      b_.CreateStore(scan_key(id, identity(id, width_)), state.carry);
    }
  });
}

void Emitter::scan_chunk(Value* n) {
  const std::vector<std::uint32_t> scans = scan_statements();
  const std::int64_t blocks = kScanChunk / ir::kScanBlock;
  Value* shared = in(entry_, [&] {
    return b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.shared)), llvm::Align(8));
  });
  Value* mine = bytes(shared, b_.CreateMul(item_, i64(scan_slot_bytes(nest_))));
  Value* next = bytes(mine, scan_slot_bytes(nest_));
  const auto sum_of = [&](std::size_t k, Value* block) {
    const auto first = static_cast<std::int64_t>(1 + scans.size() + k * static_cast<std::size_t>(blocks));
    return bytes(mine, b_.CreateMul(b_.CreateAdd(i64(first), block), i64(8)));
  };
  BasicBlock* results = block();
  BasicBlock* sums = block();
  BasicBlock* done = block();
  b_.CreateCondBr(b_.CreateICmpEQ(word(words_.phase), i64(0)), sums, results);
  b_.SetInsertPoint(sums);
  for (const std::uint32_t id : scans) set_scan(id, identity(id, width_));
  scan_blocks(
      n,
      [&](Body& body) {
        for (const std::uint32_t id : scans) vector(body, id);
      },
      [&](Value* from, std::uint32_t id, const ScanState& state) {
        const auto k = static_cast<std::size_t>(std::ranges::find(scans, id) - scans.begin());
        Value* sum = scan_value(id, b_.CreateExtractElement(read(state.carry), std::uint64_t{0}));
        b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, sum), sum_of(k, b_.CreateUDiv(from, i64(ir::kScanBlock))), llvm::Align(8));
      });
  b_.CreateBr(done);
  b_.SetInsertPoint(results);
  std::vector<Value*> bases;
  for (const std::uint32_t id : scans) bases.push_back(variable(k_.type(nest_.body[id].dtype, 0), identity(id, 0)));
  when(b_.CreateICmpNE(index_[nest_.vector_loop()], i64(0)), [&] {  // not the first of its row
    for (std::size_t k = 0; k < scans.size(); ++k) {
      const DType t = nest_.body[scans[k]].dtype;
      Value* p = bytes(mine, 8 + 8 * static_cast<std::int64_t>(k));
      b_.CreateStore(from_memory(t, b_.CreateAlignedLoad(memory_type(t, 0), p, llvm::Align(8))), bases[k]);
    }
  });
  for (std::size_t k = 0; k < scans.size(); ++k) {
    set_scan(scans[k], b_.CreateVectorSplat(width_, read(bases[k])));
    const DType t = nest_.body[scans[k]].dtype;
    loop(i64(0), up(n, i64(ir::kScanBlock)), i64(1), [&](Value* block) {
      Value* sum = from_memory(t, b_.CreateAlignedLoad(memory_type(t, 0), sum_of(k, block), llvm::Align(8)));
      b_.CreateStore(combine(scans[k], read(bases[k]), sum), bases[k]);
    });
    b_.CreateAlignedStore(to_memory(t, read(bases[k])), bytes(next, 8 + 8 * static_cast<std::int64_t>(k)), llvm::Align(8));
  }
  b_.CreateAlignedStore(i64(1), next, llvm::Align(8))->setAtomic(llvm::AtomicOrdering::Release);
  scan_blocks(
      n, [&](Body& body) { stores(body, 0); },
      [&](Value*, std::uint32_t id, const ScanState& state) {
        b_.CreateStore(scan_combine(id, read(state.base), read(state.carry)), state.base);
      });
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

Value* Emitter::scan_group(Body& body, std::uint32_t id) {
  const ScanState& state = scans_.at(id);
  Value* v = scan_key(id, vector(body, nest_.body[id].a));
  Value* const start = scan_key(id, identity(id, width_));
  for (unsigned d = 1; d < width_; d *= 2) {
    std::vector<int> lanes;
    for (unsigned i = 0; i < width_; ++i) lanes.push_back(static_cast<int>(i < d ? i : width_ + i - d));
    v = scan_combine(id, b_.CreateShuffleVector(start, v, lanes), v);
  }
  Value* carry = read(state.carry);
  Value* last = b_.CreateShuffleVector(v, std::vector<int>(width_, static_cast<int>(width_) - 1));
  b_.CreateStore(scan_combine(id, carry, last), state.carry);
  return scan_value(id, scan_combine(id, read(state.base), scan_combine(id, carry, v)));
}

Value* Emitter::scan_row(Body& body, std::uint32_t id) {
  const DType t = nest_.body[id].dtype;
  Value* p = row_of(layout_.temporaries[id], i64(0), body.j, t);
  Value* old = from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1)));
  Value* carry = combine(id, old, vector(body, nest_.body[id].a));
  b_.CreateAlignedStore(to_memory(t, carry), p, llvm::Align(1));
  if (schedule_.one_block) return carry;
  Value* base = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.temporaries[id], i64(1), body.j, t), llvm::Align(1));
  return combine(id, from_memory(t, base), carry);
}

void Emitter::begin_scan_rows(bool first) {
  std::vector<std::uint32_t> scans;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Scan) scans.push_back(i);
  over_row([&](Value* j) {
    for (const std::uint32_t id : scans) {
      const DType t = nest_.body[id].dtype;
      Value* carry = row_of(layout_.temporaries[id], i64(0), j, t);
      if (!schedule_.one_block) {
        Value* base = row_of(layout_.temporaries[id], i64(1), j, t);
        const auto load = [&](Value* p) { return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1))); };
        b_.CreateAlignedStore(to_memory(t, first ? identity(id, width_) : combine(id, load(base), load(carry))), base, llvm::Align(1));
      }
      b_.CreateAlignedStore(to_memory(t, identity(id, width_)), carry, llvm::Align(1));
    }
  });
}

}  // namespace onepass::compiler
