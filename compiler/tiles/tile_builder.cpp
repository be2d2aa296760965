// Builds the TileProgram of a Nest: chooses the loops of each statement, their order, and the memory of values.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "compiler/plan/scratch.h"
#include "compiler/rare.h"
#include "compiler/tiles/tile_form.h"
#include "compiler/tiles/tiles.h"
#include "ir/build.h"
#include "ir/graph.h"
#include "ir/order.h"
#include "ir/steps.h"

namespace onepass::compiler {

using ir::Op;
using Kind = Statement::Kind;

namespace {

// Nanoseconds per pass over a tile of f32, measured on an AMD Zen 5; for reductions, on an Intel Sapphire Rapids. The choice between
// the tiled interpreter and compiled code needs no better estimates.
constexpr double kFusedPasses = 0.2;  // passes of an operator that is inlined in a loop
constexpr double kPassNanoseconds = 0.04, kStridedNanoseconds = 0.8, kStepNanoseconds = 4;
constexpr double kScanNanoseconds = 0.6, kHalveNanoseconds = 40, kSerialNanoseconds = 4;
constexpr double kWholeNanoseconds = 7, kSquareNanoseconds = 0.25;   // per row that is folded whole; per element that is read across
constexpr double kProductNanoseconds = 1.3, kChainNanoseconds = 50;  // per f32 product, relative to one-byte vectors; per row of a block

constexpr std::int64_t kHalfCache = 24 << 10;   // bytes of the first-level cache for tiles
constexpr std::int64_t kWholeBytes = 64 << 10;  // bytes of the second-level cache for whole rows

FoldKind kind_of(Op op) {
  switch (op) {
    case Op::ReduceSum:
    case Op::ScanSum: return FoldKind::Sum;
    case Op::ReduceProd:
    case Op::ScanProd: return FoldKind::Product;
    case Op::ReduceMax:
    case Op::ScanMax: return FoldKind::Maximum;
    case Op::ReduceMin:
    case Op::ScanMin: return FoldKind::Minimum;
    default: return FoldKind::Contraction;
  }
}

std::uint64_t identity_of(FoldKind kind, DType dtype) {
  const bool real = is_float(dtype), is_signed = is_signed_integer(dtype);
  const std::uint64_t top = std::uint64_t{1} << (8 * size_of(dtype) - 1), all = top | (top - 1);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case FoldKind::Product: return ir::bits_of(dtype, 1.0);
    case FoldKind::Maximum: return real ? ir::bits_of(dtype, -infinity) : is_signed ? top : 0;
    case FoldKind::Minimum: return real ? ir::bits_of(dtype, infinity) : dtype == DType::Bool ? 1 : is_signed ? top - 1 : all;
    default: return real ? ir::bits_of(dtype, -0.0) : 0;
  }
}

}  // namespace

class TileBuilder {
 public:
  TileBuilder(const Nest& nest, const Target& target) : nest_(nest), target_(target), program_(new TileProgram(nest, target)) {}

  std::shared_ptr<const TileProgram> make() {
    if (nest_.is_in_library() || (nest_.has_columns() && nest_.runs)) return nullptr;
    if (std::ranges::any_of(nest_.accesses, [](const Access& a) { return a.table != Access::kNone; })) return nullptr;
    for (const Access& a : nest_.accesses) program_->linear_of_.push_back(a.linear);
    for (const Check& c : nest_.checks) program_->check_of_.push_back(c.linear);
    for (const Statement& s : nest_.body) program_->reductions_ += s.kind == Kind::Reduce, program_->scans_ += s.kind == Kind::Scan;
    if (nest_.is_routine() ? !recurrence() : !form(Rows::One)) return nullptr;
    program_->form_ = std::move(form_);
    program_->scratch_bytes_ = program_->form_->scratch_bytes;
    if (nest_.is_routine()) return std::shared_ptr<const TileProgram>(std::move(program_));
    const bool along_rows = nest_.kind == NestKind::Lanes && nest_.serial == 0 && !nest_.has_columns();
    const auto also = [&](Rows rows, std::unique_ptr<const TileForm>& to) {
      if (!form(rows)) return;
      program_->scratch_bytes_ = std::max(program_->scratch_bytes_, form_->scratch_bytes);
      to = std::move(form_);
    };
    if (along_rows && nest_.sweeps > 1) also(Rows::Whole, program_->whole_);
    program_->across_ = nest_.outer > 0 && reads_across();
    const bool elements = nest_.kind == NestKind::Map && !nest_.has(Kind::Scan);
    if (nest_.outer > 0 && (along_rows || elements)) also(Rows::Abreast, program_->abreast_);
    return std::shared_ptr<const TileProgram>(std::move(program_));
  }

 private:
  using Step = TileStep;
  static constexpr std::uint32_t kNone = Step::kNone;
  // One      one row at a time, in tiles
  // Whole    one row at a time, in a single tile
  // Abreast  several rows per tile
  enum class Rows : std::uint8_t { One, Whole, Abreast };
  enum class Memory : std::uint8_t {
    Own,        // a cell, or a tile while it is needed
    Kept,       // a tile during a whole row
    Elsewhere,  // the address that an access uses or that the run sets
  };
  struct Value {
    DType dtype;  // of the elements; i32 for narrow integers
    Level level;
    Memory memory = Memory::Own;
    DType type = dtype;  // in the nest
  };

  const Nest& nest_;
  const Target& target_;
  std::unique_ptr<TileProgram> program_;
  // State of the form under construction.
  std::unique_ptr<TileForm> form_;
  Rows rows_ = Rows::One;
  std::size_t now_ = 0;  // the current sweep, or the stage before it
  std::vector<Value> values_;
  std::vector<std::uint32_t> of_;  // value of each statement
  std::map<std::pair<DType, std::uint64_t>, std::uint32_t> constant_of_;
  std::map<std::uint32_t, std::uint32_t> spread_of_;  // several rows per tile: a row's value repeated for each of its elements
  std::size_t primitives_ = 0;

