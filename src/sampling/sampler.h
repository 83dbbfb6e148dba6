// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "mlxlm/generate.h"

namespace mlxlm::sampling {

struct Choice {
  int32_t token = -1;
  float logprob = 0;  ///< log-probability of the untempered, unfiltered distribution
};

/// Throws Error(invalid_value) naming the option, its range and the value got.
void check_sampler_options(const SamplerOptions& options, int64_t vocab_size);

/// A sampler for one request. Its choice depends on the logits, the options, the seed and the absolute position only.
class Sampler {
 public:
  /// The options must have passed check_sampler_options.
  Sampler(const SamplerOptions& options, uint64_t seed, const Kernels& kernels);

  /// logits [vocab]; position is the absolute position the chosen token will take in its sequence. Throws Error when a
  /// logit is NaN or +inf, or all are −inf.
  Choice sample(std::span<const float> logits, int64_t position);

  /// log Σ exp of the logits of the last call: logprob[i] = logits[i] − this.
  float log_normalizer() const { return log_normalizer_; }

 private:
  using Candidate = std::pair<float, int32_t>;  // logit, id

  void collect(std::span<const float> logits, float max);
  void keep_top_p(std::span<const float> logits, float max);
  void keep_min_p(float max);
  int32_t draw_all(std::span<const float> logits, int32_t best, int64_t position) const;
  int32_t draw_candidates(int64_t position) const;

  SamplerOptions options_;
  uint64_t seed_;
  const Kernels* kernels_;
  float log_normalizer_ = 0;
  std::vector<Candidate> candidates_;  // most likely first, lower id first among equals
};

/// The n most likely ids with their log-probabilities, most likely first, lower id first among equals.
std::vector<std::pair<int32_t, float>> top_logprobs(std::span<const float> logits, float log_normalizer, int n);

}  // namespace mlxlm::sampling
