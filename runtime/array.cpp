// Array: lengths and strides, shared memory, views, and copies of strided elements.
#include "onepass/array.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/cuda/array.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/storage.h"

namespace onepass {

namespace cuda = runtime::cuda;

namespace {

using detail::Storage;

// ---- storage ----

struct PooledStorage : Storage {
  void* block = nullptr;  // null if the elements follow this header in the same block
  std::size_t bytes = 0;
};
struct HostStorage : Storage {
  detail::Shared<void> owner;
};
constexpr std::size_t kHeader = memory::kAlignment;  // keeps the elements after it aligned
static_assert(sizeof(PooledStorage) <= kHeader && sizeof(HostStorage) <= kHeader);

// Maximum size for header and elements in one block. Above it, 64 more bytes would change the size class and the huge page alignment.
constexpr std::size_t kTogether = 16 << 10;

Storage* allocate_elements(std::size_t bytes, bool zeroed, void*& data) {
  const auto get = zeroed ? memory::allocate_zeroed : memory::allocate;
  if (bytes <= kTogether) {
    void* const block = get(kHeader + bytes);
    data = static_cast<std::byte*>(block) + kHeader;
    auto* const storage = new (block) PooledStorage;
    storage->bytes = kHeader + bytes;
    storage->destroy = [](Storage* self) noexcept { memory::free(self, static_cast<PooledStorage*>(self)->bytes); };
    return storage;
  }
  memory::Buffer header(kHeader);  // freed if the next line throws
  data = get(bytes);
  auto* const storage = new (header.release()) PooledStorage;
  storage->block = data;
  storage->bytes = bytes;
  storage->destroy = [](Storage* self) noexcept {
    auto* const pooled = static_cast<PooledStorage*>(self);
    memory::free(pooled->block, pooled->bytes);
    memory::free(self, kHeader);
  };
  return storage;
}

Storage* share_owner(detail::Shared<void> owner) {
  if (!owner) return nullptr;
  auto* const storage = new (memory::allocate(kHeader)) HostStorage;
  storage->owner = std::move(owner);
  storage->destroy = [](Storage* self) noexcept {
    static_cast<HostStorage*>(self)->~HostStorage();
    memory::free(self, kHeader);
  };
  return storage;
}

// ---- shapes ----

std::string text_of(std::span<const std::int64_t> list) {
  std::string text = "[";
  for (std::size_t i = 0; i < list.size() && i < 64; ++i) text += fmt::format("{}{}", i ? ", " : "", list[i]);
  return text + (list.size() > 64 ? ", …]" : "]");
}

/// Returns the number of elements. Throws even for zero elements if the strides of the other axes overflow.
std::int64_t count_elements(const char* what, std::span<const std::int64_t> shape, DType dtype) {
  if (shape.size() > static_cast<std::size_t>(kMaxRank))
    throw ShapeError(fmt::format("{}: {} axes given; an array has at most {} axes", what, shape.size(), kMaxRank));
  std::int64_t size = 1, countable = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t length : shape) {
    if (length < 0)
      throw ShapeError(fmt::format("{}: shape {} has a negative length; each length must be 0 or more", what, text_of(shape)));
    if (__builtin_mul_overflow(countable, std::max<std::int64_t>(length, 1), &countable))
      throw ShapeError(
          fmt::format("{}: shape {} of type {} needs more bytes than a 64-bit address can count", what, text_of(shape), name_of(dtype)));
    size *= length;
  }
  return size;
}

/// Computes offsets of the lowest and highest element, relative to element (0, …, 0). False on overflow.
bool extent_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, std::int64_t& low, std::int64_t& high) {
  low = high = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach)) return false;
    std::int64_t& end = reach < 0 ? low : high;
    if (__builtin_add_overflow(end, reach, &end)) return false;
  }
  return true;
}

