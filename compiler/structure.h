// structure: what recordings that differ in lengths alone have in common. Passes see an extent as 0, 1 or many, so what they made of one
// such recording is, with other lengths in it, what they would make of another. runtime/launch keeps the structures of a program: a new
// length is recorded, taken over and planned, and no pass runs again.
#pragma once

#include <memory>
#include <span>

#include "compiler/fuse.h"
#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

class Structure {
 public:
  /// `optimised` and `partition` are what the passes made of `recorded`. Null where these may depend on its lengths by more than their
  /// classes: lengths that stand in a product, a place or a bound (reshape, slice, concat, …), or of which element counts are compared.
  static std::shared_ptr<const Structure> of(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition,
                                             const Relax& relax);

  /// Fills `optimised` and `partition` in as the passes would; false, and both untouched, where `recorded` is of another structure.
  bool take_over(const ir::Graph& recorded, ir::Graph& optimised, Partition& partition) const;

 private:
  Structure(const ir::Graph& recorded, const ir::Graph& optimised, const Partition& partition)
      : recorded_(recorded), optimised_(optimised), partition_(partition) {}
  ir::Graph recorded_, optimised_;
  Partition partition_;
};

}  // namespace onepass::compiler
