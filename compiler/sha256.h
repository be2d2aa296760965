// SHA-256, LLVM's: it is in the code generator's module, which opens for it. Asked by the disk cache for the archives that it exported.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace onepass::compiler {

class Sha256 {
 public:
  /// Nothing where the module cannot be opened.
  static std::optional<Sha256> begin();
  void add(const void* bytes, std::size_t size);
  /// The digest of all that was added, 32 bytes. Nothing may be added afterwards.
  std::string finish();

 private:
  Sha256() = default;
  std::shared_ptr<void> state_;
};

}  // namespace onepass::compiler
