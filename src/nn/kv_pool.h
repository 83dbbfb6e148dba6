// Memory of keys and values: reference-counted blocks of 64 positions, in pools within one byte budget.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/page_arena.h"
#include "kernels/kv_layout.h"
#include "nn/spec.h"

namespace mlxlm::nn {

/// Layers that share a block list: the same window and dimensions.
struct KvGroup {
  KvLayout layout;          ///< of elements, not codes
  int64_t window = 0;       ///< 0: keeps everything
  std::vector<int> layers;  ///< indices into ModelSpec::layers, ascending

  /// The same group held as codes; bits 0: as elements.
  KvLayout layout_of(int bits, int group_size) const;
  /// All layers of one block.
  int64_t block_bytes(int bits = 0, int group_size = 0) const {
    return static_cast<int64_t>(layers.size()) * layout_of(bits, group_size).layer_bytes();
  }
};

/// Groups of a model for one KV type, in order of their first layer.
std::vector<KvGroup> make_kv_groups(const ModelSpec& spec, DType dtype);

/// Blocks of every group and format. Thread-safe; the content of a block belongs to the sequences that hold it.
class KvPool {
 public:
  /// A block, by the start of its data: all layers of the group, one after another (KvLayout::layer_bytes each),
  /// 64-byte aligned. Null: none.
  using BlockId = std::byte*;

  KvPool(std::vector<KvGroup> groups, int64_t byte_budget);  ///< byte_budget 0: what the system gives
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const std::vector<KvGroup>& groups() const { return groups_; }

  /// A block with one reference. Its content is unspecified. Throws Error when the budget is spent.
  BlockId allocate(size_t group, int bits = 0, int group_size = 0);
  void retain(BlockId block);
  void release(BlockId block);
  int references(BlockId block) const;
  static int64_t block_bytes(BlockId block);

  int64_t byte_budget() const { return byte_budget_; }  ///< 0: none
  int64_t bytes_in_use() const;
  int64_t bytes_held() const;  ///< in use, or kept for the next allocation; never above the budget
  void give_back();            ///< returns to the system what is kept for the next allocation

 private:
  struct Header;
  static constexpr size_t kFormats = 7;  // elements, and 4 or 8 bits with groups of 32, 64 or 128

  static size_t format_index(int bits, int group_size);
  static Header& header(BlockId block);
  void free_block(BlockId block);
  void make_space(int64_t bytes);

  const std::vector<KvGroup> groups_;
  const int64_t byte_budget_;
  mutable std::mutex mutex_;  // guards what follows, and the blocks' headers
  PageArena arena_;
  std::vector<std::vector<BlockId>> free_;  // per group and format
  int64_t bytes_in_use_ = 0;
  int64_t bytes_free_ = 0;
};

}  // namespace mlxlm::nn
