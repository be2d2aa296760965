// See tiles.h.
#include "compiler/tiles/tiles.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "compiler/rare.h"
#include "ir/build.h"
#include "ir/graph.h"

namespace onepass::compiler {

using ir::Op;
using Kind = Statement::Kind;

TileLoop tile_loop(Op op, DType from, DType to, unsigned uniform, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return tile_loop_avx512(op, from, to, uniform);
  if (target.has_avx2()) return tile_loop_avx2(op, from, to, uniform);
#endif
  static_cast<void>(target);
  return tile_loop_baseline(op, from, to, uniform);
}

TileLoop tile_pair(TilePair pair, DType dtype, unsigned uniform, const Target& target) {
#ifdef __x86_64__
  if (target.has_avx512()) return tile_pair_avx512(pair, dtype, uniform);
  if (target.has_avx2()) return tile_pair_avx2(pair, dtype, uniform);
#endif
  static_cast<void>(target);
  return tile_pair_baseline(pair, dtype, uniform);
}

// What a pass over a tile of f32 takes, measured on one processor (Zen 5); choices between this tier and the compiler need no more.
constexpr double kFusedPasses = 0.2;  // of an operator that is written out within a loop
constexpr double kPassNanoseconds = 0.04, kStridedNanoseconds = 0.8, kStepNanoseconds = 4;

double TileProgram::nanoseconds(std::span<const std::int64_t> words) const {
  double rows = 1;
  for (std::uint32_t l = 0; l < outer_; ++l) rows *= static_cast<double>(words[layout_.extents + l]);
  const std::int64_t extent = words[layout_.extents + loops_ - 1];
  const std::int64_t tile = std::min(tile_, std::max<std::int64_t>(words[layout_.tile], 1));
  return rows * (static_cast<double>(extent) * element_ns_ + static_cast<double>((extent + tile - 1) / tile) * tile_ns_);
}

double TileProgram::compile_nanoseconds() const { return 2.0e6 + 4e3 * static_cast<double>(steps_[2].size()); }
double TileProgram::optimise_nanoseconds() const { return 5.0e6 + 1.2e5 * static_cast<double>(primitives_); }

// ------------------------------------------------------------------------------------------------ making

class TileProgramBuilder {
 public:
  TileProgramBuilder(const Nest& nest, const Target& target) : nest_(nest), target_(target), program_(new TileProgram(nest)) {}

  std::shared_ptr<const TileProgram> make() {
    if (nest_.kind != NestKind::Map || !nest_.derived.empty() || nest_.short_rows || nest_.phases != 1) return nullptr;
    if (std::ranges::any_of(nest_.accesses, [](const Access& a) { return a.table != Access::kNone; })) return nullptr;
    program_->loops_ = nest_.loops();
    program_->outer_ = nest_.outer;
    program_->linears_ = static_cast<std::uint32_t>(nest_.linears.size());
    for (const Access& a : nest_.accesses) program_->linear_of_.push_back(a.linear);
    for (const Check& c : nest_.checks) program_->check_of_.push_back(c.linear);
    of_.assign(nest_.body.size(), kNone);
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id)
      if (!statement(id)) return nullptr;
    join_pairs();
    write_through();
    place_values();
    const std::int64_t table = static_cast<std::int64_t>(values_.size() + program_->linears_ + nest_.loops()) * 8;
    const std::int64_t cells = std::int64_t{program_->cells_} * 8;
    program_->scratch_bytes_ = round_up(table + cells) + program_->tiles_ * program_->tile_bytes_;
    program_->tile_ns_ = kStepNanoseconds * static_cast<double>(program_->steps_[2].size() + program_->stores_.size() + 2) +
                         kStepNanoseconds * static_cast<double>(program_->steps_[1].size());
    return std::shared_ptr<const TileProgram>(std::move(program_));
  }

