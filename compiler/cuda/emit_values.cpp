// Statements as text: loads, stores, operators and values cached between sweeps. Each statement is in the outermost scope where its loops
// are known.
#include "compiler/cuda/emitter.h"

#include <algorithm>

#include <fmt/format.h>

#include "compiler/operands_first.h"
#include "ir/ops.h"
#include "onepass/error.h"

namespace onepass::compiler::cuda {

using ir::Op;

// True if the statement has one value for each of the W neighbors.
bool DeviceEmitter::is_array(std::uint32_t id) const {
  const Statement& s = nest_.body[id];
  return s.loops & vector_bit() ||
         (nest_.kind == NestKind::Rows && s.stage > 0 && s.kind != Statement::Kind::Slot && s.kind != Statement::Kind::Constant);
}

Scope& DeviceEmitter::place(const Statement& s) {
  const std::uint64_t outer = (std::uint64_t{1} << nest_.outer) - 1;
  if (along_ && (s.loops & inner_) && !(s.loops & outer) && s.stage == 0) return *along_;
  if (s.loops & inner_) return *step_;
  return s.loops || s.stage > 0 ? *item_ : kernel_;
}

// Returns the text of offset + Σ coefficient · variable; with `lane`, for neighbor e.
std::string DeviceEmitter::linear(std::uint32_t at, bool with_offset, bool lane) {
  std::string sum = with_offset ? word(words_.offset_of(at)) : "";
  const Linear& l = nest_.linears[at];
  for (std::uint32_t v = 0; v < l.of.size(); ++v) {
    if (l.of[v] == Coefficient::Zero) continue;
    std::string x;
    if (v < nest_.loops()) {
      x = v == nest_.vector_loop() && lane ? "(j + e)" : index(v);
    } else {
      const Derived& d = nest_.derived[v - nest_.loops()];
      if (d.place != Derived::kNone) x = fmt::format("Index({})", lane || !is_array(d.place) ? value(d.place) : define(d.place) + "[0]");
      else
        x = fmt::format("{}({}, {})", d.modulo ? "floor_modulo" : "floor_quotient", linear(d.linear, true, lane),
                        word(words_.by + v - nest_.loops()));
    }
    if (l.of[v] != Coefficient::One) x = word(words_.coefficient_of(at, v)) + " * " + x;
    sum += (sum.empty() ? "" : " + ") + x;
  }
  return sum.empty() ? "Index(0)" : sum;
}

bool DeviceEmitter::moves_as_vector(std::uint32_t access) const {
  return std::find(schedule_.vectors.begin(), schedule_.vectors.end(), access) != schedule_.vectors.end();
}

// Returns the index of the kernel parameter for a list member.
std::string DeviceEmitter::member(std::uint32_t access, const std::string& number) const {
  return fmt::format("place_of_member(w, w.at[{}], {})", words_.pointers + access, number);
}

std::string DeviceEmitter::address(std::uint32_t access, bool lane) {
  const Access& a = nest_.accesses[access];
  const std::string array =
      a.table == Access::kNone ? std::to_string(words_.pointers + access) : member(access, linear(a.table, true, lane));
  return fmt::format("w.memory[{}] + (long long)({}) * {}", array, linear(a.linear, false, lane), size_of(type_of_access(access)));
}

std::string DeviceEmitter::element(std::uint32_t access, bool lane) {
  const DType dtype = type_of_access(access);
  if (std::find(schedule_.numbers.begin(), schedule_.numbers.end(), access) == schedule_.numbers.end())
    return fmt::format("load<{}>({})", memory_type(dtype), address(access, lane));
  const std::string number = fmt::format("({}) / {}", linear(nest_.accesses[access].linear, true, lane), 8 / size_of(dtype));
  return fmt::format("constant<{}>(w.at[{}])", type(dtype), member(access, number));
}

std::string DeviceEmitter::guard_text(const Statement& s, bool lane) {
  std::string out;
  for (std::uint32_t c = s.at; c < s.at + s.count; ++c)
    out += fmt::format("{}inside({}, {})", out.empty() ? "" : " && ", linear(nest_.checks[c].linear, true, lane), word(words_.bounds + c));
  return out.empty() ? "true" : out;
}

// Returns the name of a statement's value in a loop over the neighbors e. Writes its definition at the first use.
std::string DeviceEmitter::value(std::uint32_t id) {
  const Statement& s = nest_.body[id];
  if (s.kind == Statement::Kind::Constant) return literal(s.dtype, s.bits);
  const std::string name = define(id);
  return is_array(id) ? name + "[e]" : name;
}

std::string DeviceEmitter::define(std::uint32_t id) {
  const auto is_made = [&](std::uint32_t i) { return place(nest_.body[i]).values.contains(i); };
  const auto each_operand = [&](std::uint32_t i, auto&& visit) {
    const Statement& s = nest_.body[i];
    if (is_kept_back(i)) return;
    const bool names_place = s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Index || s.kind == Statement::Kind::Guard;
    for (const std::uint32_t o : {s.guard, s.a, s.b, s.c})  // a load along an axis of one element varies less than its checked index
      if (o != kNone && nest_.body[o].kind != Statement::Kind::Constant &&
          !(names_place && o == s.a && (nest_.body[o].loops & ~s.loops) != 0))
        visit(o);
  };
  operands_first(id, is_made, each_operand, [&](std::uint32_t i) { write_definition(i); });
  return place(nest_.body[id]).values.at(id);
}

bool DeviceEmitter::is_kept_back(std::uint32_t id) {
  return kept_slot(id) < schedule_.kept.size() && &place(nest_.body[id]) == step_ && first_sweep(id) < sweep_;
}

std::string DeviceEmitter::write_definition(std::uint32_t id) {
  const Statement& s = nest_.body[id];
  Scope& scope = place(s);
  const std::string name = fmt::format("v{}", id);
  const bool array = is_array(id);
  const auto write = [&](const std::string& expression) {
    if (array) scope.line(fmt::format("{} {}[W];\n{}LANES {}[e] = {};", type(s.dtype), name, scope.indent(), name, expression));
    else scope.line(fmt::format("const {} {} = {};", type(s.dtype), name, expression));
  };
  const std::size_t slot = kept_slot(id);
  const bool keeps = slot < schedule_.kept.size() && &scope == step_;
  if (keeps && first_sweep(id) < sweep_) {
    scope.line(fmt::format("{} {}[W];", type(s.dtype), name));
    scope.line(fmt::format("{}(kept{} + r, {});", kept_function("kept_back", slot), slot, name));
    return scope.values[id] = name;
  }
  switch (s.kind) {
    case Statement::Kind::Slot: write(slot_text(s)); break;
    case Statement::Kind::Index:
      write(program_.call(Op::Cast, DType::I64, std::string(memory_type(is_half(s.half) ? s.half : s.dtype)),
                          {"(long long)(" + linear(s.at, true, array) + ")"}));
      break;
    case Statement::Kind::Guard: write(guard_text(s, array)); break;
    case Statement::Kind::Load: load(scope, s, name, array); break;
    case Statement::Kind::Place: {
      const std::string counts = s.guard == kNone ? "" : " && " + value(s.guard);
      write(fmt::format("placed({}, {}, {}{}, w.memory[{}])", value(s.a), word(words_.bounds + s.at), there(scope, array), counts,
                        words_.flag));
      break;
    }
    case Statement::Kind::Scan:
      if (schedule_.form == Form::Scan) write(fmt::format("scanned<{0}>({1}, carry{2}, base{2})", functor(s), value(s.a), id));
      else
        write(fmt::format("{0}::combine<{1}>(base{2}[{4}], carry{2}[{4}] = {0}::combine<{1}>(carry{2}[{4}], {3}))", functor(s),
                          type(s.dtype), id, value(s.a), array ? "e" : "0"));
      break;
    case Statement::Kind::Op: {
      std::vector<std::string> operands;
      DType of = s.dtype;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) {
          if (operands.empty()) of = nest_.body[o].dtype;
          operands.push_back(value(o));
        }
      const bool makes_half = is_half(s.half) && s.dtype == DType::F32;
      if (is_half(s.half) && !makes_half) operands[0] = fmt::format("{}{{{}}}", memory_type(s.half), operands[0]);
      write(program_.call(s.op, of, target_type(s.op, makes_half ? s.half : s.dtype), operands));
      break;
    }
    default: throw InternalError("cuda: a statement has no value here");
  }
  if (keeps) scope.line(fmt::format("{}(kept{} + r, {});", kept_function("keep", slot), slot, name));
  return scope.values[id] = name;
}

