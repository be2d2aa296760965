// Schedules: the kernel variants of a nest. Lengths that need no other variant change only numbers.
#include <catch2/catch.hpp>

#include <set>

#include <fmt/format.h>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "golden.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

Scheduled scheduled(const char* formula, const std::vector<std::pair<std::string, Shape>>& inputs,
                    const Target& target = Target::generic_cpu(), const ScheduleOptions& options = {}) {
  const ir::Graph graph = optimised(formula, inputs);
  const Partition partition = fuse(graph);
  REQUIRE(partition.groups.size() == 1);
  const std::vector<Layout> layouts(graph.size());
  const Planned p = plan(graph, partition, 0, layouts).at(0);
  return schedule(p.nest, p.numbers, target, options);
}

constexpr const char* kSoftmax = "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)";

}  // namespace

TEST_CASE("schedule: a kernel has few variants for all lengths", "[schedule]") {
  std::set<std::string> map, softmax, columns;
  for (std::int64_t n = 2; n < 40'000'000; n = n * 3 / 2 + 1) {
    map.insert(scheduled("x*2 + y", {{"x", {n}}, {"y", {n}}}).schedule.key());
    softmax.insert(scheduled(kSoftmax, {{"x", {5, n}}}).schedule.key());
    columns.insert(scheduled("sum(x, axis=0)", {{"x", {n, 70}}}).schedule.key());
  }
  CHECK(map.size() == 3);      // with or without prefetches; cached or non-temporal stores
  CHECK(softmax.size() <= 4);  // one block or several; rows cached in a buffer or not; non-temporal stores
  CHECK(columns.size() == 2);  // one block or several
}

TEST_CASE("schedule: non-temporal stores need traffic that fills the last-level cache, and aligned destinations and rows", "[schedule]") {
  Target target = Target::generic_cpu();
  const auto nontemporal = [&](std::int64_t n, std::int64_t m, ScheduleOptions options = {}) {
    return !scheduled("x*2 + y", {{"x", {n, m}}, {"y", {n, 1}}}, target, options).schedule.streamed.empty();
  };
  target.llc_bytes = 1 << 20;
  CHECK(!nontemporal(100, 160));
  CHECK(nontemporal(10000, 160));
  CHECK(!nontemporal(600, 160));    // three quarters of the cache
  CHECK(nontemporal(800, 160));     // all but a thirtieth
  CHECK(!nontemporal(10000, 161));  // the rows do not start at multiples of 64 bytes
  CHECK(!nontemporal(10000, 160, {.threads = 1, .aligned_stores = false}));
  CHECK(!nontemporal(10000, 160, {.in_place = {true, true, true}}));  // the operands are already in the caches
  CHECK(nontemporal(10000, 160, {.in_place = {false, false, false}}));
}

TEST_CASE("schedule: another vector width changes only the width", "[schedule]") {
  for (const int bytes : {16, 32, 64}) {
    const Scheduled s = scheduled("x*2 + y", {{"x", {1000}}, {"y", {1000}}}, Target::generic_cpu().with_vector_bytes(bytes));
    CHECK(s.schedule.vector_bytes == bytes);
    CHECK(s.schedule.width == 2 * bytes / 4);
    CHECK(s.numbers.bytes_read == 8000);
    CHECK(s.numbers.bytes_written == 4000);
  }
}

