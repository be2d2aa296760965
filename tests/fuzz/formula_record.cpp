// Random and damaged programs through parser and recorder, with inputs of random types and shapes. The result must be a valid graph or a
// FormulaError: never a crash, an InternalError or a graph that the verifier rejects.
//
// Runs for 5 seconds, or for ONEPASS_TEST_SECONDS. The texts are the same in each run, except with ONEPASS_TEST_FULL=1. ONEPASS_TEST_SEED=n
// repeats the run with that seed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/formula.h"
#include "tests/how_long.h"

using namespace onepass;

namespace {

using Random = std::mt19937_64;
std::size_t below(Random& random, std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); }
template <std::size_t n> std::string_view pick(Random& random, const std::string_view (&choices)[n]) { return choices[below(random, n)]; }

constexpr std::string_view kLeaves[] = {  // the first seven are more frequent

    "x",   "y",    "w",   "k",          "x",       "y",      "1",  "2",     "0",  "-1",      "0.5",   "true", "9223372036854775807",
    "inf", "none", "f32", "x.shape[0]", "size(x)", "[2, 3]", "[]", "\"s\"", "pi", "x.shape", "1e300", "nan"};
constexpr std::string_view kSigns[] = {"+", "-", "*",  "/",  "//", "%",  "**", "@",  "<<",    ">>",  "&",
                                       "|", "^", "==", "!=", "<",  "<=", ">",  ">=", " and ", " or "};
constexpr std::string_view kPrefixes[] = {"-", "+", "~", "not "};
constexpr std::string_view kIndices[] = {
    "0",    "-1", ":",    "::2",     "::-1",   "1:3", "-2:", ":9223372036854775807", "::-9223372036854775808", "...",
    "none", "7",  "0, 0", ":, none", "..., 0", "1:0", "k",   "-9223372036854775808:"};
constexpr std::string_view kEquations[] = {"ij,jk->ik", "ij,kj", "ii",  "iij->ij", "i,j->ij",      "...i,...i->...",
                                           "...",       "ij->",  ",->", "i->ii",   "ij,jk,kl->il", "i...,i",
                                           "->",        ",",     "i1",  "\xff",    "ij,ij->k",     "......"};
constexpr std::string_view kKeywords[] = {"axis=0",  "axis=-1",  "axis=[0, 1]", "axis=none", "keepdims=true", "dtype=f64", "shape=[2, 3]",
                                          "eps=0.1", "offset=1", "a=x",         "x=x"};

std::string expression(Random& random, int depth) {
  if (depth == 0 || below(random, 5) == 0) return std::string(below(random, 4) != 0 ? kLeaves[below(random, 7)] : pick(random, kLeaves));
  const auto inner = [&] { return expression(random, depth - 1); };
  switch (below(random, 8)) {
    case 0: return "(" + std::string(pick(random, kPrefixes)) + inner() + ")";
    case 1: return "(" + inner() + " ? " + inner() + " : " + inner() + ")";
    case 2: return "(" + inner() + ")[" + std::string(pick(random, kIndices)) + "]";
    case 3: {
      const auto names = compiler::operator_names();
      const std::string_view name = names[below(random, names.size())];
      std::string text = std::string(name) + "(";
      if (name == "einsum") text += "\"" + std::string(pick(random, kEquations)) + "\", ";
      text += inner();
      for (std::size_t i = below(random, 3); i > 0; --i) text += ", " + inner();
      if (below(random, 3) == 0) text += ", " + std::string(pick(random, kKeywords));
      return text + ")";
    }
    default: return "(" + inner() + " " + std::string(pick(random, kSigns)) + " " + inner() + ")";
  }
}

std::string program(Random& random) {
  std::string text;
  if (below(random, 3) == 0)
    text += "fn f(a, b: f32[n, m]) { c = " + std::string("a + b * n") + "\n return c, " + (below(random, 2) ? "m" : "b") + " }\n";
  const bool calls = !text.empty();
  text += "s = " + expression(random, static_cast<int>(below(random, 4))) + "\n";
  if (calls && below(random, 2)) text += "p, q = f(" + expression(random, 1) + ", " + expression(random, 1) + ")\n";
  if (below(random, 4) == 0) text += "l = sum(x * s); g = grad(l, [" + std::string(below(random, 2) ? "x" : "s") + "])\n";
  if (below(random, 4) == 0) text += "h, i = vjp(s, [x, y], " + expression(random, 1) + ")\n";
  return text + expression(random, 1 + static_cast<int>(below(random, 3)));
}

}  // namespace

int main() {
  const char* seconds_text = std::getenv("ONEPASS_TEST_SECONDS");
  const double seconds = seconds_text ? std::atof(seconds_text) : 5;
  const char* seed_text = std::getenv("ONEPASS_TEST_SEED");
  const std::uint64_t seed = seed_text ? std::strtoull(seed_text, nullptr, 10) : onepass::test::is_full_run() ? std::random_device()() : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  std::size_t texts = 0, recorded = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    const std::string text = program(random);
    ++texts;
    std::string shapes;
    try {
      const language::Program parsed = language::parse(text);
      std::vector<compiler::FormulaInput> inputs;
      constexpr DType types[] = {DType::F32, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::Bool};
      const DType common = types[below(random, std::size(types))];
      compiler::Shape common_shape;
      for (std::size_t rank = below(random, 4); rank > 0; --rank) common_shape.push_back(static_cast<std::int64_t>(below(random, 5)));
      for (const std::string& name : compiler::signature_of(parsed).inputs) {
        compiler::FormulaInput input;
        input.dtype = below(random, 8) == 0 ? types[below(random, std::size(types))] : common;
        input.shape = common_shape;
        if (below(random, 8) == 0)
          for (std::int64_t& extent : input.shape) extent = below(random, 2) ? 1 : extent;
        shapes += name + "=" + compiler::type_text(input.dtype, input.shape) + " ";
        inputs.push_back(input);
      }
      compiler::Recorder recorder;
      compiler::record_formula(recorder, parsed, inputs);
      ir::verify(recorder.graph, "record");
      ++recorded;
    } catch (const FormulaError&) {
    } catch (const std::exception& error) {
      std::printf("text %zu:\n%s\n%s\n%s\n", texts, text.c_str(), shapes.c_str(), error.what());
      return 1;
    }
  }
  std::printf("%zu texts, %zu of them recorded\n", texts, recorded);
  return recorded == 0;
}
