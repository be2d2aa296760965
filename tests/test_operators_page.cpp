// docs/operators.md equals the tables: it is generated from ir/ops.def, tests/op_cases.def and the rows of compiler/functions.cpp.
// ONEPASS_WRITE_DOCS=1 writes the page; otherwise it must be current.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/record.h"
#include "ir/ops.h"
#include "node_text.h"

using namespace onepass;
using namespace onepass::compiler;

namespace {

struct Entry {
  ir::Op op;
  std::string_view meaning, gradient;
};
constexpr Entry kEntries[] = {
#define PRIMITIVE(id, arity, text, types, traits, meaning, llvm, gradient) {ir::Op::id, #meaning, #gradient},
#define EXPANDED(id, arity, text, types, expansion, gradient) {ir::Op::id, "", #gradient},
#include "ir/ops.def"
};

struct Bound {
  ir::Op op;
  double ulp;
};
constexpr Bound kBounds[] = {
#define CASE(id, oracle, range, ulp) {ir::Op::id, ulp},
#include "op_cases.def"
};

std::string types_text(ir::TypeRule rule) {
  switch (rule) {
    case ir::TypeRule::Number: return "numbers of one type; the same";
    case ir::TypeRule::Float: return "floats of one type; the same";
    case ir::TypeRule::Any: return "one type; the same";
    case ir::TypeRule::Compare: return "one type; bool";
    case ir::TypeRule::Predicate: return "a float; bool";
    case ir::TypeRule::Bits: return "integers of one type, or bool; the same";
    case ir::TypeRule::Integer: return "integers of one type; the same";
    case ir::TypeRule::Choose: return "bool and two of one type; that type";
    case ir::TypeRule::Convert: return "any; any";
    case ir::TypeRule::Reinterpret: return "any; any of that size";
    case ir::TypeRule::None: break;
  }
  return "";
}

std::string code(std::string_view text) {  // in a table cell: escapes bars
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '|') out += '\\';
    if (text.substr(at).starts_with("meaning::")) at += 9;
    out += text[at];
  }
  return out.empty() ? out : "`" + out + "`";
}

// Returns the gradient column: `(g, -g)` has one cotangent for each operand, `()` has none.
std::string gradient_text(std::string_view text) {
  text = text.substr(1, text.size() - 2);
  return text.empty() ? "0" : code(text);
}

// Returns the nodes that a call records. x is f32[2, 3], or f32[3] if the function takes only vectors. Other operands are f32[3], indices
// i64[3], and axes 0.
std::string recorded(std::string_view name, std::string_view parameters, std::size_t rank = 2) {
  Recorder recorder;
  std::vector<Argument> arguments;
  for (std::string_view rest = parameters; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view p = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 2);
    if (p.ends_with("...")) return "";  // any number of operands
    if (p.ends_with('=')) break;
    const std::int64_t shape[] = {2, 3};
    Argument a;
    a.kind = Argument::Kind::Value;
    const bool is_index = p == "indices" || p == "labels";
    if (p == "axis") a.value = recorder.literal(std::int64_t{0});
    else
      a.value =
          recorder.input(std::string(p), is_index ? DType::I64 : DType::F32, std::span(shape).subspan(arguments.empty() ? 2 - rank : 1));
    arguments.push_back(a);
  }
  try {
    const std::vector<Value> values = recorder.call(name, arguments, {});
    return values.size() == 1 && !values[0].is_literal ? test::node_text(recorder.graph, values[0].node) : "";
  } catch (const Error& error) {  // it requires vectors, or other arguments than arrays: a shape, an axis
    return rank == 2 && std::string_view(error.what()).find("must be vectors") != std::string_view::npos ? recorded(name, parameters, 1)
                                                                                                         : "";
  }
}

std::string page() {
  std::ostringstream out;
  out << "# Operators\n\nMade by tests/test_operators_page.cpp from ir/ops.def, tests/op_cases.def and compiler/functions.cpp; do not "
         "edit.\n"
         "What each means in words is in docs/language.md.\n\n"
         "## Elementwise, in the table\n\n"
         "Types: the operands', after promotion; the result's. Meaning: C++ on operands `a`, `b`, `c` of type `T`, integers wrapping\n"
         "(ir/meaning.h); an expansion is built from the other operators in ir/expand_*.cpp. Derivative: the cotangents of the operands, "
         "from\n"
         "`g`, that of the result `y`. Error: the worst allowed, in ULP, as tests/test_ops.cpp holds it for f32 and f64; 0 is exact or "
         "correctly\n"
         "rounded.\n\n"
         "| operator | types | meaning | derivative | error |\n|---|---|---|---|---|\n";
  std::set<std::string_view> in_table;
  for (const Entry& entry : kEntries) {
    const ir::OpInfo& info = ir::info(entry.op);
    in_table.insert(info.text);
    double ulp = 0;
    for (const Bound& b : kBounds)
      if (b.op == entry.op) ulp = b.ulp;
    out << "| " << info.text << " | " << types_text(info.types) << " | " << (entry.meaning.empty() ? "expansion" : code(entry.meaning))
        << " | " << gradient_text(entry.gradient) << " | " << ulp << " |\n";
  }
  out << "\n## By name\n\n"
         "What a formula calls, with its parameters (`=`: may be left out), and for what is written in terms of others the recorded form:\n"
         "of `x: f32[2, 3]` (`f32[3]` where only a vector will do), other operands being `f32[3]`, indices `i64[3]`, an axis 0.\n\n"
         "| call | recorded |\n|---|---|\n";
  std::set<std::string_view> seen;
  for (const auto& [name, parameters] : operator_signatures())
    if (seen.insert(name).second)
      out << "| " << code(std::string(name) + "(" + std::string(parameters) + ")") << " | "
          << (in_table.contains(name) ? "" : code(recorded(name, parameters))) << " |\n";
  return out.str();
}

}  // namespace

TEST_CASE("operators page: docs/operators.md is current", "[docs]") {
  const std::string path = ONEPASS_SOURCE_DIR "/docs/operators.md", text = page();
  if (const char* write = std::getenv("ONEPASS_WRITE_DOCS"); write && *write == '1') std::ofstream(path) << text;
  std::ifstream file(path);
  const std::string kept((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  INFO("run tests/test_operators_page with ONEPASS_WRITE_DOCS=1");
  CHECK(kept == text);
}
