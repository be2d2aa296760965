// Loads an object file that `generate` made into executable memory. With this small loader for self-contained ELF objects, neither a fresh
// kernel nor a kernel from disk needs a linker or LLVM.
#pragma once

#include <memory>
#include <string_view>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

class KernelObject {
 public:
  /// Loads the object. Throws InternalError if `generate` cannot have made it; checks sections, symbols, relocations and bounds. `name`:
  /// for perf and GDB (runtime/code_names.h).
  static std::shared_ptr<const KernelObject> load(std::string_view object, std::string_view name = {});
  KernelFunction function() const { return function_; }
  std::size_t bytes() const { return bytes_; }
  virtual ~KernelObject() = default;

 protected:
  KernelFunction function_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace onepass::compiler
