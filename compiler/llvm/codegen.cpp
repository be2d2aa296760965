// Entry point of the module: turns a Nest and its Schedule into an object file. Each thread keeps a target machine and a pass manager per
// target, because creating them costs more than compiling a small kernel.
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include <llvm/ADT/SmallString.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCContext.h>
#include <llvm/Pass.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Utils.h>

#include "compiler/llvm/compat.h"
#include "compiler/llvm/count.h"
#include "compiler/llvm/emit.h"
#include "ir/of_thread.h"
#include "onepass/error.h"
#include "onepass/export.h"
#include "onepass/version.h"

namespace onepass::compiler {
namespace {

void initialise() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();  // another initialization would take a fifth of the module's opening time
    llvm::InitializeNativeTargetAsmPrinter();
    // The body is emitted with its copies interleaved operator by operator, which keeps the units busy with few live values. The machine
    // scheduler would run one copy after the other. The flag is global, because neither functions nor targets have such a property; the
    // module's LLVM is private, so that nothing else sees it.
    const auto& options = llvm::cl::getRegisteredOptions();
    if (const auto it = options.find("enable-misched"); it != options.end()) it->second->addOccurrence(0, "enable-misched", "false");
  });
}

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

// Records the time at which the preceding passes are done with the whole module.
class NoteTime : public llvm::ModulePass {
 public:
  static char ID;
  explicit NoteTime(Clock::time_point& time) : llvm::ModulePass(ID), time_(time) {}
  llvm::StringRef getPassName() const override { return "note the time"; }
  void getAnalysisUsage(llvm::AnalysisUsage& usage) const override { usage.setPreservesAll(); }
  bool runOnModule(llvm::Module&) override {
    time_ = Clock::now();
    return false;
  }

 private:
  Clock::time_point& time_;
};
char NoteTime::ID = 0;

// State that one thread keeps for one target, tier and list of passes.
struct Machinery {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::TargetMachine> machine;
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream stream{buffer};
  llvm::MCContext* mc = nullptr;
  Clock::time_point ir_is_ready;  // between the IR passes and code generation
  llvm::legacy::PassManager passes;
  int modules = 0;
};

llvm::CodeGenOptLevel level_of(Tier tier) { return tier == Tier::Quick ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Less; }

std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target, Tier tier) {
  std::string error;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(target.triple, error);
  if (!t) throw Error("codegen: this LLVM does not support the target " + target.triple + ": " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.ExceptionModel = llvm::ExceptionHandling::None;
  std::unique_ptr<llvm::TargetMachine> machine(
      compat::create_target_machine(*t, target.triple, target.cpu, target.features, options, level_of(tier)));
  if (!machine) throw Error("codegen: cannot create a target machine for " + target.triple);
  machine->setFastISel(false);
  return machine;
}

// Calls f, which adds code generation passes. The pass that reduces the strength of loops takes a fifth of the compile time; the flag that
// omits it is global and read while the passes are added.
template <class F> bool adding_passes(bool reduces_strength, F&& f) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto& options = llvm::cl::getRegisteredOptions();
  if (const auto it = options.find("disable-lsr"); it != options.end())
    static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(!reduces_strength);
  return f();
}

// The target's own analysis comes first. Without it, the lowering of masked loads, stores and gathers assumes that the target has no such
// instructions.
void add_ir_passes(llvm::legacy::PassManager& passes, llvm::TargetMachine& machine) {
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine.getTargetIRAnalysis()));
  passes.add(llvm::createPromoteMemoryToRegisterPass());
  passes.add(llvm::createEarlyCSEPass());
}

using MachineryTable = std::map<std::tuple<std::string, std::string, std::string, Tier, bool>, std::unique_ptr<Machinery>>;
struct KeptMachinery {
  std::unique_ptr<MachineryTable> table;
};

Machinery& machinery(const Target& target, Tier tier, bool reduces_strength) {
  std::unique_ptr<MachineryTable>& kept = ir::OfThread<KeptMachinery>::get().table;
  if (!kept) kept = std::make_unique<MachineryTable>();
  std::unique_ptr<Machinery>& m = (*kept)[{target.triple, target.cpu, target.features, tier, reduces_strength}];
  if (m && m->modules < 2000) return *m;  // a context never frees types and constants; it is replaced from time to time
  m = std::make_unique<Machinery>();
  m->machine = make_machine(target, tier);
  add_ir_passes(m->passes, *m->machine);
  m->passes.add(new NoteTime(m->ir_is_ready));  // owned by the manager
  if (adding_passes(reduces_strength, [&] { return m->machine->addPassesToEmitMC(m->passes, m->mc, m->stream, true); }))
    throw InternalError("codegen: the target cannot emit objects");
  return *m;
}

