// All differences between LLVM 19, 20 and 21 are in this header. CI tests 19.
#pragma once

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>

namespace onepass::compiler::compat {

inline llvm::TargetMachine* create_target_machine(const llvm::Target& target, const std::string& triple, const std::string& cpu,
                                                  const std::string& features, const llvm::TargetOptions& options,
                                                  llvm::CodeGenOptLevel level) {
#if LLVM_VERSION_MAJOR >= 21
  return target.createTargetMachine(llvm::Triple(triple), cpu, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level, true);
#else
  return target.createTargetMachine(triple, cpu, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level, true);
#endif
}

inline void set_triple(llvm::Module& module, const std::string& triple) {
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(llvm::Triple(triple));
#else
  module.setTargetTriple(triple);
#endif
}

}  // namespace onepass::compiler::compat
