// A server that times programs. It reads one JSON request per line from standard input and writes one answer per line to standard output:
// list, prepare, time, result, drop, latency.
//
// A request passes its program as text in the formula language (docs/language.md) and its inputs as .npy files. This program has no
// built-in workloads; an id only refers to an earlier `prepare`.
//
//   contender [--relax LIST] [--mode M] --serve --threads N
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onepass/array.h"
#include "onepass/error.h"
#include "onepass/npy.h"
#include "onepass/runtime.h"
#include "runtime/memory.h"
#include "runtime/threads.h"
#include "tools/program_text.h"
#include "tools/timing.h"

namespace {

using namespace onepass;
using Json = nlohmann::json;

// Loads an array into pooled memory, which is aligned and uses huge pages; load_npy may return the pages of a file.
Array load(const std::string& path) { return load_npy(path).copy(); }

std::string text_member(const Json& request, const char* member) {
  const auto at = request.find(member);
  if (at == request.end() || !at->is_string()) throw ValueError(fmt::format("the request needs a text \"{}\"", member));
  return at->get<std::string>();
}

std::vector<std::string> names_member(const Json& request, const char* member) {
  std::vector<std::string> names;
  const auto at = request.find(member);
  if (at == request.end() || !at->is_array()) throw ValueError(fmt::format("the request needs a list \"{}\"", member));
  for (const Json& name : *at) {
    if (!name.is_string()) throw ValueError(fmt::format("\"{}\" is a list of texts", member));
    names.push_back(name.get<std::string>());
  }
  return names;
}

// Loads the inputs of a request, in the order of the program's inputs.
std::vector<Array> load_inputs(const Json& request, const std::vector<std::string>& names) {
  const auto files = request.find("inputs");
  if (files == request.end() || !files->is_object()) throw ValueError("the request needs an object \"inputs\"");
  std::vector<Array> arrays;
  for (const std::string& name : names) arrays.push_back(load(text_member(*files, name.c_str())));
  return arrays;
}

// A program with its inputs and the destinations of its results.
class Workload {
 public:
  Workload(const Json& request, const Options& options) : request_(request), formula_(text_member(request, "program"), "program") {
    result_names_ = names_member(request, "outputs");
    if (result_names_.size() != formula_.outputs().size())
      throw ValueError(fmt::format("the program has {} results and the request names {}", formula_.outputs().size(), result_names_.size()));
    in_place_ = request.value("inplace", false);
    program_ = formula_.compile(options);
    reset();
  }
  Workload(const Workload&) = delete;

  /// Reloads the inputs from their files.
  void reset() {
    inputs_.clear();
    inputs_ = load_inputs(request_, formula_.inputs());
    arguments_.assign(inputs_.size(), {});
    for (std::size_t i = 0; i < inputs_.size(); ++i) arguments_[i].array = &inputs_[i];
    if (!results_.empty()) aim();
  }

  /// Compiles and runs without changing the inputs. Later calls write to its results.
  void first_call() {
    results_ = program_->call(arguments_);
    aim();
  }

  void call() { program_->call_into(arguments_, targets_); }

  void wait_until_optimized() { program_->wait_until_optimized(); }

  void save(const std::string& folder) const {
    for (std::size_t i = 0; i < targets_.size(); ++i) save_npy(folder + "/" + result_names_[i] + ".npy", *targets_[i]);
  }

 private:
  // Sets the destinations. A result named like an input of an in-place workload is written over that input.
  void aim() {
    targets_.clear();
    for (std::size_t i = 0; i < result_names_.size(); ++i) {
      const auto at = std::find(formula_.inputs().begin(), formula_.inputs().end(), result_names_[i]);
      if (in_place_ && at != formula_.inputs().end()) {
        results_[i] = Array();
        targets_.push_back(&inputs_[static_cast<std::size_t>(at - formula_.inputs().begin())]);
      } else {
        targets_.push_back(&results_[i]);
      }
    }
  }

  Json request_;
  ProgramText formula_;
  std::vector<std::string> result_names_;
  bool in_place_ = false;
  std::unique_ptr<runtime::Program> program_;
  std::vector<Array> inputs_, results_;
  std::vector<runtime::Argument> arguments_;
  std::vector<Array*> targets_;
};

// Returns the value of a line such as `VmRSS:   1234 kB` in /proc/self/status.
std::int64_t status_kib(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1));
  return 0;
}

// Returns by how many MiB one call raises the peak resident set above the resident size; null if the system cannot reset the peak.
template <class Call> Json peak_of(Call&& call) {
  {
    std::ofstream clear("/proc/self/clear_refs");
    clear << "5" << std::flush;
    if (!clear) {
      call();
      return nullptr;
    }
  }
  const std::int64_t before = status_kib("VmRSS");
  call();
  return static_cast<double>(status_kib("VmHWM") - before) / 1024;
}

class Server {
 public:
  explicit Server(Options options) : options_(options) {}

  Json answer(const Json& request) {
    const std::string what = text_member(request, "do");
    if (what == "list")
      return {{"ok", true},
              {"name", "onepass"},
              {"workloads", Json::array()},
              {"latency", Json::array()},
              {"programs", true},
              {"versions", {{"c++", __VERSION__}}}};
    if (what == "latency") return latency(request);
    const std::string id = text_member(request, "id");
    if (what == "prepare") return prepare(request, id);
    if (what == "drop") {
      held_.erase(id);
      memory::trim();
      return {{"ok", true}};
    }
    const auto at = held_.find(id);
    if (at == held_.end()) throw ValueError(fmt::format("`{}` is not prepared", id));
    Workload& workload = *at->second;
    if (what == "time") {
      const auto call = [&] { workload.call(); };
      std::vector<double> samples;
      const Timing timing = time_calls(call, request.value("seconds", 0.5), batch_size(call), samples);
      return {{"ok", true}, {"calls", timing.calls}, {"median_s", timing.median}, {"min_s", timing.minimum}};
    }
    if (what == "result") {
      if (request.value("fresh", false)) workload.reset();
      workload.call();
      workload.save(text_member(request, "dir"));
      return {{"ok", true}};
    }
    throw ValueError(fmt::format("unknown request `{}`", what));
  }

