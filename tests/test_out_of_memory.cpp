// Each allocation fails in turn, on any thread, in a fresh process, for each part of the library. Each fault has a separate child process.
// The call gives a memory error or the right result, and the same call without a fault is right afterwards. Nothing hangs, no file is left,
// and nothing leaks (checked by the sanitizer build).
//
// Allocations inside the code generator's module are excluded, since LLVM ends a process without memory (docs/security.md).
//
// With --full every allocation fails; otherwise some allocations of each scenario fail. ONEPASS_FAULT="scenario;number" or
// "scenario;number;all" runs one fault and prints its stack.
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "compiler/codegen.h"
#include "onepass/c.h"
#include "onepass/onepass.h"
#include "replaced_new.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"
#include "runtime/tiers.h"
#include "this_build.h"

extern "C" [[gnu::weak]] int __lsan_do_recoverable_leak_check();  // of the address sanitizer

namespace fs = std::filesystem;
namespace op = onepass;
using op::Array, op::Tensor;

// ------------------------------------------------------------------------------------------------ faults

namespace {

constexpr std::int64_t kNever = INT64_MAX;
constinit std::atomic<bool> counting{false}, for_good{false};
constinit std::atomic<std::int64_t> asked{0}, fails_at{kNever};

constexpr int kFrames = 40;
void* failed_in[kFrames];  // stack of the first allocation that failed
constinit std::atomic<int> frames{0};

}  // namespace

void* op::test::memory_of_new(std::size_t bytes) noexcept {
  if (counting.load(std::memory_order_relaxed) && !op::compiler::in_code_generator()) {
    const std::int64_t number = asked.fetch_add(1), at = fails_at.load(std::memory_order_relaxed);
    if (number == at || (number > at && for_good.load(std::memory_order_relaxed))) {
      if (number == at) frames = backtrace(failed_in, kFrames);
      return nullptr;
    }
  }
  return std::malloc(bytes ? bytes : 1);
}

