#!/usr/bin/env bash
# Code that must not compile, with a message that says what to write instead. Each case is a function body and words of the message. The
# same text without the mistake must compile, also without exceptions and type information.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The header is compiled once for all cases.
flags=(-std=c++20 -fno-exceptions -fno-rtti -Wall -Iinclude)
echo '#include <onepass/onepass.h>' >"$work/api.h"
${CXX:-c++} "${flags[@]}" -x c++-header "$work/api.h" -o "$work/api.h.$(grep -q clang <<<"$(${CXX:-c++} --version)" && echo pch || echo gch)" || exit 1

program() {  # BODY
  printf 'namespace op = onepass;\nusing op::Array, op::Tensor;\ntemplate <class T> struct Layer { T w, b; };\ntemplate <class T> struct Other { T w, b; };\ntemplate <class T> struct Mixed { T w; float rate; };\nstruct Plain { Tensor w, b; };\nvoid test(Array x, Array y, Tensor t, Tensor u) {\n  %s\n  (void)x, (void)y, (void)t, (void)u;\n}\n' "$1"
}
compile() { program "$1" | ${CXX:-c++} "${flags[@]}" -include "$work/api.h" -fsyntax-only -x c++ - 2>"$work/message"; }

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

works 'auto f = op::compile([](Layer<Tensor> p) { return p; }); Layer<Array> p = f(Layer<Array>{x, y}); f.into(p)(Layer<double>{1, 2}); p = f(p);'
works 'auto f = op::compile([x](Tensor a, Tensor b) { return a * x - b; }); auto g = op::compile([f, x](Tensor a) { return f(a, x); }); x = g(y);'

fails 'Write where(c, a, b)'                 'if (t < u) return;'
fails 'Write where(c, a, b)'                 'if (x < y) return;'
fails 'Write where(c, a, b)'                 'bool both = static_cast<bool>(t); (void)both;'
# gcc shows the advice in the line of the error itself.
error_line() {  # WORDS BODY
  fails "$1" "$2"
  if grep -q "Free Software" <<<"$(${CXX:-c++} --version)" && ! grep -F "error:" "$work/message" | grep -qF -- "$1"; then
    echo "the error's line does not say '$1': $2"; grep -F "error:" "$work/message"; status=1
  fi
}
error_line 'Write where(c, a, b)'            'if (t) return;'
part='Use x.at({i}).set(v), where or scatter'
error_line "$part"                           't[0] = 3;'
error_line "$part"                           't[op::Range{1, 2}] += 10;'
error_line "$part"                           't[0] = u;'
error_line "$part"                           't[{0, op::All}] -= u;'
error_line "$part"                           't[0] *= 2.5;'
error_line "$part"                           't[0] /= x;'
error_line "$part"                           't + u = t;'
works 't = 3; t = u; t += 10; t -= u; t *= x; t /= 2; Tensor v = t[0]; v = t[1]; v += 1; std::tie(t, u) = std::pair{u, t};'

fails 'Write Tensor for a run-time scalar'   'auto f = op::compile([](Tensor a, float k) { return a * k; });'
fails 'onepass::Static<T>'                   'auto f = op::compile([](Tensor a, int n) { return a * n; });'
fails 'state the signature: compile<Tensor(Tensor, Tensor)>(f)' 'auto f = op::compile([](auto a, auto b) { return a * b; });'
fails 'a parameter must be a Tensor, a std::vector'                 'auto f = op::compile([](Tensor a, Array b) { return a; });'
fails 'template <class T> struct Layer'      'auto f = op::compile([](Plain p) { return p.w; });'
fails 'template <class T> struct Layer'      'auto f = op::compile([](Mixed<Tensor> p) { return p.w; });'
fails 'the same struct of Arrays'            'auto f = op::compile([](Layer<Tensor> p) { return p.w; }); f(Other<Array>{x, y});'
fails 'the same struct of Arrays'            'auto f = op::compile([](Layer<Tensor> p) { return p.w; }); f(x);'
fails 'the same struct of Arrays'            'auto f = op::compile([](Layer<Tensor> p) { return p; }); f.into(x)(Layer<Array>{x, y});'
fails 'struct template (Layer<Tensor>)'      'auto f = op::compile([](Tensor a) { return Plain{a, a}; });'
fails 'the function returns nothing'         'auto f = op::compile([](Tensor a) { a + 1; });'
fails 'the function returns a plain number'  'auto f = op::compile([](Tensor a) { return a.dim(0); });'
fails 'the result must be a Tensor'          'auto f = op::compile([](Tensor a) { return Array(); });'
fails 'different numbers of arguments'       'auto f = op::compile([](Tensor a) { return a; }); f(x, y);'
fails 'Pass an Array or a number'            'auto f = op::compile([](Tensor a) { return a; }); f("x");'
fails 'a std::vector of Arrays'              'auto f = op::compile([](std::vector<Tensor> a) { return a; }); f(x);'
fails 'one destination for each result'      'auto f = op::compile([](Tensor a) { return std::pair{a, a}; }); f.into(x)(y);'
fails 'one destination for each result'      'auto f = op::compile([](Tensor a) { return std::array{a, a, a}; }); std::array<Array, 2> z; f.into(z)(y);'
fails 'the number of results in a vector'    'auto f = op::compile([](Tensor a) { return std::pair{a, std::vector{a}}; }); f.into(x, op::discard)(y);'
fails 'a destination must be an Array'       'auto f = op::compile([](Tensor a) { return a; }); f.into(1)(y);'
fails 'must return a pair'                   'op::scan([](Tensor s, Tensor x) { return s + x; }, t, u);'
fails 'must return the next state'           'op::fold([](Tensor s, Tensor x) { return std::pair{s, x}; }, t, u);'
fails 'State'                                'op::fold([](Tensor s, Tensor x) { return s; }, "t", u);'
fails 'while_loop(cond, body, init, 100)'    'op::while_loop([](Tensor s) { return s > 0; }, [](Tensor s) { return s; }, t);'
works 'auto s = op::scan([](Tensor s, Tensor x) { return std::pair{s + x, 2.0}; }, 0, x).second; s = op::fold([](Tensor s, Tensor i) { return s * i; }, x, 3);'
fails 'bool'                                 'auto s = sum(t, true);'
fails 'deleted'                              'Array a = Array::wrap(std::vector<float>{1, 2});'

# Every operator of formulas is a C++ function of onepass and a name in onepass::names. The list is docs/operators.md, which a test keeps
# equal to the tables. `size` is Tensor::size().
operators=$(sed -n '/^## By name/,$ s/^| `\([a-z_0-9]*\)(.*/\1/p' docs/operators.md | grep -vx size)
[ "$(wc -w <<<"$operators")" -gt 100 ] || { echo "docs/operators.md lists too few operators"; status=1; }
{ printf '#include <onepass/tensor.h>\nnamespace user {\n'; for name in $operators grad vjp; do echo "using onepass::$name, onepass::names::$name;"; done; echo '}'; } |
  ${CXX:-c++} -std=c++20 -fsyntax-only -Iinclude -x c++ - 2>"$work/message" || { echo "include/onepass/tensor.h lacks operators:"; grep error "$work/message"; status=1; }

echo "$cases cases"
exit $status
