// Random programs in the formula language, in every mode, compared with mode reference: equal bits, or the same error. A NaN's sign and
// payload are not part of the bitwise guarantee. Nothing may be logged.
//
// Each program is called several times, so that the first tier, the optimized tier and specialized kernels run. Results are fresh, or were
// filled with 0xA5. One program in four is also called with other lengths. Every other hundred programs run in strips wherever possible,
// and two of four hundred as on a machine with very small caches. A failure prints the seed, the program and its shrunk form.
//
//   fuzz_programs [--seed S] [--first N] [--count N] [--program N] [--jobs N] [--seconds N] [--shrink N] [--failures N] [--out FILE]
//                 [--list] [FORMULA a=f32[4, 8] …]
//
// --program N: only that program. --jobs N: number of processes. --seconds N: draws programs for this time. --shrink N: number of failures
// to shrink (20). --failures N: stops after N failures (100). --out FILE: appends a line for each failure. --list: prints the programs
// without running them. FORMULA: only this program, with inputs of these types, drawn by the seed; indices below n are `a=i64[3]<n`.
//
// As a test: 800 programs with seed 1, or 100 with sanitizers. ONEPASS_TEST_FULL=1: 30 minutes, with another seed in each run.
// ONEPASS_TEST_SEED=n and ONEPASS_TEST_ROUNDS=n: the programs of that run, and their number.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "compiler/target.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/background.h"
#include "runtime/formula_program.h"
#include "runtime/kernel_cache.h"
#include "runtime/machine.h"
#include "runtime/program.h"
#include "tests/has_codegen.h"
#include "tests/how_long.h"
#include "tests/random_program.h"

using namespace onepass;
using test::RandomProgram;

namespace {

const double kHangSeconds = test::has_sanitizer() ? 400 : 60;  // without an answer for this long, the program hangs

// ------------------------------------------------------------------------------------------------ one program

struct Answer {
  std::vector<Array> results;
  std::string error;
};

std::string first_difference(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return "types or shapes differ";
  const Array x = a.contiguous(), y = b.contiguous();
  const std::size_t size = size_of(a.dtype());
  if (std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.bytes())) == 0) return {};
  const DType t = a.dtype();
  const std::uint64_t exponent = t == f64 ? 0x7ffull << 52 : t == f32 ? 0x7f800000 : t == f16 ? 0x7c00 : 0x7f80;
  const std::uint64_t magnitude = ~std::uint64_t{0} >> (65 - 8 * size);
  const auto bits = [&](const Array& from, std::int64_t i) {
    std::uint64_t n = 0;
    std::memcpy(&n, static_cast<const std::byte*>(from.data()) + static_cast<std::size_t>(i) * size, size);
    return n;
  };
  std::string first;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::uint64_t p = bits(x, i), q = bits(y, i);
    if (p == q || (is_float(t) && (p & magnitude) > exponent && (q & magnitude) > exponent)) continue;
    if (count++ > 0) continue;
    const auto number = [&](std::uint64_t n) {
      if (t == f32) {
        float f;
        std::memcpy(&f, &n, 4);
        return fmt::format("{} (0x{:x})", f, n);
      }
      if (t == f64) {
        double f;
        std::memcpy(&f, &n, 8);
        return fmt::format("{} (0x{:x})", f, n);
      }
      return is_float(t) ? fmt::format("0x{:x}", n)
                         : fmt::format("{}", is_signed_integer(t) ? static_cast<std::int64_t>(n << (64 - 8 * size)) >> (64 - 8 * size)
                                                                  : static_cast<std::int64_t>(n));
    };
    first = fmt::format("element {} of {}: {} instead of {}", i, x.size(), number(q), number(p));
  }
  return count > 1 ? fmt::format("{}, and {} more", first, count - 1) : first;
}

