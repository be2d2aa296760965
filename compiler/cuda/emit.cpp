// emit: see emit.h.
//
// The shape of a kernel (docs/cuda.md has examples):
//
//   words that no loop changes            the kernel's scope
//   for each chunk, row or column         the item's scope: its indices by division, then what they decide
//     for each sweep                      reductions: accumulators of W lanes, and in
//       for each step of the reduced r      the step's scope: loads, values, stores
//       the order of docs/language.md
//
// A statement is written into the outermost scope in which its loops are known, the first time that something needs it. What varies along
// the vector loop is an array of W values, one for each neighbour that the thread takes; the compiler makes registers of them.
#include "compiler/cuda/emit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <unordered_map>

#include <fmt/format.h>

#include "compiler/cuda/device_text.h"
#include "compiler/plan/scratch.h"
#include "compiler/rare.h"
#include "ir/build.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler::cuda {

using ir::Op;

namespace {

constexpr std::uint32_t kNone = Statement::kNone;
constexpr std::uint32_t kMostWords = 500;  // by value: 4 KiB of arguments are what every driver takes

std::string literal(DType dtype, std::uint64_t bits) {
  if (dtype == DType::Bool) return bits & 0xff ? "true" : "false";
  if (is_float(dtype)) {
    const double value =
        dtype == DType::F64 ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (std::isfinite(value)) return fmt::format("{:a}{}", value, dtype == DType::F64 ? "" : "f");
  }
  return fmt::format("constant<{}>(0x{:x}ull)", value_type(dtype), bits);
}

struct Scope {
  Scope* parent;
  int depth;
  std::string text = {};
  std::unordered_map<std::uint32_t, std::string> values = {};  // statements: what they are called
  void line(const std::string& s) { text += std::string(static_cast<std::size_t>(2 * depth), ' ') + s + "\n"; }
};

}  // namespace

// ---------------------------------------------------------------------------------------------- device functions

std::string DeviceProgram::call(Op op, DType of, const std::string& to, const std::vector<std::string>& operands) {
  std::string arguments;
  for (const std::string& o : operands) arguments += (arguments.empty() ? "" : ", ") + o;
  if (ir::info(op).kind == ir::OpKind::Expanded) {
    expand(op, of);
    return fmt::format("{}_{}({})", ir::info(op).text, name_of(of), arguments);
  }
  if (made_.insert({static_cast<int>(op), -1}).second) functions_ += device_function(op);
  return fmt::format("op_{}{}({})", ir::info(op).text, to.empty() ? "" : "<" + to + ">", arguments);
}

namespace {

// The type that a conversion is made to, as its template argument; empty for other operators.
std::string target_type(Op op, DType dtype) {
  const ir::TypeRule rule = ir::info(op).types;
  return rule == ir::TypeRule::Convert || rule == ir::TypeRule::Reinterpret ? std::string(memory_type(dtype)) : std::string();
}

}  // namespace

// An expansion: its primitives, in order; what is behind a `rare` in a block that is entered where the thread has the condition.
void DeviceProgram::expand(Op op, DType dtype) {
  if (!made_.insert({static_cast<int>(op), static_cast<int>(dtype)}).second) return;
  const ir::Graph& g = ir::expansion(op, dtype);
  const BehindRare behind(g);
  std::string body;
  const auto value = [&](ir::NodeId id) -> std::string {
    const ir::Node n = g[id];
    if (n.op == Op::Input) return std::string(1, static_cast<char>('a' + n.bits));
    if (n.op == Op::Constant) return literal(n.dtype, n.bits);
    return fmt::format("v{}", id);
  };
  const std::function<void(ir::NodeId, int)> write = [&](ir::NodeId id, int depth) {
    const ir::Node n = g[id];
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    if (n.op == Op::Input || n.op == Op::Constant) return;
    if (n.op == Op::Rare) {
      if (behind.first.at(g.operand(id, 0)) != id) return;  // written with the first
      const std::vector<ir::NodeId> together = behind.together(g, id);
      for (const ir::NodeId other : together)
        body += fmt::format("{}{} v{} = {};\n", indent, value_type(g[other].dtype), other, value(g.operand(other, 2)));
      body += fmt::format("{}if ({}) {{\n", indent, value(g.operand(id, 0)));
      for (ir::NodeId inner = 0; inner < id; ++inner)
        if (behind.rare[inner] == id) write(inner, depth + 1);
      for (const ir::NodeId other : together) body += fmt::format("{}  v{} = {};\n", indent, other, value(g.operand(other, 1)));
      body += indent + "}\n";
      return;
    }
    std::vector<std::string> operands;
    for (const std::int64_t o : g.operands(id)) operands.push_back(value(static_cast<ir::NodeId>(o)));
    const DType of = operands.empty() ? n.dtype : g[g.operand(id, 0)].dtype;
    body += fmt::format("{}const {} v{} = {};\n", indent, value_type(n.dtype), id, call(n.op, of, target_type(n.op, n.dtype), operands));
  };
  for (ir::NodeId id = 0; id < g.size(); ++id)
    if (behind.rare[id] == ir::kNoNode) write(id, 1);
  std::string parameters;
  for (std::size_t i = 0; i < g.inputs.size(); ++i)
    parameters += fmt::format("{}{} {}", i ? ", " : "", value_type(g.inputs[i].dtype), static_cast<char>('a' + i));
  functions_ += fmt::format("DEVICE {} {}_{}({}) {{\n{}  return {};\n}}\n", value_type(g[g.outputs[0]].dtype), ir::info(op).text,
                            name_of(dtype), parameters, body, value(g.outputs[0]));
}

