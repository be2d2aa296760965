// Derivatives of recorded values, for the transformations in onepass/transforms.py.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "nesting.h"
#include "onepass/binding.h"
#include "onepass/loop.h"

namespace onepass::python {
namespace {

using Tensors = std::vector<Tensor>;

detail::TensorSpan span(const Tensors& list) { return {list.data(), list.size()}; }

void check_lengths(const char* what, std::size_t got, std::size_t wanted) {
  if (got != wanted)
    throw ValueError(std::string(what) + ": " + std::to_string(got) + " values given, but " + std::to_string(wanted) + " are required");
}

// A value's nesting, and its leaves.
struct Nested {
  Nesting nesting;
  nb::list leaves;
};

Nested nested(nb::handle value) {
  Nested out;
  out.nesting = take_apart(
      value,
      [&](nb::handle h) {
        Value v;
        if (!value_from(h, v)) return false;
        return out.leaves.append(h), true;
      },
      false, "an argument or result");
  return out;
}

Tensor as_tensor(nb::handle h) {
  Value v;
  if (!value_from(h, v) || v.kind == Value::Kind::None) {
    v.kind = Value::Kind::Array;
    v.array = array_from(h, "as_tensor");
  }
  note_line();
  return detail::tensor_of(v.operand());
}

}  // namespace

void bind_gradients(nb::module_& m) {
  nb::class_<Nested> c(m, "_Nested");
  c.def(
      "__init__", [](Nested* self, nb::handle value) { new (self) Nested(nested(value)); }, nb::arg().none());
  c.def_ro("leaves", &Nested::leaves);
  c.def("rebuilt", [](const Nested& self, nb::list leaves) {
    check_lengths("rebuilt", leaves.size(), self.leaves.size());
    std::size_t next = 0;
    return put_together(self.nesting, [&] { return nb::borrow(leaves[next++]); });
  });
  c.def("nests_like", [](const Nested& self, const Nested& other) { return self.nesting == other.nesting; });

  m.def(
      "is_recording", [] { return detail::is_recording(); }, "True if this thread is recording a function.");
  m.def("_as_tensor", &as_tensor);
  m.def("_gradients", [](const std::string& name, Tensor loss, const Tensors& xs) {
    note_line();
    Tensors out(xs.size());
    detail::gradients(name.c_str(), loss, span(xs), out.data());
    return out;
  });
  m.def("_vjp", [](const Tensors& ys, const Tensors& dys, const Tensors& xs) {
    check_lengths("vjp", dys.size(), ys.size());
    note_line();
    Tensors out(xs.size());
    detail::vjp_all(span(ys), span(dys), span(xs), out.data());
    return out;
  });
  m.def("_jvp", [](const Tensors& ys, const Tensors& xs, const Tensors& dxs) {
    check_lengths("jvp", dxs.size(), xs.size());
    note_line();
    Tensors out(ys.size());
    detail::jvp_all(span(ys), span(xs), span(dxs), out.data());
    return out;
  });
  m.def("_jacobian", [](Tensor y, Tensor x, const std::string& by) {
    note_line();
    return detail::jacobian_of(y, x, by == "rows" ? JacobianBy::rows : by == "columns" ? JacobianBy::columns : JacobianBy::fewer);
  });
  m.def("_set_derivative", [](const Tensors& arguments, Tensors results, nb::object backward) {
    note_line();
    auto call = [backward = Keeper(std::move(backward))](detail::TensorSpan xs, detail::TensorSpan ys, detail::TensorSpan dys) {
      const Locked lock;
      const auto list = [](detail::TensorSpan tensors) { return nb::cast(Tensors(tensors.begin(), tensors.end())); };
      return nb::cast<Tensors>(nb::borrow(backward.get())(list(xs), list(ys), list(dys)));
    };
    detail::set_derivative(span(arguments), results, detail::Backward(std::move(call)));
    return results;
  });
  m.def("_map_elements", [](Tensors xs, const std::vector<std::optional<int>>& axes) {
    note_line();
    std::vector<int> given;
    for (const std::optional<int> axis : axes) given.push_back(axis.value_or(detail::kNotMapped));
    Tensors elements(xs.size()), all(xs.size());
    detail::map_elements(xs, given, elements.data(), all.data());
    return std::pair(std::move(elements), std::move(all));
  });
  m.def("_mapped", [](Tensors ys, Tensors elements, Tensors all) {
    note_line();
    Tensors results(ys.size());
    detail::mapped(ys, elements, all, results.data());
    return results;
  });
  nb::class_<detail::StateLoop> loop(m, "_StateLoop");
  loop.def("__init__", [](detail::StateLoop* self, int kind, const Tensors& init) {
    note_line();
    new (self) detail::StateLoop(static_cast<detail::StateLoop::Kind>(kind), span(init), std::source_location());
  });
  loop.def("over", [](detail::StateLoop& self, const Tensors& xs, bool reverse) { self.over(span(xs), reverse); });
  loop.def("times", [](detail::StateLoop& self, std::int64_t steps, bool reverse) { self.over(steps, reverse); });
  loop.def("next", [](detail::StateLoop& self) {
    note_line();
    return self.next();
  });
  loop.def("state", [](const detail::StateLoop& self) { return Tensors(self.state().begin(), self.state().end()); });
  loop.def("element", [](const detail::StateLoop& self) { return Tensors(self.element().begin(), self.element().end()); });
  loop.def("condition", [](detail::StateLoop& self, Tensor going) { self.condition(going); });
  loop.def("step", [](detail::StateLoop& self, const Tensors& state, const Tensors& results) { self.step(span(state), span(results)); });
  loop.def("results", [](detail::StateLoop& self) { return self.results(); });
  m.def("_recorded_nodes", [] { return detail::recorded_nodes(); });
  m.def("_compute_again", [](std::uint32_t first, Tensors results) {
    note_line();
    detail::compute_again(first, results);
    return results;
  });
}

}  // namespace onepass::python
