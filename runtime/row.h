// Row: a small buffer with a run-time size, on the stack if it is short.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace onepass::runtime {

/// A small buffer of default-initialized elements: elements of types like int are uninitialized.
template <class T, std::size_t kInline> class Row {
 public:
  explicit Row(std::size_t count) : count_(count) {
    if (count > kInline) {
      heap_.resize(count);
      data_ = heap_.data();
    } else std::uninitialized_default_construct_n(inline_, count);  // only the needed elements
  }
  ~Row() {
    if (data_ == inline_) std::destroy_n(inline_, count_);
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  std::span<T> span() { return {data_, count_}; }

 private:
  union {
    T inline_[kInline];
  };
  std::size_t count_;
  std::vector<T> heap_;
  T* data_ = inline_;
};

}  // namespace onepass::runtime
