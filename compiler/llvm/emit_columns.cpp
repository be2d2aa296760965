// Fused column reductions: reductions over the outer loops, computed in the pass that computes rows.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

std::vector<std::uint32_t> Emitter::columns() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
    if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].count) out.push_back(i);
  return out;
}

void Emitter::over_columns(const std::function<void(Value*)>& f) {
  Value* n = in(entry_, [&] { return b_.CreateSub(unit_, i64(64)); });
  loop(i64(0), n, i64(width_), f);
}

void Emitter::rows_with_columns() {
  Value* rows = in(entry_, [&] {
    Value* n = i64(1);
    for (std::uint32_t l = 0; l < nest_.outer; ++l) n = b_.CreateMul(n, extent(l));
    return n;
  });
  loop(argument(1), argument(2), i64(1), [&](Value* block_number) {
    row_ = i64(0);
    Value* first = b_.CreateMul(block_number, word(words_.chunk));
    Value* last = smaller(b_.CreateAdd(first, word(words_.chunk)), rows);
    over_columns([&](Value* j) {
      for (const std::uint32_t c : columns()) store_row(layout_.values[c], j, nest_.body[c].dtype, identity(c, width_));
    });
    items(first, last);
    Value* left = b_.CreateAnd(last, i64(ir::kRowGroup - 1));
    when(b_.CreateICmpNE(left, i64(0)), [&] {  // padding rows
      loop(left, i64(ir::kRowGroup), i64(1), [&](Value* k) {
        enter_row_of_columns(k);
        over_columns([&](Value* j) {
          for (const std::uint32_t c : columns())
            if (ScratchLayout::sums(nest_.body[c])) add_row(c, identity(c, width_), j, nullptr);
        });
      });
    });
    over_columns([&](Value* j) {
      for (const std::uint32_t c : columns()) {
        const DType t = nest_.body[c].dtype;
        b_.CreateAlignedStore(to_memory(t, load_row(layout_.values[c], j, t)), partial(c, block_number, j), llvm::Align(1));
      }
    });
  });
}

// Builds the tree of eight rows as a binary counter. Row k is added to the sums at the levels of its trailing ones. The result goes to the
// next level, or to the block's sum.
void Emitter::enter_row_of_columns(Value* row) {
  column_row_ = row;
  for (const std::uint32_t c : columns()) {
    if (!ScratchLayout::sums(nest_.body[c])) continue;
    Value*& to = column_rows_[c];
    to = scratch_base(layout_.values[c]);
    for (std::uint32_t level = kColumnLevels; level-- > 0;) {
      const std::int64_t ones = (std::int64_t{1} << (level + 1)) - 1;  // a zero at `level` and ones below it
      Value* here = b_.CreateICmpEQ(b_.CreateAnd(row, i64(ones)), i64(ones >> 1));
      to = b_.CreateSelect(here, row_of(layout_.temporaries[c], i64(level), i64(0), nest_.body[c].dtype), to);
    }
  }
}

void Emitter::for_each_carry(const std::function<void()>& f) {
  for (std::uint32_t levels = 0; levels <= kColumnLevels; ++levels) {
    const std::int64_t bits = std::min((std::int64_t{1} << (levels + 1)) - 1, ir::kRowGroup - 1), ones = (std::int64_t{1} << levels) - 1;
    when(b_.CreateICmpEQ(b_.CreateAnd(column_row_, i64(bits)), i64(ones)), [&] {
      carried_ = levels;
      f();
    });
  }
  carried_.reset();
}

