// Tone-maps a photograph with one formula in one pass over memory, and compares its time with a plain copy.
//
//   tone_map [OUTPUT.png]        the output is build/demo/tone_map.png unless named
#include <onepass/onepass.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "examples/common/common.h"

namespace op = onepass;
using example::seconds, example::write_png, op::Array;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return text.str();
}

// Repeats the photograph `times` times in both directions, to the size of a camera picture.
Array tiled(const Array& photo, std::int64_t times) {
  const std::int64_t height = photo.dim(0), row = photo.dim(1) * photo.dim(2);
  Array large = Array::empty({height * times, photo.dim(1) * times, photo.dim(2)}, op::u8);
  const auto from = photo.span<const std::uint8_t>();
  auto to = large.span<std::uint8_t>();
  for (std::int64_t y = 0; y < height * times; ++y)
    for (std::int64_t x = 0; x < times; ++x)
      std::memcpy(to.data() + (y * times + x) * row, from.data() + y % height * row, static_cast<std::size_t>(row));
  return large;
}

// Returns the median seconds of one call of each function. The calls alternate, so that other load on the machine affects both.
template <class F, class G> std::pair<double, double> medians(F&& first, G&& second) {
  first(), second();
  std::vector<double> one, two;
  for (const double end = seconds() + 2; seconds() < end || one.size() < 5;) {
    const double a = seconds();
    first();
    const double b = seconds();
    second();
    const double c = seconds();
    one.push_back(b - a);
    two.push_back(c - b);
  }
  std::sort(one.begin(), one.end());
  std::sort(two.begin(), two.end());
  return {one[one.size() / 2], two[two.size() / 2]};
}

void copy_on_all_cores(void* to, const void* from, std::size_t bytes) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency()), share = (bytes + cores - 1) / cores;
  const auto copy = [=](std::size_t core) {
    const std::size_t begin = std::min(core * share, bytes), end = std::min(begin + share, bytes);
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, end - begin);
  };
  std::vector<std::thread> others;
  for (std::size_t core = 1; core < cores; ++core) others.emplace_back(copy, core);
  copy(0);
  for (std::thread& other : others) other.join();
}

void tone_map(const std::string& output) {
  const std::string folder = ONEPASS_EXAMPLE_DATA;
  const Array photo = op::load_npy(folder + "/astronaut.npy");
  const std::string text = read_text(folder + "/../programs/tone_map.fuse");
  std::printf("%s\n", text.c_str());

  const op::Formula formula = op::formula(text);
  const double begin = seconds();
  const Array picture = formula({photo});
  std::printf("first call on [512, 512, 3], with loading the compiler and compiling: %.1f ms\n", (seconds() - begin) * 1e3);
  write_png(output, picture);

  const std::vector<op::FormulaArgument> large = {tiled(photo, 8)};
  const std::vector<Array> target = {Array(formula(large))};
  const op::Stats before = formula.stats();
  formula.into(target, large);
  const op::Stats after = formula.stats();
  const std::int64_t kernels = after.launches - before.launches;
  const double moved = static_cast<double>(after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written);

  const Array source = target[0].copy(), copy = target[0].copy();
  const auto [call, plain] =
      medians([&] { formula.into(target, large); },
              [&] { copy_on_all_cores(copy.mutable_data(), source.data(), static_cast<std::size_t>(source.bytes())); });

  std::printf("\nthe photograph 8 by 8 times, [%lld, %lld, 3] of u8:\n", static_cast<long long>(target[0].dim(0)),
              static_cast<long long>(target[0].dim(1)));
  std::printf(
      "  %lld kernel%s; the cast to f32, the exposure, the vignette with its two coordinates, the filmic curve, the square root and the\n"
      "  cast back to u8 are fused: each byte is read once and written once, and nothing in between is ever in memory\n",
      static_cast<long long>(kernels), kernels == 1 ? "" : "s");
  std::printf("  moved %.1f MB in %.2f ms: %.2f GB/s\n", moved / 1e6, call * 1e3, moved / call / 1e9);
  std::printf("  a plain copy of as many bytes, on all cores: %.2f ms, %.2f GB/s; the tone mapping takes %.2f times as long\n", plain * 1e3,
              2 * static_cast<double>(source.bytes()) / plain / 1e9, call / plain);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tone_map(argc > 1 ? argv[1] : "build/demo/tone_map.png");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tone_map: %s\n", error.what());
    return 1;
  }
}
