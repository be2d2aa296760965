// Graphs drawn from the operator table, with views inserted, and a shrinker for those that fail. Used by tests that compare modes: a
// failure is a seed and a small text, which then becomes a test.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/reference.h"

namespace onepass::test {

struct RandomGraphOptions {
  int nodes = 24;  // drawn ones; casts and views that make operands fit come on top
  int inputs = 3;
  int outputs = 3;
  int max_rank = 8;
  std::int64_t max_elements = 4096;
  bool zero_sizes = true;
  bool reductions = true;
  bool products = false;  // reduce_prod too
  int meetings = 6;       // with reductions: one node in so many is a few at once, of what fusion decides about; 0: none
  std::vector<DType> dtypes = {f32, f64, i32, i64, u8, boolean, f16, bf16, i8, i16, u16, u32, u64};
  std::function<bool(ir::Op)> allow = {};  // which operators; none: all
};

/// The same graph for the same seed and options, on every machine. Valid, pruned; its outputs have names.
ir::Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

/// Arguments of a graph, owned: contiguous, or strided views of larger arrays (steps, gaps, transposed, negative, zero).
struct Arguments {
  std::vector<std::vector<std::byte>> storage;
  std::vector<ir::ArrayView> views;
};
/// Ordinary values, with specials (zeros of both signs, infinities, NaN, subnormals, extremes) among them.
Arguments random_arguments(const ir::Graph& graph, std::uint64_t seed, bool strided = false);

/// Equal dtypes, shapes and bits, all NaNs being equal; else `what` (if given) says where they differ first.
bool equals_bitwise(const ir::Buffer& a, const ir::Buffer& b, std::string* what = nullptr);
bool equals_bitwise(const std::vector<ir::Buffer>& a, const std::vector<ir::Buffer>& b, std::string* what = nullptr);

/// The smallest graph found for which `fails` still holds (it holds for `graph`); an exception from `fails` counts as failing. Tries fewer
/// outputs, operands and inputs in place of nodes, fewer nodes and smaller extents. `fails` is asked at most `budget` times.
ir::Graph shrink(ir::Graph graph, const std::function<bool(const ir::Graph&)>& fails, int budget = 5000);

/// What a failing test prints: the seed, how to use it, and the shrunk graph as text.
std::string failure_report(std::uint64_t seed, const ir::Graph& shrunk);

}  // namespace onepass::test
