// Codes of 2 to 8 bits to bytes, and scales of any type to floats.
#pragma once

#include "kernels/avx2/affine_layout.h"

namespace mlxlm::avx2 {
namespace {

/// How 16 codes of one 16-byte source are brought, each into a 16-bit lane: two bytes that hold the code, and a product
/// that moves it to the lane's top. Lane i takes code `first + step · i`, counted from the source's first byte.
template <int kBits>
struct Gather {
  alignas(16) uint8_t bytes[16];
  alignas(16) uint16_t factors[8];

  constexpr Gather(int first, int step) : bytes(), factors() {
    for (int i = 0; i < 8; ++i) {
      const int bit = (first + step * i) * kBits;
      bytes[2 * i] = static_cast<uint8_t>(bit / 8);
      bytes[2 * i + 1] = static_cast<uint8_t>(bit / 8 + 1);
      factors[i] = static_cast<uint16_t>(1 << (16 - kBits - bit % 8));
    }
  }
};

template <int kBits>
MLXLM_INLINE __m256i gather_codes(__m256i source, __m256i bytes, __m256i factors) {
  return _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(source, bytes), factors), 16 - kBits);
}

MLXLM_INLINE __m256i two128(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(low)), load128(high), 1);
}

/// A group's 32 codes of 2, 3, 5 or 6 bits in the order of their pack: even ones first up to 4 bits, else natural.
/// Reads 2·bits + 16 bytes, more than the group's 4·bits.
template <int kBits>
MLXLM_INLINE __m256i unpack_group(const uint8_t* p) {
  if constexpr (kBits <= 4) {
    static constexpr Gather<kBits> kEven(0, 2), kOdd(1, 2);
    const __m256i bytes = two128(kEven.bytes, kOdd.bytes), factors = two128(kEven.factors, kOdd.factors);
    const __m256i a = _mm256_broadcastsi128_si256(load128(p)), b = _mm256_broadcastsi128_si256(load128(p + 2 * kBits));
    return _mm256_packus_epi16(gather_codes<kBits>(a, bytes, factors), gather_codes<kBits>(b, bytes, factors));
  } else {
    static constexpr Gather<kBits> kFirst(0, 1), kSecond(8, 1);
    const __m256i v = two128(p, p + 2 * kBits), factors = two128(kFirst.factors, kFirst.factors);
    return _mm256_packus_epi16(gather_codes<kBits>(v, two128(kFirst.bytes, kFirst.bytes), factors),
                               gather_codes<kBits>(v, two128(kSecond.bytes, kSecond.bytes), factors));
  }
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

/// Widths other than 4 and 8. `end` is the end of the matrix's
/// data: groups whose read would pass it are copied first.
template <int kBits>
MLXLM_INLINE void unpack_narrow_row(const uint8_t* src, int groups, const uint8_t* end, uint8_t* out) {
  const int64_t last_safe = (end - src - (2 * kBits + 16)) / (4 * kBits);  // of groups that may be read in place
  const int safe = end - src < 2 * kBits + 16 ? 0 : last_safe + 1 < groups ? static_cast<int>(last_safe) + 1 : groups;
  for (int g = 0; g < safe; ++g, src += 4 * kBits, out += kPanelStride) {
    store256(out, unpack_group<kBits>(src));
  }
  for (int g = safe; g < groups; ++g, src += 4 * kBits, out += kPanelStride) {
    uint8_t copy[2 * kBits + 16] = {};
    std::memcpy(copy, src, 4 * kBits);
    store256(out, unpack_group<kBits>(copy));
  }
}

/// `rows` rows of `groups` groups, row_bytes apart, to panels; fetches the same part of the rows `lead` bytes on,
/// unless that is 0.
template <int kBits>
MLXLM_NOINLINE void unpack_rows(const uint8_t* src, int64_t row_bytes, int rows, int groups, const uint8_t* end,
                                int64_t lead, uint8_t* out) {
  for (int r = 0; r < rows; ++r, src += row_bytes) {
    for (int i = 0; lead != 0 && i < groups * 4 * kBits; i += 64) prefetch(src + lead + i);
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
