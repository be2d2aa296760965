// Random programs and their shrinker. See random_program.h.
#include "random_program.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "onepass/error.h"
#include "onepass/half.h"

namespace onepass::test {
namespace {

using Shape = std::vector<std::int64_t>;

// Uniform integers that are equal on every platform; std::uniform_int_distribution differs between libraries.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t number) : engine_(seed * 0x9e3779b97f4a7c15 + number * 0xd1342543de82ef95 + 1) {
    engine_.discard(4);
  }
  std::uint64_t bits() { return engine_(); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class C> const auto& of(const C& c) { return c[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(c))))]; }

 private:
  std::mt19937_64 engine_;
};

std::int64_t count(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t e : shape) n *= e;
  return n;
}
// Returns the number of elements with zero extents counted as 1, so that arrays combined with an empty array stay small too.
std::int64_t room(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t e : shape) n *= std::max<std::int64_t>(e, 1);
  return n;
}
std::string list(const Shape& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::string filled_in(std::string_view text, std::span<const std::string> operands) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$') out += operands[static_cast<std::size_t>(text[++i] - '0')];
    else out += text[i];
  }
  return out;
}

// Functions of loops with state, and of operators with several results. Each is defined in a program that names it. A later function may
// call an earlier function.
constexpr std::pair<std::string_view, std::string_view> kFunctions[] = {
    {"decay", "fn decay(s, x) { return s*0.5 + x }"},
    {"peak", "fn peak(s, x) { return where(x > s, x, s*0.75) }"},
    {"squash", "fn squash(s, x) { n = tanh(s*x) + s*0.25; return n, n - x*x }"},
    {"squashed", "fn squashed(h, x) { last, ys = scan(squash, h, x); return ys }"},
    {"pair", "fn pair(a, b, x) { n = a*0.5 - b*x; return n, b*0.25 + abs(a), n*b }"},
    {"paired", "fn paired(h, x) { a, b, ys = scan(pair, [h, h*2], x, reverse=true); return ys + a }"},
    {"newton", "fn newton(s) { return s - (s*s - 2)*0.125 }"},
    {"large", "fn large(s) { return abs(s) > 0.01 }"},
    {"half", "fn half(s) { return s*0.5 }"},
    {"weighted", "fn weighted(s, x, w) { return s*w + x }"},
    {"best", "fn best(x) { v, i = topk(x, 2, -1); return v + i }"},
    {"least", "fn least(x) { v, i = topk(x, 1, 0, largest=false); return take_along_axis(x, i, 0) - v * 0.5 }"},
    {"packed", "fn packed(x) { v, n = compress(x > 0, x); return v * n }"},
    {"chosen", "fn chosen(x) { v, n = compress(x[0] > 0.5, x, -1, fill=2); return v + n }"},
    {"bins", "fn bins(x) { n, edges = histogram(x, 4); return n - edges[1:] }"},
    {"grid", "fn grid(x, y) { a, b = meshgrid(x, y); return a - b*2 }"},
};
std::string with_functions(const std::string& text) {
  const auto is_named = [](std::string_view in, std::string_view name) {
    for (std::size_t at = in.find(name); at != std::string_view::npos; at = in.find(name, at + 1)) {
      const std::size_t end = at + name.size();
      const auto is_letter = [&](std::size_t i) { return std::isalnum(static_cast<unsigned char>(in[i])) || in[i] == '_'; };
      if ((at == 0 || !is_letter(at - 1)) && (end == in.size() || !is_letter(end))) return true;
    }
    return false;
  };
  std::string out = text;
  for (std::size_t i = std::size(kFunctions); i-- > 0;)
    if (is_named(out, kFunctions[i].first)) out = fmt::format("{}\n{}", kFunctions[i].second, out);
  return out;
}

struct Type {
  DType dtype;
  Shape shape;
};

// Computes the type of the text's result for operands of these types. Returns false if it is an error.
bool type_of(const std::string& text, const std::vector<Type>& operands, Type& out) {
  try {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < operands.size(); ++i) names.push_back(fmt::format("x{}", i));
    const language::Program program = language::parse(with_functions(filled_in(text, names)));
    std::vector<compiler::FormulaInput> inputs;
    for (const std::string& name : compiler::signature_of(program).inputs) {
      const Type& t = operands[static_cast<std::size_t>(std::stoi(name.substr(1)))];
      inputs.push_back({t.dtype, compiler::Shape(t.shape.begin(), t.shape.end())});
    }
    compiler::Recorder recorder;
    compiler::record_formula(recorder, program, inputs);
    const ir::NodeId node = recorder.graph.outputs.at(0);
    out.dtype = recorder.graph[node].dtype;
    const ir::List shape = recorder.graph.shape(node);
    out.shape.assign(shape.begin(), shape.end());
    return true;
  } catch (const Error&) { return false; }
}

bool type_steps(RandomProgram& program) {
  std::vector<Type> types;
  for (const ProgramInput& input : program.inputs) types.push_back({input.dtype, input.shape});
  for (ProgramStep& step : program.steps) {
    std::vector<Type> operands;
    for (const int o : step.operands) operands.push_back(types[static_cast<std::size_t>(o)]);
    Type type{};
    if (!type_of(step.text, operands, type) || room(type.shape) > 1 << 20) return false;
    step.dtype = type.dtype;
    step.shape = type.shape;
    types.push_back(type);
  }
  return true;
}

bool can_be_recorded(const RandomProgram& program) {
  try {
    const language::Program parsed = language::parse(program.text());
    std::vector<compiler::FormulaInput> inputs;
    for (const std::string& name : compiler::signature_of(parsed).inputs) {
      const auto names = program.names();
      const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      if (at == names.size()) return false;
      const ProgramInput& input = program.inputs[program.used()[at]];
      inputs.push_back({input.dtype, compiler::Shape(input.shape.begin(), input.shape.end())});
    }
    compiler::Recorder recorder;
    compiler::record_formula(recorder, parsed, inputs);
    return !recorder.graph.outputs.empty();
  } catch (const Error&) { return false; }
}

class Drawer {
 public:
  Drawer(std::uint64_t seed, std::uint64_t number) : random_(seed, number) {}

  RandomProgram make() {
    do {
      program_ = {};
      types_.clear();
      draw();
    } while (program_.steps.empty() || !can_be_recorded(program_));
    return std::move(program_);
  }

 private:
  void draw() {
    static constexpr std::int64_t small[] = {1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9};
    static constexpr std::int64_t middle[] = {10, 12, 15, 16, 16, 17, 18, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 70};
    static constexpr std::int64_t large[] = {100, 127, 128, 200, 255, 257, 300, 513, 1000, 1025, 4095, 4097, 5000};
    const int kind = static_cast<int>(random_.below(16));
    most_ = kind == 0 ? 20'000 : 4'096;
    extents_.clear();
    for (std::int64_t i = 1 + random_.below(3); i > 0; --i) extents_.push_back(random_.one_in(3) ? random_.of(middle) : random_.of(small));
    if (kind == 0) extents_.push_back(random_.of(large));
    if (kind == 1) extents_.push_back(0);
    static constexpr DType floats[] = {f32, f32, f32, f32, f64, f16, bf16};
    static constexpr DType others[] = {i32, i64, u8, boolean, i8, i16, u16, u32};
    main_type_ = random_.one_in(6) ? random_.of(others) : random_.of(floats);
    const Values values = random_.one_in(6) ? Values::special : random_.one_in(5) ? Values::small : Values::ordinary;
    for (std::int64_t i = 1 + random_.below(3); i > 0; --i) {
      ProgramInput input;
      input.dtype = random_.one_in(8) ? random_.one_in(2) ? random_.of(floats) : random_.of(others) : main_type_;
      static constexpr int ranks[] = {0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4};
      input.shape = random_shape(random_.of(ranks));
      input.values = values;
      add_input(std::move(input));
    }
    program_.inlined = random_.one_in(2);
    const std::int64_t steps = 1 + random_.below(random_.one_in(10) ? 20 : 6);
    for (std::int64_t i = 0; i < steps; ++i)
      for (int attempt = 0; attempt < 12 && !step(); ++attempt) {}
    // An extra output, in addition to unused values.
    if (random_.one_in(4)) add(random_.one_in(2) ? "$0" : "($0 * 2)", {any()});
  }