// A formula and its arguments, in the order of its inputs.
struct Case {
  std::string text;
  std::vector<Array> inputs;
};
Case case_of(const std::string& text, const std::vector<std::string>& names, const std::vector<test::ProgramInput>& inputs) {
  Case out{text, {}};
  for (const std::string& name : runtime::parse_formula(text).inputs) {
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) throw ValueError(fmt::format("the formula's input `{}` is missing", name));
    out.inputs.push_back(test::make_input(inputs[at]));
  }
  return out;
}
Case case_of(const RandomProgram& program) {
  std::vector<test::ProgramInput> inputs;
  for (const std::size_t i : program.used()) inputs.push_back(program.inputs[i]);
  return case_of(program.text(), program.names(), inputs);
}

class Runs {
 public:
  /// Prepares a formula for one or several cases. One variant in 16 runs until optimized and specialized code has run; such variants take
  /// most of the time.
  Runs(std::vector<Case> cases, std::uint64_t variant)
      : formula_(runtime::parse_formula(cases.at(0).text)), variant_(variant), is_deep_(variant / 2 % 16 == 0), cases_(std::move(cases)) {
    for (const Case& c : cases_) expected_.push_back(answer({.mode = Mode::reference}, c));
  }

  /// Returns a line for each difference in these modes; empty if there is none.
  std::string differences(unsigned modes) {
    std::string all;
    const auto check = [&](std::string_view mode, const Options& options, int calls) {
      if (!(modes >> static_cast<int>(options.mode) & 1)) return;
      const std::string what = run(options, calls);
      if (!what.empty()) all += fmt::format("{}{}: {}", all.empty() ? "" : "\n", mode, what);
    };
    // Tiers vary: most programs use the tiled interpreter where possible, which compiles nothing; the other programs use compiled code.
    using runtime::TierChoice;
    static constexpr std::optional<TierChoice> tiers[] = {{}, {}, TierChoice::Quick, {}, {}, TierChoice::Quick, {}, TierChoice::Optimised};
    const std::optional<TierChoice> tier = is_deep_ ? std::nullopt : tiers[variant_ / 32 % 8];
    set_compile_threads(is_deep_ ? 1 : 0);  // without threads nothing is optimized in the background
    Options options;
    options.check_recording = false;
    options.mode = Mode::unfused;
    check("unfused", options, 1);
    options.mode = Mode::adaptive;
    if (is_deep_) options.specialization = {.after_calls = 2, .in_background = false};
    check("adaptive", options, is_deep_ ? 5 : 2);
    options.mode = Mode::generic;
    runtime::set_first_tier(tier);
    static constexpr int threads[] = {0, 1, 2, 3, 7};
    options.threads = threads[variant_ % 5];
    static constexpr int bytes[] = {0, 0, 16, 32, 64};
    const int vector_bytes = bytes[variant_ / 5 % 5];
    options.vector_bytes = vector_bytes <= compiler::Target::host().vector_bytes ? vector_bytes : 0;
    check(fmt::format("generic, {} threads, vectors of {} bytes", options.threads, options.vector_bytes), options, is_deep_ ? 3 : 1);
    runtime::set_first_tier(std::nullopt);
    options.threads = options.vector_bytes = 0;
    options.mode = Mode::specialized;
    if (is_deep_ || variant_ % 8 == 0) check("specialized", options, 1);
    return all;
  }

 private:
  std::unique_ptr<runtime::Program> compile(Options options) const {
    options.check_recording = false;  // debug builds log the option, and a formula always records the same graph
    return std::make_unique<runtime::Program>(formula_.record, formula_.inputs, options);
  }
  static std::vector<runtime::Argument> arguments(const Case& c) {
    std::vector<runtime::Argument> out;
    for (const Array& a : c.inputs) out.push_back({&a, {}});
    return out;
  }

  Answer answer(const Options& options, const Case& c) const {
    Answer out;
    try {
      out.results = compile(options)->call(arguments(c));
    } catch (const InternalError& e) { out.error = std::string("InternalError: ") + e.what(); } catch (const Error& e) {
      out.error = e.what();
    }
    return out;
  }

