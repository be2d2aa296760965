// Reductions across rows (NestKind::Rows): rows of accumulators in scratch, contractions in registers.
#include "compiler/llvm/emitter.h"
#include "compiler/operands_first.h"

namespace onepass::compiler {

Value* Emitter::tree_of_eight(std::uint32_t r, const std::vector<Value*>& v) {
  Value* low = combine(r, combine(r, v[0], v[1]), combine(r, v[2], v[3]));
  Value* high = combine(r, combine(r, v[4], v[5]), combine(r, v[6], v[7]));
  return combine(r, low, high);
}

Value* Emitter::row_of(std::uint32_t slot, Value* k, Value* j, DType t) {
  return bytes(scratch_base(slot), b_.CreateMul(b_.CreateAdd(b_.CreateMul(k, unit_), j), i64(static_cast<std::int64_t>(size_of(t)))));
}

Value* Emitter::load_row(std::uint32_t slot, Value* j, DType t) {
  return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), scratch_row(slot, j, t), llvm::Align(1)));
}

void Emitter::store_row(std::uint32_t slot, Value* j, DType t, Value* v) {
  b_.CreateAlignedStore(to_memory(t, v), scratch_row(slot, j, t), llvm::Align(1));
}

void Emitter::contract_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds) {
  vector_range(tile_length(), stages_.back(), sweep, [&](Body& all) {
    std::vector<std::vector<Value*>> all_sums;  // by unroll-and-jammed iteration
    for_each_abreast([&] {
      all_sums.emplace_back();
      for (std::uint32_t r : reds) all_sums.back().push_back(variable(k_.type(nest_.body[r].dtype, width_), identity(r, width_)));
    });
    Value* blocks = variable(b_.getInt64Ty(), i64(0));
    const auto for_each_sum = [&](const std::function<void(std::uint32_t reduction, Value * sum)>& f) {
      for_each_abreast([&] {
        for (std::size_t i = 0; i < reds.size(); ++i) f(reds[i], all_sums[current_][i]);
      });
    };
    const auto add_level = [&](Value* level) {
      for_each_sum([&](std::uint32_t r, Value* sum) {
        const DType t = nest_.body[r].dtype;
        Value* below = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.stacks[r], level, all.j, t), llvm::Align(1));
        b_.CreateStore(combine(r, below, read(sum)), sum);
      });
    };
    const auto push_block = [&] {
      Value* free = carry(blocks, add_level);
      for_each_sum([&](std::uint32_t r, Value* sum) {
        const DType t = nest_.body[r].dtype;
        b_.CreateAlignedStore(read(sum), row_of(layout_.stacks[r], free, all.j, t), llvm::Align(1));
        b_.CreateStore(identity(r, width_), sum);
      });
      b_.CreateStore(b_.CreateAdd(read(blocks), i64(1)), blocks);
    };
    const auto one_row = [&] {
      Body first{serial_, all.j, all.mask, all.remaining, sweep};
      for_each_body(first, [&](Body& body) {
        for (std::size_t i = 0; i < reds.size(); ++i) {
          Value* sum = all_sums[current_][i];
          b_.CreateStore(accumulated(reds[i], read(sum), body), sum);
        }
        stores(body, sweep);
      });
    };
    static_assert((ir::kRowBlock & (ir::kRowBlock - 1)) == 0);
    Value* first = schedule_.split ? chunk_begin_ : i64(0);
    if (nest_.serial == 1) {
      const std::uint32_t l = nest_.outer;
      Value* end = schedule_.split ? chunk_end_ : extent(l);
      const auto block_of = [&](Value* from, Value* to) {
        loop(from, to, i64(1), [&](Value* r) {
          index_[l] = r;
          enter_serial();
          one_row();
        });
      };
      if (schedule_.one_block) {
        block_of(first, end);
      } else {
        loop(first, end, i64(ir::kRowBlock), [&](Value* from) {
          when(b_.CreateICmpNE(from, first), push_block);
          block_of(from, smaller(b_.CreateAdd(from, i64(ir::kRowBlock)), end));
        });
      }
    } else {
      serial_loops([&](Value*, Value* row) {
        if (!schedule_.one_block)
          when(b_.CreateAnd(b_.CreateICmpNE(row, first), b_.CreateICmpEQ(b_.CreateAnd(row, i64(ir::kRowBlock - 1)), i64(0))), push_block);
        one_row();
      });
    }
    if (!schedule_.one_block)
      loop(i64(0), i64(kTreeLevels), i64(1),
           [&](Value* at) { when(b_.CreateTrunc(b_.CreateLShr(read(blocks), at), b_.getInt1Ty()), [&] { add_level(at); }); });
    for_each_sum([&](std::uint32_t r, Value* sum) { store_row(layout_.values[r], all.j, nest_.body[r].dtype, read(sum)); });
  });
}

