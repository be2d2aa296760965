// The parts of the module, each bound by the file of its name.
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
void bind_functions(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_formulas(nb::module_& m);
void bind_runtime(nb::module_& m);

/// What an operator records, from operands that are Tensors, Arrays, numbers or none.
using RecordOperator = std::function<Tensor(std::span<const Operand>)>;

/// An operator on Python values. Where one is a Tensor, or something is being recorded, it is recorded: a Tensor. Else it is run by a compiled
/// function, made once for each operator and `settings`, all that it is told besides operands: an Array.
nb::object apply(std::string_view name, std::string_view settings, std::span<const nb::handle> operands, const RecordOperator& record);
inline nb::object apply(std::string_view name, std::string_view settings, std::initializer_list<nb::handle> operands,
                        const RecordOperator& record) {
  return apply(name, settings, std::span(operands.begin(), operands.size()), record);
}

/// `x[key]` of a Tensor.
nb::object tensor_item(nb::handle x, nb::handle key);
/// The parts of an index that name no elements by data; false where one does, which `take` is for.
bool indices_from(nb::handle key, std::vector<Index>& out);

/// A call's options by name: those of detail::set_option, and `should_stop`, a function. Errors: those of set_option.
Options options_from(nb::handle given);
nb::dict dict_of(const Stats& stats);

}  // namespace onepass::python
