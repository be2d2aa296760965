// Materialized values and fusion groups: golden groups as text, and views that add no kernel. Partitions depend on the program and on which
// extents are 0, 1 or more, but not on equality of extents.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "golden.h"
#include "plans_of.h"
#include "random_graph.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

Extents draw(const Golden& golden, std::mt19937_64& random, bool small) {
  static constexpr std::int64_t kSome[] = {2, 3,  4,  5,  6,  7,
                                           8, 12, 16, 31, 32, 64};  // few values, so that equal extents and products are frequent
  Extents out;
  for (const char c : letters_of(golden)) {
    std::int64_t e = 0;
    do e = small && random() % 2 ? static_cast<std::int64_t>(random() % 2) : kSome[random() % std::size(kSome)];
    while (!small && e < golden.many);
    out[c] = e;
  }
  return out;
}

// True if the partition depends on exact lengths (compiler/structure.h).
bool any_has_few_columns(const ir::Graph& graph) {
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (compiler::few_columns(graph, id) > 0) return true;
  return false;
}

std::string text_of(const Extents& extents) {
  std::string out;
  for (const auto& [letter, extent] : extents) out += fmt::format("{}={} ", letter, extent);
  return out;
}

// Returns one line for each fusion group: its domain, and each group output's name or operator with the reason.
std::string groups(const ir::Graph& graph) {
  const Partition partition = fuse(graph);
  std::string out;
  for (const Group& group : partition.groups) {
    std::string roots;
    for (const ir::NodeId id : group.roots) {
      std::string name;
      for (std::size_t k = 0; k < graph.outputs.size(); ++k)
        if (graph.outputs[k] == id) name += (name.empty() ? "" : "=") + graph.output_names[k];
      roots += fmt::format("{}{} {}", roots.empty() ? "" : ", ", name.empty() ? fmt::format("{}", ir::info(graph[id].op).text) : name,
                           text_of(partition.boundary[id]));
    }
    std::string axes;
    for (std::size_t i = 0; i < group.domain.size(); ++i)
      axes += fmt::format("{}{}{}", axes.empty() ? "" : " ", group.domain[i], group.reduced >> i & 1 ? "r" : "");
    out += fmt::format("[{}] {}\n", axes, roots);
  }
  return out;
}
std::string groups(const char* formula, std::vector<std::pair<std::string, Shape>> inputs) { return groups(optimised(formula, inputs)); }

std::size_t kernels(const ir::Graph& graph) { return fuse(graph).groups.size(); }

}  // namespace

TEST_CASE("fuse: golden functions have the expected number of kernels", "[fuse]") {
  for (const Golden& golden : kGolden) {
    Extents extents;
    std::int64_t next = 7;
    for (const char c : letters_of(golden)) extents[c] = next, next += 4;
    const ir::Graph graph = graph_of(golden, extents);
    INFO(golden.name << "\n" << ir::print(graph) << print(graph, fuse(graph)));
    CHECK(kernels(graph) == static_cast<std::size_t>(golden.kernels));
  }
}

TEST_CASE("fuse: a thousand shapes have one partition for each variant", "[fuse][random]") {
  std::mt19937_64 random(1);
  for (const Golden& golden : kGolden) {
    std::string first;
    Extents of_first;
    for (int i = 0; i < 1000; ++i) {
      const Extents extents = draw(golden, random, false);
      const ir::Graph graph = graph_of(golden, extents);
      if (any_has_few_columns(graph)) continue;
      const std::string form = form_of(graph, fuse(graph));
      if (first.empty()) first = form, of_first = extents;
      if (form == first) continue;
      FAIL_CHECK(golden.name << ": " << text_of(of_first) << "\n"
                             << first << "but " << text_of(extents) << "\n"
                             << form << ir::print(graph));
      break;
    }
  }
}

