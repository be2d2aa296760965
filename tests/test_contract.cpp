// matmul, dot, outer and einsum: results, summation order, number of kernels, and errors.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "formula_inputs.h"
#include "golden.h"
#include "has_codegen.h"
#include "how_long.h"
#include "onepass/error.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

// Returns small integers, whose sums of products are exact in any order, or fractions, whose sums are not exact.
std::vector<ir::Buffer> values_for(const ir::Graph& graph, bool exact) {
  std::mt19937 random(7);
  std::vector<ir::Buffer> out;
  for (const ir::Input& input : graph.inputs) {
    const ir::List shape = graph.list(input.shape);
    const auto n = static_cast<std::size_t>(ir::element_count(shape));
    ir::Buffer b{input.dtype, {shape.begin(), shape.end()}, std::vector<std::byte>(n * size_of(input.dtype))};
    for (std::size_t i = 0; i < n; ++i) {
      const double v = exact ? static_cast<double>(random() % 9) - 4 : static_cast<double>(random()) / 4294967296.0 - 0.5;
      const std::uint64_t bits = ir::bits_of(input.dtype, v);
      std::memcpy(b.bytes.data() + i * size_of(input.dtype), &bits, size_of(input.dtype));
    }
    out.push_back(std::move(b));
  }
  return out;
}

double element(const ir::Buffer& b, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, b.bytes.data() + i * size_of(b.dtype), size_of(b.dtype));
  return ir::double_of(b.dtype, bits);
}

// Checks that kernels give the reference's bits: fused and unfused, in both tiers and specialized, with several thread ranges and register
// widths. Short runs have one of these forms for each width, in turn.
void equal_everywhere(const ir::Graph& graph, const std::vector<ir::Buffer>& arguments, std::optional<std::size_t> kernels = {}) {
  INFO(ir::print(graph));
  CHECK(ir::print(ir::parse_graph(ir::print(graph))) == ir::print(graph));
  if (kernels) CHECK(fuse(graph).groups.size() == *kernels);
  if (!has_codegen()) return;
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, views_of(arguments));
  static std::size_t checks = 0;
  for (const bool unfused : {false, true})
    for (const int bytes : {16, 32, 64}) {
      if (bytes > Target::host().vector_bytes) continue;
      ++checks;
      for (const std::size_t form : {0, 1, 2}) {
        if (!is_checked(form, checks, 3)) continue;
        RunOptions options;
        options.unfused = unfused;
        options.masked = form == 1;
        options.specialised = form == 2;
        options.target.vector_bytes = bytes;
        options.threads = bytes == 32 ? 3 : 1;
        std::string what;
        CHECK(equals_bitwise(run(graph, views_of(arguments), options), expected, &what));
        INFO("unfused " << unfused << ", form " << form << ", vectors of " << bytes << " bytes: " << what);
        CHECK(what.empty());
      }
    }
}

void equal_everywhere(const char* formula, const Inputs& inputs, DType dtype = f32, std::optional<std::size_t> kernels = {}) {
  INFO(formula);
  const ir::Graph graph = optimised(formula, inputs, dtype);
  equal_everywhere(graph, values_for(graph, false), kernels);
}

std::string error_of(const char* formula, const Inputs& inputs, DType dtype = f32) {
  try {
    optimised(formula, inputs, dtype);
  } catch (const Error& e) { return std::string(e.what()); }
  return "";
}

// Runs a short version of this check.
void in_kernels(const ir::Graph& graph, const std::vector<ir::Buffer>& arguments) {
  if (!has_codegen()) return;
  RunOptions options;
  options.masked = true;
  CHECK(equals_bitwise(run(graph, views_of(arguments), options), ir::evaluate(graph, views_of(arguments))));
}

// Evaluates einsum by its definition: every index runs over its extent. `text` has only letters and `->`.
std::vector<double> by_definition(const std::string& text, const std::vector<ir::Buffer>& operands) {
  const std::size_t arrow = text.find("->");
  std::vector<std::string> names(1);
  for (const char c : text.substr(0, arrow))
    if (c == ',') names.emplace_back();
    else names.back() += c;
  const std::string result = text.substr(arrow + 2);
  std::map<char, std::int64_t> extents, at;
  for (std::size_t k = 0; k < names.size(); ++k)
    for (std::size_t i = 0; i < names[k].size(); ++i) {
      const auto [it, fresh] = extents.try_emplace(names[k][i], operands[k].shape[i]);
      if (it->second == 1) it->second = operands[k].shape[i];  // otherwise this operand is broadcast
    }
  std::int64_t elements = 1;
  for (const char c : result) elements *= extents[c];
  std::vector<double> out(static_cast<std::size_t>(elements), 0.0);
  const auto place = [&](const std::string& indices, const std::vector<std::int64_t>* shape = nullptr) {
    std::int64_t p = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t extent = shape ? (*shape)[i] : extents[indices[i]];
      p = p * extent + (extent == 1 ? 0 : at[indices[i]]);
    }
    return static_cast<std::size_t>(p);
  };
  std::int64_t points = 1;
  for (const auto& [c, extent] : extents) points *= extent;
  for (std::int64_t point = 0; point < points; ++point) {
    std::int64_t rest = point;
    for (const auto& [c, extent] : extents) at[c] = rest % extent, rest /= extent;
    double product = 1;
    for (std::size_t k = 0; k < names.size(); ++k) product *= element(operands[k], place(names[k], &operands[k].shape));
    out[place(result)] += product;
  }
  return out;
}

// Checks that a formula of x, y and z equals the einsum `text`.
void means(const char* formula, const Inputs& inputs, const std::string& text) {
  for (const DType dtype : {f32, f64, f16, i32, u8}) {
    const ir::Graph graph = optimised(formula, inputs, dtype);
    INFO(formula << " of " << name_of(dtype) << "\n" << ir::print(graph));
    const std::vector<ir::Buffer> arguments = values_for(graph, true);
    const std::vector<ir::Buffer> got = ir::evaluate(graph, views_of(arguments));
    const std::vector<double> expected = by_definition(text, arguments);
    REQUIRE(got[0].bytes.size() / size_of(got[0].dtype) == expected.size());
    CHECK(got[0].dtype == dtype);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double wrapped = dtype == u8 ? std::fmod(std::fmod(expected[i], 256) + 256, 256) : expected[i];
      REQUIRE(element(got[0], i) == wrapped);
    }
    if (dtype == f32 || dtype == i32) in_kernels(graph, arguments);
  }
}

}  // namespace

