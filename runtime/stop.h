// Options::should_stop: when a call asks, and what it throws. Launches, the interpreter and the compiling of kernels ask by it, on the
// thread that called.
#pragma once

#include <cstdint>

#include "onepass/error.h"
#include "onepass/options.h"

namespace onepass::runtime {

class StopCheck {
 public:
  /// Work between two questions: elements times statements, about, a hundredth of a second of compiled code on one thread. Schedules of calls
  /// that can be stopped have items of at most about so much (ScheduleOptions::item_work).
  static constexpr std::int64_t kWork = std::int64_t{1} << 24;

  explicit StopCheck(const StopCondition& stop) : stop_(stop) {}

  /// CancelledError where the answer is yes.
  void ask() {
    done_ = 0;
    if (stop_()) throw CancelledError("cancelled: Options::should_stop returned true; what the call's targets hold is unspecified");
  }
  /// After so much work.
  void did(std::int64_t work) {
    done_ += work;
    if (done_ >= kWork) ask();
  }

 private:
  const StopCondition& stop_;
  std::int64_t done_ = 0;
};

}  // namespace onepass::runtime
