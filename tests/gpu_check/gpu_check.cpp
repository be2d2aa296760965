// Checks kernels on a GPU: compares results with the reference and the CPU, and measures speed. Needs only the files that tools/gpu-check
// packs. Script `run` starts a separate process for each check:
//
//   gpu_check --list                  prints the checks' names, each after its time limit in seconds
//   gpu_check --check NAME            runs one check and prints a line of JSON
//   gpu_check --ended NAME CODE S     prints the line of a check that ended with CODE after S seconds without a line; reads its output
//   gpu_check --arrays NAME FOLDER    writes a program's arguments and the device's results as .npy files, for torch
//   gpu_check --report FILE           prints the page of these lines
//
// --seconds S: measuring time. --graphs N: number of random graphs. --small: lengths that the emulation runs too. --under TOOL: prefix of
// the name.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include "device_call.h"
#include "gpu_check/cases.h"
#include "gpu_check/report.h"
#include "onepass/npy.h"
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

constexpr int kGraphsEach = 20;  // random graphs of a process

struct Words {
  int graphs = 100;
  double seconds = 0.3;
  bool small = false;
  std::string under;
};

// ---- comparison with the reference
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
      if (!what.empty() && failures_.size() < 5)
        failures_.push_back({{"name", name}, {"unfused", unfused}, {"what", what}, {"graph", ir::print(graph)}});
      failed_ += !what.empty();
    }
  }
  Json json() const {
    Json out = {{"status", failed_ ? "differs" : "ok"}, {"checks", checks_}, {"differ", failed_}};
    if (failed_) out["failures"] = failures_;
    return out;
  }

 private:
  int checks_ = 0, failed_ = 0;
  Json failures_ = Json::array();
};

Json random_graphs(int first, int last) {
  Differential differential;
  for (int seed = first; seed <= last; ++seed) {
    RandomGraphOptions options;
    options.nodes = 4 + seed % 24;
    options.max_elements = seed % 5 == 0 ? 20000 : 2000;
    options.zero_sizes = seed % 2 == 0;
    options.products = seed % 2 == 1;
    if (options.zero_sizes) options.allow = [](ir::Op op) { return !ir::is_contraction(op); };  // contractions over nothing are constants
    differential.check("random graph " + std::to_string(seed), random_graph(static_cast<std::uint64_t>(seed), options),
                       static_cast<std::uint64_t>(seed), seed % 3 == 0);
  }
  return differential.json();
}

// ---- comparison with the CPU
// Returns values between 0.5 and 1.5, integers of all sizes, or indices from both ends.
Array random_array(const std::vector<std::int64_t>& shape, DType dtype, unsigned seed, std::int64_t indices = 0) {
  Array a = Array::empty(onepass::Extents(std::span<const std::int64_t>(shape)), dtype);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> of(0.5, 1.5);
  const auto fill = [&]<class T>(T*, auto&& next) {
    T* const data = static_cast<T*>(a.mutable_data());
    for (std::int64_t i = 0; i < a.size(); ++i) data[i] = static_cast<T>(next());
  };
  if (indices) fill(static_cast<std::int64_t*>(nullptr), [&] { return static_cast<std::int64_t>(random() % (2 * indices)) - indices; });
  else if (dtype == f64) fill(static_cast<double*>(nullptr), [&] { return of(random); });
  else if (dtype == f32) fill(static_cast<float*>(nullptr), [&] { return of(random); });
  else if (dtype == bf16) fill(static_cast<std::uint16_t*>(nullptr), [&] { return 0x3f00 + random() % 0xc0; });
  else if (dtype == f16) fill(static_cast<std::uint16_t*>(nullptr), [&] { return 0x3800 + random() % 0x600; });
  else if (dtype == u8) fill(static_cast<std::uint8_t*>(nullptr), [&] { return random(); });
  else throw Error("gpu_check: no random values of this type");
  return a;
}

