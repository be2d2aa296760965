#include "values.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include <cxxabi.h>
#include <fmt/format.h>
#include <frameobject.h>
#include <unistd.h>

#include "onepass/binding.h"

namespace onepass::python {
namespace {

constexpr const char* kNumpyNames[kDTypeCount] = {"bool",   "int8",   "int16",   "int32",    "int64",   "uint8",  "uint16",
                                                  "uint32", "uint64", "float16", "bfloat16", "float32", "float64"};

bool dtype_named(std::string_view name, DType& out) {
  if (dtype_of(name, out)) return true;
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == kNumpyNames[i]) return out = static_cast<DType>(i), true;
  return name == "bool_" ? (out = DType::Bool, true) : false;
}

// Converts a format of the buffer protocol, which uses the letters of Python's struct module.
bool dtype_of_format(const char* format, std::size_t bytes, DType& out) {
  if (!format) format = "B";
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  const auto sized = [&](std::array<DType, 4> by_size) {
    const int log2 = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : -1;
    if (log2 < 0) return false;
    return out = by_size[static_cast<std::size_t>(log2)], true;
  };
  switch (*format) {
    case '?': return out = DType::Bool, true;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': return sized({DType::I8, DType::I16, DType::I32, DType::I64});
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N': return sized({DType::U8, DType::U16, DType::U32, DType::U64});
    case 'e': return out = DType::F16, true;
    case 'f': return out = DType::F32, true;
    case 'd': return out = DType::F64, true;
    default: return false;
  }
}

// A Python buffer, kept until the last Array of its memory is destroyed.
class Buffer {
 public:
  explicit Buffer(const Py_buffer& view) : view_(view) {}
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (!view_.obj || !Py_IsInitialized()) return;
    const Locked lock;
    PyBuffer_Release(&view_);
  }

 private:
  Py_buffer view_;
};

// NumPy's masked arrays give a buffer of all elements, without the mask. They are a class of Python, so other arrays are asked nothing.
void refuse_mask(nb::handle h) {
  if (PyType_HasFeature(Py_TYPE(h.ptr()), Py_TPFLAGS_HEAPTYPE) && nb::hasattr(h.type(), "mask") && nb::hasattr(h.type(), "filled"))
    throw DTypeError(
        "a masked array is not accepted, because its mask would be ignored. Pass m.filled(value), or m.data and m.mask as two arrays for "
        "where(mask, value, data)");
}

constexpr std::string_view kDTypes = "bool, i8 to i64, u8 to u64, f16, bf16, f32 and f64";

// Throws a DTypeError that names the array's own element type, or describes the buffer.
[[noreturn]] void refuse_type(nb::handle h, std::string_view otherwise) {
  const nb::object dtype = nb::getattr(h, "dtype", nb::none());
  const std::string what = dtype.is_none() ? std::string(otherwise) : fmt::format("an array of {}", nb::cast<std::string>(nb::str(dtype)));
  throw DTypeError(
      fmt::format("{} has no dtype in onepass; the dtypes are {}, in the byte order of this machine. Convert it first, for example with "
                  "x.astype(\"float32\")",
                  what, kDTypes));
}

bool array_from_buffer(nb::handle h, Array& out, Buffers* borrowed = nullptr) {
  refuse_mask(h);
  Py_buffer view;
  if (PyObject_GetBuffer(h.ptr(), &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();  // for example bf16 of ml_dtypes: other methods follow
    return false;
  }
  Buffer owner(borrowed ? Py_buffer{} : view);
  if (borrowed) borrowed->add(view);
  DType dtype{};
  if (!dtype_of_format(view.format, static_cast<std::size_t>(view.itemsize), dtype))
    refuse_type(h, fmt::format("a buffer of format '{}'", view.format ? view.format : ""));
  const auto rank = static_cast<std::size_t>(view.ndim);
  if (rank > 0 && !(view.shape && view.strides)) refuse_type(h, "a buffer without a shape or strides");
  if (view.ndim > kMaxRank) throw ShapeError(fmt::format("{} axes given; an array has at most {} axes", view.ndim, kMaxRank));
  std::int64_t shape[kMaxRank], strides[kMaxRank];
  for (std::size_t i = 0; i < rank; ++i) {
    shape[i] = view.shape[i];
    if (view.strides[i] % view.itemsize != 0)
      throw ValueError("the strides of the array are not multiples of its element size, as in a field of a record. Copy the array first");
    strides[i] = view.strides[i] / view.itemsize;
  }
  const Extents lengths(std::span<const std::int64_t>(shape, rank)), steps(std::span<const std::int64_t>(strides, rank));
  if (borrowed) out = Array::wrap_pointer(view.buf, dtype, lengths, steps, view.readonly != 0);
  else out = Array::wrap_pointer(view.buf, dtype, lengths, steps, view.readonly != 0, std::move(owner));
  return true;
}

// True if the array's element type is a dtype of onepass.
bool has_dtype(nb::handle h) {
  try {
    dtype_from(nb::getattr(h, "dtype", nb::none()));
    return true;
  } catch (const nb::builtin_exception&) { return false; }
}

bool array_from_dlpack(nb::handle h, Array& out) {
  if (!nb::hasattr(h, "__dlpack__")) return false;
  nb::object capsule;
  try {
    try {
      capsule = h.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_TypeError)) throw;
      capsule = h.attr("__dlpack__")();  // before DLPack 1.0
    }
  } catch (nb::python_error& e) {
    if (e.matches(PyExc_BufferError) && !has_dtype(h)) refuse_type(h, "this array");
    throw;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    out = Array::from_dlpack_versioned(static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned")));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
  } else {
    auto* const tensor = PyCapsule_GetPointer(capsule.ptr(), "dltensor");
    if (!tensor) throw nb::python_error();
    out = Array::from_dlpack(static_cast<DLManagedTensor*>(tensor));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  }
  return true;
}

