// Accesses to array lists: the kernel parameter of such an access points to a pointer table. The number of arrays precedes the table.
#include "compiler/llvm/count.h"
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

std::uint64_t Emitter::loops_of_table(std::uint32_t access) const {
  return is_list(access) ? loops_of_linear(nest_.accesses[access].table) : 0;
}

Value* Emitter::table(std::uint32_t access) {
  Value* first = base_pointer(access);
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(first)) load->setMetadata(kNoArray, llvm::MDNode::get(context_, {}));
  return first;
}

Value* Emitter::within_table(std::uint32_t access, Value* member) {
  Value* first = table(access);
  Value* last = in(entry_, [&] { return b_.CreateSub(b_.CreateAlignedLoad(b_.getInt64Ty(), bytes(first, -8), llvm::Align(8)), i64(1)); });
  Value* zero = i64(0);
  if (const unsigned width = width_of(member)) zero = splat(zero, width), last = splat(last, width);
  member = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, member, zero);
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, member, last);
}

Value* Emitter::array_of_list(std::uint32_t access, std::uint64_t known) {
  const std::uint32_t linear = nest_.accesses[access].table;
  Value* member = word(words_.offset_of(linear));
  if (Value* varies = scalar_part(linear, known)) member = b_.CreateAdd(member, varies);
  member = within_table(access, member);
  return b_.CreateAlignedLoad(b_.getPtrTy(), bytes(table(access), b_.CreateMul(member, i64(8))), llvm::Align(8));
}

Value* Emitter::pointer_in_list(std::uint32_t access, std::uint64_t loops) {
  const std::uint32_t linear = nest_.accesses[access].linear;
  const std::uint64_t varies = loops_of_linear(linear) | loops_of_table(access);
  Region* r = &entry_;
  if (loops & serial_bits() && varies & serial_bits()) r = serial_;
  else if (varies & (outer_bits() | vector_bit())) r = stages_[0];
  if (const auto it = r->arrays.find(access); it != r->arrays.end()) return it->second;
  const auto moved = [&](Value* at, Value* by) { return by ? bytes(at, b_.CreateMul(by, i64(size_of_access(access)))) : at; };
  Value* p = nullptr;
  if (r == serial_ && !(loops_of_table(access) & serial_bits())) {  // within one array
    Value* at = pointer_in_list(access, loops & ~serial_bits());
    p = in(*r, [&] { return moved(at, scalar_part(linear, serial_bits() | outer_bits(), outer_bits())); });
  } else {
    const std::uint64_t known = r == &entry_ ? 0 : r == serial_ ? outer_bits() | serial_bits() : outer_bits();
    p = in(*r, [&] {
      Value* sum = scalar_part(linear, known);
      if (known && nest_.linears[linear].of[nest_.vector_loop()] != Coefficient::Zero && nest_.kind != NestKind::Lanes) {
        Value* start = times(linear, nest_.vector_loop(), index_[nest_.vector_loop()]);
        sum = sum ? b_.CreateAdd(sum, start) : start;
      }
      return moved(array_of_list(access, known), sum);
    });
  }
  return r->arrays[access] = p;
}

Value* Emitter::addresses_in_list(Body& body, std::uint32_t access) {
  const std::uint32_t linear = nest_.accesses[access].linear;
  llvm::Type* pointers = llvm::FixedVectorType::get(b_.getPtrTy(), width_);
  Value* words = b_.CreateGEP(b_.getInt64Ty(), table(access), within_table(access, vector_linear(body, nest_.accesses[access].table)));
  Value* arrays = b_.CreateMaskedGather(pointers, words, llvm::Align(8), all_lanes(width_), llvm::Constant::getNullValue(pointers));
  // the offset is included in the addresses
  Value* at = b_.CreateSub(vector_linear(body, linear), splat(word(words_.offset_of(linear)), width_));
  return b_.CreateGEP(b_.getInt8Ty(), arrays, b_.CreateMul(at, splat(i64(size_of_access(access)), width_)));
}

}  // namespace onepass::compiler
