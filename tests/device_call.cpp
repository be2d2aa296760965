#include "device_call.h"

#include <cstring>

#include "ir/reference.h"
#include "runtime/cuda/device_plan.h"

namespace onepass::test {

std::vector<Array> call_on_device(runtime::cuda::Gpu& gpu, const ir::Graph& graph, const std::vector<Array>& inputs, bool unfused) {
  runtime::PlanData plan;
  for (const Array& a : inputs) plan.inputs.push_back(runtime::array_plan(a.dtype(), a.shape(), a.strides()));
  runtime::PlanReport report;
  report.recorded = graph;
  std::vector<Array> results;
  for (const ir::NodeId id : graph.outputs) {
    plan.outputs.push_back(runtime::array_plan(graph[id].dtype, graph.shape(id), {}));
    plan.redirected.push_back(false);
    results.push_back(Array::empty(Extents(graph.shape(id)), graph[id].dtype));
  }
  plan.targets = plan.outputs;
  runtime::LaunchOptions options;
  options.unfused = unfused;
  runtime::cuda::DevicePlan on_device(gpu.target(), plan, report, options,
                                      {std::vector<bool>(inputs.size(), true), std::vector<bool>(results.size(), true)});
  on_device.attach(gpu, true);
  std::vector<const Array*> from, to;
  for (const Array& a : inputs) from.push_back(&a);
  for (const Array& a : results) to.push_back(&a);
  on_device.run(plan, {from, to, nullptr});
  return results;
}

std::vector<Array> arrays_of(const Arguments& arguments) {
  std::vector<Array> out;
  for (const ir::ArrayView& view : arguments.views) {
    const runtime::ArrayPlan plan = runtime::array_plan(view.dtype, view.shape, view.strides);
    out.push_back(Array::wrap_pointer(const_cast<void*>(view.data), view.dtype, Extents(std::span<const std::int64_t>(plan.shape)),
                                      Extents(std::span<const std::int64_t>(plan.strides)), true));
  }
  return out;
}

std::string difference_from_reference(const ir::Graph& graph, const Arguments& arguments, const std::vector<Array>& results) {
  std::vector<ir::Buffer> got;
  for (const Array& a : results) {
    got.push_back({a.dtype(), {a.shape().begin(), a.shape().end()}, std::vector<std::byte>(static_cast<std::size_t>(a.bytes()))});
    if (!got.back().bytes.empty()) std::memcpy(got.back().bytes.data(), a.data(), got.back().bytes.size());
  }
  std::string what;
  return equals_bitwise(got, ir::evaluate(graph, arguments.views), &what) ? "" : what;
}

}  // namespace onepass::test
