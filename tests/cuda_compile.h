// Compiles CUDA text into a shared library for the host, on top of cuda_machine.h. Used by the emulation and by the fake NVRTC.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace onepass::test {

/// Temporary folder that holds the text, the compiler's log and, if the text compiles, the library.
class CompiledText {
 public:
  /// `races`: the library of cuda_races.h sees each access. Not in builds with sanitizers.
  explicit CompiledText(const std::string& text, bool races = false)
      : folder_((std::filesystem::temp_directory_path() / "onepass-cuda-XXXXXX").string()) {
    if (!mkdtemp(folder_.data())) throw std::runtime_error("no temporary folder");
    std::ofstream(folder_ + "/text.cpp") << "#include \"" ONEPASS_SOURCE_DIR "/tests/cuda_machine.h\"\n" << text;
    const std::string log = " >> " + folder_ + "/log 2>&1", compiler = ONEPASS_CXX_COMPILER " " ONEPASS_EMULATION_FLAGS " ";
    std::string command = compiler + "-shared -o " + path() + " " + folder_ + "/text.cpp" + log;
#if defined(ONEPASS_RACES_FLAGS)
    if (races) {  // linked without the sanitizer's own library
      const std::string object = folder_ + "/text.o";
      command = compiler + ONEPASS_RACES_FLAGS " -c -o " + object + " " + folder_ + "/text.cpp" + log + " && " + compiler + "-shared -o " +
                path() + " " + object + " " ONEPASS_RACES_LIBRARY " -Wl,-rpath," ONEPASS_RACES_FOLDER + log;
    }
#endif
    (void)races;
    is_compiled_ = std::system(command.c_str()) == 0;
  }
  ~CompiledText() {
    if (std::getenv("ONEPASS_KEEP_CUDA_TEXT")) std::fprintf(stderr, "kept: %s/text.cpp\n", folder_.c_str());
    else std::filesystem::remove_all(folder_);
  }
  CompiledText(const CompiledText&) = delete;
  bool is_compiled() const { return is_compiled_; }
  std::string path() const { return folder_ + "/text.so"; }
  std::string log() const { return bytes_of(folder_ + "/log"); }
  static std::string bytes_of(const std::string& path) {
    std::stringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  }

 private:
  std::string folder_;
  bool is_compiled_ = false;
};

}  // namespace onepass::test
