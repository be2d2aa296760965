// Graph, printed form, verifier.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "ir/build.h"
#include "ir/graph.h"
#include "ir/verify.h"
#include "onepass/error.h"

using namespace onepass;
using namespace onepass::ir;
using Catch::Matchers::Contains;

namespace {

// True if the graphs are equal, except for ids of interned lists and source lines.
bool same(const Graph& a, const Graph& b) {
  const auto same_list = [](List x, List y) { return std::ranges::equal(x, y); };
  if (a.size() != b.size() || a.outputs != b.outputs || a.output_names != b.output_names) return false;
  if (a.inputs.size() != b.inputs.size() || a.slots.size() != b.slots.size()) return false;
  for (NodeId id = 0; id < a.size(); ++id) {
    const Node x = a[id], y = b[id];
    if (x.op != y.op || x.dtype != y.dtype || x.bits != y.bits || !same_list(a.shape(id), b.shape(id)) ||
        !same_list(a.operands(id), b.operands(id)) || !same_list(a.attributes(id), b.attributes(id)))
      return false;
  }
  for (std::size_t i = 0; i < a.inputs.size(); ++i)
    if (a.inputs[i].name != b.inputs[i].name || a.inputs[i].dtype != b.inputs[i].dtype || a.inputs[i].node != b.inputs[i].node ||
        !same_list(a.list(a.inputs[i].shape), b.list(b.inputs[i].shape)))
      return false;
  for (std::size_t i = 0; i < a.slots.size(); ++i)
    if (a.slots[i].dtype != b.slots[i].dtype || a.slots[i].bits != b.slots[i].bits) return false;
  return true;
}

std::string error_of(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const ValueError& e) { return e.what(); }
  return "no error";
}

std::string verify_error(const Graph& graph) {
  try {
    verify(graph, "simplify");
  } catch (const InternalError& e) { return e.what(); }
  return "no error";
}

constexpr const char* kAffine = R"(
    %0 = input x : f32[32, 64]
    %1 = input w : f32[1, 64]
    %2 = broadcast %1 : f32[32, 64]
    %3 = mul %0, %2 : f32[32, 64]
    %4 = exp %3 : f32[32, 64]
    %5 = reduce_sum %4 {1} : f32[32]
    return y = %4, total = %5)";

}  // namespace

TEST_CASE("graph: equal nodes share an id, and different nodes do not", "[graph]") {
  Graph g;
  const NodeId x = g.add_input("x", f32, std::vector<std::int64_t>{4}), y = g.add_input("y", f32, std::vector<std::int64_t>{4});
  const ListId shape = g[x].shape;
  const NodeId sum = g.add(Op::Add, f32, shape, {x, y});
  CHECK(g.add(Op::Add, f32, shape, {x, y}) == sum);
  CHECK(g.add(Op::Add, f32, shape, {y, x}) != sum);
  CHECK(g.add(Op::Sub, f32, shape, {x, y}) != sum);
  CHECK(x != y);
  CHECK(g.constant(f32, shape, bits_of(f32, 0.0)) != g.constant(f32, shape, bits_of(f32, -0.0)));
  CHECK(g.constant(f32, shape, 0x7fc00000) == g.constant(f32, shape, 0x7fc00000));
  CHECK(g.constant(f32, shape, 0x7fc00000) != g.constant(f32, shape, 0x7fc00001));
  CHECK(g.constant(f32, shape, 0) != g.constant(i32, shape, 0));
  CHECK(g.constant(f32, shape, 0) != g.constant(f32, g.intern({5}), 0));
}

TEST_CASE("graph: hash-consing survives growth, and copies are independent", "[graph]") {
  Graph g;
  const NodeId x = g.add_input("x", i64, {});
  const ListId scalar = g[x].shape;
  std::vector<NodeId> ids;
  for (std::uint64_t i = 0; i < 5000; ++i) ids.push_back(g.constant(i64, scalar, i));
  for (std::uint64_t i = 0; i < 5000; ++i) REQUIRE(g.constant(i64, scalar, i) == ids[i]);
  CHECK(g.size() == 5001);

  Graph copy = g;
  const ListId there = copy.intern({7, 7, 7}), here = g.intern({8, 8});
  CHECK(std::ranges::equal(copy.list(there), std::vector<std::int64_t>{7, 7, 7}));
  CHECK(std::ranges::equal(g.list(here), std::vector<std::int64_t>{8, 8}));
  copy.constant(i64, scalar, 999999);
  CHECK(copy.size() == g.size() + 1);
}

