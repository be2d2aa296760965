// Reductions along the vector loop (NestKind::Lanes) without a LoopProgram (compiler/loops/policy.h): over several loops, or with fused
// columns.
#include "compiler/llvm/emitter.h"
#include "compiler/plan/costs.h"

namespace onepass::compiler {

int Emitter::cost_of(std::uint8_t sweep) const {
  int ops = 0;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
    const Statement& s = nest_.body[i];
    if (!needed_[sweep][i] || !is_vector(i) || s.kind != Statement::Kind::Op) continue;
    ops += instructions_of(s.op);
  }
  return ops;
}

void Emitter::row_level(std::uint8_t stage, bool stores) {
  if (nest_.kind == NestKind::Rows) {
    if (!schedule_.split) return rows_level(stage, true, true);
    rows_level(stage, true, false);
    if (stores && stores_of_rows(stage)) when(is_first_chunk(), [&] { rows_level(stage, false, true); });
    return;
  }
  if (!stores || !stores_of_rows(stage)) return;
  if (schedule_.split) when(is_first_chunk(), [&] { lanes_level(stage); });
  else lanes_level(stage);
}

bool Emitter::stores_of_rows(std::uint8_t stage) const {
  return std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) {
    return s.kind == Statement::Kind::Store && s.stage == stage && !(s.loops & nest_.reduced_mask());
  });
}

void Emitter::lanes_level(std::uint8_t stage) {
  const std::uint64_t inner = nest_.reduced_mask();
  for (const Statement& s : nest_.body) {
    if (s.kind != Statement::Kind::Store || s.stage != stage || (s.loops & inner)) continue;
    Value* value = scalar(s.a);
    b_.CreateAlignedStore(to_memory(type_of_access(s.at), value), pointer(s.at, s.loops), llvm::Align(1));
  }
}

Value* Emitter::lanes_in_memory(std::uint32_t id) {
  return in(entry_, [&] {
    auto* a = b_.CreateAlloca(memory_type(nest_.body[id].dtype, 0), i64(lanes_of(id)));
    a->setAlignment(llvm::Align(64));
    return a;
  });
}

Value* Emitter::lane_place(std::uint32_t id, Value* memory, Value* lane) {
  return bytes(memory, b_.CreateMul(lane, i64(static_cast<std::int64_t>(size_of(nest_.body[id].dtype)))));
}

Value* Emitter::load_lanes(std::uint32_t id, Value* memory, Value* lane) {
  const DType t = nest_.body[id].dtype;
  return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), lane_place(id, memory, lane), llvm::Align(1)));
}

void Emitter::store_lanes(std::uint32_t id, Value* memory, Value* lane, Value* v) {
  b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, v), lane_place(id, memory, lane), llvm::Align(1));
}

void Emitter::reset_lanes(std::uint32_t id, Value* memory) {
  for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) store_lanes(id, memory, i64(lane), identity(id, width_));
}

Value* Emitter::sum_of_lanes(std::uint32_t id, Value* memory) {
  std::vector<Value*> vectors;
  for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) vectors.push_back(load_lanes(id, memory, i64(lane)));
  return reducer(id).total(vectors);
}

std::vector<Emitter::Accumulators> Emitter::accumulators(const std::vector<std::uint32_t>& reductions, bool in_registers) {
  std::vector<Accumulators> out;
  for_each_abreast([&] {
    Accumulators& mine = out.emplace_back();
    mine.reductions = reductions;
    for (const std::uint32_t r : reductions) {
      if (in_registers) mine.lanes.push_back(new_lanes(r));
      else mine.memory.push_back(lanes_in_memory(r));
    }
  });
  return out;
}

void Emitter::reset(const Accumulators& all) {
  for (const Lanes& l : all.lanes) reset(l);
  for (std::size_t i = 0; i < all.memory.size(); ++i) reset_lanes(all.reductions[i], all.memory[i]);
}

void Emitter::take(const Accumulators& all, unsigned part, Value* at, Body& body) {
  for (const Lanes& l : all.lanes) take(l, part, body);
  for (std::size_t i = 0; i < all.memory.size(); ++i) {
    const std::uint32_t r = all.reductions[i];
    Value* lane = b_.CreateAnd(at, i64(lanes_of(r) - 1));
    store_lanes(r, all.memory[i], lane, accumulated(r, load_lanes(r, all.memory[i], lane), body));
  }
}

std::vector<Value*> Emitter::totals(const Accumulators& all) {
  std::vector<Value*> sums;
  for (const Lanes& l : all.lanes) sums.push_back(total(l));
  for (std::size_t i = 0; i < all.memory.size(); ++i) sums.push_back(sum_of_lanes(all.reductions[i], all.memory[i]));
  return sums;
}

