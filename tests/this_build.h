// The build that this process belongs to. Most tests are compiled once for all builds (tests/CMakeLists.txt), so they ask the process for its
// sanitizers and its folder; macros would name the build that compiled them.
#pragma once

#include <filesystem>
#include <string>

extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}

namespace onepass::test {

inline bool has_address_sanitizer() { return __asan_init != nullptr; }
inline bool has_thread_sanitizer() { return __tsan_init != nullptr; }
inline bool has_sanitizer() { return has_address_sanitizer() || has_thread_sanitizer(); }

/// The build's folder. Tests are in its folder tests, libraries in lib.
inline std::string build_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string(); }

}  // namespace onepass::test
