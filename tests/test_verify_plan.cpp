// The plan verifier accepts the results of plan() and describes corruptions. A call whose plan is rejected runs without it. An interpreter
// of nests, independent of planner and verifier, determines which corruptions are harmful.
#include <onepass/onepass.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "compiler/find_steps.h"
#include "compiler/formula.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/plan_proof.h"
#include "compiler/plan/schedule.h"
#include "compiler/plan/verify_plan.h"
#include "compiler/routine_operands.h"
#include "compiler/simplify.h"
#include "compiler/structure.h"
#include "every_mode.h"
#include "golden.h"
#include "has_codegen.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"
#include "runtime/os.h"

namespace op = onepass;
using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;
using Catch::Matchers::Contains;
using Kind = Statement::Kind;

namespace {

struct Typed {
  const char* name;
  DType dtype;
  Shape shape;
};

// A formula's fusion groups and their nests.
struct Plans {
  ir::Graph graph;
  Partition partition;
  std::vector<Layout> layouts;
  std::vector<std::vector<Planned>> groups;

  Plans(std::string_view formula, const std::vector<Typed>& inputs, bool unfused = false) {
    const language::Program program = language::parse(formula, "test");
    std::vector<FormulaInput> types;
    for (const std::string& name : signature_of(program).inputs)
      for (const Typed& t : inputs)
        if (name == t.name) types.push_back({t.dtype, t.shape});
    Recorder recorder;
    record_formula(recorder, program, types);
    graph = ir::prune(simplify(ir::prune(recorder.graph)));
    if (std::optional<ir::Graph> steps = find_steps(graph)) graph = ir::prune(*std::move(steps));
    graph = copy_results(copy_routine_operands(std::move(graph)));
    layouts.resize(graph.size());
    FuseOptions options{.unfused = unfused};
    if (!unfused) options.lists = find_lists(graph, layouts);
    partition = fuse(graph, options);
    for (std::uint32_t g = 0; g < partition.groups.size(); ++g) groups.push_back(plan(graph, partition, g, layouts));
  }
  std::string verify(std::uint32_t group, std::span<const Planned> pieces) const {
    return verify_plan(graph, partition, group, layouts, pieces);
  }
};

// ---- an interpreter of nests: values are hashes, sums have any order

constexpr std::uint64_t kPoison = 0xA5A5A5A5A5A5A5A5;
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0xff51afd7ed558ccdull;
  return a ^ (a >> 33);
}

struct Image {
  std::map<std::pair<ir::NodeId, int>, std::vector<std::uint64_t>> arrays;  // materialized values
  bool outside = false;                                                     // true if an access was outside its array
  bool operator==(const Image&) const = default;
};

class Interpreter {
 public:
  Interpreter(const ir::Graph& graph, Image& image) : graph_(graph), image_(image) {}

  void run(const Planned& piece) {
    n_ = &piece.nest, m_ = &piece.numbers;
    const Nest& n = *n_;
    const std::uint64_t inner = n.reduced_mask();
    behind_ = n.behind_columns();
    values_.assign(n.body.size(), kPoison);
    at_.assign(n.loops(), 0);
    columns_.clear();
    std::int64_t kept = 1, reduced = 1;
    for (std::uint32_t l = 0; l < n.loops(); ++l) (inner >> l & 1 ? reduced : kept) *= m_->extents[l];
    scans_.assign(n.body.size(), 0);
    for (std::int64_t k = 0; k < kept; ++k) {
      place(k, ~inner);
      std::vector<std::uint64_t> sums(n.body.size(), 0);
      std::fill(values_.begin(), values_.end(), kPoison);
      for (std::uint8_t sweep = 0; sweep < std::max<std::uint8_t>(n.sweeps, 1); ++sweep) {
        for (std::uint32_t i = 0; i < n.body.size(); ++i)
          if (n.body[i].kind == Kind::Reduce && !behind_[i] && n.body[i].stage == sweep) values_[i] = sums[i];
        for (std::int64_t r = 0; r < reduced; ++r) {
          place(r, inner);
          for (std::uint32_t i = 0; i < n.body.size(); ++i) statement(i, sweep, r, sums);
        }
      }
      const std::uint8_t after = std::max<std::uint8_t>(n.sweeps, 1);  // for values with one element for each row
      for (std::uint32_t i = 0; i < n.body.size(); ++i)
        if (n.body[i].kind == Kind::Reduce && !behind_[i] && n.body[i].stage == after) values_[i] = sums[i];
      for (std::uint32_t i = 0; i < n.body.size(); ++i) {
        if (behind_[i]) continue;
        const Statement& s = n.body[i];
        if (s.kind == Kind::Store ? !(s.loops & inner) : s.stage == after && s.kind != Kind::Reduce) statement(i, after, 0, sums);
      }
    }
    if (columns_.empty()) return;
    place(0, ~inner);
    std::vector<std::uint64_t> none;
    for (std::int64_t r = 0; r < reduced; ++r) {
      place(r, inner);
      for (std::uint32_t i = 0; i < n.body.size(); ++i) {
        if (n.body[i].kind == Kind::Reduce) {
          if (n.body[i].count) values_[i] = columns_[{i, r}];
        } else if (behind_[i] || !(n.body[i].kind == Kind::Store)) {
          evaluate(i);
        }
      }
    }
  }

