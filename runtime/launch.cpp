// Runs the kernels of a plan: the last part of launch.h. make_launches.cpp and attach_kernels.cpp choose the kernels.
#include "runtime/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "ir/of_thread.h"
#include "ir/reference.h"
#include "onepass/error.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/profile.h"
#include "runtime/stop.h"
#include "runtime/threads.h"

namespace onepass::runtime {

using ir::Graph;

namespace {

// Memory that a thread keeps for small workspaces, so that a warm call does not allocate.
struct Arena {
  static constexpr std::size_t kMost = std::size_t{256} << 10;
  memory::Buffer buffer;
  bool busy = false;  // true during a call; nested calls are possible through the host's executor
};

class Scratch {
 public:
  explicit Scratch(std::size_t bytes) {
    if (bytes == 0) return;
    Arena& arena = ir::OfThread<Arena>::get();
    if (bytes > Arena::kMost || arena.busy) {
      own_ = memory::Buffer(bytes);
      data_ = static_cast<std::byte*>(own_.data());
      return;
    }
    if (arena.buffer.size() < bytes) arena.buffer = memory::Buffer(std::max<std::size_t>(bytes, 2 * arena.buffer.size()));
    arena.busy = true;
    borrowed_ = &arena;
    data_ = static_cast<std::byte*>(arena.buffer.data());
  }
  ~Scratch() {
    if (borrowed_) borrowed_->busy = false;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return data_; }

 private:
  memory::Buffer own_;
  std::byte* data_ = nullptr;
  Arena* borrowed_ = nullptr;
};

void say_control_changed() {
  static constinit Once once;
  if (once.first())
    log(LogLevel::info,
        "the host program changed the floating-point control (rounding, flush to zero or exceptions); kernels run under the default "
        "control, and each call restores the host's control");
}

void fill_words(const Launch& launch, std::byte* const* bases, const std::uint64_t* slots, std::int64_t* words) {
  std::memcpy(words, launch.words.data(), launch.words.size() * sizeof(std::int64_t));
  for (const Launch::Pointer& p : launch.pointers)
    words[p.word] =
        (p.base == Launch::Pointer::kOwnWords ? reinterpret_cast<std::int64_t>(words) : reinterpret_cast<std::int64_t>(bases[p.base])) +
        p.offset;
  if (slots)
    for (const Launch::SlotWord& s : launch.slots) words[s.word] = s.of(slots[s.slot]);
}

// Returns the number of tasks between two polls of the stop condition.
std::int64_t items_at_once(const Launch& launch) {
  const std::int64_t work = std::max<std::int64_t>(launch.work / std::max<std::int64_t>(launch.items, 1), 1);
  return std::max<std::int64_t>(StopCheck::kWork / work, 1) * launch.threads;
}

// Runs `part(begin, end)` over [0, count). A stoppable call runs it in rounds of `at_once` tasks and polls after each round. `work` is the
// total work.
template <class F> void in_rounds(StopCheck* stop, std::int64_t count, std::int64_t at_once, std::int64_t work, F&& part) {
  if (!stop) [[likely]]
    return part(std::int64_t{0}, count);
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const std::int64_t end = std::min(count, begin + at_once);
    part(begin, end);
    stop->did(static_cast<std::int64_t>(static_cast<double>(work) * static_cast<double>(end - begin) / static_cast<double>(count)));
  }
}

// Runs tasks that are claimed in order: a free thread takes the next task, so all previous tasks are done or running. Phase 0 of a task
// is independent. Phase 1 needs the result that the previous task publishes at the start of its phase 1.
template <class Code>
void run_claimed(const Launch& launch, const Code& function, int threads, std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  std::memset(scratch + launch.threads * launch.scratch_bytes, 0, static_cast<std::size_t>(launch.shared_bytes));
  auto* const slots = scratch + launch.threads * launch.scratch_bytes;
  const std::int64_t slot_bytes = launch.shared_bytes / (launch.items + 1);
  std::int64_t few[256];
  std::vector<std::int64_t> many(launch.words.size() > std::size(few) ? launch.words.size() : 0);
  std::int64_t* const before = many.empty() ? few : many.data();  // the kernel parameters of phase 0
  std::copy_n(words, launch.words.size(), before);
  before[launch.phase_word] = 0;
  words[launch.phase_word] = 1;
  in_rounds(stop, launch.items, stop ? items_at_once(launch) : 0, launch.work, [&](std::int64_t first, std::int64_t end) {
    std::atomic<std::int64_t> next{first};
    threads::parallel_for(threads, threads, [&](std::int64_t, std::int64_t, int share) {
      for (;;) {
        const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= end) return;
        function(before, item, item + 1, scratch + share * launch.scratch_bytes);
        const std::atomic_ref<std::int64_t> ready(*reinterpret_cast<std::int64_t*>(slots + item * slot_bytes));
        for (int spins = 0; item > 0 && ready.load(std::memory_order_acquire) == 0; ++spins)
          if (spins > 1000) os::yield_processor();  // the other thread may wait for this thread's processor
        function(words, item, item + 1, scratch + share * launch.scratch_bytes);
      }
    });
  });
}

