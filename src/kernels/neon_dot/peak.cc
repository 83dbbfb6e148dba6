#include <arm_neon.h>

#include "kernels/peak_sets.h"

namespace mlxlm::neon_dot {

/// Sixteen products an instruction.
int64_t int8_macs(int64_t rounds) {
  constexpr int kChains = 16;  // latency 3 times up to 4 a cycle, and some more; 32 registers hold them
  constexpr int kSteps = 4;
  const int8x16_t values = vdupq_n_s8(3);
  int8x16_t codes = vdupq_n_s8(7);
  int32x4_t sum[kChains] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (int step = 0; step < kSteps; ++step) {
      for (int c = 0; c < kChains; ++c) {
        sum[c] = vdotq_s32(sum[c], codes, values);
        asm volatile("" : "+w"(sum[c]));  // no product is moved out of the loop or merged with another
      }
      asm volatile("" : "+w"(codes));
    }
  }
  return rounds * kChains * kSteps * 16;
}

}  // namespace mlxlm::neon_dot
