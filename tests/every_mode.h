// Runs a formula in every mode, with several thread counts and vector widths, and checks that all results have equal bits.
#pragma once

#include <onepass/onepass.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "compiler/target.h"
#include "how_long.h"

namespace onepass::test {

using NamedArrays = std::vector<std::pair<std::string, Array>>;

/// Returns random values in [-1, 1], or in [-100, 100] for integer types.
inline Array random_array(std::vector<std::int64_t> shape, DType type = f32, std::uint64_t seed = 1) {
  std::int64_t n = 1;
  for (const std::int64_t e : shape) n *= e;
  std::mt19937_64 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& v : values) v = static_cast<double>(engine() % 2000001) / 1e6 - 1;
  const Array wide = Array::from(std::move(values), shape);
  if (type == f64) return wide;
  return formula((is_float(type) ? "cast(x, " : "cast(x*100, ") + std::string(name_of(type)) + ")")({wide});
}

/// Runs the formula on its inputs, which it selects from `inputs`.
inline FormulaResults run_formula(const Formula& f, const NamedArrays& inputs) {
  std::vector<NamedArgument> arguments;
  for (const auto& [name, array] : inputs)
    if (std::find(f.inputs().begin(), f.inputs().end(), name) != f.inputs().end()) arguments.push_back({name, array});
  return f(std::span<const NamedArgument>(arguments));
}

inline std::vector<std::byte> bytes_of(const Array& a) {
  const auto* data = static_cast<const std::byte*>(a.data());
  return {data, data + static_cast<std::size_t>(a.size()) * size_of(a.dtype())};
}

/// Returns options for every mode except reference. Mode generic has 1, 2, 3 and 7 threads and each vector width of the machine. In short
/// runs each width has one of these numbers of threads, and the next call returns the next.
inline std::vector<Options> modes_of_kernels() {
  static std::size_t calls = 0;
  std::size_t number = calls++;
  std::vector<Options> all = {{.mode = Mode::unfused}, {.mode = Mode::specialized}};
  constexpr int threads[] = {1, 2, 3, 7};
  if (is_full_run())
    for (const int n : threads) all.push_back({.mode = Mode::generic, .threads = n});
  for (const int bytes : {16, 32, 64}) {
    if (bytes > compiler::Target::host().vector_bytes) continue;
    all.push_back({.mode = Mode::generic, .vector_bytes = bytes});
    if (!is_full_run()) all.back().threads = threads[number++ % std::size(threads)];
  }
  return all;
}

/// Returns the first result of the reference. Checks the bits of all results in every other mode against the reference.
inline Array same_everywhere(const std::string& text, const NamedArrays& inputs) {
  const FormulaResults expected = run_formula(formula(text, {.mode = Mode::reference}), inputs);
  for (const Options& options : modes_of_kernels()) {
    const FormulaResults results = run_formula(formula(text, options), inputs);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      INFO(text << ", mode " << static_cast<int>(options.mode) << ", threads " << options.threads << ", bytes " << options.vector_bytes
                << ", result " << k);
      CHECK(bytes_of(results[k]) == bytes_of(expected[k]));
    }
  }
  return expected[0];
}

/// Returns the message of the error that the call throws, or "no error".
inline std::string error_of(const std::string& text, const NamedArrays& inputs, const Options& options = {}) {
  try {
    run_formula(formula(text, options), inputs);
  } catch (const Error& e) { return e.what(); }
  return "no error";
}

inline std::int64_t kernels(const std::string& text, const NamedArrays& inputs) {
  const Formula f = formula(text, {.mode = Mode::generic});
  run_formula(f, inputs);
  return f.stats().kernels;
}

}  // namespace onepass::test
