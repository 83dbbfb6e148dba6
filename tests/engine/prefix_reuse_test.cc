// What is known of earlier requests: used wherever a request begins alike, never changes an answer, stays within its
// budget.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "engine/model_impl.h"
#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

Ids text_ids(int64_t n, int32_t salt = 3) {
  Ids ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * i + salt * i + salt) % 240 + 8));
  return ids;
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Without windows (llama) and with a window of 24 in every other layer (gemma3_text).
class PrefixReuse : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    io::Json config = test::tiny_config(GetParam());
    config["vocab_size"] = 256;
    config["max_position_embeddings"] = 4096;
    config["eos_token_id"] = 3;
    if (std::string(GetParam()) == "gemma3_text") {
      config["sliding_window"] = 24;
      config["sliding_window_pattern"] = 2;
    }
    folder_ = test::write_random_model({.config = config, .bits = 4, .dtype = DType::bf16, .seed = 5});
    loaded_ = std::make_unique<Loaded>(load(folder_, {.threads = 1, .prefix_cache_bytes = 1 << 20}));
  }
  void TearDown() override {
    loaded_.reset();
    std::filesystem::remove_all(folder_);
  }

  struct Answer {
    Ids tokens;
    std::vector<float> logprobs;
    std::string text;
    int64_t cached = 0;
  };
  Answer run(const Ids& prompt, GenerateOptions options) {
    Answer answer;
    for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, prompt, options)) {
      answer.tokens.push_back(r.token);
      answer.logprobs.push_back(r.logprob);
      answer.text += r.text;
      answer.cached = r.cached_tokens;
    }
    return answer;
  }
  void expect_same(const Answer& cold, const Answer& warm) {
    EXPECT_EQ(cold.tokens, warm.tokens);
    EXPECT_EQ(cold.logprobs, warm.logprobs);
    EXPECT_EQ(cold.text, warm.text);
  }
  /// The answer when everything is computed, and the one that uses what is known, which must be the same.
  Answer run_both(const Ids& prompt, GenerateOptions options = {.max_tokens = 8}) {
    options.reuse_prefix = false;
    const Answer cold = run(prompt, options);
    EXPECT_EQ(cold.cached, 0);
    options.reuse_prefix = true;
    const Answer warm = run(prompt, options);
    expect_same(cold, warm);
    return warm;
  }

  engine::PrefixCache& prefixes() { return loaded_->model.impl().prefix_cache(); }
  const nn::KvPool& pool() { return loaded_->model.impl().executor().kv_pool(); }

  std::string folder_;
  std::unique_ptr<Loaded> loaded_;
};

TEST_P(PrefixReuse, TheSameRequestTwiceComputesAtLeastOneTokenAgain) {
  for (const int64_t n : {2, 3, 12, 63, 64, 65, 66, 127, 128, 129, 200}) {
    SCOPED_TRACE(n);
    prefixes().release(prefixes().bytes());
    const Ids prompt = text_ids(n, static_cast<int32_t>(n));
    EXPECT_EQ(run_both(prompt).cached, 0);
    EXPECT_EQ(run_both(prompt).cached, n - 1);
  }
  EXPECT_EQ(run_both(Ids{9}).cached, 0);
  EXPECT_EQ(run_both(Ids{9}).cached, 0) << "the only token must be computed";
}

TEST_P(PrefixReuse, ALongPromptThenAPrefixOfItThenABranch) {
  const bool windows = std::string(GetParam()) == "gemma3_text";
  const Ids whole = text_ids(400);
  run_both(whole);
  for (const int64_t n : {399, 333, 250, 130, 65, 20}) {
    SCOPED_TRACE(n);
    const Ids begin(whole.begin(), whole.begin() + n);
    const Answer shorter = run_both(begin);
    if (!windows) {  // what a window has dropped of the long prompt is not known any more
      EXPECT_EQ(shorter.cached, n - 1);
    }
    EXPECT_EQ(run_both(begin).cached, n - 1) << "the second time";
    EXPECT_EQ(run_both(joined(begin, text_ids(90, 11))).cached, n) << "a branch behind it";
    const Answer again = run_both(joined(joined(begin, text_ids(40, 11)), text_ids(30, 17)));
    EXPECT_LE(again.cached, n + 40) << "a branch of the branch";
    EXPECT_GE(again.cached, windows ? n : n + 40) << "a branch of the branch";
  }
  EXPECT_GE(run_both(whole).cached, 1) << "and the first one again";
}

TEST_P(PrefixReuse, AnAnswerIsKnownToo) {
  const Ids prompt = text_ids(50);
  const Answer first = run_both(prompt, {.max_tokens = 40});
  // The next turn of a conversation: what was said, and more. The last token of the answer was not fed.
  const Answer second = run_both(joined(joined(prompt, first.tokens), text_ids(10, 21)));
  EXPECT_EQ(second.cached, 50 + 39);
}

