// DeviceEmitter: writes the text of one kernel. The emit_*.cpp files share it.
//
// Structure of a kernel (docs/cuda.md has examples):
//
//   kernel parameters and loop-invariant values  the kernel's scope
//   for each chunk, row or column                the task's scope: its indices by division, then values that depend on them
//     for each sweep                             reductions: accumulators of W lanes, and in
//       for each step of the reduced r             the step's scope: loads, values, stores
//       the order of docs/language.md
//
// A statement is written into the outermost scope where its loops are known, at its first use. Values that vary along the vector loop are
// arrays of W elements, one for each neighbor that the thread processes. The compiler turns them into registers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/cuda/device_text.h"
#include "compiler/cuda/emit.h"
#include "compiler/plan/scratch.h"

namespace onepass::compiler::cuda {

/// Returns a value of this type as program text.
std::string literal(DType dtype, std::uint64_t bits);
/// Returns the target type of a conversion as its template argument; empty for other operators.
std::string target_type(ir::Op op, DType dtype);

struct Scope {
  Scope* parent;
  int depth;
  std::string text = {};
  std::unordered_map<std::uint32_t, std::string> values = {};  // names of the statements' values
  std::string indent() const { return std::string(static_cast<std::size_t>(2 * depth), ' '); }
  void line(const std::string& s) { text += indent() + s + "\n"; }
};

class DeviceEmitter {
 public:
  DeviceEmitter(DeviceProgram& program, const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known);
  DeviceKernel run();

 private:
  static constexpr std::uint32_t kNone = Statement::kNone;

  DeviceProgram& program_;
  const Nest apart_;  // for rows and columns
  const Nest& nest_;
  const DeviceSchedule& schedule_;
  const KnownWords* known_;
  WordLayout words_;
  std::vector<std::vector<bool>> needed_;
  const KeptPlaces kept_;
  DeviceKernel out_;
  Scope kernel_;
  Scope* item_ = nullptr;
  Scope* step_ = nullptr;    // scope of the inner_ loops
  Scope* along_ = nullptr;   // rows and columns: scope around the step, for values that vary only along the row
  std::uint64_t inner_ = 0;  // reduced loops; the loop that scans run along; the loops of a tile
  std::uint8_t sweep_ = 0;
  std::string row_is_there_ = {};  // name of the condition that the task has a row; empty if it always has a row

  // ---- helpers
  std::uint64_t vector_bit() const { return std::uint64_t{1} << nest_.vector_loop(); }
  bool reduces() const { return nest_.kind != NestKind::Map; }
  std::string word(std::uint32_t at) const;  // kernel parameter, in the type of indices
  std::string extent(std::uint32_t loop) const { return word(words_.extents + loop); }
  std::string index(std::uint32_t loop) const { return loop == nest_.vector_loop() ? "j" : "i" + std::to_string(loop); }
  DType type_of_access(std::uint32_t a) const { return nest_.buffers[nest_.accesses[a].buffer].dtype; }
  static std::string_view type(DType dtype) { return value_type(dtype); }
  static std::string_view functor(const Statement& s);
  std::string product(std::uint32_t first, std::uint32_t last) const;  // product of the extents of loops first .. last
  // Writes a scope inside `parent`: the line `opening`, which opens a block, then the text of `f`, then the end of the block.
  static void block(Scope& parent, const std::string& opening, const std::function<void(Scope&)>& f);
  // Returns the opening of a loop with a pragma. A separate line would not precede the loop: block() first writes values of outer scopes.
  static std::string unrolled(const Scope& parent, std::size_t by, const std::string& loop) {
    return "#pragma unroll " + std::to_string(by) + "\n" + parent.indent() + loop;
  }

