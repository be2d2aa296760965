// Shared: shared ownership, like std::shared_ptr. Does not use <memory>, because it would take more than half the compile time of all these
// headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace onepass::detail {

/// The reference count of handles. Uses the compilers' atomic builtins, because <atomic> is another large header.
struct Counted {
  std::int64_t handles = 1;
  void (*destroy)(Counted* self) noexcept;
};

/// A pointer to T, which may be incomplete, with shared ownership of the object that contains it.
template <class T> class Shared {
 public:
  constexpr Shared() noexcept = default;
  constexpr Shared(std::nullptr_t) noexcept {}  // NOLINT: implicit by design
  template <class... A> static Shared make(A&&... a) {
    struct Block : Counted {
      std::remove_const_t<T> value;
      explicit Block(A&&... from)
          : Counted{1, [](Counted* self) noexcept { delete static_cast<Block*>(self); }}, value(std::forward<A>(from)...) {}
    };
    auto* block = new Block(std::forward<A>(a)...);
    return Shared(&block->value, block);
  }
  /// Constructs a pointer to a part of the object that `owner` owns.
  template <class U> Shared(const Shared<U>& owner, T* pointer) noexcept : pointer_(pointer), counted_(owner.counted_) { add(); }

  Shared(const Shared& other) noexcept : pointer_(other.pointer_), counted_(other.counted_) { add(); }
  Shared(Shared&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)), counted_(std::exchange(other.counted_, nullptr)) {}
  template <class U> requires std::is_convertible_v<U*, T*> Shared(Shared<U> other) noexcept  // NOLINT: implicit by design
      : pointer_(std::exchange(other.pointer_, nullptr)), counted_(std::exchange(other.counted_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(pointer_, other.pointer_);
    std::swap(counted_, other.counted_);
    return *this;
  }
  constexpr ~Shared() {
    if (counted_ && __atomic_sub_fetch(&counted_->handles, 1, __ATOMIC_ACQ_REL) == 0) counted_->destroy(counted_);
  }

  T* get() const noexcept { return pointer_; }
  T* operator->() const noexcept { return pointer_; }
  std::add_lvalue_reference_t<T> operator*() const noexcept requires(!std::is_void_v<T>) { return *pointer_; }
  explicit operator bool() const noexcept { return pointer_ != nullptr; }
  friend bool operator==(const Shared& a, const Shared& b) noexcept { return a.pointer_ == b.pointer_; }

 private:
  template <class U> friend class Shared;
  Shared(T* pointer, Counted* counted) noexcept : pointer_(pointer), counted_(counted) {}
  void add() const noexcept {
    if (counted_) __atomic_add_fetch(&counted_->handles, 1, __ATOMIC_RELAXED);
  }
  T* pointer_ = nullptr;
  Counted* counted_ = nullptr;
};

}  // namespace onepass::detail
