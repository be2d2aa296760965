// Implementation of the templates in onepass/gradient.h. In a recording, uses the recorder's derivatives. For calls with Arrays, makes
// two programs, forward and backward, with the residuals that compiler/save selects.
#include "onepass/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compiler/save.h"
#include "compiler/simplify.h"
#include "onepass/error.h"
#include "runtime/call_arguments.h"
#include "runtime/gradient.h"
#include "runtime/recording.h"
#include "runtime/signature_text.h"

namespace onepass {
namespace detail {

using compiler::Value;
using runtime::Recording;

namespace {

std::vector<Value> values_of(const Recording& r, TensorSpan tensors) {
  std::vector<Value> values;
  for (const Tensor t : tensors) values.push_back(r.of(t));
  return values;
}

std::vector<Tensor> tensors_of(Recording& r, std::span<const Value> values) {
  std::vector<Tensor> tensors;
  for (const Value& v : values) tensors.push_back(r.tensor(v));
  return tensors;
}

// Returns the current recording. Derivative nodes inherit the source lines of their forward nodes; all other nodes have none.
Recording& recording(std::string_view what) {
  Recording& r = Recording::current(what);
  r.at(std::source_location());
  return r;
}

void put(Recording& r, const std::vector<Value>& values, Tensor* to) {
  for (const Value& v : values) *to++ = r.tensor(v);
}

}  // namespace

void vjp_all(TensorSpan ys, TensorSpan dys, TensorSpan xs, Tensor* dxs) {
  Recording& r = recording("vjp");
  put(r, r.recorder.vjp(values_of(r, ys), values_of(r, xs), values_of(r, dys)), dxs);
}

void jvp_all(TensorSpan ys, TensorSpan xs, TensorSpan dxs, Tensor* dys) {
  Recording& r = recording("jvp");
  put(r, r.recorder.jvp(values_of(r, ys), values_of(r, xs), values_of(r, dxs)), dys);
}

void gradients(const char* name, Tensor loss, TensorSpan xs, Tensor* dxs) {
  Recording& r = recording(name);
  put(r, r.recorder.grad(r.of(loss), values_of(r, xs), name), dxs);
}

Tensor jacobian_of(Tensor y, Tensor x, JacobianBy by) {
  using By = compiler::Recorder::JacobianBy;
  static constexpr By kBy[] = {By::Fewer, By::Rows, By::Columns};
  Recording& r = recording("jacobian");
  return r.tensor(r.recorder.jacobian(r.of(y), r.of(x), kBy[static_cast<int>(by)]));
}

void set_derivative(TensorSpan arguments, std::span<Tensor> results, Backward backward) {
  Recording& r = recording("custom_vjp");
  auto recorded = [&r, backward = std::move(backward)](std::span<const Value> xs, std::span<const Value> ys, std::span<const Value> dys) {
    const std::vector<Tensor> gradients = backward(tensors_of(r, xs), tensors_of(r, ys), tensors_of(r, dys));
    return values_of(r, gradients);
  };
  put(r, r.recorder.with_derivative(values_of(r, arguments), values_of(r, results), std::move(recorded)), results.data());
}

void map_elements(TensorSpan xs, std::span<const int> axes, Tensor* elements, Tensor* all) {
  Recording& r = recording("vmap");
  std::vector<std::optional<std::int64_t>> given;
  for (const int axis : axes) given.push_back(axis == kNotMapped ? std::nullopt : std::optional<std::int64_t>(axis));
  std::vector<Value> in_front;
  put(r, r.recorder.map_elements(values_of(r, xs), given, in_front), elements);
  put(r, in_front, all);
}

void fail_map_axes(std::size_t axes, std::size_t arguments) {
  throw ShapeError(fmt::format("vmap: {} axes given for {} argument{}. Pass one axis for each argument, or one axis for all.", axes,
                               arguments, arguments == 1 ? "" : "s"));
}

void mapped(TensorSpan ys, TensorSpan elements, TensorSpan all, Tensor* results) {
  Recording& r = recording("vmap");
  put(r, r.recorder.mapped(values_of(r, ys), values_of(r, elements), values_of(r, all)), results);
}

std::uint32_t recorded_nodes() { return Recording::current("checkpoint").recorder.graph.size(); }

void compute_again(std::uint32_t first, std::span<Tensor> results) {
  Recording& r = recording("checkpoint");
  put(r, r.recorder.computed_again(first, values_of(r, results)), results.data());
}

}  // namespace detail

namespace runtime {

using compiler::Recorder;
using compiler::Value;
using ir::Graph;
using ir::NodeId;
using ir::Op;

// ------------------------------------------------------------------------------------------------ separate forward and backward calls

namespace {

/// The backward half of a recording. Its arguments are the cotangents, then the kept arrays, then the numbers.
struct Recipe final : Attachment {
  Graph joint;  // forward and backward; its outputs are the gradients
  struct Result {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::string name;
    bool differentiable;
  };
  std::vector<Result> results;
  std::vector<NodeId> cotangents;         // one for each differentiable result; kNoNode if no gradient needs it
  std::vector<std::int32_t> gradient_of;  // for each argument: output index in the joint graph, or -1

