// Errors of bounded length: ir/message.
#include <catch2/catch.hpp>

#include <string>

#include "ir/formula.h"
#include "ir/message.h"
#include "onepass/error.h"
#include "onepass/formula.h"
#include "onepass/npy.h"

using onepass::shortened;

namespace {

template <class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const onepass::Error& error) { return error.what(); }
  return "no error";
}

}  // namespace

TEST_CASE("message: a short text is unchanged, a long one keeps short words and the ends of long words", "[message]") {
  CHECK(shortened("mul: a b", 100) == "mul: a b");
  CHECK(shortened("", 100).empty());
  const std::string name = "begin" + std::string(5000, 'x') + "end", text = "there is no input `" + name + "`; its inputs are a";
  const std::string cut = shortened(text, 300);
  CHECK(cut.size() <= 300);
  CHECK(cut.size() > 280);
  CHECK(cut.starts_with("there is no input `beginx"));
  CHECK(cut.ends_with("xend`; its inputs are a"));
  CHECK(cut.find("x…x") != std::string::npos);
  // the longest words are cut most: a short name next to a long name stays whole
  CHECK(shortened(text + " " + std::string(100, 'y'), 400).ends_with(std::string(100, 'y')));
  // many words
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "x" + std::to_string(i) + ", ";
  CHECK(shortened(many, 300).size() <= 300);
  CHECK(shortened(many, 300).starts_with("x0, x1, "));
  CHECK(shortened(many, 300).ends_with("x4998, x4999, "));
}

TEST_CASE("message: code points stay whole, and control characters never reach a terminal", "[message]") {
  for (const std::string point : {"ä", "€", "😀"})
    for (std::size_t most = 16; most < 120; ++most) {
      std::string text;
      for (int i = 0; i < 200; ++i) text += point;
      const std::string cut = shortened(text, most);
      CHECK(cut.size() <= most);
      std::size_t at = 0;
      while (cut.compare(at, point.size(), point) == 0) at += point.size();
      CHECK(cut.compare(at, 3, "…") == 0);
      for (at += 3; at < cut.size(); at += point.size()) CHECK(cut.compare(at, point.size(), point) == 0);
    }
  CHECK(shortened(std::string("a\x1b[2Jb\0c\x7f\td\n", 12), 100) == "a?[2Jb?c?\td\n");
}

TEST_CASE("message: every error is shorter than 2 kB", "[message]") {
  const std::string name(1000, 'n'), path = "/" + std::string(3500, 'p') + "/x.npy";
  CHECK(std::string(onepass::ValueError(std::string(100'000, 'x')).what()).size() < 2000);
  CHECK(std::string(onepass::IoError(std::string(100'000, 'x').c_str()).what()).size() < 2000);
  const std::string io = error_of([&] { static_cast<void>(onepass::load_npy(path)); });
  CHECK(io.size() < 2000);
  CHECK(io.starts_with("load_npy: /ppp"));
  CHECK(io.find("/x.npy: cannot be opened: ") != std::string::npos);
  // A formula's error with a long file name and two long function names. The source line and its caret stay unchanged.
  std::string text = "fn " + name + "a(x) { return x }\nfn " + name + "b(x) { return x }\n" + name + "c(1)";
  const std::string unknown = error_of([&] { static_cast<void>(onepass::formula(text)); });
  CHECK(unknown.size() < 2000);
  CHECK(unknown.find("\n" + std::string(60, 'n') + "…\n^") != std::string::npos);
  const std::string where = error_of([&] { static_cast<void>(onepass::language::parse("\n\n  x +* " + name, path)); });
  CHECK(where.size() < 2000);
  CHECK(where.find("/x.npy:3:6: ") != std::string::npos);
  CHECK(where.find("\n  x +* nnn") != std::string::npos);
  CHECK(where.find("\n     ^") != std::string::npos);
  // Lists of names.
  text.clear();
  for (int i = 0; i < 2000; ++i) text += (i ? " + input_number_" : "input_number_") + std::to_string(i);
  const onepass::Formula formula = onepass::formula(text);
  CHECK(error_of([&] { static_cast<void>(formula({{"x", onepass::Array::zeros({2}, onepass::DType::F32)}})); }).size() < 2000);
}
