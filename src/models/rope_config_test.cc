// rope_scaling and rope_parameters become frequencies and angles.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/test_errors.h"
#include "models/config.h"
#include "nn/rope.h"

namespace mlxlm::models {
namespace {

using io::Json;

nn::RopeSpec read(const Json& config, int64_t dims = 64) {
  return read_rope(Config(config, "DIR/config.json"), dims, 10000);
}

const Json kLlama3 = {
    {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};

Json config_with(const char* section, const char* key, const char* type, Json scaling) {
  scaling[key] = type;
  return {{"rope_theta", 500000.0}, {"max_position_embeddings", 131072}, {section, std::move(scaling)}};
}

/// Llama 3's formula for one frequency: long wavelengths are stretched by factor, short ones kept, and between them the
/// two are blended by how often the original context holds the wavelength.
long double llama3_frequency(long double plain, long double factor, long double original) {
  const long double low = 1, high = 4;
  const long double turns = original * plain / (2 * std::numbers::pi_v<long double>);
  if (turns < low) return plain / factor;
  if (turns > high) return plain;
  const long double smooth = (turns - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

TEST(RopeConfig, Llama3MatchesItsFormulaAtPosition8192) {
  for (const char* key : {"type", "rope_type"}) {
    for (const auto& [factor, dims] : {std::pair(8.0, int64_t{128}), {32.0, 64}}) {
      Json scaling = kLlama3;
      scaling["factor"] = factor;
      const nn::RopeSpec rope = read(config_with("rope_scaling", key, "llama3", scaling), dims);
      ASSERT_EQ(rope.inv_freq.size(), static_cast<size_t>(dims / 2));
      EXPECT_EQ(rope.magnitude, 1.0f);
      const std::vector<int64_t> positions = {1, 8191, 8192, 8193, 131071};
      std::vector<float> cos(positions.size() * rope.inv_freq.size()), sin(cos.size());
      nn::rope_angles(rope, positions, cos.data(), sin.data());
      int kept = 0, stretched = 0;
      for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
        const long double plain =
            std::pow(500000.0L, -2.0L * static_cast<long double>(i) / static_cast<long double>(dims));
        const long double exact = llama3_frequency(plain, factor, 8192);
        kept += exact == plain;
        stretched += exact == plain / factor;
        // Rounded once to float32.
        EXPECT_LE(std::fabs(static_cast<long double>(rope.inv_freq[i]) / exact - 1), 0x1p-24L + 1e-12L) << i;
        for (size_t p = 0; p < positions.size(); ++p) {
          // The frequency and its product with the position are each rounded to float32, as in mlx-lm.
          const long double angle = static_cast<long double>(positions[p]) * exact;
          const long double tolerance = angle * 0x1p-23L + 0x1p-23L;
          const size_t at = p * rope.inv_freq.size() + i;
          EXPECT_LE(std::fabs(cos[at] - std::cos(angle)), tolerance) << "position " << positions[p] << ", " << i;
          EXPECT_LE(std::fabs(sin[at] - std::sin(angle)), tolerance) << "position " << positions[p] << ", " << i;
        }
      }
      EXPECT_GT(kept, 5);
      EXPECT_GT(stretched, 5);
      EXPECT_LT(kept + stretched, dims / 2) << "some are blended";
    }
  }
}

TEST(RopeConfig, EveryTypeIsReadUnderEitherKeyInEitherSection) {
  const Json yarn = {{"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  const Json longrope = {{"long_factor", std::vector<double>(32, 1.5)}, {"original_max_position_embeddings", 4096}};
  const std::pair<const char*, Json> types[] = {{"linear", {{"factor", 4.0}}},
                                                {"dynamic", {{"factor", 2.0}}},
                                                {"llama3", kLlama3},
                                                {"yarn", yarn},
                                                {"longrope", longrope}};
  const nn::RopeSpec plain = plain_rope(500000, 64);
  EXPECT_TRUE(read({{"rope_theta", 500000.0}}) == plain);
  EXPECT_TRUE(read(config_with("rope_scaling", "rope_type", "default", Json::object())) == plain);
  for (const auto& [type, scaling] : types) {
    SCOPED_TRACE(type);
    const nn::RopeSpec expected = read(config_with("rope_scaling", "type", type, scaling));
    EXPECT_FALSE(expected == plain);
    EXPECT_TRUE(read(config_with("rope_scaling", "rope_type", type, scaling)) == expected);
    EXPECT_TRUE(read(config_with("rope_parameters", "rope_type", type, scaling)) == expected);
    EXPECT_TRUE(read(config_with("rope_parameters", "type", type, scaling)) == expected);
    Json both = config_with("rope_scaling", "rope_type", type, scaling);
    both["rope_scaling"]["type"] = nullptr;  // as absent
    EXPECT_TRUE(read(both) == expected);
    both["rope_scaling"]["type"] = type;
    EXPECT_TRUE(read(both) == expected);
  }
}

TEST(RopeConfig, WhatIsNotKnownIsAnError) {
  for (const char* key : {"type", "rope_type"}) {
    for (const char* section : {"rope_scaling", "rope_parameters"}) {
      const std::string message =
          message_of([&] { read(config_with(section, key, "llama4", kLlama3)); }, ErrorKind::unsupported);
      EXPECT_NE(message.find(std::string("DIR/config.json: ") + section), std::string::npos) << message;
      EXPECT_NE(message.find("\"llama4\" is not known; known: default, linear"), std::string::npos) << message;
    }
    EXPECT_NE(message_of([&] { read({{"rope_scaling", {{key, 5}}}}); }).find(key), std::string::npos);
  }
  EXPECT_NE(message_of([] { read({{"rope_scaling", 5}}); }).find("rope_scaling"), std::string::npos);
  EXPECT_NE(message_of([] { read({{"rope_scaling", {{"type", "llama3"}}}}); }).find("factor"), std::string::npos);
}

}  // namespace
}  // namespace mlxlm::models
