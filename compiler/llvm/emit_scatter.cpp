// Additions at data-dependent indices: updates run in sequence along the indexed loops. Threads may each own a range of destinations.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

void Emitter::add_number(const Statement& s) {
  const DType t = type_of_access(s.at);
  const auto add = [&] {
    Value* value = scalar(s.a);
    Value* p = pointer(s.at, s.loops);
    Value* old = b_.CreateAlignedLoad(memory_type(t, 0), p, llvm::Align(1));
    b_.CreateAlignedStore(k_.add({old, t}, {value, t}), p, llvm::Align(1));
  };
  if (s.guard == kNone) add();
  else when(scalar(s.guard), add);
}

unsigned Emitter::indices_at_once(const Statement& place) const {
  const Statement& index = nest_.body[place.a];
  if (index.kind != Statement::Kind::Load || index.guard != kNone || place.guard != kNone || is_list(index.at)) return 1;
  const std::vector<Coefficient>& of = nest_.linears[nest_.accesses[index.at].linear].of;
  const bool derived = std::any_of(of.begin() + nest_.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
  return derived || of[nest_.outer] != Coefficient::One ? 1 : static_cast<unsigned>(schedule_.vector_bytes) / 8;
}

Value* Emitter::in_range(const Statement& place, Value* first, Value* r, Value* left) {
  const unsigned lanes = indices_at_once(place);
  const auto within = [&](Value* at, Value* begin, Value* count) { return b_.CreateICmpULT(b_.CreateSub(at, begin), count); };
  if (lanes == 1) {
    index_[nest_.outer] = r;
    enter_serial();
    return b_.CreateZExt(within(scalar(nest_.addition()->b), first, word(words_.chunk)), b_.getInt64Ty());
  }
  const std::uint32_t access = nest_.body[place.a].at;
  llvm::Type* type = memory_type(type_of_access(access), lanes);
  Value* p = bytes(pointer(access, ~serial_bits()), b_.CreateMul(r, i64(size_of_access(access))));
  Value* there = left ? b_.CreateICmpSLT(iota(lanes), b_.CreateVectorSplat(lanes, left)) : nullptr;
  Value* index = there ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), there, llvm::Constant::getNullValue(type)))
                       : b_.CreateAlignedLoad(type, p, llvm::Align(1));
  Value* at = checked_place(nest_.body[place.a].dtype, index, place.at, there);
  Value* mine = within(at, b_.CreateVectorSplat(lanes, first), splat(word(words_.chunk), lanes));
  if (there) mine = b_.CreateAnd(there, mine);
  return b_.CreateZExt(b_.CreateBitCast(mine, b_.getIntNTy(lanes)), b_.getInt64Ty());
}

// Emits a sweep of updates. In a destination-partitioned scatter, each thread reads all indices and adds only within its range. Each
// destination therefore gets its updates in index order for any ranges. The updates of a task are first selected for a whole block, without
// a branch, because branches would be unpredictable.
void Emitter::scatter_sweep(std::uint8_t sweep, const Statement& s) {
  constexpr std::int64_t block = 1024;
  Value* n = tile_length();
  const auto update = [&] {
    if (s.loops & vector_bit()) vector_range(n, serial_, sweep, [&](Body& body) { stores(body, sweep); });
    else add_number(s);
  };
  if (!schedule_.by_place) return serial_loops([&](Value*, Value*) { update(); });
  const Statement& place = nest_.body[s.b];
  const std::uint32_t l = nest_.outer;
  const std::int64_t lanes = indices_at_once(place);
  Value* first = b_.CreateMul(chunk_, word(words_.chunk));
  Value* list = in(entry_, [&] { return b_.CreateAlloca(b_.getInt64Ty(), i64(block + lanes)); });
  Value* count = variable(b_.getInt64Ty(), nullptr);
  const auto listed = [&](Value* k) { return b_.CreateGEP(b_.getInt64Ty(), list, k); };
  const auto choose = [&](Value* r, Value* left) {
    Value* bits = in_range(place, first, r, left);
    for (std::int64_t k = 0; k < lanes; ++k) {  // the next update overwrites it if it is not in the task's range
      b_.CreateStore(b_.CreateAdd(r, i64(k)), listed(read(count)));
      b_.CreateStore(b_.CreateAdd(read(count), b_.CreateAnd(b_.CreateLShr(bits, i64(k)), i64(1))), count);
    }
  };
  loop(i64(0), extent(l), i64(block), [&](Value* from) {
    Value* end = smaller(b_.CreateAdd(from, i64(block)), extent(l));
    b_.CreateStore(i64(0), count);
    Value* whole = b_.CreateAdd(from, b_.CreateAnd(b_.CreateSub(end, from), i64(-lanes)));
    loop(from, whole, i64(lanes), [&](Value* r) { choose(r, nullptr); });
    when(b_.CreateICmpSLT(whole, end), [&] { choose(whole, b_.CreateSub(end, whole)); });
    loop(i64(0), read(count), i64(1), [&](Value* k) {
      index_[l] = b_.CreateLoad(b_.getInt64Ty(), listed(k));
      enter_serial();
      update();
    });
  });
}

}  // namespace onepass::compiler
