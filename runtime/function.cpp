// Implementation of the templates in onepass/function.h: one Program for each structure of arguments (lengths of vectors, optionals,
// values of Static), recorded by the user's function.
#include "onepass/function.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "ir/graph.h"
#include "onepass/error.h"
#include "runtime/call_arguments.h"
#include "runtime/fork.h"
#include "runtime/gradient.h"
#include "runtime/graph_view.h"
#include "runtime/os.h"
#include "runtime/program.h"
#include "runtime/recording.h"
#include "runtime/signature_text.h"

namespace onepass {

std::string last_optimized_graph() { return runtime::last_optimized_graph(); }

namespace detail {

using runtime::CallArguments;
using runtime::CallSignature;
using runtime::Program;
using runtime::Recording;

// ------------------------------------------------------------------------------------------------ arguments and results

void DynamicFlat::leaf(const CallArgument& a) { leaves.push_back(a); }
void DynamicFlat::note(std::int64_t v) { lengths.push_back(v); }
void DynamicTargets::leaf(Array* a) { leaves.push_back(a); }

template <class T> T TensorReader::take(std::span<const T>& list) {
  if (list.empty()) fail();
  const T first = list.front();
  list = list.subspan(1);
  return first;
}
Tensor TensorReader::leaf() { return take(leaves_); }
std::int64_t TensorReader::note() { return take(notes_); }
std::size_t TensorReader::length() {
  const auto n = static_cast<std::uint64_t>(note());
  if (n > leaves_.size() + notes_.size()) fail();
  return static_cast<std::size_t>(n);
}
void TensorReader::finish() const {
  if (!leaves_.empty() || !notes_.empty()) fail();
}
void TensorReader::fail() {
  throw Error("the arguments of the function do not match this signature: their number, lists or Static values differ");
}

namespace {
std::string element_name(std::size_t index, bool of_list, std::size_t depth) {
  return of_list ? fmt::format("[{}]", index) : fmt::format("{}{}", depth ? "." : "", index);
}
}  // namespace

void ResultWriter::enter(std::size_t index, bool of_list) { path_.push_back(element_name(index, of_list, path_.size())); }
void ResultWriter::enter(std::string_view key) { path_.push_back(fmt::format(".{}", key)); }
void ResultWriter::leave() { path_.pop_back(); }
void ResultWriter::leaf(Tensor t) {
  std::string name = "out";
  for (const std::string& part : path_) name += part;
  tensors_.push_back(t);
  names_.push_back(std::move(name));
}
void ResultWriter::fail_empty() { throw Error("compile: a vector in the result has an element without a Tensor. Remove the element."); }

void ResultReader::enter(std::size_t index, bool of_list) {
  if (!names_.empty()) path_.push_back(element_name(index, of_list, path_.size()));
}
void ResultReader::leave() {
  if (!names_.empty()) path_.pop_back();
}
// Elements of a vector are adjacent and have at least one result each, so the last index gives the length.
std::size_t ResultReader::length() const {
  std::string prefix = "out";
  for (const std::string& part : path_) prefix += part;
  prefix += '[';
  std::size_t length = 0;
  for (std::size_t i = next_; i < names_.size() && names_[i].starts_with(prefix); ++i)
    std::from_chars(names_[i].data() + prefix.size(), names_[i].data() + names_[i].size(), length), ++length;
  return length;
}

// ------------------------------------------------------------------------------------------------ functions

namespace {

constexpr std::size_t kMaxStructures = 256;  // programs of one function; bounds memory for many different list lengths

using Programs = std::map<std::vector<std::int64_t>, std::shared_ptr<Program>>;

}  // namespace

struct FunctionCore::Body {
  Shared<void> function;
  std::size_t function_bytes = 0;
  Record record;
  Options options;                 // unchanged by seal(), so that any thread can read them
  std::shared_ptr<Program> plain;  // the program without structure, found without a lock

  mutable runtime::TableMutex mutex;  // guards the members below
  bool sealed = false;                // also applies to new programs
  Programs programs;
  std::shared_ptr<Program> last;
  Stats of_dropped;

