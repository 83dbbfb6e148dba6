// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//
// A draw is a pure function of (seed, position, purpose, index): nothing to share between threads, nothing to roll
// back.
#pragma once

#include <array>
#include <cstdint>

namespace mlxlm {

/// What a draw is for, so that draws of one position are independent.
enum class DrawPurpose : uint32_t { gumbel = 0, xtc = 1, user = 2 };

/// The constants of Philox4x32 with 10 rounds: two multipliers, and what is added to the key after each round.
inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53, kPhiloxMul1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Standard Gumbel noise of one token at one absolute position: −log(−log(u)), u = (r + ½)/2³² with r 32 random bits.
/// Between −3.2 and 22.9.
double gumbel_noise(uint64_t seed, int64_t position, int32_t token);
/// The random bits r of tokens 4 · group … 4 · group + 3, which share one evaluation.
std::array<uint32_t, 4> gumbel_bits(uint64_t seed, int64_t position, uint32_t group);
/// gumbel_noise of a token whose random bits are these; grows with them.
double gumbel_of_bits(uint32_t bits);

/// The largest value gumbel_noise can take, rounded up.
inline constexpr double kMaxGumbel = 22.88;

/// Uniform in (0, 1), 32 bits.
double uniform_draw(uint64_t seed, int64_t position, DrawPurpose purpose, uint32_t index);

/// A seed from the operating system, for requests that give none.
uint64_t random_seed();

}  // namespace mlxlm
