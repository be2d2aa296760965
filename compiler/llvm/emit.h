// emit: turns a Nest under a Schedule into LLVM IR. The module has one exported function, `kernel` (KernelFunction in
// compiler/plan/schedule.h). The code is already vectorized, with masked tails and without calls to other modules. No attribute promises
// unchecked properties (no noalias, no fast-math).
#pragma once

#include <memory>

#include <llvm/IR/Module.h>

#include "compiler/codegen.h"

namespace onepass::compiler {

std::unique_ptr<llvm::Module> emit(const CodegenRequest& request, llvm::LLVMContext& context);

/// False for elementwise programs: most of their addresses are a register plus a multiple of the index, which an instruction can express.
/// Also false for contractions that transpose squares where they are read: each of their rows would have an address of its own.
/// Sums along the first axis, scans and contractions take up to 1.7 times as long without strength reduction.
bool gains_from_strength_reduction(const Nest& nest, const Schedule& schedule);

}  // namespace onepass::compiler
