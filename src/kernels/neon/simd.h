// Eight float lanes in two NEON registers: the vocabulary of generic/*.inl. Every set has the same names and gives the
// same bits (NaN results are NaN in every set, with unspecified payloads).
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "kernels/generic/macros.h"

namespace mlxlm {
namespace {

struct F8 {
  float32x4_t a, b;
};
/// Eight 32-bit integers.
struct I8 {
  int32x4_t a, b;
};
/// Eight lane masks, all ones or all zeros.
struct M8 {
  uint32x4_t a, b;
};

// ---- memory: any alignment

MLXLM_INLINE uint8x16_t load_bytes(const void* p) { return vld1q_u8(static_cast<const uint8_t*>(p)); }
MLXLM_INLINE void store_bytes(void* p, uint8x16_t x) { vst1q_u8(static_cast<uint8_t*>(p), x); }

MLXLM_INLINE F8 load_f32(const void* p) {
  return {vreinterpretq_f32_u8(load_bytes(p)), vreinterpretq_f32_u8(load_bytes(static_cast<const char*>(p) + 16))};
}
MLXLM_INLINE F8 load_f16(const void* p) {
  const float16x8_t halves = vreinterpretq_f16_u8(load_bytes(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
MLXLM_INLINE F8 load_bf16(const void* p) {
  const uint16x8_t brains = vreinterpretq_u16_u8(load_bytes(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(brains), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(brains, 16))};
}
MLXLM_INLINE float load_one_f16(const void* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
MLXLM_INLINE void store_f32(void* p, F8 x) {
  store_bytes(p, vreinterpretq_u8_f32(x.a));
  store_bytes(static_cast<char*>(p) + 16, vreinterpretq_u8_f32(x.b));
}
/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_INLINE void store_f16(void* p, F8 x) {
  store_bytes(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
}
MLXLM_INLINE uint32x4_t round_to_brain(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t high = vshrq_n_u32(bits, 16);
  const uint32x4_t bias = vaddq_u32(vandq_u32(high, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, bias), 16);
  return vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(high, vdupq_n_u32(0x40)));
}
/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_INLINE void store_bf16(void* p, F8 x) {
  const uint16x8_t brains = vcombine_u16(vmovn_u32(round_to_brain(x.a)), vmovn_u32(round_to_brain(x.b)));
  store_bytes(p, vreinterpretq_u8_u16(brains));
}

// ---- arithmetic

/// Keeps a in a register: compilers would rather load a value again for each use, and loads are what limits a tile.
MLXLM_INLINE void pin(F8& a) { asm("" : "+w"(a.a), "+w"(a.b)); }
MLXLM_INLINE F8 splat(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
MLXLM_INLINE F8 operator+(F8 x, F8 y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
MLXLM_INLINE F8 operator-(F8 x, F8 y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
MLXLM_INLINE F8 operator*(F8 x, F8 y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
MLXLM_INLINE F8 operator/(F8 x, F8 y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
/// x·y + z, rounded once.
MLXLM_INLINE F8 fma(F8 x, F8 y, F8 z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
/// z − x·y, rounded once.
MLXLM_INLINE F8 fnma(F8 x, F8 y, F8 z) { return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b)}; }
/// m ? x : y
MLXLM_INLINE F8 select(M8 m, F8 x, F8 y) { return {vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b)}; }
MLXLM_INLINE M8 less(F8 x, F8 y) { return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b)}; }
/// x > y ? x : y, so y where either is NaN and where they are equal.
MLXLM_INLINE F8 max(F8 x, F8 y) { return select(less(y, x), x, y); }
/// x < y ? x : y.
MLXLM_INLINE F8 min(F8 x, F8 y) { return select(less(x, y), x, y); }
MLXLM_INLINE F8 abs(F8 x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
/// The magnitude of x (not negative) with the sign of y.
MLXLM_INLINE F8 with_sign(F8 x, F8 y) {
  const uint32x4_t sign = vdupq_n_u32(0x80000000u);
  return {vbslq_f32(sign, y.a, x.a), vbslq_f32(sign, y.b, x.b)};
}
/// 0 … 7
MLXLM_INLINE F8 lane_index() { return {float32x4_t{0, 1, 2, 3}, float32x4_t{4, 5, 6, 7}}; }

// ---- masks

MLXLM_INLINE M8 equal(F8 x, F8 y) { return {vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b)}; }
MLXLM_INLINE M8 is_nan(F8 x) { return {vmvnq_u32(vceqq_f32(x.a, x.a)), vmvnq_u32(vceqq_f32(x.b, x.b))}; }
MLXLM_INLINE M8 operator&(M8 x, M8 y) { return {vandq_u32(x.a, y.a), vandq_u32(x.b, y.b)}; }
MLXLM_INLINE M8 operator|(M8 x, M8 y) { return {vorrq_u32(x.a, y.a), vorrq_u32(x.b, y.b)}; }
/// m ? 0 : x
MLXLM_INLINE F8 zero_where(M8 m, F8 x) {
  return {vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x.a), m.a)),
          vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x.b), m.b))};
}
/// Bit i is set where lane i is.
MLXLM_INLINE uint32_t mask_bits(M8 m) {
  const uint32x4_t weights = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(m.a, weights)) | vaddvq_u32(vandq_u32(m.b, weights)) << 4;
}

