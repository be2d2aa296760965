// Memory of intermediates. Values that are live at once share no byte, and the arena is hardly larger than the live memory. Donor buffers
// are reused only if a kernel's affine maps allow it. Whole programs are checked by bits and `stats`.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "onepass/onepass.h"
#include "runtime/formula_program.h"
#include "runtime/program.h"
#include "runtime/workspace.h"

using namespace onepass;
using namespace onepass::runtime;

namespace {

std::int64_t peak(const std::vector<Intermediate>& list) {
  std::int64_t most = 0;
  for (const Intermediate& now : list) {
    std::int64_t alive = 0;
    for (const Intermediate& i : list)
      if (i.written <= now.written && now.written <= i.last_read) alive += i.bytes;
    most = std::max(most, alive);
  }
  return most;
}

std::vector<Intermediate> random_lives(std::mt19937_64& random, std::size_t count, std::uint32_t longest) {
  std::vector<Intermediate> list;
  for (std::size_t i = 0; i < count; ++i) {
    const auto written = static_cast<std::uint32_t>(random() % (count / 2 + 1));
    const auto bytes = static_cast<std::int64_t>(64 * (1 + (random() % 3 ? random() % 8 : random() % 512)));
    list.push_back({bytes, written, written + 1 + static_cast<std::uint32_t>(random() % longest)});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.written < b.written; });
  return list;
}

const MayOverwrite kNever = [](std::size_t, std::size_t) { return false; };

}  // namespace

TEST_CASE("workspace: simultaneously live values are disjoint, and the arena is close to the maximum live size", "[workspace][random]") {
  std::mt19937_64 random(1);
  double sum = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Intermediate> list = random_lives(random, 1 + random() % 200, 1 + static_cast<std::uint32_t>(random() % 40));
    const WorkspacePlan plan = plan_workspace(list, {}, kNever);
    for (std::size_t i = 0; i < list.size(); ++i) {
      REQUIRE(plan.places[i].lender == runtime::Place::kBlock);
      REQUIRE(plan.places[i].offset % 64 == 0);
      REQUIRE(plan.places[i].offset + list[i].bytes <= plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (list[j].last_read < list[i].written) continue;
        const std::int64_t a = plan.places[i].offset, b = plan.places[j].offset;
        REQUIRE((a + list[i].bytes <= b || b + list[j].bytes <= a));
      }
    }
    const double ratio = static_cast<double>(plan.bytes) / static_cast<double>(peak(list));
    CHECK(ratio <= 1.4);
    sum += ratio;
  }
  CHECK(sum / kRounds <= 1.08);
}

TEST_CASE("workspace: with equal sizes the arena is exactly the maximum live size", "[workspace][random]") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<Intermediate> list = random_lives(random, 300, 20);
    for (Intermediate& i : list) i.bytes = 4096;
    CHECK(plan_workspace(list, {}, kNever).bytes == peak(list));
  }
}

TEST_CASE("workspace: donor buffers are results and values that are no longer live", "[workspace]") {
  const auto always = [](std::size_t, std::size_t) { return true; };
  // a chain: each value is read by the kernel that writes the next value
  const std::vector<Intermediate> chain = {{640, 0, 1}, {640, 1, 2}, {640, 2, 3}};
  CHECK(plan_workspace(chain, {}, kNever).bytes == 1280);
  CHECK(plan_workspace(chain, {}, always).bytes == 640);
  // the same chain in the memory of the result that kernel 3 writes
  const std::vector<Lender> result = {{640, 3}};
  CHECK(plan_workspace(chain, result, always).bytes == 0);
  const WorkspacePlan apart = plan_workspace(chain, result, kNever);  // the third value is live when the result is written
  CHECK(apart.places[0].lender == 0);
  CHECK(apart.places[1].lender == runtime::Place::kBlock);
  CHECK(apart.places[2].lender == runtime::Place::kBlock);
  CHECK(plan_workspace(chain, std::vector<Lender>{{639, 3}}, always).bytes == 640);  // too small
  CHECK(plan_workspace(chain, std::vector<Lender>{{640, 1}}, always).bytes ==
        640);  // written too early for all values except the first value
  // reuse needs the callback's consent, for the right pair
  std::vector<std::pair<std::size_t, std::size_t>> asked;
  plan_workspace(chain, result, [&](std::size_t by, std::size_t old) { return asked.emplace_back(by, old), false; });
  CHECK(std::find(asked.begin(), asked.end(), std::pair<std::size_t, std::size_t>{3, 2}) != asked.end());
  CHECK(std::find(asked.begin(), asked.end(), std::pair<std::size_t, std::size_t>{2, 1}) != asked.end());
  CHECK(std::all_of(asked.begin(), asked.end(), [](const auto& pair) { return pair.first == pair.second + 1; }));
  // each value is reused at most once
  const std::vector<Intermediate> fork = {{640, 0, 1}, {640, 1, 2}, {640, 1, 2}};
  CHECK(plan_workspace(fork, {}, always).bytes == 1280);
}