void Emitter::rows_sweep(std::uint8_t sweep) {
  const std::vector<std::uint32_t> reds = reductions(sweep);
  // Fusion allows no other reductions in the loops of a contraction.
  if (!reds.empty() && ir::is_contraction(nest_.body[reds[0]].op)) return contract_rows(sweep, reds);
  Value* n = tile_length();
  if (reds.empty()) {
    if (const Statement* addition = nest_.addition()) return scatter_sweep(sweep, *addition);
    const bool scans = nest_.has(Statement::Kind::Scan);
    if (scans) begin_scan_rows(true);
    serial_loops([&](Value*, Value* row) {
      if (scans && !schedule_.one_block)
        when(b_.CreateAnd(b_.CreateICmpNE(row, i64(0)), b_.CreateICmpEQ(b_.CreateAnd(row, i64(ir::kScanBlock - 1)), i64(0))),
             [&] { begin_scan_rows(false); });
      vector_range(n, serial_, sweep, [&](Body& body) { stores(body, sweep); });
    });
    return;
  }
  std::vector<std::uint32_t> sums;
  for (std::uint32_t r : reds)
    if (sums_up(r)) sums.push_back(r);
  over_row([&](Value* j) {
    for (std::uint32_t r : reds) store_row(layout_.values[r], j, nest_.body[r].dtype, identity(r, width_));
  });
  Value* first = schedule_.split ? chunk_begin_ : i64(0);
  Value* blocks = variable(b_.getInt64Ty(), i64(0));
  const auto add_level = [&](Value* level) {  // the level's sum comes before the accumulators
    over_row([&](Value* j) {
      for (std::uint32_t r : sums) {
        const DType t = nest_.body[r].dtype;
        Value* below = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.stacks[r], level, j, t), llvm::Align(1));
        store_row(layout_.values[r], j, t, combine(r, below, load_row(layout_.values[r], j, t)));
      }
    });
  };
  const auto push_block = [&] {  // the accumulators become a leaf of the tree
    Value* free = carry(blocks, add_level);
    over_row([&](Value* j) {
      for (std::uint32_t r : sums) {
        const DType t = nest_.body[r].dtype;
        b_.CreateAlignedStore(load_row(layout_.values[r], j, t), row_of(layout_.stacks[r], free, j, t), llvm::Align(1));
        store_row(layout_.values[r], j, t, identity(r, width_));
      }
    });
    b_.CreateStore(b_.CreateAdd(read(blocks), i64(1)), blocks);
  };

  // ---- groups of eight rows along any serial loops: rows into temporaries, then their tree
  const auto temporary = [&](std::uint32_t r, Value* k, Value* j) { return row_of(layout_.temporaries[r], k, j, nest_.body[r].dtype); };
  const auto fill = [&](Value* from, Value* to) {  // with padding
    loop(from, to, i64(1), [&](Value* at) {
      over_row([&](Value* j) {
        for (std::uint32_t r : sums) b_.CreateAlignedStore(identity(r, width_), temporary(r, at, j), llvm::Align(1));
      });
    });
  };
  const auto add_group = [&] {  // the tree of the temporaries
    over_row([&](Value* j) {
      for (std::uint32_t r : sums) {
        const DType t = nest_.body[r].dtype;
        std::vector<Value*> v;
        Value* p = temporary(r, i64(0), j);
        Value* to_next = in(entry_, [&] { return b_.CreateMul(unit_, i64(static_cast<std::int64_t>(size_of(t)))); });
        for (std::int64_t k = 0; k < ir::kRowGroup; ++k) {
          if (k > 0) p = bytes(p, to_next);
          v.push_back(b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1)));
        }
        store_row(layout_.values[r], j, t, combine(r, load_row(layout_.values[r], j, t), tree_of_eight(r, v)));
      }
    });
  };
  const auto take_row = [&](Value* k) {  // as row k of its group
    vector_range(n, serial_, sweep, [&](Body& first) {
      for_each_body(first, [&](Body& body) {
        for (std::uint32_t r : reds) {
          const DType t = nest_.body[r].dtype;
          Value* value = vector(body, nest_.body[r].a);
          if (sums_up(r)) {
            b_.CreateAlignedStore(value, temporary(r, k, body.j), llvm::Align(1));
          } else {
            store_row(layout_.values[r], body.j, t, combine(r, load_row(layout_.values[r], body.j, t), value));
          }
        }
        stores(body, sweep);
      });
    });
  };

  if (nest_.serial == 1 && nest_.runs == 0 && !(heavy(sweep) && sums.empty())) {
    const std::uint32_t l = nest_.outer;
    Value* end = schedule_.split ? chunk_end_ : extent(l);
    const auto begin_group = [&](Value* r0) {
      if (!schedule_.one_block && !sums.empty())
        when(b_.CreateAnd(b_.CreateICmpNE(r0, first), b_.CreateICmpEQ(b_.CreateAnd(r0, i64(ir::kRowBlock - 1)), i64(0))), push_block);
    };
    const auto row_by_row = [&](Value* r0, Value* count) {
      begin_group(r0);
      loop(i64(0), count, i64(1), [&](Value* k) {
        index_[l] = b_.CreateAdd(r0, k);
        enter_serial();
        take_row(k);
      });
      if (sums.empty()) return;
      fill(count, i64(ir::kRowGroup));
      add_group();
    };
    if (heavy(sweep)) {
      loop(first, end, i64(ir::kRowGroup), [&](Value* r0) { row_by_row(r0, smaller(i64(ir::kRowGroup), b_.CreateSub(end, r0))); });
    } else {
      // eight rows at a time in registers, the remaining rows one by one
      Value* whole = b_.CreateAnd(end, i64(-ir::kRowGroup));
      loop(first, whole, i64(ir::kRowGroup), [&](Value* r0) {
        begin_group(r0);
        eight_rows(sweep, reds, r0, n);
      });
      when(b_.CreateICmpSLT(whole, end), [&] { row_by_row(whole, b_.CreateSub(end, whole)); });
    }
  } else {
    Value* filled = variable(b_.getInt64Ty(), i64(0));  // rows of the current group in the temporaries
    Value* group = variable(b_.getInt64Ty(), b_.CreateLShr(first, i64(3)));
    const auto end_group = [&] {
      when(b_.CreateICmpNE(read(filled), i64(0)), [&] {
        fill(read(filled), i64(ir::kRowGroup));
        add_group();
        b_.CreateStore(i64(0), filled);
      });
    };
    serial_loops([&](Value* run, Value* row) {
      Value* r = nest_.runs ? b_.CreateAdd(row, b_.CreateMul(run, word(words_.padded_run))) : row;
      Value* k = b_.CreateAnd(r, i64(ir::kRowGroup - 1));
      if (!sums.empty()) {
        Value* my_group = b_.CreateLShr(r, i64(3));
        static_assert(ir::kRowGroup == 1 << 3 && ir::kRowBlock == 1 << 8);
        when(b_.CreateICmpNE(my_group, read(group)), [&] {
          end_group();
          if (!schedule_.one_block) when(b_.CreateICmpNE(b_.CreateLShr(my_group, i64(5)), b_.CreateLShr(read(group), i64(5))), push_block);
          b_.CreateStore(my_group, group);
        });
        fill(read(filled), k);
      }
      take_row(k);
      if (!sums.empty()) b_.CreateStore(b_.CreateAdd(k, i64(1)), filled);
    });
    if (!sums.empty()) end_group();
  }
  // The last block is in the accumulators; the lower levels of the tree are added from the left.
  if (!sums.empty() && !schedule_.one_block)
    loop(i64(0), i64(kTreeLevels), i64(1),
         [&](Value* at) { when(b_.CreateTrunc(b_.CreateLShr(read(blocks), at), b_.getInt1Ty()), [&] { add_level(at); }); });
}

