// The kernels of a record as a picture: as text for Graphviz, and as SVG, by Graphviz where it is installed, else by a layering of our own.
#pragma once

#include <string>

#include "onepass/record.h"

namespace onepass::command {

std::string dot_of(const ExecutionRecord& record);
/// By our own layering.
std::string svg_of(const ExecutionRecord& record);
/// `dot -Tsvg` on the text, or nothing where there is no `dot`, it fails, or ONEPASS_DOT is `none`.
std::string svg_by_graphviz(const std::string& dot);

}  // namespace onepass::command