/// False if elements provably do not overlap: with axes sorted by stride, each axis steps over the whole extent of the axes before it. True
/// for all other layouts, including some without overlap; an exact test is as hard as the knapsack problem.
bool elements_may_overlap(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::array<std::pair<std::uint64_t, std::uint64_t>, kMaxRank> axes;  // |stride|, length
  std::size_t count = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] == 1) continue;
    const auto stride = static_cast<std::uint64_t>(strides[i]);
    axes[count++] = {strides[i] < 0 ? 0 - stride : stride, static_cast<std::uint64_t>(shape[i])};
  }
  std::sort(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(count));
  std::uint64_t reach = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (axes[i].first <= reach) return true;
    reach += axes[i].first * (axes[i].second - 1);
  }
  return false;
}

// ---- numbers ----

/// Converts an integer to a double so that a second rounding to fewer bits is correct: truncates, and sets the last bit if bits were lost
/// (round to odd).
double odd_double(std::uint64_t value) {
  const int excess = std::max(0, static_cast<int>(std::bit_width(value)) - 53);
  std::uint64_t kept = value >> excess;
  if (kept << excess != value) kept |= 1;
  return std::ldexp(static_cast<double>(kept), excess);
}

template <class T> void fill_with(void* data, std::int64_t size, T value) { std::fill_n(static_cast<T*>(data), size, value); }

/// Fills every element with the low bytes of `bits`.
void fill_with_bits(void* data, std::int64_t size, DType dtype, std::uint64_t bits) {
  switch (size_of(dtype)) {
    case 1: return fill_with(data, size, static_cast<std::uint8_t>(bits));
    case 2: return fill_with(data, size, static_cast<std::uint16_t>(bits));
    case 4: return fill_with(data, size, static_cast<std::uint32_t>(bits));
    default: return fill_with(data, size, bits);
  }
}

// ---- strided copies ----

struct Walk {
  std::size_t rank = 0;
  std::array<std::int64_t, kMaxRank> shape, strides;
};

/// Returns an equivalent walk: drops axes of length 1 and merges contiguous axes.
Walk simplified(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  Walk walk;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (walk.rank > 0 && walk.strides[walk.rank - 1] == strides[i] * shape[i]) {
      walk.shape[walk.rank - 1] *= shape[i];
      walk.strides[walk.rank - 1] = strides[i];
    } else {
      walk.shape[walk.rank] = shape[i];
      walk.strides[walk.rank++] = strides[i];
    }
  }
  return walk;
}

