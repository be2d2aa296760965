// Compiles CUDA text with NVIDIA's compiler for four generations of devices, and checks its register counts and the widths of loads and
// stores. Needs no device. Without NVRTC the tests are skipped with a message.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

#include "cuda_emulation.h"
#include "cuda_programs.h"
#include "how_long.h"
#include "nvrtc_devices.h"
#include "random_graph.h"

using namespace onepass;
using namespace onepass::test;
using runtime::cuda::Nvrtc;

namespace {

// Returns a graph with all operators that take only this type, as outputs of one kernel. If `shared`, the second operand has one element.
ir::Graph every_operator(DType dtype, bool shared = false) {
  std::string text, outputs;
  const std::string type = std::string(name_of(dtype)) + "[64]";
  text = "%0 = input a : " + type + "\n%4 = input b : " + std::string(name_of(dtype)) + (shared ? "[1]" : "[64]") +
         "\n%2 = input c : " + type + "\n%3 = input d : bool[64]\n%1 = " + (shared ? "broadcast" : "reshape") + " %4 : " + type + "\n";
  int id = 5;
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<ir::Op>(i);
    const ir::OpInfo& info = ir::info(op);
    if (!ir::is_elementwise(op)) continue;
    const bool converts = info.types == ir::TypeRule::Convert || info.types == ir::TypeRule::Reinterpret;
    std::vector<DType> operands(info.arity, dtype);
    if (info.types == ir::TypeRule::Choose) operands[0] = boolean;
    std::vector<DType> results(1);
    if (converts) results = {boolean, i8, i64, u32, f16, bf16, f32, f64};
    else if (!ir::result_dtype(op, operands, results[0])) continue;
    for (const DType to : results) {
      if (info.types == ir::TypeRule::Reinterpret && size_of(to) != size_of(dtype)) continue;
      const char* names = info.types == ir::TypeRule::Choose ? "%3, %0, %1"
                          : info.arity == 1                  ? "%0"
                          : info.arity == 2                  ? "%0, %1"
                                                             : "%0, %1, %2";
      const std::string name = "%" + std::to_string(id++);
      text += name + " = " + std::string(info.text) + " " + names + " : " + std::string(name_of(to)) + "[64]\n";
      outputs += (outputs.empty() ? "y" : ", y") + std::to_string(id) + " = " + name;
    }
  }
  return ir::parse_graph(text + "return " + outputs);
}

std::set<std::string> accesses_of(const std::string& ptx, const std::string& kernel) {  // returns `ld.global.v4.f32`, …
  const std::size_t begin = ptx.find(".entry " + kernel + "(");
  REQUIRE(begin != std::string::npos);
  const std::string body = ptx.substr(begin, ptx.find("\n}", begin) - begin);
  std::set<std::string> out;
  const std::regex access("(ld|st)(\\.volatile)?\\.(global|local|shared)?[.a-z0-9]*");
  for (std::sregex_iterator it(body.begin(), body.end(), access), end; it != end; ++it) out.insert(it->str());
  return out;
}

}  // namespace

TEST_CASE("nvrtc: every operator on every type compiles for four generations of devices", "[cuda]") {
  if (!nvrtc()) return;
  for (int t = 0; t < kDTypeCount; ++t) {
    INFO(name_of(static_cast<DType>(t)));
    // An integer shift or division by a shared element once made the compiler hang. The compiler needs seconds for elementary functions.
    for (const bool shared : {false, true}) {
      if (shared && is_float(static_cast<DType>(t)) && !test::is_full_run()) continue;
      const ir::Graph graph = every_operator(static_cast<DType>(t), shared);
      CudaEmulation emulation;
      emulation.add(graph, random_arguments(graph, 1).views);
      if (test::is_full_run()) compile_for_all(emulation.text());
      else CHECK_NOTHROW(nvrtc()->compile(emulation.text(), kDevices[(t + shared) % 4]));
    }
  }
}

