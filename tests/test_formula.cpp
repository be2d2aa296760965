// The formula parser: accepted programs, their trees, and the text of every error.
#include <pthread.h>
#include <time.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/formula.h"

using namespace onepass;
using namespace onepass::language;

namespace {

// Returns the printed form of a program. Checks that it parses to an equal program.
std::string printed(std::string_view text) {
  const Program program = parse(text);
  const std::string out = to_string(program);
  CHECK(parse(out) == program);
  return out;
}

std::string error(std::string_view text, const Limits& limits = {}) {
  try {
    (void)parse(text, "f", limits);
  } catch (const FormulaError& e) { return e.what(); }
  return "no error";
}

// Returns the tree in prefix form, which shows precedence without the printer.
std::string tree(const Program& program, NodeId id) {
  if (id == kAbsent) return "";
  const Node& node = program.nodes[id];
  const auto list = [&](std::span<const NodeId> items) {
    std::string out;
    for (const NodeId item : items) out += " " + tree(program, item);
    return out;
  };
  switch (node.kind) {
    case Kind::Integer:
      return node.is_unsigned() ? std::to_string(static_cast<std::uint64_t>(node.integer())) : std::to_string(node.integer());
    case Kind::Float: return program.source.substr(node.offset, node.d);
    case Kind::Boolean: return node.a != 0 ? "true" : "false";
    case Kind::None: return "none";
    case Kind::Type: return std::string(name_of(node.dtype()));
    case Kind::String: return "\"" + program.strings[node.a] + "\"";
    case Kind::Name: return std::string(program.name(node.a));
    case Kind::Function: return "fn " + std::string(program.name(node.a));
    case Kind::Prefix: return "(" + std::string(text_of(node.op)) + " " + tree(program, node.a) + ")";
    case Kind::Binary: return "(" + std::string(text_of(node.op)) + " " + tree(program, node.a) + " " + tree(program, node.b) + ")";
    case Kind::Conditional: return "(? " + tree(program, node.a) + " " + tree(program, node.b) + " " + tree(program, node.c) + ")";
    case Kind::List: return "[list" + list(program.list_items(node)) + "]";
    case Kind::Call: {
      std::string out = std::string(program.name(node.c)) + "(";
      for (const Argument& argument : program.arguments_of(node)) {
        if (out.back() != '(') out += " ";
        if (argument.keyword != kAbsent) out += std::string(program.name(argument.keyword)) + "=";
        out += tree(program, argument.value);
      }
      return out + ")";
    }
    case Kind::Index: return "(index " + tree(program, node.a) + list(program.index_items(node)) + ")";
    case Kind::Slice: return "<" + tree(program, node.a) + ":" + tree(program, node.b) + ":" + tree(program, node.c) + ">";
    case Kind::Ellipsis: return "...";
    case Kind::Attribute: return "(." + std::string(program.name(node.b)) + " " + tree(program, node.a) + ")";
  }
  return "?";
}

std::string tree(std::string_view text) {
  const Program program = parse(text);
  CHECK(parse(to_string(program)) == program);
  return tree(program, program.values_of(program.top.statements.back())[0]);
}

void on_small_stack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 512 << 10) == 0);
  pthread_t thread;
  auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  const int error = pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body));
  if (error == 0) pthread_join(thread, nullptr);  // joins before any assertion of this thread, since Catch2 is not thread-safe
  REQUIRE(error == 0);
  pthread_attr_destroy(&attributes);
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("formula: precedence and associativity are Python's", "[formula]") {
  CHECK(tree("x*w + b") == "(+ (* x w) b)");
  CHECK(tree("a - b - c") == "(- (- a b) c)");
  CHECK(tree("a / b * c // d % f @ g") == "(@ (% (// (* (/ a b) c) d) f) g)");
  CHECK(tree("-x**2") == "(- (** x 2))");
  CHECK(tree("2**-1") == "(** 2 (- 1))");
  CHECK(tree("a**b**c") == "(** a (** b c))");
  CHECK(tree("a**-b**c*d") == "(* (** a (- (** b c))) d)");
  CHECK(tree("(-x)**2") == "(** (- x) 2)");
  CHECK(tree("-a*b") == "(* (- a) b)");
  CHECK(tree("- + ~x") == "(- (+ (~ x)))");
  CHECK(tree("a*-b+c") == "(+ (* a (- b)) c)");
  CHECK(tree("a + b << c + d") == "(<< (+ a b) (+ c d))");
  CHECK(tree("a << b >> c") == "(>> (<< a b) c)");
  CHECK(tree("a & b << c") == "(& a (<< b c))");
  CHECK(tree("a ^ b & c") == "(^ a (& b c))");
  CHECK(tree("a | b ^ c | d") == "(| (| a (^ b c)) d)");
  CHECK(tree("a | b == c") == "(== (| a b) c)");
  CHECK(tree("a == b and c != d or f < g") == "(or (and (== a b) (!= c d)) (< f g))");
  CHECK(tree("a <= b or c >= d and f > g") == "(or (<= a b) (and (>= c d) (> f g)))");
  CHECK(tree("not a == b") == "(not (== a b))");
  CHECK(tree("not not a and b") == "(and (not (not a)) b)");
  CHECK(tree("a and not b") == "(and a (not b))");
  CHECK(tree("(a < b) < c") == "(< (< a b) c)");
  CHECK(tree("a < b + 1 and c") == "(and (< a (+ b 1)) c)");
  CHECK(tree("c ? a : b") == "(? c a b)");
  CHECK(tree("c ? a : d ? b : f") == "(? c a (? d b f))");
  CHECK(tree("c ? d ? a : b : f") == "(? c (? d a b) f)");
  CHECK(tree("a or b ? c + 1 : d + 2") == "(? (or a b) (+ c 1) (+ d 2))");
  CHECK(tree("(c ? a : b) ? d : f") == "(? (? c a b) d f)");
  CHECK(tree("1 + (c ? a : b)") == "(+ 1 (? c a b))");
  CHECK(tree("-x[0]**-y.shape[1]") == "(- (** (index x 0) (- (index (.shape y) 1))))");
  CHECK(tree("-f(x)[1]") == "(- (index f(x) 1))");
}

