#include "nn/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace mlxlm::nn {
namespace {

using BlockId = KvPool::BlockId;

// Positions that can be rolled back behind a window: one block, longer than any draft.
constexpr int64_t kRollback = kKvBlockTokens;

int64_t blocks_for(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

}  // namespace

void check_kv_options(const KvOptions& options, const std::vector<KvGroup>& groups) {
  if (options.max_size < 0) {
    throw_invalid("max_kv_size: expected 0 (keep everything) or more positions, got {}", options.max_size);
  }
  if (options.max_size > 0 && (options.keep < 0 || options.keep >= options.max_size)) {
    throw_invalid("keep: expected 0 or more positions and fewer than max_kv_size ({}), got {}", options.max_size,
                  options.keep);
  }
  if (options.bits == 0) return;
  if (options.bits != 4 && options.bits != 8) {
    throw_invalid("kv_bits: expected 0 (not quantised), 4 or 8, got {}", options.bits);
  }
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128) {
    throw_invalid("kv_group_size: expected 32, 64 or 128, got {}", options.group_size);
  }
  if (options.quantized_start < 0) {
    throw_invalid("quantized_kv_start: expected a position of 0 or more, got {}", options.quantized_start);
  }
  for (const KvGroup& group : groups) {
    for (const int64_t dim : {group.layout.head_dim, group.layout.value_dim}) {
      if (dim % options.group_size != 0) {
        throw_invalid("kv_group_size: expected a divisor of the head_dim {} of layer {}, got {}", dim,
                      group.layers.front(), options.group_size);
      }
    }
  }
}

KvSequence::KvSequence(std::shared_ptr<KvPool> pool, const KvOptions& options)
    : pool_(std::move(pool)), options_(options), groups_(pool_->groups().size()) {}

KvSequence::~KvSequence() { clear(); }

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),  // NOLINT(performance-move-constructor-init): what is left is an empty sequence of the pool
      options_(other.options_),
      groups_(std::move(other.groups_)),
      length_(std::exchange(other.length_, 0)),
      quantized_(std::exchange(other.quantized_, false)) {
  other.groups_.clear();
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(options_, other.options_);
  std::swap(groups_, other.groups_);
  std::swap(length_, other.length_);
  std::swap(quantized_, other.quantized_);
  return *this;
}

int64_t KvSequence::quantized_from() const {
  if (options_.bits == 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(1, options_.quantized_start);
}

int64_t KvSequence::window(size_t group) const {
  const int64_t own = pool_->groups()[group].window;
  return own > 0 || options_.max_size == 0 ? own : options_.max_size - options_.keep;
}

int64_t KvSequence::keep(size_t group) const {
  return options_.max_size > 0 && pool_->groups()[group].window == 0 ? options_.keep : 0;
}

// The first position, kept ones aside, that a query at `position` or later may read.
int64_t KvSequence::first_needed(size_t group, int64_t position) const {
  const int64_t w = window(group);
  return w == 0 ? 0 : std::max(keep(group), position - w + 1);
}

KvLayout KvSequence::layout_of_group(size_t group, bool coded) const {
  return pool_->groups()[group].layout_of(coded ? options_.bits : 0, options_.group_size);
}

KvPool::BlockId KvSequence::allocate(size_t group, bool coded) {
  return pool_->allocate(group, coded ? options_.bits : 0, options_.group_size);
}

int64_t KvSequence::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) {
    for (const BlockId block : group.blocks) bytes += block == kNone ? 0 : KvPool::block_bytes(block);
    for (const BlockId block : group.coded) bytes += block == kNone ? 0 : KvPool::block_bytes(block);
  }
  return bytes;
}

void KvSequence::drop(std::vector<BlockId>& blocks, int64_t keep_first) {
  for (; static_cast<int64_t>(blocks.size()) > keep_first; blocks.pop_back()) {
    if (blocks.back() != kNone) pool_->release(blocks.back());
  }
}

void KvSequence::clear() {
  for (Group& group : groups_) {
    drop(group.blocks, 0);
    drop(group.coded, 0);
    group.held_from = 0;
  }
  length_ = 0;
  quantized_ = false;
}

void KvSequence::abandon() {
  for (Group& group : groups_) {
    drop(group.blocks, blocks_for(length_));
    drop(group.coded, 0);
  }
}

KvSequence::Need KvSequence::need(size_t g, int64_t n) const {
  const Group& group = groups_[g];
  const int64_t from = quantized_from(), end = length_ + n;
  const auto held = static_cast<int64_t>(group.blocks.size());
  // Positions that are written in the present format.
  const int64_t written = quantized_ ? end : std::clamp(end, length_, std::max(length_, from));
  Need more;
  more.copy_last = written > length_ && length_ % kKvBlockTokens != 0 &&
                   pool_->references(group.blocks[static_cast<size_t>(length_ / kKvBlockTokens)]) > 1;
  more.blocks = std::max<int64_t>(0, blocks_for(written) - held);
  if (!quantized_ && end > from) {
    for (int64_t b = 0; b < blocks_for(end); ++b) {
      if (b >= held || group.blocks[static_cast<size_t>(b)] != kNone) more.coded.push_back(b);
    }
  }
  return more;
}

int64_t KvSequence::bytes_to_prepare(int64_t n) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Need more = need(g, n);
    const KvGroup& group = pool_->groups()[g];
    const int64_t present = group.block_bytes(quantized_ ? options_.bits : 0, options_.group_size);
    bytes += (more.blocks + (more.copy_last ? 1 : 0)) * present;
    if (more.coded.empty()) continue;
    bytes += static_cast<int64_t>(more.coded.size()) * group.block_bytes(options_.bits, options_.group_size);
  }
  return bytes;
}

