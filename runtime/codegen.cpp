// Opens the code generator, libonepass_llvm.so, at the first compile, and calls it.
#include "compiler/codegen.h"

#include <string>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/os.h"

namespace onepass::compiler {
namespace {

struct Module {
  CodegenEntry entry = nullptr;
  const char* (*version)() = nullptr;
  std::string error;
};

const Module& module() {
  static const Module* const opened = [] {
    auto* const m = new Module;
    static constexpr const char* kName = "libonepass_llvm.so";
    std::string first, second;
    void* library = os::open_library(kName, &first);
    if (!library) {
      if (const std::string folder = os::library_folder(); !folder.empty()) {
        for (const std::string& path : {folder + "/" + kName, folder + "/../lib/" + kName}) {
          std::string why;
          library = os::open_library(path, &why);
          if (library) break;
          if (second.empty()) second = why;
        }
      }
    }
    if (!library) {
      m->error = fmt::format("The code generator {} cannot be opened ({}{}{}); install it beside libonepass.so, or use mode reference.",
                             kName, first, second.empty() ? "" : "; ", second);
      return m;
    }
    m->entry = reinterpret_cast<CodegenEntry>(os::find_symbol(library, kCodegenEntry));
    m->version = reinterpret_cast<const char* (*)()>(os::find_symbol(library, "onepass_llvm_version"));
    if (!m->entry)
      m->error =
          fmt::format("The code generator {} has no entry point {}; it belongs to another version of onepass.", kName, kCodegenEntry);
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