// Returns the condition that the neighbor exists, or any of the neighbors if they share the value.
std::string DeviceEmitter::there(const Scope& scope, bool array) const {
  const bool counted = &scope == step_ || (&scope == item_ && schedule_.form <= Form::Columns);
  if (!counted || lanes_here(scope) == "W") return "true";
  return array ? "e < n" : "n > 0";
}

std::string DeviceEmitter::slot_text(const Statement& s) {
  const std::uint32_t at = words_.slots + s.at;
  if (known_ && known_->known[at]) return literal(s.dtype, static_cast<std::uint64_t>(known_->words[at]));
  return fmt::format("constant<{}>(w.at[{}])", type(s.dtype), at);
}

void DeviceEmitter::load(Scope& scope, const Statement& s, const std::string& name, bool array) {
  if (std::find(schedule_.packed.begin(), schedule_.packed.end(), s.at) != schedule_.packed.end())
    return scope.line(fmt::format("{0} {1}[W];\n{2}LANES {1}[e] = tile{3}[column + e][row];", type(s.dtype), name, scope.indent(), s.at));
  const std::string guard = s.guard == kNone ? "" : value(s.guard);
  if (!array) {
    // All neighbors share one element; a step may have no neighbors.
    const bool may_be_none = &scope == step_ && lanes_here(scope) != "W";
    const std::string condition = may_be_none ? "n > 0" + (guard.empty() ? "" : " && " + guard) : guard;
    const std::string read = element(s.at, false);
    scope.line(fmt::format("const {} {} = {};", type(s.dtype), name,
                           condition.empty() ? read : fmt::format("{} ? {} : constant<{}>(0)", condition, read, type(s.dtype))));
    return;
  }
  scope.line(fmt::format("{} {}[W];", type(s.dtype), name));
  if (moves_as_vector(s.at)) {
    scope.line(
        fmt::format("load_vector<{}, W>({}, {}, {});", memory_type(type_of_access(s.at)), address(s.at, false), lanes_here(scope), name));
    return;
  }
  const std::string condition = lanes_here(scope) == "W" ? guard : "e < n" + (guard.empty() ? "" : " && " + guard);
  const std::string read = element(s.at, true);
  scope.line(fmt::format("LANES {}[e] = {};", name,
                         condition.empty() ? read : fmt::format("{} ? {} : constant<{}>(0)", condition, read, type(s.dtype))));
}

