// The device that CUDA text and its schedule are made for: a plain value, so that every device's text can be made and tested on any machine.
#pragma once

#include <cstdint>

namespace onepass::compiler::cuda {

struct DeviceTarget {
  int sm = 80;                       // compute capability, 10 * major + minor
  int processors = 108;              // streaming multiprocessors
  int shared_bytes = 48 << 10;       // that a block may have without asking
  int threads_per_processor = 2048;  // that are resident at once
  bool operator==(const DeviceTarget&) const = default;
};

}  // namespace onepass::compiler::cuda
