// Described machines: the text is parsed strictly, and plans are made for the described machine. Results have the same bits on all
// machines.
#include <catch2/catch.hpp>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arrays.h"
#include "every_mode.h"
#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/machine.h"

namespace op = onepass;
using Catch::Matchers::Contains;
using op::compiler::Target;
using op::runtime::DescribedMachine, op::runtime::Machine, op::runtime::described, op::runtime::parse_machine;

namespace {

std::string error_of(std::string_view text) {
  try {
    parse_machine(text);
  } catch (const op::ValueError& e) { return e.what(); }
  return "no error";
}

}  // namespace

TEST_CASE("machine: a description names caches, cores and instructions, in any order", "[machine]") {
  const Machine all = parse_machine("l1=48K,l2=2M,l3=260M,cores=64,isa=avx512");
  CHECK(all.l1_bytes == 48 << 10);
  CHECK(all.l2_bytes == 2 << 20);
  CHECK(all.llc_bytes == 260 << 20);
  CHECK(all.cores == 64);
  CHECK(all.isa == Machine::Isa::Avx512);
  const Machine some = parse_machine("cores=1,l3=16777216");
  CHECK(some.cores == 1);
  CHECK(some.llc_bytes == 16 << 20);
  CHECK_FALSE(some.l1_bytes.has_value());
  CHECK_FALSE(some.isa.has_value());
  CHECK(parse_machine("l3=1024G").llc_bytes == std::int64_t{1} << 40);
}

