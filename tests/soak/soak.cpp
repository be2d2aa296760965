// soak [SECONDS]: one process with two threads calls old and new functions, new shapes and gradients, while kernels and plans are
// evicted and the process forks. Other processes start, call and end on the same cache folder; some of them clear it.
//
// Each result has the reference's bits, memory grows by at most 2 % after a warm-up, and nothing hangs. Prints latencies. Runs for 20 s by
// default, and for an hour in tools/test --full.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"

using namespace onepass;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kThreads = 2, kSamples = 512, kLeastSamples = 8, kManySamples = 200;
enum Kind { Kept, Fresh, NewShape, Gradient, InChild, kKinds };
constexpr const char* kNames[] = {"kept functions", "fresh functions", "new shapes", "gradients", "in a forked child"};

// Counters in memory that all processes share. Sixteen buckets for each power of two of nanoseconds.
struct Latencies {
  std::array<std::atomic<std::int64_t>, 64 * 16> counts;
  std::atomic<std::int64_t> most;

  static std::size_t bucket(std::uint64_t ns) {
    const int power = std::max(static_cast<int>(std::bit_width(ns)), 5);
    return static_cast<std::size_t>(16 * power) + (ns >> (power - 5) & 15);
  }
  void add(std::int64_t ns) {
    ++counts[bucket(static_cast<std::uint64_t>(ns))];
    for (std::int64_t seen = most; seen < ns && !most.compare_exchange_weak(seen, ns);) {}
  }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const auto& count : counts) sum += count;
    return sum;
  }
  /// Returns the quantile in microseconds, as the upper end of its bucket.
  double quantile(double q) const {
    const auto rank = static_cast<std::int64_t>(std::ceil(q * static_cast<double>(total())));
    std::int64_t sum = 0;
    std::size_t i = 0;
    for (; i + 1 < counts.size(); ++i)
      if ((sum += counts[i]) >= rank) break;
    const double end = std::ldexp(static_cast<double>(17 + i % 16), static_cast<int>(i / 16) - 5);
    return std::min(end, static_cast<double>(most)) / 1000;
  }
};
struct Memory {
  std::int64_t in_use = 0;    // bytes of the heap and of the pool
  std::int64_t resident = 0;  // bytes of anonymous pages; fragmentation changes it by up to 5 % between rounds
};
struct Shared {
  std::array<Latencies, kKinds> latencies;
  std::atomic<std::int64_t> wrong, children, visitors, cleared, evictions, from_disk;
  std::atomic<int> samples;
  std::array<Memory, kSamples> memory;
};
Shared* shared = nullptr;

// x is [n, m], v is [m], i is i32[n] with indices below m.
constexpr const char* kPrograms[] = {
    "y = x*v + 0.5",
    "y = softmax(x*v)",
    "y = (x - mean(x, axis=-1, keepdims=true)) / sqrt(var(x, axis=-1, keepdims=true) + 1e-5) * v",
    "s = sum(x, axis=0); t = max(x, axis=-1); u = s*v",
    "y = gelu(x @ transpose(x))",
    "loss = mean(square(tanh(x*v) - v)); dx, dv = grad(loss, [x, v])",
    "y = take_along_axis(x, i[:, none], axis=1)",
    "y = cumsum(x, axis=-1)",
    "y = sort(x, axis=-1)",
    "y = where(x > v, exp(-x), roll(x, 1, axis=1))",
    "y = cast(cast(x, bf16) * cast(v, bf16), f32)",
    "y = sum(exp(x[::-1, ::2]))",
};
constexpr std::int64_t kRows[] = {1, 17, 500}, kColumns[] = {1, 33, 257};
constexpr std::size_t kShapes = std::size(kRows) * std::size(kColumns);

using Bits = std::vector<std::uint8_t>;
Bits bits_of(const FormulaResults& results) {
  Bits bits;
  for (const Array& a : results) {
    const auto* data = static_cast<const std::uint8_t*>(a.data());
    bits.insert(bits.end(), data, data + a.bytes());
  }
  return bits;
}

struct Inputs {
  Array x, v, i;
  Inputs(std::int64_t n, std::int64_t m) : x(Array::empty({n, m}, f32)), v(Array::empty({m}, f32)), i(Array::empty({n}, i32)) {
    std::mt19937 random(static_cast<unsigned>(1000 * n + m));
    for (Array* a : {&x, &v})
      for (float& f : a->span<float>()) f = static_cast<float>(random() % 4001) / 1000 - 2;
    for (std::int32_t& k : i.span<std::int32_t>()) k = static_cast<std::int32_t>(random() % static_cast<unsigned>(m));
  }
  FormulaResults call(const Formula& f) const {
    std::vector<NamedArgument> arguments;
    for (const std::string& name : f.inputs()) arguments.push_back({name, name == "x" ? x : name == "v" ? v : i});
    return f(std::span<const NamedArgument>(arguments));
  }
};

