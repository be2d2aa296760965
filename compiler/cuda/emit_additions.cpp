// Additions at data-dependent indices that few columns have: the updates are sorted by the element that they add to.
#include "compiler/cuda/emitter.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace onepass::compiler::cuda {

using ir::Op;

// Writes the sorted additions of a nest (sorts_additions in schedule.h). Phase 0 writes the key and the number of each update; the key is
// the number of its element among the elements of all groups. The next phases sort them, stably, four bits in three launches. In the last
// phase, a thread has an element, in W columns, and adds the updates of this element in order.
//
// A group is an iteration of the kept loops that the index depends on. The other kept loops are free: an update is sorted once for them.
void DeviceEmitter::sorted_additions() {
  const Statement& add = *nest_.addition();
  const std::uint32_t first = nest_.outer, last = nest_.outer + nest_.serial;
  const AdditionGroups by = addition_groups(nest_);
  const std::string along = extent(nest_.vector_loop());
  kernel_.line(fmt::format("const Index targets = {}, serial = {};", word(words_.bounds + nest_.body[add.b].at), product(first, last)));
  kernel_.line(
      fmt::format("const Index columns = {}, groups = {} * columns;", by.vector ? along : "1", by.outer ? product(0, first) : "1"));
  kernel_.line(fmt::format("const Index chunks = {};", by.vector ? "1" : fmt::format("pieces({}, W)", along)));
  kernel_.line(fmt::format("const Index free = {} * chunks, updates = serial * groups;", by.outer ? "1" : product(0, first)));
  kernel_.line(fmt::format("Index* const memory = reinterpret_cast<Index*>(w.memory[{}]);", words_.shared));
  kernel_.line(fmt::format("const int phase = int(w.at[{}]), last = int({});", words_.phase, word(words_.chunk)));
  kernel_.line("__shared__ __align__(16) int counts[16 * 256], sums[256];");
  block(kernel_, "if (phase == 0)", [&](Scope& launch) {
    block(launch, "for (Index q = Index(blockIdx.x) * blockDim.x + threadIdx.x; q < updates; q += Index(gridDim.x) * blockDim.x)",
          [&](Scope& update) {
            item_ = step_ = &update;
            update.line("const Index g = q % groups, p = q / groups;");
            if (by.outer) indices(update, 0, first, "g / columns");
            if (by.vector) update.line("const Index j = g % columns;");
            indices(update, first, last, "p");
            update.line("const int n = 1;");
            const std::string place = define(add.b) + (is_array(add.b) ? "[0]" : "");
            update.line(fmt::format("memory[q] = g * targets + Index({});", place));
            update.line("memory[updates + q] = q;");
          });
  });
  kernel_.line("if (phase > 0 && phase < last) sort_updates(phase, memory, updates, counts, sums);");
  block(kernel_, "if (phase == last)", [&](Scope& launch) {
    launch.line("const Index* const keys = memory + (last - 1) / 3 % 2 * 2 * updates;");
    launch.line("const Index* const sorted = keys + updates;");
    block(launch,
          "for (Index work = Index(blockIdx.x) * blockDim.x + threadIdx.x; work < updates * free; work += Index(gridDim.x) * blockDim.x)",
          [&](Scope& item) {
            item_ = step_ = &item;
            item.line("const Index q = work / free, f = work % free, key = keys[q];");
            item.line("if (q > 0 && keys[q - 1] == key) continue;");
            item.line("const Index g = key / targets;");
            item.line(is_array(add.b) ? "const long long place[W] = {key % targets};" : "const long long place = key % targets;");
            item.values[add.b] = "place";
            item.line(fmt::format("const Index j = {};", by.vector ? "g % columns" : "f % chunks * W"));
            item.line(fmt::format("const int n = {};", schedule_.whole ? "W" : fmt::format("lanes_left({}, j, W)", along)));
            indices(item, 0, first, by.outer ? "g / columns" : "f / chunks");
            updates_of_element(item, add);
          });
  });
  item_ = step_ = nullptr;
}

// Writes the sum of an element: loads it, adds its updates in order, the loads of several updates in flight together, and stores it.
void DeviceEmitter::updates_of_element(Scope& item, const Statement& add) {
  const DType dtype = type_of_access(add.at), of_update = nest_.body[add.a].dtype;
  const std::string_view memory = memory_type(dtype);
  const bool vector = moves_as_vector(add.at);
  const std::string at = address(add.at, !vector);
  item.line(fmt::format("{} y[W];", type(dtype)));
  item.line(vector ? fmt::format("load_vector<{}, W>({}, n, y);", memory, at)
                   : fmt::format("LANES y[e] = e < n ? load<{}>({}) : constant<{}>(0);", memory, at, type(dtype)));
  const std::size_t bytes = schedule_.width * size_of(of_update);
  const std::size_t together = heavy() ? 1 : std::clamp<std::size_t>(std::bit_floor(128 / bytes), 2, 8);
  const std::string each = fmt::format("for (int k = 0; k < {}; ++k)", together);
  item.line("bool more = true;");
  block(item, fmt::format("for (Index s = q; more; s += {})", together), [&](Scope& several) {
    several.line("int many = 0;");
    several.line(fmt::format("#pragma unroll\n{}{} many += s + k < updates && keys[s + k] == key;", several.indent(), each));
    several.line(fmt::format("more = many == {};", together));
    several.line(fmt::format("{} x[{}][W];", type(of_update), together));
    several.line("#pragma unroll");
    block(several, each, [&](Scope& step) {
      step_ = &step;
      step.line("const Index p = sorted[k < many ? s + k : q] / groups;");
      indices(step, nest_.outer, nest_.outer + nest_.serial, "p");
      step.values[add.b] = "place";
      const std::string update = value(add.a);
      step.line(fmt::format("LANES x[k][e] = {};", update));
      step_ = &item;
    });
    several.line("#pragma unroll");
    several.line(fmt::format("{} LANES if (k < many) y[e] = {};", each, program_.call(Op::Add, dtype, "", {"y[e]", "x[k][e]"})));
  });
  item.line(vector ? fmt::format("store_vector<{}, W>({}, n, y);", memory, at)
                   : fmt::format("LANES if (e < n) store<{}>({}, y[e]);", memory, at));
}

}  // namespace onepass::compiler::cuda
