// See programs_by_hand.h.
#include "programs_by_hand.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace by_hand {

void k_means(const float* points, float* centers, Index n, Index k, Index d, int steps) {
  std::vector<float> sums(static_cast<std::size_t>(k * d)), counts(static_cast<std::size_t>(k));
  for (int step = 0; step < steps; ++step) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    std::fill(counts.begin(), counts.end(), 0.0f);
    for (Index i = 0; i < n; ++i) {
      Index nearest = 0;
      float least = INFINITY;
      for (Index c = 0; c < k; ++c) {
        float distance = 0;
        for (Index j = 0; j < d; ++j) {
          const float difference = points[i * d + j] - centers[c * d + j];
          distance += difference * difference;
        }
        if (distance < least) least = distance, nearest = c;
      }
      counts[static_cast<std::size_t>(nearest)] += 1;
      for (Index j = 0; j < d; ++j) sums[static_cast<std::size_t>(nearest * d + j)] += points[i * d + j];
    }
    for (Index c = 0; c < k; ++c)
      for (Index j = 0; j < d; ++j)
        centers[c * d + j] = sums[static_cast<std::size_t>(c * d + j)] / std::max(counts[static_cast<std::size_t>(c)], 1.0f);
  }
}

void z_scores(const float* x, float* out, Index time, Index series) {
  constexpr Index kWindow = 20;
  std::vector<float> mean(static_cast<std::size_t>(series)), square(static_cast<std::size_t>(series));
  for (Index t = 0; t + kWindow <= time; ++t) {
    std::fill(mean.begin(), mean.end(), 0.0f);
    std::fill(square.begin(), square.end(), 0.0f);
    for (Index k = 0; k < kWindow; ++k)
      for (Index j = 0; j < series; ++j) mean[static_cast<std::size_t>(j)] += x[(t + k) * series + j];
    for (float& m : mean) m /= kWindow;
    for (Index k = 0; k < kWindow; ++k)
      for (Index j = 0; j < series; ++j) {
        const float difference = x[(t + k) * series + j] - mean[static_cast<std::size_t>(j)];
        square[static_cast<std::size_t>(j)] += difference * difference;
      }
    for (Index j = 0; j < series; ++j)
      out[t * series + j] = (x[(t + kWindow - 1) * series + j] - mean[static_cast<std::size_t>(j)]) /
                            std::sqrt(square[static_cast<std::size_t>(j)] / kWindow);
  }
}

void asian_option(const float* normals, float s0, float sigma, float* out, Index steps, Index paths) {
  const float strike = 100, rate = 0.02f, years = 1, dt = years / static_cast<float>(steps), root = std::sqrt(dt);
  double value = 0, delta = 0, vega = 0;
  for (Index p = 0; p < paths; ++p) {
    float price = s0, by_sigma = 0, total = 0, total_by_sigma = 0;
    for (Index t = 0; t < steps; ++t) {
      const float z = normals[t * paths + p];
      const float growth = std::exp((rate - sigma * sigma / 2) * dt + sigma * root * z);
      by_sigma = growth * (by_sigma + price * (root * z - sigma * dt));
      price *= growth;
      total += price;
      total_by_sigma += by_sigma;
    }
    const float payoff = total / static_cast<float>(steps) - strike;
    if (payoff <= 0) continue;
    value += payoff;
    delta += total / s0 / static_cast<float>(steps);
    vega += total_by_sigma / static_cast<float>(steps);
  }
  const double scale = std::exp(-rate * years) / static_cast<double>(paths);
  out[0] = static_cast<float>(value * scale);
  out[1] = static_cast<float>(delta * scale);
  out[2] = static_cast<float>(vega * scale);
}

void kalman_filter(const float* measured, float* out, Index time, Index tracks) {
  constexpr float dt = 1, q = 0.01f, r = 1;
  std::vector<float> state(static_cast<std::size_t>(5 * tracks), 0.0f);
  float *const position = state.data(), *const velocity = position + tracks, *const c00 = velocity + tracks, *const c01 = c00 + tracks,
               *const c11 = c01 + tracks;
  std::fill(c00, c00 + tracks, 10.0f);
  std::fill(c11, c11 + tracks, 10.0f);
  for (Index t = 0; t < time; ++t)
#pragma GCC ivdep
    for (Index i = 0; i < tracks; ++i) {
      const float x = position[i] + dt * velocity[i];
      const float a = c00[i] + 2 * dt * c01[i] + dt * dt * c11[i] + q / 4, b = c01[i] + dt * c11[i] + q / 2, c = c11[i] + q;
      const float gain = a / (a + r), gain_v = b / (a + r), error = measured[t * tracks + i] - x;
      position[i] = x + gain * error;
      velocity[i] += gain_v * error;
      c00[i] = (1 - gain) * a;
      c01[i] = (1 - gain) * b;
      c11[i] = c - gain_v * b;
      out[t * tracks + i] = position[i];
    }
}

