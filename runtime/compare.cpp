// See compare.h.
#include "runtime/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "compiler/record.h"
#include "ir/reference.h"
#include "onepass/runtime.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/os.h"

namespace onepass::runtime {
namespace {

using ir::Graph;
using ir::NodeId;

// Number of extra values to store per comparison. A kernel with many more outputs than the call's kernel would be fused differently.
constexpr std::size_t kAtOnce = 4;

std::uint64_t element_bits(const Array& a, std::int64_t i) {
  std::uint64_t bits = 0;
  const std::size_t size = size_of(a.dtype());
  std::memcpy(&bits, static_cast<const std::byte*>(a.data()) + static_cast<std::size_t>(i) * size, size);
  return bits;
}

bool is_nan(DType dtype, std::uint64_t bits) { return is_float(dtype) && std::isnan(ir::double_of(dtype, bits)); }

// Returns the index of the first difference of two dense arrays; -1: none.
std::int64_t first_difference(const Array& a, const Array& b) {
  if (std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0) return -1;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const std::uint64_t x = element_bits(a, i), y = element_bits(b, i);
    if (x != y && !(is_nan(a.dtype(), x) && is_nan(b.dtype(), y))) return i;
  }
  return -1;
}

std::string element_text(const Array& a, std::int64_t i) {
  const std::uint64_t bits = element_bits(a, i);
  const double value = ir::double_of(a.dtype(), bits);
  if (a.dtype() == DType::F64) return fmt::format("{}", value);
  if (is_float(a.dtype())) return fmt::format("{}", static_cast<float>(value));
  if (a.dtype() == DType::Bool) return bits ? "true" : "false";
  if (a.dtype() == DType::U64) return fmt::format("{}", bits);
  if (a.dtype() == DType::I64) return fmt::format("{}", static_cast<std::int64_t>(bits));
  return fmt::format("{}", static_cast<std::int64_t>(value));
}

std::vector<std::int64_t> coordinates(std::span<const std::int64_t> shape, std::int64_t i) {
  std::vector<std::int64_t> at(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; i /= shape[axis]) at[axis] = i % shape[axis];
  return at;
}

std::vector<ir::ArrayView> views_of(const CompareRequest& request) {
  std::vector<ir::ArrayView> views;
  for (std::size_t i = 0; i < request.inputs.size(); ++i)
    views.push_back({request.inputs[i].dtype, request.bases[i], request.inputs[i].shape, request.inputs[i].strides});
  return views;
}

// Evaluates the graph on the request's device.
std::vector<Array> evaluate_there(const CompareRequest& request, const Graph& graph, const LaunchOptions& options) {
  PlanData plan;
  plan.inputs.assign(request.inputs.begin(), request.inputs.end());
  for (const NodeId id : graph.outputs) plan.outputs.push_back(array_plan(graph[id].dtype, graph.shape(id), {}));
  plan.targets = plan.outputs;
  plan.redirected.assign(plan.outputs.size(), 0);
  PlanReport report;
  report.recorded = graph;
  const cuda::DeviceAlignment alignment{std::vector<bool>(plan.inputs.size(), true), std::vector<bool>(plan.outputs.size(), true)};
  cuda::Gpu& gpu = cuda::Gpu::get(request.device.index());
  cuda::DevicePlan on_device(gpu.target(), plan, report, options, alignment);
  on_device.attach(gpu, true);
  std::vector<Array> arrays, values;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i)
    arrays.push_back(Array::wrap_pointer(const_cast<std::byte*>(request.bases[i]), plan.inputs[i].dtype,
                                         Extents(std::span<const std::int64_t>(plan.inputs[i].shape)),
                                         Extents(std::span<const std::int64_t>(plan.inputs[i].strides)), true));
  for (const ArrayPlan& o : plan.outputs) values.push_back(Array::empty(Extents(std::span<const std::int64_t>(o.shape)), o.dtype));
  std::vector<const Array*> inputs, outputs;
  for (const Array& a : arrays) inputs.push_back(&a);
  for (const Array& a : values) outputs.push_back(&a);
  if (!on_device.run(plan, {inputs, outputs, nullptr, true}).bad_index.empty()) check_indices(graph, views_of(request), {});
  return values;
}

