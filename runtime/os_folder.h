// What the disk cache asks of the file system, apart from os.h because nothing else does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onepass::os {

/// Is this a folder that only this user can write to?
struct PrivateFolder {
  enum class State : std::uint8_t { Usable, Missing, Unavailable, Refused } state;
  std::string reason;  // why it cannot be had, or is refused as unsafe: the end of a sentence
};
/// With `create` a missing folder and its parents are made, for this user alone.
PrivateFolder private_folder(const std::string& path, bool create);

struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  // seconds since 1970
};
/// The regular files of a folder, in no order; empty when it cannot be read. Symbolic links are left out.
std::vector<FileInfo> list_files(const std::string& folder);

bool remove_file(const std::string& path) noexcept;
/// Sets the file's time to now.
void touch_file(const std::string& path) noexcept;
/// Seconds since 1970.
std::int64_t wall_clock_seconds() noexcept;

}  // namespace onepass::os