 private:
  using Step = TileProgram::Step;
  using Level = TileProgram::Level;
  static constexpr std::uint32_t kNone = Step::kNone;
  struct Value {
    DType dtype;
    Level level;
    bool in_place = false;  // where an access reads: it has no memory of its own
  };

  const Nest& nest_;
  const Target& target_;
  std::unique_ptr<TileProgram> program_;
  std::vector<Value> values_;
  std::vector<std::uint32_t> of_;  // the value of each statement
  std::map<std::pair<DType, std::uint64_t>, std::uint32_t> constant_of_;

  static std::int64_t round_up(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

  std::uint32_t value(DType dtype, Level level) {
    values_.push_back({dtype, level});
    return static_cast<std::uint32_t>(values_.size() - 1);
  }
  std::vector<Step>& steps(Level level) { return program_->steps_[static_cast<int>(level)]; }

  Level level_of(std::uint64_t loops) const { return loops >> nest_.vector_loop() & 1 ? Level::Element : loops ? Level::Row : Level::Call; }

  std::uint32_t constant(DType dtype, std::uint64_t bits) {
    const auto [it, is_new] = constant_of_.try_emplace({dtype, bits}, kNone);
    if (is_new) {
      it->second = value(dtype, Level::Call);
      program_->constants_.push_back({it->second, bits});
    }
    return it->second;
  }

  // What a loop over f32 takes is the unit.
  void count(Level level, DType dtype, double passes) {
    if (level == Level::Element) program_->element_ns_ += kPassNanoseconds * passes * static_cast<double>(size_of(dtype)) / 4;
  }
  static double passes_of(Op op) {
    switch (op) {
      case Op::Div:
      case Op::Reciprocal:
      case Op::Sqrt: return 3;
      case Op::Maximum:
      case Op::Minimum:
      case Op::Clamp:
      case Op::Share:
      case Op::Cast:
      case Op::FloorDiv:
      case Op::BinaryExponent:
      case Op::BinaryFraction: return 2;
      default: return 1;
    }
  }

  bool statement(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    const Level level = level_of(s.loops);
    switch (s.kind) {
      case Kind::Constant: of_[id] = constant(s.dtype, s.bits); return true;
      case Kind::Slot:
        of_[id] = value(s.dtype, Level::Call);
        program_->slots_.push_back({of_[id], program_->layout_.slots + s.at});
        return !is_half(nest_.slots[s.at]);
      case Kind::Index: return index(id, level);
      case Kind::Guard:
        if (s.a != Statement::kNone) return false;
        of_[id] = value(DType::Bool, level);
        steps(level).push_back({.kind = Step::Kind::Guard, .y = of_[id], .at = s.at, .count = s.count});
        count(level, DType::F32, 3 * s.count);
        return true;
      case Kind::Load: return load(id, level);
      case Kind::Store: return store(s);
      case Kind::Op: {
        if (is_half(s.half)) return false;
        std::array<std::uint32_t, 3> operands = {kNone, kNone, kNone};
        std::size_t n = 0;
        for (const std::uint32_t o : {s.a, s.b, s.c})
          if (o != Statement::kNone) operands[n++] = of_[o];
        of_[id] = apply(s.op, s.dtype, operands);
        return of_[id] != kNone;
      }
      default: return false;
    }
  }

  bool index(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    if (is_half(s.half)) return false;
    const std::uint32_t i = value(DType::I64, level);
    steps(level).push_back({.kind = Step::Kind::Index, .y = i, .at = s.at});
    count(level, DType::I64, 1);
    of_[id] = s.dtype == DType::I64 ? i : apply(Op::Cast, s.dtype, {i, kNone, kNone});
    return of_[id] != kNone;
  }

  bool load(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    const Access& access = nest_.accesses[s.at];
    const DType dtype = nest_.buffers[access.buffer].dtype;
    if (s.a != Statement::kNone || is_half(dtype) || dtype != s.dtype) return false;
    of_[id] = value(dtype, level);
    Step step{.kind = Step::Kind::Load, .size = static_cast<std::uint8_t>(size_of(dtype)), .y = of_[id], .at = s.at};
    const bool contiguous = nest_.linears[access.linear].of[nest_.vector_loop()] == Coefficient::One;
    if (s.guard != Statement::kNone) {
      step.a = of_[s.guard];
      step.one_guard = values_[step.a].level != Level::Element;
    } else if (level != Level::Element || contiguous) {
      step.kind = Step::Kind::Place;
      values_[of_[id]].in_place = true;
    }
    steps(level).push_back(step);
    if (step.kind == Step::Kind::Load && level == Level::Element) program_->element_ns_ += kStridedNanoseconds;
    return true;
  }

  // The stores run one after the other, and an earlier one may overwrite the array that a value is read from: the value is copied first.
  void hold(std::uint32_t id) {
    if (!values_[id].in_place) return;
    values_[id].in_place = false;
    std::vector<Step>& all = steps(values_[id].level);
    std::ranges::find(all, id, &Step::y)->kind = Step::Kind::Load;
  }

  bool store(const Statement& s) {
    const std::uint32_t stored = of_[s.a];
    if (!program_->stores_.empty()) hold(stored);
    const DType dtype = nest_.buffers[nest_.accesses[s.at].buffer].dtype;
    if (s.count > 1 || s.b != Statement::kNone || is_half(dtype) || dtype != values_[stored].dtype) return false;
    Step step{.kind = Step::Kind::Store,
              .size = static_cast<std::uint8_t>(size_of(dtype)),
              .one = values_[stored].level != Level::Element,
              .a = stored,
              .at = s.at};
    const bool contiguous = nest_.linears[nest_.accesses[s.at].linear].of[nest_.vector_loop()] == Coefficient::One;
    if (s.guard != Statement::kNone) {
      step.b = of_[s.guard];
      step.one_guard = values_[step.b].level != Level::Element;
    }
    program_->stores_.push_back(step);
    program_->element_ns_ += contiguous && step.b == kNone ? kPassNanoseconds : kStridedNanoseconds;
    return true;
  }

  // ---- operators

  std::uint32_t apply(Op op, DType result, const std::array<std::uint32_t, 3>& operands) {
    const auto arity = static_cast<std::size_t>(ir::info(op).arity);
    Level level = Level::Call;
    for (std::size_t i = 0; i < arity; ++i) level = std::max(level, values_[operands[i]].level);
    unsigned uniform = 0;
    for (std::size_t i = 0; i < arity; ++i)
      if (values_[operands[i]].level != Level::Element) uniform |= 1u << i;
    const DType from = values_[operands[arity - 1]].dtype;
    const TileLoop loop = tile_loop(op, from, result, uniform, target_);
    const bool is_expanded = ir::info(op).kind == ir::OpKind::Expanded;
    if (!loop) return is_expanded ? expand(op, operands) : kNone;
    if (level == Level::Element) program_->primitives_ += is_expanded ? ir::expansion(op, from).size() : 1;
    const std::uint32_t y = value(result, level);
    steps(level).push_back({.kind = Step::Kind::Loop,
                            .op = op,
                            .dtype = from,
                            .uniform = static_cast<std::uint8_t>(uniform),
                            .loop = loop,
                            .y = y,
                            .a = operands[0],
                            .b = operands[1],
                            .c = operands[2]});
    count(level, size_of(from) > size_of(result) ? from : result,
          is_expanded ? kFusedPasses * ir::expansion(op, from).size() : passes_of(op));
    return y;
  }

  // The nodes of an expansion; those behind a `rare` are skipped where no element needs them.
  std::uint32_t expand(Op op, const std::array<std::uint32_t, 3>& operands) {
    const ir::Graph& g = ir::expansion(op, values_[operands[0]].dtype);
    const BehindRare behind(g);
    std::vector<std::uint32_t> of(g.size(), kNone);
    for (ir::NodeId id = 0; id <= g.outputs[0]; ++id)
      if (behind.rare[id] == ir::kNoNode && !node(g, behind, id, operands, of)) return kNone;
    return of[g.outputs[0]];
  }

  bool node(const ir::Graph& g, const BehindRare& behind, ir::NodeId id, const std::array<std::uint32_t, 3>& operands,
            std::vector<std::uint32_t>& of) {
    if (of[id] != kNone) return true;
    const ir::Node n = g[id];
    if (n.op == Op::Input) return of[id] = operands[n.bits], true;
    if (n.op == Op::Constant) return of[id] = constant(n.dtype, n.bits), true;
    if (n.op == Op::Rare && behind.first.at(g.operand(id, 0)) == id && !slow_side(g, behind, id, operands, of)) return false;
    std::array<std::uint32_t, 3> in = {kNone, kNone, kNone};
    for (int i = 0; i < ir::info(n.op).arity; ++i) in[static_cast<std::size_t>(i)] = of[g.operand(id, i)];
    of[id] = apply(n.op, n.dtype, in);
    return of[id] != kNone;
  }

  // What stands behind the `rare`s of one condition. Where it is skipped the tiles hold whatever was there: `rare` chooses none of it.
  bool slow_side(const ir::Graph& g, const BehindRare& behind, ir::NodeId rare, const std::array<std::uint32_t, 3>& operands,
                 std::vector<std::uint32_t>& of) {
    const std::uint32_t condition = of[g.operand(rare, 0)];
    const Level level = values_[condition].level;
    std::size_t begin[3] = {};
    for (int l = static_cast<int>(level); l < 3; ++l) {
      std::vector<Step>& all = program_->steps_[l];
      begin[l] = all.size();
      all.push_back({.kind = Step::Kind::Skip, .one = level != Level::Element, .a = condition});
    }
    const double before = program_->element_ns_;
    for (ir::NodeId id = 0; id < g.outputs[0]; ++id)
      if (behind.rare[id] == rare && !node(g, behind, id, operands, of)) return false;
    if (level == Level::Element) program_->element_ns_ = before + kPassNanoseconds / 4;
    for (int l = static_cast<int>(level); l < 3; ++l) {
      std::vector<Step>& all = program_->steps_[l];
      all[begin[l]].count = static_cast<std::uint32_t>(all.size() - begin[l] - 1);
      if (all[begin[l]].count == 0) all.pop_back();
    }
    return true;
  }

  // A step whose value the next one alone needs becomes one loop with it, so that the value is not stored and loaded. Not where a Skip
  // counts the steps.
  void join_pairs() {
    std::vector<std::uint32_t> uses(values_.size(), 0);
    for (const std::vector<Step>* const all : {&program_->steps_[0], &program_->steps_[1], &program_->steps_[2], &program_->stores_})
      for (const Step& s : *all)
        for (const std::uint32_t v : {s.a, s.b, s.c})
          if (v != kNone) ++uses[v];
    std::vector<Step>& all = steps(Level::Element);
    std::vector<Step> joined;
    std::uint32_t counted = 0;  // steps that a Skip still counts
    bool may_join = false;      // the last one
    for (const Step& s : all) {
      const bool is_counted = counted > 0;
      if (is_counted) --counted;
      if (s.kind == Step::Kind::Skip) counted = std::max(counted, s.count);
      if (may_join && !is_counted && join(joined.back(), s, uses)) {
        program_->element_ns_ -= kPassNanoseconds * static_cast<double>(size_of(s.dtype)) / 4;
        may_join = false;
      } else {
        joined.push_back(s);
        may_join = !is_counted;
      }
    }
    all = std::move(joined);
  }

  bool join(Step& first, const Step& second, const std::vector<std::uint32_t>& uses) const {
    if (first.kind != Step::Kind::Loop || second.kind != Step::Kind::Loop || first.dtype != second.dtype || uses[first.y] != 1 ||
        (second.a != first.y && second.b != first.y))
      return false;
    std::uint32_t a = first.a, b = first.b;
    unsigned uniform = first.uniform;
    if (uniform == 1 && ir::info(first.op).traits & ir::kCommutative) std::swap(a, b), uniform = 2;
    const bool behind = second.b == first.y;
    if (second.uniform) uniform |= 4;
    const TileLoop loop = tile_pair({first.op, second.op, behind}, first.dtype, uniform, target_);
    if (!loop) return false;
    first = {.kind = Step::Kind::Loop, .loop = loop, .y = second.y, .a = a, .b = b, .c = behind ? second.a : second.b};
    return true;
  }

  // ---- memory

  // Of one store alone: its value is computed where it is stored, if that is the last thing that is done.
  void write_through() {
    if (program_->stores_.size() != 1 || steps(Level::Element).empty()) return;
    const Step &store = program_->stores_[0], &last = steps(Level::Element).back();
    const bool contiguous =
        nest_.linears[nest_.accesses[store.at].linear].of[nest_.vector_loop()] == Coefficient::One && store.b == kNone && !store.one;
    if (!contiguous || last.kind != Step::Kind::Loop || last.y != store.a) return;
    program_->written_through_ = store.a;
    values_[store.a].in_place = true;
  }

  void place_values() {
    TileProgram& p = *program_;
    p.place_.assign(values_.size(), kNone);
    for (std::uint32_t v = 0; v < values_.size(); ++v)
      if (values_[v].level != Level::Element && !values_[v].in_place) p.place_[v] = p.cells_++;
    const std::vector<Step>& all = steps(Level::Element);
    std::vector<std::size_t> last(values_.size(), 0);
    std::int64_t widest = 1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const std::uint32_t v : {all[i].a, all[i].b, all[i].c})
        if (v != kNone) last[v] = i;
      if (all[i].kind != Step::Kind::Skip) widest = std::max(widest, static_cast<std::int64_t>(size_of(values_[all[i].y].dtype)));
    }
    for (const Step& s : p.stores_)
      for (const std::uint32_t v : {s.a, s.b})
        if (v != kNone) last[v] = all.size();
    std::vector<std::uint32_t> free;
    const auto is_tile = [&](std::uint32_t v) { return v != kNone && values_[v].level == Level::Element && !values_[v].in_place; };
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Step& s = all[i];
      std::vector<std::uint32_t> ends;
      bool one_size = true;  // a loop over elements of two sizes must not write over what it has yet to read
      for (const std::uint32_t v : {s.a, s.b, s.c})
        if (is_tile(v) && last[v] == i && std::ranges::find(ends, p.place_[v]) == ends.end()) {
          ends.push_back(p.place_[v]);
          one_size &= s.kind == Step::Kind::Loop && size_of(values_[v].dtype) == size_of(values_[s.y].dtype);
        }
      if (one_size) free.insert(free.end(), ends.begin(), ends.end());
      if (s.kind != Step::Kind::Skip && is_tile(s.y)) {
        if (free.empty()) free.push_back(p.tiles_++);
        p.place_[s.y] = free.back();
        free.pop_back();
        if (last[s.y] <= i) free.push_back(p.place_[s.y]);  // of no use
      }
      if (!one_size) free.insert(free.end(), ends.begin(), ends.end());
    }
    // A loop's beginning and end take as long as some hundred elements: few long tiles are better while they stay in the cache.
    constexpr std::int64_t kHalfCache = 24 << 10;
    const auto most = static_cast<std::uint64_t>(kHalfCache / (std::max<std::int64_t>(p.tiles_, 1) * widest));
    p.tile_ = std::clamp(static_cast<std::int64_t>(std::bit_floor(most)), TileProgram::kFewest, TileProgram::kMost);
    p.tile_bytes_ = p.tile_ * widest;
    for (std::uint32_t v = 0; v < values_.size(); ++v)
      if (is_tile(v) && p.place_[v] != kNone) p.place_[v] += p.cells_;
  }
};

