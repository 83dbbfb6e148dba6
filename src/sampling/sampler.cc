#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/scalar_math.h"

namespace mlxlm::sampling {
namespace {

// Tokens this far below the best in log-probability are e^-16 as likely: the first attempt at a nucleus leaves them
// out, and only a very flat distribution needs the second.
constexpr float kNucleusDepth = 16.0f;

bool more_likely(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

void require(bool good, const char* name, const char* expected, double got) {
  if (!good) throw_invalid("{}: expected {}, got {}", name, expected, got);
}

}  // namespace

void check_sampler_options(const SamplerOptions& o, int64_t vocab_size) {
  require(o.temp >= 0 && std::isfinite(o.temp), "temp", "a number of at least 0", o.temp);
  require(o.top_p >= 0 && o.top_p <= 1, "top_p", "a number in [0, 1]", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", "a number in [0, 1]", o.min_p);
  require(o.min_tokens_to_keep >= 1, "min_tokens_to_keep", "an integer of at least 1", o.min_tokens_to_keep);
  require(o.top_k >= 0, "top_k", "an integer of at least 0", o.top_k);
  if (o.top_k >= vocab_size) {
    throw_invalid("top_k: expected less than the vocabulary size {}, got {}", vocab_size, o.top_k);
  }
}

Sampler::Sampler(const SamplerOptions& options, uint64_t seed, const Kernels& kernels)
    : options_(options), seed_(seed), kernels_(&kernels) {}

Choice Sampler::sample(std::span<const float> logits, int64_t position) {
  const auto n = static_cast<int64_t>(logits.size());
  const auto best = static_cast<int32_t>(kernels_->argmax(logits.data(), n));
  if (best < 0) {
    throw_invalid(
        "the logits for position {} hold NaN or +inf, or are all -inf: nothing can be sampled from them. The "
        "weights may be damaged, or a value overflowed",
        position);
  }
  log_normalizer_ = kernels_->log_sum_exp(logits.data(), n);
  int32_t token = best;
  if (options_.temp > 0) {
    const bool nucleus = options_.top_p > 0 && options_.top_p < 1;
    if (nucleus || options_.min_p > 0 || options_.top_k > 0) {
      collect(logits, logits[static_cast<size_t>(best)]);
      token = draw_candidates(position);
    } else {
      token = draw_all(logits, best, position);
    }
  }
  return {token, logits[static_cast<size_t>(token)] - log_normalizer_};
}

// The filters in the reference's order: top_p, min_p, top_k, each on the full distribution's probabilities.
void Sampler::collect(std::span<const float> logits, float max) {
  if (options_.top_p > 0 && options_.top_p < 1) {
    keep_top_p(logits, max);
  } else {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  if (options_.min_p > 0) keep_min_p(max);
  const auto k = static_cast<size_t>(options_.top_k);
  if (k > 0 && candidates_.size() > k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), more_likely);
    candidates_.resize(k);
  }
}

// Keeps a token while the mass of the more likely ones is below top_p (the ascending cumulative sum exceeds 1 − top_p).
void Sampler::keep_top_p(std::span<const float> logits, float max) {
  for (const float depth : {kNucleusDepth, HUGE_VALF}) {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] >= max - depth) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
    }
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
    double mass = 0;
    size_t kept = 0;
    while (kept < candidates_.size() && mass < static_cast<double>(options_.top_p)) {
      mass += fixed_exp(static_cast<double>(candidates_[kept].first - log_normalizer_));
      ++kept;
    }
    const bool complete = mass >= static_cast<double>(options_.top_p);
    candidates_.resize(kept);
    if (complete) return;
  }
}

void Sampler::keep_min_p(float max) {
  const double limit = static_cast<double>(max) + fixed_log(static_cast<double>(options_.min_p));
  const auto keep = std::min(static_cast<size_t>(options_.min_tokens_to_keep), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(keep), candidates_.end(),
                    more_likely);
  const auto unlikely = [&](const Candidate& c) { return static_cast<double>(c.first) < limit; };
  candidates_.erase(
      std::remove_if(candidates_.begin() + static_cast<std::ptrdiff_t>(keep), candidates_.end(), unlikely),
      candidates_.end());
}

int32_t Sampler::draw_candidates(int64_t position) const {
  const double temp = options_.temp;
  double best_score = -HUGE_VAL;
  int32_t best = candidates_.front().second;
  for (const auto& [logit, id] : candidates_) {
    const double score = static_cast<double>(logit) / temp + gumbel_noise(seed_, position, id);
    if (score > best_score || (score == best_score && id < best)) {
      best_score = score;
      best = id;
    }
  }
  return best;
}

// argmax of logit / temp + noise. Noise is bounded, so a token too far behind needs none drawn.
int32_t Sampler::draw_all(std::span<const float> logits, int32_t best, int64_t position) const {
  const double temp = options_.temp;
  int32_t winner = best;
  double best_score =
      static_cast<double>(logits[static_cast<size_t>(best)]) / temp + gumbel_noise(seed_, position, best);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double scaled = static_cast<double>(logits[i]) / temp;
    if (scaled + kMaxGumbel < best_score) continue;
    const auto id = static_cast<int32_t>(i);
    const double score = scaled + gumbel_noise(seed_, position, id);
    if (score > best_score || (score == best_score && id < winner)) {
      best_score = score;
      winner = id;
    }
  }
  return winner;
}

std::vector<std::pair<int32_t, float>> top_logprobs(std::span<const float> logits, float log_normalizer, int n) {
  const auto count = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  std::vector<std::pair<float, int32_t>> best;  // a heap whose front is the least likely kept
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    const std::pair<float, int32_t> candidate{logits[i], static_cast<int32_t>(i)};
    if (best.size() == count) {
      if (!more_likely(candidate, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), more_likely);
      best.pop_back();
    }
    best.push_back(candidate);
    std::push_heap(best.begin(), best.end(), more_likely);
  }
  std::sort_heap(best.begin(), best.end(), more_likely);
  std::vector<std::pair<int32_t, float>> result;
  for (const auto& [logit, id] : best) result.emplace_back(id, logit - log_normalizer);
  return result;
}

}  // namespace mlxlm::sampling
