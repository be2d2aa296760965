#include "function.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "onepass/binding.h"

namespace onepass::python {
namespace {

// Returns a random first number, so that numbers from another process are not mistaken for numbers of this process.
std::int64_t first_number() {
  static const std::int64_t first = std::int64_t{std::random_device()()} << 24;
  return first;
}

// Returns the positional parameter names of a Python function. Empty for other callables, which do not expose them.
std::vector<std::string> parameter_names(nb::handle callable) {
  const nb::object code = nb::getattr(callable, "__code__", nb::none());
  if (!PyCode_Check(code.ptr())) return {};
  std::vector<std::string> names;
  const auto count = nb::cast<std::size_t>(code.attr("co_argcount"));
  for (const nb::handle name : code.attr("co_varnames"))
    if (names.size() < count) names.push_back(nb::cast<std::string>(name));
  if (PyMethod_Check(callable.ptr()) && !names.empty()) names.erase(names.begin());  // self
  return names;
}

struct HashNesting {
  std::size_t operator()(const Nesting& n) const { return n.hash(); }
};

}  // namespace

// The shared state. Lives as long as the function or one of its programs. Its Python objects may be accessed only under the interpreter's
// lock.
struct Function::Body {
  nb::object callable;
  std::vector<std::string> static_names;
  std::vector<bool> static_positions;
  nb::dict options;                     // as given
  std::vector<std::string> parameters;  // positional names, if the function has them

  const std::string& parameter(std::size_t position) const {
    static const std::string none;
    return position < parameters.size() ? parameters[position] : none;
  }

  // Nestings of the arguments in calls so far, by number. A signature contains the number, which is meaningless in another process.
  std::unordered_map<Nesting, std::int64_t, HashNesting> numbers;
  std::deque<Nesting> argument_nestings;
  // Nestings of results, by the names of their leaves.
  std::vector<std::pair<std::vector<std::string>, Nesting>> result_nestings;
  bool only_single = true;  // true if each is one array

  std::int64_t number_of(Nesting nesting) {
    if (const auto it = numbers.find(nesting); it != numbers.end()) return it->second;
    const std::int64_t number = first_number() + static_cast<std::int64_t>(argument_nestings.size());
    argument_nestings.push_back(nesting);
    numbers.emplace(std::move(nesting), number);
    return number;
  }
  const Nesting& nesting_at(std::int64_t number) const {
    const auto at = static_cast<std::uint64_t>(number - first_number());
    if (at >= argument_nestings.size())
      throw Error(
          "the signature belongs to another function, or to a call with nested or named arguments in another process. Make such a call "
          "instead");
    return argument_nestings[at];
  }
  void remember(const std::vector<std::string>& names, const Nesting& nesting) {
    only_single &= nesting.is_leaf();
    for (const auto& [known, as] : result_nestings)
      if (known == names) {
        if (as == nesting) return;
        throw ValueError(
            "the function returns values with the same parts but different nesting from call to call, for example with None in different "
            "positions");
      }
    result_nestings.emplace_back(names, nesting);
  }
};

// One call, until its results are rebuilt.
struct Function::Recording {
  bool recorded = false;
  Nesting nesting;  // nesting of the results, if this call recorded the function
  Recording* outer;
  static thread_local Recording* current;
  Recording() : outer(std::exchange(current, this)) {}
  ~Recording() { current = outer; }
};
thread_local Function::Recording* Function::Recording::current = nullptr;

struct Function::Arguments {
  Buffers buffers;
  std::vector<Value> values;  // referred to by `leaves`
  std::vector<detail::CallArgument> leaves;
  std::vector<std::int64_t> structure;
  Nesting nesting;  // Tuple of positions, Dict of names; empty if all are arrays and numbers by position
  bool any_tensor = false, any_dask = false;
};

Function::Function(nb::object callable, const Options& options, std::vector<std::string> static_names)
    : body_(new Body,
            [](Body* body) {  // may run on any thread
              if (!Py_IsInitialized()) return;
              const Locked lock;
              delete body;
            }),
      core_(detail::Shared<void>(detail::Shared<std::shared_ptr<void>>::make(std::shared_ptr<void>(body_)), body_.get()), 0, &record,
            options) {
  if (!PyCallable_Check(callable.ptr()))
    throw nb::type_error(fmt::format("jit: {} is not callable. Pass a function", nb::cast<std::string>(nb::repr(callable.type()))).c_str());
  body_->static_names = std::move(static_names);
  if (!body_->static_names.empty()) {
    const nb::object parameters = nb::module_::import_("inspect").attr("signature")(callable).attr("parameters");
    std::vector<std::string> names;
    for (const nb::handle name : parameters) names.push_back(nb::cast<std::string>(name));
    for (const std::string& name : body_->static_names)
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw ValueError(fmt::format("jit: static: there is no parameter `{}`", name));
    for (const std::string& name : names)
      body_->static_positions.push_back(std::find(body_->static_names.begin(), body_->static_names.end(), name) !=
                                        body_->static_names.end());
  }
  body_->parameters = parameter_names(callable);
  body_->callable = std::move(callable);
}

void Function::keep_options(nb::dict given) { body_->options = std::move(given); }
nb::dict Function::options() const { return body_->options; }
nb::handle Function::callable() const { return body_->callable; }
void Function::forget() { body_->callable.reset(); }

// ---- arguments

// Handles common calls: arrays and numbers by position.
bool Function::plain_arguments(nb::handle args, bool borrow, Arguments& out) const {
  if (!body_->static_names.empty()) return false;
  const auto n = static_cast<std::size_t>(PyTuple_GET_SIZE(args.ptr()));
  out.values.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    Value& v = out.values[i];
    if (!value_from(PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i)), v, borrow ? &out.buffers : nullptr) ||
        v.kind == Value::Kind::None) {
      out = Arguments();
      return false;
    }
    out.any_tensor |= v.kind == Value::Kind::Tensor;
  }
  out.leaves.reserve(n);
  for (const Value& v : out.values) out.leaves.push_back(v.argument());
  return true;
}

