// The operators of docs/language.md as Python functions with the same names, and their execution outside a recording.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "onepass/binding.h"

namespace onepass::python {
namespace {

// An operator compiled separately, for arrays outside of any function.
struct Single {
  RecordOperator record;
  std::vector<bool> given;  // one flag per operand; false: none
  detail::FunctionCore core;

  Single(RecordOperator record, std::vector<bool> given);
  static void run(void* self, detail::TensorReader& in, detail::ResultWriter& out) {
    const Single& s = *static_cast<Single*>(self);
    std::vector<Operand> operands;
    for (const bool is_given : s.given) {
      if (is_given) operands.emplace_back(in.leaf(), std::source_location{});
      else operands.emplace_back(none);
    }
    in.finish();
    out.leaf(s.record(operands));
  }
};

Options quiet_options() {
  Options options;
  options.check_recording = false;
  return options;
}

Single::Single(RecordOperator record, std::vector<bool> given)
    : record(std::move(record)),
      given(std::move(given)),
      core(detail::Shared<void>(detail::Shared<int>::make(0), this), 0, &run, quiet_options()) {}

constexpr std::size_t kMostSingles = 1024;  // bounds memory if each operator is used for one shape

std::shared_ptr<Single> single(std::string key, const RecordOperator& record, std::span<const Value> operands) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<std::string, std::shared_ptr<Single>>;  // never destroyed: threads may run until the end
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(key); it != known.end()) return it->second;
  if (known.size() >= kMostSingles) known.clear();
  std::vector<bool> given;
  for (const Value& v : operands) given.push_back(v.kind != Value::Kind::None);
  return known.emplace(std::move(key), std::make_shared<Single>(record, std::move(given))).first->second;
}

[[noreturn]] void fail_operand(std::string_view name, nb::handle h) {
  throw nb::type_error(fmt::format("{}: {} is neither an array nor a number", name, nb::cast<std::string>(nb::repr(h.type()))).c_str());
}

// Reads an operand. Accepts lists and tuples of numbers as arrays.
void read_operand(std::string_view name, nb::handle h, Value& out) {
  if (value_from(h, out)) return;
  if (!PyList_Check(h.ptr()) && !PyTuple_Check(h.ptr())) fail_operand(name, h);
  out.kind = Value::Kind::Array;
  if (!array_from(h, out.array)) fail_operand(name, h);
}

}  // namespace

nb::object apply(std::string_view name, std::string_view settings, std::span<const nb::handle> given, const RecordOperator& record) {
  constexpr std::size_t kFew = 4;
  std::array<Value, kFew> few;
  std::vector<Value> many(given.size() > kFew ? given.size() : 0);
  const std::span<Value> operands = many.empty() ? std::span<Value>(few.data(), given.size()) : std::span<Value>(many);
  bool any_tensor = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    read_operand(name, given[i], operands[i]);
    any_tensor |= operands[i].kind == Value::Kind::Tensor;
  }
  if (any_tensor || detail::is_recording()) {
    note_line();
    std::vector<Operand> all;
    for (const Value& v : operands) all.push_back(v.operand());
    return nb::cast(record(all));
  }
  std::string key;
  key.reserve(name.size() + settings.size() + given.size() + 2);
  key.append(name).append(1, '(').append(settings).append(1, ';');
  std::vector<detail::CallArgument> arguments;
  arguments.reserve(given.size());
  for (const Value& v : operands) {
    key += v.kind == Value::Kind::None ? '-' : '+';
    if (v.kind != Value::Kind::None) arguments.push_back(v.argument());
  }
  const std::shared_ptr<Single> s = single(std::move(key), record, operands);
  detail::ResultReader results;
  {
    const Unlocked unlocked;
    s->core.call(arguments, {}, false, results);
  }
  return nb::cast(results.leaf());
}

namespace {
// True for numbers whose powers are recorded as products or as a reciprocal (docs/language.md).
bool is_exponent_of_products(nb::handle h) {
  if (!PyLong_CheckExact(h.ptr()) && !PyFloat_CheckExact(h.ptr())) return false;
  const double value = PyFloat_AsDouble(h.ptr());
  if (PyErr_Occurred()) PyErr_Clear();  // an int that exceeds a double
  return value == -1 || value == 1 || value == 2 || value == 3 || value == 4;
}
}  // namespace

// A call on arrays records such an exponent as a literal, too, so that `a ** 2` is a product, with the bits of a recorded function.
nb::object power(nb::handle a, nb::handle b) {
  if (!is_exponent_of_products(b)) return apply("pow", "", {a, b}, [](std::span<const Operand> v) { return onepass::pow(v[0], v[1]); });
  Value exponent;
  value_from(b, exponent);
  return apply("pow", nb::cast<std::string>(nb::repr(b)), {a},
               [exponent](std::span<const Operand> v) { return onepass::pow(v[0], exponent.operand()); });
}

