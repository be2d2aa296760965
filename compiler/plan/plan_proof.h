// plan_proof: lets later plans skip verify_plan. Plans of one shape-generic analysis (compiler/structure.h) differ only in numbers. If a
// nest accesses arrays only by strides, the graph determines each of its numbers in closed form. Such a nest has no quotients, predicates,
// array lists or checked indices.
//
// A PlanProof holds these closed forms. A plan with the same nest and matching numbers computes the values that the graph defines, for any
// lengths.
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
  /// Returns the proof of a plan that verify_plan has accepted. Returns null if a number has no closed form or does not match its form.
  static std::unique_ptr<const PlanProof> of(const ir::Graph& graph, const Partition& partition, std::uint32_t group,
                                             std::span<const Layout> layouts, const Planned& piece);

  /// True if `piece` has the nest of this proof and the numbers that its forms predict. The graph and the partition may differ from the
  /// proof's graph and partition only in lengths. On false, the caller must run verify_plan.
  bool holds(const ir::Graph& graph, const Group& group, std::span<const Layout> layouts, const Planned& piece) const;

 private:
  friend class PlanProver;
  static constexpr std::int8_t kUnit = -1;  // an axis of one element
  // Required value of an affine map: the offset of the element of `node` whose index along each axis is the index of a domain axis. Without
  // a node, the map is the index of one domain axis.
  struct Form {
    std::uint32_t linear;
    ir::NodeId node;
    bool is_contiguous;                // independent of the layout of the node
    std::vector<std::int8_t> symbols;  // by axis of the node: an axis of the domain, or kUnit
  };
  Nest nest_;
  std::size_t axes_ = 0;                   // number of axes of the domain
  std::vector<std::uint32_t> loop_begin_;  // by loop: its first entry in loop_axes_; with an end entry
  std::vector<std::uint8_t> loop_axes_;    // axes of the domain; the last axis varies fastest
  std::vector<Form> forms_;                // at least one for each affine map
  NestNumbers same_;                       // numbers independent of lengths: arrays, outputs, scalar parameters, signs
};

/// Proofs of the fusion groups of one shape-generic analysis. Thread-safe, and lock-free because a process may fork at any moment.
class PlanProofs {
 public:
  explicit PlanProofs(std::size_t groups) : groups_(groups) {}
  ~PlanProofs();
  PlanProofs(const PlanProofs&) = delete;
  PlanProofs& operator=(const PlanProofs&) = delete;

  /// Does the same as verify_plan(), but skips its checks for a plan that a stored proof covers. May add a proof for any other plan.
  std::string verify(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                     std::span<const Planned> pieces);

 private:
  static constexpr int kMost = 4;  // nests of one group: another layout of an argument may give another nest
  struct OfGroup {
    std::array<std::atomic<const PlanProof*>, kMost> proofs{};
    std::atomic<int> tries{0};
  };
  std::vector<OfGroup> groups_;
};

}  // namespace onepass::compiler