std::shared_ptr<const TileProgram> TileProgram::of(const Nest& nest, const Target& target) {
  return TileProgramBuilder(nest, target).make();
}

// ------------------------------------------------------------------------------------------------ running

namespace {

template <class E> void copy_in(std::byte* to, const std::byte* from, std::int64_t step, std::int64_t n, const std::byte* guard, bool one) {
  auto* const y = reinterpret_cast<E*>(to);
  const auto* const x = reinterpret_cast<const E*>(from);
  if (guard && one && guard[0] == std::byte{0}) {
    std::fill_n(y, n, E{0});
  } else if (guard && !one) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = guard[i] != std::byte{0} ? x[i * step] : E{0};
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i * step];
  }
}

template <class E>
void copy_out(std::byte* to, std::int64_t step, const std::byte* from, bool one, std::int64_t n, const std::byte* guard, bool one_guard) {
  auto* const y = reinterpret_cast<E*>(to);
  const auto* const x = reinterpret_cast<const E*>(from);
  if (guard && one_guard && guard[0] == std::byte{0}) return;
  if (guard && !one_guard) {
    for (std::int64_t i = 0; i < n; ++i)
      if (guard[i] != std::byte{0}) y[i * step] = x[one ? 0 : i];
  } else if (one) {
    for (std::int64_t i = 0; i < n; ++i) y[i * step] = x[0];
  } else if (step == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(E));
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * step] = x[i];
  }
}

