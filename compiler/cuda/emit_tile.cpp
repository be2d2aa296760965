// Maps with operands that lie across.
#include "compiler/cuda/emitter.h"

#include <fmt/format.h>

namespace onepass::compiler::cuda {

using ir::Op;

// What is one behind the other along the last outer loop, not along the vector loop, goes through shared memory in tiles of 32 by 32: read along
// the one, used along the other. A warp has a row of the tile; the rows are one element longer, so that no two of a column share a bank.
void DeviceEmitter::tiles() {
  const std::uint32_t v = nest_.vector_loop(), o = v - 1;
  kernel_.line("const int column = threadIdx.x % 32, first_row = threadIdx.x / 32;");
  kernel_.line(fmt::format("const Index across = pieces({}, 32), down = pieces({}, 32), all = {} * across * down;", extent(v), extent(o),
                           product(0, o)));
  for (std::uint32_t access : schedule_.packed)
    kernel_.line(fmt::format("__shared__ {} tile{}[32][33];", type(type_of_access(access)), access));
  block(kernel_, "for (Index work = blockIdx.x; work < all; work += gridDim.x)", [&](Scope& item) {
    item_ = &item;
    item.line("const Index j0 = work % across * 32, o0 = work / across % down * 32;");
    indices(item, 0, o, "work / (across * down)");
    item.line("#pragma unroll");
    block(item, fmt::format("for (int row = first_row; row < 32; row += {})", schedule_.threads / 32), [&](Scope& read) {
      read.line(fmt::format("const Index i{} = o0 + column, j = j0 + row;", o));
      block(read, fmt::format("if (i{} < {} && j < {})", o, extent(o), extent(v)), [&](Scope& there) {
        for (std::uint32_t access : schedule_.packed)
          there.line(
              fmt::format("tile{}[row][column] = load<{}>({});", access, memory_type(type_of_access(access)), address(access, false)));
      });
    });
    item.line("__syncthreads();");
    item.line("#pragma unroll");
    block(item, fmt::format("for (int row = first_row; row < 32; row += {})", schedule_.threads / 32), [&](Scope& step) {
      step_ = &step;
      step.line(fmt::format("const Index i{} = o0 + row, j = j0 + column;", o));
      step.line(fmt::format("const int n = i{} < {} && j < {} ? 1 : 0;", o, extent(o), extent(v)));
      stores(step, 0);
      step_ = nullptr;
    });
    item.line("__syncthreads();");
  });
}

}  // namespace onepass::compiler::cuda
