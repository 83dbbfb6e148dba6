// Eight float lanes in plain C++: the vocabulary of generic/*.inl. Every set has the same names and gives the same bits
// (NaN results are NaN in every set, with unspecified payloads).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/generic/macros.h"

/// This set serves as the reference and for CPUs without any other: calls instead of inlined and unrolled loops keep
/// its object small and its compilation short.
#define MLXLM_LANE_OP [[maybe_unused]] static __attribute__((noinline))
#undef MLXLM_UNROLL
#define MLXLM_UNROLL

namespace mlxlm {
namespace {

struct F8 {
  float v[8];
};
/// Eight 32-bit integers.
struct I8 {
  int32_t v[8];
};
/// Eight lane masks.
struct M8 {
  bool v[8];
};

MLXLM_LANE_OP float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MLXLM_LANE_OP uint32_t word_of(float x) { return __builtin_bit_cast(uint32_t, x); }

// ---- one value in 16 bits

MLXLM_LANE_OP float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) {  // infinity, or NaN made quiet
    return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 0x00400000 : 0));
  }
  if (rest >= 0x400) return float_of(sign | ((rest << 13) + ((127 - 15) << 23)));
  const float small = static_cast<float>(rest) * 0x1p-24f;  // zero and subnormals: exact
  return float_of(sign | word_of(small));
}

/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_LANE_OP uint16_t float_to_half(float x) {
  const uint32_t bits = word_of(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff));
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65,520 and more round to infinity
  if (rest >= 0x38800000) {                                             // normal halves
    const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - ((127 - 15) << 23)) >> 13);
  }
  // Adding 0.5 leaves the multiple of 2^-24, rounded to nearest even, in the low bits.
  const float shifted = float_of(rest) + 0.5f;
  return static_cast<uint16_t>(sign | (word_of(shifted) - word_of(0.5f)));
}

