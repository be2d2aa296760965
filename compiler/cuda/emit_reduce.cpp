// Common parts of reductions: the reduced elements r and their loops, and rows that several launches share.
#include "compiler/cuda/emitter.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "compiler/plan/costs.h"
#include "ir/order.h"

namespace onepass::compiler::cuda {

using ir::Op;

std::vector<std::uint32_t> DeviceEmitter::reductions(std::uint8_t sweep) const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].stage == sweep + 1) out.push_back(i);
  return out;
}

// Writes the indices of loops first .. last, derived from their combined number `from`.
void DeviceEmitter::indices(Scope& scope, std::uint32_t first, std::uint32_t last, const std::string& from) {
  if (first == last) return;
  if (first + 1 == last) return scope.line(fmt::format("const Index i{} = {};", first, from));
  const std::string rest = fmt::format("rest{}", first);
  scope.line(fmt::format("Index {} = {};", rest, from));
  for (std::uint32_t l = last; l-- > first + 1;) scope.line(fmt::format("const Index i{0} = {1} % {2}; {1} /= {2};", l, rest, extent(l)));
  scope.line(fmt::format("const Index i{} = {};", first, rest));
}

bool DeviceEmitter::heavy() const {
  int ops = 0;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (const Statement& s = nest_.body[i]; needed_[sweep_][i] && s.kind == Statement::Kind::Op && (s.loops & nest_.reduced_mask()))
      ops += instructions_of(s.op);
  return ops > 16;
}

// Writes the end of r and, with padded runs, the condition that r exists.
void DeviceEmitter::reduced_range(Scope& scope) {
  const std::uint32_t first = nest_.outer + nest_.runs, last = nest_.outer + nest_.serial;
  const std::string run = nest_.kind == NestKind::Lanes ? product(first, last + 1) : product(first, last);
  if (nest_.runs) {
    scope.line(fmt::format("const Index run{} = {};", sweep_, run));
    scope.line(fmt::format("const Index count{} = {}{} * {}{};", sweep_, row_is_there_.empty() ? "" : row_is_there_ + " ? ",
                           product(nest_.outer, first), word(words_.padded_run), row_is_there_.empty() ? "" : " : 0"));
  } else {
    scope.line(fmt::format("const Index count{} = {}{}{};", sweep_, row_is_there_.empty() ? "" : row_is_there_ + " ? ", run,
                           row_is_there_.empty() ? "" : " : 0"));
  }
}

// Writes the indices of the reduced loops at r. Sets `there` if some elements may be padding.
void DeviceEmitter::reduced_indices(Scope& step, bool& there) {
  const std::uint32_t first = nest_.outer + nest_.runs, last = nest_.outer + nest_.serial;
  std::string x = "r";
  if (nest_.runs) {
    indices(step, nest_.outer, first, fmt::format("r / {}", word(words_.padded_run)));
    step.line(fmt::format("const Index x = r % {};", word(words_.padded_run)));
    x = "x";
  }
  there = nest_.runs > 0;
  if (nest_.kind == NestKind::Lanes && nest_.serial > 0) {
    step.line(fmt::format("const Index j = {} % {};", x, extent(nest_.vector_loop())));
    indices(step, first, last, fmt::format("{} / {}", x, extent(nest_.vector_loop())));
  } else if (nest_.kind == NestKind::Lanes) {
    step.line("const Index j = r;");
  } else {
    indices(step, first, last, x);
  }
}

// from() and until() return the range of r: all elements, or the elements of the task's chunk.
std::string DeviceEmitter::from() const { return schedule_.split ? "from" : "0"; }

std::string DeviceEmitter::until() const { return schedule_.split ? "until" : fmt::format("count{}", sweep_); }

