// The printed form of a graph and its parser. Every dump is a reproducer, and tests can be written as text.
//
//   slot 0 = 2.5 = 0x40200000 : f32               values of all scalar parameters, first; a float is followed by its bits, which take
//                                                 precedence
//   %0 = input x : f32[32, 64]                    `input x #3` if it is not the next input; names that are not words are quoted
//   %1 = constant 0.1 = 0x3dcccccd : f32[]        in hand-written text the bits may be omitted: the nearest value
//   %2 = slot 0 : f32[4]                          in hand-written text `slot 0 = 2.5 : f32[4]` also declares the slot
//   %3 = reduce_sum %0 {1} : f32[32]              operands, then attributes in braces
//   return y = %3, %2                             either all outputs have names or no output has one
//
// Comments start with //. Labels may have gaps; equal nodes become one.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ir/verify.h"
#include "onepass/error.h"

namespace onepass::ir {
namespace {

constexpr bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_word(char c) { return is_word_start(c) || is_digit(c); }

// ---- printing

std::string name_text(std::string_view name) {
  bool word = !name.empty() && is_word_start(name[0]);
  for (char c : name) word = word && is_word(c);
  if (word) return std::string(name);
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (u < 0x20 || u == 0x7f) out += "\\x", out += digits[u >> 4], out += digits[u & 15];
    else out += c;
  }
  return out + '"';
}

template <class T> std::string number_text(T value, int base = 10) {
  char buffer[64];
  std::to_chars_result end{};
  if constexpr (std::is_integral_v<T>) end = std::to_chars(buffer, buffer + sizeof buffer, value, base);
  else end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

std::string value_text(DType dtype, std::uint64_t bits) {
  if (is_float(dtype)) {
    const bool wide = dtype == DType::F64;
    const std::string number =
        wide ? number_text(std::bit_cast<double>(bits)) : number_text(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    const std::string hex = number_text(bits, 16);
    const std::size_t digits = wide ? 16 : 8;
    return number + " = 0x" + std::string(hex.size() < digits ? digits - hex.size() : 0, '0') + hex;
  }
  if (is_signed_integer(dtype)) {
    const int unused = 64 - 8 * static_cast<int>(size_of(dtype));
    const std::int64_t value = static_cast<std::int64_t>(bits << unused) >> unused;
    return number_text(value);
  }
  return number_text(bits);
}

void append_list(std::string& out, List list, char open, char close) {
  out += open;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    out += number_text(list[i]);
  }
  out += close;
}

// ---- parsing

// Parses one line at a time. Every failure is a ValueError that names the line.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph parse() {
    bool returned = false;
    while (next_line()) {
      if (returned) fail("unexpected text after the line `return`");
      if (take_word("return")) {
        parse_return();
        returned = true;
      } else if (take_word("slot")) {
        parse_slot();
      } else {
        parse_node();
      }
      if (!at_end()) fail("`" + std::string(rest()) + "` is unexpected");
    }
    if (!returned) fail("the last line must be `return`, with the outputs");
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i)
      if (graph_.inputs[i].node == kNoNode) fail("input #" + std::to_string(i) + " is missing");
    if (const auto violation = find_violation(graph_)) {
      if (violation->node < line_of_.size()) line_ = line_of_[violation->node];
      const std::string_view what = violation->node < graph_.size() ? info(graph_[violation->node].op).text : std::string_view("graph");
      fail(std::string(what) + ": " + violation->rule);
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw ValueError("graph text, line " + std::to_string(line_) + ": " + reason); }

  bool next_line() {
    while (position_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', position_), text_.size());
      current_ = text_.substr(position_, end - position_);
      position_ = end + 1;
      ++line_;
      // a comment, unless inside quotes
      bool quoted = false;
      for (std::size_t i = 0; i + 1 < current_.size(); ++i) {
        if (quoted && current_[i] == '\\') ++i;
        else if (current_[i] == '"') quoted = !quoted;
        else if (!quoted && current_[i] == '/' && current_[i + 1] == '/') current_ = current_.substr(0, i);
      }
      at_ = 0;
      if (!at_end()) return true;
    }
    return false;
  }

  void skip() {
    while (at_ < current_.size() && (current_[at_] == ' ' || current_[at_] == '\t' || current_[at_] == '\r')) ++at_;
  }
  bool at_end() { return skip(), at_ == current_.size(); }
  char peek() { return at_end() ? '\0' : current_[at_]; }
  std::string_view rest() { return skip(), current_.substr(at_, 40); }
  bool take(char c) {
    if (peek() != c || at_end()) return false;
    return ++at_, true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected `") + c + "` " + here());
  }
  std::string here() { return at_end() ? "at the end of the line" : "before `" + std::string(rest()) + "`"; }

  std::string_view word() {
    skip();
    const std::size_t begin = at_;
    if (at_ < current_.size() && is_word_start(current_[at_]))
      while (at_ < current_.size() && is_word(current_[at_])) ++at_;
    return current_.substr(begin, at_ - begin);
  }
  bool take_word(std::string_view wanted) {
    const std::size_t before = at_;
    if (word() == wanted) return true;
    at_ = before;
    return false;
  }

