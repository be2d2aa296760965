// Expression: an offset plus a multiple of each of some variables. The variables are the loops of a nest and its floordiv/mod variables.
// Interner: assigns small ids to equal values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace onepass::compiler {

struct Term {
  std::uint32_t variable;
  std::int64_t coefficient;
  bool operator==(const Term&) const = default;
};
struct Expression {
  std::int64_t offset = 0;
  std::vector<Term> terms;  // sorted by variable, without zero coefficients
  bool operator==(const Expression&) const = default;
};

inline std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 31);
}
struct HashExpression {
  std::size_t operator()(const Expression& e) const {
    std::uint64_t h = static_cast<std::uint64_t>(e.offset);
    for (const Term& t : e.terms) h = mix(mix(h, t.variable), static_cast<std::uint64_t>(t.coefficient));
    return h;
  }
};
struct HashList {
  std::size_t operator()(const std::vector<std::uint32_t>& v) const {
    std::uint64_t h = v.size();
    for (std::uint32_t x : v) h = mix(h, x);
    return h;
  }
};

// Assigns the same small id to equal values.
template <class T, class Hash> class Interner {
 public:
  std::uint32_t operator()(const T& value) {
    const auto [it, fresh] = ids_.try_emplace(value, static_cast<std::uint32_t>(values_.size()));
    if (fresh) values_.push_back(&it->first);
    return it->second;
  }
  const T& operator[](std::uint32_t id) const { return *values_[id]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }

 private:
  std::unordered_map<T, std::uint32_t, Hash> ids_;
  std::vector<const T*> values_;
};

inline void add(Expression& to, const Expression& e, std::int64_t factor) {
  to.offset += e.offset * factor;
  for (const Term& t : e.terms) {
    auto it = std::lower_bound(to.terms.begin(), to.terms.end(), t.variable, [](const Term& a, std::uint32_t v) { return a.variable < v; });
    if (it != to.terms.end() && it->variable == t.variable) {
      it->coefficient += t.coefficient * factor;
      if (it->coefficient == 0) to.terms.erase(it);
    } else if (t.coefficient * factor != 0) {
      to.terms.insert(it, {t.variable, t.coefficient * factor});
    }
  }
}

inline std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

}  // namespace onepass::compiler
