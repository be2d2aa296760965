// Opens the code generator, libonepass_llvm.so, at the first compile, and calls it. The static library contains it.
#include "compiler/codegen.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "compiler/sha256.h"
#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/os.h"

// Null except in libonepass.a, where the code generator is part of the library (cmake/static.cmake).
extern "C" {
[[gnu::weak, gnu::visibility("hidden")]] const char* onepass_codegen(const onepass::compiler::CodegenRequest*,
                                                                     onepass::compiler::CodegenResult*);
[[gnu::weak, gnu::visibility("hidden")]] const char* onepass_llvm_version();
[[gnu::weak, gnu::visibility("hidden")]] void* onepass_sha256_new();
[[gnu::weak, gnu::visibility("hidden")]] void onepass_sha256_delete(void*);
[[gnu::weak, gnu::visibility("hidden")]] void onepass_sha256_add(void*, const void*, std::size_t);
[[gnu::weak, gnu::visibility("hidden")]] void onepass_sha256_finish(void*, unsigned char*);
}

namespace onepass::compiler {
namespace {

// Possible folders of the module relative to the library or program: as installed (cmake/install.cmake), in the same folder, and in a
// build folder, where lib/ is a sibling of the programs' folder.
constexpr std::string_view kFolders[] = {ONEPASS_MODULE_FROM_LIBRARY, ONEPASS_MODULE_FROM_PROGRAM, ".", "../lib"};
constexpr std::string_view kName = "libonepass_llvm.so";

struct Module {
  CodegenEntry entry = nullptr;
  const char* (*version)() = nullptr;
  struct {
    void* (*make)();
    void (*destroy)(void*);
    void (*add)(void*, const void*, std::size_t);
    void (*finish)(void*, unsigned char*);
  } sha256 = {};
  bool has_llvm = false;  // contains LLVM itself instead of linking with its library
  std::string error;
};

// Depth of calls into the module, including its constructors and LLVM.
thread_local constinit int inside = 0;
template <class F> auto in_module(F&& f) {
  struct Scope {
    Scope() { ++inside; }
    ~Scope() { --inside; }
  } const scope;
  return f();
}

// Opens the module, first by a path relative to onepass, because the system's search might find another version.
void* open_module(std::string& why) {
  std::string first_failure;
  if (const std::string folder = os::library_folder(); !folder.empty())
    for (const std::string_view relative : kFolders) {
      const std::string path = fmt::format("{}/{}/{}", folder, relative, kName);
      if (!os::file_exists(path)) continue;
      std::string failure;
      if (void* const library = in_module([&] { return os::open_library(path, &failure); })) return library;
      if (first_failure.empty()) first_failure = failure;
    }
  void* const library = in_module([&] { return os::open_library(std::string(kName), &why); });
  if (!library && !first_failure.empty()) why = first_failure;
  return library;
}

constinit std::atomic<const Module*> current{nullptr};  // never closed
constinit runtime::TableMutex opening;                  // blocks forks, because the dynamic linker has its own locks
constinit std::atomic<int> compiling{0};
constinit const Module* left_busy = nullptr;  // in a forked child: the module that a thread of the parent was using

// A small kernel needs 2 MB, a large kernel needs 10 MB, and a thread's first compile needs 3 MB for LLVM's state.
constexpr std::size_t kRoom = std::size_t{32} << 20;

std::unique_ptr<Module> open() {
  auto m = std::make_unique<Module>();
  std::string why;
  void* library = nullptr;
  if (onepass_codegen && !left_busy) {
    m->entry = onepass_codegen;
    m->version = onepass_llvm_version;
    m->sha256 = {onepass_sha256_new, onepass_sha256_delete, onepass_sha256_add, onepass_sha256_finish};
    m->has_llvm = true;
    return m;
  }
  if (!left_busy) {
    library = open_module(why);
    if (!library)
      m->error =
          fmt::format("The code generator {} cannot be opened ({}). Install it next to libonepass.so, or use mode reference.", kName, why);
  } else {
    if (onepass_codegen) why = "it is linked into the program";
    else if (left_busy->has_llvm)
      library = in_module([&] { return os::open_copy(os::library_of(reinterpret_cast<const void*>(left_busy->entry)), &why); });
    else why = "LLVM is a separate library here";
    if (!library)
      m->error = fmt::format(
          "This process was forked while another thread was compiling, and the code generator cannot be opened a second time ({}). Compile "
          "before the fork, or use mode reference.",
          why);
  }
  if (!library) return m;
  // Request and result are C++ structures, so both sides must have the same version.
  const auto built_for = reinterpret_cast<const char* (*)()>(os::find_symbol(library, "onepass_llvm_built_for"));
  const std::string_view version = built_for ? built_for() : "an unknown version";
  const auto entry = reinterpret_cast<CodegenEntry>(os::find_symbol(library, kCodegenEntry));
  if (!entry || version != ONEPASS_VERSION) {
    m->error = fmt::format("The code generator {} belongs to onepass {}, but the library is onepass {}. Install both from the same build.",
                           kName, version, ONEPASS_VERSION);
    return m;
  }
  m->entry = entry;
  m->version = reinterpret_cast<const char* (*)()>(os::find_symbol(library, "onepass_llvm_version"));
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(os::find_symbol(library, name));
  };
  find(m->sha256.make, "onepass_sha256_new");
  find(m->sha256.destroy, "onepass_sha256_delete");
  find(m->sha256.add, "onepass_sha256_add");
  find(m->sha256.finish, "onepass_sha256_finish");
  m->has_llvm = os::find_symbol(library, "onepass_llvm_is_inside") != nullptr;
  return m;
}

const Module& module() {
  const Module* m = current.load(std::memory_order_acquire);
  if (!m) {
    const std::lock_guard lock(opening);
    m = current.load(std::memory_order_acquire);
    if (!m) {
      static constinit runtime::Once once;
      if (once.first())
        runtime::in_forked_child([] {
          if (compiling.exchange(0) > 0) left_busy = current.exchange(nullptr);
        });
      m = open().release();
      current.store(m, std::memory_order_release);
    }
  }
  if (!m->entry) throw Error(m->error);
  return *m;
}

struct Compiling {
  Compiling() { compiling.fetch_add(1); }
  ~Compiling() { compiling.fetch_sub(1); }
};

}  // namespace