TEST_CASE("fuse: extents of 0 and 1 have one partition for each pattern", "[fuse][random]") {
  std::mt19937_64 random(2);
  for (const Golden& golden : kGolden) {
    std::map<std::string, std::pair<std::string, Extents>> seen;
    for (int i = 0; i < 1000; ++i) {
      const Extents extents = draw(golden, random, true);
      ir::Graph graph;
      try {
        graph = graph_of(golden, extents);
      } catch (const Error&) { continue; }  // a maximum over no elements
      if (any_has_few_columns(graph)) continue;
      std::string pattern;
      for (const auto& [letter, extent] : extents) pattern += fmt::format("{} ", std::min(extent, golden.many));
      const std::string form = form_of(graph, fuse(graph));
      const auto [it, fresh] = seen.try_emplace(pattern, form, extents);
      if (fresh || it->second.first == form) continue;
      FAIL_CHECK(golden.name << ": " << text_of(it->second.second) << "\n"
                             << it->second.first << "but " << text_of(extents) << "\n"
                             << form << ir::print(graph));
      break;
    }
  }
}

TEST_CASE("fuse: fusion groups of golden functions", "[fuse]") {
  struct Row {
    const char* formula;
    std::vector<std::pair<std::string, Shape>> inputs;
    const char* expected;
  };
  const Row rows[] = {
      {"x*s + t", {{"x", {7, 9}}, {"s", {9}}, {"t", {7, 1}}}, "[7 9] out output\n"},
      {"a = x*2; b = a + 1; c = b*y; d = b - y", {{"x", {7, 9}}, {"y", {7, 9}}}, "[7 9] c output, d output\n"},
      {"u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", {{"x", {7, 9}}}, "[7 9r] p output\n"},
      {"x - sum(x)", {{"x", {7, 9}}}, "[7r 9r] out output\n"},
      {"transpose(x/sum(x)) + y",
       {{"x", {7, 9}}, {"y", {9, 7}}},
       "[7r 9r] div a full reduction whose result is read in a different order\n"
       "[9 7] out output\n"},
      {"x1 = x0/sum(x0, axis=1, keepdims=true); x2 = x1/sum(x1, axis=1, keepdims=true); x3 = x2/sum(x2, axis=1, keepdims=true); x4 = "
       "x3/sum(x3, axis=1, keepdims=true); x5 = x4/sum(x4, axis=1, keepdims=true); x6 = x5/sum(x5, axis=1, keepdims=true); x7 = x6/sum(x6, "
       "axis=1, keepdims=true); x8 = x7/sum(x7, axis=1, keepdims=true); x9 = x8/sum(x8, axis=1, keepdims=true); x10 = x9/sum(x9, axis=1, "
       "keepdims=true)",
       {{"x0", {7, 9}}},
       "[7 9r] div recompute\n"
       "[7 9r] div recompute\n"
       "[7 9r] x10 output\n"},
      {"sum(x, axis=0) + sum(x, axis=1)",
       {{"x", {7, 7}}},
       "[7 7r] reduce_sum combined with a reduction over different axes\n"
       "[7r 7] out output\n"},
      {"r = sum(x, axis=0); c = sum(x, axis=1); a = sum(x)",
       {{"x", {7, 9}}},
       "[7 9r] r output, c output\n"
       "[7r 9r] a output\n"},
      {"y = layer_norm(x, g, b); dx, dg, db = vjp(y, [x, g, b], d)",
       {{"x", {7, 9}}, {"g", {9}}, {"b", {9}}, {"d", {7, 9}}},
       "[7 9r] db output, dg output, dx output\n"},
      {"c = sum(x*x, axis=0); r = max(x, axis=1); y = x - sum(x*x, axis=0)",
       {{"x", {7, 9}}},
       "[7 9r] c output, r output\n"
       "[7r 9] y output\n"},
      {"r = sum(x, axis=1, keepdims=true); c = sum(x/r, axis=0); y = x*c",
       {{"x", {7, 9}}},
       "[7 9r] reduce_sum combined with a reduction over different axes\n"
       "[7 9] y output\n"},
      {"sum(max(x, axis=1))",
       {{"x", {7, 9}}},
       "[7 9r] reduce_max a reduction of a reduction\n"
       "[7r] out output\n"},
      {"m = sum(x, axis=1); y = exp(m)*2", {{"x", {7, 9}}}, "[7 9r] y output\n"},
      {"t = exp(x); sum(t*transpose(t), axis=1)", {{"x", {7, 7}}}, "[7 7r] out output\n"},
      {"t = erf(exp(x)); t + transpose(t) + t[::-1]",
       {{"x", {7, 7}}},
       "[7 7] erf recompute\n"
       "[7 7] out output\n"},
      {"p = x*y; a = sum(p, axis=1); b = sum(p, axis=0); q = p + 1",
       {{"x", {7, 9}}, {"y", {7, 9}}},
       "[7 9r] a output, b output, q output\n"},
      {"m = sum(x, axis=1); m[1:] - m[:-1]",
       {{"x", {7, 9}}},
       "[7 9r] reduce_sum a reduction result read by loops that do not share its rows\n"
       "[6] out output\n"},
      {"p = sum(x*w, axis=1); loss = sum((p - y)**2); dw = grad(loss, [w])", {{"x", {7, 9}}, {"w", {9}}, {"y", {7}}}, "[7 9r] dw output\n"},
      {"y = x*s + t; dx, ds, dt = vjp(y, [x, s, t], d)",
       {{"x", {7, 9}}, {"s", {9}}, {"t", {9}}, {"d", {7, 9}}},
       "[7r 9] dt output, dx output, ds output\n"},
  };
  for (const Row& row : rows) {
    INFO(row.formula << "\n" << ir::print(optimised(row.formula, row.inputs)));
    CHECK(groups(row.formula, row.inputs) == row.expected);
  }
}