void unsharp_mask(const float* image, const float* weights, float* out, Index height, Index width) {
  std::vector<float> down(static_cast<std::size_t>(width + 4), 0.0f);  // blurred along the columns, between borders of zeros
  for (Index y = 0; y < height; ++y) {
    float* const row = down.data() + 2;
    std::fill(row, row + width, 0.0f);
    for (Index k = 0; k < 5; ++k) {
      const Index from = y + k - 2;
      if (from < 0 || from >= height) continue;
      for (Index x = 0; x < width; ++x) row[x] += weights[k] * image[from * width + x];
    }
    for (Index x = 0; x < width; ++x) {
      float blurred = 0;
      for (Index k = 0; k < 5; ++k) blurred += weights[k] * row[x + k - 2];
      const float pixel = image[y * width + x], detail = pixel - blurred;
      const float sharp = pixel + (std::abs(detail) > 0.01f ? 0.8f * detail : 0.0f);
      out[y * width + x] = std::min(std::max(sharp, 0.0f), 1.0f);
    }
  }
}

void mandelbrot(const float* re, const float* im, std::int32_t* out, Index n, int most) {
  for (Index i = 0; i < n; ++i) {
    float x = 0, y = 0;
    int step = 0;
    while (step < most && x * x + y * y <= 4) {
      const float next = x * x - y * y + re[i];
      y = 2 * x * y + im[i];
      x = next;
      ++step;
    }
    out[i] = step;
  }
}

void garch(const double* returns, const double* p, double* out, Index n) {
  double h = 1, d0 = 0, d1 = 0, d2 = 0, value = 0, g0 = 0, g1 = 0, g2 = 0;
  for (Index t = 0; t < n; ++t) {
    const double square = returns[t] * returns[t];
    d0 = 1 + p[2] * d0;
    d1 = square + p[2] * d1;
    d2 = h + p[2] * d2;
    h = p[0] + p[1] * square + p[2] * h;
    value += std::log(h) + square / h;
    const double by_h = 1 / h - square / (h * h);
    g0 += by_h * d0;
    g1 += by_h * d1;
    g2 += by_h * d2;
  }
  out[0] = value, out[1] = g0, out[2] = g1, out[3] = g2;
}

float logistic_step(const float* x, const float* y, const float* w, float* out, Index n, Index d) {
  std::vector<float> gradient(static_cast<std::size_t>(d), 0.0f);
  double loss = 0;
  for (Index i = 0; i < n; ++i) {
    float logit = 0;
    for (Index j = 0; j < d; ++j) logit += x[i * d + j] * w[j];
    const float e = std::exp(-std::abs(logit));
    loss += std::max(logit, 0.0f) + std::log1p(e) - y[i] * logit;
    const float error = (logit >= 0 ? 1 / (1 + e) : e / (1 + e)) - y[i];
    for (Index j = 0; j < d; ++j) gradient[static_cast<std::size_t>(j)] += error * x[i * d + j];
  }
  for (Index j = 0; j < d; ++j) out[j] = w[j] - 0.5f * gradient[static_cast<std::size_t>(j)] / static_cast<float>(n);
  return static_cast<float>(loss / static_cast<double>(n));
}

void kernel_density(const float* queries, const float* points, float* out, Index m, Index n) {
  const float bandwidth = 0.2f, scale = -0.5f / (bandwidth * bandwidth);
  for (Index i = 0; i < m; ++i) {
    float total = 0;
    for (Index j = 0; j < n; ++j) {
      const float dx = queries[2 * i] - points[2 * j], dy = queries[2 * i + 1] - points[2 * j + 1];
      total += std::exp((dx * dx + dy * dy) * scale);
    }
    out[i] = total / (static_cast<float>(n) * 2 * 3.14159265f * bandwidth * bandwidth);
  }
}

void life(const std::uint8_t* cells, std::uint8_t* out, Index height, Index width, int steps) {
  std::vector<std::uint8_t> now(cells, cells + height * width), rows(static_cast<std::size_t>(width + 2));
  for (int step = 0; step < steps; ++step) {
    for (Index y = 0; y < height; ++y) {
      const std::uint8_t *const above = now.data() + (y + height - 1) % height * width, *const here = now.data() + y * width,
                                *const below = now.data() + (y + 1) % height * width;
      for (Index x = 0; x < width; ++x) rows[static_cast<std::size_t>(x + 1)] = static_cast<std::uint8_t>(above[x] + here[x] + below[x]);
      rows[0] = rows[static_cast<std::size_t>(width)];
      rows[static_cast<std::size_t>(width + 1)] = rows[1];
      for (Index x = 0; x < width; ++x) {
        const int around =
            rows[static_cast<std::size_t>(x)] + rows[static_cast<std::size_t>(x + 1)] + rows[static_cast<std::size_t>(x + 2)];
        out[y * width + x] = around == 3 || (around == 4 && here[x] == 1);
      }
    }
    std::copy(out, out + height * width, now.begin());
  }
}

}  // namespace by_hand