CodegenResult generate(const CodegenRequest& request) {
  const bool opens = !current.load(std::memory_order_relaxed);
  const std::int64_t start = opens ? os::nanoseconds() : 0;
  const Module& m = module();
  CodegenResult result;
  if (opens) result.open_ms = static_cast<double>(os::nanoseconds() - start) / 1e6;
  if (!os::has_room(kRoom))
    throw MemoryError(
        fmt::format("out of memory: the system cannot provide {} more bytes, which the compiler may need for a kernel", kRoom));
  const Compiling scope;
  if (const char* const error = in_module([&] { return m.entry(&request, &result); })) {
    if (result.out_of_memory) throw MemoryError("out of memory while compiling a kernel");
    throw NotGenerated(error);
  }
  return result;
}

bool in_code_generator() noexcept { return inside > 0; }

bool outlives_exit() noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;  // the leak checker reads every thread's memory at exit, and fails if a thread is changing it
#endif
  const Module* const m = current.load(std::memory_order_acquire);
  return !m || m->has_llvm;
}

std::optional<Sha256> Sha256::begin() try {
  const auto& functions = module().sha256;
  if (!functions.make || !functions.destroy || !functions.add || !functions.finish) return std::nullopt;
  Sha256 sum;
  sum.state_ = std::shared_ptr<void>(in_module(functions.make), functions.destroy);
  if (!sum.state_) return std::nullopt;
  return sum;
} catch (const Error&) { return std::nullopt; }

void Sha256::add(const void* bytes, std::size_t size) {
  const auto& functions = module().sha256;
  in_module([&] { functions.add(state_.get(), bytes, size); });
}

std::string Sha256::finish() {
  unsigned char digest[32];
  const auto& functions = module().sha256;
  in_module([&] { functions.finish(state_.get(), digest); });
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

std::string llvm_version() {
  const Module& m = module();
  return m.version ? in_module(m.version) : "unknown";
}

}  // namespace onepass::compiler