  // ---- emit_values.cpp: statements
  bool is_array(std::uint32_t id) const;  // true if it is one value for each of the W neighbors
  Scope& place(const Statement& s);
  std::string linear(std::uint32_t at, bool with_offset, bool lane);  // offset + Σ coefficient · variable; with `lane`, for neighbor e
  bool moves_as_vector(std::uint32_t access) const;
  std::string member(std::uint32_t access, const std::string& number) const;  // index of the kernel parameter for a list member
  std::string address(std::uint32_t access, bool lane);
  std::string element(std::uint32_t access, bool lane);
  std::string guard_text(const Statement& s, bool lane);
  std::string value(std::uint32_t id);  // returns the name in a loop over the neighbors e; writes the definition at the first use
  std::string define(std::uint32_t id);
  std::string write_definition(std::uint32_t id);  // the operands must have been written
  bool is_kept_back(std::uint32_t id);             // an earlier sweep has cached the value
  std::string there(const Scope& scope, bool array) const;
  std::string slot_text(const Statement& s);
  void load(Scope& scope, const Statement& s, const std::string& name, bool array);
  std::string lanes_here(const Scope& scope) const;
  void store(Scope& scope, const Statement& s);
  void add(Scope& scope, const Statement& s, const std::string& guard);
  std::size_t kept_slot(std::uint32_t id) const;
  std::string_view kept_type(std::size_t slot) const;  // of the elements in shared memory
  std::string kept_function(const char* name, std::size_t slot) const;
  std::uint8_t first_sweep(std::uint32_t id) const;
  bool stores_in(const Statement& s, std::uint8_t sweep) const;
  bool any_stores(std::uint8_t sweep) const;
  void stores(Scope& scope, std::uint8_t sweep);
  void row_stores(std::uint8_t stage);
  // Writes the first `sweeps` sweeps over a row, and the stores of row values before the first sweep and after each sweep.
  void row_by_sweeps(int sweeps, const std::function<void()>& sweep);

  // ---- emit_reduce.cpp: common parts of reductions
  std::vector<std::uint32_t> reductions(std::uint8_t sweep) const;
  void indices(Scope& scope, std::uint32_t first, std::uint32_t last, const std::string& from);
  bool heavy() const;
  void reduced_range(Scope& scope);
  void reduced_indices(Scope& step, bool& there);
  std::string from() const;
  std::string until() const;
  void phases(const std::string& loop, const std::function<void(Scope&)>& open);
  std::string joins(std::uint32_t reduction) const;
  void first_part_stores(Scope& item, std::uint8_t stage);

  // ---- emit_columns.cpp: elementwise nests, and rows of accumulators
  void chunks();
  void columns_sweep(Scope& item);

  // ---- emit_lanes.cpp: lanes
  static int accumulators(const Statement& s) { return size_of(s.dtype) == 8 ? 2 : 4; }  // 32 or 64 lanes over 16 threads
  std::size_t loads_of_step() const;
  void row_for_each_team(Scope& item, const std::string& row, const std::string& end);
  void lanes_step(Scope& around, const std::vector<std::uint32_t>& reds, const std::string& opening, const std::string& at);
  void start_lanes(Scope& scope, const std::vector<std::uint32_t>& reds);
  void lanes_block(Scope& scope, const std::vector<std::uint32_t>& reds, const std::string& from, const std::string& until);
  void declare_kept(Scope& scope);
  void teams();
  void team_sweep(Scope& item, const std::vector<std::uint32_t>& reds);
  void blocks();
  void blocks_sweep(Scope& item);

  // ---- emit_rows_and_columns.cpp
  void rows_and_columns();
  void declare_kept_rows(const std::vector<std::uint32_t>& columns);
  std::vector<std::uint32_t> values_of_rows() const;
  bool stores_of_rows() const;
  void own_kept(Scope& scope, const char* row) const;
  void row_of_team(Scope& item, const std::vector<std::uint32_t>& of_rows);
  void eight_rows(Scope& group, const std::vector<std::uint32_t>& columns, const std::vector<std::uint32_t>& of_rows);
  void sums_of_blocks(const std::vector<std::uint32_t>& columns);
  void column_results(const std::vector<std::uint32_t>& columns);
  std::string part_of_column(std::uint32_t column, const std::string& part) const;

  // ---- emit_additions.cpp
  void sorted_additions();
  void updates_of_element(Scope& item, const Statement& add);

  // ---- emit_scan.cpp, emit_tile.cpp
  std::vector<std::uint32_t> scan_statements() const;
  void end_of_scan_block(Scope& scope, std::uint32_t id, const char* lanes, const char* element) const;
  std::string sums_of_scan(std::size_t scan, const std::string& sequence) const;
  void bases_of_scans(const std::string& sequences);
  void scans();
  std::vector<std::uint32_t> loads_before_scans(bool results) const;
  void scan_down(Scope& item, const std::string& from, const std::string& until, bool results);
  void split_column_scans(const std::string& loop, const std::function<void(Scope&)>& open);
  void tiles();
};

}  // namespace onepass::compiler::cuda
