// Operators as values: enumerator, arity, name and typing rule. Generated from ops.def.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "onepass/dtype.h"

namespace onepass::ir {

enum class Op : std::uint8_t {
#define STRUCTURAL(id, ...) id,
#define PRIMITIVE(id, ...) id,
#define EXPANDED(id, ...) id,
#include "ir/ops.def"
};

inline constexpr int kOpCount = 0
#define STRUCTURAL(...) +1
#define PRIMITIVE(...) +1
#define EXPANDED(...) +1
#include "ir/ops.def"
    ;

enum class OpKind : std::uint8_t { Source, View, Piecewise, Reduction, Scan, Place, Gather, Scatter, Routine, Primitive, Expanded };
inline constexpr std::uint8_t kAnyArity = 0xff;

/// The relation between the dtypes of operands and result.
enum class TypeRule : std::uint8_t {
  None,         // structural: its own rule, ir/verify.cpp
  Number,       // all of one type that is not bool; result the same
  Float,        // all of one float type; result the same
  Any,          // all of one type; result the same
  Compare,      // two of one type; result bool
  Predicate,    // one float; result bool
  Bits,         // all of one integer type or bool; result the same
  Integer,      // all of one integer type; result the same
  Choose,       // bool, then two of one type; result that type
  Convert,      // any to any
  Reinterpret,  // any to any of the same size
};

enum Traits : std::uint8_t {
  kNone = 0,
  kCommutative = 1,
  kBranches = 2,    // the operator's kernel code may contain separate basic blocks
  kArithmetic = 4,  // rejects two bools, although it accepts them as floats; rule Number rejects bool anyway
  kLong = 8,        // for floats: several machine instructions, which the baseline tier emits once and calls
  kPartial = 16,    // for expansions: valid only for the operands stated in the table; otherwise the result is unspecified
};

struct OpInfo {
  std::string_view text;
  OpKind kind;
  std::uint8_t arity;
  TypeRule types;
  std::uint8_t traits;
};

inline constexpr OpInfo kOpInfo[kOpCount] = {
#define STRUCTURAL(id, arity, text, kind) {text, OpKind::kind, arity, TypeRule::None, kNone},
#define PRIMITIVE(id, arity, text, types, traits, ...) {text, OpKind::Primitive, arity, TypeRule::types, traits},
#define EXPANDED(id, arity, text, types, ...) {text, OpKind::Expanded, arity, TypeRule::types, kNone},
#include "ir/ops.def"
};

constexpr const OpInfo& info(Op op) { return kOpInfo[static_cast<int>(op)]; }
constexpr bool is_view(Op op) { return info(op).kind == OpKind::View; }
constexpr bool is_reduction(Op op) { return info(op).kind == OpKind::Reduction; }
constexpr bool is_scan(Op op) { return info(op).kind == OpKind::Scan; }
/// True if a routine of the library computes the whole array, without a loop nest.
constexpr bool is_routine(Op op) { return info(op).kind == OpKind::Routine; }
constexpr bool is_contraction(Op op) { return op == Op::ContractLanes || op == Op::ContractRows; }
/// True if the reduction starts from 0 and adds, so that its result over no elements is a number and not an error.
constexpr bool is_sum(Op op) { return op == Op::ReduceSum || is_contraction(op); }
constexpr bool is_source(Op op) { return info(op).kind == OpKind::Source; }
constexpr bool is_elementwise(Op op) { return info(op).kind >= OpKind::Primitive; }
/// Returns the first operator with the same meaning: interpreters use its loops.
constexpr Op same_meaning(Op op) { return op == Op::Rare ? Op::Where : op == Op::CastUnchecked ? Op::Cast : op; }

/// Finds the operator with that name in the printed form; false if there is none.
constexpr bool op_of(std::string_view text, Op& out) {
  for (int i = 0; i < kOpCount; ++i)
    if (kOpInfo[i].text == text) return out = static_cast<Op>(i), true;
  return false;
}

/// Sets `out` to the result type of an elementwise operator (other than cast and bitcast) on operands of these types. Returns false if it
/// does not accept them.
bool result_dtype(Op op, std::span<const DType> operands, DType& out);

}  // namespace onepass::ir
