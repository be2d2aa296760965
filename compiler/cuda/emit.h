// emit: Nests under their DeviceSchedules as one program of CUDA C++ text that needs no header. NVRTC compiles it with --fmad=false, which is
// part of its meaning; tests compile the same text as C++ and run it on the CPU.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cuda/schedule.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::cuda {

/// What a launch has to know of a kernel beside its schedule's numbers. The arguments are the words (compiler/plan/schedule.h) by value; `far`:
/// there are more than a launch takes, and the one argument is a pointer to them in device memory.
struct DeviceKernel {
  std::string name;
  std::uint32_t words = 0;
  std::uint16_t threads = 256;  // of a block
  bool far = false;
  bool cooperates = false;  // its threads exchange values: barriers, shuffles, shared memory
  bool asks = false;        // for up to DeviceTarget::asked_shared_bytes() of shared memory
};

/// Kernels of one program: they share the device functions that they call.
class DeviceProgram {
 public:
  /// `name`: a C identifier, another for each kernel. `known`: of a specialised kernel, words that become constants of its text.
  /// UnsupportedError where the nest does what CUDA text does not do yet.
  DeviceKernel add(const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known = nullptr);
  std::string text() const;

 private:
  std::set<std::pair<int, int>> made_;  // operators, by number, and for expansions the type
  std::string functions_, kernels_;
  friend class DeviceEmitter;
  std::string call(ir::Op op, DType of, const std::string& to, const std::vector<std::string>& operands);
  void expand(ir::Op op, DType dtype);
};

}  // namespace onepass::compiler::cuda