  static std::int64_t round_up(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

  // ---- the form: stages and sweeps alternate

  void begin(Rows rows, std::size_t stages, std::size_t sweeps) {
    rows_ = rows;
    form_ = std::make_unique<TileForm>();
    form_->abreast = rows == Rows::Abreast;
    form_->stages.resize(stages);
    form_->sweeps.resize(sweeps);
    spread_of_.clear();
    values_.clear();
    constant_of_.clear();
    primitives_ = 0;
  }

  bool form(Rows rows) {
    const bool scans_along = nest_.kind == NestKind::Map && nest_.has(Kind::Scan);
    begin(rows, nest_.sweeps + 1u, nest_.sweeps + std::size_t{nest_.has_columns() || scans_along});
    const std::vector<bool> behind = nest_.behind_columns();
    of_.assign(nest_.body.size(), kNone);
    const std::vector<std::vector<bool>> needed = needed_by_sweep(nest_, {});
    for (now_ = 0; now_ <= nest_.sweeps; ++now_) {
      for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
        const Statement& s = nest_.body[id];
        if (s.stage != now_ || is_inner(s) || s.kind == Kind::Reduce || behind[id]) continue;
        if (s.kind == Kind::Store ? !store(s, form_->stages[now_].stores) : !statement(id)) return false;
      }
      if (now_ < nest_.sweeps && !sweep(needed[now_])) return false;
    }
    now_ = nest_.sweeps;
    if (nest_.has_columns() && !columns(behind)) return false;
    if (scans_along && !sums_of_scans()) return false;
    for (TileForm::Stage& stage : form_->stages) join_pairs(stage.tile);
    for (TileForm::Sweep& sweep : form_->sweeps) join_pairs(sweep.each), write_through(sweep.each);
    if (nest_.kind == NestKind::Rows)
      for (TileForm::Sweep& sweep : form_->sweeps) find_direct(sweep);
    place_values();
    double each = 0, serial = 0, row = 0;
    bool chains = false;  // contraction of arrays in memory: the serial loop runs no lists
    for (const TileForm::Sweep& s : form_->sweeps) {
      each += static_cast<double>(s.each.size() + 2), serial += static_cast<double>(s.serial.size());
      chains |= s.chain.x_access != kNone && s.chain.y_access != kNone;
    }
    for (const TileForm::Stage& s : form_->stages) row += static_cast<double>(s.row.size() + s.tile.size() + s.stores.size());
    form_->tile_ns = kStepNanoseconds * each;
    form_->serial_ns = nest_.serial ? kStepNanoseconds * serial + kSerialNanoseconds * nest_.sweeps : 0;
    const double folds = nest_.kind == NestKind::Lanes ? static_cast<double>(form_->folds.size()) : 0;
    form_->row_ns = kStepNanoseconds * row + (form_->abreast ? 0 : kHalveNanoseconds * folds);
    form_->abreast_ns = form_->abreast ? kWholeNanoseconds * folds : 0;
    if (chains && nest_.sweeps == 1) {
      form_->tile_ns = form_->serial_ns = 0;
      form_->row_ns += kChainNanoseconds;
    }
    finish(static_cast<std::size_t>(each + serial + row));
    return true;
  }
  void finish(std::size_t steps) {
    program_->steps_ = std::max(program_->steps_, steps);
    program_->bytes_ += steps * sizeof(Step) + sizeof(TileForm);
    program_->primitives_ = std::max(program_->primitives_, primitives_);
  }

  // ---- steps (ir/steps.h)

  bool recurrence() {
    begin(Rows::One, 4, 3);
    form_->recurrent = true;
    std::string broken;
    const ir::Steps s = ir::steps_of(nest_.steps, nest_.buffers.size() - nest_.results.size(), broken);
    std::vector<std::uint32_t> of(static_cast<std::size_t>(s.values()), kNone);  // by value of the step
    const auto read = [&](std::int64_t b) {
      const auto buffer = static_cast<std::uint32_t>(b);
      return (of[buffer] = read_buffer(buffer, b >= s.states)) != kNone;
    };
    now_ = 0;
    for (std::int64_t b = 0; b < s.operands(); ++b) {
      if (b >= s.states && b < s.states + s.arrays) continue;
      if (!read(b)) return false;
      Value& value = values_[of[static_cast<std::size_t>(b)]];
      if (value.memory == Memory::Own) value.memory = Memory::Kept;
    }
    now_ = 1;
    form_->element_ns = 0;  // of a step
    for (std::int64_t b = s.states; b < s.states + s.arrays; ++b)
      if (!read(b)) return false;
    for (std::size_t i = 0; i < s.lines.size(); ++i)
      if ((of[static_cast<std::size_t>(s.operands()) + i] = step_line(s, s.lines[i], of)) == kNone) return false;
    const auto first_result = static_cast<std::uint32_t>(s.operands());
    for (std::uint32_t r = 0; r < nest_.results.size(); ++r)
      if (const auto k = static_cast<std::int64_t>(nest_.results[r]) - s.states;
          k >= 0 && !write_buffer(first_result + r, of[static_cast<std::size_t>(s.results[static_cast<std::size_t>(k)])]))
        return false;
    if (!next_states(s, of)) return false;
    if (const auto going = ir::going_state(s, nest_.results)) form_->going = of[static_cast<std::size_t>(*going)];
    const double element_ns = form_->element_ns;
    now_ = 2;
    for (std::uint32_t r = 0; r < nest_.results.size(); ++r)
      if (nest_.results[r] < s.states && !write_buffer(first_result + r, of[nest_.results[r]])) return false;
    now_ = 1;
    form_->element_ns = element_ns;
    join_pairs(form_->sweeps[1].each);
    place_values();
    const TileSteps& each = form_->sweeps[1].each;
    form_->tile_ns = kStepNanoseconds * static_cast<double>(each.size() + 2);
    finish(form_->sweeps[0].each.size() + each.size() + form_->sweeps[2].each.size());
    return true;
  }

  // Reads the current elements of a buffer: in place, if they are contiguous and `may_stay` there.
  std::uint32_t read_buffer(std::uint32_t buffer, bool may_stay) {
    const DType stored = nest_.buffers[buffer].dtype, dtype = is_half(stored) ? DType::U16 : stored;
    const std::uint32_t y = value(dtype, Level::Element);
    Step step{.kind = Step::Kind::Load, .size = static_cast<std::uint8_t>(size_of(dtype)), .y = y, .at = buffer};
    if (may_stay && is_contiguous(buffer)) {
      step.kind = Step::Kind::Place;
      values_[y].memory = Memory::Elsewhere;
    } else {
      form_->element_ns += kStridedNanoseconds;
    }
    steps(Level::Element).push_back(step);
    return as_computed(y, stored);
  }
  bool write_buffer(std::uint32_t buffer, std::uint32_t id) {
    const DType dtype = nest_.buffers[buffer].dtype;
    if (values_[id].type != (is_half(dtype) ? DType::F32 : dtype)) return false;
    if (is_narrow(dtype) && (id = primitive(Op::Cast, dtype, {id, kNone, kNone})) == kNone) return false;
    if (is_half(dtype)) id = converted(id, dtype, true, steps(values_[id].level));
    steps(Level::Element)
        .push_back({.kind = Step::Kind::Store,
                    .size = static_cast<std::uint8_t>(size_of(dtype)),
                    .one = !is_vector(values_[id].level),
                    .a = id,
                    .at = buffer});
    form_->element_ns += is_contiguous(buffer) ? kPassNanoseconds : kStridedNanoseconds;
    return true;
  }

