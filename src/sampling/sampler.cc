#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float_control.h"
#include "base/philox.h"
#include "sampling/gumbel_argmax.h"

namespace mlxlm {

double SamplingContext::gumbel(int32_t id) const { return gumbel_noise(seed, position, id); }

double SamplingContext::uniform(uint32_t index) const { return uniform_draw(seed, position, DrawPurpose::user, index); }

SamplerFunction make_sampler(const SamplerOptions& options, const std::vector<int32_t>& xtc_special_tokens) {
  sampling::check_sampler_options(options);
  return [options, xtc_special_tokens, sampler = sampling::Sampler(options, 0, select_kernels(), xtc_special_tokens)](
             std::span<const float> logprobs, const SamplingContext& context) mutable {
    const FloatControl control;
    const auto vocab_size = static_cast<int64_t>(logprobs.size());
    sampling::check_sampler_options(options, vocab_size);
    sampling::check_token_ids(xtc_special_tokens, "xtc_special_tokens", vocab_size);
    return sampler.sample_logprobs(logprobs, context);
  };
}

namespace sampling {
namespace {

bool more_likely_pair(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

void require(bool good, const char* name, const char* expected, double got) {
  if (!good) throw_invalid("{}: expected {}, got {}", name, expected, got);
}

}  // namespace

void check_sampler_options(const SamplerOptions& o) {
  require(o.temp >= 0 && std::isfinite(o.temp), "temp", "a number of at least 0", o.temp);
  require(o.top_p >= 0 && o.top_p <= 1, "top_p", "a number in [0, 1]", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", "a number in [0, 1]", o.min_p);
  require(o.min_tokens_to_keep >= 1, "min_tokens_to_keep", "an integer of at least 1", o.min_tokens_to_keep);
  require(o.top_k >= 0, "top_k", "an integer of at least 0", o.top_k);
  require(o.xtc_probability >= 0 && o.xtc_probability <= 1, "xtc_probability", "a number in [0, 1]", o.xtc_probability);
  require(o.xtc_threshold >= 0 && o.xtc_threshold <= 0.5f, "xtc_threshold", "a number in [0, 0.5]", o.xtc_threshold);
  require(o.xtc_threshold > 0 || o.xtc_probability == 0, "xtc_threshold",
          "more than 0 where xtc_probability is (0 would leave only the least likely token)", o.xtc_threshold);
}

void check_sampler_options(const SamplerOptions& o, int64_t vocab_size) {
  check_sampler_options(o);
  if (o.top_k >= vocab_size) {
    throw_invalid("top_k: expected less than the vocabulary size {}, got {}", vocab_size, o.top_k);
  }
}

void check_token_ids(std::span<const int32_t> ids, const char* name, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) throw_invalid("{}: expected ids in [0, {}), got {}", name, vocab_size, id);
  }
}

Sampler::Sampler(const SamplerOptions& options, uint64_t seed, const Kernels& kernels,
                 std::span<const int32_t> xtc_special_tokens)
    : options_(options), seed_(seed), kernels_(&kernels), filter_(options, xtc_special_tokens) {}

int32_t Sampler::best_of(std::span<const float> row, int64_t position) const {
  const auto best = static_cast<int32_t>(kernels_->argmax(row.data(), static_cast<int64_t>(row.size())));
  if (best < 0) {
    throw_invalid(
        "the logits for position {} hold NaN or +inf, or are all -inf: nothing can be sampled from them. The "
        "weights may be damaged, or a value overflowed",
        position);
  }
  return best;
}

Choice Sampler::sample(std::span<const float> logits, int64_t position) {
  int32_t token = best_of(logits, position);
  log_normalizer_ = kernels_->log_sum_exp(logits.data(), static_cast<int64_t>(logits.size()));
  if (options_.temp > 0) token = draw(logits, log_normalizer_, token, {seed_, position});
  return {token, logits[static_cast<size_t>(token)] - log_normalizer_};
}

int32_t Sampler::sample_logprobs(std::span<const float> logprobs, const SamplingContext& context) {
  const int32_t best = best_of(logprobs, context.position);
  return options_.temp > 0 ? draw(logprobs, 0, best, context) : best;
}

/// Finds the survivors in filter_; the row lasts until the next call.
LogprobRow Sampler::filter(std::span<const float> values, float shift, int32_t best, const SamplingContext& context) {
  block_max_.resize((values.size() + kBlock - 1) / kBlock);
  for (size_t i = 0; i < block_max_.size(); ++i) {
    const size_t begin = i * kBlock;
    block_max_[i] = kernels_->max(values.data() + begin, static_cast<int64_t>(std::min(kBlock, values.size() - begin)));
  }
  const LogprobRow row{values, shift, block_max_, values[static_cast<size_t>(best)] - shift};
  const auto chance = static_cast<double>(options_.xtc_probability);
  const bool xtc = chance > 0 && uniform_draw(context.seed, context.position, DrawPurpose::xtc, 0) <= chance;
  filter_.apply(row, xtc);
  return row;
}

void Sampler::remove_dropped(std::span<float> logprobs, int32_t best, const SamplingContext& context) {
  constexpr float kDropped = -std::numeric_limits<float>::infinity();
  filter(logprobs, 0, best, context);
  if (filter_.listed()) {
    std::ranges::fill(logprobs, kDropped);
    for (const Candidate& c : filter_.candidates()) logprobs[static_cast<size_t>(c.id)] = c.logprob;
    return;
  }
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (filter_.removed(logprobs[i], static_cast<int32_t>(i))) logprobs[i] = kDropped;
  }
}

int32_t Sampler::draw(std::span<const float> values, float shift, int32_t best, const SamplingContext& context) {
  const LogprobRow row = filter(values, shift, best, context);
  if (!filter_.listed()) return draw_from_row(row, best, context);
  GumbelArgmax argmax(context.seed, context.position, options_.temp);
  for (const Candidate& c : filter_.candidates()) argmax.offer(c.logprob, c.id);
  return argmax.winner();
}

int32_t Sampler::draw_from_row(const LogprobRow& row, int32_t best, const SamplingContext& context) const {
  GumbelArgmax argmax(context.seed, context.position, options_.temp);
  // First the one that is hard to beat, so that most others need no noise.
  if (!filter_.removed(row.max, best)) argmax.offer(row.max, best);
  std::array<int32_t, kBlock> indices;
  std::array<uint32_t, kBlock> bits;
  for (size_t block = 0; block < row.block_max.size(); ++block) {
    const float highest = row.block_max[block] - row.shift;
    if (argmax.hopeless(highest)) continue;
    const size_t begin = block * kBlock, size = std::min(kBlock, row.values.size() - begin);
    const int64_t found =
        kernels_->likely_noise(context.seed, context.position, static_cast<int64_t>(begin), static_cast<int64_t>(size),
                               argmax.least_bits(highest), indices.data(), bits.data());
    for (size_t i = 0; i < static_cast<size_t>(found); ++i) {
      const size_t index = begin + static_cast<size_t>(indices[i]);
      const auto id = static_cast<int32_t>(index);
      const float logprob = row.logprob(index);
      if (!filter_.removed(logprob, id)) argmax.offer(logprob, id, bits[i]);
    }
  }
  return argmax.winner();
}

std::vector<std::pair<int32_t, float>> top_logprobs(std::span<const float> logits, float log_normalizer, int n) {
  const auto count = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  std::vector<std::pair<float, int32_t>> best;  // a heap whose front is the least likely kept
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (logits[i] == -std::numeric_limits<float>::infinity()) continue;  // banned
    const std::pair<float, int32_t> candidate{logits[i], static_cast<int32_t>(i)};
    if (best.size() == count) {
      if (!more_likely_pair(candidate, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), more_likely_pair);
      best.pop_back();
    }
    best.push_back(candidate);
    std::push_heap(best.begin(), best.end(), more_likely_pair);
  }
  std::sort_heap(best.begin(), best.end(), more_likely_pair);
  std::vector<std::pair<int32_t, float>> result;
  result.reserve(best.size());
  for (const auto& [logit, id] : best) result.emplace_back(id, logit - log_normalizer);
  return result;
}

}  // namespace sampling
}  // namespace mlxlm
