// Execution records and profiles: include/onepass/record.h and profile.h.
#include "onepass/record.h"

#include <nanobind/stl/string.h>

#include "module.h"
#include "onepass/profile.h"

namespace onepass::python {

void bind_records(nb::module_& m) {
  nb::class_<ExecutionRecord> c(m, "ExecutionRecord",
                                "The kernels of a call and the reasons for them. A notebook shows the record as a page.");
  c.def("json", &ExecutionRecord::json, "Returns the record as JSON text (docs/record.schema.json).");
  c.def("html", &ExecutionRecord::html, "Returns the record as one self-contained HTML page.");
  c.def("__str__", &ExecutionRecord::text);
  c.def("save", &ExecutionRecord::save, nb::arg("path"),
        "Writes json(), html() or the text, depending on whether the path ends in .json, .html or otherwise.");
  c.def_prop_ro("ratio", &ExecutionRecord::ratio, "Bytes moved, divided by the minimum number of bytes.");
  m.def("set_profiling", &set_profiling, nb::arg("on"),
        "Turns profiling on or off; while it is on, calls record kernel times and trace events.");
  m.def(
      "write_profile", [](const std::string& path) { write_profile(path); }, nb::arg("path"),
      "Writes the recorded events in Chrome trace format, which Perfetto can open.");
  m.def("clear_profile", [] { clear_profile(); });
  m.def(
      "profile_json", [] { return profile_json(); }, "Returns the recorded events as JSON text.");
  m.def(
      "recent_calls",
      [](std::size_t count) {
        nb::list calls;
        for (const CallRecord& c : recent_calls(count)) {
          nb::dict one;
          one["signature"] = c.signature, one["start_ms"] = c.start_ms, one["ms"] = c.ms, one["thread"] = c.thread;
          nb::list kernels;
          for (const double ms : c.kernel_ms) kernels.append(ms);
          one["kernel_ms"] = kernels;
          calls.append(one);
        }
        return calls;
      },
      nb::arg("count"), "Returns the last calls made while profiling was on, the newest first, each as a dict.");
}

}  // namespace onepass::python
