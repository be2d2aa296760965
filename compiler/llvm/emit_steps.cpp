// See emit_steps.h.
//
//   for task in begin .. end
//     for j in the task's elements, a vector at a time          whole vectors, then a masked one
//       load states and operands that all steps share
//       for t in 0 .. steps: load arrays, compute lines, store results; the next states; ends early if no lane goes on
//       store the last states
#include "compiler/llvm/emit_steps.h"

#include <optional>
#include <vector>

#include "compiler/llvm/frame.h"
#include "compiler/plan/steps.h"
#include "ir/steps.h"

namespace onepass::compiler {

namespace {

class StepsEmitter : Frame {
 public:
  StepsEmitter(const CodegenRequest& request, llvm::Module& module)
      : Frame(request, *request.nest, module),
        steps_(ir::steps_of(nest_.steps, nest_.buffers.size() - nest_.results.size(), broken_)),
        width_(request.schedule->width == 1 ? 0 : static_cast<unsigned>(request.schedule->width)) {
    for (std::int64_t b = 0; b < steps_.operands(); ++b) {
      const DType type = nest_.buffers[static_cast<std::size_t>(b)].dtype;
      types_.push_back(b < steps_.states ? computed_type(type) : type);
    }
    for (const ir::StepLine& line : steps_.lines) types_.push_back(line.dtype);
  }

  void run() {
    begin();
    for (std::int64_t i = 0; i < steps_.states; ++i)
      states_.push_back(in_entry([&] { return b_.CreateAlloca(k_.type(types_[static_cast<std::size_t>(i)], width_)); }));
    if (width_ == 0) {
      loop(argument(1), argument(2), i64(1), [&](Value* j) { elements(j, nullptr); });
      return finish(false);
    }
    loop(argument(1), argument(2), i64(1), [&](Value* item) {
      Value* const first = b_.CreateMul(item, word(words_.tile));
      Value* const last = smaller(b_.CreateAdd(first, word(words_.tile)), word(words_.extents + 1));
      Value* const whole = b_.CreateAdd(first, b_.CreateAnd(b_.CreateSub(last, first), i64(-static_cast<std::int64_t>(width_))));
      loop(first, whole, i64(width_), [&](Value* j) { elements(j, nullptr); });
      when(b_.CreateICmpSLT(whole, last), [&] { elements(whole, lanes_below(b_.CreateSub(last, whole), width_)); });
    });
    finish(false);
  }

 private:
  std::string broken_;
  const ir::Steps steps_;
  const unsigned width_;      // 0: one element, scalars
  std::vector<DType> types_;  // by value: a half type for an f32 that was rounded to a half
  std::vector<Value*> states_;

  Coefficient along(std::size_t buffer) const { return nest_.linears[buffer].of.back(); }

  // Returns the stride of a buffer along the steps (0) or the elements (1), in bytes.
  Value* stride(std::size_t buffer, std::uint32_t loop) {
    Value* const elements = word(words_.coefficient_of(static_cast<std::uint32_t>(buffer), loop));
    return in_entry([&] { return b_.CreateMul(elements, i64(static_cast<std::int64_t>(size_of(nest_.buffers[buffer].dtype)))); });
  }
  Value* place(std::size_t buffer, Value* step, Value* element) {
    Value* p = b_.CreateIntToPtr(word(words_.pointers + static_cast<std::uint32_t>(buffer)), b_.getPtrTy());
    if (step) p = bytes(p, b_.CreateMul(step, stride(buffer, 0)));
    if (along(buffer) == Coefficient::Zero) return p;
    const auto size = static_cast<std::int64_t>(size_of(nest_.buffers[buffer].dtype));
    return bytes(p, b_.CreateMul(element, along(buffer) == Coefficient::One ? i64(size) : stride(buffer, 1)));
  }
  // Returns the addresses of the lanes, from the first lane on.
  Value* addresses(std::size_t buffer, Value* p) {
    return b_.CreateGEP(b_.getInt8Ty(), p, b_.CreateMul(iota(width_), splat(stride(buffer, 1), width_)));
  }

