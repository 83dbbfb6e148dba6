// The operations that have one implementation per instruction set, as a table of functions on raw spans.
//
// Every set gives the same bits. Floating-point orders are part of the contract below; integer dot products are exact
// and may be computed in any order. Functions check nothing: src/nn does. They touch no state but their arguments, and
// may run on many threads on disjoint ranges. All float buffers are float32 and contiguous unless a stride is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kv_layout.h"
#include "tensor/matrix.h"

namespace mlxlm {

/// Values per activation scale in `fast`, along K, whatever the weight's group size.
inline constexpr int64_t kActivationGroup = 32;
/// pack_activations works on whole tiles of this many tokens: ranges given to it start at a multiple.
inline constexpr int64_t kTokenTile = 16;
/// Row ranges given to the products start at a multiple of this.
inline constexpr int64_t kRowTile = 8;
/// Scratch bytes each thread brings to matrix products and attention.
inline constexpr size_t kScratchBytes = size_t{1} << 20;

enum class Activation : uint8_t { silu, gelu_tanh, gelu };

/// Attention of one KV head over one sequence's blocks, for a run of queries at consecutive positions.
struct AttentionTask {
  const float* q = nullptr;  ///< query i, head r at q + i·q_stride + r·head_dim; already scaled
  int64_t q_stride = 0;      ///< floats between queries
  int64_t n_queries = 0;
  int64_t n_rep = 1;     ///< query heads that share this KV head
  int64_t position = 0;  ///< absolute position of query 0; query i sees keys at most position + i
  int64_t window = 0;    ///< 0: all keys; else query p sees keys > p − window, and those below keep
  int64_t keep = 0;      ///< without a window it has no effect
  float softcap = 0;     ///< 0: none; else score = softcap · tanh(score / softcap)
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  DType dtype = DType::f32;
  int bits = 0;  ///< of KvLayout, as group_size
  int group_size = 0;
  const std::byte* const* blocks = nullptr;  ///< blocks[j]: block j (positions 64j …); entries of which no query sees
                                             ///< a key may be null
  int64_t head_offset = 0;          ///< bytes from a block's start to this layer's and head's K; its V follows K
  const std::byte* then = nullptr;  ///< K of a block that the thread will need next, to be fetched meanwhile; or null
  float* out = nullptr;             ///< query i, head r at out + i·out_stride + r·value_dim
  int64_t out_stride = 0;
};

struct Kernels {
  const char* isa;  ///< "scalar", "avx2", "neon", "neon_dot" (NEON with Armv8.2's dot products)

  // ---- matrix products, fast: activations in int8 per 32 values of K
  // Quantisation of each 32 values x: amax = max|x|; s = amax / 127; code = rint(x · (127 / amax)) (all 0 if amax is
  // 0), in [−127, 127]; xs = s · (float)Σcode. Output (token t, row n): acc = 0; for each 32 values of K in order, with
  // that group's weight scale sw and bias bw in float32: acc = fma((float)Σ code·q, sw · s, acc); acc = fma(bw, xs,
  // acc).

  /// Weights whose packs are interchangeable share a class; q, k and v of one class need one pack.
  int (*pack_class)(int bits);
  /// Bytes of a pack for `tokens` × k activations.
  size_t (*packed_bytes)(int pack_class, int64_t tokens, int64_t k);
  /// Quantises tokens [lo, hi) of x [tokens, k] into `packed`; lo is a multiple of kTokenTile. k is a multiple of 32.
  void (*pack_activations)(int pack_class, const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi,
                           void* packed);
  /// out[t·out_stride + n] for all tokens and rows n in [lo, hi).
  void (*affine_matmul)(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                        int64_t out_stride, void* scratch);

  // ---- matrix products, exact: any Matrix, float32 activations
  // Affine weights are fma((float)code, scale, bias). Output: 16 lanes, lane l an fma chain over k ≡ l (mod 16) in
  // order (positions up to the next multiple of 16 count as 0), then l + (l+8), + (l+4), + (l+2), + (l+1). K of affine
  // weights is a multiple of 32, of dense ones any number. Nothing past the matrix's last byte is read.

  /// out[t·out_stride + n] for all tokens of x [tokens, w.cols] and rows n in [lo, hi).
  void (*float_matmul)(const Matrix& w, const float* x, int64_t tokens, int64_t lo, int64_t hi, float* out,
                       int64_t out_stride, void* scratch);
  /// Row `row` of w in float32, out [w.cols].
  void (*dequantize_row)(const Matrix& w, int64_t row, float* out);

