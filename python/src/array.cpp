// Array: elements in memory, shared without a copy with NumPy (buffer protocol) and with all DLPack libraries.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arithmetic.h"
#include "onepass/binding.h"
#include "runtime/dlpack.h"

namespace onepass::python {
namespace {

const char* format_of(DType t) {
  switch (t) {
    case DType::Bool: return "?";
    case DType::I8: return "b";
    case DType::I16: return "h";
    case DType::I32: return "i";
    case DType::I64: return "q";
    case DType::U8: return "B";
    case DType::U16: return "H";
    case DType::U32: return "I";
    case DType::U64: return "Q";
    case DType::F16: return "e";
    case DType::F32: return "f";
    case DType::F64: return "d";
    case DType::BF16: return nullptr;
  }
  return nullptr;
}

struct View {
  Array array;
  std::vector<Py_ssize_t> shape, strides;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const Array& a = *nb::inst_ptr<Array>(nb::handle(self));
  const auto fail = [&](const char* text) {
    PyErr_SetString(PyExc_BufferError, text);
    view->obj = nullptr;
    return -1;
  };
  if (!a.has_memory()) return fail("an empty Array has no elements");
  if (!a.device().is_cpu()) return fail("the elements are on a GPU. Copy them with to(device='cpu')");
  if (!format_of(a.dtype())) return fail("Python's buffer protocol has no bf16. Cast to f32, bitcast to u16, or use DLPack");
  if ((flags & PyBUF_WRITABLE) && a.is_read_only()) return fail("the Array is read-only. Make a writable copy with copy()");
  if (!a.is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)
    return fail("the Array is not contiguous. Make a contiguous copy with copy()");
  const auto size = static_cast<Py_ssize_t>(size_of(a.dtype()));
  auto* const kept = new View{a, {}, {}};
  for (const std::int64_t n : a.shape()) kept->shape.push_back(n);
  for (const std::int64_t n : a.strides()) kept->strides.push_back(n * size);
  *view = Py_buffer{};
  view->buf = const_cast<void*>(a.data());
  view->obj = self;
  Py_INCREF(self);
  view->len = a.bytes();
  view->itemsize = size;
  view->readonly = a.is_read_only();
  view->ndim = a.rank();
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format_of(a.dtype())) : nullptr;
  view->shape = (flags & PyBUF_ND) ? kept->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? kept->strides.data() : nullptr;
  view->internal = kept;
  return 0;
}
void release_buffer(PyObject*, Py_buffer* view) noexcept { delete static_cast<View*>(view->internal); }

PyType_Slot array_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)}, {0, nullptr}};

// ---- DLPack

// Deletes the tensor of a capsule that no consumer has taken. A consumer takes the tensor by renaming the capsule.
template <class Managed> void drop_tensor(PyObject* capsule, const char* unused) {
  if (!PyCapsule_IsValid(capsule, unused)) return;
  auto* const tensor = static_cast<Managed*>(PyCapsule_GetPointer(capsule, unused));
  tensor->deleter(tensor);
}
nb::object capsule_of(DLManagedTensor* tensor) {
  return nb::steal(PyCapsule_New(tensor, "dltensor", [](PyObject* c) { drop_tensor<DLManagedTensor>(c, "dltensor"); }));
}
nb::object capsule_of(DLManagedTensorVersioned* tensor) {
  return nb::steal(
      PyCapsule_New(tensor, "dltensor_versioned", [](PyObject* c) { drop_tensor<DLManagedTensorVersioned>(c, "dltensor_versioned"); }));
}

// Returns a DLPack capsule. `stream`, on a GPU: a CUstream as a number, None for CUDA's default stream, or -1 if the consumer orders its
// work itself.
nb::object to_dlpack(const Array& a, nb::handle stream, nb::handle max_version, nb::handle copy) {
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[nb::int_(0)]) >= 1;
  const bool copies = !copy.is_none() && nb::cast<bool>(copy);
  const auto number = stream.is_none() ? std::intptr_t{0} : nb::cast<std::intptr_t>(stream);
  if (a.device().is_cuda() && !stream.is_none() && number == 0)
    throw ValueError("__dlpack__: stream 0 is ambiguous for CUDA. Pass 1 for the default stream, or 2 for the per-thread default stream");
  void* const handle = a.device().is_cuda() ? reinterpret_cast<void*>(number) : nullptr;  // NOLINT: the handle is a number
  const Array given = copies ? a.copy() : a;
  if (versioned) return capsule_of(given.to_dlpack_versioned(handle, copies));
  if (given.is_read_only()) {
    PyErr_SetString(PyExc_BufferError, "the Array is read-only, which DLPack before 1.0 cannot express. Make a writable copy with copy()");
    throw nb::python_error();
  }
  return capsule_of(given.to_dlpack(handle));
}