TEST_CASE("formula: literals", "[formula]") {
  CHECK(tree("1") == "1");
  CHECK(tree("9223372036854775807") == "9223372036854775807");
  CHECK(tree("-9223372036854775808") == "-9223372036854775808");
  CHECK(tree("--9223372036854775808") == "(- -9223372036854775808)");
  CHECK(tree("9223372036854775808") == "9223372036854775808");
  CHECK(tree("x & 18446744073709551615") == "(& x 18446744073709551615)");
  CHECK(tree("-(9223372036854775808)") == "(- 9223372036854775808)");
  CHECK(tree("-9223372036854775808**2") == "(- (** 9223372036854775808 2))");
  CHECK(tree("-9223372036854775809") == "(- 9223372036854775809)");
  CHECK(tree("x - 9223372036854775807") == "(- x 9223372036854775807)");
  CHECK(tree("x**-9223372036854775808 + 1") == "(+ (** x -9223372036854775808) 1)");
  CHECK(tree("(-9223372036854775808)**2") == "(** -9223372036854775808 2)");
  CHECK(tree("-(3)") == "(- 3)");
  CHECK(tree("0 + 000") == "(+ 0 0)");
  CHECK(tree("[true, false, none, inf, nan, pi, e, f32, bool, i64]") == "[list true false none inf nan pi e f32 bool i64]");
  CHECK(tree("[[1, 2], [], [x, ]]") == "[list [list 1 2] [list] [list x]]");
  CHECK(tree("einsum(\"ij,jk->ik # é\", a, b)") == "einsum(\"ij,jk->ik # é\" a b)");

  const auto number = [](std::string_view text) {
    const Program program = parse(text);
    const Node& node = program.nodes.back();
    REQUIRE(node.kind == Kind::Float);
    return node;
  };
  CHECK(number("1.5e-3").number() == 1.5e-3);
  CHECK(number("1.").number() == 1.0);
  CHECK(number(".5").number() == 0.5);
  CHECK(number("1.e2").number() == 100.0);
  CHECK(number("2E+3").number() == 2000.0);
  CHECK(number("007.5").number() == 7.5);
  CHECK(number("0.1").single() == 0.1f);
  CHECK(number("pi").number() == 3.14159265358979323846);
  CHECK(number("e").single() == 2.71828182845904523536f);
  CHECK(number("1e999").number() == std::numeric_limits<double>::infinity());
  CHECK(number("1e99999999999999999999999").number() == std::numeric_limits<double>::infinity());
  CHECK(number("0e99999999999999999999999").number() == 0.0);
  CHECK(number("1e-99999999999999999999999").number() == 0.0);
  CHECK(number("0.001e400").number() == std::numeric_limits<double>::infinity());
  CHECK(number("1000.0e-400").number() == 0.0);
  CHECK(number("4.9e-324").number() == 4.9e-324);
  CHECK(number("1e300").single() == std::numeric_limits<float>::infinity());
  CHECK(number("1e-300").single() == 0.0f);
  CHECK(number("1" + repeat("0", 400) + ".0").number() == std::numeric_limits<double>::infinity());
  CHECK(number("0." + repeat("0", 400) + "1").number() == 0.0);
  // just above the midpoint of two floats, closer than a double can represent: rounding twice gives the lower float
  CHECK(number("1.00000005960464477540").single() == std::nextafter(1.0f, 2.0f));
  CHECK(static_cast<float>(number("1.00000005960464477540").number()) == 1.0f);
}

