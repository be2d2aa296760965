// Rows and columns in one pass. A thread block processes eight rows, which are a tree of the summation order. During row reductions, each
// row has a half-warp. Then each thread processes W columns through the eight rows, stores their values and adds them up.
//
// The column sums of eight (or 256) rows are written to device memory. The next launches add them and compute the values that depend on
// columns.
#include <fmt/format.h>

#include "compiler/cuda/emitter.h"
#include "ir/order.h"

namespace onepass::compiler::cuda {

// Returns the address of a column's partial sums. `part` counts groups of eight rows, or blocks; block sums follow the groups' sums.
std::string DeviceEmitter::part_of_column(std::uint32_t column, const std::string& part) const {
  return fmt::format("left{} + {} * ((long long)({}) * pitch + r)", column, size_of(nest_.body[column].dtype), part);
}

// Returns the values that a row has only once and that computations along the row need. One thread of the row shares them.
std::vector<std::uint32_t> DeviceEmitter::values_of_rows() const {
  std::vector<bool> wanted(nest_.body.size(), false);
  const std::vector<bool>& needed = needed_[nest_.sweeps - 1u];
  const auto of_row = [&](const Statement& s) {
    return !(s.loops & inner_) && (s.loops || s.stage > 0) && s.kind != Statement::Kind::Slot && s.kind != Statement::Kind::Constant;
  };
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
    const Statement& s = nest_.body[i];
    const bool column = s.kind == Statement::Kind::Reduce && s.stage == nest_.sweeps;
    if ((!needed[i] && !column) || !(s.loops & inner_) || (kept_slot(i) < schedule_.kept.size() && first_sweep(i) + 1 < nest_.sweeps))
      continue;
    for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
      if (o != kNone && of_row(nest_.body[o])) wanted[o] = true;
  }
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (wanted[i]) out.push_back(i);
  return out;
}

// Declares the cached values of one of the eight rows.
void DeviceEmitter::own_kept(Scope& scope, const char* row) const {
  for (std::size_t k = 0; k < schedule_.kept.size(); ++k)
    scope.line(fmt::format("{0}* const kept{1} = all_kept{1} + {2} * pitch;", kept_type(k), k, row));
}

void DeviceEmitter::rows_and_columns() {
  sweep_ = static_cast<std::uint8_t>(nest_.sweeps - 1);
  const std::vector<std::uint32_t> columns = reductions(sweep_), of_rows = values_of_rows();
  kernel_.line("const int t = threadIdx.x % 16, team = threadIdx.x / 16;");
  kernel_.line(fmt::format("const Index rows = {}, count = {}, pitch = {};", product(0, nest_.outer), product(nest_.outer, nest_.loops()),
                           word(words_.tile)));
  kernel_.line(fmt::format("const Index parts = {}, length = {};", word(words_.chunks), word(words_.chunk)));
  if (schedule_.by_eight) kernel_.line(fmt::format("const Index blocks = pieces(rows, {});", ir::kRowBlock));
  std::size_t before = 0;
  for (const std::uint32_t c : columns) {
    kernel_.line(fmt::format("char* const left{} = w.memory[{}] + {}ll * ({}) * pitch;", c, words_.shared, before,
                             schedule_.by_eight ? "parts + blocks" : "parts"));
    before += size_of(nest_.body[c].dtype);
  }
  declare_kept_rows(columns);
  for (const std::uint32_t id : of_rows)
    kernel_.line(fmt::format("__shared__ {} row{}[{}];", type(nest_.body[id].dtype), id, ir::kRowGroup));

  const bool has_rows = nest_.sweeps > 1 || !of_rows.empty() || stores_of_rows();
  block(kernel_, fmt::format("if (w.at[{}] == 0)", words_.phase), [&](Scope& launch) {
    block(launch, "for (Index part = blockIdx.x; part < parts; part += gridDim.x)", [&](Scope& part) {
      part.line("const Index begin = part * length, end = begin + length < rows ? begin + length : rows;");
      block(part, fmt::format("for (Index first = begin; first < end; first += {})", ir::kRowGroup), [&](Scope& group) {
        if (has_rows) {
          block(group, "", [&](Scope& item) { row_of_team(item, of_rows); });
          group.line("__syncthreads();");
        }
        eight_rows(group, columns, of_rows);
        if (has_rows) group.line("__syncthreads();");
      });
    });
  });
  if (schedule_.by_eight) sums_of_blocks(columns);
  column_results(columns);
}

