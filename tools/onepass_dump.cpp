// onepass dump: the compiler's results for a program, from the graph to the machine code, without running it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen.h"
#include "compiler/loops/policy.h"
#include "compiler/target.h"
#include "onepass/error.h"
#include "runtime/record.h"
#include "tools/onepass_command.h"
#include "tools/onepass_options.h"
#include "tools/onepass_picture.h"

namespace onepass::command {

namespace {

// Returns the values that a kernel stores: the output's name for an output, else the node.
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

// ---- --groups

std::string name_of_input(const ir::Graph& graph, ir::NodeId id) {
  for (const ir::Input& input : graph.inputs)
    if (input.node == id) return " = input " + input.name;
  return "";
}

std::string plural(std::size_t count, std::string_view what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

bool is_operator(const ir::Graph& graph, ir::NodeId id) { return !ir::is_source(graph[id].op); }

// Returns text for each kernel: its loops, the values that it loads, computes and stores, and the bytes moved. Each stored value has the
// reason for storing it and its later readers.
std::string groups_text(const runtime::PlanReport& report) {
  const ir::Graph& graph = report.optimised;
  const compiler::Partition& partition = report.partition;
  const std::vector<std::string> lines = runtime::lines_of(graph);
  if (report.kernels.empty()) {
    if (partition.groups.empty()) return fmt::format("no kernels: {} are interpreted one at a time\n", plural(graph.size(), "node"));
    return "no kernels: there is nothing to compute\n";
  }

  constexpr std::size_t kMost = 24;                   // maximum number of operator lines
  std::vector<std::vector<ir::NodeId>> nodes, reads;  // by kernel
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::vector<bool> computed(graph.size());
  for (const runtime::KernelReport& kernel : report.kernels) {
    nodes.push_back(runtime::nodes_of(report, kernel.group));
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
  std::string text = fmt::format("{} for {} and {}; in total {} read, {} written\n", plural(report.kernels.size(), "kernel"),
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
    if (left_out > 0) row("computes", fmt::format("… and {} more; --graph lists all of them", left_out));
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

// Returns the graph after each pass, and the fusion groups. Passes without an effect are listed by name only.
std::string passes_text(const ExecutionRecord& record, const runtime::PlanReport& report) {
  std::string text = "// ---- recorded\n" + record.recorded;
  for (const ExecutionRecord::Pass& pass : record.passes) {
    if (pass.changed)
      text += fmt::format("\n// ---- {}: {}\n{}", pass.name, plural(static_cast<std::size_t>(pass.nodes), "node"), pass.graph);
    else text += fmt::format("\n// ---- {}: ({}{})\n", pass.name, pass.ran ? "unchanged" : "skipped: ", pass.note);
  }
  if (!report.kernels.empty()) text += "\n// ---- fuse\n" + compiler::print(report.optimised, report.partition);
  return text;
}

// Returns the assembly with comments at the start and the end of each innermost loop: at its label, and at the jump back to it.
std::string with_loops_marked(std::string_view text, std::string_view comment) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::map<std::string, std::size_t, std::less<>> labels;
  std::vector<std::pair<std::size_t, std::size_t>> loops;  // lines of the label and of the jump
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with(".L") && line.ends_with(':')) labels[line.substr(0, line.size() - 1)] = i;
    const std::size_t target = line.find_last_of(" \t,");  // the last operand
    if (target == std::string::npos || !line.starts_with('\t') || line.starts_with("\t.")) continue;
    if (const auto label = labels.find(std::string_view(line).substr(target + 1)); label != labels.end())
      loops.emplace_back(label->second, i);
  }
  // A rare block may follow the loop that it belongs to. Its jump back into the loop is no loop: the loop's own end is between label and jump.
  std::erase_if(loops, [all = loops](const auto& loop) {
    return std::ranges::any_of(
        all, [&](const auto& other) { return other.first < loop.first && other.second >= loop.first && other.second < loop.second; });
  });
  const auto is_inside = [](const auto& a, const auto& b) { return a != b && a.first >= b.first && a.second <= b.second; };
  for (const auto& loop : loops) {
    if (std::ranges::any_of(loops, [&](const auto& other) { return is_inside(other, loop); })) continue;
    const auto instructions = std::count_if(lines.begin() + static_cast<std::ptrdiff_t>(loop.first) + 1,
                                            lines.begin() + static_cast<std::ptrdiff_t>(loop.second) + 1,
                                            [](const std::string& line) { return line.starts_with('\t') && !line.starts_with("\t."); });
    lines[loop.first] += fmt::format("\t{} loop of {}", comment, plural(static_cast<std::size_t>(instructions), "instruction"));
    lines[loop.second] += fmt::format("\t{} end of the loop", comment);
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

void print_block(std::string_view text) { fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n"); }

}  // namespace

int dump(Words words) {
  CommandLine app("dump", "Shows how the compiler translates a program for inputs of given types. Runs nothing.");
  Words positional, shapes;
  CommonOptions common;
  bool graph = false, groups = false, nests = false, loops = false, llvm = false, assembly = false, cuda = false, ptx = false, json = false,
       passes = false, why = false, dot = false, pullback = false;
  std::string svg, html;
  ExecutionRecord record;
  app.add("PROGRAM", positional, "a formula, a .fuse file, another dump (.json) or - for standard input");
  app.add("--shapes", shapes, "types of the inputs, such as x=f32[64,256]; at least one");
  app.add_flag("--passes", passes, "the graph after each pass, \"(unchanged)\" if a pass has no effect, and the fusion groups");
  app.add_flag("--graph", graph, "the optimized graph, in the form that parses back (with --groups the default)");
  app.add_flag("--groups", groups, "the values that each kernel reads, computes and stores, and why it stores them");
  app.add_flag("--why", why, "each kernel with a sentence for every reason, how to avoid it, and how many bytes could be saved at most");
  app.add_flag("--nests", nests, "each kernel's loops, body and schedule");
  app.add_flag("--loops", loops, "each kernel as nested loops: the values that each sweep computes, stores and sums, and in which order");
  app.add_flag("--llvm", llvm, "each kernel's LLVM IR");
  app.add_flag("--asm", assembly, "each kernel's machine code as text, with its innermost loops marked");
  app.add_flag("--cuda", cuda, "all kernels as one CUDA program for the device here, or for compute capability 8.0 if there is none");
  app.add_flag("--ptx", ptx, "the same program compiled to PTX by NVIDIA's compiler, if it is installed");
  app.add_flag("--json", json, "one JSON object with all of it (docs/record.schema.json), which `run` and `diff` read");
  app.add_flag("--dot", dot, "the kernels as a graph, for Graphviz");
  app.add("--svg", svg, "write a picture of the kernels to this file, by Graphviz if it is installed");
  app.add("--html", html, "write a report for a browser to this file: kernels, reasons, passes, loops and code");
  app.add_flag("--pullback", pullback,
               "with --why, --json and --html: as vjp runs it, a forward call and the backward call for all inputs");
  add_mode(app, common);
  add_relax(app, common);
  add_limits(app, common);
  app.footer(
      "Examples:\n"
      "  onepass dump 'x*w + b' --shapes x=f32[64,256] w=f32[256] b=f32[256] --groups\n"
      "  onepass dump examples/programs/softmax.fuse --shapes x=f32[4096,1024] --asm\n"
      "  onepass dump 'x - sum(x, axis=0)' --shapes x=f32[64,256] --html report.html");
  app.parse(std::move(words));
  if (positional.empty() && !shapes.empty() && !is_named_type(shapes.back())) {  // the program may be the last word
    positional.push_back(std::move(shapes.back()));
    shapes.pop_back();
  }

  const Options options = options_of(common);
  const Source source = program_source("dump", take_program("dump", positional), options.limits);
  if (!positional.empty()) throw ValueError(fmt::format("dump: unexpected argument `{}`; types must follow --shapes", positional.front()));
  const ProgramText program = program_of(source, options.limits);
  const std::vector<runtime::ArgumentType> types = types_of("dump", program, shapes);
  const int forms = graph + groups + nests + loops + llvm + assembly + cuda + ptx + json + passes + why + dot;
  if (forms == 0 && svg.empty() && html.empty()) graph = groups = true;

  if (pullback && (forms > why + json || forms + !html.empty() == 0))
    throw ValueError("dump: --pullback is allowed only with --why, --json and --html");
  const std::unique_ptr<runtime::Program> compiled = pullback ? program.compile_with_pullback(options) : program.compile(options);
  const runtime::PlanReport report = compiled->report(types);
  if (passes || why || dot || json || !svg.empty() || !html.empty()) {
    constexpr std::uint32_t kMostWithCode = 2000;  // nodes; larger programs would produce unreadably much code
    const bool wants_code = !html.empty() && report.optimised.size() <= kMostWithCode;
    record = compiled->describe(types, wants_code ? Detail::code : Detail::plan);
    if (!source.is_graph) record.program = source.text;
  }
  std::string cuda_note, cuda_text;
  if (cuda || ptx) {
    runtime::PlanData plan;
    for (const runtime::ArgumentType& t : types) plan.inputs.push_back(runtime::array_plan(t.dtype, t.shape, t.strides));
    runtime::LaunchOptions launch;
    launch.unfused = options.mode == Mode::unfused;
    launch.relax = options.relax;
    launch.array_bytes = options.limits.array_bytes;
    cuda_text = runtime::cuda_text(report, plan, launch, cuda_note);
  }
  if (!html.empty()) runtime::write_text("dump", html, record.html());
  if (!svg.empty()) {
    const std::string drawn = svg_by_graphviz(dot_of(record));
    runtime::write_text("dump", svg, drawn.empty() ? svg_of(record) : drawn);
  }
  const auto title = [&](std::string_view text) {
    if (forms > 1) fmt::print("// ---- {}\n", text);
  };
  if (json) print_block(record.json());
  if (dot) print_block(dot_of(record));
  if (passes) print_block(passes_text(record, report));
  if (why) {
    title("why");
    print_block(record.text());
  }
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
      if (kernel.planned.nest.is_routine()) return print(kernel.planned.nest, kernel.planned.numbers);
      return compiler::loops::print(compiler::loops::program_of(kernel.planned.nest, kernel.scheduled.schedule), kernel.planned.numbers);
    });
  const auto generated = [&](const runtime::KernelReport& kernel, bool want_ir) {
    if (kernel.planned.nest.is_in_library())
      return fmt::format("{} no generated code: {} is a precompiled library routine\n", want_ir ? ";" : "#",
                         ir::info(kernel.planned.nest.routine).text);
    const std::string text = runtime::code_of(kernel, target, options.mode, want_ir);
    return want_ir ? text : with_loops_marked(text, target.triple.starts_with("x86") ? "#" : "//");
  };
  if (llvm) each_kernel("LLVM IR", [&](const runtime::KernelReport& kernel) { return generated(kernel, true); });
  if (assembly) each_kernel("assembly", [&](const runtime::KernelReport& kernel) { return generated(kernel, false); });
  if (cuda) {
    title("CUDA");
    print_block(fmt::format("// {}\n{}", cuda_note, cuda_text));
  }
  if (ptx) {
    title("PTX");
    const std::string text = runtime::ptx_of(cuda_text, cuda_note);
    if (text.empty()) throw UnsupportedError(fmt::format("dump: there is no PTX {}", cuda_note));
    print_block(text);
  }
  return 0;
}

}  // namespace onepass::command
