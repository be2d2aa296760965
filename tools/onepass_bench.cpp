// onepass bench: the speed of a program on random inputs of given types, and the bytes that it moves.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "onepass/error.h"
#include "onepass/profile.h"
#include "onepass/record.h"
#include "onepass/version.h"
#include "runtime/memory.h"
#include "runtime/record.h"
#include "tools/onepass_command.h"
#include "tools/onepass_from_nothing.h"
#include "tools/onepass_options.h"
#include "tools/onepass_random.h"
#include "tools/onepass_terminal.h"
#include "tools/timing.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kSeconds = 1.0;  // time for the median; at most as long again for the slowest calls

// Other shapes of a program's inputs. One extent is made smaller in all inputs that have it, so the shapes still match. The elements are
// the first elements of the inputs.
class OtherShapes {
 public:
  OtherShapes(const ProgramText& program, const std::vector<Array>& inputs) : inputs_(inputs) {
    std::vector<std::int64_t> extents;
    for (const Array& input : inputs)
      for (const std::int64_t extent : input.shape())
        if (extent > 2 && std::ranges::find(extents, extent) == extents.end()) extents.push_back(extent);
    for (const std::int64_t extent : extents) {
      std::vector<runtime::ArgumentType> types;
      for (const Array& input : inputs) types.push_back({input.dtype(), shape(input, extent, extent - 1), {}});
      try {
        program.record(types, program.all_outputs());
        extents_.push_back(extent);
      } catch (const Error&) {}  // NOLINT: for example, a length fixed by the program
    }
    if (extents_.empty())
      throw ValueError("bench: --while-specializing needs other shapes of the same program, but the program accepts only these");
  }

  /// Returns other shapes for each `number`, until they repeat.
  std::vector<Array> at(std::int64_t number) const {
    const auto count = static_cast<std::int64_t>(extents_.size());
    const std::int64_t extent = extents_[static_cast<std::size_t>(number % count)], smaller = extent - 1 - number / count % (extent - 2);
    std::vector<Array> arrays;
    for (const Array& input : inputs_) {
      const std::vector<std::int64_t> as = shape(input, extent, smaller);
      const Array view = Array::wrap_pointer(const_cast<void*>(input.data()), input.dtype(), {input.size()}, {1}, true);
      std::int64_t size = 1;
      for (const std::int64_t n : as) size *= n;
      arrays.push_back(view.slice(0, 0, size).reshape(as));
    }
    return arrays;
  }

 private:
  static std::vector<std::int64_t> shape(const Array& input, std::int64_t from, std::int64_t to) {
    std::vector<std::int64_t> out(input.shape().begin(), input.shape().end());
    std::ranges::replace(out, from, to);
    return out;
  }
  const std::vector<Array>& inputs_;
  std::vector<std::int64_t> extents_;
};

// Thread that calls the same program with new shapes, each until it gets shape-specialized kernels. It simulates a service that warms up.
class Specializing {
 public:
  Specializing(const ProgramText& program, const Options& options, const std::vector<Array>& inputs)
      : program_(program), options_(options), shapes_(program, inputs), thread_([this] { work(); }) {}
  ~Specializing() {
    stop_ = true;
    thread_.join();
  }
  Specializing(const Specializing&) = delete;
  Specializing& operator=(const Specializing&) = delete;
  std::int64_t shapes() const { return shapes_called_; }
  std::int64_t specialized() const { return specialized_; }

 private:
  void work() try {
    for (std::int64_t number = 0; !stop_;) {
      const std::unique_ptr<runtime::Program> program = program_.compile(options_);  // each instance counts calls separately
      for (int shape = 0; shape < std::max(options_.specialization.depth, 1) && !stop_; ++shape) {
        const std::vector<Array> arrays = shapes_.at(number++);
        std::vector<runtime::Argument> arguments(arrays.size());
        for (std::size_t i = 0; i < arrays.size(); ++i) arguments[i].array = &arrays[i];
        const std::int64_t before = program->stats().specialized;
        for (int call = 0; call < options_.specialization.after_calls; ++call) static_cast<void>(program->call(arguments));
        ++shapes_called_;
        for (int wait = 0; wait < 50 && !stop_ && program->stats().specialized == before; ++wait)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        specialized_ += program->stats().specialized - before;
      }
    }
  } catch (const std::exception& error) {  // the timed calls continue
    fmt::print(stderr, "bench: calls with other shapes stopped early: {}\n", error.what());
  }

  const ProgramText& program_;
  const Options options_;
  const OtherShapes shapes_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> shapes_called_{0}, specialized_{0};
  std::thread thread_;
};

