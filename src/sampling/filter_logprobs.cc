// filter_logprobs: the sampler's filters on a row of the caller's.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/float_control.h"
#include "base/philox.h"
#include "sampling/sampler.h"

namespace mlxlm {

void filter_logprobs(std::span<float> logprobs, const SamplerOptions& options,
                     const std::vector<int32_t>& xtc_special_tokens, const SamplingContext& context) {
  constexpr float kRemoved = -std::numeric_limits<float>::infinity();
  const FloatControl control;
  const auto vocab_size = static_cast<int64_t>(logprobs.size());
  sampling::check_sampler_options(options, vocab_size);
  sampling::check_token_ids(xtc_special_tokens, "xtc_special_tokens", vocab_size);
  const Kernels& kernels = select_kernels();
  const int64_t best = kernels.argmax(logprobs.data(), vocab_size);
  if (best < 0) throw_invalid("filter_logprobs: the log-probabilities hold NaN or +inf, or are all -inf");

  std::vector<float> block_max;
  for (size_t begin = 0; begin < logprobs.size(); begin += sampling::kBlock) {
    const size_t n = std::min(sampling::kBlock, logprobs.size() - begin);
    block_max.push_back(kernels.max(logprobs.data() + begin, static_cast<int64_t>(n)));
  }
  const auto chance = static_cast<double>(options.xtc_probability);
  const bool xtc = chance > 0 && uniform_draw(context.seed, context.position, DrawPurpose::xtc, 0) <= chance;
  sampling::TokenFilter filter(options, xtc_special_tokens);
  filter.apply({logprobs, 0, block_max, logprobs[static_cast<size_t>(best)]}, xtc);
  if (filter.listed()) {
    std::ranges::fill(logprobs, kRemoved);
    for (const sampling::Candidate& c : filter.candidates()) logprobs[static_cast<size_t>(c.id)] = c.logprob;
    return;
  }
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (filter.removed(logprobs[i], static_cast<int32_t>(i))) logprobs[i] = kRemoved;
  }
}

}  // namespace mlxlm
