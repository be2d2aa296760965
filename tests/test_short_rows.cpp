// Rows too short for a vector run as one loop. Operands that repeat in every row are read from replicated-row buffers; operands with one
// element for each row are broadcast within vectors. Checks the reference's bits, few loads, and one kernel for all lengths.
#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "compiler/simplify.h"
#include "compiler/unroll.h"
#include "every_mode.h"
#include "golden.h"
#include "how_long.h"
#include "plans_of.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

void check(const ir::Graph& graph, const RunOptions& options, bool strided = false, std::uint64_t seed = 7) {
  const Arguments arguments = random_arguments(graph, seed, strided);
  const std::vector<ir::ArrayView>& views = arguments.views;
  std::string what;
  CHECK(equals_bitwise(run(graph, views, options), ir::evaluate(graph, views), &what));
  CHECK(what.empty());
}

// Copies of arrays, each of which ends at a page that may not be read or written.
class GuardedArrays {
 public:
  explicit GuardedArrays(const std::vector<ir::ArrayView>& arrays) : views(arrays) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (ir::ArrayView& view : views) {
      const std::size_t bytes = static_cast<std::size_t>(ir::element_count(view.shape)) * size_of(view.dtype);
      const std::size_t room = (bytes + page - 1) / page * page;
      void* const at = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(at != MAP_FAILED);
      REQUIRE(mprotect(static_cast<std::byte*>(at) + room, page, PROT_NONE) == 0);
      mapped_.emplace_back(at, room + page);
      view.data = std::memcpy(static_cast<std::byte*>(at) + room - bytes, view.data, bytes);
    }
  }
  GuardedArrays(const GuardedArrays&) = delete;
  GuardedArrays& operator=(const GuardedArrays&) = delete;
  ~GuardedArrays() {
    for (const auto& [at, bytes] : mapped_) munmap(at, bytes);
  }
  std::vector<ir::ArrayView> views;

 private:
  std::vector<std::pair<void*, std::size_t>> mapped_;
};

void check_guarded(const ir::Graph& graph, const RunOptions& options = {}) {
  const Arguments arguments = random_arguments(graph, 3);
  const GuardedArrays guarded(arguments.views);
  std::string what;
  CHECK(equals_bitwise(run(graph, guarded.views, options), ir::evaluate(graph, arguments.views), &what));
  CHECK(what.empty());
}

}  // namespace

TEST_CASE("short rows: the reference's bits for every length, type, vector width and thread count", "[short_rows]") {
  for (const DType type : {f32, f64, f16, i32, u8, i64})
    for (const std::int64_t length : {2, 3, 5, 7, 16, 31, 33, 63, 64}) {
      const std::int64_t rows = 4096 / length + 37;
      const ir::Graph graph = optimised("y = x*w + v - c; z = broadcast_to(w*v, [x.shape[0], x.shape[1]])",
                                        {{"x", {rows, length}}, {"w", {length}}, {"c", {rows, 1}}, {"v", {length}}}, type);
      INFO(name_of(type) << " rows of " << length);
      CHECK(plans_of(graph).at(0).nest.short_rows);
      for (const int bytes : {64, 32, 16}) {
        if (bytes > Target::host().vector_bytes) continue;
        RunOptions options;
        options.target = Target::host().with_vector_bytes(bytes);
        check(graph, options);
        options.masked = true;
        if (is_checked(static_cast<std::size_t>(bytes / 32), static_cast<std::size_t>(length), 3)) check(graph, options);
        options.masked = false, options.threads = 3;
        if (bytes == 64) check(graph, options);
      }
    }
}

TEST_CASE("short rows: indices, predicates and functions of repeated operands", "[short_rows]") {
  for (const char* const formula :
       {"exp(x)*(iota([5], 0, f32) + 1) + exp(w)", "x*cast(iota([1000, 5], 0), f32) + w", "x + pad(w[1:3], 1, 2)", "x*where(w > 0.5, w, c)",
        "x*lgamma(w - 0.5) + remainder(c, 3)", "x*w > c", "w*ones([1000, 5])"}) {
    INFO(formula);
    const ir::Graph graph = optimised(formula, {{"x", {1000, 5}}, {"w", {5}}, {"c", {1000, 1}}});
    for (const bool masked : {false, true}) {
      RunOptions options;
      options.masked = masked;
      check(graph, options);
    }
  }
}

