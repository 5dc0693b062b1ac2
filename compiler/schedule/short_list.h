// A list of a few small values, without allocation up to N of them. absl::InlinedVector does the same, but the search
// spent a quarter of its time in its push_back, which compilers do not inline.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace diapason {

template <typename T, size_t N>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ShortList() = default;
  ShortList(const ShortList& other) { Assign(other); }
  ShortList& operator=(const ShortList& other) {
    if (this != &other) Assign(other);
    return *this;
  }
  ~ShortList() {
    if (data_ != own()) ::operator delete(data_);
  }

  void clear() { size_ = 0; }
  void push_back(const T& value) {
    if (size_ == capacity_) {
      const T copy = value;  // may lie in the list
      Grow(2 * capacity_);
      data_[size_++] = copy;
      return;
    }
    data_[size_++] = value;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

  bool operator==(const ShortList& other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  T* own() { return reinterpret_cast<T*>(inline_); }

  void Assign(const ShortList& other) {
    if (other.size_ > capacity_) {
      size_ = 0;
      Grow(other.size_);
    }
    size_ = other.size_;
    for (size_t i = 0; i < size_; ++i) data_[i] = other.data_[i];
  }

  __attribute__((noinline)) void Grow(size_t capacity) {
    T* larger = static_cast<T*>(::operator new(capacity * sizeof(T)));
    std::memcpy(static_cast<void*>(larger), data_, size_ * sizeof(T));
    if (data_ != own()) ::operator delete(data_);
    data_ = larger;
    capacity_ = capacity;
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = reinterpret_cast<T*>(inline_);
  size_t size_ = 0, capacity_ = N;
};

}  // namespace diapason
