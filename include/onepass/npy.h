// Arrays in NumPy's .npy files. Files are written completely or not at all. Programs and the `onepass` command use it.
#pragma once

#include <string>

#include "onepass/array.h"
#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

/// Reads a .npy file of format 1.0, 2.0 or 3.0, in either byte order, in C or Fortran order: bool, i1 to i8, u1 to u8, f2, f4, f8. The
/// Array is writable, but writes do not reach the file. Fortran order gives a strided Array without a copy.
///
/// The file is read, not mapped, because truncation of a mapped file kills the process. To map a file, map it yourself and `wrap` it with
/// its owner.
///
/// Errors: IoError, one sentence that names the file, if it cannot be read or is not an .npy file. It is also thrown if the size differs
/// from the header's, or if the dtype is unknown. The size is checked before memory is allocated.
ONEPASS_API
Array load_npy(const std::string& path);

struct SaveOptions {
  bool sync = true;  ///< the bytes are synced (fsync) before the rename: a power failure leaves the old or the new file, complete
};

/// Writes format 1.0, little-endian, in C order; bf16 as u16 (restore it with `bitcast`). The file appears completely or not at all. The
/// new file replaces an existing file and gets its permissions and, where permitted, its owner and group. Other hard links keep the old
/// file.
///
/// Pipes, devices and open files named by descriptor (/dev/stdout, /dev/fd/3) are written in place. Throws IoError with the file name if
/// it cannot be written, and ValueError for an Array without memory.
ONEPASS_API
void save_npy(const std::string& path, const Array& array, SaveOptions options = {});

/// Several files that appear together or not at all. `add` writes each file under a temporary name in its folder; `commit` renames them
/// all. Without `commit`, the destructor removes all files. Targets that are written in place get their bytes in `commit`, before any
/// rename.
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

  /// Writes one file under a temporary name. Errors: as save_npy.
  void add(const std::string& path, const Array& array);
  /// Renames all files. Throws IoError if two files have the same name or a rename fails; all previous files are then restored.
  void commit();

 private:
  struct Body;
  detail::Shared<Body> body_;
};

}  // namespace onepass