struct Subject {  // a program that is compared and timed
  std::string name;
  const char* formula;
  std::vector<std::pair<std::string, compiler::Shape>> inputs;
  DType dtype;
  std::int64_t indices;
};
Subject subject_of(const CudaProgram& p, bool small) { return {p.name, p.formula, inputs_of(p, small ? p.small : p.large), p.dtype, 0}; }
Subject subject_of(const FormCase& c, bool small) {
  const test::Extents& extents = small ? c.small : c.extents;
  return {c.name, c.formula, inputs_of(Golden{c.name.c_str(), c.inputs, c.formula, 1}, extents), c.dtype,
          c.indexed ? extents.at(c.indexed) : 0};
}

std::vector<Array> inputs_on_cpu(const Subject& subject, const ProgramText& text, unsigned seed) {
  std::vector<Array> out;
  for (const std::string& name : text.inputs())
    for (const auto& [given, shape] : subject.inputs)
      if (given == name) {
        const bool is_index = subject.indices != 0 && name == "k";
        out.push_back(
            random_array(shape, is_index ? i64 : subject.dtype, seed + static_cast<unsigned>(out.size()), is_index ? subject.indices : 0));
      }
  return out;
}
std::vector<Array> to(const std::vector<Array>& arrays, Device device) {
  std::vector<Array> out;
  for (const Array& a : arrays) out.push_back(a.to(device));
  return out;
}
std::vector<runtime::Argument> arguments_of(const std::vector<Array>& arrays) {
  std::vector<runtime::Argument> out;
  for (const Array& a : arrays) out.push_back({&a, {}});
  return out;
}

bool is_nan(const Array& a, std::int64_t i) {
  const auto bits = [&]<class T>(T) { return static_cast<const T*>(a.data())[i]; };
  switch (a.dtype()) {
    case f64: return std::isnan(bits(double()));
    case f32: return std::isnan(bits(float()));
    case f16: return (bits(std::uint16_t()) & 0x7fff) > 0x7c00;
    case bf16: return (bits(std::uint16_t()) & 0x7fff) > 0x7f80;
    default: return false;
  }
}
// Returns the number of elements that differ in a bit and are not both NaN. Describes the first difference.
std::int64_t count_differences(const Array& got, const Array& wanted, Json& first) {
  const std::size_t each = size_of(got.dtype());
  const auto *a = static_cast<const std::byte*>(got.data()), *b = static_cast<const std::byte*>(wanted.data());
  if (got.bytes() != wanted.bytes()) return first = {{"bytes", {got.bytes(), wanted.bytes()}}}, 1;
  if (got.bytes() == 0 || std::memcmp(a, b, static_cast<std::size_t>(got.bytes())) == 0) return 0;
  std::int64_t count = 0;
  const auto hex = [&](const std::byte* at) {
    std::string out;
    for (std::size_t k = each; k-- > 0;)
      out += "0123456789abcdef"[std::to_integer<int>(at[k]) >> 4], out += "0123456789abcdef"[std::to_integer<int>(at[k]) & 15];
    return out;
  };
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * each;
    if (std::memcmp(a + at, b + at, each) == 0 || (is_nan(got, i) && is_nan(wanted, i))) continue;
    if (count++ == 0) first = {{"element", i}, {"got_bits", hex(a + at)}, {"wanted_bits", hex(b + at)}};
  }
  return count;
}

// Runs on the CPU with kernels, or with the reference if there is no code generator.
std::vector<Array> call_on_cpu(const ProgramText& text, const std::vector<Array>& inputs) {
  try {
    return text.compile(Options())->call(arguments_of(inputs));
  } catch (const Error&) {
    Options options;
    options.mode = Mode::reference;
    return text.compile(options)->call(arguments_of(inputs));
  }
}
// Compares the results of the same program and arguments on the device and the CPU.
Json compare(const ProgramText& text, const std::vector<Array>& wanted, const std::vector<Array>& results) {
  Json out = {{"status", "ok"}, {"compared", 0}, {"differ", 0}};
  std::int64_t compared = 0, differ = 0;
  for (std::size_t k = 0; k < results.size(); ++k) {
    Json first;
    const std::int64_t mine = count_differences(results[k].to(Device::cpu()), wanted[k], first);
    if (mine && differ == 0) first["result"] = text.outputs()[k], out["first"] = first;
    compared += wanted[k].size(), differ += mine;
  }
  out["compared"] = compared, out["differ"] = differ;
  if (differ) out["status"] = "differs";
  return out;
}

