// Blocks of device memory: splitting, joining, and order by their last users (runtime/cuda/pool.h). Needs no device or driver.
#include <catch2/catch.hpp>

#include <bitset>
#include <map>
#include <random>
#include <vector>

#include "runtime/cuda/pool.h"

using Memory = onepass::runtime::cuda::Pool<int>;

TEST_CASE("pool: blocks never overlap, free ones are joined, and each block names all last users of its bytes", "[cuda]") {
  Memory pool;
  std::mt19937 random(7);
  std::uint64_t next_segment = 1 << 20;
  std::map<std::uint64_t, std::uint64_t> segments;  // address, end
  std::map<std::uint64_t, Memory::Block*> used;     // by address
  constexpr int kRounds = 20'000;
  std::map<std::uint64_t, int> round_of;        // round of the last use of each 512-byte step
  std::vector<std::bitset<kRounds>> behind(4);  // for each user: rounds that it is ordered after
  std::int64_t taken_from_segments = 0;
  const auto forget = [&](std::uint64_t address, std::size_t bytes) {
    if (segments.at(address) != address + bytes) FAIL("a part of a segment is given back");
    segments.erase(address);
    round_of.erase(round_of.lower_bound(address), round_of.lower_bound(address + bytes));
  };
  for (int round = 0; round < kRounds; ++round) {
    if (round % 50 == 0) pool.trim(forget);
    if (used.size() < 40 && random() % 2) {
      const std::size_t bytes = Memory::rounded(std::size_t{1} << (random() % 26)) + 512 * (random() % 5);
      const int user = static_cast<int>(1 + random() % 3);
      Memory::Block* block = pool.take(bytes, user);
      if (block) {
        ++taken_from_segments;
        if (block->users.size() > 3) FAIL("a user is named twice");
        for (const int other : block->users) behind[static_cast<std::size_t>(user)] |= behind[static_cast<std::size_t>(other)];
        for (std::uint64_t at = block->address; at < block->address + block->bytes; at += 512)
          if (const auto it = round_of.find(at);
              it != round_of.end() && !behind[static_cast<std::size_t>(user)][static_cast<std::size_t>(it->second)])
            FAIL("a last user is not named");
      } else {
        const std::size_t segment = Memory::segment_for(bytes);
        if (segment < bytes) FAIL("a segment is too small");
        block = pool.add(next_segment, segment, bytes);
        segments[next_segment] = next_segment + segment;
        next_segment += segment + (1 << 20);
      }
      if (block->bytes != bytes || block->address % 512 != 0) FAIL("a block is not what was asked for");
      const auto segment = std::prev(segments.upper_bound(block->address));
      if (block->address + bytes > segment->second) FAIL("a block leaves its segment");
      const auto after = used.lower_bound(block->address);
      if (after != used.end() && after->first < block->address + bytes) FAIL("blocks overlap");
      if (after != used.begin() && std::prev(after)->first + std::prev(after)->second->bytes > block->address) FAIL("blocks overlap");
      used[block->address] = block;
      block->users.clear();
    } else if (!used.empty()) {
      const auto it = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      const int user = static_cast<int>(1 + random() % 3);
      for (std::uint64_t at = it->first; at < it->first + it->second->bytes; at += 512) round_of[at] = round;
      behind[static_cast<std::size_t>(user)].set(static_cast<std::size_t>(round));
      it->second->users.assign(1, user);
      pool.put_back(it->second);
      used.erase(it);
    }
  }
  CHECK(taken_from_segments > 2000);
  for (const auto& [address, block] : used) pool.put_back(block);
  pool.trim(forget);  // segments must be whole again
  CHECK(segments.empty());
}

TEST_CASE("pool: a user's own last block is preferred, and small blocks do not fragment large segments", "[cuda]") {
  Memory pool;
  Memory::Block* const a = pool.add(0, 4096, 4096);
  Memory::Block* const b = pool.add(1 << 20, 4096, 4096);
  a->users = {1}, b->users = {2};
  pool.put_back(a), pool.put_back(b);
  CHECK(pool.take(4096, 1) == a);
  CHECK(pool.take(4096, 1) == b);
  CHECK(pool.take(512, 1) == nullptr);
  Memory::Block* const large = pool.add(1 << 24, 64 << 20, 64 << 20);
  pool.put_back(large);
  CHECK(pool.take(4096, 1) == nullptr);
  Memory::Block* const part = pool.take(40 << 20, 1);
  REQUIRE(part == large);
  CHECK(pool.take(24 << 20, 1)->address == (1 << 24) + (40 << 20));
}
