// The code generator with a target beside this machine's: what it emits for AArch64 can be looked at anywhere. The module that is installed
// knows one processor.
#include <llvm/Support/TargetSelect.h>

#include "onepass/export.h"

extern "C" ONEPASS_API
void onepass_add_targets() {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}
