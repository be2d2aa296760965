// See os_output.h.
#include "runtime/os_output.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/os.h"

namespace onepass::os {

namespace {

// ---- temporary names

// A list that only grows, with reusable entries, so that a signal handler can walk it at any time. Taking a name out of its entry
// transfers ownership.
struct Temporary {
  std::atomic<char*> name{nullptr};
  std::atomic<char*> removed{nullptr};  // name of a deleted file, which the signal handler must not free
  std::atomic<bool> taken{false};
  Temporary* next = nullptr;
};
std::atomic<Temporary*> temporaries{nullptr};

void remember(const std::string& name) {
  char* const copy = ::strdup(name.c_str());
  if (!copy) return;  // then a signal does not delete the file
  Temporary* entry = temporaries.load(std::memory_order_acquire);
  while (entry && entry->taken.exchange(true, std::memory_order_acq_rel)) entry = entry->next;
  if (entry) {
    entry->name.store(copy, std::memory_order_release);
    return;
  }
  entry = new (std::nothrow) Temporary;
  if (!entry) return std::free(copy);
  entry->taken.store(true, std::memory_order_relaxed);
  entry->name.store(copy, std::memory_order_relaxed);
  entry->next = temporaries.load(std::memory_order_relaxed);
  while (!temporaries.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel)) {}
}

void forget(const std::string& name) {
  for (Temporary* entry = temporaries.load(std::memory_order_acquire); entry; entry = entry->next) {
    for (std::atomic<char*>* const place : {&entry->name, &entry->removed}) {
      char* const held = place->exchange(nullptr, std::memory_order_acq_rel);
      if (!held) continue;
      if (name == held) {
        std::free(held);
        entry->taken.store(false, std::memory_order_release);
        return;
      }
      place->store(held, std::memory_order_release);
    }
  }
}

// Scope that blocks signals to the calling thread, so that the files and the list of temporary names are consistent.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

/// Creates a new file in `folder` exclusively: O_EXCL does not follow a planted link. Returns -1 with errno on failure.
int create_temporary(const std::string& folder, mode_t mode, std::string& name) {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto stamp = static_cast<unsigned long>(nanoseconds());
    name = fmt::format("{}/.onepass-{}-{}-{:x}.tmp", folder, getpid(), counter.fetch_add(1), stamp);
    const SignalsWait wait;
    const int descriptor = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
    const int error = errno;
    if (descriptor >= 0) remember(name);
    errno = error;
    if (descriptor >= 0 || error != EEXIST) return descriptor;
  }
  return -1;
}

