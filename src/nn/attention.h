// Attention of one pass: which pieces of work there are, and running them over all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "nn/aligned_buffer.h"
#include "nn/kv_cache.h"
#include "nn/products.h"

namespace mlxlm::nn {

/// A span's place in the pass: rows [row, row + count) of the activations are positions [position, position + count).
struct SpanPlace {
  const KvSequence* sequence = nullptr;
  int64_t row = 0;
  int64_t count = 0;
  int64_t position = 0;
};

/// The plan of one cache group for one pass; the same for every layer of the group.
///
/// A span of many queries is cut into tiles of queries; a span of few (decoding) into partitions of the keys, whose
/// results the thread that finishes last merges in ascending order. Both give the same bits.
class AttentionPlan {
 public:
  /// Blocks for all places must be prepared. Keeps pointers into the pool until the next call.
  void build(const KvPool& pool, size_t group, std::span<const SpanPlace> places, int64_t n_rep);

  struct Layer {
    const float* q = nullptr;  ///< [tokens, n_heads · head_dim], scaled and rotated
    float* out = nullptr;      ///< [tokens, n_heads · value_dim]
    int64_t index_in_group = 0;
    float softcap = 0;
  };
  void run(const Layer& layer, const Kernels& kernels, ThreadPool& threads, ProductRunner& scratch);

  /// Start of the block that takes row t of the pass, and the slot in it.
  std::byte* block_of_row(int64_t t) const { return row_blocks_[static_cast<size_t>(t)]; }
  int64_t slot_of_row(int64_t t) const { return row_slots_[static_cast<size_t>(t)]; }
  const KvLayout& layout() const { return layout_; }

 private:
  struct Item {
    size_t place;
    int64_t kv_head;
    int64_t first;  // first query of a tile, or the partition
    int merge;      // index into merges_, or −1 for a tile
  };
  struct Merge {
    int64_t first_partition;
    int64_t count;
    size_t floats;  // of one partial
    size_t offset;  // of the first partial in partials_
  };

  AttentionTask task_of(const Layer& layer, size_t place, int64_t kv_head) const;
  void add_tiles(size_t place);
  void add_partitions(size_t place, int64_t first, int64_t count);
  void run_item(const Item& item, const Layer& layer, const Kernels& kernels, void* scratch);

  KvLayout layout_;
  int64_t window_ = 0;
  int64_t n_rep_ = 1;
  std::vector<SpanPlace> places_;
  std::vector<std::vector<const std::byte*>> blocks_;  // per place, by absolute block index
  std::vector<std::byte*> row_blocks_;
  std::vector<int64_t> row_slots_;
  std::vector<Item> items_;
  std::vector<Merge> merges_;
  std::unique_ptr<std::atomic<int64_t>[]> unfinished_;  // per merge
  size_t unfinished_size_ = 0;
  size_t partial_floats_ = 0;
  AlignedBuffer<float> partials_;
};

}  // namespace mlxlm::nn
