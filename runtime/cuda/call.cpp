// call: see call.h.
#include "runtime/cuda/call.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "onepass/error.h"

namespace onepass::runtime::cuda {

using compiler::Nest;
using compiler::NestNumbers;
using ir::NodeId;

DevicePlan plan_for_device(const ir::Graph& graph, const compiler::Partition& partition, std::span<const compiler::Layout> layouts,
                           std::span<const std::int64_t> zeros, const compiler::cuda::DeviceTarget& target) {
  DevicePlan out;
  compiler::cuda::DeviceProgram program;
  std::map<std::string, compiler::cuda::DeviceKernel> kernels;  // by key: pieces with one body are one kernel
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
    for (compiler::Planned& planned : compiler::plan(graph, partition, g, layouts)) {
      std::vector<bool> aligned;
      for (std::size_t b = 0; b < planned.nest.buffers.size(); ++b) {
        const NodeId node = planned.numbers.buffers[b];
        aligned.push_back(planned.nest.buffers[b].written || graph[node].op != ir::Op::Input || zeros[graph[node].bits] % 16 == 0);
      }
      const compiler::cuda::DeviceScheduled scheduled = compiler::cuda::schedule(planned.nest, planned.numbers, target, aligned);
      const std::string key = planned.nest.key() + scheduled.schedule.key();
      auto it = kernels.find(key);
      if (it == kernels.end())
        it = kernels.emplace(key, program.add(fmt::format("kernel_{}", kernels.size()), planned.nest, scheduled.schedule)).first;
      out.launches.push_back({std::move(planned), scheduled.numbers, it->second});
    }
  out.text = program.text();
  return out;
}

std::vector<Array> call(Device& device, const ir::Graph& graph, std::span<const Array> inputs, bool unfused) {
  std::vector<compiler::Layout> layouts(graph.size());
  std::vector<ArrayPlan> memory;  // of the inputs
  std::vector<std::int64_t> zeros;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    memory.push_back(array_plan(inputs[i].dtype(), inputs[i].shape(), inputs[i].strides()));
    if (!inputs[i].is_contiguous()) layouts[graph.inputs[i].node] = memory.back().strides;
    zeros.push_back(-memory.back().low);
  }
  const DevicePlan device_plan =
      plan_for_device(graph, compiler::fuse(graph, compiler::cuda::device_fuse_options(unfused)), layouts, zeros, device.target());
  std::vector<Array> results;
  for (const NodeId id : graph.outputs) {
    const ir::List shape = graph.shape(id);
    results.push_back(Array::empty(std::span<const std::int64_t>(shape.data(), shape.size()), graph[id].dtype));
  }

  std::vector<Device::Memory> input_memory;
  std::map<std::pair<NodeId, std::int32_t>, Device::Memory> stored;
  Device::Session session(device);  // ends before the memory above goes back to the pool
  void* const module = device_plan.launches.empty() ? nullptr : session.module(device_plan.text);
  std::vector<bool> read(inputs.size());
  for (const DeviceLaunch& launch : device_plan.launches)
    for (const NodeId node : launch.planned.numbers.buffers)
      if (graph[node].op == ir::Op::Input) read[graph[node].bits] = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(memory[i].high - memory[i].low);
    input_memory.push_back(read[i] && bytes ? session.allocate(bytes) : Device::Memory());
    if (read[i]) session.upload(input_memory.back(), static_cast<const std::byte*>(inputs[i].data()) + memory[i].low, bytes);
  }
  for (const DeviceLaunch& launch : device_plan.launches) {
    const Nest& nest = launch.planned.nest;
    const NestNumbers& numbers = launch.planned.numbers;
    std::vector<std::int64_t> words = compiler::cuda::make_words(nest, numbers, launch.numbers);
    const compiler::WordLayout layout(nest);
    for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
      const std::uint32_t buffer = nest.accesses[a].buffer;
      const NodeId node = numbers.buffers[buffer];
      std::int64_t base = 0;
      if (!nest.buffers[buffer].written && graph[node].op == ir::Op::Input) {
        base = input_memory[graph[node].bits].address() + zeros[graph[node].bits];
      } else {
        const std::pair<NodeId, std::int32_t> key{node, numbers.outputs[buffer]};
        auto it = stored.find(key);
        if (it == stored.end())
          it = stored.emplace(key, session.allocate(static_cast<std::size_t>(graph.elements(node)) * size_of(nest.buffers[buffer].dtype)))
                   .first;
        base = it->second.address();
      }
      words[layout.pointers + a] = base + compiler::byte_offset(nest, numbers, a);
    }
    for (std::size_t s = 0; s < nest.slots.size(); ++s)
      words[layout.slots + s] = static_cast<std::int64_t>(graph.slots[numbers.slots[s]].bits);
    words.resize(launch.kernel.words);
    session.launch(session.function(module, launch.kernel.name), launch.kernel, launch.numbers, words);
  }
  std::map<NodeId, std::int32_t> copies;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto it = stored.find({graph.outputs[i], copies[graph.outputs[i]]++});
    if (it != stored.end()) session.download(results[i].mutable_data(), it->second, static_cast<std::size_t>(results[i].bytes()));
  }
  session.finish();
  return results;
}

}  // namespace onepass::runtime::cuda
