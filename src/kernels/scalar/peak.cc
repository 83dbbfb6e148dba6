#include <cmath>
#include <cstring>

#include "kernels/peak_sets.h"

namespace mlxlm::scalar {
namespace {

/// Keeps the compiler from knowing a value, so that no multiply is moved out of a loop or merged with another.
template <typename T>
inline void hide(T& value) {
  asm volatile("" : "+m"(value));
}

uint64_t read(const std::byte* data, size_t bytes) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i < bytes; i += sizeof(sum)) {
    for (size_t j = 0; j < 8; ++j) {
      uint64_t word;
      std::memcpy(&word, data + i + j * sizeof(word), sizeof(word));
      sum[j] ^= word;
    }
  }
  for (size_t j = 1; j < 8; ++j) sum[0] ^= sum[j];
  return sum[0];
}

int64_t int8_macs(int64_t rounds) {
  constexpr int kCount = 64;
  int8_t codes[kCount], values[kCount];
  for (int i = 0; i < kCount; ++i) {
    codes[i] = static_cast<int8_t>(i % 16);
    values[i] = static_cast<int8_t>(i - 32);
  }
  int32_t sum = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    hide(codes);
    for (int i = 0; i < kCount; ++i) sum += codes[i] * values[i];
    hide(sum);
    sum &= 0xFFFF;  // far from overflow
  }
  return rounds * kCount;
}

int64_t float32_macs(int64_t rounds) {
  constexpr int kChains = 8;
  float sum[kChains] = {};
  float a = 0.5f;
  for (int64_t round = 0; round < rounds; ++round) {
    hide(a);
    for (float& s : sum) s = std::fma(a, 0.25f, s);
  }
  for (float& s : sum) hide(s);
  return rounds * kChains;
}

}  // namespace

const PeakKernels kPeak = {"scalar", read, int8_macs, float32_macs};

}  // namespace mlxlm::scalar
