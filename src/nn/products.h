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
    const auto make_rows = [&](int64_t lo, int64_t hi) {
      prepare(lo, hi);
      pack(x, tokens, k, lo, hi);
    };
    if (tokens >= kTokensToShare) {
      rows(tokens, make_rows);
      pool_.run([&](int thread) { multiply_share(x, tokens, products, thread); });
      return;
    }
    // One thread makes the rows; meanwhile the others fetch the first of their weights.
    Gate gate;
    pool_.run([&](int thread) {
      if (thread == 0) {
        const Gate::Opener opener(gate);
        make_rows(0, tokens);
      } else {
        fetch_share(products, thread, gate);
        gate.wait();
      }
      multiply_share(x, tokens, products, thread);
    });
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
  template <typename F>
  void for_share(std::span<const Product> products, int thread, F&& body) const;
  void multiply_share(const float* x, int64_t tokens, std::span<const Product> products, int thread);
  void fetch_share(std::span<const Product> products, int thread, const Gate& gate) const;
  void multiply_rows(const Product& product, const float* x, int64_t tokens, int64_t lo, int64_t hi, int thread);

  const Kernels& kernels_;
  ThreadPool& pool_;
  bool exact_;
  std::vector<Pack> packs_;  // one per pack class in the current list of products
  AlignedBuffer<std::byte> packed_;
  std::vector<AlignedBuffer<std::byte>> scratch_;  // one per thread
};

}  // namespace mlxlm::nn
