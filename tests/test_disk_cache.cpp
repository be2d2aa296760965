// The disk cache by itself: entries are found unchanged or not at all, even if their files are damaged.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/disk_cache.h"
#include "runtime/kernel_cache.h"

using namespace onepass;
using runtime::DiskCache;
namespace fs = std::filesystem;

namespace {

const bool compiles_first = (runtime::set_tiles(false), true);  // tests the compiler, not the tiled interpreter

// Temporary folder that the destructor removes.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "onepass-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::permissions(path, fs::perms::owner_all, ignored);
    fs::remove_all(path, ignored);
  }
  std::string text() const { return path.string(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& e : fs::directory_iterator(path)) all.push_back(e.path());
    return all;
  }
};

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes; }

const std::string kKey = std::string("a key\0with a zero", 17), kObject(300, 'o');

bool has(DiskCache& cache, const std::string& key = kKey, const std::string& object = kObject) {
  const auto entry = cache.find(key);
  if (entry) CHECK(entry->object == object);
  return entry.has_value();
}

}  // namespace

TEST_CASE("the time lost without optimized code is stored with an entry until the code is") {
  const Folder folder;
  DiskCache cache(folder.text());
  cache.note_spent(kKey, 5'000);  // runs in the tiled interpreter: there is no code yet
  REQUIRE(cache.find(kKey));
  CHECK(cache.find(kKey)->object.empty());
  CHECK(cache.find(kKey)->spent_nanoseconds == 5'000);
  cache.note_spent(kKey, 4'000);
  CHECK(cache.find(kKey)->spent_nanoseconds == 5'000);
  CHECK(cache.list().at(0).state == DiskCache::File::State::Usable);
  cache.store(kKey, compiler::Tier::Quick, kObject);
  cache.note_spent(kKey, 7'000);
  CHECK(cache.find(kKey)->spent_nanoseconds == 7'000);
  CHECK(cache.find(kKey)->object == kObject);
  cache.store(kKey, compiler::Tier::Optimised, kObject + "!");
  cache.note_spent(kKey, 9'000);
  CHECK(cache.find(kKey)->spent_nanoseconds == 0);
  CHECK(cache.find(kKey)->object == kObject + "!");
  using enum DiskCache::Figure;
  CHECK_FALSE(cache.figure(speed));
  cache.keep(speed, 1.25);
  CHECK(cache.figure(speed) == 1.25);
  CHECK_FALSE(cache.figure(copy));
  cache.keep(copy, 18.5);
  CHECK(cache.figure(copy) == 18.5);
  CHECK(cache.figure(speed) == 1.25);
  cache.clear();
  CHECK_FALSE(cache.figure(copy));
}

TEST_CASE("stored entries are found by any cache on the folder") {
  const Folder folder;
  DiskCache first(folder.text());
  CHECK_FALSE(has(first));
  first.store(kKey, compiler::Tier::Quick, kObject);
  DiskCache second(folder.text() + "/");
  REQUIRE(has(second));
  CHECK(second.find(kKey)->tier == compiler::Tier::Quick);
  first.store(kKey, compiler::Tier::Optimised, kObject + "!");
  REQUIRE(second.find(kKey));
  CHECK(second.find(kKey)->tier == compiler::Tier::Optimised);
  CHECK(second.find(kKey)->object == kObject + "!");
  CHECK_FALSE(second.find("a key"));
  CHECK(folder.files().size() == 1);
  CHECK(first.stats().stores == 2);
  CHECK(second.stats().hits == 5);
  CHECK(second.stats().misses == 1);
}

TEST_CASE("a disabled cache stores nothing") {
  for (const char* name : {"", "none"}) {
    DiskCache cache(name);
    cache.store(kKey, compiler::Tier::Quick, kObject);
    CHECK_FALSE(cache.enabled());
    CHECK_FALSE(has(cache));
    CHECK(cache.list().empty());
  }
}

TEST_CASE("the folder is private to the user, and rejected if others can write to it") {
  const Folder folder;
  const std::string deep = folder.text() + "/a/b";
  DiskCache cache(deep);
  CHECK_FALSE(has(cache));
  CHECK_FALSE(fs::exists(deep));  // find() creates no folder
  cache.store(kKey, compiler::Tier::Quick, kObject);
  REQUIRE(has(cache));
  struct stat status;
  REQUIRE(stat(deep.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  for (const auto& file : fs::directory_iterator(deep)) {
    REQUIRE(stat(file.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
  }

  std::string said;
  set_log([&said](LogLevel, std::string_view text) { said += text; });
  REQUIRE(chmod(deep.c_str(), 0777) == 0);
  DiskCache open_to_all(deep);
  CHECK_FALSE(has(open_to_all));
  open_to_all.store("another", compiler::Tier::Quick, kObject);
  CHECK(fs::directory_iterator(deep) != fs::directory_iterator());
  CHECK(open_to_all.refusal().find("can be written to by other users") != std::string::npos);
  CHECK(open_to_all.stats().stores == 0);
  set_log(nullptr);
  CHECK(said == "the cache folder " + deep + ' ' + open_to_all.refusal() + "; kernels are kept only in memory");  // once

  write(folder.path / "file", "x");
  DiskCache file(folder.text() + "/file");
  file.store(kKey, compiler::Tier::Quick, kObject);
  CHECK(file.refusal() == "is not a folder");
  DiskCache below_file(folder.text() + "/file/cache");
  below_file.store(kKey, compiler::Tier::Quick, kObject);
  CHECK(below_file.stats().stores == 0);
  CHECK_FALSE(below_file.refusal().empty());
  DiskCache relative("cache");
  relative.store(kKey, compiler::Tier::Quick, kObject);
  CHECK(relative.refusal() == "is not an absolute path");
}

TEST_CASE("a disk that cannot be written loses only the entries") {
  if (geteuid() == 0) {
    WARN("skipped: the superuser can write to a read-only folder");
    return;
  }
  const Folder folder;
  DiskCache cache(folder.text());
  cache.store(kKey, compiler::Tier::Quick, kObject);
  REQUIRE(chmod(folder.path.c_str(), 0500) == 0);
  cache.store("another", compiler::Tier::Quick, kObject);
  CHECK(cache.stats().failed == 1);
  CHECK(has(cache));
}

TEST_CASE("an entry with any byte flipped or truncated is found unchanged or not at all") {
  const Folder folder;
  DiskCache cache(folder.text());
  cache.store(kKey, compiler::Tier::Quick, kObject);
  const fs::path file = folder.files().at(0);
  const std::string good = contents(file);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write(file, bad);
    CHECK_FALSE(has(cache));
    CHECK_FALSE(fs::exists(file));  // rebuilt rather than read again
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(file, good.substr(0, size));
    CHECK_FALSE(has(cache));
  }
  write(file, good + "x");
  CHECK_FALSE(has(cache));
  CHECK(cache.stats().damaged == static_cast<std::int64_t>(2 * good.size() + 1));
  write(file, good);
  CHECK(has(cache));
}

TEST_CASE("an entry under another name is not used") {
  const Folder folder;
  DiskCache cache(folder.text());
  cache.store("another key", compiler::Tier::Quick, "another object");
  const fs::path other = folder.files().at(0);
  const std::string bytes = contents(other);
  cache.store(kKey, compiler::Tier::Quick, kObject);
  for (const fs::path& file : folder.files())
    if (file != other) write(file, bytes);
  CHECK_FALSE(has(cache));
  CHECK(has(cache, "another key", "another object"));
}

TEST_CASE("the oldest entries above the limit are removed, and remains of killed processes") {
  const Folder folder;
  {
    DiskCache cache(folder.text());
    for (int i = 0; i < 20; ++i) cache.store(fmt::format("key {}", i), compiler::Tier::Quick, kObject);
  }
  const auto hour = std::chrono::hours(1);
  const auto now = fs::file_time_type::clock::now();
  for (const fs::path& file : folder.files()) fs::last_write_time(file, now - 48 * hour);
  write(folder.path / ".onepass-1-2-3.tmp", "half an entry");
  fs::last_write_time(folder.path / ".onepass-1-2-3.tmp", now - 2 * hour);
  write(folder.path / ".onepass-1-2-4.tmp", "being written");
  write(folder.path / "notes.txt", "the user's");
  fs::last_write_time(folder.path / "notes.txt", now - 100 * hour);

  const std::int64_t entry = 56 + 6 + 300;
  DiskCache small(folder.text(), 10 * entry);
  REQUIRE(small.find("key 3"));  // recently used: kept
  small.store(kKey, compiler::Tier::Quick, kObject);
  std::int64_t bytes = 0, entries = 0;
  for (const fs::path& file : folder.files())
    if (file.extension() == ".kernel") bytes += static_cast<std::int64_t>(fs::file_size(file)), ++entries;
  CHECK(bytes <= 10 * entry);
  CHECK(entries >= 8);
  CHECK(small.find("key 3"));
  CHECK(has(small));
  CHECK_FALSE(fs::exists(folder.path / ".onepass-1-2-3.tmp"));
  CHECK(fs::exists(folder.path / ".onepass-1-2-4.tmp"));
  CHECK(fs::exists(folder.path / "notes.txt"));
}

TEST_CASE("several caches fill and clear one folder concurrently") {
  const Folder folder;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      DiskCache cache(folder.text(), 40'000);
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        const std::string key = fmt::format("key {}", random() % 30), object(200 + random() % 2 * 1000, key.back());
        if (i % 100 == 99) cache.clear();
        if (random() % 2) cache.store(key, compiler::Tier::Quick, object);
        if (const auto entry = cache.find(key))
          if (entry->object.find_first_not_of(key.back()) != std::string::npos) ++wrong;
      }
      if (cache.stats().damaged != 0) ++wrong;  // files appear atomically
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a replaced folder is not used, and a descriptor closed by the host is reopened") {
  const Folder folder;
  const std::string path = folder.text() + "/cache", gone = folder.text() + "/gone";
  DiskCache cache(path);
  cache.store(kKey, compiler::Tier::Quick, kObject);
  REQUIRE(has(cache));
  REQUIRE(rename(path.c_str(), gone.c_str()) == 0);
  REQUIRE(mkdir(path.c_str(), 0777) == 0);
  CHECK(has(cache));  // uses the folder that was checked
  // Closes the descriptor as a daemon does, and reuses its number for another file.
  struct stat held;
  REQUIRE(stat(gone.c_str(), &held) == 0);
  int descriptor = -1;
  for (int i = 3; i < 1024 && descriptor < 0; ++i)
    if (struct stat s; fstat(i, &s) == 0 && s.st_ino == held.st_ino && s.st_dev == held.st_dev) descriptor = i;
  REQUIRE(descriptor > 0);
  const int other = open("/", O_RDONLY | O_DIRECTORY);
  REQUIRE(dup2(other, descriptor) == descriptor);
  close(other);
  CHECK_FALSE(has(cache));
  cache.store(kKey, compiler::Tier::Quick, kObject);
  CHECK(has(cache));
  CHECK(fs::directory_iterator(path) != fs::directory_iterator());
  close(descriptor);
}

TEST_CASE("damaged archives lose nothing") {
  const Folder folder, target, elsewhere;
  DiskCache cache(folder.text()), imported(target.text());
  cache.store("no kernel", compiler::Tier::Quick, "no object");  // import loads the code once to check it
  const std::string archive = (elsewhere.path / "kernels").string();
  CHECK(cache.export_to(archive) == 1);
  auto result = imported.import_from(archive, true);
  CHECK(result.added == 0);
  CHECK(result.damaged == 1);

  std::string bytes = contents(archive);
  bytes[8 + 8 + 8 + 4 + 4 + 8] ^= 1;  // the machine id: the checksum no longer matches
  write(archive, bytes);
  result = imported.import_from(archive, true);
  CHECK(result.damaged == 1);

  write(archive, contents(archive).substr(0, 50));
  CHECK_THROWS_WITH(imported.import_from(archive, true), Catch::Contains("ends in the middle of an entry"));
  write(archive, "something else");
  CHECK_THROWS_WITH(imported.import_from(archive, true), Catch::Contains("is not an archive of kernels"));
  CHECK_THROWS_AS(imported.import_from(archive + "x", true), IoError);
  CHECK_THROWS_AS(cache.export_to(folder.text() + "/no/such/folder"), IoError);
}
