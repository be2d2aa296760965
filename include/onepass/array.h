// Array: dtype, shape, strides and a shared pointer to memory. What users pass in and get back; views share memory and are free.
// A light header: no formatting, no streams, no exceptions in inline code.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "onepass/device.h"
#include "onepass/dtype.h"
#include "onepass/export.h"
#include "onepass/half.h"
#include "onepass/shared.h"

struct DLManagedTensor;  // of dlpack.h
struct DLManagedTensorVersioned;

namespace onepass {

inline constexpr int kMaxRank = 32;

/// One length, stride or index, from any integer type, so that `{x.size(), 3}` compiles.
struct Extent {
  std::int64_t value;
  template <std::integral T> constexpr Extent(T v) noexcept : value(static_cast<std::int64_t>(v)) {}  // NOLINT: implicit by design
};

/// A list of lengths, strides, axes or indices as an argument: `{n, m}`, a vector, a span, an array. Does not own them.
class Extents {
 public:
  constexpr Extents() noexcept = default;
  constexpr Extents(std::initializer_list<Extent> list) noexcept {
    size_ = list.size();
    if (size_ > 0) data_ = &list.begin()->value;
  }
  constexpr Extents(std::span<const std::int64_t> list) noexcept : data_(list.data()), size_(list.size()) {}
  Extents(const std::vector<std::int64_t>& list) noexcept : data_(list.data()), size_(list.size()) {}

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr const std::int64_t* begin() const noexcept { return data_; }
  constexpr const std::int64_t* end() const noexcept { return data_ + size_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr operator std::span<const std::int64_t>() const noexcept { return {data_, size_}; }

 private:
  static_assert(sizeof(Extent) == sizeof(std::int64_t));
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

struct Storage;      // counted memory of one or more arrays: runtime/storage.h
struct ArrayAccess;  // what the runtime may see of one

template <class T> struct is_span : std::false_type {};
template <class T, std::size_t E> struct is_span<std::span<T, E>> : std::true_type {};

template <class T>
concept Element = requires { dtype_for<std::remove_cv_t<T>>::value; };
/// A range with `data()` and `size()`.
template <class R>
concept DataAndSize = requires(R& r) {
  r.data();
  requires std::is_pointer_v<decltype(r.data())>;
  requires Element<std::remove_pointer_t<decltype(r.data())>>;
  { r.size() } -> std::convertible_to<std::size_t>;
};
/// A matrix or vector as Eigen has them: elements of both strides, stored by rows or by columns. Also maps, blocks and references of these.
template <class R>
concept Matrix = DataAndSize<R> && requires(R& r) {
  { r.rows() } -> std::convertible_to<std::int64_t>;
  { r.cols() } -> std::convertible_to<std::int64_t>;
  { r.innerStride() } -> std::convertible_to<std::int64_t>;
  { r.outerStride() } -> std::convertible_to<std::int64_t>;
  static_cast<bool>(R::IsRowMajor);
  static_cast<bool>(R::IsVectorAtCompileTime);
};
/// Something other than a span that keeps elements: std::vector, std::array, an array of C, a matrix, ….
template <class R>
concept Container = !is_span<std::remove_cvref_t<R>>::value &&
                    (requires(std::remove_reference_t<R>& r) { std::span(r); } || DataAndSize<std::remove_reference_t<R>>);

/// The memory between a container's first and last element.
template <class R> auto memory_of(R& r) {
  if constexpr (Matrix<R>) {
    const auto outer = static_cast<std::int64_t>(R::IsRowMajor ? r.rows() : r.cols());
    const auto inner = static_cast<std::int64_t>(R::IsRowMajor ? r.cols() : r.rows());
    const std::int64_t last =
        (outer - 1) * static_cast<std::int64_t>(r.outerStride()) + (inner - 1) * static_cast<std::int64_t>(r.innerStride());
    return std::span(r.data(), outer > 0 && inner > 0 ? static_cast<std::size_t>(last + 1) : 0);
  } else if constexpr (requires { std::span(r); }) {
    return std::span(r);
  } else {
    return std::span(r.data(), static_cast<std::size_t>(r.size()));
  }
}

}  // namespace detail

/// A tensor in memory. Copying an Array copies a reference: both see the same elements; `copy()` copies elements.
/// A default-constructed Array is empty: rank 0 without memory; `has_memory()` tells, and reading it is an error.
/// Different Arrays may be used from different threads at once, also when they share memory that nobody writes.
class ONEPASS_API Array {
 public:
  Array() noexcept {}
  Array(const Array& other);
  Array(Array&& other) noexcept { take(other); }
  Array& operator=(const Array& other);
  Array& operator=(Array&& other) noexcept;
  ~Array() { release(); }

