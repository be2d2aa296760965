// StoredValues: where the values that a plan's kernels load and store lie: in arguments, in results, or between kernels alone. The plans of the
// CPU (make_launches.cpp) and those of a device (cuda/device_plan.cpp) run the same nests, so both ask here.
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
  /// A node has one layout: where it is several results, that of the first, in `plan.outputs` too; `plan.targets` keeps the caller's.
  /// ValueError as checked_bytes.
  StoredValues(const ir::Graph& graph, PlanData& plan, std::int64_t array_bytes);

  /// The arrays that are assembled of values that kernels store at their places.
  void assemble(const compiler::Lists& lists) { lists_ = &lists; }
  /// Where what a kernel has as this buffer stands in such an array, if it does; not where it has memory of its own.
  const compiler::PlaceInArray* place_in_array(const compiler::Nest& nest, const compiler::NestNumbers& numbers,
                                               std::uint32_t buffer) const;

  /// Of inputs and outputs, by node.
  std::span<const compiler::Layout> layouts() const { return layouts_; }
  /// Which outputs a node is.
  std::span<const std::uint32_t> outputs_of(ir::NodeId id) const;
  /// Does what a kernel has as this buffer lie between kernels alone? A list never does.
  bool is_intermediate(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  /// Which of a call's base pointers are a buffer's that is no intermediate: one, or those of a list's members, or none where these are numbers.
  std::vector<std::uint32_t> bases_of(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer) const;
  std::uint32_t base_of_output(std::uint32_t output) const { return inputs_ + output; }
  std::uint32_t workspace() const { return inputs_ + outputs_; }
  std::uint32_t flag() const { return workspace() + 1; }

  /// Where an intermediate lies; fill() has to know it of all that are stored.
  void place(ir::NodeId id, std::uint32_t base, std::int64_t offset) { placed_[id] = {base, offset}; }

  /// The pointer to a buffer's first element, for the word `word`.
  KernelWords::Pointer pointer(const compiler::Nest& nest, const compiler::NestNumbers& numbers, std::uint32_t buffer,
                               std::uint32_t word) const {
    const Where it = where(nest, numbers, buffer);
    return {word, it.base, it.offset};
  }

  /// What the word of an access to a list says: the address of the table, or the number of the word in which it begins.
  enum class Table : std::uint8_t { Address, Word };
  /// Says what each call fills into `out.words`, the kernel's numbers, which get their slots, as recorded, and the tables of lists.
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