namespace {

// Views that only move elements, and their inverses. `{}` is replaced by the input x or an intermediate value.
struct Insertion {
  const char* name;
  const char* view;     // applied to `v`
  const char* inverse;  // applied to the view's result
  int rank;             // required rank
};
const Insertion kInsertions[] = {
    {"flattened", "reshape({}, [size({})])", "reshape({}, [7, 9])", 2},
    {"with a unit axis", "reshape({}, [7, 1, 9])", "reshape({}, [7, 9])", 2},
    {"split", "reshape({}, [7, 3, 3])", "reshape({}, [7, 9])", 2},
    {"transposed", "transpose({})", "transpose({})", 2},
    {"flipped", "{}[::-1, ::-1]", "{}[::-1, ::-1]", 2},
    {"sliced whole", "{}[0:, :]", "{}[:, 0:9]", 2},
    {"with an axis more", "expand_dims({}, 0)", "squeeze({}, 0)", 2},
    {"stretched", "broadcast_to(reshape({}, [1, 7, 9]), [1, 7, 9])", "{}[0]", 2},
};
std::string with(std::string_view view, std::string_view value) {
  std::string out;
  for (std::size_t i = 0; i < view.size(); ++i)
    if (view.substr(i, 2) == "{}") out += value, ++i;
    else out += view[i];
  return out;
}

}  // namespace

TEST_CASE("fuse: a view and its inverse add no kernel", "[fuse]") {
  struct Row {
    const char *before, *after;  // a statement that computes v of shape [7, 9], and a statement that uses it
  };
  const Row rows[] = {
      {"v = x*y", "v + 1"},
      {"v = exp(x)*y + 1", "v*y; b = v - 1"},
      {"v = x", "exp(v)*y"},
      {"v = x*y", "sum(v, axis=1)"},
      {"v = x*y", "sum(v, axis=0)"},
      {"v = x*y", "sum(v)"},
      {"v = exp(x - max(x, axis=1, keepdims=true))", "v/sum(v, axis=1, keepdims=true)"},
      {"v = x*sum(x, axis=0, keepdims=true)", "v + 1"},
      {"v = x*sum(x, axis=1, keepdims=true)", "v + 1"},
      {"v = x*sum(x, axis=1, keepdims=true)", "sum(v, axis=1)"},
      {"v = exp(erf(x))", "(v + 1)*y"},
  };
  const std::vector<std::pair<std::string, Shape>> inputs = {{"x", {7, 9}}, {"y", {7, 9}}};
  for (const Row& row : rows) {
    const std::string after = std::string("; a = ") + row.after;
    const std::size_t without = kernels(optimised(row.before + after, inputs));
    for (const Insertion& i : kInsertions) {
      const std::string view = with(i.view, "v"), back = with(i.inverse, "t");
      std::string used = after;
      for (std::size_t at = 0; (at = used.find('v', at)) != std::string::npos; ++at)
        if (!std::isalpha(used[at + 1])) used[at] = 'u';
      const std::string text = std::string(row.before) + "; t = " + view + "; u = " + back + used;
      const ir::Graph graph = optimised(text, inputs);
      INFO(i.name << ": " << text << "\n" << ir::print(graph) << print(graph, fuse(graph)));
      CHECK(kernels(graph) == without);
    }
  }
}