TEST_CASE("contract: the forms of matmul, dot and outer", "[contract]") {
  means("x @ y", {{"x", {3, 5}}, {"y", {5, 4}}}, "ik,kj->ij");
  means("matmul(x, y)", {{"x", {5}}, {"y", {5, 4}}}, "k,kj->j");
  means("x @ y", {{"x", {3, 5}}, {"y", {5}}}, "ik,k->i");
  means("x @ y", {{"x", {70}}, {"y", {70}}}, "k,k->");
  means("x @ y", {{"x", {2, 3, 5}}, {"y", {2, 5, 4}}}, "bik,bkj->bij");
  means("x @ y", {{"x", {2, 3, 5}}, {"y", {5, 4}}}, "bik,kj->bij");
  means("x @ y", {{"x", {3, 5}}, {"y", {2, 5, 4}}}, "ik,bkj->bij");
  means("x[:, none] @ y[none]", {{"x", {2, 3, 5}}, {"y", {4, 5, 6}}}, "aik,bkj->abij");
  means("transpose(x) @ y", {{"x", {5, 3}}, {"y", {5, 4}}}, "ki,kj->ij");
  means("x @ transpose(y)", {{"x", {3, 65}}, {"y", {4, 65}}}, "ik,jk->ij");
  means("transpose(x @ y)", {{"x", {3, 5}}, {"y", {5, 4}}}, "ik,kj->ji");
  means("x @ y", {{"x", {3, 1}}, {"y", {1, 4}}}, "ik,kj->ij");
  means("x @ y", {{"x", {3, 0}}, {"y", {0, 4}}}, "ik,kj->ij");
  means("x @ y", {{"x", {0, 3}}, {"y", {3, 4}}}, "ik,kj->ij");
  means("dot(x, y)", {{"x", {9}}, {"y", {9}}}, "k,k->");
  means("dot(x, y)", {{"x", {2, 3, 5}}, {"y", {4, 5, 6}}}, "abk,ckd->abcd");
  means("dot(x, y)", {{"x", {2, 3}}, {"y", {}}}, "ab,->ab");
  means("outer(x, y)", {{"x", {3}}, {"y", {4}}}, "i,j->ij");
  means("outer(x, y)", {{"x", {0}}, {"y", {4}}}, "i,j->ij");
}

TEST_CASE("contract: the forms of einsum", "[contract]") {
  means(R"(einsum("ij,jk->ik", x, y))", {{"x", {3, 5}}, {"y", {5, 4}}}, "ij,jk->ik");
  means(R"(einsum("ij , jk", x, y))", {{"x", {3, 5}}, {"y", {5, 4}}}, "ij,jk->ik");
  means(R"(einsum("ba,cb", x, y))", {{"x", {3, 5}}, {"y", {4, 3}}}, "ba,cb->ac");
  means(R"(einsum("ii->i", x))", {{"x", {4, 4}}}, "ii->i");
  means(R"(einsum("ii", x))", {{"x", {4, 4}}}, "ii->");
  means(R"(einsum("iji->ji", x))", {{"x", {4, 3, 4}}}, "iji->ji");
  means(R"(einsum("iiji,kj->ik", x, y))", {{"x", {3, 3, 4, 3}}, {"y", {2, 4}}}, "iiji,kj->ik");
  means(R"(einsum("ij->ji", x))", {{"x", {4, 3}}}, "ij->ji");
  means(R"(einsum("ij->", x))", {{"x", {4, 70}}}, "ij->");
  means(R"(einsum("ij->j", x))", {{"x", {4, 3}}}, "ij->j");
  means(R"(einsum("->", x))", {{"x", {}}}, "->");
  means(R"(einsum(",i->i", x, y))", {{"x", {}}, {"y", {3}}}, ",i->i");
  means(R"(einsum("ij,k->ik", x, y))", {{"x", {3, 5}}, {"y", {4}}}, "ij,k->ik");
  means(R"(einsum("ij,k->", x, y))", {{"x", {3, 5}}, {"y", {4}}}, "ij,k->");
  means(R"(einsum("abcd,dcb->a", x, y))", {{"x", {2, 3, 4, 5}}, {"y", {5, 4, 3}}}, "abcd,dcb->a");
  means(R"(einsum("abcd,cd->ba", x, y))", {{"x", {2, 3, 4, 5}}, {"y", {4, 5}}}, "abcd,cd->ba");
  means(R"(einsum("ij,jk,kl->il", x, y, z))", {{"x", {2, 3}}, {"y", {3, 4}}, {"z", {4, 5}}}, "ij,jk,kl->il");
  means(R"(einsum("i,ij,j->", x, y, z))", {{"x", {2}}, {"y", {2, 4}}, {"z", {4}}}, "i,ij,j->");
  means(R"(einsum("ijk,j,k->i", x, y, z))", {{"x", {2, 3, 4}}, {"y", {3}}, {"z", {4}}}, "ijk,j,k->i");
  means(R"(einsum("...ij,...jk->...ik", x, y))", {{"x", {2, 3, 5}}, {"y", {2, 5, 4}}}, "bij,bjk->bik");
  means(R"(einsum("...ij,jk", x, y))", {{"x", {2, 3, 5}}, {"y", {5, 4}}}, "bij,jk->bik");
  means(R"(einsum("i...,...->...i", x, y))", {{"x", {3, 2}}, {"y", {2}}}, "ib,b->bi");
  means(R"(einsum("...,...->...", x, y))", {{"x", {3, 2}}, {"y", {2}}}, "ab,b->ab");
  means(R"(einsum("...i,...i->...", x, y[none]))", {{"x", {4, 5}}, {"y", {5}}}, "ab,b->a");
  means(R"(einsum("...i->i...", x))", {{"x", {4, 2, 5}}}, "abi->iab");
}

TEST_CASE("contract: einsum broadcasts an extent of 1 and sums an ellipsis missing in the result", "[contract]") {
  means(R"(einsum("ij,jk->ik", x, y))", {{"x", {3, 1}}, {"y", {5, 4}}}, "ij,jk->ik");
  means(R"(einsum("ij,jk->ik", x, y))", {{"x", {3, 5}}, {"y", {1, 4}}}, "ij,jk->ik");
  means(R"(einsum("ij,ij->ij", x, y))", {{"x", {1, 5}}, {"y", {3, 1}}}, "ij,ij->ij");
  means(R"(einsum("ij,ij", x, y))", {{"x", {1, 5}}, {"y", {3, 1}}}, "ij,ij->");
  means(R"(einsum("bij,bjk->bik", x, y))", {{"x", {1, 3, 5}}, {"y", {2, 5, 4}}}, "bij,bjk->bik");
  means(R"(einsum("i,i,i->i", x, y, z))", {{"x", {1}}, {"y", {1}}, {"z", {4}}}, "i,i,i->i");
  means(R"(einsum("ij,jk,ki->", x, y, z))", {{"x", {2, 1}}, {"y", {3, 4}}, {"z", {1, 2}}}, "ij,jk,ki->");
  means(R"(einsum("ii,i->i", x, y))", {{"x", {1, 1}}, {"y", {4}}}, "ii,i->i");
  means(R"(einsum("i,i->i", x, y))", {{"x", {1}}, {"y", {0}}}, "i,i->i");
  means(R"(einsum("...i->i", x))", {{"x", {2, 3, 4}}}, "abi->i");
  means(R"(einsum("...->", x))", {{"x", {2, 3}}}, "ab->");
  means(R"(einsum("...i,i->i", x, y))", {{"x", {2, 3, 4}}, {"y", {4}}}, "abi,i->i");
  means(R"(einsum("...ij,...jk->ik", x, y))", {{"x", {2, 3, 5}}, {"y", {5, 4}}}, "bij,jk->ik");
  means(R"(einsum("i...,i...->", x, y))", {{"x", {3, 1}}, {"y", {3, 4}}}, "ib,ib->");
  equal_everywhere("einsum(\"ij,jk->ik\", x, y)", {{"x", {30, 1}}, {"y", {70, 40}}});
  equal_everywhere("einsum(\"...ij,...jk->ik\", x, y)", {{"x", {6, 30, 50}}, {"y", {50, 40}}});
}

