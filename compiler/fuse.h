// fuse: decides which values are materialized and which of them share a kernel. All other values are computed where they are used.
//
// A fusion group has one iteration space: the axes of its widest values. Elementwise nodes and views never end a fusion group. A reduction
// absorbs its producers. It also absorbs consumers that loop over the same reduction space, so softmax is one fusion group. A Boundary
// gives the reason why a fusion group ends.
//
// Extents are only seen as 0, 1 or many. Two axes are the same loop because elementwise operators unify the axes of their operands, never
// because their lengths happen to be equal.
//
// A scan absorbs elementwise nodes on both sides; its axis is a sequential loop. Gathers read from memory, so a computed operand is
// materialized first. A scatter_add is two fusion groups: one stores the initial value, and one adds the updates to it in sequence.
//
// Left out on purpose: reductions of reductions inside one loop nest; reductions and scans in one fusion group.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/limits.h"
#include "compiler/lists.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// Returns the number of columns of a reduction over the first axes outside of 2 to 15 columns, else 0. Its loop over the columns has few
/// vector lanes in use.
std::int64_t few_columns(const ir::Graph& graph, ir::NodeId id);

/// The reason why a value is materialized.
enum class Boundary : std::uint8_t {
  Inlined,        // not materialized: computed where it is used
  Output,         // output of the program
  FullReduction,  // a single value that every element of a later loop needs
  OtherLoops,     // a reduction's result read by loops outside its reduction space
  OtherAxes,      // combined with a reduction over different axes
  ReductionOfReduction,
  Recompute,    // read through several maps, or broadcast: recomputation would cost more than a round trip
  Pieces,       // nested subdomains, of which there would be too many: each level multiplies the loops
  FewColumns,   // a reduction over axes outside of few columns, or its costly operand: other loops use more lanes
  ShortAxis,    // a reduction reads it along a short last axis that repeats values: a loop over memory uses more lanes
  Gathered,     // indexed by data
  Scattered,    // updates are added at data-dependent indices
  Sorted,       // a precompiled routine reads or produces the whole array
  Stepped,      // a recurrence reads or produces it, step by step
  Checked,      // indices that consumers use only in part: all indices are checked
  KernelLimit,  // the fusion group is too large for one kernel (limits.h)
  Assembled,    // an array whose elements are stored where they are computed (lists.h)
  Unfused,      // mode unfused: one kernel for each operator
};
std::string_view text_of(Boundary boundary);

/// The axes of the fusion group's domain along which an axis of a materialized value runs: `count` axes from `first`, reversed if
/// `flipped`. A count of 0 means extent 1.
struct DomainAxes {
  std::uint8_t first = 0, count = 0;
  bool flipped = false;
};

struct Group {
  std::vector<ir::NodeId> roots;              // the materialized values (fusion group outputs), in topological order
  std::vector<std::vector<DomainAxes>> axes;  // by root and root axis
  std::vector<std::int64_t> domain;           // extents of the iteration space, without axes of extent 1
  std::uint64_t reduced = 0;                  // bit set of the `domain` axes that the fusion group's reductions reduce
  std::uint64_t ordered = 0;                  // bit set of the axes along which its scans, or its one scatter_add, run sequentially
  bool starts = false;                        // the fusion group stores the initial value of a scatter_add
  bool routine = false;                       // a routine computes its one root, or steps compute its roots: compiler/plan/routine.h
  bool columns = false;                       // has a fused column reduction (over the other axes)
};

struct Partition {
  std::vector<Group> groups;            // in an executable order
  std::vector<Boundary> boundary;       // by node
  std::vector<std::uint32_t> group_of;  // by node; kNoGroup if inlined
  std::vector<bool> read_again;         // by node: true for a half-precision output that another fusion group loads, unrounded
  Lists lists;
  static constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

  /// Returns the operands from which a fusion group computes the value. For a scatter_add these are the initial value, or the indices and
  /// updates; an array list has no operands.
  ir::List operands(const ir::Graph& graph, ir::NodeId id, std::uint32_t group) const {
    if (lists.reads(id)) return {};
    const ir::List all = graph.operands(id);
    if (graph[id].op != ir::Op::ScatterAdd) return all;
    return groups[group].starts ? all.first(1) : all.subspan(1);
  }

  /// True if the fusion group loads the value instead of computing it. Loaded values are arguments, array lists, and values that an earlier
  /// fusion group materialized.
  bool loads(const ir::Graph& graph, ir::NodeId id, std::uint32_t group) const {
    const ir::Op op = graph[id].op;
    return op == ir::Op::Input || lists.reads(id) || (group_of[id] < group && !ir::is_view(op) && !ir::is_source(op));
  }
};

struct FuseOptions {
  bool unfused = false;
  KernelLimits limits = {};
  std::vector<ir::NodeId> places = {};  // nodes whose every element must be computed, whatever the outputs need
  bool columns = true;                  // reductions over the kept axes of other reductions may share their fusion group (plan/nest.h)
  Lists lists = {};                     // array lists of the graph; empty in mode unfused and for targets without pointer tables
};

/// Prepares the graph for fuse by copying some results. A result that is an argument is copied as a view, so that the result
/// and the argument can have different strides. A scatter_add result is copied if it is returned several times, or if it is
/// half-precision and so rounded after all additions. A routine's result is copied if it is returned several times or half-precision.
ir::Graph copy_results(ir::Graph graph);

Partition fuse(const ir::Graph& graph, const FuseOptions& options = {});

/// Returns one line for each fusion group: its roots, its domain and the reason for its boundary.
std::string print(const ir::Graph& graph, const Partition& partition);

}  // namespace onepass::compiler
