// See disk_cache.h.
#include "runtime/disk_cache.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <span>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "code_id.h"  // generated: a hash of the sources that determine a key's code
#include "compiler/kernel_object.h"
#include "compiler/sha256.h"
#include "onepass/error.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/os_output.h"

namespace onepass::runtime {
namespace {

constexpr std::string_view kSuffix = ".kernel", kFigureSuffix = ".speed";
constexpr std::array<char, 8> kEntryMagic = {'o', 'n', 'e', 'p', 'a', 's', 's', 'K'};
constexpr std::array<char, 8> kArchiveMagic = {'o', 'n', 'e', 'p', 'a', 's', 's', 'A'};
constexpr std::uint32_t kVersion = 3;
constexpr std::int64_t kTemporaryLifetime = 3600;  // seconds after which a temporary file counts as abandoned

// The header of an entry; key and object follow. Little endian, like all supported machines.
struct Header {
  std::array<char, 8> magic = kEntryMagic;
  std::uint32_t version = kVersion;
  std::uint32_t tier = 0;
  std::uint64_t build = 0, machine = 0;
  std::uint64_t key_bytes = 0, object_bytes = 0;
  std::uint64_t spent_nanoseconds = 0;
  std::uint64_t checksum = 0;  // checksum of all other bytes
};
static_assert(sizeof(Header) == 64);

std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed = 0) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

std::uint64_t build_id() {
  static const std::uint64_t id = hash_of(kCodeId);
  return id;
}

// Returns the identity of the processors that can run the code and that it is optimized for.
std::uint64_t machine_id() {
  static const std::uint64_t id = [] {
    const compiler::Target& host = compiler::Target::host();
    return hash_of(fmt::format("{}\n{}\n{}", host.triple, host.cpu, host.features));
  }();
  return id;
}

std::string name_of(std::string_view key, std::uint64_t build, std::uint64_t machine) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), build ^ machine * 0x9E3779B97F4A7C15u);
  return fmt::format("{:016x}{:016x}{}", hash.high64, hash.low64, kSuffix);
}

std::string name_of(DiskCache::Figure which) {
  return fmt::format("{:016x}{}{}", machine_id() ^ build_id(), which == DiskCache::Figure::copy ? ".copy" : "", kFigureSuffix);
}

struct Parsed {
  Header header;
  std::string_view key, object;
};

std::uint64_t checksum_of(Header header, std::string_view rest) {
  header.checksum = 0;
  return hash_of(rest, hash_of({reinterpret_cast<const char*>(&header), sizeof header}));
}

// Parses an entry. Empty if the bytes are not a complete, undamaged entry of this version.
std::optional<Parsed> parse(std::string_view bytes) {
  Parsed p;
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  std::memcpy(&p.header, bytes.data(), sizeof(Header));
  const std::string_view rest = bytes.substr(sizeof(Header));
  if (p.header.magic != kEntryMagic || p.header.version != kVersion ||
      p.header.tier > static_cast<std::uint32_t>(compiler::Tier::Optimised) || p.header.key_bytes > rest.size() ||
      p.header.object_bytes != rest.size() - p.header.key_bytes || p.header.checksum != checksum_of(p.header, rest))
    return std::nullopt;
  p.key = rest.substr(0, static_cast<std::size_t>(p.header.key_bytes));
  p.object = rest.substr(static_cast<std::size_t>(p.header.key_bytes));
  return p;
}

DiskCache::File::State state_of(const std::optional<Parsed>& entry) {
  using State = DiskCache::File::State;
  if (!entry) return State::Damaged;
  if (entry->header.machine != machine_id()) return State::OtherProcessor;
  return entry->header.build == build_id() ? State::Usable : State::OtherBuild;
}

// True for the temporary names that os::write_file uses.
bool is_temporary(std::string_view name) { return name.starts_with(".onepass-") && name.ends_with(".tmp"); }

std::span<const std::byte> bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

}  // namespace

DiskCache::DiskCache(std::string folder, std::int64_t limit_bytes)
    : folder_(folder == "none" ? std::string() : std::move(folder)), limit_(limit_bytes) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
}

