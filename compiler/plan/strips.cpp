// See strips.h.
#include "compiler/plan/strips.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace onepass::compiler {

namespace {

using ir::NodeId;
using Kind = Statement::Kind;

constexpr std::int64_t kPackedRows = 64;  // rows per strip, at least, because a contraction packs its other operand once per strip

bool is_steps(const StripKernel& k) { return k.nest->routine == ir::Op::Steps; }
// True for a loop over elements that depend on no other element.
bool is_flat(const StripKernel& k) {
  return k.nest->kind == NestKind::Map && k.nest->loops() == 1 &&
         std::ranges::none_of(k.nest->body, [](const Statement& s) { return s.kind == Kind::Scan; });
}

// True if the tasks of a kernel follow its rows in order, in a single phase. In strips, each task packs its columns.
bool follows_rows(const StripKernel& k) {
  const Schedule& s = k.scheduled->schedule;
  const ScheduleNumbers& n = k.scheduled->numbers;
  if (!k.alone || n.items == 0) return false;
  if (is_steps(k)) return true;
  return !k.nest->is_routine() && (k.nest->outer > 0 || is_flat(k)) && (n.phases == 1 || s.tile.shared) && !n.claimed && !s.split &&
         !s.by_place && s.packed.empty() && n.tile_rows == 1 && !k.nest->has_columns() && !k.nest->addition();
}

// The loops over the rows of a kernel, first to end: outer loops, the elements of steps, or the only loop. No loops: it has no such rows.
struct RowLoops {
  std::uint32_t first = 0, end = 0;
  explicit operator bool() const { return end > first; }
};

// Returns the loops that may be over rows.
RowLoops most_loops(const StripKernel& k) {
  if (is_steps(k)) return {1, 2};
  return {0, is_flat(k) ? 1u : k.nest->outer};
}

// Returns the loops that together have `rows` iterations.
RowLoops loops_of_rows(const StripKernel& k, std::int64_t rows) {
  const RowLoops most = most_loops(k);
  RowLoops found;
  std::int64_t product = 1;
  for (std::uint32_t l = most.first; l < most.end; ++l)
    if ((product *= k.numbers->extents[l]) == rows) found = {most.first, l + 1};
  return found;
}

// True if a row is one element of a vector loop.
bool are_elements(const StripKernel& k, RowLoops loops) { return loops.end == k.nest->loops(); }

// Returns the rows per task, if the last outer loop is one of the row loops; else 1.
std::int64_t rows_of_items(const StripKernel& k, RowLoops loops) {
  const ScheduleNumbers& n = k.scheduled->numbers;
  return are_elements(k, loops) ? n.tile : loops.end == k.nest->outer ? std::max<std::int64_t>(n.tile_outer, 1) : 1;
}
// Returns the number of rows that the code processes together. The length of a strip is a multiple of it.
std::int64_t rows_at_once(const StripKernel& k, RowLoops loops) {
  const Schedule& s = k.scheduled->schedule;
  return are_elements(k, loops)       ? std::max(s.width, 1)
         : loops.end != k.nest->outer ? 1
         : s.tile.rows > 0            ? s.tile.rows
                                      : std::max({s.abreast, s.row_lanes, 1});
}

// How rows are stored. Element e of row r is at r * length + e, or at r + e * apart if the rows are columns of a matrix, as steps store them.
struct RowShape {
  std::int64_t length = 0;  // elements of a row; 0: each access has only one element
  std::int64_t apart = 1;   // elements between two elements of a row
  std::int64_t between() const { return apart == 1 ? length : 1; }
  bool operator==(const RowShape&) const = default;
};

// Returns how the rows of an access are stored if it is row-local.
RowShape row_shape(const StripKernel& k, RowLoops loops, std::uint32_t access) {
  const std::vector<std::int64_t>& of = k.numbers->coefficients[k.nest->accesses[access].linear];
  if (is_steps(k) && of[0] != 0) return {k.numbers->extents[0], k.numbers->extents[1]};
  for (std::uint32_t l = loops.end; l-- > loops.first;)
    if (k.numbers->extents[l] > 1) return {of[l], 1};
  return {};
}

// Elements from the start of a row: the lowest and the highest that a statement accesses.
struct Reach {
  std::int64_t low, high;
  void add(std::int64_t factor, std::int64_t first, std::int64_t last) {
    low += std::min(factor * first, factor * last);
    high += std::max(factor * first, factor * last);
  }
};

// Returns the elements that a load or store accesses in a row. A bounds check that is a part of the position limits it, such as
// 0 <= i + j - 2 < n for a window.
Reach reach_in_row(const StripKernel& k, RowLoops loops, const Statement& s) {
  const NestNumbers& n = *k.numbers;
  const std::uint32_t linear = k.nest->accesses[s.at].linear;
  const auto is_row = [&](std::size_t v) { return v >= loops.first && v < loops.end; };
  std::vector<std::int64_t> of = n.coefficients[linear];
  Reach out{n.offsets[linear], n.offsets[linear]};
  const std::uint32_t first = s.guard == Statement::kNone ? 0 : k.nest->body[s.guard].at,
                      end = s.guard == Statement::kNone ? 0 : first + k.nest->body[s.guard].count;
  for (std::uint32_t c = first; c < end; ++c) {
    const std::uint32_t check = k.nest->checks[c].linear;
    const std::vector<std::int64_t>& g = n.coefficients[check];
    Reach range{n.offsets[check], n.offsets[check]};
    std::int64_t factor = 0;
    bool is_part = true;
    for (std::size_t v = 0; v < g.size(); ++v) {
      if (g[v] == 0) continue;
      is_part = is_part && v < k.nest->loops() && !is_row(v) && of[v] % g[v] == 0 && (factor == 0 || of[v] / g[v] == factor);
      if (!is_part) break;
      factor = of[v] / g[v];
      range.add(g[v], 0, n.extents[v] - 1);
    }
    const std::int64_t low = std::max<std::int64_t>(range.low, 0), high = std::min(range.high, n.bounds[c] - 1);
    if (!is_part || factor == 0 || low > high) continue;
    out.add(factor, low - n.offsets[check], high - n.offsets[check]);
    for (std::size_t v = 0; v < g.size(); ++v)
      if (g[v] != 0) of[v] = 0;
  }
  for (std::uint32_t l = 0; l < k.nest->loops(); ++l)
    if (!is_row(l)) out.add(of[l], 0, n.extents[l] - 1);
  return out;
}

// True if each row accesses only its own elements.
bool is_row_local(const StripKernel& k, RowLoops loops, std::uint32_t access, RowShape shape) {
  const Access& a = k.nest->accesses[access];
  if (a.table != Access::kNone || shape.length <= 0 || (shape.apart != 1 && !are_elements(k, loops))) return false;
  const std::vector<std::int64_t>&of = k.numbers->coefficients[a.linear], &extents = k.numbers->extents;
  std::int64_t stride = shape.between();
  for (std::uint32_t l = loops.end; l-- > loops.first; stride *= extents[l])
    if (extents[l] > 1 && of[l] != stride) return false;
  if (k.numbers->offsets[a.linear] % shape.apart != 0) return false;
  for (std::uint32_t l = 0; l < k.nest->loops(); ++l)
    if ((l < loops.first || l >= loops.end) && of[l] % shape.apart != 0) return false;
  for (std::size_t v = k.nest->loops(); v < of.size(); ++v)
    if (of[v] != 0) return false;
  const auto fits = [&](const Statement& s) {
    const Reach reach = reach_in_row(k, loops, s);
    return reach.low >= 0 && reach.high < shape.length * shape.apart;
  };
  const auto uses = [&](const Statement& s) { return (s.kind == Kind::Load || s.kind == Kind::Store) && s.at == access; };
  if (std::ranges::none_of(k.nest->body, uses)) return fits({.kind = Kind::Load, .at = access});
  return std::ranges::all_of(k.nest->body, [&](const Statement& s) { return !uses(s) || fits(s); });
}

template <class F> void each_access(const StripKernel& k, F&& f) {
  for (std::uint32_t a = 0; a < k.nest->accesses.size(); ++a) f(a, k.nest->accesses[a].buffer);
}
bool is_written(const StripKernel& k, std::uint32_t buffer) { return k.nest->buffers[buffer].written; }

constexpr std::size_t kMostWaiting = 8;   // most kernels that wait for strips because a chain skips them
constexpr std::size_t kMostMembers = 64;  // kernels of a chain: their values share a cache, and the search stays linear

using Readers = std::unordered_map<NodeId, std::vector<std::uint32_t>>;  // kernels by the value that they read

// Longest run of kernels, from one kernel on, that share rows for one choice of loops. Kernels in between wait if they cannot join.
class Chain {
 public:
  Chain(std::span<const StripKernel> kernels, const Readers& readers, std::span<const std::uint32_t> order, std::int64_t rows)
      : kernels_(kernels), readers_(readers), rows_(rows) {
    std::vector<std::uint32_t> waiting;
    for (const std::uint32_t k : order) {
      if (members_.size() == kMostMembers) break;
      if (take(k)) {
        members_.push_back(k);
        before_.push_back(waiting.size());
      } else if (members_.empty() || waiting.size() == kMostWaiting) {
        break;
      } else {
        waiting.push_back(k);
        each_access(kernels_[k], [&](std::uint32_t, std::uint32_t buffer) {
          if (is_written(kernels_[k], buffer)) later_.insert(node_of(kernels_[k], buffer));
        });
        later_.insert(kernels_[k].also_written.begin(), kernels_[k].also_written.end());
      }
    }
    while (members_.size() > 1 && !reads_held(kernels_[members_.back()])) members_.pop_back();
    if (!members_.empty()) waiting.resize(before_[members_.size() - 1]);
    waiting_ = std::move(waiting);
  }
  const std::vector<std::uint32_t>& members() const { return members_; }
  const std::vector<std::uint32_t>& waiting() const { return waiting_; }