Json form(const FormCase& of, const Words& words) {
  const Subject subject = subject_of(of, words.small);
  const ProgramText text(subject.formula, subject.name);
  const std::vector<Array> on_cpu = inputs_on_cpu(subject, text, 11), inputs = to(on_cpu, Device::cuda(0));
  return compare(text, call_on_cpu(text, on_cpu), text.compile(Options())->call(arguments_of(inputs)));
}

// A bad index is an error of the next wait, once, and later calls work.
Json bad_index() {
  const ProgramText text("y = take(x, k, axis=0)", "bad index");
  const auto program = text.compile(Options());
  const Device device = Device::cuda(0);
  constexpr std::int64_t kRows = 3000, kIndices = 200'000;
  std::vector<Array> inputs = {random_array({kRows, 64}, f32, 11, 0), random_array({kIndices}, i64, 12, kRows)};
  const std::vector<Array> wanted = call_on_cpu(text, inputs), good = to(inputs, device);
  for (std::int64_t i = 0; i < kIndices; i += 7) inputs[1].span<std::int64_t>()[static_cast<std::size_t>(i)] = kRows;
  const std::vector<Array> bad = to(inputs, device);
  std::string said;
  int errors = 0;
  for (int i = 0; i < 3; ++i) {
    try {
      program->call(arguments_of(i == 0 ? bad : good));
      synchronize(device);
    } catch (const IndexError& error) { ++errors, said = error.what(); }
  }
  Json out = compare(text, wanted, program->call(arguments_of(good)));
  if (errors != 1 || said.find("had the index 3000, which is out of range: axis 0 has extent 3000") == std::string::npos)
    out["status"] = "failed", out["what"] = std::to_string(errors) + " errors: " + said;
  return out;
}

// ---- speed
std::int64_t cache_bytes() {
  constexpr int kCacheBytes = 38;  // device attribute: size of the second-level cache
  const runtime::cuda::Driver* const driver = runtime::cuda::Driver::find();
  int device = 0, bytes = 0;
  if (driver->cuDeviceGet(&device, 0) != 0 || driver->cuDeviceGetAttribute(&bytes, kCacheBytes, device) != 0) return 0;
  return bytes;
}

// Returns clocks in MHz, degrees and watts from nvidia-smi; null without it.
Json clocks() {
  std::FILE* const pipe = popen(
      "timeout 10 nvidia-smi -i 0 --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active "
      "--format=csv,noheader,nounits 2>/dev/null",
      "r");
  if (!pipe) return nullptr;
  char line[256] = "";
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  if (pclose(pipe) != 0 || !read) return nullptr;
  double processor = 0, memory = 0, degrees = 0, watts = 0;
  char reasons[64] = "";
  if (std::sscanf(line, "%lf, %lf, %lf, %lf, %63s", &processor, &memory, &degrees, &watts, reasons) < 3) return nullptr;
  return {{"processor_mhz", processor}, {"memory_mhz", memory}, {"degrees", degrees}, {"watts", watts}, {"held_back_by", reasons}};
}