TEST_CASE("short rows: strided and reversed operands are not mistaken for one element per row", "[short_rows]") {
  for (const char* const formula :
       {"x[:, :, 1] + w", "x[:, :, 0]*w + x[:, :, 2]", "flip(x[:, :, 0], [0, 1]) + w", "reshape(reshape(x, [-1])[::3], [1000, 8]) > w"}) {
    INFO(formula);
    const ir::Graph graph = optimised(formula, {{"x", {1000, 8, 3}}, {"w", {8}}});
    for (const int bytes : {64, 32, 16}) {
      if (bytes > Target::host().vector_bytes) continue;
      RunOptions options;
      options.target = Target::host().with_vector_bytes(bytes);
      check(graph, options);
    }
  }
  const ir::Graph graph = optimised("x*w + c", {{"x", {1000, 8}}, {"w", {8}}, {"c", {1000, 1}}});
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    check(graph, {}, true, seed);
  }
}

TEST_CASE("short rows: selection of short rows, and one kernel for all lengths", "[short_rows]") {
  const auto short_rows = [](const char* formula, std::vector<std::pair<std::string, Shape>> inputs) {
    const std::vector<Planned> plans = plans_of(optimised(formula, inputs));
    return plans.size() == 1 && plans[0].nest.short_rows;
  };
  CHECK(short_rows("x*w + b", {{"x", {5000, 3}}, {"w", {3}}, {"b", {3}}}));
  CHECK(short_rows("(x - m)/s", {{"x", {64, 48, 3}}, {"m", {3}}, {"s", {3}}}));
  CHECK(short_rows("x/n", {{"x", {5000, 3}}, {"n", {5000, 1}}}));
  CHECK_FALSE(short_rows("x*2", {{"x", {5000, 3}}}));                                 // one loop anyway
  CHECK_FALSE(short_rows("x*w", {{"x", {50, 3}}, {"w", {3}}}));                       // too few rows for replicated-row buffers
  CHECK_FALSE(short_rows("x*w", {{"x", {5000, 65}}, {"w", {65}}}));                   // long enough
  CHECK_FALSE(short_rows("x + transpose(y)", {{"x", {5000, 3}}, {"y", {3, 5000}}}));  // depends on both row and column
  CHECK_FALSE(short_rows("x[:, :3]*w", {{"x", {5000, 4}}, {"w", {3}}}));              // rows with gaps
  std::set<std::string> keys;
  for (const std::int64_t n : {2, 3, 17, 64})
    for (const std::int64_t rows : {4096, 5001})
      keys.insert(plans_of(optimised("x*w + c", {{"x", {rows, n}}, {"w", {n}}, {"c", {rows, 1}}}))[0].nest.key());
  CHECK(keys.size() == 1);
}

TEST_CASE("short rows: a body that reads much across the rows is not written out for each column", "[short_rows]") {
  const auto phases = [](const char* formula, Shape shape) {
    return int{plans_of(ir::prune(unroll(optimised(formula, {{"x", shape}})).value())).at(0).nest.phases};
  };
  CHECK(phases("v = x*x; v/sum(v, -1, keepdims=true)", {5000, 8}) == 8);
  CHECK(phases("sum(transpose(x), -1)", {8, 8, 8, 8}) == 1);  // 64 arrays to transpose
  same_everywhere("sum(transpose(x), -1)", {{"x", random_array({8, 8, 8, 8})}});
}

