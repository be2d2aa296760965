// The .npy format: "\x93NUMPY", version, the header's length, a header that is a Python dictionary
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}, padding, the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "onepass/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/npy.h"
#include "runtime/os.h"
#include "runtime/os_mapped.h"
#include "runtime/os_output.h"

namespace onepass {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  DType dtype = DType::F32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

struct TypeName {
  char kind;
  int bytes;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {
    {'b', 1, DType::Bool}, {'i', 1, DType::I8},  {'i', 2, DType::I16}, {'i', 4, DType::I32}, {'i', 8, DType::I64}, {'u', 1, DType::U8},
    {'u', 2, DType::U16},  {'u', 4, DType::U32}, {'u', 8, DType::U64}, {'f', 2, DType::F16}, {'f', 4, DType::F32}, {'f', 8, DType::F64},
};

/// Returns arbitrary bytes in a form that is safe in error messages.
std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 40)) result += c >= 32 && c < 127 ? c : '?';
  return text.size() > 40 ? result + "…" : result;
}

class Reader {
 public:
  Reader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header header() {
    Header result;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted("a key");
      expect(':');
      const auto once = [&](bool& has) {
        if (has) fail(fmt::format("the header has '{}' twice", key));
        has = true;
      };
      if (key == "descr") {
        once(has_descr);
        read_dtype(result);
      } else if (key == "fortran_order") {
        once(has_order);
        result.fortran_order = truth();
      } else if (key == "shape") {
        once(has_shape);
        result.shape = shape();
      } else {
        fail(fmt::format("the header has an unknown key '{}'", printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (position_ != text_.size()) fail("the header has text after its end");
    if (!has_descr || !has_order || !has_shape)
      fail(fmt::format("the header has no '{}'", !has_descr ? "descr" : !has_order ? "fortran_order" : "shape"));
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw IoError(fmt::format("load_npy: {}: {}", path_, why)); }

  void skip_blanks() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t' || text_[position_] == '\r'))
      ++position_;
  }
  bool accept(char c) {
    skip_blanks();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(fmt::format("the header is not a dictionary as NumPy writes it: '{}' is missing at byte {} of the header", c, position_));
  }

  std::string_view quoted(const char* what) {
    skip_blanks();
    const char quote = position_ < text_.size() ? text_[position_] : 0;
    if (quote != '\'' && quote != '"')
      fail(fmt::format("the header is not a dictionary as NumPy writes it: {} is missing at byte {} of the header", what, position_));
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fail("the header has an unterminated string");
    const std::string_view result = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return result;
  }

  void read_dtype(Header& header) {
    skip_blanks();
    if (position_ < text_.size() && text_[position_] == '[')
      fail("its elements are structures; onepass reads only bool, integers and floats");
    const std::string_view name = quoted("the dtype");
    std::string_view rest = name;
    char order = '=';
    if (!rest.empty() && std::string_view("<>=|").find(rest[0]) != std::string_view::npos) {
      order = rest[0];
      rest.remove_prefix(1);
    }
    if (rest == "?") rest = "b1";
    for (const TypeName& type : kTypeNames)
      if (rest.size() == 2 && rest[0] == type.kind && rest[1] == '0' + type.bytes && (order != '|' || type.bytes == 1)) {
        header.dtype = type.dtype;
        header.big_endian = order == '>' && type.bytes > 1;
        return;
      }
    fail(fmt::format("its dtype '{}' is not supported; onepass reads bool, i1 to i8, u1 to u8, f2, f4, f8 (save bf16 as u16 and bitcast)",
                     printable(name)));
  }

  bool truth() {
    skip_blanks();
    const std::string_view rest = text_.substr(position_);
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (rest.starts_with(word)) {
        position_ += word.size();
        return value;
      }
    fail("the header's 'fortran_order' is neither True nor False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> result;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      const std::size_t first = position_;
      if (position_ < text_.size() && text_[position_] == '-') fail("the header's shape has a negative length");
      std::int64_t length = 0;
      for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9'; ++position_)
        if (__builtin_mul_overflow(length, 10, &length) || __builtin_add_overflow(length, text_[position_] - '0', &length))
          fail("the header's shape has a length of more than 64 bits");
      if (position_ == first) fail("the header's shape is not a tuple of integers");
      if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // suffix of Python 2's long integers
      if (result.size() == static_cast<std::size_t>(kMaxRank)) fail(fmt::format("the header's shape has more than {} axes", kMaxRank));
      result.push_back(length);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return result;
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t position_ = 0;
};

/// Copies elements in the file's order and converts them to native byte order.
template <class T> void copy_swapped(const std::byte* source, void* out, std::int64_t count) {
  auto* const target = static_cast<std::byte*>(out);
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    if constexpr (sizeof value == 2) value = __builtin_bswap16(value);
    if constexpr (sizeof value == 4) value = __builtin_bswap32(value);
    if constexpr (sizeof value == 8) value = __builtin_bswap64(value);
    std::memcpy(target + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

}  // namespace

std::string runtime::npy_header(const Array& array) {
  const DType dtype = array.dtype() == DType::BF16 ? DType::U16 : array.dtype();
  const auto* const type =
      std::find_if(std::begin(kTypeNames), std::end(kTypeNames), [&](const TypeName& name) { return name.dtype == dtype; });
  std::string shape;
  for (const std::int64_t length : array.shape()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", length);
  if (array.rank() == 1) shape += ',';
  std::string text = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}), }}", type->bytes == 1 ? '|' : '<', type->kind,
                                 type->bytes, shape);
  constexpr std::size_t kBefore = kMagic.size() + 2 + 2;
  text.append(63 - (kBefore + text.size()) % 64, ' ');
  text += '\n';
  std::string result(kMagic);
  result += '\1';
  result += '\0';
  result += static_cast<char>(text.size() & 0xff);  // at most 32 axes of 20 digits: far below 64 KiB
  result += static_cast<char>(text.size() >> 8);
  return result + text;
}

namespace {

os::AtomicFile open_npy(const std::string& path, const Array& array, const SaveOptions& options) {
  if (!array.has_memory())
    throw ValueError(fmt::format("save_npy: {}: the array is default-constructed and has no elements. Assign an array to it first", path));
  os::AtomicFile file("save_npy", path, options.sync);
  if (file.is_terminal())
    throw IoError(fmt::format("save_npy: {}: the output is a terminal, which cannot show a .npy file. Write to a file or a pipe.", path));
  return file;
}

void write_npy(os::AtomicFile& file, const Array& array) {
  const std::string header = runtime::npy_header(array);
  file.write(header.data(), header.size());
  const Array elements = array.contiguous().to(Device::cpu());
  if (elements.bytes() > 0) file.write(elements.data(), static_cast<std::size_t>(elements.bytes()));
}

}  // namespace

Array load_npy(const std::string& path) {
  const os::FileBytes file = os::FileBytes::open("load_npy", path, true);
  return runtime::array_of_npy(path, file.bytes(), file.owner());
}

Array runtime::array_of_npy(const std::string& path, std::span<std::byte> bytes, std::shared_ptr<void> owner) {
  const auto fail = [&](const std::string& why) {
    throw IoError(
        fmt::format("load_npy: {}: {}", path, os::was_shortened(bytes.data()) ? "the file was shortened while it was read" : why));
  };
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(bytes[i]); };

  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) fail("the file is not a .npy file");
  if (bytes.size() < 10) fail("the file is cut off within its first 10 bytes");
  const std::uint32_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0)
    fail(fmt::format("the file has format {}.{}; onepass reads 1.0, 2.0 and 3.0", version, byte(7)));
  const std::size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) fail("the file is cut off within its first 12 bytes");
  const std::size_t length = version == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - start)
    fail(fmt::format("the file is cut off: its header should have {} bytes, but the file has only {} after its first {}", length,
                     bytes.size() - start, start));
  Header header;
  try {
    header = Reader(path, {reinterpret_cast<const char*>(bytes.data()) + start, length}).header();
  } catch (const IoError&) {
    if (os::was_shortened(bytes.data())) fail("");
    throw;
  }

  // Compares the header's shape with the file's size before any allocation.
  const std::span<std::byte> data = bytes.subspan(start + length);
  const auto element = static_cast<std::int64_t>(size_of(header.dtype));
  std::int64_t count = 1, countable = element;
  for (const std::int64_t extent : header.shape) {
    if (__builtin_mul_overflow(countable, std::max<std::int64_t>(extent, 1), &countable))
      fail("the header's shape needs more bytes than a 64-bit address can count");
    count *= extent;
  }
  const auto wanted = static_cast<std::uint64_t>(count * element);
  if (data.size() != wanted)
    fail(fmt::format("the file has {} bytes of elements, but its header needs {} ({} elements of {})", data.size(), wanted, count,
                     name_of(header.dtype)));

  // Fortran order is row-major order of the reversed shape.
  std::vector<std::int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  bool in_place = !header.big_endian && reinterpret_cast<std::uintptr_t>(data.data()) % static_cast<std::uintptr_t>(element) == 0;
  if (header.dtype == DType::Bool)  // other byte values are undefined behavior as bool
    in_place = std::all_of(data.begin(), data.end(), [](std::byte b) { return b <= std::byte{1}; });
  Array result;
  if (in_place && count > 0) {
    std::vector<std::int64_t> strides(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    result = Array::wrap_pointer(data.data(), header.dtype, shape, strides, false, std::move(owner));
  } else {
    result = Array::empty(shape, header.dtype);
    void* const out = result.mutable_data();
    if (header.dtype == DType::Bool)
      std::transform(data.begin(), data.end(), static_cast<std::uint8_t*>(out), [](std::byte b) { return b != std::byte{0}; });
    else if (!header.big_endian && count > 0) std::memcpy(out, data.data(), data.size());
    else if (element == 2) copy_swapped<std::uint16_t>(data.data(), out, count);
    else if (element == 4) copy_swapped<std::uint32_t>(data.data(), out, count);
    else if (element == 8) copy_swapped<std::uint64_t>(data.data(), out, count);
  }
  if (os::was_shortened(bytes.data())) fail("the file was shortened while it was read");
  return header.fortran_order ? result.transpose() : result;
}