std::string DeviceProgram::text() const { return std::string(device_prelude()) + "\n" + functions_ + kernels_; }

// ---------------------------------------------------------------------------------------------- kernels

class DeviceEmitter {
 public:
  DeviceEmitter(DeviceProgram& program, const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known)
      : program_(program),
        nest_(nest),
        schedule_(schedule),
        known_(known),
        words_(nest),
        needed_(needed_by_sweep(nest, schedule.kept)),
        kernel_{nullptr, 1} {
    const std::uint32_t words = std::max(words_.total, 1u) + schedule.table_words;
    out_ = {name, words, schedule.threads, words > kMostWords, schedule.form >= Form::Team};
    if (schedule.form == Form::Scan) inner_ = vector_bit();
    else if (schedule.form == Form::Tile) inner_ = vector_bit() | vector_bit() >> 1;
    else if (reduces()) inner_ = nest.reduced_mask();
    for (const Statement& s : nest.body)
      if (s.kind == Statement::Kind::Reduce && s.count != 0)
        throw UnsupportedError("cuda: a reduction over other axes in one pass does not run on a device; run on the cpu");
  }

  DeviceKernel run() {
    if (schedule_.narrow) kernel_.line("typedef int Index;");
    kernel_.line(fmt::format("constexpr int W = {};", schedule_.width));
    if (out_.far) kernel_.line(fmt::format("const Words<{}>& w = *words_;", out_.words));
    switch (schedule_.form) {
      case Form::Map:
      case Form::Columns: chunks(); break;
      case Form::Team: teams(); break;
      case Form::Block: blocks(); break;
      case Form::Scan: scans(); break;
      case Form::Tile: tiles(); break;
    }
    program_.kernels_ += fmt::format("\n{}({}, {}, {}) {{\n{}}}\n", out_.far ? "KERNEL_FAR" : "KERNEL", out_.name, out_.words,
                                     schedule_.threads, kernel_.text);
    return out_;
  }

 private:
  DeviceProgram& program_;
  const Nest& nest_;
  const DeviceSchedule& schedule_;
  const KnownWords* known_;
  WordLayout words_;
  std::vector<std::vector<bool>> needed_;
  DeviceKernel out_;
  Scope kernel_;
  Scope* item_ = nullptr;
  Scope* step_ = nullptr;    // of the loops in it: inner_
  std::uint64_t inner_ = 0;  // reduced loops; the loop that scans run along; those of a tile
  std::uint8_t sweep_ = 0;

