// fuse: which values are stored, and which stored values share a kernel. Everything else is computed where it is needed.
//
// A group has one iteration space: the axes of its widest values. Elementwise nodes and views never end a group. A reduction takes its
// producers in, and its consumers too when they loop over the same rows: softmax is one group. What ends a group is named by a Boundary.
//
// Extents are seen as 0, 1 or many only: two axes are the same loop because the program makes them so (elementwise operators unify the
// axes of their operands), never because their lengths happen to be equal.
//
// Left out on purpose: contractions, scans, reductions of reductions inside one nest, reductions over different axes in one pass.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/limits.h"
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
  KernelLimit,  // the group is too large for one kernel: limits.h
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
};

struct Partition {
  std::vector<Group> groups;            // in an order in which they can run
  std::vector<Boundary> boundary;       // of every node
  std::vector<std::uint32_t> group_of;  // of every stored node; kNoGroup where inlined
  std::vector<bool> read_again;         // of every half that is an output: whether another group loads it, unrounded
  static constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

  /// Does this group load the value, an argument or what an earlier group stored, rather than compute it?
  bool loads(const ir::Graph& graph, ir::NodeId id, std::uint32_t group) const {
    const ir::Op op = graph[id].op;
    return op == ir::Op::Input || (group_of[id] < group && !ir::is_view(op) && !ir::is_source(op));
  }
};

struct FuseOptions {
  bool unfused = false;
  KernelLimits limits = {};
};

Partition fuse(const ir::Graph& graph, const FuseOptions& options = {});

/// One line a group: its roots, its domain, its boundary's reason.
std::string print(const ir::Graph& graph, const Partition& partition);

}  // namespace onepass::compiler