TEST_CASE("contract: types promote, literals are untyped, bool is not multiplied", "[contract]") {
  const ir::Graph graph = optimised(
      "a = cast(x, i32) @ cast(x, f16); b = dot(cast(x, u8), cast(x, i8)); c = einsum(\",i->i\", 2, x); "
      "d = cast(x, bool) @ cast(x, i16); f = einsum(\"i->i\", cast(x, bool))",
      {{"x", {3}}});
  const DType expected[] = {f16, i16, f32, i16, boolean};
  for (std::size_t k = 0; k < 5; ++k) CHECK(graph[graph.outputs[k]].dtype == expected[k]);
  equal_everywhere(graph, values_for(graph, true));
  CHECK_THAT(error_of("x @ x", {{"x", {3}}}, boolean),
             Contains("matmul: arithmetic on bool (x bool[3]) is not defined. Cast it to a number"));
  CHECK_THAT(error_of("einsum(\"ij->i\", x)", {{"x", {3, 3}}}, boolean), Contains("einsum: arithmetic on bool (x bool[3, 3])"));
  CHECK_THAT(error_of("outer(x, x)", {{"x", {3}}}, boolean), Contains("outer: arithmetic on bool (x bool[3])"));
}

TEST_CASE("contract: outer takes only vectors", "[contract]") {
  CHECK_THAT(error_of("outer(x, y)", {{"x", {2, 3}}, {"y", {3}}}),
             Contains("outer: x f32[2, 3] has rank 2; both operands must be vectors"));
  CHECK_THAT(error_of("outer(x, y)", {{"x", {3}}, {"y", {1, 3}}}), Contains("outer: y f32[1, 3] has rank 2"));
  CHECK_THAT(error_of("outer(x, y)", {{"x", {3}}, {"y", {}}}), Contains("outer: y f32[] has rank 0"));
  CHECK_THAT(error_of("outer(x, 2)", {{"x", {3}}}), Contains("outer: 2 has rank 0"));
}

TEST_CASE("contract: inner-axis and outer-axis reductions add in the language page's order", "[contract]") {
  // inner-axis reduction: 64 accumulators (f64: 32), by fma in increasing r, halved; blocks of 4,096; a pairwise tree of blocks
  const auto lanes = [](auto zero, const ir::Buffer& a, const ir::Buffer& b, std::int64_t n) {
    using T = decltype(zero);
    constexpr std::int64_t count = sizeof(T) == 8 ? 32 : 64;
    std::vector<T> blocks;
    for (std::int64_t begin = 0; begin < n; begin += 4096) {
      std::vector<T> lane(count, T(-0.0));
      for (std::int64_t r = begin; r < std::min(n, begin + 4096); ++r) {
        T& l = lane[static_cast<std::size_t>(r % count)];
        l = std::fma(static_cast<T>(element(a, static_cast<std::size_t>(r))), static_cast<T>(element(b, static_cast<std::size_t>(r))), l);
      }
      for (std::int64_t half = count / 2; half > 0; half /= 2)
        for (std::int64_t i = 0; i < half; ++i) lane[static_cast<std::size_t>(i)] += lane[static_cast<std::size_t>(i + half)];
      blocks.push_back(lane[0]);
    }
    const auto tree = [&](auto&& self, std::size_t first, std::size_t count_of) -> T {
      if (count_of == 1) return blocks[first];
      std::size_t k = 1;
      while (2 * k < count_of) k *= 2;
      return self(self, first, k) + self(self, first + k, count_of - k);
    };
    return static_cast<double>(tree(tree, 0, blocks.size()));
  };
  for (const std::int64_t n : {1, 3, 64, 100, 4096, 4097, 13000}) {
    for (const DType dtype : {f32, f64}) {
      for (const char* formula : {"x @ y", "einsum(\"i,i\", x, y)", "dot(x, y)"}) {
        const ir::Graph graph = optimised(formula, {{"x", {n}}, {"y", {n}}}, dtype);
        const std::vector<ir::Buffer> in = values_for(graph, false);
        const double got = element(ir::evaluate(graph, views_of(in))[0], 0);
        CHECK(got == (dtype == f32 ? lanes(0.0f, in[0], in[1], n) : lanes(0.0, in[0], in[1], n)));
      }
    }
  }
  // outer-axis reduction: by fma in sequence, in blocks of 256
  for (const std::int64_t n : {1, 7, 256, 257, 1500}) {
    const ir::Graph graph = optimised("x @ y", {{"x", {2, n}}, {"y", {n, 3}}});
    const std::vector<ir::Buffer> in = values_for(graph, false);
    const ir::Buffer got = ir::evaluate(graph, views_of(in))[0];
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 3; ++j) {
        std::vector<float> blocks;
        for (std::int64_t r = 0; r < n; ++r) {
          if (r % 256 == 0) blocks.push_back(-0.0f);
          blocks.back() = std::fma(static_cast<float>(element(in[0], static_cast<std::size_t>(i * n + r))),
                                   static_cast<float>(element(in[1], static_cast<std::size_t>(r * 3 + j))), blocks.back());
        }
        while (blocks.size() > 1) {  // for fewer than seven blocks, neighbors are paired
          std::vector<float> next;
          for (std::size_t k = 0; k + 1 < blocks.size(); k += 2) next.push_back(blocks[k] + blocks[k + 1]);
          if (blocks.size() % 2) next.push_back(blocks.back());
          blocks = next;
        }
        CHECK(element(got, static_cast<std::size_t>(i * 3 + j)) == blocks[0]);
      }
  }
}

