// The kernels of a record as a picture: as Graphviz text, and as SVG. The SVG comes from Graphviz if it is installed, else from a built-in
// layout.
#pragma once

#include <string>

#include "onepass/record.h"

namespace onepass::command {

std::string dot_of(const ExecutionRecord& record);
/// Returns an SVG made by the built-in layout.
std::string svg_of(const ExecutionRecord& record);
/// Runs `dot -Tsvg` on the text. Returns an empty text if `dot` is missing or fails, or if ONEPASS_DOT is `none`.
std::string svg_by_graphviz(const std::string& dot);

}  // namespace onepass::command