// Runs the kernel in rounds, and polls the stop condition after each round.
template <class Code> [[gnu::noinline]] void run_stoppable(const Launch& launch, const Code& function, int threads, std::int64_t* words,
                                                           std::byte* scratch, StopCheck& stop) {
  const std::int64_t at_once = items_at_once(launch);
  for (std::int64_t phase = 0; phase < launch.phases; ++phase) {
    words[launch.phase_word] = phase;
    const bool alone = threads <= 1 || (launch.combines_last && phase + 1 == launch.phases);
    in_rounds(&stop, launch.items, at_once, launch.work / launch.phases, [&](std::int64_t first, std::int64_t last) {
      if (alone) return function(words, first, last, scratch);
      threads::parallel_for(last - first, threads, [&](std::int64_t begin, std::int64_t end, int share) {
        function(words, first + begin, first + end, scratch + share * launch.scratch_bytes);
      });
    });
  }
}

// Runs the kernel on this many threads, at most the launch's number.
template <class Code>
void run_function(const Launch& launch, const Code& function, int threads, std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  if (launch.shared_bytes) words[launch.shared_word] = reinterpret_cast<std::int64_t>(scratch + launch.threads * launch.scratch_bytes);
  if (launch.claimed) return run_claimed(launch, function, threads, words, scratch, stop);
  if (stop) [[unlikely]]
    return run_stoppable(launch, function, threads, words, scratch, *stop);
  for (std::int64_t phase = 0; phase < launch.phases; ++phase) {
    words[launch.phase_word] = phase;
    if (threads <= 1 || (launch.combines_last && phase + 1 == launch.phases)) {
      function(words, 0, launch.items, scratch);
      continue;
    }
    threads::parallel_for(launch.items, threads, [&](std::int64_t begin, std::int64_t end, int share) {
      function(words, begin, end, scratch + share * launch.scratch_bytes);
    });
  }
}

// Scope with default floating-point control; logs once if the host set another control.
struct KernelControl : os::DefaultFloatingPoint {
  KernelControl() {
    if (changed()) [[unlikely]]
      say_control_changed();
  }
};

// The treatment of kernel code in a run: unchanged, or with a profile event for each thread's part. Passed by value, because `Plain` is
// empty and uses no register.
struct Plain {
  static constexpr bool kProfiled = false;
  const KernelCode& of(const KernelCode& code, const Launch&) const { return code; }
};
class Profiled {
 public:
  static constexpr bool kProfiled = true;
  explicit Profiled(const PlanData& plan) : plan_(plan.whole ? plan.whole->id : 0), first_(plan.launches.data()) {}
  void add(const Launch& launch, std::int64_t start, std::int64_t end) const {
    profile::add({profile::Kind::Kernel, "kernel", start, end, plan_, &launch - first_});
  }
  struct Code {
    const KernelCode& code;
    const Launch& launch;
    const Profiled& profiled;
    void operator()(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
      const std::int64_t start = os::nanoseconds();
      code(words, begin, end, scratch);
      profiled.add(launch, start, os::nanoseconds());
    }
  };
  Code of(const KernelCode& code, const Launch& launch) const { return {code, launch, *this}; }