namespace {

Array numbers(std::vector<std::int64_t> shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Array a = Array::empty(shape, f32);
  for (float& v : a.span<float>()) v = static_cast<float>(static_cast<int>(random() % 4096) - 2048) / 512;
  return a;
}

struct Ran {
  std::vector<Array> results;
  Stats stats;
};
Ran ran(const char* formula, const std::vector<Array>& arrays, Mode mode, int threads) {
  const FormulaProgram parsed = parse_formula(formula);
  Options options;
  options.mode = mode;
  options.threads = threads;
  Program program(parsed.record, parsed.inputs, options);
  std::vector<Argument> in;
  for (const Array& a : arrays) in.push_back({&a, {}});
  Ran out;
  out.results = program.call(in);
  out.stats = program.stats();
  return out;
}
std::int64_t bytes_of(const std::vector<Array>& arrays) {
  std::int64_t n = 0;
  for (const Array& a : arrays) n += static_cast<std::int64_t>(a.size()) * 4;
  return n;
}

}  // namespace

TEST_CASE("workspace: whole programs: size of temporaries, and equal bits", "[workspace]") {
  struct Row {
    const char* formula;
    std::int64_t temporaries;  // bytes of arrays between kernels, without results; x is f32[64, 48]
  };
  const Row rows[] = {
      {"x + 1", 0},
      {"x - sum(x)", 0},  // one kernel: every element of the result needs the sum, so the rows are run twice
      {"x[:, :24] - sum(x)", 64},
      {"m = sum(x, axis=1); m[1:] - m[:-1]", 256},                 // larger than the result, which is read through two affine maps
      {"t = erf(exp(x)); t + t[::-1] + t[:, ::-1]", 64 * 48 * 4},  // also larger, and read through three affine maps
  };
  const Array x = numbers({64, 48}, 5);
  for (const Row& row : rows) {
    INFO(row.formula);
    const Ran expected = ran(row.formula, {x}, Mode::reference, 1);
    for (const int threads : {1, 2, 3, 7})
      for (const Mode mode : {Mode::generic, Mode::unfused}) {
        const Ran got = ran(row.formula, {x}, mode, threads);
        REQUIRE(got.results.size() == expected.results.size());
        for (std::size_t k = 0; k < got.results.size(); ++k)
          CHECK(got.results[k].to_vector<float>() == expected.results[k].to_vector<float>());
        if (mode == Mode::generic) CHECK(got.stats.bytes_allocated - bytes_of(got.results) == row.temporaries);
      }
  }
}

TEST_CASE("workspace: a chain of kernels runs in the memory of its result", "[workspace]") {
  const Array x = numbers({1000}, 6);
  const Ran unfused = ran("sqrt(abs(x*2 - 1) + 3)*x", {x}, Mode::unfused, 1);
  CHECK(unfused.stats.launches == 6);
  CHECK(unfused.stats.bytes_allocated == bytes_of(unfused.results));
}

namespace {

// Runs f(x, y) into destinations, the first of which is x's or y's memory. Checks that the bits equal the bits of fresh arrays.
void check_in_place(const char* formula, std::size_t in_place_of, bool same_argument) {
  INFO(formula);
  const FormulaProgram parsed = parse_formula(formula);
  Program program(parsed.record, parsed.inputs, {});
  const Array x0 = numbers({100}, 7), y0 = numbers({100}, 8);
  const auto copy = [](const Array& a) {
    Array b = Array::empty({100}, f32);
    std::copy_n(a.span<const float>().begin(), 100, b.span<float>().begin());
    return b;
  };
  for (int run = 0; run < 4; ++run) {  // the baseline tier, then the optimized tier
    Array x = copy(x0), y = same_argument ? x : copy(y0);
    const std::vector<Argument> in = {{&x, {}}, {&y, {}}};
    const std::vector<Array> expected = program.call(in);
    Array b = Array::empty({100}, f32);
    Array* const targets[] = {in_place_of == 0 ? &x : &y, &b};
    program.call_into(in, targets);
    CHECK(targets[0]->to_vector<float>() == expected[0].to_vector<float>());
    CHECK(b.to_vector<float>() == expected[1].to_vector<float>());
  }
}

}  // namespace

TEST_CASE("workspace: a destination in an argument's memory is not written before the argument's last load", "[workspace]") {
  check_in_place("fn f(x, y) {\n a = x*2\n b = x + y\n return a, b\n}", 0, false);  // may be in place
  check_in_place("fn f(x, y) {\n a = x*2\n b = x + y\n return a, b\n}", 1, false);  // the other argument's memory, which is loaded later
  check_in_place("fn f(x, y) {\n a = x*2\n b = x + y\n return a, b\n}", 0, true);   // one array as both arguments
}
