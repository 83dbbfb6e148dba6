// What the affine products of every instruction set share: reading scales and codes, and the quantisation of 32
// activations.
//
// Everything has internal linkage: a file compiled with one set's flags must not lend its code to another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernels.h"

namespace mlxlm {
namespace {

/// kActivationGroup as an int, for loops over one group.
constexpr int kGroup = 32;
static_assert(kGroup == kActivationGroup);

inline uint32_t float_bits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

inline float bits_float(uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 0) return bits_float(sign | float_bits(static_cast<float>(fraction) * 0x1p-24f));
  if (exponent == 31) return bits_float(sign | 0x7f800000u | fraction << 13);
  return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/// Element `index` of scales or biases at any byte alignment.
inline float load_scale(DType dtype, const std::byte* base, int64_t index) {
  if (dtype == DType::f32) {
    float x;
    std::memcpy(&x, base + index * 4, sizeof x);
    return x;
  }
  uint16_t h;
  std::memcpy(&h, base + index * 2, sizeof h);
  return dtype == DType::bf16 ? bits_float(uint32_t{h} << 16) : half_to_float(h);
}

/// 32 codes of 2 to 8 bits, from exactly 4·bits bytes.
inline void unpack_group_plain(int bits, const uint8_t* src, uint8_t* codes) {
  const auto mask = static_cast<uint32_t>((1 << bits) - 1);
  for (int eight = 0; eight < 4; ++eight, src += bits, codes += 8) {
    uint64_t word = 0;  // 8 codes fill whole bytes
    for (int i = 0; i < bits; ++i) word |= uint64_t{src[i]} << 8 * i;
    for (int i = 0; i < 8; ++i) codes[i] = static_cast<uint8_t>(word >> i * bits & mask);
  }
}

/// How 32 activations are quantised: code = rint(x · inverse), x ≈ code · scale. inverse is 0 where all codes are 0.
struct Quantizer {
  float scale;
  float inverse;
};

/// `amax_bits` is the largest |x| by bit pattern, so any NaN wins. Then scale carries NaN or infinity into the outputs
/// and the codes are 0; they are 0 too where 127 / amax overflows (amax below 3.8e-37).
inline Quantizer make_quantizer(uint32_t amax_bits) {
  const float amax = bits_float(amax_bits), inverse = 127.0f / amax;
  const bool usable = inverse > 0 && float_bits(inverse) < 0x7f800000u;
  return {amax / 127.0f, usable ? inverse : 0.0f};
}

}  // namespace
}  // namespace mlxlm