  Value* load(std::size_t buffer, Value* step, Value* element, Value* mask) {
    const DType t = nest_.buffers[buffer].dtype;
    Value* const p = place(buffer, step, element);
    if (width_ == 0 || along(buffer) == Coefficient::Zero) {
      Value* const v = k_.from_memory(t, b_.CreateAlignedLoad(k_.memory_type(t, 0), p, llvm::Align(1)));
      return width_ == 0 ? v : b_.CreateVectorSplat(width_, v);
    }
    llvm::Type* const type = k_.memory_type(t, width_);
    if (along(buffer) == Coefficient::General) return k_.from_memory(t, gathered(type, addresses(buffer, p), mask));
    Value* const zero = llvm::Constant::getNullValue(type);
    return k_.from_memory(t, mask ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero))
                                  : b_.CreateAlignedLoad(type, p, llvm::Align(1)));
  }

  void store(std::size_t buffer, Value* step, Value* element, Value* mask, Value* v) {
    Value* const made = k_.to_memory(nest_.buffers[buffer].dtype, v);
    Value* const p = place(buffer, step, element);
    if (width_ == 0) b_.CreateAlignedStore(made, p, llvm::Align(1));
    else if (along(buffer) != Coefficient::One)
      b_.CreateMaskedScatter(made, addresses(buffer, p), llvm::Align(1), mask ? mask : all_lanes(width_));
    else if (mask) b_.CreateMaskedStore(made, p, llvm::Align(1), mask);
    else b_.CreateAlignedStore(made, p, llvm::Align(1));
  }

  // Emits one vector of elements, from `element` on.
  void elements(Value* element, Value* mask) {
    std::vector<Value*> values(static_cast<std::size_t>(steps_.values()));
    const auto states = static_cast<std::size_t>(steps_.states), operands = static_cast<std::size_t>(steps_.operands()),
               arrays_end = states + static_cast<std::size_t>(steps_.arrays);
    for (std::size_t i = 0; i < states; ++i) b_.CreateStore(load(i, nullptr, element, mask), states_[i]);
    for (std::size_t i = arrays_end; i < operands; ++i) values[i] = load(i, nullptr, element, mask);
    const std::optional<std::int64_t> going = ir::going_state(steps_, nest_.results);
    loop(i64(0), word(words_.extents), i64(1), [&](Value* step) -> Value* {
      for (std::size_t i = 0; i < states; ++i) values[i] = b_.CreateLoad(k_.type(types_[i], width_), states_[i]);
      for (std::size_t i = states; i < arrays_end; ++i) values[i] = load(i, step, element, mask);
      for (std::size_t i = 0; i < steps_.lines.size(); ++i) values[operands + i] = line(steps_.lines[i], values);
      for (std::size_t r = 0; r < nest_.results.size(); ++r)
        if (nest_.results[r] >= states)
          store(operands + r, step, element, mask, values[static_cast<std::size_t>(steps_.results[nest_.results[r] - states])]);
      for (std::size_t i = 0; i < states; ++i) b_.CreateStore(values[static_cast<std::size_t>(steps_.next[i])], states_[i]);
      if (!going) return nullptr;
      Value* const goes_on = values[static_cast<std::size_t>(steps_.next[static_cast<std::size_t>(*going)])];
      return width_ == 0 ? goes_on : b_.CreateOrReduce(mask ? b_.CreateAnd(goes_on, mask) : goes_on);  // of any element
    });
    for (std::size_t r = 0; r < nest_.results.size(); ++r)
      if (const std::uint32_t i = nest_.results[r]; i < states)
        store(operands + r, nullptr, element, mask, b_.CreateLoad(k_.type(types_[i], width_), states_[i]));
  }

  Value* line(const ir::StepLine& line, const std::vector<Value*>& values) {
    if (line.op == ir::Op::Constant) return k_.constant(line.dtype, line.bits, width_);
    std::vector<Typed> operands;
    for (const std::int64_t o : line.operands) {
      if (o == ir::StepLine::kNone) continue;
      const DType type = types_[static_cast<std::size_t>(o)];
      operands.push_back({values[static_cast<std::size_t>(o)], line.op == ir::Op::Bitcast ? type : computed_type(type)});
    }
    return k_.apply(line.op, line.dtype, operands);
  }
};

}  // namespace

void emit_steps(const CodegenRequest& request, llvm::Module& module) { StepsEmitter(request, module).run(); }

}  // namespace onepass::compiler
