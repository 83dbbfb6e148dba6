#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "mlxlm/error.h"

namespace mlxlm::sampling {
namespace {

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  return logits;
}

// Frequencies of each token over many positions.
std::map<int32_t, double> frequencies(const std::vector<float>& logits, const SamplerOptions& options, int n = 20000) {
  check_sampler_options(options, static_cast<int64_t>(logits.size()));
  Sampler sampler(options, 42, select_kernels());
  std::map<int32_t, double> counts;
  for (int i = 0; i < n; ++i) counts[sampler.sample(logits, i).token] += 1.0 / n;
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheLargest) {
  Sampler sampler({}, 1, select_kernels());
  const std::vector<float> logits = {0.0f, 3.0f, 3.0f, -1.0f};
  const Choice choice = sampler.sample(logits, 5);
  EXPECT_EQ(choice.token, 1);
  const double z = std::exp(0.0) + 2 * std::exp(3.0) + std::exp(-1.0);
  EXPECT_NEAR(choice.logprob, 3.0 - std::log(z), 1e-6);
}

TEST(Sampler, FrequenciesFollowTheTemperedDistribution) {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.1};
  for (const float temp : {0.5f, 1.0f, 2.0f}) {
    double z = 0;
    for (const double x : p) z += std::pow(x, 1 / temp);
    const auto got = frequencies(logs(p), {.temp = temp});
    for (int i = 0; i < 4; ++i) {
      // Standard error of a frequency over 20,000 draws is at most 0.0036.
      EXPECT_NEAR(got.at(i), std::pow(p[static_cast<size_t>(i)], 1 / temp) / z, 0.015) << temp << " " << i;
    }
  }
}

std::set<int32_t> survivors(const std::vector<float>& logits, const SamplerOptions& options) {
  std::set<int32_t> ids;
  for (const auto& [id, frequency] : frequencies(logits, options)) ids.insert(id);
  return ids;
}

TEST(Sampler, FiltersKeepWhatTheReferenceKeeps) {
  const auto p = logs({0.5, 0.22, 0.18, 0.10});
  EXPECT_EQ(survivors(p, {.temp = 1, .top_p = 0.75f, .top_k = 3}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(survivors(p, {.temp = 1, .top_p = 0.4f}), (std::set<int32_t>{0}));
  EXPECT_EQ(survivors(p, {.temp = 1, .min_p = 0.4f}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(survivors(p, {.temp = 1, .min_p = 1.0f, .min_tokens_to_keep = 3}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(survivors(p, {.temp = 1, .top_k = 1}), (std::set<int32_t>{0}));
  EXPECT_EQ(survivors(p, {.temp = 1, .top_p = 1.0f}), (std::set<int32_t>{0, 1, 2, 3}));
  const auto flat = std::vector<float>(1000, 0.0f);  // equal tokens: the lower ids stay
  EXPECT_EQ(survivors(flat, {.temp = 1, .top_k = 2}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(survivors(flat, {.temp = 1, .top_p = 0.0025f}), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sampler, ANucleusMayNeedTheWholeTail) {
  std::vector<float> logits(200000, 0.0f);  // one token e^17 as likely as each of 200,000 others: 99.2 % of the mass
  logits[7] = 17.0f;
  check_sampler_options({.temp = 1, .top_p = 0.999f}, 200000);
  Sampler sampler({.temp = 1000.0f, .top_p = 0.999f}, 1, select_kernels());
  std::set<int32_t> ids;
  for (int i = 0; i < 50; ++i) ids.insert(sampler.sample(logits, i).token);
  EXPECT_GT(ids.size(), 20u);
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(survivors({-inf, 1.0f, -inf, 1.0f}, {.temp = 2}), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, TheSamePositionGivesTheSameDraw) {
  const auto p = logs({0.25, 0.25, 0.25, 0.25});
  Sampler a({.temp = 1}, 9, select_kernels()), b({.temp = 1}, 9, select_kernels());
  for (int i = 99; i >= 0; --i) a.sample(p, i);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.sample(p, i).token, b.sample(p, i).token);
}

TEST(Sampler, BadLogitsAreAnError) {
  Sampler sampler({.temp = 1}, 1, select_kernels());
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& bad : {std::vector<float>{0, NAN}, {0, inf}, {-inf, -inf}}) {
    EXPECT_THROW(sampler.sample(bad, 3), Error);
  }
}

TEST(Sampler, OptionsAreCheckedWithTheirRange) {
  for (const SamplerOptions& bad : {SamplerOptions{.temp = -1},
                                    {.temp = NAN},
                                    {.top_p = 1.5f},
                                    {.top_p = -0.1f},
                                    {.min_p = 2},
                                    {.top_k = -1},
                                    {.top_k = 4},
                                    {.min_tokens_to_keep = 0}}) {
    EXPECT_THROW(check_sampler_options(bad, 4), Error);
  }
}

TEST(TopLogprobs, MostLikelyFirst) {
  const std::vector<float> logits = {0.5f, 2.0f, 1.0f, 2.0f};
  const auto top = top_logprobs(logits, 0.25f, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0], (std::pair<int32_t, float>{1, 1.75f}));
  EXPECT_EQ(top[1].first, 3);
  EXPECT_EQ(top[2].first, 2);
  EXPECT_EQ(top_logprobs(logits, 0, 9).size(), 4u);
  EXPECT_TRUE(top_logprobs(logits, 0, 0).empty());
}

}  // namespace
}  // namespace mlxlm::sampling
