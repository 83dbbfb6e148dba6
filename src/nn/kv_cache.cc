#include "nn/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mlxlm::nn {
namespace {

// Positions that can be rolled back behind a window: one block, longer than any draft.
constexpr int64_t kRollback = kKvBlockTokens;

int64_t blocks_for(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// The first position that a query at `position` or later may read.
int64_t first_needed(int64_t window, int64_t position) {
  return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
}

}  // namespace

std::vector<KvGroup> make_kv_groups(const ModelSpec& spec, DType dtype) {
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    const auto same = [&](const KvGroup& g) {
      return g.window == a.window && g.layout.n_kv_heads == a.n_kv_heads && g.layout.head_dim == a.head_dim;
    };
    auto it = std::find_if(groups.begin(), groups.end(), same);
    if (it == groups.end()) {
      KvGroup group;
      group.window = a.window;
      group.layout = {a.n_kv_heads, a.head_dim, a.head_dim, dtype};
      it = groups.insert(groups.end(), group);
    }
    it->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

void KvPool::Free::operator()(std::byte* p) const { std::free(p); }

KvPool::KvPool(std::vector<KvGroup> groups, int64_t byte_budget)
    : groups_(std::move(groups)), pools_(groups_.size()), byte_budget_(byte_budget) {}

KvPool::~KvPool() = default;

KvPool::BlockId KvPool::allocate(size_t group) {
  const std::lock_guard lock(mutex_);
  Pool& pool = pools_[group];
  const int64_t bytes = groups_[group].block_bytes();
  if (byte_budget_ > 0 && bytes_in_use_ + bytes > byte_budget_) {
    throw_invalid(
        "the KV budget of {} bytes is spent ({} in use, {} more needed); shorten the prompt or raise the budget",
        byte_budget_, bytes_in_use_, bytes);
  }
  if (pool.free.empty()) {
    const auto aligned = static_cast<size_t>((bytes + 63) / 64 * 64);
    std::unique_ptr<std::byte, Free> block(static_cast<std::byte*>(std::aligned_alloc(64, aligned)));
    if (!block) throw_error(ErrorKind::io, "out of memory: {} bytes for keys and values", aligned);
    pool.free.reserve(pool.blocks.size() + 1);  // so that release never allocates
    pool.references.push_back(0);
    pool.blocks.push_back(std::move(block));
    pool.free.push_back(static_cast<BlockId>(pool.blocks.size() - 1));
  }
  const BlockId id = pool.free.back();
  pool.free.pop_back();
  pool.references[static_cast<size_t>(id)] = 1;
  bytes_in_use_ += bytes;
  return id;
}

void KvPool::retain(size_t group, BlockId id) {
  const std::lock_guard lock(mutex_);
  ++pools_[group].references[static_cast<size_t>(id)];
}

int KvPool::references(size_t group, BlockId id) const {
  const std::lock_guard lock(mutex_);
  return pools_[group].references[static_cast<size_t>(id)];
}

std::byte* KvPool::data(size_t group, BlockId id) const {
  const std::lock_guard lock(mutex_);
  return pools_[group].blocks[static_cast<size_t>(id)].get();
}

int64_t KvPool::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return bytes_in_use_;
}

void KvPool::release(size_t group, BlockId id) {
  const std::lock_guard lock(mutex_);
  Pool& pool = pools_[group];
  if (--pool.references[static_cast<size_t>(id)] > 0) return;
  pool.free.push_back(id);
  bytes_in_use_ -= groups_[group].block_bytes();
}

KvSequence::KvSequence(std::shared_ptr<KvPool> pool, const KvOptions& options)
    : pool_(std::move(pool)), options_(options), blocks_(pool_->groups().size()) {}

KvSequence::~KvSequence() { clear(); }

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      options_(other.options_),
      blocks_(std::move(other.blocks_)),
      length_(std::exchange(other.length_, 0)) {
  other.blocks_.clear();
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(options_, other.options_);
  std::swap(blocks_, other.blocks_);
  std::swap(length_, other.length_);
  return *this;
}

void KvSequence::clear() {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (const KvPool::BlockId id : blocks_[g]) {
      if (id != kNone) pool_->release(g, id);
    }
    blocks_[g].clear();
  }
  length_ = 0;
}

void KvSequence::make_last_block_own(size_t group) {
  if (length_ % kKvBlockTokens == 0) return;
  KvPool::BlockId& last = blocks_[group][static_cast<size_t>(length_ / kKvBlockTokens)];
  if (pool_->references(group, last) == 1) return;
  const KvPool::BlockId copy = pool_->allocate(group);
  std::memcpy(pool_->data(group, copy), pool_->data(group, last),
              static_cast<size_t>(pool_->groups()[group].block_bytes()));
  pool_->release(group, last);
  last = copy;
}

void KvSequence::prepare(int64_t n) {
  const auto wanted = static_cast<size_t>(blocks_for(length_ + n));
  try {
    for (size_t g = 0; g < blocks_.size(); ++g) {
      make_last_block_own(g);
      blocks_[g].reserve(wanted);
      while (blocks_[g].size() < wanted) blocks_[g].push_back(pool_->allocate(g));
    }
  } catch (...) {
    const auto kept = static_cast<size_t>(blocks_for(length_));
    for (size_t g = 0; g < blocks_.size(); ++g) {
      for (; blocks_[g].size() > kept; blocks_[g].pop_back()) pool_->release(g, blocks_[g].back());
    }
    throw;
  }
}

void KvSequence::commit(int64_t n) {
  length_ += n;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const int64_t window = pool_->groups()[g].window;
    const int64_t keep_from = first_needed(window, std::max<int64_t>(0, length_ - kRollback)) / kKvBlockTokens;
    // Everything before was let go by earlier commits, so walk back from keep_from until an empty entry.
    for (int64_t b = keep_from - 1; b >= 0 && blocks_[g][static_cast<size_t>(b)] != kNone; --b) {
      pool_->release(g, blocks_[g][static_cast<size_t>(b)]);
      blocks_[g][static_cast<size_t>(b)] = kNone;
    }
  }
}

bool KvSequence::can_trim(int64_t n) const {
  const int64_t left = length_ - n;
  if (left == 0) return true;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const int64_t first = first_needed(pool_->groups()[g].window, left) / kKvBlockTokens;
    for (int64_t b = first; b < blocks_for(left); ++b) {
      if (blocks_[g][static_cast<size_t>(b)] == kNone) return false;
    }
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
  const auto kept = static_cast<size_t>(blocks_for(length_));
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (; blocks_[g].size() > kept; blocks_[g].pop_back()) {
      if (blocks_[g].back() != kNone) pool_->release(g, blocks_[g].back());
    }
  }
  return n;
}

KvSequence KvSequence::fork() const {
  KvSequence copy(pool_, options_);
  copy.blocks_ = blocks_;
  copy.length_ = length_;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (const KvPool::BlockId id : blocks_[g]) {
      if (id != kNone) pool_->retain(g, id);
    }
  }
  return copy;
}

void KvSequence::adopt(const std::vector<std::vector<KvPool::BlockId>>& blocks, int64_t length) {
  for (size_t g = 0; g < blocks.size(); ++g) {
    for (const KvPool::BlockId id : blocks[g]) {
      if (id != kNone) pool_->retain(g, id);
    }
  }
  clear();
  blocks_ = blocks;
  length_ = length;
}

}  // namespace mlxlm::nn
