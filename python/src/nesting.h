// Takes nested Python values (tuples, lists, dictionaries, dataclasses, named tuples) apart into leaves and puts them together again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "values.h"

namespace onepass::python {

/// The shape of a nested value, without its leaves.
struct Nesting {
  enum class Kind : std::uint8_t {
    Leaf,  ///< an array or number
    None,
    Tuple,
    List,
    Dict,    ///< in the order of its keys
    Object,  ///< a dataclass or named tuple: `type` of its fields
    Static,  ///< any other value: `value` itself is part of what is compiled
  };
  Kind kind = Kind::Leaf;
  std::vector<std::string> keys;  // of Dict and Object
  std::vector<Nesting> children;
  nb::object value;  // Object: its type; Static: the value

  bool is_leaf() const { return kind == Kind::Leaf; }
  std::size_t leaves() const;
  std::size_t hash() const;
  bool operator==(const Nesting& other) const;
};

/// Takes a value apart. Calls `leaf` for each part that does not nest; `leaf` returns whether the part is a leaf. Other parts become Static if
/// `statics` is true. Errors: otherwise TypeError, which names `what`.
Nesting take_apart(nb::handle value, const std::function<bool(nb::handle)>& leaf, bool statics, const char* what);

/// The path of each leaf, in order, from `name` on: `p.w`, `xs[0]`. Empty where `name` is.
void leaf_names(const Nesting& nesting, const std::string& name, std::vector<std::string>& out);

/// Puts a value together; calls `leaf` for each leaf, in order.
nb::object put_together(const Nesting& nesting, const std::function<nb::object()>& leaf);

}  // namespace onepass::python
