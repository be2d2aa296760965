// The state of a Program. Used by the implementation files of Program: program.cpp, bound_call.cpp, explain.cpp, make_plan, checks,
// device_call.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/target.h"
#include "onepass/options.h"
#include "runtime/fork.h"
#include "runtime/plan_table.h"
#include "runtime/program.h"
#include "runtime/structures.h"
#include "runtime/threads.h"

namespace onepass::runtime {

/// Returns a unique id for a program or plan; never 0.
std::uint64_t new_id();

struct Program::State {
  const Record record;
  const std::vector<std::string> argument_names;
  const Options options;
  compiler::Target target;
  bool interpret = false;

  std::atomic<std::uint64_t> id{new_id()};  // key of the program in threads' recent plans
  PlanTable plans;
  Structures structures;
  TableMutex names_mutex;
  std::list<std::vector<std::string>> output_names;  // filled on request
  std::atomic<std::uint64_t> last{0};                // id of the plan that ran last
  std::atomic<std::int64_t> temporary_bytes{0}, uploaded{0}, downloaded{0};
  const std::shared_ptr<KernelCounts> counts =
      std::make_shared<KernelCounts>();  // also used by the background thread, which may outlive the program
  std::atomic<int> hot_shapes{0};
  std::atomic<bool> sealed{false}, depth_said{false}, compile_time_said{false};

  State(Record function, std::vector<std::string> names, Options how)
      : record(std::move(function)), argument_names(std::move(names)), options(how) {}
  int threads_of_a_call() const { return options.threads ? options.threads : threads::count(); }
  CallSite site(std::span<const Argument> arguments) const { return {arguments, {}, false, threads_of_a_call()}; }
  CallSite site(std::span<const Argument> arguments, std::span<Array* const> targets) const {
    return {arguments, targets, true, threads_of_a_call()};
  }
  PlanPointer last_plan() const { return plans.with_id(last.load(std::memory_order_relaxed)); }
};

}  // namespace onepass::runtime