TEST_CASE("machine: what is not a description is one sentence", "[machine]") {
  CHECK(error_of("") == "ONEPASS_MACHINE: `` is not NAME=VALUE in ``. Write, for example, l1=32K,l2=2M,l3=260M,cores=64,isa=avx2");
  CHECK_THAT(error_of("l2=2M,"), Contains("`` is not NAME=VALUE"));
  CHECK_THAT(error_of("l2=2M, cores=1"), Contains("` cores` is not l1, l2, l3, cores or isa"));
  CHECK_THAT(error_of("l4=2M"), Contains("`l4` is not l1, l2, l3, cores or isa"));
  for (const char* size :
       {"", "2m", "2MB", "-1", "+4K", "0", "1023", "0x1000", "1025G", "9223372036854775807", "99999999999999999999", "1.5M", "K"})
    CHECK_THAT(error_of("l2=" + std::string(size)), Contains("is not a size between 1K and 1024G"));
  for (const char* cores : {"", "0", "-1", "257", "2K", "two"})
    CHECK_THAT(error_of("cores=" + std::string(cores)), Contains("is not between 1 and 256"));
  CHECK_THAT(error_of("isa=sse"), Contains("is not avx2 or avx512"));
  CHECK_THAT(error_of("l1=32K,l1=48K"), Contains("l1 is given twice"));
  CHECK_THAT(error_of("cores=1,cores=1"), Contains("cores is given twice"));
  CHECK(error_of(std::string(100'000, 'x')).size() < 1000);
}

TEST_CASE("machine: features are removed, never added", "[machine]") {
  Target v3 = Target::generic_cpu(), v4 = v3.with_vector_bytes(64);
  CHECK(described(v3, parse_machine("isa=avx512")) == v3);
  CHECK(described(v4, parse_machine("isa=avx512")) == v4);
  CHECK(described(v4, parse_machine("isa=avx2")).vector_bytes == 32);
  CHECK(described(v3, parse_machine("isa=avx2")) == v3);
  const Target other = described(v3, parse_machine("l1=48K,l2=2M,l3=260M,cores=64"));
  CHECK(other.l1_bytes == 48 << 10);
  CHECK(other.l2_bytes == 2 << 20);
  CHECK(other.llc_bytes == 260 << 20);
  CHECK(other.cores == 64);
  CHECK(other.features == v3.features);
}

TEST_CASE("machine: a described machine changes kernels but no bits", "[machine]") {
  if (!op::test::has_codegen()) return;
  const op::Array x = op::test::random_array({3, 40'000});
  std::vector<std::byte> expected;
  for (const char* text : {"l1=32K,l2=256K,l3=16M,cores=1", "l1=32K,l2=512K,l3=384M,cores=8", "l1=48K,l2=1M,l3=32M,cores=64",
                           "l1=48K,l2=2M,l3=260M,cores=32", "l1=1K,l2=1K,l3=1K,cores=256"}) {
    INFO(text);
    const DescribedMachine machine(text);
    CHECK(Target::host().l2_bytes == *parse_machine(text).l2_bytes);
    const op::FormulaResults got =
        op::formula("p = softmax(x); q = cumsum(x, 1)*sum(x, 0); cast(x, f16)", {.mode = op::Mode::generic})({x});
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::vector<std::byte> one = op::test::bytes_of(got[i]);
      bytes.insert(bytes.end(), one.begin(), one.end());
    }
    if (expected.empty()) expected = bytes;
    CHECK(bytes == expected);
  }
}

// Lanes of one vector, and of vectors computed together, take the same path if any of them has a denormal result.
TEST_CASE("machine: ordinary results, denormal ones, infinities and NaNs beside each other in one vector", "[machine]") {
  if (!op::test::has_codegen()) return;
  std::mt19937 random(20);
  const auto check = [&]<class T>(T, const std::vector<double>& kinds) {
    std::vector<T> values;
    for (const double likely : kinds)  // blocks of mostly one kind, so that a vector has one or two others at random lanes
      for (int i = 0; i < 600; ++i) values.push_back(static_cast<T>(random() % 40 == 0 ? kinds[random() % kinds.size()] : likely));
    const op::Array x = op::Array::from(values);
    for (const char* text : {"exp(x)", "exp2(x)", "sigmoid(x)", "sinh(x) + cosh(x)", "pow(2.5, x)", "erfc(x)", "cumsum(exp(x), 0)"})
      for (const op::Mode mode : {op::Mode::generic, op::Mode::specialized}) {
        INFO(text << " of f" << sizeof(T) * 8);
        const op::Array got = op::formula(text, {.mode = mode})({x});
        CHECK(op::test::same_but_for_nan(got, op::formula(text, {.mode = op::Mode::reference})({x})));
      }
  };
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  check(float{}, {0.5, nan, -95.0, 9.9, -140.0, 88.6, -88.0, infinity, -infinity, -103.5, 127.5, 200.0});
  check(double{}, {0.5, nan, -720.0, 26.9, -1060.0, 709.6, -710.0, infinity, -infinity, -745.0, 1023.5, 2000.0});
}

TEST_CASE("machine: prefetches and non-temporal stores of arrays beyond the caches", "[machine]") {
  if (!op::test::has_codegen()) return;
  const DescribedMachine machine("l1=1K,l2=1K,l3=2K");
  const op::Array x = op::test::random_array({6, 40, 513}), i = op::Array::from(std::vector<std::int64_t>{3, 1, 5, 0, 2, 4, 3});
  const op::Array one = op::Array::from({4}).reshape({}), each = op::Array::zeros({1, 40, 513}, op::i64);
  for (const char* text : {
           // the next row is at an index, or at the same index
           "layer_norm(take(x, i, 0))",
           "softmax(take(x, i, 1))",
           "layer_norm(take(x, one, 0))",
           "v, at = topk(x, 1, 0); layer_norm(v)",
           "a = take_along_axis(x, each, 0); a - mean(a, -1, keepdims=true)",
           // an iteration stores 3, 5 or 6 narrow values for each lane
           "stack([x[0, 0] > 1, x[1, 0] > 1, x[2, 0] > 1], 1)",
           "transpose(isnan(x[:5, 0]))",
           "cast(transpose(x[:, 0]), i8)",
           "stack([cast(x[0], i16), cast(x[1], i16), cast(x[2], i16)], -1)",
       }) {
    INFO(text);
    const auto run = [&](op::Mode mode) {
      const op::Formula f = op::formula(text, {.mode = mode});
      std::vector<op::NamedArgument> given;
      for (const std::string& name : f.inputs()) given.push_back({name, name == "x" ? x : name == "i" ? i : name == "one" ? one : each});
      const op::FormulaResults got = f(std::span<const op::NamedArgument>(given));
      CHECK(f.stats().fallbacks == 0);
      std::vector<std::byte> bytes;
      for (std::size_t k = 0; k < got.size(); ++k) {
        const std::vector<std::byte> of_one = op::test::bytes_of(got[k]);
        bytes.insert(bytes.end(), of_one.begin(), of_one.end());
      }
      return bytes;
    };
    const std::vector<std::byte> expected = run(op::Mode::reference);
    for (const op::Mode mode : {op::Mode::generic, op::Mode::specialized, op::Mode::unfused}) CHECK(run(mode) == expected);
  }
}

TEST_CASE("prints the machine, for the case below", "[.][in-a-process-of-its-own]") {
  std::string text;
  try {
    const auto f = op::compile([](op::Tensor x) { return x + 1; });
    f(op::Array::ones({4}, op::f32));
    const Target& host = Target::host();
    text = fmt::format("{} {} {} threads {}", host.l2_bytes, host.llc_bytes, host.cores, op::thread_count());
  } catch (const op::ValueError& e) { text = e.what(); }
  std::FILE* const file = std::fopen(std::getenv("ONEPASS_TEST_ANSWER"), "w");
  REQUIRE(file);
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

TEST_CASE("machine: the variable describes the machine of a process, and an invalid one is an error at compilation", "[machine]") {
  const auto in_process = [](const char* value) {  // a fresh process, which reads the variable
    char name[] = "/tmp/onepass-machine-XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    close(file);
    const std::string self = fmt::format("/proc/{}/exe", getpid());
    REQUIRE(
        std::system(fmt::format("ONEPASS_TEST_ANSWER={} ONEPASS_MACHINE='{}' {} '[in-a-process-of-its-own]' >/dev/null", name, value, self)
                        .c_str()) == 0);
    std::string text;
    std::getline(std::ifstream(name), text);
    std::remove(name);
    return text;
  };
  CHECK(in_process("l2=2M,l3=260M,cores=7") == fmt::format("{} {} 7 threads 7", 2 << 20, 260 << 20));
  CHECK(in_process("l2=2MB") ==
        "ONEPASS_MACHINE: l2=`2MB` is not a size between 1K and 1024G in `l2=2MB`. Write, for example, "
        "l1=32K,l2=2M,l3=260M,cores=64,isa=avx2");
}
