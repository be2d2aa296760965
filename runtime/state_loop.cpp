// Implementation of onepass/loop.h: converts between Tensors and values, and sets the source line of the loop.
#include "compiler/state_loop.h"

#include <utility>
#include <vector>

#include "onepass/error.h"
#include "onepass/loop.h"
#include "runtime/recording.h"

namespace onepass::detail {

using compiler::Value;
using runtime::Recording;

struct StateLoop::Body {
  Recording& recording;
  std::source_location where;
  compiler::StateLoop loop;
  std::vector<Tensor> state, element;  // Tensors of the current step

  std::vector<Value> values(TensorSpan tensors) const {
    std::vector<Value> list;
    for (const Tensor t : tensors) list.push_back(recording.of(t));
    return list;
  }
  void put(std::span<const Value> values, std::vector<Tensor>& to) {
    to.clear();
    for (const Value& v : values) to.push_back(recording.tensor(v));
  }
  template <class F> auto at_line(F&& f) {
    try {
      recording.at(where);
      return f();
    } catch (const Error&) { runtime::rethrow_recorded_at(where); }
  }
};

StateLoop::StateLoop(Kind kind, TensorSpan init, std::source_location where) {
  Recording& r = Recording::current(compiler::StateLoop::kNames[static_cast<std::size_t>(kind)].data());
  try {
    std::vector<Value> values;
    for (const Tensor t : init) values.push_back(r.of(t));
    body_ = new Body{r, where, compiler::StateLoop(r.recorder, static_cast<compiler::StateLoop::Kind>(kind), std::move(values)), {}, {}};
  } catch (const Error&) { runtime::rethrow_recorded_at(where); }
  body_->put(body_->loop.state(), body_->state);
}

StateLoop::~StateLoop() { delete body_; }

void StateLoop::over(TensorSpan xs, bool reverse) {
  body_->at_line([&] { body_->loop.over(body_->values(xs), reverse); });
}

void StateLoop::over(std::int64_t steps, bool reverse) {
  body_->at_line([&] { body_->loop.over(steps, reverse); });
}

bool StateLoop::next() {
  return body_->at_line([&] {
    const bool more = body_->loop.next();
    body_->put(body_->loop.state(), body_->state);
    body_->put(body_->loop.element(), body_->element);
    return more;
  });
}

TensorSpan StateLoop::state() const { return span_of(body_->state); }
TensorSpan StateLoop::element() const { return span_of(body_->element); }

void StateLoop::condition(Tensor going) {
  body_->at_line([&] { body_->loop.condition(body_->recording.of(going)); });
}

void StateLoop::step(TensorSpan state, TensorSpan results) {
  body_->at_line([&] { body_->loop.step(body_->values(state), body_->values(results)); });
}

std::vector<Tensor> StateLoop::results() {
  std::vector<Tensor> tensors;
  body_->at_line([&] { body_->put(body_->loop.results(), tensors); });
  return tensors;
}

}  // namespace onepass::detail
