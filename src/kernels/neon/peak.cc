#include <arm_neon.h>

#include "kernels/peak_sets.h"

namespace mlxlm::neon {
namespace {

/// Keeps the compiler from knowing a value, so that no multiply is moved out of a loop or merged with another.
inline void hide(int8x16_t& value) { asm volatile("" : "+w"(value)); }
inline void hide(int16x8_t& value) { asm volatile("" : "+w"(value)); }
inline void hide(int32x4_t& value) { asm volatile("" : "+w"(value)); }
inline void hide(float32x4_t& value) { asm volatile("" : "+w"(value)); }

uint64_t read(const std::byte* data, size_t bytes) {
  uint8x16_t sum[8] = {};
  constexpr size_t kStep = 8 * 16;
  for (size_t i = 0; i < bytes; i += kStep) {
    for (size_t j = 0; j < 8; ++j) {
      sum[j] = veorq_u8(sum[j], vld1q_u8(reinterpret_cast<const uint8_t*>(data + i + j * 16)));
    }
  }
  for (size_t j = 1; j < 8; ++j) sum[0] = veorq_u8(sum[0], sum[j]);
  const uint64x2_t halves = vreinterpretq_u64_u8(sum[0]);
  return vgetq_lane_u64(halves, 0) ^ vgetq_lane_u64(halves, 1);
}

/// One product per 16-bit lane and instruction: 16 of them reach 30,480 with 4-bit codes, then the sums are widened.
int64_t int8_macs(int64_t rounds) {
  constexpr int kChains = 4;  // two 16-bit sums each
  constexpr int kPerWiden = 16;
  int8x16_t codes = vdupq_n_s8(7), values[kChains];
  int32x4_t wide[kChains] = {};
  for (int c = 0; c < kChains; ++c) values[c] = vdupq_n_s8(static_cast<int8_t>(c - 2));
  for (int64_t round = 0; round < rounds; ++round) {
    int16x8_t low[kChains] = {}, high[kChains] = {};
    for (int step = 0; step < kPerWiden; ++step) {
      for (int c = 0; c < kChains; ++c) {
        hide(codes);
        low[c] = vmlal_s8(low[c], vget_low_s8(codes), vget_low_s8(values[c]));
        high[c] = vmlal_high_s8(high[c], codes, values[c]);
        hide(low[c]);
        hide(high[c]);
      }
    }
    for (int c = 0; c < kChains; ++c) {
      wide[c] = vpadalq_s16(vpadalq_s16(wide[c], low[c]), high[c]);
      hide(wide[c]);
    }
  }
  return rounds * kChains * kPerWiden * 16;
}

int64_t float32_macs(int64_t rounds) {
  constexpr int kChains = 20;  // latency 4 times up to 4 a cycle, and some more; 32 registers hold them
  constexpr int kSteps = 4;
  float32x4_t sum[kChains] = {};
  float32x4_t a = vdupq_n_f32(0.5f);
  const float32x4_t b = vdupq_n_f32(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int step = 0; step < kSteps; ++step) {
      for (int c = 0; c < kChains; ++c) {
        sum[c] = vfmaq_f32(sum[c], a, b);
        hide(sum[c]);
      }
      hide(a);
    }
  }
  return rounds * kChains * kSteps * 4;
}

}  // namespace

const PeakKernels kPeak = {"neon", read, int8_macs, float32_macs};

}  // namespace mlxlm::neon

const mlxlm::PeakKernels mlxlm::neon_dot::kPeak = {"neon_dot", mlxlm::neon::read, mlxlm::neon_dot::int8_macs,
                                                   mlxlm::neon::float32_macs};
