// A prompt for formulas over named arrays, for applications with user-written formulas. Errors show their position, and no data is lost.
//
//   calculator [NAME=FILE.npy]...
//
//   > x = iota([5]) / 4
//   > y = sqrt(x) + 1
//   > y
//   > :save y y.npy
#include <onepass/onepass.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace op = onepass;
using op::Array;

namespace {

constexpr const char* kHelp =
    "  y = x*2 + 1        keeps the result as y\n"
    "  a = x*x; b = a + 1 computes both in one pass and keeps what no later statement uses: b\n"
    "  sum(x)             shows a result\n"
    "  :load x FILE.npy   :save x FILE.npy   :names   :explain   :quit\n";

class Calculator {
 public:
  /// Runs one line. False if the user quits.
  bool line(const std::string& text) {
    std::istringstream words(text);
    std::string first, name, path;
    words >> first >> name >> path;
    if (first.empty() || first[0] == '#') return true;
    if (first == ":quit") return false;
    if (first == ":help") std::printf("%s", kHelp);
    else if (first == ":names") names();
    else if (first == ":explain") std::printf("%s", explained_.c_str());
    else if (first == ":load" && !path.empty()) show(name, arrays_[name] = op::load_npy(path));
    else if (first == ":save" && !path.empty()) save(name, path);
    else if (first[0] == ':') std::printf("there is no command %s like this; :help lists them\n", first.c_str());
    else evaluate(text);
    return true;
  }
  void load(const std::string& name, const std::string& path) { show(name, arrays_[name] = op::load_npy(path)); }

 private:
  std::map<std::string, Array> arrays_;
  std::string explained_ = "nothing was computed yet\n";

  void evaluate(const std::string& text) {
    const op::Formula formula = op::formula(text);
    std::vector<op::NamedArgument> arguments;
    for (const std::string& name : formula.inputs()) {
      const auto known = arrays_.find(name);
      if (known == arrays_.end()) {
        std::printf("there is no array %s yet; :names lists them\n", name.c_str());
        return;
      }
      arguments.push_back({name, known->second});
    }
    const op::FormulaResults results = formula(arguments);
    explained_ = formula.explain();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string& name = results.names()[i];
      if (name != "out") arrays_[name] = results[i];
      show(name, results[i]);
    }
  }

  void names() const {
    for (const auto& [name, array] : arrays_) show(name, array);
  }
  void save(const std::string& name, const std::string& path) {
    const auto known = arrays_.find(name);
    if (known == arrays_.end()) std::printf("there is no array %s\n", name.c_str());
    else op::save_npy(path, known->second);
  }

  // Prints the type, and the first elements in row-major order.
  static void show(const std::string& name, const Array& array) {
    constexpr std::int64_t kShown = 6;
    std::string shape;
    for (const std::int64_t extent : array.shape()) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    std::printf("%s: %s[%s]", name.c_str(), std::string(op::name_of(array.dtype())).c_str(), shape.c_str());
    static const op::Formula as_f64 = op::formula("reshape(cast(x, f64), [size(x)])");
    const Array flat = as_f64({array});
    for (std::int64_t i = 0; i < std::min(flat.size(), kShown); ++i) std::printf("%s %.9g", i ? "," : " =", flat.at<double>({i}));
    std::printf(flat.size() > kShown ? ", ...\n" : "\n");
  }
};

}  // namespace

int main(int argc, char** argv) {
  Calculator calculator;
  const auto guarded = [](auto&& action) {
    try {
      return action();
    } catch (const op::Error& error) {  // the user's mistake: the message has its position
      std::printf("%s\n", error.what());
      return true;
    } catch (const std::exception& error) {
      std::printf("calculator: %s\n", error.what());
      return true;
    }
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == word.npos) {
      std::fprintf(stderr, "calculator: %s: write NAME=FILE.npy\n", argv[i]);
      return 2;
    }
    guarded([&] { return calculator.load(word.substr(0, equals), word.substr(equals + 1)), true; });
  }
  for (std::string text; std::cout << "> " << std::flush, std::getline(std::cin, text);)
    if (!guarded([&] { return calculator.line(text); })) return 0;
  std::printf("\n");
}