// Duration of a call in seconds, in synchronized batches: median, 5th and 95th percentile.
struct Spread {
  double low, median, high;
  std::size_t samples;
  Json json() const { return {{"ms", median * 1e3}, {"ms_5", low * 1e3}, {"ms_95", high * 1e3}, {"samples", samples}}; }
};
Spread time_of(const std::function<void()>& call, double seconds) {
  const Device device = Device::cuda(0);
  for (int i = 0; i < 3; ++i) call();
  synchronize(device);
  double begin = seconds_now();
  call();
  synchronize(device);
  const auto batch = std::clamp<std::int64_t>(static_cast<std::int64_t>(0.01 / std::max(seconds_now() - begin, 1e-7)), 1, 1000);
  std::vector<double> samples;
  for (const double end = seconds_now() + seconds; samples.size() < 3 || seconds_now() < end;) {
    begin = seconds_now();
    for (std::int64_t i = 0; i < batch; ++i) call();
    synchronize(device);
    samples.push_back((seconds_now() - begin) / static_cast<double>(batch));
  }
  std::sort(samples.begin(), samples.end());
  return {quantile(samples, 0.05), quantile(samples, 0.5), quantile(samples, 0.95), samples.size()};
}

Json copy(const Words& words) {
  const Array from = Array::zeros({words.small ? 1 << 16 : 1 << 28}, f32, Device::cuda(0));
  Json before = clocks();
  const Spread took = time_of([&] { from.copy(); }, words.seconds);
  Json out = {{"status", "ok"}, {"gb_per_s", 2.0 * static_cast<double>(from.bytes()) / took.median / 1e9}};
  out.update(took.json());
  out["clocks"] = {before, clocks()};
  return out;
}

// Compares and times a program. The sets of arguments are used in turn; together they are three times the device's cache.
Json benchmark(const Subject& subject, const Words& words) {
  const ProgramText text(subject.formula, subject.name);
  const Device device = Device::cuda(0);
  const std::vector<Array> on_cpu = inputs_on_cpu(subject, text, 7);
  Options options;
  options.mode = Mode::specialized;
  const auto compiled = text.compile(options);
  struct Set {
    std::vector<Array> inputs, results;
    std::unique_ptr<runtime::Program::Bound> bound;
  };
  std::vector<std::unique_ptr<Set>> sets;
  sets.push_back(std::make_unique<Set>());
  sets[0]->inputs = to(on_cpu, device);
  double begin = seconds_now();
  sets[0]->results = compiled->call(arguments_of(sets[0]->inputs));
  synchronize(device);
  const double first = seconds_now() - begin;
  begin = seconds_now();
  text.compile(options)->call(arguments_of(sets[0]->inputs));  // a new function of the same text finds the loaded program
  synchronize(device);
  const double second = seconds_now() - begin;
  const std::vector<Array> wanted = call_on_cpu(text, on_cpu);
  Json out = compare(text, wanted, sets[0]->results);
  std::int64_t bytes_of_set = 0;
  for (const std::vector<Array>* arrays : {&sets[0]->inputs, &sets[0]->results})
    for (const Array& a : *arrays) bytes_of_set += a.bytes();
  const std::int64_t cache = cache_bytes(), most = 64;
  const std::int64_t count = std::clamp<std::int64_t>(3 * cache / std::max<std::int64_t>(bytes_of_set, 1) + 1, 1, most);
  while (static_cast<std::int64_t>(sets.size()) < count) {
    sets.push_back(std::make_unique<Set>());
    sets.back()->inputs = to(on_cpu, device);
    sets.back()->results = compiled->call(arguments_of(sets.back()->inputs));
  }
  for (const auto& set : sets) {
    std::vector<Array*> targets;
    for (Array& a : set->results) targets.push_back(&a);
    set->bound = compiled->bind(arguments_of(set->inputs), targets);
  }
  const Stats before = compiled->stats();
  (*sets[0]->bound)();
  const Stats after = compiled->stats();
  const auto bytes = static_cast<double>(after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written);
  Json clocks_before = clocks();
  std::size_t next = 0;
  const Spread took = time_of([&] { (*sets[next++ % sets.size()]->bound)(); }, words.seconds);
  const Spread one = time_of([&] { (*sets[0]->bound)(); }, words.seconds / 3);
  Json last = compare(text, wanted, sets[0]->results);  // after thousands of calls, with graphs and specialized kernels
  if (last["status"] != "ok") out["status"] = "differs", out["after_timing"] = last;
  out.update(took.json());
  out["bytes"] = bytes, out["gb_per_s"] = bytes / took.median / 1e9;
  out["sets"] = sets.size(), out["bytes_of_set"] = bytes_of_set, out["cache_bytes"] = cache;
  out["ms_one_set"] = one.median * 1e3;
  out["first_call_ms"] = first * 1e3, out["first_call_of_a_known_program_ms"] = second * 1e3;
  out["clocks"] = {clocks_before, clocks()};
  return out;
}

