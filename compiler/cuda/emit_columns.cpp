// Elementwise nests, and reductions along loops other than the last loop: a thread processes W neighbors.
#include "compiler/cuda/emitter.h"

#include <fmt/format.h>

#include "ir/order.h"

namespace onepass::compiler::cuda {

using ir::Op;

void DeviceEmitter::chunks() {
  if (schedule_.split && nest_.addition()) return sorted_additions();
  const std::uint32_t v = nest_.vector_loop();
  const std::string along = schedule_.width == 1 ? extent(v) : fmt::format("pieces({}, W)", extent(v));
  kernel_.line(fmt::format("const Index chunks = {};", along));
  kernel_.line(fmt::format("const Index all = chunks * {};", product(0, nest_.outer)));
  const auto item_of = [&](Scope& item) {
    item_ = &item;
    if (nest_.outer == 0) {
      item.line("const Index j = chunk * W;");
    } else {
      item.line("const Index j = chunk % chunks * W;");
      indices(item, 0, nest_.outer, "chunk / chunks");
    }
    if (!schedule_.whole) item.line(fmt::format("const int n = lanes_left({}, j, W);", extent(v)));
    if (reduces() && !schedule_.whole) item.line("const int all_lanes = n;");
  };
  if (schedule_.together) {
    kernel_.line(fmt::format("constexpr int kPlaces = {};", schedule_.together));
    kernel_.line("const int place = threadIdx.x % kPlaces, eight = threadIdx.x / kPlaces;");
    kernel_.line("const Index shares = pieces(all, kPlaces);");
    return phases("for (Index work = blockIdx.x; work < shares * parts; work += gridDim.x)", [&](Scope& item) {
      item.line("const Index wanted = work % shares * kPlaces + place, part = work / shares;");
      item.line("const bool is_there = wanted < all;");
      item.line("const Index chunk = is_there ? wanted : all - 1;");
      item_of(item);
    });
  }
  if (schedule_.split) {
    const char* const loop =
        "for (Index work = Index(blockIdx.x) * blockDim.x + threadIdx.x; work < all * parts; work += Index(gridDim.x) * blockDim.x)";
    const auto open = [&](Scope& item) {
      item.line("const Index chunk = work % all, part = work / all;");
      item_of(item);
    };
    return scan_statements().empty() ? phases(loop, open) : split_column_scans(loop, open);
  }
  block(kernel_, "for (Index chunk = Index(blockIdx.x) * blockDim.x + threadIdx.x; chunk < all; chunk += Index(gridDim.x) * blockDim.x)",
        [&](Scope& item) {
          item_of(item);
          if (!reduces()) return stores(item, 0);
          row_by_sweeps(nest_.sweeps, [&] { columns_sweep(item); });
        });
}

void DeviceEmitter::columns_sweep(Scope& item) {
  const std::vector<std::uint32_t> reds = reductions(sweep_);
  if (reds.empty() && !any_stores(sweep_)) return;
  if (!schedule_.split) reduced_range(item);
  bool all_there = false;  // all rows of the step exist
  const auto step = [&](Scope& s) {
    step_ = &s;
    bool there = false;
    reduced_indices(s, there);
    if (all_there) s.line("const int n = W;");
    else
      s.line(fmt::format("const int n = r < {}{} ? {} : 0;", schedule_.together ? "limit" : fmt::format("count{}", sweep_),
                         there ? fmt::format(" && x < run{}", sweep_) : "", schedule_.whole ? "W" : "all_lanes"));
    for (std::uint32_t r : reds) {
      const std::string v = value(nest_.body[r].a);
      const Statement& red = nest_.body[r];
      if (ir::is_contraction(red.op)) {  // one by one, in sequence
        s.line(fmt::format("LANES if (e < n) v{0}[e] = fused({1}, {2}, v{0}[e]);", r, v, value(red.b)));
        continue;
      }
      s.line(fmt::format("LANES join_eight<{0}>(k, e < n ? {1} : {0}::identity<{2}>(), p{3}[e], v{3}[e]);", functor(red), v,
                         type(red.dtype), r));
    }
    stores(s, sweep_);
    step_ = nullptr;
  };
  if (!scan_statements().empty()) {
    for (std::uint32_t id : scan_statements()) {
      const Statement& s = nest_.body[id];
      item.line(fmt::format("{0} carry{1}[W], base{1}[W];", type(s.dtype), id));
      item.line(fmt::format("LANES carry{0}[e] = base{0}[e] = {1}::identity<{2}>();", id, functor(s), type(s.dtype)));
    }
    return scan_down(item, "Index(0)", fmt::format("count{}", sweep_), true);
  }
  if (reds.empty()) {
    const std::string rows = schedule_.together ? fmt::format("for (Index r = {} + eight; r < {}; r += 32)", from(), until())
                                                : fmt::format("for (Index r = {}; r < {}; ++r)", from(), until());
    block(item, rows, step);
    return;
  }
  for (std::uint32_t r : reds) {
    const Statement& s = nest_.body[r];
    item.values[r] = fmt::format("v{}", r);
    item.line(fmt::format("{0} v{1}[W], p{1}[W][3];", type(s.dtype), r));
    item.line(fmt::format("LANES v{}[e] = {}::identity<{}>();", r, functor(s), type(s.dtype)));
    if (!schedule_.one_block) {
      item.line(fmt::format("Tree<{}, {}, W> tree{};", functor(s), type(s.dtype), r));
      item.line(fmt::format("tree{}.clear();", r));
    }
  }
  if (schedule_.together) {
    // One summation block at a time: each thread sums a tree of eight rows, and one thread adds these trees in sequence.
    block(item, fmt::format("for (Index block = {}; block < {}; block += {})", from(), until(), ir::kRowBlock), [&](Scope& whole) {
      whole.line(fmt::format("const Index group = block + eight * {};", ir::kRowGroup));
      for (std::uint32_t r : reds)
        whole.line(fmt::format("LANES v{}[e] = {}::identity<{}>();", r, functor(nest_.body[r]), type(nest_.body[r].dtype)));
      const auto eight = [&](Scope& scope) {
        scope.line(heavy() || (schedule_.whole && !all_there) ? "#pragma unroll 1" : "#pragma unroll");
        block(scope, fmt::format("for (int k = 0; k < {}; ++k)", ir::kRowGroup), [&](Scope& s) {
          s.line("const Index r = group + k;");
          step(s);
        });
      };
      if (schedule_.whole && nest_.runs == 0 && !heavy()) {  // without a branch between the loads, all eight loads are in flight together
        all_there = true;
        block(whole, fmt::format("if (group + {} <= limit)", ir::kRowGroup), eight);
        all_there = false;
        block(whole, "else", eight);
      } else {
        eight(whole);
      }
      for (std::uint32_t r : reds)
        whole.line(fmt::format("in_sequence<{}, W, kPlaces>(eight, place, v{}, exchanged);", functor(nest_.body[r]), r));
      std::string pushes;
      for (std::uint32_t r : reds) pushes += fmt::format("tree{0}.push(v{0}); ", r);
      whole.line(fmt::format("if (eight == 0) {{ {}}}", pushes));
    });
    for (std::uint32_t r : reds) item.line(fmt::format("if (eight == 0) tree{0}.top(v{0});", r));
    return;
  }
  block(item, fmt::format("for (Index group = {}; group < {}; group += {})", from(), until(), ir::kRowGroup), [&](Scope& group) {
    if (!schedule_.one_block)
      block(group, fmt::format("if (group > {} && group % {} == 0)", from(), ir::kRowBlock), [&](Scope& whole) {
        for (std::uint32_t r : reds) {
          whole.line(fmt::format("tree{0}.push(v{0});", r));
          whole.line(fmt::format("LANES v{}[e] = {}::identity<{}>();", r, functor(nest_.body[r]), type(nest_.body[r].dtype)));
        }
      });
    group.line(heavy() ? "#pragma unroll 1" : "#pragma unroll");
    block(group, fmt::format("for (int k = 0; k < {}; ++k)", ir::kRowGroup), [&](Scope& s) {
      s.line("const Index r = group + k;");
      step(s);
    });
  });
  if (!schedule_.one_block)
    for (std::uint32_t r : reds) item.line(fmt::format("tree{0}.push(v{0}), tree{0}.top(v{0});", r));
}

}  // namespace onepass::compiler::cuda
