// Arrays as text, formatted like numpy.array2string (numpy/_core/arrayprint.py: FloatingFormat, IntegerFormat, _formatArray).
#include "onepass/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"

namespace onepass {

namespace {

// ---- one float

/// The decimal digits of a finite float's magnitude, 0.d₁d₂d₃… · 10^exponent, without zeros at either end; empty for zero.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

Decimal decimal_of(std::string_view scientific) {  // parses d.ddde±xx, the format of to_chars and fmt
  Decimal result;
  const std::size_t e = scientific.find('e');
  for (const char c : scientific.substr(0, e))
    if (c >= '0' && c <= '9') result.digits += c;
  const std::string_view exponent = scientific.substr(e + (scientific[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), result.exponent);
  ++result.exponent;
  const std::size_t first = result.digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  result.digits.erase(0, first);
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  return result;
}

/// Returns the shortest digits that identify this value in its type.
Decimal shortest(double magnitude, DType dtype) {
  char text[64];
  if (dtype == DType::F64 || dtype == DType::F32) {
    const auto end = dtype == DType::F64
                         ? std::to_chars(text, text + sizeof text, magnitude, std::chars_format::scientific)
                         : std::to_chars(text, text + sizeof text, static_cast<float>(magnitude), std::chars_format::scientific);
    return decimal_of({text, static_cast<std::size_t>(end.ptr - text)});
  }
  const auto bits = [&](double value) { return dtype == DType::F16 ? Half(value).bits() : BFloat16(value).bits(); };
  for (int digits = 0;; ++digits) {  // at most 5 for f16, 4 for bf16
    const std::string candidate = fmt::format("{:.{}e}", magnitude, digits);
    double value = 0;
    std::from_chars(candidate.data(), candidate.data() + candidate.size(), value);
    if (bits(value) == bits(magnitude)) return decimal_of(candidate);
  }
}

/// Returns the digits before and after the point of a decimal; at least one digit before it.
std::pair<std::string, std::string> positional(const Decimal& d) {
  const auto count = static_cast<int>(d.digits.size());
  if (count == 0) return {"0", ""};
  if (d.exponent <= 0) return {"0", std::string(static_cast<std::size_t>(-d.exponent), '0') + d.digits};
  if (d.exponent >= count) return {d.digits + std::string(static_cast<std::size_t>(d.exponent - count), '0'), ""};
  const auto point = static_cast<std::size_t>(d.exponent);
  return {d.digits.substr(0, point), d.digits.substr(point)};
}

std::pair<std::string, std::string> split_at_point(const std::string& text) {
  const std::size_t point = text.find('.');
  if (point == std::string::npos) return {text, ""};
  std::string after = text.substr(point + 1);
  after.erase(after.find_last_not_of('0') + 1);
  return {text.substr(0, point), after};
}

// ---- a common format for all printed elements: numpy's formatter

struct Element {
  double real = 0;           // for floats
  std::int64_t integer = 0;  // for other types; u64 by its bits
};

class Format {
 public:
  Format(DType dtype, const PrintOptions& options) : dtype_(dtype), precision_(std::max(options.precision, 0)) {}

  bool is_float() const { return is_floating(dtype_); }
  static bool is_floating(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32 || dtype == DType::F64; }

  void see(const Element& e) {
    elements_ += 1;
    if (!is_float()) {
      width_ = std::max(width_, integer_text(e).size());
    } else if (std::isfinite(e.real)) {
      ++finite_;
      const double magnitude = std::fabs(e.real);
      if (magnitude == 0) return;
      largest_ = std::max(largest_, magnitude);
      smallest_ = smallest_ == 0 ? magnitude : std::min(smallest_, magnitude);
    } else {
      longest_word_ = std::max(longest_word_, word_of(e.real).size());
    }
  }
  /// Ends the first pass: decides whether floats have an exponent. The caller must then pass all elements to see_again.
  void choose() { scientific_ = largest_ >= 1e8 || (smallest_ > 0 && (smallest_ < 1e-4 || largest_ / smallest_ > 1000)); }
  void see_again(const Element& e) {
    if (!is_float() || !std::isfinite(e.real)) return;
    const Parts parts = parts_of(e.real);
    before_ = std::max(before_, parts.before.size());
    after_ = std::max(after_, parts.after.size());
    exponent_ = std::max(exponent_, parts.exponent.size());
  }
  void finish() {
    if (!is_float() || elements_ == finite_) return;
    const std::size_t right = finite_ == 0 ? 0 : after_ + (scientific_ ? 1 + exponent_ : 0);
    if (longest_word_ > right + 1) before_ = std::max(before_, longest_word_ - right - 1);
  }

  std::string text(const Element& e) const {
    if (!is_float()) return fmt::format("{:>{}}", integer_text(e), width_);
    if (!std::isfinite(e.real))
      return fmt::format("{:>{}}", word_of(e.real), before_ + 1 + (finite_ == 0 ? 0 : after_ + (scientific_ ? 1 + exponent_ : 0)));
    const Parts parts = parts_of(e.real);
    if (scientific_) {  // all have the maximum number of digits, from their exact values
      const std::string digits = fmt::format("{:#.{}e}", std::fabs(e.real), after_);
      const std::size_t begin = digits.find('.'), end = digits.find('e');
      const std::string before = (std::signbit(e.real) ? "-" : "") + digits.substr(0, begin);
      return fmt::format("{:>{}}{}e{}", before, before_, digits.substr(begin, end - begin), exponent_text(digits.substr(end + 1)));
    }
    return fmt::format("{:>{}}.{:<{}}", parts.before, before_, parts.after, after_);
  }

  /// Formats the element of a rank-0 Array.
  std::string alone(const Element& e) const {
    if (dtype_ == DType::Bool) return e.integer ? "True" : "False";
    if (!is_float()) return integer_text(e);
    if (!std::isfinite(e.real)) return word_of(e.real);
    const double magnitude = std::fabs(e.real);
    const char* const sign = std::signbit(e.real) ? "-" : "";
    const Decimal d = shortest(magnitude, dtype_);
    if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16)) {
      const auto [before, after] = positional(d);
      return fmt::format("{}{}.{}", sign, before, after.empty() ? "0" : after);
    }
    const std::string rest = d.digits.size() > 1 ? "." + d.digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, d.digits[0], rest, d.exponent > 0 ? '+' : '-', std::abs(d.exponent - 1));
  }