  int add_input(ProgramInput input) {
    if (!program_.steps.empty()) {  // inputs are numbered before steps
      const int at = static_cast<int>(program_.inputs.size());
      for (ProgramStep& s : program_.steps)
        for (int& o : s.operands) o += o >= at;
    }
    input.seed = random_.bits();
    if (random_.one_in(8)) {
      static constexpr Layout layouts[] = {Layout::transposed, Layout::stepped, Layout::reversed, Layout::spread};
      input.layout = random_.of(layouts);
    }
    types_.insert(types_.begin() + static_cast<std::ptrdiff_t>(program_.inputs.size()), Type{input.dtype, input.shape});
    program_.inputs.push_back(std::move(input));
    return static_cast<int>(program_.inputs.size()) - 1;
  }

  Shape random_shape(int rank) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(random_.of(extents_));
    while (room(shape) > most_) shape[static_cast<std::size_t>(random_.below(rank))] = 1 + random_.below(4);
    return shape;
  }

  int any() {  // prefers late values, so that programs are deep
    const auto n = static_cast<std::int64_t>(types_.size());
    return static_cast<int>(random_.one_in(2) ? n - 1 - std::min(n - 1, random_.below(3)) : random_.below(n));
  }
  const Type& type(int id) const { return types_[static_cast<std::size_t>(id)]; }
  const Shape& shape(int id) const { return type(id).shape; }
  int rank(int id) const { return static_cast<int>(shape(id).size()); }
  std::int64_t axis_of(int id) { return random_.below(rank(id)) - (random_.one_in(4) ? rank(id) : 0); }

  bool add(std::string text, std::vector<int> operands, bool needs_names = false) {
    std::vector<Type> types;
    for (const int o : operands) types.push_back(type(o));
    Type out{};
    if (!type_of(text, types, out) || room(out.shape) > most_ || out.shape.size() > 6) return false;
    types_.push_back(out);
    program_.steps.push_back({std::move(text), std::move(operands), needs_names, out.dtype, out.shape});
    return true;
  }
  int last() const { return static_cast<int>(types_.size()) - 1; }

  // Returns the axes of a reduction of x as text: one, some or all.
  std::string axes(int x) {
    const int n = rank(x);
    if (n == 0 || random_.one_in(6)) return random_.one_in(2) ? "none" : "axis=none";
    Shape some;
    const bool one = random_.one_in(2);
    if (one) some.push_back(axis_of(x));
    else
      for (int i = 0; i < n; ++i)
        if (random_.one_in(2)) some.push_back(random_.one_in(5) ? i - n : i);
    if (some.size() == 1 && random_.one_in(2)) return fmt::format("{}", some[0]);
    return some.empty() ? "0" : list(some);
  }
  std::string keepdims() { return random_.one_in(3) ? ", keepdims=true" : ""; }

  std::string operation() {
    static constexpr std::string_view usual[] = {"+", "-", "-", "*", "*", "/"};
    return std::string(random_.of(usual));
  }
  // Returns `a op b` as text.
  std::string combine(const std::string& a, const std::string& b) {
    static constexpr std::string_view calls[] = {"maximum",   "minimum", "hypot",     "atan2",    "pow",
                                                 "remainder", "fmod",    "floor_div", "logaddexp"};
    static constexpr std::string_view compares[] = {"<", "<=", ">", ">=", "==", "!="};
    static constexpr std::string_view rarer[] = {"copysign({0}, where(isnan({1}), 1, {1}))",  // a NaN's sign is unspecified
                                                 "logical_xor({0} > 0, {1} > 0)",
                                                 "({0} & {1})",
                                                 "({0} | {1})",
                                                 "({0} ^ {1})",
                                                 "({0} << ({1} & 7))",
                                                 "({0} >> ({1} & 7))"};
    switch (random_.below(13)) {
      case 12: return fmt::format(fmt::runtime(random_.of(rarer)), a, b);
      case 0: return fmt::format("{}({}, {})", random_.of(calls), a, b);
      case 1: return fmt::format("({} {} {})", a, random_.of(compares), b);
      case 2: return fmt::format("where({} {} {}, {}, {})", a, random_.of(compares), b, a, b);
      case 3: return fmt::format("fma({}, {}, {})", a, b, random_.one_in(2) ? a : b);
      case 4: return fmt::format("where({} {} {}, {}, 0)", a, random_.of(compares), b, random_.one_in(2) ? a : b);
      default: return fmt::format("({} {} {})", a, operation(), b);
    }
  }

  // Returns the operand's text with a view: a new axis in front, last or in the middle; transposed; reversed.
  std::string seen(std::string_view operand, int id) {
    const int n = rank(id);
    if (n == 0) return std::string(operand);
    switch (random_.below(n == 1 ? 4 : 7)) {
      case 0: return fmt::format("{}[..., none]", operand);
      case 1: return fmt::format("{}[none]", operand);
      case 2:
        return random_.one_in(2) ? fmt::format("flip({}, {})", operand, axis_of(id))
                                 : fmt::format("roll({}, {}, {})", operand, random_.below(5) - 2, axis_of(id));
      case 3: return n == 1 ? fmt::format("{}[:, none]", operand) : fmt::format("{}[:, none]", operand);
      case 4: return fmt::format("transpose({})", operand);
      case 5: return fmt::format("swap_axes({}, {}, {})", operand, axis_of(id), axis_of(id));
      default: return fmt::format("expand_dims({}, {})", operand, axis_of(id));
    }
  }

  bool step() {
    const int x = any();
    switch (random_.below(32)) {
      case 0:
      case 1: return unary(x);
      case 2:
      case 3:
      case 4: return binary(x);
      case 5:
      case 6:
      case 7: return with_itself(x);
      case 8:
      case 9:
      case 10:
      case 11: return reduction(x);
      case 12:
      case 13: return scan(x);
      case 14:
      case 15:
      case 16:
      case 17: return view(x);
      case 18: return joined(x);
      case 19:
      case 20: return gather(x);
      case 21: return scatter(x) && (!random_.one_in(3) || seen_and_used(last()));
      case 22: return contraction(x);
      case 23: return composite(x);
      case 24: return gradient();
      case 25: return source(x);
      case 26: return merged_scan(x);
      case 27: return reduction_and_back(x);
      case 28: return two_views(x);
      case 29: return loop(x);
      case 30: return written_out(x);
      default: return types(x);
    }
  }

  bool unary(int x) {
    static constexpr std::string_view calls[] = {
        "neg",  "abs",  "square", "sign",     "exp",         "tanh",  "sin",   "cos",   "sigmoid",  "floor", "round",
        "sqrt", "log",  "log1p",  "expm1",    "reciprocal",  "rsqrt", "erf",   "isnan", "isfinite", "atan",  "cbrt",
        "relu", "gelu", "silu",   "softplus", "logical_not", "ceil",  "trunc", "exp2",  "log2",     "asinh", "hardtanh"};
    static constexpr std::string_view texts[] = {"(-$0)",
                                                 "($0 * 2)",
                                                 "($0 + 1)",
                                                 "(1 - $0)",
                                                 "($0**2)",
                                                 "($0 * 0.5)",
                                                 "sqrt(abs($0))",
                                                 "exp(-abs($0))",
                                                 "log1p(abs($0))",
                                                 "clamp($0, 0, 1)",
                                                 "where($0 > 0, $0, 0)",
                                                 "($0 / size($0))",
                                                 "maximum($0, 0.5)",
                                                 "(~($0 > 0))",
                                                 "($0 * $0)",
                                                 "($0 + $0)"};
    static constexpr std::string_view rarer[] = {"tan",        "asin",   "acos",   "sinh",    "cosh",     "acosh",     "atanh",
                                                 "log10",      "isinf",  "lgamma", "digamma", "erfc",     "ndtr",      "elu",
                                                 "celu",       "selu",   "mish",   "relu6",   "softsign", "hardswish", "hardsigmoid",
                                                 "leaky_relu", "erfinv", "ndtri",  "(~",      "popcount", "gelu_tanh", "stop_gradient"};
    if (random_.one_in(5)) {
      const std::string_view call = random_.of(rarer);
      return add(call == "(~" ? "(~$0)" : fmt::format("{}($0)", call), {x});
    }
    return add(random_.one_in(2) ? fmt::format("{}($0)", random_.of(calls)) : std::string(random_.of(texts)), {x});
  }

  bool binary(int x) {
    // another value that may be broadcast with x, perhaps through a view
    for (int i = 0; i < 6; ++i) {
      const int y = any();
      const std::string a = random_.one_in(4) ? seen("$0", x) : "$0", b = random_.one_in(2) ? seen("$1", y) : "$1";
      if (add(combine(a, b), {x, y})) return true;
    }
    return false;
  }

  // Combines a value with a view of itself: differences, outer products, comparisons.
  bool with_itself(int x) {
    if (rank(x) == 0) return false;
    if (random_.one_in(2)) {  // combines a reduction or a scan of x instead
      const bool scanned = random_.one_in(4);
      if (scanned ? scan(x) : reduction(x)) x = last();
      if (rank(x) == 0) return false;
    }
    std::string a = seen("$0", x), b = random_.one_in(3) ? seen("$0", x) : "$0";
    if (random_.one_in(2)) std::swap(a, b);
    if (!add(combine(a, b), {x})) return false;
    if (random_.one_in(3)) reduction(last());
    return true;
  }

  std::string reduced(int x) {
    static constexpr std::string_view usual[] = {"sum", "sum", "sum", "max", "min", "mean"};
    static constexpr std::string_view others[] = {"prod", "any", "all",       "argmax", "argmin",
                                                  "var",  "std", "logsumexp", "norm",   "count_nonzero"};
    return fmt::format("{}($0, {}{})", random_.one_in(3) ? random_.of(others) : random_.of(usual), axes(x), keepdims());
  }
  bool reduction(int x) {
    if (rank(x) == 0) return false;
    if (random_.one_in(5)) {  // reduces an inlined value that only the reduction reads
      static constexpr std::string_view inner[] = {"($0 * $0)", "abs($0)", "exp($0)", "($0 > 0)", "($0 - 1)", "transpose($0)"};
      std::string text = reduced(x);
      const std::string_view in = random_.of(inner);
      text.replace(text.find("$0"), 2, in);
      return add(std::move(text), {x});
    }
    return add(reduced(x), {x});
  }

  // Combines x with its reduction with keepdims, or with a reduction along another axis.
  bool reduction_and_back(int x) {
    if (rank(x) == 0) return false;
    static constexpr std::string_view calls[] = {"sum", "max", "min", "mean", "std", "norm", "logsumexp"};
    const std::string_view call = random_.of(calls);
    const std::string_view op = random_.one_in(2) ? "-" : "/";
    if (random_.one_in(2)) return add(fmt::format("($0 {} {}($0, {}, keepdims=true))", op, call, axes(x)), {x});
    // where the extents agree by chance: the sum over one axis, broadcast along another
    if (!add(fmt::format("{}($0, {})", call, axis_of(x)), {x})) return false;
    const int r = last();
    for (int i = 0; i < 4; ++i)
      if (add(combine("$0", seen("$1", r)), {x, r})) return true;
    return true;
  }

  std::string scanned(int x) {
    static constexpr std::string_view calls[] = {"cumsum", "cumsum", "cumsum", "cumprod", "cummax", "cummin"};
    return fmt::format("{}($0, {}{})", random_.of(calls), axis_of(x), random_.one_in(5) ? ", reverse=true" : "");
  }
  bool scan(int x) { return rank(x) > 0 && add(scanned(x), {x}); }

  // Adds a scan along an axis that merges two axes, or that is split into two axes.
  bool merged_scan(int x) {
    const int n = rank(x);
    if (n == 0) return false;
    const std::int64_t axis = random_.below(n);
    const auto extent = shape(x)[static_cast<std::size_t>(axis)];
    std::string inner;
    switch (random_.below(5)) {
      case 0: inner = fmt::format("repeat($0, {}, {})", 2 + random_.below(4), axis); break;
      case 1: inner = fmt::format("tile($0, {})", list(tiled(n, axis))); break;
      case 2:
        inner = fmt::format("reshape(stack([$0, {}], {}), [-1])", random_.one_in(2) ? "$0 * 2" : "flip($0)", random_.below(n + 1));
        break;
      case 3: inner = random_.one_in(2) ? "reshape($0, [-1])" : "reshape(transpose($0), [-1])"; break;
      default: {
        inner = "$0";
        for (const std::int64_t d : {2, 3, 4, 5})
          if (extent > d && extent % d == 0 && n == 1) inner = fmt::format("reshape($0, [{}, {}])", random_.one_in(2) ? -1 : extent / d, d);
        break;
      }
    }
    if (!add(std::move(inner), {x})) return false;
    return random_.one_in(5) ? reduction(last()) : scan(last());
  }
  Shape tiled(int n, std::int64_t axis) {
    Shape reps(static_cast<std::size_t>(n), 1);
    reps[static_cast<std::size_t>(axis)] = 1 + random_.below(3);
    return reps;
  }

  std::string index(std::int64_t extent) {
    const auto at = [&] { return random_.below(extent + 1) - (random_.one_in(3) ? extent : 0); };
    switch (random_.below(9)) {
      case 0:
      case 1: return ":";
      case 2: return extent > 0 ? fmt::format("{}", random_.below(extent) - (random_.one_in(2) ? extent : 0)) : ":";
      case 3: return fmt::format("{}:", at());
      case 4: return fmt::format(":{}", at());
      case 5: return fmt::format("{}:{}", at(), at());
      case 6: return "::-1";
      case 7: return fmt::format("::{}", 1 + random_.below(3));
      default: return fmt::format("{}::{}", random_.below(2), 1 + random_.below(3));
    }
  }

  bool view(int x) {
    const int n = rank(x);
    const Shape& s = shape(x);
    switch (random_.below(12)) {
      case 0:
        return n >= 2 && add(n == 2 || random_.one_in(2) ? "transpose($0)" : fmt::format("transpose($0, {})", list(permutation(n))), {x});
      case 1: return n >= 2 && add(fmt::format("swap_axes($0, {}, {})", axis_of(x), axis_of(x)), {x});
      case 2:
      case 3: {
        if (n == 0) return add("reshape($0, [1])", {x});
        std::string text;
        for (int i = 0, most = 1 + static_cast<int>(random_.below(n)); i < most; ++i)
          text += (i ? ", " : "") + index(s[static_cast<std::size_t>(i)]) + (random_.one_in(10) ? ", none" : "");
        return add("$0[" + text + "]", {x});
      }
      case 4:
      case 5: return reshape(x);
      case 6: return n > 0 && add(random_.one_in(4) ? "flip($0)" : fmt::format("flip($0, {})", axis_of(x)), {x});
      case 7:
        return n > 0 && add(random_.one_in(2) ? fmt::format("repeat($0, {}, {})", 1 + random_.below(4), axis_of(x))
                                              : fmt::format("tile($0, {})", list(tiled(n, random_.below(n)))),
                            {x});
      case 8:
        return n > 0 && add(random_.one_in(4) ? fmt::format("roll($0, {})", random_.below(9) - 4)
                                              : fmt::format("roll($0, {}, {})", random_.below(9) - 4, axis_of(x)),
                            {x});
      case 9: {
        if (n == 0) return false;
        Shape lo(s.size()), hi(s.size());
        for (std::size_t i = 0; i < s.size(); ++i) lo[i] = random_.below(3), hi[i] = random_.below(3);
        return add(fmt::format("pad($0, {}, {}{})", list(lo), list(hi), random_.one_in(3) ? ", 1" : ""), {x});
      }
      case 10:
        return n >= 2 &&
               add(fmt::format("diagonal($0{})",
                               random_.one_in(2) ? "" : fmt::format(", {}, {}, {}", random_.below(3) - 1, axis_of(x), axis_of(x))),
                   {x});
      default: {
        Shape to = s;
        for (std::int64_t& e : to)
          if (e == 1) e = random_.of(extents_);
        to.insert(to.begin(), random_.of(extents_));
        return add(fmt::format("broadcast_to($0, {})", list(to)), {x});
      }
    }
  }
  Shape permutation(int n) {
    Shape p;
    for (int i = 0; i < n; ++i) p.push_back(i);
    for (int i = n; i > 1; --i) std::swap(p[static_cast<std::size_t>(i - 1)], p[static_cast<std::size_t>(random_.below(i))]);
    return p;
  }
  bool reshape(int x) {
    const Shape& s = shape(x);
    if (random_.one_in(3)) return add("reshape($0, [-1])", {x});
    Shape to;
    if (random_.one_in(2)) {  // neighbors joined, or one axis split
      to = s;
      if (to.size() >= 2 && random_.one_in(2)) {
        const auto at = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(to.size()) - 1));
        to[at] *= to[at + 1];
        to.erase(to.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      } else if (!to.empty()) {
        const auto at = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(to.size())));
        for (const std::int64_t d : {7, 5, 3, 4, 2})
          if (to[at] > d && to[at] % d == 0 && random_.one_in(2)) {
            const bool first = random_.one_in(2);
            to.insert(to.begin() + static_cast<std::ptrdiff_t>(at) + (first ? 0 : 1), d);
            to[at + (first ? 1 : 0)] /= d;
            break;
          }
      }
    } else {  // any other shape
      std::int64_t rest = count(s);
      if (rest == 0) to.assign(s.rbegin(), s.rend());
      while (rest > 1 && to.size() < 4 && !random_.one_in(4)) {
        static constexpr std::int64_t divisors[] = {2, 3, 4, 5, 7, 8, 16};
        const std::int64_t d = random_.of(divisors);
        if (rest % d == 0) to.push_back(d), rest /= d;
      }
      if (rest > 1) to.insert(to.begin() + random_.below(static_cast<std::int64_t>(to.size()) + 1), rest);
    }
    return add(fmt::format("reshape($0, {})", list(to)), {x});
  }

  bool joined(int x) {
    const bool stack = random_.one_in(2);
    if (rank(x) == 0 && !stack) return false;
    const int y = random_.one_in(2) ? x : any();
    const std::int64_t axis = random_.below(rank(x) + (stack ? 1 : 0));
    static constexpr std::string_view other[] = {"$1", "$1 * 2", "flip($1)", "-$1", "cumsum($1, 0)", "$1"};
    std::string text =
        fmt::format("{}([$0, {}{}], {})", stack ? "stack" : "concat", random_.of(other), random_.one_in(4) ? ", $0" : "", axis);
    if (!add(std::move(text), {x, y})) return add(fmt::format("{}([$0, $0 * 2], {})", stack ? "stack" : "concat", axis), {x});
    return true;
  }

  // Adds two views of one value and uses both.
  bool two_views(int x) {
    if (rank(x) == 0) return false;
    if (random_.one_in(3)) {
      const int before = last();
      switch (random_.below(3)) {
        case 0: scatter(x); break;
        case 1: scan(x); break;
        default: unary(x); break;
      }
      if (last() == before) return false;
      x = last();
    }
    bool made = random_.one_in(2) ? view(x) : add("reshape($0, [-1])", {x});
    made |= random_.one_in(2) ? unary(x) : reduction(x);
    if (random_.one_in(2)) made |= view(x);
    return made;
  }

  // Adds a view of a value and another value computed from it.
  bool seen_and_used(int x) {
    const bool is_seen = random_.one_in(2) ? add("reshape($0, [-1])", {x}) : view(x);
    const bool is_used = random_.one_in(2) ? add("($0 * 2)", {x}) : unary(x);
    return is_seen || is_used;
  }

  int indices(Shape s, std::int64_t extent) {
    ProgramInput input;
    static constexpr DType types[] = {i64, i32, i64, u8, i16};
    input.dtype = random_.of(types);
    input.shape = std::move(s);
    input.below = extent;
    return add_input(std::move(input));
  }
  // Adds an operator on x and new indices. The new input precedes all steps, so the numbers of steps increase by one.
  bool add_with_indices(const std::string& text, int x, Shape s, std::int64_t extent, int third = -1) {
    const auto inputs = static_cast<int>(program_.inputs.size());
    // reuses an input of that shape and range, more often than not
    int k = -1;
    for (int i = 0; i < inputs; ++i) {
      const ProgramInput& input = program_.inputs[static_cast<std::size_t>(i)];
      if (input.below == extent && input.shape == s && random_.one_in(2)) k = i;
    }
    if (k >= 0) return add(text, third < 0 ? std::vector{x, k} : std::vector{x, k, third});
    k = indices(std::move(s), extent);
    if (x >= inputs) ++x;
    if (third >= inputs) ++third;
    return add(text, third < 0 ? std::vector{x, k} : std::vector{x, k, third});
  }

  bool gather(int x) {
    const int n = rank(x);
    if (n == 0) return false;
    const std::int64_t axis = random_.below(n), extent = shape(x)[static_cast<std::size_t>(axis)];
    if (extent == 0) return false;
    if (random_.one_in(3)) {  // separate indices for each row; extent 1 selects one element
      Shape s = shape(x);
      s[static_cast<std::size_t>(axis)] = random_.one_in(3) ? 1 : 1 + random_.below(extent + 2);
      for (std::int64_t i = 0; i < n; ++i)
        if (i != axis && random_.one_in(6)) s[static_cast<std::size_t>(i)] = 1;
      return add_with_indices(fmt::format("take_along_axis($0, $1, {})", axis), x, std::move(s), extent);
    }
    if (random_.one_in(6)) return add(fmt::format("take_along_axis($0, argmax($0, {}, keepdims=true), {})", axis, axis), {x});
    if (random_.one_in(5)) {  // indices made of numbers
      const std::int64_t k = random_.below(extent);
      return add(random_.one_in(2) ? fmt::format("take($0, {}, {})", k, axis)
                                   : fmt::format("take($0, full([{}], {}, i64), {})", 1 + random_.below(4), k, axis),
                 {x});
    }
    Shape s;
    switch (random_.below(4)) {
      case 0: break;
      case 1: s = {1}; break;
      case 2: s = {random_.of(extents_)}; break;
      default: s = {1 + random_.below(3), random_.of(extents_)}; break;
    }
    if (!add_with_indices(fmt::format("take($0, $1, {})", axis), x, std::move(s), extent)) return false;
    if (random_.one_in(3)) return reduction(last()) || true;
    return true;
  }

  bool scatter(int x) {
    const int n = rank(x);
    if (n == 0) return false;
    const std::int64_t axis = random_.below(n), extent = shape(x)[static_cast<std::size_t>(axis)];
    if (extent == 0) return false;
    if (random_.one_in(2)) {  // as many indices as updates
      Shape s = shape(x);
      return add_with_indices(
          fmt::format("scatter_add({}, $1, {}, {})", random_.one_in(2) ? "$0" : "($0 * 0)", random_.one_in(2) ? "$0" : "($0 + 1)", axis), x,
          std::move(s), extent);
    }
    if (random_.one_in(2)) {  // writes instead of adding
      static constexpr std::string_view modes[] = {"set", "min", "max"};
      const bool whole = random_.one_in(2);
      Shape s = shape(x);
      return add_with_indices(fmt::format("{}($0 * 2, $1, {}, {}, \"{}\")", whole ? "index_update" : "scatter",
                                          random_.one_in(2) ? "$0" : "($0 + 1)", axis, random_.of(modes)),
                              x, whole ? Shape{extent} : std::move(s), extent);
    }
    return add_with_indices(
        fmt::format("index_add({}, $1, {}, {})", random_.one_in(2) ? "$0" : "($0 * 0)", random_.one_in(2) ? "$0" : "($0 * 2)", axis), x,
        {extent}, extent);
  }

  bool contraction(int x) {
    const int y = random_.one_in(3) ? x : any();
    if (rank(x) == 0 || rank(y) == 0) return false;
    static constexpr std::string_view texts[] = {
        "($0 @ $1)",
        "($0 @ transpose($1))",
        "(transpose($0) @ $1)",
        "dot($0, $1)",
        "outer($0, $1)",
        "einsum(\"ij,ij->i\", $0, $1)",
        "einsum(\"ij,jk->ik\", $0, $1)",
        "einsum(\"ij,kj->ik\", $0, $1)",
        "einsum(\"i,j->ij\", $0, $1)",
        "einsum(\"ij,j\", $0, $1)",
        "einsum(\"bij,bjk->bik\", $0, $1)",
        "einsum(\"bij,bkj->ik\", $0, $1)",
        "einsum(\"bij,bjk->ik\", $0, $1)",
        "einsum(\"bij,jbk->ki\", $0, $1 - 1)",
        "einsum(\"...i,...i->...\", $0, $1)",
        "einsum(\"ij,ij->ji\", $0, $1)",
        "einsum(\"ii\", $0 * $1)",
        "einsum(\"ij,ik->jk\", $0, $1)",
        "einsum(\"ij,ij->i\", broadcast_to(sum($0, 1, true), $0.shape), broadcast_to(sum($1, 1, true), $1.shape))",
        "(ones($0.shape) @ broadcast_to(sum($1, 0, true), $1.shape))",
        "(($0 * 2) @ $1 * sum($0, 1, true))",
        "(($0 + 1) @ transpose($1) - $0[:, 0][:, none])",
        "(transpose($0 - 1) @ $1 / (max($0, 0) * max($0, 0) + 1)[:, none])"};
    for (int i = 0; i < 4; ++i)
      if (add(std::string(random_.of(texts)), {x, y})) return true;
    return false;
  }

  bool composite(int x) {
    if (rank(x) == 0) return false;
    const std::int64_t axis = axis_of(x);
    switch (random_.below(17)) {
      case 14:
      case 15: return rarer(x);
      case 16: return as_bits(x);
      case 10: return sorted(x);
      case 13: return written(x);
      case 11:
      case 12: return windowed(x);
      case 7: return banded(x);
      case 8: return statistic(x);
      case 9: return padded(x);
      case 0: return add(fmt::format("softmax($0, {})", axis), {x});
      case 1: return add(fmt::format("log_softmax($0, {})", axis), {x});
      case 2: return add(fmt::format("layer_norm($0, axis={})", axis), {x});
      case 3: return add(fmt::format("rms_norm($0, axis={})", axis), {x});
      case 4: return add("mse($0, flip($0))", {x});
      case 5: return add(fmt::format("(iota($0.shape, {}) < {})", axis, random_.below(9)), {x});
      default: return add(fmt::format("where(iota($0.shape, {}) <= {}, $0, 0)", axis, random_.below(9)), {x});
    }
  }

  // Adds a band matrix operator, or combines x with an array made of numbers.
  bool banded(int x) {
    const std::int64_t k = random_.below(5) - 2;
    static constexpr std::string_view texts[] = {"tril($0, {})",
                                                 "triu($0, {})",
                                                 "diag($0, {})",
                                                 "trace($0, {})",
                                                 "($0 + eye($0.shape[-2], $0.shape[-1], {}))",
                                                 "($0 * tri($0.shape[-2], $0.shape[-1], {}))",
                                                 "($0 * arange($0.shape[-1] + {}, {})[..., :$0.shape[-1]])",
                                                 "($0 + linspace({}, 3, $0.shape[-1]))",
                                                 "($0 * linspace(0, {}, $0.shape[-1], endpoint=false, dtype=f64))"};
    return add(fmt::format(fmt::runtime(random_.of(texts)), k, k), {x});
  }
  bool statistic(int x) {
    const std::int64_t axis = axis_of(x);
    const std::string nan = random_.one_in(2) ? "$0" : "where($0 > 0.25, nan, $0)";
    static constexpr std::string_view sums[] = {"nansum", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd", "nanprod"};
    static constexpr std::string_view texts[] = {"diff($0, 1, {})",        "diff($0, 2, {})",
                                                 "gradient($0, axis={})",  "gradient($0, 0.5, axis={}, edge_order=2)",
                                                 "trapezoid($0, axis={})", "average($0, {}, weights=$0*$0 + 1)",
                                                 "cov($0[..., :{}])",      "cov($0, ddof={})",
                                                 "average($0, {})"};
    if (random_.one_in(3)) return add(fmt::format("{}({}, {}{})", random_.of(sums), nan, axes(x), keepdims()), {x});
    return add(fmt::format(fmt::runtime(random_.of(texts)), axis), {x});
  }
  bool sorted(int x) {
    const std::int64_t axis = axis_of(x);
    static constexpr std::string_view texts[] = {"sort($0, {})",
                                                 "sort($0, {}, descending=true)",
                                                 "argsort($0, {})",
                                                 "median($0, {})",
                                                 "nanmedian(where($0 > 0.5, nan, $0), {}, true)",
                                                 "quantile($0, 0.3, {})",
                                                 "quantile($0, [0.25, 0.75][0:1], {})",
                                                 "take_along_axis($0, argsort($0, {}), 0)",
                                                 "sum(sort($0, {}), 0)"};
    if (random_.one_in(8)) return add("searchsorted(sort(reshape($0, [-1])), $0)", {x});
    return add(fmt::format(fmt::runtime(random_.of(texts)), axis), {x});
  }
  // A host loop that writes single elements, and some ranges.
  bool many_written(int x) {
    const Shape of = shape(x);
    if (of.empty() || ir::element_count(of) == 0) return false;
    const auto place = [&](bool has_ranges) {
      std::string at;
      for (const std::int64_t n : of) {
        const std::int64_t index = random_.below(n);
        at += at.empty() ? "" : ", ";
        if (has_ranges && random_.one_in(3)) at += random_.one_in(3) ? ":" : fmt::format("{}:", index);
        else at += fmt::format("{}", random_.one_in(4) ? index - n : index);
      }
      return at;
    };
    std::string text = random_.one_in(3) ? "($0*0 + 2)" : random_.one_in(2) ? "where($0 > 0, 1, $0)" : "$0";
    const std::int64_t all = 6 + random_.below(12);
    for (std::int64_t k = 0; k < all; ++k)
      text = fmt::format("put({}, [{}], {})", text, place(random_.one_in(4)),
                         random_.one_in(3) ? fmt::format("{}", k) : fmt::format("$0[{}]", place(false)));
    return add(text, {x});
  }
  bool written(int x) {
    if (random_.one_in(4)) return many_written(x);
    static constexpr std::string_view texts[] = {"put($0, [{}:], 2)",
                                                 "put($0, [..., ::2], $0[..., :1], \"add\")",
                                                 "put($0, [...], 1 - $0, \"max\")",
                                                 "put(exp($0), [-1], $0[0], \"min\")",
                                                 "put($0, [::-2], 3, \"mul\")",
                                                 "masked_fill($0, $0 > 0.5, {})"};
    return add(fmt::format(fmt::runtime(random_.of(texts)), random_.below(3)), {x});
  }
  bool rarer(int x) {
    static constexpr std::string_view texts[] = {"best($0)",
                                                 "least($0)",
                                                 "packed($0)",
                                                 "chosen($0)",
                                                 "bins($0)",
                                                 "grid($0[..., 0], reshape($0, [-1])[:9])",
                                                 "bincount($0 & 7, 8)",
                                                 "bincount(cast($0 > 0, i64), 3, weights=$0)",
                                                 "batch_norm($0, $0[0], $0[-1]*$0[-1] + 1, axis={})",
                                                 "cross_entropy($0, argmax($0, {0}), {0})",
                                                 "corrcoef($0)",
                                                 "squeeze($0[none] * 2, 0)",
                                                 "squeeze($0)",
                                                 "nanquantile($0, 0.6, {})",
                                                 "quantile($0, [0.25, 1], {}, true)",
                                                 "einsum(\"...ij->...ji\", $0)",
                                                 "einsum(\"i...->...\", $0 * 2)",
                                                 "einsum(\"...i,...j\", $0, flip($0))",
                                                 "histogram($0, [0, 0.5, 2])[0]",
                                                 "sort(argsort($0, {0}) * 2, {0})"};
    return add(fmt::format(fmt::runtime(random_.of(texts)), axis_of(x)), {x});
  }
  // Reinterprets the bits of x, without NaN: a NaN's bits are unspecified.
  bool as_bits(int x) {
    static constexpr std::string_view names[] = {"i32", "u32", "f32", "i64", "f64", "u16", "i16", "f16", "bf16", "i8", "u8"};
    const std::string_view value = is_float(type(x).dtype) ? "where(isnan($0), 0, $0)" : "$0";
    for (int i = 0; i < 6; ++i)
      if (add(fmt::format("bitcast({}, {})", value, random_.of(names)), {x})) return true;
    return add(fmt::format("signbit({})", value), {x});
  }
  bool windowed(int x) {
    const std::int64_t axis = axis_of(x), width = 1 + random_.below(4);
    static constexpr std::string_view texts[] = {"sliding_window($0, {}, {})",
                                                 "sum(sliding_window($0, {}, {}), -1)",
                                                 "mean(sliding_window($0, {}, {}, step=2), -1)",
                                                 "max(sliding_window(exp($0), {}, {}), -1)",
                                                 "sum(sliding_window($0, {}, {}, spacing=2), 0)",
                                                 "sliding_window($0 * 2, {}, {})[..., 0]",
                                                 "correlate($0, full([{}], 0.5), \"same\", {})",
                                                 "convolve($0, full([{}], 2), \"full\", {})"};
    return add(fmt::format(fmt::runtime(random_.of(texts)), width, axis), {x});
  }
  bool padded(int x) {
    static constexpr std::string_view modes[] = {"edge", "reflect", "symmetric", "wrap"};
    Shape low, high;
    for (int i = 0; i < rank(x); ++i)
      low.push_back(random_.below(4)), high.push_back(random_.one_in(4) ? random_.below(12) : random_.below(2));
    return add(fmt::format("pad($0, {}, {}, mode=\"{}\")", list(low), list(high), random_.of(modes)), {x});
  }

  bool gradient() {
    // gradient of a value with respect to a value that it depends on
    const auto inputs = static_cast<int>(program_.inputs.size());
    if (last() < inputs) return false;
    const int y = static_cast<int>(inputs + random_.below(last() - inputs + 1));
    std::vector<int> from{y};
    for (std::size_t i = 0; i < from.size(); ++i)
      if (from[i] >= inputs)
        for (const int o : program_.steps[static_cast<std::size_t>(from[i] - inputs)].operands)
          if (std::find(from.begin(), from.end(), o) == from.end()) from.push_back(o);
    const int by = from[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(from.size())))];
    if (!is_float(type(y).dtype) || !is_float(type(by).dtype)) return false;
    static constexpr std::string_view losses[] = {"sum($0)", "sum($0*$0)", "mean($0)", "sum($0 * cos($0))"};
    if (random_.one_in(4)) return add("vjp($0, [$1], $0*0.5 + 1)", {y, by}, true);
    return add(fmt::format("grad({}, [$1])", rank(y) == 0 ? "$0" : random_.of(losses)), {y, by}, true);
  }

  // Adds a loop with state along the first axis, or of a number of steps: of 64 steps or more it may become one node.
  bool loop(int x) {
    static constexpr std::string_view along[] = {"fold(decay, $0[0], $0)",       "fold(peak, $0[0]*2, $0, reverse=true)",
                                                 "squashed($0[0], $0)",          "paired($0[-1]*0.5, $0)",
                                                 "squashed($0[0, 0], $0[:, 0])", "fold(weighted, $0[0], $0, w=$0[-1]*0.25)"};
    static constexpr std::string_view alone[] = {"iterate(newton, $0, {})", "while_loop(large, half, $0, {})"};
    static constexpr int steps[] = {4, 64, 70, 90};
    if (rank(x) > 0 && random_.below(3)) return add(std::string(random_.of(along)), {x});
    const std::string_view text = random_.of(alone);
    return add(fmt::format("{}{}{}", text.substr(0, text.size() - 3), random_.of(steps), ")"), {x});
  }

  // Adds the steps of a host loop. Its first step may read another type than the later ones.
  bool written_out(int x) {
    static constexpr std::string_view texts[] = {"($0*0.5 + abs($1))",
                                                 "($0*0.5 - where(abs($0) > $1, $2, 0)*0.25)",
                                                 "(where($0 < $1, 2, 0) + $0*0.5)",
                                                 "cast(cast($0, f64)*0.75, i32)",
                                                 "(cast($0, f32)*0.75 + cast(abs($0), f32))",
                                                 "cast(abs($0) + 3 - where($0 == $2, 1, 0), i64)",
                                                 "-(where($1 <= $0, -1, 3))/(abs($0) + 1)",
                                                 "(cast(cast($0, i64) // 2, f32) + cast($0 != $1, f32))"};
    static constexpr int counts[] = {3, 17, 24, 40};
    const std::string_view text = random_.of(texts);
    const int y = random_.one_in(2) ? x : any(), count = random_.of(counts);
    int previous = any();
    for (int i = 0; i < count; ++i) {
      if (!add(std::string(text), {previous, x, y})) return i > 0;
      previous = last();
    }
    return true;
  }

  bool source(int x) {
    static constexpr std::string_view texts[] = {"iota($0.shape, 0)",    "ones($0.shape)",      "full($0.shape, 2)",
                                                 "uniform(3, $0.shape)", "normal(5, $0.shape)", "zeros($0.shape, f64)"};
    const std::string text(random_.of(texts));
    return add(random_.one_in(2) ? fmt::format("($0 * {})", text) : fmt::format("($0 + {})", text), {x});
  }

  bool types(int x) {
    static constexpr std::string_view names[] = {"f32", "f64", "i32", "i64", "u8", "bool", "f16", "bf16", "i8", "u16"};
    switch (random_.below(5)) {
      case 0: return add("($0 & 3)", {x}) || add("($0 > 0)", {x});
      case 1: return add("($0 << 1)", {x}) || add("($0 <= 0.5)", {x});
      case 2: return add("($0 // 3)", {x});
      case 3: return add("($0 % 3)", {x});
      default: return add(fmt::format("cast($0, {})", random_.of(names)), {x});
    }
  }

  Random random_;
  RandomProgram program_;
  std::vector<Type> types_;  // types of inputs, then of steps
  std::vector<std::int64_t> extents_;
  std::int64_t most_ = 4'096;
  DType main_type_ = f32;
};

