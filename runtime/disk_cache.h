// Kernels on disk, so that a restarted program does not compile them again. Each kernel is one checksummed file, written under a
// temporary name and renamed. The cache is optional and its errors are not fatal: unreadable, damaged and foreign-build entries count as
// misses.
//
// Checksums detect damage, not attacks. The folder and each entry must belong to the user; a folder that other users can write to is
// refused. A setuid program has no disk cache unless it sets a folder itself.
//
// Folder: `set_cache_folder`, else ONEPASS_CACHE_DIR, else $XDG_CACHE_HOME/onepass, else ~/.cache/onepass; `none` disables the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen.h"
#include "runtime/fork.h"
#include "runtime/os_folder.h"

namespace onepass::runtime {

struct DiskCacheStats {
  std::int64_t hits = 0, misses = 0, stores = 0;
  std::int64_t damaged = 0;  // entries removed because of a bad checksum or bad code
  std::int64_t failed = 0;   // failed stores, for example on a full or read-only disk
};

class DiskCache {
 public:
  static constexpr std::int64_t kDefaultLimit = std::int64_t{1} << 30;
  static constexpr std::int64_t kMostEntryBytes = std::int64_t{64} << 20;

  struct Entry {
    compiler::Tier tier;
    std::string object;                  // empty: not compiled yet
    std::int64_t spent_nanoseconds = 0;  // time of runs in tiers below the optimized tier, in all processes
  };
  /// A file, as reported by `list` and `verify`.
  struct File {
    std::string name;
    std::int64_t bytes = 0, modified = 0;
    enum class State : std::uint8_t { Usable, OtherProcessor, OtherBuild, Damaged, Untrusted } state = State::Usable;
    compiler::Tier tier = compiler::Tier::Quick;
    bool has_code = true;        // false: the entry only records the time of its runs
    std::string objection = {};  // for Untrusted: `belongs to user 1001, not to 1000`
  };

  /// Constructs a cache. With an empty folder or `none`, it finds and stores nothing.
  explicit DiskCache(std::string folder, std::int64_t limit_bytes = kDefaultLimit);

  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  /// Returns why the folder is refused; empty if it is used, does not exist yet, or was not checked yet.
  std::string refusal() const;

  /// Returns the kernel with this complete key (kernel_key), for this machine and build.
  std::optional<Entry> find(std::string_view key);
  /// Stores an entry; replaces an entry with the same key. Occasionally removes the oldest entries beyond the limit.
  void store(std::string_view key, compiler::Tier tier, std::string_view object);
  /// Adds to the time of runs without the optimized tier. Does nothing if the optimized tier is already on disk.
  void note_spent(std::string_view key, std::int64_t nanoseconds);
  /// Machine measurements of runtime/speed.h, stored for this build.
  enum class Figure : std::uint8_t { speed, copy };
  std::optional<double> figure(Figure which);
  void keep(Figure which, double value);
  /// Removes an entry with code that cannot be loaded.
  void discard(std::string_view key);

  DiskCacheStats stats() const;
  std::vector<File> list() const;  // reads every entry
  std::int64_t remove_damaged();   // also removes untrusted entries; returns their number
  std::int64_t clear();            // removes all entries of all builds; returns their number
  /// Writes all entries to one file, for import on an equal machine. Throws IoError if it cannot be written. Keeps the archive's digest
  /// in the folder if the compiler module is available to compute it.
  std::int64_t export_to(const std::string& path);
  struct Imported {
    std::int64_t added = 0, other_processor = 0, other_build = 0, damaged = 0;
  };
  /// Imports an archive. Throws Error if the file is not an archive; counts and skips entries that this machine or build cannot use. An
  /// archive is executable code. Unless `trusted`, it must therefore be byte for byte an export by this folder's owner; otherwise the
  /// function throws Error.
  Imported import_from(const std::string& path, bool trusted = false);

 private:
  std::string folder_;
  std::int64_t limit_;
  mutable TableMutex mutex_;                                                           // guards the members below
  mutable os::PrivateFolder checked_{os::PrivateFolder::State::Missing, {}, nullptr};  // checked again while it does not exist
  DiskCacheStats stats_;
  std::int64_t stored_since_sweep_ = -1;  // bytes; -1: not swept yet

  // Opens the folder; null if no folder is usable. `even_refused`: also opens a refused folder, to list or clear it.
  std::shared_ptr<const os::Folder> open_folder(bool create, bool even_refused = false) const;
  void write(std::string_view key, const Entry& entry);
  void sweep(const os::Folder& folder);
};

/// Returns the process's cache. The environment names its folder at the first use.
DiskCache& disk_cache();
/// Returns the setting in the environment: a folder, `none`, or empty.
std::string cache_folder_of_environment();

}  // namespace onepass::runtime
