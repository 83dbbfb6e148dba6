#include "nn/products.h"

#include <algorithm>

namespace mlxlm::nn {
namespace {

// What a thread fetches ahead at most: a part of its second-level cache, and more than it gets while the rows are made.
constexpr int64_t kBytesToFetch = 128 << 10;

void fetch(const std::byte* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
}

}  // namespace

ProductRunner::ProductRunner(const Kernels& kernels, ThreadPool& pool, bool exact)
    : kernels_(kernels), pool_(pool), exact_(exact), scratch_(static_cast<size_t>(pool.size())) {
  for (auto& scratch : scratch_) scratch.reserve(kScratchBytes);
}

void ProductRunner::plan(int64_t tokens, int64_t k, std::span<const Product> products) {
  packs_.clear();
  size_t bytes = 0;
  for (const Product& product : products) {
    if (!is_packed(*product.w)) continue;
    const int pack_class = kernels_.pack_class(product.w->bits);
    const auto same = [&](const Pack& pack) { return pack.pack_class == pack_class; };
    if (std::any_of(packs_.begin(), packs_.end(), same)) continue;
    packs_.push_back({pack_class, bytes});
    bytes += (kernels_.packed_bytes(pack_class, tokens, k) + 63) / 64 * 64;
  }
  packed_.reserve(bytes);
}

void ProductRunner::pack(const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi) {
  for (const Pack& pack : packs_) {
    kernels_.pack_activations(pack.pack_class, x, tokens, k, lo, hi, packed_.get() + pack.offset);
  }
}

/// Calls body(product, lo, hi) for the rows that are the thread's: an equal share of the row tiles of all matrices, one
/// after another.
template <typename F>
void ProductRunner::for_share(std::span<const Product> products, int thread, F&& body) const {
  int64_t units = 0;
  for (const Product& product : products) units += (product.w->rows + kRowTile - 1) / kRowTile;
  const int64_t begin = units * thread / pool_.size();
  const int64_t end = units * (thread + 1) / pool_.size();
  int64_t first = 0;
  for (const Product& product : products) {
    const int64_t tiles = (product.w->rows + kRowTile - 1) / kRowTile;
    const int64_t lo = std::clamp(begin - first, int64_t{0}, tiles) * kRowTile;
    const int64_t hi = std::min(std::clamp(end - first, int64_t{0}, tiles) * kRowTile, product.w->rows);
    if (lo < hi) body(product, lo, hi);
    first += tiles;
  }
}

void ProductRunner::multiply_share(const float* x, int64_t tokens, std::span<const Product> products, int thread) {
  for_share(products, thread,
            [&](const Product& product, int64_t lo, int64_t hi) { multiply_rows(product, x, tokens, lo, hi, thread); });
}

void ProductRunner::fetch_share(std::span<const Product> products, int thread, const Gate& gate) const {
  int64_t left = kBytesToFetch;
  for_share(products, thread, [&](const Product& product, int64_t lo, int64_t hi) {
    const Matrix& w = *product.w;
    const int64_t scale_row = w.scale_row_bytes();
    for (int64_t row = lo; row < hi && left > 0 && !gate.is_open(); ++row) {
      fetch(w.data + row * w.row_bytes(), w.row_bytes());
      fetch(w.scales + row * scale_row, scale_row);
      fetch(w.biases + row * scale_row, scale_row);
      left -= w.row_bytes() + 2 * scale_row;
    }
  });
}

void ProductRunner::multiply_rows(const Product& product, const float* x, int64_t tokens, int64_t lo, int64_t hi,
                                  int thread) {
  const Matrix& w = *product.w;
  if (is_packed(w)) {
    const int pack_class = kernels_.pack_class(w.bits);
    const auto pack = std::find_if(packs_.begin(), packs_.end(),
                                   [&](const Pack& candidate) { return candidate.pack_class == pack_class; });
    kernels_.affine_matmul(w, packed_.get() + pack->offset, tokens, lo, hi, product.out, product.stride,
                           scratch(thread));
  } else {
    kernels_.float_matmul(w, x, tokens, lo, hi, product.out, product.stride, scratch(thread));
  }
  if (product.bias == nullptr || product.bias->empty()) return;
  for (int64_t t = 0; t < tokens; ++t) {
    kernels_.add(product.out + t * product.stride + lo, product.bias->data() + lo, hi - lo);
  }
}

}  // namespace mlxlm::nn
