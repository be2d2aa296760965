// See onepass_from_nothing.h.
#include "tools/onepass_from_nothing.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "onepass/error.h"
#include "tools/onepass_terminal.h"
#include "tools/timing.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<int, 5> kCalls = {1, 2, 10, 100, 1000};
constexpr double kLongest = 5;           // seconds; later calls are skipped
constexpr double kSlow = 1.5;            // multiple of the settled median
constexpr double kSettledSeconds = 0.2;  // minimum

// Temporary cache folder of one run, removed by the destructor.
class CacheFolder {
 public:
  CacheFolder() : path_((std::filesystem::temp_directory_path() / "onepass-bench-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) throw IoError(fmt::format("bench: cannot create {}: {}", path_, std::strerror(errno)));
  }
  ~CacheFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs this program with these words; returns its standard output.
std::string output_of(const Words& words, const std::string& cache_folder) {
  std::vector<char*> arguments;
  for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  setenv("ONEPASS_CACHE_DIR", cache_folder.c_str(), 1);  // this process compiles no kernels
  int ends[2];
  if (pipe(ends) != 0) throw IoError(fmt::format("bench: cannot create a pipe: {}", std::strerror(errno)));
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  if (child > 0) {
    std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0 || (n < 0 && errno == EINTR);)
      if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(ends[0]);
  if (child < 0) throw IoError("bench: the system cannot start another process. End other processes, or raise the limit (ulimit -u)");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error("bench: the process of --from-nothing failed; its message is printed above");
  return text;
}

std::string ms_text(const Json& value) {
  if (!value.is_number()) return "-";
  const double ms = value.get<double>();
  return ms < 1 ? fmt::format("{:.4f}", ms) : ms < 100 ? fmt::format("{:.2f}", ms) : fmt::format("{:.0f}", ms);
}

}  // namespace

void first_calls(const ProgramText& program, std::span<const runtime::ArgumentType> types, const Options& options,
                 const std::vector<Array>& inputs) {
  {  // excludes one-time costs of the process from the first call
    const Array x = Array::ones({777}, f32);
    const runtime::Argument argument{.array = &x, .number = {}};
    static_cast<void>(ProgramText("x*3", "unrelated").compile(options)->call({&argument, 1}));
  }
  std::vector<runtime::Argument> arguments(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) arguments[i].array = &inputs[i];

  const ir::Graph recorded = program.record(types, program.all_outputs());
  std::vector<Array> results;
  for (const ir::NodeId id : recorded.outputs) results.push_back(Array::empty(recorded.shape(id), recorded[id].dtype));
  std::vector<Array*> targets;
  for (Array& r : results) targets.push_back(&r);

  std::vector<double> times;
  times.reserve(kCalls.back());
  const double start = seconds_now();
  const std::unique_ptr<runtime::Program> compiled = program.compile(options);
  for (double before = start; static_cast<int>(times.size()) < kCalls.back() && before - start < kLongest;) {
    compiled->call_into(arguments, targets);
    const double now = seconds_now();
    times.push_back(now - before);
    before = now;
  }
  const Stats stats = compiled->stats();

  // Settled call time, for comparison with the times above: as many calls without compilation, in the same process and under the same load.
  compiled->wait_until_optimized();
  compiled->call_into(arguments, targets);
  std::vector<double> settled;
  settled.reserve(times.size());
  double settled_total = 0;
  for (double begin = seconds_now(), before = begin; settled.size() < times.size() || before < begin + kSettledSeconds;) {
    compiled->call_into(arguments, targets);
    const double now = seconds_now();
    settled.push_back(now - before);
    settled_total += now - before;
    before = now;
  }
  std::vector<double> sorted = settled;
  std::ranges::sort(sorted);
  const double median = quantile(sorted, 0.5), mean = settled_total / static_cast<double>(settled.size());

  // Returns the rate, for each second, of calls slower than kSlow medians, among calls that end later than `from` seconds after the start.
  const auto slow_rate = [&](const std::vector<double>& all, double from) {
    double passed = 0, seconds = 0;
    int slow = 0;
    for (const double t : all) {
      passed += t;
      if (passed <= from) continue;
      seconds += t;
      slow += t > kSlow * median;
    }
    return seconds > 0 ? slow / seconds : 0.0;
  };

  Json line = {{"mode", text_of(options.mode)}, {"calls", times.size()}, {"settled_ms", median * 1e3}, {"settled_mean_ms", mean * 1e3}};
  double total = 0, last_slow = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    total += times[i];
    if (times[i] > kSlow * median) last_slow = total;
    if (next < kCalls.size() && static_cast<int>(i) + 1 == kCalls[next]) line[fmt::format("T{}_ms", kCalls[next++])] = total * 1e3;
  }
  line["lost_ms"] = (total - median * static_cast<double>(times.size())) * 1e3;
  line["last_slow_ms"] = last_slow * 1e3;
  line["slow_per_s"] = {
      {"after_300_ms", slow_rate(times, 0.3)}, {"after_1500_ms", slow_rate(times, 1.5)}, {"settled", slow_rate(settled, 0)}};
  line["ms_compiling"] = stats.ms_compiling;
  line["ms_lost"] = stats.ms_lost;
  line["ms_compiling_all"] = compiled->stats().ms_compiling;
  Json each = Json::array();
  for (const double t : times) each.push_back(std::round(t * 1e7) / 1e4);
  line["times_ms"] = std::move(each);
  fmt::print("{}\n", line.dump());
}

void first_calls_from_nothing(const Words& words, std::span<const Mode> modes, const std::string& about) {
  Json all = Json::array();
  Progress progress("timing fresh processes");
  int number = 0;
  for (const Mode mode : modes) {
    const CacheFolder folder;
    Words child = words;
    child.insert(child.end(), {"--mode", std::string(text_of(mode)), "--in-this-process"});
    for (const char* cache : {"empty", "warm"}) {
      progress.say(fmt::format("timing fresh processes: {} of {}", ++number, 2 * modes.size()));
      Json row = about.empty() ? Json::object() : Json::parse(about);
      row["cache"] = cache;
      row.update(Json::parse(output_of(child, folder.path())));
      all.push_back(std::move(row));
    }
  }
  if (!about.empty()) return fmt::print("{}\n", all.dump());
  fmt::print("milliseconds for the first n calls of a fresh process, after one small unrelated call, without waiting for compilation\n");
  fmt::print("{:12} {:6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10} {:>10}\n", "mode", "cache", "n = 1", "2", "10", "100", "1000",
             "settled", "lost", "last slow", "compiling");
  for (const Json& row : all) {
    const auto ms = [&](const char* name) { return ms_text(row.value(name, Json())); };
    fmt::print("{:12} {:6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10} {:>10}\n", row["mode"].get<std::string>(),
               row["cache"].get<std::string>(), ms("T1_ms"), ms("T2_ms"), ms("T10_ms"), ms("T100_ms"), ms("T1000_ms"), ms("settled_ms"),
               ms("lost_ms"), ms("last_slow_ms"), ms("ms_compiling"));
  }
  fmt::print(
      "settled: the median call after all kernels are compiled; lost: the additional time of all calls; last slow: the end of the last "
      "call that\ntook more than {} times as long; compiling: in all threads\n",
      kSlow);
}

}  // namespace onepass::command
