// The parts of the module. Each part is bound by the file of the same name.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "values.h"

namespace onepass::python {

void bind_dtypes(nb::module_& m);
void bind_arrays(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_operators(nb::module_& m);
void bind_records(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_formulas(nb::module_& m);
void bind_runtime(nb::module_& m);

/// Function that records an operator from operands that are Tensors, Arrays, numbers or none.
using RecordOperator = std::function<Tensor(std::span<const Operand>)>;

/// Applies an operator to Python values. Records it and returns a Tensor if an operand is a Tensor or this thread records. Otherwise runs
/// it and returns an Array. The compiled function is cached by `name` and `settings`, the text of all its other dependencies.
nb::object apply(std::string_view name, std::string_view settings, std::span<const nb::handle> operands, const RecordOperator& record);
/// Returns a to the power b. A literal exponent is recorded as in a function: `a ** 2` is a product.
nb::object power(nb::handle a, nb::handle b);
inline nb::object apply(std::string_view name, std::string_view settings, std::initializer_list<nb::handle> operands,
                        const RecordOperator& record) {
  return apply(name, settings, std::span(operands.begin(), operands.size()), record);
}

/// Returns `x[key]` of a Tensor.
nb::object tensor_item(nb::handle x, nb::handle key);
/// Returns `x[key]` of an Array or Tensor for a key with arrays: python/onepass/indexing.py.
nb::object item_by_data(nb::handle x, nb::handle key);
/// Reads an index of ints, slices, None and `...`. Returns false if a part of it is an array.
bool indices_from(nb::handle key, std::vector<Index>& out);

/// Reads a call's options by name: the options of detail::set_option, and `should_stop`, a function. Errors: as set_option.
Options options_from(nb::handle given);
nb::dict dict_of(const Stats& stats);
/// Reads a signature that warm_up takes. TypeError if it is not a str.
std::string signature_text(nb::handle given);

}  // namespace onepass::python
