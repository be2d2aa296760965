// Elementwise nests with transposed operands.
#include "compiler/cuda/emitter.h"

#include <algorithm>

#include <fmt/format.h>

namespace onepass::compiler::cuda {

using ir::Op;

// Writes a nest with operands that are contiguous along the last outer loop, but not along the vector loop. These operands go through
// shared memory in square tiles: the kernel reads them along one loop and uses them along the other loop, with vector accesses both times.
// A tile row is padded by one element to avoid bank conflicts.
void DeviceEmitter::tiles() {
  const std::uint32_t v = nest_.vector_loop(), o = v - 1;
  const int side = schedule_.side;
  kernel_.line(fmt::format("const Index across = pieces({}, {}), down = pieces({}, {}), all = {} * across * down;", extent(v), side,
                           extent(o), side, product(0, o)));
  for (std::uint32_t access : schedule_.packed)
    kernel_.line(fmt::format("__shared__ {} tile{}[{}][{}];", type(type_of_access(access)), access, side, side + 1));
  // Loops over a tile's elements, `width` neighbors per thread and step.
  const auto places = [&](Scope& around, std::size_t width, const std::function<void(Scope&)>& f) {
    const auto places = static_cast<std::size_t>(side * side) / width;
    around.line(fmt::format("#pragma unroll {}", std::clamp<std::size_t>(places / schedule_.threads, 1, 8)));
    block(around, fmt::format("for (int at = threadIdx.x; at < {}; at += {})", places, schedule_.threads), [&](Scope& one) {
      const std::size_t of_row = static_cast<std::size_t>(side) / width;
      one.line(fmt::format("const int row = at / {0}, column = at % {0} * {1};", of_row, width));
      f(one);
    });
  };
  block(kernel_, "for (Index work = blockIdx.x; work < all; work += gridDim.x)", [&](Scope& item) {
    item_ = &item;
    item.line(fmt::format("const Index j0 = work % across * {0}, o0 = work / across % down * {0};", side));
    indices(item, 0, o, "work / (across * down)");
    item.line(fmt::format("const bool is_inside = j0 + {0} <= {1} && o0 + {0} <= {2};", side, extent(v), extent(o)));
    // Without a branch between the loads, they are in flight together.
    const auto both = [&](const std::function<void(Scope&, bool)>& f) {
      block(item, "if (is_inside)", [&](Scope& inside) { f(inside, true); });
      block(item, "else", [&](Scope& edge) { f(edge, false); });
    };
    both([&](Scope& part, bool inside) {
      for (const std::uint32_t access : schedule_.packed) {
        const bool is_vector = std::find(schedule_.across.begin(), schedule_.across.end(), access) != schedule_.across.end();
        const std::size_t width = is_vector ? 16 / size_of(type_of_access(access)) : 1;
        places(part, width, [&](Scope& read) {
          read.line(fmt::format("const Index i{} = o0 + column, j = j0 + row;", o));
          const std::string condition = inside ? "" : fmt::format("if (i{} < {} && j < {})", o, extent(o), extent(v));
          block(read, condition, [&](Scope& there) {
            const std::string from = address(access, false);
            if (!is_vector) {
              there.line(fmt::format("tile{}[row][column] = load<{}>({});", access, memory_type(type_of_access(access)), from));
              return;
            }
            there.line(fmt::format("{} x[{}];", type(type_of_access(access)), width));
            const std::string count = inside ? std::to_string(width) : fmt::format("lanes_left({}, i{}, {})", extent(o), o, width);
            there.line(fmt::format("load_vector<{}, {}>({}, {}, x);", memory_type(type_of_access(access)), width, from, count));
            there.line("#pragma unroll");
            there.line(fmt::format("for (int e = 0; e < {}; ++e) tile{}[row][column + e] = x[e];", width, access));
          });
        });
      }
    });
    item.line("__syncthreads();");
    both([&](Scope& part, bool inside) {
      places(part, schedule_.width, [&](Scope& step) {
        step_ = &step;
        step.line(fmt::format("const Index i{} = o0 + row, j = j0 + column;", o));
        if (inside) step.line("const int n = W;");
        else step.line(fmt::format("const int n = i{} < {} ? lanes_left({}, j, W) : 0;", o, extent(o), extent(v)));
        stores(step, 0);
        step_ = nullptr;
      });
    });
    item.line("__syncthreads();");
  });
}

}  // namespace onepass::compiler::cuda
