// simplify: each rule where it applies, and similar cases where it must not apply.
#include "compiler/simplify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "golden.h"
#include "ir/build.h"
#include "ir/reference.h"
#include "node_text.h"

using namespace onepass;
using namespace onepass::ir;
using compiler::simplify;
using test::node_text;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Returns values that rules often get wrong: both zeros, NaN, infinities, ones, minimum and maximum, a fraction, a denormal.
std::vector<std::uint64_t> special_bits(DType dtype) {
  if (dtype == DType::Bool) return {0, 1, 1};
  if (dtype == DType::F16) return {0, 0x8000, 0x3c00, 0xbc00, 0x7e00, 0x7c00, 0xfc00, 0x2e66, 1, 0x7bff};
  if (dtype == DType::BF16) return {0, 0x8000, 0x3f80, 0xbf80, 0x7fc0, 0x7f80, 0xff80, 0x3dcd, 1, 0x7f7f};
  std::vector<std::uint64_t> result;
  if (is_float(dtype)) {
    for (const double v : {0.0, -0.0, 1.0, -1.0, kNan, kInfinity, -kInfinity, 0.1, 1e-40, 3e38, 16777217.0, -200.7})
      result.push_back(bits_of(dtype, v));
  } else {
    for (const std::int64_t v : {0, 1, -1, 127, -128, 200, 16777217, 2147483647}) result.push_back(bits_of(dtype, v));
    result.push_back(std::uint64_t{1} << (8 * size_of(dtype) - 1));
  }
  return result;
}

/// Returns the graph's outputs for special values, with all NaNs equal. Each `pairing` combines the inputs' values differently.
std::vector<std::vector<std::uint64_t>> on_special_values(const Graph& graph, std::size_t pairing) {
  std::vector<Buffer> inputs;
  std::vector<ArrayView> views;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const List shape = graph.list(graph.inputs[i].shape);
    const DType dtype = graph.inputs[i].dtype;
    const std::vector<std::uint64_t> values = special_bits(dtype);
    inputs.push_back({dtype, {shape.begin(), shape.end()}, {}});
    for (std::size_t e = 0; e < static_cast<std::size_t>(inputs.back().elements()); ++e) {
      const std::uint64_t bits = values[(e + pairing * (3 + 4 * i)) % values.size()];
      const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
      inputs.back().bytes.insert(inputs.back().bytes.end(), bytes, bytes + size_of(dtype));
    }
  }
  for (const Buffer& b : inputs) views.push_back(b.view());
  std::vector<std::vector<std::uint64_t>> result;
  for (const Buffer& b : evaluate(graph, views)) {
    std::vector<std::uint64_t> out;
    for (std::size_t at = 0; at < b.bytes.size(); at += size_of(b.dtype)) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &b.bytes[at], size_of(b.dtype));
      const std::uint64_t magnitude = bits & (~std::uint64_t{0} >> (65 - 8 * size_of(b.dtype))),
                          infinity = b.dtype == DType::F64   ? 0x7ff0000000000000
                                     : b.dtype == DType::F32 ? 0x7f800000
                                     : b.dtype == DType::F16 ? 0x7c00
                                                             : 0x7f80;
      out.push_back(is_float(b.dtype) && magnitude > infinity ? ~std::uint64_t{0} : bits);
    }
    result.push_back(std::move(out));
  }
  return result;
}

/// A graph under construction with inputs x, y of one type and shape. Simplifies expressions over them, and checks with the reference that
/// results for special values are unchanged.
struct Make {
  explicit Make(DType dtype = DType::F32, std::initializer_list<std::int64_t> extents = {3, 4}) {
    const std::vector<std::int64_t> shape(extents);
    x = {graph, graph.add_input("x", dtype, shape)};
    y = {graph, graph.add_input("y", dtype, shape)};
    flag = {graph, graph.add_input("flag", DType::Bool, shape)};
  }
  Expr of(double value) { return constant_like(x, value); }
  Expr view(Op op, Expr operand, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& attributes = {}) {
    return {graph, graph.add(op, operand.dtype(), graph.intern(shape), {operand.id()}, attributes)};
  }
  std::string simplified(Expr e) {
    graph.outputs = {e.id()};
    const Graph out = simplify(graph);
    verify(out, "simplify");
    const List before = graph.list(e.shape()), after = out.shape(out.outputs[0]);
    CHECK(std::equal(before.begin(), before.end(), after.begin(), after.end()));
    CHECK(out[out.outputs[0]].dtype == e.dtype());
    for (std::size_t pairing = 0; pairing < 4; ++pairing) CHECK(on_special_values(out, pairing) == on_special_values(graph, pairing));
    return node_text(out);
  }
  Graph graph;
  Expr x, y, flag;
};

