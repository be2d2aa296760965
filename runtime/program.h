// Program: one compiled function without its C++ types. Records, plans and compiles for each new signature, and calls. `compile(f)` and
// `formula(text)` are thin typed layers over it; the command and the tests use it directly.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "compiler/record.h"
#include "onepass/array.h"
#include "onepass/compare.h"
#include "onepass/options.h"
#include "onepass/record.h"
#include "onepass/runtime.h"
#include "runtime/captured.h"
#include "runtime/launch.h"

namespace onepass::runtime {

/// An argument of a call: an array, or a weakly typed number (a literal with a value from the call).
struct Argument {
  const Array* array = nullptr;
  compiler::Literal number;
};

/// The type of an argument without data, as in `dump --shapes`.
struct ArgumentType {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // empty: contiguous
  Device device{};
};

/// The recorder of a Program. It also records Arrays that the function reads without having them as arguments.
class ProgramRecorder : public compiler::Recorder {
 public:
  /// Adds a hidden input, which each call reads again. The recording keeps it alive. The same view of the same memory is one input.
  compiler::Value capture(const Array& array);
  std::vector<Array> captured;                   // the inputs of these Arrays follow the argument inputs
  CapturedNumbers captured_numbers;              // variables that the function read
  std::shared_ptr<const Attachment> attachment;  // moves to the plan of the recording: Program::Aftermath

 private:
  std::unordered_multimap<const void*, std::pair<std::size_t, compiler::Value>> by_address_;
};

struct CallSignature;  // in signature_text.h

class Program {
 public:
  /// Function that records: gets one Value for each argument (names "x0", "x1" … or `names`) and marks its results with Recorder::output.
  using Record = std::function<void(ProgramRecorder&, std::span<const compiler::Value>)>;
  struct State;  // in program_state.h

  Program(Record record, std::vector<std::string> argument_names, Options options);
  ~Program();

  /// Data of a call that later calls may need.
  struct Aftermath {
    std::shared_ptr<const Attachment> attachment;  // attachment of the recording
    std::vector<Array> captured;
    std::vector<std::uint64_t> slot_bits;    // scalar parameters of the recording, with their values in this call
    std::shared_ptr<const LaunchPlan> plan;  // the plan of the call
  };
  /// Calls the function and returns new results, in the order of the outputs.
  std::vector<Array> call(std::span<const Argument> arguments, Aftermath* after = nullptr);
  /// Writes to arrays with exactly the results' shapes and types; null discards a result. Destinations may overlap arguments, but not
  /// each other.
  void call_into(std::span<const Argument> arguments, std::span<Array* const> targets);

  /// A repeated call on the same Arrays, which it keeps alive. bind() checks and prepares it once, with fixed numbers, and does not run
  /// it. The program must outlive it. Only one thread may call it at a time.
  class Bound;
  std::unique_ptr<Bound> bind(std::span<const Argument> arguments, std::span<Array* const> targets);

  /// Runs the call in the function's mode and in mode unfused (mode reference for an unfused function), and reports differences.
  Comparison compare(std::span<const Argument> arguments);

  /// Plans without running; compiles nothing.
  PlanReport report(std::span<const ArgumentType> types);
  /// Describes the kernels for a call with these types or this signature, and the reasons for them; compiles nothing.
  ExecutionRecord describe(std::span<const ArgumentType> types, Detail detail = Detail::plan);
  ExecutionRecord describe(const CallSignature& signature, Detail detail = Detail::plan);
  /// Describes the last call in this process; without kernels before the first call.
  ExecutionRecord last_execution(Detail detail = Detail::plan) const;
  /// Describes a call that ran this plan of this program.
  ExecutionRecord execution_of(const LaunchPlan& plan, Detail detail) const;
  /// Returns the report of the last call in this process; empty before the first call. Scalar parameters have the values of the plan's
  /// first recording.
  std::shared_ptr<const PlanReport> last_report() const;
  std::string explain() const;  // each kernel of the last call: its outputs and the reason for its boundary
  Stats stats() const;

  /// Prepares for a call with this signature without running it: its kernels are then in the optimized tier. If `signature.hot` is set,
  /// also builds shape-specialized kernels.
  void warm_up(const CallSignature& signature, Tier tier = Tier::optimized);
  /// Waits until the kernels of all remembered calls are optimized, or until `nanoseconds` have passed (negative: no limit). False on
  /// timeout.
  bool wait_until_optimized(std::int64_t nanoseconds = -1);
  /// Returns the signatures of the remembered calls, in order of last use.
  std::vector<CallSignature> signatures() const;
  /// Applies Compile::never to later calls. Existing kernels are still optimized in the background.
  void seal();
  /// Forgets all signatures and the number of specialized shapes. Bound calls are unaffected.
  void reset();

  /// Returns the names of all results of a call with this signature, valid while the Program exists. Records the function if no call with
  /// this signature was made before.
  const std::vector<std::string>& output_names(std::span<const Argument> arguments);
  const Options& options() const;

 private:
  std::unique_ptr<State> state_;
};

class Program::Bound {
 public:
  struct Body;  // in bound_call.cpp
  explicit Bound(std::unique_ptr<Body> body);
  ~Bound();
  void operator()();

 private:
  std::unique_ptr<Body> body_;
};

/// Returns the optimized graph of this thread's last call, printed; empty before the first call.
std::string last_optimized_graph();

}  // namespace onepass::runtime