TEST_CASE("short rows: rows of short rows are written out together, or a longer loop is vectorized", "[short_rows]") {
  const auto plan = [](const char* formula, Shape shape) { return plans_of(optimised(formula, {{"x", shape}})).at(0); };
  const Planned both = plan("x*(1 + iota([2]))[:, none]", {500, 2, 3});
  CHECK(both.nest.phases == 6);
  CHECK(both.numbers.extents == Shape{500});
  CHECK(plan("repeat(x, 2, 1)", {30, 70, 3}).nest.phases == 6);  // an axis that the map has split
  const Planned longer = plan("x[:, :, none, :]*x[:, :, :, none]", {30, 70, 5});
  CHECK(longer.numbers.extents.back() == 2100);
  CHECK(plan("x[:, :, none, :]*x[:, :, :, none]", {30, 70, 3}).nest.phases == 9);
  CHECK(plan("v = repeat(x, 2, 1); v - mean(v, 0)", {30, 700}).numbers.extents == Shape{2, 30, 700});
  for (const std::string text :
       {"sum(repeat(x, 2, 2), 0)", "v = repeat(x, 2, 2)*2; v - max(v, 1, keepdims=true)", "x*(1 + iota([x.shape[1]]))[:, none]",
        "x[:, ::-1] + 1", "repeat(x, 2, 1)", "tile(x, [1, 1, 2])", "transpose(x, [0, 2, 1])", "transpose(x, [2, 0, 1])",
        "repeat(x, 3, 1)[1:, :, ::2]", "x[:, :, none, :]*x[:, :, :, none]", "take(x, cast(iota([x.shape[2]])[::-1], i32), 2)",
        "roll(x, 1, 1)", "concat([x, x[:, ::-1]*2], 1)", "pad(x, [0, 1, 0], [0, 0, 2])", "a = x[:, ::-1]*2; b = repeat(x, 2, 1)"})
    for (const Shape& shape : {Shape{500, 2, 3}, Shape{257, 3, 2}, Shape{90, 4, 4}, Shape{90, 7, 5}})
      for (const onepass::DType type : {onepass::f32, onepass::u8}) {
        INFO(text);
        same_everywhere(text, {{"x", random_array(shape, type)}});
      }
}

// Whole registers are loaded from operands with one element for each row, even for the last rows. No load may read past the array's end.
TEST_CASE("short rows: nothing past an array's end is read", "[short_rows]") {
  for (const DType type : {f32, f64, f16, u8})
    for (const std::int64_t length : {2, 3, 7, 64}) {
      const std::int64_t rows = 4096 / length + 5;
      const ir::Graph graph = optimised("x*c + c", {{"x", {rows, length}}, {"c", {rows, 1}}}, type);
      CHECK(plans_of(graph).at(0).nest.short_rows);
      INFO(name_of(type) << " rows of " << length);
      for (const bool masked : {false, true}) {
        RunOptions options;
        options.masked = masked;
        check_guarded(graph, options);
      }
    }
}

TEST_CASE("short rows: each array is loaded about once", "[short_rows]") {
  const ir::Graph graph = optimised("x*w + c", {{"x", {20000, 3}}, {"w", {3}}, {"c", {20000, 1}}});
  const Arguments arguments = random_arguments(graph, 1);
  Counts counts;
  RunOptions options;
  options.counts = &counts;
  run(graph, arguments.views, options);
  CHECK(counts.bytes_read == 4 * (60000 + 3 + 20000));
  CHECK(counts.bytes_written == 4 * 60000);
}

namespace {
// Returns two of four types, so that each type is tested with odd and even numbers of columns, in one and two vectors.
std::vector<DType> types_of(std::int64_t places) {
  const std::vector<DType> all = {f32, f64, f16, DType::U8};
  if (is_full_run()) return all;
  return places / 2 % 2 == 0 ? std::vector{all[0], all[3]} : std::vector{all[1], all[2]};
}
}  // namespace

TEST_CASE("short rows: columns stored to separate planes are interleaved in one iteration", "[short_rows]") {
  for (const std::int64_t places : {2, 3, 4, 7, 8, 9}) {
    INFO(places << " places");
    const ir::Graph graph = optimised("transpose(q, [2, 0, 1])*s", {{"q", {70, 90, places}}, {"s", {}}});
    const std::vector<compiler::Planned> plans = plans_of(graph);
    REQUIRE(plans.size() == 1);
    CHECK(int{plans[0].nest.phases} == (places <= 8 ? places : 1));
    for (const DType type : types_of(places)) {
      const NamedArrays inputs = {{"q", random_array({5, 70, 90, places}, type)}, {"s", random_array({places, 1, 1}, type, 2)}};
      same_everywhere("transpose(q, [0, 3, 1, 2])", inputs);
      same_everywhere("transpose(q[2], [2, 0, 1])*s", inputs);
      same_everywhere("transpose(q[1:, 1:, :, :], [3, 0, 1, 2]) + transpose(q[1:, 1:, :, ::-1], [3, 0, 1, 2])", inputs);
    }
  }
}