void compile(const CodegenRequest& request, CodegenResult& result) {
  initialise();
  const bool reduces_strength = gains_from_strength_reduction(*request.nest, *request.schedule);
  Machinery& m = machinery(*request.target, request.tier, reduces_strength);
  ++m.modules;
  const auto start = Clock::now();
  std::unique_ptr<llvm::Module> module = emit(request, *m.context);
  if (request.count && !request.nest->is_routine()) count_accesses(*module, WordLayout(*request.nest).total);
  if (request.unwind)
    for (llvm::Function& f : *module)
      if (!f.isDeclaration()) f.setUWTableKind(llvm::UWTableKind::Async);
  result.emit_ms = milliseconds(Clock::now() - start);
  compat::set_triple(*module, request.target->triple);
  module->setDataLayout(m.machine->createDataLayout());
  // LLVM ends the process if a module is invalid. The verifier takes about 1 % of the time that compiling takes.
  std::string wrong;
  llvm::raw_string_ostream stream(wrong);
  if (llvm::verifyModule(*module, &stream)) throw InternalError("codegen: the generated module is invalid: " + wrong);
  if (request.want_ir || request.want_assembly) {
    llvm::legacy::PassManager passes;
    add_ir_passes(passes, *m.machine);
    passes.run(*module);
  }
  if (request.want_ir) {
    llvm::raw_string_ostream text(result.ir);
    module->print(text, nullptr);
  }
  if (request.want_assembly) {
    const std::unique_ptr<llvm::TargetMachine> machine = make_machine(*request.target, request.tier);
    llvm::legacy::PassManager passes;
    llvm::SmallString<0> text;
    llvm::raw_svector_ostream stream(text);
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> again = emit(request, context);  // code generation consumes its module
    compat::set_triple(*again, request.target->triple);
    again->setDataLayout(machine->createDataLayout());
    add_ir_passes(passes, *machine);
    if (adding_passes(reduces_strength,
                      [&] { return machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile); }))
      throw InternalError("codegen: the target cannot emit assembly");
    passes.run(*again);
    result.assembly.assign(text.begin(), text.end());
  }
  m.buffer.clear();
  const auto passes = Clock::now();
  m.passes.run(*module);
  result.passes_ms = milliseconds(m.ir_is_ready - passes);
  result.machine_ms = milliseconds(Clock::now() - m.ir_is_ready);
  result.object.assign(m.buffer.begin(), m.buffer.end());
}

struct ErrorText {
  std::string text;
};

}  // namespace
}  // namespace onepass::compiler

// Exceptions must not leave the module, because it may have been built with another unwinder.
extern "C" ONEPASS_API
const char* onepass_codegen(const onepass::compiler::CodegenRequest* request, onepass::compiler::CodegenResult* result) {
  std::string& error = onepass::ir::OfThread<onepass::compiler::ErrorText>::get().text;
  try {
    try {
      onepass::compiler::compile(*request, *result);
      return nullptr;
    } catch (const std::bad_alloc&) { throw; } catch (const std::exception& e) {
      error = e.what();
      return error.c_str();
    }
  } catch (const std::bad_alloc&) {
    // LLVM's code is not exception-safe. The state of this thread's LLVM objects is unknown, so they are leaked.
    static_cast<void>(onepass::ir::OfThread<onepass::compiler::KeptMachinery>::get().table.release());
    result->out_of_memory = true;
    return "out of memory";
  }
}

extern "C" ONEPASS_API
const char* onepass_llvm_version() { return LLVM_VERSION_STRING; }

extern "C" ONEPASS_API
const char* onepass_llvm_built_for() { return ONEPASS_VERSION; }

#ifdef ONEPASS_LLVM_STATIC
// Never destroys LLVM's globals, because the background compiler thread may use them while the process exits. The constructors of this
// module register destructors with this function. The presence of onepass_llvm_is_inside shows that LLVM is in the module.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) noexcept { return 0; }  // NOLINT
extern "C" ONEPASS_API
const char onepass_llvm_is_inside = 1;
#endif
