// Measures kernels in each tier, next to the estimates of compiler/plan/costs.h: compile time, and run time on one thread, compiled and
// in the tiled interpreter; and the gain of a shape-specialized kernel. The factors of costs.cpp, and the fraction in `runs_until_hot`,
// come from this table.
//   tiers [TEXT]   only the programs whose text contains TEXT
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compiler/plan/costs.h"
#include "in_turn.h"
#include "runtime/kernel_cache.h"
#include "runtime/speed.h"
#include "tools/program_text.h"

using namespace onepass;

namespace {

struct Row {
  const char* text;
  std::vector<std::vector<std::int64_t>> shapes;
};

const Row kRows[] = {
    {"x*2", {{1000}}},
    {"x*w + b", {{1000}, {1000}, {1000}}},
    {"x*w + b", {{1'000'000}, {1'000'000}, {1'000'000}}},
    {"0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))", {{10'000}}},
    {"log(x*x + 1)*sin(x) + erf(x)*exp(-x*x)", {{100'000}}},
    {"transpose(x)*w", {{300, 400}, {400, 300}}},
    {"where(x > 0, x, y)[1:-1] + y[2:] - x[:-2]", {{100'000}, {100'000}}},
    {"sum(x)", {{1'000'000}}},
    {"sum(x*y, axis=-1)", {{1000, 100}, {1000, 100}}},
    {"sum(x, axis=0)", {{1000, 100}}},
    {"softmax(x, axis=-1)", {{400, 1000}}},
    {"layer_norm(x, g, b, axis=-1)", {{400, 1000}, {1000}, {1000}}},
    {"dg = grad(sum(tanh(layer_norm(x, g, b, axis=-1))), [g])", {{400, 1000}, {1000}, {1000}}},
    {"cumsum(x, axis=-1)", {{100, 1000}}},
    {"argmax(x, axis=-1)", {{100, 1000}}},
    {"a @ b", {{64, 64}, {64, 64}}},
    {"a @ b", {{256, 256}, {256, 256}}},
    {"a @ b", {{512, 512}, {512, 512}}},
    {"transpose(a) @ b", {{200, 300}, {200, 100}}},
    {"a @ v", {{1000, 1000}, {1000}}},
};

struct Measured {
  bool is_there = false;
  double compile_ms = 0, run_us = 0;
};

Measured measure(const ProgramText& program, const std::vector<Array>& inputs, std::optional<runtime::TierChoice> tier) {
  Options options;
  options.threads = 1;
  options.mode = tier ? Mode::generic : Mode::specialized;
  runtime::set_first_tier(tier);
  set_kernel_cache_limits(0, 0);  // each measurement has a separate kernel
  const std::unique_ptr<runtime::Program> compiled = program.compile(options);
  std::vector<runtime::Argument> arguments(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) arguments[i].array = &inputs[i];
  std::vector<Array> results = compiled->call(arguments);
  std::vector<Array*> targets;
  for (Array& r : results) targets.push_back(&r);
  for (const runtime::KernelReport& kernel : compiled->last_report()->kernels)
    if (tier == runtime::TierChoice::Tiles && !kernel.in_tiles) return {};
  const auto call = [&] { compiled->call_into(arguments, targets); };
  const int repeat = std::max(1, static_cast<int>(2e-3 / std::max(bench::seconds(call, 1), 1e-8)));
  std::vector<double> times;
  for (int round = 0; round < 15; ++round) times.push_back(bench::seconds(call, repeat));
  std::ranges::nth_element(times, times.begin() + 7);
  return {true, compiled->stats().ms_compiling, times[7] * 1e6};
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view wanted = count > 1 ? arguments[1] : "";
  runtime::set_promotion(false);
  measure(ProgramText("x*3", "first"), {bench::random_floats({10})}, runtime::TierChoice::Optimised);  // loads the compiler library
  measure(ProgramText("x*3", "first"), {bench::random_floats({10})}, runtime::TierChoice::Quick);
  fmt::print("{:60} | compile ms, estimated: quick, optimised | run us: tiles, quick, optimised, own; estimated: quick, optimised\n", "");
  for (const Row& row : kRows) {
    if (std::string_view(row.text).find(wanted) == std::string_view::npos) continue;
    const ProgramText program(row.text, "tiers");
    std::vector<Array> inputs;
    for (const auto& shape : row.shapes) inputs.push_back(bench::random_floats(shape));
    const Measured tiles = measure(program, inputs, runtime::TierChoice::Tiles),
                   quick = measure(program, inputs, runtime::TierChoice::Quick),
                   optimised = measure(program, inputs, runtime::TierChoice::Optimised), own = measure(program, inputs, std::nullopt);
    std::vector<runtime::ArgumentType> types;
    for (const Array& a : inputs) types.push_back({a.dtype(), {a.shape().begin(), a.shape().end()}, {}});
    Options options;
    options.threads = 1;
    compiler::TierTimes compile, run;
    for (const runtime::KernelReport& kernel : program.compile(options)->report(types).kernels) {
      const compiler::Nest& nest = kernel.planned.nest;
      const compiler::Schedule& schedule = kernel.scheduled.schedule;
      const compiler::ScheduleNumbers& n = kernel.scheduled.numbers;
      const compiler::TierTimes c = compiler::compile_times(nest, schedule),
                                r = compiler::run_times(nest, static_cast<double>(n.work),
                                                        static_cast<double>(n.bytes_read + n.bytes_written));
      compile.quick += c.quick, compile.optimised += c.optimised, run.quick += r.quick, run.optimised += r.optimised;
    }
    std::string shapes;
    for (const auto& shape : row.shapes) shapes += fmt::format(" {}", fmt::join(shape, "x"));
    fmt::print("{:60} | {:5.1f} {:5.1f}, {:5.1f} {:5.1f} | {:9} {:9.1f} {:9.1f} {:9.1f}, {:9.1f} {:9.1f}\n",
               fmt::format("{:.40}{:.20}", row.text, shapes), quick.compile_ms, optimised.compile_ms, compile.quick / 1e6,
               compile.optimised / 1e6, tiles.is_there ? fmt::format("{:.1f}", tiles.run_us) : "-", quick.run_us, optimised.run_us,
               own.run_us, run.quick / 1e3, run.optimised / 1e3);
  }
  fmt::print("machine speed: {:.2f}\n", runtime::machine_speed());
}