std::string input_name(std::size_t i) { return i < 4 ? std::string(1, static_cast<char>('a' + i)) : fmt::format("k{}", i); }

}  // namespace

RandomProgram random_program(std::uint64_t seed, std::uint64_t number) { return Drawer(seed, number).make(); }

std::string RandomProgram::text() const {
  std::vector<int> uses(inputs.size() + steps.size());
  std::vector<bool> is_named(uses.size());
  for (const ProgramStep& s : steps)
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      const auto o = static_cast<std::size_t>(s.operands[k]);
      const std::string mark = fmt::format("${}", k);
      for (std::size_t at = s.text.find(mark); at != std::string::npos; at = s.text.find(mark, at + 1)) ++uses[o];
      if (s.needs_names) is_named[o] = true;
    }
  std::vector<std::string> named;  // each value's text at its uses
  for (std::size_t i = 0; i < inputs.size(); ++i) named.push_back(input_name(i));
  std::string out;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const ProgramStep& s = steps[i];
    std::vector<std::string> operands;
    for (const int o : s.operands) operands.push_back(named[static_cast<std::size_t>(o)]);
    std::string text = filled_in(s.text, operands);
    const std::size_t id = inputs.size() + i;
    if (inlined && uses[id] == 1 && !is_named[id] && s.text.size() > 2 && text.size() < 400) {
      named.push_back(std::move(text));
      continue;
    }
    named.push_back(fmt::format("v{}", i));
    out += fmt::format("{}v{} = {}", out.empty() ? "" : "; ", i, text);
  }
  return with_functions(out);
}

