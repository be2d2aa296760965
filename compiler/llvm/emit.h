// emit: a Nest under a Schedule as LLVM IR: one function `kernel` (KernelFunction in compiler/plan/schedule.h), already vectorised, with
// masked tails, no calls, no attributes that promise what was not checked (no noalias, no fast-math).
#pragma once

#include <memory>

#include <llvm/IR/Module.h>

#include "compiler/codegen.h"

namespace onepass::compiler {

std::unique_ptr<llvm::Module> emit(const CodegenRequest& request, llvm::LLVMContext& context);

}  // namespace onepass::compiler