 private:
  const ir::Graph& graph_;
  Image& image_;
  const Nest* n_ = nullptr;
  const NestNumbers* m_ = nullptr;
  std::vector<bool> behind_;
  std::vector<std::uint64_t> values_, scans_;
  std::vector<std::int64_t> at_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint64_t> columns_;

  void place(std::int64_t position, std::uint64_t loops) {
    for (std::uint32_t l = n_->loops(); l-- > 0;)
      if (loops >> l & 1)
        at_[l] = position % std::max<std::int64_t>(m_->extents[l], 1), position /= std::max<std::int64_t>(m_->extents[l], 1);
  }

  std::int64_t linear(std::uint32_t id) const {
    std::int64_t x = m_->offsets[id];
    for (std::uint32_t v = 0; v < m_->coefficients[id].size(); ++v)
      if (const std::int64_t c = m_->coefficients[id][v]) x += c * (v < n_->loops() ? at_[v] : derived(v - n_->loops()));
    return x;
  }
  std::int64_t derived(std::uint32_t q) const {
    const Derived& d = n_->derived[q];
    if (d.place != Derived::kNone) {
      const Statement& s = n_->body[d.place];
      const std::int64_t bound = s.kind == Kind::Place ? m_->bounds[s.at] : 1;
      return bound < 1 ? 0 : static_cast<std::int64_t>(values_[d.place] % static_cast<std::uint64_t>(bound));
    }
    const std::int64_t x = linear(d.linear), by = std::max<std::int64_t>(m_->by[q], 1);
    const std::int64_t rest = ((x % by) + by) % by;
    return d.modulo ? rest : (x - rest) / by;
  }

  void statement(std::uint32_t i, std::uint8_t sweep, std::int64_t r, std::vector<std::uint64_t>& sums) {
    const Statement& s = n_->body[i];
    if (s.kind == Kind::Reduce) {
      const std::uint64_t term = mixed(mixed(static_cast<std::uint64_t>(s.op), values_[s.a]), s.b == Statement::kNone ? 0 : values_[s.b]);
      if (s.count) {
        if (sweep + 1 == std::max<std::uint8_t>(n_->sweeps, 1)) columns_[{i, r}] += term;
      } else if (sweep + 1 == s.stage) {
        sums[i] += term;
      }
      return;
    }
    if (behind_[i] || s.stage > sweep) return;
    if (s.kind == Kind::Store && (s.stage != sweep && sweep < n_->sweeps)) return;
    if (s.kind == Kind::Store && sweep < n_->sweeps && !(s.loops & n_->reduced_mask()) && n_->reduced_mask()) return;
    evaluate(i);
  }

  void evaluate(std::uint32_t i) {
    const Statement& s = n_->body[i];
    const auto value = [&](std::uint32_t o) { return o == Statement::kNone ? 0 : values_[o]; };
    switch (s.kind) {
      case Kind::Load:
        values_[i] = 0;
        if (s.guard == Statement::kNone || values_[s.guard]) values_[i] = load(s);
        break;
      case Kind::Store:
        if (s.guard == Statement::kNone || values_[s.guard]) store(s);
        break;
      case Kind::Index: values_[i] = mixed(11, static_cast<std::uint64_t>(linear(s.at))); break;
      case Kind::Slot: values_[i] = mixed(12, m_->slots[s.at]); break;
      case Kind::Constant: values_[i] = s.bits == 0 ? 0 : mixed(13, s.bits); break;
      case Kind::Guard:
        values_[i] = 1;
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c)
          if (const std::int64_t x = linear(n_->checks[c].linear); x < 0 || x >= m_->bounds[c]) values_[i] = 0;
        break;
      case Kind::Place: values_[i] = mixed(14, values_[s.a]); break;
      case Kind::Op:
        if (s.op == ir::Op::Where && n_->body[s.a].kind == Kind::Guard) values_[i] = values_[values_[s.a] ? s.b : s.c];
        else values_[i] = mixed(mixed(mixed(static_cast<std::uint64_t>(s.op), value(s.a)), value(s.b)), value(s.c));
        break;
      case Kind::Scan: {
        const std::uint32_t along = n_->kind == NestKind::Rows ? n_->outer : n_->vector_loop();
        scans_[i] = mixed(at_[along] == 0 ? 15 : scans_[i], values_[s.a]);
        values_[i] = scans_[i];
        break;
      }
      case Kind::Reduce: break;
    }
  }

  std::uint64_t load(const Statement& s) {
    const Access& a = n_->accesses[s.at];
    ir::NodeId node = m_->buffers[a.buffer];
    if (!m_->members[a.buffer].empty()) {
      const std::int64_t member = a.table == Access::kNone ? 0 : linear(a.table);
      if (member < 0 || member >= static_cast<std::int64_t>(m_->members[a.buffer].size())) return image_.outside = true, kPoison;
      node = m_->members[a.buffer][static_cast<std::size_t>(member)];
    }
    const std::int64_t element = linear(a.linear);
    if (element < 0 || element >= graph_.elements(node)) return image_.outside = true, kPoison;
    return mixed(mixed(16, node), static_cast<std::uint64_t>(element));
  }
  void store(const Statement& s) {
    const Access& a = n_->accesses[s.at];
    const ir::NodeId node = m_->buffers[a.buffer];
    std::vector<std::uint64_t>& array = image_.arrays[{node, m_->outputs[a.buffer]}];
    array.resize(static_cast<std::size_t>(graph_.elements(node)), s.op == ir::Op::Add ? 0 : kPoison);
    std::int64_t element = linear(a.linear);
    if (a.table != Access::kNone) element += linear(a.table) << 32;
    if (element < 0 || element >= static_cast<std::int64_t>(array.size())) {
      image_.outside = true;
      return;
    }
    std::uint64_t& to = array[static_cast<std::size_t>(element)];
    to = s.op == ir::Op::Add ? to + mixed(17, values_[s.a]) : values_[s.a];
  }
};