// Emits the rows from r0 on, with their values in registers.
void Emitter::eight_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds, Value* r0, Value* n) {
  std::vector<Value*> rows;
  for (std::int64_t k = 0; k < ir::kRowGroup; ++k) rows.push_back(k ? b_.CreateAdd(r0, i64(k)) : r0);
  std::vector<std::vector<Region*>> around;  // by unroll-and-jammed iteration
  RowsAtOnce at_once;
  at_once.index = r0;
  for_each_abreast([&] {
    around.emplace_back();
    for (std::int64_t k = 0; k < ir::kRowGroup; ++k) {
      Region* mine = region(stages_.back());
      if (k > 0) mine->before = around.back().back();
      around.back().push_back(mine);
    }
    at_once.first.push_back(around.back()[0]);
  });
  vector_range(n, around[0][0], sweep, [&](Body& all) {
    // For sums: complete trees, each of twice as many rows as the next tree, so that few values are live.
    std::vector<std::vector<std::vector<Value*>>> values(around.size(), std::vector<std::vector<Value*>>(reds.size()));
    at_once.begins.clear();
    for (std::size_t k = 0; k < static_cast<std::size_t>(ir::kRowGroup); ++k) {
      index_[nest_.outer] = rows[k];
      at_once.row = static_cast<std::int64_t>(k);
      Body first{around[0][k], all.j, all.mask, all.remaining, sweep};
      first.rows = &at_once;
      for_each_body(first, [&](Body& body) {
        serial_ = around[current_][k];
        for (std::size_t i = 0; i < reds.size(); ++i) {
          std::vector<Value*>& mine = values[current_][i];
          mine.push_back(vector(body, nest_.body[reds[i]].a));
          for (std::size_t rest = k + 1; !reducer(reds[i]).is_extreme() && rest % 2 == 0; rest /= 2) {
            Value* const last = mine.back();
            mine.pop_back();
            mine.back() = combine(reds[i], mine.back(), last);
          }
        }
        stores(body, sweep);
      });
    }
    for_each_abreast([&] {
      for (std::size_t i = 0; i < reds.size(); ++i) {
        const DType t = nest_.body[reds[i]].dtype;
        std::vector<Value*>& mine = values[current_][i];
        Value* before = load_row(layout_.values[reds[i]], all.j, t);
        Value* sum = nullptr;
        if (reducer(reds[i]).is_extreme()) mine.push_back(before), sum = reducer(reds[i]).most_of(mine);
        else sum = combine(reds[i], before, mine[0]);
        store_row(layout_.values[reds[i]], all.j, t, sum);
      }
    });
  });
}