void save_npy(const std::string& path, const Array& array, SaveOptions options) {
  os::AtomicFile file = open_npy(path, array, options);
  write_npy(file, array);
  file.commit();
}

struct StagedFiles::Body {
  SaveOptions options;
  std::vector<os::AtomicFile> files;
  std::vector<std::optional<Array>>
      in_place;  // for each file: array to write after all other files, because an in-place write cannot be undone
};

StagedFiles::StagedFiles(SaveOptions options) : body_(detail::Shared<Body>::make()) { body_->options = options; }
StagedFiles::StagedFiles(StagedFiles&&) noexcept = default;
StagedFiles& StagedFiles::operator=(StagedFiles&&) noexcept = default;
StagedFiles::~StagedFiles() = default;

void StagedFiles::add(const std::string& path, const Array& array) {
  os::AtomicFile file = open_npy(path, array, body_->options);
  const bool in_place = file.place().in_place;
  if (!in_place) write_npy(file, array);
  body_->in_place.push_back(in_place ? std::optional(array) : std::nullopt);
  body_->files.push_back(std::move(file));
}

void StagedFiles::commit() {
  os::AtomicFile::check_places(body_->files);
  for (std::size_t i = 0; i < body_->files.size(); ++i)
    if (!body_->in_place[i]) body_->files[i].finish();
  for (std::size_t i = 0; i < body_->files.size(); ++i)
    if (body_->in_place[i]) write_npy(body_->files[i], *body_->in_place[i]);
  os::AtomicFile::commit_all(body_->files);
  body_->files.clear();
  body_->in_place.clear();
}

}  // namespace onepass
