// kernels FOLDER: writes the LLVM IR of fixed programs for a fixed target to FOLDER/NAME.ll, one file for all kernels of a program. A
// refactoring commit can compare the files before and after to show that the kernels did not change.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen.h"
#include "compiler/fuse.h"
#include "compiler/plan/joined.h"
#include "compiler/plan/schedule.h"
#include "compiler/simplify.h"
#include "compiler/target.h"
#include "onepass/error.h"
#include "runtime/os.h"
#include "runtime/os_output.h"
#include "tools/program_text.h"

namespace {

using namespace onepass;

struct Input {
  DType dtype;
  std::vector<std::int64_t> shape;
};

// Covers every kind of loop nest, every kernel-variant flag of a schedule, and enough operators to detect a change in any of them. Entries
// may be added but not removed.
struct Fixed {
  std::string_view name, text;
  std::vector<Input> inputs;
  bool unfused = false;
  int vector_bytes = 32;
};
const std::vector<Fixed> kFixed = {
    {"add", "x + y", {{f32, {1000}}, {f32, {1000}}}},
    {"add_width_16", "x + y", {{f32, {1000}}, {f32, {1000}}}, false, 16},
    {"add_width_64", "x + y", {{f32, {1000}}, {f32, {1000}}}, false, 64},
    {"add_large", "x + y", {{f32, {1 << 26}}, {f32, {1 << 26}}}},
    {"affine", "x*reshape(w, [64, 256, 1, 1]) + b", {{f32, {64, 256, 64, 64}}, {f32, {64, 256}}, {f32, {64, 64}}}},
    {"affine_unfused", "x*w + b", {{f32, {64, 256}}, {f32, {64, 1}}, {f32, {256}}}, true},
    {"slices", "2*x[3:, ::2] + y", {{f32, {67, 256}}, {f32, {64, 128}}}},
    {"transpose", "transpose(x) + y", {{f32, {512, 768}}, {f32, {768, 512}}}},
    {"flip", "flip(x, axis=0)*x", {{f64, {1000}}}},
    {"iota", "cast(iota([64, 256], axis=1), f32) + x", {{f32, {64, 1}}}},
    {"choice", "where(x > 0, x, 0.01*x)", {{f32, {1000}}}},
    {"integers", "(a*b + 7) // (a % 5 + 1)", {{i64, {1000}}, {i64, {1000}}}},
    {"bytes", "cast(0.5*cast(x, f32) + 0.5, u8)", {{u8, {512, 512}}}},
    {"logic", "(a & ~b) | (c > 0)", {{boolean, {100}}, {boolean, {100}}, {i32, {100}}}},
    {"gelu", "0.5*x*(1 + erf(x*0.7071067811865476))", {{f32, {1 << 20}}}},
    {"log_exp_tanh", "log(1 + exp(x))*tanh(x)", {{f64, {1000}}}},
    {"sum_all", "sum(x)", {{f32, {1 << 20}}}},
    {"sum_rows", "sum(x, axis=-1)", {{f32, {512, 1024}}}},
    {"sum_columns", "sum(x, axis=0)", {{f32, {512, 1024}}}},
    {"sum_runs", "sum(x, axis=[0, 2])", {{f32, {30, 20, 50}}}},
    {"max_long_rows", "max(x, axis=-1)", {{f32, {16, 1 << 16}}}},
    {"softmax", "t = exp(x - max(x, axis=-1, keepdims=true)); p = t / sum(t, axis=-1, keepdims=true)", {{f32, {4096, 1024}}}},
    {"sum_weighted", "sum(x*w, axis=1)", {{f32, {512, 1000}}, {f32, {1000}}}, false, 64},
    {"softmax_long_rows", "softmax(x)", {{f32, {2, 1 << 20}}}},
    {"affine_gradient", "dx, dw, db = vjp(x*w + b, [x, w, b], dy)", {{f32, {512, 1024}}, {f32, {1024}}, {f32, {1024}}, {f32, {512, 1024}}}},
};

std::string text_of(const Fixed& fixed) {
  const ProgramText program(fixed.text, std::string(fixed.name));
  std::vector<runtime::ArgumentType> types;
  for (const Input& input : fixed.inputs) types.push_back({input.dtype, input.shape, {}});
  const ir::Graph graph = ir::prune(compiler::simplify(program.record(types, program.all_outputs())));
  const compiler::Partition partition = compiler::fuse(graph, {.unfused = fixed.unfused});
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(fixed.vector_bytes);
  const std::vector<compiler::Layout> layouts(graph.size());  // all contiguous
  std::string text;
  for (std::uint32_t group = 0; group < partition.groups.size(); ++group) {
    std::vector<compiler::Planned> pieces = compiler::plan(graph, partition, group, layouts);
    compiler::join_reduced_loops(pieces, target, {.threads = target.cores});
    for (const compiler::Planned& planned : pieces) {
      const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target, {.threads = target.cores});
      text += compiler::generate({.nest = &planned.nest, .schedule = &scheduled.schedule, .target = &target, .want_ir = true}).ir;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    fmt::print(stderr, "usage: kernels FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (const Fixed& fixed : kFixed) {
      const std::string text = text_of(fixed), path = (folder / fmt::format("{}.ll", fixed.name)).string();
      if (!os::write_file(path, std::as_bytes(std::span(text)))) throw IoError(fmt::format("{}: cannot be written", path));
    }
    fmt::print("{} programs in {}\n", kFixed.size(), argv[1]);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "kernels: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels: {}\n", error.what());
    return 1;
  }
}