TEST_CASE("short rows: columns read from separate planes are interleaved in one iteration", "[short_rows]") {
  for (const std::int64_t places : {2, 3, 4, 5, 7, 8, 9}) {
    INFO(places << " places");
    const ir::Graph graph = optimised("transpose(q, [1, 2, 0])*s", {{"q", {places, 70, 90}}, {"s", {places}}});
    const std::vector<compiler::Planned> plans = plans_of(graph);
    REQUIRE(plans.size() == 1);
    CHECK(int{plans[0].nest.phases} == (places <= 8 ? places : 1));
    for (const DType type : types_of(places)) {
      const NamedArrays inputs = {{"q", random_array({places, 70, 90}, type)}, {"s", random_array({places}, type, 2)}};
      same_everywhere("transpose(q, [1, 2, 0])*s", inputs);
      same_everywhere("transpose(q[:, 1:, ::2], [1, 2, 0]) + transpose(q[:, :69, 1::2], [1, 2, 0])", inputs);
    }
  }
}

namespace {
struct Reduction {
  const char* formula;
  bool of_floats;
};
constexpr Reduction kReductions[] = {
    {"softmax(x)", true},
    {"log_softmax(x)", true},
    {"sum(x, axis=1, keepdims=true) - x*w", false},
    {"d = x - mean(x, axis=1)[:, none]; y = d/sqrt(mean(d*d, axis=1)[:, none] + 0.001)*w + c", true},
    {"s = softmax(x); g = cos(s); y = s*(g - sum(g*s, axis=1)[:, none])", true},
    {"a = sum(x*w, axis=1); b = max(x, axis=1)*c[:, 0]; y = x - min(x, axis=1)[:, none]; z = prod(x, axis=1)[:, none]*w", false},
    {"y = x*sum(cast(x, f64), axis=1)[:, none]; z = sum(x*w, axis=1)", true},
    {"s = softmax(x); y = s*w; z = x - s; a = max(y, axis=1); b = exp(z) - sum(z, axis=1)[:, none]", true},
};
std::string log_of(const ir::Graph& graph, const RunOptions& options, std::uint64_t seed) {
  std::string log;
  RunOptions logged = options;
  logged.log = &log;
  check(graph, logged, false, seed);
  return log;
}
}  // namespace

TEST_CASE("short rows: reductions put rows in the lanes of vectors, with the reference's bits", "[short_rows]") {
  constexpr std::string_view kChosen = "rows in the lanes of a vector";
  std::uint64_t seed = 0;
  for (std::int64_t length = 2; length <= 40; length += is_full_run() || length < 9 ? 1 : 1 + length % 3)
    for (const DType type : {f32, f64, f16, DType::BF16, i32}) {
      const Reduction& r = kReductions[seed % std::size(kReductions)];
      if (r.of_floats && !is_float(type)) continue;
      for (const std::int64_t rows : {1, 15, 16, 17, 64, 79, 1000}) {
        ++seed;
        if (!is_full_run() && (rows == 1000 ? (length + static_cast<std::int64_t>(type)) % 5 : seed % 23) != 0) continue;
        INFO(r.formula << " on " << name_of(type) << " [" << rows << ", " << length << "]");
        const ir::Graph graph = optimised(r.formula, {{"x", {rows, length}}, {"w", {length}}, {"c", {rows, 1}}}, type);
        RunOptions options;
        options.threads = seed % 2 ? 1 : 2;
        const std::string log = log_of(graph, options, seed);
        if (length >= 9 && length <= 32 && rows == 1000 && type == f32 && Target::host().vector_bytes == 64)
          CHECK(log.find(kChosen) != std::string::npos);
        if (length > 32) CHECK(log.find(kChosen) == std::string::npos);
        check(graph, options, true, seed);
        options.masked = true;
        check(graph, options, seed % 3 == 0, seed);
        std::int64_t tiled = 0;
        options.tiled = &tiled;
        check(graph, options, seed % 3 == 2, seed);
        options.tiled = nullptr;
        for (const int bytes : {16, 32}) {
          options.masked = false;
          options.target = Target::host().with_vector_bytes(bytes);
          check(graph, options, seed % 3 == 1, seed);
        }
      }
    }
}

