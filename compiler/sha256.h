// SHA-256 from LLVM. It is in the code generator's module, which this class opens. The disk cache uses it for exported archives.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace onepass::compiler {

class Sha256 {
 public:
  /// Starts a digest. Returns nullopt if the module cannot be opened.
  static std::optional<Sha256> begin();
  void add(const void* bytes, std::size_t size);
  /// Returns the digest of all bytes added, 32 bytes. The caller must not add bytes afterwards.
  std::string finish();

 private:
  Sha256() = default;
  std::shared_ptr<void> state_;
};

}  // namespace onepass::compiler
