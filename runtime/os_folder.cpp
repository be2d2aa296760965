// See os_folder.h.
#include "runtime/os_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

#include <fmt/format.h>

namespace onepass::os {
namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

// mkdir -p -m 700. 0, or the error of the folder that could not be made.
int make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!part.empty() && ::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return errno;
    if (end == std::string::npos) return 0;
  }
}

}  // namespace

PrivateFolder private_folder(const std::string& path, bool create) {
  using State = PrivateFolder::State;
  const auto refused = [](std::string reason) { return PrivateFolder{State::Refused, std::move(reason)}; };
  const auto unavailable = [](std::string reason) { return PrivateFolder{State::Unavailable, std::move(reason)}; };
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return unavailable(fmt::format("cannot be read: {}", text_of(errno)));
    if (!create) return {State::Missing, {}};
    if (const int error = make_folders(path)) return unavailable(fmt::format("cannot be made: {}", text_of(error)));
    if (::stat(path.c_str(), &status) != 0) return unavailable(fmt::format("cannot be read: {}", text_of(errno)));
  }
  if (!S_ISDIR(status.st_mode)) return refused("is not a folder");
  if (status.st_uid != ::geteuid()) return refused(fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()));
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return refused(fmt::format("can be written to by others (mode {:o}); chmod 700 makes it usable", status.st_mode & 0777u));
  return {State::Usable, {}};
}

std::vector<FileInfo> list_files(const std::string& folder) {
  std::vector<FileInfo> files;
  DIR* const directory = ::opendir(folder.c_str());
  if (!directory) return files;
  while (const dirent* const entry = ::readdir(directory)) {
    struct stat status;
    if (::fstatat(::dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    files.push_back({entry->d_name, static_cast<std::int64_t>(status.st_size), static_cast<std::int64_t>(status.st_mtime)});
  }
  ::closedir(directory);
  return files;
}

bool remove_file(const std::string& path) noexcept { return ::unlink(path.c_str()) == 0; }

void touch_file(const std::string& path) noexcept { ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

std::int64_t wall_clock_seconds() noexcept { return static_cast<std::int64_t>(::time(nullptr)); }

}  // namespace onepass::os
