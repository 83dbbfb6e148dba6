#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/scalar_math.h"

namespace mlxlm {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Philox, MatchesThePublishedAnswers) {  // known-answer vectors of the Random123 distribution
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, GumbelNoiseHasItsMeanVarianceAndBounds) {
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double g = gumbel_noise(7, i / 1000, i % 1000);
    ASSERT_LT(g, kMaxGumbel);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / n, variance = squares / n - mean * mean;
  EXPECT_NEAR(mean, 0.5772, 0.02);               // Euler's constant; standard error 0.003
  EXPECT_NEAR(variance, M_PI * M_PI / 6, 0.05);  // standard error 0.008
}

TEST(Philox, DrawsDependOnEveryKey) {
  const double base = gumbel_noise(1, 2, 3);
  EXPECT_EQ(base, gumbel_noise(1, 2, 3));
  EXPECT_NE(base, gumbel_noise(2, 2, 3));
  EXPECT_NE(base, gumbel_noise(uint64_t{1} << 40 | 1, 2, 3));
  EXPECT_NE(base, gumbel_noise(1, 3, 3));
  EXPECT_NE(base, gumbel_noise(1, 2, 4));
  EXPECT_NE(uniform_draw(1, 2, DrawPurpose::xtc, 3), uniform_draw(1, 2, DrawPurpose::user, 3));
}

TEST(ScalarMath, AgreesWithTheSystemLibrary) {
  for (int i = 1; i < 200000; ++i) {
    const double x = i * 0.00037, big = i * 7.77;
    ASSERT_NEAR(fixed_log(x), std::log(x), 1e-15 * std::fmax(1, std::fabs(std::log(x))));
    ASSERT_NEAR(fixed_exp(x) / std::exp(x), 1.0, 1e-15);
    ASSERT_NEAR(fixed_exp(-x) / std::exp(-x), 1.0, 1e-15);
    const SinCos sc = fixed_sincos(big);
    ASSERT_NEAR(sc.sin, std::sin(big), 1e-14) << big;
    ASSERT_NEAR(sc.cos, std::cos(big), 1e-14) << big;
  }
  const double near_one = 1.0 - 0x1p-33;  // the largest u of gumbel_noise
  EXPECT_NEAR(fixed_log(near_one) / std::log1p(-0x1p-33), 1.0, 1e-15);
  EXPECT_NEAR(fixed_pow(10000.0, -0.5), 0.01, 1e-16);
  EXPECT_EQ(fixed_exp(-1000), 0.0);
  EXPECT_TRUE(std::isinf(fixed_exp(1000)));
  EXPECT_TRUE(std::isnan(fixed_exp(NAN)));
}

}  // namespace
}  // namespace mlxlm