std::vector<std::size_t> RandomProgram::used() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bool is_used = false;
    for (const ProgramStep& s : steps)
      for (std::size_t k = 0; k < s.operands.size(); ++k)
        is_used |= s.operands[k] == static_cast<int>(i) && s.text.find(fmt::format("${}", k)) != std::string::npos;
    if (is_used) out.push_back(i);
  }
  return out;
}
std::vector<std::string> RandomProgram::names() const {
  std::vector<std::string> out;
  for (const std::size_t i : used()) out.push_back(input_name(i));
  return out;
}
std::string RandomProgram::shapes() const {
  static constexpr std::string_view layouts[] = {"", " (transposed)", " (every second)", " (reversed)", " (spread)"};
  std::string out;
  for (const std::size_t i : used()) {
    const ProgramInput& in = inputs[i];
    out += fmt::format("{}{}={}{}{}{}", out.empty() ? "" : "  ", input_name(i), name_of(in.dtype), list(in.shape),
                       layouts[static_cast<int>(in.layout)], in.below > 0 ? fmt::format(" (indices below {})", in.below) : "");
  }
  return out;
}

bool change_extents(RandomProgram& program, const std::function<std::int64_t(std::int64_t)>& extent, bool in_texts) {
  RandomProgram other = program;
  for (ProgramInput& input : other.inputs) {
    for (std::int64_t& e : input.shape) e = extent(e);
    if (input.below > 0) input.below = std::max<std::int64_t>(1, std::min(input.below, extent(input.below)));
  }
  if (in_texts)
    for (ProgramStep& step : other.steps) {
      std::string text;
      for (std::size_t i = 0; i < step.text.size();) {
        const auto is_digit = [&](std::size_t at) { return at < step.text.size() && step.text[at] >= '0' && step.text[at] <= '9'; };
        if (is_digit(i) && (i == 0 || (step.text[i - 1] != '$' && step.text[i - 1] != '.' &&
                                       !std::isalpha(static_cast<unsigned char>(step.text[i - 1]))))) {
          std::size_t end = i;
          while (is_digit(end)) ++end;
          const std::int64_t n = std::stoll(step.text.substr(i, end - i));
          text += fmt::format("{}", n > 1 ? extent(n) : n);
          i = end;
        } else {
          text += step.text[i++];
        }
      }
      step.text = std::move(text);
    }
  if (!type_steps(other) || !can_be_recorded(other)) return false;
  program = std::move(other);
  return true;
}