bool is_dtype_named(nb::handle h, std::string_view name) {
  const nb::object dtype = nb::getattr(h, "dtype", nb::none());
  const nb::object text = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(text) && nb::borrow<nb::str>(text).c_str() == name;
}

const std::string& package_folder() {
  static const std::string folder = [] {
    const std::string file = nb::cast<std::string>(nb::module_::import_("onepass").attr("__file__"));
    return file.substr(0, file.rfind('/') + 1);
  }();
  return folder;
}

[[noreturn]] void sleep_until_the_end() {
  for (;;) pause();
}

}  // namespace

Unlocked::~Unlocked() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) { sleep_until_the_end(); }
}
Locked::Locked() {
  try {
    state_ = PyGILState_Ensure();
  } catch (abi::__forced_unwind&) { sleep_until_the_end(); }
}

Keeper::~Keeper() {
  if (!object_ || !Py_IsInitialized()) return;  // the interpreter and its memory are gone
  const Locked lock;
  Py_DECREF(object_);
}

DType dtype_from(nb::handle h) {
  DType out{};
  if (nb::inst_check(h) && nb::isinstance<ElementType>(h)) return nb::inst_ptr<ElementType>(h)->dtype;
  if (PyUnicode_Check(h.ptr())) {
    if (dtype_named(nb::borrow<nb::str>(h).c_str(), out)) return out;
  } else if (h.is(nb::handle(reinterpret_cast<PyObject*>(&PyFloat_Type)))) {
    return DType::F64;
  } else if (h.is(nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type)))) {
    return DType::I64;
  } else if (h.is(nb::handle(reinterpret_cast<PyObject*>(&PyBool_Type)))) {
    return DType::Bool;
  } else {
    for (const char* const attribute : {"name", "__name__"}) {  // numpy.dtype, numpy.float32
      const nb::object name = nb::getattr(h, attribute, nb::none());
      if (nb::isinstance<nb::str>(name) && dtype_named(nb::borrow<nb::str>(name).c_str(), out)) return out;
    }
    const std::string text = nb::cast<std::string>(nb::str(h));  // torch.float32
    if (const auto dot = text.rfind('.'); dot != std::string::npos && dtype_named(std::string_view(text).substr(dot + 1), out)) return out;
  }
  throw nb::type_error(fmt::format("{} is not a dtype of onepass; the dtypes are {}", nb::cast<std::string>(nb::repr(h)), kDTypes).c_str());
}

nb::object dtype_object(DType dtype) { return nb::cast(ElementType{dtype}); }

bool array_from(nb::handle h, Array& out) {
  if (nb::inst_check(h) && nb::isinstance<Array>(h)) return out = *nb::inst_ptr<Array>(h), true;
  if (PyObject_CheckBuffer(h.ptr()) && array_from_buffer(h, out)) return true;
  if (is_dtype_named(h, "bfloat16") && nb::hasattr(h, "view") && !nb::hasattr(h, "data_ptr")) {  // a NumPy type from ml_dtypes
    if (!array_from_buffer(h.attr("view")("uint16"), out)) return false;
    return out = out.bitcast(DType::BF16), true;
  }
  if (array_from_dlpack(h, out)) return true;
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr())) {
    const nb::object made = nb::module_::import_("numpy").attr("asarray")(h);
    return array_from_buffer(made, out);
  }
  return false;
}

