// How Python values nest: tuples, lists, dictionaries, dataclasses and named tuples of arrays. Taken apart into leaves and put together again.
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

/// What nests is taken apart; `leaf` is called for everything else and returns whether it is one. What is no leaf is Static where `statics` are
/// allowed, else a TypeError that names `what`.
Nesting take_apart(nb::handle value, const std::function<bool(nb::handle)>& leaf, bool statics, const char* what);

/// Puts it together again; `leaf` gives the next one.
nb::object put_together(const Nesting& nesting, const std::function<nb::object()>& leaf);

}  // namespace onepass::python
