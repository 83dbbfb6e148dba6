// Eight float lanes on AVX2, FMA and F16C: the vocabulary of generic/*.inl. Every set has the same names and gives the
// same bits (NaN results are NaN in every set, with unspecified payloads).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/generic/macros.h"

namespace mlxlm {
namespace {

struct F8 {
  __m256 v;
};
/// Eight 32-bit integers.
struct I8 {
  __m256i v;
};
/// Eight lane masks, all ones or all zeros.
struct M8 {
  __m256 v;
};

// ---- memory: any alignment

MLXLM_INLINE F8 load_f32(const void* p) { return {_mm256_loadu_ps(static_cast<const float*>(p))}; }
MLXLM_INLINE F8 load_f16(const void* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
MLXLM_INLINE F8 load_bf16(const void* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
MLXLM_INLINE float load_one_f16(const void* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return _cvtsh_ss(half);
}
MLXLM_INLINE void store_f32(void* p, F8 a) { _mm256_storeu_ps(static_cast<float*>(p), a.v); }
/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_INLINE void store_f16(void* p, F8 a) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_INLINE void store_bf16(void* p, F8 a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i bias = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), packed);
}

// ---- arithmetic

/// Keeps a in a register: compilers would rather load a value again for each use, and loads are what limits a tile.
MLXLM_INLINE void pin(F8& a) { asm("" : "+x"(a.v)); }
MLXLM_INLINE F8 splat(float x) { return {_mm256_set1_ps(x)}; }
MLXLM_INLINE F8 operator+(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
MLXLM_INLINE F8 operator-(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
MLXLM_INLINE F8 operator*(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
MLXLM_INLINE F8 operator/(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
/// a·b + c, rounded once.
MLXLM_INLINE F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
/// c − a·b, rounded once.
MLXLM_INLINE F8 fnma(F8 a, F8 b, F8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
/// a > b ? a : b, so b where either is NaN and where they are equal.
MLXLM_INLINE F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
/// a < b ? a : b.
MLXLM_INLINE F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
MLXLM_INLINE F8 abs(F8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
/// The magnitude of a (not negative) with the sign of b.
MLXLM_INLINE F8 with_sign(F8 a, F8 b) { return {_mm256_or_ps(a.v, _mm256_and_ps(_mm256_set1_ps(-0.0f), b.v))}; }
/// 0 … 7
MLXLM_INLINE F8 lane_index() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)}; }

// ---- masks

MLXLM_INLINE M8 less(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
MLXLM_INLINE M8 equal(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
MLXLM_INLINE M8 is_nan(F8 a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
MLXLM_INLINE M8 operator&(M8 a, M8 b) { return {_mm256_and_ps(a.v, b.v)}; }
MLXLM_INLINE M8 operator|(M8 a, M8 b) { return {_mm256_or_ps(a.v, b.v)}; }
/// m ? a : b
MLXLM_INLINE F8 select(M8 m, F8 a, F8 b) { return {_mm256_blendv_ps(b.v, a.v, m.v)}; }
/// m ? 0 : a
MLXLM_INLINE F8 zero_where(M8 m, F8 a) { return {_mm256_andnot_ps(m.v, a.v)}; }
/// Bit i is set where lane i is.
MLXLM_INLINE uint32_t mask_bits(M8 m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.v)); }

// ---- integers

MLXLM_INLINE I8 splat_int(int32_t x) { return {_mm256_set1_epi32(x)}; }
MLXLM_INLINE I8 bits_of(F8 a) { return {_mm256_castps_si256(a.v)}; }
MLXLM_INLINE F8 from_bits(I8 a) { return {_mm256_castsi256_ps(a.v)}; }
MLXLM_INLINE I8 operator+(I8 a, I8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
MLXLM_INLINE I8 operator&(I8 a, I8 b) { return {_mm256_and_si256(a.v, b.v)}; }
MLXLM_INLINE I8 operator-(I8 a, I8 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
MLXLM_INLINE I8 operator^(I8 a, I8 b) { return {_mm256_xor_si256(a.v, b.v)}; }
/// The halves of eight 64-bit products.
struct WideI8 {
  I8 high, low;
};
/// Unsigned.
MLXLM_INLINE WideI8 mul_wide(I8 a, uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int32_t>(factor));
  const __m256i even = _mm256_mul_epu32(a.v, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), f);
  return {{_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa)},
          {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)}};
}
/// a ≥ b, unsigned.
MLXLM_INLINE M8 at_least_unsigned(I8 a, I8 b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a.v, b.v), a.v))};
}
template <int n>
MLXLM_INLINE I8 shift_left(I8 a) {
  return {_mm256_slli_epi32(a.v, n)};
}
/// Arithmetic shift.
template <int n>
MLXLM_INLINE I8 shift_right(I8 a) {
  return {_mm256_srai_epi32(a.v, n)};
}
MLXLM_INLINE F8 to_float(I8 a) { return {_mm256_cvtepi32_ps(a.v)}; }
/// Of whole numbers below 2^31.
MLXLM_INLINE I8 to_int(F8 a) { return {_mm256_cvttps_epi32(a.v)}; }

/// Eight bytes, each widened.
MLXLM_INLINE I8 load_u8(const void* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)))};
}
/// The low byte of each lane, which must hold nothing else.
MLXLM_INLINE void store_u8(void* p, I8 a) {
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}

/// Eight codes of `bits` bits as floats, from exactly `bits` bytes.
template <int bits>
MLXLM_INLINE F8 load_codes(const void* p) {
  if constexpr (bits == 8) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))))};
  }
  const uint64_t word = load_word<bits>(p);
  const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
  if constexpr (bits <= 4) {
    const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(word));
    const __m256i shifts = _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 4 * bits, 5 * bits, 6 * bits, 7 * bits);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(all, shifts), mask))};
  }
  const __m128i low = _mm_set1_epi32(static_cast<int32_t>(word));
  const __m128i high = _mm_set1_epi32(static_cast<int32_t>(word >> (4 * bits)));
  const __m256i shifts = _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 0, bits, 2 * bits, 3 * bits);
  const __m256i all = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(all, shifts), mask))};
}

// ---- across lanes

/// l + (l + 4), + (l + 2), + (l + 1)
MLXLM_INLINE float sum_tree(F8 a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/// The same tree with max.
MLXLM_INLINE float max_tree(F8 a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// ---- one lane

MLXLM_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MLXLM_INLINE float sqrt(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

}  // namespace
}  // namespace mlxlm
