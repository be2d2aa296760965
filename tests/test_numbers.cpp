// Numbers: steps compute a call's numbers with the bits and errors of fold, for every operator, kind and value.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <onepass/onepass.h>
#include <catch2/catch.hpp>

#include "compiler/literal.h"
#include "compiler/scalars.h"
#include "compiler/target.h"
#include "how_long.h"
#include "ir/build.h"
#include "ir/reference.h"

using namespace onepass;
using namespace onepass::compiler;
using Catch::Contains;
using ir::Op;
using Kind = Literal::Kind;

namespace {

constexpr Kind kKinds[] = {Kind::Bool, Kind::Int, Kind::UInt, Kind::Float};
using Random = std::mt19937_64;

double random_real(Random& random) {
  static const double specials[] = {0.0,
                                    -0.0,
                                    1,
                                    -1,
                                    2,
                                    0.5,
                                    -2.5,
                                    3,
                                    std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN(),
                                    std::numeric_limits<double>::denorm_min(),
                                    -std::numeric_limits<double>::min(),
                                    std::numeric_limits<double>::max(),
                                    0x1p53,
                                    -0x1p63,
                                    1e300,
                                    709.5,
                                    -745.2};
  switch (random() % 4) {
    case 0: return specials[random() % std::size(specials)];
    case 1: return std::bit_cast<double>(random());  // any exponent
    case 2: return static_cast<double>(static_cast<std::int64_t>(random() % 41) - 20);
    default: return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -60);
  }
}

std::int64_t random_integer(Random& random) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  static const std::int64_t specials[] = {
      0, 1, -1, 2, 63, 64, least, least + 1, most, most - 1, std::int64_t{1} << 31, std::int64_t{1} << 53};
  switch (random() % 4) {
    case 0: return specials[random() % std::size(specials)];
    case 1: return static_cast<std::int64_t>(random());
    default: return static_cast<std::int64_t>(random() % 41) - 20;
  }
}

Literal random_literal(Kind kind, Random& random) {
  switch (kind) {
    case Kind::Bool: return {.kind = kind, .integer = static_cast<std::int64_t>(random() % 2)};
    case Kind::UInt: return {.kind = kind, .integer = random_integer(random)};
    case Kind::Int: return {.kind = kind, .integer = random_integer(random)};
    case Kind::Float: break;
  }
  return {.kind = Kind::Float, .real = random_real(random)};
}

std::string text_of(Op op, std::span<const Literal> operands) {
  std::string text(ir::info(op).text);
  for (const Literal& l : operands) text += " " + compiler::text_of(l) + (l.kind == Kind::UInt ? "u" : "");
  return text;
}

// Returns the result of `f`, or its error text.
template <class F> std::string outcome(F&& f) {
  try {
    return f();
  } catch (const Error& error) { return std::string("error: ") + error.what(); }
}

// Returns the bits as text, with all NaNs equal.
std::string bits_text(std::span<const std::uint64_t> slots, std::span<const DType> types) {
  std::string text;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool is_nan = is_float(types[i]) && std::isnan(ir::double_of(types[i], slots[i]));
    text += is_nan ? "nan " : std::to_string(slots[i]) + " ";
  }
  return text;
}

// True for operators that programs can apply to literals; the other operators occur only in expansions.
bool is_of_programs(Op op) {
  if (!ir::is_elementwise(op) || ir::info(op).traits & ir::kPartial) return false;
  return op != Op::Rare && op != Op::Bitcast && op != Op::ErfShort && op != Op::TanhShort;
}

// Returns scalar parameter types that hold any value of the kind, and some for which values may be out of range.
std::vector<DType> slot_types(Kind kind) {
  switch (kind) {
    case Kind::Bool: return {DType::Bool, DType::I64, DType::F32, DType::U8};
    case Kind::Int: return {DType::I64, DType::F32, DType::F64, DType::F16, DType::I32, DType::U8};
    case Kind::UInt: return {DType::U64, DType::F32, DType::F64, DType::I64};
    case Kind::Float: break;
  }
  return {DType::F64, DType::F32, DType::BF16};
}

}  // namespace

