// emit_steps: a recurrence (ir/steps.h) as LLVM IR: states in registers while the steps run, vectors along the elements.
#pragma once

#include <memory>

#include <llvm/IR/Module.h>

#include "compiler/codegen.h"

namespace onepass::compiler {

void emit_steps(const CodegenRequest& request, llvm::Module& module);

}  // namespace onepass::compiler
