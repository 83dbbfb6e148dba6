// A grow-only buffer aligned to a cache line, uninitialised: scratch space that stops allocating in the steady state.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/page_arena.h"

namespace mlxlm::nn {

template <typename T>
class AlignedBuffer {
 public:
  /// At least `count` elements. Growing loses the content.
  T* reserve(size_t count) {
    if (count > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<T*>(allocate_aligned(count * sizeof(T))));
      if (!data_) throw std::bad_alloc();
      capacity_ = count;
    }
    return data_.get();
  }
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace mlxlm::nn
