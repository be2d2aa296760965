// Arrays in NumPy's .npy files: read, and written whole or not at all. Used by programs and the `onepass` command.
#pragma once

#include <string>

#include "onepass/array.h"
#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

/// Reads a .npy file of format 1.0, 2.0 or 3.0, either byte order, C or Fortran order: bool, i1 to i8, u1 to u8, f2, f4, f8.
/// The Array is writable, but what is written never reaches the file. Fortran order gives a strided Array, no copy. The file is read, not mapped: a
/// mapped file that somebody shortens ends the process. To map one all the same, map it yourself and `wrap` it with its owner.
///
/// Errors: IoError, one sentence that names the file, for one that cannot be read, is no .npy file, is shorter or longer than its
/// header says, or has an unknown dtype. Nothing is allocated on a header's word.
ONEPASS_API
Array load_npy(const std::string& path);

struct SaveOptions {
  bool sync =
      true;  ///< the bytes are on the disk (fsync) before the file has its name: after a power cut it is the old one or the new one, whole
};

/// Writes format 1.0, little-endian, C order; bf16 as u16, which `bitcast` turns back. The file appears whole or not at all. An existing one
/// is replaced: the new one gets its permissions and, where that is permitted, its owner and group, and other hard links keep the old one. A
/// pipe, a device and an open file named by its descriptor (/dev/stdout, /dev/fd/3) are written in place. IoError naming the file when it
/// cannot be written; ValueError for an Array without memory.
ONEPASS_API
void save_npy(const std::string& path, const Array& array, SaveOptions options = {});

/// Several files that appear all or none: `add` writes each under a temporary name in its folder, `commit` renames them all.
/// Destroyed without `commit`, it leaves no file. What is written in place gets its bytes in `commit`, before anything is renamed.
///
///     StagedFiles files;
///     files.add("loss.npy", loss);
///     files.add("dw.npy", dw);
///     files.commit();
class ONEPASS_API StagedFiles {
 public:
  explicit StagedFiles(SaveOptions options = {});
  StagedFiles(StagedFiles&&) noexcept;
  StagedFiles& operator=(StagedFiles&&) noexcept;
  ~StagedFiles();

  /// Errors as save_npy's.
  void add(const std::string& path, const Array& array);
  /// IoError when two have one name or a rename fails; then none appears, and what was there before is still there.
  void commit();

 private:
  struct Body;
  detail::Shared<Body> body_;
};

}  // namespace onepass
