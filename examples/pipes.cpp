// The structure of host code does not affect recordings: pipes, composed lambdas, function objects, nested compiled functions and a
// formula record equal graphs. Prints the graph, walks its nodes, and compares.
#include <onepass/onepass.h>

#include <concepts>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

// Applies f to x, so that x | f | g is g(f(x)).
template <std::invocable<Tensor> F> Tensor operator|(Tensor x, F&& f) { return std::forward<F>(f)(x); }

template <class F> auto compose(F f) { return f; }
template <class F, class... G> auto compose(F f, G... g) {
  return [f, rest = compose(g...)](Tensor x) { return rest(f(x)); };
}

struct Scale {
  Tensor operator()(Tensor x) const { return x * by; }
  float by;
};
struct Standardise {
  Tensor operator()(Tensor x) const { return (x - mean(x, axis, true)) / op::std(x, axis, 0, true); }
  int axis;
};

std::string id(const op::GraphView::Node& node) { return "%" + std::to_string(node.id()); }

std::string list(const std::vector<op::GraphView::Node>& nodes) {
  std::string text;
  for (const op::GraphView::Node& node : nodes) text += (text.empty() ? "" : ", ") + id(node);
  return text.empty() ? "none" : text;
}

std::string file_name(std::string_view source) { return std::string(source.substr(source.rfind('/') + 1)); }

}  // namespace

int main() {
  const Array x = Array::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 7.0f}, {2, 3});
  const auto scale = [](Tensor x) { return x * 2.0f; };
  const auto squash = [](Tensor x) { return tanh(x); };
  const auto standardise = [](Tensor x) { return Standardise{1}(x); };

  std::vector<std::pair<const char*, op::GraphView>> graphs;
  const auto record = [&](const char* name, const auto& function) {
    function(x);
    graphs.emplace_back(name, function.recorded_graph());
  };
  record("written out", op::compile([](Tensor x) {
           const Tensor y = x * 2.0f;
           return tanh((y - mean(y, 1, true)) / op::std(y, 1, 0, true));
         }));
  record("pipes", op::compile([&](Tensor x) { return x | scale | standardise | squash; }));
  record("composed lambdas", op::compile(compose(scale, standardise, squash)));
  record("function objects", op::compile([](Tensor x) { return x | Scale{2.0f} | Standardise{1} | [](Tensor y) { return tanh(y); }; }));
  // A compiled function called with Tensors is recorded into its caller, at any depth.
  const auto inner = op::compile(standardise);
  const auto middle = op::compile([&](Tensor x) { return inner(x * 2.0f); });
  record("nested compiled functions", op::compile([&](Tensor x) { return tanh(middle(x)); }));
  const op::Formula formula = op::formula("y = x*2; out = tanh((y - mean(y, 1, true)) / std(y, 1, 0, true))");
  formula({x});
  graphs.emplace_back("formula", formula.recorded_graph());

  const op::GraphView& first = graphs.front().second;
  std::printf("%s\n", first.text().c_str());
  for (const op::GraphView::Node& node : first)
    std::printf("%-4s %-10s operands: %-14s users: %-14s %s\n", id(node).c_str(), std::string(node.op()).c_str(),
                list(node.operands()).c_str(), list(node.users()).c_str(), file_name(node.source()).c_str());

  std::printf("\n");
  int different = 0;
  for (const auto& [name, graph] : graphs) {
    std::printf("%-26s %zu nodes, %s\n", name, graph.size(), graph == first ? "the same graph" : "ANOTHER GRAPH");
    different += !(graph == first);
  }
  const auto other = op::compile([&](Tensor x) { return x | squash | scale; });
  other(x);
  std::printf("%-26s %zu nodes, %s\n", "another order", other.recorded_graph().size(),
              other.recorded_graph() == first ? "THE SAME GRAPH" : "another graph");
  return different == 0 && !(other.recorded_graph() == first) ? 0 : 1;
}