TEST_CASE("nvrtc: the kernels of random graphs compile for four generations of devices", "[cuda][random]") {
  if (!nvrtc()) return;
  for (std::uint64_t g = 0; g < static_cast<std::uint64_t>(test::times(4, 40)); ++g) {
    CudaEmulation emulation;
    for (std::uint64_t seed = 1 + 12 * g; seed < 13 + 12 * g; ++seed) {
      RandomGraphOptions options;
      options.nodes = 4 + static_cast<int>(seed % 12);
      options.products = true;
      const ir::Graph graph = random_graph(seed, options);
      emulation.add(graph, random_arguments(graph, seed, seed % 2 == 1).views);
    }
    if (test::is_full_run()) compile_for_all(emulation.text());
    else CHECK_NOTHROW(nvrtc()->compile(emulation.text(), kDevices[g % 4]));
  }
}

TEST_CASE("nvrtc: gathers and scatters compile for four generations of devices", "[cuda]") {
  if (!nvrtc()) return;
  CudaEmulation emulation;
  for (const char* formula :
       {"y = take(x, cast(n, i32), axis=0)", "y = take(x, cast(n, i64), axis=1)", "y = index_add(x, cast(n, u8), x, axis=0)"}) {
    const ir::Graph graph = optimised(formula, {{"x", {64, 64}}, {"n", {64}}});
    emulation.add(graph, random_arguments(graph, 1).views);
  }
  compile_for_all(emulation.text());
}

namespace {
void check_spills(const std::string& text) {
  const std::string log = nvrtc()->compile(text, 90, true).log;
  INFO(log);
  CHECK(log.find("0 bytes spill stores") != std::string::npos);
  CHECK(!std::regex_search(log, std::regex("[1-9][0-9]* bytes spill")));
}
}  // namespace

TEST_CASE("nvrtc: sorted additions and split scans compile for four generations of devices and spill no registers", "[cuda]") {
  if (!nvrtc()) return;
  CudaEmulation emulation;
  CudaEmulation::Options options;
  options.target = {90, 132, 48 << 10, 2048, 227 << 10};
  struct Program {
    const char* formula;
    compiler::Shape x, n;
    std::initializer_list<DType> types;
  };
  const std::int64_t far = std::int64_t{1} << 31;  // indices of 64 bits
  for (const Program& p : {Program{"y = index_add(x, cast(n, i32), n*2, axis=0)", {3000}, {60000}, {f32, f64}},
                           {"y = index_add(x, cast(n, i32), n, axis=0)", {far}, {60000}, {f32}},
                           {"y = index_add(x, cast(n[:, 0], i32), n, axis=0)", {3000, 512}, {60000, 512}, {f32, bf16}},
                           {"y = scatter_add(x, cast(n, i32), n, axis=1)", {8, 500}, {8, 5000}, {f32}},
                           {"y = cumsum(x, axis=0); s = sum(n)", {far, 2}, {4}, {f32}},
                           {"y = cumsum(x, axis=0); z = cummax(x, axis=0); s = sum(n)", {20000, 6}, {4}, {f64, i64}}})
    for (const DType type : p.types) {
      const ir::Graph graph = optimised(p.formula, {{"x", p.x}, {"n", p.n}}, type);
      const std::size_t number = emulation.plan(graph, std::vector<ir::ArrayView>{{type, nullptr, p.x}, {type, nullptr, p.n}}, options);
      CHECK(std::ranges::any_of(emulation.kernels(number), [](const auto& kernel) { return kernel.schedule->split; }));
      CHECK(std::ranges::all_of(emulation.kernels(number),
                                [&](const auto& kernel) { return !kernel.schedule->split || kernel.schedule->narrow == (p.x[0] != far); }));
    }
  compile_for_all(emulation.text());
  check_spills(emulation.text());
}