 private:
  Json prepare(const Json& request, const std::string& id) {
    held_.erase(id);
    double begin = seconds_now();
    auto workload = std::make_unique<Workload>(request, options_);
    const double build = seconds_now() - begin;
    begin = seconds_now();
    workload->first_call();
    const double first = seconds_now() - begin;
    workload->call();
    workload->wait_until_optimized();  // warm: timed calls run the final code
    workload->call();
    const Json peak = peak_of([&] { workload->call(); });
    held_[id] = std::move(workload);
    return {{"ok", true}, {"into", true}, {"build_ms", build * 1e3}, {"first_ms", first * 1e3}, {"peak_mib", peak}, {"note", ""}};
  }

  // Measures the time from the text and the arrays in memory to the last result, in a process that has made one unrelated call.
  Json latency(const Json& request) {
    const std::string text = text_member(request, "program");
    std::vector<Array> inputs = load_inputs(request, ProgramText(text, "program").inputs());
    std::vector<std::vector<std::int64_t>> shapes;
    if (const auto at = request.find("shapes"); at != request.end() && !at->is_null()) {
      if (inputs.size() != 1) throw ValueError("a request with \"shapes\" has one input");
      shapes = at->get<std::vector<std::vector<std::int64_t>>>();
      if (shapes.empty()) throw ValueError("\"shapes\" is empty");
    }
    unrelated_call();

    const double begin = seconds_now();
    const ProgramText formula(text, "program");
    const std::unique_ptr<runtime::Program> program = formula.compile(options_);
    std::vector<Array> results;
    if (shapes.empty()) {
      std::vector<runtime::Argument> arguments(inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) arguments[i].array = &inputs[i];
      results = program->call(arguments);
    } else {
      for (const std::vector<std::int64_t>& shape : shapes) {
        std::int64_t size = 1;
        for (const std::int64_t extent : shape) size *= extent;
        const Array x = inputs[0].slice(0, 0, size).reshape(shape);
        const runtime::Argument argument{.array = &x, .number = {}};
        results = program->call({&argument, 1});
      }
    }
    const double milliseconds = (seconds_now() - begin) * 1e3;

    const std::vector<std::string> names = names_member(request, "outputs");
    if (names.size() != results.size())
      throw ValueError(fmt::format("the program has {} results and the request names {}", results.size(), names.size()));
    for (std::size_t i = 0; i < names.size(); ++i) save_npy(text_member(request, "dir") + "/" + names[i] + ".npy", results[i]);
    return {{"ok", true}, {"ms", milliseconds}};
  }

  void unrelated_call() const {
    const Array x = Array::ones({777}, f32);
    const runtime::Argument argument{.array = &x, .number = {}};
    (void)ProgramText("x*3", "unrelated").compile(options_)->call({&argument, 1});
  }

  Options options_;
  std::map<std::string, std::unique_ptr<Workload>> held_;
};

int usage(std::string_view problem) {
  fmt::print(stderr, "contender: {}\nusage: contender [--relax LIST] [--mode adaptive|generic|unfused|reference] --serve --threads N\n",
             problem);
  return 2;
}

Options options_of(std::span<char*> words, bool& serves) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--serve") {
      serves = true;
      continue;
    }
    if (word != "--threads" && word != "--mode" && word != "--relax") throw ValueError(fmt::format("there is no option `{}`", word));
    if (++i == words.size()) throw ValueError(fmt::format("{} needs a value", word));
    const std::string_view value = words[i];
    if (word == "--threads") {
      options.threads = std::atoi(words[i]);
      if (options.threads < 1 || options.threads > threads::kMaxThreads)
        throw ValueError(fmt::format("--threads {} is outside 1 to {}", value, threads::kMaxThreads));
    } else if (word == "--mode") {
      if (value == "adaptive") options.mode = Mode::adaptive;
      else if (value == "generic") options.mode = Mode::generic;
      else if (value == "specialized") options.mode = Mode::specialized;
      else if (value == "unfused") options.mode = Mode::unfused;
      else if (value == "reference") options.mode = Mode::reference;
      else throw ValueError(fmt::format("there is no mode `{}`", value));
    } else {
      for (std::size_t begin = 0; begin <= value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        const std::string_view name = value.substr(begin, end - begin);
        if (name == "contract") options.relax.contract = true;
        else if (name == "reassociate") options.relax.reassociate = true;
        else if (name == "approximate") options.relax.approximate = true;
        else if (!name.empty()) throw ValueError(fmt::format("there is no relaxation `{}`", name));
        begin = end + 1;
      }
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool serves = false;
  try {
    options = options_of({argv + 1, static_cast<std::size_t>(argc - 1)}, serves);
    if (options.threads) set_threads(options.threads);
  } catch (const Error& error) { return usage(error.what()); }
  if (!serves) return usage("--serve is missing");
  // Uses kernels of earlier processes only if the runner provides a folder for them.
  const char* const folder = std::getenv("PEERS_DISK_CACHE");
  setenv("ONEPASS_CACHE_DIR", folder && *folder ? folder : "none", 1);
  std::ios::sync_with_stdio(false);
  Server server(options);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json answer;
    try {
      answer = server.answer(Json::parse(line));
    } catch (const std::exception& error) { answer = {{"ok", false}, {"error", error.what()}}; }
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
