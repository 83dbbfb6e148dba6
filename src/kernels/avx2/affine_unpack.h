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

/// A group of 8 rows lies together in unpacked codes: [groups][kPanelRows][32].
constexpr int kPanelRows = 8;
constexpr int64_t kPanelStride = kPanelRows * kGroup;

/// 4-bit codes, two groups a step, even codes first: the low and high nibbles of a byte are an even and an odd code.
MLXLM_INLINE void unpack_nibble_row(const uint8_t* src, int groups, uint8_t* out) {
  const __m256i low = _mm256_set1_epi8(15);
  int g = 0;
  for (; g + 2 <= groups; g += 2, src += 32, out += 2 * kPanelStride) {
    const __m256i v = load256(src), even = _mm256_and_si256(v, low);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    store256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    store256(out + kPanelStride, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  if (g < groups) {
    const __m256i v = _mm256_broadcastsi128_si256(load128(src));
    store256(out, _mm256_and_si256(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4)), low));
  }
}

MLXLM_INLINE void copy_byte_row(const uint8_t* src, int groups, uint8_t* out) {
  for (int g = 0; g < groups; ++g) store256(out + g * kPanelStride, load256(src + g * kGroup));
}

/// Widths other than 4 and 8; even codes first up to 4 bits, natural order above. `end` is the end of the matrix's
/// data: groups whose read would pass it are copied first.
template <int kBits>
MLXLM_INLINE void unpack_narrow_row(const uint8_t* src, int groups, const uint8_t* end, uint8_t* out) {
  const int64_t last_safe = (end - src - (2 * kBits + 16)) / (4 * kBits);  // of groups that may be read in place
  const int safe = end - src < 2 * kBits + 16 ? 0 : last_safe + 1 < groups ? static_cast<int>(last_safe) + 1 : groups;
  for (int g = 0; g < safe; ++g, src += 4 * kBits, out += kPanelStride) {
    const __m256i codes = unpack_natural<kBits>(src);
    store256(out, kBits <= 4 ? even_odd(codes) : codes);
  }
  for (int g = safe; g < groups; ++g, src += 4 * kBits, out += kPanelStride) {
    uint8_t copy[2 * kBits + 16] = {};
    std::memcpy(copy, src, 4 * kBits);
    const __m256i codes = unpack_natural<kBits>(copy);
    store256(out, kBits <= 4 ? even_odd(codes) : codes);
  }
}

/// `rows` rows of `groups` groups, row_bytes apart, to panels; fetches the same part of the rows `lead` bytes on.
template <int kBits>
MLXLM_NOINLINE void unpack_rows(const uint8_t* src, int64_t row_bytes, int rows, int groups, const uint8_t* end,
                                int64_t lead, uint8_t* out) {
  for (int r = 0; r < rows; ++r, src += row_bytes) {
    for (int i = 0; i < groups * 4 * kBits; i += 64) prefetch(src + lead + i);
    uint8_t* row = out + r / kPanelRows * groups * kPanelStride + r % kPanelRows * kGroup;
    if constexpr (kBits == 4) {
      unpack_nibble_row(src, groups, row);
    } else if constexpr (kBits == 8) {
      copy_byte_row(src, groups, row);
    } else {
      unpack_narrow_row<kBits>(src, groups, end, row);
    }
  }
}

MLXLM_INLINE void unpack_rows(int bits, const uint8_t* src, int64_t row_bytes, int rows, int groups, const uint8_t* end,
                              int64_t lead, uint8_t* out) {
  switch (bits) {
    case 2:
      return unpack_rows<2>(src, row_bytes, rows, groups, end, lead, out);
    case 3:
      return unpack_rows<3>(src, row_bytes, rows, groups, end, lead, out);
    case 4:
      return unpack_rows<4>(src, row_bytes, rows, groups, end, lead, out);
    case 5:
      return unpack_rows<5>(src, row_bytes, rows, groups, end, lead, out);
    case 6:
      return unpack_rows<6>(src, row_bytes, rows, groups, end, lead, out);
    default:
      return unpack_rows<8>(src, row_bytes, rows, groups, end, lead, out);
  }
}

/// Eight scales from `p` to floats.
template <DType kType>
MLXLM_INLINE __m256 load_scales8(const std::byte* p) {
  if constexpr (kType == DType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::f16) return _mm256_cvtph_ps(load128(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
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
