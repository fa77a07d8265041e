// Intrusive reference counting for immutable IR nodes, which share subtrees. Counts are atomic, so
// that a program may be handed to another thread; nodes themselves never change after creation.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

namespace whet {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  void Ref() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() const {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // More than one owner: what is derived from the node may be wanted again.
  bool Shared() const { return count_.load(std::memory_order_relaxed) > 1; }

 private:
  mutable std::atomic<int> count_{0};
};

template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT: implicit as for the standard pointers
  explicit RefPtr(T* p) : p_(p) {
    if (p_) p_->Ref();
  }
  RefPtr(const RefPtr& o) : p_(o.p_) {
    if (p_) p_->Ref();
  }
  RefPtr(RefPtr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <typename U>
  RefPtr(const RefPtr<U>& o) : p_(o.get()) {  // NOLINT
    if (p_) p_->Ref();
  }
  RefPtr& operator=(RefPtr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~RefPtr() {
    if (p_) p_->Unref();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.p_ == b.p_; }
  friend bool operator<(const RefPtr& a, const RefPtr& b) { return std::less<T*>()(a.p_, b.p_); }

 private:
  T* p_ = nullptr;
};

template <typename T, typename... Args>
RefPtr<T> MakeRef(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace whet
