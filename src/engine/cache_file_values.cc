#include "engine/cache_file_values.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace mlxlm::engine {
namespace {

float half_to_float(uint16_t half) {
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  if (exponent == 0) {  // zero or subnormal: fraction · 2⁻²⁴
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  }
  const uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                       // below 2⁻¹⁴: the unit in the last place of 0.5 is 2⁻²⁴
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (magnitude - (112u << 23)) >> 13);
}

float bfloat_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

uint16_t float_to_bfloat(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void widen(DType dtype, const std::byte* in, int64_t n, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = dtype == DType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
  }
}

int64_t narrow(DType dtype, const float* in, int64_t n, std::byte* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
    return n;
  }
  int64_t changed = n;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = dtype == DType::f16 ? float_to_half(in[i]) : float_to_bfloat(in[i]);
    const float back = dtype == DType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
    const bool same = back == in[i] || (std::isnan(back) && std::isnan(in[i]));
    if (!same && changed == n) changed = i;
    std::memcpy(out + 2 * i, &bits, 2);
  }
  return changed;
}

}  // namespace mlxlm::engine
