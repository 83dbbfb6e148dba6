// Matrix products of one input with several weight matrices, over all threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "nn/aligned_buffer.h"
#include "nn/weights.h"

namespace mlxlm::nn {

/// out[t·stride + n] = Σ x[t]·W[n] + bias[n]
struct Product {
  const Matrix* w = nullptr;
  const std::vector<float>* bias = nullptr;  ///< null or empty: none
  float* out = nullptr;
  int64_t stride = 0;
};

/// Runs products; keeps the packed activations and the threads' scratch. One caller at a time.
class ProductRunner {
 public:
  ProductRunner(const Kernels& kernels, ThreadPool& pool, bool exact);

  /// Calls body(lo, hi) on token ranges that together cover [0, tokens): one range on this thread when there are few
  /// tokens, else one per thread. Ranges start at multiples of kTokenTile.
  template <typename F>
  void rows(int64_t tokens, F&& body) {
    if (tokens < kTokensToShare) {
      body(int64_t{0}, tokens);
    } else {
      pool_.ranges(tokens, kTokenTile, [&](int64_t lo, int64_t hi, int) { body(lo, hi); });
    }
  }

  /// First prepare(lo, hi), which makes rows [lo, hi) of x [tokens, k], then the products of all of x.
  template <typename F>
  void run(const float* x, int64_t tokens, int64_t k, std::span<const Product> products, F&& prepare) {
    plan(tokens, k, products);
    rows(tokens, [&](int64_t lo, int64_t hi) {
      prepare(lo, hi);
      pack(x, tokens, k, lo, hi);
    });
    multiply(x, tokens, products);
  }

  void* scratch(int thread) { return scratch_[static_cast<size_t>(thread)].get(); }

 private:
  // Below this a region over all threads costs more than the row-wise work it would share.
  static constexpr int64_t kTokensToShare = 2 * kTokenTile;

  struct Pack {
    int pack_class;
    size_t offset;
  };

  bool is_packed(const Matrix& w) const { return !exact_ && w.quantized(); }
  void plan(int64_t tokens, int64_t k, std::span<const Product> products);
  void pack(const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi);
  void multiply(const float* x, int64_t tokens, std::span<const Product> products);
  void multiply_rows(const Product& product, const float* x, int64_t tokens, int64_t lo, int64_t hi, int thread);

  const Kernels& kernels_;
  ThreadPool& pool_;
  bool exact_;
  std::vector<Pack> packs_;  // one per pack class in the current list of products
  AlignedBuffer<std::byte> packed_;
  std::vector<AlignedBuffer<std::byte>> scratch_;  // one per thread
};

}  // namespace mlxlm::nn