/// Copies at least one element in row-major order.
template <class T> void copy_walk(const T* source, const Walk& walk, T* out) {
  if (walk.rank == 0) {
    *out = *source;
    return;
  }
  const std::size_t last = walk.rank - 1;
  // If another axis is dense (a transpose), the copy walks both axes in tiles through a small buffer. Each cache line is then read and
  // written once, even for power-of-two lengths, which map all lines of a tile to one cache set.
  std::size_t dense = last;
  for (std::size_t i = 0; i < last; ++i)
    if (std::abs(walk.strides[i]) < std::abs(walk.strides[dense])) dense = i;
  std::array<std::int64_t, kMaxRank> out_strides, index{};
  std::int64_t product = 1;
  for (std::size_t i = walk.rank; i-- > 0; product *= walk.shape[i]) out_strides[i] = product;

  const std::int64_t columns = walk.shape[last], step = walk.strides[last];
  const std::int64_t rows = dense == last ? 1 : walk.shape[dense], row_step = dense == last ? 0 : walk.strides[dense];
  const std::int64_t out_step = dense == last ? 0 : out_strides[dense];
  constexpr std::int64_t kTile = 64 / sizeof(T);
  for (;;) {
    if (step == 1) {
      for (std::int64_t i = 0; i < rows; ++i)
        std::memcpy(out + i * out_step, source + i * row_step, static_cast<std::size_t>(columns) * sizeof(T));
    } else if (rows == 1) {
      for (std::int64_t j = 0; j < columns; ++j) out[j] = source[j * step];
    } else {
      for (std::int64_t i0 = 0; i0 < rows; i0 += kTile)
        for (std::int64_t j0 = 0; j0 < columns; j0 += kTile) {
          const std::int64_t height = std::min(kTile, rows - i0), width = std::min(kTile, columns - j0);
          T tile[kTile][kTile];
          for (std::int64_t j = 0; j < width; ++j)
            for (std::int64_t i = 0; i < height; ++i) tile[i][j] = source[(i0 + i) * row_step + (j0 + j) * step];
          for (std::int64_t i = 0; i < height; ++i)
            std::memcpy(out + (i0 + i) * out_step + j0, tile[i], static_cast<std::size_t>(width) * sizeof(T));
        }
    }
    // Advances the other axes, the last axis first.
    std::size_t axis = walk.rank;
    for (;;) {
      if (axis == 0) return;
      --axis;
      if (axis == last || axis == dense) continue;
      source += walk.strides[axis];
      out += out_strides[axis];
      if (++index[axis] < walk.shape[axis]) break;
      source -= walk.strides[axis] * walk.shape[axis];
      out -= out_strides[axis] * walk.shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

// ---- copies, moves and layout ----

std::int64_t* Array::reserve_dims(int rank) {
  if (rank > kInlineRank) {
    // noexcept code frees this block according to rank_, so the failure must precede the change of rank_.
    auto* const block = new (std::nothrow) std::int64_t[2 * static_cast<std::size_t>(rank)];
    if (!block) throw Error(fmt::format("out of memory: cannot allocate {} bytes", 16 * rank));
    heap_ = block;
  }
  rank_ = static_cast<std::uint8_t>(rank);
  return rank > kInlineRank ? heap_ : inline_;
}

void Array::release() noexcept {
  if (storage_ && storage_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) storage_->destroy(storage_);
  if (rank_ > kInlineRank) delete[] heap_;
}

void Array::take(Array& other) noexcept {
  data_ = std::exchange(other.data_, nullptr);
  storage_ = std::exchange(other.storage_, nullptr);
  size_ = std::exchange(other.size_, 1);
  rank_ = other.rank_;
  dtype_ = other.dtype_;
  contiguous_ = std::exchange(other.contiguous_, true);
  read_only_ = std::exchange(other.read_only_, false);
  valid_ = std::exchange(other.valid_, false);
  device_ = std::exchange(other.device_, Device::cpu());
  if (rank_ > kInlineRank) heap_ = other.heap_;
  else std::copy_n(other.inline_, 2 * rank_, inline_);
  other.rank_ = 0;
}

Array Array::like(int rank) const {
  Array result;
  result.reserve_dims(rank);
  result.data_ = data_;
  result.dtype_ = dtype_;
  result.read_only_ = read_only_;
  result.valid_ = valid_;
  result.device_ = device_;
  result.storage_ = storage_;
  if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
  return result;
}

Array::Array(const Array& other) {
  std::copy_n(other.dims(), 2 * other.rank_, reserve_dims(other.rank_));
  data_ = other.data_;
  storage_ = other.storage_;
  size_ = other.size_;
  dtype_ = other.dtype_;
  contiguous_ = other.contiguous_;
  read_only_ = other.read_only_;
  valid_ = other.valid_;
  device_ = other.device_;
  if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
}

Array& Array::operator=(const Array& other) {
  if (this != &other) *this = Array(other);
  return *this;
}

Array& Array::operator=(Array&& other) noexcept {
  if (this != &other) {
    release();
    take(other);
  }
  return *this;
}

void Array::update() noexcept {
  const std::int64_t* const lengths = dims();
  const std::int64_t* const steps = lengths + rank_;
  size_ = 1;
  contiguous_ = true;
  for (int i = rank_; i-- > 0;) {
    if (lengths[i] != 1 && steps[i] != size_) contiguous_ = false;
    size_ *= lengths[i];
  }
  if (size_ == 0) contiguous_ = true;
}

// ---- new memory ----

/// Returns an array with row-major lengths and strides and without memory.
Array Array::make(DType dtype, Extents shape, const char* what) {
  count_elements(what, shape, dtype);
  Array result;
  const int rank = static_cast<int>(shape.size());
  std::int64_t* const lengths = result.reserve_dims(rank);
  std::copy(shape.begin(), shape.end(), lengths);
  std::int64_t stride = 1;
  for (int i = rank; i-- > 0; stride *= std::max<std::int64_t>(lengths[i], 1)) lengths[rank + i] = stride;
  result.dtype_ = dtype;
  result.valid_ = true;
  result.update();
  return result;
}

namespace {
Storage* allocate_on(Device device, std::int64_t bytes, bool zeroed, void*& data) {
  const auto size = static_cast<std::size_t>(bytes);
  return device.is_cuda() ? cuda::allocate_elements(device, size, zeroed, data) : allocate_elements(size, zeroed, data);
}
}  // namespace

Array Array::empty(Extents shape, DType dtype, Device device) {
  Array result = make(dtype, shape, "empty");
  result.storage_ = allocate_on(device, result.bytes(), false, result.data_);
  result.device_ = device;
  return result;
}

Array Array::zeros(Extents shape, DType dtype, Device device) {
  Array result = make(dtype, shape, "zeros");
  result.storage_ = allocate_on(device, result.bytes(), true, result.data_);
  result.device_ = device;
  return result;
}

namespace {

[[noreturn]] void fail_fill(const std::string& value, DType dtype) {
  throw ValueError(fmt::format("full: {} is not a value of type {}{}", value, name_of(dtype),
                               dtype == DType::Bool ? ", which has only the values 0 and 1" : ""));
}

/// Returns the largest value of an integer dtype. The smallest value is 0, or -1 minus the largest value.
std::uint64_t largest(DType dtype) {
  if (dtype == DType::Bool) return 1;
  const int bits = static_cast<int>(size_of(dtype)) * 8 - (is_signed_integer(dtype) ? 1 : 0);
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

}  // namespace

Array Array::full_float(Extents shape, double value, DType dtype) {
  const os::DefaultFloatingPoint control;
  if (!is_float(dtype)) {
    if (!(std::trunc(value) == value) || !(std::abs(value) <= 0x1p64)) fail_fill(fmt::format("{}", value), dtype);
    if (value < 0) {
      if (value < -0x1p63) fail_fill(fmt::format("{}", value), dtype);
      return full_integer(shape, static_cast<std::int64_t>(value), dtype);
    }
    if (value >= 0x1p64) fail_fill(fmt::format("{}", value), dtype);
    return full_unsigned(shape, static_cast<std::uint64_t>(value), dtype);
  }
  Array result = empty(shape, dtype);
  std::uint64_t bits = 0;
  switch (dtype) {
    case DType::F16: bits = detail::bits_of_half<10, 5>(value); break;
    case DType::BF16: bits = detail::bits_of_half<7, 8>(value); break;
    case DType::F32: bits = std::bit_cast<std::uint32_t>(static_cast<float>(value)); break;
    default: bits = std::bit_cast<std::uint64_t>(value);
  }
  fill_with_bits(result.data_, result.size_, dtype, bits);
  return result;
}

Array Array::full_integer(Extents shape, std::int64_t value, DType dtype) {
  if (value >= 0) return full_unsigned(shape, static_cast<std::uint64_t>(value), dtype);
  if (is_float(dtype)) {
    if (dtype == DType::F64) return full_float(shape, static_cast<double>(value), dtype);
    return full_float(shape, -odd_double(0 - static_cast<std::uint64_t>(value)), dtype);
  }
  if (!is_signed_integer(dtype) || static_cast<std::uint64_t>(-(value + 1)) > largest(dtype)) fail_fill(fmt::format("{}", value), dtype);
  Array result = empty(shape, dtype);
  fill_with_bits(result.data_, result.size_, dtype, static_cast<std::uint64_t>(value));
  return result;
}

Array Array::full_unsigned(Extents shape, std::uint64_t value, DType dtype) {
  if (is_float(dtype)) {
    if (dtype == DType::F64) return full_float(shape, static_cast<double>(value), dtype);
    return full_float(shape, odd_double(value), dtype);
  }
  if (value > largest(dtype)) fail_fill(fmt::format("{}", value), dtype);
  if (value == 0) return zeros(shape, dtype);
  Array result = empty(shape, dtype);
  fill_with_bits(result.data_, result.size_, dtype, value);
  return result;
}

Array Array::copy_of(const void* data, std::size_t count, DType dtype, Extents shape) {
  const std::int64_t size = count_elements("from", shape, dtype);
  if (static_cast<std::uint64_t>(size) != count)
    throw ShapeError(fmt::format("from: shape {} has {} elements, but {} values were given", text_of(shape), size, count));
  Array result = empty(shape, dtype);
  if (count) std::memcpy(result.data_, data, count * size_of(dtype));
  return result;
}

Array Array::from_bits(const std::vector<bool>& values, Extents shape) {
  const std::int64_t size = count_elements("from", shape, DType::Bool);
  if (static_cast<std::uint64_t>(size) != values.size())
    throw ShapeError(fmt::format("from: shape {} has {} elements, but {} values were given", text_of(shape), size, values.size()));
  Array result = empty(shape, DType::Bool);
  std::copy(values.begin(), values.end(), static_cast<std::uint8_t*>(result.data_));
  return result;
}

// ---- wrapped memory ----

namespace {
// Throws ValueError unless the pointer may be the first element of an array that has elements.
void check_first(const void* data, DType dtype, Extents shape) {
  if (!data) throw ValueError(fmt::format("wrap: the pointer is null, but shape {} needs memory", text_of(shape)));
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0)  // C++ and GPU kernels cannot access misaligned elements
    throw ValueError(fmt::format("wrap: address {2} is not {1}-byte aligned, as {0} requires. Copy the data or align it.", name_of(dtype),
                                 size_of(dtype), data));
}
}  // namespace

Array Array::wrap_checked(void* data, std::size_t count, DType dtype, Extents shape, bool read_only, detail::Shared<void> owner) {
  Array result = make(dtype, shape, "wrap");
  if (static_cast<std::uint64_t>(result.size_) != count)
    throw ShapeError(fmt::format("wrap: shape {} has {} elements, but the memory has {}", text_of(shape), result.size_, count));
  if (result.size_ > 0) check_first(data, dtype, shape);
  result.data_ = data;
  result.read_only_ = read_only;
  result.storage_ = share_owner(std::move(owner));
  return result;
}

Array Array::wrap_strided(void* data, std::size_t count, DType dtype, Extents shape, Extents strides, std::int64_t offset, bool read_only,
                          detail::Shared<void> owner) {
  const std::int64_t size = count_elements("wrap", shape, dtype);
  if (shape.size() != strides.size())
    throw ShapeError(
        fmt::format("wrap: shape {} has {} axes, but strides {} have {}", text_of(shape), shape.size(), text_of(strides), strides.size()));
  std::int64_t low = 0, high = 0;
  if (size > 0) {
    const bool counted =
        extent_of(shape, strides, low, high) && !__builtin_add_overflow(low, offset, &low) && !__builtin_add_overflow(high, offset, &high);
    if (!counted || low < 0 || static_cast<std::uint64_t>(high) >= count)
      throw ShapeError(
          fmt::format("wrap: shape {} with strides {} starting at element {} reaches outside the memory, which has {} elements",
                      text_of(shape), text_of(strides), offset, count));
  }
  auto* const first =
      size > 0 ? static_cast<std::byte*>(data) + offset * static_cast<std::int64_t>(size_of(dtype)) : static_cast<std::byte*>(data);
  return wrap_pointer_owned(first, dtype, shape, strides, read_only, std::move(owner), Device::cpu());
}

Array Array::wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only) {
  return wrap_pointer_owned(data, dtype, shape, strides, read_only, nullptr, Device::cpu());
}

Array Array::wrap_pointer_owned(void* data, DType dtype, Extents shape, Extents strides, bool read_only, detail::Shared<void> owner,
                                Device device) {
  Array result = make(dtype, shape, "wrap");
  if (shape.size() != strides.size())
    throw ShapeError(
        fmt::format("wrap: shape {} has {} axes, but strides {} have {}", text_of(shape), shape.size(), text_of(strides), strides.size()));
  if (result.size_ > 0) {
    std::int64_t low = 0, high = 0, bytes = 0;
    if (!extent_of(shape, strides, low, high) || __builtin_sub_overflow(high, low, &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<std::int64_t>(size_of(dtype)), &bytes))
      throw ShapeError(
          fmt::format("wrap: shape {} with strides {} spans more bytes than a 64-bit address can count", text_of(shape), text_of(strides)));
    check_first(data, dtype, shape);
    std::copy(strides.begin(), strides.end(), result.dims() + result.rank_);
    read_only = read_only || elements_may_overlap(shape, strides);
    result.update();
  }
  result.data_ = data;
  result.read_only_ = read_only;
  result.device_ = device;
  result.storage_ = device.is_cuda() ? cuda::share_memory(device, std::move(owner)) : share_owner(std::move(owner));
  return result;
}

// ---- properties ----

std::pair<const std::byte*, const std::byte*> Array::byte_range() const noexcept {
  const auto* const first = static_cast<const std::byte*>(data_);
  if (!valid_ || size_ == 0) return {first, first};
  const auto element = static_cast<std::int64_t>(size_of(dtype_));
  if (contiguous_) return {first, first + size_ * element};
  std::int64_t low = 0, high = 0;
  extent_of(shape(), strides(), low, high);
  return {first + low * element, first + (high + 1) * element};
}

void Array::fail_axis(const char* what, int axis) const {
  throw IndexError(fmt::format("{}: axis {} is out of range for shape {}, whose rank is {}", what, axis, text_of(shape()), rank()));
}

void Array::fail_read_only() const {
  throw ValueError(fmt::format("array {}{} is read-only: it wraps const memory, or its elements share memory. Write to a `copy()` of it.",
                               name_of(dtype_), text_of(shape())));
}

void Array::check_cpu(const char* what) const {
  if (device_.is_cuda())
    throw ValueError(fmt::format("{}: the array {}{} is on cuda:{}, so the CPU cannot read it. Copy it with `to(Device::cpu())`.", what,
                                 name_of(dtype_), text_of(shape()), device_.index()));
}

void Array::check_memory(const char* what) const {
  if (!valid_) throw ValueError(fmt::format("{}: the array is default-constructed and has no elements. Assign an array to it first", what));
}

int Array::axis_of(const char* what, std::int64_t axis) const {
  const std::int64_t counted = axis < 0 ? axis + rank_ : axis;
  if (counted < 0 || counted >= rank_)
    throw IndexError(fmt::format("{}: axis {} is out of range for shape {}, whose rank is {}", what, axis, text_of(shape()), rank()));
  return static_cast<int>(counted);
}

// ---- elements ----

void Array::check_elements(const char* what, DType dtype) const {
  check_memory(what);
  check_cpu(what);
  if (dtype_ != dtype) throw DTypeError(fmt::format("{}: the elements have type {}, not {}", what, name_of(dtype_), name_of(dtype)));
}

void Array::check_span(DType dtype, bool reads_only) const {
  check_elements("span", dtype);
  if (!contiguous_)
    throw ShapeError(fmt::format("span: the elements of shape {} with strides {} are not contiguous. Call `contiguous()` first.",
                                 text_of(shape()), text_of(strides())));
  if (read_only_ && !reads_only) fail_read_only();
}

Array Array::contiguous_bytes(DType dtype) const {
  check_elements("to_vector", dtype);
  return contiguous();
}

const void* Array::item_address(DType dtype) const {
  check_elements("item", dtype);
  if (size_ != 1) throw ShapeError(fmt::format("item: shape {} has {} elements; exactly one is required", text_of(shape()), size_));
  return data_;
}

const void* Array::element_address(Extents index, DType dtype) const {
  check_elements("at", dtype);
  if (index.size() != rank_)
    throw IndexError(
        fmt::format("at: index {} has {} components, but shape {} has {} axes", text_of(index), index.size(), text_of(shape()), rank()));
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::int64_t length = shape()[i], at = index[i] < 0 ? index[i] + length : index[i];
    if (at < 0 || at >= length)
      throw IndexError(fmt::format("at: index {} is out of range for shape {}", text_of(index), text_of(shape())));
    offset += at * strides()[i];
  }
  return static_cast<const std::byte*>(data_) + offset * static_cast<std::int64_t>(size_of(dtype_));
}

void Array::copy_elements(void* out) const {
  check_memory("copy");
  check_cpu("copy_elements");
  if (size_ == 0) return;
  if (contiguous_) {
    std::memcpy(out, data_, static_cast<std::size_t>(bytes()));
    return;
  }
  const Walk walk = simplified(shape(), strides());
  switch (size_of(dtype_)) {
    case 1: return copy_walk(static_cast<const std::uint8_t*>(data_), walk, static_cast<std::uint8_t*>(out));
    case 2: return copy_walk(static_cast<const std::uint16_t*>(data_), walk, static_cast<std::uint16_t*>(out));
    case 4: return copy_walk(static_cast<const std::uint32_t*>(data_), walk, static_cast<std::uint32_t*>(out));
    default: return copy_walk(static_cast<const std::uint64_t*>(data_), walk, static_cast<std::uint64_t*>(out));
  }
}

Array Array::copy() const {
  check_memory("copy");
  Array result = empty(shape(), dtype_, device_);
  if (device_.is_cuda()) cuda::copy_elements(*this, result);
  else copy_elements(result.data_);
  return result;
}

Array Array::to(Device device) const {
  check_memory("to");
  if (device == device_) return *this;
  const Array from = contiguous();
  Array result = empty(shape(), dtype_, device);
  cuda::copy_elements(from, result);
  return result;
}

// ---- views ----

Array Array::transpose(Extents axes) const {
  if (axes.size() != rank_)
    throw ShapeError(
        fmt::format("transpose: axes {} must list each of the {} axes of shape {} exactly once", text_of(axes), rank(), text_of(shape())));
  Array result = like(rank_);
  std::int64_t* const lengths = result.dims();
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = axis_of("transpose", axes[i]);
    if (seen >> axis & 1) throw ShapeError(fmt::format("transpose: axes {} list axis {} twice", text_of(axes), axis));
    seen |= 1u << axis;
    lengths[i] = dims()[axis];
    lengths[rank_ + i] = dims()[rank_ + axis];
  }
  result.update();
  return result;
}