TEST_CASE("formula: indexing, calls and attributes", "[formula]") {
  CHECK(tree("x[0]") == "(index x 0)");
  CHECK(tree("x[1:5, ::2]") == "(index x <1:5:> <::2>)");
  CHECK(tree("x[..., -1]") == "(index x ... (- 1))");
  CHECK(tree("x[...]") == "(index x ...)");
  CHECK(tree("x[:, none]") == "(index x <::> none)");
  CHECK(tree("x[:]") == "(index x <::>)");
  CHECK(tree("x[::]") == "(index x <::>)");
  CHECK(tree("x[1:]") == "(index x <1::>)");
  CHECK(tree("x[:5]") == "(index x <:5:>)");
  CHECK(tree("x[1::2]") == "(index x <1::2>)");
  CHECK(tree("x[:5:2]") == "(index x <:5:2>)");
  CHECK(tree("x[1:5:]") == "(index x <1:5:>)");
  CHECK(tree("x[1:5:-1,]") == "(index x <1:5:(- 1)>)");
  CHECK(tree("x[k ? 1 : 2:y[0:1].shape[0]+1]") == "(index x <(? k 1 2):(+ (index (.shape (index y <0:1:>)) 0) 1):>)");
  CHECK(tree("x[0][1:][..., 2]") == "(index (index (index x 0) <1::>) ... 2)");
  CHECK(tree("f()") == "f()");
  CHECK(tree("f(x,)") == "f(x)");
  CHECK(tree("f(x, axis=[0, -1], keepdims=true)") == "f(x axis=[list 0 (- 1)] keepdims=true)");
  CHECK(tree("f(g(a=1), a=h(a=2))") == "f(g(a=1) a=h(a=2))");
  CHECK(tree("f(a == b)") == "f((== a b))");
  CHECK(tree("1 .shape") == "(.shape 1)");
  CHECK(tree("(x + y).shape[0]") == "(index (.shape (+ x y)) 0)");
}

TEST_CASE("formula: newlines, semicolons and comments", "[formula]") {
  CHECK(printed("x*w + b # comment × with anything\n") == "x * w + b\n");
  CHECK(printed("\n\n;a = x;; b = a # c\r\n  b + (1 +\n\n # inside\n 2)\n;") == "a = x\nb = a\nb + (1 + 2)\n");
  CHECK(printed("f(\n x,\n y\n)") == "f(x, y)\n");
  CHECK(printed("\xef\xbb\xbfx") == "x\n");
  CHECK(printed("\tx\t+\ty") == "x + y\n");
  CHECK(printed("# only a comment\nx#") == "x\n");
  CHECK(printed("fn f(x) { return x }; f(y)") == "fn f(x) {\n  return x\n}\nf(y)\n");
  CHECK(printed("fn f(x) { return x } f(y)") == "fn f(x) {\n  return x\n}\nf(y)\n");
  CHECK(printed("fn f(\n x\n,)\n{\nreturn x\n}\n") == "fn f(x) {\n  return x\n}\n");
  CHECK(printed("a = relu(x)\nfn relu(x) { return x }\nrelu(a)") == "a = relu(x)\nfn relu(x) {\n  return x\n}\nrelu(a)\n");
}

TEST_CASE("formula: functions have parameters with types and extents, and calls resolve to functions above", "[formula]") {
  const Program program = parse(R"(
    fn affine(x: f32[n, c, 4], scale: f32[n, c], k: i64[], shift) {
      s = reshape(scale, [n, c, 1])
      return x * s + shift, s, k
    }
    fn two(x) { a, b, c = affine(x, x, x, x); return affine(a, b, c, x) }
    y = two(x))");
  REQUIRE(program.functions.size() == 2);
  const Function& affine = program.functions[0];
  CHECK(program.name(affine.name) == "affine");
  REQUIRE(affine.parameters.size() == 4);
  const Parameter& x = affine.parameters[0];
  CHECK(program.name(affine.body, x.variable) == "x");
  CHECK(x.typed);
  CHECK(x.dtype == DType::F32);
  REQUIRE(x.extents.size() == 3);
  CHECK(program.name(affine.body, x.extents[0].variable) == "n");
  CHECK(x.extents[2].variable == kAbsent);
  CHECK(x.extents[2].value == 4);
  CHECK(affine.parameters[1].extents[0].variable == x.extents[0].variable);
  CHECK(affine.parameters[2].typed);
  CHECK(affine.parameters[2].dtype == DType::I64);
  CHECK(affine.parameters[2].extents.empty());
  CHECK_FALSE(affine.parameters[3].typed);
  REQUIRE(affine.body.statements.size() == 2);
  CHECK(affine.body.statements[1].kind == Statement::Kind::Return);
  CHECK(program.values_of(affine.body.statements[1]).size() == 3);
  CHECK(program.targets_of(program.functions[1].body.statements[0]).size() == 3);
  std::vector<std::uint32_t> callees;
  for (const Node& node : program.nodes)
    if (node.kind == Kind::Call) callees.push_back(node.d);
  CHECK(callees == std::vector<std::uint32_t>{kAbsent, 0, 0, 1});
  CHECK(parse(to_string(program)) == program);
}

TEST_CASE("formula: inputs are the free names in order of first appearance; used names are marked", "[formula]") {
  const Program program = parse("s = b*a + exp(c); m = s.shape[0]; t = a; mean = sum(s) / m");
  std::string inputs, unused;
  for (const Variable& variable : program.top.variables) {
    if (variable.role == Variable::Role::Input) inputs += std::string(program.name(variable.name)) + " ";
    if (!variable.used) unused += std::string(program.name(variable.name)) + " ";
  }
  CHECK(inputs == "b a c ");
  CHECK(unused == "t mean ");
}