void remove_temporary(std::string& name) {
  const SignalsWait wait;
  ::unlink(name.c_str());
  forget(name);
  name.clear();
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Returns the number that is the whole `text`; -1 if it is not a number.
int number_of(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

// Returns the descriptor that a path names, by the shells' conventions; works without /proc.
int descriptor_named(std::string_view path) {
  if (path == "/dev/stdin") return 0;
  if (path == "/dev/stdout") return 1;
  if (path == "/dev/stderr") return 2;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"})
    if (path.starts_with(folder)) return number_of(path.substr(folder.size()));
  return -1;
}

// True if this resolved folder lists the descriptors of a process: `/proc/12/fd`, `/proc/12/task/13/fd`.
bool lists_descriptors(const std::string& folder, bool& ours) {
  constexpr std::string_view proc = "/proc/", end = "/fd";
  if (!folder.starts_with(proc) || !folder.ends_with(end) || folder.size() <= proc.size() + end.size()) return false;
  const std::string_view process = std::string_view(folder).substr(proc.size(), folder.find('/', proc.size()) - proc.size());
  ours = number_of(process) == getpid();
  return number_of(process) >= 0;
}

}  // namespace

void remove_temporaries() noexcept {
  for (Temporary* entry = temporaries.load(std::memory_order_acquire); entry; entry = entry->next)
    if (char* const name = entry->name.exchange(nullptr, std::memory_order_acq_rel)) {
      ::unlink(name);
      entry->removed.store(name, std::memory_order_release);
    }
}

// ---- paths

FilePlace place_of(const char* what, const std::string& path) {
  const auto fail = [&](int error) { throw IoError(fmt::format("{}: {}: cannot be written: {}", what, path, error_text(error))); };
  if (path.empty()) throw IoError(fmt::format("{}: the file name is empty", what));
  if (path.find('\0') != std::string::npos) throw IoError(fmt::format("{}: a file name cannot contain a zero byte", what));
  FilePlace place{.path = path};
  struct stat status;
  for (int links = 0;; ++links) {
    if (links > 40) fail(ELOOP);
    if ((place.descriptor = descriptor_named(place.path)) >= 0) break;
    const std::size_t slash = place.path.rfind('/');
    place.name = slash == std::string::npos ? place.path : place.path.substr(slash + 1);
    if (place.name.empty() || place.name == "." || place.name == "..") fail(::stat(place.path.c_str(), &status) == 0 ? EISDIR : errno);
    char* const resolved = ::realpath(folder_of(place.path).c_str(), nullptr);
    if (!resolved) fail(errno);
    const std::string folder = resolved;
    std::free(resolved);
    place.path = (folder == "/" ? "" : folder) + "/" + place.name;
    bool ours = false;
    if (lists_descriptors(folder, ours)) {
      if (ours) place.descriptor = number_of(place.name);
      place.in_place = true;  // the link of another process's descriptor has no target path
      break;
    }
    if (::lstat(place.path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) {
      if (::stat(folder.c_str(), &status) == 0) place.folder_device = status.st_dev, place.folder_inode = status.st_ino;
      break;
    }
    std::string target(PATH_MAX, '\0');
    const ssize_t length = ::readlink(place.path.c_str(), target.data(), target.size());
    if (length < 0) fail(errno);
    target.resize(static_cast<std::size_t>(length));
    place.path = target.starts_with('/') ? target : folder + "/" + target;
  }
  errno = 0;
  place.exists = (place.descriptor >= 0 ? ::fstat(place.descriptor, &status) : ::stat(place.path.c_str(), &status)) == 0;
  if (!place.exists && (place.descriptor >= 0 || place.in_place || errno != ENOENT)) fail(errno);
  if (!place.exists) return place;
  if (S_ISDIR(status.st_mode)) fail(EISDIR);
  place.device = status.st_dev;
  place.inode = status.st_ino;
  place.is_character = S_ISCHR(status.st_mode);
  place.in_place = place.in_place || place.descriptor >= 0 || !S_ISREG(status.st_mode);
  return place;
}

bool same_place(const FilePlace& a, const FilePlace& b) {
  if (!a.in_place && !b.in_place) return a.folder_device == b.folder_device && a.folder_inode == b.folder_inode && a.name == b.name;
  return a.exists && b.exists && !a.is_character && a.device == b.device && a.inode == b.inode;
}

// ---- files

void AtomicFile::fail(const char* doing, int error) {
  throw IoError(fmt::format("{}: {}: {}: {}", what_, path_, doing, error_text(error)));
}

AtomicFile::AtomicFile(const char* what, std::string path, bool sync)
    : what_(what), path_(std::move(path)), place_(place_of(what, path_)), sync_(sync) {
  if (place_.descriptor >= 0) {
    const int flags = ::fcntl(place_.descriptor, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) fail("cannot be written", EBADF);
    descriptor_ = ::fcntl(place_.descriptor, F_DUPFD_CLOEXEC, 3);
    if (descriptor_ < 0) fail("cannot be written", errno);
    return;
  }
  if (place_.exists && ::access(place_.path.c_str(), W_OK) != 0) fail("cannot be written", errno);
  if (place_.in_place) {
    do descriptor_ = ::open(place_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail("cannot be written", errno);
    return;
  }
  const std::string folder = folder_of(place_.path);
  descriptor_ = create_temporary(folder, place_.exists ? 0600 : 0666, temporary_);
  if (descriptor_ < 0) {
    temporary_.clear();
    fail(errno == EACCES || errno == EPERM || errno == EROFS ? "cannot be written: a new file cannot be created in its folder"
                                                             : "cannot be written",
         errno);
  }
  struct stat status;
  if (place_.exists && ::stat(place_.path.c_str(), &status) == 0) {
    // Best effort: not every user can change the owner, and some file systems have no permissions. The owner is changed first, because a
    // change of owner may clear permissions.
    if ((status.st_uid != ::geteuid() || status.st_gid != ::getegid()) && ::fchown(descriptor_, status.st_uid, status.st_gid) != 0)
      (void)!::fchown(descriptor_, static_cast<uid_t>(-1), status.st_gid);
    (void)::fchmod(descriptor_, status.st_mode & 0777);
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : what_(other.what_),
      path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      sync_(other.sync_),
      temporary_(std::move(other.temporary_)),
      backup_(std::move(other.backup_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {
  other.temporary_.clear();  // a moved-from string may keep its text
  other.backup_.clear();
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) remove_temporary(temporary_);
  if (!backup_.empty()) remove_temporary(backup_);
}

bool AtomicFile::is_terminal() const { return place_.is_character && descriptor_ >= 0 && ::isatty(descriptor_) == 1; }

void AtomicFile::write(const void* bytes, std::size_t size) {
  if (const int error = write_fully(descriptor_, static_cast<const std::byte*>(bytes), size)) fail("cannot be written", error);
}

void AtomicFile::finish() {
  if (descriptor_ < 0) return;
  // EINVAL: the file system does not support syncing.
  if (sync_ && !temporary_.empty() && ::fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    fail("cannot be written", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("cannot be written", errno);
}

void AtomicFile::rename_into_place() {
  if (temporary_.empty()) return;
  const SignalsWait wait;
  if (::rename(temporary_.c_str(), place_.path.c_str()) != 0) fail("cannot be renamed to its final name", errno);
  forget(temporary_);
  temporary_.clear();
}

void AtomicFile::commit() {
  finish();
  rename_into_place();
}

void AtomicFile::check_places(std::span<const AtomicFile> files) {
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (same_place(files[i].place_, files[j].place_))
        throw IoError(
            fmt::format("{}: {}: two outputs have this file name. Give each output its own name.", files[i].what_, files[i].path_));
}

void AtomicFile::commit_all(std::span<AtomicFile> files) {
  check_places(files);
  for (AtomicFile& file : files) file.finish();
  const SignalsWait wait;
  // Creates a second name for each existing file. On file systems without hard links, a failed rename cannot be undone.
  if (files.size() > 1)
    for (AtomicFile& file : files) {
      if (file.temporary_.empty()) continue;
      std::string name = file.temporary_ + ".old";
      if (::link(file.place_.path.c_str(), name.c_str()) != 0) continue;
      remember(name);
      file.backup_ = std::move(name);
    }
  std::size_t done = 0;
  try {
    for (; done < files.size(); ++done) files[done].rename_into_place();
  } catch (...) {
    for (std::size_t i = 0; i < done; ++i) {
      AtomicFile& file = files[i];
      if (file.place_.in_place) continue;
      if (file.backup_.empty()) {
        if (!file.place_.exists) ::unlink(file.place_.path.c_str());
      } else if (::rename(file.backup_.c_str(), file.place_.path.c_str()) == 0) {
        forget(file.backup_);
        file.backup_.clear();
      }
    }
    throw;
  }
}

bool write_file(const std::string& path, std::span<const std::byte> bytes) noexcept {
  try {
    std::string temporary;
    const int descriptor = create_temporary(folder_of(path), 0666, temporary);
    if (descriptor < 0) return false;
    bool good = write_fully(descriptor, bytes.data(), bytes.size()) == 0;
    good = ::close(descriptor) == 0 && good;
    if (good) {
      const SignalsWait wait;
      good = ::rename(temporary.c_str(), path.c_str()) == 0;
      if (good) forget(temporary);
    }
    if (!good) remove_temporary(temporary);
    return good;
  } catch (...) {  // no memory for a name
    return false;
  }
}

}  // namespace onepass::os