  struct Kept {
    enum class From : std::uint8_t { Argument, Captured, Result, Saved } from;
    std::size_t index;
    NodeId node;
  };
  std::vector<Kept> kept;
  std::vector<std::uint32_t> numbers;                       // scalar parameters that each forward call sets
  std::vector<std::string> argument_names, gradient_names;  // names for the backward call, and for its results
  std::vector<bool> computes;                               // one flag for each node
  PullbackStats stats;
  Options options;

  std::once_flag once;
  std::unique_ptr<Program> program;

  void record(ProgramRecorder& recorder, std::span<const Value> values) const;
  Program& backward();
  void name(const Graph& forward, const std::vector<std::string>& names);
  void add_to(ExecutionRecord& record, const PlanData& forward, Detail detail) const override;
};

// Converts a number of a forward call to an argument of the backward call.
compiler::Literal literal_of(DType type, std::uint64_t bits) {
  using Kind = compiler::Literal::Kind;
  if (is_float(type)) return {.kind = Kind::Float, .real = ir::double_of(type, bits)};
  if (type == DType::Bool) return {.kind = Kind::Bool, .integer = bits != 0};
  return {.kind = type == DType::U64 ? Kind::UInt : Kind::Int,
          .integer = size_of(type) == 8 ? static_cast<std::int64_t>(bits) : static_cast<std::int64_t>(ir::double_of(type, bits))};
}

// Names the arguments and results of the backward call. Results and kept values keep their forward names; the cotangent of `y` is `dy`,
// the gradient by `x` is `dx`. `names`: of the differentiable arguments.
void Recipe::name(const Graph& forward, const std::vector<std::string>& names) {
  const auto add = [&](std::string name) {
    while (std::ranges::find(argument_names, name) != argument_names.end()) name += '_';
    argument_names.push_back(std::move(name));
  };
  std::vector<std::string> kept_names;
  for (const Kept& k : kept) {
    const bool is_input = k.from == Kept::From::Argument || k.from == Kept::From::Captured;
    kept_names.push_back(is_input ? forward.inputs[joint[k.node].bits].name : forward.output_names[k.index]);
  }
  for (const Result& result : results)
    if (result.differentiable) add("d" + result.name);
  for (std::string& name : argument_names)
    while (std::ranges::find(kept_names, name) != kept_names.end()) name += '_';  // kept values have precedence
  for (std::string& name : kept_names) argument_names.push_back(std::move(name));
  for (const std::uint32_t slot : numbers) add(fmt::format("number{}", slot));
  for (const std::string& name : names) gradient_names.push_back("d" + name);
}

// Adds the record of the last backward call or, if there was no backward call, of a planned call.
void Recipe::add_to(ExecutionRecord& record, const PlanData& forward, Detail detail) const {
  Program& program = const_cast<Recipe*>(this)->backward();
  ExecutionRecord backward = program.last_execution(detail);
  if (!backward.called) {
    CallSignature call;
    const auto add = [&](DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
      call.arguments.push_back({.type = {dtype, {shape.begin(), shape.end()}, {strides.begin(), strides.end()}}});
    };
    const auto add_array = [&](const ArrayPlan& a) { add(a.dtype, a.shape, a.strides); };
    for (const Result& result : results)
      if (result.differentiable) add(result.dtype, result.shape, {});
    for (const Kept& k : kept) switch (k.from) {
        case Kept::From::Argument:
          add_array(forward.inputs[static_cast<std::size_t>(std::ranges::find(forward.argument_of, static_cast<std::uint32_t>(k.index)) -
                                                            forward.argument_of.begin())]);
          break;
        case Kept::From::Captured: add_array(forward.inputs[forward.argument_of.size() + k.index]); break;
        case Kept::From::Result: add(results[k.index].dtype, results[k.index].shape, {}); break;
        case Kept::From::Saved: add_array(forward.outputs[k.index]); break;
      }
    for (const std::uint32_t slot : numbers)
      call.arguments.push_back({.is_number = true, .number = literal_of(joint.slots[slot].dtype, joint.slots[slot].bits)});
    backward = program.describe(call, detail);
  }
  // Explains the residuals among the forward call's outputs.
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].from != Kept::From::Saved) continue;
    const std::string& name = record.outputs[kept[i].index].name;
    for (ExecutionRecord::Kernel& kernel : record.kernels)
      for (ExecutionRecord::Stored& stored : kernel.stores) {
        if (std::ranges::find(stored.outputs, name) == stored.outputs.end()) continue;
        stored.sentence = fmt::format("It is saved for the backward call: {}.", stats.values[i].why);
        stored.remedy = "Set Options::memory_budget to limit the saved bytes; the backward call recomputes the other values.";
      }
  }
  record.backward.push_back(std::move(backward));
}

