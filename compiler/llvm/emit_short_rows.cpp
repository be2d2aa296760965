// Short rows: inner axes shorter than a vector, read from replicated-row buffers.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

Value* Emitter::pattern(std::uint32_t id, Value* place) {
  return bytes(pattern_area(layout_.patterns.at[id]), b_.CreateMul(place, i64(static_cast<std::int64_t>(size_of(nest_.body[id].dtype)))));
}

Value* Emitter::row_indices(bool modulo, Value* place, unsigned lanes) {
  Value* p = bytes(pattern_area(modulo ? layout_.patterns.places : layout_.patterns.rows), b_.CreateMul(place, i64(4)));
  return b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt32Ty(), lanes), p, llvm::Align(1));
}

void Emitter::make_patterns() {
  const RowPatterns& patterns = layout_.patterns;
  Value* length = word(words_.by);
  Value* place = variable(b_.getInt64Ty(), i64(0));
  Value* row = variable(b_.getInt32Ty(), b_.getInt32(0));
  loop(i64(0), b_.CreateAdd(length, i64(2 * static_cast<std::int64_t>(width_))), i64(1), [&](Value* i) {
    Value* at = b_.CreateMul(i, i64(4));
    Value* now = read(place);
    b_.CreateAlignedStore(b_.CreateTrunc(now, b_.getInt32Ty()), bytes(pattern_area(patterns.places), at), llvm::Align(4));
    b_.CreateAlignedStore(read(row), bytes(pattern_area(patterns.rows), at), llvm::Align(4));
    Value* next = b_.CreateAdd(now, i64(1));
    Value* ends = b_.CreateICmpEQ(next, length);
    b_.CreateStore(b_.CreateSelect(ends, i64(0), next), place);
    b_.CreateStore(b_.CreateAdd(read(row), b_.CreateZExt(ends, b_.getInt32Ty())), row);
  });
  index_.assign(nest_.loops(), i64(0));
  stages_ = {region(&entry_)};
  making_patterns_ = true;
  vector_row_ = i64(0);
  loop(i64(0), b_.CreateAdd(length, i64(width_)), i64(width_), [&](Value* j) {
    place_ = j;
    Body body{stages_[0], j};
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
      if (patterns.at[id] == RowPatterns::kNone) continue;
      b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, vector(body, id)), pattern(id, j), llvm::Align(1));
    }
  });
  making_patterns_ = false;
}

std::function<void(Body&)> Emitter::in_short_rows(const std::function<void(Body&)>& f) {
  Value* length = word(words_.by);
  Value* start = index_[nest_.vector_loop()];
  Value* place = variable(b_.getInt64Ty(), b_.CreateURem(start, length));
  Value* row = variable(b_.getInt64Ty(), b_.CreateUDiv(start, length));
  Value* rest = in(entry_, [&] { return b_.CreateURem(i64(width_), length); });
  Value* whole = in(entry_, [&] { return b_.CreateUDiv(i64(width_), length); });
  return [this, f, length, place, row, rest, whole](Body& body) {
    place_ = read(place), vector_row_ = read(row);
    f(body);
    Value* next = b_.CreateAdd(place_, rest);
    Value* over = b_.CreateICmpSGE(next, length);
    b_.CreateStore(b_.CreateSelect(over, b_.CreateSub(next, length), next), place);
    b_.CreateStore(b_.CreateAdd(b_.CreateAdd(vector_row_, whole), b_.CreateZExt(over, b_.getInt64Ty())), row);
  };
}

// Loads one contiguous element per row. The lanes of a register span few rows. Their elements are loaded once and permuted into the lanes.
// Returns null if the target has no permutation instruction.
Value* Emitter::one_of_each_row(std::uint32_t access) {
  const Linear& l = nest_.linears[nest_.accesses[access].linear];
  if (l.of[nest_.vector_loop()] != Coefficient::Zero) return nullptr;
  int rows = 0;
  for (std::uint32_t q = 0; q < nest_.derived.size(); ++q) {
    if (l.of[nest_.loops() + q] != (nest_.derived[q].modulo ? Coefficient::Zero : Coefficient::One)) return nullptr;
    rows += !nest_.derived[q].modulo;
  }
  if (rows != 1) return nullptr;
  llvm::Type* element = memory_type(type_of_access(access), 0);
  const unsigned bits = element->getScalarSizeInBits(), wide = std::max(bits, 32u);
  const unsigned lanes = std::min(width_, static_cast<unsigned>(8 * schedule_.vector_bytes) / wide);
  if (!k_.permutes(wide, lanes)) return nullptr;
  Value* last = in(entry_, [&] { return b_.CreateSub(up(extent(nest_.vector_loop()), word(words_.by)), i64(lanes)); });
  Value* base = pointer(access, ~std::uint64_t{0});
  std::vector<Value*> parts;
  for (unsigned first = 0; first < width_; first += lanes) {
    Value* in_row = row_indices(false, b_.CreateAdd(place_, i64(first)), lanes);
    Value* least = b_.CreateExtractElement(in_row, std::uint64_t{0});
    Value* row = b_.CreateAdd(vector_row_, b_.CreateZExt(least, b_.getInt64Ty()));
    llvm::Type* type = llvm::FixedVectorType::get(element, lanes);
    Value* from = smaller(row, last);  // the last vector of the array, if lanes would be beyond its end
    Value* before = b_.CreateSub(least, b_.CreateTrunc(b_.CreateSub(row, from), b_.getInt32Ty()));
    Value* p = bytes(base, b_.CreateMul(from, i64(size_of_access(access))));
    Value* loaded = b_.CreateAlignedLoad(type, p, llvm::Align(1));
    parts.push_back(k_.permute(loaded, b_.CreateSub(in_row, b_.CreateVectorSplat(lanes, before))));
  }
  return k_.joined(parts);
}

}  // namespace onepass::compiler