TEST_P(PrefixReuse, NothingIsSharedAcrossOptionsThatHoldKeysAndValuesOtherwise) {
  const Ids prompt = text_ids(150);
  run_both(prompt);
  for (const PromptCacheOptions& options : {PromptCacheOptions{.max_kv_size = 64}, {.max_kv_size = 4096}}) {
    GenerateOptions o{.max_tokens = 8, .cache = options};
    EXPECT_EQ(run_both(prompt, o).cached, 0);
  }
}

// What is known, and the copy of a block that is alike only in its beginning, never take the room that a request needs.
TEST_P(PrefixReuse, ABudgetForOneRequestIsEnough) {
  const int64_t room = loaded_->model.kv_bytes(256);
  const Loaded tight = load(folder_, {.threads = 1, .kv_bytes = room, .prefix_cache_bytes = room});
  const auto tokens_of = [&](const Ids& prompt, BatchGenerator& batch) {
    Ids ids;
    batch.insert(prompt, {.max_tokens = 20});
    while (!batch.idle()) {
      for (const auto& r : batch.next().responses) {
        EXPECT_FALSE(r.error) << r.error->what();
        ids.push_back(r.response.token);
      }
    }
    return ids;
  };
  BatchGenerator by_model(tight.model, tight.tokenizer), own(loaded_->model, loaded_->tokenizer, {.kv_bytes = room});
  for (const int64_t n : {236, 200, 30, 236, 130}) {
    for (const int64_t begin : {n, n, n / 2}) {  // twice the same, then one that is alike in its first half
      SCOPED_TRACE(testing::Message() << n << ", " << begin);
      Ids prompt = text_ids(begin);
      prompt = joined(prompt, text_ids(n - begin, 29));
      GenerateOptions options{.max_tokens = 20, .reuse_prefix = false};
      const Ids expected = run(prompt, options).tokens;
      EXPECT_EQ(tokens_of(prompt, by_model), expected);
      EXPECT_EQ(tokens_of(prompt, own), expected);
    }
  }
}

TEST_P(PrefixReuse, WhatIsKeptStaysWithinItsBudgetOnEveryPath) {
  const int64_t budget = prefixes().byte_budget();
  ASSERT_LT(budget, 20 * loaded_->model.kv_bytes(300)) << "twenty prompts must not fit, or there is nothing to see";
  LanguageModel whole(folder_, {.load = {.threads = 1, .prefix_cache_bytes = budget}});
  engine::PrefixCache& its_own = whole.model().impl().prefix_cache();
  const auto check = [&] {
    EXPECT_LE(prefixes().bytes(), budget);
    EXPECT_LE(its_own.bytes(), budget);
  };
  const auto each_step = [&](const Ids& prompt, const GenerateOptions& options) {
    for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, prompt, options)) {
      EXPECT_GE(r.token, 0);
      check();
    }
  };
  int64_t most = 0;
  for (int32_t i = 0; i < 20; ++i) {
    const Ids prompt = text_ids(300, i);
    const GenerateOptions options{.max_tokens = 3};
    GenerateOptions guessing = options;
    each_step(prompt, options);
    generate(loaded_->model, loaded_->tokenizer, text_ids(300, 100 + i), options);
    guessing.speculation = {.prompt_lookup = true};
    each_step(text_ids(300, 200 + i), guessing);
    guessing.speculation = {.draft_model = whole.model()};
    each_step(text_ids(300, 300 + i), guessing);
    PromptCache cache(loaded_->model);
    guessing = options;
    guessing.prompt_cache = &cache;
    each_step(text_ids(300, 400 + i), guessing);
    BatchGenerator batch(loaded_->model, loaded_->tokenizer);
    for (int32_t j = 0; j < 3; ++j) batch.insert(text_ids(300, 500 + 3 * i + j), options);
    while (!batch.idle()) {
      batch.next();
      check();
    }
    batch_generate(loaded_->model, loaded_->tokenizer, {text_ids(300, 600 + i)}, {options});
    whole.generate(text_ids(300, 700 + i), {.max_tokens = 3});
    check();
    EXPECT_GT(its_own.bytes(), 0);
    most = std::max(most, prefixes().bytes());
  }
  EXPECT_GT(most, budget / 2);
  // What is left is what the budget allows, and letting go of it frees the blocks.
  EXPECT_EQ(pool().bytes_in_use(), prefixes().bytes());
  prefixes().release(prefixes().bytes());
  EXPECT_EQ(pool().bytes_in_use(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixReuse, testing::Values("llama", "gemma3_text"),
                         [](const auto& type) { return std::string(type.param); });

}  // namespace
}  // namespace mlxlm