TEST_CASE("nvrtc: cached rows of halves compile for four generations of devices and spill no registers", "[cuda]") {
  if (!nvrtc()) return;
  CudaEmulation emulation;
  for (const DType type : {f16, bf16})
    for (const char* formula :
         {"y = layer_norm(x, v, v, axis=-1, eps=1e-5)", "y = layer_norm(x, v, v, axis=-1, eps=1e-5); dx, dv = vjp(y, [x, v], x)"}) {
      const ir::Graph graph = optimised(formula, {{"x", {600, 1024}}, {"v", {1024}}}, type);
      const std::size_t number = emulation.add(graph, random_arguments(graph, 1).views);
      CHECK(std::ranges::any_of(emulation.kernels(number), [](const auto& kernel) { return !kernel.schedule->kept.empty(); }));
    }
  compile_for_all(emulation.text());
  check_spills(emulation.text());
}

TEST_CASE("nvrtc: reads through pointer tables compile for four generations of devices", "[cuda]") {
  if (!nvrtc()) return;
  CudaEmulation emulation;
  for (const ListProgram& program : cuda_list_programs()) emulation.add(program.graph, random_arguments(program.graph, 1).views);
  compile_for_all(emulation.text());
  // Arrays indexed in the kernel's arguments are not first copied to local memory.
  const std::string ptx = nvrtc()->compile(emulation.text(), 90, true).ptx;
  for (std::size_t i = 0; i < cuda_list_programs().size(); ++i)
    for (const CudaEmulation::KernelView& kernel : emulation.kernels(i))
      if (kernel.schedule->form == compiler::cuda::Form::Map)
        for (const std::string& access : accesses_of(ptx, kernel.name)) CHECK(access.find(".local") == std::string::npos);
}

TEST_CASE("nvrtc: kernels of the benchmark programs spill no registers, and access large arrays in 16-byte vectors", "[cuda]") {
  if (!nvrtc()) return;
  for (const bool specialised : {false, true}) {
    CudaEmulation emulation;
    const std::vector<CudaProgram> programs = cuda_programs();
    CudaEmulation::Options options;
    options.specialised = specialised;
    options.target = {90, 132, 48 << 10, 2048, 227 << 10};
    for (const CudaProgram& program : programs) {
      const ir::Graph graph = graph_of(program, program.large);
      std::vector<ir::ArrayView> views;  // no element is read: only shapes and strides matter
      for (const ir::Input& input : graph.inputs) {
        const ir::List shape = graph.list(input.shape);
        views.push_back({input.dtype, nullptr, {shape.begin(), shape.end()}});
      }
      emulation.plan(graph, views, options);
    }
    const std::string text = emulation.text();
    for (const int sm : kDevices) {
      if (!nvrtc()->knows(sm) || (!test::is_full_run() && sm != kDevices[specialised ? 2 : 3])) continue;
      INFO("compute capability " << sm << (specialised ? ", specialised" : ", generic"));
      const Nvrtc::Program compiled = nvrtc()->compile(text, sm, true);
      const std::regex spills(
          "Function properties for (\\w+)[^,]*, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads\\s+[^:]*: Used ([0-9]+) registers");
      int kernels = 0;
      for (std::sregex_iterator it(compiled.log.begin(), compiled.log.end(), spills), end; it != end; ++it, ++kernels) {
        INFO(it->str());
        CHECK((*it)[2] == "0");
        CHECK((*it)[3] == "0");
      }
      CHECK(kernels > 10);
      if (!specialised) continue;  // generic kernels also have paths for tails
      for (std::size_t i = 0; i < programs.size(); ++i) {
        if (!programs[i].minimal) continue;
        INFO(programs[i].name << "\n" << emulation.log(i));
        for (const CudaEmulation::KernelView& kernel : emulation.kernels(i)) {
          CHECK(kernel.schedule->whole);
          const bool all_vectors = kernel.schedule->vectors.size() == kernel.nest->accesses.size();
          const std::string type = programs[i].dtype == f64 ? "v2.f64" : "v4.f32", single = programs[i].dtype == f64 ? ".f64" : ".f32";
          const std::set<std::string> accesses = accesses_of(compiled.ptx, kernel.name);
          if (kernel.schedule->form == compiler::cuda::Form::Block) {  // block sums are scalars, joined in local memory
            CHECK(accesses.contains("ld.global.v4.f32"));
            CHECK(accesses.contains("st.global.v4.f32"));
            continue;
          }
          for (const std::string& access : accesses) {
            INFO(access);
            if (access.find(".global") == std::string::npos) {
              CHECK(access.find(".local") == std::string::npos);
              continue;
            }
            const bool is_vector = access.find(type) != std::string::npos || access.find("v2.b64") != std::string::npos ||
                                   access.find("v4.b32") != std::string::npos;
            const bool is_scalar_load = access == "ld.global" + single || access == "ld.global.b32";
            CHECK((is_vector || (is_scalar_load && !all_vectors)));
          }
        }
      }
    }
  }
}