Function::Arguments Function::arguments(nb::handle args, nb::handle kwargs, bool borrow) const {
  Arguments out;
  const bool named = kwargs.is_valid() && PyDict_GET_SIZE(kwargs.ptr()) > 0;
  if (!named && borrow && plain_arguments(args, borrow, out)) return out;
  const auto leaf = [&](nb::handle h) {
    Value v;
    if (!value_from(h, v, borrow ? &out.buffers : nullptr) || v.kind == Value::Kind::None) return is_of_dask(h) && (out.any_dask = true);
    out.any_tensor |= v.kind == Value::Kind::Tensor;
    out.values.push_back(std::move(v));
    return true;
  };
  const auto fixed = [](nb::handle h) {
    Nesting n;
    n.kind = Nesting::Kind::Static;
    check_hashable(h, "a static argument");
    n.value = nb::borrow(h);
    return n;
  };
  out.nesting.kind = Nesting::Kind::Tuple;
  std::size_t position = 0;
  bool plain = true;
  for (const nb::handle h : args) {
    const bool is_static = position < body_->static_positions.size() && body_->static_positions[position];
    out.nesting.children.push_back(is_static ? fixed(h) : take_apart(h, leaf, true, "an argument"));
    plain &= out.nesting.children.back().is_leaf();
    ++position;
  }
  if (named) {
    plain = false;
    Nesting by_name;
    by_name.kind = Nesting::Kind::Dict;
    nb::list keys(nb::borrow<nb::dict>(kwargs).keys());
    keys.attr("sort")();
    for (const nb::handle key : keys) {
      by_name.keys.push_back(nb::cast<std::string>(key));
      const nb::handle h = nb::borrow<nb::dict>(kwargs)[key];
      const bool is_static =
          std::find(body_->static_names.begin(), body_->static_names.end(), by_name.keys.back()) != body_->static_names.end();
      by_name.children.push_back(is_static ? fixed(h) : take_apart(h, leaf, true, by_name.keys.back().c_str()));
    }
    out.nesting.children.push_back(std::move(by_name));
    out.nesting.keys.emplace_back("named");  // the last child has the keyword arguments
  }
  for (const Value& v : out.values) out.leaves.push_back(v.argument());
  if (!plain && !out.any_tensor && !out.any_dask) out.structure.push_back(body_->number_of(out.nesting));
  return out;
}

// ---- recording