Program& Recipe::backward() {
  std::call_once(once, [&] {
    program = std::make_unique<Program>([this](ProgramRecorder& recorder, std::span<const Value> values) { record(recorder, values); },
                                        argument_names, options);
  });
  return *program;
}

void Recipe::record(ProgramRecorder& recorder, std::span<const Value> values) const {
  Graph& out = recorder.graph;
  out.sources = joint.sources;
  std::vector<NodeId> now(joint.size(), ir::kNoNode);
  std::size_t next = 0;
  for (const NodeId cotangent : cotangents) {
    const Value given = values[next++];
    if (cotangent == ir::kNoNode) continue;
    const DType type = joint[cotangent].dtype;
    const NodeId node = recorder.node_of(given, type).node;
    now[cotangent] = out[node].dtype == type ? node : recorder.cast(Value{false, node, {}}, type).node;
  }
  for (const Kept& k : kept) {
    const NodeId given = now[k.node] = values[next++].node;
    const DType type = joint[k.node].dtype;
    if (out[given].dtype != type) now[k.node] = out.add(Op::Identity, type, out[given].shape, {given});  // a half, kept unrounded
  }
  std::vector<std::uint32_t> slot_of(joint.slots.size(), ~std::uint32_t{0});
  std::vector<std::optional<Value>> number_of(joint.slots.size());
  for (const std::uint32_t slot : numbers) number_of[slot] = values[next++];
  std::vector<std::int64_t> operands;
  for (NodeId id = 0; id < joint.size(); ++id) {
    if (!computes[id] || now[id] != ir::kNoNode) continue;
    ir::Node node = joint[id];
    out.current_source = joint.source_of[id];
    out.current_origin = joint.origin_of[id] == ir::kNoNode ? ir::kNoNode : now[joint.origin_of[id]];
    const ir::ListId shape = out.intern(joint.shape(id));
    if (node.op == Op::Slot) {
      const ir::List extents = out.list(shape);
      if (const auto& number = number_of[node.bits]) {
        now[id] = recorder.full({extents.begin(), extents.end()}, *number, node.dtype).node;
        continue;
      }
      std::uint32_t& slot = slot_of[node.bits];
      if (slot == ~std::uint32_t{0}) {
        slot = static_cast<std::uint32_t>(out.slots.size());
        now[id] = out.add_slot(node.dtype, joint.slots[node.bits].bits, shape);
      } else {
        now[id] = out.slot_node(slot, shape);
      }
      continue;
    }
    operands.clear();
    for (const std::int64_t o : joint.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.shape = shape;
    node.operands = out.intern(operands);
    node.attributes = out.intern(joint.attributes(id));
    now[id] = out.add(node);
  }
  out.current_source = 0;
  out.current_origin = ir::kNoNode;
  for (std::size_t k = 0; k < joint.outputs.size(); ++k) recorder.output(gradient_names[k], Value{false, now[joint.outputs[k]], {}});
}

std::string text_of(const Graph& graph, NodeId id) {
  const std::string& source = graph.sources[graph.source_of[id]];
  const ir::Node node = graph[id];
  const std::string_view name = node.op == Op::Input ? std::string_view(graph.inputs[node.bits].name) : ir::info(node.op).text;
  return fmt::format("{} {}{}{}", name, compiler::type_text(node.dtype, graph.shape(id)), source.empty() ? "" : ", recorded at ", source);
}

}  // namespace