namespace {

// Limits of a generation by NVIDIA's occupancy rules.
struct Processor {
  int sm, processors, threads, blocks, shared, most_shared,
      reserved;  // the last three in KiB: per processor, per block, reserved for each block
};
constexpr Processor kProcessors[] = {{75, 40, 1024, 16, 64, 64, 0}, {89, 58, 1536, 24, 100, 99, 1}, {90, 132, 2048, 32, 228, 227, 1}};

int resident_blocks(const Processor& p, int threads, int registers, std::int64_t shared) {
  const int warps = threads / 32, of_warp = (registers * 32 + 255) / 256 * 256;
  const auto by_shared = static_cast<int>(1024 * p.shared / std::max<std::int64_t>(1, shared + 1024 * p.reserved));
  return std::min({p.blocks, p.threads / threads, 65536 / (of_warp * warps), by_shared});
}

struct Moves {
  int loads = 0, bytes = 0, instructions = 0;  // counts in a kernel's straight-line part with most bytes loaded
};
Moves moves_of(const std::string& ptx, const std::string& kernel) {
  const std::size_t begin = ptx.find(".entry " + kernel + "(");
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(ptx.substr(begin, ptx.find("\n}", begin) - begin));
  Moves most, now;
  const std::regex load("ld\\.global\\S*?(\\.v([248]))?\\.[bfus](8|16|32|64)");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("$") || line.find("bra") != std::string::npos) {
      if (now.bytes > most.bytes) most = now;
      now = {};
    }
    now.instructions += line.find(';') != std::string::npos && line.find('.') != std::string::npos;
    if (std::smatch found; std::regex_search(line, found, load)) {
      ++now.loads;
      now.bytes += (found[2].matched ? std::stoi(found[2]) : 1) * std::stoi(found[3]) / 8;
    }
  }
  return most;
}

}  // namespace

