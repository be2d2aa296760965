#include "nesting.h"

#include <cmath>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

namespace onepass::python {
namespace {

// Returns true and the names of the fields for a dataclass or a named tuple.
bool fields_of(nb::handle value, std::vector<std::string>& names) {
  const nb::handle type = value.type();
  if (PyTuple_Check(value.ptr()) && nb::hasattr(type, "_fields")) {
    for (const nb::handle name : type.attr("_fields")) names.push_back(nb::cast<std::string>(name));
    return true;
  }
  if (!nb::hasattr(type, "__dataclass_fields__")) return false;
  for (const nb::handle name : type.attr("__dataclass_fields__")) names.push_back(nb::cast<std::string>(name));
  return true;
}

// True if both constants record the same program. They are equal, of one type in all their parts, and zeros have one sign.
bool is_same(nb::handle a, nb::handle b) {
  if (a.is(b)) return true;
  if (!a.type().is(b.type()) || !a.equal(b)) return false;  // 1 and True differ
  if (PyFloat_Check(a.ptr())) return std::signbit(PyFloat_AsDouble(a.ptr())) == std::signbit(PyFloat_AsDouble(b.ptr()));
  if (PyTuple_Check(a.ptr())) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(a.ptr()); ++i)
      if (!is_same(PyTuple_GetItem(a.ptr(), i), PyTuple_GetItem(b.ptr(), i))) return false;
  } else if (nb::hasattr(a.type(), "__dataclass_fields__")) {
    for (const nb::handle field : a.type().attr("__dataclass_fields__"))
      if (!is_same(nb::getattr(a, field), nb::getattr(b, field))) return false;
  }
  return true;
}

}  // namespace

std::size_t Nesting::leaves() const {
  if (kind == Kind::Leaf) return 1;
  std::size_t n = 0;
  for (const Nesting& c : children) n += c.leaves();
  return n;
}

std::size_t Nesting::hash() const {
  std::size_t h = static_cast<std::size_t>(kind) + 1;
  const auto mix = [&h](std::size_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); };
  for (const std::string& k : keys) mix(std::hash<std::string>()(k));
  for (const Nesting& c : children) mix(c.hash());
  if (kind == Kind::Static) mix(static_cast<std::size_t>(nb::hash(value)));
  else if (kind == Kind::Object) mix(reinterpret_cast<std::size_t>(value.ptr()));
  return h;
}

bool Nesting::operator==(const Nesting& other) const {
  if (kind != other.kind || keys != other.keys || children != other.children) return false;
  if (kind == Kind::Object) return value.is(other.value);
  if (kind != Kind::Static) return true;
  return is_same(value, other.value);
}

void check_hashable(nb::handle value, const char* what) {
  if (PyObject_Hash(value.ptr()) != -1) return;
  PyErr_Clear();
  throw nb::type_error(
      fmt::format("{}: {} is neither an array nor a number, nor a tuple, list, dict or dataclass of these. It cannot be a constant of the "
                  "compiled code either, because it has no hash. Convert it, for example to a tuple",
                  what, nb::cast<std::string>(nb::repr(value.type())))
          .c_str());
}

Nesting take_apart(nb::handle value, const std::function<bool(nb::handle)>& leaf, bool statics, const char* what) {
  Nesting n;
  PyObject* const p = value.ptr();
  const auto child = [&](nb::handle h) { n.children.push_back(take_apart(h, leaf, statics, what)); };
  if (value.is_none()) {
    n.kind = Nesting::Kind::None;
  } else if (PyTuple_CheckExact(p) || PyList_Check(p)) {  // a list of a subclass is rebuilt as a list
    n.kind = PyTuple_CheckExact(p) ? Nesting::Kind::Tuple : Nesting::Kind::List;
    for (const nb::handle h : value) child(h);
  } else if (PyDict_Check(p)) {
    n.kind = Nesting::Kind::Dict;
    for (const auto& [key, h] : nb::borrow<nb::dict>(value)) {
      if (!PyUnicode_Check(key.ptr()))
        throw nb::type_error(
            fmt::format("{}: the keys of a dictionary must be strings, not {}", what, nb::cast<std::string>(nb::repr(key))).c_str());
      n.keys.push_back(nb::cast<std::string>(key));
      child(h);
    }
  } else if (leaf(value)) {
    n.kind = Nesting::Kind::Leaf;
  } else if (fields_of(value, n.keys)) {
    n.kind = Nesting::Kind::Object;
    n.value = nb::borrow(value.type());
    for (const std::string& key : n.keys) child(value.attr(key.c_str()));
  } else {
    if (!statics)
      throw nb::type_error(fmt::format("{}: {} is neither an array nor a number, nor a tuple, list, dict or dataclass of these", what,
                                       nb::cast<std::string>(nb::repr(value.type())))
                               .c_str());
    n.kind = Nesting::Kind::Static;
    check_hashable(value, what);
    n.value = nb::borrow(value);
  }
  return n;
}

void leaf_names(const Nesting& n, const std::string& name, std::vector<std::string>& out) {
  if (n.is_leaf()) return out.push_back(name);
  for (std::size_t i = 0; i < n.children.size(); ++i) {
    const std::string part = n.keys.empty() ? fmt::format("{}[{}]", name, i) : fmt::format("{}.{}", name, n.keys[i]);
    leaf_names(n.children[i], name.empty() ? name : part, out);
  }
}

nb::object put_together(const Nesting& n, const std::function<nb::object()>& leaf) {
  switch (n.kind) {
    case Nesting::Kind::Leaf: return leaf();
    case Nesting::Kind::None: return nb::none();
    case Nesting::Kind::Static: return n.value;
    case Nesting::Kind::Dict: {
      nb::dict out;
      for (std::size_t i = 0; i < n.children.size(); ++i) out[n.keys[i].c_str()] = put_together(n.children[i], leaf);
      return out;
    }
    case Nesting::Kind::Object: {
      nb::dict fields;
      for (std::size_t i = 0; i < n.children.size(); ++i) fields[n.keys[i].c_str()] = put_together(n.children[i], leaf);
      return n.value(**fields);
    }
    case Nesting::Kind::Tuple:
    case Nesting::Kind::List: break;
  }
  nb::list out;
  for (const Nesting& c : n.children) out.append(put_together(c, leaf));
  return n.kind == Nesting::Kind::Tuple ? nb::object(nb::tuple(out)) : nb::object(out);
}

}  // namespace onepass::python