void Function::record(void* self, detail::TensorReader& in, detail::ResultWriter& out) {
  const Locked lock;
  Body& body = *static_cast<Body*>(self);
  nb::list args;
  nb::dict kwargs;
  std::vector<Tensor> tensors;
  std::vector<std::string> leaf_paths;
  const auto next = [&] {
    tensors.push_back(in.leaf());
    return nb::cast(tensors.back());
  };
  // Rebuilds the call's arguments. Without a structure, they are arrays and numbers by position.
  if (const Nesting* const nesting = in.notes_left() > 0 ? &body.nesting_at(in.note()) : nullptr) {
    const bool named = !nesting->keys.empty();
    const std::size_t positions = nesting->children.size() - (named ? 1 : 0);
    for (std::size_t i = 0; i < positions; ++i) {
      leaf_names(nesting->children[i], body.parameter(i), leaf_paths);
      args.append(put_together(nesting->children[i], next));
    }
    if (named) {
      const Nesting& by_name = nesting->children.back();
      for (std::size_t i = 0; i < by_name.children.size(); ++i) leaf_names(by_name.children[i], by_name.keys[i], leaf_paths);
      kwargs = nb::borrow<nb::dict>(put_together(by_name, next));
    }
  } else {
    while (in.leaves_left() > 0) {
      leaf_paths.push_back(body.parameter(args.size()));
      args.append(next());
    }
  }
  in.finish();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!leaf_paths[i].empty()) detail::name_argument(tensors[i], leaf_paths[i]);

  const nb::object result = body.callable(*args, **kwargs);

  std::vector<Tensor> leaves;
  const Nesting nesting = take_apart(
      result,
      [&](nb::handle h) {
        Value v;
        if (!value_from(h, v)) return false;
        leaves.push_back(detail::tensor_of(v.operand()));
        return true;
      },
      false, "the result");
  if (leaves.empty()) throw nb::type_error("the function returns nothing. Return a Tensor, or a tuple, list, dict or dataclass of Tensors");
  std::size_t at = 0;
  write(nesting, leaves, at, out);
  body.remember(out.names(), nesting);
  if (Recording* const call = Recording::current) {
    call->recorded = true;
    call->nesting = nesting;
  }
}

void Function::write(const Nesting& n, std::span<const Tensor> leaves, std::size_t& at, detail::ResultWriter& out) {
  if (n.is_leaf()) return out.leaf(leaves[at++]);
  for (std::size_t i = 0; i < n.children.size(); ++i) {
    if (!n.keys.empty()) out.enter(n.keys[i]);
    else out.enter(i, n.kind == Nesting::Kind::List);
    write(n.children[i], leaves, at, out);
    out.leave();
  }
}

// ---- calls

nb::object Function::inline_call(nb::handle args, nb::handle kwargs) const {
  const detail::Inlining scope(core_);
  return nb::steal(PyObject_Call(body_->callable.ptr(), args.ptr(), kwargs.is_valid() ? kwargs.ptr() : nullptr));
}

nb::object Function::results(const Recording& recording, detail::ResultReader&& in, Nesting* nesting_out) const {
  std::vector<Array> arrays = std::move(in).arrays();
  if (!recording.recorded && body_->only_single && !nesting_out) return nb::cast(std::move(arrays.front()));
  const Nesting* nesting = nullptr;
  if (recording.recorded) nesting = &recording.nesting;
  else
    for (const auto& [known, as] : body_->result_nestings)
      if (known == in.names()) nesting = &as;
  if (nesting_out) *nesting_out = nesting ? *nesting : Nesting();
  if (!nesting || nesting->is_leaf()) return nb::cast(std::move(arrays.at(0)));
  std::size_t next = 0;
  return put_together(*nesting, [&] { return nb::cast(std::move(arrays.at(next++))); });
}

