// Paged keys and values: fixed-size blocks in pools, and the block lists of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/kv_layout.h"
#include "nn/spec.h"

namespace mlxlm::nn {

/// Layers that share a block list: the same window, dimensions and format.
struct KvGroup {
  KvLayout layout;
  int64_t window = 0;       ///< 0: keeps everything
  std::vector<int> layers;  ///< indices into ModelSpec::layers, ascending

  int64_t block_bytes() const { return static_cast<int64_t>(layers.size()) * layout.layer_bytes(); }
};

/// Groups of a model for one KV type, in order of their first layer.
std::vector<KvGroup> make_kv_groups(const ModelSpec& spec, DType dtype);

/// Reference-counted blocks of every group, within a byte budget. Thread-safe; the content of a block belongs to the
/// sequences that hold it.
class KvPool {
 public:
  using BlockId = int32_t;

  KvPool(std::vector<KvGroup> groups, int64_t byte_budget);  ///< byte_budget 0: what the system gives
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const std::vector<KvGroup>& groups() const { return groups_; }

  /// A block with one reference. Its content is unspecified. Throws Error when the budget is spent.
  BlockId allocate(size_t group);
  void retain(size_t group, BlockId id);
  void release(size_t group, BlockId id);
  int references(size_t group, BlockId id) const;
  /// All layers of the group, one after another (KvLayout::layer_bytes each). 64-byte aligned.
  std::byte* data(size_t group, BlockId id) const;

  int64_t bytes_in_use() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Pool {
    std::vector<std::unique_ptr<std::byte, Free>> blocks;
    std::vector<int> references;
    std::vector<BlockId> free;
  };

  const std::vector<KvGroup> groups_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Pool> pools_;
  int64_t byte_budget_ = 0;
  int64_t bytes_in_use_ = 0;
};

/// One sequence's keys and values: references into its pool. Used by one thread at a time.
class KvSequence {
 public:
  static constexpr KvPool::BlockId kNone = -1;

  explicit KvSequence(std::shared_ptr<KvPool> pool);
  ~KvSequence();
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  int64_t length() const { return length_; }  ///< positions stored
  /// Makes room for positions [length, length + n): allocates blocks, and copies a shared last block before it is
  /// written. length() moves only with commit(). Throws Error when the pool is full; nothing has changed then.
  void prepare(int64_t n);
  /// Counts n prepared positions as stored and lets go of blocks that no window can reach again.
  void commit(int64_t n);
  /// True when the last n positions can be forgotten with every window still complete.
  bool can_trim(int64_t n) const;
  /// Forgets the last n ≤ length positions; forgets everything when can_trim(n) is false. Returns how many it forgot.
  int64_t trim(int64_t n);
  /// Another sequence with the same content, sharing all blocks.
  KvSequence fork() const;

  /// Block ids of a group by absolute block index; kNone where a window has moved on.
  const std::vector<KvPool::BlockId>& blocks(size_t group) const { return blocks_[group]; }
  KvPool& pool() const { return *pool_; }

 private:
  void clear();
  void make_last_block_own(size_t group);

  std::shared_ptr<KvPool> pool_;
  std::vector<std::vector<KvPool::BlockId>> blocks_;  // per group
  int64_t length_ = 0;
};

}  // namespace mlxlm::nn