  // Runs several calls: the first with fresh results, the other calls with poisoned results. From the third call on, optimized code runs.
  std::string run(const Options& options, int calls) const {
    std::unique_ptr<runtime::Program> program = compile(options);
    for (int call = 0; call < calls; ++call) {
      if (call >= 2) {
        runtime::background::hurry();  // otherwise the compile waits for idle processors
        runtime::wait_for_optimised();
      }
      for (std::size_t set = 0; set < cases_.size(); ++set) {
        const std::vector<runtime::Argument> in = arguments(cases_[set]);
        const Answer& expected = expected_[set];
        const auto where = [&] { return fmt::format("call {}{}", call + 1, set ? " with other lengths" : ""); };
        std::vector<Array> results;
        std::string error;
        try {
          if ((call == 0 && calls > 1) || !expected.error.empty()) {
            results = program->call(in);
          } else {
            std::vector<Array*> targets;
            results.reserve(expected.results.size());
            for (const Array& r : expected.results) {
              results.push_back(Array::empty(r.shape(), r.dtype()));
              if (r.bytes() > 0)
                std::memset(results.back().mutable_data(), r.dtype() == boolean ? 1 : 0xA5, static_cast<std::size_t>(r.bytes()));
              targets.push_back(&results.back());
            }
            program->call_into(in, targets);
          }
        } catch (const InternalError& e) { return where() + ": InternalError: " + e.what(); } catch (const Error& e) {
          error = e.what();
        }
        if (error != expected.error) return fmt::format("{}: `{}` instead of `{}`", where(), error, expected.error);
        for (std::size_t i = 0; i < results.size(); ++i)
          if (const std::string what = first_difference(expected.results[i], results[i]); !what.empty())
            return fmt::format("{}, output {}, {}", where(), i, what);
      }
    }
    return {};
  }

  runtime::FormulaProgram formula_;
  std::uint64_t variant_;
  bool is_deep_;
  std::vector<Case> cases_;
  std::vector<Answer> expected_;
};

std::string warnings;  // messages logged while a program ran, such as rejected plans; guarded by the lock
std::mutex warnings_lock;

constexpr unsigned kAllModes = 0xff;
// Returns the mode to use while shrinking, from the modes that a failure names.
unsigned first_mode(const std::string& what) {
  if (what.starts_with("unfused")) return 1u << static_cast<int>(Mode::unfused);
  if (what.starts_with("adaptive")) return 1u << static_cast<int>(Mode::adaptive);
  if (what.starts_with("generic")) return 1u << static_cast<int>(Mode::generic);
  if (what.starts_with("specialized")) return 1u << static_cast<int>(Mode::specialized);
  return kAllModes;
}

std::string judge(const RandomProgram& program, std::uint64_t variant, unsigned modes = kAllModes) {
  try {
    std::vector<Case> cases{case_of(program)};
    if (variant % 4 == 1) {
      RandomProgram other = program;
      const auto longer = [&](std::int64_t e) { return e < 2 ? e : e == 2 ? 3 : e + 1 + static_cast<std::int64_t>(variant / 4 % 3); };
      if (test::change_extents(other, longer, false)) cases.push_back(case_of(other));
    }
    std::string found = Runs(std::move(cases), variant).differences(modes);
    const std::lock_guard lock(warnings_lock);
    if (found.empty() && !warnings.empty()) found = "log: " + warnings;
    warnings.clear();
    return found;
  } catch (const std::exception& e) { return fmt::format("exception: {}", e.what()); }
}

// ------------------------------------------------------------------------------------------------ processes