// f for the integer of an element's size: copies do not look at what they copy.
template <class F> void of_size(std::uint8_t size, F&& f) {
  switch (size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

}  // namespace

std::int64_t TileProgram::step_of(const Row& row, std::uint32_t linear) const {
  return row.words[layout_.coefficient_of(linear, loops_ - 1)];
}

// The pointers of accesses have the offsets of their linears already.
std::byte* TileProgram::address(const Row& row, std::uint32_t access, std::int64_t begin, std::uint8_t size) const {
  const std::uint32_t linear = linear_of_[access];
  const std::int64_t elements = row.linears[linear] - row.words[layout_.offset_of(linear)] + step_of(row, linear) * begin;
  return reinterpret_cast<std::byte*>(row.words[layout_.pointers + access] + elements * size);
}

void TileProgram::run_steps(const std::vector<Step>& steps, const Row& row, std::int64_t begin, std::int64_t n) const {
  std::byte** const at = row.at;
  const auto pointer = [&](std::uint32_t v) { return v == Step::kNone ? nullptr : at[v]; };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    switch (s.kind) {
      case Step::Kind::Loop: s.loop(at[s.a], pointer(s.b), pointer(s.c), at[s.y], n); break;
      case Step::Kind::Place: at[s.y] = address(row, s.at, begin, s.size); break;
      case Step::Kind::Load:
        of_size(s.size, [&]<class E>(E) {
          copy_in<E>(at[s.y], address(row, s.at, begin, s.size), step_of(row, linear_of_[s.at]), n, pointer(s.a), s.one_guard);
        });
        break;
      case Step::Kind::Index: {
        const std::int64_t step = step_of(row, s.at), first = row.linears[s.at] + step * begin;
        auto* const y = reinterpret_cast<std::int64_t*>(at[s.y]);
        for (std::int64_t k = 0; k < n; ++k) y[k] = first + step * k;
        break;
      }
      case Step::Kind::Guard: {
        auto* const y = reinterpret_cast<std::uint8_t*>(at[s.y]);
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
          const std::uint32_t linear = check_of_[c];
          const auto bound = static_cast<std::uint64_t>(row.words[layout_.bounds + c]);
          const std::int64_t step = step_of(row, linear), first = row.linears[linear] + step * begin;
          for (std::int64_t k = 0; k < n; ++k) {
            const bool inside = static_cast<std::uint64_t>(first + step * k) < bound;
            y[k] = c == s.at ? inside : static_cast<std::uint8_t>(y[k] & static_cast<std::uint8_t>(inside));
          }
        }
        break;
      }
      case Step::Kind::Store:
        of_size(s.size, [&]<class E>(E) {
          copy_out<E>(address(row, s.at, begin, s.size), step_of(row, linear_of_[s.at]), at[s.a], s.one, n, pointer(s.b), s.one_guard);
        });
        break;
      case Step::Kind::Skip: {
        const std::int64_t elements = s.one ? 1 : n;
        if (!std::memchr(at[s.a], 1, static_cast<std::size_t>(elements))) i += s.count;
        break;
      }
    }
  }
}

