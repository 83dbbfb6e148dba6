#include "sampling/gumbel_argmax.h"

#include <array>
#include <cstddef>

#include "base/scalar_math.h"

namespace mlxlm::sampling {
namespace {

// The logarithms of the noise are what costs. A table of the bits needed for some noise, in steps of a quarter, rules
// most tokens out without them: a step that is off by a quarter lets a quarter more tokens through.
constexpr double kTableStart = -4, kStepsPerUnit = 4;
constexpr size_t kSteps = 108;  // up to 23, more than kMaxGumbel

/// For each step the least bits whose noise may reach it: u = e^(−e^−noise). Two units less than computed: noise
/// changes by at least e/2^32 from one to the next, far more than the functions' errors.
std::array<uint32_t, kSteps> make_table() {
  std::array<uint32_t, kSteps> table{};
  for (size_t i = 0; i < kSteps; ++i) {
    const double noise = kTableStart + static_cast<double>(i) / kStepsPerUnit;
    const double bits = fixed_exp(-fixed_exp(-noise)) * 0x1p32 - 2;
    table[i] = bits > 0 ? static_cast<uint32_t>(bits) : 0;
  }
  return table;
}

}  // namespace

uint32_t GumbelArgmax::least_bits(float logprob) const {
  static const std::array<uint32_t, kSteps> kTable = make_table();
  const double needed = best_score_ - scaled(logprob);
  if (!(needed > kTableStart)) return 0;
  if (needed > kMaxGumbel) return ~uint32_t{0};  // kMaxGumbel is rounded up: the largest bits are compared in full
  return kTable[static_cast<size_t>((needed - kTableStart) * kStepsPerUnit)];
}

void GumbelArgmax::compare(float logprob, int32_t id, uint32_t bits) {
  const double score = scaled(logprob) + gumbel_of_bits(bits);
  if (score > best_score_ || (score == best_score_ && id < winner_)) {
    best_score_ = score;
    winner_ = id;
  }
}

}  // namespace mlxlm::sampling
