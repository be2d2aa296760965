// The Python class `Function`, which `jit` returns: a Python function, recorded once for each combination of types and shapes, then
// compiled.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "module.h"
#include "nesting.h"

namespace onepass::python {

class Function {
 public:
  /// Constructs the function. `static_names`: parameters whose values are constants of the compiled code.
  Function(nb::object callable, const Options& options, std::vector<std::string> static_names);

  nb::object call(nb::args args, nb::kwargs kwargs) const;
  /// Returns the results and the pullback of that call.
  nb::object vjp(nb::args args) const;
  GradientCheck check_gradients(nb::args args) const;
  Comparison compare(nb::args args, nb::kwargs kwargs) const;

  nb::handle callable() const;
  /// Keeps the options by name, for workers in other processes.
  void keep_options(nb::dict given);
  nb::dict options() const;
  /// Releases the Python function, for Python's garbage collector.
  void forget();
  const detail::FunctionCore& core() const { return core_; }

 private:
  struct Body;
  struct Arguments;
  struct Recording;
  static void record(void* body, detail::TensorReader& in, detail::ResultWriter& out);
  static void write(const Nesting& n, std::span<const Tensor> leaves, std::size_t& at, detail::ResultWriter& out);
  /// Collects the arguments of a call. `borrow`: the arguments' memory is kept only during the call.
  Arguments arguments(nb::handle args, nb::handle kwargs, bool borrow) const;
  bool plain_arguments(nb::handle args, bool borrow, Arguments& out) const;
  nb::object inline_call(nb::handle args, nb::handle kwargs) const;
  nb::object results(const Recording& recording, detail::ResultReader&& in, Nesting* nesting = nullptr) const;

  std::shared_ptr<Body> body_;
  detail::FunctionCore core_;
};

}  // namespace onepass::python
