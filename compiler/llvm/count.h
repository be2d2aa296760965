// count_accesses: a kernel that counts, element by element, what it loads and stores of arrays: tests compare that with what the schedule
// says. Called by codegen.cpp where a request asks for it, right after emit.
#pragma once

#include <cstdint>

#include <llvm/IR/Module.h>

namespace onepass::compiler {

/// Metadata of a pointer that a kernel loads from its words and that is not an array's: of partial results that items share, of a table.
inline constexpr const char* kNoArray = "onepass.no_array";

/// Two more words follow the kernel's `total`: how far behind an element, in bytes, its counter of loads lies, and its counter of stores.
/// A counter is one byte, that of the element's first byte, and stops at 255. Arrays are what is reached through pointers among the words;
/// the words themselves, scratch and the stack are not counted. Items must be run one after the other. InternalError for a pointer of
/// another origin, or an access of a kind that is not known here.
void count_accesses(llvm::Module& module, std::uint32_t total);

}  // namespace onepass::compiler