  // ---- new memory ----
  // Memory comes from a pool, at a multiple of 64 bytes. Errors: ShapeError for a negative length, more than 32 axes, or more bytes
  // than an address can count; MemoryError with the number of bytes when they cannot be allocated.

  // On a GPU it comes from that device's pool, at a multiple of 256 (docs/cuda.md).

  /// Uninitialized elements.
  static Array empty(Extents shape, DType dtype, Device device = Device::cpu());
  static Array zeros(Extents shape, DType dtype, Device device = Device::cpu());
  static Array ones(Extents shape, DType dtype) { return full_integer(shape, 1, dtype); }
  /// Every element `value`, rounded once to a float dtype. ValueError where an integer dtype cannot hold it exactly.
  template <class T> requires std::is_arithmetic_v<T> static Array full(Extents shape, T value, DType dtype) {
    if constexpr (std::is_same_v<T, std::uint64_t>) return full_unsigned(shape, value, dtype);
    else if constexpr (std::is_integral_v<T>) return full_integer(shape, static_cast<std::int64_t>(value), dtype);
    else return full_float(shape, static_cast<double>(value), dtype);
  }
  /// Rank 0, of the C++ type's dtype.
  template <detail::Element T> static Array scalar(T value) {
    if constexpr (std::is_arithmetic_v<T>) return full({}, value, onepass::dtype<T>);
    else return full({}, static_cast<float>(value), onepass::dtype<T>);  // a half: exactly
  }

  /// Takes the vector over; its elements stay where they are. Shape: as given, or one axis.
  template <detail::Element T> static Array from(std::vector<T>&& values, Extents shape) {
    if constexpr (std::is_same_v<T, bool>) {
      return from_bits(values, shape);
    } else {
      const auto owner = detail::Shared<std::vector<T>>::make(std::move(values));
      return wrap_checked(owner->data(), owner->size(), onepass::dtype<T>, shape, false, owner);
    }
  }
  /// Copies the elements.
  template <detail::Element T> static Array from(const std::vector<T>& values, Extents shape) {
    if constexpr (std::is_same_v<T, bool>) return from_bits(values, shape);
    else return copy_of(values.data(), values.size(), onepass::dtype<T>, shape);
  }
  template <detail::Element T> static Array from(std::initializer_list<T> values, Extents shape) {
    return copy_of(values.begin(), values.size(), onepass::dtype<T>, shape);
  }
  template <detail::Element T> static Array from(std::vector<T>&& values) {
    const std::int64_t size[] = {static_cast<std::int64_t>(values.size())};
    return from(std::move(values), Extents(size));
  }
  template <detail::Element T> static Array from(const std::vector<T>& values) { return from(values, {values.size()}); }
  template <detail::Element T> static Array from(std::initializer_list<T> values) { return from(values, {values.size()}); }

  // ---- memory of others ----
  // No copy. The memory must outlive every Array and view of it, unless `owner`, a std::shared_ptr or any other object, keeps it alive: it
  // is kept until the last of them goes. Elements of const type make a
  // read-only Array: as a target it is an error. ShapeError when the shape does not have exactly the span's elements, or when
  // shape and strides reach outside it.

