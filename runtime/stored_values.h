// StoredValues: locations of the values that a plan's kernels load and store: arguments, results, or intermediates. CPU plans
// (make_launches.cpp) and device plans (cuda/device_plan.cpp) run the same nests, so both use this class.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "compiler/lists.h"
#include "compiler/plan/nest.h"
#include "ir/graph.h"
#include "runtime/launch.h"

namespace onepass::runtime {

class StoredValues {
 public:
  /// Collects the values. A node has one layout: if it is several results, the layout of the first result, also in `plan.outputs`;
  /// `plan.targets` keeps the caller's layouts. Throws ValueError as checked_bytes.
  StoredValues(const ir::Graph& graph, PlanData& plan, std::int64_t array_bytes);

  /// Sets the arrays that are assembled from values that kernels store directly at their positions.
  void assemble(const compiler::Lists& lists) { lists_ = &lists; }
  /// Returns the position of a kernel's buffer in an assembled array; null if the buffer has separate memory.
  const compiler::PlaceInArray* place_in_array(const compiler::Nest& nest, const compiler::NestNumbers& numbers,
                                               std::uint32_t buffer) const;

  /// Returns the layouts of inputs and outputs, by node.
  std::span<const compiler::Layout> layouts() const { return layouts_; }
  /// Returns the outputs that a node represents.
  std::span<const std::uint32_t> outputs_of(ir::NodeId id) const;
  /// True if this buffer of a kernel is an intermediate. False for an array list.
  bool is_intermediate(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  /// Returns the base pointers of a buffer that is not an intermediate: a single pointer, a pointer for each array of an array list, or
  /// none for numbers.
  std::vector<std::uint32_t> bases_of(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  std::uint32_t base_of_output(std::uint32_t output) const { return inputs_ + output; }
  std::uint32_t workspace() const { return inputs_ + outputs_; }
  std::uint32_t flag() const { return workspace() + 1; }

  /// Sets the location of an intermediate. fill() requires the location of every materialized intermediate.
  void place(ir::NodeId id, std::uint32_t base, std::int64_t offset) { placed_[id] = {base, offset}; }

  /// Returns the pointer to a buffer's first element, for kernel parameter `word`.
  KernelWords::Pointer pointer(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer,
                               std::uint32_t word) const {
    const Where it = where(nest, numbers, buffer);
    return {word, it.base, it.offset};
  }

  /// The meaning of an array list access's kernel parameter: the address of the pointer table, or the parameter index where the table
  /// begins.
  enum class Table : std::uint8_t { Address, Word };
  /// Sets the entries of `out.words` that each call fills: scalar parameters, pointers and the pointer tables of array lists.
  void fill(const compiler::Nest& nest, const compiler::NestNumbers& numbers, Table table, KernelWords& out) const;

 private:
  struct Where {
    std::uint32_t base;
    std::int64_t offset;
  };
  std::uint32_t base_of(ir::NodeId id, std::size_t copy = 0) const;
  std::uint32_t base_of_array(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  Where where(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  void fill_table(std::span<const ir::NodeId> members, std::uint32_t begin, std::uint32_t word, std::int64_t offset, Table table,
                  KernelWords& out) const;

  const ir::Graph& graph_;
  const compiler::Lists* lists_ = nullptr;
  std::uint32_t inputs_, outputs_;
  std::vector<compiler::Layout> layouts_;
  std::unordered_map<ir::NodeId, std::vector<std::uint32_t>> results_;
  std::unordered_map<ir::NodeId, Where> placed_;
};

}  // namespace onepass::runtime
