// argmax of logprob / temp + Gumbel noise, drawing no more noise than needed.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace mlxlm::sampling {

/// Tokens are offered in any order; the lower id wins among equals. The outcome is that of comparing
/// logprob / temp + gumbel_noise(seed, position, id) of all, whatever is skipped.
class GumbelArgmax {
 public:
  GumbelArgmax(uint64_t seed, int64_t position, float temp)
      : seed_(seed), position_(position), inverse_temp_(1.0 / static_cast<double>(temp)) {}

  void offer(float logprob, int32_t id) {
    if (hopeless(logprob)) return;
    const auto index = static_cast<uint32_t>(id);
    offer(logprob, id, gumbel_bits(seed_, position_, index / 4)[index % 4]);
  }
  /// bits: those of the id's noise.
  void offer(float logprob, int32_t id, uint32_t bits) {
    if (bits >= least_bits(logprob)) compare(logprob, id, bits);
  }

  /// Whether no noise can make a token with this log-probability win.
  bool hopeless(float logprob) const { return scaled(logprob) + kMaxGumbel < best_score_; }
  /// Random bits below this cannot make a token with this log-probability win.
  uint32_t least_bits(float logprob) const;

  int32_t winner() const { return winner_; }  ///< −1: none was offered

 private:
  double scaled(float logprob) const { return static_cast<double>(logprob) * inverse_temp_; }
  void compare(float logprob, int32_t id, uint32_t bits);

  uint64_t seed_;
  int64_t position_;
  double inverse_temp_;
  double best_score_ = -__builtin_inf();
  int32_t winner_ = -1;
};

}  // namespace mlxlm::sampling