namespace {

// -------------------------------------------------------------------------------------------------- scenarios

// Hash of a scenario's results. Allocates nothing.
class Results {
 public:
  void add(const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
    ++count_;
  }
  void add(const Array& a) { add(a.data(), static_cast<std::size_t>(a.bytes())); }
  void add(bool good) { add(&good, 1); }
  bool operator==(const Results&) const = default;

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  int count_ = 0;
};

struct Scenario {
  const char* name;
  void (*call)(Results& out);
  void (*before)() = nullptr;  // runs first in the process, without faults
  const char* cache = "none";  // fresh: an empty folder; full: a folder with all kernels
  bool at_exit = false;        // the faults occur during the exit of the process
};

Array numbers(op::Extents shape, double step = 0.25) {
  Array a = Array::empty(shape, op::f32);
  double value = -1;
  for (float& x : a.span<float>()) x = static_cast<float>(value), value = value > 3 ? -2.5 : value + step;
  return a;
}

std::string& folder() {
  static std::string* const path = new std::string;
  return *path;
}

op::Options with(op::Mode mode) {
  op::Options options;
  options.mode = mode;
  return options;
}

void compiler_first() { op::runtime::set_tiles(false); }
void optimised_first() { op::runtime::set_first_tier(op::runtime::TierChoice::Optimised); }

// The compiled function stays alive after a fault, so a later call uses the state that the fault left.
template <op::Mode mode> void elementwise(Results& out) {
  static auto f = op::compile(
      [](Tensor x, Tensor w, Tensor b) {
        return std::tuple{op::exp(x * w + b) - x, op::maximum(x, w)};
      },
      with(mode));
  const Array x = numbers({6, 40}), w = numbers({40}), b = numbers({1});
  Array y = Array::empty({6, 40}, op::f32), z = Array::empty({6, 40}, op::f32);
  f.into(y, z)(x, w, b);
  const auto [p, q] = f(x, w, b);
  for (const Array& a : {y, z, p, q}) out.add(a);
}

template <op::Mode mode> void reduction(Results& out) {
  static auto f = op::compile(
      [](Tensor x, Tensor scale) {
        const Tensor p = softmax(x * scale);
        return std::tuple{p, sum(p, 0), mean(x), cumsum(x, 1)};
      },
      with(mode));
  const Array x = numbers({30, 50});
  const auto [p, s, m, c] = f(x, 0.5);
  for (const Array& a : {p, s, m, c}) out.add(a);
}

void contraction(Results& out) {
  static auto f = op::compile([](Tensor x, Tensor w, Tensor b) { return relu(matmul(x, w) + b); });
  out.add(f(numbers({24, 33}), numbers({33, 20}), numbers({20})));
}

void gradient(Results& out) {
  static auto loss = op::compile([](Tensor x, Tensor w) { return sum(square(tanh(x * w))); });
  static auto both = op::compile([](Tensor x, Tensor w) {
    const Tensor y = sum(square(tanh(x * w)));
    auto [dx, dw] = grad(y, x, w);
    return std::tuple{y, dx, dw};
  });
  const Array x = numbers({7, 9}), w = numbers({9});
  const auto [y, dx, dw] = both(x, w);
  auto [z, pullback] = op::vjp(loss, x, w);
  const auto [ex, ew] = pullback(Array::ones({}, op::f32));
  for (const Array& a : {y, dx, dw, z, ex, ew}) out.add(a);
}

// Checks that `f` throws E or a memory error, and records which error, since the fault may precede the other error.
template <class E, class F> void throws(Results& out, F&& f) {
  try {
    f();
    out.add(false);
  } catch (const op::MemoryError&) { throw; } catch (const E& error) {
    out.add(std::strlen(error.what()) > 20);
  }
}

void formulas(Results& out) {
  static const op::Formula f = op::formula("y = softmax(x*w + 0.5)\nsum(y, axis=0) * 3 - max(x)");
  const Array x = numbers({8, 12}), w = numbers({12});
  out.add(f({{"x", x}, {"w", w}})[0]);
  throws<op::FormulaError>(out, [] { op::formula("sum(x,\n  axis=0) ** * 3"); });
  throws<op::NameError>(out, [&] { f({{"x", x}, {"u", w}}); });
  const auto wrong = f.try_call({{"x", x}, {"w", x}});
  if (!wrong && (wrong.error().empty() || wrong.error().find("out of memory") != std::string::npos)) throw std::bad_alloc();
  out.add(!wrong && wrong.error().find("broadcast") != std::string::npos);
}

void printed_graphs(Results& out) {
  const op::GraphView graph = op::GraphView::parse(R"(
    %0 = input x : f32[32, 64]
    %1 = input w : f32[64]
    %2 = reshape %1 : f32[1, 64]
    %3 = broadcast %2 : f32[32, 64]
    %4 = mul %0, %3 : f32[32, 64]
    %5 = reduce_sum %4 {1} : f32[32]
    return %5)");
  const op::Formula f = op::formula(graph);
  out.add(f({numbers({32, 64}), numbers({64})})[0]);
  const std::string text = graph.text();
  out.add(op::GraphView::parse(text) == graph);
  out.add(!f.last_graph().empty());
  throws<op::ValueError>(out, [] { static_cast<void>(op::GraphView::parse("%0 = input x : f32[32, 64]\n return %1")); });
}

void npy_files(Results& out) {
  const std::string path = folder() + "/a.npy", other = folder() + "/b.npy", third = folder() + "/c.npy";
  const Array a = numbers({5, 7}), large = numbers({300, 300});
  op::save_npy(path, a, {.sync = false});
  op::StagedFiles staged({.sync = false});
  staged.add(other, large);
  staged.add(third, a);
  staged.commit();
  out.add(op::load_npy(path));
  out.add(op::load_npy(other));
  throws<op::IoError>(out, [&] { static_cast<void>(op::load_npy(folder() + "/none.npy")); });
}

void shapes(Results& out) {
  static auto f = op::compile([](Tensor x) { return sum(exp(x) * 2, 1); }, {.specialization = {.depth = 4, .after_calls = 1}});
  const Array x = numbers({9, 31}), y = numbers({4, 17});
  for (int i = 0; i < 3; ++i) {
    out.add(f(x));
    out.add(f(y));
    op::runtime::wait_for_optimised(10'000'000'000);
  }
}

void threads(Results& out) {
  static auto f = op::compile([](Tensor x) { return std::tuple{tanh(x) * 2, sum(x, 0), softmax(x)}; }, {.threads = 3});
  const Array x = numbers({300, 1000}, 0.001);
  const auto [y, s, p] = f(x);
  for (const Array& a : {y, s, p}) out.add(a);
}

// Two threads request the same kernels at once: one thread compiles, the other thread waits.
void concurrent_calls(Results& out) {
  static auto f = op::compile([](Tensor x) { return sum(exp(x) * 3 - x, 1); });
  std::exception_ptr error;
  Array mine, theirs;
  const Array x = numbers({12, 20});
  std::atomic<bool> ready{false};
  std::thread other([&] {
    ready = true;
    try {
      theirs = f(x);
    } catch (...) { error = std::current_exception(); }
  });
  while (!ready) std::this_thread::yield();
  std::exception_ptr here;
  try {
    mine = f(x);
  } catch (...) { here = std::current_exception(); }
  other.join();
  if (here) std::rethrow_exception(here);
  if (error) std::rethrow_exception(error);
  out.add(mine);
  out.add(theirs);
}

void mapped(Results& out) {
  static auto f = op::compile([](Tensor x, Tensor w) {
    return op::vmap([](Tensor x, Tensor w) { return sum(tanh(x * w)) + grad(sum(x * x), x); }, {0, op::none})(x, w);
  });
  out.add(f(numbers({6, 11}), numbers({11})));
}

void loops(Results& out) {
  static auto f = op::compile([](Tensor r, Tensor alpha) {
    const auto [last, all] = op::scan(
        [&](Tensor h, Tensor x) {
          const Tensor next = 0.1 + alpha * (x * x) + 0.5 * h;
          return std::pair{next, next};
        },
        1.0, r);
    const Tensor root = op::while_loop([](Tensor y) { return y * y > 2.0; }, [](Tensor y) { return (y + 2.0 / y) / 2.0; }, last * 0 + 2, 9);
    return std::tuple{all, grad(sum(all), r), root};
  });
  const auto [all, d, root] = f(numbers({25}), 0.2);
  for (const Array& a : {all, d, root}) out.add(a);
}

void routines(Results& out) {
  static const Array captured = numbers({40});
  static auto f = op::compile([](Tensor x, Tensor i) {
    return std::tuple{sort(x, 1), argsort(x + Tensor(captured), 1), take(x, i, 1), scatter_add(op::zeros({50}, op::f32), i, x[0], 0),
                      median(x)};
  });
  std::vector<std::int64_t> places(40);
  for (std::size_t k = 0; k < places.size(); ++k) places[k] = static_cast<std::int64_t>(k * 7 % 40);
  const auto [s, a, t, u, m] = f(numbers({6, 40}, 0.37), Array::from(std::move(places)));
  for (const Array& r : {s, a, t, u, m}) out.add(r);
}

void structures(Results& out) {
  static auto f = op::compile([](const std::vector<Tensor>& xs, Tensor a) {
    return op::concat({op::stack(xs, 0) * a, op::stack(xs, 0)}, 0);
  });
  out.add(f(std::vector<Array>{numbers({10}), numbers({10}), numbers({10})}, 2.0));
  out.add(f(std::vector<Array>{numbers({10}), numbers({10})}, 3.0));
}

void checks(Results& out) {
  const Array x = Array::full({20}, 2.5, op::f32);
  static auto f = op::compile([](Tensor x) { return op::log(x) * 2; }, {.check_recording = true, .check_nan = true});
  out.add(f(x));
  throws<op::Error>(out, [] { f(numbers({20})); });
  out.add(static_cast<bool>(f.compare(x)));
}

void bound_and_ahead(Results& out) {
  static auto f = op::compile([](Tensor x, Tensor a) { return sum(x * a, 0); });
  f.warm_up({"f32[9,8] 2.0"});
  const Array x = numbers({9, 8});
  Array y = Array::empty({8}, op::f32);
  auto bound = f.bind(y, x, 2.0);
  bound();
  out.add(y);
  out.add(f.signatures().size() > 0);
  f.write_signatures(folder() + "/signatures");
  out.add(f.warm_up_file(folder() + "/signatures") > 0);
}

void explained(Results& out) {
  op::set_profiling(true);
  static auto f = op::compile([](Tensor x) { return softmax(x) * sum(x, 0); });
  out.add(f(numbers({9, 8})));
  out.add(f.explain().size() > 10);
  const op::ExecutionRecord record = f.last_execution(op::Detail::code);
  out.add(record.json().size() > 10 && record.html().size() > 10);
  out.add(f.stats().calls > 0);
  out.add(op::profile_json().size() > 10 && op::recent_calls(3).size() > 0);
}

// A call that may not wait for the compiler runs unfused until the kernels are ready.
void compile_time_limit(Results& out) {
  static constinit std::atomic<std::int64_t> now{0};
  op::runtime::set_compile_clock([] { return now += 10'000'000; });
  static auto f = op::compile([](Tensor x) { return sum(exp(x) * 2 - x, 1) / 3; }, {.limits = {.compile_ms = 1}});
  op::set_log(nullptr);
  const Array x = numbers({9, 31});
  for (int i = 0; i < 3; ++i) {
    out.add(f(x));
    op::runtime::wait_for_optimised(10'000'000'000);
  }
}

void interface_for_c(Results& out) {
  const auto check = [](onepass_status status) {
    if (status == ONEPASS_MEMORY_ERROR) throw std::bad_alloc();
    if (status != ONEPASS_OK) throw std::runtime_error(onepass_last_error());
  };
  struct Handles {
    onepass_options* options = nullptr;
    onepass_formula* formula = nullptr;
    onepass_array *x = nullptr, *y = nullptr, *z = nullptr;
    char* text = nullptr;
    DLManagedTensorVersioned* tensor = nullptr;
    ~Handles() {
      onepass_options_release(options);
      onepass_formula_release(formula);
      for (onepass_array* const a : {x, y, z}) onepass_array_release(a);
      onepass_free_text(text);
    }
  } h;
  float data[12], copied[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i) / 4;
  const std::int64_t shape[] = {3, 4};
  check(onepass_options_new(&h.options));
  check(onepass_options_set(h.options, "compile", "allowed"));
  check(onepass_options_set_stop(
      h.options, [](void*) { return 0; }, nullptr));
  check(onepass_formula_new("exp(x*a) - 1", h.options, &h.formula));
  check(onepass_array_wrap(data, ONEPASS_F32, 2, shape, nullptr, 0, nullptr, nullptr, &h.x));
  check(onepass_array_empty(ONEPASS_F32, 2, shape, &h.y));
  const onepass_value arguments[] = {onepass_of_array(h.x), onepass_of_float(0.5)};
  check(onepass_formula_warm_up(h.formula, "f32[3,4] 0.5"));
  check(onepass_formula_call(h.formula, arguments, 2, &h.z, 1));
  check(onepass_formula_into(h.formula, arguments, 2, &h.y, 1));
  check(onepass_array_copy_to(h.z, copied, sizeof copied));
  out.add(copied, sizeof copied);
  check(onepass_array_copy_to(h.y, copied, sizeof copied));
  out.add(copied, sizeof copied);
  check(onepass_formula_explain(h.formula, &h.text));
  onepass_formula* none = nullptr;
  const onepass_status status = onepass_formula_new("exp(x*", nullptr, &none);
  if (status == ONEPASS_MEMORY_ERROR) throw std::bad_alloc();
  out.add(status == ONEPASS_FORMULA_ERROR && !none);
}

const Scenario kScenarios[] = {
    {"elementwise, from nothing", elementwise<op::Mode::adaptive>},
    {"elementwise, compiled", elementwise<op::Mode::generic>, compiler_first},
    {"elementwise, interpreted", elementwise<op::Mode::reference>},
    {"reduction, from nothing", reduction<op::Mode::adaptive>},
    {"reduction, optimized at once", reduction<op::Mode::generic>, optimised_first},
    {"reduction, for its shape", reduction<op::Mode::specialized>},
    {"reduction, unfused", reduction<op::Mode::unfused>, compiler_first},
    {"contraction", contraction},
    {"contraction, compiled", contraction, compiler_first},
    {"gradient", gradient},
    {"formulas", formulas},
    {"printed graphs", printed_graphs},
    {"npy files", npy_files},
    {"disk cache, miss", reduction<op::Mode::generic>, compiler_first, "fresh"},
    {"disk cache, hit", reduction<op::Mode::generic>, compiler_first, "full"},
    {"shapes", shapes},
    {"threads", threads},
    {"concurrent calls", concurrent_calls, compiler_first},
    {"vmap", mapped},
    {"loops with state", loops},
    {"routines", routines},
    {"lists of arrays", structures},
    {"checks", checks},
    {"bound calls and warm-up", bound_and_ahead},
    {"explanations", explained, nullptr, "full"},  // the cache has the measured memory bandwidth
    {"limit of compile time", compile_time_limit, compiler_first},
    {"interface for C", interface_for_c},
    {"exit", elementwise<op::Mode::generic>, compiler_first, "fresh", true},
};

// ------------------------------------------------------------------------------------------------ one fault

// Report of a child process, which cannot use Catch2's checks.
struct Report {
  Results expected;
  int descriptors;  // open after two calls without a fault
  std::int64_t allocations;
  bool failed, threw;
  char text[400];
};
Report* report = nullptr;

template <class... A> void say(fmt::format_string<A...> format, A&&... arguments) {
  counting = false;
  const auto end = fmt::format_to_n(report->text, sizeof report->text - 1, format, std::forward<A>(arguments)...).out;
  *end = 0;
  _exit(1);
}

void print_where() { backtrace_symbols_fd(failed_in, frames, STDERR_FILENO); }

void on_abort(int) {
  counting = false;
  print_where();
  static constexpr char kHere[] = "aborted in:\n";
  static_cast<void>(!write(STDERR_FILENO, kHere, sizeof kHere - 1));
  void* here[kFrames];
  backtrace_symbols_fd(here, backtrace(here, kFrames), STDERR_FILENO);
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

int open_descriptors() {
  return static_cast<int>(std::ranges::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

void settle() { op::runtime::wait_for_optimised(20'000'000'000); }

// Runs the scenario in a child process. Allocation number `at` fails; kNever only counts allocations.
[[noreturn]] void run_child(const Scenario& scenario, std::int64_t at, bool all, bool verbose) {
  alarm(120);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT})
    std::signal(signal, SIG_DFL);  // Catch2's handlers belong to the parent
  if (verbose) std::signal(SIGABRT, on_abort);
  if (scenario.before) scenario.before();
  static Results out, again;
  bool threw = false;
  fails_at = at, for_good = all;
  const auto call = [&] {
    try {
      scenario.call(out);
    } catch (const std::bad_alloc&) { threw = true; } catch (const op::MemoryError&) {
      threw = true;
    } catch (const std::exception& error) { say("the error is not one of memory: {}", error.what()); }
    try {
      settle();  // faults in the background
    } catch (const std::bad_alloc&) {}
  };
  if (scenario.at_exit) {
    static std::int64_t failing;
    failing = at;
    std::atexit([] {  // runs as the last exit handler
      counting = false;
      report->allocations = asked;
      report->failed = asked > failing;
    });
    scenario.call(out);                    // pending background work is done at exit
    std::atexit([] { counting = true; });  // runs as the first exit handler
    std::exit(0);
  }
  counting = true;
  call();
  counting = false;
  report->allocations = asked;
  report->failed = asked > at;
  report->threw = threw;
  if (verbose) print_where();
  if (at == kNever) {
    if (threw) say("an error without a fault");
    report->expected = out;
    scenario.call(again);
    report->descriptors = open_descriptors();
    _exit(0);
  }
  if (!threw && !(out == report->expected)) say("the result with a fault is wrong");
  try {
    scenario.call(again);
  } catch (const std::exception& error) { say("the call after a fault fails: {}", error.what()); }
  if (!(again == report->expected)) say("the result after a fault is wrong");
  if (!op::runtime::wait_for_optimised(60'000'000'000)) say("after a fault a compile never ends");
  for (const auto& entry : fs::directory_iterator(folder()))
    if (const std::string name = entry.path().filename().string(); name.find(".tmp") != std::string::npos)
      say("a fault leaves the file {}", name);
  if (open_descriptors() > report->descriptors) say("a fault leaves a file open");
  if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() != 0) say("a fault leaves memory");
  _exit(0);
}

// Temporary folder, removed by the destructor.
struct Folder {
  std::string path = (fs::temp_directory_path() / "onepass-test-XXXXXX").string();
  Folder() { REQUIRE(mkdtemp(path.data())); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void empty(const std::string& path) {
  for (const auto& entry : fs::directory_iterator(path)) fs::remove_all(entry.path());
}

int run(const Scenario& scenario, std::int64_t at, bool all, bool verbose = false) {
  report->failed = report->threw = false;
  report->text[0] = 0;
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) run_child(scenario, at, all, verbose);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Runs every fault of a scenario, or about `most` of them.
void run_all(const Scenario& scenario, bool all, int most) {
  const std::int64_t allocations = report->allocations, step = most > 0 ? std::max<std::int64_t>(allocations / most, 1) : 1;
  std::int64_t faults = 0, errors = 0;
  for (std::int64_t number = all ? step / 2 : step / 3; most == 0 || number < allocations; number += step) {
    if (std::string_view(scenario.cache) == "fresh") empty(folder());
    const int status = run(scenario, number, all);
    INFO("ONEPASS_FAULT=\"" << scenario.name << ";" << number << (all ? ";all" : "")
                            << "\": " << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : report->text));
    CHECK(status == 0);
    if (status == 0 && !report->failed) break;
    ++faults, errors += report->threw;
    REQUIRE(faults < 100'000);
  }
  CHECK(faults > 0);
  if (!scenario.at_exit && (all || most == 0)) CHECK(errors > 0);  // some faults cause no error, because background work is skipped
  fmt::print("{}{}: {} faults among {} allocations, {} errors\n", scenario.name, all ? ", all from there on" : "", faults, allocations,
             errors);
}

}  // namespace

TEST_CASE("out of memory: a failed allocation is an error, or the result is right", "[out_of_memory]") {
  report = static_cast<Report*>(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(report != MAP_FAILED);
  backtrace(failed_in, kFrames);  // loads a library
  const Folder own;
  folder() = own.path;
  // The module is already in memory, and each child opens it anew.
  op::os::open_library((op::test::build_folder() + "/lib/libonepass_llvm.so").c_str(), nullptr);
  setenv("ONEPASS_NVRTC", "none", 1);  // NVRTC's allocations are not onepass's
  const char* const wanted = std::getenv("ONEPASS_FAULT");
  int most = op::test::has_sanitizer() ? 1 : 2;
  if (std::getenv("ONEPASS_TEST_FULL")) most = 0;
  for (const Scenario& scenario : kScenarios) {
    std::string_view rest = wanted ? wanted : scenario.name;
    if (!rest.starts_with(scenario.name)) continue;
    rest.remove_prefix(std::strlen(scenario.name));
    INFO(scenario.name);
    empty(folder());
    setenv("ONEPASS_CACHE_DIR", std::string_view(scenario.cache) == "none" ? "none" : folder().c_str(), 1);
    report->expected = Results();
    int status = 0;
    for (int i = 0; i < 2 && status == 0; ++i) status = run(scenario, kNever, false);  // the first run fills the folder
    INFO(report->text);
    CHECK(status == 0);
    if (status != 0) continue;
    CHECK((std::string_view(scenario.cache) == "none" || !fs::is_empty(folder())));
    if (rest.starts_with(";")) {
      if (std::string_view(scenario.cache) == "fresh") empty(folder());
      CHECK(run(scenario, std::atoll(rest.data() + 1), rest.ends_with(";all"), true) == 0);
      fmt::print("{}\n", report->text);
      continue;
    }
    for (const bool all : {false, true}) run_all(scenario, all, most);
  }
}
