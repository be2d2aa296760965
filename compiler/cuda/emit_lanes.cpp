// Reductions along the last loop: a half-warp, or a thread block of half-warps, processes a row.
#include "compiler/cuda/emitter.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/order.h"

namespace onepass::compiler::cuda {

using ir::Op;

// Writes one step of 64 r for a half-warp, from `base` on, in parts of 16 threads with W neighbors each.
void DeviceEmitter::lanes_step(Scope& around, const std::vector<std::uint32_t>& reds, const std::string& opening, const std::string& at) {
  block(around, opening, [&](Scope& s) {
    step_ = &s;
    s.line(fmt::format("const Index r = {};", at));
    bool there = false;
    reduced_indices(s, there);
    if (!schedule_.whole) {
      if (nest_.serial == 0) s.line(fmt::format("const int n = lanes_left(count{}, r, W);", sweep_));
      else s.line(fmt::format("const int n = r < count{}{} ? W : 0;", sweep_, there ? fmt::format(" && x < run{}", sweep_) : ""));
    }
    for (std::uint32_t r : reds) {
      const Statement& red = nest_.body[r];
      const std::string v = value(red.a);
      if (ir::is_contraction(red.op)) {
        s.line(fmt::format("LANES {{ {0}& lane = a{1}[(u * W + e) % {2}]; if (e < {3}) lane = fused({4}, {5}, lane); }}", type(red.dtype),
                           r, accumulators(red), schedule_.whole ? "W" : "n", v, value(red.b)));
        continue;
      }
      const std::string given = schedule_.whole ? v : fmt::format("e < n ? {} : {}::identity<{}>()", v, functor(red), type(red.dtype));
      s.line(fmt::format("LANES {{ {0}& lane = a{1}[(u * W + e) % {2}]; lane = {3}::combine<{0}>(lane, {4}); }}", type(red.dtype), r,
                         accumulators(red), functor(red), given));
    }
    stores(s, sweep_);
    step_ = nullptr;
  });
}

void DeviceEmitter::start_lanes(Scope& scope, const std::vector<std::uint32_t>& reds) {
  for (std::uint32_t r : reds) {
    const Statement& s = nest_.body[r];
    scope.line(fmt::format("{} a{}[{}];", type(s.dtype), r, accumulators(s)));
    scope.line(fmt::format("for (int i = 0; i < {}; ++i) a{}[i] = {}::identity<{}>();", accumulators(s), r, functor(s), type(s.dtype)));
  }
}

// Writes the steps of r0 .. until, which are in one summation block.
void DeviceEmitter::lanes_block(Scope& scope, const std::vector<std::uint32_t>& reds, const std::string& from, const std::string& until) {
  // Unrolls as many steps as keep eight loads in flight. Long computations hide the latency of memory anyway.
  const std::size_t loads = loads_of_step();
  const std::string loop = fmt::format("for (Index r0 = {}; r0 < {}; r0 += 64)", from, until);
  const bool unrolls = schedule_.whole && !heavy();
  block(scope, unrolls ? unrolled(scope, loads == 0 ? 4 : std::max<std::size_t>(1, 8 / loads), loop) : loop, [&](Scope& steps) {
    steps.line("#pragma unroll");
    lanes_step(steps, reds, "for (int u = 0; u < 4 / W; ++u)", "r0 + (u * 16 + t) * W");
  });
}

// Returns the number of loads from device memory per element of the row in this sweep.
std::size_t DeviceEmitter::loads_of_step() const {
  std::size_t loads = 0;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
    const Statement& s = nest_.body[i];
    const bool is_kept = kept_slot(i) < schedule_.kept.size() && first_sweep(i) < sweep_;
    loads += needed_[sweep_][i] && s.kind == Statement::Kind::Load && (s.loops & vector_bit()) && !is_kept;
  }
  return loads;
}

void DeviceEmitter::declare_kept(Scope& scope) {
  if (schedule_.kept.empty()) return;
  kernel_.line("KEPT_MEMORY");
  for (std::size_t k = 0; k < schedule_.kept.size(); ++k)
    scope.line(
        fmt::format("{0}* const kept{1} = reinterpret_cast<{0}*>(kept_memory + blockDim.x / 16 * {2} * {3}) + threadIdx.x / 16 * {2};",
                    kept_type(k), k, word(words_.tile), kept_.before[k]));
}

// Writes a sweep over a row that is a single summation block.
void DeviceEmitter::team_sweep(Scope& item, const std::vector<std::uint32_t>& reds) {
  reduced_range(item);
  start_lanes(item, reds);
  lanes_block(item, reds, "0", fmt::format("count{}", sweep_));
  for (std::uint32_t r : reds) {
    const Statement& s = nest_.body[r];
    item.line(fmt::format("const {} v{} = halved<{}, W>(a{});", type(s.dtype), r, functor(s), r));
    item.values[r] = fmt::format("v{}", r);
  }
}