void TileProgram::run_row(const Row& row, std::int64_t begin, std::int64_t end) const {
  run_steps(steps_[1], row, begin, 1);
  for (std::int64_t j = begin; j < end; j += tile_) {
    const std::int64_t n = std::min(tile_, end - j);
    if (written_through_ != Step::kNone) row.at[written_through_] = address(row, stores_[0].at, j, stores_[0].size);
    run_steps(steps_[2], row, j, n);
    if (written_through_ == Step::kNone) run_steps(stores_, row, j, n);
  }
}

void TileProgram::run(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
  auto* const memory = static_cast<std::byte*>(scratch);
  auto* const index = reinterpret_cast<std::int64_t*>(memory);  // of the loops
  const Row row{words, index + loops_, reinterpret_cast<std::byte**>(memory) + loops_ + linears_};
  std::byte* const cells = memory + (loops_ + linears_ + place_.size()) * 8;
  std::byte* const tiles = memory + scratch_bytes_ - tiles_ * tile_bytes_;
  for (std::size_t v = 0; v < place_.size(); ++v)
    row.at[v] = place_[v] == Step::kNone ? nullptr
                : place_[v] < cells_     ? cells + std::size_t{place_[v]} * 8
                                         : tiles + (place_[v] - cells_) * tile_bytes_;
  for (const Cell& c : constants_) std::memcpy(row.at[c.value], &c.bits, 8);
  for (const Cell& c : slots_) std::memcpy(row.at[c.value], &words[c.bits], 8);
  const auto to_row = [&] {
    for (std::uint32_t l = 0; l < linears_; ++l) {
      row.linears[l] = words[layout_.offset_of(l)];
      for (std::uint32_t k = 0; k < outer_; ++k) row.linears[l] += words[layout_.coefficient_of(l, k)] * index[k];
    }
  };
  std::fill_n(index, loops_, 0);
  to_row();
  run_steps(steps_[0], row, 0, 1);

  // An item is `tile_outer` iterations of the last outer loop, `tile` of the vector loop, which counts fastest.
  const std::int64_t extent = words[layout_.extents + loops_ - 1], tile = words[layout_.tile], rows = words[layout_.tile_outer];
  const std::int64_t along = (extent + tile - 1) / tile;
  for (std::int64_t item = begin; item < end; ++item) {
    std::int64_t rest = item / along;
    const std::int64_t first = item % along * tile, last = std::min(first + tile, extent);
    std::int64_t row_begin = 0, row_end = 1;
    for (std::uint32_t l = outer_; l-- > 0;) {
      const std::int64_t all = words[layout_.extents + l], per_item = l + 1 == outer_ ? rows : 1, count = (all + per_item - 1) / per_item;
      index[l] = rest % count * per_item;
      rest /= count;
      if (l + 1 == outer_) row_begin = index[l], row_end = std::min(row_begin + per_item, all);
    }
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      if (outer_ > 0) index[outer_ - 1] = r;
      to_row();
      run_row(row, first, last);
    }
  }
}

}  // namespace onepass::compiler