TEST_CASE("fuse: a view of an input, or of a value's only use, adds no kernel", "[fuse]") {
  const std::vector<std::pair<std::string, Shape>> inputs = {{"x", {7, 9}}, {"y", {7, 9}}, {"z", {9, 7}}, {"f", {63}}, {"s", {7, 3, 3}}};
  const char* const rows[] = {
      // views of an input
      "y + transpose(z)",
      "y + reshape(f, [7, 9])",
      "y + reshape(s, [7, 9])",
      "y + x[::-1]",
      "y + x[:, ::-1]*2",
      "y*x[0] + x[:, 2:3]",
      "y + broadcast_to(reshape(x[0], [1, 9]), [7, 9])",
      "sum(transpose(z) + y, axis=1)",
      "sum(reshape(f, [7, 9])*y, axis=0)",
      "p = transpose(z); p/sum(p, axis=1, keepdims=true)",
      "p = x[::-1]; p/sum(p, axis=0, keepdims=true)",
      // views of a value with one use
      "transpose(x + y)",
      "reshape(x + y, [63])",
      "reshape(x*y, [7, 3, 3])",
      "(x + y)[::-1]",
      "(x*y)[:, none]",
      "transpose(x*y) + z",
      "reshape(x*y, [63]) + f",
      "reshape(x*y, [7, 3, 3])*s",
      "(x*y)[::-1] + x",
      "broadcast_to((x*y)[:, none], [7, 1, 9])",
      "transpose(sum(x*y, axis=0, keepdims=true))",
      "reshape(sum(x, axis=1), [7, 1])",
      "sum(reshape(x*y, [63]))",
      "sum(transpose(x*y), axis=0)",
      "sum((x*y)[::-1], axis=0)",
      "transpose(x/sum(x, axis=1, keepdims=true))",
      "reshape(x/sum(x, axis=1, keepdims=true), [63])",
      "(x/sum(x, axis=1, keepdims=true))[::-1]",
      "(x/sum(x, axis=1, keepdims=true))[:, ::-1]",
  };
  for (const char* text : rows) {
    const ir::Graph graph = optimised(text, inputs);
    INFO(text << "\n" << ir::print(graph) << print(graph, fuse(graph)));
    CHECK(kernels(graph) == 1);
  }
}

TEST_CASE("fuse: nested stencils are materialized if recomputation costs more than the memory round trip", "[fuse]") {
  std::string formula = "y0 = x";
  for (int i = 0; i < 20; ++i)
    formula += fmt::format("; y{1} = y{0}[1:-1, 1:-1]*0.5 + y{0}[2:, 1:-1] + y{0}[:-2, 1:-1] + y{0}[1:-1, 2:] + y{0}[1:-1, :-2]", i, i + 1);
  const ir::Graph graph = optimised(formula, {{"x", {100, 90}}});
  const Partition partition = fuse(graph);
  CHECK(partition.groups.size() <= 20);
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    CHECK((partition.boundary[id] == Boundary::Inlined || partition.boundary[id] == Boundary::Recompute ||
           partition.boundary[id] == Boundary::Output));
  // subdomains: a reduction's operand is materialized if it joins many boxes, but inlined if it joins few
  CHECK(fuse(optimised("sum(concat([x, x, 2*x], 0), axis=1)", {{"x", {100, 90}}})).groups.size() == 1);
  CHECK(fuse(optimised("sum(concat([x, x, x, x, x, 2*x], 0), axis=1)", {{"x", {100, 90}}})).groups.size() == 2);
  CHECK(fuse(optimised("concat([x, x, x, x, x, 2*x], 0) + 1", {{"x", {100, 90}}})).groups.size() == 1);
}

TEST_CASE("fuse: a value that varies along a result axis twice is materialized", "[fuse]") {
  CHECK(groups("a = sum(x, 0); y = a[:, none] - a", {{"x", {4, 8}}}) ==
        "[4r 8] reduce_sum combined with a reduction over different axes\n[8 8] y output\n");
  CHECK(groups("c = cumsum(x, 0); y = c + transpose(c)", {{"x", {7, 7}}}) ==
        "[7 7] scan_sum combined with a reduction over different axes\n[7 7] y output\n");
  CHECK(groups("a = sum(x, 0); y = a[:, none] * x[:, :1] - a", {{"x", {8, 8}}}).find("[8 8] y output") != std::string::npos);
}