// Returns the values of `graph.outputs` in that mode, as dense arrays.
std::vector<Array> evaluate(const CompareRequest& request, const Graph& graph, Mode mode) {
  std::vector<Array> values;
  for (const NodeId id : graph.outputs) values.push_back(Array::empty(Extents(graph.shape(id)), graph[id].dtype));
  if (mode == Mode::reference) {
    const os::DefaultFloatingPoint control;
    const std::vector<ir::Buffer> results = ir::evaluate(graph, views_of(request));
    for (std::size_t k = 0; k < results.size(); ++k)
      if (!results[k].bytes.empty()) std::memcpy(values[k].mutable_data(), results[k].bytes.data(), results[k].bytes.size());
    return values;
  }
  LaunchOptions options = request.options;
  options.unfused = mode == Mode::unfused;
  if (request.device.is_cuda() && mode == request.mode) return evaluate_there(request, graph, options);
  PlanData plan;
  plan.inputs.assign(request.inputs.begin(), request.inputs.end());
  for (const NodeId id : graph.outputs) plan.outputs.push_back(array_plan(graph[id].dtype, graph.shape(id), {}));
  plan.targets = plan.outputs;
  PlanReport report;
  report.recorded = graph;
  make_launches(plan, report, request.target, options);
  attach_kernels(plan, report, request.target, {options.threads});
  std::vector<std::byte*> bases;
  for (const std::byte* base : request.bases) bases.push_back(const_cast<std::byte*>(base));  // inputs are only read
  for (Array& v : values) bases.push_back(static_cast<std::byte*>(v.mutable_data()));
  bases.resize(bases.size() + kMoreBases);
  if (!run(plan, bases.data(), nullptr)) check_indices(graph, views_of(request), {});
  return values;
}

}  // namespace

std::optional<std::string> not_finite(const Array& array) {
  if (!is_float(array.dtype())) return std::nullopt;
  std::vector<std::int64_t> at(array.shape().size(), 0);
  const std::size_t size = size_of(array.dtype());
  for (std::int64_t i = 0, n = array.size(); i < n; ++i) {
    const auto* element = static_cast<const std::byte*>(array.data());
    for (std::size_t axis = 0; axis < at.size(); ++axis) element += at[axis] * array.strides()[axis] * static_cast<std::int64_t>(size);
    std::uint64_t bits = 0;
    std::memcpy(&bits, element, size);
    // All exponent bits are ones: 11 bits for f64, 8 for f32, 5 for f16, 8 for bf16.
    const std::uint64_t exponent = array.dtype() == DType::F64   ? 0x7ff0000000000000
                                   : array.dtype() == DType::F32 ? 0x7f800000
                                   : array.dtype() == DType::F16 ? 0x7c00
                                                                 : 0x7f80;
    if ((bits & exponent) == exponent) {
      const bool nan = (bits & ~exponent & ~(std::uint64_t{1} << (8 * size - 1))) != 0;
      const bool negative = bits >> (8 * size - 1) & 1;
      return fmt::format("{} at [{}]", nan ? "nan" : negative ? "-inf" : "inf", fmt::join(at, ", "));
    }
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < array.shape()[axis]) break;
      at[axis] = 0;
    }
  }
  return std::nullopt;
}

std::string first_not_finite(const CompareRequest& request) {
  const Graph& graph = request.graph;
  const auto text = [&](NodeId id) {
    const std::string& source = graph.sources[graph.source_of[id]];
    return fmt::format("`{}` {}{}{}", ir::info(graph[id].op).text, compiler::type_text(graph[id].dtype, graph.shape(id)),
                       source.empty() ? "" : " at ", source);
  };
  const auto most = static_cast<std::int64_t>(memory_limit() / 8);  // maximum bytes of values per comparison
  for (NodeId next = 0; next < graph.size();) {
    Graph alone = graph;
    alone.outputs.clear();
    alone.output_names.clear();
    for (std::int64_t bytes = 0; next < graph.size() && alone.outputs.size() < kAtOnce; ++next) {
      if (!is_float(graph[next].dtype) || (ir::is_source(graph[next].op) && graph[next].op != ir::Op::Input)) continue;
      const std::int64_t mine = graph.elements(next) * static_cast<std::int64_t>(size_of(graph[next].dtype));
      if (!alone.outputs.empty() && bytes + mine > most) break;
      bytes += mine;
      alone.outputs.push_back(next);
      alone.output_names.push_back(fmt::format("value{}", next));
    }
    if (alone.outputs.empty()) break;
    const std::vector<Array> values = evaluate(request, alone, request.mode);
    for (std::size_t k = 0; k < values.size(); ++k) {
      const std::optional<std::string> found = not_finite(values[k]);
      if (!found) continue;
      const NodeId id = alone.outputs[k];
      if (graph[id].op == ir::Op::Input)
        return fmt::format("the input {} already contains such a value, {}", graph.inputs[graph[id].bits].name, *found);
      const NodeId origin = graph.origin_of[id];
      return fmt::format("the first operator that produced such a value is {}: {}{}", text(id), *found,
                         origin == ir::kNoNode ? "" : ", in the derivative of " + text(origin));
    }
  }
  return {};
}