Array Array::transpose() const {
  Array result = like(rank_);
  std::int64_t* const lengths = result.dims();
  std::reverse_copy(dims(), dims() + rank_, lengths);
  std::reverse_copy(dims() + rank_, dims() + 2 * rank_, lengths + rank_);
  result.update();
  return result;
}

Array Array::reshape(Extents shape) const {
  check_memory("reshape");
  std::array<std::int64_t, kMaxRank> lengths;
  const std::size_t new_rank = shape.size();
  if (new_rank > static_cast<std::size_t>(kMaxRank)) count_elements("reshape", shape, dtype_);  // throws
  std::copy(shape.begin(), shape.end(), lengths.begin());
  const std::span<std::int64_t> wanted(lengths.data(), new_rank);
  if (const auto open = std::find(wanted.begin(), wanted.end(), -1); open != wanted.end()) {
    if (std::find(open + 1, wanted.end(), -1) != wanted.end())
      throw ShapeError(fmt::format("reshape: {} has several lengths of -1; only one may be left out", text_of(shape)));
    *open = 1;
    const std::int64_t others = count_elements("reshape", wanted, dtype_);
    if (others == 0 || size_ % others != 0)
      throw ShapeError(fmt::format("reshape: -1 has no solution: no length makes {} hold the {} elements of shape {}", text_of(shape),
                                   size_, text_of(this->shape())));
    *open = size_ / others;
  }
  const std::int64_t size = count_elements("reshape", wanted, dtype_);
  if (size != size_)
    throw ShapeError(fmt::format("reshape: shape {} has {} elements, but shape {} has {}; the numbers must be equal", text_of(wanted), size,
                                 text_of(this->shape()), size_));

  Array result = like(static_cast<int>(new_rank));
  std::int64_t* const out = result.dims();
  std::copy(wanted.begin(), wanted.end(), out);
  // Contiguous axes form one run of elements; whole new axes must divide each run.
  const Walk walk = size_ == 0 ? Walk{} : simplified(this->shape(), strides());
  std::size_t next = 0;  // number of new axes that have their strides
  const auto give_rest = [&] {
    std::int64_t stride = 1;
    for (std::size_t i = new_rank; i-- > next; stride *= std::max<std::int64_t>(wanted[i], 1)) out[new_rank + i] = stride;
  };
  for (std::size_t run = 0; run < walk.rank; ++run) {
    const std::size_t first = next;
    std::int64_t product = 1;
    while (next < new_rank && product < walk.shape[run]) product *= wanted[next++];
    if (product != walk.shape[run]) {
      Array fresh = copy();
      next = 0;
      give_rest();
      std::swap(result.data_, fresh.data_);
      std::swap(result.storage_, fresh.storage_);
      result.read_only_ = false;
      result.update();
      return result;
    }
    std::int64_t stride = walk.strides[run];
    for (std::size_t i = next; i-- > first; stride *= wanted[i]) out[new_rank + i] = stride;
  }
  give_rest();  // remaining axes of length 1, if any
  result.update();
  return result;
}

