// Programs in the formula language (docs/language.md) as people write them, drawn at random, and a shrinker for those that fail. What it
// draws often is what fusion decides about: reductions and scans that meet their own transpose or are broadcast along other axes,
// reductions of reductions, one value read through several views, gathers by one index, scans along merged axes, results of
// scatter_add under views, several outputs. Used by the text fuzzer (fuzz/programs.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onepass/array.h"

namespace onepass::test {

/// How the elements of an input lie in memory.
enum class Layout : std::uint8_t { contiguous, transposed, stepped, reversed, spread };  // spread: one element for all along the first axis
/// Its values: of no special kind; small integers; with infinities, NaN, zeros of both signs and extremes among them; 1, 2, 3 …
enum class Values : std::uint8_t { ordinary, small, special, counted };

struct ProgramInput {
  DType dtype = f32;
  std::vector<std::int64_t> shape;
  std::int64_t below = 0;  ///< above 0: indices into an axis of this extent, some counted from the end
  Layout layout = Layout::contiguous;
  Values values = Values::ordinary;
  std::uint64_t seed = 0;
};

/// An operator on inputs and earlier steps: `$0`, `$1` … in its text stand for them.
struct ProgramStep {
  std::string text;
  std::vector<int> operands;  ///< an input's number, or the number of inputs and the step's
  bool needs_names = false;   ///< operands are names: those of grad are
  DType dtype = f32;          ///< of what it gives
  std::vector<std::int64_t> shape;
};

struct RandomProgram {
  std::vector<ProgramInput> inputs;
  std::vector<ProgramStep> steps;  ///< those that no other uses are the outputs
  bool inlined = false;            ///< steps that are used once stand where they are used

  /// The formula. Inputs are called a, b, c …
  std::string text() const;
  /// `a=f32[4, 8]`, one for each input that the formula has.
  std::string shapes() const;
  std::vector<std::string> names() const;  ///< of those inputs, in the order of `inputs`
  std::vector<std::size_t> used() const;   ///< their numbers
};

/// The same program for the same seed and number on every machine. Valid: it can be recorded.
RandomProgram random_program(std::uint64_t seed, std::uint64_t number);

/// The program for other lengths: each extent e of its inputs becomes extent(e). False where it cannot be recorded so.
bool change_extents(RandomProgram& program, const std::function<std::int64_t(std::int64_t)>& extent, bool in_texts);

Array make_input(const ProgramInput& input);

/// The smallest program found for which `fails` still holds; it is asked at most `budget` times.
RandomProgram shrink(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails, int budget);

}  // namespace onepass::test
