#include "kernels/avx2/affine.h"

#include "kernels/avx2/affine_gemm.h"
#include "kernels/avx2/affine_gemv.h"

namespace mlxlm::avx2 {
namespace {

MLXLM_INLINE int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

MLXLM_INLINE uint32_t max_lanes(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1))));
}

struct QuantizedGroup {
  __m256i codes[2];  ///< int8: in a plain pack's order; or natural, and high where split in two
  float scale;
  float sum;
};

/// 32 int16 as packs_epi32 leaves them, to bytes in natural order.
MLXLM_INLINE __m256i to_bytes(__m256i a, __m256i b) {
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <int kClass, bool kPlanes>
MLXLM_INLINE QuantizedGroup quantize_group(const float* x) {
  __m256 v[4];
  __m256i amax = _mm256_setzero_si256(), code[4], sum = amax;
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + i * 8);
    amax = _mm256_max_epi32(amax, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
  }
  const Quantizer q = make_quantizer(max_lanes(amax));
  if (q.inverse == 0) return {{_mm256_setzero_si256(), _mm256_setzero_si256()}, q.scale, q.scale * 0.0f};
  for (int i = 0; i < 4; ++i) {
    code[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(q.inverse)));
    sum = _mm256_add_epi32(sum, code[i]);
  }
  QuantizedGroup out = {{}, q.scale, q.scale * static_cast<float>(sum_lanes(sum))};
  __m256i a = _mm256_packs_epi32(code[0], code[1]), b = _mm256_packs_epi32(code[2], code[3]);
  if (kPlanes) {
    const __m256i half = _mm256_set1_epi16(8);
    const __m256i high_a = _mm256_srai_epi16(_mm256_add_epi16(a, half), 4);
    const __m256i high_b = _mm256_srai_epi16(_mm256_add_epi16(b, half), 4);
    a = _mm256_sub_epi16(a, _mm256_slli_epi16(high_a, 4));
    b = _mm256_sub_epi16(b, _mm256_slli_epi16(high_b, 4));
    out.codes[1] = to_bytes(high_a, high_b);
  }
  out.codes[0] = kClass == kPlain ? even_odd(to_bytes(a, b)) : to_bytes(a, b);
  return out;
}

/// A tile of one token.
template <int kClass>
MLXLM_NOINLINE void pack_single(const float* x, int64_t groups, std::byte* tile) {
  std::byte* scales = tile + groups * kGroup;
  for (int64_t g = 0; g < groups; ++g, x += kGroup, tile += kGroup, scales += 8) {
    const QuantizedGroup q = quantize_group<kClass, false>(x);
    store256(tile, q.codes[0]);
    std::memcpy(scales, &q.scale, 4);
    std::memcpy(scales + 4, &q.sum, 4);
  }
}

/// Lanes [lane, lane + 8) of a tile of `width` tokens, 8 or 16, from `count` tokens of x; the rest is padding.
template <int kClass>
MLXLM_NOINLINE void pack_eight(const float* x, int64_t count, int64_t k, int64_t lane, int64_t width, std::byte* tile) {
  constexpr int kPlanes = kClass == kSplit ? 2 : 1;
  for (int64_t g = 0; g < k / kGroup; ++g, tile += width * (kPlanes * kGroup + 8)) {
    __m256 codes[kPlanes][8];  // of a token, then of a step
    alignas(32) float scales[8], sums[8];
    for (int t = 0; t < 8; ++t) {
      QuantizedGroup q = {};
      if (t < count) q = quantize_group<kClass, kPlanes == 2>(x + t * k + g * kGroup);
      for (int p = 0; p < kPlanes; ++p) codes[p][t] = _mm256_castsi256_ps(q.codes[p]);
      scales[t] = q.scale;
      sums[t] = q.sum;
    }
    for (int p = 0; p < kPlanes; ++p) {
      transpose8(codes[p]);
      for (int step = 0; step < 8; ++step) {
        store256(tile + ((step * kPlanes + p) * width + lane) * 4, _mm256_castps_si256(codes[p][step]));
      }
    }
    std::byte* of_lanes = tile + (width * kPlanes * kGroup + lane * 4);
    std::memcpy(of_lanes, scales, sizeof scales);
    std::memcpy(of_lanes + width * 4, sums, sizeof sums);
  }
}

template <int kClass>
MLXLM_INLINE void pack_tokens(const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi, std::byte* packed) {
  const int64_t groups = k / kGroup;
  for (int64_t t = lo; t < hi;) {
    const int64_t width = tile_width(tokens, t);
    std::byte* tile = packed + t * groups * group_bytes(kClass, width);  // tiles before it are full
    if (width == 1) {
      pack_single<kClass>(x + t * k, groups, tile);
    } else {
      for (int64_t lane = 0; lane < width; lane += 8) {
        pack_eight<kClass>(x + (t + lane) * k, tokens - t - lane, k, lane, width, tile);
      }
    }
    t += width;
  }
}

}  // namespace

int pack_class(int bits) { return bits <= 4 ? kPlain : kSplit; }

size_t packed_bytes(int pack_class, int64_t tokens, int64_t k) {
  const int64_t padded = tokens <= kVectorTokens ? tokens : (tokens + 7) / 8 * 8;
  return static_cast<size_t>(padded * (k / kGroup) * group_bytes(pack_class, tile_width(tokens, 0)));
}

void pack_activations(int pack_class, const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi, void* packed) {
  auto* out = static_cast<std::byte*>(packed);
  if (pack_class == kPlain) {
    pack_tokens<kPlain>(x, tokens, k, lo, hi, out);
  } else {
    pack_tokens<kSplit>(x, tokens, k, lo, hi, out);
  }
}

void affine_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                   int64_t out_stride, void* scratch) {
  const auto* x = static_cast<const std::byte*>(packed);
  if (tokens > kVectorTokens) {
    return gemm(w, x, tokens, lo, hi, out, out_stride, *static_cast<GemmScratch*>(scratch));
  }
  auto& s = *static_cast<GemvScratch*>(scratch);
  switch (tokens) {
    case 1:
      return gemv<1>(w, x, lo, hi, out, out_stride, s);
    case 2:
      return gemv<2>(w, x, lo, hi, out, out_stride, s);
    case 3:
      return gemv<3>(w, x, lo, hi, out, out_stride, s);
    case 4:
      return gemv<4>(w, x, lo, hi, out, out_stride, s);
    default:
      return gemv<5>(w, x, lo, hi, out, out_stride, s);
  }
}

}  // namespace mlxlm::avx2
