// Execution records and profiles: include/onepass/record.h and profile.h.
#include "onepass/record.h"
#include "module.h"
#include "onepass/profile.h"

namespace onepass::python {

void bind_records(nb::module_& m) {
  nb::class_<ExecutionRecord> c(m, "ExecutionRecord", "What a call ran and why. A notebook shows it as a page.");
  c.def("json", &ExecutionRecord::json, "As docs/record.schema.json says.");
  c.def("html", &ExecutionRecord::html, "One page for a browser that needs nothing else.");
  c.def("__str__", &ExecutionRecord::text);
  c.def("save", &ExecutionRecord::save, nb::arg("path"), "json(), html() or the text, as the path ends in .json, .html or otherwise.");
  c.def_prop_ro("ratio", &ExecutionRecord::ratio, "Bytes moved for each byte that has to be.");
  m.def("set_profiling", &set_profiling, nb::arg("on"), "While it is on, calls keep kernel times and events for a trace.");
  m.def(
      "write_profile", [](const std::string& path) { write_profile(path); }, nb::arg("path"),
      "What was kept, as Chrome trace events: Perfetto opens them.");
  m.def("clear_profile", [] { clear_profile(); });
}

}  // namespace onepass::python
