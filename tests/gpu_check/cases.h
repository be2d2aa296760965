// Programs at lengths that force every kernel form and phase on a device with at least a hundred processors. Other programs have lengths at
// the limits between forms. Each program has the relevant types. Device results are compared with the CPU's, bit by bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_programs.h"

namespace onepass::test {

struct FormCase {
  std::string name;
  const char* inputs;  // as in golden.h; `k` has i64 indices into the axis `indexed`
  const char* formula;
  Extents extents, small;  // small: quick in the emulation
  DType dtype = f32;
  char indexed = 0;
};

inline std::vector<FormCase> form_cases() {
  std::vector<FormCase> out;
  const auto add = [&](std::string_view name, const char* inputs, const char* formula, const Extents& extents, const Extents& small,
                       std::initializer_list<DType> types, char indexed = 0) {
    for (const DType dtype : types)
      out.push_back({std::string(name) + ", " + std::string(name_of(dtype)), inputs, formula, extents, small, dtype, indexed});
  };
  const char* const affine = "y = x*s + 0.5";
  add("map", "x=n,m s=m", affine, {{'n', 4096}, {'m', 1024}}, {{'n', 5}, {'m', 64}}, {f32, f64, f16, bf16});
  add("map with tails", "x=n,m s=m", affine, {{'n', 4099}, {'m', 1021}}, {{'n', 5}, {'m', 61}}, {f32, bf16});
  add("map, rows of 3", "x=n,m s=m", affine, {{'n', 1000003}, {'m', 3}}, {{'n', 50}, {'m', 3}}, {f32});
  add("map, indices of 64 bits", "x=n", "y = x + 3", {{'n', (std::int64_t{1} << 31) + 37}}, {{'n', 333}}, {u8});
  const char* const sums = "s = sum(x, axis=0); m = max(x, axis=0)";
  for (const std::int64_t rows : {std::int64_t{7}, std::int64_t{40}, std::int64_t{257}, std::int64_t{70001}})
    add("columns of " + std::to_string(rows) + " rows", "x=n,m", sums, {{'n', rows}, {'m', 1024}}, {{'n', rows % 300 + 1}, {'m', 24}},
        {f32, bf16});
  add("columns, many", "x=n,m", sums, {{'n', 40}, {'m', 3000001}}, {{'n', 40}, {'m', 33}}, {f32});
  add("columns, large", "x=n,m", sums, {{'n', 32768}, {'m', 4096}}, {{'n', 300}, {'m', 24}}, {f32, f16});
  add("columns, few", "x=n,m", sums, {{'n', (1 << 22) + 5}, {'m', 5}}, {{'n', 2100}, {'m', 5}}, {f32, f64});
  const char* const rows_sums = "s = sum(x*0.5, axis=1); m = max(x, axis=1)";
  for (const std::int64_t length : {std::int64_t{5}, std::int64_t{64}, std::int64_t{1000}, std::int64_t{4096}, std::int64_t{4097},
                                    std::int64_t{8192}, std::int64_t{20003}})
    add("rows of " + std::to_string(length), "x=n,m", rows_sums, {{'n', length > 4096 ? 1537 : 4099}, {'m', length}},
        {{'n', 3}, {'m', length > 4096 ? 4100 : length}}, {f32, bf16});
  const char* const softmax = "y = softmax(x, axis=1)";
  for (const std::int64_t length : {std::int64_t{33}, std::int64_t{1024}, std::int64_t{2500}, std::int64_t{4097}, std::int64_t{50000}})
    add("softmax of " + std::to_string(length), "x=n,m", softmax, {{'n', length == 50000 ? 9 : 2051}, {'m', length}},
        {{'n', 2}, {'m', length > 4096 ? 4200 : length}}, {f32, f16, bf16});
  add("softmax, one row", "x=n,m", softmax, {{'n', 1}, {'m', (1 << 23) + 77}}, {{'n', 1}, {'m', 9001}}, {f32, bf16});
  add("sum of all", "x=n", "s = sum(x); m = max(x)", {{'n', (1 << 24) + 3}}, {{'n', 9001}}, {f32, f64, f16, bf16});
  const char* const norm = "y = layer_norm(x, g, b, axis=-1, eps=1e-5); dx, dg, db = vjp(y, [x, g, b], d)";
  for (const auto& [rows, length] :
       {std::pair<std::int64_t, std::int64_t>{4096, 768}, {1300, 1024}, {100000, 256}, {2000, 4096}, {300, 512}})
    add("layer norm, gradients, " + std::to_string(rows) + " rows of " + std::to_string(length), "x=n,m g=m b=m d=n,m", norm,
        {{'n', rows}, {'m', length}}, {{'n', 24}, {'m', 64}}, {f32, bf16});
  const char* const scans = "y = cumsum(x, axis=1)";
  add("scan of rows", "x=n,m", scans, {{'n', 4099}, {'m', 1000}}, {{'n', 3}, {'m', 100}}, {f32, bf16});
  add("scan of few long rows", "x=n,m", scans, {{'n', 3}, {'m', (1 << 22) + 9}}, {{'n', 2}, {'m', 9001}}, {f32, f64});
  const char* const down = "y = cumsum(x, axis=0) + x";
  add("scan of columns", "x=n,m", down, {{'n', 300}, {'m', 40000}}, {{'n', 40}, {'m', 9}}, {f32});
  add("scan of long columns", "x=n,m", down, {{'n', 4099}, {'m', 4000}}, {{'n', 4100}, {'m', 9}}, {f32, bf16});
  add("scan of few long columns", "x=n,m", down, {{'n', (1 << 22) + 9}, {'m', 3}}, {{'n', 9001}, {'m', 2}}, {f32, f64});
  add("scan of columns, maxima", "x=n,m", "y = cummax(x, axis=0)", {{'n', 100003}, {'m', 60}}, {{'n', 400}, {'m', 5}}, {f32});
  add("scan, maxima", "x=n,m", "y = cummax(x, axis=1)", {{'n', 515}, {'m', 9000}}, {{'n', 3}, {'m', 100}}, {f32});
  const char* const across = "y = transpose(x)*2 + w";
  for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{4096, 1024}, {4099, 1021}, {100000, 17}})
    add("transposed, " + std::to_string(n) + " by " + std::to_string(m), "x=n,m w=m,n", across, {{'n', n}, {'m', m}},
        {{'n', 70}, {'m', m % 2 ? 67 : 64}}, {f32, bf16, f64});
  add("take, rows", "x=n,m k=j", "y = take(x, k, axis=0)*2", {{'n', 30000}, {'m', 256}, {'j', 40000}}, {{'n', 30}, {'m', 8}, {'j', 40}},
      {f32, bf16}, 'n');
  add("take, elements", "x=n k=j", "y = take(x, k, axis=0)*2", {{'n', 3000000}, {'j', 1000003}}, {{'n', 300}, {'j', 90}}, {f32}, 'n');
  add("index_add, rows", "x=n,m k=j u=j,m", "y = index_add(x, k, u, axis=0)", {{'n', 5000}, {'m', 512}, {'j', 20000}},
      {{'n', 30}, {'m', 8}, {'j', 40}}, {f32, bf16}, 'n');
  add("index_add, elements", "x=n k=j u=j", "y = index_add(x, k, u, axis=0)", {{'n', 3000}, {'j', 60000}}, {{'n', 30}, {'j', 90}}, {f32},
      'n');
  add("index_add, few columns", "x=n,m k=j u=j,m", "y = index_add(x, k, u*2, axis=0)", {{'n', 70000}, {'m', 4}, {'j', 1000003}},
      {{'n', 30}, {'m', 4}, {'j', 300}}, {f32, f64, bf16}, 'n');
  add("index_add, few elements", "x=n k=j u=j", "y = index_add(x, k, u, axis=0)", {{'n', 10}, {'j', 200000}}, {{'n', 3}, {'j', 300}}, {f32},
      'n');
  add("index_add, many columns", "x=n,m k=j u=j,m", "y = index_add(x, k, u, axis=0)", {{'n', 50}, {'m', 600000}, {'j', 300}},
      {{'n', 5}, {'m', 70}, {'j', 20}}, {f32}, 'n');
  add("scatter_add along rows", "x=n,m k=n,m u=n,m", "y = scatter_add(x, k, u, axis=1)", {{'n', 4099}, {'m', 500}}, {{'n', 5}, {'m', 40}},
      {f32}, 'm');
  add("matmul", "x=n,k w=k,m", "y = x @ w", {{'n', 250}, {'k', 1000}, {'m', 130}}, {{'n', 5}, {'k', 70}, {'m', 10}}, {f32, f64, f16, bf16});
  return out;
}

}  // namespace onepass::test
