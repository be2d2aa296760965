// Call signatures as text, for signature files, `warm_up` and messages. docs/runtime.md defines the format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program.h"
#include "runtime/signature.h"

namespace onepass::runtime {

struct CallSignature {
  struct Item {
    bool is_number = false;
    bool is_discarded = false;  // a destination that is discarded
    ArgumentType type;
    compiler::Literal number;
  };
  std::vector<std::int64_t> structure;  // lengths of vectors, which optionals are present, values of Static
  std::vector<Item> arguments;
  bool into = false;
  std::vector<Item> targets;
  bool aligned = true;  // all destinations are 64-byte aligned
  bool hot = false;     // has shape-specialized kernels

  std::string text() const;
  /// Parses `text`. Throws ValueError that describes the problem.
  static CallSignature parse(std::string_view text);
  /// Returns the signature of a plan.
  static CallSignature of(const LaunchPlan& plan);
};

/// Arrays of these types without memory, for a call that is prepared and not run.
class SignatureCall {
 public:
  explicit SignatureCall(const CallSignature& signature);
  CallSite site(int threads) const { return {arguments_, targets_, into_, threads}; }

 private:
  bool into_;
  std::vector<Array> arrays_;
  std::vector<Argument> arguments_;
  std::vector<Array*> targets_;
};

/// Reads a file of signatures, one per line; skips empty lines and lines that begin with #. Throws IoError if it cannot be read, and
/// ValueError with the first invalid line.
std::vector<CallSignature> read_signatures(const std::string& path);
/// Warms up each signature and returns the number that succeeded. Logs signatures that the function no longer accepts.
int warm_up_file(const std::string& path, const std::function<void(const CallSignature&)>& warm_up);
void write_signatures(const std::string& path, const std::vector<std::string>& texts);

}  // namespace onepass::runtime
