// Typical programs in the formula language (docs/language.md), drawn at random, and a shrinker for failing programs. Used by the text
// fuzzer (fuzz/programs.cpp). Constructs that matter to fusion are frequent:
// - reductions and scans that meet their own transpose or are broadcast along other axes; reductions of reductions
// - one value read through several views; views of scatter_add's results; scans along merged axes
// - several gathers with one index; several outputs
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onepass/array.h"

namespace onepass::test {

/// Layout of an input's elements in memory.
enum class Layout : std::uint8_t { contiguous, transposed, stepped, reversed, spread };  // spread: stride 0 along the first axis
/// Kind of an input's values: no special values; small integers; with infinities, NaN, both zeros and extremes; 1, 2, 3 …
enum class Values : std::uint8_t { ordinary, small, special, counted };

struct ProgramInput {
  DType dtype = f32;
  std::vector<std::int64_t> shape;
  std::int64_t below = 0;  ///< if positive: values index an axis of this extent, some from the end
  Layout layout = Layout::contiguous;
  Values values = Values::ordinary;
  std::uint64_t seed = 0;
};

/// Operator on inputs and earlier steps, which its text names `$0`, `$1` …
struct ProgramStep {
  std::string text;
  std::vector<int> operands;  ///< numbers of inputs, or the input count plus the number of a step
  bool needs_names = false;   ///< the operands must be names, as for grad
  DType dtype = f32;          ///< type of the result
  std::vector<std::int64_t> shape;
};

struct RandomProgram {
  std::vector<ProgramInput> inputs;
  std::vector<ProgramStep> steps;  ///< steps that no other step uses are the outputs
  bool inlined = false;            ///< steps with one use are inlined there

  /// Returns the formula. Inputs are named a, b, c …
  std::string text() const;
  /// Returns the type of each input that the formula has: `a=f32[4, 8]`.
  std::string shapes() const;
  std::vector<std::string> names() const;  ///< names of the inputs that the formula has, in order
  std::vector<std::size_t> used() const;   ///< numbers of these inputs
};

/// Returns a program that can be recorded. Equal seeds and numbers give equal programs on every machine.
RandomProgram random_program(std::uint64_t seed, std::uint64_t number);

/// Replaces each extent e of the inputs by extent(e). Returns false if the changed program cannot be recorded.
bool change_extents(RandomProgram& program, const std::function<std::int64_t(std::int64_t)>& extent, bool in_texts);

Array make_input(const ProgramInput& input);

/// Returns the smallest program found for which `fails` still holds. Calls `fails` at most `budget` times.
RandomProgram shrink(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails, int budget);

}  // namespace onepass::test
