// Checks for a code generator on this machine. Without a code generator, only mode reference can be tested, so tests of compiled modes are
// skipped.
#pragma once

#include <cstdio>

#include "compiler/codegen.h"
#include "onepass/error.h"

namespace onepass::test {

inline bool has_codegen() {
  static const bool has = [] {
    try {
      return !compiler::llvm_version().empty();
    } catch (const Error& error) {
      std::printf("no code generator: only mode reference is tested. %s\n", error.what());
      return false;
    }
  }();
  return has;
}

}  // namespace onepass::test
