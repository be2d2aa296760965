// What the disk cache asks of the file system, apart from os.h because nothing else does.
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

/// A folder that is held open. Its files are reached through the descriptor, so nobody can put another folder in its place; symbolic links
/// are not followed. Names have no slash.
class Folder {
 public:
  Folder(std::string path, int descriptor) noexcept;  ///< takes the descriptor
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// False when the descriptor is another file's by now: a host may close what it did not open. Then nothing below may be called.
  bool is_open() const noexcept;

  struct Content {
    std::optional<std::string> bytes;  // nothing: it is missing, cannot be read, or is refused
    std::string refusal;               // why it is not trusted: the end of a sentence
  };
  /// Reads a file that is regular, belongs to this user, cannot be written to by others and has at most `most_bytes`. The size is looked at before
  /// a byte is read.
  Content read(const std::string& name, std::int64_t most_bytes) const;
  /// Writes a file that only this user can read, under a temporary name that is then renamed. False where that fails.
  bool write(const std::string& name, std::span<const std::byte> bytes) const noexcept;
  bool remove(const std::string& name) const noexcept;
  /// Sets the file's time to now.
  void touch(const std::string& name) const noexcept;
  /// All but folders, in no order; empty when it cannot be read.
  std::vector<FileInfo> list() const;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t device_ = 0, inode_ = 0;
};

/// Is this a folder that only this user can write to, in folders that only this user and root can change?
struct PrivateFolder {
  enum class State : std::uint8_t { Usable, Missing, Unavailable, Refused } state;
  std::string reason;                    // why it cannot be had, or is refused as unsafe: the end of a sentence
  std::shared_ptr<const Folder> folder;  // open where it is usable, and where it is a folder that is refused
};
/// With `create` a missing folder and its parents are made, for this user alone. Parents are checked up to the user's home folder, else up to
/// the root, as sshd does; a sticky one such as /tmp is accepted, since others cannot rename what is in it.
PrivateFolder private_folder(const std::string& path, bool create);

/// Seconds since 1970.
std::int64_t wall_clock_seconds() noexcept;

}  // namespace onepass::os