nb::object Function::call(nb::args args, nb::kwargs kwargs) const {
  nb::object targets = nb::none();
  if (PyDict_GET_SIZE(kwargs.ptr()) > 0 && kwargs.contains("out")) {
    targets = nb::borrow(kwargs["out"]);
    nb::dict rest;
    for (const auto& [key, value] : kwargs)
      if (nb::cast<std::string>(key) != "out") rest[key] = value;
    kwargs = nb::borrow<nb::kwargs>(rest);
  }
  const Arguments given = arguments(args, kwargs, true);
  if (given.any_dask) return nb::module_::import_("onepass.dask.arrays").attr("call")(nb::find(*this), args, kwargs, targets);
  if (given.any_tensor) {
    if (!targets.is_none())
      throw ValueError("out: a function that is being recorded cannot write to destinations. Use the results that it returns");
    nb::object result = inline_call(args, kwargs);
    if (!result.is_valid()) throw nb::python_error();
    return result;
  }
  if (!targets.is_none()) {
    std::vector<Array> arrays;
    std::vector<bool> wanted;
    static_cast<void>(take_apart(
        targets, [&](nb::handle h) { return arrays.push_back(array_from(h, "out")), true; }, false, "out"));
    std::vector<Array*> pointers;
    for (Array& a : arrays) pointers.push_back(&a);
    const Unlocked unlocked;
    core_.call_into(given.leaves, given.structure, pointers);
    return targets;
  }
  const Recording recording;
  detail::ResultReader results;
  const bool named = !body_->only_single || body_->result_nestings.empty();
  {
    const Unlocked unlocked;
    core_.call(given.leaves, given.structure, named, results);
  }
  return this->results(recording, std::move(results));
}

namespace {

[[noreturn]] void fail_dask(const char* name) {
  throw nb::type_error(fmt::format("{}: the elements of Dask arrays are not available here. Call compute() to get them", name).c_str());
}

}  // namespace

Comparison Function::compare(nb::args args, nb::kwargs kwargs) const {
  const Arguments given = arguments(args, kwargs, true);
  if (given.any_dask) fail_dask("compare");
  const Unlocked unlocked;
  return core_.compare(given.leaves, given.structure);
}

GradientCheck Function::check_gradients(nb::args args) const {
  const Arguments given = arguments(args, nb::handle(), true);
  if (given.any_dask) fail_dask("check_gradients");
  const Unlocked unlocked;
  return core_.check_gradients(given.leaves, given.structure);
}

// ---- derivatives of calls: forward call now, backward call later

namespace {

// The pullback that vjp returns with the results.
class Pullback {
 public:
  Pullback(detail::PullbackCore core, Nesting results, Nesting arguments)
      : core_(std::move(core)), results_(std::move(results)), arguments_(std::move(arguments)) {}

  nb::object operator()(nb::args cotangents) const {
    const nb::object all = cotangents.size() == 1 ? nb::borrow(cotangents[0]) : nb::object(cotangents);
    std::deque<Value> values;
    const Nesting given = take_apart(
        all,
        [&](nb::handle h) {
          Value v;
          if (!value_from(h, v) || v.kind == Value::Kind::Tensor) return false;
          return values.push_back(std::move(v)), true;
        },
        false, "a cotangent");
    if (given != results_) throw ValueError("pullback: the nesting of the cotangents must match the nesting of the results");
    std::vector<detail::CallArgument> leaves;
    for (const Value& v : values) leaves.push_back(v.argument());
    std::vector<Array> gradients;
    {
      const Unlocked unlocked;
      gradients = core_(leaves);
    }
    std::size_t next = 0;
    const nb::object out = put_together(arguments_, [&]() -> nb::object {
      Array& g = gradients.at(next++);
      return g.has_memory() ? nb::cast(std::move(g)) : nb::none();
    });
    return arguments_.children.size() == 1 ? nb::object(out[nb::int_(0)]) : out;
  }
  void reset() { core_.reset(); }
  PullbackStats stats() const { return core_.stats(); }
  ExecutionRecord last_execution(Detail detail) const { return core_.last_execution(detail); }

 private:
  detail::PullbackCore core_;
  Nesting results_, arguments_;
};

}  // namespace

nb::object Function::vjp(nb::args args) const {
  const Arguments given = arguments(args, nb::handle(), false);
  if (given.any_dask) fail_dask("vjp");
  if (given.any_tensor) throw nb::type_error("vjp: Tensors require onepass.vjp, inside a recorded function");
  const Recording recording;
  detail::ResultReader results;
  std::optional<detail::PullbackCore> core;
  {
    const Unlocked unlocked;
    core = core_.vjp(given.leaves, given.structure, true, results);
  }
  Nesting nesting;
  const nb::object value = this->results(recording, std::move(results), &nesting);
  return nb::make_tuple(value, nb::cast(Pullback(std::move(*core), std::move(nesting), given.nesting)));
}

