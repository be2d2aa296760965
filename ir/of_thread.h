// A value of each thread, for functions that the host may also call while a thread or the process ends.
#pragma once

#include <cxxabi.h>

#include <cstddef>
#include <new>

extern "C" [[gnu::visibility("hidden")]] void* __dso_handle;  // NOLINT: of the compiler's runtime

namespace onepass::ir {

/// The thread's T, made at the first use and destroyed at the thread's end. Destructors of the host's static and thread_local objects may
/// run later and use the thread's T again: it is then made and destroyed again. All users of one T share it. Needs no memory for T.
template <class T> class OfThread {
 public:
  static T& get() {
    if (value_) [[likely]]
      return *value_;
    return make();
  }

 private:
  [[gnu::noinline]] static T& make() {
    T* const made = new (memory_) T;
    abi::__cxa_thread_atexit(&end, nullptr, &__dso_handle);  // unlike thread_local, also while other destructors run
    value_ = made;
    return *made;
  }
  static void end(void*) {
    value_->~T();  // may call code that uses the value
    value_ = nullptr;
  }

  alignas(T) static inline thread_local constinit std::byte memory_[sizeof(T)] = {};
  static inline thread_local constinit T* value_ = nullptr;
};

}  // namespace onepass::ir