// Returns the seconds for which this process ran. It is called every half second, so a longer interval means that the process and its
// programs were stopped.
double seconds_now() {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point last = Clock::now();
  static double seconds = 0;
  const Clock::time_point now = Clock::now();
  seconds += std::min(std::chrono::duration<double>(now - last).count(), 1.0);
  last = now;
  return seconds;
}
double processor_seconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  return static_cast<double>(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

// Child process that sends messages, each a length and a text. The parent has no threads, so it may fork.
struct Child {
  pid_t id = -1;
  int from = -1;
  std::string pending;
};
void write_all(int to, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string all(reinterpret_cast<const char*>(&size), 4);
  all += text;
  for (std::size_t done = 0; done < all.size();) {
    const ssize_t n = write(to, all.data() + done, all.size() - done);
    if (n <= 0) _exit(1);
    done += static_cast<std::size_t>(n);
  }
}
Child start(const std::function<void(int to)>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t id = fork();
  if (id < 0) std::abort();
  if (id == 0) {
    close(ends[0]);
    body(ends[1]);
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[1]);
  return {id, ends[0], {}};
}
// Receives messages until time `until` (of steady_clock). Returns false after the child's last message.
bool receive(Child& child, double until, std::vector<std::string>& messages) {
  for (;;) {
    while (child.pending.size() >= 4) {
      std::uint32_t size = 0;
      std::memcpy(&size, child.pending.data(), 4);
      if (child.pending.size() < 4 + size) break;
      messages.push_back(child.pending.substr(4, size));
      child.pending.erase(0, 4 + size);
    }
    if (!messages.empty()) return true;
    const double left = until - seconds_now();
    if (left <= 0) return true;
    pollfd poll_for{child.from, POLLIN, 0};
    if (poll(&poll_for, 1, static_cast<int>(std::min(left, 0.5) * 1000) + 1) <= 0) continue;
    char buffer[65536];
    const ssize_t n = read(child.from, buffer, sizeof buffer);
    if (n <= 0) return false;
    child.pending.append(buffer, static_cast<std::size_t>(n));
  }
}
std::string end(Child& child) {  // returns a description of an abnormal end
  int status = 0;
  waitpid(child.id, &status, 0);
  close(child.from);
  if (WIFSIGNALED(status)) return fmt::format("crash: {}", strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return fmt::format("crash: exit code {}", WEXITSTATUS(status));
  return {};
}

// Programs of one process. Then a new process starts, so that leftovers of programs do not accumulate. Every second one runs in strips, and
// every second pair as on a machine with very small caches: then small arrays have prefetches and non-temporal stores, too.
constexpr std::uint64_t kBlock = 100;
void set_up_block_of(std::uint64_t number) {
  static std::optional<runtime::DescribedMachine> small_caches;
  if (number / kBlock % 4 >= 2) small_caches.emplace("l1=1K,l2=1K,l3=2K");
  if (number / kBlock % 2 == 0) return;
  const char* const set = std::getenv("ONEPASS_TESTING");
  setenv("ONEPASS_TESTING", (std::string(set ? set : "") + ",strips").c_str(), 1);
}

// Checks one program in a separate process.
std::string judge_apart(const RandomProgram& program, std::uint64_t variant, unsigned modes = kAllModes) {
  Child child = start([&](int to) {
    set_up_block_of(variant);
    write_all(to, judge(program, variant, modes));
  });
  std::vector<std::string> messages;
  const bool goes_on = receive(child, seconds_now() + kHangSeconds, messages);
  if (messages.empty() && goes_on) kill(child.id, SIGKILL);
  const std::string how = end(child);
  if (!messages.empty() && (how.empty() || !messages[0].empty())) return messages[0];
  return messages.empty() && goes_on ? fmt::format("hangs: no answer after {} s", kHangSeconds) : how;
}

struct Settings {
  std::uint64_t seed = 1, first = 0, count = 0;
  int jobs = 1, shrink = 20, failures = 100;
  double seconds = 0;
  std::string out;
};

struct Failure {
  std::uint64_t number;
  std::string what;
};

struct Totals {
  std::uint64_t programs = 0, errors = 0;
  double slowest = 0;
  std::uint64_t slowest_number = 0, above_ten = 0;
  std::vector<Failure> failures;
};

void report(const Settings& s, const Failure& failure, int& shrinks) {
  const RandomProgram program = test::random_program(s.seed, failure.number);
  const auto show = [](const RandomProgram& p) { return fmt::format("  {}\n  {}\n", p.text(), p.shapes()); };
  std::string line;
  std::string text = fmt::format("\nseed {}, program {}: {}\n{}", s.seed, failure.number, failure.what, show(program));
  if (shrinks-- > 0) {
    const std::string again = judge_apart(program, failure.number);
    if (again.empty()) {
      text += "  It passes by itself: it fails after the programs before it.\n";
    } else {
      // Slow or crashing programs get fewer attempts.
      const RandomProgram small = test::shrink(
          program, [&](const RandomProgram& p) { return !judge_apart(p, failure.number, first_mode(again)).empty(); },
          again.starts_with("hangs") ? 10 : 400);
      text += fmt::format("shrunk: {}\n{}", judge_apart(small, failure.number), show(small));
      line = fmt::format("{} | {}", small.text(), small.shapes());
    }
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (!s.out.empty())
    if (std::FILE* file = std::fopen(s.out.c_str(), "a")) {
      std::fprintf(file, "%llu %llu | %s | %s\n", static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(failure.number),
                   line.c_str(), failure.what.substr(0, failure.what.find('\n')).c_str());
      std::fclose(file);
    }
}

int run(const Settings& s) {
  Totals totals;
  struct Job {
    Child child;
    std::uint64_t next = 0, last = 0;  // the current program, and one past the last program
    double since = 0;
    bool runs = false;
  };
  std::vector<Job> jobs(static_cast<std::size_t>(s.jobs));
  std::uint64_t next = s.first;
  const std::uint64_t last = s.first + s.count;
  const double began = seconds_now();
  int shrinks = s.shrink;
  const auto start_job = [&](Job& job) {
    job.runs = true;
    job.since = seconds_now();
    job.child = start([&, from = job.next, to_number = job.last, seed = s.seed](int to) {
      set_up_block_of(from);
      for (std::uint64_t n = from; n < to_number; ++n) {
        const double before = processor_seconds();
        const RandomProgram program = test::random_program(seed, n);
        const std::string what = judge(program, n);
        write_all(to, fmt::format("{} {} {}", n, processor_seconds() - before, what));
      }
    });
  };
  for (bool busy = true; busy;) {
    busy = false;
    for (Job& job : jobs) {
      if (!job.runs) {
        const bool enough = static_cast<int>(totals.failures.size()) >= s.failures || (s.seconds > 0 && seconds_now() - began > s.seconds);
        if (next >= last || enough) continue;
        job.next = next;
        job.last = next = std::min(last, (next / kBlock + 1) * kBlock);
        start_job(job);
      }
      busy = true;
      std::vector<std::string> messages;
      const bool goes_on = receive(job.child, seconds_now() + (jobs.size() > 1 ? 0.02 : 0.5), messages);
      const auto failed = [&](const std::string& what) {
        totals.failures.push_back({job.next, what});
        report(s, totals.failures.back(), shrinks);
      };
      for (const std::string& message : messages) {
        char* rest = nullptr;
        const std::uint64_t n = std::strtoull(message.c_str(), &rest, 10);
        const double took = std::strtod(rest, &rest);
        const std::string what = rest + 1;
        ++totals.programs;
        totals.above_ten += took > 10;
        if (took > totals.slowest) totals.slowest = took, totals.slowest_number = n;
        job.next = n;
        if (!what.empty()) failed(what);
        job.next = n + 1;
        job.since = seconds_now();
      }
      const bool hangs = messages.empty() && goes_on && seconds_now() - job.since > kHangSeconds;
      if (hangs) kill(job.child.id, SIGKILL);
      if (goes_on && !hangs) continue;
      const std::string how = end(job.child);
      job.runs = false;
      if (hangs || !how.empty()) {
        if (job.next < job.last) {
          ++totals.programs;
          failed(hangs ? fmt::format("hangs: no answer after {} s", kHangSeconds) : how);
          ++job.next;
        }
      }
      if (job.next < job.last && static_cast<int>(totals.failures.size()) < s.failures) start_job(job);  // the remaining programs
    }
  }
  std::printf(
      "\nseed %llu: %llu programs from number %llu on, %zu failures; the slowest is program %llu with %.2f s of processor time, %llu took "
      "more than 10 s; %.1f s\n",
      static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(totals.programs), static_cast<unsigned long long>(s.first),
      totals.failures.size(), static_cast<unsigned long long>(totals.slowest_number), totals.slowest,
      static_cast<unsigned long long>(totals.above_ten), seconds_now() - began);
  return totals.failures.empty() ? 0 : 1;
}

// Parses an input such as `a=f32[4, 8]` or `k=i64[]<3`.
bool add_input(std::string_view text, std::uint64_t seed, std::vector<std::string>& names, std::vector<test::ProgramInput>& inputs) {
  const std::size_t equals = text.find('='), open = text.find('['), close = text.find(']');
  if (equals == text.npos || open == text.npos || close == text.npos) return false;
  test::ProgramInput input;
  input.seed = seed + inputs.size();
  bool known = false;
  for (int t = 0; t <= static_cast<int>(DType::F64); ++t)
    if (name_of(static_cast<DType>(t)) == text.substr(equals + 1, open - equals - 1)) input.dtype = static_cast<DType>(t), known = true;
  if (!known) return false;
  const std::string inside(text.substr(open + 1, close - open - 1));
  for (const char* at = inside.c_str(); *at;) {
    char* stop = nullptr;
    input.shape.push_back(std::strtoll(at, &stop, 10));
    if (stop == at) return false;
    at = stop;
    while (*at == ',' || *at == ' ') ++at;
  }
  if (close + 1 < text.size() && text[close + 1] == '<') input.below = std::atoll(std::string(text.substr(close + 2)).c_str());
  names.emplace_back(text.substr(0, equals));
  inputs.push_back(std::move(input));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!test::has_codegen()) return 0;
  set_log(
      [](LogLevel, std::string_view text) {
        const std::lock_guard lock(warnings_lock);
        if (warnings.size() < 2000) warnings += fmt::format("{}{}", warnings.empty() ? "" : "\n", text);
      },
      LogLevel::warning);
  const bool full = test::is_full_run();
  Settings s;
  const char* const seed_text = std::getenv("ONEPASS_TEST_SEED");
  s.seed = seed_text ? std::strtoull(seed_text, nullptr, 10) : full ? std::random_device()() : 1;
  const char* const rounds = std::getenv("ONEPASS_TEST_ROUNDS");
  s.count = rounds ? std::strtoull(rounds, nullptr, 10) : full ? ~std::uint64_t{0} >> 1 : test::has_sanitizer() ? 100 : 800;
  if (full && !rounds) s.seconds = 1800;
  std::string formula;
  std::vector<std::string> names;
  std::vector<test::ProgramInput> inputs;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto number = [&]() -> std::uint64_t { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (flag == "--seed") s.seed = number();
    else if (flag == "--first") s.first = number();
    else if (flag == "--count") s.count = number(), s.seconds = 0;
    else if (flag == "--program") s.first = number(), s.count = 1, s.seconds = 0;
    else if (flag == "--jobs") s.jobs = std::max(1, static_cast<int>(number()));
    else if (flag == "--seconds") s.seconds = static_cast<double>(number()), s.count = ~std::uint64_t{0} >> 1;
    else if (flag == "--shrink") s.shrink = static_cast<int>(number());
    else if (flag == "--failures") s.failures = static_cast<int>(number());
    else if (flag == "--out") s.out = i + 1 < argc ? argv[++i] : "";
    else if (flag == "--list") list = true;
    else if (formula.empty() && !flag.starts_with("--")) formula = flag;
    else if (formula.empty() || !add_input(flag, s.seed, names, inputs)) {
      std::fprintf(stderr, "`%s` is neither an option nor an input such as a=f32[4, 8]\n", argv[i]);
      return 2;
    }
  }
  if (s.first + s.count < s.first) s.count = ~s.first;
  if (!formula.empty()) {
    try {
      bool fails = false;
      for (std::uint64_t variant = 0; variant < 5; ++variant) {
        const std::string what = Runs({case_of(formula, names, inputs)}, variant).differences(kAllModes);
        if (!what.empty()) std::printf("%s\n", what.c_str());
        fails |= !what.empty();
      }
      std::printf(fails ? "differs\n" : "the same in every mode\n");
      return fails;
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 2;
    }
  }
  if (list) {
    for (std::uint64_t n = s.first; n < s.first + s.count; ++n) {
      const RandomProgram p = test::random_program(s.seed, n);
      std::printf("%llu: %s | %s\n", static_cast<unsigned long long>(n), p.text().c_str(), p.shapes().c_str());
    }
    return 0;
  }
  return run(s);
}
