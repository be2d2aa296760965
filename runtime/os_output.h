// Files that are written: whole or not at all, under a temporary name that becomes the target's in one step; and what cannot be replaced so
// (pipes, devices, standard output), which gets its bytes in place. Called by runtime/npy.cpp, the disk cache and the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace onepass::os {

/// Where a path leads: symbolic links are followed one by one, the last one too where what it names is not there yet.
struct FilePlace {
  std::string path;           ///< of the file itself
  int descriptor = -1;        ///< that of this process that the path names: /dev/stdout, /dev/fd/3, /proc/self/fd/3; else -1
  bool exists = false;        ///< the file; its folder does in any case
  bool in_place = false;      ///< written where it is, never renamed over: a pipe, a device, a socket, an open file named by its descriptor
  bool is_character = false;  ///< a terminal or a device such as /dev/null, which two may write to
  std::string name;           ///< in its folder
  std::uint64_t device = 0, inode = 0, folder_device = 0,
                folder_inode = 0;  ///< of the file where it exists; of the folder where it has one
};

/// Throws IoError, its sentence beginning with `what` and the path, where the path cannot be followed to an existing folder.
FilePlace place_of(const char* what, const std::string& path);
/// Whether writing one changes what the other path gives. Two hard links of one file are two places: a file is replaced, not changed.
bool same_place(const FilePlace& a, const FilePlace& b);

/// A file that appears whole or not at all: written under a temporary name in the target's folder, renamed by `commit`, deleted by
/// the destructor otherwise. A symbolic link's target is replaced, not the link. An existing file keeps its permissions and, where that is
/// permitted, its owner and group; other hard links of it keep what it was. What a FilePlace says is written in place is opened here (a named
/// pipe waits for its reader) and gets the bytes as they are written.
class AtomicFile {
 public:
  /// Throws IoError, its sentence beginning with `what` and the path, as do the functions below. `sync`: the bytes are on the disk before the
  /// file has its name.
  AtomicFile(const char* what, std::string path, bool sync = true);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  void write(const void* bytes, std::size_t size);
  /// Closes the temporary file, so that a full disk is noticed before anything is renamed.
  void finish();
  void commit();
  const std::string& path() const { return path_; }
  const FilePlace& place() const { return place_; }
  bool is_terminal() const;

  /// IoError where two have one place.
  static void check_places(std::span<const AtomicFile> files);
  /// Renames all or, should one fail, none: what was renamed before is put back. Signals wait until it is done.
  static void commit_all(std::span<AtomicFile> files);

 private:
  [[noreturn]] void fail(const char* doing, int error);
  void rename_into_place();

  const char* what_;
  std::string path_;  // as the caller named it, for messages
  FilePlace place_;
  bool sync_;
  std::string temporary_;  // empty for what is written in place, and after the rename
  std::string backup_;     // what stood at the target, while `commit_all` may still have to put it back
  int descriptor_ = -1;
};

/// Writes a small file as AtomicFile does, without waiting for the disk; false instead of an exception.
bool write_file(const std::string& path, std::span<const std::byte> bytes) noexcept;

/// Deletes the files that have temporary names now. For a signal handler of a program that is about to end: async-signal-safe.
void remove_temporaries() noexcept;

}  // namespace onepass::os