void add_pullback(ProgramRecorder& recorder, std::span<const Value> arguments, const Options& options) {
  auto recipe = std::make_shared<Recipe>();
  recipe->options = options;
  recipe->options.check_recording = false;  // the recorded backward graph is fixed
  Graph& graph = recorder.graph;
  std::vector<Value> ys, xs, us;
  std::vector<NodeId> y_nodes;
  std::vector<std::string> differentiable;  // names of arguments
  for (const Value& x : arguments) {
    const bool takes = !x.is_literal && is_float(recorder.dtype(x));
    recipe->gradient_of.push_back(takes ? static_cast<std::int32_t>(xs.size()) : -1);
    if (!takes) continue;
    xs.push_back(x);
    differentiable.push_back(graph.inputs[graph[x.node].bits].name);
  }
  for (std::size_t k = 0; k < graph.outputs.size(); ++k) {
    const NodeId y = graph.outputs[k];
    const ir::List shape = graph.shape(y);
    recipe->results.push_back({graph[y].dtype, {shape.begin(), shape.end()}, graph.output_names[k], is_float(graph[y].dtype)});
    if (!is_float(graph[y].dtype)) continue;
    ys.push_back(Value{false, y, {}});
    y_nodes.push_back(y);
  }
  if (xs.empty())
    throw DTypeError("vjp: no argument is an Array of a float type; integers, bool and numbers have no derivative. Pass a float Array");
  if (ys.empty()) throw DTypeError("vjp: no result is of a float type; integers and bool have no derivative");
  const std::size_t first_slot = graph.slots.size();
  for (const NodeId u : recorder.placeholders(y_nodes)) us.push_back(Value{false, u, {}});
  const std::vector<Value> gradients = recorder.vjp(ys, xs, us);

  // Builds one simplified graph with the results and then the gradients as outputs.
  const std::vector<std::string> names = graph.output_names;
  const std::size_t results = names.size();
  Graph joint = graph;
  for (const Value& g : gradients) joint.outputs.push_back(g.node), joint.output_names.push_back("");
  joint = ir::prune(compiler::simplify(ir::prune(joint)));
  const std::vector<NodeId> of_results(joint.outputs.begin(), joint.outputs.begin() + static_cast<std::ptrdiff_t>(results));
  recipe->cotangents.assign(us.size(), ir::kNoNode);
  for (NodeId id = 0; id < joint.size(); ++id) {
    if (joint[id].op != Op::Identity) continue;
    const ir::Node slot = joint[joint.operand(id, 0)];
    if (slot.op == Op::Slot && slot.bits >= first_slot && slot.bits < first_slot + us.size())
      recipe->cotangents[slot.bits - first_slot] = id;
  }
  joint.outputs.erase(joint.outputs.begin(), joint.outputs.begin() + static_cast<std::ptrdiff_t>(results));
  joint.output_names.assign(joint.outputs.size(), "");
  const compiler::SavePlan plan = compiler::choose_saved(joint, recipe->cotangents, of_results, joint.outputs, options.memory_budget);

  // Builds the forward half: its outputs are the results and the residuals.
  const std::size_t first_captured = joint.inputs.size() - recorder.captured.size();
  graph = joint;
  graph.outputs = of_results;
  graph.output_names = names;
  std::size_t saved = 0;
  for (const compiler::SavedValue& v : plan.values) {
    using From = Recipe::Kept::From;
    const ir::Node node = joint[v.node];
    const auto result = std::ranges::find(of_results, v.node);
    if (node.op == Op::Input) {
      const std::size_t input = node.bits;
      if (input >= first_captured) {
        recipe->kept.push_back({From::Captured, input - first_captured, v.node});
      } else {  // array arguments are the first inputs, in order
        std::size_t argument = 0;
        for (std::size_t arrays = 0; arguments[argument].is_literal || arrays++ < input;) ++argument;
        recipe->kept.push_back({From::Argument, argument, v.node});
      }
    } else if (v.referenced) {
      recipe->kept.push_back({From::Result, static_cast<std::size_t>(result - of_results.begin()), v.node});
    } else {
      recipe->kept.push_back({From::Saved, results + saved, v.node});
      const bool as_it_is = compiler::is_saved_as_it_is(joint, v.node);
      graph.outputs.push_back(as_it_is ? v.node : graph.add(Op::Identity, DType::F32, node.shape, {v.node}));
      graph.output_names.push_back(fmt::format("saved{}", saved++));
    }
    recipe->stats.values.push_back({text_of(joint, v.node), v.bytes, v.referenced, v.why});
  }
  recipe->stats.bytes_saved = plan.bytes;
  recipe->stats.bytes_unfused = plan.unfused_bytes;
  recipe->computes = plan.in_backward;
  for (NodeId id = 0; id < joint.size(); ++id) {
    if (!plan.in_backward[id] || joint[id].op != Op::Slot) continue;
    const auto slot = static_cast<std::uint32_t>(joint[id].bits);
    if (recorder.numbers.fills(slot) && std::ranges::find(recipe->numbers, slot) == recipe->numbers.end()) recipe->numbers.push_back(slot);
  }
  recipe->joint = std::move(joint);
  recipe->name(graph, differentiable);
  recorder.attachment = std::move(recipe);
}

}  // namespace runtime