  // ---------------------------------------------------------------------------------------------- small words
  std::uint64_t vector_bit() const { return std::uint64_t{1} << nest_.vector_loop(); }
  bool reduces() const { return nest_.kind != NestKind::Map; }
  // A word as a number of loops and indices.
  std::string word(std::uint32_t at) const {
    return known_ && known_->known[at] ? fmt::format("Index({}ll)", known_->words[at]) : fmt::format("Index(w.at[{}])", at);
  }
  std::string extent(std::uint32_t loop) const { return word(words_.extents + loop); }
  std::string index(std::uint32_t loop) const { return loop == nest_.vector_loop() ? "j" : fmt::format("i{}", loop); }
  DType type_of_access(std::uint32_t a) const { return nest_.buffers[nest_.accesses[a].buffer].dtype; }
  static std::string_view type(DType dtype) { return value_type(dtype); }
  std::vector<std::uint32_t> reductions(std::uint8_t sweep) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].stage == sweep + 1) out.push_back(i);
    return out;
  }
  static std::string_view functor(const Statement& s) {
    switch (s.op) {
      case Op::ReduceSum:
      case Op::ScanSum:
      case Op::ContractLanes:
      case Op::ContractRows: return "ReduceSum";
      case Op::ScanProd:
      case Op::ReduceProd: return "ReduceProd";
      case Op::ScanMax:
      case Op::ReduceMax: return "ReduceMax";
      default: return "ReduceMin";
    }
  }
  // Product of the extents of loops first .. last.
  std::string product(std::uint32_t first, std::uint32_t last) const {
    std::string out;
    for (std::uint32_t l = first; l < last; ++l) out += (out.empty() ? "" : " * ") + extent(l);
    return out.empty() ? "Index(1)" : out;
  }

  // ---------------------------------------------------------------------------------------------- scopes
  // Is it one value for each of the W neighbours?
  bool is_array(std::uint32_t id) const {
    const Statement& s = nest_.body[id];
    return s.loops & vector_bit() ||
           (nest_.kind == NestKind::Rows && s.stage > 0 && s.kind != Statement::Kind::Slot && s.kind != Statement::Kind::Constant);
  }
  Scope& place(const Statement& s) {
    if (s.loops & inner_) return *step_;
    return s.loops || s.stage > 0 ? *item_ : kernel_;
  }

  // offset + Σ coefficient · variable. `lane`: of neighbour e.
  std::string linear(std::uint32_t at, bool with_offset, bool lane) {
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
  bool moves_as_vector(std::uint32_t access) const {
    return std::find(schedule_.vectors.begin(), schedule_.vectors.end(), access) != schedule_.vectors.end();
  }
  // The word that stands for a list's member.
  std::string member(std::uint32_t access, const std::string& number) const {
    return fmt::format("member_of(w, w.at[{}], {})", words_.pointers + access, number);
  }
  std::string address(std::uint32_t access, bool lane) {
    const Access& a = nest_.accesses[access];
    const std::string array =
        a.table == Access::kNone ? fmt::format("w.at[{}]", words_.pointers + access) : member(access, linear(a.table, true, lane));
    return fmt::format("{} + (long long)({}) * {}", array, linear(a.linear, false, lane), size_of(type_of_access(access)));
  }
  std::string element(std::uint32_t access, bool lane) {
    const DType dtype = type_of_access(access);
    if (std::find(schedule_.numbers.begin(), schedule_.numbers.end(), access) == schedule_.numbers.end())
      return fmt::format("load<{}>({})", memory_type(dtype), address(access, lane));
    const std::string number = fmt::format("({}) / {}", linear(nest_.accesses[access].linear, true, lane), 8 / size_of(dtype));
    return fmt::format("constant<{}>({})", type(dtype), member(access, number));
  }
  std::string guard_text(const Statement& s, bool lane) {
    std::string out;
    for (std::uint32_t c = s.at; c < s.at + s.count; ++c)
      out +=
          fmt::format("{}inside({}, {})", out.empty() ? "" : " && ", linear(nest_.checks[c].linear, true, lane), word(words_.bounds + c));
    return out.empty() ? "true" : out;
  }

  // What a statement's value is called in a loop over the neighbours e; it is written first where nobody has.
  std::string value(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    if (s.kind == Statement::Kind::Constant) return literal(s.dtype, s.bits);
    const std::string name = define(id);
    return is_array(id) ? name + "[e]" : name;
  }

  std::string define(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    Scope& scope = place(s);
    if (const auto it = scope.values.find(id); it != scope.values.end()) return it->second;
    const std::string name = fmt::format("v{}", id);
    const bool array = is_array(id);
    const auto write = [&](const std::string& expression) {
      if (array)
        scope.line(fmt::format("{} {}[W];\n{}LANES {}[e] = {};", type(s.dtype), name,
                               std::string(static_cast<std::size_t>(2 * scope.depth), ' '), name, expression));
      else scope.line(fmt::format("const {} {} = {};", type(s.dtype), name, expression));
    };
    const std::size_t slot = kept_slot(id);
    const bool keeps = slot < schedule_.kept.size() && &scope == step_;
    if (keeps && first_sweep(id) < sweep_) {
      scope.line(fmt::format("{} {}[W];", type(s.dtype), name));
      scope.line(fmt::format("kept_back(kept{} + r, {});", slot, name));
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
        write(fmt::format("placed({}, {}, {}{}, w.at[{}])", value(s.a), word(words_.bounds + s.at), there(scope, array), counts,
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
    if (keeps) scope.line(fmt::format("keep(kept{} + r, {});", slot, name));
    return scope.values[id] = name;
  }

  // Whether the neighbour counts, or one of them where they share the value.
  std::string there(const Scope& scope, bool array) const {
    const bool counted = &scope == step_ || (&scope == item_ && schedule_.form <= Form::Columns);
    if (!counted || lanes_here(scope) == "W") return "true";
    return array ? "e < n" : "n > 0";
  }

  std::string slot_text(const Statement& s) {
    const std::uint32_t at = words_.slots + s.at;
    if (known_ && known_->known[at]) return literal(s.dtype, static_cast<std::uint64_t>(known_->words[at]));
    return fmt::format("constant<{}>(w.at[{}])", type(s.dtype), at);
  }

  void load(Scope& scope, const Statement& s, const std::string& name, bool array) {
    if (std::find(schedule_.packed.begin(), schedule_.packed.end(), s.at) != schedule_.packed.end())
      return scope.line(fmt::format("{0} {1}[W];\n{2}{1}[0] = tile{3}[column][row];", type(s.dtype), name,
                                    std::string(static_cast<std::size_t>(2 * scope.depth), ' '), s.at));
    const std::string guard = s.guard == kNone ? "" : value(s.guard);
    if (!array) {
      // one element for all neighbours, of which a step may have none
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
  // How many of the neighbours are there: in a step of columns some may not be although the item is whole.
  std::string lanes_here(const Scope& scope) const {
    return schedule_.whole && !(&scope == step_ && schedule_.form == Form::Columns) ? "W" : "n";
  }

  void store(Scope& scope, const Statement& s) {
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

  // Added to what stands there: the same thread comes to all of an element's updates, in their order.
  void add(Scope& scope, const Statement& s, const std::string& guard) {
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
    scope.line(fmt::format("LANES {}{{ const long long at = {}; store<{}>(at, {}); }}", condition.empty() ? "" : "if (" + condition + ") ",
                           at, memory, added));
  }

  // ---- what is held between sweeps
  std::size_t kept_slot(std::uint32_t id) const {
    return static_cast<std::size_t>(std::find(schedule_.kept.begin(), schedule_.kept.end(), id) - schedule_.kept.begin());
  }
  std::uint8_t first_sweep(std::uint32_t id) const {
    std::uint8_t s = 0;
    while (s < nest_.sweeps && !needed_[s][id]) ++s;
    return s;
  }

  bool stores_in(const Statement& s, std::uint8_t sweep) const {
    return s.kind == Statement::Kind::Store && s.stage == sweep && (!reduces() || (s.loops & nest_.reduced_mask()));
  }
  bool any_stores(std::uint8_t sweep) const {
    return std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) { return stores_in(s, sweep); });
  }
  void stores(Scope& scope, std::uint8_t sweep) {
    for (const Statement& s : nest_.body)
      if (stores_in(s, sweep)) store(scope, s);
  }
  // Stores of what a row computes from its reductions.
  void row_stores(std::uint8_t stage) {
    for (const Statement& s : nest_.body) {
      if (s.kind != Statement::Kind::Store || s.stage != stage || (s.loops & nest_.reduced_mask())) continue;
      if (nest_.kind == NestKind::Rows) {
        store(*item_, s);
        continue;
      }
      const std::string guard = s.guard == kNone ? "" : " && " + value(s.guard), stored = value(s.a);
      item_->line(fmt::format("if ({} == 0{}) store<{}>({}, {});", schedule_.form == Form::Team ? "t" : "threadIdx.x", guard,
                              memory_type(type_of_access(s.at)), address(s.at, false), stored));
    }
  }

  // The indices of loops first .. last from their number `from`, which is used up; gives the lines.
  void indices(Scope& scope, std::uint32_t first, std::uint32_t last, const std::string& from) {
    if (first == last) return;
    if (first + 1 == last) return scope.line(fmt::format("const Index i{} = {};", first, from));
    const std::string rest = fmt::format("rest{}", first);
    scope.line(fmt::format("Index {} = {};", rest, from));
    for (std::uint32_t l = last; l-- > first + 1;) scope.line(fmt::format("const Index i{0} = {1} % {2}; {1} /= {2};", l, rest, extent(l)));
    scope.line(fmt::format("const Index i{} = {};", first, rest));
  }

  // A scope inside `parent`, behind a line that opens a block; what `f` writes, then the block's end.
  void block(Scope& parent, const std::string& opening, const std::function<void(Scope&)>& f) {
    Scope inner{&parent, parent.depth + 1};
    f(inner);
    parent.line(opening + " {");
    parent.text += inner.text;
    parent.line("}");
  }

  // ---------------------------------------------------------------------------------------------- map and columns
  void chunks() {
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
    if (schedule_.split)
      return phases(
          "for (Index work = Index(blockIdx.x) * blockDim.x + threadIdx.x; work < all * parts; work += Index(gridDim.x) * blockDim.x)",
          [&](Scope& item) {
            item.line("const Index chunk = work % all, part = work / all;");
            item_of(item);
          });
    block(kernel_, "for (Index chunk = Index(blockIdx.x) * blockDim.x + threadIdx.x; chunk < all; chunk += Index(gridDim.x) * blockDim.x)",
          [&](Scope& item) {
            item_of(item);
            if (!reduces()) return stores(item, 0);
            row_stores(0);
            for (sweep_ = 0; sweep_ < nest_.sweeps; ++sweep_) {
              columns_sweep(item);
              row_stores(static_cast<std::uint8_t>(sweep_ + 1));
            }
          });
  }

  // ---------------------------------------------------------------------------------------------- in several launches
  // The reduced elements of a row (or of a thread's columns) are shared by `parts` threads (blocks), in chunks of 2^m blocks of the order of summation,
  // so that the tree of the chunks' sums is the tree of the blocks. Sweep s is launch s: all leave their sums at the word `shared`; in later launches
  // each combines those of its row for itself, always in the same order. What the row itself stores its first part stores.
  void phases(const std::string& loop, const std::function<void(Scope&)>& open) {
    kernel_.line(fmt::format("const Index parts = {}, length = {};", word(words_.chunks), word(words_.chunk)));
    const std::vector<std::uint32_t> last = reductions(static_cast<std::uint8_t>(nest_.sweeps - 1));
    const auto launches = static_cast<std::uint8_t>(nest_.sweeps + !last.empty());
    std::vector<std::uint32_t> all;  // reductions, as they stand in the partial results
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Reduce) all.push_back(i);
    kernel_.line(fmt::format("constexpr int kSums = {};", all.size()));
    const auto place_of = [&](std::uint32_t r, const char* part) {
      return fmt::format("w.at[{}] + 8ll * ((({} * (long long)all + {}) * kSums + {}) * {})", words_.shared, part,
                         nest_.kind == NestKind::Rows ? "chunk" : "item", std::find(all.begin(), all.end(), r) - all.begin(),
                         nest_.kind == NestKind::Rows ? "W" : "1");
    };
    const std::string width = nest_.kind == NestKind::Rows ? "W" : "1";
    for (std::uint8_t phase = 0; phase < launches; ++phase) {
      block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, int{phase}), [&](Scope& launch) {
        block(launch, loop, [&](Scope& item) {
          open(item);
          for (sweep_ = 0; sweep_ < phase; ++sweep_)
            for (std::uint32_t r : reductions(sweep_)) {
              const Statement& s = nest_.body[r];
              const std::string name = fmt::format("v{}", r);
              item.line(fmt::format("{} {}[{}];", type(s.dtype), name, width));
              item.line(fmt::format("joined<{}, {}>({}, parts, {});", functor(s), width, place_of(r, "0"),
                                    fmt::format("8ll * all * kSums * {}, {}", width, name)));
              item.values[r] = nest_.kind == NestKind::Rows ? name : name + "[0]";
            }
          if (phase == 0) first_part_stores(item, 0);
          else first_part_stores(item, phase);
          sweep_ = phase;
          if (phase == nest_.sweeps) return;
          reduced_range(item);
          item.line("const Index from = part * length;");
          item.line(fmt::format("const Index until = from + length < count{0} ? from + length : count{0};", sweep_));
          if (nest_.kind == NestKind::Rows) {
            columns_sweep(item);
          } else {
            blocks_sweep(item);
          }
          for (std::uint32_t r : reductions(sweep_)) {
            const std::string first = place_of(r, "part");
            if (nest_.kind == NestKind::Rows) item.line(fmt::format("leave<W>({}, v{});", first, r));
            else item.line(fmt::format("if (threadIdx.x == 0) leave<1>({}, whole{});", first, r));
          }
        });
      });
    }
  }
  void first_part_stores(Scope& item, std::uint8_t stage) {
    const bool any = std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) {
      return s.kind == Statement::Kind::Store && s.stage == stage && !(s.loops & nest_.reduced_mask());
    });
    if (!any) return;
    block(item, "if (part == 0)", [&](Scope& first) {
      Scope* const around = std::exchange(item_, &first);
      first.values = item.values;  // what the item has; what the stores need besides stays in here
      row_stores(stage);
      item_ = around;
    });
  }

  bool heavy() const {
    int ops = 0;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (const Statement& s = nest_.body[i]; needed_[sweep_][i] && s.kind == Statement::Kind::Op && (s.loops & nest_.reduced_mask()))
        ops += ir::info(s.op).kind == ir::OpKind::Expanded ? 24 : 1;
    return ops > 16;
  }

  // r's end and, where runs are filled, which r are there.
  void reduced_range(Scope& scope) {
    const std::uint32_t first = nest_.outer + nest_.runs, last = nest_.outer + nest_.serial;
    const std::string run = nest_.kind == NestKind::Lanes ? product(first, last + 1) : product(first, last);
    if (nest_.runs) {
      scope.line(fmt::format("const Index run{} = {};", sweep_, run));
      scope.line(fmt::format("const Index count{} = {} * {};", sweep_, product(nest_.outer, first), word(words_.padded_run)));
    } else {
      scope.line(fmt::format("const Index count{} = {};", sweep_, run));
    }
  }
  // The reduced loops' indices at r; `there`: whether the element is not a missing one.
  void reduced_indices(Scope& step, bool& there) {
    const std::uint32_t first = nest_.outer + nest_.runs, last = nest_.outer + nest_.serial;
    std::string x = "r";
    if (nest_.runs) {
      indices(step, nest_.outer, first, fmt::format("r / {}", word(words_.padded_run)));
      step.line(fmt::format("const Index x = r % {};", word(words_.padded_run)));
      x = "x";
    }
    there = nest_.runs > 0;
    if (nest_.kind == NestKind::Lanes && nest_.serial > 0) {
      step.line(fmt::format("const Index j = {} % {};", x, extent(nest_.vector_loop())));
      indices(step, first, last, fmt::format("{} / {}", x, extent(nest_.vector_loop())));
    } else if (nest_.kind == NestKind::Lanes) {
      step.line("const Index j = r;");
    } else {
      indices(step, first, last, x);
    }
  }

  // r of the item: all, or those of its chunk.
  std::string from() const { return schedule_.split ? "from" : "0"; }
  std::string until() const { return schedule_.split ? "until" : fmt::format("count{}", sweep_); }

  std::vector<std::uint32_t> scan_statements() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Scan) out.push_back(i);
    return out;
  }
  void end_of_scan_block(Scope& scope, std::uint32_t id, const char* lanes, const char* element) const {
    const Statement& s = nest_.body[id];
    scope.line(fmt::format("{0}base{1}{2} = {3}::combine<{4}>(base{1}{2}, carry{1}{2});", lanes, id, element, functor(s), type(s.dtype)));
    scope.line(fmt::format("{0}carry{1}{2} = {3}::identity<{4}>();", lanes, id, element, functor(s), type(s.dtype)));
  }

  void columns_sweep(Scope& item) {
    const std::vector<std::uint32_t> reds = reductions(sweep_);
    if (reds.empty() && !any_stores(sweep_)) return;
    if (!schedule_.split) reduced_range(item);
    const auto step = [&](Scope& s) {
      step_ = &s;
      bool there = false;
      reduced_indices(s, there);
      s.line(fmt::format("const int n = r < count{}{} ? {} : 0;", sweep_, there ? fmt::format(" && x < run{}", sweep_) : "",
                         schedule_.whole ? "W" : "all_lanes"));
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
    const std::vector<std::uint32_t> scans = scan_statements();
    if (reds.empty()) {
      for (std::uint32_t id : scans) {
        const Statement& s = nest_.body[id];
        item.line(fmt::format("{0} carry{1}[W], base{1}[W];", type(s.dtype), id));
        item.line(fmt::format("LANES carry{0}[e] = base{0}[e] = {1}::identity<{2}>();", id, functor(s), type(s.dtype)));
      }
      block(item, fmt::format("for (Index r = {}; r < {}; ++r)", from(), until()), [&](Scope& s) {
        if (!scans.empty() && !schedule_.one_block)
          block(s, fmt::format("if (r > 0 && r % {} == 0)", ir::kScanBlock), [&](Scope& next) {
            for (std::uint32_t id : scans) end_of_scan_block(next, id, "LANES ", "[e]");
          });
        step(s);
      });
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

  // ---------------------------------------------------------------------------------------------- lanes
  static int accumulators(const Statement& s) { return size_of(s.dtype) == 8 ? 2 : 4; }  // 32 or 64 lanes over 16 threads

  // One step of 64 r for a team from `base` on: in parts of 16 threads with W neighbours each.
  void lanes_step(Scope& around, const std::vector<std::uint32_t>& reds, const std::string& opening, const std::string& at) {
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
  void start_lanes(Scope& scope, const std::vector<std::uint32_t>& reds) {
    for (std::uint32_t r : reds) {
      const Statement& s = nest_.body[r];
      scope.line(fmt::format("{} a{}[{}];", type(s.dtype), r, accumulators(s)));
      scope.line(fmt::format("for (int i = 0; i < {}; ++i) a{}[i] = {}::identity<{}>();", accumulators(s), r, functor(s), type(s.dtype)));
    }
  }
  // The steps of r0 .. until, all of one block of the order.
  void lanes_block(Scope& scope, const std::vector<std::uint32_t>& reds, const std::string& from, const std::string& until) {
    block(scope, fmt::format("for (Index r0 = {}; r0 < {}; r0 += 64)", from, until), [&](Scope& steps) {
      steps.line("#pragma unroll");
      lanes_step(steps, reds, "for (int u = 0; u < 4 / W; ++u)", "r0 + (u * 16 + t) * W");
    });
  }
  void declare_kept(Scope& scope) {
    if (schedule_.kept.empty()) return;
    kernel_.line("KEPT_MEMORY");
    std::string before = "0";
    for (std::size_t k = 0; k < schedule_.kept.size(); ++k) {
      const DType dtype = nest_.body[schedule_.kept[k]].dtype;
      scope.line(
          fmt::format("{0}* const kept{1} = reinterpret_cast<{0}*>(kept_memory + blockDim.x / 16 * {2} * ({3})) + threadIdx.x / 16 * {2};",
                      type(dtype), k, word(words_.tile), before));
      before += fmt::format(" + {}", size_of(dtype));
    }
  }

  void teams() {
    kernel_.line("const int t = threadIdx.x % 16;");
    declare_kept(kernel_);
    kernel_.line(fmt::format("const Index all = {};", product(0, nest_.outer)));
    block(kernel_,
          "for (Index item = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 16; item < all; item += Index(gridDim.x) * blockDim.x / 16)",
          [&](Scope& item) {
            item_ = &item;
            indices(item, 0, nest_.outer, "item");
            row_stores(0);
            for (sweep_ = 0; sweep_ < nest_.sweeps; ++sweep_) {
              const std::vector<std::uint32_t> reds = reductions(sweep_);
              reduced_range(item);
              start_lanes(item, reds);
              lanes_block(item, reds, "0", fmt::format("count{}", sweep_));
              for (std::uint32_t r : reds) {
                const Statement& s = nest_.body[r];
                item.line(fmt::format("const {} v{} = halved<{}, W>(a{});", type(s.dtype), r, functor(s), r));
                item.values[r] = fmt::format("v{}", r);
              }
              row_stores(static_cast<std::uint8_t>(sweep_ + 1));
            }
          });
  }

  void blocks() {
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
      row_stores(0);
      for (sweep_ = 0; sweep_ < nest_.sweeps; ++sweep_) {
        blocks_sweep(item);
        row_stores(static_cast<std::uint8_t>(sweep_ + 1));
      }
    });
  }
  void blocks_sweep(Scope& item) {
    const std::vector<std::uint32_t> reds = reductions(sweep_);
    if (!schedule_.split) reduced_range(item);
    if (reds.empty()) {
      if (any_stores(sweep_))
        lanes_step(item, reds,
                   fmt::format("for (Index r0 = {} + Index(threadIdx.x) * W; r0 < {}; r0 += Index(blockDim.x) * W)", from(), until()),
                   "r0");
      return;
    }
    for (std::uint32_t r : reds) item.line(fmt::format("if (threadIdx.x == 0) tree{}.clear();", r));
    block(item, fmt::format("for (Index first = {}; first < {}; first += kTeams * {})", from(), until(), ir::kLaneBlock),
          [&](Scope& round) {
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
            for (std::uint32_t r : reds)
              round.line(fmt::format(
                  "if (threadIdx.x == 0) for (int k = 0; k < kTeams && first + Index(k) * {0} < {1}; ++k) tree{2}.push(leaf{2}[k]);",
                  ir::kLaneBlock, until(), r));
            round.line("__syncthreads();");
          });
    for (std::uint32_t r : reds) item.line(fmt::format("if (threadIdx.x == 0) tree{0}.top(whole{0});", r));
    item.line("__syncthreads();");
    if (schedule_.split) return;
    for (std::uint32_t r : reds) {
      item.line(fmt::format("const {0} v{1} = whole{1}[0];", type(nest_.body[r].dtype), r));
      item.values[r] = fmt::format("v{}", r);
    }
  }

  // ---------------------------------------------------------------------------------------------- scans
  // Half a warp takes a row, 16 elements at a time, which are a group of the order. Split, it takes a block of 4,096 of one: the first launch leaves the
  // blocks' sums, the second adds them up to each block's base, one thread a row, the third gives the results.
  void scans() {
    kernel_.line("const int t = threadIdx.x % 16;");
    kernel_.line(fmt::format("const Index rows = {}, count = {};", product(0, nest_.outer), extent(nest_.vector_loop())));
    const std::vector<std::uint32_t> scans = scan_statements();
    const auto identities = [&](Scope& scope, const char* what) {
      for (std::uint32_t id : scans)
        scope.line(fmt::format("{0} {1}{2} = {3}::identity<{0}>();", type(nest_.body[id].dtype), what, id, functor(nest_.body[id])));
    };
    const auto groups = [&](Scope& scope, const std::string& first, const std::string& end, bool results) {
      scope.line("#pragma unroll 4");
      block(scope, fmt::format("for (Index group = {}; group < {}; group += {})", first, end, ir::kScanGroup), [&](Scope& step) {
        step_ = &step;
        step.line("const Index j = group + t;");
        step.line("const int n = j < count ? 1 : 0;");
        if (results) stores(step, 0);
        else
          for (std::uint32_t id : scans) define(id);
        step_ = nullptr;
      });
    };
    const char* const teams =
        "for (Index work = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 16; work < {}; work += Index(gridDim.x) * blockDim.x / 16)";
    const auto ends_of = [&](Scope& scope, const char* from) {
      scope.line(fmt::format("const Index end = {0} + {1} < count ? {0} + {1} : count;", from, ir::kScanBlock));
    };
    if (!schedule_.split) {
      block(kernel_, fmt::format(fmt::runtime(teams), "rows"), [&](Scope& item) {
        item_ = &item;
        indices(item, 0, nest_.outer, "work");
        identities(item, "base");
        block(item, fmt::format("for (Index first = 0; first < count; first += {})", ir::kScanBlock), [&](Scope& one) {
          identities(one, "carry");
          ends_of(one, "first");
          groups(one, "first", "end", true);
          for (std::uint32_t id : scans) end_of_scan_block(one, id, "", "");
        });
      });
      return;
    }
    kernel_.line(fmt::format("const Index parts = pieces(count, {});", ir::kScanBlock));
    const auto sum_at = [&](std::size_t k, const char* of) {
      return fmt::format("w.at[{}] + 8ll * (({}) * (long long){} + {})", words_.shared, of, scans.size(), k);
    };
    for (const int phase : {0, 2})
      block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, phase), [&](Scope& launch) {
        block(launch, fmt::format(fmt::runtime(teams), "rows * parts"), [&](Scope& item) {
          item_ = &item;
          item.line(fmt::format("const Index row = work / parts, first = work % parts * {};", ir::kScanBlock));
          indices(item, 0, nest_.outer, "row");
          identities(item, "carry"), identities(item, "base");
          if (phase == 2)
            for (std::size_t k = 0; k < scans.size(); ++k)
              item.line(fmt::format("base{} = load<{}>({});", scans[k], type(nest_.body[scans[k]].dtype), sum_at(k, "work")));
          ends_of(item, "first");
          groups(item, "first", "end", phase == 2);
          if (phase == 0)
            for (std::size_t k = 0; k < scans.size(); ++k)
              item.line(fmt::format("if (t == 0) store<{}>({}, carry{});", type(nest_.body[scans[k]].dtype), sum_at(k, "work"), scans[k]));
        });
      });
    block(kernel_, fmt::format("if (w.at[{}] == 1)", words_.phase), [&](Scope& launch) {
      block(launch, "for (Index row = Index(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += Index(gridDim.x) * blockDim.x)",
            [&](Scope& item) {
              identities(item, "base");
              item.line("#pragma unroll 8");
              block(item, "for (Index part = 0; part < parts; ++part)", [&](Scope& one) {
                for (std::size_t k = 0; k < scans.size(); ++k) {
                  const std::string_view dtype = type(nest_.body[scans[k]].dtype);
                  const std::string at = sum_at(k, "row * parts + part");
                  one.line(fmt::format("const {} sum{} = load<{}>({});", dtype, k, dtype, at));
                  one.line(fmt::format("store<{}>({}, base{});", dtype, at, scans[k]));
                  one.line(fmt::format("base{0} = {1}::combine<{2}>(base{0}, sum{3});", scans[k], functor(nest_.body[scans[k]]), dtype, k));
                }
              });
            });
    });
  }

  // ---------------------------------------------------------------------------------------------- tiles
  // What is one behind the other along the last outer loop, not along the vector loop, goes through shared memory in tiles of 32 by 32: read along
  // the one, used along the other. A warp has a row of the tile; the rows are one element longer, so that no two of a column share a bank.
  void tiles() {
    const std::uint32_t v = nest_.vector_loop(), o = v - 1;
    kernel_.line("const int column = threadIdx.x % 32, first_row = threadIdx.x / 32;");
    kernel_.line(fmt::format("const Index across = pieces({}, 32), down = pieces({}, 32), all = {} * across * down;", extent(v), extent(o),
                             product(0, o)));
    for (std::uint32_t access : schedule_.packed)
      kernel_.line(fmt::format("__shared__ {} tile{}[32][33];", type(type_of_access(access)), access));
    block(kernel_, "for (Index work = blockIdx.x; work < all; work += gridDim.x)", [&](Scope& item) {
      item_ = &item;
      item.line("const Index j0 = work % across * 32, o0 = work / across % down * 32;");
      indices(item, 0, o, "work / (across * down)");
      item.line("#pragma unroll");
      block(item, fmt::format("for (int row = first_row; row < 32; row += {})", schedule_.threads / 32), [&](Scope& read) {
        read.line(fmt::format("const Index i{} = o0 + column, j = j0 + row;", o));
        block(read, fmt::format("if (i{} < {} && j < {})", o, extent(o), extent(v)), [&](Scope& there) {
          for (std::uint32_t access : schedule_.packed)
            there.line(
                fmt::format("tile{}[row][column] = load<{}>({});", access, memory_type(type_of_access(access)), address(access, false)));
        });
      });
      item.line("__syncthreads();");
      item.line("#pragma unroll");
      block(item, fmt::format("for (int row = first_row; row < 32; row += {})", schedule_.threads / 32), [&](Scope& step) {
        step_ = &step;
        step.line(fmt::format("const Index i{} = o0 + row, j = j0 + column;", o));
        step.line(fmt::format("const int n = i{} < {} && j < {} ? 1 : 0;", o, extent(o), extent(v)));
        stores(step, 0);
        step_ = nullptr;
      });
      item.line("__syncthreads();");
    });
  }
};

DeviceKernel DeviceProgram::add(const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known) {
  return DeviceEmitter(*this, name, nest, schedule, known).run();
}

}  // namespace onepass::compiler::cuda
