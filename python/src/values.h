// What Python values are to onepass: element types, arrays without a copy, numbers. Every other file of the module converts by these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "onepass/onepass.h"

namespace onepass::python {

namespace nb = nanobind;

/// Gives the interpreter's lock to other threads while a call runs. Where the interpreter ends meanwhile, this thread sleeps until the process
/// does: Python would unwind it, through frames that no exception may leave.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  PyThreadState* state_;
};
/// Takes the interpreter's lock, on any thread; sleeps as above where the interpreter ends.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// Keeps a Python object for C++ code that may let it go on any thread, with or without the interpreter's lock.
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

/// What Python sees of an element type.
struct ElementType {
  DType dtype;
};

/// An element type by onepass's name or NumPy's, a NumPy dtype or scalar type, or bool, int and float, which are bool, i64 and f64.
/// TypeError for anything else.
DType dtype_from(nb::handle h);
nb::object dtype_object(DType dtype);

/// An Array that shares the memory of a NumPy array, of anything with the buffer protocol, or of what speaks DLPack; a list or tuple of
/// numbers is copied. False where `h` is none of these. Errors: those of a type or layout that onepass does not have.
bool array_from(nb::handle h, Array& out);
/// The same; TypeError that names `what` where it is none.
Array array_from(nb::handle h, const char* what);

/// What an operator or a call takes: a Tensor, an Array, a number without a strong type, or None.
struct Value {
  enum class Kind : std::uint8_t { Tensor, Array, Number, None };
  Kind kind = Kind::None;
  onepass::Tensor tensor;
  onepass::Array array;
  detail::CallArgument number;

  /// Points into this value.
  Operand operand() const;
  detail::CallArgument argument() const { return kind == Kind::Array ? detail::CallArgument(array) : number; }
};
/// Python's buffers that a call reads from, given back at its end. Cheaper than Arrays that own them.
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
/// False where `h` is no such thing. OverflowError for an int that no 64-bit type holds. With `borrowed`, which must outlive it, the value's Array
/// does not keep its memory.
bool value_from(nb::handle h, Value& out, Buffers* borrowed = nullptr);

/// Where a call into this module stands in Python, for messages and dumps: only looked at while something is recorded.
void note_line();

nb::tuple shape_tuple(std::span<const std::int64_t> shape);
/// Lengths, axes or counts: an int or a sequence of ints.
std::vector<std::int64_t> integers_from(nb::handle h, const char* what);

}  // namespace onepass::python
