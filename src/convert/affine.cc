#include "convert/affine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "convert/floats.h"

namespace mlxlm::conversion {
namespace {

constexpr int kMaxGroup = 128;
constexpr float kMinScale = 1e-7f;
// Adding 1.5 · 2^23 rounds to an integer, ties to even, and leaves it in the low bits of the sum.
constexpr float kRounder = 0x1.8p23f;

static_assert(std::endian::native == std::endian::little, "codes are packed through 64-bit words");

/// Eight codes of `bits` bits take `bits` bytes.
void pack(const uint8_t* codes, int n, int bits, std::byte* out) {
  for (int i = 0; i < n; i += 8, out += bits) {
    uint64_t word = 0;
    for (int k = 0; k < 8; ++k) word |= uint64_t{codes[i + k]} << (k * bits);
    std::memcpy(out, &word, static_cast<size_t>(bits));
  }
}

void unpack(const std::byte* packed, int n, int bits, uint8_t* codes) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int i = 0; i < n; i += 8, packed += bits) {
    uint64_t word = 0;
    std::memcpy(&word, packed, static_cast<size_t>(bits));
    for (int k = 0; k < 8; ++k) codes[i + k] = static_cast<uint8_t>(word >> (k * bits) & mask);
  }
}

void group_codes(std::span<const float> group, GroupAffine affine, float highest, uint8_t* codes) {
  for (size_t i = 0; i < group.size(); ++i) {
    // Clipped before rounding, which gives the same code as after.
    const float exact = std::min(std::max((group[i] - affine.bias) / affine.scale, 0.0f), highest);
    codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(exact + kRounder));
  }
}

}  // namespace

GroupAffine group_affine(std::span<const float> group, int bits) {
  float lowest = std::numeric_limits<float>::infinity();
  float highest = -lowest;
  for (const float value : group) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  const auto steps = static_cast<float>((1 << bits) - 1);
  const float size = std::max((highest - lowest) / steps, kMinScale);
  const bool from_below = std::abs(lowest) > std::abs(highest);
  const float scale = from_below ? size : -size;
  // The extreme of larger magnitude is met exactly: it becomes the bias, and zero a whole number of steps from it.
  const float edge = from_below ? lowest : highest;
  const float edge_steps = std::rint(edge / scale);
  if (edge_steps == 0) return {scale, 0};
  return {edge / edge_steps, edge};
}

void quantize_row(std::span<const float> row, QuantFormat format, std::byte* codes, float* scales, float* biases) {
  const auto group_size = static_cast<size_t>(format.group_size);
  const auto highest = static_cast<float>((1 << format.bits) - 1);
  std::array<uint8_t, kMaxGroup> group_of_codes;
  for (size_t at = 0; at < row.size(); at += group_size) {
    const auto group = row.subspan(at, group_size);
    const GroupAffine affine = group_affine(group, format.bits);
    *scales++ = affine.scale;
    *biases++ = affine.bias;
    group_codes(group, affine, highest, group_of_codes.data());
    pack(group_of_codes.data(), format.group_size, format.bits, codes);
    codes += format.group_size * format.bits / 8;
  }
}

void dequantize_row(const std::byte* codes, const float* scales, const float* biases, QuantFormat format, DType dtype,
                    std::span<float> row) {
  const auto group_size = static_cast<size_t>(format.group_size);
  std::array<uint8_t, kMaxGroup> group;
  for (size_t at = 0; at < row.size(); at += group_size, ++scales, ++biases) {
    unpack(codes, format.group_size, format.bits, group.data());
    codes += format.group_size * format.bits / 8;
    for (size_t i = 0; i < group_size; ++i) {
      const float product = round_to(static_cast<float>(group[i]) * *scales, dtype);
      row[at + i] = round_to(product + *biases, dtype);
    }
  }
}

}  // namespace mlxlm::conversion