  std::int64_t integer() {
    skip();
    std::int64_t value = 0;
    const char* begin = current_.data() + at_;
    const auto [end, error] = std::from_chars(begin, current_.data() + current_.size(), value);
    if (error == std::errc::result_out_of_range) fail("the integer does not fit in 64 bits");
    if (error != std::errc()) fail("expected an integer " + here());
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  // Reads an index of an input or a scalar parameter. Its value is bounded, so that invalid text cannot cause a large allocation.
  std::uint32_t index() {
    const std::int64_t value = integer();
    if (value < 0 || value >= static_cast<std::int64_t>(text_.size())) fail("index is out of range: " + std::to_string(value));
    return static_cast<std::uint32_t>(value);
  }

  // A number as text, because its type follows later in the line.
  struct Number {
    std::string_view text;
    std::optional<std::uint64_t> bits;
  };

  Number number() {
    Number out;
    skip();
    const std::size_t begin = at_;
    while (at_ < current_.size() && (is_word(current_[at_]) || current_[at_] == '.' || current_[at_] == '-' || current_[at_] == '+')) ++at_;
    out.text = current_.substr(begin, at_ - begin);
    if (out.text.empty()) fail("expected a number " + here());
    if (take('=')) {
      if (!take('0') || at_ >= current_.size() || current_[at_] != 'x') fail("expected the bits in the form 0x…");
      ++at_;
      std::uint64_t bits = 0;
      const char* first = current_.data() + at_;
      const auto [end, error] = std::from_chars(first, current_.data() + current_.size(), bits, 16);
      if (error != std::errc()) fail("expected the bits in the form 0x and up to 16 digits");
      at_ += static_cast<std::size_t>(end - first);
      out.bits = bits;
    }
    return out;
  }

  template <class T> T converted(std::string_view text, DType dtype) const {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail("`" + std::string(text) + "` is not a value of type " + std::string(name_of(dtype)));
    return value;
  }

  std::uint64_t bits_of_number(const Number& number, DType dtype) const {
    if (number.bits) return *number.bits;  // the verifier checks that they fit
    if (dtype == DType::Bool) {
      if (number.text == "true" || number.text == "1") return 1;
      if (number.text == "false" || number.text == "0") return 0;
      fail("`" + std::string(number.text) + "` is not a value of type bool");
    }
    if (dtype == DType::F64) return std::bit_cast<std::uint64_t>(converted<double>(number.text, dtype));
    if (is_float(dtype)) return std::bit_cast<std::uint32_t>(converted<float>(number.text, dtype));
    const int width = 8 * static_cast<int>(size_of(dtype));
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - width);
    if (is_unsigned_integer(dtype)) {
      const auto value = converted<std::uint64_t>(number.text, dtype);
      if ((value & mask) != value) fail("`" + std::string(number.text) + "` does not fit " + std::string(name_of(dtype)));
      return value;
    }
    const auto value = converted<std::int64_t>(number.text, dtype);
    if (const std::int64_t back = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << (64 - width)) >> (64 - width);
        back != value)
      fail("`" + std::string(number.text) + "` does not fit " + std::string(name_of(dtype)));
    return static_cast<std::uint64_t>(value) & mask;
  }

  std::string name() {
    if (peek() != '"') return std::string(word());
    ++at_;
    std::string out;
    while (at_ < current_.size() && current_[at_] != '"') {
      char c = current_[at_++];
      if (c == '\\') {
        if (at_ >= current_.size()) break;
        c = current_[at_++];
        if (c == 'x') {
          unsigned value = 0;
          if (current_.size() - at_ < 2) fail("expected two hexadecimal digits after \\x");
          const char* first = current_.data() + at_;
          if (std::from_chars(first, first + 2, value, 16).ptr != first + 2) fail("expected two hexadecimal digits after \\x");
          at_ += 2;
          c = static_cast<char>(value);
        }
      }
      out += c;
    }
    if (at_ >= current_.size()) fail("the quoted name is not closed");
    ++at_;
    return out;
  }

  DType dtype() {
    DType out{};
    const std::string_view text = word();
    if (!dtype_of(text, out)) fail(text.empty() ? "expected a type " + here() : "`" + std::string(text) + "` is not a type");
    return out;
  }

  std::vector<std::int64_t> list(char open, char close) {
    std::vector<std::int64_t> out;
    expect(open);
    if (take(close)) return out;
    do out.push_back(integer());
    while (take(','));
    expect(close);
    return out;
  }

  // Reads the label of a used node, which must already be defined.
  NodeId use() {
    expect('%');
    const std::int64_t label = integer();
    const auto found = nodes_.find(label);
    if (found == nodes_.end()) fail("%" + std::to_string(label) + " is not defined above");
    return found->second;
  }

  void declare_slot(std::uint32_t slot, const Number& number, DType dtype) {
    if (slot != graph_.slots.size())
      fail("slot " + std::to_string(slot) + " is out of order; the next one must be " + std::to_string(graph_.slots.size()));
    graph_.slots.push_back({dtype, bits_of_number(number, dtype)});
  }

  void parse_slot() {
    const std::uint32_t slot = index();
    expect('=');
    const Number value = number();
    expect(':');
    declare_slot(slot, value, dtype());
  }

  void parse_return() {
    if (at_end()) return;
    bool named = false;
    do {
      std::string text;
      if (peek() != '%') {
        text = name();
        if (text.empty() && peek() != '=') fail("expected a node or a name " + here());
        expect('=');
        named = true;
      }
      graph_.outputs.push_back(use());
      graph_.output_names.push_back(std::move(text));
    } while (take(','));
    if (!named) graph_.output_names.clear();
  }

  void parse_node() {
    expect('%');
    const std::int64_t label = integer();
    if (label < 0) fail("a node's label must not be negative");
    if (nodes_.contains(label)) fail("%" + std::to_string(label) + " is defined twice");
    expect('=');
    const std::string_view text = word();
    Op op{};
    if (!op_of(text, op)) fail(text.empty() ? "expected an operator " + here() : "`" + std::string(text) + "` is not an operator");

    Node node{op, DType::F32};
    std::string input_name;
    std::optional<Number> number_given;
    if (op == Op::Input) {
      input_name = name();
      node.bits = take('#') ? index() : next_input_;
      next_input_ = node.bits + 1;
    } else if (op == Op::Constant) {
      number_given = number();
    } else if (op == Op::Slot) {
      node.bits = index();
      if (take('=')) number_given = number();
    }
    std::vector<std::int64_t> operands, attributes;
    if (peek() == '%') {
      do operands.push_back(use());
      while (take(','));
    }
    if (peek() == '{') attributes = list('{', '}');
    expect(':');
    node.dtype = dtype();
    const std::vector<std::int64_t> shape = list('[', ']');
    node.shape = graph_.intern(shape);
    node.operands = graph_.intern(operands);
    node.attributes = graph_.intern(attributes);
    if (op == Op::Constant) node.bits = bits_of_number(*number_given, node.dtype);
    if (op == Op::Slot && number_given) declare_slot(static_cast<std::uint32_t>(node.bits), *number_given, node.dtype);

    const NodeId id = graph_.add(node);
    if (id == line_of_.size()) line_of_.push_back(line_);
    if (op == Op::Input) {
      if (graph_.inputs.size() <= node.bits) graph_.inputs.resize(node.bits + 1, Input{"", DType::F32, 0, kNoNode});
      Input& input = graph_.inputs[node.bits];
      if (input.node != kNoNode) fail("input #" + std::to_string(node.bits) + " is defined twice");
      input = {std::move(input_name), node.dtype, node.shape, id};
    }
    nodes_.emplace(label, id);
  }

  std::string_view text_;
  std::string_view current_;  // the line, without its comment
  std::size_t position_ = 0;  // start of the next line
  std::size_t at_ = 0;        // position in the line
  std::size_t line_ = 0;
  std::uint64_t next_input_ = 0;
  Graph graph_;
  std::unordered_map<std::int64_t, NodeId> nodes_;
  std::vector<std::size_t> line_of_;
};

}  // namespace

