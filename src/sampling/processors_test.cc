#include "sampling/processors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/test_errors.h"
#include "mlxlm/error.h"
#include "sampling/sampler.h"

namespace mlxlm::sampling {
namespace {

using Ids = std::vector<int32_t>;
using Processors = std::vector<std::shared_ptr<LogitsProcessor>>;

std::vector<float> processed(const Processors& processors, const Ids& prompt, const Ids& generated,
                             std::vector<float> logits, const Ids& eos = {}) {
  Ids tokens = prompt;
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  for (const auto& p : processors) {
    p->start({prompt, static_cast<int64_t>(logits.size()), eos});
    p->process(tokens, logits);
  }
  return logits;
}

TEST(Penalties, RepetitionWindowIsASettingOfTheRequest) {
  Ids tokens(26, 1);
  tokens[0] = 0;  // 25 tokens back
  for (const auto& [window, expected] : {std::pair{20, -2.0f}, {128, -3.0f}, {0, -3.0f}, {26, -3.0f}, {25, -2.0f}}) {
    const auto processors = make_logits_processors({.repetition_penalty = 1.5f, .repetition_context_size = window});
    EXPECT_EQ(processed(processors, tokens, {}, {-2, 3})[0], expected) << window;
    EXPECT_EQ(processed(processors, {}, tokens, {-2, 3})[1], 2.0f) << window;  // positive: divided, once
  }
}

TEST(Penalties, PresenceAndFrequencyCountPromptAndGenerated) {
  const LogitsProcessorOptions options{.presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  EXPECT_EQ(processed(make_logits_processors(options), {2, 2, 2}, {}, {1, 1, 1}), (std::vector<float>{1, 1, -0.25f}));
  EXPECT_EQ(processed(make_logits_processors(options), {2, 2, 2}, {2, 0}, {1, 1, 1}),
            (std::vector<float>{0.25f, 1, -0.5f}));
}

TEST(Penalties, ThePromptNeedNotCount) {
  const LogitsProcessorOptions options{.presence_penalty = 0.5f, .frequency_penalty = 0.25f, .penalize_prompt = false};
  EXPECT_EQ(processed(make_logits_processors(options), {2, 2, 2}, {}, {1, 1, 1})[2], 1.0f);
  EXPECT_EQ(processed(make_logits_processors(options), {2, 2, 2}, {2, 2}, {1, 1, 1})[2], 1 - 0.5f - 2 * 0.25f);
  // Repetition has no counterpart in OpenAI's interface: the prompt counts.
  const LogitsProcessorOptions repetition{.repetition_penalty = 2, .penalize_prompt = false};
  EXPECT_EQ(processed(make_logits_processors(repetition), {2}, {}, {1, 1, 1})[2], 0.5f);
}

TEST(Penalties, WindowsOfPresenceAndFrequency) {
  const LogitsProcessorOptions options{
      .presence_penalty = 1, .presence_context_size = 2, .frequency_penalty = 0.25f, .frequency_context_size = 3};
  EXPECT_EQ(processed(make_logits_processors(options), {0, 1}, {1, 1}, {8, 8}), (std::vector<float>{8, 8 - 1 - 0.75f}));
}

TEST(Penalties, OrderIsBiasRepetitionPresenceFrequency) {
  const LogitsProcessorOptions options{
      .logit_bias = {{0, 3.0f}}, .repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 0.5f};
  const auto processors = make_logits_processors(options);
  ASSERT_EQ(processors.size(), 4u);
  EXPECT_EQ(
      processors[0]->name() + " " + processors[1]->name() + " " + processors[2]->name() + " " + processors[3]->name(),
      "logit_bias repetition_penalty presence_penalty frequency_penalty");
  EXPECT_EQ(processed(processors, {0}, {}, {1, 1})[0], (1 + 3) / 2.0f - 1 - 0.5f);
}

TEST(Penalties, DefaultsAreLeftOut) {
  EXPECT_TRUE(make_logits_processors({}).empty());
  EXPECT_TRUE(make_logits_processors({.repetition_penalty = 1}).empty());
}

TEST(Penalties, AnyCallFitsAnyVocabulary) {  // a draft's is shorter than the target's, and a processor is used again
  const auto processors = make_logits_processors(
      {.logit_bias = {{7, 1.0f}}, .repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 1});
  for (const size_t n : {9u, 4u, 9u}) {
    std::vector<float> logits(n, 4.0f);
    for (const auto& p : processors) p->process(Ids{7, 7, 1}, logits);
    EXPECT_EQ(logits[1], 0.0f);
    if (n == 9) {
      EXPECT_EQ(logits[7], 5 / 2.0f - 1 - 2);
    }
  }
}

TEST(Penalties, ErrorsNameTheOption) {
  const auto message = [](const LogitsProcessorOptions& o) { return message_of([&] { make_logits_processors(o); }); };
  EXPECT_NE(message({.repetition_penalty = -1}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = NAN}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = INFINITY}).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message({.frequency_penalty = NAN}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message({.repetition_context_size = -1}).find("repetition_context_size"), std::string::npos);
  EXPECT_NE(message({.presence_context_size = -1}).find("presence_context_size"), std::string::npos);
  EXPECT_NE(message({.frequency_context_size = -2}).find("frequency_context_size"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{5, INFINITY}}}).find("logit_bias[5]"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{5, NAN}}}).find("logit_bias[5]"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{-1, 1.0f}}}).find("logit_bias"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{5, 1.0f}, {5, 2.0f}}}).find("logit_bias[5]"), std::string::npos);
  const auto outside = make_logits_processors({.logit_bias = {{5, 1.0f}}});
  EXPECT_NE(message_of([&] { processed(outside, {}, {}, {0, 0, 0}); }).find("[0, 3)"), std::string::npos);
}