TEST_CASE("contract: register tiles of the result, for any operand layout, type and surrounding code", "[contract]") {
  const Inputs plain = {{"x", {43, 300}}, {"y", {300, 70}}}, both = {{"x", {300, 43}}, {"y", {70, 300}}};
  equal_everywhere("transpose(x) @ transpose(y)", both, f32, 1);
  equal_everywhere("transpose(x) @ y", {{"x", {520, 30}}, {"y", {520, 17}}}, f64, 1);
  equal_everywhere("x @ transpose(y)", {{"x", {30, 260}}, {"y", {37, 260}}}, bf16, 1);
  equal_everywhere("cast(x, i32) @ cast(y, i32)", plain, i8, 1);
  equal_everywhere("x @ transpose(y)", {{"x", {5, 33}}, {"y", {90, 33}}}, u32, 1);
  equal_everywhere("p = tanh(x @ y + b)*c[:, none]; q = x @ y > 0", {{"x", {19, 31}}, {"y", {31, 40}}, {"b", {40}}, {"c", {19}}});
  equal_everywhere("r + x[::-1] @ y[:, 3:]", {{"x", {19, 31}}, {"y", {31, 40}}, {"r", {19, 37}}}, f32, 1);
  equal_everywhere("pad(x, [1, 0], [2, 5]) @ y", {{"x", {19, 31}}, {"y", {36, 40}}}, f32, 1);
  equal_everywhere("cross_entropy(x @ transpose(y) + b, cast(abs(l)*6, i64))",
                   {{"x", {40, 300}}, {"y", {7, 300}}, {"b", {7}}, {"l", {40}}});
  equal_everywhere("x @ transpose(y)", {{"x", {2, 700}}, {"y", {50, 700}}}, f32, 1);
  equal_everywhere("einsum(\"bik,bjk->bij\", x, y)", {{"x", {3, 20, 64}}, {"y", {3, 33, 64}}}, f32, 1);
  equal_everywhere("einsum(\"ibk,bkj->ibj\", x, y)", {{"x", {20, 3, 64}}, {"y", {3, 64, 33}}}, f32, 1);
  equal_everywhere("einsum(\"ik,kj->ji\", x, y)", {{"x", {20, 64}}, {"y", {64, 33}}}, f32, 1);
  equal_everywhere("einsum(\"iak,kbj->iabj\", x, y)", {{"x", {4, 5, 64}}, {"y", {64, 3, 11}}}, f32, 1);
}

TEST_CASE("contract: sums over several loops with non-uniform steps in one or both operands", "[contract]") {
  const auto all = [](const char* text, Inputs inputs, DType dtype = f32) {
    const std::string formula = fmt::format("einsum(\"{}\", x, y)", text);
    equal_everywhere(formula.c_str(), inputs, dtype, 1);
  };
  all("bik,bkj->ij", {{"x", {4, 20, 33}}, {"y", {4, 33, 70}}});  // the quotients vary for one operand
  all("bij,bkj->ik", {{"x", {3, 43, 50}}, {"y", {3, 70, 50}}});  // for both operands, contiguous in runs of 50
  all("bij,bkj->ik", {{"x", {5, 43, 4}}, {"y", {5, 70, 4}}});    // in runs shorter than a vector
  all("bij,bkj->ik", {{"x", {20, 43, 16}}, {"y", {20, 70, 16}}}, f64);
  all("ijk,jil->kl", {{"x", {9, 31, 40}}, {"y", {31, 9, 64}}});
  all("abc,cbd->ad", {{"x", {50, 7, 40}}, {"y", {40, 7, 33}}});
  all("abcd,dbce->ae", {{"x", {20, 5, 4, 7}}, {"y", {7, 5, 4, 33}}});
  all("abcd,cdbe->ae", {{"x", {20, 5, 4, 7}}, {"y", {4, 7, 5, 33}}}, i32);
  all("abcd,edcb->ae", {{"x", {33, 3, 4, 17}}, {"y", {40, 17, 4, 3}}}, bf16);
  all("gabc,gcbd->gad", {{"x", {2, 20, 7, 40}}, {"y", {2, 40, 7, 33}}});  // for each g
  all("abc,bd->ad", {{"x", {50, 12, 10}}, {"y", {12, 33}}});              // the second operand does not vary along c
  equal_everywhere("einsum(\"bik,bkj->ij\", exp(x), y*y[:, :, :1]) + z", {{"x", {4, 20, 33}}, {"y", {4, 33, 70}}, {"z", {20, 70}}});
  equal_everywhere("einsum(\"bik,bkj->ij\", pad(x, [0, 0, 2], [0, 0, 3]), y)", {{"x", {4, 20, 28}}, {"y", {4, 33, 70}}}, f32, 1);
}

TEST_CASE("contract: a matrix product has the same bits for any layout of its operands", "[contract]") {
  for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{2, 64, 3}, {7, 255, 19}, {33, 784, 10}, {5, 1000, 70}}) {
    const auto product = [&](const char* formula, const compiler::Shape& x, const compiler::Shape& y) {
      return optimised(formula, {{"x", x}, {"y", y}});
    };
    const ir::Graph plain = product("x @ y", {m, k}, {k, n});
    std::vector<ir::Buffer> in = values_for(plain, false);
    const ir::Buffer expected = ir::evaluate(plain, views_of(in))[0];
    for (int which = 1; which < 4; ++which) {
      const bool tx = which & 1, ty = which & 2;
      const ir::Graph graph =
          product(tx && ty ? "transpose(x) @ transpose(y)"
                  : tx     ? "transpose(x) @ y"
                           : "x @ transpose(y)",
                  tx ? compiler::Shape{k, m} : compiler::Shape{m, k}, ty ? compiler::Shape{n, k} : compiler::Shape{k, n});
      std::vector<ir::Buffer> turned = values_for(graph, false);
      for (const std::size_t operand : {std::size_t{0}, std::size_t{1}}) {
        const std::int64_t rows = operand ? k : m, columns = operand ? n : k;
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            turned[operand].as<float>()[static_cast<std::size_t>((operand ? ty : tx) ? j * rows + i : i * columns + j)] =
                in[operand].as<float>()[static_cast<std::size_t>(i * columns + j)];
      }
      const ir::Buffer got = ir::evaluate(graph, views_of(turned))[0];
      bool same = true;
      for (std::int64_t i = 0; i < m * n; ++i)
        same = same && element(got, static_cast<std::size_t>(i)) == element(expected, static_cast<std::size_t>(i));
      CHECK(same);
    }
  }
}

TEST_CASE("contract: the order of a contraction is part of its node", "[contract]") {
  const auto op_of = [](const char* formula, const Inputs& inputs) {
    const ir::Graph graph = optimised(formula, inputs);
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      if (ir::is_contraction(graph[id].op)) return std::string(ir::info(graph[id].op).text);
    return std::string("none");
  };
  CHECK(op_of("x @ y", {{"x", {3, 5}}, {"y", {5, 4}}}) == "contract_rows");
  CHECK(op_of("x @ y", {{"x", {3, 5}}, {"y", {5, 1}}}) == "contract_rows");
  CHECK(op_of("x @ transpose(y)", {{"x", {3, 5}}, {"y", {4, 5}}}) == "contract_rows");
  CHECK(op_of("x @ transpose(y)", {{"x", {1, 5}}, {"y", {4, 5}}}) == "contract_lanes");  // one row is a vector
  CHECK(op_of("transpose(x) @ transpose(y)", {{"x", {5, 3}}, {"y", {4, 5}}}) == "contract_rows");
  CHECK(op_of("x @ y", {{"x", {3, 5}}, {"y", {5}}}) == "contract_lanes");
  CHECK(op_of("x @ y", {{"x", {5}}, {"y", {5, 3}}}) == "contract_rows");
  CHECK(op_of("einsum(\"ikl,jkl->ij\", x, y)", {{"x", {3, 2, 5}}, {"y", {4, 2, 5}}}) == "contract_rows");
  CHECK(op_of("einsum(\"ikl,jlk->ij\", x, y)", {{"x", {3, 2, 5}}, {"y", {4, 5, 2}}}) == "contract_rows");
  CHECK(op_of("einsum(\"ij,k->ik\", x, y)", {{"x", {3, 5}}, {"y", {4}}}) == "contract_rows");
  CHECK(op_of("outer(x, x)", {{"x", {5}}}) == "none");
  CHECK(op_of("sum(x*y)", {{"x", {5}}, {"y", {5}}}) == "none");  // rounds each product
}

