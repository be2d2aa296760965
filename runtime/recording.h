// The current recording of a thread, which Tensors of the C++ interface refer to. Created by runtime/function.cpp, used by tensor.cpp.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/record.h"
#include "onepass/tensor.h"
#include "runtime/captured.h"
#include "runtime/program.h"

namespace onepass {

struct TensorAccess {  // friend of Tensor
  static Tensor make(std::uint32_t recording, std::uint32_t value) {
    Tensor t;
    t.recording_ = recording;
    t.value_ = value;
    return t;
  }
  static std::uint32_t recording(Tensor t) { return t.recording_; }
  static std::uint32_t value(Tensor t) { return t.value_; }
};

namespace runtime {

/// One run of a function over Tensors. It is the current recording of its thread from construction to destruction. Recordings nest,
/// because a function may call another function on Arrays while it is recorded.
class Recording {
 public:
  Recording(ProgramRecorder& recorder, Relax relax);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Returns the current recording. Throws Error with `what` if this thread is not recording.
  static Recording& current(std::string_view what);
  static Recording* current_or_null();

  ProgramRecorder& recorder;

  Tensor tensor(const compiler::Value& value);
  /// Returns the Tensor's value. Throws Error if the Tensor belongs to another recording or to no recording.
  const compiler::Value& of(Tensor tensor) const;
  /// Converts an operand to a value. A number becomes a new literal.
  compiler::Value value(const Operand& operand);
  /// Sets the source position of later operators.
  void at(const std::source_location& where);
  /// Sets the source position of later operators of another language, which have no C++ position.
  void at_host(std::string_view file, std::uint32_t line);
  /// Returns the last position set by at_host; empty before its first call.
  const std::string& host_line() const { return recorder.graph.sources[host_source_]; }

  const Relax relax;  // relaxations of the recorded function
  CaptureWatch watch;
  int inlined = 0;  // nesting depth of compiled functions that are recorded into this function

 private:
  std::uint32_t id_;
  Recording* outer_;
  std::vector<compiler::Value> values_;
  // Source positions are interned by the address of the file name and the line.
  const char* last_file_ = nullptr;
  std::uint32_t last_line_ = 0, last_source_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> sources_;
  std::unordered_map<std::string, std::uint32_t> host_sources_;
  std::uint32_t host_source_ = 0;
};

/// Rethrows the current Error as the same type, with the source line that recorded it.
[[noreturn]] void rethrow_recorded_at(const std::source_location& where);

}  // namespace runtime
}  // namespace onepass
