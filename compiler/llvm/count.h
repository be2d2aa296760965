// count_accesses: makes a kernel count its loads and stores of array elements. Tests compare the counts with the schedule's traffic
// estimates. codegen.cpp calls it right after emit if a request sets `count`.
#pragma once

#include <cstdint>

#include <llvm/IR/Module.h>

namespace onepass::compiler {

/// Metadata of a pointer in the kernel parameters that does not point to an array, but to shared partial results or to a pointer table.
inline constexpr const char* kNoArray = "onepass.no_array";

/// Instruments the kernel. Two more kernel parameters follow the first `total`: the distances in bytes from an element to its load counter
/// and to its store counter. A counter is one byte, at the element's first byte, and saturates at 255.
/// Only arrays reached through pointers in the kernel parameters are counted, not the parameters, scratch or the stack. Tasks must run one
/// after the other. Throws InternalError for a pointer of another origin or an unknown kind of access.
void count_accesses(llvm::Module& module, std::uint32_t total);

}  // namespace onepass::compiler
