// structure: shape-generic analysis of recordings that differ only in lengths. Passes see an extent as 0, 1 or many. So the passes' result
// for one recording, with its lengths replaced, is their result for another recording. runtime/launch keeps the structures of a program: a
// recording with new lengths reuses the result and is planned, and no pass runs again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/join_equal.h"
#include "compiler/plan/plan_proof.h"
#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// Mapping from a structure's lengths to a recording's lengths. It is one-to-one; 0 and 1 map to themselves.
class Lengths {
 public:
  /// Adds a pair. Returns false if `from` already maps to another length, or if another length maps to `to`.
  bool add(std::int64_t from, std::int64_t to);
  bool knows(std::int64_t from) const;
  std::int64_t operator()(std::int64_t from) const;

 private:
  static constexpr std::size_t kMost = 64;  // searched linearly
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
};

class Structure {
 public:
  /// Makes a structure; `optimised` and `partition` are the passes' result for `recorded`. Returns null if that result may depend on
  /// lengths beyond the classes 0, 1 and many. Examples are lengths in a product, an index or a bound (reshape, slice, concat, …), and
  /// compared element counts.
  static std::shared_ptr<const Structure> of(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition,
                                             const Relax& relax, const IsBrought& is_brought = {});

  /// Returns the lengths with which `recorded` has this structure; nullopt if it does not. The same literals must be equal, because their
  /// values may be joined (compiler/join_equal.h).
  std::optional<Lengths> lengths_of(const ir::Graph& recorded, const IsBrought& is_brought = {}) const;
  /// Returns the recording with these lengths; the next two functions return the passes' result for it. Scalar parameters have the values
  /// of the structure's own recording.
  ir::Graph recorded(const Lengths& lengths) const;
  ir::Graph optimised(const Lengths& lengths) const;
  Partition partition(const Lengths& lengths) const;
  /// Returns facts about its plans that hold for all lengths.
  PlanProofs& proofs() const { return proofs_; }

 private:
  Structure(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition, std::vector<std::uint32_t> equal_slots)
      : recorded_(recorded),
        optimised_(optimised),
        partition_(partition),
        equal_slots_(std::move(equal_slots)),
        proofs_(partition.groups.size()) {}
  ir::Graph recorded_, optimised_;
  Partition partition_;
  std::vector<std::uint32_t> equal_slots_;
  mutable PlanProofs proofs_;
};

/// A recording, described by its structure.
struct OfStructure {
  std::shared_ptr<const Structure> structure;  // null: no structure is known
  Lengths lengths;
};

}  // namespace onepass::compiler