bool same_graph(const Graph& a, const Graph& b) {
  if (a.size() != b.size() || a.outputs != b.outputs) return false;
  for (NodeId id = 0; id < a.size(); ++id) {
    const Node m = a[id], n = b[id];
    const auto equal = [](List p, List q) { return std::equal(p.begin(), p.end(), q.begin(), q.end()); };
    if (m.op != n.op || m.dtype != n.dtype || m.bits != n.bits) return false;
    if (!equal(a.shape(id), b.shape(id)) || !equal(a.operands(id), b.operands(id)) || !equal(a.attributes(id), b.attributes(id)))
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("simplify: neutral operations are removed, nearly neutral ones stay", "[simplify]") {
  const DType dtype = GENERATE(DType::F32, DType::F64, DType::F16, DType::BF16);
  Make m(dtype);
  const Expr x = m.x;
  CHECK(m.simplified(x + -0.0) == "x");
  CHECK(m.simplified(-0.0 + x) == "x");
  CHECK(m.simplified(x + 0.0) == "add(x, 0)");  // x = -0
  CHECK(m.simplified(0.0 + x) == "add(0, x)");
  CHECK(m.simplified(x - 0.0) == "x");
  CHECK(m.simplified(x - -0.0) == "sub(x, -0)");  // x = -0
  CHECK(m.simplified(0.0 - x) == "sub(0, x)");
  CHECK(m.simplified(x * 1.0) == "x");
  CHECK(m.simplified(1.0 * x) == "x");
  CHECK(m.simplified(x * -1.0) == "mul(x, -1)");
  CHECK(m.simplified(x * 0.0) == "mul(x, 0)");  // NaN, infinity, -1
  CHECK(m.simplified(x / 1.0) == "x");
  CHECK(m.simplified(1.0 / x) == "div(1, x)");
  CHECK(m.simplified(x - x) == "sub(x, x)");  // infinity
  CHECK(m.simplified(x / x) == "div(x, x)");
}

TEST_CASE("simplify: the maximum of floats x and -x is abs(x)", "[simplify]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  Make m(dtype);
  const Expr x = m.x;
  CHECK(m.simplified(maximum(x, -x)) == "abs(x)");
  CHECK(m.simplified(maximum(-x, x)) == "abs(x)");
  CHECK(m.simplified(minimum(x, -x)) == "minimum(x, neg(x))");
  Make integers(DType::I32);  // the smallest integer is its own negative, and abs wraps too: not worth a rule
  CHECK(integers.simplified(maximum(integers.x, -integers.x)) == "maximum(x, neg(x))");
}

TEST_CASE("simplify: integers have one zero", "[simplify]") {
  const DType dtype = GENERATE(DType::I8, DType::I32, DType::I64, DType::U8, DType::U64);
  Make m(dtype);
  const Expr x = m.x;
  CHECK(m.simplified(x + 0) == "x");
  CHECK(m.simplified(0 + x) == "x");
  CHECK(m.simplified(x - 0) == "x");
  CHECK(m.simplified(x * 1) == "x");
  CHECK(m.simplified(x * 0) == "mul(x, 0)");
  CHECK(m.simplified(x & -1) == "x");
  CHECK(m.simplified(constant_bits(x, ~std::uint64_t{0}) & x) == "x");
  CHECK(m.simplified(x & 1) == "bitwise_and(x, 1)");
  CHECK(m.simplified(x | 0) == "x");
  CHECK(m.simplified(constant_bits(x, 0) | x) == "x");
  CHECK(m.simplified(x | 1) == "bitwise_or(x, 1)");
  CHECK(m.simplified(x ^ 0) == "x");
  CHECK(m.simplified(constant_bits(x, 0) ^ x) == "x");
  CHECK(m.simplified(x ^ x) == "bitwise_xor(x, x)");
  CHECK(m.simplified(x & x) == "x");
  CHECK(m.simplified(x | x) == "x");
}

TEST_CASE("simplify: operators that undo or repeat themselves", "[simplify]") {
  Make m;
  const Expr x = m.x, y = m.y, flag = m.flag;
  CHECK(m.simplified(-(-x)) == "x");
  CHECK(m.simplified(-(-(-x))) == "neg(x)");
  CHECK(m.simplified(-abs(-x)) == "neg(abs(x))");
  CHECK(m.simplified(abs(abs(x))) == "abs(x)");
  CHECK(m.simplified(abs(-x)) == "abs(x)");
  CHECK(m.simplified(abs(-(-x))) == "abs(x)");
  CHECK(m.simplified(~(~flag)) == "flag");
  CHECK(m.simplified(~flag) == "bitwise_not(flag)");
  Make naturals(DType::U16);  // neg wraps, and abs changes nothing
  CHECK(naturals.simplified(abs(naturals.x)) == "x");
  CHECK(naturals.simplified(abs(-naturals.x)) == "neg(x)");
  CHECK(m.simplified(maximum(x, x)) == "x");
  CHECK(m.simplified(minimum(x, x)) == "x");
  CHECK(m.simplified(maximum(x, y)) == "maximum(x, y)");
  CHECK(m.simplified(minimum(x, -x)) == "minimum(x, neg(x))");
}

TEST_CASE("simplify: selections with a known condition", "[simplify]") {
  Make m;
  const Expr x = m.x, y = m.y, flag = m.flag;
  CHECK(m.simplified(where(flag, x, x)) == "x");
  CHECK(m.simplified(where(flag, x, y)) == "where(flag, x, y)");
  CHECK(m.simplified(where(flag, 0.0, constant_like(x, -0.0))) == "where(flag, 0, -0)");  // equal, but with different bits
  CHECK(m.simplified(where(constant_bits(flag, 1), x, y)) == "x");
  CHECK(m.simplified(where(constant_bits(flag, 0), x, y)) == "y");
  CHECK(m.simplified(where(flag, x + -0.0, x * 1.0)) == "x");
  CHECK(m.simplified(flag & constant_bits(flag, 1)) == "flag");
  CHECK(m.simplified(flag | constant_bits(flag, 1)) == "bitwise_or(flag, true)");
}

TEST_CASE("simplify: operators on a selection between numbers are computed on the numbers", "[simplify]") {
  Make m;
  const Expr x = m.x, flag = m.flag;
  const auto slot = [&](double value) { return Expr{m.graph, m.graph.add_slot(DType::F32, bits_of(DType::F32, value), x.shape())}; };
  const Expr k = slot(2), l = slot(3), z = slot(4), chosen = where(flag, k, l);
  CHECK(m.simplified(cast(chosen, DType::F64)) == "where(flag, cast<f64>(slot0), cast<f64>(slot1))");
  CHECK(m.simplified(-chosen) == "where(flag, neg(slot0), neg(slot1))");
  CHECK(m.simplified(z - abs(-chosen)) == "where(flag, sub(slot2, abs(slot0)), sub(slot2, abs(slot1)))");
  CHECK(m.simplified(chosen * where(flag, z, 1.0)) == "where(flag, mul(slot0, slot2), slot1)");
  CHECK(m.simplified(chosen * x) == "mul(where(flag, slot0, slot1), x)");
  CHECK(m.simplified(-where(flag, k, x)) == "neg(where(flag, slot0, x))");
  CHECK(m.simplified(chosen * where(x < m.y, k, l)) == "mul(where(flag, slot0, slot1), where(less(x, y), slot0, slot1))");
}

TEST_CASE("simplify: mul0 with a constant", "[simplify]") {
  Make m;
  const Expr x = m.x;
  CHECK(m.simplified(mul0(1.0, x)) == "x");           // the cotangent is not zero: 1 * x
  CHECK(m.simplified(mul0(x, 1.0)) == "mul0(x, 1)");  // x = -0 gives +0
  CHECK(m.simplified(mul0(2.5, x)) == "mul(2.5, x)");
  CHECK(m.simplified(mul0(kNan, x)) == "mul(nan, x)");
  CHECK(m.simplified(mul0(0.0, x)) == "0");
  CHECK(m.simplified(mul0(-0.0, x)) == "0");          // not -0
  CHECK(m.simplified(mul0(x, 0.0)) == "mul0(x, 0)");  // x infinite or NaN
}

TEST_CASE("simplify: a share of a zero cotangent", "[simplify]") {
  Make m;
  const auto share = [&](double g) { return m.simplified(apply(Op::Share, {constant_like(m.x, g), m.x, m.y})); };
  CHECK(share(0.0) == "0");
  CHECK(share(-0.0) == "share(-0, x, y)");  // +0 if the other operand is selected
  CHECK(share(1.0) == "share(1, x, y)");
}

TEST_CASE("simplify: casts", "[simplify]") {
  auto chain = [](DType first, DType middle, DType last) {
    Make m(first);
    return m.simplified(cast(cast(m.x, middle), last));
  };
  auto one = [](DType from, DType to) {
    Make m(from);
    return m.simplified(cast(m.x, to));
  };
  CHECK(one(DType::F32, DType::F32) == "x");
  CHECK(one(DType::I8, DType::I8) == "x");
  CHECK(one(DType::Bool, DType::Bool) == "x");
  CHECK(one(DType::F16, DType::F16) == "cast<f16>(x)");  // this cast rounds the value
  CHECK(one(DType::BF16, DType::BF16) == "cast<bf16>(x)");
  CHECK(one(DType::F32, DType::I32) == "cast<i32>(x)");
  Make half(DType::F16), full;
  CHECK(half.simplified(bitcast(half.x, DType::F16)) == "bitcast<f16>(x)");
  CHECK(full.simplified(bitcast(full.x, DType::F32)) == "x");
  CHECK(full.simplified(bitcast(full.x, DType::I32)) == "bitcast<i32>(x)");

  SECTION("through a type that holds every value") {
    CHECK(chain(DType::F32, DType::F64, DType::F32) == "x");
    CHECK(chain(DType::F32, DType::F64, DType::I32) == "cast<i32>(x)");
    CHECK(chain(DType::F32, DType::F64, DType::F16) == "cast<f16>(x)");
    CHECK(chain(DType::I8, DType::I32, DType::U8) == "cast<u8>(x)");
    CHECK(chain(DType::U8, DType::I32, DType::F32) == "cast<f32>(x)");
    CHECK(chain(DType::I16, DType::F32, DType::I16) == "x");
    CHECK(chain(DType::I16, DType::F32, DType::F64) == "cast<f64>(x)");
    CHECK(chain(DType::U8, DType::U32, DType::U64) == "cast<u64>(x)");
    CHECK(chain(DType::Bool, DType::U8, DType::F32) == "cast<f32>(x)");
    CHECK(chain(DType::Bool, DType::F32, DType::Bool) == "x");
    CHECK(chain(DType::F16, DType::F32, DType::F16) == "cast<f16>(x)");  // both round x once
    CHECK(chain(DType::BF16, DType::F64, DType::F32) == "cast<f32>(x)");
  }
  SECTION("but not through one that does not, nor where saturating and wrapping differ") {
    CHECK(chain(DType::F64, DType::F32, DType::F64) == "cast<f64>(cast<f32>(x))");
    CHECK(chain(DType::I32, DType::F32, DType::I32) == "cast<i32>(cast<f32>(x))");  // 2^24 + 1
    CHECK(chain(DType::I64, DType::F64, DType::I64) == "cast<i64>(cast<f64>(x))");
    CHECK(chain(DType::I32, DType::U32, DType::I64) == "cast<i64>(cast<u32>(x))");
    CHECK(chain(DType::I8, DType::U32, DType::I64) == "cast<i64>(cast<u32>(x))");
    CHECK(chain(DType::U8, DType::I8, DType::U8) == "cast<u8>(cast<i8>(x))");
    CHECK(chain(DType::U8, DType::F32, DType::I8) == "cast<i8>(cast<f32>(x))");  // 200: 127 via f32, -56 directly
    CHECK(chain(DType::F32, DType::I64, DType::F32) == "cast<f32>(cast<i64>(x))");
    CHECK(chain(DType::I32, DType::Bool, DType::I32) == "cast<i32>(cast<bool>(x))");
    CHECK(chain(DType::F32, DType::F16, DType::F32) == "cast<f32>(cast<f16>(x))");
    CHECK(chain(DType::F16, DType::F16, DType::F32) == "cast<f32>(cast<f16>(x))");  // a cast to a half is never removed
    CHECK(chain(DType::U8, DType::BF16, DType::F32) == "cast<f32>(cast<bf16>(x))");
  }
}

TEST_CASE("simplify: views of views", "[simplify]") {
  Make m(DType::F32, {3, 4});
  const Expr x = m.x;
  SECTION("reshape") {
    CHECK(m.simplified(m.view(Op::Reshape, m.view(Op::Reshape, x, {12}), {2, 6})) == "reshape[2,6](x)");
    CHECK(m.simplified(m.view(Op::Reshape, m.view(Op::Reshape, x, {12}), {3, 4})) == "x");
    CHECK(m.simplified(m.view(Op::Reshape, x, {3, 1, 4})) == "reshape[3,1,4](x)");
    CHECK(m.simplified(m.view(Op::Reshape, -m.view(Op::Reshape, x, {12}), {3, 4})) == "reshape[3,4](neg(reshape[12](x)))");
  }
  SECTION("permute") {
    CHECK(m.simplified(m.view(Op::Permute, m.view(Op::Permute, x, {4, 3}, {1, 0}), {3, 4}, {1, 0})) == "x");
    CHECK(m.simplified(m.view(Op::Permute, x, {3, 4}, {0, 1})) == "x");
    CHECK(m.simplified(m.view(Op::Permute, x, {4, 3}, {1, 0})) == "permute[1,0](x)");
    const Expr cube = m.view(Op::Reshape, x, {1, 3, 4});
    // result axis i of the first permutation is axis {2, 0, 1}[i]; then the same again
    CHECK(m.simplified(m.view(Op::Permute, m.view(Op::Permute, cube, {4, 1, 3}, {2, 0, 1}), {3, 4, 1}, {2, 0, 1})) ==
          "permute[1,2,0](reshape[1,3,4](x))");
    CHECK(m.simplified(m.view(Op::Permute, m.view(Op::Permute, cube, {4, 1, 3}, {2, 0, 1}), {1, 4, 3}, {1, 0, 2})) ==
          "permute[0,2,1](reshape[1,3,4](x))");
  }
  SECTION("broadcast") {
    const Expr unit = m.view(Op::Reshape, x, {1, 3, 1, 4});
    const Expr wide = m.view(Op::Broadcast, unit, {5, 3, 1, 4});
    CHECK(m.simplified(m.view(Op::Broadcast, wide, {5, 3, 6, 4})) == "broadcast[5,3,6,4](reshape[1,3,1,4](x))");
    CHECK(m.simplified(m.view(Op::Broadcast, unit, {1, 3, 1, 4})) == "reshape[1,3,1,4](x)");
  }
  SECTION("slice: starts and steps compose, also backwards") {
    const Expr inner = m.view(Op::Slice, x, {2, 4}, {2, 0, -2, 1});  // rows 2, 0
    CHECK(m.simplified(m.view(Op::Slice, inner, {1, 2}, {1, 1, 1, 2})) == "slice[0,1,-2,2](x)");
    CHECK(m.simplified(m.view(Op::Slice, inner, {2, 4}, {1, 3, -1, -1})) == "slice[0,3,2,-1](x)");
  }
  SECTION("a slice that takes everything stays: its start and extent are values of the call") {
    CHECK(m.simplified(m.view(Op::Slice, x, {3, 4}, {0, 0, 1, 1})) == "slice[0,0,1,1](x)");
  }
  SECTION("pad") {
    const Expr inner = m.view(Op::Pad, x, {9, 4}, {1, 0, 3, 1});  // rows at 1, 4, 7
    CHECK(m.simplified(m.view(Op::Pad, inner, {20, 5}, {2, 1, 2, 1})) == "pad[4,1,6,1](x)");
    CHECK(m.simplified(m.view(Op::Slice, inner, {3, 4}, {1, 0, 3, 1})) == "slice[1,0,3,1](pad[1,0,3,1](x))");
  }
}

TEST_CASE("simplify: a view of a constant or slot is a constant or slot of the view's shape", "[simplify]") {
  Make m(DType::F32, {3, 4});
  const Expr constant = constant_like(m.x, 2.5);
  const Expr slot{m.graph, m.graph.add_slot(DType::F32, bits_of(DType::F32, 1.0), m.x.shape())};
  auto check = [&](Op op, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& attributes) {
    CHECK(m.simplified(m.view(op, constant, shape, attributes)) == "2.5");
    CHECK(m.simplified(m.view(op, slot, shape, attributes)) == "slot0");
    m.graph.outputs = {m.view(op, slot, shape, attributes).id()};
    const Graph out = simplify(m.graph);
    CHECK(std::vector<std::int64_t>(out.shape(out.outputs[0]).begin(), out.shape(out.outputs[0]).end()) == shape);
  };
  check(Op::Reshape, {12}, {});
  check(Op::Permute, {4, 3}, {1, 0});
  check(Op::Slice, {2, 2}, {0, 1, 1, 2});
  check(Op::Diagonal, {3}, {0, 0, 1});
  const std::vector<std::int64_t> pad{1, 0, 1, 1};
  CHECK(m.simplified(m.view(Op::Pad, constant, {5, 4}, pad)) == "pad[1,0,1,1](2.5)");
  CHECK(m.simplified(m.view(Op::Pad, slot, {5, 4}, pad)) == "pad[1,0,1,1](slot0)");
  CHECK(m.simplified(m.view(Op::Pad, constant_like(m.x, 0.0), {5, 4}, pad)) == "0");
  CHECK(m.simplified(m.view(Op::Pad, constant_like(m.x, -0.0), {5, 4}, pad)) == "pad[1,0,1,1](-0)");
}

TEST_CASE("simplify: stop_gradient stays, since a derivative may still be taken", "[simplify]") {
  Make m;
  CHECK(m.simplified(apply(Op::StopGradient, {m.x})) == "stop_gradient(x)");
}

TEST_CASE("simplify: no rule reads a slot's value", "[simplify]") {
  for (const double value : {0.0, -0.0, 1.0, kNan}) {
    Make m;
    const Expr x = m.x;
    const Expr slot{m.graph, m.graph.add_slot(DType::F32, bits_of(DType::F32, value), x.shape())};
    CHECK(m.simplified(x + slot) == "add(x, slot0)");
    CHECK(m.simplified(x - slot) == "sub(x, slot0)");
    CHECK(m.simplified(x * slot) == "mul(x, slot0)");
    CHECK(m.simplified(mul0(slot, x)) == "mul0(slot0, x)");
    CHECK(m.simplified(slot + slot) == "add(slot0, slot0)");
    CHECK(m.simplified(slot * 2.0) == "mul(slot0, 2)");
  }
}

TEST_CASE("simplify: a reduction over axes of extent 1 is a reshape", "[simplify]") {
  const Op op = GENERATE(Op::ReduceSum, Op::ReduceMax, Op::ReduceMin, Op::ReduceProd);
  Make m(DType::F32, {1, 3, 1});
  const std::string name(info(op).text);
  CHECK(m.simplified(m.view(op, m.x, {3}, {0, 2})) == "reshape[3](x)");
  CHECK(m.simplified(m.view(op, m.x, {1, 3, 1}, {})) == "x");
  CHECK(m.simplified(m.view(op, m.x, {1}, {0, 1})) == name + "[0,1](x)");
  Make none(DType::F32, {0, 3});
  CHECK(none.simplified(none.view(op, none.x, {0}, {1})) == name + "[1](x)");
  if (op == Op::ReduceMax || op == Op::ReduceMin) return;  // without elements, a maximum or minimum is an error
  Make over_nothing(DType::F32, {3, 0});
  CHECK(over_nothing.simplified(over_nothing.view(op, over_nothing.x, {3}, {1})) == name + "[1](x)");
}

TEST_CASE("simplify: equal rows are reduced once if the sum keeps its order", "[simplify]") {
  Make m(DType::F32, {1, 5});
  const Expr x = m.view(Op::Broadcast, m.x, {4, 5}), y = m.view(Op::Broadcast, m.y, {4, 5});
  CHECK(m.simplified(m.view(Op::ReduceSum, x * exp(y), {4}, {1})) == "broadcast[4](reduce_sum[1](mul(x, exp(y))))");
  const Expr w{m.graph, m.graph.add_input("w", DType::F32, std::vector<std::int64_t>{4, 5})};
  CHECK(m.simplified(m.view(Op::ReduceSum, x * w, {4}, {1})) == "reduce_sum[1](mul(broadcast[4,5](x), w))");
  Make c(DType::F32, {5, 1});  // inner-axis reduction for one column, outer-axis reduction for several columns
  const Expr columns = c.view(Op::Broadcast, c.x, {5, 4}), two = c.view(Op::Broadcast, c.x, {5, 2});
  CHECK(c.simplified(c.view(Op::ReduceSum, columns, {4}, {0})) == "broadcast[4](slice[0,1](reduce_sum[0](broadcast[5,2](x))))");
  CHECK(c.simplified(c.view(Op::ReduceSum, two, {2}, {0})) == "reduce_sum[0](broadcast[5,2](x))");
  CHECK(c.simplified(c.view(Op::ReduceMax, columns, {4}, {0})) == "broadcast[4](reduce_max[0](x))");
  Make i(DType::I64, {5, 1});
  CHECK(i.simplified(i.view(Op::ReduceSum, i.view(Op::Broadcast, i.x, {5, 4}), {4}, {0})) == "broadcast[4](reduce_sum[0](x))");
  // a contraction's order does not depend on its kept axes
  Make p(DType::F32, {1, 6, 5});
  const Expr product{p.graph, p.graph.add(Op::ContractRows, DType::F32, p.graph.intern({4, 6}),
                                          {p.view(Op::Broadcast, p.x, {4, 6, 5}).id(),
                                           p.graph.constant(DType::F32, p.graph.intern({4, 6, 5}), ir::bits_of(DType::F32, 3.0))},
                                          std::vector<std::int64_t>{2})};
  CHECK(p.simplified(product) == "broadcast[4,6](contract_rows[2](x, 3))");
}

TEST_CASE("simplify: the first of equal rows keeps its bits", "[simplify]") {
  // reduced axes before, between and after broadcast axes; runs padded to 8 and to 64
  const struct {
    std::vector<std::int64_t> shape, axes;
    std::uint64_t spread;
  } cases[] = {{{300, 7}, {0}, 2},         {{300, 7}, {1}, 1},          {{11, 5, 13}, {0, 2}, 2},
               {{11, 13, 5}, {0, 1}, 4},   {{9, 3, 70, 5}, {0, 2}, 10}, {{9, 3, 70, 5}, {0, 2}, 2},
               {{9, 3, 70, 5}, {0, 2}, 8}, {{9, 2, 70, 2}, {0, 2}, 10}, {{4, 9, 3, 20}, {1, 3}, 5}};
  for (const auto& [shape, axes, spread] : cases)
    for (const DType dtype : {DType::F32, DType::F64}) {
      std::vector<std::int64_t> narrow = shape, kept;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        if (spread >> i & 1) narrow[i] = 1;
        if (std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end()) kept.push_back(shape[i]);
      }
      Graph graph;
      const Expr x(graph, graph.add_input("x", dtype, narrow));
      const Expr all(graph, graph.add(Op::Broadcast, dtype, graph.intern(shape), {x.id()}));
      graph.outputs = {graph.add(Op::ReduceSum, dtype, graph.intern(kept), {(all * 0.3).id()}, axes)};
      graph.output_names = {"out"};
      const Graph simple = prune(simplify(graph));
      verify(simple, "simplify");
      CHECK(print(prune(simplify(simple))) == print(simple));
      std::int64_t most = 0;  // number of added elements
      for (NodeId id = 0; id < simple.size(); ++id)
        if (simple[id].op == Op::ReduceSum) most = simple.elements(simple.operand(id, 0));
      if (element_count(shape) > 16 * element_count(narrow)) CHECK(most <= 4 * element_count(narrow));
      std::vector<double> wide(static_cast<std::size_t>(element_count(narrow)));
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = std::sin(static_cast<double>(i));
      const std::vector<float> single(wide.begin(), wide.end());
      const ArrayView view{dtype, dtype == DType::F32 ? static_cast<const void*>(single.data()) : wide.data(), narrow, {}};
      const std::vector<Buffer> before = evaluate(graph, std::span(&view, 1)), after = evaluate(simple, std::span(&view, 1));
      INFO(print(simple));
      CHECK(before[0].bytes == after[0].bytes);
    }
}

TEST_CASE("simplify: operators on constants are evaluated like the reference", "[simplify]") {
  Make m;
  auto folded = [&](Expr e) { return m.simplified(e); };
  CHECK(folded(m.of(1.5) + 2.0) == "3.5");
  CHECK(folded(m.of(1e30) * 1e30) == "inf");
  CHECK(folded(m.of(-0.0) * 3.0) == "-0");
  CHECK(folded(m.of(0.0) / 0.0) == "nan");
  CHECK(folded(m.of(1.0) / -0.0) == "-inf");
  CHECK(folded(m.of(kInfinity) - kInfinity) == "nan");
  CHECK(folded(m.of(kNan) == m.of(kNan)) == "false");
  CHECK(folded(m.of(0.0) == m.of(-0.0)) == "true");
  CHECK(folded(maximum(m.of(-0.0), 0.0)) == "0");
  CHECK(folded(sqrt(m.of(2.0))) == "1.41421354");  // in f32
  CHECK(folded(m.of(0.1) + 0.2) == "0.300000012");
  CHECK(folded(cast(m.of(1e20), DType::I32)) == "2147483647");
  CHECK(folded(cast(m.of(kNan), DType::I32)) == "0");
  CHECK(folded(cast(cast(m.of(0.1), DType::F16), DType::F32)) == "0.0999755859");  // rounded by the cast to f16
  CHECK(folded(bitcast(m.of(1.0), DType::I32)) == "1065353216");
  CHECK(folded(exp(m.of(0.0))) == "1");
  CHECK(folded(exp(m.of(-kInfinity))) == "0");
  CHECK(folded(log(m.of(0.0))) == "-inf");
  CHECK(folded(where(m.of(1.0) < 2.0, m.x, m.y)) == "x");  // folded first, then selected
  CHECK(folded(m.x * (m.of(3.0) - 2.0)) == "x");
  SECTION("all NaNs are one constant") {
    CHECK((m.of(0.0) / 0.0).id() != (m.of(kInfinity) - kInfinity).id());
    m.graph.outputs = {(m.of(0.0) / 0.0).id(), (m.of(kInfinity) - kInfinity).id(), (-m.of(kNan)).id(),
                       constant_bits(m.of(0.0), 0x7fc00000).id()};
    const Graph out = simplify(m.graph);
    for (NodeId id : out.outputs) CHECK(id == out.outputs[3]);
  }
  SECTION("a half is an f32 until it is cast") {
    Make half(DType::F16);
    CHECK(half.simplified(half.of(0.1) + 0.2) == "0.300000012");
    CHECK(half.simplified(exp(half.of(1.0))) == "2.71828175");
    CHECK(half.simplified(cast(half.of(0.1), DType::F32)) == "0.0999755859");
    CHECK(half.simplified(cast(half.of(0.1), DType::F16)) == "0.0999755859");
    CHECK(half.simplified(bitcast(half.of(1.0), DType::U16)) == "15360");
    CHECK(half.simplified(half.of(70000.0) * 2.0) == "140000");
    CHECK(half.simplified(cast(half.of(70000.0), DType::F16)) == "inf");
  }
  Make integers(DType::I8);
  CHECK(integers.simplified(integers.of(127) + 1) == "-128");
  CHECK(integers.simplified(integers.of(1) << 7) == "-128");
  CHECK(integers.simplified(-integers.of(-128)) == "-128");
}

TEST_CASE("simplify: simplify is idempotent", "[simplify]") {
  Make m(DType::F32, {3, 4});
  const Expr x = m.x, y = m.y, flag = m.flag;
  const Expr slot{m.graph, m.graph.add_slot(DType::F32, 0, m.x.shape())};
  const Expr back = m.view(Op::Reshape, m.view(Op::Reshape, abs(-(x + -0.0)), {12}), {3, 4});
  const Expr chosen = where(m.of(1.0) < 2.0, back * 1.0, y);
  const Expr casts = cast(cast(cast(chosen * mul0(3.0, y), DType::F64), DType::F32), DType::F64);
  const Expr sum = m.view(Op::ReduceSum, m.view(Op::Permute, m.view(Op::Permute, casts, {4, 3}, {1, 0}), {3, 4}, {1, 0}), {3}, {1});
  const Expr sliced = m.view(Op::Slice, m.view(Op::Slice, -(-slot) * x, {2, 4}, {1, 0, 1, 1}), {1, 2}, {0, 1, 1, 2});
  m.graph.outputs = {sum.id(), sliced.id(), where(flag, x, x).id(), chosen.id()};
  m.graph.output_names = {"a", "b", "c", "d"};
  const Graph once = simplify(m.graph);
  CHECK(node_text(once, once.outputs[0]) == "reduce_sum[1](cast<f64>(mul(abs(x), mul(3, y))))");
  CHECK(node_text(once, once.outputs[1]) == "slice[1,1,1,2](mul(slot0, x))");
  CHECK(once.output_names == m.graph.output_names);
  CHECK(once.slots.size() == 1);
  CHECK(once.inputs.size() == 3);
  CHECK(same_graph(simplify(once), once));
  CHECK_FALSE(same_graph(once, m.graph));
  CHECK(once[once.outputs[0]].dtype == DType::F64);
}

TEST_CASE("simplify: random graphs keep their results, and simplify is idempotent", "[simplify]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    Make m(std::array{DType::F32, DType::F64, DType::F16, DType::I32, DType::U8}[below(5)], {3, 4});
    std::vector<Expr> pool{m.x, m.y, m.flag};
    const auto any = [&] { return pool[pool.size() - 1 - below(std::min<std::size_t>(pool.size(), 6))]; };
    const auto a_constant = [&](Expr like) {
      const std::vector<std::uint64_t> special = special_bits(is_half(like.dtype()) ? DType::F32 : like.dtype());
      return constant_bits(like, special[below(special.size())]);
    };
    for (int step = 0; step < 40; ++step) {
      const Expr a = any();
      if (const std::size_t what = below(10); what == 0) {
        pool.push_back(cast(a, std::array{DType::F32, DType::F64, DType::BF16, DType::I32, DType::I8, DType::U16, DType::Bool}[below(7)]));
      } else if (what == 1) {
        pool.push_back(a_constant(a));
      } else if (what == 2) {  // two random slices of a broadcast, reshaped back
        const Expr wide = m.view(Op::Broadcast, m.view(Op::Reshape, a, {3, 1, 4}), {3, 5, 4});
        const auto start = static_cast<std::int64_t>(below(5));
        const Expr thin = m.view(Op::Slice, m.view(Op::Slice, wide, {3, 5, 4}, {2, 4, 0, -1, -1, 1}), {3, 1, 4}, {0, start, 3, 1, 1, -1});
        pool.push_back(m.view(Op::Reshape, m.view(Op::Permute, thin, {4, 1, 3}, {2, 1, 0}), {3, 4}));
      } else if (what == 3) {
        const Expr padded = m.view(Op::Pad, m.view(Op::Pad, a, {7, 4}, {1, 0, 2, 1}), {9, 4}, {8, 3, -1, -1});
        pool.push_back(m.view(Op::Slice, padded, {3, 4}, {static_cast<std::int64_t>(below(3)), 0, 3, 1}));
      } else {
        const Op op = static_cast<Op>(below(kOpCount));
        if (!is_elementwise(op)) continue;
        Expr x[3] = {a, below(4) == 0 ? a_constant(a) : below(4) == 0 ? a : any(), any()};
        DType types[3] = {x[0].dtype(), x[1].dtype(), x[2].dtype()}, out{};
        if (!result_dtype(op, std::span(types, info(op).arity), out)) continue;
        if (op == Op::Signbit || op == Op::Copysign) continue;  // results of these operators depend on a NaN's sign
        if (info(op).arity == 1) pool.push_back(apply(op, {x[0]}));
        else if (info(op).arity == 2) pool.push_back(apply(op, {x[0], x[1]}));
        else pool.push_back(apply(op, {x[0], x[1], x[2]}));
      }
    }
    m.graph.outputs = {pool.back().id(), pool[pool.size() - 2].id(), pool[pool.size() - 5].id()};
    m.graph.output_names = {"a", "b", "c"};
    INFO("seed " << seed << "\n" << print(m.graph));
    const Graph once = simplify(m.graph);
    verify(once, "simplify");
    CHECK(same_graph(simplify(once), once));
    CHECK(prune(once).size() <= prune(m.graph).size());
    for (std::size_t pairing = 0; pairing < 3; ++pairing) CHECK(on_special_values(once, pairing) == on_special_values(m.graph, pairing));
  }
}

