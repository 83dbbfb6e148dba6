#include "nn/products.h"

#include <algorithm>

namespace mlxlm::nn {
namespace {

// What a thread fetches ahead at most: a part of its second-level cache, and more than it gets while the rows are made.
constexpr int64_t kBytesToFetch = 128 << 10;

// What a thread takes at least: less would cost more in cold starts than it levels.
constexpr int64_t kLeastTiles = 2;
constexpr int64_t kLeastBytes = 8 << 10;

void fetch(const std::byte* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
}

int64_t tiles_of(const Product& product) { return (product.w->rows + kRowTile - 1) / kRowTile; }

/// Calls body(product, lo, hi) for the rows that make up a piece of the row tiles of all matrices, one after another.
template <typename F>
void for_rows(std::span<const Product> products, WorkShares::Piece piece, F&& body) {
  int64_t first = 0;
  for (const Product& product : products) {
    const int64_t tiles = tiles_of(product);
    const int64_t lo = std::clamp(piece.lo - first, int64_t{0}, tiles) * kRowTile;
    const int64_t hi = std::min(std::clamp(piece.hi - first, int64_t{0}, tiles) * kRowTile, product.w->rows);
    if (lo < hi) body(product, lo, hi);
    first += tiles;
  }
}

}  // namespace

WeightFetch::WeightFetch(std::span<const Product> products, WorkShares::Piece share)
    : products_(products),
      row_(share.lo * kRowTile),
      rows_left_((share.hi - share.lo) * kRowTile),
      bytes_left_(kBytesToFetch) {}

bool WeightFetch::next_row() {
  while (!products_.empty() && row_ >= tiles_of(products_[0]) * kRowTile) {
    row_ -= tiles_of(products_[0]) * kRowTile;
    products_ = products_.subspan(1);
  }
  if (products_.empty() || rows_left_ <= 0 || bytes_left_ <= 0) return false;
  const Matrix& w = *products_[0].w;
  if (row_ < w.rows) {
    const int64_t scale_row = w.scale_row_bytes();
    fetch(w.data + row_ * w.row_bytes(), w.row_bytes());
    fetch(w.scales + row_ * scale_row, scale_row);
    fetch(w.biases + row_ * scale_row, scale_row);
    bytes_left_ -= w.row_bytes() + 2 * scale_row;
  }
  ++row_;
  --rows_left_;
  return true;
}

ProductRunner::ProductRunner(const Kernels& kernels, ThreadPool& pool, bool exact)
    : kernels_(kernels), pool_(pool), exact_(exact), shares_(pool.size()), scratch_(static_cast<size_t>(pool.size())) {
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
  share(products);
}

void ProductRunner::share(std::span<const Product> products) {
  int64_t tiles = 0, weight_bytes = 0;
  for (const Product& product : products) {
    tiles += tiles_of(product);
    weight_bytes += product.w->rows * product.w->row_bytes();
  }
  shares_.reset(tiles);
  least_tiles_ = std::max(kLeastTiles, tiles * kLeastBytes / std::max(weight_bytes, int64_t{1}));
}

void ProductRunner::pack(const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi) {
  for (const Pack& pack : packs_) {
    kernels_.pack_activations(pack.pack_class, x, tokens, k, lo, hi, packed_.get() + pack.offset);
  }
}

void ProductRunner::multiply_shares(const float* x, int64_t tokens, std::span<const Product> products, int thread) {
  for (WorkShares::Piece piece; !(piece = shares_.take(thread, least_tiles_)).empty();) {
    for_rows(products, piece, [&](const Product& product, int64_t lo, int64_t hi) {
      multiply_rows(product, x, tokens, lo, hi, thread);
    });
  }
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