namespace {

// Axes as given: none, an int or several.
struct AxesGiven {
  bool all = true;
  std::vector<std::int64_t> list;
  explicit AxesGiven(nb::handle h) {
    if (h.is_none()) return;
    all = false;
    list = integers_from(h, "axis");
  }
  Axes get() const { return all ? Axes() : Axes(list); }
  std::string text() const { return all ? "all" : fmt::format("{}", fmt::join(list, ",")); }
};

using Unary = Tensor (*)(const Operand&);
using Binary = Tensor (*)(const Operand&, const Operand&);
using Ternary = Tensor (*)(const Operand&, const Operand&, const Operand&);
using Reduction = Tensor (*)(const Operand&, Axes, bool);
using Spread = Tensor (*)(const Operand&, Axes, std::int64_t, bool);
using Scan = Tensor (*)(const Operand&, int, bool);

void def_unary(nb::module_& m, const char* name, Unary f) {
  const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0]); };
  m.def(
      name, [name, record](nb::handle x) { return apply(name, "", {x}, record); }, nb::arg("x"));
}
void def_binary(nb::module_& m, const char* name, Binary f) {
  const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0], v[1]); };
  m.def(
      name,
      [name, record](nb::handle a, nb::handle b) {
        return apply(name, "", {a, b}, record);
      },
      nb::arg("a"), nb::arg("b"));
}
void def_ternary(nb::module_& m, const char* name, std::array<const char*, 3> names, Ternary f) {
  const RecordOperator record = [f](std::span<const Operand> v) { return f(v[0], v[1], v[2]); };
  m.def(
      name,
      [name, record](nb::handle a, nb::handle b, nb::handle c) {
        return apply(name, "", {a, b, c}, record);
      },
      nb::arg(names[0]), nb::arg(names[1]), nb::arg(names[2]));
}
void def_reduction(nb::module_& m, const char* name, Reduction f) {
  m.def(
      name,
      [name, f](nb::handle x, nb::handle axis, bool keepdims) {
        const AxesGiven axes(axis);
        return apply(name, fmt::format("{};{}", axes.text(), keepdims), {x},
                     [f, axes, keepdims](std::span<const Operand> v) { return f(v[0], axes.get(), keepdims); });
      },
      nb::arg("x"), nb::arg("axis") = nb::none(), nb::arg("keepdims") = false);
}
void def_spread(nb::module_& m, const char* name, Spread f) {
  m.def(
      name,
      [name, f](nb::handle x, nb::handle axis, std::int64_t ddof, bool keepdims) {
        const AxesGiven axes(axis);
        return apply(name, fmt::format("{};{};{}", axes.text(), ddof, keepdims), {x},
                     [f, axes, ddof, keepdims](std::span<const Operand> v) { return f(v[0], axes.get(), ddof, keepdims); });
      },
      nb::arg("x"), nb::arg("axis") = nb::none(), nb::arg("ddof") = 0, nb::arg("keepdims") = false);
}
void def_scan(nb::module_& m, const char* name, Scan f) {
  m.def(
      name,
      [name, f](nb::handle x, std::optional<int> axis, bool reverse) {
        return apply(name, fmt::format("{};{}", axis ? std::to_string(*axis) : "flat", reverse), {x},
                     [f, axis, reverse](std::span<const Operand> v) {
                       return axis ? f(v[0], *axis, reverse) : f(onepass::reshape(v[0], {-1}), 0, reverse);
                     });
      },
      nb::arg("x"), nb::arg("axis") = nb::none(), nb::arg("reverse") = false);
}

std::string listed(const std::vector<std::int64_t>& list) { return fmt::format("{}", fmt::join(list, ",")); }

void bind_elementwise(nb::module_& m) {
// clang-format off
#define ONE(name) def_unary(m, #name, &onepass::name);
#define TWO(name) def_binary(m, #name, &onepass::name);
  ONE(neg) ONE(abs) ONE(sign) ONE(square) ONE(reciprocal) ONE(stop_gradient) ONE(sqrt) ONE(rsqrt) ONE(cbrt) ONE(exp) ONE(exp2)
  ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sigmoid) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh)
  ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(erfinv) ONE(ndtr) ONE(ndtri) ONE(lgamma) ONE(digamma) ONE(floor) ONE(ceil)
  ONE(trunc) ONE(round) ONE(logical_not) ONE(isnan) ONE(isinf) ONE(isfinite) ONE(signbit) ONE(bitwise_not) ONE(popcount) ONE(relu)
  ONE(relu6) ONE(hardsigmoid) ONE(hardswish) ONE(selu) ONE(gelu) ONE(gelu_tanh) ONE(silu) ONE(mish) ONE(softplus) ONE(softsign) TWO(add)
  TWO(sub) TWO(mul) TWO(div) TWO(floor_div) TWO(remainder) TWO(fmod) TWO(maximum) TWO(minimum) TWO(copysign) TWO(hypot)
  TWO(logaddexp) TWO(atan2) TWO(equal) TWO(not_equal) TWO(less) TWO(less_equal) TWO(greater) TWO(greater_equal) TWO(logical_and)
  TWO(logical_or) TWO(logical_xor) TWO(bitwise_and) TWO(bitwise_or) TWO(bitwise_xor) TWO(shift_left) TWO(shift_right) TWO(matmul)
  TWO(dot) TWO(outer) TWO(mse)