TEST_CASE("formula: operands precede their node and a statement's nodes are one range", "[formula]") {
  const Program program = parse("a = f(x + 1, k=[2, y[1:z]]); a * -b ** 2");
  NodeId next = 0;
  for (const Statement& statement : program.top.statements) {
    CHECK(statement.first_node == next);
    next = statement.end_node;
    CHECK(program.values_of(statement)[0] == next - 1);
  }
  CHECK(next == program.nodes.size());
  for (NodeId id = 0; id < program.nodes.size(); ++id)
    if (program.nodes[id].kind == Kind::Binary) CHECK((program.nodes[id].a < program.nodes[id].b && program.nodes[id].b < id));
}

TEST_CASE("formula: a loop's first arguments are functions", "[formula]") {
  const std::string f = "fn f(s, x) { return s + x }\nfn g(s) { return s < 3 }\n";
  CHECK(tree(f + "fold(f, 0, x)") == "fold(fn f 0 x)");
  CHECK(tree(f + "scan(f, [f, f], f)") == "scan(fn f [list f f] f)");  // elsewhere the name is a value
  CHECK(tree(f + "while_loop(g, g, g, 9)") == "while_loop(fn g fn g g 9)");
  CHECK(tree(f + "iterate(g, fold(f, x, x), 2)") == "iterate(fn g fold(fn f x x) 2)");
  CHECK(tree(f + "fn fold(a, b) { return a }\nfold(f, x)") == "fold(f x)");  // a function of the program hides the operator
  CHECK(tree(f + "sum(f)") == "sum(f)");
}

TEST_CASE("formula: an error has file, line, column, the source line and a caret", "[formula]") {
  CHECK(error("y = x\nz = y * * 2\n") == "f:2:9: an expression is missing after `*`; found `*`\nz = y * * 2\n        ^");
  CHECK(error("é = 1").substr(0, 6) == "f:1:1:");
  CHECK(error("# é\n\"é\" $") == "f:2:5: `$` is not part of the language\n\"é\" $\n    ^");
  CHECK(error("\tx $\r\n") == "f:1:4: `$` is not part of the language\n\tx $\n\t  ^");
  CHECK(error("\xef\xbb\xbfx $") == "f:1:3: `$` is not part of the language\nx $\n  ^");
  try {
    (void)parse("$", "dir/a b.fuse");
    FAIL("no error");
  } catch (const FormulaError& e) { CHECK(std::string(e.what()) == "dir/a b.fuse:1:1: `$` is not part of the language\n$\n^"); }
  const Program program = parse("x + y\n", "p");
  CHECK(std::string(error_at(program, 2, "add: no\n  left: x\n  right: y").what()) == "p:1:3: add: no\nx + y\n  ^\n  left: x\n  right: y");
  CHECK(position(program, 4) == "1:5");
  const std::string wide = error(repeat("x + ", 1000) + "$" + repeat(" + é", 1000));  // a long line is shortened around the error
  CHECK(wide.substr(0, 9) == "f:1:4001:");
  CHECK(wide.size() < 800);
  const std::string line = wide.substr(wide.find('\n') + 1);
  CHECK(line.substr(0, 3) == "…");
  CHECK(line.substr(line.find('\n') + 1) == std::string(101, ' ') + "^");
}

