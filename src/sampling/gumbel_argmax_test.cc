#include "sampling/gumbel_argmax.h"

#include <gtest/gtest.h>

#include <random>

namespace mlxlm::sampling {
namespace {

TEST(GumbelArgmax, NoBitsThatCouldWinAreRuledOut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200000; ++round) {
    GumbelArgmax argmax(1, 2, 1.0f);
    const auto first = static_cast<uint32_t>(random());
    argmax.offer(0.0f, 0, first);
    const double best = gumbel_of_bits(first);
    const auto logprob = static_cast<float>(best + 6 - 30 * static_cast<double>(random() >> 11) * 0x1p-53);
    const uint32_t least = argmax.least_bits(logprob);
    if (least > 0) {
      ASSERT_LT(static_cast<double>(logprob) + gumbel_of_bits(least - 1), best) << logprob << " " << first;
    }
    if (argmax.hopeless(logprob)) {
      ASSERT_LT(static_cast<double>(logprob) + gumbel_of_bits(~0u), best);
    }
  }
}

TEST(GumbelArgmax, IsTheArgmaxOfAllScores) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal(-5, 3);
  for (int round = 0; round < 3000; ++round) {
    const float temp = round % 3 == 0 ? 0.3f : round % 3 == 1 ? 1.0f : 20.0f;
    const uint64_t seed = random();
    GumbelArgmax argmax(seed, round, temp);
    double best = -1e300;
    int32_t expected = -1;
    for (int32_t id = 0; id < 100; ++id) {
      const float logprob = normal(random);
      argmax.offer(logprob, id);
      const double score =
          static_cast<double>(logprob) * (1.0 / static_cast<double>(temp)) + gumbel_noise(seed, round, id);
      if (score > best) best = score, expected = id;
    }
    ASSERT_EQ(argmax.winner(), expected);
  }
}

TEST(GumbelArgmax, TheLowerIdWinsAmongEqualsInAnyOrder) {
  for (const bool ascending : {true, false}) {
    GumbelArgmax argmax(1, 2, 0.5f);
    for (int i = 0; i < 5; ++i) argmax.offer(-1.0f, ascending ? i : 4 - i, 12345u);
    EXPECT_EQ(argmax.winner(), 0);
  }
}

TEST(GumbelArgmax, ABannedTokenNeverWins) {
  GumbelArgmax argmax(1, 2, 1.0f);
  argmax.offer(-__builtin_inff(), 0);
  EXPECT_EQ(argmax.winner(), -1);
  argmax.offer(-1000.0f, 1);
  argmax.offer(-__builtin_inff(), 0);
  EXPECT_EQ(argmax.winner(), 1);
}

}  // namespace
}  // namespace mlxlm::sampling