TEST_CASE("numbers: steps and fold give the same results for each operator and all kinds", "[numbers]") {
  Random random(11);
  int checked = 0, errors = 0;
  for (int id = 0; id < ir::kOpCount; ++id) {
    const Op op = static_cast<Op>(id);
    if (!is_of_programs(op)) continue;
    const auto arity = static_cast<std::size_t>(ir::info(op).arity);
    std::size_t combinations = 1;
    for (std::size_t i = 0; i < arity; ++i) combinations *= std::size(kKinds);
    for (std::size_t kinds = 0; kinds < combinations; ++kinds) {
      const auto draw = [&] {
        std::vector<Literal> in;
        for (std::size_t i = 0, rest = kinds; i < arity; ++i, rest /= std::size(kKinds))
          in.push_back(random_literal(kKinds[rest % std::size(kKinds)], random));
        return in;
      };
      // Records with values that the operator accepts; some of them are literals of the program.
      std::vector<Literal> recorded;
      std::optional<Literal> result;
      for (int attempt = 0; attempt < 60 && !result; ++attempt) {
        recorded = draw();
        try {
          result = fold(op, "name", recorded);
        } catch (const Error&) {}
      }
      if (!result) continue;  // rejects these kinds
      Numbers numbers;
      std::vector<bool> brought;
      for (std::uint32_t i = 0; i < arity; ++i) {
        brought.push_back(i == 0 || random() % 4 != 0);
        if (brought[i]) recorded[i] = numbers.bring(i, recorded[i]);
      }
      numbers.derive(*result, op, "name", recorded);
      const std::vector<DType> types = slot_types(result->kind);
      const std::size_t filled = 1 + random() % types.size();
      for (std::uint32_t s = 0; s < filled; ++s) numbers.fill(s, types[s], *result, "slot");
      numbers.finish();
      for (int call = 0; call < 40; ++call) {
        std::vector<Literal> in = draw();
        for (std::size_t i = 0; i < arity; ++i)
          if (!brought[i]) in[i] = recorded[i];
        const auto argument = [&](std::size_t i) -> const Literal& { return in[i]; };
        INFO(text_of(op, in));
        std::vector<std::uint64_t> slots(filled), by_fold(filled);
        const std::span<const DType> used(types.data(), filled);
        const std::string expected = outcome([&] {
          const Literal value = fold(op, "name", in);
          REQUIRE(value.kind == result->kind);
          for (std::size_t s = 0; s < filled; ++s) by_fold[s] = bits_of(value, types[s], "slot");
          return bits_text(by_fold, used);
        });
        const bool fails = expected.starts_with("error");
        REQUIRE(numbers.compute(argument, slots) == !fails);  // by steps only
        if (!fails) REQUIRE(bits_text(slots, used) == expected);
        REQUIRE(outcome([&] {
                  numbers.evaluate(argument, slots);
                  return bits_text(slots, used);
                }) == expected);
        ++checked, errors += fails;
      }
    }
  }
  CHECK(checked > 10'000);
  CHECK(errors > 300);
}

TEST_CASE("numbers: chains of operators run as steps", "[numbers]") {
  Random random(12);
  std::vector<Op> ops;
  for (int id = 0; id < ir::kOpCount; ++id)
    if (is_of_programs(static_cast<Op>(id))) ops.push_back(static_cast<Op>(id));
  for (int program = 0; program < 300; ++program) {
    Numbers numbers;
    std::vector<Literal> values;
    std::vector<Kind> kinds;
    const auto arguments = static_cast<std::uint32_t>(1 + random() % 4);
    for (std::uint32_t i = 0; i < arguments; ++i) {
      kinds.push_back(kKinds[random() % std::size(kKinds)]);
      values.push_back(numbers.bring(i, random_literal(kinds[i], random)));
    }
    // Some programs have more values than a call keeps on the stack.
    const std::size_t length = program % 50 == 0 ? 200 : 1 + random() % 12;
    for (std::size_t attempt = 0; attempt < 20 * length && values.size() < arguments + length; ++attempt) {
      const Op op = ops[random() % ops.size()];
      std::vector<Literal> in;
      for (int i = 0; i < ir::info(op).arity; ++i)
        in.push_back(random() % 4 ? values[random() % values.size()] : random_literal(kKinds[random() % std::size(kKinds)], random));
      try {
        Literal result = fold(op, "name", in);
        numbers.derive(result, op, "name", in);
        values.push_back(result);
      } catch (const Error&) {}
    }
    std::vector<DType> types;
    for (const Literal& value : values)
      if (value.derived && random() % 2) {
        const std::vector<DType> all = slot_types(value.kind);
        types.push_back(all[random() % all.size()]);
        try {
          static_cast<void>(bits_of(value, types.back(), "slot"));
          numbers.fill(static_cast<std::uint32_t>(types.size() - 1), types.back(), value, "slot");
        } catch (const Error&) { types.pop_back(); }  // an error ends the recording
      }
    numbers.finish();
    for (int call = 0; call < 20; ++call) {
      std::vector<Literal> in;
      for (const Kind kind : kinds) in.push_back(random_literal(kind, random));
      const auto argument = [&](std::size_t i) -> const Literal& { return in[i]; };
      std::vector<std::uint64_t> slots(types.size()), by_fold(types.size());
      const std::string expected = outcome([&] {
        numbers.interpret(argument, by_fold);
        return bits_text(by_fold, types);
      });
      INFO("program " << program << ", call " << call);
      REQUIRE(numbers.compute(argument, slots) == !expected.starts_with("error"));
      REQUIRE(outcome([&] {
                numbers.evaluate(argument, slots);
                return bits_text(slots, types);
              }) == expected);
    }
  }
}

TEST_CASE("numbers: a small power converted to f32 is the rounded pow", "[numbers]") {
  Random random(14);
  for (int n = 1; n <= 9; ++n) {
    Numbers numbers;
    const Literal k = numbers.bring(0, {.kind = Kind::Float, .real = 1.5}), exponent{.kind = Kind::Int, .integer = n};
    const Literal operands[] = {k, exponent};
    Literal power = fold(Op::Pow, "pow", operands);
    numbers.derive(power, Op::Pow, "pow", operands);
    numbers.fill(0, DType::F32, power, "slot");
    numbers.finish();
    for (int call = 0; call < test::times(1000, 4000); ++call) {
      double x = random_real(random);
      if (call % 2) {  // the power is close to the midpoint of two f32 values, where an error of pow would change the rounding
        const float f =
            static_cast<float>(std::ldexp(1 + static_cast<double>(random() % 1000'000) * 1e-6, static_cast<int>(random() % 40) - 20));
        const double between = (static_cast<double>(f) + static_cast<double>(std::nextafter(f, 1e30f))) / 2;
        x = std::nextafter(std::pow(between, 1.0 / n), random() % 2 ? 0.0 : 1e30) * (random() % 2 ? 1 : -1);
      }
      const Literal value{.kind = Kind::Float, .real = x};
      const auto argument = [&](std::size_t) -> const Literal& { return value; };
      std::uint64_t bits = 0, by_fold = 0;
      REQUIRE(numbers.compute(argument, {&bits, 1}));
      numbers.interpret(argument, {&by_fold, 1});
      const DType type = DType::F32;
      INFO(x << " ** " << n);
      REQUIRE(bits_text({&bits, 1}, {&type, 1}) == bits_text({&by_fold, 1}, {&type, 1}));
    }
  }
}

TEST_CASE("numbers: elementary functions of one number equal their expansions", "[numbers]") {
  Random random(13);
  const std::int64_t count = test::times(8000, 20'000);
  std::vector<double> a, b;
  while (std::ssize(a) < count) {
    a.push_back(random_real(random));
    b.push_back(random_real(random));
    const double near =
        static_cast<double>(static_cast<std::int64_t>(random() % 2001) - 1000) / 1000;  // in the domain of inverse functions
    a.push_back(near);
    b.push_back(near * 8);
  }
  const std::int64_t shape[] = {count};
  int functions = 0, in_parts = 0;
  for (int id = 0; id < ir::kOpCount; ++id) {
    const Op op = static_cast<Op>(id);
    if (ir::info(op).kind != ir::OpKind::Expanded) {
      CHECK(elementary_forms(op).function == nullptr);
      continue;
    }
    ir::Graph g;
    std::vector<std::int64_t> operands;
    for (int i = 0; i < ir::info(op).arity; ++i)
      operands.push_back(g.add_input(std::string(1, static_cast<char>(97 + i)), DType::F64, shape));
    g.outputs = {g.add(ir::Node{op, DType::F64, g.intern(shape), g.intern(operands), 0, 0})};
    std::vector<ir::ArrayView> views = {{DType::F64, a.data(), {count}}, {DType::F64, b.data(), {count}}};
    views.resize(operands.size());
    const std::vector<ir::Buffer> expected = ir::evaluate(g, views);
    std::vector<ElementaryForms> all = {elementary_forms_baseline(op)};
#ifdef __x86_64__
    if (Target::host().has_avx2()) all.push_back(elementary_forms_avx2(op));
#endif
    for (const ElementaryForms& forms : all) {
      REQUIRE(forms.function);
      std::vector<Scalar> kept(forms.kept);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const double e = expected[0].as<double>()[i];
        INFO(ir::info(op).text << " " << a[i] << " " << b[i]);
        const auto agrees = [&](double y) {
          return std::isnan(e) ? std::isnan(y) : std::bit_cast<std::uint64_t>(y) == std::bit_cast<std::uint64_t>(e);
        };
        REQUIRE(agrees(forms.function(a[i], b[i])));
        if (!forms.begin) continue;
        forms.begin(a[i], kept.data());
        REQUIRE(agrees(forms.rest(kept.data(), b[i])));
      }
      in_parts += forms.begin != nullptr;
    }
    ++functions;
  }
  CHECK(functions > 30);
  CHECK(in_parts > 0);
}

TEST_CASE("numbers: a new value neither records nor plans, and an error affects only its call", "[numbers]") {
  const Array x = Array::from<std::int64_t>({1, 2, 3});
  const Formula f = formula("x * (k*k) + n // 2");
  for (int k = 1; k < 50; ++k) {
    const Array y = f({x, k, -k});
    CHECK(y.at<std::int64_t>({2}) == 3 * k * k + static_cast<std::int64_t>(std::floor(-k / 2.0)));
  }
  CHECK(f.stats().recordings == 1);
  CHECK(f.stats().plans == 1);
  const auto error = [&](std::int64_t k, std::int64_t n) {
    return outcome([&] {
      f({x, k, n});
      return std::string();
    });
  };
  CHECK_THAT(error(std::int64_t{1} << 40, 1), Contains("formula:1:") && Contains("the integer literals overflow i64"));
  CHECK(error(3, 1).empty());
  CHECK(f.stats().recordings == 1);

  const Formula narrow = formula("x + 3*k");
  const Array bytes = Array::from<std::uint8_t>({1, 2});
  CHECK(Array(narrow({bytes, 2})).at<std::uint8_t>({1}) == 8);
  CHECK_THAT(outcome([&] {
               narrow({bytes, 200});
               return std::string();
             }),
             Contains("the literal 600 does not fit u8"));
  CHECK(Array(narrow({bytes, 3})).at<std::uint8_t>({1}) == 11);
}

TEST_CASE("numbers: an argument gives the same bits as an equal literal", "[numbers]") {
  const Array s = Array::from({0.25f, -3.0f, 1e10f});
  const std::string text = "s * (1 - 0.9**t) / exp(-k*t) + sin(k*1e10) + where(k < t, lgamma(k), atan2(k, t)) + n % 7 * maximum(n, 3)";
  const Formula brought = formula(text);
  for (int i = -20; i < 20; ++i) {
    const double k = 0.37 * i, t = i * i;
    const Formula written = formula(fmt::format("k = {:.17g}*1.0; t = {:.17g}*1.0; n = {}; out = {}", k, t, i, text));
    const Array y = brought({{"s", s}, {"t", t}, {"k", k}, {"n", i}}), z = written({s});
    for (std::int64_t e = 0; e < 3; ++e) {
      const float a = y.at<float>({e}), b = z.at<float>({e});
      INFO(i << ": " << a << " " << b);
      CHECK(((std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)));
    }
  }
  CHECK(brought.stats().recordings == 1);
}
