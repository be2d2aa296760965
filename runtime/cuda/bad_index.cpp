// See bad_index.h, and Gpu::IndexReport in device.h.
#include "runtime/cuda/bad_index.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/cuda/capture.h"

namespace onepass::runtime::cuda {

namespace {

constexpr std::size_t kPage = 4096;       // bytes of pinned memory for reports
constexpr std::size_t kReportBytes = 64;  // of one report, so that no two share a cache line

std::int64_t read(std::int64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
void write(std::int64_t& word, std::int64_t value) { std::atomic_ref(word).store(value, std::memory_order_release); }

}  // namespace

std::vector<CheckedIndex> checked_indices(const ir::Graph& graph, const std::vector<ir::NodeId>& places) {
  std::vector<CheckedIndex> out;
  for (const ir::NodeId id : places) {
    const ir::List attributes = graph.attributes(id);
    const auto indexing = static_cast<ir::Indexing>(attributes[2]);
    // the values of bincount may be negative integers, cast to u64
    const bool is_unsigned = graph[graph.operand(id, 0)].dtype == DType::U64 && indexing != ir::Indexing::Bincount;
    out.push_back({indexing, attributes[0], attributes[1], is_unsigned, graph.sources[graph.source_of[id]]});
  }
  return out;
}

std::string bad_index_text(const std::vector<CheckedIndex>& checks, std::int64_t index, std::int64_t extent, int device) {
  const std::string results = "The results of that call are unspecified.";
  std::string text, names;
  for (const CheckedIndex& c : checks) {
    if (c.extent != extent) continue;
    const std::string_view name = ir::text_of(c.indexing);
    const std::string value = c.is_unsigned ? std::to_string(static_cast<std::uint64_t>(index)) : std::to_string(index);
    std::string one;
    if (c.indexing == ir::Indexing::CrossEntropy)
      one = fmt::format("{}: an earlier call on cuda:{} had the label {}, which is out of range: there are {} classes.", name, device,
                        value, extent);
    else if (c.indexing == ir::Indexing::Quantile)
      one = fmt::format("{}: q must be from 0 to 1, and one was not in an earlier call on cuda:{}.", name, device);
    else
      one = fmt::format("{}: an earlier call on cuda:{} had the index {}, which is out of range: axis {} has extent {}.", name, device,
                        value, c.axis, extent);
    one += " " + results + (c.source.empty() ? "" : "\n  Recorded at " + c.source + ".");
    if (names.find(name) == std::string::npos) names += fmt::format("{}{}", names.empty() ? "" : " or ", name);
    if (text.empty() || text == one) text = one;
    else
      text = fmt::format("{}: an earlier call on cuda:{} had the index {}, which is out of range: the axis has extent {}. {}", names,
                         device, value, extent, results);
  }
  return text.empty() ? fmt::format("an earlier call on cuda:{} had the index {}, which is out of range: the axis has extent {}. {}",
                                    device, index, extent, results)
                      : text;
}

// ---------------------------------------------------------------------------------------------- the device's reports

bool Gpu::Report::is_complete() const { return read(words.state) == kReportComplete; }

Gpu::IndexReport::IndexReport(Gpu& gpu, std::vector<CheckedIndex> checks)
    : gpu_(gpu), checks_(std::make_shared<const std::vector<CheckedIndex>>(std::move(checks))) {}

Gpu::IndexReport::~IndexReport() {
  const std::lock_guard lock(gpu_.mutex_);
  if (report_) gpu_.detach(*report_);
}

// Takes a report for the owner. Allocates pinned memory if all reports are in use.
Gpu::Report& Gpu::take_report(IndexReport& owner) {
  if (free_reports_.empty()) {
    void* memory = nullptr;
    driver_.check(driver_.cuMemHostAlloc(&memory, kPage, 0), [] { return fmt::format("allocating {} bytes of pinned memory", kPage); });
    auto* const bytes = static_cast<std::byte*>(memory);
    if (!any_report_) {
      any_report_ = reinterpret_cast<std::int64_t*>(bytes);  // the first page's first report is this word
      write(*any_report_, 0);
    }
    for (std::size_t at = reinterpret_cast<std::int64_t*>(bytes) == any_report_ ? kReportBytes : 0; at < kPage; at += kReportBytes)
      free_reports_.push_back(reinterpret_cast<ReportWords*>(bytes + at));
  }
  auto report = std::make_unique<Report>(Report{*free_reports_.back(), owner.checks_, &owner});
  reports_.reserve(reports_.size() + 1);
  free_reports_.pop_back();
  report->words = {0, 0, 0, reinterpret_cast<std::int64_t>(any_report_)};
  return *reports_.emplace_back(std::move(report));
}

// Ends the use of a report by new calls. It becomes free when the device has finished the earlier calls.
void Gpu::detach(Report& report) noexcept {
  report.owner->report_ = nullptr;
  report.owner = nullptr;
  retire({nullptr, &report, {}, {}}, report.used_on);
}

void Gpu::end(Report& report) noexcept {
  report.is_over = true;
  if (report.graphs > 0 || (report.is_complete() && !report.is_thrown)) return;  // it ends after the graphs, and after it is thrown
  free_reports_.push_back(&report.words);
  std::erase_if(reports_, [&](const auto& r) { return r.get() == &report; });
}

Gpu::Turn::Indexing::Indexing(Turn& turn, IndexReport& of) : report_(of.report_ ? *of.report_ : *(of.report_ = &turn.g_.take_report(of))) {
  if (!turn.captured_) {
    turn.uses(report_.used_on);
  } else if (std::vector<Report*>& reports = turn.captured_->reports; std::ranges::find(reports, &report_) == reports.end()) {
    reports.push_back(&report_);
    ++report_.graphs;
  }
  ++report_.launching;
}
Gpu::Turn::Indexing::~Indexing() { --report_.launching; }
std::int64_t Gpu::Turn::Indexing::address() const { return reinterpret_cast<std::int64_t>(&report_.words); }

std::string Gpu::text_of(const Report& report) const {
  return bad_index_text(*report.checks, report.words.index, report.words.extent, ordinal_);
}

// Returns the text, and ends the use of the report.
std::string Gpu::message_of(Report& report) {
  std::string text = text_of(report);
  if (report.graphs > 0) {  // later launches of the graphs use it again
    write(report.words.state, 0);
    return text;
  }
  report.is_thrown = true;
  if (report.owner) detach(report);
  else if (report.is_over) end(report);
  return text;
}

std::string Gpu::Turn::bad_index(IndexReport& of) {
  Report* const report = of.report_;
  if (!report || !report->is_complete()) return {};
  // While another call of the plan launches kernels, the report stays in use, and a later check returns it again.
  return report->launching == 0 ? g_.message_of(*report) : g_.text_of(*report);
}

void Gpu::throw_bad_index() {
  if (!any_report_ || read(*any_report_) == 0) [[likely]]
    return;
  write(*any_report_, 0);
  Report* found = nullptr;
  for (const auto& report : reports_) {
    if (report->is_thrown || !report->is_complete()) continue;
    if (found || report->launching > 0) write(*any_report_, 1);  // for the next check
    else found = report.get();
  }
  if (found) throw IndexError(message_of(*found));
}

}  // namespace onepass::runtime::cuda