std::shared_ptr<const os::Folder> DiskCache::open_folder(bool create, bool even_refused) const {
  if (folder_.empty()) return nullptr;
  using State = os::PrivateFolder::State;
  os::PrivateFolder checked;
  {
    const std::lock_guard lock(mutex_);
    // If the host closed the descriptor, it may refer to another file by now, so the folder is opened and checked again.
    const bool known = checked_.state != State::Missing && (!checked_.folder || checked_.folder->is_open());
    if (!known)
      checked_ =
          folder_[0] == '/' ? os::private_folder(folder_, create) : os::PrivateFolder{State::Refused, "is not an absolute path", nullptr};
    if (known || even_refused) return even_refused || checked_.state == State::Usable ? checked_.folder : nullptr;
    checked = checked_;
  }
  // Logged once, because later calls check again only while the folder does not exist.
  if (checked.state == State::Refused || checked.state == State::Unavailable)
    log(checked.state == State::Refused ? LogLevel::warning : LogLevel::info, "the cache folder {} {}; kernels are kept only in memory",
        folder_, checked.reason);
  return checked.state == State::Usable ? checked.folder : nullptr;
}

std::string DiskCache::refusal() const {
  const std::lock_guard lock(mutex_);
  return checked_.reason;
}

std::optional<DiskCache::Entry> DiskCache::find(std::string_view key) {
  const std::shared_ptr<const os::Folder> folder = open_folder(false);
  if (!folder) return std::nullopt;
  const std::string name = name_of(key, build_id(), machine_id());
  const os::Folder::Content content = folder->read(name, kMostEntryBytes);
  const std::optional<Parsed> entry = content.bytes ? parse(*content.bytes) : std::nullopt;
  // Another key under the same name is a hash collision or a misnamed entry; both are misses.
  const bool good = entry && entry->header.build == build_id() && entry->header.machine == machine_id() && entry->key == key;
  const bool bad = !good && (content.bytes || !content.refusal.empty());
  if (good) folder->touch(name);  // the sweep keeps recently used files
  else if (bad) folder->remove(name);
  if (!content.refusal.empty())
    log(LogLevel::warning, "the cache entry {}/{} {}; it was ignored and removed", folder_, name, content.refusal);
  const std::lock_guard lock(mutex_);
  ++(good ? stats_.hits : stats_.misses);
  if (bad) ++stats_.damaged;
  if (!good) return std::nullopt;
  return Entry{static_cast<compiler::Tier>(entry->header.tier), std::string(entry->object),
               static_cast<std::int64_t>(std::min<std::uint64_t>(entry->header.spent_nanoseconds, std::uint64_t{1} << 60))};
}

void DiskCache::store(std::string_view key, compiler::Tier tier, std::string_view object) { write(key, {tier, std::string(object)}); }

void DiskCache::note_spent(std::string_view key, std::int64_t nanoseconds) {
  std::optional<Entry> entry = find(key);
  if (!entry) entry.emplace(Entry{compiler::Tier::Quick, {}});
  if (entry->tier == compiler::Tier::Optimised || entry->spent_nanoseconds >= nanoseconds) return;
  entry->spent_nanoseconds = nanoseconds;
  write(key, *entry);
}

std::optional<double> DiskCache::figure(Figure which) {
  const std::shared_ptr<const os::Folder> folder = open_folder(false);
  if (!folder) return std::nullopt;
  const os::Folder::Content content = folder->read(name_of(which), 64);
  double value = 0;
  if (!content.bytes || std::sscanf(content.bytes->c_str(), "%lf", &value) != 1) return std::nullopt;
  return value;
}

void DiskCache::keep(Figure which, double value) {
  if (const std::shared_ptr<const os::Folder> folder = open_folder(true))
    folder->write(name_of(which), bytes_of(fmt::format("{:.3f}\n", value)));
}