void KvSequence::prepare(int64_t n) {
  abandon();
  try {
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      const Need more = need(g, n);
      if (more.copy_last) {
        BlockId& last = group.blocks[static_cast<size_t>(length_ / kKvBlockTokens)];
        const BlockId copy = allocate(g, quantized_);
        std::memcpy(copy, last, static_cast<size_t>(KvPool::block_bytes(last)));
        pool_->release(std::exchange(last, copy));
      }
      group.blocks.reserve(group.blocks.size() + static_cast<size_t>(more.blocks));
      for (int64_t i = 0; i < more.blocks; ++i) group.blocks.push_back(allocate(g, quantized_));
      if (more.coded.empty()) continue;
      group.coded.resize(static_cast<size_t>(more.coded.back()) + 1, kNone);
      for (const int64_t b : more.coded) group.coded[static_cast<size_t>(b)] = allocate(g, true);
    }
  } catch (...) {
    abandon();
    throw;
  }
}

void KvSequence::convert(int64_t n, const Kernels& kernels, ThreadPool& threads) {
  struct Task {
    size_t group;
    int64_t layer, block;
  };
  std::vector<Task> tasks;
  int64_t floats = 0;  // of one token's keys or values
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvLayout& layout = pool_->groups()[g].layout;
    floats = std::max(floats, layout.n_kv_heads * std::max(layout.head_dim, layout.value_dim));
    for (int64_t b = 0; b < blocks_for(n); ++b) {
      if (groups_[g].coded[static_cast<size_t>(b)] == kNone) continue;
      const auto layers = static_cast<int64_t>(pool_->groups()[g].layers.size());
      for (int64_t layer = 0; layer < layers; ++layer) tasks.push_back({g, layer, b});
    }
  }
  const auto size = static_cast<size_t>(floats);
  std::vector<float> rows(2 * size * static_cast<size_t>(threads.size()));
  threads.tasks(static_cast<int64_t>(tasks.size()), [&](int64_t i, int thread) {
    const Task& task = tasks[static_cast<size_t>(i)];
    const KvLayout from = layout_of_group(task.group, false), to = layout_of_group(task.group, true);
    const std::byte* source = blocks(task.group)[static_cast<size_t>(task.block)] + task.layer * from.layer_bytes();
    std::byte* target = blocks(task.group, true)[static_cast<size_t>(task.block)] + task.layer * to.layer_bytes();
    float* k = rows.data() + 2 * size * static_cast<size_t>(thread);
    const int64_t slots = std::min(kKvBlockTokens, n - task.block * kKvBlockTokens);
    for (int64_t slot = 0; slot < slots; ++slot) {
      kernels.kv_load(from, source, slot, k, k + size);
      kernels.kv_store(to, target, slot, k, k + size);
    }
  });
}

void KvSequence::commit(int64_t n) {
  length_ += n;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (!group.coded.empty()) {
      std::swap(group.blocks, group.coded);
      drop(group.coded, 0);
      quantized_ = true;
    }
    const int64_t from = first_needed(g, std::max<int64_t>(0, length_ - kRollback)) / kKvBlockTokens;
    const int64_t kept = blocks_for(keep(g));
    // Everything before was let go by earlier commits, so walk back until an empty entry.
    for (int64_t b = from - 1; b >= kept && group.blocks[static_cast<size_t>(b)] != kNone; --b) {
      pool_->release(group.blocks[static_cast<size_t>(b)]);
      group.blocks[static_cast<size_t>(b)] = kNone;
    }
    if (from > kept) group.held_from = std::max(group.held_from, from * kKvBlockTokens);
  }
}

bool KvSequence::can_trim(int64_t n) const {
  const int64_t left = length_ - n;
  if (left == 0) return true;
  if (quantized_ && left < quantized_from()) return false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (left <= keep(g)) continue;
    if (std::min(left, first_needed(g, left)) < groups_[g].held_from) return false;
  }
  return true;
}

int64_t KvSequence::trim(int64_t n) {
  n = std::clamp<int64_t>(n, 0, length_);
  if (!can_trim(n)) n = length_;
  if (n == length_) {
    clear();
    return n;
  }
  length_ -= n;
  abandon();
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (length_ <= keep(g)) groups_[g].held_from = 0;
  }
  return n;
}

KvSequence KvSequence::fork() const {
  KvSequence copy(pool_, options_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    copy.groups_[g].blocks = groups_[g].blocks;
    copy.groups_[g].held_from = groups_[g].held_from;
    for (const BlockId block : groups_[g].blocks) {
      if (block != kNone) pool_->retain(block);
    }
  }
  copy.length_ = length_;
  copy.quantized_ = quantized_;
  return copy;
}

void KvSequence::adopt(const std::vector<std::vector<BlockId>>& blocks, int64_t length) {
  for (const auto& list : blocks) {
    for (const BlockId block : list) {
      if (block != kNone) pool_->retain(block);
    }
  }
  clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].blocks = blocks[g];
    const auto missing = std::find(blocks[g].rbegin(), blocks[g].rend(), kNone);
    groups_[g].held_from = (blocks[g].rend() - missing) * kKvBlockTokens;
  }
  length_ = length;
}

}  // namespace mlxlm::nn
