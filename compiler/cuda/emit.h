// emit: turns Nests under their DeviceSchedules into one program of CUDA C++ text that needs no header. NVRTC compiles it with
// --fmad=false, because the results depend on this option. Tests compile the same text as C++ and run it on the CPU.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cuda/schedule.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::cuda {

/// Launch properties of a kernel in addition to its schedule's numbers. The arguments are the kernel parameters (compiler/plan/schedule.h),
/// by value. With `far`, they exceed the limit of a launch, and the only argument is a pointer to them in device memory.
struct DeviceKernel {
  std::string name;
  std::uint32_t words = 0;
  std::uint16_t threads = 256;  // threads per block
  bool far = false;
  bool cooperates = false;  // threads exchange values: barriers, shuffles, shared memory
  bool asks = false;        // requests up to DeviceTarget::asked_shared_bytes() of shared memory
};

/// Kernels of one program. They share the device functions that they call.
class DeviceProgram {
 public:
  /// Adds a kernel. `name` must be a C identifier, different for each kernel. `known` has the specialization constants of a specialized
  /// kernel. Throws UnsupportedError if CUDA text does not support the nest.
  DeviceKernel add(const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known = nullptr);
  std::string text() const;

 private:
  std::set<std::pair<int, int>> made_;  // operators, by number; for expansions also the type
  std::string functions_, kernels_;
  friend class DeviceEmitter;
  std::string call(ir::Op op, DType of, const std::string& to, const std::vector<std::string>& operands);
  void expand(ir::Op op, DType dtype);
};

}  // namespace onepass::compiler::cuda