TEST_CASE("contract: equal bits everywhere, with elementwise work around them in one kernel", "[contract]") {
  equal_everywhere("x @ y", {{"x", {37, 300}}, {"y", {300, 65}}}, f32, 1);
  equal_everywhere("x @ y", {{"x", {9, 700}}, {"y", {700, 130}}}, f64, 1);
  equal_everywhere("x @ y", {{"x", {9, 70}}, {"y", {70, 33}}}, f16, 1);
  equal_everywhere("x @ y", {{"x", {9, 70}}, {"y", {70, 33}}}, i64, 1);
  equal_everywhere("x @ transpose(y)", {{"x", {17, 5000}}, {"y", {5, 5000}}}, f32, 1);
  equal_everywhere("maximum(x @ y + b, 0)", {{"x", {20, 40}}, {"y", {40, 70}}, {"b", {70}}}, f32, 1);
  equal_everywhere("(2*x) @ y[::2]*3", {{"x", {20, 40}}, {"y", {80, 70}}}, f32, 1);
  equal_everywhere("exp(x) @ y", {{"x", {20, 40}}, {"y", {40, 70}}}, f32, 2);  // each exp once, not once for every column
  equal_everywhere("dot(x, y)/sqrt(dot(x, x)*dot(y, y))", {{"x", {9000}}, {"y", {9000}}}, f32, 1);
  equal_everywhere("a = x @ y; b = sum(x, 0)", {{"x", {300, 40}}, {"y", {40}}}, f32, 2);
  equal_everywhere("maximum(x @ y, 0) @ z", {{"x", {20, 40}}, {"y", {40, 30}}, {"z", {30, 10}}}, f32, 2);
  equal_everywhere("einsum(\"abc,adc->bd\", x, y)", {{"x", {20, 3, 30}}, {"y", {20, 5, 30}}}, f32, 1);
  equal_everywhere("einsum(\"acb,adc->bd\", x, y)", {{"x", {20, 30, 3}}, {"y", {20, 5, 30}}}, f32, 1);
  equal_everywhere("einsum(\"aab,cab->c\", x, y)", {{"x", {7, 7, 5}}, {"y", {70, 7, 5}}}, f32, 1);
  equal_everywhere("x - (x @ y)[:, none]*y", {{"x", {20, 300}}, {"y", {300}}}, f32, 1);
  equal_everywhere("p = x @ y; u = exp(p - max(p, 1, true)); u/sum(u, 1, true)", {{"x", {20, 30}}, {"y", {30, 40}}});
}

TEST_CASE("contract: a contraction over no elements is 0, also if another kernel reads it", "[contract]") {
  for (const char* op : {"contract_rows %0, %1", "contract_lanes %0, %1", "reduce_sum %0"})
    for (const char* axes : {"{0, 1}", "{1}"}) {
      const bool full = axes[2] == ',';
      equal_everywhere(ir::parse_graph(fmt::format(
                           "%0 = input x : f32[65, 0]\n%1 = input y : f32[65, 0]\n%2 = {0} {1} : f32[{2}]\n"
                           "%3 = reshape %2 : f32[1, {3}]\n%4 = broadcast %3 : f32[8, {3}]\n%5 = exp %4 : f32[8, {3}]\nreturn %5",
                           op, axes, full ? "" : "65", full ? "1" : "65")),
                       {ir::Buffer{f32, {65, 0}, {}}, ir::Buffer{f32, {65, 0}, {}}});
    }
}

TEST_CASE("contract: derivatives are contractions", "[contract]") {
  const auto same = [](const char* gradient, const char* by_hand, const Inputs& inputs) {
    INFO(gradient << " against " << by_hand);
    const ir::Graph graph = optimised(gradient, inputs), other = optimised(by_hand, inputs);
    const std::vector<ir::Buffer> arguments = values_for(graph, false);
    std::vector<ir::ArrayView> others;  // the same arguments, in the other graph's order
    for (const ir::Input& input : other.inputs)
      for (std::size_t k = 0; k < graph.inputs.size(); ++k)
        if (graph.inputs[k].name == input.name) others.push_back(arguments[k].view());
    CHECK(equals_bitwise(ir::evaluate(graph, views_of(arguments)), ir::evaluate(other, others)));
    equal_everywhere(graph, arguments);
  };
  same("z = einsum(\"ij,jk->ik\", x, y); a, b = vjp(z, [x, y], g)",
       "a = einsum(\"ik,jk->i\", g, y)[:, none]; b = einsum(\"i,ik->k\", x[:, 0], g)[none, :] + 0*y",
       {{"x", {3, 1}}, {"y", {5, 4}}, {"g", {3, 4}}});
  same("z = einsum(\"...i->i\", x); a = vjp(z, [x], g)", "a = g[none, none, :] + 0*x", {{"x", {2, 3, 4}}, {"g", {4}}});
  const Inputs matrices = {{"x", {30, 40}}, {"y", {40, 50}}, {"g", {30, 50}}};
  same("z = x @ y; a, b = vjp(z, [x, y], g)", "a = g @ transpose(y); b = transpose(x) @ g", matrices);
  same("z = x @ y; a, b = vjp(z, [x, y], g)", "a = g[:, none]*y[none, :]; b = einsum(\"ij,i->j\", x, g)",
       {{"x", {30, 40}}, {"y", {40}}, {"g", {30}}});
  same("z = x @ y; a, b = vjp(z, [x, y], g)", "a = einsum(\"bij,kj->bik\", g, y); b = einsum(\"bik,bij->kj\", x, g)",
       {{"x", {3, 30, 40}}, {"y", {40, 50}}, {"g", {3, 30, 50}}});
  same("z = einsum(\"ij,k->ik\", x, y); a, b = vjp(z, [x, y], g)",
       "a = einsum(\"ik,k->i\", g, y)[:, none] + 0*x; b = einsum(\"ij,ik->k\", x, g)", {{"x", {3, 5}}, {"y", {4}}, {"g", {3, 4}}});
  same("z = dot(x, x); a = vjp(z, [x], 1.0)", "a = x + x", {{"x", {30}}});
  same("z = einsum(\"ii\", x); a = vjp(z, [x], g)", "a = where(iota(x.shape, 0) == iota(x.shape, 1), g, 0)", {{"x", {5, 5}}, {"g", {}}});
  // plain products: 0*inf is NaN, whereas mul0 would give 0
  const ir::Graph graph = optimised("a = vjp(x @ y, [x], g)", {{"x", {2, 1}}, {"y", {1, 2}}, {"g", {2, 2}}});
  ir::Buffer zero{f32, {2, 2}, std::vector<std::byte>(16)}, infinite{f32, {1, 2}, std::vector<std::byte>(8)};
  const float inf = INFINITY;
  for (std::size_t i = 0; i < 2; ++i) std::memcpy(infinite.bytes.data() + 4 * i, &inf, 4);
  std::vector<ir::Buffer> in;
  for (const ir::Input& input : graph.inputs)
    in.push_back(input.name == "y" ? infinite : input.name == "g" ? zero : ir::Buffer{f32, {2, 1}, std::vector<std::byte>(8)});
  CHECK(std::isnan(element(ir::evaluate(graph, views_of(in))[0], 0)));
  // a gradient of a gradient
  equal_everywhere("h = grad(sum((x @ y)**2), [x]); a, b = grad(sum(h*h), [x, y])", {{"x", {7, 9}}, {"y", {9, 11}}});
}

