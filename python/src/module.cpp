// The module onepass._core: exceptions and process-wide functions.
#include <exception>
#include <string>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "module.h"
#include "onepass/binding.h"

namespace onepass::python {
namespace {

// Python classes for onepass's errors: each derives from onepass.Error and from the matching built-in exception.
struct Exceptions {
  PyObject *error, *shape, *dtype, *value, *name, *index, *formula, *io, *memory, *cancelled, *unsupported, *internal;
};
Exceptions exceptions;

PyObject* make_exception(nb::module_& m, const char* name, PyObject* base, PyObject* second = nullptr) {
  const nb::object bases = second ? nb::object(nb::make_tuple(nb::handle(base), nb::handle(second))) : nb::borrow(base);
  PyObject* const made = PyErr_NewException(fmt::format("onepass.{}", name).c_str(), bases.ptr(), nullptr);
  if (!made) throw nb::python_error();
  m.attr(name) = nb::handle(made);
  return made;
}

void translate(const std::exception_ptr& thrown, void*) {
  const auto set = [](PyObject* type, const std::exception& e) { PyErr_SetString(type, e.what()); };
  try {
    std::rethrow_exception(thrown);
  } catch (const ShapeError& e) { set(exceptions.shape, e); } catch (const DTypeError& e) {
    set(exceptions.dtype, e);
  } catch (const ValueError& e) { set(exceptions.value, e); } catch (const NameError& e) {
    set(exceptions.name, e);
  } catch (const IndexError& e) { set(exceptions.index, e); } catch (const FormulaError& e) {
    set(exceptions.formula, e);
  } catch (const IoError& e) { set(exceptions.io, e); } catch (const MemoryError& e) {
    set(exceptions.memory, e);
  } catch (const CancelledError& e) { set(exceptions.cancelled, e); } catch (const UnsupportedError& e) {
    set(exceptions.unsupported, e);
  } catch (const Error& e) { set(exceptions.error, e); } catch (const InternalError& e) {
    set(exceptions.internal, e);
  }
}

void bind_exceptions(nb::module_& m) {
  PyObject* const error = exceptions.error = make_exception(m, "Error", PyExc_Exception);
  exceptions.shape = make_exception(m, "ShapeError", error, PyExc_ValueError);
  exceptions.dtype = make_exception(m, "DTypeError", error, PyExc_TypeError);
  exceptions.value = make_exception(m, "ValueError", error, PyExc_ValueError);
  exceptions.name = make_exception(m, "NameError", error, PyExc_NameError);
  exceptions.index = make_exception(m, "IndexError", error, PyExc_IndexError);
  exceptions.formula = make_exception(m, "FormulaError", error, PyExc_ValueError);
  exceptions.io = make_exception(m, "IoError", error, PyExc_OSError);
  exceptions.memory = make_exception(m, "MemoryError", error, PyExc_MemoryError);
  exceptions.cancelled = make_exception(m, "CancelledError", error);
  exceptions.unsupported = make_exception(m, "UnsupportedError", error, PyExc_NotImplementedError);
  exceptions.internal = make_exception(m, "InternalError", PyExc_RuntimeError);
  nb::register_exception_translator(translate);
}

}  // namespace

std::string signature_text(nb::handle given) {
  if (!nb::isinstance<nb::str>(given))
    throw nb::type_error(fmt::format("warm_up: a signature is a str, for example 'f32[64,256] f32[256]', not {}",
                                     nb::cast<std::string>(nb::str(given.type().attr("__name__"))))
                             .c_str());
  return nb::cast<std::string>(given);
}

void bind_runtime(nb::module_& m) {
  m.attr("__version__") = fmt::format("{}.{}.{}", ONEPASS_VERSION_MAJOR, ONEPASS_VERSION_MINOR, ONEPASS_VERSION_PATCH);
  m.def(
      "thread_count", [] { return thread_count(); }, "Returns the number of threads that a call from this thread may use.");
  m.def(
      "set_threads", [](int n) { set_threads(n); }, nb::arg("threads"),
      "Sets the number of threads for the whole process; 0: one per available core.");
  m.def(
      "set_compile_threads", [](int n) { set_compile_threads(n); }, nb::arg("threads"),
      "Sets the number of threads that compile in the background; 1 by default.");
  m.def(
      "memory_stats",
      [] {
        const MemoryStats s = memory_stats();
        nb::dict d;
        d["in_use"] = s.in_use, d["cached"] = s.cached, d["allocations"] = s.allocations;
        return d;
      },
      "Returns the counters of the memory pool of arrays.");
  m.def(
      "trim_memory", [](std::size_t keep) { trim_memory(keep); }, nb::arg("keep") = 0, "Returns cached blocks to the system.");
  m.def(
      "wait_until_optimized",
      [] {
        const Unlocked unlocked;
        wait_until_optimized();
      },
      "Waits until the compile threads have no work left.");
  m.def(
      "last_optimized_graph", [] { return last_optimized_graph(); },
      "Returns the optimized graph of this thread's last call, in its printed form.");
  m.def(
      "load_npy", [](const std::string& path) { return load_npy(path); }, nb::arg("path"));
  m.def(
      "save_npy", [](const std::string& path, nb::handle x) { save_npy(path, array_from(x, "save_npy")); }, nb::arg("path"), nb::arg("x"));
  m.def(
      "empty",
      [](nb::handle shape, nb::handle dtype) {
        return Array::empty(Extents(integers_from(shape, "shape")), dtype.is_none() ? DType::F32 : dtype_from(dtype));
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none(), "An Array with uninitialized elements.");
  m.def("_to_device", [](const Array& a, const std::string& device) {
    const Device to = detail::device_of(device);
    const Unlocked unlocked;
    return a.to(to);
  });
}

}  // namespace onepass::python

NB_MODULE(_core, m) {
  using namespace onepass::python;
  nanobind::set_leak_warnings(false);  // objects that a thread or a module still refers to at interpreter exit are not leaks
  bind_exceptions(m);
  bind_dtypes(m);
  bind_arrays(m);
  bind_tensors(m);
  bind_operators(m);
  bind_records(m);
  bind_functions(m);
  bind_gradients(m);
  bind_formulas(m);
  bind_runtime(m);
}
