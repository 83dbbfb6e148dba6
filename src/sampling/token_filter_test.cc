#include "sampling/token_filter.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "sampling/probability_mass.h"
#include "sampling/test_rows.h"

namespace mlxlm::sampling {
namespace {

using Ids = std::vector<int32_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();

Ids kept(const std::vector<float>& logprobs, const SamplerOptions& options, bool xtc = false, const Ids& special = {}) {
  return survivors(TestRow(logprobs).row, options, xtc, special);
}

TEST(TokenFilter, TopPIsMeasuredOnTheFullDistribution) {
  const auto p = logs({0.5, 0.22, 0.18, 0.10});
  EXPECT_EQ(kept(p, {.top_p = 0.75f, .top_k = 3}), (Ids{0, 1, 2}));  // renormalising first would leave two
  EXPECT_EQ(kept(p, {.top_p = 0.4f}), (Ids{0}));
  EXPECT_EQ(kept(p, {.top_p = 1e-30f}), (Ids{0}));  // never empty
  EXPECT_EQ(kept(p, {.top_p = 1.0f}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept(p, {.top_p = 0.0f}), (Ids{0, 1, 2, 3}));
}

TEST(TokenFilter, EqualsOfTheLastTokenOfTopPStay) {
  EXPECT_EQ(kept(logs({0.2, 0.4, 0.2, 0.2}), {.top_p = 0.5f}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept(normalized(std::vector<float>(1000, 0.0f)), {.top_p = 0.0025f}).size(), 1000u);
}

TEST(TokenFilter, MinPComparesWithTheMostLikely) {
  const auto p = logs({0.5, 0.22, 0.18, 0.10});
  EXPECT_EQ(kept(p, {.min_p = 0.4f}), (Ids{0, 1}));
  EXPECT_EQ(kept(p, {.min_p = 1.0f}), (Ids{0}));
  EXPECT_EQ(kept(p, {.min_p = 1.0f, .min_tokens_to_keep = 3}), (Ids{0, 1, 2}));
  EXPECT_EQ(kept(p, {.min_p = 1.0f, .min_tokens_to_keep = 9}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept(p, {.top_p = 0.6f, .min_p = 1.0f, .min_tokens_to_keep = 3}),
            (Ids{0, 1}));  // what top_p dropped is gone
}

TEST(TokenFilter, TopKKeepsTheLowerIdsAmongEquals) {
  EXPECT_EQ(kept(logs({0.1, 0.3, 0.3, 0.3}), {.top_k = 2}), (Ids{1, 2}));
  EXPECT_EQ(kept(normalized(std::vector<float>(1000, 0.0f)), {.top_k = 3}), (Ids{0, 1, 2}));
  EXPECT_EQ(kept({-kInf, 0.0f, -kInf, -kInf}, {.top_k = 3}), (Ids{1}));  // banned tokens do not come back
}

TEST(TokenFilter, XtcLeavesTheLeastLikelyAboveTheThreshold) {
  const auto p = logs({0.4, 0.3, 0.16, 0.14});  // EOS, newline, A, B
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.1f}, true, {1, 0}), (Ids{0, 1, 3}));
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.1f}, true), (Ids{3}));
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.2f}, true), (Ids{1, 2, 3}));
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.35f}, true), (Ids{0, 1, 2, 3}));  // one above: it is the least likely
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.5f}, true), (Ids{0, 1, 2, 3}));   // none above
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.1f}, false), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept(logs({0.3, 0.3, 0.2, 0.2}), {.xtc_threshold = 0.1f}, true), (Ids{2, 3}));  // equals of the least stay
}

TEST(TokenFilter, XtcSeesWhatOtherFiltersLeft) {
  const auto p = logs({0.4, 0.3, 0.16, 0.14});
  // Of 0.4, 0.3, 0.16 the last has a share of 0.186.
  EXPECT_EQ(kept(p, {.top_p = 0.8f, .xtc_threshold = 0.17f}, true), (Ids{2}));
  EXPECT_EQ(kept(p, {.xtc_threshold = 0.17f}, true), (Ids{1, 2, 3}));
  // top_k counts what XTC left.
  EXPECT_EQ(kept(p, {.top_k = 2, .xtc_threshold = 0.15f}, true), (Ids{2, 3}));
  EXPECT_EQ(kept(p, {.top_k = 2, .xtc_threshold = 0.15f}, true, {0}), (Ids{0, 2}));
}

