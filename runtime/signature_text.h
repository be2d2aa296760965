// The signature of a call as text: what a file of recorded signatures holds, `warm_up` reads, and messages name a call by. docs/runtime.md
// has the form.
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
    bool is_discarded = false;  // a target that is not wanted
    ArgumentType type;
    compiler::Literal number;
  };
  std::vector<std::int64_t> structure;  // lengths of vectors, optionals that are there, values of Static
  std::vector<Item> arguments;
  bool into = false;
  std::vector<Item> targets;
  bool aligned = true;  // targets that all begin at a multiple of 64
  bool hot = false;     // has kernels of its own

  std::string text() const;
  /// ValueError that says what is wrong with `text`.
  static CallSignature parse(std::string_view text);
  /// What a plan of one program is for.
  static CallSignature of(const LaunchPlan& plan);
};

/// Arrays of these types without memory of their own: for a call that is prepared and not run.
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

/// A file of signatures: one a line; empty lines and those that begin with # are left out. IoError when it cannot be read, ValueError
/// with the line that is none.
std::vector<CallSignature> read_signatures(const std::string& path);
/// How many of them `warm_up(signature)` made ready; those that the function does not take any more are said in the log.
int warm_up_file(const std::string& path, const std::function<void(const CallSignature&)>& warm_up);
void write_signatures(const std::string& path, const std::vector<std::string>& texts);

}  // namespace onepass::runtime
