// The float types of weights, converted as MLX converts them: to the nearest value, ties to even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace mlxlm::conversion {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // The fields moved into place mean 2^-112 of the value, for subnormal halves too; the product is exact.
  const auto scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const uint32_t bits = magnitude >= 0x7c00u ? 0x7f800000u | magnitude << 13 : scaled;
  return std::bit_cast<float>(sign | bits);
}

inline uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Adding 0.5 leaves a subnormal half's bits, rounded, at the end of the mantissa.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;  // 2^-14, the least normal half
  half = magnitude >= 0x47800000u ? 0x7c00u : half;              // 2^16
  half = magnitude > 0x7f800000u ? 0x7e00u : half;               // NaN
  return static_cast<uint16_t>(sign | half);
}

inline float bfloat16_to_float(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

inline uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/// The value rounded to a type.
inline float round_to(float value, DType dtype) {
  if (dtype == DType::f16) return half_to_float(float_to_half(value));
  return dtype == DType::bf16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

/// Reads to.size() values of type f32, f16 or bf16, at any alignment.
void load_floats(const std::byte* from, DType dtype, std::span<float> to);
/// Writes the values as f32, f16 or bf16, at any alignment.
void store_floats(std::span<const float> from, DType dtype, std::byte* to);

}  // namespace mlxlm::conversion
