// A function table of libcuda, the driver's library. It is opened at run time, so no linking is necessary. If it is absent or too old,
// requests for a device fail with one sentence.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace onepass::runtime::cuda {

// The names, types and numbers of the driver's header, cuda.h.
using Result = int;
using DevicePointer = unsigned long long;
inline constexpr int kMultiprocessors = 16, kThreadsPerMultiprocessor = 39, kMajor = 75, kMinor = 76,
                     kMostSharedBytes = 97;         // device attributes
inline constexpr int kFunctionStaticBytes = 1;      // function attribute: static shared memory
inline constexpr int kFunctionSharedBytes = 8;      // function attribute: maximum dynamic shared memory
inline constexpr std::uintptr_t kLegacyStream = 1;  // CUDA's default stream, as a handle with that meaning in every thread
inline constexpr unsigned kNonBlocking = 1;         // for a stream: does not wait for CUDA's default stream
inline constexpr unsigned kWithoutTiming = 2;       // for an event
inline constexpr int kOfThisThread = 1;             // for a capture: ignores operations of other threads
inline constexpr int kRelaxed = 2;                  // for a thread: all its operations are allowed during captures
inline constexpr int kIsCapturing = 1;              // status of a stream: 0 without a capture, 2 after an error
inline constexpr unsigned kNoDestructorSync = 1;    // for an object of the user: nothing waits for its destructor
inline constexpr unsigned kMoveReference = 1;       // for a graph: it takes over the caller's reference
inline constexpr Result kOutOfMemory = 2, kNotInitialised = 3, kStubLibrary = 34, kNoDevice = 100, kInvalidImage = 200,
                        kNoBinaryForDevice = 209, kInvalidPtx = 218, kUnsupportedPtxVersion = 222, kInvalidHandle = 400, kNotReady = 600,
                        kPeerAccessIsEnabled = 704, kDriverMismatch = 803;

/// Name and parameter types of each function; all return a Result.
#define ONEPASS_CUDA_FUNCTIONS(F)                                                                                         \
  F(cuInit, (unsigned))                                                                                                   \
  F(cuDriverGetVersion, (int*))                                                                                           \
  F(cuGetErrorName, (Result, const char**))                                                                               \
  F(cuGetErrorString, (Result, const char**))                                                                             \
  F(cuDeviceGetCount, (int*))                                                                                             \
  F(cuDeviceGet, (int*, int))                                                                                             \
  F(cuDeviceGetName, (char*, int, int))                                                                                   \
  F(cuDeviceGetAttribute, (int*, int, int))                                                                               \
  F(cuDeviceCanAccessPeer, (int*, int, int))                                                                              \
  F(cuDevicePrimaryCtxRetain, (void**, int))                                                                              \
  F(cuDevicePrimaryCtxRelease_v2, (int))                                                                                  \
  F(cuCtxPushCurrent_v2, (void*))                                                                                         \
  F(cuCtxPopCurrent_v2, (void**))                                                                                         \
  F(cuCtxSynchronize, ())                                                                                                 \
  F(cuCtxEnablePeerAccess, (void*, unsigned))                                                                             \
  F(cuStreamCreate, (void**, unsigned))                                                                                   \
  F(cuStreamDestroy_v2, (void*))                                                                                          \
  F(cuStreamSynchronize, (void*))                                                                                         \
  F(cuStreamIsCapturing, (void*, int*))                                                                                   \
  F(cuStreamGetCaptureInfo_v2, (void*, int*, unsigned long long*, void**, const void**, std::size_t*))                    \
  F(cuThreadExchangeStreamCaptureMode, (int*))                                                                            \
  F(cuUserObjectCreate, (void**, void*, void (*)(void*), unsigned, unsigned))                                             \
  F(cuUserObjectRelease, (void*, unsigned))                                                                               \
  F(cuGraphRetainUserObject, (void*, void*, unsigned, unsigned))                                                          \
  F(cuStreamWaitEvent, (void*, void*, unsigned))                                                                          \
  F(cuEventCreate, (void**, unsigned))                                                                                    \
  F(cuEventDestroy_v2, (void*))                                                                                           \
  F(cuEventRecord, (void*, void*))                                                                                        \
  F(cuEventSynchronize, (void*))                                                                                          \
  F(cuEventQuery, (void*))                                                                                                \
  F(cuEventElapsedTime, (float*, void*, void*))                                                                           \
  F(cuMemAlloc_v2, (DevicePointer*, std::size_t))                                                                         \
  F(cuMemFree_v2, (DevicePointer))                                                                                        \
  F(cuMemHostAlloc, (void**, std::size_t, unsigned))                                                                      \
  F(cuMemFreeHost, (void*))                                                                                               \
  F(cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, std::size_t, void*))                                               \
  F(cuMemcpyDtoHAsync_v2, (void*, DevicePointer, std::size_t, void*))                                                     \
  F(cuMemcpyDtoDAsync_v2, (DevicePointer, DevicePointer, std::size_t, void*))                                             \
  F(cuMemcpyPeerAsync, (DevicePointer, void*, DevicePointer, void*, std::size_t, void*))                                  \
  F(cuMemsetD8Async, (DevicePointer, unsigned char, std::size_t, void*))                                                  \
  F(cuModuleLoadData, (void**, const void*))                                                                              \
  F(cuModuleUnload, (void*))                                                                                              \
  F(cuModuleGetFunction, (void**, void*, const char*))                                                                    \
  F(cuFuncGetAttribute, (int*, int, void*))                                                                               \
  F(cuFuncSetAttribute, (void*, int, int))                                                                                \
  F(cuLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)) \
  F(cuStreamBeginCapture_v2, (void*, int))                                                                                \
  F(cuStreamEndCapture, (void*, void**))                                                                                  \
  F(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long))                                                     \
  F(cuGraphLaunch, (void*, void*))                                                                                        \
  F(cuGraphExecDestroy, (void*))                                                                                          \
  F(cuGraphDestroy, (void*))

struct Driver {
#define ONEPASS_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
  ONEPASS_CUDA_FUNCTIONS(ONEPASS_CUDA_MEMBER)
#undef ONEPASS_CUDA_MEMBER
  int version = 0;  // 12080: CUDA 12.8
  int major() const { return version / 1000; }
  int minor() const { return version % 1000 / 10; }
  std::string path;

  /// Returns the library, opened at the first call: the file that ONEPASS_CUDA_DRIVER names, else libcuda.so.1. Returns null if no library
  /// is usable; why() returns the remedy.
  static const Driver* find();
  static const std::string& why();

  /// Throws unless `result` is success: `cuda: WHAT failed: NAME (driver's message); remedy`. An empty `remedy` selects one by the error
  /// number. Throws MemoryError for exhausted memory.
  void check(Result result, std::string_view what, std::string_view remedy = {}) const {
    if (result != 0) [[unlikely]]
      fail(result, what, remedy);
  }
  /// Does the same; calls `what` for the text only on failure.
  template <std::invocable What> void check(Result result, What&& what) const {
    if (result != 0) [[unlikely]]
      fail(result, what(), {});
  }

 private:
  [[noreturn]] void fail(Result result, std::string_view what, std::string_view remedy) const;
};

/// Scope in which this thread may allocate, wait and query while any thread captures a graph. Otherwise the driver refuses it, and makes
/// the capture invalid.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver) noexcept : driver_(driver) { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kRelaxed;
};

}  // namespace onepass::runtime::cuda
