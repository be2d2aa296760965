// Array: dtype, shape, strides and a shared pointer to memory. Users pass Arrays in and get Arrays back. Views share memory and copy
// nothing. This header includes no formatting and no streams, and its inline code throws no exceptions.
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

struct DLManagedTensor;  // from dlpack.h
struct DLManagedTensorVersioned;

namespace onepass {

inline constexpr int kMaxRank = 32;

/// One length, stride or index. Converts from any integer type, so that `{x.size(), 3}` compiles.
struct Extent {
  std::int64_t value;
  template <std::integral T> constexpr Extent(T v) noexcept : value(static_cast<std::int64_t>(v)) {}  // NOLINT: implicit by design
};

/// A non-owning list of lengths, strides, axes or indices, used as an argument: `{n, m}`, a vector, a span or an array.
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

struct Storage;      // reference-counted memory of one or more arrays: runtime/storage.h
struct ArrayAccess;  // the runtime's access to private members

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
/// An Eigen-like matrix or vector with an inner and an outer stride, in row-major or column-major order. Includes Eigen maps, blocks and
/// references.
template <class R>
concept Matrix = DataAndSize<R> && requires(R& r) {
  { r.rows() } -> std::convertible_to<std::int64_t>;
  { r.cols() } -> std::convertible_to<std::int64_t>;
  { r.innerStride() } -> std::convertible_to<std::int64_t>;
  { r.outerStride() } -> std::convertible_to<std::int64_t>;
  static_cast<bool>(R::IsRowMajor);
  static_cast<bool>(R::IsVectorAtCompileTime);
};
/// Any contiguous range other than a span: std::vector, std::array, a C array, a matrix, ….
template <class R>
concept Container = !is_span<std::remove_cvref_t<R>>::value &&
                    (requires(std::remove_reference_t<R>& r) { std::span(r); } || DataAndSize<std::remove_reference_t<R>>);

/// Returns the memory from a container's first to its last element.
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

/// A tensor in memory. Copying an Array copies a reference, so both see the same elements; `copy()` copies the elements. A
/// default-constructed Array is empty: it has rank 0 and no memory, and reading it is an error. `has_memory()` tests for this. Threads
/// may use different Arrays at the same time, even Arrays that share memory, as long as no thread writes that memory.
class ONEPASS_API Array {
 public:
  Array() noexcept {}
  Array(const Array& other);
  Array(Array&& other) noexcept { take(other); }
  Array& operator=(const Array& other);
  Array& operator=(Array&& other) noexcept;
  ~Array() { release(); }

  // ---- new memory ----
  // Memory comes from a pool, aligned to 64 bytes. These functions throw ShapeError for a negative length, more than 32 axes, or a size
  // that exceeds the address space. They throw MemoryError, with the number of bytes, if the allocation fails.

  // On a GPU, memory comes from the pool of that device, aligned to 256 bytes (docs/cuda.md).

  /// Returns an array with uninitialized elements.
  static Array empty(Extents shape, DType dtype, Device device = Device::cpu());
  static Array zeros(Extents shape, DType dtype, Device device = Device::cpu());
  static Array ones(Extents shape, DType dtype) { return full_integer(shape, 1, dtype); }
  /// Returns an array filled with `value`, rounded once for a float dtype. Throws ValueError if an integer dtype cannot represent it
  /// exactly.
  template <class T> requires std::is_arithmetic_v<T> static Array full(Extents shape, T value, DType dtype) {
    if constexpr (std::is_same_v<T, std::uint64_t>) return full_unsigned(shape, value, dtype);
    else if constexpr (std::is_integral_v<T>) return full_integer(shape, static_cast<std::int64_t>(value), dtype);
    else return full_float(shape, static_cast<double>(value), dtype);
  }
  /// Returns a rank-0 array with the dtype of the C++ type.
  template <detail::Element T> static Array scalar(T value) {
    if constexpr (std::is_arithmetic_v<T>) return full({}, value, onepass::dtype<T>);
    else return full({}, static_cast<float>(value), onepass::dtype<T>);  // a half converts exactly
  }

  /// Takes ownership of the vector; its elements do not move. Without `shape`, the result has one axis.
  template <detail::Element T> static Array from(std::vector<T>&& values, Extents shape) {
    if constexpr (std::is_same_v<T, bool>) {
      return from_bits(values, shape);
    } else {
      const auto owner = detail::Shared<std::vector<T>>::make(std::move(values));
      return wrap_checked(owner->data(), owner->size(), onepass::dtype<T>, shape, false, owner);
    }
  }
  /// Copies the elements. Without `shape`, the result has one axis.
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

