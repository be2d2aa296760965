// Graphs drawn from the operator table, with views inserted, and a shrinker for failing graphs. Used by tests that compare modes. A failure
// is reported as a seed and a small text, which can become a test.
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
  int nodes = 24;  // drawn nodes; casts and views that make operands fit are extra
  int inputs = 3;
  int outputs = 3;
  int max_rank = 8;
  std::int64_t max_elements = 4096;
  bool zero_sizes = true;
  bool reductions = true;
  bool products = false;  // allows reduce_prod too
  int meetings = 6;       // with reductions: one node in `meetings` is a combination that matters to fusion; 0: none
  std::vector<DType> dtypes = {f32, f64, i32, i64, u8, boolean, f16, bf16, i8, i16, u16, u32, u64};
  std::function<bool(ir::Op)> allow = {};  // allowed operators; empty: all
};

/// Returns a valid, pruned graph with named outputs. Equal seeds and options give equal graphs on every machine.
ir::Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

/// Arguments of a graph with their memory: contiguous, or strided views of larger arrays (steps, gaps, transposed, negative, zero).
struct Arguments {
  std::vector<std::vector<std::byte>> storage;
  std::vector<ir::ArrayView> views;
};
/// Returns ordinary values mixed with special values (zeros of both signs, infinities, NaN, subnormals, extremes).
Arguments random_arguments(const ir::Graph& graph, std::uint64_t seed, bool strided = false);

/// True if dtypes, shapes and bits are equal, where all NaNs count as equal. Otherwise describes the first difference in `what`, if given.
bool equals_bitwise(const ir::Buffer& a, const ir::Buffer& b, std::string* what = nullptr);
bool equals_bitwise(const std::vector<ir::Buffer>& a, const std::vector<ir::Buffer>& b, std::string* what = nullptr);

/// Returns the smallest graph found for which `fails` still holds; it must hold for `graph`. An exception from `fails` counts as failing.
/// Tries fewer outputs, operands or inputs instead of nodes, fewer nodes and smaller extents. Calls `fails` at most `budget` times.
ir::Graph shrink(ir::Graph graph, const std::function<bool(const ir::Graph&)>& fails, int budget = 5000);

/// Returns the message of a failing test: the seed, how to use it, and the shrunk graph as text.
std::string failure_report(std::uint64_t seed, const ir::Graph& shrunk);

}  // namespace onepass::test