// Emits the serial loops inside a task. Calls f in each iteration, with its region in serial_ and the number of runs so far. In a split
// schedule, only iterations with rows of r that overlap the chunk run.
void Emitter::serial_loops(const std::function<void(Value* run, Value* row)>& f) {
  // run: iterations of the loops that count runs. row: iterations of the other serial loops within a run.
  const std::uint32_t first = nest_.outer, runs_end = first + nest_.runs, end = first + nest_.serial;
  std::vector<Value*> starts, lasts;  // by loop, in the first and last iteration of the chunk
  if (schedule_.split) starts = serial_digits(chunk_begin_, false), lasts = serial_digits(chunk_end_, true);
  std::function<void(std::uint32_t, Value*, Value*, Value*, Value*)> nested = [&](std::uint32_t l, Value* run, Value* row, Value* at_start,
                                                                                  Value* at_end) {
    if (l == end) {
      enter_serial();
      f(run, row);
      return;
    }
    Value *from = i64(0), *to = extent(l), *start = nullptr, *last = nullptr;
    if (schedule_.split) {
      start = starts[l - first], last = lasts[l - first];
      from = b_.CreateSelect(at_start, start, from);
      to = b_.CreateSelect(at_end, b_.CreateAdd(last, i64(1)), to);
    }
    loop(from, to, i64(1), [&](Value* i) {
      index_[l] = i;
      Value*& count = l < runs_end ? run : row;
      Value* saved = count;
      count = b_.CreateAdd(b_.CreateMul(count, extent(l)), i);
      if (!schedule_.split) nested(l + 1, run, row, nullptr, nullptr);
      else nested(l + 1, run, row, b_.CreateAnd(at_start, b_.CreateICmpEQ(i, start)), b_.CreateAnd(at_end, b_.CreateICmpEQ(i, last)));
      count = saved;
    });
  };
  nested(first, i64(0), i64(0), b_.getTrue(), b_.getTrue());
}

// Returns the indices of the serial loops for the row of r that contains element r (`last`: the element before r). A chunk starts at a
// multiple of the lane count, and a run has fewer padding elements than lanes. A chunk therefore never starts in padding; it may end in
// padding.
std::vector<Value*> Emitter::serial_digits(Value* r, bool last) {
  Value* elements = nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : i64(1);  // elements of r per row
  if (last) r = b_.CreateSub(r, i64(1));
  std::vector<Value*> out(nest_.serial);
  Value* rest = r;
  const auto digits = [&](std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t l = to; l-- > from;) {
      out[l] = l == 0 ? rest : b_.CreateURem(rest, extent(nest_.outer + l));
      rest = l == 0 ? rest : b_.CreateUDiv(rest, extent(nest_.outer + l));
    }
  };
  if (nest_.runs) {
    Value* run = b_.CreateUDiv(r, word(words_.padded_run));
    Value* rows = i64(1);
    for (std::uint32_t l = nest_.runs; l < nest_.serial; ++l) rows = b_.CreateMul(rows, extent(nest_.outer + l));
    rest = smaller(b_.CreateUDiv(b_.CreateURem(r, word(words_.padded_run)), elements), b_.CreateSub(rows, i64(1)));
    for (std::uint32_t l = nest_.serial; l-- > nest_.runs;) {
      out[l] = b_.CreateURem(rest, extent(nest_.outer + l));
      rest = b_.CreateUDiv(rest, extent(nest_.outer + l));
    }
    rest = run;
    digits(0, nest_.runs);
  } else {
    rest = b_.CreateUDiv(r, elements);
    digits(0, nest_.serial);
  }
  return out;
}

