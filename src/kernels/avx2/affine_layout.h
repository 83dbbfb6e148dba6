// How packed activations lie for the AVX2 affine products.
//
// Tokens are cut into tiles: of 16, the last of 8 where that holds the rest; up to kVectorTokens tokens each have a
// tile of their own. A tile is [k / 32] groups of {int8 codes [8 steps][tokens][4], float scales [tokens], float sums
// [tokens]}. Two classes differ in the codes:
//   plain  for weights of up to 4 bits. A group's even codes come first, then its odd ones (step s holds codes
//          8s + {0, 2, 4, 6}, step 4 + s codes 8s + {1, 3, 5, 7}): the order in which a mask and a shift take 4-bit
//          codes out of bytes.
//   split  for wider weights, in natural order. In tiles of 8 or 16 each step has two planes, low and high, with
//          code = low + 16 · high and both in [-8, 8], so that 16 products with an 8-bit code fit int16 (32,640).
#pragma once

#include <immintrin.h>

#include "kernels/generic/affine_common.h"
#include "kernels/generic/macros.h"

namespace mlxlm::avx2 {
namespace {

/// Up to this many tokens the product runs with rows in the lanes and no unpacking, at memory speed for one token. From
/// 6 a padded tile of 8 costs about the same, from 7 less.
constexpr int64_t kVectorTokens = 5;
constexpr int kPlain = 0, kSplit = 1;  // pack classes

/// Bytes of one group of one token: codes, scale and sum.
constexpr int64_t kGroupBytes = kGroup + 2 * sizeof(float);

MLXLM_INLINE int64_t group_bytes(int pack_class, int64_t width) {
  return pack_class == kSplit && width > 1 ? kGroupBytes + kGroup : kGroupBytes;
}

/// Tokens in the tile that starts at token `first`.
MLXLM_INLINE int64_t tile_width(int64_t tokens, int64_t first) {
  if (tokens <= kVectorTokens) return 1;
  return tokens - first > 8 ? 16 : 8;
}

/// Makes gcc keep this value in a register at this point. Without it gcc re-associates the integer sums, computes all
/// products first and spills them.
template <class V>
MLXLM_INLINE void pin(V& v) {
  asm("" : "+x"(v));
}

MLXLM_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
MLXLM_INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
MLXLM_INLINE void store256(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

/// Stays where it is written: compilers gather prefetches, and a core drops some of what comes at once.
MLXLM_INLINE void prefetch(const void* p) { asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p))); }
MLXLM_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1, 3); }

/// 32 bytes in natural order, even ones first.
MLXLM_INLINE __m256i even_odd(__m256i v) {
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                                         0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, order), 0xd8);
}

}  // namespace
}  // namespace mlxlm::avx2
