// Converts the arguments of the public headers to Program arguments. Used by function.cpp, formula.cpp and tensor.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/function.h"
#include "runtime/program.h"
#include "runtime/row.h"

namespace onepass::runtime {

/// Converts a C++ number to a literal.
inline compiler::Literal literal_of(const detail::NumberValue& number) {
  using Kind = detail::NumberValue::Kind;
  using compiler::Literal;
  switch (number.kind) {
    case Kind::Bool: return {.kind = Literal::Kind::Bool, .integer = number.integer};
    case Kind::Int: return {.kind = Literal::Kind::Int, .integer = number.integer};
    case Kind::UInt: return {.kind = Literal::Kind::UInt, .integer = number.integer};
    case Kind::Float: return {.kind = Literal::Kind::Float, .real = number.real};
    default: throw InternalError("an argument is neither an Array nor a number");
  }
}

/// Converted arguments, on the stack for nearly all functions.
class CallArguments {
 public:
  explicit CallArguments(std::span<const detail::CallArgument> from) : row_(from.size()), size_(from.size()) {
    for (std::size_t i = 0; i < size_; ++i) {
      row_[i].array = from[i].array;
      if (!from[i].array) row_[i].number = literal_of(from[i]);
    }
  }
  operator std::span<const Argument>() const { return {row_.data(), size_}; }

 private:
  Row<Argument, 12> row_;
  std::size_t size_;
};

/// Runs `body`; on an exception, returns false and sets `error` to its text.
template <class Body> bool without_exceptions(std::string& error, Body&& body) noexcept {
  try {
    try {
      body();
      return true;
    } catch (const std::exception& e) { error = e.what(); } catch (...) {
      error = "the function threw an exception that is not a std::exception while it was recorded";
    }
  } catch (...) {  // out of memory for the text
    error.clear();
  }
  return false;
}

}  // namespace onepass::runtime
