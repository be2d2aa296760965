// NVRTC, NVIDIA's compiler as a library: compiles CUDA text to a cubin. It is opened at run time, so no linking is necessary and it is
// optional. Compilation needs no device and no driver.
#pragma once

#include <string>
#include <vector>

namespace onepass::runtime::cuda {

class Nvrtc {
 public:
  struct Program {
    std::string cubin, ptx;
    std::string log;  // with `report`: registers, spills and shared memory of each kernel
  };

  /// Returns the library, opened at the first call. Searches the file that ONEPASS_NVRTC names, else the loader's path, the driver's
  /// major version first, else the toolkit's folder. Returns null if no library is version 12.0 or later; why() returns the remedy.
  static const Nvrtc* find();
  static const std::string& why();

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }
  /// True if it supports this compute capability (80: 8.0).
  bool knows(int sm) const;

  /// Returns the newest supported compute capability that does not exceed `sm`; 0: none.
  int newest_up_to(int sm) const;

  /// Compiles with the options that the text requires. Throws Error with the compiler's message on failure.
  Program compile(const std::string& text, int sm, bool report = false) const;
  /// Compiles for unsupported newer devices: returns PTX that the driver can compile for this compute capability and later versions.
  std::string compile_ptx(const std::string& text, int sm) const;

 private:
  Nvrtc() = default;
  Program compile_for(const std::string& text, int sm, bool ptx_alone, bool report) const;
  struct Functions;
  const Functions* functions_ = nullptr;
  int major_ = 0, minor_ = 0;
  std::string path_;
  std::vector<int> architectures_;
  struct Found;
  static const Found& found();
};

}  // namespace onepass::runtime::cuda
