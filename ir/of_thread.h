// A value of each thread, for functions that the host may also call while a thread or the process ends.
#pragma once

#include <cstddef>
#include <new>

namespace onepass::ir {

/// The thread's T, made at the first use and destroyed at the thread's end. Destructors of the host's static and thread_local objects may
/// run later and use the thread's T again: they get a new one, which is never destroyed. Allocates no memory. All users of one T share it.
template <class T> class OfThread {
 public:
  static T& get() {
    if (value_) [[likely]]
      return *value_;
    return make();
  }

 private:
  struct End {
    bool armed = false;
    ~End() {
      over_ = true;
      value_->~T();  // may call code that uses the value
      value_ = nullptr;
    }
  };
  [[gnu::noinline]] static T& make() {
    T* const made = new (memory_) T;
    if (!over_) {
      thread_local End end;
      end.armed = true;  // this use registers the destructor
    }
    value_ = made;
    return *made;
  }

  alignas(T) static inline thread_local constinit std::byte memory_[sizeof(T)] = {};
  static inline thread_local constinit T* value_ = nullptr;
  static inline thread_local constinit bool over_ = false;
};

}  // namespace onepass::ir
