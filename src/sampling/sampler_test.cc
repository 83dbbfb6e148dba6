#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/philox.h"
#include "base/test_errors.h"
#include "mlxlm/error.h"
#include "sampling/test_rows.h"

namespace mlxlm::sampling {
namespace {

// Frequencies of each token over many positions.
std::map<int32_t, double> frequencies(const std::vector<float>& logits, const SamplerOptions& options, int n = 20000,
                                      const std::vector<int32_t>& special = {}) {
  check_sampler_options(options, static_cast<int64_t>(logits.size()));
  Sampler sampler(options, 42, select_kernels(), special);
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

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplerOptions& options,
                        const std::vector<int32_t>& special = {}) {
  std::set<int32_t> ids;
  for (const auto& [id, frequency] : frequencies(logits, options, 20000, special)) ids.insert(id);
  return ids;
}

TEST(Sampler, FiltersKeepWhatTheReferenceKeeps) {
  const auto p = logs({0.5, 0.22, 0.18, 0.10});
  EXPECT_EQ(drawn(p, {.temp = 1, .top_p = 0.75f, .top_k = 3}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(drawn(p, {.temp = 1, .min_p = 0.4f}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn(p, {.temp = 1, .top_k = 1}), (std::set<int32_t>{0}));
  EXPECT_EQ(drawn(p, {.temp = 1, .top_p = 1.0f}), (std::set<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, XtcNeverRemovesSpecialTokens) {
  const auto p = logs({0.4, 0.3, 0.16, 0.14});  // EOS, newline, A, B
  const SamplerOptions options{.temp = 1, .xtc_probability = 1, .xtc_threshold = 0.1f};
  EXPECT_EQ(drawn(p, options, {0, 1}), (std::set<int32_t>{0, 1, 3}));
  EXPECT_EQ(drawn(p, {.temp = 1, .xtc_probability = 1, .xtc_threshold = 0.1f}), (std::set<int32_t>{3}));
}

TEST(Sampler, XtcActsByTheDrawOfThePosition) {
  const auto p = logs({0.6, 0.4});
  Sampler sampler({.temp = 0.01f, .xtc_probability = 0.3f}, 42, select_kernels());
  int acted = 0;
  for (int position = 0; position < 2000; ++position) {
    const bool acts = uniform_draw(42, position, DrawPurpose::xtc, 0) <= 0.3f;
    acted += acts;
    ASSERT_EQ(sampler.sample(p, position).token, acts ? 1 : 0) << position;  // so cold that the more likely wins
  }
  EXPECT_NEAR(acted, 600, 100);  // five standard errors
}

/// argmax over the survivors of logprob / temp + noise, noise drawn for every one.
int32_t exhaustive(const std::vector<float>& logprobs, const SamplerOptions& o, uint64_t seed, int64_t position) {
  const bool xtc = o.xtc_probability > 0 && uniform_draw(seed, position, DrawPurpose::xtc, 0) <= o.xtc_probability;
  double best = -HUGE_VAL;
  int32_t winner = -1;
  for (const int32_t id : survivors(TestRow(logprobs).row, o, xtc)) {
    const double scaled = static_cast<double>(logprobs[static_cast<size_t>(id)]) * (1.0 / static_cast<double>(o.temp));
    const double score = scaled + gumbel_noise(seed, position, id);
    if (score > best) best = score, winner = id;
  }
  return winner;
}

TEST(Sampler, ShortcutsNeverChangeTheChoice) {
  const SamplerOptions cases[] = {{.temp = 1},
                                  {.temp = 0.1f},
                                  {.temp = 50},
                                  {.temp = 1e-6f},
                                  {.temp = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.02f},
                                  {.temp = 2, .top_p = 0.9f},
                                  {.temp = 2, .min_p = 0.01f},
                                  {.temp = 2, .top_k = 60},
                                  {.temp = 1, .top_p = 0.95f, .min_p = 0.01f, .top_k = 20, .xtc_probability = 0.5f}};
  int64_t position = 0;
  for (const size_t n : {61u, 64u, 130u, 5003u}) {
    for (const double spread : {0.1, 2.0, 6.0}) {
      const auto logprobs = normalized(random_logits(n, spread, n));
      for (const SamplerOptions& o : cases) {
        Sampler sampler(o, 8, select_kernels());
        for (int i = 0; i < 20; ++i, ++position) {
          ASSERT_EQ(sampler.sample_logprobs(logprobs, {77, position}), exhaustive(logprobs, o, 77, position)) << n;
        }
      }
    }
  }
}

TEST(Sampler, EveryInstructionSetGivesTheSameBits) {
  const SamplerOptions cases[] = {{}, {.temp = 1}, {.temp = 0.7f, .top_p = 0.95f}, {.temp = 1, .xtc_probability = 1}};
  for (int round = 0; round < 50; ++round) {
    const auto logits = random_logits(3001, round % 2 == 0 ? 0.5 : 3, static_cast<uint64_t>(round));
    for (const SamplerOptions& o : cases) {
      Sampler reference(o, 5, select_kernels("scalar"));
      const Choice expected = reference.sample(logits, round);
      for (const Kernels* kernels : available_kernels()) {
        Sampler sampler(o, 5, *kernels);
        const Choice got = sampler.sample(logits, round);
        EXPECT_EQ(got.token, expected.token) << kernels->isa;
        EXPECT_EQ(got.logprob, expected.logprob) << kernels->isa;
      }
    }
  }
}

TEST(MakeSampler, ChoosesAsTheEngineDoes) {
  for (const SamplerOptions& o : {SamplerOptions{},
                                  {.temp = 1},
                                  {.temp = 0.7f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 30},
                                  {.temp = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.05f}}) {
    const SamplerFunction function = make_sampler(o);
    Sampler sampler(o, 31, select_kernels());
    for (int64_t position = 0; position < 200; ++position) {
      const auto logits = random_logits(500, 2, static_cast<uint64_t>(position));
      const Choice choice = sampler.sample(logits, position);
      std::vector<float> logprobs = logits;
      for (float& x : logprobs) x -= sampler.log_normalizer();
      ASSERT_EQ(function(logprobs, {31, position}), choice.token);
      ASSERT_EQ(logprobs[static_cast<size_t>(choice.token)], choice.logprob);
    }
  }
}

TEST(MakeSampler, ChecksWhenMadeAndTheVocabularyWhenCalled) {
  EXPECT_THROW(make_sampler({.temp = -1}), Error);
  EXPECT_THROW(make_sampler({.temp = 1, .xtc_probability = 0.5f, .xtc_threshold = 0}), Error);
  const SamplerFunction function = make_sampler({.temp = 1, .top_k = 4});
  const std::vector<float> row(4, std::log(0.25f));
  EXPECT_THROW(function(row, {}), Error);
}

TEST(SamplingContext, DrawsArePureFunctions) {
  const SamplingContext context{7, 3};
  EXPECT_EQ(context.gumbel(11), gumbel_noise(7, 3, 11));
  EXPECT_EQ(context.uniform(), context.uniform(0));
  EXPECT_NE(context.uniform(0), context.uniform(1));
  EXPECT_NE(context.uniform(0), (SamplingContext{7, 4}).uniform(0));
}

TEST(Sampler, ANucleusMayNeedTheWholeTail) {
  std::vector<float> logits(200000, 0.0f);  // one token e^17 as likely as each of 200,000 others: 99.2 % of the mass
  logits[7] = 17.0f;
  Sampler sampler({.temp = 1000.0f, .top_p = 0.999f}, 1, select_kernels());
  std::set<int32_t> ids;
  for (int i = 0; i < 50; ++i) ids.insert(sampler.sample(logits, i).token);
  EXPECT_GT(ids.size(), 20u);
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(drawn({-inf, 1.0f, -inf, 1.0f}, {.temp = 2}), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, TheSamePositionGivesTheSameDraw) {
  const auto p = logs({0.25, 0.25, 0.25, 0.25});
  Sampler a({.temp = 1}, 9, select_kernels()), b({.temp = 1}, 9, select_kernels());
  for (int i = 99; i >= 0; --i) a.sample(p, i);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.sample(p, i).token, b.sample(p, i).token);
}

TEST(Sampler, BadLogitsAreAnError) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> late(1003, 0.0f);  // in the last, unfilled vector of a row
  late.back() = NAN;
  const std::vector<float> rows[] = {{NAN, 0}, {0, NAN}, {0, inf}, {-inf, -inf}, {-inf, NAN}, {NAN, NAN}, {inf}, late};
  for (const Kernels* kernels : available_kernels()) {
    for (const float temp : {0.0f, 1.0f}) {
      Sampler sampler({.temp = temp}, 1, *kernels);
      for (const auto& bad : rows) {
        const std::string message = message_of([&] { sampler.sample(bad, 3); });
        EXPECT_NE(message.find("position 3 hold NaN or +inf, or are all -inf"), std::string::npos) << message;
        EXPECT_EQ(message_of([&] { make_sampler({.temp = temp})(bad, {1, 3}); }), message);
      }
      EXPECT_EQ(sampler.sample(std::vector<float>{-inf, 0, -inf}, 3).token, 1) << "a single -inf is a mask";
    }
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
                                    {.min_tokens_to_keep = 0},
                                    {.xtc_probability = 1.5f},
                                    {.xtc_threshold = 0.6f},
                                    {.xtc_threshold = -0.1f},
                                    {.xtc_probability = 0.5f, .xtc_threshold = 0}}) {
    EXPECT_THROW(check_sampler_options(bad, 4), Error);
  }
  for (const int32_t bad : {-1, 4}) EXPECT_THROW(check_token_ids(std::vector<int32_t>{bad}, "ids", 4), Error);
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
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> banned = {-inf, 2.0f, -inf, -inf};
  EXPECT_EQ(top_logprobs(banned, 2.0f, 3), (std::vector<std::pair<int32_t, float>>{{1, 0.0f}}));
}

}  // namespace
}  // namespace mlxlm::sampling