TEST_CASE("graph: equal lists share an id, the empty list has id 0, and spans stay valid", "[graph]") {
  List early;
  Graph copy;
  {
    Graph g;
    CHECK(g.intern(List{}) == 0);
    const ListId id = g.intern({1, 2, 3});
    CHECK(g.intern({1, 2, 3}) == id);
    CHECK(g.intern({1, 2}) != id);
    CHECK(g.intern({1, 2, 4}) != id);
    early = g.list(id);
    for (std::int64_t i = 0; i < 3000; ++i) g.intern({i, i + 1, i + 2, i});
    CHECK(g.intern({1, 2, 3}) == id);
    copy = g;
  }
  CHECK(std::ranges::equal(early, std::vector<std::int64_t>{1, 2, 3}));
}

TEST_CASE("graph: prune keeps nodes that outputs need, and all inputs and slots", "[graph]") {
  Graph g = parse_graph(R"(
    slot 0 = 2.5 : f32
    slot 1 = 3 : i64
    %0 = input x : f32[4]
    %1 = input unused : f32[9]
    %2 = neg %0 : f32[4]
    %3 = abs %0 : f32[4]
    %4 = slot 0 : f32[4]
    %5 = add %3, %4 : f32[4]
    return y = %5)");
  const Graph pruned = prune(g);
  CHECK(print(pruned) == R"(slot 0 = 2.5 = 0x40200000 : f32
slot 1 = 3 : i64
%0 = input x : f32[4]
%1 = input unused : f32[9]
%2 = abs %0 : f32[4]
%3 = slot 0 : f32[4]
%4 = add %2, %3 : f32[4]
return y = %4
)");
  verify(pruned, "prune");
  CHECK(print(prune(pruned)) == print(pruned));
}

TEST_CASE("print: the printed form is as in the style guide and parses back to the same graph", "[print]") {
  const Graph g = parse_graph(kAffine);
  const std::string text = print(g);
  CHECK_THAT(text, Contains("%0 = input x : f32[32, 64]\n") && Contains("%3 = mul %0, %2 : f32[32, 64]\n") &&
                       Contains("%5 = reduce_sum %4 {1} : f32[32]\nreturn y = %4, total = %5\n"));
  CHECK(same(parse_graph(text), g));
  CHECK(print(parse_graph(text)) == text);
}

TEST_CASE("print: constants and slots are read back bit by bit", "[print]") {
  Graph g;
  const ListId scalar = g.intern(List{});
  std::vector<std::pair<DType, std::uint64_t>> values = {{boolean, 0},
                                                         {boolean, 1},
                                                         {i8, 0x80},
                                                         {i8, 0x7f},
                                                         {i16, 0x8000},
                                                         {i32, 0x80000000},
                                                         {i32, 7},
                                                         {i64, 1ull << 63},
                                                         {i64, ~0ull},
                                                         {u8, 255},
                                                         {u16, 65535},
                                                         {u32, ~0u},
                                                         {u64, ~0ull},
                                                         {f16, 0x3dcccccd},
                                                         {bf16, 0xbf800000},
                                                         {f32, 0x3dcccccd},
                                                         {f32, 0},
                                                         {f32, 0x80000000},
                                                         {f32, 0x7f800000},
                                                         {f32, 0xff800000},
                                                         {f32, 0x7fc00000},
                                                         {f32, 0xffc12345},
                                                         {f32, 1},
                                                         {f32, 0x7f7fffff},
                                                         {f64, std::bit_cast<std::uint64_t>(0.1)},
                                                         {f64, 1ull << 63},
                                                         {f64, 0x7ff8000000000001ull},
                                                         {f64, 1}};
  for (auto [dtype, bits] : values) g.outputs.push_back(g.constant(dtype, scalar, bits));
  for (auto [dtype, bits] : values) g.outputs.push_back(g.add_slot(dtype, bits, scalar));
  const Graph back = parse_graph(print(g));
  CHECK(same(back, g));
  CHECK_THAT(print(g), Contains("= constant 0.1 = 0x3dcccccd : f32[]") && Contains("constant -0 = 0x80000000 : f32[]") &&
                           Contains("constant -9223372036854775808 : i64[]") && Contains("slot 7 = -9223372036854775808 : i64"));
}

