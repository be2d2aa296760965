// Random bytes, random words and damaged programs through the parser. It returns a program that prints and parses back to itself, or throws
// a well-formed FormulaError.
//
// Runs for 5 seconds (20 with sanitizers), or for ONEPASS_TEST_SECONDS. ONEPASS_TEST_FULL=1: runs until it has parsed a million strings of
// random bytes and as many other strings, with a different seed in each run. ONEPASS_TEST_SEED=n repeats the run with that seed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ir/formula.h"
#include "tests/how_long.h"

using namespace onepass;

namespace {

constexpr std::string_view kPrograms[] = {
    "x*w + b",
    "s = softmax(q, axis=-1); m = max(q)\n",
    "fn affine(x: f32[n, c, h, w], scale: f32[n, c], shift: f32[n, c]) {\n  s = reshape(scale, [n, c, 1, 1])  # four\n  return x * s + "
    "reshape(shift, [n, c, 1, 1])\n}\n",
    "fn two(x, k: i64[]) { a = x[1:5, ::2][..., -1][:, none]; return a, -k**2 } y, z = two(p, q); y // z % 3 @ w",
    "c ? not a == b and d : x.shape[0] << 2 | ~y & 3 ^ 1 >> 4",
    "einsum(\"ij,jk->ik\", a, b) + full([2, 3], 0.1, f64) - -9223372036854775808 * 1.5e-3",
    "da, db = grad(loss, [a, b])\nout = stack([\n  a[0],\n  b,\n], axis=1) != inf",
};
constexpr std::string_view kWords[] = {"x",
                                       "y",
                                       "f",
                                       "fn ",
                                       "return ",
                                       "and ",
                                       "or ",
                                       "not ",
                                       "true",
                                       "none",
                                       "inf",
                                       "e",
                                       "pi",
                                       "f32",
                                       "i64",
                                       "bool",
                                       "shape",
                                       "grad",
                                       "1",
                                       "2.5",
                                       "1e3",
                                       ".5",
                                       "9223372036854775808",
                                       "\"s\"",
                                       "\"",
                                       "(",
                                       ")",
                                       "[",
                                       "]",
                                       "{",
                                       "}",
                                       ",",
                                       ":",
                                       ";",
                                       "\n",
                                       "?",
                                       "=",
                                       "==",
                                       "!=",
                                       "<",
                                       "<=",
                                       ">",
                                       ">>",
                                       "<<",
                                       "+",
                                       "-",
                                       "*",
                                       "**",
                                       "/",
                                       "//",
                                       "%",
                                       "@",
                                       "&",
                                       "|",
                                       "^",
                                       "~",
                                       ".",
                                       "...",
                                       "#",
                                       " ",
                                       "\t",
                                       "\r\n",
                                       "é",
                                       "x = ",
                                       "f(x)",
                                       "x[0]",
                                       "fn g(x) { return x }",
                                       "a, b = ",
                                       "axis="};

const double kSeconds = onepass::test::has_address_sanitizer() ? 20 : 5;

using Random = std::mt19937_64;
std::size_t below(Random& random, std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); }

std::string random_bytes(Random& random) {
  std::string text;
  for (std::size_t i = below(random, 64); i > 0; --i) text += static_cast<char>(below(random, 256));
  return text;
}

std::string draw(Random& random) {
  std::string text;
  switch (below(random, 3)) {
    case 0:
      for (std::size_t i = below(random, 64); i > 0; --i) text += static_cast<char>(32 + below(random, 95));
      return text;
    case 1:
      for (std::size_t i = below(random, 48); i > 0; --i) text += kWords[below(random, std::size(kWords))];
      return text;
    default:
      text = kPrograms[below(random, std::size(kPrograms))];
      for (std::size_t i = below(random, 6); i > 0 && !text.empty(); --i) {
        const std::size_t at = below(random, text.size()), count = std::min(text.size() - at, 1 + below(random, 8));
        switch (below(random, 5)) {
          case 0: text.erase(at, count); break;
          case 1: text.insert(at, kWords[below(random, std::size(kWords))]); break;
          case 2: text[at] = static_cast<char>(below(random, 256)); break;
          case 3: text.insert(at, text.substr(below(random, text.size()), count)); break;
          default: text += kPrograms[below(random, std::size(kPrograms))]; break;
        }
      }
      return text;
  }
}

// Returns an error of the parser's answer to `text`, or an empty string. Counts the programs that parse.
std::string judge(const std::string& text, const Limits& limits, std::size_t& parsed) {
  try {
    const language::Program program = language::parse(text, "f", limits);
    ++parsed;
    const std::string printed = language::to_string(program);
    if (!(language::parse(printed, "f", limits) == program)) return "prints as a different program:\n" + printed;
  } catch (const FormulaError& error) {
    const std::string_view what = error.what();
    const std::size_t line_end = what.find('\n'), quote_end = what.find('\n', line_end + 1);
    const bool form = what.starts_with("f:") && line_end != what.npos && quote_end != what.npos && what.ends_with('^') &&
                      what.substr(0, line_end).find(": ") != what.npos && what.find('\n', quote_end + 1) == what.npos;
    if (!form) return "an error of another form:\n" + std::string(what);
  }
  return {};
}

}  // namespace

int main() {
  const char* seconds_text = std::getenv("ONEPASS_TEST_SECONDS");
  const double seconds = seconds_text ? std::atof(seconds_text) : kSeconds;
  const bool is_full = onepass::test::is_full_run();
  const std::size_t least = is_full ? 2'000'000 : 0;
  const char* seed_text = std::getenv("ONEPASS_TEST_SEED");
  const std::uint64_t seed = seed_text ? std::strtoull(seed_text, nullptr, 10) : is_full ? std::random_device()() : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  std::size_t texts = 0, parsed = 0;
  const auto start = std::chrono::steady_clock::now();
  while (texts < least || std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    const std::string text = texts % 2 == 0 ? random_bytes(random) : draw(random);
    Limits limits;
    if (below(random, 4) == 0) {
      limits.nesting = 1 + below(random, 8);
      limits.name_bytes = 1 + below(random, 8);
    }
    ++texts;
    if (const std::string wrong = judge(text, limits, parsed); !wrong.empty()) {
      std::printf("text %zu, %zu bytes, nesting %zu:\n%s\n%s\nbytes:", texts, text.size(), limits.nesting, text.c_str(), wrong.c_str());
      for (const char c : text) std::printf(" %02x", static_cast<unsigned char>(c));
      std::printf("\n");
      return 1;
    }
  }
  std::printf("%zu texts, %zu of them programs\n", texts, parsed);
  return parsed == 0;
}
