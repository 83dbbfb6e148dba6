// How keys and values lie in a KV block.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace mlxlm {

/// Positions in one block. 64 keys of 64 dimensions in 16 bits are 8 KB, so a head's keys or values fit half of L1.
inline constexpr int64_t kKvBlockTokens = 64;

/// Keys per attention partition. Partitions are cut at absolute positions, computed one by one with an online softmax
/// and merged in ascending order, so any number of threads gives the same bits. 256 leaves two partitions per thread
/// at a few hundred tokens of context, while a merge costs under 1 % of a partition's work.
inline constexpr int64_t kAttentionPartition = 256;

/// One layer's part of a block: for each KV head its keys and then its values.
///
/// Elements: keys [head_dim][64 tokens], values [64 tokens][value_dim]. Codes: each token's row is packed as MLX packs
/// it, dim · bits / 8 bytes with the first code in the lowest bits; keys are bytes [head_dim · bits / 8][64 tokens],
/// then scales [head_dim / group_size][64 tokens], then biases; values are bytes [64 tokens][value_dim · bits / 8],
/// then scales [64 tokens][value_dim / group_size], then biases.
struct KvLayout {
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;      ///< of keys; a multiple of 8
  int64_t value_dim = 0;     ///< a multiple of 8
  DType dtype = DType::f32;  ///< f32, f16 or bf16
  int bits = 0;              ///< 0: elements of dtype; 4 or 8: codes, with scales and biases of dtype
  int group_size = 0;        ///< values of one token that share a scale: 32, 64 or 128, a divisor of both dims

  int64_t key_bytes() const { return part_bytes(head_dim); }
  int64_t value_bytes() const { return part_bytes(value_dim); }
  int64_t head_bytes() const { return key_bytes() + value_bytes(); }
  int64_t layer_bytes() const { return n_kv_heads * head_bytes(); }
  int64_t code_bytes(int64_t dim) const { return dim * bits / 8 * kKvBlockTokens; }  ///< of one part, in a block
  int64_t scale_bytes(int64_t dim) const {  ///< of one part's scales, or biases, in a block
    return dim / group_size * kKvBlockTokens * static_cast<int64_t>(dtype_size(dtype));
  }

 private:
  int64_t part_bytes(int64_t dim) const {
    if (bits == 0) return dim * kKvBlockTokens * static_cast<int64_t>(dtype_size(dtype));
    return code_bytes(dim) + 2 * scale_bytes(dim);
  }
};

}  // namespace mlxlm