TEST_CASE("print: unusual names, unnamed outputs, inputs out of order, empty graphs", "[print]") {
  Graph g;
  const NodeId a = g.add_input("two words", f32, {}), b = g.add_input("quote\"back\\slash // \x01\n", u8, {}), c = g.add_input("", f64, {});
  g.outputs = {b, a, c, a};
  CHECK(same(parse_graph(print(g)), g));
  g.output_names = {"y", "", "z = %1", "a.b"};
  CHECK(same(parse_graph(print(g)), g));
  CHECK_THAT(print(g), Contains("return y = %1, \"\" = %0, \"z = %1\" = %2, \"a.b\" = %0\n"));

  const Graph swapped = parse_graph("%0 = input x #1 : f32[]\n%1 = input y #0 : f32[2]\nreturn %0, %1");
  CHECK(swapped.inputs[0].name == "y");
  CHECK(swapped.inputs[1].node == 0);
  CHECK(same(parse_graph(print(swapped)), swapped));

  const Graph nothing = parse_graph("return");
  CHECK(nothing.size() == 0);
  CHECK(same(parse_graph(print(nothing)), nothing));
}

TEST_CASE("parse: convenient forms by hand", "[print]") {
  const Graph g = parse_graph(R"(
    // a comment
    %10 = constant 0.5 : f32[2]      // any labels
    %20 = constant true : bool[2]
    %3 = slot 0 = -3 : i8[2]
    %4 = constant -nan : f64[]
    %5 = constant 0.5 : f32[2]       // the same as %10
    return %10, %20, %3, %5)");
  CHECK(g.size() == 4);
  CHECK(g[0].bits == 0x3f000000);
  CHECK(g[1].bits == 1);
  CHECK(g.slots[0].bits == 0xfd);
  CHECK(g.outputs == std::vector<NodeId>{0, 1, 2, 0});
}

TEST_CASE("parse: bad text is a ValueError with line and reason", "[print]") {
  struct Bad {
    const char* text;
    const char* reason;
  };
  const Bad cases[] = {
      {"", "line 0: the last line must be `return`"},
      {"%0 = input x : f32[2]", "line 1: the last line must be `return`"},
      {"%0 = frobnicate : f32[2]\nreturn", "line 1: `frobnicate` is not an operator"},
      {"\n%0 = neg %1 : f32[2]\nreturn", "line 2: %1 is not defined above"},
      {"%0 = input x : f31[2]\nreturn", "`f31` is not a type"},
      {"%0 = input x : f32\nreturn", "expected `[` at the end of the line"},
      {"%0 = input x : f32[2, ]\nreturn", "expected an integer before `]`"},
      {"%0 = input x : f32[99999999999999999999]\nreturn", "does not fit in 64 bits"},
      {"%0 = input x f32[2]\nreturn", "expected `:` before `f32[2]`"},
      {"%0 = input x : f32[2] extra\nreturn", "`extra` is unexpected"},
      {"%0 = input x : f32[2]\n%0 = input y : f32[2]\nreturn", "line 2: %0 is defined twice"},
      {"%0 = input x : f32[2]\n%1 = input y #0 : f32[3]\nreturn", "line 2: input #0 is defined twice"},
      {"%0 = input x #1 : f32[2]\nreturn", "input #0 is missing"},
      {"%0 = input x #999999999999 : f32[2]\nreturn", "index is out of range: 999999999999"},
      {"%0 = input \"x : f32[2]\nreturn", "the quoted name is not closed"},
      {"%0 = input \"x\\", "the quoted name is not closed"},
      {"%0 = input \"x\\xg0\" : f32[2]\nreturn", "two hexadecimal digits"},
      {"%0 = constant : f32[2]\nreturn", "expected a number before `: f32[2]`"},
      {"%0 = constant abc : f32[2]\nreturn", "`abc` is not a value of type f32"},
      {"%0 = constant 256 : u8[2]\nreturn", "`256` does not fit u8"},
      {"%0 = constant -129 : i8[2]\nreturn", "`-129` does not fit i8"},
      {"%0 = constant 2 : bool[2]\nreturn", "`2` is not a value of type bool"},
      {"%0 = constant 1 = 0x1ffffffff : f32[2]\nreturn", "line 1: constant: the bits do not fit in the type"},
      {"%0 = constant 1 = 0x11112222333344445 : f64[2]\nreturn", "up to 16 digits"},
      {"%0 = constant 1 = 5 : f64[2]\nreturn", "expected the bits in the form 0x"},
      {"%0 = slot 0 : f32[2]\nreturn", "line 1: slot: no scalar parameter has the index 0"},
      {"slot 1 = 0 : f32\nreturn", "slot 1 is out of order; the next one must be 0"},
      {"%-1 = input x : f32[2]\nreturn", "a node's label must not be negative"},
      {"return %0", "line 1: %0 is not defined above"},
      {"return y", "expected `=` at the end of the line"},
      {"return ?", "expected a node or a name before `?`"},
      {"return\n%0 = input x : f32[2]", "line 2: unexpected text after the line `return`"},
      {"%0 = input x : f32[2]\n%1 = add %0 : f32[2]\n\nreturn", "line 2: add: takes 2 operands, not 1"},
  };
  for (const Bad& bad : cases) {
    INFO(bad.text);
    CHECK_THAT(error_of(bad.text), Contains(bad.reason));
  }
}

