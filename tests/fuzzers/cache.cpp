// libFuzzer: truncated and altered entries of the disk cache, and archives of them. An entry is found unchanged or not at all. Entries with
// a valid checksum and damaged contents must not crash; damaged entries are removed.
//
// Code is loaded but not run, since entries with a valid checksum are trusted (docs/security.md).
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "compiler/kernel_object.h"
#include "fuzzers/bytes.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/disk_cache.h"

using namespace onepass;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "onepass-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) std::abort();
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes; }

// An entry has a header of 64 bytes. The last 8 of them are the checksum of all other bytes (runtime/disk_cache.cpp).
constexpr std::size_t kHeader = 64;
void set_checksum(std::string& entry) {
  if (entry.size() < kHeader) return;
  std::memset(entry.data() + kHeader - 8, 0, 8);
  const std::uint64_t seed = XXH3_64bits_withSeed(entry.data(), kHeader, 0);
  const std::uint64_t sum = XXH3_64bits_withSeed(entry.data() + kHeader, entry.size() - kHeader, seed);
  std::memcpy(entry.data() + kHeader - 8, &sum, 8);
}

void load(const std::string& object) {
  const auto exact = std::make_unique<char[]>(object.size());  // exact size, so that the sanitizer finds reads past the end
  std::memcpy(exact.get(), object.data(), object.size());
  try {
    compiler::KernelObject::load({exact.get(), object.size()});
  } catch (const InternalError&) {
  } catch (const MemoryError&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  static const std::string key = "the key of a kernel", object(100, 'o');
  static const std::string entry = [] {
    set_log([](LogLevel, std::string_view) {});
    runtime::DiskCache(folder.path.string()).store(key, compiler::Tier::Optimised, object);
    return contents(fs::directory_iterator(folder.path)->path());
  }();
  static const fs::path place = fs::directory_iterator(folder.path)->path(), archive = folder.path / "archive";
  {
    std::string again = entry;
    set_checksum(again);
    if (again != entry) std::abort();  // the format of entries has changed: update this file
  }
  test::InputBytes input(data, size);
  const std::uint32_t kind = input.below(4);
  if (kind == 0) {
    load(input.rest());
    return 0;
  }
  std::string bytes = kind == 1 ? input.rest() : entry;
  if (kind >= 2) {
    const bool right = input.below(2) == 1;
    for (std::uint32_t edits = input.below(6); edits-- > 0;) {
      const std::size_t at = input.below(bytes.size() + 1);
      switch (input.below(3)) {
        case 0: bytes.resize(at); break;
        case 1: bytes.insert(at, input.text(40)); break;
        default: bytes.replace(at, std::min<std::size_t>(8, bytes.size() - at), input.text(8)); break;
      }
    }
    if (right) set_checksum(bytes);
  }
  runtime::DiskCache cache(folder.path.string());
  if (kind == 3) {
    const std::uint64_t length = input.below(4) ? bytes.size() : input.number<std::uint64_t>();
    std::string all = "onepassA";
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(bytes).append(input.text(30));
    write(archive, input.below(8) ? all : bytes);
    try {
      cache.import_from(archive.string(), input.below(4) != 0);
    } catch (const Error&) {}
    fs::remove(archive);
    for (const auto& file : fs::directory_iterator(folder.path))
      if (file.path() != place) fs::remove(file.path());
    return 0;
  }
  write(place, bytes);
  const bool is_whole = bytes == entry;
  static_cast<void>(cache.list());
  if (const auto found = cache.find(key)) {
    if (found->object != object && bytes.substr(0, kHeader - 8) == entry.substr(0, kHeader - 8) && kind == 1) {
      std::string checked = bytes;
      set_checksum(checked);
      if (checked != bytes) std::abort();  // a wrong checksum was accepted
    }
    load(found->object);
  } else {
    if (is_whole) std::abort();
    if (fs::exists(place)) std::abort();  // damaged entries must be removed
  }
  return 0;
}
