// Pool: takes memory from the driver in segments and divides it into blocks. A freed block merges with its free neighbors, and large free
// blocks are divided, so calls with varying shapes reuse the same segments. Used by Gpu; independent of the driver. Not thread-safe: the
// caller locks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <utility>
#include <vector>

namespace onepass::runtime::cuda {

/// `User`: the last user of a block, compared with ==; the default value means none. A merged free block has several users.
template <class User> class Pool {
 public:
  static constexpr std::size_t kStep = 512;  // all sizes are multiples
  static constexpr std::size_t kSmall =
      1u << 20;  // blocks up to this size have separate segments, to avoid fragmentation of large segments
  static constexpr std::size_t kMedium = 8u << 20;  // blocks up to this size share a segment

  struct Block {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::vector<User> users;  // while it is free

   private:
    friend class Pool;
    Block *before = nullptr, *after = nullptr;   // neighbors in the segment
    Block *previous = nullptr, *next = nullptr;  // in the list of its size
    bool is_free = false, is_small = false;
  };

  static std::size_t rounded(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + kStep - 1) / kStep * kStep; }
  /// Returns the segment size to allocate for a block of a rounded size that fits in no segment.
  static std::size_t segment_for(std::size_t bytes) {
    if (bytes <= kSmall) return 2 * kSmall;
    if (bytes <= kMedium) return 2 * kMedium;
    return (bytes + 2 * kSmall - 1) / (2 * kSmall) * (2 * kSmall);
  }

  /// Returns a block of a rounded size, or null. Among similar sizes, prefers a block last used by `user`. `user` must wait for all
  /// `users` of the block; the rest of a larger block then counts as used by `user`.
  Block* take(std::size_t bytes, const User& user) {
    const bool small = bytes <= kSmall;
    Sizes& sizes = sizes_[small];
    for (std::size_t c = class_of(bytes); (c = sizes.next(c)) < kClasses; ++c) {
      Block* found = nullptr;
      for (Block* b = sizes.first[c]; b; b = b->next) {
        if (b->bytes < bytes) continue;
        const bool same = b->users.empty() || (b->users.size() == 1 && b->users[0] == user);
        if (!found || same) found = b;
        if (same) break;
      }
      if (!found) continue;
      unlink(*found);
      found->is_free = false;
      split(*found, bytes, user);
      return found;
    }
    return nullptr;
  }

  /// Adds a segment; returns a block with its first `bytes`. The rest is free.
  Block* add(std::uint64_t address, std::size_t segment, std::size_t bytes) {
    Block* const block = make();
    block->address = address, block->bytes = segment, block->is_small = bytes <= kSmall;
    split(*block, bytes, User());
    return block;
  }

  /// Takes back a block. Its `users` must be its last users.
  void put_back(Block* block) noexcept {
    if (Block* const after = block->after; after && after->is_free && unite(block->users, after->users)) {
      unlink(*after);
      absorb(*block, *after);
    }
    if (Block* const before = block->before; before && before->is_free && unite(before->users, block->users)) {
      unlink(*before);
      absorb(*before, *block);
      block = before;
    }
    link(*block);
  }

  /// Removes all unused segments and passes each to `release(address, bytes)`.
  template <class F> void trim(F&& release) {
    for (Sizes& sizes : sizes_)
      for (std::size_t c = 0; (c = sizes.next(c)) < kClasses; ++c)
        for (Block* b = sizes.first[c]; b;) {
          Block* const next = b->next;
          if (!b->before && !b->after) {
            unlink(*b);
            release(b->address, b->bytes);
            spare(*b);
          }
          b = next;
        }
  }

 private:
  static constexpr std::size_t kClasses = 512;
  struct Sizes {
    std::array<Block*, kClasses> first{};
    std::array<std::uint64_t, kClasses / 64> some{};  // bit set of nonempty classes
    std::size_t next(std::size_t c) const {           // next nonempty class from c on
      for (std::size_t w = c / 64; w < some.size(); ++w)
        if (const std::uint64_t bits = some[w] & (w == c / 64 ? ~std::uint64_t{0} << c % 64 : ~std::uint64_t{0}))
          return 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
      return kClasses;
    }
  };

  // Returns the size class. There are eight classes for each power of two.
  static std::size_t class_of(std::size_t bytes) {
    const std::size_t n = bytes / kStep;
    if (n < 8) return n;
    const auto power = static_cast<std::size_t>(std::bit_width(n)) - 4;
    return 8 * power + (n >> power);
  }
  void link(Block& b) noexcept {
    Sizes& sizes = sizes_[b.is_small];
    const std::size_t c = class_of(b.bytes);
    b.is_free = true;
    b.previous = nullptr, b.next = sizes.first[c];
    if (b.next) b.next->previous = &b;
    sizes.first[c] = &b;
    sizes.some[c / 64] |= std::uint64_t{1} << c % 64;
  }
  void unlink(Block& b) noexcept {
    Sizes& sizes = sizes_[b.is_small];
    const std::size_t c = class_of(b.bytes);
    (b.previous ? b.previous->next : sizes.first[c]) = b.next;
    if (b.next) b.next->previous = b.previous;
    if (!sizes.first[c]) sizes.some[c / 64] &= ~(std::uint64_t{1} << c % 64);
    b.previous = b.next = nullptr;
  }
  Block* make() {
    if (spare_.empty()) {
      Block& made = all_.emplace_back();
      spare_.reserve(all_.size());  // so that returning a block never allocates
      made.users.reserve(2);
      return &made;
    }
    Block* const out = spare_.back();
    spare_.pop_back();
    out->before = out->after = out->previous = out->next = nullptr;
    out->is_free = false;
    out->users.clear();  // the capacity stays
    return out;
  }
  // Makes the part after the first `bytes` a free block, last used by `user` if the block was used. Keeps the block whole if host memory
  // is exhausted.
  void split(Block& b, std::size_t bytes, const User& user) {
    if (b.bytes == bytes) return;
    Block* rest = nullptr;
    try {
      rest = make();
    } catch (const std::bad_alloc&) { return; }
    if (!b.users.empty()) rest->users.push_back(user);  // has capacity for it
    rest->address = b.address + bytes, rest->bytes = b.bytes - bytes, rest->is_small = b.is_small;
    rest->before = &b, rest->after = b.after;
    if (b.after) b.after->before = rest;
    b.after = rest, b.bytes = bytes;
    link(*rest);
  }
  void absorb(Block& b, Block& after) noexcept {
    b.bytes += after.bytes, b.after = after.after;
    if (b.after) b.after->before = &b;
    spare(after);
  }
  void spare(Block& b) noexcept {
    b.users.clear();
    spare_.push_back(&b);
  }
  // Merges two lists of users. Returns false if host memory is exhausted.
  static bool unite(std::vector<User>& users, const std::vector<User>& more) noexcept {
    try {
      users.reserve(users.size() + more.size());
    } catch (const std::bad_alloc&) { return false; }
    for (const User& user : more)
      if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
    return true;
  }

  std::array<Sizes, 2> sizes_;  // sizes of large blocks, and of small blocks
  std::deque<Block> all_;       // elements never move
  std::vector<Block*> spare_;   // unused elements of all_, without device memory
};

}  // namespace onepass::runtime::cuda
