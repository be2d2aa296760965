// Reports of bad indices: kernels that index by data write the first bad index of a plan's calls into pinned memory of the CPU, and a later
// wait or call throws the error. No call waits for this.
//
// A report is in use by one plan until it is thrown. A kernel that is still running may write into it later, so it is reused only after the
// device has finished the work that had begun by then. This way each report is thrown once. The report of calls that the caller captured into
// a CUDA graph stays in use as long as the graph: a launch may throw it once more if it is thrown while the launch is running.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace onepass::runtime::cuda {

/// The memory of a report, which report_index() in compiler/cuda/device_text.cpp writes. `state`: 0, then 1 while one thread writes, then 2.
struct ReportWords {
  std::int64_t state, index, extent;
  std::int64_t any;  // address of a word that becomes nonzero after some report of the device is complete
};
inline constexpr std::int64_t kReportComplete = 2;

/// An operator that checks indices.
struct CheckedIndex {
  ir::Indexing indexing;
  std::int64_t extent, axis;
  bool is_unsigned;
  std::string source;  // line that recorded it; may be empty
};
/// Returns the operators of these nodes.
std::vector<CheckedIndex> checked_indices(const ir::Graph& graph, const std::vector<ir::NodeId>& places);

/// Returns the error message for an index that an earlier call met. `checks` are the operators of its plan; those with the extent may have
/// met it.
std::string bad_index_text(const std::vector<CheckedIndex>& checks, std::int64_t index, std::int64_t extent, int device);

}  // namespace onepass::runtime::cuda