  Strips strips(const Target& target, int threads, bool always) const {
    Strips out;
    std::int64_t at_once = 1, inner = 0, fewest = 1;
    for (const std::uint32_t k : members_) {
      const RowLoops loops = loops_of_rows(kernels_[k], rows_);
      const bool elements = are_elements(kernels_[k], loops);
      if (elements || rows_at_once(kernels_[k], loops) > 1) inner = std::gcd(inner, kernels_[k].numbers->extents[loops.end - 1]);
      if (!elements || !always) at_once = std::lcm(at_once, rows_at_once(kernels_[k], loops));  // masks take any number of elements
      if (kernels_[k].scheduled->schedule.tile.packs_columns && loops.end == kernels_[k].nest->outer) fewest = kPackedRows;
    }
    out.inner = inner > 0 ? inner : rows_;
    out.outer = rows_ / out.inner;
    std::int64_t row_bytes = 0;
    for (const auto& [node, value] : values_)
      if (is_held(node, value)) row_bytes += value.shape.length * value.element_bytes;
    if (row_bytes == 0) return {};
    // The values that a strip passes on take half of a core's cache.
    const std::int64_t rows = always ? 1 : std::max({target.l2_bytes / 2 / row_bytes, fewest, std::int64_t{1}});
    out.rows = rows >= out.inner ? out.inner : std::max(rows / at_once, std::int64_t{1}) * at_once;
    out.held = rows_ * row_bytes;
    for (const auto& [node, value] : values_)
      if (is_held(node, value)) out.values.push_back({node, value.shape.length, value.shape.apart, value.element_bytes, 0});
    std::sort(out.values.begin(), out.values.end(), [](const StripValue& a, const StripValue& b) { return a.node < b.node; });
    for (StripValue& v : out.values) v.offset = out.bytes, out.bytes += (v.row_bytes() * out.rows + 63) / 64 * 64;
    out.members.resize(members_.size());
    // Strips longer than the cache only save memory. They pay off only for large values.
    const std::int64_t least =
        out.bytes <= target.l2_bytes ? 2 * threads * target.l2_bytes : std::max(16 * threads * out.bytes, target.llc_bytes);
    const bool pays = out.held > least && out.strips() >= 4 * threads;
    return pays || (always && out.strips() > 1) ? out : Strips{};
  }

