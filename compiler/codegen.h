// The door to code generation: a private module (libonepass_llvm.so), opened at the first compile, so that a process that only loads
// cached kernels never pays for LLVM. What goes in is a Nest and its Schedule; what comes out is a self-contained object file.
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
  const KnownWords* known = nullptr;  // of a specialised kernel: constants of its code
  bool want_ir = false, want_assembly = false;
  bool verify = false;  // run LLVM's verifier first; tests do, debug builds always
  bool count = false;   // count loads and stores of array elements (compiler/llvm/count.h); for tests: two more words
};

struct CodegenResult {
  std::string object;  // ELF, one function `kernel`, no undefined symbols
  std::string ir, assembly;
  double open_ms = 0;                                 // opening the module, by its first compile
  double emit_ms = 0, passes_ms = 0, machine_ms = 0;  // building the IR; LLVM's passes over it; from there to the object
  bool out_of_memory = false;                         // the error was that
};

/// What `generate` throws where a kernel has no code through a fault of the generator: its nest cannot be arranged, or LLVM refuses it.
class NotGenerated : public InternalError {
 public:
  using InternalError::InternalError;
};

/// Compiles. Thread-safe; each thread keeps its own machinery. NotGenerated where it fails; Error where the module cannot be opened;
/// MemoryError where there is not enough memory to begin with. Should memory end in the middle, LLVM may end the process.
///
/// In the child of a fork: where another thread was compiling at that moment, LLVM's locks may be held for ever, and the child opens a
/// copy of the module.
CodegenResult generate(const CodegenRequest& request);

/// Has the module been opened, and which LLVM is in it ("19.1.7")? Opens it.
std::string llvm_version();

/// True on a thread that is inside the module. Whoever makes memory end, as tests do, leaves such a thread its memory: LLVM ends a process that has none.
bool in_code_generator() noexcept;

/// Does LLVM live in the module, which never destroys its globals? Then a compile may go on while the process exits. True before it is opened.
bool outlives_exit() noexcept;

/// The function in the module: extern "C" name and type. Returns an error text (static or leaked), null on success.
inline constexpr const char* kCodegenEntry = "onepass_codegen";
using CodegenEntry = const char* (*)(const CodegenRequest*, CodegenResult*);

}  // namespace onepass::compiler