// ---- options

namespace {

// Returns an option's value in the format of detail::set_option.
std::string option_text(nb::handle value, bool relax) {
  if (PyBool_Check(value.ptr())) return relax ? (value.ptr() == Py_True ? "all" : "none") : (value.ptr() == Py_True ? "true" : "false");
  if (!relax || PyUnicode_Check(value.ptr())) return nb::cast<std::string>(nb::str(value));
  std::string names;
  for (const nb::handle name : value) names += fmt::format("{}{}", names.empty() ? "" : ",", nb::cast<std::string>(nb::str(name)));
  return names;
}

}  // namespace

Options options_from(nb::handle given) {
  Options o;
  o.check_recording = false;
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "should_stop")
      o.should_stop = [ask = Keeper(nb::borrow(value))] {
        const Locked lock;
        return nb::cast<bool>(nb::borrow(ask.get())());
      };
    else detail::set_option(o, name, option_text(value, name == "relax"));
  }
  return o;
}

// ---- the class

namespace {

// Visits the callable for the garbage collector, because a function and its callable may refer to each other.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(nb::handle(self))) return 0;
  const nb::handle callable = nb::inst_ptr<Function>(nb::handle(self))->callable();
  Py_VISIT(callable.ptr());
  return 0;
}
int clear(PyObject* self) {
  nb::inst_ptr<Function>(nb::handle(self))->forget();
  return 0;
}
PyType_Slot function_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

nb::dict dict_of(const Stats& s) {
  nb::dict d;
// clang-format off
#define FIELD(name) d[#name] = s.name;
  FIELD(calls) FIELD(recordings) FIELD(analysed) FIELD(fallbacks) FIELD(kernels) FIELD(launches) FIELD(compiles) FIELD(optimised)
  FIELD(specialized) FIELD(hot_shapes) FIELD(dropped) FIELD(plans) FIELD(forgotten) FIELD(cache_hits) FIELD(bytes_read)
  FIELD(bytes_written) FIELD(bytes_allocated) FIELD(ms_compiling) FIELD(ms_lost) FIELD(bytes_uploaded) FIELD(bytes_downloaded)
#undef FIELD
      // clang-format on
      return d;
}