// Returns how many neighbors exist. In a step of columns, some neighbors may not exist even if the task is whole.
std::string DeviceEmitter::lanes_here(const Scope& scope) const {
  return schedule_.whole && !(&scope == step_ && schedule_.form == Form::Columns) ? "W" : "n";
}

void DeviceEmitter::store(Scope& scope, const Statement& s) {
  const std::string guard = s.guard == kNone ? "" : value(s.guard);
  const std::string_view memory = memory_type(type_of_access(s.at));
  if (s.op == Op::Add) return add(scope, s, guard);
  if (moves_as_vector(s.at)) {
    std::string name;
    if (nest_.body[s.a].kind != Statement::Kind::Constant && is_array(s.a)) {
      name = define(s.a);
    } else {
      name = fmt::format("y{}", s.at);
      const std::string filled = value(s.a);
      scope.line(fmt::format("{} {}[W];", type(nest_.body[s.a].dtype), name));
      scope.line(fmt::format("LANES {}[e] = {};", name, filled));
    }
    scope.line(fmt::format("store_vector<{}, W>({}, {}, {});", memory, address(s.at, false), lanes_here(scope), name));
    return;
  }
  const std::string stored = value(s.a);
  const std::string condition = lanes_here(scope) == "W" ? guard : "e < n" + (guard.empty() ? "" : " && " + guard);
  scope.line(
      fmt::format("LANES {}store<{}>({}, {});", condition.empty() ? "" : "if (" + condition + ") ", memory, address(s.at, true), stored));
}

