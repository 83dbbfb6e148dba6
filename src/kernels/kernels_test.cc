// Rows, logits and elementary functions. Bits are compared between all sets this CPU can run.
#include "kernels/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "kernels/scalar/simd.h"
#include "kernels/test_support.h"
#include "mlxlm/error.h"

namespace mlxlm {
namespace {

#include "kernels/generic/math.inl"

using Values = std::vector<float>;

/// Sizes around the widths of vectors and lanes, and one of a real model.
const std::vector<int64_t> kSizes = {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 80, 100, 576, 1003};

TEST(SelectKernels, NamesASetOrSaysWhichThereAre) {
  for (const Kernels* kernels : available_kernels()) EXPECT_EQ(&select_kernels(kernels->isa), kernels);
  EXPECT_STREQ(available_kernels().back()->isa, "scalar");
  try {
    select_kernels("mmx");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
  }
}

/// The largest distance of `f` from `reference` over floats of all kinds.
double largest_error(F8 (*f)(F8), double (*reference)(double), bool (*wanted)(float)) {
  double worst = 0;
  const Values inputs = all_kinds_of_floats(2'000'000);
  for (size_t i = 0; i + 8 <= inputs.size(); i += 8) {
    float out[8];
    store_f32(out, f(load_f32(&inputs[i])));
    for (size_t j = 0; j < 8; ++j) {
      if (!wanted(inputs[i + j])) continue;
      const double error = ulps(out[j], reference(inputs[i + j]));
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

TEST(Math, ExpIsWithinTwoUlpAndFlushesWhatIsBelowTheNormals) {
  const auto reference = [](double x) { return std::exp(x) < 0x1p-126 ? 0 : std::exp(x); };
  EXPECT_LE(largest_error([](F8 x) { return exp(x); }, reference, [](float) { return true; }), 1.5);
  EXPECT_LE(largest_error([](F8 x) { return exp_limited(x); }, reference, [](float x) { return !(x > 88.0f); }), 1.5);
}

TEST(Math, LogIsWithinTwoUlp) {
  const auto reference = [](double x) { return x >= 0 && x < 0x1p-126 ? -INFINITY : std::log(x); };
  EXPECT_LE(largest_error([](F8 x) { return log(x); }, reference, [](float) { return true; }), 2);
}

TEST(Math, TanhIsWithinFourUlp) {
  EXPECT_LE(
      largest_error([](F8 x) { return tanh(x); }, [](double x) { return std::tanh(x); }, [](float) { return true; }),
      4);
}

/// Runs f with every set on copies of x and expects the same bits from all; returns them.
Values same_from_all(const Values& x, const std::function<void(const Kernels&, Values&)>& f) {
  Values first;
  for (const Kernels* kernels : available_kernels()) {
    Values out = x;
    f(*kernels, out);
    if (first.empty()) first = out;
    EXPECT_EQ(difference(first, out), "") << available_kernels().front()->isa << " and " << kernels->isa;
  }
  return first;
}

double activation_value(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  }
  return NAN;
}

TEST(Gated, FollowsTheDefinitionAndHasTheSameBits) {
  for (Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu}) {
    const Values gate = all_kinds_of_floats(1'000'000);
    const Values up(gate.size(), 1.0f);
    const Values out = same_from_all(gate, [&](const Kernels& k, Values& x) {
      k.gated(activation, gate.data(), up.data(), x.data(), static_cast<int64_t>(x.size()));
    });
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = gate[i], expected = activation_value(activation, x);
      if (std::isnan(expected) || std::isinf(expected)) continue;
      ASSERT_LE(std::fabs(out[i] - expected), 1e-6 * std::max(1.0, std::fabs(x))) << x;
    }
  }
  TestRandom random(1);
  for (int64_t n : kSizes) {
    const Values gate = random.vector(n, 4), up = random.vector(n, 2);
    const Values out = same_from_all(
        gate, [&](const Kernels& k, Values& x) { k.gated(Activation::silu, x.data(), up.data(), x.data(), n); });
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_NEAR(out[i], activation_value(Activation::silu, gate[i]) * up[i], 1e-5);
    }
  }
}

TEST(Softcap, FollowsTheDefinitionAndHasTheSameBits) {
  const Values x = all_kinds_of_floats(1'000'000);
  const Values out =
      same_from_all(x, [](const Kernels& k, Values& v) { k.softcap(v.data(), 30.0f, static_cast<int64_t>(v.size())); });
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(out[i]));
    } else {
      ASSERT_LE(std::fabs(out[i] - 30 * std::tanh(x[i] / 30.0)), 1e-5) << x[i];
    }
  }
}