TEST_CASE("contract: the diagonal of a product contracts only the diagonal", "[contract]") {
  // Checks the number of elements of the contraction's operands, and compares the bits with the diagonal of the whole product.
  const auto check = [](const std::string& product, const std::string& where, const Inputs& inputs, std::int64_t contracted) {
    INFO("diagonal(" << product << where << ")");
    const ir::Graph graph = optimised("d = diagonal(" + product + where + ")", inputs), whole = optimised("m = " + product, inputs);
    std::int64_t most = 0;
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      if (ir::is_contraction(graph[id].op)) most = std::max(most, graph.elements(graph.operand(id, 0)));
    CHECK(most == contracted);
    const std::vector<ir::Buffer> arguments = values_for(graph, false);
    std::vector<ir::ArrayView> by_name;
    for (const ir::Input& input : whole.inputs)
      for (std::size_t k = 0; k < graph.inputs.size(); ++k)
        if (graph.inputs[k].name == input.name) by_name.push_back(arguments[k].view());
    const std::vector<ir::Buffer> m = ir::evaluate(whole, by_name);
    const ir::Graph diagonal = optimised("d = diagonal(m" + where + ")", {{"m", m[0].shape}}, m[0].dtype);
    CHECK(equals_bitwise(ir::evaluate(graph, views_of(arguments)), ir::evaluate(diagonal, views_of(m))));
    equal_everywhere(graph, arguments);
  };
  const Inputs matrices = {{"x", {30, 300}}, {"y", {300, 20}}, {"b", {20}}}, batches = {{"x", {7, 9, 5}}, {"y", {7, 5, 11}}};
  check("x @ y", "", matrices, 20 * 300);
  check("x @ y", ", 3", matrices, 17 * 300);
  check("x @ y", ", -12", matrices, 18 * 300);
  check("x @ y", ", -29", matrices, 300);
  check("x @ y", ", 40", matrices, 30 * 20 * 300);  // the diagonal is empty: a view of the product, which is not computed
  check("x @ y", ", -12, 1, 0", matrices, 8 * 300);
  check("maximum(2*(x @ y) + b, 0)", ", 1", matrices, 19 * 300);
  check("exp(x @ y) - (x @ y)*iota([30, 20], 1, f32)", "", matrices, 20 * 300);
  check("x @ transpose(x)", "", matrices, 30 * 300);
  check("x @ y", ", 1, 1, 2", batches, 7 * 9 * 5);
  check("x @ y", ", 0, 2, 1", batches, 7 * 9 * 5);
  check("x @ y", ", -1, 0, 1", batches, 6 * 11 * 5);  // the operands share the batch axis: a view of x, a part of y
  check("x @ y", ", 2, 2, 0", batches, 5 * 9 * 5);
  check("einsum(\"aib,ajb->aij\", x, x)", ", 0, 1, 2", {{"x", {7, 9, 5}}}, 7 * 9 * 5);
  check("x @ y", "", {{"x", {1, 5}}, {"y", {5, 9}}}, 5);
  check("x @ y", ", 0, 1, 2", {{"x", {9, 5}}, {"y", {4, 5, 6}}}, 4 * 6 * 5);
  // one operand has both axes of the diagonal
  check("x @ y", "", {{"x", {9, 5, 4}}, {"y", {4}}}, 5 * 4);
  check("x @ y", ", 1, 1, 2", {{"x", {3, 9, 5, 4}}, {"y", {4}}}, 3 * 4 * 4);
  check("x @ y", ", -2, 0, 2", {{"x", {6, 3, 5, 4}}, {"y", {4}}}, 4 * 3 * 4);
  check("y @ x", ", -2, 0, 2", {{"x", {6, 3, 4, 5}}, {"y", {4}}}, 4 * 3 * 4);
  // the derivatives have no larger operands
  const ir::Graph gradient = optimised("a, b = vjp(diagonal(x @ y, 1), [x, y], g)", {{"x", {30, 300}}, {"y", {300, 20}}, {"g", {19}}});
  for (ir::NodeId id = 0; id < gradient.size(); ++id) CHECK(gradient.elements(id) <= 30 * 300);
  equal_everywhere(gradient, values_for(gradient, false));
  if (!has_codegen()) return;
  // a custom derivative is not bypassed
  const auto product = custom_vjp([](Tensor x, Tensor y) { return matmul(x, y); },
                                  [](Tensor x, Tensor y, Tensor, Tensor) {
                                    return std::tuple{0 * x + 5, 0 * y + 7};
                                  });
  const auto of = compile([&](Tensor x, Tensor y) { return grad(sum(diagonal(product(x, y))), x); });
  CHECK(of(Array::full({2, 2}, 1.0F, f32), Array::full({2, 2}, 1.0F, f32)).to_vector<float>() == std::vector<float>{5, 5, 5, 5});
}