 private:
  std::uint64_t plan_;
  const Launch* first_;
};

// Runs code of a tier that is not final, and measures the time.
template <class How> [[gnu::noinline]] void run_slowly(How how, const Launch& launch, const KernelCode& code, int threads,
                                                       std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  const std::int64_t start = os::nanoseconds();
  run_function(launch, how.of(code, launch), threads, words, scratch, stop);
  code.slow()->ran_slowly(os::nanoseconds() - start, launch.expected);
}

template <class How>
void run_one(How how, const Launch& launch, bool specialised, bool may_wait, std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  if (launch.items == 0) return;  // may have no kernel at all
  const Kernel& kernel = specialised ? launch.specialised->kernel() : *launch.kernel;
  if (const compiler::KernelFunction function = kernel.final_code()) [[likely]]
    return run_function(launch, how.of(KernelCode(function, nullptr, nullptr), launch), launch.threads, words, scratch, stop);
  const int threads = kernel.before_run(may_wait, launch.threads);
  const KernelCode code = kernel.code_to_run();
  if (code.slow()) [[unlikely]]
    return run_slowly(how, launch, code, threads, words, scratch, stop);
  run_function(launch, how.of(code, launch), launch.threads, words, scratch, stop);
}

// Returns the range of tasks of a step.
std::pair<std::int64_t, std::int64_t> items_of(const Launch& piece, std::int64_t step) {
  if (piece.strips_of_outer == 0) return {piece.items * step / piece.steps, piece.items * (step + 1) / piece.steps};
  const std::int64_t outer = step / piece.strips_of_outer, strip = step % piece.strips_of_outer,
                     begin = outer * piece.items_of_outer + strip * piece.items_of_strip;
  return {begin, strip + 1 == piece.strips_of_outer ? (outer + 1) * piece.items_of_outer : begin + piece.items_of_strip};
}

// Sets the pointers to the thread's part of the strip buffers, as if the whole buffers existed.
void point_to_held(const Launch& piece, std::int64_t step, std::byte* memory, std::int64_t* words) {
  const std::int64_t outer = step / piece.strips_of_outer, strip = step % piece.strips_of_outer;
  for (const Launch::Held& h : piece.held)
    words[h.word] = reinterpret_cast<std::int64_t>(memory) + h.offset - outer * h.of_outer - strip * h.of_strip;
}

