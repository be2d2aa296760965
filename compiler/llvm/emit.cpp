// emit: see emit.h.
//
// Structure of a kernel:
//
//   entry                        loads kernel parameters at their first use; divides to find the first task's indices
//   for task in begin .. end     outer loops and tiles, counted incrementally
//     map    for j in tile: body
//     lanes  for each sweep: for block: for j: body into lanes; halving of lanes; tree of blocks; then values of rows
//     rows   for each sweep: for eight rows: for j in tile: body; tree of eight into a row of accumulators; tree of blocks; then values
//            of rows
//
// A statement is computed in the outermost Region where its loops are fixed: the entry, the task, the iteration of the serial loops, or the
// vector body. A Region is a block that dominates everything inside it; code is added to it on demand.
#include "compiler/llvm/emit.h"

#include "compiler/llvm/emit_steps.h"
#include "compiler/llvm/emitter.h"
#include "compiler/llvm/speller.h"
#include "compiler/loops/policy.h"

namespace onepass::compiler {

void Emitter::run() {
  begin();
  entry_.hoist = entry_block_;
  if (spreads()) spread_slots(layout_.spread);
  if (nest_.short_rows) make_patterns();
  phases();
  finish(!schedule_.streamed.empty());
}

void Emitter::phases() {
  unit_ = in(entry_, [&] {
    Value* n = nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : word(words_.tile);
    for (std::uint32_t l = nest_.outer; has_columns_ && l < nest_.vector_loop(); ++l) n = b_.CreateMul(n, extent(l));
    return b_.CreateAdd(b_.CreateAnd(b_.CreateAdd(n, i64(63)), i64(-64)), i64(64));
  });
  if (has_columns_) {
    when(b_.CreateICmpEQ(word(words_.phase), i64(0)), [&] { rows_with_columns(); });
    when(b_.CreateICmpEQ(word(words_.phase), i64(1)), [&] { column_results(); });
    return;
  }
  if (!schedule_.split || nest_.kind == NestKind::Map) return items(argument(1), argument(2));
  for (std::uint8_t p = 0; p <= nest_.sweeps; ++p)
    if (p < nest_.sweeps || !reductions(static_cast<std::uint8_t>(p - 1)).empty()) {
      phase_ = p;
      when(b_.CreateICmpEQ(word(words_.phase), i64(p)), [&] { items(argument(1), argument(2)); });
    }
}

void Emitter::items(Value* first, Value* last) {
  struct Counter {
    std::uint32_t loop;
    Value* count;
    Value* variable;
  };
  std::vector<Counter> counters;
  const std::uint32_t v = nest_.vector_loop();
  for (std::uint32_t l = 0; l < nest_.outer; ++l) {
    const bool tiled = tiles_outer() && l + 1u == nest_.outer, has_rows = tiles_rows() && l + 2u == nest_.outer;
    const std::uint32_t step = tiled ? words_.tile_outer : words_.tile_rows;
    counters.push_back({l, tiled || has_rows ? in(entry_, [&] { return up(extent(l), word(step)); }) : extent(l), nullptr});
  }
  if (nest_.kind != NestKind::Lanes) counters.push_back({v, in(entry_, [&] { return up(extent(v), word(words_.tile)); }), nullptr});
  const bool in_chunks = schedule_.by_place || (schedule_.split && nest_.kind != NestKind::Map);
  if (in_chunks) counters.push_back({kNone, word(words_.chunks), nullptr});
  for (Counter& c : counters) c.variable = variable(b_.getInt64Ty(), nullptr);
  BasicBlock* done = block();
  BasicBlock* some = block();
  b_.CreateCondBr(b_.CreateICmpSLT(first, last), some, done);
  b_.SetInsertPoint(some);
  const auto count_to = [&](Value* rest) {
    for (std::size_t i = counters.size(); i-- > 0;) {
      if (i == 0) {
        b_.CreateStore(rest, counters[i].variable);
        break;
      }
      b_.CreateStore(b_.CreateURem(rest, counters[i].count), counters[i].variable);
      rest = b_.CreateUDiv(rest, counters[i].count);
    }
  };
  // Every second sweep over shared rows runs backwards and starts with the elements that are still in the caches.
  const bool backwards = in_chunks && schedule_.split && phase_ % 2 == 1;
  if (!backwards) count_to(first);
  loop(first, last, i64(1), [&](Value* step) {
    Value* number_of_item = step;
    if (backwards) {
      number_of_item = b_.CreateSub(b_.CreateAdd(first, b_.CreateSub(last, i64(1))), step);
      count_to(number_of_item);
    }
    index_.assign(nest_.loops(), nullptr);
    Value* tile_index = nullptr;
    Value* outer_tile = nullptr;
    for (const Counter& c : counters) {
      Value* i = opaque(read(c.variable));
      if (c.loop == kNone) chunk_ = i;
      else if (c.loop == v) tile_index = i;
      else if (tiles_outer() && c.loop + 1u == nest_.outer) outer_tile = i;
      else index_[c.loop] = i;
    }
    index_[v] = tile_index ? b_.CreateMul(tile_index, word(words_.tile)) : i64(0);
    stages_.clear();
    item_ = number_of_item;
    if (in_chunks) row_ = b_.CreateUDiv(number_of_item, word(words_.chunks));
    stages_.push_back(region(&entry_));
    if (has_columns_) enter_row_of_columns(b_.CreateAnd(number_of_item, i64(ir::kRowGroup - 1)));
    item(outer_tile);
    if (backwards) return;
    Value* carry = nullptr;  // increments the indices for the next task
    for (std::size_t i = counters.size(); i-- > 0;) {
      Value* next = b_.CreateAdd(read(counters[i].variable), carry ? carry : i64(1));
      if (i > 0) {
        Value* wraps = b_.CreateICmpEQ(next, counters[i].count);
        next = b_.CreateSelect(wraps, i64(0), next);
        carry = b_.CreateZExt(wraps, b_.getInt64Ty());
      }
      b_.CreateStore(next, counters[i].variable);
    }
  });
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

Value* Emitter::tile_length() {
  const std::uint32_t v = nest_.vector_loop();
  if (nest_.kind == NestKind::Lanes) return extent(v);
  return smaller(word(words_.tile), b_.CreateSub(extent(v), index_[v]));
}

void Emitter::map() {
  Value* n = tile_length();
  if (schedule_.grouped) return schedule_.split ? scan_chunk(n) : scan_along(n);
  vector_range(n, stages_[0], 0, [&](Body& body) { stores(body, 0); });
}

void Emitter::item(Value* outer_tile) {
  switch (nest_.kind) {
    case NestKind::Map: return map();
    case NestKind::Lanes:
    case NestKind::Rows: return schedule_.split ? phase() : schedule_.abreast > 1 ? abreast(outer_tile) : sweeps();
  }
}

void Emitter::enter_stage(std::uint8_t stage, bool stores) {
  stages_.push_back(region(stages_.back()));
  if (nest_.kind == NestKind::Lanes)
    for (const auto& [statement, value] : reduced_) stages_.back()->values[statement] = value;
  row_level(stage, stores);
}

void Emitter::sweeps() {
  for_each_abreast([&] { row_level(0, true); });
  for (std::uint8_t s = 0; s < nest_.sweeps; ++s) {
    sweep(s);
    for_each_abreast([&] { enter_stage(static_cast<std::uint8_t>(s + 1), true); });
  }
}

void Emitter::phase() {
  const auto run = [&] {
    row_level(0, phase_ == 0);
    for (std::uint8_t s = 0; s < phase_; ++s) {
      combine_chunks(s);
      enter_stage(static_cast<std::uint8_t>(s + 1), s + 1 == phase_);
    }
    if (phase_ == nest_.sweeps) return;
    chunk_begin_ = b_.CreateMul(chunk_, word(words_.chunk));
    chunk_end_ = smaller(b_.CreateAdd(chunk_begin_, word(words_.chunk)), reduced_count());
    sweep(phase_);
    leave_partials(phase_);
  };
  if (phase_ == nest_.sweeps) when(is_first_chunk(), run);
  else run();
}

std::unique_ptr<llvm::Module> emit(const CodegenRequest& request, llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>("onepass", context);
  if (request.nest->routine == ir::Op::Steps) {
    emit_steps(request, *module);
    return module;
  }
  if (loops::has_program(*request.nest, *request.schedule)) {
    const loops::Program program = loops::program_of(*request.nest, *request.schedule);
    Speller(request, program, *module).run();
    return module;
  }
  Emitter(request, *module).run();
  return module;
}

bool gains_from_strength_reduction(const Nest& nest, const Schedule& schedule) {
  if (schedule.tile.turns_when_read()) return false;
  return nest.is_routine() || nest.kind != NestKind::Map || !loops::has_program(nest, schedule);
}

}  // namespace onepass::compiler
