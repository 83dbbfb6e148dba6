// Matrix products of one input with several weight matrices, over all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "base/work_shares.h"
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

/// Brings the first weights of a thread's share of some products into its second-level cache, row by row.
class WeightFetch {
 public:
  /// `share`: row tiles of all matrices, one after another.
  WeightFetch(std::span<const Product> products, WorkShares::Piece share);
  /// False, and nothing done, when enough is fetched.
  bool next_row();

 private:
  std::span<const Product> products_;
  int64_t row_, rows_left_;  // of the first of products_; of all
  int64_t bytes_left_;
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
      pool_.run([&](int thread) { multiply_shares(x, tokens, products, thread); });
      return;
    }
    // One thread makes the rows; meanwhile the others fetch the first of their weights.
    Gate gate;
    pool_.run([&](int thread) {
      WeightFetch weights(products, shares_.left(thread));
      make_or_wait(
          thread, gate, [&] { make_rows(0, tokens); }, [&] { return weights.next_row(); });
      multiply_shares(x, tokens, products, thread);
    });
  }

  /// First prepare(lo, hi) as in run(), then body(i, thread) for every i in [0, n). Threads that have nothing to do
  /// fetch what they need next: fetch(i, step) what task i reads, a little at each step until it returns false, and the
  /// first weights of `next`, the products that run() gets then.
  template <typename Prepare, typename Body, typename Fetch>
  void tasks(int64_t tokens, Prepare&& prepare, int64_t n, Body&& body, Fetch&& fetch, std::span<const Product> next) {
    if (tokens >= kTokensToShare) {
      rows(tokens, prepare);
      pool_.tasks(n, body);
      return;
    }
    share(next);
    Gate gate;
    std::atomic<int64_t> first_free{pool_.size()};
    std::atomic<int> busy{pool_.size()};
    pool_.run([&](int thread) {
      WeightFetch weights(next, shares_.left(thread));
      auto fetch_more = [&, i = int64_t{thread}, step = int64_t{0}]() mutable {
        for (; i < n; i += pool_.size(), step = 0) {
          if (fetch(i, step++)) return true;
        }
        return weights.next_row();
      };
      make_or_wait(
          thread, gate, [&] { prepare(int64_t{0}, tokens); }, fetch_more);
      for (int64_t i = thread; i < n; i = first_free.fetch_add(1, std::memory_order_relaxed)) body(i, thread);
      busy.fetch_sub(1, std::memory_order_relaxed);
      while (busy.load(std::memory_order_relaxed) > 0 && weights.next_row()) {
      }
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
  void share(std::span<const Product> products);
  void pack(const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi);
  void multiply_shares(const float* x, int64_t tokens, std::span<const Product> products, int thread);
  /// Thread 0 makes and opens the gate; the others wait for it, and meanwhile call fetch() until it returns false.
  template <typename Make, typename Fetch>
  static void make_or_wait(int thread, Gate& gate, Make&& make, Fetch&& fetch) {
    if (thread == 0) {
      const Gate::Opener opener(gate);
      make();
    } else {
      while (!gate.is_open() && fetch()) {
      }
      gate.wait();
    }
  }
  void multiply_rows(const Product& product, const float* x, int64_t tokens, int64_t lo, int64_t hi, int thread);

  const Kernels& kernels_;
  ThreadPool& pool_;
  bool exact_;
  WorkShares shares_;  // of the row tiles of all matrices, one after another
  int64_t least_tiles_ = 1;
  std::vector<Pack> packs_;  // one per pack class in the current list of products
  AlignedBuffer<std::byte> packed_;
  std::vector<AlignedBuffer<std::byte>> scratch_;  // one per thread
};

}  // namespace mlxlm::nn