Array Array::slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  const int i = axis_of("slice", axis);
  if (step == 0) throw ValueError("slice: the step is 0. Pass a nonzero step.");
  const std::int64_t length = dims()[i];
  // Positions are clamped to the possible start and end of a walk in this direction.
  const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
  const auto clamped = [&](std::int64_t position) { return std::clamp(position < 0 ? position + length : position, lowest, highest); };
  const std::int64_t from = clamped(start), to = stop == kToEnd ? (step > 0 ? length : -1) : clamped(stop);
  const std::uint64_t distance =
      step > 0 ? (to > from ? static_cast<std::uint64_t>(to - from) : 0) : (from > to ? static_cast<std::uint64_t>(from - to) : 0);
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const auto count = distance == 0 ? 0 : static_cast<std::int64_t>((distance - 1) / stride) + 1;

  Array result = *this;
  std::int64_t* const lengths = result.dims();
  lengths[i] = count;
  if (count > 1) lengths[rank_ + i] *= step;  // otherwise unused, and the product might overflow
  result.update();
  if (result.size_ > 0)
    result.data_ = static_cast<std::byte*>(data_) + from * dims()[rank_ + i] * static_cast<std::int64_t>(size_of(dtype_));
  return result;
}

Array Array::flip(int axis) const {
  axis_of("flip", axis);
  return slice(axis, -1, kToEnd, -1);
}