  // Called after the function's results are marked.
  using After = void (*)(runtime::ProgramRecorder& recorder, std::span<const compiler::Value> arguments, const Options& options);
  std::shared_ptr<Program> make(std::vector<std::int64_t> structure, After after = nullptr) const {
    Options now = options;
    if (sealed) now.compile = Compile::never;
    auto run = [after, options = now, function = function, bytes = function_bytes, record = record, structure = std::move(structure)](
                   runtime::ProgramRecorder& recorder, std::span<const compiler::Value> values) {
      Recording recording(recorder, options.relax);
      recording.watch.enter(function.get(), bytes);
      std::vector<Tensor> leaves;
      leaves.reserve(values.size());
      for (const compiler::Value& v : values) leaves.push_back(recording.tensor(v));
      TensorReader in(leaves, structure);
      ResultWriter out;
      record(function.get(), in, out);
      for (std::size_t i = 0; i < out.tensors_.size(); ++i) recorder.output(std::move(out.names_[i]), recording.of(out.tensors_[i]));
      if (after) after(recorder, values, options);
    };
    return std::make_shared<Program>(std::move(run), std::vector<std::string>{}, now);
  }

  // Removes and returns all programs if their number is at the limit. The caller must destroy them without a lock, because captured
  // values may run user code.
  [[nodiscard]] Programs drop_most(Programs& known) {
    Programs gone;
    if (known.size() < kMaxStructures) return gone;
    for (const auto& [_, program] : known) of_dropped += program->stats();
    gone.swap(known);
    return gone;
  }

  Program& program(std::span<const std::int64_t> structure, std::shared_ptr<Program>& hold) {
    if (structure.empty()) return *plain;
    std::vector<std::int64_t> key(structure.begin(), structure.end());
    Programs gone;
    std::shared_ptr<Program> before;
    const std::lock_guard lock(mutex);
    auto it = programs.find(key);
    if (it == programs.end()) {
      auto made = make(key);
      gone = drop_most(programs);
      it = programs.emplace(std::move(key), std::move(made)).first;
    }
    hold = it->second;
    before = std::exchange(last, hold);
    return *hold;
  }

  std::vector<std::pair<std::vector<std::int64_t>, std::shared_ptr<Program>>> all() const {
    std::vector<std::pair<std::vector<std::int64_t>, std::shared_ptr<Program>>> list;
    const std::lock_guard lock(mutex);
    list.emplace_back(std::vector<std::int64_t>{}, plain);
    list.insert(list.end(), programs.begin(), programs.end());
    return list;
  }

  // The programs for vjp: their outputs are the results, then the residuals.
  Programs with_pullback;
  const std::shared_ptr<std::atomic<int>> resets = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<Program> program_with_pullback(std::span<const std::int64_t> structure) {
    std::vector<std::int64_t> key(structure.begin(), structure.end());
    Programs gone;
    const std::lock_guard lock(mutex);
    if (const auto it = with_pullback.find(key); it != with_pullback.end()) return it->second;
    auto made = make(key, runtime::add_pullback);
    gone = drop_most(with_pullback);
    return with_pullback.emplace(std::move(key), std::move(made)).first->second;
  }

  std::shared_ptr<Program> latest() const {
    const std::lock_guard lock(mutex);
    return last ? last : plain;
  }
};

FunctionCore::FunctionCore(Shared<void> function, std::size_t bytes, Record record, const Options& options) : body_(Shared<Body>::make()) {
  body_->function = std::move(function);
  body_->function_bytes = bytes;
  body_->record = record;
  body_->options = options;
  body_->plain = body_->make({});
}

FunctionCore::Body& FunctionCore::body() const {
  if (!body_) [[unlikely]]
    throw Error(
        "a moved-from compiled function was called. Call the function that it was moved to, or copy instead of moving; copies share one "
        "function");
  return *body_;
}

void FunctionCore::call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named,
                        ResultReader& out) const {
  std::shared_ptr<Program> hold;
  Program& program = body().program(structure, hold);
  const CallArguments converted(arguments);
  out.arrays_ = program.call(converted);
  if (named) out.names_ = program.output_names(converted);
}

void FunctionCore::call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure,
                             std::span<Array* const> targets) const {
  std::shared_ptr<Program> hold;
  Program& program = body().program(structure, hold);
  program.call_into(CallArguments(arguments), targets);
}

