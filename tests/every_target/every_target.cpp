// Adds the AArch64 target to the code generator, so that its AArch64 code can be checked on any machine. The installed module has only the
// target of its machine.
#include <llvm/Support/TargetSelect.h>

#include "onepass/export.h"

extern "C" ONEPASS_API
void onepass_add_targets() {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}
