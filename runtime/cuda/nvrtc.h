// NVRTC, NVIDIA's compiler as a library: CUDA text in, a cubin out. Opened at run time, so nothing links with it and a machine without it
// is as good as any other. No device and no driver is needed to compile.
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

  /// The library, opened at the first call: the file that ONEPASS_NVRTC names, else the loader's, of the driver's major version first, else the
  /// toolkit's folder. Null where there is none, or one older than 12.0; why() says what to do.
  static const Nvrtc* find();
  static const std::string& why();

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }
  /// Whether it makes code for this compute capability (80: 8.0).
  bool knows(int sm) const;

  /// The newest that it knows of those up to this one; 0: none.
  int newest_up_to(int sm) const;

  /// Compiles with the options that the text's meaning needs. Error with the compiler's words where it refuses.
  Program compile(const std::string& text, int sm, bool report = false) const;
  /// For devices that it does not know: what the driver can compile for any from this one on.
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