// Writes the launches of a split reduction. `parts` threads (blocks) share the reduced elements of a row (or of a thread's columns), in
// chunks of 2^m summation blocks. The tree of the chunk sums is then the tree of the blocks.
//
// Sweep s is launch s: all threads write their sums to memory at kernel parameter `shared`. In later launches, each thread combines the
// sums of its row, always in the same order. The first part of a row does the stores that a row has only once.
void DeviceEmitter::phases(const std::string& loop, const std::function<void(Scope&)>& open) {
  kernel_.line(fmt::format("const Index parts = {}, length = {};", word(words_.chunks), word(words_.chunk)));
  const std::vector<std::uint32_t> last = reductions(static_cast<std::uint8_t>(nest_.sweeps - 1));
  const auto launches = static_cast<std::uint8_t>(nest_.sweeps + !last.empty());
  std::vector<std::uint32_t> all;  // reductions in the order of their partial results
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce) all.push_back(i);
  kernel_.line(fmt::format("constexpr int kSums = {};", all.size()));
  const auto place_of = [&](std::uint32_t r, const char* part) {
    return fmt::format("w.memory[{}] + 8ll * ((({} * (long long)all + {}) * kSums + {}) * {})", words_.shared, part,
                       nest_.kind == NestKind::Rows ? "chunk" : "item", std::find(all.begin(), all.end(), r) - all.begin(),
                       nest_.kind == NestKind::Rows ? "W" : "1");
  };
  const std::string width = nest_.kind == NestKind::Rows ? "W" : "1";
  const char* const threads_of_item = nest_.kind == NestKind::Lanes ? "int(threadIdx.x), 0" : schedule_.together ? "eight, place" : "0, 0";
  std::size_t widest = 0;  // bytes of an exchanged value
  for (const std::uint32_t r : all) widest = std::max(widest, size_of(nest_.body[r].dtype));
  const bool exchanges = nest_.kind == NestKind::Lanes || schedule_.together > 0;
  if (exchanges)
    kernel_.line(fmt::format("__shared__ long long exchanged[{}];",
                             (widest * (schedule_.together ? schedule_.threads * schedule_.width : schedule_.threads) + 7) / 8));
  for (std::uint8_t phase = 0; phase < launches; ++phase) {
    block(kernel_, fmt::format("if (w.at[{}] == {})", words_.phase, int{phase}), [&](Scope& launch) {
      block(launch, loop, [&](Scope& item) {
        open(item);
        for (sweep_ = 0; sweep_ < phase; ++sweep_)
          for (std::uint32_t r : reductions(sweep_)) {
            const Statement& s = nest_.body[r];
            const std::string name = fmt::format("v{}", r);
            item.line(fmt::format("{} {}[{}];", type(s.dtype), name, width));
            item.line(fmt::format("{}({}, int(parts), 8ll * all * kSums * {}, {}, {}, {});", joins(r), place_of(r, "0"), width,
                                  threads_of_item, name, exchanges ? "exchanged" : "nullptr"));
            item.values[r] = nest_.kind == NestKind::Rows ? name : name + "[0]";
          }
        if (phase == 0) first_part_stores(item, 0);
        else first_part_stores(item, phase);
        sweep_ = phase;
        if (phase == nest_.sweeps) return;
        reduced_range(item);
        item.line("const Index from = part * length;");
        item.line(fmt::format("const Index until = from + length < count{0} ? from + length : count{0};", sweep_));
        if (schedule_.together) item.line(fmt::format("const Index limit = is_there ? count{} : 0;", sweep_));
        if (nest_.kind == NestKind::Rows) {
          columns_sweep(item);
        } else {
          blocks_sweep(item);
        }
        for (std::uint32_t r : reductions(sweep_)) {
          const std::string first = place_of(r, "part");
          if (nest_.kind == NestKind::Rows)
            item.line(fmt::format("{}leave<W>({}, v{});", schedule_.together ? "if (eight == 0 && is_there) " : "", first, r));
          else item.line(fmt::format("if (threadIdx.x == 0) leave<1>({}, whole{});", first, r));
        }
      });
    });
  }
}

// Returns the function that joins a reduction's partial results: by all threads of a block with one row, or by the threads that share
// columns.
std::string DeviceEmitter::joins(std::uint32_t reduction) const {
  const bool lanes = nest_.kind == NestKind::Lanes;
  const int threads = schedule_.threads;
  return fmt::format("joined<{}, {}, {}, {}, {}>", functor(nest_.body[reduction]), lanes ? "1" : "W",
                     lanes                ? threads
                     : schedule_.together ? 32
                                          : 1,
                     schedule_.together ? schedule_.together : 1, type(nest_.body[reduction].dtype));
}

void DeviceEmitter::first_part_stores(Scope& item, std::uint8_t stage) {
  const bool any = std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) {
    return s.kind == Statement::Kind::Store && s.stage == stage && !(s.loops & nest_.reduced_mask());
  });
  if (!any) return;
  block(item, schedule_.together ? "if (part == 0 && eight == 0 && is_there)" : "if (part == 0)", [&](Scope& first) {
    Scope* const around = std::exchange(item_, &first);
    first.values = item.values;  // definitions for the stores stay in this scope
    row_stores(stage);
    item_ = around;
  });
}

}  // namespace onepass::compiler::cuda