// ---- elements

nb::object element(const Array& a, const void* at) {
  switch (a.dtype()) {
    case DType::Bool: return nb::bool_(*static_cast<const unsigned char*>(at) != 0);
    case DType::I8: return nb::int_(*static_cast<const std::int8_t*>(at));
    case DType::I16: return nb::int_(*static_cast<const std::int16_t*>(at));
    case DType::I32: return nb::int_(*static_cast<const std::int32_t*>(at));
    case DType::I64: return nb::int_(*static_cast<const std::int64_t*>(at));
    case DType::U8: return nb::int_(*static_cast<const std::uint8_t*>(at));
    case DType::U16: return nb::int_(*static_cast<const std::uint16_t*>(at));
    case DType::U32: return nb::int_(*static_cast<const std::uint32_t*>(at));
    case DType::U64: return nb::int_(*static_cast<const std::uint64_t*>(at));
    case DType::F16: return nb::float_(static_cast<float>(*static_cast<const Half*>(at)));
    case DType::BF16: return nb::float_(static_cast<float>(*static_cast<const BFloat16*>(at)));
    case DType::F32: return nb::float_(static_cast<double>(*static_cast<const float*>(at)));
    case DType::F64: return nb::float_(*static_cast<const double*>(at));
  }
  return nb::none();
}

nb::object item(const Array& a) {
  if (a.size() != 1 || !a.has_memory())
    throw ShapeError(fmt::format("item: the array has {} elements; exactly one is required", a.has_memory() ? a.size() : 0));
  const Array here = a.to(Device::cpu());
  return element(here, here.data());
}

// Returns nested lists of the elements from `at` on, along the axes from `axis` on.
nb::object nested(const Array& a, int axis, const std::byte* at) {
  if (axis == a.rank()) return element(a, at);
  nb::list list;
  const auto step = a.strides()[static_cast<std::size_t>(axis)] * static_cast<std::int64_t>(size_of(a.dtype()));
  for (std::int64_t i = 0; i < a.dim(axis); ++i) list.append(nested(a, axis + 1, at + i * step));
  return list;
}

// Computes `a[key]` as a view for ints, slices, None and `...`. False for indexing by data.
bool view_of(const Array& a, nb::handle key, Array& out) {
  std::vector<Index> indices;
  if (!indices_from(key, indices)) return false;
  std::int64_t named = 0;
  for (const Index& i : indices) named += i.kind == Index::Kind::Integer || i.kind == Index::Kind::Slice;
  if (named > a.rank()) throw IndexError(fmt::format("{} indices are too many for an array of rank {}", named, a.rank()));
  std::vector<std::int64_t> shape, strides;
  std::int64_t offset = 0;
  std::size_t axis = 0;
  const auto whole = [&] { shape.push_back(a.shape()[axis]), strides.push_back(a.strides()[axis]), ++axis; };
  bool dots = false;
  for (const Index& i : indices) {
    switch (i.kind) {
      case Index::Kind::Integer: {
        const std::int64_t n = a.shape()[axis], at = i.at < 0 ? i.at + n : i.at;
        if (at < 0 || at >= n) throw IndexError(fmt::format("index {} is out of range for axis {}, whose length is {}", i.at, axis, n));
        offset += at * a.strides()[axis++];
        break;
      }
      case Index::Kind::Slice: {
        Py_ssize_t start = i.range.start.value_or(i.range.step.value_or(1) < 0 ? PY_SSIZE_T_MAX : 0);
        Py_ssize_t stop = i.range.stop.value_or(i.range.step.value_or(1) < 0 ? PY_SSIZE_T_MIN : PY_SSIZE_T_MAX);
        const Py_ssize_t step = i.range.step.value_or(1);
        if (step == 0) throw ValueError("the step of a slice is 0; it must not be 0");
        const Py_ssize_t n = PySlice_AdjustIndices(a.shape()[axis], &start, &stop, step);
        if (n > 0) offset += start * a.strides()[axis];
        shape.push_back(n), strides.push_back(a.strides()[axis++] * step);
        break;
      }
      case Index::Kind::NewAxis: shape.push_back(1), strides.push_back(1); break;
      case Index::Kind::Ellipsis:
        if (std::exchange(dots, true)) throw IndexError("an index has two `...`; at most one is allowed");
        for (std::int64_t rest = a.rank() - named; rest > 0; --rest) whole();
        break;
    }
  }
  while (axis < static_cast<std::size_t>(a.rank())) whole();
  void* const data = a.is_read_only() ? const_cast<void*>(a.data()) : a.mutable_data();
  out = Array::wrap_pointer(static_cast<std::byte*>(data) + offset * static_cast<std::int64_t>(size_of(a.dtype())), a.dtype(),
                            Extents(shape), Extents(strides), a.is_read_only(), a.device(), a);
  return true;
}