// Emits a sweep. With several reduced loops, a row may start at any r. It is processed in segments within one block each; vectors that
// cross a segment's ends are masked.
void Emitter::lanes_sweep(std::uint8_t sweep) {
  const std::vector<std::uint32_t> reds = reductions(sweep);
  Value* n = tile_length();
  reduced_.clear();
  // Returns the range of elements of the row that starts at r0.
  const auto row_range = [&](Value* r0) {
    if (!schedule_.split) return std::pair<Value*, Value*>(i64(0), n);
    Value* from = b_.CreateSub(chunk_begin_, r0);
    from = b_.CreateSelect(b_.CreateICmpSLT(from, i64(0)), i64(0), from);
    return std::pair<Value*, Value*>(from, smaller(b_.CreateSub(chunk_end_, r0), n));
  };
  const auto start_of_row = [&](Value* run, Value* row) {
    Value* r0 = b_.CreateMul(row, n);
    return nest_.runs ? b_.CreateAdd(r0, b_.CreateMul(run, word(words_.padded_run))) : r0;
  };
  if (reds.empty()) {
    serial_loops([&](Value* run, Value* row) {
      row_offset_ = start_of_row(run, row);
      const auto range = [&] {
        const auto [from, to] = row_range(row_offset_);
        vector_range(from, to, serial_, sweep, [&](Body& body) { stores(body, sweep); });
      };
      if (has_columns_ && nest_.serial == 0 && sweep + 1 == nest_.sweeps && !schedule_.masked) for_each_carry(range);
      else range();
    });
    return;
  }
  const bool registers = in_registers(sweep), masked = schedule_.masked;
  const std::vector<Accumulators> sums_of = accumulators(reds, registers);
  std::vector<Tree> trees;
  for_each_abreast([&] {
    trees.push_back(start_tree(reds));
    reset(sums_of[current_]);
  });
  Value* current = variable(b_.getInt64Ty(), schedule_.split ? b_.CreateLShr(chunk_begin_, i64(12)) : i64(0));
  serial_loops([&](Value* run, Value* row) {
    Value* r0 = row_offset_ = start_of_row(run, row);
    const auto [from, to] = row_range(r0);
    // Emits the vector at r, into `part` of the lanes (in memory, r selects it). Processes lanes begin .. end, or all.
    const auto single = [&](Value* r, unsigned part, Value* begin, Value* end) {
      Value* mask = nullptr;
      if (begin) {
        Value* lane = b_.CreateAdd(b_.CreateVectorSplat(width_, b_.CreateTrunc(b_.CreateSub(r, begin), b_.getInt32Ty())),
                                   b_.CreateTrunc(iota(width_), llvm::FixedVectorType::get(b_.getInt32Ty(), width_)));
        mask = b_.CreateICmpULT(lane, b_.CreateVectorSplat(width_, b_.CreateTrunc(b_.CreateSub(end, begin), b_.getInt32Ty())));
      }
      Body first{serial_, b_.CreateSub(r, r0), mask, nullptr, sweep};  // negative in the lanes before the row
      for_each_body(first, [&](Body& body) {
        take(sums_of[current_], part, r, body);
        stores(body, sweep);
      });
    };
    // Emits elements begin .. end of the 64 elements at `first`.
    const auto some_of_64 = [&](Value* first, Value* begin, Value* end) {
      for (unsigned part = 0; part < 64 / width_; ++part) {
        Value* r = part ? b_.CreateAdd(first, i64(part * width_)) : first;
        Value* meets = b_.CreateAnd(b_.CreateICmpSLT(r, end), b_.CreateICmpSLT(begin, b_.CreateAdd(r, i64(width_))));
        when(meets, [&] { single(r, part, begin, end); });
      }
    };
    const auto segment = [&](Value* begin, Value* end) {
      const std::int64_t step = registers ? 64 : width_;
      if (!registers && masked) {
        loop(b_.CreateAnd(begin, i64(-step)), end, i64(step), [&](Value* r) { single(r, 0, begin, end); });
        return;
      }
      Value* head = b_.CreateAnd(begin, i64(-step));
      Value* whole = b_.CreateAnd(b_.CreateAdd(begin, i64(step - 1)), i64(-step));
      Value* tail = b_.CreateAnd(end, i64(-step));
      const auto some = [&](Value* first) {
        if (registers) some_of_64(first, begin, end);
        else single(first, 0, begin, end);
      };
      when(b_.CreateICmpSLT(head, whole), [&] { some(head); });
      loop(whole, tail, i64(step), [&](Value* r) {
        for (unsigned part = 0; part < step / width_; ++part)
          single(part ? b_.CreateAdd(r, i64(part * width_)) : r, part, nullptr, nullptr);
      });
      when(b_.CreateAnd(b_.CreateICmpSLT(tail, end), b_.CreateICmpSLE(whole, tail)), [&] { some(tail); });
    };
    if (schedule_.one_block) return segment(b_.CreateAdd(r0, from), b_.CreateAdd(r0, to));
    Value* end = b_.CreateAdd(r0, to);
    Value* next = variable(b_.getInt64Ty(), b_.CreateAdd(r0, from));
    loop(b_.CreateLShr(b_.CreateAdd(r0, from), i64(12)), b_.CreateAdd(b_.CreateLShr(b_.CreateSub(end, i64(1)), i64(12)), i64(1)), i64(1),
         [&](Value* now) {
           static_assert(ir::kLaneBlock == 1 << 12);
           when(b_.CreateICmpNE(now, read(current)), [&] {
             for_each_abreast([&] {
               push(trees[current_], reds, totals(sums_of[current_]));
               reset(sums_of[current_]);
             });
             b_.CreateStore(now, current);
           });
           Value* begin = read(next);
           Value* until = smaller(b_.CreateShl(b_.CreateAdd(now, i64(1)), i64(12)), end);
           segment(begin, until);
           b_.CreateStore(until, next);
         });
  });
  for_each_abreast([&] {
    std::vector<Value*> sums = totals(sums_of[current_]);
    if (!schedule_.one_block) {
      push(trees[current_], reds, sums);
      sums = top(trees[current_], reds);
    }
    for (std::size_t i = 0; i < reds.size(); ++i) reduced_[reds[i]] = sums[i];
  });
}

}  // namespace onepass::compiler