Array make_input(const ProgramInput& input) {
  Random random(input.seed, 7);
  const std::size_t size = size_of(input.dtype), rank = input.shape.size();
  // Computes strides, memory size and offset of the first element.
  Shape strides(rank);
  std::int64_t step = 1, offset = 0;
  const bool empty = count(input.shape) == 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t axis = input.layout == Layout::transposed ? i : rank - 1 - i;
    const std::int64_t extent = empty ? 1 : input.shape[axis], factor = input.layout == Layout::stepped && i == 0 ? 2 : 1;
    if (input.layout == Layout::spread && axis == 0) continue;
    strides[axis] = step * factor;
    step *= extent * factor;
    if (input.layout == Layout::reversed) offset += (extent - 1) * strides[axis], strides[axis] *= -1;
  }
  const Array memory = Array::empty({step}, input.dtype);
  auto* const bytes = static_cast<std::byte*>(memory.mutable_data());
  for (std::int64_t i = 0; i < step; ++i) {
    std::uint64_t bits = 0;
    const auto real = [&](double v) {
      if (input.dtype == f32) {
        const auto f = static_cast<float>(v);
        std::memcpy(&bits, &f, 4);
      } else if (input.dtype == f64) {
        std::memcpy(&bits, &v, 8);
      } else if (input.dtype == f16) {
        const Half h(static_cast<float>(v));
        std::memcpy(&bits, &h, 2);
      } else {
        const BFloat16 h(static_cast<float>(v));
        std::memcpy(&bits, &h, 2);
      }
    };
    if (input.below > 0) {
      const std::int64_t k = random.below(input.below);
      bits = static_cast<std::uint64_t>(
          is_signed_integer(input.dtype) && random.one_in(3) ? k - input.below : std::min<std::int64_t>(k, size == 1 ? 127 : k));
    } else if (input.dtype == boolean) {
      bits = input.values == Values::special ? random.bits() & 0xff : random.bits() & 1;  // any byte but 0 is true
    } else if (input.values == Values::counted) {
      if (is_float(input.dtype)) real(static_cast<double>(i + 1));
      else bits = static_cast<std::uint64_t>(i + 1);
    } else if (is_float(input.dtype)) {
      if (input.values == Values::special && random.one_in(6)) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        static constexpr double specials[] = {0.0,   -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 1e-40, 3e38,
                                              -3e38, 1,    -1,       65504};
        real(random.of(specials));
      } else if (input.values == Values::small || (input.values == Values::special && random.one_in(2))) {
        real(static_cast<double>(random.below(9) - 4) / (random.one_in(4) ? 2 : 1));
      } else {
        real(static_cast<double>(random.below(1 << 22)) / (1 << 20) - 2);
      }
    } else {
      bits = input.values == Values::special && random.one_in(4)
                 ? random.bits()
                 : static_cast<std::uint64_t>(random.below(41) - (is_signed_integer(input.dtype) ? 20 : 0));
    }
    std::memcpy(bytes + static_cast<std::size_t>(i) * size, &bits, size);  // all supported machines are little-endian
  }
  if (input.layout == Layout::contiguous) return Array::wrap_pointer(bytes, input.dtype, input.shape, strides, false, memory);
  return Array::wrap_pointer(bytes + static_cast<std::size_t>(offset) * size, input.dtype, input.shape, strides,
                             input.layout == Layout::spread, memory);
}