void bind_functions(nb::module_& m) {
  nb::class_<Pullback> p(m, "Pullback",
                         "The derivative of one call. Call it with a cotangent of the results to get the gradient of each argument.");
  p.def("__call__", &Pullback::operator());
  p.def("reset", &Pullback::reset, "Frees the saved values.");
  p.def(
      "last_execution",
      [](const Pullback& self, bool code) {
        const Unlocked unlocked;
        return self.last_execution(code ? Detail::code : Detail::plan);
      },
      nb::arg("code") = false, "Returns the record of the forward call, with the record of the backward call.");
  p.def("stats", [](const Pullback& self) {
    const PullbackStats s = self.stats();
    nb::dict d;
    d["bytes_saved"] = s.bytes_saved;
    d["bytes_unfused"] = s.bytes_unfused;
    nb::list values;
    for (const PullbackStats::Value& v : s.values) {
      nb::dict one;
      one["value"] = v.value, one["bytes"] = v.bytes, one["referenced"] = v.referenced, one["why"] = v.why;
      values.append(one);
    }
    d["values"] = values;
    return d;
  });

  nb::class_<Function> c(m, "Function", nb::type_slots(function_slots), nb::is_weak_referenceable(),
                         "A compiled function. A call with arrays and numbers runs it; a call with Tensors records it into its caller.");
  c.def(
      "__init__",
      [](Function* self, nb::object callable, nb::handle static_names, nb::kwargs options) {
        std::vector<std::string> names;
        if (PyUnicode_Check(static_names.ptr())) names.push_back(nb::cast<std::string>(static_names));
        else if (!static_names.is_none())
          for (const nb::handle name : static_names) names.push_back(nb::cast<std::string>(name));
        new (self) Function(std::move(callable), options_from(options), std::move(names));
        self->keep_options(nb::borrow<nb::dict>(options));
      },
      nb::arg("function"), nb::arg("static") = nb::none(), nb::arg("options"));
  c.def("__call__", &Function::call);
  c.def(
      "__get__",
      [](nb::handle self, nb::handle instance, nb::handle) {
        return instance.is_none() ? nb::borrow(self) : nb::steal(PyMethod_New(self.ptr(), instance.ptr()));
      },
      nb::arg().none(), nb::arg() = nb::none());
  c.def_prop_ro("_options", &Function::options);
  c.def_prop_ro("__wrapped__", [](const Function& f) { return nb::borrow(f.callable()); });
  c.def("__repr__", [](const Function& f) {
    return fmt::format("<onepass function {}>", nb::cast<std::string>(nb::str(nb::getattr(f.callable(), "__qualname__", nb::str("")))));
  });
  c.def("vjp", &Function::vjp, "Returns the results of a call, and a pullback that computes their derivatives: `y, pullback = f.vjp(x)`.");
  c.def("check_gradients", [](const Function& f, nb::args args) {
    const GradientCheck check = f.check_gradients(args);
    return nb::make_tuple(check.ok, check.worst, check.text);
  });
  c.def(
      "compare", [](const Function& f, nb::args args, nb::kwargs kwargs) { return f.compare(args, kwargs).text; },
      "Runs the call fused and unfused, and reports whether all bits agree, or the first operator that differs.");
  const auto def_text = [&](const char* name, auto f, const char* doc) {
    c.def(
        name,
        [f](const Function& self) {
          const Unlocked unlocked;
          return f(self.core());
        },
        doc);
  };
  def_text(
      "last_graph", [](const detail::FunctionCore& f) { return f.last_graph(); },
      "Returns the optimized graph of the last call, in its printed form.");
  def_text(
      "recorded_graph", [](const detail::FunctionCore& f) { return f.recorded_graph().text(); },
      "Returns the graph of the last call as it was recorded.");
  def_text(
      "explain", [](const detail::FunctionCore& f) { return f.explain(); },
      "Describes each kernel of the last call: the values that it stores, and the reason why it ends there.");
  c.def(
      "describe",
      [](const Function& self, const std::string& signature, bool code) {
        const Unlocked unlocked;
        return self.core().describe(signature, code ? Detail::code : Detail::plan);
      },
      nb::arg("signature"), nb::arg("code") = false,
      "Returns the record of a call with this signature, without making the call: f.describe('f32[64,256]').");
  c.def(
      "last_execution",
      [](const Function& self, bool code) {
        const Unlocked unlocked;
        return self.core().last_execution(code ? Detail::code : Detail::plan);
      },
      nb::arg("code") = false,
      "Returns the record of the last call: its kernels and the reasons for them; with `code`, also LLVM IR, assembly and CUDA text.");
  def_text(
      "signatures", [](const detail::FunctionCore& f) { return f.signatures(); }, "Returns the signatures of the remembered calls.");
  def_text(
      "seal", [](const detail::FunctionCore& f) { f.seal(); }, "Makes later calls that need a compilation raise an Error.");
  def_text(
      "reset", [](const detail::FunctionCore& f) { f.reset(); }, "Forgets all signatures, so that the function is recorded again.");
  c.def(
      "stats",
      [](const Function& self) {
        Stats s;
        {
          const Unlocked unlocked;
          s = self.core().stats();
        }
        return dict_of(s);
      },
      "Returns the counters of the function (docs/runtime.md).");
  c.def(
      "warm_up",
      [](const Function& self, nb::args texts) {
        for (const nb::handle text : texts) {
          const std::string signature = signature_text(text);
          const Unlocked unlocked;
          self.core().warm_up(signature, Tier::optimized);
        }
      },
      "Compiles the kernels that calls of these signatures need: f.warm_up('f32[64,256] f32[256]').");
  c.def(
      "wait_until_optimized",
      [](const Function& self, double seconds) {
        const Unlocked unlocked;
        return self.core().wait_until_optimized(seconds < 0 ? -1 : static_cast<std::int64_t>(seconds * 1e9));
      },
      nb::arg("seconds") = -1.0);
}

}  // namespace onepass::python
