// Converts Python values to onepass values: element types, arrays without a copy, numbers. All other files of the module use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "onepass/onepass.h"

namespace onepass::python {

namespace nb = nanobind;

/// Scope that releases the interpreter's lock while a call runs. If the interpreter ends in the meantime, the destructor sleeps until the
/// process ends. Otherwise Python would unwind the thread through frames that no exception may leave.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  PyThreadState* state_;
};
/// Scope that holds the interpreter's lock, on any thread. Sleeps like Unlocked if the interpreter ends.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// Owner of a Python object. May be destroyed on any thread, with or without the interpreter's lock.
class Keeper {
 public:
  explicit Keeper(nb::object object) : object_(object.release().ptr()) {}
  Keeper(Keeper&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Keeper& operator=(Keeper&&) = delete;
  ~Keeper();
  nb::handle get() const { return object_; }

 private:
  PyObject* object_;
};

/// The Python class `DType`.
struct ElementType {
  DType dtype;
};

/// Reads an element type: onepass's or NumPy's name, a NumPy dtype or scalar type, or bool, int and float, which mean bool, i64 and f64.
/// Errors: TypeError for all other values.
DType dtype_from(nb::handle h);
nb::object dtype_object(DType dtype);

/// Makes an Array that shares the memory of a NumPy array, buffer or DLPack tensor, or copies a list or tuple of numbers.
/// Returns false if `h` is none of these. Errors: DTypeError or ValueError for an unsupported type or layout, or a masked array.
bool array_from(nb::handle h, Array& out);
/// Makes an Array from `h` like the function above, but throws TypeError, which names `what`, if `h` is of another kind.
Array array_from(nb::handle h, const char* what);

/// An operand or argument: a Tensor, an Array, a weakly typed number, or None.
struct Value {
  enum class Kind : std::uint8_t { Tensor, Array, Number, None };
  Kind kind = Kind::None;
  onepass::Tensor tensor;
  onepass::Array array;
  detail::CallArgument number;

  /// Returns an operand that refers to this value, which must outlive it.
  Operand operand() const;
  detail::CallArgument argument() const { return kind == Kind::Array ? detail::CallArgument(array) : number; }
};
/// The Python buffers that a call reads; the destructor releases them. Cheaper than Arrays with ownership.
class Buffers {
 public:
  Buffers() = default;
  Buffers(Buffers&& other) noexcept = default;
  Buffers& operator=(Buffers&& other) noexcept { return views_.swap(other.views_), *this; }
  ~Buffers() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  Py_buffer& add(const Py_buffer& view) { return views_.emplace_back(view); }

 private:
  std::vector<Py_buffer> views_;
};
/// Reads a Value; returns false if `h` is not a value. With `borrowed`, which must outlive it, the value's Array does not own its memory.
/// Errors: OverflowError for an int that exceeds all 64-bit types.
bool value_from(nb::handle h, Value& out, Buffers* borrowed = nullptr);

/// True if `h` is a Dask array or another Dask collection.
bool is_of_dask(nb::handle h);

/// Sets the Python source line that calls the module in the current recording, if any, for messages and dumps.
void note_line();

nb::tuple shape_tuple(std::span<const std::int64_t> shape);
/// Reads lengths, axes or counts: an int or a sequence of ints. Errors: TypeError, which names `what`.
std::vector<std::int64_t> integers_from(nb::handle h, const char* what);

}  // namespace onepass::python
