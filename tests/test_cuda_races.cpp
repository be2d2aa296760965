// The emulation's shadow memory (cuda_races.h): it reports missing barriers and fences in hand-written kernels, and each barrier of the
// generated text that is left out.
#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "compiler/cuda/device_text.h"
#include "cuda_emulation.h"
#include "cuda_programs.h"
#include "gpu_check/cases.h"
#include "how_long.h"
#include "random_graph.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;

namespace {

// ---- hand-written kernels, each with and without what it needs. Parameters: an array, an array of flags, unused memory.
// The kernel is complete with the text in $[…], and wrong without it.
struct Kernel {
  const char *name, *text;
  const char* reported;  // part of the sentence
};
const Kernel kKernels[] = {
    {"read_after_write", "__shared__ int x[64]; x[t] = t; $[__syncthreads();] out[b * 64 + t] = x[63 - t];", "variable in shared memory"},
    {"write_after_read",
     "__shared__ int x[64]; for (int k = 0; k < 2; ++k) { x[t] = t + k; __syncthreads(); out[b * 64 + t] = x[63 - t]; $[__syncthreads();] "
     "}",
     "variable in shared memory"},
    {"rows",
     "KEPT_MEMORY float* const row = reinterpret_cast<float*>(kept_memory); row[t] = 1; $[__syncthreads();] out[b * 64 + t] = "
     "int(row[t ^ 32]);",
     "of the rows in shared memory"},
    {"blocks", "if (t == 0) out[0 $[+ b]] = b;", "byte 0 of out, which thread"},
    {"bytes", "reinterpret_cast<char*>(out)[(b * 64 + t) $[* 2] / 2] = 1;", "of out, which thread"},
    {"warp", "__shared__ int x[64]; x[t] = t; $[__syncwarp();] out[b * 64 + t] = x[t ^ 1];", "variable in shared memory"},
    {"shuffle", "__shared__ int x[64]; x[t] = t; shuffled_down(1.0f, 1); $[__syncwarp();] out[b * 64 + t] = x[t ^ 1];",
     "variable in shared memory"},
    {"half_warp", "__shared__ int x[64]; x[t] = t; __syncwarp(team_mask() $[| 0xffffffffu]); out[b * 64 + t] = x[t ^ 16];",
     "variable in shared memory"},
    {"other_warp", "__shared__ int x[64]; x[t] = t; __syncwarp(); $[__syncthreads();] out[b * 64 + t] = x[t ^ 32];",
     "variable in shared memory"},
    {"last_block_released",
     "if (t == 0) { out[b] = b; $[__threadfence();] if (atomicAdd(flags, 1) + 1 == gridDim.x) { __threadfence(); int s = 0; "
     "for (int k = 0; k < 4; ++k) s += out[k]; out[64] = s; } }",
     "of out, which thread 0"},
    {"last_block_acquired",
     "if (t == 0) { out[b] = b; __threadfence(); if (atomicAdd(flags, 1) + 1 == gridDim.x) { $[__threadfence();] int s = 0; "
     "for (int k = 0; k < 4; ++k) s += out[k]; out[64] = s; } }",
     "of out, which thread 0"},
    {"passed_on_by_a_barrier",  // thread 0 knows of the block's accesses before the barrier, and the last block learns of them
     "out[b * 64 + t] = b; $[__syncthreads();] __shared__ bool last; if (t == 0) { __threadfence(); last = atomicAdd(flags, 1) + 1 == "
     "gridDim.x; __threadfence(); } __syncthreads(); if (last) flags[4 + t] = out[(t + 1) * 2 % 256];",
     "of out, which thread"},
    {"volatile_flag",
     "if (t == 0 && b == 0) { out[0] = 1; $[__threadfence();] *(volatile unsigned*)flags = 1; }"
     " if (t == 0 && b > 0 && *(volatile unsigned*)flags == 1) { __threadfence(); out[b] = out[0]; }",
     "byte 0 of out, which thread 0 of block 0 writes"},
    {"plain_flag", "if (t == 0) atomicAdd(flags, 1); if (t == 1 && b == 0) out[0] = $[*(volatile unsigned*)&] *flags;", "of flags"},
    {"written", "if (t == 0) { $[scratch[b] = 1;] out[b] = scratch[b]; }", "of scratch, which nobody has written"},
    {"outside", "if (t == 0 && b == 0) scratch[0 $[* 16] + 1024 $[* 0]] = 1;", "writes memory outside of the arrays"},
};

std::string form_of(std::string text, bool complete) {
  for (std::size_t at; (at = text.find("$[")) != std::string::npos;) {
    std::size_t end = at + 2;
    for (int depth = 1; depth > 0; ++end) depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
    text = text.substr(0, at) + (complete ? text.substr(at + 2, end - at - 3) : "") + text.substr(end);
  }
  return text;
}

bool is_watched(void* library) {
  const bool is_on = RaceWatch(library).is_on();
  CHECK(is_on == !has_sanitizer());
  if (!is_on) WARN("builds with sanitizers have no shadow memory");
  return is_on;
}

// Returns the sentences that several runs of a kernel give.
std::string reports_of(const EmulatedText& text, const std::string& kernel) {
  std::string out;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::vector<int> array(1024), flags(128), scratch(1100);  // 1024 of scratch are declared
    RaceWatch races(text.library());
    races.add("out", array.data(), array.size() * sizeof(int), false);
    races.add("flags", flags.data(), flags.size() * sizeof(int), false);
    races.add("scratch", scratch.data(), 1024 * sizeof(int), true);
    const std::int64_t words[] = {reinterpret_cast<std::int64_t>(array.data()), reinterpret_cast<std::int64_t>(flags.data()),
                                  reinterpret_cast<std::int64_t>(scratch.data())};
    races.words(words);
    text.launch(kernel, words, 4, 64, seed);
    try {
      races.check(kernel);
    } catch (const RaceError& error) { out += std::string(error.what()) + "\n"; }
  }
  return out;
}

}  // namespace

