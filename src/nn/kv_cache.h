// Paged keys and values: fixed-size blocks in pools, and the block lists of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/kv_layout.h"
#include "nn/spec.h"

namespace mlxlm::nn {

/// How a sequence's keys and values are held.
struct KvOptions {
  /// 0: everything. m: in layers without a window of their own the query at q reads the keys k < keep and
  /// k > q − (m − keep); blocks that no query reads again are released.
  int64_t max_size = 0;
  int64_t keep = 4;             ///< below max_size; without one it has no effect
  int bits = 0;                 ///< 0: float; 4 or 8: rows quantised along head_dim as MLX does, one token at a time
  int group_size = 64;          ///< values that share a scale: 32, 64 or 128, a divisor of head_dim
  int64_t quantized_start = 0;  ///< queries from max(1, this) on read quantised rows only, earlier ones none

  bool operator==(const KvOptions&) const = default;
};

/// Quantised rows of one layer as MLX holds them.
struct KvCodes {
  std::vector<uint32_t> codes;    ///< [n_kv_heads, n, head_dim · bits / 32]
  std::vector<std::byte> scales;  ///< [n_kv_heads, n, head_dim / group_size] of the layout's dtype
  std::vector<std::byte> biases;  ///< as scales
};

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

  int64_t byte_budget() const { return byte_budget_; }  ///< 0: none
  int64_t bytes_in_use() const;
  int64_t bytes_held() const;  ///< in use, or kept for the next allocation; never above the budget
  void give_back();            ///< returns to the system what is kept for the next allocation

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

  explicit KvSequence(std::shared_ptr<KvPool> pool, const KvOptions& options = {});  ///< options: checked
  ~KvSequence();
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  const KvOptions& options() const { return options_; }
  int64_t length() const { return length_; }     ///< positions stored
  bool quantized() const { return quantized_; }  ///< whether the rows stored are codes now
  int64_t bytes() const;                         ///< of the blocks it refers to, shared ones included
  /// Bytes that prepare(n) would newly allocate.
  int64_t bytes_to_prepare(int64_t n) const;
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
  /// Drops what is held and shares these full blocks instead: blocks[group][i] holds positions [64i, 64i + 64), kNone
  /// where no window of a query at `length` reaches. length is a multiple of kKvBlockTokens.
  void adopt(const std::vector<std::vector<KvPool::BlockId>>& blocks, int64_t length);

  /// Block ids of a group by absolute block index; kNone where a window has moved on.
  const std::vector<KvPool::BlockId>& blocks(size_t group) const { return blocks_[group]; }
  KvPool& pool() const { return *pool_; }

  // ---- saving and loading: rows by layer and absolute position

  /// Dimensions and type of a layer's rows as they are stored now; bits 0: float.
  KvLayout layout(int layer) const;
  /// The layer holds the positions below options().keep (where its window is max_size's) and [held_from, length()).
  int64_t held_from(int layer) const;
  /// Rows [first, first + n) in float32, of either format: k [n_kv_heads, n, head_dim], v [n_kv_heads, n, value_dim].
  /// Throws Error for rows that are not held.
  void read_layer(int layer, int64_t first, int64_t n, float* k, float* v) const;
  /// The same rows as they are stored; quantized() must be true.
  void read_codes(int layer, int64_t first, int64_t n, KvCodes& k, KvCodes& v) const;
  /// Gives an empty sequence `length` positions, whose rows the caller must then write. held_from [layers]: where a
  /// layer's rows begin (those below options().keep aside); 0 for a layer that has them all. quantized: the rows are
  /// codes. Throws Error where the next query would read earlier rows than that, or the pool is full.
  void import_positions(int64_t length, std::span<const int64_t> held_from, bool quantized);
  /// Rows [first, first + n) of an imported sequence, rounded to the layout's dtype; quantized() must be false.
  void write_layer(int layer, int64_t first, int64_t n, const float* k, const float* v);
  void write_codes(int layer, int64_t first, int64_t n, const KvCodes& k, const KvCodes& v);

 private:
  void clear();
  void make_last_block_own(size_t group);

  std::shared_ptr<KvPool> pool_;
  KvOptions options_;
  std::vector<std::vector<KvPool::BlockId>> blocks_;  // per group
  int64_t length_ = 0;
  bool quantized_ = false;
};

}  // namespace mlxlm::nn
