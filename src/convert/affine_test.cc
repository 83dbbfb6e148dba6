// Float types and affine quantisation on values worked out by hand; against the real MLX they are compared in
// tests/convert.
#include "convert/affine.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "convert/floats.h"

namespace mlxlm::conversion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Floats, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto word = static_cast<uint16_t>(half);
    const float value = half_to_float(word);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0) << half;
      if (fraction != 0) continue;
      EXPECT_EQ(value, half < 0x8000 ? kInfinity : -kInfinity);
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(value, half < 0x8000 ? magnitude : -magnitude) << half;
    }
    ASSERT_EQ(float_to_half(value), word);
  }
}

TEST(Floats, HalvesAreTheNearestAndTiesAreEven) {
  // Between each finite half and the next: a bit below, on and above the middle.
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = half_to_float(half), high = half_to_float(static_cast<uint16_t>(half + 1));
    const float middle = (low + high) / 2;  // exact
    const uint16_t even = half % 2 == 0 ? half : static_cast<uint16_t>(half + 1);
    ASSERT_EQ(float_to_half(middle), even) << half;
    ASSERT_EQ(float_to_half(-middle), even | 0x8000);
    ASSERT_EQ(float_to_half(std::nextafter(middle, -kInfinity)), half);
    ASSERT_EQ(float_to_half(std::nextafter(middle, kInfinity)), half + 1);
  }
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);  // rounds to 2^16, which is infinity
  EXPECT_EQ(float_to_half(3e38f), 0x7c00);
  EXPECT_EQ(float_to_half(-kInfinity), 0xfc00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

TEST(Floats, Bfloat16sAreTheNearestAndTiesAreEven) {
  for (uint32_t word = 0; word < 0x7f7f; ++word) {
    const auto low = std::bit_cast<float>(word << 16), middle = std::bit_cast<float>(word << 16 | 0x8000u);
    ASSERT_EQ(float_to_bfloat16(low), word);
    ASSERT_EQ(float_to_bfloat16(middle), word + word % 2) << word;
    ASSERT_EQ(float_to_bfloat16(-middle), (word + word % 2) | 0x8000u);
    ASSERT_EQ(float_to_bfloat16(std::nextafter(middle, 0.0f)), word);
    ASSERT_EQ(float_to_bfloat16(std::nextafter(middle, kInfinity)), word + 1);
    ASSERT_EQ(bfloat16_to_float(static_cast<uint16_t>(word)), low);
  }
  EXPECT_EQ(float_to_bfloat16(kInfinity), 0x7f80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
}

TEST(Floats, AnyAlignment) {
  const std::array<float, 3> values = {0.5f, -3.0f, 1e-7f};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(1 + 3 * dtype_size(dtype));
    store_floats(values, dtype, bytes.data() + 1);
    std::array<float, 3> back{};
    load_floats(bytes.data() + 1, dtype, back);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(back[i], round_to(values[i], dtype));
  }
}

std::vector<float> ramp(float first, float step, size_t n = 32) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + step * static_cast<float>(i % 16);
  return values;
}

TEST(GroupAffine, TheLargerExtremeBecomesTheBias) {
  // −8 … 7: fifteen steps of 1 from below.
  const GroupAffine below = group_affine(ramp(-8, 1), 4);
  EXPECT_EQ(below.scale, 1);
  EXPECT_EQ(below.bias, -8);
  // −7 … 8: fifteen steps of −1 from above.
  const GroupAffine above = group_affine(ramp(-7, 1), 4);
  EXPECT_EQ(above.scale, -1);
  EXPECT_EQ(above.bias, 8);
}

TEST(GroupAffine, ZeroIsAWholeNumberOfStepsFromTheBias) {
  // Range 0.1 … 1 with 3 steps of −0.3: rint(1 / −0.3) = −3, so the scale becomes −1/3.
  std::vector<float> group(32, 0.1f);
  group[7] = 1;
  const auto [scale, bias] = group_affine(group, 2);
  EXPECT_EQ(scale, -1.0f / 3);
  EXPECT_EQ(bias, 1);
}