  // ---- rows of activations
  /// out = (x · (1 / sqrt(Σx² / n + eps))) · weight; Σ in the 16 lanes (each an fma chain) and tree above. In place
  /// allowed.
  void (*rms_norm)(const float* x, const float* weight, float* out, int64_t n, float eps);
  void (*add)(float* x, const float* y, int64_t n);  ///< x += y
  void (*scale)(float* x, float factor, int64_t n);  ///< x *= factor
  void (*gated)(Activation, const float* gate, const float* up, float* out,
                int64_t n);                         ///< out = act(gate) · up; in place allowed
  void (*softcap)(float* x, float cap, int64_t n);  ///< x = cap · tanh(x / cap)
  /// Rotates the first 2·half dims of each head of x [heads, head_dim] by cos, sin [half], then multiplies all dims by
  /// `factor` (a query's attention scale; 1 for keys). Pairs are (i, i + half), or (2i, 2i + 1) when interleaved:
  /// (a, b) → (a·c − b·s, a·s + b·c), each as fma(a, c, −(b·s)) and fma(a, s, b·c).
  void (*rope)(float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cos, const float* sin,
               bool interleaved, float factor);

  // ---- attention
  // Rows (one head of one query) never mix; what a row sees follows from its position alone, so tiles of rows, runs of
  // queries and threads may be cut anywhere. What a row sees of a block is one run of keys, or two with a gap between
  // (the kept start, and the window): then the block is visited twice, the start first. Per row and visit of a block of
  // 64 keys, in ascending order, from o = 0, m = −inf, l = 0 at the start of a partition: score = fma chain over dims
  // from 0, then the soft-cap; m' = max(m, scores seen); c = e^(m − m'), p = e^(score − m') (0 where that is below
  // 2^-126), 0 where not seen; l = fma(l, c, Σp), Σ in 8 lanes over the block's slots, each a chain, then l + (l+4), +
  // (l+2), + (l+1); o = o · c, then an fma chain over the keys seen. Blocks and partitions a row does not see leave it
  // untouched; values it does not see are never multiplied, not even by 0. Partitions, in ascending order, from the
  // same empty state: M = max(m, m_p); o = fma(o_p, e^(m_p − M), o · e^(m − M)), l likewise. Out = o / l. head_dim and
  // value_dim are multiples of 8 with a sum of at most 2,048.

  // Codes are read as fma((float)code, scale, bias). Written: n = 2^bits − 1; lo, hi the extremes of a group of values
  // already rounded to dtype; s = max((hi − lo) / n, 1e-7); where |lo| > |hi| edge = lo, else edge = hi and s = −s; q =
  // rint(edge / s); where q ≠ 0 s = edge / q and bias = edge, else bias = 0; code = rint(clip((x − bias) / s, 0, n));
  // then s and bias are rounded to dtype. A group that holds NaN gets a scale of NaN. (MLX's affine quantisation.)

  /// Stores one token's k [n_kv_heads, head_dim] and v [n_kv_heads, value_dim] at slot [0, 64) of a layer's block part,
  /// rounded to nearest even, then quantised where the layout has codes.
  void (*kv_store)(const KvLayout& layout, std::byte* layer, int64_t slot, const float* k, const float* v);
  /// The other way: what attention reads there, in float32.
  void (*kv_load)(const KvLayout& layout, const std::byte* layer, int64_t slot, float* k, float* v);
  /// All partitions of the task, merged, into task.out.
  void (*attention)(const AttentionTask& task, void* scratch);
  /// Floats of one partition's result for a task: for each query and head value_dim outputs, a maximum and a sum.
  size_t (*attention_partial_floats)(const AttentionTask& task);
  /// Partition p (keys [p·256, (p+1)·256)) alone, unnormalised, into `partial`: o [rows, value_dim], m [rows], l
  /// [rows], row = query · n_rep + head.
  void (*attention_partition)(const AttentionTask& task, int64_t p, float* partial, void* scratch);
  /// Merges partials of `count` partitions (numbers in ascending order), attention_partial_floats apart, into task.out:
  /// the same bits as `attention` where they are all that some query sees.
  void (*attention_merge)(const AttentionTask& task, const float* partials, const int64_t* partitions, int64_t count);

  // ---- logits
  float (*max)(const float* x, int64_t n);  ///< NaN are passed over; −inf where nothing else is
  /// Lowest index of the largest value; −1 if any value is NaN or +inf, or all are −inf.
  int64_t (*argmax)(const float* x, int64_t n);
  /// max + log Σ exp(x − max); Σ in the 16 lanes and tree above. −inf if all are −inf, NaN if any is NaN or +inf.
  float (*log_sum_exp)(const float* x, int64_t n);
  /// The tokens first + i, i < n, whose random bits (gumbel_bits of base/philox.h) are at least `least`: writes their i
  /// and their bits, in no order, and returns how many. `first` is a multiple of 4, `indices` and `bits` have room for
  /// n.
  int64_t (*likely_noise)(uint64_t seed, int64_t position, int64_t first, int64_t n, uint32_t least, int32_t* indices,
                          uint32_t* bits);
};

/// The sets built into this binary and able to run on this CPU, best first.
std::span<const Kernels* const> available_kernels();
/// The named set, or the best when name is empty (the variable MLXLM_ISA may name it). Throws Error(invalid_value) for
/// an unknown or unusable one, listing those available.
const Kernels& select_kernels(std::string_view name = {});

}  // namespace mlxlm
