// Python's operators and the common methods of Tensor and Array; all are operators of docs/language.md.
#pragma once

#include "module.h"

namespace onepass::python {

/// Returns bools of the shape of x, all equal to `value`.
nb::object same_everywhere(const Array& x, bool value);
nb::object same_everywhere(const Tensor& x, bool value);

inline void refuse_modulus(nb::handle modulus) {
  if (!modulus.is_none()) throw nb::type_error("pow: a third argument, the modulus, is not supported. Write remainder(pow(a, b), m)");
}

template <class T> void def_operators(nb::class_<T>& c) {
  const auto binary = [&](const char* method, const char* reversed, const char* name, Tensor (*f)(const Operand&, const Operand&)) {
    const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0], v[1]); };
    c.def(
        method,
        [name, record](nb::handle a, nb::handle b) {
          return apply(name, "", {a, b}, record);
        },
        nb::arg().none());
    if (reversed)
      c.def(
          reversed,
          [name, record](nb::handle a, nb::handle b) {
            return apply(name, "", {b, a}, record);
          },
          nb::arg().none());
  };
  binary("__add__", "__radd__", "add", &onepass::add);
  binary("__sub__", "__rsub__", "sub", &onepass::sub);
  binary("__mul__", "__rmul__", "mul", &onepass::mul);
  binary("__truediv__", "__rtruediv__", "div", &onepass::div);
  binary("__floordiv__", "__rfloordiv__", "floor_div", &onepass::floor_div);
  binary("__mod__", "__rmod__", "remainder", &onepass::remainder);
  binary("__matmul__", "__rmatmul__", "matmul", &onepass::matmul);
  binary("__and__", "__rand__", "bitwise_and", &onepass::bitwise_and);
  binary("__or__", "__ror__", "bitwise_or", &onepass::bitwise_or);
  binary("__xor__", "__rxor__", "bitwise_xor", &onepass::bitwise_xor);
  binary("__lshift__", "__rlshift__", "shift_left", &onepass::shift_left);
  binary("__rshift__", "__rrshift__", "shift_right", &onepass::shift_right);
  const auto comparison = [&](const char* method, const char* name, Tensor (*f)(const Operand&, const Operand&), bool differs) {
    const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0], v[1]); };
    c.def(
        method,
        [name, record, differs](nb::handle a, nb::handle b) {
          // No element equals None or a text.
          if (b.is_none() || PyUnicode_Check(b.ptr()) || PyBytes_Check(b.ptr())) return same_everywhere(nb::cast<const T&>(a), differs);
          return apply(name, "", {a, b}, record);
        },
        nb::arg().none());
  };
  comparison("__eq__", "equal", &onepass::equal, false);
  comparison("__ne__", "not_equal", &onepass::not_equal, true);
  binary("__lt__", nullptr, "less", &onepass::less);
  binary("__le__", nullptr, "less_equal", &onepass::less_equal);
  binary("__gt__", nullptr, "greater", &onepass::greater);
  binary("__ge__", nullptr, "greater_equal", &onepass::greater_equal);
  c.def(
      "__pow__",
      [](nb::handle a, nb::handle b, nb::handle modulus) {
        refuse_modulus(modulus);
        return power(a, b);
      },
      nb::arg(), nb::arg() = nb::none());
  c.def(
      "__rpow__",
      [](nb::handle a, nb::handle b, nb::handle modulus) {
        refuse_modulus(modulus);
        return power(b, a);
      },
      nb::arg(), nb::arg() = nb::none());
  const auto unary = [&](const char* method, const char* name, Tensor (*f)(const Operand&)) {
    const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0]); };
    c.def(method, [name, record](nb::handle a) { return apply(name, "", {a}, record); });
  };
  unary("__neg__", "neg", &onepass::neg);
  unary("__abs__", "abs", &onepass::abs);
  unary("__invert__", "bitwise_not", &onepass::bitwise_not);
  c.def("__pos__", [](nb::handle a) { return nb::borrow(a); });
  c.attr("__hash__") = nb::none();      // == is elementwise
  c.attr("__array_priority__") = 1000;  // NumPy's arrays leave the operator to onepass
}

}  // namespace onepass::python