 private:
  struct Parts {
    std::string before, after, exponent;  // `exponent` includes its sign
  };

  std::string integer_text(const Element& e) const {
    if (dtype_ == DType::Bool) return e.integer ? " True" : "False";
    if (dtype_ == DType::U64) return fmt::format("{}", static_cast<std::uint64_t>(e.integer));
    return fmt::format("{}", e.integer);
  }
  static std::string word_of(double value) { return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf"; }
  std::string exponent_text(const std::string& exponent) const {  // pads to a common width
    return exponent.substr(0, 1) + std::string(exponent_ - exponent.size(), '0') + exponent.substr(1);
  }

  // Returns the shortest digits, or the value rounded to `precision_` digits after the point.
  Parts parts_of(double value) const {
    const double magnitude = std::fabs(value);
    const Decimal d = shortest(magnitude, dtype_);
    Parts parts;
    if (scientific_) {
      std::string text = fmt::format("{:.{}e}", magnitude, std::min(precision_, std::max(static_cast<int>(d.digits.size()) - 1, 0)));
      const std::size_t e = text.find('e');
      std::tie(parts.before, parts.after) = split_at_point(text.substr(0, e));
      parts.exponent = text.substr(e + 1);
    } else {
      std::tie(parts.before, parts.after) = positional(d);
      if (d.exponent > static_cast<int>(d.digits.size())) parts.before = fmt::format("{:.0f}", magnitude);  // whole numbers exactly
      if (static_cast<int>(parts.after.size()) > precision_)
        std::tie(parts.before, parts.after) = split_at_point(fmt::format("{:.{}f}", magnitude, precision_));
    }
    if (std::signbit(value)) parts.before.insert(0, "-");
    return parts;
  }

  DType dtype_;
  int precision_;
  std::int64_t elements_ = 0, finite_ = 0;
  std::size_t width_ = 0, before_ = 0, after_ = 0, exponent_ = 0, longest_word_ = 0;
  double largest_ = 0, smallest_ = 0;
  bool scientific_ = false;
};

Element element_at(const Array& array, std::int64_t offset) {
  const std::byte* const at = static_cast<const std::byte*>(array.data()) + offset * static_cast<std::int64_t>(size_of(array.dtype()));
  const auto load = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (array.dtype()) {
    case DType::Bool: return {.integer = load(std::uint8_t{}) != 0};
    case DType::I8: return {.integer = load(std::int8_t{})};
    case DType::I16: return {.integer = load(std::int16_t{})};
    case DType::I32: return {.integer = load(std::int32_t{})};
    case DType::I64: return {.integer = load(std::int64_t{})};
    case DType::U8: return {.integer = load(std::uint8_t{})};
    case DType::U16: return {.integer = load(std::uint16_t{})};
    case DType::U32: return {.integer = load(std::uint32_t{})};
    case DType::U64: return {.integer = static_cast<std::int64_t>(load(std::uint64_t{}))};
    case DType::F16: return {.real = Half::from_bits(load(std::uint16_t{}))};
    case DType::BF16: return {.real = BFloat16::from_bits(load(std::uint16_t{}))};
    case DType::F32: return {.real = load(float{})};
    case DType::F64: return {.real = load(double{})};
  }
  return {};
}

// ---- the layout

class Printer {
 public:
  Printer(const Array& array, const PrintOptions& options)
      : array_(array), options_(options), abbreviated_(array.size() > options.most), format_(array.dtype(), options) {}

