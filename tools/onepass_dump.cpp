// onepass dump: what the compiler makes of a program, from the graph to the machine code, without running it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

#include "compiler/codegen.h"
#include "compiler/loops/policy.h"
#include "compiler/target.h"
#include "onepass/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_plan.h"
#include "tools/onepass_command.h"

namespace onepass::command {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDumpVersion = 1;  // of the JSON form: goes up when a member changes its meaning

// The kernel's nodes: its stored values and everything inlined into them, in order.
std::vector<ir::NodeId> nodes_of(const runtime::PlanReport& report, std::uint32_t group) {
  const ir::Graph& graph = report.optimised;
  const compiler::Partition& partition = report.partition;
  std::vector<bool> inside(graph.size());
  std::vector<ir::NodeId> todo = partition.groups[group].roots;
  for (const ir::NodeId id : todo) inside[id] = true;
  while (!todo.empty()) {
    const ir::NodeId id = todo.back();
    todo.pop_back();
    for (const std::int64_t operand : graph.operands(id)) {
      const auto node = static_cast<ir::NodeId>(operand);
      const bool stored = partition.group_of[node] != compiler::Partition::kNoGroup && partition.group_of[node] != group;
      if (inside[node] || stored || graph[node].op == ir::Op::Input) continue;
      inside[node] = true;
      todo.push_back(node);
    }
  }
  std::vector<ir::NodeId> nodes;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (inside[id]) nodes.push_back(id);
  return nodes;
}

// The lines of the graph's printed form, by node; without their indentation.
std::vector<std::string> lines_of(const ir::Graph& graph) {
  std::vector<std::string> lines(graph.size());
  const std::string text = ir::print(graph);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t percent = std::min(text.find_first_not_of(' ', begin), end);
    ir::NodeId id = 0;
    if (percent < end && text[percent] == '%' && std::from_chars(text.data() + percent + 1, text.data() + end, id).ec == std::errc() &&
        id < lines.size())
      lines[id] = text.substr(percent, end - percent);
    begin = end + 1;
  }
  return lines;
}

// What is stored: the output's name where it is one, else the node.
std::vector<std::string> stored_of(const runtime::PlanReport& report, std::uint32_t group) {
  const ir::Graph& graph = report.optimised;
  std::vector<std::string> names;
  for (const ir::NodeId root : report.partition.groups[group].roots) {
    bool is_output = false;
    for (std::size_t i = 0; i < graph.outputs.size(); ++i)
      if (graph.outputs[i] == root) {
        is_output = true;
        names.push_back(i < graph.output_names.size() ? graph.output_names[i] : fmt::format("%{}", root));
      }
    if (!is_output) names.push_back(fmt::format("%{}", root));
  }
  return names;
}

