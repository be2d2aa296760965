// Names of compiled kernels for perf and GDB, which otherwise show addresses. The environment variable ONEPASS_SYMBOLS asks for them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace onepass::runtime {

/// True if ONEPASS_SYMBOLS is set to `perf`, `gdb` or `perf,gdb`. Read once. Logs a warning for other values.
bool names_code();

/// Name of a piece of code while the code is in memory. Errors, such as a full disk, leave the code without a name.
///
/// - perf: a line in /tmp/perf-PID.map, which `perf report` reads. It remains after the code is freed.
/// - GDB: an object file in memory with one symbol, through GDB's interface for JIT compilers (GDB manual, "JIT Compilation Interface").
class CodeName {
 public:
  CodeName() noexcept;
  /// `unwind`: the code's .eh_frame section in memory, with which GDB finds the callers; may be empty.
  CodeName(std::span<const std::byte> code, std::string_view name, std::span<const std::byte> unwind = {}) noexcept;
  CodeName(CodeName&&) noexcept;
  CodeName& operator=(CodeName&&) noexcept;
  ~CodeName();

 private:
  struct Object;
  std::unique_ptr<Object> object_;  // GDB's
};

}  // namespace onepass::runtime
