// Tensor, the tracer: represents arrays and numbers while a function is recorded.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arithmetic.h"
#include "onepass/binding.h"

namespace onepass::python {
namespace {

constexpr std::source_location kNowhere{};

[[noreturn]] void fail_value(const char* what) {
  throw nb::type_error(
      fmt::format("a Tensor has no value while the function is recorded, so it cannot be {}. Write where(c, a, b) to choose for each "
                  "element; for a number that is fixed when the function is recorded, use jit(…, static=[…])",
                  what)
          .c_str());
}

std::optional<std::int64_t> bound_of(PyObject* h) {
  if (h == Py_None) return {};
  return integers_from(h, "a slice's bound")[0];
}

}  // namespace

bool indices_from(nb::handle key, std::vector<Index>& out) {
  const auto add = [&](nb::handle item) {
    if (item.is_none()) {
      out.emplace_back(NewAxis, kNowhere);
    } else if (item.ptr() == Py_Ellipsis) {
      out.emplace_back(Ellipsis, kNowhere);
    } else if (PySlice_Check(item.ptr())) {
      const auto* const s = reinterpret_cast<PySliceObject*>(item.ptr());
      out.emplace_back(Range{bound_of(s->start), bound_of(s->stop), bound_of(s->step)}, kNowhere);
    } else if (!PyBool_Check(item.ptr()) && !nb::isinstance<Tensor>(item) && !nb::isinstance<Array>(item) && PyIndex_Check(item.ptr()) &&
               (!nb::hasattr(item, "ndim") || nb::cast<int>(item.attr("ndim")) == 0)) {
      out.emplace_back(integers_from(item, "an index")[0], kNowhere);
    } else {
      return false;
    }
    return true;
  };
  if (!PyTuple_Check(key.ptr())) return add(key);
  for (const nb::handle item : nb::borrow<nb::tuple>(key))
    if (!add(item)) return false;
  return true;
}

nb::object tensor_item(nb::handle x, nb::handle key) {
  std::vector<Index> indices;
  if (indices_from(key, indices)) {
    note_line();
    return nb::cast(detail::index(nb::cast<Tensor>(x), indices));
  }
  return item_by_data(x, key);
}

nb::object item_by_data(nb::handle x, nb::handle key) { return nb::module_::import_("onepass.indexing").attr("item")(x, key); }

nb::object same_everywhere(const Tensor& x, bool value) {
  note_line();
  return nb::cast(onepass::full(x.shape(), Operand(value, kNowhere), DType::Bool));
}

void bind_tensors(nb::module_& m) {
  nb::class_<Tensor> c(m, "Tensor",
                       "A value of the function that is being recorded. Its shape and dtype are known, but its elements are not. It "
                       "belongs to one recording; using it after the recording is an Error.");
  def_operators(c);
  c.def_prop_ro("shape", [](Tensor t) { return shape_tuple(t.shape()); });
  c.def_prop_ro("ndim", [](Tensor t) { return t.rank(); });
  c.def_prop_ro("size", [](Tensor t) { return t.size(); });
  c.def_prop_ro("dtype", [](Tensor t) { return dtype_object(t.dtype()); });
  c.def(
      "__getitem__", [](nb::handle x, nb::handle key) { return tensor_item(x, key); }, nb::arg().none());
  c.def(
      "__setitem__",
      [](Tensor, nb::handle, nb::handle) {
        throw nb::type_error("an element of a Tensor cannot be assigned. Use x.at[i].set(v), where, put or scatter");
      },
      nb::arg().none(), nb::arg().none());
  c.def("__len__", [](Tensor t) {
    if (t.rank() == 0) throw nb::type_error("a Tensor of rank 0 has no length");
    return t.dim(0);
  });
  c.def("__iter__", [](nb::handle x) {
    const Tensor t = nb::cast<Tensor>(x);
    if (t.rank() == 0) throw nb::type_error("a Tensor of rank 0 cannot be iterated");
    nb::list rows;
    for (std::int64_t i = 0; i < t.dim(0); ++i) rows.append(tensor_item(x, nb::int_(i)));
    return nb::steal(PyObject_GetIter(rows.ptr()));
  });
  c.def("__bool__", [](Tensor) -> bool { fail_value("true or false"); });
  c.def("__float__", [](Tensor) -> double { fail_value("a float"); });
  c.def("__int__", [](Tensor) -> std::int64_t { fail_value("an int"); });
  c.def("__index__", [](Tensor) -> std::int64_t { fail_value("an index or a length"); });
  c.def("__array__", [](Tensor, nb::args, nb::kwargs) -> nb::object { fail_value("a NumPy array"); });
  c.def("__repr__", [](Tensor t) -> std::string {
    try {
      return fmt::format("Tensor({}, {})", nb::cast<std::string>(nb::repr(shape_tuple(t.shape()))), name_of(t.dtype()));
    } catch (const Error&) { return "Tensor(of a recording that has ended)"; }  // debuggers and tracebacks print it then, too
  });
  c.def("__format__", [](nb::handle self, const std::string& spec) {
    if (!spec.empty()) fail_value("formatted as a number");
    return nb::str(self);
  });
}

}  // namespace onepass::python