// ------------------------------------------------------------------------------------------------ gradient check

void runtime::add_both_products(ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options&) {
  using compiler::Value;
  ir::Graph& graph = recorder.graph;
  const auto shape_of = [&](const Value& v) { return compiler::Shape(recorder.shape(v).begin(), recorder.shape(v).end()); };
  std::int64_t key = 1;
  const auto random_like = [&](const Value& v) { return recorder.normal(recorder.literal(key++), shape_of(v), DType::F64); };
  std::vector<Value> xs, ys, us, vs;
  for (const Value& x : arguments)
    if (!x.is_literal && is_float(recorder.dtype(x))) xs.push_back(x), vs.push_back(random_like(x));
  for (const ir::NodeId y : graph.outputs)
    if (is_float(graph[y].dtype)) ys.push_back(Value{false, y, {}}), us.push_back(random_like(ys.back()));
  if (xs.empty())
    throw DTypeError(
        "check_gradients: no argument is an Array of a float type; integers, bool and numbers have no derivative. Pass a float Array");
  if (ys.empty()) throw DTypeError("check_gradients: no result is of a float type; integers and bool have no derivative");
  const std::vector<Value> reverse = recorder.vjp(ys, xs, us, "check_gradients"), forward = recorder.jvp(ys, xs, vs, "check_gradients");
  graph.outputs.clear();
  graph.output_names.clear();
  for (std::size_t k = 0; k < ys.size(); ++k)
    recorder.output(fmt::format("u{}", k), us[k]), recorder.output(fmt::format("Jv{}", k), forward[k]);
  for (std::size_t i = 0; i < xs.size(); ++i)
    recorder.output(fmt::format("v{}", i), vs[i]), recorder.output(fmt::format("JTu{}", i), reverse[i]);
}

namespace {

double product(const Array& a, const Array& b, double* size = nullptr) {
  double sum = 0;
  const auto x = a.span<const double>(), y = b.span<const double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * y[i];
    if (size) *size += std::fabs(x[i] * y[i]);
  }
  return sum;
}

}  // namespace