#undef ONE
#undef TWO
      // clang-format on
      m.def("pow", &power, nb::arg("a"), nb::arg("b"));
  def_ternary(m, "fma", {"a", "b", "c"}, &onepass::fma);
  def_ternary(m, "clamp", {"x", "lo", "hi"}, &onepass::clamp);
  def_ternary(m, "where", {"c", "a", "b"}, &onepass::where);
  for (const auto& [name, f] :
       {std::pair<const char*, Binary>{"leaky_relu", &onepass::leaky_relu}, {"elu", &onepass::elu}, {"celu", &onepass::celu}}) {
    const RecordOperator record = [f = f](std::span<const Operand> v) { return f(v[0], v[1]); };
    m.def(
        name,
        [name = name, record](nb::handle x, nb::handle alpha) {
          return apply(name, "", {x, alpha}, record);
        },
        nb::arg("x"), nb::arg("alpha") = nb::none());
  }
  m.def(
      "hardtanh",
      [](nb::handle x, nb::handle lo, nb::handle hi) {
        return apply("hardtanh", "", {x, lo, hi}, [](std::span<const Operand> v) { return onepass::hardtanh(v[0], v[1], v[2]); });
      },
      nb::arg("x"), nb::arg("lo") = nb::none(), nb::arg("hi") = nb::none());
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, DType)>{"cast", &onepass::cast}, {"bitcast", &onepass::bitcast}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle dtype) {
          const DType to = dtype_from(dtype);
          return apply(name, name_of(to), {x}, [f, to](std::span<const Operand> v) { return f(v[0], to); });
        },
        nb::arg("x"), nb::arg("dtype"));
}

void bind_reductions(nb::module_& m) {
// clang-format off
#define ONE(name) def_reduction(m, #name, &onepass::name);
  ONE(sum) ONE(mean) ONE(max) ONE(min) ONE(prod) ONE(any) ONE(all) ONE(argmax) ONE(argmin) ONE(count_nonzero) ONE(norm) ONE(logsumexp)
  ONE(nansum) ONE(nanprod) ONE(nanmax) ONE(nanmin) ONE(nanmean)
#undef ONE
      // clang-format on
      def_spread(m, "var", &onepass::var);
  def_spread(m, "std", &onepass::std);
  def_spread(m, "nanvar", &onepass::nanvar);
  def_spread(m, "nanstd", &onepass::nanstd);
  def_scan(m, "cumsum", &onepass::cumsum);
  def_scan(m, "cumprod", &onepass::cumprod);
  def_scan(m, "cummax", &onepass::cummax);
  def_scan(m, "cummin", &onepass::cummin);
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, int)>{"softmax", &onepass::softmax}, {"log_softmax", &onepass::log_softmax}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, int axis) {
          return apply(name, fmt::format("{}", axis), {x}, [f, axis](std::span<const Operand> v) { return f(v[0], axis); });
        },
        nb::arg("x"), nb::arg("axis") = -1);
  m.def(
      "layer_norm",
      [](nb::handle x, nb::handle scale, nb::handle shift, nb::handle axis, nb::handle eps) {
        const AxesGiven axes(axis);
        return apply("layer_norm", axes.text(), {x, scale, shift, eps},
                     [axes](std::span<const Operand> v) { return onepass::layer_norm(v[0], v[1], v[2], axes.get(), v[3]); });
      },
      nb::arg("x"), nb::arg("scale") = nb::none(), nb::arg("shift") = nb::none(), nb::arg("axis") = -1, nb::arg("eps") = nb::none());
  m.def(
      "rms_norm",
      [](nb::handle x, nb::handle scale, int axis, nb::handle eps) {
        return apply("rms_norm", fmt::format("{}", axis), {x, scale, eps},
                     [axis](std::span<const Operand> v) { return onepass::rms_norm(v[0], v[1], axis, v[2]); });
      },
      nb::arg("x"), nb::arg("scale") = nb::none(), nb::arg("axis") = -1, nb::arg("eps") = nb::none());
  m.def(
      "batch_norm",
      [](nb::handle x, nb::handle mean, nb::handle var, nb::handle scale, nb::handle shift, int axis, nb::handle eps) {
        return apply("batch_norm", fmt::format("{}", axis), {x, mean, var, scale, shift, eps},
                     [axis](std::span<const Operand> v) { return onepass::batch_norm(v[0], v[1], v[2], v[3], v[4], axis, v[5]); });
      },
      nb::arg("x"), nb::arg("mean"), nb::arg("var"), nb::arg("scale") = nb::none(), nb::arg("shift") = nb::none(), nb::arg("axis") = 1,
      nb::arg("eps") = nb::none());
  m.def(
      "cross_entropy",
      [](nb::handle logits, nb::handle labels, int axis) {
        return apply("cross_entropy", fmt::format("{}", axis), {logits, labels},
                     [axis](std::span<const Operand> v) { return onepass::cross_entropy(v[0], v[1], axis); });
      },
      nb::arg("logits"), nb::arg("labels"), nb::arg("axis") = -1);
}

// Defines an operator with a list of lengths, axes or counts.
void def_listed(nb::module_& m, const char* name, const char* list_name, Tensor (*f)(const Operand&, Extents)) {
  m.def(
      name,
      [name, list_name, f](nb::handle x, nb::handle given) {
        const auto list = integers_from(given, list_name);
        return apply(name, listed(list), {x}, [f, list](std::span<const Operand> v) { return f(v[0], Extents(list)); });
      },
      nb::arg("x"), nb::arg(list_name));
}

std::vector<nb::handle> handles_in(nb::handle sequence) {
  std::vector<nb::handle> list;
  for (const nb::handle h : sequence) list.push_back(h);
  return list;
}

