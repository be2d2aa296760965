#include "tools/onepass_picture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/os.h"
#include "tools/onepass_command.h"

namespace onepass::command {

namespace {

using Kernel = ExecutionRecord::Kernel;
using Node = ExecutionRecord::Node;

constexpr std::array<int, 8> kHues = {212, 28, 152, 278, 345, 95, 188, 48};

bool is_plain(const Node& n) { return n.kind == "slot" || n.kind == "constant"; }

// Returns the operator's name, with its one or two constants.
std::string label_of(const ExecutionRecord& record, const Node& n) {
  std::string text = n.op;
  std::vector<std::string> numbers;
  for (const std::uint32_t o : n.operands) {
    const Node& operand = record.nodes[o];
    if (operand.kind != "constant") continue;
    const std::size_t begin = operand.text.find(' ') + 1;
    numbers.push_back(operand.text.substr(begin, operand.text.find(' ', begin) - begin));
  }
  if (!numbers.empty() && numbers.size() <= 2 && n.kind != "view") text += fmt::format(" {}", fmt::join(numbers, ", "));
  return text.size() > 26 ? text.substr(0, 25) + "…" : text;
}

std::string escaped(std::string_view text, bool xml) {
  std::string out;
  for (const char c : text) {
    if (xml && c == '&') out += "&amp;";
    else if (xml && c == '<') out += "&lt;";
    else if (xml && c == '>') out += "&gt;";
    else if (c == '"') out += xml ? "&quot;" : "\\\"";
    else if (!xml && c == '\\') out += "\\\\";
    else out += c;
  }
  return out;
}

std::string title_of(const ExecutionRecord& record, std::size_t k) {
  return fmt::format("kernel {}{}", k, record.kernels[k].backward ? ", backward" : "");
}
std::string bytes_of(const Kernel& kernel) {
  return fmt::format("{} in, {} out", bytes_text(kernel.bytes_read), bytes_text(kernel.bytes_written));
}

// ---- layering

struct Item {
  double w = 0, h = 0;
  std::vector<std::size_t> from;  // indices of its sources
  double x = 0, y = 0;
};

struct Size {
  double width = 0, height = 0;
};

// Arranges items in layers by their dependencies, and orders each layer by the mean position of the neighbors. Then moves each item as
// close below its sources as the layer allows.
Size arrange(std::vector<Item>& items, double gap_x, double gap_y) {
  const std::size_t n = items.size();
  std::vector<std::size_t> depth(n, 0);
  std::vector<std::vector<std::size_t>> uses(n);
  for (std::size_t i = 0; i < n; ++i)
    for (const std::size_t f : items[i].from) uses[f].push_back(i), depth[i] = std::max(depth[i], depth[f] + 1);
  for (std::size_t i = n; i-- > 0;)
    if (items[i].from.empty() && !uses[i].empty()) {
      std::size_t first = depth[uses[i][0]];
      for (const std::size_t u : uses[i]) first = std::min(first, depth[u]);
      depth[i] = first > 0 ? first - 1 : 0;
    }
  std::vector<std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < n; ++i) {
    if (rows.size() <= depth[i]) rows.resize(depth[i] + 1);
    rows[depth[i]].push_back(i);
  }
  std::vector<double> place(n);
  const auto number = [&](const std::vector<std::size_t>& row) {
    for (std::size_t x = 0; x < row.size(); ++x) place[row[x]] = static_cast<double>(x) - static_cast<double>(row.size() - 1) / 2;
  };
  for (const auto& row : rows) number(row);
  for (int round = 0; round < 6; ++round)
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::vector<std::size_t>& row = rows[round % 2 ? rows.size() - 1 - r : r];
      std::vector<std::pair<double, std::size_t>> order;
      for (const std::size_t i : row) {
        const std::vector<std::size_t>& near = round % 2 ? uses[i] : items[i].from;
        double sum = 0;
        for (const std::size_t j : near) sum += place[j];
        order.emplace_back(near.empty() ? place[i] : sum / static_cast<double>(near.size()), i);
      }
      std::ranges::sort(order);
      for (std::size_t x = 0; x < row.size(); ++x) row[x] = order[x].second;
      number(row);
    }
  double width = 0, y = 0;
  const auto width_of = [&](const std::vector<std::size_t>& row) {
    double w = row.empty() ? 0 : -gap_x;
    for (const std::size_t i : row) w += items[i].w + gap_x;
    return w;
  };
  for (const auto& row : rows) width = std::max(width, width_of(row));
  std::vector<double> centre(n);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<std::size_t>& row = rows[r];
    if (row.empty()) continue;
    double height = 0, x = (width - width_of(row)) / 2;
    std::vector<double> at;
    for (const std::size_t i : row) {
      height = std::max(height, items[i].h);
      double wish = x + items[i].w / 2;
      x += items[i].w + gap_x;
      if (!items[i].from.empty()) {
        wish = 0;
        for (const std::size_t f : items[i].from) wish += centre[f];
        wish /= static_cast<double>(items[i].from.size());
      }
      at.push_back(wish);
    }
    const auto apart = [&](std::size_t a) { return (items[row[a]].w + items[row[a + 1]].w) / 2 + gap_x; };
    for (std::size_t a = 0; a + 1 < row.size(); ++a) at[a + 1] = std::max(at[a + 1], at[a] + apart(a));
    at.back() = std::min(at.back(), width - items[row.back()].w / 2);
    for (std::size_t a = row.size() - 1; a-- > 0;) at[a] = std::min(at[a], at[a + 1] - apart(a));
    const double under = std::max(0.0, items[row[0]].w / 2 - at[0]);
    for (std::size_t a = 0; a < row.size(); ++a) {
      Item& item = items[row[a]];
      centre[row[a]] = at[a] + under;
      item.x = centre[row[a]] - item.w / 2;
      item.y = y + (height - item.h) / 2;
    }
    y += height + (r + 1 < rows.size() ? gap_y : 0);
  }
  Size size{0, y};
  for (const Item& item : items) size.width = std::max(size.width, item.x + item.w);
  return size;
}