nb::object array_item(nb::handle self, nb::handle key) {
  Array out;
  if (view_of(nb::cast<const Array&>(self), key, out)) return nb::cast(std::move(out));
  return item_by_data(self, key);
}

// Implements `a[key] = value`: broadcasts and casts the value into that part of the memory.
void set_item(nb::handle self, nb::handle key, nb::handle given) {
  const Array& a = nb::cast<const Array&>(self);
  Array part;
  if (!view_of(a, key, part)) {
    nb::module_::import_("onepass.indexing").attr("assign")(self, key, given);
    return;
  }
  if (part.is_read_only()) throw ValueError("the Array is read-only. Make a writable copy with copy()");
  static auto& fill = *new auto(compile([](Tensor to, Tensor from) { return cast(broadcast_to(from, to.shape()), to.dtype()); }));
  Value value;
  if (!value_from(given, value) || value.kind == Value::Kind::None) value.array = array_from(given, "an assignment");
  const Array from = value.kind == Value::Kind::Number ? array_from(given, "an assignment") : value.array;
  const bool fits = from.rank() <= part.rank() && std::equal(from.shape().rbegin(), from.shape().rend(), part.shape().rbegin(),
                                                             [](std::int64_t n, std::int64_t wanted) { return n == wanted || n == 1; });
  if (!fits)
    throw ShapeError(fmt::format("an assignment: values of shape [{}] do not broadcast to the assigned part, of shape [{}]",
                                 fmt::join(from.shape(), ", "), fmt::join(part.shape(), ", ")));
  const Array to = part;  // only its shape is read
  const Unlocked unlocked;
  fill.into(part)(to, from);
}

std::string text_of(const Array& a, nb::handle self) {
  if (!a.has_memory()) return "Array()";
  const std::string head = fmt::format("{}, {}", nb::cast<std::string>(nb::repr(shape_tuple(a.shape()))), name_of(a.dtype()));
  if (!a.device().is_cpu()) return fmt::format("Array({}, on cuda:{})", head, a.device().index());
  nb::object values;
  try {
    const nb::object shown = a.dtype() == DType::BF16
                                 ? apply("cast", "f32", {self}, [](std::span<const Operand> v) { return cast(v[0], DType::F32); })
                                 : nb::borrow(self);
    const nb::module_ numpy = nb::module_::import_("numpy");
    values = numpy.attr("array2string")(numpy.attr("asarray")(shown), nb::arg("separator") = ", ", nb::arg("prefix") = "Array(",
                                        nb::arg("threshold") = 200);
  } catch (nb::python_error&) { return fmt::format("Array({})", head); }  // without NumPy
  return fmt::format("Array({}, {})", nb::cast<std::string>(values), name_of(a.dtype()));
}