TEST_CASE("parse: no prefix or damaged byte of a valid text crashes the parser", "[print]") {
  Graph g = parse_graph(kAffine);
  g.add_slot(f64, bits_of(f64, 0.1), g[0].shape);
  const std::string text = print(g);
  int accepted = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    try {
      parse_graph(text.substr(0, i));
    } catch (const ValueError&) {}
    for (const char c : {'\0', '%', '9', '-', '"', ' ', '}', 'x', '\xff', '\n'}) {
      std::string damaged = text;
      damaged[i] = c;
      try {
        verify(parse_graph(damaged), "parse");
        ++accepted;
      } catch (const ValueError&) {}
    }
  }
  CHECK(accepted > 100);  // many changes are harmless; all other changes must be ValueErrors
}

TEST_CASE("verify: names the pass, the node and the rule, and prints the graph", "[verify]") {
  Graph g;
  const NodeId x = g.add_input("x", f32, std::vector<std::int64_t>{2, 3});
  const NodeId bad = g.add(Op::Neg, f64, g[x].shape, {x});
  g.outputs = {bad};
  const std::string message = verify_error(g);
  CHECK_THAT(message, Contains("simplify produced an invalid node: %1 = neg: f32 gives f32, not f64"));
  CHECK_THAT(message, Contains("%1 = neg %0 : f64[2, 3]\nreturn %1"));
}