TEST(GroupAffine, ConstantZeroAndTinyGroupsTakeTheLeastScale) {
  const auto zero = group_affine(std::vector<float>(32, 0.0f), 4);
  EXPECT_EQ(zero.scale, -1e-7f);
  EXPECT_EQ(zero.bias, 0);
  const auto tiny = group_affine(std::vector<float>(32, 1e-40f), 8);
  EXPECT_EQ(tiny.scale, -1e-7f);
  EXPECT_EQ(tiny.bias, 0);
  const auto constant = group_affine(std::vector<float>(32, -0.5f), 4);
  EXPECT_EQ(constant.bias, -0.5f);
  EXPECT_FLOAT_EQ(constant.scale, -1e-7f);  // −0.5 divided by its number of steps, a whole one
}

TEST(GroupAffine, ARangeThatOverflowsShowsInTheScale) {
  std::vector<float> group(32, 3e38f);
  group[3] = -3e38f;
  EXPECT_TRUE(std::isinf(group_affine(group, 4).scale));
}

// Code i of a row stands in bits [i·bits, (i+1)·bits) of the row's little-endian bit stream.
TEST(QuantizeRow, CodesAreOneBitStream) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const int highest = (1 << bits) - 1;
    std::vector<float> row(128);
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = static_cast<float>(static_cast<int>(i * 7) % (highest + 1) - highest);
    row[0] = row[64] =
        static_cast<float>(-highest);  // each group spans −highest … 0, so that its codes are w + highest
    row[1] = row[65] = 0;
    std::vector<std::byte> codes(static_cast<size_t>(128 * bits / 8));
    std::array<float, 2> scales{}, biases{};
    quantize_row(row, {bits, 64}, codes.data(), scales.data(), biases.data());
    EXPECT_EQ(scales[1], 1) << bits;
    EXPECT_EQ(biases[1], -highest);
    for (size_t i = 0; i < row.size(); ++i) {
      int code = 0;
      for (size_t k = 0; k < static_cast<size_t>(bits); ++k) {
        const size_t at = i * static_cast<size_t>(bits) + k;
        code |= (std::to_integer<int>(codes[at / 8]) >> (at % 8) & 1) << k;
      }
      ASSERT_EQ(code, static_cast<int>(row[i]) + highest) << bits << " bits, weight " << i;
    }
    std::vector<float> back(row.size());
    dequantize_row(codes.data(), scales.data(), biases.data(), {bits, 64}, DType::f32, back);
    EXPECT_EQ(back, row) << bits;
  }
}

TEST(QuantizeRow, CodesAreTheNearestWithTiesToEven) {
  // Scale −1 and bias 15: w = 12.5 is 2.5 steps away, w = 11.5 is 3.5.
  std::vector<float> row = ramp(0, 1);
  row[20] = 12.5f;
  row[21] = 11.5f;
  std::array<std::byte, 16> codes{};
  float scale = 0, bias = 0;
  quantize_row(row, {4, 32}, codes.data(), &scale, &bias);
  EXPECT_EQ(scale, -1);
  EXPECT_EQ(bias, 15);
  EXPECT_EQ(std::to_integer<int>(codes[10]), 2 | 4 << 4);
}

TEST(DequantizeRow, ProductAndSumAreEachRounded) {
  std::vector<std::byte> codes(16, std::byte{0x77});
  std::vector<float> row(32);
  const float scale = half_to_float(0x2e66), bias = half_to_float(0xb801);  // 0.09998, −0.50049
  dequantize_row(codes.data(), &scale, &bias, {4, 32}, DType::f16, row);
  const float product = half_to_float(float_to_half(7 * scale));
  EXPECT_NE(product, 7 * scale) << "the example must be one in which the product is rounded";
  EXPECT_EQ(row[5], half_to_float(float_to_half(product + bias)));
}

TEST(QuantizeRow, ErrorIsAtMostHalfAStep) {
  std::vector<float> row(256);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(gumbel_noise(5, static_cast<int64_t>(i), 1));
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<std::byte> codes(static_cast<size_t>(256 * bits / 8));
    std::array<float, 2> scales{}, biases{};
    quantize_row(row, {bits, 128}, codes.data(), scales.data(), biases.data());
    std::vector<float> back(row.size());
    dequantize_row(codes.data(), scales.data(), biases.data(), {bits, 128}, DType::f32, back);
    for (size_t i = 0; i < row.size(); ++i) {
      // Moving zero onto the grid stretches the scale, so the far extreme may lie up to one step beyond the last code.
      ASSERT_LE(std::abs(back[i] - row[i]), 1.01f * std::abs(scales[i / 128])) << bits;
    }
  }
}

}  // namespace
}  // namespace mlxlm::conversion