 private:
  struct Value {
    RowShape shape;
    std::int64_t element_bytes;
    bool passed;
  };
  std::span<const StripKernel> kernels_;
  const Readers& readers_;
  std::int64_t rows_;
  std::vector<std::uint32_t> members_, waiting_;
  std::vector<std::size_t> before_;           // by member: number of waiting kernels when it was taken
  std::unordered_map<NodeId, Value> values_;  // values that the members store
  std::unordered_set<NodeId> later_;          // values that the waiting kernels store

  static NodeId node_of(const StripKernel& k, std::uint32_t buffer) { return k.numbers->buffers[buffer]; }
  bool is_held(NodeId node, const Value& value) const {
    const auto it = readers_.find(node);
    return value.passed && it != readers_.end() &&
           std::ranges::all_of(it->second, [&](std::uint32_t reader) { return std::ranges::find(members_, reader) != members_.end(); });
  }
  bool reads_held(const StripKernel& k) const {
    bool any = false;
    each_access(k, [&](std::uint32_t, std::uint32_t buffer) {
      const auto it = values_.find(node_of(k, buffer));
      any |= !is_written(k, buffer) && it != values_.end() && is_held(it->first, it->second);
    });
    return any;
  }
  // Adds the kernel if it reads the members' values row by row and no value of a waiting kernel. Records how it stores its own values.
  bool take(std::uint32_t at) {
    const StripKernel& k = kernels_[at];
    const RowLoops loops = loops_of_rows(k, rows_);
    if (!loops || !follows_rows(k)) return false;
    bool fits = true;
    each_access(k, [&](std::uint32_t access, std::uint32_t buffer) {
      if (is_written(k, buffer)) return;
      fits &= !later_.contains(node_of(k, buffer));
      if (const auto it = values_.find(node_of(k, buffer)); it != values_.end()) fits &= is_row_local(k, loops, access, it->second.shape);
    });
    if (!fits) return false;
    each_access(k, [&](std::uint32_t access, std::uint32_t buffer) {
      if (!is_written(k, buffer)) return;
      const RowShape shape = row_shape(k, loops, access);
      Value value{shape, static_cast<std::int64_t>(size_of(k.nest->buffers[buffer].dtype)), k.passed[buffer]};
      if (!is_row_local(k, loops, access, shape)) value.shape = {};  // no kernel reads it row by row
      const auto [it, is_new] = values_.try_emplace(node_of(k, buffer), value);
      if (!is_new) it->second.shape = it->second.shape == value.shape ? value.shape : RowShape(), it->second.passed = false;
    });
    return true;
  }
};

}  // namespace

