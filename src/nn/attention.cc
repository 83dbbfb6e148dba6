#include "nn/attention.h"

#include <algorithm>

namespace mlxlm::nn {
namespace {

// Queries of one task of a long span: the keys and values of a block are converted once for all of them.
constexpr int64_t kQueryTile = 64;
// Spans up to this many queries are split by keys: decoding, and verifying a draft.
constexpr int64_t kMaxQueriesByPartition = 8;

}  // namespace

void AttentionPlan::build(const KvPool& pool, size_t group, std::span<const SpanPlace> places, int64_t n_rep) {
  layout_ = pool.groups()[group].layout;
  window_ = pool.groups()[group].window;
  n_rep_ = n_rep;
  places_.assign(places.begin(), places.end());
  blocks_.resize(std::max(blocks_.size(), places.size()));
  row_blocks_.clear();
  row_slots_.clear();
  items_.clear();
  merges_.clear();
  partial_floats_ = 0;
  for (size_t p = 0; p < places.size(); ++p) {
    const SpanPlace& place = places[p];
    auto& blocks = blocks_[p];
    blocks.clear();
    for (const KvPool::BlockId id : place.sequence->blocks(group)) {
      blocks.push_back(id == KvSequence::kNone ? nullptr : pool.data(group, id));
    }
    for (int64_t i = 0; i < place.count; ++i) {
      const int64_t position = place.position + i;
      const KvPool::BlockId id = place.sequence->blocks(group)[static_cast<size_t>(position / kKvBlockTokens)];
      row_blocks_.push_back(pool.data(group, id));
      row_slots_.push_back(position % kKvBlockTokens);
    }
    const int64_t oldest = window_ == 0 ? 0 : std::max<int64_t>(0, place.position - window_ + 1);
    const int64_t first = oldest / kAttentionPartition;
    const int64_t count = (place.position + place.count - 1) / kAttentionPartition + 1 - first;
    if (place.count <= kMaxQueriesByPartition && count > 1) {
      add_partitions(p, first, count);
    } else {
      add_tiles(p);
    }
  }
  if (merges_.size() > unfinished_size_) {
    unfinished_ = std::make_unique<std::atomic<int64_t>[]>(merges_.size());
    unfinished_size_ = merges_.size();
  }
  partials_.reserve(partial_floats_);
}

void AttentionPlan::add_tiles(size_t place) {
  // The last tiles see the most keys: start with them, so that no thread is left with a big one at the end.
  const int64_t tiles = (places_[place].count + kQueryTile - 1) / kQueryTile;
  for (int64_t tile = tiles - 1; tile >= 0; --tile) {
    for (int64_t head = 0; head < layout_.n_kv_heads; ++head) items_.push_back({place, head, tile * kQueryTile, -1});
  }
}

void AttentionPlan::add_partitions(size_t place, int64_t first, int64_t count) {
  const auto rows = static_cast<size_t>(places_[place].count * n_rep_);
  const size_t floats = rows * static_cast<size_t>(layout_.value_dim + 2);  // outputs, a maximum and a sum each
  for (int64_t head = 0; head < layout_.n_kv_heads; ++head) {
    const auto merge = static_cast<int>(merges_.size());
    merges_.push_back({first, count, floats, partial_floats_});
    partial_floats_ += floats * static_cast<size_t>(count);
    for (int64_t i = 0; i < count; ++i) items_.push_back({place, head, first + i, merge});
  }
}

AttentionTask AttentionPlan::task_of(const Layer& layer, size_t place, int64_t kv_head) const {
  const SpanPlace& where = places_[place];
  const int64_t q_stride = layout_.n_kv_heads * n_rep_ * layout_.head_dim;
  const int64_t out_stride = layout_.n_kv_heads * n_rep_ * layout_.value_dim;
  AttentionTask task;
  task.q = layer.q + where.row * q_stride + kv_head * n_rep_ * layout_.head_dim;
  task.q_stride = q_stride;
  task.n_queries = where.count;
  task.n_rep = n_rep_;
  task.position = where.position;
  task.window = window_;
  task.softcap = layer.softcap;
  task.head_dim = layout_.head_dim;
  task.value_dim = layout_.value_dim;
  task.dtype = layout_.dtype;
  task.blocks = blocks_[place].data();
  task.head_offset = layer.index_in_group * layout_.layer_bytes() + kv_head * layout_.head_bytes();
  task.out = layer.out + where.row * out_stride + kv_head * n_rep_ * layout_.value_dim;
  task.out_stride = out_stride;
  return task;
}

void AttentionPlan::run_item(const Item& item, const Layer& layer, const Kernels& kernels, void* scratch) {
  AttentionTask task = task_of(layer, item.place, item.kv_head);
  if (item.merge < 0) {
    const int64_t n = std::min(kQueryTile, task.n_queries - item.first);
    task.q += item.first * task.q_stride;
    task.out += item.first * task.out_stride;
    task.position += item.first;
    task.n_queries = n;
    kernels.attention(task, scratch);
    return;
  }
  const Merge& merge = merges_[static_cast<size_t>(item.merge)];
  float* partials = partials_.get() + merge.offset;
  const auto index = static_cast<size_t>(item.first - merge.first_partition);
  kernels.attention_partition(task, item.first, partials + index * merge.floats, scratch);
  // The last to finish merges; acquire and release make every thread's partials visible to it.
  if (unfinished_[static_cast<size_t>(item.merge)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels.attention_merge(task, partials, merge.first_partition, merge.count);
  }
}

void AttentionPlan::run(const Layer& layer, const Kernels& kernels, ThreadPool& threads, ProductRunner& scratch) {
  for (size_t m = 0; m < merges_.size(); ++m) unfinished_[m].store(merges_[m].count, std::memory_order_relaxed);
  const auto n = static_cast<int64_t>(items_.size());
  threads.tasks(n, [&](int64_t i, int thread) {
    run_item(items_[static_cast<size_t>(i)], layer, kernels, scratch.scratch(thread));
  });
}

}  // namespace mlxlm::nn