std::string_view text_of(Mode mode) {
  static constexpr std::string_view kTexts[] = {"adaptive", "generic", "specialized", "unfused", "reference"};
  return kTexts[static_cast<int>(mode)];
}

Comparison compare(const CompareRequest& request) {
  const Graph& graph = request.graph;
  const std::string where = request.device.is_cuda() ? fmt::format(" on cuda:{}", request.device.index()) : std::string();
  Comparison found;
  const auto differs = [&](const Array& a, const Array& b, std::int64_t at, std::string_view what) {
    found.equal = false;
    found.index = coordinates(a.shape(), at);
    found.value = element_text(a, at);
    found.expected = element_text(b, at);
    return fmt::format("{} at [{}]: {} in mode {}{}, {} in mode {}", what, fmt::join(found.index, ", "), found.value, text_of(request.mode),
                       where, found.expected, text_of(request.judge));
  };
  {
    const std::vector<Array> mine = evaluate(request, graph, request.mode), judges = evaluate(request, graph, request.judge);
    for (std::size_t k = 0; k < mine.size() && found.equal; ++k)
      if (const std::int64_t at = first_difference(mine[k], judges[k]); at >= 0)
        found.text = differs(mine[k], judges[k], at, fmt::format("output `{}` differs", graph.output_names[k]));
    if (found.equal) {
      found.text = fmt::format("equal in modes {}{} and {}: {} output{}", text_of(request.mode), where, text_of(request.judge), mine.size(),
                               mine.size() == 1 ? "" : "s");
      return found;
    }
  }
  const std::size_t results = graph.outputs.size();
  const auto most = static_cast<std::int64_t>(memory_limit() / 8);  // maximum bytes of values per comparison
  for (NodeId next = 0; next < graph.size();) {
    Graph extended = graph;
    std::vector<NodeId> batch;
    for (std::int64_t bytes = 0; next < graph.size() && batch.size() < kAtOnce; ++next) {
      if (ir::is_source(graph[next].op)) continue;
      const std::int64_t mine = graph.elements(next) * static_cast<std::int64_t>(size_of(graph[next].dtype));
      if (!batch.empty() && bytes + mine > most) break;
      bytes += mine;
      batch.push_back(next);
      extended.outputs.push_back(next);
      extended.output_names.push_back(fmt::format("value{}", next));
    }
    if (batch.empty()) break;
    Graph alone = graph;  // the oracle computes only the values to compare
    alone.outputs = batch;
    alone.output_names.assign(extended.output_names.begin() + static_cast<std::ptrdiff_t>(results), extended.output_names.end());
    const std::vector<Array> mine = evaluate(request, extended, request.mode), judges = evaluate(request, alone, request.judge);
    for (std::size_t k = 0; k < batch.size(); ++k) {
      const std::int64_t at = first_difference(mine[results + k], judges[k]);
      if (at < 0) continue;
      const ir::Node node = graph[batch[k]];
      found.op = ir::info(node.op).text;
      found.text += differs(mine[results + k], judges[k], at,
                            fmt::format("; the first operator that differs is %{} {} {},", batch[k], found.op,
                                        compiler::type_text(node.dtype, graph.shape(batch[k]))));
      return found;
    }
  }
  found.text += "; no operator's value differs when intermediate values are stored as well";
  return found;
}

}  // namespace onepass::runtime