// Defines an operator that joins several arrays.
void def_joined(nb::module_& m, const char* name, Tensor (*f)(const std::vector<Tensor>&, int, std::source_location)) {
  m.def(
      name,
      [name, f](nb::handle xs, int axis) {
        const nb::list kept(xs);
        return apply(name, fmt::format("{}", axis), handles_in(kept), [f, axis](std::span<const Operand> v) {
          std::vector<Tensor> tensors;
          for (const Operand& x : v) tensors.push_back(detail::tensor_of(x));
          return f(tensors, axis, std::source_location{});
        });
      },
      nb::arg("xs"), nb::arg("axis") = 0);
}

void bind_views(nb::module_& m) {
  def_listed(m, "reshape", "shape", &onepass::reshape);
  def_listed(m, "broadcast_to", "shape", &onepass::broadcast_to);
  def_listed(m, "tile", "times", &onepass::tile);
  m.def(
      "transpose",
      [](nb::handle x, nb::handle axes) {
        const auto list = axes.is_none() ? std::vector<std::int64_t>() : integers_from(axes, "axes");
        return apply("transpose", listed(list), {x},
                     [list](std::span<const Operand> v) { return onepass::transpose(v[0], Extents(list)); });
      },
      nb::arg("x"), nb::arg("axes") = nb::none());
  m.def(
      "swap_axes",
      [](nb::handle x, int a, int b) {
        return apply("swap_axes", fmt::format("{};{}", a, b), {x},
                     [a, b](std::span<const Operand> v) { return onepass::swap_axes(v[0], a, b); });
      },
      nb::arg("x"), nb::arg("a"), nb::arg("b"));
  m.def(
      "expand_dims",
      [](nb::handle x, int axis) {
        return apply("expand_dims", fmt::format("{}", axis), {x},
                     [axis](std::span<const Operand> v) { return onepass::expand_dims(v[0], axis); });
      },
      nb::arg("x"), nb::arg("axis"));
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, Axes)>{"squeeze", &onepass::squeeze}, {"flip", &onepass::flip}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle axis) {
          const AxesGiven axes(axis);
          return apply(name, axes.text(), {x}, [f, axes](std::span<const Operand> v) { return f(v[0], axes.get()); });
        },
        nb::arg("x"), nb::arg("axis") = nb::none());
  m.def(
      "diagonal",
      [](nb::handle x, std::int64_t offset, int axis1, int axis2) {
        return apply("diagonal", fmt::format("{};{};{}", offset, axis1, axis2), {x},
                     [=](std::span<const Operand> v) { return onepass::diagonal(v[0], offset, axis1, axis2); });
      },
      nb::arg("x"), nb::arg("offset") = 0, nb::arg("axis1") = 0, nb::arg("axis2") = 1);
  m.def(
      "pad",
      [](nb::handle x, nb::handle low, nb::handle high, nb::handle value, const std::string& mode) {
        const auto before = integers_from(low, "low"), behind = integers_from(high, "high");
        static constexpr std::string_view modes[] = {"edge", "reflect", "symmetric", "wrap"};
        if (mode != "constant") {
          const auto found = std::ranges::find(modes, mode);
          if (found == std::end(modes))
            throw ValueError(fmt::format("pad: `mode` must be \"constant\", \"{}\", not \"{}\"", fmt::join(modes, "\", \""), mode));
          if (!value.is_none()) throw ValueError(fmt::format("pad: mode \"{}\" takes no value. Omit it", mode));
          const auto way = static_cast<PadMode>(found - std::begin(modes));
          return apply("pad", listed(before) + ";" + listed(behind) + ";" + mode, {x}, [before, behind, way](std::span<const Operand> v) {
            return onepass::pad(v[0], Extents(before), Extents(behind), way);
          });
        }
        return apply("pad", listed(before) + ";" + listed(behind), {x, value},
                     [before, behind](std::span<const Operand> v) { return onepass::pad(v[0], Extents(before), Extents(behind), v[1]); });
      },
      nb::arg("x"), nb::arg("low"), nb::arg("high"), nb::arg("value") = nb::none(), nb::arg("mode") = "constant");
  m.def(
      "repeat",
      [](nb::handle x, std::int64_t times, std::optional<int> axis) {
        return apply("repeat", fmt::format("{};{}", times, axis ? std::to_string(*axis) : "flat"), {x}, [=](std::span<const Operand> v) {
          return axis ? onepass::repeat(v[0], times, *axis) : onepass::repeat(onepass::reshape(v[0], {-1}), times, 0);
        });
      },
      nb::arg("x"), nb::arg("times"), nb::arg("axis") = nb::none());
  m.def(
      "roll",
      [](nb::handle x, std::variant<std::int64_t, std::vector<std::int64_t>> shift, nb::handle axis) {
        const AxesGiven axes(axis);
        if (const auto* by = std::get_if<std::vector<std::int64_t>>(&shift)) {  // one shift for each axis, as in NumPy
          if (by->empty() || axes.list.size() != by->size())
            throw onepass::ValueError(
                fmt::format("roll: {} shifts given for {} axes. Pass one shift for each axis", by->size(), axes.list.size()));
          return apply("roll", fmt::format("{};{}", listed(*by), axes.text()), {x}, [by = *by, axes](std::span<const Operand> v) {
            Tensor y = onepass::roll(v[0], by[0], Axes(axes.list[0]));
            for (std::size_t k = 1; k < by.size(); ++k) y = onepass::roll(y, by[k], Axes(axes.list[k]));
            return y;
          });
        }
        const std::int64_t by = std::get<std::int64_t>(shift);
        return apply("roll", fmt::format("{};{}", by, axes.text()), {x},
                     [=](std::span<const Operand> v) { return onepass::roll(v[0], by, axes.get()); });
      },
      nb::arg("x"), nb::arg("shift"), nb::arg("axis") = nb::none());
  def_joined(m, "concat", &onepass::concat);
  def_joined(m, "stack", &onepass::stack);
}