// Runs the subdomains of a launch group in lockstep, so that data that several of them read stays in the caches. Kernels in strips do the
// same with values that they pass on in thread-private memory; each thread then has separate kernel parameters.
template <class How> void run_pieces(How how, std::span<const Launch> pieces, bool specialised, bool may_wait, std::int64_t* words,
                                     std::byte* scratch, StopCheck* stop) {
  const std::int64_t steps = pieces[0].steps, thread_bytes = pieces[0].beside_bytes + pieces[0].scratch_bytes;
  const bool in_strips = pieces[0].strips_of_outer > 0;
  bool are_slow = false;
  std::size_t count = 0;
  int threads = std::max(pieces[0].threads, 1);
  for (const Launch& piece : pieces) {
    count += piece.words.size();
    if (specialised || piece.items == 0) continue;
    threads = std::min(threads, piece.kernel->before_run(may_wait, pieces[0].threads));
    are_slow |= !piece.kernel->is_settled();
  }
  const auto advance = [&](std::int64_t begin, std::int64_t end, int share) {
    const std::int64_t began = How::kProfiled ? os::nanoseconds() : 0;
    std::byte* const memory = scratch + share * thread_bytes;
    std::int64_t* all = words;
    if (in_strips) all = std::copy_n(words, count, reinterpret_cast<std::int64_t*>(memory + pieces[0].held_bytes)) - count;
    for (std::int64_t step = begin; step < end; ++step) {
      std::int64_t* mine = all;
      for (const Launch& piece : pieces) {
        const auto [from, to] = items_of(piece, step);
        if (in_strips) point_to_held(piece, step, memory, mine);
        if (from < to) {
          const KernelCode code = (specialised ? piece.specialised->kernel() : *piece.kernel).code_to_run();
          const std::int64_t start = are_slow ? os::nanoseconds() : 0;
          code(mine, from, to, memory + piece.beside_bytes);
          if (are_slow && code.slow()) code.slow()->ran_slowly((os::nanoseconds() - start) / threads, piece.expected / steps);
        }
        mine += piece.words.size();
      }
    }
    if constexpr (How::kProfiled) how.add(pieces[0], began, os::nanoseconds());
  };
  std::int64_t work = 0, at_once = 0;
  if (stop) {
    for (const Launch& piece : pieces) work += piece.work;
    at_once = std::max<std::int64_t>(StopCheck::kWork / std::max<std::int64_t>(work / steps, 1), 1) * threads;
  }
  in_rounds(stop, steps, at_once, work, [&](std::int64_t first, std::int64_t last) {
    if (threads <= 1) return advance(first, last, 0);
    threads::parallel_for(last - first, threads,
                          [&](std::int64_t begin, std::int64_t end, int share) { advance(first + begin, first + end, share); });
  });
}

template <class How> void run_all(How how, std::span<const Launch> pieces, bool specialised, bool may_wait, std::int64_t* words,
                                  std::byte* scratch, StopCheck* stop) {
  if (pieces.size() == 1) run_one(how, pieces[0], specialised, may_wait, words, scratch, stop);
  else run_pieces(how, pieces, specialised, may_wait, words, scratch, stop);
}

template <class How> [[gnu::noinline]] void run_trial(How how, std::span<const Launch> pieces, Specialised& trial, bool may_wait,
                                                      std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  // Measuring against code that will be replaced soon is useless.
  if (!std::ranges::all_of(pieces, [](const Launch& l) { return l.items == 0 || l.kernel->is_settled(); }))
    return run_all(how, pieces, true, may_wait, words, scratch, stop);
  const bool specialised = trial.tries_kernel();
  const std::int64_t start = os::nanoseconds();
  try {
    run_all(how, pieces, specialised, may_wait, words, scratch, stop);
  } catch (...) {
    trial.was_stopped(specialised);
    throw;
  }
  trial.tried(specialised, os::nanoseconds() - start);
}

// Runs a launch group. `words` holds the kernel parameters of all its launches in sequence.
template <class How>
void run_group(How how, std::span<const Launch> pieces, bool may_wait, std::int64_t* words, std::byte* scratch, StopCheck* stop) {
  Specialised& first = *pieces[0].specialised;
  const Specialised::State state = first.state();
  if (state == Specialised::State::Trial) [[unlikely]]
    return run_trial(how, pieces, first, may_wait, words, scratch, stop);
  run_all(how, pieces, state == Specialised::State::Used, may_wait, words, scratch, stop);
}

// Recorder of a call's kernels as one event, and of the time of each launch group. One clock reading ends a group and starts the next
// group.
class ProfiledCall {
 public:
  explicit ProfiledCall(const PlanData& plan) : plan_(plan) {
    if (plan_.whole) profile::describe(*plan_.whole);
    start_ = now_ = os::nanoseconds();
  }
  ~ProfiledCall() { profile::add({profile::Kind::Call, "call", start_, now_, plan_.whole ? plan_.whole->id : 0, 0}); }
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

