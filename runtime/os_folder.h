// File system operations of the disk cache. They are separate from os.h because only the cache uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace onepass::os {

struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  // seconds since 1970
};

/// An open folder. Its files are accessed through the descriptor, so nobody can substitute another folder. Symbolic links are not
/// followed. Names contain no slash.
class Folder {
 public:
  Folder(std::string path, int descriptor) noexcept;  ///< takes ownership of the descriptor
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// False if the descriptor now refers to another file, because the host closed it. In this case, the functions below must not be called.
  bool is_open() const noexcept;

  struct Content {
    std::optional<std::string> bytes;  // empty: the file does not exist, cannot be read, or is refused
    std::string refusal;               // why it is not trusted: the end of a sentence
  };
  /// Reads a regular file of at most `most_bytes` that belongs to this user and that other users cannot write. Checks the size before it
  /// reads.
  Content read(const std::string& name, std::int64_t most_bytes) const;
  /// Writes a file that only this user can read, under a temporary name, and renames it. False on failure.
  bool write(const std::string& name, std::span<const std::byte> bytes) const noexcept;
  bool remove(const std::string& name) const noexcept;
  /// Sets the file's modification time to now.
  void touch(const std::string& name) const noexcept;
  /// Returns all entries except folders, in any order; empty if the folder cannot be read.
  std::vector<FileInfo> list() const;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t device_ = 0, inode_ = 0;
};

/// The result of checking that only this user can write to a folder, and only this user and root can change its parents.
struct PrivateFolder {
  enum class State : std::uint8_t { Usable, Missing, Unavailable, Refused } state;
  std::string reason;                    // why it is unavailable or refused as unsafe: the end of a sentence
  std::shared_ptr<const Folder> folder;  // open if usable, or if it is a refused folder
};
/// Checks a folder. With `create`, creates it and its parents for this user only. Checks parents up to the user's home folder, else up to
/// the root, like sshd. Accepts sticky parents such as /tmp, because other users cannot rename entries in them.
PrivateFolder private_folder(const std::string& path, bool create);

/// Returns the seconds since 1970.
std::int64_t wall_clock_seconds() noexcept;

}  // namespace onepass::os