TEST_CASE("short rows: reductions of strided, reversed and transposed rows", "[short_rows]") {
  for (const std::int64_t length : {9, 16, 24, 31})
    for (const char* const text :
         {"softmax(q[0, :, ::-1])", "softmax(q[0, ::-1, :])", "softmax(transpose(q[0, :90, :], [1, 0]))",
          "softmax(q[0, ::2, :]) + q[1, ::2, :]", "softmax(q[:, 5, :])", "softmax(q) - max(q[:, ::-1, :], axis=2)[:, :, none]",
          "sum(q[:, :, 1:]*q[:, :, :-1], axis=2)", "sum(transpose(q, [1, 0, 2]), axis=2, keepdims=true)"}) {
      const NamedArrays inputs = {{"q", random_array({3, 200, length}, length % 2 ? f32 : f64)}};
      same_everywhere(text, inputs);
    }
}

// The rows are read at indices that are themselves rows in lanes.
TEST_CASE("short rows: reductions of rows read at indices from data", "[short_rows]") {
  const ir::Graph graph = ir::parse_graph(R"(
    %0 = input x : f32[64, 1, 64, 4]
    %1 = argsort %0 {1, 1} : i64[64, 1, 64, 4]
    %2 = gather %0, %1 {1} : f32[64, 1, 64, 4]
    %3 = contract_lanes %2, %2 {3} : f32[64, 1, 64]
    %4 = permute %2 {1, 0, 2, 3} : f32[1, 64, 64, 4]
    %5 = reshape %4 : f32[64, 64, 4]
    %6 = iota {1} : i64[64, 1, 64, 4]
    %7 = equal %6, %1 : bool[64, 1, 64, 4]
    %8 = constant 0 = 0x00000000 : f32[64, 1, 64, 4]
    %9 = where %7, %0, %8 : f32[64, 1, 64, 4]
    %10 = reshape %9 : f32[64, 64, 4]
    %11 = contract_lanes %10, %5 {2} : f32[64, 64]
    return a = %3, b = %11
  )");
  for (const bool strided : {false, true}) check(graph, {}, strided);
}

// Each row of a vector has its own index.
TEST_CASE("short rows: reductions of rows with an element at an index from data", "[short_rows]") {
  for (const DType type : {f32, f64})
    for (const std::int64_t length : {9, 10, 31})
      for (const char* const text : {"cross_entropy(x, 8*cast(l > 0, i64))", "dx = grad(sum(cross_entropy(x, 8*cast(l > 0, i64))), [x])",
                                     "sum(x, axis=1) + take_along_axis(x, reshape(8*cast(l > 0, i64), [203, 1]), axis=1)[:, 0]"}) {
        INFO(text << " on " << name_of(type) << " [203, " << length << "]");
        const ir::Graph graph = optimised(text, {{"x", {203, length}}, {"l", {203}}}, type);
        const std::string log = log_of(graph, {}, 5);
        if (type == f32 && length < 31 && Target::host().vector_bytes == 64)
          CHECK(log.find("rows in the lanes of a vector") != std::string::npos);
        for (const bool strided : {false, true}) check(graph, {.threads = 2}, strided);
        for (const int bytes : {16, 32}) check(graph, {.target = Target::host().with_vector_bytes(bytes)});
      }
  for (const std::size_t bad : {0U, 17U, 202U}) {
    std::vector<std::int32_t> labels(203, 9);
    labels[bad] = 10;
    const std::string error = error_of("cross_entropy(x, l)", {{"x", random_array({203, 10}, f32)}, {"l", Array::from(labels)}});
    CHECK(error.find(fmt::format("the label 10 of sample [{}] is out of range", bad)) != std::string::npos);
  }
}