void bind_indexing(nb::module_& m) {
  for (const auto& [name, f] : {std::pair<const char*, Tensor (*)(const Operand&, const Operand&, int)>{"take", &onepass::take},
                                {"take_along_axis", &onepass::take_along_axis}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle indices, std::optional<int> axis) {
          return apply(name, axis ? std::to_string(*axis) : "flat", {x, indices}, [f, axis](std::span<const Operand> v) {
            return axis ? f(v[0], v[1], *axis) : f(onepass::reshape(v[0], {-1}), v[1], 0);
          });
        },
        nb::arg("x"), nb::arg("indices"), nb::arg("axis") = nb::none());
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, const Operand&, const Operand&, int)>{"scatter_add", &onepass::scatter_add},
        {"index_add", &onepass::index_add}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle indices, nb::handle updates, int axis) {
          return apply(name, fmt::format("{}", axis), {x, indices, updates},
                       [f, axis](std::span<const Operand> v) { return f(v[0], v[1], v[2], axis); });
        },
        nb::arg("x"), nb::arg("indices"), nb::arg("updates"), nb::arg("axis"));
  m.def(
      "einsum",
      [](const std::string& equation, nb::args operands) {
        return apply("einsum", equation, handles_in(operands),
                     [equation](std::span<const Operand> v) { return onepass::einsum(Equation(equation, std::source_location{}), v); });
      },
      nb::arg("equation"), nb::arg("operands"));
}

// NumPy's gradient along each of the axes: one result, or a tuple of them.
nb::object gradient_of(nb::handle given, nb::handle spacing, nb::handle axis, int edge_order) {
  Value x;
  read_operand("gradient", given, x);
  const nb::object operand = nb::isinstance<Tensor>(given) || x.kind != Value::Kind::Array ? nb::borrow(given) : nb::cast(x.array);
  const int rank = x.kind == Value::Kind::Tensor ? x.tensor.rank() : x.kind == Value::Kind::Array ? x.array.rank() : 0;
  const AxesGiven axes(axis);
  std::vector<std::int64_t> all = axes.list;
  if (axes.all)
    for (int i = 0; i < rank; ++i) all.push_back(i);
  if (all.empty()) throw ShapeError("gradient: there is no axis. x must have one axis or more, and `axis` must name one or more");
  const auto along = [&](std::int64_t i, nb::handle h) {
    const int at = static_cast<int>(i);
    return apply("gradient", fmt::format("{};{}", at, edge_order), {operand, h},
                 [=](std::span<const Operand> v) { return onepass::gradient(v[0], v[1], at, edge_order); });
  };
  const bool listed = PyList_Check(spacing.ptr()) || PyTuple_Check(spacing.ptr());
  const std::size_t spacings = listed ? static_cast<std::size_t>(nb::len(spacing)) : 0;
  if (all.size() == 1) return along(all[0], spacings == 1 ? nb::object(spacing[0]) : nb::borrow(spacing));  // a longer list: coordinates
  if (listed && spacings != all.size())
    throw ValueError(fmt::format("gradient: {} spacings given for {} axes. Pass one spacing, or one for each axis.", spacings, all.size()));
  nb::list out;
  for (std::size_t i = 0; i < all.size(); ++i) out.append(along(all[i], listed ? nb::object(spacing[i]) : nb::borrow(spacing)));
  return nb::tuple(out);
}