GradientCheck runtime::check_gradients(Program& values, Program& derivatives, std::span<const Argument> arguments) {
  constexpr std::int64_t kMostElements = 64;  // elements of one argument, evenly distributed
  constexpr double kTolerance = 1e-5;
  // Contiguous f64 copies, because the differences modify them.
  std::vector<Argument> given(arguments.begin(), arguments.end());
  std::vector<Array> wide(arguments.size());
  std::vector<std::size_t> differentiable;
  const auto widened = compile([](Tensor x) { return x.cast(DType::F64); });
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].array || !is_float(given[i].array->dtype())) continue;
    wide[i] = widened(*given[i].array);
    given[i].array = &wide[i];
    differentiable.push_back(i);
  }
  const std::vector<Array> both = derivatives.call(given);
  const std::size_t results = both.size() / 2 - differentiable.size();
  // Returns u·y for the differentiable results; `size` gets the magnitude of its terms.
  const auto at_now = [&](double* size) {
    std::vector<Array> all = values.call(given);
    double sum = 0;
    std::size_t k = 0;
    for (const Array& y : all) {
      if (!is_float(y.dtype())) continue;
      sum += product(both[2 * k], y.dtype() == DType::F64 ? y : widened(y), size);
      ++k;
    }
    return sum;
  };
  double size = 1;
  static_cast<void>(at_now(&size));

  GradientCheck check{true, 0, {}};
  const auto compare = [&](double computed, double expected, double scale, auto&& what) {
    const double error = std::fabs(computed - expected) / std::max({std::fabs(computed), std::fabs(expected), scale});
    if (!(error <= check.worst) || std::isnan(error)) {
      check.worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      if (!(error <= kTolerance)) check.ok = false, check.text = what();
    }
  };
  double forward = 0, reverse = 0;
  for (std::size_t k = 0; k < results; ++k) forward += product(both[2 * k], both[2 * k + 1]);
  for (std::size_t i = 0; i < differentiable.size(); ++i) reverse += product(both[2 * (results + i)], both[2 * (results + i) + 1]);
  compare(forward, reverse, 1e-3 * size, [&] {
    return fmt::format("forward and reverse mode differ: u·Jv is {} in forward mode and {} in reverse mode", forward, reverse);
  });
  std::int64_t checked = 0;
  for (std::size_t i = 0; i < differentiable.size(); ++i) {
    Array& x = wide[differentiable[i]];
    const Array& gradient = both[2 * (results + i) + 1];
    const std::span<double> elements = x.span<double>();
    const std::int64_t n = x.size(), step = std::max<std::int64_t>(1, (n + kMostElements - 1) / kMostElements);
    for (std::int64_t e = 0; e < n; e += step, ++checked) {
      double& element = elements[static_cast<std::size_t>(e)];
      const double at = element, h = 6e-6 * std::max(1.0, std::fabs(at));
      element = at + h;
      const double above = at_now(nullptr), high = element;
      element = at - h;
      const double difference = (above - at_now(nullptr)) / (high - element);
      element = at;
      const double computed = gradient.span<const double>()[static_cast<std::size_t>(e)];
      compare(computed, difference, std::max(1.0, 1e-4 * size), [&] {
        std::vector<std::int64_t> place(x.shape().size());
        for (std::size_t axis = place.size(); axis-- > 0;) {
          std::int64_t rest = e;
          for (std::size_t later = axis + 1; later < place.size(); ++later) rest /= x.shape()[later];
          place[axis] = rest % x.shape()[axis];
        }
        return fmt::format("the gradient of argument {}, {}, at [{}] is {}, but finite differences give {}", differentiable[i],
                           compiler::type_text(arguments[differentiable[i]].array->dtype(), x.shape()), fmt::join(place, ", "), computed,
                           difference);
      });
    }
  }
  if (check.ok)
    check.text = fmt::format("{} derivatives agree with finite differences, and forward mode agrees with reverse mode", checked);
  return check;
}

// ------------------------------------------------------------------------------------------------ pullbacks

struct detail::PullbackCore::Body {
  std::shared_ptr<runtime::Recipe> recipe;
  std::shared_ptr<const runtime::Program> forward;
  std::shared_ptr<const runtime::LaunchPlan> forward_plan;
  std::vector<Array> kept;
  std::vector<compiler::Literal> numbers;
  std::shared_ptr<const std::atomic<int>> resets;  // reset count of the function
  int resets_then;
};