TEST_CASE("short rows: products with a small matrix are written out", "[short_rows]") {
  const std::optional<ir::Graph> graph = unroll(optimised("p @ m", {{"p", {4096, 4}}, {"m", {4, 3}}}));
  REQUIRE(graph);
  CHECK(plans_of(ir::prune(*graph)).at(0).nest.phases == 3);
  // One formula: neither the lengths of a product that is written out nor those of another one may be taken for each other.
  for (const char* text : {"p @ m", "maximum((p*2) @ m - 1, 0)", "y = p @ m; s = sum(y*y); r = y / norm(y, -1, keepdims=true)"}) {
    INFO(text);
    const Formula f = formula(text, {.mode = Mode::generic});
    for (const auto& [rows, k, n] : std::vector<std::array<std::int64_t, 3>>{{300, 4, 4},
                                                                             {300, 5, 4},
                                                                             {300, 4, 5},
                                                                             {300, 2, 8},
                                                                             {300, 8, 8},
                                                                             {300, 8, 2},
                                                                             {300, 12, 4},
                                                                             {300, 4, 20},
                                                                             {3, 4, 4},
                                                                             {70, 3, 3}}) {
      INFO(rows << " rows, " << k << " by " << n);
      const NamedArrays inputs = {{"p", random_array({rows, k})}, {"m", random_array({k, n}, f32, 2)}};
      const FormulaResults got = run_formula(f, inputs), expected = run_formula(formula(text, {.mode = Mode::reference}), inputs);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(bytes_of(got[i]) == bytes_of(expected[i]));
    }
  }
  for (const DType type : {f32, f64, f16, DType::I32})
    same_everywhere("q @ m", {{"q", random_array({9, 40, 3}, type)}, {"m", random_array({3, 3}, type, 2)}});
  same_everywhere("q @ transpose(m)", {{"q", random_array({90, 3})}, {"m", random_array({5, 3})}});
}

// Squares of short rows may extend beyond an array.
TEST_CASE("short rows: reductions read and write nothing past an array's end", "[short_rows]") {
  for (const DType type : {f32, f64, f16})
    for (const std::int64_t length : {9, 17, 31}) check_guarded(optimised("softmax(x)", {{"x", {100, length}}}, type));
}

// Whole vectors are loaded and the elements of the columns are selected. The last vector ends at the last element that is read.
TEST_CASE("short rows: some of two to four columns are read in whole vectors", "[short_rows]") {
  for (const std::int64_t columns : {2, 3, 4, 5})
    for (std::int64_t first = 0; first < columns; ++first) {
      const std::string column = fmt::format("x[{}::{}]", first, columns);
      INFO(column);
      const std::int64_t rows = 300 + 7 * first;
      for (const DType type : types_of(2 * columns)) {
        const std::int64_t end = (rows - 1) * columns + first + 1;  // the last element of the column
        const ir::Graph graph = optimised(column + "*2", {{"x", {end}}}, type);
        const compiler::Nest nest = plans_of(graph).at(0).nest;
        CHECK((nest.accesses[0].first != compiler::Access::kNone) == (columns <= 4));
        for (const int bytes : {16, 32, 64}) {
          RunOptions options;
          if (bytes > compiler::Target::host().vector_bytes) continue;
          options.target.vector_bytes = bytes;
          check_guarded(graph, options);
        }
        same_everywhere(column + "*2", {{"x", random_array({end}, type)}});
      }
      same_everywhere(fmt::format("y = x[:, {0}] - x[:, {1}]*x[:, {0}]; z = sum(x[:, {0}]); w = x[:, {0}::2]*3", first, columns - 1),
                      {{"x", random_array({rows, columns})}});
    }
}

// Random numbers come four at a time. The last group of four elements of x may extend beyond its end.
TEST_CASE("short rows: a group of which an element lies behind the array is not read in whole vectors", "[short_rows]") {
  for (const DType type : {f32, u8})
    for (const std::int64_t length : {31, 63, 61, 62}) {
      INFO(name_of(type) << " " << length);
      check_guarded(optimised("x + normal(5, x.shape)", {{"x", {length}}}, type));
      check_guarded(optimised("roll(x, 2)*normal(5, x.shape)", {{"x", {length}}}, type));
    }
}

// Several rows are summed at once. Each row has its own whole vectors.
TEST_CASE("short rows: several rows with every second element", "[short_rows]") {
  for (const DType type : {f32, f64})
    for (const std::int64_t columns : {32, 33, 66})
      same_everywhere("sum(x[:, ::2]*sum(x, 0)[::2], -1)", {{"x", random_array({16, columns}, type)}});
}