TEST_CASE("formula: every error has the expected text", "[formula]") {
  struct Row {
    std::string_view program, start, words;
  };
  const Row rows[] = {
      // characters and words
      {"a $ b", "f:1:3: ", "`$` is not part of the language"},
      {"a × b", "f:1:3: ", "`×` is not part of the language. Write `*`"},
      {"a ≤ b", "f:1:3: ", "Write `<=`"},
      {"!a", "f:1:1: ", "Write `not`"},
      {"f('ij')", "f:1:3: ", "Write `\"`"},
      {"größe", "f:1:3: ", "`ö` (U+00F6) is not part of the language; names consist of the letters a to z and A to Z, digits and `_`"},
      {"x + 😀", "f:1:5: ", "(U+1F600)"},
      {"x \x01", "f:1:3: ", "the control character 0x01"},
      {"a && b", "f:1:3: ", "`&&` is not part of the language. Write `and`, or `&` for bits"},
      {"a || b", "f:1:3: ", "`||` is not part of the language. Write `or`, or `|` for bits"},
      {std::string_view("x\0y", 3), "f:1:2: ", "a byte 0; a program must be UTF-8 text"},
      {std::string_view("x # \0", 5), "f:1:5: ", "a byte 0"},
      {"x # \xff", "f:1:5: ", "the byte 0xff is not valid UTF-8"},
      {"x # \xc0\x80", "f:1:5: ", "the byte 0xc0 is not valid UTF-8"},
      {"x # \xe2\x82", "f:1:5: ", "the byte 0xe2 is not valid UTF-8"},
      {"x # \xed\xa0\x80", "f:1:5: ", "the byte 0xed is not valid UTF-8"},
      {"x # \xf4\x90\x80\x80", "f:1:5: ", "the byte 0xf4 is not valid UTF-8"},
      {"\"abc", "f:1:1: ", "the string is not closed"},
      {"f(\"abc\n\")", "f:1:3: ", "the string is not closed"},
      // numbers
      {"18446744073709551616", "f:1:1: ", "the integer 18446744073709551616 does not fit u64, whose maximum is 18446744073709551615"},
      {"-18446744073709551616", "f:1:2: ", "does not fit u64"},
      {"x + 99999999999999999999999", "f:1:5: ", "does not fit u64"},
      {"2x", "f:1:2: ", "`x` cannot follow the number `2`; write `2*x` for a product"},
      {"0x1F", "f:1:2: ", "numbers are decimal"},
      {"1_000", "f:1:2: ", "numbers are decimal"},
      {"1e", "f:1:2: ", "`e` cannot follow the number `1`; numbers are decimal"},
      {"1..2", "f:1:3: ", "`.2` cannot follow the number `1.`"},
      {"1.2.3", "f:1:4: ", "`.3` cannot follow the number `1.2`"},
      {"007", "f:1:1: ", "the integer `007` has leading zeros. Write `7`"},
      // reserved words
      {"e = 3", "f:1:1: ", "`e` is a constant and cannot be assigned. Call it `e_`"},
      {"true = 3", "f:1:1: ", "`true` is a constant and cannot be assigned. Call it `true_`"},
      {"a, pi = f(x)", "f:1:4: ", "`pi` is a constant and cannot be assigned. Call it `pi_`"},
      {"inf, a = f(x)", "f:1:1: ", "`inf` is a constant and cannot be assigned"},
      {"f32 = x", "f:1:1: ", "`f32` is a type and cannot be assigned. Call it `f32_`"},
      {"and = x", "f:1:1: ", "`and` is a keyword and cannot be assigned. Call it `and_`"},
      {"fn e(x) { return x }", "f:1:4: ", "`e` is a constant and cannot be a function. Call it `e_`"},
      {"fn f(x, nan) { return x }", "f:1:9: ", "`nan` is a constant and cannot be a parameter. Call it `nan_`"},
      {"fn f(x: f32[e]) { return x }", "f:1:13: ", "`e` is a constant and cannot be an extent. Call it `e_`"},
      {"f(x, none=1)", "f:1:6: ", "`none` is a constant and cannot be an argument's name. Call it `none_`"},
      {"x = return", "f:1:5: ", "`return` is a keyword, not a value. Call your own name `return_`"},
      {"x + fn", "f:1:5: ", "`fn` is a keyword, not a value"},
      {"f64(x)", "f:1:1: ", "`f64` is a type and cannot be called. Write `cast(x, f64)`"},
      {"pi(x)", "f:1:1: ", "`pi` is a constant and cannot be called"},
      // operands and operators
      {"", "f:1:1: ", "the program is empty"},
      {" # nothing\n", "f:1:1: ", "the program is empty"},
      {"x +", "f:1:4: ", "an expression is missing after `+`; found the end of the program"},
      {"x *\ny", "f:1:4: ",
       "an expression is missing after `*`; found the end of the line; an expression can continue on the next line only inside ( ) or [ ]"},
      {"y = ", "f:1:5: ", "an expression is missing after `=`; found the end of the program"},
      {"y = = 2", "f:1:5: ", "`=` assigns to a name, `==` compares"},
      {"x += 2", "f:1:4: ", "an expression is missing after `+`; found `=`"},
      {"not", "f:1:4: ", "an expression is missing after `not`"},
      {"* x", "f:1:1: ", "an expression is missing; found `*`"},
      {"fn f(x) { return }", "f:1:18: ", "an expression is missing after `return`; found `}`"},
      {"a ? : b", "f:1:5: ", "an expression is missing after `?`; found `:`"},
      {"a ? b : ", "f:1:9: ", "an expression is missing after `:`"},
      {"a ? b", "f:1:3: ", "`?` has no matching `:`; a choice has the form `c ? a : b`"},
      {"(a ? b)", "f:1:4: ", "`?` has no matching `:`"},
      {"f(a ? b, c)", "f:1:5: ", "`?` has no matching `:`"},
      {"x y", "f:1:3: ", "`y` cannot follow the expression. Add an operator, or end the statement with a newline or `;`"},
      {"x 2", "f:1:3: ", "`2` cannot follow the expression"},
      {"x not y", "f:1:3: ", "`not` is a prefix operator with one operand. Add an operator before it"},
      {"x ~y", "f:1:3: ", "`~` is a prefix operator with one operand"},
      {"a < b < c", "f:1:7: ", "comparisons cannot be chained. Write `a < b and b < c`"},
      {"a == b + 1 != c", "f:1:12: ", "comparisons cannot be chained. Write `a == b and b != c`"},
      {"a == not b", "f:1:6: ", "`not` has a lower precedence than `==` before it. Write parentheses"},
      {"-not b", "f:1:2: ", "`not` has a lower precedence than `-`"},
      {"x : y", "f:1:3: ", "`:` is allowed only in `x[1:5]`, in `c ? a : b` and between a parameter and its type"},
      {"x.T", "f:1:3: ", "only `shape` can follow `.`, as in `x.shape[0]`; found `T`. Write `transpose(x)`"},
      {"x.dtype", "f:1:3: ", "Write the type, as in"},
      {"x.", "f:1:3: ", "found the end of the program"},
      // brackets
      {"(x", "f:1:1: ", "`(` is never closed"},
      {"f(x, [1", "f:1:6: ", "`[` is never closed"},
      {"f(", "f:1:2: ", "`(` is never closed"},
      {"(x +", "f:1:1: ", "`(` is never closed"},
      {"x[1:", "f:1:2: ", "`[` is never closed"},
      {"x)", "f:1:2: ", "`)` has no matching opening bracket"},
      {"x]", "f:1:2: ", "`]` has no matching opening bracket"},
      {"x }", "f:1:3: ", "`}` has no matching `{`"},
      {"fn f(x) { return x }}", "f:1:21: ", "`}` has no matching `{`"},
      {")", "f:1:1: ", "an expression is missing; found `)`"},
      {"f(x]", "f:1:4: ", "`,` or `)` to close the `(` at 1:2 is expected; found `]`"},
      {"y = f(x\nz = 3", "f:2:1: ", "`,` or `)` to close the `(` at 1:6 is expected; found `z`"},
      {"(x y)", "f:1:4: ", "an operator or `)` to close the `(` at 1:1 is expected; found `y`"},
      {"(x = 2)", "f:1:4: ", "`=` is allowed inside `( )` only after an argument's name; `==` compares"},
      {"[x; y]", "f:1:3: ", "`,` or `]` to close the `[` at 1:1 is expected; found `;`"},
      {"(a, b)", "f:1:3: ", "`(a, b)` is not a value. Write `[a, b]` for a list"},
      {"(a : b)", "f:1:4: ", "an operator or `)` to close the `(` at 1:1 is expected; found `:`"},
      {"()", "f:1:2: ", "an expression is missing in `()`. Write `[]` for an empty list"},
      {"x[]", "f:1:3: ", "an index is missing in `[]`"},
      {"x[,]", "f:1:3: ", "an expression is missing after `[`; found `,`"},
      {"f(a,,b)", "f:1:5: ", "an expression is missing after `,`; found `,`"},
      {"x[1:2:3:4]", "f:1:8: ", "a slice has more than two `:`"},
      {"x[:*]", "f:1:4: ", "an expression is missing after `:`; found `*`"},
      {"x[... + 1]", "f:1:7: ", "`,` or `]` is expected after `...`; found `+`"},
      {"x[1:...]", "f:1:5: ", "`...` is allowed only in an index"},
      {"f(...)", "f:1:3: ", "`...` is allowed only in an index"},
      {"f(x)(y)", "f:1:5: ", "only a name can be called"},
      // arguments
      {"f(a=1, 2)", "f:1:8: ", "a positional argument follows the argument `a=`; named arguments must come last"},
      {"f(a=1, b=2, a=3)", "f:1:13: ", "the argument `a` of `f` is given twice; the first is at 1:3"},
      {"f(a=)", "f:1:5: ", "an expression is missing after `=`; found `)`"},
      // statements
      {"x; y = 2", "f:1:1: ",
       "another statement follows this bare expression; a bare expression must be the last statement, and it is the result `out`. Give it "
       "a name"},
      {"y = 1\ny = 2", "f:2:1: ", "`y` is assigned twice: it is first assigned at f:1:1; a name has only one value. Call this one `y_`"},
      {"a, a = f(x)", "f:1:4: ", "`a` is assigned twice: it is first assigned at f:1:1"},
      {"y = x\nx = 2", "f:2:1: ", "`x` is assigned, but it is an input, used at f:1:5; a name has only one value. Call this one `x_`"},
      {"x = x + 1", "f:1:1: ", "it is an input, used at f:1:5"},
      {"a = b = c", "f:1:7: ", "a statement has two `=`"},
      {"x + 1 = y", "f:1:7: ", "`=` must follow one or more names"},
      {"a, b", "f:1:5: ", "`=` is expected after the names"},
      {"a, 3 = f(x)", "f:1:4: ", "a name is expected before `=`; found `3`"},
      {"y = 1, 2", "f:1:6: ", "several expressions follow `=`"},
      {"x + 1, y", "f:1:6: ", "`,` may separate only arguments"},
      {"x {", "f:1:3: ", "`{` may open only the body of a function"},
      {"return x", "f:1:1: ", "`return` is allowed only in a function"},
      // functions
      {"fn (x) { return x }", "f:1:4: ", "the name of the function is expected after `fn`; found `(`"},
      {"fn f x", "f:1:6: ", "`(` and the parameters are expected after `fn f`; found `x`"},
      {"fn f(x y) { return x }", "f:1:8: ", "`,` or `)` is expected after a parameter; found `y`"},
      {"fn f(3) { return x }", "f:1:6: ", "the name of a parameter is expected; found `3`"},
      {"fn f(x=2) { return x }", "f:1:7: ", "a parameter cannot have a default value"},
      {"fn f(x", "f:1:5: ", "`(` is never closed"},
      {"fn f(x) return x", "f:1:9: ", "`{` and the body of `f` are expected; found `return`"},
      {"fn f(x) { return x", "f:1:9: ", "`{` of the function `f` is never closed"},
      {"fn f(x) { fn g(y) { return y } }", "f:1:11: ", "a function cannot be defined inside another function, `f` at 1:1"},
      {"fn f(x) { }", "f:1:11: ", "the function `f` returns nothing"},
      {"fn f(x) { y = x }", "f:1:17: ", "the function `f` returns nothing"},
      {"fn f(x) { x*2 }", "f:1:11: ", "the function `f` returns nothing. Write `return` before its last expression"},
      {"fn f(x) { y = x; y*2 }", "f:1:18: ", "the function `f` returns nothing. Write `return` before its last expression"},
      {"fn f(x) { return x; y = x }", "f:1:21: ", "a statement follows the `return` at 1:11"},
      {"fn f(x) { return f(x) }", "f:1:18: ", "`f` calls itself; a function can call only functions defined above it"},
      {"fn f(x) { return x } fn f(y) { return y }", "f:1:25: ", "the function `f` is defined twice; the first definition is at f:1:4"},
      {"fn f(value) { return valeu }", "f:1:22: ",
       "`valeu` is unknown in the function `f`, which can use only its parameters, their extents and the names assigned above: did you "
       "mean "
       "`value`?"},
      {"fn f(x) { x = 2; return x }", "f:1:11: ", "`x` is assigned twice: it is a parameter at f:1:6"},
      {"fn f(x: f32[n]) { n = 2; return x }", "f:1:19: ", "`n` is assigned twice: it is an extent at f:1:13"},
      {"fn f(x, x) { return x }", "f:1:9: ", "two parameters have the name `x`; the first is at f:1:6"},
      {"fn f(n, x: f32[n]) { return x }", "f:1:16: ", "the extent `n` has the same name as a parameter, at f:1:6"},
      {"fn f(x: f32[n], n) { return x }", "f:1:17: ", "the parameter `n` has the same name as an extent, at f:1:13"},
      {"fn f(x: f32) { return x }", "f:1:12: ", "extents are expected after the type, as in `f32[n, 4]`, or `f32[]` for rank 0; found `)`"},
      {"fn f(x: fp32[]) { return x }", "f:1:9: ", "a type such as `f32[n, 4]` is expected after `:`; found `fp32`: did you mean `f32`?"},
      {"fn f(x: f32[-1]) { return x }", "f:1:13: ", "an extent must be a name or an integer; found `-`"},
      {"fn f(x: f32[2*n]) { return x }", "f:1:14: ", "`,` or `]` is expected after an extent"},
      {"fn f(x: f32[9223372036854775808]) { return x }", "f:1:13: ", "does not fit i64"},
      {"fn f(x: f32[n", "f:1:12: ", "`[` is never closed"},
      // loops
      {"fold(f, x, y)", "f:1:6: ", "`f` is not a function defined above; fold first takes a function, the step"},
      {"fn step(s) { return s }\niterate(stp, x, 2)", "f:2:9: ", "did you mean `step`?"},
      {"fn g(s) { return s }\nwhile_loop(g, x, x, 2)", "f:2:15: ", "first takes two functions, the condition and the step"},
      {"fn f(s, x) { return fold(f, s, x) }", "f:1:26: ", "`f` is not a function defined above"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.program, row.words);
    const std::string text = error(row.program);
    CHECK(text.substr(0, row.start.size()) == row.start);
    CHECK_THAT(text, Catch::Contains(std::string(row.words)));
    const std::size_t first = text.find('\n');
    REQUIRE(first != std::string::npos);
    CHECK(text.find('\n', first + 1) != std::string::npos);
    CHECK(text.back() == '^');
  }
}