struct Measurement {
  std::size_t kernels = 0;
  double first_ms = 0, compile_ms = 0, median_ns = 0, p999_ns = 0;
  std::int64_t calls = 0, min_bytes = 0, moved_bytes = 0, allocated_bytes_per_call = 0, compiles = 0, shapes_meanwhile = -1,
               specialized_meanwhile = 0;
  double gbs() const { return median_ns > 0 ? static_cast<double>(min_bytes) / median_ns : 0; }
};

enum class How { into, fresh, bind };
How how_of(const std::string& name) {
  if (name == "into") return How::into;
  if (name == "fresh") return How::fresh;
  if (name == "bind") return How::bind;
  throw ValueError(fmt::format("bench: --call must be into, fresh or bind, not `{}`{}", name, suggestion(name, {"into", "fresh", "bind"})));
}

Measurement measure(const ProgramText& program, const Options& options, const std::vector<Array>& inputs, How how, bool while_specializing,
                    ExecutionRecord* record = nullptr) {
  Measurement result;
  std::vector<runtime::Argument> arguments(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    arguments[i].array = &inputs[i];
    result.min_bytes += inputs[i].bytes();
  }
  const std::unique_ptr<runtime::Program> compiled = program.compile(options);
  double begin = seconds_now();
  std::vector<Array> results = compiled->call(arguments);
  result.first_ms = (seconds_now() - begin) * 1e3;
  if (const auto report = compiled->last_report())  // later calls have other plans, whose kernels exist already
    for (const runtime::KernelReport& kernel : report->kernels) result.compile_ms += kernel.compile_ms;
  for (const Array& array : results) result.min_bytes += array.bytes();
  std::vector<Array*> targets;
  for (Array& array : results) targets.push_back(&array);

  const std::unique_ptr<runtime::Program::Bound> bound = how == How::bind ? compiled->bind(arguments, targets) : nullptr;
  const auto call = [&] {
    if (bound) (*bound)();
    else if (how == How::fresh) results = compiled->call(arguments);
    else compiled->call_into(arguments, targets);
  };
  call();
  compiled->wait_until_optimized();  // the median is of warm calls
  call();
  const Stats before = compiled->stats();
  call();
  const Stats after = compiled->stats();
  result.moved_bytes = after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written;

  const std::int64_t batch = batch_size(call);
  std::vector<double> samples;
  samples.reserve(1 << 20);
  constexpr int kCounted = 16;
  const std::int64_t allocated = memory::statistics().allocated_ever;
  for (int i = 0; i < kCounted; ++i) call();
  result.allocated_bytes_per_call = (memory::statistics().allocated_ever - allocated) / kCounted;
  std::optional<Specializing> busy;
  if (while_specializing) busy.emplace(program, options, inputs);
  const Timing timing = time_calls(call, kSeconds, batch, samples);
  result.median_ns = timing.median * 1e9;
  result.calls = timing.calls;
  if (batch > 1) result.calls += time_calls(call, kSeconds / 4, 1, samples).calls;  // batches hide the slowest calls
  result.p999_ns = quantile(samples, 0.999) * 1e9;
  if (busy) result.shapes_meanwhile = busy->shapes(), result.specialized_meanwhile = busy->specialized();
  busy.reset();

  if (record) {  // profiled calls are separate from the timed calls
    constexpr int kProfiled = 20;
    set_profiling(true);
    for (int i = 0; i < kProfiled; ++i) call();
    set_profiling(false);
    *record = compiled->last_execution(Detail::code);
  }
  const Stats at_end = compiled->stats();
  result.compiles = at_end.compiles + (options.mode == Mode::specialized ? at_end.specialized : 0);  // compiles during the first call
  if (const auto report = compiled->last_report()) result.kernels = report->kernels.size();
  return result;
}

Json json_of(const Measurement& m) {
  Json line = {{"kernels", m.kernels},
               {"first_ms", m.first_ms},
               {"compile_ms", m.compile_ms},
               {"median_ns", m.median_ns},
               {"p999_ns", m.p999_ns},
               {"calls", m.calls},
               {"min_bytes", m.min_bytes},
               {"moved_bytes", m.moved_bytes},
               {"gbs", m.gbs()},
               {"allocated_bytes_per_call", m.allocated_bytes_per_call},
               {"compiles", m.compiles}};
  if (m.shapes_meanwhile >= 0) {
    line["shapes_meanwhile"] = m.shapes_meanwhile;
    line["specialized_meanwhile"] = m.specialized_meanwhile;
  }
  return line;
}

// Returns the JSON members that precede the measured values.
Json what_is_timed(const std::string& formula, const ProgramText& program, const std::vector<runtime::ArgumentType>& types, Mode mode) {
  Json shapes = Json::object();
  for (std::size_t i = 0; i < types.size(); ++i) shapes[program.inputs()[i]] = type_text(types[i]);
  return {{"version", ONEPASS_VERSION},
          {"formula", formula},
          {"shapes", std::move(shapes)},
          {"mode", text_of(mode)},
          {"processor", processor_text()}};
}

std::string time_text(double ns) {
  if (ns < 1e4) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e7) return fmt::format("{:.1f} µs", ns / 1e3);
  return fmt::format("{:.2f} ms", ns / 1e6);
}

void print(Mode mode, const Measurement& m) {
  fmt::print("mode {}: {} kernel{}, first call {:.2f} ms, including {:.2f} ms of compilation ({} compile{})\n",
             styled(stdout, Style::Bold, text_of(mode)), m.kernels, m.kernels == 1 ? "" : "s", m.first_ms, m.compile_ms, m.compiles,
             m.compiles == 1 ? "" : "s");
  fmt::print("  median of {} calls {}, 99.9 % of calls within {}\n", m.calls, time_text(m.median_ns), time_text(m.p999_ns));
  fmt::print("  inputs and outputs {} ({:.2f} GB/s); moved {}; allocated per call {}\n", bytes_text(m.min_bytes), m.gbs(),
             bytes_text(m.moved_bytes), bytes_text(m.allocated_bytes_per_call));
  if (m.shapes_meanwhile >= 0)
    fmt::print("  in the meantime, another thread called the program with {} new shapes; {} specialized kernels were compiled\n",
               m.shapes_meanwhile, m.specialized_meanwhile);
}

// Prints two modes side by side, with the ratio of the second mode to the first mode.
void print_table(Mode mode, const Measurement& a, Mode other, const Measurement& b) {
  constexpr int kName = 24, kColumn = 13;
  const auto heading = [&](std::string_view text) { return styled(stdout, Style::Bold, fmt::format("{:>{}}", text, kColumn)); };
  fmt::print("{:{}}{}{}{}\n", "", kName, heading(text_of(mode)), heading(text_of(other)), heading("ratio"));
  const auto padded = [&](const std::string& text) {  // µ has two bytes
    const auto columns = static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
    return std::string(columns < kColumn ? kColumn - columns : 0, ' ') + text;
  };
  const auto row = [&](std::string_view name, double left, double right, auto&& text) {
    fmt::print("{:{}}{}{}{}\n", name, kName, padded(text(left)), padded(text(right)),
               padded(left > 0 ? fmt::format("{:.2f}", right / left) : "-"));
  };
  const auto count = [](double n) { return fmt::format("{:.0f}", n); };
  const auto ms = [](double n) { return fmt::format("{:.2f} ms", n); };
  const auto bytes = [](double n) { return bytes_text(static_cast<std::int64_t>(n)); };
  const auto number = [](auto n) { return static_cast<double>(n); };
  row("kernels", number(a.kernels), number(b.kernels), count);
  row("first call", a.first_ms, b.first_ms, ms);
  row("  compilation", a.compile_ms, b.compile_ms, ms);
  row("median call", a.median_ns, b.median_ns, time_text);
  row("99.9 % of calls within", a.p999_ns, b.p999_ns, time_text);
  row("inputs and outputs", number(a.min_bytes), number(b.min_bytes), bytes);
  row("moved", number(a.moved_bytes), number(b.moved_bytes), bytes);
  row("inputs and outputs per s", a.gbs(), b.gbs(), [](double n) { return fmt::format("{:.2f} GB", n); });
  row("allocated per call", number(a.allocated_bytes_per_call), number(b.allocated_bytes_per_call), bytes);
}

}  // namespace