TEST_CASE("cuda races: missing barriers, fences and writes in hand-written kernels", "[cuda]") {
  std::string text(compiler::cuda::device_prelude());
  for (const Kernel& kernel : kKernels)
    for (const bool complete : {false, true})
      text += "\nKERNEL(" + std::string(kernel.name) + (complete ? "_complete" : "_lacking") +
              ", 3, 64) {\n  const int t = int(threadIdx.x), b = int(blockIdx.x);\n  int* const out = "
              "reinterpret_cast<int*>(w.memory[0]);\n  unsigned* const flags = reinterpret_cast<unsigned*>(w.memory[1]);\n  int* const "
              "scratch = reinterpret_cast<int*>(w.memory[2]);\n  " +
              form_of(kernel.text, complete) + "\n}\n";
  const EmulatedText compiled(text);
  if (!is_watched(compiled.library())) return;
  for (const Kernel& kernel : kKernels) {
    INFO(kernel.name);
    CHECK(reports_of(compiled, kernel.name + std::string("_complete")) == "");
    CHECK_THAT(reports_of(compiled, kernel.name + std::string("_lacking")), Contains(kernel.reported));
  }
  CHECK_THAT(reports_of(compiled, "blocks_lacking"), Contains("blocks_lacking: thread ") && Contains(" of block ") &&
                                                         Contains(" writes byte 0 of out, which thread ") &&
                                                         Contains(" writes, and nothing orders them"));
}

namespace {

// Programs that have every barrier of the text, with more work than thread blocks. Each barrier is needed by one of them: those at the end
// of a loop need a second round.
struct Case {
  std::string name;
  ir::Graph graph;
  Arguments arguments;
};
std::vector<Case> cases_with_barriers() {
  std::vector<Case> out;
  const auto add = [&](const std::string& name, const char* formula, const std::vector<std::pair<std::string, compiler::Shape>>& inputs,
                       DType dtype, std::int64_t indexed) {
    Case c{name, compiler::copy_results(optimised(formula, inputs, dtype)), {}};
    c.arguments = random_arguments(c.graph, 3);
    for (std::size_t i = 0; i < c.graph.inputs.size(); ++i) {
      if (c.graph.inputs[i].name != "n") continue;
      auto* const numbers = static_cast<float*>(const_cast<void*>(c.arguments.views[i].data));
      for (std::int64_t k = 0; k < ir::element_count(c.arguments.views[i].shape); ++k)
        numbers[k] = static_cast<float>(k % 4 == 0 ? 17 % indexed : k * 7 % indexed);
    }
    out.push_back(std::move(c));
  };
  for (const CudaProgram& p : cuda_programs()) {
    Extents extents = p.small;
    if (std::string_view(p.name) == "layer norm, gradients") extents = {{'n', 1000}, {'m', 128}};  // more parts than thread blocks
    Case c{p.name, compiler::copy_results(graph_of(p, extents)), {}};
    c.arguments = random_arguments(c.graph, 7);
    out.push_back(std::move(c));
  }
  add("rows in rounds", "m = mean(x, axis=1, keepdims=true); v = sum((x - m)*(x - m), axis=1)", {{"x", {40, 70000}}}, f32, 0);
  add("one softmax", "y = softmax(x, axis=1)", {{"x", {2, 200000}}}, f32, 0);
  add("columns of means", "m = mean(x, axis=0, keepdims=true); v = sum((x - m)*(x - m), axis=0); y = x*v", {{"x", {3000, 70}}}, f32, 0);
  add("columns of a chain", "y = softmax(x, axis=0)", {{"x", {5000, 7}}}, f32, 0);
  add("rows and columns", "y = layer_norm(x, v, v, axis=-1, eps=1e-5); dx, dv = vjp(y, [x, v], x*x)", {{"x", {600, 37}}, {"v", {37}}}, f32,
      0);
  add("rows and columns, values of rows", "s = sum(x, axis=-1, keepdims=true); y = exp(x - s); c = sum(y, axis=0)", {{"x", {600, 64}}}, f32,
      0);
  add("transposed, many tiles", "y = transpose(x)*2", {{"x", {300, 260}}}, f32, 0);
  add("transposed, halves of tiles", "y = transpose(x, [0, 2, 1])*2 + 1", {{"x", {9, 40, 40}}}, f64, 0);
  add("scan of many blocks", "y = cummax(x, axis=0)", {{"x", {300000, 1}}}, f32, 0);
  add("additions of many tiles", "i = cast(n, i32); y = index_add(x, i, u, axis=0)", {{"n", {40000}}, {"x", {90}}, {"u", {40000}}}, f32,
      90);
  return out;
}

// Makes each barrier of the text one that can be left out.
std::string with_names(const std::string& text, int& barriers) {
  const std::string barrier = "__syncthreads();";
  std::string out =
      "extern \"C\" { int onepass_left_out = -1; bool onepass_reached[10000]; }\nMACHINE inline bool has_barrier(int n) {\n"
      "  onepass_reached[n] = true;\n  return n != onepass_left_out;\n}\n";
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(barrier, from)) != std::string::npos; from = at + barrier.size())
    out += text.substr(from, at - from) + "if (has_barrier(" + std::to_string(barriers++) + ")) " + barrier;
  return out + text.substr(from);
}
// Returns the line of each barrier, and its kernel or function.
std::vector<std::string> places_of_barriers(const std::string& text) {
  std::vector<std::string> out;
  std::string around, before;
  std::size_t from = 0;
  for (std::size_t end; (end = text.find('\n', from)) != std::string::npos; from = end + 1) {
    const std::string line = text.substr(from, end - from);
    if (line.starts_with("KERNEL") || line.find("DEVICE") != std::string::npos) around = line.substr(0, line.find(") {"));
    for (std::size_t at = 0; (at = line.find("__syncthreads();", at)) != std::string::npos; ++at)
      out.push_back(around + "\n    after " + before);
    before = line;
  }
  return out;
}

