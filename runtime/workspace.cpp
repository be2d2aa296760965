// See workspace.h. First assigns existing memory: a donor buffer that is free long enough, else the memory of an intermediate whose last
// reader writes this intermediate. The remaining regions, each live over a range of kernels, are laid out in order of time and in order of
// size. Each region gets the lowest free offset, and the smaller arena is used.
#include "runtime/workspace.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace onepass::runtime {
namespace {

constexpr std::size_t kMostBySize = 1024;  // regions: each is compared with all previous regions

constexpr std::int64_t kLine = 64;  // in bytes

constexpr std::int64_t round_up(std::int64_t n) { return (n + kLine - 1) & ~(kLine - 1); }

struct Region {
  std::int64_t bytes = 0;
  std::uint32_t first = 0, last = 0;
  std::int64_t offset = 0;
};

// Places regions in order of time, so that live regions fill the memory except for holes left by dead regions.
std::int64_t lay_out_by_time(std::vector<Region>& regions) {
  std::int64_t total = 0;
  std::map<std::int64_t, std::int64_t> holes;  // offset to bytes, below `total`; no two are adjacent
  const auto release = [&](std::int64_t offset, std::int64_t bytes) {
    if (bytes == 0) return;
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = holes.erase(next);
    }
    if (next != holes.begin() && std::prev(next)->first + std::prev(next)->second == offset) std::prev(next)->second += bytes;
    else holes.emplace_hint(next, offset, bytes);
  };
  using Death = std::pair<std::uint32_t, std::size_t>;
  std::priority_queue<Death, std::vector<Death>, std::greater<>> alive;  // earliest end first
  for (std::size_t i = 0; i < regions.size(); ++i) {
    Region& region = regions[i];
    for (; !alive.empty() && alive.top().first < region.first; alive.pop())
      release(regions[alive.top().second].offset, regions[alive.top().second].bytes);
    // The last hole may extend into unused memory.
    const auto fits = [&](const auto& hole) { return hole.second >= region.bytes || hole.first + hole.second == total; };
    const auto hole = std::find_if(holes.begin(), holes.end(), fits);
    region.offset = hole == holes.end() ? total : hole->first;
    if (hole != holes.end()) {
      const std::int64_t left = std::max<std::int64_t>(hole->second - region.bytes, 0);
      holes.erase(hole);
      release(region.offset + region.bytes, left);
    }
    total = std::max(total, region.offset + region.bytes);
    alive.emplace(region.last, i);
  }
  return total;
}

std::int64_t lay_out(std::vector<Region>& regions, const std::vector<std::size_t>& order) {
  std::int64_t total = 0;
  std::vector<std::size_t> placed;  // sorted by offset
  for (const std::size_t i : order) {
    Region& region = regions[i];
    std::int64_t offset = 0;
    for (const std::size_t p : placed) {
      const Region& other = regions[p];
      if (other.last < region.first || region.last < other.first) continue;
      if (other.offset - offset >= region.bytes) break;
      offset = std::max(offset, other.offset + other.bytes);
    }
    region.offset = offset;
    total = std::max(total, offset + region.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), offset, [&](std::int64_t o, std::size_t p) { return o < regions[p].offset; }), i);
  }
  return total;
}

std::int64_t lay_out(std::vector<Region>& regions) {
  const std::int64_t by_time = lay_out_by_time(regions);
  if (regions.size() > kMostBySize) return by_time;
  std::vector<Region> other = regions;
  std::vector<std::size_t> order(regions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return regions[a].bytes > regions[b].bytes; });
  const std::int64_t by_size = lay_out(other, order);
  if (by_size >= by_time) return by_time;
  regions = std::move(other);
  return by_size;
}

}  // namespace

WorkspacePlan plan_workspace(std::span<const Intermediate> intermediates, std::span<const Lender> lenders,
                             const MayOverwrite& may_overwrite) {
  const std::size_t n = intermediates.size();
  WorkspacePlan plan;
  plan.places.resize(n);
  std::uint32_t kernels = 0;
  for (const Intermediate& i : intermediates) kernels = std::max(kernels, i.last_read + 1);
  std::vector<std::vector<std::size_t>> dying(kernels);  // intermediates with available memory, by last reader
  for (std::size_t i = 0; i < n; ++i) dying[intermediates[i].last_read].push_back(i);

  struct Loan {
    std::size_t holder = ~std::size_t{0};  // current intermediate
    std::uint32_t until = 0;               // the intermediate's last reader
  };
  std::vector<Loan> loans(lenders.size());
  constexpr std::size_t kNobody = ~std::size_t{0};
  std::vector<Region> regions;
  std::vector<std::size_t> region_of(n, kNobody);

  for (std::size_t i = 0; i < n; ++i) {
    const Intermediate& mine = intermediates[i];
    std::size_t best = kNobody;  // the smallest sufficient result
    for (std::size_t r = 0; r < lenders.size(); ++r) {
      if (lenders[r].bytes < mine.bytes || lenders[r].written < mine.last_read ||
          (best != kNobody && lenders[best].bytes <= lenders[r].bytes))
        continue;
      if (lenders[r].written == mine.last_read && !may_overwrite(n + r, i)) continue;
      const Loan& loan = loans[r];
      if (loan.holder != kNobody && (loan.until > mine.written || (loan.until == mine.written && !may_overwrite(i, loan.holder)))) continue;
      best = r;
    }
    if (best != kNobody) {
      plan.places[i].lender = static_cast<std::uint32_t>(best);
      loans[best] = {i, mine.last_read};
      continue;
    }
    std::vector<std::size_t>& left = dying[mine.written];
    // Small values do not benefit from a cached line, and there may be many thousands of them.
    const auto first = mine.bytes > kLine ? left.begin() : left.end();
    const auto old = std::find_if(first, left.end(), [&](std::size_t o) {
      return region_of[o] != kNobody && regions[region_of[o]].bytes == round_up(mine.bytes) && may_overwrite(i, o);
    });
    if (old == left.end()) {
      region_of[i] = regions.size();
      regions.push_back({round_up(mine.bytes), mine.written, mine.last_read, 0});
    } else {
      region_of[i] = region_of[*old];
      regions[region_of[i]].last = mine.last_read;
      left.erase(old);
    }
  }
  plan.bytes = lay_out(regions);
  for (std::size_t i = 0; i < n; ++i)
    if (region_of[i] != kNobody) plan.places[i].offset = regions[region_of[i]].offset;
  return plan;
}

}  // namespace onepass::runtime
