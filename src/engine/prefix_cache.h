// Keys and values of earlier requests, found again by the ids they were computed from.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/kv_cache.h"

namespace mlxlm::engine {

/// Blocks of one model's pool, each under the chain of ids up to its end, within a byte budget; the least recently used
/// go first. Full blocks are shared; of one that is alike only in its beginning, or not full, a sequence gets a copy.
/// Holds only sequences with default KvOptions. Thread-safe.
class PrefixCache {
 public:
  PrefixCache(std::shared_ptr<nn::KvPool> pool, int64_t byte_budget);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// How far store() has come with a sequence.
  struct Cursor {
    int64_t blocks = 0;
    uint64_t key = 0;  // of the chain so far
  };

  /// Lets kv share the longest known prefix of `tokens` where it is longer than what kv holds; at most `most`
  /// positions. Returns the positions kv holds then.
  int64_t adopt(std::span<const int32_t> tokens, int64_t most, nn::KvSequence& kv);
  /// Keeps the full blocks of kv, which were computed from `tokens`, from the cursor on.
  void store(std::span<const int32_t> tokens, const nn::KvSequence& kv, Cursor& cursor);
  /// Keeps a copy of the last block too, which is not full, of a sequence that ends here.
  void store_end(std::span<const int32_t> tokens, const nn::KvSequence& kv, Cursor& cursor);
  /// The key of the block that follows a chain; needs a full block of ids.
  static uint64_t key_after(uint64_t chain, std::span<const int32_t> block);

  /// Lets go of blocks until at least `bytes` of them are gone, or none is left. Returns whether any was let go.
  bool release(int64_t bytes);
  int64_t bytes() const;
  int64_t byte_budget() const { return byte_budget_; }

 private:
  struct Entry {
    uint64_t key = 0;
    uint64_t parent = 0;
    std::vector<int32_t> tokens;              // of a block, or fewer
    std::vector<nn::KvPool::BlockId> blocks;  // per group
    std::list<uint64_t>::iterator age;        // in ages_
  };
  using Blocks = std::vector<std::vector<nn::KvPool::BlockId>>;  // per group, by block index

  const Entry* find(uint64_t parent, uint64_t key, std::span<const int32_t> block) const;
  std::pair<const Entry*, int64_t> longest_match(uint64_t parent, std::span<const int32_t> tokens) const;
  bool complete(std::span<const Entry* const> chain, Blocks& blocks) const;
  std::vector<nn::KvPool::BlockId> copies(const std::vector<nn::KvPool::BlockId>& blocks);
  Entry* find_or_add(uint64_t parent, uint64_t key, std::span<const int32_t> tokens);
  void drop(uint64_t key);
  void shrink_to(int64_t bytes);

  std::shared_ptr<nn::KvPool> pool_;
  const int64_t byte_budget_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_multimap<uint64_t, const Entry*> children_;  // of entries_, by parent
  std::list<uint64_t> ages_;  // keys, least recently used first; a block always before those it continues
  int64_t bytes_ = 0;
};

}  // namespace mlxlm::engine
