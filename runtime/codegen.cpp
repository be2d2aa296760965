// Opens the code generator, libonepass_llvm.so, at the first compile, and calls it.
#include "compiler/codegen.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/version.h"
#include "runtime/os.h"

namespace onepass::compiler {
namespace {

// Folders of the module, seen from the library's or the program's own: installed with it (cmake/install.cmake), beside it, and in a build
// folder, where programs stand beside lib/.
constexpr std::string_view kFolders[] = {ONEPASS_MODULE_FROM_LIBRARY, ONEPASS_MODULE_FROM_PROGRAM, ".", "../lib"};
constexpr std::string_view kName = "libonepass_llvm.so";

struct Module {
  CodegenEntry entry = nullptr;
  const char* (*version)() = nullptr;
  std::string error;
};

// By a path of ours first: the system's search might find the module of another version.
void* open_module(std::string& why) {
  std::string first_failure;
  if (const std::string folder = os::library_folder(); !folder.empty())
    for (const std::string_view relative : kFolders) {
      const std::string path = fmt::format("{}/{}/{}", folder, relative, kName);
      if (!os::file_exists(path)) continue;
      std::string failure;
      if (void* const library = os::open_library(path, &failure)) return library;
      if (first_failure.empty()) first_failure = failure;
    }
  void* const library = os::open_library(std::string(kName), &why);
  if (!library && !first_failure.empty()) why = first_failure;
  return library;
}

const Module& module() {
  static const Module* const opened = [] {
    auto* const m = new Module;
    std::string why;
    void* const library = open_module(why);
    if (!library) {
      m->error =
          fmt::format("The code generator {} cannot be opened ({}); install it beside libonepass.so, or use mode reference.", kName, why);
      return m;
    }
    // Request and result are C++ structures, so both sides must be of one version.
    const auto built_for = reinterpret_cast<const char* (*)()>(os::find_symbol(library, "onepass_llvm_built_for"));
    const std::string_view version = built_for ? built_for() : "an unknown version";
    m->entry = reinterpret_cast<CodegenEntry>(os::find_symbol(library, kCodegenEntry));
    if (!m->entry || version != ONEPASS_VERSION) {
      m->error = fmt::format("The code generator {} belongs to onepass {}, this is {}; install both from one build.", kName, version,
                             ONEPASS_VERSION);
      m->entry = nullptr;
      return m;
    }
    m->version = reinterpret_cast<const char* (*)()>(os::find_symbol(library, "onepass_llvm_version"));
    return m;
  }();
  if (!opened->entry) throw Error(opened->error);
  return *opened;
}

}  // namespace

CodegenResult generate(const CodegenRequest& request) {
  CodegenResult result;
  if (const char* const error = module().entry(&request, &result)) throw InternalError(error);
  return result;
}

std::string llvm_version() {
  const Module& m = module();
  return m.version ? m.version() : "unknown";
}

}  // namespace onepass::compiler
