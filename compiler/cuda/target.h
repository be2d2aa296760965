// The device that CUDA text and its schedule are made for. It is a plain value, so that the text for every device can be made and tested
// anywhere.
#pragma once

#include <algorithm>

namespace onepass::compiler::cuda {

struct DeviceTarget {
  int sm = 80;                        // compute capability, 10 * major + minor
  int processors = 108;               // streaming multiprocessors
  int shared_bytes = 48 << 10;        // per block without a request, including memory that the text declares
  int threads_per_processor = 2048;   // resident at the same time
  int most_shared_bytes = 163 << 10;  // per block on request; nearly all memory of a processor
  /// Returns the most shared memory of a kernel, declared and requested. If this amount exceeds the limit without a request, two such
  /// blocks still fit into a processor.
  int asked_shared_bytes() const { return std::max(most_shared_bytes / 2 - (2 << 10), shared_bytes); }
  bool operator==(const DeviceTarget&) const = default;
};

}  // namespace onepass::compiler::cuda
