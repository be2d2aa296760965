// Scans: along the last loop by half-warps, along other loops by threads.
#include "compiler/cuda/emitter.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include <fmt/format.h>

#include "ir/order.h"

namespace onepass::compiler::cuda {

using ir::Op;

std::vector<std::uint32_t> DeviceEmitter::scan_statements() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Scan) out.push_back(i);
  return out;
}

void DeviceEmitter::end_of_scan_block(Scope& scope, std::uint32_t id, const char* lanes, const char* element) const {
  const Statement& s = nest_.body[id];
  scope.line(fmt::format("{0}base{1}{2} = {3}::combine<{4}>(base{1}{2}, carry{1}{2});", lanes, id, element, functor(s), type(s.dtype)));
  scope.line(fmt::format("{0}carry{1}{2} = {3}::identity<{4}>();", lanes, id, element, functor(s), type(s.dtype)));
}

// Returns the address of the block sums of a scan of one row or column. Those of all blocks are neighbors.
std::string DeviceEmitter::sums_of_scan(std::size_t scan, const std::string& sequence) const {
  return fmt::format("w.memory[{}] + 8ll * (((long long)({}) * {} + {}) * parts)", words_.shared, sequence, scan_statements().size(), scan);
}

// Writes the middle launch of split scans: the sums of the blocks become their bases. The order is a sequence for each row or column, so
// one thread adds, and the other threads of its block load and store if there are many blocks.
void DeviceEmitter::bases_of_scans(const std::string& sequences) {
  constexpr int kManyParts = 64;
  const std::vector<std::uint32_t> scans = scan_statements();
  kernel_.line(fmt::format("__shared__ long long sums[{} * kBasesEach];", schedule_.threads));
  block(kernel_, fmt::format("if (w.at[{}] == 1)", words_.phase), [&](Scope& launch) {
    launch.line(fmt::format("const Index sequences = {};", sequences));
    for (std::size_t k = 0; k < scans.size(); ++k) {
      const Statement& s = nest_.body[scans[k]];
      const std::string what = fmt::format("<{}, {}>({}, parts", functor(s), type(s.dtype), sums_of_scan(k, "sequence"));
      launch.line(fmt::format("if (parts <= {})", kManyParts));
      launch.line(
          "  for (Index sequence = Index(blockIdx.x) * blockDim.x + threadIdx.x; sequence < sequences; "
          "sequence += Index(gridDim.x) * blockDim.x)");
      launch.line(fmt::format("    bases_by_thread{});", what));
      launch.line("else");
      launch.line("  for (Index sequence = blockIdx.x; sequence < sequences; sequence += gridDim.x)");
      launch.line(fmt::format("    bases_by_block{}, sums);", what));
    }
  });
}

namespace {
const char* const kTeams =
    "for (Index work = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 16; work < {}; work += Index(gridDim.x) * blockDim.x / 16)";
}  // namespace