TEST(Penalties, ABiasOfMinus100MeansNever) {
  const auto bias = make_logits_processors({.logit_bias = {{1, -100.0f}}});
  const auto logits = processed(bias, {}, {}, {0, 12, 1});
  Sampler sampler({.temp = 1}, 3, select_kernels());
  for (int i = 0; i < 5000; ++i) ASSERT_NE(sampler.sample(logits, i).token, 1);
}

TEST(Processors, BannedIdsNeverAppear) {
  const auto banned = ban_token_ids({0, 2});
  const float inf = INFINITY;
  EXPECT_EQ(processed({banned}, {}, {}, {1, 2, 3}), (std::vector<float>{-inf, 2, -inf}));
  EXPECT_THROW(ban_token_ids({-1}), Error);
  EXPECT_THROW(processed({ban_token_ids({3})}, {}, {}, {1, 2, 3}), Error);
}

TEST(Processors, NothingLeftIsAnErrorOfTheSampler) {
  const auto logits = processed({ban_token_ids({0, 1})}, {}, {}, {1, 2});
  Sampler sampler({.temp = 1}, 1, select_kernels());
  EXPECT_NE(message_of([&] { sampler.sample(logits, 3); }).find("all -inf"), std::string::npos);
}

TEST(Processors, MinLengthBansTheEndUntilThen) {
  const auto least = min_length(2);
  EXPECT_TRUE(std::isinf(processed({least}, {5, 5, 5}, {}, {1, 1, 1}, {0, 2})[2]));
  EXPECT_TRUE(std::isinf(processed({least}, {5}, {1}, {1, 1, 1}, {0, 2})[0]));
  EXPECT_EQ(processed({least}, {5}, {1, 1}, {1, 1, 1}, {0, 2}), (std::vector<float>{1, 1, 1}));
  EXPECT_THROW(min_length(-1), Error);
}

TEST(Processors, AFunctionIsAProcessor) {
  const auto function = make_logits_processor(
      [](std::span<const int32_t> tokens, std::span<float> logits) { logits[0] = static_cast<float>(tokens.size()); },
      "mine");
  EXPECT_EQ(processed({function}, {5, 5}, {5}, {0, 1}), (std::vector<float>{3, 1}));
  EXPECT_EQ(function->name(), "mine");
  EXPECT_EQ(function->clone(), nullptr);
  EXPECT_THROW(make_logits_processor({}), Error);
}

TEST(Processors, AClonePenalisesAlike) {
  auto processors = make_logits_processors({.logit_bias = {{0, 2}},
                                            .repetition_penalty = 3,
                                            .presence_penalty = 1,
                                            .frequency_penalty = 2,
                                            .penalize_prompt = false});
  processors.push_back(ban_token_ids({3}));
  processors.push_back(min_length(5));
  const Ids prompt = {0, 1}, history = {0, 1, 2, 2}, eos = {4};
  for (const auto& p : processors) {
    p->start({prompt, 5, eos});
    const auto copy = p->clone();
    ASSERT_NE(copy, nullptr) << p->name();
    std::vector<float> a = {1, -2, 3, 4, 5}, b = a;
    p->process(history, a);
    copy->process(history, b);
    EXPECT_EQ(a, b) << p->name();
    EXPECT_EQ(copy->name(), p->name());
    EXPECT_NE(a, (std::vector<float>{1, -2, 3, 4, 5})) << p->name();
  }
}

}  // namespace
}  // namespace mlxlm::sampling