TEST_CASE("schedule: dependency chains use more registers at once, as many as the target has", "[schedule]") {
  const Target narrow = Target::generic_cpu(), wide = narrow.with_vector_bytes(64);
  const auto registers = [](const char* formula, const Target& target, DType dtype = DType::F32) {
    const ir::Graph graph = optimised(formula, {{"x", {1000}}}, dtype);
    const Planned p = plan(graph, fuse(graph), 0, std::vector<Layout>(graph.size())).at(0);
    return schedule(p.nest, p.numbers, target).schedule.width * static_cast<int>(size_of(dtype)) / target.vector_bytes;
  };
  std::string chain = "x", long_chain;
  for (int i = 0; i < 20; ++i) chain = "(" + chain + "*1.1 + 0.3)";
  long_chain = chain;
  for (int i = 0; i < 150; ++i) long_chain = "(" + long_chain + "*1.1 + 0.3)";
  CHECK(registers("x*2 + 1", wide) == 2);
  CHECK(registers(chain.c_str(), wide) == 16);
  CHECK(registers(chain.c_str(), narrow) == 8);  // half as many registers
  CHECK(registers(long_chain.c_str(), wide) == 16);
  CHECK(registers("exp(x)", wide) == 4);
  CHECK(registers("exp(x)", narrow) == 2);
  CHECK(registers("exp(x)", wide, DType::F64) == 2);
}

TEST_CASE("schedule: a body with too many instructions runs in fissioned loops", "[schedule]") {
  const Target wide = Target::generic_cpu().with_vector_bytes(64);
  std::string chain = "x";  // steps that do not repeat
  const auto step = [&](std::uint32_t i) { chain = "(" + chain + (i * 2654435761u >> 30 < 2 ? "*1.1 + y)" : " - y*1.1)"); };
  for (std::uint32_t i = 0; i < 50; ++i) step(i);
  CHECK(scheduled(chain.c_str(), {{"x", {1000}}, {"y", {1000}}}, wide).schedule.parts.empty());
  for (std::uint32_t i = 50; i < 300; ++i) step(i);
  const Scheduled s = scheduled(chain.c_str(), {{"x", {1000}}, {"y", {1000}}}, wide);
  CHECK(s.schedule.parts.size() >= 1);
  CHECK(quick_form(s.schedule).parts.empty());
  CHECK(s.numbers.bytes_read == 8000);  // all fissioned loops need y, but it is read once
  // stays whole if too many values are live at every cut
  const auto side_by_side = [&](int chains, int steps) {
    std::string text, sum = "x";
    for (int k = 0; k < chains; ++k) text += "v" + std::to_string(k) + "_0 = x*" + std::to_string(k + 2) + "; ";
    for (int i = 0; i < steps; ++i)
      for (int k = 0; k < chains; ++k) {
        const std::string v = "v" + std::to_string(k) + "_";
        text += v + std::to_string(i + 1) + (std::uint32_t(i) * 2654435761u >> 31 ? " = exp(" : " = exp2(") + v + std::to_string(i) + "); ";
      }
    for (int k = 0; k < chains; ++k) sum += " + v" + std::to_string(k) + "_" + std::to_string(steps);
    return scheduled((text + "out = " + sum).c_str(), {{"x", {1000}}}, wide).schedule;
  };
  CHECK(side_by_side(2, 18).parts.size() == 2);
  CHECK(side_by_side(6, 6).parts.empty());
}

