// The recording that a thread is in: what Tensors of the C++ interface refer to. Made by runtime/function.cpp, used by tensor.cpp.
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

struct TensorAccess {  // Tensor's friend
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

/// One run of a function over Tensors. The innermost one of a thread is current from its construction to its destruction; they nest,
/// since a function may call another one on Arrays while it is recorded.
class Recording {
 public:
  Recording(ProgramRecorder& recorder, Relax relax);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Error naming `what` when this thread records nothing.
  static Recording& current(std::string_view what);
  static Recording* current_or_null();

  ProgramRecorder& recorder;

  Tensor tensor(const compiler::Value& value);
  /// Error when the Tensor belongs to another recording or to none.
  const compiler::Value& of(Tensor tensor) const;
  /// A number becomes a literal of its own.
  compiler::Value value(const Operand& operand);
  /// What is recorded from now on was written there.
  void at(const std::source_location& where);
  /// What another language records, whose operators have no line of C++, was written there.
  void at_host(std::string_view file, std::uint32_t line);
  /// The line that at_host said last; empty before.
  const std::string& host_line() const { return recorder.graph.sources[host_source_]; }

  const Relax relax;  // of the function that is recorded
  CaptureWatch watch;
  int inlined = 0;  // compiled functions within each other that are being recorded into this one

 private:
  std::uint32_t id_;
  Recording* outer_;
  std::vector<compiler::Value> values_;
  // `file:line` is interned by the address of the file's name and the line
  const char* last_file_ = nullptr;
  std::uint32_t last_line_ = 0, last_source_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> sources_;
  std::unordered_map<std::string, std::uint32_t> host_sources_;
  std::uint32_t host_source_ = 0;
};

/// The Error that is being handled, of the same kind, with the line that recorded it.
[[noreturn]] void rethrow_recorded_at(const std::source_location& where);

}  // namespace runtime
}  // namespace onepass