double text_width(std::string_view text, double size = 6.8) {
  double letters = 0;
  for (const char c : text) letters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return letters * size;
}

std::string curve(double x1, double y1, double x2, double y2) {
  const double d = std::max(14.0, (y2 - y1) / 2);
  return fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x1, y1, x1, y1 + d, x2, y2 - d, x2, y2);
}

// Drawn parts of a kernel: a port for each loaded value, its operators, and a port for each stored value.
struct Inside {
  enum class What : std::uint8_t { Port, Operator, Store };
  struct Part {
    What what;
    std::uint32_t id;
    std::string text;
  };
  std::vector<Part> parts;
  std::vector<Item> items;
  double w = 0, h = 0;
  std::map<std::uint32_t, std::size_t> port, store;  // by node: index in `items`
};

Inside inside_of(const ExecutionRecord& record, std::size_t k) {
  const Kernel& kernel = record.kernels[k];
  Inside in;
  std::map<std::uint32_t, std::size_t> place;
  const auto add = [&](Inside::What what, std::uint32_t id, std::string text, Item item) {
    place[id] = in.items.size();
    in.parts.push_back({what, id, std::move(text)});
    in.items.push_back(std::move(item));
  };
  for (const std::uint32_t id : kernel.reads)
    if (!is_plain(record.nodes[id])) in.port[id] = in.items.size(), add(Inside::What::Port, id, "", {8, 8, {}});
  for (const std::uint32_t id : kernel.nodes) {
    const Node& n = record.nodes[id];
    if (is_plain(n)) continue;
    std::string text = label_of(record, n);
    Item item{std::max(34.0, text_width(text) + 20), 24, {}};
    for (const std::uint32_t o : n.operands)
      if (const auto from = place.find(o); from != place.end() && std::ranges::find(item.from, from->second) == item.from.end())
        item.from.push_back(from->second);
    add(Inside::What::Operator, id, std::move(text), std::move(item));
  }
  for (const ExecutionRecord::Stored& s : kernel.stores) {
    const auto from = place.find(s.node);
    in.store[s.node] = in.items.size();
    in.parts.push_back({Inside::What::Store, s.node, ""});
    in.items.push_back({12, 8, from == place.end() ? std::vector<std::size_t>() : std::vector<std::size_t>{from->second}});
  }
  const Size size = arrange(in.items, 12, 20);
  in.w = std::max({size.width + 32, text_width(title_of(record, k), 7.6) + 28, text_width(kernel.loops, 6.2) + 28,
                   text_width(bytes_of(kernel), 6.2) + 28, 150.0});
  in.h = size.height + 74;
  double bottom = 0;
  for (Item& item : in.items) item.x += (in.w - size.width) / 2, item.y += 60, bottom = std::max(bottom, item.y + item.h);
  for (std::size_t i = 0; i < in.items.size(); ++i) {
    if (in.parts[i].what == Inside::What::Port) in.items[i].y = 54;
    if (in.parts[i].what == Inside::What::Store) in.items[i].y = bottom - 2;
  }
  return in;
}

}  // namespace

