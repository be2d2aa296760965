// Nest: one kernel as loops and a body, for no machine in particular. The schedule says how a target runs it; the emitters spell it.
//
// A Nest is canonical: it holds no length, no stride beyond its class and no literal's value, so that equal keys mean equal code. What it
// leaves out stands in NestNumbers, in the same order, and reaches the kernel as arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// What the generic kernel knows of a coefficient.
enum class Coefficient : std::uint8_t {
  Zero,
  One,
  General,
  MinusOne,  // these of a load's vector loop alone
  Two,       // these of a family of loads alone
  Three,
  Four,
  Five,
  Six,
  Seven,
  Eight,
};
/// The coefficient that a class of a family stands for.
constexpr int number_of(Coefficient c) { return static_cast<int>(c) - static_cast<int>(Coefficient::Two) + 2; }

constexpr Coefficient coefficient_of(std::int64_t number) {
  return static_cast<Coefficient>(static_cast<std::int64_t>(Coefficient::Two) + number - 2);
}
inline constexpr std::int64_t kFarthestApart = 8;  // of the loads of a family

/// offset + Σ coefficient · variable; the variables are the loops, then the derived variables. Offsets are always numbers.
struct Linear {
  std::vector<Coefficient> of;
  bool operator==(const Linear&) const = default;
};

/// floor(linear / by) or linear mod by: what an unaligned reshape or a strided pad leaves. `by` is a number above 0. Or what data say: the
/// value of a Place.
struct Derived {
  std::uint32_t linear;
  bool modulo;
  std::uint32_t place = kNone;  // the statement
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Derived&) const = default;
};

/// Memory that a load or store touches: an argument, by elements of `dtype`. Loads that are 2 to 8 apart along the vector loop, and
/// between them read everything, are a family: whole vectors are loaded once and their elements sorted out. Of a list the linear `table`
/// chooses the array, whose address stands in a table; `linear` is the place in it.
struct Access {
  std::uint32_t buffer;
  std::uint32_t linear;
  std::uint32_t table = kNone;
  std::uint32_t first = kNone;  // of a family: the access that begins lowest
  std::uint8_t place = 0;       // elements behind it
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Access&) const = default;
};

/// 0 <= linear < bound.
struct Check {
  std::uint32_t linear;
  bool operator==(const Check&) const = default;
};

struct Statement {
  enum class Kind : std::uint8_t {
    Load,   // at: access; guard: a Guard statement or none: lanes where it is false are not read and give 0; a: the Place it depends on
    Store,  // at: access; a: the value; guard as of a load; count: it and the stores behind it are so many phases, side by side in memory;
            // op Add: added to what stands there, where the Place b says
    Index,  // at: linear, as a value of `dtype`
    Slot,   // at: position in Nest::slots
    Constant,  // bits
    Op,        // op on a, b, c
    Guard,     // the checks at .. at + count, all of them; a: the Place they depend on
    Reduce,    // op over the reduced loops of a, a contraction of the products of a and b; count 1, a column: over the outer loops instead
    Scan,      // op, the same along the loop that runs in sequence
    Place,  // the place that the index a means, below the bound of check `at`; a bad one is 0 and raises the kernel's flag, where `guard` holds
  };
  Kind kind;
  ir::Op op = ir::Op::Input;
  DType dtype = DType::Bool;  // computed and kept in: never a half
  DType half = DType::F32;    // of a cast or bitcast to a half (dtype is f32), or a bitcast from one: which half; f32: neither
  std::uint8_t stage = 0;     // the sweep in which it can first be computed; of a Reduce: the sweep after its own
  std::uint8_t count = 0;
  std::uint32_t a = kNone, b = kNone, c = kNone;
  std::uint32_t guard = kNone;
  std::uint32_t at = 0;
  std::uint64_t loops = 0;  // the loops that the value depends on
  std::uint64_t bits = 0;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Statement&) const = default;
};

struct BufferInfo {
  DType dtype;  // of its elements; what is stored for other kernels alone is never a half
  bool written;
  bool operator==(const BufferInfo&) const = default;
};

inline constexpr std::int64_t kShortRow = 64;  // elements of the longest row that is a short one

/// How the loops run: `outer` kept loops make the items that threads share; then `serial` reduced loops; the last loop is the vector loop.
///   Map    no reduction; the vector loop is kept. One with scans runs along it in sequence, in vectors of a group
///   Rows   the vector loop is kept, the reduced loops are serial: accumulators are rows. Also scans along another axis than the last, and
///          what is added where data say: their loops are serial alike
///   Lanes  the vector loop is the last reduced loop: accumulators are lanes. It may have columns: reductions over its outer loops, which
///          stand in row-major order then, of values that the last sweep has. What depends on a column (Nest::behind_columns) is computed
///          and stored once all rows are done; its `stage` is `sweeps`.
enum class NestKind : std::uint8_t { Map, Rows, Lanes };