  std::uint32_t step_line(const ir::Steps& s, const ir::StepLine& line, const std::vector<std::uint32_t>& of) {
    if (line.op == Op::Constant) {
      const std::uint32_t y = constant(line.dtype, line.bits);
      return is_narrow(line.dtype) ? widened(y) : y;
    }
    std::array<std::uint32_t, 3> operands = {kNone, kNone, kNone};
    for (std::size_t k = 0; k < 3; ++k)
      if (line.operands[k] != ir::StepLine::kNone) operands[k] = of[static_cast<std::size_t>(line.operands[k])];
    if (line.op == Op::Bitcast) {  // halves are f32 here
      const std::int64_t from = line.operands[0];
      const DType type = from < s.operands() ? nest_.buffers[static_cast<std::size_t>(from)].dtype
                                             : s.lines[static_cast<std::size_t>(from - s.operands())].dtype;
      if (is_half(type) || is_half(line.dtype)) return kNone;
    }
    if (!is_half(line.dtype)) return apply(line.op, line.dtype, operands);
    if (values_[operands[0]].dtype != DType::F32) return kNone;
    TileSteps& to = steps(values_[operands[0]].level);
    return converted(converted(operands[0], line.dtype, true, to), line.dtype, false, to);
  }

  // Copies the next states to the states. A next state that is a state is copied elsewhere first.
  bool next_states(const ir::Steps& s, const std::vector<std::uint32_t>& of) {
    const auto copied = [&](std::uint32_t id, std::uint32_t y) {
      const DType dtype = values_[id].dtype;
      steps(Level::Element).push_back({.kind = Step::Kind::Copy, .size = static_cast<std::uint8_t>(size_of(dtype)), .y = y, .a = id});
      count(Level::Element, dtype, 1);
    };
    std::vector<std::uint32_t> next;
    for (std::int64_t i = 0; i < s.states; ++i) {
      const std::int64_t v = s.next[static_cast<std::size_t>(i)];
      std::uint32_t id = of[static_cast<std::size_t>(v)];
      if (values_[id].dtype != values_[of[static_cast<std::size_t>(i)]].dtype) return false;
      if (!is_vector(values_[id].level)) id = filled(id, Level::Element);
      if (v < s.states && v != i) {
        const std::uint32_t y = value(values_[id].dtype, Level::Element);
        copied(id, y);
        id = y;
      }
      next.push_back(id);
    }
    for (std::size_t i = 0; i < next.size(); ++i)
      if (next[i] != of[i]) copied(next[i], of[i]);
    return true;
  }

  // True if an array of 4- or 8-byte elements is contiguous along the last outer loop but not along the vector loop.
  bool reads_across() const {
    if (nest_.kind != NestKind::Map || nest_.has(Kind::Scan)) return false;
    return std::ranges::any_of(nest_.body, [&](const Statement& s) {
      if (s.kind != Kind::Load || size_of(nest_.buffers[nest_.accesses[s.at].buffer].dtype) < 4 || s.guard != Statement::kNone)
        return false;
      const auto& of = nest_.linears[nest_.accesses[s.at].linear].of;
      if (has_derived(nest_.accesses[s.at].linear)) return false;
      return of[nest_.outer - 1u] == Coefficient::One && of[nest_.vector_loop()] == Coefficient::General;
    });
  }

  // True if the value has more than one element.
  bool is_wide(Level level) const { return form_->abreast ? level != Level::Call : is_vector(level); }

  // With several rows per tile, repeats a row's value for each element if it is combined with elements. Returns other values unchanged.
  std::uint32_t spread(std::uint32_t id, Level to) {
    if (!form_->abreast || to != Level::Element || values_[id].level != Level::Row) return id;
    if (const auto known = spread_of_.find(id); known != spread_of_.end()) return known->second;
    return spread_of_[id] = filled(id, Level::Element);
  }

  // True if the statement is computed in sweeps.
  bool is_inner(const Statement& s) const { return nest_.kind == NestKind::Map || (s.loops & nest_.reduced_mask()); }