detail::PullbackCore runtime::make_pullback(std::shared_ptr<const Program> forward, Program::Aftermath after,
                                            std::span<const Argument> arguments, std::vector<Array>& arrays,
                                            std::shared_ptr<const std::atomic<int>> resets) {
  using Body = detail::PullbackCore::Body;
  auto recipe = std::static_pointer_cast<Recipe>(std::const_pointer_cast<Attachment>(after.attachment));
  const int now = resets->load(std::memory_order_relaxed);
  Body body{recipe, std::move(forward), std::move(after.plan), {}, {}, std::move(resets), now};
  for (const Recipe::Kept& k : recipe->kept) {
    using From = Recipe::Kept::From;
    switch (k.from) {
      case From::Argument: body.kept.push_back(*arguments[k.index].array); break;
      case From::Captured: body.kept.push_back(after.captured[k.index]); break;
      case From::Result:
      case From::Saved: body.kept.push_back(arrays[k.index]); break;
    }
  }
  for (const std::uint32_t slot : recipe->numbers)
    body.numbers.push_back(literal_of(recipe->joint.slots[slot].dtype, after.slot_bits[slot]));
  arrays.resize(recipe->results.size());
  return detail::PullbackCore(detail::Shared<const Body>(detail::Shared<Body>::make(std::move(body))));
}

std::vector<Array> detail::PullbackCore::operator()(std::span<const CallArgument> cotangents) const {
  using runtime::Argument;
  using runtime::Recipe;
  if (!body_) throw Error("pullback: the pullback was reset, which freed the saved values. Call vjp again.");
  if (body_->resets->load(std::memory_order_relaxed) != body_->resets_then)
    throw Error("pullback: the function was reset after the pullback was created. Call vjp again.");
  Recipe& recipe = *body_->recipe;
  const runtime::CallArguments given(cotangents);
  const std::span<const Argument> all = given;
  if (all.size() != recipe.results.size())
    throw Error(fmt::format("pullback: {} cotangent{} given, but the function has {} result{}", all.size(),
                            all.size() == 1 ? " was" : "s were", recipe.results.size(), recipe.results.size() == 1 ? "" : "s"));
  std::vector<Argument> arguments;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Recipe::Result& result = recipe.results[k];
    if (!result.differentiable) continue;
    const std::string type = compiler::type_text(result.dtype, result.shape);
    if (!all[k].array) {
      if (!result.shape.empty())
        throw ShapeError(
            fmt::format("pullback: the cotangent of {} is a number, but the result is {}; the shapes must be equal", result.name, type));
    } else {
      const Array& dy = *all[k].array;
      if (!dy.has_memory())
        throw ValueError(fmt::format("pullback: the cotangent of {} is an empty Array, but the result is {}. Allocate the cotangent",
                                     result.name, type));
      const std::string got = compiler::type_text(dy.dtype(), dy.shape());
      if (!std::ranges::equal(dy.shape(), result.shape))
        throw ShapeError(
            fmt::format("pullback: the cotangent of {} is {}, but the result is {}; the shapes must be equal", result.name, got, type));
      if (!is_float(dy.dtype()))
        throw DTypeError(
            fmt::format("pullback: the cotangent of {} is {}, but the result is {}; a float type is required", result.name, got, type));
    }
    arguments.push_back(all[k]);
  }
  for (const Array& a : body_->kept) arguments.push_back({&a, {}});
  for (const compiler::Literal& n : body_->numbers) arguments.push_back({nullptr, n});
  std::vector<Array> computed = recipe.backward().call(arguments), gradients;
  for (const std::int32_t k : recipe.gradient_of) gradients.push_back(k < 0 ? Array() : computed[static_cast<std::size_t>(k)]);
  return gradients;
}

void detail::PullbackCore::reset() { body_ = nullptr; }

ExecutionRecord detail::PullbackCore::last_execution(Detail detail) const {
  if (!body_) {
    ExecutionRecord none;
    none.plan_sentence = "the pullback was reset";
    return none;
  }
  return body_->forward->execution_of(*body_->forward_plan, detail);
}

PullbackStats detail::PullbackCore::stats() const { return body_ ? body_->recipe->stats : PullbackStats(); }

}  // namespace onepass
