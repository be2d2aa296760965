// The device that CUDA text and its schedule are made for: a plain value, so that every device's text can be made and tested on any machine.
#pragma once

#include <algorithm>

namespace onepass::compiler::cuda {

struct DeviceTarget {
  int sm = 80;                        // compute capability, 10 * major + minor
  int processors = 108;               // streaming multiprocessors
  int shared_bytes = 48 << 10;        // that a block may have without asking, what its text declares included
  int threads_per_processor = 2048;   // that are resident at once
  int most_shared_bytes = 163 << 10;  // that a block may have by asking; nearly all that a processor has
  /// What a kernel takes at most, declared and asked for: two blocks are resident where that is more than every block may have.
  int asked_shared_bytes() const { return std::max(most_shared_bytes / 2 - (2 << 10), shared_bytes); }
  bool operator==(const DeviceTarget&) const = default;
};

}  // namespace onepass::compiler::cuda