// ---- integers

MLXLM_INLINE I8 splat_int(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
MLXLM_INLINE I8 bits_of(F8 x) { return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)}; }
MLXLM_INLINE F8 from_bits(I8 x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }
MLXLM_INLINE I8 operator+(I8 x, I8 y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
MLXLM_INLINE I8 operator&(I8 x, I8 y) { return {vandq_s32(x.a, y.a), vandq_s32(x.b, y.b)}; }
MLXLM_INLINE I8 operator-(I8 x, I8 y) { return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)}; }
MLXLM_INLINE I8 operator^(I8 x, I8 y) { return {veorq_s32(x.a, y.a), veorq_s32(x.b, y.b)}; }
/// The halves of eight 64-bit products.
struct WideI8 {
  I8 high, low;
};
/// Unsigned.
MLXLM_INLINE WideI8 mul_wide(I8 x, uint32_t factor) {
  const uint32x4_t f = vdupq_n_u32(factor), a = vreinterpretq_u32_s32(x.a), b = vreinterpretq_u32_s32(x.b);
  const auto products = [&](uint32x4_t v, int32x4_t& high, int32x4_t& low) {
    const auto first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(v), vget_low_u32(f)));
    const auto last = vreinterpretq_u32_u64(vmull_high_u32(v, f));
    high = vreinterpretq_s32_u32(vuzp2q_u32(first, last));
    low = vreinterpretq_s32_u32(vuzp1q_u32(first, last));
  };
  WideI8 result;
  products(a, result.high.a, result.low.a);
  products(b, result.high.b, result.low.b);
  return result;
}
/// x ≥ y, unsigned.
MLXLM_INLINE M8 at_least_unsigned(I8 x, I8 y) {
  return {vcgeq_u32(vreinterpretq_u32_s32(x.a), vreinterpretq_u32_s32(y.a)),
          vcgeq_u32(vreinterpretq_u32_s32(x.b), vreinterpretq_u32_s32(y.b))};
}
template <int n>
MLXLM_INLINE I8 shift_left(I8 x) {
  return {vshlq_n_s32(x.a, n), vshlq_n_s32(x.b, n)};
}
/// Arithmetic shift.
template <int n>
MLXLM_INLINE I8 shift_right(I8 x) {
  return {vshrq_n_s32(x.a, n), vshrq_n_s32(x.b, n)};
}
MLXLM_INLINE F8 to_float(I8 x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
/// Of whole numbers below 2^31.
MLXLM_INLINE I8 to_int(F8 x) { return {vcvtq_s32_f32(x.a), vcvtq_s32_f32(x.b)}; }

/// Eight bytes, each widened.
MLXLM_INLINE I8 load_u8(const void* p) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(p)));
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide))), vreinterpretq_s32_u32(vmovl_high_u16(wide))};
}
/// The low byte of each lane, which must hold nothing else.
MLXLM_INLINE void store_u8(void* p, I8 x) {
  const uint16x8_t words = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(x.a)), vmovn_u32(vreinterpretq_u32_s32(x.b)));
  vst1_u8(static_cast<uint8_t*>(p), vmovn_u16(words));
}

/// Eight codes of `bits` bits as floats, from exactly `bits` bytes.
template <int bits>
MLXLM_INLINE F8 load_codes(const void* p) {
  if constexpr (bits == 8) {
    const uint16x8_t wide = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(p)));
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
  }
  const uint64_t word = load_word<bits>(p);
  const uint32x4_t mask = vdupq_n_u32((1u << bits) - 1);
  const int32x4_t shifts = {0, -bits, -2 * bits, -3 * bits};
  const uint32x4_t low = vshlq_u32(vdupq_n_u32(static_cast<uint32_t>(word)), shifts);
  const uint32x4_t high = vshlq_u32(vdupq_n_u32(static_cast<uint32_t>(word >> (4 * bits))), shifts);
  return {vcvtq_f32_u32(vandq_u32(low, mask)), vcvtq_f32_u32(vandq_u32(high, mask))};
}

// ---- across lanes

/// l + (l + 4), + (l + 2), + (l + 1)
MLXLM_INLINE float sum_tree(F8 x) {
  const float32x4_t four = vaddq_f32(x.a, x.b);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
/// The same tree with max.
MLXLM_INLINE float max_tree(F8 x) {
  const float32x4_t four = vbslq_f32(vcgtq_f32(x.a, x.b), x.a, x.b);
  const float low = vgetq_lane_f32(four, 0), high = vgetq_lane_f32(four, 1);
  const float low2 = vgetq_lane_f32(four, 2), high2 = vgetq_lane_f32(four, 3);
  const float first = low > low2 ? low : low2, second = high > high2 ? high : high2;
  return first > second ? first : second;
}

// ---- one lane

MLXLM_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
MLXLM_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }

}  // namespace
}  // namespace mlxlm
