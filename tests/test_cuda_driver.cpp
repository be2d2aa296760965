// Compares the table of driver functions (runtime/cuda/driver.h) with NVIDIA's header, if a toolkit is installed. Without a device, no
// other test finds a wrong type or number, since the fake driver uses the same table.
#include <catch2/catch.hpp>

#include <iostream>
#include <string>
#include <type_traits>

#include "runtime/cuda/driver.h"

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL  // declares functions by their library names, without macros
#include <cuda.h>

using namespace onepass::runtime::cuda;

namespace {

// True if both types are passed alike: both pointers, or integers of the same size.
template <class A, class B> constexpr bool alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> && !std::is_floating_point_v<A> && !std::is_floating_point_v<B>;
template <class F, class G> constexpr bool called_alike = false;
template <class... A, class R, class... B> requires(sizeof...(A) == sizeof...(B))
constexpr bool called_alike<Result (*)(A...), R (*)(B...)> = sizeof(R) == sizeof(Result) && (alike<A, B> && ...);

}  // namespace

TEST_CASE("the driver's functions and numbers match its header", "[cuda]") {
#define ONEPASS_CHECK(name, parameters)                               \
  {                                                                   \
    INFO(#name);                                                      \
    CHECK((called_alike<decltype(Driver::name), decltype(&::name)>)); \
  }
  ONEPASS_CUDA_FUNCTIONS(ONEPASS_CHECK)
#undef ONEPASS_CHECK
  CHECK(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CHECK(kThreadsPerMultiprocessor == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  CHECK(kMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  CHECK(kMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  CHECK(kMostSharedBytes == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  CHECK(kFunctionStaticBytes == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  CHECK(kPeerAccessIsEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(reinterpret_cast<CUstream>(kLegacyStream) == CU_STREAM_LEGACY);
  CHECK(kFunctionSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  CHECK(kNonBlocking == CU_STREAM_NON_BLOCKING);
  CHECK(kWithoutTiming == CU_EVENT_DISABLE_TIMING);
  CHECK(kOfThisThread == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CHECK(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(kNotInitialised == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(kStubLibrary == CUDA_ERROR_STUB_LIBRARY);
  CHECK(kNoDevice == CUDA_ERROR_NO_DEVICE);
  CHECK(kInvalidImage == CUDA_ERROR_INVALID_IMAGE);
  CHECK(kNoBinaryForDevice == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(kInvalidPtx == CUDA_ERROR_INVALID_PTX);
  CHECK(kUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK(kNotReady == CUDA_ERROR_NOT_READY);
  CHECK(kDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
}
#else
TEST_CASE("the driver's functions and numbers match its header", "[cuda]") {
  std::cout << "SKIPPED: the table of the driver's functions is not checked: there is no cuda.h" << std::endl;
}
#endif
