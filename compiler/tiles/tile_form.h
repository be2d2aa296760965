// What a TileProgram (tiles.h) is made of: lists of steps, each a loop over a tile or over one element, and what reductions need beside
// them. Made by tile_builder.cpp, run by tile_run.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "compiler/plan/schedule.h"
#include "compiler/tiles/loops.h"

namespace onepass::compiler {

/// What a value varies with, a set of bits. Without Vector it is one element. Of a map and of lanes, what varies with the vector loop is of
/// level Element; of rows it is a Tile where the serial loops do not change it.
enum class Level : std::uint8_t { Call = 0, Row = 1, Serial = 3, Tile = 5, Element = 7 };
constexpr Level operator|(Level a, Level b) { return static_cast<Level>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b)); }
constexpr bool is_vector(Level level) { return static_cast<std::uint8_t>(level) & 4; }

struct TileStep {
  enum class Kind : std::uint8_t {
    Loop,   // y = loop(a, b, c)
    Load,   // y: elements of access `at`, where the guard a holds
    Place,  // y: the address of what access `at` reads, or of where it stores
    Index,  // y = linear `at`
    Guard,  // y: checks at .. at + count hold
    Fill,   // y: the one element a, everywhere
    Store,  // a, where the guard b holds
    Skip,   // the next `count` steps, unless some element of a is true
    Fold,   // the lanes of fold `at` take a, of a contraction the products of a and b
    Row,    // a is one of the eight rows that fold `at` takes together
    Scan,   // y: scan `at` of a
  };
  Kind kind;
  std::uint8_t size = 0;  // of an element that is loaded, stored or filled in
  bool one = false;       // Store, Skip; Fill of rows abreast: a is one element; b, where one_guard
  bool in_place = false;  // Load of rows abreast: where the array has the rows one after the other, y is its memory
  bool one_guard = false;
  ir::Op op = ir::Op::Input;  // Loop: of one operator
  DType dtype = DType::Bool;  // of its operands
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
  std::uint64_t identity;  // what a missing element and the start of an accumulator are
  std::uint32_t y;         // the result: one element; of rows and columns a tile
  std::uint32_t a, b = TileStep::kNone;
  std::uint32_t number = 0;  // among the reductions, or scans, of the body
  bool column = false, scan = false;
  std::uint32_t carry = TileStep::kNone;  // of a scan along a serial loop: the tiles of its carry, and behind it its base
  std::uint32_t rows = TileStep::kNone;  // of rows and columns: the first of the tiles that hold a for eight rows; none: a stands elsewhere
  std::uint32_t fills = TileStep::kNone;  // the tile that is a missing row
  std::int64_t stack_at = 0;              // the tree of blocks: of elements in a row's state, of tiles in the scratch
};

/// A contraction of rows, whose operands are products of x, which the vector loop does not change, and y. An operand that is an array in
/// memory is read there, by its access; else it is computed first, for some iterations of the serial loop.
struct TileChain {
  static constexpr std::int64_t kMostRows = 8;    // iterations of the last outer loop that are taken together
  static constexpr std::int64_t kMostSteps = 32;  // iterations of the serial loop whose operands are computed before they are used
  std::uint32_t fold = TileStep::kNone;           // none: the sweep is no such contraction
  std::uint32_t x_access = TileStep::kNone, y_access = TileStep::kNone;
  bool y_varies = false;  // with the last outer loop: iterations of that are taken one by one
};

struct TileForm {
  static constexpr std::uint32_t kTreeLevels = 48;  // of the tree of blocks: 2^48 blocks
  // Of a tree of tiles there is room for so many whole ones: where it has more levels, the tiles that run are shorter.
  static constexpr std::int64_t kWholeLevels = 8, kWholeLevelsOfChain = 4;
  static constexpr std::int64_t kLanesBytes = 256;  // of one fold, or of the addresses of eight rows

  struct Stage {
    TileSteps row, tile, stores;
  };
  struct Sweep {
    TileSteps serial, each;            // of one iteration of the serial loops; of a tile of the vector loop
    std::vector<std::uint32_t> folds;  // that are done when it is
    std::vector<std::uint32_t> scans;
    TileChain chain;
    std::vector<std::uint32_t> direct;  // of rows, where all that is done is to fold arrays in memory: the access of each fold
  };
  struct Cell {
    std::uint32_t value;
    std::uint64_t bits;
  };

  TileSteps call;
  std::vector<Stage> stages;  // sweeps + 1
  std::vector<Sweep> sweeps;  // and what is computed from columns, or what scans along the vector loop sum
  std::vector<TileFold> folds;
  std::vector<Cell> constants;
  std::vector<Cell> slots;           // bits: the word
  std::vector<std::uint32_t> place;  // of each value: its cell, or its tile behind these
  std::uint32_t cells = 0, tiles = 0;
  // Iterations of the last outer loop run together, as many as a tile has room for: a tile has their elements one row after the other, a
  // cell one element of each row, and a list runs over all of them.
  bool abreast = false;
  static constexpr std::int64_t kMostAbreast = 64;
  std::int64_t cell_bytes() const { return abreast ? 8 * kMostAbreast : 8; }
  std::int64_t tile = 0, tile_bytes = 0;  // a tile's elements; its bytes

  // Where things stand, in bytes: in the state of a row, of which there are eight where there are columns, and behind all states.
  std::int64_t cells_at = 0, lanes_at = 0, state_bytes = 0;
  std::int64_t panels_at = 0, tiles_at = 0, scratch_bytes = 0;

  // What a run takes, about.
  double element_ns = 0, tile_ns = 0, serial_ns = 0, row_ns = 0;
  double abreast_ns = 0;  // of each row, where row_ns is of rows that run together
};

}  // namespace onepass::compiler
