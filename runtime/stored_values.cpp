// See stored_values.h.
#include "runtime/stored_values.h"

#include <fmt/format.h>

#include "compiler/plan/schedule.h"
#include "onepass/error.h"

namespace onepass::runtime {

using compiler::Nest;
using compiler::NestNumbers;
using ir::NodeId;
using ir::Op;

StoredValues::StoredValues(const ir::Graph& graph, PlanData& plan, std::int64_t array_bytes)
    : graph_(graph),
      inputs_(static_cast<std::uint32_t>(plan.inputs.size())),
      outputs_(static_cast<std::uint32_t>(plan.outputs.size())),
      layouts_(graph.size()) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Input) layouts_[id] = plan.inputs[graph[id].bits].strides;
  for (std::uint32_t k = 0; k < graph.outputs.size(); ++k) {
    const NodeId id = graph.outputs[k];
    checked_bytes(graph, id, graph[id].dtype, array_bytes);
    std::vector<std::uint32_t>& mine = results_[id];
    mine.push_back(k);
    if (mine.size() == 1) layouts_[id] = plan.outputs[k].strides;
    else plan.outputs[k] = plan.outputs[mine[0]];
  }
}

std::span<const std::uint32_t> StoredValues::outputs_of(NodeId id) const {
  const auto it = results_.find(id);
  return it == results_.end() ? std::span<const std::uint32_t>() : it->second;
}

bool StoredValues::is_intermediate(const Nest& nest, const NestNumbers& numbers, std::uint32_t buffer) const {
  const NodeId id = numbers.buffers[buffer];
  if (!numbers.members[buffer].empty()) return false;
  if (nest.buffers[buffer].dtype != graph_[id].dtype) return true;  // a half-precision value, kept unrounded
  return !results_.contains(id) && (nest.buffers[buffer].written || graph_[id].op != Op::Input);
}

std::uint32_t StoredValues::base_of(NodeId id, std::size_t copy) const {
  const std::span<const std::uint32_t> outputs = outputs_of(id);
  return outputs.empty() ? static_cast<std::uint32_t>(graph_[id].bits) : base_of_output(outputs[copy]);
}

std::uint32_t StoredValues::base_of_array(const Nest& nest, const NestNumbers& numbers, std::uint32_t buffer) const {
  return base_of(numbers.buffers[buffer], nest.buffers[buffer].written ? static_cast<std::size_t>(numbers.outputs[buffer]) : 0);
}

std::vector<std::uint32_t> StoredValues::bases_of(const Nest& nest, const NestNumbers& numbers, std::uint32_t buffer) const {
  const std::vector<NodeId>& members = numbers.members[buffer];
  if (members.empty()) return {base_of_array(nest, numbers, buffer)};
  std::vector<std::uint32_t> out;
  for (const NodeId member : members)
    if (graph_[member].op != Op::Slot) out.push_back(base_of(member));
  return out;
}

const compiler::PlaceInArray* StoredValues::place_in_array(const Nest& nest, const NestNumbers& numbers, std::uint32_t buffer) const {
  const NodeId id = numbers.buffers[buffer];
  const std::span<const compiler::PlaceInArray> places = lists_ ? lists_->places_of(id) : std::span<const compiler::PlaceInArray>();
  if (places.empty() || !numbers.members[buffer].empty()) return nullptr;
  const std::size_t results = outputs_of(id).size();
  if (!nest.buffers[buffer].written) return results == 0 ? &places[0] : nullptr;
  const auto copy = static_cast<std::size_t>(numbers.outputs[buffer]);
  return copy < results ? nullptr : &places[copy - results];
}

StoredValues::Where StoredValues::where(const Nest& nest, const NestNumbers& numbers, std::uint32_t buffer) const {
  if (const compiler::PlaceInArray* const place = place_in_array(nest, numbers, buffer)) {
    const std::span<const std::uint32_t> outputs = outputs_of(place->array);
    const Where array = outputs.empty() ? placed_.at(place->array) : Where{base_of_output(outputs[0]), 0};
    return {array.base, array.offset + place->offset * static_cast<std::int64_t>(size_of(graph_[place->array].dtype))};
  }
  if (!is_intermediate(nest, numbers, buffer)) return {base_of_array(nest, numbers, buffer), 0};
  const NodeId id = numbers.buffers[buffer];
  if (const auto it = placed_.find(id); it != placed_.end()) return it->second;
  if (graph_.elements(id) != 0)  // empty values are never read
    throw InternalError(fmt::format("launch: %{} is read before it is stored\n{}", id, ir::print(graph_)));
  return {workspace(), 0};
}

void StoredValues::fill_table(std::span<const NodeId> members, std::uint32_t begin, std::uint32_t word, std::int64_t offset, Table table,
                              KernelWords& out) const {
  const bool numbers = graph_[members[0]].op == Op::Slot;
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    if (numbers) out.slots.push_back({begin + m, static_cast<std::uint32_t>(graph_[members[m]].bits)});
    else out.pointers.push_back({begin + m, base_of(members[m]), offset});
  }
  if (table == Table::Word) {
    out.words[word] = begin;
    return;
  }
  const std::int64_t at = begin * static_cast<std::int64_t>(sizeof(std::int64_t));
  out.pointers.push_back({word, KernelWords::Pointer::kOwnWords, numbers ? at + offset : at});
}

void StoredValues::fill(const Nest& nest, const NestNumbers& numbers, Table table, KernelWords& out) const {
  const compiler::WordLayout layout(nest);
  for (std::uint32_t s = 0; s < numbers.slots.size(); ++s) out.slots.push_back({layout.slots + s, numbers.slots[s], numbers.signs[s]});
  const std::vector<std::uint32_t> tables = compiler::append_tables(nest, numbers, out.words);
  for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
    const std::uint32_t buffer = nest.accesses[a].buffer, word = layout.pointers + a;
    const std::int64_t offset = compiler::byte_offset(nest, numbers, a);
    if (tables[a] != compiler::kNoTable) {
      fill_table(numbers.members[buffer], tables[a], word, offset, table, out);
      continue;
    }
    const Where it = where(nest, numbers, buffer);
    out.pointers.push_back({word, it.base, it.offset + offset});
  }
  if (nest.has(compiler::Statement::Kind::Place)) out.pointers.push_back({layout.flag, flag(), 0});
  for (const KernelWords::SlotWord& s : out.slots) out.words[s.word] = s.of(graph_.slots[s.slot].bits);
}

}  // namespace onepass::runtime
