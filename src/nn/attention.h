// Attention of one pass: which pieces of work there are, and running them over all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "nn/aligned_buffer.h"
#include "nn/kv_cache.h"

namespace mlxlm::nn {

/// A span's place in the pass: rows [row, row + count) of the activations are positions [position, position + count).
struct SpanPlace {
  const KvSequence* sequence = nullptr;
  int64_t row = 0;
  int64_t count = 0;
  int64_t position = 0;
  bool being_coded = false;  ///< in the blocks that the sequence's others are being turned into
};

/// The plan of one cache group for one pass; the same for every layer of the group.
///
/// A span of many queries is cut into tiles of queries; a span of few (decoding) into partitions of the keys, whose
/// results the thread that finishes last merges in ascending order. Both give the same bits.
class AttentionPlan {
 public:
  /// Blocks for all places must be prepared. Keeps pointers into their sequences until the next call.
  void build(size_t group, std::span<const SpanPlace> places, int64_t n_rep);

  struct Layer {
    const float* q = nullptr;  ///< [tokens, n_heads · head_dim], scaled and rotated
    float* out = nullptr;      ///< [tokens, n_heads · value_dim]
    int64_t index_in_group = 0;
    float softcap = 0;
  };
  /// Before the tasks of a layer.
  void begin();
  int64_t tasks() const { return static_cast<int64_t>(items_.size()); }
  /// Fetches a part of the keys and values of task i, the next one at each step; false: these were all worth fetching.
  bool fetch_part(int64_t i, int64_t step, const Layer& layer) const;
  /// Runs task i of `tasks()`; `threads` of them run at a time. Tasks may run in any order, each once.
  void run_task(int64_t i, const Layer& layer, const Kernels& kernels, int threads, void* scratch);

  /// Stores k and v of row t of the pass.
  void store(int64_t index_in_group, int64_t t, const float* k, const float* v, const Kernels& kernels) const;

 private:
  /// A place with what its sequence says of the group.
  struct Place {
    SpanPlace span;
    KvLayout layout;
    int64_t window, keep;
    const KvPool::BlockId* blocks;  // by absolute block index
  };
  struct Row {
    size_t place;
    int64_t position;
  };
  struct Item {
    size_t place;
    int64_t kv_head;
    int64_t first;  // first query of a tile, or an index into the merge's partitions
    int merge;      // index into merges_, or −1 for a tile
  };
  struct Merge {
    size_t first;  // of its partitions in partitions_
    int64_t count;
    size_t floats;  // of one partial
    size_t offset;  // of the first partial in partials_
  };

  AttentionTask task_of(const Layer& layer, const Place& place, int64_t kv_head) const;
  void add_tiles(size_t place);
  bool add_partitions(size_t index);
  /// Where the keys begin that the item reads first; null where it reads none of them there.
  const std::byte* start_of(const Item& item, const Layer& layer) const;
  /// `next`: what the thread will probably run then; or null.
  void run_item(const Item& item, const Item* next, const Layer& layer, const Kernels& kernels, void* scratch);

  int64_t n_rep_ = 1;
  std::vector<Place> places_;
  std::vector<Row> rows_;
  std::vector<Item> items_;
  std::vector<Merge> merges_;
  std::vector<int64_t> partitions_;                     // their numbers, ascending for each merge
  std::unique_ptr<std::atomic<int64_t>[]> unfinished_;  // per merge
  size_t unfinished_size_ = 0;
  size_t partial_floats_ = 0;
  AlignedBuffer<float> partials_;
};

}  // namespace mlxlm::nn