// Adds to the stored element. The same thread does all updates of an element, in order.
void DeviceEmitter::add(Scope& scope, const Statement& s, const std::string& guard) {
  const DType dtype = type_of_access(s.at);
  const std::string_view memory = memory_type(dtype);
  const auto sum = [&](const std::string& old) { return program_.call(Op::Add, dtype, "", {old, value(s.a)}); };
  if (moves_as_vector(s.at)) {
    const std::string name = fmt::format("y{}", s.at), at = address(s.at, false);
    scope.line(fmt::format("{} {}[W];", type(dtype), name));
    scope.line(fmt::format("load_vector<{}, W>({}, {}, {});", memory, at, lanes_here(scope), name));
    const std::string added = sum(name + "[e]");
    scope.line(fmt::format("LANES {}[e] = {};", name, added));
    scope.line(fmt::format("store_vector<{}, W>({}, {}, {});", memory, at, lanes_here(scope), name));
    return;
  }
  const std::string condition = lanes_here(scope) == "W" ? guard : "e < n" + (guard.empty() ? "" : " && " + guard);
  const std::string at = address(s.at, true), added = sum(fmt::format("load<{}>(at)", memory));
  scope.line(fmt::format("LANES {}{{ char* const at = {}; store<{}>(at, {}); }}", condition.empty() ? "" : "if (" + condition + ") ", at,
                         memory, added));
}

// ---- values cached between sweeps
std::size_t DeviceEmitter::kept_slot(std::uint32_t id) const {
  return static_cast<std::size_t>(std::find(schedule_.kept.begin(), schedule_.kept.end(), id) - schedule_.kept.begin());
}

std::string_view DeviceEmitter::kept_type(std::size_t slot) const {
  return is_half(kept_.types[slot]) ? "unsigned short" : type(kept_.types[slot]);
}

std::string DeviceEmitter::kept_function(const char* name, std::size_t slot) const {
  return is_half(kept_.types[slot]) ? fmt::format("{}<{}>", name, memory_type(kept_.types[slot])) : name;
}

std::uint8_t DeviceEmitter::first_sweep(std::uint32_t id) const {
  std::uint8_t s = 0;
  while (s < nest_.sweeps && !needed_[s][id]) ++s;
  return s;
}

bool DeviceEmitter::stores_in(const Statement& s, std::uint8_t sweep) const {
  return s.kind == Statement::Kind::Store && s.stage == sweep && (!reduces() || (s.loops & nest_.reduced_mask()));
}

bool DeviceEmitter::any_stores(std::uint8_t sweep) const {
  return std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) { return stores_in(s, sweep); });
}

void DeviceEmitter::stores(Scope& scope, std::uint8_t sweep) {
  for (const Statement& s : nest_.body)
    if (stores_in(s, sweep)) store(scope, s);
}

void DeviceEmitter::row_by_sweeps(int sweeps, const std::function<void()>& sweep) {
  row_stores(0);
  for (sweep_ = 0; sweep_ < sweeps; ++sweep_) {
    sweep();
    row_stores(static_cast<std::uint8_t>(sweep_ + 1));
  }
}

// Writes the stores of values that a row computes from its reductions.
void DeviceEmitter::row_stores(std::uint8_t stage) {
  for (const Statement& s : nest_.body) {
    if (s.kind != Statement::Kind::Store || s.stage != stage || (s.loops & nest_.reduced_mask())) continue;
    if (nest_.kind == NestKind::Rows) {
      store(*item_, s);
      continue;
    }
    const std::string guard = s.guard == kNone ? "" : " && " + value(s.guard), stored = value(s.a);
    const std::string there = row_is_there_.empty() ? guard : " && " + row_is_there_ + guard;
    item_->line(fmt::format("if ({} == 0{}) store<{}>({}, {});", schedule_.form == Form::Block ? "threadIdx.x" : "t", there,
                            memory_type(type_of_access(s.at)), address(s.at, false), stored));
  }
}

}  // namespace onepass::compiler::cuda