// Also prints graphs that the verifier rejects, so it checks every index.
std::string print(const Graph& graph) {
  std::string out;
  for (std::size_t i = 0; i < graph.slots.size(); ++i) {
    const Slot& slot = graph.slots[i];
    out += "slot " + number_text(i) + " = " + value_text(slot.dtype, slot.bits) + " : " + std::string(name_of(slot.dtype)) + "\n";
  }
  std::uint64_t next_input = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node node = graph[id];
    out += '%' + number_text(id) + " = ";
    if (static_cast<int>(node.op) >= kOpCount || static_cast<int>(node.dtype) >= kDTypeCount) {
      out += "?\n";
      continue;
    }
    out += info(node.op).text;
    if (node.op == Op::Input) {
      out += ' ' + (node.bits < graph.inputs.size() ? name_text(graph.inputs[node.bits].name) : "?");
      if (node.bits != next_input) out += " #" + number_text(node.bits);
      next_input = node.bits + 1;
    } else if (node.op == Op::Constant) {
      out += ' ' + value_text(node.dtype, node.bits);
    } else if (node.op == Op::Slot) {
      out += ' ' + number_text(node.bits);
    }
    const List operands = graph.operands(id);
    for (std::size_t i = 0; i < operands.size(); ++i) out += (i ? ", %" : " %") + number_text(operands[i]);
    if (const List attributes = graph.attributes(id); !attributes.empty()) {
      out += ' ';
      append_list(out, attributes, '{', '}');
    }
    out += " : ";
    out += name_of(node.dtype);
    append_list(out, graph.shape(id), '[', ']');
    out += '\n';
  }
  out += "return";
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    out += i ? ", " : " ";
    if (i < graph.output_names.size()) out += name_text(graph.output_names[i]) + " = ";
    out += '%' + number_text(graph.outputs[i]);
  }
  return out + '\n';
}

Graph parse_graph(std::string_view text) { return Parser(text).parse(); }

}  // namespace onepass::ir
