// Mode `reference`: computes every operator by its definition, one array at a time, without a compiler. It is the oracle of all other
// modes: tests compare with it bit for bit. Called by runtime/ for that mode, by constant folding and by tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace onepass::ir {

/// An array in memory that the caller owns. Strides count elements and may be zero or negative; empty: contiguous. Halves have two bytes,
/// bools have one byte (every value but 0 is true).
struct ArrayView {
  DType dtype;
  const void* data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides = {};
};

/// A contiguous row-major array in memory. Halves have two bytes, bools have one byte.
struct Buffer {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::int64_t elements() const { return element_count(shape); }
  template <class T> std::span<T> as() { return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)}; }
  template <class T> std::span<const T> as() const { return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}; }
  ArrayView view() const { return {dtype, bytes.data(), shape, {}}; }
};

/// Evaluates the graph and returns its outputs. `slot_bits` are in the order of graph.slots; empty: the values of the recording. Halves are
/// computed in f32 and rounded only by casts and in the outputs. After every few hundred thousand elements, `worked` receives the number
/// computed since its last call; an exception from it ends the evaluation.
///
/// Errors    InternalError if inputs or scalar parameters do not match the graph. IndexError for the first index out of range, in the node
///           that was recorded first.
std::vector<Buffer> evaluate(const Graph& graph, std::span<const ArrayView> inputs, std::span<const std::uint64_t> slot_bits = {},
                             const std::function<void(std::int64_t elements)>& worked = {});

/// Applies one elementwise operator to single values, by its definition. Each value is in the low bytes, in its computation type (f32 for a
/// half); the other bytes are 0. `from` is the type of the last operand, `to` is the type of a conversion's result. Only conversions
/// distinguish halves from f32. Throws InternalError if the operator is undefined for the type.
std::uint64_t apply(Op op, DType from, DType to, std::span<const std::uint64_t> operands);

/// Returns the broadcasts that only contractions read. They are not computed: their operands are read with strides of 0.
std::vector<bool> unspread(const Graph& graph);

}  // namespace onepass::ir
