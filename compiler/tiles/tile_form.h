// Parts of a TileProgram (tiles.h): lists of steps, each a loop over a tile or over one element, and the additional state of reductions.
// tile_builder.cpp makes them; tile_run.cpp runs them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "compiler/plan/schedule.h"
#include "compiler/tiles/loops.h"

namespace onepass::compiler {

/// Loops that a value varies with, as a bit set. Without the vector bit, the value is one element. In Map and Lanes nests, values that vary
/// with the vector loop have level Element. In Rows nests, they have level Tile if the serial loops do not change them.
enum class Level : std::uint8_t { Call = 0, Row = 1, Serial = 3, Tile = 5, Element = 7 };
constexpr Level operator|(Level a, Level b) { return static_cast<Level>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b)); }
constexpr bool is_vector(Level level) { return static_cast<std::uint8_t>(level) & 4; }

struct TileStep {
  enum class Kind : std::uint8_t {
    Loop,      // y = loop(a, b, c)
    Load,      // y: elements of access `at`, where predicate a holds
    Place,     // y: the address that access `at` reads or stores to
    Index,     // y = affine map `at`
    Guard,     // y: checks at .. at + count hold; the affine map of a single check may have the distance c
    Check,     // y: the index a, from the end if it is negative; 0, and an error of the call where predicate b holds, if out of bounds `at`
    Quotient,  // y: derived variable `count`, with affine map `at`; with `one`, the remainder
    Far,       // y: the distance that derived variable a, number `count`, adds to affine map `at`, and distance b
    Gather,    // y: as Load, at distance c
    Fill,      // y: a tile with the element a everywhere
    Store,     // stores a where predicate b holds
    Skip,      // skips the next `count` steps unless some element of a is true
    Fold,      // adds a, or for a contraction the products of a and b, to the lanes of fold `at`
    Row,       // a is one of the eight rows that fold `at` combines
    Scan,      // y: scan `at` of a
    Copy,      // y: a tile with the elements of a
  };
  Kind kind;
  std::uint8_t size = 0;  // bytes of an element (Load, Store, Fill, Copy)
  // Store, Skip, Fill and Far, several rows per tile: a is one element. Guard and Gather: c is one element. With one_guard, the other
  // operand is also one element.
  bool one = false;
  // Load, several rows per tile: if the rows are consecutive in the array, y is the array's memory.
  bool in_place = false;
  bool one_guard = false;
  ir::Op op = ir::Op::Input;  // operator of a Loop with a single operator
  DType dtype = DType::Bool;  // operand type of a Loop or Check
  std::uint8_t uniform = 0;
  TileLoop loop = nullptr;
  std::uint32_t y = kNone, a = kNone, b = kNone, c = kNone;
  std::uint32_t at = 0, count = 0;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
};
using TileSteps = std::vector<TileStep>;

/// A reduction, or a scan.
struct TileFold {
  FoldLoops loops;
  DType dtype;
  std::uint64_t identity;  // initial value of accumulators and value of padding
  std::uint32_t y;         // the result: one element; a tile for rows and columns
  std::uint32_t a, b = TileStep::kNone;
  std::uint32_t number = 0;  // number among the reductions, or scans, of the body
  bool column = false, scan = false;
  std::uint32_t carry = TileStep::kNone;  // scan along a serial loop: tiles of its carry, followed by its base
  // Rows and columns: the first of eight tiles that hold a; kNone: a is in an array.
  std::uint32_t rows = TileStep::kNone;
  std::uint32_t fills = TileStep::kNone;  // tile with the value of a padding row
  std::int64_t stack_at = 0;              // tree of blocks: its offset in elements of a row's state, or in tiles of the scratch
};

/// Contraction of rows. Its operands are x, which is invariant in the vector loop, and y. An operand that is an array is read through its
/// access; any other operand is first computed for some iterations of the serial loop.
struct TileChain {
  static constexpr std::int64_t kMostRows = 8;    // iterations of the last outer loop that are processed together
  static constexpr std::int64_t kMostSteps = 32;  // iterations of the serial loop for which operands are computed ahead
  std::uint32_t fold = TileStep::kNone;           // kNone: the sweep is not such a contraction
  std::uint32_t x_access = TileStep::kNone, y_access = TileStep::kNone;
  bool y_varies = false;  // y varies with the last outer loop, whose iterations are processed one by one
};

struct TileForm {
  static constexpr std::uint32_t kTreeLevels = 48;  // levels of the pairwise tree of blocks: up to 2^48 blocks
  // Levels of a tree with room for whole tiles. With more levels, shorter tiles are run.
  static constexpr std::int64_t kWholeLevels = 8, kWholeLevelsOfChain = 4;
  static constexpr std::int64_t kLanesBytes = 256;  // bytes per fold for lanes, or for the addresses of eight rows

  struct Stage {
    TileSteps row, tile, stores;
  };
  struct Sweep {
    TileSteps serial, each;            // steps per iteration of the serial loops; per tile of the vector loop
    std::vector<std::uint32_t> folds;  // folds that finish with the sweep
    std::vector<std::uint32_t> scans;
    TileChain chain;
    // Rows nests whose sweep only folds arrays in memory: the access of each fold.
    std::vector<std::uint32_t> direct;
  };
  struct Cell {
    std::uint32_t value;
    std::uint64_t bits;
  };

  TileSteps call;
  std::vector<Stage> stages;  // one more than sweeps
  // Also an entry for values computed from columns, or for block sums of scans along the vector loop.
  std::vector<Sweep> sweeps;
  std::vector<TileFold> folds;
  std::vector<Cell> constants;
  std::vector<Cell> slots;           // bits: the kernel parameter
  std::vector<std::uint32_t> place;  // by value: its cell, or the number of cells plus its tile
  std::uint32_t cells = 0, tiles = 0;
  // True if several iterations of the last outer loop run together, as many as fit into a tile. A tile has the elements of one row after
  // the other; a cell has one element per row. A list of steps runs over all of them.
  bool abreast = false;
  // True for steps (ir/steps.h). Sweep 0 loads the states and captures, sweep 1 is a step, sweep 2 stores the last states.
  bool recurrent = false;
  std::uint32_t going = TileStep::kNone;  // the value of a bool for each element: the steps end once all are false (ir::going_state)
  static constexpr std::int64_t kMostAbreast = 64;
  std::int64_t cell_bytes() const { return abreast ? 8 * kMostAbreast : 8; }
  std::int64_t tile = 0, tile_bytes = 0;  // elements of a tile; bytes of a tile

  // Byte offsets: within the state of a row, and after all states. There are eight row states if there are columns.
  std::int64_t cells_at = 0, lanes_at = 0, state_bytes = 0;
  std::int64_t panels_at = 0, tiles_at = 0, scratch_bytes = 0;

  // Estimated cost of a run.
  double element_ns = 0, tile_ns = 0, serial_ns = 0, row_ns = 0;
  double abreast_ns = 0;  // per row, if row_ns is the cost of rows that run together
};

}  // namespace onepass::compiler
