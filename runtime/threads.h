// The thread pool: one loop split into equal shares, the same split each time, so that a share's data stays in one core's cache.
// Called by kernel launches and by nobody's callbacks; a share is a slice of a kernel's outermost loop. What hosts may set (the count, an
// executor of their own, what a worker does first) is declared in onepass/runtime.h.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace onepass {

/// A callable passed by reference: no allocation. The callable must outlive the call.
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

/// Splits [0, items) into `threads` contiguous shares (fewer if there are fewer items, at most kMaxThreads) and calls
/// `body(begin, end, share)` once for each: share 0 on the calling thread, the others on workers, and any that a worker has not
/// begun by then on the calling thread too. Returns when all are done. Equal arguments give equal shares, whoever runs them.
///
/// A call from within a body, or while another thread is using the pool, runs all its shares here, one after the other.
/// `body` must not throw. Workers run under default floating-point control. No allocation, no lock once the workers exist.
void parallel_for(std::int64_t items, int threads, FunctionRef<void(std::int64_t begin, std::int64_t end, int share)> body);

/// Has the workers start that a loop on so many threads will want, while the caller prepares it. Does nothing where they are there, or
/// where loops do not run on them.
void start(int threads) noexcept;

/// Where share `share` of `shares` begins; the first `items % shares` are one longer.
constexpr std::int64_t share_begin(std::int64_t items, int shares, int share) {
  const std::int64_t whole = items / shares, rest = items % shares;
  return share * whole + (share < rest ? share : rest);
}

/// The number of threads that a call should use: this thread's ThreadScope, else `set_threads`, else the cores the process may use.
int count() noexcept;

}  // namespace threads
}  // namespace onepass