Image image_of(const ir::Graph& graph, const std::vector<Planned>& pieces) {
  Image image;
  Interpreter interpreter(graph, image);
  for (const Planned& piece : pieces) interpreter.run(piece);
  return image;
}

// ---- corruptions

enum Corruption { Coefficients, Extents, Bounds, Offsets, Sweeps, Arrays, Results, kCorruptions };
constexpr const char* kNames[] = {"a coefficient",        "an extent", "a bound", "an offset", "a phase", "a source array",
                                  "two results exchanged"};

// Changes one number of the nests. Returns false if they have no number of that kind.
bool corrupt(std::vector<Planned>& pieces, Corruption kind, const ir::Graph& graph, std::mt19937_64& random) {
  Planned& p = pieces[random() % pieces.size()];
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto other = [&](std::int64_t was) {
    static constexpr std::int64_t by[] = {-1, 1, 2, -2, 7};
    const std::int64_t now = random() % 4 == 0 ? 2 * was : random() % 6 == 0 ? 0 : was + by[random() % 5];
    return now == was ? was + 1 : now;
  };
  switch (kind) {
    case Coefficients: {
      if (p.nest.linears.empty()) return false;
      const std::size_t l = pick(p.nest.linears.size());
      if (p.numbers.coefficients[l].empty()) return false;
      const std::size_t v = pick(p.numbers.coefficients[l].size());
      const std::int64_t c = p.numbers.coefficients[l][v] = other(p.numbers.coefficients[l][v]);
      p.nest.linears[l].of[v] = c == 0 ? Coefficient::Zero : c == 1 ? Coefficient::One : Coefficient::General;
      return true;
    }
    case Extents: {
      std::int64_t& e = p.numbers.extents[pick(p.numbers.extents.size())];
      e = std::max<std::int64_t>(0, other(e));
      return true;
    }
    case Bounds: {
      const std::size_t n = p.numbers.bounds.size() + p.numbers.by.size();
      if (n == 0) return false;
      const std::size_t i = pick(n);
      std::int64_t& b = i < p.numbers.bounds.size() ? p.numbers.bounds[i] : p.numbers.by[i - p.numbers.bounds.size()];
      b = std::max<std::int64_t>(i < p.numbers.bounds.size() ? 0 : 1, other(b));
      return true;
    }
    case Offsets: {
      if (p.numbers.offsets.empty()) return false;
      std::int64_t& o = p.numbers.offsets[pick(p.numbers.offsets.size())];
      o = other(o);
      return true;
    }
    case Sweeps: {
      if (random() % 4 == 0) {
        p.nest.sweeps = static_cast<std::uint8_t>(p.nest.sweeps > 1 && random() % 2 ? p.nest.sweeps - 1 : p.nest.sweeps + 1);
        return true;
      }
      std::uint8_t& stage = p.nest.body[pick(p.nest.body.size())].stage;
      stage = static_cast<std::uint8_t>(stage > 0 && random() % 2 ? stage - 1 : stage + 1);
      return true;
    }
    case Arrays: {
      std::vector<std::size_t> reads;
      for (std::size_t b = 0; b < p.nest.buffers.size(); ++b)
        if (!p.nest.buffers[b].written && p.numbers.members[b].empty()) reads.push_back(b);
      if (reads.empty()) return false;
      ir::NodeId& node = p.numbers.buffers[reads[pick(reads.size())]];
      const ir::NodeId was = node;
      for (int tries = 0; tries < 20 && node == was; ++tries) {
        const auto to = static_cast<ir::NodeId>(pick(graph.size()));
        if (graph[to].op == ir::Op::Input) node = to;
      }
      return node != was;
    }
    default: {
      std::vector<std::size_t> stores;
      for (std::size_t i = 0; i < p.nest.body.size(); ++i)
        if (p.nest.body[i].kind == Kind::Store && p.nest.body[i].op != ir::Op::Add) stores.push_back(i);
      if (stores.size() < 2) return false;
      Statement &a = p.nest.body[stores[pick(stores.size())]], &b = p.nest.body[stores[pick(stores.size())]];
      if (&a == &b || a.a == b.a) return false;
      if (random() % 2) {
        std::swap(a.a, b.a);  // the operands are computed before the stores at the end
        return true;
      }
      std::swap(p.numbers.buffers[p.nest.accesses[a.at].buffer], p.numbers.buffers[p.nest.accesses[b.at].buffer]);
      return p.nest.accesses[a.at].buffer != p.nest.accesses[b.at].buffer;
    }
  }
}