namespace {

// Removes unneeded inputs and steps. `keep` has the steps that are outputs.
RandomProgram with_outputs(const RandomProgram& program, const std::vector<std::size_t>& keep) {
  std::vector<bool> needed(program.inputs.size() + program.steps.size());
  for (const std::size_t k : keep) needed[k] = true;
  for (std::size_t i = program.steps.size(); i-- > 0;)
    if (needed[program.inputs.size() + i])
      for (const int o : program.steps[i].operands) needed[static_cast<std::size_t>(o)] = true;
  RandomProgram out;
  out.inlined = program.inlined;
  std::vector<int> now(needed.size(), -1);
  int next = 0;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    now[i] = next++;
    if (i < program.inputs.size()) {
      out.inputs.push_back(program.inputs[i]);
      continue;
    }
    ProgramStep step = program.steps[i - program.inputs.size()];
    for (int& o : step.operands) o = now[static_cast<std::size_t>(o)];
    out.steps.push_back(std::move(step));
  }
  return out;
}

std::vector<std::size_t> outputs_of(const RandomProgram& program) {
  std::vector<bool> used(program.inputs.size() + program.steps.size());
  for (const ProgramStep& s : program.steps)
    for (const int o : s.operands) used[static_cast<std::size_t>(o)] = true;
  std::vector<std::size_t> out;
  for (std::size_t i = program.inputs.size(); i < used.size(); ++i)
    if (!used[i]) out.push_back(i);
  return out;
}