std::string reason_of(const runtime::PlanReport& report, std::uint32_t group) {
  std::vector<std::string> reasons;
  for (const ir::NodeId root : report.partition.groups[group].roots) {
    std::string reason(compiler::text_of(report.partition.boundary[root]));
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(std::move(reason));
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

// ---- --groups

std::string name_of_input(const ir::Graph& graph, ir::NodeId id) {
  for (const ir::Input& input : graph.inputs)
    if (input.node == id) return " = input " + input.name;
  return "";
}

std::string plural(std::size_t count, std::string_view what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

bool is_operator(const ir::Graph& graph, ir::NodeId id) { return !ir::is_source(graph[id].op); }

// Each kernel: its loops, what it reads, computes and stores, why what it stores is stored and who reads that again, and what it moves.
std::string groups_text(const runtime::PlanReport& report) {
  const ir::Graph& graph = report.optimised;
  const compiler::Partition& partition = report.partition;
  const std::vector<std::string> lines = lines_of(graph);
  if (report.kernels.empty()) {
    if (partition.groups.empty()) return fmt::format("no kernels: {} are interpreted one at a time\n", plural(graph.size(), "node"));
    return "no kernels: there is nothing to compute\n";
  }

  constexpr std::size_t kMost = 24;                   // lines of operators
  std::vector<std::vector<ir::NodeId>> nodes, reads;  // by kernel
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::vector<bool> computed(graph.size());
  for (const runtime::KernelReport& kernel : report.kernels) {
    nodes.push_back(nodes_of(report, kernel.group));
    std::vector<ir::NodeId>& read = reads.emplace_back();
    for (const ir::NodeId id : nodes.back()) {
      computed[id] = computed[id] || is_operator(graph, id);
      for (const std::int64_t operand : graph.operands(id)) {
        const auto node = static_cast<ir::NodeId>(operand);
        const bool inside = std::binary_search(nodes.back().begin(), nodes.back().end(), node);
        if (!inside && std::find(read.begin(), read.end(), node) == read.end()) read.push_back(node);
      }
    }
    std::sort(read.begin(), read.end());
    bytes_read += kernel.scheduled.numbers.bytes_read;
    bytes_written += kernel.scheduled.numbers.bytes_written;
  }
  std::size_t operators = 0, views = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (computed[id]) ++(ir::info(graph[id].op).kind == ir::OpKind::View ? views : operators);
  std::string text = fmt::format("{} for {} and {}; in all {} read, {} written\n", plural(report.kernels.size(), "kernel"),
                                 plural(operators, "operator"), plural(views, "view"), bytes_text(bytes_read), bytes_text(bytes_written));
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    const runtime::KernelReport& kernel = report.kernels[k];
    const compiler::Group& group = partition.groups[kernel.group];
    std::string loops;
    for (std::size_t i = 0; i < group.domain.size(); ++i)
      loops += fmt::format("{}{}{}", i > 0 ? " x " : "", group.domain[i], group.reduced >> i & 1 ? " (reduced)" : "");
    text += fmt::format("\nkernel {}: {}\n", k, loops.empty() ? "one element" : "loops " + loops);
    auto row = [&text, first = std::string_view()](std::string_view label, const std::string& value) mutable {
      text += fmt::format("  {:<9} {}\n", label == first ? "" : label, value);
      first = label;
    };
    for (const ir::NodeId id : reads[k])
      row("reads", fmt::format("%{}{} : {}", id, name_of_input(graph, id), compiler::type_text(graph[id].dtype, graph.shape(id))));
    std::size_t shown = 0, left_out = 0;
    for (const ir::NodeId id : nodes[k]) {
      if (!is_operator(graph, id)) continue;
      if (shown < kMost) row("computes", lines[id]);
      else ++left_out;
      ++shown;
    }
    if (left_out > 0) row("computes", fmt::format("… and {} more; --graph has them all", left_out));
    for (const ir::NodeId id : group.roots) {
      std::vector<std::string> names, readers;
      for (std::size_t o = 0; o < graph.outputs.size(); ++o)
        if (graph.outputs[o] == id) names.push_back(graph.output_names[o]);
      for (std::size_t other = 0; other < report.kernels.size(); ++other)
        if (other != k && std::binary_search(reads[other].begin(), reads[other].end(), id)) readers.push_back(std::to_string(other));
      std::string why;
      if (!names.empty()) why = fmt::format("the output {}", fmt::join(names, ", "));
      if (!readers.empty())
        why += fmt::format("{}for kernel{} {}", why.empty() ? "" : " and ", readers.size() == 1 ? "" : "s", fmt::join(readers, ", "));
      if (partition.boundary[id] != compiler::Boundary::Output) why += fmt::format(": {}", compiler::text_of(partition.boundary[id]));
      row("stores", fmt::format("%{} : {}, {}", id, compiler::type_text(graph[id].dtype, graph.shape(id)), why));
    }
    if (kernel.planned.nest.sweeps > 1) row("runs", fmt::format("{} times over each row", kernel.planned.nest.sweeps));
    row("moves",
        fmt::format("{} in, {} out", bytes_text(kernel.scheduled.numbers.bytes_read), bytes_text(kernel.scheduled.numbers.bytes_written)));
  }
  return text;
}

// A key is bytes, not text.
std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Json json_of(const runtime::PlanReport& report) {
  const std::vector<std::string> lines = lines_of(report.optimised);
  Json kernels = Json::array();
  for (const runtime::KernelReport& kernel : report.kernels) {
    Json nodes = Json::array();
    for (const ir::NodeId id : nodes_of(report, kernel.group)) nodes.push_back(lines[id]);
    const compiler::ScheduleNumbers& numbers = kernel.scheduled.numbers;
    kernels.push_back({{"nodes", nodes},
                       {"outputs", stored_of(report, kernel.group)},
                       {"boundary_reason", reason_of(report, kernel.group)},
                       {"stages", kernel.planned.nest.sweeps},
                       {"bytes", numbers.bytes_read + numbers.bytes_written},
                       {"bytes_read", numbers.bytes_read},
                       {"bytes_written", numbers.bytes_written},
                       {"key", hexadecimal(kernel.key)}});
  }
  return {{"version", kDumpVersion}, {"graph", ir::print(report.optimised)}, {"kernels", kernels}};
}

// Of the first device here; where there is none that works, what is typical.
std::pair<compiler::cuda::DeviceTarget, std::string> cuda_target() {
  try {
    if (runtime::cuda::Gpu::count() > 0) {
      const runtime::cuda::Gpu& gpu = runtime::cuda::Gpu::get();
      return {gpu.target(), gpu.name()};
    }
  } catch (const Error&) {}  // NOLINT: doctor says what is wrong with it
  return {{}, "no device that works here"};
}

// The program that NVRTC compiles for these inputs.
std::string cuda_text(const runtime::PlanReport& of, const std::vector<runtime::ArgumentType>& types, const Options& options) {
  runtime::PlanData plan;
  for (const runtime::ArgumentType& t : types) plan.inputs.push_back(runtime::array_plan(t.dtype, t.shape, t.strides));
  runtime::PlanReport report;
  report.recorded = of.recorded;
  for (const ir::NodeId id : report.recorded.outputs)
    plan.outputs.push_back(runtime::array_plan(report.recorded[id].dtype, report.recorded.shape(id), {}));
  runtime::LaunchOptions launch;
  launch.unfused = options.mode == Mode::unfused;
  launch.relax = options.relax;
  launch.array_bytes = options.limits.array_bytes;
  const runtime::cuda::DeviceAlignment alignment{std::vector<bool>(plan.inputs.size(), true), std::vector<bool>(plan.outputs.size(), true)};
  const auto [target, device] = cuda_target();
  return fmt::format("// for compute capability {}.{} ({})\n", target.sm / 10, target.sm % 10, device) +
         runtime::cuda::DevicePlan(target, plan, report, launch, alignment).text();
}

void print_block(std::string_view text) { fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n"); }

}  // namespace

int dump(Words words) {
  CLI::App app{"Shows what the compiler makes of a program for inputs of given types. Runs nothing.", "onepass dump"};
  Words positional, shapes;
  CommonOptions common;
  bool graph = false, groups = false, nests = false, loops = false, llvm = false, assembly = false, cuda = false, json = false;
  std::string svg, html;
  app.add_option("PROGRAM", positional, "a formula, a .fuse file or - for standard input");
  app.add_option("--shapes", shapes, "types of the inputs, as x=f32[64,256]; one or more");
  app.add_flag("--graph", graph, "the optimised graph, in the form that parses back (with --groups the default)");
  app.add_flag("--groups", groups, "what each kernel reads, computes and stores, and why that is stored");
  app.add_flag("--nests", nests, "each kernel's loops, body and schedule");
  app.add_flag("--loops", loops, "each kernel as nested loops: what each sweep computes, stores and adds up, and in which order");
  app.add_flag("--llvm", llvm, "each kernel's LLVM IR");
  app.add_flag("--asm", assembly, "each kernel's machine code, as text");
  app.add_flag("--cuda", cuda, "all kernels as one CUDA program, for the device here, else for compute capability 8.0");
  app.add_flag("--json", json, "version, graph and kernels as one JSON object");
  app.add_option("--svg", svg, "comes later");
  app.add_option("--html", html, "comes later");
  add_mode(app, common);
  add_relax(app, common);
  add_limits(app, common);
  app.footer(
      "Examples:\n"
      "  onepass dump 'x*w + b' --shapes x=f32[64,256] w=f32[256] b=f32[256] --groups\n"
      "  onepass dump examples/programs/softmax.fuse --shapes x=f32[4096,1024] --asm");
  parse_words(app, std::move(words));
  if (positional.empty() && !shapes.empty() && !is_named_type(shapes.back())) {  // the program may stand last
    positional.push_back(std::move(shapes.back()));
    shapes.pop_back();
  }

  if (!svg.empty()) throw UnsupportedError("dump: --svg comes later; --graph and --json are there");
  if (!html.empty()) throw UnsupportedError("dump: --html comes later; --graph and --json are there");
  const Options options = options_of(common);
  const Source source = program_source("dump", take_program("dump", positional), options.limits);
  if (!positional.empty()) throw ValueError(fmt::format("dump: `{}` is one word too many; types follow --shapes", positional.front()));
  const ProgramText program(source.text, source.name, options.limits);
  const std::vector<runtime::ArgumentType> types = types_of("dump", program, shapes);
  if (!graph && !groups && !nests && !loops && !llvm && !assembly && !cuda && !json) graph = groups = true;

  const runtime::PlanReport report = program.compile(options)->report(types);
  const int forms = graph + groups + nests + loops + llvm + assembly + cuda + json;
  const auto title = [&](std::string_view text) {
    if (forms > 1) fmt::print("// ---- {}\n", text);
  };
  if (json) print_block(json_of(report).dump(2, ' ', false, Json::error_handler_t::replace));
  if (graph) {
    title("graph");
    print_block(ir::print(report.optimised));
  }
  if (groups) {
    title("groups");
    print_block(groups_text(report));
  }
  compiler::Target target = compiler::Target::host();
  if (options.vector_bytes) target = target.with_vector_bytes(options.vector_bytes);
  const auto each_kernel = [&](std::string_view form, auto&& text) {
    for (std::size_t i = 0; i < report.kernels.size(); ++i) {
      if (forms > 1 || report.kernels.size() > 1)
        fmt::print("{} ---- {} of kernel {}: {}\n",
                   form == "assembly"  ? "#"
                   : form == "LLVM IR" ? ";"
                                       : "//",
                   form, i, list_of(stored_of(report, report.kernels[i].group)));
      print_block(text(report.kernels[i]));
    }
  };
  if (nests)
    each_kernel("nest", [](const runtime::KernelReport& kernel) {
      std::string text = compiler::print(kernel.planned.nest, kernel.planned.numbers);
      if (!text.ends_with('\n')) text += '\n';
      return text + compiler::print(kernel.scheduled);
    });
  if (loops)
    each_kernel("loops", [](const runtime::KernelReport& kernel) {
      return compiler::loops::print(compiler::loops::program_of(kernel.planned.nest, kernel.scheduled.schedule), kernel.planned.numbers);
    });
  const auto generated = [&](const runtime::KernelReport& kernel, bool want_ir) {
    const compiler::CodegenResult result = compiler::generate({.nest = &kernel.planned.nest,
                                                               .schedule = &kernel.scheduled.schedule,
                                                               .target = &target,
                                                               .want_ir = want_ir,
                                                               .want_assembly = !want_ir});
    return want_ir ? result.ir : result.assembly;
  };
  if (llvm) each_kernel("LLVM IR", [&](const runtime::KernelReport& kernel) { return generated(kernel, true); });
  if (assembly) each_kernel("assembly", [&](const runtime::KernelReport& kernel) { return generated(kernel, false); });
  if (cuda) {
    title("CUDA");
    print_block(cuda_text(report, types, options));
  }
  return 0;
}

}  // namespace onepass::command
