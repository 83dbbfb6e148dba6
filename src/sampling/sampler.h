// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "mlxlm/sampling.h"
#include "sampling/token_filter.h"

namespace mlxlm::sampling {

struct Choice {
  int32_t token = -1;
  float logprob = 0;  ///< log-probability of the untempered, unfiltered distribution
};

/// Throws Error(invalid_value) naming the option, its range and the value got.
void check_sampler_options(const SamplerOptions& options);
/// The same, and what depends on the vocabulary.
void check_sampler_options(const SamplerOptions& options, int64_t vocab_size);

/// Throws Error(invalid_value) naming the list unless all ids are in [0, vocab_size).
void check_token_ids(std::span<const int32_t> ids, const char* name, int64_t vocab_size);

/// A sampler for one request. Its choice depends on the logits, the options, the seed and the absolute position only.
class Sampler {
 public:
  /// The options must have passed check_sampler_options.
  Sampler(const SamplerOptions& options, uint64_t seed, const Kernels& kernels,
          std::span<const int32_t> xtc_special_tokens = {});

  /// logits [vocab]; position is the absolute position the chosen token will take in its sequence. Throws Error when a
  /// logit is NaN or +inf, or all are −inf.
  Choice sample(std::span<const float> logits, int64_t position);
  /// The same choice from log-probabilities [vocab], rounded to float, for any seed. temp 0: the largest.
  int32_t sample_logprobs(std::span<const float> logprobs, const SamplingContext& context);

  /// The log-probabilities [vocab] of the tokens that the filters drop become −inf. best: index of the largest.
  void remove_dropped(std::span<float> logprobs, int32_t best, const SamplingContext& context);

  /// log Σ exp of the logits of the last sample(): logprob[i] = logits[i] − this.
  float log_normalizer() const { return log_normalizer_; }

 private:
  int32_t best_of(std::span<const float> row, int64_t position) const;
  LogprobRow filter(std::span<const float> values, float shift, int32_t best, const SamplingContext& context);
  int32_t draw(std::span<const float> values, float shift, int32_t best, const SamplingContext& context);
  int32_t draw_from_row(const LogprobRow& row, int32_t best, const SamplingContext& context) const;

  SamplerOptions options_;
  uint64_t seed_;
  const Kernels* kernels_;
  float log_normalizer_ = 0;
  TokenFilter filter_;
  std::vector<float> block_max_;
};

/// The n most likely ids with their log-probabilities, most likely first, lower id first among equals.
std::vector<std::pair<int32_t, float>> top_logprobs(std::span<const float> logits, float log_normalizer, int n);

}  // namespace mlxlm::sampling
