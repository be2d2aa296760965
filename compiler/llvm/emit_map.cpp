// Elementwise nests, with tiles for operands that lie across.
#include "compiler/llvm/emitter.h"

namespace onepass::compiler {

void Emitter::map(Value* outer_tile) {
  Value* n = tile_length();
  if (schedule_.grouped) return schedule_.split ? scan_chunk(n) : scan_along(n);
  if (!schedule_.parts.empty()) return in_parts(n);
  if (!packs()) {
    vector_range(n, stages_[0], 0, [&](Body& body) { stores(body, 0); });
    return;
  }
  const std::uint32_t u = nest_.outer - 1u;
  Value* u0 = b_.CreateMul(outer_tile, word(words_.tile_outer));
  Value* nu = smaller(word(words_.tile_outer), b_.CreateSub(extent(u), u0));
  std::vector<Value*> tiles;
  Value* at = scratch_base(layout_.total);
  for (std::uint32_t access : schedule_.packed) {
    tiles.push_back(at);
    pack(access, at, u0, nu, n);
    at = bytes(at, b_.CreateMul(b_.CreateMul(unit_, word(words_.tile_outer)), i64(size_of_access(access))));
  }
  loop("rows", i64(0), nu, i64(1), [&](Value* i) {
    index_[u] = b_.CreateAdd(u0, i);
    packed_rows_.clear();
    for (std::size_t p = 0; p < tiles.size(); ++p)
      packed_rows_.push_back(bytes(tiles[p], b_.CreateMul(b_.CreateMul(i, unit_), i64(size_of_access(schedule_.packed[p])))));
    serial_ = region(stages_[0], "serial");
    vector_range(n, serial_, 0, [&](Body& body) { stores(body, 0); });
  });
}

std::uint32_t Emitter::part_begin() const { return part_ == 0 ? 0 : schedule_.parts[part_ - 1]; }

Value* Emitter::passed_on(Body& body, std::uint32_t id) {
  Value* at = b_.CreateMul(b_.CreateSub(body.j, block_), i64(static_cast<std::int64_t>(size_of(nest_.body[id].dtype))));
  return bytes(bytes(argument(3), static_cast<std::int64_t>(layout_.spread.bytes) + layout_.passed_on.at[id]), at);
}

// A body of more instructions than are quickly fetched: each part is a loop of its own over a block of elements.
void Emitter::in_parts(Value* n) {
  loop("block", i64(0), n, i64(kPartBlock), [&](Value* begin) {
    block_ = begin;
    Value* end = smaller(b_.CreateAdd(begin, i64(kPartBlock)), n);
    for (part_ = 0; part_ <= schedule_.parts.size(); ++part_) {
      const std::size_t last = part_ < schedule_.parts.size() ? schedule_.parts[part_] : nest_.body.size();
      vector_range(begin, end, stages_[0], 0, [&](Body& body) {
        for (std::uint32_t id = part_begin(); id < last; ++id) {
          const Statement& s = nest_.body[id];
          if (s.kind == Statement::Kind::Store) store(body, s);
          else if (layout_.passed_on.at[id] != PassedOn::kNone)
            b_.CreateAlignedStore(to_memory(s.dtype, vector(body, id)), passed_on(body, id), llvm::Align(1));
        }
      });
    }
    part_ = 0;
  });
}

void Emitter::pack(std::uint32_t access, Value* tile, Value* u0, Value* nu, Value* nv) {
  const std::uint32_t linear = nest_.accesses[access].linear;
  const DType t = nest_.buffers[nest_.accesses[access].buffer].dtype;
  const std::int64_t size = size_of_access(access);
  const unsigned side = std::max(2u, std::min(16u, static_cast<unsigned>(schedule_.vector_bytes / size)));
  llvm::Type* type = memory_type(t, side);
  const std::uint32_t v = nest_.vector_loop();
  Value* base = in(*stages_[0], [&] {  // at (0, v0)
    Value* p = base_pointer(access);
    Value* sum = scalar_part(linear, outer_bits());
    Value* start = times(linear, v, index_[v]);
    return bytes(p, b_.CreateMul(sum ? b_.CreateAdd(sum, start) : start, i64(size)));
  });
  Value* stride = b_.CreateMul(word(words_.coefficient_of(linear, v)), i64(size));
  std::vector<llvm::Constant*> lane;
  for (unsigned i = 0; i < side; ++i) lane.push_back(b_.getInt64(i));
  Value* lanes = llvm::ConstantVector::get(lane);
  Value* zero = llvm::Constant::getNullValue(type);
  const auto squares = [&](Value* j, Value* i, bool masked) {
    Value* p = bytes(base, b_.CreateAdd(b_.CreateMul(j, stride), b_.CreateMul(b_.CreateAdd(u0, i), i64(size))));
    std::vector<Value*> rows;
    Value* columns = masked ? b_.CreateICmpSLT(lanes, b_.CreateVectorSplat(side, b_.CreateSub(nu, i))) : nullptr;
    for (unsigned r = 0; r < side; ++r) {
      Value* q = bytes(p, b_.CreateMul(stride, i64(r)));
      if (!masked) {
        prefetch(bytes(q, b_.CreateMul(stride, word(words_.tile))), Cache::Second);
        rows.push_back(b_.CreateAlignedLoad(type, q, llvm::Align(1)));
      } else {
        Value* row = b_.CreateVectorSplat(side, b_.CreateICmpSLT(b_.CreateAdd(j, i64(r)), nv));
        rows.push_back(b_.CreateMaskedLoad(type, q, llvm::Align(1), b_.CreateAnd(row, columns), zero));
      }
    }
    k_.transpose(rows);
    for (unsigned r = 0; r < side; ++r) {  // rows past the tile's end land in its padding
      Value* q = bytes(tile, b_.CreateMul(b_.CreateAdd(b_.CreateMul(b_.CreateAdd(i, i64(r)), unit_), j), i64(size)));
      b_.CreateAlignedStore(rows[r], q, llvm::Align(1));
    }
  };
  Value* whole_u = b_.CreateAnd(nu, i64(-static_cast<std::int64_t>(side)));
  loop("pack", i64(0), nv, i64(side), [&](Value* j) {
    Value* fits = b_.CreateICmpSLE(b_.CreateAdd(j, i64(side)), nv);
    Value* until = b_.CreateSelect(fits, whole_u, i64(0));
    loop("pack.squares", i64(0), until, i64(side), [&](Value* i) { squares(j, i, false); });
    loop("pack.edges", until, nu, i64(side), [&](Value* i) { squares(j, i, true); });
  });
}

}  // namespace onepass::compiler
