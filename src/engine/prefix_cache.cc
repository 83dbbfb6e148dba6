#include "engine/prefix_cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace mlxlm::engine {
namespace {

using BlockId = nn::KvPool::BlockId;

std::span<const int32_t> block_of(std::span<const int32_t> tokens, int64_t index) {
  return tokens.subspan(static_cast<size_t>(index * kKvBlockTokens), kKvBlockTokens);
}

}  // namespace

PrefixCache::PrefixCache(std::shared_ptr<nn::KvPool> pool, int64_t byte_budget)
    : pool_(std::move(pool)), byte_budget_(byte_budget) {}

PrefixCache::~PrefixCache() { shrink_to(-1); }

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

// Of the blocks behind `parent` the one that begins most as the tokens do, and how many of its tokens do.
std::pair<const PrefixCache::Entry*, int64_t> PrefixCache::longest_match(uint64_t parent,
                                                                         std::span<const int32_t> tokens) const {
  std::pair<const Entry*, int64_t> best{nullptr, 0};
  const auto [first, last] = children_.equal_range(parent);
  for (auto it = first; it != last; ++it) {
    const Entry& entry = *it->second;
    const auto alike = std::ranges::mismatch(entry.tokens, tokens).in1 - entry.tokens.begin();
    const bool held = std::ranges::count(entry.blocks, nn::KvSequence::kNone) == 0;
    if (held && alike > best.second) best = {&entry, alike};
  }
  return best;
}

// Whether every window of a query behind the chain is at hand; `blocks` becomes what it may read.
bool PrefixCache::complete(std::span<const Entry* const> chain, Blocks& blocks) const {
  const auto n = static_cast<int64_t>(chain.size());
  for (size_t g = 0; g < blocks.size(); ++g) {
    const int64_t window = pool_->groups()[g].window;
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, n * kKvBlockTokens - window + 1) / kKvBlockTokens;
    blocks[g].assign(static_cast<size_t>(n), nn::KvSequence::kNone);
    for (int64_t b = first; b < n; ++b) {
      const BlockId id = chain[static_cast<size_t>(b)]->blocks[g];
      if (id == nn::KvSequence::kNone) return false;
      blocks[g][static_cast<size_t>(b)] = id;
    }
  }
  return true;
}

// Empty where the pool has no room for them.
std::vector<BlockId> PrefixCache::copies(const std::vector<BlockId>& blocks) {
  std::vector<BlockId> result;
  try {
    for (size_t g = 0; g < blocks.size(); ++g) {
      result.push_back(pool_->allocate(g));
      std::memcpy(result[g], blocks[g], static_cast<size_t>(nn::KvPool::block_bytes(blocks[g])));
    }
  } catch (const Error&) {
    for (const BlockId block : result) pool_->release(block);
    result.clear();
  }
  return result;
}

int64_t PrefixCache::adopt(std::span<const int32_t> tokens, int64_t most, nn::KvSequence& kv) {
  const std::lock_guard lock(mutex_);
  std::vector<const Entry*> chain;
  for (int64_t b = 0; (b + 1) * kKvBlockTokens <= most; ++b) {
    const uint64_t key = chain.empty() ? 0 : chain.back()->key;
    const Entry* entry = find(key, key_after(key, block_of(tokens, b)), block_of(tokens, b));
    if (entry == nullptr) break;
    chain.push_back(entry);
  }
  Blocks blocks(pool_->groups().size());
  while (!complete(chain, blocks)) chain.pop_back();
  const auto full = static_cast<int64_t>(chain.size()) * kKvBlockTokens;
  auto [last, alike] = longest_match(chain.empty() ? 0 : chain.back()->key,
                                     tokens.subspan(static_cast<size_t>(full), static_cast<size_t>(most - full)));
  if (full + alike <= kv.length()) return kv.length();
  const std::vector<BlockId> own = alike > 0 ? copies(last->blocks) : std::vector<BlockId>();
  if (own.empty()) alike = 0;
  if (full + alike <= kv.length()) return kv.length();
  for (size_t g = 0; g < own.size(); ++g) blocks[g].push_back(own[g]);
  kv.adopt(blocks, full + alike);
  for (const BlockId block : own) pool_->release(block);  // the sequence's now
  if (alike > 0) ages_.splice(ages_.end(), ages_, last->age);
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) ages_.splice(ages_.end(), ages_, (*it)->age);
  return kv.length();
}

