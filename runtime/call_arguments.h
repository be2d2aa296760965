// From the arguments of the public headers to those of a Program. Used by function.cpp and formula.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/function.h"
#include "runtime/program.h"

namespace onepass::runtime {

/// On the stack, up to a number that covers nearly every function.
class CallArguments {
 public:
  explicit CallArguments(std::span<const detail::CallArgument> from) : size_(from.size()) {
    Argument* to = inline_;
    if (size_ > kInline) {
      heap_.resize(size_);
      to = heap_.data();
    }
    data_ = to;
    using Kind = detail::CallArgument::Kind;
    using compiler::Literal;
    for (std::size_t i = 0; i < size_; ++i) {
      const detail::CallArgument& a = from[i];
      to[i].array = a.array;
      if (a.array) continue;
      Literal& l = to[i].number;
      switch (a.kind) {
        case Kind::Bool: l.kind = Literal::Kind::Bool; break;
        case Kind::Int: l.kind = Literal::Kind::Int; break;
        case Kind::Float: l.kind = Literal::Kind::Float; break;
        default:
          throw ValueError(fmt::format("argument {}: the number {} does not fit i64; pass it as an Array of u64", i,
                                       static_cast<std::uint64_t>(a.integer)));
      }
      l.integer = a.integer;
      l.real = a.real;
    }
  }
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;
  operator std::span<const Argument>() const { return {data_, size_}; }

 private:
  static constexpr std::size_t kInline = 12;
  Argument inline_[kInline];
  std::vector<Argument> heap_;
  const Argument* data_;
  std::size_t size_;
};

/// Runs `body`; false with the text of what it threw.
template <class Body> bool without_exceptions(std::string& error, Body&& body) noexcept {
  try {
    try {
      body();
      return true;
    } catch (const std::exception& e) { error = e.what(); } catch (...) {
      error = "the function threw something that is no std::exception while it was recorded";
    }
  } catch (...) {  // no memory for the text
    error.clear();
  }
  return false;
}

}  // namespace onepass::runtime
