// Shared parts of the examples that do not use onepass: PNG output, timing.
#pragma once

#include <onepass/array.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef ONEPASS_HAVE_PNG
#include <png.h>
#endif

namespace example {

/// Writes a u8 picture as a PNG file: [height, width] for gray or [height, width, 3] for color. Creates the file's folder.
inline void write_png(const std::string& path, const onepass::Array& picture) {
#ifdef ONEPASS_HAVE_PNG
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(picture.dim(0));
  image.width = static_cast<png_uint_32>(picture.dim(1));
  image.format = picture.rank() == 2 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&image, path.c_str(), 0, picture.data(), 0, nullptr)) throw std::runtime_error(path + ": " + image.message);
  std::printf("wrote %s\n", path.c_str());
#else
  (void)picture;
  std::printf("%s is not written: this example was built without libpng\n", path.c_str());
#endif
}

inline double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Returns the median time of several calls, in seconds, without the first call.
template <class F> double time_of(F&& call, int calls = 9) {
  call();
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const double start = seconds();
    call();
    times.push_back(seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<std::size_t>(calls / 2)];
}

}  // namespace example