TEST_CASE("formula: limits are options and their errors name them", "[formula]") {
  on_small_stack([] {
    for (const std::string_view open : {"(", "[", "-", "not ", "f(", "x[", "a ? ", "a ? b : ", "a ** ", "~f(g(a ? "}) {
      CAPTURE(open);
      // each fragment may nest several levels; the limit is 1,000 levels in total
      const std::size_t levels = open == "~f(g(a ? " ? 4 : 1, count = 1000 / levels;
      const auto program = [&](std::size_t n) {
        std::string close;
        for (std::size_t i = 0; i < n; ++i)
          close += open == "(" || open == "f("   ? ")"
                   : open == "[" || open == "x[" ? "]"
                   : open == "a ? "              ? " : c"
                   : levels == 4                 ? " : c))"
                                                 : "";
        return repeat(open, n) + "x" + close;
      };
      CHECK(error(program(count)) == "no error");
      CHECK(parse(to_string(parse(program(count)))) == parse(program(count)));
      CHECK_THAT(error(program(count + 1)),
                 Catch::Contains("the expression nests deeper than 1000, the limit `nesting`. Give inner parts a name"));
      CHECK_THAT(error(program(200'000)), Catch::Contains("the limit `nesting`"));
    }
    // a chain is long, not deep
    const std::string chain = "x" + repeat(" + x", 200'000) + repeat("[0]", 100'000);
    CHECK(parse(to_string(parse(chain))) == parse(chain));
  });
  Limits limits;
  limits.nesting = 2;
  CHECK(error("((x))", limits) == "no error");
  CHECK_THAT(error("(((x)))", limits), Catch::Contains("nests deeper than 2"));

  const std::string longest(1024, 'n');
  CHECK(error(longest) == "no error");
  CHECK_THAT(error(longest + "n"), Catch::Contains("has 1025 bytes; the limit `name_bytes` is 1024"));
  limits = {};
  limits.source_bytes = 8;
  CHECK(error("x + 1234", limits) == "no error");
  CHECK_THAT(error("x + 12345", limits), Catch::Contains("the source has 9 bytes; the limit `source_bytes` is 8"));
  limits = {};
  CHECK_THAT(error(std::string((16u << 20) + 1, ' ')),
             Catch::Contains("the source has 16777217 bytes; the limit `source_bytes` is 16777216"));
}

TEST_CASE("formula: parsing is linear in the text", "[formula]") {
  // Compares the parser's counters instead of times, so that the load of the machine has no effect.
  struct Kind {
    std::string_view name;
    std::function<std::string(std::size_t)> text;
  };
  const auto each = [](std::string_view before, std::string_view after) {
    return [=](std::size_t n) {
      std::string out;
      for (std::size_t i = 0; i < n; ++i) out += std::string(before) + std::to_string(i) + std::string(after);
      return out;
    };
  };
  const auto statements = each("t", " = x*1.0881062 - tanh(y[0])\n");
  const auto arguments = each(", k", "=1");
  const Kind kinds[] = {
      {"statements", statements},
      {"names", each("+ n", " ")},
      {"functions", each("fn g", "(x) { return x }\n")},
      {"parameters", [&](std::size_t n) { return "fn f(x" + each(", p", ": f32[a, 2]")(n) + ") { return x }"; }},
      {"named arguments", [&](std::size_t n) { return "f(x" + arguments(n) + ")"; }},
      {"calls with a name each", each("+ f(x, k", "=1) ")},
      {"items", [&](std::size_t n) { return "[0" + each(", ", "")(n) + "]"; }},
      {"a chain", [](std::size_t n) { return "x" + repeat(" + x", n) + repeat("[0]", n); }},
      {"targets", [&](std::size_t n) { return "a" + each(", a", "")(n) + " = f(x)"; }},
      {"comments", [](std::size_t n) { return repeat("# a comment\n", n) + "x"; }},
  };
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    const auto steps = [&](std::size_t n) {
      const std::string text = kind.text(n);
      const Program program = parse(text);
      CHECK(program.steps >= text.size());
      return std::pair{static_cast<double>(program.steps), static_cast<double>(text.size())};
    };
    const auto [few, short_text] = steps(5'000);
    const auto [many, long_text] = steps(40'000);
    CHECK(many / long_text < 1.5 * few / short_text);  // eight times the text; a quadratic part would cost eight times as much per byte
    CHECK(many / long_text < 20);
  }
}

TEST_CASE("formula: 50,000 statements and the parser's speed", "[formula]") {
  const auto processor_seconds = [] {  // CPU time of this thread, without other programs
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  std::string text;
  for (std::size_t i = 0; i < 50'000; ++i) text += "t" + std::to_string(i) + " = x*1.0881062 - tanh(y[0])\n";
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = processor_seconds();
    const Program program = parse(text);
    best = std::min(best, processor_seconds() - start);
    CHECK(program.nodes.size() > 4 * 50'000);
  }
  const double rate = static_cast<double>(text.size()) / best / 1e6;
  WARN("parse: " << rate << " MB/s");  // the requirement is 10; optimized builds measured 40 to 70
}

TEST_CASE("formula: the nearest name", "[formula]") {
  const std::string_view known[] = {"softmax", "log_softmax", "sum", "sub", "exp", "expm1", "maximum", "reshape", "x"};
  CHECK(nearest("sofmax", known) == "softmax");
  CHECK(nearest("reshpae", known) == "reshape");
  CHECK(nearest("Exp", known) == "exp");
  CHECK(nearest("smu", known) == "sum");
  const std::string_view close[] = {"sign", "sinh", "asin", "sin", "cosh", "cos"};
  CHECK(nearest("sinn", close) == "sin");
  CHECK(nearest("COSS", close) == "cos");
  CHECK(nearest("sig", close) == "sign");
  CHECK(nearest("maximun", known) == "maximum");
  CHECK(nearest("y", known).empty());
  CHECK(nearest("frobnicate", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest(std::string(5000, 'x'), known).empty());
  CHECK(nearest("sum", {}).empty());
}

TEST_CASE("formula: reserved words", "[formula]") {
  for (const char* word :
       {"fn", "return", "and", "or", "not", "true", "false", "none", "inf", "nan", "pi", "e", "bool", "i8", "u64", "bf16", "f64"})
    CHECK(is_reserved(word));
  for (const char* word : {"x", "E", "True", "grad", "shape", "f128", ""}) CHECK_FALSE(is_reserved(word));
}
