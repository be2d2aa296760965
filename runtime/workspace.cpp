// See workspace.h. First who takes whose memory: a result's, if it is free long enough, else that of a value which is read for the last time
// where this one is written. What remains are regions, each alive over a range of kernels; these are laid out in the order of time and in the
// order of size, each at the lowest place that is free, and the smaller block is taken.
#include "runtime/workspace.h"

#include <algorithm>
#include <numeric>

namespace onepass::runtime {
namespace {

constexpr std::size_t kMostBySize = 1024;  // regions: each looks at all before it

constexpr std::int64_t round_up(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

struct Region {
  std::int64_t bytes = 0;
  std::uint32_t first = 0, last = 0;
  std::int64_t offset = 0;
};

std::int64_t lay_out(std::vector<Region>& regions, const std::vector<std::size_t>& order, bool by_time) {
  std::int64_t total = 0;
  std::vector<std::size_t> placed;  // by offset; in the order of time only those that are alive
  for (const std::size_t i : order) {
    Region& region = regions[i];
    if (by_time) std::erase_if(placed, [&](std::size_t p) { return regions[p].last < region.first; });
    std::int64_t offset = 0;
    auto at = placed.begin();
    for (; at != placed.end(); ++at) {
      const Region& other = regions[*at];
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
  std::vector<std::size_t> order(regions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});  // regions are made in the order of time
  const std::int64_t by_time = lay_out(regions, order, true);
  if (regions.size() > kMostBySize) return by_time;
  std::vector<Region> other = regions;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return regions[a].bytes > regions[b].bytes; });
  const std::int64_t by_size = lay_out(other, order, false);
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
  std::vector<std::vector<std::size_t>> dying(kernels);  // by the kernel that reads them last; whose memory nobody has taken yet
  for (std::size_t i = 0; i < n; ++i) dying[intermediates[i].last_read].push_back(i);

  struct Loan {
    std::size_t holder = ~std::size_t{0};  // the intermediate that is there
    std::uint32_t until = 0;               // the kernel that reads it last
  };
  std::vector<Loan> loans(lenders.size());
  constexpr std::size_t kNobody = ~std::size_t{0};
  std::vector<Region> regions;
  std::vector<std::size_t> region_of(n, kNobody);

  for (std::size_t i = 0; i < n; ++i) {
    const Intermediate& mine = intermediates[i];
    std::size_t best = kNobody;  // the smallest result that is large enough
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
    const auto old = std::find_if(left.begin(), left.end(), [&](std::size_t o) {
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