TEST_CASE("contract: errors of mismatched operands", "[contract]") {
  const Inputs xy = {{"x", {2, 3}}, {"y", {4, 5}}};
  CHECK_THAT(error_of("x @ y", xy),
             Contains("matmul: x f32[2, 3] and y f32[4, 5] do not match: the last dimension of the left operand is 3, but the "
                      "second to last of the right operand is 4. Make them equal"));
  CHECK_THAT(error_of("x @ y", {{"x", {2, 3}}, {"y", {4}}}), Contains("is 3, but the only one of the right operand is 4"));
  CHECK_THAT(error_of("x @ y", {{"x", {2, 3}}, {"y", {}}}), Contains("matmul: y f32[] is a scalar. Multiply with *"));
  CHECK_THAT(error_of("2 @ x", {{"x", {2}}}), Contains("matmul: 2 is a scalar"));
  CHECK_THAT(error_of("x @ y", {{"x", {2, 2, 3}}, {"y", {3, 3, 5}}}),
             Contains("matmul: the leading dimensions of x f32[2, 2, 3] and y f32[3, 3, 5] do not broadcast: 2 and 3"));
  CHECK_THAT(error_of("dot(x, y)", xy),
             Contains("dot: x f32[2, 3] and y f32[4, 5] do not match: the last dimension of the left operand is 3"));
  CHECK_THAT(error_of("einsum(\"ij,jk\", x, y)", xy), Contains("einsum: index j of \"ij,jk\" is 3 in x f32[2, 3] and 4 in y f32[4, 5]"));
  CHECK_THAT(error_of("einsum(\"ij,jk\", x)", {{"x", {2, 3}}}), Contains("einsum: \"ij,jk\" names 2 operands, but 1 is given"));
  CHECK_THAT(error_of("einsum(\"ij\", x, y)", xy), Contains("einsum: \"ij\" names 1 operand, but 2 are given"));
  CHECK_THAT(error_of("einsum(\"ijk->i\", x)", {{"x", {2, 3}}}),
             Contains("einsum: operand 1 of \"ijk->i\" has 3 indices, but the rank of x f32[2, 3] is 2"));
  CHECK_THAT(error_of("einsum(\"i->i\", x)", {{"x", {2, 3}}}), Contains("has 1 index, but the rank of x f32[2, 3] is 2"));
  CHECK_THAT(error_of("einsum(\"...ijk->i\", x)", {{"x", {2, 3}}}), Contains("has 3 indices or more, but the rank of x f32[2, 3] is 2"));
  CHECK_THAT(error_of("einsum(\"ij->k\", x)", {{"x", {2, 3}}}),
             Contains("einsum: index k of the result of \"ij->k\" does not occur in any operand"));
  CHECK_THAT(error_of("einsum(\"ij->ii\", x)", {{"x", {2, 3}}}), Contains("einsum: index i occurs twice in the result of \"ij->ii\""));
  CHECK_THAT(error_of("einsum(\"i1->i\", x)", {{"x", {2, 3}}}), Contains("einsum: `1` in \"i1->i\" is not an index"));
  CHECK_THAT(error_of("einsum(\"i->j->i\", x)", {{"x", {2, 3}}}), Contains("is not an index"));
  CHECK_THAT(error_of("einsum(\"......\", x)", {{"x", {2, 3}}}), Contains("`...` occurs twice"));
  CHECK_THAT(error_of("einsum(\"...,...\", x, y)", xy), Contains("einsum: an axis of `...` of \"...,...\" is 2 in x f32[2, 3] and 4 in y"));
  CHECK_THAT(error_of("einsum(x, x)", {{"x", {2, 3}}}), Contains("einsum: `equation` must be a string in quotes"));
  CHECK_THAT(error_of("einsum(\"ii\", x)", {{"x", {2, 3}}}),
             Contains("einsum: index i of \"ii\" is 2 and 3 in x f32[2, 3]; the axes of a diagonal must have equal lengths"));
  CHECK_THAT(error_of("einsum(\"ii,i->i\", x, y)", {{"x", {1, 4}}, {"y", {4}}}),
             Contains("index i of \"ii,i->i\" is 1 and 4 in x f32[1, 4]"));
  CHECK_THAT(error_of("einsum(\"i,j\")", {}), Contains("einsum: `operands` is missing: einsum(equation, operands...)"));
  // the number of index tuples overflows
  CHECK_THAT(error_of("dot(x, y)", {{"x", {std::int64_t{1} << 40, 2}}, {"y", {2, std::int64_t{1} << 40}}}),
             Contains("needs more bytes than 64 bits can count"));
  std::string letters, all;
  for (char c = 'a'; c <= 'q'; ++c) letters += c;
  all = "einsum(\"" + letters + "," + [&] {
    std::string s;
    for (char c = 'A'; c <= 'Q'; ++c) s += c;
    return s;
  }() + "\", x, x)";
  CHECK_THAT(error_of(all.c_str(), {{"x", Shape(17, 1)}}), Contains("rank 34 is above 32"));
}

TEST_CASE("contract: from C++", "[contract]") {
  if (!has_codegen()) return;
  const auto layer = compile([](Tensor x, Tensor w, Tensor b) {
    const Tensor y = matmul(x, w.T()) + b;
    return std::tuple{y, einsum("bo,o->b", y, b), dot(b, b), outer(b, b), einsum("ij->", x)};
  });
  const Array x = Array::from(std::vector<float>{1, 2, 3, 4, 5, 6}).reshape({2, 3}),
              w = Array::from(std::vector<float>{1, 0, 1, 0, 2, 0}).reshape({2, 3}), b = Array::from(std::vector<float>{10, 20});
  const auto [y, s, d, o, t] = layer(x, w, b);
  CHECK(y.to_vector<float>() == std::vector<float>{14, 24, 20, 30});
  CHECK(s.to_vector<float>() == std::vector<float>{14 * 10 + 24 * 20, 20 * 10 + 30 * 20});
  CHECK(d.item<float>() == 500);
  CHECK(o.to_vector<float>() == std::vector<float>{100, 200, 200, 400});
  CHECK(t.item<float>() == 21);
  const auto wrong = compile([](Tensor a, Tensor c) { return matmul(a, c); });
  CHECK_THROWS_WITH(wrong(x, x), Contains("matmul: x0 f32[2, 3]") || Contains("do not match"));
}

TEST_CASE("contract: few rows, few columns, and columns packed once have the reference's bits", "[contract]") {
  for (const DType dtype : {f32, f64}) {
    equal_everywhere("x @ y", {{"x", {2, 300}}, {"y", {300, 130}}}, dtype);
    equal_everywhere("x @ y", {{"x", {40, 31}}, {"y", {31, 100}}}, dtype);
    equal_everywhere("x @ y + z", {{"x", {3, 70}}, {"y", {70, 97}}, {"z", {97}}}, dtype);
    equal_everywhere("x @ y", {{"x", {97, 263}}, {"y", {263, 3}}}, dtype);
    equal_everywhere("transpose(x) @ y", {{"x", {263, 97}}, {"y", {263, 3}}}, dtype);
    equal_everywhere("x @ transpose(y)", {{"x", {3, 263}}, {"y", {97, 263}}}, dtype);
    equal_everywhere("(x @ transpose(y))*2", {{"x", {7, 15}}, {"y", {33, 15}}}, dtype);
    equal_everywhere("x @ transpose(y) + z[:, none]", {{"x", {128, 40}}, {"y", {10, 40}}, {"z", {128}}}, dtype);
  }
  if (!has_codegen()) return;
  for (const char* text : {"x @ y", "x @ transpose(y)"}) {
    const bool turned = text[4] == 't';
    const ir::Graph graph = optimised(text, {{"x", {100, 300}}, {"y", turned ? compiler::Shape{520, 300} : compiler::Shape{300, 520}}});
    const std::vector<ir::Buffer> arguments = values_for(graph, false);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, views_of(arguments));
    for (const int bytes : {32, 64}) {
      if (bytes > Target::host().vector_bytes) continue;
      RunOptions options;
      options.target.vector_bytes = bytes;
      options.target.l2_bytes = 16 << 10;  // short tasks: more of them read the columns
      options.threads = 3;
      CHECK(equals_bitwise(run(graph, views_of(arguments), options), expected));
    }
  }
}

