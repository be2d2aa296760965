// See layout.h.
#include "compiler/loops/layout.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "onepass/error.h"

namespace onepass::compiler::loops {

namespace {

constexpr std::int64_t kAlignment = 64;

std::vector<Id> open_digits(const Program& p, Id line) {
  std::vector<Id> out;
  for (Id i = 0; i < line; ++i)
    if (p.lines[i].code == Code::Loop && p.lines[i].end > line) out.push_back(p.lines[i].at);
  return out;
}

// Returns the iterations of the inner digit of a split; `d` is either digit of it.
Length length_of_part(const WordLayout& words, const Digit& d) {
  switch (d.size) {
    case Digit::Size::Number: break;
    case Digit::Size::Tile: return {1, words.tile};
    case Digit::Size::TileOuter: return {1, words.tile_outer};
    case Digit::Size::TileRows: return {1, words.tile_rows};
    case Digit::Size::Chunk: return {1, words.chunk};
  }
  return {d.by};
}

// Returns the number of iterations of a nest loop that the loops inside the open loops cover.
Length span_of(const Program& p, const WordLayout& words, Id root, const std::vector<Id>& open) {
  Id last = kNone;
  for (const Id d : open)
    if (p.digits[d].root == root) last = d;
  if (last == kNone) return {1, words.extents + root};
  const Digit& d = p.digits[last];
  if (d.kind != Digit::Kind::Outer) throw InternalError("loops: a buffer is inside a loop that is one of its axes");
  return length_of_part(words, d);
}

}  // namespace

std::int64_t lanes_around(const Program& program, Id line) {
  for (Id i = 0; i < line; ++i)
    if (const Line& l = program.lines[i]; l.code == Code::Loop && l.bind == Bind::Vector && l.end > line) return std::max<int>(l.count, 1);
  return 1;
}

Area area_of_memory(const Program& program, const WordLayout& words, Id hold) {
  const Memory& m = program.memories[program.lines[hold].at];
  Area area{static_cast<std::int64_t>(size_of(m.dtype)) * lanes_around(program, hold), {}};
  const std::vector<Id> open = open_digits(program, hold);
  for (const Memory::Part& part : m.layout) {
    if (part.kind == Digit::Kind::Inner || part.fixed) {
      area.lengths.push_back({part.by});
      continue;
    }
    Length n = span_of(program, words, part.root, open);
    if (part.by > 0) {
      const std::int64_t times = part.kind == Digit::Kind::Outer ? 1 : part.by;
      if (n.word == Length::kNumber) n.number = (n.number + part.by - 1) / part.by * times;
      else n.number = part.by, n.times = times;
    }
    area.lengths.push_back(n);
  }
  return area;
}

std::vector<Id> axes_in_order(const Program& program, Id accumulator) {
  std::vector<Id> axes = program.accumulators[accumulator].axes;
  const auto is_vector = [&](Id digit) {  // in the loop that adds to the sum
    for (Id loop = 0; loop < program.lines.size(); ++loop) {
      const Line& l = program.lines[loop];
      if (l.code == Code::Loop && l.at == digit && l.bind == Bind::Vector)
        for (Id i = loop; i < l.end; ++i)
          if (program.lines[i].code == Code::Accumulate && program.lines[i].at == accumulator) return true;
    }
    return false;
  };
  std::ranges::stable_sort(axes, {}, [&](Id digit) {
    const Digit& d = program.digits[digit];
    return std::tuple(is_vector(digit), d.kind == Digit::Kind::Inner, d.root);
  });
  return axes;
}

namespace {
// Returns the iterations of a digit, counted from the start of its loop.
Length length_of(const Program& p, const WordLayout& words, Id digit) {
  const Digit& d = p.digits[digit];
  switch (d.kind) {
    case Digit::Kind::Whole: return {1, words.extents + d.root};
    case Digit::Kind::Inner: return length_of_part(words, d);
    case Digit::Kind::Outer: break;
  }
  if (d.size == Digit::Size::Chunk) return {1, words.chunks};
  Length n = length_of(p, words, d.parent);
  if (d.size != Digit::Size::Number || (n.word != Length::kNumber && n.number != 1))
    throw InternalError("loops: a length has two different values");
  if (n.word == Length::kNumber) n.number = (n.number + d.by - 1) / d.by;
  else n.number = d.by;
  return n;
}
}  // namespace

Area area_of_sums(const Program& program, const WordLayout& words, Id accumulator) {
  const Accumulator& a = program.accumulators[accumulator];
  Id start = 0;
  while (program.lines[start].code != Code::Start || program.lines[start].at != accumulator) ++start;
  Area area{static_cast<std::int64_t>(size_of(a.dtype)) * lanes_around(program, start), {}};
  if (joins_chunks(program, a)) {
    area.lengths.push_back({1, words.chunks});
  } else if (a.part == Accumulator::Part::Tree && !program.digits[a.reduced[0]].once) {
    Length blocks = length_of(program, words, a.reduced[0]);
    if (blocks.word == Length::kNumber) throw InternalError("loops: part of a loop has a tree with too many blocks");
    blocks.levels = true;
    area.lengths.push_back(blocks);
  }
  for (const Id axis : axes_in_order(program, accumulator)) area.lengths.push_back(length_of(program, words, axis));
  return area;
}

std::int64_t bytes_of(const Area& area, std::span<const std::int64_t> words) {
  std::int64_t bytes = area.element;
  for (const Length& n : area.lengths) bytes *= n.in(words);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<Id> phases_of(const Program& program) {
  std::vector<Id> phases;
  for (Id i = 0; i < program.lines.size(); ++i) {
    if (program.lines[i].code != Code::Loop) continue;
    if (program.lines[i].bind == Bind::Parallel) phases.push_back(i);
    i = program.lines[i].end - 1;
  }
  return phases;
}

std::size_t count_phases(const Program& program) {
  const std::vector<Id> phases = phases_of(program);
  return phases.size() + (!phases.empty() && program.lines[phases.back()].end < program.lines.size());
}

bool is_shared(const Program& program, Id hold) { return open_digits(program, hold).empty() && count_phases(program) > 1; }
bool is_shared_sum(const Program& program, Id start) {
  return joins_chunks(program, program.accumulators[program.lines[start].at]) && is_shared(program, start);
}

namespace {
std::int64_t bytes_of_memories(const Program& program, std::span<const std::int64_t> words, bool shared) {
  const WordLayout layout(program.nest);
  std::int64_t bytes = 0;
  for (Id m = 0; m < program.memories.size(); ++m)
    for (Id i = 0; i < program.lines.size(); ++i)
      if (program.lines[i].code == Code::Hold && program.lines[i].at == m && is_shared(program, i) == shared)
        bytes += bytes_of(area_of_memory(program, layout, i), words);
  return bytes;
}

std::int64_t bytes_of_sums(const Program& program, std::span<const std::int64_t> words, bool shared) {
  const WordLayout layout(program.nest);
  std::int64_t bytes = 0;
  for (Id i = 0; i < program.lines.size(); ++i)
    if (program.lines[i].code == Code::Start && is_shared_sum(program, i) == shared)
      bytes += bytes_of(area_of_sums(program, layout, program.lines[i].at), words);
  return bytes;
}
}  // namespace

std::int64_t shared_bytes(const Program& program, std::span<const std::int64_t> words) {
  return bytes_of_memories(program, words, true) + bytes_of_sums(program, words, true);
}

std::int64_t scratch_bytes(const Program& program, std::span<const std::int64_t> words) {
  return bytes_of_memories(program, words, false) + bytes_of_sums(program, words, false);
}

}  // namespace onepass::compiler::loops