void Emitter::rows_level(std::uint8_t stage, bool values, bool stores) {
  const std::uint64_t inner = nest_.reduced_mask();
  const auto is_value = [&](std::uint32_t i) {
    return values && nest_.body[i].kind == Statement::Kind::Op && stage > 0 && layout_.values[i] != ScratchLayout::kNone;
  };
  bool any = false;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
    const Statement& s = nest_.body[i];
    if (s.stage != stage || (s.loops & inner)) continue;
    any |= (stores && s.kind == Statement::Kind::Store) || is_value(i);
  }
  if (!any) return;
  closed_ = inner;
  vector_range(tile_length(), stages_.back(), stage, [&](Body& body) {
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
      const Statement& s = nest_.body[i];
      if (s.stage != stage || (s.loops & inner)) continue;
      if (s.kind == Statement::Kind::Store) {
        if (stores) store(body, s);
      } else if (is_value(i)) {
        Value* v = row_value(body, i);
        store_row(layout_.values[i], body.j, s.dtype, v);
      }
    }
  });
  closed_ = 0;
}

Value* Emitter::row_value(Body& body, std::uint32_t id) {
  const auto is_made = [&](std::uint32_t i) { return body.values.contains(i); };
  const auto is_row = [&](const Statement& s, std::uint32_t o) {
    return nest_.body[o].stage == s.stage && nest_.body[o].kind == Statement::Kind::Op;
  };
  const auto each_operand = [&](std::uint32_t i, auto&& visit) {
    const Statement& s = nest_.body[i];
    for (const std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone && is_row(s, o)) visit(o);
  };
  operands_first(id, is_made, each_operand, [&](std::uint32_t i) {
    const Statement& s = nest_.body[i];
    Typed operands[3];
    std::size_t n = 0;
    for (const std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone) operands[n++] = {is_row(s, o) ? body.values.at(o) : vector(body, o), nest_.body[o].dtype};
    body.values[i] = apply(s, std::span(operands, n));
  });
  return body.values.at(id);
}

}  // namespace onepass::compiler
