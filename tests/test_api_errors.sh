#!/usr/bin/env bash
# What must not compile, and that the compiler's message says what to write: each case is a function body and words of the message.
# The same text without the mistake does compile, also without exceptions and type information.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {  # BODY
  printf '#include <onepass/onepass.h>\nnamespace op = onepass;\nusing op::Array, op::Tensor;\nvoid test(Array x, Array y, Tensor t, Tensor u) {\n  %s\n  (void)x, (void)y, (void)t, (void)u;\n}\n' "$1"
}
compile() { program "$1" | ${CXX:-c++} -std=c++20 -fno-exceptions -fno-rtti -Wall -fsyntax-only -Iinclude -x c++ - 2>"$work/message"; }

status=0
cases=0
fails() {  # WORDS BODY
  cases=$((cases + 1))
  if compile "$2"; then echo "compiles, but must not: $2"; status=1
  elif ! grep -qF -- "$1" "$work/message"; then echo "the message does not say '$1': $2"; head -20 "$work/message"; status=1
  fi
}
works() {
  cases=$((cases + 1))
  compile "$1" || { echo "must compile: $1"; head -20 "$work/message"; status=1; }
}

works 'auto f = op::compile([](Tensor a, Tensor b) { return a + b; }); Array z = f(x, 2.0); f.into(z)(x, y); auto r = f.try_call(x, y); if (r) z = *r;
       auto g = op::formula("a + b"); z = g({x, y}); auto s = g.try_call({{"a", x}, {"b", 1}}); if (s) z = *s;'

works 'auto f = op::compile([x](Tensor a, Tensor b) { return a * x - b; }); auto g = op::compile([f, x](Tensor a) { return f(a, x); }); x = g(y);'

fails 'write where(c, a, b)'                 'if (t < u) return;'
fails 'write where(c, a, b)'                 'if (x < y) return;'
fails 'write where(c, a, b)'                 'bool both = static_cast<bool>(t); (void)both;'
fails 'Write Tensor for a run-time scalar'   'auto f = op::compile([](Tensor a, float k) { return a * k; });'
fails 'onepass::Static<T>'                   'auto f = op::compile([](Tensor a, int n) { return a * n; });'
fails 'give its signature, compile<Tensor(Tensor, Tensor)>(f)' 'auto f = op::compile([](auto a, auto b) { return a * b; });'
fails 'a parameter is a Tensor, a std::vector'                 'auto f = op::compile([](Tensor a, Array b) { return a; });'
fails 'the function returns nothing'         'auto f = op::compile([](Tensor a) { a + 1; });'
fails 'the function returns a plain number'  'auto f = op::compile([](Tensor a) { return a.dim(0); });'
fails 'the result is a Tensor'               'auto f = op::compile([](Tensor a) { return Array(); });'
fails 'another number of arguments'          'auto f = op::compile([](Tensor a) { return a; }); f(x, y);'
fails 'takes an Array or a number'           'auto f = op::compile([](Tensor a) { return a; }); f("x");'
fails 'a std::vector of Arrays'              'auto f = op::compile([](std::vector<Tensor> a) { return a; }); f(x);'
fails 'as many targets as results'           'auto f = op::compile([](Tensor a) { return std::pair{a, a}; }); f.into(x)(y);'
fails 'a target is an Array'                 'auto f = op::compile([](Tensor a) { return a; }); f.into(1)(y);'
fails 'bool'                                 'auto s = sum(t, true);'
fails 'deleted'                              'Array a = Array::wrap(std::vector<float>{1, 2});'

# Every operator that formulas have is a C++ function in onepass::names too; `size` is Tensor::size().
for name in $(sed -nE 's/^EXPANDED\([^"]*"([a-z_0-9]+)".*/\1/p' ir/ops.def; sed -nE 's/^ +\{"([a-z_0-9]+)", ".*/\1/p' compiler/functions.cpp); do
  [ "$name" = size ] || grep -qE "using onepass::.*\b$name\b|onepass::$name[,;]" include/onepass/tensor.h || { echo "include/onepass/tensor.h does not have: $name"; status=1; }
done

echo "$cases cases"
exit $status