enum class Noticed { No, ByBits, ByRace };

// Runs a job in a child process, because threads that race may write anywhere.
Noticed run_in_child(CudaEmulation& emulation, std::size_t number, const std::vector<ir::Buffer>& expected) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    reinterpret_cast<void (*)(int)>(dlsym(emulation.library(), "onepass_races_exit"))(static_cast<int>(Noticed::ByRace));
    std::string what;
    _exit(static_cast<int>(equals_bitwise(emulation.run(number, 2), expected, &what) ? Noticed::No : Noticed::ByBits));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return static_cast<Noticed>(WEXITSTATUS(status));
}

}  // namespace

TEST_CASE("cuda races: each barrier of the text that is left out is noticed", "[cuda]") {
  std::vector<Case> cases = cases_with_barriers();
  CudaEmulation emulation;
  std::vector<std::size_t> numbers;
  for (const Case& c : cases) numbers.push_back(emulation.add(c.graph, c.arguments.views));
  int barriers = 0;
  emulation.compile([&](const std::string& text) { return with_names(text, barriers); });
  if (!is_watched(emulation.library())) return;
  int& left_out = *static_cast<int*>(dlsym(emulation.library(), "onepass_left_out"));
  bool* const reached = static_cast<bool*>(dlsym(emulation.library(), "onepass_reached"));

  std::map<int, Noticed> noticed;
  std::map<int, std::string> where;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name);
    left_out = -1;
    std::fill_n(reached, barriers, false);
    const std::vector<ir::Buffer> expected = emulation.run(numbers[i], 1);
    std::vector<int> mine;
    for (int k = 0; k < barriers; ++k)
      if (reached[k]) mine.push_back(k);
    for (const int k : mine) {
      Noticed& by = noticed[k];
      where[k] += (where[k].empty() ? "" : "; ") + cases[i].name;
      if (by == Noticed::ByRace) continue;
      left_out = k;
      by = std::max(by, run_in_child(emulation, numbers[i], expected));
    }
  }
  const std::vector<std::string> places = places_of_barriers(emulation.text());
  REQUIRE(places.size() == static_cast<std::size_t>(barriers));
  int races = 0, bits = 0;
  std::string unnoticed;
  for (const auto& [k, by] : noticed) {
    races += by == Noticed::ByRace, bits += by == Noticed::ByBits;
    if (by == Noticed::No)
      unnoticed += "barrier " + std::to_string(k) + " in " + places[static_cast<std::size_t>(k)] + " (" + where[k] + ")\n";
  }
  std::string never;
  for (int k = 0; k < barriers; ++k)
    if (!noticed.contains(k)) never += "barrier " + std::to_string(k) + " in " + places[static_cast<std::size_t>(k)] + "\n";
  std::printf("%d barriers in the text; without one of them, %d times threads race, and %d times only bits differ\n", barriers, races,
              bits);
  CHECK(unnoticed == "");
  CHECK(never == "");
  CHECK(races + bits >= 40);
}