  std::string text() {
    if (array_.rank() == 0) return format_.alone(element_at(array_, 0));
    if (array_.size() == 0) return "[]";
    for_each(0, 0, [&](const Element& e) { format_.see(e); });
    format_.choose();
    for_each(0, 0, [&](const Element& e) { format_.see_again(e); });
    format_.finish();
    std::string out;
    axis(out, 0, 0, options_.indent + 1, options_.width);
    return out;
  }

 private:
  std::int64_t length(int axis) const { return array_.shape()[static_cast<std::size_t>(axis)]; }
  bool cut(int axis) const { return abbreviated_ && length(axis) > 2 * options_.edges; }

  // Calls f(i) for each printed index of the axis, and `between` at the omitted part.
  template <class F, class G> void indices(int axis, F&& f, G&& between) const {
    const std::int64_t n = length(axis);
    for (std::int64_t i = 0; i < n; ++i) {
      if (cut(axis) && i == options_.edges) {
        between();
        i = n - options_.edges;
        if (i >= n) break;
      }
      f(i);
    }
  }
  template <class F> void for_each(int axis, std::int64_t offset, F&& f) const {
    if (axis == array_.rank()) return f(element_at(array_, offset));
    indices(
        axis, [&](std::int64_t i) { for_each(axis + 1, offset + i * array_.strides()[static_cast<std::size_t>(axis)], f); }, [] {});
  }

  // Appends the `[…]` of one axis. Later lines start at column `hang`; elements of the innermost axis fill lines of `width`.
  void axis(std::string& out, int axis, std::int64_t offset, int hang, int width) const {
    out += '[';
    const std::string begin(static_cast<std::size_t>(hang), ' ');
    const std::int64_t stride = array_.strides()[static_cast<std::size_t>(axis)];
    if (axis + 1 < array_.rank()) {
      const std::string apart = std::string(static_cast<std::size_t>(array_.rank() - axis - 1), '\n') + begin;
      bool first = true;
      const auto next = [&] {
        if (!first) out += apart;
        first = false;
      };
      indices(
          axis,
          [&](std::int64_t i) {
            next();
            this->axis(out, axis + 1, offset + i * stride, hang + 1, width - 1);
          },
          [&] {
            next();
            out += "...";
          });
    } else {
      auto column = static_cast<std::size_t>(hang);
      const auto most = static_cast<std::size_t>(std::max(width - 1, 0));
      bool first = true;
      const auto word = [&](const std::string& text) {
        if (!first) {
          if (column + 1 + text.size() > most) {
            while (out.back() == ' ') out.pop_back();  // removes a column's padding
            out += '\n' + begin;
            column = static_cast<std::size_t>(hang);
          } else {
            out += ' ';
            ++column;
          }
        }
        first = false;
        out += text;
        column += text.size();
      };
      indices(
          axis, [&](std::int64_t i) { word(format_.text(element_at(array_, offset + i * stride))); }, [&] { word("..."); });
    }
    out += ']';
  }

  const Array& array_;
  const PrintOptions& options_;
  bool abbreviated_;
  Format format_;
};

}  // namespace

std::string to_text(const Array& array, const PrintOptions& options) {
  if (!array.has_memory()) throw ValueError("to_text: the array is default-constructed and has no elements. Assign an array to it first");
  const Array here = array.to(Device::cpu());
  return Printer(here, options).text();
}

std::ostream& operator<<(std::ostream& stream, const Array& array) { return stream << to_text(array); }

}  // namespace onepass
