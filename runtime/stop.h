// Options::should_stop: when a call polls it, and the exception. Launches, the interpreter and kernel compilation poll it on the calling
// thread.
#pragma once

#include <cstdint>

#include "onepass/error.h"
#include "onepass/options.h"

namespace onepass::runtime {

class StopCheck {
 public:
  /// Work between two polls, as elements times statements: about 10 ms of compiled code on one thread. Stoppable calls have tasks of at
  /// most about this size (ScheduleOptions::item_work).
  static constexpr std::int64_t kWork = std::int64_t{1} << 24;

  explicit StopCheck(const StopCondition& stop) : stop_(stop) {}

  /// Throws CancelledError if the condition is true.
  void ask() {
    done_ = 0;
    if (stop_())
      throw CancelledError("canceled: Options::should_stop returned true; the contents of the call's destinations are unspecified");
  }
  /// Counts work, and polls when enough has accumulated.
  void did(std::int64_t work) {
    done_ += work;
    if (done_ >= kWork) ask();
  }

 private:
  const StopCondition& stop_;
  std::int64_t done_ = 0;
};

}  // namespace onepass::runtime
