// What a GPU does with our kernels: are results those of the reference, and how fast do they come? Runs on the target alone, beside what
// tools/gpu-check put into its folder; prints one JSON object.
//
//   gpu_check [--programs N] [--graphs N] [--seconds S] [--small]
//
// --programs N: the first N of the fixed programs alone. --graphs N: so many random graphs. --seconds S: of measuring for each program.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "cuda_programs.h"
#include "device_call.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/nvrtc.h"
#include "tools/program_text.h"
#include "tools/timing.h"

using namespace onepass;
using namespace onepass::test;
using Json = nlohmann::ordered_json;
using runtime::cuda::Gpu;

namespace {

struct Words {
  std::vector<CudaProgram> programs = cuda_programs();
  int graphs = 100;
  double seconds = 0.3;
  bool small = false;
};

// ---- results
class Differential {
 public:
  void check(const std::string& name, const ir::Graph& of, std::uint64_t seed, bool strided = false) {
    const ir::Graph graph = compiler::copy_results(of);
    const Arguments arguments = random_arguments(graph, seed, strided);
    for (const bool unfused : {false, true}) {
      ++checks_;
      std::string what;
      try {
        what = difference_from_reference(graph, arguments, call_on_device(Gpu::get(), graph, arrays_of(arguments), unfused));
      } catch (const std::exception& error) { what = error.what(); }
      if (!what.empty() && failures_.size() < 20)
        failures_.push_back({{"name", name}, {"unfused", unfused}, {"what", what}, {"graph", ir::print(graph)}});
      failed_ += !what.empty();
    }
  }
  Json json() const { return {{"checks", checks_}, {"failed", failed_}, {"failures", failures_}}; }
  bool all_equal() const { return failed_ == 0; }