  template <class T, std::size_t E> requires detail::Element<T> static Array wrap(std::span<T, E> data, Extents shape) {
    return wrap_checked(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, std::is_const_v<T>, nullptr);
  }
  template <class T, std::size_t E, class Owner> requires(detail::Element<T> && !std::is_convertible_v<Owner, Extents>)
  static Array wrap(std::span<T, E> data, Extents shape, Owner owner) {
    return wrap_checked(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, std::is_const_v<T>,
                        detail::Shared<Owner>::make(std::move(owner)));
  }
  /// One axis.
  template <class T, std::size_t E> requires detail::Element<T> static Array wrap(std::span<T, E> data) {
    return wrap(data, {data.size()});
  }
  /// Strides in elements, of either sign; element (0, …, 0) is `data[offset]`. Elements that share memory make it read-only.
  template <class T, std::size_t E> requires detail::Element<T>
  static Array wrap(std::span<T, E> data, Extents shape, Extents strides, std::int64_t offset = 0) {
    return wrap_strided(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, strides, offset, std::is_const_v<T>,
                        nullptr);
  }
  template <class T, std::size_t E, class Owner> requires detail::Element<T>
  static Array wrap(std::span<T, E> data, Extents shape, Extents strides, std::int64_t offset, Owner owner) {
    return wrap_strided(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, strides, offset, std::is_const_v<T>,
                        detail::Shared<Owner>::make(std::move(owner)));
  }
  /// The same for a container that stays alive, `wrap(vector, {n, m})`: whatever std::span takes, or has `data()` and `size()`; a temporary does
  /// not compile. A matrix of Eigen has the shape [rows, cols] and the strides of its storage order, a vector one axis; with a shape it is its
  /// memory as that lies.
  template <detail::Container R> static Array wrap(R& container) {
    if constexpr (detail::Matrix<R>) {
      const auto rows = static_cast<std::int64_t>(container.rows()), cols = static_cast<std::int64_t>(container.cols());
      const auto inner = static_cast<std::int64_t>(container.innerStride()), outer = static_cast<std::int64_t>(container.outerStride());
      if constexpr (R::IsVectorAtCompileTime) return wrap(detail::memory_of(container), {rows * cols}, {inner});
      else if constexpr (R::IsRowMajor) return wrap(detail::memory_of(container), {rows, cols}, {outer, inner});
      else return wrap(detail::memory_of(container), {rows, cols}, {inner, outer});
    } else {
      return wrap(detail::memory_of(container));
    }
  }
  template <detail::Container R> static Array wrap(R& container, Extents shape) { return wrap(detail::memory_of(container), shape); }
  template <detail::Container R> static Array wrap(R& container, Extents shape, Extents strides, std::int64_t offset = 0) {
    return wrap(detail::memory_of(container), shape, strides, offset);
  }
  template <detail::Container R> static Array wrap(R&& temporary) = delete;
  template <detail::Container R> static Array wrap(R&& temporary, Extents shape) = delete;
  template <detail::Container R> static Array wrap(R&& temporary, Extents shape, Extents strides, std::int64_t offset = 0) = delete;