TEST_CASE("fuse: a kernel has at most one matrix product, and a product is computed once", "[fuse]") {
  const std::vector<std::pair<std::string, compiler::Shape>> inputs = {{"x", {40, 30}}, {"w", {30, 50}}, {"u", {30, 50}}, {"d", {40, 50}}};
  const auto products = [&](std::string_view formula) {  // products of each kernel
    const ir::Graph graph = test::optimised(formula, inputs);
    std::vector<std::int64_t> out;
    for (const compiler::Planned& p : test::plans_of(graph))
      out.push_back(std::ranges::count_if(p.nest.body, [](const compiler::Statement& s) { return s.op == ir::Op::ContractRows; }));
    return out;
  };
  CHECK(products("a = x @ w; b = x @ u") == std::vector<std::int64_t>{1, 1});
  CHECK(products("tanh(x @ w + x @ u)") == std::vector<std::int64_t>{1, 1});
  CHECK(products("a = x @ w; b = tanh(a); c = a*2") == std::vector<std::int64_t>{1});
  // read by rows, and by a value that needs the row sums
  CHECK(products("a = (x @ w)*d; p = sum(a, 1, keepdims=true); y = transpose(p)@((x @ w)*p)") == std::vector<std::int64_t>{1, 0, 1});
}

TEST_CASE("fuse: a value that other loops read through cheap operators is materialized instead of their results", "[fuse]") {
  // both sums along the other axis read x and the mean, from which d takes one operator
  const std::string both = groups("d = x - mean(x, 2, keepdims=true); a = sum(d*d, 1); b = sum(abs(d), 1); y = d*2", {{"x", {40, 50, 6}}});
  INFO(both);
  CHECK(both.find("div ") != std::string::npos);
  CHECK(both.find("sub ") == std::string::npos);
  CHECK(both.find("mul ") == std::string::npos);
  CHECK(both.find("abs ") == std::string::npos);
  // a scan is not computed again for each of its uses
  const std::string scans = groups("y = cumsum(x, 0) / sum(abs(x)); z = cumsum(y, 0) / sum(abs(y))", {{"x", {1000}}});
  INFO(scans);
  CHECK(scans.find("div ") != std::string::npos);
  CHECK(scans.find("abs ") == std::string::npos);
}

TEST_CASE("fuse: repeated normalization materializes the normalized values every few steps", "[fuse]") {
  std::string formula = "x0 = x";
  for (int k = 0; k < 24; ++k) formula += fmt::format("; x{0} = x{1} / sqrt(mean(x{1}*x{1}))", k + 1, k);
  const ir::Graph graph = optimised((formula + "; x24").c_str(), {{"x", {100000}}});
  const Partition partition = fuse(graph);
  INFO(print(graph, partition));
  CHECK(partition.groups.size() <= 12);
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
    for (const ir::NodeId id : partition.groups[g].roots) {
      CHECK(graph[id].op == ir::Op::Div);
      // the divisions between this value and the values that its group loads
      int divisions = 0;
      for (ir::NodeId at = id; !partition.loads(graph, at, g) && graph[at].op == ir::Op::Div; at = graph.operand(at, 0)) ++divisions;
      CHECK(divisions <= 4);
    }
}

TEST_CASE("fuse: factors of a row that are read once for the row and along it are not materialized", "[fuse]") {
  const ir::Graph graph = optimised(
      "m = mean(x, axis=1, keepdims=true); d = x - m; r = 1/sqrt(mean(d*d, axis=1, keepdims=true) + 0.1);"
      " k = sum(g*w*d, axis=1, keepdims=true)*-0.5*r*r*r; a = sum(g*w, axis=1, keepdims=true)*r + 2*k*sum(d, axis=1, keepdims=true);"
      " dx = g*w*r + 2*k*d - a; dw = sum(g*d*r, axis=0)",
      {{"x", {400, 500}}, {"w", {500}}, {"g", {400, 500}}});
  const Partition partition = fuse(graph);
  INFO(print(graph, partition));
  CHECK(partition.groups.size() == 1);
}