// Permanent state of the process: shapes, results of the reference, and functions in the modes that compile.
class World {
 public:
  World() {
    for (const std::int64_t n : kRows)
      for (const std::int64_t m : kColumns) inputs.emplace_back(n, m);
    for (const char* text : kPrograms) {
      const Formula reference = formula(text, {.mode = Mode::reference});
      for (const Inputs& in : inputs) expected.push_back(bits_of(in.call(reference)));
      for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::unfused})
        kept.push_back(formula(text, {.mode = mode, .specialization = {.depth = 2, .after_calls = 3}}));
    }
    // Creates all plans and kernels that later calls use.
    for (const Formula& f : kept)
      for (const Inputs& in : inputs) in.call(f);
    for (std::int64_t n = 1; n <= 32; ++n)
      for (std::int64_t m = 1; m <= 40; ++m)
        for (const Formula& f : {any, any_reference}) Inputs(n, m).call(f);
  }
  const Bits& of(std::size_t program, std::size_t shape) const { return expected[program * kShapes + shape]; }

  std::vector<Inputs> inputs;
  std::vector<Bits> expected;
  std::vector<Formula> kept;
  // Functions of any lengths; the number of plans, even of the reference, is bounded.
  Formula any = formula("y = softmax(x) * v; s = sum(x, axis=0)");
  Formula any_reference = formula("y = softmax(x) * v; s = sum(x, axis=0)", {.mode = Mode::reference});
};

template <class F> auto timed(Kind kind, F&& call) {
  const Clock::time_point from = Clock::now();
  auto result = call();
  shared->latencies[kind].add((Clock::now() - from).count());
  return result;
}
void check(bool right, std::string_view what) {
  if (right) return;
  ++shared->wrong;
  fmt::print(stderr, "wrong: {}\n", what);
}

const auto kLayer = [](Tensor x, Tensor v) { return sum(tanh(x * v) * square(x)); };

void call_one(const World& world, std::mt19937_64& random) {
  const std::size_t program = random() % std::size(kPrograms), shape = random() % kShapes;
  const Inputs& in = world.inputs[shape];
  const unsigned draw = random() % 100;
  if (draw < 70) {
    const FormulaResults y = timed(Kept, [&] { return in.call(world.kept[3 * program + random() % 3]); });
    check(bits_of(y) == world.of(program, shape), kPrograms[program]);
  } else if (draw < 80) {
    const Formula f = formula(kPrograms[program], {.mode = static_cast<Mode>(random() % 4), .threads = 1 + static_cast<int>(random() % 3)});
    const FormulaResults y = timed(Fresh, [&] { return in.call(f); });
    check(bits_of(y) == world.of(program, shape), kPrograms[program]);
  } else if (draw < 90) {
    const Inputs fresh(1 + static_cast<std::int64_t>(random() % 100), 1 + static_cast<std::int64_t>(random() % 100));
    const FormulaResults y = timed(NewShape, [&] { return fresh.call(world.any); });
    check(bits_of(y) == bits_of(fresh.call(world.any_reference)), world.any.text());
  } else {
    static const auto f = compile(kLayer), reference = compile(kLayer, {.mode = Mode::reference});
    const Array one = Array::full({}, 1.0, f32);
    const auto gradient = [&](const auto& function) {
      const auto [y, pullback] = vjp(function, in.x, in.v);
      return pullback(one);
    };
    const auto [dx, dv] = timed(Gradient, [&] { return gradient(f); });
    const auto [ex, ev] = gradient(reference);
    check(dx.to_vector<float>() == ex.to_vector<float>() && dv.to_vector<float>() == ev.to_vector<float>(), "gradients");
  }
}

void call_in_child(const World& world, std::mt19937_64& random) {
  for (int i = 0; i < 5; ++i) {
    const std::size_t program = random() % std::size(kPrograms), shape = random() % kShapes;
    const Formula f = i % 2 ? formula(kPrograms[program]) : world.kept[3 * program];
    const FormulaResults y = timed(InChild, [&] { return world.inputs[shape].call(f); });
    check(bits_of(y) == world.of(program, shape), kPrograms[program]);
  }
}

// Runs `body` in a forked process. Its end is like a program's end only if this process never called the library.
template <class F> pid_t in_process(unsigned seconds, F&& body, void (*exit)(int) = _exit) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(seconds);
  try {
    body();
  } catch (const std::exception& error) { check(false, error.what()); }
  exit(0);
  return 0;
}
// Returns true if the child ended successfully. The alarm ends a child that hangs.
bool wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Memory memory_of_this_process() {
  Memory memory;
  const struct mallinfo2 heap = mallinfo2();
  const MemoryStats pool = memory_stats();
  memory.in_use = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd) + pool.in_use + pool.cached;
  if (std::FILE* const file = std::fopen("/proc/self/status", "r")) {
    for (char line[256]; std::fgets(line, sizeof line, file);)
      if (std::string_view(line).starts_with("RssAnon:")) memory.resident = 1024 * std::strtoll(line + 8, nullptr, 10);
    std::fclose(file);
  }
  return memory;
}