std::vector<Strips> find_strips(std::span<const StripKernel> kernels, const Target& target, int threads, std::vector<std::uint32_t>& order,
                                bool always) {
  std::vector<Strips> out;
  order.resize(kernels.size());
  std::iota(order.begin(), order.end(), 0u);
  if (kernels.size() < 2) return out;
  Readers readers;
  for (std::uint32_t k = 0; k < kernels.size(); ++k) {
    each_access(kernels[k], [&](std::uint32_t, std::uint32_t buffer) {
      if (!is_written(kernels[k], buffer)) readers[kernels[k].numbers->buffers[buffer]].push_back(k);
    });
    for (const NodeId id : kernels[k].also_read) readers[id].push_back(k);
  }
  for (std::uint32_t first = 0; first + 1 < order.size();) {
    const StripKernel& begin = kernels[order[first]];
    Strips best;
    std::vector<std::uint32_t> chosen;  // the members, then the kernels that wait for them
    std::int64_t rows = 1;
    const RowLoops most = most_loops(begin);
    for (std::uint32_t l = most.first; l < most.end; ++l) {
      if (begin.numbers->extents[l] == 1) continue;
      const Chain chain(kernels, readers, std::span(order).subspan(first), rows *= begin.numbers->extents[l]);
      if (chain.members().size() < 2) continue;
      Strips found = chain.strips(target, threads, always);
      if (found.held == 0) continue;
      const bool fits = found.bytes <= target.l2_bytes, best_fits = best.bytes <= target.l2_bytes;
      // between equals, the choice with shorter rows wins
      if (best.held > 0 && (fits != best_fits ? best_fits : found.held < best.held)) continue;
      best = std::move(found);
      chosen = chain.members();
      chosen.insert(chosen.end(), chain.waiting().begin(), chain.waiting().end());
    }
    if (best.held == 0) {
      ++first;
      continue;
    }
    std::copy(chosen.begin(), chosen.end(), order.begin() + first);
    best.first = first;
    first += static_cast<std::uint32_t>(best.members.size());
    out.push_back(std::move(best));
  }
  return out;
}

bool lay_out(Strips& strips, std::span<const StripKernel> kernels) {
  const std::int64_t all = strips.outer * strips.inner;
  for (std::size_t m = 0; m < strips.members.size(); ++m) {
    const StripKernel& k = kernels[strips.first + m];
    const RowLoops loops = loops_of_rows(k, all);
    if (!loops || !follows_rows(k)) return false;
    const std::int64_t extent = k.numbers->extents[loops.end - 1], at_once = rows_of_items(k, loops), items = k.scheduled->numbers.items;
    const auto parts = [&](std::int64_t rows) { return (rows + at_once - 1) / at_once; };
    if (at_once > 1 &&
        ((extent != strips.inner && strips.inner % at_once != 0) || (strips.rows < strips.inner && strips.rows % at_once != 0)))
      return false;
    const std::int64_t of_each = items / (all / extent * parts(extent));  // tasks per part of the rows
    StripMember& member = strips.members[m];
    member = {of_each * parts(strips.inner), of_each * parts(strips.rows), {}};
    if (member.items_of_outer * strips.outer != items) return false;
    bool fits = true;
    each_access(k, [&](std::uint32_t access, std::uint32_t buffer) {
      for (std::uint32_t v = 0; v < strips.values.size(); ++v) {
        if (strips.values[v].node != k.numbers->buffers[buffer] || !k.passed[buffer]) continue;
        fits &= is_row_local(k, loops, access, {strips.values[v].length, strips.values[v].apart});
        member.accesses.push_back({access, v});
      }
    });
    if (!fits) return false;
  }
  return true;
}

}  // namespace onepass::compiler