bool FunctionCore::try_call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out,
                            std::string& error) const noexcept {
  return runtime::without_exceptions(error, [&] { call(arguments, structure, named, out); });
}
bool FunctionCore::try_call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure,
                                 std::span<Array* const> targets, std::string& error) const noexcept {
  return runtime::without_exceptions(error, [&] { call_into(arguments, structure, targets); });
}

PullbackCore FunctionCore::vjp(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named,
                               ResultReader& out) const {
  const std::shared_ptr<Program> program = body().program_with_pullback(structure);
  const CallArguments converted(arguments);
  Program::Aftermath after;
  std::vector<Array> arrays = program->call(converted, &after);
  PullbackCore pullback = runtime::make_pullback(program, std::move(after), converted, arrays, body().resets);
  if (named) {
    out.names_ = program->output_names(converted);
    out.names_.resize(arrays.size());
  }
  out.arrays_ = std::move(arrays);
  return pullback;
}

GradientCheck FunctionCore::check_gradients(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure) const {
  const std::vector<std::int64_t> key(structure.begin(), structure.end());
  std::shared_ptr<Program> values, derivatives;
  {
    const std::lock_guard lock(body().mutex);
    values = body().make(key), derivatives = body().make(key, runtime::add_both_products);
  }
  return runtime::check_gradients(*values, *derivatives, CallArguments(arguments));
}

GraphView FunctionCore::graph() const { return GraphViewAccess::make(body().latest()->last_report()->optimised); }
GraphView FunctionCore::recorded_graph() const { return GraphViewAccess::make(ir::prune(body().latest()->last_report()->recorded)); }
std::string FunctionCore::last_graph() const {
  const auto report = body().latest()->last_report();
  return report->optimised.outputs.empty() ? std::string() : ir::print(report->optimised);
}
Comparison FunctionCore::compare(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure) const {
  std::shared_ptr<Program> hold;
  return body().program(structure, hold).compare(CallArguments(arguments));
}
std::string FunctionCore::explain() const { return body().latest()->explain(); }
std::string FunctionCore::explain(std::string_view signature) const { return describe(signature, Detail::plan).text(); }
ExecutionRecord FunctionCore::describe(std::string_view text, Detail detail) const {
  const CallSignature signature = CallSignature::parse(text);
  std::shared_ptr<Program> hold;
  return body().program(signature.structure, hold).describe(signature, detail);
}
ExecutionRecord FunctionCore::last_execution(Detail detail) const { return body().latest()->last_execution(detail); }
Stats FunctionCore::stats() const {
  const std::lock_guard lock(body().mutex);
  Stats total = body().of_dropped;
  total += body().plain->stats();
  for (const auto& [_, program] : body().programs) total += program->stats();
  for (const auto& [_, program] : body().with_pullback) total += program->stats();
  return total;
}
const Options& FunctionCore::options() const { return body().options; }

// ------------------------------------------------------------------------------------------------ preparation of calls