const std::vector<Typed> kInputs = {{"x", f32, {6, 5}},    {"y", f32, {6, 5}},    {"z", f32, {5, 6}},     {"v", f32, {5}},
                                    {"u", f32, {6}},       {"k", DType::I64, {}}, {"i", DType::I64, {4}}, {"j", DType::I64, {6, 5}},
                                    {"c", f32, {3, 4, 2}}, {"w", f32, {23}}};
// The golden functions' forms, and forms with everything that a nest can contain.
constexpr const char* kFormulas[] = {
    "a = x*v + y; b = x - y; d = u[:, none]*2",
    "a = x + 1; b = y*2; d = transpose(z) - x",
    "t = exp(x - max(x, axis=-1, keepdims=true)); p = t / sum(t, axis=-1, keepdims=true); q = t*2",
    "m = sum(x, 0)/6; d = x - m; s = sum(d*d, 0); o = d*rsqrt(s + 1)*v",
    "a = sum(x*y, 1); b = max(x, 1); d = x + a[:, none]",
    "dx, dv = grad(sum(tanh(x*v + y)*y), [x, v])",
    "g = layer_norm(x, v, v); dx, dv = grad(sum(g*g*y), [x, v])",
    "a = x[1:-1, 1:-1]*4 - x[2:, 1:-1] - x[:-2, 1:-1] - x[1:-1, 2:] - x[1:-1, :-2]; b = flip(x, 0) + y",
    "a = concat([x, y*2, x + 1], 0); b = pad(x, [1, 2], [0, 1]) * 2",
    "a = reshape(stack([w, w*2], 1), [-1]); b = roll(w, 3)",
    "a = reshape(c, [4, 6]) + 1; b = reshape(transpose(c, [2, 0, 1]), [24])",
    "a = take(x, i, 0); b = take(x, k, 1)*v[0]; d = sum(take(x, i, 1), 0)",
    "a = scatter_add(x, j, y, 0) ; b = a*2; d = index_add(x, i, y[:4], 0)",
    "a = cumsum(x, 0); b = cumsum(x, 1)*y; d = cummax(w, 0)",
    "a = matmul(x, z); b = matmul(transpose(x), x); d = matmul(x, v)",
    "a = reshape(iota([30], 0, f32), [6, 5]) * x; b = where(x > 0, x, y); d = tile(v, [3])",
    "a = sum(c, [0, 2]); b = sum(c, 1); d = c - b[:, none, :]",
    "a = diagonal(x) * v; b = repeat(w, 3, 0); d = x[::2, ::-1]",
    "a = remainder(v[none, :2], roll(v[:2], -1, 0)); b = scatter_add(a, broadcast_to(k*0, [1, 2]), a + 1, 0)",
};

}  // namespace

