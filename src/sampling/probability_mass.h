// Probabilities as integers: sums of them are exact, so no order of summation can change which tokens a filter keeps.
#pragma once

#include <bit>
#include <cstdint>

namespace mlxlm::sampling {

/// The mass of probability 1.
inline constexpr uint64_t kWholeMass = uint64_t{1} << 52;

/// e^logprob · 2^52, rounded down; within 1e−11 of the probability. Log-probabilities above 0 (rounding of the
/// normalizer) count as 0; a sum over 2^11 whole distributions cannot overflow.
inline uint64_t mass_of(float logprob) {
  if (!(logprob > -36.5f)) return 0;  // below 2^-52
  const double x = logprob < 0 ? static_cast<double>(logprob) : 0.0;
  // x = n·ln 2 + r. Adding 1.5 · 2^52 leaves the integer n in the low bits.
  constexpr double kMagic = 0x1.8p52;
  const double shifted = x * 1.44269504088896340736 + kMagic;
  const double n = shifted - kMagic;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 362880.0;  // Taylor to r^9; |r| ≤ 0.347
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // p · 2^n · 2^52: both powers go into the exponent.
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 52) << 52;
  return static_cast<uint64_t>(static_cast<int64_t>(std::bit_cast<double>(std::bit_cast<uint64_t>(p) + exponent)));
}

}  // namespace mlxlm::sampling
