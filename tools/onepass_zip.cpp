// .zip files, as far as .npz files need them: stored or deflated members, and ZIP64 (APPNOTE.TXT 6.3.9 of PKWARE, sections 4.3 and 4.5.3).
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>

#include "onepass/error.h"
#include "runtime/npy.h"
#include "tools/onepass_files.h"

namespace onepass::command {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the ZIP64 record
constexpr std::uint16_t kStored = 0, kDeflated = 8, kEncrypted = 1;
constexpr std::uint64_t kMostPacked = 1032;  // maximum expansion of one byte by deflate

[[noreturn]] void fail(const std::string& path, const std::string& why) { throw IoError(fmt::format("load_npz: {}: {}", path, why)); }

// Bounds-checked reader of numbers at file offsets.
class Reader {
 public:
  Reader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  template <class T> T at(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail(path_, "the file is damaged: its directory points beyond its end");
    return bytes_.subspan(offset, size);
  }
  bool is(std::uint64_t offset, std::uint32_t signature) const {
    return offset + sizeof signature <= bytes_.size() && at<std::uint32_t>(offset) == signature;
  }
  std::uint64_t size() const { return bytes_.size(); }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
};

struct Directory {
  std::uint64_t count = 0, offset = 0;
};

Directory directory(const std::string& path, const Reader& file) {
  constexpr std::uint64_t kMostComment = 0xffff;
  if (file.size() < kEndBytes) fail(path, "the file is cut off: the directory of its arrays is missing");
  const std::uint64_t last = file.size() - kEndBytes, first = last > kMostComment ? last - kMostComment : 0;
  for (std::uint64_t end = last + 1; end-- > first;) {
    if (!file.is(end, kEnd) || file.at<std::uint16_t>(end + 20) != last - end) continue;
    Directory result{.count = file.at<std::uint16_t>(end + 10), .offset = file.at<std::uint32_t>(end + 16)};
    if (end >= kLocatorBytes && file.is(end - kLocatorBytes, kLocator64)) {
      const auto record = file.at<std::uint64_t>(end - kLocatorBytes + 8);
      static_cast<void>(file.part(record, kEnd64Bytes));
      if (!file.is(record, kEnd64)) fail(path, "the file is damaged: its directory is not at the recorded position");
      result = {.count = file.at<std::uint64_t>(record + 32), .offset = file.at<std::uint64_t>(record + 48)};
    }
    return result;
  }
  fail(path, "the file is cut off: the directory of its arrays is missing");
}

// Reads the ZIP64 record of an entry. It contains the numbers that did not fit, in header order.
void read_extra(const std::string& path, const Reader& file, std::uint64_t at, std::uint64_t end, ZipMember& member) {
  while (end - at >= 4) {
    const auto id = file.at<std::uint16_t>(at);
    const auto size = file.at<std::uint16_t>(at + 2);
    at += 4;
    if (size > end - at) fail(path, "the file is damaged: a record of its directory is too long");
    if (id == 1) {
      std::uint64_t next = at;
      for (std::uint64_t* const number : {&member.size, &member.stored, &member.header}) {
        if (*number != kIn64) continue;
        if (next + 8 > at + size) fail(path, "the file is damaged: a size is missing in its directory");
        *number = file.at<std::uint64_t>(next);
        next += 8;
      }
    }
    at += size;
  }
}

struct Deleter {
  void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};

}  // namespace

