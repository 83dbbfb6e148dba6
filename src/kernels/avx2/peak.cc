#include <immintrin.h>

#include "kernels/peak_sets.h"

namespace mlxlm::avx2 {
namespace {

/// Keeps the compiler from knowing a value, so that no multiply is moved out of a loop or merged with another.
inline void hide(__m256i& value) { asm volatile("" : "+x"(value)); }
inline void hide(__m256& value) { asm volatile("" : "+x"(value)); }

uint64_t read(const std::byte* data, size_t bytes) {
  __m256i sum[8] = {};
  constexpr size_t kStep = 8 * 32;
  for (size_t i = 0; i < bytes; i += kStep) {
    for (size_t j = 0; j < 8; ++j) {
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + j * 32)));
    }
  }
  for (size_t j = 1; j < 8; ++j) sum[0] = _mm256_xor_si256(sum[0], sum[j]);
  const __m128i half = _mm_xor_si128(_mm256_castsi256_si128(sum[0]), _mm256_extracti128_si256(sum[0], 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(half)) ^ static_cast<uint64_t>(_mm_extract_epi64(half, 1));
}

/// A pair of products per 16-bit lane and instruction: 8 of them reach 30,480 with 4-bit codes, then the sums are
/// widened.
int64_t int8_macs(int64_t rounds) {
  constexpr int kChains = 4;  // 2 independent sums would already hide the adds; 4 leave room for the multiplies
  constexpr int kPerWiden = 8;
  __m256i codes = _mm256_set1_epi8(7), wide[kChains] = {};
  __m256i values[kChains];
  for (int c = 0; c < kChains; ++c) values[c] = _mm256_set1_epi8(static_cast<char>(c - 2));
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t round = 0; round < rounds; ++round) {
    __m256i sum[kChains];
    for (int c = 0; c < kChains; ++c) {
      hide(codes);
      sum[c] = _mm256_maddubs_epi16(codes, values[c]);
    }
    for (int step = 1; step < kPerWiden; ++step) {
      for (int c = 0; c < kChains; ++c) {
        hide(codes);
        sum[c] = _mm256_add_epi16(sum[c], _mm256_maddubs_epi16(codes, values[c]));
        hide(sum[c]);
      }
    }
    for (int c = 0; c < kChains; ++c) {
      wide[c] = _mm256_add_epi32(wide[c], _mm256_madd_epi16(sum[c], ones));
      hide(wide[c]);
    }
  }
  return rounds * kChains * kPerWiden * 32;
}

int64_t float32_macs(int64_t rounds) {
  constexpr int kChains = 12;  // latency 4 or 5 times 2 a cycle needs 10
  constexpr int kSteps = 4;
  __m256 sum[kChains] = {};
  __m256 a = _mm256_set1_ps(0.5f);
  const __m256 b = _mm256_set1_ps(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int step = 0; step < kSteps; ++step) {
      for (__m256& chain : sum) {
        chain = _mm256_fmadd_ps(a, b, chain);
        hide(chain);
      }
      hide(a);
    }
  }
  return rounds * kChains * kSteps * 8;
}

}  // namespace

const PeakKernels kPeak = {"avx2", read, int8_macs, float32_macs};

}  // namespace mlxlm::avx2
