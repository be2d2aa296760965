// fuse: which values are stored, and which stored values share a kernel. Everything else is computed where it is needed.
//
// A group has one iteration space: the axes of its widest values. Elementwise nodes and views never end a group. A reduction takes its
// producers in, and its consumers too when they loop over the same rows: softmax is one group. What ends a group is named by a Boundary.
//
// Extents are seen as 0, 1 or many only: two axes are the same loop because the program makes them so (elementwise operators unify the
// axes of their operands), never because their lengths happen to be equal.
//
// A scan takes maps in on both sides; its axis is a loop that runs in sequence. What data index is read from memory: a computed value is
// stored first. A scatter_add is two groups, one that stores where it starts from and one that adds the updates to it in sequence.
//
// Left out on purpose: reductions of reductions inside one nest, reductions and scans in one group.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/limits.h"
#include "compiler/lists.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// Why a value is stored.
enum class Boundary : std::uint8_t {
  Inlined,        // it is not: computed where it is needed
  Output,         // the caller wants it
  FullReduction,  // one value that every element of a later loop needs
  OtherLoops,     // a reduction's result read by loops that do not share its rows
  OtherAxes,      // reductions over different axes meet
  ReductionOfReduction,
  Recompute,    // read through several maps, or broadcast: computing it again would cost more than the round trip
  Pieces,       // pieces of pieces, of which there would be too many: each cuts the loops of those outside it
  Gathered,     // indexed by data
  Scattered,    // updates are added to it where data say
  Sorted,       // a precompiled routine reads or makes the whole array
  Stepped,      // a recurrence reads or makes it, one step after the other
  Checked,      // indices of which what is computed from them leaves some out: all are checked
  KernelLimit,  // the group is too large for one kernel: limits.h
  Assembled,    // an array whose elements are stored where they are computed: lists.h
  Unfused,      // mode unfused: one kernel for each operator
};
std::string_view text_of(Boundary boundary);

/// Which axes of the group's domain an axis of a stored value runs along: `count` of them from `first` on (none: its extent is 1), from
/// the end backwards where `flipped`.
struct DomainAxes {
  std::uint8_t first = 0, count = 0;
  bool flipped = false;
};

struct Group {
  std::vector<ir::NodeId> roots;              // the stored values, in topological order
  std::vector<std::vector<DomainAxes>> axes;  // of each root, for each of its axes
  std::vector<std::int64_t> domain;           // extents of the iteration space, units left out
  std::uint64_t reduced = 0;                  // the axes of `domain` that the group's reductions reduce
  std::uint64_t ordered = 0;                  // those along which its scans, or its one scatter_add, run in sequence
  bool starts = false;                        // of a scatter_add: what it starts from
  bool routine = false;                       // its one root is computed by a routine, or its roots by steps: compiler/plan/routine.h
  bool columns = false;                       // some of its reductions are over the other axes
};

struct Partition {
  std::vector<Group> groups;            // in an order in which they can run
  std::vector<Boundary> boundary;       // of every node
  std::vector<std::uint32_t> group_of;  // of every stored node; kNoGroup where inlined
  std::vector<bool> read_again;         // of every half that is an output: whether another group loads it, unrounded
  Lists lists;
  static constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

  /// Which operands a group computes the value from: of a scatter_add what it starts from, or places and updates; of a list none.
  ir::List operands(const ir::Graph& graph, ir::NodeId id, std::uint32_t group) const {
    if (lists.reads(id)) return {};
    const ir::List all = graph.operands(id);
    if (graph[id].op != ir::Op::ScatterAdd) return all;
    return groups[group].starts ? all.first(1) : all.subspan(1);
  }

  /// Does this group load the value, an argument, a list of them or what an earlier group stored, rather than compute it?
  bool loads(const ir::Graph& graph, ir::NodeId id, std::uint32_t group) const {
    const ir::Op op = graph[id].op;
    return op == ir::Op::Input || lists.reads(id) || (group_of[id] < group && !ir::is_view(op) && !ir::is_source(op));
  }
};

struct FuseOptions {
  bool unfused = false;
  KernelLimits limits = {};
  std::vector<ir::NodeId> places = {};  // nodes whose every element has to be computed, whatever the outputs need of them
  bool columns = true;                  // reductions over the axes that others keep share their group (plan/nest.h)
  Lists lists = {};                     // of the graph; none for targets that cannot read through tables, and in mode unfused
};

/// Comes before fuse. A result that is an argument is copied: as a view, so that the two can have different strides. So is what data added
/// to, where it is several results, or a half, which is rounded when all is added; and what a routine made, where it is several results.
ir::Graph copy_results(ir::Graph graph);

Partition fuse(const ir::Graph& graph, const FuseOptions& options = {});

/// One line a group: its roots, its domain, its boundary's reason.
std::string print(const ir::Graph& graph, const Partition& partition);

}  // namespace onepass::compiler
