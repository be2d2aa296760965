// compare: reports equality for correct kernels. For a kernel with a deliberate fault it names the operator, the element and both values.
#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/launch.h"

using namespace onepass;
using Catch::Matchers::Contains;

namespace {

// Replaces an operator in every nest that computes several operators, so unfused kernels stay correct.
template <ir::Op kWrong, ir::Op kRight> void replace(compiler::Nest& nest) {
  const auto computes = [](const compiler::Statement& s) { return s.kind == compiler::Statement::Kind::Op; };
  if (std::ranges::count_if(nest.body, computes) < 2) return;
  for (compiler::Statement& s : nest.body)
    if (computes(s) && s.op == kRight) s.op = kWrong;
}

struct Broken {
  explicit Broken(void (*hook)(compiler::Nest&)) { runtime::set_nest_hook(hook); }
  ~Broken() { runtime::set_nest_hook(nullptr); }
};

Array numbers(std::vector<std::int64_t> shape) {
  Array a = Array::empty(shape, f32);
  float next = 0.25f;
  for (float& v : a.span<float>()) v = next, next = next < 3 ? next + 0.125f : 0.25f;
  return a;
}

Tensor layer(Tensor x, Tensor w, Tensor b) {
  const Tensor y = x * w - b;
  const Tensor centred = y - mean(y, 1, true);
  return exp(-abs(centred)) / (sum(centred * centred, 1, true) + 1.0);
}

}  // namespace

TEST_CASE("compare: modes that agree", "[compare]") {
  std::vector<Mode> modes = {Mode::reference};
  if (test::has_codegen()) modes.insert(modes.end(), {Mode::adaptive, Mode::unfused});
  const Array x = numbers({6, 40}), w = numbers({40}), b = numbers({6, 1});
  for (const Mode mode : modes) {
    Options options;
    options.mode = mode;
    if (mode == Mode::reference && !test::has_codegen()) continue;
    auto f = compile(layer, options);
    const Comparison c = f.compare(x, w, b);
    CHECK(c);
    CHECK(c.equal);
    CHECK_THAT(c.text, Contains("equal in modes") && Contains("1 output"));
    CHECK(c.op.empty());
    CHECK(f.compare(x, w, 0.5).equal);  // a number
  }
}

TEST_CASE("compare: a faulty operator is named, the first in recording order", "[compare]") {
  if (!test::has_codegen()) return;
  const Array x = numbers({6, 40}), w = numbers({40}), b = numbers({6, 1});
  Options options;
  options.check_recording = false;
  const auto check = [&](void (*hook)(compiler::Nest&), const char* op) {
    INFO(op);
    const Broken scope(hook);
    const Comparison c = compile(layer, options).compare(x, w, b);
    CHECK_FALSE(c);
    CHECK(c.op == op);
    CHECK(c.value != c.expected);
    CHECK_THAT(c.text, Contains("output `out` differs at [") && Contains(std::string("the first operator that differs is %")) &&
                           Contains(" in mode adaptive, ") && Contains(c.expected + " in mode unfused"));
    CHECK(c.index.size() == 2);
  };
  check(replace<ir::Op::Add, ir::Op::Sub>, "sub");
  check(replace<ir::Op::Add, ir::Op::Mul>, "mul");
  check(replace<ir::Op::Neg, ir::Op::Abs>, "abs");
  check(replace<ir::Op::Mul, ir::Op::Div>, "div");
  const Comparison c = [&] {
    const Broken scope(replace<ir::Op::Add, ir::Op::Sub>);
    return compile([](Tensor x, Tensor b) { return abs(x * 1.5 - b); }, options).compare(x, Array::full({6, 1}, 2.0, f32));
  }();
  CHECK(c.index == std::vector<std::int64_t>{0, 0});
  CHECK(c.value == "2.375");
  CHECK(c.expected == "-1.625");
  CHECK(compile(layer, options).compare(x, w, b).equal);

  const Formula f = formula("abs(x*1.5 - b)", options);
  {
    const Broken scope(replace<ir::Op::Add, ir::Op::Sub>);
    const Comparison by_position = f.compare({x, Array::full({6, 1}, 2.0, f32)});
    CHECK(by_position.op == "sub");
    CHECK(by_position.value == "2.375");
  }
  {
    const Broken scope(replace<ir::Op::Add, ir::Op::Mul>);  // subtraction of a number is an addition of its negation
    CHECK(f.compare({{"b", 2.0}, {"x", x}}).op == "mul");
  }
  CHECK(formula("abs(x*1.5 - b)", options).compare({x, b}).equal);
}