// The entry of these tokens behind `parent`, made where there is none. Null: the key stands for another chain.
PrefixCache::Entry* PrefixCache::find_or_add(uint64_t parent, uint64_t key, std::span<const int32_t> tokens) {
  if (const auto known = entries_.find(key); known != entries_.end()) {
    return find(parent, key, tokens) == nullptr ? nullptr : &known->second;
  }
  // One that is only the beginning of this is of no more use.
  std::vector<uint64_t> beginnings;
  const auto [first, last] = children_.equal_range(parent);
  for (auto it = first; it != last; ++it) {
    const auto& begin = it->second->tokens;
    if (begin.size() < tokens.size() && std::ranges::equal(begin, tokens.first(begin.size()))) {
      beginnings.push_back(it->second->key);
    }
  }
  for (const uint64_t beginning : beginnings) drop(beginning);
  Entry& entry = entries_[key];
  entry.key = key;
  entry.parent = parent;
  entry.tokens.assign(tokens.begin(), tokens.end());
  entry.blocks.assign(pool_->groups().size(), nn::KvSequence::kNone);
  // Just before the block it continues, so that the end of a chain goes first.
  const auto before = entries_.find(parent);
  entry.age = ages_.insert(before == entries_.end() ? ages_.end() : before->second.age, key);
  children_.emplace(parent, &entry);
  return &entry;
}

void PrefixCache::store(std::span<const int32_t> tokens, const nn::KvSequence& kv, Cursor& cursor) {
  if (byte_budget_ <= 0) return;
  const int64_t full = std::min(kv.length(), static_cast<int64_t>(tokens.size())) / kKvBlockTokens;
  if (full <= cursor.blocks) return;
  const std::lock_guard lock(mutex_);
  for (; cursor.blocks < full; ++cursor.blocks) {
    const auto block = block_of(tokens, cursor.blocks);
    const uint64_t key = key_after(cursor.key, block);
    Entry* entry = find_or_add(cursor.key, key, block);
    for (size_t g = 0; entry != nullptr && g < entry->blocks.size(); ++g) {
      const BlockId id = kv.blocks(g)[static_cast<size_t>(cursor.blocks)];
      if (entry->blocks[g] != nn::KvSequence::kNone || id == nn::KvSequence::kNone) continue;
      pool_->retain(id);
      entry->blocks[g] = id;  // a window that an earlier sequence had left behind is filled in too
      bytes_ += nn::KvPool::block_bytes(id);
    }
    cursor.key = key;
  }
  shrink_to(byte_budget_);
}

void PrefixCache::store_end(std::span<const int32_t> tokens, const nn::KvSequence& kv, Cursor& cursor) {
  if (byte_budget_ <= 0) return;
  store(tokens, kv, cursor);
  const int64_t length = std::min(kv.length(), static_cast<int64_t>(tokens.size()));
  const int64_t before = cursor.blocks * kKvBlockTokens;
  if (length <= before) return;
  const auto rest = tokens.subspan(static_cast<size_t>(before), static_cast<size_t>(length - before));
  const std::lock_guard lock(mutex_);
  if (longest_match(cursor.key, rest).second == length - before) return;
  std::vector<BlockId> last;
  for (size_t g = 0; g < pool_->groups().size(); ++g) last.push_back(kv.blocks(g)[static_cast<size_t>(cursor.blocks)]);
  std::vector<BlockId> own = copies(last);  // of the sequence's, which may go on with it
  if (own.empty()) return;
  Entry* entry = find_or_add(cursor.key, key_after(cursor.key, rest), rest);
  if (entry == nullptr) {
    for (const BlockId block : own) pool_->release(block);
    return;
  }
  entry->blocks = std::move(own);
  for (const BlockId block : entry->blocks) bytes_ += nn::KvPool::block_bytes(block);
  shrink_to(byte_budget_);
}

bool PrefixCache::release(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool any = !ages_.empty();
  shrink_to(std::max<int64_t>(0, bytes_ - bytes));
  return any;
}

int64_t PrefixCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void PrefixCache::drop(uint64_t key) {
  const auto it = entries_.find(key);
  Entry& entry = it->second;
  for (const BlockId block : entry.blocks) {
    if (block == nn::KvSequence::kNone) continue;
    bytes_ -= nn::KvPool::block_bytes(block);
    pool_->release(block);
  }
  const auto [first, last] = children_.equal_range(entry.parent);
  children_.erase(std::find_if(first, last, [&](const auto& child) { return child.second == &entry; }));
  ages_.erase(entry.age);
  entries_.erase(it);
}

// The least recently used go until at most `bytes` are left; −1: all.
void PrefixCache::shrink_to(int64_t bytes) {
  while (bytes_ > bytes && !ages_.empty()) drop(ages_.front());
}

}  // namespace mlxlm::engine
