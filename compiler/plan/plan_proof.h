// plan_proof: what verify_plan need not look at again. Plans of one structure (compiler/structure.h) differ in numbers alone. Where a nest
// reads and writes arrays by strides, with no quotient, guard, list or place of data, the graph says each of its numbers in closed form. A
// PlanProof keeps these forms: a plan with the same nest whose numbers are what they say computes what the graph says, for any lengths.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/plan/plan.h"

namespace onepass::compiler {

class PlanProof {
 public:
  /// The forms of a plan that verify_plan accepts. Null where a number has none, or where the plan is not what they say.
  static std::unique_ptr<const PlanProof> of(const ir::Graph& graph, const Partition& partition, std::uint32_t group,
                                             std::span<const Layout> layouts, const Planned& piece);

  /// True if `piece` has the nest of this proof and the numbers that its forms give. The graph and the partition must be those of the proof
  /// but for their lengths. False says nothing: verify_plan decides.
  bool holds(const ir::Graph& graph, const Group& group, std::span<const Layout> layouts, const Planned& piece) const;

 private:
  friend class PlanProver;
  static constexpr std::int8_t kUnit = -1;  // an axis of one element
  // What a linear must be: the element of `node` whose index has the value of a domain axis for each axis; of kNoNode, that of one axis.
  struct Form {
    std::uint32_t linear;
    ir::NodeId node;
    bool is_contiguous;                // whatever the node's layout
    std::vector<std::int8_t> symbols;  // by axis of the node: an axis of the domain, or kUnit
  };
  Nest nest_;
  std::size_t axes_ = 0;                   // of the domain
  std::vector<std::uint32_t> loop_begin_;  // by loop: where its axes begin in loop_axes_; one more
  std::vector<std::uint8_t> loop_axes_;    // of the domain, the last running fastest
  std::vector<Form> forms_;                // of every linear, at least one
  NestNumbers same_;                       // what lengths do not change: arrays, outputs, slots, signs
};

/// The proofs of a structure's groups. Any thread; no locks, since a process may fork at any moment.
class PlanProofs {
 public:
  explicit PlanProofs(std::size_t groups) : groups_(groups) {}
  ~PlanProofs();
  PlanProofs(const PlanProofs&) = delete;
  PlanProofs& operator=(const PlanProofs&) = delete;

  /// As verify_plan. A plan that a proof covers is not walked; another one may add a proof.
  std::string verify(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                     std::span<const Planned> pieces);

 private:
  static constexpr int kMost = 4;  // nests of a group: a layout of an argument may give another
  struct OfGroup {
    std::array<std::atomic<const PlanProof*>, kMost> proofs{};
    std::atomic<int> tries{0};
  };
  std::vector<OfGroup> groups_;
};

}  // namespace onepass::compiler
