// emit_steps: turns a recurrence (ir/steps.h) into LLVM IR. Vectors run along the elements; states stay in registers during the steps.
#pragma once

#include <memory>

#include <llvm/IR/Module.h>

#include "compiler/codegen.h"

namespace onepass::compiler {

void emit_steps(const CodegenRequest& request, llvm::Module& module);

}  // namespace onepass::compiler