  // ---- wrapped memory ----
  // Wraps existing memory without a copy. The memory must outlive every Array and view of it, unless an `owner` is given. `owner` is a
  // std::shared_ptr or any other object that keeps the memory alive; it is destroyed after the last such Array and view. Elements of
  // const type make a read-only Array, which cannot be a destination. Throws ShapeError if the shape does not have exactly as many
  // elements as the span, or if shape and strides reach outside the span.

  template <class T, std::size_t E> requires detail::Element<T> static Array wrap(std::span<T, E> data, Extents shape) {
    return wrap_checked(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, std::is_const_v<T>, nullptr);
  }
  template <class T, std::size_t E, class Owner> requires(detail::Element<T> && !std::is_convertible_v<Owner, Extents>)
  static Array wrap(std::span<T, E> data, Extents shape, Owner owner) {
    return wrap_checked(erase(data.data()), data.size(), onepass::dtype<std::remove_const_t<T>>, shape, std::is_const_v<T>,
                        detail::Shared<Owner>::make(std::move(owner)));
  }
  /// Wraps the span as an array with one axis.
  template <class T, std::size_t E> requires detail::Element<T> static Array wrap(std::span<T, E> data) {
    return wrap(data, {data.size()});
  }
  /// Wraps the span with strides in elements, of either sign; element (0, …, 0) is `data[offset]`. The Array is read-only if elements
  /// overlap.
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
  /// Wraps a container that must outlive the Array: `wrap(vector, {n, m})`. Accepts any lvalue that std::span accepts or that has
  /// `data()` and `size()`; temporaries do not compile. An Eigen matrix has shape [rows, cols] and the strides of its storage order; an
  /// Eigen vector has one axis. With `shape`, wraps the container's memory in storage order.
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

