// A relief map: real elevations, lit by a low sun and by lights all around. Slopes are computed from shifted slices of one array, which
// are never stored in memory.
//
//   hillshade [OUTPUT.png]       the output is build/demo/hillshade.png unless named
#include <onepass/onepass.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numbers>
#include <stdexcept>
#include <tuple>

#include "examples/common/common.h"

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

constexpr double kRowMetres = 92.7;                   // three arc seconds of latitude
constexpr double kColumnMetres = kRowMetres * 0.805;  // three arc seconds of longitude at 36.4 degrees north

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

struct Slope {
  Tensor steepness, aspect;  // radians: slope of the ground, and compass direction that it faces, clockwise from north
};

// Computes slopes by Horn's method: differences across the eight neighbors of each inner point.
Slope slope_of(Tensor z) {
  const std::int64_t rows = z.dim(0), columns = z.dim(1);
  const auto neighbour = [&](std::int64_t down, std::int64_t right) {
    return z[{op::Range{1 + down, rows - 1 + down}, op::Range{1 + right, columns - 1 + right}}];
  };
  const Tensor east =
      (neighbour(-1, 1) + 2 * neighbour(0, 1) + neighbour(1, 1)) - (neighbour(-1, -1) + 2 * neighbour(0, -1) + neighbour(1, -1));
  const Tensor south =
      (neighbour(1, -1) + 2 * neighbour(1, 0) + neighbour(1, 1)) - (neighbour(-1, -1) + 2 * neighbour(-1, 0) + neighbour(-1, 1));
  const Tensor dx = east / (8 * kColumnMetres), dy = south / (8 * kRowMetres);
  return {atan(hypot(dx, dy)), atan2(-dx, dy)};
}

// Returns the light on the ground from a direction: the cosine of the angle to its normal, or 0 if it faces away. The cosine of a
// difference is written out, so that all lights share the sines and cosines of the ground: a repeated expression is recorded as the same
// node.
Tensor light(const Slope& ground, double azimuth, double altitude) {
  const Tensor towards = cos(ground.aspect) * std::cos(radians(azimuth)) + sin(ground.aspect) * std::sin(radians(azimuth));
  return maximum(0, std::sin(radians(altitude)) * cos(ground.steepness) + std::cos(radians(altitude)) * sin(ground.steepness) * towards);
}

Tensor relief(Tensor elevation, Tensor exaggeration) {
  const Slope ground = slope_of(cast(elevation, op::f32) * exaggeration);
  Tensor sky = 0;  // a plain C++ loop: the graph only contains its twelve lights
  for (int i = 0; i < 12; ++i) sky += light(ground, 30.0 * i, 35);
  return cast(255 * minimum(1, 0.75 * light(ground, 315, 40) + 0.4 / 12 * sky), op::u8);
}

// Computes one point by hand.
double plain_relief(const std::int16_t* z, std::int64_t columns, double exaggeration) {
  const auto at = [&](std::int64_t down, std::int64_t right) { return exaggeration * z[down * columns + right]; };
  const double dx = ((at(-1, 1) + 2 * at(0, 1) + at(1, 1)) - (at(-1, -1) + 2 * at(0, -1) + at(1, -1))) / (8 * kColumnMetres);
  const double dy = ((at(1, -1) + 2 * at(1, 0) + at(1, 1)) - (at(-1, -1) + 2 * at(-1, 0) + at(-1, 1))) / (8 * kRowMetres);
  const double steepness = std::atan(std::hypot(dx, dy)), aspect = std::atan2(-dx, dy);
  const auto light = [&](double azimuth, double altitude) {
    return std::max(0.0, std::sin(radians(altitude)) * std::cos(steepness) +
                             std::cos(radians(altitude)) * std::sin(steepness) * std::cos(aspect - radians(azimuth)));
  };
  double sky = 0;
  for (int i = 0; i < 12; ++i) sky += light(30.0 * i, 35);
  return 255 * std::min(1.0, 0.75 * light(315, 40) + 0.4 / 12 * sky);
}

void hillshade(const char* output) {
  const Array elevation = op::load_npy(ONEPASS_EXAMPLE_DATA "/jacksboro_elevation.npy");
  const auto shade = op::compile(relief);
  constexpr double kExaggeration = 2.5;
  const Array picture = shade(elevation, kExaggeration);
  example::write_png(output, picture);

  const auto z = elevation.span<const std::int16_t>();
  const std::int64_t columns = elevation.dim(1);
  for (std::int64_t i = 0; i < picture.dim(0); ++i)
    for (std::int64_t j = 0; j < picture.dim(1); ++j) {
      const double expected = plain_relief(z.data() + (i + 1) * columns + j + 1, columns, kExaggeration);
      if (std::abs(picture.at<std::uint8_t>({i, j}) + 0.5 - expected) > 0.51) throw std::runtime_error("a point is wrong");
    }

  const double time = example::time_of([&] { shade.into(picture)(elevation, kExaggeration); });
  std::printf("[%lld, %lld] points of i16, nine neighbours each, thirteen lights: %lld kernel(s), %.2f ms, %.1f ns a point\n%s",
              static_cast<long long>(elevation.dim(0)), static_cast<long long>(columns), static_cast<long long>(shade.stats().kernels),
              1e3 * time, 1e9 * time / static_cast<double>(picture.size()), shade.explain().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    hillshade(argc > 1 ? argv[1] : "build/demo/hillshade.png");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hillshade: %s\n", error.what());
    return 1;
  }
}
