// Literals: numbers without a strong type, and values computed only from them. Numbers maps the numbers that a call passes to the scalar
// parameters of its plan. The recorder fills it; a plan keeps it and evaluates it at each call. So a new number neither records nor
// compiles.
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

/// A number without a strong type: written in the program, passed by the call, or computed only from such numbers.
struct Literal {
  // UInt: computed in u64 because an operand was written above the largest i64. The kind never changes with the value that a call passes.
  enum class Kind : std::uint8_t { Bool, Int, UInt, Float } kind = Kind::Int;
  std::int64_t integer = 0;   // Bool and Int; UInt: the bits
  double real = 0;            // Float
  std::uint32_t origin = 0;   // the occurrence in the program; equal origins share their scalar parameters
  bool brought = false;       // from an argument or an extent: it varies by call, so it never selects code
  std::uint32_t derived = 0;  // 1 + its index in Numbers if it depends on an argument, so that each call recomputes it; else 0
  bool is_integer() const { return kind == Kind::Int || kind == Kind::UInt; }
  /// True if the program has the number: it is the same in each call.
  bool is_fixed() const { return !brought && derived == 0; }
  std::uint64_t as_unsigned() const { return static_cast<std::uint64_t>(integer); }
  double as_double() const {
    if (kind == Kind::Float) return real;
    return kind == Kind::UInt ? static_cast<double>(as_unsigned()) : static_cast<double>(integer);
  }
};

/// Returns the type of a literal as an output: bool, i64, u64 or f32.
DType default_type(Literal::Kind kind);

/// Returns the value of an operator on literals. It is computed in i64 or u64, or in f64 by the same primitives and expansions as in a
/// kernel. The kind of the result depends only on the kinds of the operands, never on their values. Besides elementwise operators, `op` may
/// be IntegerPow of integers, or Cast, which makes a Float.
Literal fold(ir::Op op, std::string_view name, std::span<const Literal> operands);

/// Returns the literal as a program writes it.
std::string text_of(const Literal& literal);

/// Returns the bits of the literal in `dtype`. If an integer does not fit, bits_if_fits returns nullopt and bits_of throws ValueError.
std::optional<std::uint64_t> bits_if_fits(const Literal& literal, DType dtype);
std::uint64_t bits_of(const Literal& literal, DType dtype, std::string_view name);

/// Mapping from the numbers among a call's arguments to the values of scalar parameters.
class Numbers {
 public:
  /// Registers argument `argument` of the call, which is a number.
  Literal bring(std::uint32_t argument, Literal value);
  /// Records that `result` was folded from `operands`. If an operand depends on an argument, each call repeats the computation.
  void derive(Literal& result, ir::Op op, std::string_view name, std::span<const Literal> operands);
  /// Assigns this literal's value to the scalar parameter.
  void fill(std::uint32_t slot, DType dtype, const Literal& value, std::string_view name);
  /// Records that the recording depends on this value (an axis, a length). A plan is valid only for that value.
  void pin(const Literal& literal);

  bool empty() const { return slots_.empty(); }
  /// True if each call recomputes the scalar parameter's value.
  bool fills(std::uint32_t slot) const;
  /// True if each call computes the same value for both scalar parameters, by the same operators on the same arguments.
  bool fills_equally(std::uint32_t slot, std::uint32_t other) const;
  bool is_pinned(std::size_t argument) const { return argument < pinned_.size() && pinned_[argument]; }

  /// Writes the scalar parameters that depend on arguments. `argument(i)` returns argument i of this call as a Literal of the same kind as
  /// in the recording. Runs the steps that finish() made, without interpretation. Allocates only for more than kInline values.
  /// Errors    as for fold and bits_of
  template <class F> void evaluate(F&& argument, std::span<std::uint64_t> slot_bits) const {
    if (!compute(argument, slot_bits)) [[unlikely]]
      interpret(argument, slot_bits);
  }
  /// Runs the steps only. Returns false on an error, or if an operator has no step.
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
  /// Computes the same values with fold, one operator at a time.
  template <class F> void interpret(F&& argument, std::span<std::uint64_t> slot_bits) const {
    std::vector<Literal> values;
    values.reserve(entries_.size());
    for (const Entry& e : entries_) values.push_back(e.is_argument() ? argument(e.argument) : fold_entry(e, values));
    for (const SlotValue& s : slots_) slot_bits[s.slot] = bits_of(values[s.entry], s.dtype, s.name);
  }
  /// Removes entries that no scalar parameter needs and makes the steps of `compute`. Must be the last call after all bring(), derive(),
  /// fill() and pin() calls.
  void finish();

 private:
  static constexpr std::uint32_t kComputed = ~std::uint32_t{0};
  static constexpr std::size_t kInline = 128;
  struct Entry {
    std::uint32_t argument = kComputed;
    Literal::Kind kind = Literal::Kind::Int;  // kind of the entry's value
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

  std::vector<Entry> entries_;  // operands precede the entries computed from them
  std::vector<SlotValue> slots_;
  std::vector<bool> pinned_;  // by argument number

  // Data of compute(), in execution order: constants and arguments are placed, the steps run, and the scalar parameters are filled.
  friend class NumberSteps;
  struct Brought {
    std::uint32_t argument, place;
    bool is_real;
  };
  struct Filled {
    // Other: converted by bits_if_fits.
    enum class From : std::uint8_t { RealToF32, RealToF64, IntegerToF32, IntegerToF64, Same, Other } from = From::Other;
    std::uint32_t slot, place;
    Literal::Kind kind;
    DType dtype;
  };
  bool run_steps(Scalar* values, std::uint64_t* slot_bits) const;
  bool has_steps_ = false;  // if false, everything is interpreted
  std::vector<Scalar> constants_;
  std::vector<Brought> brought_;
  std::vector<ScalarStep> steps_;
  std::vector<Filled> filled_;
  std::size_t value_count_ = 0;
};

}  // namespace onepass::compiler