void bind_statistics(nb::module_& m) {
  m.def(
      "average",
      [](nb::handle x, nb::handle axis, nb::handle weights, bool keepdims) {
        const AxesGiven axes(axis);
        return apply("average", fmt::format("{};{}", axes.text(), keepdims), {x, weights},
                     [=](std::span<const Operand> v) { return onepass::average(v[0], axes.get(), v[1], keepdims); });
      },
      nb::arg("x"), nb::arg("axis") = nb::none(), nb::arg("weights") = nb::none(), nb::arg("keepdims") = false);
  m.def(
      "cov",
      [](nb::handle x, nb::handle y, bool rowvar, std::int64_t ddof) {
        return apply("cov", fmt::format("{};{}", rowvar, ddof), {x, y},
                     [=](std::span<const Operand> v) { return onepass::cov(v[0], v[1], rowvar, ddof); });
      },
      nb::arg("x"), nb::arg("y") = nb::none(), nb::arg("rowvar") = true, nb::arg("ddof") = 1);
  m.def(
      "corrcoef",
      [](nb::handle x, nb::handle y, bool rowvar) {
        return apply("corrcoef", fmt::format("{}", rowvar), {x, y},
                     [=](std::span<const Operand> v) { return onepass::corrcoef(v[0], v[1], rowvar); });
      },
      nb::arg("x"), nb::arg("y") = nb::none(), nb::arg("rowvar") = true);
  m.def(
      "diff",
      [](nb::handle x, std::int64_t n, int axis, nb::handle prepend, nb::handle append) {
        return apply("diff", fmt::format("{};{}", n, axis), {x, prepend, append},
                     [=](std::span<const Operand> v) { return onepass::diff(v[0], n, axis, v[1], v[2]); });
      },
      nb::arg("x"), nb::arg("n") = 1, nb::arg("axis") = -1, nb::arg("prepend") = nb::none(), nb::arg("append") = nb::none());
  m.def("gradient", &gradient_of, nb::arg("x"), nb::arg("spacing") = nb::none(), nb::arg("axis") = nb::none(), nb::arg("edge_order") = 1,
        "Returns NumPy's gradient: central differences, one-sided at the ends. One Array for one axis, else a tuple of one for each axis. "
        "`axis` is an int, several, or None for all. `spacing` is a distance or a vector of coordinates for all axes, or a list of one for "
        "each axis. Raises ShapeError for too few elements, ValueError for another number of spacings.");
  m.def(
      "trapezoid",
      [](nb::handle y, nb::handle x, nb::handle dx, int axis) {
        return apply("trapezoid", fmt::format("{}", axis), {y, x, dx},
                     [=](std::span<const Operand> v) { return onepass::trapezoid(v[0], v[1], v[2], axis); });
      },
      nb::arg("y"), nb::arg("x") = nb::none(), nb::arg("dx") = nb::none(), nb::arg("axis") = -1);
  m.def(
      "bincount",
      [](nb::handle x, std::int64_t length, nb::handle weights) {
        return apply("bincount", fmt::format("{}", length), {x, weights},
                     [=](std::span<const Operand> v) { return onepass::bincount(v[0], length, v[1]); });
      },
      nb::arg("x"), nb::arg("length"), nb::arg("weights") = nb::none());
  m.def(
      "histogram",
      [](nb::handle x, std::int64_t bins, nb::handle range, nb::handle weights, bool density) {
        nb::object low = nb::none(), high = nb::none();
        if (!range.is_none()) std::tie(low, high) = nb::cast<std::pair<nb::object, nb::object>>(range);
        const auto part = [&](bool edges) {
          return apply("histogram", fmt::format("{};{};{}", bins, density, edges), {x, low, high, weights},
                       [=](std::span<const Operand> v) {
                         const Histogram all = onepass::histogram(v[0], bins, v[1], v[2], v[3], density);
                         return edges ? all.edges : all.counts;
                       });
        };
        return nb::make_tuple(part(false), part(true));
      },
      nb::arg("x"), nb::arg("bins") = 10, nb::arg("range") = nb::none(), nb::arg("weights") = nb::none(), nb::arg("density") = false);
}

void bind_sorting(nb::module_& m) {
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, int, bool)>{"sort", &onepass::sort}, {"argsort", &onepass::argsort}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, int axis, bool descending) {
          return apply(name, fmt::format("{};{}", axis, descending), {x},
                       [f, axis, descending](std::span<const Operand> v) { return f(v[0], axis, descending); });
        },
        nb::arg("x"), nb::arg("axis") = -1, nb::arg("descending") = false);
  m.def(
      "topk",
      [](nb::handle x, std::int64_t k, int axis, bool largest) {
        const auto part = [&](bool places) {
          return apply("topk", fmt::format("{};{};{};{}", k, axis, largest, places), {x}, [=](std::span<const Operand> v) {
            const TopK both = onepass::topk(v[0], k, axis, largest);
            return places ? both.indices : both.values;
          });
        };
        return nb::make_tuple(part(false), part(true));
      },
      nb::arg("x"), nb::arg("k"), nb::arg("axis") = -1, nb::arg("largest") = true);
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"median", &onepass::median}, {"nanmedian", &onepass::nanmedian}})
    def_reduction(m, name, f);
  using Quantile = Tensor (*)(const Operand&, const Operand&, Axes, bool);
  for (const auto& [name, f] : {std::pair<const char*, Quantile>{"quantile", &onepass::quantile}, {"nanquantile", &onepass::nanquantile}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle q, nb::handle axis, bool keepdims) {
          const AxesGiven axes(axis);
          return apply(name, fmt::format("{};{}", axes.text(), keepdims), {x, q},
                       [f, axes, keepdims](std::span<const Operand> v) { return f(v[0], v[1], axes.get(), keepdims); });
        },
        nb::arg("x"), nb::arg("q"), nb::arg("axis") = nb::none(), nb::arg("keepdims") = false);
  m.def(
      "searchsorted",
      [](nb::handle sorted, nb::handle values, const std::string& side) {
        if (side != "left" && side != "right")
          throw ValueError(fmt::format("searchsorted: `side` must be \"left\" or \"right\", not \"{}\"", side));
        return apply("searchsorted", side, {sorted, values},
                     [right = side == "right"](std::span<const Operand> v) { return onepass::searchsorted(v[0], v[1], right); });
      },
      nb::arg("sorted"), nb::arg("values"), nb::arg("side") = "left");
}

PutMode put_mode(const char* name, const std::string& mode) {
  static constexpr std::string_view kModes[] = {"set", "add", "min", "max", "mul"};  // as PutMode
  const auto found = std::ranges::find(kModes, mode);
  if (found == std::end(kModes))
    throw ValueError(fmt::format("{}: `mode` must be \"set\", \"add\", \"min\", \"max\" or \"mul\", not \"{}\"", name, mode));
  return static_cast<PutMode>(found - std::begin(kModes));
}

