// Loops written by hand for bench/layouts: each what one writes who knows the processor, one thread. Sums are in whatever order is quickest.
// layouts_by_hand.cpp is compiled for the processor at hand, with fast arithmetic.
#pragma once

#include <cstdint>
#include <span>

namespace by_hand {

/// y[i...] = x permuted: axis k of y is axis permutation[k] of x. Elements are of 1, 2 or 4 bytes.
void permute(const void* x, void* y, std::span<const std::int64_t> shape, std::span<const int> permutation, int element_bytes);

/// x [n, c, m] (channels first) or [n, c] with m = 1 (channels last): sums over all but c.
void sums_first(const float* x, float* y, std::int64_t n, std::int64_t c, std::int64_t m);
void sums_last(const float* x, float* y, std::int64_t n, std::int64_t c);

/// y = (x - mean) * (1 / sqrt(var + eps)) * g + b over all but c.
void batch_norm_first(const float* x, const float* g, const float* b, float* y, std::int64_t n, std::int64_t c, std::int64_t m);
void batch_norm_last(const float* x, const float* g, const float* b, float* y, std::int64_t n, std::int64_t c);

/// Its derivatives: dx, dg, db of dy.
void batch_norm_first_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, std::int64_t n,
                               std::int64_t c, std::int64_t m);
void batch_norm_last_gradient(const float* x, const float* g, const float* dy, float* dx, float* dg, float* db, std::int64_t n,
                              std::int64_t c);

/// Over axis 0 of [n, m].
void softmax_columns(const float* x, float* y, std::int64_t n, std::int64_t m);
void standardize_columns(const float* x, float* y, std::int64_t n, std::int64_t m);

/// Along the rows of [n, m].
void cumsum_rows(const float* x, float* y, std::int64_t n, std::int64_t m);
void cummax_rows(const float* x, float* y, std::int64_t n, std::int64_t m);

/// q = clamp(round(x * scale), -127, 127) as i8; x = q / scale; both at once.
void quantize(const float* x, std::int8_t* q, std::int64_t n, float scale);
void dequantize(const std::int8_t* q, float* y, std::int64_t n, float scale);
void round_trip(const float* x, float* y, std::int64_t n, float scale);
void round_trip_rows(const float* x, float* y, std::int64_t n, std::int64_t m);

// Nested reductions.
/// y[i] = Σ_j exp(-|a_i - b_j|²) of d dimensions, points as rows.
void kernel_density(const float* a, const float* b, float* y, std::int64_t n, std::int64_t m, std::int64_t d);
/// y[i] = argmin_j |a_i - b_j|².
void nearest(const float* a, const float* b, std::int64_t* y, std::int64_t n, std::int64_t m, std::int64_t d);
/// y[i] = Σ_j 1/sqrt(|a_i - a_j|² + eps).
void potential(const float* a, float* y, std::int64_t n, std::int64_t d);

}  // namespace by_hand
