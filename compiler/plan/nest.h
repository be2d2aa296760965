// Nest: one kernel as loops and a body, independent of the target. The schedule says how a target runs it; the emitters write the code.
//
// A loop nest is canonical: it has no lengths, no strides beyond their coefficient kind and no values of literals. Equal keys therefore
// mean equal code. NestNumbers holds the omitted numbers in the same order; the kernel gets them as arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Compile-time knowledge of a generic kernel about one coefficient.
enum class Coefficient : std::uint8_t {
  Zero,
  One,
  General,
  MinusOne,  // only along the vector loop of a load
  Two,       // Two to Eight: only in interleaved access groups
  Three,
  Four,
  Five,
  Six,
  Seven,
  Eight,
};
/// Returns the number that a coefficient kind of an interleaved access group represents.
constexpr int number_of(Coefficient c) { return static_cast<int>(c) - static_cast<int>(Coefficient::Two) + 2; }

constexpr Coefficient coefficient_of(std::int64_t number) {
  return static_cast<Coefficient>(static_cast<std::int64_t>(Coefficient::Two) + number - 2);
}
inline constexpr std::int64_t kFarthestApart = 8;  // largest distance between the loads of an interleaved access group, in elements
inline constexpr std::int64_t kFarthestPart = 4;   // the same if the group does not read every element

/// Affine map: offset + Σ coefficient · variable. The variables are the loops, then the floordiv/mod variables. The offset is always a
/// number.
struct Linear {
  std::vector<Coefficient> of;
  bool operator==(const Linear&) const = default;
};

/// Floordiv/mod variable: floor(linear / by) or linear mod by, with by > 0. Unaligned reshapes and strided pads need them. A variable with
/// a `place` is instead the value of that checked index, which is read from data.
struct Derived {
  std::uint32_t linear;
  bool modulo;
  std::uint32_t place = kNone;  // the `Place` statement that computes the variable, or kNone
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Derived&) const = default;
};

/// Memory that a load or store touches: a kernel argument with elements of type `dtype`.
///
/// Loads of elements that are c = 2 to 8 apart along the vector loop, and start within c elements, form an interleaved access group. Whole
/// vectors are loaded once and then deinterleaved. A group that does not read every element has c <= kFarthestPart.
///
/// For an array list, affine map `table` selects the pointer-table entry; `linear` is the element offset in that array.
struct Access {
  std::uint32_t buffer;
  std::uint32_t linear;
  std::uint32_t table = kNone;
  std::uint32_t first = kNone;  // interleaved access group: its access with the lowest address
  std::uint8_t place = 0;       // interleaved access group: elements from the start of `first`
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Access&) const = default;
};

/// Bounds check: 0 <= linear < bound.
struct Check {
  std::uint32_t linear;
  bool operator==(const Check&) const = default;
};

struct Statement {
  enum class Kind : std::uint8_t {
    // at: access. guard: a Guard statement or none; lanes whose predicate is false are not read and give 0. a: the Place that the address
    // depends on.
    Load,
    // at: access. a: the value. guard: as for a load. count: this store and the next stores form that many adjacent elements of one
    // iteration. op Add: adds the value to the element that checked index b selects.
    Store,
    Index,     // at: affine map, whose value has type `dtype`
    Slot,      // at: position in Nest::slots
    Constant,  // bits
    Op,        // op on a, b, c
    Guard,     // conjunction of bounds checks at .. at + count; a: the Place that they depend on
    // op over the reduced loops of a; for a contraction, of the products of a and b. count 1: a fused column reduction, over the outer
    // loops instead.
    Reduce,
    Scan,  // prefix form of `op` along the sequential loop
    // Checked index: the element that index a selects, below the bound of check `at`. Where `guard` holds, an index out of bounds becomes 0
    // and sets the error flag of the kernel.
    Place,
  };
  Kind kind;
  ir::Op op = ir::Op::Input;
  DType dtype = DType::Bool;  // type of the computation and of the result; never a half type
  // Half type of a cast or bitcast to a half (dtype is F32), or of a bitcast from a half; else F32.
  DType half = DType::F32;
  std::uint8_t stage = 0;  // first sweep that can compute it; for a Reduce, the sweep after its own
  std::uint8_t count = 0;
  std::uint32_t a = kNone, b = kNone, c = kNone;
  std::uint32_t guard = kNone;
  std::uint32_t at = 0;
  std::uint64_t loops = 0;  // bit mask of the loops that the value depends on
  std::uint64_t bits = 0;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool operator==(const Statement&) const = default;
};

struct BufferInfo {
  DType dtype;  // element type; never a half type if only other kernels read the buffer
  bool written;
  bool operator==(const BufferInfo&) const = default;
};

inline constexpr std::int64_t kShortRow = 64;  // most elements of a short row

/// Loop order. The `outer` non-reduced loops form the tasks that threads share. The `serial` reduced loops follow. The last loop is the
/// vector loop.
///   Map    Elementwise nest: no reduction, and the vector loop is not reduced. A nest with scans runs along the vector loop in sequence,
///          in vectors of one scan group.
///   Rows   Outer-axis reduction: the vector loop is not reduced and the reduced loops are serial, so that accumulators are rows. Scans
///          along an axis other than the last axis, and additions at data-dependent indices, also use this kind; their loops are serial
///          too.
///   Lanes  Inner-axis reduction: the vector loop is the last reduced loop, so that accumulators are vector lanes. It can have fused column
///          reductions, which reduce values of the last sweep over the outer loops; those loops are then in row-major order.
///
/// Statements that depend on a column (Nest::behind_columns) are computed and stored after all rows. Their `stage` is `sweeps`.
enum class NestKind : std::uint8_t { Map, Rows, Lanes };