Array array_from(nb::handle h, const char* what) {
  Value value;
  if (!value_from(h, value) || value.kind == Value::Kind::None || value.kind == Value::Kind::Tensor) {
    if (!array_from(h, value.array))
      throw nb::type_error(fmt::format("{}: {} is not an array", what, nb::cast<std::string>(nb::repr(h.type()))).c_str());
    return value.array;
  }
  if (value.kind == Value::Kind::Array) return value.array;
  switch (value.number.kind) {
    case detail::CallArgument::Kind::Bool: return Array::full({}, value.number.integer != 0, DType::Bool);
    case detail::CallArgument::Kind::Float: return Array::full({}, value.number.real, DType::F64);
    case detail::CallArgument::Kind::UInt: return Array::full({}, static_cast<std::uint64_t>(value.number.integer), DType::U64);
    default: return Array::full({}, value.number.integer, DType::I64);
  }
}

Operand Value::operand() const {
  constexpr std::source_location nowhere{};  // note_line sets it
  switch (kind) {
    case Kind::Tensor: return Operand(tensor, nowhere);
    case Kind::Array: return Operand(array, nowhere);
    case Kind::None: return Operand(none);
    case Kind::Number: break;
  }
  switch (number.kind) {
    case detail::CallArgument::Kind::Bool: return Operand(number.integer != 0, nowhere);
    case detail::CallArgument::Kind::Float: return Operand(double{number.real}, nowhere);
    case detail::CallArgument::Kind::UInt: return Operand(static_cast<std::uint64_t>(number.integer), nowhere);
    default: return Operand(std::int64_t{number.integer}, nowhere);
  }
}

namespace {

// True for Python's floats, subclasses included, but not for NumPy's f64 scalars, which are floats with a strong type.
bool is_float_number(PyObject* p) { return PyFloat_CheckExact(p) || (PyFloat_Check(p) && !PyObject_CheckBuffer(p)); }

}  // namespace

bool value_from(nb::handle h, Value& out, Buffers* borrowed) {
  PyObject* const p = h.ptr();
  if (is_float_number(p)) {
    out.kind = Value::Kind::Number;
    out.number = detail::CallArgument(PyFloat_AS_DOUBLE(p));
  } else if (PyBool_Check(p)) {
    out.kind = Value::Kind::Number;
    out.number = detail::CallArgument(p == Py_True);
  } else if (PyLong_Check(p)) {  // enumerators of IntEnum too
    out.kind = Value::Kind::Number;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(p, &overflow);
    if (overflow == 0) {
      out.number = detail::CallArgument(static_cast<std::int64_t>(value));
    } else {
      const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(p) : ~0ull;
      if (overflow < 0 || PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_SetString(PyExc_OverflowError, "an int operand does not fit in 64 bits. Pass a float");
        throw nb::python_error();
      }
      out.number = detail::CallArgument(static_cast<std::uint64_t>(large));
    }
  } else if (h.is_none()) {
    out.kind = Value::Kind::None;
  } else if (nb::inst_check(h)) {
    if (nb::isinstance<Tensor>(h)) {
      out.kind = Value::Kind::Tensor;
      out.tensor = *nb::inst_ptr<Tensor>(h);
    } else if (nb::isinstance<Array>(h)) {
      out.kind = Value::Kind::Array;
      out.array = *nb::inst_ptr<Array>(h);
    } else {
      return false;
    }
  } else {
    if (PyList_Check(p) || PyTuple_Check(p) || PyUnicode_Check(p) || PyDict_Check(p) || PyBytes_Check(p)) return false;
    out.kind = Value::Kind::Array;
    if (borrowed && PyObject_CheckBuffer(p) && array_from_buffer(h, out.array, borrowed)) return true;
    return array_from(h, out.array);
  }
  return true;
}

bool is_of_dask(nb::handle h) { return nb::hasattr(h, "__dask_graph__"); }

void note_line() {
  if (!detail::is_recording()) return;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const char* const file = PyUnicode_AsUTF8(code->co_filename);
    const bool ours = !file || std::string_view(file).starts_with(package_folder());
    if (!ours) detail::recorded_at(file, static_cast<std::uint32_t>(PyFrame_GetLineNumber(frame)));
    Py_DECREF(code);
    PyFrameObject* const back = ours ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Clear();
}

nb::tuple shape_tuple(std::span<const std::int64_t> shape) {
  nb::list list;
  for (const std::int64_t n : shape) list.append(n);
  return nb::tuple(list);
}

std::vector<std::int64_t> integers_from(nb::handle h, const char* what) {
  std::vector<std::int64_t> out;
  const auto add = [&](nb::handle item) {
    const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
    if (!index.is_valid()) {
      PyErr_Clear();
      throw nb::type_error(
          fmt::format("{} must be an int or a sequence of ints, not {}", what, nb::cast<std::string>(nb::repr(h))).c_str());
    }
    out.push_back(nb::cast<std::int64_t>(index));
  };
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()))
    for (const nb::handle item : nb::iter(h)) add(item);
  else add(h);
  return out;
}

}  // namespace onepass::python