// Writes scans. A half-warp processes a row, 16 elements at a time, which are one group of the scan. Split scans use three launches, with a
// half-warp per block of 4,096 elements. The first launch writes the block sums. The second launch turns them into the bases of the blocks.
// The third launch computes the results.
void DeviceEmitter::scans() {
  kernel_.line("const int t = threadIdx.x % 16;");
  kernel_.line(fmt::format("const Index rows = {}, count = {};", product(0, nest_.outer), extent(nest_.vector_loop())));
  const std::vector<std::uint32_t> scans = scan_statements();
  const auto identities = [&](Scope& scope, const char* what) {
    for (std::uint32_t id : scans)
      scope.line(fmt::format("{0} {1}{2} = {3}::identity<{0}>();", type(nest_.body[id].dtype), what, id, functor(nest_.body[id])));
  };
  const auto groups = [&](Scope& scope, const char* first, bool results) {
    scope.line(fmt::format("const Index end = {0} + {1} < count ? {0} + {1} : count;", first, ir::kScanBlock));
    const std::string loop = fmt::format("for (Index group = {}; group < end; group += {})", first, ir::kScanGroup);
    block(scope, unrolled(scope, 4, loop), [&](Scope& step) {
      step_ = &step;
      step.line("const Index j = group + t;");
      step.line("const int n = j < count ? 1 : 0;");
      if (results) stores(step, 0);
      else
        for (std::uint32_t id : scans) define(id);
      step_ = nullptr;
    });
  };
  if (!schedule_.split) {
    block(kernel_, fmt::format(fmt::runtime(kTeams), "rows"), [&](Scope& item) {
      item_ = &item;
      indices(item, 0, nest_.outer, "work");
      identities(item, "base");
      block(item, fmt::format("for (Index first = 0; first < count; first += {})", ir::kScanBlock), [&](Scope& one) {
        identities(one, "carry");
        groups(one, "first", true);
        for (std::uint32_t id : scans) end_of_scan_block(one, id, "", "");
      });
    });
    return;
  }
  kernel_.line(fmt::format("const Index parts = pieces(count, {});", ir::kScanBlock));
  for (const int phase : {0, 2})
    block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, phase), [&](Scope& launch) {
      block(launch, fmt::format(fmt::runtime(kTeams), "rows * parts"), [&](Scope& item) {
        item_ = &item;
        item.line(fmt::format("const Index row = work / parts, part = work % parts, first = part * {};", ir::kScanBlock));
        indices(item, 0, nest_.outer, "row");
        identities(item, "carry"), identities(item, "base");
        const auto each_sum = [&](const char* text) {
          for (std::size_t k = 0; k < scans.size(); ++k)
            item.line(fmt::format(fmt::runtime(text), type(nest_.body[scans[k]].dtype), sums_of_scan(k, "row"), scans[k]));
        };
        if (phase == 2) each_sum("base{2} = load<{0}>({1} + 8ll * part);");
        groups(item, "first", phase == 2);
        if (phase == 0) each_sum("if (t == 0) store<{0}>({1} + 8ll * part, carry{2});");
      });
    });
  bases_of_scans("rows");
}

// ---- scans along other loops: a thread processes W columns

// Returns the loads of a step that depend on no scan: all of them, or those that the scans need.
std::vector<std::uint32_t> DeviceEmitter::loads_before_scans(bool results) const {
  std::vector<bool> behind(nest_.body.size(), false), wanted(nest_.body.size(), false);
  std::vector<std::uint32_t> out;
  const auto each_operand = [&](std::uint32_t i, auto&& visit) {
    const Statement& s = nest_.body[i];
    for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
      if (o != kNone) visit(o);
  };
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
    const Statement::Kind kind = nest_.body[i].kind;
    wanted[i] = kind == Statement::Kind::Scan || (results && kind == Statement::Kind::Store);
    behind[i] = kind == Statement::Kind::Scan;
    each_operand(i, [&](std::uint32_t o) { behind[i] = behind[i] || behind[o]; });
  }
  for (std::uint32_t i = static_cast<std::uint32_t>(nest_.body.size()); i-- > 0;) {
    if (!wanted[i]) continue;
    each_operand(i, [&](std::uint32_t o) { wanted[o] = true; });
    const Statement& s = nest_.body[i];
    if (s.kind == Statement::Kind::Load && (s.loops & inner_) && !behind[i]) out.push_back(i);
  }
  return out;
}