// Declares the shared memory: eight rows of each value cached between sweeps, then a row of accumulators per column.
void DeviceEmitter::declare_kept_rows(const std::vector<std::uint32_t>& columns) {
  if (schedule_.kept.empty() && schedule_.by_eight) return;
  kernel_.line("KEPT_MEMORY");
  const auto declare = [&](const std::string& name, std::string_view element, std::int64_t before) {
    kernel_.line(fmt::format("{0}* const {1} = reinterpret_cast<{0}*>(kept_memory + {2} * pitch);", element, name, before));
  };
  for (std::size_t k = 0; k < schedule_.kept.size(); ++k)
    declare(fmt::format("all_kept{}", k), kept_type(k), ir::kRowGroup * kept_.before[k]);
  if (schedule_.by_eight) return;
  std::int64_t before = ir::kRowGroup * kept_.bytes;
  for (const std::uint32_t c : columns) {
    declare(fmt::format("sum{}", c), type(nest_.body[c].dtype), before);
    before += static_cast<std::int64_t>(size_of(nest_.body[c].dtype));
  }
}

bool DeviceEmitter::stores_of_rows() const {
  const std::vector<bool> behind = nest_.behind_columns();
  for (std::size_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Store && !behind[i] && !(nest_.body[i].loops & inner_)) return true;
  return false;
}

// Writes the row reductions: a half-warp reduces a row, does its stores, and shares the values that all threads need.
void DeviceEmitter::row_of_team(Scope& item, const std::vector<std::uint32_t>& of_rows) {
  item_ = &item;
  row_for_each_team(item, "first + team", "end");
  indices(item, 0, nest_.outer, "item");
  own_kept(item, "team");
  row_by_sweeps(nest_.sweeps - 1, [&] {
    const std::vector<std::uint32_t> reds = reductions(sweep_);
    if (!reds.empty()) team_sweep(item, reds);
  });
  for (const std::uint32_t id : of_rows) {
    const std::string name = define(id);
    item.line(fmt::format("if (t == 0) row{}[team] = {};", id, name));
  }
  row_is_there_.clear();
  item_ = nullptr;
}

// Writes the last sweep: a thread processes W neighbors of the eight rows.
void DeviceEmitter::eight_rows(Scope& group, const std::vector<std::uint32_t>& columns, const std::vector<std::uint32_t>& of_rows) {
  sweep_ = static_cast<std::uint8_t>(nest_.sweeps - 1);
  block(group, "for (Index r = Index(threadIdx.x) * W; r < count; r += Index(blockDim.x) * W)", [&](Scope& along) {
    along_ = &along;
    bool there = false;
    reduced_indices(along, there);
    if (!schedule_.whole) along.line("const int all_lanes = lanes_left(count, r, W), n = all_lanes;");
    for (const std::uint32_t c : columns) {
      const Statement& s = nest_.body[c];
      along.line(fmt::format("{0} v{1}[W], p{1}[W][3];", type(s.dtype), c));
      if (!schedule_.by_eight) along.line(fmt::format("if (first > begin) kept_back(sum{0} + r, v{0});", c));
      const std::string start = fmt::format("LANES v{}[e] = {}::identity<{}>();", c, functor(s), type(s.dtype));
      along.line(schedule_.by_eight ? start : "else { " + start + " }");
    }
    const char* const unroll = heavy() ? "#pragma unroll 1" : "#pragma unroll";
    block(along, fmt::format("{}\n{}for (int k = 0; k < {}; ++k)", unroll, along.indent(), ir::kRowGroup), [&](Scope& step) {
      step_ = item_ = &step;
      step.line("const Index item = first + k;");
      indices(step, 0, nest_.outer, "item");
      if (!schedule_.whole) step.line("const int n = item < end ? all_lanes : 0;");
      own_kept(step, "k");
      for (const std::uint32_t id : of_rows) step.values[id] = fmt::format("row{}[k]", id);
      for (const std::uint32_t c : columns) {
        const Statement& s = nest_.body[c];
        const std::string v = value(s.a);
        const std::string given = schedule_.whole ? v : fmt::format("e < n ? {} : {}::identity<{}>()", v, functor(s), type(s.dtype));
        step.line(fmt::format("LANES join_eight<{0}>(k, {1}, p{2}[e], v{2}[e]);", functor(s), given, c));
      }
      stores(step, sweep_);
      step_ = item_ = nullptr;
    });
    along_ = nullptr;
    for (const std::uint32_t c : columns) {
      if (!schedule_.by_eight) along.line(fmt::format("if (first + {0} < end) keep(sum{1} + r, v{1});", ir::kRowGroup, c));
      along.line(fmt::format("{}store_vector<{}, W>({}, W, v{});", schedule_.by_eight ? "" : "else ", type(nest_.body[c].dtype),
                             part_of_column(c, "part"), c));
    }
  });
}