void bind_conversions(nb::class_<Array>& c) {
  c.def(
      "__dlpack__",
      [](const Array& a, nb::handle stream, nb::handle max_version, nb::handle, nb::handle copy) {
        return to_dlpack(a, stream, max_version, copy);
      },
      nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
      nb::arg("copy") = nb::none());
  c.def("__dlpack_device__", [](const Array& a) { return nb::make_tuple(a.device().is_cuda() ? 2 : 1, a.device().index()); });
  c.def(
      "__array__",
      [](nb::handle self, nb::handle dtype, nb::handle copy) {
        const Array& a = nb::cast<const Array&>(self);
        const nb::module_ numpy = nb::module_::import_("numpy");
        nb::object out;
        if (a.dtype() == DType::BF16)
          out = numpy.attr("asarray")(nb::cast(a.bitcast(DType::U16))).attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
        else out = numpy.attr("asarray")(nb::steal(PyMemoryView_FromObject(self.ptr())));
        if (!dtype.is_none()) out = out.attr("astype")(dtype, nb::arg("copy") = false);
        return !copy.is_none() && nb::cast<bool>(copy) ? out.attr("copy")() : out;
      },
      nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none());
  c.def(
      "item", [](const Array& a) { return item(a); },
      "Returns the only element as a Python number. Raises ShapeError unless there is exactly one.");
  c.def(
      "tolist",
      [](const Array& a) {
        const Array here = a.to(Device::cpu());
        return nested(here, 0, static_cast<const std::byte*>(here.data()));
      },
      "Returns the elements as nested lists.");
  c.def("__float__", [](const Array& a) { return nb::float_(item(a)); });
  c.def("__int__", [](const Array& a) { return nb::int_(item(a)); });
  c.def("__bool__", [](const Array& a) { return PyObject_IsTrue(item(a).ptr()) == 1; });
  c.def("__index__", [](const Array& a) {
    if (is_float(a.dtype()) || a.dtype() == DType::Bool) throw nb::type_error("only an Array of integers can be an index");
    return item(a);
  });
  c.def("__reduce__", [](nb::handle self) {
    const Array& a = nb::cast<const Array&>(self);
    const Array plain = a.to(Device::cpu()).contiguous();
    nb::bytes bytes(plain.data(), static_cast<std::size_t>(plain.bytes()));
    return nb::make_tuple(nb::module_::import_("onepass.methods").attr("_array_from_bytes"),
                          nb::make_tuple(bytes, shape_tuple(a.shape()), std::string(name_of(a.dtype()))));
  });
}

}  // namespace

nb::object same_everywhere(const Array& x, bool value) {
  if (!detail::is_recording()) return nb::cast(Array::full(x.shape(), value, DType::Bool).to(x.device()));
  note_line();
  return nb::cast(onepass::full(x.shape(), Operand(value, std::source_location{}), DType::Bool));
}

void bind_dtypes(nb::module_& m) {
  nb::class_<ElementType> c(
      m, "DType", "An element type: bool, i8 to i64, u8 to u64, f16, bf16, f32, f64. Equal to the NumPy dtype of the same elements.");
  c.def_prop_ro("name", [](ElementType t) { return std::string(name_of(t.dtype)); });
  c.def_prop_ro("itemsize", [](ElementType t) { return size_of(t.dtype); });
  // NumPy reads this attribute of an object that it takes for a dtype: np.zeros(3, x.dtype).
  c.def_prop_ro(
      "dtype",
      [](ElementType t) -> nb::object {
        if (t.dtype == DType::BF16) return nb::module_::import_("ml_dtypes").attr("bfloat16");
        const char kind = t.dtype == DType::Bool ? 'b' : is_float(t.dtype) ? 'f' : is_signed_integer(t.dtype) ? 'i' : 'u';
        return nb::module_::import_("numpy").attr("dtype")(fmt::format("{}{}", kind, size_of(t.dtype)));
      },
      "The NumPy dtype of the same elements; for bf16, the dtype of ml_dtypes.");
  c.def("__repr__", [](ElementType t) { return fmt::format("onepass.{}", name_of(t.dtype)); });
  c.def("__hash__", [](ElementType t) { return static_cast<std::int64_t>(t.dtype) + 1; });
  c.def(
      "__eq__",
      [](ElementType t, nb::handle other) {
        try {
          return dtype_from(other) == t.dtype;
        } catch (const nb::builtin_exception&) { return false; } catch (const nb::python_error&) {
          return false;
        }
      },
      nb::arg().none());
  c.def("__reduce__", [](ElementType t) {
    return nb::make_tuple(nb::module_::import_("onepass.methods").attr("_dtype_named"), nb::make_tuple(std::string(name_of(t.dtype))));
  });
  m.def(
      "dtype", [](nb::handle h) { return dtype_object(dtype_from(h)); }, nb::arg("name"),
      "Creates an element type from its name, from a NumPy dtype, or from bool, int (i64) or float (f64).");
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    m.attr(t == DType::Bool ? "boolean" : std::string(name_of(t)).c_str()) = dtype_object(t);
  }
}