TEST_CASE("nvrtc: occupancy, blocks and bytes in flight of the schedules, by the rules of three generations", "[cuda]") {
  if (!nvrtc()) return;
  std::printf("%-16s %4s %5s %7s %9s %8s %10s %10s %12s\n", "kernel", "sm", "regs", "shared", "occupancy", "blocks/SM", "loads", "KiB/SM",
              "PTX/byte");
  for (const Processor& p : kProcessors) {
    if (!nvrtc()->knows(p.sm) || (p.sm != 90 && !test::is_full_run())) continue;
    CudaEmulation emulation;
    CudaEmulation::Options options;
    options.target = {p.sm, p.processors, 48 << 10, p.threads, p.most_shared << 10};
    std::vector<CudaProgram> programs;
    for (const CudaProgram& program : cuda_programs())
      for (const char* name : {"softmax", "column sums", "few columns", "one sum", "transposed"})
        if (std::string_view(program.name) == name) programs.push_back(program);
    REQUIRE(programs.size() == 5);
    for (const CudaProgram& program : programs) {
      const ir::Graph graph = graph_of(program, program.large);
      std::vector<ir::ArrayView> views;
      for (const ir::Input& input : graph.inputs) {
        const ir::List shape = graph.list(input.shape);
        views.push_back({input.dtype, nullptr, {shape.begin(), shape.end()}});
      }
      emulation.plan(graph, views, options);
    }
    const Nvrtc::Program compiled = nvrtc()->compile(emulation.text(), p.sm, true);
    for (std::size_t i = 0; i < programs.size(); ++i)
      for (const CudaEmulation::KernelView& kernel : emulation.kernels(i)) {
        INFO(programs[i].name << " for compute capability " << p.sm << "\n" << emulation.log(i));
        const std::regex used("Function properties for " + kernel.name + "\\s[^U]*Used ([0-9]+) registers[^\n]*");
        std::smatch found;
        REQUIRE(std::regex_search(compiled.log, found, used));
        const std::string line = found[0];
        const int registers = std::stoi(found[1]);
        std::smatch declared;
        const std::int64_t shared =
            kernel.shared_bytes + (std::regex_search(line, declared, std::regex("([0-9]+) bytes smem")) ? std::stoi(declared[1]) : 0);
        const int threads = kernel.schedule->threads, resident = resident_blocks(p, threads, registers, shared);
        const double of_processor = std::min<double>(resident, static_cast<double>(kernel.blocks) / p.processors);
        const double occupancy = static_cast<double>(resident) * threads / p.threads;
        const Moves moves = moves_of(compiled.ptx, kernel.name);
        std::printf("%-16s %4d %5d %7lld %9.2f %8.1f %10d %10.1f %12.2f\n", programs[i].name, p.sm, registers,
                    static_cast<long long>(shared), occupancy, static_cast<double>(kernel.blocks) / p.processors, moves.loads,
                    of_processor * threads * moves.bytes / 1024, static_cast<double>(moves.instructions) / std::max(moves.bytes, 1));
        CHECK(static_cast<double>(kernel.blocks) / p.processors >= 2);
        // Not met for 7.5: its replacement of max.NaN keeps the compiler from unrolling the loops of a maximum.
        const std::string_view name = programs[i].name;
        if (p.sm >= 80 || (name != "softmax" && name != "one sum")) CHECK(moves.loads >= (name == "transposed" ? 4 : 8));
        CHECK(moves.bytes / moves.loads == 16);
        CHECK(occupancy >= (p.sm == 75 && programs[i].name == std::string_view("softmax") ? 0.1 : 0.25));
      }
  }
}

TEST_CASE("nvrtc: scans of columns have many loads in flight", "[cuda]") {
  if (!nvrtc()) return;
  CudaEmulation emulation;
  CudaEmulation::Options options;
  options.target = {90, 132, 48 << 10, 2048, 227 << 10};
  const std::vector<std::int64_t> shapes[] = {{1 << 20, 16}, {1 << 17, 1 << 14}, {4096, 1024}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const ir::Graph graph = optimised("y = cumsum(x, axis=0)", {{"x", {shape[0], shape[1]}}});
    emulation.plan(graph, std::vector<ir::ArrayView>{{f32, nullptr, shape}}, options);
  }
  const std::string ptx = nvrtc()->compile(emulation.text(), 90, true).ptx;
  for (std::size_t i = 0; i < std::size(shapes); ++i) {
    const CudaEmulation::KernelView kernel = emulation.kernels(i).at(0);
    INFO(emulation.log(i));
    CHECK(kernel.schedule->split == (i < 2));
    CHECK(kernel.schedule->width == (i == 1 ? 4 : 1));
    CHECK(moves_of(ptx, kernel.name).bytes >= 128);
  }
}

TEST_CASE("nvrtc: a text that does not compile throws an error with the compiler's message", "[cuda]") {
  if (!nvrtc()) return;
  CHECK_THROWS_WITH(nvrtc()->compile("extern \"C\" __global__ void f() { this is wrong }", 80),
                    Catch::Matchers::Contains("cannot compile for compute capability 8.0") && Catch::Matchers::Contains("onepass.cu(1)"));
  CHECK_THROWS_WITH(nvrtc()->compile("", 5), Catch::Matchers::Contains("compute capability 0.5"));
}