std::string svg_of(const ExecutionRecord& record) {
  struct Unit {
    std::size_t kernel = ~std::size_t{0};
    std::uint32_t node = 0;
    std::string title, sub;
    bool is_result = false;
  };
  std::vector<Unit> units;
  std::vector<Item> items;
  std::vector<Inside> insides(record.kernels.size());
  std::map<std::uint32_t, std::size_t> made;  // the unit that computes each value
  std::set<std::uint32_t> read;
  for (const Kernel& kernel : record.kernels) read.insert(kernel.reads.begin(), kernel.reads.end());
  const auto add_pill = [&](Unit unit, std::vector<std::size_t> from) {
    items.push_back({std::max(text_width(unit.title, 7.2), text_width(unit.sub, 6.2)) + 26, 40, std::move(from)});
    units.push_back(std::move(unit));
  };
  for (const Node& n : record.nodes)
    if (n.kind == "input" && read.contains(n.id)) made[n.id] = units.size(), add_pill({.node = n.id, .title = n.name, .sub = n.type}, {});
  for (std::size_t k = 0; k < record.kernels.size(); ++k) {
    insides[k] = inside_of(record, k);
    std::set<std::size_t> from;
    for (const std::uint32_t id : record.kernels[k].reads)
      if (const auto unit = made.find(id); unit != made.end()) from.insert(unit->second);
    for (const ExecutionRecord::Stored& s : record.kernels[k].stores) made[s.node] = units.size();
    units.push_back({.kernel = k});
    items.push_back({insides[k].w, insides[k].h, {from.begin(), from.end()}});
  }
  for (const ExecutionRecord::Output& o : record.outputs) {
    const auto from = made.find(o.node);
    add_pill({.node = o.node, .title = o.name, .sub = record.nodes[o.node].type, .is_result = true},
             from == made.end() ? std::vector<std::size_t>() : std::vector<std::size_t>{from->second});
  }
  const Size size = arrange(items, 34, 62);

  constexpr double kPad = 24;
  std::string trips, boxes, notes;
  double wide = size.width;
  const auto note = [&](double x, double y, std::string_view text) {
    notes += fmt::format("<text class=\"small halo\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y, escaped(text, true));
    wide = std::max(wide, x + text_width(text, 6));
  };
  const auto end_of = [&](std::uint32_t id) -> std::optional<std::pair<double, double>> {
    const auto unit = made.find(id);
    if (unit == made.end()) return std::nullopt;
    const Item& item = items[unit->second];
    double x = item.x + item.w / 2;
    if (const std::size_t k = units[unit->second].kernel; k < insides.size()) {
      const Item& store = insides[k].items[insides[k].store.at(id)];
      x = item.x + store.x + store.w / 2;
    }
    return std::pair(x, item.y + item.h);
  };
  const auto trip = [&](std::uint32_t id, double x, double y) {
    if (const auto from = end_of(id))
      trips += fmt::format("<path class=\"trip\" stroke-width=\"{:.1f}\" d=\"{}\"/>\n",
                           std::clamp(1.2 + std::log2(1 + static_cast<double>(record.nodes[id].bytes) / 4096) * 0.42, 1.5, 7.0),
                           curve(from->first, from->second, x, y));
  };
  for (std::size_t u = 0; u < units.size(); ++u) {
    const Unit& unit = units[u];
    const Item& box = items[u];
    if (unit.kernel >= insides.size()) {
      boxes += fmt::format(
          "<g class=\"{}\"><rect class=\"pill\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"40\" rx=\"10\"/><text class=\"title\" "
          "x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text><text class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"middle\">{}</text></g>\n",
          unit.is_result ? "result" : "input", box.x, box.y, box.w, box.x + box.w / 2, box.y + 17, escaped(unit.title, true),
          box.x + box.w / 2, box.y + 32, escaped(unit.sub, true));
      if (unit.is_result) trip(unit.node, box.x + box.w / 2, box.y);
      note(box.x + box.w / 2 + 8, unit.is_result ? box.y - 7 : box.y + box.h + 14, bytes_text(record.nodes[unit.node].bytes));
      continue;
    }
    const Kernel& kernel = record.kernels[unit.kernel];
    const Inside& in = insides[unit.kernel];
    for (const auto& [id, port] : in.port) {
      const double x = box.x + in.items[port].x + 4;
      trip(id, x, box.y);
      trips += fmt::format("<path class=\"trip\" stroke-width=\"1.4\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, box.y, box.y + 58);
    }
    std::string wires, parts;
    for (std::size_t i = 0; i < in.items.size(); ++i) {
      const Item& item = in.items[i];
      const double x = box.x + item.x, y = box.y + item.y;
      for (const std::size_t f : item.from) {
        const Item& from = in.items[f];
        wires +=
            fmt::format("<path class=\"wire\" d=\"{}\"/>", curve(box.x + from.x + from.w / 2, box.y + from.y + from.h, x + item.w / 2, y));
      }
      switch (in.parts[i].what) {
        case Inside::What::Port:
          parts += fmt::format("<circle class=\"port\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\"/>", x + 4, y + 4);
          break;
        case Inside::What::Store:
          parts += fmt::format(
              "<rect class=\"port\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"6\" rx=\"2\"/><path class=\"trip\" "
              "stroke-width=\"1.6\" "
              "d=\"M{:.1f} {:.1f}V{:.1f}\"/>",
              x, y, x + 6, y + 6, box.y + box.h);
          break;
        case Inside::What::Operator:
          parts += fmt::format(
              "<g class=\"{}\"><title>%{} {}</title><rect class=\"pill\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"24\" "
              "rx=\"12\"/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text></g>",
              record.nodes[in.parts[i].id].kind, in.parts[i].id, escaped(record.nodes[in.parts[i].id].type, true), x, y, item.w,
              x + item.w / 2, y + 16, escaped(in.parts[i].text, true));
      }
    }
    boxes += fmt::format(
        "<g class=\"kernel{}\" style=\"--h:{}\"><rect class=\"box\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"14\"/>\n<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text><text class=\"small\" x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text><text "
        "class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n{}\n{}</g>\n",
        kernel.backward ? " backward" : "", kHues[unit.kernel % kHues.size()], box.x, box.y, box.w, box.h, box.x + 14, box.y + 22,
        title_of(record, unit.kernel), box.x + 14, box.y + 37, escaped(kernel.loops, true), box.x + 14, box.y + 51, bytes_of(kernel), wires,
        parts);
    for (const ExecutionRecord::Stored& s : kernel.stores)
      if (s.reason != BoundaryReason::output) {
        const auto from = end_of(s.node);
        note(from->first + 8, from->second + 15, fmt::format("stored: {}", name_of(s.reason)));
      }
  }
  const double w = wide + 2 * kPad, h = size.height + 2 * kPad;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"{} {} {:.0f} {:.0f}\" "
             "role=\"img\" aria-label=\"{} kernels\">\n<style>\n",
             w, h, -kPad, -kPad, w, h, record.kernels.size()) +
         R"(text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1c1f26; } .small { font-size: 11px; fill: #565c69; }
.title { font-weight: 650; font-size: 13px; } .halo { paint-order: stroke; stroke: #fff; stroke-width: 4px; }
.box { fill: hsl(var(--h) 62% 95%); stroke: hsl(var(--h) 52% 42%); stroke-width: 1.6; } .backward > .box { stroke-dasharray: 6 3; }
.pill { fill: #fff; stroke: hsl(220 15% 65%); } .view .pill { fill: none; stroke-dasharray: 2.5 2.5; }
.reduction .pill, .scan .pill { stroke-width: 2; stroke: hsl(var(--h) 52% 42%); } .input .pill { stroke: #1c1f26; stroke-width: 1.3; }
.result .pill { fill: #1c1f26; } .result text { fill: #fff; } .wire, .trip { fill: none; stroke: #8d93a1; } .wire { opacity: .75; }
.port { fill: hsl(var(--h) 52% 42%); }
</style>
)" + fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#fff\"/>\n", -kPad, -kPad, w, h) +
         trips + boxes + notes + "</svg>\n";
}

std::string dot_of(const ExecutionRecord& record) {
  std::string out =
      "digraph onepass {\n  rankdir=TB; compound=true; fontname=\"DejaVu Sans\"; node [fontname=\"DejaVu Sans\", fontsize=11, shape=box, "
      "style=\"rounded,filled\", fillcolor=white]; edge [color=\"#8d93a1\", fontname=\"DejaVu Sans\", fontsize=10];\n";
  std::map<std::uint32_t, std::string> made;
  std::set<std::uint32_t> read;
  for (const Kernel& kernel : record.kernels) read.insert(kernel.reads.begin(), kernel.reads.end());
  for (const Node& n : record.nodes) {
    if (n.kind != "input" || !read.contains(n.id)) continue;
    made[n.id] = fmt::format("i{}", n.id);
    out += fmt::format("  i{} [label=\"{}\\n{}\", penwidth=1.5];\n", n.id, escaped(n.name, false), n.type);
  }
  for (std::size_t k = 0; k < record.kernels.size(); ++k) {
    const Kernel& kernel = record.kernels[k];
    out += fmt::format(
        "  subgraph cluster_{} {{\n    label=\"{}\\l{}\\l{}\\l\"; labeljust=l; fontsize=11; style=\"rounded,filled{}\"; color=\"{:.3f} 0.6 "
        "0.6\"; "
        "fillcolor=\"{:.3f} 0.06 0.99\";\n",
        k, title_of(record, k), kernel.loops, bytes_of(kernel), kernel.backward ? ",dashed" : "", kHues[k % kHues.size()] / 360.0,
        kHues[k % kHues.size()] / 360.0);
    std::set<std::uint32_t> inside;
    std::string edges;
    for (const std::uint32_t id : kernel.nodes) {
      const Node& n = record.nodes[id];
      if (is_plain(n)) continue;
      inside.insert(id);
      out += fmt::format("    k{}_{} [label=\"{}\", tooltip=\"%{} {}\"{}];\n", k, id, escaped(label_of(record, n), false), id, n.type,
                         n.kind == "view"        ? ", style=\"rounded,dashed\""
                         : n.kind == "reduction" ? ", penwidth=2"
                                                 : "");
      for (const std::uint32_t o : n.operands) {
        if (inside.contains(o)) edges += fmt::format("  k{}_{} -> k{}_{};\n", k, o, k, id);
        else if (const auto from = made.find(o); from != made.end())
          edges += fmt::format("  {} -> k{}_{} [penwidth=2, label=\" {}\"];\n", from->second, k, id, bytes_text(record.nodes[o].bytes));
      }
    }
    out += "  }\n" + edges;
    for (const ExecutionRecord::Stored& s : kernel.stores) {
      made[s.node] = fmt::format("k{}_{}", k, s.node);
      if (s.reason == BoundaryReason::output) continue;
      const std::string note = fmt::format("s{}_{}", k, s.node);  // the note between the kernels gives the reason
      out += fmt::format("  {} [label=\"stored: {}\\n{}\", style=\"\", shape=plain, tooltip=\"{}\"];\n  {} -> {} [penwidth=2];\n", note,
                         name_of(s.reason), bytes_text(record.nodes[s.node].bytes), escaped(s.sentence, false), made[s.node], note);
      made[s.node] = note;
    }
  }
  for (std::size_t o = 0; o < record.outputs.size(); ++o) {
    const ExecutionRecord::Output& output = record.outputs[o];
    out += fmt::format("  o{} [label=\"{}\\n{}\", fillcolor=\"#1c1f26\", fontcolor=white];\n", o, escaped(output.name, false),
                       record.nodes[output.node].type);
    if (const auto from = made.find(output.node); from != made.end())
      out += fmt::format("  {} -> o{} [penwidth=2, label=\" {}\"];\n", from->second, o, bytes_text(record.nodes[output.node].bytes));
  }
  return out + "}\n";
}

std::string svg_by_graphviz(const std::string& dot) {
  const std::string program = os::environment("ONEPASS_DOT").value_or("dot");
  if (program == "none") return {};
  int in[2], back[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return {};
  if (::pipe2(back, O_CLOEXEC) != 0) {
    ::close(in[0]), ::close(in[1]);
    return {};
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, back[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string name = program, form = "-Tsvg";
  char* const words[] = {name.data(), form.data(), nullptr};
  char* const no_environment[] = {nullptr};
  pid_t child = 0;
  const bool started = ::posix_spawnp(&child, name.c_str(), &actions, nullptr, words, no_environment) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]), ::close(back[1]);
  std::string svg;
  if (started) {
    // Reads and writes at the same time, because `dot` may write before it has read everything.
    struct sigaction ignore = {}, before = {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before);
    ::fcntl(in[1], F_SETFL, O_NONBLOCK);
    std::size_t sent = 0;
    char buffer[1 << 16];
    for (bool reading = true; reading;) {
      pollfd files[2] = {{back[0], POLLIN, 0}, {sent < dot.size() ? in[1] : -1, POLLOUT, 0}};
      if (::poll(files, 2, -1) < 0 && errno != EINTR) break;
      if (files[1].revents != 0) {
        const ssize_t n = ::write(in[1], dot.data() + sent, dot.size() - sent);
        if (n > 0) sent += static_cast<std::size_t>(n);
        else if (n < 0 && errno != EAGAIN && errno != EINTR) sent = dot.size();
        if (sent == dot.size()) ::close(in[1]), in[1] = -1;
      }
      if (files[0].revents != 0) {
        const ssize_t n = ::read(back[0], buffer, sizeof buffer);
        if (n > 0) svg.append(buffer, static_cast<std::size_t>(n));
        else if (n == 0 || errno != EINTR) reading = false;
      }
    }
    ::sigaction(SIGPIPE, &before, nullptr);
  }
  if (in[1] >= 0) ::close(in[1]);
  ::close(back[0]);
  int status = 0;
  if (started)
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return started && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? svg : std::string();
}

}  // namespace onepass::command
