// formula(text): the language of docs/language.md.
#include <deque>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.h"

namespace onepass::python {
namespace {

struct PythonFormula {
  Formula formula;
  nb::dict options;    // as given, for pickling
  nb::object results;  // named tuple type for several results
};

struct DaskArgument {};  // thrown for Dask arguments

FormulaArgument argument_from(const char* name, nb::handle h) {
  Value v;
  if (!value_from(h, v) || v.kind == Value::Kind::None) {
    if (is_of_dask(h)) throw DaskArgument();
    v.kind = Value::Kind::Array;
    v.array = array_from(h, name);
  }
  if (v.kind == Value::Kind::Tensor)
    throw nb::type_error(
        fmt::format("{}: a formula takes arrays and numbers, not Tensors. Inside a recorded function, write its operators", name).c_str());
  if (v.kind == Value::Kind::Array) return FormulaArgument(std::move(v.array));
  switch (v.number.kind) {
    case detail::CallArgument::Kind::Bool: return FormulaArgument(v.number.integer != 0);
    case detail::CallArgument::Kind::Float: return FormulaArgument(v.number.real);
    case detail::CallArgument::Kind::UInt: return FormulaArgument(static_cast<std::uint64_t>(v.number.integer));
    default: return FormulaArgument(v.number.integer);
  }
}

nb::object results_of(const PythonFormula& f, const FormulaResults& results) {
  if (results.size() == 1) return nb::cast(results[0]);
  nb::list all;
  for (const Array& a : results) all.append(nb::cast(a));
  return f.results(*nb::tuple(all));
}

nb::object call_arrays(const PythonFormula& f, nb::args args, nb::kwargs kwargs) {
  nb::object targets;
  std::vector<FormulaArgument> values;
  std::deque<std::string> names;
  std::vector<NamedArgument> named;
  for (const nb::handle h : args) values.push_back(argument_from("an argument", h));
  for (const auto& [key, h] : kwargs) {
    const std::string& name = names.emplace_back(nb::cast<std::string>(key));
    const auto& inputs = f.formula.inputs();
    if (name == "out" && std::find(inputs.begin(), inputs.end(), name) == inputs.end()) targets = nb::borrow(h);
    else named.push_back({name, argument_from(name.c_str(), h)});
  }
  if (!args.empty() && !named.empty())
    throw nb::type_error("the arguments of a formula are given both by position and by name. Use only one of them");
  if (targets.is_valid() && !targets.is_none()) {
    std::vector<Array> arrays;
    if (PyTuple_Check(targets.ptr()) || PyList_Check(targets.ptr()))
      for (const nb::handle h : targets) arrays.push_back(array_from(h, "out"));
    else arrays.push_back(array_from(targets, "out"));
    if (!named.empty()) {
      std::vector<NamedTarget> by_name;
      if (arrays.size() != f.formula.outputs().size())
        throw ValueError(fmt::format("out: {} destinations given for {} results; one for each result is required", arrays.size(),
                                     f.formula.outputs().size()));
      for (std::size_t i = 0; i < arrays.size(); ++i) by_name.push_back({f.formula.outputs()[i], arrays[i]});
      const Unlocked unlocked;
      f.formula.into(by_name, named);
    } else {
      const Unlocked unlocked;
      f.formula.into(arrays, values);
    }
    return targets;
  }
  std::optional<FormulaResults> results;
  {
    const Unlocked unlocked;
    if (!named.empty()) results = f.formula(std::span<const NamedArgument>(named));
    else results = f.formula(std::span<const FormulaArgument>(values));
  }
  return results_of(f, *results);
}

nb::object call(nb::handle self, nb::args args, nb::kwargs kwargs) {
  try {
    return call_arrays(nb::cast<const PythonFormula&>(self), args, kwargs);
  } catch (const DaskArgument&) {}
  return nb::module_::import_("onepass.dask.arrays").attr("call")(self, args, kwargs);
}

}  // namespace

void bind_formulas(nb::module_& m) {
  nb::class_<PythonFormula> c(m, "Formula", "A compiled formula: call it with arrays and numbers, by position or by name.");
  c.def(
      "__init__",
      [](PythonFormula* self, const std::string& text, nb::kwargs options) {
        PythonFormula made{formula(text, options_from(options)), nb::dict(options), nb::none()};
        nb::list names;
        for (const std::string& name : made.formula.outputs()) names.append(name);
        made.results = nb::module_::import_("collections").attr("namedtuple")("Results", names, nb::arg("rename") = true);
        new (self) PythonFormula(std::move(made));
      },
      nb::arg("text"), nb::arg("options"));
  c.def("__call__", &call);
  c.def_prop_ro("_options", [](const PythonFormula& f) { return f.options; });
  c.def_prop_ro("text", [](const PythonFormula& f) { return f.formula.text(); });
  c.def_prop_ro(
      "inputs", [](const PythonFormula& f) { return f.formula.inputs(); }, "Names of the arguments, in the order of positions.");
  c.def_prop_ro("outputs", [](const PythonFormula& f) { return f.formula.outputs(); });
  c.def("__repr__", [](const PythonFormula& f) {
    return fmt::format("formula({})", nb::cast<std::string>(nb::repr(nb::str(f.formula.text().c_str()))));
  });
  c.def("__reduce__", [](const PythonFormula& f) {
    return nb::make_tuple(nb::module_::import_("onepass.formulas").attr("_formula_from"), nb::make_tuple(f.formula.text(), f.options));
  });
  c.def(
      "last_graph", [](const PythonFormula& f) { return f.formula.last_graph(); },
      "Returns the optimized graph of the last call, in its printed form.");
  c.def("recorded_graph", [](const PythonFormula& f) { return f.formula.recorded_graph().text(); });
  c.def(
      "explain", [](const PythonFormula& f) { return f.formula.explain(); },
      "Describes each kernel of the last call: the values that it stores, and the reason why it ends there.");
  c.def(
      "describe",
      [](const PythonFormula& f, const std::string& signature, bool code) {
        const Unlocked unlocked;
        return f.formula.describe(signature, code ? Detail::code : Detail::plan);
      },
      nb::arg("signature"), nb::arg("code") = false,
      "Returns the record of a call with this signature, without making the call: f.describe('f32[64,256]').");
  c.def(
      "last_execution",
      [](const PythonFormula& f, bool code) {
        const Unlocked unlocked;
        return f.formula.last_execution(code ? Detail::code : Detail::plan);
      },
      nb::arg("code") = false,
      "Returns the record of the last call: its kernels and the reasons for them; with `code`, also LLVM IR, assembly and CUDA text.");
  c.def("stats", [](const PythonFormula& f) { return dict_of(f.formula.stats()); });
  c.def("signatures", [](const PythonFormula& f) { return f.formula.signatures(); });
  c.def("warm_up", [](const PythonFormula& f, nb::args texts) {
    for (const nb::handle text : texts) {
      const std::vector<std::string> one{signature_text(text)};
      const Unlocked unlocked;
      f.formula.warm_up(one);
    }
  });
  c.def("wait_until_optimized", [](const PythonFormula& f) {
    const Unlocked unlocked;
    f.formula.wait_until_optimized();
  });
  c.def("seal", [](const PythonFormula& f) { f.formula.seal(); });
  c.def("reset", [](const PythonFormula& f) { f.formula.reset(); });
}

}  // namespace onepass::python
