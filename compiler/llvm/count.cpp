// count_accesses: see count.h.
//
//   %v = load <8 x float>, ptr %p        eight times: the counter at %p + 4 * lane + delta, plus one
//   masked or gathered: adds the lane's mask bit; where it is 0, the address of an unused variable is used
#include "compiler/llvm/count.h"

#include <vector>

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>

#include "onepass/error.h"

namespace onepass::compiler {
namespace {

using llvm::Value;

// One access: instruction, address, type and active lanes.
struct Access {
  llvm::Instruction* at;
  Value* pointer;  // a pointer, or a vector of pointers
  llvm::Type* type;
  Value* mask = nullptr;  // null: all lanes
  bool store = false;
  Value* there = nullptr;  // condition for all lanes; null: always
};

// True if the address was read from a pointer table.
bool of_list(const Value* address) {
  const Value* from = nullptr;
  if (const auto* load = llvm::dyn_cast<llvm::LoadInst>(address)) from = load->getPointerOperand();
  if (const auto* gather = llvm::dyn_cast<llvm::IntrinsicInst>(address);
      gather && gather->getIntrinsicID() == llvm::Intrinsic::masked_gather)
    from = gather->getArgOperand(0);
  while (const auto* gep = from ? llvm::dyn_cast<llvm::GEPOperator>(from) : nullptr) from = gep->getPointerOperand();
  const auto* table = from ? llvm::dyn_cast<llvm::LoadInst>(llvm::getUnderlyingObject(from, 0)) : nullptr;
  return table && table->hasMetadata(kNoArray);
}

// True if the pointer points into an array. `pointer` may be the GEP that makes a vector of pointers.
bool of_array(const llvm::Function& kernel, const Value* pointer) {
  const Value* base = pointer;
  while (const auto* gep = llvm::dyn_cast<llvm::GEPOperator>(base)) base = gep->getPointerOperand();
  base = llvm::getUnderlyingObject(base, 0);
  if (const auto* either = llvm::dyn_cast<llvm::SelectInst>(base)) {
    const bool array = of_array(kernel, either->getTrueValue());
    if (array != of_array(kernel, either->getFalseValue())) throw InternalError("count: a pointer may point to an array or to scratch");
    return array;
  }
  if (llvm::isa<llvm::AllocaInst>(base) || llvm::isa<llvm::Constant>(base) || base == kernel.getArg(0) || base == kernel.getArg(3))
    return false;
  const auto* word = llvm::dyn_cast<llvm::LoadInst>(base);
  if (word && word->hasMetadata(kNoArray)) return false;
  if (word && llvm::getUnderlyingObject(word->getPointerOperand(), 0) == kernel.getArg(0)) return true;
  if (!of_list(base)) throw InternalError("count: a pointer does not come from an argument, the scratch buffer or the stack");
  return true;
}

std::vector<Access> accesses_of(llvm::Function& kernel) {
  std::vector<Access> out;
  const auto add = [&](Access a) {
    if (auto* either = llvm::dyn_cast<llvm::SelectInst>(a.pointer)) {  // the element or elements, or zeros
      if (of_array(kernel, either->getFalseValue())) throw InternalError("count: a pointer is selected in an unknown way");
      a.there = either->getCondition();
      a.pointer = either->getTrueValue();
    }
    if (of_array(kernel, a.pointer)) out.push_back(a);
  };
  for (llvm::BasicBlock& block : kernel)
    for (llvm::Instruction& i : block) {
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&i)) add({&i, load->getPointerOperand(), load->getType()});
      else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i))
        add({&i, store->getPointerOperand(), store->getValueOperand()->getType(), nullptr, true});
      else if (auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i)) {
        switch (call->getIntrinsicID()) {
          case llvm::Intrinsic::masked_load:
          case llvm::Intrinsic::masked_gather:
            add({&i, call->getArgOperand(0), i.getType(), call->getArgOperand(call->arg_size() - 2)});
            break;
          case llvm::Intrinsic::masked_store:
          case llvm::Intrinsic::masked_scatter:
            add({&i, call->getArgOperand(1), call->getArgOperand(0)->getType(), call->getArgOperand(call->arg_size() - 1), true});
            break;
          case llvm::Intrinsic::prefetch: break;
          default:
            if (call->mayReadOrWriteMemory() && call->arg_size() > 0) throw InternalError("count: an intrinsic may access memory");
        }
      } else if (auto* called = llvm::dyn_cast<llvm::CallBase>(&i);
                 (called && !called->doesNotAccessMemory()) || llvm::isa<llvm::AtomicRMWInst>(i) || llvm::isa<llvm::AtomicCmpXchgInst>(i)) {
        throw InternalError("count: a call or an atomic instruction may access memory");
      }
    }
  return out;
}

}  // namespace

void count_accesses(llvm::Module& module, std::uint32_t total) {
  llvm::Function& kernel = *module.getFunction("kernel");
  llvm::IRBuilder<> b(module.getContext());
  b.SetInsertPoint(&kernel.getEntryBlock(), kernel.getEntryBlock().getFirstInsertionPt());
  const std::vector<Access> accesses = accesses_of(kernel);
  Value* deltas[2];
  for (unsigned k = 0; k < 2; ++k)
    deltas[k] = b.CreateAlignedLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), kernel.getArg(0), total + k), llvm::Align(8));
  Value* nothing = b.CreateAlloca(b.getInt8Ty());
  for (const Access& a : accesses) {
    b.SetInsertPoint(a.at);
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a.type);
    const unsigned lanes = vector ? vector->getNumElements() : 1, size = a.type->getScalarSizeInBits() / 8;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      Value* element = a.pointer->getType()->isVectorTy() ? b.CreateExtractElement(a.pointer, lane)
                                                          : b.CreateConstGEP1_64(b.getInt8Ty(), a.pointer, std::uint64_t{lane} * size);
      Value* counter = b.CreateGEP(b.getInt8Ty(), element, deltas[a.store]);
      Value* one = b.getInt8(1);
      for (Value* condition : {a.mask, a.there}) {
        if (!condition) continue;
        Value* active = condition->getType()->isVectorTy() ? b.CreateExtractElement(condition, lane) : condition;
        counter = b.CreateSelect(active, counter, nothing);
        one = b.CreateSelect(active, one, b.getInt8(0));
      }
      Value* old = b.CreateAlignedLoad(b.getInt8Ty(), counter, llvm::Align(1));
      b.CreateAlignedStore(b.CreateBinaryIntrinsic(llvm::Intrinsic::uadd_sat, old, one), counter, llvm::Align(1));
    }
  }
}

}  // namespace onepass::compiler
