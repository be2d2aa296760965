// An ExecutionRecord as text, JSON (docs/record.schema.json) and HTML.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "onepass/version.h"
#include "report_page.h"  // generated from tools/report
#include "runtime/json_text.h"
#include "runtime/record.h"

namespace onepass {

using runtime::JsonText;

namespace {

constexpr int kRecordVersion = 1;  // increases when a member changes its meaning

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string time_text(double ns) {
  if (ns < 1e4) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e7) return fmt::format("{:.1f} us", ns / 1e3);
  return fmt::format("{:.1f} ms", ns / 1e6);
}

constexpr std::string_view kModes[] = {"adaptive", "generic", "specialized", "unfused", "reference"};

void write(JsonText& json, const ExecutionRecord::Kernel& kernel, const ExecutionRecord& record) {
  json.line().open('{').key("nodes").open('[');
  for (const std::uint32_t id : kernel.nodes) json.value(std::string_view(fmt::format("%{} = {}", id, record.nodes[id].text)));
  json.close(']').key("outputs").open('[');
  std::vector<std::string_view> reasons;
  for (const ExecutionRecord::Stored& s : kernel.stores) {
    for (const std::string& name : s.outputs) json.value(std::string_view(name));
    if (s.outputs.empty()) json.value(std::string_view(fmt::format("%{}", s.node)));
    const std::string_view reason = compiler::text_of(static_cast<compiler::Boundary>(static_cast<int>(s.reason) + 1));
    if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
  }
  json.close(']').member("boundary_reason", std::string_view(fmt::format("{}", fmt::join(reasons, "; "))));
  json.member("stages", kernel.sweeps).member("bytes", kernel.bytes_read + kernel.bytes_written);
  json.member("bytes_read", kernel.bytes_read).member("bytes_written", kernel.bytes_written).member("key", std::string_view(kernel.key));
  json.member("kind", std::string_view(kernel.kind)).member("loops", std::string_view(kernel.loops));
  json.key("extents").list(kernel.extents).key("reduced").open('[');
  for (const bool reduced : kernel.reduced) json.value(reduced);
  json.close(']').member("pieces", kernel.pieces).member("threads", kernel.threads).member("backward", kernel.backward);
  json.key("node_ids").list(kernel.nodes).key("reads").list(kernel.reads).key("stores").open('[');
  for (const ExecutionRecord::Stored& s : kernel.stores) {
    json.open('{').member("node", s.node).key("outputs").open('[');
    for (const std::string& name : s.outputs) json.value(std::string_view(name));
    json.close(']').key("readers").list(s.readers).member("reason", name_of(s.reason));
    json.member("sentence", std::string_view(s.sentence)).member("remedy", std::string_view(s.remedy)).close('}');
  }
  json.close(']').member("program", std::string_view(kernel.program));
  if (record.called) {
    json.member("tier", std::string_view(kernel.tier)).member("cache", name_of(kernel.cache));
    json.member("cache_sentence", std::string_view(kernel.cache_sentence)).member("compile_ms", kernel.compile_ms);
    json.key("compiles").open('[');
    for (const ExecutionRecord::Compile& compile : kernel.compiles) {
      json.open('{').member("tier", std::string_view(compile.tier)).member("ms", compile.ms).key("stages").open('[');
      for (const ExecutionRecord::Compile::Stage& stage : compile.stages)
        json.open('{').member("name", std::string_view(stage.name)).member("ms", stage.ms).close('}');
      json.close(']').close('}');
    }
    json.close(']').key("times").open('{').member("runs", kernel.times.runs).member("last_ns", kernel.times.last_ns);
    json.member("best_ns", kernel.times.best_ns).member("mean_ns", kernel.times.mean_ns);
    json.member("together", kernel.times.together).close('}');
    json.member("gigabytes_per_second", kernel.gigabytes_per_second()).member("of_copy", record.of_copy(kernel));
  }
  if (!kernel.llvm.empty()) json.member("llvm", std::string_view(kernel.llvm));
  if (!kernel.assembly.empty()) json.member("assembly", std::string_view(kernel.assembly));
  json.close('}');
}

void write(JsonText& json, const ExecutionRecord::Node& node) {
  json.line().open('{').member("id", node.id).member("op", std::string_view(node.op)).member("kind", std::string_view(node.kind));
  json.member("text", std::string_view(node.text)).member("type", std::string_view(node.type)).key("operands").list(node.operands);
  if (!node.name.empty()) json.member("name", std::string_view(node.name));
  if (!node.source.empty()) json.member("source", std::string_view(node.source));
  if (node.backward) json.member("backward", true);
  json.member("bytes", node.bytes).key("kernels").list(node.kernels).close('}');
}

void write(JsonText& json, const ExecutionRecord& record) {
  json.open('{').member("version", kRecordVersion).member("onepass", ONEPASS_VERSION);
  json.line().member("signature", std::string_view(record.signature)).member("formula", std::string_view(record.program));
  json.member("mode", kModes[static_cast<std::size_t>(record.mode)]).member("device", std::string_view(record.device));
  json.member("processor", std::string_view(record.processor))
      .member("threads", record.threads)
      .member("called", record.called)
      .member("calls", record.calls);
  json.line().member("graph", std::string_view(record.optimized)).line().member("recorded", std::string_view(record.recorded));
  json.line().key("outputs").open('[');
  for (const ExecutionRecord::Output& o : record.outputs)
    json.open('{').member("name", std::string_view(o.name)).member("node", o.node).close('}');
  json.close(']').line().key("passes").open('[');
  for (const ExecutionRecord::Pass& p : record.passes) {
    json.line().open('{').member("name", std::string_view(p.name)).member("ran", p.ran).member("changed", p.changed);
    json.member("nodes", p.nodes).member("ms", p.ms).member("note", std::string_view(p.note));
    if (p.changed) json.member("graph", std::string_view(p.graph));
    json.close('}');
  }
  json.close(']').line().key("kernels").open('[');
  for (const ExecutionRecord::Kernel& kernel : record.kernels) write(json, kernel, record);
  json.close(']').line().key("nodes").open('[');
  for (const ExecutionRecord::Node& node : record.nodes) write(json, node);
  json.close(']')
      .line()
      .member("bytes_read", record.bytes_read)
      .member("bytes_written", record.bytes_written)
      .member("bytes", record.bytes());
  json.member("least_bytes", record.least_bytes).member("ratio", record.ratio()).member("intermediate_bytes", record.intermediate_bytes);
  json.key("unfused").open('{').member("kernels", record.unfused_kernels).member("bytes", record.unfused_bytes).close('}');
  json.line()
      .key("plan")
      .open('{')
      .member("reason", name_of(record.plan_reason))
      .member("sentence", std::string_view(record.plan_sentence));
  json.member("remedy", std::string_view(record.plan_remedy))
      .member("record_ms", record.stages.record_ms)
      .member("passes_ms", record.stages.passes_ms);
  json.member("fuse_ms", record.stages.fuse_ms)
      .member("plan_ms", record.stages.plan_ms)
      .member("compile_ms", record.stages.compile_ms)
      .close('}');
  if (record.copy_gigabytes_per_second > 0) json.line().member("copy_gigabytes_per_second", record.copy_gigabytes_per_second);
  json.line().member("times_note", std::string_view(record.times_note)).key("notes").open('[');
  for (const std::string& note : record.notes) json.value(std::string_view(note));
  json.close(']');
  if (!record.cuda_note.empty()) json.line().member("cuda_note", std::string_view(record.cuda_note));
  if (!record.cuda.empty()) json.member("cuda", std::string_view(record.cuda));
  if (!record.ptx.empty()) json.member("ptx", std::string_view(record.ptx));
  if (!record.backward.empty()) {
    json.line().key("backward");
    write(json, record.backward.front());
  }
  json.close('}');
}

}  // namespace