TEST_CASE("verify: every rule of a node is checked", "[verify]") {
  // one line to be added to a graph with x : f32[4, 3], b : bool[4, 3], k : i32[4, 3], e : f32[0, 3], s : f32[1, 3] and scalar parameter 0
  // : f32
  struct Bad {
    const char* line;
    const char* rule;
  };
  const Bad cases[] = {
      {"neg %0, %0 : f32[4, 3]", "takes 1 operands, not 2"},
      {"constant 0 : f32[-1]", "extents must be at least 0"},
      {"constant 0 : f32[4294967296, 4294967296]", "number of bytes must fit in 63 bits"},
      {"constant 0 : f32[4294967296, 4294967296, 0]", "number of bytes must fit in 63 bits"},
      {"neg %0 : f32[3, 4]", "operands of an elementwise operator must have the shape of the result"},
      {"neg %0 : f32[12]", "operands of an elementwise operator must have the shape of the result"},
      {"neg %0 {1} : f32[4, 3]", "attributes are not allowed"},
      {"neg %1 : bool[4, 3]", "does not accept the types bool"},
      {"neg %0 : f64[4, 3]", "f32 gives f32, not f64"},
      {"add %0, %2 : f32[4, 3]", "does not accept the types f32, i32"},
      {"less %0, %0 : f32[4, 3]", "f32, f32 gives bool, not f32"},
      {"isnan %2 : bool[4, 3]", "does not accept the types i32"},
      {"sqrt %2 : i32[4, 3]", "does not accept the types i32"},
      {"exp %2 : i32[4, 3]", "does not accept the types i32"},
      {"bitwise_and %0, %0 : f32[4, 3]", "does not accept the types f32, f32"},
      {"shift_left %1, %1 : bool[4, 3]", "does not accept the types bool, bool"},
      {"where %0, %0, %0 : f32[4, 3]", "does not accept the types f32, f32, f32"},
      {"where %1, %0, %2 : f32[4, 3]", "does not accept the types bool, f32, i32"},
      {"bitcast %0 : f64[4, 3]", "bitcast must keep the number of bytes"},
      {"iota {1} : i32[4]", "attributes must be one axis of the result"},
      {"iota : i32[4]", "attributes must be one axis of the result"},
      {"iota {-1} : i32[4]", "attributes must be one axis of the result"},
      {"slot 0 : f64[4]", "the type must be the type of the scalar parameter, f32"},
      {"slot 1 : f32[4]", "no scalar parameter has the index 1"},
      {"constant 0 {1} : f32[4]", "attributes are not allowed"},
      {"reshape %0 : f32[11]", "reshape must keep the number of elements"},
      {"reshape %0 : f64[12]", "a view must keep the type of its operand"},
      {"reshape %0 {0} : f32[12]", "attributes are not allowed"},
      {"permute %0 {0, 0} : f32[4, 4]", "attributes must be a permutation"},
      {"permute %0 {0, 2} : f32[4, 4]", "attributes must be a permutation"},
      {"permute %0 {0} : f32[4]", "attributes must be one axis for each axis"},
      {"permute %0 {1, 0} : f32[4, 3]", "extents must be the operand's extents, permuted"},
      {"broadcast %4 : f32[3, 5]", "only axes of extent 1 can be broadcast"},
      {"broadcast %4 : f32[2, 1, 3]", "broadcast must keep the rank"},
      {"broadcast %0 : f32[4, 1]", "only axes of extent 1 can be broadcast"},
      {"slice %0 {0, 0} : f32[4, 3]", "attributes must be a start and a step"},
      {"slice %0 {0, 0, 1, 0} : f32[4, 3]", "a step must not be 0"},
      {"slice %0 {1, 0, 1, 1} : f32[4, 3]", "every index read must be inside the operand"},
      {"slice %0 {-1, 0, 1, 1} : f32[2, 3]", "every index read must be inside the operand"},
      {"slice %0 {2, 0, -1, 1} : f32[4, 3]", "every index read must be inside the operand"},
      {"slice %0 {0, 0, 9223372036854775807, 1} : f32[3, 3]", "every index read must be inside the operand"},
      {"slice %3 {0, 0, 1, 1} : f32[1, 3]", "every index read must be inside the operand"},
      {"pad %0 {1, 0, 1, 1} : f32[4, 3]", "every element of the operand must be inside the result"},
      {"pad %0 {0, 0, 2, 1} : f32[6, 3]", "every element of the operand must be inside the result"},
      {"pad %0 {0, 0, 0, 1} : f32[4, 3]", "a step must not be 0"},
      {"diagonal %0 {0, 0} : f32[3]", "attributes must be offset, axis1, axis2"},
      {"diagonal %0 {0, 0, 0} : f32[3]", "axis1 and axis2 must be two axes"},
      {"diagonal %0 {0, 0, 2} : f32[3]", "axis1 and axis2 must be two axes"},
      {"diagonal %0 {0, 0, 1} : f32[4]", "the result must be the other axes, then the diagonal, [3]"},
      {"diagonal %0 {-9223372036854775808, 0, 1} : f32[4]", "the result must be the other axes, then the diagonal, [0]"},
      {"reduce_sum %0 {1, 0} : f32[]", "in increasing order"},
      {"reduce_sum %0 {0, 0} : f32[3]", "in increasing order"},
      {"reduce_sum %0 {2} : f32[4, 3]", "in increasing order"},
      {"reduce_sum %0 {0} : f32[4]", "the operand's without the reduced axes, [3]"},
      {"reduce_sum %0 {0} : f64[3]", "a reduction must keep the type of its operand"},
      {"reduce_sum %1 {0} : bool[3]", "sums and products of bool are not allowed"},
      {"reduce_max %3 {0} : f32[3]", "the maximum or minimum of no elements"},
  };
  const std::string head =
      "slot 0 = 1 : f32\n%0 = input x : f32[4, 3]\n%1 = input b : bool[4, 3]\n%2 = input k : i32[4, 3]\n"
      "%3 = input e : f32[0, 3]\n%4 = input s : f32[1, 3]\n%5 = ";
  for (const Bad& bad : cases) {
    INFO(bad.line);
    CHECK_THAT(error_of(head + bad.line + "\nreturn %5"), Contains("line 7: ") && Contains(bad.rule));
  }
  const char* good[] = {"slice %0 {3, 2, -1, -2} : f32[4, 2]",
                        "slice %3 {0, 2, 5, -1} : f32[0, 3]",
                        "pad %0 {6, 1, -2, 1} : f32[7, 5]",
                        "diagonal %0 {2, 1, 0} : f32[2]",
                        "diagonal %0 {-2, 0, 1} : f32[2]",
                        "diagonal %0 {9, 0, 1} : f32[0]",
                        "broadcast %4 : f32[0, 3]",
                        "reduce_max %3 {1} : f32[0]",
                        "reduce_sum %0 {} : f32[4, 3]",
                        "cast %1 : f16[4, 3]",
                        "bitcast %0 : u32[4, 3]",
                        "maximum %1, %1 : bool[4, 3]",
                        "reshape %3 : f32[5, 0, 2]",
                        "iota {1} : bool[2, 3]"};
  for (const char* line : good) {
    INFO(line);
    CHECK(error_of(head + line + "\nreturn %5") == "no error");
  }
}

