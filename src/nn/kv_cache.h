// Paged keys and values: the block lists of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "nn/kv_pool.h"

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

/// Throws Error(invalid_value) where groups of these dimensions cannot be held so.
void check_kv_options(const KvOptions& options, const std::vector<KvGroup>& groups);

/// Quantised rows of one layer as MLX holds them.
struct KvCodes {
  std::vector<uint32_t> codes;    ///< [n_kv_heads, n, head_dim · bits / 32]
  std::vector<std::byte> scales;  ///< [n_kv_heads, n, head_dim / group_size] of the layout's dtype
  std::vector<std::byte> biases;  ///< as scales
};

/// One sequence's keys and values: references into its pool. Used by one thread at a time.
///
/// A pass calls prepare(n), writes positions [length, length + n) into the blocks, and calls commit(n), or abandon()
/// when it failed. Where the pass crosses quantized_from(), the positions before are written as elements, then
/// convert() makes codes of all of them, and the others are written into blocks(group, true).
class KvSequence {
 public:
  static constexpr KvPool::BlockId kNone = nullptr;

  explicit KvSequence(std::shared_ptr<KvPool> pool, const KvOptions& options = {});  ///< options: checked
  ~KvSequence();
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  const KvOptions& options() const { return options_; }
  int64_t length() const { return length_; }     ///< positions stored
  bool quantized() const { return quantized_; }  ///< whether the rows stored are codes now
  int64_t quantized_from() const;                ///< the first query that reads codes; the largest number: none does
  int64_t bytes() const;                         ///< of the blocks it refers to, shared ones included
  /// Bytes that prepare(n) would newly allocate.
  int64_t bytes_to_prepare(int64_t n) const;
  /// Makes room for positions [length, length + n): allocates blocks, and copies a shared last block before it is
  /// written. length() moves only with commit(). Throws Error when the pool is full; nothing has changed then.
  void prepare(int64_t n);
  /// Makes codes of the first `n` positions, of which those from length() on are prepared and written.
  void convert(int64_t n, const Kernels& kernels, ThreadPool& threads);
  /// Counts n prepared positions as stored and lets go of blocks that no window can reach again.
  void commit(int64_t n);
  /// Lets go of what prepare() allocated.
  void abandon();
  /// True when the last n positions can be forgotten with every window still complete, and what is left is held as the
  /// next query reads it.
  bool can_trim(int64_t n) const;
  /// Forgets the last n ≤ length positions; forgets everything when can_trim(n) is false. Returns how many it forgot.
  int64_t trim(int64_t n);
  /// Another sequence with the same content, sharing all blocks.
  KvSequence fork() const;
  /// Drops what is held and shares these blocks instead, which hold elements: blocks[group][i] holds positions
  /// [64i, 64i + 64), kNone where no window of a query at `length` reaches. The last may hold fewer.
  void adopt(const std::vector<std::vector<KvPool::BlockId>>& blocks, int64_t length);

  /// Blocks of a group by absolute block index; kNone where a window has moved on. being_coded: those that a prepared
  /// pass turns the others into.
  const std::vector<KvPool::BlockId>& blocks(size_t group, bool being_coded = false) const {
    return being_coded ? groups_[group].coded : groups_[group].blocks;
  }
  KvPool& pool() const { return *pool_; }
  /// How a group's blocks lie: as elements or as codes.
  KvLayout layout_of_group(size_t group, bool coded) const;
  int64_t window(size_t group) const;  ///< of this sequence's queries; 0: everything
  int64_t keep(size_t group) const;    ///< positions that every query sees beside its window

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
  struct Group {
    std::vector<KvPool::BlockId> blocks;
    std::vector<KvPool::BlockId> coded;  // between prepare() and commit() of a pass that crosses quantized_from()
    int64_t held_from = 0;               // from here on, and below keep, every position is held
  };
  /// What prepare(n) has to allocate for one group.
  struct Need {
    bool copy_last = false;
    int64_t blocks = 0;            // more of the present format
    std::vector<int64_t> coded{};  // block indices
  };
  struct LayerPlace {
    size_t group;
    int64_t index;  // of the layer in its group
  };

  Need need(size_t group, int64_t n) const;
  void clear();
  void drop(std::vector<KvPool::BlockId>& blocks, int64_t keep_first);
  KvPool::BlockId allocate(size_t group, bool coded);
  int64_t first_needed(size_t group, int64_t position) const;
  LayerPlace place_of(int layer) const;
  void check_rows(const char* what, int layer, int64_t first, int64_t n) const;
  template <typename Visit>
  void each_code_row(int layer, int64_t first, int64_t n, Visit visit) const;

  std::shared_ptr<KvPool> pool_;
  KvOptions options_;
  std::vector<Group> groups_;
  int64_t length_ = 0;
  bool quantized_ = false;
};

}  // namespace mlxlm::nn
