// Functions by which tests control and query the fake driver (fake_cuda/fake_cuda.cpp).
#pragma once

#include <dlfcn.h>
#include <catch2/catch.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "this_build.h"

namespace onepass::test {

struct FakeCuda {
  void* handle;
  template <class F> F* function(const char* name) const {
    F* const f = reinterpret_cast<F*>(dlsym(handle, name));
    REQUIRE(f);
    return f;
  }
  std::int64_t number(const char* name) const { return function<std::int64_t()>(name)(); }

  void fail(std::int64_t in, int code, bool always = false) const {
    function<void(std::int64_t, int, bool)>("fake_cuda_fail")(in, code, always);
  }
  void works() const { fail(-1, 0); }
  std::int64_t calls() const { return number("fake_cuda_calls"); }
  bool failed() const { return function<bool()>("fake_cuda_failed")(); }
  std::int64_t held() const { return number("fake_cuda_held"); }
  std::int64_t pinned() const { return number("fake_cuda_pinned"); }
  std::int64_t waiting() const { return number("fake_cuda_waiting"); }
  std::int64_t launched() const { return number("fake_cuda_launched"); }
  std::int64_t graphs() const { return number("fake_cuda_graphs"); }
  std::int64_t compiled() const { return number("fake_cuda_compiled"); }
  std::int64_t loaded() const { return number("fake_cuda_loaded"); }
  std::int64_t unloaded_early() const { return number("fake_cuda_unloaded_early"); }
  std::int64_t synchronized() const { return number("fake_cuda_synchronized"); }
  std::int64_t allocated() const { return number("fake_cuda_allocated"); }
  std::int64_t peers() const { return number("fake_cuda_peers"); }
  std::int64_t most_shared() const { return number("fake_cuda_most_shared"); }
  std::int64_t live() const { return number("fake_cuda_live"); }
  std::int64_t streams() const { return number("fake_cuda_streams"); }
  int retained() const { return function<int()>("fake_cuda_retained")(); }
  int entered() const { return function<int()>("fake_cuda_entered")(); }
  void elapsed(float first, float second) const { function<void(float, float)>("fake_cuda_elapsed")(first, second); }
  void limit(std::int64_t bytes) const { function<void(std::int64_t)>("fake_cuda_limit")(bytes); }
};

/// Loads the fake driver instead of the machine's own driver, with `devices` devices. The number must be the same in the whole process.
inline const FakeCuda& fake_cuda(int devices = 2) {
  static const FakeCuda it = [&] {
    const std::string path = build_folder() + "/lib/libfake_cuda.so";
    setenv("ONEPASS_CUDA_DRIVER", path.c_str(), 1);
    setenv("ONEPASS_NVRTC", path.c_str(), 1);
    setenv("FAKE_CUDA_DEVICES", std::to_string(devices).c_str(), 1);
    return FakeCuda{dlopen(path.c_str(), RTLD_NOW)};
  }();
  REQUIRE(it.handle);
  return it;
}

/// Returns a new stream of the first device, as the caller's own code makes it.
inline void* stream_of_ours() {
  void *stream = nullptr, *context = nullptr;
  REQUIRE(fake_cuda().function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
  REQUIRE(fake_cuda().function<int(void*)>("cuCtxPushCurrent_v2")(context) == 0);
  REQUIRE(fake_cuda().function<int(void**, unsigned)>("cuStreamCreate")(&stream, 0) == 0);
  REQUIRE(fake_cuda().function<int(void**)>("cuCtxPopCurrent_v2")(&context) == 0);
  return stream;
}

}  // namespace onepass::test
