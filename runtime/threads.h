// The thread pool: divides one loop into equal ranges, one per thread. The division is always the same, so that a range's data stays in
// one core's cache. A range is a slice of a kernel's outermost loop.
//
// Used by kernel launches, not by callbacks. onepass/runtime.h declares the host's settings: the thread count, an executor, a worker
// start hook.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace onepass {

/// A callable passed by reference, without allocation. The callable must outlive the call.
template <class Signature> class FunctionRef;
template <class Result, class... Arguments> class FunctionRef<Result(Arguments...)> {
 public:
  template <class F> requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<Result, F&, Arguments...>)
  FunctionRef(F&& function) noexcept  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(object_, arguments...); }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

namespace threads {

inline constexpr int kMaxThreads = 256;

/// Divides [0, items) into `threads` contiguous ranges (fewer if there are fewer items, at most kMaxThreads). Calls `body(begin, end,
/// share)` once for each range. Range 0 runs on the calling thread, the other ranges run on workers. The calling thread also runs ranges
/// that no worker has started. Returns when all ranges are done. The ranges depend only on the arguments.
///
/// A call from within a body, or while another thread uses the pool, runs all ranges on the calling thread in sequence. `body` must not
/// throw. Workers run under default floating-point control. Does not allocate or lock once the workers exist.
void parallel_for(std::int64_t items, int threads, FunctionRef<void(std::int64_t begin, std::int64_t end, int share)> body);

/// Starts the workers for a loop on this many threads, while the caller prepares it. Does nothing if they exist or if loops do not use
/// them.
void start(int threads) noexcept;

/// Returns the start of range `share` of `shares`; the first `items % shares` ranges are one element longer.
constexpr std::int64_t share_begin(std::int64_t items, int shares, int share) {
  const std::int64_t whole = items / shares, rest = items % shares;
  return share * whole + (share < rest ? share : rest);
}

/// Returns the number of threads for a call: this thread's ThreadScope, else `set_threads`, else the cores available to the process.
int count() noexcept;

}  // namespace threads
}  // namespace onepass
