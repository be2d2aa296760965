// The kinds of failure that onepass reports. `Error` and its children are the caller's to fix, `InternalError` is ours.
// Thrown before any kernel is built or any result is written, IndexError and CancelledError aside; a call that succeeds throws nothing.
#pragma once

#include <stdexcept>
#include <string>

#include "onepass/export.h"

namespace onepass {

/// A mistake in the program or its input. The text names the operator, the shapes and types it got, and what would be right. It has less than
/// 2 kB: long names and paths lose their middles to `…`, and control characters become `?`.
class ONEPASS_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  explicit Error(const char* text);
};

// clang-format off
class ONEPASS_API ShapeError : public Error { public: using Error::Error; };   ///< shapes, axes or extents that do not fit
class ONEPASS_API DTypeError : public Error { public: using Error::Error; };   ///< a type that the operator does not take
class ONEPASS_API ValueError : public Error { public: using Error::Error; };   ///< a number or option outside its range
class ONEPASS_API NameError : public Error { public: using Error::Error; };    ///< an operator, input or output that does not exist
class ONEPASS_API IndexError : public Error { public: using Error::Error; };   ///< an index out of range
class ONEPASS_API FormulaError : public Error { public: using Error::Error; }; ///< a formula that does not parse or record; text is `file:line:column: …`
class ONEPASS_API IoError : public Error { public: using Error::Error; };      ///< a file that cannot be read or written
class ONEPASS_API MemoryError : public Error { public: using Error::Error; };  ///< memory that cannot be allocated, or above a limit; nothing was computed
class ONEPASS_API CancelledError : public Error { public: using Error::Error; };    ///< Options::should_stop returned true; what the targets hold is unspecified
class ONEPASS_API UnsupportedError : public Error { public: using Error::Error; };  ///< a part of the language that this version does not have yet
// clang-format on

/// A mistake of onepass itself; the text holds the whole graph in its printed form, so that it is the reproducer. Please report it.
class ONEPASS_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace onepass