std::vector<ZipMember> zip_members(const std::string& path, std::span<const std::byte> bytes) {
  const Reader file(path, bytes);
  const Directory found = directory(path, file);
  std::vector<ZipMember> members;
  std::uint64_t at = found.offset;
  for (std::uint64_t i = 0; i < found.count; ++i) {
    static_cast<void>(file.part(at, kCentralBytes));
    if (!file.is(at, kCentral)) fail(path, "the file is damaged: its directory ends early");
    ZipMember member;
    member.flags = file.at<std::uint16_t>(at + 8);
    member.method = file.at<std::uint16_t>(at + 10);
    member.crc = file.at<std::uint32_t>(at + 16);
    member.stored = file.at<std::uint32_t>(at + 20);
    member.size = file.at<std::uint32_t>(at + 24);
    member.header = file.at<std::uint32_t>(at + 42);
    const std::uint64_t name = file.at<std::uint16_t>(at + 28), extra = file.at<std::uint16_t>(at + 30),
                        comment = file.at<std::uint16_t>(at + 32);
    const std::span<const std::byte> text = file.part(at + kCentralBytes, name + extra + comment).first(name);
    member.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
    read_extra(path, file, at + kCentralBytes + name, at + kCentralBytes + name + extra, member);
    for (const ZipMember& other : members)
      if (other.name == member.name) fail(path, fmt::format("the file has the array {} twice", member.name));
    members.push_back(std::move(member));
    at += kCentralBytes + name + extra + comment;
  }
  return members;
}

std::pair<std::span<std::byte>, std::shared_ptr<void>> zip_read(const std::string& path, std::span<std::byte> bytes,
                                                                const std::shared_ptr<void>& owner, const ZipMember& member) {
  const Reader file(path, bytes);
  static_cast<void>(file.part(member.header, kLocalBytes));
  if (!file.is(member.header, kLocal))
    fail(path, fmt::format("the file is damaged: {} is not at the position that its directory records", member.name));
  if (member.flags & kEncrypted) fail(path, fmt::format("{} is encrypted", member.name));
  const std::uint64_t start =
      member.header + kLocalBytes + file.at<std::uint16_t>(member.header + 26) + file.at<std::uint16_t>(member.header + 28);
  static_cast<void>(file.part(start, member.stored));
  std::span<std::byte> data = bytes.subspan(start, member.stored);
  std::shared_ptr<void> keeps = owner;
  const auto damaged = [&] { fail(path, fmt::format("{} is damaged: its checksum does not match", member.name)); };
  if (member.method == kDeflated) {
    if (member.size / kMostPacked > member.stored) damaged();  // checked before allocation
    void* const memory = ::operator new(std::max<std::uint64_t>(member.size, 1), std::align_val_t{64}, std::nothrow);
    if (!memory) throw Error(fmt::format("out of memory: {} needs {} bytes for {}", path, member.size, member.name));
    keeps = std::shared_ptr<void>(memory, Deleter{});
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error("out of memory: zlib cannot start");
    const std::span<std::byte> out(static_cast<std::byte*>(memory), member.size);
    std::size_t read = 0, written = 0;
    int state = Z_OK;
    constexpr std::size_t kStep = std::size_t{1} << 30;  // zlib counts in 32 bits
    while (state == Z_OK) {
      const std::size_t in = std::min(data.size() - read, kStep), room = std::min(out.size() - written, kStep);
      stream.next_in = reinterpret_cast<Bytef*>(data.data() + read);
      stream.avail_in = static_cast<uInt>(in);
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
      stream.avail_out = static_cast<uInt>(room);
      state = inflate(&stream, Z_NO_FLUSH);
      read += in - stream.avail_in;
      written += room - stream.avail_out;
    }
    inflateEnd(&stream);
    if (state != Z_STREAM_END || written != out.size()) damaged();
    data = out;
  } else if (member.method != kStored) {
    fail(path, fmt::format("{} is compressed with method {}; onepass reads only stored and deflated arrays", member.name, member.method));
  } else if (member.stored != member.size) {
    damaged();
  }
  if (crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()) != member.crc) damaged();
  return {data, keeps};
}

