// See os_folder.h.
#include "runtime/os_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "runtime/os.h"

namespace onepass::os {
namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

// Works like mkdir -p -m 700. Returns 0, or the error of the folder that could not be created.
int make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!part.empty() && ::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return errno;
    if (end == std::string::npos) return 0;
  }
}

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

// Returns a path without symbolic links; empty if it does not exist.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), std::free);
  return resolved ? resolved.get() : std::string();
}

// Owner of a descriptor; the destructor closes it.
struct Descriptor {
  int value = -1;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  void become(int descriptor) {
    if (value >= 0) ::close(value);
    value = descriptor;
  }
};

std::string owner_objection(const struct stat& status) {
  return fmt::format("belongs to user {}, not to user {}", status.st_uid, ::geteuid());
}

}  // namespace

Folder::Folder(std::string path, int descriptor) noexcept : path_(std::move(path)), descriptor_(descriptor) {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) return;
  device_ = static_cast<std::uint64_t>(status.st_dev);
  inode_ = static_cast<std::uint64_t>(status.st_ino);
}

Folder::~Folder() {
  if (is_open()) ::close(descriptor_);
}

bool Folder::is_open() const noexcept {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode) && static_cast<std::uint64_t>(status.st_dev) == device_ &&
         static_cast<std::uint64_t>(status.st_ino) == inode_;
}

Folder::Content Folder::read(const std::string& name, std::int64_t most_bytes) const {
  const Descriptor file(::openat(descriptor_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.value < 0) return {std::nullopt, errno == ELOOP ? "is a symbolic link" : ""};
  struct stat status;
  if (::fstat(file.value, &status) != 0) return {};
  if (!S_ISREG(status.st_mode)) return {std::nullopt, "is not a regular file"};
  if (status.st_uid != ::geteuid()) return {std::nullopt, owner_objection(status)};
  if (status.st_mode & kOthersWrite)
    return {std::nullopt, fmt::format("can be written to by other users (mode {:o})", status.st_mode & 0777u)};
  if (status.st_size > most_bytes) return {std::nullopt, fmt::format("has {} bytes; the maximum is {}", status.st_size, most_bytes)};
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.value, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    done += static_cast<std::size_t>(count);
  }
  return {std::move(bytes), {}};
}

bool Folder::write(const std::string& name, std::span<const std::byte> bytes) const noexcept {
  static constinit std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    char temporary[100];
    std::snprintf(temporary, sizeof temporary, ".onepass-%ld-%u-%llx.tmp", static_cast<long>(::getpid()), counter.fetch_add(1),
                  static_cast<unsigned long long>(nanoseconds()));
    const int file = ::openat(descriptor_, temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return false;
    bool good = true;
    for (std::size_t done = 0; good && done < bytes.size();) {
      const ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) good = false;
      else done += static_cast<std::size_t>(count);
    }
    good = ::close(file) == 0 && good;
    good = good && ::renameat(descriptor_, temporary, descriptor_, name.c_str()) == 0;
    if (!good) ::unlinkat(descriptor_, temporary, 0);
    return good;
  }
  return false;
}

bool Folder::remove(const std::string& name) const noexcept { return ::unlinkat(descriptor_, name.c_str(), 0) == 0; }

void Folder::touch(const std::string& name) const noexcept { ::utimensat(descriptor_, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW); }

std::vector<FileInfo> Folder::list() const {
  std::vector<FileInfo> files;
  // Uses a new descriptor, because the kept descriptor has one read position for all threads.
  const int copy = ::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(copy < 0 ? nullptr : ::fdopendir(copy), ::closedir);
  if (!directory) {
    if (copy >= 0) ::close(copy);
    return files;
  }
  while (const dirent* const entry = ::readdir(directory.get())) {
    struct stat status;
    if (::fstatat(descriptor_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(status.st_mode)) continue;
    files.push_back({entry->d_name, static_cast<std::int64_t>(status.st_size), static_cast<std::int64_t>(status.st_mtime)});
  }
  return files;
}

PrivateFolder private_folder(const std::string& path, bool create) {
  using State = PrivateFolder::State;
  const auto unavailable = [](int error, const char* doing) {
    return PrivateFolder{State::Unavailable, fmt::format("cannot be {}: {}", doing, text_of(error)), nullptr};
  };
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return unavailable(errno, "read");
    if (!create) return {State::Missing, {}, nullptr};
    if (const int error = make_folders(path)) return unavailable(error, "made");
  }
  const std::string real = real_path(path);
  if (real.empty()) return unavailable(errno, "read");

  // Opens each folder relative to the previous folder, from the top, so that the checked folders are the used folders.
  const std::string home = real_path(environment("HOME").value_or("/"));
  const bool in_home = home.size() > 1 && real.starts_with(home) && (real.size() == home.size() || real[home.size()] == '/');
  std::size_t at = in_home ? home.size() : 1;
  std::string objection;  // objection to a parent; an objection to the folder itself has precedence
  Descriptor current(::open(real.substr(0, at).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  for (bool last = at >= real.size(); current.value >= 0; last = at >= real.size()) {
    if (::fstat(current.value, &status) != 0) break;
    if (last) break;
    if (objection.empty() && status.st_uid != 0 && status.st_uid != ::geteuid())
      objection = fmt::format("is in {}, which {}", real.substr(0, at), owner_objection(status));
    if (objection.empty() && (status.st_mode & kOthersWrite) && !(status.st_mode & S_ISVTX))
      objection = fmt::format("is in {}, which other users can write to (mode {:o}; run `chmod go-w {}`)", real.substr(0, at),
                              status.st_mode & 07777u, real.substr(0, at));
    const std::size_t begin = real[at] == '/' ? at + 1 : at, end = std::min(real.find('/', begin), real.size());
    const bool is_last = end == real.size();
    const int next = ::openat(current.value, real.substr(begin, end - begin).c_str(),
                              (is_last ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int error = errno;
    current.become(next);
    if (next < 0 && is_last && error == ENOTDIR) return {State::Refused, "is not a folder", nullptr};
    if (next < 0) return unavailable(error, "read");
    at = end;
  }
  if (current.value < 0) return unavailable(errno, "read");
  if (real.size() == 1 || (in_home && real.size() == home.size())) {  // only the start folder was opened, with O_PATH
    const int readable = ::openat(current.value, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = errno;
    current.become(readable);
    if (readable < 0) return unavailable(error, "read");
  }
  auto folder = std::make_shared<const Folder>(real, current.value);
  current.value = -1;  // now owned by the folder
  const auto refused = [&](std::string reason) { return PrivateFolder{State::Refused, std::move(reason), folder}; };
  if (status.st_uid != ::geteuid()) return refused(owner_objection(status));
  if (status.st_mode & kOthersWrite)
    return refused(fmt::format(
        "can be written to by other users (mode {:o}; delete its contents, which other users may have written, then run `chmod 700` on it)",
        status.st_mode & 0777u));
  if (!objection.empty()) return refused(objection);
  return {State::Usable, {}, std::move(folder)};
}

std::int64_t wall_clock_seconds() noexcept { return static_cast<std::int64_t>(::time(nullptr)); }

}  // namespace onepass::os