Json describe_device() {
  const Gpu& gpu = Gpu::get();
  Json out = {{"status", "ok"},
              {"name", gpu.name()},
              {"compute_capability", gpu.target().sm / 10.0},
              {"processors", gpu.target().processors},
              {"cache_bytes", cache_bytes()},
              {"driver", runtime::cuda::Driver::find()->version},
              {"clocks", clocks()}};
  if (const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::find()) {
    out["nvrtc"] = std::to_string(nvrtc->major()) + "." + std::to_string(nvrtc->minor());
    if (const std::string objection = gpu.objection(*nvrtc); !objection.empty()) out["status"] = "failed", out["what"] = objection;
  } else {
    out["status"] = "failed", out["what"] = runtime::cuda::Nvrtc::why();
  }
  return out;
}

// ---- the list
struct Check {
  std::string name;
  int seconds;  // time limit
  std::function<Json()> run;
};

std::vector<Check> checks(const Words& words) {
  std::vector<Check> out;
  out.push_back({"device", 60, describe_device});
  for (const CudaProgram& p : cuda_programs())
    out.push_back({std::string("results: ") + p.name, 120, [p] {
                     Differential differential;
                     differential.check(p.name, graph_of(p, p.small), 7);
                     return differential.json();
                   }});
  out.push_back({"results: lists", 240, [] {
                   Differential differential;
                   for (const ListProgram& p : cuda_list_programs()) differential.check(p.name, p.graph, 7);
                   return differential.json();
                 }});
  for (const FormCase& c : form_cases()) out.push_back({"form: " + c.name, 300, [c, &words] { return form(c, words); }});
  out.push_back({"bad index", 60, bad_index});
  for (int first = 1; first <= words.graphs; first += kGraphsEach) {
    const int last = std::min(first + kGraphsEach - 1, words.graphs);
    out.push_back({"random graphs " + std::to_string(first) + " to " + std::to_string(last), 300,
                   [first, last] { return random_graphs(first, last); }});
  }
  out.push_back({"copy", 60, [&words] { return copy(words); }});
  const int timed = 300 + static_cast<int>(2 * words.seconds);
  for (const CudaProgram& p : cuda_programs())
    out.push_back({std::string("time: ") + p.name, timed, [p, &words] { return benchmark(subject_of(p, words.small), words); }});
  for (const FormCase& c : form_cases())
    if (c.dtype == bf16 || c.dtype == f16 || c.indexed || c.name.find("large") != std::string::npos)
      out.push_back({"time: " + c.name, timed, [c, &words] { return benchmark(subject_of(c, words.small), words); }});
  return out;
}