TEST_CASE("fuse: repeated values are stored for a reduction whose last axis is short", "[fuse]") {
  const std::vector<std::pair<std::string, Shape>> given = {{"x", {400, 500}}, {"w", {3}}, {"y", {400, 500, 3}}};
  for (const char* stored :
       {"sum(x[:, :, none]*w)", "sum(x[:, :, none]*w, [1, 2])", "sum(tanh(repeat(x, 2, 1)), 1)", "max(repeat(x, 3, 1)*2)"}) {
    INFO(stored);
    CHECK(groups(optimised(stored, given)).find("has few vector lanes in use") != std::string::npos);
  }
  for (const char* fused :
       {"sum(x[:, :, none]*w, 2)", "sum(x[:, :, none]*w, [0, 1])", "sum(y*2)", "sum(repeat(x, 9, 1)*2, 1)", "sum(repeat(x, 2, 1), 0)"}) {
    INFO(fused);
    CHECK(kernels(optimised(fused, given)) == 1);
  }
}

TEST_CASE("fuse: later kernels load results of reductions", "[fuse]") {
  // Checks that one fusion group computes each reduction, and how many values a fusion group loads at most.
  const auto check = [](const ir::Graph& graph, int most) {
    const Partition partition = fuse(graph);
    INFO(print(graph, partition));
    std::vector<int> times(graph.size());
    for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
      std::vector<ir::NodeId> open = partition.groups[g].roots;
      std::vector<bool> met(graph.size(), false);
      int loaded = 0;
      while (!open.empty()) {
        const ir::NodeId id = open.back();
        open.pop_back();
        if (met[id]) continue;
        met[id] = true;
        if (partition.loads(graph, id, g)) {
          ++loaded;
          continue;
        }
        if (ir::is_reduction(graph[id].op)) ++times[id];
        for (const std::int64_t o : graph.operands(id)) open.push_back(static_cast<ir::NodeId>(o));
      }
      CHECK(loaded <= most);
    }
    CHECK(std::ranges::max(times) == 1);
  };
  // A simulation: a cell above the limit gives to its neighbours. A step counts only if all steps before it had such a cell.
  std::string formula = "x0 = x; run0 = sum(x) > 0";
  for (int k = 0; k < 24; ++k)
    formula += fmt::format(
        "; t{0} = cast(x{0} > 3, i32); run{1} = run{0} and any(x{0} > 3);"
        " x{1} = where(run{1}, x{0} - 2*t{0} + pad(t{0}, [1], [0])[:-1] + pad(t{0}, [0], [1])[1:], x{0})",
        k, k + 1);
  check(optimised((formula + "; x24").c_str(), {{"x", {1000}}}, i32), 12);
  // The sum of a row is read again after a stencil across the rows.
  check(optimised("m = mean(x, 1, keepdims=true); u = exp(tanh(x - m)); y = u + 2*pad(u, [1, 0], [0, 0])[:-1] + m", {{"x", {400, 500}}}),
        3);
}

TEST_CASE("fuse: values that alternate along the last axis are materialized where each must be selected", "[fuse]") {
  const std::vector<std::pair<std::string, Shape>> two = {{"a", {40, 50}}, {"b", {40, 50}}};
  // The values are materialized if a reduction reads them. Otherwise, one kernel stores them next to each other.
  CHECK(groups("y = reshape(stack([a, b], -1), [40, -1]); out = y / sqrt(mean(y*y, 1, keepdims=true))", two).find("piecewise recompute") !=
        std::string::npos);
  CHECK(kernels(optimised("reshape(stack([a, b], -1), [40, -1])*2", two)) == 1);
  // The same for nested stacks.
  CHECK(kernels(optimised("y = reshape(stack([a + b, a - b], 2), [40, 100]); out = reshape(stack([y + 1, y - 1], 2), [40, 200])", two)) ==
        2);
  // Elements with gaps between them: their reader is materialized, not the view itself, which nothing would read.
  const std::string gaps = groups("mean(put(a, [:, 1::3], c))", {{"a", {40, 50}}, {"c", {40, 17}}});
  INFO(gaps);
  CHECK(gaps.find("where recompute") != std::string::npos);
  CHECK(gaps.find("pad ") == std::string::npos);
  // Boxes of different steps have separate kernels; boxes of one step share a kernel.
  const std::vector<std::pair<std::string, Shape>> one = {{"x", {1000}}};
  CHECK(kernels(optimised("put(put(put(x, [4::2], 1), [6::3], 2), [10::5], 3)", one)) == 3);
  CHECK(kernels(optimised("put(put(x, [4::2], 1), [5::2], 2)", one)) == 1);
}