TEST_CASE("verify: faults that only a pass can cause", "[verify]") {
  Graph g;
  const NodeId x = g.add_input("x", f32, std::vector<std::int64_t>{4});
  g.outputs = {x};
  CHECK(verify_error(g) == "no error");
  SECTION("an operand behind its user") {
    g.add(Op::Neg, f32, g[x].shape, {1});
    CHECK_THAT(verify_error(g), Contains("%1 = neg: operands must precede the node; %1 does not"));
  }
  SECTION("bits where there are none") {
    g.add(Op::Neg, f32, g[x].shape, {x}, {}, 7);
    CHECK_THAT(verify_error(g), Contains("only inputs, constants and scalar parameters may have bits"));
  }
  SECTION("a second node for an input") {
    g.add(Op::Input, f32, g.intern({5}), {}, {}, 0);
    CHECK_THAT(verify_error(g), Contains("an input must have exactly one node"));
  }
  SECTION("an input that does not exist") {
    g.add(Op::Input, f32, g.intern({5}), {}, {}, 3);
    CHECK_THAT(verify_error(g), Contains("no input has the index 3"));
  }
  SECTION("an input of another type") {
    g.inputs[0].dtype = f64;
    CHECK_THAT(verify_error(g), Contains("the type and the shape must equal the input's"));
  }
  SECTION("an input that names another node") {
    g.inputs.push_back({"y", f32, g[x].shape, x});
    CHECK_THAT(verify_error(g), Contains("input 1 names %0, which is not its node"));
  }
  SECTION("an output that does not exist") {
    g.outputs = {17};
    CHECK_THAT(verify_error(g), Contains("simplify produced an invalid graph: output %17 does not exist") && Contains("return %17"));
  }
  SECTION("too few names") {
    g.outputs = {x, x};
    g.output_names = {"y"};
    CHECK_THAT(verify_error(g), Contains("either all outputs or no output must have a name"));
  }
  SECTION("a slot whose bits are too wide") {
    g.slots.push_back({u8, 256});
    CHECK_THAT(verify_error(g), Contains("the bits of slot 0 do not fit in its type"));
  }
  SECTION("an operator from outside the table") {
    g.add(static_cast<Op>(250), f32, g[x].shape, {x});
    CHECK_THAT(verify_error(g), Contains("the operator does not exist"));
  }
}

TEST_CASE("verify: every expansion is a valid graph", "[verify]") {
  for (DType dtype : {f32, f64}) {
#define EXPANDED(id, ...) verify(expansion(Op::id, dtype), "expansion");
#include "ir/ops.def"
  }
}