struct Nest {
  NestKind kind = NestKind::Map;
  std::uint8_t outer = 0, serial = 0;
  std::uint8_t runs = 0;    // of the reduced loops, how many count runs that are filled; 0: nothing is filled
  std::uint8_t sweeps = 1;  // times that the reduced loops are run
  // The vector loop runs through short rows, one behind the other: each derived variable is the row, or the place in it, and each load varies
  // along the loop as one of these alone or as the loop itself; stores are contiguous. The rows have NestNumbers::by[0] elements.
  bool short_rows = false;
  ir::Op routine = ir::Op::Input;  // of a nest without a body: the operator that a routine of the library computes (routine.h); else Input
  std::uint8_t variant = 0;        // its last attribute: descending, to the right, or what Assign does
  bool is_routine() const { return routine != ir::Op::Input; }
  // Of Steps: the node's attributes, as of one step; and which of its results each written buffer is. Its code is compiled.
  std::vector<std::int64_t> steps;
  std::vector<std::uint32_t> results;
  bool is_in_library() const { return is_routine() && routine != ir::Op::Steps; }
  std::uint8_t phases = 1;  // indices that one iteration of the vector loop computes: each has its own loads, statements and stores
  std::vector<Linear> linears;
  std::vector<Derived> derived;
  std::vector<Access> accesses;
  std::vector<Check> checks;
  std::vector<BufferInfo> buffers;
  std::vector<DType> slots;
  std::vector<Statement> body;  // in an order in which it can be computed
  bool operator==(const Nest&) const = default;

  bool has(Statement::Kind kind) const {
    for (const Statement& s : body)
      if (s.kind == kind) return true;
    return false;
  }
  /// What is added where data say, if it is that; such a nest does nothing else.
  const Statement* addition() const {
    for (const Statement& s : body)
      if (s.kind == Statement::Kind::Store && s.op == ir::Op::Add) return &s;
    return nullptr;
  }
  std::uint32_t loops() const { return outer + serial + 1u; }
  std::uint32_t vector_loop() const { return outer + serial; }
  std::uint64_t reduced_mask() const {  // loops inside the items that are reduced
    const std::uint64_t serial_mask = ((std::uint64_t{1} << serial) - 1) << outer;
    return kind == NestKind::Lanes ? serial_mask | std::uint64_t{1} << vector_loop() : serial_mask;
  }
  bool has_columns() const;
  /// By statement: is it a column, or does it depend on one?
  std::vector<bool> behind_columns() const;
  /// The canonical text of everything above: what the kernel cache compares.
  std::string key() const;
};

/// What the Nest leaves out, in the same order.
struct NestNumbers {
  std::vector<std::int64_t> extents;                    // of the loops
  std::vector<std::int64_t> offsets;                    // of the linears, in elements
  std::vector<std::vector<std::int64_t>> coefficients;  // of the linears, every variable
  std::vector<std::int64_t> by;                         // of the derived variables
  std::vector<std::int64_t> bounds;                     // of the checks
  std::vector<ir::NodeId> buffers;                      // the node whose memory it is
  std::vector<std::vector<ir::NodeId>> members;         // of a buffer that is a list: the arguments or results, or the slots; else none
  std::vector<std::int32_t> outputs;  // of a written buffer: which copy of that node's result (0 unless it is an output twice), or behind
                                      // these which of its places in assembled arrays (compiler/lists.h);
                                      // kUnrounded: the f32 that other kernels read of a half
  static constexpr std::int32_t kUnrounded = -1;
  std::vector<std::uint32_t> slots;  // graph slots
  std::vector<std::uint64_t> signs;  // of each: bits of its value that change. What is subtracted is added, with its sign changed
  /// What the kernel is given for a slot.
  std::int64_t word_of_slot(std::size_t s, const std::vector<ir::Slot>& values) const {
    return static_cast<std::int64_t>(values[slots[s]].bits ^ signs[s]);
  }
  std::int64_t results = 0;     // of a routine: elements of the result along its axis
  std::int64_t padded_run = 0;  // of the order of summation, where runs are filled
};

std::string print(const Nest& nest, const NestNumbers& numbers);

/// The bytes of numbers, one behind the other, at the end of a key.
template <class... Numbers> void append_bytes(std::string& key, Numbers... numbers) {
  char bytes[(sizeof numbers + ...)];
  char* at = bytes;
  ((std::memcpy(at, &numbers, sizeof numbers), at += sizeof numbers), ...);
  key.append(bytes, sizeof bytes);
}

}  // namespace onepass::compiler