TEST_CASE("schedule: unrolled iterations become a rerolled loop", "[schedule]") {
  const Target wide = Target::generic_cpu().with_vector_bytes(64);
  // `each` is one step: ? is the last step's value, # the step's number
  const auto repeated = [&](int steps, std::string_view each, const char* result = "") {
    std::string text = "v0 = x*y; ";
    for (int i = 1; i <= steps; ++i) {
      text += "v" + std::to_string(i) + " = ";
      for (const char c : each) text += c == '?' ? "v" + std::to_string(i - 1) : c == '#' ? std::to_string(i) + ".5" : std::string(1, c);
      text += "; ";
    }
    text += *result ? result : "out = v" + std::to_string(steps);
    return scheduled(text.c_str(), {{"x", {1000}}, {"y", {1000}}}, wide).schedule;
  };
  const Rolled plain = repeated(300, "?*# + y").rolled;
  CHECK(plain.count * plain.period >= 3 * 296);  // a scalar parameter, a product, a sum
  CHECK(plain.slots == plain.period / 3);
  CHECK(repeated(300, "?*# + y").parts.empty());
  CHECK(quick_form(repeated(300, "?*# + y")).rolled == plain);
  CHECK(repeated(16, "tanh(?)*# - ?").rolled.count >= 14);
  CHECK(repeated(64, "where(? < #, abs(?*#), y)*0.25 + #").rolled.count >= 4);
  CHECK(repeated(40, "?*# + y").rolled.count == 0);  // too short for a loop
  CHECK(repeated(300, "?*# + y", "out = v300; early = v20").rolled.count == 0);
  const Rolled used_twice = repeated(300, "?*# + y", "out = v300*x + y; again = v300 - x").rolled;
  CHECK(used_twice.count * used_twice.period >= 3 * 290);
  CHECK(repeated(300, "?*# + y").key() != repeated(299, "?*# + y").key());
  // a chain whose steps add and subtract: a subtracted number is added with changed sign
  std::string text = "v0 = x*2; ";
  for (std::uint32_t i = 0; i < 256; ++i) {
    const std::string last = "v" + std::to_string(i), number = "*1.1 " + std::string(i * 2654435761u >> 31 ? "+" : "-") + " 0.25";
    text += "v" + std::to_string(i + 1) + " = " + (i % 8 == 7 ? "maximum(" + last + ", -" + last + ")*0.5" : last + number) + "; ";
  }
  CHECK(scheduled((text + "out = v256").c_str(), {{"x", {1000}}}, wide).schedule.rolled.count == 32);
  // Fibonacci: a step reads the value of two steps before, so one loop iteration is two steps
  std::string pair = "v0 = x*2; v1 = x*3; ";
  for (int i = 0; i < 200; ++i)
    pair += "v" + std::to_string(i + 2) + " = v" + std::to_string(i) + "*0.5 + v" + std::to_string(i + 1) + "; ";
  CHECK(scheduled((pair + "out = v201").c_str(), {{"x", {1000}}}, wide).schedule.rolled.count >= 4);
}

TEST_CASE("schedule: operators of rerolled iterations count once", "[schedule]") {
  std::string text = "a0 = x";
  for (int i = 1; i <= 30; ++i) text += fmt::format("; a{} = exp(a{} - 2)*y", i, i - 1);
  const Schedule s = scheduled((text + "; z = a30").c_str(), {{"x", {1000}}, {"y", {1000}}}).schedule;
  CHECK(s.rolled.count > 25);
  CHECK(s.called.empty());  // the iterations beside the loop are few
}

TEST_CASE("schedule: bytes count distinct elements, and again for each sweep over rows that fit no cache", "[schedule]") {
  const auto bytes = [](const char* formula, std::vector<std::pair<std::string, Shape>> inputs) {
    const ScheduleNumbers n = scheduled(formula, inputs).numbers;
    return std::pair(n.bytes_read, n.bytes_written);
  };
  using Bytes = std::pair<std::int64_t, std::int64_t>;
  CHECK(bytes("x*s + t", {{"x", {10, 20}}, {"s", {20}}, {"t", {10, 1}}}) == Bytes(4 * 230, 800));
  CHECK(bytes("x[1:] - x[:-1]", {{"x", {101}}}) == Bytes(404, 400));
  CHECK(bytes("x[::2] + x[1::2]", {{"x", {100}}}) == Bytes(400, 200));
  CHECK(bytes(kSoftmax, {{"x", {4, 1000}}}) == Bytes(16000, 16000));
  CHECK(bytes(kSoftmax, {{"x", {2, 1'000'000}}}) == Bytes(3 * 8'000'000, 8'000'000));
  CHECK(bytes("x - sum(x, axis=0, keepdims=true)", {{"x", {20, 1000}}}) == Bytes(80000, 80000));
  CHECK(bytes("x - sum(x, axis=0, keepdims=true)", {{"x", {5000, 1000}}}) == Bytes(2 * 20'000'000, 20'000'000));
}

