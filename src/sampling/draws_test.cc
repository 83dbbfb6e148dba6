// Draws follow the distribution that they are meant to: chi-square tests with fixed seeds, so they always give the same
// verdict.
#include <gtest/gtest.h>

#include <cmath>

#include "base/test_effort.h"
#include "sampling/sampler.h"
#include "sampling/test_rows.h"

namespace mlxlm::sampling {
namespace {

const int kDraws = cases_of(120'000);

/// A value that a chi-square variable exceeds with probability 1e−4 (Wilson and Hilferty's approximation).
double critical(double degrees) {
  const double v = 2 / (9 * degrees);
  return degrees * std::pow(1 - v + 3.719 * std::sqrt(v), 3);
}

struct Case {
  const char* name;
  SamplerOptions options;
  double spread;  // of the logits
};

/// p^(1/temp) of the survivors, renormalised.
std::vector<double> expected_distribution(const std::vector<float>& logprobs, const SamplerOptions& options, bool xtc) {
  std::vector<double> p(logprobs.size(), 0.0);
  double sum = 0;
  for (const int32_t id : survivors(TestRow(logprobs).row, options, xtc)) {
    const auto i = static_cast<size_t>(id);
    sum += p[i] = std::exp(static_cast<double>(logprobs[i]) / static_cast<double>(options.temp));
  }
  for (double& x : p) x /= sum;
  return p;
}

/// Rare tokens are counted together, so that each class expects at least ten.
void expect_draws_follow(const std::vector<int>& counts, const std::vector<double>& p) {
  double statistic = 0, rare_p = 0;
  int classes = 0, rare_count = 0;
  const auto add = [&](int count, double probability) {
    const double expected = probability * kDraws;
    statistic += (count - expected) * (count - expected) / expected;
    ++classes;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was filtered out";
    } else if (p[i] * kDraws < 10) {
      rare_p += p[i];
      rare_count += counts[i];
    } else {
      add(counts[i], p[i]);
    }
  }
  if (rare_p * kDraws >= 10) add(rare_count, rare_p);
  if (classes > 1) {
    EXPECT_LT(statistic, critical(classes - 1)) << classes << " classes";
  }
}

class Draws : public ::testing::TestWithParam<Case> {};

TEST_P(Draws, FollowTheTemperedSoftmaxOfTheSurvivors) {
  const auto logits = random_logits(50, GetParam().spread, 11);
  Sampler sampler(GetParam().options, 2026, select_kernels());
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits, i).token)];
  const auto& o = GetParam().options;
  auto p = expected_distribution(normalized(logits), o, false);
  if (o.xtc_probability > 0) {
    const auto with_xtc = expected_distribution(normalized(logits), o, true);
    const auto chance = static_cast<double>(o.xtc_probability);
    for (size_t i = 0; i < p.size(); ++i) p[i] = (1 - chance) * p[i] + chance * with_xtc[i];
  }
  expect_draws_follow(counts, p);
}

INSTANTIATE_TEST_SUITE_P(
    All, Draws,
    ::testing::Values(
        Case{"cold", {.temp = 0.2f}, 2}, Case{"plain", {.temp = 1.0f}, 2}, Case{"hot", {.temp = 3.0f}, 2},
        Case{"flat", {.temp = 1.0f}, 0.1}, Case{"peaked", {.temp = 1.0f}, 8},
        Case{"top_p", {.temp = 0.7f, .top_p = 0.9f}, 2}, Case{"min_p", {.temp = 1.5f, .min_p = 0.05f}, 2},
        Case{"top_k", {.temp = 1.0f, .top_k = 12}, 1},
        Case{"xtc", {.temp = 1.0f, .xtc_probability = 0.4f, .xtc_threshold = 0.05f}, 2},
        Case{"all", {.temp = 0.8f, .top_p = 0.97f, .min_p = 0.01f, .top_k = 9, .xtc_probability = 0.5f}, 2}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(Draws, OfNeighbouringPositionsAndSeedsAreIndependent) {
  // Pairs (this draw, the next) over four equal tokens: sixteen equal classes.
  const std::vector<float> logits(4, 0.0f);
  for (const bool by_seed : {false, true}) {
    std::vector<int> counts(16, 0);
    int last = 0;
    for (int i = 0; i <= kDraws; ++i) {
      Sampler sampler({.temp = 1}, by_seed ? static_cast<uint64_t>(i) : 5, select_kernels());
      const int token = sampler.sample(logits, by_seed ? 5 : i).token;
      if (i > 0) ++counts[static_cast<size_t>(4 * last + token)];
      last = token;
    }
    expect_draws_follow(counts, std::vector<double>(16, 1.0 / 16));
  }
}

TEST(Draws, OfManyTokensReachTheTail) {
  // Equal tokens in 64 groups.
  const std::vector<float> logits(64 * 313, 0.0f);
  Sampler sampler({.temp = 1}, 3, select_kernels());
  std::vector<int> counts(64, 0);
  const int draws = 4000;
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits, i).token / 313)];
  double statistic = 0;
  for (const int count : counts) statistic += (count - draws / 64.0) * (count - draws / 64.0) / (draws / 64.0);
  EXPECT_LT(statistic, critical(63));
  EXPECT_GT(statistic, 20);  // too even is no chance either: below with probability 1e−7
}

}  // namespace
}  // namespace mlxlm::sampling