TEST_CASE("contract: specialized kernels of any extents have the reference's bits", "[contract]") {
  if (!has_codegen()) return;
  const std::array<compiler::Shape, 6> operands = {{{64, 784}, {64, 256}, {32, 4}, {48, 260}, {33, 255}, {17, 3}}};
  for (const DType dtype : {f32, f64})
    for (const compiler::Shape& x : operands)
      for (const std::int64_t columns : {1, 10, 45}) {
        const std::int64_t k = x[1];
        for (const auto& [text, y] : {std::pair{"x @ transpose(y) + 1", compiler::Shape{columns, k}}, {"x @ y", {k, columns}}}) {
          const ir::Graph graph = optimised(text, {{"x", x}, {"y", y}}, dtype);
          const std::vector<ir::Buffer> arguments = values_for(graph, false);
          const std::vector<ir::Buffer> expected = ir::evaluate(graph, views_of(arguments));
          for (const int bytes : {16, 32, 64}) {
            if (bytes > Target::host().vector_bytes || !runs_case(columns + bytes / 16)) continue;
            INFO(text << ", " << x[0] << " x " << k << " x " << columns << ", vectors of " << bytes << " bytes");
            RunOptions options;
            options.specialised = true;
            options.target.vector_bytes = bytes;
            options.threads = 3;
            CHECK(equals_bitwise(run(graph, views_of(arguments), options), expected));
          }
        }
      }
}

// 784 is a multiple of the squares that are transposed in registers. Narrower vectors pack the operand.
TEST_CASE("contract: specialized kernels of divisible extents have no masks", "[contract]") {
  if (!has_codegen() || Target::host().vector_bytes < 64) return;
  const auto masks = [](std::int64_t rows, std::int64_t k, Mode mode) {
    const auto f = compile([](Tensor x, Tensor y) { return matmul(x, transpose(y)); }, {.mode = mode});
    const std::string signature = fmt::format("f32[{0},{1}] f32[10,{1}]", rows, k);
    return f.describe(signature, Detail::code).kernels.at(0).llvm.find("masked.load") != std::string::npos;
  };
  CHECK(masks(128, 784, Mode::generic));
  CHECK(masks(128, 783, Mode::specialized));
  CHECK(!masks(128, 784, Mode::specialized));
}

TEST_CASE("contract: tiles that are completely masked change no bit", "[contract]") {
  const auto check = [](const char* formula, const Inputs& inputs, float hidden) {
    const ir::Graph graph = optimised(formula, inputs, f32);
    std::vector<ir::Buffer> arguments = values_for(graph, false);
    for (ir::Buffer& b : arguments)  // rows that the mask hides
      if (b.shape.back() == 20)
        for (std::size_t i = b.bytes.size() / 8 * 7 / 4; i < b.bytes.size() / 4; ++i) std::memcpy(b.bytes.data() + 4 * i, &hidden, 4);
    equal_everywhere(graph, arguments);
  };
  for (const float hidden : {std::numeric_limits<float>::infinity(), -0.0f, std::numeric_limits<float>::quiet_NaN()}) {
    check("i = iota([60]); j = iota([90]); out = where(i[:, none] >= j[none, :], (x @ transpose(y))*2, -1)",
          {{"x", {60, 20}}, {"y", {90, 20}}}, hidden);
    check("where(m > 0.4, x @ transpose(y), z)", {{"x", {60, 20}}, {"y", {90, 20}}, {"m", {60, 90}}, {"z", {90}}}, hidden);
    check("i = iota([60]); out = softmax(where(i[:, none] >= iota([90])[none, :], x @ transpose(y), -inf), -1)",
          {{"x", {60, 20}}, {"y", {90, 20}}}, hidden);
  }
}

TEST_CASE("contract: skipping blocks of zeros changes no bit", "[contract]") {
  const auto tiny = [](DType dtype) { return dtype == f32 ? 1e-30 : 1e-200; };  // its square rounds to 0
  // Columns of y: all negative, with an infinity, with a NaN, and of both signs.
  for (const auto& [formula, x, y] :
       {std::tuple<const char*, std::vector<std::int64_t>, std::vector<std::int64_t>>{"tril(x) @ y", {600, 600}, {600, 70}},
        {"transpose(triu(x)) @ y", {600, 600}, {600, 70}},
        {"tril(x, -300) @ transpose(y)", {600, 600}, {70, 600}},
        {"(0 - tril(x)) @ y", {600, 600}, {600, 70}},
        {"transpose(y) @ triu(x)", {600, 600}, {600, 70}}})
    for (const DType dtype : {f32, f64}) {
      INFO(formula);
      const ir::Graph graph = optimised(formula, {{"x", x}, {"y", y}}, dtype);
      std::vector<ir::Buffer> arguments = values_for(graph, false);
      const std::size_t first = arguments[0].shape == x ? 0 : 1;  // the inputs are in the formula's order
      ir::Buffer &a = arguments[first], &b = arguments[1 - first];
      REQUIRE(a.shape == x);
      REQUIRE(b.shape == y);
      const bool is_transposed = y[0] == 70;
      for (const std::size_t row : {std::size_t{50}, std::size_t{60}, std::size_t{590}})  // positive: each in one row and one column
        for (std::size_t k = 0; k < 600; ++k)
          for (const std::size_t at : {row * 600 + k, k * 600 + row}) {
            const double scale = row == 50 ? 1 : k % 50 == 1 ? 0 : tiny(dtype);
            const std::uint64_t bits = ir::bits_of(dtype, std::abs(element(a, at)) * scale);
            std::memcpy(a.bytes.data() + at * size_of(dtype), &bits, size_of(dtype));
          }
      for (std::int64_t k = 0; k < 600; ++k)
        for (std::int64_t j = 0; j < 70; ++j) {
          const auto at = static_cast<std::size_t>(is_transposed ? j * 600 + k : k * 70 + j);
          double v = element(b, at);
          if (j < 33) v = -std::abs(v);
          if (j == 40 && k == 500) v = std::numeric_limits<double>::infinity();
          if (j == 69 && k == 300) v = std::numeric_limits<double>::quiet_NaN();
          if (j == 34) v = k >= 100 && k < 256 ? 1.0 : -0.0;  // products of row 50: -0, then +0 in zeros behind them, in the first block
          if (j == 35) v = k % 50 == 1 ? 1.0 : -tiny(dtype);  // products of rows 60 and 590 round to -0, behind zeros
          const std::uint64_t bits = ir::bits_of(dtype, v);
          std::memcpy(b.bytes.data() + at * size_of(dtype), &bits, size_of(dtype));
        }
      in_kernels(graph, arguments);
      if (!has_codegen()) continue;
      const std::vector<ir::Buffer> expected = ir::evaluate(graph, views_of(arguments));
      for (const int bytes : {16, 32, 64}) {
        if (bytes > Target::host().vector_bytes) continue;
        RunOptions options;
        options.target.vector_bytes = bytes;
        options.threads = 2;
        CHECK(equals_bitwise(run(graph, views_of(arguments), options), expected));
      }
    }
}
