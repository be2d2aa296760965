// Output files that appear completely or not at all: they are written under a temporary name and renamed in one step. Targets that cannot
// be replaced (pipes, devices, standard output) are written in place. Used by runtime/npy.cpp, the disk cache and the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace onepass::os {

/// The file that a path refers to. Symbolic links are resolved one by one, including a last link with an absent target.
struct FilePlace {
  std::string path;           ///< path of the file itself
  int descriptor = -1;        ///< open descriptor that the path names: /dev/stdout, /dev/fd/3, /proc/self/fd/3; else -1
  bool exists = false;        ///< true if the file exists; its folder always does
  bool in_place = false;      ///< written in place, not replaced: a pipe, device, socket or open descriptor
  bool is_character = false;  ///< a terminal or a device such as /dev/null, which may have two writers
  std::string name;           ///< file name in its folder
  std::uint64_t device = 0, inode = 0, folder_device = 0,
                folder_inode = 0;  ///< ids of an existing file; ids of the folder, if any
};

/// Resolves a path. Throws IoError, whose message starts with `what` and the path, if the path does not lead to an existing folder.
FilePlace place_of(const char* what, const std::string& path);
/// True if writing to one path changes the contents of the other path. False for two hard links, because a file is replaced, not modified.
bool same_place(const FilePlace& a, const FilePlace& b);

/// A file that appears completely or not at all. It is written under a temporary name in the target's folder; `commit` renames it,
/// otherwise the destructor deletes it. For a symbolic link, the linked file is replaced.
///
/// An existing file's permissions and, where permitted, its owner and group are kept; its other hard links keep the old contents. A
/// target with FilePlace::in_place is opened directly (a named pipe waits for its reader) and written immediately.
class AtomicFile {
 public:
  /// Opens the file. All functions throw IoError with a message that starts with `what` and the path. If `sync` is true, the bytes are
  /// synced to the disk before the rename.
  AtomicFile(const char* what, std::string path, bool sync = true);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  void write(const void* bytes, std::size_t size);
  /// Closes the temporary file, so that a full disk is detected before any rename.
  void finish();
  void commit();
  const std::string& path() const { return path_; }
  const FilePlace& place() const { return place_; }
  bool is_terminal() const;

  /// Throws IoError if two files have the same target.
  static void check_places(std::span<const AtomicFile> files);
  /// Renames all files. If a rename fails, restores all previous files. Signals are deferred until it is finished.
  static void commit_all(std::span<AtomicFile> files);

 private:
  [[noreturn]] void fail(const char* doing, int error);
  void rename_into_place();

  const char* what_;
  std::string path_;  // as the caller named it, for messages
  FilePlace place_;
  bool sync_;
  std::string temporary_;  // empty for in-place targets, and after the rename
  std::string backup_;     // the target's previous file, while `commit_all` may have to restore it
  int descriptor_ = -1;
};

/// Writes a small file like AtomicFile, without syncing. Returns false instead of throwing.
bool write_file(const std::string& path, std::span<const std::byte> bytes) noexcept;

/// Deletes all files that have temporary names. Async-signal-safe, for a signal handler of a program that is about to end.
void remove_temporaries() noexcept;

}  // namespace onepass::os