/// Rounds to nearest even; NaN becomes a quiet NaN.
MLXLM_LANE_OP uint16_t float_to_brain(float x) {
  const uint32_t bits = word_of(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// One result per lane of `expression`, which may use the lane number i.
#define MLXLM_LANES(type, expression)                     \
  type result;                                            \
  for (int i = 0; i < 8; ++i) result.v[i] = (expression); \
  return result

// ---- memory: any alignment

MLXLM_LANE_OP F8 load_f32(const void* p) {
  F8 result;
  std::memcpy(result.v, p, sizeof result.v);
  return result;
}
MLXLM_LANE_OP F8 load_f16(const void* p) {
  uint16_t halves[8];
  std::memcpy(halves, p, sizeof halves);
  MLXLM_LANES(F8, half_to_float(halves[i]));
}
MLXLM_LANE_OP F8 load_bf16(const void* p) {
  uint16_t brains[8];
  std::memcpy(brains, p, sizeof brains);
  MLXLM_LANES(F8, float_of(static_cast<uint32_t>(brains[i]) << 16));
}
MLXLM_LANE_OP float load_one_f16(const void* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return half_to_float(half);
}
MLXLM_LANE_OP void store_f32(void* p, F8 a) { std::memcpy(p, a.v, sizeof a.v); }
MLXLM_LANE_OP void store_f16(void* p, F8 a) {
  uint16_t halves[8];
  for (int i = 0; i < 8; ++i) halves[i] = float_to_half(a.v[i]);
  std::memcpy(p, halves, sizeof halves);
}
MLXLM_LANE_OP void store_bf16(void* p, F8 a) {
  uint16_t brains[8];
  for (int i = 0; i < 8; ++i) brains[i] = float_to_brain(a.v[i]);
  std::memcpy(p, brains, sizeof brains);
}

// ---- arithmetic

/// Keeps a in a register: compilers would rather load a value again for each use, and loads are what limits a tile.
MLXLM_LANE_OP void pin(F8& a) { (void)a; }
MLXLM_LANE_OP F8 splat(float x) { MLXLM_LANES(F8, x); }
MLXLM_LANE_OP F8 operator+(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] + b.v[i]); }
MLXLM_LANE_OP F8 operator-(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] - b.v[i]); }
MLXLM_LANE_OP F8 operator*(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] * b.v[i]); }
MLXLM_LANE_OP F8 operator/(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] / b.v[i]); }
/// a·b + c, rounded once.
MLXLM_LANE_OP F8 fma(F8 a, F8 b, F8 c) { MLXLM_LANES(F8, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
/// c − a·b, rounded once.
MLXLM_LANE_OP F8 fnma(F8 a, F8 b, F8 c) { MLXLM_LANES(F8, __builtin_fmaf(-a.v[i], b.v[i], c.v[i])); }
/// a > b ? a : b, so b where either is NaN and where they are equal.
MLXLM_LANE_OP F8 max(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
/// a < b ? a : b.
MLXLM_LANE_OP F8 min(F8 a, F8 b) { MLXLM_LANES(F8, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
MLXLM_LANE_OP F8 abs(F8 a) { MLXLM_LANES(F8, float_of(word_of(a.v[i]) & 0x7fffffff)); }
/// The magnitude of a (not negative) with the sign of b.
MLXLM_LANE_OP F8 with_sign(F8 a, F8 b) { MLXLM_LANES(F8, float_of(word_of(a.v[i]) | (word_of(b.v[i]) & 0x80000000))); }
/// 0 … 7
MLXLM_LANE_OP F8 lane_index() { MLXLM_LANES(F8, static_cast<float>(i)); }

// ---- masks

MLXLM_LANE_OP M8 less(F8 a, F8 b) { MLXLM_LANES(M8, a.v[i] < b.v[i]); }
MLXLM_LANE_OP M8 equal(F8 a, F8 b) { MLXLM_LANES(M8, a.v[i] == b.v[i]); }
MLXLM_LANE_OP M8 is_nan(F8 a) { MLXLM_LANES(M8, a.v[i] != a.v[i]); }
MLXLM_LANE_OP M8 operator&(M8 a, M8 b) { MLXLM_LANES(M8, a.v[i] && b.v[i]); }
MLXLM_LANE_OP M8 operator|(M8 a, M8 b) { MLXLM_LANES(M8, a.v[i] || b.v[i]); }
/// m ? a : b
MLXLM_LANE_OP F8 select(M8 m, F8 a, F8 b) { MLXLM_LANES(F8, m.v[i] ? a.v[i] : b.v[i]); }
/// m ? 0 : a
MLXLM_LANE_OP F8 zero_where(M8 m, F8 a) { MLXLM_LANES(F8, m.v[i] ? 0.0f : a.v[i]); }
/// Bit i is set where lane i is.
MLXLM_LANE_OP uint32_t mask_bits(M8 m) {
  uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= static_cast<uint32_t>(m.v[i]) << i;
  return bits;
}

// ---- integers

MLXLM_LANE_OP I8 splat_int(int32_t x) { MLXLM_LANES(I8, x); }
MLXLM_LANE_OP I8 bits_of(F8 a) { MLXLM_LANES(I8, static_cast<int32_t>(word_of(a.v[i]))); }
MLXLM_LANE_OP F8 from_bits(I8 a) { MLXLM_LANES(F8, float_of(static_cast<uint32_t>(a.v[i]))); }
MLXLM_LANE_OP int32_t wrap(uint32_t x) { return static_cast<int32_t>(x); }
MLXLM_LANE_OP I8 operator+(I8 a, I8 b) {
  MLXLM_LANES(I8, wrap(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])));
}
MLXLM_LANE_OP I8 operator&(I8 a, I8 b) { MLXLM_LANES(I8, a.v[i] & b.v[i]); }
MLXLM_LANE_OP I8 operator-(I8 a, I8 b) {
  MLXLM_LANES(I8, wrap(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i])));
}
MLXLM_LANE_OP I8 operator^(I8 a, I8 b) { MLXLM_LANES(I8, a.v[i] ^ b.v[i]); }
/// The halves of eight 64-bit products.
struct WideI8 {
  I8 high, low;
};
/// Unsigned.
MLXLM_LANE_OP WideI8 mul_wide(I8 a, uint32_t factor) {
  WideI8 result;
  for (int i = 0; i < 8; ++i) {
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(a.v[i])) * factor;
    result.high.v[i] = wrap(static_cast<uint32_t>(product >> 32));
    result.low.v[i] = wrap(static_cast<uint32_t>(product));
  }
  return result;
}
/// a ≥ b, unsigned.
MLXLM_LANE_OP M8 at_least_unsigned(I8 a, I8 b) {
  MLXLM_LANES(M8, static_cast<uint32_t>(a.v[i]) >= static_cast<uint32_t>(b.v[i]));
}
template <int n>
MLXLM_LANE_OP I8 shift_left(I8 a) {
  MLXLM_LANES(I8, wrap(static_cast<uint32_t>(a.v[i]) << n));
}
/// Arithmetic shift.
template <int n>
MLXLM_LANE_OP I8 shift_right(I8 a) {
  MLXLM_LANES(I8, a.v[i] >> n);
}
MLXLM_LANE_OP F8 to_float(I8 a) { MLXLM_LANES(F8, static_cast<float>(a.v[i])); }
/// Of whole numbers below 2^31.
MLXLM_LANE_OP I8 to_int(F8 a) { MLXLM_LANES(I8, static_cast<int32_t>(a.v[i])); }

/// Eight bytes, each widened.
MLXLM_LANE_OP I8 load_u8(const void* p) {
  unsigned char bytes[8];
  std::memcpy(bytes, p, sizeof bytes);
  MLXLM_LANES(I8, bytes[i]);
}
/// The low byte of each lane, which must hold nothing else.
MLXLM_LANE_OP void store_u8(void* p, I8 a) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(a.v[i]);
  std::memcpy(p, bytes, sizeof bytes);
}

/// Eight codes of `bits` bits as floats, from exactly `bits` bytes.
template <int bits>
MLXLM_LANE_OP F8 load_codes(const void* p) {
  unsigned char bytes[8] = {};
  std::memcpy(bytes, p, bits);
  uint64_t word = 0;
  for (int i = 0; i < bits; ++i) word |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  MLXLM_LANES(F8, static_cast<float>(word >> (bits * i) & ((1u << bits) - 1)));
}

#undef MLXLM_LANES

// ---- across lanes

/// l + (l + 4), + (l + 2), + (l + 1)
MLXLM_LANE_OP float sum_tree(F8 a) {
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
/// The same tree with max.
MLXLM_LANE_OP float max_tree(F8 a) {
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

// ---- one lane

MLXLM_LANE_OP float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MLXLM_LANE_OP float sqrt(float a) { return __builtin_sqrtf(a); }

}  // namespace
}  // namespace mlxlm
