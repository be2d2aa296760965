// See compiler/sha256.h.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/SHA256.h>

#include "onepass/export.h"

extern "C" ONEPASS_API
void* onepass_sha256_new() { return new (std::nothrow) llvm::SHA256; }

extern "C" ONEPASS_API
void onepass_sha256_delete(void* state) { delete static_cast<llvm::SHA256*>(state); }

extern "C" ONEPASS_API
void onepass_sha256_add(void* state, const void* bytes, std::size_t size) {
  static_cast<llvm::SHA256*>(state)->update(llvm::ArrayRef(static_cast<const std::uint8_t*>(bytes), size));
}

/// Writes the digest to `digest`, which must have room for 32 bytes.
extern "C" ONEPASS_API
void onepass_sha256_finish(void* state, unsigned char* digest) {
  const auto bytes = static_cast<llvm::SHA256*>(state)->final();
  std::memcpy(digest, bytes.data(), bytes.size());
}