  /// For interfaces without C++ types: `data` points at element (0, …, 0), at a multiple of the element's size; nothing can be checked but
  /// the numbers themselves.
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only);
  template <class Owner> static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Owner owner) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, detail::Shared<Owner>::make(std::move(owner)), Device::cpu());
  }
  /// Memory of a GPU: `data` is a device pointer. Its elements are taken to be there for what comes on the stream of this thread's
  /// StreamScope, outside of one at once.
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Device device) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, nullptr, device);
  }
  template <class Owner>
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Device device, Owner owner) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, detail::Shared<Owner>::make(std::move(owner)), device);
  }

  /// A tensor of another library, through DLPack (https://dmlc.github.io/dlpack): no copy; `tensor->deleter` is called when the last Array of
  /// its memory goes. DTypeError for an element type, ValueError for a device that onepass does not have; the tensor stays the caller's then.
  /// On a GPU the elements are used after what `stream` (a `CUstream` or `cudaStream_t`) has to do now. Null: the stream of this thread's
  /// StreamScope, else CUDA's default stream, which is what DLPack's `stream=None` means; -1: they are ready.
  static Array from_dlpack(DLManagedTensor* tensor, void* stream = nullptr);
  /// Of DLPack 1.0, which says whether a tensor is read-only. ValueError for another major version.
  static Array from_dlpack_versioned(DLManagedTensorVersioned* tensor, void* stream = nullptr);
  /// The same elements for another library, which calls the `deleter` when it is done. DLPack before 1.0 cannot say that an Array is read-only.
  /// On a GPU what `stream` does from now on (null: as above; -1: none) runs after what makes the elements; nothing waits here.
  DLManagedTensor* to_dlpack(void* stream = nullptr) const;
  /// `copied`: the other library has the elements to itself, and may know (DLPACK_FLAG_BITMASK_IS_COPIED).
  DLManagedTensorVersioned* to_dlpack_versioned(void* stream = nullptr, bool copied = false) const;

  // ---- what it is ----

  DType dtype() const noexcept { return dtype_; }
  int rank() const noexcept { return rank_; }
  std::span<const std::int64_t> shape() const noexcept { return {dims(), rank_}; }
  /// In elements, of either sign.
  std::span<const std::int64_t> strides() const noexcept { return {dims() + rank_, rank_}; }
  /// The length of an axis; a negative one counts from the end. IndexError when there is none.
  std::int64_t dim(int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    if (i < 0 || i >= rank_) fail_axis("dim", axis);
    return dims()[i];
  }
  /// The number of elements: 1 at rank 0.
  std::int64_t size() const noexcept { return size_; }
  /// Bytes of the elements, each counted once: size() times the element's bytes.
  std::int64_t bytes() const noexcept { return size_ * static_cast<std::int64_t>(size_of(dtype_)); }
  /// Whether the elements are contiguous in row-major order.
  bool is_contiguous() const noexcept { return contiguous_; }
  bool is_read_only() const noexcept { return read_only_; }
  /// Where the elements are. `data()` of an array on a GPU is a device pointer; `span`, `to_vector`, `item` and `at` are a ValueError for it.
  Device device() const noexcept { return device_; }
  /// False only for a default-constructed Array.
  bool has_memory() const noexcept { return valid_; }

  /// Element (0, …, 0). May be null when size() is 0.
  const void* data() const noexcept { return data_; }
  /// ValueError when the Array is read-only.
  void* mutable_data() const {
    if (read_only_) fail_read_only();
    return data_;
  }
  /// The bytes that the elements touch, first and one past the last; equal when size() is 0.
  std::pair<const std::byte*, const std::byte*> byte_range() const noexcept;

  // ---- elements ----
  // DTypeError unless T is the dtype's C++ type: Half and BFloat16 for halves, whose bits `bitcast` shows as u16.

  /// The elements in place. ShapeError unless contiguous (`contiguous()` helps); ValueError when read-only and T is not const.
  template <class T> std::span<T> span() const {
    check_span(onepass::dtype<std::remove_const_t<T>>, std::is_const_v<T>);
    return {static_cast<T*>(data_), static_cast<std::size_t>(size_)};
  }
  /// The elements in row-major order, whatever the strides.
  template <class T> std::vector<T> to_vector() const {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<T> result(static_cast<std::size_t>(size_));
      const Array flat = contiguous_bytes(DType::Bool);
      const auto* const bytes = static_cast<const unsigned char*>(flat.data());
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = bytes[i] != 0;
      return result;
    } else {
      check_elements("to_vector", onepass::dtype<T>);
      std::vector<T> result(static_cast<std::size_t>(size_));
      copy_elements(result.data());
      return result;
    }
  }
  /// The only element. ShapeError when there is not exactly one.
  template <class T> T item() const { return load<T>(item_address(onepass::dtype<T>)); }
  /// One element; negative indices count from the end. IndexError outside the shape.
  template <class T> T at(Extents index) const { return load<T>(element_address(index, onepass::dtype<T>)); }

  // ---- views: share memory, copy nothing ----
  // Negative axes count from the end. ShapeError or IndexError when they do not fit.

  /// Axis i of the result is axis `axes[i]` of this one; without axes, reversed.
  Array transpose(Extents axes) const;
  Array transpose() const;
  /// The same elements in row-major order; one length may be -1. A view where the strides allow it, else a fresh copy.
  Array reshape(Extents shape) const;
  /// Elements start, start + step, … before stop, clamped as in Python. ValueError for step 0. With kToEnd they go on to the axis'
  /// last element, or to its first for a negative step.
  static constexpr std::int64_t kToEnd = INT64_MAX;
  Array slice(int axis, std::int64_t start, std::int64_t stop = kToEnd, std::int64_t step = 1) const;
  Array flip(int axis) const;
  /// Stride 0 along new axes and those of length 1; read-only, since elements share memory.
  Array broadcast_to(Extents shape) const;
  /// The same bytes as another dtype of the same size: halves as u16 and back. DTypeError when sizes differ.
  Array bitcast(DType dtype) const;

  // ---- copies ----

  /// This one if its elements are there, else a fresh row-major copy on `device`. A copy to the cpu waits for it.
  Array to(Device device) const;
  /// This one if it is contiguous, else a fresh row-major copy.
  Array contiguous() const { return contiguous_ ? *this : copy(); }
  /// A fresh row-major copy, writable.
  Array copy() const;
  /// Writes the elements in row-major order to `out`, which has room for bytes() and does not overlap them.
  void copy_elements(void* out) const;

 private:
  static constexpr int kInlineRank = 6;  // images, volumes and batches of them without a heap block

  template <class T> static void* erase(T* data) noexcept { return const_cast<void*>(static_cast<const void*>(data)); }
  template <class T> static T load(const void* address) noexcept {
    if constexpr (std::is_same_v<T, bool>) return *static_cast<const unsigned char*>(address) != 0;
    else return *static_cast<const T*>(address);
  }

  static Array make(DType dtype, Extents shape, const char* what);
  static Array full_float(Extents shape, double value, DType dtype);
  static Array full_integer(Extents shape, std::int64_t value, DType dtype);
  static Array full_unsigned(Extents shape, std::uint64_t value, DType dtype);
  static Array from_bits(const std::vector<bool>& values, Extents shape);
  static Array copy_of(const void* data, std::size_t count, DType dtype, Extents shape);
  static Array wrap_checked(void* data, std::size_t count, DType dtype, Extents shape, bool read_only, detail::Shared<void> owner);
  static Array wrap_pointer_owned(void* data, DType dtype, Extents shape, Extents strides, bool read_only, detail::Shared<void> owner,
                                  Device device);
  static Array wrap_strided(void* data, std::size_t count, DType dtype, Extents shape, Extents strides, std::int64_t offset, bool read_only,
                            detail::Shared<void> owner);

  [[noreturn]] void fail_axis(const char* what, int axis) const;
  [[noreturn]] void fail_read_only() const;
  int axis_of(const char* what, std::int64_t axis) const;
  void check_span(DType dtype, bool reads_only) const;
  void check_elements(const char* what, DType dtype) const;
  Array contiguous_bytes(DType dtype) const;
  const void* item_address(DType dtype) const;
  const void* element_address(Extents index, DType dtype) const;

  const std::int64_t* dims() const noexcept { return rank_ <= kInlineRank ? inline_ : heap_; }
  std::int64_t* dims() noexcept { return rank_ <= kInlineRank ? inline_ : heap_; }
  std::int64_t* reserve_dims(int rank);  // room for lengths and strides; the Array has none yet
  void update() noexcept;                // size and contiguity from lengths and strides
  Array like(int rank) const;            // same memory and dtype; lengths and strides still to be filled in
  void check_memory(const char* what) const;
  void check_cpu(const char* what) const;
  void take(Array& other) noexcept;
  friend struct detail::ArrayAccess;
  void release() noexcept;

  void* data_ = nullptr;
  detail::Storage* storage_ = nullptr;  // null for memory that the caller keeps alive
  std::int64_t size_ = 1;
  std::uint8_t rank_ = 0;
  DType dtype_ = DType::F32;
  bool contiguous_ = true;
  bool read_only_ = false;
  bool valid_ = false;
  Device device_;
  union {
    std::int64_t inline_[2 * kInlineRank];  // lengths, then strides
    std::int64_t* heap_;
  };
};

}  // namespace onepass
