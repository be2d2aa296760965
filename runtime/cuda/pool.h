// Pool: memory that is taken from the driver in segments and given out in blocks. A freed block joins its free neighbours, and a larger free block
// is split, so calls of varying shapes use the same segments. Used by Gpu; knows no driver. Not thread-safe: the caller locks.
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

/// `User`: what a block was used by last, compared with ==; a default value: by nothing. A free block that was joined of several has several.
template <class User> class Pool {
 public:
  static constexpr std::size_t kStep = 512;         // all sizes are multiples
  static constexpr std::size_t kSmall = 1u << 20;   // blocks up to this size have segments of their own, so they do not break up large ones
  static constexpr std::size_t kMedium = 8u << 20;  // several blocks up to this size share a segment

  struct Block {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::vector<User> users;  // while it is free

   private:
    friend class Pool;
    Block *before = nullptr, *after = nullptr;   // neighbours in the segment
    Block *previous = nullptr, *next = nullptr;  // in the list of its size
    bool is_free = false, is_small = false;
  };

  static std::size_t rounded(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + kStep - 1) / kStep * kStep; }
  /// What to take from the driver for a block of a rounded size that no segment has room for.
  static std::size_t segment_for(std::size_t bytes) {
    if (bytes <= kSmall) return 2 * kSmall;
    if (bytes <= kMedium) return 2 * kMedium;
    return (bytes + 2 * kSmall - 1) / (2 * kSmall) * (2 * kSmall);
  }

  /// A block of a rounded size, or null. Of those that fit about equally one that `user` had last. `user` comes behind all `users` of the block now:
  /// what is left of a larger one counts as used by it.
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

  /// The first `bytes` of a new segment; the rest is free.
  Block* add(std::uint64_t address, std::size_t segment, std::size_t bytes) {
    Block* const block = make();
    block->address = address, block->bytes = segment, block->is_small = bytes <= kSmall;
    split(*block, bytes, User());
    return block;
  }

  /// Takes `block` back, which its `users` had last.
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

  /// Takes out the segments of which nothing is in use, and gives each to `release(address, bytes)`.
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
    std::array<std::uint64_t, kClasses / 64> some{};  // bits: classes that have blocks
    std::size_t next(std::size_t c) const {           // that has blocks, from c on
      for (std::size_t w = c / 64; w < some.size(); ++w)
        if (const std::uint64_t bits = some[w] & (w == c / 64 ? ~std::uint64_t{0} << c % 64 : ~std::uint64_t{0}))
          return 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
      return kClasses;
    }
  };

  // Eight classes for each power of two.
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
      spare_.reserve(all_.size());  // so that giving one back never takes memory
      made.users.reserve(2);
      return &made;
    }
    Block* const out = spare_.back();
    spare_.pop_back();
    out->before = out->after = out->previous = out->next = nullptr;
    out->is_free = false;
    out->users.clear();  // its capacity stays
    return out;
  }
  // What is behind the first `bytes` becomes a free block, which `user` had last if anybody had. Where the host has no memory for it the block stays whole.
  void split(Block& b, std::size_t bytes, const User& user) {
    if (b.bytes == bytes) return;
    Block* rest = nullptr;
    try {
      rest = make();
    } catch (const std::bad_alloc&) { return; }
    if (!b.users.empty()) rest->users.push_back(user);  // has room for it
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
  // False where the host has no memory for the longer list.
  static bool unite(std::vector<User>& users, const std::vector<User>& more) noexcept {
    try {
      users.reserve(users.size() + more.size());
    } catch (const std::bad_alloc&) { return false; }
    for (const User& user : more)
      if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
    return true;
  }

  std::array<Sizes, 2> sizes_;  // of large blocks, of small ones
  std::deque<Block> all_;       // never moved
  std::vector<Block*> spare_;   // of all_: stand for no memory
};

}  // namespace onepass::runtime::cuda
