// Literals: numbers without a strong type, what is computed from them alone, and how the numbers that a call brings become the slots of
// its plan. Made by the recorder; a plan keeps Numbers and runs it at each call, so that a new value neither records nor compiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/scalars.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// A number without a strong type: written in the program, brought by the call, or computed from such numbers alone.
struct Literal {
  // UInt: computed in u64, from integers one of which was written above the largest i64. Another value of a call never makes one of an Int.
  enum class Kind : std::uint8_t { Bool, Int, UInt, Float } kind = Kind::Int;
  std::int64_t integer = 0;   // Bool and Int; UInt: the bits
  double real = 0;            // Float
  std::uint32_t origin = 0;   // which occurrence: equal origins share their slots
  bool brought = false;       // an argument's or an extent's: its value belongs to the call, so it never chooses code
  std::uint32_t derived = 0;  // 1 + its place in Numbers, where it depends on an argument: another call has another value
  bool is_integer() const { return kind == Kind::Int || kind == Kind::UInt; }
  std::uint64_t as_unsigned() const { return static_cast<std::uint64_t>(integer); }
  double as_double() const {
    if (kind == Kind::Float) return real;
    return kind == Kind::UInt ? static_cast<double>(as_unsigned()) : static_cast<double>(integer);
  }
};

/// The type of a literal as an output: bool, i64, u64 or f32.
DType default_type(Literal::Kind kind);

/// The value of an operator on literals alone: computed in i64 or u64, or else in f64 by the very primitives and expansions that a kernel would
/// run. Its kind depends on the kinds of the operands, never on their values. Besides the elementwise operators: IntegerPow of integers,
/// and Cast, which makes a Float.
Literal fold(ir::Op op, std::string_view name, std::span<const Literal> operands);

/// As a program writes it.
std::string text_of(const Literal& literal);

/// The bits of the literal in `dtype`; nothing, or ValueError, where an integer does not fit it.
std::optional<std::uint64_t> bits_if_fits(const Literal& literal, DType dtype);
std::uint64_t bits_of(const Literal& literal, DType dtype, std::string_view name);

/// From the numbers among a call's arguments to the values of slots: which slot holds which of them, or what was computed from them.
class Numbers {
 public:
  /// Argument `argument` of the call, which is a number.
  Literal bring(std::uint32_t argument, Literal value);
  /// `result` was folded from `operands`: the same is done at each call if one of them depends on an argument.
  void derive(Literal& result, ir::Op op, std::string_view name, std::span<const Literal> operands);
  /// The slot has this literal's value.
  void fill(std::uint32_t slot, DType dtype, const Literal& value, std::string_view name);
  /// The value was read to choose what is recorded (an axis, a length): a plan is valid for this value alone.
  void pin(const Literal& literal);

  bool empty() const { return slots_.empty(); }
  /// Does the slot's value belong to each call?
  bool fills(std::uint32_t slot) const;
  bool is_pinned(std::size_t argument) const { return argument < pinned_.size() && pinned_[argument]; }

  /// Writes the slots that depend on arguments. `argument(i)` is the Literal that argument i is in this call, of the same kind as in the
  /// recording. Runs what finish() made; interprets and allocates nothing, the latter up to kInline values.
  /// Errors    those of fold and bits_of
  template <class F> void evaluate(F&& argument, std::span<std::uint64_t> slot_bits) const {
    if (!compute(argument, slot_bits)) [[unlikely]]
      interpret(argument, slot_bits);
  }
  /// The same; false where there is an error, or something that has no steps.
  template <class F> bool compute(F&& argument, std::span<std::uint64_t> slot_bits) const {
    if (!has_steps_) return false;
    Scalar few[kInline];
    std::vector<Scalar> many(value_count_ > kInline ? value_count_ : 0);
    Scalar* const values = many.empty() ? few : many.data();
    for (const Brought& b : brought_) {
      const Literal& literal = argument(b.argument);
      if (b.is_real) values[b.place].real = literal.real;
      else values[b.place].integer = literal.integer;
    }
    return run_steps(values, slot_bits.data());
  }
  /// The same by fold, one operator after the other.
  template <class F> void interpret(F&& argument, std::span<std::uint64_t> slot_bits) const {
    std::vector<Literal> values;
    values.reserve(entries_.size());
    for (const Entry& e : entries_) values.push_back(e.is_argument() ? argument(e.argument) : fold_entry(e, values));
    for (const SlotValue& s : slots_) slot_bits[s.slot] = bits_of(values[s.entry], s.dtype, s.name);
  }
  /// Forgets what no slot needs and makes the steps of `compute`; nothing is derived or pinned afterwards.
  void finish();

 private:
  static constexpr std::uint32_t kComputed = ~std::uint32_t{0};
  static constexpr std::size_t kInline = 128;
  struct Entry {
    std::uint32_t argument = kComputed;
    Literal::Kind kind = Literal::Kind::Int;  // of its value
    ir::Op op = ir::Op::Input;
    std::uint8_t count = 0;
    std::string name;
    std::array<Literal, 3> operands;
    bool is_argument() const { return argument != kComputed; }
  };
  struct SlotValue {
    std::uint32_t slot, entry;
    DType dtype;
    std::string name;
  };
  static Literal fold_entry(const Entry& entry, std::span<const Literal> values);
  void add_needed(std::vector<bool>& needed) const;

  std::vector<Entry> entries_;  // operands before what is computed from them
  std::vector<SlotValue> slots_;
  std::vector<bool> pinned_;  // by argument

  // What compute() does: constants, then arguments are put in their places, the steps run, the slots are filled.
  friend class NumberSteps;
  struct Brought {
    std::uint32_t argument, place;
    bool is_real;
  };
  struct Filled {
    // Other: by bits_if_fits.
    enum class From : std::uint8_t { RealToF32, RealToF64, IntegerToF32, IntegerToF64, Same, Other } from = From::Other;
    std::uint32_t slot, place;
    Literal::Kind kind;
    DType dtype;
  };
  bool run_steps(Scalar* values, std::uint64_t* slot_bits) const;
  bool has_steps_ = false;  // else all is interpreted
  std::vector<Scalar> constants_;
  std::vector<Brought> brought_;
  std::vector<ScalarStep> steps_;
  std::vector<Filled> filled_;
  std::size_t value_count_ = 0;
};

}  // namespace onepass::compiler