TEST(RmsNorm, FollowsTheOrderOfTheContract) {
  TestRandom random(2);
  for (int64_t n : kSizes) {
    const Values x = random.vector(n, 3), weight = random.vector(n);
    Values lanes(16, 0.0f), expected(x.size());
    for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fmaf(x[i], x[i], lanes[i % 16]);
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    const float inverse = 1.0f / std::sqrt(lanes[0] / static_cast<float>(n) + 1e-5f);
    for (size_t i = 0; i < x.size(); ++i) expected[i] = x[i] * inverse * weight[i];
    const Values in_place =
        same_from_all(x, [&](const Kernels& k, Values& v) { k.rms_norm(v.data(), weight.data(), v.data(), n, 1e-5f); });
    const Values elsewhere = same_from_all(Values(x.size()), [&](const Kernels& k, Values& v) {
      k.rms_norm(x.data(), weight.data(), v.data(), n, 1e-5f);
    });
    EXPECT_EQ(difference(in_place, expected), "") << n;
    EXPECT_EQ(difference(elsewhere, expected), "") << n;
  }
}

TEST(AddAndScale, AreElementwise) {
  TestRandom random(3);
  for (int64_t n : kSizes) {
    const Values x = random.vector(n), y = random.vector(n);
    Values sum = x, scaled = x;
    for (size_t i = 0; i < x.size(); ++i) sum[i] += y[i];
    for (float& value : scaled) value *= 0.3f;
    EXPECT_EQ(difference(same_from_all(x, [&](const Kernels& k, Values& v) { k.add(v.data(), y.data(), n); }), sum),
              "");
    EXPECT_EQ(difference(same_from_all(x, [&](const Kernels& k, Values& v) { k.scale(v.data(), 0.3f, n); }), scaled),
              "");
  }
}

TEST(Rope, RotatesPairsAndLeavesTheRest) {
  TestRandom random(4);
  for (int64_t half : {1, 4, 8, 12, 16, 20, 32, 40, 64}) {
    for (bool interleaved : {false, true}) {
      for (float factor : {1.0f, 0.125f, 0.3f}) {
        const int64_t heads = 3, head_dim = 2 * half + (half % 8 == 4 ? 8 : 0);
        const Values x = random.vector(heads * head_dim), cos = random.vector(half), sin = random.vector(half);
        Values expected = x;
        for (int64_t h = 0; h < heads; ++h) {
          float* row = expected.data() + h * head_dim;
          for (int64_t i = 0; i < half; ++i) {
            float& first = row[interleaved ? 2 * i : i];
            float& second = row[interleaved ? 2 * i + 1 : i + half];
            const float a = first, b = second;
            const size_t j = static_cast<size_t>(i);
            first = std::fmaf(a, cos[j], -(b * sin[j]));
            second = std::fmaf(a, sin[j], b * cos[j]);
          }
        }
        for (float& value : expected) value *= factor;
        const Values out = same_from_all(x, [&](const Kernels& k, Values& v) {
          k.rope(v.data(), heads, head_dim, half, cos.data(), sin.data(), interleaved, factor);
        });
        EXPECT_EQ(difference(out, expected), "") << half << " " << interleaved;
      }
    }
  }
}

