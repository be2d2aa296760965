// The programs of docs/programs.md as plain C++ loops. Matrices are row-major.
#pragma once

#include <cstdint>

namespace by_hand {

using Index = std::int64_t;

/// Moves the k centers (in place) to the means of the points that are nearest to them, `steps` times. points[n, d], centers[k, d].
void k_means(const float* points, float* centers, Index n, Index k, Index d, int steps);
/// out[t, j] = (x[t + 19, j] - mean) / deviation of x[t .. t + 19, j], for x[time, series].
void z_scores(const float* x, float* out, Index time, Index series);
/// out = value, delta and vega of the Asian option of docs/programs.md; normals[steps, paths].
void asian_option(const float* normals, float s0, float sigma, float* out, Index steps, Index paths);
/// The filtered positions, for measured[time, tracks].
void kalman_filter(const float* measured, float* out, Index time, Index tracks);
void unsharp_mask(const float* image, const float* weights, float* out, Index height, Index width);
/// The step, up to `most`, in which each of n points leaves the circle of radius 2.
void mandelbrot(const float* re, const float* im, std::int32_t* out, Index n, int most);
/// out = the likelihood of returns[n] and its derivatives by the three parameters.
void garch(const double* returns, const double* p, double* out, Index n);
/// out = the new weights[d]. Returns the loss. x[n, d], y[n], w[d].
float logistic_step(const float* x, const float* y, const float* w, float* out, Index n, Index d);
/// out[m] = the density at queries[m, 2] of points[n, 2].
void kernel_density(const float* queries, const float* points, float* out, Index m, Index n);
/// cells[height, width] after `steps` steps.
void life(const std::uint8_t* cells, std::uint8_t* out, Index height, Index width, int steps);

}  // namespace by_hand
