// Flattens nested Python values (tuples, lists, dictionaries, dataclasses, named tuples) to leaves, and rebuilds them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "values.h"

namespace onepass::python {

/// The nesting of a value, without its leaves.
struct Nesting {
  enum class Kind : std::uint8_t {
    Leaf,  ///< an array or number
    None,
    Tuple,
    List,
    Dict,    ///< in the order of its keys
    Object,  ///< a dataclass or named tuple: `type` of its fields
    Static,  ///< any other value: `value` is a constant of the compiled code
  };
  Kind kind = Kind::Leaf;
  std::vector<std::string> keys;  // for Dict and Object
  std::vector<Nesting> children;
  nb::object value;  // Object: its type; Static: the value

  bool is_leaf() const { return kind == Kind::Leaf; }
  std::size_t leaves() const;
  std::size_t hash() const;
  bool operator==(const Nesting& other) const;
};

/// Flattens a value. Calls `leaf` for each part that does not nest; `leaf` returns true if the part is a leaf. Other parts become Static
/// if `statics` is true. Errors: otherwise TypeError, which names `what`; also for a Static part without a hash.
Nesting take_apart(nb::handle value, const std::function<bool(nb::handle)>& leaf, bool statics, const char* what);

/// Throws TypeError, which names `what`, for a value without a hash: it could not be found again as a constant of the compiled code.
void check_hashable(nb::handle value, const char* what);

/// Appends the path of each leaf, in order, starting with `name`: `p.w`, `xs[0]`. Appends empty paths if `name` is empty.
void leaf_names(const Nesting& nesting, const std::string& name, std::vector<std::string>& out);

/// Rebuilds a value; calls `leaf` for each leaf, in order.
nb::object put_together(const Nesting& nesting, const std::function<nb::object()>& leaf);

}  // namespace onepass::python