std::string ExecutionRecord::json() const {
  JsonText json;
  write(json, *this);
  return json.take() + "\n";
}

std::string ExecutionRecord::text() const {
  std::string out;
  if (!signature.empty()) out += fmt::format("call {}, mode {}\n", signature, kModes[static_cast<std::size_t>(mode)]);
  if (kernels.empty()) out += fmt::format("no kernels: {} nodes are interpreted one at a time\n", nodes.size());
  else
    out += fmt::format("{} kernel{}: {} read, {} written; the minimum is {} (the kernels move {:.2f} times as much)\n", kernels.size(),
                       kernels.size() == 1 ? "" : "s", bytes_text(bytes_read), bytes_text(bytes_written), bytes_text(least_bytes), ratio());
  if (unfused_kernels > 0)
    out += fmt::format("one kernel per operator would need {} kernels and move {}\n", unfused_kernels, bytes_text(unfused_bytes));
  if (!plan_sentence.empty()) out += plan_sentence + "\n";
  if (!plan_remedy.empty()) out += "  " + plan_remedy + "\n";
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const Kernel& kernel = kernels[k];
    out += fmt::format("kernel {}: {}, loops {}{}; {} in, {} out\n", k, kernel.kind, kernel.loops,
                       kernel.sweeps > 1 ? fmt::format(", {} sweeps", kernel.sweeps) : "", bytes_text(kernel.bytes_read),
                       bytes_text(kernel.bytes_written));
    if (called) out += fmt::format("  {}; {}\n", kernel.tier, kernel.cache_sentence);
    for (const Compile& compile : kernel.compiles) out += fmt::format("  {}\n", runtime::compile_text(compile));
    if (kernel.times.runs > 0)
      out += fmt::format("  {} on average over {} runs, best {}: {:.1f} GB/s{}\n", time_text(kernel.times.mean_ns), kernel.times.runs,
                         time_text(kernel.times.best_ns), kernel.gigabytes_per_second(),
                         of_copy(kernel) > 0 ? fmt::format(", {:.2f} of the copy bandwidth", of_copy(kernel)) : "");
    for (const Stored& s : kernel.stores) {
      std::string who = s.outputs.empty() ? "" : fmt::format(" as {}", fmt::join(s.outputs, ", "));
      if (!s.readers.empty()) who += fmt::format(" for kernel{} {}", s.readers.size() == 1 ? "" : "s", fmt::join(s.readers, ", "));
      out += fmt::format("  stores %{} {} {}{}", s.node, nodes[s.node].op, nodes[s.node].type, who);
      if (!nodes[s.node].source.empty()) out += fmt::format(", recorded at {}", nodes[s.node].source);
      out += fmt::format("\n    {}: {}\n", name_of(s.reason), s.sentence);
      if (!s.remedy.empty()) out += fmt::format("    remedy: {}\n", s.remedy);
    }
  }
  if (called && stages.record_ms + stages.plan_ms > 0)
    out += fmt::format("making the plan: record {:.3f} ms, passes {:.3f}, fuse {:.3f}, plan {:.3f}, compile {:.2f}\n", stages.record_ms,
                       stages.passes_ms, stages.fuse_ms, stages.plan_ms, stages.compile_ms);
  if (!times_note.empty()) out += times_note + "\n";
  for (const std::string& note : notes) out += fmt::format("note: {}\n", note);
  for (const ExecutionRecord& b : backward) out += "\nthe backward call\n" + b.text();
  return out;
}

// Inserts the JSON into the page. Escapes `<`, so that no text of a program can close the HTML element.
std::string ExecutionRecord::html() const {
  const std::string_view page = runtime::kReportPage, mark = "/*RECORD*/";
  const std::size_t at = page.find(mark);
  std::string out(page.substr(0, at));
  for (const char c : json()) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  out += page.substr(at + mark.size());
  return out;
}

void ExecutionRecord::save(const std::string& path) const {
  runtime::write_text("record", path, path.ends_with(".json") ? json() : path.ends_with(".html") ? html() : text());
}

}  // namespace onepass
