// libFuzzer: bytes as a file of arrays: .npy, .npz or .png, by their first bytes. The reader throws an IoError or a MemoryError, or the
// elements can be read. An array written as .npy is read back unchanged.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/npy.h"
#include "tools/onepass_files.h"

using namespace onepass;

namespace {

// Returns memory of exactly this size, aligned to 64 bytes, so that the sanitizer finds reads past its end.
std::pair<std::span<std::byte>, std::shared_ptr<void>> memory_of(const void* data, std::size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<std::size_t>(size, 1)) != 0) std::abort();
  if (size > 0) std::memcpy(memory, data, size);
  return {{static_cast<std::byte*>(memory), size}, std::shared_ptr<void>(memory, std::free)};
}

void check(const Array& array) {
  const Array dense = array.contiguous();
  std::string file = runtime::npy_header(dense);
  if (dense.bytes() > 0) file.append(static_cast<const char*>(dense.data()), static_cast<std::size_t>(dense.bytes()));
  const auto [bytes, owner] = memory_of(file.data(), file.size());
  const Array again = runtime::array_of_npy("again", bytes, owner);
  if (!std::ranges::equal(again.shape(), dense.shape()) || again.bytes() != dense.bytes()) std::abort();
  if (dense.bytes() > 0 && std::memcmp(again.data(), dense.data(), static_cast<std::size_t>(dense.bytes())) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool once = (set_memory_limit(std::size_t{256} << 20), true);
  static_cast<void>(once);
  const auto [bytes, owner] = memory_of(data, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with("PK")) {
      const std::vector<command::ZipMember> members = command::zip_members("input", bytes);
      for (std::size_t k = 0; k < std::min<std::size_t>(members.size(), 4); ++k) {
        if (members[k].size > std::size_t{16} << 20) continue;
        const auto [unpacked, kept] = command::zip_read("input", bytes, owner, members[k]);
        check(runtime::array_of_npy(members[k].name, unpacked, kept));
      }
    } else if (text.starts_with("\x89PNG")) {
      if (size > 24 && data[16] == 0 && data[17] == 0 && data[20] == 0 && data[21] == 0)  // skips images of gigabytes, which take too long
        check(command::png_read("input", bytes));
    } else {
      check(runtime::array_of_npy("input", bytes, owner));
    }
  } catch (const IoError&) {
  } catch (const MemoryError&) {}
  return 0;
}
