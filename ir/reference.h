// Mode `reference`: every operator by its definition, one array at a time, with no compiler behind it. The judge of all other modes: tests
// compare with it to the bit. Called by runtime/ for that mode, by constant folding and by tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace onepass::ir {

/// An array in memory that someone else owns. Strides count elements and may be zero or negative; none given: contiguous.
/// Halves have two bytes, bool one (every value but 0 is true).
struct ArrayView {
  DType dtype;
  const void* data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides = {};
};

/// A contiguous row-major array in memory. Halves have two bytes, bool one.
struct Buffer {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::int64_t elements() const { return element_count(shape); }
  template <class T> std::span<T> as() { return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)}; }
  template <class T> std::span<const T> as() const { return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}; }
  ArrayView view() const { return {dtype, bytes.data(), shape, {}}; }
};

/// The outputs of the graph. `slot_bits` in the order of graph.slots; none given: the values that the graph was recorded with.
/// Inside, halves are f32, unrounded but at casts; outputs are rounded. InternalError where inputs or slots do not match the graph, IndexError
/// for the first index that lies outside, of the node that was recorded first. `worked` is told every so many thousand elements how many were
/// computed since; what it throws ends the evaluation.
std::vector<Buffer> evaluate(const Graph& graph, std::span<const ArrayView> inputs, std::span<const std::uint64_t> slot_bits = {},
                             const std::function<void(std::int64_t elements)>& worked = {});

/// One elementwise operator on single values, by its definition. Each value is the type that it is computed in (a half is an f32), in the low
/// bytes; the others are 0. `from`: of the last operand; `to`: of a conversion's result. Conversions alone tell halves from f32. InternalError
/// where the operator has no meaning on the type.
std::uint64_t apply(Op op, DType from, DType to, std::span<const std::uint64_t> operands);

/// The broadcasts that contractions alone read: they are not made, their operands are read with strides of 0.
std::vector<bool> unspread(const Graph& graph);

}  // namespace onepass::ir
