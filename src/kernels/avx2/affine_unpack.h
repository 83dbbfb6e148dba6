// Codes of 2 to 8 bits to bytes, and scales of any type to floats.
#pragma once

#include "kernels/avx2/affine_layout.h"

namespace mlxlm::avx2 {
namespace {

/// A group's 32 codes of 2, 3, 5 or 6 bits, in natural order. Reads 2·bits + 16 bytes, more than the group's 4·bits.
template <int kBits>
MLXLM_INLINE __m256i unpack_natural(const uint8_t* p) {
  // Each 32-bit lane takes the three bytes that hold 4 codes, which start at bit 4·bits·lane, then spreads the codes.
  const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p)), load128(p + 2 * kBits), 1);
  constexpr char a = kBits / 2, b = kBits, c = 3 * kBits / 2;  // first bytes of lanes 1 to 3
  const __m256i gather =
      _mm256_setr_epi8(0, 1, 2, -1, a, a + 1, a + 2, -1, b, b + 1, b + 2, -1, c, c + 1, c + 2, -1,  //
                       0, 1, 2, -1, a, a + 1, a + 2, -1, b, b + 1, b + 2, -1, c, c + 1, c + 2, -1);
  __m256i v = _mm256_shuffle_epi8(bytes, gather);
  constexpr int kHalf = kBits % 2 * 4;  // odd widths: lanes 1 and 3 start in the middle of a byte
  if (kHalf != 0) v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, kHalf, 0, kHalf, 0, kHalf, 0, kHalf));
  constexpr int kMask = (1 << kBits) - 1, kGap = 8 - kBits;
  const __m256i code0 = _mm256_and_si256(v, _mm256_set1_epi32(kMask));
  const __m256i code1 = _mm256_and_si256(_mm256_slli_epi32(v, kGap), _mm256_set1_epi32(kMask << 8));
  const __m256i code2 = _mm256_and_si256(_mm256_slli_epi32(v, 2 * kGap), _mm256_set1_epi32(kMask << 16));
  const __m256i code3 = _mm256_and_si256(_mm256_slli_epi32(v, 3 * kGap), _mm256_set1_epi32(kMask << 24));
  return _mm256_or_si256(_mm256_or_si256(code0, code1), _mm256_or_si256(code2, code3));
}

/// Byte planes of a group in the micro kernel's operand: codes of up to 4 bits are one plane, wider ones a plane of the
/// low 4 bits and one of the rest, so that 16 products of a plane always fit int16.
MLXLM_INLINE int planes_of(int bits) { return bits <= 4 ? 1 : 2; }

MLXLM_INLINE void store_planes(uint8_t* out, __m256i codes) {
  const __m256i low = _mm256_set1_epi8(15);
  store256(out, _mm256_and_si256(codes, low));
  store256(out + kGroup, _mm256_and_si256(_mm256_srli_epi16(codes, 4), low));
}

/// 4-bit codes, two groups a step: the low and high nibbles of a byte are an even and an odd code.
MLXLM_INLINE void unpack_nibble_row(const uint8_t* src, int groups, uint8_t* out, int64_t stride) {
  const __m256i low = _mm256_set1_epi8(15);
  int g = 0;
  for (; g + 2 <= groups; g += 2, src += 32, out += 2 * stride) {
    const __m256i v = load256(src), even = _mm256_and_si256(v, low);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    store256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    store256(out + stride, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  if (g < groups) {
    const __m256i v = _mm256_broadcastsi128_si256(load128(src));
    store256(out, _mm256_and_si256(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4)), low));
  }
}

MLXLM_INLINE void unpack_byte_row(const uint8_t* src, int groups, uint8_t* out, int64_t stride) {
  for (int g = 0; g < groups; ++g) store_planes(out + g * stride, even_odd(load256(src + g * kGroup)));
}

/// `end` is the end of the matrix's data: groups whose read would pass it are copied first.
template <int kBits, bool kPlanes>
MLXLM_INLINE void unpack_narrow_row(const uint8_t* src, int groups, const uint8_t* end, uint8_t* out, int64_t stride) {
  for (int g = 0; g < groups; ++g, src += 4 * kBits, out += stride) {
    const uint8_t* from = src;
    uint8_t copy[kGroup] = {};
    if (end - src < 2 * kBits + 16) {
      std::memcpy(copy, src, 4 * kBits);
      from = copy;
    }
    const __m256i codes = even_odd(unpack_natural<kBits>(from));
    if (kPlanes && kBits > 4) {
      store_planes(out, codes);
    } else {
      store256(out, codes);
    }
  }
}

/// One row's groups as planes of bytes, even codes first; `stride` bytes from group to group.
MLXLM_NOINLINE void unpack_row_planes(int bits, const uint8_t* src, int groups, const uint8_t* end, uint8_t* out,
                                      int64_t stride) {
  switch (bits) {
    case 2:
      return unpack_narrow_row<2, true>(src, groups, end, out, stride);
    case 3:
      return unpack_narrow_row<3, true>(src, groups, end, out, stride);
    case 4:
      return unpack_nibble_row(src, groups, out, stride);
    case 5:
      return unpack_narrow_row<5, true>(src, groups, end, out, stride);
    case 6:
      return unpack_narrow_row<6, true>(src, groups, end, out, stride);
    default:
      return unpack_byte_row(src, groups, out, stride);
  }
}

/// One row's groups of 2, 3, 5 or 6 bits as whole codes, even ones first.
MLXLM_NOINLINE void unpack_row_codes(int bits, const uint8_t* src, int groups, const uint8_t* end, uint8_t* out,
                                     int64_t stride) {
  switch (bits) {
    case 2:
      return unpack_narrow_row<2, false>(src, groups, end, out, stride);
    case 3:
      return unpack_narrow_row<3, false>(src, groups, end, out, stride);
    case 5:
      return unpack_narrow_row<5, false>(src, groups, end, out, stride);
    default:
      return unpack_narrow_row<6, false>(src, groups, end, out, stride);
  }
}

/// Eight scales from `p` to floats.
template <DType kType>
MLXLM_INLINE __m256 load_scales8(const std::byte* p) {
  if constexpr (kType == DType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::f16) return _mm256_cvtph_ps(load128(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

/// Scales [first, first + count) to floats.
MLXLM_NOINLINE void load_scale_row(DType dtype, const std::byte* base, int64_t first, int count, float* out) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::byte* p = base + (first + i) * (dtype == DType::f32 ? 4 : 2);
    _mm256_storeu_ps(out + i, dtype == DType::f32   ? load_scales8<DType::f32>(p)
                              : dtype == DType::f16 ? load_scales8<DType::f16>(p)
                                                    : load_scales8<DType::bf16>(p));
  }
  for (; i < count; ++i) out[i] = load_scale(dtype, base, first + i);
}

/// The 8 × 8 transpose of v in place.
MLXLM_INLINE void transpose8(__m256* v) {
  __m256 x[8];
  MLXLM_UNROLL
  for (int i = 0; i < 8; i += 2) {
    x[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    x[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_shuffle_ps(x[i], x[i + 2], 0x44);
    v[i + 1] = _mm256_shuffle_ps(x[i], x[i + 2], 0xee);
    v[i + 2] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0x44);
    v[i + 3] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0xee);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = x[i];
}

}  // namespace
}  // namespace mlxlm::avx2
