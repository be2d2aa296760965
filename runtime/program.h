// Program: one compiled function without its C++ types. Records for each new signature, plans, compiles, caches and calls. The typed
// `compile(f)` and `formula(text)` are thin layers over it; the command and the tests use it directly.
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

/// An argument of a call: an array, or a number without a strong type (a literal whose value the call brings).
struct Argument {
  const Array* array = nullptr;
  compiler::Literal number;
};

/// The type of an argument before there is data: what `dump --shapes` gives.
struct ArgumentType {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // empty: contiguous
  Device device{};
};

/// The recorder of a Program: it also knows Arrays that the function reads without having them as arguments.
class ProgramRecorder : public compiler::Recorder {
 public:
  /// A hidden input: read at each call, kept alive with the recording. The same view of the same memory is one input.
  compiler::Value capture(const Array& array);
  std::vector<Array> captured;                   // their inputs stand behind those of the arguments
  CapturedNumbers captured_numbers;              // variables that the function read
  std::shared_ptr<const Attachment> attachment;  // goes with the plan that is made of the recording: Program::Aftermath

 private:
  std::unordered_multimap<const void*, std::pair<std::size_t, compiler::Value>> by_address_;
};

struct CallSignature;  // signature_text.h

class Program {
 public:
  /// Records the function: gets one Value for each argument (names "x0", "x1" … or `names`), marks its results with Recorder::output.
  using Record = std::function<void(ProgramRecorder&, std::span<const compiler::Value>)>;
  struct State;  // program_state.h

  Program(Record record, std::vector<std::string> argument_names, Options options);
  ~Program();

  /// What a later call may need of one.
  struct Aftermath {
    std::shared_ptr<const Attachment> attachment;  // of the recording
    std::vector<Array> captured;
    std::vector<std::uint64_t> slot_bits;    // the values of the recording's slots in this call
    std::shared_ptr<const LaunchPlan> plan;  // that it ran
  };
  /// Fresh results, in the order of the outputs.
  std::vector<Array> call(std::span<const Argument> arguments, Aftermath* after = nullptr);
  /// Into arrays of exactly the results' shapes and types; null discards a result. Targets may overlap arguments, not each other.
  void call_into(std::span<const Argument> arguments, std::span<Array* const> targets);

  /// The same call again and again on the same Arrays, which are kept: everything is checked and prepared once, numbers are fixed. Runs
  /// at once only when it is called. The program must outlive it; not on two threads at once.
  class Bound;
  std::unique_ptr<Bound> bind(std::span<const Argument> arguments, std::span<Array* const> targets);

  /// Runs the call in the function's mode and in mode unfused (reference, where the function's is unfused), and says what differs.
  Comparison compare(std::span<const Argument> arguments);

  /// Plans without running; compiles nothing.
  PlanReport report(std::span<const ArgumentType> types);
  /// What such a call would run, and why; compiles nothing.
  ExecutionRecord describe(std::span<const ArgumentType> types, Detail detail = Detail::plan);
  ExecutionRecord describe(const CallSignature& signature, Detail detail = Detail::plan);
  /// The same of the last call in this process; without kernels before the first.
  ExecutionRecord last_execution(Detail detail = Detail::plan) const;
  /// The same of a call that ran this plan of this program.
  ExecutionRecord execution_of(const LaunchPlan& plan, Detail detail) const;
  /// Of the last call in this process; an empty report before the first. Slots have the values of the plan's first recording.
  std::shared_ptr<const PlanReport> last_report() const;
  std::string explain() const;  // each kernel of the last call: what it stores, why it ends there
  Stats stats() const;

  /// Makes ready what such a call needs, without running it: its kernels are in their optimised tier afterwards. Where `signature.hot` says
  /// so, with kernels of its own.
  void warm_up(const CallSignature& signature, Tier tier = Tier::optimized);
  /// Waits until the kernels of all calls that are remembered are optimised, or until the time is over: negative for any time. False
  /// when it was over.
  bool wait_until_optimized(std::int64_t nanoseconds = -1);
  /// Of the calls that are remembered, in the order of their last use.
  std::vector<CallSignature> signatures() const;
  /// From now on as with Compile::never; what is there already is optimised in the background.
  void seal();
  /// Forgets all signatures, and how many shapes were specialised. Bound calls stay as they are.
  void reset();

  /// Of all results of such a call; valid as long as the Program. Records where no such call was made before.
  const std::vector<std::string>& output_names(std::span<const Argument> arguments);
  const Options& options() const;

 private:
  std::unique_ptr<State> state_;
};

class Program::Bound {
 public:
  struct Body;  // bound_call.cpp
  explicit Bound(std::unique_ptr<Body> body);
  ~Bound();
  void operator()();

 private:
  std::unique_ptr<Body> body_;
};

/// The optimised graph of this thread's last call, printed; empty before the first.
std::string last_optimized_graph();

}  // namespace onepass::runtime