// Writes the row of each half-warp. All half-warps of a warp run the same loops. A half-warp without a row uses the last row and neither
// reads nor stores.
void DeviceEmitter::row_for_each_team(Scope& item, const std::string& row, const std::string& end) {
  item.line(fmt::format("const bool is_row = {} < {};", row, end));
  item.line(fmt::format("const Index item = is_row ? {} : {} - 1;", row, end));
  row_is_there_ = "is_row";
}

void DeviceEmitter::teams() {
  kernel_.line("const int t = threadIdx.x % 16;");
  declare_kept(kernel_);
  kernel_.line(fmt::format("const Index all = {};", product(0, nest_.outer)));
  block(kernel_,
        "for (Index two = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * 2; two < all; two += Index(gridDim.x) * blockDim.x / 16)",
        [&](Scope& item) {
          item_ = &item;
          row_for_each_team(item, "two + Index(threadIdx.x / 16 % 2)", "all");
          indices(item, 0, nest_.outer, "item");
          row_by_sweeps(nest_.sweeps, [&] { team_sweep(item, reductions(sweep_)); });
          row_is_there_.clear();
        });
}

void DeviceEmitter::blocks() {
  kernel_.line("const int t = threadIdx.x % 16, team = threadIdx.x / 16;");
  kernel_.line(fmt::format("constexpr int kTeams = {};", schedule_.threads / 16));
  kernel_.line(fmt::format("const Index all = {};", product(0, nest_.outer)));
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (const Statement& s = nest_.body[i]; s.kind == Statement::Kind::Reduce) {
      kernel_.line(fmt::format("__shared__ {} leaf{}[kTeams][1], whole{}[1];", type(s.dtype), i, i));
      kernel_.line(fmt::format("__shared__ Tree<{}, {}, 1> tree{};", functor(s), type(s.dtype), i));
    }
  if (schedule_.split)
    return phases("for (Index work = blockIdx.x; work < all * parts; work += gridDim.x)", [&](Scope& item) {
      item_ = &item;
      item.line("const Index item = work % all, part = work / all;");
      indices(item, 0, nest_.outer, "item");
    });
  block(kernel_, "for (Index item = blockIdx.x; item < all; item += gridDim.x)", [&](Scope& item) {
    item_ = &item;
    indices(item, 0, nest_.outer, "item");
    row_by_sweeps(nest_.sweeps, [&] { blocks_sweep(item); });
  });
}

void DeviceEmitter::blocks_sweep(Scope& item) {
  const std::vector<std::uint32_t> reds = reductions(sweep_);
  if (!schedule_.split) reduced_range(item);
  if (reds.empty()) {
    if (any_stores(sweep_))
      lanes_step(item, reds,
                 fmt::format("for (Index r0 = {} + Index(threadIdx.x) * W; r0 < {}; r0 += Index(blockDim.x) * W)", from(), until()), "r0");
    return;
  }
  for (std::uint32_t r : reds) item.line(fmt::format("if (threadIdx.x == 0) tree{}.clear();", r));
  block(item, fmt::format("for (Index first = {}; first < {}; first += kTeams * {})", from(), until(), ir::kLaneBlock), [&](Scope& round) {
    start_lanes(round, reds);
    round.line(fmt::format("const Index begin = first + Index(team) * {};", ir::kLaneBlock));
    round.line(fmt::format("const Index end = begin + {0} < {1} ? begin + {0} : {1};", ir::kLaneBlock, until()));
    lanes_block(round, reds, "begin", "end");
    for (std::uint32_t r : reds) {
      const Statement& s = nest_.body[r];
      round.line(fmt::format("const {} sum{} = halved<{}, W>(a{});", type(s.dtype), r, functor(s), r));
      round.line(fmt::format("if (t == 0) leaf{0}[team][0] = sum{0};", r));
    }
    round.line("__syncthreads();");
    std::string pushes;  // in one loop, because a loop per sum spilled a register for compute capability 9.0
    for (std::uint32_t r : reds) pushes += fmt::format("tree{0}.push(leaf{0}[k]); ", r);
    round.line(fmt::format("if (threadIdx.x == 0) for (int k = 0; k < kTeams && first + Index(k) * {} < {}; ++k) {{ {}}}", ir::kLaneBlock,
                           until(), pushes));
    round.line("__syncthreads();");
  });
  for (std::uint32_t r : reds) item.line(fmt::format("if (threadIdx.x == 0) tree{0}.top(whole{0});", r));
  if (schedule_.split) return;  // thread 0 stores them
  item.line("__syncthreads();");
  for (std::uint32_t r : reds) {
    item.line(fmt::format("const {0} v{1} = whole{1}[0];", type(nest_.body[r].dtype), r));
    item.values[r] = fmt::format("v{}", r);
  }
}

}  // namespace onepass::compiler::cuda