double weight(const RandomProgram& program) {
  double w = 0;
  for (const ProgramStep& s : program.steps)
    w += 1000 + static_cast<double>(s.text.size()) + static_cast<double>(count(s.shape)) / 1e3 + static_cast<double>(s.shape.size());
  for (const ProgramInput& i : program.inputs)
    w += 100 + static_cast<double>(count(i.shape)) / 1e2 + static_cast<double>(i.shape.size()) + (i.layout != Layout::contiguous) +
         (i.dtype != f32 && i.below == 0) +
         (i.values == Values::counted   ? 0
          : i.values == Values::special ? 2
                                        : 1);
  return w;
}

}  // namespace

RandomProgram shrink(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails, int budget) {
  const auto still_fails = [&](RandomProgram candidate) {
    if (budget <= 0 || candidate.steps.empty() || !type_steps(candidate) || weight(candidate) >= weight(program) ||
        !can_be_recorded(candidate))
      return false;
    --budget;
    if (!fails(candidate)) return false;
    program = std::move(candidate);
    return true;
  };
  for (bool progress = true; progress && budget > 0;) {
    progress = false;
    for (const std::size_t o : outputs_of(program))
      if (outputs_of(program).size() > 1 && still_fails(with_outputs(program, {o}))) {
        progress = true;
        break;
      }
    for (std::size_t i = 0; i < outputs_of(program).size(); ++i) {
      std::vector<std::size_t> less = outputs_of(program);
      if (less.size() < 2) break;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      if (still_fails(with_outputs(program, less))) progress = true, --i;
    }
    // an output moves to one of its operands
    for (std::size_t i = 0; i < outputs_of(program).size(); ++i) {
      std::vector<std::size_t> other = outputs_of(program);
      const std::vector<int> operands = program.steps[other[i] - program.inputs.size()].operands;
      for (const int o : operands) {
        if (o < static_cast<int>(program.inputs.size())) continue;
        other[i] = static_cast<std::size_t>(o);
        if (still_fails(with_outputs(program, other))) {
          progress = true;
          break;
        }
      }
    }
    // a step becomes an operand of its type, or an input
    for (std::size_t s = program.steps.size(); s-- > 0;) {
      if (s >= program.steps.size()) continue;
      const ProgramStep step = program.steps[s];
      const int id = static_cast<int>(program.inputs.size() + s);
      bool replaced = false;
      const auto output_ids = outputs_of(program);
      if (std::find(output_ids.begin(), output_ids.end(), static_cast<std::size_t>(id)) != output_ids.end()) continue;
      const auto with = [&](RandomProgram other, int by) {
        for (ProgramStep& t : other.steps)
          for (int& o : t.operands)
            if (o == id + (other.inputs.size() > program.inputs.size() ? 1 : 0)) o = by;
        std::vector<std::size_t> keep = outputs_of(program);
        if (other.inputs.size() > program.inputs.size())
          for (std::size_t& k : keep) ++k;
        return with_outputs(other, keep);
      };
      for (const int o : step.operands) {
        const auto at = static_cast<std::size_t>(o);
        const bool is_input = at < program.inputs.size();
        const DType dtype = is_input ? program.inputs[at].dtype : program.steps[at - program.inputs.size()].dtype;
        const Shape& shape = is_input ? program.inputs[at].shape : program.steps[at - program.inputs.size()].shape;
        if (dtype == step.dtype && shape == step.shape && still_fails(with(program, o))) {
          replaced = true;
          break;
        }
      }
      if (!replaced) {
        RandomProgram other = program;
        for (ProgramStep& t : other.steps)
          for (int& o : t.operands) o += o >= static_cast<int>(program.inputs.size());
        ProgramInput input;
        input.dtype = step.dtype;
        input.shape = step.shape;
        input.seed = s + 1;
        other.inputs.push_back(input);
        replaced = still_fails(with(other, static_cast<int>(program.inputs.size())));
      }
      progress |= replaced;
    }
    // simpler inputs
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      RandomProgram other = program;
      other.inputs[i].layout = Layout::contiguous;
      progress |= still_fails(other);
      other = program;
      if (program.inputs[i].below == 0) other.inputs[i].values = Values::counted;
      progress |= still_fails(other);
      other = program;
      if (other.inputs[i].values == Values::special) other.inputs[i].values = Values::ordinary;
      progress |= still_fails(other);
      other = program;
      if (program.inputs[i].below == 0) other.inputs[i].dtype = f32;
      progress |= still_fails(other);
    }
    // smaller extents: all occurrences of an extent change at once, only in the inputs or also in the texts
    std::vector<std::int64_t> extents;
    for (const ProgramInput& input : program.inputs)
      for (const std::int64_t e : input.shape)
        if (e > 1 && std::find(extents.begin(), extents.end(), e) == extents.end()) extents.push_back(e);
    for (const std::int64_t e : extents)
      for (const std::int64_t to : {std::int64_t{1}, std::int64_t{2}, e / 2, e - 1}) {
        if (to < 1 || to >= e) continue;
        bool smaller = false;
        for (const bool in_texts : {false, true}) {
          RandomProgram other = program;
          if (!smaller && change_extents(
                              other, [&](std::int64_t n) { return n == e ? to : n; }, in_texts))
            smaller = still_fails(other);
        }
        if (smaller) {
          progress = true;
          break;
        }
      }
  }
  RandomProgram inlined = program;
  inlined.inlined = true;
  return fails(inlined) ? inlined : program;
}

}  // namespace onepass::test
