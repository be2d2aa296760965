// Derivatives behind the templates of onepass/gradient.h: in a recording, the recorder's; of calls with Arrays, two programs, forward and
// backward, with what compiler/save chose to keep between them.
#include "onepass/gradient.h"

#include <source_location>
#include <string_view>
#include <utility>

#include "onepass/error.h"
#include "runtime/recording.h"

namespace onepass::detail {

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

// What a derivative makes belongs to the lines of what it differentiates; the rest has none.
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

std::uint32_t recorded_nodes() { return Recording::current("checkpoint").recorder.graph.size(); }

void compute_again(std::uint32_t first, std::span<Tensor> results) {
  Recording& r = recording("checkpoint");
  put(r, r.recorder.computed_again(first, values_of(r, results)), results.data());
}

}  // namespace onepass::detail