struct Nest {
  NestKind kind = NestKind::Map;
  std::uint8_t outer = 0, serial = 0;
  std::uint8_t runs = 0;    // number of reduced loops that count padded runs; 0: no padding
  std::uint8_t sweeps = 1;  // traversals of the reduced loops
  // True if the vector loop runs through short rows, one after the other. Each floordiv/mod variable is then the row or the column. Each
  // load varies along the loop with only the row, only the column or the loop itself; stores are contiguous. A row has NestNumbers::by[0]
  // elements.
  bool short_rows = false;
  ir::Op routine = ir::Op::Input;  // nest without a body: operator that a library routine computes (routine.h); else Input
  std::uint8_t variant = 0;        // last attribute of `routine`: descending, to the right, or the kind of Assign
  bool is_routine() const { return routine != ir::Op::Input; }
  // `Steps` nests, whose code is compiled: the attributes of the node for a single step, and, for each written buffer, the index of its
  // result.
  std::vector<std::int64_t> steps;
  std::vector<std::uint32_t> results;
  bool is_in_library() const { return is_routine() && routine != ir::Op::Steps; }
  std::uint8_t phases = 1;  // interleave factor: indices that one iteration of the vector loop computes, each with its own statements
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
  /// Returns the store that adds at data-dependent indices, or null. A nest with such a store does nothing else.
  const Statement* addition() const {
    for (const Statement& s : body)
      if (s.kind == Statement::Kind::Store && s.op == ir::Op::Add) return &s;
    return nullptr;
  }
  std::uint32_t loops() const { return outer + serial + 1u; }
  std::uint32_t vector_loop() const { return outer + serial; }
  std::uint64_t reduced_mask() const {  // reduced loops within a task
    const std::uint64_t serial_mask = ((std::uint64_t{1} << serial) - 1) << outer;
    return kind == NestKind::Lanes ? serial_mask | std::uint64_t{1} << vector_loop() : serial_mask;
  }
  /// Returns the places of an interleaved access group that are read, as bits.
  std::uint32_t places_of_group(std::uint32_t first) const;
  bool has_columns() const;
  /// Returns, for each statement, whether it is a fused column reduction or depends on such a reduction.
  std::vector<bool> behind_columns() const;
  /// Returns the canonical text of all fields above. The kernel cache compares it.
  std::string key() const;
};

/// Search for an index: the statement is the least index at which `value` equals its extreme, or is NaN. All belong to the same loop.
struct IndexSearch {
  std::uint32_t extreme, value, index;  // statements; `extreme` is a Reduce
};
/// Returns the search that a Reduce makes, or nullopt: a minimum over where(equal(value, extreme) | isnan(value), index, largest i64), along
/// the nest's only reduced loop. The loop that computes the extreme can then find the index, too.
std::optional<IndexSearch> index_search(const Nest& nest, std::uint32_t statement);

/// Nest parameters: the numbers that a Nest omits, in the same order.
struct NestNumbers {
  std::vector<std::int64_t> extents;                    // by loop
  std::vector<std::int64_t> offsets;                    // by affine map, in elements
  std::vector<std::vector<std::int64_t>> coefficients;  // by affine map, then by variable
  std::vector<std::int64_t> by;                         // divisors, by floordiv/mod variable
  std::vector<std::int64_t> bounds;                     // by bounds check
  std::vector<ir::NodeId> buffers;                      // node whose memory each buffer is
  // Members of each buffer that is an array list: arguments, results or scalar parameters. Empty for other buffers.
  std::vector<std::vector<ir::NodeId>> members;
  // Destination of each written buffer. The copies of the node's result come first (more than one copy if it is an output several times).
  // The indices after them are its positions in assembled arrays (compiler/lists.h). kUnrounded is the F32 value of a half that other
  // kernels read.
  std::vector<std::int32_t> outputs;
  static constexpr std::int32_t kUnrounded = -1;
  std::vector<std::uint32_t> slots;  // indices into ir::Graph::slots
  // Bits of each scalar parameter's value that are flipped before the call. A subtraction becomes an addition of the negated parameter.
  std::vector<std::uint64_t> signs;
  /// Returns the kernel parameter for scalar parameter `s`.
  std::int64_t word_of_slot(std::size_t s, const std::vector<ir::Slot>& values) const {
    return static_cast<std::int64_t>(values[slots[s]].bits ^ signs[s]);
  }
  std::int64_t results = 0;     // routines: elements of the result along its axis
  std::int64_t padded_run = 0;  // padded run length of the summation order; 0 without padding
};

std::string print(const Nest& nest, const NestNumbers& numbers);

/// Appends the bytes of `numbers`, without separators, to `key`.
template <class... Numbers> void append_bytes(std::string& key, Numbers... numbers) {
  char bytes[(sizeof numbers + ...)];
  char* at = bytes;
  ((std::memcpy(at, &numbers, sizeof numbers), at += sizeof numbers), ...);
  key.append(bytes, sizeof bytes);
}

}  // namespace onepass::compiler