std::string text_of(std::span<const Index> indices) {
  const auto bound = [](const std::optional<std::int64_t>& b) { return b ? fmt::format("{}", *b) : std::string(); };
  std::string text;
  for (const Index& i : indices) switch (i.kind) {
      case Index::Kind::Integer: text += fmt::format("{},", i.at); break;
      case Index::Kind::Slice: text += fmt::format("{}:{}:{},", bound(i.range.start), bound(i.range.stop), bound(i.range.step)); break;
      case Index::Kind::Ellipsis: text += "...,"; break;
      case Index::Kind::NewAxis: text += "none,"; break;
    }
  return text;
}

void bind_writing(nb::module_& m) {
  m.def(
      "put",
      [](nb::handle x, nb::handle at, nb::handle v, const std::string& mode) {
        std::vector<Index> indices;
        if (!indices_from(at, indices))
          throw nb::type_error(
              "put: the index must consist of ints, slices, None and `...`. Use index_update or scatter for an array of integers");
        return apply("put", text_of(indices) + ";" + mode, {x, v}, [indices, mode = put_mode("put", mode)](std::span<const Operand> o) {
          return onepass::put(o[0], indices, o[1], mode);
        });
      },
      nb::arg("x"), nb::arg("at").none(), nb::arg("v"), nb::arg("mode") = "set");
  using ByData = Tensor (*)(const Operand&, const Operand&, const Operand&, int, PutMode);
  for (const auto& [name, f] : {std::pair<const char*, ByData>{"scatter", &onepass::scatter}, {"index_update", &onepass::index_update}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle indices, nb::handle updates, int axis, const std::string& mode) {
          return apply(name, fmt::format("{};{}", axis, mode), {x, indices, updates},
                       [f, axis, how = put_mode(name, mode)](std::span<const Operand> v) { return f(v[0], v[1], v[2], axis, how); });
        },
        nb::arg("x"), nb::arg("indices"), nb::arg("updates"), nb::arg("axis"), nb::arg("mode") = "set");
  m.def(
      "masked_fill",
      [](nb::handle x, nb::handle mask, nb::handle value) {
        return apply("masked_fill", "", {x, mask, value},
                     [](std::span<const Operand> v) { return onepass::masked_fill(v[0], v[1], v[2]); });
      },
      nb::arg("x"), nb::arg("mask"), nb::arg("value"));
  m.def(
      "compress",
      [](nb::handle mask, nb::handle x, std::optional<int> axis, nb::handle fill) {
        const auto part = [&](bool count) {
          return apply("compress", fmt::format("{};{}", axis ? fmt::format("{}", *axis) : "", count), {mask, x, fill},
                       [=](std::span<const Operand> v) {
                         const Compressed both = onepass::compress(v[0], v[1], axis, v[2]);
                         return count ? both.count : both.values;
                       });
        };
        return nb::make_tuple(part(false), part(true));
      },
      nb::arg("mask"), nb::arg("x"), nb::arg("axis") = nb::none(), nb::arg("fill") = nb::none());
}

void bind_windows(nb::module_& m) {
  m.def(
      "sliding_window",
      [](nb::handle x, nb::handle window, nb::handle axis, std::int64_t step, std::int64_t spacing) {
        const AxesGiven axes(axis);
        const auto widths = integers_from(window, "window");
        return apply("sliding_window", fmt::format("{};{};{};{}", listed(widths), axes.text(), step, spacing), {x},
                     [=](std::span<const Operand> v) { return onepass::sliding_window(v[0], Extents(widths), axes.get(), step, spacing); });
      },
      nb::arg("x"), nb::arg("window"), nb::arg("axis") = nb::none(), nb::arg("step") = 1, nb::arg("spacing") = 1);
  using Correlate = Tensor (*)(const Operand&, const Operand&, Overlap, Axes);
  for (const auto& [name, f, otherwise] : {std::tuple<const char*, Correlate, const char*>{"correlate", &onepass::correlate, "valid"},
                                           {"convolve", &onepass::convolve, "full"}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, nb::handle kernel, const std::string& mode, nb::handle axis) {
          const AxesGiven axes(axis);
          if (mode != "valid" && mode != "same" && mode != "full")
            throw ValueError(fmt::format("{}: `mode` must be \"valid\", \"same\" or \"full\", not \"{}\"", name, mode));
          const Overlap overlap = mode == "valid" ? Overlap::Valid : mode == "same" ? Overlap::Same : Overlap::Full;
          return apply(name, fmt::format("{};{}", mode, axes.text()), {x, kernel},
                       [=](std::span<const Operand> v) { return f(v[0], v[1], overlap, axes.get()); });
        },
        nb::arg("x"), nb::arg("kernel"), nb::arg("mode") = otherwise, nb::arg("axis") = nb::none());
}

