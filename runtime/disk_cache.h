// Kernels on disk, so that a restarted program starts warm: one checksummed file for each kernel, written under a temporary name and
// renamed. Never needed and never fatal: what cannot be read, is damaged or was made by another build counts as missing. Checksums find
// damage, not malice, so the folder must belong to the user alone, and so must each entry; a folder that others can write to is refused.
// A program with more rights than its caller (setuid) has no disk cache unless it names a folder itself.
//
// Folder: `set_cache_folder`, else ONEPASS_CACHE_DIR, else $XDG_CACHE_HOME/onepass, else ~/.cache/onepass; `none` switches it off.
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
  std::int64_t damaged = 0;  // entries that were removed because their checksum or their code was wrong
  std::int64_t failed = 0;   // stores that did not succeed: full or read-only disk
};

class DiskCache {
 public:
  static constexpr std::int64_t kDefaultLimit = std::int64_t{1} << 30;
  static constexpr std::int64_t kMostEntryBytes = std::int64_t{64} << 20;

  struct Entry {
    compiler::Tier tier;
    std::string object;                  // empty: nothing is compiled yet
    std::int64_t spent_nanoseconds = 0;  // of runs in slower tiers than the optimised one, in all processes
  };
  /// What `list` and `verify` say of a file.
  struct File {
    std::string name;
    std::int64_t bytes = 0, modified = 0;
    enum class State : std::uint8_t { Usable, OtherProcessor, OtherBuild, Damaged, Untrusted } state = State::Usable;
    compiler::Tier tier = compiler::Tier::Quick;
    bool has_code = true;        // or a note alone of the time that its runs took
    std::string objection = {};  // of Untrusted: `belongs to user 1001, not to 1000`
  };

  /// An empty folder, or `none`: nothing is found and nothing is kept.
  explicit DiskCache(std::string folder, std::int64_t limit_bytes = kDefaultLimit);

  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  /// Why the folder is not used; empty when it is, does not exist yet, or was not looked at.
  std::string refusal() const;

  /// The kernel of this whole key (kernel_key), for this machine and build.
  std::optional<Entry> find(std::string_view key);
  /// Keeps it; an entry of the same key is replaced. Now and then the oldest entries beyond the limit are swept.
  void store(std::string_view key, compiler::Tier tier, std::string_view object);
  /// Runs without the optimised tier took so long, in all. Nothing where the optimised tier is kept already.
  void note_spent(std::string_view key, std::int64_t nanoseconds);
  /// What runtime/speed.h measures of this machine, for this build; and keeps it.
  enum class Figure : std::uint8_t { speed, copy };
  std::optional<double> figure(Figure which);
  void keep(Figure which, double value);
  /// The entry turned out to be of no use: its code cannot be loaded.
  void discard(std::string_view key);

  DiskCacheStats stats() const;
  std::vector<File> list() const;  // reads every entry
  std::int64_t remove_damaged();   // and those that are not trusted; how many there were
  std::int64_t clear();            // removes all entries, of all builds; how many there were
  /// All entries in one file, to be imported by an equal machine. IoError where it cannot be written.
  /// The archive's digest is kept in the folder, where the compiler's module is there to compute it.
  std::int64_t export_to(const std::string& path);
  struct Imported {
    std::int64_t added = 0, other_processor = 0, other_build = 0, damaged = 0;
  };
  /// Error where the file is no archive; entries that this machine or build cannot use are counted and left out. An archive is code, so one that
  /// is not, byte for byte, what this folder's owner exported is an Error, unless it is `trusted`.
  Imported import_from(const std::string& path, bool trusted = false);

 private:
  std::string folder_;
  std::int64_t limit_;
  mutable TableMutex mutex_;                                                           // of what follows
  mutable os::PrivateFolder checked_{os::PrivateFolder::State::Missing, {}, nullptr};  // looked at again as long as it is missing
  DiskCacheStats stats_;
  std::int64_t stored_since_sweep_ = -1;  // bytes; -1: not swept yet

  // The folder, or null where there is none that may be used. `even_refused`: to look at and to clear.
  std::shared_ptr<const os::Folder> open_folder(bool create, bool even_refused = false) const;
  void write(std::string_view key, const Entry& entry);
  void sweep(const os::Folder& folder);
};

/// The process's, in the folder that the environment named when it was first asked for.
DiskCache& disk_cache();
/// What the environment names: a folder, `none`, or nothing.
std::string cache_folder_of_environment();

}  // namespace onepass::runtime