void bind_arrays(nb::module_& m) {
  nb::class_<Array> c(m, "Array", nb::type_slots(array_slots), nb::is_weak_referenceable(),
                      "A tensor in memory. np.asarray(a), memoryview(a) and torch.from_dlpack(a) share its elements without a copy.");
  c.def(
      "__init__",
      [](Array* self, nb::handle x, nb::handle dtype, bool copy) {
        Array a = array_from(x, "Array");
        if (!dtype.is_none() && dtype_from(dtype) != a.dtype()) {
          const DType to = dtype_from(dtype);
          a = nb::cast<Array>(apply("cast", name_of(to), {nb::cast(a)}, [to](std::span<const Operand> v) { return cast(v[0], to); }));
        } else if (copy) {
          a = a.copy();
        }
        new (self) Array(std::move(a));
      },
      nb::arg("x"), nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("copy") = false,
      "Creates an Array from a NumPy array or anything with the buffer protocol or DLPack (shared, not copied), or from nested lists of "
      "numbers.");
  def_operators(c);
  bind_conversions(c);
  c.def_prop_ro("shape", [](const Array& a) { return shape_tuple(a.shape()); });
  c.def_prop_ro(
      "strides", [](const Array& a) { return shape_tuple(a.strides()); }, "The strides, in elements; a stride can be negative.");
  c.def_prop_ro("ndim", [](const Array& a) { return a.rank(); });
  c.def_prop_ro("size", [](const Array& a) { return a.size(); });
  c.def_prop_ro("nbytes", [](const Array& a) { return a.bytes(); });
  c.def_prop_ro("dtype", [](const Array& a) { return dtype_object(a.dtype()); });
  c.def_prop_ro("device",
                [](const Array& a) { return a.device().is_cuda() ? fmt::format("cuda:{}", a.device().index()) : std::string("cpu"); });
  c.def_prop_ro("is_read_only", [](const Array& a) { return a.is_read_only(); });
  c.def("copy", [](const Array& a) {
    const Unlocked unlocked;
    return a.copy();
  });
  c.def(
      "__getitem__", [](nb::handle self, nb::handle key) { return array_item(self, key); }, nb::arg().none());
  c.def(
      "__setitem__", [](nb::handle self, nb::handle key, nb::handle value) { set_item(self, key, value); }, nb::arg().none(), nb::arg());
  c.def("__len__", [](const Array& a) {
    if (a.rank() == 0) throw nb::type_error("an Array of rank 0 has no length");
    return a.dim(0);
  });
  c.def("__iter__", [](nb::handle self) {
    const Array& a = nb::cast<const Array&>(self);
    if (a.rank() == 0) throw nb::type_error("an Array of rank 0 cannot be iterated");
    nb::list rows;
    for (std::int64_t i = 0; i < a.dim(0); ++i) rows.append(array_item(self, nb::int_(i)));
    return nb::steal(PyObject_GetIter(rows.ptr()));
  });
  c.def("__repr__", [](nb::handle self) { return text_of(nb::cast<const Array&>(self), self); });
  m.def("_array_from_bytes", [](nb::bytes bytes, nb::handle shape, nb::handle dtype) {
    Array out = Array::empty(Extents(integers_from(shape, "shape")), dtype_from(dtype));
    if (static_cast<std::size_t>(out.bytes()) != bytes.size())
      throw ValueError("the number of bytes of a pickled Array does not match its shape");
    std::memcpy(out.mutable_data(), bytes.data(), bytes.size());
    return out;
  });
}

}  // namespace onepass::python