  bool sweep(const std::vector<bool>& needed) {
    TileForm::Sweep& sweep = form_->sweeps[now_];
    if (rows_ == Rows::One)
      for (std::uint32_t id = 0; id < nest_.body.size(); ++id)
        if (is_inner(nest_.body[id])) of_[id] = kNone;
    std::vector<std::uint32_t> reductions;
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
      const Statement& s = nest_.body[id];
      if (s.kind == Kind::Reduce) {
        if (s.stage == now_ + 1) reductions.push_back(id);
      } else if (needed[id] && is_inner(s) && s.kind != Kind::Store && of_[id] == kNone && !statement(id)) {
        return false;
      }
    }
    bool stores = false;
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id) stores |= needed[id] && nest_.body[id].kind == Kind::Store;
    for (const std::uint32_t id : reductions)
      if (!reduction(id, stores)) return false;
    if (sweep.chain.fold != kNone && (stores || reductions.size() > 1)) return false;
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id)
      if (needed[id] && nest_.body[id].kind == Kind::Store && !store(nest_.body[id], sweep.each)) return false;
    return true;
  }

  // Builds the values computed from columns, for elements of the vector loop.
  bool columns(const std::vector<bool>& behind) {
    std::vector<bool> needed(nest_.body.size(), false);
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id)
      if (is_inner(nest_.body[id]) && nest_.body[id].kind != Kind::Reduce) of_[id] = kNone;
    for (std::uint32_t id = static_cast<std::uint32_t>(nest_.body.size()); id-- > 0;) {
      const Statement& s = nest_.body[id];
      if (behind[id] && s.kind == Kind::Store) needed[id] = true;
      if (!needed[id] || s.kind == Kind::Reduce) continue;
      for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
        if (o != Statement::kNone) needed[o] = true;
    }
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
      const Statement& s = nest_.body[id];
      if (!needed[id] || s.kind == Kind::Reduce || s.kind == Kind::Store) continue;
      if ((is_inner(s) || behind[id]) && !statement(id)) return false;
    }
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id)
      if (needed[id] && nest_.body[id].kind == Kind::Store && !store(nest_.body[id], form_->sweeps.back().each)) return false;
    return true;
  }

  // Builds the steps that a chunk of a scan runs before its base is known: only the scans and their operands.
  bool sums_of_scans() {
    const double before = form_->element_ns;
    std::vector<bool> needed(nest_.body.size(), false);
    for (std::uint32_t id = static_cast<std::uint32_t>(nest_.body.size()); id-- > 0;) {
      const Statement& s = nest_.body[id];
      needed[id] = needed[id] || s.kind == Kind::Scan;
      if (!needed[id]) continue;
      for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
        if (o != Statement::kNone) needed[o] = true;
    }
    for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
      if (of_[id] != kNone && is_vector(values_[of_[id]].level)) of_[id] = kNone;
      if (needed[id] && of_[id] == kNone && !statement(id)) return false;
    }
    form_->element_ns = before;  // only long scans run it
    return true;
  }

  // ---- values

  std::uint32_t value(DType dtype, Level level) {
    values_.push_back({dtype, level});
    return static_cast<std::uint32_t>(values_.size() - 1);
  }
  TileSteps& steps(Level level) {
    switch (level) {
      case Level::Call: return form_->call;
      case Level::Row: return form_->stages[now_].row;
      case Level::Tile: return form_->stages[now_].tile;
      case Level::Serial: return form_->sweeps[std::min(now_, form_->sweeps.size() - 1)].serial;
      case Level::Element: break;
    }
    return form_->sweeps[std::min(now_, form_->sweeps.size() - 1)].each;
  }

  Level level_of(const Statement& s) const { return level_of(s.loops, s.stage); }
  Level level_of(std::uint64_t loops, std::uint8_t stage) const {
    const bool is_vector = loops >> nest_.vector_loop() & 1;
    const bool is_serial = nest_.serial > 0 && (loops & nest_.reduced_mask() & ~(std::uint64_t{1} << nest_.vector_loop()));
    if (nest_.kind != NestKind::Rows)
      return is_vector ? Level::Element : is_serial ? Level::Serial : loops || stage > 0 ? Level::Row : Level::Call;
    if (is_vector || stage > 0) return is_serial ? is_vector ? Level::Element : Level::Serial : Level::Tile;
    return is_serial ? Level::Serial : loops ? Level::Row : Level::Call;
  }

  std::uint32_t constant(DType dtype, std::uint64_t bits) {
    const auto [it, is_new] = constant_of_.try_emplace({dtype, bits}, kNone);
    if (is_new) {
      it->second = value(dtype, Level::Call);
      form_->constants.push_back({it->second, bits});
    }
    return it->second;
  }

  // Adds to the cost. The unit is one loop over f32.
  void count(Level level, DType dtype, double passes) {
    if (level == Level::Element) form_->element_ns += kPassNanoseconds * passes * static_cast<double>(size_of(dtype)) / 4;
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
    const Level level = level_of(s);
    switch (s.kind) {
      case Kind::Constant:
        of_[id] = constant(s.dtype, s.bits);
        if (is_narrow(s.dtype)) of_[id] = widened(of_[id]);
        return of_[id] != kNone;
      case Kind::Slot:
        of_[id] = value(s.dtype, Level::Call);
        form_->slots.push_back({of_[id], program_->layout_.slots + s.at});
        if (is_narrow(s.dtype)) of_[id] = widened(of_[id]);
        return of_[id] != kNone && !is_half(nest_.slots[s.at]);
      case Kind::Index: return index(id, level);
      case Kind::Guard: return guard(id, level);
      case Kind::Place: return check(id, level);
      case Kind::Load: return load(id, level);
      case Kind::Scan: return scan(id);
      case Kind::Op: {
        if (is_half(s.half)) return round(id);
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

  // Sets the predicate of a step at this level: `guard` is a statement or none.
  void set_guard(Step& step, std::uint32_t Step::*operand, std::uint32_t guard, Level level) {
    if (guard == Statement::kNone) return;
    step.*operand = spread(of_[guard], level);
    step.one_guard = !is_wide(values_[step.*operand].level);
  }

  bool check(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    std::uint32_t a = of_[s.a];
    const DType from = values_[a].dtype;
    a = is_wide(level) && !is_wide(values_[a].level) ? filled(a, level) : spread(a, level);
    Step step{.kind = Step::Kind::Check, .dtype = from, .y = value(DType::I64, level), .a = a, .at = s.at};
    set_guard(step, &Step::b, s.guard, level);
    steps(level).push_back(step);
    count(level, DType::I64, 3);
    of_[id] = step.y;
    return true;
  }

  bool has_derived(std::uint32_t linear) const {
    const std::vector<Coefficient>& of = nest_.linears[linear].of;
    return std::any_of(of.begin() + nest_.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
  }

  // Returns a derived variable: a checked index, or a quotient or remainder of an affine map of loops.
  std::uint32_t variable(std::uint32_t q) {
    const Derived& d = nest_.derived[q];
    if (d.place != Derived::kNone) return of_[d.place];
    if (has_derived(d.linear)) return kNone;
    std::uint64_t loops = 0;
    for (std::uint32_t v = 0; v < nest_.loops(); ++v)
      if (nest_.linears[d.linear].of[v] != Coefficient::Zero) loops |= std::uint64_t{1} << v;
    const Level level = level_of(loops, 0);
    const std::uint32_t y = value(DType::I64, level);
    steps(level).push_back({.kind = Step::Kind::Quotient, .one = d.modulo, .y = y, .at = d.linear, .count = q});
    count(level, DType::I64, 2);
    return y;
  }

  // Computes the distance that derived variables add to an affine map; kNone if there are none.
  bool distance(std::uint32_t linear, std::uint32_t& far) {
    far = kNone;
    for (std::uint32_t q = 0; q < nest_.derived.size(); ++q) {
      if (nest_.linears[linear].of[nest_.loops() + q] == Coefficient::Zero) continue;
      const std::uint32_t a = variable(q);
      if (a == kNone) return false;
      const Level level = values_[a].level | (far == kNone ? Level::Call : values_[far].level);
      Step step{.kind = Step::Kind::Far, .y = value(DType::I64, level), .a = spread(a, level), .at = linear, .count = nest_.loops() + q};
      step.one = !is_wide(values_[step.a].level);
      if (far != kNone) step.b = spread(far, level), step.one_guard = !is_wide(values_[step.b].level);
      steps(level).push_back(step);
      count(level, DType::I64, 1);
      far = step.y;
    }
    return true;
  }
  // Sets the distance of a step at this level.
  void set_distance(Step& step, std::uint32_t far, Level level) {
    step.c = spread(far, level);
    step.one = !is_wide(values_[step.c].level);
  }

  // Checks without derived variables take one step, each of the others its own.
  bool guard(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    of_[id] = kNone;
    for (std::uint32_t c = s.at; c < s.at + s.count;) {
      Step step{.kind = Step::Kind::Guard, .y = value(DType::Bool, level), .at = c};
      std::uint32_t far = kNone;
      if (!distance(nest_.checks[c].linear, far)) return false;
      do ++c;
      while (far == kNone && c < s.at + s.count && !has_derived(nest_.checks[c].linear));
      step.count = c - step.at;
      if (far != kNone) set_distance(step, far, level);
      steps(level).push_back(step);
      count(level, DType::F32, 3 * step.count);
      of_[id] = of_[id] == kNone ? step.y : apply(Op::BitwiseAnd, DType::Bool, {of_[id], step.y, kNone});
      if (of_[id] == kNone) return false;
    }
    return true;
  }

  bool index(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    if (is_half(s.half)) return false;
    std::uint32_t far = kNone, i = value(DType::I64, level);
    steps(level).push_back({.kind = Step::Kind::Index, .y = i, .at = s.at});
    count(level, DType::I64, 1);
    if (!distance(s.at, far)) return false;
    if (far != kNone) i = apply(Op::Add, DType::I64, {i, far, kNone});
    if (i == kNone) return false;
    of_[id] = s.dtype == DType::I64 ? i : apply(Op::Cast, s.dtype, {i, kNone, kNone});
    return of_[id] != kNone;
  }

  bool is_contiguous(std::uint32_t access) const {
    return nest_.linears[nest_.accesses[access].linear].of[nest_.vector_loop()] == Coefficient::One;
  }

  // Converts between a half's bits in memory and f32, which is used for computation.
  std::uint32_t converted(std::uint32_t a, DType half, bool to_half, TileSteps& to) {
    const std::uint32_t y = value(to_half ? DType::U16 : DType::F32, values_[a].level);
    to.push_back({.kind = Step::Kind::Loop, .loop = tile_half(half, to_half, target_), .y = y, .a = a});
    count(values_[a].level, DType::F32, 1);
    return y;
  }

  // Converts elements of an array to the form in which they are computed: halves to f32, narrow integers to i32, bytes of bools to 0 or 1.
  std::uint32_t as_computed(std::uint32_t y, DType stored) {
    if (is_half(stored)) return converted(y, stored, false, steps(values_[y].level));
    if (stored == DType::Bool) return primitive(Op::BitwiseOr, stored, {y, y, kNone});
    return is_narrow(stored) ? widened(y) : y;
  }

  // Rounds an f32 value to the precision of a half.
  bool round(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    if ((s.op != Op::Cast && s.op != Op::CastUnchecked) || s.dtype != DType::F32 || values_[of_[s.a]].dtype != DType::F32) return false;
    TileSteps& to = steps(values_[of_[s.a]].level);
    of_[id] = converted(converted(of_[s.a], s.half, true, to), s.half, false, to);
    return true;
  }

  bool load(std::uint32_t id, Level level) {
    const Statement& s = nest_.body[id];
    const DType stored = nest_.buffers[nest_.accesses[s.at].buffer].dtype, dtype = is_half(stored) ? DType::U16 : stored;
    std::uint32_t far = kNone;
    if (!distance(nest_.accesses[s.at].linear, far) || s.dtype != (is_half(stored) ? DType::F32 : stored)) return false;
    const std::uint32_t y = value(dtype, level);
    Step step{.kind = Step::Kind::Load, .size = static_cast<std::uint8_t>(size_of(dtype)), .y = y, .at = s.at};
    set_guard(step, &Step::a, s.guard, level);
    if (far != kNone) {
      step.kind = Step::Kind::Gather;
      set_distance(step, far, level);
    } else if (s.guard == Statement::kNone && form_->abreast && level != Level::Call) {
      step.in_place = level == Level::Element && is_contiguous(s.at);
    } else if (s.guard == Statement::kNone && (!is_vector(level) || is_contiguous(s.at))) {
      step.kind = Step::Kind::Place;
      values_[y].memory = Memory::Elsewhere;
    }
    steps(level).push_back(step);
    if (step.kind == Step::Kind::Gather && level == Level::Element) form_->element_ns += kStridedNanoseconds;
    if (step.kind == Step::Kind::Load && level == Level::Element) {
      const double contiguous = step.a == kNone ? kPassNanoseconds : 3 * kPassNanoseconds;
      const double strided = form_->abreast && step.a == kNone ? kSquareNanoseconds : kStridedNanoseconds;
      form_->element_ns += is_contiguous(s.at) ? contiguous : strided;
    }
    of_[id] = as_computed(y, stored);
    return of_[id] != kNone;
  }

  // Copies a value that is read from its array if the array may be overwritten before the value is used.
  void hold(std::uint32_t id) {
    if (values_[id].memory != Memory::Elsewhere && !form_->abreast) return;
    for_each_list([&](TileSteps& all) {
      const auto step = std::ranges::find(all, id, &Step::y);
      if (step == all.end()) return;
      step->in_place = false;
      if (step->kind != Step::Kind::Place) return;
      values_[id].memory = Memory::Own;
      step->kind = Step::Kind::Load;
    });
  }

  // Emits a store. The stores of an array list run in order. An earlier store may overwrite the array that a value is read from.
  bool store(const Statement& s, TileSteps& to) {
    std::uint32_t stored = spread(of_[s.a], is_inner(s) ? Level::Element : Level::Row);
    if (!to.empty() && to.back().kind == Step::Kind::Store) hold(stored);
    const DType dtype = nest_.buffers[nest_.accesses[s.at].buffer].dtype;
    if (s.b != Statement::kNone || has_derived(nest_.accesses[s.at].linear) ||
        values_[stored].type != (is_half(dtype) ? DType::F32 : dtype))
      return false;
    if (is_narrow(dtype) && (stored = primitive(Op::Cast, dtype, {stored, kNone, kNone})) == kNone) return false;
    if (const Level level = values_[stored].level; is_half(dtype))
      stored = converted(stored, dtype, true, is_wide(level) ? to : steps(level));
    Step step{.kind = Step::Kind::Store,
              .size = static_cast<std::uint8_t>(size_of(dtype)),
              .one = !is_wide(values_[stored].level),
              .a = stored,
              .at = s.at};
    set_guard(step, &Step::b, s.guard, is_inner(s) ? Level::Element : Level::Row);
    to.push_back(step);
    if (is_inner(s)) form_->element_ns += is_contiguous(s.at) && step.b == kNone ? kPassNanoseconds : kStridedNanoseconds;
    return true;
  }

  // ---- reductions

  // Fills a tile with a single element.
  std::uint32_t filled(std::uint32_t id, Level level) {
    const std::uint32_t y = value(values_[id].dtype, level);
    values_[y].type = values_[id].type;
    steps(level).push_back({.kind = Step::Kind::Fill,
                            .size = static_cast<std::uint8_t>(size_of(values_[id].dtype)),
                            .one = values_[id].level == Level::Call,
                            .y = y,
                            .a = id});
    count(level, values_[id].dtype, 1);
    return y;
  }

  bool reduction(std::uint32_t id, bool stores) {
    const Statement& s = nest_.body[id];
    if (is_half(s.half)) return false;
    const FoldKind kind = kind_of(s.op);
    const auto number = static_cast<std::uint32_t>(
        std::count_if(nest_.body.begin(), nest_.body.begin() + id, [](const Statement& b) { return b.kind == Kind::Reduce; }));
    TileFold fold{.loops = fold_loops(kind, s.dtype, target_),
                  .dtype = s.dtype,
                  .identity = identity_of(kind, s.dtype),
                  .y = value(s.dtype, s.count                        ? Level::Element
                                      : nest_.kind == NestKind::Rows ? Level::Tile
                                                                     : Level::Row),
                  .a = of_[s.a],
                  .number = number,
                  .column = s.count != 0};
    if (!fold.loops || values_[fold.a].dtype != s.dtype) return false;
    if (s.b != Statement::kNone) fold.b = of_[s.b];
    of_[id] = fold.y;
    TileForm::Sweep& sweep = form_->sweeps[now_];
    const auto at = static_cast<std::uint32_t>(form_->folds.size());
    sweep.folds.push_back(at);
    if (fold.column) {
      values_[fold.y].memory = Memory::Kept;
      if (!fold.loops.eight) return false;
      rows(fold, sweep, at, stores);
    } else if (nest_.kind == NestKind::Lanes) {
      for (std::uint32_t* const operand : {&fold.a, &fold.b})
        if (*operand != kNone && !is_vector(values_[*operand].level)) *operand = filled(*operand, Level::Element);
      sweep.each.push_back({.kind = Step::Kind::Fold, .a = fold.a, .b = fold.b, .at = at});
      count(Level::Element, s.dtype, is_float(s.dtype) && kind == FoldKind::Maximum ? 2 : 1);
    } else {
      values_[fold.y].memory = Memory::Kept;
      if (kind == FoldKind::Contraction) {
        if (!chain(s, fold, sweep, at)) return false;
      } else {
        rows(fold, sweep, at, stores);
      }
    }
    form_->folds.push_back(fold);
    return true;
  }

  bool scan(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    const FoldKind kind = kind_of(s.op);
    const FoldLoops loops = fold_loops(kind, s.dtype, target_);
    std::uint32_t a = of_[s.a];
    if (is_half(s.half) || !loops.scan || values_[a].dtype != s.dtype || nest_.kind == NestKind::Lanes) return false;
    if (!is_vector(values_[a].level)) a = filled(a, Level::Element);
    const auto number = static_cast<std::uint32_t>(
        std::count_if(nest_.body.begin(), nest_.body.begin() + id, [](const Statement& b) { return b.kind == Kind::Scan; }));
    // Block sums of a scan along the vector loop use the same state as the scan.
    auto at = static_cast<std::uint32_t>(
        std::ranges::find_if(form_->folds, [&](const TileFold& f) { return f.scan && f.number == number; }) - form_->folds.begin());
    if (at == form_->folds.size()) {
      form_->folds.push_back(
          {.loops = loops, .dtype = s.dtype, .identity = identity_of(kind, s.dtype), .y = kNone, .a = kNone, .number = number});
      form_->folds.back().scan = true;
      if (nest_.kind == NestKind::Rows) {
        form_->folds.back().carry = form_->tiles;
        form_->tiles += 2;
      }
    }
    TileForm::Sweep& sweep = form_->sweeps[std::min(now_, form_->sweeps.size() - 1)];
    sweep.scans.push_back(at);
    of_[id] = value(s.dtype, Level::Element);
    sweep.each.push_back({.kind = Step::Kind::Scan, .size = static_cast<std::uint8_t>(size_of(s.dtype)), .y = of_[id], .a = a, .at = at});
    form_->element_ns += nest_.kind == NestKind::Rows ? 3 * kPassNanoseconds : kScanNanoseconds;
    return true;
  }

  // Assigns a location to each of eight rows; it is in the array itself if that stays unchanged.
  void rows(TileFold& fold, TileForm::Sweep& sweep, std::uint32_t at, bool stores) {
    if (!is_vector(values_[fold.a].level)) fold.a = filled(fold.a, fold.column ? Level::Element : values_[fold.a].level | Level::Tile);
    Value* operand = &values_[fold.a];
    const auto same = std::ranges::find_if(form_->folds, [&](const TileFold& f) { return f.a == fold.a && f.rows != kNone; });
    if (same != form_->folds.end()) {
      fold.rows = same->rows;
    } else if (operand->level == Level::Element) {
      if (stores) hold(fold.a);
      if (operand->memory == Memory::Own) {
        operand->memory = Memory::Elsewhere;
        fold.rows = form_->tiles;
        form_->tiles += static_cast<std::uint32_t>(ir::kRowGroup);
      }
    }
    fold.fills = form_->tiles++;
    sweep.each.push_back({.kind = Step::Kind::Row, .a = fold.a, .at = at});
    count(Level::Element, fold.dtype, 0.5);
  }

  bool chain(const Statement& s, TileFold& fold, TileForm::Sweep& sweep, std::uint32_t at) {
    const std::uint64_t vector = std::uint64_t{1} << nest_.vector_loop();
    std::uint32_t x = s.a, y = s.b;
    if (nest_.body[x].loops & vector) std::swap(x, y);
    if ((nest_.body[x].loops & vector) || !(nest_.body[y].loops & vector) || nest_.serial == 0) return false;
    const auto in_memory = [&](std::uint32_t id, bool along) {
      const Statement& o = nest_.body[id];
      return o.kind == Kind::Load && nest_.buffers[nest_.accesses[o.at].buffer].dtype == s.dtype && o.guard == Statement::kNone &&
                     !has_derived(nest_.accesses[o.at].linear) && (!along || is_contiguous(o.at))
                 ? o.at
                 : kNone;
    };
    TileChain& c = sweep.chain;
    c.fold = at;
    c.x_access = in_memory(x, false);
    c.y_access = in_memory(y, true);
    c.y_varies = nest_.outer > 0 && (nest_.body[y].loops >> (nest_.outer - 1u) & 1);
    fold.a = of_[x], fold.b = of_[y];
    if (c.y_access == kNone && is_vector(values_[fold.b].level)) {
      if (values_[fold.b].level == Level::Tile) return false;
      if (values_[fold.b].memory == Memory::Own) values_[fold.b].memory = Memory::Elsewhere;
    }
    form_->element_ns += kProductNanoseconds / target_.vector_bytes * static_cast<double>(size_of(s.dtype)) / 4;
    program_->contracts_ = true;
    return true;
  }

  // ---- operators

  std::uint32_t apply(Op op, DType result, const std::array<std::uint32_t, 3>& operands) {
    const DType from = values_[operands[static_cast<std::size_t>(ir::info(op).arity) - 1]].type;
    return is_narrow(from) || is_narrow(result) ? apply_narrow(op, result, from, operands) : primitive(op, result, operands);
  }

  // Reads a narrow integer as i32.
  std::uint32_t widened(std::uint32_t a) {
    const std::uint32_t y = primitive(Op::Cast, DType::I32, {a, kNone, kNone});
    if (y != kNone) values_[y].type = values_[a].dtype;
    return y;
  }
  // Reduces an i32 modulo the width of a narrow integer.
  std::uint32_t wrapped(std::uint32_t a, DType type) {
    if (a == kNone) return kNone;
    const std::uint32_t y = primitive(Op::Cast, type, {a, kNone, kNone});
    return y == kNone ? kNone : widened(y);
  }

  // Operators on narrow integers, or with a narrow result, compute in i32. All of them except shifts and bit counts have the same result
  // modulo the width.
  std::uint32_t apply_narrow(Op op, DType result, DType from, const std::array<std::uint32_t, 3>& operands) {
    const bool is_cast = op == Op::Cast || op == Op::CastUnchecked;
    if (!is_narrow(result)) {
      if (is_cast) return primitive(result == DType::I32 ? Op::Identity : op, result, operands);
      return ir::info(op).types == ir::TypeRule::Compare ? primitive(op, result, operands) : kNone;
    }
    if (is_cast) {
      std::uint32_t y = operands[0];
      if (!is_narrow(from) && from != DType::I32) y = primitive(op, DType::I32, operands);
      if (y == kNone || !is_float(from)) return wrapped(y, result);
      const auto bits = static_cast<int>(8 * size_of(result));
      const std::int64_t least = is_signed_integer(result) ? -(std::int64_t{1} << (bits - 1)) : 0;
      const auto limit = [&](std::int64_t v) { return constant(DType::I32, static_cast<std::uint64_t>(static_cast<std::uint32_t>(v))); };
      y = primitive(Op::Clamp, DType::I32, {y, limit(least), limit(least + (std::int64_t{1} << bits) - 1)});
      if (y != kNone) values_[y].type = result;
      return y;
    }
    switch (op) {
      case Op::Maximum:
      case Op::Minimum:
      case Op::Clamp:
      case Op::Where:
      case Op::Identity: {
        const std::uint32_t y = primitive(op, DType::I32, operands);
        if (y != kNone) values_[y].type = result;
        return y;
      }
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Neg:
      case Op::Abs:
      case Op::FloorDiv:
      case Op::Remainder:
      case Op::Fmod:
      case Op::IntegerPow:
      case Op::BitwiseAnd:
      case Op::BitwiseOr:
      case Op::BitwiseXor:
      case Op::BitwiseNot: return wrapped(primitive(op, DType::I32, operands), result);
      default: return kNone;
    }
  }

  std::uint32_t primitive(Op op, DType result, std::array<std::uint32_t, 3> operands) {
    const auto arity = static_cast<std::size_t>(ir::info(op).arity);
    Level level = Level::Call;
    for (std::size_t i = 0; i < arity; ++i) level = level | values_[operands[i]].level;
    unsigned uniform = 0;
    for (std::size_t i = 0; i < arity; ++i) {
      operands[i] = spread(operands[i], level);
      if (is_wide(level) && !is_wide(values_[operands[i]].level)) uniform |= 1u << i;
    }
    const DType from = values_[operands[arity - 1]].dtype;
    const TileLoop loop = tile_loop(op, from, result, uniform, target_);
    const bool is_expanded = ir::info(op).kind == ir::OpKind::Expanded;
    if (!loop) return is_expanded ? expand(op, operands) : kNone;
    if (is_vector(level)) primitives_ += is_expanded ? ir::expansion(op, from).size() : 1;
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

  // Emits the nodes of an expansion. Nodes that only a `Rare` needs are skipped if no element needs them.
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

  // Emits the nodes that only the `Rare`s of one condition need. If they are skipped, their tiles have undefined contents that `Rare` never
  // selects.
  bool slow_side(const ir::Graph& g, const BehindRare& behind, ir::NodeId rare, const std::array<std::uint32_t, 3>& operands,
                 std::vector<std::uint32_t>& of) {
    const std::uint32_t condition = of[g.operand(rare, 0)];
    const Level level = values_[condition].level;
    constexpr Level kLevels[] = {Level::Call, Level::Row, Level::Serial, Level::Tile, Level::Element};
    std::array<std::size_t, std::size(kLevels)> begin = {};
    for (std::size_t l = 0; l < std::size(kLevels); ++l) {
      if ((kLevels[l] | level) != kLevels[l]) continue;
      TileSteps& all = steps(kLevels[l]);
      begin[l] = all.size();
      all.push_back({.kind = Step::Kind::Skip, .one = !is_wide(level), .a = condition});
    }
    const auto spread_before = spread_of_;
    const double before = form_->element_ns;
    for (ir::NodeId id = 0; id < g.outputs[0]; ++id)
      if (behind.rare[id] == rare && !node(g, behind, id, operands, of)) return false;
    if (level == Level::Element) form_->element_ns = before + kPassNanoseconds / 4;
    spread_of_ = spread_before;  // values repeated inside a skipped part are not available after it
    for (std::size_t l = 0; l < std::size(kLevels); ++l) {
      if ((kLevels[l] | level) != kLevels[l]) continue;
      TileSteps& all = steps(kLevels[l]);
      all[begin[l]].count = static_cast<std::uint32_t>(all.size() - begin[l] - 1);
      if (all[begin[l]].count == 0) all.pop_back();
    }
    return true;
  }

  template <class F> void for_each_list(F&& f) {
    f(form_->call);
    for (std::size_t s = 0; s < form_->stages.size(); ++s) {
      f(form_->stages[s].row);
      f(form_->stages[s].tile);
      f(form_->stages[s].stores);
      if (s == form_->sweeps.size()) break;
      f(form_->sweeps[s].serial);
      f(form_->sweeps[s].each);
    }
  }

  // Joins a step with the next step if only that step needs its value, so that the value is not stored and loaded. Does not join steps that
  // a Skip counts.
  void join_pairs(TileSteps& all) {
    std::vector<std::uint32_t> uses(values_.size(), 0);
    for_each_list([&](const TileSteps& list) {
      for (const Step& s : list)
        for (const std::uint32_t v : {s.a, s.b, s.c})
          if (v != kNone) ++uses[v];
    });
    for (const TileFold& f : form_->folds)
      for (const std::uint32_t v : {f.a, f.b})
        if (v != kNone) uses[v] += 2;
    TileSteps joined;
    std::uint32_t counted = 0;  // steps that a Skip still counts
    bool may_join = false;      // the last step may be joined
    for (const Step& s : all) {
      const bool is_counted = counted > 0;
      if (is_counted) --counted;
      if (s.kind == Step::Kind::Skip) counted = std::max(counted, s.count);
      if (may_join && !is_counted && join(joined.back(), s, uses)) {
        form_->element_ns -= kPassNanoseconds * static_cast<double>(size_of(s.dtype)) / 4;
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

  // Finds the accesses of rows that are arrays in memory.
  void find_direct(TileForm::Sweep& sweep) const {
    if (!sweep.serial.empty() || !sweep.scans.empty() || sweep.chain.fold != kNone || sweep.folds.empty()) return;
    for (const Step& s : sweep.each) {
      if (s.kind == Step::Kind::Place) continue;
      const auto loaded = std::ranges::find_if(sweep.each, [&](const Step& p) { return p.kind == Step::Kind::Place && p.y == s.a; });
      if (s.kind != Step::Kind::Row || loaded == sweep.each.end()) return sweep.direct.clear();
      sweep.direct.push_back(loaded->at);
    }
  }

  // ---- memory

  // Computes the value of a single store directly in the array, if the store is the last step.
  void write_through(TileSteps& all) {
    if (all.size() < 2 || all.back().kind != Step::Kind::Store) return;
    const Step store = all.back();
    const Step last = all[all.size() - 2];
    if (!is_contiguous(store.at) || store.b != kNone || store.one || last.kind != Step::Kind::Loop || last.y != store.a ||
        values_[store.a].memory != Memory::Own)
      return;
    if (form_->abreast) {  // if rows are consecutive; else the store is separate
      all.insert(all.begin(), {.kind = Step::Kind::Place, .size = store.size, .y = store.a, .at = store.at});
      return;
    }
    values_[store.a].memory = Memory::Elsewhere;
    all.pop_back();
    all.insert(all.begin(), {.kind = Step::Kind::Place, .size = store.size, .y = store.a, .at = store.at});
  }

  void place_values() {
    TileForm& f = *form_;
    f.place.assign(values_.size(), kNone);
    for (std::uint32_t v = 0; v < values_.size(); ++v)
      if (!is_vector(values_[v].level) && values_[v].memory != Memory::Elsewhere) f.place[v] = f.cells++;
    const bool rows = nest_.kind == NestKind::Rows;
    const auto is_tile = [&](std::uint32_t v) {
      return v != kNone && is_vector(values_[v].level) && values_[v].memory != Memory::Elsewhere;
    };
    std::vector<const Step*> all;
    std::vector<const TileSteps*> made(values_.size(), nullptr);
    // Rows nests: values of a stage are kept for all rows.
    const auto is_kept = [&](std::uint32_t v) { return values_[v].memory == Memory::Kept; };
    std::int64_t widest = 1;
    for (const TileFold& fold : f.folds) widest = std::max(widest, static_cast<std::int64_t>(size_of(fold.dtype)));
    for_each_list([&](const TileSteps& list) {
      for (const Step& s : list) {
        if (s.y != kNone) made[s.y] = &list;
        for (const std::uint32_t v : {s.a, s.b, s.c})
          if (rows && is_tile(v) && made[v] != &list) values_[v].memory = Memory::Kept;
        for (const std::uint32_t v : {s.y, s.a, s.b, s.c})
          if (v != kNone && is_vector(values_[v].level)) widest = std::max(widest, static_cast<std::int64_t>(size_of(values_[v].dtype)));
        all.push_back(&s);
      }
    });
    std::vector<std::size_t> last(values_.size(), 0);
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const std::uint32_t v : {all[i]->a, all[i]->b, all[i]->c})
        if (v != kNone) last[v] = i;
    for (std::uint32_t v = 0; v < values_.size(); ++v)
      if (is_tile(v) && is_kept(v)) {
        f.place[v] = f.tiles;
        // A contraction has the sums of several rows next to each other.
        const auto fold = std::ranges::find_if(f.folds, [&](const TileFold& of) { return of.y == v && of.loops.chain; });
        f.tiles += fold != f.folds.end() ? static_cast<std::uint32_t>(TileChain::kMostRows) : 1;
      }
    std::vector<std::uint32_t> free;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Step& s = *all[i];
      std::vector<std::uint32_t> ends;
      bool one_size = s.kind == Step::Kind::Loop;  // a loop over elements of two sizes must not overwrite operands that it has not read yet
      for (const std::uint32_t v : {s.a, s.b, s.c})
        if (is_tile(v) && !is_kept(v) && last[v] == i && std::ranges::find(ends, f.place[v]) == ends.end()) {
          ends.push_back(f.place[v]);
          one_size = one_size && size_of(values_[v].dtype) == size_of(values_[s.y].dtype);
        }
      if (one_size) free.insert(free.end(), ends.begin(), ends.end());
      if (is_tile(s.y) && !is_kept(s.y) && f.place[s.y] == kNone) {
        if (free.empty()) free.push_back(f.tiles++);
        f.place[s.y] = free.back();
        free.pop_back();
        if (last[s.y] <= i) free.push_back(f.place[s.y]);  // unused
      }
      if (!one_size) free.insert(free.end(), ends.begin(), ends.end());
    }
    // The start and end of a loop cost as much as 100 elements or more. Few long tiles are better as long as they fit into the cache.
    const std::int64_t tile_bytes = std::max<std::int64_t>(f.tiles, 1) * widest;
    if (f.abreast) {
      f.tile = std::clamp(kHalfCache / tile_bytes & ~std::int64_t{63}, TileProgram::kFewest, ir::kLaneBlock);
    } else if (rows_ == Rows::Whole) {
      f.tile = std::min(ir::kLaneBlock, kWholeBytes / tile_bytes & ~std::int64_t{63});
    } else {
      const auto most = static_cast<std::uint64_t>(kHalfCache / tile_bytes);
      f.tile = std::clamp(static_cast<std::int64_t>(std::bit_floor(most)), TileProgram::kFewest, TileProgram::kMost);
      if (rows || nest_.has_columns()) f.tile = TileProgram::kFewest;  // a tile may be one of eight rows, or part of a tree
    }
    f.tile_bytes = f.tile * widest;
    for (std::uint32_t v = 0; v < values_.size(); ++v)
      if (is_tile(v) && f.place[v] != kNone) f.place[v] += f.cells;
    lay_out(widest);
  }

  void lay_out(std::int64_t widest) {
    TileForm& f = *form_;
    const bool rows = nest_.kind == NestKind::Rows;
    bool computes = false;  // some operand of a contraction
    for (const TileForm::Sweep& s : f.sweeps) computes |= s.chain.fold != kNone && (s.chain.x_access == kNone || s.chain.y_access == kNone);
    std::int64_t at = (static_cast<std::int64_t>(values_.size()) + static_cast<std::int64_t>(nest_.linears.size()) + nest_.loops()) * 8;
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, round_up(at + bytes)); };
    f.cells_at = take(f.cells * f.cell_bytes());
    f.lanes_at = take(static_cast<std::int64_t>(f.folds.size()) * TileForm::kLanesBytes);
    for (TileFold& fold : f.folds)
      if (!rows && !fold.column && !fold.scan) fold.stack_at = take(TileForm::kTreeLevels * 8);
    f.state_bytes = at;
    if (nest_.has_columns()) at *= ir::kRowGroup;
    for (TileFold& fold : f.folds) {
      if (fold.scan || (!rows && !fold.column)) continue;
      fold.stack_at =
          take(f.tile_bytes * (fold.loops.chain ? TileForm::kWholeLevelsOfChain * TileChain::kMostRows : TileForm::kWholeLevels));
    }
    if (computes) f.panels_at = take(TileChain::kMostSteps * (f.tile_bytes + TileChain::kMostRows * widest));
    f.tiles_at = take(std::int64_t{f.tiles} * f.tile_bytes);
    f.scratch_bytes = at;
  }
};

std::shared_ptr<const TileProgram> TileProgram::of(const Nest& nest, const Target& target) { return TileBuilder(nest, target).make(); }

}  // namespace onepass::compiler