int print_line(const Words& words, const std::string& name, Json result, double seconds) {
  Json line = {{"check", words.under.empty() ? name : words.under + ": " + name}};
  line.update(result);
  line["seconds"] = seconds;
  std::puts(line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return line["status"] == "ok" ? 0 : line["status"] == "no device" ? 3 : 1;
}

int run_check(const Words& words, const std::string& name) {
  const double begin = seconds_now();
  for (const Check& check : checks(words)) {
    if (check.name != name) continue;
    Json result;
    try {
      Gpu::get();
      try {
        result = check.run();
      } catch (const std::exception& error) { result = {{"status", "failed"}, {"what", error.what()}}; }
    } catch (const std::exception& error) { result = {{"status", "no device"}, {"what", error.what()}}; }
    return print_line(words, name, result, seconds_now() - begin);
  }
  std::fprintf(stderr, "gpu_check: no check %s: --list has all\n", name.c_str());
  return 2;
}

// Describes a process that ended without a line, or with findings of its tool, by its last output.
int describe_end(const Words& words, const std::string& name, const std::string& code, const std::string& seconds) {
  std::string said{std::istreambuf_iterator<char>(std::cin), {}};
  constexpr std::size_t kMost = 4000;
  if (said.size() > kMost) said = "…" + said.substr(said.size() - kMost);
  const bool late = code == "124" || code == "137";
  return print_line(words, name, {{"status", late ? "no answer" : "failed"}, {"code", std::atoi(code.c_str())}, {"what", said}},
                    std::atof(seconds.c_str()));
}

int write_arrays(const std::string& name, const std::string& folder) {
  for (const CudaProgram& p : cuda_programs()) {
    if (p.name != name) continue;
    const Subject subject = subject_of(p, true);
    const ProgramText text(subject.formula, subject.name);
    const std::vector<Array> on_cpu = inputs_on_cpu(subject, text, 7);
    const bool on_device = cuda_device_count() > 0;
    const std::vector<Array> inputs = on_device ? to(on_cpu, Device::cuda(0)) : on_cpu;
    const std::vector<Array> results = on_device ? text.compile(Options())->call(arguments_of(inputs)) : call_on_cpu(text, inputs);
    for (std::size_t i = 0; i < on_cpu.size(); ++i) save_npy(folder + "/in_" + text.inputs()[i] + ".npy", on_cpu[i], {.sync = false});
    for (std::size_t i = 0; i < results.size(); ++i)
      save_npy(folder + "/out_" + text.outputs()[i] + ".npy", results[i].to(Device::cpu()), {.sync = false});
    return 0;
  }
  std::fprintf(stderr, "gpu_check: no program %s\n", name.c_str());
  return 2;
}

int write_report(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::fprintf(stderr, "gpu_check: cannot read %s\n", path.c_str()), 2;
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);)
    if (Json json = Json::parse(line, nullptr, false); json.is_object() && json.contains("check")) lines.push_back(std::move(json));
  std::fputs(gpu_report(lines).c_str(), stdout);
  return 0;
}

int usage() {
  return std::fprintf(
             stderr,
             "gpu_check --list | --check NAME | --ended NAME CODE SECONDS | --arrays NAME FOLDER | --report FILE, with --graphs N, "
             "--seconds S, --small, --under TOOL\n"),
         2;
}

}  // namespace

int main(int argc, char** argv) {
  Words words;
  std::vector<std::string> task;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--small") words.small = true;
    else if (word == "--graphs" && i + 1 < argc) words.graphs = std::atoi(argv[++i]);
    else if (word == "--seconds" && i + 1 < argc) words.seconds = std::atof(argv[++i]);
    else if (word == "--under" && i + 1 < argc) words.under = argv[++i];
    else task.push_back(word);
  }
  const auto is = [&](const char* name, std::size_t count) { return task.size() == count && task[0] == name; };
  if (is("--check", 2)) return run_check(words, task[1]);
  if (is("--ended", 4)) return describe_end(words, task[1], task[2], task[3]);
  if (is("--report", 2)) return write_report(task[1]);
  try {
    if (is("--arrays", 3)) return write_arrays(task[1], task[2]);
  } catch (const std::exception& error) { return std::fprintf(stderr, "gpu_check: %s\n", error.what()), 1; }
  if (!is("--list", 1)) return usage();
  for (const Check& check : checks(words)) std::printf("%d\t%s\n", check.seconds, check.name.c_str());
  return 0;
}