TEST(Argmax, IsTheFirstLargest) {
  TestRandom random(5);
  for (int64_t n : {1, 5, 8, 31, 32, 33, 100, 4095, 4096, 4097, 20'000}) {
    Values x = random.vector(n);
    for (const Kernels* k : available_kernels()) {
      const auto largest = std::max_element(x.begin(), x.end());
      EXPECT_EQ(k->argmax(x.data(), n), largest - x.begin());
      EXPECT_EQ(k->max(x.data(), n), *largest);
      Values tie = x;
      const int64_t second = random.integer(0, n - 1), first = random.integer(0, second);
      tie[static_cast<size_t>(first)] = tie[static_cast<size_t>(second)] = 2;
      EXPECT_EQ(k->argmax(tie.data(), n), first);
    }
  }
}

TEST(Argmax, RejectsWhatHasNoLargest) {
  for (int64_t n : {1, 7, 8, 32, 33, 70, 4200}) {
    for (const Kernels* k : available_kernels()) {
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        Values x(static_cast<size_t>(n), 1.0f);
        for (float bad : {NAN, -NAN, INFINITY}) {
          x[static_cast<size_t>(at)] = bad;
          EXPECT_EQ(k->argmax(x.data(), n), -1) << k->isa << " " << n << " " << at;
        }
        Values masked(static_cast<size_t>(n), -INFINITY);
        EXPECT_EQ(k->argmax(masked.data(), n), -1);
        masked[static_cast<size_t>(at)] = std::numeric_limits<float>::lowest();
        EXPECT_EQ(k->argmax(masked.data(), n), at);
        EXPECT_EQ(k->max(masked.data(), n), std::numeric_limits<float>::lowest());
      }
    }
  }
}

TEST(Argmax, TakesZerosOfBothSignsAsEqual) {
  for (const Kernels* k : available_kernels()) {
    const Values x = {-1, -0.0f, 0.0f, -1};
    EXPECT_EQ(k->argmax(x.data(), 4), 1);
  }
}

TEST(LogSumExp, IsCloseToDoubleAndHasTheSameBits) {
  TestRandom random(6);
  for (int64_t n : {1, 3, 8, 15, 16, 17, 31, 32, 33, 1000, 49'152}) {
    for (float scale : {0.0f, 1.0f, 30.0f, 1000.0f}) {
      Values x = random.vector(n, scale);
      if (n > 3) x[2] = -INFINITY;  // a masked token
      float first = 0;
      for (const Kernels* k : available_kernels()) {
        const float got = k->log_sum_exp(x.data(), n);
        if (k == available_kernels().front()) first = got;
        EXPECT_TRUE(same_bits(first, got));
      }
      double largest = -INFINITY, sum = 0;
      for (float v : x) largest = std::max(largest, static_cast<double>(v));
      for (float v : x) sum += std::exp(v - largest);
      const double expected = largest + std::log(sum);
      EXPECT_LE(std::fabs(first - expected), 3e-7 * std::max(4.0, std::fabs(expected))) << n << " " << scale;
    }
  }
}

TEST(LogSumExp, OfMasksAndOfUnusableValues) {
  for (const Kernels* k : available_kernels()) {
    for (int64_t n : {1, 16, 40}) {
      Values x(static_cast<size_t>(n), -INFINITY);
      EXPECT_EQ(k->log_sum_exp(x.data(), n), -INFINITY);
      x.back() = NAN;
      EXPECT_TRUE(std::isnan(k->log_sum_exp(x.data(), n)));
      x.back() = INFINITY;
      EXPECT_TRUE(std::isnan(k->log_sum_exp(x.data(), n)));
    }
  }
}

TEST(LikelyNoise, IsThatOfTheTokensWhoseBitsReachTheLeast) {
  constexpr uint64_t kSeed = 0x1234'5678'9abc'def0;
  for (const Kernels* k : available_kernels()) {
    for (const int64_t position : {int64_t{0}, int64_t{77}, int64_t{0x1'0000'0005}}) {
      for (const int64_t first : {0, 4, 64, 151'872}) {
        for (const int64_t n : {1, 3, 31, 32, 33, 64, 200}) {
          for (const uint32_t least : {0u, 0x8000'0000u, 0xf000'0000u, ~0u}) {
            std::vector<std::pair<int32_t, uint32_t>> expected;
            for (int32_t i = 0; i < n; ++i) {
              const auto token = static_cast<uint32_t>(first + i);
              const uint32_t bits = gumbel_bits(kSeed, position, token / 4)[token % 4];
              if (bits >= least) expected.emplace_back(i, bits);
            }
            std::vector<int32_t> indices(static_cast<size_t>(n));
            std::vector<uint32_t> bits(static_cast<size_t>(n));
            const int64_t count = k->likely_noise(kSeed, position, first, n, least, indices.data(), bits.data());
            std::vector<std::pair<int32_t, uint32_t>> got;
            for (size_t i = 0; i < static_cast<size_t>(count); ++i) got.emplace_back(indices[i], bits[i]);
            EXPECT_THAT(got, testing::UnorderedElementsAreArray(expected)) << k->isa << " " << first << " " << n;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlxlm
