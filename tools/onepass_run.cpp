// onepass run: runs a program on files of arrays and numbers, or a batch of such jobs as lines of JSON.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "onepass/error.h"
#include "onepass/npy.h"
#include "onepass/print.h"
#include "runtime/os.h"
#include "runtime/os_mapped.h"
#include "runtime/os_output.h"
#include "tools/onepass_command.h"
#include "tools/onepass_files.h"
#include "tools/onepass_job.h"
#include "tools/onepass_options.h"
#include "tools/onepass_random.h"
#include "tools/onepass_terminal.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

bool is_archive(std::string_view file) { return file.ends_with(".npz"); }

// Throws for a file of an output whose extension names a format that `run` does not write. A name without an extension is a .npy file.
void check_extension(const std::string& name, std::string_view file) {
  const std::string_view last = file.substr(file.rfind('/') + 1);
  const std::size_t dot = last.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || file.starts_with("/dev/")) return;
  const std::string_view extension = last.substr(dot);
  if (extension == ".npy" || extension == ".npz" || extension == ".png") return;
  throw ValueError(
      fmt::format("run: output `{}`: {}: no format is known for the extension {}. Write to a .npy, .npz or .png file, or print "
                  "the results as text by leaving out -o",
                  name, file, extension));
}

// Files that a job's outputs must not overwrite, because the command also reads or writes them.
struct OtherFiles {
  struct Named {
    std::string name;  // for messages
    os::FilePlace place;
  };
  std::vector<Named> files;
  bool answers = false;  // standard output carries the answers of a batch

  /// Adds an input file. A missing file is ignored here; reading it reports the error.
  void add_read(std::string name, const std::string& file) {
    try {
      files.push_back({std::move(name), os::place_of("run", file)});
    } catch (const IoError&) {}  // NOLINT
  }
};

// Checks that no two outputs share a file, and that an output does not overwrite one of `others`. An output may replace an input.
void check_files(const Job& job, const OtherFiles& others) {
  std::vector<os::FilePlace> places;
  for (const auto& [name, file] : job.outputs) {
    const os::FilePlace place = os::place_of("run", file);
    for (std::size_t i = 0; i < places.size(); ++i)
      if (os::same_place(places[i], place) && !(is_archive(file) && file == job.outputs[i].second))
        throw IoError(fmt::format("run: the outputs `{}` and `{}` have the same file, {}. Give each output its own file",
                                  job.outputs[i].first, name, file));
    for (const OtherFiles::Named& other : others.files)
      if (os::same_place(other.place, place))
        throw IoError(other.name == "--stats"
                          ? fmt::format("run: --stats and the output `{}` have the same file, {}. Give each its own file", name, file)
                          : fmt::format("run: the output `{}` would overwrite {}, {}. Give it another file", name, other.name, file));
    if (others.answers && (place.descriptor == 1 || os::same_place(place, os::place_of("run", std::string(kStandardOutput)))))
      throw IoError(fmt::format("run: the output `{}` cannot be written to standard output, which has the answers of the batch", name));
    places.push_back(place);
  }
  for (const auto& [name, file] : job.inputs) {
    if (file == "-" || literal_of(file)) continue;
    OtherFiles input;
    input.add_read(name, split_member(file).first);
    for (const OtherFiles::Named& other : others.files)
      for (const OtherFiles::Named& read : input.files)
        if (other.name == "--stats" && os::same_place(other.place, read.place))
          throw IoError(fmt::format("run: --stats would overwrite the input `{}`, {}. Give it another file", name, file));
  }
}

// Results of a job besides its outputs.
struct Report {
  std::size_t outputs = 0;
  std::string difference;                              // from --compare; empty: no difference
  std::vector<std::pair<std::string, Array>> results;  // all results, if no output has a file
};

// Runs jobs. Keeps compiled programs from job to job, because a batch usually repeats a few formulas.
class Runner {
 public:
  Runner(Options options, bool compare, SaveOptions save, OtherFiles others)
      : options_(std::move(options)), compare_(compare), save_(save), others_(std::move(others)) {}

  /// Runs a job. Either all its outputs are written or no output is written; if --compare finds a difference, no output is written.
  /// `before_commit` may throw.
  template <class F> Report run(const Job& given, Progress& progress, F&& before_commit) {
    const ProgramText& program = parsed(given.source);
    Job job = given;
    job.outputs = each_output(program, given.outputs);
    if (job.outputs.empty() && others_.answers)
      throw ValueError(
          fmt::format("run: the job requests no output. Add \"outputs\": {{\"NAME\": \"FILE.npy\"}}; the program's outputs are {}",
                      list_of(program.outputs())));
    const std::vector<std::size_t> wanted = wanted_outputs(program, job.outputs);
    check_files(job, others_);
    for (const auto& [name, file] : job.outputs) check_extension(name, file);
    progress.say("reading the inputs");
    const std::vector<Given> inputs = load_inputs(program, job.inputs);
    std::vector<runtime::Argument> arguments;
    for (const Given& given_input : inputs) arguments.push_back(given_input.input.argument());

    runtime::Program& compiled = compiled_for(job.source, program, job.mode, wanted);
    OutputFiles files(save_);
    Report report;
    try {
      std::optional<InterruptibleCall> interruptible(std::in_place);
      progress.say("computing");
      const std::vector<Array> results = compiled.call(arguments);
      report.outputs = results.size();
      if (compare_) {
        progress.say("comparing with another mode");
        if (const Comparison found = compiled.compare(arguments); !found) report.difference = found.text;
      }
      if (InterruptibleCall::asked_to_stop()) throw CancelledError("canceled: by SIGINT");  // covers a SIGINT after the last poll
      interruptible.reset();
      if (report.difference.empty()) {
        progress.say("writing the outputs");
        for (std::size_t i = 0; i < job.outputs.size(); ++i) files.add(job.outputs[i].first, job.outputs[i].second, results[i]);
        if (job.outputs.empty())
          for (std::size_t i = 0; i < results.size(); ++i) report.results.emplace_back(program.outputs()[wanted[i]], results[i]);
      }
    } catch (const Error&) {  // perhaps caused by a file that was shortened
      check_whole(inputs);
      throw;
    }
    check_whole(inputs);
    if (!report.difference.empty()) return report;
    before_commit();
    files.commit();
    return report;
  }

  /// Returns the text of `--stats`: the sums over all jobs.
  std::string stats() const {
    Stats sum = dropped_;
    for (const auto& [key, program] : programs_) sum += program->stats();
    Json json = {{"kernels", sum.kernels},
                 {"calls", sum.calls},
                 {"compiles", {{"generic", sum.compiles}, {"specialized", sum.specialized}}},
                 {"cache_hits", sum.cache_hits},
                 {"bytes_read", sum.bytes_read},
                 {"bytes_written", sum.bytes_written},
                 {"bytes_allocated", sum.bytes_allocated}};
    if (options_.device.is_cuda()) json["bytes_uploaded"] = sum.bytes_uploaded, json["bytes_downloaded"] = sum.bytes_downloaded;
    return json.dump() + "\n";
  }

 private:
  static constexpr std::size_t kMaxPrograms = 256;

  const ProgramText& parsed(const Source& source) {
    if (formulas_.size() >= kMaxPrograms && !formulas_.contains(source.text)) formulas_.clear();
    auto& slot = formulas_[source.text];
    if (!slot) {
      try {
        slot = std::make_unique<ProgramText>(program_of(source, options_.limits));
      } catch (...) {
        formulas_.erase(source.text);
        throw;
      }
    }
    return *slot;
  }

  runtime::Program& compiled_for(const Source& source, const ProgramText& program, Mode mode, const std::vector<std::size_t>& wanted) {
    if (programs_.size() >= kMaxPrograms) {
      for (const auto& [key, old] : programs_) dropped_ += old->stats();
      programs_.clear();
    }
    auto& slot = programs_[{source.text, mode, wanted}];
    if (!slot) {
      Options options = options_;
      options.mode = mode;
      slot = program.compile(options, wanted);
    }
    return *slot;
  }

  // Expands a .npz file for all outputs into one entry for each output.
  static Files each_output(const ProgramText& program, const Files& outputs) {
    Files each;
    for (const auto& [name, file] : outputs) {
      if (!name.empty()) each.emplace_back(name, file);
      else
        for (const std::string& output : program.outputs()) each.emplace_back(output, file);
    }
    return each;
  }

  // Returns the positions of the outputs with files; all positions if no output has a file.
  static std::vector<std::size_t> wanted_outputs(const ProgramText& program, const Files& outputs) {
    if (outputs.empty()) return program.all_outputs();
    std::vector<std::size_t> wanted;
    for (const auto& [name, file] : outputs) {
      const auto at = std::find(program.outputs().begin(), program.outputs().end(), name);
      if (at == program.outputs().end())
        throw NameError(fmt::format("run: the program has no output `{}`{}; its outputs are {}", name,
                                    suggestion_of_name(name, program.outputs()), list_of(program.outputs())));
      const auto output = static_cast<std::size_t>(at - program.outputs().begin());
      if (std::find(wanted.begin(), wanted.end(), output) != wanted.end())
        throw ValueError(fmt::format("run: output `{}` is given twice; an output has only one file", name));
      wanted.push_back(output);
    }
    return wanted;
  }

  struct Given {
    Input input;
    std::string file;
  };

  static std::vector<Given> load_inputs(const ProgramText& program, const Files& files) {
    const std::vector<std::string>& names = program.inputs();
    InputFiles reader;
    std::vector<std::string> file_of(names.size());
    const std::string* from_standard_input = nullptr;
    for (const auto& [name, file] : files) {
      if (name.empty()) continue;
      const auto at = std::find(names.begin(), names.end(), name);
      if (at == names.end())
        throw NameError(
            fmt::format("run: the program has no input `{}`{}; its inputs are {}", name, suggestion_of_name(name, names), list_of(names)));
      std::string& slot = file_of[static_cast<std::size_t>(at - names.begin())];
      if (!slot.empty()) throw ValueError(fmt::format("run: input `{}` is given twice: {} and {}", name, slot, file));
      if (file == "-") {
        if (from_standard_input)
          throw ValueError(
              fmt::format("run: standard input cannot be both `{}` and `{}`. Give one of them a file", *from_standard_input, name));
        from_standard_input = &name;
      }
      slot = file;
    }
    for (const auto& [name, file] : files) {  // archives provide the inputs that have no other file
      if (!name.empty()) continue;
      const std::vector<std::string> arrays = reader.names_in(file);
      for (std::size_t i = 0; i < names.size(); ++i)
        if (file_of[i].empty() && std::find(arrays.begin(), arrays.end(), names[i]) != arrays.end()) file_of[i] = file + ":" + names[i];
    }
    const bool draws = !program.types().empty();  // a dump can run on random inputs
    for (std::size_t i = 0; i < names.size(); ++i)
      if (file_of[i].empty() && !draws)
        throw ValueError(fmt::format("run: input `{}` is missing. Add {}=FILE.npy; the inputs are {}", names[i], names[i], list_of(names)));
    std::vector<Given> inputs;
    Random random;
    for (std::size_t i = 0; i < names.size(); ++i) {
      Input drawn;
      if (draws)
        drawn.array = random_array(program.types()[i], random);  // always drawn, so that given files do not change the other inputs
      inputs.push_back({file_of[i].empty() ? std::move(drawn) : reader.load(names[i], file_of[i]), file_of[i]});
    }
    return inputs;
  }

  // Throws if a mapped input file was shortened while it was read: its missing bytes were read as zeros.
  static void check_whole(const std::vector<Given>& inputs) {
    for (const Given& given : inputs)
      if (given.input.array && os::was_shortened(given.input.array->data()))
        throw IoError(fmt::format("run: {}: the file was shortened while it was read; no output is written", given.file));
  }

  Options options_;
  bool compare_;
  SaveOptions save_;
  OtherFiles others_;
  Stats dropped_;
  std::map<std::string, std::unique_ptr<ProgramText>> formulas_;
  std::map<std::tuple<std::string, Mode, std::vector<std::size_t>>, std::unique_ptr<runtime::Program>> programs_;
};

// ---- batches

constexpr std::size_t kMostLineBytes = std::size_t{64} << 20;  // input from a device or a pipe may never contain a newline

// Reads the next line of a batch, without the bytes after kMostLineBytes. Returns false at the end.
bool next_line(std::istream& lines, std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  std::streambuf& bytes = *lines.rdbuf();
  for (int c = bytes.sbumpc();; c = bytes.sbumpc()) {
    if (c == std::istream::traits_type::eof()) {
      lines.setstate(std::ios::eofbit);
      return too_long || !line.empty();
    }
    if (c == '\n') return true;
    if (line.size() < kMostLineBytes) line += static_cast<char>(c);
    else too_long = true;
  }
}

// Prints the results of a job without output files: a single result without its name, several results with names.
void print(const std::vector<std::pair<std::string, Array>>& results) {
  for (const auto& [name, array] : results) {
    if (results.size() == 1) {
      fmt::print("{}\n", to_text(array));
    } else {
      PrintOptions options;
      options.indent = static_cast<int>(name.size()) + 3;
      fmt::print("{} = {}\n", styled(stdout, Style::Bold, name), to_text(array, options));
    }
  }
}

int run_batch(Runner& runner, const std::string& file, Mode mode) {
  std::ifstream opened;
  if (file != "-") {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) throw IoError(fmt::format("run: {}: the path is a directory, not a batch file", file));
    errno = 0;
    opened.open(file, std::ios::binary);
    if (!opened) throw IoError(fmt::format("run: {}: {}", file, errno ? std::strerror(errno) : "cannot be opened"));
  }
  std::istream& lines = file == "-" ? std::cin : opened;
  bool too_long = false;
  const auto next = [&](std::string& line) {
    try {
      return next_line(lines, line, too_long);
    } catch (const std::ios_base::failure&) { throw IoError(fmt::format("run: {}: reading the file failed", file)); }
  };
  std::int64_t number = 0;
  for (std::string line; next(line);) {
    if (!too_long && line.find_first_not_of(" \t\r\n\v\f") == std::string::npos) continue;
    Json answer = {{"ok", true}};
    const auto failed = [&](std::string_view error) { answer = {{"ok", false}, {"error", error}}; };
    try {
      if (too_long) throw ValueError(fmt::format("run: the line has more than {} bytes, the maximum for a job", kMostLineBytes));
      const Job job = job_of(line, mode);
      Progress progress("reading the job");
      progress.prefix(fmt::format("job {}: ", ++number));
      const Report report = runner.run(job, progress, [] {});
      if (!report.difference.empty()) failed(report.difference);
    } catch (const CancelledError&) { throw; } catch (const std::bad_alloc&) {
      failed("run: out of memory");
    } catch (const std::exception& error) { failed(error.what()); }
    fmt::print("{}\n", answer.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  return 0;
}

// Sorts words into inputs and outputs. `a=1.npy` after `-o` may be a further output: it is an output if the program has no input of that
// name.
void sort_out(const ProgramText& program, const Words& words, Job& job) {
  for (const std::string& word : words) {
    if (is_archive(word) && word.find('=') == std::string::npos) {
      job.inputs.emplace_back("", word);
      continue;
    }
    auto pair = name_and_value("run", word, "NAME=FILE.npy or NAME=NUMBER");
    const auto has = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), pair.first) != names.end();
    };
    if (!job.outputs.empty() && !has(program.inputs()) && has(program.outputs())) job.outputs.push_back(std::move(pair));
    else job.inputs.push_back(std::move(pair));
  }
}

}  // namespace

int run(Words words) {
  CommandLine app(
      "run",
      "Runs a program on files of arrays (.npy, .npz, .png) and numbers. Prints its results or writes them to files; either all files are "
      "written, or none.");
  Words positional, outputs;
  CommonOptions common;
  std::string batch, device = "cpu", stats;
  bool compare = false, check_nan = false, no_sync = false;
  app.add("PROGRAM NAME=FILE", positional,
          "a formula, a .fuse file, a dump (.json) or - for standard input; then its inputs: files (- for standard input), numbers, "
          "or FILE.npz with several arrays");
  app.add("-o,--output", outputs,
          "NAME=FILE.npy, .npz or .png: the file of an output (-: standard output); FILE.npz: all outputs; repeat for several")
      .repeats();
  const Option batch_option =
      app.add("--batch", batch,
              "a file of jobs (-: standard input), one JSON object per line: formula, inputs, outputs, mode; one line answers each job");
  add_mode(app, common);
  add_threads(app, common);
  add_relax(app, common);
  add_limits(app, common);
  app.add("--device", device, "cpu or cuda (docs/cuda.md; not tested on a GPU yet)").offers({"cpu", "cuda"});
  app.add_flag("--compare", compare,
               "run in mode unfused too (reference, if the mode is unfused), and report the first operator that differs; then exit with 1");
  app.add_flag("--check-nan", check_nan,
               "fail if an output has a NaN or an infinity, and name the first operator that produced such a value");
  const Option stats_option =
      app.add("--stats", stats, "write kernels, calls, compiles, cache hits and bytes to this file (-: standard output), as JSON");
  app.add_flag("--no-sync", no_sync, "do not wait until outputs are on disk: this is faster, but a power failure may lose them");
  app.footer(
      "Examples:\n"
      "  onepass run 'sin(x) * k' x=x.npy k=0.5\n"
      "  onepass run 'x*w + b' x=x.npy w=w.npy b=b.npy -o out=y.npy\n"
      "  onepass run 'p = softmax(x); m = max(p)' data.npz -o results.npz\n"
      "  onepass run examples/programs/softmax.fuse x=x.npy -o p=p.npy --mode unfused\n"
      "  echo '{\"formula\": \"x*2\", \"inputs\": {\"x\": \"x.npy\"}, \"outputs\": {\"out\": \"y.npy\"}}' | onepass run --batch -");
  app.parse(std::move(words));

  Options options = options_of(common);
  options.check_nan = check_nan;
  if (device != "cpu" && device != "cuda")
    throw ValueError(fmt::format("run: there is no device `{}`; the devices are cpu and cuda", device));
  if (device == "cuda") options.device = Device::cuda();
  OtherFiles others{.files = {}, .answers = batch_option.is_given()};
  if (batch_option.is_given() && batch != "-") others.add_read("the batch", batch);
  if (!batch_option.is_given() && !positional.empty() && (positional.front().ends_with(".fuse") || positional.front().ends_with(".json")))
    others.add_read("the program", positional.front());
  std::optional<os::AtomicFile> stats_file;
  if (stats_option.is_given()) {
    stats_file.emplace("run", output_path(stats), !no_sync);  // reports an unwritable file before the work starts
    for (const OtherFiles::Named& other : others.files)
      if (os::same_place(stats_file->place(), other.place))
        throw IoError(fmt::format("run: --stats would overwrite {}, {}. Give it another file", other.name, stats));
    others.files.push_back({"--stats", stats_file->place()});
  }
  Runner runner(options, compare, SaveOptions{.sync = !no_sync}, std::move(others));
  const auto write_stats = [&] {
    if (!stats_file) return;
    const std::string text = runner.stats();
    stats_file->write(text.data(), text.size());
    stats_file->finish();
  };

  if (batch_option.is_given()) {
    if (!positional.empty() || !outputs.empty())
      throw ValueError("run: --batch reads program, inputs and outputs from its file, so they cannot be given on the command line");
    const int code = run_batch(runner, batch, options.mode);
    write_stats();
    if (stats_file) stats_file->commit();
    return code;
  }

  const std::string program = take_program("run", positional);
  if (program == "-")
    for (const std::string& word : positional)
      if (word.ends_with("=-"))
        throw ValueError(fmt::format("run: standard input cannot be both the program and `{}`. Give one of them a file", word));
  Job job{.source = program_source("run", program, options.limits), .inputs = {}, .outputs = {}, .mode = options.mode};
  for (const std::string& word : outputs) {
    if (is_archive(word) && word.find('=') == std::string::npos) job.outputs.emplace_back("", word);
    else job.outputs.push_back(name_and_value("run", word, "-o NAME=FILE.npy"));
  }
  sort_out(program_of(job.source, options.limits), positional, job);
  bool prints = !job.outputs.empty();  // true if outputs have files and no file is standard output
  for (auto& [name, file] : job.outputs) {
    file = output_path(file);
    prints = prints && os::place_of("run", file).descriptor != 1;
  }
  std::optional<Progress> progress("reading the inputs");
  const Report report = runner.run(job, *progress, write_stats);
  progress.reset();
  if (!report.difference.empty()) {
    fmt::print("{}\n", report.difference);
    return 1;
  }
  if (stats_file) stats_file->commit();
  print(report.results);
  if (compare)
    fmt::print(prints ? stdout : stderr, "equal in modes {}{} and {}: {} output{}\n", text_of(options.mode),
               device == "cuda" ? " on cuda:0" : "", options.mode == Mode::unfused ? "reference" : "unfused", report.outputs,
               report.outputs == 1 ? "" : "s");
  return 0;
}

}  // namespace onepass::command
