// emit: turns a Nest under a Schedule into LLVM IR. The module has one exported function, `kernel` (KernelFunction in
// compiler/plan/schedule.h). The code is already vectorized, with masked tails and without calls to other modules. No attribute promises
// unchecked properties (no noalias, no fast-math).
#pragma once

#include <memory>

#include <llvm/IR/Module.h>

#include "compiler/codegen.h"

namespace onepass::compiler {

std::unique_ptr<llvm::Module> emit(const CodegenRequest& request, llvm::LLVMContext& context);

/// True if the loops of the kernel read and write elements that are adjacent along the vectors, or the same element in all of them. An
/// address is then a register plus a multiple of the index, which an instruction can express: no strength reduction can improve it.
bool has_plain_addresses(const Nest& nest, const Schedule& schedule);

}  // namespace onepass::compiler
