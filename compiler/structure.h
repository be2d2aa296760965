// structure: what recordings that differ in lengths alone have in common. Passes see an extent as 0, 1 or many, so what they made of one
// such recording is, with other lengths in it, what they would make of another. runtime/launch keeps the structures of a program: a new
// length is recorded, taken over and planned, and no pass runs again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/plan/plan_proof.h"
#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// The lengths of a recording, by those of its structure: each another one. 0 and 1 stand for themselves.
class Lengths {
 public:
  /// False where `from` is another length already, or `to` is another's.
  bool add(std::int64_t from, std::int64_t to);
  bool knows(std::int64_t from) const;
  std::int64_t operator()(std::int64_t from) const;

 private:
  static constexpr std::size_t kMost = 64;  // looked through one by one
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
};

class Structure {
 public:
  /// `optimised` and `partition` are what the passes made of `recorded`. Null where these may depend on its lengths by more than their
  /// classes: lengths that stand in a product, a place or a bound (reshape, slice, concat, …), or of which element counts are compared.
  static std::shared_ptr<const Structure> of(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition,
                                             const Relax& relax);

  /// The lengths by which `recorded` is of this structure, if it is.
  std::optional<Lengths> lengths_of(const ir::Graph& recorded) const;
  /// What was recorded with such lengths, and what the passes would make of it. Slots have the values of the structure's own recording.
  ir::Graph recorded(const Lengths& lengths) const;
  ir::Graph optimised(const Lengths& lengths) const;
  Partition partition(const Lengths& lengths) const;
  /// What is known of its plans, whatever the lengths.
  PlanProofs& proofs() const { return proofs_; }

 private:
  Structure(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition)
      : recorded_(recorded), optimised_(optimised), partition_(partition), proofs_(partition.groups.size()) {}
  ir::Graph recorded_, optimised_;
  Partition partition_;
  mutable PlanProofs proofs_;
};

/// A recording, by its structure.
struct OfStructure {
  std::shared_ptr<const Structure> structure;  // null: none is known
  Lengths lengths;
};

}  // namespace onepass::compiler
