// Errors that onepass reports. The caller can fix an `Error` or a subclass; an `InternalError` is a defect of onepass. A call throws
// IndexError and CancelledError at any time, and all other errors before it builds a kernel or writes a result. A successful call throws
// nothing internally.
#pragma once

#include <stdexcept>
#include <string>

#include "onepass/export.h"

namespace onepass {

/// A mistake in the program or its input. The text names the operator, its actual shapes and types, and the requirement. It is shorter
/// than 2 kB: `…` replaces the middle of long names and paths, and `?` replaces control characters.
class ONEPASS_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  explicit Error(const char* text);
};

// clang-format off
class ONEPASS_API ShapeError : public Error { public: using Error::Error; };   ///< invalid or mismatched shapes, axes or extents
class ONEPASS_API DTypeError : public Error { public: using Error::Error; };   ///< a type that the operator does not support
class ONEPASS_API ValueError : public Error { public: using Error::Error; };   ///< a number or option outside its range
class ONEPASS_API NameError : public Error { public: using Error::Error; };    ///< an operator, input or output that does not exist
class ONEPASS_API IndexError : public Error { public: using Error::Error; };   ///< an index out of range
class ONEPASS_API FormulaError : public Error { public: using Error::Error; };  ///< a formula with an error; text is `file:line:column: …`
class ONEPASS_API IoError : public Error { public: using Error::Error; };      ///< a file that cannot be read or written
class ONEPASS_API MemoryError : public Error { public: using Error::Error; };  ///< a failed allocation or an exceeded limit
class ONEPASS_API CancelledError : public Error { public: using Error::Error; };    ///< should_stop returned true; destinations are unspecified
class ONEPASS_API UnsupportedError : public Error { public: using Error::Error; };  ///< a feature that this version does not support
// clang-format on

/// A defect of onepass. The text contains the whole graph in printed form, as the reproducer. Please report it.
class ONEPASS_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace onepass