void Emitter::add_row(std::uint32_t c, Value* value, Value* at, Value* mask) {
  const DType t = nest_.body[c].dtype;
  llvm::Type* type = memory_type(t, width_);
  const auto load = [&](Value* p) -> Value* {
    if (mask) return b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, llvm::Constant::getNullValue(type));
    return b_.CreateAlignedLoad(type, p, llvm::Align(1));
  };
  Value* sum = variable(value->getType(), value);
  std::function<void(std::uint32_t)> carry_from = [&](std::uint32_t level) {
    const auto take = [&](Value* p) { b_.CreateStore(combine(c, load(p), read(sum)), sum); };
    if (level == kColumnLevels) return take(scratch_row(layout_.values[c], at, t));
    if (carried_ && level == *carried_) return;
    if (carried_) {
      take(row_of(layout_.temporaries[c], i64(level), at, t));
      return carry_from(level + 1);
    }
    when(b_.CreateICmpNE(b_.CreateAnd(column_row_, i64(std::int64_t{1} << level)), i64(0)), [&] {
      take(row_of(layout_.temporaries[c], i64(level), at, t));
      carry_from(level + 1);
    });
  };
  carry_from(0);
  Value* p = bytes(column_rows_[c], b_.CreateMul(at, i64(static_cast<std::int64_t>(size_of(t)))));
  if (mask) b_.CreateMaskedStore(read(sum), p, llvm::Align(1), mask);
  else b_.CreateAlignedStore(read(sum), p, llvm::Align(1));
}

void Emitter::take_columns(Body& body) {
  for (const std::uint32_t c : columns()) {
    const DType t = nest_.body[c].dtype;
    Value* value = vector(body, nest_.body[c].a);
    Value* at = row_offset_ ? b_.CreateAdd(body.j, row_offset_) : body.j;
    if (ScratchLayout::sums(nest_.body[c])) {
      add_row(c, value, at, body.mask);
      continue;
    }
    Value* p = scratch_row(layout_.values[c], at, t);
    llvm::Type* type = memory_type(t, width_);
    Value* before = body.mask
                        ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), body.mask, llvm::Constant::getNullValue(type)))
                        : b_.CreateAlignedLoad(type, p, llvm::Align(1));
    value = combine(c, from_memory(t, before), value);
    if (body.mask) b_.CreateMaskedStore(to_memory(t, value), p, llvm::Align(1), body.mask);
    else b_.CreateAlignedStore(to_memory(t, value), p, llvm::Align(1));
  }
}

void Emitter::column_results() {
  loop(argument(1), argument(2), i64(1), [&](Value* part) {
    index_.assign(nest_.loops(), nullptr);
    index_[nest_.vector_loop()] = i64(0);
    stages_.clear();
    stages_.push_back(region(&entry_));
    row_ = i64(0);
    Value* places = extent(nest_.vector_loop());  // fewer than the parts if there are few columns
    Value* begin = smaller(b_.CreateMul(part, word(words_.tile)), places);
    Value* end = smaller(b_.CreateAdd(begin, word(words_.tile)), places);
    const std::vector<bool> behind = nest_.behind_columns();
    const auto results = [&](Region* around, Value* offset) {
      vector_range(begin, end, around, 0, [&](Body& body) {
        const std::vector<std::uint32_t> all = columns();
        Tree tree = start_tree(all, width_);
        loop(i64(0), word(words_.chunks), i64(1), [&](Value* block_number) {
          std::vector<Value*> values;
          for (const std::uint32_t c : all) {
            const DType t = nest_.body[c].dtype;
            Value* p = partial(c, block_number, offset ? b_.CreateAdd(body.j, offset) : body.j);
            values.push_back(from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1))));
          }
          push(tree, all, values);
        });
        const std::vector<Value*> values = top(tree, all);
        for (std::size_t i = 0; i < all.size(); ++i) body.values[all[i]] = values[i];
        for (std::size_t i = 0; i < nest_.body.size(); ++i)
          if (behind[i] && nest_.body[i].kind == Statement::Kind::Store) store(body, nest_.body[i]);
      });
    };
    if (nest_.serial == 0) return results(stages_[0], nullptr);
    serial_loops([&](Value*, Value* row) { results(serial_, b_.CreateMul(row, extent(nest_.vector_loop()))); });
  });
}

}  // namespace onepass::compiler