void FunctionCore::warm_up(std::string_view text, Tier tier) const {
  const CallSignature signature = CallSignature::parse(text);
  std::shared_ptr<Program> hold;
  body().program(signature.structure, hold).warm_up(signature, tier);
}
bool FunctionCore::wait_until_optimized(std::int64_t nanoseconds) const {
  std::vector<std::shared_ptr<Program>> programs;
  {
    const std::lock_guard lock(body().mutex);
    programs.push_back(body().plain);
    for (const auto* const more : {&body().programs, &body().with_pullback})
      for (const auto& [_, program] : *more) programs.push_back(program);
  }
  const std::int64_t end = os::nanoseconds() + nanoseconds;
  bool all = true;
  for (const std::shared_ptr<Program>& program : programs)
    all &= program->wait_until_optimized(nanoseconds < 0 ? -1 : std::max<std::int64_t>(end - os::nanoseconds(), 0));
  return all;
}
int FunctionCore::warm_up_file(const std::string& path) const {
  static_cast<void>(body());
  return runtime::warm_up_file(path, [&](const CallSignature& signature) {
    std::shared_ptr<Program> hold;
    body().program(signature.structure, hold).warm_up(signature);
  });
}
std::vector<std::string> FunctionCore::signatures() const {
  std::vector<std::string> texts;
  const auto add = [&](const Program& program, const std::vector<std::int64_t>& structure) {
    for (CallSignature& signature : program.signatures()) {
      signature.structure = structure;
      texts.push_back(signature.text());
    }
  };
  for (const auto& [structure, program] : body().all()) add(*program, structure);
  return texts;
}
void FunctionCore::write_signatures(const std::string& path) const { runtime::write_signatures(path, signatures()); }
void FunctionCore::seal() const {
  {
    const std::lock_guard lock(body().mutex);
    body().sealed = true;
  }
  for (const auto& [structure, program] : body().all()) program->seal();
  const std::lock_guard lock(body().mutex);
  for (const auto& [_, program] : body().with_pullback) program->seal();
}
void FunctionCore::reset() const {
  for (const auto& [structure, program] : body().all()) program->reset();
  Programs gone;
  const std::lock_guard lock(body().mutex);
  for (const auto& [_, program] : body().with_pullback) body().of_dropped += program->stats();
  gone.swap(body().with_pullback);
  body().resets->fetch_add(1, std::memory_order_relaxed);
}

// ------------------------------------------------------------------------------------------------ bound calls

struct BoundCore::Body {
  FunctionCore function;          // kept alive
  std::shared_ptr<Program> hold;  // the program, kept alive too if the function has several programs
  std::unique_ptr<Program::Bound> bound;
};

BoundCore::BoundCore(FunctionCore function, std::span<const CallArgument> arguments, std::span<const std::int64_t> structure,
                     std::span<Array* const> targets) {
  std::shared_ptr<Program> hold;
  Program& program = function.body().program(structure, hold);
  auto bound = program.bind(CallArguments(arguments), targets);
  body_ = Shared<const Body>::make(Body{std::move(function), std::move(hold), std::move(bound)});
}

void BoundCore::operator()() const {
  if (!body_) [[unlikely]]
    throw Error("a moved-from bound call was called. Call the object that it was moved to.");
  (*body_->bound)();
}

// ------------------------------------------------------------------------------------------------ inlining

namespace {
constexpr int kMaxInlined = 500;  // limits the caller's stack: each level needs a few frames
}

Inlining::Inlining(const FunctionCore& callee) {
  const Relax relax = callee.options().relax;
  Recording& r = Recording::current("a compiled function called with Tensors");
  std::string missing;
  const auto add = [&](bool wanted, bool there, std::string_view name) {
    if (wanted && !there) missing += fmt::format("{}relax.{}", missing.empty() ? "" : " and ", name);
  };
  add(relax.contract, r.relax.contract, "contract");
  add(relax.reassociate, r.relax.reassociate, "reassociate");
  add(relax.approximate, r.relax.approximate, "approximate");
  if (!missing.empty())
    throw Error(
        fmt::format("a function compiled with {} is called with Tensors inside a function compiled without it: it becomes part of the "
                    "caller's graph, which would be strict. Compile the caller with {} too, or compile this function without it.",
                    missing, missing));
  if (r.inlined >= kMaxInlined)
    throw Error(fmt::format("compiled functions call each other {} levels deep while they are recorded; one of them probably calls itself",
                            kMaxInlined));
  ++r.inlined;
  r.watch.enter(callee.body().function.get(), callee.body().function_bytes);
}
Inlining::~Inlining() {
  if (Recording* r = Recording::current_or_null()) --r->inlined, r->watch.leave();
}

}  // namespace detail
}  // namespace onepass