Array Array::broadcast_to(Extents shape) const {
  const std::int64_t size = count_elements("broadcast_to", shape, dtype_);
  const std::size_t rank = shape.size(), before = rank - std::min<std::size_t>(rank, rank_);
  bool fits = rank >= rank_;
  for (std::size_t i = before; fits && i < rank; ++i) fits = dims()[i - before] == shape[i] || dims()[i - before] == 1;
  if (!fits) throw ShapeError(fmt::format("broadcast_to: shape {} does not broadcast to {}", text_of(this->shape()), text_of(shape)));
  Array result = like(static_cast<int>(rank));
  std::int64_t* const lengths = result.dims();
  for (std::size_t i = 0; i < rank; ++i) {
    lengths[i] = shape[i];
    const bool own = i >= before && dims()[i - before] == shape[i];
    lengths[rank + i] = own ? dims()[rank_ + i - before] : 0;
  }
  result.update();
  if (size > size_) result.read_only_ = true;
  return result;
}

Array Array::bitcast(DType dtype) const {
  if (size_of(dtype) != size_of(dtype_))
    throw DTypeError(fmt::format("bitcast: {} has {} bytes per element, but {} has {}; the sizes must be equal", name_of(dtype_),
                                 size_of(dtype_), name_of(dtype), size_of(dtype)));
  Array result = *this;
  result.dtype_ = dtype;
  return result;
}

}  // namespace onepass
