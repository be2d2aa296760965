// gpu_report: see report.h.
#include "gpu_check/report.h"

#include <fmt/format.h>

#include <map>

namespace onepass::test {

using Json = nlohmann::ordered_json;

namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}
std::string status_of(const Json& line) { return line.value("status", "failed"); }
std::string cell(const std::string& text, const char* kind = "") { return fmt::format("<td{}>{}</td>", kind, escape(text)); }
std::string number(const Json& line, const char* name, int digits = 3) {
  return cell(line.contains(name) && line[name].is_number() ? fmt::format("{:.{}f}", line[name].get<double>(), digits) : "", " class=n");
}
// Returns the remarks on a line, in addition to its numbers.
std::string remark(const Json& line) {
  std::string out;
  for (const char* name : {"what", "first", "after_timing", "failures", "code"})
    if (line.contains(name))
      out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", name,
                         line[name].is_string() ? line[name].get<std::string>() : line[name].dump());
  return out;
}
std::string clocks(const Json& line) {
  if (!line.contains("clocks")) return cell("");
  std::string out;
  const Json all = line["clocks"].is_array() ? line["clocks"] : Json::array({line["clocks"]});
  for (const Json& c : all)
    if (c.is_object())
      out += fmt::format("{}{} MHz, {} °C", out.empty() ? "" : " → ", c.value("processor_mhz", 0.0), c.value("degrees", 0.0));
  return cell(out);
}
bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

}  // namespace

std::string gpu_report(const std::vector<Json>& lines) {
  std::map<std::string, int> count;
  double copy = 0;
  const Json *device = nullptr, *no_device = nullptr;
  std::map<std::string, const Json*> torch;
  for (const Json& line : lines) {
    const std::string name = line["check"];
    ++count[status_of(line)];
    if (name == "device") device = &line;
    if (name == "copy") copy = line.value("gb_per_s", 0.0);
    if (begins(name, "torch: ")) torch[name.substr(7)] = &line;
    if (status_of(line) == "no device") no_device = &line;
  }
  std::string out =
      "<!doctype html><meta charset=utf-8><title>onepass on a GPU</title><style>body{font:14px "
      "sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
      "td,th{border:1px solid #ccc;padding:2px "
      "8px;text-align:left;vertical-align:top}.n{text-align:right}pre{white-space:pre-wrap;margin:0}"
      ".bad{background:#fdd}.ok{background:#dfd}</style><h1>onepass on a GPU</h1>\n";
  if (device && status_of(*device) != "no device")
    out += fmt::format("<p>{}, compute capability {:.1f}, {} processors, cache of {} MiB, driver {}, NVRTC {}.</p>\n",
                       escape(device->value("name", "?")), device->value("compute_capability", 0.0), device->value("processors", 0),
                       device->value("cache_bytes", std::int64_t{0}) >> 20, device->value("driver", 0),
                       escape(device->value("nvrtc", "none")));
  if (no_device) out += fmt::format("<p class=bad>Not run on a GPU: {}</p>\n", escape(remark(*no_device)));
  out += "<p>";
  for (const auto& [status, n] : count) out += fmt::format("{}: {}. ", escape(status), n);
  if (copy > 0) out += fmt::format("A copy moves {:.0f} GB/s.", copy);
  out += "</p>\n";

  out += "<h2>What is not right</h2><table><tr><th>check<th>status<th>seconds<th>what</tr>\n";
  for (const Json& line : lines)
    if (const std::string status = status_of(line); status != "ok" && status != "no device" && status != "skipped")
      out += "<tr class=bad>" + cell(line["check"]) + cell(status) + number(line, "seconds", 1) + "<td><pre>" + escape(remark(line)) +
             "</pre></td></tr>\n";
  out +=
      "</table>\n<h2>Times</h2><p>Medians of batches, with the twentieth part at both ends; the arguments of calls in turn exceed the "
      "device's cache.</p>"
      "<table><tr><th>program<th>ms<th>5 %<th>95 %<th>GB/s<th>of copy<th>ms in cache<th>first call, ms<th>torch eager, ms<th>torch "
      "compiled, ms"
      "<th>torch differs by<th>clocks</tr>\n";
  for (const Json& line : lines) {
    const std::string name = line["check"];
    if (!begins(name, "time: ") || !line.contains("ms")) continue;
    const auto beside = torch.find(name.substr(6));
    static const Json none = Json::object();
    const Json& other = beside == torch.end() ? none : *beside->second;
    out += fmt::format("<tr{}>", status_of(line) == "ok" ? "" : " class=bad") + cell(name.substr(6)) + number(line, "ms", 4) +
           number(line, "ms_5", 4) + number(line, "ms_95", 4) + number(line, "gb_per_s", 0) +
           cell(copy > 0 ? fmt::format("{:.2f}", line.value("gb_per_s", 0.0) / copy) : "", " class=n") + number(line, "ms_one_set", 4) +
           number(line, "first_call_ms", 1) + number(other, "eager_ms", 4) + number(other, "compile_ms", 4) +
           cell(other.contains("differs_by") && other["differs_by"].is_number() ? fmt::format("{:.1e}", other["differs_by"].get<double>())
                                                                                : "",
                " class=n") +
           clocks(line) + "</tr>\n";
  }
  out += "</table>\n<h2>All checks</h2><table><tr><th>check<th>status<th>seconds<th>compared<th>differ<th>what</tr>\n";
  for (const Json& line : lines)
    out += fmt::format("<tr class={}>", status_of(line) == "ok" ? "ok" : "bad") + cell(line["check"]) + cell(status_of(line)) +
           number(line, "seconds", 1) + number(line, line.contains("checks") ? "checks" : "compared", 0) + number(line, "differ", 0) +
           "<td><pre>" + escape(remark(line)) + "</pre></td></tr>\n";
  out += "</table>\n<script type=\"application/json\" id=\"lines\">[\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string text = lines[i].dump(-1, ' ', false, Json::error_handler_t::replace);
    for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
      text.replace(at, 2, "<\\/");  // `</` would end the script
    out += text + (i + 1 < lines.size() ? ",\n" : "\n");
  }
  return out + "]</script>\n";
}

}  // namespace onepass::test
