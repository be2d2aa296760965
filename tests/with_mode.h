// Options for tests that call one program in several modes.
#pragma once

#include "onepass/options.h"

namespace onepass::test {

inline Options with(Mode mode, int threads = 0, int vector_bytes = 0) {
  Options o;
  o.mode = mode;
  o.threads = threads;
  o.vector_bytes = vector_bytes;
  o.check_recording = false;  // tests count the cost of a call
  return o;
}

}  // namespace onepass::test