int bench(Words words) {
  Words again = {"onepass", "bench"};
  again.insert(again.end(), words.begin(), words.end());
  CommandLine app("bench", "Times a program on random inputs: floats uniform on [-1, 1), integers and bool 0 or 1.");
  Words positional, shapes;
  CommonOptions common;
  std::string how_name = "into", compared, record_file;
  ExecutionRecord record;
  bool while_specializing = false, json = false, from_nothing = false, in_this_process = false;
  app.add("PROGRAM", positional, "a formula, a .fuse file or - for standard input");
  app.add("--shapes", shapes, "types of the inputs, such as x=f32[64,256]; at least one").offers({});
  add_mode(app, common);
  add_threads(app, common);
  add_relax(app, common);
  add_limits(app, common);
  app.add("--call", how_name, "into: write to the same arrays in each call (default); fresh: allocate new arrays; bind: use a bound call")
      .offers({"into", "fresh", "bind"});
  app.add_flag("--while-specializing", while_specializing,
               "meanwhile, another thread calls the program with new shapes, which get specialized kernels");
  app.add_flag("--from-nothing", from_nothing, "time the first 1000 calls in fresh processes, with an empty and with a warm kernel cache");
  app.add_flag("--in-this-process", in_this_process, "with --from-nothing: time only in this process, and print one line of JSON")
      .needs("--from-nothing");
  app.add("--compare", compared, "time this mode too, and print a table of both").offers(mode_names());
  app.add("--record", record_file, "write a record of the call and its kernel times to this file: a report (.html), JSON (.json) or text");
  app.add_flag("--json", json, "print one line of JSON");
  app.footer(
      "Examples:\n"
      "  onepass bench 'x*w + b' --shapes x=f32[1024,1024] w=f32[1024,1] b=f32[1024]\n"
      "  onepass bench examples/programs/softmax.fuse --shapes x=f32[4096,1024] --compare unfused --json\n"
      "  onepass bench 'a @ b' --shapes a=f32[512,512] b=f32[512,512] --from-nothing");
  app.parse(std::move(words));
  if (positional.empty() && !shapes.empty() && !is_named_type(shapes.back())) {  // the program may be the last word
    positional.push_back(std::move(shapes.back()));
    shapes.pop_back();
  }

  const How how = how_of(how_name);
  Options options = options_of(common);
  options.should_stop = {};  // polling would be part of each call; an interrupt ends the command at once
  if (while_specializing) options.specialization.after_calls = 3;  // lets the other thread's shapes get kernels soon
  Options other = options;
  if (!compared.empty()) other.mode = mode_of(compared);
  const Source source = program_source("bench", take_program("bench", positional), options.limits);
  if (!positional.empty()) throw ValueError(fmt::format("bench: unexpected argument `{}`; types must follow --shapes", positional.front()));
  const ProgramText program = program_of(source, options.limits);
  const std::vector<runtime::ArgumentType> types = types_of("bench", program, shapes);
  if (from_nothing && !record_file.empty()) throw ValueError("bench: --from-nothing cannot be combined with --record");
  if (from_nothing && (!compared.empty() || while_specializing || how != How::into))
    throw ValueError("bench: --from-nothing cannot be combined with --compare, --while-specializing or --call");
  program.record(types, program.all_outputs());  // fails for a program that does not fit the types, before arrays of these sizes are filled

  if (from_nothing && !in_this_process) {
    std::erase(again, "--json");
    std::vector<Mode> modes = {Mode::adaptive, Mode::specialized};  // the default modes
    const auto mode = std::ranges::find_if(again, [](const std::string& word) { return word == "--mode" || word.starts_with("--mode="); });
    if (mode != again.end()) {
      again.erase(mode, mode + (*mode == "--mode" ? 2 : 1));
      modes = {options.mode};
    }
    return first_calls_from_nothing(again, modes, json ? what_is_timed(source.text, program, types, options.mode).dump() : ""), 0;
  }
  Random random;
  std::vector<Array> inputs;
  for (const runtime::ArgumentType& type : types) inputs.push_back(random_array(type, random));
  if (from_nothing && in_this_process) return first_calls(program, types, options, inputs), 0;
  std::optional<Progress> progress(std::in_place, fmt::format("timing mode {}", text_of(options.mode)));
  const Measurement mine = measure(program, options, inputs, how, while_specializing, record_file.empty() ? nullptr : &record);
  std::optional<Measurement> others;
  if (!compared.empty()) {
    progress->say(fmt::format("timing mode {}", compared));
    others = measure(program, other, inputs, how, while_specializing);
  }
  if (!record_file.empty()) {
    if (!source.is_graph) record.program = source.text;
    runtime::write_text("bench", record_file,
                        record_file.ends_with(".json")   ? record.json()
                        : record_file.ends_with(".html") ? record.html()
                                                         : record.text());
  }
  progress.reset();
  if (json) {
    Json line = what_is_timed(source.text, program, types, options.mode);
    line.update(json_of(mine));
    if (others) {
      line["compare"] = json_of(*others);
      line["compare"]["mode"] = compared;
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else if (others) {
    print_table(options.mode, mine, other.mode, *others);
  } else {
    print(options.mode, mine);
  }
  return 0;
}

}  // namespace onepass::command