// Writes the scans down W columns, r from `from` to `until`, and the stores if `results` is true. The loads of several rows precede the
// scans of these rows, so that they are in flight together. Without this, the stores would separate them.
void DeviceEmitter::scan_down(Scope& item, const std::string& from, const std::string& until, bool results) {
  const std::vector<std::uint32_t> scans = scan_statements(), loads = loads_before_scans(results);
  const char* const lanes = schedule_.whole ? "W" : "all_lanes";
  std::size_t bytes = 0;  // of a row
  for (const std::uint32_t id : loads) bytes += (is_array(id) ? schedule_.width : 1) * size_of(nest_.body[id].dtype);
  const bool together = !loads.empty() && !heavy();
  const std::size_t rows = together ? std::clamp<std::size_t>(std::bit_floor(128 / bytes), 2, 32) : 1;
  const auto start = [&](Scope& step, const char* r) {
    step_ = &step;
    bool there = false;
    if (std::string_view(r) != "r") step.line(fmt::format("const Index r = {};", r));
    reduced_indices(step, there);
    step.line(fmt::format("const int n = {};", lanes));
  };
  const auto finish = [&](Scope& step) {
    if (results) stores(step, sweep_);
    else
      for (const std::uint32_t id : scans) define(id);
    step_ = nullptr;
  };
  const auto end_of_block = [&](Scope& scope, const char* r) {
    if (schedule_.one_block || schedule_.split) return;
    block(scope, fmt::format("if ({0} > 0 && {0} % {1} == 0)", r, ir::kScanBlock), [&](Scope& next) {
      for (std::uint32_t id : scans) end_of_scan_block(next, id, "LANES ", "[e]");
    });
  };
  item.line(fmt::format("Index group = {};", from));
  if (together)
    block(item, fmt::format("for (; group + {0} <= {1}; group += {0})", rows, until), [&](Scope& several) {
      end_of_block(several, "group");
      for (const std::uint32_t id : loads)
        several.line(fmt::format("{} x{}[{}]{};", type(nest_.body[id].dtype), id, rows, is_array(id) ? "[W]" : ""));
      const std::string each = fmt::format("for (int k = 0; k < {}; ++k)", rows);
      several.line("#pragma unroll");
      block(several, each, [&](Scope& step) {
        start(step, "group + k");
        for (const std::uint32_t id : loads) {
          const std::string loaded = value(id);
          step.line(is_array(id) ? fmt::format("LANES x{}[k][e] = {};", id, loaded) : fmt::format("x{}[k] = {};", id, loaded));
        }
        step_ = nullptr;
      });
      several.line("#pragma unroll");
      block(several, each, [&](Scope& step) {
        start(step, "group + k");
        for (const std::uint32_t id : loads) step.values[id] = fmt::format("x{}[k]", id);
        finish(step);
      });
    });
  block(item, unrolled(item, 1, fmt::format("for (Index r = group; r < {}; ++r)", until)), [&](Scope& step) {
    end_of_block(step, "r");
    start(step, "r");
    finish(step);
  });
}

// Writes scans of few columns as three launches, like those of few rows. Thread blocks share the blocks of a column.
void DeviceEmitter::split_column_scans(const std::string& loop, const std::function<void(Scope&)>& open) {
  const std::vector<std::uint32_t> scans = scan_statements();
  kernel_.line(fmt::format("const Index parts = {}, length = {};", word(words_.chunks), word(words_.chunk)));
  for (const int phase : {0, 2})
    block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, phase), [&](Scope& launch) {
      block(launch, loop, [&](Scope& item) {
        open(item);
        sweep_ = 0;
        if (phase == 0) first_part_stores(item, 0);
        reduced_range(item);
        item.line("const Index from = part * length;");
        item.line("const Index until = from + length < count0 ? from + length : count0;");
        for (std::size_t k = 0; k < scans.size(); ++k) {
          const Statement& s = nest_.body[scans[k]];
          item.line(fmt::format("{0} carry{1}[W], base{1}[W];", type(s.dtype), scans[k]));
          item.line(fmt::format("LANES carry{0}[e] = {1}::identity<{2}>();", scans[k], functor(s), type(s.dtype)));
          if (phase == 2)
            item.line(
                fmt::format("LANES base{}[e] = load<{}>({} + 8ll * part);", scans[k], type(s.dtype), sums_of_scan(k, "chunk * W + e")));
          else item.line(fmt::format("LANES base{0}[e] = carry{0}[e];", scans[k]));
        }
        scan_down(item, "from", "until", phase == 2);
        if (phase == 0)
          for (std::size_t k = 0; k < scans.size(); ++k)
            item.line(fmt::format("LANES store<{}>({} + 8ll * part, carry{}[e]);", type(nest_.body[scans[k]].dtype),
                                  sums_of_scan(k, "chunk * W + e"), scans[k]));
      });
    });
  bases_of_scans("all * W");
}

}  // namespace onepass::compiler::cuda
