// What the kernels' tests share: reproducible inputs, plain references of the number formats, comparison of bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/kernels.h"

namespace mlxlm {

class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  /// In [lo, hi].
  int64_t integer(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>((bits() >> 16) % static_cast<uint64_t>(hi - lo + 1));
  }
  /// In [-1, 1).
  float uniform() { return static_cast<float>(static_cast<int64_t>(bits() >> 40)) / 8388608.0f - 1.0f; }
  std::vector<float> vector(int64_t n, float scale = 1) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = uniform() * scale;
    return values;
  }

 private:
  uint64_t state_;
};

/// The value of a binary16 pattern, from the definition.
inline double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return (half & 0x8000) != 0 ? -value : value;
}

/// The value of a pattern of a 16-bit type.
inline double word_value(DType dtype, uint16_t word) {
  return dtype == DType::f16 ? half_value(word) : std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
}

/// The value of one stored element.
inline double element_value(DType dtype, const std::byte* p) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t word;
  std::memcpy(&word, p, sizeof word);
  return word_value(dtype, word);
}

/// The pattern of a 16-bit type nearest to x, ties to the even one: by search, not by rounding tricks. x must be
/// finite.
inline uint16_t nearest_element(DType dtype, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  const auto value = [&](uint32_t pattern) {
    const uint16_t word = static_cast<uint16_t>(pattern);
    // Where infinity stands, rounding sees the next power of two.
    if (dtype == DType::f16 && word == 0x7c00) return 65536.0;
    if (dtype == DType::bf16 && word == 0x7f80) return std::ldexp(1.0, 128);
    return std::fabs(word_value(dtype, word));
  };
  uint32_t low = 0, high = dtype == DType::f16 ? 0x7c00 : 0x7f80;  // patterns of magnitudes are in order
  if (magnitude >= value(high)) return static_cast<uint16_t>(sign | high);
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value(low), above = value(high) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

/// Equal bits, or both NaN.
inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Empty where all elements have the same bits, else the first difference.
inline std::string difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      return "element " + std::to_string(i) + " of " + std::to_string(a.size()) + ": " + std::to_string(a[i]) +
             " and " + std::to_string(b[i]);
    }
  }
  return {};
}

/// Distance in units of the last place of a float of the size of `expected`.
inline double ulps(float got, double expected) {
  if (std::isnan(expected)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(static_cast<float>(expected))) return got == static_cast<float>(expected) ? 0 : INFINITY;
  const int exponent = expected == 0 ? -126 : std::max(-126, std::ilogb(expected));
  return std::fabs(got - expected) / std::ldexp(1.0, exponent - 23);
}

/// Floats over the whole range, NaN, infinities and subnormals among them, about `count` of them.
inline std::vector<float> all_kinds_of_floats(uint32_t count) {
  const uint64_t step = (uint64_t{1} << 32) / count;
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += step) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float special : {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 88.72283f, 88.72284f, -87.33654f, -87.33655f}) {
    values.push_back(special);
  }
  return values;
}

}  // namespace mlxlm
