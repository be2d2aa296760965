// Interface to code generation, which is in a private module (libonepass_llvm.so). The first compile opens the module, so a process that
// only loads cached kernels never pays for LLVM. The input is a loop nest and its schedule; the output is a self-contained object file.
#pragma once

#include <string>

#include "compiler/plan/schedule.h"
#include "compiler/target.h"
#include "onepass/error.h"

namespace onepass::compiler {

enum class Tier : std::uint8_t { Quick, Optimised };

struct CodegenRequest {
  const Nest* nest;
  const Schedule* schedule;
  const Target* target;
  Tier tier = Tier::Optimised;
  const KnownWords* known = nullptr;  // specialization constants of a specialized kernel, or null
  bool want_ir = false, want_assembly = false;
  bool unwind = false;  // with unwind tables, for debuggers
  // For tests: counts loads and stores of array elements (compiler/llvm/count.h), with two more kernel parameters.
  bool count = false;
};

struct CodegenResult {
  std::string object;  // ELF, one function `kernel`, no undefined symbols
  std::string ir, assembly;
  double open_ms = 0;                                 // opening the module; 0 after the first compile
  double emit_ms = 0, passes_ms = 0, machine_ms = 0;  // IR construction; LLVM's IR passes; object emission
  bool out_of_memory = false;                         // the error is out-of-memory
};

/// Error that `generate` throws if the generator fails: it cannot arrange the loop nest, or LLVM rejects the code.
class NotGenerated : public InternalError {
 public:
  using InternalError::InternalError;
};

/// Compiles one kernel. Thread-safe; each thread keeps its own LLVM objects. Throws NotGenerated on failure, Error if the module cannot be
/// opened, and MemoryError if too little memory is available at the start. If memory runs out during compilation, LLVM may end the process.
///
/// If another thread was compiling during a fork, LLVM's locks may stay held in the child, so the child opens a copy of the module.
CodegenResult generate(const CodegenRequest& request);

/// Returns the LLVM version in the module, such as "19.1.7". Opens the module.
std::string llvm_version();

/// True on a thread that is inside the module. Tests that inject allocation failures must skip such a thread, because LLVM ends the process
/// when an allocation fails.
bool in_code_generator() noexcept;

/// True if LLVM is in the module, which never destroys its globals, so a compile may continue while the process exits. True also before the
/// module is opened.
bool outlives_exit() noexcept;

/// Name and type of the module's extern "C" function. It returns an error text (static or leaked), or null on success.
inline constexpr const char* kCodegenEntry = "onepass_codegen";
using CodegenEntry = const char* (*)(const CodegenRequest*, CodegenResult*);

}  // namespace onepass::compiler
