// PNG pictures by libpng, with the full bit depth of their samples.
#include <fmt/format.h>

#include <csetjmp>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "onepass/error.h"
#include "tools/onepass_files.h"

#ifdef ONEPASS_HAVE_PNG
#include <png.h>
#endif

namespace onepass::command {

void png_check(const std::string& name, const Array& array) {
  const bool samples = array.dtype() == DType::U8 || array.dtype() == DType::U16 || array.dtype() == DType::Bool;
  const bool shape = array.rank() == 2 || (array.rank() == 3 && array.dim(2) >= 1 && array.dim(2) <= 4);
  std::string extents;
  for (const std::int64_t n : array.shape()) extents += fmt::format("{}{}", extents.empty() ? "" : ", ", n);
  const auto fail = [&](const std::string& why) {
    throw ValueError(
        fmt::format("run: the output `{}` {}[{}] cannot be written as a PNG picture: {}", name, name_of(array.dtype()), extents, why));
  };
  if (!samples) fail("its elements must be u8, u16 or bool. Write, for example, `cast(round(clamp(y, 0, 1)*255), u8)`, or save it as .npy");
  if (!shape) fail("its shape must be [height, width] or [height, width, 1 to 4]");
  for (int axis = 0; axis < 2; ++axis)
    if (array.dim(axis) < 1 || array.dim(axis) > 1'000'000) fail("height and width must be between 1 and 1000000");
#ifndef ONEPASS_HAVE_PNG
  fail("this command was built without libpng. Write a .npy file, or build the command with libpng");
#endif
}

#ifndef ONEPASS_HAVE_PNG

Array png_read(const std::string& path, std::span<const std::byte>) {
  throw IoError(
      fmt::format("load_png: {}: the file is a PNG picture, but this command was built without libpng. Convert it to a .npy file, or build "
                  "the command with libpng",
                  path));
}
void png_write(os::AtomicFile&, const Array&) {}

#else

namespace {

// State of a libpng call. libpng exits by longjmp, so its callbacks must not throw, and the frames that it skips must not have destructors.
// All data is therefore in this object.
struct Work {
  std::span<const std::byte> bytes;  // input
  std::size_t at = 0;
  std::string out;  // output
  std::string error;
  Array array;
  std::vector<png_bytep> rows;
  bool room = true;
};

void on_error(png_structp png, png_const_charp text) {
  static_cast<Work*>(png_get_error_ptr(png))->error = text;
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, std::size_t size) {
  Work& work = *static_cast<Work*>(png_get_io_ptr(png));
  if (size > work.bytes.size() - work.at) png_error(png, "it is cut off");
  std::memcpy(to, work.bytes.data() + work.at, size);
  work.at += size;
}
void write_bytes(png_structp png, png_bytep from, std::size_t size) {
  Work& work = *static_cast<Work*>(png_get_io_ptr(png));
  try {
    work.out.append(reinterpret_cast<const char*>(from), size);
  } catch (const std::bad_alloc&) { work.room = false; }
  if (!work.room) png_error(png, "out of memory");
}
void flush_bytes(png_structp) {}

// Allocates the Array for the picture after its header is read. Returns false if there is not enough memory.
bool make_room(Work& work, png_structp png, png_infop info) {
  try {
    const auto height = static_cast<std::int64_t>(png_get_image_height(png, info)),
               width = static_cast<std::int64_t>(png_get_image_width(png, info));
    const int channels = png_get_channels(png, info);
    const DType dtype = png_get_bit_depth(png, info) == 16 ? DType::U16 : DType::U8;
    work.array = channels == 1 ? Array::empty({height, width}, dtype) : Array::empty({height, width, channels}, dtype);
    work.rows.resize(static_cast<std::size_t>(height));
    for (std::size_t y = 0; y < work.rows.size(); ++y)
      work.rows[y] = static_cast<png_bytep>(work.array.mutable_data()) + y * png_get_rowbytes(png, info);
    return true;
  } catch (const std::exception&) { return false; }
}

bool read(Work& work, png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, &work, read_bytes);
  png_read_info(png, info);
  png_set_expand(png);  // palettes to colors, few bits to 8, a transparent color to alpha
  png_set_swap(png);    // 16 bits: the low byte first
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  // Checked before allocation: deflate expands a byte to at most 1,032 bytes, and png_set_expand expands a bit to at most 32 bits.
  if (png_get_rowbytes(png, info) / (1032 * 32) * png_get_image_height(png, info) > work.bytes.size()) png_error(png, "it is cut off");
  if (!make_room(work, png, info)) png_error(png, "out of memory");
  png_read_image(png, work.rows.data());
  png_read_end(png, nullptr);
  return true;
}

bool write(Work& work, png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png))) return false;
  constexpr int kKinds[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
  const int channels = work.array.rank() == 2 ? 1 : static_cast<int>(work.array.dim(2));
  const int bits = work.array.dtype() == DType::U16 ? 16 : 8;
  png_set_write_fn(png, &work, write_bytes, flush_bytes);
  png_set_IHDR(png, info, static_cast<png_uint_32>(work.array.dim(1)), static_cast<png_uint_32>(work.array.dim(0)), bits,
               kKinds[channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  if (bits == 16) png_set_swap(png);
  png_write_image(png, work.rows.data());
  png_write_end(png, nullptr);
  return true;
}

}  // namespace

Array png_read(const std::string& path, std::span<const std::byte> bytes) {
  Work work{.bytes = bytes};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &work, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && read(work, png, info);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!done)
    throw IoError(
        fmt::format("load_png: {}: the file is not a readable PNG picture: {}", path, work.error.empty() ? "out of memory" : work.error));
  return work.array;
}

void png_write(os::AtomicFile& file, const Array& array) {
  Work work;
  work.array = array.to(Device::cpu()).contiguous();
  if (array.dtype() == DType::Bool) {
    const Array grey = Array::empty(array.shape(), DType::U8);
    const auto* const from = static_cast<const std::uint8_t*>(work.array.data());
    auto* const to = static_cast<std::uint8_t*>(grey.mutable_data());
    for (std::int64_t i = 0; i < grey.size(); ++i) to[i] = from[i] ? 255 : 0;
    work.array = grey;
  }
  const auto row_bytes = static_cast<std::size_t>(work.array.bytes() / work.array.dim(0));
  auto* const first = static_cast<png_bytep>(const_cast<void*>(work.array.data()));
  for (std::int64_t y = 0; y < work.array.dim(0); ++y) work.rows.push_back(first + static_cast<std::size_t>(y) * row_bytes);
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &work, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && write(work, png, info);
  png_destroy_write_struct(&png, &info);
  if (!done) throw Error(fmt::format("save_png: {}: {}", file.path(), work.error.empty() ? "out of memory" : work.error));
  file.write(work.out.data(), work.out.size());
}

#endif

}  // namespace onepass::command
