// Hand-written single-threaded loops for bench/layouts, tuned for the processor. Sums use the fastest order. layouts_by_hand.cpp is
// compiled for the present processor, with fast arithmetic.
#pragma once

#include <cstdint>
#include <span>

namespace by_hand {

/// Computes y[i...] = x permuted: axis k of y is axis permutation[k] of x. Elements have 1, 2 or 4 bytes.
void permute(const void* x, void* y, std::span<const std::int64_t> shape, std::span<const int> permutation, int element_bytes);

/// Sums x [n, c, m] (channels first) or [n, c] with m = 1 (channels last) over all axes but c.
void sums_first(const float* x, float* y, std::int64_t n, std::int64_t c, std::int64_t m);
void sums_last(const float* x, float* y, std::int64_t n, std::int64_t c);

/// Computes y = (x - mean) * (1 / sqrt(var + eps)) * g + b over all axes but c.
void batch_norm_first(const float* x, const float* g, const float* b, float* y, std::int64_t n, std::int64_t c, std::int64_t m);
void batch_norm_last(const float* x, const float* g, const float* b, float* y, std::int64_t n, std::int64_t c);

/// Computes the derivatives dx, dg, db of batch_norm_first and batch_norm_last from dy.
void batch_norm_first_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, std::int64_t n,
                               std::int64_t c, std::int64_t m);
void batch_norm_last_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, std::int64_t n,
                              std::int64_t c);

/// Normalizes [n, m] over axis 0.
void softmax_columns(const float* x, float* y, std::int64_t n, std::int64_t m);
void standardize_columns(const float* x, float* y, std::int64_t n, std::int64_t m);

/// Scans the rows of [n, m].
void cumsum_rows(const float* x, float* y, std::int64_t n, std::int64_t m);
void cummax_rows(const float* x, float* y, std::int64_t n, std::int64_t m);

/// Computes q = clamp(round(x * scale), -127, 127) as i8; x = q / scale; or both.
void quantize(const float* x, std::int8_t* q, std::int64_t n, float scale);
void dequantize(const std::int8_t* q, float* y, std::int64_t n, float scale);
void round_trip(const float* x, float* y, std::int64_t n, float scale);
void round_trip_rows(const float* x, float* y, std::int64_t n, std::int64_t m);

// Nested reductions.
/// Computes y[i] = Σ_j exp(-|a_i - b_j|²) in d dimensions, with points as rows.
void kernel_density(const float* a, const float* b, float* y, std::int64_t n, std::int64_t m, std::int64_t d);
/// Computes y[i] = argmin_j |a_i - b_j|².
void nearest(const float* a, const float* b, std::int64_t* y, std::int64_t n, std::int64_t m, std::int64_t d);
/// Computes y[i] = Σ_j 1/sqrt(|a_i - a_j|² + eps).
void potential(const float* a, float* y, std::int64_t n, std::int64_t d);

}  // namespace by_hand
