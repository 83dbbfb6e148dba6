// filter_logprobs: the sampler's filters on a row of the caller's.
#include "base/error.h"
#include "base/float_control.h"
#include "sampling/sampler.h"

namespace mlxlm {

void filter_logprobs(std::span<float> logprobs, const SamplerOptions& options,
                     const std::vector<int32_t>& xtc_special_tokens, const SamplingContext& context) {
  const FloatControl control;
  const auto vocab_size = static_cast<int64_t>(logprobs.size());
  sampling::check_sampler_options(options, vocab_size);
  sampling::check_token_ids(xtc_special_tokens, "xtc_special_tokens", vocab_size);
  const Kernels& kernels = select_kernels();
  const int64_t best = kernels.argmax(logprobs.data(), vocab_size);
  if (best < 0) throw_invalid("filter_logprobs: the log-probabilities hold NaN or +inf, or are all -inf");
  sampling::Sampler(options, context.seed, kernels, xtc_special_tokens)
      .remove_dropped(logprobs, static_cast<int32_t>(best), context);
}

}  // namespace mlxlm