  void run(std::span<const Launch> pieces, std::int64_t* words, std::byte* scratch, StopCheck* stop) {
    const Profiled how(plan_);
    const std::int64_t start = now_;
    const bool in_parts = pieces[0].threads > 1 || stop;  // each part has its own event
    if (in_parts) run_group(how, pieces, plan_.may_wait, words, scratch, stop);
    else run_group(Plain(), pieces, plan_.may_wait, words, scratch, stop);
    now_ = os::nanoseconds();
    if (!in_parts) how.add(pieces[0], start, now_);
    pieces[0].specialised->times.add(now_ - start);
  }

 private:
  const PlanData& plan_;
  std::int64_t start_, now_;
};

template <class F> void each_group(const PlanData& plan, F&& f) {
  const std::span<const Launch> all = plan.launches;
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    for (end = first + 1; end < all.size() && all[end].group == all[first].group; ++end) {}
    f(all.subspan(first, end - first));
  }
}

// Runs the plan with profiling. `words_of` returns the prepared kernel parameters of a launch group. Not inlined, because it would slow
// down the unprofiled run.
template <class Words> [[gnu::noinline]] void run_profiled(const PlanData& plan, std::byte* scratch, StopCheck* stop, Words words_of) {
  ProfiledCall call(plan);
  each_group(plan, [&](std::span<const Launch> pieces) { call.run(pieces, words_of(pieces), scratch, stop); });
}

}  // namespace

void check_indices(const Graph& recorded, std::span<const ir::ArrayView> inputs, std::span<const std::uint64_t> slot_bits) {
  Graph graph = recorded;
  graph.outputs = ir::places_of(recorded);
  graph.output_names.clear();
  const KernelControl control;
  static_cast<void>(ir::evaluate(graph, inputs, slot_bits));
}

namespace {
// The stop condition of a call, polled once before anything runs.
struct StopOfCall {
  std::optional<StopCheck> check;
  explicit StopOfCall(const StopCondition& stop) {
    if (stop) [[unlikely]]
      check.emplace(stop).ask();
  }
  StopCheck* get() { return check ? &*check : nullptr; }
};
}  // namespace

bool run(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop) {
  StopOfCall asked(stop);
  constexpr std::size_t kWords = 512;
  const std::size_t extra = plan.most_words > kWords ? plan.most_words * sizeof(std::int64_t) : 0;
  const Scratch memory(static_cast<std::size_t>(plan.workspace_bytes + plan.scratch_bytes) + extra);
  std::int64_t flag = 0;
  bases[plan.inputs.size() + plan.outputs.size()] = memory.data();
  bases[plan.inputs.size() + plan.outputs.size() + 1] = reinterpret_cast<std::byte*>(&flag);
  std::byte* const scratch = memory.data() + plan.workspace_bytes;
  std::int64_t inline_words[kWords];
  std::int64_t* const words = extra ? reinterpret_cast<std::int64_t*>(scratch + plan.scratch_bytes) : inline_words;

  memory::poison_for_tests(memory.data(), static_cast<std::size_t>(plan.workspace_bytes + plan.scratch_bytes));
  const KernelControl control;
  const auto fill = [&](std::span<const Launch> pieces) {
    std::int64_t* mine = words;
    for (const Launch& launch : pieces) {
      fill_words(launch, bases, slots, mine);
      mine += launch.words.size();
    }
  };
  if (profile::on()) [[unlikely]] {
    run_profiled(plan, scratch, asked.get(), [&](std::span<const Launch> pieces) { return fill(pieces), words; });
    return flag == 0;
  }
  each_group(plan, [&](std::span<const Launch> pieces) {
    fill(pieces);
    run_group(Plain(), pieces, plan.may_wait, words, scratch, asked.get());
  });
  return flag == 0;
}