  /// Wraps memory for interfaces without C++ types. `data` points to element (0, …, 0), aligned to the element size. Checks only rank,
  /// lengths and strides, because the extent of the memory is unknown.
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only);
  template <class Owner> static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Owner owner) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, detail::Shared<Owner>::make(std::move(owner)), Device::cpu());
  }
  /// Wraps GPU memory; `data` is a device pointer. Inside a StreamScope of this thread, the elements must be ready for later work on its
  /// stream. Outside of a StreamScope, they must be ready at the call.
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Device device) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, nullptr, device);
  }
  template <class Owner>
  static Array wrap_pointer(void* data, DType dtype, Extents shape, Extents strides, bool read_only, Device device, Owner owner) {
    return wrap_pointer_owned(data, dtype, shape, strides, read_only, detail::Shared<Owner>::make(std::move(owner)), device);
  }

  /// Wraps a DLPack tensor of another library without a copy (https://dmlc.github.io/dlpack). Calls `tensor->deleter` after the last
  /// Array of its memory is destroyed. Throws DTypeError for an unsupported element type and ValueError for an unknown device; the caller
  /// then keeps the tensor.
  ///
  /// On a GPU, `stream` (a `CUstream` or `cudaStream_t`) is the stream that produces the elements; reads wait for its current work. Null
  /// means the stream of this thread's StreamScope, else CUDA's default stream, like DLPack's `stream=None`. -1 means no wait.
  static Array from_dlpack(DLManagedTensor* tensor, void* stream = nullptr);
  /// Wraps a DLPack 1.0 tensor, which has a read-only flag. Throws ValueError for another major version.
  static Array from_dlpack_versioned(DLManagedTensorVersioned* tensor, void* stream = nullptr);
  /// Exports the elements to another library, which calls the `deleter` when it is done. DLPack before 1.0 has no read-only flag. On a
  /// GPU, later work on `stream` runs after the elements are ready (null: as above; -1: no ordering). The call itself does not wait.
  DLManagedTensor* to_dlpack(void* stream = nullptr) const;
  /// Exports a DLPack 1.0 tensor. `copied` sets DLPACK_FLAG_BITMASK_IS_COPIED: the receiver has the only reference to the elements.
  DLManagedTensorVersioned* to_dlpack_versioned(void* stream = nullptr, bool copied = false) const;

  // ---- properties ----

  DType dtype() const noexcept { return dtype_; }
  int rank() const noexcept { return rank_; }
  std::span<const std::int64_t> shape() const noexcept { return {dims(), rank_}; }
  /// Returns the strides in elements, of either sign.
  std::span<const std::int64_t> strides() const noexcept { return {dims() + rank_, rank_}; }
  /// Returns the length of an axis; a negative axis counts from the end. Throws IndexError if the axis does not exist.
  std::int64_t dim(int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    if (i < 0 || i >= rank_) fail_axis("dim", axis);
    return dims()[i];
  }
  /// Returns the number of elements; 1 for rank 0.
  std::int64_t size() const noexcept { return size_; }
  /// Returns size() times the element size, in bytes.
  std::int64_t bytes() const noexcept { return size_ * static_cast<std::int64_t>(size_of(dtype_)); }
  /// True if the elements are contiguous in row-major order.
  bool is_contiguous() const noexcept { return contiguous_; }
  bool is_read_only() const noexcept { return read_only_; }
  /// Returns the device of the elements. On a GPU, `data()` is a device pointer, and `span`, `to_vector`, `item` and `at` throw
  /// ValueError.
  Device device() const noexcept { return device_; }
  /// False only for a default-constructed Array.
  bool has_memory() const noexcept { return valid_; }

  /// Returns the address of element (0, …, 0). May be null if size() is 0.
  const void* data() const noexcept { return data_; }
  /// Returns the same address for writing. Throws ValueError if the Array is read-only.
  void* mutable_data() const {
    if (read_only_) fail_read_only();
    return data_;
  }
  /// Returns the address range of the elements: the first byte and one past the last byte. Both are equal if size() is 0.
  std::pair<const std::byte*, const std::byte*> byte_range() const noexcept;

  // ---- elements ----
  // These functions throw DTypeError unless T is the dtype's C++ type. Halves are Half and BFloat16; `bitcast` views their bits as u16.

  /// Returns the elements in place. Throws ShapeError unless contiguous (call `contiguous()` first), and ValueError if read-only and T is
  /// not const.
  template <class T> std::span<T> span() const {
    check_span(onepass::dtype<std::remove_const_t<T>>, std::is_const_v<T>);
    return {static_cast<T*>(data_), static_cast<std::size_t>(size_)};
  }
  /// Copies the elements in row-major order, for any strides.
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
  /// Returns the only element. Throws ShapeError unless there is exactly one.
  template <class T> T item() const { return load<T>(item_address(onepass::dtype<T>)); }
  /// Returns one element; negative indices count from the end. Throws IndexError outside the shape.
  template <class T> T at(Extents index) const { return load<T>(element_address(index, onepass::dtype<T>)); }

  // ---- views: share memory, copy nothing ----
  // Negative axes count from the end. These functions throw ShapeError or IndexError for invalid arguments.

  /// Permutes the axes: axis i of the result is axis `axes[i]` of this Array. Without `axes`, reverses their order.
  Array transpose(Extents axes) const;
  Array transpose() const;
  /// Returns the same elements in row-major order under a new shape; one length may be -1. Copies only if the strides do not allow a
  /// view.
  Array reshape(Extents shape) const;
  /// Returns elements start, start + step, … before stop, clamped as in Python. Throws ValueError for step 0. kToEnd includes the last
  /// element of the axis, or the first element for a negative step.
  static constexpr std::int64_t kToEnd = INT64_MAX;
  Array slice(int axis, std::int64_t start, std::int64_t stop = kToEnd, std::int64_t step = 1) const;
  Array flip(int axis) const;
  /// Repeats the elements with stride 0 along new axes and axes of length 1. The result is read-only, because its elements overlap.
  Array broadcast_to(Extents shape) const;
  /// Views the bytes as another dtype of the same size, such as halves as u16. Throws DTypeError if the sizes differ.
  Array bitcast(DType dtype) const;

  // ---- copies ----

  /// Returns this Array if it is on `device`, else a new row-major copy there. A copy to the CPU blocks until it is complete, and throws
  /// IndexError if an earlier call on that device met a bad index and this was not thrown yet.
  Array to(Device device) const;
  /// Returns this Array if it is contiguous, else a new row-major copy.
  Array contiguous() const { return contiguous_ ? *this : copy(); }
  /// Returns a new, writable row-major copy.
  Array copy() const;
  /// Writes the elements in row-major order to `out`, which must have bytes() bytes and must not overlap them.
  void copy_elements(void* out) const;

 private:
  static constexpr int kInlineRank = 6;  // images, volumes and batches of them need no heap allocation

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
  std::int64_t* reserve_dims(int rank);  // allocates lengths and strides; the Array must have none yet
  void update() noexcept;                // recomputes size and contiguity from lengths and strides
  Array like(int rank) const;            // same memory and dtype; the caller sets lengths and strides
  void check_memory(const char* what) const;
  void check_cpu(const char* what) const;
  void take(Array& other) noexcept;
  friend struct detail::ArrayAccess;
  void release() noexcept;

  void* data_ = nullptr;
  detail::Storage* storage_ = nullptr;  // null for memory that the caller owns
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