TEST_CASE("schedule: composites over rows move the necessary bytes, plus at most two reads if a row fits no cache", "[schedule]") {
  struct Row {
    const char* formula;
    bool affine, labels;
  };
  for (const Row& row : {Row{"softmax(x)", false, false},
                         {"layer_norm(x, s, t)", true, false},
                         {"rms_norm(x, s)", true, false},
                         {"cross_entropy(x, cast(l, i32))", false, true}}) {
    INFO(row.formula);
    const std::string formula = row.formula;
    const auto moved = [&](std::int64_t n, std::int64_t m) {
      std::vector<std::pair<std::string, Shape>> inputs{{"x", {n, m}}};
      std::int64_t least =
          4 * n * m + (row.labels ? 4 * n + 4 * n : 4 * n * m);  // x and the results: the same size, or a loss and a label for each row
      for (const char* const name : {"s", "t"})
        if (row.affine && formula.find(std::string(", ") + name) != std::string::npos) inputs.push_back({name, {m}}), least += 4 * m;
      if (row.labels) inputs.push_back({"l", {n}});
      for (const int threads : {1, 2}) {
        const ScheduleNumbers numbers = scheduled(row.formula, inputs, Target::generic_cpu(), {.threads = threads}).numbers;
        const std::int64_t bytes = numbers.bytes_read + numbers.bytes_written;
        CHECK(bytes >= least);
        CHECK(bytes <= (m == 1024 ? least : least + 2 * 4 * n * m + (row.affine ? 2 * 4 * m : 0)));
      }
    };
    moved(4096, 1024);
    moved(4, 10'000'000);
  }
}

TEST_CASE("schedule: a scatter is partitioned by destination if its other axes are too narrow for the threads", "[schedule]") {
  const auto adds = [](std::int64_t updates, std::int64_t places, std::int64_t width, int threads) {
    const ir::Graph graph =
        optimised("index_add(x, cast(i, i64), u, 0)", {{"x", {places, width}}, {"i", {updates}}, {"u", {updates, width}}});
    const Partition partition = fuse(graph);
    REQUIRE(partition.groups.size() == 2);  // the initial values and the additions
    const Planned p = plan(graph, partition, 1, std::vector<Layout>(graph.size())).at(0);
    return schedule(p.nest, p.numbers, Target::generic_cpu(), {.threads = threads});
  };
  const auto ranges = [&](std::int64_t updates, std::int64_t places, std::int64_t width, int threads) {
    const Scheduled s = adds(updates, places, width, threads);
    CHECK(s.schedule.by_place == (s.numbers.chunks > 1));
    CHECK(s.numbers.chunks * s.numbers.chunk >= (s.schedule.by_place ? places : 0));
    return s.numbers.chunks;
  };
  CHECK(ranges(1'000'000, 500'000, 1, 1) == 1);
  CHECK(ranges(1'000'000, 500'000, 1, 2) == 2);
  CHECK(ranges(1'000'000, 500'000, 1, 3) == 3);
  CHECK(ranges(1'000'000, 5000, 1, 3) == 1);  // in the cache, adding a number is as fast as checking its index
  CHECK(ranges(1'000'000, 5000, 3, 3) == 3);
  CHECK(ranges(1'000'000, 1000, 3, 7) == 3);  // about a page each
  CHECK(ranges(1'000'000, 100, 3, 2) == 1);
  CHECK(ranges(100, 5000, 3, 2) == 1);  // little work
  CHECK(ranges(100'000, 5000, 64, 2) == 2);
  CHECK(adds(100'000, 100, 64, 2).numbers.items == 2);  // threads split columns, since there are few rows
  CHECK(ranges(100'000, 5000, 1000, 2) == 1);
  CHECK(adds(100'000, 5000, 1000, 2).numbers.items == 2);
}
