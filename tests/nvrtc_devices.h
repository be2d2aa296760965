// Four generations of devices, and NVIDIA's compiler for them.
#pragma once

#include <catch2/catch.hpp>

#include <iostream>
#include <string>

#include "runtime/cuda/nvrtc.h"

namespace onepass::test {

inline constexpr int kDevices[] = {75, 80, 90, 100};

/// Returns NVIDIA's compiler, or null with one warning.
inline const runtime::cuda::Nvrtc* nvrtc() {
  const runtime::cuda::Nvrtc* found = runtime::cuda::Nvrtc::find();
  static const bool said = [&] {
    if (!found) std::cout << "SKIPPED: CUDA text is not compiled for devices: " << runtime::cuda::Nvrtc::why() << std::endl;
    return true;
  }();
  (void)said;
  return found;
}

/// Checks that the text compiles for each device.
inline void compile_for_all(const std::string& text) {
  for (const int sm : kDevices) {
    if (!nvrtc()->knows(sm)) {
      std::cout << "SKIPPED: this NVRTC does not know compute capability " << sm / 10 << '.' << sm % 10 << std::endl;
      continue;
    }
    INFO("compute capability " << sm);
    CHECK_NOTHROW(nvrtc()->compile(text, sm));
  }
}

}  // namespace onepass::test
