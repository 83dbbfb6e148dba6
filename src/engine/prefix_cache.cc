#include "engine/prefix_cache.h"

#include <algorithm>

namespace mlxlm::engine {
namespace {

std::span<const int32_t> block_of(std::span<const int32_t> tokens, int64_t index) {
  return tokens.subspan(static_cast<size_t>(index * kKvBlockTokens), kKvBlockTokens);
}

}  // namespace

PrefixCache::PrefixCache(std::shared_ptr<nn::KvPool> pool, int64_t byte_budget)
    : pool_(std::move(pool)), byte_budget_(byte_budget) {}

PrefixCache::~PrefixCache() {
  while (!ages_.empty()) drop_oldest();
}

uint64_t PrefixCache::key_after(uint64_t chain, std::span<const int32_t> block) {
  uint64_t hash = chain ^ 0x9e3779b97f4a7c15u;
  for (const int32_t token : block) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

// A key stands for one chain only: every block on the way is compared, so that equal hashes never mix up two texts.
const PrefixCache::Entry* PrefixCache::find(uint64_t parent, uint64_t key, std::span<const int32_t> block) const {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.parent != parent) return nullptr;
  return std::ranges::equal(it->second.tokens, block) ? &it->second : nullptr;
}

int64_t PrefixCache::adopt(std::span<const int32_t> tokens, int64_t most, nn::KvSequence& kv) {
  const std::lock_guard lock(mutex_);
  std::vector<const Entry*> chain;
  uint64_t key = 0;
  for (int64_t b = 0; (b + 1) * kKvBlockTokens <= most; ++b) {
    const uint64_t next = key_after(key, block_of(tokens, b));
    const Entry* entry = find(key, next, block_of(tokens, b));
    if (entry == nullptr) break;
    chain.push_back(entry);
    key = next;
  }
  const size_t groups = pool_->groups().size();
  std::vector<std::vector<nn::KvPool::BlockId>> blocks(groups);
  const auto complete = [&](int64_t n) {  // whether every window of a query at block n is at hand
    for (size_t g = 0; g < groups; ++g) {
      const int64_t window = pool_->groups()[g].window;
      const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, n * kKvBlockTokens - window + 1) / kKvBlockTokens;
      blocks[g].assign(static_cast<size_t>(n), nn::KvSequence::kNone);
      for (int64_t b = first; b < n; ++b) {
        const nn::KvPool::BlockId id = chain[static_cast<size_t>(b)]->blocks[g];
        if (id == nn::KvSequence::kNone) return false;
        blocks[g][static_cast<size_t>(b)] = id;
      }
    }
    return true;
  };
  auto n = static_cast<int64_t>(chain.size());
  while (n * kKvBlockTokens > kv.length() && !complete(n)) --n;
  if (n * kKvBlockTokens <= kv.length()) return kv.length();
  kv.adopt(blocks, n * kKvBlockTokens);
  for (int64_t b = n - 1; b >= 0; --b) ages_.splice(ages_.end(), ages_, chain[static_cast<size_t>(b)]->age);
  return kv.length();
}

void PrefixCache::store(std::span<const int32_t> tokens, const nn::KvSequence& kv, Cursor& cursor) {
  if (byte_budget_ <= 0) return;
  const int64_t full = std::min(kv.length(), static_cast<int64_t>(tokens.size())) / kKvBlockTokens;
  if (full <= cursor.blocks) return;
  const std::lock_guard lock(mutex_);
  for (; cursor.blocks < full; ++cursor.blocks) {
    const auto block = block_of(tokens, cursor.blocks);
    const uint64_t key = key_after(cursor.key, block);
    const auto [it, added] = entries_.try_emplace(key);
    if (added) {
      Entry& entry = it->second;
      entry.parent = cursor.key;
      std::ranges::copy(block, entry.tokens.begin());
      for (size_t g = 0; g < pool_->groups().size(); ++g) {
        entry.blocks.push_back(kv.blocks(g)[static_cast<size_t>(cursor.blocks)]);
        if (entry.blocks.back() != nn::KvSequence::kNone) pool_->retain(entry.blocks.back());
      }
      // Just before the block it continues, so that the end of a chain goes first.
      const auto parent = entries_.find(cursor.key);
      entry.age = ages_.insert(parent == entries_.end() ? ages_.end() : parent->second.age, key);
      bytes_ += entry_bytes(entry);
    }
    cursor.key = key;
  }
  while (bytes_ > byte_budget_ && !ages_.empty()) drop_oldest();
}

bool PrefixCache::release(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t goal = std::max<int64_t>(0, bytes_ - bytes);
  const bool any = !ages_.empty();
  while (bytes_ > goal && !ages_.empty()) drop_oldest();
  return any;
}

int64_t PrefixCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t PrefixCache::entry_bytes(const Entry& entry) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < entry.blocks.size(); ++g) {
    if (entry.blocks[g] != nn::KvSequence::kNone) bytes += pool_->groups()[g].block_bytes();
  }
  return bytes;
}

void PrefixCache::drop_oldest() {
  const auto it = entries_.find(ages_.front());
  bytes_ -= entry_bytes(it->second);
  for (size_t g = 0; g < it->second.blocks.size(); ++g) {
    if (it->second.blocks[g] != nn::KvSequence::kNone) pool_->release(it->second.blocks[g]);
  }
  entries_.erase(it);
  ages_.pop_front();
}

}  // namespace mlxlm::engine