void DiskCache::write(std::string_view key, const Entry& entry) {
  if (static_cast<std::int64_t>(sizeof(Header) + key.size() + entry.object.size()) > kMostEntryBytes) return;
  const std::shared_ptr<const os::Folder> folder = open_folder(true);
  if (!folder) return;
  Header header;
  header.tier = static_cast<std::uint32_t>(entry.tier);
  header.build = build_id();
  header.machine = machine_id();
  header.key_bytes = key.size();
  header.object_bytes = entry.object.size();
  header.spent_nanoseconds = static_cast<std::uint64_t>(entry.spent_nanoseconds);
  std::string bytes(sizeof header, '\0');
  bytes.append(key).append(entry.object);
  header.checksum = checksum_of(header, std::string_view(bytes).substr(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
  const bool good = folder->write(name_of(key, build_id(), machine_id()), bytes_of(bytes));
  bool sweep_now = false;
  {
    const std::lock_guard lock(mutex_);
    ++(good ? stats_.stores : stats_.failed);
    if (good) {
      sweep_now = stored_since_sweep_ < 0 || stored_since_sweep_ > limit_ / 16;
      stored_since_sweep_ = sweep_now ? 0 : stored_since_sweep_ + static_cast<std::int64_t>(bytes.size());
    }
  }
  if (sweep_now) sweep(*folder);
}

void DiskCache::discard(std::string_view key) {
  const std::shared_ptr<const os::Folder> folder = open_folder(false);
  if (!folder) return;
  folder->remove(name_of(key, build_id(), machine_id()));
  const std::lock_guard lock(mutex_);
  ++stats_.damaged;
}

// Removes the oldest entries, down to nine tenths of the limit, so that the next store does not sweep again. Several processes may sweep
// at once; removal of an absent file is not an error.
void DiskCache::sweep(const os::Folder& folder) {
  std::vector<os::FileInfo> files = folder.list();
  std::int64_t total = 0;
  const std::int64_t now = os::wall_clock_seconds();
  std::erase_if(files, [&](const os::FileInfo& f) {
    if (f.name.ends_with(kSuffix)) {
      total += f.bytes;
      return false;
    }
    // An abandoned temporary file of a killed process. Other files in the folder are not touched.
    if (is_temporary(f.name) && now - f.modified > kTemporaryLifetime) folder.remove(f.name);
    return true;
  });
  if (total <= limit_) return;
  std::ranges::sort(files, {}, &os::FileInfo::modified);
  for (const os::FileInfo& f : files) {
    if (total <= limit_ - limit_ / 10) break;
    folder.remove(f.name);
    total -= f.bytes;
  }
}

DiskCacheStats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<DiskCache::File> DiskCache::list() const {
  std::vector<File> files;
  const std::shared_ptr<const os::Folder> folder = open_folder(false, true);
  if (!folder) return files;
  const std::string refused = refusal();
  for (os::FileInfo& f : folder->list()) {
    if (!f.name.ends_with(kSuffix)) continue;
    File file{.name = std::move(f.name), .bytes = f.bytes, .modified = f.modified};
    const os::Folder::Content content = folder->read(file.name, kMostEntryBytes);
    if (!content.bytes && content.refusal.empty()) continue;  // removed by a sweep in the meantime
    const std::optional<Parsed> entry = content.bytes ? parse(*content.bytes) : std::nullopt;
    file.state = content.bytes ? state_of(entry) : File::State::Untrusted;
    file.objection = content.refusal;
    if (entry) {
      file.tier = static_cast<compiler::Tier>(entry->header.tier);
      file.has_code = !entry->object.empty();
      if (file.name != name_of(entry->key, entry->header.build, entry->header.machine)) file.state = File::State::Damaged;
    }
    if (file.state == File::State::Usable && !refused.empty()) {
      file.state = File::State::Untrusted;
      file.objection = "is in a folder that onepass does not trust";
    }
    if (file.state == File::State::Usable && !entry->object.empty() && os::may_run_made_code()) {
      try {
        compiler::KernelObject::load(entry->object);
      } catch (const InternalError&) { file.state = File::State::Damaged; }
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::int64_t DiskCache::remove_damaged() {
  std::int64_t removed = 0;
  for (const File& file : list())
    if (file.state == File::State::Damaged || file.state == File::State::Untrusted) removed += open_folder(false, true)->remove(file.name);
  if (const std::shared_ptr<const os::Folder> folder = open_folder(false, true); folder && !refusal().empty())
    for (const os::FileInfo& f : folder->list())
      if (f.name.ends_with(kFigureSuffix)) folder->remove(f.name);
  return removed;
}

std::int64_t DiskCache::clear() {
  std::int64_t removed = 0;
  const std::shared_ptr<const os::Folder> folder = open_folder(false, true);
  if (!folder) return removed;
  for (const os::FileInfo& f : folder->list())
    if (f.name.ends_with(kSuffix)) removed += folder->remove(f.name);
    else if (f.name.ends_with(kFigureSuffix)) folder->remove(f.name);
  return removed;
}

namespace {

// The SHA-256 digests of the archives exported from a folder, 32 bytes each, the newest last.
constexpr const char* kExports = "exports.sha256";
constexpr std::size_t kDigestBytes = 32, kMostExports = 4096;

}  // namespace

std::int64_t DiskCache::export_to(const std::string& path) {
  os::AtomicFile file("cache export", path);
  std::optional<compiler::Sha256> sum = compiler::Sha256::begin();
  const auto write = [&](const void* bytes, std::size_t size) {
    file.write(bytes, size);
    if (sum) sum->add(bytes, size);
  };
  write(kArchiveMagic.data(), kArchiveMagic.size());
  std::int64_t count = 0;
  const std::shared_ptr<const os::Folder> folder = open_folder(true);
  for (const os::FileInfo& f : folder ? folder->list() : std::vector<os::FileInfo>()) {
    if (!f.name.ends_with(kSuffix)) continue;
    const os::Folder::Content content = folder->read(f.name, kMostEntryBytes);
    const std::optional<Parsed> entry = content.bytes ? parse(*content.bytes) : std::nullopt;
    if (!entry || entry->object.empty()) continue;
    const std::uint64_t size = content.bytes->size();
    write(&size, sizeof size);
    write(content.bytes->data(), content.bytes->size());
    ++count;
  }
  if (folder && sum) {
    constexpr std::size_t kMost = kDigestBytes * kMostExports;
    std::string known = folder->read(kExports, kMost).bytes.value_or("");
    known.resize(known.size() / kDigestBytes * kDigestBytes);
    if (known.size() == kMost) known.erase(0, kDigestBytes);
    known += sum->finish();
    folder->write(kExports, bytes_of(known));
  }
  file.commit();
  return count;
}

DiskCache::Imported DiskCache::import_from(const std::string& path, bool trusted) {
  // Reads instead of mapping, so that the stored bytes are the checked bytes even if the file changes.
  const os::FileBytes file = os::FileBytes::open("cache import", path);
  const std::string_view all(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const auto fail = [&](std::string_view what) { throw ValueError(fmt::format("cache import: {}: {}", path, what)); };
  if (!all.starts_with(std::string_view(kArchiveMagic.data(), kArchiveMagic.size())))
    fail("the file is not an archive of kernels. Create one with `onepass cache export FILE`");
  std::vector<std::string_view> entries;  // all entries are checked before any entry is stored
  for (std::size_t at = kArchiveMagic.size(); at < all.size();) {
    std::uint64_t size = 0;
    if (all.size() - at < sizeof size) fail("the archive ends in the middle of an entry");
    std::memcpy(&size, all.data() + at, sizeof size);
    at += sizeof size;
    if (size > all.size() - at) fail("the archive ends in the middle of an entry");
    entries.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  const std::shared_ptr<const os::Folder> folder = open_folder(true);
  if (!folder) fail(fmt::format("the cache folder {} {}", folder_, enabled() ? refusal() : "is disabled"));
  if (!trusted) {
    const std::string known = folder->read(kExports, kDigestBytes * kMostExports).bytes.value_or("");
    std::optional<compiler::Sha256> sum = known.empty() ? std::nullopt : compiler::Sha256::begin();
    bool ours = false;
    if (sum) {
      sum->add(all.data(), all.size());
      const std::string digest = sum->finish();
      for (std::size_t at = 0; at + kDigestBytes <= known.size(); at += kDigestBytes) ours |= known.compare(at, kDigestBytes, digest) == 0;
    }
    if (!ours)
      fail(
          "the archive contains machine code that your programs will run, and it does not match any archive exported from your cache "
          "folder on this machine. If you trust everyone who could have written it, pass --trust");
  }
  Imported result;
  for (const std::string_view bytes : entries) {
    const std::optional<Parsed> entry = parse(bytes);
    switch (state_of(entry)) {
      case File::State::Untrusted:
      case File::State::Damaged: ++result.damaged; continue;
      case File::State::OtherProcessor: ++result.other_processor; continue;
      case File::State::OtherBuild: ++result.other_build; continue;
      case File::State::Usable: break;
    }
    try {
      if (os::may_run_made_code()) compiler::KernelObject::load(entry->object);
    } catch (const InternalError&) {
      ++result.damaged;
      continue;
    }
    if (static_cast<std::int64_t>(bytes.size()) > kMostEntryBytes) {
      ++result.damaged;
      continue;
    }
    if (!folder->write(name_of(entry->key, build_id(), machine_id()), bytes_of(bytes)))
      fail(fmt::format("cannot write to the cache folder {}", folder_));
    ++result.added;
  }
  return result;
}

std::string cache_folder_of_environment() {
  if (const auto named = os::environment("ONEPASS_CACHE_DIR")) return *named;
  if (const auto xdg = os::environment("XDG_CACHE_HOME")) return *xdg + "/onepass";
  if (const auto home = os::environment("HOME")) return *home + "/.cache/onepass";
  return {};
}

DiskCache& disk_cache() {
  static DiskCache* const cache = new DiskCache(cache_folder_of_environment());  // never destroyed: threads may outlive main
  return *cache;
}

}  // namespace onepass::runtime