// Writes the sums of summation blocks: a thread adds the trees of eight rows in sequence for W columns.
void DeviceEmitter::sums_of_blocks(const std::vector<std::uint32_t>& columns) {
  block(kernel_, fmt::format("if (w.at[{}] == 1)", words_.phase), [&](Scope& launch) {
    launch.line("const Index strips = pieces(count, W);");
    block(launch,
          "for (Index work = Index(blockIdx.x) * blockDim.x + threadIdx.x; work < strips * blocks; work += Index(gridDim.x) * blockDim.x)",
          [&](Scope& item) {
            item.line("const Index r = work % strips * W, block = work / strips;");
            item.line(fmt::format("const Index from = block * {0}, until = from + {0} < parts ? from + {0} : parts;",
                                  ir::kRowBlock / ir::kRowGroup));
            for (const std::uint32_t c : columns) {
              const Statement& s = nest_.body[c];
              item.line(fmt::format("{} v{}[W];", type(s.dtype), c));
              item.line(fmt::format("LANES v{}[e] = {}::identity<{}>();", c, functor(s), type(s.dtype)));
            }
            item.line("#pragma unroll 4");  // an unroll factor of 8 needed too many registers for the loads of two columns
            block(item, "for (Index part = from; part < until; ++part)", [&](Scope& one) {
              for (const std::uint32_t c : columns) {
                const Statement& s = nest_.body[c];
                one.line(fmt::format("{} x{}[W];", type(s.dtype), c));
                one.line(fmt::format("load_vector<{}, W>({}, W, x{});", type(s.dtype), part_of_column(c, "part"), c));
                one.line(fmt::format("LANES v{0}[e] = {1}::combine<{2}>(v{0}[e], x{0}[e]);", c, functor(s), type(s.dtype)));
              }
            });
            for (const std::uint32_t c : columns)
              item.line(fmt::format("store_vector<{}, W>({}, W, v{});", type(nest_.body[c].dtype), part_of_column(c, "parts + block"), c));
          });
  });
}

// Writes the tree of the blocks and the values computed from columns.
void DeviceEmitter::column_results(const std::vector<std::uint32_t>& columns) {
  block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, schedule_.by_eight ? 2 : 1), [&](Scope& launch) {
    block(launch, "for (Index r = (Index(blockIdx.x) * blockDim.x + threadIdx.x) * W; r < count; r += Index(gridDim.x) * blockDim.x * W)",
          [&](Scope& item) {
            item_ = step_ = &item;
            bool there = false;
            reduced_indices(item, there);
            if (!schedule_.whole) item.line("const int n = lanes_left(count, r, W);");
            for (const std::uint32_t c : columns) {
              const Statement& s = nest_.body[c];
              item.line(fmt::format("{} v{}[W];", type(s.dtype), c));
              item.line(fmt::format("tree_in_place<{}, {}, W>({}, {}ll * pitch, {}, v{});", functor(s), type(s.dtype),
                                    part_of_column(c, schedule_.by_eight ? "parts" : "0"), size_of(s.dtype),
                                    schedule_.by_eight ? "blocks" : "parts", c));
              item.values[c] = fmt::format("v{}", c);
            }
            const std::vector<bool> behind = nest_.behind_columns();
            for (std::size_t i = 0; i < nest_.body.size(); ++i)
              if (behind[i] && nest_.body[i].kind == Statement::Kind::Store) store(item, nest_.body[i]);
            item_ = step_ = nullptr;
          });
  });
}

}  // namespace onepass::compiler::cuda