TEST(TokenFilter, ATailBelowAllBandsCounts) {
  std::vector<float> logits(200000, 0.0f);  // one token e^17 as likely as each of 200,000 others: 99.2 % of the mass
  logits[7] = 17.0f;
  EXPECT_EQ(kept(normalized(logits), {.top_p = 0.99f}).size(), 1u);
  EXPECT_EQ(kept(normalized(logits), {.top_p = 0.999f}).size(), 200000u);
  EXPECT_EQ(kept(normalized(logits), {.top_k = 199999}).size(), 199999u);
  // Where rounding leaves the whole mass below top_p, every token that is not banned counts.
  EXPECT_EQ(kept({std::log(0.5f), std::log(0.3f), -60.0f, -kInf}, {.top_p = 0.95f}), (Ids{0, 1, 2}));
}

/// The definitions, with a full sort and long double. `doubtful`: a sum lies so near top_p that rounding may decide.
Ids naive(const std::vector<float>& lp, const SamplerOptions& o, bool xtc, const Ids& special, bool& doubtful) {
  Ids order(lp.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t id) { return lp[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return at(a) > at(b); });
  const float max = at(order[0]);
  if (o.top_p > 0 && o.top_p < 1) {
    long double mass = 0;
    size_t n = 0;
    for (; n < order.size() && mass < o.top_p; ++n) {
      mass += std::exp(static_cast<long double>(at(order[n])));
      doubtful |= std::fabs(mass - o.top_p) < 1e-9L;
    }
    while (n < order.size() && at(order[n]) == at(order[n - 1])) ++n;
    order.resize(n);
  }
  if (o.min_p > 0) {
    const float limit = max + static_cast<float>(std::log(static_cast<double>(o.min_p)));
    size_t n = 0;
    while (n < order.size() && (at(order[n]) >= limit || n < static_cast<size_t>(o.min_tokens_to_keep))) ++n;
    order.resize(n);
  }
  if (xtc) {
    long double total = 0;
    for (const int32_t id : order) total += std::exp(static_cast<long double>(at(id)));
    float least = kInf;
    for (const int32_t id : order) {
      const long double share = std::exp(static_cast<long double>(at(id))) / total;
      doubtful |= std::fabs(share - o.xtc_threshold) < 1e-6L;
      if (share > o.xtc_threshold) least = at(id);
    }
    std::erase_if(order, [&](int32_t id) {
      return at(id) > least && std::find(special.begin(), special.end(), id) == special.end();
    });
  }
  if (o.top_k > 0 && order.size() > static_cast<size_t>(o.top_k)) order.resize(static_cast<size_t>(o.top_k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TokenFilter, KeepsWhatTheDefinitionsKeep) {
  std::mt19937_64 random(3);
  const auto pick = [&](std::initializer_list<double> values) {
    return static_cast<float>(*(values.begin() + random() % values.size()));
  };
  int compared = 0, doubtful_rows = 0;
  for (int round = 0; round < 6000; ++round) {
    const size_t n = round % 100 == 0 ? 20000 : 2 + random() % 400;
    const auto row = normalized(random_logits(n, pick({0.02, 0.5, 2, 6}), random()));
    SamplerOptions o;
    o.top_p = pick({0, 0.05, 0.5, 0.9, 0.95, 0.999});
    o.min_p = pick({0, 0, 0.02, 0.5, 0.9});
    o.min_tokens_to_keep = static_cast<int>(pick({1, 1, 3, 50}));
    o.top_k = std::min(static_cast<int>(pick({0, 0, 1, 5, 40, 300})), static_cast<int>(n) - 1);
    const bool xtc = random() % 2 == 0;
    o.xtc_threshold = pick({0.001, 0.01, 0.1, 0.3, 0.5});
    Ids special;
    if (random() % 2 == 0) special = {0, static_cast<int32_t>(random() % n)};
    bool doubtful = false;
    const Ids expected = naive(row, o, xtc, special, doubtful);
    doubtful_rows += doubtful;
    if (doubtful) continue;
    ++compared;
    ASSERT_EQ(kept(row, o, xtc, special), expected) << round;
  }
  EXPECT_GT(compared, 5900) << doubtful_rows;
}

TEST(ProbabilityMass, IsTheProbability) {
  for (float x = -36.4f; x < 0; x += 0.0037f) {
    const double exact = std::exp(static_cast<double>(x)) * static_cast<double>(kWholeMass);
    ASSERT_NEAR(static_cast<double>(mass_of(x)), exact, 1 + exact * 1e-11) << x;
  }
  EXPECT_EQ(mass_of(0.0f), kWholeMass);
  EXPECT_EQ(mass_of(1e-6f), kWholeMass);
  EXPECT_EQ(mass_of(-37.0f), 0u);
  EXPECT_EQ(mass_of(-kInf), 0u);
}

}  // namespace
}  // namespace mlxlm::sampling