void bind_matrices(nb::module_& m) {
  using OfDiagonal = Tensor (*)(const Operand&, std::int64_t);
  for (const auto& [name, f] :
       {std::pair<const char*, OfDiagonal>{"diag", &onepass::diag}, {"tril", &onepass::tril}, {"triu", &onepass::triu}})
    m.def(
        name,
        [name = name, f = f](nb::handle x, std::int64_t k) {
          return apply(name, fmt::format("{}", k), {x}, [f, k](std::span<const Operand> v) { return f(v[0], k); });
        },
        nb::arg("x"), nb::arg("k") = 0);
  m.def(
      "trace",
      [](nb::handle x, std::int64_t offset, int axis1, int axis2) {
        return apply("trace", fmt::format("{};{};{}", offset, axis1, axis2), {x},
                     [=](std::span<const Operand> v) { return onepass::trace(v[0], offset, axis1, axis2); });
      },
      nb::arg("x"), nb::arg("offset") = 0, nb::arg("axis1") = 0, nb::arg("axis2") = 1);
  using Band = Tensor (*)(std::int64_t, std::optional<std::int64_t>, std::int64_t, DType, std::source_location);
  for (const auto& [name, f] : {std::pair<const char*, Band>{"eye", &onepass::eye}, {"tri", &onepass::tri}})
    m.def(
        name,
        [name = name, f = f](std::int64_t n, std::optional<std::int64_t> columns, std::int64_t k, nb::handle dtype) {
          const DType type = dtype.is_none() ? DType::F32 : dtype_from(dtype);
          return apply(name, fmt::format("{};{};{};{}", n, columns.value_or(n), k, name_of(type)), {},
                       [=](std::span<const Operand>) { return f(n, columns, k, type, std::source_location{}); });
        },
        nb::arg("n"), nb::arg("m") = nb::none(), nb::arg("k") = 0, nb::arg("dtype") = nb::none());
  m.def(
      "meshgrid",
      [](nb::args xs, const std::string& indexing) {
        nb::list grids;
        for (std::size_t i = 0; i < xs.size(); ++i)
          grids.append(apply("meshgrid", fmt::format("{};{}", indexing, i), handles_in(xs), [indexing, i](std::span<const Operand> v) {
            std::vector<Tensor> axes;
            for (const Operand& x : v) axes.push_back(detail::tensor_of(x));
            return onepass::meshgrid(axes, indexing, std::source_location{})[i];
          }));
        return grids;
      },
      nb::arg("xs"), nb::kw_only(), nb::arg("indexing") = "xy");
}

void bind_sources(nb::module_& m) {
  const auto dtype_or = [](nb::handle h, DType otherwise) { return h.is_none() ? otherwise : dtype_from(h); };
  m.def(
      "zeros",
      [=](nb::handle shape, nb::handle dtype) {
        const auto lengths = integers_from(shape, "shape");
        const DType type = dtype_or(dtype, DType::F32);
        return apply("zeros", fmt::format("{};{}", listed(lengths), name_of(type)), {},
                     [=](std::span<const Operand>) { return onepass::zeros(Extents(lengths), type, std::source_location{}); });
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none());
  m.def(
      "ones",
      [=](nb::handle shape, nb::handle dtype) {
        const auto lengths = integers_from(shape, "shape");
        const DType type = dtype_or(dtype, DType::F32);
        return apply("ones", fmt::format("{};{}", listed(lengths), name_of(type)), {},
                     [=](std::span<const Operand>) { return onepass::ones(Extents(lengths), type, std::source_location{}); });
      },
      nb::arg("shape"), nb::arg("dtype") = nb::none());
  m.def(
      "full",
      [](nb::handle shape, nb::handle value, nb::handle dtype) {
        const auto lengths = integers_from(shape, "shape");
        std::optional<DType> type;
        if (!dtype.is_none()) type = dtype_from(dtype);
        return apply("full", fmt::format("{};{}", listed(lengths), type ? name_of(*type) : ""), {value},
                     [=](std::span<const Operand> v) { return onepass::full(Extents(lengths), v[0], type); });
      },
      nb::arg("shape"), nb::arg("value"), nb::arg("dtype") = nb::none());
  m.def(
      "iota",
      [=](nb::handle shape, int axis, nb::handle dtype) {
        const auto lengths = integers_from(shape, "shape");
        const DType type = dtype_or(dtype, DType::I32);
        return apply("iota", fmt::format("{};{};{}", listed(lengths), axis, name_of(type)), {},
                     [=](std::span<const Operand>) { return onepass::iota(Extents(lengths), axis, type, std::source_location{}); });
      },
      nb::arg("shape"), nb::arg("axis") = 0, nb::arg("dtype") = nb::none());
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Operand&, Extents, DType)>{"uniform", &onepass::uniform}, {"normal", &onepass::normal}})
    m.def(
        name,
        [=, name = name, f = f](nb::handle key, nb::handle shape, nb::handle dtype) {
          const auto lengths = integers_from(shape, "shape");
          const DType type = dtype_or(dtype, DType::F32);
          return apply(name, fmt::format("{};{}", listed(lengths), name_of(type)), {key},
                       [=](std::span<const Operand> v) { return f(v[0], Extents(lengths), type); });
        },
        nb::arg("key"), nb::arg("shape"), nb::arg("dtype") = nb::none());
}

}  // namespace

void bind_operators(nb::module_& m) {
  bind_elementwise(m);
  bind_reductions(m);
  bind_views(m);
  bind_indexing(m);
  bind_statistics(m);
  bind_sorting(m);
  bind_writing(m);
  bind_windows(m);
  bind_matrices(m);
  bind_sources(m);
}

}  // namespace onepass::python
