// Mapped files that somebody shortens while they are read. Reading a page that the file no longer has ends a process by SIGBUS, so files are
// mapped only in a program that has asked for a handler; the `onepass` command does. The library alone never installs one: it reads files.
#pragma once

#include <cstddef>

namespace onepass::os {

/// Installs the handler, for good: pages that are gone read as zero, and was_shortened() says so. Other SIGBUS signals have the effect that they
/// had before. Call it before other threads run.
void guard_mapped_files() noexcept;

/// Maps the file's `bytes` copy-on-write under the guard. Null where there is no guard, no room for one more file, or no mapping.
void* map_guarded(int descriptor, std::size_t bytes) noexcept;
void unmap_guarded(void* memory, std::size_t bytes) noexcept;

/// Whether the guarded file that has this address was shortened since it was mapped. False for other memory.
bool was_shortened(const void* address) noexcept;

}  // namespace onepass::os