// Runs rounds: threads make calls while this thread forks and evicts. Then all threads stop, caches for later calls are freed, and memory
// is measured.
void work(Clock::time_point begin, double seconds) {
  const World world;
  std::mt19937_64 random(1);
  const auto after = [](Clock::time_point from, double s) { return from + std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * s)); };
  const Clock::time_point end = after(begin, seconds);
  int samples = 0;
  while (samples < kSamples && (Clock::now() < end || samples < kLeastSamples)) {
    const Clock::time_point end_of_round = after(Clock::now(), std::max(0.5, seconds / kSamples));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&world, end_of_round, seed = random()] {
        std::mt19937_64 own(seed);
        while (Clock::now() < end_of_round) call_one(world, own);
      });
    while (Clock::now() < end_of_round) {
      check(wait_for(in_process(300, [&] { call_in_child(world, random); })), "a child of a fork");
      ++shared->children;
      set_kernel_cache_limits(random() % 2 ? 64 : 8, 256 << 20);
      if (random() % 4 == 0) world.kept[random() % world.kept.size()].reset();
      trim_memory(random() % (1 << 20));
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 100));
    }
    for (std::thread& t : threads) t.join();
    runtime::background::hurry();
    wait_until_optimized();
    for (const Formula& f : world.kept) f.reset();
    world.any.reset(), world.any_reference.reset();
    set_kernel_cache_limits(1, 256 << 20);
    trim_memory();
    malloc_trim(0);
    shared->memory[static_cast<std::size_t>(samples++)] = memory_of_this_process();
  }
  shared->samples = samples;
  shared->evictions += kernel_cache_stats().evictions;
}

// A process that starts, makes calls and ends. Some of these processes first clear the folder.
void visit(const std::string& folder, int number) {
  if (number % 30 == 29) runtime::DiskCache(folder).clear(), ++shared->cleared;
  std::mt19937_64 random(static_cast<std::uint64_t>(1000 + number));
  for (int i = 0; i < 8; ++i) {
    const std::size_t program = random() % std::size(kPrograms);
    const Inputs in(kRows[random() % std::size(kRows)], kColumns[random() % std::size(kColumns)]);
    const FormulaResults y = timed(Fresh, [&] { return in.call(formula(kPrograms[program])); });
    check(bits_of(y) == bits_of(in.call(formula(kPrograms[program], {.mode = Mode::reference}))), kPrograms[program]);
  }
  ++shared->visitors;
}

// Returns the growth from the third to the last quarter of the samples, by their medians.
double growth(std::int64_t Memory::*what, const char* name) {
  const auto n = static_cast<std::size_t>(shared->samples);
  const auto median = [&](std::size_t from, std::size_t to) {
    std::vector<std::int64_t> part;
    for (std::size_t i = from; i < to; ++i) part.push_back(shared->memory[i].*what);
    std::ranges::sort(part);
    return static_cast<double>(part[part.size() / 2]) / 1e6;
  };
  const double before = median(n / 2, 3 * n / 4), after = median(3 * n / 4, n);
  fmt::print("{}: {:.1f} MB in the third quarter of {} rounds, {:.1f} MB in the last one ({:+.2f} %)\n", name, before, n, after,
             100 * (after / before - 1));
  return after / before - 1;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : test::is_full_run() ? 3600 : 20;
  std::string folder = (std::filesystem::temp_directory_path() / "onepass-soak-XXXXXX").string();
  if (!(seconds >= 1) || !mkdtemp(folder.data())) return 2;
  setenv("ONEPASS_CACHE_DIR", folder.c_str(), 1);
  shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) return 2;

  const Clock::time_point begin = Clock::now(), end = begin + std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
  const auto limit = static_cast<unsigned>(seconds + 300);
  const pid_t worker = in_process(
      limit, [&] { work(begin, seconds); }, std::exit);
  for (int k = 0; Clock::now() < end; ++k) {
    check(wait_for(in_process(
              300, [&] { visit(folder, k); }, std::exit)),
          "a process on the folder");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  check(wait_for(worker), "the process of the threads");
  std::filesystem::remove_all(folder);

  fmt::print("{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}  microseconds\n", "", "calls", "p50", "p99", "p99.9", "max");
  for (int kind = 0; kind < kKinds; ++kind) {
    const Latencies& all = shared->latencies[static_cast<std::size_t>(kind)];
    fmt::print("{:<20}{:>10}{:>10.0f}{:>10.0f}{:>10.0f}{:>10.0f}\n", kNames[kind], all.total(), all.quantile(0.5), all.quantile(0.99),
               all.quantile(0.999), static_cast<double>(all.most) / 1000);
  }
  fmt::print("{} forks, {} more processes, {} times an empty folder, {} kernels evicted\n", shared->children.load(),
             shared->visitors.load(), shared->cleared.load(), shared->evictions.load());
  if (shared->samples < kLeastSamples) return 1;
  const double in_use = growth(&Memory::in_use, "in use"), resident = growth(&Memory::resident, "resident");
  // with few rounds, quarters have few samples, which depend on the last calls
  const bool few = shared->samples < kManySamples;
  const bool flat = in_use <= (few ? 0.1 : 0.02) && (few || resident <= 0.02);
  fmt::print("{} wrong\n", shared->wrong.load());
  return shared->wrong == 0 && flat ? 0 : 1;
}
