#include "nn/attention.h"

#include <algorithm>

namespace mlxlm::nn {
namespace {

// Queries of one task of a long span: the keys and values of a block are converted once for all of them.
constexpr int64_t kQueryTile = 64;
constexpr int64_t kBytesPerStep = 1024;
// Spans up to this many queries are split by keys: decoding, and verifying a draft.
constexpr int64_t kMaxQueriesByPartition = 8;

}  // namespace

void AttentionPlan::build(size_t group, std::span<const SpanPlace> places, int64_t n_rep) {
  n_rep_ = n_rep;
  places_.clear();
  rows_.clear();
  items_.clear();
  merges_.clear();
  partitions_.clear();
  partial_floats_ = 0;
  for (const SpanPlace& span : places) {
    const KvSequence& s = *span.sequence;
    const bool coded = s.quantized() || span.being_coded;
    places_.push_back({span, s.layout_of_group(group, coded), s.window(group), s.keep(group),
                       s.blocks(group, span.being_coded).data()});
    const size_t place = places_.size() - 1;
    for (int64_t i = 0; i < span.count; ++i) rows_.push_back({place, span.position + i});
    if (span.count > kMaxQueriesByPartition || !add_partitions(place)) add_tiles(place);
  }
  if (merges_.size() > unfinished_size_) {
    unfinished_ = std::make_unique<std::atomic<int64_t>[]>(merges_.size());
    unfinished_size_ = merges_.size();
  }
  partials_.reserve(partial_floats_);
}

void AttentionPlan::add_tiles(size_t place) {
  // The last tiles see the most keys: start with them, so that no thread is left with a big one at the end.
  const int64_t tiles = (places_[place].span.count + kQueryTile - 1) / kQueryTile;
  for (int64_t tile = tiles - 1; tile >= 0; --tile) {
    for (int64_t head = 0; head < places_[place].layout.n_kv_heads; ++head) {
      items_.push_back({place, head, tile * kQueryTile, -1});
    }
  }
}

// False, and nothing added, where a single partition holds all that the queries see.
bool AttentionPlan::add_partitions(size_t index) {
  const Place& place = places_[index];
  const int64_t oldest = place.window == 0 ? 0 : std::max<int64_t>(0, place.span.position - place.window + 1);
  const int64_t kept = place.window == 0 ? 0 : (place.keep + kAttentionPartition - 1) / kAttentionPartition;
  const int64_t end = (place.span.position + place.span.count - 1) / kAttentionPartition + 1;
  const size_t first = partitions_.size();
  for (int64_t p = 0; p < std::min(kept, end); ++p) partitions_.push_back(p);
  for (int64_t p = std::max(kept, oldest / kAttentionPartition); p < end; ++p) partitions_.push_back(p);
  const auto count = static_cast<int64_t>(partitions_.size() - first);
  if (count == 1) {
    partitions_.resize(first);
    return false;
  }
  const auto rows = static_cast<size_t>(place.span.count * n_rep_);
  const size_t floats = rows * static_cast<size_t>(place.layout.value_dim + 2);  // outputs, a maximum and a sum each
  for (int64_t head = 0; head < place.layout.n_kv_heads; ++head) {
    const auto merge = static_cast<int>(merges_.size());
    merges_.push_back({first, count, floats, partial_floats_});
    partial_floats_ += floats * static_cast<size_t>(count);
    for (int64_t i = 0; i < count; ++i) items_.push_back({index, head, i, merge});
  }
  return true;
}

void AttentionPlan::store(int64_t index_in_group, int64_t t, const float* k, const float* v,
                          const Kernels& kernels) const {
  const Row& row = rows_[static_cast<size_t>(t)];
  const Place& place = places_[row.place];
  kernels.kv_store(place.layout,
                   place.blocks[row.position / kKvBlockTokens] + index_in_group * place.layout.layer_bytes(),
                   row.position % kKvBlockTokens, k, v);
}

AttentionTask AttentionPlan::task_of(const Layer& layer, const Place& place, int64_t kv_head) const {
  const KvLayout& layout = place.layout;
  const int64_t q_stride = layout.n_kv_heads * n_rep_ * layout.head_dim;
  const int64_t out_stride = layout.n_kv_heads * n_rep_ * layout.value_dim;
  AttentionTask task;
  task.q = layer.q + place.span.row * q_stride + kv_head * n_rep_ * layout.head_dim;
  task.q_stride = q_stride;
  task.n_queries = place.span.count;
  task.n_rep = n_rep_;
  task.position = place.span.position;
  task.window = place.window;
  task.keep = place.keep;
  task.softcap = layer.softcap;
  task.head_dim = layout.head_dim;
  task.value_dim = layout.value_dim;
  task.dtype = layout.dtype;
  task.bits = layout.bits;
  task.group_size = layout.group_size;
  task.blocks = place.blocks;
  task.head_offset = layer.index_in_group * layout.layer_bytes() + kv_head * layout.head_bytes();
  task.out = layer.out + place.span.row * out_stride + kv_head * n_rep_ * layout.value_dim;
  task.out_stride = out_stride;
  return task;
}

const std::byte* AttentionPlan::start_of(const Item& item, const Layer& layer) const {
  const Place& place = places_[item.place];
  int64_t block = 0;
  if (item.merge >= 0) {
    const size_t partition = merges_[static_cast<size_t>(item.merge)].first + static_cast<size_t>(item.first);
    block = partitions_[partition] * (kAttentionPartition / kKvBlockTokens);
  } else if (place.window > 0 && place.keep == 0) {
    block = std::max<int64_t>(0, place.span.position + item.first - place.window + 1) / kKvBlockTokens;
  }
  const std::byte* start = place.blocks[block];
  if (start == nullptr) return nullptr;
  return start + layer.index_in_group * place.layout.layer_bytes() + item.kv_head * place.layout.head_bytes();
}

void AttentionPlan::run_item(const Item& item, const Item* next, const Layer& layer, const Kernels& kernels,
                             void* scratch) {
  AttentionTask task = task_of(layer, places_[item.place], item.kv_head);
  if (next != nullptr) task.then = start_of(*next, layer);
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
  const int64_t* partitions = partitions_.data() + merge.first;
  float* partials = partials_.get() + merge.offset;
  kernels.attention_partition(task, partitions[item.first], partials + static_cast<size_t>(item.first) * merge.floats,
                              scratch);
  // The last to finish merges; acquire and release make every thread's partials visible to it.
  if (unfinished_[static_cast<size_t>(item.merge)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels.attention_merge(task, partials, partitions, merge.count);
  }
}

void AttentionPlan::begin() {
  for (size_t m = 0; m < merges_.size(); ++m) unfinished_[m].store(merges_[m].count, std::memory_order_relaxed);
}

bool AttentionPlan::fetch_part(int64_t i, int64_t step, const Layer& layer) const {
  const Item& item = items_[static_cast<size_t>(i)];
  const int64_t bytes = places_[item.place].layout.head_bytes();
  const int64_t at = step * kBytesPerStep;
  if (at >= bytes) return false;
  const std::byte* start = start_of(item, layer);
  if (start == nullptr) return false;
  for (int64_t k = at; k < std::min(bytes, at + kBytesPerStep); k += 64) __builtin_prefetch(start + k);
  return true;
}

void AttentionPlan::run_task(int64_t i, const Layer& layer, const Kernels& kernels, int threads, void* scratch) {
  const Item* item = &items_[static_cast<size_t>(i)];
  // Tasks of about the same size: a thread mostly gets the one after those that the others get.
  const Item* next = i + threads < tasks() ? item + threads : nullptr;
  run_item(*item, next, layer, kernels, scratch);
}

}  // namespace mlxlm::nn