PreparedRun::PreparedRun(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop)
    : plan_(plan), stop_(stop), memory_(static_cast<std::size_t>(plan.workspace_bytes + plan.scratch_bytes)) {
  auto* const workspace = static_cast<std::byte*>(memory_.data());
  bases[plan.inputs.size() + plan.outputs.size()] = workspace;
  bases[plan.inputs.size() + plan.outputs.size() + 1] = reinterpret_cast<std::byte*>(&flag_);
  scratch_ = workspace + plan.workspace_bytes;
  std::size_t total = 0;
  for (const Launch& launch : plan.launches) total += launch.words.size();
  words_.resize(total);
  std::int64_t* words = words_.data();
  for (const Launch& launch : plan.launches) {
    fill_words(launch, bases, slots, words);
    words += launch.words.size();
  }
  if (plan.launches.size() != 1 || stop) return;
  const Launch& launch = plan.launches[0];
  if (launch.items == 0 || launch.phases > 1 || launch.threads > 1 || launch.claimed || launch.shared_bytes > 0) return;
  words_[launch.phase_word] = 0;
  only_ = &launch;
}

bool PreparedRun::operator()() {
  if (!only_ || profile::on() || memory::poisons_for_tests()) [[unlikely]]
    return run_in_general();
  const Specialised& specialised = *only_->specialised;
  const Specialised::State state = specialised.state();
  const compiler::KernelFunction function = (state == Specialised::State::Used ? specialised.kernel() : *only_->kernel).final_code();
  if (!function || state == Specialised::State::Trial) [[unlikely]]
    return run_in_general();
  const KernelControl control;
  flag_ = 0;
  function(words_.data(), 0, only_->items, scratch_);
  return flag_ == 0;
}

[[gnu::noinline]] bool PreparedRun::run_in_general() {
  memory::poison_for_tests(memory_.data(), memory_.size());
  if (stop_ || profile::on()) [[unlikely]]
    return run_watched();
  const KernelControl control;
  flag_ = 0;
  std::int64_t* words = words_.data();
  each_group(plan_, [&](std::span<const Launch> pieces) {
    run_group(Plain(), pieces, plan_.may_wait, words, scratch_, nullptr);
    for (const Launch& launch : pieces) words += launch.words.size();
  });
  return flag_ == 0;
}

// Runs the call with stop checks or profiling. It is a separate function, so that it does not slow down other calls.
bool PreparedRun::run_watched() {
  StopOfCall asked(stop_);
  const KernelControl control;
  flag_ = 0;
  auto words_of = [next = words_.data()](std::span<const Launch> pieces) mutable {
    std::int64_t* const mine = next;
    for (const Launch& launch : pieces) next += launch.words.size();
    return mine;
  };
  if (profile::on()) run_profiled(plan_, scratch_, asked.get(), words_of);
  else
    each_group(plan_, [&](std::span<const Launch> pieces) {
      run_group(Plain(), pieces, plan_.may_wait, words_of(pieces), scratch_, asked.get());
    });
  return flag_ == 0;
}

void copy_array(const ArrayPlan& to, std::byte* target, const ArrayPlan& from, const std::byte* source) {
  const std::int64_t n = to.elements();
  if (n == 0) return;
  const std::size_t size = size_of(to.dtype), rank = to.shape.size();
  // Trailing axes that are dense in both arrays form one run of bytes.
  std::size_t axes = rank;
  std::int64_t run = 1;
  while (axes > 0 && (to.shape[axes - 1] == 1 || (to.strides[axes - 1] == run && from.strides[axes - 1] == run))) run *= to.shape[--axes];
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t done = 0; done < n; done += run) {
    std::int64_t a = 0, b = 0;
    for (std::size_t i = 0; i < axes; ++i) a += index[i] * to.strides[i], b += index[i] * from.strides[i];
    std::memcpy(target + a * static_cast<std::int64_t>(size), source + b * static_cast<std::int64_t>(size),
                static_cast<std::size_t>(run) * size);
    for (std::size_t i = axes; i-- > 0;) {
      if (++index[i] < to.shape[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace onepass::runtime
