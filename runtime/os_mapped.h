// Protects mapped files against truncation. Reading a page past the new end kills a process with SIGBUS. Files are therefore mapped only
// if the program installs a handler, as the `onepass` command does. The library itself does not install a handler; it reads files instead.
#pragma once

#include <cstddef>

namespace onepass::os {

/// Installs the handler permanently. Lost pages then read as zero, and was_shortened() reports them. Other SIGBUS signals keep their
/// previous effect. Must be called before other threads run.
void guard_mapped_files() noexcept;

/// Maps `bytes` of the file copy-on-write under the guard. Returns null without a handler, if the file table is full, or if mapping
/// fails.
void* map_guarded(int descriptor, std::size_t bytes) noexcept;
void unmap_guarded(void* memory, std::size_t bytes) noexcept;

/// True if the guarded file with this address was truncated after it was mapped. False for other memory.
bool was_shortened(const void* address) noexcept;

}  // namespace onepass::os