TEST_CASE("simplify: sums of disjoint pads and one other term", "[simplify]") {
  const auto sum_of = [](const std::string& body) {
    const Graph graph = parse_graph(
        "%0 = input x : f32[8]\n%1 = input a : f32[1]\n%2 = input b : f32[3]\n"
        "%3 = pad %1 {1, 1} : f32[8]\n%4 = pad %2 {4, 1} : f32[8]\n%5 = pad %1 {0, 1} : f32[8]\n" +
        body);
    const Graph simple = prune(simplify(graph));
    verify(simple, "simplify");
    for (std::size_t pairing = 0; pairing < 64; ++pairing) {
      INFO(print(simple) << pairing);
      CHECK(on_special_values(graph, pairing) == on_special_values(simple, pairing));
    }
    return print(simple);
  };
  const auto count = [](const std::string& text, std::string_view what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  for (const char* body : {"%6 = add %0, %3 : f32[8]\n%7 = add %6, %4 : f32[8]\nreturn out = %7",
                           "%6 = add %3, %0 : f32[8]\n%7 = add %4, %6 : f32[8]\n%8 = add %7, %5 : f32[8]\nreturn out = %8",
                           "%6 = add %3, %4 : f32[8]\n%7 = add %0, %6 : f32[8]\nreturn out = %7"}) {
    const std::string text = sum_of(body);
    CHECK(count(text, "piecewise") == 1);
    CHECK(count(text, "pad ") == 0);
  }
  // the largest of overlapping pads is the term
  const std::string wide = "%6 = pad %0 {0, 1} : f32[9]\n%7 = pad %1 {0, 1} : f32[9]\n%8 = pad %1 {8, 1} : f32[9]\n";
  CHECK(count(sum_of(wide + "%9 = add %7, %6 : f32[9]\n%10 = add %9, %8 : f32[9]\nreturn out = %10"), "pad ") == 1);
  // one pad, overlapping pads, two terms, and a sum that is read twice stay
  CHECK(count(sum_of("%6 = add %0, %3 : f32[8]\nreturn out = %6"), "pad ") == 1);
  CHECK(count(sum_of("%6 = pad %1 {5, 1} : f32[8]\n%7 = add %0, %4 : f32[8]\n%8 = add %7, %6 : f32[8]\nreturn out = %8"), "pad ") == 2);
  CHECK(count(sum_of("%6 = add %0, %3 : f32[8]\n%7 = mul %0, %0 : f32[8]\n%8 = add %4, %7 : f32[8]\n%9 = add %6, %8 : f32[8]\n"
                     "return out = %9"),
              "pad ") == 2);
  CHECK(count(sum_of("%6 = add %0, %3 : f32[8]\n%7 = add %6, %4 : f32[8]\nreturn out = %7, y = %6"), "pad ") == 2);
}

TEST_CASE("simplify: nodes keep the source line that recorded them", "[simplify]") {
  Make m;
  m.graph.sources.push_back("a.fuse:7");
  m.graph.current_source = 1;
  const Expr e = (m.x * 1.0) * m.y;
  m.graph.current_source = 0;
  m.graph.outputs = {e.id()};
  const Graph out = simplify(m.graph);
  CHECK(out.sources[out.source_of[out.outputs[0]]] == "a.fuse:7");
}

TEST_CASE("simplify: time is linear in nodes", "[simplify]") {
  auto seconds = [](int length) {
    Make m;
    Expr e = m.x;
    for (int i = 0; i < length; i += 4) e = -(-(maximum(e * 1.0, m.y)));
    m.graph.outputs = {e.id()};
    double best = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::clock_t start = std::clock();  // CPU time of this process, without other programs
      const Graph out = simplify(m.graph);
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
      REQUIRE(out.size() <= m.graph.size());
    }
    return best;
  };
  // Both graphs are larger than the second-level cache, so that the ratio is of steps, not of cache misses. It is 16 for linear time and
  // 256 for quadratic time.
  const double small = seconds(64'000), large = seconds(1'024'000);
  CHECK(large < 80 * small);
}

TEST_CASE("simplify: many writes into one array are joined, few are not", "[simplify]") {
  const auto ops = [](int writes, std::string_view base) {
    std::string formula = fmt::format("a0 = {}", base);
    for (int k = 0; k < writes; ++k) formula += fmt::format("; a{} = put(a{}, [{}, {}], v[{}])", k + 1, k, k % 9, k / 9, k % 5);
    const Graph graph = test::optimised(formula + fmt::format("; y = a{}*2", writes), {{"x", {9, 9}}, {"v", {5}}});
    std::pair<int, int> all;  // comparisons with writes, and arrays of parts
    for (NodeId id = 0; id < graph.size(); ++id) all.first += graph[id].op == Op::Where, all.second += graph[id].op == Op::Piecewise;
    return all;
  };
  CHECK(ops(7, "x") == std::pair(7, 0));
  CHECK(ops(8, "x") == std::pair(1, 2));
  CHECK(ops(80, "x") == std::pair(1, 2));
  CHECK(ops(80, "full([9, 9], 4)") == std::pair(0, 1));
}