void npz_write(os::AtomicFile& file, std::span<const std::pair<std::string, Array>> arrays) {
  std::uint64_t at = 0;
  std::string central;
  const auto put = [](std::string& text, auto value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto write = [&](const void* bytes, std::size_t size) {
    if (size > 0) file.write(bytes, size);
    at += size;
  };
  constexpr std::uint16_t kVersion = 45, kNone = 0, kUtf8 = 1 << 11, kFirstDay = 1 << 5 | 1;  // 1980: equal bytes in every run
  for (const auto& [array_name, array] : arrays) {
    const Array elements = array.contiguous().to(Device::cpu());
    const std::string head = runtime::npy_header(elements), name = array_name + ".npy";
    const auto element_bytes = static_cast<std::size_t>(elements.bytes());
    const std::uint64_t size = head.size() + element_bytes, header = at;
    auto crc = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(head.data()), head.size()));
    if (element_bytes > 0) crc = static_cast<std::uint32_t>(crc32_z(crc, static_cast<const Bytef*>(elements.data()), element_bytes));
    // Always writes ZIP64 sizes, like numpy; then padding that aligns the member.
    std::string extra;
    put(extra, std::uint16_t{1});
    put(extra, std::uint16_t{16});
    put(extra, size);
    put(extra, size);
    const std::uint64_t before = at + kLocalBytes + name.size() + extra.size() + 4;
    const auto fill = static_cast<std::uint16_t>((64 - before % 64) % 64);
    put(extra, std::uint16_t{0xd935});
    put(extra, fill);
    extra.append(fill, '\0');
    const auto shared = [&](std::string& text, bool full) {  // common part of both headers
      put(text, kVersion);
      put(text, kUtf8);
      put(text, kStored);
      put(text, kNone);
      put(text, kFirstDay);
      put(text, crc);
      put(text, full ? kIn64 : static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kIn64)));
      put(text, full ? kIn64 : static_cast<std::uint32_t>(std::min<std::uint64_t>(size, kIn64)));
      put(text, static_cast<std::uint16_t>(name.size()));
    };
    std::string local;
    put(local, kLocal);
    shared(local, true);
    put(local, static_cast<std::uint16_t>(extra.size()));
    local += name + extra;
    write(local.data(), local.size());
    write(head.data(), head.size());
    write(elements.data(), element_bytes);

    std::string extra64;
    for (const std::uint64_t number : {size, size, header})
      if (number >= kIn64) put(extra64, number);
    if (!extra64.empty()) {
      std::string record;
      put(record, std::uint16_t{1});
      put(record, static_cast<std::uint16_t>(extra64.size()));
      extra64 = record + extra64;
    }
    put(central, kCentral);
    put(central, static_cast<std::uint16_t>(3 << 8 | kVersion));  // made on Unix
    shared(central, false);
    put(central, static_cast<std::uint16_t>(extra64.size()));
    put(central, kNone);  // comment
    put(central, kNone);  // disk
    put(central, kNone);  // binary
    put(central, std::uint32_t{0100644} << 16);
    put(central, static_cast<std::uint32_t>(std::min<std::uint64_t>(header, kIn64)));
    central += name + extra64;
  }
  const std::uint64_t start = at, bytes = central.size(), count = arrays.size();
  if (start >= kIn64 || bytes >= kIn64 || count >= 0xffff) {
    const std::uint64_t record = start + bytes;
    put(central, kEnd64);
    put(central, std::uint64_t{kEnd64Bytes - 12});
    put(central, static_cast<std::uint16_t>(3 << 8 | kVersion));
    put(central, kVersion);
    put(central, std::uint64_t{0});  // disks
    put(central, count);
    put(central, count);
    put(central, bytes);
    put(central, start);
    put(central, kLocator64);
    put(central, std::uint32_t{0});
    put(central, record);
    put(central, std::uint32_t{1});
  }
  put(central, kEnd);
  put(central, std::uint32_t{0});  // disks
  const auto few = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff));
  put(central, few);
  put(central, few);
  put(central, static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, kIn64)));
  put(central, static_cast<std::uint32_t>(std::min<std::uint64_t>(start, kIn64)));
  put(central, kNone);
  write(central.data(), central.size());
}

}  // namespace onepass::command