TEST_CASE("verify plan: it accepts the results of plan(), fused and unfused, for many lengths", "[verify]") {
  set_verified_points(100'000);
  for (const char* formula : kFormulas)
    for (const bool unfused : {false, true}) {
      const Plans plans(formula, kInputs, unfused);
      for (std::uint32_t g = 0; g < plans.groups.size(); ++g) {
        INFO(formula);
        CHECK(plans.verify(g, plans.groups[g]) == "");
        for (const Planned& piece : plans.groups[g])
          for (const int threads : {1, 8}) {
            const Scheduled scheduled = schedule(piece.nest, piece.numbers, Target::host(), {.threads = threads, .split_work = 1});
            CHECK(verify_schedule(piece.nest, piece.numbers, scheduled) == "");
          }
      }
    }
}

TEST_CASE("verify plan: steps with a wrong stride, step count, array, line or result are rejected", "[verify]") {
  const bool reverse = GENERATE(false, true);
  const Plans plans(fmt::format("fn step(h, x, w) {{ n = w*h + x; return n, n }}\nlast, all = scan(step, x[0], x, w=w, reverse={})\n"
                                "r = last + sum(all, 0)",
                                reverse),
                    {{"x", f32, {4000, 3}}, {"w", f32, {3}}});
  int found = 0;
  for (std::uint32_t g = 0; g < plans.groups.size(); ++g) {
    if (plans.groups[g].size() != 1 || plans.groups[g][0].nest.routine != ir::Op::Steps) continue;
    ++found;
    CHECK(plans.verify(g, plans.groups[g]) == "");
    const auto refused = [&](const auto& change) {
      std::vector<Planned> changed = plans.groups[g];
      change(changed[0]);
      return plans.verify(g, changed) != "";
    };
    const Planned& planned = plans.groups[g][0];
    for (std::size_t i = 0; i < planned.nest.steps.size(); ++i) CHECK(refused([&](Planned& p) { ++p.nest.steps[i]; }));
    for (std::size_t i = 0; i < planned.nest.results.size(); ++i) CHECK(refused([&](Planned& p) { ++p.nest.results[i]; }));
    CHECK(refused([](Planned& p) { ++p.numbers.extents[0]; }));
    CHECK(refused([](Planned& p) { --p.numbers.extents[1]; }));
    for (std::size_t b = 0; b < planned.nest.buffers.size(); ++b) {
      CHECK(refused([&](Planned& p) { ++p.numbers.coefficients[b][0]; }));
      CHECK(refused([&](Planned& p) { ++p.numbers.coefficients[b][1]; }));
      CHECK(refused([&](Planned& p) { ++p.numbers.offsets[b]; }));
      const auto other = std::ranges::find_if(planned.numbers.buffers, [&](ir::NodeId id) { return id != planned.numbers.buffers[b]; });
      REQUIRE(other != planned.numbers.buffers.end());
      CHECK(refused([&](Planned& p) { p.numbers.buffers[b] = *other; }));
      CHECK(refused([&](Planned& p) { p.nest.buffers[b].written = !p.nest.buffers[b].written; }));
      const bool is_one = planned.numbers.coefficients[b][1] == 1;
      CHECK(refused([&](Planned& p) { p.nest.linears[b].of[1] = is_one ? Coefficient::Zero : Coefficient::One; }));
    }
  }
  CHECK(found == 1);
}

TEST_CASE("verify plan: a routine with a wrong stride, length, array or variant is rejected", "[verify]") {
  for (const char* formula : {"scatter(x, j, y, 1, \"min\")", "index_update(x*2, i, y[:4], 0)", "sort(c, 1)", "searchsorted(w, x)"}) {
    const Plans plans(formula, kInputs);
    int routines = 0;
    for (std::uint32_t g = 0; g < plans.groups.size(); ++g) {
      if (plans.groups[g].size() != 1 || !plans.groups[g][0].nest.is_routine()) continue;
      ++routines;
      INFO(formula);
      CHECK(plans.verify(g, plans.groups[g]) == "");
      const auto refused = [&](const auto& change) {
        std::vector<Planned> changed = plans.groups[g];
        change(changed[0]);
        return plans.verify(g, changed) != "";
      };
      const Planned& planned = plans.groups[g][0];
      CHECK(refused([](Planned& p) { ++p.nest.variant; }));
      CHECK(refused([](Planned& p) { ++p.numbers.results; }));
      CHECK(refused([](Planned& p) { p.nest.routine = p.nest.routine == ir::Op::Sort ? ir::Op::Argsort : ir::Op::Sort; }));
      for (std::size_t l = 0; l < planned.numbers.extents.size(); ++l) CHECK(refused([&](Planned& p) { --p.numbers.extents[l]; }));
      for (std::size_t b = 0; b < planned.nest.buffers.size(); ++b) {
        for (std::size_t l = 0; l < planned.numbers.coefficients[b].size(); ++l)
          CHECK(refused([&](Planned& p) { ++p.numbers.coefficients[b][l]; }));
        CHECK(refused([&](Planned& p) { ++p.numbers.offsets[b]; }));
        CHECK(refused([&](Planned& p) { p.numbers.buffers[b] = p.numbers.buffers[b == 0 ? 1 : 0]; }));
        CHECK(refused([&](Planned& p) { p.nest.buffers[b].written = !p.nest.buffers[b].written; }));
      }
    }
    CHECK(routines == 1);
  }
}

// A sum over rows that another kernel has materialized is read once for each row. Values computed from it are not fused with its columns.
TEST_CASE("verify plan: values computed from another kernel's columns have separate loops", "[verify]") {
  const Plans plans(
      "v = sum(a, 0); u = clamp(v, 0, 1); i = argmin(v, 0); c = sum(cummin(a, 0), 0, keepdims=true); "
      "r = sum(((a > 0) > 0), [1], keepdims=true); w = index_add(u, b, (u * 2), 0)",
      {{"a", f32, {2, 2}}, {"b", i32, {2}}});
  for (std::uint32_t g = 0; g < plans.groups.size(); ++g) CHECK(plans.verify(g, plans.groups[g]) == "");
}

// Interleaved stores end at the predicate of the last phase. This holds only along the loop of the phases.
TEST_CASE("verify plan: interleaved stores are adjacent along the loop of the phases", "[verify]") {
  int joined = 0, apart = 0;
  for (const char* formula : {"b = uniform(7, [63, 65])", "b = stack([normal(5, [3, 2]), cumsum(a, 0)], 1)"}) {
    Plans plans(formula, {{"a", f32, {3, 2}}});
    for (std::uint32_t g = 0; g < plans.groups.size(); ++g)
      for (Planned& piece : plans.groups[g]) {
        CHECK(plans.verify(g, plans.groups[g]) == "");
        if (piece.nest.phases == 1) continue;
        const auto store = std::ranges::find_if(piece.nest.body, [](const Statement& s) { return s.kind == Kind::Store; });
        REQUIRE(store != piece.nest.body.end());
        if (store->count == 0) {
          store->count = piece.nest.phases;
          CHECK_THAT(plans.verify(g, plans.groups[g]), Catch::Matchers::Contains("are not adjacent"));
          store->count = 0, ++apart;
          continue;
        }
        const Statement& last = store[store->count - 1];
        REQUIRE(last.guard != Statement::kNone);
        std::int64_t& end = piece.numbers.offsets[piece.nest.checks[piece.nest.body[last.guard].at].linear];
        --end;
        CHECK(plans.verify(g, plans.groups[g]) != "");
        ++end, ++joined;
      }
  }
  CHECK(joined == 1);
  CHECK(apart == 1);
}

TEST_CASE("verify plan: 10,000 corruptions are harmless or caught", "[verify]") {
  std::vector<Plans> plans;
  for (const char* formula : kFormulas) plans.emplace_back(formula, kInputs);
  std::vector<std::pair<std::size_t, std::uint32_t>> all;
  std::vector<Image> images;
  for (std::size_t p = 0; p < plans.size(); ++p)
    for (std::uint32_t g = 0; g < plans[p].groups.size(); ++g) {
      all.emplace_back(p, g);
      images.push_back(image_of(plans[p].graph, plans[p].groups[g]));
      REQUIRE(!images.back().outside);
      for (const auto& [array, elements] : images.back().arrays) REQUIRE(std::ranges::count(elements, kPoison) == 0);
    }
  std::mt19937_64 random(20261122);
  std::array<int, kCorruptions> harmful{}, missed{}, missed_by_few{}, refused{};
  int total = 0;
  for (int tries = 0; total < 10'000; ++tries) {
    REQUIRE(tries < 100'000);
    const auto kind = static_cast<Corruption>(random() % kCorruptions);
    const std::size_t at = random() % all.size();
    const Plans& plan = plans[all[at].first];
    std::vector<Planned> pieces = plan.groups[all[at].second];
    if (pieces.empty() || !corrupt(pieces, kind, plan.graph, random)) continue;
    ++total;
    set_verified_points(0);
    const bool few = !plan.verify(all[at].second, pieces).empty();
    set_verified_points(100'000);
    const bool caught = !plan.verify(all[at].second, pieces).empty();
    refused[kind] += caught;
    const Image image = image_of(plan.graph, pieces);
    if (image == images[at]) continue;
    ++harmful[kind];
    missed[kind] += !caught;
    missed_by_few[kind] += !few;
    if (!few)
      WARN((caught ? "missed with few points: " : "missed: ") << kNames[kind] << " of " << kFormulas[all[at].first] << "\n"
                                                              << print(pieces[0].nest, pieces[0].numbers));
  }
  set_verified_points(0);
  int all_harmful = 0, all_missed = 0, all_missed_by_few = 0;
  for (int k = 0; k < kCorruptions; ++k) {
    std::printf("%-24s %5d harmful, %3d missed with all points, %3d with those that every plan has; %5d refused\n", kNames[k], harmful[k],
                missed[k], missed_by_few[k], refused[k]);
    CHECK(harmful[k] >= 100);
    all_harmful += harmful[k], all_missed += missed[k], all_missed_by_few += missed_by_few[k];
  }
  std::printf("%d of %d corruptions are harmful, %d missed with all points, %d with those that every plan has\n", all_harmful, total,
              all_missed, all_missed_by_few);
  CHECK(2 * all_harmful >= total);
  CHECK(1000 * all_missed <= all_harmful);
  CHECK(1000 * all_missed_by_few <= all_harmful);
}

namespace {

// A graph with its fusion groups' plans, and proofs from plans of other lengths.
struct ProvenPlans {
  std::string name;
  ir::Graph graph;
  Partition partition;
  std::vector<Layout> layouts;
  std::vector<std::vector<Planned>> groups;
  std::vector<std::unique_ptr<const PlanProof>> proofs;  // by fusion group; may be null

  bool holds(std::uint32_t group, std::span<const Planned> pieces) const {
    return proofs[group] && pieces.size() == 1 && proofs[group]->holds(graph, partition.groups[group], layouts, pieces[0]);
  }
};

// Creates proofs from plans with other lengths. All values of `lengths` must differ.
std::optional<ProvenPlans> proven(const std::string& name, const ir::Graph& graph, const Partition& partition,
                                  const std::map<std::int64_t, std::int64_t>& lengths) {
  const std::shared_ptr<const Structure> structure = Structure::of(graph, graph, partition, {});
  if (!structure) return std::nullopt;
  const auto renamed = [&](std::int64_t extent) { return extent > 1 ? lengths.at(extent) : extent; };
  const std::optional<Lengths> of = structure->lengths_of(graph.with_extents(renamed));
  if (!of) return std::nullopt;
  ProvenPlans out{name, structure->optimised(*of), structure->partition(*of), std::vector<Layout>(graph.size()), {}, {}};
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    const std::vector<Planned> known = plan(graph, partition, g, out.layouts);
    out.groups.push_back(plan(out.graph, out.partition, g, out.layouts));
    out.proofs.push_back(known.size() == 1 ? PlanProof::of(graph, partition, g, out.layouts, known[0]) : nullptr);
  }
  return out;
}

std::vector<ProvenPlans> all_proven(std::mt19937_64& random) {
  std::vector<ProvenPlans> all;
  const auto add = [&](const std::string& name, const ir::Graph& graph, const Partition& partition, std::int64_t from) {
    std::map<std::int64_t, std::int64_t> lengths;
    std::vector<std::int64_t> free;
    for (std::int64_t length = from; length < from + 8; ++length) free.push_back(length);
    std::ranges::shuffle(free, random);
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      for (const std::int64_t extent : graph.shape(id))
        if (extent > 1 && !free.empty() && lengths.try_emplace(extent, free.back()).second) free.pop_back();
    if (std::optional<ProvenPlans> plans = proven(name, graph, partition, lengths)) all.push_back(std::move(*plans));
  };
  for (const Golden& golden : kGolden) {
    const std::string letters = letters_of(golden);
    const std::int64_t from = letters.size() > 3 ? 3 : 17;  // not few columns (fuse.h)
    for (int lengths = 0; lengths < 3; ++lengths) {
      onepass::test::Extents extents;
      for (const char c : letters) extents[c] = from + static_cast<std::int64_t>(extents.size());
      const ir::Graph graph = graph_of(golden, extents);
      add(golden.name, graph, fuse(graph), from);
    }
  }
  for (const char* formula : kFormulas) {
    const Plans plans(formula, kInputs);
    add(formula, plans.graph, plans.partition, 5);
  }
  return all;
}

}  // namespace

TEST_CASE("verify plan: a proof from other lengths covers the golden functions", "[verify]") {
  std::mt19937_64 random(11);
  std::size_t golden = 0, groups = 0, known = 0;
  for (const ProvenPlans& plans : all_proven(random)) {
    const bool is_golden = std::ranges::any_of(kGolden, [&](const Golden& g) { return plans.name == g.name; });
    golden += is_golden;
    for (std::uint32_t g = 0; g < plans.groups.size(); ++g) {
      INFO(plans.name);
      CHECK(verify_plan(plans.graph, plans.partition, g, plans.layouts, plans.groups[g]) == "");
      ++groups, known += plans.holds(g, plans.groups[g]);
      if (is_golden) CHECK(plans.holds(g, plans.groups[g]));
    }
  }
  CHECK(golden >= 45);
  CHECK(known > groups * 9 / 10);
}

TEST_CASE("verify plan: a proof from other lengths covers no harmful one of 10,000 corruptions", "[verify]") {
  std::mt19937_64 random(12);
  const std::vector<ProvenPlans> all = all_proven(random);
  int total = 0, harmful = 0, harmless = 0;
  for (int tries = 0; total < 10'000; ++tries) {
    REQUIRE(tries < 100'000);
    const ProvenPlans& plans = all[random() % all.size()];
    const auto g = static_cast<std::uint32_t>(random() % plans.groups.size());
    std::vector<Planned> pieces = plans.groups[g];
    const auto kind = static_cast<Corruption>(random() % kCorruptions);
    if (!plans.proofs[g] || !corrupt(pieces, kind, plans.graph, random)) continue;
    ++total;
    const bool same = image_of(plans.graph, pieces) == image_of(plans.graph, plans.groups[g]);
    ++(same ? harmless : harmful);
    if (same || !plans.holds(g, pieces)) continue;
    INFO(kNames[kind] << " of " << plans.name << "\n" << print(pieces[0].nest, pieces[0].numbers));
    FAIL_CHECK("a harmful corruption is covered");
  }
  std::printf("%d of %d corruptions of plans with proofs are harmful, %d harmless\n", harmful, total, harmless);
  CHECK(2 * harmful >= total);
}

// Arrays in any layout: a proof for one layout must not wrongly cover a different layout.
TEST_CASE("verify plan: a proof reads the layouts of each call", "[verify]") {
  const auto graph_for = [](std::int64_t n, std::int64_t m) { return optimised("x*w + y", {{"x", {n, m}}, {"w", {m}}, {"y", {n, m}}}); };
  const ir::Graph first = graph_for(10, 12), other = graph_for(20, 30);
  const Partition partition = fuse(first), of_other = fuse(other);
  const auto layouts = [](const ir::Graph& graph, std::vector<std::int64_t> strides) {
    std::vector<Layout> out(graph.size());
    if (!strides.empty()) out[graph.inputs[0].node] = std::move(strides);
    return out;
  };
  const std::vector<Layout> contiguous = layouts(first, {}), rows = layouts(first, {40, 1}), columns = layouts(first, {1, 10});
  const auto proof_of = [&](const std::vector<Layout>& l) {
    return PlanProof::of(first, partition, 0, l, plan(first, partition, 0, l)[0]);
  };
  const auto proof = proof_of(contiguous), of_rows = proof_of(rows), of_columns = proof_of(columns);
  REQUIRE(proof);
  REQUIRE(of_rows);
  REQUIRE(of_columns);
  const auto holds = [&](const std::unique_ptr<const PlanProof>& p, std::vector<std::int64_t> planned, std::vector<std::int64_t> is) {
    const Planned piece = plan(other, of_other, 0, layouts(other, std::move(planned)))[0];
    return p->holds(other, of_other.groups[0], layouts(other, std::move(is)), piece);
  };
  CHECK(holds(proof, {}, {}));
  CHECK(holds(of_rows, {77, 1}, {77, 1}));
  CHECK(holds(of_columns, {1, 20}, {1, 20}));
  CHECK(!holds(of_rows, {77, 1}, {78, 1}));
  CHECK(!holds(proof, {}, {60, 1}));
  CHECK(!holds(proof, {1, 20}, {1, 20}));
}

namespace {

int refuse_left = 0;
void shift_loads(std::vector<Planned>& pieces) {
  if (refuse_left-- <= 0) return;
  for (Planned& p : pieces)
    for (std::int64_t& offset : p.numbers.offsets) offset += 1;
}
struct Hooked {
  explicit Hooked(int plans) {
    refuse_left = plans;
    runtime::set_plan_hook(shift_loads);
  }
  ~Hooked() { runtime::set_plan_hook(nullptr); }
};
std::vector<std::string> said;

}  // namespace

TEST_CASE("verify plan: a call whose plan is rejected logs it and runs without the plan", "[verify]") {
  if (os::for_tests().strict) {  // processes in strict mode throw instead
    const Hooked hooked(1);
    CHECK_THROWS_AS(op::formula("x*2 + 1")({random_array({100})}), op::InternalError);
    return;
  }
  op::set_log([](op::LogLevel, std::string_view text) { said.emplace_back(text); });
  const Array x = random_array({100}), expected = op::formula("sum(x*2 + x) + x", {.mode = Mode::reference})({x});
  for (const int plans : {1, 1000}) {  // unfused; then interpreted
    for (const Mode mode : {Mode::adaptive, Mode::specialized, Mode::unfused}) {
      said.clear();
      const Hooked hooked(plans);
      const op::Formula f = op::formula("sum(x*2 + x) + x", {.mode = mode});
      for (int call = 0; call < 5; ++call) CHECK(bytes_of(Array(f({x}))) == bytes_of(expected));
      CHECK(f.stats().fallbacks == 1);
      REQUIRE(!said.empty());
      CHECK_THAT(said[0], Contains("the plan verifier rejected a plan") && Contains("nest") && !Contains("\n"));
    }
  }
  op::set_log({});
}

namespace {

// Replaces operators by an operator that no backend can emit. Kernels of one operator are unchanged.
void unspeakable(compiler::Nest& nest) {
  const auto computes = [](const Statement& s) { return s.kind == Statement::Kind::Op; };
  if (std::ranges::count_if(nest.body, computes) < 2) return;
  for (Statement& s : nest.body)
    if (computes(s)) s.op = ir::Op::Gather;
}
struct Unspeakable {
  Unspeakable() {
    runtime::set_nest_hook(unspeakable);
    runtime::set_first_tier(runtime::TierChoice::Quick);
  }
  ~Unspeakable() {
    runtime::set_nest_hook(nullptr);
    runtime::set_first_tier({});
  }
};

}  // namespace

TEST_CASE("verify plan: a call whose kernel cannot be emitted logs it and runs without the kernel", "[verify]") {
  if (!test::has_codegen()) return;
  const Array x = random_array({100}), expected = op::formula("sum(x*3 + x)*x", {.mode = Mode::reference})({x});
  const Unspeakable hooked;
  if (os::for_tests().strict) {
    CHECK_THROWS_AS(op::formula("sum(x*3 + x)*x")({x}), op::InternalError);
    return;
  }
  op::set_log([](op::LogLevel, std::string_view text) { said.emplace_back(text); });
  for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::specialized}) {
    said.clear();
    const op::Formula f = op::formula("sum(x*3 + x)*x", {.mode = mode});
    for (int call = 0; call < 5; ++call) CHECK(bytes_of(Array(f({x}))) == bytes_of(expected));
    CHECK(f.stats().fallbacks == 1);
    CHECK(f.stats().kernels > 1);  // unfused
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], Contains("the plan verifier rejected a plan"));
  }
  op::set_log({});
}