 private:
  int checks_ = 0, failed_ = 0;
  Json failures_ = Json::array();
};

void check_programs(Differential& differential, const std::vector<CudaProgram>& programs) {
  for (const CudaProgram& program : programs) differential.check(program.name, graph_of(program, program.small), 7);
}
void check_random_graphs(Differential& differential, int count) {
  for (int seed = 1; seed <= count; ++seed) {
    RandomGraphOptions options;
    options.nodes = 4 + seed % 24;
    options.max_elements = seed % 5 == 0 ? 20000 : 2000;
    options.zero_sizes = seed % 2 == 0;
    options.products = seed % 2 == 1;
    if (options.zero_sizes) options.allow = [](ir::Op op) { return !ir::is_contraction(op); };  // of nothing it is a constant
    differential.check("random graph " + std::to_string(seed), random_graph(static_cast<std::uint64_t>(seed), options),
                       static_cast<std::uint64_t>(seed), seed % 3 == 0);
  }
}

// ---- speed
Array random_array(const std::vector<std::int64_t>& shape, DType dtype, unsigned seed) {
  Array a = Array::empty(onepass::Extents(std::span<const std::int64_t>(shape)), dtype);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> of(0.5, 1.5);
  if (dtype == f64)
    for (double& x : a.span<double>()) x = of(random);
  else
    for (float& x : a.span<float>()) x = static_cast<float>(of(random));
  return a;
}

// Seconds of a call, in batches that are waited for.
double time_of(const std::function<void()>& call, double seconds) {
  const Device device = Device::cuda(0);
  for (int i = 0; i < 3; ++i) call();
  synchronize(device);
  double begin = seconds_now();
  call();
  synchronize(device);
  const auto batch = std::clamp<std::int64_t>(static_cast<std::int64_t>(0.02 / std::max(seconds_now() - begin, 1e-7)), 1, 1000);
  std::vector<double> samples;
  for (const double end = seconds_now() + seconds; samples.size() < 3 || seconds_now() < end;) {
    begin = seconds_now();
    for (std::int64_t i = 0; i < batch; ++i) call();
    synchronize(device);
    samples.push_back((seconds_now() - begin) / static_cast<double>(batch));
  }
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

double copy_bandwidth(const Words& words) {
  const Array from = Array::zeros({words.small ? 1 << 16 : 1 << 26}, f32, Device::cuda(0));
  return 2.0 * static_cast<double>(from.bytes()) / time_of([&] { from.copy(); }, words.seconds);
}

Json benchmark(const CudaProgram& program, double copy, const Words& words) {
  const ProgramText text(program.formula, program.name);
  const test::Extents& extents = words.small ? program.small : program.large;
  std::vector<Array> inputs;
  std::vector<runtime::Argument> arguments;
  const auto types = inputs_of(program, extents);
  for (const std::string& name : text.inputs())
    for (const auto& [given, shape] : types)
      if (given == name) inputs.push_back(random_array(shape, program.dtype, static_cast<unsigned>(inputs.size())).to(Device::cuda(0)));
  for (const Array& a : inputs) arguments.push_back({&a, {}});
  Options options;
  options.mode = Mode::specialized;
  const auto compiled = text.compile(options);
  double begin = seconds_now();
  std::vector<Array> results = compiled->call(arguments);
  synchronize(Device::cuda(0));
  const double first = seconds_now() - begin;
  begin = seconds_now();
  const auto again = text.compile(options);  // another function of the same text: its program is there
  again->call(arguments);
  synchronize(Device::cuda(0));
  const double second = seconds_now() - begin;
  std::vector<Array*> targets;
  for (Array& a : results) targets.push_back(&a);
  const auto bound = compiled->bind(arguments, targets);
  const Stats before = compiled->stats();
  (*bound)();
  const Stats after = compiled->stats();
  const auto bytes = static_cast<double>(after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written);
  const double seconds = time_of([&] { (*bound)(); }, words.seconds);
  return {{"ms", seconds * 1e3},
          {"bytes", bytes},
          {"gb_per_s", bytes / seconds / 1e9},
          {"of_copy", bytes / seconds / copy},
          {"first_call_ms", first * 1e3},
          {"first_call_of_a_known_program_ms", second * 1e3}};
}

// What is under way, for who waits, or finds that it went no further.
void say(const std::string& what) { std::fprintf(stderr, "gpu_check: %s\n", what.c_str()); }
void warn(Json& out, const std::string& objection) {
  if (objection.empty()) return;
  out["warning"] = objection;
  say(objection);
}

}  // namespace

int main(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--small")) words.small = true;
    else if (is("--programs") && i + 1 < argc)
      words.programs.erase(words.programs.begin() + std::clamp(std::atoi(argv[++i]), 0, static_cast<int>(words.programs.size())),
                           words.programs.end());
    else if (is("--graphs") && i + 1 < argc) words.graphs = std::atoi(argv[++i]);
    else if (is("--seconds") && i + 1 < argc) words.seconds = std::atof(argv[++i]);
    else return std::fprintf(stderr, "gpu_check [--programs N] [--graphs N] [--seconds S] [--small]\n"), 2;
  }
  Json out;
  try {
    const Gpu& gpu = Gpu::get();
    out["device"] = {{"name", gpu.name()}, {"compute_capability", gpu.target().sm / 10.0}, {"processors", gpu.target().processors}};
    out["driver"] = runtime::cuda::Driver::find()->version;
  } catch (const std::exception& error) {
    out = {{"device", nullptr}, {"not_run", std::string("not run on a GPU: ") + error.what()}};
    std::puts(out.dump(2).c_str());
    return 3;
  }
  if (const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::find())
    out["nvrtc"] = std::to_string(nvrtc->major()) + "." + std::to_string(nvrtc->minor()), warn(out, Gpu::get().objection(*nvrtc));
  Differential differential;
  say("results of programs");
  check_programs(differential, words.programs);
  say("results of random graphs");
  check_random_graphs(differential, words.graphs);
  out["differential"] = differential.json();
  say("bandwidth of a copy");
  const double copy = copy_bandwidth(words);
  out["copy_gb_per_s"] = copy / 1e9;
  for (const CudaProgram& program : words.programs) {
    say(std::string("time of ") + program.name);
    try {
      out["benchmarks"][program.name] = benchmark(program, copy, words);
    } catch (const std::exception& error) { out["benchmarks"][program.name] = {{"error", error.what()}}; }
  }
  std::puts(out.dump(2).c_str());
  return differential.all_equal() ? 0 : 1;
}
